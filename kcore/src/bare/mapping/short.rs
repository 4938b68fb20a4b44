//! The commonest cases in few instructions: a page of 4 KiB is mapped where nothing is; a slot is linked where nothing is.
//!
//! Nothing is changed before it is certain that it is such a case. All others take the slow path, which does the
//! same; the tests of mappings go through both, for the general calls try these first. Counted in instructions (`map-page`,
//! `flush-page`, `link-2m`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Rights, address::PAGE};

use super::{
    DEPTH_MAX, FreeSpace, LINK_UNITS, Mapping, NODE_UNITS,
    tree::{Kind, LINKS, NONE, Node, Tree, pages},
};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    bare::Bare,
    paging::{
        COUNT_ONE, Fit, SHARED_MARK, encode_linked, encode_mapping, fit_of, frame_of, is_large, is_linked, is_present,
        is_shared, mapping_rights, table_entries,
    },
    smp::Request,
};

/// A space and one of its slots, or 512 of them that one table serves.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Key {
    slots: u64,
    space: u16,
}

impl Key {
    const NONE: Key = Key {
        slots: u64::MAX,
        space: 0,
    };

    #[inline(always)]
    pub(super) fn new(space: u16, page: u64, level: u8) -> Self {
        Self {
            slots: page >> (9 * level),
            space,
        }
    }
}

/// The place of an entry: its table, its index.
pub(super) type Place = (Frame, u16);

/// A table of a space's own.
#[derive(Copy, Clone)]
pub(super) struct Target {
    pub(super) key: Key,
    pub(super) table: Frame,
    /// The entry that leads there.
    pub(super) above: Place,
}

impl Target {
    const NONE: Target = Target {
        key: Key::NONE,
        table: Frame::NOWHERE,
        above: (Frame::NOWHERE, 0),
    };
}

/// The last finds. They hold while only the code in this file changes tables and nodes: all other
/// operations on mappings forget them. The spaces in it are free ones that nobody destroys, the pages it knows of lie
/// where they may give and receive, and no receiver is σ₀.
pub struct Recent {
    /// A table of small pages of a giver's, and the mapping that covers them if that is larger.
    pub(super) source: Target,
    covering: u32,
    /// A giver's slot that is in a large page: that page's entry and mapping.
    whole: (Key, u64, u32),
    /// A table of small pages of a receiver's.
    pub(super) target: Target,
    /// A table above such tables of a giver's.
    from: Target,
    /// The same of a receiver's.
    to: Target,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            source: Target::NONE,
            covering: NONE,
            whole: (Key::NONE, 0, NONE),
            target: Target::NONE,
            from: Target::NONE,
            to: Target::NONE,
        }
    }
}

/// A free space.
#[inline(always)]
pub(super) fn record(spaces: &mut [Option<FreeSpace>], space: u16) -> Option<&mut FreeSpace> {
    spaces.get_mut(usize::from(space))?.as_mut()
}

#[inline(always)]
pub(super) fn word<H: Hardware>(hardware: &H, (table, index): Place) -> &AtomicU64 {
    &hardware.table(table)[usize::from(index) & 511]
}

/// The index of a page's entry.
#[inline(always)]
pub(super) const fn index(page: u64, level: u8) -> u16 {
    (page >> (9 * level)) as u16 & 511
}

/// Hangs a new page below a small one, or a part of that size, and gives its entry.
#[inline(always)]
pub(super) fn hang(tree: &mut Tree, parent: u32, (to, target): (u16, u64), rights: Rights) -> u64 {
    let &Node { frame, depth, .. } = tree.get(parent);
    let mut made = Node::new(Kind::Page, 0, to, target, frame, rights);
    made.depth = depth + 1;
    made.live = 1;
    tree.insert(made, parent);
    encode_mapping(frame, rights, 0, Fit::Exact)
}

impl<H: Hardware> Kernel<H, Bare> {
    /// The entry of a page and its place, at this level or where the way ends above it.
    #[inline(always)]
    fn entry_at(&self, space: u16, page: u64, stop: u8) -> (u8, u64, Place, Place) {
        let root = self.spaces().get(SpaceId(u32::from(space))).root();
        let (mut level, mut above) = (3, (root, 0));
        let mut place = (root, index(page, 3));
        loop {
            let entry = word(&self.hardware, place).load(Relaxed);
            let ends = !is_present(entry) || is_large(entry) || is_linked(entry);
            if level == stop || ends {
                return (level, entry, place, above);
            }
            above = place;
            level -= 1;
            place = (frame_of(entry), index(page, level));
        }
    }

    /// Whether a space is free, and may give and be given a page.
    fn is_alive(&self, space: u16, page: u64) -> bool {
        let id = SpaceId(u32::from(space));
        self.half.mapping.get(id).is_some_and(|found| !found.dying) && page < self.gives_below(id) / PAGE
    }

    /// Finds a giver's table of small pages; `None` if it has a large page there, which is remembered, too.
    #[inline(never)]
    fn find_source(&mut self, key: Key, space: u16, page: u64) -> Option<()> {
        let (level, entry, (table, _), above) = self.entry_at(space, page, 0);
        if level > 0 && !(is_present(entry) && is_large(entry)) || !self.is_alive(space, page) {
            return None;
        }
        let exact = level > 0 && fit_of(entry) == Fit::Exact;
        let first = if exact { level } else { level + 1 };
        let node = (first..=2).find_map(|level| {
            let node = self.half.mapping.tree.find(space, level, page & !(pages(level) - 1))?;
            (self.half.mapping.tree.get(node).kind() == Kind::Page).then_some(node)
        });
        let recent = &mut self.half.mapping.recent;
        if level > 0 {
            recent.whole = (key, entry, node?);
            return None;
        }
        recent.source = Target { key, table, above };
        recent.covering = node.unwrap_or(NONE);
        Some(())
    }

    /// Finds the table that a space has for a page's entry of some level.
    #[inline(never)]
    fn find_table(&self, key: Key, space: u16, page: u64, level: u8) -> Option<Target> {
        let (found, _, (table, _), above) = self.entry_at(space, page, level);
        (found == level && self.is_alive(space, page)).then_some(Target { key, table, above })
    }

    /// The same of a receiver, which σ₀ is not.
    #[inline(never)]
    fn find_target(&mut self, key: Key, space: u16, page: u64) -> Option<()> {
        if self.half.mapping.sigma0 == Some(space) {
            return None;
        }
        self.half.mapping.recent.target = self.find_table(key, space, page, 0)?;
        Some(())
    }

    /// The entry of a giver's page, if that is a small page by itself.
    #[inline(always)]
    pub(super) fn small_source(&mut self, space: u16, page: u64) -> Option<u64> {
        let (key, recent) = (Key::new(space, page, 1), &self.half.mapping.recent);
        if recent.source.key != key {
            if recent.whole.0 == key {
                return None;
            }
            self.find_source(key, space, page)?;
        }
        let table = self.half.mapping.recent.source.table;
        let entry = word(&self.hardware, (table, index(page, 0))).load(Relaxed);
        (is_present(entry) && fit_of(entry) == Fit::Exact).then_some(entry)
    }

    /// The entry of a giver's page that is part of a larger one, and its mapping, after [`Self::small_source`].
    #[inline(always)]
    fn part_source(&self, space: u16, page: u64) -> Option<(u64, u32)> {
        let (key, recent) = (Key::new(space, page, 1), &self.half.mapping.recent);
        let (entry, node) = if recent.source.key == key {
            let place = (recent.source.table, index(page, 0));
            (word(&self.hardware, place).load(Relaxed), recent.covering)
        } else if recent.whole.0 == key {
            (recent.whole.1, recent.whole.2)
        } else {
            return None;
        };
        (is_present(entry) && node != NONE).then_some((entry, node))
    }

    /// Sees to it that what is remembered is about this page of a receiver.
    #[inline(always)]
    pub(super) fn with_target(&mut self, space: u16, page: u64) -> Option<()> {
        let key = Key::new(space, page, 1);
        if self.half.mapping.recent.target.key == key {
            return Some(());
        }
        self.find_target(key, space, page)
    }

    /// Maps one page of `from` to where `to`, another space, has a table and nothing in it.
    #[inline(always)]
    pub(in crate::bare) fn map_page(
        &mut self,
        from: u16,
        to: u16,
        source: u64,
        target: u64,
        rights: Rights,
    ) -> Option<()> {
        let Some(covering) = self.small_source(from, source) else {
            return self.map_part((from, source), (to, target), rights);
        };
        self.with_target(to, target)?;
        let place = (self.half.mapping.recent.target.table, index(target, 0));
        let place = word(&self.hardware, place);
        let Mapping { spaces, tree, .. } = &mut self.half.mapping;
        let receiver = record(spaces, to)?;
        if is_present(place.load(Relaxed))
            || receiver.quota - receiver.used < NODE_UNITS[0]
            || from == to
            || !tree.has_free(1)
        {
            return None;
        }
        let node = tree.find(from, 0, source)?;
        if tree.get(node).depth >= DEPTH_MAX {
            return None;
        }
        // From here on it is certain.
        let rights = mapping_rights(covering).intersection(rights);
        let entry = hang(tree, node, (to, target), rights);
        receiver.used += NODE_UNITS[0];
        place.store(entry, Relaxed);
        self.count_target();
        Some(())
    }

    /// The table of small pages of the receiver that is remembered has one more.
    #[inline(always)]
    fn count_target(&self) {
        word(&self.hardware, self.half.mapping.recent.target.above).fetch_add(COUNT_ONE, Relaxed);
    }

    /// The same from a larger page, of which it becomes a part.
    #[inline(never)]
    fn map_part(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), rights: Rights) -> Option<()> {
        let (covering, node) = self.part_source(from, source)?;
        self.with_target(to, target)?;
        let place = (self.half.mapping.recent.target.table, index(target, 0));
        let place = word(&self.hardware, place);
        let Mapping { spaces, tree, .. } = &mut self.half.mapping;
        let receiver = record(spaces, to)?;
        let at = tree.get(node);
        let frame = at.frame + (source - at.page) as u32;
        if is_present(place.load(Relaxed))
            || receiver.quota - receiver.used < NODE_UNITS[0]
            || from == to
            || at.depth >= DEPTH_MAX
            || !tree.has_free(4)
        {
            return None;
        }
        // From here on it is certain.
        let rights = mapping_rights(covering).intersection(rights);
        let parent = tree.part_of(node, 0, frame);
        let entry = hang(tree, parent, (to, target), rights);
        receiver.used += NODE_UNITS[0];
        place.store(entry, Relaxed);
        self.count_target();
        Some(())
    }

    /// Takes a page that `space` gave from the only one who has it.
    #[inline(always)]
    pub(in crate::bare) fn flush_one(&mut self, space: u16, page: u64) -> Option<()> {
        if self.small_source(space, page).is_none() {
            return self.flush_part(space, page);
        }
        let source = self.half.mapping.tree.find(space, 0, page)?;
        self.flush_kid(source)?;
        Some(())
    }

    /// The same of a larger page.
    #[inline(never)]
    pub(super) fn flush_part(&mut self, space: u16, page: u64) -> Option<()> {
        let (_, top) = self.part_source(space, page)?;
        let tree = &self.half.mapping.tree;
        let mut source = tree.find(space, 0, page)?;
        let mut above = source;
        while above != top {
            above = tree.get(above).parent;
            // A space above that has a larger page with this one in it keeps the rest.
            if above == NONE || !tree.get(above).kids.is_empty() {
                return None;
            }
        }
        self.flush_kid(source)?;
        // Nothing comes back to σ₀ with them: it has the page.
        let tree = &mut self.half.mapping.tree;
        while source != top {
            let part = tree.get(source);
            if !part.is_bare() {
                break;
            }
            let parent = part.parent;
            tree.remove(source);
            source = parent;
        }
        Some(())
    }

    /// Takes a small page from the only one who has it from there.
    #[inline(always)]
    fn flush_kid(&mut self, source: u32) -> Option<()> {
        let tree = &self.half.mapping.tree;
        let kids = tree.get(source).kids;
        if kids.done != NONE || kids.active == NONE {
            return None;
        }
        let kid = kids.active;
        let has = tree.get(kid);
        if !has.kids.is_empty() || !has.is_alone(kid) {
            return None;
        }
        let holder = self.take_small(kid)?;
        self.half.mapping.tree.remove_only_kid(kid, source);
        let holder = SpaceId(u32::from(holder));
        self.forget_translations(holder);
        self.ask_inside(holder, Request::Forget);
        Some(())
    }

    /// Takes a small page out of the tables of the space that has it by a node, and from its quota; the node stays. Tells the space.
    #[inline(always)]
    pub(super) fn take_small(&mut self, node: u32) -> Option<u16> {
        let has = self.half.mapping.tree.get(node);
        let (holder, page) = (has.space, has.page);
        self.with_target(holder, page)?;
        let Mapping { spaces, recent, .. } = &mut self.half.mapping;
        let place = word(&self.hardware, (recent.target.table, index(page, 0)));
        let above = word(&self.hardware, recent.target.above);
        let leading = above.load(Relaxed);
        debug_assert!(fit_of(place.load(Relaxed)) == Fit::Exact, "a small page has its entry");
        if is_shared(leading) || table_entries(leading) < 2 {
            return None;
        }
        // From here on it is certain.
        record(spaces, holder)?.used -= NODE_UNITS[0];
        place.store(0, Relaxed);
        above.fetch_sub(COUNT_ONE, Relaxed);
        Some(holder)
    }

    /// The tables in which a giver and a receiver have the entries of slots.
    #[inline(never)]
    fn find_slots(&mut self, from: (Key, u16), to: (Key, u16), slot: u64) -> Option<()> {
        if self.half.mapping.sigma0 == Some(to.1) {
            return None;
        }
        let giver = self.find_table(from.0, from.1, slot, 1)?;
        let receiver = self.find_table(to.0, to.1, slot, 1)?;
        let recent = &mut self.half.mapping.recent;
        (recent.from, recent.to) = (giver, receiver);
        Some(())
    }

    /// Links a slot of `from`, which has a table for it, to where `to`, another space, has nothing.
    #[inline(always)]
    pub(in crate::bare) fn link_slot(&mut self, from: u16, to: u16, slot: u64, rights: Rights) -> Option<()> {
        let (giver, receiver) = (Key::new(from, slot, 2), Key::new(to, slot, 2));
        let recent = &self.half.mapping.recent;
        if recent.from.key != giver || recent.to.key != receiver {
            self.find_slots((giver, from), (receiver, to), slot)?;
        }
        let recent = &self.half.mapping.recent;
        let shared = word(&self.hardware, (recent.from.table, index(slot, 1)));
        let place = word(&self.hardware, (recent.to.table, index(slot, 1)));
        let above = recent.to.above;
        let table = shared.load(Relaxed);
        let Mapping { spaces, tree, .. } = &mut self.half.mapping;
        let receiver = record(spaces, to)?;
        if receiver.quota - receiver.used < LINK_UNITS
            || from == to
            || !is_present(table)
            || is_large(table)
            || is_linked(table)
            || is_present(place.load(Relaxed))
            || !tree.has_free(2)
        {
            return None;
        }
        let known = if is_shared(table) {
            tree.find(from, LINKS, slot)?
        } else {
            NONE
        };
        // From here on it is certain.
        receiver.used += LINK_UNITS;
        let node = if known == NONE {
            record(spaces, from)?.shared_tables += 1;
            shared.store(table | SHARED_MARK, Relaxed);
            tree.insert(Node::new(Kind::Table, 1, from, slot, 0, Rights::RWX), NONE)
        } else {
            known
        };
        tree.insert(Node::new(Kind::Link, 1, to, slot, 0, rights), node);
        place.store(encode_linked(frame_of(table), rights), Relaxed);
        word(&self.hardware, above).fetch_add(COUNT_ONE, Relaxed);
        Some(())
    }
}
