//! Calls that the µ-kernel answers itself, for programs that run on it without the server.

use abi::{Error, nucleus};

use crate::{
    Hardware, Kernel, Machine,
    event::{Event, Outcome},
};

impl<H: Hardware> Kernel<H> {
    /// Takes an event of a thread that no server looks after, and says what becomes of the thread.
    pub fn nucleus_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Call { number, arguments, .. } => match number {
                nucleus::LOG_WRITE => {
                    let bytes = arguments[0].to_le_bytes();
                    self.hardware
                        .log_bytes(&bytes[..(arguments[1] as usize).min(bytes.len())]);
                    Outcome::Return(Ok((0, 0)))
                }
                nucleus::MACHINE_STOP => {
                    self.hardware.stop(arguments[0] as u8);
                    Outcome::Return(Ok((0, 0)))
                }
                _ => Outcome::Return(Err(Error::BadCall)),
            },
            Event::Fault {
                thread,
                address,
                access,
            } => {
                let rip = self.thread_context(thread).rip;
                self.hardware.log(format_args!(
                    "thread {:#x}: {access:?} of {address:#x} at {rip:#x}, and nobody handles it",
                    thread.0
                ));
                self.thread_destroy(thread);
                Outcome::Gone
            }
            Event::Exception { thread, kind, address } => {
                self.hardware.log(format_args!(
                    "thread {:#x}: exception {kind} ({address:#x}), and nobody handles it",
                    thread.0
                ));
                self.thread_destroy(thread);
                Outcome::Gone
            }
            Event::Interrupt | Event::Poll => Outcome::Resume,
        }
    }
}
