//! Calls on large objects that are done in pieces: what one event of them does at most, and what is left when they fail.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::{Capability, FOREVER},
};
use common::{Actor, Rig};
use kcore::{
    Machine,
    thread::{Operation, Resumed, State},
};
use sasos::accounts::{AccountId, UNLIMITED, limits};
use sasos::{Access, Event, Outcome, Stop, directory::object::kept_charges, protection::apd::Apd};

/// Pages that one event drops, or copies, at most.
const PIECE_PAGES: u64 = 24;
const PAGES: u64 = 12 * PIECE_PAGES;
/// Accesses to memory of the machine in one event: some for each page of a piece, and for what is not in pieces.
const BOUND: u64 = 12 * PIECE_PAGES;

/// A transient object of so many pages, each with its number.
fn filled(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    base
}

#[test]
fn a_clone_made_in_pieces_has_every_page() {
    let mut rig = Rig::new(1, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = filled(&mut rig, actor, PAGES);
    let (clone, _) = rig.call(actor, Call::ObjClone, &[source, PAGE, 0]).unwrap();
    for page in 0..PAGES {
        rig.store(actor.space, source + page * PAGE, 0).unwrap();
        assert_eq!(rig.load(actor.space, clone + page * PAGE), Ok(page + 1));
    }
    assert_eq!(rig.load(actor.space, clone + PAGES * PAGE), Ok(0));
    rig.check();
}

#[test]
fn a_clone_that_the_account_cannot_pay_for_leaves_nothing() {
    let mut rig = Rig::new(2, 8000, 20_000);
    let poor = rig.actor_in(AccountId::ROOT, limits::of_frames(PAGES + PAGES / 2));
    let source = filled(&mut rig, poor, PAGES);
    for others_end in [false, true] {
        let before = rig.server.objects.iter().count();
        if others_end {
            tasks_end(&mut rig);
        }
        let result = rig.call(poor, Call::ObjClone, &[source, 0, 0]);
        assert_eq!(result, Err(Error::LimitReached));
        rig.settle();
        assert_eq!(rig.server.objects.iter().count(), before);
        rig.check();
    }
}

/// A task that ends in pieces has an object for as long. A call that wants the object for itself alone waits for that.
#[test]
fn who_ends_does_not_keep_an_object_in_use() {
    let mut rig = Rig::new(12, 8000, 20_000);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    rig.store(owner.space, base, 7).unwrap();
    let user = rig.holder(base, 5);
    assert_eq!(rig.load(user.space, base), Ok(7));
    assert_eq!(rig.call(owner, Call::ObjRetire, &[base]), Err(Error::InUse));
    tasks_end(&mut rig);
    rig.server.task_kill(user.task, abi::layout::EXCEPTION_KILL);
    assert_eq!(rig.call(owner, Call::ObjRetire, &[base]), Ok((0, 0)));
    rig.settle();
    rig.check();
}

/// Tasks end that have so much that it takes many pieces.
fn tasks_end(rig: &mut Rig) {
    let doomed: Vec<Actor> = (0..6).map(|_| rig.actor(Apd::EMPTY)).collect();
    for actor in &doomed {
        for _ in 0..100 {
            let (base, _) = rig.call(*actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
            rig.store(actor.space, base, 1).unwrap();
        }
    }
    for actor in doomed {
        rig.server.task_kill(actor.task, abi::layout::EXCEPTION_KILL);
    }
    rig.server.finish_ends(&mut rig.world);
    assert!(!rig.server.work.is_empty(), "they have not ended whole");
}

/// A task with a thread that may have so many frames.
fn with_frames(rig: &mut Rig, frames: u64) -> Actor {
    let Rig { server, world, .. } = rig;
    let task = server
        .task_make(world, Apd::EMPTY, AccountId::ROOT, limits::of_frames(frames))
        .unwrap();
    let thread = server.thread_make(world, task, None, 0x1_0000_0000, 0, 3).unwrap();
    let space = kcore::Machine::thread_space(world, thread);
    Actor { task, thread, space }
}

#[test]
fn a_clone_that_fails_goes_in_pieces() {
    let mut rig = Rig::new(12, 8000, 20_000);
    let poor = with_frames(&mut rig, 4 * PAGES);
    let source = filled(&mut rig, poor, 5 * PAGES / 2);
    let (most, result) = rig.largest_step_of(poor, Call::ObjClone, &[source, 0, 0], |rig| {
        rig.server.objects.resident()
    });
    assert_eq!(result, Err(Error::LimitReached));
    // Neighbours are shared and given up at once.
    assert!(most < PAGES, "{most} pages in one event");
    assert_eq!(rig.server.objects.resident(), 5 * PAGES / 2);
    rig.check();
    // Its thread ends in the middle: the clone goes with the task.
    let Rig { server, world, .. } = &mut rig;
    let thread = server.thread_make(world, poor.task, None, 0x1_0000_0000, 0, 3).unwrap();
    let other = Actor { thread, ..poor };
    for event in 0..4 {
        let resumed = if event == 0 { Resumed::First } else { Resumed::Woken };
        assert_eq!(
            rig.begin(other, Call::ObjClone, &[source, 0, 0], resumed),
            None,
            "{event}"
        );
    }
    rig.call(poor, Call::ThreadDelete, &[thread.0, 0]).unwrap();
    rig.check();
    rig.server.task_kill(poor.task, 1);
    rig.settle();
    assert_eq!(rig.server.objects.count(), 0);
    rig.check();
}

/// An object with every second page of some in memory.
fn with_gaps(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
    for page in (0..pages).step_by(2) {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    base
}

#[test]
fn the_limits_of_pages_change_in_pieces() {
    let mut rig = Rig::new(13, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for kept in [false, true] {
        let base = with_gaps(&mut rig, actor, 4 * PAGES);
        if kept {
            rig.call(actor, Call::KeepObject, &[base]).unwrap();
        }
        let longest = rig.longest_event(actor, Call::PageLimit, &[base, 4 * PAGES, 4]);
        assert!(longest < BOUND, "{longest} accesses in one event, kept: {kept}");
        for page in 0..4 * PAGES {
            assert_eq!(rig.store(actor.space, base + page * PAGE, 0), Err(Error::Protection));
        }
        assert_eq!(rig.load(actor.space, base + 2 * PAGE), Ok(3));
        rig.check();
    }
}

/// The disk and the page tables agree on the limits of pages, however far a call came for which the disk has no room.
#[test]
fn limits_that_fail_half_way_are_those_of_the_disk() {
    let mut failed = 0;
    for used in 0..60 {
        let mut rig = Rig::new(14, 3000, 600);
        let actor = rig.actor(Apd::EMPTY);
        let bases = [0, 1].map(|_| rig.kept(actor, 8, 0));
        rig.call(actor, Call::PageLimit, &[bases[0], 8, 6]).unwrap();
        for page in (0..8).step_by(2) {
            rig.store(actor.space, bases[1] + page * PAGE, page).unwrap();
        }
        rig.checkpoint().unwrap();
        rig.settle();
        fill_disk(&mut rig, used);
        let zeroed = rig.call(actor, Call::PageUnMap, &[bases[0], 8, abi::layout::UNMAP_ZERO]);
        let limited = rig.call(actor, Call::PageLimit, &[bases[1], 8, 4]);
        failed += u32::from(zeroed.is_err()) + u32::from(limited.is_err());
        let mut written = 0;
        for page in 0..8 {
            let rights = known(&mut rig, bases[0], page);
            assert_eq!(rights, [6, 6], "page {page} of the first with {used} blocks used");
            let rights = known(&mut rig, bases[1], page);
            assert_eq!(
                rights[0], rights[1],
                "page {page} of the second with {used} blocks used"
            );
            written += u32::from(rights[0] == 7);
            assert_eq!(written > 0, rights[0] == 7, "those that changed are the first");
        }
        assert_eq!(limited.is_ok(), written == 0);
        rig.check();
    }
    assert!((10..110).contains(&failed), "{failed} calls failed");
}

/// The limits of a page of a kept object in its entry, if it has one, and on the disk.
fn known(rig: &mut Rig, base: u64, page: u64) -> [u16; 2] {
    let stored = match rig.server.store.page_flags(&rig.world, base, page) {
        store::PageLookup::Absent => 7,
        store::PageLookup::Zero(flags) | store::PageLookup::Stored(flags) => flags.bits(),
        store::PageLookup::Unknown => panic!("the map is in memory"),
    };
    let object = rig.server.objects.get(rig.server.objects.find(base).unwrap());
    let address = base + page * PAGE;
    let leaf = object.slots.get(0).and_then(sasos::pages::slots::Slot::leaf);
    let entry = leaf.and_then(|leaf| kcore::Machine::leaf_get(&rig.world, leaf, (address / PAGE % 512) as usize));
    [entry.map_or(stored, |entry| u16::from(entry.limits.bits())), stored]
}

/// Leaves room on the disk for changes with fewer and fewer nodes.
fn fill_disk(rig: &mut Rig, used: u64) {
    let record = |number: u64| store::ObjectRecord {
        base: (1 << 44) + number * SLOT,
        pages: 200,
        ..store::ObjectRecord::default()
    };
    let mut number = 0;
    while rig.server.store.put_object(record(number)).is_ok() {
        // It counts as one of an earlier start.
        let resting = &mut rig.server.resting[1];
        for (sum, (resource, amount)) in resting.iter_mut().zip(kept_charges(&record(number))) {
            rig.server.ledger.force(AccountId::ROOT, resource, amount);
            *sum += amount;
        }
        rig.server.store.reserve(record(number).base, 0).unwrap_or_default();
        number += 1;
    }
    for page in 0..used {
        let base = record(page % number).base;
        let _ = rig.server.store.set_page_flags(base, 0, store::PageFlags::READ);
    }
}

/// Memory is short, and all clean pages of a kept object are shared with a clone, or all are dirty: nobody looks at all of them in one event.
#[test]
fn the_search_for_clean_pages_goes_in_pieces() {
    let mut rig = Rig::new(15, 4000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = filled(&mut rig, actor, 3 * PAGES);
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    rig.checkpoint().unwrap();
    rig.settle();
    rig.call(actor, Call::ObjClone, &[base, 0, 0]).unwrap();
    let other = rig.actor(Apd::EMPTY);
    filled(&mut rig, other, 1200);
    let (heap, _) = rig.call(actor, Call::ObjCreate, &[4000 * PAGE, 0]).unwrap();
    let (mut longest, mut page, mut tries) = (0, 0, 0);
    loop {
        let before = rig.world.kernel.hardware.accesses();
        let step = rig
            .server
            .touch(&mut rig.world, actor.space, heap + page * PAGE, Access::Write);
        longest = longest.max(rig.world.kernel.hardware.accesses() - before);
        tries += 1;
        assert!(tries < 10_000, "it never ends");
        match step {
            Ok(()) => page += 1,
            Err(Stop::Again) => {}
            Err(Stop::Wait(_)) => rig.move_disk(),
            Err(Stop::Fail(error)) => {
                assert!(matches!(error, Error::NoMemory | Error::LimitReached), "{error:?}");
                break;
            }
        }
    }
    assert!(rig.world.kernel.frames().free() < 200, "memory is short");
    assert!(longest < BOUND, "{longest} accesses in one event");
    rig.check();
}

#[test]
fn no_event_does_more_than_its_pieces() {
    let mut rig = Rig::new(3, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = filled(&mut rig, actor, PAGES);
    let doomed = filled(&mut rig, actor, PAGES);
    for (call, arguments) in [
        (Call::ObjClone, &[source, 0, 0][..]),
        (Call::ObjResize, &[source, PAGE][..]),
        (Call::ObjDelete, &[doomed][..]),
    ] {
        let longest = rig.longest_event(actor, call, arguments);
        assert!(longest < BOUND, "{call:?}: {longest} accesses in one event");
    }
    assert_eq!(rig.load(actor.space, source), Ok(1));
    rig.check();
}

#[test]
fn a_kept_object_that_the_disk_has_goes_in_pieces() {
    let mut rig = Rig::new(4, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = filled(&mut rig, actor, PAGES);
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    rig.checkpoint().unwrap();
    let longest = rig.longest_event(actor, Call::ObjResize, &[base, 2 * PAGE]);
    assert!(longest < BOUND, "{longest} accesses in one event");
    assert_eq!(rig.load(actor.space, base + PAGE), Ok(2));
    rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    rig.check();
}

/// Semaphores, or page tables with a page each, that one event drops at most.
const SMALL: u64 = 24;

#[test]
fn the_semaphores_of_an_object_go_in_pieces() {
    let mut rig = Rig::new(5, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for (call, left) in [(Call::ObjResize, PAGE), (Call::ObjDelete, 0)] {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[3 * PAGE, 0]).unwrap();
        for number in 0..1000 {
            rig.call(actor, Call::SemCreate, &[base + PAGE + number, 0]).unwrap();
        }
        let arguments = [base, left];
        let arguments = if left == 0 { &arguments[..1] } else { &arguments };
        let most = rig.largest_step(actor, call, arguments, |rig| rig.server.semaphores.count() as u64);
        assert!(most < SMALL, "{call:?}: {most} semaphores in one event");
        assert_eq!(rig.server.semaphores.count(), 0);
        rig.check();
    }
}

#[test]
fn the_page_tables_of_an_object_go_in_pieces() {
    let mut rig = Rig::new(6, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for touched in [true, false] {
        for (call, left) in [(Call::ObjResize, PAGE), (Call::ObjDelete, 0)] {
            let (base, _) = rig.call(actor, Call::ObjCreate, &[512 * SLOT, 0]).unwrap();
            for slot in 0..512 {
                rig.store(actor.space, base + slot * SLOT, slot).unwrap();
                if !touched {
                    rig.call(actor, Call::PageUnMap, &[base + slot * SLOT, 1, 0]).unwrap();
                }
            }
            let arguments = [base, left];
            let arguments = if left == 0 { &arguments[..1] } else { &arguments };
            let most = rig.largest_step(actor, call, arguments, |rig| rig.world.kernel.frames().free());
            assert!(most < 2 * SMALL, "{call:?}: {most} frames in one event");
            rig.check();
        }
    }
}

/// The most by which a measure changes in one event while a task ends that was killed.
fn largest_step_of_end(rig: &mut Rig, actor: Actor, measure: impl Fn(&Rig) -> u64) -> u64 {
    rig.server.task_kill(actor.task, 1);
    let mut largest = 0;
    while !rig.server.work.is_empty() {
        let before = measure(rig);
        rig.server.handle(&mut rig.world, Event::Poll);
        largest = largest.max(measure(rig).abs_diff(before));
    }
    rig.check();
    largest
}

#[test]
fn the_objects_of_a_task_that_ends_go_in_pieces() {
    let mut rig = Rig::new(7, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for number in 0..3000 {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        if number % 2 == 0 {
            rig.store(actor.space, base, number).unwrap();
        }
    }
    let most = largest_step_of_end(&mut rig, actor, |rig| rig.server.objects.count());
    assert!(most <= 7, "{most} objects in one event");
    assert_eq!(rig.server.objects.count(), 0);
    assert_eq!(rig.server.tasks.iter().count(), 0);
}

/// The first object of an event leaves a rest of the budget that depends on its pages. No rest is enough for more objects than a full budget.
#[test]
fn objects_of_two_slots_go_in_pieces() {
    for pages in 0..20 {
        let mut rig = Rig::new(7, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        for number in 0..60 {
            let (base, _) = rig.call(actor, Call::ObjCreate, &[SLOT + PAGE, 0]).unwrap();
            let pages = if number % 8 == 0 { pages } else { 0 };
            for page in (0..pages).chain([SLOT / PAGE]) {
                rig.store(actor.space, base + page * PAGE, number).unwrap();
            }
        }
        let most = largest_step_of_end(&mut rig, actor, |rig| rig.server.objects.count());
        assert!(most <= 7, "{most} objects in one event, {pages} more pages in some");
    }
}

#[test]
fn the_semaphores_of_a_task_that_ends_go_in_pieces() {
    let mut rig = Rig::new(8, 8000, 20_000);
    let keeper = rig.actor(Apd::EMPTY);
    let (base, password) = rig.call(keeper, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let (clist, _) = rig.call(keeper, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let capability = Capability {
        address: base,
        password,
    };
    rig.write_clist(keeper.space, clist, &[capability], common::Order::Any);
    let serial = rig.server.objects.get(rig.server.objects.find(clist).unwrap()).serial;
    let mut apd = Apd::EMPTY;
    apd.add(sasos::protection::apd::ClistRef {
        base: clist,
        serial,
        reader: 0,
    })
    .unwrap();
    let actor = rig.actor(apd);
    for number in 0..1000 {
        rig.call(actor, Call::SemCreate, &[base + number, 0]).unwrap();
    }
    let most = largest_step_of_end(&mut rig, actor, |rig| rig.server.semaphores.count() as u64);
    assert!(most < SMALL, "{most} semaphores in one event");
    assert_eq!(rig.server.semaphores.count(), 0);
}

#[test]
fn the_threads_of_a_task_that_is_killed_go_in_pieces() {
    let mut rig = Rig::new(9, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    for _ in 0..200 {
        rig.sibling(actor);
    }
    let most = largest_step_of_end(&mut rig, actor, |rig| rig.server.threads.count as u64);
    assert!(most < SMALL, "{most} threads in one event");
    assert_eq!(rig.server.threads.count, 0);
}

#[test]
fn the_page_tables_of_a_task_that_ends_go_in_pieces() {
    let mut rig = Rig::new(10, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[8192 * SLOT, 0]).unwrap();
    for slot in 0..1000 {
        rig.store(actor.space, base + 8 * slot * SLOT, slot).unwrap();
    }
    let most = largest_step_of_end(&mut rig, actor, |rig| rig.world.kernel.frames().free());
    assert!(most < 3 * SMALL, "{most} frames in one event");
}

/// The memory of a task that was killed is on its way back: a task that is short of it waits, and is not refused.
#[test]
fn who_is_short_waits_for_what_ends() {
    let mut rig = Rig::new(11, 8000, 20_000);
    let family = rig
        .server
        .ledger
        .open(AccountId::ROOT, limits::of_frames(4 * PAGES + PAGES / 2))
        .unwrap();
    let [rich, poor] = [0; 2].map(|_| rig.actor_in(family, limits::of_frames(9 * PAGES)));
    filled(&mut rig, rich, 2 * PAGES);
    let source = filled(&mut rig, poor, PAGES);
    let (target, _) = rig.call(poor, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
    let copy = [source, target, PAGES];
    rig.call(poor, Call::PageCopy, &copy).unwrap();
    let (further, _) = rig.call(poor, Call::ObjClone, &[source, 0, 0]).unwrap_or_default();
    assert_eq!(further, 0, "there is not enough for that while the other one lives");
    rig.server.task_kill(rich.task, 1);
    rig.call(poor, Call::ObjClone, &[source, 0, 0]).unwrap();
    rig.check();
}

/// Threads that one event wakes at most.
const WOKEN: usize = 56;

/// Has so many threads of a task wait in a call for ever.
fn waiters(rig: &mut Rig, actor: Actor, count: u64, call: Call, address: impl Fn(u64) -> u64) {
    for number in 0..count {
        let Rig { server, world, .. } = &mut *rig;
        let thread = server
            .thread_make(world, actor.task, None, 0x1_0000_0000, 0, 7)
            .expect("a thread");
        world.thread_wake(thread, Resumed::First);
        world.kernel.yield_current();
        assert_eq!(world.kernel.schedule(), Some(thread.index() as u32), "it is urgent");
        let arguments = match call {
            Call::AddressWait => [address(number), 0, FOREVER, 0, 0, 0],
            _ => [address(number), FOREVER, 0, 0, 0, 0],
        };
        let (number, resumed) = (call as u64, Resumed::First);
        let event = Event::Call {
            thread,
            number,
            arguments,
            resumed,
        };
        let Outcome::Block(key, deadline) = server.handle(world, event) else {
            panic!("it does not wait");
        };
        world.kernel.park(key, deadline, Some(Operation { number, arguments }));
    }
}

/// Threads that are ready.
fn ready(rig: &Rig) -> usize {
    let table = &rig.world.kernel.threads().table;
    table.iter().filter(|thread| thread.state == State::Ready).count()
}

#[test]
fn who_waits_on_an_object_that_goes_is_woken_in_pieces() {
    for (call, semaphores, words) in [
        // All on one, a few on each of many, one on each.
        (Call::AddressWait, 0, 1),
        (Call::AddressWait, 0, 150),
        (Call::AddressWait, 0, 1000),
        (Call::SemWait, 1, 1),
        (Call::SemWait, 150, 150),
    ] {
        let mut rig = Rig::new(12, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(actor, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
        for number in 0..semaphores {
            rig.call(actor, Call::SemCreate, &[base + number * 4, 0]).unwrap();
        }
        rig.store(actor.space, base, 0).unwrap();
        waiters(&mut rig, actor, 1000, call, |number| base + number % words * 4);
        rig.world.kernel.check().unwrap();
        let mut before = ready(&rig);
        let mut all = [0; 6];
        all[0] = base;
        let mut resumed = Resumed::First;
        loop {
            let event = Event::Call {
                thread: actor.thread,
                number: Call::ObjDelete as u64,
                arguments: all,
                resumed,
            };
            let outcome = rig.server.handle(&mut rig.world, event);
            let now = ready(&rig);
            assert!(now - before <= WOKEN, "{call:?} on {words}: {} threads", now - before);
            before = now;
            match outcome {
                Outcome::Again => resumed = Resumed::Woken,
                Outcome::Return(result) => break assert!(result.is_ok()),
                other => panic!("{other:?}"),
            }
        }
        for _ in 0..1000 {
            rig.world.kernel.tick();
            let now = ready(&rig);
            assert!(now - before <= WOKEN, "{call:?} on {words}: {} threads", now - before);
            before = now;
        }
        assert_eq!(before, 1000, "{call:?} on {words}");
    }
}

/// A kept object with every second page of so many on the disk, none in memory, and limits of some that hold nothing.
fn put_away(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    let base = with_gaps(rig, actor, pages);
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    rig.call(actor, Call::PageLimit, &[base + PAGE, 1, 4]).unwrap();
    rig.call(actor, Call::PageLimit, &[base + (pages - 3) * PAGE, 1, 6])
        .unwrap();
    rig.checkpoint().unwrap();
    rig.settle();
    while rig.server.reclaim(&mut rig.world) > 0 {}
    base
}

/// The clone of an object that the disk has asks for some pages at a time, and what it has found out of the source is not asked again.
#[test]
fn a_clone_of_what_the_disk_has_goes_in_pieces() {
    let mut rig = Rig::new(16, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = put_away(&mut rig, actor, 8 * PAGES);
    let id = rig.server.objects.find(source).unwrap();
    assert!(rig.server.objects.get(id).resident < 10);
    let asked = |rig: &Rig| rig.server.store.stats().reads;
    let (most, result) = rig.largest_step_of(actor, Call::ObjClone, &[source, PAGE, 0], asked);
    assert!(most < 70, "{most} pages asked for in one event");
    let (clone, _) = result.unwrap();
    assert_eq!(rig.server.objects.get(id).known, u64::MAX, "all of the source is known");
    let before = asked(&rig);
    let longest = rig.longest_event(actor, Call::ObjClone, &[source, 0, 0]);
    assert!(longest < BOUND, "{longest} accesses in one event");
    assert_eq!(asked(&rig), before);
    for page in 0..8 * PAGES {
        let wanted = if page % 2 == 0 { page + 1 } else { 0 };
        assert_eq!(rig.load(actor.space, clone + page * PAGE), Ok(wanted));
        let written = rig.store(actor.space, clone + page * PAGE, 9);
        assert_eq!(written.is_ok(), page != 1, "page {page}");
    }
    assert_eq!(rig.store(actor.space, clone + 8 * PAGES * PAGE, 9), Ok(()));
    rig.check();
}

/// The source loses pages again and again while it is cloned, because memory is short: the clone has every page all the same, or there is none.
#[test]
fn a_clone_gets_on_though_its_source_leaves_memory() {
    let mut rig = Rig::new(17, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let source = put_away(&mut rig, actor, 4 * PAGES);
    let arguments = [source, 0, 0, 0, 0, 0];
    let mut resumed = Resumed::First;
    let clone = loop {
        let event = Event::Call {
            thread: actor.thread,
            number: Call::ObjClone as u64,
            arguments,
            resumed,
        };
        match rig.server.handle(&mut rig.world, event) {
            Outcome::Return(result) => break result.unwrap().0,
            Outcome::Block(..) => rig.move_disk(),
            Outcome::Again => _ = rig.server.reclaim(&mut rig.world),
            other => panic!("{other:?}"),
        }
        resumed = Resumed::Woken;
    };
    for page in 0..4 * PAGES {
        let wanted = if page % 2 == 0 { page + 1 } else { 0 };
        assert_eq!(rig.load(actor.space, clone + page * PAGE), Ok(wanted));
        assert_eq!(rig.load(actor.space, source + page * PAGE), Ok(wanted));
    }
    rig.check();
}

/// To find memory for the clone's page tables, pages of the source itself may be taken back.
#[test]
fn a_clone_made_when_memory_is_short_has_all_pages() {
    for source_pages in [3, 20, 60] {
        let mut rig = Rig::new(19, 3000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let source = rig.kept(actor, source_pages, 77);
        for page in 0..source_pages {
            rig.store(actor.space, source + page * PAGE, page + 1).unwrap();
        }
        rig.checkpoint().unwrap();
        let mut taken = Vec::new();
        while rig.world.frames_free() > 64 {
            taken.push(rig.world.frame_any().expect("a frame"));
        }
        let (clone, _) = rig.call(actor, Call::ObjClone, &[source, 0, 0]).expect("a clone");
        for frame in taken {
            rig.world.frame_release(frame);
        }
        for page in 0..source_pages {
            assert_eq!(
                rig.load(actor.space, clone + page * PAGE),
                Ok(page + 1),
                "page {page} of {source_pages}"
            );
        }
        rig.check();
    }
}

/// A clone between two pieces of `PageLimit` learns the limits of before; they are not believed afterwards.
#[test]
fn limits_hold_though_a_clone_is_made_between_two_pieces() {
    let mut rig = Rig::new(20, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 100, 77);
    rig.store(actor.space, base, 1).unwrap();
    rig.put_away();
    let other = rig.holder(base, 77);
    let arguments = [base + PAGE, 99, 4];
    assert_eq!(rig.begin(actor, Call::PageLimit, &arguments, Resumed::First), None);
    rig.call(other, Call::ObjClone, &[base, 0, 0]).expect("a clone");
    while rig.begin(actor, Call::PageLimit, &arguments, Resumed::Woken).is_none() {}
    for page in [1, 16, 17, 50, 99] {
        let written = rig.store(actor.space, base + page * PAGE, 5);
        assert_eq!(written, Err(Error::Protection), "page {page}");
    }
    rig.check();
}

/// Pages with limits of their own are zeroed where they are. One whose frame a clone has, too, is copied before.
#[test]
fn zeroes_over_shared_pages_with_limits_come_in_pieces() {
    let mut rig = Rig::new(15, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let (source, _) = rig.call(actor, Call::ObjCreate, &[64 * PAGE, 0]).unwrap();
    for page in 0..64 {
        rig.store(actor.space, source + page * PAGE, page + 1).unwrap();
    }
    rig.call(actor, Call::PageLimit, &[source, 64, Rights::RW.bits().into()])
        .unwrap();
    let (clone, _) = rig.call(actor, Call::ObjClone, &[source, 0, 0]).unwrap();
    let arguments = [clone, 64, abi::layout::UNMAP_ZERO];
    let copied = rig.largest_step(actor, Call::PageUnMap, &arguments, |rig| rig.world.frames_free());
    assert!((1..=8).contains(&copied), "{copied} pages copied in one event");
    for page in 0..64 {
        assert_eq!(rig.load(actor.space, clone + page * PAGE), Ok(0));
        assert_eq!(rig.load(actor.space, source + page * PAGE), Ok(page + 1));
    }
    rig.check();
}

/// Limits that the store notes cost more than the pages. Where it knows them it notes them again, page by page.
#[test]
fn zeroes_over_pages_with_limits_that_are_on_the_disk_come_in_pieces() {
    for how in [abi::layout::UNMAP_ZERO, abi::layout::UNMAP_REPLACE] {
        let mut rig = Rig::new(16, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 64, 0);
        for page in 0..64 {
            rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
        }
        let limits = [base, 64, Rights::RW.bits().into()];
        let noted = rig.largest_step(actor, Call::PageLimit, &limits, |rig| rig.server.store.noted() as u64);
        assert!((1..=13).contains(&noted), "{noted} limits noted in one event");
        rig.put_away();
        if how == abi::layout::UNMAP_REPLACE {
            for page in 0..64 {
                rig.store(actor.space, base + page * PAGE, 99).unwrap();
            }
        }
        let noted = rig.largest_step(actor, Call::PageUnMap, &[base, 64, how], |rig| {
            rig.server.store.noted() as u64
        });
        assert!((1..=12).contains(&noted), "{noted} limits noted in one event");
        for page in 0..64 {
            let expected = if how == abi::layout::UNMAP_ZERO { 0 } else { page + 1 };
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(expected));
            assert_eq!(known(&mut rig, base, page), [6, 6]);
        }
        rig.check();
    }
}

/// A program that has much of the list to itself keeps nobody waiting: each program has one item in a turn.
#[test]
fn much_work_of_one_program_is_not_before_that_of_others() {
    const MANY: usize = 200;
    let mut rig = Rig::new(31, 20_000, 4096);
    let (_, programs) = rig.first_task();
    let [mine, theirs] = [(); 2].map(|()| rig.actor_in(programs, UNLIMITED));
    for _ in 0..30 {
        rig.call(mine, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    }
    let account = rig.server.tasks.get(theirs.task).expect("it lives").account;
    let children: Vec<Actor> = (0..MANY).map(|_| rig.actor_in(account, UNLIMITED)).collect();
    for child in &children {
        rig.call(*child, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    }
    for actor in children.iter().chain([&mine]) {
        rig.server.task_kill(actor.task, 1);
    }
    while rig.server.tasks.get(mine.task).is_some() {
        rig.poll();
    }
    let left = children
        .iter()
        .filter(|child| rig.server.tasks.get(child.task).is_some())
        .count();
    assert!(left > MANY / 2, "{left} of {MANY} are left");
    rig.settle();
    rig.check();
}
