//! Commands on the system as a whole.

use alloc::{format, vec::Vec};

use abi::{
    address::PAGE,
    layout::{THREAD_ENDED, THREAD_READY, THREAD_RUNNING, THREAD_SLEEPING, THREAD_WAITING},
};
use rt::{call, print, println, system, time as clock};

use super::{Complaint, Outcome, Shell, said};
use crate::{
    attention, log,
    programs::STATUS_KILLED,
    text::{self, Bytes, Nanoseconds, Printable},
};

fn none(arguments: &[&str]) -> Outcome {
    if arguments.is_empty() {
        Ok(())
    } else {
        Err(Complaint::Usage)
    }
}

/// The time between two looks at a scrub that is waited for.
const SCRUB_LOOK_NS: u64 = 200_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

pub fn ps(_: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    println!(
        "{:>10} {:>10} {:>10}  {:<9}{:>3} {:>6} {:>5} {:>9} {:>5} {:>4}",
        "thread", "task", "parent", "state", "pri", "domain", "calls", "time", "share", "had"
    );
    for report in system::threads() {
        let state = match report.state {
            THREAD_READY => "ready",
            THREAD_RUNNING => "running",
            THREAD_WAITING => "waiting",
            THREAD_SLEEPING => "sleeping",
            THREAD_ENDED => "ended",
            _ => "?",
        };
        println!(
            "{:>#10x} {:>#10x} {:>#10x}  {state:<9}{:>3} {:>6} {:>5} {:>9} {:>4}% {:>3}%",
            report.thread,
            report.task,
            report.parent,
            report.priority,
            report.domain,
            report.depth,
            Nanoseconds(report.time_ns),
            report.share / 10,
            report.share_used / 10
        );
    }
    Ok(())
}

pub fn kill(_: &mut Shell, arguments: &[&str]) -> Outcome {
    let [text] = arguments else {
        return Err(Complaint::Usage);
    };
    let Some(thread) = text::number(text) else {
        return said(format!("kill: '{text}' is not a thread; 'ps' lists them"));
    };
    let own = call::thread_info(0)?;
    let Some(report) = system::threads().find(|report| report.thread == thread) else {
        return said(format!("kill: there is no thread {text}; 'ps' lists them"));
    };
    if report.task == own.task {
        return said(format!("kill: {text} is the shell itself; 'poweroff' ends the system"));
    }
    match call::thread_delete(thread, STATUS_KILLED) {
        Err(abi::Error::NoSuchThread) if report.parent == 0 => said(format!(
            "kill: {text} was not started by this shell; 'exit' leads to the first one, which can end more"
        )),
        Err(abi::Error::NoSuchThread) => said(format!(
            "kill: {text} belongs to {:#x}, which still runs: end that first",
            report.parent
        )),
        other => Ok(other?),
    }
}

pub fn domains(_: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    println!(
        "{:>7} {:>10} {:>15} {:>7} {:>7} {:>8} {:>7} {:>8}",
        "domain", "task", "procedure of", "clists", "locked", "objects", "tables", "threads"
    );
    for report in system::domains() {
        println!(
            "{:>7} {:>#10x} {:>#15x} {:>7} {:>7} {:>8} {:>7} {:>8}",
            report.domain,
            report.task,
            report.pdx_object,
            report.clists,
            report.locked,
            report.objects,
            report.tables,
            report.threads
        );
    }
    Ok(())
}

pub fn mem(_: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    let (memory, store) = (system::memory()?, system::store()?);
    let frames = |frames: u64| Bytes(frames * PAGE);
    println!("memory     {:>10}", frames(memory.frames));
    println!(
        "  used     {:>10}",
        frames(memory.frames - memory.free.min(memory.frames))
    );
    println!("  kernel   {:>10}", frames(memory.kernel));
    println!(
        "  objects  {:>10}  in {} active objects",
        frames(memory.object_pages),
        memory.objects
    );
    println!("  tables   {:>10}", frames(memory.tables));
    println!("  heap     {:>10}  of the server", Bytes(memory.heap_bytes));
    println!("disk       {:>10}", frames(store.blocks));
    println!(
        "  free     {:>10}  and {} promised",
        frames(store.free),
        frames(store.reserved)
    );
    println!("  objects  {:>10}", store.objects);
    println!(
        "  changed  {:>10}  since checkpoint {}",
        frames(store.dirty),
        store.checkpoints
    );
    println!(
        "  moved    {:>10}  read since the start, {} written, {} flushes",
        frames(store.reads),
        frames(store.writes),
        store.flushes
    );
    if store.damaged > 0 {
        println!("  damaged  {:>10}  pages met", store.damaged);
    }
    Ok(())
}

pub fn disk(_: &mut Shell, arguments: &[&str]) -> Outcome {
    let grows = match arguments {
        [] => false,
        ["grow"] => true,
        _ => return Err(Complaint::Usage),
    };
    let before = system::store()?.blocks;
    let size = match system::measure_disk() {
        Err(abi::Error::Protection) => return said("disk: only who may switch the system off may do this".into()),
        size => size?,
    };
    let bytes = |blocks: u64| Bytes(blocks * PAGE);
    if size < before {
        return said(format!(
            "disk: the disk has become smaller: it has {}, and the system uses {} of it. What stands behind its end cannot be read or written: make it as large as it was, and then 'disk'",
            bytes(size),
            bytes(before)
        ));
    }
    if grows {
        match system::grow_store() {
            Err(abi::Error::DiskFull) => {
                return said(format!(
                    "disk: it has grown by too little, from {} to {}: what tells of the new part has no room in it. Make it larger by one part in 10,000 of it at least",
                    bytes(before),
                    bytes(size)
                ));
            }
            Err(abi::Error::DiskError) => {
                return said("disk: the checkpoint that was to take the new part has failed, so the system goes on with the size that it has".into());
            }
            grown => grown?,
        }
    }
    let store = system::store()?;
    println!("disk       {:>10}", bytes(store.disk_blocks));
    println!("  in use   {:>10}", bytes(store.blocks));
    println!("  free     {:>10}", bytes(store.free));
    if store.blocks > before {
        println!("it had {} before", bytes(before));
    } else if store.disk_blocks > store.blocks {
        println!(
            "{} are new: 'disk grow' takes them",
            bytes(store.disk_blocks - store.blocks)
        );
    }
    Ok(())
}

pub fn sync(_: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    Ok(system::checkpoint()?)
}

pub fn scrub(_: &mut Shell, arguments: &[&str]) -> Outcome {
    match arguments {
        [] => system::scrub()?,
        ["wait"] => {
            system::scrub()?;
            while system::store()?.scrubbing != 0 {
                attention::sleep_ns(SCRUB_LOOK_NS)?;
            }
        }
        ["stop"] => system::stop_scrub()?,
        ["show"] => {}
        _ => return Err(Complaint::Usage),
    }
    let store = system::store()?;
    let state = match (store.scrubbing, store.scrubs) {
        (0, 0) => "not run to its end yet",
        (0, _) => "over",
        _ => "under way",
    };
    let damage = match store.scrub_damaged {
        0 => "none is damaged",
        _ => "some are damaged: './gond check IMAGE --repair' tells what can be done",
    };
    let all = match store.scrubbing {
        0 => alloc::string::String::new(),
        _ => format!(" of {}", store.scrub_all),
    };
    println!("scrub {state}: {}{all} blocks, {damage}", store.scrub_seen);
    if store.scrub_damaged > 0 {
        println!("  damaged  {:>10}  blocks", store.scrub_damaged);
    }
    let next = store.scrub_next_ns.saturating_sub(clock::since_boot_ns());
    if store.scrub_next_ns > 0 {
        println!(
            "  the next one begins by itself in {} minutes",
            next.div_ceil(MINUTE_NS)
        );
    }
    Ok(())
}

/// Lines of the log that are shown unless the user says how many.
const LOG_LINES: u64 = 20;

pub fn log(_: &mut Shell, arguments: &[&str]) -> Outcome {
    let wanted = match arguments {
        [] => LOG_LINES,
        [lines] => match text::number(lines) {
            Some(lines) => lines,
            None => return said(format!("log: '{lines}' is not a number of lines")),
        },
        _ => return Err(Complaint::Usage),
    };
    let all = match log::all() {
        Err(rt::Error::System(abi::Error::BadAddress)) => {
            return said("log: only who may switch the system off may see the log".into());
        }
        all => all?,
    };
    let lines: Vec<&[u8]> = all.split_inclusive(|byte| *byte == b'\n').collect();
    let first = lines
        .len()
        .saturating_sub(usize::try_from(wanted).unwrap_or(usize::MAX));
    // The object may hold anything.
    let mut text = Printable::default();
    print!("{}", text.piece(&lines.get(first..).unwrap_or_default().concat()));
    print!("{}", text.end());
    Ok(())
}

pub fn time(shell: &mut Shell, arguments: &[&str]) -> Outcome<u64> {
    if arguments.is_empty() {
        return Err(Complaint::Usage);
    }
    let (start, start_ticks) = (clock::since_boot_ns(), clock::ticks());
    let status = shell.run_words(arguments);
    let (ticks, ns) = (
        clock::ticks().wrapping_sub(start_ticks),
        clock::since_boot_ns().saturating_sub(start),
    );
    println!("time: {} ({ticks} ticks)", Nanoseconds(ns));
    Ok(status)
}

pub fn sleep(_: &mut Shell, arguments: &[&str]) -> Outcome {
    let [text] = arguments else {
        return Err(Complaint::Usage);
    };
    let Some(ns) = text::seconds(text) else {
        return said(format!(
            "sleep: '{text}' is not a number of seconds like 2 or 0.5, up to 18446744073"
        ));
    };
    attention::sleep_ns(ns)
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a command")]
pub fn echo(_: &mut Shell, arguments: &[&str]) -> Outcome {
    println!("{}", arguments.join(" "));
    Ok(())
}

pub fn reboot(_: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    Ok(system::reboot()?)
}

pub fn poweroff(shell: &mut Shell, arguments: &[&str]) -> Outcome {
    none(arguments)?;
    Ok(system::power_off(shell.outcome())?)
}
