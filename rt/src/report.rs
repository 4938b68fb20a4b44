//! How a program ended, in words.

use core::fmt;

use abi::{
    Error, Rights,
    address::{PAGE, STACKS_START, USER_END},
    layout::{
        EXCEPTION_INTERRUPT, EXCEPTION_KILL, EXCEPTION_PROTECTION, EXCEPTION_RESOURCE, ExitReport, STATUS_SYSTEM,
        exception_name,
    },
};

/// The addresses of stacks. An address in it without a page is one that a stack may not grow into.
const STACKS: core::ops::Range<u64> = STACKS_START..USER_END;

/// Where a program's image stands, to name instructions inside it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// The program's name.
    pub name: &'a str,
    /// Base of the image.
    pub base: u64,
    /// Its length.
    pub bytes: u64,
}

/// Shows a report: `hello: protection fault: write to 0x10 (needs -w---, has -----) at …`, or
/// `hello: ended with status 1`.
#[derive(Copy, Clone, Debug)]
pub struct Shown<'a> {
    /// The system's report.
    pub report: ExitReport,
    /// The program it is about.
    pub image: Image<'a>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let mut short = None;
        write!(f, "{}: ", self.image.name)?;
        match report.exception {
            0 if report.status < STATUS_SYSTEM => return write!(f, "ended with status {}", report.status),
            0 => return f.write_str(exception_name(report.status - STATUS_SYSTEM)),
            EXCEPTION_KILL | EXCEPTION_INTERRUPT => return f.write_str(exception_name(report.exception)),
            EXCEPTION_PROTECTION => self.access(f)?,
            EXCEPTION_RESOURCE => match Error::from_code(report.had) {
                Some(error) => {
                    short = Short::of(error);
                    f.write_str(crate::error::sentence(error.text()))?;
                }
                None => f.write_str(exception_name(EXCEPTION_RESOURCE))?,
            },
            kind => f.write_str(exception_name(kind))?,
        }
        write!(f, " at instruction {:#x}", report.instruction)?;
        let offset = report.instruction.wrapping_sub(self.image.base);
        if offset < self.image.bytes {
            write!(f, " ({}+{offset:#x})", self.image.name)?;
        }
        if report.exception == EXCEPTION_PROTECTION && report.had == 0 && STACKS.contains(&report.address) {
            f.write_str("; the stack is used up")?;
        }
        short.map_or(Ok(()), |short| short.fmt(f))
    }
}

/// The figures behind an error that says that something is short, and what to do.
#[derive(Debug)]
pub(crate) struct Short {
    error: Error,
    /// KiB of memory that are free.
    memory: u64,
    /// KiB of the disk that are free, and those of them that are promised or kept for removals.
    disk: (u64, u64),
}

impl Short {
    /// None for other errors, and if there are no figures.
    pub(crate) fn of(error: Error) -> Option<Self> {
        let kib = |pages: u64| pages * PAGE / 1024;
        if !matches!(error, Error::DiskFull | Error::NoMemory | Error::LimitReached) {
            return None;
        }
        let (memory, disk) = (crate::system::memory().ok()?, crate::system::store().ok()?);
        Some(Self {
            error,
            memory: kib(memory.free),
            disk: (kib(disk.free), kib(disk.reserved)),
        })
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, (free, kept)) = (self.memory, self.disk);
        match self.error {
            Error::DiskFull => write!(
                f,
                "; {free} KiB are free, and {kept} KiB are promised or kept for removals: 'rm' makes room, a little later"
            ),
            Error::NoMemory => write!(f, "; {memory} KiB of memory are free: end a program"),
            _ => write!(
                f,
                "; a program may take a part of what is free when it starts, so that others can go on: {memory} KiB of memory and {} KiB of \
                 the disk are free now",
                free.saturating_sub(kept)
            ),
        }
    }
}

impl Shown<'_> {
    /// Prints it, if it was no end of the program's own; and which function of which installed module the instruction stands
    /// in, if it does.
    pub fn print(&self) {
        if self.report.exception == 0 {
            return;
        }
        match crate::module::shelf::place_of(self.report.instruction) {
            Some(place) => crate::println!("{self}{place}"),
            None => crate::println!("{self}"),
        }
    }

    /// The access that was not allowed.
    fn access(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let wanted = Rights::from_bits(report.wanted).unwrap_or_default();
        let had = Rights::from_bits(report.had).unwrap_or_default();
        let verb = if wanted.contains(Rights::X) {
            "execute"
        } else if wanted.contains(Rights::W) {
            "write to"
        } else {
            "read"
        };
        write!(
            f,
            "protection fault: {verb} {:#x} (needs {wanted}, has {had}{})",
            report.address,
            if had.contains(wanted) {
                "; the page's limits forbid it"
            } else {
                ""
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(report: ExitReport) -> String {
        let image = Image {
            name: "hello",
            base: 0x1_0000_0000,
            bytes: 0x8000,
        };
        Shown { report, image }.to_string()
    }

    #[test]
    fn a_fault_names_the_access_and_the_place() {
        let report = ExitReport {
            status: STATUS_SYSTEM + EXCEPTION_PROTECTION,
            exception: EXCEPTION_PROTECTION,
            address: 0x10,
            instruction: 0x1_0000_1234,
            wanted: 2,
            had: 4,
            thread: 9,
        };
        let expected =
            "hello: protection fault: write to 0x10 (needs -w---, has r----) at instruction 0x100001234 (hello+0x1234)";
        assert_eq!(shown(report), expected);
        let outside = ExitReport {
            instruction: 0x5000,
            address: STACKS_START + 8,
            had: 0,
            ..report
        };
        let expected = "hello: protection fault: write to 0x7f0000000008 (needs -w---, has -----) at instruction 0x5000; the stack is used up";
        assert_eq!(shown(outside), expected);
    }

    #[test]
    fn limits_of_a_page_are_told() {
        let report = ExitReport {
            exception: EXCEPTION_PROTECTION,
            wanted: 2,
            had: 15,
            ..ExitReport::default()
        };
        assert!(shown(report).contains("(needs -w---, has rwxd-; the page's limits forbid it) at instruction"));
    }

    #[test]
    fn promised_blocks_are_not_free() {
        let short = Short {
            error: Error::LimitReached,
            memory: 100,
            disk: (30, 27),
        };
        assert!(
            short
                .to_string()
                .ends_with(": 100 KiB of memory and 3 KiB of the disk are free now")
        );
    }

    #[test]
    fn an_end_without_a_fault_is_short() {
        assert_eq!(
            shown(ExitReport {
                status: 3,
                ..ExitReport::default()
            }),
            "hello: ended with status 3"
        );
        let report = ExitReport {
            status: STATUS_SYSTEM + EXCEPTION_INTERRUPT,
            exception: EXCEPTION_INTERRUPT,
            ..ExitReport::default()
        };
        assert_eq!(shown(report), "hello: interrupted");
    }
}
