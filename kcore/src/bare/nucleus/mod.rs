//! Calls that the µ-kernel answers itself, for programs that run on it without the server.
//!
//! Rights follow from one relation: a space is *above* those that it made, and those
//! that they made. `spaces`: making and deleting them; `threads`; `interrupts`; `check`: what must
//! always hold. Messages are in [`super::ipc`], memory is in [`super::mapping`].

mod check;
mod interrupts;
mod short;
mod spaces;
mod threads;

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    nucleus::{Call, MESSAGE_AREA},
};

use crate::{
    Hardware, Kernel, Machine, SpaceId, ThreadId,
    bare::{
        Bare,
        going::Going,
        ipc::transfer::fpage,
        mapping::{Own, Progress},
    },
    event::{Event, Outcome},
    thread::{Operation, Resumed},
};
pub(in crate::bare) use interrupts::Line;
pub use short::Given;
pub(in crate::bare) use spaces::SpacePart;

/// The µ-kernel's state beyond spaces, threads and mappings.
pub struct Nucleus {
    /// By number of the space; none for spaces that are not free.
    pub(in crate::bare) spaces: Vec<Option<SpacePart>>,
    /// Identifiers of spaces are never used twice.
    versions: u64,
    /// The root program's space.
    pub(in crate::bare) root: SpaceId,
    /// Interrupts, by number.
    pub(in crate::bare) interrupts: [Line; abi::nucleus::INTERRUPTS as usize],
    /// Those that somebody receives, a bit each.
    pub(in crate::bare) bound: u32,
    /// Where the operations of threads go on, by place.
    pub(in crate::bare) going: Vec<Option<Going>>,
    /// Calls answered.
    calls: u64,
}

impl Default for Nucleus {
    fn default() -> Self {
        Self {
            spaces: Vec::new(),
            versions: 0,
            root: SpaceId::NONE,
            interrupts: [Line::UNBOUND; abi::nucleus::INTERRUPTS as usize],
            bound: 0,
            going: Vec::new(),
            calls: 0,
        }
    }
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Takes an event of a thread that no server looks after, and says what becomes of the thread.
    pub fn nucleus_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Call {
                thread,
                number,
                arguments,
                resumed,
            } => {
                self.half.nucleus.calls += 1;
                let me = thread.index() as u32;
                if resumed == Resumed::First {
                    self.forget_going(me);
                }
                let outcome = match Call::from_number(number) {
                    Some(call) => self.nucleus_call(thread, call, arguments, resumed),
                    None => Outcome::Return(Err(Error::BadCall)),
                };
                if matches!(outcome, Outcome::Return(_)) {
                    self.forget_going(me);
                }
                outcome
            }
            Event::Fault {
                thread,
                address,
                access,
            } => match self.fault_message(thread.index() as u32, address, access) {
                Some(outcome) => outcome,
                None => self.nobody_handles(thread, format_args!("{access:?} of {address:#x}")),
            },
            Event::Exception { thread, .. } => {
                if let Some(outcome) = self.exception_message(thread.index() as u32) {
                    return outcome;
                }
                let vector = self.thread_context(thread).vector;
                self.nobody_handles(thread, format_args!("exception {vector}"))
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
        if self.thread_space(thread) == self.half.nucleus.root {
            self.hardware.stop(abi::host::EXIT_PANIC);
        }
        let me = thread.index() as u32;
        let outcome = self.delete_call(me, 0);
        if matches!(outcome, Outcome::Again) {
            let delete = Operation::called(Call::ThreadDelete as u64, [0; 6]);
            self.set_operation(me, Some(delete));
        }
        outcome
    }

    fn nucleus_call(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6], resumed: Resumed) -> Outcome {
        let me = thread.index() as u32;
        let [first, second, third, fourth, fifth, _] = arguments;
        let space = self.thread_space(thread);
        let root = space == self.half.nucleus.root;
        let result = match call {
            Call::LogWrite => {
                let bytes = first.to_le_bytes();
                self.hardware.log_bytes(&bytes[..(second as usize).min(bytes.len())]);
                Ok((0, 0))
            }
            Call::MachineStop if root => {
                self.hardware.stop(first as u8);
                Ok((0, 0))
            }
            Call::ThreadSelf => Ok((thread.0, self.half.nucleus.id_of_space(space))),
            Call::ClockNow => Ok((self.hardware.now_ns(), 0)),
            Call::SpaceCreate => self.bare_space_create(space, first, [second, third, fourth]),
            Call::SpaceDelete => return finished(self.bare_space_delete(space, first)),
            Call::SpaceControl => self.bare_space_control(space, first, [second, third, fourth]),
            Call::ThreadCreate => self.bare_thread_create(me, first, [second, third, fourth], fifth),
            Call::ThreadDelete => return self.delete_call(me, first),
            Call::ThreadExchange => self.thread_exchange(me, first, second),
            Call::ThreadPriority => self.change_priority(me, first, second),
            Call::Yield => {
                let context = self.context_of(me);
                context.reset(context.rip, context.rsp);
                self.yield_current();
                return Outcome::Gone;
            }
            Call::Ipc => return self.ipc(me, arguments, resumed),
            Call::Map => return self.map_call(me, arguments),
            Call::Flush => return self.flush_call(me, [first, second, third]),
            Call::InterruptBind if root => self.interrupt_bind(first, second),
            Call::InterruptMessage if root => self.interrupt_message_address(first),
            Call::KernelCheck if root => Ok((self.check_all(), 0)),
            Call::MachineStop | Call::InterruptBind | Call::InterruptMessage | Call::KernelCheck => {
                Err(Error::Protection)
            }
        };
        Outcome::Return(result)
    }

    fn map_call(&mut self, me: u32, [source, target, window, way, ..]: [u64; 6]) -> Outcome {
        let caller = self.thread(me).space;
        let mut going = self.going(me);
        let given = (self.space_below(caller, target))
            .and_then(|target| self.give((caller, source), (target, window), way, &mut going));
        if given == Ok(Progress::More) {
            self.keep_going(me, going);
            return Outcome::Again;
        }
        Outcome::Return(given.map(|_| (going.given, 0)))
    }

    fn flush_call(&mut self, me: u32, arguments: [u64; 3]) -> Outcome {
        let mut going = self.going(me);
        let flushed = self.flush_piece(me, arguments, &mut going);
        if flushed == Ok(Progress::More) {
            self.keep_going(me, going);
        }
        finished(flushed)
    }

    fn flush_piece(&mut self, me: u32, [what, rights, own]: [u64; 3], going: &mut Going) -> Result<Progress, Error> {
        let caller = self.thread(me).space;
        let own = match own {
            0 => Own::Kept,
            1 => Own::Too,
            _ => return Err(Error::BadArgument),
        };
        let what = fpage(what)?;
        if !self.is_given(caller, what) {
            return Err(Error::Protection);
        }
        let rights = Rights::from_bits(rights).ok_or(Error::BadArgument)?;
        self.flush(caller, what, (rights, own), going)
    }
}

/// The answer of a preemptible operation.
fn finished(step: Result<Progress, Error>) -> Outcome {
    match step {
        Ok(Progress::Done) => Outcome::Return(Ok((0, 0))),
        Ok(Progress::More) => Outcome::Again,
        Err(error) => Outcome::Return(Err(error)),
    }
}

const _: () = assert!(MESSAGE_AREA >> 39 == 255, "an entry of the root table of its own");
