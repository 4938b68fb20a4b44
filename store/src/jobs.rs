//! The jobs: who has the turn, and what comes back from the disk for it.
//!
//! Checkpoints and syncs run one at a time, in the order in which they were begun; but beside a checkpoint that makes a generation a sync
//! may run ahead of its turn (`ahead.rs`).

use crate::checkpoint::Checkpoint;
use crate::containers::Boxed;
use crate::io::Purpose;
use crate::objects::blocks_of;
use crate::store::{LOADS_MIN, Store};
use crate::sync::{SyncGroup, SyncRequest};
use crate::world::{DiskError, World};

/// A job that waits for its turn.
#[allow(
    clippy::large_enum_variant,
    reason = "syncs stand in the queue itself: each in a box would be one more allocation to be refused"
)]
pub(crate) enum Work {
    Checkpoint(Boxed<Checkpoint>),
    Sync(SyncRequest),
}

/// The job that runs.
pub(crate) enum Running {
    Nothing,
    Checkpoint(Boxed<Checkpoint>),
    Sync(Boxed<SyncGroup>),
}

/// How a job stands after it was advanced.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It waits for completions.
    Waiting,
    /// It is over.
    Over,
}

impl Store {
    pub(crate) fn dispatch(&mut self, world: &mut impl World, purpose: Purpose, result: Result<(), DiskError>) {
        match purpose {
            Purpose::Page(read) => self.page_arrived(world, read, result),
            Purpose::Run(read) => self.arrived = self.run_arrived(world, read, result).then_some((purpose, result)),
            Purpose::Node(key) => self.node_arrived(world, key, result),
            Purpose::Leaf(leaf) => self.leaf_arrived(world, leaf, result),
            Purpose::Scrub => self.scrub_arrived(world, result),
            Purpose::Reclaim => self.reclaim_arrived(world, result),
            Purpose::Copy(place) => {
                self.copies.under_way -= 1;
                if let Some((frame, block)) = place {
                    self.io.recycle(world, frame);
                    match result {
                        Ok(()) => self.copies.note_good(block),
                        Err(_) => self.copies.note_bad(block),
                    }
                }
            }
            Purpose::Sync(frame) => {
                if let Some(frame) = frame {
                    self.io.recycle(world, frame);
                }
                match (&mut self.beside, &mut self.running) {
                    (Some(group), _) | (None, Running::Sync(group)) => group.completed(result),
                    _ => {}
                }
            }
            Purpose::Write(..) | Purpose::Scratch(_) | Purpose::Resident | Purpose::Flush => {
                if let Purpose::Scratch(frame) = purpose {
                    self.io.recycle(world, frame);
                }
                match core::mem::replace(&mut self.running, Running::Nothing) {
                    Running::Checkpoint(mut job) => {
                        job.completed(self, world, purpose, result);
                        self.running = Running::Checkpoint(job);
                    }
                    other => self.running = other,
                }
            }
        }
    }

    /// Has the jobs do what they can.
    pub(crate) fn advance_jobs(&mut self, world: &mut impl World) {
        self.advance_beside(world);
        loop {
            let mut job = match core::mem::replace(&mut self.running, Running::Nothing) {
                Running::Nothing => match self.next_job() {
                    Some(next) => next,
                    None => return,
                },
                job => job,
            };
            let progress = match &mut job {
                Running::Nothing => Progress::Over,
                Running::Checkpoint(job) => job.advance(self, world),
                Running::Sync(job) => job.advance(self, world),
            };
            if progress == Progress::Waiting {
                self.running = job;
                return;
            }
            self.finish(job);
        }
    }

    fn finish(&mut self, over: Running) {
        match over {
            Running::Nothing => {}
            Running::Checkpoint(job) => self.idle_checkpoint = Some(job),
            Running::Sync(job) => self.idle_group = Some(job),
        }
        let reads = self.reads();
        self.io.trim(reads);
        self.loads.release(self.loads.count().max(LOADS_MIN));
        self.page_reads.release(0);
        self.promises.trim();
        self.trim_changes();
        debug_assert!(self.promises_are_exact(), "blocks are promised to nobody");
    }

    /// Whether every block that is spoken for belongs to a page or a job. For when no job runs.
    fn promises_are_exact(&self) -> bool {
        let shares = self.queue.iter().map(|work| match work {
            Work::Checkpoint(job) => job.share(),
            Work::Sync(request) => request.share(),
        });
        let over = self.over_share.map_or(0, |(_, share)| share);
        self.budget == shares.sum::<u64>() + self.collected_share.blocks() + over
            && self.promises.is_exact()
            && self.pending.is_exact()
            && self.prepared.is_exact()
            && self.overlay_deletions == self.overlay.values().filter(|change| change.is_none()).count()
            && self.overlay_blocks == self.overlay.values().flatten().map(blocks_of).sum::<u64>()
    }

    fn next_job(&mut self) -> Option<Running> {
        match self.queue.pop()? {
            Work::Checkpoint(job) => Some(Running::Checkpoint(job)),
            Work::Sync(first) => {
                // None runs, so it is there.
                let mut group = self.idle_group.take()?;
                group.begin(self, first);
                Some(Running::Sync(group))
            }
        }
    }
}
