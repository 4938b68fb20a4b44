//! The scrub goes on with the clock, and begins by itself.
//!
//! Nobody has to ask for a pass: one begins an hour after the start, and then each week; a minute after a start behind a power cut, or one that has found something damaged. It
//! reads 64 KiB in a second while nobody else wants the disk, and as much more as lets it end within a week. One that somebody asks for reads 1 MiB, and begins
//! at the front: it takes the place of one that began by itself.
//!
//! Nothing of this is on the disk: each start counts from its own beginning. A period in which no pass runs and none is due costs a comparison.

use store::{MountReport, ScrubReport};

use super::checkpoint::PERIOD_NS;
use crate::{Server, World};

/// When the first pass begins behind a start, and behind one after which something may be wrong.
const FIRST_NS: u64 = 3600 * PERIOD_NS;
const FIRST_IN_DOUBT_NS: u64 = 60 * PERIOD_NS;
/// From the beginning of a pass that nobody has asked for to that of the next one.
const WEEK_NS: u64 = 7 * 24 * 3600 * PERIOD_NS;
/// Blocks that a pass which was asked for looks at in a period: 1 MiB, for some three million instructions.
const ASKED_BLOCKS: u64 = 256;
/// Blocks that one which began by itself looks at: 64 KiB.
const OWN_BLOCKS: u64 = 16;

/// Passes of the scrub.
#[derive(Default)]
pub(crate) struct Scrubbing {
    /// Whether the mount has found something that makes one urgent.
    is_in_doubt: bool,
    /// When the next one begins by itself; zero as long as the clock was not read.
    next_ns: u64,
    /// Whether the one under way was asked for.
    is_asked_for: bool,
    /// Passes whose end is in the log.
    told: u64,
}

impl Scrubbing {
    /// Behind a mount.
    pub(crate) fn new(report: &MountReport) -> Self {
        let is_damaged = !report.damage.is_empty() || !report.bad_superblocks.is_empty() || !report.losses.is_empty();
        Self {
            is_in_doubt: !report.clean || is_damaged,
            ..Self::default()
        }
    }

    /// Whether a pass begins by itself now.
    fn is_due(&mut self, now_ns: u64) -> bool {
        if self.next_ns == 0 {
            let first = if self.is_in_doubt { FIRST_IN_DOUBT_NS } else { FIRST_NS };
            self.next_ns = now_ns.saturating_add(first);
        }
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns.saturating_add(WEEK_NS);
        }
        is_due
    }

    /// Blocks that a pass may look at in a period.
    fn blocks(&self, report: ScrubReport) -> u64 {
        if self.is_asked_for {
            ASKED_BLOCKS
        } else {
            report.all.div_ceil(WEEK_NS / PERIOD_NS).max(OWN_BLOCKS)
        }
    }

    /// When the next pass begins by itself.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }
}

impl Server {
    /// Somebody asks for a pass.
    pub fn ask_for_scrub(&mut self, world: &mut impl World) {
        if !self.scrubbing.is_asked_for {
            self.store.scrub_end(world);
        }
        self.store.scrub_begin();
        self.scrubbing.is_asked_for = true;
    }

    /// A period is over: the pass under way may go on, or one begins that is due. Tells whether a generation is wanted, which writes anew what the scrub has found.
    pub(crate) fn scrub_period(&mut self, world: &mut impl World) -> bool {
        let now_ns = world.now_ns();
        let is_due = self.scrubbing.is_due(now_ns);
        if !self.store.scrub_report().runs {
            self.scrubbing.is_asked_for = false;
            if is_due {
                self.store.scrub_begin();
            }
        }
        let report = self.store.scrub_report();
        if report.passes > self.scrubbing.told {
            self.scrubbing.told = report.passes;
            let ScrubReport { seen, damaged, .. } = report;
            self.say(world, format_args!("scrub over: {seen} blocks, {damaged} damaged"));
        }
        if report.runs {
            self.store.scrub_some(self.scrubbing.blocks(report));
        }
        self.store.wants_generation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(clean: bool, bad_superblocks: &[u64]) -> MountReport {
        MountReport {
            generation: 7,
            superblock: 2,
            bad_superblocks: bad_superblocks.to_vec(),
            clean,
            replayed: 0,
            tail: None,
            damage: Vec::new(),
            losses: Vec::new(),
            first_slot: 0,
        }
    }

    #[test]
    fn a_pass_is_due_after_an_hour_or_in_doubt_a_minute_and_then_each_week() {
        for (report, first) in [
            (mounted(true, &[]), FIRST_NS),
            (mounted(false, &[]), FIRST_IN_DOUBT_NS),
            (mounted(true, &[3]), FIRST_IN_DOUBT_NS),
        ] {
            let mut scrubbing = Scrubbing::new(&report);
            let begun = 5 * PERIOD_NS;
            for at in [begun, begun + 1, begun + first - 1] {
                assert!(!scrubbing.is_due(at), "{at}");
            }
            let next = begun + first + 17;
            assert!(scrubbing.is_due(next));
            assert!(!scrubbing.is_due(next) && !scrubbing.is_due(next + WEEK_NS - 1));
            assert!(scrubbing.is_due(next + WEEK_NS));
        }
    }

    #[test]
    fn a_pass_ends_within_a_week_and_one_that_was_asked_for_is_faster() {
        let all = |blocks| ScrubReport {
            all: blocks,
            ..ScrubReport::default()
        };
        let mut scrubbing = Scrubbing::new(&mounted(true, &[]));
        let periods = WEEK_NS / PERIOD_NS;
        for (blocks, some) in [(0, 16), (100_000, 16), (20 * periods, 20), (20 * periods + 1, 21)] {
            assert_eq!(scrubbing.blocks(all(blocks)), some, "{blocks}");
        }
        scrubbing.is_asked_for = true;
        assert_eq!(scrubbing.blocks(all(100_000)), ASKED_BLOCKS);
    }
}
