//! Semaphores, and waiting for a word: order, timeouts, deletion, who may.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{FOREVER, THREAD_WAITING},
};
use rt::{
    Object, call,
    sync::{Mutex, Semaphore},
    thread,
};

use crate::{
    arch,
    assistant::{Puppet, clist_granting, wait_until},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("semaphores/count", count),
    case("semaphores/wait-and-signal", wait_and_signal),
    case("semaphores/timeout", timeout),
    case("semaphores/several-waiters", several_waiters),
    case("semaphores/deleted-with-waiters", deleted_with_waiters),
    case("semaphores/object-deleted-with-waiters", object_deleted_with_waiters),
    case("semaphores/waiter-ends", waiter_ends),
    case("semaphores/refusals", refusals),
    case("semaphores/between-domains", between_domains),
    case("addresses/wait-and-wake", wait_and_wake),
    case("addresses/changed", changed),
    case("addresses/timeout", address_timeout),
    case("addresses/wake-counts", wake_counts),
    case("addresses/refusals", address_refusals),
    case("addresses/mutex", mutex),
];

fn place() -> Outcome<Object> {
    Ok(Object::create(PAGE)?)
}

fn count(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 3)?;
    for _ in 0..3 {
        semaphore.wait_for(0)?;
    }
    ensure_error!(semaphore.wait_for(0), TimedOut);
    semaphore.signal()?;
    semaphore.wait()?;
    // Two on one page, and one anywhere inside, are different ones.
    let other = Semaphore::create(object.base() + 8, 1)?;
    ensure_error!(semaphore.wait_for(0), TimedOut);
    other.wait()?;
    other.delete()?;
    ensure_error!(other.wait_for(0), NoSuchSemaphore);
    ensure_error!(other.signal(), NoSuchSemaphore);
    ensure_error!(other.delete(), NoSuchSemaphore);
    semaphore.delete()?;
    let again = Semaphore::create(object.base(), 1)?;
    again.wait()?;
    Ok(())
}

fn wait_and_signal(_: &Setting) -> Outcome {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let object = place()?;
    let (go, done) = (
        Semaphore::create(object.base(), 0)?,
        Semaphore::create(object.base() + 16, 0)?,
    );
    let worker = thread::spawn(move || {
        for _ in 0..200 {
            if go.wait().is_err() {
                return 1;
            }
            STEPS.fetch_add(1, SeqCst);
            if done.signal().is_err() {
                return 2;
            }
        }
        0
    })?;
    for step in 0..200 {
        ensure_eq!(STEPS.load(SeqCst), step);
        go.signal()?;
        done.wait_for(5_000_000_000)?;
    }
    ensure_eq!(worker.join_status()?, 0);
    Ok(())
}

fn timeout(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    let before = rt::time::since_boot_ns();
    ensure_error!(semaphore.wait_for(20_000_000), TimedOut);
    let waited = rt::time::since_boot_ns() - before;
    ensure!(waited >= 19_000_000, "it gave up after {waited} ns");
    // A thread that gave up takes nothing.
    semaphore.signal()?;
    semaphore.wait_for(0)?;
    Ok(())
}

fn several_waiters(_: &Setting) -> Outcome {
    static ORDER: AtomicU64 = AtomicU64::new(0);
    static PLACES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    let mut waiters = alloc::vec::Vec::new();
    for place in &PLACES {
        waiters.push(thread::spawn(move || {
            let waited = semaphore.wait();
            place.store(ORDER.fetch_add(1, SeqCst) + 1, SeqCst);
            u64::from(waited.is_err())
        })?);
        let waiter = waiters[waiters.len() - 1].id();
        wait_until("it waits", || {
            call::thread_info(waiter).is_ok_and(|info| info.state == THREAD_WAITING)
        })?;
    }
    ensure_eq!(ORDER.load(SeqCst), 0);
    for woken in 1..=PLACES.len() as u64 {
        semaphore.signal()?;
        wait_until("one waiter goes on", || ORDER.load(SeqCst) == woken)?;
    }
    for waiter in waiters {
        ensure_eq!(waiter.join_status()?, 0);
    }
    // First come, first served.
    ensure_eq!(
        [0, 1, 2, 3].map(|index: usize| PLACES[index].load(SeqCst)),
        [1, 2, 3, 4]
    );
    Ok(())
}

fn waiters_of(semaphore: Semaphore) -> Outcome<alloc::vec::Vec<thread::Thread>> {
    let mut waiters = alloc::vec::Vec::new();
    for _ in 0..3 {
        waiters.push(thread::spawn(move || {
            semaphore.wait().map_or_else(|error| error as u64, |()| 0)
        })?);
    }
    wait_until("all wait", || {
        waiters.iter().all(|waiter: &thread::Thread| {
            call::thread_info(waiter.id()).is_ok_and(|info| info.state == THREAD_WAITING)
        })
    })?;
    Ok(waiters)
}

fn deleted_with_waiters(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    let waiters = waiters_of(semaphore)?;
    semaphore.delete()?;
    // A new one at the same place is not the one they waited for.
    let again = Semaphore::create(object.base(), 1)?;
    for waiter in waiters {
        ensure_eq!(waiter.join_status()?, Error::Deleted as u64);
    }
    again.wait_for(0)?;
    Ok(())
}

fn object_deleted_with_waiters(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base() + 64, 0)?;
    let waiters = waiters_of(semaphore)?;
    object.delete()?;
    for waiter in waiters {
        ensure_eq!(waiter.join_status()?, Error::Deleted as u64);
    }
    ensure!(semaphore.signal().is_err());
    Ok(())
}

fn waiter_ends(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    for waiter in waiters_of(semaphore)? {
        waiter.end(9)?;
        waiter.join()?;
    }
    // A unit that nobody waits for any more stays for the next thread.
    semaphore.signal()?;
    semaphore.wait_for(0)?;
    ensure_error!(semaphore.wait_for(0), TimedOut);
    Ok(())
}

fn refusals(_: &Setting) -> Outcome {
    let object = place()?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    ensure_error!(call::sem_create(object.base(), 0), InUse);
    let (clist, _) = clist_granting(&object, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_error!(puppet.call(Call::SemCreate, &[object.base() + 8, 0])?, Protection);
    ensure_error!(puppet.call(Call::SemDelete, &[object.base()])?, Protection);
    puppet.call(Call::SemSignal, &[object.base()])??;
    semaphore.wait_for(0)?;
    puppet.end()?;
    let stranger = Puppet::start(&[])?;
    for call in [Call::SemCreate, Call::SemWait, Call::SemSignal, Call::SemDelete] {
        ensure_error!(stranger.call(call, &[object.base(), 0])?, Protection);
        for address in [0, 1 << 47, u64::MAX, abi::address::USER_END] {
            let refused = stranger.call(call, &[address, 0])?;
            ensure!(
                matches!(
                    refused,
                    Err(Error::Protection | Error::BadAddress | Error::NoSuchSemaphore | Error::BadArgument)
                ),
                "{call:?} at {address:#x}: {refused:?}"
            );
        }
    }
    stranger.end()?;
    // A value at its end: signals do not wrap.
    let largest = object.base() + 32;
    match call::sem_create(largest, u64::MAX) {
        Ok(()) => {
            let _ = call::sem_signal(largest);
            call::sem_wait(largest, 0)?;
        }
        Err(error) => ensure_eq!(error, Error::BadArgument),
    }
    Ok(())
}

fn between_domains(_: &Setting) -> Outcome {
    let object = place()?;
    let (clist, _) = clist_granting(&object, Rights::RW)?;
    let puppet = Puppet::start(&[&clist])?;
    puppet.call(Call::SemCreate, &[object.base(), 0])??;
    let waiting = puppet.begin_call(Call::SemWait, &[object.base(), FOREVER])?;
    rt::time::sleep_ms(5)?;
    ensure!(!waiting.is_over()?);
    call::sem_signal(object.base())?;
    waiting.finish()??;
    let waiting = puppet.begin_call(Call::SemWait, &[object.base(), FOREVER])?;
    rt::time::sleep_ms(5)?;
    call::sem_delete(object.base())?;
    ensure_error!(waiting.finish()?, Deleted);
    puppet.end()
}

fn address_of(word: &AtomicU32) -> u64 {
    core::ptr::from_ref(word) as u64
}

fn wait_and_wake(_: &Setting) -> Outcome {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let waiter = thread::spawn(|| {
        while WORD.load(SeqCst) == 0 {
            match call::address_wait(address_of(&WORD), 0, FOREVER) {
                Ok(()) | Err(Error::Changed) => {}
                Err(_) => return 1,
            }
        }
        0
    })?;
    // It waits again where the word is as it was.
    let mut woken = 0;
    for _ in 0..1000 {
        woken = call::address_wake(address_of(&WORD), 1)?;
        if woken > 0 {
            break;
        }
        rt::time::sleep_ms(1)?;
    }
    ensure_eq!(woken, 1);
    WORD.store(1, SeqCst);
    call::address_wake(address_of(&WORD), 1)?;
    ensure_eq!(waiter.join_status()?, 0);
    ensure_eq!(call::address_wake(address_of(&WORD), u64::MAX)?, 0);
    Ok(())
}

fn changed(_: &Setting) -> Outcome {
    let word = AtomicU32::new(5);
    ensure_error!(call::address_wait(address_of(&word), 4, FOREVER), Changed);
    ensure_error!(call::address_wait(address_of(&word), 0, 0), Changed);
    // The word has 32 bits; what is expected beyond them can never be there.
    let refused = call::address_wait(address_of(&word), 1 << 32 | 5, 1000);
    ensure!(
        matches!(refused, Err(Error::Changed | Error::BadArgument | Error::TimedOut)),
        "{refused:?}"
    );
    Ok(())
}

fn address_timeout(_: &Setting) -> Outcome {
    let word = AtomicU32::new(5);
    ensure_error!(call::address_wait(address_of(&word), 5, 0), TimedOut);
    let before = rt::time::since_boot_ns();
    ensure_error!(call::address_wait(address_of(&word), 5, 20_000_000), TimedOut);
    let waited = rt::time::since_boot_ns() - before;
    ensure!(waited >= 19_000_000, "it gave up after {waited} ns");
    Ok(())
}

fn wake_counts(_: &Setting) -> Outcome {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let mut waiters = alloc::vec::Vec::new();
    for _ in 0..5 {
        waiters.push(thread::spawn(|| {
            call::address_wait(address_of(&WORD), 0, FOREVER).map_or_else(|error| error as u64, |()| 0)
        })?);
    }
    rt::time::sleep_ms(10)?;
    ensure_eq!(call::address_wake(address_of(&WORD), 0)?, 0);
    ensure_eq!(call::address_wake(address_of(&WORD) + 4, 5)?, 0);
    ensure_eq!(call::address_wake(address_of(&WORD), 2)?, 2);
    ensure_eq!(call::address_wake(address_of(&WORD), u64::MAX)?, 3);
    for waiter in waiters {
        ensure_eq!(waiter.join_status()?, 0);
    }
    Ok(())
}

fn address_refusals(_: &Setting) -> Outcome {
    let object = place()?;
    let puppet = Puppet::start(&[])?;
    ensure_error!(puppet.call(Call::AddressWait, &[object.base(), 0, 0])?, Protection);
    ensure_error!(puppet.call(Call::AddressWake, &[object.base(), 1])?, Protection);
    puppet.end()?;
    for address in [0, 1 << 47, u64::MAX - 3, abi::address::USER_END] {
        ensure!(
            call::address_wait(address, 0, 0).is_err() && call::address_wake(address, 1).is_err(),
            "{address:#x} is waited on"
        );
    }
    for offset in [1, 2, 3, PAGE - 2] {
        ensure_error!(call::address_wait(object.base() + offset, 0, 0), BadArgument);
    }
    ensure_eq!(arch::load(object.base()), 0);
    Ok(())
}

fn mutex(_: &Setting) -> Outcome {
    let total = alloc::sync::Arc::new(Mutex::new(0_u64));
    let mut threads = alloc::vec::Vec::new();
    for _ in 0..4 {
        let total = total.clone();
        threads.push(thread::spawn(move || {
            for step in 0..500 {
                let mut held = total.lock();
                let seen = *held;
                if step % 8 == 0 {
                    thread::yield_now();
                }
                *held = seen + 1;
            }
            0
        })?);
    }
    for thread in threads {
        ensure_eq!(thread.join_status()?, 0);
    }
    ensure_eq!(*total.lock(), 2000);
    Ok(())
}
