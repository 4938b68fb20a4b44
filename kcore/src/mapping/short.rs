//! The commonest cases in few instructions: a page of 4 KiB is mapped where nothing is, and taken back from the only
//! one who has it; a slot is linked where nothing is.
//!
//! Nothing is changed before it is certain that it is such a case. All others go the general way, which does the
//! same; the tests of mappings go through both, for the general calls try these first. Counted in instructions (`map-page`,
//! `flush-page`, `link-2m`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::Rights;

use super::{
    DEPTH_MAX, FreeSpace, LINK_UNITS, Mapping, NODE_UNITS,
    tree::{Kind, LINKS, NONE, Node, pages},
};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    paging::{
        COUNT_ONE, Fit, SHARED_MARK, encode_linked, encode_mapping, fit_of, frame_of, is_large, is_linked, is_present,
        is_shared, mapping_rights, table_entries,
    },
    smp::Request,
};

/// A space and one of its slots, as a word.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Key(u64);

impl Key {
    const NONE: Key = Key(u64::MAX);

    fn new(space: u16, page: u64) -> Self {
        Self(u64::from(space) << 48 | page >> 9)
    }
}

/// What a slot of a giver is.
#[derive(Copy, Clone)]
struct Source {
    key: Key,
    /// Its table, if it has small pages.
    table: Option<Frame>,
    /// Else the entry of the large one that covers it.
    entry: u64,
    /// The mapping that covers it, if that is larger than a small page.
    node: u32,
}

/// A table of small pages of a space's own.
#[derive(Copy, Clone)]
struct Target {
    key: Key,
    table: Frame,
    /// The entry that leads there: its table, its index.
    above: (Frame, usize),
}

/// What was found last. It is true while nothing but what is in here changes tables and nodes: all other
/// operations on mappings forget it.
pub struct Recent {
    source: Source,
    target: Target,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            source: Source {
                key: Key::NONE,
                table: None,
                entry: 0,
                node: NONE,
            },
            target: Target {
                key: Key::NONE,
                table: Frame(0),
                above: (Frame(0), 0),
            },
        }
    }
}

/// A free space that has no long operation under way.
#[inline(always)]
fn quiet(spaces: &mut [Option<FreeSpace>], space: u16) -> Option<&mut FreeSpace> {
    let found = spaces.get_mut(usize::from(space))?.as_mut()?;
    (!found.dying && found.pending.is_none()).then_some(found)
}

impl Mapping {
    #[inline(always)]
    fn quiet(&mut self, space: u16) -> Option<&mut FreeSpace> {
        quiet(&mut self.spaces, space)
    }
}

impl<H: Hardware> Kernel<H> {
    /// The entry of a page and its place, at this level or where the way ends above it.
    #[inline(always)]
    fn entry_at(&self, space: u16, page: u64, stop: u8) -> (u8, u64, (Frame, usize), (Frame, usize)) {
        let root = self.spaces.get(SpaceId(u32::from(space))).root;
        let (mut level, mut above) = (3, (root, 0));
        let mut place = (root, (page >> 27) as usize & 511);
        loop {
            let entry = self.hardware.table(place.0)[place.1].load(Relaxed);
            let ends = !is_present(entry) || is_large(entry) || is_linked(entry);
            if level == stop || ends {
                return (level, entry, place, above);
            }
            above = place;
            level -= 1;
            place = (frame_of(entry), (page >> (9 * level)) as usize & 511);
        }
    }

    /// What covers a page of a giver: its entry, and the mapping that this belongs to.
    #[inline(always)]
    fn source(&mut self, space: u16, page: u64) -> Option<(u64, u32)> {
        let key = Key::new(space, page);
        if self.mapping.recent.source.key != key {
            self.find_source(key, space, page)?;
        }
        let Source { table, entry, node, .. } = self.mapping.recent.source;
        let Some(table) = table else {
            return Some((entry, node));
        };
        let entry = self.hardware.table(table)[page as usize & 511].load(Relaxed);
        if !is_present(entry) {
            return None;
        }
        if fit_of(entry) == Fit::Part {
            return (node != NONE).then_some((entry, node));
        }
        Some((entry, self.mapping.tree.find(space, 0, page)?))
    }

    #[inline(never)]
    fn find_source(&mut self, key: Key, space: u16, page: u64) -> Option<()> {
        let (level, entry, (table, _), _) = self.entry_at(space, page, 0);
        if level > 0 && !(is_present(entry) && is_large(entry)) {
            return None;
        }
        let exact = level > 0 && fit_of(entry) == Fit::Exact;
        let first = if exact { level } else { level + 1 };
        let node = (first..=2).find_map(|level| {
            let node = self.mapping.tree.find(space, level, page & !(pages(level) - 1))?;
            (self.mapping.tree.get(node).kind() == Kind::Page).then_some(node)
        });
        if level > 0 && node.is_none() {
            return None;
        }
        self.mapping.recent.source = Source {
            key,
            table: (level == 0).then_some(table),
            entry,
            node: node.unwrap_or(NONE),
        };
        Some(())
    }

    /// The table of small pages that a space has for a page.
    #[inline(always)]
    fn target(&mut self, space: u16, page: u64) -> Option<Target> {
        let key = Key::new(space, page);
        if self.mapping.recent.target.key != key {
            let (level, _, (table, _), above) = self.entry_at(space, page, 0);
            if level > 0 {
                return None;
            }
            self.mapping.recent.target = Target { key, table, above };
        }
        Some(self.mapping.recent.target)
    }

    fn word(&self, (table, index): (Frame, usize)) -> &AtomicU64 {
        &self.hardware.table(table)[index]
    }

    /// Maps one page of `from` to where `to`, another space, has a table and nothing in it.
    #[inline(always)]
    pub(crate) fn map_page(&mut self, from: u16, to: u16, source: u64, target: u64, rights: Rights) -> Option<()> {
        let (covering, node) = self.source(from, source)?;
        let into = self.target(to, target)?;
        let place = (into.table, target as usize & 511);
        if is_present(self.word(place).load(Relaxed)) {
            return None;
        }
        self.mapping.quiet(from)?;
        let sigma0 = self.mapping.sigma0;
        let Mapping { spaces, tree, .. } = &mut self.mapping;
        let receiver = quiet(spaces, to)?;
        let at = tree.get(node);
        let (depth, frame) = (at.depth + 1, at.frame + (source - at.page) as u32);
        if receiver.quota - receiver.used < NODE_UNITS[0]
            || from == to
            || sigma0 == Some(to)
            || at.depth >= DEPTH_MAX
            || !tree.has_free(4)
        {
            return None;
        }
        let rights = mapping_rights(covering).intersection(rights);
        // From here on it is certain.
        receiver.used += NODE_UNITS[0];
        let parent = if at.level() == 0 {
            node
        } else {
            tree.part_of(node, 0, frame)
        };
        let mut made = Node::new(Kind::Page, 0, to, target, frame, rights);
        made.depth = depth;
        made.live = 1;
        tree.insert(made, parent);
        self.word(place)
            .store(encode_mapping(Frame(frame), rights, 0, Fit::Exact), Relaxed);
        self.word(into.above).fetch_add(COUNT_ONE, Relaxed);
        Some(())
    }

    /// Takes a page that `space` gave from the only one who has it.
    #[inline(always)]
    pub(crate) fn flush_one(&mut self, space: u16, page: u64) -> Option<()> {
        self.mapping.quiet(space)?;
        let (_, top) = self.source(space, page)?;
        let tree = &self.mapping.tree;
        let mut source = top;
        if tree.get(top).level() > 0 {
            source = tree.find(space, 0, page)?;
            let mut above = source;
            while above != top {
                above = tree.get(above).parent;
                // Who has a larger page with this one in it keeps the rest.
                if above == NONE || !tree.get(above).kids.is_empty() {
                    return None;
                }
            }
        }
        let from = tree.get(source);
        if !from.parts.is_empty() || from.kids.done != NONE || from.kids.active == NONE {
            return None;
        }
        let kid = from.kids.active;
        let has = tree.get(kid);
        if !has.is_bare() || !has.is_alone(kid) || has.kind() != Kind::Page {
            return None;
        }
        let (holder, there) = (has.space, has.page);
        let out_of = self.target(holder, there)?;
        let place = (out_of.table, there as usize & 511);
        let (entry, above) = (self.word(place).load(Relaxed), self.word(out_of.above).load(Relaxed));
        if !is_present(entry) || fit_of(entry) != Fit::Exact || is_shared(above) || table_entries(above) < 2 {
            return None;
        }
        // From here on it is certain.
        self.mapping.quiet(holder)?.used -= NODE_UNITS[0];
        self.word(place).store(0, Relaxed);
        self.word(out_of.above).fetch_sub(COUNT_ONE, Relaxed);
        let tree = &mut self.mapping.tree;
        tree.remove(kid);
        // Nothing comes back to σ₀ with them: it has the page.
        while source != top {
            let part = tree.get(source);
            if !part.is_bare() {
                break;
            }
            let parent = part.parent;
            tree.remove(source);
            source = parent;
        }
        let holder = SpaceId(u32::from(holder));
        self.spaces.forget(holder);
        self.hardware.flush_root(self.spaces.get(holder).root);
        self.ask_inside(holder, Request::Forget);
        Some(())
    }

    /// Links a slot of `from`, which has a table for it, to where `to`, another space, has nothing.
    #[inline(always)]
    pub(crate) fn link_slot(&mut self, from: u16, to: u16, slot: u64, rights: Rights) -> Option<()> {
        self.mapping.quiet(from)?;
        let receiver = self.mapping.quiet(to)?;
        if receiver.quota - receiver.used < LINK_UNITS || from == to || self.mapping.sigma0 == Some(to) {
            return None;
        }
        let (level, entry, place, above) = self.entry_at(to, slot, 1);
        if level != 1 || is_present(entry) {
            return None;
        }
        let (level, table, shared, _) = self.entry_at(from, slot, 1);
        if level != 1 || !is_present(table) || is_large(table) || is_linked(table) || !self.mapping.tree.has_free(2) {
            return None;
        }
        let known = if is_shared(table) {
            Some(self.mapping.tree.find(from, LINKS, slot)?)
        } else {
            None
        };
        // From here on it is certain.
        let tree = &mut self.mapping.tree;
        let node = if let Some(node) = known {
            node
        } else {
            let node = tree.insert(Node::new(Kind::Table, 1, from, slot, 0, Rights::RWX), NONE);
            self.mapping.quiet(from)?.shared_tables += 1;
            self.word(shared).store(table | SHARED_MARK, Relaxed);
            node
        };
        let made = Node::new(Kind::Link, 1, to, slot, 0, rights);
        self.mapping.tree.insert(made, node);
        self.word(place).store(encode_linked(frame_of(table), rights), Relaxed);
        self.word(above).fetch_add(COUNT_ONE, Relaxed);
        self.mapping.quiet(to)?.used += LINK_UNITS;
        Some(())
    }
}
