//! Page tables, and what is known of slots, of kept objects that no program pays for: a cache, which keeps nothing from anybody (decision 0186).

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, Resource, UNLIMITED},
    protection::apd::Apd,
};

/// Slots that have their records together.
const CHUNK: u64 = 64;

/// A system whose account of programs has some more of this than it uses.
fn leave(rig: &mut Rig, programs: AccountId, resource: Resource, some: u64) {
    let mut limits = rig.server.ledger.limits(programs);
    limits[resource as usize] = rig.server.ledger.used(programs, resource) + some;
    rig.server.ledger.set_limits(programs, limits);
}

/// A program with the passwords of objects, which are all 9.
fn program(rig: &mut Rig, programs: AccountId, objects: &[u64]) -> Actor {
    let actor = rig.actor_in(programs, UNLIMITED);
    rig.gets(actor, objects, 9);
    actor
}

/// A start with so many frames and so much heap, in which a program and the first task have kept an object of so many slots each, and the next one; the account of all programs, and the objects.
fn later(seed: u64, frames: u32, slots: u64, heap: u64) -> (Rig, AccountId, [u64; 2]) {
    later_with(seed, frames, slots, heap)
}

/// The same, with some more objects of the first task.
fn later_with<const N: usize>(seed: u64, frames: u32, slots: u64, heap: u64) -> (Rig, AccountId, [u64; N]) {
    let mut rig = Rig::new(seed, frames, 60_000);
    // The first account is the first task's.
    let [of_first, of_program] = [(); 2].map(|()| rig.actor(Apd::EMPTY));
    let objects = core::array::from_fn(|number| {
        let owner = if number == 0 { of_program } else { of_first };
        rig.kept(owner, slots * SLOT / PAGE, 9)
    });
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.world.kernel.hardware.heap_left = heap;
    let (_, programs) = rig.first_task();
    (rig, programs, objects)
}

#[test]
fn page_tables_of_the_cache_leave_those_of_programs() {
    const TABLES: u64 = 160;
    for access in [Access::Read, Access::Write] {
        let (mut rig, programs, objects) = later(1, 8000, 150, 40 << 20);
        let actor = program(&mut rig, programs, &objects);
        leave(&mut rig, programs, Resource::Tables, TABLES);
        let most = rig.server.ledger.limit(programs, Resource::Tables) / 8;
        for base in objects {
            for slot in 0..150 {
                assert!(rig.has(actor, base + slot * SLOT, access), "{slot}");
                let leaves: u64 = objects
                    .iter()
                    .filter_map(|&base| rig.server.objects.find(base))
                    .map(|id| rig.server.objects.get(id).leaves)
                    .sum();
                assert!(leaves <= most, "{leaves} of {most}");
            }
        }
        rig.check();
        assert!(rig.server.ledger.left(programs, Resource::Tables) > TABLES / 2);
        // Others have it meanwhile, too, and find what was written.
        rig.checkpoint().unwrap();
        let other = program(&mut rig, programs, &objects);
        assert!((0..150).all(|slot| rig.has(other, objects[0] + slot * SLOT, Access::Read)));
        rig.check();
    }
}

#[test]
fn slots_of_the_cache_leave_heap_to_programs() {
    for access in [Access::Read, Access::Write] {
        let heap = 4 << 20;
        let (mut rig, programs, objects) = later(2, 16_000, 60 * CHUNK, heap);
        let actor = program(&mut rig, programs, &objects);
        let before = rig.server.ledger.left(programs, Resource::Bytes);
        for base in objects {
            for chunk in 0..60 {
                assert!(rig.has(actor, base + (1 + chunk * CHUNK) * SLOT, access), "{chunk}");
                let left = rig.server.ledger.left(programs, Resource::Bytes);
                assert!(left + heap / 6 > before, "{left} of {before}");
            }
        }
        rig.check();
    }
}

/// A program that has ended leaves nothing that is not taken back: neither what it has written in objects of others nor what it has kept itself.
#[test]
fn what_was_written_is_taken_back_when_it_is_clean() {
    let (mut rig, programs, [base, _]) = later(3, 16_000, 60 * CHUNK, 40 << 20);
    let blocks = rig.server.ledger.left(programs, Resource::Blocks);
    let actor = program(&mut rig, programs, &[base]);
    let own = rig.kept(actor, 60 * CHUNK * SLOT / PAGE, 9);
    for chunk in 0..60 {
        for base in [base, own] {
            assert!(rig.has(actor, base + (1 + chunk * CHUNK) * SLOT, Access::Write));
        }
    }
    rig.ends(actor);
    rig.checkpoint().unwrap();
    let paid = rig.server.ledger.used(programs, Resource::Blocks);
    assert!(paid > 0);
    rig.server.take_back(&mut rig.world);
    rig.server.ledger.empty_all_hands();
    let id = rig.server.objects.find(base).unwrap();
    let object = rig.server.objects.get(id);
    assert!(object.leaves == 0 && object.blocks == 0 && object.slots.get(1).is_none());
    assert_eq!(rig.server.ledger.used(programs, Resource::Blocks), 0);
    // The disk has no more than before, so programs may not take more of it.
    assert!(rig.server.ledger.left(programs, Resource::Blocks) <= blocks - 2 * 60);
    rig.check();
}

/// Objects that a program takes over from others by using them have been there before: they are charged to all programs whatever bounds these have. Rows and addresses of those of an earlier
/// start leave them as much as they had, for the bounds were made without them.
#[test]
fn what_is_taken_over_takes_nothing_from_programs() {
    let mut rig = Rig::new(4, 8000, 60_000);
    let before = rig.actor(Apd::EMPTY);
    let mut files: Vec<u64> = (0..100).map(|_| rig.kept(before, 1, 9)).collect();
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    rig.world.kernel.hardware.heap_left = 40 << 20;
    let (first, programs) = rig.first_task();
    for _ in 0..100 {
        let base = rig.kept(first, 3 * SLOT / PAGE, 9);
        rig.store(first.space, base + SLOT, 1).unwrap();
        files.push(base);
    }
    rig.checkpoint().unwrap();
    let actor = program(&mut rig, programs, &files);
    // Not one row, nor a block, more than there are.
    rig.server.ledger.empty_all_hands();
    let stays = [Resource::Rows, Resource::Kept, Resource::Blocks];
    for resource in stays {
        leave(&mut rig, programs, resource, 0);
    }
    let bytes = rig.server.ledger.left(programs, Resource::Bytes);
    for (number, &base) in files.iter().enumerate() {
        for slot in 0..if number < 100 { 1 } else { 3 } {
            assert!(rig.has(actor, base + slot * SLOT, Access::Read), "{slot} of {number}");
        }
    }
    assert_eq!(
        [Resource::Rows, Resource::Kept].map(|resource| rig.server.ledger.left(programs, resource)),
        [0, 0]
    );
    let left = rig.server.ledger.left(programs, Resource::Bytes);
    let active = files.iter().map(|&base| {
        let object = rig.server.objects.get(rig.server.objects.find(base).unwrap());
        assert_eq!(object.account, programs);
        object.bytes
    });
    // The domain of the program has noted them, and each stretch of addresses has a table.
    let active: u64 = active.sum();
    assert!(left + active + (64 << 10) > bytes, "{left} of {bytes}");
    rig.check();
}

/// Objects that the first task makes, a program uses, and somebody deletes move no bound.
#[test]
fn what_comes_and_goes_moves_no_bound() {
    let mut rig = Rig::new(16, 8000, 60_000);
    rig.world.kernel.hardware.heap_left = 40 << 20;
    let (first, programs) = rig.first_task();
    let bounds = [Resource::Bytes, Resource::Slots, Resource::Rows, Resource::Kept];
    let before = bounds.map(|resource| rig.server.ledger.limit(programs, resource));
    for _ in 0..20 {
        let base = rig.kept(first, 3 * SLOT / PAGE, 9);
        let actor = program(&mut rig, programs, &[base]);
        assert!(rig.has(actor, base + SLOT, Access::Write));
        rig.ends(actor);
        rig.call(first, Call::ObjDelete, &[base]).unwrap();
        rig.settle();
        assert_eq!(rig.server.objects.find(base), None);
    }
    let after = bounds.map(|resource| rig.server.ledger.limit(programs, resource));
    assert_eq!(before, after);
    rig.check();
}

/// A program that was refused leaves no note of it to others.
#[test]
fn a_refusal_is_for_the_one_who_asked() {
    const PAGES: u64 = 20;
    let (mut rig, programs, objects) = later(5, 8000, 3, 40 << 20);
    let has_all = |rig: &mut Rig, actor: Actor, access: Access| {
        (0..PAGES).all(|page| rig.has(actor, objects[0] + page * PAGE, access))
    };
    let writer = program(&mut rig, programs, &objects);
    assert!(has_all(&mut rig, writer, Access::Write));
    rig.ends(writer);
    rig.put_away();
    rig.server.take_back(&mut rig.world);
    let [greedy, other] = [(); 2].map(|()| program(&mut rig, programs, &objects));
    let (copy, _) = rig.call(greedy, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
    rig.store(greedy.space, copy, 1).unwrap();
    let tables = rig.server.ledger.limit(programs, Resource::Tables);
    rig.server.ledger.empty_all_hands();
    leave(&mut rig, programs, Resource::Tables, 0);
    // Further pages are read ahead.
    let copied = rig.call(greedy, Call::PageCopy, &[objects[0], copy, PAGES]);
    assert_eq!(copied, Err(Error::LimitReached));
    rig.settle();
    leave(&mut rig, programs, Resource::Tables, tables);
    assert!(has_all(&mut rig, other, Access::Read));
    rig.check();
}

/// Clean pages give way to the places of threads as to all else.
#[test]
fn threads_are_made_while_memory_is_full_of_clean_pages() {
    let (mut rig, programs, objects) = later(6, 4000, 20, 40 << 20);
    let actor = program(&mut rig, programs, &objects);
    for page in 0..9000 {
        assert!(rig.has(actor, objects[page % 2] + page as u64 / 2 * PAGE, Access::Write));
    }
    rig.checkpoint().unwrap();
    assert!(rig.world.kernel.frames().free() < 200);
    let mut least = u64::MAX;
    for number in 0..300 {
        let entry = objects[0];
        let made = rig.call(actor, Call::ThreadCreate, &[entry, 0, 3]);
        assert!(made.is_ok(), "{number}: {made:?}");
        least = least.min(rig.world.kernel.frames().free());
    }
    assert!(least > 40, "{least} frames were free");
    rig.check();
}

/// However many ask, so many pages are on their way from the disk and no more, and all come.
#[test]
fn reads_under_way_have_a_bound() {
    const PAGES: u64 = 1500;
    let (mut rig, programs, objects) = later(7, 8000, 4, 40 << 20);
    let actor = program(&mut rig, programs, &objects);
    let pages: Vec<u64> = (0..PAGES).map(|page| objects[0] + page * PAGE).collect();
    for &address in &pages {
        assert!(rig.has(actor, address, Access::Write));
    }
    rig.put_away();
    let (thread, access) = (actor.thread, Access::Read);
    let mut most = 0;
    for &address in &pages {
        while rig.server.handle(
            &mut rig.world,
            Event::Fault {
                thread,
                address,
                access,
            },
        ) == Outcome::Resume
        {}
        most = most.max(rig.server.pager.reads());
    }
    assert!((200..=256).contains(&most), "{most}");
    for &address in &pages {
        assert!(rig.has(actor, address, Access::Read));
    }
    rig.check();
}

/// Neither copies of its pages nor those who use it hold a page table in the cache.
#[test]
fn nobody_holds_what_is_in_the_cache() {
    const TABLES: u64 = 160;
    let (mut rig, programs, objects) = later(8, 8000, 60, 40 << 20);
    let base = objects[0];
    let users: Vec<Actor> = (0..9).map(|_| program(&mut rig, programs, &objects)).collect();
    let (copy, _) = rig.call(users[0], Call::ObjCreate, &[60 * PAGE, 0]).unwrap();
    leave(&mut rig, programs, Resource::Tables, TABLES);
    for slot in 0..60 {
        assert!(rig.has(users[1], base + slot * SLOT, Access::Write));
        rig.store(users[1].space, base + slot * SLOT, slot).unwrap();
    }
    rig.checkpoint().unwrap();
    for slot in 0..60 {
        let copied = rig.call(users[0], Call::PageCopy, &[base + slot * SLOT, copy + slot * PAGE, 1]);
        assert!(copied.is_ok(), "{slot}: {copied:?}");
        for &user in &users[2..] {
            assert!(rig.has(user, base + slot * SLOT, Access::Read), "{slot}");
        }
    }
    let id = rig.server.objects.find(base).unwrap();
    let most = rig.server.ledger.limit(programs, Resource::Tables) / 8;
    assert!(rig.server.objects.get(id).leaves <= most);
    assert!((0..60).all(|slot| rig.load(users[0].space, copy + slot * PAGE) == Ok(slot)));
    rig.check();
}

/// Map nodes of the store take heap that nobody pays for: they go when nothing else helps.
#[test]
fn map_nodes_go_where_heap_is_short() {
    let (mut rig, programs, objects) = later(9, 8000, 3000, 40 << 20);
    let actor = program(&mut rig, programs, &objects);
    for page in 0..300 {
        assert!(rig.has(actor, objects[0] + page * 10 * SLOT, Access::Write));
    }
    rig.ends(actor);
    rig.put_away();
    rig.generation().unwrap();
    rig.server.take_back(&mut rig.world);
    assert!(rig.server.store.stats().map_nodes > 300);
    rig.world.kernel.hardware.heap_left = 1 << 20;
    // First the object comes to rest; that is not enough.
    rig.server.take_back(&mut rig.world);
    rig.server.take_back(&mut rig.world);
    assert_eq!(rig.server.store.stats().map_nodes, 0);
    rig.check();
}

/// A call that needs more than the cache of the smallest machine gets it.
#[test]
fn the_longest_copy_is_done_in_a_small_cache() {
    let (mut rig, programs, objects) = later(10, 8000, 127, 40 << 20);
    let actor = program(&mut rig, programs, &objects);
    leave(&mut rig, programs, Resource::Tables, 1700);
    for slot in 0..127 {
        assert!(rig.has(actor, objects[0] + slot * SLOT, Access::Write));
    }
    rig.checkpoint().unwrap();
    // A page in each slot.
    let pages = 127 * SLOT / PAGE;
    rig.call(actor, Call::PageCopy, &[objects[0], objects[1], pages])
        .unwrap();
    rig.check();
}

/// From one checkpoint to the next, programs make a quarter of the cache dirty at most: the rest can be taken back for others.
#[test]
fn a_part_of_the_cache_may_be_dirty() {
    const HEAP: u64 = 8 << 20;
    for (slots, step) in [(60 * CHUNK, CHUNK), (1000, 1)] {
        let (mut rig, programs, objects) = later(11, 16_000, slots, HEAP);
        let actor = program(&mut rig, programs, &objects);
        let tables = rig.server.ledger.limit(programs, Resource::Tables) / 8;
        let (thread, access) = (actor.thread, Access::Write);
        let mut written = 0;
        for slot in (1..slots).step_by(step as usize) {
            let address = objects[0] + slot * SLOT;
            match rig.server.handle(
                &mut rig.world,
                Event::Fault {
                    thread,
                    address,
                    access,
                },
            ) {
                Outcome::Resume => written += 1,
                _ => break,
            }
        }
        // Of so much heap some 60 chunks of records are an eighth.
        let most = if step == 1 { tables / 4 } else { 20 };
        assert!(written > 3 && written <= most + 1, "{written} of {most}");
        rig.check();
    }
}

/// Rewriting pages takes nothing of the disk, however often they are written and taken back.
#[test]
fn blocks_of_all_programs_follow_the_disk() {
    let (mut rig, programs, [base, _]) = later(12, 16_000, 60 * CHUNK, 40 << 20);
    let actor = program(&mut rig, programs, &[base]);
    let mut left = Vec::new();
    for _ in 0..20 {
        for chunk in 0..60 {
            assert!(rig.has(actor, base + (1 + chunk * CHUNK) * SLOT, Access::Write));
        }
        for _ in 0..3 {
            rig.checkpoint().unwrap();
        }
        rig.settle();
        rig.server.take_back(&mut rig.world);
        left.push(rig.server.ledger.left(programs, Resource::Blocks));
    }
    assert!(left[1] <= left[19] + 60, "{left:?}");
    // Where it is reached it is made anew from what the disk has.
    leave(&mut rig, programs, Resource::Blocks, 0);
    for chunk in 0..40 {
        assert!(rig.has(actor, base + (2 + chunk * CHUNK) * SLOT, Access::Write));
    }
    assert!(rig.server.ledger.left(programs, Resource::Blocks) > 1000);
    rig.check();
}

/// A parent pays for what its child has kept, as long as it lives.
#[test]
fn a_program_pays_for_what_its_children_have_kept() {
    let (mut rig, programs, _) = later(13, 8000, 1, 40 << 20);
    let parent = rig.actor_in(programs, UNLIMITED);
    let account = rig.server.tasks.get(parent.task).unwrap().account;
    let child = rig.actor_in(account, UNLIMITED);
    let base = rig.kept(child, 3 * SLOT / PAGE, 9);
    rig.ends(child);
    let payer = |rig: &Rig| rig.server.objects.get(rig.server.objects.find(base).unwrap()).account;
    let other = program(&mut rig, programs, &[base]);
    assert!(rig.has(other, base, Access::Write));
    assert_eq!(rig.server.ledger.parent(payer(&rig)), account);
    rig.ends(parent);
    assert!(rig.has(other, base + SLOT, Access::Write));
    assert_eq!(payer(&rig), programs);
    rig.check();
}

/// One that uses more than the cache gives way itself: others keep what little they have.
#[test]
fn who_has_most_of_the_cache_gives_way() {
    let (mut rig, programs, objects) = later(14, 8000, 500, 40 << 20);
    leave(&mut rig, programs, Resource::Tables, 400);
    let modest = program(&mut rig, programs, &objects[..1]);
    let greedy = program(&mut rig, programs, &objects[1..]);
    for slot in 0..3 {
        assert!(rig.has(modest, objects[0] + slot * SLOT, Access::Read));
    }
    for slot in 0..500 {
        assert!(rig.has(greedy, objects[1] + slot * SLOT, Access::Read));
        let id = rig.server.objects.find(objects[0]).unwrap();
        assert_eq!(rig.server.objects.get(id).leaves, 3, "{slot}");
    }
    rig.check();
    // What a program had is nobody's when it has ended.
    rig.ends(greedy);
    rig.check();
    rig.server.take_back(&mut rig.world);
    rig.ends(modest);
    rig.server.take_back(&mut rig.world);
    rig.check();
}

/// Several that use more than the cache take it from each other, though each of them fills it while another one has it taken back.
#[test]
fn several_who_have_most_of_the_cache_give_way() {
    const SLOTS: u64 = 170;
    let (mut rig, programs, objects) = later_with::<4>(15, 8000, SLOTS, 40 << 20);
    leave(&mut rig, programs, Resource::Tables, 400);
    let actors = objects.map(|base| program(&mut rig, programs, &[base]));
    for slot in 0..3 {
        assert!(rig.has(actors[0], objects[0] + slot * SLOT, Access::Read));
    }
    let mut touched = [0; 4];
    for turn in 0..30_000 {
        let who = 1 + turn % 3;
        let address = objects[who] + touched[who] % SLOTS * SLOT;
        match rig.touches(actors[who], address, Access::Read) {
            Some(true) => touched[who] += 1,
            Some(false) => panic!("{who} is refused at {touched:?}"),
            None => {}
        }
        let id = rig.server.objects.find(objects[0]).unwrap();
        assert_eq!(rig.server.objects.get(id).leaves, 3, "{touched:?}");
    }
    assert!(touched[1..].iter().all(|&touched| touched > 3 * SLOTS), "{touched:?}");
    rig.check();
}

/// Nothing may be left of a program whose part of the cache was taken back: its account goes with the last of it, and taking back goes on with others.
#[test]
fn who_had_most_of_the_cache_may_be_gone() {
    let (mut rig, programs, objects) = later_with::<60>(16, 8000, 2, 4 << 20);
    let others = objects.map(|base| program(&mut rig, programs, &[base]));
    let first = program(&mut rig, programs, &objects[..1]);
    leave(&mut rig, programs, Resource::Tables, 100);
    let accounts = rig.server.ledger.count();
    let has = |rig: &mut Rig, actor, base| [0, SLOT].map(|at| assert!(rig.has(actor, base + at, Access::Read)));
    has(&mut rig, first, objects[0]);
    // Another one uses it, too, so it stays when the program ends.
    has(&mut rig, others[0], objects[0]);
    rig.ends(first);
    assert_eq!(rig.server.ledger.count(), accounts);
    for (other, base) in others.into_iter().zip(objects).skip(1) {
        has(&mut rig, other, base);
    }
    assert_eq!(rig.server.ledger.count(), accounts - 1);
    rig.check();
}

/// All programs pay for each kind of change that a program makes to an object of others: nothing else bounds it.
#[test]
fn whatever_a_program_changes_is_paid_by_programs() {
    let writes = |rig: &mut Rig, actor, base| rig.has(actor, base + 7 * PAGE, Access::Write);
    let limits = |rig: &mut Rig, actor, base| rig.call(actor, Call::PageLimit, &[base + 9 * PAGE, 1, 4]).is_ok();
    let registers = |rig: &mut Rig, actor, base| rig.call(actor, Call::ObjCrePdx, &[base, 5, 0, base, 1]).is_ok();
    let changes: [fn(&mut Rig, Actor, u64) -> bool; 3] = [writes, limits, registers];
    for (way, change) in changes.into_iter().enumerate() {
        let (mut rig, programs, [_, base]) = later(17, 8000, 1, 40 << 20);
        // Somebody else has it in memory already.
        let other = rig.actor(Apd::EMPTY);
        rig.gets(other, &[base], 9);
        rig.store(other.space, base, base).unwrap();
        let payer = |rig: &Rig| rig.server.objects.get(rig.server.objects.find(base).unwrap()).account;
        let actor = program(&mut rig, programs, &[base]);
        assert!(rig.has(actor, base, Access::Read));
        assert_ne!(payer(&rig), programs);
        assert!(change(&mut rig, actor, base), "{way}");
        assert_eq!(payer(&rig), programs, "{way}");
        rig.check();
    }
}

/// Limits of pages that a clone finds out are kept with the source for the next one, as long as nobody lacks the heap for it.
#[test]
fn limits_that_were_found_out_are_taken_back() {
    let (mut rig, programs, [_, base]) = later(18, 8000, 1, 40 << 20);
    let actor = program(&mut rig, programs, &[base]);
    for page in [3, 9, 30] {
        let limit = [base + page * PAGE, 1, Rights::R.bits().into()];
        rig.call(actor, Call::PageLimit, &limit).unwrap();
    }
    let clone = |rig: &mut Rig| rig.call(actor, Call::ObjClone, &[base, PAGE, 0]).unwrap().0;
    let found = |rig: &Rig| {
        rig.server
            .objects
            .get(rig.server.objects.find(base).unwrap())
            .limit_bytes
    };
    for _ in 0..2 {
        let cloned = clone(&mut rig);
        assert!(found(&rig) > 0);
        assert!(rig.store(actor.space, cloned + 9 * PAGE, 1).is_err());
        assert!(rig.store(actor.space, cloned + 10 * PAGE, 1).is_ok());
        rig.call(actor, Call::ApdFlush, &[]).unwrap();
        rig.server.take_back(&mut rig.world);
        assert_eq!(found(&rig), 0);
        assert!(rig.store(actor.space, base + 9 * PAGE, 1).is_err());
        rig.check();
    }
}

/// A clone of more than the cache holds is made: what its source loses meanwhile it has already.
#[test]
fn a_clone_of_more_than_the_cache_is_made() {
    let (mut rig, programs, [base, _]) = later(19, 8000, 127, 40 << 20);
    let actor = program(&mut rig, programs, &[base]);
    leave(&mut rig, programs, Resource::Tables, 400);
    for slot in 0..127 {
        assert!(rig.has(actor, base + slot * SLOT, Access::Write));
        rig.store(actor.space, base + slot * SLOT, slot + 1).unwrap();
    }
    rig.checkpoint().unwrap();
    let (clone, _) = rig.call(actor, Call::ObjClone, &[base, PAGE, 0]).unwrap();
    assert!((0..127).all(|slot| rig.load(actor.space, clone + slot * SLOT) == Ok(slot + 1)));
    rig.check();
    // One that has no room for its own page tables fails, and leaves nothing.
    leave(&mut rig, programs, Resource::Tables, 60);
    let before = rig.server.objects.iter().count();
    assert_eq!(
        rig.call(actor, Call::ObjClone, &[base, PAGE, 0]),
        Err(Error::LimitReached)
    );
    rig.settle();
    assert_eq!(rig.server.objects.iter().count(), before);
    rig.check();
}
