//! Samples and their statistics.
//!
//! A row is the median over samples; a sample is the difference of two readings of the tick counter
//! around a batch of equal operations, divided by the batch. Batches are short enough that most see no
//! timer interrupt, so the median shows the work and not the tick.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

use core::fmt;

use rt::time::ticks;

/// Samples of a row at most.
pub const SAMPLES: usize = 101;

/// A row's samples.
#[derive(Debug)]
pub struct Samples {
    name: &'static str,
    batch: u64,
    count: usize,
    ticks: [u64; SAMPLES],
}

impl Samples {
    /// No samples yet, each to be of so many operations.
    pub const fn new(name: &'static str, batch: u64) -> Self {
        Self {
            name,
            batch,
            count: 0,
            ticks: [0; SAMPLES],
        }
    }

    /// Takes `count` samples of `work`, after two that only warm it up. `work` does a batch.
    ///
    /// # Errors
    /// Those of the work.
    pub fn take(mut self, count: usize, mut work: impl FnMut() -> rt::Result<()>) -> rt::Result<Self> {
        for _ in 0..2 {
            work()?;
        }
        for _ in 0..count {
            let start = ticks();
            work()?;
            self.add(ticks().wrapping_sub(start));
        }
        Ok(self)
    }

    /// Adds the ticks of a batch.
    pub fn add(&mut self, ticks: u64) {
        if let Some(place) = self.ticks.get_mut(self.count) {
            *place = ticks;
            self.count += 1;
        }
    }

    /// The row, as the host tool reads it.
    pub fn row(mut self, ticks_per_us: u64) -> Row {
        let ticks = self.ticks.get_mut(..self.count).unwrap_or_default();
        ticks.sort_unstable();
        let each = |ticks: u64| (ticks + self.batch / 2) / self.batch;
        let median = ticks.get(ticks.len() / 2).copied().unwrap_or(0);
        Row {
            name: self.name,
            ticks: each(median),
            least: each(ticks.first().copied().unwrap_or(0)),
            operations: self.count as u64 * self.batch,
            ns: (median * 1000).checked_div(ticks_per_us).map(each),
        }
    }
}

/// A row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Row {
    name: &'static str,
    ticks: u64,
    least: u64,
    operations: u64,
    ns: Option<u64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "row={} ticks={} min={} n={}",
            self.name, self.ticks, self.least, self.operations
        )?;
        self.ns.map_or(Ok(()), |ns| write!(f, " ns={ns}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn a_row_is_the_median_for_one_operation() {
        let mut samples = Samples::new("null-call", 10);
        for ticks in [900, 100, 104, 96, 108] {
            samples.add(ticks);
        }
        assert_eq!(samples.row(2000).to_string(), "row=null-call ticks=10 min=10 n=50 ns=5");
        assert_eq!(Samples::new("x", 1).row(0).to_string(), "row=x ticks=0 min=0 n=0");
    }
}
