//! Flushes that their event does not finish: those who have pages from there, and other flushers, help them to their end.

use abi::Rights;
use kcore::{
    SpaceId,
    bare::{
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
};

use crate::{
    bench::{Bench, EVENTS, PIECES_MAX, SOURCE, TARGETS},
    world::{PAGE, RWX, SLOT, memory},
};

#[test]
fn a_holder_that_gives_a_page_on_does_not_keep_a_flush_from_its_end() {
    for size in [PAGE, SLOT] {
        for how in [How::Map, How::Grant] {
            for rights in [RWX, Rights::W, Rights::X] {
                let mut bench = Bench::new(size, 2);
                for _ in 0..64 {
                    bench.give_on(2, 3, How::Map);
                }
                bench.flush_among(rights, |bench| bench.give_on(2, 3, how));
                let left = bench.rights(2, 0);
                if rights == RWX {
                    assert_eq!(left, None, "{how:?}");
                    let others = (0..TARGETS + (1 << 11)).filter(|&page| bench.rights(3, page).is_some());
                    assert_eq!(others.count(), 0, "{how:?}");
                } else if let Some(left) = left {
                    assert!(left.intersection(rights).is_empty(), "{how:?} leaves {left}");
                }
            }
        }
    }
}

/// Of a slot a holder gives several pages on at once.
#[test]
fn a_holder_that_gives_pages_of_a_slot_on_does_not_keep_its_flush_from_its_end() {
    for rights in [RWX, Rights::W] {
        let mut bench = Bench::new(SLOT, 2);
        let mut turn = 0;
        let mut on = |bench: &mut Bench| {
            turn += 1;
            let (from, to) = (
                memory(turn * 16 % 512, PAGE + 4, RWX),
                memory(turn * 16 % (1 << 14), PAGE + 4, RWX),
            );
            let _ = bench.give((2, from), (3, to), How::Map, &mut Going::default());
        };
        for _ in 0..200 {
            on(&mut bench);
        }
        let mut going = Going::default();
        let ended = (1..PIECES_MAX).any(|_| {
            let done = bench.flush(1, memory(0, SLOT, RWX), rights, &mut going);
            going = going.next_piece();
            for _ in 0..EVENTS {
                on(&mut bench);
            }
            done == Progress::Done
        });
        assert!(ended, "a flush does not end");
    }
}

/// Each of many holders has more given on while another one's is taken.
#[test]
fn holders_that_the_flush_has_not_come_to_do_not_grow() {
    for rights in [RWX, Rights::W] {
        let mut bench = Bench::new(PAGE, 2);
        for page in 0..100 {
            bench.map((2, memory(0, PAGE, RWX)), (3, memory(page, PAGE, RWX)));
        }
        let mut turn = 0;
        let mut grow = |bench: &mut Bench| {
            turn += 1;
            bench.give_page_on((3, turn / 16 % 100), 4, How::Map);
        };
        for _ in 0..1600 {
            grow(&mut bench);
        }
        bench.flush_among(rights, grow);
    }
}

/// Who has a page of a space that ends gives it on.
#[test]
fn a_space_ends_while_what_it_gave_is_given_on() {
    for size in [PAGE, SLOT] {
        let mut bench = Bench::new(size, 2);
        for _ in 0..64 {
            bench.give_on(2, 3, How::Map);
        }
        let ended = (1..PIECES_MAX).any(|_| {
            let done = bench.kernel.free_space_destroy(bench.spaces[1]).expect("its end");
            for _ in 0..EVENTS {
                bench.give_on(2, 3, How::Map);
            }
            done == Progress::Done
        });
        assert!(ended, "a space does not end");
        assert_eq!(bench.rights(2, 0), None);
    }
}

/// Others flush, piece by piece in turns: the same page for other rights, what a holder gave on, and from above.
#[test]
fn flushes_of_one_page_that_alternate_end() {
    for (space, size) in [(0, PAGE), (1, PAGE), (2, PAGE), (1, SLOT)] {
        let mut bench = Bench::new(size, 2);
        for _ in 0..3000 {
            bench.give_on(2, 3, How::Map);
        }
        let page = if space == 0 { SOURCE } else { 0 };
        let mut other = Going::default();
        let mut turn = |bench: &mut Bench| {
            let done = bench.flush(space, memory(page, PAGE, RWX), Rights::X, &mut other);
            other = other.next_piece();
            if done == Progress::Done {
                other = Going::default();
            }
            done
        };
        // Whoever it is begins anew when it is at its end.
        bench.flush_among(Rights::W, |bench| {
            turn(bench);
        });
        let ended = (1..PIECES_MAX).any(|_| turn(&mut bench) == Progress::Done);
        assert!(ended, "the other flush of {space} does not end");
    }
}

/// The owner of a slot links it on while another thread of the same space takes it from those who link it.
#[test]
fn links_that_are_given_do_not_keep_a_flush_from_its_end() {
    let mut bench = Bench::new(PAGE, 2);
    let many = linked(&mut bench);
    let mut going = Going::default();
    let mut turn = 0;
    let ended = (1..PIECES_MAX).any(|_| {
        let done = bench.flush(1, memory(0, SLOT, RWX), RWX, &mut going);
        going = going.next_piece();
        for _ in 0..EVENTS {
            turn += 1;
            bench.link(many[turn % many.len()]);
        }
        done == Progress::Done
    });
    assert!(ended, "a flush of links does not end");
}

/// Many spaces that link the flusher's first slot.
fn linked(bench: &mut Bench) -> Vec<SpaceId> {
    let sigma0 = bench.spaces[0];
    let many: Vec<_> = (0..400)
        .map(|_| bench.kernel.free_space_create(sigma0, 400).expect("a space"))
        .collect();
    for &to in &many {
        bench.link(to);
    }
    many
}

/// Others finish the flush of a slot that its caller does not go on with: the slot is no shared one then.
#[test]
fn links_that_others_take_leave_an_ordinary_slot() {
    let mut bench = Bench::new(PAGE, 2);
    bench.map((0, memory(SOURCE + 8, PAGE, RWX)), (4, memory(0, PAGE, RWX)));
    let nodes = bench.kernel.mapping_nodes();
    linked(&mut bench);
    let begun = bench.flush(1, memory(0, SLOT, RWX), RWX, &mut Going::default());
    assert_eq!(begun, Progress::More);
    let gifts = 1000;
    for page in 0..gifts {
        // Within a space it takes the general way.
        bench.map((4, memory(0, PAGE, RWX)), (4, memory(8 + page, PAGE, RWX)));
    }
    assert_eq!(u64::from(bench.kernel.mapping_nodes() - nodes), gifts);
}

/// The flusher goes away. Givers who have nothing to do with it finish what it began, where they take the general way.
#[test]
fn a_flush_that_nobody_goes_on_with_is_finished_by_others() {
    let mut bench = Bench::new(PAGE, 2);
    for _ in 0..3000 {
        bench.give_on(2, 3, How::Map);
    }
    let begun = bench.flush(1, memory(0, PAGE, RWX), RWX, &mut Going::default());
    assert_eq!(begun, Progress::More);
    bench.map((0, memory(SOURCE + 8, PAGE, RWX)), (4, memory(0, PAGE, RWX)));
    assert!(bench.rights(2, 0).is_some(), "an unrelated gift is short");
    bench.give_on(4, 5, How::Map);
    for _ in 0..3000 {
        let before = bench.kernel.mapping_nodes();
        bench.give_on(4, 4, How::Map);
        assert!(before.abs_diff(bench.kernel.mapping_nodes()) < 8, "it does much of it");
    }
    assert_eq!(bench.rights(2, 0), None, "nobody finishes it");
    assert!(bench.rights(1, 0).is_some());
}

/// What is flushed below is done before what comes from above.
#[test]
fn a_flush_from_above_leaves_nothing_of_one_below_undone() {
    let mut bench = Bench::new(PAGE, 3);
    for _ in 0..300 {
        bench.give_on(3, 4, How::Map);
    }
    let page = memory(0, PAGE, RWX);
    let [mut below, mut above] = [Going::default(); 2];
    assert_eq!(bench.flush(2, page, Rights::W, &mut below), Progress::More);
    assert_eq!(bench.flush(1, page, Rights::X, &mut above), Progress::More);
    let mut ended = false;
    for _ in 1..PIECES_MAX {
        below = below.next_piece();
        ended = bench.flush(2, page, Rights::W, &mut below) == Progress::Done;
        if ended {
            break;
        }
    }
    assert!(ended);
    for place in (0..TARGETS + (1 << 11)).filter(|&place| bench.rights(4, place).is_some()) {
        assert!(!bench.rights(4, place).expect("a page").contains(Rights::W));
    }
}

/// A flush that its event does not finish, beside another one that has nothing to do with it and begins anew all the time.
#[test]
fn two_long_flushes_that_have_nothing_in_common_end() {
    let mut bench = Bench::new(PAGE, 2);
    bench.map((0, memory(SOURCE + 1, PAGE, RWX)), (4, memory(1, PAGE, RWX)));
    for _ in 0..1000 {
        bench.give_on(2, 3, How::Map);
        bench.give_page_on((4, 1), 5, How::Map);
    }
    let mut other = Going::default();
    let mut turn = |bench: &mut Bench| {
        let done = bench.flush(4, memory(1, PAGE, RWX), Rights::W, &mut other);
        other = other.next_piece();
        if done == Progress::Done {
            other = Going::default();
        }
        done
    };
    turn(&mut bench);
    bench.flush_among(RWX, |bench| {
        // It is under way whenever the first one goes on.
        assert!((0..PIECES_MAX).any(|_| turn(bench) == Progress::More));
        bench.give_on(2, 3, How::Map);
    });
}

/// Others finish the flush of a page, which goes then: that of the next page is still to be done.
#[test]
fn a_page_loses_rights_though_the_one_before_it_went_meanwhile() {
    let mut bench = Bench::new(PAGE, 2);
    bench.map((0, memory(SOURCE + 1, PAGE, RWX)), (1, memory(1, PAGE, RWX)));
    bench.map((1, memory(1, PAGE, RWX)), (2, memory(1, PAGE, RWX)));
    for _ in 0..200 {
        bench.give_on(2, 3, How::Map);
        bench.give_page_on((2, 1), 3, How::Map);
    }
    let mut going = Going::default();
    let both = memory(0, PAGE + 1, RWX);
    assert_eq!(bench.flush(1, both, Rights::W, &mut going), Progress::More);
    for _ in 0..200 {
        bench.give_on(2, 3, How::Map);
    }
    let mut above = Going::default();
    while bench.flush(0, memory(SOURCE, PAGE, RWX), RWX, &mut above) == Progress::More {
        above = above.next_piece();
    }
    let ended = (1..PIECES_MAX).any(|_| {
        going = going.next_piece();
        bench.flush(1, both, Rights::W, &mut going) == Progress::Done
    });
    assert!(ended);
    let left = bench.rights(2, 1).expect("the page");
    assert!(!left.contains(Rights::W));
}

/// The top of a flush goes by another way, and its node is another page's.
#[test]
fn a_flush_whose_page_went_is_forgotten() {
    let mut bench = Bench::new(PAGE, 2);
    for _ in 0..200 {
        bench.give_on(2, 3, How::Map);
    }
    let begun = bench.flush(1, memory(0, PAGE, RWX), RWX, &mut Going::default());
    assert_eq!(begun, Progress::More);
    // Those who have the page lose it by short flushes, then the flusher.
    for page in 0..TARGETS + (1 << 11) {
        let own = (RWX, Own::Too);
        let what = memory(page, PAGE, RWX);
        let done = bench.kernel.flush(bench.spaces[3], what, own, &mut Going::default());
        assert_eq!(done, Ok(Progress::Done));
    }
    let own = (RWX, Own::Too);
    for space in [2, 1] {
        let done = bench
            .kernel
            .flush(bench.spaces[space], memory(0, PAGE, RWX), own, &mut Going::default());
        assert_eq!(done, Ok(Progress::Done));
    }
    // The same place again, and what is given from there stays.
    bench.map((0, memory(SOURCE + 1, PAGE, RWX)), (1, memory(0, PAGE, RWX)));
    bench.map((1, memory(0, PAGE, RWX)), (2, memory(0, PAGE, RWX)));
    for _ in 0..100 {
        bench.give_on(2, 3, How::Map);
    }
    assert!(bench.rights(2, 0).is_some());
}

/// Others finish one long flush and begin the next one, so that one of theirs stands open whenever this one goes on: elsewhere, or below it.
#[test]
fn a_flush_does_not_wait_for_those_that_begin_later() {
    for (space, rights) in [(4, RWX), (4, Rights::W), (3, RWX), (3, Rights::W)] {
        let mut bench = Bench::new(PAGE, 2);
        for page in [1, 2] {
            if space == 4 {
                bench.map((0, memory(SOURCE + page, PAGE, RWX)), (4, memory(page, PAGE, RWX)));
            } else {
                bench.map((2, memory(0, PAGE, RWX)), (3, memory(page, PAGE, RWX)));
            }
        }
        for _ in 0..300 {
            bench.give_on(2, 5, How::Map);
        }
        let (mut page, mut other) = (1, Going::default());
        let over = |bench: &mut Bench, page: u64, rights: Rights, going: &mut Going| {
            (0..PIECES_MAX).any(|_| {
                let done = bench.flush(space, memory(page, PAGE, RWX), rights, going);
                *going = going.next_piece();
                done == Progress::Done
            })
        };
        let mut later = |bench: &mut Bench| {
            let next = 3 - page;
            for _ in 0..100 {
                bench.give_page_on((space, next), 6, How::Map);
            }
            assert!(over(bench, page, Rights::W, &mut other), "one of them does not end");
            // With rights it stands open from its first piece on.
            other = Going::default();
            bench.flush(space, memory(next, PAGE, RWX), Rights::W, &mut other);
            other = other.next_piece();
            assert!(over(bench, page, RWX, &mut Going::default()));
            page = next;
        };
        later(&mut bench);
        let mut going = Going::default();
        let ended = (1..PIECES_MAX).any(|_| {
            let done = bench.flush(1, memory(0, PAGE, RWX), rights, &mut going);
            going = going.next_piece();
            later(&mut bench);
            done == Progress::Done
        });
        assert!(ended, "it waits for those of {space}");
    }
}

/// A page that is granted, or replaced, is given on by its own space until it has gone. That space also flushes it, and so ends what stands open.
#[test]
fn a_page_that_is_granted_or_replaced_is_not_kept_by_giving_it_on() {
    let give_on = |bench: &mut Bench| {
        bench.give_on(2, 3, How::Map);
        // So it is taken piece by piece.
        bench.give_page_on((3, bench.next), 4, How::Map);
    };
    for (size, flushes) in [(PAGE, 0), (PAGE, 40), (SLOT, 0), (SLOT, 40)] {
        for (how, from, to) in [(How::Grant, 2, 5), (How::Map, 1, 2)] {
            let mut bench = Bench::new(size, 2);
            for _ in 0..64 {
                give_on(&mut bench);
            }
            let mut going = Going::default();
            let target = if to == 2 { 0 } else { 512 };
            let ended = (1..PIECES_MAX).any(|_| {
                let (source, window) = (memory(0, size, RWX), memory(target, size, RWX));
                let given = bench.give((from, source), (to, window), how, &mut going);
                going = going.next_piece();
                let mut other = Going::default();
                for _ in 0..flushes {
                    if bench.flush(2, memory(0, size, RWX), RWX, &mut other) == Progress::Done {
                        break;
                    }
                    other = other.next_piece();
                }
                for _ in 0..EVENTS {
                    give_on(&mut bench);
                }
                given.expect("a gift") == Progress::Done
            });
            assert!(ended, "{how:?} of {size} does not end, flushed in {flushes} pieces");
        }
    }
}

/// A grant of the page goes on with a flush that stands open, though it finds something in its target each time, or its target is the page that this one comes from.
/// The flush's own caller is told that it is done only when nobody has what was there.
#[test]
fn a_grant_that_goes_on_with_a_flush_does_not_end_it() {
    for target in [5, 1] {
        let mut bench = Bench::new(PAGE, 2);
        let mut held = Vec::new();
        for _ in 0..64 {
            bench.give_on(2, 3, How::Map);
            held.push(bench.next);
            // So it is taken piece by piece.
            bench.give_page_on((3, bench.next), 4, How::Map);
        }
        let (mut flush, mut grant) = (Going::default(), Going::default());
        let page = memory(0, PAGE, RWX);
        assert_eq!(bench.flush(2, page, RWX, &mut flush), Progress::More);
        // The one target has a page from elsewhere each time.
        bench.map((0, memory(SOURCE + 1, PAGE, RWX)), (1, memory(1, PAGE, RWX)));
        bench.map((1, memory(1, PAGE, RWX)), (5, memory(0, PAGE, RWX)));
        let granted = bench.give((2, page), (target, page), How::Grant, &mut grant);
        assert_eq!(granted, Ok(Progress::More));
        let has = |bench: &Bench| held.iter().filter(|&&page| bench.rights(3, page).is_some()).count();
        let left = has(&bench);
        assert!(left > 0 && left < 60, "{left} are left");
        // The grant is never gone on with.
        let ended = (1..PIECES_MAX).any(|_| {
            flush = flush.next_piece();
            bench.flush(2, page, RWX, &mut flush) == Progress::Done
        });
        assert!(ended, "the flush does not end");
        assert_eq!(has(&bench), 0, "they keep the page though the flush is done");
    }
}

/// Steps of single ports that nobody has from there, and those of the question whether they have to do with a flush that stands open: the more, the more givers
/// there are above them.
#[test]
fn a_flush_of_single_ports_goes_in_pieces() {
    let first = |givers: usize, count: u64, is_open: bool| {
        let mut bench = Bench::new(PAGE, 5);
        while bench.spaces.len() <= givers {
            let made = bench.kernel.free_space_create(bench.spaces[0], 60_000);
            bench.spaces.push(made.expect("a space"));
        }
        for giver in 0..givers {
            for port in 0..count {
                let one = Fpage::ports(2 * port, 0).expect("a port");
                bench.map((giver, one), (giver + 1, one));
            }
        }
        if is_open {
            for _ in 0..64 {
                bench.give_on(5, 6, How::Map);
                bench.give_page_on((6, bench.next), 1, How::Map);
            }
            let open = bench.flush(5, memory(0, PAGE, RWX), RWX, &mut Going::default());
            assert_eq!(open, Progress::More);
        }
        let ports = Fpage::ports(0, 7).expect("ports");
        bench.flush(givers, ports, RWX, &mut Going::default())
    };
    assert_eq!(first(1, 64, false), Progress::More, "all of them in one piece");
    assert_eq!(first(1, 8, true), Progress::Done);
    assert_eq!(first(30, 8, true), Progress::More, "the way up costs nothing");
}

/// The same of pages that are given: fewer in a piece while a flush stands open.
#[test]
fn fewer_pages_are_given_in_a_piece_while_a_flush_stands_open() {
    let given = |is_open: bool| {
        let mut bench = Bench::new(PAGE, 3);
        bench.map((0, memory(SOURCE + 64, 18, RWX)), (5, memory(64, 18, RWX)));
        bench.map((5, memory(64, 18, RWX)), (6, memory(64, 18, RWX)));
        if is_open {
            for _ in 0..64 {
                bench.give_on(2, 3, How::Map);
                bench.give_page_on((3, bench.next), 4, How::Map);
            }
            let open = bench.flush(2, memory(0, PAGE, RWX), RWX, &mut Going::default());
            assert_eq!(open, Progress::More);
        }
        let (from, to) = (bench.spaces[5], bench.spaces[6]);
        let pages = memory(64, 18, RWX);
        let mapped = bench
            .kernel
            .map((from, pages), (to, pages), How::Map, &mut Going::default());
        mapped.expect("a gift").count
    };
    assert!(given(true) + 4 < given(false), "{} and {}", given(true), given(false));
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

/// A gift is over, its source gone with what stood in its place, and leaves a flush open. Others do not wait for it.
#[test]
fn what_a_gift_leaves_open_keeps_nobody_waiting() {
    let mut bench = Bench::new(PAGE, 3);
    for _ in 0..64 {
        bench.give_on(3, 4, How::Map);
    }
    // Space 3 gives its page to where space 1 has it: the page goes with what it is to replace.
    let mut going = Going::default();
    let (from, to) = (memory(0, PAGE, RWX), memory(0, PAGE, RWX));
    while bench.give((3, from), (1, to), How::Map, &mut going) == Ok(Progress::More) {
        going = going.next_piece();
    }
    // The first space gives its page, which nobody has any more, to another one.
    let waits = bench.pieces((1, memory(0, PAGE, RWX)), (5, memory(9, PAGE, RWX)), How::Map);
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
        assert!((0..PIECES_MAX).any(|_| own(&mut bench, &mut going) == Progress::Done));
        bench.kernel.mapping_check().expect("consistent");
        let mut above = Going::default();
        while bench.flush(1, slot, Rights::W, &mut above) == Progress::More {
            above = above.next_piece();
        }
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
    // The page that was taken the right to write is given it again: a short way.
    bench.map((2, memory(0, PAGE, RWX)), (3, memory(2000, PAGE, RWX)));
    loop {
        going = going.next_piece();
        if bench.flush(1, slot, Rights::W, &mut going) == Progress::Done {
            break;
        }
    }
    // Again, with nobody in its way.
    let mut again = Going::default();
    while bench.flush(1, slot, Rights::W, &mut again) == Progress::More {
        again = again.next_piece();
    }
    let left = bench.rights(3, 2000);
    assert!(
        left.is_none_or(|rights| !rights.contains(Rights::W)),
        "it keeps {left:?}"
    );
}

/// A space flushes its own page, which goes with the flush: what others of the space give on meanwhile is looked at, also behind the help.
#[test]
fn a_page_that_its_space_flushes_too_is_not_given_on_behind_the_help() {
    let mut bench = Bench::new(PAGE, 2);
    // So its table stays, and the short way is taken.
    bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (3, memory(1024, PAGE, RWX)));
    for _ in 0..14 {
        bench.give_on(2, 3, How::Map);
    }
    let mut going = Going::default();
    let page = memory(0, PAGE, RWX);
    for _ in 1..PIECES_MAX {
        let space = bench.spaces[2];
        let done = bench.kernel.flush(space, page, (RWX, Own::Too), &mut going);
        going = going.next_piece();
        if done == Ok(Progress::Done) {
            return;
        }
        for _ in 0..EVENTS {
            bench.give_on(2, 3, How::Map);
        }
    }
    panic!("it does not end");
}
