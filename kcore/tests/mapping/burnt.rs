//! Others who clear places elsewhere are not to use up a claim, and fill the claimed place again in between (decision 0213).

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    world::{PAGE, RWX, SLOT, memory, walk},
};

/// Pieces that no gift needs.
const PIECES_MAX: usize = 20_000;
/// Pages of a space's slots, from here on, that are below the place.
const BELOW: u64 = 1 << 12;

pub struct Burnt {
    pub bench: Bench,
    /// Holders of each page of the place.
    kids: u64,
    /// Gifts to places of space 5, and whether each is under way.
    burners: Vec<Option<Going>>,
}

impl Burnt {
    pub fn new(kids: u64, burners: usize) -> Self {
        let mut bench = Bench::new(SLOT, 1);
        let half = SLOT - 1;
        for at in [0, 256] {
            bench.map(
                (0, memory(SOURCE + 512 + at, half, RWX)),
                (2, memory(512 + at, half, RWX)),
            );
        }
        // The pages that the burners give.
        bench.map((0, memory(SOURCE + 1024, half, RWX)), (2, memory(1024, half, RWX)));
        Self {
            bench,
            kids,
            burners: vec![None; burners],
        }
    }

    pub fn has(&self, space: usize, page: u64) -> bool {
        walk(&self.bench.kernel, self.bench.spaces[space], page).is_some()
    }

    /// The first pages of a slot that a space does not have: an aligned block.
    fn missing(&self, space: usize, slot: u64) -> Option<(u64, u8)> {
        let first = (0..512).find(|page| !self.has(space, slot + page))?;
        let mut log2 = 0;
        while log2 < 8
            && first % (2 << log2) == 0
            && (first..first + (2 << log2)).all(|page| !self.has(space, slot + page))
        {
            log2 += 1;
        }
        Some((first, PAGE + log2))
    }

    /// One event: fills the place, or what is below it. Whether there was anything to do.
    pub fn fill(&mut self) -> Option<bool> {
        let Some((first, log2)) = self.missing(3, 0) else {
            let (slot, (first, log2)) = (0..self.kids)
                .map(|kid| BELOW + 512 * kid)
                .find_map(|slot| Some((slot, self.missing(4, slot)?)))?;
            let given = self.bench.give(
                (3, memory(first, log2, RWX)),
                (4, memory(slot + first, log2, RWX)),
                How::Map,
                &mut Going::default(),
            );
            return Some(given.is_ok());
        };
        let given = self.bench.give(
            (2, memory(512 + first, log2, RWX)),
            (3, memory(first, log2, RWX)),
            How::Map,
            &mut Going::default(),
        );
        Some(given.is_ok() && self.has(3, first))
    }

    /// One event: a burner goes on, or its place is filled for the next one.
    fn burn(&mut self) {
        let count = self.burners.len() as u64;
        for index in 0..count {
            // The place of a burner: a page, which others have in slots behind each other.
            let (from, place) = ((2, memory(1024 + index, PAGE, RWX)), (5, memory(index, PAGE, RWX)));
            if let Some(mut going) = self.burners[index as usize] {
                let given = self.bench.give(from, place, How::Map, &mut going);
                self.burners[index as usize] = (given == Ok(Progress::More)).then(|| going.next_piece());
                return;
            }
        }
    }

    /// Fills the places of the burners that are not under way, and begins those. The number of events that takes.
    fn prepare(&mut self, holders: u64) -> u64 {
        let mut events = 0;
        for index in 0..self.burners.len() as u64 {
            if self.burners[index as usize].is_some() {
                continue;
            }
            let place = (5, memory(index, PAGE, RWX));
            let own = (2, memory(1024 + 128 + index, PAGE, RWX));
            if !self.has(5, index) {
                let _ = self.bench.give(own, place, How::Map, &mut Going::default());
                events += 1;
            }
            for holder in 0..holders {
                let at = BELOW + index * 4096 + holder;
                if !self.has(6, at) {
                    let _ = self
                        .bench
                        .give(place, (6, memory(at, PAGE, RWX)), How::Map, &mut Going::default());
                    // A message has a dozen items.
                    events += u64::from(holder % 12 == 0);
                }
            }
            let mut going = Going::default();
            let from = (2, memory(1024 + index, PAGE, RWX));
            let given = self.bench.give(from, place, How::Map, &mut going);
            events += 1;
            self.burners[index as usize] = (given == Ok(Progress::More)).then(|| going.next_piece());
        }
        events
    }
}

/// Whether a gift of a large page ends, with so many events of others between two of its pieces.
fn ends(how: How, kids: u64, burners: usize, holders: u64, events: u64) -> bool {
    let mut all = Burnt::new(kids, burners);
    while all.fill().is_some() {}
    all.prepare(holders);
    let slot = memory(0, SLOT, RWX);
    let mut victim = Going::default();
    let mut debt = 0_u64;
    for _ in 1..PIECES_MAX {
        let given = all.bench.give((1, slot), (3, slot), how, &mut victim);
        if given != Ok(Progress::More) {
            assert_eq!(given, Ok(Progress::Done));
            return true;
        }
        victim = victim.next_piece();
        let mut left = events.saturating_sub(debt);
        debt = debt.saturating_sub(events);
        while left > 0 {
            left -= 1;
            if all.fill() != Some(true) {
                break;
            }
        }
        for _ in 0..left {
            all.burn();
        }
        if all.burners.iter().all(Option::is_none) {
            debt += all.prepare(holders);
        }
    }
    all.bench.kernel.mapping_check().expect("consistent");
    false
}

#[test]
fn a_gift_ends_though_others_use_up_its_claim() {
    let mut endless = Vec::new();
    for how in [How::Map, How::Grant, How::Link] {
        for (kids, burners, holders, events) in [
            (4, 4, 1000, 15),
            (14, 4, 1000, 15),
            (2, 8, 400, 15),
            (4, 8, 400, 12),
            (14, 8, 400, 8),
            (30, 8, 400, 4),
        ] {
            if !ends(how, kids, burners, holders, events) {
                endless.push((how, kids, burners, holders, events));
            }
        }
    }
    assert!(endless.is_empty(), "{endless:?}");
}
