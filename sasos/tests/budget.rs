//! One budget for all that an event does: reports, and ends by turns.

mod common;

use abi::{
    Call,
    address::PAGE,
    layout::{EXCEPTION_KILL, TOPIC_DOMAIN, TOPIC_THREAD},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{Event, protection::apd::Apd};

/// Events that a report takes, and where it found something.
fn report(rig: &mut Rig, actor: Actor, topic: u64, index: u64) -> u64 {
    let (buffer, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.store(actor.space, buffer, 0).unwrap();
    let arguments = [topic, index, buffer, PAGE];
    let mut events = 1;
    let mut resumed = Resumed::First;
    while rig.begin(actor, Call::SystemInfo, &arguments, resumed).is_none() {
        resumed = Resumed::Woken;
        events += 1;
        assert!(events < 10_000, "it never ends");
    }
    rig.call(actor, Call::ObjDelete, &[buffer]).unwrap();
    events
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

/// Whose a thread is, is seen only by going up from parent to parent.
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
    assert!(ended.len() > 10 && passed.count() < 3, "{ended:?}");
    rig.settle();
    rig.check();
}
