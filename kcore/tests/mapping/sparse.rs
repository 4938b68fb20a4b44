//! Ranges of which the giver has few pages: what it does not have costs next to nothing.

use kcore::bare::mapping::{How, Progress};

use crate::world::{PAGE, RWX, World, give, memory};

/// Calls until a space has all that another one has of a slot, which is each page of so many. Both have tables for it.
fn calls(each: u64) -> u64 {
    let mut world = World::new(&[(0, 512)], &[0, 1, 8, 100, 511], 1 << 20);
    for _ in 0..2 {
        world.create(0, 50_000).expect("a space");
    }
    let page = |number| memory(number, PAGE, RWX);
    for number in (0..512).step_by(each as usize) {
        world
            .run(&give(How::Map, 0, page(number), 1, page(number)))
            .expect("it goes");
    }
    world.run(&give(How::Map, 1, page(0), 2, page(0))).expect("it goes");
    let slot = || memory(0, 21, RWX);
    let op = give(How::Map, 1, slot(), 2, slot());
    let mut calls = 1;
    while world.step(&op).expect("it goes") == Progress::More {
        calls += 1;
    }
    calls
}

#[test]
fn absent_pages_cost_next_to_nothing() {
    // Sixteen pages are what one call gives at most.
    for (each, most) in [(512, 1), (64, 2), (16, 4), (8, 6), (1, 33)] {
        let calls = calls(each);
        assert!(calls <= most, "each page of {each}: {calls} calls");
    }
}
