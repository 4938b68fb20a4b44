//! Every short sequence of acts, cut at every step, with the last checkpoint at every step before.
//!
//! The model knows what becomes durable when (module theory), and nothing of the acts.

mod interrupted;
mod starts;

use super::*;
use crate::{Kind, directory::ENTRY_BYTES};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

/// Entries of the model's directory: fewer than the names that a sequence makes and frees.
const ENTRIES: usize = 5;

/// A state that can be on a disk.
#[derive(Clone, PartialEq, Debug)]
struct State {
    directory: Vec<u8>,
    clist: BTreeSet<(u64, u64)>,
    /// Objects, and whether they are kept.
    objects: BTreeMap<u64, bool>,
}

#[derive(Debug, PartialEq)]
enum Failed {
    /// The power.
    Power,
    Directory(Error),
    /// The object cannot be kept or deleted, or there is no room.
    Refused,
    Disk,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Directory(error)
    }
}

struct Model {
    now: State,
    stable: State,
    /// Steps done, the step after which a checkpoint is taken, and the one before which the power fails.
    steps: u32,
    checkpoint: u32,
    cut: u32,
    /// Objects that cannot be deleted.
    protected: BTreeSet<u64>,
    /// The disk fails: no deletion is durable.
    fails: bool,
    /// These steps are refused for an error of the disk, and whether they are done all the same.
    failing: (Range<u32>, bool),
    /// No block is left.
    full: bool,
    /// The root Clist is not to be written.
    is_stranger: bool,
    /// Behind each change of the directory somebody else lets this entry lead to the other one of two objects.
    flips: Option<[Capability; 2]>,
}

/// Whether a capability is one of an object that is there.
fn is_valid(objects: &BTreeMap<u64, bool>, (address, password): (u64, u64)) -> bool {
    objects.contains_key(&address) && password == address + 1
}

impl Model {
    fn new(checkpoint: u32, cut: u32) -> Self {
        let mut directory = vec![0; ENTRY_BYTES * (ENTRIES + 1)];
        Directory::format_zeroed(&mut directory).unwrap();
        let now = State {
            directory,
            clist: BTreeSet::new(),
            objects: BTreeMap::new(),
        };
        Self {
            stable: now.clone(),
            now,
            steps: 0,
            checkpoint,
            cut,
            protected: BTreeSet::new(),
            fails: false,
            failing: (0..0, false),
            full: false,
            is_stranger: false,
            flips: None,
        }
    }

    /// After a cut: what is stable is all there is.
    fn restart(stable: State, cut: u32) -> Self {
        Self {
            now: stable.clone(),
            stable,
            steps: 0,
            checkpoint: u32::MAX,
            cut,
            protected: BTreeSet::new(),
            fails: false,
            failing: (0..0, false),
            full: false,
            is_stranger: false,
            flips: None,
        }
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Failed>) -> Result<T, Failed> {
        if self.steps == self.cut {
            return Err(Failed::Power);
        }
        let (steps, done) = &self.failing;
        let (fails, done) = (steps.contains(&self.steps), *done);
        let result = if fails && !done { Err(Failed::Disk) } else { act(self) };
        let result = if fails { Err(Failed::Disk) } else { result };
        self.steps += 1;
        if self.steps == self.checkpoint {
            self.take_all();
        }
        result
    }

    fn take_all(&mut self) {
        self.stable = self.now.clone();
        self.stable.objects.retain(|_, kept| *kept);
    }

    fn names(&self) -> BTreeMap<String, u64> {
        let view = crate::DirectoryView::open(&self.now.directory).unwrap();
        assert_eq!(view.faults().collect::<Vec<_>>(), []);
        view.iter()
            .map(|entry| (entry.name.to_owned(), entry.capability.address))
            .collect()
    }
}

impl System for Model {
    type Error = Failed;

    fn change(&mut self, change: &mut dyn FnMut(&mut Directory<'_>) -> Result<(), Error>) -> Result<(), Failed> {
        self.step(|model| {
            let mut directory = Directory::open_mut(&mut model.now.directory)?;
            change(&mut directory)?;
            if let Some([here, there]) = model.flips {
                let word = there.address.to_le_bytes();
                let bytes = &mut model.now.directory;
                let at = bytes.windows(8).position(|word| word == here.address.to_le_bytes());
                bytes[at.unwrap()..][..8].copy_from_slice(&word);
                model.flips = Some([there, here]);
            }
            Ok(())
        })
    }

    fn make_room(&mut self, _: &Marked) -> Result<(), Failed> {
        let room = if self.full { Err(Failed::Refused) } else { Ok(()) };
        self.step(|_| room)
    }

    fn flush(&mut self) -> Result<(), Failed> {
        self.step(|model| {
            model.stable.directory.clone_from(&model.now.directory);
            Ok(())
        })
    }

    fn flush_all(&mut self) -> Result<(), Failed> {
        self.step(|model| {
            model.take_all();
            Ok(())
        })
    }

    fn is_there(&mut self, address: u64) -> bool {
        self.now.objects.get(&address) == Some(&true)
    }

    fn is_own(&mut self, capability: Capability) -> bool {
        let State { clist, objects, .. } = &self.now;
        let has_right = |one: &(u64, u64)| one.0 == capability.address && is_valid(objects, *one);
        clist.contains(&(capability.address, capability.password)) || !clist.iter().any(has_right)
    }

    fn gives_right(&mut self, capability: Capability) -> bool {
        let one = (capability.address, capability.password);
        self.now.clist.contains(&one) && is_valid(&self.now.objects, one)
    }

    fn keep(&mut self, address: u64) -> Result<(), Failed> {
        self.step(|model| {
            model.now.objects.insert(address, true);
            Ok(())
        })
    }

    fn delete(&mut self, address: u64) -> Result<(), Failed> {
        self.step(|model| {
            if model.protected.contains(&address) {
                return Err(Failed::Refused);
            }
            model.now.objects.remove(&address);
            if model.fails {
                return Err(Failed::Refused);
            }
            model.stable.objects.remove(&address);
            Ok(())
        })
    }

    fn enter(&mut self, capability: Capability) -> Result<(), Failed> {
        self.step(|model| {
            let new = (capability.address, capability.password);
            if is_valid(&model.now.objects, new) {
                model.now.clist.insert(new);
            }
            Ok(())
        })
    }

    fn leave(&mut self, address: u64) -> Result<(), Failed> {
        if self.is_stranger {
            return Err(Failed::Refused);
        }
        self.step(|model| {
            model.now.clist.retain(|(one, _)| *one != address);
            Ok(())
        })
    }
}

/// An act of a sequence. Objects get addresses that are never used again.
#[derive(Copy, Clone, Debug)]
enum Act {
    Create(&'static str),
    Delete(&'static str),
    Rename(&'static str, &'static str),
    Replace(&'static str),
    /// Its program makes the object durable, and nothing else.
    Flush(&'static str),
}

const ACTS: [Act; 7] = [
    Act::Create("a"),
    Act::Create("b"),
    Act::Delete("a"),
    Act::Delete("b"),
    Act::Rename("a", "b"),
    Act::Replace("a"),
    Act::Flush("a"),
];

fn entry(name: &str, address: u64) -> Entry<'_> {
    Entry {
        name,
        kind: Kind::Data,
        capability: Capability {
            address,
            password: address + 1,
        },
        word: 0,
    }
}

fn act(model: &mut Model, act: Act, address: u64) -> Result<(), Failed> {
    match act {
        Act::Create(name) => {
            model.now.objects.insert(address, false);
            publish(model, &entry(name, address))
        }
        Act::Delete(name) => delete(model, name),
        Act::Rename(old, new) => {
            let found = model.names().get(old).copied();
            let found = found.ok_or(Failed::Directory(Error::NotFound))?;
            rename(model, old, &entry(new, found))
        }
        Act::Replace(name) => {
            // An object that gets this name has another name, or is kept for another reason.
            model.now.objects.insert(address, true);
            model.now.clist.insert((address, address + 1));
            replace(model, &entry(name, address))
        }
        Act::Flush(name) => {
            let found = model.names().get(name).copied();
            let found = found.ok_or(Failed::Directory(Error::NotFound))?;
            model.step(|model| {
                model.stable.objects.insert(found, true);
                Ok(())
            })
        }
    }
}

/// A run that was cut.
struct Run {
    model: Model,
    /// The names after each act that ended, and the number of acts that had ended at the last checkpoint.
    history: Vec<BTreeMap<String, u64>>,
    at_checkpoint: usize,
    finished: bool,
}

fn run(acts: &[Act], checkpoint: u32, cut: u32) -> Run {
    let mut run = Run {
        model: Model::new(checkpoint, cut),
        history: vec![BTreeMap::new()],
        at_checkpoint: 0,
        finished: true,
    };
    for (index, one) in acts.iter().enumerate() {
        let result = act(&mut run.model, *one, 0x1000 * (index as u64 + 1));
        if result == Err(Failed::Power) {
            run.finished = false;
            break;
        }
        if let (Act::Create(_), Err(_)) = (one, &result) {
            run.model.now.objects.remove(&(0x1000 * (index as u64 + 1)));
        }
        run.history.push(run.model.names());
        if run.model.steps < checkpoint {
            run.at_checkpoint = run.history.len() - 1;
        }
    }
    run
}

/// Holds a disk that the start has recovered against the run's history.
fn judge(run: &Run, after: &Model, what: &str) {
    let names = after.names();
    let objects: BTreeSet<u64> = after.now.objects.keys().copied().collect();
    let named: BTreeSet<u64> = names.values().copied().collect();
    for (name, address) in &names {
        assert!(objects.contains(address), "{what}: {name} leads nowhere");
        assert!(
            after.now.clist.contains(&(*address, address + 1)),
            "{what}: the capability of {name} is gone"
        );
    }
    assert_eq!(names.len(), named.len(), "{what}: an object has two names");
    let view = crate::DirectoryView::open(&after.now.directory).unwrap();
    assert_eq!(view.marked(0).count(), 0, "{what}: something is left unfinished");
    // An act that was cut may be done or not; acts since the checkpoint, too, but for deletions.
    for name in ["a", "b"] {
        let found = names.get(name);
        let past = &run.history[run.at_checkpoint..];
        let known = past.iter().any(|names| names.get(name) == found);
        assert!(
            known || !run.finished,
            "{what}: {name} leads to what it never did: {names:?}"
        );
        let still = past.iter().all(|names| names.get(name) == past[0].get(name));
        let touched = !run.finished || !still;
        assert!(
            touched || found == past[0].get(name),
            "{what}: {name} was lost: {names:?}"
        );
    }
}

fn all_cuts(acts: &[Act]) {
    let steps = run(acts, u32::MAX, u32::MAX).model.steps;
    for cut in 0..=steps {
        for checkpoint in 0..=cut {
            let run = run(acts, checkpoint, cut);
            let what = format!("{acts:?}, checkpoint {checkpoint}, cut {cut}");
            let mut second = 0;
            loop {
                let mut first = Model::restart(run.model.stable.clone(), second);
                let cut_again = recover(&mut first) == Err(Failed::Power);
                if !cut_again {
                    judge(&run, &first, &what);
                    break;
                }
                let mut after = Model::restart(first.stable.clone(), u32::MAX);
                recover(&mut after).unwrap();
                judge(&run, &after, &format!("{what}, cut again at {second}"));
                second += 1;
            }
        }
    }
}

#[test]
fn no_cut_parts_a_name_from_its_object() {
    for one in ACTS {
        for two in ACTS {
            for three in ACTS {
                all_cuts(&[Act::Create("a"), one, two, three]);
            }
        }
    }
}

#[test]
fn nothing_kept_is_without_a_name_after_a_cut() {
    let acts = [
        Act::Create("a"),
        Act::Create("b"),
        Act::Delete("a"),
        Act::Create("a"),
        Act::Rename("b", "c"),
    ];
    let steps = run(&acts, u32::MAX, u32::MAX).model.steps;
    for cut in 0..=steps {
        for checkpoint in 0..=cut {
            let mut after = Model::restart(run(&acts, checkpoint, cut).model.stable, u32::MAX);
            recover(&mut after).unwrap();
            let named: BTreeSet<u64> = after.names().into_values().collect();
            let objects: BTreeSet<u64> = after.now.objects.into_keys().collect();
            assert_eq!(objects, named, "checkpoint {checkpoint}, cut {cut}");
        }
    }
}

/// The disk fails: the object is gone, and after a power cut there again. The name is gone with it, and the deletion is brought to its end.
#[test]
fn a_deletion_that_is_not_durable_takes_the_name_along() {
    let mut model = Model::new(u32::MAX, u32::MAX);
    act(&mut model, Act::Create("a"), 0x1000).unwrap();
    model.take_all();
    model.fails = true;
    assert_eq!(act(&mut model, Act::Delete("a"), 0), Err(Failed::Refused));
    assert!(model.names().is_empty());
    for fails in [true, false] {
        let mut after = Model::restart(model.stable.clone(), u32::MAX);
        after.fails = fails;
        assert_eq!(recover(&mut after), Ok(1));
        assert!(after.names().is_empty() && after.now.objects.is_empty() && after.now.clist.is_empty());
    }
    act(&mut model, Act::Create("b"), 0x2000).unwrap();
    let view = crate::DirectoryView::open(&model.now.directory).unwrap();
    assert_eq!(view.interrupted(0), None);
    assert_eq!(model.now.clist, BTreeSet::from([(0x2000, 0x2001)]));
}

#[test]
fn a_deletion_that_is_refused_leaves_the_name() {
    let mut model = Model::new(u32::MAX, u32::MAX);
    act(&mut model, Act::Create("a"), 0x1000).unwrap();
    model.protected.insert(0x1000);
    assert_eq!(act(&mut model, Act::Delete("a"), 0), Err(Failed::Refused));
    assert_eq!(model.names()["a"], 0x1000);
    // The same where the refusal was not stable before the power failed.
    let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
    directory.mark("a", Mark::Doomed).unwrap();
    assert!(model.names().is_empty());
    assert_eq!(recover(&mut model), Ok(0));
    assert_eq!(model.names()["a"], 0x1000);
}

#[test]
fn a_name_that_was_given_again_stays_the_new_ones() {
    for mark in [Mark::Doomed, Mark::Unborn] {
        let mut model = Model::new(u32::MAX, u32::MAX);
        act(&mut model, Act::Create("a"), 0x1000).unwrap();
        let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
        directory.mark("a", mark).unwrap();
        directory.insert(&entry("a", 0x2000)).unwrap();
        model.now.objects.insert(0x2000, true);
        model.now.clist.insert((0x2000, 0x2001));
        assert_eq!(recover(&mut model), Ok(1));
        assert_eq!(model.names()["a"], 0x2000);
        // Somebody asked for the deletion of the doomed one; the other one may have a name elsewhere.
        let stays = mark == Mark::Unborn;
        assert_eq!(model.now.objects.contains_key(&0x1000), stays, "{mark:?}");
        assert!(model.now.objects.contains_key(&0x2000), "{mark:?}");
    }
}

/// The address of an object that was deleted is another one's, whose name may stand in another directory. Neither an act nor a start brings the deleted
/// name back, or touches the other object, though a capability of the old one may still be listed. An act whose caller has no right there leaves the
/// question to others.
#[test]
fn a_deleted_name_goes_when_another_object_has_its_address() {
    const PLACE: u64 = 0x1000;
    let (old, new) = ((PLACE, 7), (PLACE, PLACE + 1));
    for listed in [vec![], vec![old], vec![new], vec![old, new]] {
        let doomed = || {
            let mut model = Model::new(u32::MAX, u32::MAX);
            model.now.objects.insert(PLACE, true);
            model.now.clist.extend(&listed);
            let mut deleted = entry("a", PLACE);
            deleted.capability.password = old.1;
            let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
            directory.insert_marked(&deleted, Mark::Doomed).unwrap();
            model
        };
        let left = |model: &Model| {
            assert!(!model.names().contains_key("a"), "{listed:?}");
            assert!(model.now.objects.contains_key(&PLACE), "{listed:?}");
            assert_eq!(model.now.clist.contains(&new), listed.contains(&new), "{listed:?}");
            assert!(!model.now.clist.contains(&old) || listed.contains(&old), "{listed:?}");
            let view = crate::DirectoryView::open(&model.now.directory).unwrap();
            view.interrupted(0).is_some()
        };
        let mut model = doomed();
        assert_eq!(recover(&mut model), Ok(1), "{listed:?}");
        assert!(!left(&model), "{listed:?}");

        let mut model = doomed();
        act(&mut model, Act::Create("b"), 0x2000).unwrap();
        assert_eq!(left(&model), listed != [new], "{listed:?}");
        let after = started(&mut model);
        assert!(!left(&after), "{listed:?}");
    }
}

/// Starts the model again from its disk, behind a checkpoint, and recovers it.
fn started(model: &mut Model) -> Model {
    model.take_all();
    let mut after = Model::restart(model.stable.clone(), u32::MAX);
    recover(&mut after).unwrap();
    after
}

/// A publisher was ended behind any of its steps. Its object gets the same name from another one, or a name in another directory, while its own name
/// there goes to something else. No start destroys it.
#[test]
fn an_object_whose_publisher_was_ended_is_published_by_another_one() {
    for cut in 1..4 {
        let ended = || {
            let mut model = Model::new(u32::MAX, cut);
            model.now.objects.insert(0x1000, false);
            assert_eq!(publish(&mut model, &entry("a", 0x1000)), Err(Failed::Power), "{cut}");
            model.cut = u32::MAX;
            model
        };
        let mut model = ended();
        publish(&mut model, &entry("a", 0x1000)).unwrap();
        let after = started(&mut model);
        assert_eq!(after.names(), BTreeMap::from([("a".to_owned(), 0x1000)]), "{cut}");
        assert!(after.now.objects.contains_key(&0x1000), "{cut}");

        let mut model = ended();
        let here = model.now.directory.clone();
        Directory::format(&mut model.now.directory).unwrap();
        publish(&mut model, &entry("elsewhere", 0x1000)).unwrap();
        model.now.directory = here;
        model.now.objects.insert(0x2000, false);
        publish(&mut model, &entry("a", 0x2000)).unwrap();
        let after = started(&mut model);
        assert_eq!(after.names(), BTreeMap::from([("a".to_owned(), 0x2000)]), "{cut}");
        assert_eq!(after.now.objects.len(), 2, "{cut}");
        let capabilities = BTreeSet::from([(0x1000, 0x1001), (0x2000, 0x2001)]);
        assert_eq!(after.now.clist, capabilities, "{cut}");
    }
}

/// A program that may not write the root Clist is refused, and nothing of its attempt stays: its parent publishes the object for it.
#[test]
fn a_refused_publication_leaves_nothing() {
    let mut model = Model::new(u32::MAX, u32::MAX);
    model.now.objects.insert(0x1000, false);
    model.is_stranger = true;
    assert_eq!(publish(&mut model, &entry("a", 0x1000)), Err(Failed::Refused));
    let view = crate::DirectoryView::open(&model.now.directory).unwrap();
    assert_eq!(view.marked(0).count(), 0);
    model.is_stranger = false;
    publish(&mut model, &entry("a", 0x1000)).unwrap();
    let after = started(&mut model);
    assert_eq!(after.names(), BTreeMap::from([("a".to_owned(), 0x1000)]));
    assert!(after.now.objects.contains_key(&0x1000));
}

/// Nothing is destroyed before there is room to take its name away, and after that no room is asked for but by what has it.
#[test]
fn room_is_asked_for_before_anything_is_destroyed() {
    let mut model = Model::new(u32::MAX, u32::MAX);
    act(&mut model, Act::Create("a"), 0x1000).unwrap();
    model.full = true;
    assert_eq!(delete(&mut model, "a"), Err(Failed::Refused));
    assert_eq!(model.names()["a"], 0x1000);
    assert!(model.now.objects.contains_key(&0x1000));
}

/// Without a cut the acts are those of a map: names, objects and capabilities after each of them, refusals among them.
#[test]
fn acts_are_those_of_a_map() {
    for number in 0..ACTS.len().pow(4) {
        let acts = [0, 1, 2, 3].map(|place| ACTS[number / ACTS.len().pow(place) % ACTS.len()]);
        let mut model = Model::new(u32::MAX, u32::MAX);
        let (mut names, mut objects) = (BTreeMap::new(), BTreeSet::new());
        for (index, one) in acts.into_iter().enumerate() {
            let address = 0x1000 * (index as u64 + 1);
            let refusal = match one {
                Act::Delete(old) | Act::Rename(old, _) | Act::Flush(old) if !names.contains_key(old) => {
                    Some(Error::NotFound)
                }
                Act::Create(name) | Act::Rename(_, name) if names.contains_key(name) => Some(Error::Exists),
                _ => None,
            };
            let result = act(&mut model, one, address);
            assert_eq!(
                result,
                refusal.map_or(Ok(()), |error| Err(Failed::Directory(error))),
                "{acts:?}, {index}"
            );
            match one {
                Act::Create(_) if refusal.is_some() => drop(model.now.objects.remove(&address)),
                _ if refusal.is_some() => {}
                Act::Create(name) | Act::Replace(name) => {
                    names.insert(name.to_owned(), address);
                    objects.insert(address);
                }
                Act::Delete(name) => drop(names.remove(name).map(|gone| objects.remove(&gone))),
                Act::Rename(old, new) => {
                    let found = names.remove(old).unwrap();
                    names.insert(new.to_owned(), found);
                }
                Act::Flush(_) => {}
            }
            assert_eq!(model.names(), names, "{acts:?}, {index}");
            assert!(model.now.objects.keys().eq(&objects), "{acts:?}, {index}");
            let known: BTreeSet<u64> = model.now.clist.iter().map(|(address, _)| *address).collect();
            assert_eq!(known, objects, "{acts:?}, {index}");
        }
        assert_eq!(recover(&mut model), Ok(0), "{acts:?}");
        assert_eq!(model.names(), names, "{acts:?}");
    }
}

/// Others may write a directory. What they write there of an object of ours, by a password that is not ours, does nothing to it.
#[test]
fn entries_of_strangers_do_nothing_to_objects() {
    const OURS: u64 = 0x1000;
    for mark in [Mark::Settled, Mark::Young, Mark::Doomed, Mark::Leaving, Mark::Unborn] {
        for shadowed in [false, true] {
            let mut model = Model::new(u32::MAX, u32::MAX);
            model.now.objects.extend([(OURS, true), (2 * OURS, true)]);
            model.now.clist.insert((OURS, OURS + 1));
            let mut foreign = entry("theirs", OURS);
            foreign.capability.password = 99;
            let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
            directory.insert_marked(&foreign, mark).unwrap();
            if shadowed && mark.is_hidden() {
                directory.insert(&entry("theirs", 2 * OURS)).unwrap();
            }
            let before = (model.now.objects.clone(), model.now.clist.clone());
            if !mark.is_hidden() {
                let refused = delete(&mut model, "theirs");
                assert_eq!(refused, Err(Failed::Directory(Error::Foreign)), "{mark:?}");
            }
            publish(&mut model, &entry("more", OURS * 3)).unwrap();
            delete(&mut model, "more").unwrap();
            recover(&mut model).unwrap();
            let after = (model.now.objects.clone(), model.now.clist.clone());
            assert_eq!(after, before, "{mark:?}, {shadowed}");
        }
    }
}

/// A deletion uses the entry that it has looked at, though somebody else changes it meanwhile.
#[test]
fn an_entry_that_changes_deletes_nothing_of_ours() {
    let [ours, theirs] = [0x1000, 0x2000].map(|address| Capability { address, password: 99 });
    for first in 0..2 {
        let mut model = Model::new(u32::MAX, u32::MAX);
        model.now.objects.extend([(ours.address, true), (theirs.address, true)]);
        model.now.clist.insert((ours.address, ours.address + 1));
        let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
        let flips = if first == 0 { [theirs, ours] } else { [ours, theirs] };
        let mut foreign = entry("theirs", flips[0].address);
        foreign.capability = flips[0];
        directory.insert(&foreign).unwrap();
        model.flips = Some(flips);
        let refused = delete(&mut model, "theirs");
        assert_eq!(refused, Err(Failed::Directory(Error::Foreign)));
        assert!(model.now.objects.contains_key(&ours.address));
    }
}

/// A capability that gives nothing does not come into the root Clist, and what is there of an object that was at the address before goes.
#[test]
fn a_capability_of_an_address_is_nothing_for_its_next_object() {
    const PLACE: u64 = 0x1000;
    let mut model = Model::new(u32::MAX, u32::MAX);
    model.now.objects.insert(PLACE, true);
    let mut foreign = entry("theirs", PLACE);
    foreign.capability.password = 99;
    let mut directory = Directory::open_mut(&mut model.now.directory).unwrap();
    directory.insert_marked(&foreign, Mark::Young).unwrap();
    recover(&mut model).unwrap();
    assert_eq!(model.now.clist, BTreeSet::new());
    model.now.clist.insert((PLACE, 99));
    model.now.objects.insert(PLACE, false);
    publish(&mut model, &entry("ours", PLACE)).unwrap();
    assert_eq!(model.now.clist, BTreeSet::from([(PLACE, PLACE + 1)]));
    assert_eq!(delete(&mut model, "theirs"), Err(Failed::Directory(Error::Foreign)));
}
