//! Work of checkpoints and syncs on page maps: make pending changes, take maps down, set entries.

use crate::checkpoint::Step;
use crate::event::{DirtyPage, Failure};
use crate::map::{Discard, Entry, MISSING_MAX, MapKey, MapRoot, NODE_ENTRIES, Path};
use crate::pending::MapChanges;
use crate::store::{COST_FREE, COST_READ, OnDamage, Store};
use crate::world::World;
use crate::writing::COST_NODE;

/// How far the pending changes are made in the maps.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub(crate) struct Settling {
    /// The object.
    base: u64,
    /// Its ranges that read as zero, and its limits, that begin before these pages are made.
    zeroed: u64,
    flags: u64,
}

/// Makes the pending changes in the maps, as far as the budget reaches, and asks for so many nodes at once.
pub(crate) fn settle(
    store: &mut Store,
    world: &mut impl World,
    at: &mut Settling,
    asks: usize,
) -> Result<Step, Failure> {
    while let Some(base) = store.settling.first_key() {
        if !store.may_go_on(COST_READ) {
            return Ok(Step::Waiting);
        }
        if at.base != base {
            *at = Settling {
                base,
                ..Settling::default()
            };
        }
        let Some(mut root) = store.table.get(base).map(|row| row.map) else {
            store.spend(COST_READ);
            let mut gone = store.settling.remove(base).unwrap_or_default();
            if store.drop_some(&mut gone) {
                store.settling.insert(base, gone)?;
            }
            continue;
        };
        let changes = store.settling.get_mut(base).map(core::mem::take).unwrap_or_default();
        let settled = settle_object(store, world, &mut root, &changes, (at, asks));
        store.table.set_map(base, root);
        // Behind the object's changes: an event that can make only one of them makes that one.
        store.spend(COST_READ);
        if !matches!(settled, Ok(Step::Complete)) {
            if let Some(place) = store.settling.get_mut(base) {
                *place = changes;
            }
            return settled;
        }
        store.settling.remove(base);
        store.settled.insert(base, changes)?;
        *at = Settling::default();
    }
    Ok(Step::Complete)
}

fn settle_object(
    store: &mut Store,
    world: &mut impl World,
    root: &mut MapRoot,
    changes: &MapChanges,
    (at, asks): (&mut Settling, usize),
) -> Result<Step, Failure> {
    let base = at.base;
    while let Some((start, end)) = changes.zeroed.first_in(at.zeroed..u64::MAX) {
        at.zeroed = start;
        if !discard(store, world, (base, root), (start, end), asks)? {
            return Ok(Step::Waiting);
        }
        at.zeroed = start + 1;
    }
    while let Some((page, flags)) = changes.flags.first_in(at.flags..u64::MAX) {
        at.flags = page;
        if !store.may_go_on(COST_READ) {
            return Ok(Step::Waiting);
        }
        store.spend(COST_READ);
        let nodes = store.maps.len();
        let path = store.prepare(world, base, root, page);
        store.spend(COST_NODE * (store.maps.len() - nodes) as u64);
        match path {
            Path::NoMemory => return Err(Failure::Memory),
            Path::Missing(missing) => {
                store.load_for_job(world, missing)?;
                return Ok(Step::Waiting);
            }
            Path::Ready => {
                let old = store.maps.set(world, base, root, page, Entry::NONE);
                store.maps.set(world, base, root, page, Entry { flags, ..old });
            }
        }
        at.flags = page + 1;
    }
    Ok(Step::Complete)
}

/// Drops a range of pages, as far as the budget reaches; `false` if that is not all, or nodes must be read first. It asks for so many of them
/// at once.
fn discard(
    store: &mut Store,
    world: &mut impl World,
    (base, root): (u64, &mut MapRoot),
    range: (u64, u64),
    asks: usize,
) -> Result<bool, Failure> {
    if !store.may_go_on(COST_DISCARD) {
        return Ok(false);
    }
    let left = store.allowance() / COST_FREE;
    let mut pass = Discard {
        maps: &mut store.maps,
        pages: world,
        base,
        range,
        allocation: &mut store.allocation,
        left,
        dropped: 0,
        nodes: 0,
        stopped: false,
        damaged: None,
        missing: [None; MISSING_MAX],
    };
    pass.run(root);
    let (missing, stopped, damaged) = (pass.missing, pass.stopped, pass.damaged);
    let cost = COST_FREE * (1 + pass.dropped + NODE_ENTRIES * pass.nodes);
    store.spend(cost);
    if let Some((key, block)) = damaged {
        store.note_damage(key, block);
    }
    if stopped {
        store.stop();
        return Ok(false);
    }
    let complete = missing[0].is_none();
    for (at, node) in missing.into_iter().flatten().take(asks).enumerate() {
        store.spend(COST_READ);
        match store.load_for_job(world, node) {
            // Those that are on their way are enough to go on.
            Err(Failure::Memory) if at > 0 => break,
            other => other?,
        }
    }
    Ok(complete)
}

/// Takes down the maps of deleted objects, as far as the budget reaches, and asks for so many nodes at once.
pub(crate) fn take_down(store: &mut Store, world: &mut impl World, asks: usize) -> Result<Step, Failure> {
    // Nothing is lost that anybody wants.
    let on_damage = core::mem::replace(&mut store.on_damage, OnDamage::GoOn);
    let step = take_down_some(store, world, asks);
    store.on_damage = on_damage;
    step
}

fn take_down_some(store: &mut Store, world: &mut impl World, asks: usize) -> Result<Step, Failure> {
    while let Some((base, &(mut root))) = store.doomed.from(0) {
        let complete = discard(store, world, (base, &mut root), (0, u64::MAX), asks);
        if complete != Ok(true) {
            if let Some(place) = store.doomed.get_mut(base) {
                *place = root;
            }
            return complete.map(|_| Step::Waiting);
        }
        store.doomed.remove(base);
    }
    store.doomed.release(0);
    Ok(Step::Complete)
}

/// The least cost of dropping a range of pages.
const COST_DISCARD: u64 = COST_FREE * 2 * NODE_ENTRIES;

impl Store {
    /// Changes that were made are durable: drops some of them; tells whether there were any.
    pub(crate) fn forget_settled(&mut self) -> bool {
        let Some((base, mut made)) = self.settled.pop_first() else {
            return false;
        };
        if self.drop_some(&mut made) {
            // It stood there a moment ago.
            let _ = self.settled.insert(base, made);
        }
        true
    }

    /// Makes the path to a page ready to be written, at need from the reserve.
    pub(crate) fn prepare(&mut self, world: &mut impl World, base: u64, root: &mut MapRoot, page: u64) -> Path {
        self.maps.prepare(&mut self.io.lender(world), base, root, page)
    }

    /// Whether the path of a page is the one that was prepared last: its entry is set without a search then.
    pub(crate) fn is_path_known(&self, base: u64, page: u64) -> bool {
        let row = self.table.get(base);
        row.is_some_and(|row| self.maps.is_prepared(base, &row.map, page))
    }

    /// Sets the entry of a page whose path is prepared; gives the old one.
    pub(crate) fn set_entry(&mut self, world: &mut impl World, base: u64, page: u64, entry: Entry) -> Entry {
        self.set_node_entry(
            world,
            MapKey {
                base,
                level: 0,
                index: page,
            },
            entry,
        )
    }

    /// The same for a node. It may be one of a deleted object: a checkpoint that is short of memory writes what it has taken down so far, and
    /// goes on from there.
    pub(crate) fn set_node_entry(&mut self, world: &mut impl World, key: MapKey, entry: Entry) -> Entry {
        if let Some(doomed) = self.doomed.get_mut(key.base) {
            return self.maps.set_child(world, doomed, key, entry);
        }
        let Some(mut root) = self.table.get(key.base).map(|row| row.map) else {
            return Entry::NONE;
        };
        let before = root;
        let old = self.maps.set_child(world, &mut root, key, entry);
        if root != before {
            self.table.set_map(key.base, root);
        }
        old
    }

    /// Gives the frame of a dirty page back.
    pub(crate) fn give_back(&mut self, page: &DirtyPage) {
        self.events.tell_page(page);
    }
}

#[cfg(test)]
mod tests;
