//! Events of threads and their outcomes: the language between the kernel's entry points
//! and whoever answers an event, be that the server or the µ-kernel itself.

use abi::{Error, Rights};

use crate::{ThreadId, thread::Resumed, wait::Key};

/// The kind of an access. A value says the access, not whether it was allowed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

impl Access {
    /// The right that it takes.
    pub const fn right(self) -> Rights {
        match self {
            Access::Read => Rights::R,
            Access::Write => Rights::W,
            Access::Execute => Rights::X,
        }
    }
}

/// An event.
#[derive(Copy, Clone, Debug)]
pub enum Event {
    /// A system call, given for the first time or again after parking.
    Call {
        /// The thread that calls.
        thread: ThreadId,
        /// The number of the call, as the user gave it.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
        /// Whether it was parked in this call before.
        resumed: Resumed,
    },
    /// A page fault of user code.
    Fault {
        /// The thread that faulted.
        thread: ThreadId,
        /// The address that it touched.
        address: u64,
        /// How.
        access: Access,
    },
    /// Another exception of user code.
    Exception {
        /// The thread that ran into it.
        thread: ThreadId,
        /// One of `abi::layout::EXCEPTION_*`.
        kind: u64,
        /// An address that tells more, or zero.
        address: u64,
    },
    /// The terminal's interrupt character.
    Interrupt,
    /// The disk completed something; or time has come to look at the checkpoint clock.
    Poll,
}

/// The server's order to the kernel for the thread that the event came from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is done: error or two values.
    Return(Result<(u64, u64), Error>),
    /// Park it until the key is woken or the time (absolute, nanoseconds since boot) has come; then do the event again.
    /// (`Fault` is not done again: the thread just runs into it once more.)
    Block(Key, Option<u64>),
    /// A piece of a long call is done. Do it again when others had their turn: nothing has to be waited for. A message
    /// finds its words in the registers as they are.
    Again,
    /// The thread's context was set; let it run (a fault was resolved, a portal was entered or left, a handler was called).
    Resume,
    /// The thread is gone, suspended, or ended. Choose another one.
    Gone,
}

/// A result of something a call is made of: a value, an error of the table, or the need to wait.
pub type Step<T> = Result<T, Stop>;

/// Why a step could not be done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The call fails with this.
    Fail(Error),
    /// Something must be waited for; do the call again then.
    Wait(Key),
    /// A piece is done, and how far that is was noted; do the call again for the next one.
    Again,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Fail(error)
    }
}

impl From<Step<(u64, u64)>> for Outcome {
    fn from(step: Step<(u64, u64)>) -> Self {
        match step {
            Ok(values) => Outcome::Return(Ok(values)),
            Err(Stop::Fail(error)) => Outcome::Return(Err(error)),
            Err(Stop::Wait(key)) => Outcome::Block(key, None),
            Err(Stop::Again) => Outcome::Again,
        }
    }
}
