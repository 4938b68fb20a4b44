//! The power goes, and comes back: what was acknowledged is there, what was not kept is gone.
//!
//! A workload keeps, writes, flushes and deletes objects while checkpoints run behind it. At a
//! random moment the disk loses what was not flushed, whole or in part. Then the system starts
//! again, and each page must hold a value between the last acknowledged and the last written one.

use std::collections::BTreeMap;

use abi::{Call, Error, Rights, address::PAGE, layout::CONTROL_CHECKPOINT};
use kcore::ThreadId;
use sim::{rng::Rng, seeds};

use crate::harness::{Answer, System};

/// Seeds, unless `GOND_SEEDS` says otherwise.
const SEEDS: u64 = 500;

/// The test's knowledge of a kept object.
#[derive(Clone, Debug, Default)]
struct Kept {
    password: u64,
    /// Last value written to each page, and last value that is certainly stable.
    written: Vec<u64>,
    stable: Vec<u64>,
    /// The record itself is certainly stable.
    certain: bool,
    /// A deletion was begun.
    deleting: bool,
}

struct Workload {
    system: System,
    rng: Rng,
    kept: BTreeMap<u64, Kept>,
    /// Bases of objects whose deletion was acknowledged.
    deleted: Vec<u64>,
    /// Objects that were never kept.
    transient: Vec<u64>,
}

impl Workload {
    fn thread(&self) -> ThreadId {
        self.system.first
    }

    /// A call that must succeed; `None` if the power is to go before it is over.
    fn call(&mut self, call: Call, arguments: &[u64]) -> Option<(u64, u64)> {
        let thread = self.thread();
        let mut answer = self.system.start(thread, call, arguments);
        while answer == Answer::Blocked {
            if self.rng.one_in(60) {
                return None;
            }
            if !self.system.step() {
                self.system.pass(1_000_000);
            }
            answer = self.system.late.remove(&thread).unwrap_or(Answer::Blocked);
        }
        match answer {
            Answer::Done(Ok(values)) => Some(values),
            other => panic!("{call:?}{arguments:x?} ended in {other:?}"),
        }
    }

    /// One step; `None` if the power is to go in the middle of it.
    fn step(&mut self) -> Option<()> {
        let bases: Vec<u64> = self
            .kept
            .iter()
            .filter(|(_, kept)| !kept.deleting)
            .map(|(&base, _)| base)
            .collect();
        let base = if bases.is_empty() { 0 } else { *self.rng.pick(&bases) };
        match self.rng.below(12) {
            0 | 1 if bases.len() < 12 => {
                let pages = 1 + self.rng.below(5);
                let (base, password) = self.call(Call::ObjCreate, &[pages * PAGE, 0])?;
                // The address of an object whose deletion is stable may be used again.
                self.deleted.retain(|&deleted| deleted != base);
                if self.rng.one_in(4) {
                    self.transient.push(base);
                    return Some(());
                }
                self.call(Call::KeepObject, &[base])?;
                // A kept object has no right from its making any more.
                let zeroes = vec![0; pages as usize];
                self.kept.insert(
                    base,
                    Kept {
                        password,
                        written: zeroes.clone(),
                        stable: zeroes,
                        ..Kept::default()
                    },
                );
                let all: Vec<_> = self.kept.iter().map(|(&base, kept)| (base, kept.password)).collect();
                let clist = self.transient[0];
                let thread = self.thread();
                self.system.clist_fill(thread, clist, &all);
            }
            2..=5 if base != 0 => {
                let page = self.rng.below(self.kept[&base].written.len() as u64);
                let value = self.kept[&base].written[page as usize] + 1;
                let thread = self.thread();
                self.system.set_word(thread, base + page * PAGE, value).unwrap();
                self.kept.get_mut(&base).unwrap().written[page as usize] = value;
            }
            6 if base != 0 => {
                let pages = self.kept[&base].written.len() as u64;
                self.call(Call::PageFlush, &[base, pages])?;
                let kept = self.kept.get_mut(&base).unwrap();
                kept.stable = kept.written.clone();
                kept.certain = true;
            }
            7 if base != 0 && self.rng.one_in(3) => {
                self.kept.get_mut(&base).unwrap().deleting = true;
                self.call(Call::ObjDelete, &[base])?;
                self.kept.remove(&base);
                self.deleted.push(base);
            }
            8 if self.rng.one_in(4) => {
                self.call(Call::SystemControl, &[CONTROL_CHECKPOINT, 0])?;
                for kept in self.kept.values_mut() {
                    kept.stable = kept.written.clone();
                    kept.certain = true;
                }
            }
            9 => self.system.pass(400_000_000),
            _ => drop(self.system.step()),
        }
        Some(())
    }
}

/// Runs one seed; tells how many pages held a value that had been acknowledged.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::new(seed ^ 0xc4a5);
    let mut system = System::boot(seed);
    let first = system.first;
    let (clist, _) = system.clist(first, &[]);
    system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
    let mut workload = Workload {
        system,
        rng: rng.fork(),
        kept: BTreeMap::new(),
        deleted: Vec::new(),
        transient: vec![clist],
    };
    for _ in 0..20 + rng.below(200) {
        if workload.step().is_none() {
            break;
        }
    }
    let Workload {
        system,
        kept,
        deleted,
        transient,
        ..
    } = workload;
    let fates = system.platform.disk.draw_fates(&mut rng);
    let disk = system.platform.disk.crash(&fates, rng.fork());
    let mut system = System::mount(disk, 4096, rng.fork());
    let first = system.first;
    let mut acknowledged = 0;
    for (base, kept) in &kept {
        let Some(record) = system.server.store.object(*base).cloned() else {
            assert!(
                !kept.certain || kept.deleting,
                "the object at {base:#x} is lost: {kept:?}"
            );
            continue;
        };
        assert_eq!(record.pages, kept.written.len() as u64);
        assert_eq!(record.capabilities, [(kept.password, Rights::OWNER.bits())]);
        let (clist, _) = system.clist(first, &[(*base, kept.password)]);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        for (page, (&written, &stable)) in kept.written.iter().zip(&kept.stable).enumerate() {
            let value = system.word(first, base + page as u64 * PAGE).expect("it can be read");
            acknowledged += u64::from(stable > 0);
            assert!(
                (stable..=written).contains(&value),
                "page {page} of {base:#x} holds {value}; {stable} was acknowledged, {written} written"
            );
        }
        system.call(first, Call::ApdDelete, &[0]).unwrap();
        system.call(first, Call::ObjDelete, &[clist]).unwrap();
    }
    for base in deleted {
        assert!(system.server.store.object(base).is_none(), "a deletion is forgotten");
    }
    for base in transient {
        assert!(system.server.store.object(base).is_none(), "what was not kept is there");
    }
    // The addresses of objects that are there are not issued again.
    let (fresh, _) = system.object(first, 1);
    assert!(system.server.store.object(fresh).is_none());
    system.check_to_the_end();
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_the_power() {
    let Some(acknowledged) = seeds::run(SEEDS, run) else {
        return;
    };
    let pages: u64 = acknowledged.iter().sum();
    assert!(
        pages >= acknowledged.len() as u64 / 2,
        "the workload says little: {pages} pages"
    );
}

#[test]
fn a_clean_power_off_keeps_every_byte() {
    let mut system = System::boot(70);
    let first = system.first;
    let mut kept = Vec::new();
    for number in 0..10_u64 {
        let (base, password) = system.object(first, 600);
        let text: Vec<u8> = (0..5000).map(|place| (place * (number + 3)) as u8).collect();
        system.store(first, base + 511 * PAGE - 100, &text).unwrap();
        let (reader, _) = system
            .call(first, Call::ObjPasswd, &[base, 0, Rights::R.bits().into()])
            .unwrap();
        system.call(first, Call::KeepObject, &[base]).unwrap();
        kept.push((base, password, reader, text));
    }
    system.power_off(first, 0x10);
    for _ in 0..3 {
        let disk = system.platform.disk.crash(&[], Rng::new(71));
        system = System::mount(disk, 4096, Rng::new(72));
        let first = system.first;
        for (base, _, reader, text) in &kept {
            let (clist, _) = system.clist(first, &[(*base, *reader)]);
            system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
            let mut back = vec![0; text.len()];
            system.load(first, base + 511 * PAGE - 100, &mut back).unwrap();
            assert!(&back == text);
            assert_eq!(system.word(first, base + 8), Ok(0));
            assert_eq!(system.call(first, Call::ObjDelete, &[*base]), Err(Error::Protection));
            system.call(first, Call::ApdDelete, &[0]).unwrap();
        }
        system.check();
        system.power_off(first, 0x10);
    }
    system.check_to_the_end();
}
