//! In which pages an object differs from the same object in a snapshot: for those who send the difference. Waits for the disk.
//!
//! Nodes of both maps are compared from the root down, and what both share is passed without a read: a change of one page costs the nodes above it.

use crate::blocking::read_block;
use crate::containers::{copied, push_reserved};
use crate::event::{MountError, Structure};
use crate::heap::with_room;
use crate::map::{Entry, FANOUT, LOST, MapKey, MapRoot, entry_in, reach};
use crate::store::Store;
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// A part of a map.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Tree {
    /// There is nothing.
    Nothing,
    /// The entry of a node, or of a page.
    Entry(Entry),
    /// The root of a map with fewer levels, at the left edge.
    Below(MapRoot),
}

/// One of the two maps.
struct Side<'a> {
    store: &'a Store,
    root: MapRoot,
    /// Whether nodes in its memory count.
    is_here: bool,
}

impl Side<'_> {
    fn top(&self, levels: u8) -> Tree {
        if self.root.levels < levels {
            Tree::Below(self.root)
        } else {
            Tree::of(self.root.entry)
        }
    }

    /// The node of an entry, if there is one.
    fn node(&self, world: &mut impl World, key: MapKey, tree: Tree) -> Result<Option<Vec<u8>>, MountError> {
        let Tree::Entry(entry) = tree else { return Ok(None) };
        if self.is_here
            && let Some(frame) = self.store.maps.frame(key)
        {
            return Ok(Some(copied(world.bytes(frame))?));
        }
        let damaged = MountError::Damaged(Structure::Map, entry.block);
        if !self.store.geometry.is_data(entry.block) {
            return Err(damaged);
        }
        // What is read wrong once is not blamed.
        for _ in 0..2 {
            match read_block(world, entry.block)? {
                Some(bytes) if self.store.checksums.fit(entry.checksum, entry.block, &bytes) => return Ok(Some(bytes)),
                _ => {}
            }
        }
        Err(damaged)
    }

    /// Whether a node in memory is newer than its entry says.
    fn has_changed(&self, key: MapKey) -> bool {
        self.is_here && self.store.maps.is_dirty_node(key)
    }
}

impl Tree {
    fn of(entry: Entry) -> Self {
        if entry.is_none() {
            Self::Nothing
        } else {
            Self::Entry(entry)
        }
    }

    /// What stands in a slot of a node of a level.
    fn child(self, node: Option<&Vec<u8>>, level: u8, slot: u64) -> Self {
        match self {
            Self::Below(root) if slot > 0 => {
                let _ = root;
                Self::Nothing
            }
            Self::Below(root) if root.levels + 1 == level => Self::of(root.entry),
            Self::Below(root) => Self::Below(root),
            Self::Nothing => Self::Nothing,
            Self::Entry(_) => {
                let bytes: Option<&[u8; BLOCK]> = node.and_then(|bytes| bytes.as_slice().try_into().ok());
                bytes.map_or(Self::Nothing, |bytes| Self::of(entry_in(bytes, slot)))
            }
        }
    }

    fn is_lost(self) -> bool {
        matches!(self, Self::Entry(entry) if entry.block == LOST)
    }
}

/// A walk through both maps.
struct Walk<'a> {
    base: u64,
    now: Side<'a>,
    before: Option<Side<'a>>,
    /// Whether changes stand beside the map, so that equal entries say nothing.
    all: bool,
    from: u64,
    end: u64,
    found: Vec<u64>,
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        self.found.len() == self.found.capacity()
    }

    fn go(
        &mut self,
        world: &mut impl World,
        (level, index): (u8, u64),
        (now, before): (Tree, Tree),
    ) -> Result<(), MountError> {
        let base = self.base;
        let key = MapKey { base, level, index };
        let first = index.saturating_mul(reach(level));
        let is_passed = first >= self.end || first.saturating_add(reach(level)) <= self.from;
        let is_nothing = now == Tree::Nothing && before == Tree::Nothing;
        let is_same = now == before && !self.all && !self.now.has_changed(key);
        if is_passed || is_nothing || is_same || self.is_over() {
            return Ok(());
        }
        // Of pages that are lost the first one says so when it is read.
        if level == 0 || now.is_lost() {
            push_reserved(&mut self.found, first.max(self.from));
            return Ok(());
        }
        let nodes = [
            self.now.node(world, key, now)?,
            match &self.before {
                Some(side) => side.node(world, key, before)?,
                None => None,
            },
        ];
        for slot in 0..FANOUT {
            let children = (
                now.child(nodes[0].as_ref(), level, slot),
                before.child(nodes[1].as_ref(), level, slot),
            );
            self.go(
                world,
                (level - 1, index.saturating_mul(FANOUT).saturating_add(slot)),
                children,
            )?;
        }
        Ok(())
    }
}

impl Store {
    /// The first pages from one on, in order and `most` at most, in which an object may differ from what it is in a snapshot of the same store that is mounted
    /// beside it; or without one, that are not all zero without limits. There may be some among them that do not differ.
    ///
    /// # Errors
    /// [`MountError`]: a map cannot be read.
    pub fn differing_pages(
        &self,
        world: &mut impl World,
        base: u64,
        before: Option<&Store>,
        (from, most): (u64, usize),
    ) -> Result<Vec<u64>, MountError> {
        let Some(row) = self.table.get(base) else {
            return Ok(Vec::new());
        };
        let row_before = before.and_then(|store| Some((store, store.table.get(base)?.map)));
        let before = row_before.map(|(store, root)| Side {
            store,
            root,
            is_here: false,
        });
        let changes = self.pending.by_object().get_ref(base);
        let mut walk = Walk {
            base,
            now: Side {
                store: self,
                root: row.map,
                is_here: true,
            },
            before,
            all: changes.is_some(),
            from,
            end: row.record.pages,
            found: with_room(most)?,
        };
        let levels = walk.before.as_ref().map_or(0, |side| side.root.levels);
        let levels = levels.max(row.map.levels);
        let tops = (
            walk.now.top(levels),
            walk.before.as_ref().map_or(Tree::Nothing, |side| side.top(levels)),
        );
        walk.go(world, (levels, 0), tops)?;
        let (is_over, end) = (walk.is_over(), walk.end);
        let mut found = walk.found;
        let Some(changes) = changes else {
            return Ok(found);
        };
        // Limits beside the map are of pages that may have no entry in it.
        let last = found.last().copied().filter(|_| is_over).unwrap_or(u64::MAX);
        let limits = changes.flags.pairs().map(|(page, _)| page);
        let limits = limits.filter(|&page| (from..end).contains(&page) && page <= last);
        let mut all = with_room(found.len() + changes.flags.count())?;
        found
            .drain(..)
            .chain(limits)
            .for_each(|page| push_reserved(&mut all, page));
        all.sort_unstable();
        all.dedup();
        all.truncate(most);
        Ok(all)
    }
}
