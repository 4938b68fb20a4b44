//! Tasks: how they begin, how they end, and what goes with them.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{EXCEPTION_KILL, EXCEPTION_PROTECTION, EXCEPTION_RESOURCE, PRIORITY_DEFAULT, PRIORITY_MIN},
};

use rt::{
    Object, call,
    task::{Options, Task},
    thread,
};

use crate::{
    arch,
    assistant::{PATIENCE_NS, PRIORITY_LOW, apd_of, clist_granting, confined, report_of, run, start, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
    threads::spin_entry,
};

/// The cases.
pub const CASES: &[Case] = &[
    case("tasks/status-and-arguments", status_and_arguments),
    case("tasks/ended-by-parent", ended_by_parent),
    case("tasks/ends-with-first-thread", ends_with_first_thread),
    case("tasks/image-goes-with-it", image_goes_with_it),
    case("tasks/bad-arguments", bad_task_arguments),
    case("tasks/share-of-the-processors", share_of_the_processors),
];

/// The parts.
pub const ROLES: &[Role] = &[
    role("fault-beside-a-thread", fault_beside_a_thread),
    role("family", family),
];

fn status_and_arguments(_: &Setting) -> Outcome {
    for status in [0, 5, 1 << 31] {
        let report = run("end", &[status], &Options::default())?;
        ensure_eq!((report.exception, report.status), (0, status));
    }
    let task = start(
        "end",
        &[3],
        &Options {
            priority: PRIORITY_LOW,
            ..Options::default()
        },
    )?;
    ensure!(task.id() != 0 && task.thread() != 0);
    ensure_eq!(task.wait_status()?, 3);
    ensure_error!(task.wait_status(), NoSuchThread);
    Ok(())
}

fn ended_by_parent(_: &Setting) -> Outcome {
    let task = start(
        "spin",
        &[],
        &Options {
            priority: PRIORITY_LOW,
            ..Options::default()
        },
    )?;
    rt::time::sleep_ms(5)?;
    task.end(66)?;
    let report = report_of(&task, PATIENCE_NS)?;
    ensure_eq!((report.exception, report.status), (EXCEPTION_KILL, 66));
    Ok(())
}

/// Faults while another thread counts at the address given.
fn fault_beside_a_thread(numbers: &[u64; 6]) -> u64 {
    if thread::start(spin_entry(), numbers[0], PRIORITY_DEFAULT).is_err() {
        return 1;
    }
    while arch::load(numbers[0]) == 0 {
        thread::yield_now();
    }
    core::hint::black_box(arch::load(0x18));
    0
}

fn ends_with_first_thread(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&object, Rights::RW)?;
    let apd = apd_of(&[&clist]);
    let report = run("fault-beside-a-thread", &[object.base()], &confined(&apd))?;
    ensure_eq!((report.exception, report.address), (EXCEPTION_PROTECTION, 0x18));
    // A program whose first thread faults is over, with all its threads.
    let at = arch::load(object.base());
    rt::time::sleep_ms(30)?;
    ensure_eq!(arch::load(object.base()), at);
    Ok(())
}

fn image_goes_with_it(_: &Setting) -> Outcome {
    let task = start(
        "spin",
        &[],
        &Options {
            priority: PRIORITY_LOW,
            ..Options::default()
        },
    )?;
    let image = task.image().base;
    // It moved to the new task: its creator has no right on it any more.
    arch::guard()?;
    ensure_eq!(arch::peek(image), None);
    task.end(0)?;
    task.wait_for(PATIENCE_NS)?;
    ensure_error!(call::obj_info(image), BadAddress);
    Ok(())
}

rt::thread_entry!(spin_until_entry, spin_until);
/// Runs until that many nanoseconds have gone by since the boot.
fn spin_until(end_ns: u64) -> u64 {
    while rt::time::since_boot_ns() < end_ns {
        for _ in 0..10_000 {
            core::hint::spin_loop();
        }
    }
    0
}

/// Keeps the processors busy until a time: with some threads, and some children that do the same, for so many generations.
fn family(numbers: &[u64; 6]) -> u64 {
    let [generations, end_ns, ..] = *numbers;
    let options = Options {
        priority: PRIORITY_LOW,
        ..Options::default()
    };
    let children = [(); 2].map(|()| (generations > 0).then(|| start("family", &[generations - 1, end_ns], &options)));
    let threads = [(); 8].map(|()| thread::start(spin_until_entry(), end_ns, PRIORITY_LOW));
    spin_until(end_ns);
    let ended = |child: Outcome<Task<'static>>| child.and_then(|child| report_of(&child, PATIENCE_NS));
    let all_ended = children.into_iter().flatten().all(|child| ended(child).is_ok());
    u64::from(!all_ended || threads.into_iter().any(|thread| thread.is_err()))
}

fn share_of_the_processors(_: &Setting) -> Outcome {
    let begun_ns = rt::time::since_boot_ns();
    let options = |priority| Options {
        priority,
        ..Options::default()
    };
    let end_ns = begun_ns + 2_000_000_000;
    let family = start("family", &[2, end_ns], &options(PRIORITY_LOW))?;
    let sibling = start("spin", &[], &options(PRIORITY_MIN))?;
    rt::time::sleep_ms(500)?;
    let look = || Outcome::Ok((rt::time::since_boot_ns(), call::thread_info(sibling.thread())?));
    let (before_ns, before) = look()?;
    rt::time::sleep_ms(1000)?;
    let (after_ns, after) = look()?;
    wait_until("it is told what the sibling had", || {
        call::thread_info(sibling.thread()).is_ok_and(|report| report.share_used > 0)
    })?;
    sibling.end(0)?;
    report_of(&sibling, PATIENCE_NS)?;
    ensure_eq!(report_of(&family, PATIENCE_NS)?.status, 0);
    ensure!(after_ns < end_ns, "the case itself got no processor in time");
    // Seven tasks with nine threads each want all that there is, and at a higher priority. Both families have the same part: a sixth of what the
    // suite may have, which is seven sixteenths where no other program runs.
    let had = (after.time_ns - before.time_ns) * 1000 / (after_ns - before_ns);
    ensure!(
        (30..=1000).contains(&had),
        "the sibling had {had} thousandths of a processor"
    );
    ensure!(
        (30..1000).contains(&after.share),
        "it is told that it may have {} thousandths",
        after.share
    );
    Ok(())
}

fn bad_task_arguments(_: &Setting) -> Outcome {
    let create = |entry, apd, limit, priority| {
        arch::system_call(Call::TaskCreate as u64, [entry, 0, apd, limit, priority, 0]).result()
    };
    let data = Object::create(PAGE)?;
    arch::write_bytes(data.base(), arch::END_CODE);
    for priority in [8, u64::MAX] {
        ensure_error!(create(data.base(), 0, 0, priority), BadArgument);
    }
    for entry in [0, 1 << 47, u64::MAX, data.base() + PAGE] {
        ensure_error!(create(entry, 0, 0, 3), BadAddress);
    }
    for apd in [8, 1 << 47, u64::MAX, data.base() + PAGE - 8] {
        ensure!(
            create(data.base(), apd, 0, 3).is_err(),
            "a task starts with an APD at {apd:#x}"
        );
    }
    // The object is still ours after all these refusals.
    ensure_eq!(call::obj_info(data.base())?.bytes, PAGE);
    // Too small a bound to have a stack, or to touch anything.
    let tiny = create(data.base(), 0, 1, 3);
    match tiny {
        Ok((thread, _)) => {
            let report = call::thread_wait(thread, PATIENCE_NS)?;
            ensure!(
                report.exception == EXCEPTION_RESOURCE || report.status == arch::END_STATUS,
                "with one page: {report:x?}"
            );
        }
        Err(Error::LimitReached) => {
            let (thread, _) = create(data.base(), 0, 64, 3)?;
            ensure_eq!(call::thread_wait(thread, PATIENCE_NS)?.status, arch::END_STATUS);
        }
        Err(other) => return Err(other.into()),
    }
    Ok(())
}
