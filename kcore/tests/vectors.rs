//! The vector unit: on each processor, after whatever happened, a thread sees its own registers, or the initial state behind a
//! protected call or return, or the unit is off. (Messages: `messages.rs`.)

mod fake;

use std::collections::BTreeMap;

use fake::{Fake, Random, kernel, spawn};
use kcore::{
    Kernel, Machine, SpaceId, ThreadId,
    machine::Stacks,
    thread::{State, VectorState},
    wait::Key,
};

const PROCESSORS: u32 = 3;

struct Rig {
    kernel: Kernel<Fake>,
    random: Random,
    threads: Vec<ThreadId>,
    /// The registers of the threads that use the unit.
    expected: BTreeMap<ThreadId, u64>,
    /// Processors that run a thread in user mode.
    in_user: Vec<bool>,
}

fn entry(callee: SpaceId) -> u64 {
    0x1_0000_0000 + u64::from(callee.0) * 64
}

impl Rig {
    fn new(seed: u64, processors: u32) -> Self {
        let mut kernel = kernel(60);
        let spaces: Vec<SpaceId> = (0..3).map(|_| kernel.space_create().expect("space")).collect();
        kernel.set_processors((1 << processors) - 1);
        kernel.hardware.has_quick_vectors = !seed.is_multiple_of(4);
        for &caller in &spaces {
            for &callee in &spaces {
                kernel.portal_cache(caller, entry(callee), 1, callee);
            }
            for stack in 1..5 {
                kernel.portal_add_stack(caller, 0x7f00_0000_0000 + stack * 0x1_0000);
            }
        }
        let threads = (0..5).map(|_| spawn(&mut kernel, spaces[0], 3)).collect();
        Self {
            kernel,
            random: Random(seed),
            threads,
            expected: BTreeMap::new(),
            in_user: vec![false; processors as usize],
        }
    }

    fn current(&self) -> Option<ThreadId> {
        self.kernel.current().map(|index| self.kernel.id_of(index))
    }

    /// A thread that is not on a processor, or is on this one.
    fn at_hand(&mut self) -> ThreadId {
        loop {
            let thread = self.threads[self.random.below(self.threads.len())];
            let record = self.kernel.threads().get(thread);
            if record.state != State::Running || Some(thread) == self.current() {
                return thread;
            }
        }
    }

    fn crossed(&mut self, thread: ThreadId) {
        self.expected.entry(thread).and_modify(|state| *state = 0);
    }

    /// Something happens in the kernel on a processor, then a thread goes on there. Tells whether a fast path was taken.
    fn step(&mut self, processor: u32) -> bool {
        self.kernel.change_over(processor);
        self.kernel.hardware.here = processor;
        if let (Some(thread), true) = (self.current(), self.in_user[processor as usize]) {
            self.use_unit(processor, thread);
            let (callee, way) = (SpaceId(self.random.below(3) as u32), self.random.below(12));
            let is_quick = match way {
                0..3 => self.kernel.portal_call(entry(callee), 1, 5, 6).is_some(),
                3..6 => self.kernel.portal_return().is_some(),
                _ => false,
            };
            if is_quick {
                // Back in user mode at once.
                self.crossed(thread);
                return true;
            }
            let is_over = match way {
                0..3 => self
                    .kernel
                    .portal_enter(thread, callee, entry(callee), [0; 4], Stacks::All)
                    .is_some(),
                3..6 => self.kernel.portal_leave(thread, 0, 0, 0).is_some(),
                _ => false,
            };
            match way {
                0..6 if is_over => self.crossed(thread),
                6 => self.kernel.park(Key::Semaphore(8), None, None),
                7 | 8 => self.kernel.yield_current(),
                9 => {
                    // Somebody who runs nowhere else is taken out of a call, or ends.
                    let other = self.at_hand();
                    if self.kernel.portal_leave(other, 0, 0, 0).is_some() {
                        self.crossed(other);
                    }
                }
                10 => {
                    let other = self.at_hand();
                    while self.kernel.portal_leave(other, 0, 0, 0).is_some() {}
                    self.kernel.thread_destroy(other);
                    self.threads.retain(|&thread| thread != other);
                    let next = spawn(&mut self.kernel, SpaceId(0), 3);
                    self.threads.push(next);
                }
                _ => {}
            }
        }
        self.kernel.wake(Key::Semaphore(8), 1);
        self.kernel.check().expect("the kernel is as it must be");
        let next = self.kernel.schedule();
        self.in_user[processor as usize] = next.is_some();
        if let Some(index) = next {
            self.kernel.vectors_follow(index);
            let space = self.kernel.thread(index).space;
            self.kernel.enter_space(space);
        }
        self.kernel.check().expect("the kernel is as it must be");
        false
    }

    /// The thread sees what it should, and may use the unit.
    fn use_unit(&mut self, processor: u32, thread: ThreadId) {
        let seen = self.kernel.hardware.unit[processor as usize];
        assert_eq!(
            seen,
            self.expected.get(&thread).copied(),
            "{thread:?} on processor {processor}"
        );
        if self.random.below(3) > 0 {
            return;
        }
        if seen.is_none() {
            self.kernel.vectors_begin().expect("room");
            assert_eq!(self.kernel.hardware.unit[processor as usize], Some(0));
        }
        let state = self.random.next();
        self.kernel.hardware.unit[processor as usize] = Some(state);
        self.expected.insert(thread, state);
    }
}

#[test]
fn a_thread_sees_its_own_registers_or_none() {
    let mut quick = 0;
    for seed in 0..400 {
        for processors in [1, PROCESSORS] {
            let mut rig = Rig::new(seed, processors);
            for _ in 0..300 {
                let processor = rig.random.below(processors as usize) as u32;
                quick += u32::from(rig.step(processor));
            }
        }
    }
    assert!(quick > 20_000, "{quick} on the fast path");
}

/// Vector registers close no fast path: the unit stays on, with the initial state, on either side.
#[test]
fn a_crossing_of_a_thread_with_vector_registers_takes_the_fast_path() {
    let mut rig = Rig::new(1, 1);
    rig.step(0);
    rig.kernel.vectors_begin().expect("room");
    for _ in 0..3 {
        rig.kernel.hardware.unit[0] = Some(7);
        rig.kernel.portal_call(entry(SpaceId(1)), 1, 5, 6).expect("a way");
        assert_eq!(rig.kernel.hardware.unit[0], Some(0));
        rig.kernel.hardware.unit[0] = Some(8);
        rig.kernel.portal_return().expect("a way back");
        assert_eq!(rig.kernel.hardware.unit[0], Some(0));
    }
    let thread = rig.kernel.current_thread().expect("one runs");
    assert_eq!(thread.vectors, VectorState::loaded(0));
}

/// Without one instruction for it, the slow path drops the state.
#[test]
fn an_old_unit_takes_the_slow_path() {
    let mut rig = Rig::new(0, 1);
    rig.step(0);
    rig.kernel.vectors_begin().expect("room");
    assert!(rig.kernel.portal_call(entry(SpaceId(1)), 1, 5, 6).is_none());
    let thread = rig.current().expect("one runs");
    let entered = rig
        .kernel
        .portal_enter(thread, SpaceId(1), entry(SpaceId(1)), [0; 4], Stacks::Open);
    assert!(entered.is_some() && rig.kernel.portal_return().is_none());
}
