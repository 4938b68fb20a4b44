//! The rows `longest-…`: how long an interrupt may have to wait for the kernel.
//!
//! An urgent thread sleeps for a short while, again and again, and notes by how much it woke too late; a less
//! urgent one meanwhile does what keeps the kernel busy longest. A row is the worst lateness of all, so the way from the timer's
//! interrupt to the woken thread's next instruction is in it too. `longest-interrupts-off` fills large objects, clones them, writes after
//! cloning, keeps, saves by a checkpoint, revokes, shrinks and deletes; each of the others has one operation with much behind it.

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use measure::Samples;
use rt::{
    Cell, Clist, Directory, Object, Result,
    abi::{
        Rights,
        address::PAGE,
        layout::{Capability, FLUSH_RANGES_MAX},
    },
    arguments, call,
    sync::Semaphore,
    system,
    task::{Options, Program},
    thread, thread_entry, time,
};

use crate::WORD_MANY_OBJECTS;

/// Pages of the large objects.
const PAGES: u64 = 2048;
/// How long the urgent thread sleeps.
const SLEEP_NS: u64 = 50_000;
/// Objects of the tasks that have many, and those that are touched.
const OBJECTS: usize = 3000;
/// Semaphores in one object, and rights in a Clist.
const MANY: u64 = 1000;
/// Slots of the large object that is deleted, and of the one that is kept and cut.
const SLOTS: u64 = 512;
const SLOTS_KEPT: u64 = 3000;
/// Bytes of a slot.
const SLOT: u64 = 2 << 20;

/// The name of a load's row, and the work that a second thread does while the urgent thread measures.
type Load = (&'static str, fn() -> Result<()>);

/// The loads; the rows' texts stand in `rows`.
const LOADS: [Load; 8] = [
    ("longest-interrupts-off", long_operations),
    ("longest-task-end", task_end),
    ("longest-delete-semaphores", delete_semaphores),
    ("longest-apd-flush", apd_flush),
    ("longest-delete-slots", delete_slots),
    ("longest-first-touches", first_touches),
    ("longest-sparse-object", sparse_object),
    ("longest-flush-together", flush_together),
];

static BUSY: AtomicBool = AtomicBool::new(false);
/// True once the load is prepared. Sections before that do not count for its row.
static COUNTS: AtomicBool = AtomicBool::new(false);
static LOAD: AtomicUsize = AtomicUsize::new(0);

thread_entry!(labour_entry, labour);

/// Does a load once; the status is 0, or the error of the operation that failed.
fn labour(_: u64) -> u64 {
    let result = LOADS.get(LOAD.load(Ordering::Acquire)).map_or(Ok(()), |load| load.1());
    BUSY.store(false, Ordering::Release);
    match result {
        Ok(()) => 0,
        Err(rt::Error::System(error)) => error as u64,
        Err(_) => u64::MAX,
    }
}

/// Ends a load's preparation and begins the measurement.
fn now() {
    COUNTS.store(true, Ordering::Release);
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
    now();
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

/// How long the task with many objects sleeps before its end, and how long its parent waits: then it has made them.
const REST_NS: (u64, u64) = (400_000_000, 300_000_000);

/// Makes objects of a page and touches each; its task's end deletes them.
pub fn make_objects() -> Result<()> {
    for _ in 0..OBJECTS {
        let object = Object::create(PAGE)?;
        object.first::<Cell<u64>>()?.set(1);
    }
    Ok(time::sleep_ns(REST_NS.0)?)
}

fn task_end() -> Result<()> {
    let own_name = arguments::program();
    let program = Program::find(&Directory::root()?, own_name)?;
    let options = Options {
        word: WORD_MANY_OBJECTS,
        priority: call::thread_info(thread::Thread::current().id())?.priority,
        ..Options::default()
    };
    let task = program.start(own_name, &[], &options)?;
    time::sleep_ns(REST_NS.1)?;
    now();
    let status = task.wait_status()?;
    if status == 0 {
        Ok(())
    } else {
        Err(rt::abi::Error::BadArgument.into())
    }
}

fn delete_semaphores() -> Result<()> {
    let object = Object::create(2 * PAGE)?;
    for number in 0..MANY {
        Semaphore::create(object.base() + 8 * number, 0)?;
    }
    now();
    Ok(object.delete()?)
}

fn apd_flush() -> Result<()> {
    let mut clist = Clist::create()?;
    let mut objects = Vec::new();
    for _ in 0..MANY {
        let (object, password) = Object::create_with_password(PAGE)?;
        clist.insert(Capability {
            address: object.base(),
            password,
        })?;
        // A kept object leaves the task's kill list, which alone would keep its rights.
        object.keep()?;
        objects.push(object);
    }
    call::apd_insert(0, clist.object().base())?;
    for object in &objects {
        call::apd_lookup(object.base(), Rights::RW.bits().into())?;
    }
    now();
    call::apd_flush()?;
    BUSY.store(false, Ordering::Release);
    for object in objects {
        object.delete()?;
    }
    call::apd_delete(0)?;
    clist.delete()
}

/// An object with a page in each of so many slots.
fn sparse(slots: u64) -> Result<Object> {
    let object = Object::create(slots * SLOT)?;
    (0..slots).for_each(|slot| write(&object, slot));
    Ok(object)
}

/// Changes the first page of a slot.
fn write(object: &Object, slot: u64) {
    let region = object.region();
    if let Some(page) = region.slice::<Cell<u8>>(region.pointer(slot * SLOT), 1) {
        page[0].set(1);
    }
}

fn delete_slots() -> Result<()> {
    let object = sparse(SLOTS)?;
    now();
    Ok(object.delete()?)
}

fn sparse_object() -> Result<()> {
    // A piece that is too long does not always meet the end of a sleep.
    for _ in 0..4 {
        let mut object = sparse(SLOTS_KEPT)?;
        now();
        object.keep()?;
        object.flush()?;
        for slot in 0..8 {
            write(&object, slot);
            object.flush()?;
        }
        object.resize(PAGE)?;
        object.delete()?;
    }
    Ok(())
}

/// Objects that are flushed together, as many as there may be, their slots, and how often.
const TOGETHER: u64 = FLUSH_RANGES_MAX;
const SLOTS_TOGETHER: u64 = 64;
const ROUNDS: u64 = 16;

fn flush_together() -> Result<()> {
    let mut objects = Vec::new();
    for _ in 0..TOGETHER {
        let object = sparse(SLOTS_TOGETHER)?;
        object.keep()?;
        objects.push(object);
    }
    let all: Vec<&Object> = objects.iter().collect();
    now();
    for _ in 0..ROUNDS {
        Object::flush_together(&all)?;
        for object in &all {
            (0..SLOTS_TOGETHER).for_each(|slot| write(object, slot));
        }
    }
    BUSY.store(false, Ordering::Release);
    for object in objects {
        object.delete()?;
    }
    Ok(())
}

fn first_touches() -> Result<()> {
    let mut objects = Vec::new();
    for _ in 0..OBJECTS {
        objects.push(Object::create(PAGE)?);
    }
    now();
    for object in &objects {
        object.first::<Cell<u64>>()?.set(1);
    }
    BUSY.store(false, Ordering::Release);
    for object in objects {
        object.delete()?;
    }
    Ok(())
}

/// The worst lateness in nanoseconds, which count instructions where the clock does, during the load of this name.
///
/// # Errors
/// Those of the operations.
pub fn longest(name: &'static str) -> Result<Samples> {
    let load = LOADS.iter().position(|load| load.0 == name);
    LOAD.store(load.ok_or(rt::abi::Error::BadArgument)?, Ordering::Release);
    let priority = call::thread_info(thread::Thread::current().id())?.priority;
    COUNTS.store(false, Ordering::Release);
    BUSY.store(true, Ordering::Release);
    let labourer = thread::start(labour_entry(), 0, priority.saturating_sub(1))?;
    let mut worst = 0;
    while BUSY.load(Ordering::Acquire) {
        let wanted = time::since_boot_ns() + SLEEP_NS;
        let counts = COUNTS.load(Ordering::Acquire);
        time::sleep_ns(SLEEP_NS)?;
        if counts || COUNTS.load(Ordering::Acquire) {
            worst = worst.max(time::since_boot_ns().saturating_sub(wanted));
        }
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
