//! A younger one that has the turn to stand open, and never takes it, is not to hold up an older flush that never met the one that stood open.

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    world::{PAGE, RWX, SLOT, memory},
};

/// Whose operation others keep from its end.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Victim {
    Flush,
    Map,
    Grant,
    LargeMap,
    SpaceEnd,
    SpaceEndBelow,
}

/// Others have the turn, by a thread of low priority that goes on only when it is asked to. Between two pieces of the victim: it is cancelled, a second flush
/// stands open, it waits for that one again, which ends. `renew`: how many pieces of the victim later it is done again.
#[expect(clippy::too_many_lines, reason = "one attack, step by step")]
fn held_up(victim: Victim, kids: usize, events: usize, renew: usize, most: usize) -> Option<usize> {
    // Who gives the page on, and to whom.
    let (below, kid) = if victim == Victim::SpaceEndBelow {
        (3, 6)
    } else {
        (2, 3)
    };
    let mut bench = Bench::new(PAGE, below);
    let page = memory(0, PAGE, RWX);
    let large = victim == Victim::LargeMap;
    if large {
        bench.map((0, memory(SOURCE + 1024, SLOT, RWX)), (1, memory(1024, SLOT, RWX)));
    }
    // What X takes: space 5, which has it from 4, gave it to 6, which gives it on. The one that waits would take it from 5.
    bench.map((0, memory(SOURCE + 600, PAGE, RWX)), (4, page));
    bench.map((4, page), (5, page));
    bench.map((5, page), (6, page));
    for _ in 0..kids.div_ceil(8) {
        bench.message((below, 0), kid);
    }
    let mut fed = 0_u64;
    let mut feed = |bench: &mut Bench| {
        for _ in 0..8 {
            fed = (fed + 1) % 4000;
            let to = memory(100_000 + fed, PAGE, RWX);
            let _ = bench.give((6, page), (5, to), How::Map, &mut Going::default());
        }
    };
    for _ in 0..6 {
        feed(&mut bench);
    }
    let mut going = Going::default();
    let [mut x, mut waits] = [Going::default(); 2];
    let _ = bench.flush(5, page, RWX, &mut x);
    x = x.next_piece();
    let _ = bench.flush(4, page, RWX, &mut waits);
    waits = waits.next_piece();
    while bench.flush(5, page, RWX, &mut x) == Progress::More {
        x = x.next_piece();
    }
    x = Going::default();
    bench.map((5, page), (6, page));
    for _ in 0..4 {
        feed(&mut bench);
    }
    for piece in 1..most {
        let done = match victim {
            Victim::Flush => bench.flush(1, page, RWX, &mut going) == Progress::Done,
            Victim::SpaceEnd | Victim::SpaceEndBelow => {
                let space = bench.spaces[2];
                bench.kernel.free_space_destroy(space).expect("a space") == Progress::Done
            }
            Victim::Map | Victim::Grant => {
                let how = if victim == Victim::Map { How::Map } else { How::Grant };
                bench.give((1, page), (2, page), how, &mut going) != Ok(Progress::More)
            }
            Victim::LargeMap => {
                let (from, to) = (memory(1024, SLOT, RWX), memory(0, SLOT, RWX));
                bench.give((1, from), (2, to), How::Map, &mut going) != Ok(Progress::More)
            }
        };
        if done {
            bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        going = going.next_piece();
        let mut left = i64::try_from(events).expect("a few");
        for _ in 0..2 {
            bench.message((below, 0), kid);
            left -= 1;
        }
        if (piece - 1) % renew != 0 {
            continue;
        }
        // The one that waits is cancelled.
        bench.cancel(&mut waits);
        left -= 1;
        for _ in 0..2 {
            if bench.flush(5, page, RWX, &mut x) == Progress::Done {
                x = Going::default();
            } else {
                x = x.next_piece();
            }
            left -= 1;
            if bench.kernel.mapping_open().is_some() {
                break;
            }
        }
        if bench.open().is_none_or(|(space, _)| space != 5) {
            // The victim was first.
            continue;
        }
        let _ = bench.flush(4, page, RWX, &mut waits);
        waits = waits.next_piece();
        left -= 1;
        while bench.flush(5, page, RWX, &mut x) == Progress::More {
            x = x.next_piece();
            left -= 1;
        }
        x = Going::default();
        let _ = bench.give((5, page), (6, page), How::Map, &mut Going::default());
        left -= 2;
        for _ in 0..4 {
            feed(&mut bench);
            left -= 1;
        }
        assert!(left >= 0, "{left}");
    }
    bench.kernel.mapping_check().expect("consistent");
    None
}

#[test]
fn a_younger_one_does_not_hold_up_an_older_flush() {
    let mut endless = Vec::new();
    for victim in [
        Victim::Flush,
        Victim::Map,
        Victim::Grant,
        Victim::LargeMap,
        Victim::SpaceEnd,
        Victim::SpaceEndBelow,
    ] {
        for (kids, events, renew) in [(40, 15, 1), (40, 15, 60), (40, 15, 900)] {
            let ended = held_up(victim, kids, events, renew, 20_000);
            if ended.is_none() {
                endless.push((victim, kids, events, renew));
            }
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}
