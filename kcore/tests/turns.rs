//! The line for the kernel lock: how often a processor that waits is passed by others.

mod fake;

use fake::Random;
use kcore::smp::{PROCESSORS_MAX, Turn, Waiting, protocol::Mark};

/// Looks until a processor is in line, and looks until the first one in line counts as absent: generously.
const LOOKS: usize = 32;

fn mark(processor: usize) -> Mark {
    Mark::of(processor as u32)
}

/// A turn that is free, and that processor 0 had last.
fn free() -> Turn {
    let turn = Turn::taken();
    turn.leave();
    turn
}

/// All processors want the turn all the time, and the holder gives it up and takes it again between any two looks of others, if it can: the
/// worst that can happen to a processor that waits.
#[test]
fn a_processor_that_waits_has_its_turn_soon() {
    for count in [2, 3, PROCESSORS_MAX] {
        let mut random = Random(count as u64);
        let turn = free();
        assert!(turn.try_again(mark(0)));
        let mut holder = Some(0);
        let mut waiting: Vec<Waiting> = (0..count).map(|of| Waiting::of(mark(of))).collect();
        let (mut passed, mut took) = (vec![0; count], vec![0; count]);
        for _ in 0..20_000 {
            // Each looks once before another one looks twice.
            let first = random.below(count);
            for number in (0..count).map(|step| (first + step) % count) {
                let mut taker = None;
                if let Some(held) = holder.filter(|&held| held != number) {
                    turn.leave();
                    if turn.try_again(mark(held)) {
                        taker = holder;
                    } else {
                        waiting[held] = Waiting::of(mark(held));
                        holder = None;
                    }
                }
                if holder != Some(number) && turn.look(&mut waiting[number]).is_some() {
                    assert_eq!(holder, None, "one at a time");
                    (taker, holder) = (Some(number), Some(number));
                }
                let Some(taker) = taker else { continue };
                took[taker] += 1;
                for (other, passed) in passed.iter_mut().enumerate() {
                    *passed = if other == taker { 0 } else { *passed + 1 };
                    assert!(
                        *passed <= LOOKS * count,
                        "processor {other} of {count} waits while others have {passed} turns"
                    );
                }
            }
        }
        let (least, most) = (took.iter().min().copied(), took.iter().max().copied());
        assert!(most < least.map(|least| 4 * least), "turns: {took:?}");
    }
}

/// Where all are in line the turn goes round in the order of their numbers, though those who are not next look more often.
#[test]
fn the_turn_goes_round() {
    let turn = free();
    assert!(turn.try_again(mark(0)));
    let mut waiting = [0, 1, 2, 3, 4].map(|of| Waiting::of(mark(of)));
    for step in 0..20 {
        let (holder, next) = (step % 5, (step + 1) % 5);
        waiting[holder] = Waiting::of(mark(holder));
        let others: Vec<usize> = (0..5).filter(|&of| of != holder && of != next).collect();
        for of in (0..LOOKS).flat_map(|_| others.iter().chain([&next])) {
            assert_eq!(turn.look(&mut waiting[*of]), None, "taken");
        }
        turn.leave();
        for &of in (0..LOOKS / 4).flat_map(|_| &others) {
            assert_eq!(turn.look(&mut waiting[of]), None, "{of} is not next in step {step}");
        }
        assert_eq!(turn.look(&mut waiting[next]), Some(true));
    }
}

#[test]
fn the_first_in_line_that_does_not_look_is_waited_for_once() {
    let turn = free();
    assert!(turn.try_again(mark(0)));
    let [mut absent, mut next] = [1, 2].map(|of| Waiting::of(mark(of)));
    for _ in 0..LOOKS {
        assert!(turn.look(&mut absent).is_none() && turn.look(&mut next).is_none());
    }
    turn.leave();
    assert!(!turn.try_again(mark(0)), "somebody is in line");
    let looks = (0..LOOKS).take_while(|_| turn.look(&mut next).is_none()).count();
    assert!((1..LOOKS).contains(&looks), "passed after {looks} looks");
    turn.leave();
    assert!(turn.try_again(mark(2)), "nobody is in line");
    assert!(turn.look(&mut absent).is_none());
    turn.leave();
    assert!(!turn.try_again(mark(2)), "it looks again, and is in line");
    assert_eq!(turn.look(&mut absent), Some(true));
}

#[test]
fn a_wait_that_is_given_up_keeps_nobody_back() {
    let turn = free();
    assert!(turn.try_again(mark(0)));
    let mut looks = 0;
    let taken = turn.take(mark(1), || {
        looks += 1;
        looks < LOOKS
    });
    assert_eq!(taken, None);
    turn.leave();
    assert!(turn.try_again(mark(0)));
}
