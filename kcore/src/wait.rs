//! What parked threads wait for.
//!
//! Threads wait on *keys*: plain values, not objects, so that nothing must be made before one can
//! wait. Each key falls into one of a fixed number of buckets; a bucket is a list through the
//! thread table, oldest first.

use crate::scheduler::{Link, List};

/// What a thread may be parked on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Key {
    /// Nothing but time or an explicit wake.
    Nothing,
    /// A page (its address) that is on its way from the disk.
    Page(u64),
    /// The semaphore at an address.
    Semaphore(u64),
    /// A word at an address.
    Address(u64),
    /// The end of a child of this thread (its raw identifier).
    Child(u64),
    /// A stack of this callee space.
    Stack(u32),
    /// Input on a console stream.
    ConsoleIn(u64),
    /// Room for output on a console stream.
    ConsoleOut(u64),
    /// The store: a checkpoint that completes.
    Checkpoint,
    /// The store: a sync with this ticket.
    Sync(u64),
    /// Free frames.
    Frames,
    /// The server outside of the kernel, which works for another thread.
    Supervisor,
}

const BUCKETS: usize = 64;

impl Key {
    fn bucket(self) -> usize {
        let (kind, value) = match self {
            Key::Nothing => (0, 0),
            Key::Page(address) => (1, address >> 12),
            Key::Semaphore(address) => (2, address >> 3),
            Key::Address(address) => (3, address >> 2),
            Key::Child(thread) => (4, thread),
            Key::Stack(space) => (5, u64::from(space)),
            Key::ConsoleIn(stream) => (6, stream),
            Key::ConsoleOut(stream) => (7, stream),
            Key::Checkpoint => (8, 0),
            Key::Sync(ticket) => (9, ticket),
            Key::Frames => (10, 0),
            Key::Supervisor => (11, 0),
        };
        let mixed = (value ^ (kind << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 58) as usize % BUCKETS
    }
}

/// The lists of parked threads. A thread's key stands in the thread itself.
pub struct WaitQueues {
    buckets: [List; BUCKETS],
}

impl Default for WaitQueues {
    fn default() -> Self {
        Self {
            buckets: [List::EMPTY; BUCKETS],
        }
    }
}

impl WaitQueues {
    /// The list that holds the threads parked on `key`, among others.
    pub fn bucket(&mut self, key: Key) -> &mut List {
        &mut self.buckets[key.bucket()]
    }

    /// Appends a thread.
    pub fn park(&mut self, links: &mut [Link], key: Key, thread: u32) {
        self.buckets[key.bucket()].push_back(links, thread);
    }

    /// Removes a thread.
    pub fn remove(&mut self, links: &mut [Link], key: Key, thread: u32) {
        self.buckets[key.bucket()].remove(links, thread);
    }
}
