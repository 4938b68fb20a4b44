//! The rows: what each measures, and how.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use measure::{SAMPLES, Samples};
use rt::{
    Cell, Clist, Directory, Object, Result,
    abi::{
        Error, Rights,
        address::{PAGE, SLOT},
        kernel_page::DOMAIN_ECHO,
        layout::{CALL_DEPTH_MAX, Capability, PRIORITY_DEFAULT},
    },
    arguments, call,
    pdx::Domain,
    sync::Semaphore,
    task::{Options, Program},
    thread::{self, Thread},
    thread_entry,
};

use crate::{WORD_NOTHING, disk, latency::longest, protected};

/// A row: its name, what it measures, and the measurement.
pub struct Measurement {
    /// Its name; where Linux does the same work, the same as there.
    pub name: &'static str,
    /// The operation that it measures.
    pub text: &'static str,
    /// Takes the samples.
    pub run: fn(&'static str) -> Result<Samples>,
}

const fn row(name: &'static str, text: &'static str, run: fn(&'static str) -> Result<Samples>) -> Measurement {
    Measurement { name, text, run }
}

/// The row that mostly waits.
pub const WAITS: &str = "page-flush";

/// All rows.
pub static ROWS: &[Measurement] = &[
    row(
        "null-call",
        "a system call that only tells the calling thread",
        null_call,
    ),
    row(
        "cheap-call",
        "a system call that only looks something up: the clock",
        cheap_call,
    ),
    row(
        "address-wake",
        "a system call that looks up a right and a queue: waking a thread at an address where none waits",
        address_wake,
    ),
    row(
        "kernel-domain-call",
        "a call into a kernel domain, which adds up its parameters",
        kernel_domain_call,
    ),
    row(
        "apd-lookup",
        "asking for rights that are in the validation cache",
        apd_lookup,
    ),
    row(
        "pdx-round-trip",
        "a protected call and its return; the callee's domain holds nothing of the caller's",
        protected::round_trip,
    ),
    row(
        "pdx-merge",
        "a protected call and its return; the callee's domain extends the caller's",
        protected::merged,
    ),
    row(
        "sem-signal-wait",
        "signalling a semaphore and taking it",
        sem_signal_wait,
    ),
    row(
        "sem-round-trip",
        "two threads that hand a semaphore to each other",
        sem_round_trip,
    ),
    row(
        "sem-round-trip-tasks",
        "the same between two tasks",
        sem_round_trip_tasks,
    ),
    row(
        "yield-switch",
        "switching to another thread of the same domain",
        yield_switch,
    ),
    row(
        "thread-create-delete",
        "creating a thread that ends at once, and waiting for it",
        thread_create_delete,
    ),
    row(
        "task-create-exit",
        "cloning this program's image, starting it, its end and its reaping",
        task_create_exit,
    ),
    row(
        "object-create-touch-delete",
        "creating an object of one page, writing to it, deleting it",
        object_create_touch_delete,
    ),
    row(
        "object-create-touch-delete-4",
        "the same with four objects that are there at once, for each",
        four_created_touched_deleted,
    ),
    row(
        "first-touch",
        "writing to a further page of an object for the first time, its frame zeroed beforehand in idle time",
        |name| touch_fresh_pages::<1>(name, PAGE, wait_for_frames),
    ),
    row(
        "first-touch-zeroing",
        "the same where nobody was idle: the fault fills the frame with zeroes",
        |name| touch_fresh_pages::<1>(name, PAGE, |_| Ok(())),
    ),
    row(
        "first-touch-in-turn",
        "first-touch with two objects, whose pages are touched in turn",
        |name| touch_fresh_pages::<2>(name, PAGE, wait_for_frames),
    ),
    row(
        "first-touch-of-16",
        "first-touch with sixteen objects, whose pages are touched in turn",
        |name| touch_fresh_pages::<16>(name, PAGE, wait_for_frames),
    ),
    row(
        "first-touch-of-64",
        "the same with sixty-four objects, twice as many as a domain remembers slots",
        |name| touch_fresh_pages::<64>(name, PAGE, wait_for_frames),
    ),
    row(
        "first-touch-kept",
        "writing to a further page of an object that is kept, which has nothing on the disk yet",
        first_touch_kept,
    ),
    row(
        "first-touch-new-slot",
        "writing to the first page of a further slot of an object (2 MiB), frames zeroed beforehand",
        |name| touch_fresh_pages::<1>(name, SLOT, wait_for_frames),
    ),
    row(
        "longest-interrupts-off",
        "the worst lateness of an urgent sleeper while another thread does long operations",
        longest,
    ),
    row(
        "longest-task-end",
        "the same while a task with 3,000 objects ends",
        longest,
    ),
    row(
        "longest-delete-semaphores",
        "the same while an object with 1,000 semaphores is deleted",
        longest,
    ),
    row(
        "longest-apd-flush",
        "the same while rights on 1,000 objects are dropped by one ApdFlush",
        longest,
    ),
    row(
        "longest-delete-slots",
        "the same while an object of 512 slots is deleted, each slot with a page",
        longest,
    ),
    row(
        "longest-first-touches",
        "the same while 3,000 objects are touched for the first time",
        longest,
    ),
    row(
        "longest-sparse-object",
        "the same while an object of 3,000 slots, each with a page, is kept, flushed, cut and deleted",
        longest,
    ),
    row(
        "longest-flush-together",
        "the same while 16 objects of 64 slots, each slot with a changed page, are flushed together",
        longest,
    ),
    // Behind all others, of which they might cost some: callees that end meanwhile, and vector registers that the thread has from now on.
    row(
        "pdx-12",
        "twelve procedures in turn: a protected call and its return",
        |name| protected::in_turn(name, 12),
    ),
    row(
        "pdx-100",
        "a hundred procedures in turn: a protected call and its return",
        |name| protected::in_turn(name, 100),
    ),
    row(
        "pdx-10-domains",
        "ten procedures, each of a domain of its own, in no order: a protected call and its return",
        protected::of_domains,
    ),
    row(
        "pdx-depth-8",
        "a protected call and its return, of eight that are inside of one another",
        |name| protected::nested(name, 8, Domain::Empty),
    ),
    row(
        "pdx-depth-8-merge",
        "the same where each callee's domain extends its caller's",
        |name| protected::nested(name, 8, Domain::Merge),
    ),
    row(
        "pdx-depth-32",
        "the same of as many as can be inside of one another",
        |name| protected::nested(name, CALL_DEPTH_MAX as u64, Domain::Merge),
    ),
    row(
        "pdx-crowded",
        "a protected call and its return while twelve other calls wait inside of the callee",
        protected::crowded::<12>,
    ),
    row(
        "pdx-crowded-20",
        "the same with twenty, which is more than may be inside without the server's leave",
        protected::crowded::<20>,
    ),
    row(
        "pdx-explicit-apd",
        "a protected call, in an APD that the caller describes, and its return",
        protected::explicit_apd,
    ),
    row(
        "pdx-after-apd-change",
        "a protected call and its return after another domain has changed its APD",
        protected::after_apd_change,
    ),
    row(
        "pdx-vector",
        "a protected call and its return; caller and callee use vector registers each time",
        protected::with_vectors,
    ),
    row(WAITS, "putting one changed page on stable storage", page_flush),
    row(
        "disk-read-in-turn",
        "a page from the disk, one behind the other, without the time in which the reader waits",
        disk::in_turn,
    ),
    row("disk-read-at-random", "the same of pages at random", disk::at_random),
    row(
        "disk-cached-in-turn",
        "a page that has come from the disk is read once more, one behind the other",
        disk::cached_in_turn,
    ),
    row(
        "disk-cached-at-random",
        "the same of pages at random",
        disk::cached_at_random,
    ),
    row(
        "disk-sync-1",
        "writing to a page and making it durable, without the time in which the writer waits",
        disk::sync_1,
    ),
    row(
        "disk-sync-256",
        "the same of 256 neighbouring pages at once, a page",
        disk::sync_256,
    ),
    row(
        "disk-objects-1k",
        "a thousand objects of a page, each made, written, kept, read and deleted",
        disk::few_objects,
    ),
    row(
        "disk-objects-16k",
        "the same of 16,000 objects, more than can be active at once",
        disk::many_objects,
    ),
    row(
        "writer-wait",
        "the longest write to a page of 100 MiB while a checkpoint writes all of them",
        disk::writer_wait,
    ),
    row("writer-wait-1m", "the same of 1 MiB", disk::writer_wait_little),
];

fn null_call(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            call::thread_my_id();
        }
        Ok(())
    })
}

fn cheap_call(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            let _ = core::hint::black_box(call::clock_read());
        }
        Ok(())
    })
}

fn address_wake(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    let object = Object::create(PAGE)?;
    let samples = Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            call::address_wake(object.base(), 1)?;
        }
        Ok(())
    });
    object.delete()?;
    samples
}

fn kernel_domain_call(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    let entry = call::kernel_page::domain(DOMAIN_ECHO).ok_or(Error::NotAnEntry)?;
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            call::domain_call(entry, 1, 2, 3, 4)?;
        }
        Ok(())
    })
}

fn apd_lookup(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    let address = Directory::root()?.object().base();
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            call::apd_lookup(address, Rights::R.bits().into())?;
        }
        Ok(())
    })
}

fn sem_signal_wait(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 50;
    let object = Object::create(PAGE)?;
    let semaphore = Semaphore::create(object.base(), 0)?;
    let samples = Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            semaphore.signal()?;
            semaphore.wait()?;
        }
        Ok(())
    });
    semaphore.delete()?;
    object.delete()?;
    samples
}

thread_entry!(answer_entry, answer);

/// Answers each signal at the first semaphore with one at the second, until they are deleted.
pub fn answer(base: u64) -> u64 {
    let (question, answer) = (Semaphore::at(base), Semaphore::at(base + 8));
    while question.wait().and_then(|()| answer.signal()).is_ok() {}
    0
}

fn sem_round_trip(name: &'static str) -> Result<Samples> {
    answered(name, |object| {
        let other = thread::start(answer_entry(), object.base(), PRIORITY_DEFAULT)?;
        Ok(move || other.join_status().map_err(rt::Error::from))
    })
}

fn sem_round_trip_tasks(name: &'static str) -> Result<Samples> {
    let own_name = arguments::program();
    let program = Program::find(&Directory::root()?, own_name)?;
    answered(name, |object| {
        let capability = Capability {
            address: object.base(),
            password: object.grant(Rights::RW)?,
        };
        Clist::root()?.insert(capability)?;
        let options = Options {
            word: object.base(),
            ..Options::default()
        };
        let other = program.start(own_name, &[], &options)?;
        Ok(move || {
            let ended = other.wait_status();
            Clist::root()?.remove(capability)?;
            Ok(ended?)
        })
    })
}

/// Signals one semaphore and waits for another one, which somebody signals who is begun with their address, and who ends when they are deleted.
fn answered<T, E: FnOnce() -> Result<T>>(
    name: &'static str,
    begin: impl FnOnce(&Object) -> Result<E>,
) -> Result<Samples> {
    const BATCH: u64 = 20;
    let object = Object::create(PAGE)?;
    let question = Semaphore::create(object.base(), 0)?;
    let reply = Semaphore::create(object.base() + 8, 0)?;
    let end = begin(&object)?;
    let samples = Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            question.signal()?;
            reply.wait()?;
        }
        Ok(())
    });
    question.delete()?;
    end()?;
    reply.delete()?;
    object.delete()?;
    samples
}

thread_entry!(yield_entry, yield_until_told);

static TOLD: AtomicBool = AtomicBool::new(false);

fn yield_until_told(_: u64) -> u64 {
    while !TOLD.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    0
}

fn yield_switch(name: &'static str) -> Result<Samples> {
    const YIELDS: u64 = 50;
    TOLD.store(false, Ordering::Relaxed);
    let other = thread::start(yield_entry(), 0, priority()?)?;
    // Each yield comes back by another one: two switches.
    let samples = Samples::new(name, YIELDS * 2).take(SAMPLES, || {
        for _ in 0..YIELDS {
            thread::yield_now();
        }
        Ok(())
    });
    TOLD.store(true, Ordering::Relaxed);
    other.join_status()?;
    samples
}

/// The priority of this thread, for others that shall alternate with it.
fn priority() -> Result<u64> {
    Ok(call::thread_info(Thread::current().id())?.priority)
}

thread_entry!(end_entry, end);

fn end(status: u64) -> u64 {
    status
}

fn thread_create_delete(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 10;
    let entry = end_entry();
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            thread::start(entry, 0, PRIORITY_DEFAULT)?.join_status()?;
        }
        Ok(())
    })
}

fn task_create_exit(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 4;
    let own_name = arguments::program();
    let program = Program::find(&Directory::root()?, own_name)?;
    let options = Options {
        word: WORD_NOTHING,
        ..Options::default()
    };
    Samples::new(name, BATCH).take(SAMPLES / 2, || {
        for _ in 0..BATCH {
            program.start(own_name, &[], &options)?.wait_status()?;
        }
        Ok(())
    })
}

fn object_create_touch_delete(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 10;
    Samples::new(name, BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            let object = Object::create(PAGE)?;
            object.first::<Cell<u64>>()?.set(1);
            object.delete()?;
        }
        Ok(())
    })
}

fn four_created_touched_deleted(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 10;
    Samples::new(name, 4 * BATCH).take(SAMPLES, || {
        for _ in 0..BATCH {
            let objects = [(); 4].map(|()| Object::create(PAGE));
            for object in objects.iter().flatten() {
                object.first::<Cell<u64>>()?.set(1);
            }
            for object in objects {
                object?.delete()?;
            }
        }
        Ok(())
    })
}

fn first_touch_kept(name: &'static str) -> Result<Samples> {
    touch_fresh_pages::<1>(name, PAGE, |objects| {
        for object in objects {
            object.keep()?;
        }
        wait_for_frames(objects)
    })
}

/// Long enough for the kernel to fill as many frames as a sample takes.
fn wait_for_frames(_: &[Object]) -> Result<()> {
    Ok(rt::time::sleep_ms(2)?)
}

/// Touches the first byte behind each `step` bytes of so many fresh objects, in turn, again and again, after `before`.
fn touch_fresh_pages<const OBJECTS: usize>(
    name: &'static str,
    step: u64,
    before: impl Fn(&[Object]) -> Result<()>,
) -> Result<Samples> {
    const BATCH: u64 = 64;
    let mut samples = Samples::new(name, BATCH);
    for round in 0..SAMPLES + 2 {
        let mut objects = Vec::with_capacity(OBJECTS);
        for _ in 0..OBJECTS {
            let object = Object::create((BATCH + 1) * step)?;
            object.first::<Cell<u64>>()?.set(1);
            objects.push(object);
        }
        let places = 1..=BATCH / OBJECTS as u64;
        let bytes = places.flat_map(|place| objects.iter().map(move |object| (object, place * step)));
        let bytes: Vec<&Cell<u8>> = bytes
            .filter_map(|(object, offset)| object.region().at_offset(offset))
            .collect();
        before(&objects)?;
        let start = rt::time::ticks();
        for byte in &bytes {
            byte.set(1);
        }
        let ticks = rt::time::ticks().wrapping_sub(start);
        for object in objects {
            object.delete()?;
        }
        if round >= 2 {
            samples.add(ticks);
        }
    }
    Ok(samples)
}

fn page_flush(name: &'static str) -> Result<Samples> {
    // A name, so that an interrupted run leaves nothing that cannot be found.
    const NAME: &str = "micro-page";
    let mut directory = Directory::root()?;
    let object = match directory.open_object(NAME)? {
        Some(object) => object,
        None => directory.create(NAME, rt::Kind::Data, PAGE, 0)?,
    };
    object.flush()?;
    let word = object.first::<Cell<u64>>()?;
    let samples = Samples::new(name, 1).take(SAMPLES / 4, || {
        word.set(word.get() + 1);
        Ok(call::page_flush(object.base(), 1)?)
    });
    directory.delete(NAME, rt::Kind::Data)?;
    samples
}
