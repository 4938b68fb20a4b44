//! The turn to claim a place comes to a gift, though one that waited longer never takes its own (decision 0213).

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    burnt::Burnt,
    world::{PAGE, RWX, SLOT, memory},
};

/// Gifts to places of space 5, each of which many have in space 6.
const BURNERS: u64 = 6;
/// Events between two pieces of the victim in which its place is filled again, at most.
const FILLS: u64 = 5;

struct Renewed {
    all: Burnt,
    burners: Vec<Going>,
    /// The pages of a place's holders begin here; how many were given.
    given: Vec<u64>,
    /// How many have it.
    held: Vec<i64>,
}

impl Renewed {
    fn new(kids: u64) -> Self {
        let mut all = Self {
            all: Burnt::new(kids, 0),
            burners: vec![Going::default(); BURNERS as usize],
            given: vec![0; BURNERS as usize],
            held: vec![0; BURNERS as usize],
        };
        while all.all.fill().is_some() {}
        for index in 0..BURNERS {
            let own = (2, memory(1024 + 128 + index, PAGE, RWX));
            all.all.bench.map(own, (5, memory(index, PAGE, RWX)));
            for _ in 0..480 {
                all.feed(index);
            }
        }
        // One claims, and the first one waits.
        all.burn(1);
        assert_eq!(all.claimed(), Some(5));
        all.renew(1);
        all
    }

    fn claimed(&mut self) -> Option<usize> {
        let (space, ..) = self.all.bench.kernel.mapping_claimed()?;
        self.all.bench.spaces.iter().position(|&it| it == space)
    }

    /// One message: more have a burner's page.
    fn feed(&mut self, index: u64) {
        let before = self.nodes();
        for _ in 0..8 {
            let given = &mut self.given[index as usize];
            *given = (*given + 1) % 4000;
            let target = memory(4096 * (index + 1) + *given, PAGE, RWX);
            let from = (5, memory(index, PAGE, RWX));
            let _ = self.all.bench.give(from, (6, target), How::Map, &mut Going::default());
        }
        self.held[index as usize] += self.nodes() - before;
    }

    /// The burners with most and fewest holders.
    fn richest(&self) -> (u64, u64) {
        let there = (1..BURNERS).filter(|&index| self.all.has(5, index));
        let most = there.clone().max_by_key(|&index| self.held[index as usize]);
        let least = there.min_by_key(|&index| self.held[index as usize]);
        (most.unwrap_or(1), least.unwrap_or(1))
    }

    fn nodes(&self) -> i64 {
        self.all.bench.kernel.mapping_nodes().into()
    }

    /// A piece of a burner.
    fn burn(&mut self, index: u64) {
        let before = self.nodes();
        let going = &mut self.burners[index as usize];
        let (from, place) = ((2, memory(1024 + index, PAGE, RWX)), (5, memory(index, PAGE, RWX)));
        let given = self.all.bench.give(from, place, How::Map, going);
        *going = if given == Ok(Progress::More) {
            going.next_piece()
        } else {
            Going::default()
        };
        assert!(index > 0 || given == Ok(Progress::More), "the first one is at its end");
        self.held[index as usize] += self.nodes() - before;
    }

    /// A burner has the claim: the first one waits, then the burner is cancelled. Two events.
    fn renew(&mut self, index: u64) {
        self.burn(0);
        self.all.bench.cancel(&mut self.burners[index as usize]);
        assert_eq!(self.claimed(), None);
    }
}

fn renewed(how: How, kids: u64, events: u64, most: usize) -> Option<usize> {
    let mut all = Renewed::new(kids);
    let slot = memory(0, SLOT, RWX);
    let mut victim = Going::default();
    for piece in 1..most {
        let given = all.all.bench.give((1, slot), (3, slot), how, &mut victim);
        if given != Ok(Progress::More) {
            return Some(piece);
        }
        victim = victim.next_piece();
        let mut left = events;
        while left > events - FILLS && all.all.fill() == Some(true) {
            left -= 1;
        }
        let (mut next, mut bursts) = (piece as u64, false);
        while left > 0 && all.claimed() != Some(3) {
            let patience = u64::from(all.all.bench.kernel.mapping_claim_patience());
            // The turn is not to be over with the victim's piece: the last ones come at once, and before that the burners' places fill up.
            let is_burst = patience + 3 <= left || bursts;
            bursts = is_burst;
            let (most, least) = all.richest();
            left -= 1;
            next += 1;
            if !is_burst && (patience < 100 || all.held[most as usize] < 200 || !next.is_multiple_of(3)) {
                all.feed(least);
                continue;
            }
            let index = most;
            all.burn(index);
            if all.claimed() == Some(5) {
                all.renew(index);
                left = left.saturating_sub(2);
                bursts = false;
            }
        }
    }
    all.all.bench.kernel.mapping_check().expect("consistent");
    None
}

#[test]
fn the_turn_to_claim_comes() {
    let mut endless = Vec::new();
    for how in [How::Map, How::Grant, How::Link] {
        for (kids, events) in [(4, 15), (14, 15), (30, 15), (14, 8)] {
            if renewed(how, kids, events, 10_000).is_none() {
                endless.push((how, kids, events));
            }
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}
