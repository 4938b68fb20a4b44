//! Recordings of a real run, crashed at every flush.
//!
//! Killing QEMU leaves the host's cache whole, so it loses nothing that a power cut would lose. Hence
//! this: QEMU's `blklogwrites` filter records every write and every flush of a run, and
//! [`replay`] cuts the power in each *epoch*, which is the time between two flushes: any of its writes
//! may be missing or torn. Every disk so made is mounted and verified. It must also be at least as new
//! as the disk at the beginning of its epoch, for all of that had been flushed.
//!
//! The format, all little-endian: sector 0 holds {magic u64, version u64, entries u64, sector size u32};
//! each entry one sector {sector u64, sectors u64, flags u64, zero u64} and then its data.

use crate::disk::{Block, CrashDisk, SECTOR};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use store::{BLOCK, Finding, MountMode, MountReport, Store};

/// What is on a disk: blocks that are not zero.
pub type Medium = BTreeMap<u64, Block>;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// Below this many writes in an epoch every subset is tried.
const EXHAUSTIVE: usize = 5;
/// Pages of memory for a mount.
const MEMORY: usize = 1 << 18;
/// Failures that are reported in full.
const FAILURES_MAX: usize = 20;

/// Why a log cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogError {
    /// It does not begin like a log.
    Foreign,
    /// Its sector size is not a divisor of a block.
    SectorSize(u32),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "not a log of block writes"),
            Self::SectorSize(bytes) => write!(f, "sectors of {bytes} bytes"),
        }
    }
}

impl std::error::Error for LogError {}

/// One entry of a log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// What it writes; zeroes if it discards.
    pub data: &'a [u8],
    flags: u64,
    bytes: u64,
}

/// A parsed log.
pub struct Log<'a> {
    entries: Vec<Entry<'a>>,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

impl<'a> Log<'a> {
    /// Parses a log. An end that was cut off (the recorder was killed) is left out.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LogError> {
        let size = word(bytes, 24).map(|word| word as u32).ok_or(LogError::Foreign)?;
        if word(bytes, 0) != Some(MAGIC) || word(bytes, 8) != Some(VERSION) {
            return Err(LogError::Foreign);
        }
        if !(SECTOR as u32..=BLOCK as u32).contains(&size) || !size.is_power_of_two() {
            return Err(LogError::SectorSize(size));
        }
        let size = size as usize;
        let count = word(bytes, 16).unwrap_or(0);
        let mut entries = Vec::new();
        let mut at = size;
        while (entries.len() as u64) < count {
            let Some((entry, next)) = parse_entry(bytes, at, size) else {
                break;
            };
            entries.push(entry);
            at = next;
        }
        Ok(Self { entries })
    }

    /// The entries in the order in which they were completed.
    pub fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }
}

fn parse_entry(bytes: &[u8], at: usize, size: usize) -> Option<(Entry<'_>, usize)> {
    let (sector, sectors, flags) = (word(bytes, at)?, word(bytes, at + 8)?, word(bytes, at + 16)?);
    let length = sectors.checked_mul(size as u64)?;
    let carried = if flags & DISCARD == 0 {
        usize::try_from(length).ok()?
    } else {
        0
    };
    let start = at.checked_add(size)?;
    let end = start.checked_add(carried)?;
    let data = bytes.get(start..end)?;
    Some((
        Entry {
            offset: sector.checked_mul(size as u64)?,
            data,
            flags,
            bytes: length,
        },
        end,
    ))
}

/// Reads an image; blocks of zeroes are left out.
///
/// # Errors
/// Those of the reader.
pub fn read_image(mut image: impl Read) -> io::Result<(u64, Medium)> {
    let mut medium = Medium::new();
    let mut blocks = 0;
    loop {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match image.read(&mut block[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        if filled < BLOCK {
            return Ok((blocks, medium));
        }
        if block != [0; BLOCK] {
            medium.insert(blocks, Arc::new(block));
        }
        blocks += 1;
    }
}

/// Sectors of one block that an entry writes.
#[derive(Clone)]
struct Piece {
    block: u64,
    mask: u8,
    data: Block,
}

/// The blocks that an entry touches.
fn pieces(entry: &Entry<'_>) -> Vec<Piece> {
    let mut list: Vec<Piece> = Vec::new();
    for at in (0..entry.bytes).step_by(SECTOR) {
        let sector = (entry.offset + at) / SECTOR as u64;
        let block = sector / (BLOCK / SECTOR) as u64;
        let place = (sector % (BLOCK / SECTOR) as u64) as usize;
        if list.last().is_none_or(|last| last.block != block) {
            list.push(Piece {
                block,
                mask: 0,
                data: Arc::new([0; BLOCK]),
            });
        }
        if let Some(last) = list.last_mut() {
            last.mask |= 1 << place;
            if let Some(data) = entry.data.get(at as usize..at as usize + SECTOR) {
                Arc::make_mut(&mut last.data)[place * SECTOR..(place + 1) * SECTOR].copy_from_slice(data);
            }
        }
    }
    list
}

fn write(medium: &mut Medium, piece: &Piece, mask: u8) {
    let old = medium.get(&piece.block).cloned();
    medium.insert(piece.block, crate::disk::mix(old, &piece.data, piece.mask & mask));
}

/// How to replay.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReplayOptions {
    /// From which all choices come.
    pub seed: u64,
    /// Disks made in each epoch, at least.
    pub per_epoch: usize,
}

/// A disk that was not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayFailure {
    /// The epoch, from zero.
    pub epoch: usize,
    /// The disk within the epoch.
    pub image: usize,
    /// What was wrong.
    pub what: String,
}

/// What a replay found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayReport {
    /// Writes in the log, in blocks.
    pub writes: u64,
    /// Epochs with writes.
    pub epochs: usize,
    /// Disks made, mounted and verified.
    pub images: u64,
    /// Disks on which journal records were replayed.
    pub replayed: u64,
    /// Disks on which the end of the journal was discarded.
    pub tails: u64,
    /// Disks that were not as they must be.
    pub failed: u64,
    /// The first of them.
    pub failures: Vec<ReplayFailure>,
}

/// How new a disk is: generation and journal records. What is flushed may only grow.
type Age = (u64, u32);

/// Replays a log from the disk as it was when the recording began. `progress` is told of each
/// epoch: how many are done and how many there are.
///
/// # Errors
/// [`LogError`] if the log cannot be read. A disk that fails is no error but part of the report.
pub fn replay(
    log: &[u8],
    base: Medium,
    blocks: u64,
    options: ReplayOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<ReplayReport, LogError> {
    let log = Log::parse(log)?;
    let epochs = epochs(&log);
    let mut report = ReplayReport::default();
    let mut medium = base;
    let mut rng = Rng::new(options.seed);
    for (number, epoch) in epochs.iter().enumerate() {
        report.writes += epoch.len() as u64;
        report.epochs += 1;
        let plans = plans(epoch.len(), options.per_epoch, &mut rng);
        let outcomes = crash_epoch(&medium, blocks, epoch, &plans);
        let floor = judge(&medium, blocks).ok().map(|report| age(&report));
        for (image, outcome) in outcomes.into_iter().enumerate() {
            report.images += 1;
            let what = match outcome {
                Ok(found) => {
                    report.replayed += u64::from(found.replayed > 0);
                    report.tails += u64::from(found.tail.is_some());
                    let older = floor.is_some_and(|floor| age(&found) < floor);
                    older.then(|| format!("older than what was flushed ({floor:?}): {found:?}"))
                }
                // Before the disk was formatted there is nothing to mount.
                Err(_) if floor.is_none() => None,
                Err(what) => Some(what),
            };
            if let Some(what) = what {
                report.failed += 1;
                if report.failures.len() < FAILURES_MAX {
                    report.failures.push(ReplayFailure {
                        epoch: number,
                        image,
                        what,
                    });
                }
            }
        }
        for piece in epoch {
            write(&mut medium, piece, u8::MAX);
        }
        progress(number + 1, epochs.len());
    }
    Ok(report)
}

fn age(report: &MountReport) -> Age {
    (report.generation, report.replayed)
}

/// The writes between flushes; epochs without writes are left out. A write with FUA ends its epoch.
fn epochs(log: &Log<'_>) -> Vec<Vec<Piece>> {
    let mut all = vec![Vec::new()];
    for entry in log.entries() {
        if entry.flags & FLUSH != 0 {
            all.push(Vec::new());
        }
        if let Some(last) = all.last_mut() {
            last.extend(pieces(entry));
        }
        if entry.flags & FUA != 0 {
            all.push(Vec::new());
        }
    }
    all.retain(|epoch| !epoch.is_empty());
    all
}

/// For each disk, the sectors of each write that reach it.
fn plans(writes: usize, per_epoch: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut plans = Vec::new();
    if writes <= EXHAUSTIVE {
        plans.extend((0_u64..1 << writes).map(|set| {
            (0..writes)
                .map(|at| if set >> at & 1 == 0 { 0 } else { u8::MAX })
                .collect::<Vec<u8>>()
        }));
    }
    while plans.len() < per_epoch {
        let kept = rng.below(9);
        let torn = rng.below(4);
        plans.push(
            (0..writes)
                .map(|_| match rng.below(8) {
                    draw if draw < torn => rng.next_u64() as u8,
                    _ if rng.below(8) < kept => u8::MAX,
                    _ => 0,
                })
                .collect(),
        );
    }
    plans
}

/// Makes and judges all disks of an epoch, on all processors.
fn crash_epoch(medium: &Medium, blocks: u64, epoch: &[Piece], plans: &[Vec<u8>]) -> Vec<Result<MountReport, String>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = plans.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = plans
            .chunks(share)
            .map(|plans| {
                scope.spawn(move || {
                    plans
                        .iter()
                        .map(|plan| judge(&crash(medium, epoch, plan), blocks))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|_| vec![Err("the store panicked".into())]))
            .collect()
    })
}

fn crash(medium: &Medium, epoch: &[Piece], plan: &[u8]) -> Medium {
    let mut medium = medium.clone();
    for (piece, &mask) in epoch.iter().zip(plan).filter(|(_, mask)| **mask != 0) {
        write(&mut medium, piece, mask);
    }
    medium
}

/// Mounts a disk read-only and verifies it.
fn judge(medium: &Medium, blocks: u64) -> Result<MountReport, String> {
    let disk = CrashDisk::from_medium(blocks, medium.clone(), Rng::new(1));
    let mut world = SimWorld::new(disk, MEMORY, Rng::new(2));
    let (store, report) =
        Store::mount(&mut world, MountMode::ReadOnly).map_err(|error| format!("not mounted: {error:?}"))?;
    let mut findings: Vec<Finding> = Vec::new();
    let verified = store.verify(&mut world, &mut |finding| findings.push(finding));
    verified.map_err(|error| format!("not verified: {error:?}"))?;
    if findings.is_empty() {
        Ok(report)
    } else {
        Err(format!(
            "verified with {} findings, first {:?}; {report:?}",
            findings.len(),
            findings.first()
        ))
    }
}
