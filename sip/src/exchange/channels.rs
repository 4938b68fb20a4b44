//! Channels: two ends, each with an owner and a queue of the messages that were sent to it.
//!
//! Each end belongs to one process or is in one message, like a block; its owner alone takes from its
//! queue and steps its state. A queue has one writer, the owner of the other end. The mark that closes an end
//! is a bit in the very word that a send advances: a send either comes before the close, and its
//! message is found by the one who closes, or it fails and the sender still holds the message. So
//! whatever a message carries has one owner at every step, also when a peer dies beside the send.
//!
//! An end travels only while it is its side's turn to speak. By the contract nothing can then be in
//! its queue, nor come while it travels: rings of ends in one another's queues cannot form, and
//! closing an end needs no recursion.
//!
//! All state is atomic words, made when the heap is: neither sends nor receives allocate.

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::owners::{Block, Owners, Process};
use alloc::vec::Vec;

/// Words that a message carries at most.
pub const WORDS: usize = 16;

/// One end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End(u32);

impl End {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        Self(self.0 ^ 1)
    }
    /// Whether it is the second end, the server's.
    pub const fn is_second(self) -> bool {
        self.0 & 1 == 1
    }
    /// As a word of a message.
    pub const fn word(self) -> u64 {
        self.0 as u64
    }
    /// From a word that [`End::word`] made.
    pub const fn from_word(word: u64) -> Self {
        Self(word as u32)
    }
}

/// A message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its number in the contract.
    pub message: u16,
    /// How many words it has.
    pub count: u8,
    /// Which words are blocks, a bit each.
    pub blocks: u16,
    /// Which words are ends of channels, a bit each.
    pub ends: u16,
    /// The words it carries.
    pub words: [u64; WORDS],
}

impl Letter {
    /// A message without words.
    pub const fn new(message: u16) -> Self {
        Self {
            message,
            count: 0,
            blocks: 0,
            ends: 0,
            words: [0; WORDS],
        }
    }

    fn header(&self) -> u64 {
        u64::from(self.message)
            | u64::from(self.count) << 16
            | u64::from(self.blocks) << 32
            | u64::from(self.ends) << 48
    }
}

/// Why a message was not put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The other end is closed.
    Gone,
    /// The queue is full: the contract was not kept.
    Full,
}

/// The message or the end at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A message, which is now where the caller wanted it: its number.
    Letter(u16),
    /// None, and the other end is closed: none will come.
    Gone,
    /// None yet.
    Nothing,
}

const FREE: u32 = 0;
const IN_FLIGHT: u32 = u32::MAX;
/// In the word of a queue's tail: its owner has closed it.
const CLOSED: u32 = 1 << 31;
/// Words of a queue's place: a header and what is carried.
const PLACE: usize = WORDS + 1;

/// An end: whose it is, its state and its queue. For who sends past the queue, to a process that is known to wait
/// at the other end and to do nothing meanwhile.
pub struct EndRecord {
    owner: AtomicU32,
    /// The state of the contract as this end has seen it.
    state: AtomicU32,
    /// Messages taken from the queue; the owner's.
    head: AtomicU32,
    /// Messages put into it, and `CLOSED`; the peer's but for that bit.
    tail: AtomicU32,
    places: Vec<AtomicU64>,
}

impl EndRecord {
    /// The owner; nobody's number if it is closed or in a message.
    #[inline]
    pub fn owner(&self) -> Process {
        Process(self.owner.load(Ordering::Relaxed))
    }

    /// The state of the contract as this end has seen it.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Steps the state; done by the end's owner, or for it while it waits.
    #[inline]
    pub fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Relaxed);
    }

    /// Whether the end is open and nothing waits in its queue.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.tail.load(Ordering::Acquire) == self.head.load(Ordering::Relaxed)
    }

    /// Whether the end is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.tail.load(Ordering::Acquire) & CLOSED == 0
    }
}

struct Record {
    /// Ends that are not closed; 0 for a record that may be used.
    open: AtomicU32,
    /// Key of the contract.
    key: AtomicU64,
    ends: [EndRecord; 2],
}

/// All channels of an exchange heap.
pub struct Channels {
    records: Vec<Record>,
    queue: u32,
}

impl Channels {
    /// Room for so many channels whose queues have so many places each, a power of two.
    pub fn new(channels: u32, queue: u32) -> Self {
        let end = || EndRecord {
            owner: AtomicU32::new(FREE),
            state: AtomicU32::new(0),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            places: (0..queue as usize * PLACE).map(|_| AtomicU64::new(0)).collect(),
        };
        let record = |_| Record {
            open: AtomicU32::new(0),
            key: AtomicU64::new(0),
            ends: [end(), end()],
        };
        Self {
            records: (0..channels).map(record).collect(),
            queue,
        }
    }

    #[inline]
    fn record(&self, end: End) -> &Record {
        &self.records[(end.0 >> 1) as usize]
    }

    #[inline]
    fn end(&self, end: End) -> &EndRecord {
        &self.record(end).ends[(end.0 & 1) as usize]
    }

    /// Makes a channel of a contract, both ends the process's, in the contract's first state. `None`
    /// if there are as many as there may be.
    pub fn open(&self, process: Process, key: u64) -> Option<[End; 2]> {
        let at = self.records.iter().position(|record| {
            let free = record.open.compare_exchange(0, 2, Ordering::AcqRel, Ordering::Relaxed);
            free.is_ok()
        })?;
        let record = &self.records[at];
        record.key.store(key, Ordering::Relaxed);
        for end in &record.ends {
            end.state.store(0, Ordering::Relaxed);
            end.head.store(0, Ordering::Relaxed);
            end.tail.store(0, Ordering::Relaxed);
            end.owner.store(process.0, Ordering::Release);
        }
        let first = at as u32 * 2;
        Some([End(first), End(first + 1)])
    }

    /// Key of the contract of an end's channel.
    pub fn key(&self, end: End) -> u64 {
        self.record(end).key.load(Ordering::Relaxed)
    }

    /// The state that the end has seen.
    pub fn state(&self, end: End) -> u16 {
        self.end(end).state.load(Ordering::Relaxed) as u16
    }

    /// Steps the state; done by the end's owner only.
    pub fn set_state(&self, end: End, state: u16) {
        self.end(end).state.store(u32::from(state), Ordering::Relaxed);
    }

    /// The records of an end and of the other, which stay where they are while the channels live.
    pub fn records(&self, end: End) -> [&EndRecord; 2] {
        [self.end(end), self.end(end.peer())]
    }

    /// The owner: `None` if closed or in a message.
    pub fn owner(&self, end: End) -> Option<Process> {
        match self.end(end).owner.load(Ordering::Acquire) {
            FREE | IN_FLIGHT => None,
            process => Some(Process(process)),
        }
    }

    fn change(&self, end: End, from: u32, to: u32) -> bool {
        let owner = &self.end(end).owner;
        owner
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Puts an end into a message; says whether it was the process's.
    pub fn give(&self, process: Process, end: End) -> bool {
        self.change(end, process.0, IN_FLIGHT)
    }

    /// Takes an end from a message; says whether it was in one.
    pub fn accept(&self, process: Process, end: End) -> bool {
        self.change(end, IN_FLIGHT, process.0)
    }

    /// Sends a message from an end, whose owner calls, to the other.
    ///
    /// # Errors
    /// [`Undelivered`]; the message is then still the caller's, who [`discard`](Self::discard)s it.
    #[inline]
    pub fn send(&self, from: End, letter: &Letter) -> Result<(), Undelivered> {
        let to = self.end(from.peer());
        let tail = to.tail.load(Ordering::Relaxed);
        if tail & CLOSED != 0 {
            return Err(Undelivered::Gone);
        }
        if tail.wrapping_sub(to.head.load(Ordering::Acquire)) & !CLOSED >= self.queue {
            return Err(Undelivered::Full);
        }
        let at = (tail & (self.queue - 1)) as usize * PLACE;
        let places = &to.places[at..at + PLACE];
        places[0].store(letter.header(), Ordering::Relaxed);
        for (place, word) in places[1..].iter().zip(&letter.words[..usize::from(letter.count)]) {
            place.store(*word, Ordering::Relaxed);
        }
        let next = tail.wrapping_add(1) & !CLOSED;
        // Only the owner of `to` changes the word meanwhile, and only to close it.
        to.tail
            .compare_exchange(tail, next, Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| ())
            .map_err(|_| Undelivered::Gone)
    }

    /// Takes the next message to an end, whose owner calls. Without one, `into` stays as it was; with one, the words
    /// behind its count do.
    #[inline]
    pub fn receive(&self, at: End, into: &mut Letter) -> Arrived {
        // In this order: what was sent before the close is seen.
        let gone = self.end(at.peer()).tail.load(Ordering::Acquire) & CLOSED != 0;
        if self.take(at, into) {
            Arrived::Letter(into.message)
        } else if gone {
            Arrived::Gone
        } else {
            Arrived::Nothing
        }
    }

    /// Whether [`receive`](Self::receive) would have something to say.
    pub fn is_ready(&self, at: End) -> bool {
        let (end, peer) = (self.end(at), self.end(at.peer()));
        peer.tail.load(Ordering::Acquire) & CLOSED != 0
            || end.tail.load(Ordering::Acquire) & !CLOSED != end.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn take(&self, at: End, into: &mut Letter) -> bool {
        let end = self.end(at);
        let head = end.head.load(Ordering::Relaxed);
        if end.tail.load(Ordering::Acquire) & !CLOSED == head {
            return false;
        }
        let place = (head & (self.queue - 1)) as usize * PLACE;
        let place = &end.places[place..place + PLACE];
        let header = place[0].load(Ordering::Relaxed);
        into.message = header as u16;
        into.count = ((header >> 16) as u8).min(WORDS as u8);
        into.blocks = (header >> 32) as u16;
        into.ends = (header >> 48) as u16;
        let count = usize::from(into.count);
        for (word, from) in into.words[..count].iter_mut().zip(&place[1..]) {
            *word = from.load(Ordering::Relaxed);
        }
        end.head.store(head.wrapping_add(1) & !CLOSED, Ordering::Release);
        true
    }

    /// Closes an end of the process's and ends what waits in its queue; says whether it was its.
    pub fn close(&self, owners: &Owners, process: Process, end: End) -> bool {
        self.shut(owners, process.0, end)
    }

    /// Ends what a message carries that nobody receives.
    pub fn discard(&self, owners: &Owners, letter: &Letter) {
        for at in 0..usize::from(letter.count) {
            if letter.blocks >> at & 1 == 1 {
                owners.discard(Block::from_word(letter.words[at]));
            } else if letter.ends >> at & 1 == 1 {
                // Its queue is empty (above): this goes no deeper.
                self.shut(owners, IN_FLIGHT, End::from_word(letter.words[at]));
            }
        }
    }

    fn shut(&self, owners: &Owners, from: u32, end: End) -> bool {
        if !self.change(end, from, FREE) {
            return false;
        }
        self.end(end).tail.fetch_or(CLOSED, Ordering::AcqRel);
        let mut letter = Letter::new(0);
        while self.take(end, &mut letter) {
            self.discard(owners, &letter);
        }
        self.record(end).open.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// How many channels are in use, for tests and statistics.
    pub fn in_use(&self) -> usize {
        let used = |record: &&Record| record.open.load(Ordering::Acquire) != 0;
        self.records.iter().filter(used).count()
    }
}
