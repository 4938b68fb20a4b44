//! Keys: plain values, not objects, so that nothing must be made before a thread can wait.

use core::fmt;

use crate::{ThreadId, thread::Name};

/// A reason for which a thread is parked.
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
    /// Its client's turn: the client has as many stacks of this callee space as it may. The space, and a number of the client below 2^24.
    Turn(u32, u32),
    /// Input on a console stream.
    ConsoleIn(u64),
    /// Room for output on a console stream.
    ConsoleOut(u64),
    /// The store: a checkpoint that completes.
    Checkpoint,
    /// The store: a sync with this ticket.
    Sync(u64),
    /// The server outside of the kernel, which works for another thread.
    Supervisor,
}

impl Key {
    /// The key as two words: what kind it is, and its value.
    #[inline]
    pub const fn to_words(self) -> (u64, u64) {
        match self {
            Key::Nothing => (0, 0),
            Key::Page(address) => (1, address),
            Key::Semaphore(address) => (2, address),
            Key::Address(address) => (3, address),
            Key::Child(thread) => (4, thread),
            Key::Stack(space) => (5, space as u64),
            Key::Turn(space, client) => (10, (client as u64) << 32 | space as u64),
            Key::ConsoleIn(stream) => (6, stream),
            Key::ConsoleOut(stream) => (7, stream),
            Key::Checkpoint => (8, 0),
            Key::Sync(ticket) => (9, ticket),
            Key::Supervisor => (11, 0),
        }
    }

    /// The key that [`Key::to_words`] made these of.
    pub const fn of_words(kind: u64, value: u64) -> Option<Self> {
        Some(match kind {
            0 => Key::Nothing,
            1 => Key::Page(value),
            2 => Key::Semaphore(value),
            3 => Key::Address(value),
            4 => Key::Child(value),
            5 => Key::Stack(value as u32),
            6 => Key::ConsoleIn(value),
            7 => Key::ConsoleOut(value),
            8 => Key::Checkpoint,
            9 => Key::Sync(value),
            11 => Key::Supervisor,
            10 => Key::Turn(value as u32, (value >> 32) as u32),
            _ => return None,
        })
    }

    /// Whether many threads may be parked on the key, so that it needs a queue. The others are woken by what they are: on [`Key::Child`] only the
    /// thread itself is parked that the key names.
    #[inline]
    pub const fn has_queue(self) -> bool {
        !matches!(self, Key::Nothing | Key::Child(_))
    }

    /// The key as one word: its kind above, its value in the low 56 bits. Keys of one kind are in the order of their values.
    #[inline]
    pub const fn word(self) -> u64 {
        let (kind, value) = self.to_words();
        kind << WORD_VALUE_BITS | value & WORD_VALUE
    }

    /// The key that [`Key::word`] made this of.
    pub const fn of_word(word: u64) -> Option<Self> {
        Self::of_words(word >> WORD_VALUE_BITS, word & WORD_VALUE)
    }
}

const WORD_VALUE_BITS: u32 = 56;
const WORD_VALUE: u64 = (1 << WORD_VALUE_BITS) - 1;

/// The reason in words.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Nothing => f.write_str("time or a wake"),
            Key::Page(address) => write!(f, "the page at {address:#x} from the disk"),
            Key::Semaphore(address) => write!(f, "the semaphore at {address:#x}"),
            Key::Address(address) => write!(f, "the word at {address:#x}"),
            Key::Child(thread) => write!(f, "a child of thread {}", Name(ThreadId(*thread))),
            Key::Stack(space) => write!(f, "a stack of space {space}"),
            Key::Turn(space, client) => write!(f, "the turn of client {client} in space {space}"),
            Key::ConsoleIn(stream) => write!(f, "input on console {stream}"),
            Key::ConsoleOut(stream) => write!(f, "room for output on console {stream}"),
            Key::Checkpoint => f.write_str("a checkpoint"),
            Key::Sync(ticket) => write!(f, "sync {ticket}"),
            Key::Supervisor => f.write_str("the server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_words() {
        let keys = [
            Key::Nothing,
            Key::Page(0x7fff_ffff_f000),
            Key::Semaphore(8),
            Key::Address(4),
            Key::Child(0x3_0001),
            Key::Stack(u32::MAX),
            Key::Turn(5, 0),
            Key::Turn(u32::MAX, (1 << 24) - 1),
            Key::ConsoleIn(1),
            Key::ConsoleOut(0),
            Key::Checkpoint,
            Key::Sync(77),
        ];
        for key in keys {
            assert_eq!(Key::of_word(key.word()), Some(key));
            assert!(!key.to_string().is_empty());
        }
        assert_eq!(Key::of_word(u64::MAX), None);
    }
}
