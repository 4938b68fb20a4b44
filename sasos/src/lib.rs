//! The server: Mungi's objects, capabilities, domains, protected calls and tasks (DESIGN §4).
//!
//! [`Server`] is a deterministic state machine. [`Server::handle`] takes one [`Event`] and answers
//! with an [`Outcome`]; it holds no thread, never sleeps and never dereferences user memory. All
//! that it knows of the world comes through [`World`]: the kernel below ([`kcore::Machine`]) and
//! the disk ([`store::world::Disk`]). A call that cannot be finished now has changed nothing that
//! matters, is parked, and is done again from the start when its key is woken.
//!
//! Reading order, as the groups below: the state ([`object`], [`domain`], [`task`]) and how objects
//! live ([`creation`], [`lifecycle`], [`clone`]); how an access is decided ([`validation`], [`search`], [`clist`], [`apd`],
//! [`capability`], [`withdraw`]); pages ([`pager`], [`reading`], [`release`], [`page`], [`copy`], [`unmap`]) and the disk
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
pub mod search;
pub mod validation;
pub mod withdraw;

pub mod clone;
pub mod dismantle;
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
pub mod check;
pub mod console;
pub mod dispatch;
pub mod info;

pub use kcore::event::{Access, Event, Outcome, Step, Stop};

/// Everything outside the server.
pub trait World: kcore::Machine + store::world::World {}
impl<T: kcore::Machine + store::world::World> World for T {}

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
    /// The thread whose event is answered; none before the first.
    current: kcore::ThreadId,
    /// Events since the last check, where assertions are on.
    unchecked: u32,
}
