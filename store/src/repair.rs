//! Repair: a mount in memory that takes what is left, a plan that says what is to be done, and one generation that has
//! it done.
//!
//! The plan is made of what the mount and a check of everything have found (`verify.rs`), and nothing is written for it.
//! The steps are made in memory like those of a replayed record, so a power cut leaves the generation before or the
//! repaired one. What stands nowhere with a checksum that fits is lost; nothing is guessed, and blocks for which the disk
//! reports an error are left as they are (docs/decisions/0202-scrub-and-repair.md).

use crate::allocation::Allocation;
use crate::bitmaps::{hold_before, load_bitmaps};
use crate::breaks::Breaks;
use crate::checksum::Checksums;
use crate::containers::push;
use crate::event::{CheckpointKind, Failure, MountError, MountMode, MountReport, Structure};
use crate::loss::Loss;
use crate::map::{Entry, LEVELS_MAX, MapKey, Path, reach};
use crate::mount::{Superblocks, find_superblocks};
use crate::salvage::{Lost, LostLeaf, salvage_table};
use crate::snapshots::loading::{OnLost, load_snapshots};
use crate::snapshots::{SnapshotName, Snapshots};
use crate::store::{OnDamage, Store};
use crate::superblock::Superblock;
use crate::verify::{Fault, Finding};
use crate::world::World;
use alloc::vec::Vec;

/// Something that a repair does, or must leave.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Step {
    /// An unreadable copy of a superblock is written anew.
    Superblock {
        /// Its block.
        block: u64,
    },
    /// The newest generation cannot be followed, and the one before takes its place, with what its journal adds.
    GoBack {
        /// The damaged structure.
        structure: Structure,
        /// Its block.
        block: u64,
        /// The newest generation.
        from: u64,
        /// The one before.
        to: u64,
    },
    /// Something stable that the journal, or a generation that cannot be read, would have had is given up.
    GiveUp(Loss),
    /// A bitmap that is damaged at this block is rebuilt from what is reached.
    Bitmap {
        /// The block.
        block: u64,
    },
    /// The bitmap of the generation before, which is damaged at this block, is not needed any more.
    OldBitmap {
        /// The block.
        block: u64,
    },
    /// A leaf of the table becomes empty.
    Rows {
        /// Its block.
        block: u64,
        /// The first address at which one of its objects may begin.
        from: u64,
        /// One past the last one.
        end: u64,
        /// Objects in it.
        rows: u8,
    },
    /// An object stays, without its capabilities and procedures.
    Body {
        /// The block that had them.
        block: u64,
        /// The object.
        base: u64,
    },
    /// Pages are lost: reading one is an error, until it is written anew.
    Pages {
        /// What is damaged: one page, or a node of the map above them.
        structure: Structure,
        /// Its block.
        block: u64,
        /// The object.
        base: u64,
        /// The first page.
        first: u64,
        /// One past the last one, as far as the map reaches.
        end: u64,
    },
    /// A block that is in use is marked so.
    Mark {
        /// The block.
        block: u64,
    },
    /// Blocks to which nothing leads are set free.
    Free {
        /// The first one.
        first: u64,
        /// How many there are.
        count: u64,
    },
    /// The blocks that say what a snapshot holds are written anew, from what it reaches.
    Snapshot {
        /// The snapshot.
        name: SnapshotName,
    },
    /// A snapshot is gone: nothing says where it is.
    SnapshotLost {
        /// The snapshot.
        name: SnapshotName,
    },
    /// The list of snapshots is written anew.
    Snapshots {
        /// Its block.
        block: u64,
        /// Whether no copy of it can be read, and all snapshots are gone.
        is_lost: bool,
    },
    /// This is left as it is.
    Leave(Finding),
}

/// What a repair would do, one step after the other.
pub struct Plan {
    /// The steps; none for a sound store.
    pub steps: Vec<Step>,
    /// The findings of the mount.
    pub report: MountReport,
    leaves: Vec<LostLeaf>,
    journal_root: u64,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Leave(_)))
    }

    /// The first thing for which the repair is refused: it does not know who is right, or what stands below.
    pub fn obstacle(&self) -> Option<Finding> {
        self.steps.iter().find_map(|step| match *step {
            Step::Leave(finding) if is_obstacle(&finding) => Some(finding),
            _ => None,
        })
    }
}

/// Whether a finding keeps a repair from being made.
fn is_obstacle(finding: &Finding) -> bool {
    match finding {
        Finding::SharedBlock(_) | Finding::TableOrder => true,
        Finding::Damaged { structure, .. } => *structure != Structure::Page,
        _ => false,
    }
}

impl Superblocks {
    /// The generation before in the place of the current one, which is held for as long as it was.
    fn back(&self) -> Result<Option<Self>, MountError> {
        let Some((before, checksum)) = &self.previous else {
            return Ok(None);
        };
        let mut report = self.report()?;
        let mut current = before.copy()?;
        current.lease = current.lease.max(self.current.lease);
        Ok(Some(Self {
            block: before.generation % 2 * 2,
            checksum: *checksum,
            previous: Some((self.current.copy()?, self.checksum)),
            bad: core::mem::take(&mut report.bad_superblocks),
            doubtful: Vec::new(),
            newer_unreadable: true,
            current,
        }))
    }
}

impl Store {
    /// Mounts in memory what is left of a store, and tells what a repair would do. Nothing is written.
    ///
    /// # Errors
    /// [`MountError`]: there is no repair.
    pub fn mount_for_repair(world: &mut impl World) -> Result<(Self, Plan), MountError> {
        let found = find_superblocks(world, MountMode::ReadOnly)?;
        found.require_usable(world, MountMode::AcceptLoss)?;
        let (structure, block) = match Self::salvage(world, &found) {
            Err(MountError::Damaged(structure, block)) => (structure, block),
            other => return other,
        };
        let damaged = MountError::Damaged(structure, block);
        let back = found.back()?.ok_or(damaged)?;
        let (mut store, mut plan) = match Self::salvage(world, &back) {
            // What is wrong with the newer one is what people should know.
            Err(MountError::Damaged(..)) => return Err(damaged),
            other => other?,
        };
        // Its own superblock stays until the new one is stable: that has the number behind both.
        let (from, to) = (found.current.generation, back.current.generation);
        store.generation = from;
        store.table.raise_births(found.current.totals.births);
        let told = Step::GoBack {
            structure,
            block,
            from,
            to,
        };
        let is_told = |step: &Step| matches!(step, Step::GiveUp(Loss::Generation { newer, .. }) if *newer == from);
        plan.steps.retain(|step| !is_told(step));
        push(&mut plan.steps, told)?;
        plan.steps.rotate_right(1);
        Ok((store, plan))
    }

    /// Mounts what is left of the current one of some superblocks.
    fn salvage(world: &mut impl World, found: &Superblocks) -> Result<(Self, Plan), MountError> {
        let superblock = &found.current;
        let checksums = Checksums::new(superblock.key, superblock.of_version_1)?;
        let mut report = found.report()?;
        let previous = found.previous.as_ref().map(|(previous, _)| previous);
        let rebuild = (OnLost::Rebuild, &mut report);
        let loaded = load_bitmaps(world, &checksums, (superblock, previous), Breaks::NONE, rebuild);
        let (parts, bitmap) = match loaded {
            Ok(parts) => (parts, None),
            Err(MountError::Damaged(Structure::Bitmap, block)) => {
                let allocation = Allocation::new(superblock.geometry, Breaks::NONE)?;
                ((allocation, Snapshots::default()), Some(block))
            }
            Err(other) => return Err(other),
        };
        let mut lost = Lost::default();
        let table = salvage_table(world, &checksums, superblock, &mut lost)?;
        let mut store = found.store((MountMode::ReadOnly, Breaks::NONE), checksums, parts, table)?;
        let mut plan = Plan {
            steps: Vec::new(),
            report,
            leaves: Vec::new(),
            journal_root: found.root_of_journal(),
        };
        let opened = store.open_left(world, found, (bitmap, previous), lost, &mut plan);
        match opened {
            Ok(()) => Ok((store, plan)),
            Err(error) => {
                store.dismantle(world);
                Err(error)
            }
        }
    }

    fn open_left(
        &mut self,
        world: &mut impl World,
        found: &Superblocks,
        (bitmap, previous): (Option<u64>, Option<&Superblock>),
        lost: Lost,
        plan: &mut Plan,
    ) -> Result<(), MountError> {
        if let Some(block) = bitmap {
            self.rebuild_bitmaps(world)?;
            let (checksums, allocation, report) = (&self.checksums, &mut self.allocation, &mut plan.report);
            let rebuild = (OnLost::Rebuild, &mut *report);
            self.snapshots = load_snapshots(world, checksums, &found.current, allocation, rebuild)?;
            if let Some(previous) = previous {
                hold_before(world, checksums, allocation, (previous, &self.snapshots), report)?;
            }
            push(&mut plan.steps, Step::Bitmap { block })?;
        }
        self.rebuild_snapshots(world, found)?;
        self.open(world, &mut plan.report, found)?;
        plan.report.losses = core::mem::take(&mut self.losses);
        self.plan(world, lost, plan)
    }

    /// Marks what the table and the maps of the generation reach, before its journal is replayed.
    fn rebuild_bitmaps(&mut self, world: &mut impl World) -> Result<(), MountError> {
        let mut obstacle = None;
        let reached = self.reached(world, &mut |finding| {
            let error = match finding {
                Finding::SharedBlock(block) => MountError::Damaged(Structure::Bitmap, block),
                // What stands below would be free.
                Finding::Damaged {
                    fault: Fault::Unread, ..
                } => MountError::Disk,
                Finding::TableOrder => MountError::Damaged(Structure::Table, 0),
                _ => return,
            };
            obstacle.get_or_insert(error);
        })?;
        if let Some(error) = obstacle {
            return Err(error);
        }
        for (group, words) in reached.pairs() {
            self.allocation.rebuild(group, words)?;
        }
        Ok(())
    }

    /// Makes the plan of what was found.
    fn plan(&mut self, world: &mut impl World, lost: Lost, plan: &mut Plan) -> Result<(), MountError> {
        let steps = &mut plan.steps;
        for &block in &plan.report.bad_superblocks {
            push(steps, Step::Superblock { block })?;
        }
        for &(structure, block) in &plan.report.damage {
            if structure == Structure::Bitmap {
                push(steps, Step::OldBitmap { block })?;
            }
        }
        for &loss in &plan.report.losses {
            push(steps, Step::GiveUp(loss))?;
        }
        self.plan_snapshots(steps)?;
        for body in &lost.bodies {
            // A record of the journal may have brought it back.
            let row = self.table.get(body.base);
            if row.is_some_and(|row| row.record.capabilities.is_empty() && row.record.pdx.is_empty()) {
                let (block, base) = (body.block, body.base);
                push(steps, Step::Body { block, base })?;
            }
        }
        for leaf in &lost.leaves {
            let &LostLeaf {
                block, from, end, rows, ..
            } = leaf;
            let told = Step::Rows { block, from, end, rows };
            push(steps, told)?;
        }
        let mut result = Ok(());
        self.verify(world, &mut |finding| {
            if result.is_ok() {
                result = self.plan_finding(finding, &lost, steps);
            }
        })?;
        result?;
        plan.leaves = lost.leaves;
        // Of what could not be read it is not known to what it leads.
        if plan.obstacle().is_some() {
            plan.steps.retain(|step| !matches!(step, Step::Free { .. }));
        }
        Ok(())
    }

    /// What is to be done about snapshots.
    fn plan_snapshots(&self, steps: &mut Vec<Step>) -> Result<(), MountError> {
        for (name, _) in &self.snapshots.rebuilt {
            push(steps, Step::Snapshot { name: *name })?;
        }
        for &name in &self.snapshots.lost {
            push(steps, Step::SnapshotLost { name })?;
        }
        if let Some(list) = self.snapshots.list.filter(|_| self.snapshots.is_list_bad) {
            let block = list.blocks[0];
            let is_lost = self.snapshots.known.is_empty() && self.snapshots.lost.is_empty();
            push(steps, Step::Snapshots { block, is_lost })?;
        }
        Ok(())
    }

    /// What is to be done about a finding.
    fn plan_finding(&self, finding: Finding, lost: &Lost, steps: &mut Vec<Step>) -> Result<(), MountError> {
        let step = match finding {
            // The one is as it should be; the steps for snapshots see to the other.
            Finding::Lost { .. }
            | Finding::Damaged {
                structure: Structure::Snapshots,
                ..
            } => return Ok(()),
            Finding::Damaged {
                structure: Structure::Table,
                block,
                ..
            } if lost.leaves.iter().any(|leaf| leaf.block == block) => return Ok(()),
            Finding::Damaged {
                structure: structure @ (Structure::Map | Structure::Page),
                block,
                base,
                page,
                end,
                fault: Fault::Rotten,
            } => {
                // The map of an object that the journal deletes is taken down with the next generation.
                let is_wanted = self.table.get(base).is_some();
                // A node in memory is newer, or was put in the place of this one: then the mount has told so.
                let is_newer = level_of(page, end).is_none_or(|level| {
                    let index = page / reach(level);
                    level > 0 && self.maps.contains(MapKey { base, level, index })
                });
                if !is_wanted || is_newer {
                    return Ok(());
                }
                Step::Pages {
                    structure,
                    block,
                    base,
                    first: page,
                    end,
                }
            }
            Finding::MarkedFree(block) => Step::Mark { block },
            Finding::Leaked(block) => {
                if let Some(Step::Free { first, count }) = steps.last_mut()
                    && *first + *count == block
                {
                    *count += 1;
                    return Ok(());
                }
                Step::Free { first: block, count: 1 }
            }
            Finding::Damaged { .. } | Finding::SharedBlock(_) | Finding::TableOrder | Finding::BeyondEnd { .. } => {
                Step::Leave(finding)
            }
        };
        Ok(push(steps, step)?)
    }

    /// Does what the plan of this mount says, and makes it durable. Afterwards the store is as one that was powered off,
    /// and is to be mounted anew.
    ///
    /// # Errors
    /// [`MountError`]: the disk has the state of before, unless [`Store::may_have_committed`] says that it may have the
    /// new one.
    pub fn repair(&mut self, world: &mut impl World, plan: &Plan) -> Result<(), MountError> {
        match plan.obstacle() {
            Some(Finding::Damaged {
                fault: Fault::Unread, ..
            }) => return Err(MountError::Disk),
            Some(Finding::SharedBlock(block)) => return Err(MountError::Damaged(Structure::Bitmap, block)),
            Some(Finding::Damaged { structure, block, .. }) => return Err(MountError::Damaged(structure, block)),
            Some(_) => return Err(MountError::Damaged(Structure::Table, 0)),
            None => {}
        }
        self.mode = MountMode::AcceptLoss;
        self.on_damage = OnDamage::Note;
        for step in &plan.steps {
            match *step {
                Step::Mark { block } => self.allocation.claim(block)?,
                Step::Free { first, count } => {
                    (first..first + count).for_each(|block| self.allocation.free(block));
                }
                Step::Pages { base, first, end, .. } => self.lose_pages(world, base, (first, end))?,
                // Copies and bitmaps are written with the generations; the rest is as it is in memory.
                _ => {}
            }
        }
        for leaf in &plan.leaves {
            self.table.give_up(leaf.leaf, leaf.from);
        }
        if !plan.leaves.is_empty() {
            self.table.add_up_all();
        }
        self.pass_lost_generations(&plan.report.losses);
        let is_of_snapshots = |step: &Step| {
            matches!(
                step,
                Step::Snapshot { .. } | Step::SnapshotLost { .. } | Step::Snapshots { .. }
            )
        };
        if plan.steps.iter().any(is_of_snapshots) {
            self.write_snapshots_again()?;
        }
        self.open_for_writing(world, plan.journal_root)?;
        if let Some(Err(error)) = self.snapshot_outcome() {
            return Err(MountError::Recovery(Failure::from(error)));
        }
        self.commit_generation(world, CheckpointKind::Shutdown)?;
        self.wait_for_nodes(world);
        self.on_damage = OnDamage::GoOn;
        Ok(())
    }

    /// Makes the entry say that its contents are lost that leads to these pages.
    fn lose_pages(&mut self, world: &mut impl World, base: u64, (first, end): (u64, u64)) -> Result<(), MountError> {
        let Some(level) = level_of(first, end) else {
            return Ok(());
        };
        let index = first / reach(level);
        let key = MapKey { base, level, index };
        loop {
            let Some(root) = self.table.get(base).map(|row| row.map) else {
                return Ok(());
            };
            self.table.keep_until_written(base);
            let mut lender = self.io.lender(world);
            match self.maps.prepare_down_to(&mut lender, base, &root, (first, level + 1)) {
                Path::Ready => break,
                Path::NoMemory => return Err(MountError::Memory),
                Path::Missing(missing) => match self.load_for_job(world, missing) {
                    Ok(()) => drop(self.wait_for_nodes(world)),
                    Err(Failure::Disk) => return Err(MountError::Disk),
                    Err(_) => return Err(MountError::Memory),
                },
            }
        }
        let flags = if level == 0 {
            self.flags_of(world, base, first)
        } else {
            Entry::LOST.flags
        };
        let lost = Entry { flags, ..Entry::LOST };
        let old = self.set_node_entry(world, key, lost);
        // Rotten in each generation that leads to it: so it can be used at once, and the repair of a full disk finds blocks for the nodes above.
        if self.geometry.is_data(old.block) {
            self.allocation.release(old.block);
        }
        Ok(())
    }

    /// The limits of a page whose path is in memory.
    fn flags_of(&self, world: &impl World, base: u64, page: u64) -> crate::PageFlags {
        let root = self.table.get(base).map(|row| row.map).unwrap_or_default();
        match self.maps.walk(world, base, &root, page) {
            crate::map::Walk::Entry(entry) => entry.flags,
            _ => crate::PageFlags::empty(),
        }
    }
}

/// The level of the entry that leads to so many pages.
fn level_of(first: u64, end: u64) -> Option<u8> {
    (0..=LEVELS_MAX).find(|&level| first.saturating_add(reach(level)) == end)
}
