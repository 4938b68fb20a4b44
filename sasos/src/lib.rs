//! The server: Mungi's objects, capabilities, domains, protected calls and tasks (`docs/design/server.md`).
//!
//! [`Server`] is a deterministic state machine. [`Server::handle`] takes one [`Event`] and answers
//! with an [`Outcome`]; it holds no thread, never sleeps and never dereferences user memory. All
//! that it knows of the world comes through [`World`]: the kernel below ([`kcore::Machine`]) and
//! the disk ([`store::world::Disk`]). A call that cannot be finished now has changed nothing that
//! matters, is parked, and is done again from the start when its key is woken.
//!
//! The rooms, in reading order; each folder is one, and its `mod.rs` says what it owns:
//!
//! * [`calls`]: the door; which call is answered where, the start, reports, the check of everything;
//! * [`accounts`]: the accounts and what each pays for;
//! * [`directory`]: which objects there are, their records and addresses;
//! * [`protection`]: domains and what they have, APDs and Clists, how an access is decided and a right withdrawn;
//! * [`pages`]: the pages that are in memory;
//! * [`durability`]: stable storage, and the calls that wait for it;
//! * [`lives`]: tasks, threads, exceptions;
//! * [`waiting`]: semaphores and the console;
//! * [`procedures`]: protected calls.
//!
//! [`containers`] has what they keep their state in where its size is not fixed: each allocation can fail.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod accounts;
pub mod calls;

pub mod directory;
pub mod durability;
pub mod lives;
pub mod pages;
pub mod procedures;
pub mod protection;
pub mod waiting;

pub use store::containers;

pub use calls::dispatch::Reply;
pub use kcore::event::{Access, Event, Outcome, Step, Stop};

/// The result of a call: two values, in the end.
pub type Answer = Step<(u64, u64)>;

/// Everything outside the server.
pub trait World: kcore::Machine + store::world::World {}
impl<T: kcore::Machine + store::world::World> World for T {}

/// The state of the whole server.
pub struct Server {
    /// The accounts, and what each pays for.
    pub ledger: accounts::Ledger,
    /// The account above all that the first task has started.
    pub programs: accounts::AccountId,
    /// Bytes of the heap that programs leave to the first task, whatever they pay for: charges are never quite what the heap takes.
    pub(crate) heap_of_first: u64,
    /// The addresses of which it is not known whether objects hold them.
    pub(crate) unknown: directory::unknown::Unknown,
    /// What objects of earlier starts that are not active are charged for, by resource: those of programs, and others.
    pub resting: [[u64; directory::object::KEPT.len()]; 2],
    /// Blocks of the disk that all programs leave to it.
    pub(crate) blocks_of_first: u64,
    /// Objects that are active, by slot.
    pub objects: directory::object::Objects,
    /// Free addresses.
    pub addresses: directory::address::Addresses,
    /// Clists that records of procedures name.
    pub names: directory::names::Names,
    /// Domains, by the number of their space.
    pub domains: protection::domain::Domains,
    /// Tasks.
    pub tasks: lives::task::Tasks,
    /// The server's record of each thread, by its index.
    pub threads: lives::thread::Threads,
    /// Domains of protected procedures.
    pub callees: procedures::pdx::Callees,
    /// Semaphores, by address.
    pub semaphores: waiting::semaphore::Semaphores,
    /// Pages on their way in, dirty pages.
    pub pager: pages::pager::Pager,
    /// Checkpoints and syncs under way.
    pub checkpoint: durability::checkpoint::Checkpoints,
    /// Passes of the scrub.
    pub(crate) scrubbing: durability::scrubbing::Scrubbing,
    /// The terminal's foreground task.
    pub console: waiting::console::Console,
    /// The disk.
    pub store: store::Store,
    /// Work that goes on behind the event that began it.
    pub work: lives::work::WorkList,
    /// The budget that the event under way still has for long work.
    budget: lives::budget::Allowance,
    /// What the log said of programs in this second.
    log: lives::log::Log,
    /// The thread whose event is answered; none before the first.
    current: kcore::ThreadId,
    /// Events since the last check, where assertions are on.
    unchecked: u32,
}
