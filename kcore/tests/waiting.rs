//! Waking: queues by key, and many threads in pieces (decision 0110).

mod fake;

use std::collections::{BTreeMap, VecDeque};

use fake::{Fake, Random, spawn};
use kcore::{
    Kernel, Machine, ThreadId,
    space::Tags,
    thread::{Operation, Resumed},
    wait::Key,
};

/// A kernel in which that many threads wait for a key, and these.
fn waiting(count: usize, key: Key) -> (Kernel<Fake>, Vec<ThreadId>) {
    let frames = count as u32;
    let mut hardware = Fake::new(frames, Tags::Absent);
    hardware.threads = 0;
    let mut kernel = Kernel::new(hardware, &[(1, frames)]);
    let space = kernel.space_create().expect("space");
    let threads: Vec<ThreadId> = (0..count).map(|_| spawn(&mut kernel, space, 3)).collect();
    for _ in &threads {
        kernel.schedule();
        kernel.park(key, None, None);
    }
    (kernel, threads)
}

#[test]
fn of_all_who_wait_for_one_thing_each_event_wakes_some() {
    let key = Key::Semaphore(8);
    let (mut kernel, threads) = waiting(2000, key);
    kernel.hardware.now_ns = 1000;
    kernel.hardware.timer_ns = u64::MAX;
    let is_ready =
        |kernel: &Kernel<Fake>, thread| kernel.threads().find(thread).is_some() && kernel.thread_is_ready(thread);
    let ready = |kernel: &Kernel<Fake>| threads.iter().filter(|&&thread| is_ready(kernel, thread)).count();
    assert_eq!(kernel.wake(key, u32::MAX), 2000);
    assert!(ready(&kernel) <= 32, "{} in one event", ready(&kernel));
    // Those that leave meanwhile, or wait for the same again, are not mixed up with the others.
    kernel.thread_destroy(threads[1500]);
    kernel.thread_destroy(threads[1999]);
    kernel.thread_suspend(threads[700]);
    kernel.thread_wake(threads[700], Resumed::Woken);
    kernel.check().expect("a sound kernel");
    assert_eq!(kernel.schedule().map(|index| kernel.id_of(index)), Some(threads[700]));
    kernel.park(key, None, None);
    let mut before = ready(&kernel);
    while before < 1997 {
        // The rest follows after a pause of 50 microseconds (decision 0130).
        let soon = kernel.hardware.now_ns + 50_000;
        assert!(kernel.hardware.timer_ns <= soon, "the rest is forgotten");
        kernel.hardware.now_ns = soon;
        kernel.hardware.timer_ns = u64::MAX;
        kernel.tick();
        kernel.check().expect("a sound kernel");
        let now = ready(&kernel);
        assert!(now > before && now - before <= 32, "{before} threads, then {now}");
        before = now;
    }
    kernel.tick();
    assert!(!kernel.thread_is_ready(threads[700]), "it has parked behind the wake");
    assert_eq!(kernel.wake(key, u32::MAX), 1);
}

#[test]
fn where_nobody_else_runs_those_on_their_way_do() {
    let (mut kernel, _) = waiting(200, Key::Checkpoint);
    kernel.wake(Key::Checkpoint, u32::MAX);
    for _ in 0..200 {
        kernel.schedule().expect("a thread that was woken");
        kernel.park(Key::Nothing, None, None);
    }
    assert_eq!(kernel.schedule(), None);
}

#[test]
fn queues_are_those_of_a_model() {
    let mut random = Random(5);
    let (mut kernel, threads) = waiting(60, Key::Nothing);
    let mut model: BTreeMap<u64, VecDeque<ThreadId>> = BTreeMap::new();
    for &thread in &threads {
        kernel.thread_wake(thread, Resumed::Woken);
    }
    let key = |random: &mut Random| {
        let address = random.below(12) as u64 * 4;
        if random.below(4) == 0 {
            Key::Semaphore(address)
        } else {
            Key::Address(address)
        }
    };
    for step in 0..20_000 {
        match random.below(8) {
            0..=4 => {
                kernel.yield_current();
                if let Some(index) = kernel.schedule() {
                    let key = key(&mut random);
                    kernel.park(key, None, None);
                    model.entry(key.word()).or_default().push_back(kernel.id_of(index));
                }
            }
            5 => {
                let (key, count) = (key(&mut random), random.below(3) as u32);
                let queue = model.entry(key.word()).or_default();
                let expected = queue.len().min(count as usize);
                assert_eq!(kernel.wake(key, count), expected as u32);
                assert!(queue.drain(..expected).all(|thread| kernel.thread_is_ready(thread)));
            }
            6 => {
                let (from, to) = (random.below(12) as u64 * 4, random.below(14) as u64 * 4);
                let words = Key::Address(from).word()..Key::Address(to).word();
                let first = model
                    .iter()
                    .find(|(word, queue)| words.contains(word) && !queue.is_empty());
                let first = first.map(|(&word, queue)| (word, queue.len()));
                let woken = kernel.wake_words(from..to);
                assert_eq!(woken as usize, first.map_or(0, |(_, count)| count));
                if let Some((word, _)) = first {
                    model.remove(&word);
                }
                kernel.tick();
                kernel.tick();
            }
            _ => {
                let thread = threads[random.below(60)];
                for queue in model.values_mut() {
                    queue.retain(|&other| other != thread);
                }
                kernel.thread_suspend(thread);
                kernel.thread_wake(thread, Resumed::Woken);
            }
        }
        kernel.check().unwrap_or_else(|broken| panic!("step {step}: {broken}"));
    }
}

/// Work of the supervisor that is due goes before the next piece of a long call, and behind a thread that was woken during the last one.
#[test]
fn a_thread_that_makes_its_call_again_was_not_woken() {
    let mut kernel: Kernel<Fake> = Kernel::new(Fake::new(64, Tags::Absent), &[(1, 63)]);
    let space = kernel.space_create().expect("space");
    let [urgent, long, equal] = [4, 3, 3].map(|priority| spawn(&mut kernel, space, priority));
    kernel.schedule();
    kernel.park(Key::Semaphore(8), None, None);
    assert_eq!(kernel.schedule(), Some(long.index() as u32));
    let operation = Some(Operation::called(9, [0; 6]));
    kernel.again(operation);
    assert!(!kernel.has_woken(), "{equal:?} is behind it, and no more urgent");
    kernel.wake(Key::Semaphore(8), 1);
    assert!(kernel.has_woken());
    assert_eq!(kernel.schedule(), Some(urgent.index() as u32));
    assert!(!kernel.has_woken());
    kernel.park(Key::Semaphore(16), None, None);
    assert!(!kernel.has_woken(), "the piece is what comes next");
    assert_eq!(kernel.schedule(), Some(long.index() as u32));
    assert_eq!(kernel.take_operation(long.index() as u32), operation);
    // It waits, and is woken like any other.
    kernel.park(Key::Semaphore(24), None, operation);
    kernel.schedule();
    kernel.park(Key::Semaphore(8), None, None);
    kernel.wake(Key::Semaphore(24), 1);
    assert!(kernel.has_woken());
    kernel.check().expect("a sound kernel");
}
