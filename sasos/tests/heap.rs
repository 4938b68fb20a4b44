//! Heap that was paid for is free for others when those who paid have ended: a family of tasks fills it in every shape, ends, and the
//! server holds what it held before.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use sasos::{
    accounts::{AccountId, limits},
    protection::apd::Apd,
};

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct Counting;

fn count(bytes: i64) {
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: the system's allocator does all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed() as i64);
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size().cast_signed() as i64));
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that may stay: boxes kept for the next object, task or domain, groups of places, chunks of maps.
const LEFT_MAX: i64 = 128 << 10;
/// Members of a family.
const TASKS: usize = 60;
/// Things of one kind that each makes.
const THINGS: u64 = 1500;

/// Makes things until the account or a table is full.
fn fill(rig: &mut Rig, actor: Actor, most: u64, mut make: impl FnMut(&mut Rig, u64) -> Result<(), Error>) -> u64 {
    for number in 0..most {
        match make(rig, number) {
            Ok(()) => {}
            Err(Error::LimitReached | Error::TableFull | Error::NoMemory) => return number,
            Err(error) => panic!("{actor:?}: {number}: {error:?}"),
        }
    }
    most
}

fn object(rig: &mut Rig, actor: Actor, bytes: u64) -> Result<u64, Error> {
    rig.call(actor, Call::ObjCreate, &[bytes, 0]).map(|(base, _)| base)
}

/// One task fills the heap.
fn pump(rig: &mut Rig, actor: Actor, shape: u64) {
    let made = match shape {
        0 => fill(rig, actor, THINGS, |rig, _| object(rig, actor, PAGE).map(drop)),
        1 => {
            let base = object(rig, actor, 4 * THINGS).unwrap();
            fill(rig, actor, THINGS, |rig, number| {
                rig.call(actor, Call::SemCreate, &[base + 4 * number, 0]).map(drop)
            })
        }
        2 => {
            let base = object(rig, actor, 64 * PAGE).unwrap();
            fill(rig, actor, 127, |rig, number| {
                let arguments = [base, 100 + number, u64::from(Rights::R.bits())];
                rig.call(actor, Call::ObjPasswd, &arguments).map(drop)
            });
            fill(rig, actor, 32, |rig, number| {
                let arguments = [base + 2 * number * PAGE, 1, u64::from(Rights::R.bits())];
                rig.call(actor, Call::PageLimit, &arguments).map(drop)
            })
        }
        // A table of the slot map for each end, and nodes of its domain.
        3 => fill(rig, actor, 20, |rig, _| {
            let base = object(rig, actor, 9000 * SLOT)?;
            rig.store(actor.space, base + 8990 * SLOT, 1)
        }),
        4 => fill(rig, actor, 300, |rig, _| {
            let base = object(rig, actor, PAGE)?;
            rig.store(actor.space, base, 1)
        }),
        _ => fill(rig, actor, 40, |rig, _| {
            let base = object(rig, actor, 3 * PAGE)?;
            rig.call(actor, Call::KeepObject, &[base])?;
            rig.store(actor.space, base + PAGE, 1)?;
            rig.call(actor, Call::ObjDelete, &[base]).map(drop)
        }),
    };
    assert!(made > 5, "shape {shape} made {made}");
}

/// Bytes that the server and the store hold after so many families have come and gone.
fn held_after(families: u64) -> i64 {
    let mut rig = Rig::new(61, 60_000, 60_000);
    // One that lives through all, with an object made before and one made after each family.
    let witness = rig.actor(Apd::EMPTY);
    object(&mut rig, witness, PAGE).unwrap();
    for family in 0..families {
        let amounts = limits::of_frames(50_000);
        let account = rig.server.ledger.open(AccountId::ROOT, amounts).unwrap();
        let actors: Vec<Actor> = (0..TASKS).map(|_| rig.actor_in(account, amounts)).collect();
        for (number, &actor) in actors.iter().enumerate() {
            pump(&mut rig, actor, (number as u64 + family) % 6);
        }
        rig.check();
        for actor in actors {
            rig.server.task_kill(actor.task, 1);
            rig.server.finish_ends(&mut rig.world);
            rig.settle();
        }
        rig.server.ledger.close(account);
    }
    rig.put_away();
    rig.checkpoint().unwrap();
    rig.put_away();
    (0..100).for_each(|_| rig.move_disk());
    rig.check();
    let Rig { server, .. } = rig;
    let before = BYTES.get();
    drop(server);
    before - BYTES.get()
}

#[test]
fn what_families_paid_for_is_given_back() {
    let start = held_after(0);
    for families in [1, 3] {
        let left = held_after(families) - start;
        assert!(
            left < LEFT_MAX,
            "{families} families have left {left} bytes, with {start} at the start"
        );
    }
}
