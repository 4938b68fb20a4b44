//! Memory is short: what an event takes back for a page is bounded, however much there is, and every page fault is served in the end.

mod common;

use abi::{
    Call,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use sasos::{Access, Stop, protection::apd::Apd};

/// Map nodes, or pages, that one event takes back at most.
const TAKEN_MAX: u64 = 40;
const NODES_MAX: u64 = 12;
/// Events of one touch.
const EVENTS_MAX: u32 = 60;

/// One event of a touch; what it takes to go on.
fn touch(rig: &mut Rig, actor: Actor, address: u64) -> Result<(), Stop> {
    rig.server.touch(&mut rig.world, actor.space, address, Access::Write)
}

/// A rig with a kept object that has one page in each of so many slots, and with them as many map nodes.
fn many_nodes(slots: u64) -> (Rig, Actor, u64) {
    let mut rig = Rig::new(5, 1600 + 3 * slots as u32, 1 << 15);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[slots * SLOT, 5]).unwrap();
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    for slot in 0..slots {
        rig.store(actor.space, base + slot * SLOT, slot).unwrap();
    }
    rig.generation().unwrap();
    rig.settle();
    (rig, actor, base)
}

/// Touches pages of a new object by a task of its own, until memory was short for so much of what is measured; tells how much of it went in one event at most.
fn most_gone(rig: &mut Rig, measure: fn(&Rig) -> u64, all: u64) -> u64 {
    let actor = rig.actor(Apd::EMPTY);
    let (own, _) = rig.call(actor, Call::ObjCreate, &[1 << 25, 0]).unwrap();
    let (mut most, mut gone, mut page) = (0, 0, own);
    while gone < all {
        let mut events = 0;
        loop {
            let before = measure(rig);
            let touched = touch(rig, actor, page);
            let less = before.saturating_sub(measure(rig));
            (most, gone) = (most.max(less), gone + less);
            match touched {
                Ok(()) => break,
                Err(Stop::Again) => {}
                other => panic!("{page:#x}: {other:?}, and {gone} went"),
            }
            events += 1;
            assert!(events < EVENTS_MAX, "{page:#x} never comes");
        }
        page += PAGE;
    }
    most
}

#[test]
fn a_touch_takes_map_nodes_back_in_pieces_however_many_there_are() {
    for slots in [200, 800] {
        let (mut rig, actor, base) = many_nodes(slots);
        // No page is clean.
        for slot in 0..slots {
            rig.store(actor.space, base + slot * SLOT, slot).unwrap();
        }
        let nodes = |rig: &Rig| rig.server.store.stats().map_nodes;
        assert!(nodes(&rig) > slots);
        let most = most_gone(&mut rig, nodes, 130);
        assert!(most <= NODES_MAX, "{most} of {slots} nodes in one event");
        rig.checkpoint().unwrap();
        rig.check();
    }
}

#[test]
fn a_touch_takes_clean_pages_back_in_pieces() {
    for slots in [200, 800] {
        let (mut rig, ..) = many_nodes(slots);
        let most = most_gone(&mut rig, |rig| rig.server.objects.resident(), 80);
        assert!(most <= TAKEN_MAX, "{most} of {slots} pages in one event");
        rig.check();
    }
}
