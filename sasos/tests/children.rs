//! Threads with very many children: nobody's end, and nobody's wait, holds the kernel for all of them, and no child is lost.

mod common;

use abi::{Call, Error, layout::FOREVER};
use common::{Actor, Rig};
use kcore::{ThreadId, thread::Resumed};
use sasos::{Event, Outcome, lives::thread::Life, protection::apd::Apd};

/// Children of one thread.
const MANY: usize = 3000;
/// Of these, how many one event hands on at most.
const PIECE: u64 = 100;

/// A thread that is one of a task's, with children in it.
fn mother(rig: &mut Rig, first: Actor, children: usize) -> (Actor, Vec<ThreadId>) {
    let Rig { server, world, .. } = rig;
    let mother = server.thread_make(world, first.task, None, 0, 0, 3).unwrap();
    let maker = server.caller(world, mother, Resumed::First);
    let children = (0..children)
        .map(|_| server.thread_make(world, first.task, Some(maker), 0, 0, 3).unwrap())
        .collect();
    let mother = Actor {
        thread: mother,
        ..first
    };
    (mother, children)
}

fn count(rig: &Rig, wanted: impl Fn(&sasos::lives::thread::Thread) -> bool) -> u64 {
    rig.server.threads.iter().filter(|record| wanted(record)).count() as u64
}

/// Does the list of work to its end; tells by how much a measure changes at most in one event. Between two events `between` happens.
fn largest_piece(rig: &mut Rig, measure: impl Fn(&Rig) -> u64, mut between: impl FnMut(&mut Rig)) -> u64 {
    let mut largest = 0;
    while !rig.server.work.is_empty() {
        let before = measure(rig);
        rig.server.handle(&mut rig.world, Event::Poll);
        largest = largest.max(measure(rig).abs_diff(before));
        between(rig);
    }
    largest
}

#[test]
fn children_get_another_parent_in_pieces_and_none_is_lost() {
    let mut rig = Rig::new(1, 60_000, 4000);
    let first = rig.actor(Apd::EMPTY);
    rig.server.tasks.get_mut(first.task).unwrap().first = first.thread;
    let (mother, children) = mother(&mut rig, first, MANY);
    for &child in children.iter().step_by(3) {
        rig.call(first, Call::ThreadDelete, &[child.0, 7]).unwrap();
    }
    let left = |rig: &Rig| count(rig, |record| record.parent == mother.thread);
    assert_eq!(left(&rig), MANY as u64);
    rig.call(first, Call::ThreadDelete, &[mother.thread.0, 1]).unwrap();
    let pieces = MANY as u64 - PIECE..MANY as u64;
    assert!(pieces.contains(&left(&rig)), "a piece is done at once");
    // Some end meanwhile: such as have gone, and such as have not.
    let mut ends = children.iter().skip(1).step_by(3);
    let mut ends_too = children.iter().rev().skip(1).step_by(3);
    let most = largest_piece(&mut rig, left, |rig| {
        for child in [ends.next(), ends_too.next()].into_iter().flatten() {
            rig.call(first, Call::ThreadDelete, &[child.0, 7]).unwrap();
        }
    });
    assert!(most < PIECE, "{most} children in one event");
    assert!(rig.server.threads.find(mother.thread).is_none(), "it was an orphan");
    assert_eq!(count(&rig, |record| record.parent == first.thread), MANY as u64);
    let ended = count(&rig, |record| record.life == Life::Ended);
    assert!(ended > MANY as u64 / 3);
    for _ in 0..ended {
        assert_eq!(rig.call(first, Call::ThreadWait, &[0, 0, 0, 0]).unwrap().1, 7);
    }
    assert_eq!(rig.call(first, Call::ThreadWait, &[0, 0, 0, 0]), Err(Error::TimedOut));
    rig.check();
}

#[test]
fn children_of_a_task_that_ends_become_orphans_in_pieces() {
    let mut rig = Rig::new(2, 60_000, 4000);
    let other = rig.actor(Apd::EMPTY);
    let first = rig.actor(Apd::EMPTY);
    let Rig { server, world, .. } = &mut rig;
    let maker = server.caller(world, first.thread, Resumed::First);
    let children: Vec<ThreadId> = (0..MANY)
        .map(|_| server.thread_make(world, other.task, Some(maker), 0, 0, 3).unwrap())
        .collect();
    for &child in children.iter().step_by(2) {
        rig.call(other, Call::ThreadDelete, &[child.0, 7]).unwrap();
    }
    rig.server.task_kill(first.task, 1);
    rig.server.finish_ends(&mut rig.world);
    let left = |rig: &Rig| count(rig, |record| record.parent == first.thread);
    let pieces = MANY as u64 - PIECE..MANY as u64;
    assert!(pieces.contains(&left(&rig)), "a piece is done at once");
    let most = largest_piece(&mut rig, left, |_| ());
    assert!(most < PIECE, "{most} children in one event");
    assert_eq!(left(&rig), 0);
    assert_eq!(
        count(&rig, |record| record.life == Life::Ended),
        0,
        "nobody waits for them"
    );
    assert_eq!(rig.server.tasks.iter().count(), 1);
    rig.check();
}

/// Waits for any child; tells how many events that took, and what came of it.
fn wait(
    rig: &mut Rig,
    actor: Actor,
    timeout: u64,
    resumed: Resumed,
    mut between: impl FnMut(&mut Rig),
) -> (u32, Outcome) {
    let mut event = Event::Call {
        thread: actor.thread,
        number: Call::ThreadWait as u64,
        arguments: [0, timeout, 0, 0, 0, 0],
        resumed,
    };
    for events in 1..1000 {
        match rig.server.handle(&mut rig.world, event) {
            Outcome::Again => {}
            outcome => return (events, outcome),
        }
        between(rig);
        if let Event::Call { resumed, .. } = &mut event {
            *resumed = Resumed::Woken;
        }
    }
    panic!("it looks for ever");
}

#[test]
fn a_wait_looks_at_children_of_other_domains_in_pieces() {
    let mut rig = Rig::new(3, 60_000, 4000);
    let actor = rig.actor(Apd::EMPTY);
    let Rig { server, world, .. } = &mut rig;
    let maker = server.caller(world, actor.thread, Resumed::First);
    let children: Vec<ThreadId> = (0..2 * MANY)
        .map(|_| server.thread_make(world, actor.task, Some(maker), 0, 0, 3).unwrap())
        .collect();
    let home = server.threads.record(children[0]).parent_domain;
    for &child in &children {
        rig.server.threads.record(child).parent_domain = home + 1000;
    }
    for &child in &children[..MANY] {
        rig.call(actor, Call::ThreadDelete, &[child.0, 5]).unwrap();
    }
    let (events, outcome) = wait(&mut rig, actor, FOREVER, Resumed::First, |_| ());
    assert!(
        matches!(outcome, Outcome::Return(Err(Error::NoSuchThread))),
        "{outcome:?}"
    );
    assert!(events > 4, "{events} events");
    // One is its own; it ends between two pieces.
    let own = children[2 * MANY - 1];
    rig.server.threads.record(own).parent_domain = home;
    let (_, outcome) = wait(&mut rig, actor, FOREVER, Resumed::First, |_| ());
    assert!(matches!(outcome, Outcome::Block(..)), "{outcome:?}");
    let mut pieces = 0;
    let (_, outcome) = wait(&mut rig, actor, FOREVER, Resumed::Woken, |rig| {
        pieces += 1;
        if pieces == 4 {
            let Rig { server, world, .. } = rig;
            server.thread_end(world, own, sasos::Server::killed(own, 5));
        }
    });
    assert!(
        matches!(outcome, Outcome::Return(Ok((child, 5))) if child == own.0),
        "{outcome:?}"
    );
    // Its time is over between two pieces.
    let own = children[2 * MANY - 2];
    rig.server.threads.record(own).parent_domain = home;
    let (_, outcome) = wait(&mut rig, actor, 10_000_000, Resumed::First, |_| ());
    assert!(matches!(outcome, Outcome::Block(..)), "{outcome:?}");
    rig.world.kernel.hardware.now_ns += 20_000_000;
    let (events, outcome) = wait(&mut rig, actor, 10_000_000, Resumed::TimedOut, |_| ());
    assert!(matches!(outcome, Outcome::Return(Err(Error::TimedOut))), "{outcome:?}");
    assert!(events > 4, "{events} events");
    rig.check();
}
