//! Random and boundary calls, by the million.
//!
//! Assistants with an account and a domain of their own make them; step `n` under a seed is always
//! the same call, with the same arguments where the addresses of objects are the same. A call may
//! well end its caller, suspend it for ever, take away its code or its stack: then the case starts
//! another assistant behind that step. How far each came stands on a page that both see. What must not be done at all (powering off, taking the user's input,
//! writing nonsense to his terminal) is either refused for lack of a right or left out by [`calls`].
//!
//! Afterwards the system must be as usable, and as empty, as before.

mod arguments;
mod calls;
mod pool;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use abi::{
    Rights,
    address::PAGE,
    layout::{Capability, OBJECT_PERSISTENT, THREAD_SLEEPING, THREAD_WAITING},
};
use rt::{
    Clist, Object, call, println, system,
    task::{Options, Task},
};

use crate::{
    arch,
    assistant::{PATIENCE_NS, PRIORITY_LOW, apd_of, clist_granting, confined, start, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, role},
};

use crate::system::figures;
use pool::Surroundings;

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        limit_ms: 400_000,
        ..case("fuzz/calls", calls_at_random)
    },
    Case {
        limit_ms: 60_000,
        ..case("fuzz/kept-objects", kept_objects)
    },
    case("fuzz/usable-afterwards", usable),
];

/// The parts.
pub const ROLES: &[Role] = &[role("fuzz", fuzz), role("nothing", |_| 0)];

/// Steps that one assistant takes at most, so that what it leaves behind stays within bounds.
const STEPS_EACH: u64 = 4_000;
/// Pages that one may use.
const PAGES_EACH: u64 = 2_048;
/// How long one may take no step before it counts as stuck.
const STUCK_NS: u64 = 300_000_000;

rt::persist! {
    /// The page that the case shares with an assistant, which may well destroy it.
    struct Progress {
        /// The step under way.
        step: AtomicU64,
        /// Calls that were made.
        made: AtomicU64,
        /// The same, inverted: tells whether the page is whole.
        inverse: AtomicU64,
        /// How many of them succeeded.
        succeeded: AtomicU64,
    }
}

impl Progress {
    fn set_made(&self, made: u64) {
        self.made.store(made, SeqCst);
        self.inverse.store(!made, SeqCst);
    }

    /// Calls that were made, as far as the page can still tell.
    fn made(&self, steps: u64) -> u64 {
        let made = self.made.load(SeqCst);
        if self.inverse.load(SeqCst) == !made {
            made
        } else {
            steps / 2
        }
    }
}

/// The arguments of an assistant.
#[derive(Copy, Clone)]
struct Assignment {
    seed: u64,
    first: u64,
    end: u64,
    /// An object that is kept and may be spoilt, or zero.
    kept: u64,
}

/// How an assistant came to its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    Done,
    Died,
    Stuck,
}

fn fuzz(numbers: &[u64; 6]) -> u64 {
    let &[seed, first, end, progress, kept, _] = numbers;
    let Ok(object) = Object::open(progress) else { return 1 };
    let Ok(progress) = object.first::<Progress>() else {
        return 1;
    };
    let Ok(mut surroundings) = Surroundings::new(seed, first, object.base(), kept) else {
        return 1;
    };
    let (mut made, mut succeeded) = (0, 0);
    for step in first..end {
        progress.step.store(step, SeqCst);
        let done = calls::step(&mut surroundings, seed, step);
        made += done.made;
        succeeded += done.succeeded;
        progress.set_made(made);
        progress.succeeded.store(succeeded, SeqCst);
    }
    progress.step.store(end, SeqCst);
    0
}

/// Runs one assistant and gives the step that it did not get beyond.
fn run_one(assignment: Assignment, page: &Object, apd: &abi::layout::ApdDescription) -> Outcome<(u64, End)> {
    let Assignment { seed, first, end, kept } = assignment;
    let progress = page.first::<Progress>()?;
    progress.step.store(first, SeqCst);
    let options = Options {
        limit_pages: PAGES_EACH,
        priority: PRIORITY_LOW,
        ..confined(apd)
    };
    let task = start("fuzz", &[seed, first, end, page.base(), kept], &options)?;
    // Whatever the assistant writes there, it takes steps within its part only.
    let at = || progress.step.load(SeqCst).clamp(first, end);
    let how = watch(&task, &at)?;
    Ok(if how == End::Done && at() == end {
        (end, End::Done)
    } else {
        (at(), if how == End::Done { End::Died } else { how })
    })
}

/// Waits for an assistant, and ends it if it is stuck.
fn watch(task: &Task<'_>, at: &impl Fn() -> u64) -> Outcome<End> {
    let (mut last, mut since, mut waiting) = (at(), rt::time::since_boot_ns(), 0);
    loop {
        match task.wait_for(2_000_000) {
            Ok(shown) => {
                let status = shown.report.status;
                let bad = status & !0xffff_ffff == calls::STATUS_BAD_ANSWER;
                ensure!(
                    !bad,
                    "call {} gave {}, which is no answer, in step {}",
                    status & 0xffff,
                    status >> 16 & 0xffff,
                    at()
                );
                return Ok(if status == 0 { End::Done } else { End::Died });
            }
            Err(abi::Error::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        let now = rt::time::since_boot_ns();
        if at() != last {
            (last, since, waiting) = (at(), now, 0);
            continue;
        }
        // One that waits has made its call; one that runs may be busy.
        let state = call::thread_info(task.thread()).map_or(THREAD_WAITING, |info| info.state);
        waiting = if matches!(state, THREAD_SLEEPING | THREAD_WAITING) {
            waiting + 1
        } else {
            0
        };
        if waiting >= 3 || now - since > STUCK_NS {
            task.end(1)?;
            task.wait_for(PATIENCE_NS)?;
            return Ok(End::Stuck);
        }
    }
}

/// Takes all steps, with as many assistants as that takes. Gives how many calls were made, how many of
/// them succeeded, and how many assistants died and were stuck.
fn run_steps(seed: u64, steps: u64, kept: Option<(&Object, u64)>) -> Outcome<[u64; 4]> {
    let page = Object::create(PAGE)?;
    let (mut clist, _) = clist_granting(&page, Rights::RW)?;
    if let Some((object, password)) = kept {
        clist.insert(Capability {
            address: object.base(),
            password,
        })?;
    }
    let apd = apd_of(&[&clist]);
    let (mut step, mut died, mut stuck, mut made, mut succeeded) = (0, 0, 0, 0, 0);
    while step < steps {
        let progress = page.first::<Progress>()?;
        progress.set_made(0);
        progress.succeeded.store(0, SeqCst);
        let end = steps.min(step + STEPS_EACH);
        let assignment = Assignment {
            seed,
            first: step,
            end,
            kept: kept.map_or(0, |(object, _)| object.base()),
        };
        let (reached, how) = run_one(assignment, &page, &apd)?;
        let made_now = progress.made(reached - step);
        made += made_now;
        succeeded += progress.succeeded.load(SeqCst).min(made_now);
        match how {
            End::Done => {}
            End::Died => died += 1,
            End::Stuck => stuck += 1,
        }
        // The step it died in is done too.
        step = if how == End::Done { end } else { reached + 1 };
    }
    clist.delete()?;
    page.delete()?;
    Ok([made, succeeded, died, stuck])
}

/// The bases of all objects that are kept.
fn kept_now() -> Vec<u64> {
    system::objects()
        .filter(|info| info.flags & OBJECT_PERSISTENT != 0)
        .map(|info| info.base)
        .collect()
}

/// Deletes what assistants have kept.
fn delete_kept(before: &[u64]) -> Outcome {
    let mut clist = Clist::create()?;
    call::apd_insert(0, clist.object().base())?;
    for base in kept_now().into_iter().filter(|base| !before.contains(base)) {
        clist.insert(Capability {
            address: base,
            password: pool::PASSWORD,
        })?;
        call::apd_flush()?;
        let deleted = call::obj_delete(base);
        ensure!(
            deleted.is_ok(),
            "an object at {base:#x} was kept and cannot be deleted: {deleted:?}"
        );
    }
    call::apd_delete(0)?;
    Ok(clist.delete()?)
}

fn tell(what: &str, seed: u64, [made, succeeded, died, stuck]: [u64; 4]) {
    println!(
        "{what}: {made} calls under seed {seed:#x}, {succeeded} of them granted; {died} assistants died, {stuck} were stuck"
    );
}

fn calls_at_random(setting: &Setting) -> Outcome {
    // Objects that the first assistant leaves behind for the next one are not lost.
    let kept = kept_now();
    run_steps(setting.seed ^ 1, 2_000, None)?;
    delete_kept(&kept)?;
    let before = figures()?;
    let known: Vec<u64> = system::objects().map(|info| info.base).collect();
    let mut total = [0; 4];
    let mut round = 0;
    while total[0] < setting.calls {
        let steps = (setting.calls - total[0]).clamp(1_000, 100_000);
        let done = run_steps(setting.seed.wrapping_add(round << 32), steps, None)?;
        for (sum, part) in total.iter_mut().zip(done) {
            *sum += part;
        }
        round += 1;
        delete_kept(&kept)?;
        usable(setting)?;
    }
    tell("fuzz", setting.seed, total);
    ensure!(
        total[1] > total[0] / 20,
        "nearly all calls are refused: this shows little"
    );
    let settled = || {
        figures().is_ok_and(|after| {
            after[0] <= before[0]
                && after[1] <= before[1] + 2
                && after[2] <= before[2] + 4
                && after[3] <= before[3] + 128
        })
    };
    if wait_until("", settled).is_err() {
        let after = figures()?;
        let strange = system::objects().filter(|info| !known.contains(&info.base));
        for info in strange.take(8) {
            println!("fuzz: left: {info:x?}");
        }
        ensure!(
            false,
            "threads, domains, objects and used frames were {before:?} and are {after:?}"
        );
    }
    Ok(())
}

/// The same on an object that is kept, so that the store takes part.
fn kept_objects(setting: &Setting) -> Outcome {
    let steps = (setting.calls / 250).clamp(200, 4_000);
    let (object, password) = Object::create_with_password(64 * PAGE)?;
    let mut own = Clist::create()?;
    own.insert(Capability {
        address: object.base(),
        password,
    })?;
    call::apd_insert(0, own.object().base())?;
    object.keep()?;
    // The assistants own it by another password, and may not lock us out of it.
    let shared = object.grant(Rights::OWNER)?;
    let kept = kept_now();
    let done = run_steps(setting.seed ^ 2, steps, Some((&object, shared)));
    delete_kept(&kept)?;
    let store = system::store()?;
    // One of them may have deleted it, or taken our password from it.
    let base = object.base();
    let _ = object.delete();
    tell("fuzz around a kept object", setting.seed, done?);
    ensure_eq!(store.damaged, 0);
    system::checkpoint()?;
    ensure!(
        call::obj_info(base).is_err(),
        "the kept object is still there: its owner's password was taken from it"
    );
    usable(setting)
}

/// A little of everything works.
pub fn usable(_: &Setting) -> Outcome {
    let object = Object::create(3 * PAGE)?;
    arch::store(object.base() + 2 * PAGE, 5);
    ensure_eq!(arch::load(object.base() + 2 * PAGE), 5);
    let clone = Object::clone_of(object.base(), object.bytes(), 0)?;
    ensure_eq!(arch::load(clone.base() + 2 * PAGE), 5);
    ensure_eq!(rt::thread::spawn(|| 12)?.join_status()?, 12);
    crate::assistant::run_well("nothing", &[], &Options::default(), 0)?;
    call::sem_create(object.base(), 1)?;
    call::sem_wait(object.base(), 0)?;
    let (clist, password) = clist_granting(&object, Rights::R)?;
    let puppet = crate::assistant::Puppet::start(&[&clist])?;
    ensure_eq!(puppet.peek(object.base() + 2 * PAGE)?, Some(5));
    object.revoke(password)?;
    ensure_eq!(puppet.peek(object.base() + 2 * PAGE)?, None);
    puppet.end()?;
    arch::write_bytes(clone.base(), arch::RETURN_CODE);
    let mut list = Clist::create()?;
    crate::assistant::grant(&mut list, &clone, Rights::RWX)?;
    arch::obj_cre_pdx(clone.base(), 0, list.object().base(), &[clone.base()])?;
    for pd in [abi::layout::PD_EMPTY, abi::layout::PD_MERGE] {
        call::pdx_call(clone.base(), 0, pd, 0, 0, 0)?;
    }
    list.delete()?;
    clist.delete()?;
    clone.delete()?;
    Ok(object.delete()?)
}
