//! Heap that was paid for is free for others when those who paid have ended: a family of tasks fills it in every shape, ends, and the
//! server holds what it held before.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use abi::{
    Call, Error, Rights,
    address::{OBJECT_BYTES_MAX, PAGE, SLOT},
    layout::{CAPABILITIES_MAX, ENTRIES_MAX, PDX_MAX},
};
use common::{Actor, Rig};
use kcore::{Machine, scheduler::Standing};
use sasos::{
    Access, Stop,
    accounts::{AccountId, Resource, UNLIMITED, limits},
    directory::{creation::heap_reserve, object::REST_BYTES},
    protection::apd::Apd,
};

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The same without what is as long as a page: the contents of the machine's frames.
    static BYTES_OF_HEAP: Cell<i64> = const { Cell::new(0) };
    /// As many of those there were when a test began to count them.
    static HEAP_BEGUN: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct Counting;

fn count(bytes: i64) {
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
    if bytes.unsigned_abs() != PAGE {
        let _ = BYTES_OF_HEAP.try_with(|count| count.set(count.get() + bytes));
    }
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

/// Bytes that may stay: boxes kept for the next object, task or domain, groups of places, chunks of maps. Eight records of domains are
/// among them, and the store's bits of two groups of blocks, with the checksums above them.
const LEFT_MAX: i64 = 210 << 10;
/// Families that come and go one behind the other, and bytes that each but the first may leave: all that is kept was kept of that one. What lists keep for what comes next differs by
/// some thousand bytes, however many there were.
const FAMILIES: u64 = 13;
const LEFT_MORE: i64 = 1 << 10;
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
            rig.ends(actor);
        }
        rig.server.ledger.close(account);
    }
    rig.put_away();
    rig.generation().unwrap();
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
    let [first, last] = [1, FAMILIES].map(|families| held_after(families) - start);
    assert!(
        first < LEFT_MAX,
        "a family has left {first} bytes, with {start} at the start"
    );
    let more = (FAMILIES - 1).cast_signed() * LEFT_MORE;
    assert!(last < first + more, "{FAMILIES} have left {last} bytes, one {first}");
}

/// Programs pay for at least as many bytes as their things take of the heap. Else they take the part of others.
#[test]
fn things_cost_what_they_take() {
    type Make = fn(&mut Rig, Actor) -> Result<(), Error>;
    fn passwords(rig: &mut Rig, actor: Actor, count: u64) -> Result<u64, Error> {
        let base = object(rig, actor, PAGE)?;
        for number in 0..count {
            let arguments = [base, 100 + number, u64::from(Rights::R.bits())];
            rig.call(actor, Call::ObjPasswd, &arguments)?;
        }
        Ok(base)
    }
    fn limits(rig: &mut Rig, actor: Actor, count: u64) -> Result<u64, Error> {
        let base = object(rig, actor, 512 * PAGE)?;
        for number in 0..count {
            let arguments = [base + 2 * number * PAGE, 1, u64::from(Rights::R.bits())];
            rig.call(actor, Call::PageLimit, &arguments)?;
        }
        Ok(base)
    }
    let kinds: [(&str, Make); 8] = [
        ("objects", |rig, actor| object(rig, actor, PAGE).map(drop)),
        ("8 passwords", |rig, actor| passwords(rig, actor, 8).map(drop)),
        ("16 passwords", |rig, actor| passwords(rig, actor, 16).map(drop)),
        ("70 passwords", |rig, actor| passwords(rig, actor, 70).map(drop)),
        ("33 limits", |rig, actor| limits(rig, actor, 33).map(drop)),
        ("60 limits", |rig, actor| limits(rig, actor, 60).map(drop)),
        ("kept objects", |rig, actor| {
            let base = passwords(rig, actor, 5)?;
            rig.call(actor, Call::KeepObject, &[base]).map(drop)
        }),
        ("semaphores", |rig, actor| {
            let base = object(rig, actor, PAGE)?;
            (0..3).try_for_each(|number| rig.call(actor, Call::SemCreate, &[base + 4 * number, 0]).map(drop))
        }),
    ];
    for (kind, make) in kinds {
        let mut rig = Rig::new(23, 60_000, 40_000);
        let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
        // The first of them make tables that the others share.
        for _ in 0..20 {
            make(&mut rig, actor).unwrap();
        }
        rig.server.ledger.empty_all_hands();
        let before = (BYTES.get(), rig.server.ledger.used(AccountId::ROOT, Resource::Bytes));
        for _ in 0..300 {
            make(&mut rig, actor).unwrap();
        }
        rig.server.ledger.empty_all_hands();
        let taken = BYTES.get() - before.0;
        let paid = (rig.server.ledger.used(AccountId::ROOT, Resource::Bytes) - before.1).cast_signed();
        assert!(taken <= paid, "{kind}: {taken} taken, {paid} paid");
    }
}

/// However charges and the heap differ, programs are refused while as much is left as the first task may need: it still makes things.
#[test]
fn an_eighth_of_the_heap_is_the_first_tasks() {
    let mut rig = Rig::new(22, 40_000, 4096);
    let all = 40 << 20;
    rig.world.kernel.hardware.heap_left = all;
    let (first, programs) = rig.first_task();
    let program = rig.actor_in(programs, UNLIMITED);
    let reserve = heap_reserve(&rig.world);
    let part = (all - reserve) / 8;
    for (left, makes) in [
        (reserve + part + 1, [true, true]),
        (reserve + part, [false, true]),
        (reserve + 1, [false, true]),
        (reserve, [false, false]),
    ] {
        rig.world.kernel.hardware.heap_left = left;
        let made = [program, first].map(|actor| object(&mut rig, actor, PAGE).is_ok());
        assert_eq!(made, makes, "{left} are left, {reserve} nobody's");
    }
}

/// Places of threads stay when the threads have ended, so all have as much less from then on. Else the bounds of all together would be more than the heap, and nobody who has
/// his part left would get it.
#[test]
fn places_of_threads_are_taken_from_what_all_have() {
    let mut rig = Rig::new(21, 40_000, 4096);
    let (_, programs) = rig.first_task();
    let limits = |rig: &Rig| [AccountId::ROOT, programs].map(|account| rig.server.ledger.limits(account));
    let most = limits(&rig);
    let actor = rig.actor_in(programs, UNLIMITED);
    // The simulated kernel has its places.
    let standing = Standing::new(AccountId::ROOT.share(), 3);
    let threads: Vec<_> = (0..2000)
        .map(|_| rig.world.thread_create(actor.space, 0, 0, [0; 4], standing).unwrap())
        .collect();
    for thread in threads {
        rig.world.thread_destroy(thread);
    }
    let before = BYTES.get();
    for _ in 0..2000 {
        rig.sibling(actor);
    }
    rig.ends(actor);
    let left = u64::try_from(BYTES.get() - before).unwrap();
    assert!(left > 4 * LEFT_MAX.cast_unsigned(), "{left}");
    for (most, now) in most.into_iter().zip(limits(&rig)) {
        let less = |resource: Resource| most[resource as usize] - now[resource as usize];
        let bytes = less(Resource::Bytes);
        assert!(
            left.abs_diff(bytes) < LEFT_MAX.cast_unsigned(),
            "{bytes} less for {left} bytes of heap"
        );
        let frames = 2000 - 256 + 64;
        assert!(
            (frames / 3..frames).contains(&less(Resource::Frames)),
            "{} frames less",
            less(Resource::Frames)
        );
    }
}

fn keep_large_rows(rig: &mut Rig, actor: Actor) -> (u64, Error) {
    let entries = object(rig, actor, PAGE).unwrap();
    for kept in 0.. {
        let mut keep = || {
            let base = object(rig, actor, PAGE)?;
            for password in 1..CAPABILITIES_MAX as u64 {
                rig.call(actor, Call::ObjPasswd, &[base, password, 1])?;
            }
            for entry in 0..(ENTRIES_MAX / PDX_MAX) as u64 {
                rig.store(actor.space, entries + 8 * entry, base + entry)?;
            }
            for password in 0..PDX_MAX as u64 {
                let arguments = [base, 1000 + password, 0, entries, (ENTRIES_MAX / PDX_MAX) as u64];
                rig.call(actor, Call::ObjCrePdx, &arguments)?;
            }
            rig.call(actor, Call::KeepObject, &[base]).map(drop)
        };
        if let Err(error) = keep() {
            return (kept, error);
        }
    }
    unreachable!()
}

/// An object becomes active, though its row may have left memory.
fn becomes_active(rig: &mut Rig, base: u64) -> Result<(), Stop> {
    loop {
        match rig.server.object_at(&mut rig.world, base) {
            Err(Stop::Wait(_)) => rig.settle(),
            found => return found.map(|_| ()),
        }
    }
}

/// Programs keep as large rows as they can, one after another and start after start: each row is paid for with what it takes, and the next
/// program has room.
#[test]
fn rows_are_paid_for_and_leave_room_for_the_next_program() {
    let mut rig = Rig::new(62, 60_000, 60_000);
    let heap = 20 << 20;
    let (mut kept_before, mut sum, mut refused) = (0, 0, 0);
    for start in 0..3 {
        // Each row of the disk has taken some of the heap at the start.
        let kept = rig.server.ledger.used(AccountId::ROOT, Resource::Rows);
        assert_eq!(kept, kept_before, "start {start}");
        assert_eq!(kept, rig.server.store.objects().count() as u64 * REST_BYTES);
        rig.world.kernel.hardware.heap_left = heap - kept;
        let machine = limits::of_machine(&rig.world, 50_000, kept);
        let programs = limits::of_programs(&machine, kept, 0);
        rig.server.ledger.set_limits(AccountId::ROOT, machine);
        let programs = rig.server.ledger.open(AccountId::ROOT, programs).unwrap();
        for _ in 0..5 {
            let amounts = limits::of_program(&rig.server.ledger, programs);
            let actor = rig.actor_in(programs, amounts);
            rig.server.ledger.empty_all_hands();
            let before = (BYTES.get(), rig.server.ledger.used(AccountId::ROOT, Resource::Bytes));
            let (made, error) = keep_large_rows(&mut rig, actor);
            rig.server.ledger.empty_all_hands();
            let taken = BYTES.get() - before.0;
            let paid = rig.server.ledger.used(AccountId::ROOT, Resource::Bytes) - before.1;
            assert_eq!(error, Error::LimitReached);
            assert!(
                taken <= paid.cast_signed() + LEFT_MAX,
                "{made} objects took {taken} bytes and cost {paid}"
            );
            sum += made;
            rig.check();
            rig.ends(actor);
            // The next one has a quarter of the heap, whatever these have kept: what nobody uses comes to rest.
            rig.checkpoint().unwrap();
            rig.server.take_back(&mut rig.world);
            let left = limits::of_program(&rig.server.ledger, programs)[Resource::Bytes as usize];
            assert!(left > heap / 6, "{left} bytes are left to the next program");
        }
        // All of them can become active. Where they are too many, others come to rest.
        let bases: Vec<u64> = rig.server.store.objects().map(|record| record.base).collect();
        for base in bases {
            if becomes_active(&mut rig, base).is_err() {
                refused += 1;
                rig.server.take_back(&mut rig.world);
                becomes_active(&mut rig, base).unwrap();
            }
        }
        kept_before = rig.server.ledger.used(AccountId::ROOT, Resource::Rows);
        rig.checkpoint().unwrap();
        rig.check();
        (rig, _) = rig.crash();
    }
    assert!(sum > 80 && refused > 0, "{sum}, {refused}");
}

/// Slots of kept objects stay known, too, when the programs that kept them have ended, until a program starts and there is little left: so the next one has its part.
#[test]
fn slots_of_kept_objects_leave_room_for_the_next_program() {
    let mut rig = Rig::new(63, 60_000, 60_000);
    let heap = 12 << 20;
    rig.world.kernel.hardware.heap_left = heap;
    let (_, programs) = rig.first_task();
    for round in 0..4 {
        let amounts = limits::of_program(&rig.server.ledger, programs);
        let actor = rig.actor_in(programs, amounts);
        let base = object(&mut rig, actor, OBJECT_BYTES_MAX).unwrap();
        rig.call(actor, Call::KeepObject, &[base]).unwrap();
        let chunks = (0..OBJECT_BYTES_MAX / (128 * SLOT))
            .take_while(|chunk| rig.store(actor.space, base + chunk * 128 * SLOT, 1).is_ok())
            .count();
        assert!(chunks > 2, "round {round}: {chunks}");
        rig.check();
        rig.ends(actor);
        rig.checkpoint().unwrap();
        rig.server.take_back(&mut rig.world);
        rig.server.ledger.empty_all_hands();
        let left = limits::of_program(&rig.server.ledger, programs)[Resource::Bytes as usize];
        assert!(
            left > heap / 6,
            "round {round}: {left} bytes are left to the next program"
        );
    }
}

/// Rows of earlier starts are all that there may be; their objects are read all the same, each slot of them.
#[test]
fn objects_of_an_earlier_start_are_read_whatever_rows_there_are() {
    let mut rig = Rig::new(64, 60_000, 60_000);
    // The first account is the first task's.
    let [shell, owner] = [(); 2].map(|()| rig.actor(Apd::EMPTY));
    let of_shell = rig.kept(shell, 1, 9);
    rig.store(shell.space, of_shell, 5).unwrap();
    let base = rig.kept(owner, 3 * SLOT / PAGE, 9);
    for slot in 0..3 {
        rig.store(owner.space, base + slot * SLOT, slot + 1).unwrap();
    }
    rig.checkpoint().unwrap();
    (rig, _) = rig.crash();
    rig.world.kernel.hardware.heap_left = 40 << 20;
    let (_, programs) = rig.first_task();
    let mut amounts = rig.server.ledger.limits(programs);
    amounts[Resource::Rows as usize] = rig.server.ledger.used(programs, Resource::Rows);
    rig.server.ledger.set_limits(programs, amounts);
    let reader = rig.holder(base, 9);
    for slot in 0..3 {
        assert_eq!(rig.load(reader.space, base + slot * SLOT), Ok(slot + 1));
    }
    // Programs pay from then on for what they use of the first task's.
    let program = rig.actor_in(programs, UNLIMITED);
    rig.gets(program, &[of_shell], 9);
    let copy = object(&mut rig, program, PAGE).unwrap();
    rig.call(program, Call::PageCopy, &[of_shell, copy, 1]).unwrap();
    assert_eq!(rig.load(program.space, copy), Ok(5));
    rig.check();
}

/// A row that grows and shrinks is paid for with what it has, and a refusal comes before the store has it.
#[test]
fn changes_of_a_row_are_paid_for() {
    let mut rig = Rig::new(63, 8000, 8192);
    let maker = rig.actor(Apd::EMPTY);
    let base = rig.kept(maker, 1, 9);
    let actor = rig.holder(base, 9);
    let used = |rig: &mut Rig| {
        rig.server.ledger.empty_all_hands();
        [Resource::Bytes, Resource::Rows].map(|resource| rig.server.ledger.used(AccountId::ROOT, resource))
    };
    rig.call(actor, Call::ObjPasswd, &[base, 50, 1]).unwrap();
    rig.call(actor, Call::ObjPasswd, &[base, 50, 0]).unwrap();
    let before = used(&mut rig);
    for password in 100..120 {
        rig.call(actor, Call::ObjPasswd, &[base, password, 1]).unwrap();
    }
    // The object's own copy and the store's have 17 more than the four that each has room for.
    assert_eq!(used(&mut rig), [before[0] + 2 * 17 * 16, before[1]]);
    let account = rig.server.objects.get(rig.server.objects.find(base).unwrap()).account;
    let mut amounts = [u64::MAX; sasos::accounts::RESOURCES];
    amounts[Resource::Bytes as usize] = rig.server.ledger.used(account, Resource::Bytes);
    rig.server.ledger.set_limits(account, amounts);
    let refused = rig.call(actor, Call::ObjPasswd, &[base, 120, 1]);
    assert_eq!(refused, Err(Error::LimitReached));
    assert_eq!(rig.server.store.object(base).unwrap().capabilities.len(), 21);
    for password in 100..120 {
        rig.call(actor, Call::ObjPasswd, &[base, password, 0]).unwrap();
    }
    assert_eq!(used(&mut rig), before);
    rig.check();
    rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    assert_eq!(used(&mut rig)[1], 0);
    rig.check();
}

/// Objects of the first task, of this start and of an earlier one, are all programs' from when a program makes their records grow: further than the rows of programs may go they do not grow.
#[test]
fn programs_pay_for_what_they_add_to_rows_of_others() {
    let mut rig = Rig::new(64, 8000, 8192);
    // The first account is the first task's.
    let before = rig.actor(Apd::EMPTY);
    let old = rig.kept(before, 1, 9);
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.world.kernel.hardware.heap_left = 40 << 20;
    let (first, programs) = rig.first_task();
    let new = rig.kept(first, 1, 9);
    let program = rig.actor_in(programs, UNLIMITED);
    rig.gets(program, &[new, old], 9);
    for base in [new, old] {
        let mut amounts = rig.server.ledger.limits(programs);
        rig.server.object_at(&mut rig.world, base).unwrap();
        // They pay for all of it, but the bound rises by what the row of the other one takes while it rests, which the bounds were made without.
        rig.server.ledger.empty_all_hands();
        let all = rig.server.objects.get(rig.server.objects.find(base).unwrap()).bytes;
        let all = if base == old { all - REST_BYTES } else { all };
        amounts[Resource::Bytes as usize] = rig.server.ledger.used(programs, Resource::Bytes) + all + 2 * 20 * 16;
        rig.server.ledger.set_limits(programs, amounts);
        let used = rig.server.ledger.used(AccountId::ROOT, Resource::Bytes);
        let refused = (100..200).find_map(|password| rig.call(program, Call::ObjPasswd, &[base, password, 1]).err());
        assert_eq!(refused, Some(Error::LimitReached));
        rig.server.ledger.empty_all_hands();
        let now = rig.server.ledger.used(AccountId::ROOT, Resource::Bytes);
        assert!(now > used && now <= used + 2 * 20 * 16, "{used}, {now}");
        rig.call(program, Call::ObjPasswd, &[base, 100, 0]).unwrap();
        rig.check();
    }
    let further = rig.kept(first, 1, 9);
    rig.call(first, Call::ObjPasswd, &[further, 100, 1]).unwrap();
    rig.check();
}

/// Objects far from one another, each of which has a leaf of the table in memory while it is active, and more of them than there is heap for: they are read, again and again, in any order.
#[test]
fn objects_far_apart_come_to_rest_with_their_leaves() {
    const OBJECTS: u64 = 9000;
    const STEP: u64 = 4;
    const HEAP: u64 = 4 << 20;
    for leaves in [8, 3000] {
        let mut rig = Rig::new(65, 8000, 20_000);
        let owner = rig.actor_in(AccountId::ROOT, UNLIMITED);
        let mut kept = |word| {
            let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 9]).expect("an object");
            if word % STEP == 0 {
                assert!(rig.has(owner, base, Access::Write), "{word}");
                rig.store(owner.space, base, word).expect("its maker may write");
            }
            rig.call(owner, Call::KeepObject, &[base]).expect("it is kept");
            base
        };
        let bases: Vec<u64> = (0..OBJECTS).map(&mut kept).collect();
        let mut lists = Vec::new();
        for some in bases.chunks(4000) {
            let list = rig.gets(owner, some, 9);
            rig.call(owner, Call::KeepObject, &[list]).expect("it is kept");
            rig.call(owner, Call::ObjPasswd, &[list, 9, 1]).expect("its maker may");
            lists.push(list);
        }
        rig.checkpoint().expect("the disk works");
        (rig, _) = rig.crash_keeping(leaves);
        let reader = rig.actor_in(AccountId::ROOT, UNLIMITED);
        rig.gets(reader, &lists, 9);
        for (place, &list) in (1..).zip(&lists) {
            rig.call(reader, Call::ApdInsert, &[place, list])
                .expect("it may be read");
        }
        let far: Vec<(u64, u64)> = (0..).zip(bases).step_by(STEP as usize).collect();
        HEAP_BEGUN.set(BYTES_OF_HEAP.get());
        rig.world.kernel.hardware.heap_counted = Some(|| {
            // Each byte counts for as many as make the reserve small.
            let taken = 16 * (BYTES_OF_HEAP.get() - HEAP_BEGUN.get());
            (HEAP.cast_signed() - taken).clamp(0, i64::MAX).cast_unsigned()
        });
        for at in 0..3 * far.len() {
            let (word, base) = *far.get(at).unwrap_or_else(|| rig.rng.pick(&far));
            assert!(rig.has(reader, base, Access::Read), "{word} with {leaves}");
            assert_eq!(rig.load(reader.space, base), Ok(word));
            rig.settle();
        }
        let active = rig.server.objects.count();
        assert!(active < far.len() as u64, "{active} are active");
        rig.world.kernel.hardware.heap_counted = None;
        rig.check();
    }
}
