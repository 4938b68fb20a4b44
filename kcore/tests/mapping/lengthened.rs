//! A flush stands open until its own caller comes again, for others as long as their patience lasts. One that joins it, uses up its piece before it, and is
//! cancelled, is not to lengthen that.

use abi::Rights;
use kcore::bare::{
    going::Going,
    mapping::{How, Own, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    world::{PAGE, RWX, SLOT, memory},
};

/// Whose operation others keep from its end.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Victim {
    Flush,
    FlushWrites,
    Map,
    Grant,
    SpaceEnd,
}

fn own_flush(bench: &mut Bench, what: (u64, u8), rights: Rights, going: &mut Going) -> Progress {
    let space = bench.spaces[2];
    let progress = bench
        .kernel
        .flush(space, memory(what.0, what.1, RWX), (rights, Own::Too), going)
        .expect("a flush");
    *going = going.next_piece();
    progress
}

/// Space 1 gave a slot to space 2. A thread of space 2 begins to take W from its own slot, and stays where it is. Another one does so again and again, from
/// some pages before the slot on, and is cancelled.
fn lengthened(victim: Victim, before: u64, every: usize, most: usize) -> Option<usize> {
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
        let done = match victim {
            Victim::Flush => bench.flush(1, memory(0, SLOT, RWX), RWX, &mut going) == Progress::Done,
            Victim::FlushWrites => bench.flush(1, memory(0, PAGE, RWX), Rights::W, &mut going) == Progress::Done,
            Victim::SpaceEnd => {
                let space = bench.spaces[1];
                bench.kernel.free_space_destroy(space).expect("a space") == Progress::Done
            }
            Victim::Map | Victim::Grant => {
                let how = if victim == Victim::Map { How::Map } else { How::Grant };
                bench.give((4, memory(0, SLOT, RWX)), (1, memory(0, SLOT, RWX)), how, &mut going) != Ok(Progress::More)
            }
        };
        if done {
            bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        going = going.next_piece();
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
fn who_joins_a_flush_does_not_lengthen_the_waiting_for_it() {
    let mut endless = Vec::new();
    for victim in [
        Victim::Flush,
        Victim::FlushWrites,
        Victim::Map,
        Victim::Grant,
        Victim::SpaceEnd,
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
