//! Changes of an APD that very many other domains read through to: all of them forget, in pieces, whoever else changes it meanwhile.

mod common;

use abi::{
    Call,
    address::PAGE,
    layout::{Capability, PD_MERGE},
};
use common::{Actor, Order, Rig};
use kcore::{outside::Remote, thread::Resumed};
use sasos::{Event, Outcome, protection::apd::Apd};

/// The domain that has called the procedures of a task.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Called {
    /// That of the task.
    ByTask,
    /// That of one procedure, merged with the task's.
    ByCallee,
}

/// A task, and so many procedures that were called by its domain or by one callee of it, merged with that.
fn merged(rig: &mut Rig, count: u64, called: Called) -> Actor {
    let owner = rig.actor(Apd::EMPTY);
    let services: Vec<u64> = (0..count).map(|_| rig.service(owner, 9)).collect();
    let caller = rig.actor(Apd::EMPTY);
    let (clist, _) = rig.call(caller, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let capability = |&address| Capability { address, password: 9 };
    let capabilities: Vec<Capability> = services.iter().map(capability).collect();
    rig.write_clist(caller.space, clist, &capabilities, Order::Sorted);
    rig.call(caller, Call::ApdInsert, &[0, clist]).unwrap();
    let before = rig.server.callees.count_open();
    let leaves = |rig: &mut Rig| rig.event(caller, Call::PdxReturn, [0; 6], Resumed::First);
    let (&outer, inner) = services.split_first().expect("a procedure");
    rig.enters(caller, outer, PD_MERGE).unwrap();
    if called == Called::ByTask {
        leaves(rig);
    }
    for &service in inner {
        rig.enters(caller, service, PD_MERGE).unwrap();
        leaves(rig);
    }
    if called == Called::ByCallee {
        leaves(rig);
    }
    assert_eq!((rig.server.callees.count_open() - before) as u64, count);
    caller
}

/// An event of a flush; tells whether it was the last.
fn flush(rig: &mut Rig, actor: Actor, resumed: Resumed) -> bool {
    match rig.event(actor, Call::ApdFlush, [0; 6], resumed) {
        Outcome::Return(result) => result.map(|_| true).unwrap(),
        Outcome::Again => false,
        other => panic!("{other:?}"),
    }
}

/// Has one thread of a domain flush, and another one do so between any two events of it, so many times. Tells the largest number of events until an
/// answer, and that without the other. The other one goes on with its changes, or begins a new one each time.
fn longest_flush(count: u64, called: Called, others: u32, goes_on: bool) -> (u32, u32) {
    let mut rig = Rig::new(1, 20_000, 4096);
    rig.server.price_calls(Remote::<()>::CALL);
    let first = merged(&mut rig, count, called);
    let other = rig.sibling(first);
    let mut others_resumed = Resumed::First;
    let mut until_answer = |rig: &mut Rig, others| {
        let (mut events, mut resumed) = (1, Resumed::First);
        while !flush(rig, first, resumed) {
            for _ in 0..others {
                let is_last = flush(rig, other, others_resumed);
                others_resumed = if is_last || !goes_on {
                    Resumed::First
                } else {
                    Resumed::Woken
                };
            }
            (events, resumed) = (events + others + 1, Resumed::Woken);
            assert!(
                events < 10_000,
                "{count} callees, called {called:?}, {others} events between two"
            );
        }
        events
    };
    let alone = until_answer(&mut rig, 0);
    let longest = (0..30).map(|_| until_answer(&mut rig, others)).max().expect("some");
    rig.settle();
    rig.check();
    (longest, alone)
}

/// A thread that changes the APD of its domain has its answer behind two rounds of the domains that read through to it: the round that another thread has
/// begun, and its own, which is dearer while others change the APD. How many events others have before it has its turn makes no difference.
#[test]
fn a_flush_is_answered_behind_two_rounds() {
    for called in [Called::ByTask, Called::ByCallee] {
        for count in (16..64).step_by(8) {
            for others in 0..16 {
                let (longest, alone) = longest_flush(count, called, others, true);
                assert!(
                    longest <= 4 * alone,
                    "{count} callees, called {called:?}, {others} events between two: an answer behind {longest}, {alone} without others"
                );
            }
        }
    }
}

/// It has its answer also while others do nothing but begin changes.
#[test]
fn changes_that_only_begin_keep_nobody_from_an_answer() {
    for called in [Called::ByTask, Called::ByCallee] {
        for others in [1, 3, 7] {
            longest_flush(40, called, others, false);
        }
    }
}

/// Threads that begin a change and end leave no more to the list of work than one of them.
#[test]
fn changes_that_nobody_goes_on_with_are_one_item() {
    let mut rig = Rig::new(2, 20_000, 4096);
    let first = merged(&mut rig, 60, Called::ByTask);
    for _ in 0..50 {
        let thread = rig.sibling(first);
        assert!(!flush(&mut rig, thread, Resumed::First), "it takes further events");
        rig.call(first, Call::ThreadDelete, &[thread.thread.0, 1]).unwrap();
    }
    assert!(rig.server.work.count() <= 1, "{} items", rig.server.work.count());
    rig.settle();
    assert!(rig.server.work.is_empty());
    rig.check();
}

/// Items whose calls have done all of it are taken off the list in pieces, too.
#[test]
fn items_that_are_done_end_in_pieces() {
    let mut rig = Rig::new(3, 60_000, 4096);
    rig.server.price_calls(Remote::<()>::CALL);
    let actors: Vec<Actor> = (0..60).map(|_| merged(&mut rig, 8, Called::ByTask)).collect();
    for &actor in &actors {
        assert!(!flush(&mut rig, actor, Resumed::First), "it takes further events");
        while !flush(&mut rig, actor, Resumed::Woken) {}
    }
    let items = rig.server.work.count();
    rig.server.handle(&mut rig.world, Event::Poll);
    let left = rig.server.work.count();
    assert!(items == actors.len() && left > 0 && left < items, "{left} of {items}");
    rig.settle();
    rig.check();
}
