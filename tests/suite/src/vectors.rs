//! The vector unit: each thread has its own, whatever the others do.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rt::thread;

use testing::Random;

use crate::{
    arch::vectors::{control, fill, hold, residue, set_control},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("vectors/kept-under-preemption", kept_under_preemption),
    case("vectors/new-threads-begin-clean", new_threads_begin_clean),
    case("vectors/control-words", control_words),
    case("vectors/take-no-heap", take_no_heap),
];

/// Ticks of about 40 ms, enough for several slices.
fn some_slices() -> Outcome<u64> {
    Ok(rt::system::boot()?.ticks_per_us.max(1) * 40_000)
}

fn kept_under_preemption(setting: &Setting) -> Outcome {
    let ticks = some_slices()?;
    let mut random = Random::at(setting.seed, 6);
    let mut threads = alloc::vec::Vec::new();
    for _ in 0..3 {
        let pattern = random.word();
        threads.push(thread::spawn(move || hold(pattern, ticks))?);
    }
    ensure_eq!(hold(random.word(), ticks), 0);
    for thread in threads {
        ensure_eq!(thread.join_status()?, 0);
    }
    Ok(())
}

fn new_threads_begin_clean(_: &Setting) -> Outcome {
    for _ in 0..5 {
        fill();
        let dirty = thread::spawn(|| {
            fill();
            0
        })?;
        dirty.join()?;
        // It may well get the place of the one before.
        ensure_eq!(thread::spawn(residue)?.join_status()?, 0);
    }
    set_control(INITIAL);
    Ok(())
}

/// The control word of SSE as a thread begins with it.
const INITIAL: u32 = 0x1f80;

fn control_words(_: &Setting) -> Outcome {
    const OWN: [u32; 2] = [0x3f80, 0x5f80];
    ensure_eq!(control() & !0x3f, INITIAL);
    let ticks = some_slices()?;
    let other = thread::spawn(move || {
        if control() & !0x3f != INITIAL {
            return 1;
        }
        set_control(OWN[1]);
        hold(1, ticks) | u64::from(control() & !0x3f != OWN[1]) << 1
    })?;
    set_control(OWN[0]);
    let changed = hold(2, ticks);
    let word = control();
    set_control(INITIAL);
    ensure_eq!(changed, 0);
    ensure!(word & !0x3f == OWN[0], "the control word became {word:#x}");
    ensure_eq!(other.join_status()?, 0);
    Ok(())
}

/// Threads of one crowd.
const CROWD: usize = 200;

/// Two hundred threads that are there at once, and use the unit if they are to.
fn crowd(uses: bool) -> Outcome {
    static LEAVE: AtomicBool = AtomicBool::new(false);
    LEAVE.store(false, Relaxed);
    let mut threads = alloc::vec::Vec::new();
    for _ in 0..CROWD {
        threads.push(thread::spawn(move || {
            if uses {
                fill();
            }
            while !LEAVE.load(Relaxed) {
                let _ = rt::time::sleep_ms(5);
            }
            0
        })?);
    }
    LEAVE.store(true, Relaxed);
    for thread in threads {
        thread.join()?;
    }
    Ok(())
}

/// The kernel keeps the registers of all threads in frames. The heap, in which all programs have a part, has none of that.
fn take_no_heap(_: &Setting) -> Outcome {
    crowd(false)?;
    let before = rt::system::memory()?.heap_bytes;
    crowd(true)?;
    let more = rt::system::memory()?.heap_bytes.saturating_sub(before);
    ensure!(more < 64 << 10, "the heap has {more} bytes more");
    Ok(())
}
