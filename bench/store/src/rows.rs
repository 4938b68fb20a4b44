//! The rows: which pages and records each takes, in which order, and what must be there afterwards.

use crate::{Durable, Engine, Outcome, PAGE, Page};
use std::time::{Duration, Instant};

/// A row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Row {
    /// One random page changed and made durable.
    Sync1,
    /// As many neighbouring pages as make 1 MiB, made durable at once.
    Sync256,
    /// As many random pages made durable at once, with all else that has changed.
    Checkpoint256,
    /// Pages read in order.
    Scan,
    /// Random pages read.
    Probe,
    /// Small records made, and deleted, a thousand at once.
    CreateDelete,
}

/// Pages that are made durable at once.
const MANY: u64 = 256;
/// Small records at once.
const BATCH: u64 = 1000;

/// How much of a row is done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Size {
    /// As measured: 1 GiB of pages.
    Whole,
    /// As tested: 16 MiB, and few times.
    Small,
}

impl Size {
    /// From its name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "whole" => Some(Self::Whole),
            "small" => Some(Self::Small),
            _ => None,
        }
    }

    /// Large records: a power of two.
    pub fn pages(self) -> u64 {
        match self {
            Self::Whole => 1 << 18,
            Self::Small => 1 << 12,
        }
    }

    /// How often the row's work is done. What writes is done so often that our store folds its journal, of 1,024 blocks, into maps
    /// about as often as it would for ever.
    fn times(self, row: Row) -> u64 {
        match (row, self) {
            (Row::Sync1, Self::Whole) => 2100,
            (Row::Sync256, Self::Whole) => 210,
            (Row::Checkpoint256, Self::Whole) => 40,
            (Row::Probe, Self::Whole) => 10_000,
            (Row::CreateDelete, Self::Whole) | (Row::Sync1, Self::Small) => 100,
            (Row::Sync256 | Row::Checkpoint256, Self::Small) => 8,
            (Row::Probe, Self::Small) => 500,
            (Row::CreateDelete, Self::Small) => 3,
            (Row::Scan, _) => 1,
        }
    }

    fn scanned(self) -> u64 {
        self.pages() / 4
    }
}

impl Row {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Sync1,
        Self::Sync256,
        Self::Checkpoint256,
        Self::Scan,
        Self::Probe,
        Self::CreateDelete,
    ];

    /// Its name in output and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync1 => "store-sync-1",
            Self::Sync256 => "store-sync-256",
            Self::Checkpoint256 => "store-checkpoint-256",
            Self::Scan => "store-scan",
            Self::Probe => "store-probe",
            Self::CreateDelete => "store-create-delete",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.name() == name)
    }

    /// Whether it only reads.
    pub fn reads(self) -> bool {
        matches!(self, Self::Scan | Self::Probe)
    }

    /// Bytes that an operation makes durable, or reads; none if that says nothing.
    pub fn payload(self) -> Option<u64> {
        match self {
            Self::Sync1 | Self::Scan | Self::Probe => Some(PAGE as u64),
            Self::Sync256 | Self::Checkpoint256 => Some(MANY * PAGE as u64),
            Self::CreateDelete => None,
        }
    }

    /// Operations in one turn of [`operate`].
    fn at_once(self, size: Size) -> u64 {
        match self {
            Self::Scan => size.scanned(),
            Self::CreateDelete => BATCH,
            _ => 1,
        }
    }
}

/// Mixes the bits of a number (the finalizer of `SplitMix64`).
pub(crate) fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The page at a place of a random order of all pages, which is another one for each row and round: pages that are
/// changed together differ.
fn scattered(place: u64, size: Size, salt: u64) -> u64 {
    let (bits, mask) = (size.pages().trailing_zeros(), size.pages() - 1);
    let salt = mix(salt);
    let mut page = place.wrapping_add(salt) & mask;
    for factor in [0x9e37_79b9_7f4a_7c15, salt | 1] {
        page = page.wrapping_mul(factor) & mask;
        page ^= page >> (bits / 2);
    }
    page
}

fn salt(row: Row, round: u64) -> u64 {
    round * 16 + row as u64
}

/// Fills a page with what belongs there after a round's turn of a row. All of it but its first word changes: `SQLite` does not write
/// the part of a record that stays as it was.
fn fill(page: u64, stamp: u64, bytes: &mut Page) {
    let word = mix(page ^ stamp).to_le_bytes();
    bytes.as_chunks_mut().0.fill(word);
    bytes[..8].copy_from_slice(&mix(page).to_le_bytes());
}

/// The sum of a page's words.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
    words.fold(0, u64::wrapping_add)
}

/// The pages that a turn changes.
fn pages_of(row: Row, size: Size, round: u64, turn: u64) -> Vec<u64> {
    let salt = salt(row, round);
    match row {
        Row::Sync1 => vec![scattered(turn, size, salt)],
        Row::Checkpoint256 => (turn * MANY..(turn + 1) * MANY)
            .map(|place| scattered(place, size, salt))
            .collect(),
        Row::Sync256 => {
            let first = scattered(turn, size, salt) / MANY * MANY;
            (first..first + MANY).collect()
        }
        Row::Scan | Row::Probe | Row::CreateDelete => Vec::new(),
    }
}

fn stamp_of(row: Row, round: u64, turn: u64) -> u64 {
    mix((salt(row, round) << 32) + turn)
}

/// A turn of a row, and nothing else: its instructions are counted by the name of this function. The sum is of what was read.
#[inline(never)]
fn operate(engine: &mut dyn Engine, row: Row, size: Size, round: u64, turn: u64) -> Outcome<u64> {
    let mut sum = 0_u64;
    let mut see = |bytes: &[u8]| sum = sum.wrapping_add(sum_of(bytes));
    match row {
        Row::Sync1 | Row::Sync256 | Row::Checkpoint256 => {
            let (pages, stamp) = (pages_of(row, size, round, turn), stamp_of(row, round, turn));
            let durable = if row == Row::Checkpoint256 {
                Durable::Checkpoint
            } else {
                Durable::Sync
            };
            engine.write(&pages, durable, &mut |page, bytes| fill(page, stamp, bytes))?;
        }
        Row::Scan => engine.scan(size.scanned(), &mut see)?,
        Row::Probe => engine.probe(scattered(turn, size, salt(row, round)), &mut see)?,
        Row::CreateDelete => {
            let first = (round * size.times(row) + turn) * BATCH;
            engine.create(first, BATCH)?;
            sum = engine
                .find(first + turn)?
                .ok_or("a record that was made is not there")?;
            engine.delete(first, BATCH)?;
        }
    }
    Ok(sum)
}

/// The work of a round.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// The time of them all.
    pub time: Duration,
    /// The sum of what was read.
    pub sum: u64,
}

/// A round of a row. `mark` is called before the first turn and after each.
///
/// # Errors
/// The engine's.
pub fn measured(engine: &mut dyn Engine, row: Row, size: Size, round: u64, mark: &mut dyn FnMut()) -> Outcome<Done> {
    let times = size.times(row);
    let mut sum = 0_u64;
    mark();
    let start = Instant::now();
    for turn in 0..times {
        sum = sum.wrapping_add(operate(engine, row, size, round, turn)?);
        mark();
    }
    Ok(Done {
        operations: times * row.at_once(size),
        time: start.elapsed(),
        sum,
    })
}

/// The sum of all that a round has left behind, from an engine that was opened anew.
///
/// # Errors
/// The engine's, or that something is not as it was written last.
pub fn verified(engine: &mut dyn Engine, row: Row, size: Size, round: u64) -> Outcome<u64> {
    let mut sum = 0_u64;
    let mut written = std::collections::BTreeMap::new();
    for turn in 0..size.times(row) {
        let pages = pages_of(row, size, round, turn);
        written.extend(pages.into_iter().map(|page| (page, stamp_of(row, round, turn))));
    }
    for (page, stamp) in written {
        let mut expected = [0; PAGE];
        fill(page, stamp, &mut expected);
        let mut is_same = false;
        engine.probe(page, &mut |bytes| {
            is_same = bytes == expected;
            sum = sum.wrapping_add(sum_of(bytes));
        })?;
        if !is_same {
            return Err(format!("page {page} is not as it was written"));
        }
    }
    match engine.count()? {
        0 => Ok(sum),
        left => Err(format!("{left} small records are left")),
    }
}

/// Writes every page for the first time.
///
/// # Errors
/// The engine's.
pub fn filled(engine: &mut dyn Engine, size: Size) -> Outcome<()> {
    let (all, step) = (size.pages(), 1 << 12);
    for first in (0..all).step_by(step) {
        let pages: Vec<u64> = (first..all.min(first + step as u64)).collect();
        engine.write(&pages, Durable::Checkpoint, &mut |page, bytes| fill(page, 0, bytes))?;
    }
    Ok(())
}
