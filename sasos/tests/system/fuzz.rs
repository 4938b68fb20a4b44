//! Any call with any arguments, from threads that come and go, with faults, interrupts and a slow
//! disk in between. Nothing panics, everything stays in order, and in the end nothing has leaked.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

use std::collections::BTreeMap;

use abi::{
    Call, Rights,
    address::{FIRST_PROGRAM, PAGE, ROOT_CLIST, ROOT_DIRECTORY, SLOT, STACKS_START, USER_END, USER_START},
    call::TABLE,
    layout::{FOREVER, PD_EMPTY, PD_MERGE},
};
use kcore::{Machine, ThreadId, thread::State, wait::Key};
use sasos::{Event, lives::thread::Life};
use sim::{machine::Touch, rng::Rng, seeds};

use crate::harness::{Answer, DATA, ENTRY, PRICES, System};

/// Calls of one seed.
const CALLS: u32 = 25_000;
/// Seeds, unless `GOND_SEEDS` says otherwise.
const SEEDS: u64 = 50;
/// Threads to keep alive.
const CROWD: usize = 10;
/// Calls between two checks.
const CHECK_EVERY: u32 = 2_500;

struct Fuzz {
    system: System,
    rng: Rng,
    /// Numbers that were seen: addresses, passwords, threads.
    seen: Vec<u64>,
    /// How often each call, by number, did what it is for.
    successes: BTreeMap<u64, u64>,
    clist: u64,
    /// The capabilities that this Clist always holds.
    always: Vec<(u64, u64)>,
    /// The Clist that procedures have.
    inner: u64,
    /// The images of procedures that all may enter, and delete.
    services: Vec<(u64, u64)>,
}

impl Fuzz {
    fn new(seed: u64) -> Self {
        // Little memory and disk, so that both run out now and then.
        let mut system = System::boot_with(seed, 1500 + (seed as u32 % 4) * 1000, 2000 + seed % 3 * 3000);
        // From the price within the kernel to that outside.
        system.server.price_calls(seed * 67 % (PRICES[1] + 1));
        // In half of the runs others call between any two pieces of what takes long.
        system.slow = (seed % 2 == 1).then(|| Rng::new(seed));
        let first = system.first;
        let (password, _) = system
            .call(first, Call::ObjPasswd, &[FIRST_PROGRAM, 0, Rights::RX.bits().into()])
            .unwrap();
        let (shared, owner) = system.object(first, 3);
        let (reader, _) = system
            .call(first, Call::ObjPasswd, &[shared, 0, Rights::R.bits().into()])
            .unwrap();
        let [(clist, _), (inner, _)] = [(); 2].map(|()| system.clist(first, &[]));
        let (clist_reader, _) = system
            .call(first, Call::ObjPasswd, &[clist, 0, Rights::R.bits().into()])
            .unwrap();
        let always = vec![(FIRST_PROGRAM, password), (shared, reader), (clist, clist_reader)];
        system.clist_fill(first, clist, &always);
        let seen = vec![shared, owner, reader, password, clist, FIRST_PROGRAM];
        // Children get only that Clist.
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        system.call(first, Call::ApdDelete, &[1]).unwrap();
        Self {
            system,
            rng: Rng::new(seed ^ 0x5eed),
            seen,
            successes: BTreeMap::new(),
            clist,
            always,
            inner,
            services: Vec::new(),
        }
    }

    /// Keeps two services alive, whatever the crowd does to them.
    fn keep_services(&mut self) {
        let first = self.system.first;
        let objects = &self.system.server.objects;
        self.services.retain(|&(image, _)| objects.find(image).is_some());
        while self.services.len() < 2 {
            let Ok((image, password)) = self.system.call(first, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]) else {
                return;
            };
            let entries = image + DATA;
            for (place, entry) in [ENTRY, ENTRY + 8].into_iter().enumerate() {
                if self
                    .system
                    .set_word(first, entries + 8 * place as u64, image + entry)
                    .is_err()
                {
                    return;
                }
            }
            let Ok((pdx, _)) = self
                .system
                .call(first, Call::ObjCrePdx, &[image, 0, self.inner, entries, 2])
            else {
                return;
            };
            self.services.push((image, pdx));
            let mut all = self.always.clone();
            all.extend([(image, password), (image, pdx)]);
            for &(image, pdx) in &self.services {
                all.push((image, pdx));
            }
            self.always.truncate(8);
            self.always.push((image, password));
            self.system.clist_fill(first, self.clist, &all);
            self.system.clist_fill(first, self.inner, &all);
        }
    }

    /// Threads that can make a call.
    fn able(&self) -> Vec<ThreadId> {
        let first = self.system.first;
        let table = &self.system.platform.kernel.threads().table;
        let able = table.iter().filter(|thread| {
            matches!(thread.state, State::Ready | State::Running) && thread.operation.is_none() && thread.id != first
        });
        able.map(|thread| thread.id).collect()
    }

    fn value(&mut self) -> u64 {
        let rng = &mut self.rng;
        let base = match rng.below(12) {
            0 => rng.below(5),
            1 => rng.below(200),
            2 => *rng.pick(&[
                PAGE,
                2 * PAGE,
                SLOT,
                SLOT + PAGE,
                3 * SLOT,
                1 << 30,
                1 << 40,
                PD_MERGE,
                PD_EMPTY,
            ]),
            3 => *rng.pick(&[
                0,
                1,
                u64::MAX,
                u64::MAX - 1,
                1 << 63,
                1 << 47,
                USER_END,
                USER_START,
                STACKS_START,
                0xffff_8000_0000_0000,
            ]),
            4 => *rng.pick(&[
                ROOT_CLIST,
                ROOT_DIRECTORY,
                FIRST_PROGRAM,
                FIRST_PROGRAM + ENTRY,
                self.clist,
            ]),
            5 => rng.next_u64(),
            6 => rng.next_u64() >> rng.below(64),
            _ => *rng.pick(&self.seen),
        };
        match rng.below(8) {
            0 => base.wrapping_add(rng.below(3 * PAGE)),
            1 => base.wrapping_add(*rng.pick(&[8, 16, ENTRY, DATA, PAGE - 1, PAGE - 8])),
            2 => base.wrapping_sub(1),
            _ => base,
        }
    }

    fn remember(&mut self, value: u64) {
        if value > 0xffff {
            if self.seen.len() < 64 {
                self.seen.push(value);
            } else {
                let place = self.rng.below(64) as usize;
                self.seen[place] = value;
            }
        }
    }

    /// An address or number worth a call: often an object that the thread's domain has.
    fn target(&mut self, thread: ThreadId) -> u64 {
        if self.rng.one_in(3) {
            return *self.rng.pick(&self.seen);
        }
        let domain = self.system.platform.thread_space(thread);
        let serial = self.system.server.domains.serial(domain);
        let own = self.system.server.objects.iter().filter(|(id, object)| {
            object.home == serial || self.system.server.holders(*id).any(|space| space == domain)
        });
        let bases: Vec<u64> = own.map(|(_, object)| object.base()).collect();
        if bases.is_empty() {
            *self.rng.pick(&self.seen)
        } else {
            *self.rng.pick(&bases)
        }
    }

    /// Something valid, so that the rest has something to work on.
    fn sensible(&mut self, thread: ThreadId) -> (Call, Vec<u64>) {
        let seen = self.target(thread);
        let small = self.rng.below(4);
        let service = if self.services.is_empty() {
            seen & 0xffff_ffff
        } else {
            self.rng.pick(&self.services).0
        };
        let table = [
            (Call::ObjCreate, vec![PAGE * (1 + small), 0]),
            (Call::ObjCreate, vec![SLOT * (1 + small) - PAGE, 0]),
            (Call::ObjClone, vec![FIRST_PROGRAM, PAGE, 0]),
            (Call::TaskCreate, vec![seen.wrapping_add(ENTRY), seen, 0, 200, 3]),
            (
                Call::ThreadCreate,
                vec![self.system.platform.thread_context(thread).rip, 1, 3],
            ),
            (Call::ObjDelete, vec![seen]),
            (Call::ObjRetire, vec![seen]),
            (Call::KeepObject, vec![seen]),
            (Call::ObjPasswd, vec![seen, 0, self.rng.below(16)]),
            (Call::ObjCrePdx, vec![seen, 0, self.clist, seen, small]),
            (Call::PdxCall, vec![service + ENTRY, 0, self.rng.below(2)]),
            (Call::PdxCall, vec![service + ENTRY, 0, seen]),
            (Call::PdxCall, vec![seen.wrapping_add(ENTRY), 0, small]),
            (Call::PdxReturn, vec![small]),
            (Call::PageFlush, vec![seen, small]),
            (Call::PageCopy, vec![seen, self.target(thread), small]),
            (Call::PageUnMap, vec![seen, small, small % 2]),
            (Call::PageLimit, vec![seen, small, self.rng.below(8)]),
            (Call::SemCreate, vec![seen.wrapping_add(8), small]),
            (Call::SemWait, vec![seen.wrapping_add(8), small * 1_000_000]),
            (Call::SemSignal, vec![seen.wrapping_add(8)]),
            (Call::AddressWait, vec![seen, 0, small * 1_000_000]),
            (Call::AddressWake, vec![seen, small]),
            (Call::ThreadWait, vec![0, small * 1_000_000, 0, 0]),
            (Call::ThreadSleep, vec![0, small * 1_000_000]),
            (Call::ThreadDelete, vec![0, small]),
            (Call::ThreadDelete, vec![seen, small]),
            (Call::ObjResize, vec![seen, PAGE * small]),
            (Call::ObjInfo, vec![seen, small, self.target(thread), 16 * small]),
            (Call::ApdInsert, vec![small, self.clist]),
            (Call::ApdDelete, vec![small]),
            (Call::ApdGet, vec![seen, PAGE]),
            (Call::ApdLock, vec![2 + small]),
            (Call::ApdLookup, vec![seen, self.rng.below(32)]),
            (Call::ApdFlush, vec![]),
            (Call::ThreadInfo, vec![0, seen, 16 * small]),
            (Call::ThreadSleep, vec![seen, FOREVER]),
            (Call::ThreadResume, vec![seen]),
            (Call::SemDelete, vec![seen.wrapping_add(8)]),
            (Call::ConsoleWrite, vec![small % 2, seen, PAGE]),
            (Call::ConsoleRead, vec![small % 2, seen, small]),
            (Call::ConsoleForeground, vec![seen]),
            (Call::ClockRead, vec![]),
            (Call::RandomRead, vec![]),
            (Call::ExcptReg, vec![2, self.system.platform.thread_context(thread).rip]),
            (Call::ExcptReturn, vec![small, seen]),
            (Call::SystemInfo, vec![self.rng.below(6), 0, seen, 16 * small]),
        ];
        self.rng.pick(&table).clone()
    }

    /// Writes an array of entries, a Clist or an APD into what may be an object.
    fn scribble(&mut self, thread: ThreadId) {
        let at = *self.rng.pick(&self.seen) & 0x7fff_ffff_ffff;
        let words: Vec<u64> = match self.rng.below(3) {
            0 => vec![at.wrapping_add(ENTRY), at, at.wrapping_add(ENTRY + 8)],
            1 => vec![1, 0, self.clist],
            _ => (0..4).map(|_| self.value()).collect(),
        };
        for (place, word) in words.into_iter().enumerate() {
            if self
                .system
                .set_word(thread, (at + 8 * place as u64) & 0x7fff_ffff_ffff, word)
                .is_err()
            {
                return;
            }
        }
    }

    /// Makes a procedure of one of the thread's objects, which holds its own list of entries.
    fn register(&mut self, thread: ThreadId) {
        let at = self.target(thread) & 0x7fff_ffff_ffff;
        if self.system.set_word(thread, at, at.wrapping_add(ENTRY)).is_ok() {
            let clist = if self.rng.one_in(2) { self.clist } else { 0 };
            self.call(thread, Call::ObjCrePdx as u64, [at, 0, clist, at, 1, 0]);
        }
    }

    /// Flushes one of the thread's objects, which holds the range itself, and another one.
    fn flush_together(&mut self, thread: ThreadId) {
        let [at, other] = [(); 2].map(|()| self.target(thread) & 0x7fff_ffff_f000);
        for (place, word) in [at, 1, other, 1].into_iter().enumerate() {
            if self.system.set_word(thread, at + 8 * place as u64, word).is_err() {
                return;
            }
        }
        let count = self.rng.below(4);
        self.call(thread, Call::PageFlushAll as u64, [at, count, 0, 0, 0, 0]);
    }

    fn step(&mut self) {
        self.system.late.clear();
        if self.system.slow.is_some() {
            self.system.pump();
        }
        let mut able = self.able();
        self.keep_services();
        if able.len() < CROWD {
            let first = self.system.first;
            if let Ok((image, _)) = self.system.call(first, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]) {
                match self
                    .system
                    .call(first, Call::TaskCreate, &[image + ENTRY, 0, 0, 400, 3])
                {
                    Ok((thread, _)) => {
                        self.remember(thread);
                        if self.rng.one_in(4) {
                            self.system.call(first, Call::ConsoleForeground, &[thread]).unwrap();
                        }
                        able.push(ThreadId(thread));
                    }
                    Err(_) => self.system.call(first, Call::ObjDelete, &[image]).map(|_| ()).unwrap(),
                }
            }
            while self.system.call(first, Call::ThreadWait, &[0, 0, 0]).is_ok() {}
            // Others may have ended meanwhile.
            let threads = &self.system.server.threads;
            able.retain(|&thread| threads.find(thread).is_some_and(|record| record.life == Life::Live));
        }
        if able.is_empty() {
            self.end_all();
            return;
        }
        let thread = *self.rng.pick(&able);
        match self.rng.below(20) {
            0 => {
                let ns = self.rng.below(1 << 28);
                self.system.platform.kernel.hardware.input[0].push_back(ns as u8);
                self.system.platform.wake(Key::ConsoleIn(0), 1);
                self.system.pass(ns);
            }
            1 => {
                let touch = *self.rng.pick(&[Touch::Read, Touch::Write, Touch::Execute]);
                let address = if self.rng.one_in(4) {
                    self.value()
                } else {
                    *self.rng.pick(&self.seen)
                };
                // Beyond the canonical addresses the processor raises something else.
                let _ = self.system.touch(thread, address & 0x7fff_ffff_ffff, touch);
            }
            2 if self.rng.one_in(2) => self.register(thread),
            2 if self.rng.one_in(4) => self.flush_together(thread),
            2 => self.scribble(thread),
            3 if self.rng.one_in(8) => {
                self.system.run(thread);
                let kind = self.rng.below(12);
                self.system.server.handle(
                    &mut self.system.platform,
                    Event::Exception {
                        thread,
                        kind,
                        address: 0,
                    },
                );
            }
            3 => drop(self.system.server.handle(&mut self.system.platform, Event::Interrupt)),
            4 | 5 => drop(self.system.step()),
            6..=9 => {
                let (number, arguments) = (self.rng.below(90), core::array::from_fn(|_| self.value()));
                self.call(thread, number, arguments);
            }
            _ => {
                let (call, mut arguments) = self.sensible(thread);
                if !arguments.is_empty() && self.rng.one_in(6) {
                    let place = self.rng.below(arguments.len() as u64) as usize;
                    arguments[place] = self.value();
                }
                arguments.resize(6, 0);
                self.call(thread, call as u64, arguments.try_into().unwrap());
            }
        }
    }

    fn call(&mut self, thread: ThreadId, number: u64, arguments: [u64; 6]) {
        match self.system.raw_call(thread, number, arguments) {
            Answer::Done(Ok((value, value2))) => {
                self.remember(value);
                self.remember(value2);
            }
            Answer::Done(Err(_)) => return,
            Answer::Blocked | Answer::Elsewhere | Answer::Gone => {}
        }
        *self.successes.entry(number).or_default() += 1;
    }

    /// Ends every thread but the first.
    fn end_all(&mut self) {
        let first = self.system.first;
        loop {
            let threads = &self.system.server.threads;
            let other = threads
                .iter()
                .find(|record| record.id != first && record.life == Life::Live)
                .map(|record| record.id);
            let Some(other) = other else { break };
            // Every other thread is somebody's child or an orphan, which the first task may end.
            let parent = self.system.server.threads.find(other).unwrap().parent;
            if parent == first {
                self.system.call(first, Call::ThreadDelete, &[other.0, 0]).unwrap();
                let _ = self.system.call(first, Call::ThreadWait, &[other.0, FOREVER, 0]);
            } else {
                let kind = abi::layout::EXCEPTION_KILL;
                let task = self.system.server.threads.find(other).unwrap().task;
                self.system.server.task_kill(task, kind);
                // Inside of others it has a bound of its own processor time.
                for _ in 0..1000 {
                    if self.system.server.threads.find(other).is_none() {
                        break;
                    }
                    self.system.pass_to_others();
                }
            }
        }
        self.system.pass(2_000_000_000);
        self.system.slow = None;
        self.system.pump();
    }
}

fn run(seed: u64) -> BTreeMap<u64, u64> {
    let mut fuzz = Fuzz::new(seed);
    let start = fuzz.system.server.tasks.iter().count();
    for step in 0..CALLS {
        fuzz.step();
        if step % CHECK_EVERY == CHECK_EVERY - 1 {
            fuzz.system.check();
        }
    }
    fuzz.end_all();
    let first = fuzz.system.first;
    while fuzz.system.call(first, Call::ThreadWait, &[0, 0, 0]).is_ok() {}
    assert_eq!(fuzz.system.server.tasks.iter().count(), start);
    assert_eq!(fuzz.system.server.threads.iter().count(), 1);
    fuzz.system.check_to_the_end();
    fuzz.successes
}

#[test]
fn any_call_with_any_arguments() {
    let Some(runs) = seeds::run(SEEDS, run) else { return };
    let mut successes = BTreeMap::new();
    for (number, count) in runs.into_iter().flatten() {
        *successes.entry(number).or_default() += count;
    }
    // Otherwise this says little: every call must have been done, too, not only refused.
    for info in TABLE {
        let count: u64 = successes.get(&info.number).copied().unwrap_or(0);
        println!("{} succeeded {count} times", info.name);
        // Calls that need the root directory are beyond these programs, on purpose; kernel domains are the kernel's alone.
        assert!(
            count > 0 || [Call::SystemControl as u64, Call::DomainCall as u64].contains(&info.number),
            "{} never succeeded",
            info.name
        );
    }
}
