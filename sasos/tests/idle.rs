//! Kept objects that nobody uses: what they have in memory is charged to the account that it is for, and comes back when somebody lacks it.

mod common;

use abi::{
    Call, Error,
    address::{OBJECT_BYTES_MAX, PAGE, SLOT},
    layout::Capability,
};
use common::{Actor, Order, Rig};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, Resource, UNLIMITED, limits},
};

/// Slots of the objects here, which lie in several chunks of records.
const SLOTS: u64 = 150;
/// Page tables that their programs may have: enough for one of them.
const TABLES: u64 = 200;

/// The account of programs, which may have so many page tables.
fn programs(rig: &mut Rig) -> AccountId {
    let (_, programs) = rig.first_task();
    let mut limits = UNLIMITED;
    limits[Resource::Tables as usize] = TABLES;
    rig.server.ledger.set_limits(programs, limits);
    programs
}

/// An object with a page table in each slot, and how many of them its program could get.
fn wide(rig: &mut Rig, actor: Actor, is_kept: bool) -> (u64, u64) {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[SLOTS * SLOT, 7]).unwrap();
    if is_kept {
        rig.call(actor, Call::KeepObject, &[base]).unwrap();
        rig.checkpoint().unwrap();
    }
    let has = |slot: &u64| rig.has(actor, base + slot * SLOT, Access::Read);
    (base, (0..SLOTS).take_while(has).count() as u64)
}

#[test]
fn what_a_program_leaves_in_memory_is_the_next_ones() {
    for writes in [false, true] {
        let mut rig = Rig::new(80, 8000, 20_000);
        let programs = programs(&mut rig);
        let first = rig.actor_in(programs, UNLIMITED);
        let (base, tables) = wide(&mut rig, first, true);
        assert_eq!(tables, SLOTS);
        let charged = base + 100 * SLOT + PAGE;
        if writes {
            assert!(rig.has(first, charged, Access::Write));
            rig.checkpoint().unwrap();
        }
        rig.ends(first);
        let id = rig.server.objects.find(base).unwrap();
        assert_eq!(rig.server.objects.get(id).leaves, SLOTS);
        let next = rig.actor_in(programs, UNLIMITED);
        assert_eq!(wide(&mut rig, next, false).1, SLOTS, "{writes}");
        rig.settle();
        let object = rig.server.objects.get(id);
        // A block that was written is like one of an earlier start.
        assert_eq!((object.leaves, object.resident, object.blocks), (0, 0, 0));
        assert!(object.slots.get(1).is_none() && object.slots.get(100).is_none());
        rig.check();
        // It is there as it was when it is needed again.
        rig.ends(next);
        let holder = rig.holder(base, 7);
        assert_eq!(rig.load(holder.space, charged), Ok(0));
        rig.check();
    }
}

/// Many small objects lie about, each with a page and a page table: no event takes more than some of them back.
#[test]
fn what_many_programs_left_is_taken_back_in_pieces() {
    /// Frames that one event takes back at most: two an object.
    const PIECE: u64 = 48;
    let mut rig = Rig::new(81, 8000, 20_000);
    let programs = programs(&mut rig);
    let first = rig.actor_in(programs, UNLIMITED);
    for _ in 0..SLOTS {
        let (base, _) = rig.call(first, Call::ObjCreate, &[PAGE, 7]).unwrap();
        rig.call(first, Call::KeepObject, &[base]).unwrap();
        assert!(rig.has(first, base, Access::Write));
    }
    rig.checkpoint().unwrap();
    rig.ends(first);
    let next = rig.actor_in(programs, UNLIMITED);
    let (base, _) = rig.call(next, Call::ObjCreate, &[SLOTS * SLOT, 7]).unwrap();
    let (mut all, mut most) = (0, 0);
    for slot in 0..SLOTS {
        rig.world.kernel.enter_space(next.space);
        let fault = Event::Fault {
            thread: next.thread,
            address: base + slot * SLOT,
            access: Access::Read,
        };
        for event in [fault, Event::Poll].into_iter().cycle() {
            let before = rig.world.kernel.frames().free();
            let outcome = rig.server.handle(&mut rig.world, event);
            let taken = rig.world.kernel.frames().free().saturating_sub(before);
            (all, most) = (all + taken, most.max(taken));
            if matches!(event, Event::Fault { .. }) && outcome == Outcome::Resume {
                break;
            }
        }
    }
    assert!(all >= SLOTS, "only {all} frames were taken back");
    assert!(most < PIECE, "{most} frames in one event");
    rig.check();
}

/// A program whose object is in use keeps it, and is refused alone.
#[test]
fn what_is_in_use_stays() {
    let mut rig = Rig::new(81, 8000, 20_000);
    let programs = programs(&mut rig);
    let first = rig.actor_in(programs, UNLIMITED);
    let (base, _) = wide(&mut rig, first, true);
    let next = rig.actor_in(programs, UNLIMITED);
    let (_, tables) = wide(&mut rig, next, false);
    assert!(tables < SLOTS, "{tables}");
    let id = rig.server.objects.find(base).unwrap();
    assert_eq!(rig.server.objects.get(id).leaves, SLOTS);
    rig.check();
}

/// In the next start all programs together pay for what one of them has kept, and nothing is charged that only the machine bounds.
#[test]
fn programs_pay_for_what_programs_have_kept() {
    let mut rig = Rig::new(82, 8000, 20_000);
    let shell = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let program = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let kept = [shell, program].map(|actor| wide(&mut rig, actor, true).0);
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.first_task();
    let programs = rig.server.programs;
    rig.check();
    for (base, pays) in kept.into_iter().zip([false, true]) {
        let holder = rig.holder(base, 7);
        rig.server.ledger.empty_all_hands();
        let before = rig.server.ledger.used(programs, Resource::Tables);
        for slot in 0..SLOTS {
            assert!(rig.has(holder, base + slot * SLOT, Access::Read));
        }
        rig.server.ledger.empty_all_hands();
        let more = rig.server.ledger.used(programs, Resource::Tables) - before;
        assert_eq!(more, if pays { SLOTS } else { 0 });
        let rows = rig.server.ledger.used(programs, Resource::Rows);
        assert!(rows > 0 && rows < rig.server.ledger.used(AccountId::ROOT, Resource::Rows));
        rig.check();
    }
}

/// Kept objects of programs hold no more than half of the addresses that programs may have, in whatever start they were kept, so the next program finds
/// some; the first task is not bound.
#[test]
fn kept_objects_leave_addresses_to_programs_in_every_start() {
    const BYTES: u64 = OBJECT_BYTES_MAX - 2 * SLOT;
    let mut rig = Rig::new(83, 8000, 20_000);
    let mut kept = 0;
    for start in 0..4 {
        let shell = rig.first_task().0;
        let programs = rig.server.programs;
        let refused = loop {
            let actor = rig.actor_in(programs, UNLIMITED);
            let (base, _) = rig.call(actor, Call::ObjCreate, &[BYTES, 0]).unwrap();
            match rig.call(actor, Call::KeepObject, &[base]) {
                Ok(_) => kept += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Error::LimitReached);
        let (limits, most) = (rig.server.ledger.limits(programs), 7 * limits::PROGRAM_SLOTS);
        assert_eq!(limits[Resource::Kept as usize], most);
        let whole = (kept * BYTES, (kept + 1) * OBJECT_BYTES_MAX);
        assert!(
            whole.0 <= most * SLOT && most * SLOT < whole.1,
            "{kept} in start {start}"
        );
        let (base, _) = rig.call(shell, Call::ObjCreate, &[BYTES, 0]).unwrap();
        assert_eq!(rig.call(shell, Call::KeepObject, &[base]), Ok((0, 0)));
        // A kept object that grows holds more.
        let program = rig.actor_in(programs, UNLIMITED);
        let (small, _) = rig.call(program, Call::ObjCreate, &[SLOT / 2, 0]).unwrap();
        rig.call(program, Call::KeepObject, &[small]).unwrap();
        assert_eq!(
            rig.call(program, Call::ObjResize, &[small, BYTES / 2]),
            Err(Error::LimitReached)
        );
        rig.call(program, Call::ObjDelete, &[small]).unwrap();
        rig.checkpoint().unwrap();
        rig.check();
        (rig, _) = rig.crash();
    }
}

/// Programs pay for page tables and addresses that they have made for an object of the first task, and for callees of its procedures.
#[test]
fn programs_pay_for_what_they_do_with_objects_of_the_first_task() {
    let mut rig = Rig::new(84, 8000, 20_000);
    let shell = rig.first_task().0;
    let programs = rig.server.programs;
    let program = rig.actor_in(programs, UNLIMITED);
    let mut objects = [0; 2].map(|_| rig.call(shell, Call::ObjCreate, &[SLOTS * SLOT, 7]).unwrap().0);
    for (number, &base) in objects.iter().enumerate() {
        rig.call(shell, Call::KeepObject, &[base]).unwrap();
        rig.store(shell.space, base, number as u64).unwrap();
    }
    objects.sort_unstable();
    let (gap, _) = rig.call(shell, Call::ObjCreate, &[SLOTS * SLOT, 0]).unwrap();
    let payer = |rig: &Rig, base: u64| {
        let objects = &rig.server.objects;
        objects.get(objects.find(base).unwrap()).account
    };
    let list = rig.gets(program, &objects, 7);
    for base in objects {
        assert!(!rig.server.ledger.is_within(payer(&rig, base), programs));
    }
    // The objects that are there already are the first task's.
    assert!(rig.has(program, objects[0], Access::Read));
    assert!(!rig.server.ledger.is_within(payer(&rig, objects[0]), programs));
    assert!(rig.has(program, objects[0] + SLOT, Access::Read));
    assert_eq!(payer(&rig, objects[0]), programs);
    rig.call(shell, Call::ObjDelete, &[gap]).unwrap();
    rig.call(program, Call::ObjResize, &[objects[1], 2 * SLOTS * SLOT])
        .unwrap();
    assert_eq!(payer(&rig, objects[1]), programs);
    rig.check();
    // A procedure of the first task's.
    let service = rig.call(shell, Call::ObjCreate, &[PAGE, 0]).unwrap().0;
    rig.registers(shell, service, 9, 0);
    rig.write_clist(
        program.space,
        list,
        &[Capability {
            address: service,
            password: 9,
        }],
        Order::Any,
    );
    let callee = rig.enters(program, service, abi::layout::PD_EMPTY).unwrap();
    assert_eq!(rig.server.callees.object_of(callee), Some(service));
    assert_eq!(rig.server.domains.get(callee).unwrap().account, programs);
    rig.check();
}

/// A call that is refused for another reason than memory takes nothing back, and one for want of it only what counts to the account that lacks it.
#[test]
fn only_what_helps_is_taken_back() {
    let mut rig = Rig::new(85, 8000, 20_000);
    let [own, other] = [(); 2].map(|()| programs(&mut rig));
    let bases = [own, other].map(|account| {
        let actor = rig.actor_in(account, UNLIMITED);
        let (base, tables) = wide(&mut rig, actor, true);
        assert_eq!(tables, SLOTS);
        rig.ends(actor);
        base
    });
    let leaves = |rig: &Rig, base: u64| rig.server.objects.get(rig.server.objects.find(base).unwrap()).leaves;
    let program = rig.actor_in(own, UNLIMITED);
    assert_eq!(rig.call(program, Call::ObjCreate, &[1 << 46, 0]), Err(Error::NoMemory));
    rig.settle();
    assert_eq!(bases.map(|base| leaves(&rig, base)), [SLOTS; 2]);
    assert_eq!(wide(&mut rig, program, false).1, SLOTS);
    rig.settle();
    assert_eq!(bases.map(|base| leaves(&rig, base)), [0, SLOTS]);
    rig.check();
}

/// A page that the server reads for a call of a program counts as one that the program has touched.
#[test]
fn programs_pay_for_what_is_read_for_their_calls() {
    let mut rig = Rig::new(86, 8000, 20_000);
    let shell = rig.first_task().0;
    let (base, _) = rig.call(shell, Call::ObjCreate, &[SLOT, 7]).unwrap();
    rig.call(shell, Call::KeepObject, &[base]).unwrap();
    rig.store(shell.space, base, 1).unwrap();
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.first_task();
    let programs = rig.server.programs;
    let program = rig.actor_in(programs, UNLIMITED);
    rig.gets(program, &[base], 7);
    let (own, _) = rig.call(program, Call::ObjCreate, &[PAGE, 0]).unwrap();
    // The word at the beginning is no address in its own object.
    assert_eq!(
        rig.call(program, Call::ObjCrePdx, &[own, 3, 0, base, 1]),
        Err(Error::NotAnEntry)
    );
    let object = rig.server.objects.get(rig.server.objects.find(base).unwrap());
    assert_eq!((object.account, object.leaves), (programs, 1));
    rig.check();
    // The next start knows that.
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.first_task();
    let holder = rig.holder(base, 7);
    assert_eq!(rig.load(holder.space, base), Ok(1));
    let object = rig.server.objects.get(rig.server.objects.find(base).unwrap());
    assert_eq!(object.account, rig.server.programs);
    rig.check();
}
