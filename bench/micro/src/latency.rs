//! The row `longest-interrupts-off`: how long an interrupt may have to wait for the kernel.
//!
//! An urgent thread sleeps for a short while, again and again, and notes by how much it woke too late; a less
//! urgent one meanwhile does what keeps the kernel busy longest: large objects are filled, cloned, written after cloning,
//! kept, saved by a checkpoint, revoked, shrunk and deleted. The row is the worst lateness of all, so the way from the timer's
//! interrupt to the woken thread's next instruction is in it too.

use core::sync::atomic::{AtomicBool, Ordering};

use measure::Samples;
use rt::{Cell, Object, Result, abi::Rights, abi::address::PAGE, system, thread, thread_entry, time};

/// Pages of the large objects.
const PAGES: u64 = 2048;
/// How long the urgent thread sleeps.
const SLEEP_NS: u64 = 50_000;

static BUSY: AtomicBool = AtomicBool::new(false);

thread_entry!(labour_entry, labour);

/// Does long operations once; the status is 0, or the error of the one that failed.
fn labour(_: u64) -> u64 {
    let result = long_operations();
    BUSY.store(false, Ordering::Release);
    match result {
        Ok(()) => 0,
        Err(rt::Error::System(error)) => error as u64,
        Err(_) => u64::MAX,
    }
}

fn fill(object: &Object, value: u8) {
    let region = object.region();
    if let Some(pages) = region.slice::<[Cell<u8>; PAGE as usize]>(region.pointer(0), PAGES as usize) {
        for page in pages {
            page[0].set(value);
        }
    }
}

fn long_operations() -> Result<()> {
    let first = Object::create(PAGES * PAGE)?;
    fill(&first, 1);
    let mut second = Object::clone_of(first.base(), PAGES * PAGE, 0)?;
    fill(&second, 2);
    let password = first.grant(Rights::RW)?;
    first.revoke(password)?;
    first.keep()?;
    system::checkpoint()?;
    fill(&first, 3);
    system::checkpoint()?;
    second.resize(PAGE)?;
    second.delete()?;
    Ok(first.delete()?)
}

/// The worst lateness in nanoseconds, which count instructions where the clock does.
///
/// # Errors
/// Those of the operations.
pub fn longest_interrupts_off(name: &'static str) -> Result<Samples> {
    let priority = rt::call::thread_info(thread::Thread::current().id())?.priority;
    BUSY.store(true, Ordering::Release);
    let labourer = thread::start(labour_entry(), 0, priority.saturating_sub(1))?;
    let mut worst = 0;
    while BUSY.load(Ordering::Acquire) {
        let wanted = time::since_boot_ns() + SLEEP_NS;
        time::sleep_ns(SLEEP_NS)?;
        worst = worst.max(time::since_boot_ns().saturating_sub(wanted));
    }
    let status = labourer.join_status()?;
    if status != 0 {
        return Err(rt::abi::Error::from_code(status)
            .unwrap_or(rt::abi::Error::BadArgument)
            .into());
    }
    let mut samples = Samples::new(name, 1);
    samples.add(worst);
    Ok(samples)
}
