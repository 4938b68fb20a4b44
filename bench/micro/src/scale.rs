//! Throughput of several processors: the same independent work by one thread, two and four.
//!
//! A row's figure is the time that passes for one operation, whoever does it: half as much with two threads would be
//! perfect, the same would mean that they wait for each other all the time.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use measure::Samples;
use rt::{
    Cell, Clist, Object, Result,
    abi::{address::PAGE, layout::Capability},
    call,
    pdx::{self, Domain},
    thread,
    time::ticks,
};

use crate::protected::nothing_entry;

/// Samples of a row.
const SAMPLES: usize = 5;

/// A row: its name, threads, and operations of each.
struct Row {
    name: &'static str,
    threads: u32,
    operations: u64,
    work: fn(u64) -> Result<()>,
}

const PDX: u64 = 4_000;
const FAULTS: u64 = 1_000;
const THREADS: u64 = 200;

const ROWS: [Row; 9] = [
    row("scale-pdx-1", 1, PDX, protected_calls),
    row("scale-pdx-2", 2, PDX, protected_calls),
    row("scale-pdx-4", 4, PDX, protected_calls),
    row("scale-touch-1", 1, FAULTS, touches),
    row("scale-touch-2", 2, FAULTS, touches),
    row("scale-touch-4", 4, FAULTS, touches),
    row("scale-thread-1", 1, THREADS, threads),
    row("scale-thread-2", 2, THREADS, threads),
    row("scale-thread-4", 4, THREADS, threads),
];

const fn row(name: &'static str, threads: u32, operations: u64, work: fn(u64) -> Result<()>) -> Row {
    Row {
        name,
        threads,
        operations,
        work,
    }
}

fn protected_calls(operations: u64) -> Result<()> {
    let entry = nothing_entry();
    for index in 0..operations {
        pdx::call(entry, Domain::Empty, [index, 0, 0, 0])?;
    }
    Ok(())
}

fn touches(operations: u64) -> Result<()> {
    let object = Object::create(operations * PAGE)?;
    let pages = object
        .region()
        .slice::<[Cell<u8>; PAGE as usize]>(object.region().pointer(0), operations as usize);
    for page in pages.unwrap_or_default() {
        page[0].set(1);
    }
    Ok(object.delete()?)
}

fn threads(operations: u64) -> Result<()> {
    for _ in 0..operations {
        thread::spawn(|| 0)?.join_status()?;
    }
    Ok(())
}

/// Measures all rows and hands each to `print`.
///
/// # Errors
/// Those of the work.
pub fn measure(mut print: impl FnMut(Samples)) -> Result<()> {
    let image = pdx::own_image().ok_or(rt::Error::NotAProgram)?.0;
    let callee = pdx::clist_for(&[])?;
    let password = pdx::register(image, &callee, &[nothing_entry()])?;
    let mut own = Clist::create()?;
    own.insert(Capability {
        address: image,
        password,
    })?;
    call::apd_insert(0, own.object().base())?;
    for row in &ROWS {
        let mut samples = Samples::new(row.name, u64::from(row.threads) * row.operations);
        for _ in 0..SAMPLES {
            samples.add(together(row)?);
        }
        print(samples);
    }
    Ok(())
}

/// Ticks that the threads of a row take together, from when all of them are there to when the last one is done.
fn together(row: &Row) -> Result<u64> {
    static READY: AtomicU32 = AtomicU32::new(0);
    static END: AtomicU64 = AtomicU64::new(0);
    static START: AtomicU64 = AtomicU64::new(0);
    READY.store(0, SeqCst);
    END.store(0, SeqCst);
    START.store(0, SeqCst);
    let mut workers = Vec::new();
    for _ in 0..row.threads {
        let (count, operations, work) = (row.threads, row.operations, row.work);
        workers.push(thread::spawn(move || {
            // Once to warm up.
            if work(operations / 10).is_err() {
                READY.fetch_add(1, SeqCst);
                return 1;
            }
            if READY.fetch_add(1, SeqCst) + 1 == count {
                START.store(ticks(), SeqCst);
            }
            while START.load(SeqCst) == 0 {
                thread::yield_now();
            }
            let done = work(operations);
            END.fetch_max(ticks(), SeqCst);
            u64::from(done.is_err())
        })?);
    }
    let mut failed = 0;
    for worker in workers {
        failed |= worker.join_status()?;
    }
    if failed != 0 {
        return Err(rt::abi::Error::NoMemory.into());
    }
    Ok(END.load(SeqCst) - START.load(SeqCst))
}
