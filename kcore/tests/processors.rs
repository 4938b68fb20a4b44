//! Several processors: where threads go, who takes them, and what must be asked of whom before a thread or a translation is touched.

mod fake;

use abi::{Rights, layout::EXCEPTION_ILLEGAL};
use fake::{Asked, Fake, Random, kernel, spawn};
use kcore::{
    Half, Kernel, Machine, PageEntry, SpaceId, ThreadId,
    bare::going::Going,
    bare::mapping::{Fpage, How, Own, Progress},
    event::Event,
    machine::{Intercept, Stacks},
    portal::Stale,
    scheduler::Standing,
    smp::{HandedOver, Request},
    thread::{Operation, Resumed, State},
    wait::Key,
};

fn several(count: u32) -> (Kernel<Fake>, SpaceId) {
    let mut kernel = kernel(60);
    let space = kernel.space_create().expect("space");
    kernel.set_processors((1 << count) - 1);
    (kernel, space)
}

/// A processor comes into the kernel.
fn on(kernel: &mut Kernel<Fake, impl Half>, processor: u32) {
    kernel.change_over(processor);
    kernel.hardware.here = processor;
    assert!(
        kernel.is_root_known(),
        "processor {processor} has another root than is noted down"
    );
}

/// A processor comes into the kernel and takes what it is to run, as the kernel binary does.
fn run(kernel: &mut Kernel<Fake, impl Half>, processor: u32) -> Option<ThreadId> {
    on(kernel, processor);
    let Some(index) = kernel.schedule() else {
        kernel.rest();
        return None;
    };
    let space = kernel.threads().table[index as usize].space;
    kernel.enter_space(space);
    Some(kernel.id_of(index))
}

#[test]
fn idle_processors_are_called_and_each_takes_one() {
    let (mut kernel, space) = several(4);
    let threads: Vec<ThreadId> = (0..4).map(|_| spawn(&mut kernel, space, 3)).collect();
    assert_eq!(kernel.hardware.asked, [Asked::Wake(1), Asked::Wake(2), Asked::Wake(3)]);
    for (number, &thread) in threads.iter().enumerate() {
        assert_eq!(run(&mut kernel, number as u32), Some(thread));
    }
    // Now all are busy: the next ones wait where it is shortest, and nobody is called for them.
    kernel.hardware.asked.clear();
    for _ in 0..4 {
        spawn(&mut kernel, space, 3);
    }
    assert_eq!(kernel.hardware.asked, []);
    let waiting: Vec<u32> = (1..5)
        .map(|index| kernel.threads().table[index + 3].processor)
        .collect();
    let mut sorted = waiting.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3], "{waiting:?}");
}

#[test]
fn who_is_urgent_displaces_the_least_urgent() {
    let (mut kernel, space) = several(2);
    spawn(&mut kernel, space, 5);
    spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    run(&mut kernel, 1);
    on(&mut kernel, 0);
    kernel.hardware.asked.clear();
    let urgent = spawn(&mut kernel, space, 6);
    assert_eq!(kernel.hardware.asked, [Asked::Wake(1)]);
    on(&mut kernel, 1);
    assert!(kernel.should_preempt());
    kernel.yield_current();
    assert_eq!(run(&mut kernel, 1), Some(urgent));
}

/// A processor that was called and has not come by is not called again for the next thread.
#[test]
fn a_processor_is_called_once() {
    let (mut kernel, space) = several(2);
    spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    kernel.hardware.asked.clear();
    let waiting = [0; 4].map(|_| spawn(&mut kernel, space, 3));
    let there = waiting.map(|thread| kernel.threads().get(thread).processor);
    assert!(there.iter().sum::<u32>() > 1, "{there:?}");
    assert_eq!(kernel.hardware.asked, [Asked::Wake(1)]);
}

#[test]
fn a_processor_looks_again_when_the_priority_of_its_thread_changes() {
    let (mut kernel, space) = several(2);
    let [here, there] = [0; 2].map(|_| spawn(&mut kernel, space, 3));
    let waits = spawn(&mut kernel, space, 2);
    assert_eq!((run(&mut kernel, 1), run(&mut kernel, 0)), (Some(there), Some(here)));
    for (thread, asked) in [(here, vec![]), (waits, vec![]), (there, vec![Asked::Wake(1)])] {
        kernel.hardware.asked.clear();
        kernel.thread_set_priority(thread, 3);
        assert_eq!(kernel.hardware.asked, asked, "{thread:?}");
    }
    kernel.hardware.asked.clear();
    kernel.thread_set_priority(there, 1);
    // It was called already, and has not come by: what is urgent for it now calls it no second time.
    kernel.thread_set_priority(waits, 3);
    assert_eq!(kernel.hardware.asked, [Asked::Wake(1)]);
    on(&mut kernel, 1);
    assert!(kernel.should_preempt());
}

#[test]
fn who_finds_nothing_of_his_own_takes_from_others_but_not_what_is_bound() {
    let (mut kernel, space) = several(2);
    let threads: Vec<ThreadId> = (0..4).map(|_| spawn(&mut kernel, space, 3)).collect();
    run(&mut kernel, 0);
    run(&mut kernel, 1);
    // Its vector registers are in the unit of processor 1, where another thread follows.
    let mine = kernel.current().expect("one runs");
    kernel.vectors_begin().expect("room");
    kernel.yield_current();
    let other = run(&mut kernel, 1).expect("another waits there");
    on(&mut kernel, 0);
    kernel.park(Key::Nothing, None, None);
    let taken = run(&mut kernel, 0).expect("the one that waits here");
    assert!(threads.contains(&taken) && taken.index() != mine as usize);
    kernel.park(Key::Nothing, None, None);
    assert_eq!(run(&mut kernel, 0), None, "the other one is bound");
    // Its state is saved: an idle processor is called for it.
    kernel.hardware.asked.clear();
    on(&mut kernel, 1);
    kernel.vectors_follow(other.index() as u32);
    assert_eq!(kernel.hardware.asked, [Asked::Wake(0)]);
    assert_eq!(run(&mut kernel, 0).map(ThreadId::index), Some(mine as usize));
}

#[test]
fn a_thread_that_runs_elsewhere_is_stopped_before_it_is_touched() {
    type Touch = fn(&mut Kernel<Fake>, ThreadId);
    let touches: [Touch; 5] = [
        |kernel, thread| kernel.thread_suspend(thread),
        |kernel, thread| kernel.thread_destroy(thread),
        |kernel, thread| {
            let context = kernel.thread_context(thread);
            kernel.thread_set_context(thread, &context);
        },
        |kernel, thread| {
            kernel.thread_drop_operation(thread);
        },
        |kernel, thread| {
            kernel.portal_leave(thread, 0, 0, 0);
        },
    ];
    for touch in touches {
        let (mut kernel, space) = several(2);
        let callee = kernel.space_create().expect("space");
        kernel.portal_add_stack(callee, 0x7f00_0020_0000);
        spawn(&mut kernel, space, 3);
        let target = spawn(&mut kernel, space, 3);
        assert!(run(&mut kernel, 0).is_some());
        assert_eq!(run(&mut kernel, 1), Some(target));
        kernel
            .portal_enter(target, callee, 0x1_0000_1000, [0; 4], Stacks::Open)
            .expect("a stack");
        on(&mut kernel, 0);
        kernel.hardware.asked.clear();
        touch(&mut kernel, target);
        assert_eq!(kernel.hardware.asked, [Asked::Stop(1)]);
        on(&mut kernel, 1);
        assert_eq!(kernel.current(), None, "nobody runs there any more");
        // And once is enough.
        on(&mut kernel, 0);
        kernel.hardware.asked.clear();
        if kernel.threads().find(target).is_some() {
            touch(&mut kernel, target);
        }
        assert_eq!(kernel.hardware.asked, []);
    }
}

#[test]
fn a_call_that_is_handed_over_is_done_for_the_first_time_later() {
    let (mut kernel, space) = several(2);
    spawn(&mut kernel, space, 3);
    let target = spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    run(&mut kernel, 1);
    on(&mut kernel, 0);
    let operation = Operation {
        number: 58,
        arguments: [1, 2, 3, 4, 5, 6],
    };
    let handed = HandedOver {
        rip: 0x1_0000_0040,
        rsp: 0x7f00_0000_1000,
        operation,
    };
    kernel.hardware.handed = Some(handed);
    kernel.thread_suspend(target);
    kernel.thread_wake(target, Resumed::Woken);
    let thread = kernel.threads().get(target);
    assert_eq!(
        (thread.context.rip, thread.context.rsp),
        (0x1_0000_0040, 0x7f00_0000_1000)
    );
    assert_eq!((thread.operation, thread.resumed), (Some(operation), Resumed::First));
    // Once it has been begun, it is woken as any other.
    assert_eq!(run(&mut kernel, 1), Some(target));
    let operation = kernel.threads_mut().get_mut(target).operation.take();
    kernel.park(Key::Semaphore(8), None, operation);
    assert_eq!(kernel.wake(Key::Semaphore(8), 1), 1);
    assert_eq!(kernel.threads().get(target).resumed, Resumed::Woken);
    // The next call that is handed over is done for the first time again, and the time counts that it ran.
    let before = kernel.threads().get(target).time_ns;
    assert_eq!(run(&mut kernel, 1), Some(target));
    kernel.hardware.now_ns += 5_000;
    on(&mut kernel, 0);
    kernel.hardware.handed = Some(handed);
    kernel.thread_suspend(target);
    let thread = kernel.threads().get(target);
    assert_eq!((thread.resumed, thread.time_ns), (Resumed::First, before + 5_000));
}

#[test]
fn an_exception_that_is_handed_over_is_raised_when_the_thread_runs_again() {
    let (mut kernel, space) = several(2);
    spawn(&mut kernel, space, 3);
    let target = spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    run(&mut kernel, 1);
    // The state that the processor pushed when it came in.
    kernel.threads_mut().get_mut(target).context.rax = 77;
    kernel.threads_mut().get_mut(target).context.rip = 0x1_0000_0041;
    on(&mut kernel, 0);
    kernel.hardware.handed = Some(HandedOver {
        rip: 0,
        rsp: 0,
        operation: Operation::raised(EXCEPTION_ILLEGAL, 5),
    });
    kernel.thread_suspend(target);
    kernel.thread_wake(target, Resumed::Woken);
    let thread = kernel.threads().get(target);
    assert_eq!((thread.context.rax, thread.context.rip), (77, 0x1_0000_0041));
    let event = thread.operation.expect("an exception").event(target, thread.resumed);
    let Event::Exception { thread, kind, address } = event else {
        panic!("{event:?}")
    };
    assert_eq!((thread, kind, address), (target, EXCEPTION_ILLEGAL, 5));
    // A call by the same number is only a call that there is not.
    let called = Operation::called(u64::MAX, [EXCEPTION_ILLEGAL, 5, 0, 0, 0, 0]);
    assert!(matches!(called.event(target, Resumed::First), Event::Call { .. }));
}

#[test]
fn only_processors_that_can_remember_are_asked_to_forget() {
    let (mut kernel, space) = several(4);
    let other = kernel.space_create().expect("space");
    let leaf = kernel.leaf_create().expect("leaf");
    let frame = kernel.frame_zeroed().expect("frame");
    kernel.leaf_set(leaf, 0, Some(PageEntry::new(frame, Rights::RW)));
    kernel.link(space, 5, leaf, Rights::RW).expect("tables");
    for place in [space, space, other] {
        spawn(&mut kernel, place, 3);
    }
    for number in 0..4 {
        run(&mut kernel, number);
    }
    on(&mut kernel, 0);
    kernel.hardware.asked.clear();
    kernel.unlink(space, 5);
    kernel.flush_space(space);
    assert_eq!(kernel.hardware.asked, [Asked::Request(0b0010, Request::Forget)]);
    kernel.hardware.asked.clear();
    kernel.flush_page(0x5000);
    kernel.flush_everything();
    // Processor 3 rests and is in no space.
    assert_eq!(
        kernel.hardware.asked,
        [
            Asked::Request(0b0110, Request::ForgetPage(0x5000)),
            Asked::Request(0b0110, Request::Forget),
        ]
    );
}

/// Processors forget what a free space that runs on them loses: on the fast path of one page, and on the slow one.
#[test]
fn who_loses_a_mapping_forgets_it_on_every_processor() {
    let mut kernel = fake::bare(60);
    kernel.set_processors(0b1111);
    let sigma0 = kernel.sigma0_create(4000, &[(0x1000, 0x1010)], &[], 2).expect("σ₀");
    let giver = kernel.free_space_create(sigma0, 1000).expect("a space");
    let holder = kernel.free_space_create(sigma0, 1000).expect("a space");
    let pages = |page: u64, log2| Fpage::memory(page * 4096, log2, Rights::RW).expect("an fpage");
    let all = pages(0x1000, 16);
    for (from, to) in [(sigma0, giver), (giver, holder)] {
        let (mut going, mut count) = (Going::default(), 0);
        while count < 16 {
            let mapped = kernel
                .map((from, all), (to, all), How::Map, &mut going)
                .expect("mapped");
            going = going.next_piece();
            count += mapped.count;
            assert_eq!(mapped.progress == Progress::Done, count == 16);
        }
    }
    for place in [giver, holder, giver, holder] {
        spawn(&mut kernel, place, 3);
    }
    for number in 0..4 {
        run(&mut kernel, number);
    }
    on(&mut kernel, 0);
    for (what, own, asked) in [
        (pages(0x1001, 12), Own::Kept, 0b1010),
        (pages(0x1002, 13), Own::Kept, 0b1010),
        (pages(0x1004, 12), Own::Too, 0b1110),
    ] {
        kernel.hardware.asked.clear();
        let flushed = kernel.flush(giver, what, (Rights::RWX, own), &mut Going::default());
        assert_eq!(flushed, Ok(Progress::Done));
        assert_eq!(kernel.hardware.asked, [Asked::Request(asked, Request::Forget)]);
    }
}

/// A thread that came back from a callee by the slow path ends, or waits, before it runs again. Its processor is still on the
/// callee's root, and gives the kernel up with work left that is not a thread's.
#[test]
fn a_callee_is_destroyed_only_when_every_processor_has_left_its_root() {
    type Leave = fn(&mut Kernel<Fake>, ThreadId);
    let ways: [Leave; 4] = [
        |kernel, thread| kernel.thread_destroy(thread),
        |kernel, _| kernel.park(Key::Nothing, None, None),
        |kernel, thread| kernel.thread_suspend(thread),
        |kernel, _| kernel.yield_current(),
    ];
    for leave in ways {
        let (mut kernel, space) = several(2);
        let callee = kernel.space_create().expect("space");
        let root = kernel.spaces().get(callee).root();
        kernel.portal_add_stack(callee, 0x7f00_0020_0000);
        kernel.portal_cache(space, 0x1_0000_1000, 1, callee);
        spawn(&mut kernel, space, 3);
        let caller = spawn(&mut kernel, space, 3);
        assert!(run(&mut kernel, 0).is_some());
        assert_eq!(run(&mut kernel, 1), Some(caller));
        kernel.portal_call(0x1_0000_1000, 1, 5, 6).expect("a way");
        assert_eq!(kernel.hardware.loaded[1], Some(root));
        kernel.portal_leave(caller, 0, 0, 0).expect("a frame");
        leave(&mut kernel, caller);
        on(&mut kernel, 0);
        kernel.hardware.asked.clear();
        // That processor forgets what the callee loses; then it leaves the root.
        kernel.flush_space(callee);
        kernel.space_destroy(callee);
        assert_eq!(
            kernel.hardware.asked,
            [Request::Forget, Request::LeaveRoot].map(|request| Asked::Request(0b10, request))
        );
        assert_eq!(kernel.hardware.loaded[1], None);
        on(&mut kernel, 1);
    }
}

/// Random calls, returns, ends, waits and destructions on three processors: whatever root is loaded anywhere is that of a
/// space that exists, and the one that is noted down.
#[test]
fn no_processor_is_left_on_a_root_that_was_freed() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut kernel, home) = several(3);
        let mut threads: Vec<ThreadId> = (0..5).map(|_| spawn(&mut kernel, home, 3)).collect();
        let mut callees: Vec<SpaceId> = Vec::new();
        for _ in 0..300 {
            let processor = random.below(3) as u32;
            on(&mut kernel, processor);
            let current = kernel.current().map(|index| kernel.id_of(index));
            match (random.below(9), current) {
                (0, _) if callees.len() < 4 => {
                    let callee = kernel.space_create().expect("space");
                    for stack in 1..4 {
                        kernel.portal_add_stack(callee, 0x7f00_0000_0000 + stack * 0x1_0000);
                    }
                    callees.push(callee);
                }
                (1 | 2, Some(thread)) if !callees.is_empty() => {
                    let callee = callees[random.below(callees.len())];
                    let entry = 0x1_0000_0000 + u64::from(callee.0) * 64;
                    if random.below(2) == 0 {
                        kernel.portal_cache(kernel.thread_space(thread), entry, 1, callee);
                        kernel.portal_call(entry, 1, 5, 6);
                    } else {
                        kernel.portal_enter(thread, callee, entry, [0; 4], Stacks::Open);
                    }
                }
                (3, Some(_)) => drop(kernel.portal_return()),
                (4 | 5, Some(thread)) => drop(kernel.portal_leave(thread, 0, 0, 0)),
                (6, Some(_)) => kernel.park(Key::Semaphore(8), None, None),
                (7, _) => {
                    // The server unwinds who is inside before it destroys a callee.
                    let Some(callee) = callees.pop() else { continue };
                    for &thread in &threads {
                        while kernel.threads().get(thread).space == callee
                            || (0..kernel.portal_depth(thread))
                                .any(|index| kernel.portal_frame(thread, index).is_some_and(|f| f.space == callee))
                        {
                            kernel.portal_leave(thread, 0, 0, 0).expect("a frame");
                        }
                    }
                    kernel.portal_forget(Stale::All);
                    kernel.space_destroy(callee);
                }
                (_, Some(thread)) => {
                    kernel.thread_destroy(thread);
                    threads.retain(|&other| other != thread);
                    threads.push(spawn(&mut kernel, home, 3));
                }
                _ => drop(kernel.wake(Key::Semaphore(8), 2)),
            }
            // It goes on with a thread, or gives the kernel up as it is because other work is left.
            if random.below(3) > 0 {
                run(&mut kernel, processor);
            }
            let live: Vec<_> = kernel.spaces().live().map(|(_, space)| space.root()).collect();
            for (number, loaded) in kernel.hardware.loaded.iter().enumerate() {
                assert!(
                    loaded.is_none_or(|root| live.contains(&root)),
                    "seed {seed}: processor {number} is on a root that was freed"
                );
            }
            assert!(kernel.is_root_known(), "seed {seed}");
        }
    }
}

/// A thread that is to do its operation again, and is taken by another processor meanwhile, is news where it was when it comes back.
#[test]
fn a_thread_that_was_taken_and_comes_back_is_news() {
    let (mut kernel, space) = several(2);
    let [stays, goes] = [0; 2].map(|_| spawn(&mut kernel, space, 3));
    assert_eq!((run(&mut kernel, 0), run(&mut kernel, 1)), (Some(stays), Some(goes)));
    kernel.again(Some(Operation::called(9, [0; 6])));
    assert!(!kernel.has_woken(), "it only does its operation again");
    on(&mut kernel, 0);
    kernel.park(Key::Nothing, None, None);
    assert_eq!(run(&mut kernel, 0), Some(goes));
    kernel.thread_suspend(goes);
    kernel.thread_wake(stays, Resumed::Woken);
    assert_eq!(run(&mut kernel, 0), Some(stays));
    kernel.thread_wake(goes, Resumed::Woken);
    on(&mut kernel, 1);
    assert!(kernel.has_woken());
}

#[test]
fn processors_that_did_not_start_get_nothing() {
    let mut kernel = kernel(60);
    let space = kernel.space_create().expect("space");
    kernel.set_processors(0b101);
    let threads: Vec<ThreadId> = (0..6).map(|_| spawn(&mut kernel, space, 3)).collect();
    assert!(!kernel.hardware.asked.contains(&Asked::Wake(1)));
    for thread in threads {
        assert_ne!(kernel.threads().get(thread).processor, 1);
    }
}

/// Nor is it called for a thread that may run anywhere from now on.
#[test]
fn a_processor_that_did_not_start_is_not_called_for_others() {
    let mut kernel = kernel(60);
    let space = kernel.space_create().expect("space");
    kernel.set_processors(0b1101);
    for _ in 0..6 {
        spawn(&mut kernel, space, 3);
    }
    for number in [0, 2, 3] {
        assert!(run(&mut kernel, number).is_some());
    }
    on(&mut kernel, 2);
    kernel.vectors_begin().expect("room");
    kernel.yield_current();
    let other = run(&mut kernel, 2).expect("another waits there");
    // Processor 3 has no work left.
    on(&mut kernel, 3);
    while kernel.current().is_some() {
        kernel.park(Key::Nothing, None, None);
        run(&mut kernel, 3);
    }
    kernel.hardware.asked.clear();
    on(&mut kernel, 2);
    kernel.vectors_follow(other.index() as u32);
    assert_eq!(kernel.hardware.asked, [Asked::Wake(3)]);
}

/// Random events on four processors: a thread is in one place, nobody rests while somebody could run, and who runs is
/// the current thread of his processor.
#[test]
fn threads_are_in_one_place_whatever_happens() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let (mut kernel, space) = several(4);
        let threads: Vec<ThreadId> = (0..10).map(|_| spawn(&mut kernel, space, 3)).collect();
        let mut running = [0, 1, 2, 3].map(|number| run(&mut kernel, number));
        for _ in 0..400 {
            let processor = random.below(4);
            on(&mut kernel, processor as u32);
            let target = threads[random.below(threads.len())];
            match random.below(7) {
                0 => kernel.park(Key::Semaphore(random.below(2) as u64 * 8), None, None),
                1 => {
                    kernel.wake(Key::Semaphore(random.below(2) as u64 * 8), 2);
                }
                2 => kernel.thread_suspend(target),
                3 => kernel.thread_wake(target, Resumed::Woken),
                4 => kernel.yield_current(),
                5 => kernel.thread_set_priority(target, random.below(8) as u8),
                _ => {
                    let context = kernel.thread_context(target);
                    kernel.thread_set_context(target, &context);
                }
            }
            if kernel.should_preempt() {
                kernel.yield_current();
            }
            // Everyone who was stopped or called comes by, and the one whose event it was.
            let mut come = vec![processor];
            loop {
                for asked in kernel.hardware.asked.drain(..) {
                    if let Asked::Stop(number) | Asked::Wake(number) = asked {
                        come.push(number as usize);
                    }
                }
                let Some(number) = come.pop() else { break };
                on(&mut kernel, number as u32);
                if kernel.should_preempt() {
                    kernel.yield_current();
                }
                running[number] = run(&mut kernel, number as u32);
            }
            let table = &kernel.threads().table;
            for (number, runs) in running.iter().enumerate() {
                let Some(thread) = runs else { continue };
                let thread = &table[thread.index()];
                assert_eq!(
                    (thread.state, thread.processor),
                    (State::Running, number as u32),
                    "seed {seed}"
                );
            }
            let count = |state| {
                threads
                    .iter()
                    .filter(|thread| table[thread.index()].state == state)
                    .count()
            };
            assert_eq!(count(State::Running), running.iter().flatten().count(), "seed {seed}");
            let idle = running.iter().filter(|runs| runs.is_none()).count();
            assert!(
                idle == 0 || count(State::Ready) == 0,
                "seed {seed}: one rests while another waits"
            );
        }
    }
}

#[test]
fn ports_that_a_thread_left_here_are_still_its_own_where_it_went_on() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let [went, stayed] = [0; 2].map(|_| {
        kernel
            .thread_create(space, 0x40_0000, 0x7f_0000, [0; 4], Standing::new(0, 3))
            .expect("a thread")
    });
    for thread in [went, stayed] {
        kernel.with_ports(thread.index() as u32);
    }
    kernel.threads_mut().table[went.index()].processor = kernel.here() + 1;
    kernel.threads_mut().table[stayed.index()].processor = kernel.here();
    kernel.left_ports(went);
    kernel.left_ports(stayed);
    let slow = [went, stayed].map(|thread| kernel.threads().table[thread.index()].slow != 0);
    assert_eq!(slow, [true, false]);
    // When the thread runs without ports its mark goes, whoever set it.
    kernel.without_ports(went.index() as u32);
    assert_eq!(kernel.threads().table[went.index()].slow, 0);
    kernel.with_ports(stayed.index() as u32);
    kernel.pass_ports(stayed, went.index() as u32);
    let slow = [went, stayed].map(|thread| kernel.threads().table[thread.index()].slow != 0);
    assert_eq!(slow, [true, false], "ports were passed on");
}

#[test]
fn calls_are_intercepted_until_they_are_not() {
    let mut kernel = kernel(20);
    let space = kernel.space_create().expect("space");
    let thread = spawn(&mut kernel, space, 3);
    let slow = |kernel: &Kernel<Fake>| kernel.threads().get(thread).slow;
    kernel.with_ports(thread.index() as u32);
    let before = slow(&kernel);
    kernel.portal_intercept(thread, Intercept::Yes);
    assert!(slow(&kernel) != before && slow(&kernel) & before == before);
    kernel.portal_intercept(thread, Intercept::No);
    assert_eq!(slow(&kernel), before);
}

#[test]
fn frames_are_prepared_up_to_the_goal() {
    let mut kernel = kernel(20);
    let prepared = (0..20).take_while(|_| kernel.prepare_frame(3)).count();
    assert_eq!(prepared, 3);
    // Those that are taken by now are prepared anew.
    for _ in 0..2 {
        kernel.frame_zeroed().expect("a frame");
    }
    assert_eq!((0..20).take_while(|_| kernel.prepare_frame(3)).count(), 2);
}

/// The number of a space is used again: with the space before, its calls and those of others into it are forgotten.
#[test]
fn a_space_with_a_number_that_was_used_has_no_calls() {
    let mut kernel = kernel(40);
    let [space, other] = [(); 2].map(|()| kernel.space_create().expect("space"));
    let entry = 0x1_0000_1000;
    for (caller, callee) in [(space, other), (other, space)] {
        kernel.portal_cache(caller, entry, 1, callee);
        assert_eq!(kernel.portal_way(caller, entry, 1), Some(callee));
    }
    let waits = spawn(&mut kernel, other, 3);
    kernel.schedule().expect("it runs");
    kernel.park(Key::Stack(space.0), None, None);
    assert_ne!(kernel.spaces().get(space).stacks_wanted(), 0);
    kernel.thread_destroy(waits);
    kernel.space_destroy(space);
    assert_eq!(kernel.space_create(), Ok(space));
    assert_eq!(kernel.spaces().get(space).stacks_wanted(), 0);
    for caller in [space, other] {
        assert_eq!(kernel.portal_way(caller, entry, 1), None);
    }
}

/// A thread that waits and is answered where nothing runs runs there at once, and has nothing to begin any more.
#[test]
fn a_thread_that_is_answered_runs_here() {
    for is_begun in [true, false] {
        let (mut kernel, space) = several(2);
        let [waits, answers] = [0; 2].map(|_| spawn(&mut kernel, space, 3));
        assert_eq!((run(&mut kernel, 0), run(&mut kernel, 1)), (Some(waits), Some(answers)));
        let operation = Operation::called(9, [0; 6]);
        on(&mut kernel, 0);
        if is_begun {
            kernel.park(Key::Semaphore(5), None, Some(operation));
        } else {
            kernel.put_off(Some((operation, Resumed::First)));
        }
        on(&mut kernel, 1);
        kernel.park(Key::Nothing, None, None);
        kernel.thread_answer(waits, 1, 2);
        let thread = kernel.threads().get(waits);
        assert_eq!((thread.state, thread.processor), (State::Running, 1));
        assert!(!thread.unbegun && thread.operation.is_none());
    }
}

#[test]
fn a_thread_has_run_for_the_time_since_it_was_taken() {
    let (mut kernel, space) = several(1);
    kernel.hardware.now_ns = 70;
    spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    kernel.hardware.now_ns = 100;
    assert!(kernel.has_run_for(30) && !kernel.has_run_for(31));
}

/// The kernel's count of the waits of threads, against a model that looks at their states whenever time passes.
#[test]
fn waits_are_counted_for_those_that_are_intercepted() {
    let mut random = Random(0x40);
    let mut counted = 0;
    for round in 0..100 {
        let count = 1 + round % 3;
        let (mut kernel, space) = several(count);
        let threads: Vec<ThreadId> = (0..6).map(|number| spawn(&mut kernel, space, 2 + number / 3)).collect();
        let mut expected = vec![(0, 0); threads.len()];
        let mut intercepted = vec![false; threads.len()];
        for _ in 0..200 {
            let passes = random.below(4_000_000) as u64;
            kernel.hardware.now_ns += passes;
            for (number, thread) in threads.iter().enumerate() {
                match kernel.threads().get(*thread).state {
                    State::Running => expected[number].0 += passes,
                    State::Ready | State::Parked(Key::Supervisor) => {}
                    _ if intercepted[number] => expected[number].1 += passes,
                    _ => {}
                }
            }
            let here = random.below(count as usize) as u32;
            on(&mut kernel, here);
            let number = random.below(threads.len());
            let thread = threads[number];
            let key = Key::Semaphore(8 * (1 + random.below(2) as u64));
            let at_ns = kernel.hardware.now_ns + random.below(5_000_000) as u64;
            match random.below(13) {
                0 => kernel.park(key, None, None),
                1 => kernel.park(key, Some(at_ns), None),
                2 => drop(kernel.park_for_next(key, || Operation::called(58, [8; 6]))),
                3 => kernel.put_off(None),
                4 => _ = kernel.wake(key, 1 + random.below(3) as u32),
                5 => _ = kernel.wake(Key::Supervisor, u32::MAX),
                // With nobody to pass the processor on.
                6 if kernel.current().is_none() => {}
                6 => {
                    if random.below(2) == 0 {
                        kernel.park(key, None, None);
                    }
                    kernel.thread_answer(thread, 1, 2);
                }
                7 => kernel.thread_suspend(thread),
                8 => kernel.thread_wake(thread, Resumed::Woken),
                9 => kernel.thread_set_priority(thread, 2 + random.below(3) as u8),
                10 => kernel.again(None),
                11 => drop(kernel.rotate(0x1000, 0x2000)),
                _ => {
                    intercepted[number] ^= true;
                    let intercept = if intercepted[number] {
                        Intercept::Yes
                    } else {
                        Intercept::No
                    };
                    kernel.portal_intercept(thread, intercept);
                }
            }
            if kernel.tick() {
                kernel.yield_current();
            }
            run(&mut kernel, here);
            kernel.check().expect("it holds");
            for (thread, expected) in threads.iter().zip(&expected) {
                let found = (kernel.thread_time_ns(*thread), kernel.thread_waited_ns(*thread));
                assert_eq!(found, *expected);
            }
        }
        counted += expected.iter().filter(|expected| expected.1 > 0).count();
        // The next thread in a place begins anew.
        kernel.portal_intercept(threads[0], Intercept::Yes);
        kernel.thread_suspend(threads[0]);
        kernel.thread_destroy(threads[0]);
        kernel.check().expect("it holds");
        kernel.hardware.now_ns += 1000;
        let anew = spawn(&mut kernel, space, 3);
        assert_eq!((anew.index(), kernel.thread_waited_ns(anew)), (threads[0].index(), 0));
    }
    assert!(counted > 400, "{counted}");
}

/// A thread that waits already when it is intercepted, is woken on another processor, and taken over by a third one.
#[test]
fn time_in_which_others_run_is_no_wait() {
    let (mut kernel, space) = several(3);
    let threads: Vec<ThreadId> = (0..3).map(|_| spawn(&mut kernel, space, 3)).collect();
    for (number, &thread) in threads.iter().enumerate() {
        assert_eq!(run(&mut kernel, number as u32), Some(thread));
    }
    let (key, waits) = (Key::Semaphore(8), threads[0]);
    on(&mut kernel, 0);
    kernel.park(key, None, None);
    let _busy = spawn(&mut kernel, space, 3);
    run(&mut kernel, 0);
    kernel.hardware.now_ns = 1000;
    kernel.portal_intercept(waits, Intercept::Yes);
    assert_eq!(kernel.thread_waited_ns(waits), 0, "from now on");
    kernel.hardware.now_ns = 1300;
    assert_eq!(kernel.thread_waited_ns(waits), 300, "also while it waits");
    on(&mut kernel, 1);
    kernel.wake(key, 1);
    kernel.hardware.now_ns = 9000;
    assert_eq!(kernel.thread_waited_ns(waits), 300, "it is ready");
    on(&mut kernel, 2);
    kernel.park(Key::Nothing, None, None);
    assert_eq!(run(&mut kernel, 2), Some(waits), "taken over");
    kernel.hardware.now_ns = 9500;
    on(&mut kernel, 1);
    // Taken off by another one, and kept from the processor.
    kernel.thread_set_context(waits, &kernel.thread_context(waits));
    assert_eq!(kernel.threads().get(waits).state, State::Ready);
    kernel.hardware.now_ns = 20_000;
    assert_eq!(
        (kernel.thread_time_ns(waits), kernel.thread_waited_ns(waits)),
        (500, 300)
    );
}
