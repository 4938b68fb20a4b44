//! Shares of the processors: how much of each period the threads of an account may run before all others go first.
//!
//! Each account of the server has a row here, by its place in the ledger, and below its parent's. A thread's time is charged to its row and
//! all rows above. The *quota* of a row is its bound, a part in a thousand of all processors, and at most an equal part of its parent's quota: that is
//! divided by the rows below the parent that ran in this period or in the last one, and one more. The one more is for the parent's own threads, and for a
//! row that has not run yet: something is always left for it, whatever its priority. So a row has the same part whether one thread or a
//! thousand of its family want to run. A row above which nobody is bounded has no quota.
//!
//! A row that has used up its quota, or stands below one that has, is *spent* until the period ends. Its threads wait behind all others then, whatever
//! their priority ([`crate::scheduler::Standing`]). No processor is idle for that, and a thread that holds a lock gets on within a period.
//! Counts are of the period that is noted beside them; those of earlier ones are worth nothing, so that a period's end touches no row.
//!
//! After CFS bandwidth control (P. Turner, B. B. Rao, N. Rao, *CPU bandwidth control for CFS*, Linux Symposium 2010), which stops groups where this
//! puts them behind, and stride scheduling's shares of active clients (C. A. Waldspurger, *Lottery and Stride Scheduling*, MIT 1995).

use alloc::vec::Vec;

use crate::machine::Shortage;

/// A period, in nanoseconds.
pub const PERIOD_NS: u64 = 100_000_000;
/// A share that is everything.
pub const WHOLE: u64 = 1000;
/// Rows above each other that are looked at; accounts are no deeper.
const DEPTH_MAX: u32 = 17;
/// Rows that are made at once.
const CHUNK: usize = 64;
/// Rows that there may be: a number has to fit into a thread's [`crate::scheduler::Standing`].
pub const ROWS_MAX: usize = 1 << 24;
/// Bytes of a row.
pub const ROW_BYTES: u64 = size_of::<Row>() as u64;

/// The use and the bound of an account.
#[derive(Copy, Clone, Debug)]
struct Row {
    parent: u32,
    /// Its bound, in thousandths of all processors.
    bound: u32,
    /// The period that the counts are of.
    period: u32,
    /// Rows below it that ran in that period, ...
    parts: u32,
    /// ... and in the one before.
    parts_before: u32,
    used_ns: u64,
    used_before_ns: u64,
}

impl Row {
    const fn new(parent: u32, bound: u32) -> Self {
        Self {
            parent,
            bound,
            period: 0,
            parts: 0,
            parts_before: 0,
            used_ns: 0,
            used_before_ns: 0,
        }
    }

    /// From now on the counts are of a period.
    #[inline]
    fn enter(&mut self, period: u32) {
        if self.period != period {
            (self.parts_before, self.used_before_ns) = self.before(period);
            (self.parts, self.used_ns) = (0, 0);
            self.period = period;
        }
    }

    /// Parts and time in the period before.
    fn before(&self, period: u32) -> (u32, u64) {
        match period.wrapping_sub(self.period) {
            0 => (self.parts_before, self.used_before_ns),
            1 => (self.parts, self.used_ns),
            _ => (0, 0),
        }
    }

    /// Time in a period.
    fn used_ns(&self, period: u32) -> u64 {
        if self.period == period { self.used_ns } else { 0 }
    }

    /// Parts that its quota is divided by.
    fn parts(&self, period: u32) -> u64 {
        match period.wrapping_sub(self.period) {
            0 => u64::from(self.parts.max(self.parts_before)) + 1,
            1 => u64::from(self.parts) + 1,
            _ => 1,
        }
    }
}

/// The row of a place that has none yet.
static NO_ROW: Row = Row::new(0, WHOLE as u32);

/// All rows. Row 0 is the root's: it is there from the start, and nothing bounds it.
#[derive(Debug)]
pub struct Shares {
    rows: Vec<Vec<Row>>,
    /// The time of all processors in a period.
    capacity_ns: u64,
    /// The present period, from 2 on, so that no new row has counts of it or of the last one.
    period: u32,
    ends_ns: u64,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            capacity_ns: PERIOD_NS,
            period: 2,
            ends_ns: PERIOD_NS,
        }
    }
}

impl Shares {
    /// So many processors run.
    pub fn set_processors(&mut self, running: u32) {
        self.capacity_ns = PERIOD_NS * u64::from(running);
    }

    /// A new row in a place, below another, with its bound in thousandths. No thread and no row names it yet.
    ///
    /// # Errors
    /// [`Shortage::Frames`]: there is no memory for it.
    pub fn open(&mut self, place: u32, parent: u32, bound: u64) -> Result<(), Shortage> {
        let place = place as usize;
        if place >= ROWS_MAX {
            return Err(Shortage::Frames);
        }
        while self.rows.len() * CHUNK <= place {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(CHUNK).map_err(|_| Shortage::Frames)?;
            self.rows.try_reserve(1).map_err(|_| Shortage::Frames)?;
            chunk.resize(CHUNK, Row::new(0, WHOLE as u32));
            self.rows.push(chunk);
        }
        self.rows[place / CHUNK][place % CHUNK] = Row::new(parent, bound.min(WHOLE) as u32);
        Ok(())
    }

    #[inline]
    fn row(&self, place: u32) -> &Row {
        let chunk = self.rows.get(place as usize / CHUNK);
        chunk.map_or(&NO_ROW, |chunk| &chunk[place as usize % CHUNK])
    }

    /// Charges time to a row and all above it.
    pub fn charge(&mut self, place: u32, ns: u64) {
        let (mut at, mut is_new_part) = (place, false);
        for _ in 0..DEPTH_MAX {
            let chunk = self.rows.get_mut(at as usize / CHUNK).filter(|_| at != 0);
            let Some(chunk) = chunk else { break };
            let row = &mut chunk[at as usize % CHUNK];
            row.enter(self.period);
            row.parts += u32::from(is_new_part);
            is_new_part = row.used_ns == 0 && ns > 0;
            row.used_ns += ns;
            at = row.parent;
        }
    }

    /// The quota of a row, what is left of it and of those above, and the quota of a row below it.
    fn look(&self, place: u32, depth: u32) -> [u64; 3] {
        if place == 0 || depth == 0 {
            return [u64::MAX; 3];
        }
        let row = self.row(place);
        let [_, left_above, part] = self.look(row.parent, depth - 1);
        let quota = match u64::from(row.bound) {
            WHOLE => part,
            bound => part.min(self.capacity_ns / WHOLE * bound),
        };
        if quota == u64::MAX {
            return [u64::MAX, left_above, u64::MAX];
        }
        let left = quota.saturating_sub(row.used_ns(self.period));
        [quota, left_above.min(left), quota / row.parts(self.period)]
    }

    /// For how long the threads of a row may still run before they go behind all others.
    pub fn left_ns(&self, place: u32) -> u64 {
        self.look(place, DEPTH_MAX)[1]
    }

    /// The quota of a row, and what it used in the last period, in thousandths of all processors.
    pub fn told(&self, place: u32) -> (u64, u64) {
        let unit = self.capacity_ns / WHOLE;
        let quota = self.look(place, DEPTH_MAX)[0] / unit;
        (
            quota.min(WHOLE),
            (self.row(place).before(self.period).1 / unit).min(WHOLE),
        )
    }

    /// The present period.
    #[inline]
    pub fn period(&self) -> u32 {
        self.period
    }

    /// Begins a new period if it is time, and tells so: threads that are behind come forward.
    pub fn next_period(&mut self, now_ns: u64) -> bool {
        if now_ns < self.ends_ns {
            return false;
        }
        self.period = self.period.wrapping_add(1);
        self.ends_ns = now_ns + PERIOD_NS;
        true
    }
}
