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
    pdx::{self, Domain},
    pdx_entry,
    sync::Semaphore,
    task::{Options, Program},
    thread::{self, Thread},
    thread_entry,
};

use crate::{WORD_NOTHING, latency::longest};

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
        pdx_round_trip,
    ),
    row(
        "pdx-merge",
        "a protected call and its return; the callee's domain extends the caller's",
        pdx_merge,
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
        first_touch,
    ),
    row(
        "first-touch-zeroing",
        "the same where nobody was idle: the fault fills the frame with zeroes",
        first_touch_zeroing,
    ),
    row(
        "first-touch-in-turn",
        "first-touch with two objects, whose pages are touched in turn",
        first_touch_in_turn,
    ),
    row(
        "first-touch-of-16",
        "first-touch with sixteen objects, whose pages are touched in turn",
        |name| touch_fresh_pages::<16>(name, PAGE, wait_for_frames),
    ),
    row(
        "first-touch-new-slot",
        "writing to the first page of a further slot of an object (2 MiB), frames zeroed beforehand",
        first_touch_new_slot,
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
    // Behind all others, of which they might cost some: callees that end meanwhile, and vector registers that the thread has from now on.
    row(
        "pdx-12",
        "twelve procedures in turn: a protected call and its return",
        |name| in_turn(name, 12),
    ),
    row(
        "pdx-100",
        "a hundred procedures in turn: a protected call and its return",
        |name| in_turn(name, 100),
    ),
    row(
        "pdx-depth-8",
        "a protected call and its return, of eight that are inside of one another",
        |name| nested(name, 8, Domain::Empty),
    ),
    row(
        "pdx-depth-8-merge",
        "the same where each callee's domain extends its caller's",
        |name| nested(name, 8, Domain::Merge),
    ),
    row(
        "pdx-depth-32",
        "the same of as many as can be inside of one another",
        |name| nested(name, CALL_DEPTH_MAX as u64, Domain::Merge),
    ),
    row(
        "pdx-crowded",
        "a protected call and its return while twelve other calls wait inside of the callee",
        crowded,
    ),
    row(
        "pdx-after-apd-change",
        "a protected call and its return after another domain has changed its APD",
        after_apd_change,
    ),
    row(
        "pdx-vector",
        "a protected call and its return; caller and callee use vector registers each time",
        pdx_vector,
    ),
    row(WAITS, "putting one changed page on stable storage", page_flush),
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

pdx_entry!(pub nothing_entry, nothing);

fn nothing(w0: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (w0, 0)
}

pdx_entry!(pub vector_entry, vector);

fn vector(w0: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    call::use_vectors();
    (w0, 0)
}

/// Measures while procedures of this very image can be called by this domain and by theirs, which holds the image.
fn with_procedures(entries: &[pdx::Entry], measure: impl FnOnce() -> Result<Samples>) -> Result<Samples> {
    /// Entries of a password.
    const TOGETHER: usize = 10;
    let image = pdx::own_image().ok_or(rt::Error::NotAProgram)?.0;
    let mut callee = pdx::clist_for(&[])?;
    let mut own = Clist::create()?;
    let mut passwords = [0; 10];
    for (place, entries) in passwords.iter_mut().zip(entries.chunks(TOGETHER)) {
        let password = pdx::register(image, &callee, entries)?;
        let capability = Capability {
            address: image,
            password,
        };
        own.insert(capability)?;
        callee.insert(capability)?;
        *place = password;
    }
    call::apd_insert(0, own.object().base())?;
    let samples = measure();
    call::apd_delete(0)?;
    for password in passwords.into_iter().filter(|&password| password != 0) {
        call::obj_passwd(image, password, 0)?;
    }
    own.delete()?;
    callee.delete()?;
    samples
}

/// Calls a procedure in a domain that holds the image and, by `domain`, more.
fn protected_call(name: &'static str, domain: Domain) -> Result<Samples> {
    const BATCH: u64 = 100;
    let entry = nothing_entry();
    with_procedures(&[entry], || {
        Samples::new(name, BATCH).take(SAMPLES, || {
            for index in 0..BATCH {
                pdx::call(entry, domain, [index, 0, 0, 0])?;
            }
            Ok(())
        })
    })
}

/// The same with vector registers.
fn pdx_vector(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 100;
    let entry = vector_entry();
    with_procedures(&[entry], || {
        Samples::new(name, BATCH).take(SAMPLES, || {
            for index in 0..BATCH {
                call::use_vectors();
                pdx::call(entry, Domain::Empty, [index, 0, 0, 0])?;
            }
            Ok(())
        })
    })
}

/// A hundred procedures.
macro_rules! procedures {
    ($($tens:ident $first:literal),+) => {
        $(mod $tens {
            procedures!(ten: $first, e0 0, e1 1, e2 2, e3 3, e4 4, e5 5, e6 6, e7 7, e8 8, e9 9);
        })+

        fn procedures() -> [[pdx::Entry; 10]; 10] {
            [$($tens::entries(),)+]
        }
    };
    (ten: $first:literal, $($entry:ident $number:literal),+) => {
        $(rt::pdx_entry!(pub $entry, $crate::rows::number::<{ $first + $number }>);)+

        pub fn entries() -> [rt::pdx::Entry; 10] {
            [$($entry(),)+]
        }
    };
}

procedures!(a 0, b 10, c 20, d 30, e 40, f 50, g 60, h 70, i 80, j 90);

/// Each is another function.
fn number<const NUMBER: u64>(w0: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (w0, NUMBER)
}

/// The first procedures one after the other.
fn in_turn(name: &'static str, count: usize) -> Result<Samples> {
    let procedures = procedures();
    let procedures = procedures.as_flattened().get(..count).unwrap_or_default();
    with_procedures(procedures, || {
        Samples::new(name, count as u64).take(SAMPLES, || {
            for &entry in procedures {
                pdx::call(entry, Domain::Empty, [0; 4])?;
            }
            Ok(())
        })
    })
}

pdx_entry!(pub nest_entry, nest);
pdx_entry!(pub nest_merged_entry, nest_merged);

/// Calls itself so many times, one inside of the other.
fn nest(depth: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    if depth <= 1 {
        return (0, 0);
    }
    match pdx::call(nest_entry(), Domain::Empty, [depth - 1, 0, 0, 0]) {
        Ok(results) => results,
        Err(error) => (error as u64, 0),
    }
}

/// The same, in domains that extend their caller's.
fn nest_merged(depth: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    if depth <= 1 {
        return (0, 0);
    }
    match pdx::call(nest_merged_entry(), Domain::Merge, [depth - 1, 0, 0, 0]) {
        Ok(results) => results,
        Err(error) => (error as u64, 0),
    }
}

fn nested(name: &'static str, depth: u64, domain: Domain) -> Result<Samples> {
    const ROUNDS: u64 = 10;
    let entry = match domain {
        Domain::Empty => nest_entry(),
        Domain::Merge => nest_merged_entry(),
    };
    with_procedures(&[entry], || {
        Samples::new(name, depth * ROUNDS).take(SAMPLES, || {
            for _ in 0..ROUNDS {
                if pdx::call(entry, domain, [depth, 0, 0, 0])?.0 != 0 {
                    return Err(Error::TooDeep.into());
                }
            }
            Ok(())
        })
    })
}

pdx_entry!(pub wait_inside_entry, wait_inside);
/// Waits for the semaphore at an address, if it is given one.
fn wait_inside(address: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    if address != 0 {
        // Its end lets it go on.
        let _ = Semaphore::at(address).wait();
    }
    (0, 0)
}

thread_entry!(guest_entry, guest);
/// Makes a call that waits inside.
fn guest(address: u64) -> u64 {
    pdx::call(wait_inside_entry(), Domain::Merge, [address, 0, 0, 0])
        .is_err()
        .into()
}

/// A call beside others that are inside and wait.
fn crowded(name: &'static str) -> Result<Samples> {
    const GUESTS: usize = 12;
    const BATCH: u64 = 20;
    let entry = wait_inside_entry();
    with_procedures(&[entry], || {
        let object = Object::create(PAGE)?;
        let waited_for = Semaphore::create(object.base(), 0)?;
        let guests: Vec<_> = (0..GUESTS)
            .map(|_| thread::start(guest_entry(), object.base(), PRIORITY_DEFAULT))
            .collect();
        // Until all of them are inside.
        rt::time::sleep_ms(20)?;
        let samples = Samples::new(name, BATCH).take(SAMPLES, || {
            for _ in 0..BATCH {
                pdx::call(entry, Domain::Merge, [0; 4])?;
            }
            Ok(())
        });
        waited_for.delete()?;
        for guest in guests {
            guest?.join_status()?;
        }
        object.delete()?;
        samples
    })
}

pdx_entry!(pub flush_entry, flush);

/// Changes the APD of the domain that it runs in.
fn flush(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (call::apd_flush().is_err().into(), 0)
}

fn after_apd_change(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 20;
    let (change, entry) = (flush_entry(), nothing_entry());
    with_procedures(&[change, entry], || {
        let mut samples = Samples::new(name, BATCH);
        for round in 0..SAMPLES + 2 {
            let mut ticks = 0;
            for _ in 0..BATCH {
                pdx::call(change, Domain::Empty, [0; 4])?;
                let start = rt::time::ticks();
                pdx::call(entry, Domain::Empty, [0; 4])?;
                let end = rt::time::ticks();
                // Less what it takes to look at the clock.
                let clock = rt::time::ticks().wrapping_sub(end);
                ticks += end.wrapping_sub(start).wrapping_sub(clock);
            }
            if round >= 2 {
                samples.add(ticks);
            }
        }
        Ok(samples)
    })
}

fn pdx_round_trip(name: &'static str) -> Result<Samples> {
    protected_call(name, Domain::Empty)
}

fn pdx_merge(name: &'static str) -> Result<Samples> {
    protected_call(name, Domain::Merge)
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

fn first_touch(name: &'static str) -> Result<Samples> {
    touch_fresh_pages::<1>(name, PAGE, wait_for_frames)
}

fn first_touch_zeroing(name: &'static str) -> Result<Samples> {
    touch_fresh_pages::<1>(name, PAGE, || Ok(()))
}

fn first_touch_in_turn(name: &'static str) -> Result<Samples> {
    touch_fresh_pages::<2>(name, PAGE, wait_for_frames)
}

fn first_touch_new_slot(name: &'static str) -> Result<Samples> {
    touch_fresh_pages::<1>(name, SLOT, wait_for_frames)
}

/// Long enough for the kernel to fill as many frames as a sample takes.
fn wait_for_frames() -> Result<()> {
    Ok(rt::time::sleep_ms(2)?)
}

/// Touches the first byte behind each `step` bytes of so many fresh objects, in turn, again and again, after `before`.
fn touch_fresh_pages<const OBJECTS: usize>(
    name: &'static str,
    step: u64,
    before: impl Fn() -> Result<()>,
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
        before()?;
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
