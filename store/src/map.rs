//! Page maps: per object a tree of 256-way nodes from page numbers to blocks.
//!
//! An entry has 16 bytes {block 48 bits, flags 16 bits, keyed checksum}. The root entry stands in the
//! object table; a map of `levels` zero *is* that entry, so an object of one page needs no node.
//! The tree grows upwards when a page beyond its reach is written; untouched parts have no nodes.
//!
//! Nodes lie in frames in their disk format and are known by (object, level, index), whatever block
//! they come from. A node is read when something needs it. A node that is dirty has dirty ancestors,
//! for writing it anywhere else changes its parent's entry.

use crate::allocation::Allocation;
use crate::bytes::{set_word, word};
use crate::containers::Map;
use crate::event::PageFlags;
use crate::heap::NoHeap;
use crate::world::{BLOCK, Frame, Pages};

/// Bits of a page number that one level resolves.
const FANOUT_BITS: u32 = 8;
/// Entries of a node.
pub const FANOUT: u64 = 1 << FANOUT_BITS;
/// Levels that cover the largest object of any address width.
pub(crate) const LEVELS_MAX: u8 = 6;
/// Stands for a block that is lost because the node that named it is damaged.
pub(crate) const LOST: u64 = (1 << 48) - 1;

/// One entry.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Entry {
    /// The block, zero for none, [`LOST`] for one that is damaged beyond knowing.
    pub(crate) block: u64,
    pub(crate) flags: PageFlags,
    pub(crate) checksum: u64,
}

impl Entry {
    pub(crate) const NONE: Self = Self {
        block: 0,
        flags: PageFlags::empty(),
        checksum: 0,
    };
    pub(crate) const LOST: Self = Self {
        block: LOST,
        flags: PageFlags::empty(),
        checksum: 0,
    };

    pub(crate) fn is_none(&self) -> bool {
        self.block == 0 && self.flags.is_empty()
    }

    /// The two words on the disk.
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.block | u64::from(self.flags.bits()) << 48, self.checksum]
    }

    /// From the two words on the disk.
    pub(crate) fn from_words([low, checksum]: [u64; 2]) -> Self {
        Self {
            block: low & LOST,
            flags: PageFlags::from_bits_retain((low >> 48) as u16),
            checksum,
        }
    }
}

/// The root of a map.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct MapRoot {
    pub(crate) levels: u8,
    pub(crate) entry: Entry,
}

/// Names a node: the object, the level (1 is just above the pages) and the place within the level.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(crate) struct MapKey {
    pub(crate) base: u64,
    pub(crate) level: u8,
    pub(crate) index: u64,
}

impl MapKey {
    /// No node has this one or one above it.
    const END: Self = Self {
        base: u64::MAX,
        level: u8::MAX,
        index: u64::MAX,
    };

    /// The first key behind this one.
    fn next(self) -> Self {
        Self {
            index: self.index.saturating_add(1),
            ..self
        }
    }
}

/// Pages that a map of `levels` can hold.
pub(crate) fn reach(levels: u8) -> u64 {
    1_u64.checked_shl(FANOUT_BITS * u32::from(levels)).unwrap_or(u64::MAX)
}

/// The first page below a node.
pub(crate) fn first_page(key: MapKey) -> u64 {
    key.index.saturating_mul(reach(key.level))
}

/// Levels that the map of an object of `pages` has at most: so many nodes stand above a page without neighbours. None stand above a single page.
pub fn levels_for(pages: u64) -> u8 {
    (0..LEVELS_MAX)
        .find(|&levels| pages <= reach(levels))
        .unwrap_or(LEVELS_MAX)
}

fn index_at(page: u64, level: u8) -> u64 {
    page.checked_shr(FANOUT_BITS * u32::from(level)).unwrap_or(0)
}

/// The entry in `slot` of a node.
pub(crate) fn entry_in(bytes: &[u8; BLOCK], slot: u64) -> Entry {
    let at = (slot % FANOUT) as usize * 16;
    Entry::from_words([word(bytes, at), word(bytes, at + 8)])
}

/// The first slot of a node from one to another that has an entry.
fn next_entry(bytes: &[u8; BLOCK], first: u64, last: u64) -> Option<u64> {
    // The first word of an entry is zero where there is none.
    (first..=last).find(|slot| word(bytes, (slot % FANOUT) as usize * 16) != 0)
}

pub(crate) fn put_entry(bytes: &mut [u8; BLOCK], slot: u64, entry: Entry) {
    let at = (slot % FANOUT) as usize * 16;
    let [low, high] = entry.to_words();
    set_word(bytes, at, low);
    set_word(bytes, at + 8, high);
}

/// A node that must be read before something can go on.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Missing {
    pub(crate) key: MapKey,
    pub(crate) entry: Entry,
}

/// The end of a walk.
pub(crate) enum Walk {
    /// At the page's entry, which may be none.
    Entry(Entry),
    /// At a node that is not in memory.
    Missing(Missing),
    /// At a node that is lost.
    Lost,
}

/// Whether a path is ready to be written.
pub(crate) enum Path {
    /// All nodes are in memory and dirty.
    Ready,
    /// A node must be read first.
    Missing(Missing),
    /// No frame for a new node, or no heap to note it.
    NoMemory,
}

/// The nodes in memory, of all objects.
#[derive(Default)]
pub(crate) struct Maps {
    nodes: Map<MapKey, Frame>,
    /// There is room for all nodes.
    dirty: Map<MapKey, ()>,
    /// Nodes that were read and that those who asked for them have not seen yet: they stay, however short memory is, or they
    /// would have to be read again for ever. There is room for all nodes.
    arrived: Map<MapKey, ()>,
    /// The place of the last look for a clean node, which go downwards, and the nodes that were passed since one was found.
    hand: Option<MapKey>,
    passed: usize,
    prepared: Option<Prepared>,
}

/// The path that was prepared last: as long as no node goes and none is clean, it is ready for the neighbours of the page, too.
#[derive(Copy, Clone)]
struct Prepared {
    /// Its lowest node, and the levels of the map.
    lowest: MapKey,
    levels: u8,
    /// The frame of that node; none in a map without nodes.
    frame: Option<Frame>,
}

/// Nodes that there is always room for: more than the reserve has frames.
const NODES_MIN: usize = 64;

/// The result of a look for a map node that may go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// One went.
    Dropped,
    /// The one that was looked at stays.
    Passed,
    /// All were looked at since the last one went.
    Over,
}

impl Maps {
    /// Nodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.nodes.count()
    }

    /// Nodes that the next checkpoint must write.
    pub(crate) fn dirty_len(&self) -> usize {
        self.dirty.count()
    }

    /// Whether the next checkpoint must write nodes of an object.
    pub(crate) fn is_dirty(&self, base: u64) -> bool {
        let first = MapKey {
            base,
            level: 0,
            index: 0,
        };
        self.dirty.from(first).is_some_and(|(key, ())| key.base == base)
    }

    /// Whether it must write nodes of an object whose base is in a range.
    pub(crate) fn is_dirty_among(&self, (from, end): (u64, u64)) -> bool {
        let first = MapKey {
            base: from,
            level: 0,
            index: 0,
        };
        self.dirty.from(first).is_some_and(|(key, ())| key.base < end)
    }

    /// Whether the next generation writes a node.
    pub(crate) fn is_dirty_node(&self, key: MapKey) -> bool {
        self.dirty.has(key)
    }

    /// The next dirty node behind this one. All of them in turn are children before parents, also where writing a child makes
    /// its parent dirty.
    pub(crate) fn next_dirty(&self, behind: Option<MapKey>) -> Option<MapKey> {
        let Some(behind) = behind else {
            return self.dirty.first_key();
        };
        self.dirty.from(behind.next()).map(|(key, ())| key)
    }

    /// Everything dirty is written: takes the mark off some nodes; tells whether there were any.
    pub(crate) fn clean_some(&mut self) -> bool {
        self.prepared = None;
        self.dirty.clear_some()
    }

    pub(crate) fn contains(&self, key: MapKey) -> bool {
        self.nodes.has(key)
    }

    pub(crate) fn frame(&self, key: MapKey) -> Option<Frame> {
        self.nodes.get(key)
    }

    /// The first node in memory from one to another.
    fn first_between(&self, first: MapKey, last: MapKey) -> Option<MapKey> {
        self.nodes.first_in(first..last.next()).map(|(key, _)| key)
    }

    /// Finds heap for one node more, beside those that there is always room for.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn expect(&mut self) -> Result<(), NoHeap> {
        let nodes = (self.nodes.count() + 1).max(NODES_MIN);
        self.nodes.reserve(nodes)?;
        self.dirty.reserve(nodes)?;
        self.arrived.reserve(nodes)?;
        Ok(())
    }

    /// Takes in a node; there must be [room](Maps::expect).
    fn insert(&mut self, key: MapKey, frame: Frame) {
        let noted = self.nodes.insert(key, frame);
        debug_assert!(noted.is_ok(), "room was made");
    }

    fn mark_dirty(&mut self, key: MapKey) {
        let noted = self.dirty.insert(key, ());
        debug_assert!(noted.is_ok(), "there is room for all nodes");
    }

    /// A frame for a node, and room for it.
    fn fresh(&mut self, pages: &mut impl Pages) -> Option<Frame> {
        self.expect().ok()?;
        pages.alloc()
    }

    /// Takes in a node that was read for somebody; there must be [room](Maps::expect). It stays until [`Maps::release_arrived`].
    pub(crate) fn insert_arrived(&mut self, key: MapKey, frame: Frame) {
        self.insert(key, frame);
        let _ = self.arrived.insert(key, ());
    }

    /// The job that asked for nodes has had its turn.
    pub(crate) fn release_arrived(&mut self) {
        self.arrived.clear();
    }

    /// Makes a node whose children are all lost, in place of a damaged one; there must be [room](Maps::expect).
    pub(crate) fn insert_lost(&mut self, pages: &mut impl Pages, key: MapKey, end: u64, frame: Frame) {
        let bytes = pages.bytes_mut(frame);
        let first = |slot| first_page(key).saturating_add(reach(key.level - 1).saturating_mul(slot));
        for slot in 0..FANOUT {
            let entry = if slot == 0 || first(slot) < end {
                Entry::LOST
            } else {
                Entry::NONE
            };
            put_entry(bytes, slot, entry);
        }
        self.insert(key, frame);
    }

    /// Looks at one node, the next one below that of the last look, and drops it if it is clean.
    pub(crate) fn shrink(&mut self, pages: &mut impl Pages) -> Look {
        let below = |end| self.nodes.last_below(end).map(|(key, _)| key);
        let next = self.hand.and_then(below).or_else(|| below(MapKey::END));
        // Where all are dirty, none need be looked at.
        let may_drop = self.passed < self.nodes.count() && self.dirty.count() < self.nodes.count();
        let Some(key) = next.filter(|_| may_drop) else {
            self.passed = 0;
            return Look::Over;
        };
        self.hand = Some(key);
        if self.dirty.has(key) || self.arrived.has(key) {
            self.passed += 1;
            return Look::Passed;
        }
        self.passed = 0;
        self.remove(pages, key);
        self.trim();
        Look::Dropped
    }

    /// Gives up the last node, dirty or not, or the last one below another, unless somebody waits for it; tells which it was. From the end on, for there
    /// it costs the same however many there are.
    pub(crate) fn give_up(&mut self, pages: &mut impl Pages, below: Option<MapKey>) -> Option<MapKey> {
        let (key, _) = self.nodes.last_below(below.unwrap_or(MapKey::END))?;
        if !self.arrived.has(key) {
            self.remove(pages, key);
            self.trim();
        }
        Some(key)
    }

    /// Gives heap back that no node needs.
    fn trim(&mut self) {
        let nodes = self.nodes.count().max(NODES_MIN);
        self.nodes.release(nodes);
        self.dirty.release(nodes);
        self.arrived.release(nodes);
    }

    /// Gives some heap back; whether there was any.
    pub(crate) fn give_back(&mut self) -> bool {
        self.nodes.give_back() || self.dirty.give_back() || self.arrived.give_back()
    }

    fn remove(&mut self, pages: &mut impl Pages, key: MapKey) {
        self.prepared = None;
        self.dirty.remove(key);
        self.arrived.remove(key);
        if let Some(frame) = self.nodes.remove(key) {
            pages.free(frame);
        }
    }

    /// Gives all frames back.
    pub(crate) fn clear(&mut self, pages: &mut impl Pages) {
        for (_, frame) in core::mem::take(self).nodes.iter() {
            pages.free(frame);
        }
    }

    /// From the root to the entry of `page`.
    pub(crate) fn walk(&self, pages: &impl Pages, base: u64, root: &MapRoot, page: u64) -> Walk {
        if page >= reach(root.levels) {
            return Walk::Entry(Entry::NONE);
        }
        let mut entry = root.entry;
        for level in (1..=root.levels).rev() {
            let key = MapKey {
                base,
                level,
                index: index_at(page, level),
            };
            match self.nodes.get(key) {
                Some(frame) => entry = entry_in(pages.bytes(frame), index_at(page, level - 1)),
                None if entry.block == LOST => return Walk::Lost,
                None if entry.block == 0 => return Walk::Entry(Entry::NONE),
                None => return Walk::Missing(Missing { key, entry }),
            }
        }
        if entry.block == LOST {
            Walk::Lost
        } else {
            Walk::Entry(entry)
        }
    }

    /// The entries of the pages right behind `page` that stand in the same node, if that is in memory and is the last one of its path.
    pub(crate) fn entries_behind<'a, P: Pages>(
        &self,
        pages: &'a P,
        base: u64,
        root: &MapRoot,
        page: u64,
    ) -> impl Iterator<Item = Entry> + use<'a, P> {
        let key = MapKey {
            base,
            level: 1,
            index: index_at(page, 1),
        };
        let frame = self.nodes.get(key).filter(|_| page < reach(root.levels));
        let bytes = frame.map(|frame| pages.bytes(frame));
        let slots = page % FANOUT + 1..FANOUT;
        bytes
            .into_iter()
            .flat_map(move |bytes| slots.clone().map(move |slot| entry_in(bytes, slot)))
    }

    /// Grows the tree until it reaches `page`; `false` if there is no frame for a node. To be done
    /// for all pages of a job before the first path is prepared, for growing moves paths.
    pub(crate) fn grow_to(&mut self, pages: &mut impl Pages, base: u64, root: &mut MapRoot, page: u64) -> bool {
        while page >= reach(root.levels) {
            if !self.grow(pages, base, root) {
                return false;
            }
        }
        true
    }

    /// Makes the path to `page` ready to be written: makes nodes, marks them dirty.
    pub(crate) fn prepare(&mut self, pages: &mut impl Pages, base: u64, root: &mut MapRoot, page: u64) -> Path {
        let lowest = MapKey {
            base,
            level: 1,
            index: index_at(page, 1),
        };
        if self.is_prepared(base, root, page) {
            return Path::Ready;
        }
        if !self.grow_to(pages, base, root, page) {
            return Path::NoMemory;
        }
        let path = self.prepare_down_to(pages, base, root, (page, 1));
        if matches!(path, Path::Ready) {
            self.prepared = Some(Prepared {
                lowest,
                levels: root.levels,
                frame: self.frame(lowest),
            });
        }
        path
    }

    /// Whether the path of a page was prepared last.
    pub(crate) fn is_prepared(&self, base: u64, root: &MapRoot, page: u64) -> bool {
        let lowest = MapKey {
            base,
            level: 1,
            index: index_at(page, 1),
        };
        page < reach(root.levels) && self.prepared_for(lowest, root).is_some()
    }

    /// The path that was prepared last, if it is that to a node.
    #[inline]
    fn prepared_for(&self, lowest: MapKey, root: &MapRoot) -> Option<Prepared> {
        (self.prepared).filter(|prepared| prepared.lowest == lowest && prepared.levels == root.levels)
    }

    /// The same for the part of the path that stands on a level and above. The map reaches the page.
    pub(crate) fn prepare_down_to(
        &mut self,
        pages: &mut impl Pages,
        base: u64,
        root: &MapRoot,
        (page, lowest): (u64, u8),
    ) -> Path {
        let mut entry = root.entry;
        for level in (lowest..=root.levels).rev() {
            let key = MapKey {
                base,
                level,
                index: index_at(page, level),
            };
            if !self.contains(key) {
                if entry.block != 0 && entry.block != LOST {
                    return Path::Missing(Missing { key, entry });
                }
                let Some(frame) = self.fresh(pages) else {
                    return Path::NoMemory;
                };
                if entry.block == LOST {
                    self.insert_lost(pages, key, u64::MAX, frame);
                } else {
                    pages.bytes_mut(frame).fill(0);
                    self.insert(key, frame);
                }
            }
            self.mark_dirty(key);
            entry = self.nodes.get(key).map_or(Entry::NONE, |frame| {
                entry_in(pages.bytes(frame), index_at(page, level - 1))
            });
        }
        Path::Ready
    }

    /// Whether a map has nothing yet, not even in memory.
    pub(crate) fn is_blank(&self, base: u64, root: &MapRoot) -> bool {
        let top = MapKey {
            base,
            level: root.levels,
            index: 0,
        };
        root.entry.is_none() && !self.contains(top)
    }

    /// Puts one level on top; `false` if there is no frame for its node.
    pub(crate) fn grow(&mut self, pages: &mut impl Pages, base: u64, root: &mut MapRoot) -> bool {
        if !self.is_blank(base, root) {
            let Some(frame) = self.fresh(pages) else { return false };
            let bytes = pages.bytes_mut(frame);
            bytes.fill(0);
            put_entry(bytes, 0, root.entry);
            let key = MapKey {
                base,
                level: root.levels + 1,
                index: 0,
            };
            self.insert(key, frame);
            self.mark_dirty(key);
            root.entry = Entry::NONE;
        }
        root.levels += 1;
        true
    }

    /// Sets the entry of a page whose path is prepared; gives the old one.
    pub(crate) fn set(
        &mut self,
        pages: &mut impl Pages,
        base: u64,
        root: &mut MapRoot,
        page: u64,
        entry: Entry,
    ) -> Entry {
        self.set_child(
            pages,
            root,
            MapKey {
                base,
                level: 0,
                index: page,
            },
            entry,
        )
    }

    /// Sets the parent's entry for a node (or page, level 0); gives the old one.
    pub(crate) fn set_child(
        &mut self,
        pages: &mut impl Pages,
        root: &mut MapRoot,
        child: MapKey,
        entry: Entry,
    ) -> Entry {
        if child.level >= root.levels {
            return core::mem::replace(&mut root.entry, entry);
        }
        let parent = MapKey {
            base: child.base,
            level: child.level + 1,
            index: child.index >> FANOUT_BITS,
        };
        // A page's neighbour was there a moment ago, mostly.
        let prepared = self.prepared_for(parent, root);
        let frame = if let Some(frame) = prepared.and_then(|prepared| prepared.frame) {
            frame
        } else {
            let Some(frame) = self.nodes.get(parent) else {
                return Entry::NONE;
            };
            self.mark_dirty(parent);
            frame
        };
        let bytes = pages.bytes_mut(frame);
        let old = entry_in(bytes, child.index);
        put_entry(bytes, child.index, entry);
        old
    }
}

/// A pass that drops a range of pages.
pub(crate) struct Discard<'a, P: Pages> {
    pub(crate) maps: &'a mut Maps,
    pub(crate) pages: &'a mut P,
    pub(crate) base: u64,
    /// First page and one past the last.
    pub(crate) range: (u64, u64),
    /// Where blocks are set free that are no longer reached.
    pub(crate) allocation: &'a mut Allocation,
    /// Entries that may still be dropped; with none left the pass stops. One is dropped in any case.
    pub(crate) left: u64,
    /// Entries and nodes dropped, and nodes looked through.
    pub(crate) dropped: u64,
    pub(crate) nodes: u64,
    /// Whether it stopped.
    pub(crate) stopped: bool,
    /// The block of a node that cannot be this object's alone, for it is free or no data.
    pub(crate) damaged: Option<(MapKey, u64)>,
    /// Nodes that must be read before the pass can be complete.
    pub(crate) missing: [Option<Missing>; MISSING_MAX],
}

/// Nodes one pass asks for.
pub(crate) const MISSING_MAX: usize = 16;
/// Looking through a node costs as much as dropping so many entries.
pub(crate) const NODE_ENTRIES: u64 = 16;

impl<P: Pages> Discard<'_, P> {
    /// Drops what can be dropped now. Complete if nothing is missing and it did not stop; otherwise to be run again, when
    /// what is missing has been read. Dropped entries stay dropped, so every run gets further.
    pub(crate) fn run(&mut self, root: &mut MapRoot) {
        let top = MapKey {
            base: self.base,
            level: root.levels,
            index: 0,
        };
        if let Some(entry) = self.below(top, root.entry) {
            root.entry = entry;
        }
        if root.entry.is_none() && !self.maps.contains(top) {
            root.levels = 0;
        }
    }

    /// Handles what `entry` at `key` leads to; gives the new entry if the parent must change.
    fn below(&mut self, key: MapKey, entry: Entry) -> Option<Entry> {
        if key.level == 0 {
            let drop = (self.range.0..self.range.1).contains(&key.index) && !entry.is_none();
            if drop && !self.may_drop() {
                return None;
            }
            if drop {
                self.allocation.free(entry.block);
            }
            return drop.then_some(Entry::NONE);
        }
        let Some(frame) = self.maps.frame(key) else {
            if entry.is_none() {
                return None;
            }
            let is_known = entry.block != 0 && entry.block != LOST;
            if self.covers(key) && !self.allocation.is_used(entry.block) {
                // There is nothing beneath, or nothing is known of it: only the entry can be dropped. A node that many entries of a
                // stranger's disk share is free as soon as the first of them is dropped. To go down again by each of the others would take for ever.
                let drop = self.may_drop();
                if drop && is_known {
                    self.damaged = Some((key, entry.block));
                }
                return drop.then_some(Entry::NONE);
            }
            if is_known && let Some(place) = self.missing.iter_mut().find(|place| place.is_none()) {
                *place = Some(Missing { key, entry });
            }
            // The node above may be one that was put in the place of a damaged one. It has to be written: the damaged one might be read
            // right the next time, and what is dropped here would be there again.
            return (entry.block == LOST).then_some(entry);
        };
        let changed = self.children(key, frame);
        if !self.stopped && self.is_empty(key, frame) {
            self.maps.remove(self.pages, key);
            self.dropped += 1;
            self.allocation.free(entry.block);
            return Some(Entry::NONE);
        }
        if changed {
            self.maps.mark_dirty(key);
        }
        // The parent must become dirty with the child; its entry stays until the child is written.
        changed.then_some(entry)
    }

    /// Takes an entry off what may be dropped.
    fn may_drop(&mut self) -> bool {
        if self.left == 0 && self.dropped > 0 {
            self.stopped = true;
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.dropped += 1;
        true
    }

    fn children(&mut self, key: MapKey, frame: Frame) -> bool {
        self.nodes += 1;
        self.left = self.left.saturating_sub(NODE_ENTRIES);
        let child_level = key.level - 1;
        let first = index_at(self.range.0, child_level).max(key.index << FANOUT_BITS);
        let last = index_at(self.range.1.saturating_sub(1), child_level).min((key.index << FANOUT_BITS) + FANOUT - 1);
        let child = |index| MapKey {
            base: key.base,
            level: child_level,
            index,
        };
        let mut changed = false;
        let mut from = first;
        // An empty entry has nothing below it, unless a node that was never written.
        let mut resident = if child_level == 0 { u64::MAX } else { 0 };
        while from <= last && !self.stopped {
            if resident < from {
                let node = self.maps.first_between(child(from), child(last));
                resident = node.map_or(u64::MAX, |node| node.index);
            }
            let bytes = self.pages.bytes(frame);
            let index = next_entry(bytes, from, last).unwrap_or(u64::MAX).min(resident);
            if index > last {
                break;
            }
            if let Some(new) = self.below(child(index), entry_in(bytes, index)) {
                put_entry(self.pages.bytes_mut(frame), index, new);
                changed = true;
            }
            // Also nodes without anything to drop take their time.
            self.stopped |= child_level > 0 && self.left == 0 && self.dropped > 0;
            from = index + 1;
        }
        changed
    }

    /// Whether all pages under `key` are in the range.
    fn covers(&self, key: MapKey) -> bool {
        let first = first_page(key);
        self.range.0 <= first && first.saturating_add(reach(key.level)) <= self.range.1
    }

    fn is_empty(&self, key: MapKey, frame: Frame) -> bool {
        let bytes = self.pages.bytes(frame);
        let first = MapKey {
            base: key.base,
            level: key.level - 1,
            index: key.index << FANOUT_BITS,
        };
        let last = MapKey {
            index: first.index + FANOUT - 1,
            ..first
        };
        next_entry(bytes, first.index, last.index).is_none() && self.maps.first_between(first, last).is_none()
    }
}
