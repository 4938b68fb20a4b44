//! Threads and tasks: made, waited for, ended, suspended, preempted; identifiers; accounts.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use alloc::vec::Vec;

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{
        EXCEPTION_KILL, EXCEPTION_PROTECTION, FOREVER, PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, STATUS_SYSTEM,
        THREAD_ENDED, THREAD_RUNNING, THREAD_SLEEPING,
    },
};
use rt::{
    Object, call,
    thread::{self, Thread},
};

use crate::{
    arch,
    assistant::{PATIENCE_NS, Puppet, apd_of, clist_granting, confined, start, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("threads/create-and-wait", create_and_wait),
    case("threads/wait-any", wait_any),
    case("threads/wait-times-out", wait_times_out),
    case("threads/delete", delete),
    case("threads/sleep-and-resume", sleep_and_resume),
    case("threads/suspend", suspend),
    case("threads/preemption", preemption),
    case("threads/priorities", priorities),
    case("threads/yield", yields),
    case("threads/info", info),
    case("threads/stale-identifiers", stale_identifiers),
    case("threads/bad-arguments", bad_arguments),
    case("threads/many", many),
    case("threads/limit", limit),
    case("threads/foreign", foreign),
    case("threads/fault-of-one", fault_of_one),
    case("threads/deep-stacks", deep_stacks),
];

/// The parts.
pub const ROLES: &[Role] = &[role("start-threads", start_threads)];

rt::thread_entry!(end_with, end_with_status);
fn end_with_status(status: u64) -> u64 {
    status
}

rt::thread_entry!(sleep_entry, sleep_and_end);
fn sleep_and_end(ms: u64) -> u64 {
    u64::from(rt::time::sleep_ms(ms).is_err())
}

rt::thread_entry!(pub spin_entry, spin);
fn spin(address: u64) -> u64 {
    loop {
        if address != 0 {
            arch::store(address, arch::load(address) + 1);
        }
    }
}

rt::thread_entry!(access_entry, access);
fn access(address: u64) -> u64 {
    core::hint::black_box(arch::load(address));
    0
}

fn new(entry: call::ThreadEntry, parameter: u64) -> Outcome<Thread> {
    Ok(thread::start(entry, parameter, PRIORITY_DEFAULT)?)
}

fn create_and_wait(_: &Setting) -> Outcome {
    for status in [0, 1, 77, STATUS_SYSTEM - 1] {
        let thread = new(end_with(), status)?;
        ensure!(thread.id() != 0 && thread.id() != call::thread_my_id());
        let report = thread.join()?;
        ensure_eq!(
            (report.thread, report.status, report.exception),
            (thread.id(), status, 0)
        );
        ensure_error!(thread.join(), NoSuchThread);
    }
    let total = alloc::sync::Arc::new(AtomicU64::new(0));
    let mut threads = alloc::vec::Vec::new();
    for index in 0..10 {
        let total = total.clone();
        threads.push(thread::spawn(move || {
            total.fetch_add(index, SeqCst);
            index
        })?);
    }
    for (index, thread) in threads.iter().enumerate() {
        ensure_eq!(thread.join_status()?, index as u64);
    }
    ensure_eq!(total.load(SeqCst), 45);
    Ok(())
}

fn wait_any(_: &Setting) -> Outcome {
    ensure_error!(call::thread_wait(0, FOREVER), NoSuchThread);
    let mut ids = alloc::vec::Vec::new();
    for status in 0..8 {
        ids.push(new(end_with(), status)?.id());
    }
    for _ in 0..8 {
        let report = call::thread_wait(0, PATIENCE_NS)?;
        let place = ids.iter().position(|&id| id == report.thread);
        ensure!(place.is_some(), "thread {:#x} came twice or is not ours", report.thread);
        ids.swap_remove(place.unwrap_or_default());
    }
    ensure_error!(call::thread_wait(0, 0), NoSuchThread);
    Ok(())
}

fn wait_times_out(_: &Setting) -> Outcome {
    let thread = new(sleep_entry(), 60)?;
    ensure_error!(call::thread_wait(thread.id(), 0), TimedOut);
    let before = rt::time::since_boot_ns();
    ensure_error!(call::thread_wait(thread.id(), 10_000_000), TimedOut);
    let waited = rt::time::since_boot_ns() - before;
    ensure!(waited >= 9_000_000, "it gave up after {waited} ns");
    ensure_eq!(thread.join_status()?, 0);
    Ok(())
}

fn delete(_: &Setting) -> Outcome {
    for entry in [spin_entry(), sleep_entry()] {
        let thread = new(entry, if entry == spin_entry() { 0 } else { 100_000 })?;
        rt::time::sleep_ms(2)?;
        thread.end(55)?;
        let report = thread.join()?;
        ensure_eq!(report.exception, EXCEPTION_KILL);
        ensure_eq!(report.status, 55);
    }
    let ended = new(end_with(), 4)?;
    rt::time::sleep_ms(5)?;
    ended.end(9)?;
    ensure_eq!(ended.join_status()?, 4);
    ensure_error!(ended.end(1), NoSuchThread);
    Ok(())
}

fn sleep_and_resume(_: &Setting) -> Outcome {
    let before = rt::time::since_boot_ns();
    rt::time::sleep_ms(20)?;
    let slept = rt::time::since_boot_ns() - before;
    ensure!(slept >= 19_000_000, "20 ms of sleep took {slept} ns");
    let sleeper = new(sleep_entry(), 100_000)?;
    wait_until("it sleeps", || {
        call::thread_info(sleeper.id()).is_ok_and(|info| info.state == THREAD_SLEEPING)
    })?;
    sleeper.resume()?;
    let report = call::thread_wait(sleeper.id(), PATIENCE_NS)?;
    ensure_eq!(report.exception, 0);
    Ok(())
}

fn suspend(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let thread = new(spin_entry(), object.base())?;
    wait_until("it counts", || arch::load(object.base()) > 0)?;
    for _ in 0..5 {
        thread.suspend()?;
        let at = arch::load(object.base());
        ensure_eq!(call::thread_info(thread.id())?.state, THREAD_SLEEPING);
        rt::time::sleep_ms(15)?;
        ensure_eq!(arch::load(object.base()), at);
        thread.resume()?;
        wait_until("it counts on", || arch::load(object.base()) > at)?;
    }
    // Suspending twice takes one resume; resuming what runs is no harm.
    thread.suspend()?;
    thread.suspend()?;
    let at = arch::load(object.base());
    thread.resume()?;
    thread.resume()?;
    wait_until("it counts on", || arch::load(object.base()) > at)?;
    ensure_error!(call::thread_sleep(thread.id(), 5), BadArgument);
    thread.suspend()?;
    thread.end(0)?;
    ensure_eq!(thread.join()?.exception, EXCEPTION_KILL);
    Ok(())
}

fn preemption(_: &Setting) -> Outcome {
    // Two that never rest, beside this one: all three get on.
    let objects = [Object::create(PAGE)?, Object::create(PAGE)?];
    let threads = [
        new(spin_entry(), objects[0].base())?,
        new(spin_entry(), objects[1].base())?,
    ];
    for _ in 0..3 {
        let before = [0, 1].map(|index: usize| arch::load(objects[index].base()));
        wait_until("both get on", || {
            (0..2).all(|index| arch::load(objects[index].base()) > before[index])
        })?;
    }
    let times = threads.map(|thread| call::thread_info(thread.id()).map_or(0, |info| info.time_ns));
    ensure!(times[0] > 0 && times[1] > 0, "processor times are {times:?}");
    for thread in threads {
        thread.end(0)?;
        thread.join()?;
    }
    Ok(())
}

fn priorities(_: &Setting) -> Outcome {
    let own = call::thread_info(0)?.priority;
    let object = Object::create(PAGE)?;
    // Every other processor is busy with a thread like this one.
    let processors = rt::system::boot()?.processors;
    let busy = (1..processors)
        .map(|number| new(spin_entry(), object.base() + number * 8))
        .collect::<Outcome<Vec<_>>>()?;
    let low = thread::start(spin_entry(), object.base(), PRIORITY_MIN)?;
    ensure_eq!(call::thread_info(low.id())?.priority, PRIORITY_MIN);
    wait_until("it runs while nobody else wants to", || arch::load(object.base()) > 0)?;
    // While these threads do not rest, a lower one does not run: from when all of them are at it, which
    // takes until nobody else that has just been awake is.
    let spin = |ns| {
        let end = rt::time::since_boot_ns() + ns;
        while rt::time::since_boot_ns() < end {}
    };
    let mut ran = u64::MAX;
    for _ in 0..20 {
        spin(20_000_000);
        let at = arch::load(object.base());
        spin(60_000_000);
        ran = arch::load(object.base()) - at;
        if ran == 0 {
            break;
        }
    }
    ensure!(ran == 0, "it counted to {ran} meanwhile");
    for thread in busy {
        thread.end(0)?;
        thread.join()?;
    }
    low.end(0)?;
    low.join()?;
    // Nobody gives more than he has.
    let high = thread::start(sleep_entry(), 1, PRIORITY_MAX)?;
    ensure!(call::thread_info(high.id())?.priority <= own);
    high.join()?;
    Ok(())
}

fn yields(_: &Setting) -> Outcome {
    static TURNS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let turn = |index: usize| {
        move || {
            for _ in 0..1000 {
                TURNS[index].fetch_add(1, SeqCst);
                thread::yield_now();
            }
            0
        }
    };
    let (one, other) = (thread::spawn(turn(0))?, thread::spawn(turn(1))?);
    one.join()?;
    let [first, second] = [0, 1].map(|index: usize| TURNS[index].load(SeqCst));
    // On one processor they take turns; on several each goes on by itself.
    let least = if rt::system::boot()?.processors == 1 { 500 } else { 0 };
    ensure!(first == 1000 && second >= least, "turns {first} and {second}");
    other.join()?;
    ensure_eq!(TURNS[1].load(SeqCst), 1000);
    Ok(())
}

fn info(_: &Setting) -> Outcome {
    let own = call::thread_info(0)?;
    ensure_eq!(own.thread, call::thread_my_id());
    ensure_eq!(own.state, THREAD_RUNNING);
    ensure_eq!(own.depth, 0);
    ensure!(own.task != 0 && own.parent != 0);
    let child = new(end_with(), 1)?;
    wait_until("it has ended", || {
        call::thread_info(child.id()).is_ok_and(|info| info.state == THREAD_ENDED)
    })?;
    let report = call::thread_info(child.id())?;
    ensure_eq!(
        (report.thread, report.task, report.parent),
        (child.id(), own.task, own.thread)
    );
    child.join()?;
    ensure_error!(call::thread_info(child.id()), NoSuchThread);
    for buffer in [0, 1 << 47, u64::MAX, abi::address::USER_END - 8] {
        let answer = arch::system_call(Call::ThreadInfo as u64, [0, buffer, abi::address::PAGE, 0, 0, 0]).result();
        ensure!(
            matches!(answer, Err(Error::Protection | Error::BadAddress)),
            "buffer {buffer:#x}: {answer:?}"
        );
    }
    Ok(())
}

fn stale_identifiers(_: &Setting) -> Outcome {
    let mut old = alloc::vec::Vec::new();
    for round in 0..600 {
        let thread = new(end_with(), round)?;
        ensure!(
            !old.contains(&thread.id()),
            "round {round}: {:#x} was given before",
            thread.id()
        );
        ensure_eq!(thread.join_status()?, round);
        old.push(thread.id());
    }
    let live = new(sleep_entry(), 100_000)?;
    for &id in old.iter().rev().take(50) {
        ensure_error!(call::thread_delete(id, 0), NoSuchThread);
        ensure_error!(call::thread_resume(id), NoSuchThread);
        ensure_error!(call::thread_sleep(id, FOREVER), NoSuchThread);
        ensure_error!(call::thread_info(id), NoSuchThread);
        ensure_error!(call::thread_wait(id, 0), NoSuchThread);
        ensure_error!(call::console_foreground(id), NoSuchThread);
    }
    ensure_eq!(call::thread_info(live.id())?.thread, live.id());
    live.end(0)?;
    live.join()?;
    Ok(())
}

fn bad_arguments(_: &Setting) -> Outcome {
    for id in [1, 0xffff, u64::MAX, 1 << 63, call::thread_my_id() ^ 1 << 40] {
        ensure_error!(call::thread_delete(id, 0), NoSuchThread);
        ensure_error!(call::thread_info(id), NoSuchThread);
        ensure_error!(call::thread_resume(id), NoSuchThread);
        ensure_error!(call::thread_wait(id, 0), NoSuchThread);
    }
    let create = |entry, priority| arch::system_call(Call::ThreadCreate as u64, [entry, 0, priority, 0, 0, 0]).result();
    let good = end_with().address();
    for priority in [PRIORITY_MAX + 1, 255, 256, u64::MAX] {
        ensure_error!(create(good, priority), BadArgument);
    }
    for entry in [
        0,
        1 << 47,
        u64::MAX,
        abi::address::USER_END,
        abi::address::USER_END - 1,
        0xffff_ffff_8010_0000,
    ] {
        let refused = create(entry, 3);
        ensure!(
            matches!(refused, Err(Error::BadAddress | Error::Protection)),
            "entry {entry:#x}: {refused:?}"
        );
    }
    let data = Object::create(PAGE)?;
    call::page_limit(data.base(), 1, Rights::RW.bits().into())?;
    // The page forbids it: the call, or the thread that begins there, finds out.
    if let Ok((thread, _)) = create(data.base(), 3) {
        ensure_eq!(call::thread_wait(thread, PATIENCE_NS)?.exception, EXCEPTION_PROTECTION);
    }
    let here = core::hint::black_box(0_u64);
    ensure_error!(create(&raw const here as u64, 3), Protection);
    Ok(())
}

fn many(_: &Setting) -> Outcome {
    for _ in 0..4 {
        let mut threads = alloc::vec::Vec::new();
        for index in 0..100 {
            threads.push(new(end_with(), index)?);
        }
        for (index, thread) in threads.iter().enumerate() {
            ensure_eq!(thread.join_status()?, index as u64);
        }
    }
    Ok(())
}

/// Makes threads until that is refused, writes how many there are, and waits to be ended.
fn start_threads(numbers: &[u64; 6]) -> u64 {
    let mut count = 0;
    while thread::start(sleep_entry(), 1_000_000, PRIORITY_DEFAULT).is_ok() && count < 10_000 {
        count += 1;
    }
    arch::store(numbers[0], count + 1);
    u64::from(call::thread_sleep(0, FOREVER).is_err())
}

fn limit(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&object, Rights::RW)?;
    let apd = apd_of(&[&clist]);
    let before = rt::system::threads().count();
    for _ in 0..2 {
        arch::store(object.base(), 0);
        let task = start("start-threads", &[object.base()], &confined(&apd))?;
        wait_until("no more threads are made", || arch::load(object.base()) != 0)?;
        let count = arch::load(object.base()) - 1;
        // Others can still make theirs; and ending the first thread ends all of them.
        new(end_with(), 1)?.join()?;
        task.end(0)?;
        task.wait_for(PATIENCE_NS)?;
        // The account's limit stops it, which follows from the machine's memory: several thousand.
        ensure!((2000..10_000).contains(&count), "{count} threads were made");
        wait_until("its threads are gone", || rt::system::threads().count() <= before)?;
    }
    Ok(())
}

fn foreign(_: &Setting) -> Outcome {
    // A puppet may do nothing to threads that are not its own or its children.
    let puppet = Puppet::start(&[])?;
    let own = call::thread_my_id();
    let child = new(sleep_entry(), 100_000)?;
    let parent = call::thread_info(0)?.parent;
    for id in [own, child.id(), parent] {
        ensure_error!(puppet.call(Call::ThreadDelete, &[id, 1])?, NoSuchThread);
        ensure_error!(puppet.call(Call::ThreadSleep, &[id, FOREVER])?, NoSuchThread);
        ensure_error!(puppet.call(Call::ThreadResume, &[id])?, NoSuchThread);
        ensure_error!(puppet.call(Call::ThreadWait, &[id, 0, 0])?, NoSuchThread);
        ensure_error!(puppet.call(Call::ConsoleForeground, &[id])?, NoSuchThread);
    }
    ensure_error!(call::thread_sleep(puppet.task().thread(), FOREVER), NoSuchThread);
    child.end(0)?;
    child.join()?;
    puppet.end()
}

fn fault_of_one(_: &Setting) -> Outcome {
    let thread = new(access_entry(), 0x1238)?;
    let report = thread.join()?;
    ensure_eq!((report.exception, report.address), (EXCEPTION_PROTECTION, 0x1238));
    ensure_eq!(report.status, STATUS_SYSTEM + EXCEPTION_PROTECTION);
    Ok(())
}

fn deep_stacks(_: &Setting) -> Outcome {
    // A thread may count on these registers, and the next one on the same stack, too.
    fn deep(depth: u64) -> u64 {
        let frame = core::hint::black_box([depth; 100]);
        if depth == 0 {
            0
        } else {
            deep(depth - 1) + frame[7] - depth
        }
    }
    for _ in 0..3 {
        ensure_eq!(thread::spawn(|| deep(1000))?.join_status()?, 0);
    }
    Ok(())
}
