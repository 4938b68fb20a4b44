//! Reports of the system about itself; accounts; and that nothing is lost on the way.

use abi::{
    Call, Error, Rights,
    address::{PAGE, ROOT_DIRECTORY},
    kernel_page::{DOMAIN_ECHO, DOMAIN_RANDOM, DOMAINS, FEATURE_SERVER, KERNEL_PAGE, SYSTEM_CALL_STUB},
    layout::{EXCEPTION_RESOURCE, TOPIC_LOG, TOPIC_OBJECT, TOPIC_SNAPSHOT, TOPIC_THREAD},
};
use rt::{Object, call, system, task::Options};

use crate::{
    arch,
    assistant::{Puppet, apd_of, clist_granting, confined, report_of, run, start, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("system/topics", topics),
    case("system/lists", lists),
    case("system/sight", sight),
    case("system/unknown-calls", unknown_calls),
    case("system/clock", clock),
    case("system/kernel-page", kernel_page),
    case("system/kernel-domains", kernel_domains),
    case("system/random", random),
    case("system/control-refusals", control_refusals),
    case("accounts/pages", pages),
    case("accounts/objects", objects),
    Case {
        limit_ms: 60_000,
        ..case("accounts/all-memory", all_memory)
    },
    Case {
        limit_ms: 60_000,
        ..case("system/memory-balance", memory_balance)
    },
];

/// The parts.
pub const ROLES: &[Role] = &[
    role("exhaust-pages", exhaust_pages),
    role("exhaust-objects", exhaust_objects),
    role("churn", churn),
];

fn topics(_: &Setting) -> Outcome {
    let memory = system::memory()?;
    ensure!(
        memory.frames > 1000 && memory.free < memory.frames && memory.free > 0,
        "{memory:?}"
    );
    ensure!(
        memory.kernel > 0 && memory.object_pages > 0 && memory.tables > 0 && memory.objects > 3,
        "{memory:?}"
    );
    ensure!(
        memory.kernel + memory.free + memory.tables <= memory.frames,
        "{memory:?}"
    );
    let store = system::store()?;
    ensure!(
        store.blocks > 0 && store.free <= store.blocks && store.objects >= 3,
        "{store:?}"
    );
    ensure_eq!(store.damaged, 0);
    let boot = system::boot()?;
    ensure!(
        boot.processors >= 1 && boot.ticks_per_us > 0 && boot.script <= 1 && boot.clean <= 1,
        "{boot:?}"
    );
    let mut words = [0; 16];
    for topic in [TOPIC_LOG + 1, 100, u64::MAX] {
        ensure_error!(call::system_info(topic, 0, &mut words), BadArgument);
    }
    let mut line = [0; 256];
    let (position, count) = system::log(0, &mut line)?;
    ensure!(
        position > 0 || line[..count].windows(10).any(|text| text == b" start at "),
        "{:?}",
        &line[..count]
    );
    Ok(())
}

fn lists(_: &Setting) -> Outcome {
    let own = call::thread_info(0)?;
    ensure_eq!(
        system::threads()
            .filter(|report| report.thread == own.thread && report.task == own.task)
            .count(),
        1
    );
    ensure!(system::domains().any(|report| report.domain == own.domain && report.task == own.task));
    let object = Object::create(3 * PAGE)?;
    let listed = system::objects().find(|info| info.base == object.base());
    ensure_eq!(listed.map(|info| info.bytes), Some(3 * PAGE));
    let bases: alloc::vec::Vec<u64> = system::objects().map(|info| info.base).collect();
    ensure!(
        bases.windows(2).all(|pair| pair[0] < pair[1]),
        "objects are not in order"
    );
    let mut words = [0; 16];
    for topic in 3..=TOPIC_SNAPSHOT {
        ensure!(
            call::system_info(topic, u64::MAX, &mut words).is_err(),
            "topic {topic} has an entry at the end of all numbers"
        );
    }
    Ok(())
}

/// A task without capabilities is told of itself, and of nobody else.
fn sight(_: &Setting) -> Outcome {
    let shared = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&shared, Rights::RW)?;
    let puppet = Puppet::start(&[&clist])?;
    let thread = puppet.task().thread();
    ensure!(call::thread_info(thread).is_ok());
    ensure_error!(
        puppet.call(Call::ThreadInfo, &[call::thread_my_id(), 0, 0])?,
        NoSuchThread
    );
    ensure!(puppet.call(Call::ThreadInfo, &[thread, 0, 0])?.is_ok());
    let mut lists = [0_u64; 3];
    for (topic, count) in (TOPIC_THREAD..=TOPIC_OBJECT).zip(&mut lists) {
        let mut next = 0;
        while puppet.call(Call::SystemInfo, &[topic, next, shared.base(), 8])?.is_ok() {
            let number = arch::load(shared.base());
            ensure!(topic != TOPIC_THREAD || number == thread, "it sees thread {number:#x}");
            ensure!(topic != TOPIC_OBJECT || number != ROOT_DIRECTORY);
            next = number + 1;
            *count += 1;
        }
    }
    ensure!(
        lists[0] == 1 && lists[1] == 1 && (1..30).contains(&lists[2]),
        "threads, domains, objects: {lists:?}"
    );
    puppet.end()
}

fn unknown_calls(_: &Setting) -> Outcome {
    for number in (0..2000).chain([1 << 16, 1 << 31, 1 << 32, u64::MAX]) {
        if Call::from_number(number).is_none() {
            ensure_error!(arch::system_call(number, [0; 6]).result(), BadCall);
        }
    }
    Ok(())
}

fn clock(_: &Setting) -> Outcome {
    let mut last = 0;
    for _ in 0..10_000 {
        let (now, _) = call::clock_read()?;
        ensure!(now >= last, "the clock went from {last} to {now}");
        last = now;
    }
    let (ns, ticks) = (call::clock_read()?.0, rt::time::ticks());
    rt::time::sleep_ms(50)?;
    let (ns, ticks) = (call::clock_read()?.0 - ns, rt::time::ticks() - ticks);
    let by_ticks = ticks * 1000 / system::boot()?.ticks_per_us.max(1);
    ensure!(
        ns.abs_diff(by_ticks) < ns / 4,
        "{ns} ns by the clock, {by_ticks} ns by the counter"
    );
    Ok(())
}

/// Processors' counters may be a little apart.
const APART_NS: u64 = 1_000_000;

fn kernel_page(_: &Setting) -> Outcome {
    let page = call::kernel_page::read().ok_or(Error::BadAddress)?;
    ensure!(
        page.version >= 1 && page.features & FEATURE_SERVER != 0 && page.domain_count >= DOMAINS as u64,
        "{page:?}"
    );
    for _ in 0..100 {
        let (before, of_day) = call::clock_read()?;
        let here = rt::time::since_boot_ns();
        let (after, _) = call::clock_read()?;
        ensure!(
            before <= here + APART_NS && here <= after + APART_NS,
            "{here} ns by the page, between {before} and {after} by the call"
        );
        ensure_eq!(of_day, page.boot_time_ns + before);
    }
    ensure_eq!(
        arch::call_by(KERNEL_PAGE + SYSTEM_CALL_STUB, Call::ThreadMyId as u64),
        call::thread_my_id()
    );
    arch::guard()?;
    ensure_eq!(arch::peek(KERNEL_PAGE), Some(page.magic));
    ensure!(!arch::poke(KERNEL_PAGE + 512, 1), "the kernel page can be written");
    for address in [KERNEL_PAGE - 8, KERNEL_PAGE + PAGE] {
        ensure_eq!(arch::peek(address), None);
    }
    Ok(())
}

fn kernel_domains(_: &Setting) -> Outcome {
    let entry = |number| call::kernel_page::domain(number).ok_or(Error::NotAnEntry);
    let (echo, random) = (entry(DOMAIN_ECHO)?, entry(DOMAIN_RANDOM)?);
    for round in 0..100 {
        ensure_eq!(call::domain_call(echo, 1, 2, 3, round)?, (6 + round, 0));
    }
    let words = [
        call::domain_call(random, 0, 0, 0, 0)?,
        call::domain_call(random, 0, 0, 0, 0)?,
    ];
    ensure!(
        words[0].1 == 0 || words[1].1 == 0 || words[0].0 != words[1].0,
        "{words:x?}"
    );
    for other in [
        0,
        1,
        echo + 1,
        KERNEL_PAGE + SYSTEM_CALL_STUB,
        0xffff_ffff_8000_0000,
        u64::MAX,
    ] {
        ensure_error!(call::domain_call(other, 1, 2, 3, 4), NotAnEntry);
    }
    // A way into a kernel domain is none for protected calls, whatever kind they ask for.
    for pd in [0, 1, 2, u64::MAX] {
        call::domain_call(echo, 1, 2, 3, 4)?;
        ensure!(call::pdx_call(echo, 1, pd, 2, 3, 4).is_err(), "pd {pd:#x}");
    }
    arch::guard()?;
    ensure_eq!(arch::peek(echo), None);
    ensure!(!arch::fetch(echo), "kernel code runs in user mode");
    Ok(())
}

fn random(_: &Setting) -> Outcome {
    let mut words = alloc::vec::Vec::new();
    for _ in 0..64 {
        words.push(call::random_read()?);
    }
    let bits: u32 = words.iter().map(|word| word.count_ones()).sum();
    words.sort_unstable();
    words.dedup();
    ensure_eq!(words.len(), 64);
    ensure!((1700..2400).contains(&bits), "{bits} of 4096 bits are set");
    Ok(())
}

fn control_refusals(_: &Setting) -> Outcome {
    let control = |operation, argument| call::system_control(operation, argument, 0, 0, 0);
    for operation in [abi::layout::CONTROL_DISK + 1, 100, u64::MAX] {
        ensure_error!(control(operation, 0), BadArgument);
    }
    ensure_error!(control(abi::layout::CONTROL_DISK, 2), BadArgument);
    // No snapshot has these for a name.
    for word in [0, 1, 0x2f61, 0x61_0061, u64::MAX] {
        for operation in [abi::layout::CONTROL_KEEP_SNAPSHOT, abi::layout::CONTROL_DROP_SNAPSHOT] {
            ensure_error!(control(operation, word), BadArgument);
        }
    }
    // Neither does a scrub begin or end for a word that means nothing.
    for word in [2, u64::MAX] {
        ensure_error!(control(abi::layout::CONTROL_SCRUB, word), BadArgument);
    }
    // A power-off with an outcome that there is not must not happen.
    for outcome in [0, 1, 0x12, 0x13, 0x110, u64::MAX] {
        ensure_error!(control(abi::layout::CONTROL_POWER_OFF, outcome), BadArgument);
    }
    Ok(())
}

/// Touches page after page for ever, and counts them at an address, if there is one.
fn exhaust_pages(numbers: &[u64; 6]) -> u64 {
    let Ok(object) = Object::create(1 << 34) else { return 1 };
    for page in 0..object.bytes() / PAGE {
        arch::store(object.base() + page * PAGE, page);
        if numbers[0] != 0 {
            arch::store(numbers[0], page + 1);
        }
    }
    2
}

/// Makes objects until that is refused. The status is that of the refusal.
fn exhaust_objects(numbers: &[u64; 6]) -> u64 {
    loop {
        match Object::create(PAGE) {
            Ok(object) if numbers[0] != 0 => arch::store(object.base(), 1),
            Ok(_) => {}
            Err(error) => return error as u64,
        }
    }
}

fn pages(_: &Setting) -> Outcome {
    let free = system::memory()?.free;
    let counter = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&counter, Rights::RW)?;
    let apd = apd_of(&[&clist]);
    // The image counts too, so the least of these is just above it.
    let image = rt::pdx::own_image().map_or(0, |(_, bytes)| bytes / PAGE);
    for limit_pages in [image + 80, image + 500, image + 3000] {
        let options = Options {
            limit_pages,
            ..confined(&apd)
        };
        let report = run("exhaust-pages", &[counter.base()], &options)?;
        ensure_eq!(report.exception, EXCEPTION_RESOURCE);
        ensure!(report.address != 0 && report.instruction != 0, "{report:x?}");
        let touched = arch::load(counter.base());
        ensure!(
            (limit_pages - image - 80..=limit_pages).contains(&touched),
            "with at most {limit_pages} pages it touched {touched}"
        );
    }
    wait_until("its memory is free again", || {
        system::memory().is_ok_and(|memory| memory.free + 64 >= free)
    })
}

fn objects(_: &Setting) -> Outcome {
    let before = system::memory()?;
    let options = Options {
        limit_pages: 3000,
        ..Options::default()
    };
    let refused = run("exhaust-objects", &[0], &options)?;
    ensure!(
        refused.status == Error::LimitReached as u64 || refused.status == Error::NoMemory as u64,
        "{refused:x?}"
    );
    // With pages, either the account of objects or that of pages is used up first.
    let report = run("exhaust-objects", &[1], &options)?;
    ensure!(
        report.exception == EXCEPTION_RESOURCE || report.status == Error::LimitReached as u64,
        "{report:x?}"
    );
    wait_until("its objects are gone", || {
        system::memory().is_ok_and(|memory| memory.objects <= before.objects + 4 && memory.free + 128 >= before.free)
    })
}

fn all_memory(_: &Setting) -> Outcome {
    // Without a bound of its own a task gets three quarters of the memory and more of the disk, and ends alone.
    let before = system::memory()?;
    let task = start("exhaust-pages", &[], &Options::default())?;
    let report = report_of(&task, 45_000_000_000)?;
    ensure_eq!(report.exception, EXCEPTION_RESOURCE);
    ensure!(run("end", &[3], &Options::default())?.status == 3);
    // Pages that were being written when it ended stay until they are, and nodes of its map until the checkpoint behind that one: that takes as long as the disk does.
    for _ in 0..2 {
        system::checkpoint()?;
    }
    wait_until("its memory is free again", || {
        system::memory().is_ok_and(|memory| memory.free + 64 >= before.free)
    })
}

/// A bit of everything, left as it is for the system to clean up.
fn churn(_: &[u64; 6]) -> u64 {
    let Ok(image) = rt::pdx::own_image().ok_or(()) else {
        return 1;
    };
    for round in 0..30 {
        let Ok(object) = Object::create(20 * PAGE) else {
            return 2;
        };
        for page in 0..20 {
            arch::store(object.base() + page * PAGE, page);
        }
        let Ok(clone) = Object::clone_of(object.base(), object.bytes(), PAGE) else {
            return 3;
        };
        arch::store(clone.base(), 1);
        if call::sem_create(object.base() + 8 * round, round).is_err() {
            return 4;
        }
        let Ok(thread) = rt::thread::spawn(move || round) else {
            return 5;
        };
        if round % 2 == 0 && thread.join_status() != Ok(round) {
            return 6;
        }
        let Ok(mut clist) = rt::Clist::create() else { return 7 };
        if rt::pdx::grant(&mut clist, image.0, abi::Rights::RWX).is_err() {
            return 8;
        }
        if round < 10 && arch::obj_cre_pdx(object.base(), 0, clist.object().base(), &[object.base()]).is_err() {
            return 9;
        }
        for pd in [abi::layout::PD_EMPTY, abi::layout::PD_MERGE] {
            // It comes back with an error or faults inside; both leave a domain behind.
            let _ = call::pdx_call(object.base(), 0, pd, 0, 0, 0);
        }
        if round % 3 == 0 && object.delete().is_err() {
            return 10;
        }
    }
    0
}

/// Figures that must be the same after everything as before: threads, domains, active objects, and nearly so
/// the frames in use. The server's own memory grows with what it once had to keep, and stays.
pub fn figures() -> Outcome<[u64; 4]> {
    let memory = system::memory()?;
    let used = memory.frames - memory.free - memory.kernel;
    Ok([
        system::threads().count() as u64,
        system::domains().count() as u64,
        memory.objects,
        used,
    ])
}

fn memory_balance(_: &Setting) -> Outcome {
    // The first round fills what the system keeps for the next task.
    let mut before = [0; 4];
    for round in 0..8 {
        let report = run("churn", &[], &Options::default())?;
        ensure!(
            report.exception == 0 && report.status == 0,
            "round {round}: {report:x?}"
        );
        let killed = start("churn", &[], &Options::default())?;
        rt::time::sleep_ms(1 + round)?;
        killed.end(0)?;
        report_of(&killed, 5_000_000_000)?;
        rt::time::sleep_ms(20)?;
        if round == 1 {
            before = figures()?;
        }
    }
    let settled = || {
        figures().is_ok_and(|after| {
            after[0] <= before[0]
                && after[1] <= before[1] + 1
                && after[2] <= before[2] + 2
                && after[3] <= before[3] + 32
        })
    };
    wait_until("", settled).or_else(|_| {
        let after = figures()?;
        ensure!(
            false,
            "threads, domains, objects and used frames were {before:?} and are {after:?}"
        );
        Ok(())
    })
}
