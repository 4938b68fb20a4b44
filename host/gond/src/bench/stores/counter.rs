//! Instructions and system calls of an engine, by callgrind (Debian's `valgrind`): instructions in user space between entering and
//! leaving the function that does a turn of a row, and the calls that read, write and flush files between two turns.
//!
//! The kernel's instructions are not counted, nor what reaches a file by a writable map of it; no engine here has one that
//! must be durable.

use super::{answer, median, number, numbers};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use store_bench::Counts;

/// The function whose instructions are counted.
const COUNTED: &str = "store_bench::rows::operate";
/// The name of the file that the program looks for between two turns.
const MARK: &str = "(/operation)";
/// Each write to a file opened with it is a flush, too.
const O_DSYNC: u64 = 0x1000;
/// A descriptor's place in a call that has none.
const NO_FILE: u64 = u64::MAX;

/// A row of an engine, counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Counted {
    /// Operations of all turns.
    pub operations: u64,
    /// Instructions of all.
    pub instructions: u64,
    /// The calls of each turn.
    pub turns: Vec<Counts>,
    /// The engine's own counts.
    own: Option<Counts>,
}

impl Counted {
    /// With an operation and an instruction for each turn.
    #[cfg(test)]
    pub fn of(turns: Vec<Counts>) -> Self {
        Self {
            operations: turns.len() as u64,
            instructions: turns.len() as u64,
            turns,
            own: None,
        }
    }

    /// The calls of all turns.
    pub fn all(&self) -> Counts {
        self.turns.iter().fold(Counts::default(), |all, turn| Counts {
            reads: all.reads + turn.reads,
            read: all.read + turn.read,
            writes: all.writes + turn.writes,
            written: all.written + turn.written,
            flushes: all.flushes + turn.flushes,
        })
    }

    /// The median of something of a turn.
    pub fn median(&self, what: fn(&Counts) -> u64) -> u64 {
        median(self.turns.iter().map(what).collect())
    }

    /// Whether the calls are those that the engine counted itself.
    pub fn agrees(&self) -> Result<()> {
        match self.own {
            Some(own) if own != self.all() => {
                bail!("its own count is {own:?}, that of system calls {:?}", self.all())
            }
            _ => Ok(()),
        }
    }
}

/// Whether there is a counter.
pub fn require() -> Result<()> {
    let started = Command::new("valgrind")
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success());
    if !started {
        bail!(
            "valgrind is not installed, which counts instructions: run 'sudo apt-get install -y valgrind', or start the script \
             ./gond, which does it"
        );
    }
    Ok(())
}

/// Runs a program under the counter.
pub fn count(program: &Path, words: &[OsString], folder: &Path) -> Result<Counted> {
    let log = folder.join("counted");
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--trace-syscalls=yes",
        ])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--log-file={}", log.display()))
        .arg(program)
        .args(words)
        // A copy by one repeated instruction would count a byte an instruction; QEMU, too, counts without it.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS")
        .stdin(Stdio::null())
        .output()
        .context("cannot start valgrind")?;
    let line = answer(&output)?;
    let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let own = numbers(&line);
    let own = |name: &str| own.get(name).copied();
    Ok(Counted {
        operations: number(&line, "operations")?,
        instructions: collected(&text).context("callgrind does not tell how many instructions there were")?,
        turns: turns(&text),
        own: own("flushes").map(|flushes| Counts {
            reads: own("reads").unwrap_or(0),
            read: own("read").unwrap_or(0),
            writes: own("writes").unwrap_or(0),
            written: own("written").unwrap_or(0),
            flushes,
        }),
    })
}

fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// A number as the log writes it.
fn parsed(word: &str) -> Option<u64> {
    let word = word.trim();
    word.strip_prefix("0x")
        .map_or_else(|| word.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

/// A call as the log tells it: `SYSCALL[process,thread](number) name ( arguments ) …`.
#[derive(Copy, Clone)]
struct Call<'a> {
    number: u64,
    arguments: &'a str,
}

impl Call<'_> {
    fn argument(&self, place: usize) -> u64 {
        let word = self.arguments.split(',').nth(place);
        word.and_then(parsed).unwrap_or(NO_FILE)
    }
}

/// The calls between each mark and the next.
fn turns(log: &str) -> Vec<Counts> {
    let (mut begun, mut syncs) = (BTreeMap::new(), BTreeMap::new());
    let (mut turns, mut turn) = (Vec::new(), None::<Counts>);
    for line in log.lines().filter_map(|line| line.strip_prefix("SYSCALL[")) {
        let Some((thread, rest)) = line.split_once("](") else {
            continue;
        };
        let Some((number, rest)) = rest.split_once(')') else {
            continue;
        };
        if let Some((_, arguments)) = rest.split_once(" ( ").or_else(|| rest.split_once("( ")) {
            let arguments = arguments.split_once(" )").map_or(arguments, |(arguments, _)| arguments);
            if arguments.contains(MARK) {
                turns.extend(turn.replace(Counts::default()));
            }
            let number = number.parse().unwrap_or(u64::MAX);
            begun.insert(thread, Call { number, arguments });
        }
        let result = line.split_once("Success(").and_then(|(_, rest)| rest.split_once(')'));
        let Some(result) = result.and_then(|(result, _)| parsed(result)) else {
            continue;
        };
        let Some(call) = begun.get(thread) else { continue };
        match call.number {
            // open, openat
            2 => drop(syncs.insert(result, call.argument(1) & O_DSYNC != 0)),
            257 => drop(syncs.insert(result, call.argument(2) & O_DSYNC != 0)),
            _ => {}
        }
        let Some(turn) = &mut turn else { continue };
        match call.number {
            // read, pread64, readv, preadv
            0 | 17 | 19 | 295 => {
                turn.reads += 1;
                turn.read += result;
            }
            // write, pwrite64, writev, pwritev, pwritev2
            1 | 18 | 20 | 296 | 328 => {
                turn.writes += 1;
                turn.written += result;
                turn.flushes += u64::from(syncs.get(&call.argument(0)) == Some(&true));
            }
            // msync, fsync, fdatasync
            26 | 74 | 75 => turn.flushes += 1,
            _ => {}
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_marks_are_counted() {
        let log = "\
SYSCALL[7,1](257) sys_openat ( 4294967196, 0x10a004(/x), 4098 ) --> [async] ...
SYSCALL[7,1](257) ... [async] --> Success(0x5)
SYSCALL[7,1](257) sys_openat ( 4294967196, 0x10a004(/x), 524354, 420 ) --> [async] ...
SYSCALL[7,1](257) ... [async] --> Success(0x4)
SYSCALL[7,1](18) sys_pwrite64 ( 4, 0x10c0a0, 100, 0 ) --> [async] ...
SYSCALL[7,1](18) ... [async] --> Success(0x64)
SYSCALL[7,1](257) sys_openat ( 4294967196, 0x10a00e(/operation), 524288 ) --> [async] ...
SYSCALL[7,1](257) ... [async] --> Failure(0x2)
SYSCALL[7,1](18) sys_pwrite64 ( 4, 0x10c0a0, 4096, 0 ) --> [async] ...
SYSCALL[7,1](18) ... [async] --> Success(0x1000)
SYSCALL[7,1](296) sys_pwritev ( 4, 0x1fff000610, 2, 50 ) --> [async] ...
SYSCALL[7,1](296) ... [async] --> Success(0x1e)
SYSCALL[7,1](75) sys_fdatasync ( 4 ) --> [async] ...
SYSCALL[7,1](75) ... [async] --> Success(0x0)
SYSCALL[7,1](1) sys_write ( 5, 0x10c0a0, 1 ) --> [async] ...
SYSCALL[7,1](1) ... [async] --> Success(0x1)
SYSCALL[7,1](228) sys_clock_gettime( 1, 0x1fff000470 )[sync] --> Success(0x0)
SYSCALL[7,1](257) sys_openat ( 4294967196, 0x10a00e(/operation), 524288 ) --> [async] ...
SYSCALL[7,1](257) ... [async] --> Failure(0x2)
SYSCALL[7,1](17) sys_pread64 ( 4, 0x10c0a0, 64, 0 ) --> [async] ...
SYSCALL[7,1](17) ... [async] --> Success(0x40)
SYSCALL[7,1](257) sys_openat ( 4294967196, 0x10a00e(/operation), 524288 ) --> [async] ...
SYSCALL[7,1](257) ... [async] --> Failure(0x2)
SYSCALL[7,1](74) sys_fsync ( 4 ) --> [async] ...
SYSCALL[7,1](74) ... [async] --> Success(0x0)
==7== Collected : 131493
";
        let first = Counts {
            writes: 3,
            written: 4096 + 30 + 1,
            flushes: 2,
            ..Counts::default()
        };
        let second = Counts {
            reads: 1,
            read: 64,
            ..Counts::default()
        };
        assert_eq!(turns(log), [first, second]);
        assert_eq!(collected(log), Some(131_493));
        let mut counted = Counted::of(turns(log));
        assert!(counted.agrees().is_ok());
        assert_eq!((counted.all().reads, counted.all().flushes), (1, 2));
        assert_eq!(counted.median(|turn| turn.flushes), 2);
        counted.own = Some(first);
        assert!(counted.agrees().is_err());
    }
}
