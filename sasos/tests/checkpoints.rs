//! Checkpoints with many dirty pages: done in pieces, of one moment all the same, and never the end of the system.

mod common;

use abi::{
    Call, Error,
    address::{PAGE, SLOT},
    layout::CONTROL_SCRUB,
};
use common::Rig;
use kcore::{Machine, thread::Resumed, wait::Key};
use sasos::{
    Access, Event, Outcome, Stop,
    durability::{checkpoint::PERIOD_NS, freeze::PIECE_PAGES},
    protection::apd::Apd,
};
use sim::seeds;

#[test]
fn no_event_of_a_checkpoint_takes_long() {
    let mut rig = Rig::new(1, 40_000, 60_000);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 20_000, 0);
    for page in 0..20_000 {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    let number = rig.server.checkpoint_request(&mut rig.world);
    let mut longest = 0;
    while rig.server.checkpoint_reached(number).is_none() {
        rig.world.step_disk();
        rig.server.put_off_check();
        let before = rig.world.kernel.hardware.accesses();
        rig.server.handle(&mut rig.world, Event::Poll);
        longest = longest.max(rig.world.kernel.hardware.accesses() - before);
    }
    assert_eq!(rig.server.checkpoint_reached(number), Some(Ok(())));
    let bound = 20 * PIECE_PAGES as u64;
    assert!(longest < bound, "{longest} accesses in one event");
    rig.check();
}

/// Writes go on while pages are being frozen, and so do clones. After a crash all pages are as they were at one moment.
#[test]
fn a_checkpoint_of_many_pages_is_one_moment() {
    const PAGES: u64 = 10 * PIECE_PAGES as u64;
    seeds::run(40, |seed| {
        let mut rig = Rig::new(seed, 8000, 16_384);
        let actor = rig.actor(Apd::EMPTY);
        let first = rig.kept(actor, PAGES / 2, 9);
        let second = rig.kept(actor, PAGES / 2, 9);
        let at = |page| {
            if page < PAGES / 2 {
                first + page * PAGE
            } else {
                second + (page - PAGES / 2) * PAGE
            }
        };
        rig.checkpoint().unwrap();
        let mut writes: Vec<u64> = (0..PAGES).collect();
        for page in 0..PAGES {
            rig.store(actor.space, at(page), page + 1).unwrap();
        }
        let (mut met, mut clones) = (0, Vec::new());
        for _ in 0..300 {
            match rig.rng.below(60) {
                0..20 => rig.move_disk(),
                20..22 => {
                    rig.server.checkpoint_request(&mut rig.world);
                }
                22..24 => {
                    let (clone, _) = rig.call(actor, Call::ObjClone, &[first, 0]).unwrap();
                    clones.push((clone, writes.len() as u64));
                }
                _ => {
                    let page = rig.rng.below(PAGES);
                    met += u64::from(rig.server.checkpoint.is_freezing());
                    writes.push(page);
                    rig.store(actor.space, at(page), writes.len() as u64).unwrap();
                }
            }
        }
        assert!(met > 0, "no write met a checkpoint in the phase of freezing");
        rig.check();
        for (clone, then) in clones {
            let page = rig.rng.below(PAGES / 2);
            let last = writes[..then as usize].iter().rposition(|&at| at == page);
            let found = rig.load(actor.space, clone + page * PAGE);
            assert_eq!(found, Ok(last.unwrap() as u64 + 1), "a clone has what was there");
        }
        let (mut rig, _) = rig.crash();
        let [one, other] = [first, second].map(|base| rig.holder(base, 9));
        let found: Vec<u64> = (0..PAGES)
            .map(|page| {
                let actor = if page < PAGES / 2 { one } else { other };
                rig.load(actor.space, at(page)).unwrap()
            })
            .collect();
        let moment = *found.iter().max().unwrap() as usize;
        let mut expected = vec![0; PAGES as usize];
        for (index, &page) in writes[..moment].iter().enumerate() {
            expected[page as usize] = index as u64 + 1;
        }
        assert_eq!(found, expected);
    });
}

/// A call that would drop, replace or limit pages that are being frozen waits until that is over, and so does one that deletes them.
#[test]
fn what_is_being_frozen_does_not_change() {
    seeds::run(20, |seed| {
        let mut rig = Rig::new(seed, 8000, 16_384);
        let actor = rig.actor(Apd::EMPTY);
        let pages = 6 * PIECE_PAGES as u64;
        let base = rig.kept(actor, pages, 9);
        let (scratch, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
        for page in 0..pages {
            rig.store(actor.space, base + page * PAGE, 1 + page).unwrap();
        }
        rig.server.checkpoint_request(&mut rig.world);
        assert!(rig.server.checkpoint.is_freezing());
        let calls: [(Call, &[u64]); 4] = [
            (Call::PageUnMap, &[base, pages, 0]),
            (Call::PageCopy, &[scratch, base, pages]),
            (Call::ObjResize, &[base, PAGE]),
            (Call::ObjDelete, &[base]),
        ];
        let (call, arguments) = calls[(seed % 4) as usize];
        let begun = rig.begin(actor, call, arguments, kcore::thread::Resumed::First);
        assert_eq!(begun, None, "{call:?} waits");
        // The object and its content are those of the moment, although the call came before its end.
        while rig.server.checkpoint.is_freezing() {
            rig.server.handle(&mut rig.world, Event::Poll);
        }
        while rig.server.checkpoint.is_running() {
            rig.move_disk();
        }
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 9);
        for page in 0..pages {
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(1 + page));
        }
    });
}

/// A thread that only reads, or writes what is its own, is not held up.
#[test]
fn freezing_stops_nobody_who_does_not_write_kept_pages() {
    let mut rig = Rig::new(3, 8000, 16_384);
    let actor = rig.actor(Apd::EMPTY);
    let pages = 6 * PIECE_PAGES as u64;
    let base = rig.kept(actor, pages, 0);
    let (own, _) = rig.call(actor, Call::ObjCreate, &[pages * PAGE, 0]).unwrap();
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, 1 + page).unwrap();
    }
    rig.server.checkpoint_request(&mut rig.world);
    assert!(rig.server.checkpoint.is_freezing());
    for page in 0..pages {
        rig.store(actor.space, own + page * PAGE, 5).unwrap();
        assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(1 + page));
    }
    rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    assert!(rig.server.checkpoint.is_freezing(), "nobody has waited");
    rig.checkpoint().unwrap();
    rig.check();
}

/// Who writes a frozen page, or one that is not dirty, freezes others for it: he waits for nobody, and the phase ends however much he writes. A page whose frame a
/// clone has, too, waits for the end of the phase.
#[test]
fn a_writer_pays_for_freezing_and_does_not_wait() {
    seeds::run(20, |seed| {
        let mut rig = Rig::new(seed, 8000, 16_384);
        let actor = rig.actor(Apd::EMPTY);
        let pages = 30 * PIECE_PAGES as u64;
        let base = rig.kept(actor, pages, 9);
        // Some are clean, and some are not there.
        for page in 0..pages / 8 {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
        }
        rig.checkpoint().unwrap();
        for page in pages / 8..pages - 8 {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
        }
        rig.server.checkpoint_request(&mut rig.world);
        assert!(rig.server.checkpoint.is_freezing());
        let mut written = 0;
        while rig.server.checkpoint.is_freezing() {
            let page = rig.rng.below(pages);
            match rig
                .server
                .touch(&mut rig.world, actor.space, base + page * PAGE, Access::Write)
            {
                Ok(()) => written += 1,
                Err(stop) => assert_eq!(stop, Stop::Again),
            }
            rig.check();
            assert!(written < pages, "the phase does not end");
        }
        assert!(written > 4, "{written}");
        let number = rig.server.checkpoint.begun();
        while rig.server.checkpoint_reached(number).is_none() {
            rig.move_disk();
        }
        assert_eq!(rig.server.checkpoint_reached(number), Some(Ok(())));
        rig.check();
        rig.generation().unwrap();
        // A generation of the same pages that nobody writes meanwhile leaves as much.
        let left = rig.server.store.stats().reserved;
        for page in 0..pages {
            rig.store(actor.space, base + page * PAGE, 2).unwrap();
        }
        rig.generation().unwrap();
        assert_eq!(
            left,
            rig.server.store.stats().reserved,
            "what was promised twice comes back"
        );
    });
}

/// A page was frozen and written again when a clone comes: the clone keeps what it got, and so does the checkpoint.
#[test]
fn a_clone_keeps_what_a_frozen_page_held() {
    let mut rig = Rig::new(5, 8000, 16_384);
    let actor = rig.actor(Apd::EMPTY);
    let pages = 30 * PIECE_PAGES as u64;
    let base = rig.kept(actor, pages, 9);
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, 1).unwrap();
    }
    rig.server.checkpoint_request(&mut rig.world);
    rig.store(actor.space, base, 2).unwrap();
    let (clone, _) = rig.call(actor, Call::ObjClone, &[base, 0]).unwrap();
    assert!(rig.server.checkpoint.is_freezing());
    let stop = loop {
        match rig.server.touch(&mut rig.world, actor.space, base, Access::Write) {
            Err(Stop::Again) => {}
            other => break other,
        }
    };
    assert_eq!(stop, Err(Stop::Wait(Key::Checkpoint)));
    rig.store(actor.space, base, 3).unwrap();
    assert_eq!(rig.load(actor.space, clone), Ok(2));
    rig.check();
    while rig.server.checkpoint.is_running() {
        rig.move_disk();
    }
    let (mut rig, _) = rig.crash();
    let actor = rig.holder(base, 9);
    assert_eq!(rig.load(actor.space, base), Ok(2));
}

/// What is frozen and was written again is dirty once more when the checkpoint fails, and is written by the next one.
#[test]
fn a_page_written_while_it_was_frozen_is_not_lost_by_a_failure() {
    seeds::run(20, |seed| {
        let mut rig = Rig::new(seed, 8000, 16_384);
        let actor = rig.actor(Apd::EMPTY);
        let pages = 30 * PIECE_PAGES as u64;
        let base = rig.kept(actor, pages, 9);
        let mut last = vec![1; pages as usize];
        for page in 0..pages {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
        }
        let promised = rig.server.store.stats().reserved;
        rig.server.checkpoint_request(&mut rig.world);
        for stamp in 2..8 {
            assert!(rig.server.checkpoint.is_freezing());
            let page = rig.rng.below(pages);
            rig.store(actor.space, base + page * PAGE, stamp).unwrap();
            last[page as usize] = stamp;
        }
        // No heap for the next piece.
        let heap = core::mem::replace(&mut rig.world.kernel.hardware.heap_left, 0);
        rig.server.handle(&mut rig.world, Event::Poll);
        assert!(!rig.server.checkpoint.is_freezing());
        rig.world.kernel.hardware.heap_left = heap;
        while rig.server.checkpoint.is_running() {
            rig.move_disk();
        }
        assert!(rig.server.checkpoint.last_failed());
        assert_eq!(
            rig.server.store.stats().reserved,
            promised,
            "each page has its block again"
        );
        rig.check();
        rig.checkpoint().unwrap();
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 9);
        for page in 0..pages {
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(last[page as usize]));
        }
    });
}

/// A flush goes ahead of a checkpoint, unless one of its own pages is on its way with that and was not written since.
#[test]
fn a_flush_goes_ahead_of_a_checkpoint() {
    const PAGES: u64 = 1200;
    let mut ahead = 0;
    seeds::run(20, |seed| {
        let mut rig = Rig::new(seed, 8000, 16_384);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, PAGES, 9);
        rig.checkpoint().unwrap();
        for page in 0..PAGES {
            rig.store(actor.space, base + page * PAGE, 1).unwrap();
        }
        rig.server.checkpoint_request(&mut rig.world);
        while rig.server.checkpoint.is_freezing() {
            rig.server.handle(&mut rig.world, Event::Poll);
        }
        let flush = |rig: &mut Rig, page, resumed| {
            rig.event(actor, Call::PageFlush, [base + page * PAGE, 1, 0, 0, 0, 0], resumed)
        };
        rig.store(actor.space, base, 2).unwrap();
        let outcome = flush(&mut rig, 1, Resumed::First);
        assert!(matches!(outcome, Outcome::Block(Key::Checkpoint, _)), "{outcome:?}");
        let mut outcome = flush(&mut rig, 0, Resumed::First);
        while let Outcome::Block(key, _) = outcome {
            assert!(matches!(key, Key::Sync(_)), "{key:?}");
            rig.move_disk();
            outcome = flush(&mut rig, 0, Resumed::Woken);
        }
        assert_eq!(outcome, Outcome::Return(Ok((0, 0))));
        let is_running = rig.server.checkpoint.is_running();
        ahead += u32::from(is_running);
        rig.check();
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 9);
        assert_eq!(rig.load(actor.space, base), Ok(2));
        let other = rig.load(actor.space, base + PAGE);
        assert!(other == Ok(1) || is_running && other == Ok(0), "{other:?}");
    });
    assert!(ahead > 15, "{ahead} of 20 went ahead");
}

/// Without heap for the list a checkpoint fails, and the next one that has it holds everything.
#[test]
fn a_checkpoint_without_heap_loses_nothing() {
    let mut rig = Rig::new(4, 8000, 16_384);
    let actor = rig.actor(Apd::EMPTY);
    let pages = 5 * PIECE_PAGES as u64;
    let base = rig.kept(actor, pages, 9);
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, 1 + page).unwrap();
    }
    let promised = rig.server.store.stats().reserved;
    rig.server.checkpoint_request(&mut rig.world);
    rig.world.kernel.hardware.heap_left = 100;
    assert_eq!(rig.checkpoint(), Err(Error::DiskError));
    assert_eq!(rig.server.pager.dirty, pages);
    assert_eq!(rig.server.store.stats().reserved, promised);
    rig.check();
    rig.world.kernel.hardware.heap_left = 1 << 30;
    rig.store(actor.space, base, 77).unwrap();
    rig.checkpoint().unwrap();
    let frames = rig.world.frames_free();
    let (mut rig, _) = rig.crash();
    assert!(frames > 0);
    let actor = rig.holder(base, 9);
    assert_eq!(rig.load(actor.space, base), Ok(77));
    for page in 1..pages {
        assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(1 + page));
    }
}

/// More pages than one sync takes are flushed by a checkpoint, and are as durable.
#[test]
fn a_large_flush_is_durable() {
    let mut rig = Rig::new(5, 8000, 16_384);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 500, 9);
    for page in 0..500 {
        rig.store(actor.space, base + page * PAGE, 1 + page).unwrap();
    }
    rig.call(actor, Call::PageFlush, &[base, 500]).unwrap();
    let (mut rig, _) = rig.crash();
    let actor = rig.holder(base, 9);
    for page in 0..500 {
        assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(1 + page));
    }
}

/// A page that is written and never flushed is on the disk after a while, by the clock alone.
#[test]
fn time_alone_makes_a_checkpoint() {
    let mut rig = Rig::new(11, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 2, 7);
    rig.settle();
    rig.store(actor.space, base, 5).unwrap();
    // Steps of a millisecond.
    for _ in 0..3000 {
        rig.move_disk();
    }
    let (mut rig, _) = rig.crash();
    let holder = rig.holder(base, 7);
    assert_eq!(rig.load(holder.space, base), Ok(5));
}

/// The blocks of a removed object are free a little later, without anybody doing anything; then there is no further checkpoint.
#[test]
fn what_is_removed_is_free_soon() {
    let mut rig = Rig::new(49, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 500, 0);
    for page in 0..500 {
        rig.store(actor.space, base + page * PAGE, page).unwrap();
    }
    rig.checkpoint().unwrap();
    rig.settle();
    let free = rig.server.store.stats().free;
    rig.call(actor, Call::ObjDelete, &[base]).unwrap();
    let later = |rig: &mut Rig| {
        for _ in 0..5 {
            rig.world.kernel.hardware.now_ns += PERIOD_NS;
            rig.server.handle(&mut rig.world, Event::Poll);
            rig.settle();
        }
        rig.server.store.stats()
    };
    let stats = later(&mut rig);
    assert!(
        stats.free >= free + 500,
        "{} blocks were free, {} are",
        free,
        stats.free
    );
    assert_eq!(later(&mut rig).generation, stats.generation);
    rig.check();
}

/// A checkpoint finds the one dirty page behind thousands of page tables in many events.
#[test]
fn freezing_looks_at_page_tables_in_pieces() {
    const TABLES: u64 = 2000;
    let mut rig = Rig::new(51, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[TABLES * SLOT, 5]).unwrap();
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    for slot in 0..TABLES {
        rig.load(actor.space, base + slot * SLOT).unwrap();
    }
    rig.checkpoint().unwrap();
    rig.settle();
    rig.store(actor.space, base + (TABLES - 1) * SLOT, 1).unwrap();
    rig.server.checkpoint_request(&mut rig.world);
    let mut events = 0;
    while rig.server.pager.dirty > 0 {
        rig.server.handle(&mut rig.world, Event::Poll);
        events += 1;
        assert!(events < 1000, "it never finds it");
    }
    assert!(events > 12, "{events} events");
    rig.settle();
    rig.check();
}

/// A flush of a range with many page tables does not look into all of them: a checkpoint does its work.
#[test]
fn a_flush_over_many_page_tables_is_a_checkpoint() {
    let mut rig = Rig::new(50, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[400 * SLOT, 5]).unwrap();
    rig.call(actor, Call::KeepObject, &[base]).unwrap();
    for slot in 0..300 {
        rig.load(actor.space, base + slot * SLOT).unwrap();
    }
    rig.checkpoint().unwrap();
    for (tables, is_checkpoint) in [(50, false), (200, true)] {
        rig.store(actor.space, base + 299 * SLOT, tables).unwrap();
        rig.settle();
        let before = rig.server.checkpoint.begun();
        rig.call(actor, Call::PageFlush, &[base, tables * SLOT / PAGE]).unwrap();
        let dirty = rig.server.pager.dirty;
        assert_eq!(rig.server.checkpoint.begun() > before, is_checkpoint, "{tables} tables");
        assert_eq!(dirty, u64::from(!is_checkpoint));
    }
    rig.check();
}

/// A scrub goes on with the clock, a bounded number of blocks in a period, and names what is damaged. Only who may govern the system begins one.
#[test]
fn a_scrub_goes_on_with_the_clock() {
    const PAGES: u64 = 600;
    let mut rig = Rig::new(53, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, PAGES, 0);
    for page in 0..PAGES {
        rig.store(actor.space, base + page * PAGE, page + 1).unwrap();
    }
    rig.checkpoint().unwrap();
    rig.settle();
    assert_eq!(
        rig.call(actor, Call::SystemControl, &[CONTROL_SCRUB, 2]),
        Err(Error::BadArgument)
    );
    assert!(rig.call(actor, Call::SystemControl, &[CONTROL_SCRUB, 1]).is_err());
    rig.server.ask_for_scrub(&mut rig.world);
    let mut periods = 0;
    while rig.server.store_report().scrubbing != 0 {
        let before = rig.server.store_report();
        rig.world.kernel.hardware.now_ns += PERIOD_NS;
        rig.server.handle(&mut rig.world, Event::Poll);
        rig.settle();
        let report = rig.server.store_report();
        assert!(report.scrub_seen - before.scrub_seen <= 300, "{report:?}");
        periods += 1;
        assert!(periods < 20, "{report:?}");
    }
    let report = rig.server.store_report();
    assert!(report.scrub_seen >= PAGES && report.scrubs == 1, "{report:?}");
    assert_eq!((report.scrub_damaged, report.damaged), (0, 0));
    assert!(periods >= 3, "{periods}");
    rig.check();
}
