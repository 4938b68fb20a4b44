//! Several processors at once: what one takes away the others lose at once, what one ends stops on the others, and nothing is lost or done twice
//! meanwhile. On one processor the same cases run by time slices.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use abi::{
    address::PAGE,
    layout::{EXCEPTION_KILL, THREAD_SLEEPING},
};
use alloc::vec::Vec;
use rt::{
    Object, call, pdx,
    sync::Semaphore,
    system,
    thread::{self, Thread},
};

use crate::{
    arch::{self, handlers},
    assistant::wait_until,
    case::{Case, Outcome, Setting, case, ensure, ensure_eq},
    pages::unmap,
    pdx::service::{BOTH, Service, add_entry, linger_entry, read_entry},
    threads::spin_entry,
};

/// The cases.
pub const CASES: &[Case] = &[
    case("parallel/meet", meet),
    case("parallel/semaphores", semaphores),
    case("parallel/deleted-at-once", deleted_at_once),
    case("parallel/unmapped-at-once", unmapped_at_once),
    case("parallel/end-what-runs", end_what_runs),
    case("parallel/end-what-calls", end_what_calls),
    case("parallel/suspend-what-calls", suspend_what_calls),
    case("parallel/suspend-at-breakpoints", suspend_at_breakpoints),
    case("parallel/protected-calls", protected_calls),
    case("parallel/callees-that-go", callees_that_go),
    case("parallel/faults", faults),
    case("parallel/vector-registers", vector_registers),
];

/// Threads that a case starts: as many as there are processors, but a few in any case.
fn crowd() -> Outcome<u64> {
    Ok(system::boot()?.processors.clamp(3, 6))
}

/// Starts threads, each of which knows its number.
fn start(count: u64, run: impl Fn(u64) -> u64 + Clone + Send + 'static) -> Outcome<Vec<Thread>> {
    let mut threads = Vec::new();
    for number in 0..count {
        let run = run.clone();
        threads.push(thread::spawn(move || run(number))?);
    }
    Ok(threads)
}

fn all_well(threads: Vec<Thread>) -> Outcome {
    for thread in threads {
        ensure_eq!(thread.join_status()?, 0);
    }
    Ok(())
}

/// Lets time pass without giving the processor away where there are others; else another thread must get on.
fn pause(processors: u64) {
    if processors == 1 {
        thread::yield_now();
    } else {
        core::hint::spin_loop();
    }
}

fn meet(_: &Setting) -> Outcome {
    static STEPS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let processors = system::boot()?.processors;
    // Neither gets a step further than the other, so each must see the other go on all the time.
    let threads = start(2, move |number| {
        let (own, other) = (&STEPS[number as usize], &STEPS[1 - number as usize]);
        for step in 1..=2000 {
            own.store(step, SeqCst);
            while other.load(SeqCst) < step {
                pause(processors);
            }
        }
        0
    })?;
    all_well(threads)
}

fn semaphores(_: &Setting) -> Outcome {
    // A word that only one at a time may change, by a load and a store.
    static WORD: AtomicU64 = AtomicU64::new(0);
    const ROUNDS: u64 = 400;
    let object = Object::create(PAGE)?;
    let gate = Semaphore::create(object.base(), 1)?;
    let count = crowd()?;
    let threads = start(count, move |_| {
        for _ in 0..ROUNDS {
            if gate.wait().is_err() {
                return 1;
            }
            let seen = WORD.load(SeqCst);
            for _ in 0..20 {
                core::hint::spin_loop();
            }
            WORD.store(seen + 1, SeqCst);
            if gate.signal().is_err() {
                return 2;
            }
        }
        0
    })?;
    all_well(threads)?;
    ensure_eq!(WORD.load(SeqCst), count * ROUNDS);
    Ok(())
}

/// Threads that read a word for as long as they are let. Status 1 if a read begun after `over` was set has succeeded.
fn readers(count: u64, address: u64, over: &'static AtomicU64, inside: &'static AtomicU64) -> Outcome<Vec<Thread>> {
    over.store(0, SeqCst);
    inside.store(0, SeqCst);
    let threads = start(count, move |_| {
        let mut reads = 0;
        loop {
            let begun_after = over.load(SeqCst) != 0;
            match arch::peek(address) {
                None | Some(0) => return 0,
                Some(_) if begun_after => return 1,
                Some(_) => {}
            }
            reads += 1;
            if reads == 100 {
                inside.fetch_add(1, SeqCst);
            }
        }
    })?;
    wait_until("all read", || inside.load(SeqCst) == count)?;
    Ok(threads)
}

fn deleted_at_once(_: &Setting) -> Outcome {
    static OVER: AtomicU64 = AtomicU64::new(0);
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    arch::guard()?;
    let count = crowd()?;
    for _ in 0..10 {
        let object = Object::create(PAGE)?;
        let address = object.base() + 8;
        arch::store(address, 77);
        let threads = readers(count, address, &OVER, &INSIDE)?;
        object.delete()?;
        OVER.store(1, SeqCst);
        all_well(threads)?;
    }
    Ok(())
}

fn unmapped_at_once(_: &Setting) -> Outcome {
    static OVER: AtomicU64 = AtomicU64::new(0);
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    arch::guard()?;
    let count = crowd()?;
    let object = Object::create(2 * PAGE)?;
    for _ in 0..10 {
        let address = object.base() + PAGE;
        arch::store(address, 77);
        let threads = readers(count, address, &OVER, &INSIDE)?;
        unmap(object.base() + PAGE, 1, abi::layout::UNMAP_ZERO)?;
        OVER.store(1, SeqCst);
        all_well(threads)?;
    }
    Ok(())
}

fn end_what_runs(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    for round in 0..20 {
        let address = object.base() + round * 8;
        let thread = thread::start(spin_entry(), address, abi::layout::PRIORITY_DEFAULT)?;
        wait_until("it counts", || arch::load(address) > 0)?;
        thread.end(round)?;
        let at = arch::load(address);
        let report = thread.join()?;
        ensure_eq!(report.exception, EXCEPTION_KILL);
        ensure_eq!(report.status, round);
        ensure_eq!(arch::load(address), at);
    }
    Ok(())
}

fn end_what_calls(_: &Setting) -> Outcome {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let _service = Service::open(&[])?;
    let object = Object::create(PAGE)?;
    let gate = Semaphore::create(object.base(), 0)?;
    for round in 0..24 {
        let before = CALLS.load(SeqCst);
        let thread = thread::spawn(move || {
            loop {
                CALLS.fetch_add(1, SeqCst);
                match round % 4 {
                    0 => drop(call::thread_my_id()),
                    1 => drop(gate.signal()),
                    2 => drop(gate.wait_for(100_000)),
                    _ => drop(pdx::call(add_entry(), BOTH[round as usize / 4 % 2], [1, 2, 3, 4])),
                }
            }
        })?;
        wait_until("it calls", || CALLS.load(SeqCst) > before + 10)?;
        thread.end(round)?;
        ensure_eq!(thread.join()?.status, round);
        let at = CALLS.load(SeqCst);
        rt::time::sleep_ms(1)?;
        ensure_eq!(CALLS.load(SeqCst), at);
    }
    Ok(())
}

fn suspend_what_calls(_: &Setting) -> Outcome {
    const SIGNALS: u64 = 3000;
    let object = Object::create(PAGE)?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    let worker = thread::spawn(move || {
        for _ in 0..SIGNALS {
            if semaphore.signal().is_err() {
                return 1;
            }
        }
        0
    })?;
    // Taken off wherever it is, in user code or waiting with a call: each call is done once.
    for _ in 0..60 {
        if worker.suspend().is_err() {
            break;
        }
        let info = call::thread_info(worker.id())?;
        if info.state != THREAD_SLEEPING {
            break;
        }
        worker.resume()?;
        thread::yield_now();
    }
    worker.resume().ok();
    ensure_eq!(worker.join_status()?, 0);
    for _ in 0..SIGNALS {
        semaphore.wait_for(0)?;
    }
    ensure!(semaphore.wait_for(0).is_err(), "a signal was given twice");
    Ok(())
}

fn suspend_at_breakpoints(_: &Setting) -> Outcome {
    const BREAKPOINTS: u64 = 3000;
    static MISSED: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicU64 = AtomicU64::new(0);
    let worker = thread::spawn(|| {
        for _ in 0..BREAKPOINTS {
            if handlers::skip_breakpoint().ok() != Some(handlers::seen()[2]) {
                MISSED.fetch_add(1, SeqCst);
            }
            DONE.fetch_add(1, SeqCst);
        }
        0
    })?;
    // Its instruction is behind when the exception comes: taken off before it is told, the thread would not run into it again.
    while DONE.load(SeqCst) < BREAKPOINTS {
        if worker.suspend().is_err() || worker.resume().is_err() {
            break;
        }
        thread::yield_now();
    }
    ensure_eq!(worker.join_status()?, 0);
    ensure_eq!(MISSED.load(SeqCst), 0);
    Ok(())
}

fn protected_calls(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    let threads = start(crowd()?, |number| {
        for step in 0..400 {
            let domain = BOTH[(number + step) as usize % 2];
            let [a, c] = [number << 32 | step, step << 20];
            if pdx::call(add_entry(), domain, [a, 9, c, number]) != Ok((a + 9, c ^ number)) {
                return 1;
            }
            if step % 50 == 0 && pdx::call(linger_entry(), domain, [1, 0, 0, 0]) != Ok((1, 0)) {
                return 2;
            }
        }
        0
    })?;
    // Meanwhile all remembered ways are forgotten, again and again.
    for _ in 0..20 {
        call::apd_flush()?;
        thread::yield_now();
    }
    all_well(threads)
}

/// Threads come back from callees by a fault there and end at once, while the callees are destroyed: no processor may be left on a
/// root that is freed (decision 0070).
fn callees_that_go(_: &Setting) -> Outcome {
    let count = crowd()?;
    for round in 0..30 {
        let service = Service::open(&[])?;
        let threads = start(count, move |number| {
            let domain = BOTH[(number + round) as usize % 2];
            for _ in 0..=(number + round) % 4 {
                // It faults there, or cannot be entered any more.
                if pdx::call(read_entry(), domain, [8, 0, 0, 0]).is_ok() {
                    return 1;
                }
            }
            0
        })?;
        if round % 3 > 0 {
            thread::yield_now();
        }
        // Without the right to call it nobody needs the callees: they go.
        call::obj_passwd(service.image, service.password, 0)?;
        all_well(threads)?;
    }
    Ok(())
}

fn faults(_: &Setting) -> Outcome {
    const PAGES: u64 = 600;
    let shared = Object::create(PAGES * PAGE)?;
    let base = shared.base();
    let count = crowd()?;
    // All touch the same pages first, each leaves his own word, and pages come and go beside.
    let threads = start(count, move |number| {
        for page in 0..PAGES {
            arch::store(base + page * PAGE + number * 8, page << 8 | number);
        }
        let Ok(own) = Object::create(64 * PAGE) else { return 1 };
        for page in 0..64 {
            if arch::load(own.base() + page * PAGE) != 0 {
                return 2;
            }
            arch::store(own.base() + page * PAGE, number + 1);
        }
        u64::from(own.delete().is_err())
    })?;
    all_well(threads)?;
    for page in 0..PAGES {
        for number in 0..count {
            ensure_eq!(arch::load(base + page * PAGE + number * 8), page << 8 | number);
        }
    }
    Ok(())
}

fn vector_registers(_: &Setting) -> Outcome {
    // More threads than processors, each with a pattern of its own, moved about while they hold it.
    let threads = start(crowd()? * 2, |number| {
        for round in 0..40 {
            if arch::vectors::hold(number << 32 | round, 200_000) != 0 {
                return 1;
            }
            thread::yield_now();
        }
        0
    })?;
    for _ in 0..30 {
        for thread in &threads {
            if thread.suspend().is_ok() {
                thread.resume()?;
            }
        }
        thread::yield_now();
    }
    all_well(threads)
}
