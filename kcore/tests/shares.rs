//! Shares of the processors: what accounts get when they compete, held against what a model says that they should.

#![allow(clippy::cast_precision_loss, reason = "milliseconds are few")]

mod fake;

use std::collections::HashMap;

use fake::{Fake, Random, kernel};
use kcore::{
    Kernel, Machine, SpaceId, ThreadId,
    scheduler::Standing,
    shares::{PERIOD_NS, Shares, WHOLE},
    thread::{Resumed, State},
    wait::Key,
};

const MS: u64 = 1_000_000;
/// How often the timer comes, at least.
const TICK_MS: u64 = 10;
const PERIOD_MS: u64 = PERIOD_NS / MS;
/// The first task, and all programs, which have seven eighths.
const FIRST: u32 = 1;
const PROGRAMS: u32 = 2;
const PROGRAMS_BOUND: u64 = 875;

/// The behaviour of a thread.
#[derive(Copy, Clone, PartialEq)]
enum Habit {
    Spins,
    /// Yields just before the timer comes.
    Evades,
    /// Runs for so many milliseconds at once, and sleeps for so many.
    Sleeps(u64, u64),
}

struct Thread {
    id: ThreadId,
    account: u32,
    habit: Habit,
    ran_ms: u64,
    wakes_ms: u64,
    /// Since when it wants to run, and how long it had to wait for that at most.
    wants_ms: u64,
    waited_ms: u64,
}

/// A machine on which a millisecond is a step.
struct Rig {
    kernel: Kernel<Fake>,
    space: SpaceId,
    processors: u32,
    now_ms: u64,
    threads: Vec<Thread>,
    parents: HashMap<u32, (u32, u64)>,
    /// The time each account has had, with those below it.
    used_ms: HashMap<u32, u64>,
    /// How often nobody was chosen although threads waited.
    pieces: u32,
}

impl Rig {
    fn new(processors: u32) -> Self {
        let mut kernel = kernel(40);
        kernel.set_processors((1 << processors) - 1);
        let space = kernel.space_create().expect("space");
        let mut rig = Self {
            kernel,
            space,
            processors,
            now_ms: 0,
            threads: Vec::new(),
            parents: HashMap::new(),
            used_ms: HashMap::new(),
            pieces: 0,
        };
        rig.account(FIRST, 0, WHOLE);
        rig.account(PROGRAMS, FIRST, PROGRAMS_BOUND);
        rig
    }

    fn account(&mut self, account: u32, parent: u32, bound: u64) {
        self.kernel.share_open(account, parent, bound).expect("a share");
        self.parents.insert(account, (parent, bound));
    }

    fn spawn(&mut self, account: u32, priority: u8, habit: Habit) -> usize {
        let standing = Standing::new(account, priority);
        let id = self
            .kernel
            .thread_create(self.space, 0x1000, 0x2000, [0; 4], standing)
            .expect("a thread");
        self.kernel.thread_wake(id, Resumed::First);
        self.threads.push(Thread {
            id,
            account,
            habit,
            ran_ms: 0,
            wakes_ms: 0,
            wants_ms: self.now_ms,
            waited_ms: 0,
        });
        self.threads.len() - 1
    }

    /// Lets the processor that is here have a thread, if one waits anywhere.
    fn schedule(&mut self) -> Option<usize> {
        if self.kernel.should_preempt() {
            self.kernel.yield_current();
        }
        let mut found = self.kernel.schedule();
        while found.is_none() && self.kernel.has_waiting() {
            self.pieces += 1;
            found = self.kernel.schedule();
        }
        let id = self.kernel.id_of(found?);
        self.threads.iter().position(|thread| thread.id == id)
    }

    fn step(&mut self) {
        for thread in &mut self.threads {
            if thread.wakes_ms == self.now_ms && matches!(thread.habit, Habit::Sleeps(..)) && self.now_ms > 0 {
                self.kernel.thread_wake(thread.id, Resumed::TimedOut);
                thread.wants_ms = self.now_ms;
            }
        }
        let mut idle = false;
        let timer_ns = std::mem::replace(&mut self.kernel.hardware.timer_ns, u64::MAX);
        let is_due = self.now_ms.is_multiple_of(TICK_MS) || self.kernel.hardware.now_ns >= timer_ns;
        if !is_due {
            self.kernel.hardware.timer_ns = timer_ns;
        }
        for number in 0..self.processors {
            self.kernel.change_over(number);
            if is_due && self.kernel.tick() {
                self.kernel.yield_current();
            }
            let Some(index) = self.schedule() else {
                idle = true;
                continue;
            };
            let thread = &mut self.threads[index];
            thread.waited_ms = thread.waited_ms.max(self.now_ms - thread.wants_ms);
            thread.wants_ms = self.now_ms + 1;
            thread.ran_ms += 1;
            let mut account = thread.account;
            while account != 0 {
                *self.used_ms.entry(account).or_default() += 1;
                account = self.parents[&account].0;
            }
        }
        let ready = |thread: &Thread| self.kernel.threads().get(thread.id).state == State::Ready;
        assert!(
            !idle || !self.threads.iter().any(ready),
            "a processor is idle while a thread waits"
        );
        self.now_ms += 1;
        self.kernel.hardware.now_ns = self.now_ms * MS;
        for number in 0..self.processors {
            self.kernel.change_over(number);
            let Some(current) = self.kernel.current() else { continue };
            let id = self.kernel.id_of(current);
            let index = self.threads.iter().position(|thread| thread.id == id).expect("known");
            let thread = &mut self.threads[index];
            match thread.habit {
                Habit::Evades if self.now_ms % TICK_MS == TICK_MS - 1 => {
                    self.kernel.rotate(0x1000, 0x2000);
                }
                Habit::Sleeps(at_once, pause) if thread.ran_ms.is_multiple_of(at_once) => {
                    thread.wakes_ms = self.now_ms + pause;
                    thread.wants_ms = u64::MAX / 2;
                    self.kernel.park(Key::Nothing, None, None);
                }
                _ => {}
            }
        }
        self.kernel.check().expect("a consistent kernel");
    }

    fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    /// The most an account may have in a period, in milliseconds of one processor, if all accounts that have threads want to run.
    fn quota_ms(&self, account: u32) -> f64 {
        let Some(&(parent, bound)) = self.parents.get(&account).filter(|_| account != FIRST) else {
            return f64::INFINITY;
        };
        let bound = if bound == WHOLE {
            f64::INFINITY
        } else {
            bound as f64 / WHOLE as f64 * (PERIOD_MS * u64::from(self.processors)) as f64
        };
        let below = self
            .parents
            .iter()
            .filter(|&(&child, &(above, _))| above == parent && self.is_active(child));
        bound.min(self.quota_ms(parent) / (below.count() + 1) as f64)
    }

    fn is_active(&self, account: u32) -> bool {
        self.threads.iter().any(|thread| {
            let mut at = thread.account;
            while at != account && at != 0 {
                at = self.parents[&at].0;
            }
            at == account
        })
    }
}

#[test]
fn a_family_of_any_size_leaves_others_their_share() {
    for habit in [Habit::Spins, Habit::Evades] {
        let mut rig = Rig::new(1);
        // A task, its child and its grandchild, with a hundred threads of the highest priority each; a sibling with one of the lowest.
        for (account, parent) in [(3, PROGRAMS), (4, 3), (5, 4), (6, PROGRAMS)] {
            rig.account(account, parent, WHOLE);
        }
        for account in [3, 4, 5] {
            (0..100).for_each(|_| {
                rig.spawn(account, 7, habit);
            });
        }
        let sibling = rig.spawn(6, 0, Habit::Spins);
        rig.run(20 * PERIOD_MS);
        // A third of seven eighths of the processor.
        let least = 19 * PERIOD_MS * 7 / 24;
        assert!(
            rig.threads[sibling].ran_ms >= least,
            "{} of {least} ms",
            rig.threads[sibling].ran_ms
        );
        let waited = rig.threads[sibling].waited_ms;
        assert!(waited <= PERIOD_MS + TICK_MS, "it waited for {waited} ms");
    }
}

#[test]
fn the_first_task_is_never_behind_programs() {
    let mut rig = Rig::new(1);
    rig.account(3, PROGRAMS, WHOLE);
    (0..50).for_each(|_| {
        rig.spawn(3, 7, Habit::Spins);
    });
    let shell = rig.spawn(FIRST, 4, Habit::Spins);
    rig.run(20 * PERIOD_MS);
    assert!(
        rig.threads[shell].ran_ms >= 20 * (PERIOD_MS / 8 - 3),
        "{} ms",
        rig.threads[shell].ran_ms
    );
}

/// A thread that is behind goes on at the end of its slice unless somebody is ahead, here or at another processor.
#[test]
fn a_slice_behind_ends_only_for_a_thread_that_is_ahead() {
    let mut rig = Rig::new(2);
    rig.account(3, PROGRAMS, 100);
    rig.spawn(3, 3, Habit::Spins);
    rig.kernel.change_over(0);
    assert_eq!(rig.schedule(), Some(0));
    rig.kernel.hardware.now_ns = PERIOD_NS / 2;
    assert!(!rig.kernel.tick(), "nobody else wants to run");
    // It waits at the other processor, which is idle.
    rig.spawn(FIRST, 0, Habit::Spins);
    rig.kernel.hardware.now_ns += TICK_MS * MS;
    assert!(rig.kernel.tick());
}

/// A new period brings a running thread forward, also if another processor begins it.
#[test]
fn a_running_thread_comes_forward_with_the_period() {
    let mut rig = Rig::new(2);
    rig.account(3, PROGRAMS, 100);
    for (number, account) in [(0, 3), (1, FIRST)] {
        rig.spawn(account, 3, Habit::Spins);
        rig.kernel.change_over(number);
        assert_eq!(rig.schedule(), Some(number as usize));
        rig.kernel.change_over(0);
    }
    rig.kernel.hardware.now_ns = PERIOD_NS / 2;
    rig.kernel.tick();
    rig.spawn(FIRST, 0, Habit::Spins);
    assert!(rig.kernel.should_preempt(), "its share is spent");
    rig.kernel.hardware.now_ns = PERIOD_NS;
    rig.kernel.change_over(1);
    rig.kernel.tick();
    rig.kernel.change_over(0);
    assert!(!rig.kernel.should_preempt(), "it is more urgent");
}

#[test]
fn a_bound_binds_where_somebody_else_wants_the_processor() {
    let mut rig = Rig::new(1);
    rig.account(3, PROGRAMS, 100);
    rig.account(4, PROGRAMS, WHOLE);
    let bound = rig.spawn(3, 7, Habit::Spins);
    rig.run(10 * PERIOD_MS);
    assert_eq!(rig.threads[bound].ran_ms, 10 * PERIOD_MS, "nobody else wants it");
    rig.spawn(4, 0, Habit::Spins);
    rig.run(10 * PERIOD_MS);
    let more = rig.threads[bound].ran_ms - 10 * PERIOD_MS;
    // Both are spent at the period's end; the eighth of the first task is left to them then.
    assert!(more <= 10 * (PERIOD_MS / 10 + TICK_MS + PERIOD_MS / 2), "{more} ms");
    assert_eq!(rig.kernel.share_told(3).0, 100);
}

#[test]
fn who_passes_the_processor_on_pays_for_what_it_had() {
    let mut rig = Rig::new(1);
    rig.account(3, PROGRAMS, WHOLE);
    rig.account(4, PROGRAMS, WHOLE);
    // One works and yields to the other just before each tick; the other yields at once.
    rig.spawn(3, 3, Habit::Evades);
    rig.spawn(4, 3, Habit::Sleeps(1, 1));
    rig.run(3 * PERIOD_MS + PERIOD_MS / 2);
    let (worked, idled) = (rig.kernel.share_told(3).1, rig.kernel.share_told(4).1);
    assert!(worked >= 400 && idled <= 550, "{worked} and {idled} of a thousand");
    let told = worked + idled;
    assert!((980..=1000).contains(&told), "all time is charged to somebody: {told}");
}

#[test]
fn nobody_pays_for_time_in_which_nobody_runs() {
    let mut rig = Rig::new(1);
    rig.account(3, PROGRAMS, WHOLE);
    rig.spawn(3, 3, Habit::Sleeps(10, 90));
    rig.run(3 * PERIOD_MS + PERIOD_MS / 2);
    let told = rig.kernel.share_told(3).1;
    assert!((90..=110).contains(&told), "{told} of a thousand");
}

#[test]
fn thousands_go_behind_in_pieces_and_come_forward_together() {
    let mut rig = Rig::new(1);
    rig.account(3, PROGRAMS, WHOLE);
    rig.account(4, PROGRAMS, WHOLE);
    (0..500).for_each(|_| {
        rig.spawn(3, 5, Habit::Spins);
    });
    let sibling = rig.spawn(4, 1, Habit::Spins);
    rig.run(4 * PERIOD_MS);
    assert!(rig.threads[sibling].ran_ms > 0);
    // Once in each period, when the family is found to be spent: 6 at a time go behind.
    assert!(
        (2 * (500 / 6)..=5 * (500 / 6 + 1)).contains(&rig.pieces),
        "{} pieces",
        rig.pieces
    );
}

#[test]
fn random_families_get_what_a_model_says() {
    let mut random = Random(0x5a5e);
    for round in 0..60 {
        let processors = 1 + random.below(3) as u32;
        let mut rig = Rig::new(processors);
        let accounts = 2 + random.below(6) as u32;
        for account in 3..3 + accounts {
            let parent = if random.below(2) == 0 {
                PROGRAMS
            } else {
                2 + random.below(account as usize - 2) as u32
            };
            let bound = if random.below(3) == 0 {
                50 + random.below(800) as u64
            } else {
                WHOLE
            };
            rig.account(account, parent, bound);
            let priority = random.below(8) as u8;
            let habit = if random.below(4) == 0 {
                Habit::Evades
            } else {
                Habit::Spins
            };
            for _ in 0..random.below(2) * random.below(30) + processors as usize {
                rig.spawn(account, priority, habit);
            }
        }
        let sleeper = rig.spawn(FIRST, 4, Habit::Sleeps(1, 37));
        rig.run(4 * PERIOD_MS);
        let before = rig.used_ms.clone();
        rig.run(40 * PERIOD_MS);
        for account in 3..3 + accounts {
            let used = |map: &HashMap<u32, u64>| map.get(&account).copied().unwrap_or(0);
            let had = (used(&rig.used_ms) - used(&before)) as f64;
            // A task decides what it leaves its own children: those of the first task are sure of their part.
            let least = 39.0 * rig.quota_ms(account);
            if rig.parents[&account].0 == PROGRAMS {
                assert!(had >= least, "round {round}, account {account}: {had} of {least} ms");
            }
        }
        assert!(
            rig.threads[sleeper].waited_ms <= PERIOD_MS + TICK_MS,
            "round {round}: the first task waited for {} ms",
            rig.threads[sleeper].waited_ms
        );
    }
}

/// All charges since the start, from which everything is counted anew each time.
struct Model {
    /// By place: parent and bound.
    rows: Vec<(u32, u64)>,
    /// Period, place, nanoseconds.
    charges: Vec<(u32, u32, u64)>,
    period: u32,
}

impl Model {
    fn used(&self, place: u32, period: u32) -> u64 {
        let under = |mut at: u32| {
            while at != place && at != 0 {
                at = self.rows[at as usize].0;
            }
            at == place
        };
        let charges = self.charges.iter();
        charges
            .filter(|charge| charge.0 == period && under(charge.1))
            .map(|charge| charge.2)
            .sum()
    }

    fn quota(&self, place: u32, capacity_ns: u64) -> u64 {
        let (parent, bound) = self.rows[place as usize];
        if place == 0 {
            return u64::MAX;
        }
        let bound = if bound == WHOLE {
            u64::MAX
        } else {
            capacity_ns / WHOLE * bound
        };
        let above = self.quota(parent, capacity_ns);
        let ran = |period| {
            let children = (1..self.rows.len() as u32).filter(|&child| self.rows[child as usize].0 == parent);
            children.filter(|&child| self.used(child, period) > 0).count() as u64
        };
        let part = if above == u64::MAX {
            above
        } else {
            above / (ran(self.period).max(ran(self.period - 1)) + 1)
        };
        bound.min(part)
    }

    fn left(&self, place: u32, capacity_ns: u64) -> u64 {
        if place == 0 {
            return u64::MAX;
        }
        let own = match self.quota(place, capacity_ns) {
            u64::MAX => u64::MAX,
            quota => quota.saturating_sub(self.used(place, self.period)),
        };
        own.min(self.left(self.rows[place as usize].0, capacity_ns))
    }
}

#[test]
fn counts_that_carry_their_period_are_those_of_a_list_of_all_charges() {
    let mut random = Random(0xc0de);
    for _ in 0..100 {
        let mut shares = Shares::default();
        let processors = 1 + random.below(4) as u32;
        shares.set_processors(processors);
        let capacity_ns = PERIOD_NS * u64::from(processors);
        let mut model = Model {
            rows: vec![(0, WHOLE)],
            charges: Vec::new(),
            period: 2,
        };
        let mut now_ns = 0;
        for _ in 0..120 {
            match random.below(6) {
                0 if model.rows.len() < 90 => {
                    let parent = random.below(model.rows.len()) as u32;
                    let bound = if random.below(2) == 0 {
                        WHOLE
                    } else {
                        random.below(1000) as u64
                    };
                    shares.open(model.rows.len() as u32, parent, bound).expect("a row");
                    model.rows.push((parent, bound));
                }
                1 => {
                    let longer = random.below(4) == 0;
                    now_ns += if longer { PERIOD_NS } else { PERIOD_NS / 3 };
                    let before = shares.period();
                    let begun = shares.next_period(now_ns);
                    assert_eq!(shares.period(), before + u32::from(begun));
                    model.period = shares.period();
                }
                _ => {
                    let place = random.below(model.rows.len()) as u32;
                    let ns = random.next() % (capacity_ns / 4);
                    shares.charge(place, ns);
                    model.charges.push((model.period, place, ns));
                }
            }
            for place in 0..model.rows.len() as u32 {
                assert_eq!(shares.left_ns(place), model.left(place, capacity_ns));
                let unit = capacity_ns / WHOLE;
                let had = if place == 0 {
                    0
                } else {
                    model.used(place, model.period - 1) / unit
                };
                let told = (model.quota(place, capacity_ns) / unit).min(WHOLE);
                assert_eq!(shares.told(place), (told, had.min(WHOLE)));
            }
        }
    }
}
