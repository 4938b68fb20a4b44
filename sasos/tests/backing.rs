//! Transient memory is paged: objects of those who lack frames are backed by the disk, and are as transient as before.

mod common;

use abi::{
    Call, Error,
    address::PAGE,
    layout::{EXCEPTION_KILL, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::{Frame, Hardware, Machine, ThreadId};
use sasos::{
    Access,
    accounts::{AccountId, Resource, limits},
    protection::apd::Apd,
};
use sim::machine::Touch;
use store::Look;

const PASSWORD: u64 = 77;
/// Frames that an account may take.
const FRAMES: u64 = 600;
/// Pages of an object of four times as many.
const PAGES: u64 = 4 * FRAMES;

/// A task that may take few frames.
fn small(rig: &mut Rig) -> Actor {
    rig.actor_in(AccountId::ROOT, limits::of_frames(FRAMES))
}

fn made(rig: &mut Rig, actor: Actor, pages: u64) -> u64 {
    rig.call(actor, Call::ObjCreate, &[pages * PAGE, PASSWORD])
        .expect("an object")
        .0
}

/// A program's store to an address; false if it has an exception instead, which ends it here.
fn writes(rig: &mut Rig, actor: Actor, address: u64, value: u64) -> bool {
    rig.has(actor, address, Access::Write) && {
        let frame = rig
            .world
            .kernel
            .hardware
            .translate(address, Touch::Write)
            .expect("it has it");
        rig.world.kernel.hardware.write(frame, 0, &value.to_le_bytes());
        true
    }
}

fn reads(rig: &mut Rig, actor: Actor, address: u64) -> u64 {
    assert!(rig.has(actor, address, Access::Read), "{address:#x} is read");
    let frame = rig
        .world
        .kernel
        .hardware
        .translate(address, Touch::Read)
        .expect("it has it");
    let mut bytes = [0; 8];
    rig.world.kernel.hardware.read(frame, 0, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn fill(rig: &mut Rig, actor: Actor, base: u64, pages: u64) {
    for page in 0..pages {
        assert!(writes(rig, actor, base + page * PAGE, page + 1), "page {page}");
    }
}

#[test]
fn an_object_is_larger_than_what_its_account_may_have_in_memory() {
    for frames in [8000, 1500] {
        let mut rig = Rig::new(1, frames, 20_000);
        let actor = small(&mut rig);
        let base = made(&mut rig, actor, PAGES);
        fill(&mut rig, actor, base, PAGES);
        rig.check();
        for page in (0..PAGES).rev() {
            assert_eq!(reads(&mut rig, actor, base + page * PAGE), page + 1);
        }
        rig.check();
        let id = rig.server.objects.find(base).expect("it lives");
        assert!(rig.server.is_owned(id), "it ends with its task");
        rig.ends(actor);
        rig.rests();
        assert_eq!(rig.server.store.object(base), None);
        assert!(!rig.lives(actor));
    }
}

/// To a program nothing has changed.
#[test]
fn a_backed_object_is_a_transient_one_to_programs() {
    let mut rig = Rig::new(2, 8000, 20_000);
    let actor = small(&mut rig);
    let base = made(&mut rig, actor, PAGES);
    fill(&mut rig, actor, base, FRAMES + 100);
    assert!(rig.server.store.object(base).is_some(), "it is backed");
    assert_eq!(rig.call(actor, Call::PageFlush, &[base, 1]), Err(Error::NotPersistent));
    let id = rig.server.objects.find(base).expect("it lives");
    assert_eq!(rig.server.object_info(id, actor.space).flags, 0);
    rig.call(actor, Call::ObjResize, &[base, (PAGES + 50) * PAGE])
        .expect("it grows");
    assert!(writes(&mut rig, actor, base + (PAGES + 20) * PAGE, 5));
    // A clone has all its pages in memory at first.
    rig.call(actor, Call::ObjResize, &[base, FRAMES / 2 * PAGE])
        .expect("it shrinks");
    let (clone, _) = rig.call(actor, Call::ObjClone, &[base, 0, 0]).expect("a clone");
    assert_eq!(reads(&mut rig, actor, clone + 7 * PAGE), 8);
    rig.check();
    rig.call(actor, Call::ObjDelete, &[base]).expect("it is deleted");
    rig.rests();
    assert_eq!(rig.server.store.object(base), None);
    assert_eq!(reads(&mut rig, actor, clone + 9 * PAGE), 10);
}

#[test]
fn it_goes_with_the_next_start_unless_it_was_kept() {
    for is_kept in [false, true] {
        for parts in [false, true] {
            let mut rig = Rig::new(3, 8000, 20_000);
            let actor = small(&mut rig);
            let base = made(&mut rig, actor, PAGES);
            fill(&mut rig, actor, base, FRAMES + 100);
            assert!(rig.server.store.object(base).is_some(), "it is backed");
            if is_kept {
                rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
                rig.check();
            }
            rig.generation().expect("a checkpoint");
            let (mut rig, _) = if parts { rig.crash_in_parts() } else { rig.crash() };
            assert_eq!(rig.server.store.object(base).is_some(), is_kept);
            if is_kept {
                let user = rig.holder(base, PASSWORD);
                assert_eq!(rig.load(user.space, base + 99 * PAGE), Ok(100));
            }
            rig.rests();
            let (rig, _) = rig.crash();
            assert_eq!(rig.server.store.object(base).is_some(), is_kept);
        }
    }
}

/// Where the disk has no room, or the account no blocks, the program gets its exception, and its memory is as it was.
#[test]
fn without_room_on_the_disk_a_program_is_refused_as_before() {
    for (blocks, disk) in [(100, 20_000), (u64::MAX, 500)] {
        let mut rig = Rig::new(4, 8000, disk);
        let mut amounts = limits::of_frames(FRAMES);
        amounts[Resource::Blocks as usize] = blocks;
        let actor = rig.actor_in(AccountId::ROOT, amounts);
        let base = made(&mut rig, actor, PAGES);
        let mut page = 0;
        while writes(&mut rig, actor, base + page * PAGE, page + 1) {
            page += 1;
            assert!(page <= FRAMES, "{blocks} blocks of {disk}");
        }
        assert!(page > FRAMES / 2);
        rig.rests();
    }
}

/// A thread that is ended in the middle leaves a transient object.
#[test]
fn a_thread_that_ends_in_the_middle_leaves_the_object_whole() {
    for events in [1, 2, 4, 8] {
        let mut rig = Rig::new(5, 8000, 20_000);
        let actor = small(&mut rig);
        let base = made(&mut rig, actor, PAGES);
        let mut page = 0;
        let other = rig.sibling(actor);
        // As many as it has frames for.
        while rig.server.ledger.left(
            rig.server.tasks.get(actor.task).expect("it lives").account,
            Resource::Frames,
        ) > 0
        {
            assert!(writes(&mut rig, actor, base + page * PAGE, page + 1));
            page += 1;
        }
        for _ in 0..events {
            let _ = rig.touches(other, base + page * PAGE, Access::Write);
        }
        rig.call(actor, Call::ThreadDelete, &[other.thread.0, 0])
            .expect("it ends");
        rig.check();
        fill(&mut rig, actor, base, PAGES);
        rig.check();
        rig.server.task_kill(actor.task, EXCEPTION_KILL);
        rig.rests();
        assert_eq!(rig.server.store.object(base), None);
    }
}

/// Pages that are on their way to the disk when the task ends have their frames until the checkpoint is over, and the nodes of its map until the next one; nothing stays for good.
#[test]
fn the_end_of_a_task_gives_all_frames_back() {
    const MOST: u64 = 2000;
    let mut rig = Rig::new(6, 4000, 20_000);
    rig.rests();
    let before = rig.world.frames_free();
    for round in 0..6 {
        let actor = rig.actor_in(AccountId::ROOT, limits::of_frames(MOST));
        let base = made(&mut rig, actor, 2 * MOST);
        fill(&mut rig, actor, base, 2 * MOST - 300 * round);
        rig.ends(actor);
        for _ in 0..2 {
            rig.checkpoint().expect("the disk works");
        }
        rig.check();
        let after = rig.world.frames_free();
        assert!(after + 4 > before, "{before} frames were free, and {after} are");
    }
}

/// A bound that a program has set is one of all that the task makes: the disk takes nothing of it, nor of those below it, whatever else may be backed.
#[test]
fn nothing_is_backed_where_a_program_has_bounded_the_memory() {
    let mut rig = Rig::new(7, 8000, 20_000);
    let bounded = small(&mut rig);
    let account = rig.server.tasks.get(bounded.task).expect("it lives").account;
    rig.server.ledger.bound_memory(account);
    let below = rig.actor_in(account, limits::of_frames(FRAMES / 2));
    for actor in [below, bounded] {
        let base = made(&mut rig, actor, PAGES);
        let mut page = 0;
        while writes(&mut rig, actor, base + page * PAGE, page + 1) {
            page += 1;
        }
        assert!(page <= FRAMES, "{page} pages");
        rig.rests();
    }
    let free = small(&mut rig);
    let base = made(&mut rig, free, PAGES);
    fill(&mut rig, free, base, PAGES);
}

/// The object that a task begins in goes over to it, backed as it is.
#[test]
fn a_backed_object_goes_over_to_the_task_that_begins_in_it() {
    let mut rig = Rig::new(8, 8000, 20_000);
    let actor = small(&mut rig);
    let base = made(&mut rig, actor, PAGES);
    fill(&mut rig, actor, base, FRAMES + 100);
    assert!(rig.server.store.object(base).is_some(), "it is backed");
    let (thread, _) = rig.call(actor, Call::TaskCreate, &[base, 0, 0, 0, 3]).expect("a task");
    rig.check();
    let thread = ThreadId(thread);
    let child = Actor {
        task: rig.server.threads.find(thread).expect("it lives").task,
        thread,
        space: rig.world.thread_space(thread),
    };
    for page in 0..FRAMES + 100 {
        assert_eq!(reads(&mut rig, child, base + page * PAGE), page + 1);
    }
    rig.check();
    rig.ends(child);
    rig.rests();
    assert_eq!(rig.server.store.object(base), None);
    assert!(rig.lives(actor));
}

/// An instruction that needs pages of two backed objects, where the account has a frame for the page table of one only, and all others of it are in another object that is not
/// backed: each fault is helped by what the other one got, so that object is backed in the end.
#[test]
fn an_instruction_gets_all_its_pages_though_each_fault_is_helped_by_those_of_the_other() {
    let mut rig = Rig::new(9, 8000, 20_000);
    let actor = small(&mut rig);
    let account = rig.server.tasks.get(actor.task).expect("it lives").account;
    let left = |rig: &Rig| rig.server.ledger.left(account, Resource::Frames);
    let most = made(&mut rig, actor, PAGES);
    let mut filled = 0;
    let mut fill_until = |rig: &mut Rig, frames: u64| {
        while left(rig) > frames {
            assert!(writes(rig, actor, most + filled * PAGE, filled + 1));
            filled += 1;
        }
    };
    // Two that are backed where they lack a frame themselves.
    let pair = [0, 1].map(|_| {
        let base = made(&mut rig, actor, 40);
        fill_until(&mut rig, 30);
        fill(&mut rig, actor, base, 40);
        assert!(rig.server.store.object(base).is_some(), "it is backed");
        base
    });
    rig.checkpoint().expect("the disk works");
    rig.settle();
    fill_until(&mut rig, 0);
    // The next page takes the tables of both away. Then one frame is free.
    assert!(writes(&mut rig, actor, most + filled * PAGE, filled + 1));
    assert!(rig.server.store.object(most).is_none(), "it is not backed");
    for page in left(&rig)..1 {
        rig.call(actor, Call::PageUnMap, &[most + page * PAGE, 1, UNMAP_ZERO])
            .expect("a page goes");
    }
    assert_eq!(left(&rig), 1);
    assert!(gets_all(&mut rig, actor, &pair));
    fill(&mut rig, actor, most, PAGES);
    rig.check();
}

/// Takes the machine's frames but for some, and the store gives up what it can do without.
fn take_all_but(rig: &mut Rig, left: u64) -> Vec<Frame> {
    while rig.server.store.shrink(&mut rig.world) != Look::Over {}
    let mut taken = Vec::new();
    while rig.world.frames_free() > left {
        taken.push(rig.world.frame_any().expect("a frame"));
    }
    taken
}

/// Whether a program that needs some pages at once gets them; false if it is refused.
fn gets_all(rig: &mut Rig, actor: Actor, pages: &[u64]) -> bool {
    for _ in 0..10_000 {
        rig.world.kernel.enter_space(actor.space);
        let lacks = |page: &&u64| rig.world.kernel.hardware.translate(**page, Touch::Read).is_err();
        let Some(&page) = pages.iter().find(lacks) else {
            return true;
        };
        if rig.touches(actor, page, Access::Read) == Some(false) {
            return false;
        }
    }
    panic!("it makes no progress");
}

/// Three pages of a kept object, and two frames for them. All others are dirty: a checkpoint makes room, and then the three stay.
#[test]
fn an_instruction_waits_for_a_checkpoint_where_its_reads_take_each_others_frame() {
    let mut rig = Rig::new(12, 2500, 20_000);
    let actor = rig.actor(Apd::EMPTY);
    let [base, dirty] = [40, 500].map(|pages| {
        let base = made(&mut rig, actor, pages);
        rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
        base
    });
    fill(&mut rig, actor, base, 40);
    rig.put_away();
    assert_eq!(reads(&mut rig, actor, base + 20 * PAGE), 21, "its page table is there");
    fill(&mut rig, actor, dirty, 500);
    let taken = take_all_but(&mut rig, 65);
    assert!(gets_all(&mut rig, actor, &[base, base + PAGE, base + 20 * PAGE]));
    for frame in taken {
        rig.world.frame_release(frame);
    }
    rig.check();
}

/// Two pages of a kept object, and the machine has a frame for one only.
#[test]
fn an_instruction_whose_reads_take_each_others_frame_is_refused() {
    let mut rig = Rig::new(11, 8000, 20_000);
    let actor = rig.actor_in(AccountId::ROOT, limits::of_frames(FRAMES));
    let base = made(&mut rig, actor, 40);
    rig.call(actor, Call::KeepObject, &[base]).expect("it is kept");
    fill(&mut rig, actor, base, 40);
    rig.checkpoint().expect("the disk works");
    rig.settle();
    rig.put_away();
    assert_eq!(reads(&mut rig, actor, base + 20 * PAGE), 21, "its page table is there");
    let taken = take_all_but(&mut rig, 64);
    assert!(!gets_all(&mut rig, actor, &[base, base + PAGE]));
    for frame in taken {
        rig.world.frame_release(frame);
    }
    rig.check();
}
