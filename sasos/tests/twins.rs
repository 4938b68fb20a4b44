//! A program in little memory, beside the same one in much.
//!
//! Both do the same at random. The account of one is squeezed at any time, and its machine is small, so its transient objects are backed by the disk in the middle of everything
//! ([`sasos::pages::backing`]). Nothing that a program can see may differ: results, contents, limits, what it is told of its objects. Only a refusal for lack of memory may,
//! and these are few.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

mod common;

use std::collections::BTreeSet;

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{EXCEPTION_KILL, UNMAP_ZERO},
};
use common::{Actor, Rig};
use kcore::Hardware;
use sasos::{
    Access,
    accounts::{AccountId, Resource, limits},
};
use sim::{machine::Touch, rng::Rng, seeds};

/// Runs, unless `GOND_SEEDS` says otherwise, and the steps of one.
const SEEDS: u64 = 24;
const STEPS: u32 = 1200;
const PASSWORD: u64 = 11;
/// Objects at a time, and pages of one at most.
const OBJECTS: usize = 8;
const PAGES_MOST: u64 = 150;
/// Frames of the account that is not squeezed just now.
const FRAMES: u64 = 500;

/// One of the two.
struct Twin {
    rig: Rig,
    actor: Actor,
    bases: Vec<u64>,
    /// Kept objects that programs have left which could not delete them any more.
    left: usize,
}

/// What both know of an object.
#[derive(Clone)]
struct Known {
    pages: u64,
    kept: bool,
    limited: BTreeSet<u64>,
}

struct Pair {
    rng: Rng,
    small: Twin,
    large: Twin,
    known: Vec<Known>,
    done: u32,
    refused: u32,
    ended: u32,
    backed: u32,
}

const fn lacks(error: Error) -> bool {
    matches!(error, Error::NoMemory | Error::LimitReached)
}

impl Twin {
    fn new(seed: u64, frames: u32, account: u64) -> Self {
        let mut rig = Rig::new(seed, frames, 30_000);
        let actor = rig.actor_in(AccountId::ROOT, limits::of_frames(account));
        Self {
            rig,
            actor,
            bases: Vec::new(),
            left: 0,
        }
    }

    fn call(&mut self, call: Call, arguments: &[u64]) -> Result<(u64, u64), Error> {
        self.rig.call(self.actor, call, arguments)
    }

    /// The word of a page, or none where the thread has ended for it.
    fn reads(&mut self, address: u64) -> Option<u64> {
        self.rig.has(self.actor, address, Access::Read).then(|| {
            let hardware = &mut self.rig.world.kernel.hardware;
            let frame = hardware.translate(address, Touch::Read).expect("it has it");
            let mut bytes = [0; 8];
            hardware.read(frame, 0, &mut bytes);
            u64::from_le_bytes(bytes)
        })
    }

    fn writes(&mut self, address: u64, value: u64) -> bool {
        self.rig.has(self.actor, address, Access::Write) && {
            let hardware = &mut self.rig.world.kernel.hardware;
            let frame = hardware.translate(address, Touch::Write).expect("it has it");
            hardware.write(frame, 0, &value.to_le_bytes());
            true
        }
    }

    /// What the program is told of an object: bytes and flags.
    fn told(&self, object: usize) -> (u64, u64) {
        let id = self.rig.server.objects.find(self.bases[object]).expect("it lives");
        let info = self.rig.server.object_info(id, self.actor.space);
        (info.bytes, info.flags)
    }

    /// The program ends, and another one begins.
    fn anew(&mut self, account: u64) {
        self.bases.clear();
        self.rig.server.task_kill(self.actor.task, EXCEPTION_KILL);
        self.rig.rests();
        let left = self.rig.server.objects.iter().count();
        assert!(
            left <= self.left,
            "{left} objects are left, and {} were kept",
            self.left
        );
        self.actor = self.rig.actor_in(AccountId::ROOT, limits::of_frames(account));
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7717);
        let frames = *rng.pick(&[900, 1500, 4000]);
        Self {
            rng,
            small: Twin::new(seed, frames, FRAMES),
            large: Twin::new(seed + 1, 12_000, 8_000),
            known: Vec::new(),
            done: 0,
            refused: 0,
            ended: 0,
            backed: 0,
        }
    }

    fn both(&mut self) -> [&mut Twin; 2] {
        [&mut self.small, &mut self.large]
    }

    /// The small one may have few frames more than it has, or as many as before.
    fn squeezes(&mut self) {
        let server = &mut self.small.rig.server;
        let account = server.tasks.get(self.small.actor.task).expect("it lives").account;
        let used = server.ledger.used(account, Resource::Frames);
        let frames = if self.rng.one_in(3) {
            FRAMES
        } else {
            (used + self.rng.below(24)).clamp(40, FRAMES)
        };
        server.ledger.set_limits(account, limits::of_frames(frames));
    }

    /// From 1 to so many.
    fn upto(&mut self, most: u64) -> u64 {
        1 + self.rng.below(most)
    }

    fn page_of(&mut self, object: usize) -> u64 {
        self.rng.below(self.known[object].pages)
    }

    fn some(&mut self) -> usize {
        self.rng.below(self.known.len() as u64) as usize
    }

    /// A call that both make, of an object if it changes one; what came of it, or nothing if the small one was refused: then the object goes, for some of it may be done.
    fn calls(&mut self, call: Call, arguments: impl Fn(&Twin) -> Vec<u64>, changes: Option<usize>) -> Option<[u64; 2]> {
        let given = arguments(&self.small);
        let small = self.small.call(call, &given);
        if let Err(error) = small
            && lacks(error)
        {
            self.refused += 1;
            if let Some(object) = changes {
                self.deletes(object);
            }
            return None;
        }
        let given = arguments(&self.large);
        let large = self.large.call(call, &given);
        assert_eq!(small.err(), large.err(), "{call:?} of {changes:?}");
        self.done += 1;
        Some([small.ok()?.0, large.ok()?.0])
    }

    fn made(&mut self, bases: Option<[u64; 2]>, known: Known) {
        if let Some(bases) = bases {
            for (twin, base) in self.both().into_iter().zip(bases) {
                twin.bases.push(base);
            }
            self.known.push(known);
        }
    }

    fn deletes(&mut self, object: usize) {
        for twin in self.both() {
            let base = twin.bases.swap_remove(object);
            twin.call(Call::ObjDelete, &[base]).expect("it is deleted");
        }
        self.known.swap_remove(object);
    }

    /// A program has ended for lack of memory: all begins anew.
    fn ends(&mut self) {
        self.ended += 1;
        for object in (0..self.known.len()).rev() {
            if self.known[object].kept {
                let base = self.large.bases[object];
                self.large.call(Call::ObjDelete, &[base]).expect("it is deleted");
                self.small.left += 1;
            }
        }
        self.known.clear();
        self.small.anew(FRAMES);
        self.large.anew(8_000);
    }

    fn step(&mut self) {
        if self.known.is_empty() || self.known.len() < OBJECTS && self.rng.one_in(12) {
            let pages = self.upto(PAGES_MOST);
            let bases = self.calls(Call::ObjCreate, |_| vec![pages * PAGE, PASSWORD], None);
            let known = Known {
                pages,
                kept: false,
                limited: BTreeSet::new(),
            };
            self.made(bases, known);
            return;
        }
        let object = self.some();
        let pages = self.known[object].pages;
        match self.rng.below(40) {
            0..=11 => self.fills(object),
            12..=21 => self.looks(object),
            22..=25 => self.squeezes(),
            26 if self.known.len() < OBJECTS => {
                let bases = self.calls(Call::ObjClone, |twin| vec![twin.bases[object], 0, PASSWORD], None);
                let known = Known {
                    kept: false,
                    ..self.known[object].clone()
                };
                self.made(bases, known);
            }
            27 => {
                let pages = self.upto(PAGES_MOST);
                if self
                    .calls(
                        Call::ObjResize,
                        |twin| vec![twin.bases[object], pages * PAGE],
                        Some(object),
                    )
                    .is_some()
                {
                    self.known[object].pages = pages;
                    self.known[object].limited.retain(|&page| page < pages);
                }
            }
            28..=30 => self.copies(object),
            31..=32 => {
                let first = self.page_of(object);
                let count = self.upto(pages - first);
                let limited = self.known[object].limited.range(first..first + count).next().is_some();
                if !limited {
                    let arguments = |twin: &Twin| vec![twin.bases[object] + first * PAGE, count, UNMAP_ZERO];
                    self.calls(Call::PageUnMap, arguments, Some(object));
                }
            }
            33 => {
                let first = self.page_of(object);
                let count = self.upto((pages - first).min(6));
                let rights = if self.rng.one_in(2) { Rights::R } else { Rights::RWX };
                let bits = u64::from(rights.bits());
                let arguments = |twin: &Twin| vec![twin.bases[object] + first * PAGE, count, bits];
                if self.calls(Call::PageLimit, arguments, Some(object)).is_some() {
                    for page in first..first + count {
                        if rights == Rights::R {
                            self.known[object].limited.insert(page);
                        } else {
                            self.known[object].limited.remove(&page);
                        }
                    }
                }
            }
            34 if !self.known[object].kept && self.rng.one_in(3) => {
                let kept = self.calls(Call::KeepObject, |twin| vec![twin.bases[object]], Some(object));
                if kept.is_some() {
                    self.known[object].kept = true;
                }
            }
            35 if self.rng.one_in(2) => self.deletes(object),
            36 => self.small.rig.checkpoint().expect("the disk works"),
            37 => self.small.rig.settle(),
            38 => self.small.rig.poll(),
            _ => {}
        }
    }

    /// Both write some pages.
    fn fills(&mut self, object: usize) {
        let first = self.page_of(object);
        let count = self.upto(self.known[object].pages - first).min(60);
        let value = self.rng.next_u64();
        for page in (first..first + count)
            .filter(|page| !self.known[object].limited.contains(page))
            .collect::<Vec<_>>()
        {
            let address = self.small.bases[object] + page * PAGE;
            if !self.small.writes(address, value ^ page) {
                return self.ends();
            }
            let address = self.large.bases[object] + page * PAGE;
            assert!(self.large.writes(address, value ^ page), "the large one has memory");
        }
    }

    /// Both see the same in some pages, and are told the same.
    fn looks(&mut self, object: usize) {
        let first = self.page_of(object);
        let count = self.upto(self.known[object].pages - first).min(60);
        self.compares(object, first..first + count);
    }

    fn compares(&mut self, object: usize, pages: core::ops::Range<u64>) -> bool {
        assert_eq!(self.small.told(object), self.large.told(object), "what is told of it");
        for page in pages {
            let [small, large] = self.both().map(|twin| twin.bases[object] + page * PAGE);
            let Some(seen) = self.small.reads(small) else {
                self.ends();
                return false;
            };
            assert_eq!(
                Some(seen),
                self.large.reads(large),
                "page {page} of {:?}",
                self.known[object].pages
            );
            if self.known[object].limited.contains(&page) {
                for (twin, address) in [(&mut self.small, small), (&mut self.large, large)] {
                    let space = twin.actor.space;
                    assert_eq!(twin.rig.touch(space, address, Access::Write), Err(Error::Protection));
                }
            }
        }
        true
    }

    fn copies(&mut self, object: usize) {
        let source = self.some();
        let (from, to) = (self.page_of(source), self.page_of(object));
        let most = (self.known[source].pages - from).min(self.known[object].pages - to);
        let count = self.upto(most);
        if source == object || self.known[object].limited.range(to..to + count).next().is_some() {
            return;
        }
        self.calls(
            Call::PageCopy,
            |twin| vec![twin.bases[source] + from * PAGE, twin.bases[object] + to * PAGE, count],
            Some(object),
        );
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            self.step();
            if step % 64 == 63 {
                self.small.rig.check();
                let server = &self.small.rig.server;
                let store = &server.store;
                let is_backed = |(base, known): &(&u64, &Known)| !known.kept && store.object(**base).is_some();
                self.backed += self.small.bases.iter().zip(&self.known).filter(is_backed).count() as u32;
            }
        }
        for object in 0..self.known.len() {
            if object >= self.known.len() || !self.compares(object, 0..self.known[object].pages) {
                break;
            }
        }
        while !self.known.is_empty() {
            self.deletes(0);
        }
        self.small.anew(FRAMES);
    }
}

#[test]
fn who_has_little_memory_sees_what_one_with_much_sees() {
    let runs = seeds::run(SEEDS, |seed| {
        let mut pair = Pair::new(seed);
        pair.run();
        [pair.backed, pair.done, pair.refused, pair.ended]
    });
    let Some(runs) = runs else { return };
    let [backed, done, refused, ended] = [0, 1, 2, 3].map(|sum| runs.iter().map(|run| run[sum]).sum::<u32>());
    println!("{backed} times an object was backed, {done} calls; {refused} were refused, and {ended} programs ended");
    assert!(backed > 10 * SEEDS as u32, "objects are backed");
    assert!(refused < done / 4 && ended < done / 20, "few are refused");
}
