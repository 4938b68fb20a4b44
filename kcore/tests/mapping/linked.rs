//! Slots that a space links are passed by whoever gives or flushes a range of it. Each of them is paid for, however many there are.

use kcore::bare::{
    going::Going,
    mapping::{How, Own, Progress},
};

use crate::{
    bench::Bench,
    world::{PAGE, RWX, SLOT, memory},
};

/// Slots that are linked: two gibibytes.
const SLOTS: u64 = 1024;
/// Slots that one event may pass: each is some 200 instructions, of 20,000.
const SLOTS_MAX: usize = 64;

/// Space 2 links so many slots of space 1, in which nothing is.
fn linked() -> Bench {
    let mut bench = Bench::new(PAGE, 1);
    for slot in 0..SLOTS {
        let slot = memory(slot * 512, SLOT, RWX);
        assert_eq!(
            bench.give((1, slot), (2, slot), How::Link, &mut Going::default()),
            Ok(Progress::Done)
        );
    }
    bench
}

/// How many pieces something takes.
fn pieces(mut piece: impl FnMut(&mut Going) -> Progress) -> usize {
    let (mut going, mut pieces) = (Going::default(), 1);
    while piece(&mut going) == Progress::More {
        going = going.next_piece();
        pieces += 1;
    }
    pieces
}

#[test]
fn slots_that_are_linked_are_passed_in_pieces() {
    let mut bench = linked();
    let least = SLOTS as usize / SLOTS_MAX;
    let (all, there) = (memory(0, SLOT + 10, RWX), memory(1 << 20, SLOT + 10, RWX));
    for how in [How::Map, How::Grant] {
        let given = pieces(|going| bench.give((2, all), (3, there), how, going).expect("nothing is given"));
        assert!(given >= least, "{how:?} of {SLOTS} slots: {given} pieces");
    }
    let onward = pieces(|going| {
        bench
            .give((2, all), (3, all), How::Link, going)
            .expect("nothing is given")
    });
    assert!(onward >= least, "links of {SLOTS} slots: {onward} pieces");
    let space = bench.spaces[2];
    let flushed = pieces(|going| {
        bench
            .kernel
            .flush(space, all, (RWX, Own::Kept), going)
            .expect("a flush")
    });
    assert!(flushed >= least, "a flush of {SLOTS} slots: {flushed} pieces");
}
