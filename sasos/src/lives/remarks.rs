//! What the kernel's log says of programs: a bounded number of lines a second, however often they fail. The log may be a file of the host.

use core::fmt::Arguments;

use kcore::Machine;

use crate::Server;

/// Lines about programs in one second.
const LINES: u32 = 32;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

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
    /// Writes a line about a program to the kernel's log, if there were not too many in this second.
    pub(crate) fn remark(&mut self, world: &mut impl Machine, line: Arguments<'_>) {
        let Some(left_out) = self.remarks.next(world.now_ns()) else {
            return;
        };
        if left_out > 0 {
            world.log(format_args!("{left_out} lines about programs were left out"));
        }
        world.log(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
