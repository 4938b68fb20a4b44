//! Ranges of several objects that one call makes durable, across power cuts.

mod common;

use abi::{
    Call, Error,
    address::{PAGE, SLOT},
    layout::FLUSH_RANGES_MAX,
};
use common::Rig;
use kcore::thread::Resumed;
use sasos::protection::apd::Apd;
use sim::seeds;

/// Ranges of several objects that one call flushes are all there behind a power cut, or none of them is.
#[test]
fn ranges_that_are_flushed_together_come_back_together() {
    const PAGES: u64 = 6;
    const GROUPS: u64 = 12;
    let (mut old, mut new) = (0, 0);
    seeds::run(150, |seed| {
        let mut rig = Rig::new(seed, 4000, 8192);
        let actor = rig.actor(Apd::EMPTY);
        let bases = [(); 6].map(|()| rig.kept(actor, PAGES, 77));
        let (array, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        rig.checkpoint().unwrap();
        let mut durable = [[0; PAGES as usize]; 6];
        let last = 1 + rig.rng.below(GROUPS);
        for group in 1..=last {
            let mut now = durable;
            let count = 1 + rig.rng.below(6);
            for place in 0..count {
                let (object, page) = (rig.rng.below(6) as usize, rig.rng.below(PAGES));
                let pages = 1 + rig.rng.below((PAGES - page).min(4));
                for page in page..page + pages {
                    rig.store(actor.space, bases[object] + page * PAGE, group).unwrap();
                    now[object][page as usize] = group;
                }
                for (word, value) in [bases[object] + page * PAGE, pages].into_iter().enumerate() {
                    rig.store(actor.space, array + 16 * place + 8 * word as u64, value)
                        .unwrap();
                }
            }
            let arguments = [array, count];
            if group < last {
                rig.call(actor, Call::PageFlushAll, &arguments).unwrap();
                durable = now;
                continue;
            }
            let begun = rig.begin(actor, Call::PageFlushAll, &arguments, Resumed::First);
            assert!(begun.is_none(), "{begun:?}");
            for _ in 0..rig.rng.below(40) {
                rig.move_disk();
            }
            rig = rig.crash().0;
            let found = bases.map(|base| {
                let holder = rig.holder(base, 77);
                core::array::from_fn(|page| rig.load(holder.space, base + page as u64 * PAGE).unwrap())
            });
            assert!(
                found == durable || found == now,
                "{durable:?} was durable, {now:?} is half done: {found:?}"
            );
            old += u32::from(found == durable);
            new += u32::from(found == now);
            rig.check();
        }
    });
    assert!(old > 10 && new > 10, "the power fails before and after");
}

/// Ranges are looked at before anything is flushed.
#[test]
fn bad_ranges_flush_nothing() {
    let mut rig = Rig::new(5, 4000, 8192);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 4, 77);
    let (array, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.checkpoint().unwrap();
    rig.store(actor.space, base, 1).unwrap();
    let dirty = rig.server.store_report().dirty;
    for (second, error) in [
        ([base + PAGE + 8, 1], Error::BadArgument),
        ([base, 0], Error::BadArgument),
        ([base + PAGE, 4], Error::BadAddress),
        ([base, u64::MAX], Error::BadAddress),
        ([array, 1], Error::NotPersistent),
        ([1 << 46, 1], Error::BadAddress),
    ] {
        for (word, value) in [base, 1].into_iter().chain(second).enumerate() {
            rig.store(actor.space, array + 8 * word as u64, value).unwrap();
        }
        assert_eq!(
            rig.call(actor, Call::PageFlushAll, &[array, 2]),
            Err(error),
            "{second:x?}"
        );
        assert_eq!(rig.server.store_report().dirty, dirty);
    }
    for (arguments, error) in [
        ([array, 0], Error::BadArgument),
        ([array, FLUSH_RANGES_MAX + 1], Error::BadArgument),
        ([array + PAGE - 16, 2], Error::BadAddress),
        ([u64::MAX, 1], Error::BadAddress),
    ] {
        assert_eq!(
            rig.call(actor, Call::PageFlushAll, &arguments),
            Err(error),
            "{arguments:x?}"
        );
    }
    // The same range several times is flushed once.
    for place in 0..FLUSH_RANGES_MAX {
        rig.store(actor.space, array + 16 * place, base).unwrap();
        rig.store(actor.space, array + 16 * place + 8, 1).unwrap();
    }
    rig.call(actor, Call::PageFlushAll, &[array, FLUSH_RANGES_MAX]).unwrap();
    rig.store(actor.space, base, 2).unwrap();
    rig.call(actor, Call::PageFlushAll, &[array, 4]).unwrap();
    rig = rig.crash().0;
    let holder = rig.holder(base, 77);
    assert_eq!(rig.load(holder.space, base), Ok(2));
}

/// One event looks at as many page tables for sixteen ranges as for one. Where that does not tell whether all is durable, a checkpoint makes it so.
#[test]
fn many_ranges_look_at_as_many_page_tables_as_one() {
    const TABLES: u64 = 60;
    for (count, waits) in [(1, false), (FLUSH_RANGES_MAX, true)] {
        let mut rig = Rig::new(12, 16_000, 8192);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, (TABLES + 1) * SLOT / PAGE, 77);
        let (array, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        for slot in 0..=TABLES {
            rig.store(actor.space, base + slot * SLOT, 1).unwrap();
        }
        rig.checkpoint().unwrap();
        // Behind the range something is dirty.
        rig.store(actor.space, base + TABLES * SLOT, 2).unwrap();
        for place in 0..count {
            rig.store(actor.space, array + 16 * place, base).unwrap();
            rig.store(actor.space, array + 16 * place + 8, TABLES * SLOT / PAGE)
                .unwrap();
        }
        let before = rig.server.checkpoint.begun();
        rig.call(actor, Call::PageFlushAll, &[array, count]).unwrap();
        assert_eq!(rig.server.checkpoint.begun() > before, waits, "{count} ranges");
        rig.check();
    }
}
