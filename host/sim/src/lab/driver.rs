//! A random life of a store, with crashes, beside the model.
//!
//! The driver plays the server: it changes objects and pages, keeps dirty pages in "memory",
//! begins checkpoints and syncs, and takes up events. Beside the state as it is (`live`) it keeps
//! the state as the store alone would show it (`stored`, without dirty pages), the last durable
//! state, and the jobs begun since. After a crash the store must show the durable state, or that
//! with the first few of the jobs on top: nothing acknowledged is lost, nothing is half. What failed since (`maybe`) may be there or not. A sync may go ahead
//! of the checkpoint before it: then it is durable without the pages of that (`bare`), and with them as soon as the checkpoint is.

mod changes;
mod crashes;
mod durability;
mod growth;
mod naming;
mod rows;
mod snapshots;

pub(super) use crashes::{Shown, difference, show};
pub(super) use naming::Naming;

use super::model::{Job, Page, State};
use super::{Subject, Tally};
use crate::disk::CrashDisk;
use crate::own::{self, Tried};
use crate::rng::Rng;
use crate::world::SimWorld;
use naming::Table;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use store::world::RUN_MAX;
use store::{CheckpointKind, FormatOptions, Frame, MountMode, MountReport, Store, Ticket};

/// The length of a run, and the things that go wrong in it.
#[derive(Copy, Clone)]
pub struct Options {
    pub subject: Subject,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Steps of the workload.
    pub steps: u64,
    /// One request in so many fails; zero for none.
    pub failing: u64,
    /// Whether pages of memory are refused now and then, and heap, if the program's allocator does that.
    pub memory: bool,
    /// Whether disks are damaged before they are judged.
    pub rot: bool,
    /// Whether the life is about syncs that go ahead of checkpoints.
    pub ahead: bool,
}

pub(super) type Check<T = ()> = Result<T, String>;
type PageName = (u64, u64);

const SLOT: u64 = 2 << 20;
pub(super) const MEMORY: usize = 2000;
/// The most blocks that a request may write, as disks have it.
pub(super) const RUNS: [usize; 4] = [RUN_MAX, RUN_MAX, 3, 1];
/// Up to so many volatile writes every subset is tried.
const EXHAUSTIVE: usize = 5;
/// Older states that a damaged disk may show, if it says that it is older.
const HISTORY_MAX: usize = 60;

/// A page that the store is writing.
struct InFlight {
    frame: Frame,
    /// The sync it belongs to, if it is one.
    job: Option<Ticket>,
    written: Page,
    /// The state that the store showed before, and the one without the running checkpoint's pages.
    before: Page,
    bare_before: Page,
}

pub(super) struct Driver {
    pub(super) rng: Rng,
    pub(super) options: Options,
    /// Blocks of a journal region.
    pub(super) journal: u64,
    pub(super) world: SimWorld,
    store: Store,
    live: State,
    stored: State,
    /// The same without the pages of the checkpoint that runs or waits: what syncs that go ahead of it make durable.
    bare: Option<State>,
    last_ticket: Ticket,
    durable: State,
    /// The durable states before that one, the newest last.
    pub(super) history: VecDeque<State>,
    jobs: VecDeque<Job>,
    /// Jobs that failed and may be durable all the same.
    maybe: Vec<Job>,
    dirty: BTreeSet<PageName>,
    in_flight: Vec<(PageName, InFlight)>,
    /// Pages that came back and whose job is not done.
    returned: Vec<(PageName, InFlight)>,
    /// Reads under way, with what they should give; nothing once the page has changed.
    reading: BTreeMap<PageName, Option<Page>>,
    /// Deleted objects with their slots' pages, before and after the deletion is durable.
    unusable: BTreeMap<u64, u64>,
    reusable: Vec<(u64, u64)>,
    /// The names that the contents of a directory stand for.
    tables: BTreeMap<u64, Table>,
    /// Disks that were judged since the last start, each with what was acknowledged then.
    judged: HashSet<(u64, u64, usize)>,
    acknowledged: u64,
    /// The blocks of the store when it told of a checkpoint last.
    blocks: u64,
    /// The last generation that the store has told of.
    generation: u64,
    next_slot: u64,
    next_stamp: u64,
    /// Leaves of the table that have come, by the numbers by which one waits for them, and what was wrong with one.
    came: BTreeSet<u64>,
    trouble: Option<String>,
    kept: snapshots::Kept,
    pub(super) tally: Tally,
}

/// Lives one life.
pub fn run(seed: u64, options: Options) -> Check<Tally> {
    let mut driver = Driver::begin(seed, options)?;
    for step in 0..options.steps {
        driver.step().map_err(|what| format!("step {step}: {what}"))?;
    }
    driver.crash()?;
    Ok(driver.tally)
}

impl Driver {
    /// A fresh store.
    pub(super) fn begin(seed: u64, options: Options) -> Check<Self> {
        let mut rng = Rng::new(seed);
        let mut disk = CrashDisk::new(options.blocks, rng.fork());
        if options.rot {
            disk.keep_former();
        }
        let mut world = SimWorld::new(disk, MEMORY, rng.fork());
        let journal = 4 + rng.below(20);
        Store::format(
            &mut world,
            &FormatOptions {
                journal_blocks: Some(journal as u32),
                first_slot: 8,
                ..FormatOptions::default()
            },
        )
        .map_err(|error| format!("format: {error:?}"))?;
        world.disk.set_lie(options.subject.lie);
        world.run_max = *rng.pick(&RUNS);
        let (store, report) = options.mount(&mut world, MountMode::ReadWrite)?;
        world.disk.set_failing(options.failing);
        Ok(Self {
            rng,
            options,
            journal,
            world,
            blocks: store.stats().blocks,
            generation: store.stats().generation,
            store,
            live: State::new(),
            stored: State::new(),
            bare: None,
            last_ticket: Ticket(0),
            durable: State::new(),
            history: VecDeque::new(),
            jobs: VecDeque::new(),
            maybe: Vec::new(),
            dirty: BTreeSet::new(),
            in_flight: Vec::new(),
            returned: Vec::new(),
            reading: BTreeMap::new(),
            unusable: BTreeMap::new(),
            reusable: Vec::new(),
            tables: BTreeMap::new(),
            judged: HashSet::new(),
            acknowledged: 0,
            next_slot: report.first_slot,
            next_stamp: 1,
            came: BTreeSet::new(),
            trouble: None,
            kept: snapshots::Kept::default(),
            tally: Tally::default(),
        })
    }

    fn step(&mut self) -> Check {
        if self.options.memory {
            match self.rng.below(8) {
                0 => self.world.memory.fail_at(self.rng.below(16), 1),
                1 => self.world.memory.fail_at(self.rng.below(16), self.rng.below(200)),
                2 => own::fail_at(self.rng.below(60)),
                _ => {}
            }
        }
        if self.options.ahead && !self.rng.one_in(4) {
            self.step_ahead()?;
            self.events()?;
            return self.trouble.take().map_or(Ok(()), Err);
        }
        match self.rng.below(112) {
            0..6 => self.create()?,
            6..38 => self.write(),
            38..40 => self.delete()?,
            40..44 => self.change_record()?,
            44..49 => self.discard(),
            49..52 => self.limit(),
            52..54 => self.resize()?,
            54..64 => self.sync(),
            64..67 => self.checkpoint(CheckpointKind::Periodic)?,
            67 => self.checkpoint(CheckpointKind::Generation)?,
            68..76 => self.read()?,
            76..94 => self.run_disk()?,
            94 => self.seal(),
            95 => self.shrink(),
            96 => self.restart()?,
            97 => self.act()?,
            98..101 => self.naming()?,
            101..104 => self.scrub(),
            104 => {
                if self.rng.one_in(2) {
                    self.grow()?;
                } else {
                    self.grow_mounted()?;
                }
            }
            107..111 => self.snapshot()?,
            111 => {
                if !self.options.rot && self.rng.one_in(3) {
                    self.roll_back()?;
                }
            }
            _ => {
                if self.rng.one_in(3) {
                    self.crash()?;
                }
            }
        }
        self.events()?;
        self.trouble.take().map_or(Ok(()), Err)
    }
}

impl Driver {
    /// A step of a life about syncs that go ahead: the disk does little between two of them, and the power is cut again and again while the life goes on.
    fn step_ahead(&mut self) -> Check {
        match self.rng.below(40) {
            0..4 => self.checkpoint(CheckpointKind::Generation)?,
            4..10 => self.write(),
            10..16 => self.sync(),
            16..19 => self.write_again(),
            19 => self.create()?,
            20 => self.delete()?,
            21 => self.resize()?,
            22..24 => self.discard(),
            24 => self.limit(),
            25 => self.change_record()?,
            26 => self.act()?,
            27 => self.naming()?,
            28 => self.read()?,
            _ => {
                for _ in 0..self.rng.below(4) {
                    self.world.step();
                    self.events()?;
                }
                if self.rng.one_in(3) {
                    self.judge_now()?;
                }
            }
        }
        Ok(())
    }

    /// Writes a page that a job has, and makes it durable at once.
    fn write_again(&mut self) {
        let away: Vec<PageName> = self
            .in_flight
            .iter()
            .chain(&self.returned)
            .map(|(name, _)| *name)
            .collect();
        let away: Vec<PageName> = away
            .into_iter()
            .filter(|name| {
                self.live
                    .get(&name.0)
                    .is_some_and(|object| name.1 < object.record.pages)
            })
            .filter(|name| !self.is_directory(name.0) && !self.is_syncing(*name))
            .collect();
        if away.is_empty() {
            return;
        }
        let name = *self.rng.pick(&away);
        if self.write_page(name.0, name.1).is_some() {
            self.begin_sync(vec![name], &[]);
        }
    }

    /// A call of the store, in which memory may be refused.
    fn tried<T>(&mut self, call: impl FnOnce(&mut Store, &mut SimWorld) -> T) -> T {
        let _tried = Tried::begin();
        call(&mut self.store, &mut self.world)
    }
}

impl Options {
    /// Mounts a disk of the subject.
    pub(super) fn mount(&self, world: &mut SimWorld, mode: MountMode) -> Check<(Store, MountReport)> {
        (self.subject.mount)(world, mode).map_err(|error| format!("mount ({mode:?}): {error:?}"))
    }

    /// Whether something other than the power may go wrong in the store's own work.
    fn is_hard(&self) -> bool {
        self.failing != 0 || self.memory
    }
}
