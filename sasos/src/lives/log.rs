//! The system's log: what happened that a person may want to know. Each line goes to the kernel's log at once; the last [`KEPT`] bytes are kept, so that
//! a program can write them to an object that outlives the power (decision 0212).
//!
//! Of programs there is a bounded number of lines a second, however often they fail: the log may be a file of the host.

use core::fmt::{Arguments, Display, Formatter, Write};

use alloc::{collections::TryReserveError, vec::Vec};
use kcore::Machine;

use crate::Server;

/// Bytes of lines that are kept.
pub const KEPT: u64 = 16 << 10;
/// Bytes of one line, its end included; what is behind is left out.
const LINE_MAX: u64 = 240;
/// Lines about programs in one second.
const LINES: u32 = 32;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A moment in nanoseconds since 1970, as a date and a time of the day in UTC.
pub struct Date(pub u64);

impl Display for Date {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        let seconds = self.0 / SECOND;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years begin in March here, so that a leap day is the last of its year, and days are counted from the March of the year 0.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = (400 * era + year + month / 10, (month + 2) % 12 + 1);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// The last lines. A position counts all bytes of lines since the start.
pub struct Log {
    ring: Vec<u8>,
    end: u64,
    remarks: Remarks,
}

impl Log {
    /// One without lines.
    ///
    /// # Errors
    /// There is no heap.
    pub fn new() -> Result<Self, TryReserveError> {
        let mut ring = Vec::new();
        ring.try_reserve_exact(KEPT as usize)?;
        ring.resize(KEPT as usize, 0);
        Ok(Self {
            ring,
            end: 0,
            remarks: Remarks::default(),
        })
    }

    /// A line.
    pub fn say(&mut self, world: &mut impl Machine, line: Arguments<'_>) {
        world.log(line);
        let now = world.now_ns();
        let mut writer = Writer {
            last: self.end + LINE_MAX - 1,
            log: self,
        };
        // It never fails.
        let _ = write!(writer, "{:5}.{:03} ", now / SECOND, now % SECOND / 1_000_000);
        let _ = writer.write_fmt(line);
        self.put(b'\n');
    }

    /// A line about a program, if there were not too many in this second.
    fn remark(&mut self, world: &mut impl Machine, line: Arguments<'_>) {
        let Some(left_out) = self.remarks.next(world.now_ns()) else {
            return;
        };
        if left_out > 0 {
            self.say(world, format_args!("{left_out} lines about programs were left out"));
        }
        self.say(world, line);
    }

    /// Copies from a position on, or from the first whole line that is kept, as much as there is room for: the position of the first byte, and how many.
    pub fn read(&self, position: u64, into: &mut [u8]) -> (u64, usize) {
        let mut at = position.min(self.end);
        if self.end - at > KEPT {
            at = self.end - KEPT;
            while at < self.end && self.byte(at) != b'\n' {
                at += 1;
            }
            at += 1;
        }
        let count = into.len().min((self.end - at) as usize);
        for (place, from) in into.iter_mut().zip(at..at + count as u64) {
            *place = self.byte(from);
        }
        (at, count)
    }

    fn byte(&self, position: u64) -> u8 {
        self.ring[(position % KEPT) as usize]
    }

    fn put(&mut self, byte: u8) {
        self.ring[(self.end % KEPT) as usize] = byte;
        self.end += 1;
    }
}

/// Writes a line, up to a position.
struct Writer<'a> {
    log: &'a mut Log,
    last: u64,
}

impl Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            if self.log.end == self.last {
                break;
            }
            self.log.put(if matches!(byte, b' '..=b'~') { byte } else { b'?' });
        }
        Ok(())
    }
}

/// How many lines there were in the second under way.
#[derive(Default)]
pub struct Remarks {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Remarks {
    /// Whether there may be a line now; tells how many were left out before it.
    const fn next(&mut self, now_ns: u64) -> Option<u64> {
        let second = now_ns / SECOND;
        if second != self.second {
            self.second = second;
            self.lines = 0;
        }
        if self.lines == LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(core::mem::replace(&mut self.left_out, 0))
    }
}

impl Server {
    /// Writes a line to the log.
    pub(crate) fn say(&mut self, world: &mut impl Machine, line: Arguments<'_>) {
        self.log.say(world, line);
    }

    /// Writes a line about a program to the log, if there were not too many in this second.
    pub(crate) fn remark(&mut self, world: &mut impl Machine, line: Arguments<'_>) {
        self.log.remark(world, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_795_996_976, "2026-11-30 00:02:56 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Date(seconds * SECOND).to_string(), text);
        }
    }

    #[test]
    fn each_second_has_so_many_lines_and_the_next_one_says_how_many_it_lacks() {
        let mut remarks = Remarks::default();
        for second in [0, 1, 7] {
            let left_out = if second == 0 { 0 } else { 3 };
            assert_eq!(remarks.next(second * SECOND), Some(left_out));
            for line in 1..u64::from(LINES) {
                assert_eq!(remarks.next(second * SECOND + line), Some(0));
            }
            for line in 1..4 {
                assert_eq!(remarks.next((second + 1) * SECOND - line), None);
            }
        }
    }
}
