//! A flush waits for the one that stands open, gets the next turn to stand open, and never takes it. It must not hold up an operation that is older than it and
//! that never met the flush that stood open.

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, Operation, SOURCE},
    world::{PAGE, RWX, SLOT, memory},
};

/// The other operations are those of a thread of low priority, which goes on only when the attacker wants it to. Every `renew` pieces of the victim, the attack
/// is made anew: the flush that has the next turn is cancelled; a flush X stands open; another flush waits for X and so gets the next turn; X ends.
/// Space `below` has the victim's page and gives it on.
fn held_up(
    victim: Operation,
    below: usize,
    (kids, events, renew): (usize, usize, usize),
    most: usize,
) -> Option<usize> {
    let kid = if below == 2 { 3 } else { 6 };
    let mut bench = Bench::new(PAGE, below);
    let page = memory(0, PAGE, RWX);
    if matches!(victim, Operation::Give(_, from, _) if from == (1, memory(1024, SLOT, RWX))) {
        bench.map((0, memory(SOURCE + 1024, SLOT, RWX)), (1, memory(1024, SLOT, RWX)));
    }
    // Space 4 gives a page to space 5, that to space 6, and that gives it on. Flush X takes it from those below space 5, the flush that waits for X from space 5.
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
        if bench.finishes(victim, &mut going) {
            bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        let mut left = i64::try_from(events).expect("a few");
        for _ in 0..2 {
            bench.message((below, 0), kid);
            left -= 1;
        }
        if (piece - 1) % renew != 0 {
            continue;
        }
        // The flush that waits is cancelled.
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
            // The victim's flush stands open.
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
    let [given, taken] = [1, 2].map(|space| (space, memory(0, PAGE, RWX)));
    for (victim, below) in [
        (Operation::Flush(RWX, given), 2),
        (Operation::Give(How::Map, given, taken), 2),
        (Operation::Give(How::Grant, given, taken), 2),
        (
            Operation::Give(How::Map, (1, memory(1024, SLOT, RWX)), (2, memory(0, SLOT, RWX))),
            2,
        ),
        (Operation::SpaceEnd(2), 2),
        (Operation::SpaceEnd(2), 3),
    ] {
        for times in [(40, 15, 1), (40, 15, 60), (40, 15, 900)] {
            if held_up(victim, below, times, 20_000).is_none() {
                endless.push((victim, below, times));
            }
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}
