//! Attacks of issue 13, third round: what should end and does not, what is told done and is not.

use abi::{Error, Rights};
use kcore::{
    Kernel, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
    space::Tags,
};

use crate::{
    fake::Fake,
    world::{GIB, PAGE, RWX, SLOT, memory, walk},
};

/// Pieces that are enough for whatever stands there when a flush begins.
const PIECES_MAX: usize = 1000;
/// What others do between two pieces, as if from that many processors.
const EVENTS: u64 = 24;
/// The page of σ₀ that all comes from.
const SOURCE: u64 = 0x4_0000;
/// Pages that a space is given in turns.
const TARGETS: u64 = 20_000;

struct Bench {
    kernel: Kernel<Fake, Bare>,
    /// σ₀, the flusher, those below it.
    spaces: Vec<SpaceId>,
    /// The next page that something is given to.
    next: u64,
}

impl Bench {
    /// σ₀ gives a page of that size to the flusher, and that to the third space, and so on, so many times.
    fn new(size: u8, chain: usize) -> Self {
        let frames = 8000;
        let mut kernel = Kernel::new(Fake::new(frames, Tags::Present), &[(1, frames)]);
        let sigma0 = kernel
            .sigma0_create(1 << 23, &[(0x4_0000, 0x8_0000)], &[], 2)
            .expect("σ₀");
        let made = (0..6).map(|_| kernel.free_space_create(sigma0, 600_000).expect("a space"));
        let spaces: Vec<_> = core::iter::once(sigma0).chain(made.collect::<Vec<_>>()).collect();
        let mut bench = Self {
            kernel,
            spaces,
            next: 1 << 10,
        };
        bench.map((0, memory(SOURCE, size, RWX)), (1, memory(0, size, RWX)));
        for space in 1..chain {
            bench.map((space, memory(0, size, RWX)), (space + 1, memory(0, size, RWX)));
        }
        bench
    }

    /// Maps to the end.
    fn map(&mut self, from: (usize, Fpage), to: (usize, Fpage)) {
        let mut going = Going::default();
        for _ in 0..PIECES_MAX {
            match self.give(from, to, How::Map, &mut going) {
                Ok(Progress::Done) => return,
                Ok(Progress::More) => going = going.next_piece(),
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("a gift does not end");
    }

    /// One piece.
    fn give(
        &mut self,
        from: (usize, Fpage),
        to: (usize, Fpage),
        how: How,
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let [(from, source), (to, window)] = [from, to].map(|(space, fpage)| (self.spaces[space], fpage));
        let given = self.kernel.map((from, source), (to, window), how, going);
        given.map(|given| given.progress)
    }

    /// A space gives its first page on, to another page of a space each time: one piece.
    fn give_on(&mut self, from: usize, to: usize, how: How) {
        self.give_page_on((from, 0), to, how);
    }

    fn give_page_on(&mut self, (from, page): (usize, u64), to: usize, how: How) {
        self.next = self.next % TARGETS + 1 + (1 << 10);
        let target = memory(self.next, PAGE, RWX);
        let _ = self.give(
            (from, memory(page, PAGE, RWX)),
            (to, target),
            how,
            &mut Going::default(),
        );
    }

    /// Links the flusher's first slot: one piece.
    fn link(&mut self, to: SpaceId) {
        let slot = memory(0, SLOT, RWX);
        let from = (self.spaces[1], slot);
        let _ = self.kernel.map(from, (to, slot), How::Link, &mut Going::default());
    }

    fn flush(&mut self, space: usize, what: Fpage, rights: Rights, going: &mut Going) -> Progress {
        self.kernel
            .flush(self.spaces[space], what, (rights, Own::Kept), going)
            .expect("a flush")
    }

    /// Flushes the flusher's first page while others do something between the pieces: it ends.
    fn flush_among(&mut self, rights: Rights, mut others: impl FnMut(&mut Self)) -> usize {
        let mut going = Going::default();
        for piece in 1..PIECES_MAX {
            if self.flush(1, memory(0, PAGE, RWX), rights, &mut going) == Progress::Done {
                return piece;
            }
            going = going.next_piece();
            for _ in 0..EVENTS {
                others(self);
            }
        }
        panic!("a flush does not end");
    }

    fn rights(&self, space: usize, page: u64) -> Option<Rights> {
        walk(&self.kernel, self.spaces[space], page).map(|(_, rights)| rights)
    }
}

/// One page lands where the receiver's own threads put another one again and again, and give that one on: from the same space, piece by piece.
fn refilled(kids: usize, events: usize, how: How, source_below: bool) -> Option<usize> {
    let mut bench = Bench::new(PAGE, 1);
    // The hostile space: 2. It has a page of its own at 8, the place is 0.
    bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, memory(8, PAGE, RWX)));
    bench.map((2, memory(8, PAGE, RWX)), (2, memory(0, PAGE, RWX)));
    for _ in 0..kids {
        bench.give_on(2, 3, How::Map);
    }
    let mut victim = Going::default();
    let mut other = Going::default();
    let from = if source_below { 1 } else { 0 };
    let source = if source_below { 0 } else { SOURCE };
    for piece in 1..3000 {
        match bench.give(
            (from, memory(source, PAGE, RWX)),
            (2, memory(0, PAGE, RWX)),
            how,
            &mut victim,
        ) {
            Ok(Progress::More) => victim = victim.next_piece(),
            _ => return Some(piece),
        }
        let mut left = events;
        // The accomplice puts its own page there...
        while left > 0 {
            left -= 1;
            match bench.give(
                (2, memory(8, PAGE, RWX)),
                (2, memory(0, PAGE, RWX)),
                How::Map,
                &mut other,
            ) {
                Ok(Progress::More) => other = other.next_piece(),
                _ => {
                    other = Going::default();
                    break;
                }
            }
        }
        // ...and gives it on, once an event.
        for _ in 0..left {
            bench.give_on(2, 3, How::Map);
        }
        bench.kernel.mapping_check().expect("consistent");
    }
    None
}

#[test]
fn a_single_page_whose_place_is_filled_again_is_given() {
    let mut failed = false;
    for how in [How::Map, How::Grant] {
        for (kids, events) in [(14, 12), (14, 14), (14, 16), (14, 20), (30, 24), (200, 24)] {
            let ended = refilled(kids, events, how, true);
            println!("{how:?} kids {kids} events {events}: {ended:?}");
            failed |= events <= 24 && ended.is_none();
        }
    }
    assert!(!failed, "a gift does not end");
}

/// A grant goes on with a flush of its page that stands open, and its target is the page that this one comes from. The flush's own caller is told that it is
/// done only when nobody has what was there.
#[test]
fn a_grant_to_where_its_page_comes_from_does_not_end_a_flush() {
    let mut bench = Bench::new(PAGE, 2);
    let mut held = Vec::new();
    for _ in 0..64 {
        bench.give_on(2, 3, How::Map);
        held.push(bench.next);
        bench.give_page_on((3, bench.next), 4, How::Map);
    }
    let (mut flush, mut grant) = (Going::default(), Going::default());
    let page = memory(0, PAGE, RWX);
    assert_eq!(bench.flush(2, page, RWX, &mut flush), Progress::More);
    let granted = bench.give((2, page), (1, page), How::Grant, &mut grant);
    println!("{granted:?} open {:?}", bench.kernel.mapping_open());
    let has = |bench: &Bench| held.iter().filter(|&&page| bench.rights(3, page).is_some()).count();
    println!("{} left", has(&bench));
    let ended = (1..PIECES_MAX).find(|_| {
        flush = flush.next_piece();
        bench.flush(2, page, RWX, &mut flush) == Progress::Done
    });
    println!("ended {ended:?}, {} left, page {:?}", has(&bench), bench.rights(2, 0));
    assert!(ended.is_some(), "the flush does not end");
    assert_eq!(has(&bench), 0, "they keep the page though the flush is done");
}

/// The node of a page whose flush others have finished is another page's of the same frame, which the flush has not come to.
#[test]
fn a_page_in_a_node_of_another_one_is_flushed() {
    let mut bench = Bench::new(PAGE, 2);
    for _ in 0..64 {
        bench.give_on(2, 3, How::Map);
    }
    let mut flush = Going::default();
    let both = memory(0, PAGE + 1, RWX);
    // Page 0 of space 1 has one kid in space 2, with many.
    assert_eq!(bench.flush(1, both, RWX, &mut flush), Progress::More);
    // Its giver takes it all away, and gives the same page as the flusher's page 1. That is given on.
    let mut above = Going::default();
    while bench.flush(0, memory(SOURCE, PAGE, RWX), RWX, &mut above) == Progress::More {
        above = above.next_piece();
    }
    assert_eq!(bench.rights(1, 0), None);
    bench.map((0, memory(SOURCE, PAGE, RWX)), (1, memory(1, PAGE, RWX)));
    bench.map((1, memory(1, PAGE, RWX)), (2, memory(1, PAGE, RWX)));
    let ended = (1..PIECES_MAX).any(|_| {
        flush = flush.next_piece();
        bench.flush(1, both, RWX, &mut flush) == Progress::Done
    });
    assert!(ended);
    assert_eq!(bench.rights(2, 1), None, "the flush passed a page before it");
}

/// Whoever ended a space goes away. Others do not wait for it.
#[test]
fn what_a_gift_leaves_open_keeps_nobody_waiting() {
    let mut bench = Bench::new(PAGE, 3);
    for _ in 0..64 {
        bench.give_on(3, 4, How::Map);
    }
    // Space 3 gives its page to where space 1 has it: the page goes with what it is to replace.
    let mut going = Going::default();
    let (from, to) = (memory(0, PAGE, RWX), memory(0, PAGE, RWX));
    let mut pieces = 0;
    loop {
        pieces += 1;
        let given = bench.give((3, from), (1, to), How::Map, &mut going);
        if given != Ok(Progress::More) {
            println!("{given:?} after {pieces}, open {:?}", bench.kernel.mapping_open());
            break;
        }
        going = going.next_piece();
    }
    // The first space gives its page, which nobody has any more, to itself.
    println!("has {:?} {:?}", bench.rights(1, 0), bench.rights(2, 0));
    let mut other = Going::default();
    let mut waits = 0;
    while bench.give(
        (1, memory(0, PAGE, RWX)),
        (5, memory(9, PAGE, RWX)),
        How::Map,
        &mut other,
    ) == Ok(Progress::More)
    {
        other = other.next_piece();
        waits += 1;
    }
    assert!(waits < 100, "{waits} pieces in vain");
}

/// A space takes the right to write from its own large page, waits until nobody helps it any more, and gives a part of it on that the flush has behind it.
/// Whoever it has the page from takes that right then.
#[test]
fn nobody_keeps_a_right_that_was_taken_above() {
    // The page that others had from there is given again, or another one.
    for (place, at) in [(0, 5000), (100, 5000), (0, 2000), (100, 2000)] {
        let mut bench = Bench::new(SLOT, 2);
        for page in 1..64 {
            bench.map((2, memory(page, PAGE, RWX)), (3, memory(1024 + page, PAGE, RWX)));
        }
        bench.map((2, memory(place, PAGE, RWX)), (3, memory(2000, PAGE, RWX)));
        let mut going = Going::default();
        let slot = memory(0, SLOT, RWX);
        let own = |bench: &mut Bench, going: &mut Going| {
            let done = bench.kernel.flush(bench.spaces[2], slot, (Rights::W, Own::Too), going);
            *going = going.next_piece();
            done.expect("a flush")
        };
        assert_eq!(own(&mut bench, &mut going), Progress::More);
        // Others of the space help, until they do not wait any more.
        let mut helps = 0;
        while bench.kernel.mapping_open().is_some() {
            helps += 1;
            assert!(helps < 3000);
            bench.give_page_on((2, 1), 3, How::Map);
        }
        let lost = |bench: &Bench| bench.rights(3, 2000).is_none_or(|rights| !rights.contains(Rights::W));
        assert!(lost(&bench));
        bench.map((2, memory(place, PAGE, RWX)), (3, memory(at, PAGE, RWX)));
        println!("{helps} helps, then {:?}", bench.rights(3, at));
        let ended = (0..PIECES_MAX).find(|_| own(&mut bench, &mut going) == Progress::Done);
        println!(
            "ended {ended:?}: own {:?}, below {:?}",
            bench.rights(2, place),
            bench.rights(3, at)
        );
        println!("check {:?}", bench.kernel.mapping_check());
        let mut above = Going::default();
        while bench.flush(1, slot, Rights::W, &mut above) == Progress::More {
            above = above.next_piece();
        }
        println!("after the flush above: {:?}", bench.rights(3, at));
        let left = bench.rights(3, at);
        assert!(
            left.is_none_or(|rights| !rights.contains(Rights::W)),
            "it keeps {left:?}"
        );
    }
}

/// The same while another flush stands open, so that the one of the space above does not: nobody waits for anything.
#[test]
fn nobody_keeps_a_right_that_is_taken_beside_another_flush() {
    let mut bench = Bench::new(SLOT, 2);
    for page in 1..64 {
        bench.map((2, memory(page, PAGE, RWX)), (3, memory(1024 + page, PAGE, RWX)));
    }
    bench.map((2, memory(0, PAGE, RWX)), (3, memory(2000, PAGE, RWX)));
    // An accomplice's flush stands open.
    bench.map((0, memory(SOURCE + 4096, PAGE, RWX)), (4, memory(0, PAGE, RWX)));
    for _ in 0..200 {
        bench.give_on(4, 5, How::Map);
        bench.give_page_on((5, bench.next), 6, How::Map);
    }
    assert_eq!(
        bench.flush(4, memory(0, PAGE, RWX), RWX, &mut Going::default()),
        Progress::More
    );
    let slot = memory(0, SLOT, RWX);
    let mut going = Going::default();
    assert_eq!(bench.flush(1, slot, Rights::W, &mut going), Progress::More);
    println!("after a piece: {:?}, {:?}", bench.rights(2, 0), bench.rights(3, 2000));
    // The page that was taken the right to write is given it again: a short way.
    bench.map((2, memory(0, PAGE, RWX)), (3, memory(2000, PAGE, RWX)));
    let mut pieces = 1;
    loop {
        going = going.next_piece();
        pieces += 1;
        if bench.flush(1, slot, Rights::W, &mut going) == Progress::Done {
            break;
        }
    }
    println!("after {pieces}: {:?}, {:?}", bench.rights(2, 0), bench.rights(3, 2000));
    // Again, with nobody in its way.
    let mut again = Going::default();
    while bench.flush(1, slot, Rights::W, &mut again) == Progress::More {
        again = again.next_piece();
    }
    println!(
        "after another one: {:?}, {:?}",
        bench.rights(2, 0),
        bench.rights(3, 2000)
    );
    let left = bench.rights(3, 2000);
    assert!(
        left.is_none_or(|rights| !rights.contains(Rights::W)),
        "it keeps {left:?}"
    );
}

/// How few events between two pieces are enough.
#[test]
fn a_single_page_is_given_among_few_events() {
    for (kids, events) in [(12, 9), (12, 10), (12, 11), (12, 12), (12, 13)] {
        println!(
            "kids {kids} events {events}: {:?}",
            refilled(kids, events, How::Map, true)
        );
    }
    assert!(refilled(12, 13, How::Map, true).is_some());
}

/// A slot, or a link, is given to where one page is filled again, which others have a dozen times.
#[test]
fn a_slot_with_one_page_that_is_filled_again_is_given() {
    let mut failed = Vec::new();
    for (how, pages) in [
        (How::Map, SLOT),
        (How::Grant, SLOT),
        (How::Link, SLOT),
        (How::Map, PAGE + 4),
    ] {
        let mut bench = Bench::new(SLOT, 1);
        bench.map((0, memory(SOURCE + 512, PAGE, RWX)), (2, memory(4096, PAGE, RWX)));
        bench.map((2, memory(4096, PAGE, RWX)), (2, memory(8, PAGE, RWX)));
        for _ in 0..14 {
            bench.give_page_on((2, 8), 3, How::Map);
        }
        let (mut victim, mut other) = (Going::default(), Going::default());
        let all = memory(0, pages, RWX);
        let mut ended = None;
        for piece in 1..3000 {
            match bench.give((1, all), (2, all), how, &mut victim) {
                Ok(Progress::More) => victim = victim.next_piece(),
                end => {
                    ended = Some((piece, end));
                    break;
                }
            }
            let mut left = 24;
            while left > 0 {
                left -= 1;
                match bench.give(
                    (2, memory(4096, PAGE, RWX)),
                    (2, memory(8, PAGE, RWX)),
                    How::Map,
                    &mut other,
                ) {
                    Ok(Progress::More) => other = other.next_piece(),
                    _ => {
                        other = Going::default();
                        break;
                    }
                }
            }
            for _ in 0..left {
                bench.give_page_on((2, 8), 3, How::Map);
            }
        }
        println!("{how:?} {pages}: {ended:?}");
        if ended.is_none() {
            failed.push((how, pages));
        }
    }
    assert!(failed.is_empty(), "{failed:?} do not end");
}

/// A single port.
#[test]
fn a_port_whose_place_is_filled_again_is_given() {
    let mut bench = Bench::new(PAGE, 1);
    let port = Fpage::ports(8, 0).expect("a port");
    bench.map((0, port), (1, port));
    bench.map((0, port), (3, port));
    bench.map((3, port), (2, port));
    while bench.spaces.len() < 24 {
        let made = bench.kernel.free_space_create(bench.spaces[0], 6000);
        bench.spaces.push(made.expect("a space"));
    }
    for space in 7..21 {
        bench.map((2, port), (space, port));
    }
    let (mut victim, mut other) = (Going::default(), Going::default());
    for piece in 1..3000 {
        match bench.give((1, port), (2, port), How::Map, &mut victim) {
            Ok(Progress::More) => victim = victim.next_piece(),
            end => {
                println!("{piece}: {end:?}");
                return;
            }
        }
        let mut left = 24;
        while left > 0 {
            left -= 1;
            match bench.give((3, port), (2, port), How::Map, &mut other) {
                Ok(Progress::More) => other = other.next_piece(),
                _ => {
                    other = Going::default();
                    break;
                }
            }
        }
        for space in 7..(7 + left).min(21) {
            let _ = bench.give((2, port), (space, port), How::Map, &mut Going::default());
        }
    }
    panic!("it does not end");
}
