//! Deletes of kept objects: pages that the disk does not have go behind the call, in pieces, and a power cut or a failure of the disk finds the
//! object whole or gone.

mod common;

use abi::{
    Call, Error,
    address::PAGE,
    layout::{Capability, INFO_SET_TAG},
};
use common::{Actor, Order, Rig};
use kcore::thread::Resumed;
use sasos::{Access, Event, Outcome, Stop, durability::durable::DELETIONS_BESIDE, protection::apd::Apd};

/// Pages that one event drops at most.
const PIECE_PAGES: u64 = 32;
const PAGES: u64 = 12 * PIECE_PAGES;
const PASSWORD: u64 = 77;

fn write(rig: &mut Rig, actor: Actor, base: u64, offset: u64) {
    for page in 0..PAGES {
        rig.store(actor.space, base + page * PAGE, offset + page).unwrap();
    }
}

/// Begins a delete; tells the most pages that one of its events drops.
fn begin_delete(rig: &mut Rig, actor: Actor, base: u64) -> u64 {
    let mut most = 0;
    for resumed in [Resumed::First; 1].into_iter().chain([Resumed::Woken; 1000]) {
        let before = rig.server.objects.resident();
        let event = Event::Call {
            thread: actor.thread,
            number: Call::ObjDelete as u64,
            arguments: [base, 0, 0, 0, 0, 0],
            resumed,
        };
        let outcome = rig.server.handle(&mut rig.world, event);
        most = most.max(before - rig.server.objects.resident());
        match outcome {
            Outcome::Again => {}
            Outcome::Block(..) | Outcome::Return(Ok(_)) => return most,
            other => panic!("{other:?}"),
        }
    }
    panic!("it never ends");
}

#[test]
fn dirty_pages_go_in_pieces() {
    for written_twice in [false, true] {
        let mut rig = Rig::new(1, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let reserved = rig.server.store.stats().reserved;
        let base = rig.kept(actor, PAGES, PASSWORD);
        write(&mut rig, actor, base, 1);
        let user = rig.holder(base, PASSWORD);
        if written_twice {
            rig.checkpoint().unwrap();
            rig.settle();
            write(&mut rig, user, base, 1000);
        }
        let mut most = begin_delete(&mut rig, user, base);
        assert_eq!(rig.load(user.space, base), Err(Error::BadAddress), "it is gone for all");
        rig.check();
        while !rig.server.work.is_empty() {
            let before = rig.server.objects.resident();
            rig.server.handle(&mut rig.world, Event::Poll);
            most = most.max(before - rig.server.objects.resident());
            rig.check();
        }
        assert!(most <= PIECE_PAGES, "{most} pages in one event");
        assert!(rig.server.objects.find(base).is_none());
        let (other, _) = rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
        assert_ne!(other, base, "the address is held until a checkpoint has the deletion");
        rig.settle();
        rig.checkpoint().unwrap();
        rig.checkpoint().unwrap();
        rig.settle();
        assert_eq!(rig.server.store.stats().reserved, reserved, "all promises came back");
        assert_eq!(rig.server.pager.dirty, 0);
        rig.check();
    }
}

/// The power fails after each piece, without and with a checkpoint that begins between two of them: the object is there as the last checkpoint before
/// had it, or it is gone.
#[test]
fn a_power_cut_between_two_pieces_finds_it_whole_or_gone() {
    let (mut whole, mut gone) = (0, 0);
    for cut in 0..60 {
        for checkpoint in [false, true] {
            let mut rig = Rig::new(cut, 8000, 20_000);
            let actor = rig.actor(Apd::EMPTY);
            let base = rig.kept(actor, PAGES, PASSWORD);
            write(&mut rig, actor, base, 1);
            rig.checkpoint().unwrap();
            rig.settle();
            write(&mut rig, actor, base, 1000);
            begin_delete(&mut rig, actor, base);
            if checkpoint {
                rig.server.checkpoint_request(&mut rig.world);
            }
            for _ in 0..cut / 2 {
                if rig.rng.one_in(2) {
                    rig.world.step_disk();
                }
                rig.server.handle(&mut rig.world, Event::Poll);
            }
            let (mut rig, _) = rig.crash();
            let user = rig.holder(base, PASSWORD);
            if rig.server.store.object(base).is_none() {
                gone += 1;
                continue;
            }
            whole += 1;
            for page in 0..PAGES {
                assert_eq!(rig.load(user.space, base + page * PAGE), Ok(1 + page), "page {page}");
            }
            rig.check();
        }
    }
    assert!(whole > 10 && gone > 10, "{whole} whole, {gone} gone");
}

/// A sync of some pages fails while the object goes: they are not written any more, and nothing is promised to them.
#[test]
fn what_fails_meanwhile_does_not_come_back() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let reserved = rig.server.store.stats().reserved;
        let base = rig.kept(actor, PAGES, PASSWORD);
        rig.checkpoint().unwrap();
        rig.settle();
        write(&mut rig, actor, base, 1);
        let flusher = rig.sibling(actor);
        let arguments = [base + (PAGES - 10) * PAGE, 10];
        assert_eq!(rig.begin(flusher, Call::PageFlush, &arguments, Resumed::First), None);
        rig.world.disk.set_failing(1);
        begin_delete(&mut rig, actor, base);
        while rig.world.step_disk() {
            rig.server.handle(&mut rig.world, Event::Poll);
            rig.check();
        }
        rig.world.disk.set_failing(0);
        rig.settle();
        while rig.checkpoint().is_err() {}
        rig.checkpoint().unwrap();
        rig.settle();
        assert!(rig.server.objects.find(base).is_none() && rig.server.store.object(base).is_none());
        assert_eq!(rig.server.store.stats().reserved, reserved, "all promises came back");
        rig.check();
    }
}

/// While a checkpoint writes the table few objects are deleted: the others wait for its end, and then go.
#[test]
fn deletions_beside_a_checkpoint_are_few() {
    const OBJECTS: usize = 60;
    let mut rig = Rig::new(9, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let bases: Vec<u64> = (0..OBJECTS).map(|_| rig.kept(actor, 1, PASSWORD)).collect();
    let stays = rig.kept(actor, 1, PASSWORD);
    let (info, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for page in [bases[0], info] {
        rig.store(actor.space, page, 1).unwrap();
    }
    let number = rig.server.checkpoint_request(&mut rig.world);
    while !rig.server.store.writes_table() {
        rig.server.handle(&mut rig.world, Event::Poll);
    }
    let threads: Vec<Actor> = bases.iter().map(|_| rig.sibling(actor)).collect();
    for (&thread, &base) in threads.iter().zip(&bases) {
        begin_delete(&mut rig, thread, base);
    }
    let beside = rig.server.store.deletions_beside();
    assert!((1..=DELETIONS_BESIDE).contains(&beside), "{beside} deletions");
    // A row that changes would stand beside the table, too; one that is read does not.
    let reader = rig.sibling(actor);
    let look = |rig: &mut Rig, flags, resumed| rig.begin(reader, Call::ObjInfo, &[stays, flags, info, PAGE], resumed);
    assert!(matches!(look(&mut rig, 0, Resumed::First), Some(Ok(_))));
    assert_eq!(look(&mut rig, INFO_SET_TAG, Resumed::First), None, "it waits");
    while rig.server.checkpoint_reached(number).is_none() {
        rig.move_disk();
    }
    assert!(matches!(look(&mut rig, INFO_SET_TAG, Resumed::Woken), Some(Ok(_))));
    for (&thread, &base) in threads.iter().zip(&bases) {
        while rig.begin(thread, Call::ObjDelete, &[base], Resumed::Woken).is_none() {
            rig.move_disk();
        }
    }
    rig.settle();
    assert!(bases.iter().all(|&base| rig.server.store.object(base).is_none()));
    rig.check();
}

/// The names of Clists are counted until the last piece has gone.
#[test]
fn an_object_with_a_procedure_goes_in_pieces() {
    let mut rig = Rig::new(3, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, PAGES, PASSWORD);
    let owner = rig.holder(base, PASSWORD);
    let (list, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(owner.space, list, &[], Order::Any);
    rig.registers(owner, base, 5, list);
    write(&mut rig, owner, base, 1);
    begin_delete(&mut rig, owner, base);
    assert!(!rig.server.work.is_empty(), "it is on its way");
    rig.check();
    rig.settle();
    rig.check();
}

/// A search between two pieces does not read what is left of a Clist.
#[test]
fn a_clist_that_is_deleted_grants_nothing() {
    let mut rig = Rig::new(3, 8000, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let [base, list] = [1, PAGES].map(|pages| rig.kept(actor, pages, PASSWORD));
    let owner = rig.holder(list, PASSWORD);
    write(&mut rig, owner, list, 0);
    // From now on only the store knows what it does not have in memory.
    rig.put_away();
    write(&mut rig, owner, list, 1);
    let held = Capability {
        address: base,
        password: PASSWORD,
    };
    rig.write_clist(owner.space, list, &[held], Order::Any);
    rig.call(owner, Call::ApdInsert, &[0, list]).unwrap();
    rig.store(owner.space, base, 5).unwrap();
    begin_delete(&mut rig, owner, list);
    assert!(!rig.server.work.is_empty(), "it is on its way");
    rig.call(owner, Call::ApdFlush, &[]).unwrap();
    let step = loop {
        match rig.server.touch(&mut rig.world, owner.space, base, Access::Read) {
            Err(Stop::Again) => {}
            step => break step,
        }
    };
    assert_eq!(step, Err(Stop::Fail(Error::Protection)), "it waits for nothing");
    rig.settle();
    rig.check();
}
