//! The flush that stands open: one that its event did not finish.
//!
//! Who has a page that is being taken could give it on as fast as it is taken, and keep the flush from its end. So nobody gives on what comes from the top of
//! the flush that stands open before it is at its end, and no other flush begins above or below it: who wants to does a piece of that flush instead. What
//! hangs below only becomes less, so it ends. If its own caller goes away, the others finish it.
//!
//! One flush stands open at a time. A second one that its event does not finish goes on when the first is at its end, and helps it there. Of those that wait
//! the oldest is next ([`Turn`]): others could begin one flush after the other, and keep it waiting.
//!
//! Where the top goes with the flush, or is granted, nothing may be given from there until its caller comes again. So the flush stands open until then, and
//! others do nothing but wait, as long as their patience lasts: the caller may have gone away.
//!
//! While one stands open, the short ways of giving look at each page by itself whether it has to do with it, and the general way ([`super::give`]) does a small part of it.

use abi::Rights;

use super::{
    Mapping, Own, Progress, Visit,
    short::node_of,
    tables::Work,
    tree::{Key, Kind, LINKS, NONE},
};
use crate::{
    Hardware, Kernel,
    bare::{Bare, THREADS_MAX, going::UNIT},
};

/// Steps that giving does of a flush that has nothing to do with it: about a holder's worth.
const LITTLE: i32 = 6 * UNIT;

/// Further steps of a page that is given meanwhile: the short ways ask, some of them again, whether it comes from the top, at most some thirty givers away.
pub(super) const BESIDE_STEPS: i32 = 3 * UNIT;

/// Others that a flush waits for, or that wait for it, at most: its caller may have gone away.
pub(super) const PATIENCE: u16 = THREADS_MAX as u16;

/// Others that let the oldest go first until one of them does not. It is to be more than there are pieces of others between two of one, and so few that many that
/// never take their turn keep nobody for long.
const TURN_PATIENCE: u16 = 256;

/// The one that is next, where one can be at a time: the oldest of those that wait.
#[derive(Default)]
pub struct Turn {
    /// Its stamp, or zero.
    stamp: u64,
    /// How many others let it go first before one of them does not.
    pub(super) patience: u16,
    /// The last one that did not come although all had let it go first. Neither it nor an older one has another turn.
    passed: u64,
}

impl Turn {
    /// This one waits, unless an older one does. So it does not wait for those that begin later. To wait longer makes its turn no longer: else one that never
    /// takes it would keep it for ever.
    pub fn wait(&mut self, stamp: u64) {
        if self.stamp == 0 || stamp < self.stamp {
            (self.stamp, self.patience) = (stamp, TURN_PATIENCE);
        }
    }

    /// Whether this one is next, so that nobody waits any more; else it has let the oldest go first.
    pub fn is_over(&mut self, stamp: u64) -> bool {
        let is_next = self.stamp == 0 || stamp == self.stamp;
        if !is_next && self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        if !is_next {
            self.passed = self.stamp;
        }
        self.stamp = 0;
        true
    }

    /// Whether this one's turn has passed without it: it is to begin again, and is the youngest then.
    pub fn has_passed(&self, stamp: u64) -> bool {
        stamp <= self.passed
    }

    /// This one does not wait any more.
    pub fn give_up(&mut self, stamp: u64) {
        if self.stamp == stamp {
            self.stamp = 0;
        }
    }
}

impl Mapping {
    /// From now on this flush stands open, or none.
    fn set_open(&mut self, open: Visit) {
        self.open = open;
        self.is_quiet = open.top == NONE && !self.claim.is_there();
    }

    /// The flush of a block is at its end, by whatever way.
    pub(super) fn flush_is_done(&mut self, visit: Visit) {
        if self.open.stamp == visit.stamp {
            self.set_open(Visit::NONE);
        }
        self.turn.give_up(visit.stamp);
    }
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Whether a flush stands open.
    pub(in crate::bare) fn stands_open(&self) -> bool {
        self.half.mapping.open.top != NONE
    }

    /// How many of so many pages from this one on may be given to a space by the short ways.
    #[inline(always)]
    pub(super) fn given_short(&mut self, from: (u16, u64), to: u16, count: u64) -> u64 {
        if self.half.mapping.is_quiet {
            count
        } else {
            count.min(self.is_given_beside(from, to).into())
        }
    }

    /// Whether a page has nothing to do with the flush that stands open: it does not come from its top. Nor does it go to the space of the claimed place.
    #[cold]
    #[inline(never)]
    fn is_given_beside(&mut self, (from, page): (u16, u64), to: u16) -> bool {
        let Mapping { open, claim, .. } = &self.half.mapping;
        if claim.space == to || open.top == NONE {
            return claim.space != to;
        }
        let mut node = if self.small_source(from, page).is_some() {
            node_of(&self.hardware, &self.half.mapping.recent.source, page)
        } else if let Some((_, node)) = self.part_source(from, page) {
            node
        } else {
            return false;
        };
        let Mapping { tree, open, .. } = &self.half.mapping;
        while node != NONE && node != open.top {
            node = tree.get(node).parent;
        }
        node == NONE
    }

    /// Whether a slot may be linked by the short way.
    #[inline(always)]
    pub(super) fn links_short(&self, from: u16, to: u16, slot: u64) -> bool {
        let mapping = &self.half.mapping;
        mapping.is_quiet || mapping.claim.space != to && mapping.tree.find(from, LINKS, slot) != Some(mapping.open.top)
    }
}

impl<H: Hardware> Work<'_, H> {
    /// The top of the flush that stands open.
    pub(super) fn open_top(&mut self) -> Option<u32> {
        let Visit { top, stamp, .. } = self.mapping.open;
        if top == NONE {
            return None;
        }
        // A node that was taken has no place, and one that is another by now no such stamp. What came from the top went before it.
        let at = self.mapping.tree.get(top);
        if at.key() != Key::NONE && at.op | 1 == stamp | 1 {
            return Some(top);
        }
        self.mapping.set_open(Visit::NONE);
        None
    }

    /// The flush of a block ends its piece unfinished: it stands open, unless another one does.
    pub(super) fn leave_open(&mut self) {
        if self.open_top().is_some() {
            return;
        }
        // One that has stood open before, and was ended by others, is the youngest.
        let stamp = if self.visit.stood_open {
            u64::MAX
        } else {
            self.visit.stamp
        };
        // It may be older than those that wait: it did not wait while nothing stood open.
        self.mapping.turn.wait(stamp);
        if self.mapping.turn.is_over(stamp) {
            self.visit.stood_open = true;
            self.visit.joined = false;
            self.mapping.set_open(self.visit);
        }
    }

    /// With the flush that this operation leaves open the top itself goes. So that nothing comes from there until then, it stands open until this operation
    /// goes on.
    pub(super) fn keep_open(&mut self) {
        if self.mapping.open.stamp == self.visit.stamp && !self.visit.joined {
            self.mapping.open.patience = PATIENCE;
        }
    }

    /// The flush of a block is at its end.
    pub(super) fn close(&mut self) {
        self.mapping.flush_is_done(self.visit);
        self.visit = Visit::NONE;
    }

    /// Whether the flush of this block is under way, stood open, and somebody else finished it.
    pub(super) fn was_finished(&self, top: u32, frame: u32, level: u8, rights: Rights) -> bool {
        let visit = self.visit.of(top, (frame, level, rights));
        // The node may be that of another page by now.
        let is_there = self.visit.page == self.mapping.tree.get(top).page();
        self.visit == visit && is_there && visit.stood_open && visit.stamp != self.mapping.open.stamp
    }

    /// Helps the flush that stands open, if what would be given from a node is being taken: then what was found is to be looked for again.
    pub(super) fn helps_to_give(&mut self, node: u32) -> bool {
        let is_being_taken = self.open_top().is_some_and(|top| self.comes_from(node, top));
        if is_being_taken {
            self.help();
        }
        is_being_taken
    }

    /// The same before the flush of a block, if another one must be at its end first: it stands open above or below, or this one could not stand open for it.
    /// What stands open may be this very flush, though the operation has been elsewhere meanwhile.
    pub(super) fn helps_to_flush(&mut self, node: u32, block: (u32, u8, Rights), own: Own) -> bool {
        let Some(top) = self.open_top() else { return false };
        let open = self.mapping.open;
        let is_this = self.visit.stood_open && self.visit.stamp == open.stamp;
        let is_same = open.top == node && (open.frame, open.level, open.rights) == block;
        // One that leaves the top would end it before the top goes.
        if is_same && (is_this || own == Own::Too || open.patience == 0) {
            if !is_this {
                self.mapping.abandon_flush(self.visit);
            }
            // One whose caller has gone away is this operation's from now on.
            let joined = if is_this { self.visit.joined } else { open.patience > 0 };
            self.visit = Visit { joined, ..open };
            return false;
        }
        let is_other =
            self.comes_from(node, top) || self.comes_from(top, node) || !is_this && self.visit != Visit::NONE;
        if is_other {
            if self.visit.stood_open || self.mapping.turn.has_passed(self.visit.stamp) {
                // Others have finished this flush, or it is of another block of this operation, or has let its turn pass. Begun again it is younger than those that wait, and the operation does not
                // wait for itself.
                let visit = core::mem::replace(&mut self.visit, Visit::NONE);
                self.mapping.abandon_flush(visit);
            }
            self.stamp(node, block);
            self.mapping.turn.wait(self.visit.stamp);
            self.help();
            if self.open_top().is_none() {
                // However much that took, this flush comes next: at least it stands open then.
                self.budget = self.budget.max(UNIT);
            }
        }
        is_other
    }

    /// Whether a node is another one, or comes from it.
    fn comes_from(&mut self, node: u32, other: u32) -> bool {
        let mut at = node;
        self.budget -= UNIT / 2;
        while at != NONE && at != other {
            at = self.mapping.tree.get(at).parent;
            self.budget -= 1;
        }
        at == other
    }

    /// Does a piece of the flush that stands open. Its own caller takes the top's own pages.
    #[cold]
    pub(super) fn help(&mut self) {
        let Some(top) = self.open_top() else { return };
        let Visit {
            frame, level, rights, ..
        } = self.mapping.open;
        let open = self.mapping.open;
        let visit = core::mem::replace(&mut self.visit, open);
        let progress = self.revoke(top, frame, level, rights, Own::Kept);
        self.visit = visit;
        if progress == Progress::Done && open.patience > 0 {
            // Its caller comes next. Who helped waits, or would give from the top what is to be taken then.
            let patience = open.patience - 1;
            self.mapping.set_open(Visit { patience, ..open });
            self.budget = 0;
        }
        if self.mapping.tree.get(top).kind() == Kind::Table {
            self.unshare(top);
        }
    }

    /// Something is given while a flush stands open: if its caller has gone away, others finish it bit by bit.
    pub(super) fn help_a_little(&mut self) {
        if self.open_top().is_some() {
            let rest = self.budget - LITTLE;
            self.budget = LITTLE;
            self.help();
            self.budget += rest;
        }
    }
}
