//! Tasks: how they begin, how they end, and what goes with them.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{EXCEPTION_KILL, EXCEPTION_PROTECTION, EXCEPTION_RESOURCE, PRIORITY_DEFAULT},
};

use rt::{Object, call, task::Options, thread};

use crate::{
    arch,
    assistant::{PATIENCE_NS, PRIORITY_LOW, apd_of, clist_granting, confined, report_of, run, start},
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
];

/// The parts.
pub const ROLES: &[Role] = &[role("fault-beside-a-thread", fault_beside_a_thread)];

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
