//! Map nodes on their way from the disk, and what becomes of those that are damaged.

use crate::containers::Map;
use crate::event::{BadPage, Event, Failure, Structure};
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::loss::Loss;
use crate::map::{Look, MapKey, Missing, first_page, reach};
use crate::store::{OnDamage, Store};
use crate::world::{DiskError, Frame, Operation, World};

/// A map node being read.
pub(crate) struct Load {
    frame: Frame,
    missing: Missing,
    /// Whether it was read wrong before.
    again: bool,
}

/// Jobs that fail because a node cannot be read while the disk answers otherwise, before the node is given up.
const JOBS_FAILED: u8 = 3;
/// Nodes of which that is remembered.
const UNREADABLE_MAX: usize = 64;

/// Map nodes that could not be read.
#[derive(Default)]
pub(crate) struct BadLoads {
    /// Those of which somebody who waits is still to be told, and why.
    reasons: Map<MapKey, BadPage>,
    /// Nodes for which jobs have failed since the start: how many, and how much the disk had done for us by the last one.
    unreadable: Map<MapKey, (u8, u64)>,
}

impl BadLoads {
    /// Finds heap for the reasons of so many.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), NoHeap> {
        Ok(self.reasons.reserve(count)?)
    }

    /// All who waited have been told.
    pub(crate) fn clear(&mut self) {
        self.reasons.clear();
    }

    /// A job needs a node that the disk does not read, though it was asked twice: whether that is given up, for no later job would come to its end. A disk that answers nothing at all is
    /// not to be taken for one with a bad block: `answers` counts what it has done.
    fn is_given_up(&mut self, key: MapKey, answers: u64) -> bool {
        let (failed, before) = self.unreadable.get(key).unwrap_or_default();
        let failed = if failed == 0 || answers > before {
            failed + 1
        } else {
            failed
        };
        if failed > JOBS_FAILED {
            self.unreadable.remove(key);
            return true;
        }
        if self.unreadable.count() >= UNREADABLE_MAX {
            self.unreadable.clear();
        }
        // Without heap it is counted another time.
        let _ = self.unreadable.insert(key, (failed, answers));
        false
    }
}

impl Store {
    /// Starts reading a node, unless it is on its way. `Err` if it is known to be unreadable.
    pub(crate) fn load(&mut self, world: &mut impl World, missing: Missing) -> Result<(), BadPage> {
        if let Some(reason) = self.bad_loads.reasons.get(missing.key) {
            return Err(reason);
        }
        if self.loads.has(missing.key) {
            return Ok(());
        }
        // What is free belongs to nobody: where the nodes of a stranger's disk have several parents, one of them gave it up before.
        if !self.allocation.is_used(missing.entry.block) {
            self.note_damage(missing.key, missing.entry.block);
            return Err(BadPage::Map);
        }
        self.expect_load().map_err(|NoHeap| BadPage::Memory)?;
        let frame = self.io.frame(world).ok_or(BadPage::Memory)?;
        let again = false;
        self.read_node(world, Load { frame, missing, again });
        Ok(())
    }

    /// Has a node come for which there is [room](Store::expect_load).
    fn read_node(&mut self, world: &mut impl World, load: Load) {
        let Missing { key, entry } = load.missing;
        let frame = load.frame;
        let _ = self.loads.insert(key, load);
        self.io
            .submit(world, Operation::Read, entry.block, frame, Purpose::Node(key));
    }

    /// Blocks that are being read, or will be.
    pub(crate) fn reads(&self) -> usize {
        let scrub = usize::from(self.scrub.is_reading()) + usize::from(self.snapshots.reclaim.is_reading());
        self.loads.count() + self.leaf_reads.count() + self.page_reads.count() + scrub
    }

    /// Finds heap for one more block to be read.
    pub(crate) fn expect_read(&mut self) -> Result<(), NoHeap> {
        let reads = self.reads() + 1;
        self.io.expect(reads)
    }

    /// Finds heap for one more map node to be read, and for what becomes of it.
    fn expect_load(&mut self) -> Result<(), NoHeap> {
        self.expect_read()?;
        self.loads.reserve(self.loads.count() + 1)?;
        self.bad_loads
            .reserve(self.bad_loads.reasons.count() + self.loads.count() + 1)?;
        Ok(())
    }

    /// Whether map nodes are on their way.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loads.is_empty()
    }

    pub(crate) fn node_arrived(&mut self, world: &mut impl World, key: MapKey, result: Result<(), DiskError>) {
        let Some(load) = self.loads.remove(key) else {
            return;
        };
        let Load { frame, missing, again } = load;
        let Missing { entry, .. } = missing;
        let fits = result.is_ok() && self.checksums.fit(entry.checksum, entry.block, world.bytes(frame));
        if !fits && !again {
            // A job that goes on without it gives up all below it: not for what the disk does once.
            return self.read_node(world, Load { again: true, ..load });
        }
        let bad = if result.is_err() {
            Some(BadPage::Disk)
        } else if fits {
            None
        } else {
            self.note_damage(key, entry.block);
            Some(BadPage::Map)
        };
        self.note_node();
        match bad {
            None if self.maps.expect().is_ok() => self.maps.insert_arrived(key, frame),
            bad => {
                self.io.recycle(world, frame);
                let _ = self.bad_loads.reasons.insert(key, bad.unwrap_or(BadPage::Memory));
            }
        }
    }

    /// A node that somebody may wait for is there, or will not come.
    fn note_node(&mut self) {
        self.nodes_came += 1;
        self.pass.again = true;
    }

    /// Waits for the nodes under way, at mount; tells what was wrong with the last bad one.
    pub(crate) fn wait_for_nodes(&mut self, world: &mut impl World) -> Option<BadPage> {
        while !self.io.is_idle() {
            self.io.pump_all(world);
            world.wait();
            while let Some((purpose, result)) = self.io.complete(world) {
                self.dispatch(world, purpose, result);
            }
        }
        self.bad_loads.reasons.values().last().copied()
    }

    pub(crate) fn note_damage(&mut self, key: MapKey, block: u64) {
        self.damaged += 1;
        self.events.mention(Event::Damaged {
            structure: Structure::Map,
            block,
            base: key.base,
            page: first_page(key),
            snapshot: 0,
        });
    }

    /// Starts reading a node that the running job needs. A node that is damaged is replaced by one
    /// that says so of all its children, for the job must get through; so is one that the disk does not read, when several jobs have failed for it.
    pub(crate) fn load_for_job(&mut self, world: &mut impl World, missing: Missing) -> Result<(), Failure> {
        match self.load(world, missing) {
            Ok(()) => Ok(()),
            Err(BadPage::Memory) => Err(Failure::Memory),
            Err(BadPage::Disk) if !self.bad_loads.is_given_up(missing.key, self.io.answers) => {
                if self.copies.under_way == 0 {
                    // A flush that nobody waits for: whether the disk does anything.
                    self.submit_copy(world, None);
                }
                Err(Failure::Disk)
            }
            Err(bad) => {
                if bad == BadPage::Disk {
                    self.note_damage(missing.key, missing.entry.block);
                }
                let MapKey { base, level, .. } = missing.key;
                let first = first_page(missing.key);
                let end = first.saturating_add(reach(level));
                let pages = self.object(base).map_or(0, |record| record.pages);
                if self.on_damage != OnDamage::GoOn {
                    let end = end.min(pages).max(first + 1);
                    self.lose(Loss::Pages { base, first, end })?;
                }
                if self.on_damage == OnDamage::Stop {
                    return Err(Failure::Damaged);
                }
                self.maps.expect()?;
                let frame = self.io.frame(world).ok_or(Failure::Memory)?;
                self.maps.insert_lost(world, missing.key, pages, frame);
                self.note_node();
                self.awake = true;
                Ok(())
            }
        }
    }

    /// Looks at one map node, and drops it if it is as it is on the disk. For when memory is short, again and again until it says that this
    /// is [over](Look::Over): a node is read again when needed.
    pub fn shrink(&mut self, world: &mut impl World) -> Look {
        self.maps.shrink(world)
    }
}
