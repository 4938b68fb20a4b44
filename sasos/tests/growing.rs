//! The disk changes its size while the system runs, and somebody asks for what is new.

mod common;

use abi::{
    Call, Error,
    address::{PAGE, ROOT_DIRECTORY},
    layout::{CONTROL_DISK, StoreReport},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{accounts::Resource, lives::work::PIECE, protection::apd::Apd};
use store::{BLOCKS_MAX, ObjectRecord};

const BLOCKS: u64 = 1200;
const MORE: u64 = 40_000;
const PAGES: u64 = 100;
const PASSWORD: u64 = 77;

/// A machine with a first task, one that has the right on the system, and one without.
fn rig() -> (Rig, Actor, Actor) {
    let mut rig = Rig::new(9, 4000, BLOCKS);
    let record = ObjectRecord {
        base: ROOT_DIRECTORY,
        pages: 1,
        capabilities: vec![(PASSWORD, 15)],
        ..ObjectRecord::default()
    };
    rig.server.store.put_object(record).unwrap();
    rig.checkpoint().unwrap();
    begin(rig.crash().0)
}

fn begin(mut rig: Rig) -> (Rig, Actor, Actor) {
    rig.first_task();
    let stranger = rig.actor(Apd::EMPTY);
    let first = rig.holder(ROOT_DIRECTORY, PASSWORD);
    (rig, first, stranger)
}

fn report(rig: &Rig) -> StoreReport {
    rig.server.store_report()
}

fn sizes(rig: &Rig) -> (u64, u64) {
    (report(rig).blocks, report(rig).disk_blocks)
}

fn ask(rig: &mut Rig, actor: Actor, argument: u64) -> Result<(u64, u64), Error> {
    rig.call(actor, Call::SystemControl, &[CONTROL_DISK, argument])
}

/// An object with a word in each of its pages.
fn write(rig: &mut Rig, actor: Actor, word: u64) -> u64 {
    let base = rig.kept(actor, PAGES, 5);
    for page in 0..PAGES {
        rig.store(actor.space, base + page * PAGE, word).unwrap();
    }
    base
}

#[test]
fn what_is_new_is_taken_when_somebody_asks() {
    let (mut rig, first, stranger) = rig();
    let base = write(&mut rig, first, 7);
    assert_eq!(sizes(&rig), (BLOCKS, BLOCKS));
    rig.world.disk.set_blocks(BLOCKS + MORE);
    rig.checkpoint().unwrap();
    assert_eq!(sizes(&rig), (BLOCKS, BLOCKS), "nobody has asked");
    assert_eq!(ask(&mut rig, stranger, 1), Err(Error::Protection));
    assert_eq!(ask(&mut rig, stranger, 0), Err(Error::Protection));
    assert_eq!(sizes(&rig), (BLOCKS, BLOCKS));
    assert_eq!(ask(&mut rig, first, 0), Ok((0, 0)));
    assert_eq!(sizes(&rig), (BLOCKS, BLOCKS + MORE));
    let free = report(&rig).free;
    let left = |rig: &Rig| rig.server.ledger.left(rig.server.programs, Resource::Blocks);
    let before = left(&rig);
    assert_eq!(ask(&mut rig, first, 1), Ok((0, 0)));
    assert_eq!(sizes(&rig), (BLOCKS + MORE, BLOCKS + MORE));
    assert!(report(&rig).free > free + MORE - 100);
    assert!(left(&rig) > before + MORE - 300, "{} {before}", left(&rig));
    // It is durable now, and to ask again is to ask for nothing.
    let generation = report(&rig).generation;
    assert_eq!(ask(&mut rig, first, 1), Ok((0, 0)));
    assert_eq!(report(&rig).generation, generation);
    let (mut rig, _, stranger) = begin(rig.crash().0);
    assert_eq!(sizes(&rig), (BLOCKS + MORE, BLOCKS + MORE));
    rig.gets(stranger, &[base], 5);
    assert_eq!(rig.load(stranger.space, base), Ok(7));
    rig.check();
}

#[test]
fn a_full_disk_has_room_again() {
    let (mut rig, first, _) = rig();
    let mut objects = Vec::new();
    loop {
        let base = rig.call(first, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap().0;
        if rig.call(first, Call::KeepObject, &[base]).is_err()
            || (0..PAGES).any(|page| rig.store(first.space, base + page * PAGE, 3).is_err())
        {
            break;
        }
        rig.checkpoint().unwrap();
        objects.push(base);
    }
    assert!(objects.len() > 4);
    rig.world.disk.set_blocks(BLOCKS + MORE);
    assert_eq!(ask(&mut rig, first, 1), Ok((0, 0)));
    for _ in 0..20 {
        write(&mut rig, first, 5);
        rig.checkpoint().unwrap();
    }
    rig.check();
}

/// A disk that was cut off is named, and nothing behind its end is asked for; what has its place before goes on, and so does all when the disk has its size back.
#[test]
fn a_disk_that_has_become_smaller_is_refused() {
    let (mut rig, first, _) = rig();
    write(&mut rig, first, 7);
    rig.checkpoint().unwrap();
    rig.settle();
    rig.world.disk.set_blocks(BLOCKS - 10);
    assert_eq!(ask(&mut rig, first, 1), Err(Error::DiskError));
    assert_eq!(sizes(&rig), (BLOCKS, BLOCKS - 10));
    // The blocks at the front are there.
    let base = write(&mut rig, first, 8);
    rig.checkpoint().unwrap();
    rig.world.disk.set_blocks(400);
    write(&mut rig, first, 9);
    while rig.checkpoint().is_ok() {
        write(&mut rig, first, 9);
    }
    rig.world.disk.set_blocks(BLOCKS);
    assert_eq!(ask(&mut rig, first, 1), Ok((0, 0)));
    rig.checkpoint().unwrap();
    assert_eq!(rig.load(first.space, base), Ok(8));
    rig.check();
}

#[test]
fn sizes_that_cannot_be_taken_change_nothing() {
    let (mut rig, first, _) = rig();
    assert_eq!(ask(&mut rig, first, 2), Err(Error::BadArgument));
    rig.world.disk.set_blocks(32_768 + 3);
    ask(&mut rig, first, 1).unwrap();
    rig.world.disk.set_blocks(2 * 32_768 + 3);
    ask(&mut rig, first, 1).unwrap();
    // A bitmap block more, and nine blocks for nothing else.
    rig.world.disk.set_blocks(2 * 32_768 + 3);
    ask(&mut rig, first, 1).unwrap();
    let size = 3 * 32_768 - 2;
    rig.world.disk.set_blocks(size);
    ask(&mut rig, first, 1).unwrap();
    rig.world.disk.set_blocks(size + 5);
    assert_eq!(ask(&mut rig, first, 1), Err(Error::DiskFull));
    assert_eq!(sizes(&rig), (size, size + 5));
    rig.checkpoint().unwrap();
    assert_eq!(sizes(&rig), (size, size + 5));
    // A disk of any size is taken as far as a store goes.
    rig.world.disk.set_blocks(u64::MAX / 8);
    ask(&mut rig, first, 1).unwrap();
    assert_eq!(sizes(&rig), (BLOCKS_MAX, u64::MAX / 8));
    rig.check();
}

/// A growth to the largest size is done in pieces: each step that finds heap for it, and each that takes blocks in, is charged, and so is an event of its own. How long a step is
/// nothing here measures.
#[test]
#[cfg(debug_assertions)]
fn a_growth_is_charged_in_pieces() {
    let (mut rig, first, _) = rig();
    write(&mut rig, first, 7);
    rig.checkpoint().unwrap();
    rig.settle();
    rig.world.disk.set_blocks(BLOCKS_MAX);
    let arguments = [CONTROL_DISK, 1];
    let mut charges = Vec::new();
    let mut resumed = Resumed::First;
    loop {
        let before = rig.server.charged();
        let answer = rig.begin(first, Call::SystemControl, &arguments, resumed);
        charges.push(rig.server.charged() - before);
        if let Some(answer) = answer {
            answer.unwrap();
            break;
        }
        let before = rig.server.charged();
        rig.move_disk();
        charges.push(rig.server.charged() - before);
        resumed = Resumed::Woken;
    }
    let most = charges.iter().max().unwrap();
    let full = charges.iter().filter(|&&charge| 2 * charge > PIECE).count();
    // Ten pieces for the tables, and for each of thirteen groups with bitmaps a table, its words, and its coming in.
    assert!(*most <= PIECE && full >= 10 + 3 * 13, "{most} {full}");
}
