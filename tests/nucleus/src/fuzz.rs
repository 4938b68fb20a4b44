//! Random calls from random threads: every call of the table, with arguments that are right, nearly right
//! and nonsense, from several threads at once. Every thousand calls the kernel checks what
//! must always hold, and stops the machine if it does not.
//!
//! Step `n` under a seed is always the same call with the same kind of arguments; which identifiers
//! they name depends on what there is. A thread of the fuzzer may well delete itself, its space, or
//! wait for ever: whoever is missing is made again.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Rights,
    address::PAGE,
    nucleus::{ANYONE, Call, GRANT, MAP, MESSAGE_AREA, TABLE, fpage, port_fpage, tag, timeouts},
};
use nucleus::{call, log, message};

use testing::Random;

use crate::{
    arch,
    case::{Case, Outcome, Setting, case, ensure},
    messages::start,
    world::{World, memory},
};

/// The cases.
pub const CASES: &[Case] = &[case("fuzz/calls", calls_at_random)];

/// Calls that the case makes, unless the command line names another number.
const CALLS: u64 = 100_000;
/// Calls between two checks.
const CHECK_EACH: u64 = 1000;
/// Threads that make calls.
const THREADS: usize = 6;
/// Identifiers that are remembered, to be named.
const REMEMBERED: usize = 16;

static SEED: AtomicU64 = AtomicU64::new(0);
/// Steps taken by all.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Steps that are wanted.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Calls that were answered with success.
static SUCCEEDED: AtomicU64 = AtomicU64::new(0);
/// Where memory is that may be given away and lost.
static STORE: AtomicU64 = AtomicU64::new(0);
static THREAD_IDS: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];
static SPACE_IDS: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];

/// Pages in the store.
const STORE_PAGES: u64 = 256;
/// Where fpages go.
const PLACE: u64 = 0x3800_0000_0000;

fn remember(random: &mut Random, places: &[AtomicU64; REMEMBERED], id: u64) {
    places[random.below(REMEMBERED as u64) as usize].store(id, Relaxed);
}

/// Mostly an identifier that is or was one.
fn identifier(random: &mut Random, places: &[AtomicU64; REMEMBERED]) -> u64 {
    match random.below(8) {
        0 => random.below(40),
        1 => [0, ANYONE, random.word()][random.below(3) as usize],
        _ => places[random.below(REMEMBERED as u64) as usize].load(Relaxed),
    }
}

/// An fpage of the store, of the place, or of somewhere it must not be.
fn any_fpage(random: &mut Random) -> u64 {
    let rights = Rights::from_bits(random.below(8)).unwrap_or(Rights::R);
    let log2 = [12, 12, 12, 13, 16, 21][random.below(6) as usize];
    let aligned = |base: u64| base >> log2 << log2;
    match random.below(12) {
        0 => random.word(),
        1 => port_fpage(random.below(16) << 12, random.below(13) as u8),
        2 => fpage(aligned(MESSAGE_AREA + random.below(1 << 22)), log2, rights),
        3..8 => fpage(
            aligned(STORE.load(Relaxed) + random.below(STORE_PAGES) * PAGE),
            log2,
            rights,
        ),
        _ => fpage(aligned(PLACE + random.below(1 << 24)), log2, rights),
    }
}

/// The pages that are given, and how. Granted are pages of the store alone: the fuzzer itself stands on others.
fn gift(random: &mut Random) -> (u64, u64) {
    if random.one_in(4) {
        let page = STORE.load(Relaxed) + random.below(STORE_PAGES) * PAGE;
        return (fpage(page, 12, Rights::RW), GRANT);
    }
    let way = small(random);
    (any_fpage(random), if way == GRANT { MAP } else { way })
}

fn small(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.word(),
        _ => random.below(10),
    }
}

/// One call. Those that end the machine or the root program's part in it are left out.
fn step(random: &mut Random, me: u64) -> bool {
    let Some(info) = TABLE.get(random.below(TABLE.len() as u64) as usize) else {
        return false;
    };
    let Some(number) = Call::from_number(info.number) else {
        return false;
    };
    let thread = identifier(random, &THREAD_IDS);
    let space = identifier(random, &SPACE_IDS);
    let arguments = match number {
        Call::MachineStop | Call::LogWrite | Call::KernelCheck => return false,
        Call::SpaceCreate => [
            [70, 500, 3000, random.word()][random.below(4) as usize],
            thread,
            thread,
            0,
            0,
            0,
        ],
        Call::SpaceDelete => [space, 0, 0, 0, 0, 0],
        Call::SpaceControl => [space, thread, thread, if random.one_in(4) { thread } else { 0 }, 0, 0],
        Call::ThreadCreate => {
            // In the caller's own space it would run the fuzzer's code on a stack of its choice: there it
            // begins where nothing is, and ends.
            let start = [0x1000, random.word(), 0x4000_0000_0000][random.below(3) as usize];
            if space == 0 {
                return false;
            }
            [space, start, PLACE, random.word(), small(random), 0]
        }
        Call::ThreadDelete | Call::ThreadPriority => {
            if thread == 0 && !random.one_in(50) || is_kept(thread) {
                return false;
            }
            [thread, small(random), 0, 0, 0, 0]
        }
        Call::ThreadExchange => {
            if is_kept(thread) {
                return false;
            }
            [thread, random.below(20) & !4, 0, 0, 0, 0]
        }
        Call::Ipc => return exchange_message(random, thread),
        Call::Map => {
            let (what, way) = gift(random);
            [what, space, any_fpage(random), way, 0, 0]
        }
        Call::Flush => {
            // The fuzzer's own pages stay.
            let what = any_fpage(random);
            [
                what,
                random.below(16),
                random.below(3) & u64::from(what >> 44 == 3),
                0,
                0,
                0,
            ]
        }
        Call::InterruptBind | Call::InterruptMessage => {
            [random.below(40), if random.one_in(2) { 0 } else { thread }, 0, 0, 0, 0]
        }
        Call::ThreadSelf | Call::ClockNow | Call::Yield => [0; 6],
    };
    let answer = arch::any(info.number, arguments);
    let Ok((value, _)) = answer else { return false };
    match number {
        Call::SpaceCreate => {
            // A space that would be forgotten goes, or its quota would be lost.
            let place = &SPACE_IDS[random.below(REMEMBERED as u64) as usize];
            let _ = call::space_delete(place.swap(value, Relaxed));
        }
        Call::ThreadCreate => remember(random, &THREAD_IDS, value),
        Call::ThreadSelf => remember(random, &THREAD_IDS, me),
        _ => {}
    }
    true
}

/// Threads that the case cannot do without.
static KEPT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn is_kept(thread: u64) -> bool {
    KEPT.iter().any(|kept| kept.load(Relaxed) == thread)
}

/// A message with words, items and timeouts of any kind; it waits for milliseconds at most.
fn exchange_message(random: &mut Random, to: u64) -> bool {
    let from = match random.below(4) {
        0 => 0,
        1 => ANYONE,
        2 => to,
        _ => identifier(random, &THREAD_IDS),
    };
    let to = if random.one_in(4) || is_kept(to) { 0 } else { to };
    let words = if random.one_in(4) {
        random.below(66)
    } else {
        random.below(6)
    };
    let label = tag(random.word() >> 48, words, u64::from(random.one_in(4)));
    let label = if random.one_in(10) { random.word() } else { label };
    let wait = timeouts(random.below(300) as u32, random.below(300) as u32);
    let (what, way) = gift(random);
    let words = [what, way, random.word(), random.word()];
    let window = if random.one_in(3) {
        any_window(random)
    } else {
        call::memory::Window::NOTHING
    };
    call::ipc(to, from, label, wait, window, words).is_ok()
}

fn any_window(random: &mut Random) -> call::memory::Window {
    let log2 = [12, 13, 21][random.below(3) as usize];
    let base = (PLACE + random.below(1 << 24)) >> log2 << log2;
    call::memory::Window::memory(base, log2, Rights::RWX)
}

nucleus::thread_entry!(fuzzer_entry, fuzzer);
/// Takes steps until enough are taken.
fn fuzzer(_: u64) {
    let Ok((me, _)) = call::thread_self() else { return };
    loop {
        let index = STEPS.fetch_add(1, Relaxed);
        if index >= WANTED.load(Relaxed) {
            return;
        }
        let mut random = Random::at(SEED.load(Relaxed), index);
        if step(&mut random, me) {
            SUCCEEDED.fetch_add(1, Relaxed);
        }
    }
}

fn calls_at_random(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let wanted = setting.calls.unwrap_or(CALLS);
    SEED.store(setting.seed, Relaxed);
    STEPS.store(0, Relaxed);
    SUCCEEDED.store(0, Relaxed);
    WANTED.store(wanted, Relaxed);
    let store = memory(setting.root, 2).take_run(STORE_PAGES * PAGE);
    STORE.store(store.unwrap_or_default(), Relaxed);
    KEPT[0].store(me, Relaxed);
    let mut threads = [0; THREADS];
    let mut checked = 0;
    let (mut before, mut stuck, mut revived) = (u64::MAX, 0, 0_usize);
    while STEPS.load(Relaxed) < wanted {
        for thread in &mut threads {
            if *thread == 0 || message_free(*thread)? {
                *thread = start(fuzzer_entry(), 0, 2)?;
                revived += 1;
                THREAD_IDS[revived % REMEMBERED].store(*thread, Relaxed);
            }
        }
        // They are less urgent than this thread, which waits.
        let _ = message::receive_within(ANYONE, 1000);
        let now = STEPS.load(Relaxed);
        if now / CHECK_EACH > checked {
            checked = now / CHECK_EACH;
            call::kernel_check()?;
        }
        // All of them wait for something that will not come: others take their places.
        stuck = if now == before { stuck + 1 } else { 0 };
        before = now;
        if stuck > 20 {
            stuck = 0;
            for thread in &mut threads {
                let _ = call::thread_delete(*thread);
                *thread = 0;
            }
        }
    }
    for thread in threads {
        let _ = call::thread_delete(thread);
    }
    for place in &SPACE_IDS {
        let _ = call::space_delete(place.load(Relaxed));
    }
    call::kernel_check()?;
    let succeeded = SUCCEEDED.load(Relaxed);
    log!(
        "fuzz: {wanted} calls, {succeeded} succeeded, {checked} checks, {revived} threads, seed {}",
        setting.seed
    );
    ensure!(succeeded > wanted / 10, "{succeeded} of {wanted} calls succeeded");
    // The kernel is as usable as before.
    World::new(setting, 0, 0)?.end()
}

/// Whether a thread is gone, or stopped for good.
fn message_free(thread: u64) -> Outcome<bool> {
    Ok(crate::messages::state_of(thread)?.is_none_or(|state| state == abi::nucleus::THREAD_STOPPED))
}
