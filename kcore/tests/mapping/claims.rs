//! Gifts whose place is not cleared in one event: they claim it, and those who would fill it again wait.

use kcore::bare::{
    going::Going,
    mapping::{Fpage, How, Own, Progress},
};

use crate::{
    bench::{Bench, EVENTS, PIECES_MAX, SOURCE, TARGETS},
    world::{GIB, PAGE, RWX, SLOT, memory, walk},
};

/// The place of a large page, or of a link, is to be filled again by spaces on other processors as fast as it is cleared, page by page and each page with others
/// below it. It is claimed, so that they wait.
#[test]
fn a_place_that_others_fill_again_is_cleared() {
    let slots = [How::Map, How::Grant].map(|how| [(how, SLOT, 0), (how, SLOT, 500)]);
    let larger = [(How::Link, SLOT, 100), (How::Map, GIB, 0), (How::Grant, GIB, 700)];
    for (how, size, refilled) in slots.into_iter().flatten().chain(larger) {
        let mut bench = Bench::new(size, 1);
        bench.map((0, memory(SOURCE + 512, SLOT, RWX)), (2, memory(512, SLOT, RWX)));
        let fill = |bench: &mut Bench, page: u64| {
            let window = memory(page, PAGE, RWX);
            let source = (2, memory(512 + page, PAGE, RWX));
            let given = bench.give(source, (3, window), How::Map, &mut Going::default());
            if given == Ok(Progress::Done) {
                for _ in 0..4 {
                    bench.give_page_on((3, page), 4, How::Map);
                }
            }
        };
        for page in 0..512 {
            fill(&mut bench, page);
        }
        let mut going = Going::default();
        let all = memory(0, size, RWX);
        let mut ended = None;
        for _ in 1..20 * PIECES_MAX {
            match bench.give((1, all), (3, all), how, &mut going) {
                Ok(Progress::More) => going = going.next_piece(),
                end => {
                    ended = Some(end);
                    break;
                }
            }
            for page in 0..EVENTS {
                fill(&mut bench, refilled + page % 12);
            }
        }
        let ended = ended.unwrap_or_else(|| panic!("{how:?} does not end"));
        assert_eq!(ended, Ok(Progress::Done));
        for page in 0..1 << (size - PAGE) {
            let found = walk(&bench.kernel, bench.spaces[3], page);
            let is_sent = found.is_some_and(|(frame, _)| frame == SOURCE + page);
            assert!(is_sent, "{how:?} {page}");
        }
    }
}

/// Where nobody fills the place again, a large page stays one, however long it takes to clear it.
#[test]
fn a_place_that_takes_long_to_clear_gets_a_large_page() {
    for how in [How::Map, How::Grant] {
        let mut bench = Bench::new(SLOT, 1);
        bench.map((0, memory(SOURCE + 512, SLOT, RWX)), (2, memory(512, SLOT, RWX)));
        for page in 0..512 {
            let window = memory(page, PAGE, RWX);
            bench.map((2, memory(512 + page, PAGE, RWX)), (3, window));
            bench.give_page_on((3, page), 4, How::Map);
        }
        let slot = memory(0, SLOT, RWX);
        let nodes = bench.kernel.mapping_nodes();
        let mut going = Going::default();
        let mut pieces = 1;
        while bench.give((1, slot), (3, slot), how, &mut going) == Ok(Progress::More) {
            going = going.next_piece();
            pieces += 1;
        }
        assert!(pieces > 2, "{pieces} pieces");
        assert!(bench.kernel.mapping_nodes() < nodes - 2 * 511, "small pages");
    }
}

/// One page lands where the receiver's own threads put another one again and again, and give that one on. How many pieces it takes.
fn refilled(kids: usize, events: u64, how: How) -> Option<usize> {
    let mut bench = Bench::new(PAGE, 1);
    // The hostile space: 2. It has a page of its own at 8, the place is 0.
    let (own, place) = (memory(8, PAGE, RWX), memory(0, PAGE, RWX));
    bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, own));
    bench.map((2, own), (2, place));
    for _ in 0..kids {
        bench.give_on(2, 3, How::Map);
    }
    let [mut victim, mut other] = [Going::default(); 2];
    for piece in 1..3000 {
        if bench.give((1, place), (2, place), how, &mut victim) != Ok(Progress::More) {
            return Some(piece);
        }
        victim = victim.next_piece();
        // An accomplice puts its own page there, and gives it on, once an event.
        for _ in 0..bench.goes_on((2, own), (2, place), &mut other, events) {
            bench.give_on(2, 3, How::Map);
        }
        bench.kernel.mapping_check().expect("consistent");
    }
    None
}

#[test]
fn a_single_page_whose_place_is_filled_again_is_given() {
    for how in [How::Map, How::Grant] {
        for (kids, events) in [(12, 13), (14, 12), (14, 14), (14, 16), (14, 20), (30, 24), (200, 24)] {
            let ended = refilled(kids, events, how);
            assert!(ended.is_some(), "{how:?}, {kids} kids, {events} events");
        }
    }
}

/// A slot, a link, or a run of pages is given to where one page is filled again, which others have a dozen times.
#[test]
fn a_slot_with_one_page_that_is_filled_again_is_given() {
    for (how, size) in [
        (How::Map, SLOT),
        (How::Grant, SLOT),
        (How::Link, SLOT),
        (How::Map, PAGE + 4),
    ] {
        let mut bench = Bench::new(SLOT, 1);
        let (own, place, all) = (memory(4096, PAGE, RWX), memory(8, PAGE, RWX), memory(0, size, RWX));
        bench.map((0, memory(SOURCE + 512, PAGE, RWX)), (2, own));
        bench.map((2, own), (2, place));
        for _ in 0..14 {
            bench.give_page_on((2, 8), 3, How::Map);
        }
        let [mut victim, mut other] = [Going::default(); 2];
        let ended = (1..3000).any(|_| {
            if bench.give((1, all), (2, all), how, &mut victim) != Ok(Progress::More) {
                return true;
            }
            victim = victim.next_piece();
            for _ in 0..bench.goes_on((2, own), (2, place), &mut other, EVENTS) {
                bench.give_page_on((2, 8), 3, How::Map);
            }
            false
        });
        assert!(ended, "{how:?} of {size}");
    }
}

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
    let [mut victim, mut other] = [Going::default(); 2];
    let ended = (1..3000).any(|_| {
        if bench.give((1, port), (2, port), How::Map, &mut victim) != Ok(Progress::More) {
            return true;
        }
        victim = victim.next_piece();
        let left = bench.goes_on((3, port), (2, port), &mut other, EVENTS) as usize;
        for space in 7..(7 + left).min(21) {
            let _ = bench.give((2, port), (space, port), How::Map, &mut Going::default());
        }
        false
    });
    assert!(ended);
}

/// The hostile space's accomplices have gifts under way that are older than the victim's, and claim in turn.
struct InTurn {
    bench: Bench,
    theirs: Vec<Going>,
}

impl InTurn {
    /// Space 2 is hostile: a page of its own at 8. Places 0 (the victim's), 16 and up (the accomplices').
    fn new(accomplices: usize) -> Self {
        let mut bench = Bench::new(PAGE, 1);
        bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, memory(8, PAGE, RWX)));
        let mut this = Self {
            bench,
            theirs: vec![Going::default(); accomplices],
        };
        for place in core::iter::once(0).chain(16..16 + accomplices as u64) {
            this.fill(place, 60);
        }
        for index in 0..accomplices {
            this.piece(index);
        }
        this
    }

    /// Pages that space 3 has from a place.
    fn kids(&mut self, place: u64) -> usize {
        let (from, to) = (self.bench.spaces[2], self.bench.spaces[3]);
        (0..=TARGETS + 1024)
            .filter(|&page| {
                walk(&self.bench.kernel, to, page).is_some()
                    && self.bench.kernel.mapping_source(to, page) == Some((from, place))
            })
            .count()
    }

    fn piece(&mut self, index: usize) {
        let place = memory(16 + index as u64, PAGE, RWX);
        let going = &mut self.theirs[index];
        match self.bench.give((2, memory(8, PAGE, RWX)), (2, place), How::Map, going) {
            Ok(Progress::More) => *going = going.next_piece(),
            _ => *going = Going::default(),
        }
    }

    /// A place is cleared by giving from it, which helps whoever clears it, then filled in one event, then given on.
    fn fill(&mut self, place: u64, events: usize) {
        let mut left = events;
        while left > 0 && self.bench.kernel.mapping_open() == Some((self.bench.spaces[2], place, 1)) {
            let before = self.bench.kernel.mapping_nodes();
            self.bench.give_page_on((2, place), 3, How::Map);
            left -= 1;
            if self.bench.kernel.mapping_nodes() >= before {
                break;
            }
        }
        if left > 0 {
            left -= 1;
            let from = (2, memory(8, PAGE, RWX));
            let _ = self
                .bench
                .give(from, (2, memory(place, PAGE, RWX)), How::Map, &mut Going::default());
        }
        for _ in 0..left {
            self.bench.give_page_on((2, place), 3, How::Map);
        }
    }
}

fn in_turn(accomplices: usize, how: How, events: usize, every: usize) -> Option<usize> {
    let mut all = InTurn::new(accomplices);
    let mut victim = Going::default();
    for number in 1..20_000 {
        match all
            .bench
            .give((1, memory(0, PAGE, RWX)), (2, memory(0, PAGE, RWX)), how, &mut victim)
        {
            Ok(Progress::More) => victim = victim.next_piece(),
            _ => return Some(number),
        }
        all.fill(0, events);
        if number % every != 0 {
            continue;
        }
        for index in 0..accomplices {
            // The one whose place is claimed does not go on: it cannot be filled again.
            for _ in 0..10 {
                all.fill(16 + index as u64, 40);
            }
            if all.kids(16 + index as u64) >= 13 {
                all.piece(index);
            }
        }
    }
    None
}

#[test]
fn a_gift_ends_though_older_ones_claim_in_turn() {
    for how in [How::Map, How::Grant] {
        for (accomplices, events, every) in [(2, 24, 5), (2, 24, 20), (2, 40, 50), (3, 24, 20)] {
            let ended = in_turn(accomplices, how, events, every);
            assert!(
                ended.is_some(),
                "{how:?}, {accomplices} accomplices, {events} events, {every}"
            );
        }
    }
}

/// A slot is given to where each page was given on a dozen times. The claimer goes on once in so many pieces of somebody who gives one page there.
fn beside_slow_claimer(every: usize, most: usize) -> Option<usize> {
    let mut bench = Bench::new(SLOT, 1);
    bench.map((0, memory(SOURCE + 1024, SLOT, RWX)), (2, memory(1024, SLOT, RWX)));
    bench.fill_slot(510);
    let slot = memory(0, SLOT, RWX);
    let (mut claimer, mut victim) = (Going::default(), Going::default());
    for piece in 0..most {
        if piece % every == 0 {
            let _ = bench.give((2, memory(1024, SLOT, RWX)), (3, slot), How::Map, &mut claimer);
            claimer = claimer.next_piece();
        }
        // Nothing stands where this page goes.
        match bench.give(
            (1, memory(0, PAGE, RWX)),
            (3, memory(511, PAGE, RWX)),
            How::Map,
            &mut victim,
        ) {
            Ok(Progress::More) => victim = victim.next_piece(),
            end => {
                assert_eq!(end, Ok(Progress::Done));
                return Some(piece);
            }
        }
    }
    None
}

#[test]
fn one_page_is_given_beside_a_claimer_that_goes_on_seldom() {
    let mut longest = 0;
    for every in [10, 100, 1000, 2000] {
        let ended = beside_slow_claimer(every, 10_000);
        longest = longest.max(ended.unwrap_or(usize::MAX));
    }
    assert!(longest <= 2048, "{longest} pieces");
}

/// A slot is granted to where pages of it are already, each of which was given on a dozen times. Nobody else does anything.
#[test]
fn a_grant_does_not_wait_for_its_own_flush() {
    let mut most = 0;
    for (giver, parted) in [(0, 1), (0, 8), (1, 1), (1, 8), (1, 64)] {
        let mut bench = Bench::new(SLOT, 1);
        let source = if giver == 0 { SOURCE } else { 0 };
        for page in 0..parted {
            bench.map((giver, memory(source + page, PAGE, RWX)), (2, memory(page, PAGE, RWX)));
            for _ in 0..30 {
                bench.give_page_on((2, page), 3, How::Map);
                bench.give_page_on((3, bench.next), 4, How::Map);
            }
        }
        let (from, to) = (memory(source, SLOT, RWX), memory(0, SLOT, RWX));
        let pieces = bench.pieces((giver, from), (2, to), How::Grant);
        most = most.max(pieces);
    }
    assert!(most < 64 * 16 + 100, "{most} pieces");
}

/// A page of space 2 is cleared by giving from it, which helps whoever clears it; then one event replaces it by a page of the slot behind, and it is given on.
fn refill(bench: &mut Bench, page: u64, events: u64) {
    let mut left = events;
    while left > 0 && bench.kernel.mapping_open() == Some((bench.spaces[2], page, 1)) {
        let before = bench.kernel.mapping_nodes();
        bench.give_page_on((2, page), 4, How::Map);
        left -= 1;
        if bench.kernel.mapping_nodes() >= before {
            break;
        }
    }
    if left > 0 {
        left -= 1;
        let (own, place) = (memory(512 + page, PAGE, RWX), memory(page, PAGE, RWX));
        let _ = bench.give((2, own), (2, place), How::Map, &mut Going::default());
    }
    for _ in 0..left {
        bench.give_page_on((2, page), 4, How::Map);
    }
}

/// A claimer's piece becomes another one: its pages there are taken from above, or a link goes for which it was given page by page. It claims what it clears now.
#[test]
fn a_gift_whose_piece_changes_claims_the_new_place() {
    for (how, is_linked) in [
        (How::Map, false),
        (How::Grant, false),
        (How::Map, true),
        (How::Grant, true),
    ] {
        let size = if is_linked { SLOT } else { PAGE + 4 };
        let refilled = if is_linked { 500 } else { 4 };
        let mut bench = Bench::new(size, 1);
        let (all, slot) = (memory(0, size, RWX), memory(0, SLOT, RWX));
        bench.map((0, memory(SOURCE + 512, SLOT, RWX)), (2, memory(512, SLOT, RWX)));
        for page in [0, refilled] {
            bench.map((2, memory(512 + page, PAGE, RWX)), (2, memory(page, PAGE, RWX)));
            for _ in 0..30 {
                bench.give_page_on((2, page), 4, How::Map);
            }
        }
        if is_linked {
            let linked = bench.give((2, slot), (3, slot), How::Link, &mut Going::default());
            assert_eq!(linked, Ok(Progress::Done));
        }
        let mut victim = Going::default();
        assert_eq!(bench.give((1, all), (2, all), how, &mut victim), Ok(Progress::More));
        // The link goes, or the giver's first pages.
        let (space, what, own) = if is_linked {
            (bench.spaces[3], slot, Own::Too)
        } else {
            (bench.spaces[0], memory(SOURCE, PAGE + 2, RWX), Own::Kept)
        };
        let mut going = Going::default();
        while bench.kernel.flush(space, what, (RWX, own), &mut going) == Ok(Progress::More) {
            going = going.next_piece();
        }
        let ended = (1..3000).any(|_| {
            victim = victim.next_piece();
            let given = bench.give((1, all), (2, all), how, &mut victim);
            refill(&mut bench, refilled, EVENTS);
            given != Ok(Progress::More)
        });
        assert!(ended, "{how:?}, linked {is_linked}");
    }
}

/// A claimer of the gibibyte around them goes on once in so many pieces of a gift of many pages, to where nothing stands: the gift waits for it so long once.
#[test]
fn many_pages_are_given_beside_a_claimer_that_goes_on_seldom() {
    let mut bench = Bench::new(SLOT, 1);
    bench.map((0, memory(SOURCE, GIB, RWX)), (2, memory(1 << 18, GIB, RWX)));
    bench.fill_slot(510);
    let (theirs, all) = (memory(1 << 18, GIB, RWX), memory(0, GIB, RWX));
    let (source, place) = (memory(0, PAGE + 8, RWX), memory(8192, PAGE + 8, RWX));
    let [mut claimer, mut victim] = [Going::default(); 2];
    let ended = (0..4000).position(|piece| {
        if piece % 1025 == 0 {
            let _ = bench.give((2, theirs), (3, all), How::Map, &mut claimer);
            claimer = claimer.next_piece();
        }
        let given = bench.give((1, source), (3, place), How::Map, &mut victim);
        victim = victim.next_piece();
        given != Ok(Progress::More)
    });
    assert!(ended.is_some_and(|pieces| pieces < 1500), "{ended:?}");
}

/// A space goes in which a gift from elsewhere claims a slot. Whoever has its number next is not waited for.
#[test]
fn a_claim_ends_with_its_space() {
    let mut bench = Bench::new(SLOT, 1);
    bench.fill_slot(64);
    let slot = memory(0, SLOT, RWX);
    let begun = bench.give((1, slot), (3, slot), How::Map, &mut Going::default());
    assert_eq!(begun, Ok(Progress::More));
    while bench.kernel.free_space_destroy(bench.spaces[3]) == Ok(Progress::More) {}
    let made = bench
        .kernel
        .free_space_create(bench.spaces[0], 60_000)
        .expect("a space");
    assert_eq!(made, bench.spaces[3], "the number is used again");
    let page = memory(3, PAGE, RWX);
    let given = bench.give((1, page), (3, page), How::Map, &mut Going::default());
    assert_eq!(given, Ok(Progress::Done));
}
