//! Rows: how they are read, which bounds they have, and which peer each has.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A system that is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum System {
    /// This one.
    Gondwana,
    /// This one, with its server outside of the kernel.
    GondwanaUser,
    /// Debian's kernel with a static C program.
    Linux,
}

impl System {
    /// Its name in output and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gondwana => "gondwana",
            Self::GondwanaUser => "gondwana-user",
            Self::Linux => "linux",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Gondwana, Self::GondwanaUser, Self::Linux]
            .into_iter()
            .find(|system| system.name() == name)
    }
}

/// One row of one system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Its name.
    pub row: String,
    /// Whose it is.
    pub system: System,
    /// Median of instructions.
    pub instructions: Option<u64>,
    /// Median of nanoseconds.
    pub ns: Option<u64>,
    /// Bytes, for a row that measures memory.
    pub bytes: Option<u64>,
    /// The checksum of the work, where it has one.
    pub checksum: Option<String>,
}

impl Measured {
    /// One object, as `--json` and `bench/results.json` have it.
    pub fn json(&self) -> Value {
        let mut object =
            json!({ "row": self.row, "system": self.system.name(), "instructions": self.instructions, "ns": self.ns });
        if let Some(bytes) = self.bytes {
            object["bytes"] = bytes.into();
        }
        object
    }
}

/// The most that a row may take, by the issue that set it.
#[derive(Copy, Clone, Debug)]
pub enum Bound {
    /// So many instructions.
    Instructions(u64),
    /// So many times another row of ours.
    Times(u64, &'static str),
    /// So many hundredths of another row of ours.
    Hundredths(u64, &'static str),
    /// The instructions of its peer.
    Peer,
    /// The instructions, or bytes, of this row of Linux.
    Linux(&'static str),
    /// Another row of ours, divided by so much.
    Part(u64, &'static str),
    /// So many bytes.
    Bytes(u64),
}

/// Rows that have a bound or a peer of another name, in the order in which they are shown: the row, its bound, and
/// the row of Linux that does the same work.
pub const KNOWN: &[(&str, Option<Bound>, Option<&str>)] = &[
    ("null-call", Some(Bound::Instructions(70)), Some("null-call")),
    ("cheap-call", Some(Bound::Instructions(110)), Some("cheap-call")),
    ("kernel-domain-call", Some(Bound::Instructions(110)), Some("null-call")),
    (OUTSIDE_NULL_CALL, Some(Bound::Instructions(180)), Some("null-call")),
    ("pdx-round-trip", Some(Bound::Instructions(148)), Some("ipc-futex")),
    ("pdx-merge", None, Some("ipc-futex")),
    ("pdx-vector", Some(Bound::Instructions(200)), None),
    ("pdx-12", Some(Bound::Instructions(160)), None),
    ("pdx-100", Some(Bound::Instructions(170)), None),
    ("pdx-10-domains", None, None),
    ("pdx-depth-8", Some(Bound::Instructions(150)), None),
    ("pdx-depth-8-merge", None, None),
    ("pdx-depth-32", None, None),
    ("pdx-crowded", None, None),
    ("pdx-crowded-20", None, None),
    ("pdx-explicit-apd", None, None),
    ("pdx-after-apd-change", Some(Bound::Instructions(150)), None),
    (
        "thread-create-delete",
        Some(Bound::Instructions(1200)),
        Some("thread-create-delete"),
    ),
    (
        "task-create-exit",
        Some(Bound::Instructions(12_000)),
        Some("task-create-exit"),
    ),
    (
        "object-create-touch-delete",
        Some(Bound::Instructions(2500)),
        Some("object-create-touch-delete"),
    ),
    ("object-create-touch-delete-4", None, None),
    ("first-touch", Some(Bound::Instructions(250)), None),
    (
        "first-touch-zeroing",
        Some(Bound::Instructions(760)),
        Some("first-touch"),
    ),
    ("first-touch-in-turn", Some(Bound::Instructions(260)), None),
    ("first-touch-of-16", None, None),
    ("first-touch-of-64", None, None),
    ("first-touch-kept", None, None),
    ("first-touch-new-slot", Some(Bound::Instructions(600)), None),
    ("apd-lookup", Some(Bound::Instructions(150)), None),
    ("address-wake", None, None),
    ("sem-signal-wait", None, None),
    (
        "sem-round-trip",
        Some(Bound::Instructions(1300)),
        Some("sem-round-trip"),
    ),
    ("sem-round-trip-tasks", None, Some("ipc-futex")),
    ("yield-switch", Some(Bound::Instructions(200)), None),
    (
        "disk-read-in-turn",
        Some(Bound::Instructions(6_000)),
        Some("disk-read-in-turn"),
    ),
    (
        "disk-read-at-random",
        Some(Bound::Instructions(12_000)),
        Some("disk-read-at-random"),
    ),
    ("disk-cached-in-turn", None, Some("disk-cached-in-turn")),
    ("disk-cached-at-random", None, Some("disk-cached-at-random")),
    ("disk-sync-1", Some(Bound::Instructions(15_000)), Some("disk-sync-1")),
    ("disk-sync-256", Some(Bound::Instructions(7_812)), Some("disk-sync-256")),
    (
        "disk-scan-8x",
        Some(Bound::Linux("disk-scan-8x-mmap")),
        Some("disk-scan-8x"),
    ),
    (
        "disk-scan-8x-moved",
        Some(Bound::Linux("disk-scan-8x-mmap-moved")),
        Some("disk-scan-8x-moved"),
    ),
    (
        "disk-probe-8x",
        Some(Bound::Linux("disk-probe-8x-mmap-advised")),
        Some("disk-probe-8x"),
    ),
    (
        "disk-probe-8x-moved",
        Some(Bound::Linux("disk-probe-8x-mmap-advised-moved")),
        Some("disk-probe-8x-moved"),
    ),
    ("disk-objects-1k", None, None),
    ("disk-objects-16k", Some(Bound::Times(2, "disk-objects-1k")), None),
    ("writer-wait", Some(Bound::Instructions(300_000)), None),
    ("writer-wait-1m", Some(Bound::Instructions(300_000)), None),
    ("longest-interrupts-off", Some(Bound::Instructions(20_000)), None),
    ("longest-task-end", Some(Bound::Instructions(20_000)), None),
    ("longest-delete-semaphores", Some(Bound::Instructions(20_000)), None),
    ("longest-apd-flush", Some(Bound::Instructions(20_000)), None),
    ("longest-delete-slots", Some(Bound::Instructions(20_000)), None),
    ("longest-first-touches", Some(Bound::Instructions(20_000)), None),
    ("longest-sparse-object", Some(Bound::Instructions(20_000)), None),
    ("page-flush", None, None),
    ("ipc-round-trip", Some(Bound::Instructions(200)), Some("ipc-futex")),
    ("ipc-after-vector", Some(Bound::Instructions(200)), None),
    ("ipc-vector", None, None),
    ("ipc-8-words", Some(Bound::Instructions(300)), None),
    ("ipc-64-words", Some(Bound::Instructions(700)), None),
    ("ipc-timeout", Some(Bound::Instructions(200)), None),
    ("ipc-map-item", Some(Bound::Instructions(500)), None),
    ("ipc-map-item-2", None, None),
    ("ipc-map-item-8", None, None),
    ("ipc-grant-item", None, None),
    ("ipc-grant-item-8", None, None),
    ("ipc-send-receive", None, None),
    ("ipc-queued", None, None),
    ("pager-round-trip", Some(Bound::Instructions(500)), None),
    ("interrupt-to-thread", Some(Bound::Instructions(400)), None),
    ("map-page", Some(Bound::Instructions(300)), None),
    ("map-first-page", None, None),
    ("link-2m", Some(Bound::Instructions(200)), None),
    ("flush-page", Some(Bound::Instructions(300)), None),
    ("flush-last-page", None, None),
    ("map-8", Some(Bound::Instructions(1100)), None),
    ("flush-8", Some(Bound::Instructions(900)), None),
    ("flush-8-in-turn", None, None),
    ("map-replace", Some(Bound::Instructions(600)), None),
    ("map-replace-8", None, None),
    ("flush-linked-2m", None, None),
    ("flush-8-spaces", Some(Bound::Instructions(1500)), None),
    ("map-page-of-slot", None, None),
    ("flush-page-of-slot", None, None),
    ("pager-round-trip-of-slot", None, None),
    ("nucleus-yield-switch", Some(Bound::Instructions(200)), None),
    ("bare-thread-run", Some(Bound::Instructions(4000)), None),
    ("space-create-delete", Some(Bound::Instructions(5000)), None),
    (
        "oo1-one-domain",
        Some(Bound::Hundredths(105, "oo1-one-domain-c")),
        Some("oo1-one-domain"),
    ),
    ("oo1-one-domain-c", Some(Bound::Peer), Some("oo1-one-domain")),
    (
        "oo1-two-domains",
        Some(Bound::Times(5, "oo1-one-domain")),
        Some("oo1-sockets"),
    ),
    (
        "module-start-8",
        Some(Bound::Part(2, "static-start-8")),
        Some("dynamic-start-8"),
    ),
    (
        "module-start-8-uncalled",
        Some(Bound::Part(2, "static-start-8")),
        Some("dynamic-start-8"),
    ),
    ("static-start-8", None, Some("dynamic-start-8")),
    ("start-thousand", None, None),
    ("start-ten-thousand", None, None),
    ("start-hundred-thousand", None, None),
    ("start-million", Some(Bound::Instructions(50_000_000)), None),
    ("start-thousand-heap", None, None),
    ("start-ten-thousand-heap", None, None),
    ("start-hundred-thousand-heap", None, None),
    ("start-million-heap", Some(Bound::Bytes(64 << 20)), None),
    ("start-thousand-active-heap", None, None),
    ("start-ten-thousand-active-heap", None, None),
    ("start-hundred-thousand-active-heap", None, None),
    ("start-million-active-heap", Some(Bound::Bytes(64 << 20)), None),
    ("module-instantiate-1000", None, None),
    ("module-memory-100", Some(Bound::Bytes(32 << 10)), None),
];

/// Whether a row has a bound or a peer, or is one of the ways in which Linux does a row of the disk. Others are known from the committed
/// results alone.
pub fn is_known(row: &str) -> bool {
    KNOWN.iter().any(|(name, ..)| *name == row || is_way(row, name)) || row == OUTSIDE_NULL_CALL
}

/// Whether a row of Linux is one of several ways to do the work of a row of the disk: its name begins with the other's, and a dash follows.
fn is_way(row: &str, of: &str) -> bool {
    let rest = row.strip_prefix(of).filter(|_| Meter::of(of) == Meter::Disk);
    rest.is_some_and(|rest| rest.starts_with('-'))
}

/// The program, or the build, that measures a row of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Meter {
    /// The program `micro`.
    Micro,
    /// The program `micro`, on several processors.
    Scale,
    /// The program `micro`, with data on the disk.
    Disk,
    /// The program `micro`, right behind a start from a disk with many objects.
    Start,
    /// The OO1 database.
    Oo1,
    /// The suite of the bare µ-kernel.
    Bare,
    /// The program `module-bench`.
    Modules,
}

/// The meters of rows, by how the rows' names begin; `micro` measures the others.
const METERS: &[(Meter, &[&str])] = &[
    (Meter::Scale, &["scale-"]),
    (Meter::Disk, &["disk-", "writer-"]),
    (Meter::Start, &["start-"]),
    (Meter::Oo1, &["oo1-"]),
    (Meter::Modules, &["module-", "static-start-"]),
    (
        Meter::Bare,
        &[
            "ipc-",
            "pager-",
            "map-",
            "link-",
            "flush-",
            "interrupt-to-thread",
            "nucleus-",
            "space-",
            "rpc-",
            "bare-",
        ],
    ),
];

impl Meter {
    /// That of a row.
    pub fn of(row: &str) -> Self {
        let begins = |(_, names): &&(Self, &[&str])| names.iter().any(|name| row.starts_with(name));
        METERS.iter().find(begins).map_or(Self::Micro, |(meter, _)| *meter)
    }
}

/// Rows that must take [`PEER_FACTOR`] times fewer instructions than a row of Linux, too.
pub const FEWER_THAN_PEER: [(&str, &str); 3] = [
    ("oo1-two-domains", "oo1-sockets"),
    ("module-start-8", "dynamic-start-8"),
    ("module-start-8-uncalled", "dynamic-start-8"),
];

/// The row `null-call` with the server outside of the kernel: it has a name and a bound of its own.
pub const OUTSIDE_NULL_CALL: &str = "null-call-user-server";

/// How many times fewer.
pub const PEER_FACTOR: u64 = 20;

/// The words of a row's line, or `None` if the line is none.
fn words(line: &str) -> Option<BTreeMap<&str, &str>> {
    let found: BTreeMap<&str, &str> = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect();
    let measured = ["ticks", "bytes"].iter().any(|key| found.contains_key(key));
    (line.trim_start().starts_with("row=") && measured).then_some(found)
}

/// Rows from the output of a counted and of a timed run, in the order of the first.
pub fn merge(system: System, counted: &str, timed: &str) -> Vec<Measured> {
    let mut all = merge_names(system, counted, timed);
    if system == System::GondwanaUser
        && let Some(null_call) = find(&all, system, "null-call").cloned()
    {
        all.push(Measured {
            row: OUTSIDE_NULL_CALL.into(),
            ..null_call
        });
    }
    all
}

fn merge_names(system: System, counted: &str, timed: &str) -> Vec<Measured> {
    let mut all: Vec<Measured> = Vec::new();
    for (text, is_count) in [(counted, true), (timed, false)] {
        for found in text.lines().filter_map(words) {
            let number = |key: &str| found.get(key).and_then(|value| value.parse::<u64>().ok());
            let name = found.get("row").copied().unwrap_or_default();
            let index = all.iter().position(|one| one.row == name).unwrap_or_else(|| {
                let checksum = found.get("checksum").map(|&text| text.to_owned());
                all.push(Measured {
                    row: name.to_owned(),
                    system,
                    instructions: None,
                    ns: None,
                    bytes: number("bytes"),
                    checksum,
                });
                all.len() - 1
            });
            if is_count {
                all[index].instructions = number("ticks");
            } else {
                all[index].ns = number("ns");
            }
        }
    }
    all
}

/// The row that a line of a timed run completes, and the one that it stands for besides.
pub fn complete(system: System, counted: &str, line: &str) -> Vec<Measured> {
    let name = |line: &str| words(line).and_then(|found| found.get("row").map(|&name| name.to_owned()));
    let Some(row) = name(line) else {
        return Vec::new();
    };
    let own: Vec<&str> = counted
        .lines()
        .filter(|line| name(line).as_ref() == Some(&row))
        .collect();
    merge(system, &own.join("\n"), line)
}

/// The row of a system.
pub fn find<'a>(all: &'a [Measured], system: System, row: &str) -> Option<&'a Measured> {
    all.iter().find(|one| one.system == system && one.row == row)
}

/// A row of ours that has a bound.
pub fn find_ours<'a>(all: &'a [Measured], row: &str) -> Option<&'a Measured> {
    let system = if row == OUTSIDE_NULL_CALL {
        System::GondwanaUser
    } else {
        System::Gondwana
    };
    find(all, system, row)
}

/// Whether a row of ours keeps its bound; `None` if it has none or the figures are not there.
pub fn keeps_bound(all: &[Measured], row: &str) -> Option<bool> {
    let ours = find_ours(all, row)?;
    let (_, bound, peer) = KNOWN.iter().find(|(name, ..)| *name == row)?;
    if let Some(bytes) = ours.bytes {
        return match (*bound)? {
            Bound::Bytes(most) => Some(bytes <= most),
            Bound::Linux(other) => Some(bytes <= find(all, System::Linux, other)?.bytes?),
            _ => None,
        };
    }
    let instructions = ours.instructions?;
    let mut kept = match (*bound)? {
        Bound::Instructions(most) | Bound::Bytes(most) => instructions <= most,
        Bound::Part(part, other) => {
            instructions.saturating_mul(part) <= find(all, System::Gondwana, other)?.instructions?
        }
        Bound::Hundredths(hundredths, other) => {
            let other = find(all, System::Gondwana, other)?.instructions?;
            instructions.saturating_mul(100) <= hundredths.saturating_mul(other)
        }
        Bound::Peer => instructions <= find(all, System::Linux, (*peer)?)?.instructions?,
        Bound::Linux(other) => instructions <= find(all, System::Linux, other)?.instructions?,
        Bound::Times(times, other) => {
            instructions <= times.saturating_mul(find(all, System::Gondwana, other)?.instructions?)
        }
    };
    if let Some((_, peer)) = FEWER_THAN_PEER.iter().find(|(name, _)| *name == row)
        && let Some(theirs) = find(all, System::Linux, peer).and_then(|one| one.instructions)
    {
        kept &= instructions.saturating_mul(PEER_FACTOR) <= theirs;
    }
    if ["null-call", "kernel-domain-call"].contains(&row)
        && let (Some(here), Some(there)) = (ours.ns, find(all, System::Linux, "null-call").and_then(|one| one.ns))
    {
        kept &= here.saturating_mul(2) <= there;
    }
    Some(kept)
}

/// The same work must have been done everywhere.
pub fn check_checksums(all: &[Measured]) -> Result<()> {
    let with = || all.iter().filter_map(|one| Some((one, one.checksum.as_ref()?)));
    let Some((first, expected)) = with().next() else {
        return Ok(());
    };
    for (one, checksum) in with() {
        if checksum != expected {
            bail!(
                "{} of {} has checksum {checksum}, {} of {} has {expected}: they did not do the same work",
                one.row,
                one.system.name(),
                first.row,
                first.system.name()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what a row needs is built and run, so its meter must be right.
    #[test]
    fn each_row_has_its_meter() {
        let root = crate::place::root().unwrap();
        let bare = std::fs::read_to_string(root.join("tests/nucleus/src/bench.rs")).unwrap();
        let micro = std::fs::read_to_string(root.join("bench/micro/src/rows.rs")).unwrap();
        let results = std::fs::read_to_string(root.join("bench/results.json")).unwrap();
        let results: Vec<Value> = serde_json::from_str(&results).unwrap();
        let rows = results.iter().filter(|one| one["system"] == "gondwana");
        let rows: Vec<&str> = rows.filter_map(|one| one["row"].as_str()).collect();
        assert!(rows.len() > 50);
        for row in rows {
            let quoted = format!("(\"{row}\"");
            assert_eq!(Meter::of(row) == Meter::Bare, bare.contains(&quoted), "{row}");
            let of_micro = matches!(Meter::of(row), Meter::Micro | Meter::Disk);
            assert!(of_micro || !micro.contains(&quoted), "{row}");
        }
    }

    #[test]
    fn rows_of_the_disk_have_peers_and_their_ways_are_known() {
        let peers = std::fs::read_to_string(crate::place::root().unwrap().join("bench/linux/disk.c")).unwrap();
        let of_disk = KNOWN.iter().filter(|(name, ..)| Meter::of(name) == Meter::Disk);
        for (name, _, peer) in of_disk.filter(|(name, ..)| {
            name.starts_with("disk-") && !name.starts_with("disk-objects-") && !name.ends_with("-moved")
        }) {
            assert_eq!(*peer, Some(*name));
            assert!(peers.contains(&format!("{{\"{name}\", ")), "{name}");
        }
        assert!(is_known("disk-read-in-turn-mmap") && is_known("disk-sync-1-pwrite"));
        assert!(!is_known("disk-read") && !is_known("disk-sync-12") && !is_known("null-call-mmap"));
    }

    #[test]
    fn rows_are_merged() {
        let counted = "noise\nrow=a ticks=100 min=9 n=3\nrow=b ticks=7 checksum=0x1\nrow=c nonsense\n";
        let timed = "row=a ticks=5 ns=33\n";
        let all = merge(System::Linux, counted, timed);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].instructions, all[0].ns), (Some(100), Some(33)));
        assert_eq!(
            (all[1].instructions, all[1].ns, all[1].checksum.as_deref()),
            (Some(7), None, Some("0x1"))
        );
        assert!(check_checksums(&all).is_ok());
        let more = merge(System::Gondwana, "row=b ticks=3 checksum=0x2", "");
        assert!(check_checksums(&[all, more].concat()).is_err());
    }

    #[test]
    fn a_line_of_a_timed_run_completes_its_row() {
        let counted = "row=a ticks=100\nrow=null-call ticks=7\nrow=b ticks=1\n";
        let rows = complete(System::GondwanaUser, counted, "row=null-call ticks=5 ns=33");
        let seen: Vec<_> = rows
            .iter()
            .map(|one| (one.row.as_str(), one.instructions, one.ns))
            .collect();
        assert_eq!(
            seen,
            [("null-call", Some(7), Some(33)), (OUTSIDE_NULL_CALL, Some(7), Some(33))]
        );
        assert!(complete(System::Linux, counted, "noise").is_empty());
        assert_eq!(
            complete(System::Linux, counted, "row=c ticks=1 ns=2")[0].instructions,
            None
        );
    }

    #[test]
    fn bounds_are_kept_or_not() {
        let mut all = merge(
            System::Gondwana,
            "row=oo1-one-domain ticks=10\nrow=oo1-two-domains ticks=50\nrow=null-call ticks=91",
            "",
        );
        assert_eq!(keeps_bound(&all, "oo1-two-domains"), Some(true));
        assert_eq!(keeps_bound(&all, "null-call"), Some(false));
        assert_eq!(keeps_bound(&all, "oo1-one-domain"), None);
        for (c, kept) in [(10, Some(true)), (9, Some(false))] {
            let mut all = all.clone();
            all.extend(merge(System::Gondwana, &format!("row=oo1-one-domain-c ticks={c}"), ""));
            assert_eq!(keeps_bound(&all, "oo1-one-domain"), kept);
            assert_eq!(keeps_bound(&all, "oo1-one-domain-c"), None);
            all.extend(merge(System::Linux, "row=oo1-one-domain ticks=9", ""));
            assert_eq!(keeps_bound(&all, "oo1-one-domain-c"), kept.map(|kept| !kept));
        }
        all.extend(merge(System::Linux, "row=oo1-sockets ticks=999", ""));
        assert_eq!(keeps_bound(&all, "oo1-two-domains"), Some(false));
        let mut all = merge(
            System::Gondwana,
            "row=static-start-8 ticks=100\nrow=module-start-8 ticks=50\nrow=module-memory-100 bytes=32769",
            "",
        );
        assert_eq!(keeps_bound(&all, "module-start-8"), Some(true));
        assert_eq!(keeps_bound(&all, "module-memory-100"), Some(false));
        assert_eq!(all[2].json()["bytes"], 32769);
        all.extend(merge(System::Linux, "row=dynamic-start-8 ticks=999", ""));
        assert_eq!(keeps_bound(&all, "module-start-8"), Some(false));
    }
}
