//! Messages: against a model, over random threads and operations; the fast path against the general
//! one; and deletion at every point.

mod fake;
mod messages {
    pub mod driver;
    pub mod model;
}

use abi::nucleus::{ANYONE, NO_TIMEOUTS, tag, timeouts};
use fake::Random;
use kcore::Machine;
use kcore::ThreadId;
use messages::{
    driver::{Driver, Way},
    model::Model,
};

/// A random operation of thread `me` among `ids`.
fn operation(random: &mut Random, ids: &[u64], me: u64) -> [u64; 5] {
    let anyone = |random: &mut Random| ids[random.below(ids.len())];
    let label = random.next() >> 40;
    let tag = tag(label, random.below(5) as u64, 0);
    let wait = match random.below(4) {
        0 => timeouts(0, 0),
        1 => timeouts(random.below(50) as u32, random.below(50) as u32),
        2 => timeouts(0, u32::MAX),
        _ => NO_TIMEOUTS,
    };
    let partner = anyone(random);
    match random.below(8) {
        0 => [partner, 0, tag, wait, 0],
        1 => [0, ANYONE, tag, wait, 0],
        2 => [0, partner, tag, wait, 0],
        3 | 4 => [partner, partner, tag, wait, 0],
        5 | 6 => [partner, ANYONE, tag, wait, 0],
        // Different partners, oneself, stale and impossible identifiers.
        _ => [
            [partner, me, 7, partner + (1 << 40)][random.below(4)],
            anyone(random),
            tag,
            wait,
            0,
        ],
    }
}

#[test]
fn random_operations_do_what_the_model_says() {
    let mut delivered = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let count = 2 + random.below(5);
        let mut driver = Driver::new(count, if seed % 2 == 0 { Way::General } else { Way::FastFirst });
        let mut model = Model::new(&driver.ids());
        driver.kernel.hardware.has_quick_vectors = seed % 5 > 0;
        for step in 0..400 {
            let context = format!("seed {seed}, step {step}");
            let me = driver.next();
            driver.redone.drain(..).for_each(|id| model.again(id));
            let Some(me) = me else {
                // Nobody can run: time passes, or somebody ends and another begins.
                if random.below(2) == 0 {
                    let us = random.below(60) as u64;
                    driver.pass(us);
                    model.pass(us);
                } else {
                    let ids = driver.ids();
                    let victim = ids[random.below(ids.len())];
                    driver.delete(victim);
                    model.delete(victim);
                    model.add(driver.add());
                }
                driver.check(&context);
                continue;
            };
            assert_eq!(model.turn(me), driver.result(), "{context}: thread {me:#x}");
            if seed % 3 > 0 {
                driver.use_vectors(&mut random, &context);
            }
            let ids = driver.ids();
            let arguments = operation(&mut random, &ids, me);
            let words = std::array::from_fn(|_| random.next());
            driver.operate(arguments, words);
            model.operate(me, arguments, words);
            driver.check(&context);
        }
        delivered += driver.delivered;
    }
    assert!(delivered > 10_000, "{delivered} messages");
}

/// Both ways do the same: the same threads run, wait and receive, after every operation.
#[test]
fn the_fast_path_does_what_the_general_one_does() {
    let mut fast_ones = 0;
    for seed in 1000..1200 {
        let mut random = Random(seed);
        let mut general = Driver::new(4, Way::General);
        let mut fast = Driver::new(4, Way::FastFirst);
        for step in 0..300 {
            let me = general.next();
            assert_eq!(me, fast.next(), "seed {seed}, step {step}");
            let Some(me) = me else {
                let ids = general.ids();
                let victim = ids[random.below(ids.len())];
                for driver in [&mut general, &mut fast] {
                    driver.delete(victim);
                    driver.add();
                }
                continue;
            };
            assert_eq!(general.result(), fast.result(), "seed {seed}, step {step}");
            let ids = general.ids();
            let arguments = operation(&mut random, &ids, me);
            let words = std::array::from_fn(|_| random.next());
            general.operate(arguments, words);
            fast.operate(arguments, words);
            assert_eq!(general.picture(), fast.picture(), "seed {seed}, step {step}");
        }
        fast_ones += fast.fast;
    }
    assert!(fast_ones > 1000, "the fast path was taken {fast_ones} times only");
}

/// A sender does not just go on when its receiver runs, in the same space as well.
#[test]
fn a_message_on_the_fast_path_is_noted() {
    let mut driver = Driver::new(3, Way::FastFirst);
    let receiver = driver.next().expect("a thread");
    driver.operate([0, ANYONE, 0, NO_TIMEOUTS, 0], [0; 4]);
    driver.next();
    driver.operate([0, ANYONE, 0, NO_TIMEOUTS, 0], [0; 4]);
    driver.next();
    let sender = driver.kernel.current().expect("a thread");
    let space = driver.kernel.thread(sender).space;
    assert_eq!(space, driver.kernel.threads().get(ThreadId(receiver)).space);
    driver.kernel.enter_space(space);
    assert!(driver.kernel.goes_on(sender));
    driver.operate([receiver, receiver, 0, NO_TIMEOUTS, 0], [0; 4]);
    assert_eq!(driver.fast, 1);
    assert!(!driver.kernel.is_undisturbed(sender));
}

/// Every sequence of up to three operations of three threads, and many of six, and at its end the deletion of each of
/// them: a thread that waited for the deleted one is told, and nothing points to it.
#[test]
fn a_thread_can_be_deleted_at_every_point() {
    let ids = Driver::new(3, Way::FastFirst).ids();
    let mut choices = Vec::new();
    for &partner in &ids {
        for arguments in [
            [partner, 0, 0, NO_TIMEOUTS, 0],
            [0, partner, 0, NO_TIMEOUTS, 0],
            [partner, partner, 0, NO_TIMEOUTS, 0],
            [partner, ANYONE, 0, timeouts(0, u32::MAX), 0],
        ] {
            choices.push(arguments);
        }
    }
    choices.push([0, ANYONE, 0, NO_TIMEOUTS, 0]);
    let mut points = 0;
    for length in 0..=3 {
        let mut sequence = vec![0; length];
        loop {
            for &victim in &ids {
                points += delete_after(&sequence, &choices, victim);
            }
            let Some(place) = sequence.iter().rposition(|&choice| choice + 1 < choices.len()) else {
                break;
            };
            sequence[place] += 1;
            sequence[place + 1..].fill(0);
        }
    }
    assert!(points > 4000, "{points} points");
    let mut random = Random(7);
    for _ in 0..2000 {
        let sequence: Vec<usize> = (0..6).map(|_| random.below(choices.len())).collect();
        delete_after(&sequence, &choices, ids[random.below(3)]);
    }
}

fn delete_after(sequence: &[usize], choices: &[[u64; 5]], victim: u64) -> u32 {
    let mut driver = Driver::new(3, Way::FastFirst);
    for &choice in sequence {
        if driver.next().is_none() {
            return 0;
        }
        driver.operate(choices[choice], [1, 2, 3, 4]);
    }
    driver.delete(victim);
    driver.check("after the deletion");
    // The others can run, or wait for each other or anyone, but not for the one that is gone.
    for id in driver.ids() {
        let thread = driver.kernel.threads().get(ThreadId(id));
        let waits = thread
            .operation
            .is_some_and(|operation| operation.arguments[0] == victim);
        let ready = driver.kernel.thread_is_ready(ThreadId(id));
        assert!(
            ready || !waits,
            "{sequence:?}, then {victim:#x} is deleted: {id:#x} hangs"
        );
    }
    while driver.next().is_some() {
        driver.operate([0, ANYONE, 0, NO_TIMEOUTS, 0], [0; 4]);
    }
    1
}

#[test]
fn stale_identifiers_stay_stale_through_a_million_reuses() {
    let mut driver = Driver::new(1, Way::FastFirst);
    let first = driver.add();
    driver.delete(first);
    for _ in 0..1_000_000 {
        let again = driver.add();
        assert!(again != first && again & 0xffff == first & 0xffff);
        driver.delete(again);
    }
    driver.add();
    for arguments in [[first, 0], [0, first], [first, first], [first, ANYONE]] {
        driver.next();
        driver.operate([arguments[0], arguments[1], 0, NO_TIMEOUTS, 0], [0; 4]);
        assert_eq!(driver.result().error, abi::Error::NoSuchThread as u64);
    }
}
