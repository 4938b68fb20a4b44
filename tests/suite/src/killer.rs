//! Programs that end at any moment: in protected calls, waits, faults, deletes and on their way to another processor.
//!
//! Some programs, each of them with threads that come and go, do in turn what makes processors and domains meet: they call procedures of a service
//! that itself goes now and then, wait for each other, touch new pages, and take pages and objects from under their own threads. The killer ends one
//! of them after the other wherever it is, and starts others. Each must be gone soon, and in the end the system is as empty as before.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Rights,
    address::{PAGE, SLOT},
    layout::{Capability, EXCEPTION_KILL, UNMAP_ZERO},
};
use rt::{
    Clist, Object, call, pdx, println,
    sync::Semaphore,
    system,
    task::{Options, Task},
    thread::{self, Thread},
};
use testing::Random;

use crate::{
    arch,
    assistant::{PATIENCE_NS, PRIORITY_LOW, apd_of, clist_granting, confined, start, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, role},
    pages::unmap,
    pdx::service::{BOTH, Service, add_entry, around_entry, linger_entry, nest_entry},
    system::figures,
};

/// The cases.
pub const CASES: &[Case] = &[Case {
    limit_ms: 1_000_000,
    ..case("killer/programs", programs)
}];

/// The parts.
pub const ROLES: &[Role] = &[role("victim", victim)];

/// Of so many calls that are asked for, the victims do one act, and all of them together at least the second number.
const CALLS_FOR_AN_ACT: u64 = 25;
const ACTS_LEAST: u64 = 1_000;
/// Acts between two ends of the service, roughly.
const ACTS_OF_SERVICE: u64 = 500;
/// Threads of a victim beside its first.
const WORKERS: usize = 3;
/// Acts of one worker at most, and those of a program that another victim has started.
const ACTS_EACH: u64 = 200;
const ACTS_OF_CHILD: u64 = 20;
/// Frames that tables which have grown may keep.
const FRAMES_SLACK: u64 = 128;
/// How long an end may take, in nanoseconds, where the host has fewer processors than the machine, and other work.
const END_NS: u64 = 4 * PATIENCE_NS;
/// The longest that a victim lives, in nanoseconds.
const LIFE_NS: u64 = 12_000_000;

rt::persist! {
    /// The page that the killer shares with its victims.
    struct Board {
        /// Procedures of the service.
        add: AtomicU64,
        around: AtomicU64,
        linger: AtomicU64,
        nest: AtomicU64,
        /// A procedure in an object of its own, which is deleted now and then.
        short: AtomicU64,
        /// Acts that were done.
        acts: AtomicU64,
        /// A word to wait on.
        word: AtomicU64,
        /// The place of a semaphore.
        gate: AtomicU64,
    }
}

/// A victim's own objects.
#[derive(Copy, Clone)]
struct Place {
    /// The board.
    board: u64,
    /// An object of many pages, for all threads.
    base: u64,
}
/// Pages of that object, and how many slots it has.
const PAGES: u64 = 4 * SLOT / PAGE;

/// One act. It may fail: the service, or the object, may just be gone.
fn act(random: &mut Random, place: Place) -> abi::error::Result<()> {
    let board = Object::open(place.board)?;
    let board = board.first::<Board>()?;
    let domain = BOTH[random.below(2) as usize];
    let pd = domain as u64;
    let word = &raw const board.word as u64;
    let gate = &raw const board.gate as u64;
    let page = place.base + random.below(PAGES) * PAGE;
    match random.below(16) {
        0 | 1 => {
            pdx::call(board.add.load(Relaxed), domain, [1, 2, 3, 4])?;
        }
        2 => {
            let failing = [random.below(3), pd, 0, 0];
            pdx::call(board.around.load(Relaxed), domain, failing)?;
        }
        3 => {
            pdx::call(board.linger.load(Relaxed), domain, [1, 0, 0, 0])?;
        }
        4 => {
            pdx::call(board.nest.load(Relaxed), domain, [0, pd, random.below(3), 0])?;
        }
        5 => {
            let object = Object::create((1 + random.below(3)) * SLOT)?;
            for slot in 0..object.bytes() / SLOT {
                arch::store(object.base() + slot * SLOT, slot);
            }
            object.delete()?;
        }
        6 => call::sem_wait(gate, random.below(200_000))?,
        7 => call::sem_signal(gate)?,
        8 => call::address_wait(word, board.word.load(Relaxed) & 0xffff_ffff, random.below(200_000))?,
        9 => {
            board.word.fetch_add(1, Relaxed);
            call::address_wake(word, random.below(3))?;
        }
        10 => unmap(
            page,
            random.below(40).min((place.base + PAGES * PAGE - page) / PAGE),
            UNMAP_ZERO,
        )?,
        11 => {
            let child = thread::spawn(|| 3)?;
            child.join_status()?;
        }
        12 => rt::time::sleep_ns(random.below(100_000))?,
        13 => {
            pdx::call(board.short.load(Relaxed), domain, [0; 4])?;
        }
        14 => call::apd_flush()?,
        _ => {
            for page in 0..8 {
                arch::store(place.base + random.below(PAGES) * PAGE, page);
            }
        }
    }
    Ok(())
}

/// Acts, so many of them, and counts them.
fn acts(mut random: Random, place: Place, most: u64) -> u64 {
    for _ in 0..most {
        let _ = act(&mut random, place);
        let counted =
            Object::open(place.board).and_then(|board| Ok(board.first::<Board>()?.acts.fetch_add(1, Relaxed)));
        if counted.is_err() {
            return 1;
        }
    }
    0
}

/// Starts threads that act, and ends some of them.
fn victim(numbers: &[u64; 6]) -> u64 {
    let &[board, seed, is_child, ..] = numbers;
    let mut random = Random::at(seed, 0);
    let Ok(object) = Object::create(PAGES * PAGE) else {
        return 1;
    };
    let place = Place {
        board,
        base: object.base(),
    };
    if is_child != 0 {
        return acts(random, place, ACTS_OF_CHILD);
    }
    let mut workers: Vec<Thread> = Vec::new();
    loop {
        if workers.len() < WORKERS {
            let own = Random::at(random.word(), 1);
            match thread::spawn(move || acts(own, place, ACTS_EACH)) {
                Ok(thread) => workers.push(thread),
                Err(_) => thread::yield_now(),
            }
        } else {
            let thread = workers.swap_remove(random.below(WORKERS as u64) as usize);
            let until = rt::time::since_boot_ns() + random.below(100_000);
            while rt::time::since_boot_ns() < until {
                core::hint::spin_loop();
            }
            let _ = thread.end(2);
            let _ = thread.join_status();
        }
        if random.one_in(40) {
            let _ = start("victim", &[board, random.word(), 1], &Options::default());
        }
        let _ = act(&mut random, place);
    }
}

/// A procedure that returns at once, in an object of its own.
struct Short {
    object: Object,
    /// The Clist with which it is registered.
    list: Clist,
    capability: Capability,
}

impl Short {
    /// Registers one, lets clients call it, and tells where it is.
    fn new(client: &mut Clist, told: &AtomicU64) -> Outcome<Self> {
        let object = Object::create(PAGE)?;
        let base = object.base();
        arch::write_bytes(base, arch::RETURN_CODE);
        let (list, _) = clist_granting(&object, Rights::RX)?;
        let password = arch::obj_cre_pdx(base, 0, list.object().base(), &[base])?;
        let capability = Capability {
            address: base,
            password,
        };
        client.insert(capability)?;
        told.store(base, Relaxed);
        Ok(Self {
            object,
            list,
            capability,
        })
    }

    /// Deletes it, whoever is inside.
    fn ends(self, client: &mut Clist) -> Outcome {
        self.object.delete()?;
        client.remove(self.capability)?;
        Ok(self.list.delete()?)
    }
}

/// A victim, and until when it lives.
struct Doomed {
    task: Task<'static>,
    until: u64,
}

fn programs(setting: &Setting) -> Outcome {
    let wanted = (setting.calls / CALLS_FOR_AN_ACT).max(ACTS_LEAST);
    let mut random = Random::at(setting.seed, 7);
    let page = Object::create(PAGE)?;
    let board = page.first::<Board>()?;
    let gate = Semaphore::create(&raw const board.gate as u64, 1)?;
    for (place, entry) in [
        (&board.add, add_entry()),
        (&board.around, around_entry()),
        (&board.linger, linger_entry()),
        (&board.nest, nest_entry()),
    ] {
        place.store(entry.address(), Relaxed);
    }
    let (own, _) = clist_granting(&page, Rights::RW)?;
    let service = Service::open(&[])?;
    let mut client = service.client_clist()?;
    let mut short = Short::new(&mut client, &board.short)?;
    let count = system::boot()?.processors.clamp(3, 6) as usize;
    let [threads, ..] = figures()?;
    let (mut kills, mut services, mut renewed) = (0, 1, 0);
    let mut before = None;
    let mut doomed: Vec<Doomed> = Vec::new();
    let mut longest = 0;
    loop {
        let acts = board.acts.load(Relaxed);
        let is_over = before.is_some() && acts >= wanted;
        // The first victims fill what the system keeps for the next.
        if is_over || before.is_none() && acts > wanted / 4 {
            for Doomed { task, .. } in doomed.drain(..) {
                kills += 1;
                longest = longest.max(ends(&task)?);
            }
            // Kept domains and stacks go with the service.
            service.renew()?;
            short.ends(&mut client)?;
            short = Short::new(&mut client, &board.short)?;
            if is_over {
                break;
            }
            rest(threads)?;
            before = Some(figures()?);
        }
        let now = rt::time::since_boot_ns();
        if doomed.len() < count {
            let apd = apd_of(&[&own, &client]);
            let options = Options {
                priority: PRIORITY_LOW,
                ..confined(&apd)
            };
            let task = start("victim", &[page.base(), random.word(), 0], &options)?;
            let until = now + random.below(LIFE_NS);
            doomed.push(Doomed { task, until });
        } else if let Some(which) = doomed.iter().position(|doomed| doomed.until <= now) {
            let Doomed { task, .. } = doomed.swap_remove(which);
            kills += 1;
            longest = longest.max(ends(&task)?);
        } else {
            rt::time::sleep_ns(random.below(200_000))?;
        }
        if acts / ACTS_OF_SERVICE > renewed {
            renewed = acts / ACTS_OF_SERVICE;
            services += 1;
            service.renew()?;
            short.ends(&mut client)?;
            short = Short::new(&mut client, &board.short)?;
        }
    }
    println!(
        "killer: {} acts under seed {:#x}; {kills} programs ended, the longest end took {} us; {services} services",
        board.acts.load(Relaxed),
        setting.seed,
        longest / 1000
    );
    rest(threads)?;
    let before = before.unwrap_or_default();
    let settled = || {
        let is_less = |after: [u64; 4]| (0..3).all(|place| after[place] <= before[place]);
        figures().is_ok_and(|after| is_less(after) && after[3] <= before[3] + FRAMES_SLACK)
    };
    if wait_until("", settled).is_err() {
        let after = figures()?;
        ensure!(
            false,
            "threads, domains, objects and used frames were {before:?} and are {after:?}"
        );
    }
    short.ends(&mut client)?;
    gate.delete()?;
    own.delete()?;
    client.delete()?;
    service.clist.delete()?;
    crate::fuzz::usable(setting)
}

/// Ends a program wherever it is; tells how long it takes until it is gone.
fn ends(task: &Task<'_>) -> Outcome<u64> {
    let begin = rt::time::since_boot_ns();
    task.end(9)?;
    let shown = task.wait_for(END_NS);
    let Ok(shown) = shown else {
        let info = call::thread_info(task.thread());
        ensure!(false, "it does not end: {:?}, {info:x?}", shown.err());
        return Ok(0);
    };
    let report = shown.report;
    ensure!(
        report.exception == EXCEPTION_KILL && report.status == 9,
        "a victim ended by itself: {shown}"
    );
    Ok(rt::time::since_boot_ns() - begin)
}

/// Waits until the programs that victims have started are gone, too, and only so many threads are left.
fn rest(threads: u64) -> Outcome {
    let is_over = || figures().is_ok_and(|[now, ..]| now <= threads);
    let end = rt::time::since_boot_ns() + END_NS;
    while !is_over() && rt::time::since_boot_ns() < end {
        rt::time::sleep_ms(5)?;
    }
    wait_until("the programs of victims end", is_over)
}
