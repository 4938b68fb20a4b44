//! One budget for all that an event does: reports, ends by turns, and what else is as long as a user makes it.

mod common;

use abi::{
    Call, Error,
    address::{FIRST_FREE, OBJECTS_END, PAGE, PAGES_PER_SLOT, SLOT},
    layout::{EXCEPTION_KILL, STREAM_TERMINAL, TOPIC_DOMAIN, TOPIC_OBJECT, TOPIC_THREAD, UNMAP_REPLACE, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{
    Event,
    accounts::{AccountId, UNLIMITED},
    protection::apd::Apd,
};
use store::ObjectRecord;

/// Events that a report takes, and where it found something.
fn report(rig: &mut Rig, actor: Actor, topic: u64, index: u64) -> u64 {
    let (buffer, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.store(actor.space, buffer, 0).unwrap();
    let arguments = [topic, index, buffer, PAGE];
    let (events, _) = events(rig, actor, Call::SystemInfo, &arguments);
    rig.call(actor, Call::ObjDelete, &[buffer]).unwrap();
    events
}

/// Events that a call takes, and its answer.
fn events(rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]) -> (u64, Result<(u64, u64), Error>) {
    let mut events = 1;
    let mut resumed = Resumed::First;
    loop {
        if let Some(answer) = rig.begin(actor, call, arguments, resumed) {
            return (events, answer);
        }
        resumed = Resumed::Woken;
        events += 1;
        assert!(events < 10_000, "it never ends");
    }
}

#[test]
fn the_threads_of_a_domain_are_counted_in_pieces() {
    let mut rig = Rig::new(1, 16_000, 4096);
    let asking = rig.actor(Apd::EMPTY);
    let crowd = rig.actor(Apd::EMPTY);
    for _ in 0..2000 {
        rig.sibling(crowd);
    }
    let events = report(&mut rig, asking, TOPIC_DOMAIN, asking.space.0.into());
    assert!(events > 5, "{events} events for 2,000 threads");
    rig.check();
}

/// The owner of a thread is seen only by going up from parent to parent.
#[test]
fn long_lines_of_parents_make_shorter_pieces() {
    let mut rig = Rig::new(2, 16_000, 4096);
    let asking = rig.actor(Apd::EMPTY);
    let crowd = rig.actor(Apd::EMPTY);
    let mut events = Vec::new();
    for line in [false, true] {
        let mut parent = crowd;
        for number in 0..300 {
            let caller = rig.server.caller(&rig.world, parent.thread, Resumed::First);
            let made = rig
                .server
                .thread_make(&mut rig.world, crowd.task, Some(caller), 0x1_0000_0000, 0, 3);
            let thread = made.unwrap();
            if line && number < 20 {
                parent = Actor { thread, ..crowd };
            }
        }
        events.push(report(&mut rig, asking, TOPIC_THREAD, asking.thread.0 + 1));
    }
    assert!(events[1] > 3 * events[0], "{events:?} events");
}

/// Tasks that end come to their end in the order in which they began it, however many come behind them.
#[test]
fn nobody_who_ends_is_passed_by_those_who_come_later() {
    let mut rig = Rig::new(3, 16_000, 4096);
    let doomed: Vec<Actor> = (0..40)
        .map(|_| {
            let actor = rig.actor(Apd::EMPTY);
            for _ in 0..2 {
                let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
                rig.store(actor.space, base, 1).unwrap();
            }
            actor
        })
        .collect();
    let mut ended = Vec::new();
    for (number, actor) in doomed.iter().enumerate() {
        rig.server.task_kill(actor.task, EXCEPTION_KILL);
        // Three begin before the first piece.
        if number >= 3 {
            rig.server.handle(&mut rig.world, Event::Poll);
        }
        let now = doomed.iter().filter(|actor| rig.server.tasks.get(actor.task).is_none());
        for actor in now {
            if !ended.contains(&actor.task) {
                ended.push(actor.task);
            }
        }
    }
    let passed = ended
        .iter()
        .zip(&doomed)
        .filter(|(ended, doomed)| **ended != doomed.task);
    // Each poll has the price of some steps of one end. Enough ended meanwhile to see their order.
    assert!(ended.len() > 3 && passed.count() < 3, "{ended:?}");
    rig.settle();
    rig.check();
}

/// An end of many pieces gives way to small ones that came behind it, though each poll leaves it off in the middle.
#[test]
fn a_large_end_is_passed_by_small_ones() {
    let mut rig = Rig::new(3, 16_000, 4096);
    let [large, small, smaller] = [200, 1, 0].map(|objects| {
        let actor = rig.actor(Apd::EMPTY);
        for _ in 0..objects {
            let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
            rig.store(actor.space, base, 1).unwrap();
        }
        actor.task
    });
    for task in [large, small, smaller] {
        rig.server.task_kill(task, EXCEPTION_KILL);
    }
    let polls = (0..1000).take_while(|_| {
        rig.server.handle(&mut rig.world, Event::Poll);
        [small, smaller]
            .iter()
            .any(|&task| rig.server.tasks.get(task).is_some())
    });
    let polls = polls.count();
    assert!(
        rig.server.tasks.get(large).is_some(),
        "the large one ended within {polls} polls"
    );
    rig.settle();
    rig.check();
}

/// A task without a thread ends with nothing but its place and its account. Those cost something, so that few go in one event.
#[test]
fn tasks_that_could_not_begin_end_in_pieces() {
    let mut rig = Rig::new(12, 16_000, 4096);
    let count = |rig: &Rig| rig.server.tasks.iter().count();
    let before = count(&rig);
    for _ in 0..100 {
        let made = rig
            .server
            .task_make(&mut rig.world, Apd::EMPTY, AccountId::ROOT, UNLIMITED);
        rig.server.task_kill(made.unwrap(), EXCEPTION_KILL);
    }
    let mut most = 0;
    for _ in 0..1000 {
        let now = count(&rig);
        rig.server.handle(&mut rig.world, Event::Poll);
        most = most.max(now - count(&rig));
    }
    assert!(count(&rig) == before && most < 10, "{most} in one event");
    rig.check();
}

/// Objects that the caller does not know are looked at, too, and cost more than holes.
#[test]
fn a_report_passes_the_objects_of_others_in_pieces() {
    let mut rig = Rig::new(13, 16_000, 4096);
    let (asking, owner) = (rig.actor(Apd::EMPTY), rig.actor(Apd::EMPTY));
    for _ in 0..1000 {
        rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    }
    let events = report(&mut rig, asking, TOPIC_OBJECT, 0);
    assert!(events > 1000 / 100, "{events} events for 1,000 objects");
    rig.check();
}

/// The page tables that are cut off are unlinked from all domains that have the object.
#[test]
fn an_object_that_many_have_is_cut_in_pieces() {
    let mut rig = Rig::new(4, 16_000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[8 * SLOT, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    for slot in 0..8 {
        rig.store(owner.space, base + slot * SLOT, slot).unwrap();
    }
    let users: Vec<Actor> = (0..200).map(|_| rig.holder(base, 5)).collect();
    for user in &users {
        for slot in 0..8 {
            rig.load(user.space, base + slot * SLOT).unwrap();
        }
    }
    let longest = rig.longest_event(owner, Call::ObjResize, &[base, 2 * SLOT]);
    assert!(longest < 400, "{longest} accesses in one event");
    for user in users {
        assert_eq!(rig.load(user.space, base + SLOT), Ok(1));
        assert_eq!(rig.load(user.space, base + 2 * SLOT), Err(Error::BadAddress));
    }
    rig.check();
}

/// Free slots that came back lately stand by themselves until somebody wants a run of them.
#[test]
fn free_addresses_are_put_in_order_in_pieces() {
    let mut rig = Rig::new(5, 16_000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let all: Vec<u64> = (0..250)
        .map(|_| rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap().0)
        .collect();
    for &base in &all[1..] {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    let (events, grown) = events(&mut rig, actor, Call::ObjResize, &[all[0], 100 * SLOT]);
    assert_eq!(grown, Ok((0, 0)));
    assert!(events > 30, "{events} events for 249 free slots");
    rig.check();
}

/// A look at each costs something, though nothing is done there.
#[test]
fn page_tables_without_pages_are_passed_in_pieces() {
    const SLOTS: u64 = 128;
    let mut rig = Rig::new(6, 16_000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[SLOTS * SLOT, 0]).unwrap();
    for slot in 0..SLOTS {
        rig.store(actor.space, base + slot * SLOT, 1).unwrap();
    }
    let all = SLOTS * PAGES_PER_SLOT;
    rig.call(actor, Call::PageUnMap, &[base, all, UNMAP_ZERO]).unwrap();
    let (limited, answer) = events(&mut rig, actor, Call::PageLimit, &[base, all, 7]);
    assert_eq!(answer, Ok((0, 0)));
    assert!(limited > 1, "all in one event");
    let made = SLOTS / 10;
    let (cloned, answer) = events(&mut rig, actor, Call::ObjClone, &[base, 0, 0]);
    assert!(answer.is_ok());
    assert!(cloned > made + 15, "{cloned} events");
    rig.check();
}

/// A sync freezes its pages in one event. Where they are far apart, a checkpoint does it in pieces.
#[test]
fn pages_that_are_far_apart_are_no_sync() {
    for (apart, price, waits) in [
        (PAGE, 0, false),
        (SLOT, 0, true),
        (SLOT, kcore::outside::Remote::<()>::CALL, true),
    ] {
        let mut rig = Rig::new(12, 16_000, 4096);
        rig.server.price_calls(price);
        let actor = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(actor, Call::ObjCreate, &[10 * SLOT, 0]).unwrap();
        rig.call(actor, Call::KeepObject, &[base]).unwrap();
        rig.checkpoint().unwrap();
        for page in 0..10 {
            rig.store(actor.space, base + page * apart, 1).unwrap();
        }
        let before = rig.server.checkpoint.begun();
        rig.call(actor, Call::PageFlush, &[base, 10 * PAGES_PER_SLOT]).unwrap();
        assert_eq!(rig.server.checkpoint.begun() > before, waits, "{apart:#x} apart");
        rig.check();
    }
}

/// Only the ends of a large object are looked at.
#[test]
fn objects_of_a_foreign_disk_that_share_slots_are_refused() {
    let row = |base, pages| ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    };
    let started_with = |rows: &[ObjectRecord]| {
        let mut rig = Rig::new(7, 8000, 4096);
        for row in rows {
            rig.server.store.put_object(row.clone()).unwrap();
        }
        rig.checkpoint().unwrap();
        rig.crash().0
    };
    let first = FIRST_FREE + 64 * SLOT;
    let base = first + 3 * PAGE;
    let large = row(base, 5 * PAGES_PER_SLOT);
    for inner in [first, base + 5 * SLOT] {
        for inner_first in [false, true] {
            let mut rig = started_with(&[large.clone(), row(inner, 1)]);
            let mut order = [base, inner];
            if inner_first {
                order.reverse();
            }
            let found = order.map(|address| rig.server.object_at(&mut rig.world, address).is_ok());
            assert_eq!(found, [false, false], "{inner:#x}, {inner_first}");
            rig.check();
        }
    }
    let end = row(OBJECTS_END - SLOT, 5 * PAGES_PER_SLOT);
    let mut rig = started_with(&[large.clone(), row(base + 6 * SLOT, 1), end.clone()]);
    for address in [base + 5 * SLOT - PAGE, base + 6 * SLOT] {
        assert!(rig.server.object_at(&mut rig.world, address).is_ok());
    }
    // No row is believed that reaches to where stacks are.
    assert!(rig.server.object_at(&mut rig.world, end.base).is_err());
    rig.check();
}

#[test]
fn a_long_line_is_written_in_pieces() {
    let mut rig = Rig::new(8, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
    let written = rig.call(actor, Call::ConsoleWrite, &[STREAM_TERMINAL, base, 4096]);
    assert!(
        written.is_ok_and(|(bytes, _)| (256..2048).contains(&bytes)),
        "{written:?}"
    );
}

/// With the server outside of the kernel each link that goes costs a call of the machine, so fewer go in one event.
#[test]
fn calls_of_the_machine_are_paid_for() {
    const SLOTS: u64 = 200;
    let [inside, outside] = [0, kcore::outside::Remote::<()>::CALL].map(|call| {
        let mut rig = Rig::new(9, 16_000, 4096);
        rig.server.price_calls(call);
        let owner = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(owner, Call::ObjCreate, &[SLOTS * SLOT, 0]).unwrap();
        rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
        for slot in 0..SLOTS {
            rig.store(owner.space, base + slot * SLOT, slot).unwrap();
        }
        let longest = rig.longest_event(owner, Call::ObjPasswd, &[base, 5, 0]);
        rig.check();
        longest
    });
    assert!(inside > 80, "{inside} accesses in one event");
    assert!(
        outside * 2 < inside,
        "{outside} accesses in one event, and {inside} where calls cost nothing"
    );
}

/// So it is with pages that are copied, go back to what the last checkpoint had, or get other limits.
#[test]
fn calls_of_the_machine_for_pages_are_paid_for() {
    const PAGES: u64 = 200;
    let [inside, outside] = [0, kcore::outside::Remote::<()>::CALL].map(|call| {
        let mut rig = Rig::new(10, 16_000, 8192);
        rig.server.price_calls(call);
        let actor = rig.actor(Apd::EMPTY);
        let [from, to] = [0, 1].map(|_| {
            let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
            for page in 0..PAGES {
                rig.store(actor.space, base + page * PAGE, page).unwrap();
            }
            base
        });
        let free = |rig: &Rig| rig.world.kernel.frames().free();
        let copied = rig.largest_step(actor, Call::PageCopy, &[from, to, PAGES], free);
        let limited = rig.longest_event(actor, Call::PageLimit, &[from, PAGES, 4]);
        rig.call(actor, Call::KeepObject, &[to]).unwrap();
        rig.checkpoint().unwrap();
        for page in 0..PAGES {
            rig.store(actor.space, to + page * PAGE, 1).unwrap();
        }
        let replaced = rig.largest_step(actor, Call::PageUnMap, &[to, PAGES, UNMAP_REPLACE], free);
        rig.check();
        [copied, limited, replaced]
    });
    for (inside, outside) in inside.into_iter().zip(outside) {
        assert!(inside > 8, "{inside} in one event");
        assert!(
            outside * 3 < inside * 2,
            "{outside} in one event, and {inside} where calls cost nothing"
        );
    }
}
