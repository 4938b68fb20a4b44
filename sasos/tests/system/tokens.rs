//! Semaphores against a model that counts: who waits, is ended, suspended, out of time, without a known right, while
//! signals are handed over or fetched.

use abi::{Call, Error, Rights, layout::FOREVER};
use kcore::ThreadId;
use sim::rng::Rng;

use crate::harness::{Answer, ENTRY, System};

const DONE: Answer = Answer::Done(Ok((0, 0)));
/// Semaphores, tasks that have a right to them, and threads of each.
const SEMAPHORES: usize = 2;
const TASKS: usize = 2;
const THREADS: usize = 3;

/// What a thread does, by the model.
#[derive(Copy, Clone, PartialEq, Debug)]
enum State {
    Free,
    /// For a semaphore, up to a time, or without end.
    Waits(usize, Option<u64>),
    /// The same, but suspended.
    Suspended(usize, Option<u64>),
}

/// A semaphore by the model: what was given, and what was had of it.
#[derive(Copy, Clone, Default)]
struct Tokens {
    given: u64,
    taken: u64,
}

struct Game {
    system: System,
    base: u64,
    tasks: [ThreadId; TASKS],
    threads: [(ThreadId, State); TASKS * THREADS],
    tokens: [Tokens; SEMAPHORES],
    seen: [u64; 4],
}

impl Game {
    fn begin(seed: u64) -> Self {
        let mut system = System::boot(500 + seed);
        let first = system.first;
        let (base, _) = system.object(first, 1);
        let right = system.call(first, Call::ObjPasswd, &[base, 0, Rights::R.bits().into()]);
        let (clist, _) = system.clist(first, &[(base, right.unwrap().0)]);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        let tasks = [(); TASKS].map(|()| system.task(first));
        let threads = core::array::from_fn(|number| (begun(&mut system, tasks[number / THREADS]), State::Free));
        let mut game = Self {
            system,
            base,
            tasks,
            threads,
            tokens: [Tokens::default(); SEMAPHORES],
            seen: [0; 4],
        };
        for which in 0..SEMAPHORES {
            game.make(which, 0);
        }
        game
    }

    fn address(&self, which: usize) -> u64 {
        self.base + 8 * which as u64
    }

    fn now(&self) -> u64 {
        self.system.platform.kernel.hardware.now_ns
    }

    fn make(&mut self, which: usize, value: u64) {
        let (first, address) = (self.system.first, self.address(which));
        self.system.call(first, Call::SemCreate, &[address, value]).unwrap();
        self.tokens[which] = Tokens { given: value, taken: 0 };
    }

    /// Notes the answers that have come.
    fn collect(&mut self, seed: u64) {
        for number in 0..self.threads.len() {
            let (thread, state) = self.threads[number];
            let (State::Waits(which, until) | State::Suspended(which, until)) = state else {
                continue;
            };
            match self.system.over(thread) {
                None => continue,
                Some(DONE) => {
                    self.tokens[which].taken += 1;
                    self.seen[0] += 1;
                }
                Some(Answer::Done(Err(Error::TimedOut))) => {
                    assert!(
                        until.is_some_and(|until| until <= self.now()),
                        "seed {seed}: {number} is too early"
                    );
                    self.seen[1] += 1;
                }
                Some(other) => panic!("seed {seed}: {number} waited for {which} and got {other:?}"),
            }
            self.threads[number].1 = State::Free;
        }
    }

    /// All that can go on has gone on: nobody waits where there is something to take, none beyond its time, and the
    /// count is what is left.
    fn settle(&mut self, seed: u64) {
        // One whose time passed while it was suspended waits until the next tick, which comes at once.
        self.system.pump();
        self.system.pass(0);
        self.collect(seed);
        let now = self.now();
        for which in 0..SEMAPHORES {
            let Tokens { given, taken } = self.tokens[which];
            assert!(taken <= given, "seed {seed}: {taken} taken of {given}");
            let waits = |&(_, state): &(ThreadId, State)| matches!(state, State::Waits(at, _) if at == which);
            let waiting = self.threads.iter().filter(|one| waits(one)).count();
            assert!(
                given == taken || waiting == 0,
                "seed {seed}: {waiting} wait and {} are there",
                given - taken
            );
        }
        for &(_, state) in &self.threads {
            if let State::Waits(_, Some(until)) = state {
                assert!(now < until, "seed {seed}: over its time");
            }
        }
    }

    fn act(&mut self, rng: &mut Rng, seed: u64) {
        let (first, number) = (self.system.first, rng.below(self.threads.len() as u64) as usize);
        let (which, (thread, state)) = (rng.below(SEMAPHORES as u64) as usize, self.threads[number]);
        let (task, address) = (self.tasks[number / THREADS], self.address(which));
        match (rng.below(16), state) {
            (0..5, State::Free) => {
                let timeout = [0, 1_000_000, 5_000_000, FOREVER, FOREVER][rng.below(5) as usize];
                match self.system.start(thread, Call::SemWait, &[address, timeout]) {
                    DONE => self.tokens[which].taken += 1,
                    Answer::Blocked => {
                        let until = (timeout != FOREVER).then(|| self.now() + timeout);
                        self.threads[number].1 = State::Waits(which, until);
                    }
                    answer => assert_eq!(
                        (answer, timeout),
                        (Answer::Done(Err(Error::TimedOut)), 0),
                        "seed {seed}"
                    ),
                }
            }
            (5..9, _) => {
                // By the one who made it, or by another one who has a right.
                let free = self
                    .threads
                    .iter()
                    .find(|(_, state)| *state == State::Free)
                    .map(|free| free.0);
                let who = free.filter(|_| rng.one_in(2)).unwrap_or(first);
                self.system.call(who, Call::SemSignal, &[address]).unwrap();
                self.tokens[which].given += 1;
            }
            (9, _) => {
                let task = self.tasks[rng.below(TASKS as u64) as usize];
                self.system.call(task, Call::ApdFlush, &[]).unwrap();
            }
            (10, _) => {
                self.collect(seed);
                self.system.call(task, Call::ThreadDelete, &[thread.0, 0]).unwrap();
                self.system.pump();
                self.system.reap(task, thread).unwrap();
                self.threads[number] = (begun(&mut self.system, task), State::Free);
                self.seen[2] += 1;
            }
            (11, State::Waits(at, until)) => {
                self.collect(seed);
                if self.threads[number].1 != State::Free {
                    self.system.call(task, Call::ThreadSleep, &[thread.0, FOREVER]).unwrap();
                    self.threads[number].1 = State::Suspended(at, until);
                    self.seen[3] += 1;
                }
            }
            (12, State::Suspended(at, until)) => {
                self.system.call(task, Call::ThreadResume, &[thread.0]).unwrap();
                self.threads[number].1 = State::Waits(at, until);
            }
            (13, _) => self.system.pass(rng.below(4_000_000)),
            (14, _) if rng.one_in(4) => {
                self.settle(seed);
                self.system.call(first, Call::SemDelete, &[address]).unwrap();
                self.make(which, rng.below(3));
                self.system.pump();
                for number in 0..self.threads.len() {
                    let (thread, state) = self.threads[number];
                    if matches!(state, State::Waits(at, _) if at == which) {
                        assert_eq!(
                            self.system.over(thread),
                            Some(Answer::Done(Err(Error::Deleted))),
                            "seed {seed}"
                        );
                        self.threads[number].1 = State::Free;
                    }
                }
                // Those that are suspended learn of it later.
                for number in 0..self.threads.len() {
                    let (thread, state) = self.threads[number];
                    if matches!(state, State::Suspended(at, _) if at == which) {
                        let task = self.tasks[number / THREADS];
                        self.system.call(task, Call::ThreadResume, &[thread.0]).unwrap();
                        self.system.pump();
                        let answer = self.system.over(thread);
                        assert_eq!(answer, Some(Answer::Done(Err(Error::Deleted))), "seed {seed}");
                        self.threads[number].1 = State::Free;
                    }
                }
            }
            _ => {}
        }
    }
}

/// A further thread of a task.
fn begun(system: &mut System, task: ThreadId) -> ThreadId {
    let image = system.image_of(task);
    ThreadId(system.call(task, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap().0)
}

/// Between two looks several things happen, so a waiter is ended, suspended or out of time while it has been woken
/// and has not yet looked.
#[test]
fn signals_are_neither_lost_nor_taken_twice() {
    let mut seen = [0; 4];
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut game = Game::begin(seed);
        for _ in 0..60 {
            for _ in 0..=rng.below(4) {
                game.act(&mut rng, seed);
            }
            game.settle(seed);
        }
        for (all, one) in seen.iter_mut().zip(game.seen) {
            *all += one;
        }
        game.system.check_to_the_end();
    }
    assert!(
        seen.iter().all(|&count| count > 0),
        "answers that came late, timeouts, ends, suspensions: {seen:?}"
    );
}
