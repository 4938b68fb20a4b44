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

/// A task, and so many procedures that its domain has called, merged with it.
fn merged(rig: &mut Rig, count: u64) -> Actor {
    let owner = rig.actor(Apd::EMPTY);
    let services: Vec<u64> = (0..count).map(|_| rig.service(owner, 9)).collect();
    let caller = rig.actor(Apd::EMPTY);
    let (clist, _) = rig.call(caller, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let capability = |&address| Capability { address, password: 9 };
    let capabilities: Vec<Capability> = services.iter().map(capability).collect();
    rig.write_clist(caller.space, clist, &capabilities, Order::Sorted);
    rig.call(caller, Call::ApdInsert, &[0, clist]).unwrap();
    let before = rig.server.callees.count_open();
    for service in services {
        rig.enters(caller, service, PD_MERGE).unwrap();
        rig.event(caller, Call::PdxReturn, [0; 6], Resumed::First);
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

/// A thread that changes the APD of its domain has its answer behind two rounds of those that read through to it: one that another
/// thread had begun, and its own. How often others change it meanwhile, and how many events they have before it has its turn, makes no difference.
#[test]
fn whoever_flushes_all_the_time_keeps_nobody_from_an_answer() {
    for count in (16..64).step_by(8) {
        for others in 0..16 {
            let mut rig = Rig::new(1, 20_000, 4096);
            rig.server.price_calls(Remote::<()>::CALL);
            let first = merged(&mut rig, count);
            let mut alone = 1;
            while !flush(
                &mut rig,
                first,
                if alone == 1 { Resumed::First } else { Resumed::Woken },
            ) {
                alone += 1;
            }
            let other = rig.sibling(first);
            let mut others_resumed = Resumed::First;
            let mut longest = 0;
            for _ in 0..30 {
                let (mut events, mut resumed) = (0, Resumed::First);
                loop {
                    events += 1;
                    if flush(&mut rig, first, resumed) {
                        break;
                    }
                    resumed = Resumed::Woken;
                    for _ in 0..others {
                        events += 1;
                        let is_last = flush(&mut rig, other, others_resumed);
                        others_resumed = if is_last { Resumed::First } else { Resumed::Woken };
                    }
                }
                longest = longest.max(events);
            }
            assert!(
                longest <= 4 * alone,
                "{count} callees, {others} events between two: an answer behind {longest}, {alone} without others"
            );
            rig.settle();
            rig.check();
        }
    }
}

/// Threads that begin a change and end leave no more to the list of work than one of them.
#[test]
fn changes_that_nobody_goes_on_with_are_one_item() {
    let mut rig = Rig::new(2, 20_000, 4096);
    let first = merged(&mut rig, 60);
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
    let actors: Vec<Actor> = (0..60).map(|_| merged(&mut rig, 8)).collect();
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
