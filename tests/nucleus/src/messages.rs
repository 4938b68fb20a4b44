//! Messages between threads of one space.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::nucleus::{ANYONE, EXCHANGE_READ, MESSAGE_WORDS, Registers, THREAD_RECEIVING, THREAD_SENDING, tag, timeouts};
use nucleus::{
    RootPage,
    call::{self, ThreadEntry, memory::Window},
    message,
};

use crate::{
    arch::{self, Held},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
    world::memory,
};

/// The cases.
pub const CASES: &[Case] = &[
    case("messages/call-and-reply", call_and_reply),
    case("messages/long", long),
    case("messages/timeouts", time_runs_out),
    case("messages/fifo", first_come),
    case("messages/stale-identifiers", stale),
    case("messages/deleted-partner", deleted_partner),
    case("messages/bad-arguments", bad_arguments),
    case("messages/vectors", vectors),
    case("messages/vectors-stay", vectors_stay),
];

/// Bytes of a stack.
const STACK: u64 = 8192;
/// Where the next stack begins. They are not used again: a run of the suite needs a few hundred.
static STACKS: AtomicU64 = AtomicU64::new(0);

/// A thread of this space.
pub fn start(entry: ThreadEntry, parameter: u64, priority: u64) -> Outcome<u64> {
    let top = STACKS.fetch_add(STACK, Relaxed) + STACK;
    Ok(arch::start_here(entry, top, parameter, priority)?)
}

/// Stacks lie in the last part of memory.
pub fn prepare(root: RootPage) {
    STACKS.store(memory(root, 3).take().unwrap_or_default(), Relaxed);
}

nucleus::thread_entry!(echo_entry, echo);
/// Answers each message with its words, the first one plus one; label 9 ends it.
fn echo(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        if got.label() == 9 {
            return;
        }
        let [first, second, third, fourth] = got.words;
        next = message::reply_and_wait(got.sender, got.tag, [first + 1, second, third, fourth]);
    }
}

fn call_and_reply(_: &Setting) -> Outcome {
    let server = start(echo_entry(), 0, 3)?;
    for round in 0..1000 {
        let got = message::call(server, tag(5, 4, 0), [round, 2, 3, 4])?;
        ensure_eq!(got.words, [round + 1, 2, 3, 4]);
        ensure_eq!((got.sender, got.label(), got.length()), (server, 5, 4));
    }
    // Words that were not sent do not arrive.
    let got = message::call(server, tag(0, 1, 0), [1, 2, 3, 4])?;
    ensure!(got.words[0] == 2, "{got:x?}");
    message::send(server, tag(9, 0, 0), [0; 4])?;
    Ok(())
}

/// The label that ends a server.
const END: u64 = 9;
/// The label on which [`dirty`] leaves its vector registers alone.
const CLEAN: u64 = 2;

nucleus::thread_entry!(dirty_entry, dirty);
/// Answers each message with whether it found others' vector registers; then it fills them.
fn dirty(_: u64) {
    const OWN: u64 = 0x0123_4567_89ab_cdef;
    let mut next = message::receive();
    while let Ok(got) = next {
        let mut foreign = false;
        match got.label() {
            END => return,
            CLEAN => {}
            _ => {
                foreign = arch::held_vectors(OWN) == Held::Foreign;
                arch::fill_vectors(OWN);
            }
        }
        next = message::reply_and_wait(got.sender, got.tag, [foreign.into(), 0, 0, 0]);
    }
}

nucleus::thread_entry!(filler_entry, filler);
/// Fills its vector registers and calls the thread whose identifier it is sent, with its label; answers how often one of both
/// found others' vector registers.
fn filler(number: u64) {
    let Ok(first) = message::receive() else { return };
    let own = 0xfeed_0000_0000_0001 + number;
    let mut foreign = 0;
    for round in 0..200 {
        // Sometimes it does not use the unit, and sometimes the slow path is taken.
        if round % 5 > 0 {
            foreign += u64::from(arch::held_vectors(own) == Held::Foreign);
            arch::fill_vectors(own);
        }
        if round % 7 == 0 && call::yield_now().is_err() {
            return;
        }
        match message::call(first.words[0], tag(first.label(), 1, 0), [0; 4]) {
            Ok(got) => foreign += got.words[0],
            Err(_) => return,
        }
    }
    // If nobody hears it, the case fails.
    let _ = message::send(first.sender, tag(0, 1, 0), [foreign, 0, 0, 0]);
}

/// Vector registers do not pass with a message, whichever of both threads uses them, and whether another client comes in between.
fn vectors(_: &Setting) -> Outcome {
    for label in [1, CLEAN] {
        let server = start(dirty_entry(), 0, 3)?;
        let callers = [0, 1, 2].map(|number| start(filler_entry(), number, 3));
        for &caller in callers.iter().flatten() {
            message::send(caller, tag(label, 1, 0), [server, 0, 0, 0])?;
        }
        let mut foreign = 0;
        for caller in callers {
            caller?;
            foreign += message::receive()?.words[0];
        }
        message::send(server, tag(END, 0, 0), [0; 4])?;
        ensure_eq!(foreign, 0);
    }
    Ok(())
}

nucleus::thread_entry!(keeper_entry, keeper);
/// Fills its vector registers, yields, and tells how often they were not what they had been.
fn keeper(first: u64) {
    let mut changed = 0;
    for round in 0..50 {
        let own = first + round;
        arch::fill_vectors(own);
        if call::yield_now().is_err() {
            return;
        }
        changed += u64::from(arch::held_vectors(own) != Held::Own);
    }
    if let Ok(asked) = message::receive() {
        let _ = message::send(asked.sender, tag(0, 1, 0), [changed, 0, 0, 0]);
    }
}

/// Vector registers are as they were behind each switch that the thread has not asked for by a message.
fn vectors_stay(_: &Setting) -> Outcome {
    let keepers = [1, 2, 3].map(|number| start(keeper_entry(), 0x1111_0000 * number, 3));
    let mut changed = 0;
    for keeper in keepers {
        changed += message::call(keeper?, tag(0, 0, 0), [0; 4])?.words[0];
    }
    ensure_eq!(changed, 0);
    Ok(())
}

nucleus::thread_entry!(reverser_entry, reverser);
/// Answers a long message with the same in reverse.
fn reverser(_: u64) {
    let Ok((me, _)) = call::thread_self() else { return };
    let Ok(got) = message::receive() else { return };
    let length = got.length() as usize;
    let word = |index: usize| match got.words.get(index) {
        Some(&word) => word,
        None => call::buffer_word(me, index),
    };
    let mut words = [0; MESSAGE_WORDS];
    for (index, place) in words.iter_mut().take(length).enumerate() {
        *place = word(length - 1 - index);
    }
    for (index, &word) in words.iter().enumerate().skip(4) {
        call::set_buffer_word(me, index, word);
    }
    let _ = message::send(got.sender, got.tag, [words[0], words[1], words[2], words[3]]);
}

fn long(_: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    for length in [5, 17, MESSAGE_WORDS] {
        let server = start(reverser_entry(), 0, 3)?;
        for index in 4..MESSAGE_WORDS {
            call::set_buffer_word(me, index, index as u64 * 3);
        }
        let got = message::call(server, tag(1, length as u64, 0), [0, 3, 6, 9])?;
        ensure_eq!(got.length(), length as u64);
        for index in 0..length {
            let word = match got.words.get(index) {
                Some(&word) => word,
                None => call::buffer_word(me, index),
            };
            ensure_eq!(word, (length - 1 - index) as u64 * 3);
        }
    }
    Ok(())
}

nucleus::thread_entry!(idler_entry, idler);
/// Sleeps for that many microseconds, then waits for ever.
fn idler(us: u64) {
    let _ = message::receive_within(ANYONE, us as u32);
    let _ = message::receive_from(1);
    loop {
        let _ = message::receive_within(ANYONE, u32::MAX);
    }
}

fn time_runs_out(_: &Setting) -> Outcome {
    let nobody = [0; 4];
    ensure_error!(message::receive_within(ANYONE, 0), TimedOut);
    let before = call::clock_now()?;
    ensure_error!(message::receive_within(ANYONE, 3000), TimedOut);
    let passed = call::clock_now()? - before;
    ensure!(passed >= 3_000_000, "3 ms took {passed} ns");
    // One that receives from another does not take what we send.
    let other = start(echo_entry(), 0, 3)?;
    wait_until(other, THREAD_RECEIVING)?;
    let busy = start(listener_entry(), other, 3)?;
    wait_until(busy, THREAD_RECEIVING)?;
    ensure_error!(call::ipc(busy, 0, 0, timeouts(0, 0), Window::NOTHING, nobody), TimedOut);
    let before = call::clock_now()?;
    ensure_error!(
        call::ipc(busy, 0, 0, timeouts(2000, 0), Window::NOTHING, nobody),
        TimedOut
    );
    ensure!(call::clock_now()? - before >= 2_000_000);
    call::thread_delete(busy)?;
    call::thread_delete(other)?;
    Ok(())
}

nucleus::thread_entry!(listener_entry, listener);
/// Receives from that thread alone.
fn listener(from: u64) {
    while message::receive_from(from).is_ok() {}
}

nucleus::thread_entry!(caller_entry, caller);
/// Sends its number to the first thread of the root program. The parameter holds both.
fn caller(parameter: u64) {
    let _ = message::send(parameter >> 8 << 16, tag(parameter & 0xff, 0, 0), [0; 4]);
}

/// The state of a thread, if it still exists.
pub fn state_of(thread: u64) -> Outcome<Option<u64>> {
    let (me, _) = call::thread_self()?;
    let mut registers = Registers::default();
    match arch::exchange(me, thread, EXCHANGE_READ, &mut registers) {
        Ok(state) => Ok(Some(state)),
        Err(abi::Error::NoSuchThread) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a thread is in that state: it may run on another processor.
fn wait_until(thread: u64, state: u64) -> Outcome {
    let (me, _) = call::thread_self()?;
    let mut registers = Registers::default();
    while arch::exchange(me, thread, EXCHANGE_READ, &mut registers)? != state {
        call::yield_now()?;
    }
    Ok(())
}

fn first_come(_: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    // The root program's first thread stands in the first place of the table.
    ensure_eq!(me & 0xffff, 0);
    for number in 1..=5 {
        let caller = start(caller_entry(), (me >> 16) << 8 | number, 3)?;
        wait_until(caller, THREAD_SENDING)?;
    }
    for number in 1..=5 {
        ensure_eq!(message::receive()?.label(), number);
    }
    Ok(())
}

fn stale(_: &Setting) -> Outcome {
    let first = start(echo_entry(), 0, 3)?;
    call::thread_delete(first)?;
    ensure_error!(message::send(first, 0, [0; 4]), NoSuchThread);
    ensure_error!(message::receive_from(first), NoSuchThread);
    ensure_error!(call::thread_delete(first), NoSuchThread);
    let second = start(echo_entry(), 0, 3)?;
    ensure!(second != first, "{first:#x}, then {second:#x}");
    ensure_error!(message::call(first, 0, [0; 4]), NoSuchThread);
    call::thread_delete(second)?;
    Ok(())
}

nucleus::thread_entry!(killer_entry, killer);
/// The thread whose waiting the killer waits for.
static PARTNER: AtomicU64 = AtomicU64::new(0);

/// Deletes a thread when its partner waits for it, which may be on another processor.
fn killer(victim: u64) {
    let Ok((me, _)) = call::thread_self() else { return };
    let mut registers = Registers::default();
    while let Ok(state) = arch::exchange(me, PARTNER.load(Relaxed), EXCHANGE_READ, &mut registers)
        && ![THREAD_RECEIVING, THREAD_SENDING].contains(&state)
    {
        let _ = message::receive_within(ANYONE, 1000);
    }
    let _ = call::thread_delete(victim);
}

fn deleted_partner(_: &Setting) -> Outcome {
    PARTNER.store(call::thread_self()?.0, Relaxed);
    let idle = start(idler_entry(), 50_000, 3)?;
    wait_until(idle, THREAD_RECEIVING)?;
    start(killer_entry(), idle, 3)?;
    ensure_error!(message::receive_from(idle), Deleted);
    let other = start(echo_entry(), 0, 3)?;
    wait_until(other, THREAD_RECEIVING)?;
    let busy = start(listener_entry(), other, 3)?;
    wait_until(busy, THREAD_RECEIVING)?;
    start(killer_entry(), busy, 3)?;
    ensure_error!(message::send(busy, 0, [0; 4]), NoSuchThread);
    call::thread_delete(other)?;
    Ok(())
}

fn bad_arguments(_: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    ensure_error!(message::send(me, 0, [0; 4]), BadArgument);
    ensure_error!(message::receive_from(me), BadArgument);
    ensure_error!(message::receive_from(3), BadArgument);
    let server = start(echo_entry(), 0, 3)?;
    wait_until(server, THREAD_RECEIVING)?;
    for bad in [tag(0, 65, 0), tag(0, 0, 9), tag(0, 60, 3), 1 << 15, 1 << 12, 1 << 7] {
        ensure_error!(message::send(server, bad, [0; 4]), BadArgument);
    }
    call::thread_delete(server)?;
    call::kernel_check()?;
    Ok(())
}
