//! Acts on names ([`names::act`]) over the real server and store, and the power goes at any request to the disk.
//!
//! The first thread creates, deletes and renames named objects, writes and flushes them, with checkpoints beside it, as `rt` does. In some lives requests
//! to the disk fail. At random requests a copy of the disk loses what was not flushed, whole or in part, and starts again; its recovery of names may be
//! cut, too. What is shown then is judged by a model that knows what was acknowledged, and nothing of the acts' order. Some copies go on.
//!
//! `GOND_SEED` repeats one seed, `GOND_SEEDS` sets how many there are, `GOND_FROM` the first of them.

use std::collections::{BTreeMap, BTreeSet};

use abi::{
    Call, Error as CallError, Rights,
    address::{PAGE, ROOT_CLIST, ROOT_DIRECTORY},
    layout::{CONTROL_CHECKPOINT, Capability},
};
use names::{
    act,
    clist::{Clist, ClistView},
    directory::{Directory, DirectoryView, Entry, Error, Kind, Marked},
};
use sim::{disk::CrashDisk, rng::Rng, seeds};

use crate::harness::{Answer, System};

/// Seeds, unless `GOND_SEEDS` says otherwise.
const SEEDS: u64 = 700;
const FRAMES: u32 = 1000;
const BLOCKS: u64 = 3000;
/// Different names, of which there is room for all.
const NAMES: u64 = 20;

#[derive(Debug, PartialEq)]
enum Failed {
    Names(Error),
    Call(CallError),
    /// The power.
    Power,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Names(error)
    }
}

type Result<T> = core::result::Result<T, Failed>;

/// What is known of an object that was given a name.
#[derive(Clone, Debug)]
struct Object {
    password: u64,
    /// The names and the contents that it may have behind a cut.
    names: BTreeSet<String>,
    contents: Vec<u64>,
    /// It is stable for certain, with a name.
    certain: bool,
    /// It may be stable without its name.
    flushed: bool,
    /// Its deletion or a replacement of its name has begun.
    leaves: bool,
}

#[derive(Clone, Default)]
struct Model {
    now: BTreeMap<String, u64>,
    objects: BTreeMap<u64, Object>,
}

impl Model {
    /// Everything as it is now is stable.
    fn is_stable(&mut self) {
        let Self { now, objects } = self;
        objects.retain(|base, _| now.values().any(|named| named == base));
        for (name, base) in now {
            let object = objects.get_mut(base).unwrap();
            object.names = BTreeSet::from([name.clone()]);
            object.contents.drain(..object.contents.len() - 1);
            (object.certain, object.leaves) = (true, false);
        }
    }
}

struct Acting {
    system: System,
    rng: Rng,
    model: Model,
    /// One request in so many is tried with a cut before it, and one in so many is the last; zero for none.
    tries: u64,
    cuts: u64,
    failing: bool,
    /// Whether the power has gone: acts may pass over a failure.
    is_off: bool,
    tried: u64,
}

impl Acting {
    fn new(system: System, rng: Rng) -> Self {
        Self {
            system,
            rng,
            model: Model::default(),
            tries: 0,
            cuts: 0,
            failing: false,
            is_off: false,
            tried: 0,
        }
    }

    /// The disk after a power cut now.
    fn unplugged(&mut self) -> CrashDisk {
        let disk = &self.system.platform.disk;
        let fates = disk.draw_fates(&mut self.rng);
        disk.crash(&fates, self.rng.fork())
    }

    /// A moment at which the power may go.
    fn step(&mut self) -> Result<bool> {
        if self.tries > 0 && self.rng.one_in(self.tries) {
            self.tried += 1;
            let disk = self.unplugged();
            restart(disk, &self.model, &mut self.rng.fork(), self.failing);
        }
        if self.cuts > 0 && self.rng.one_in(self.cuts) {
            self.is_off = true;
        }
        if self.is_off {
            return Err(Failed::Power);
        }
        Ok(self.system.step())
    }

    fn call(&mut self, call: Call, arguments: &[u64]) -> Result<(u64, u64)> {
        if self.is_off {
            return Err(Failed::Power);
        }
        let thread = self.system.first;
        let mut answer = self.system.start(thread, call, arguments);
        while answer == Answer::Blocked {
            if !self.step()? {
                self.system.pass(1_000_000);
            }
            answer = self.system.over(thread).unwrap_or(answer);
        }
        match answer {
            Answer::Done(result) => result.map_err(Failed::Call),
            other => panic!("{call:?} ended in {other:?}"),
        }
    }

    fn bytes(&mut self, base: u64) -> Vec<u8> {
        let pages = self.system.server.store.object(base).expect("a root").pages;
        let mut bytes = vec![0; (pages * PAGE) as usize];
        self.system.load(self.system.first, base, &mut bytes).unwrap();
        bytes
    }

    fn edit<R>(&mut self, base: u64, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.is_off {
            return Err(Failed::Power);
        }
        let before = self.bytes(base);
        let mut after = before.clone();
        let result = change(&mut after);
        let pages = before.chunks(PAGE as usize).zip(after.chunks(PAGE as usize));
        for (page, (_, new)) in pages.enumerate().filter(|(_, (old, new))| old != new) {
            let address = base + page as u64 * PAGE;
            self.system.store(self.system.first, address, new).unwrap();
        }
        if self.rng.one_in(4) {
            self.step()?;
        }
        Ok(result)
    }

    /// The capabilities by which the thread has a right on the object at an address: one for each right.
    fn granting(&mut self, address: u64) -> Vec<Capability> {
        let mut found = Vec::new();
        for right in [Rights::R, Rights::W, Rights::X, Rights::D, Rights::P] {
            let Ok((granted, _)) = self.call(Call::ApdLookup, &[address, right.bits().into()]) else {
                continue;
            };
            let mut bytes = [0; 16];
            if granted != 0 {
                self.system.load(self.system.first, granted, &mut bytes).unwrap();
            }
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            found.push(Capability {
                address: word(0),
                password: word(8),
            });
        }
        found
    }

    fn listed(&mut self) -> Vec<Capability> {
        let bytes = self.bytes(ROOT_CLIST);
        ClistView::open(&bytes).unwrap().iter().collect()
    }

    /// The names that the directory shows.
    fn shown(&mut self) -> Vec<(String, Capability)> {
        let bytes = self.bytes(ROOT_DIRECTORY);
        let view = DirectoryView::open(&bytes).unwrap();
        assert_eq!(view.faults().collect::<Vec<_>>(), []);
        view.iter()
            .map(|entry| (entry.name.to_owned(), entry.capability))
            .collect()
    }

    fn create(&mut self, name: &str, value: u64) -> Result<()> {
        let (base, password) = self.call(Call::ObjCreate, &[PAGE, 0])?;
        self.system.set_word(self.system.first, base, value).unwrap();
        let object = Object {
            password,
            names: BTreeSet::from([name.to_owned()]),
            contents: vec![value],
            certain: false,
            flushed: false,
            leaves: false,
        };
        let capability = Capability {
            address: base,
            password,
        };
        self.model.objects.insert(base, object);
        act::publish(self, &entry(name, capability))?;
        self.model.now.insert(name.to_owned(), base);
        Ok(())
    }

    /// One act.
    fn act(&mut self, value: u64) -> Result<()> {
        let names: Vec<_> = self.model.now.keys().cloned().collect();
        let new = format!("n{}", self.rng.below(NAMES));
        let old = if names.is_empty() {
            None
        } else {
            Some(self.rng.pick(&names).clone())
        };
        let kind = self.rng.below(14);
        match (kind, old) {
            (0..4, _) => self.create(&new, value),
            (4..6, Some(name)) => {
                let base = self.model.now[&name];
                self.model.objects.get_mut(&base).unwrap().leaves = true;
                let result = act::delete(self, &name);
                if result.is_ok() {
                    self.model.now.remove(&name);
                    self.model.objects.remove(&base);
                }
                result
            }
            (6..8, Some(name)) => {
                let base = self.model.now[&name];
                let object = self.model.objects.get_mut(&base).unwrap();
                object.names.insert(new.clone());
                let password = object.password;
                act::rename(
                    self,
                    &name,
                    &entry(
                        &new,
                        Capability {
                            address: base,
                            password,
                        },
                    ),
                )?;
                self.model.now.remove(&name);
                self.model.now.insert(new, base);
                Ok(())
            }
            (8, _) => {
                self.call(Call::SystemControl, &[CONTROL_CHECKPOINT, 0])?;
                self.model.is_stable();
                Ok(())
            }
            (9, Some(name)) => {
                let base = self.model.now[&name];
                self.model.objects.get_mut(&base).unwrap().contents.push(value);
                self.system.set_word(self.system.first, base, value).unwrap();
                Ok(())
            }
            (10, Some(name)) => {
                let base = self.model.now[&name];
                self.model.objects.get_mut(&base).unwrap().flushed = true;
                self.call(Call::PageFlush, &[base, 1])?;
                let contents = &mut self.model.objects.get_mut(&base).unwrap().contents;
                contents.drain(..contents.len() - 1);
                Ok(())
            }
            _ => {
                self.system.pass(300_000_000);
                self.step().map(|_| ())
            }
        }
    }

    /// Acts until the power goes. Gives how many were done.
    fn live(&mut self, acts: u64, value: &mut u64) -> u64 {
        let mut done = 0;
        for at in 0..acts {
            let fails = self.failing && at % 20 > 12;
            self.system.platform.disk.set_failing(if fails { 6 } else { 0 });
            *value += 1;
            let result = self.act(*value);
            if self.is_off {
                break;
            }
            done += u64::from(result.is_ok());
            let shown: BTreeMap<_, _> = self
                .shown()
                .into_iter()
                .map(|(name, way)| (name, way.address))
                .collect();
            match result {
                Ok(()) | Err(Failed::Names(Error::Exists)) => {}
                Err(Failed::Call(CallError::DiskError)) if fails => {
                    // A name may have gone with its object, and an object be there without its name.
                    let Model { now, objects } = &mut self.model;
                    let store = &self.system.server.store;
                    now.retain(|name, base| {
                        shown.contains_key(name) || !objects[base].leaves || store.object(*base).is_some()
                    });
                    for object in objects.values_mut() {
                        object.flushed = true;
                    }
                }
                Err(error) => panic!("{error:?}"),
            }
            assert_eq!(shown, self.model.now);
        }
        done
    }
}

impl act::System for Acting {
    type Error = Failed;

    fn change(&mut self, change: &mut dyn FnMut(&mut Directory<'_>) -> core::result::Result<(), Error>) -> Result<()> {
        let result = self.edit(ROOT_DIRECTORY, |bytes| change(&mut Directory::open_mut(bytes)?))?;
        Ok(result?)
    }

    fn make_room(&mut self, _: &Marked) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.call(Call::PageFlush, &[ROOT_DIRECTORY, 1]).map(|_| ())
    }

    fn flush_all(&mut self) -> Result<()> {
        self.call(Call::SystemControl, &[CONTROL_CHECKPOINT, 0]).map(|_| ())
    }

    fn is_there(&mut self, address: u64) -> bool {
        self.system.server.store.object(address).is_some()
    }

    fn is_own(&mut self, capability: Capability) -> bool {
        if self.is_off {
            return true;
        }
        let mut listed = self.listed();
        listed.retain(|one| one.address == capability.address);
        let granting = self.granting(capability.address);
        listed.contains(&capability) || granting.first().is_none_or(|one| *one == capability)
    }

    fn gives_right(&mut self, capability: Capability) -> bool {
        self.is_off || self.granting(capability.address).contains(&capability)
    }

    fn keep(&mut self, address: u64) -> Result<()> {
        self.call(Call::KeepObject, &[address]).map(|_| ())
    }

    fn delete(&mut self, address: u64) -> Result<()> {
        match self.call(Call::ObjDelete, &[address]) {
            Ok(_) | Err(Failed::Call(CallError::BadAddress)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn enter(&mut self, capability: Capability) -> Result<()> {
        self.edit(ROOT_CLIST, |bytes| {
            Clist::open_mut(bytes).unwrap().insert(capability).unwrap();
        })?;
        if self.granting(capability.address).is_empty() {
            self.edit(ROOT_CLIST, |bytes| {
                Clist::open_mut(bytes).unwrap().remove(capability).unwrap();
            })?;
        }
        Ok(())
    }

    fn leave(&mut self, address: u64) -> Result<()> {
        self.edit(ROOT_CLIST, |bytes| Clist::open_mut(bytes).unwrap().remove_all(address))
            .map(|_| ())
    }
}

fn entry(name: &str, capability: Capability) -> Entry<'_> {
    Entry {
        name,
        kind: Kind::Data,
        capability,
        word: 0,
    }
}

/// The system as it starts again from a disk, which shows nothing but what the model allows.
fn restart(mut disk: CrashDisk, model: &Model, rng: &mut Rng, failing: bool) -> Acting {
    let mut acting = loop {
        let mut acting = Acting::new(System::mount(disk, FRAMES, rng.fork()), rng.fork());
        acting.cuts = if rng.one_in(2) { 6 } else { 0 };
        let recovered = act::recover(&mut acting).map(|_| ());
        match recovered {
            Ok(()) if !acting.is_off => break acting,
            Ok(()) | Err(Failed::Power) => disk = acting.unplugged(),
            Err(error) => panic!("{error:?}"),
        }
    };
    acting.cuts = 0;
    assert!(!acting.is_off);
    let (shown, listed) = (acting.shown(), acting.listed());
    acting.call(Call::ApdFlush, &[]).unwrap();
    for (name, capability) in &shown {
        let base = capability.address;
        assert!(
            acting.system.server.store.object(base).is_some(),
            "{name} leads nowhere"
        );
        let known = model
            .objects
            .get(&base)
            .unwrap_or_else(|| panic!("{name} leads to {base:x}, which is gone"));
        assert_eq!(
            known.password, capability.password,
            "{name} leads to another object {base:x}"
        );
        assert!(listed.contains(capability), "{name} is not in the root Clist");
        assert!(known.names.contains(name), "{name}: {known:?}");
        let found = acting.system.word(acting.system.first, base).unwrap();
        assert!(known.contents.contains(&found), "{name} holds {found}: {known:?}");
        assert!(acting.model.now.insert(name.clone(), base).is_none(), "{name} twice");
        let names = BTreeSet::from([name.clone()]);
        let object = Object {
            names,
            contents: vec![found],
            certain: true,
            flushed: false,
            leaves: false,
            password: known.password,
        };
        assert!(
            acting.model.objects.insert(base, object).is_none(),
            "{base:#x} has two names"
        );
    }
    for (base, object) in &model.objects {
        if acting.model.objects.contains_key(base) {
            continue;
        }
        assert!(
            !object.certain || object.leaves,
            "{base:#x} was stable, and no name leads to it: {object:?}"
        );
        let is_there = acting.system.server.store.object(*base).is_some();
        assert!(
            !is_there || object.flushed || failing,
            "{base:#x} has no name: {object:?}"
        );
    }
    acting
}

/// A system with an empty directory, before any act.
fn begun(seed: u64, rng: &mut Rng) -> Acting {
    let mut acting = Acting::new(System::boot_with(seed, FRAMES, BLOCKS), rng.fork());
    let formatted = acting.edit(ROOT_DIRECTORY, |bytes| Directory::format(bytes).map(|_| ()));
    formatted.unwrap().unwrap();
    acting.call(Call::SystemControl, &[CONTROL_CHECKPOINT, 0]).unwrap();
    acting
}

fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed ^ 0x6e_616d_6564);
    let mut acting = begun(seed, &mut rng);
    let (mut value, mut done, mut tried) = (0, 0, 0);
    for _ in 0..3 {
        acting.tries = 20;
        acting.cuts = 400;
        acting.failing = rng.one_in(3);
        let acts = 5 + rng.below(60);
        done += acting.live(acts, &mut value);
        tried += acting.tried + 1;
        let disk = acting.unplugged();
        let (model, failing) = (acting.model, acting.failing);
        acting = restart(disk, &model, &mut rng, failing);
    }
    (done, tried)
}

#[test]
fn names_and_their_objects_survive_the_power_together() {
    let Some(runs) = seeds::run(SEEDS, run) else { return };
    assert!(runs.iter().any(|&(acts, _)| acts > 0) && runs.iter().any(|&(_, cuts)| cuts > 0));
}
