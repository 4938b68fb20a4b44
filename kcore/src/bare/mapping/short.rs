//! The commonest cases in few instructions: a page of 4 KiB is mapped where nothing is; a slot is linked where nothing is.
//!
//! Nothing is changed before it is certain that it is such a case. All others take the slow path, which does the
//! same; the tests of mappings go through both, for the general calls try these first. Counted in instructions (`map-page`,
//! `flush-page`, `link-2m`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Rights, address::PAGE};

use super::{
    DEPTH_MAX, FreeSpace, LINK_UNITS, Mapping, NODE_UNITS,
    tree::{FINISHED, Key, Kind, LINKS, NONE, Node, Tree, pages},
};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    bare::Bare,
    paging::{
        COUNT_ONE, Fit, SHARED_MARK, encode_linked, encode_mapping, fit_of, frame_of, is_exact_page, is_large,
        is_linked, is_present, is_shared, mapping_rights, present_rights, restricted,
    },
};

/// The place of an entry: its table, its index.
pub(super) type Place = (Frame, u16);

/// A table of a space's own.
#[derive(Copy, Clone)]
pub(super) struct Target {
    /// The first page below, of the size of the table's entries.
    pub(super) key: Key,
    pub(super) table: Frame,
    /// Of a lowest table, the one of the nodes of its pages; itself if there is none.
    pub(super) nodes: Frame,
    /// The entry that leads there.
    pub(super) above: Place,
}

impl Target {
    pub(super) const NONE: Target = Target {
        key: Key::NONE,
        table: Frame::NOWHERE,
        nodes: Frame::NOWHERE,
        above: (Frame::NOWHERE, 0),
    };
}

/// Receivers that are remembered.
const TARGETS: usize = 16;

/// The last finds. They hold until a table comes beside another one or goes, a large page is changed or parted, or a space begins to end: the code
/// that does so forgets them. The spaces in it are free ones that nobody destroys, the pages it knows of lie
/// where they may give and receive, and no receiver is σ₀.
pub struct Recent {
    /// Something is remembered.
    is_known: bool,
    /// A table of small pages of a giver's, and the mapping that covers them if that is larger.
    pub(super) source: Target,
    pub(super) covering: u32,
    /// A giver's slot that is in a large page: that page's entry and mapping.
    whole: (Key, u64, u32),
    /// Tables of small pages of receivers', each by the number of its space.
    targets: [Target; TARGETS],
    /// A table above such tables of a giver's.
    from: Target,
    /// The same of a receiver's.
    to: Target,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            is_known: false,
            source: Target::NONE,
            covering: NONE,
            whole: (Key::NONE, 0, NONE),
            targets: [Target::NONE; TARGETS],
            from: Target::NONE,
            to: Target::NONE,
        }
    }
}

impl Recent {
    /// Something changes that may be among them.
    pub(super) fn forget(&mut self) {
        if core::mem::take(&mut self.is_known) {
            *self = Self::default();
        }
    }

    /// The table that is remembered of a receiver. It may be another one's.
    #[inline(always)]
    pub(super) fn target(&self, space: u16) -> &Target {
        &self.targets[usize::from(space) % TARGETS]
    }

    /// The place for one.
    pub(super) fn target_mut(&mut self, space: u16) -> &mut Target {
        self.is_known = true;
        &mut self.targets[usize::from(space) % TARGETS]
    }
}

/// A slot of a space.
#[inline(always)]
pub(super) fn slot_of(space: u16, page: u64) -> Key {
    Key::new(space, 0, page).first_of(pages(1))
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

/// The node of a small page, whose entry is there.
#[inline(always)]
pub(super) fn node_of<H: Hardware>(hardware: &H, table: &Target, page: u64) -> u32 {
    word(hardware, (table.nodes, index(page, 0))).load(Relaxed) as u32
}

/// The index of a page's entry.
#[inline(always)]
pub(super) const fn index(page: u64, level: u8) -> u16 {
    (page >> (9 * level)) as u16 & 511
}

/// A small page that comes from one, or from a part of that size.
#[inline(always)]
pub(super) fn small_page(tree: &Tree, parent: u32, key: Key, rights: Rights) -> Node {
    let &Node { frame, depth, .. } = tree.get(parent);
    let mut made = Node::of_key(Kind::Page, 0, key, frame, rights);
    made.depth = depth + 1;
    made.live = 1;
    made
}

impl<H: Hardware> Kernel<H, Bare> {
    /// The entry of a page and its place, at this level or where the way ends above it.
    #[inline(always)]
    pub(super) fn entry_at(&self, space: u16, page: u64, stop: u8) -> (u8, u64, Place, Place) {
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
        let nodes = self.frames().beside(table).unwrap_or(table);
        let recent = &mut self.half.mapping.recent;
        recent.is_known = true;
        if level > 0 {
            recent.whole = (key, entry, node?);
            return None;
        }
        recent.source = Target {
            key,
            table,
            nodes,
            above,
        };
        recent.covering = node.unwrap_or(NONE);
        Some(())
    }

    /// Finds the table that a space has for the entry of a slot.
    #[inline(never)]
    fn find_table(&self, key: Key, space: u16, slot: u64) -> Option<Target> {
        let (found, _, (table, _), above) = self.entry_at(space, slot, 1);
        (found == 1 && self.is_alive(space, slot)).then_some(Target {
            key,
            table,
            nodes: table,
            above,
        })
    }

    /// Finds a receiver's table of small pages, which σ₀ is not. Where there is none it is made, for a page that it gets from a space, of this node.
    #[inline(never)]
    fn find_target(&mut self, slot: Key, giver: Option<(u16, u32)>) -> Option<()> {
        let (space, page) = (slot.space(), slot.page());
        if self.half.mapping.sigma0 == Some(space) || !self.is_alive(space, page) {
            return None;
        }
        let (level, entry, place, above) = self.entry_at(space, page, 0);
        let found = match (level, giver) {
            (0, _) => Target {
                key: slot,
                table: place.0,
                nodes: self.frames().beside(place.0)?,
                above,
            },
            (1, Some((from, node))) if !is_present(entry) && from != space => self.make(slot, (place, above), node)?,
            _ => return None,
        };
        *self.half.mapping.recent.target_mut(space) = found;
        Some(())
    }

    /// Sees to it that what is remembered of a giver is the slot of this page, if it has a table there.
    #[inline(always)]
    pub(super) fn with_source(&mut self, space: u16, page: u64) -> bool {
        let (key, recent) = (slot_of(space, page), &self.half.mapping.recent);
        recent.source.key == key || recent.whole.0 != key && self.find_source(key, space, page).is_some()
    }

    /// The entry of a giver's page, if that is a small page by itself.
    #[inline(always)]
    pub(super) fn small_source(&mut self, space: u16, page: u64) -> Option<u64> {
        if !self.with_source(space, page) {
            return None;
        }
        let table = self.half.mapping.recent.source.table;
        let entry = word(&self.hardware, (table, index(page, 0))).load(Relaxed);
        is_exact_page(entry).then_some(entry)
    }

    /// The entry of a giver's page that is part of a larger one, and its mapping, after [`Self::small_source`].
    #[inline(always)]
    pub(super) fn part_source(&self, space: u16, page: u64) -> Option<(u64, u32)> {
        let (key, recent) = (slot_of(space, page), &self.half.mapping.recent);
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

    /// Sees to it that a receiver's table for a slot is remembered.
    #[inline(always)]
    pub(super) fn with_target(&mut self, slot: Key) -> Option<()> {
        if self.half.mapping.recent.target(slot.space()).key == slot {
            return Some(());
        }
        self.find_target(slot, None)
    }

    /// Maps one page of `from` to where `to`, another space, has a table.
    #[inline(always)]
    pub(in crate::bare) fn map_page(
        &mut self,
        from: u16,
        to: u16,
        source: u64,
        target: u64,
        rights: Rights,
    ) -> Option<()> {
        if self.given_short((from, source), to, 1) == 0 {
            return None;
        }
        let Some(covering) = self.small_source(from, source) else {
            return self.map_part((from, source), (to, target), rights);
        };
        let place = Key::new(to, 0, target);
        let recent = &self.half.mapping.recent;
        if recent.target(to).key != place.first_of(pages(1)) {
            let node = node_of(&self.hardware, &recent.source, source);
            self.find_target(place.first_of(pages(1)), Some((from, node)))?;
        }
        let Mapping {
            spaces, tree, recent, ..
        } = &mut self.half.mapping;
        let &Target {
            table, nodes, above, ..
        } = recent.target(to);
        let entry = word(&self.hardware, (table, index(target, 0)));
        let receiver = record(spaces, to)?;
        if is_present(entry.load(Relaxed)) {
            return self.replace_page((from, source), (to, target), rights);
        }
        if receiver.quota - receiver.used < NODE_UNITS[0] || from == to || tree.free_nodes() < 1 {
            return None;
        }
        let node = node_of(&self.hardware, &recent.source, source);
        if tree.get(node).depth >= DEPTH_MAX {
            return None;
        }
        // From here on it is certain.
        let given = restricted(covering, rights);
        let made = tree.hang(small_page(tree, node, place, present_rights(given)), node);
        word(&self.hardware, (nodes, index(target, 0))).store(made.into(), Relaxed);
        receiver.used += NODE_UNITS[0];
        entry.store(given, Relaxed);
        word(&self.hardware, above).fetch_add(COUNT_ONE, Relaxed);
        Some(())
    }

    /// The same from a larger page, of which it becomes a part.
    #[inline(never)]
    fn map_part(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), rights: Rights) -> Option<()> {
        let (covering, node) = self.part_source(from, source)?;
        let place = Key::new(to, 0, target);
        if self.half.mapping.recent.target(to).key != place.first_of(pages(1)) {
            self.find_target(place.first_of(pages(1)), Some((from, node)))?;
        }
        let Mapping {
            spaces, tree, recent, ..
        } = &mut self.half.mapping;
        let &Target {
            table, nodes, above, ..
        } = recent.target(to);
        let entry = word(&self.hardware, (table, index(target, 0)));
        let receiver = record(spaces, to)?;
        let at = tree.get(node);
        let frame = at.frame + (source - at.page()) as u32;
        if is_present(entry.load(Relaxed)) {
            return self.renew_part(
                (from, source),
                (to, target),
                mapping_rights(covering).intersection(rights),
            );
        }
        if receiver.quota - receiver.used < NODE_UNITS[0]
            || from == to
            || at.depth >= DEPTH_MAX
            || tree.free_nodes() < 4
        {
            return None;
        }
        // From here on it is certain.
        let rights = mapping_rights(covering).intersection(rights);
        let parent = tree.part_of(node, 0, frame);
        let made = tree.hang(small_page(tree, parent, place, rights), parent);
        word(&self.hardware, (nodes, index(target, 0))).store(made.into(), Relaxed);
        receiver.used += NODE_UNITS[0];
        entry.store(encode_mapping(frame, rights, 0, Fit::Exact), Relaxed);
        word(&self.hardware, above).fetch_add(COUNT_ONE, Relaxed);
        Some(())
    }

    /// The same where the receiver has this very part already, from which nobody has one: it has these rights from now on, as behind a fault that is a write
    /// after one that was a read.
    #[inline(never)]
    fn renew_part(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), rights: Rights) -> Option<()> {
        let Mapping { tree, recent, .. } = &mut self.half.mapping;
        let taker = recent.target(to);
        let entry = word(&self.hardware, (taker.table, index(target, 0)));
        let is_linked = is_shared(word(&self.hardware, taker.above).load(Relaxed));
        if from == to || is_linked || !is_exact_page(entry.load(Relaxed)) {
            return None;
        }
        let node = node_of(&self.hardware, taker, target);
        let (was, part) = (tree.get(node), tree.find(from, 0, source)?);
        let above = tree.get(part);
        // A flush that is done with the part is to come there again: the general way sees to that.
        let is_passed = above.marks & FINISHED != 0;
        if was.parent != part || above.kind() != Kind::Part || is_passed || !was.is_bare() {
            return None;
        }
        // From here on it is certain.
        let made = small_page(tree, part, was.key(), rights);
        tree.exchange(node, made, part);
        entry.store(encode_mapping(made.frame, rights, 0, Fit::Exact), Relaxed);
        self.tell_loss(to);
        Some(())
    }

    /// The tables in which a giver and a receiver have the entries of slots.
    #[inline(never)]
    fn find_slots(&mut self, from: (Key, u16), to: (Key, u16), slot: u64) -> Option<()> {
        if self.half.mapping.sigma0 == Some(to.1) {
            return None;
        }
        let giver = self.find_table(from.0, from.1, slot)?;
        let receiver = self.find_table(to.0, to.1, slot)?;
        let recent = &mut self.half.mapping.recent;
        (recent.is_known, recent.from, recent.to) = (true, giver, receiver);
        Some(())
    }

    /// Links a slot of `from`, which has a table for it, to where `to`, another space, has nothing.
    #[inline(always)]
    pub(in crate::bare) fn link_slot(&mut self, from: u16, to: u16, slot: u64, rights: Rights) -> Option<()> {
        if !self.links_short(from, to, slot) {
            return None;
        }
        let table = |space| Key::new(space, 1, slot).first_of(pages(2));
        let (giver, receiver) = (table(from), table(to));
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
            || tree.free_nodes() < 2
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
