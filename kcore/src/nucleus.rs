//! Calls that the µ-kernel answers itself, for programs that run on it without the server.

use abi::{Error, nucleus::Call};

use crate::{
    Hardware, Kernel, Machine, SpaceId, ThreadId,
    event::{Event, Outcome},
};

/// The space of the root program: the first that is made.
const ROOT_SPACE: SpaceId = SpaceId(0);

impl<H: Hardware> Kernel<H> {
    /// Takes an event of a thread that no server looks after, and says what becomes of the thread.
    pub fn nucleus_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Call {
                thread,
                number,
                arguments,
                ..
            } => match Call::from_number(number) {
                Some(call) => Outcome::Return(self.nucleus_call(thread, call, arguments)),
                None => Outcome::Return(Err(Error::BadCall)),
            },
            Event::Fault {
                thread,
                address,
                access,
            } => self.nobody_handles(thread, format_args!("{access:?} of {address:#x}")),
            Event::Exception { thread, kind, address } => {
                self.nobody_handles(thread, format_args!("exception {kind} ({address:#x})"))
            }
            Event::Interrupt | Event::Poll => Outcome::Resume,
        }
    }

    /// Ends a thread that cannot go on; the machine with it if it is one of the root program's.
    fn nobody_handles(&mut self, thread: ThreadId, what: core::fmt::Arguments<'_>) -> Outcome {
        let rip = self.thread_context(thread).rip;
        self.hardware.log(format_args!(
            "thread {:#x}: {what} at {rip:#x}, and nobody handles it",
            thread.0
        ));
        if self.thread_space(thread) == ROOT_SPACE {
            self.hardware.stop(abi::host::EXIT_PANIC);
        }
        self.thread_destroy(thread);
        Outcome::Gone
    }

    /// A call that needs no waiting.
    fn nucleus_call(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) -> Result<(u64, u64), Error> {
        let [first, second, ..] = arguments;
        let space = self.thread_space(thread);
        match call {
            Call::LogWrite => {
                let bytes = first.to_le_bytes();
                self.hardware.log_bytes(&bytes[..(second as usize).min(bytes.len())]);
                Ok((0, 0))
            }
            Call::MachineStop if space == ROOT_SPACE => {
                self.hardware.stop(first as u8);
                Ok((0, 0))
            }
            Call::MachineStop => Err(Error::Protection),
            Call::ThreadSelf => Ok((thread.0, u64::from(space.0))),
            Call::ClockNow => Ok((self.hardware.now_ns(), 0)),
        }
    }
}
