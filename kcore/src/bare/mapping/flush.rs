//! Taking away: one block of a mapping and all that came from it, in bounded steps.
//!
//! The tree below a mapping is visited children first, so that at every moment what a space has, it
//! has from somebody who still has it. Each step finishes one node; a call that runs out of budget
//! leaves the tree as it is, and the next one finds its way down the rings of nodes not yet done.

use core::sync::atomic::Ordering::Relaxed;

use abi::Rights;

use super::{
    LINK_UNITS, NODE_UNITS, Own, Progress, Visit,
    tables::{Found, LINKED_STEPS, Search, Walk, What, Work, is_port, span},
    tree::{DOOMED, FINISHED, Kind, LINKS, NONE, Node, pages},
};
use crate::{
    Hardware,
    bare::going::UNIT,
    paging::{Fit, encode_mapping, fit_of, is_large, is_linked, is_present, lowered, mapping_rights},
};

/// Steps of a link that a space itself loses, and of its owner's table, which nobody links then.
const LINK_STEPS: i32 = 4 * UNIT;

/// Steps of a slot of a mapping of 1 GiB that was parted, when it is taken as one entry.
const SLOT_STEPS: i32 = 2 * UNIT;

/// Steps of a node that is done.
const TAKEN_STEPS: i32 = 5 * UNIT;

/// Further steps of a small page from which nothing is taken: nothing else pays for the search, and the look. Those of a large one that was parted are such, each by
/// itself.
const NOTHING_STEPS: i32 = 3 * UNIT;

/// Further steps of a port, or a block of them, whose mapping has no entry that names it.
const PORT_STEPS: i32 = 2 * UNIT;

/// The extent of a flush.
#[derive(Copy, Clone)]
struct Scope {
    /// First frame, and size: a mapping of at most this size is taken whole.
    frame: u32,
    level: u8,
    rights: Rights,
}

impl Scope {
    /// All of it.
    const ALL: Scope = Scope {
        frame: 0,
        level: 2,
        rights: Rights::RWX,
    };
}

/// The result of a flush for a node.
enum Taken {
    /// It is there, with less.
    Kept,
    /// It is gone.
    Gone,
    /// A part would have to be split off and cannot be.
    Doomed,
    /// Not finished.
    More,
}

impl<H: Hardware> Work<'_, H> {
    /// Takes rights from all who have pages of a range from this space, from one of its pages on; with [`Own::Too`] from the space itself. Tells how far it came.
    pub fn flush_from(
        &mut self,
        space: u16,
        (from, end): (u64, u64),
        at: u64,
        rights: Rights,
        own: Own,
    ) -> (Progress, u64) {
        let mut at = at;
        loop {
            let found = match self.search(space, at, end, self.tables_from) {
                Search::End => return (Progress::Done, end),
                Search::More(at) => return (Progress::More, at),
                Search::Found(found) => found,
            };
            at = at.max(found.page);
            let covered = found.page >= from && found.page + pages(found.level) <= end;
            match found.what {
                What::Shared => {
                    if covered && self.flush_links(space, at, rights, own) == Progress::More {
                        return (Progress::More, at);
                    }
                    self.tables_from = at + pages(1);
                }
                What::Linked => {
                    self.budget -= LINKED_STEPS;
                    let link = self.mapping.tree.find(space, LINKS, found.page);
                    if let (Own::Too, true, Some(link)) = (own, covered, link) {
                        let table = self.mapping.tree.get(link).parent;
                        self.take_link(link, rights);
                        self.unshare(table);
                        self.budget -= LINK_STEPS;
                    }
                    at = found.page + pages(1);
                }
                What::Page(fit) => {
                    let is_small = fit == Fit::Exact && found.level == 0 && !is_port(at);
                    if is_small && own == Own::Too && rights.contains(Rights::R) {
                        let from = at;
                        at = self.take_own(space, at, end);
                        if at > from {
                            if self.has_nothing(space) {
                                return (Progress::Done, end);
                            }
                            continue;
                        }
                    }
                    let Some(holder) = self.holder(space, &found) else {
                        debug_assert!(false, "an entry without a node");
                        at += 1;
                        continue;
                    };
                    let is_slot = own == Own::Kept && at + pages(1) <= end && self.is_parted_slot(space, at, &found);
                    let (top, level, frame) = self.begun_block(space, at, (from, end)).unwrap_or_else(|| {
                        let node = self.mapping.tree.get(holder);
                        let frame = node.frame + (at - node.page()) as u32;
                        let level = if is_slot {
                            1
                        } else {
                            self.block_level(&found, holder, at, end)
                        };
                        (holder, level, frame)
                    });
                    self.budget -= 2 + 4 * UNIT * i32::from(level) + if is_port(at) { PORT_STEPS } else { 0 };
                    let left = self.budget;
                    // Between the entries of a mapping that was split there may be others, of which this may be one.
                    let step = match () {
                        () if is_slot => pages(1),
                        () if top == holder => pages(level.min(self.whole_level(&found, top))),
                        () => 0,
                    };
                    if own == Own::Kept && self.was_finished(top, frame, level, rights) {
                        // Pages that were given since then were given after this flush.
                        self.visit = Visit::NONE;
                    } else if self.helps_to_flush(top, (frame, level, rights), own) {
                        if self.budget <= 0 {
                            return (Progress::More, at);
                        }
                        continue;
                    } else if self.revoke(top, frame, level, rights, own) == Progress::More {
                        // Nobody gives anything from a space whose destruction has begun.
                        if own == Own::Too && !self.space(space).dying {
                            self.keep_open();
                        }
                        return (Progress::More, at);
                    }
                    if level == 0 && !is_port(at) && left - self.budget < TAKEN_STEPS {
                        self.budget -= NOTHING_STEPS;
                    }
                    at += step;
                }
            }
        }
    }

    /// The mapping of the block of ports with this one whose flush goes on, its level and first frame. The ports that are taken already are not
    /// found any more, and this one may be of a smaller mapping in its midst.
    fn begun_block(&self, space: u16, at: u64, (from, end): (u64, u64)) -> Option<(u32, u8, u32)> {
        let Visit { top, frame, level, .. } = self.visit;
        let is_there = |level: u8| self.mapping.tree.find(space, level, at & !(pages(level) - 1)) == Some(top);
        if !is_port(at) || !(0..=2).any(is_there) {
            return None;
        }
        let node = self.mapping.tree.get(top);
        let first = node.page() + u64::from(frame.checked_sub(node.frame)?);
        let behind = first + pages(level).min(span(node));
        let is_begun = node.kind() == Kind::Page && (first..behind).contains(&at) && from <= first && behind <= end;
        is_begun.then_some((top, level, frame))
    }

    /// The largest block of a mapping that begins here and is in the range.
    fn block_level(&self, found: &Found, top: u32, at: u64, end: u64) -> u8 {
        let node = self.mapping.tree.get(top);
        // Pages that σ₀ granted hang below its own mapping, and σ₀ may not take them: then only the entries go that are left.
        let is_sigma0 = self.mapping.sigma0 == Some(node.space());
        let is_whole = !is_sigma0 || u64::from(node.live) == span(node);
        if is_whole && at == node.page() && at + span(node) <= end {
            return node.level();
        }
        // A block of ports may have holes.
        let has_holes = is_port(at) && !is_sigma0;
        let mut level = if has_holes {
            node.level()
        } else {
            self.whole_level(found, top)
        };
        while level > 0 && (at & (pages(level) - 1) != 0 || at + pages(level) > end) {
            level -= 1;
        }
        level
    }

    /// Whether all pages of the slot that begins here are parts of one mapping, which is larger: nothing is taken from the mapping itself, so they are one block.
    fn is_parted_slot(&self, space: u16, at: u64, found: &Found) -> bool {
        let is_part = matches!(found.what, What::Page(Fit::Part)) && found.level == 0 && !is_port(at);
        if !is_part || at & (pages(1) - 1) != 0 {
            return false;
        }
        // With the first page that is no part comes a table of nodes, and none of those parts comes back whose place it took.
        let walk = self.walk(space, at, 0);
        self.nodes_of(&walk).is_none() && self.entries_of(&walk) == pages(1)
    }

    /// Takes rights from all that link a slot of a space.
    fn flush_links(&mut self, space: u16, slot: u64, rights: Rights, own: Own) -> Progress {
        let Some(table) = self.mapping.tree.find(space, LINKS, slot) else {
            return Progress::Done;
        };
        if own == Own::Kept && self.was_finished(table, 0, 1, rights) {
            self.visit = Visit::NONE;
            return Progress::Done;
        }
        if self.helps_to_flush(table, (0, 1, rights), Own::Kept) {
            return Progress::More;
        }
        let progress = self.revoke(table, 0, 1, rights, Own::Kept);
        self.unshare(table);
        progress
    }

    /// A table that nobody links any more is an ordinary one.
    pub fn unshare(&mut self, table: u32) {
        let at = self.mapping.tree.get(table);
        let (space, page) = (at.space(), at.page());
        if !self.mapping.tree.get(table).is_bare() {
            return;
        }
        self.mapping.tree.remove(table);
        self.space(space).shared_tables -= 1;
        let walk = self.walk(space, page, 1);
        let entry = walk.entry & !crate::paging::SHARED_MARK;
        self.change_entry(space, &walk, entry);
        self.prune(space, page);
    }

    /// Takes rights, or the whole, from one link.
    fn take_link(&mut self, link: u32, rights: Rights) -> bool {
        let at = self.mapping.tree.get(link);
        let (space, page) = (at.space(), at.page());
        let walk = self.walk(space, page, 1);
        debug_assert!(is_linked(walk.entry), "a link has no entry");
        if rights.contains(Rights::R) {
            self.clear_entry(space, &walk);
            self.credit(space, LINK_UNITS);
            self.mapping.tree.remove(link);
            return true;
        }
        let left = lowered(walk.entry, rights);
        self.change_entry(space, &walk, left);
        self.mapping.tree.get_mut(link).rights = mapping_rights(left);
        false
    }

    /// The stamp of the flush of one block: the same as long as it is the same block.
    pub(super) fn stamp(&mut self, top: u32, block: (u32, u8, Rights)) -> u64 {
        let visit = self.visit.of(top, block);
        if self.visit != visit {
            self.mapping.abandon_flush(self.visit);
            // Even; the next odd one is for doomed nodes.
            self.mapping.stamp += 2;
            self.visit = Visit {
                page: self.mapping.tree.get(top).page(),
                stamp: self.mapping.stamp,
                stood_open: false,
                joined: false,
                ..visit
            };
        }
        self.visit.stamp
    }

    /// Takes rights to a block of frames from everything below `top`, and from `top` itself if so
    /// asked.
    pub fn revoke(&mut self, top: u32, frame: u32, level: u8, rights: Rights, own: Own) -> Progress {
        let scope = Scope { frame, level, rights };
        let stamp = self.stamp(top, (frame, level, rights));
        let mut node = top;
        let mut doomed = self.is_doomed(top, stamp).then_some(top);
        loop {
            let (scope, stamp) = if doomed.is_some() {
                (Scope::ALL, stamp | 1)
            } else {
                (scope, stamp)
            };
            self.mapping.tree.begin(node, stamp);
            if self.budget <= 0 {
                self.leave_open();
                return Progress::More;
            }
            self.budget -= 2;
            if let Some(kid) = self.mapping.tree.active_kid(node) {
                if self.mapping.tree.get(kid).rights.intersection(scope.rights).is_empty() {
                    self.mapping.tree.set_done(kid);
                    self.budget -= 1;
                    continue;
                }
                node = kid;
                if doomed.is_none() && self.is_doomed(node, stamp) {
                    doomed = Some(node);
                }
                continue;
            }
            if let Some(part) = self.part_in(node, scope, stamp) {
                node = part;
                continue;
            }
            if node == top && own == Own::Kept {
                break;
            }
            let mut parent = self.mapping.tree.get(node).parent;
            self.budget -= TAKEN_STEPS;
            match self.finish(node, scope) {
                Taken::More => {
                    self.leave_open();
                    return Progress::More;
                }
                Taken::Doomed => {
                    self.mapping.tree.get_mut(node).marks |= DOOMED;
                    doomed = Some(node);
                    continue;
                }
                // At once, for nobody pays for a part from which nothing comes.
                Taken::Gone => parent = self.free_parts(parent),
                Taken::Kept if node != top => {
                    self.mapping.tree.get_mut(node).marks |= FINISHED;
                    self.mapping.tree.set_done(node);
                }
                Taken::Kept => {}
            }
            if doomed == Some(node) {
                doomed = None;
            }
            if node == top {
                break;
            }
            node = parent;
        }
        self.close();
        Progress::Done
    }

    /// Whether this flush takes all of a node. Who helps takes all below its top, too: else the two would undo each other's marks and cursors.
    fn is_doomed(&self, node: u32, stamp: u64) -> bool {
        let at = self.mapping.tree.get(node);
        at.marks & DOOMED != 0 && at.op | 1 == stamp | 1
    }

    /// The next part of a node to be visited. Of a node that is larger than the block there is at
    /// most one.
    fn part_in(&self, node: u32, scope: Scope, stamp: u64) -> Option<u32> {
        let at = self.mapping.tree.get(node);
        if at.parts.is_empty() {
            return None;
        }
        if at.level() <= scope.level {
            return (at.parts.active != NONE).then_some(at.parts.active);
        }
        let level = at.level() - 1;
        let page = at.page_of(scope.frame) & !(pages(level) - 1);
        let part = self.mapping.tree.find(at.space(), level, page)?;
        let found = self.mapping.tree.get(part);
        let finished = found.op == stamp && found.marks & FINISHED != 0;
        (found.kind() == Kind::Part && found.parent == node && !finished).then_some(part)
    }

    /// All below a node is done: takes what is to be taken from itself.
    fn finish(&mut self, node: u32, scope: Scope) -> Taken {
        match self.mapping.tree.get(node).kind() {
            Kind::Part | Kind::Table => Taken::Kept,
            Kind::Link => {
                if self.take_link(node, scope.rights) {
                    Taken::Gone
                } else {
                    Taken::Kept
                }
            }
            Kind::Page => self.take(node, scope),
        }
    }

    /// Frees parts from which nothing comes any more, from a node upwards; returns where it ends.
    pub fn free_parts(&mut self, node: u32) -> u32 {
        let mut node = node;
        while node != NONE {
            let at = self.mapping.tree.get(node);
            let (kind, parent) = (at.kind(), at.parent);
            if !at.is_bare() {
                break;
            }
            self.settle(node);
            if kind != Kind::Part {
                break;
            }
            self.mapping.tree.remove(node);
            self.budget -= UNIT;
            node = parent;
        }
        node
    }

    /// σ₀ gets back what it granted once nothing comes from there any more. Ports may also have gone with a larger range: then
    /// nobody else has that range from σ₀ ([`Self::revoke`]), and its only holder may still have them.
    fn settle(&mut self, node: u32) {
        let at = *self.mapping.tree.get(node);
        if self.mapping.sigma0 != Some(at.space()) || !at.is_bare() || matches!(at.kind(), Kind::Table | Kind::Link) {
            return;
        }
        self.budget -= UNIT;
        let (mut root, mut around) = (node, [None; 2]);
        while self.mapping.tree.get(root).kind() == Kind::Part {
            root = self.mapping.tree.get(root).parent;
            around[usize::from(self.mapping.tree.get(root).level() == 2)] = self.mapping.tree.only_kid(root);
        }
        let &Node { rights, live, .. } = self.mapping.tree.get(root);
        if u64::from(live) == span(self.mapping.tree.get(root)) {
            return;
        }
        self.budget -= 2 * UNIT;
        let back = if is_port(at.page()) && root == node {
            self.set_ports(at.space(), at.page(), span(&at), true);
            span(&at) as u32 - live
        } else if is_port(at.page()) {
            let others = around.map(|kid| kid.map(|kid| self.mapping.tree.get(kid).space()));
            self.return_ports(at.space(), at.page(), span(&at), others)
        } else {
            let walk = self.walk(at.space(), at.page(), at.level());
            if walk.level != at.level() || is_present(walk.entry) {
                return;
            }
            let fit = if root == node { Fit::Exact } else { Fit::Part };
            let entry = encode_mapping(at.frame, rights, at.level(), fit);
            self.set_entry(at.space(), at.page(), at.level(), entry);
            pages(at.level()) as u32
        };
        self.mapping.tree.get_mut(root).live += back;
    }

    /// Takes a mapping's own entries in the scope.
    fn take(&mut self, node: u32, scope: Scope) -> Taken {
        let at = *self.mapping.tree.get(node);
        let level = at.level().min(scope.level);
        let whole = level == at.level();
        let first = if whole { at.page() } else { at.page_of(scope.frame) };
        let finished = if is_port(first) {
            self.take_ports(node, first, level)
        } else {
            let walk = self.walk(at.space(), first, level);
            if walk.level > level && is_large(walk.entry) && self.owns(node, first, fit_of(walk.entry), walk.level) {
                debug_assert!(!whole, "a mapping within a larger one");
                if self.ensure_table(at.space(), first, level).is_err() {
                    return Taken::Doomed;
                }
            }
            self.take_entries(node, first, level, scope.rights)
        };
        if !finished {
            return Taken::More;
        }
        if self.mapping.tree.get(node).live == 0 {
            self.delete(node);
            return Taken::Gone;
        }
        debug_assert!(!whole || !scope.rights.contains(Rights::R), "pages are left");
        if whole {
            let at = self.mapping.tree.get_mut(node);
            at.rights = at.rights.without(scope.rights);
        }
        Taken::Kept
    }

    /// Removes a mapping that has no pages left.
    pub fn delete(&mut self, node: u32) {
        let at = self.mapping.tree.get(node);
        let (space, level) = (at.space(), at.level());
        debug_assert!(at.is_bare(), "others still have pages from here");
        self.credit(space, NODE_UNITS[usize::from(level)]);
        self.mapping.tree.remove(node);
    }

    /// Takes rights to those entries of a block that belong to a mapping; false if not finished.
    fn take_entries(&mut self, node: u32, first: u64, level: u8, rights: Rights) -> bool {
        let space = self.mapping.tree.get(node).space();
        let walk = self.walk(space, first, level);
        if walk.level != level || !is_present(walk.entry) || is_linked(walk.entry) {
            return true;
        }
        if level == 0 || is_large(walk.entry) {
            self.take_entry(node, first, &walk, rights);
            return true;
        }
        if level == 1 {
            self.take_table_of(node, first, rights);
            return true;
        }
        let begin = usize::from(self.mapping.tree.get(node).cursor);
        for index in begin..512 {
            // With the last page the node goes, however much there is to look at behind it.
            if self.mapping.tree.get(node).live == 0 {
                break;
            }
            if self.budget <= 0 {
                return false;
            }
            self.take_entries(node, first + index as u64 * pages(1), 1, rights);
            self.mapping.tree.get_mut(node).cursor = index as u16 + 1;
            self.budget -= SLOT_STEPS;
        }
        true
    }

    /// Whether the entry at a page, at this level, is of a mapping: parts of a smaller one of the space's that stands in this place are not.
    fn owns(&self, node: u32, page: u64, fit: Fit, level: u8) -> bool {
        let at = self.mapping.tree.get(node);
        let is_other = |between: u8| {
            let other = self
                .mapping
                .tree
                .find(at.space(), between, page & !(pages(between) - 1));
            other.is_some_and(|other| self.mapping.tree.get(other).kind() == Kind::Page)
        };
        match fit {
            Fit::Exact => at.level() == level,
            Fit::Part => at.level() > level && !(level + 1..at.level()).any(is_other),
        }
    }

    fn take_entry(&mut self, node: u32, page: u64, walk: &Walk, rights: Rights) {
        let space = self.mapping.tree.get(node).space();
        if !self.owns(node, page, fit_of(walk.entry), walk.level) {
            return;
        }
        if rights.contains(Rights::R) {
            self.clear_entry(space, walk);
            self.mapping.tree.get_mut(node).live -= pages(walk.level) as u32;
        } else {
            self.change_entry(space, walk, lowered(walk.entry, rights));
        }
    }

    /// The same for all entries of one lowest table.
    fn take_table_of(&mut self, node: u32, slot: u64, rights: Rights) {
        let space = self.mapping.tree.get(node).space();
        if !self.owns(node, slot, Fit::Part, 0) {
            return;
        }
        self.budget -= 24 * UNIT;
        let walk = self.walk(space, slot, 0);
        let (mut taken, is_all) = (0, rights.contains(Rights::R));
        for place in self.hardware.table(walk.places[0].0) {
            let entry = place.load(Relaxed);
            if !is_present(entry) || fit_of(entry) == Fit::Exact {
                continue;
            }
            place.store(if is_all { 0 } else { lowered(entry, rights) }, Relaxed);
            taken += 1;
        }
        if taken == 0 {
            return;
        }
        self.note_change(space, &walk);
        if is_all {
            self.mapping.tree.get_mut(node).live -= taken;
            self.uncount(space, &walk, u64::from(taken));
        }
    }

    /// Forbids those ports of a block that belong to a mapping; false if not finished.
    fn take_ports(&mut self, node: u32, first: u64, level: u8) -> bool {
        let at = *self.mapping.tree.get(node);
        let count = pages(level).min(span(&at));
        if u64::from(at.live) == span(&at) {
            self.set_ports(at.space(), first, count, false);
            self.mapping.tree.get_mut(node).live -= count as u32;
            return true;
        }
        // Eight at once, for the cursor has no room for all of them.
        for port in first + 8 * u64::from(at.cursor)..first + count {
            if self.mapping.tree.get(node).live == 0 {
                break;
            }
            if self.budget <= 0 && port.is_multiple_of(8) {
                self.mapping.tree.get_mut(node).cursor = ((port - first) / 8) as u16;
                return false;
            }
            self.budget -= 1;
            if self.look(at.space(), port).is_none() {
                continue;
            }
            self.budget -= 7;
            let foreign = (0..at.level()).any(|lower| {
                let other = self.mapping.tree.find(at.space(), lower, port & !(pages(lower) - 1));
                other.is_some_and(|other| self.mapping.tree.get(other).kind() == Kind::Page)
            });
            if !foreign {
                self.set_ports(at.space(), port, 1, false);
                self.mapping.tree.get_mut(node).live -= 1;
            }
        }
        true
    }

    /// Splits a block off a mapping for somebody else: the space's entry is removed, and what is left counted.
    pub fn split_off(&mut self, node: u32, page: u64, level: u8) {
        let space = self.mapping.tree.get(node).space();
        if is_port(page) {
            let count = pages(level).min(span(self.mapping.tree.get(node)));
            self.set_ports(space, page, count, false);
            self.mapping.tree.get_mut(node).live -= count as u32;
            return;
        }
        let walk = self.walk(space, page, level);
        debug_assert!(walk.level == level && is_present(walk.entry), "nothing to split off");
        self.clear_entry(space, &walk);
        self.mapping.tree.get_mut(node).live -= pages(level) as u32;
    }
}
