//! The server: Mungi's objects, capabilities, domains, protected calls and tasks (DESIGN §4).
//!
//! [`Server`] is a deterministic state machine. [`Server::handle`] takes one [`Event`] and answers
//! with an [`Outcome`]; it holds no thread, never sleeps and never dereferences user memory. All
//! that it knows of the world comes through [`World`]: the kernel below ([`kcore::Machine`]) and
//! the disk ([`store::world::Disk`]). A call that cannot be finished now has changed nothing that
//! matters, is parked, and is done again from the start when its key is woken.
//!
//! Reading order, as the groups below: the state ([`object`], [`domain`], [`task`]) and how objects
//! live ([`creation`], [`lifecycle`], [`clone`]); how an access is decided ([`validation`], [`clist`], [`apd`],
//! [`capability`]); pages ([`pager`], [`reading`], [`release`], [`page`], [`copy`], [`unmap`]) and the disk
//! ([`checkpoint`], [`freeze`], [`durable`]); threads and their calls ([`task`], [`thread`], `ending`,
//! `control`, [`pdx`], `unwind`, [`semaphore`], [`exception`]); the outside ([`console`], [`info`],
//! [`boot`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
pub mod creation;
pub mod object;
mod slot_map;
pub mod slots;

pub mod domain;

pub mod apd;
pub mod capability;
pub mod clist;
pub mod validation;

pub mod clone;
pub mod lifecycle;

pub mod copy;
pub mod memory;
pub mod page;
pub mod pager;
pub mod reading;
pub mod release;
pub mod unmap;

pub mod checkpoint;
pub mod durable;
pub mod freeze;

mod control;
mod ending;
pub mod task;
pub mod thread;

pub mod exception;
pub mod pdx;
pub mod semaphore;
mod unwind;

pub mod boot;
pub mod console;
pub mod dispatch;
pub mod info;

use abi::Error;
use kcore::{ThreadId, thread::Resumed, wait::Key};

/// Everything outside the server.
pub trait World: kcore::Machine + store::world::World {}
impl<T: kcore::Machine + store::world::World> World for T {}

/// What an access wanted to do. A value says the access, not whether it was allowed.
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
    pub const fn right(self) -> abi::Rights {
        match self {
            Access::Read => abi::Rights::R,
            Access::Write => abi::Rights::W,
            Access::Execute => abi::Rights::X,
        }
    }
}

/// What happened.
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

/// What the kernel has to do with the thread that the event came from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is done: error or two values.
    Return(Result<(u64, u64), Error>),
    /// Park it until the key is woken or the time (absolute, nanoseconds since boot) has come; then do the event again.
    /// (`Fault` is not done again: the thread just runs into it once more.)
    Block(Key, Option<u64>),
    /// A piece of a long call is done. Do it again when others had their turn: nothing has to be waited for.
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

/// The state of the whole server.
pub struct Server {
    /// Objects that are active, by slot.
    pub objects: object::Objects,
    /// Free addresses.
    pub addresses: address::Addresses,
    /// Domains, by the number of their space.
    pub domains: domain::Domains,
    /// Tasks.
    pub tasks: task::Tasks,
    /// What the server knows of each thread, by its index.
    pub threads: thread::Threads,
    /// Domains of protected procedures.
    pub callees: pdx::Callees,
    /// Semaphores, by address.
    pub semaphores: semaphore::Semaphores,
    /// Pages on their way in, dirty pages.
    pub pager: pager::Pager,
    /// Checkpoints and syncs under way.
    pub checkpoint: checkpoint::Checkpoints,
    /// The terminal's foreground task.
    pub console: console::Console,
    /// The disk.
    pub store: store::Store,
}
