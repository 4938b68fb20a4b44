//! Kept objects that nobody uses: what they have in memory is charged to the account that it is for, and comes back when somebody lacks it.

mod common;

use abi::{
    Call,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, Resource, UNLIMITED},
};
use sim::machine::Touch;

/// Slots of the objects here, which lie in several chunks of records.
const SLOTS: u64 = 150;
/// Page tables that their programs may have: enough for one of them.
const TABLES: u64 = 200;

/// The account of programs, which may have so many page tables.
fn programs(rig: &mut Rig) -> AccountId {
    let mut limits = UNLIMITED;
    limits[Resource::Tables as usize] = TABLES;
    rig.server.ledger.open(AccountId::ROOT, limits).unwrap()
}

/// Has a thread fault until it has a page; false if it ends for it.
fn fault(rig: &mut Rig, actor: Actor, address: u64, access: Access) -> bool {
    loop {
        rig.world.kernel.enter_space(actor.space);
        let touch = if access == Access::Read {
            Touch::Read
        } else {
            Touch::Write
        };
        if rig.world.kernel.hardware.translate(address, touch).is_ok() {
            return true;
        }
        let event = Event::Fault {
            thread: actor.thread,
            address,
            access,
        };
        match rig.server.handle(&mut rig.world, event) {
            Outcome::Resume => {}
            Outcome::Block(..) => rig.move_disk(),
            Outcome::Gone => return false,
            other => panic!("{other:?}"),
        }
    }
}

/// An object with a page table in each slot, and how many of them its program could get.
fn wide(rig: &mut Rig, actor: Actor, is_kept: bool) -> (u64, u64) {
    let (base, _) = rig.call(actor, Call::ObjCreate, &[SLOTS * SLOT, 7]).unwrap();
    if is_kept {
        rig.call(actor, Call::KeepObject, &[base]).unwrap();
        rig.checkpoint().unwrap();
    }
    let has = |slot: &u64| fault(rig, actor, base + slot * SLOT, Access::Read);
    (base, (0..SLOTS).take_while(has).count() as u64)
}

fn ends(rig: &mut Rig, actor: Actor) {
    rig.server.task_kill(actor.task, 1);
    rig.server.finish_ends(&mut rig.world);
    rig.settle();
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
            assert!(fault(&mut rig, first, charged, Access::Write));
            rig.checkpoint().unwrap();
        }
        ends(&mut rig, first);
        let id = rig.server.objects.find(base).unwrap();
        assert_eq!(rig.server.objects.get(id).leaves, SLOTS);
        let next = rig.actor_in(programs, UNLIMITED);
        assert_eq!(wide(&mut rig, next, false).1, SLOTS, "{writes}");
        rig.settle();
        let object = rig.server.objects.get(id);
        assert_eq!(
            (object.leaves, object.resident, object.blocks),
            (0, 0, u64::from(writes))
        );
        assert!(object.slots.get(1).is_none());
        assert_eq!(object.slots.get(100).is_some(), writes);
        rig.check();
        // It is there as it was when it is needed again.
        ends(&mut rig, next);
        let holder = rig.holder(base, 7);
        assert_eq!(rig.load(holder.space, charged), Ok(0));
        rig.check();
    }
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
    let first = rig.server.ledger.open(AccountId::ROOT, UNLIMITED).unwrap();
    rig.server.open_programs(&mut rig.world, first).unwrap();
    let programs = rig.server.programs;
    rig.check();
    for (base, pays) in kept.into_iter().zip([false, true]) {
        let holder = rig.holder(base, 7);
        rig.server.ledger.empty_all_hands();
        let before = rig.server.ledger.used(programs, Resource::Tables);
        for slot in 0..SLOTS {
            assert!(fault(&mut rig, holder, base + slot * SLOT, Access::Read));
        }
        rig.server.ledger.empty_all_hands();
        let more = rig.server.ledger.used(programs, Resource::Tables) - before;
        assert_eq!(more, if pays { SLOTS } else { 0 });
        let rows = rig.server.ledger.used(programs, Resource::Rows);
        assert!(rows > 0 && rows < rig.server.ledger.used(AccountId::ROOT, Resource::Rows));
        rig.check();
    }
}
