//! Threads, waiting and portals.

mod fake;

use fake::{Fake, Random, kernel, spawn};
use kcore::{
    Hardware, Kernel, Machine, Shortage, SpaceId, ThreadId, bare,
    kernel::TIME_SLICE_NS,
    machine::Stacks,
    portal::Stale,
    scheduler::Standing,
    space::Tags,
    thread::{Operation, Resumed, State, THREADS_MAX, VectorState},
    wait::Key,
};

/// Lets the scheduler choose, as an event of the present thread's end would.
fn next(kernel: &mut Kernel<Fake>) -> Option<ThreadId> {
    kernel.yield_current();
    kernel.schedule().map(|index| kernel.id_of(index))
}

#[test]
fn waking_is_oldest_first_and_only_for_the_key() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let threads: Vec<ThreadId> = (0..4).map(|_| spawn(&mut kernel, space, 3)).collect();
    for (number, &thread) in threads.iter().enumerate() {
        assert_eq!(kernel.schedule().map(|index| kernel.id_of(index)), Some(thread));
        let key = if number == 2 {
            Key::Semaphore(64)
        } else {
            Key::Semaphore(8)
        };
        kernel.park(
            key,
            None,
            Some(Operation {
                number: 58,
                arguments: [8, 0, 0, 0, 0, 0],
            }),
        );
    }
    assert_eq!(kernel.schedule(), None);
    assert_eq!(kernel.wake(Key::Semaphore(8), 2), 2);
    assert_eq!(next(&mut kernel), Some(threads[0]));
    assert_eq!(next(&mut kernel), Some(threads[1]));
    assert_eq!(next(&mut kernel), Some(threads[0]));
    assert!(!kernel.thread_is_ready(threads[2]) && !kernel.thread_is_ready(threads[3]));
    assert_eq!(kernel.threads().get(threads[0]).resumed, Resumed::Woken);
    assert!(
        kernel.threads().get(threads[0]).operation.is_some(),
        "the call is to be done again"
    );
}

#[test]
fn a_yield_in_one_step_is_a_yield() {
    let mut random = Random(0x7e1d);
    for _ in 0..200 {
        let mut kernels = [kernel(20), kernel(20)];
        let priorities: Vec<u8> = (0..=random.below(6)).map(|_| random.below(3) as u8).collect();
        for kernel in &mut kernels {
            let space = kernel.space_create().expect("space");
            for &priority in &priorities {
                spawn(kernel, space, priority);
            }
            kernel.schedule();
        }
        for step in 0..20 {
            let [quick, general] = &mut kernels;
            let before = quick.current().expect("one runs");
            quick.threads_mut().table[before as usize].context.rbx = step;
            let turn = quick.rotate(0x40_0000 + step, 0x7f_0000);
            general.yield_current();
            let next = general.schedule();
            assert_eq!(quick.current(), next);
            match turn {
                Some(turn) => {
                    assert_eq!(Some(turn.next), next);
                    assert!(turn.is_plain);
                    let left = quick.threads().table[before as usize].context.whole();
                    assert_eq!((left.rip, left.rsp, left.rbx), (0x40_0000 + step, 0x7f_0000, 0));
                }
                None => assert_eq!(next, Some(before)),
            }
        }
    }
}

/// Parking and scheduling in one step does what the two do, or nothing.
#[test]
fn a_thread_that_parks_for_the_next_one_leaves_what_two_steps_leave() {
    let mut random = Random(9);
    let mut at_once = 0;
    for _ in 0..300 {
        let mut kernels = [kernel(20), kernel(20)];
        let threads: Vec<(u8, u32)> = (0..=random.below(6))
            .map(|_| (random.below(3) as u8, random.below(8) as u32 / 7))
            .collect();
        for kernel in &mut kernels {
            kernel.share_open(1, 0, 1000).expect("a share");
            let space = kernel.space_create().expect("space");
            for &(priority, share) in &threads {
                let standing = Standing::new(share, priority);
                let thread = kernel.thread_create(space, 0x1000, 0x2000, [0; 4], standing);
                kernel.thread_wake(thread.expect("a thread"), Resumed::First);
            }
            kernel.schedule();
        }
        let (key, operation) = (Key::Semaphore(8 * random.below(3) as u64), Operation::called(7, [1; 6]));
        while let Some(current) = kernels[0].current() {
            for kernel in &mut kernels {
                kernel.hardware.now_ns += 1000;
                kernel.threads_mut().table[current as usize].context.rbx = 5;
            }
            let [quick, general] = &mut kernels;
            if let Some(turn) = quick.park_for_next(key, || operation) {
                let context = general.context_of(current);
                context.reset(context.rip, context.rsp);
                general.park(key, None, Some(operation));
                assert_eq!(general.schedule(), Some(turn.next));
                assert!(turn.is_plain);
                at_once += 1;
            } else {
                assert_eq!(quick.current(), Some(current), "nothing was done");
                for kernel in &mut kernels {
                    let context = kernel.context_of(current);
                    context.reset(context.rip, context.rsp);
                    kernel.park(key, None, Some(operation));
                    kernel.schedule();
                }
            }
            let [quick, general] = &mut kernels;
            assert_eq!((quick.current(), quick.check()), (general.current(), general.check()));
            for (one, other) in quick.threads().table.iter().zip(general.threads().table.iter()) {
                assert_eq!(one.context.whole(), other.context.whole());
                let of =
                    |thread: &kcore::thread::Thread| (thread.state, thread.operation, thread.time_ns, thread.resumed);
                assert_eq!(of(one), of(other));
            }
            assert_eq!(quick.oldest(key), general.oldest(key));
        }
    }
    assert!(at_once > 300, "{at_once} at once");
}

#[test]
fn a_yield_is_plain_only_between_threads_that_need_nothing_set_up() {
    type Change = fn(&mut kcore::thread::Thread);
    let changes: [Change; 3] = [
        |thread| thread.vectors = VectorState::INITIAL,
        |thread| thread.slow = 1,
        |thread| {
            thread.operation = Some(Operation {
                number: 42,
                arguments: [0; 6],
            });
        },
    ];
    let turn = |one: usize, change: Change| {
        let mut kernel = kernel(20);
        let space = kernel.space_create().expect("space");
        let threads = [0; 2].map(|_| spawn(&mut kernel, space, 3));
        kernel.schedule();
        change(&mut kernel.threads_mut().table[threads[one].index()]);
        kernel.rotate(0x40_0000, 0x7f_0000).expect("somebody waits").is_plain
    };
    assert!(turn(0, |_| ()));
    for (number, change) in changes.into_iter().enumerate() {
        assert!(!turn(1, change), "change {number} of the next one");
    }
    for (number, change) in changes.into_iter().take(2).enumerate() {
        assert!(!turn(0, change), "change {number} of the one that yields");
    }
}

#[test]
fn who_is_answered_goes_on_with_the_values_and_does_not_call_again() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let [waits, ends, other] = [0; 3].map(|_| spawn(&mut kernel, space, 3));
    let key = Key::Child(waits.0);
    kernel.schedule();
    assert!(!kernel.thread_can_be_answered(waits, key), "it runs");
    let operation = Operation {
        number: 42,
        arguments: [1; 6],
    };
    kernel.park(key, Some(1_000_000), Some(operation));
    assert!(!kernel.thread_can_be_answered(waits, Key::Child(ends.0)));
    assert!(kernel.thread_can_be_answered(waits, key));
    kernel.schedule();
    // The processor passes to it, past the other that has waited longer: on the slice of the one that ended.
    kernel.thread_destroy(ends);
    kernel.thread_answer(waits, 7, 8);
    assert_eq!(kernel.current(), Some(waits.index() as u32));
    let thread = kernel.threads().get(waits);
    assert!(thread.operation.is_none() && thread.deadline().is_none());
    let context = thread.context.whole();
    assert_eq!((context.rax, context.rdx, context.rsi), (0, 7, 8));
    kernel.hardware.now_ns = 2_000_000;
    assert!(!kernel.tick(), "nothing is left of its deadline");
    assert_eq!(next(&mut kernel), Some(other));
    // A running thread stays, and the one that is answered waits for its turn.
    assert_eq!(next(&mut kernel), Some(waits));
    kernel.park(key, None, Some(operation));
    kernel.schedule();
    kernel.thread_answer(waits, 9, 0);
    assert_eq!(kernel.current(), Some(other.index() as u32));
    assert_eq!(kernel.threads().get(waits).state, State::Ready);
}

#[test]
fn a_deadline_wakes_with_time_out_and_is_asked_of_the_timer() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let thread = spawn(&mut kernel, space, 3);
    kernel.schedule();
    kernel.park(Key::Nothing, Some(1000), None);
    assert_eq!(kernel.hardware.timer_ns, 1000);
    kernel.hardware.now_ns = 999;
    kernel.tick();
    assert!(!kernel.thread_is_ready(thread));
    kernel.hardware.now_ns = 1000;
    kernel.tick();
    assert!(kernel.thread_is_ready(thread));
    assert_eq!(kernel.threads().get(thread).resumed, Resumed::TimedOut);
}

#[test]
fn a_slice_ends_only_for_an_equal_and_at_once_for_a_better() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let low = spawn(&mut kernel, space, 2);
    kernel.schedule();
    kernel.hardware.now_ns = TIME_SLICE_NS;
    assert!(!kernel.tick(), "nobody else wants to run");
    assert!(
        kernel.hardware.timer_ns <= 2 * TIME_SLICE_NS,
        "who comes now waits for a slice"
    );
    let _equal = spawn(&mut kernel, space, 2);
    assert!(!kernel.should_preempt());
    assert!(kernel.tick(), "the slice is over and an equal waits");
    let high = spawn(&mut kernel, space, 5);
    assert!(kernel.should_preempt());
    assert_eq!(next(&mut kernel), Some(high));
    assert_ne!(Some(low), next(&mut kernel), "higher priorities keep the processor");
}

/// One long call after the other, each made again in pieces that are shorter than a slice, keeps nobody of the same priority waiting.
#[test]
fn a_slice_goes_on_through_calls_that_are_made_again() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let [busy, equal] = [0; 2].map(|_| spawn(&mut kernel, space, 2));
    let operation = Operation::called(9, [0; 6]);
    let mut pieces = 0;
    loop {
        kernel.hardware.now_ns += TIME_SLICE_NS / 8;
        let index = kernel.schedule().expect("one runs");
        if kernel.thread(index).id == equal {
            break;
        }
        assert_eq!(kernel.thread(index).id, busy);
        let operation = kernel.take_operation(index).unwrap_or(operation);
        kernel.again(Some(operation));
        pieces += 1;
        assert!(pieces < 20, "the slice has no end");
    }
    assert!(pieces >= 7, "the slice has {pieces} pieces");
}

#[test]
fn identifiers_are_never_used_twice() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let mut seen = std::collections::HashSet::new();
    let first = spawn(&mut kernel, space, 1);
    kernel.thread_destroy(first);
    for _ in 0..5000 {
        let thread = spawn(&mut kernel, space, 1);
        assert!(seen.insert(thread) && thread != first && thread.0 != 0);
        kernel.thread_destroy(thread);
        assert_eq!(kernel.threads().find(thread), None);
        kernel.thread_wake(thread, Resumed::Woken);
    }
    assert_eq!(kernel.schedule(), None, "waking what is gone does nothing");
}

/// The fast path does what the general one does: the same space, frames and stacks, over random
/// sequences of calls and returns.
#[test]
fn fast_and_general_portal_paths_agree() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut fast = portal_kernel();
        let mut general = portal_kernel();
        for _ in 0..200 {
            let (thread, here) = (fast.id_of(0), fast.threads().table[0].space);
            assert_eq!(here, general.threads().table[0].space, "seed {seed}");
            let callee = SpaceId(random.below(3) as u32);
            let entry = 0x1_0000_0000 + u64::from(callee.0) * 64;
            let (rip, rsp) = (random.next() >> 20, random.next() >> 20);
            if random.below(5) < 3 {
                let way = fast.portal_call(entry, 1, rip, rsp);
                let context = &mut general.threads_mut().get_mut(thread).context;
                (context.rip, context.rsp) = (rip, rsp);
                let entered = general.portal_enter(thread, callee, entry, [0; 4], Stacks::Open);
                assert_eq!(way.is_some(), entered.is_some(), "seed {seed}");
                if let Some(way) = way {
                    let context = general.thread_context(thread);
                    assert_eq!((way.rip, way.rsp), (context.rip, context.rsp), "seed {seed}");
                    assert_eq!(fast.hardware.loaded[0], Some(general.spaces().get(callee).root()));
                }
            } else {
                let way = fast.portal_return();
                let left = general.portal_leave(thread, 0, 1, 2);
                assert_eq!(
                    way.map(|way| (way.rip, way.rsp)),
                    left.map(|frame| (frame.rip, frame.rsp)),
                    "seed {seed}"
                );
            }
            let frames = |kernel: &Kernel<Fake>| {
                (0..)
                    .map_while(|index| kernel.portal_frame(thread, index))
                    .collect::<Vec<_>>()
            };
            assert_eq!(fast.portal_depth(thread), frames(&fast).len());
            assert_eq!(frames(&fast), frames(&general), "seed {seed}");
        }
    }
}

fn portal_kernel() -> Kernel<Fake> {
    let mut kernel = kernel(40);
    let spaces: Vec<SpaceId> = (0..3).map(|_| kernel.space_create().expect("space")).collect();
    spawn(&mut kernel, spaces[0], 3);
    kernel.schedule();
    for &caller in &spaces {
        for &callee in &spaces {
            kernel.portal_cache(caller, 0x1_0000_0000 + u64::from(callee.0) * 64, 1, callee);
        }
        for number in 0..3 {
            kernel.portal_add_stack(
                caller,
                0x7f00_0000_0000 + u64::from(caller.0) * 0x10_0000 + number * 0x1000,
            );
        }
    }
    kernel
}

#[test]
fn the_fast_path_declines_what_it_cannot_finish() {
    let mut kernel = portal_kernel();
    let entry = 0x1_0000_0000 + 64;
    assert!(kernel.portal_return().is_none(), "not inside a call");
    kernel.threads_mut().table[0].slow = 1;
    assert!(kernel.portal_call(entry, 1, 1, 2).is_none(), "a reason to be slow");
    kernel.threads_mut().table[0].slow = 0;
    assert!(kernel.portal_call(entry, 0, 1, 2).is_none(), "another kind of call");
    kernel.portal_forget(Stale::All);
    assert!(kernel.portal_call(entry, 1, 1, 2).is_none(), "forgotten");
    assert_eq!(kernel.threads().table[0].depth, 0, "nothing happened");
    assert_eq!(kernel.threads().table[0].state, State::Running);
}

#[test]
fn who_waits_for_a_stack_is_woken_by_the_next_return() {
    let mut kernel = portal_kernel();
    let entry = 0x1_0000_0000 + 64;
    let caller = kernel.id_of(0);
    kernel.portal_call(entry, 1, 1, 2).expect("a way");
    let other = spawn(&mut kernel, SpaceId(0), 3);
    kernel.yield_current();
    assert_eq!(kernel.schedule().map(|index| kernel.id_of(index)), Some(other));
    kernel.park(Key::Stack(1), None, None);
    assert_eq!(kernel.schedule().map(|index| kernel.id_of(index)), Some(caller));
    assert!(kernel.portal_return().is_none(), "the slow path must wake the other");
    kernel.portal_leave(caller, 0, 0, 0).expect("a frame");
    assert!(kernel.thread_is_ready(other));
    assert!(kernel.portal_call(entry, 1, 1, 2).is_some());
    assert!(kernel.portal_return().is_some(), "nobody waits any more");
}

#[test]
fn a_general_return_sets_the_processor_up_even_in_the_same_space() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let thread = spawn(&mut kernel, space, 3);
    kernel.portal_add_stack(space, 0x7f00_0020_0000);
    kernel.schedule();
    kernel.enter_space(space);
    kernel.vectors_begin().expect("room");
    kernel.hardware.unit[0] = Some(7);
    kernel
        .portal_enter(thread, space, 0x1_0000_0000, [0; 4], Stacks::Open)
        .expect("a stack");
    assert_eq!(kernel.threads().get(thread).vectors, VectorState::INITIAL);
    assert!(kernel.stays(), "the same space");
    kernel.vectors_follow(thread.index() as u32);
    assert_eq!(kernel.hardware.unit[0], Some(0));
    kernel.hardware.unit[0] = Some(8);
    kernel.portal_leave(thread, 0, 0, 0).expect("a frame");
    assert_eq!(kernel.threads().get(thread).vectors, VectorState::INITIAL);
    assert!(!kernel.stays(), "the vector unit may hold what the callee left there");
    kernel.enter_space(space);
    assert!(kernel.stays());
    assert!(
        kernel.portal_leave(thread, 0, 0, 0).is_none() && kernel.stays(),
        "nothing to leave, nothing to set up"
    );
}

#[test]
fn who_waits_for_the_server_does_the_same_as_it_would_have() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let operation = Operation {
        number: 58,
        arguments: [8, 0, 0, 0, 0, 0],
    };
    for resumed in [Resumed::First, Resumed::TimedOut] {
        let thread = spawn(&mut kernel, space, 3);
        kernel.schedule();
        kernel.put_off(Some((operation, resumed)));
        assert_eq!(kernel.schedule(), None);
        assert!(kernel.thread_is_ready(thread), "to the server it is");
        assert_eq!(kernel.wake(Key::Supervisor, u32::MAX), 1);
        assert_eq!(kernel.schedule().map(|index| kernel.id_of(index)), Some(thread));
        let found = kernel.threads().get(thread);
        assert_eq!((found.operation, found.resumed), (Some(operation), resumed));
        kernel.thread_destroy(thread);
    }
}

/// A kernel whose table of threads has no places yet.
fn without_places(frames: u32) -> Kernel<Fake> {
    let mut hardware = Fake::new(frames, Tags::Absent);
    hardware.threads = 0;
    Kernel::new(hardware, &[(1, frames)])
}

#[test]
fn sixteen_thousand_threads_have_places_and_no_more() {
    const { assert!(THREADS_MAX >= 16_384 && bare::THREADS_MAX == 1024) };
    let mut kernel = without_places(12_400);
    let space = kernel.space_create().expect("space");
    let threads: Vec<ThreadId> = (0..THREADS_MAX).map(|_| spawn(&mut kernel, space, 3)).collect();
    let more = |kernel: &mut Kernel<Fake>| kernel.thread_create(space, 0x1000, 0x2000, [0; 4], Standing::new(0, 3));
    assert_eq!(more(&mut kernel), Err(Shortage::Threads));
    let free = kernel.frames_free();
    for (index, &thread) in threads.iter().enumerate() {
        assert_eq!(thread.index(), index, "the lowest places are taken first");
        assert_eq!(kernel.schedule(), Some(index as u32));
        kernel.park(Key::Address(8), Some(1_000_000 - index as u64), None);
    }
    kernel.check().expect("a sound kernel");
    for &thread in &threads {
        kernel.thread_destroy(thread);
    }
    // Places are used again, under other names.
    let again = more(&mut kernel).expect("a thread");
    assert!(!threads.contains(&again) && kernel.frames_free() == free);
}

#[test]
fn a_thread_without_memory_for_its_place_is_an_error() {
    let mut kernel = without_places(6);
    let space = kernel.space_create().expect("space");
    let made: Vec<_> = core::iter::from_fn(|| {
        kernel
            .thread_create(space, 0x1000, 0x2000, [0; 4], Standing::new(0, 3))
            .ok()
    })
    .collect();
    assert!(!made.is_empty(), "some frames were left");
    assert_eq!(
        kernel.thread_create(space, 0x1000, 0x2000, [0; 4], Standing::new(0, 3)),
        Err(Shortage::Frames)
    );
    kernel.thread_destroy(made[0]);
    assert!(
        kernel
            .thread_create(space, 0x1000, 0x2000, [0; 4], Standing::new(0, 3))
            .is_ok()
    );
}

#[test]
fn of_many_deadlines_one_interrupt_wakes_some() {
    let mut kernel = without_places(430);
    let space = kernel.space_create().expect("space");
    let threads: Vec<ThreadId> = (0..500).map(|_| spawn(&mut kernel, space, 3)).collect();
    for _ in &threads {
        kernel.schedule();
        kernel.park(Key::Nothing, Some(1000), None);
    }
    kernel.hardware.now_ns = 1000;
    let ready = |kernel: &Kernel<Fake>| threads.iter().filter(|&&thread| kernel.thread_is_ready(thread)).count();
    let mut before = 0;
    while before < threads.len() {
        kernel.hardware.timer_ns = u64::MAX;
        kernel.tick();
        let now = ready(&kernel);
        assert!(now > before && now - before <= 64, "{before} threads, then {now}");
        // The rest follows after a pause of 50 microseconds (decision 0130).
        let soon = kernel.hardware.now_ns + 50_000;
        assert!(
            now == threads.len() || kernel.hardware.timer_ns <= soon,
            "the rest is forgotten"
        );
        kernel.hardware.now_ns = soon;
        before = now;
    }
}

/// Decision 0130: the most urgent first, also where the priority changed while the thread waited.
#[test]
fn of_many_deadlines_the_most_urgent_threads_wake_first() {
    for changes in [false, true] {
        let mut kernel = without_places(430);
        let space = kernel.space_create().expect("space");
        let mut threads: Vec<ThreadId> = (0..300).map(|_| spawn(&mut kernel, space, 2)).collect();
        let urgent = spawn(&mut kernel, space, if changes { 1 } else { 7 });
        threads.push(urgent);
        for _ in &threads {
            kernel.schedule();
            // The urgent one's time comes last.
            let running = kernel.current_thread_mut().expect("one runs").id;
            let at_ns = if running == urgent { 1000 } else { 900 };
            kernel.park(Key::Nothing, Some(at_ns), None);
        }
        if changes {
            kernel.thread_set_priority(urgent, 7);
        }
        kernel.hardware.now_ns = 1000;
        kernel.tick();
        assert!(kernel.thread_is_ready(urgent));
        assert_eq!(kernel.schedule(), Some(urgent.index() as u32));
    }
}

/// Time passes only from one interrupt of the timer to the next, which comes when it was asked for and not earlier. So every deadline is
/// kept to the nanosecond, nobody runs on while an equal waits for more than a slice, and all time is charged to the thread that had it.
#[test]
fn the_timer_that_is_asked_for_is_enough() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut kernel = kernel(20);
        let space = kernel.space_create().expect("space");
        let threads: Vec<ThreadId> = (0..6)
            .map(|_| spawn(&mut kernel, space, 1 + random.below(3) as u8))
            .collect();
        let mut busy_ns = 0;
        for step in 0..600 {
            let running = kernel.schedule();
            let now = kernel.hardware.now_ns;
            match random.below(9) {
                0 | 1 => kernel.park(Key::Nothing, Some(now + 1 + random.next() % (3 * TIME_SLICE_NS)), None),
                2 => kernel.park(Key::Semaphore(8), None, None),
                3 => drop(kernel.wake(Key::Semaphore(8), 2)),
                4 => kernel.yield_current(),
                5 => drop(kernel.rotate(0x1000, 0x2000)),
                _ => {
                    let wanted = now + random.next() % (2 * TIME_SLICE_NS);
                    let fires = kernel.hardware.timer_ns <= wanted;
                    let then = wanted.min(kernel.hardware.timer_ns).max(now);
                    kernel.hardware.now_ns = then;
                    busy_ns += if running.is_some() { then - now } else { 0 };
                    if fires {
                        kernel.hardware.timer_ns = u64::MAX;
                        if kernel.tick() || kernel.should_preempt() {
                            kernel.yield_current();
                        }
                    }
                }
            }
            kernel.schedule();
            let now = kernel.hardware.now_ns;
            for &thread in &threads {
                let record = kernel.threads().get(thread);
                if let Some(deadline) = record.deadline() {
                    assert!(kernel.hardware.timer_ns <= deadline, "seed {seed}, step {step}");
                    assert!(now <= deadline, "seed {seed}, step {step}");
                }
            }
            if kernel.current().is_some() {
                assert!(
                    kernel.hardware.timer_ns <= now + TIME_SLICE_NS,
                    "seed {seed}, step {step}"
                );
            }
            let charged: u64 = threads.iter().map(|&thread| kernel.thread_time_ns(thread)).sum();
            assert_eq!(charged, busy_ns, "seed {seed}, step {step}");
            kernel.check().expect("a sound kernel");
        }
        // Nobody is left behind.
        kernel.wake(Key::Semaphore(8), u32::MAX);
        for _ in 0..600 {
            while kernel.schedule().is_some() {
                kernel.park(Key::Turn(space.0, 0), None, None);
            }
            kernel.hardware.now_ns = kernel.hardware.timer_ns.min(u64::MAX / 2);
            kernel.hardware.timer_ns = u64::MAX;
            kernel.tick();
        }
        assert!(
            threads
                .iter()
                .all(|&thread| kernel.threads().get(thread).deadline().is_none())
        );
    }
}

/// A place that a thread left in the middle of everything is a new one for the next thread there.
#[test]
fn a_new_thread_has_nothing_of_the_last_one_in_its_place() {
    let seen = |kernel: &Kernel<Fake>, thread: ThreadId| {
        let thread = kernel.threads().get(thread);
        let context = thread.context.whole();
        format!(
            "{:?} {:?} {} {:?} {} {:?} {} {:?} {} {:?} {:?} {} {}",
            context,
            thread.space,
            thread.depth,
            thread.vectors,
            thread.slow,
            thread.state,
            thread.standing.priority(),
            thread.operation,
            thread.unbegun,
            thread.resumed,
            thread.deadline(),
            thread.time_ns,
            thread.more_urgent,
        )
    };
    let make =
        |kernel: &mut Kernel<Fake>| kernel.thread_create(SpaceId(0), 0x1000, 0x2000, [1, 2, 3, 4], Standing::new(0, 3));
    let mut kernel = portal_kernel();
    let first = make(&mut kernel).expect("a thread");
    let fresh = seen(&kernel, first);
    kernel.thread_wake(first, Resumed::TimedOut);
    kernel.thread_set_priority(first, 7);
    kernel.yield_current();
    assert_eq!(kernel.schedule(), Some(first.index() as u32));
    kernel.portal_call(0x1_0000_0000 + 64, 1, 1, 2).expect("a way");
    let operation = Operation {
        number: 42,
        arguments: [1; 6],
    };
    kernel.hardware.now_ns += 1000;
    kernel.put_off(Some((operation, Resumed::Woken)));
    let thread = kernel.threads_mut().get_mut(first);
    (thread.vectors, thread.slow) = (VectorState::loaded(0), 1);
    thread.context.rbx = 77;
    kernel.thread_destroy(first);
    let second = make(&mut kernel).expect("a thread");
    assert_eq!((second.index(), second == first), (first.index(), false));
    assert_eq!(seen(&kernel, second), fresh);
}

/// Room for vector registers comes with a place, so no thread finds at their first use that no frame is left.
#[test]
fn a_thread_that_is_there_has_room_for_its_registers() {
    let mut kernel = without_places(100);
    let space = kernel.space_create().expect("space");
    let threads: Vec<ThreadId> = (0..12).map(|_| spawn(&mut kernel, space, 3)).collect();
    for thread in threads {
        assert!(kernel.hardware.vectors_have_room(thread.index() as u32), "{thread:?}");
    }
}
