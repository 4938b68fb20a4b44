//! The turn to stand open comes to a flush, though an older one never takes its own (decision 0208).

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    world::{PAGE, RWX, memory, walk},
};

const BURNERS: u64 = 6;
/// Messages between two pieces of the victim that give on what it takes.
const MESSAGES: u64 = 2;

struct Renewed {
    bench: Bench,
    burners: Vec<Going>,
    given: Vec<u64>,
    held: Vec<i64>,
}

impl Renewed {
    fn new(kids: usize) -> Self {
        let bench = Bench::new(PAGE, 2);
        let none = |_| 0;
        let mut all = Self {
            bench,
            burners: vec![Going::default(); BURNERS as usize],
            given: (0..BURNERS).map(none).collect(),
            held: vec![0; BURNERS as usize],
        };
        for _ in 0..kids.div_ceil(8) {
            all.bench.message((2, 0), 3);
        }
        for index in 0..BURNERS {
            let page = memory(index, PAGE, RWX);
            all.bench.map((0, memory(SOURCE + 64 + index, PAGE, RWX)), (4, page));
            all.bench.map((4, page), (5, page));
            for _ in 0..480 {
                all.feed(index);
            }
        }
        all
    }

    fn nodes(&self) -> i64 {
        self.bench.kernel.mapping_nodes().into()
    }

    fn feed(&mut self, index: u64) {
        let before = self.nodes();
        if walk(&self.bench.kernel, self.bench.spaces[5], index).is_none() {
            let page = memory(index, PAGE, RWX);
            let _ = self.bench.give((4, page), (5, page), How::Map, &mut Going::default());
            self.held[index as usize] = 0;
            return;
        }
        for _ in 0..8 {
            let given = &mut self.given[index as usize];
            *given = (*given + 1) % 4000;
            let target = memory(4096 * (index + 1) + *given, PAGE, RWX);
            let from = (5, memory(index, PAGE, RWX));
            let _ = self.bench.give(from, (6, target), How::Map, &mut Going::default());
        }
        self.held[index as usize] += self.nodes() - before;
    }

    fn burn(&mut self, index: u64) {
        let before = self.nodes();
        let mut going = self.burners[index as usize];
        let more = self.bench.flush(4, memory(index, PAGE, RWX), RWX, &mut going) == Progress::More;
        self.burners[index as usize] = if more { going.next_piece() } else { Going::default() };
        assert!(index > 0 || more, "the first one is at its end");
        self.held[index as usize] += self.nodes() - before;
    }

    fn best(&self) -> (u64, u64) {
        let there = (1..BURNERS).filter(|&index| walk(&self.bench.kernel, self.bench.spaces[5], index).is_some());
        let most = there.max_by_key(|&index| self.held[index as usize]);
        let least = (1..BURNERS).min_by_key(|&index| self.held[index as usize]);
        (most.unwrap_or(1), least.unwrap_or(1))
    }
}

fn renewed(kids: usize, events: u64, most: usize) -> Option<usize> {
    let mut all = Renewed::new(kids);
    // One stands open, and the first one waits.
    all.burn(1);
    assert_eq!(all.bench.open(), Some((4, 1)));
    all.burn(0);
    all.burn(0);
    let mut victim = Going::default();
    for piece in 1..most {
        let (open, before) = (all.bench.open(), all.nodes());
        let progress = all.bench.flush(1, memory(0, PAGE, RWX), RWX, &mut victim);
        if let Some((4, index)) = open {
            all.held[index as usize] += all.nodes() - before;
        }
        if progress == Progress::Done {
            return Some(piece);
        }
        victim = victim.next_piece();
        let mut left = events;
        // Whoever has the page gives it on.
        for _ in 0..MESSAGES {
            let (open, before) = (all.bench.open(), all.nodes());
            let given = all.bench.message((2, 0), 3);
            if let Some((4, index)) = open {
                all.held[index as usize] += all.nodes() - before - i64::try_from(given).expect("a few");
            }
            left -= 1;
        }
        let mut renewed = false;
        while left > 0 {
            left -= 1;
            let (rich, poor) = all.best();
            match all.bench.open() {
                Some((4, index))
                    if !renewed
                        && index > 0
                        && all.held[index as usize] > 40
                        && all.bench.kernel.mapping_turn_patience() < 230 =>
                {
                    // The first one waits again.
                    all.burn(0);
                    renewed = true;
                }
                Some((4, index)) => all.burn(index),
                Some(_) => break,
                None => {
                    let patience = u64::from(all.bench.kernel.mapping_turn_patience());
                    let is_burst = patience + 3 <= left;
                    if !is_burst && (patience < 100 || all.held[rich as usize] < 200 || !left.is_multiple_of(3)) {
                        all.feed(poor);
                    } else {
                        all.burn(rich);
                    }
                }
            }
        }
    }
    all.bench.kernel.mapping_check().expect("consistent");
    None
}

#[test]
fn the_turn_to_stand_open_comes() {
    let mut endless = Vec::new();
    for (kids, events) in [(24, 15), (40, 15), (100, 15)] {
        if renewed(kids, events, 6_000).is_none() {
            endless.push((kids, events));
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}

/// A younger flush is next, whenever the victim's would stand open, and another one as soon as it has gone: the victim does not wait, for nothing stands open then.
#[test]
fn a_flush_that_does_not_wait_is_older_than_those_that_do() {
    let mut all = Renewed::new(40);
    let [mut victim, mut opener, mut waiter] = [Going::default(); 3];
    let page = |index| memory(index, PAGE, RWX);
    let flush = |all: &mut Renewed, index: u64, going: &mut Going| {
        let more = all.bench.flush(4, page(index), RWX, going) == Progress::More;
        *going = if more { going.next_piece() } else { Going::default() };
        more
    };
    // One stands open, another one waits, and the first one ends.
    assert!(flush(&mut all, 1, &mut opener) && flush(&mut all, 2, &mut waiter));
    flush(&mut all, 2, &mut waiter);
    while flush(&mut all, 1, &mut opener) {}
    assert_eq!(all.bench.open(), None);
    for piece in 1..3000 {
        let stands_open = all.bench.kernel.mapping_open().is_some();
        if all.bench.flush(1, page(0), RWX, &mut victim) == Progress::Done {
            return;
        }
        assert!(!stands_open, "piece {piece}");
        victim = victim.next_piece();
        all.bench.message((2, 0), 3);
        all.bench.message((2, 0), 3);
        // The one that is next has its turn, then another one waits behind one that stands open.
        let mut events = 0;
        while events < 500 && flush(&mut all, 2, &mut waiter) {
            events += 1;
        }
        for _ in 0..6 {
            all.feed(1);
            all.feed(2);
        }
        if flush(&mut all, 1, &mut opener) {
            flush(&mut all, 2, &mut waiter);
            flush(&mut all, 2, &mut waiter);
            while events < 1000 && flush(&mut all, 1, &mut opener) {
                events += 1;
            }
        }
    }
    panic!("endless");
}
