//! Bytes that were typed ahead: they have come, and the line editor has not looked at them yet.
//!
//! A paste is typed ahead while its first lines run. Nothing of it is lost up to [`KEPT`] bytes. Behind that whole lines are
//! discarded, never a part of one: the line editor must not see the end of one line behind the beginning of another.

use alloc::collections::VecDeque;

/// Bytes that are kept at most.
pub const KEPT: usize = 64 << 10;

/// The bytes typed ahead. They begin with a whole line whenever a command begins.
#[derive(Debug, Default)]
pub struct Ahead {
    bytes: VecDeque<u8>,
    /// The beginning of the line that comes was discarded, and so its rest will be.
    discarding: bool,
}

const fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

impl Ahead {
    /// How many more bytes may be kept.
    pub fn room(&self) -> usize {
        KEPT.saturating_sub(self.bytes.len())
    }

    /// The next byte.
    pub fn next(&mut self) -> Option<u8> {
        self.bytes.pop_front()
    }

    /// Keeps what has come.
    pub fn extend(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            if self.discarding {
                self.discarding = !ends_line(byte);
            } else {
                self.bytes.push_back(byte);
            }
        }
    }

    /// Bytes behind these were discarded, the last of them `last`: the line that they are a part of is discarded whole.
    pub fn discard(&mut self, last: u8) {
        let whole = self.bytes.iter().rposition(|byte| ends_line(*byte));
        self.bytes.truncate(whole.map_or(0, |at| at + 1));
        self.discarding = !ends_line(last);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, KEPT};

    fn rest(ahead: &mut Ahead) -> String {
        std::iter::from_fn(|| ahead.next()).map(char::from).collect()
    }

    #[test]
    fn lines_are_discarded_whole() {
        let mut ahead = Ahead::default();
        ahead.extend("one\rtwo\rthr".bytes());
        assert_eq!(ahead.room(), KEPT - 11);
        ahead.discard(b'e');
        ahead.extend("e\rfour\r".bytes());
        assert_eq!(rest(&mut ahead), "one\rtwo\rfour\r");
        // The last that was discarded was the end of a line.
        ahead.extend("fi".bytes());
        ahead.discard(b'\r');
        ahead.extend("six\n".bytes());
        assert_eq!(rest(&mut ahead), "six\n");
        assert_eq!(ahead.room(), KEPT);
    }
}
