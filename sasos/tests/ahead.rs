//! Reading ahead: few requests for pages in a row, and never a wrong page, an error for somebody who touched nothing bad, or a page for somebody who may not have it,
//! whatever becomes of the object while its pages are on their way.

mod common;

use abi::{Call, Error, Rights, address::PAGE, layout::UNMAP_ZERO};
use common::{Actor, Rig};
use kcore::Machine;
use sasos::{Access, Stop, protection::apd::Apd};

const PASSWORD: u64 = 9;

/// The first content of a page.
fn first_value(page: u64) -> u64 {
    0xa11e_0000_0000_0000 | page << 8 | 1
}

/// A start that finds a kept object of so many pages on the disk and nothing of it in memory, and a task that may have it.
fn on_disk(seed: u64, frames: u32, pages: u64) -> (Rig, Actor, u64) {
    let mut rig = Rig::new(seed, frames, 1 << 14);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, pages, PASSWORD);
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, first_value(page)).unwrap();
    }
    rig.generation().unwrap();
    let (mut rig, _) = rig.crash();
    let actor = rig.holder(base, PASSWORD);
    (rig, actor, base)
}

#[test]
fn pages_in_a_row_come_with_few_requests() {
    const PAGES: u64 = 700;
    let (mut rig, actor, base) = on_disk(1, 4_000, PAGES);
    let (runs, reads) = (rig.world.disk.runs, rig.server.store.stats().reads);
    let mut faults = 0;
    for page in 0..PAGES {
        rig.world.kernel.enter_space(actor.space);
        let address = base + page * PAGE;
        let is_there = rig
            .world
            .kernel
            .hardware
            .translate(address, sim::machine::Touch::Read)
            .is_ok();
        faults += u64::from(!is_there);
        assert_eq!(rig.load(actor.space, address), Ok(first_value(page)));
    }
    let reads = rig.server.store.stats().reads - reads;
    // Each page once, and some map nodes.
    assert!((PAGES..PAGES + 12).contains(&reads), "{reads} blocks were read");
    assert!(faults < PAGES / 12, "{faults} pages were touched that were not there");
    assert!(rig.world.disk.runs - runs < PAGES / 12);
    rig.check();
}

#[test]
fn pages_here_and_there_come_alone() {
    const PAGES: u64 = 700;
    let (mut rig, actor, base) = on_disk(2, 4_000, PAGES);
    let reads = rig.server.store.stats().reads;
    for turn in 0..100 {
        let page = turn * 257 % PAGES;
        assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(first_value(page)));
    }
    let reads = rig.server.store.stats().reads - reads;
    assert!(reads < 112, "{reads} blocks were read for 100 pages");
    rig.check();
}

/// The block that holds a page at first.
fn block_of(rig: &Rig, page: u64) -> u64 {
    let holds = first_value(page).to_le_bytes();
    let mut medium = rig.world.disk.medium().iter();
    *medium.find(|(_, data)| data[..8] == holds).expect("it is there").0
}

/// Reads each page: all but the bad one are there.
fn all_but_one_are_read(rig: &mut Rig, actor: Actor, base: u64, pages: u64, bad: u64) {
    for page in 0..pages {
        let expected = if page == bad {
            Err(Error::DiskError)
        } else {
            Ok(first_value(page))
        };
        assert_eq!(rig.load(actor.space, base + page * PAGE), expected, "page {page}");
    }
}

#[test]
fn a_bad_page_is_an_error_of_those_who_touch_it() {
    const PAGES: u64 = 120;
    for (seed, bad) in [(3, 40), (4, 47), (5, 48), (6, 1), (7, PAGES - 1)] {
        let (mut rig, actor, base) = on_disk(seed, 2_000, PAGES);
        let block = block_of(&rig, bad);
        let medium = rig.world.disk.medium_mut();
        let mut data = *medium[&block];
        data[4000] ^= 1;
        medium.insert(block, data.into());
        for _ in 0..2 {
            all_but_one_are_read(&mut rig, actor, base, PAGES, bad);
        }
        assert!(rig.server.store.stats().damaged > 0);
        rig.check();
    }
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_of_those_who_touch_it() {
    const PAGES: u64 = 120;
    let (mut rig, actor, base) = on_disk(8, 2_000, PAGES);
    let bad = 60;
    let block = block_of(&rig, bad);
    rig.world.disk.set_unreadable(block, u32::MAX);
    all_but_one_are_read(&mut rig, actor, base, PAGES, bad);
    rig.check();
}

#[test]
fn an_object_that_is_larger_than_memory_is_read_in_order() {
    const PAGES: u64 = 3_000;
    let (mut rig, actor, base) = on_disk(9, 900, PAGES);
    for page in 0..2 * PAGES {
        let page = page % PAGES;
        assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(first_value(page)));
    }
    assert!(rig.world.disk.runs > 2 * PAGES / 16);
    rig.check();
}

/// Touches a page once and does not wait for it.
fn touch_once(rig: &mut Rig, actor: Actor, address: u64, access: Access) -> Result<(), Stop> {
    rig.server.touch(&mut rig.world, actor.space, address, access)
}

#[test]
fn nobody_gets_a_wrong_page_whatever_happens_meanwhile() {
    const PAGES: u64 = 96;
    sim::seeds::run(60, |seed| {
        let (mut rig, owner, base) = on_disk(100 + seed, 700, PAGES);
        let mut expected: Vec<u64> = (0..PAGES).map(first_value).collect();
        let failing = rig.rng.one_in(2);
        rig.world.disk.set_failing(if failing { 9 } else { 0 });
        let mut at = 0;
        for _ in 0..250 {
            let page = if rig.rng.one_in(3) { rig.rng.below(PAGES) } else { at };
            let address = base + page * PAGE;
            match rig.rng.below(12) {
                0 => {
                    let value = rig.rng.next_u64() | 1;
                    if rig.store(owner.space, address, value).is_ok() {
                        expected[page as usize] = value;
                    }
                }
                1 => {
                    // In the middle of what is on its way.
                    let zeroed = rig.call(owner, Call::PageUnMap, &[address, 1, UNMAP_ZERO]);
                    if zeroed.is_ok() {
                        expected[page as usize] = 0;
                    }
                }
                2 => {
                    rig.server.reclaim(&mut rig.world);
                }
                3 => {
                    let _ = rig.checkpoint();
                }
                4 => rig.move_disk(),
                5 | 6 => {
                    let _ = touch_once(&mut rig, owner, address, Access::Read);
                    at = (at + 1) % PAGES;
                }
                7 => {
                    let _ = touch_once(&mut rig, owner, address, Access::Write);
                }
                _ => {
                    match rig.load(owner.space, address) {
                        Ok(value) => assert_eq!(value, expected[page as usize], "page {page} of seed {seed}"),
                        Err(error) => assert!(failing && error == Error::DiskError, "{error:?} of seed {seed}"),
                    }
                    at = (page + 1) % PAGES;
                }
            }
        }
        rig.world.disk.set_failing(0);
        rig.settle();
        rig.check();
        for (page, &value) in expected.iter().enumerate() {
            // An error that is noted is told once.
            let address = base + page as u64 * PAGE;
            let loaded = rig
                .load(owner.space, address)
                .or_else(|_| rig.load(owner.space, address));
            assert_eq!(loaded, Ok(value), "page {page} of seed {seed} at the end");
        }
        rig.check();
    });
}

#[test]
fn objects_go_and_rights_are_withdrawn_while_pages_are_on_their_way() {
    const PAGES: u64 = 64;
    for seed in 0..40 {
        let (mut rig, reader, base) = on_disk(200 + seed, 1_500, PAGES);
        let owner = rig.holder(base, PASSWORD);
        // The reader is in the middle of it, with a request under way.
        for page in 0..20 {
            assert_eq!(rig.load(reader.space, base + page * PAGE), Ok(first_value(page)));
        }
        let next = (20..PAGES).find(|&page| touch_once(&mut rig, reader, base + page * PAGE, Access::Read).is_err());
        let next = next.expect("pages are left");
        assert!(rig.server.pager.reads() > 0, "seed {seed}");
        match seed % 3 {
            0 => {
                rig.call(owner, Call::ObjDelete, &[base]).unwrap();
            }
            1 => {
                rig.call(owner, Call::ObjPasswd, &[base, PASSWORD, 0]).unwrap();
            }
            _ => {
                rig.call(owner, Call::ObjResize, &[base, (next + 2) * PAGE]).unwrap();
            }
        }
        rig.settle();
        assert_eq!(rig.server.pager.reads(), 0);
        let loaded = rig.load(reader.space, base + (next + 4) * PAGE);
        assert!(loaded.is_err(), "{loaded:?} of seed {seed}");
        if seed % 3 == 2 {
            assert_eq!(rig.load(reader.space, base + next * PAGE), Ok(first_value(next)));
        }
        rig.check();
    }
}

#[test]
fn what_is_read_ahead_gives_its_frames_back() {
    let (mut rig, actor, base) = on_disk(11, 2_000, 64);
    rig.settle();
    let before = rig.world.frames_free();
    for page in 0..40 {
        rig.load(actor.space, base + page * PAGE).unwrap();
    }
    rig.settle();
    rig.call(actor, Call::ObjPasswd, &[base, PASSWORD, Rights::R.bits().into()])
        .unwrap();
    while rig.server.reclaim(&mut rig.world) > 0 {}
    let after = rig.world.frames_free();
    // A page table, and nodes of the map.
    assert!(after + 6 >= before, "{before} frames before, {after} behind");
    rig.check();
}
