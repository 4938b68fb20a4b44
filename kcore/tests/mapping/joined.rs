//! Others go on with the flush of a claimed place, and leave it: that does not end that others wait for it (decision 0213).

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    world::{PAGE, RWX, memory},
};

/// How others end the waiting for the claimer's flush.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Closer {
    /// A gift to the claimed place, which helps to clear it.
    Helper,
    /// A gift to another place that waits for a claim of its own, which helps, too.
    Waiter,
    /// A grant of the top by its space, to one that cannot pay.
    FailingGrant,
    /// A grant of the top by its space, to a place where something stands.
    Grant,
}

/// One page is given to where a hostile space has one that it gives on. Between two pieces one event ends that others wait for the claimer's flush; then the
/// top stays, and is given on again.
fn closed(closer: Closer, how: How, kids: usize, events: usize) -> Option<usize> {
    let mut bench = Bench::new(PAGE, 1);
    let (own, place) = (memory(8, PAGE, RWX), memory(0, PAGE, RWX));
    bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, own));
    bench.map((2, own), (2, place));
    let poor = bench.kernel.free_space_create(bench.spaces[0], 64).expect("a space");
    bench.spaces.push(poor);
    // Where the waiter and the grant would give: a page of space 5 that many have.
    bench.map((2, own), (5, place));
    for _ in 0..200 {
        bench.give_on(5, 6, How::Map);
    }
    for _ in 0..kids {
        bench.give_on(2, 3, How::Map);
    }
    let nodes = bench.kernel.mapping_nodes() as usize;
    let [mut victim, mut waiter] = [Going::default(); 2];
    for piece in 1..2000 {
        if bench.give((1, place), (2, place), how, &mut victim) != Ok(Progress::More) {
            return Some(piece);
        }
        victim = victim.next_piece();
        let mut left = events;
        if bench.kernel.mapping_open().is_some() && closer == Closer::Waiter {
            let given = bench.give((2, own), (5, place), How::Map, &mut waiter);
            waiter = if given == Ok(Progress::More) {
                waiter.next_piece()
            } else {
                Going::default()
            };
            left -= 1;
        } else if bench.kernel.mapping_open().is_some() {
            let (from, to, how) = match closer {
                Closer::Helper | Closer::Waiter => (own, (2, place), How::Map),
                Closer::FailingGrant => (place, (poor_space(&bench), memory(4096, PAGE, RWX)), How::Grant),
                Closer::Grant => (place, (5, place), How::Grant),
            };
            let _ = bench.give((2, from), to, how, &mut Going::default());
            left -= 1;
        }
        while left > 0 && (bench.kernel.mapping_nodes() as usize) < nodes {
            bench.message((2, 0), 3);
            left -= 1;
        }
        bench.kernel.mapping_check().expect("consistent");
    }
    None
}

fn poor_space(bench: &Bench) -> usize {
    bench.spaces.len() - 1
}

fn none_closes(closer: Closer) {
    let mut endless = Vec::new();
    for how in [How::Map, How::Grant] {
        for (kids, events) in [
            (24, 15),
            (24, 5),
            (24, 4),
            (24, 3),
            (30, 15),
            (40, 15),
            (60, 15),
            (30, 8),
            (30, 6),
        ] {
            if closed(closer, how, kids, events).is_none() {
                endless.push((how, kids, events));
            }
        }
    }
    assert!(endless.is_empty(), "{closer:?}: {endless:?}");
}

#[test]
fn a_helper_does_not_close_the_flush_of_a_claimed_place() {
    none_closes(Closer::Helper);
}

#[test]
fn who_waits_for_a_claim_does_not_close_the_flush_of_a_claimed_place() {
    none_closes(Closer::Waiter);
}

#[test]
fn a_grant_that_fails_does_not_close_the_flush_of_a_claimed_place() {
    none_closes(Closer::FailingGrant);
}

#[test]
fn a_grant_does_not_close_the_flush_of_a_claimed_place() {
    none_closes(Closer::Grant);
}

/// A gift's source goes, so that the short ways find that nothing is left to give: its claim ends with it.
#[test]
fn a_claim_ends_with_a_gift_whose_source_is_gone() {
    let mut bench = Bench::new(PAGE, 1);
    let (own, place) = (memory(8, PAGE, RWX), memory(0, PAGE, RWX));
    bench.map((0, memory(SOURCE + 1, PAGE, RWX)), (1, memory(1, PAGE, RWX)));
    bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, own));
    bench.map((2, own), (2, place));
    for _ in 0..60 {
        bench.give_on(2, 3, How::Map);
    }
    let mut going = Going::default();
    assert_eq!(
        bench.give((1, place), (2, place), How::Map, &mut going),
        Ok(Progress::More)
    );
    let mut flush = Going::default();
    while bench.flush(0, memory(SOURCE, PAGE, RWX), RWX, &mut flush) == Progress::More {
        flush = flush.next_piece();
    }
    going = going.next_piece();
    assert_eq!(
        bench.give((1, place), (2, place), How::Map, &mut going),
        Ok(Progress::Done)
    );
    assert_eq!(bench.kernel.mapping_claimed(), None, "nobody's claim");
}
