//! A random life of a store, with crashes, beside the model.
//!
//! The driver plays the server: it changes objects and pages, keeps dirty pages in "memory",
//! begins checkpoints and syncs, and takes up events. Beside the state as it is (`live`) it keeps
//! the state as the store alone would show it (`stored`, without dirty pages), the last durable
//! state, and the jobs begun since. After a crash the store must show the durable state, or that
//! with the first few of the jobs on top: nothing acknowledged is lost, nothing is half.

mod changes;
mod crashes;
mod durability;

use crate::model::{Job, Page, State};
use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Breaks, CheckpointKind, FormatOptions, Frame, MountMode, MountReport, Store, Ticket};

/// What a run does.
#[derive(Copy, Clone)]
pub struct Options {
    pub breaks: Breaks,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Steps of the workload.
    pub steps: u64,
    /// One request in so many fails; zero for none.
    pub failing: u64,
}

/// What a run saw; to know that the tests test something.
#[derive(Default, Debug, Clone)]
pub struct Tally {
    pub crashes: u64,
    pub images: u64,
    pub checkpoints: u64,
    /// Those that were records.
    pub small_checkpoints: u64,
    pub failed_checkpoints: u64,
    pub syncs: u64,
    pub refused_syncs: u64,
    pub failed_syncs: u64,
    pub replayed: u64,
    pub tails: u64,
    pub reads: u64,
    pub disk_full: u64,
    pub acts: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.images += other.images;
        self.checkpoints += other.checkpoints;
        self.small_checkpoints += other.small_checkpoints;
        self.failed_checkpoints += other.failed_checkpoints;
        self.syncs += other.syncs;
        self.refused_syncs += other.refused_syncs;
        self.failed_syncs += other.failed_syncs;
        self.replayed += other.replayed;
        self.tails += other.tails;
        self.reads += other.reads;
        self.disk_full += other.disk_full;
        self.acts += other.acts;
    }
}

type Check<T = ()> = Result<T, String>;
type PageName = (u64, u64);

const SLOT: u64 = 2 << 20;
const MEMORY: usize = 2000;
/// Below this many volatile writes every subset is tried.
const EXHAUSTIVE: usize = 5;

/// A page that the store is writing.
struct InFlight {
    frame: Frame,
    /// The sync it belongs to, if it is one.
    job: Option<Ticket>,
    written: Page,
    /// What the store showed before.
    before: Page,
}

struct Driver {
    rng: Rng,
    options: Options,
    world: SimWorld,
    store: Store,
    live: State,
    stored: State,
    durable: State,
    jobs: VecDeque<Job>,
    /// Jobs that failed and may be durable all the same.
    maybe: Vec<Job>,
    dirty: BTreeSet<PageName>,
    in_flight: BTreeMap<PageName, InFlight>,
    /// Pages that came back and whose job is not done.
    returned: Vec<(PageName, InFlight)>,
    /// Reads under way, with what they should give; nothing once the page has changed.
    reading: BTreeMap<PageName, Option<Page>>,
    /// Deleted objects with their slots' pages, before and after the deletion is durable.
    unusable: BTreeMap<u64, u64>,
    reusable: Vec<(u64, u64)>,
    /// The last generation that the store has told of.
    generation: u64,
    next_slot: u64,
    next_stamp: u64,
    tally: Tally,
}

fn mount(world: &mut SimWorld, mode: MountMode, breaks: Breaks) -> Check<(Store, MountReport)> {
    Store::mount_broken(world, mode, breaks).map_err(|error| format!("mount ({mode:?}): {error:?}"))
}

/// Lives one life.
pub fn run(seed: u64, options: Options) -> Check<Tally> {
    let mut rng = Rng::new(seed);
    let disk = CrashDisk::new(options.blocks, rng.fork());
    let mut world = SimWorld::new(disk, MEMORY, rng.fork());
    let journal_blocks = Some(4 + rng.below(20) as u32);
    Store::format(
        &mut world,
        &FormatOptions {
            journal_blocks,
            first_slot: 8,
            ..FormatOptions::default()
        },
    )
    .map_err(|error| format!("format: {error:?}"))?;
    let (store, report) = mount(&mut world, MountMode::ReadWrite, options.breaks)?;
    world.disk.set_failing(options.failing);
    let mut driver = Driver {
        rng,
        options,
        world,
        generation: store.stats().generation,
        store,
        live: State::new(),
        stored: State::new(),
        durable: State::new(),
        jobs: VecDeque::new(),
        maybe: Vec::new(),
        dirty: BTreeSet::new(),
        in_flight: BTreeMap::new(),
        returned: Vec::new(),
        reading: BTreeMap::new(),
        unusable: BTreeMap::new(),
        reusable: Vec::new(),
        next_slot: report.first_slot,
        next_stamp: 1,
        tally: Tally::default(),
    };
    for step in 0..options.steps {
        driver.step().map_err(|what| format!("step {step}: {what}"))?;
    }
    driver.crash()?;
    Ok(driver.tally)
}

impl Driver {
    fn step(&mut self) -> Check {
        match self.rng.below(100) {
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
            _ => {
                if self.rng.one_in(3) {
                    self.crash()?;
                }
            }
        }
        self.events()
    }
}
