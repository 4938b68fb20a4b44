//! The rows `disk-…`: what a page costs that comes from the disk or is made durable there, and an object among many.
//!
//! The pages that are read are those of the object [`NAME`], which `gond bench` imports before the start, so that no page of it is in memory. Each page begins with its number. The first half is read in order,
//! the second one at random, each page once; rows of pages that are in memory read them once more.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use measure::Samples;
use rt::{
    Cell, Clist, Directory, Error, Object, Result,
    abi::{self, address::PAGE, layout::Capability},
    call, system, thread, thread_entry,
    time::ticks,
};

use crate::idle::{Idle, busy_ticks};

/// The name of the data.
const NAME: &str = "disk-data";
/// Pages in a sample, and samples.
const BATCH: u64 = 128;
const COUNT: u64 = 60;
/// Pages of the object that is written, of those that one sync makes durable, and samples of syncs.
const WRITTEN: u64 = 4_096;
const TOGETHER: u64 = 256;
const SYNCS: u64 = 48;
/// Checkpoints beside which a writer is looked at.
const WAITS: u64 = 3;
/// The password of objects that are made here.
const PASSWORD: u64 = 0x1234_5678;
/// Objects of the rows `disk-objects-1k` and `disk-objects-16k`: the latter are more than can be active at once in the machine of the bench.
const FEW: u64 = 1_000;
const MANY: u64 = 16_000;

/// Reading pages one behind the other.
pub fn in_turn(name: &'static str) -> Result<Samples> {
    measure(name, |half| (0, move |turn| turn % half))
}

/// Reading pages at random.
pub fn at_random(name: &'static str) -> Result<Samples> {
    let mut at = 1_u64;
    measure(name, |half| {
        (half, move |_| {
            // Each number below a power of two once.
            at = (at * 5 + 12_345) % half;
            at
        })
    })
}

/// Reading pages that are in memory one behind the other.
pub fn cached_in_turn(name: &'static str) -> Result<Samples> {
    in_turn(name)?;
    in_turn(name)
}

/// Reading pages that are in memory at random.
pub fn cached_at_random(name: &'static str) -> Result<Samples> {
    at_random(name)?;
    at_random(name)
}

/// Writing a random page and making it durable.
pub fn sync_1(name: &'static str) -> Result<Samples> {
    sync(name, 1)
}

/// Writing 256 neighbouring pages and making them durable.
pub fn sync_256(name: &'static str) -> Result<Samples> {
    sync(name, TOGETHER)
}

/// Writes so many neighbouring pages of an object that the disk has and makes them durable by one call, at places in no order.
fn sync(name: &'static str, together: u64) -> Result<Samples> {
    // A name, so that an interrupted run leaves nothing that cannot be found.
    const OWN: &str = "micro-pages";
    let mut directory = Directory::root()?;
    let object = match directory.open_object(OWN)? {
        Some(object) => object,
        None => directory.create(OWN, rt::Kind::Data, WRITTEN * PAGE, 0)?,
    };
    let region = object.region();
    let write = |first: u64, pages: u64, stamp: u64| {
        for page in first..first + pages {
            let word = region.at_offset::<Cell<u64>>(page * PAGE);
            word.ok_or(Error::System(abi::Error::BadArgument))?.set(stamp);
        }
        Ok::<_, Error>(call::page_flush(object.base() + first * PAGE, pages)?)
    };
    for first in (0..WRITTEN).step_by(TOGETHER as usize) {
        write(first, TOGETHER, 0)?;
    }
    let idle = Idle::begin()?;
    let mut samples = Samples::new(name, together);
    let mut at = 1;
    for stamp in 1..=SYNCS {
        at = (at * 5 + 12_345) % (WRITTEN / together);
        let start = busy_ticks();
        write(at * together, together, stamp)?;
        samples.add(busy_ticks().wrapping_sub(start));
    }
    idle.end()?;
    directory.delete(OWN, rt::Kind::Data)?;
    Ok(samples)
}

/// The longest that a writer waits for one page, from the moment when a checkpoint of many dirty pages begins to its end: 100 MiB of them.
pub fn writer_wait(name: &'static str) -> Result<Samples> {
    longest_write(name, 25_600)
}

/// The same of 1 MiB.
pub fn writer_wait_little(name: &'static str) -> Result<Samples> {
    longest_write(name, 256)
}

/// Whether the checkpoint of the other thread is over.
static OVER: AtomicBool = AtomicBool::new(false);

thread_entry!(checkpoint_entry, checkpoint);

fn checkpoint(_: u64) -> u64 {
    let status = u64::from(system::checkpoint().is_err());
    OVER.store(true, Ordering::Release);
    status
}

/// Makes so many pages dirty, and writes them in no order while a thread waits for the checkpoint that writes them.
fn longest_write(name: &'static str, pages: u64) -> Result<Samples> {
    let object = Object::create(pages * PAGE)?;
    object.keep()?;
    let region = object.region();
    let write = |page: u64, stamp: u64| {
        let word = region.at_offset::<Cell<u64>>(page * PAGE);
        word.ok_or(Error::System(abi::Error::BadArgument))
            .map(|word| word.set(stamp))
    };
    system::checkpoint()?;
    let mut samples = Samples::new(name, 1);
    for stamp in 1..=WAITS {
        for page in 0..pages {
            write(page, stamp)?;
        }
        OVER.store(false, Ordering::Release);
        let priority = call::thread_info(thread::Thread::current().id())?.priority;
        let other = thread::start(checkpoint_entry(), 0, priority + 1)?;
        let (mut at, mut longest, mut writes) = (1, 0, 0_u64);
        while !OVER.load(Ordering::Acquire) {
            at = (at * 5 + 12_345) % pages;
            let start = ticks();
            write(at, stamp)?;
            longest = longest.max(ticks().wrapping_sub(start));
            writes += 1;
        }
        if other.join_status()? != 0 || writes < pages / 16 {
            return Err(Error::System(abi::Error::DiskError));
        }
        samples.add(longest);
    }
    object.delete()?;
    Ok(samples)
}

fn measure<N: FnMut(u64) -> u64>(name: &'static str, make: impl FnOnce(u64) -> (u64, N)) -> Result<Samples> {
    let object = Directory::root()?.open_object(NAME)?.ok_or(Error::NoSuchName)?;
    let half = object.bytes() / PAGE / 2;
    let (first, mut next) = make(half);
    let region = object.region();
    let idle = Idle::begin()?;
    let mut samples = Samples::new(name, BATCH);
    for sample in 0..COUNT.min(half / BATCH) {
        let start = busy_ticks();
        for turn in sample * BATCH..(sample + 1) * BATCH {
            let page = first + next(turn);
            let number = region.at_offset::<Cell<u64>>(page * PAGE).map(Cell::get);
            if number != Some(page) {
                return Err(Error::System(abi::Error::DiskError));
            }
        }
        samples.add(busy_ticks().wrapping_sub(start));
    }
    idle.end()?;
    Ok(samples)
}

/// A thousand objects.
pub fn few_objects(name: &'static str) -> Result<Samples> {
    objects(name, FEW)
}

/// Sixteen thousand.
pub fn many_objects(name: &'static str) -> Result<Samples> {
    objects(name, MANY)
}

/// Makes, writes and keeps so many objects, reads them one after the other, and deletes them.
fn objects(name: &'static str, count: u64) -> Result<Samples> {
    let idle = Idle::begin()?;
    let mut samples = Samples::new(name, count);
    let mut list = Clist::create()?;
    call::apd_insert(0, list.object().base())?;
    let start = busy_ticks();
    let mut bases = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (base, _) = call::obj_create(PAGE, PASSWORD)?;
        Object::open(base)?.first::<Cell<u64>>()?.set(base);
        call::keep_object(base)?;
        bases.push(base);
    }
    bases.sort_unstable();
    for &address in &bases {
        list.insert(Capability {
            address,
            password: PASSWORD,
        })?;
    }
    for &base in &bases {
        if Object::open(base)?.first::<Cell<u64>>()?.get() != base {
            return Err(Error::System(abi::Error::DiskError));
        }
    }
    for &base in &bases {
        call::obj_delete(base)?;
    }
    samples.add(busy_ticks().wrapping_sub(start));
    call::apd_delete(0)?;
    list.delete()?;
    idle.end()?;
    Ok(samples)
}

/// Reads a word of each of so many objects that the disk has had from the start, a page each, in the slots from `first` on with the slot as password; they lie `step` slots apart.
///
/// # Errors
/// Those of the calls.
pub fn read_some(first: u64, count: u64, step: u64) -> Result<()> {
    let mut list = Clist::create()?;
    call::apd_insert(0, list.object().base())?;
    let slots = || (0..count).map(|number| first + number * step);
    for slot in slots() {
        list.insert(Capability {
            address: slot * abi::address::SLOT,
            password: slot,
        })?;
    }
    for slot in slots() {
        Object::open(slot * abi::address::SLOT)?.first::<Cell<u64>>()?.get();
    }
    Ok(())
}
