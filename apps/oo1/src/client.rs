//! The client: the work that is prepared, the rounds that are measured, the checksums that must come
//! out (`docs/spec/oo1.md`, sections 6 and 7). It reaches the database through a function it is
//! given, so that the same rounds run with ordinary calls and with protected ones.

use alloc::vec::Vec;
use core::{
    fmt,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::random::{FOLD_START, Random, fold};

const LOOKUPS: usize = 1_000;
const INSERTS: usize = 100;
/// One cold round and nine warm ones.
const ROUNDS: usize = 10;

/// The operations of the database, by number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Operation {
    /// `lookup(id)`.
    Lookup = 1,
    /// `forward(id)`.
    Forward = 2,
    /// `reverse(id)`.
    Reverse = 3,
    /// `insert(place, kind, kind and draw)`.
    Insert = 4,
    /// `undo()`.
    Undo = 5,
    /// `digest()`.
    Digest = 6,
}

/// How the database is called: operation and three words in, one out, or none if the call failed. All of them go in registers.
pub type Call<'c> = &'c dyn Fn(Operation, u64, u64, u64) -> Option<u64>;

/// The checksum that deliveries and results are folded into.
static ACCUMULATOR: AtomicU64 = AtomicU64::new(0);

/// The client's procedure as a pointer.
pub type Procedure = fn(u64, u64, u64, u64);

/// The client's procedure: takes delivery of a part.
#[inline]
pub fn deliver(w0: u64, w1: u64, w2: u64, w3: u64) {
    let h = fold(fold(fold(fold(ACCUMULATOR.load(Ordering::Relaxed), w0), w1), w2), w3);
    ACCUMULATOR.store(h, Ordering::Relaxed);
}

/// The measured parts of a round.
pub const MEASURED: [&str; 4] = ["lookup", "forward", "reverse", "insert"];

/// Inputs that are prepared before anything is measured.
pub struct Work {
    ids: Vec<u64>,
    forward_start: u64,
    reverse_start: u64,
    inserts: Vec<[u64; 3]>,
}

impl Work {
    /// The work on a database of `initial` parts.
    pub fn prepare(initial: u32) -> Self {
        let n = u64::from(initial);
        let mut random = Random::stream(3);
        let ids = (0..LOOKUPS).map(|_| 1 + random.below(n)).collect();
        let mut random = Random::stream(4);
        let (forward_start, reverse_start) = (1 + random.below(n), 1 + random.below(n));
        let mut random = Random::stream(5);
        let inserts = (0..INSERTS)
            .map(|_| {
                let (x, y) = (random.below(100_000), random.below(100_000));
                let (digit, draw) = (u64::from(b'0') + random.below(10), random.next() >> 16);
                [
                    x | y << 32,
                    u64::from_le_bytes(*b"part-typ"),
                    u64::from(b'e') | digit << 8 | draw << 16,
                ]
            })
            .collect();
        Self {
            ids,
            forward_start,
            reverse_start,
            inserts,
        }
    }

    /// Does one measured part and gives its checksum and the last result.
    fn run(&self, part: usize, call: Call<'_>) -> Option<(u64, u64)> {
        ACCUMULATOR.store(FOLD_START, Ordering::Relaxed);
        let step = |operation, w0, w1, w2| {
            let result = call(operation, w0, w1, w2)?;
            ACCUMULATOR.store(fold(ACCUMULATOR.load(Ordering::Relaxed), result), Ordering::Relaxed);
            Some(result)
        };
        let mut last = 0;
        match part {
            0 => {
                for id in &self.ids {
                    last = step(Operation::Lookup, *id, 0, 0)?;
                }
            }
            1 => last = step(Operation::Forward, self.forward_start, 0, 0)?,
            2 => last = step(Operation::Reverse, self.reverse_start, 0, 0)?,
            _ => {
                for [w0, w1, w2] in &self.inserts {
                    last = step(Operation::Insert, *w0, *w1, *w2)?;
                }
            }
        }
        Some((ACCUMULATOR.load(Ordering::Relaxed), last))
    }
}

/// The results that each round must give.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Outcome {
    checksums: [u64; 4],
    visits: u64,
}

impl Outcome {
    fn checksum(&self) -> u64 {
        self.checksums.into_iter().fold(FOLD_START, fold)
    }
}

/// Why the rounds failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A call of the database failed.
    Call,
    /// A round gave another checksum than the first.
    Differs(usize),
    /// `undo` did not remove as many parts as were inserted.
    Undo(u64),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call => f.write_str("a call of the database failed"),
            Self::Differs(round) => write!(f, "round {round} gave other checksums than the first"),
            Self::Undo(removed) => write!(f, "{removed} parts were removed, {INSERTS} had been inserted"),
        }
    }
}

/// The results of the rounds.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Ticks of the cold round, by part.
    pub cold: [u64; 4],
    /// Median ticks of the warm rounds, by part.
    pub warm: [u64; 4],
    /// Least ticks of the warm rounds, by part.
    pub least: [u64; 4],
    /// Checksum of each part.
    pub checksums: [u64; 4],
    /// Parts that the reverse traversal visited.
    pub visits: u64,
    /// Checksum of a round.
    pub checksum: u64,
    /// Digest of the database when all is undone again.
    pub digest: u64,
}

/// All rounds; each must give what the first gave.
pub fn run_rounds(work: &Work, call: Call<'_>, ticks: fn() -> u64) -> Result<Measured, Failure> {
    // The compiler must not see through the pointer: what is measured is calls.
    let call = black_box(call);
    let mut first = Outcome::default();
    let mut times = [[0; ROUNDS]; 4];
    for round in 0..ROUNDS {
        let mut outcome = Outcome::default();
        for (part, times) in times.iter_mut().enumerate() {
            let start = ticks();
            let (checksum, last) = work.run(part, call).ok_or(Failure::Call)?;
            times[round] = ticks().wrapping_sub(start);
            outcome.checksums[part] = checksum;
            if part == 2 {
                outcome.visits = last;
            }
        }
        let removed = call(Operation::Undo, 0, 0, 0).ok_or(Failure::Call)?;
        if removed != INSERTS as u64 {
            return Err(Failure::Undo(removed));
        }
        if round == 0 {
            first = outcome;
        } else if outcome != first {
            return Err(Failure::Differs(round));
        }
    }
    let mut measured = Measured {
        cold: times.map(|times| times[0]),
        warm: [0; 4],
        least: [0; 4],
        checksums: first.checksums,
        visits: first.visits,
        checksum: first.checksum(),
        digest: call(Operation::Digest, 0, 0, 0).ok_or(Failure::Call)?,
    };
    for (part, times) in times.iter_mut().enumerate() {
        let warm = &mut times[1..];
        warm.sort_unstable();
        measured.warm[part] = warm[warm.len() / 2];
        measured.least[part] = warm[0];
    }
    Ok(measured)
}

impl Measured {
    /// The row of this measurement, as the host tool reads it.
    pub fn row(&self, name: &str, ticks_per_us: u64) -> impl fmt::Display {
        let (name, measured) = (alloc::string::String::from(name), self.clone());
        fmt::from_fn(move |f| {
            let total: u64 = measured.warm.iter().sum();
            write!(
                f,
                "row={name} ticks={total} min={} n={}",
                measured.least.iter().sum::<u64>(),
                ROUNDS - 1
            )?;
            for (part, ticks) in MEASURED.iter().zip(measured.warm) {
                write!(f, " {part}={ticks}")?;
            }
            for (part, ticks) in MEASURED.iter().zip(measured.cold) {
                write!(f, " cold-{part}={ticks}")?;
            }
            write!(f, " visits={} checksum={:#018x}", measured.visits, measured.checksum)?;
            match (total * 1000).checked_div(ticks_per_us) {
                Some(ns) => write!(f, " ns={ns}"),
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
