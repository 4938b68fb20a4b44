//! Repairs of damaged disks, with power cuts in the middle of them.
//!
//! A repair must say before what is lost; what it does not name is as it was, and the disk is sound afterwards. The power may fail at any of its
//! requests: then another repair has the state of before, or nothing left to do. A disk that a power cut alone has left needs none.

use super::driver::{Check, Driver, MEMORY, Shown, difference, show};
use super::model::{Object, Page, State};
use super::rot::judge_refusal;
use crate::disk::{CrashDisk, Fate};
use crate::lab::rot::Fault;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use store::{Finding, Loss, MountMode, ObjectRecord, PdxList, Plan, Step, Store};

/// The losses that plans have named.
#[derive(Default, Debug)]
struct Told {
    /// Pages of objects, from one to another.
    pages: Vec<(u64, u64, u64)>,
    bodies: BTreeSet<u64>,
    /// Ranges of addresses of which nothing is known.
    rows: Vec<(u64, u64)>,
    /// Whether something newer may have been there.
    older: bool,
    /// Pages that are left as they are, because the disk cannot read them now.
    left: Vec<(u64, u64)>,
    /// Snapshots that are gone, and whether all are.
    snapshots: BTreeSet<String>,
    all_snapshots: bool,
}

impl Told {
    fn add(&mut self, plan: &Plan) -> Check {
        self.older |= plan.report.tail.is_some();
        for step in &plan.steps {
            match *step {
                Step::GoBack { .. } | Step::GiveUp(Loss::Generation { .. } | Loss::Records { .. }) => self.older = true,
                Step::GiveUp(Loss::Pages { base, first, end }) | Step::Pages { base, first, end, .. } => {
                    self.pages.push((base, first, end));
                }
                Step::GiveUp(Loss::Object { base }) => self.rows.push((base, base + 1)),
                Step::Body { base, .. } => drop(self.bodies.insert(base)),
                Step::Rows { from, end, .. } => self.rows.push((from, end)),
                Step::Superblock { .. }
                | Step::Bitmap { .. }
                | Step::OldBitmap { .. }
                | Step::Mark { .. }
                | Step::Free { .. }
                | Step::Snapshot { .. }
                | Step::Snapshots { is_lost: false, .. } => {}
                // A page that the disk cannot read now.
                Step::Leave(Finding::Damaged { base, page, end, .. }) => {
                    self.pages.push((base, page, end));
                    self.left.push((base, page));
                }
                Step::SnapshotLost { name } => drop(self.snapshots.insert(name.to_string())),
                Step::Snapshots { is_lost: true, .. } => self.all_snapshots = true,
                Step::Leave(finding) => return Err(format!("{finding:?} is left")),
            }
        }
        Ok(())
    }

    fn has_page(&self, base: u64, page: u64) -> bool {
        self.pages
            .iter()
            .any(|&(object, first, end)| object == base && (first..end).contains(&page))
    }

    fn has_row(&self, base: u64) -> bool {
        self.rows.iter().any(|&(from, end)| (from..end).contains(&base))
    }

    /// Whether what is shown is the state, but for what was told.
    fn fits(&self, shown: &Shown, state: &State) -> bool {
        let shown = || shown.iter().filter(|(base, _)| !self.has_row(**base));
        let wanted = || state.iter().filter(|(base, _)| !self.has_row(**base));
        shown().count() == wanted().count()
            && shown()
                .zip(wanted())
                .all(|((base, (record, pages)), (wanted, object))| {
                    let found = |page: &u64| pages.get(page).copied().unwrap_or(Ok(Page::default()));
                    let right = |page: &u64| {
                        let contents = object.pages.get(page).copied().unwrap_or_default();
                        self.has_page(*base, *page) || found(page) == Ok(contents)
                    };
                    base == wanted
                        && (*record == object.record
                            || self.bodies.contains(base) && *record == without_body(&object.record))
                        && object.pages.keys().chain(pages.keys()).all(right)
                })
    }
}

fn without_body(record: &ObjectRecord) -> ObjectRecord {
    ObjectRecord {
        capabilities: Vec::new(),
        pdx: PdxList::default(),
        ..record.clone()
    }
}

/// A disk that a power cut has left needs no repair but of copies of superblocks.
pub(super) fn judge_sound(disk: CrashDisk) -> Check {
    let mut world = SimWorld::new(disk, MEMORY, Rng::new(5));
    let (store, plan) = Store::mount_for_repair(&mut world).map_err(|error| format!("no repair: {error:?}"))?;
    store.dismantle(&mut world);
    let is_copy = |step: &Step| matches!(step, Step::Superblock { .. });
    if !plan.steps.iter().all(is_copy) || world.disk.written != 0 {
        return Err(format!("a sound store would be repaired: {:?}", plan.steps));
    }
    Ok(())
}

impl Driver {
    /// Repairs a damaged disk, and judges what becomes of it. The first so many states are current.
    ///
    /// Tells whether it was repaired, and how often the power failed.
    pub(super) fn judge_repair(
        &self,
        disk: CrashDisk,
        faults: &[Fault],
        (states, current): (&[&State], usize),
        rng: &mut Rng,
    ) -> Check<(bool, u64)> {
        let mut failures = 0;
        let mut told = Told::default();
        let mut image = disk;
        loop {
            let cuts = rng.one_in(2);
            let Some((cut, left)) = repair(image, faults, &mut told, cuts, rng)? else {
                return Ok((false, failures));
            };
            image = left;
            if !cut {
                break;
            }
            failures += 1;
        }
        let may_be_older = told.older || faults.iter().any(|fault| fault.resembles_a_cut(self.journal));
        let states = &states[..if may_be_older { states.len() } else { current }];
        let mut world = SimWorld::new(image.crash(&[], rng.fork()), MEMORY, Rng::new(6));
        let mounted = Store::mount(&mut world, MountMode::ReadOnly);
        let (mut store, report) = mounted.map_err(|error| format!("repaired, {told:?}: {error:?}"))?;
        if !report.damage.is_empty() || !report.bad_superblocks.is_empty() || !report.losses.is_empty() {
            return Err(format!("repaired, {told:?}: {report:?}"));
        }
        let mut wrong = Vec::new();
        let ends: BTreeMap<u64, u64> = store.objects().map(|record| (record.base, record.pages)).collect();
        let mut find = |finding| match finding {
            // A plan names pages up to the end of the object; a lost node may have more.
            Finding::Lost { base, page, .. }
                if told.has_page(base, page) || ends.get(&base).is_some_and(|&end| page >= end) => {}
            // It may be rotten, too.
            Finding::Damaged { base, page, .. } if told.left.contains(&(base, page)) => {}
            other => wrong.push(other),
        };
        let verified = store.verify(&mut world, &mut find);
        verified.map_err(|error| format!("verify: {error:?}"))?;
        if !wrong.is_empty() {
            return Err(format!("repaired, {told:?}: {wrong:?}"));
        }
        let (shown, lost) = show(&mut store, &mut world, states)?;
        if !lost.is_empty() || !states.iter().any(|state| told.fits(&shown, state)) {
            let readable: State = shown
                .iter()
                .map(|(base, (record, pages))| {
                    let pages = pages.iter().filter_map(|(page, found)| Some((*page, found.ok()?)));
                    let (record, pages) = (record.clone(), pages.collect());
                    (*base, Object { record, pages })
                })
                .collect();
            let nearest: Vec<String> = states.iter().map(|state| difference(state, &readable)).collect();
            return Err(format!(
                "repaired, {told:?}: no state that ever was, lost {lost:x?}: {nearest:?}"
            ));
        }
        let there: Vec<_> = store.snapshots().collect();
        if let Some(one) = there.iter().find(|one| one.is_damaged) {
            return Err(format!("repaired, {told:?}: snapshot {} is damaged", one.name));
        }
        let is_gone =
            |text: &&String| !told.snapshots.contains(*text) && !there.iter().any(|one| one.name.to_string() == **text);
        if let Some(text) = self.certain_snapshots().find(is_gone)
            && !told.all_snapshots
            && !may_be_older
        {
            return Err(format!("repaired, {told:?}: there is no snapshot {text}"));
        }
        store.dismantle(&mut world);
        self.judge_snapshots(&image.crash(&[], rng.fork()), faults, false, rng)
            .map_err(|what| format!("repaired, {told:?}: {what}"))?;
        let mut world = SimWorld::new(image, MEMORY, Rng::new(7));
        let (store, plan) = Store::mount_for_repair(&mut world).map_err(|error| format!("again: {error:?}"))?;
        store.dismantle(&mut world);
        if plan.steps.is_empty() || !told.left.is_empty() {
            Ok((true, failures))
        } else {
            Err(format!("repaired, {told:?}: there is more to repair: {:?}", plan.steps))
        }
    }
}

/// Repairs a disk; gives what is stable then, and whether the power failed before the end. `None` if there is no repair, or nothing to do.
fn repair(
    disk: CrashDisk,
    faults: &[Fault],
    told: &mut Told,
    cuts: bool,
    rng: &mut Rng,
) -> Check<Option<(bool, CrashDisk)>> {
    let mut world = SimWorld::new(disk, MEMORY, rng.fork());
    let (mut store, plan) = match Store::mount_for_repair(&mut world) {
        Ok(mounted) => mounted,
        Err(error) => {
            return judge_refusal(error, faults)
                .map(|()| None)
                .map_err(|what| format!("repair: {what}"));
        }
    };
    if world.disk.written != 0 {
        return Err("a plan wrote".into());
    }
    let obstacle = plan.obstacle();
    if obstacle.is_none() {
        told.add(&plan)?;
    }
    if plan.is_empty() {
        store.dismantle(&mut world);
        return Ok(None);
    }
    if cuts {
        world.disk.set_fuse(rng.below(60));
    }
    let repaired = store.repair(&mut world, &plan);
    store.dismantle(&mut world);
    if world.memory.used() != 0 {
        return Err(format!("a repair leaked {} frames", world.memory.used()));
    }
    match (repaired, obstacle) {
        (Ok(()), None) => {}
        (Err(_), Some(_)) if world.disk.written == 0 => return Ok(None),
        (outcome, obstacle) => return Err(format!("repair: {outcome:?} with {obstacle:?}, {:?}", plan.steps)),
    }
    if let Some(blown) = world.disk.take_blown() {
        return Ok(Some((true, blown.crash(&blown.draw_fates(rng), rng.fork()))));
    }
    let lost = vec![Fate::Lost; world.disk.volatile_len()];
    Ok(Some((false, world.disk.crash(&lost, rng.fork()))))
}
