//! A flush stands open until its own caller comes again, and others wait for it as long as their patience lasts. Another flush that joins it, uses up its own
//! piece before it comes to it, and is cancelled must not make them wait longer.

use abi::Rights;
use kcore::bare::{
    going::Going,
    mapping::{How, Own, Progress},
};

use crate::{
    bench::{Bench, Operation, SOURCE},
    world::{PAGE, RWX, SLOT, memory},
};

fn own_flush(bench: &mut Bench, what: (u64, u8), rights: Rights, going: &mut Going) -> Progress {
    let space = bench.spaces[2];
    let progress = bench
        .kernel
        .flush(space, memory(what.0, what.1, RWX), (rights, Own::Too), going)
        .expect("a flush");
    *going = going.next_piece();
    progress
}

/// Space 1 gave a slot to space 2. A thread of space 2 begins to flush W from its own slot, and never goes on. Every `every` pieces of the victim, another thread
/// of space 2 begins the same flush, but from `before` pages before the slot on, and is cancelled.
fn lengthened(victim: Operation, before: u64, every: usize, most: usize) -> Option<usize> {
    let mut bench = Bench::new(SLOT, 1);
    let slot = memory(512, SLOT, RWX);
    bench.map((1, memory(0, SLOT, RWX)), (2, slot));
    for page in 512 - before..512 {
        bench.map(
            (0, memory(SOURCE + 1024 + page, PAGE, RWX)),
            (2, memory(page, PAGE, RWX)),
        );
    }
    bench.map((0, memory(SOURCE + 2048, SLOT, RWX)), (4, memory(0, SLOT, RWX)));
    for kid in 0..40 {
        bench.map((2, memory(512, PAGE, RWX)), (3, memory(5000 + kid, PAGE, RWX)));
    }
    let mut first = Going::default();
    assert_eq!(
        own_flush(&mut bench, (512, SLOT), Rights::W, &mut first),
        Progress::More
    );
    assert!(bench.kernel.mapping_open().is_some());
    let mut going = Going::default();
    for piece in 1..most {
        if bench.finishes(victim, &mut going) {
            bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        if piece % every == 0 {
            let mut second = Going::default();
            // The pages before the slot and the slot itself: an aligned range of 1,024 pages.
            let _ = own_flush(&mut bench, (0, SLOT + 1), Rights::W, &mut second);
            bench.cancel(&mut second);
        }
    }
    bench.kernel.mapping_check().expect("consistent");
    None
}

#[test]
fn joining_a_flush_does_not_lengthen_the_waiting_for_it() {
    let mut endless = Vec::new();
    let [slot, from] = [1, 4].map(|space| (space, memory(0, SLOT, RWX)));
    for victim in [
        Operation::Flush(RWX, slot),
        Operation::Flush(Rights::W, (1, memory(0, PAGE, RWX))),
        Operation::Give(How::Map, from, slot),
        Operation::Give(How::Grant, from, slot),
        Operation::SpaceEnd(1),
    ] {
        for before in 0..10 {
            for every in [1, 150] {
                let ended = lengthened(victim, before, every, 20_000);
                if ended.is_none() {
                    endless.push((victim, before, every));
                }
            }
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}
