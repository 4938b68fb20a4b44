//! Cuts of objects: the shorter length comes first, in one event. The pages behind the new end go after it, in pieces, and nobody
//! finds them there any more.

mod common;

use abi::{Call, Error, address::PAGE, address::SLOT};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{Access, Event, protection::apd::Apd};

/// Pages that one event drops at most.
const PIECE_PAGES: u64 = 32;
/// The same where nobody has the object.
const FORGOTTEN_PAGES: u64 = 104;
const PAGES: u64 = 12 * PIECE_PAGES;
const LEFT: u64 = 3;
const PASSWORD: u64 = 77;

fn write(rig: &mut Rig, actor: Actor, base: u64, offset: u64) {
    for page in 0..PAGES {
        rig.store(actor.space, base + page * PAGE, offset + page).unwrap();
    }
}

/// Makes one event of a cut; tells whether it was the last, and how many pages it has dropped.
fn cut_on(rig: &mut Rig, actor: Actor, base: u64, resumed: Resumed) -> (bool, u64) {
    let before = rig.server.objects.resident();
    let result = rig.begin(actor, Call::ObjResize, &[base, LEFT * PAGE], resumed);
    assert!(matches!(result, None | Some(Ok(_))), "{result:?}");
    (result.is_some(), before.saturating_sub(rig.server.objects.resident()))
}

#[test]
fn dirty_pages_behind_a_cut_go_in_pieces() {
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
        let most = rig.largest_step(user, Call::ObjResize, &[base, LEFT * PAGE], |rig| {
            rig.server.objects.resident()
        });
        assert!(most <= PIECE_PAGES, "{most} pages in one event");
        rig.check();
        assert_eq!(rig.load(user.space, base + LEFT * PAGE), Err(Error::BadAddress));
        let value = if written_twice { 1000 } else { 1 };
        assert_eq!(rig.load(user.space, base), Ok(value), "the rest is as it was");
        rig.call(user, Call::ObjResize, &[base, PAGES * PAGE]).unwrap();
        assert_eq!(rig.load(user.space, base + LEFT * PAGE), Ok(0));
        rig.call(user, Call::ObjDelete, &[base]).unwrap();
        rig.checkpoint().unwrap();
        rig.checkpoint().unwrap();
        rig.settle();
        assert_eq!(rig.server.store.stats().reserved, reserved, "all promises came back");
        rig.check();
    }
}

/// Many pages are on their way when the object is cut, or deleted: those who wait for them are woken in pieces.
#[test]
fn reads_behind_a_cut_end_in_pieces() {
    /// Reads that one event ends at most.
    const READS: usize = 40;
    for (call, arguments) in [(Call::ObjResize, &[LEFT * PAGE][..]), (Call::ObjDelete, &[])] {
        let mut rig = Rig::new(3, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, PAGES, PASSWORD);
        write(&mut rig, actor, base, 1);
        rig.put_away();
        let user = rig.holder(base, PASSWORD);
        for page in LEFT..PAGES {
            rig.world.kernel.enter_space(user.space);
            let event = Event::Fault {
                thread: user.thread,
                address: base + page * PAGE,
                access: Access::Read,
            };
            rig.server.handle(&mut rig.world, event);
        }
        assert!(
            rig.server.pager.reads() > 4 * READS,
            "{} reads",
            rig.server.pager.reads()
        );
        let arguments = [&[base], arguments].concat();
        let (mut most, mut resumed) = (0, Resumed::First);
        while rig.server.pager.reads() > 0 {
            let before = rig.server.pager.reads();
            if resumed == Resumed::First || rig.server.work.is_empty() {
                let _ = rig.begin(user, call, &arguments, resumed);
            } else {
                rig.server.handle(&mut rig.world, Event::Poll);
            }
            most = most.max(before.saturating_sub(rig.server.pager.reads()));
            resumed = Resumed::Woken;
        }
        assert!(most <= READS, "{call:?}: {most} reads in one event");
        rig.settle();
        rig.check();
    }
}

/// Others touch the pages that a cut has passed, as often as they can.
#[test]
fn nobody_comes_back_behind_a_cut() {
    for persistent in [false, true] {
        let mut rig = Rig::new(2, 8000, 20_000);
        let actor = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, PASSWORD]).unwrap();
        if persistent {
            rig.call(actor, Call::KeepObject, &[base]).unwrap();
        }
        write(&mut rig, actor, base, 1);
        let (other, mut resumed, mut most, mut came) = (rig.sibling(actor), Resumed::First, 0, 0);
        loop {
            let (over, dropped) = cut_on(&mut rig, actor, base, resumed);
            (resumed, most) = (Resumed::Woken, most.max(dropped));
            rig.check();
            if over {
                break;
            }
            for page in 0..PAGES {
                let before = rig.server.objects.resident();
                let result = rig.store(other.space, base + page * PAGE, 5);
                came += rig.server.objects.resident() - before;
                assert!(page >= LEFT || result.is_ok());
            }
        }
        assert!(most <= PIECE_PAGES, "{most} pages in one event");
        assert_eq!(came, 0);
    }
}

/// Domains that find the object between two pieces do not keep the cut from its end.
#[test]
fn a_crowd_does_not_hold_a_cut_up() {
    let mut rig = Rig::new(3, 16_000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[40 * SLOT, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    for slot in 0..40 {
        rig.store(owner.space, base + slot * SLOT, slot).unwrap();
    }
    let users: Vec<Actor> = (0..60).map(|_| rig.holder(base, 5)).collect();
    let touch = |rig: &mut Rig, slots: u64| {
        for user in &users {
            let _ = rig.load(user.space, base + (user.space.0 as u64 % slots) * SLOT);
        }
    };
    touch(&mut rig, 40);
    rig.server.put_off_check();
    let mut resumed = Resumed::First;
    for events in 0.. {
        let before = rig.world.kernel.hardware.accesses();
        let result = rig.begin(owner, Call::ObjResize, &[base, 2 * SLOT], resumed);
        let accesses = rig.world.kernel.hardware.accesses() - before;
        assert!(accesses < 400, "{accesses} accesses in one event");
        if result.is_some() {
            break;
        }
        assert!(events < 1000, "they keep it from its end");
        touch(&mut rig, 2);
        rig.server.put_off_check();
        resumed = Resumed::Woken;
    }
    rig.check();
}

/// A call that needs the rest of a cut to be gone finishes the cut first.
#[test]
fn other_calls_between_two_pieces_find_a_shorter_object() {
    let calls: [(Call, &[u64]); 5] = [
        (Call::ObjResize, &[PAGES * PAGE]),
        (Call::ObjResize, &[PAGE]),
        (Call::ObjDelete, &[]),
        (Call::KeepObject, &[]),
        (Call::ObjClone, &[0, 0]),
    ];
    for (persistent, (call, more)) in [false, true]
        .into_iter()
        .flat_map(|kept| calls.map(|call| (kept, call)))
    {
        for events in 1..6 {
            let mut rig = Rig::new(events, 8000, 20_000);
            let actor = rig.actor(Apd::EMPTY);
            let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, PASSWORD]).unwrap();
            let frames = rig.world.kernel.frames().free();
            if persistent {
                rig.call(actor, Call::KeepObject, &[base]).unwrap();
            }
            let actor = rig.holder(base, PASSWORD);
            write(&mut rig, actor, base, 1);
            for event in 0..events {
                let resumed = if event == 0 { Resumed::First } else { Resumed::Woken };
                assert!(!cut_on(&mut rig, actor, base, resumed).0);
            }
            let other = rig.sibling(actor);
            let arguments: Vec<u64> = [base].iter().chain(more).copied().collect();
            let result = rig.call(other, call, &arguments);
            assert!(result.is_ok(), "{call:?}: {result:?}");
            rig.check();
            if call == Call::ObjClone {
                rig.call(other, Call::ObjDelete, &[result.unwrap().0]).unwrap();
            }
            if call == Call::ObjResize && more == [PAGES * PAGE] {
                for page in LEFT..PAGES {
                    assert_eq!(rig.load(other.space, base + page * PAGE), Ok(0), "page {page}");
                }
            }
            // The thread that cut it has an answer, too.
            let answer = loop {
                if let Some(answer) = rig.begin(actor, Call::ObjResize, &[base, LEFT * PAGE], Resumed::Woken) {
                    break answer;
                }
            };
            assert!(answer.is_ok(), "{call:?}: {answer:?}");
            if call != Call::ObjDelete {
                rig.call(other, Call::ObjDelete, &[base]).unwrap();
            }
            rig.checkpoint().unwrap();
            rig.checkpoint().unwrap();
            rig.settle();
            rig.check();
            assert!(rig.world.kernel.frames().free() + 64 > frames, "{call:?}");
        }
    }
}

/// The thread of the cut ends between two pieces.
#[test]
fn the_rest_of_a_cut_needs_no_thread() {
    for persistent in [false, true] {
        let mut rig = Rig::new(7, 8000, 20_000);
        let owner = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGES * PAGE, PASSWORD]).unwrap();
        if persistent {
            rig.call(owner, Call::KeepObject, &[base]).unwrap();
        }
        let actor = rig.holder(base, PASSWORD);
        write(&mut rig, actor, base, 1);
        assert!(!cut_on(&mut rig, actor, base, Resumed::First).0);
        rig.server.task_kill(actor.task, 1);
        while !rig.server.work.is_empty() {
            let before = rig.server.objects.resident();
            rig.server.handle(&mut rig.world, Event::Poll);
            let dropped = before - rig.server.objects.resident();
            assert!(dropped <= FORGOTTEN_PAGES, "{dropped} pages in one event");
            rig.check();
        }
        assert_eq!(
            rig.server.objects.get(rig.server.objects.find(base).unwrap()).resident,
            LEFT
        );
    }
}

/// The power fails after each piece, without and with a checkpoint that begins between two of them: the object has the one length or the other, and
/// the contents of that checkpoint.
#[test]
fn a_power_cut_between_two_pieces_finds_one_length_or_the_other() {
    let (mut long, mut short) = (0, 0);
    for cut in 0..60 {
        for checkpoint in [false, true] {
            let mut rig = Rig::new(cut, 8000, 20_000);
            let actor = rig.actor(Apd::EMPTY);
            let base = rig.kept(actor, PAGES, PASSWORD);
            write(&mut rig, actor, base, 1);
            rig.checkpoint().unwrap();
            rig.settle();
            write(&mut rig, actor, base, 1000);
            let user = rig.holder(base, PASSWORD);
            for event in 0..cut / 8 {
                let resumed = if event == 0 { Resumed::First } else { Resumed::Woken };
                if cut_on(&mut rig, user, base, resumed).0 {
                    break;
                }
            }
            if checkpoint {
                rig.server.checkpoint_request(&mut rig.world);
            }
            for _ in 0..8 * cut {
                if rig.rng.one_in(2) {
                    rig.world.step_disk();
                }
                rig.server.handle(&mut rig.world, Event::Poll);
                rig.check();
            }
            let (mut rig, _) = rig.crash();
            let pages = rig.server.store.object(base).unwrap().pages;
            let user = rig.holder(base, PASSWORD);
            let first = rig.load(user.space, base).unwrap();
            assert!(first == 1 || first == 1000);
            match pages {
                PAGES => long += 1,
                LEFT => short += 1,
                other => panic!("{other} pages"),
            }
            for page in 0..pages {
                assert_eq!(
                    rig.load(user.space, base + page * PAGE),
                    Ok(first + page),
                    "page {page}"
                );
            }
            rig.check();
        }
    }
    assert!(long > 10 && short > 10, "{long} long, {short} short");
}
