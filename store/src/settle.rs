//! What checkpoints and syncs do to page maps: make pending changes, take maps down, set entries.

use crate::checkpoint::Step;
use crate::event::{DirtyPage, Event, Failure};
use crate::map::{Discard, Entry, MapKey, MapRoot, Path, reach};
use crate::pending::MapChanges;
use crate::store::Store;
use crate::world::World;
use alloc::vec::Vec;

/// Makes the pending changes in the maps.
pub(crate) fn settle(store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
    let bases: Vec<u64> = store.settling.keys().copied().collect();
    let mut waiting = false;
    for base in bases {
        let Some(mut root) = store.table.get(base).map(|row| row.map) else {
            store.settling.remove(&base);
            continue;
        };
        let Some(changes) = store.settling.remove(&base) else {
            continue;
        };
        let settled = settle_object(store, world, base, &mut root, &changes);
        store.table.set_map(base, root);
        if matches!(settled, Ok(Step::Complete)) {
            store.settled.push((base, changes));
        } else {
            store.settling.insert(base, changes);
            settled?;
            waiting = true;
        }
    }
    Ok(if waiting { Step::Waiting } else { Step::Complete })
}

fn settle_object(
    store: &mut Store,
    world: &mut impl World,
    base: u64,
    root: &mut MapRoot,
    changes: &MapChanges,
) -> Result<Step, Failure> {
    let mut waiting = false;
    for (&start, &end) in &changes.zeroed {
        waiting |= !discard(store, world, base, root, (start, end))?;
    }
    for (&page, &flags) in &changes.flags {
        match store.maps.prepare(world, base, root, page) {
            Path::NoMemory => return Err(Failure::Memory),
            Path::Missing(missing) => {
                store.load_for_job(world, missing)?;
                waiting = true;
            }
            Path::Ready => {
                let old = store.maps.set(world, base, root, page, Entry::NONE);
                store.maps.set(world, base, root, page, Entry { flags, ..old });
            }
        }
    }
    Ok(if waiting { Step::Waiting } else { Step::Complete })
}

/// Drops a range of pages; `false` if nodes must be read first.
fn discard(
    store: &mut Store,
    world: &mut impl World,
    base: u64,
    root: &mut MapRoot,
    range: (u64, u64),
) -> Result<bool, Failure> {
    let allocation = &mut store.allocation;
    let mut pass = Discard {
        maps: &mut store.maps,
        pages: world,
        base,
        range,
        free: |block| allocation.free(block),
        missing: Vec::new(),
    };
    pass.run(root);
    let missing = pass.missing;
    let complete = missing.is_empty();
    for node in missing {
        store.load_for_job(world, node)?;
    }
    Ok(complete)
}

/// Takes down the maps of deleted objects.
pub(crate) fn take_down(store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
    let bases: Vec<u64> = store.doomed.keys().copied().collect();
    for base in bases {
        let Some(mut root) = store.doomed.remove(&base) else {
            continue;
        };
        let complete = discard(store, world, base, &mut root, (0, u64::MAX));
        if complete != Ok(true) {
            store.doomed.insert(base, root);
            complete?;
        }
    }
    Ok(if store.doomed.is_empty() {
        Step::Complete
    } else {
        Step::Waiting
    })
}

impl Store {
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

    pub(crate) fn set_node_entry(&mut self, world: &mut impl World, key: MapKey, entry: Entry) -> Entry {
        let Some(mut root) = self.table.get(key.base).map(|row| row.map) else {
            return Entry::NONE;
        };
        let old = self.maps.set_child(world, &mut root, key, entry);
        self.table.set_map(key.base, root);
        old
    }

    /// Makes the maps reach all these pages, as far as they lie inside their objects.
    pub(crate) fn grow_maps(
        &mut self,
        world: &mut impl World,
        pages: impl Iterator<Item = (u64, u64)>,
    ) -> Result<(), Failure> {
        // Neighbours in the list are of one object, whose map mostly reaches all of them.
        let mut reached = (0, 0);
        for (base, page) in pages {
            if base == reached.0 && page < reached.1 {
                continue;
            }
            let Some(row) = self.table.get(base) else { continue };
            reached = (base, reach(row.map.levels));
            if page < reached.1 {
                continue;
            }
            let mut root = row.map;
            let grown = self.maps.grow_to(world, base, &mut root, page);
            self.table.set_map(base, root);
            if !grown {
                return Err(Failure::Memory);
            }
        }
        Ok(())
    }

    /// Gives the frame of a dirty page back.
    pub(crate) fn give_back(&mut self, page: &DirtyPage) {
        self.events.push_back(written(page));
    }
}

/// The event that gives a frame back.
pub(crate) fn written(page: &DirtyPage) -> Event {
    Event::PageWritten {
        base: page.base,
        page: page.page,
        frame: page.frame,
    }
}
