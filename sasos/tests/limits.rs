//! The most that one call may ask for, and the cost of things to the byte.

mod common;

use abi::{
    Call, Error, Rights,
    address::{OBJECT_BYTES_MAX, PAGE, SLOT},
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::thread::Resumed;
use sasos::{
    Outcome,
    accounts::{AccountId, Resource, UNLIMITED},
    directory::object::OBJECT_BYTES,
    protection::apd::Apd,
};

/// Bytes that the server's records cost all accounts together.
fn bytes(rig: &mut Rig) -> u64 {
    rig.server.ledger.empty_all_hands();
    rig.server.ledger.used(AccountId::ROOT, Resource::Bytes)
}

#[test]
fn passwords_beyond_the_fourth_cost_sixteen_bytes_each() {
    let mut rig = Rig::new(70, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let set = |rig: &mut Rig, password: u64, rights: Rights| {
        rig.call(actor, Call::ObjPasswd, &[base, password, u64::from(rights.bits())])
            .unwrap();
    };
    // The domain's own records of the object come with the first call.
    set(&mut rig, 99, Rights::R);
    set(&mut rig, 99, Rights::NONE);
    let before = bytes(&mut rig);
    for number in 0..20 {
        set(&mut rig, 100 + number, Rights::R);
        // One was there from the start.
        assert_eq!(bytes(&mut rig), before + 16 * (number + 2).saturating_sub(4));
    }
    for number in 0..20 {
        set(&mut rig, 100 + number, Rights::NONE);
        assert_eq!(bytes(&mut rig), before + 16 * (20 - number).saturating_sub(4));
    }
    rig.check();
}

/// A range of a kept object has a bound, for zeroes; one of a transient object, and what is brought back from the disk, goes in pieces.
#[test]
fn a_range_of_zeroes_is_bounded_where_it_is_kept() {
    let mut rig = Rig::new(71, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let most = 1 << 16;
    let (base, _) = rig.call(actor, Call::ObjCreate, &[(most + 1) * PAGE, 0]).unwrap();
    rig.store(actor.space, base + most * PAGE, 7).unwrap();
    let clear = |rig: &mut Rig, pages: u64, how: u64| rig.call(actor, Call::PageUnMap, &[base, pages, how]);
    assert_eq!(clear(&mut rig, most + 1, UNMAP_ZERO), Ok((0, 0)));
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    assert_eq!(clear(&mut rig, most + 1, UNMAP_ZERO), Err(Error::BadArgument));
    assert_eq!(clear(&mut rig, most, UNMAP_ZERO), Ok((0, 0)));
    assert_eq!(clear(&mut rig, most + 1, UNMAP_REPLACE), Ok((0, 0)));
    assert_eq!(clear(&mut rig, 1, 77), Err(Error::BadArgument));
    rig.check();
}

#[test]
fn an_object_may_be_as_large_as_the_table_says() {
    let mut rig = Rig::new(72, 3000, 4096);
    let rich: Actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let make = |rig: &mut Rig, bytes: u64| rig.call(rich, Call::ObjCreate, &[bytes, 0]).map(|(base, _)| base);
    assert_eq!(make(&mut rig, OBJECT_BYTES_MAX + PAGE), Err(Error::NoMemory));
    let base = make(&mut rig, PAGE).unwrap();
    let resize = |rig: &mut Rig, bytes: u64| rig.call(rich, Call::ObjResize, &[base, bytes]);
    assert_eq!(resize(&mut rig, OBJECT_BYTES_MAX + PAGE), Err(Error::CannotGrow));
    assert_eq!(resize(&mut rig, OBJECT_BYTES_MAX), Ok((0, 0)));
    assert_eq!(resize(&mut rig, OBJECT_BYTES_MAX + 1), Err(Error::CannotGrow));
    rig.store(rich.space, base + OBJECT_BYTES_MAX - PAGE, 5).unwrap();
    assert_eq!(resize(&mut rig, PAGE), Ok((0, 0)));
    rig.check();
}

/// The map from slots to objects has a table for each 2 GiB in which slots have different owners. An object left over in each of many such stretches
/// costs its owner all of these tables, until the last object there is gone. They are small: less than the object itself.
#[test]
fn objects_left_over_in_many_stretches_of_addresses_pay_for_the_map() {
    const STRETCH_BYTES: u64 = 2 << 30;
    const TABLE_BYTES: core::ops::Range<u64> = 128..300;
    const STRETCHES: u64 = 64;
    let mut rig = Rig::new(73, 3000, 4096);
    let rich = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let make = |rig: &mut Rig, actor, bytes: u64| rig.call(actor, Call::ObjCreate, &[bytes, 0]).map(|(base, _)| base);
    let delete = |rig: &mut Rig, base: u64| rig.call(rich, Call::ObjDelete, &[base]).unwrap();
    let before = bytes(&mut rig);
    let mut small = Vec::new();
    let mut large = Vec::new();
    for _ in 0..STRETCHES {
        large.push(make(&mut rig, rich, STRETCH_BYTES).unwrap());
        small.push(make(&mut rig, rich, PAGE).unwrap());
    }
    rig.check();
    for base in large {
        delete(&mut rig, base);
    }
    let tables = bytes(&mut rig) - before - STRETCHES * OBJECT_BYTES;
    assert!(TABLE_BYTES.contains(&(tables / STRETCHES)), "{tables} bytes");
    rig.check();
    for base in small {
        delete(&mut rig, base);
    }
    rig.check();
    let left = bytes(&mut rig) - before;
    assert!(left < STRETCHES * TABLE_BYTES.start, "the tables are paid back: {left}");

    // A task that cannot pay for all of an object and its tables gets none of it, and nothing is left over.
    let before = bytes(&mut rig);
    rig.actor_in(AccountId::ROOT, UNLIMITED);
    let actor = bytes(&mut rig) - before;
    let refused = (0..).step_by(100).find(|more| {
        let mut limits = UNLIMITED;
        limits[Resource::Bytes as usize] = actor + more;
        let poor = rig.actor_in(AccountId::ROOT, limits);
        let before = bytes(&mut rig);
        let made = make(&mut rig, poor, STRETCH_BYTES);
        rig.check();
        if made.is_err() {
            assert_eq!((made, bytes(&mut rig)), (Err(Error::LimitReached), before));
        }
        made.is_ok()
    });
    assert!(refused > Some(200), "{refused:?}");
}

/// The store notes limits and zeroed ranges of kept objects in its heap until a checkpoint. A program that makes many waits for one.
#[test]
fn what_waits_for_a_checkpoint_is_bounded() {
    const NOTED_MAX: usize = 1 << 12;
    const NOTED_BLOCKS: u64 = 256;
    let mut rig = Rig::new(73, 3000, 9000);
    let actor = rig.actor(Apd::EMPTY);
    let few = 6000;
    let base = rig.kept(actor, 4 * few, 0);
    let noted = |rig: &Rig| rig.server.store.noted();
    for round in 0..8 {
        rig.call(
            actor,
            Call::PageLimit,
            &[base + round % 4 * few * PAGE, few, 4 + 2 * (round / 4 % 2)],
        )
        .unwrap();
        assert!(noted(&rig) <= NOTED_MAX + 200, "round {round}: {} limits", noted(&rig));
    }
    let other = rig.kept(actor, 4 * few, 0);
    for page in (0..4 * few).step_by(2) {
        rig.call(actor, Call::PageUnMap, &[other + page * PAGE, 1, UNMAP_ZERO])
            .unwrap();
        assert!(noted(&rig) <= NOTED_MAX + 200, "page {page}: {} ranges", noted(&rig));
    }
    // So does an object that brings its limits with it.
    for _ in 0..3 {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[few * PAGE, 0]).unwrap();
        rig.call(actor, Call::PageLimit, &[base, few, 4]).unwrap();
        rig.call(actor, Call::KeepObject, &[base]).unwrap();
        assert!(noted(&rig) <= NOTED_MAX + few as usize);
    }
    // Blocks that they take in maps are promised, and bounded, too: those of limits that lie far from each other are more.
    let sparse = rig.kept(actor, 400 * SLOT / PAGE, 0);
    for slot in 0..400 {
        rig.call(actor, Call::PageLimit, &[sparse + slot * SLOT, 1, 4]).unwrap();
        let blocks = rig.server.store.noted_blocks();
        assert!(blocks < NOTED_BLOCKS + 10, "slot {slot}: {blocks} blocks");
    }
    rig.check();
}

/// Limits of pages without content take parts of a map on the disk: blocks of the object, until it ends.
#[test]
fn limits_are_paid_as_blocks_of_the_disk() {
    let mut rig = Rig::new(74, 3000, 9000);
    let mut amounts = UNLIMITED;
    amounts[Resource::Blocks as usize] = 100;
    let actor = rig.actor_in(AccountId::ROOT, amounts);
    let blocks = |rig: &mut Rig| {
        rig.server.ledger.empty_all_hands();
        rig.server.ledger.used(AccountId::ROOT, Resource::Blocks)
    };
    let before = blocks(&mut rig);
    let pages = 1 << 20;
    let base = rig.kept(actor, pages, 0);
    let limit = |rig: &mut Rig, page: u64| rig.call(actor, Call::PageLimit, &[base + page * PAGE, 1, 4]).map(drop);
    let refused = (0..pages >> 8)
        .find(|number| limit(&mut rig, number << 8).is_err())
        .unwrap();
    assert!((30..=100).contains(&refused), "{refused} limits");
    assert_eq!(limit(&mut rig, refused << 8), Err(Error::LimitReached));
    rig.checkpoint().unwrap();
    assert_eq!(
        limit(&mut rig, refused << 8),
        Err(Error::LimitReached),
        "they stay on the disk"
    );
    rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    assert_eq!(blocks(&mut rig), before);
    // A small object has a small map, however often its limits change.
    let small = rig.kept(actor, 300, 0);
    for round in 0..200 {
        rig.call(actor, Call::PageLimit, &[small, 300, 4 + 2 * (round % 2)])
            .unwrap();
    }
    assert!(blocks(&mut rig) <= before + 5);
    // One that is kept with its limits pays at that time, and nothing if it is not.
    let (large, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
    for page in (0..pages).step_by(1 << 14) {
        rig.call(actor, Call::PageLimit, &[large + page * PAGE, 1, 4]).unwrap();
    }
    let before = (blocks(&mut rig), bytes(&mut rig));
    assert_eq!(rig.call(actor, Call::KeepObject, &[large]), Err(Error::LimitReached));
    rig.settle();
    assert_eq!((blocks(&mut rig), bytes(&mut rig)), before);
    rig.check();
}

/// A page of a kept object is paid with the nodes of the map above it: a program that writes one page in each part of a map has no more of the disk than its
/// account says.
#[test]
fn nodes_of_a_map_are_paid_as_blocks_of_the_disk() {
    for seed in 75..80 {
        let mut rig = Rig::new(seed, 8000, 9000);
        let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
        let measure = |rig: &mut Rig| {
            rig.server.ledger.empty_all_hands();
            let used = rig.server.ledger.used(AccountId::ROOT, Resource::Blocks);
            (used, rig.server.store_report().reserved)
        };
        for (pages, step, most) in [
            (1 << 20, 1 << 10, 4),
            (1 << 18, 256, 4),
            (1 << 12, 256, 3),
            (600, 1, 2),
            (2, 1, 3),
        ] {
            let (before, reserved) = measure(&mut rig);
            let base = rig.kept(actor, pages, 0);
            let written = (0..pages).step_by(step).take(300);
            let count = written.clone().count() as u64;
            for page in written.clone() {
                rig.store(actor.space, base + page * PAGE, 1).unwrap();
            }
            let (used, promised) = measure(&mut rig);
            let (used, promised) = (used - before, promised - reserved);
            assert!(
                used >= promised,
                "{pages} pages, each {step}th: {used} charged for {promised}"
            );
            assert!(
                used <= most * count,
                "{pages} pages, each {step}th: {used} charged for {count}"
            );
            rig.check();
            rig.checkpoint().unwrap();
            rig.call(actor, Call::ObjResize, &[base, pages / 2 * PAGE]).unwrap();
            rig.settle();
            rig.check();
            for page in written.filter(|page| *page < pages / 2) {
                let zeroed = [base + page * PAGE, 1, UNMAP_ZERO];
                rig.call(actor, Call::PageUnMap, &zeroed).unwrap();
            }
            assert_eq!(measure(&mut rig).0, before, "{pages} pages");
            rig.call(actor, Call::ObjDelete, &[base]).unwrap();
            rig.settle();
            rig.check();
        }
    }
}

/// A stored page that is written again takes a second block until a checkpoint, which nobody pays for. One program that writes all its pages again and again
/// leaves others room for what is new.
#[test]
fn pages_that_are_written_again_leave_room_to_others() {
    let mut rig = Rig::new(82, 12_000, 4000);
    let (_, programs) = rig.first_task();
    let [writer, other] = [(); 2].map(|()| rig.actor_in(programs, UNLIMITED));
    let pages = rig.server.store_report().free / 2;
    let base = rig.kept(writer, pages, 0);
    for round in 0..3 {
        for page in 0..pages {
            rig.store(writer.space, base + page * PAGE, round).unwrap();
            let report = rig.server.store_report();
            let left = report.free.saturating_sub(report.reserved);
            assert!(left > pages / 4, "round {round}, page {page}: {left} blocks are left");
        }
        // Its pages are stored, and the blocks of before are free behind the second one.
        rig.checkpoint().unwrap();
        rig.checkpoint().unwrap();
    }
    let new = rig.kept(other, pages / 4, 0);
    for page in 0..pages / 4 {
        rig.store(other.space, new + page * PAGE, 1).unwrap();
    }
    rig.check();
}

/// A program that copies pages into a kept object of its own, again and again.
struct Writer {
    actor: Actor,
    source: u64,
    target: u64,
    pages: u64,
    at: u64,
    resumed: Resumed,
    copies: u64,
}

impl Writer {
    fn new(rig: &mut Rig, account: AccountId, pages: u64) -> Self {
        let actor = rig.actor_in(account, UNLIMITED);
        let (source, _) = rig.call(actor, Call::ObjCreate, &[32 * PAGE, 0]).unwrap();
        Self {
            target: rig.kept(actor, pages, 0),
            actor,
            source,
            pages,
            at: 0,
            resumed: Resumed::First,
            copies: 0,
        }
    }

    /// One event of a copy; tells whether the program need not wait now.
    fn step(&mut self, rig: &mut Rig) -> bool {
        let count = 32.min(self.pages - self.at);
        if self.resumed == Resumed::First {
            // Else the target has these pages already.
            for page in 0..count {
                rig.store(self.actor.space, self.source + page * PAGE, self.copies)
                    .unwrap();
            }
        }
        let arguments = [self.source, self.target + self.at * PAGE, count, 0, 0, 0];
        let outcome = rig.event(self.actor, Call::PageCopy, arguments, self.resumed);
        self.resumed = Resumed::Woken;
        if let Outcome::Return(result) = outcome {
            result.unwrap();
            self.resumed = Resumed::First;
            self.at = (self.at + count) % self.pages;
            self.copies += 1;
        }
        !matches!(outcome, Outcome::Block(..))
    }
}

/// Each goes on until it has to wait or its time is over, always in the same order; then the disk does something.
fn run(rig: &mut Rig, writers: &mut [Writer]) {
    for writer in writers {
        for _ in 0..16 {
            if !writer.step(rig) {
                break;
            }
        }
    }
    rig.move_disk();
}

/// Programs that rewrite their pages without rest on a small disk, and are always woken first, neither find it full nor take all dirty pages: each one goes on, and so
/// do the calls of one that comes later.
#[test]
fn programs_that_write_without_rest_leave_others_their_part() {
    for (writers, pages) in [(1, 100), (2, 100), (4, 100), (9, 100), (30, 20)] {
        let mut rig = Rig::new(83, 12_000, 1400);
        let (_, programs) = rig.first_task();
        let mut all: Vec<_> = (0..writers).map(|_| Writer::new(&mut rig, programs, pages)).collect();
        let mut other = Writer::new(&mut rig, programs, 4);
        // Until all have waited: in the first round nobody has asked before.
        while rig.server.checkpoint.begun() < 12 {
            run(&mut rig, &mut all);
        }
        for writer in &mut all {
            writer.copies = 0;
        }
        while rig.server.checkpoint.begun() < 50 {
            let (copies, begun) = (other.copies, rig.server.checkpoint.begun());
            while other.copies == copies {
                run(&mut rig, &mut all);
                other.step(&mut rig);
                let waited = rig.server.checkpoint.begun() - begun;
                assert!(
                    waited <= 2 + writers,
                    "{writers} writers: {waited} checkpoints are waited for"
                );
            }
        }
        let new = rig.kept(other.actor, 4, 0);
        rig.store(other.actor.space, new, 1).unwrap();
        let copies = all.iter().map(|writer| writer.copies);
        let (least, most) = (copies.clone().min().unwrap(), copies.max().unwrap());
        assert!(most <= 3 * (least + 1), "{writers} writers: {least} to {most} copies");
        rig.check();
    }
}

/// Pages of an object of an earlier start are paid by all programs. A program that writes such pages and syncs them has its part again, so that only time and the journal ask for checkpoints.
#[test]
fn a_sync_gives_a_part_back_whoever_pays_for_the_pages() {
    let mut rig = Rig::new(85, 6000, 250);
    let [_, owner] = [(); 2].map(|()| rig.actor(Apd::EMPTY));
    let base = rig.kept(owner, 4, 9);
    rig.checkpoint().unwrap();
    (rig, _) = rig.crash();
    let (_, programs) = rig.first_task();
    let writer = rig.actor_in(programs, UNLIMITED);
    rig.server.object_at(&mut rig.world, base).unwrap();
    rig.gets(writer, &[base], 9);
    let (source, _) = rig.call(writer, Call::ObjCreate, &[4 * PAGE, 0]).unwrap();
    let begun = rig.server.checkpoint.begun();
    for round in 0..60 {
        for page in 0..4 {
            rig.store(writer.space, source + page * PAGE, round).unwrap();
        }
        rig.call(writer, Call::PageCopy, &[source, base, 4]).unwrap();
        rig.call(writer, Call::PageFlush, &[base, 4]).unwrap();
    }
    let checkpoints = rig.server.checkpoint.begun() - begun;
    assert!(checkpoints <= 5, "{checkpoints} checkpoints");
    rig.check();
}

/// Blocks of a deleted object are free behind the second checkpoint. A call that finds the disk full waits for that, and fails where nothing comes back.
#[test]
fn a_call_that_finds_the_disk_full_waits_for_blocks_that_come_back() {
    let mut rig = Rig::new(84, 6000, 500);
    let actor = rig.actor(Apd::EMPTY);
    let keep = |rig: &mut Rig| {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[16 * PAGE, 0]).unwrap();
        for page in 0..16 {
            rig.store(actor.space, base + page * PAGE, page).unwrap();
        }
        let kept = rig.call(actor, Call::KeepObject, &[base]);
        kept.map(|_| base)
    };
    let mut all = Vec::new();
    while let Ok(base) = keep(&mut rig) {
        all.push(base);
    }
    assert_eq!(keep(&mut rig), Err(Error::DiskFull));
    for _ in 0..3 {
        rig.checkpoint().unwrap();
    }
    assert_eq!(keep(&mut rig), Err(Error::DiskFull), "nothing comes back");
    for base in all {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        keep(&mut rig).unwrap();
    }
    rig.check();
}

/// Blocks that are charged, and those that are free, when all is written and none is held back.
fn measure(rig: &mut Rig) -> (u64, u64) {
    // Blocks come back behind the second checkpoint.
    for _ in 0..3 {
        rig.checkpoint().unwrap();
        rig.settle();
    }
    rig.server.ledger.empty_all_hands();
    let used = rig.server.ledger.used(AccountId::ROOT, Resource::Blocks);
    (used, rig.server.store_report().free)
}

/// The store keeps the levels of a map while any page of the object has a block, so a cut gives none of them back.
#[test]
fn levels_of_a_map_are_paid_behind_a_cut() {
    let mut rig = Rig::new(81, 8000, 20_000);
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let (before, free) = measure(&mut rig);
    let pages = 70_000;
    let objects: Vec<u64> = (0..50).map(|_| rig.kept(actor, pages, 0)).collect();
    for base in &objects {
        for page in [0, pages - 1] {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
        }
    }
    for length in [pages, 1, 2] {
        for base in &objects {
            rig.call(actor, Call::ObjResize, &[*base, length * PAGE]).unwrap();
        }
        let (used, left) = measure(&mut rig);
        let (paid, taken) = (used - before, free - left);
        // Beside them the store has rows of the objects, some to a block.
        assert!(paid + 5 >= taken, "{length} pages: {paid} paid of {taken}");
        rig.check();
    }
    // A limit of a page keeps the levels, too, when the last page with content goes.
    for base in &objects {
        rig.call(actor, Call::PageLimit, &[base + PAGE, 1, 4]).unwrap();
        rig.call(actor, Call::PageUnMap, &[*base, 1, UNMAP_ZERO]).unwrap();
    }
    let (used, left) = measure(&mut rig);
    assert!(used - before + 5 >= free - left, "{used} paid, {left} free");
    for base in objects {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    assert_eq!(measure(&mut rig).0, before);
}

/// A cut that takes all pages leaves the levels to the next checkpoint, and to one that is under way the map is yet to get them: a page that is flushed
/// then stands beneath all of them.
#[test]
fn levels_of_a_map_are_paid_by_a_page_that_is_flushed_behind_a_cut() {
    for (pages, done) in [2, 257, 70_000]
        .into_iter()
        .flat_map(|pages| [(pages, true), (pages, false)])
    {
        let mut rig = Rig::new(85, 8000, 20_000);
        let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
        let (before, free) = measure(&mut rig);
        let objects: Vec<u64> = (0..50).map(|_| rig.kept(actor, pages, 0)).collect();
        for base in &objects {
            rig.store(actor.space, base + (pages - 1) * PAGE, 1).unwrap();
        }
        rig.server.checkpoint_request(&mut rig.world);
        if done {
            rig.settle();
        }
        for base in &objects {
            for length in [1, 2, 1] {
                rig.call(actor, Call::ObjResize, &[*base, length * PAGE]).unwrap();
            }
            rig.store(actor.space, *base, 1).unwrap();
        }
        if !done {
            rig.settle();
        }
        for base in objects {
            rig.call(actor, Call::PageFlush, &[base, 1]).unwrap();
        }
        let (used, left) = measure(&mut rig);
        let (paid, taken) = (used - before, free - left);
        assert!(paid + 5 >= taken, "{pages} pages, done: {done}: {paid} paid of {taken}");
        rig.check();
    }
}

/// A page with limits of its own that is to be zero stays, and is written with zeroes: its block is paid for.
#[test]
fn zeroed_pages_with_limits_are_paid_as_blocks() {
    let mut rig = Rig::new(82, 4000, 9000);
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let used = |rig: &mut Rig| {
        rig.server.ledger.empty_all_hands();
        rig.server.ledger.used(AccountId::ROOT, Resource::Blocks)
    };
    let base = rig.kept(actor, 200, 0);
    for page in 0..200 {
        rig.store(actor.space, base + page * PAGE, 1).unwrap();
    }
    rig.call(actor, Call::PageLimit, &[base + 50 * PAGE, 100, 6]).unwrap();
    let before = used(&mut rig);
    rig.call(actor, Call::PageUnMap, &[base, 200, UNMAP_ZERO]).unwrap();
    assert_eq!(before - used(&mut rig), 100, "those without limits go");
    rig.check();
    rig.checkpoint().unwrap();
    assert_eq!(rig.load(actor.space, base + 60 * PAGE), Ok(0));
    rig.check();
}

/// Limits of a short object stand beneath further nodes when it grows.
#[test]
fn limits_are_paid_by_the_levels_of_a_longer_object() {
    let mut rig = Rig::new(83, 8000, 20_000);
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let (before, free) = measure(&mut rig);
    let pages = 70_000;
    let grown = |rig: &mut Rig| {
        let base = rig.kept(actor, 1, 0);
        rig.call(actor, Call::PageLimit, &[base, 1, 6]).unwrap();
        rig.checkpoint().unwrap();
        rig.call(actor, Call::ObjResize, &[base, pages * PAGE]).unwrap();
        let last = [base + (pages - 1) * PAGE, 1, 6];
        rig.call(actor, Call::PageLimit, &last).unwrap();
        base
    };
    let objects: Vec<u64> = (0..50).map(|_| grown(&mut rig)).collect();
    let (used, left) = measure(&mut rig);
    let (paid, taken) = (used - before, free - left);
    assert!(paid + 5 >= taken, "{paid} paid of {taken}");
    for base in objects {
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    }
    assert_eq!(measure(&mut rig).0, before);
}

/// A clone has the limits of its pages. While a page has a block, the block pays for the nodes above it; a limit that is left behind keeps that charge.
#[test]
fn limits_of_a_clone_stay_paid_when_its_pages_go() {
    let mut rig = Rig::new(84, 8000, 20_000);
    let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let parts = || (0..40).map(|part| part * 256);
    let source = rig.kept(actor, 40 * 256, 0);
    for page in parts() {
        rig.store(actor.space, source + page * PAGE, 1).unwrap();
        rig.call(actor, Call::PageLimit, &[source + page * PAGE, 1, 6]).unwrap();
    }
    let (before, free) = measure(&mut rig);
    for evict in [false, true] {
        let (clone, _) = rig.call(actor, Call::ObjClone, &[source, 0, 0]).unwrap();
        rig.call(actor, Call::KeepObject, &[clone]).unwrap();
        for page in parts().filter(|_| !evict) {
            let replaced = [clone + page * PAGE, 1, UNMAP_REPLACE];
            rig.call(actor, Call::PageUnMap, &replaced).unwrap();
        }
        rig.checkpoint().unwrap();
        while rig.server.reclaim(&mut rig.world) > 0 {}
        for page in parts() {
            let zeroed = [clone + page * PAGE, 1, UNMAP_ZERO];
            rig.call(actor, Call::PageUnMap, &zeroed).unwrap();
        }
        rig.check();
    }
    let (used, left) = measure(&mut rig);
    let (paid, taken) = (used - before, free - left);
    assert!(paid + 5 >= taken, "{paid} paid of {taken}");
}

/// Bytes and rows that come and go with limits and with entry points come back as they went, whoever finds them out.
#[test]
fn what_a_kept_object_pays_for_its_record_and_limits_comes_back() {
    let mut rig = Rig::new(79, 3000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let used = |rig: &mut Rig| {
        rig.server.ledger.empty_all_hands();
        [Resource::Bytes, Resource::Rows].map(|resource| rig.server.ledger.used(AccountId::ROOT, resource))
    };
    let base = rig.kept(actor, 8, 9);
    rig.gets(actor, &[base], 9);
    rig.store(actor.space, base, base + 7 * PAGE).unwrap();
    let limit = |rig: &mut Rig, page: u64| {
        rig.call(
            actor,
            Call::PageLimit,
            &[base + page * PAGE, 1, Rights::R.bits().into()],
        )
        .unwrap()
    };
    let round = |rig: &mut Rig| {
        for page in [1, 3, 5] {
            limit(rig, page);
        }
        // A clone finds the limits of its source out.
        let (clone, _) = rig.call(actor, Call::ObjClone, &[base, PAGE, 0]).unwrap();
        rig.call(actor, Call::ObjDelete, &[clone]).unwrap();
        limit(rig, 6);
        // The entry point is cut off with its page.
        rig.call(actor, Call::ObjCrePdx, &[base, 5, 0, base, 1]).unwrap();
        rig.call(actor, Call::ObjResize, &[base, 7 * PAGE]).unwrap();
        rig.call(actor, Call::ObjResize, &[base, 8 * PAGE]).unwrap();
        rig.call(actor, Call::ObjPasswd, &[base, 5, 0]).unwrap();
        rig.settle();
        rig.check();
        used(rig)
    };
    let first = round(&mut rig);
    for _ in 0..3 {
        assert_eq!(round(&mut rig), first);
    }
}

/// A limit that cannot be noted leaves pages those that they had, also where they are not in memory.
#[test]
fn a_limit_that_is_refused_changes_no_other() {
    let mut rig = Rig::new(80, 3000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[700 * PAGE, 0]).unwrap();
    let limit = |rig: &mut Rig, page: u64| {
        rig.call(
            actor,
            Call::PageLimit,
            &[base + page * PAGE, 1, Rights::R.bits().into()],
        )
    };
    limit(&mut rig, 5).unwrap();
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    let account = rig.server.tasks.get(actor.task).unwrap().account;
    let mut limits = rig.server.ledger.limits(account);
    let before = limits;
    rig.server.ledger.empty_all_hands();
    limits[Resource::Blocks as usize] = rig.server.ledger.used(account, Resource::Blocks);
    rig.server.ledger.set_limits(account, limits);
    assert_eq!(limit(&mut rig, 600), Err(Error::LimitReached));
    rig.server.ledger.set_limits(account, before);
    assert_eq!(rig.store(actor.space, base + 5 * PAGE, 1), Err(Error::Protection));
    rig.check();
}
