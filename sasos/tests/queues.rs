//! Clean pages leave memory in the order of the queues: what is read again and again stays beside what is read once, and nothing stays because a queue has lost it.

mod common;

use abi::address::PAGE;
use common::{Actor, Rig};
use kcore::Machine;
use sasos::protection::apd::Apd;
use sim::rng::Rng;

const PASSWORD: u64 = 9;
const FRAMES: u32 = 1_500;

fn value(page: u64) -> u64 {
    0xa11e_0000_0000_0000 | page << 8 | 1
}

/// A start that finds a kept object of so many pages on the disk and nothing of it in memory. With the queues, as a machine has them, or with the hand by address alone.
fn on_disk(queues: bool, pages: u64) -> (Rig, Actor, u64) {
    let mut rig = Rig::new(1, FRAMES, 1 << 15);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, pages, PASSWORD);
    for page in 0..pages {
        rig.store(actor.space, base + page * PAGE, value(page)).unwrap();
    }
    rig.generation().unwrap();
    let (mut rig, _) = rig.crash();
    if queues {
        rig.first_task();
    }
    let actor = rig.holder(base, PASSWORD);
    (rig, actor, base)
}

/// Blocks that are read while these pages are touched.
fn reads(queues: bool, pages: u64, trace: impl Iterator<Item = u64>) -> u64 {
    let (mut rig, actor, base) = on_disk(queues, pages);
    let before = rig.server.store.stats().reads;
    for page in trace {
        assert_eq!(
            rig.load(actor.space, base + page * PAGE),
            Ok(value(page)),
            "page {page}"
        );
    }
    rig.check();
    rig.server.store.stats().reads - before
}

/// Pages of memory, roughly: the rest are tables, and what is left free.
const MEMORY: u64 = FRAMES as u64 - 100;

#[test]
fn an_object_somewhat_larger_than_memory_is_not_read_anew_each_time() {
    const ROUNDS: u64 = 12;
    let pages = MEMORY + MEMORY / 10;
    let trace = || (0..ROUNDS).flat_map(|_| 0..pages);
    let (before, now) = (reads(false, pages, trace()), reads(true, pages, trace()));
    println!("round and round: {before} blocks by address, {now} with the queues");
    assert!(before > (ROUNDS - 1) * pages && now < before / 2, "{before}, {now}");
}

#[test]
fn hot_pages_stay_beside_a_scan_wherever_they_lie() {
    const TURNS: u64 = 40_000;
    let (pages, hot) = (4 * MEMORY, MEMORY / 3);
    let mut all = Vec::new();
    for first in [0, pages - hot] {
        let scanned = if first == 0 { hot } else { 0 };
        let trace = || {
            let mut rng = Rng::new(3);
            (0..TURNS).map(move |turn| match turn % 2 {
                0 => scanned + turn / 2 % (pages - hot),
                _ => first + rng.below(hot),
            })
        };
        all.push([reads(false, pages, trace()), reads(true, pages, trace())]);
    }
    println!("hot pages below and above a scan: {all:?}");
    for [before, now] in all {
        assert!(now <= before + before / 50, "{before}, {now}");
    }
}

/// Pages that were written are in the queues once they are clean; and all that is clean goes if it must, in a queue or not.
#[test]
fn all_that_is_clean_can_go() {
    const PAGES: u64 = 700;
    for queues in [false, true] {
        let (mut rig, actor, base) = on_disk(queues, PAGES);
        for page in 0..PAGES {
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(value(page)));
        }
        for page in (0..PAGES).step_by(3) {
            rig.store(actor.space, base + page * PAGE, value(page)).unwrap();
        }
        let mut gone = 0;
        let mut take = |rig: &mut Rig| {
            loop {
                match rig.server.reclaim(&mut rig.world) {
                    0 => break gone,
                    some => gone += some as u64,
                }
            }
        };
        let clean = take(&mut rig);
        assert!(clean >= PAGES - PAGES.div_ceil(3), "{clean}");
        rig.generation().unwrap();
        assert!(take(&mut rig) >= PAGES);
        for page in 0..PAGES {
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(value(page)));
        }
        assert!(rig.world.frames_free() > 0);
        rig.check();
    }
}
