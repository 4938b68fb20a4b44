//! The first task, made by the server itself: a clone of the first program, with the root Clist
//! alone in its APD.
//!
//! Nothing else runs yet, so this is the one place that waits for the disk.

use abi::{
    Error, Rights,
    address::{ADDRESS_BITS, FIRST_PROGRAM, PAGE, ROOT_CLIST, ROOT_DIRECTORY, system_objects},
    layout::PRIORITY_DEFAULT,
    start::{ARGUMENTS_OFFSET, IMAGE_ENTRY_AT, START_MAGIC, Start},
};
use kcore::{Machine, SpaceId, ThreadId, thread::Resumed};
use store::{Leaves, MountError, MountReport, Store};

use crate::{
    Server, Step, Stop, World,
    accounts::{AccountId, Ledger, Resource, UNLIMITED, limits},
    directory::names::Found,
    directory::object::{KEPT, Objects, charges_of},
    durability::{checkpoint::Checkpoints, scrubbing::Scrubbing},
    lives::budget::Allowance,
    lives::task::Tasks,
    lives::thread::Threads,
    lives::{
        log::{Date, Log},
        work::WorkList,
    },
    pages::{pager::Pager, queues::Queues},
    procedures::pdx::Callees,
    protection::apd::Apd,
    protection::domain::Domains,
    waiting::console::Console,
    waiting::semaphore::Semaphores,
};

/// Numbers of frames below those that a machine hands out or has in its kernel, roughly.
const FRAMES_BELOW: usize = 256;
/// The name that the first program gets as its only argument.
const FIRST_ARGUMENT: &[u8] = b"shell\0";
/// Times that the start waits for the disk before it gives up.
const WAITS_MAX: u32 = 100_000;
/// Parts of the memory that map nodes may take which small checkpoints have not written: this one up to so many nodes, and the other one. They go when
/// memory is short, but the next start needs as much again.
const UNWRITTEN_PART: usize = 16;
const UNWRITTEN_FEW: usize = 2048;
const UNWRITTEN_PART_OF_MUCH: usize = 64;

/// Frames of the machine for each leaf of the object table that stays in memory though nobody needs it, and how many there are at least and at most. A leaf takes up to 9 KiB of the heap.
const FRAMES_A_LEAF: u64 = 64;
const LEAVES_LEAST: u64 = 64;
const LEAVES_MOST: u64 = 2048;

/// The leaves of the object table that a machine of that size keeps in memory.
pub fn leaves_for(world: &impl Machine) -> Leaves {
    let leaves = world.frames_total() / FRAMES_A_LEAF;
    Leaves::AsNeeded(leaves.clamp(LEAVES_LEAST, LEAVES_MOST) as usize)
}

/// Why the first task could not be started.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// The disk has no first program, root Clist or root directory.
    NoProgram,
    /// The first program has no entry point within itself.
    BadProgram,
    /// A step failed.
    Failed(Error),
    /// The disk never answers.
    Stuck,
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            StartError::NoProgram => f.write_str(
                "the disk holds no first program, root Clist or root directory; './gond mend IMAGE' makes them anew",
            ),
            StartError::BadProgram => f.write_str("the first program is not a program image"),
            StartError::Failed(error) => write!(f, "the first task cannot be made: {error}"),
            StartError::Stuck => f.write_str("the disk does not answer"),
        }
    }
}

impl core::error::Error for StartError {}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        StartError::Failed(error)
    }
}

/// The first lines of the log: how the last session ended, and what is not right with the disk.
fn tell_of_mount(log: &mut Log, world: &mut impl World, report: &MountReport) {
    let end = if report.clean {
        "a clean power-off"
    } else {
        "a power cut"
    };
    let (generation, replayed) = (report.generation, report.replayed);
    let date = Date(world.boot_time_ns());
    log.say(
        world,
        format_args!("start at {date} behind {end}: generation {generation}, {replayed} records of the journal"),
    );
    for block in &report.bad_superblocks {
        log.say(
            world,
            format_args!("copy of the superblock in block {block} is unreadable"),
        );
    }
    for (structure, block) in &report.damage {
        log.say(
            world,
            format_args!("the disk is damaged: {structure:?} in block {block}"),
        );
    }
    for loss in &report.losses {
        log.say(world, format_args!("lost: {loss}"));
    }
}

/// What the programs of the last session had backed goes ([`crate::pages::backing`]). Its addresses are free with the next start. What there is no heap for goes
/// with another start.
fn end_backed(store: &mut Store, checkpoint: &mut Checkpoints, ending: &[u64]) {
    for &base in ending {
        if store.delete_object(base).is_ok() {
            checkpoint.note_change();
        }
    }
}

impl Server {
    /// A server over a store, without any task. `report` is what the mount found. Sees the rows that name Clists, those that go now, and the last ones, and waits for those that are not in memory.
    ///
    /// # Errors
    /// [`StartError::Failed`]: there is no heap to note which addresses are free, or the disk fails.
    pub fn new(world: &mut impl World, mut store: Store, report: &MountReport) -> Result<Self, StartError> {
        let mut found = Found::new(report.first_slot);
        let surveyed = store.survey(world, |seen| found.see(seen).map_err(|_| MountError::Memory));
        surveyed.map_err(|error| match error {
            MountError::Disk => Error::DiskError,
            _ => Error::NoMemory,
        })?;
        found.hold_named();
        let Found {
            names,
            addresses,
            unknown,
            ending,
            ..
        } = found;
        let mut checkpoint = Checkpoints::default();
        end_backed(&mut store, &mut checkpoint, &ending);
        let resting = store.sums().map(charges_of);
        checkpoint.replayed = u64::from(report.replayed);
        checkpoint.disk_blocks = world.blocks();
        checkpoint.cut = u64::from(report.tail.is_some());
        let mut ledger = Ledger::new(store.stats().generation);
        for (resource, amount) in resting.into_iter().flat_map(|amounts| KEPT.into_iter().zip(amounts)) {
            ledger.force(AccountId::ROOT, resource, amount);
        }
        // Frames are kept until all is durable, and by then it is known which they are.
        store.omit_pages();
        let mut log = Log::new().map_err(|_| Error::NoMemory)?;
        tell_of_mount(&mut log, world, report);
        let mut objects = Objects::default();
        objects.next_serial = store.births().max(1);
        Ok(Self {
            ledger,
            programs: AccountId::ROOT,
            resting,
            heap_of_first: 0,
            blocks_of_first: 0,
            objects,
            addresses,
            names,
            unknown,
            domains: Domains::default(),
            tasks: Tasks::default(),
            threads: Threads::default(),
            semaphores: Semaphores::default(),
            callees: Callees::default(),
            pager: Pager::default(),
            checkpoint,
            scrubbing: Scrubbing::new(report),
            console: Console::default(),
            store,
            work: WorkList::default(),
            // The start is one event without a bound.
            budget: Allowance::ALL,
            log,
            current: kcore::ThreadId(0),
            unchecked: 0,
        })
    }

    /// Says what a call of the machine costs beside what it does, in instructions: [`kcore::outside::Remote::CALL`] where the server is outside of
    /// the kernel. Inside it is nothing.
    pub const fn price_calls(&mut self, call: u64) {
        self.budget.set_price(call);
    }

    /// All that events were ever charged, in instructions: for the table of charges.
    #[cfg(debug_assertions)]
    pub fn charged(&self) -> u64 {
        self.budget.charged()
    }

    /// Bounds what the machine has, and opens the account of all programs below that of the first task. It pays for what programs of earlier
    /// starts have kept.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn open_programs(&mut self, world: &mut impl World, above: AccountId) -> Result<(), Error> {
        let frames = world.frames_total() as usize;
        // Without heap for it memory is taken back as if nobody knew anything of its use. Programs get what is left of the heap.
        let numbers = frames + world.kernel_frames() as usize + FRAMES_BELOW;
        self.pager.queues = Queues::new(numbers).unwrap_or_default();
        let few = (frames / UNWRITTEN_PART).min(UNWRITTEN_FEW);
        self.store.keep_unwritten(few.max(frames / UNWRITTEN_PART_OF_MUCH));
        let kept = self.ledger.used(AccountId::ROOT, Resource::Rows);
        let mut machine = limits::of_machine(world, self.store.stats().free, kept);
        let own = self.resting[0];
        let [of_programs, ..] = own;
        let programs = limits::of_programs(&machine, kept, of_programs);
        self.heap_of_first = limits::heap_of_first(&machine, kept);
        self.blocks_of_first = self.store.stats().free / 8;
        // The store itself says when the disk is full; a bound of what is free now would keep out what is removed later.
        machine[Resource::Blocks as usize] = u64::MAX;
        self.ledger.set_limits(AccountId::ROOT, machine);
        self.programs = self.account_open(world, above, programs)?;
        self.bound_dirty_pages();
        for (resource, amount) in KEPT.into_iter().zip(own) {
            self.ledger.give(AccountId::ROOT, resource, amount);
            self.ledger.force(self.programs, resource, amount);
        }
        Ok(())
    }

    /// Makes the first task and lets it run.
    ///
    /// # Errors
    /// See [`StartError`]: the system cannot run then.
    pub fn start(&mut self, world: &mut impl World) -> Result<ThreadId, StartError> {
        // Before the first password is drawn.
        world.stir_random(self.store.seed());
        for address in system_objects() {
            let found = self.patiently(world, |server, world| server.object_at(world, address));
            found.map_err(|_| StartError::NoProgram)?;
        }
        let mut apd = Apd::EMPTY;
        apd.add(self.patiently(world, |server, world| server.clist_ref(world, ROOT_CLIST))?)?;
        let task = self.task_make(world, apd, AccountId::ROOT, UNLIMITED)?;
        let account = self.tasks.get(task).map_or(AccountId::ROOT, |task| task.account);
        self.open_programs(world, account)?;
        self.tasks.initial = Some(task);
        let domain = self.tasks.get(task).map_or(SpaceId(0), |task| task.domain);
        let (base, _) = self.patiently(world, |server, world| {
            server.object_clone(world, domain, task, FIRST_PROGRAM, PAGE)
        })?;
        let (entry, start) = self.start_page(world, domain, base)?;
        let thread = self.thread_make(world, task, None, entry, start, PRIORITY_DEFAULT as u8 + 1)?;
        if let Some(task) = self.tasks.get_mut(task) {
            task.first = thread;
        }
        world.thread_wake(thread, Resumed::First);
        Ok(thread)
    }

    /// Fills in the start page behind the clone of an image. Tells the entry point and the page.
    fn start_page(&mut self, world: &mut impl World, domain: SpaceId, base: u64) -> Result<(u64, u64), StartError> {
        let id = self.objects.find(base).ok_or(StartError::BadProgram)?;
        let image_bytes = (self.objects.get(id).record.pages - 1) * PAGE;
        let mut word = [0; 8];
        self.patiently(world, |server, world| {
            server.read_user(world, domain, base + IMAGE_ENTRY_AT, &mut word)
        })?;
        let offset = u64::from_le_bytes(word);
        if offset >= image_bytes {
            return Err(StartError::BadProgram);
        }
        let page = base + image_bytes;
        let start = Start {
            magic: START_MAGIC,
            image: base,
            image_bytes,
            root_directory: ROOT_DIRECTORY,
            argument_count: 1,
            argument_bytes: FIRST_ARGUMENT.len() as u64,
            word: 0,
        };
        self.patiently(world, |server, world| {
            server.write_user(world, domain, page, &start.to_bytes())
        })?;
        self.patiently(world, |server, world| {
            server.write_user(world, domain, page + ARGUMENTS_OFFSET, FIRST_ARGUMENT)
        })?;
        self.patiently(world, |server, world| {
            server.validate(world, domain, base + offset, Rights::X)
        })?;
        Ok((base + offset, page))
    }

    /// Does a step again and again, waiting for the disk in between.
    fn patiently<W: World, T>(
        &mut self,
        world: &mut W,
        mut step: impl FnMut(&mut Self, &mut W) -> Step<T>,
    ) -> Result<T, StartError> {
        for _ in 0..WAITS_MAX {
            match step(self, world) {
                Ok(value) => return Ok(value),
                Err(Stop::Fail(error)) => return Err(error.into()),
                Err(Stop::Again) => {}
                Err(Stop::Wait(_)) => {
                    self.poll_store(world);
                    if self.store.is_idle() || self.store.is_stopped() {
                        continue;
                    }
                    store::world::Disk::wait(world);
                    self.poll_store(world);
                }
            }
        }
        Err(StartError::Stuck)
    }
}

const _: () = assert!(ADDRESS_BITS == 47 && FIRST_ARGUMENT.len() as u64 <= PAGE - ARGUMENTS_OFFSET);
