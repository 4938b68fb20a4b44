//! Many threads have begun long flushes, or gifts, and stay where they are: each is older than the victim. How long does that hold the victim up?

use kcore::bare::{
    going::Going,
    mapping::{How, Progress},
};

use crate::{
    bench::{Bench, SOURCE},
    burnt::Burnt,
    world::{PAGE, RWX, SLOT, memory},
};

/// Events between two pieces of the victim.
const EVENTS: usize = 15;
/// How many others still let the oldest go first when the next thread has the turn, or the claim: the one before kept it as long as it could.
const LEFT: u16 = 16;

fn flush_piece(bench: &mut Bench, page: u64, going: &mut Going) -> Progress {
    let progress = bench.flush(4, memory(page, PAGE, RWX), RWX, going);
    *going = if progress == Progress::More {
        going.next_piece()
    } else {
        Going::default()
    };
    progress
}

/// The page of space 4 goes to space 5, and from there on to so many.
fn feed(bench: &mut Bench, page: u64, kids: u64) {
    let own = memory(page, PAGE, RWX);
    if bench.rights(4, page).is_none() {
        bench.map((0, memory(SOURCE + 600 + page, PAGE, RWX)), (4, own));
    }
    if bench.rights(5, page).is_none() {
        bench.map((4, own), (5, own));
    }
    for kid in 0..kids {
        let to = memory(100_000 + 64 * page + kid, PAGE, RWX);
        let _ = bench.give((5, own), (6, to), How::Map, &mut Going::default());
    }
}

/// X, page 0, stands open; the next one waits; X ends. How many events that takes.
fn turn_to(bench: &mut Bench, next: &mut (u64, Going)) -> usize {
    let mut x = Going::default();
    assert_eq!(flush_piece(bench, 0, &mut x), Progress::More);
    let (open, page) = (bench.kernel.mapping_open().expect("X"), next.0);
    assert_eq!(open.0, bench.spaces[4]);
    assert_eq!(flush_piece(bench, page, &mut next.1), Progress::More);
    let mut events = 2;
    loop {
        events += 1;
        if flush_piece(bench, 0, &mut x) == Progress::Done {
            break;
        }
    }
    feed(bench, 0, 24);
    // One gives the page, three messages give it on.
    events + 4
}

fn flushes(threads: u64, most: usize) -> Option<usize> {
    let mut bench = Bench::new(PAGE, 2);
    for _ in 0..6 {
        bench.message((2, 0), 3);
    }
    for page in 0..=threads {
        feed(&mut bench, page, 24);
    }
    let mut x = Going::default();
    assert_eq!(flush_piece(&mut bench, 0, &mut x), Progress::More);
    let mut old: Vec<_> = (1..=threads).map(|page| (page, Going::default())).collect();
    for (page, going) in &mut old {
        assert_eq!(flush_piece(&mut bench, *page, going), Progress::More);
    }
    while flush_piece(&mut bench, 0, &mut x) == Progress::More {}
    feed(&mut bench, 0, 24);
    turn_to(&mut bench, &mut old[0]);
    let (mut victim, mut has) = (Going::default(), 0);
    for piece in 1..most {
        if bench.flush(1, memory(0, PAGE, RWX), RWX, &mut victim) == Progress::Done {
            bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        victim = victim.next_piece();
        let mut events = 2;
        bench.message((2, 0), 3);
        bench.message((2, 0), 3);
        if bench.kernel.mapping_turn_patience() < LEFT && has + 1 < old.len() {
            bench.cancel(&mut old[has].1);
            has += 1;
            events += 1 + turn_to(&mut bench, &mut old[has]);
        }
        assert!(events <= EVENTS, "{events}");
    }
    bench.kernel.mapping_check().expect("consistent");
    None
}

fn claims(threads: usize, most: usize) -> Option<usize> {
    let mut all = Burnt::new(14, 0);
    while all.fill().is_some() {}
    for index in 0..threads as u64 {
        let place = memory(index, PAGE, RWX);
        all.bench.map((2, memory(1024 + 128 + index, PAGE, RWX)), (5, place));
        for kid in 0..40 {
            all.bench
                .map((5, place), (6, memory(4096 + 64 * index + kid, PAGE, RWX)));
        }
    }
    let mut old = vec![Going::default(); threads];
    let gift = |bench: &mut Bench, index: usize, going: &mut Going| {
        let (from, place) = (memory(1024 + index as u64, PAGE, RWX), memory(index as u64, PAGE, RWX));
        let given = bench.give((2, from), (5, place), How::Map, going);
        *going = going.next_piece();
        given
    };
    for (index, going) in old.iter_mut().enumerate() {
        assert_eq!(gift(&mut all.bench, index, going), Ok(Progress::More));
    }
    let slot = memory(0, SLOT, RWX);
    let (mut victim, mut has, mut waits) = (Going::default(), 0, false);
    for piece in 1..most {
        if all.bench.give((1, slot), (3, slot), How::Map, &mut victim) != Ok(Progress::More) {
            all.bench.kernel.mapping_check().expect("consistent");
            return Some(piece);
        }
        victim = victim.next_piece();
        let mut left = EVENTS;
        if piece % 1000 == 0 && has + 1 < threads {
            if core::mem::take(&mut waits) {
                // It claims.
                has += 1;
                let given = gift(&mut all.bench, has, &mut old[has]);
                let claimed = all.bench.kernel.mapping_claimed();
                assert_eq!((given, claimed.is_some()), (Ok(Progress::More), true));
                left -= 1;
            } else {
                // The next one waits, then the claimer is cancelled.
                let given = gift(&mut all.bench, has + 1, &mut old[has + 1]);
                assert_eq!(given, Ok(Progress::More));
                all.bench.cancel(&mut old[has]);
                assert!(all.bench.kernel.mapping_claimed().is_none());
                waits = true;
                left -= 2;
            }
        }
        while left > 0 && all.fill() == Some(true) {
            left -= 1;
        }
    }
    all.bench.kernel.mapping_check().expect("consistent");
    None
}

#[test]
fn older_flushes_of_many_threads() {
    let ended = flushes(21, 20_000);
    assert!(ended.is_some(), "more than 20,000 pieces");
}

#[test]
fn older_claims_of_many_threads() {
    let ended = claims(12, 20_000);
    assert!(ended.is_some(), "more than 20,000 pieces");
}
