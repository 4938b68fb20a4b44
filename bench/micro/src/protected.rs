//! The rows of protected calls.

use alloc::vec::Vec;

use measure::{SAMPLES, Samples};
use rt::{
    Clist, Object, Result,
    abi::{
        Error,
        address::PAGE,
        layout::{Capability, PRIORITY_DEFAULT},
    },
    call,
    pdx::{self, Domain},
    pdx_entry,
    sync::Semaphore,
    thread, thread_entry,
};

pdx_entry!(pub nothing_entry, nothing);

fn nothing(w0: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (w0, 0)
}

pdx_entry!(pub vector_entry, vector);

fn vector(w0: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    call::use_vectors();
    (w0, 0)
}

/// Entries of a password.
const TOGETHER: usize = 10;

/// Measures while procedures of this very image can be called by this domain and by theirs, which holds the image.
fn with_procedures(entries: &[pdx::Entry], measure: impl FnOnce() -> Result<Samples>) -> Result<Samples> {
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

pub fn explicit_apd(name: &'static str) -> Result<Samples> {
    const BATCH: u64 = 20;
    let entry = nothing_entry();
    let domain = call::apd_get()?;
    with_procedures(&[entry], || {
        Samples::new(name, BATCH).take(SAMPLES, || {
            for index in 0..BATCH {
                call::pdx_call_in(entry.into(), [index, 0, 0, 0], &domain)?;
            }
            Ok(())
        })
    })
}

/// The same with vector registers.
pub fn with_vectors(name: &'static str) -> Result<Samples> {
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
        $(rt::pdx_entry!(pub $entry, $crate::protected::number::<{ $first + $number }>);)+

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
pub fn in_turn(name: &'static str, count: usize) -> Result<Samples> {
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

/// Ten procedures, each with a Clist and so a domain of its own, in an order without neighbours. (An object has sixteen passwords for procedures at most.)
pub fn of_domains(name: &'static str) -> Result<Samples> {
    let [procedures, ..] = procedures();
    let count = procedures.len();
    let image = pdx::own_image().ok_or(rt::Error::NotAProgram)?.0;
    let mut own = Clist::create()?;
    let mut callees = Vec::with_capacity(count);
    for entry in &procedures {
        let callee = pdx::clist_for(&[])?;
        let password = pdx::register(image, &callee, core::slice::from_ref(entry))?;
        own.insert(Capability {
            address: image,
            password,
        })?;
        callees.push((callee, password));
    }
    call::apd_insert(0, own.object().base())?;
    let samples = Samples::new(name, count as u64).take(SAMPLES, || {
        for number in 0..count {
            // Seven has no factor in common with their number.
            let entry = procedures.get(7 * number % count).copied();
            pdx::call(entry.ok_or(Error::BadArgument)?, Domain::Empty, [0; 4])?;
        }
        Ok(())
    });
    call::apd_delete(0)?;
    for (callee, password) in callees {
        call::obj_passwd(image, password, 0)?;
        callee.delete()?;
    }
    own.delete()?;
    samples
}

pdx_entry!(pub nest_entry, nest);
pdx_entry!(pub nest_merged_entry, nest_merged);

/// Calls itself so many times, one inside of the other.
#[inline(always)]
fn nest(depth: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    go_deeper(depth, nest_entry(), Domain::Empty)
}

/// The same, in domains that extend their caller's.
#[inline(always)]
fn nest_merged(depth: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    go_deeper(depth, nest_merged_entry(), Domain::Merge)
}

#[inline(always)]
fn go_deeper(depth: u64, entry: pdx::Entry, domain: Domain) -> (u64, u64) {
    if depth <= 1 {
        return (0, 0);
    }
    match pdx::call(entry, domain, [depth - 1, 0, 0, 0]) {
        Ok(results) => results,
        Err(error) => (error as u64, 0),
    }
}

pub fn nested(name: &'static str, depth: u64, domain: Domain) -> Result<Samples> {
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
pub fn crowded<const GUESTS: usize>(name: &'static str) -> Result<Samples> {
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

pub fn after_apd_change(name: &'static str) -> Result<Samples> {
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

pub fn round_trip(name: &'static str) -> Result<Samples> {
    protected_call(name, Domain::Empty)
}

pub fn merged(name: &'static str) -> Result<Samples> {
    protected_call(name, Domain::Merge)
}
