//! A thread that made a call goes on at once if nothing has happened that keeps it from that. The kernel notes when something may have; here each event is
//! followed by the whole look, which must agree.

mod fake;

use fake::{Fake, Random, kernel, spawn};
use kcore::{
    Kernel, Machine, SpaceId, ThreadId,
    machine::Stacks,
    scheduler::Standing,
    thread::{Operation, Resumed},
    wait::Key,
};

/// Something that a call may do, or an interrupt that comes meanwhile.
fn anything(kernel: &mut Kernel<Fake>, random: &mut Random, threads: &[ThreadId], callees: &[SpaceId]) {
    let target = threads[random.below(threads.len())];
    let callee = callees[random.below(callees.len())];
    let key = Key::Semaphore(random.below(2) as u64 * 8);
    match random.below(16) {
        0 => kernel.park(key, None, None),
        1 => drop(kernel.wake(key, random.below(3) as u32)),
        2 => kernel.thread_suspend(target),
        3 => kernel.thread_wake(target, Resumed::Woken),
        4 => kernel.yield_current(),
        5 => kernel.thread_set_priority(target, random.below(8) as u8),
        6 => drop(kernel.portal_enter(target, callee, 0x1_0000_1000, [0; 4], Stacks::Open)),
        7 => drop(kernel.portal_leave(target, 0, 0, 0)),
        8 => drop(kernel.rotate(0x40_0000, 0x7f_0000)),
        9 => kernel.thread_answer(target, 1, 2),
        10 => kernel.again(Some(Operation::called(9, [0; 6]))),
        11 => kernel.set_up_anew(),
        12 => drop(kernel.tick()),
        13 => kernel.flush_space(callee),
        14 => kernel.hardware.now_ns += 40_000_000,
        _ => drop(kernel.space_trim(callee, 1000)),
    }
}

#[test]
fn nothing_keeps_a_thread_that_was_not_noted() {
    let (mut quiet, mut kept, mut passed_on) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut kernel = kernel(200);
        let home = kernel.space_create().expect("a space");
        let processors = [1, 3][random.below(2)];
        kernel.set_processors((1 << processors) - 1);
        let callees: Vec<SpaceId> = (0..3).map(|_| kernel.space_create().expect("a space")).collect();
        for &callee in &callees {
            for stack in 1..5 {
                kernel.portal_add_stack(callee, 0x7f00_0000_0000 + stack * 0x10_0000);
            }
        }
        let mut threads: Vec<ThreadId> = (0..3).map(|_| spawn(&mut kernel, home, 3)).collect();
        for share in 1..4 {
            kernel.share_open(share, 0, 20).expect("a share");
            let (rip, rsp) = (0x1_0000_0000, 0x7f00_0010_0000);
            let standing = Standing::new(share, random.below(8) as u8);
            let thread = kernel
                .thread_create(home, rip, rsp, [0; 4], standing)
                .expect("a thread");
            kernel.thread_wake(thread, Resumed::First);
            threads.push(thread);
        }
        for _ in 0..400 {
            let processor = random.below(processors) as u32;
            kernel.change_over(processor);
            kernel.hardware.here = processor;
            let Some(index) = kernel.schedule() else {
                kernel.rest();
                continue;
            };
            let space = kernel.thread(index).space;
            kernel.enter_space(space);
            kernel.take_operation(index);
            // The thread makes calls as long as it can just go on.
            while kernel.goes_on(index) {
                for _ in 0..random.below(3) {
                    anything(&mut kernel, &mut random, &threads, &callees);
                }
                let goes_on = kernel.current() == Some(index) && kernel.stays();
                if kernel.is_undisturbed(index) {
                    quiet += 1;
                    assert!(goes_on, "seed {seed}");
                }
                if !goes_on {
                    kept += 1;
                    break;
                }
            }
            // Or a call waits, or its thread goes, and passes the processor on.
            let turn = if kernel.current() != Some(index) {
                None
            } else if random.below(2) == 0 {
                let key = Key::Semaphore(random.below(2) as u64 * 8);
                kernel.park_for_next(key, || Operation::called(9, [0; 6]))
            } else {
                kernel.thread_suspend(kernel.id_of(index));
                kernel.thread_answer(threads[random.below(threads.len())], 1, 2);
                kernel.thread_wake(threads[random.below(threads.len())], Resumed::Woken);
                kernel.passed_on()
            };
            if let Some(turn) = turn.filter(|turn| turn.is_plain) {
                let space = kernel.thread(turn.next).space;
                kernel.enter_space(space);
                assert!(kernel.is_undisturbed(turn.next) && kernel.stays(), "seed {seed}");
                anything(&mut kernel, &mut random, &threads, &callees);
                if kernel.is_undisturbed(turn.next) {
                    passed_on += 1;
                    let goes_on = kernel.current() == Some(turn.next) && kernel.stays();
                    assert!(goes_on, "seed {seed}");
                }
            }
            kernel.yield_current();
        }
    }
    assert!(quiet > 5_000 && kept > 5_000, "{quiet} calls went on, {kept} did not");
    assert!(passed_on > 100, "{passed_on} went on behind a call that waited");
}
