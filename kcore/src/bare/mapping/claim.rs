//! The place that is claimed: where a gift is to stand whose event did not finish the clearing of it.
//!
//! A gift first flushes the pages that stand in its place. If that takes more than one event, threads on other processors could fill the place again as fast as it is
//! cleared, and keep the gift from its end. So the gift claims its place: nobody else gives anything there until the gift has the place. Others wait, but not for ever, for the
//! claimer may have gone away. The pages in the place only become fewer, so the clearing ends.
//!
//! One place is claimed at a time. Of the gifts that wait for a claim the oldest is next ([`Turn`]), and who has lost one is the youngest. The short ways of giving leave what goes to a claimed place's space to the general one.

use abi::Rights;

use super::{Mapping, Own, Position, Progress, Visit, open::PATIENCE, tables::Work, tree::NONE};
use crate::Hardware;

/// A claimed place.
#[derive(Copy, Clone)]
pub(super) struct Claim {
    /// The claimer, or zero.
    stamp: u64,
    pub space: u16,
    /// The first page, and how many.
    first: u64,
    count: u64,
    /// How many pieces of others wait for it.
    patience: u16,
}

impl Claim {
    /// None. No space has this number.
    pub const NONE: Self = Self {
        stamp: 0,
        space: u16::MAX,
        first: 0,
        count: 0,
        patience: 0,
    };

    /// Whether a place is claimed.
    pub const fn is_there(&self) -> bool {
        self.stamp != 0
    }
}

impl Mapping {
    /// An operation does not go on from here: others neither wait for its flush or its claim, nor let it go first. They finish the flush like any that has no caller.
    pub(in crate::bare) fn abandon(&mut self, position: Position) {
        self.abandon_flush(position.visit);
        if position.claim != 0 {
            self.give_up_place(position.claim);
        }
    }

    /// The same of the flush of one block.
    pub(super) fn abandon_flush(&mut self, visit: Visit) {
        if self.open.stamp == visit.stamp && !visit.joined {
            self.open.patience = 0;
        }
        self.turn.give_up(visit.stamp);
    }

    /// The claimed place: its space, its first page, how many.
    pub(super) fn claimed(&self) -> Option<(u16, u64, u64)> {
        let Claim {
            space, first, count, ..
        } = self.claim;
        self.claim.is_there().then_some((space, first, count))
    }

    /// From now on this place is claimed, or none.
    fn set_claim(&mut self, claim: Claim) {
        self.is_quiet = self.open.top == NONE && !claim.is_there();
        self.claim = claim;
    }

    /// A space is gone, and its number may be another one's.
    pub(super) fn forget_claim(&mut self, space: u16) {
        if self.claim.space == space {
            self.set_claim(Claim::NONE);
        }
    }

    /// A claimer has its place, or does not want it any more.
    fn give_up_place(&mut self, claimer: u64) {
        if self.claim.stamp == claimer {
            self.set_claim(Claim::NONE);
        }
        self.claim_turn.give_up(claimer);
    }
}

impl<H: Hardware> Work<'_, H> {
    /// Whether somebody else has claimed a place.
    fn is_other_claimed(&self) -> bool {
        let claim = &self.mapping.claim;
        claim.is_there() && claim.stamp != self.claim
    }

    /// The number by which this gift waits for its claim, or has it.
    fn claim_stamp(&mut self) -> u64 {
        if self.claim == 0 || self.has_claimed || self.mapping.claim_turn.has_passed(self.claim) {
            // Claims and flushes are counted together. Who has lost his claim, or his turn, is the youngest: else two that are older than a third could claim in turn.
            self.mapping.stamp += 2;
            self.claim = self.mapping.stamp;
            self.has_claimed = false;
        }
        self.claim
    }

    /// The clearing of so many pages goes on in another event: claims them, unless another place is claimed.
    pub(super) fn claim_place(&mut self, space: u16, first: u64, count: u64) {
        if self.claim != 0 && self.claim == self.mapping.claim.stamp {
            // The piece may have become another one.
            let claim = &mut self.mapping.claim;
            (claim.space, claim.first, claim.count) = (space, first, count);
            return;
        }
        let stamp = self.claim_stamp();
        let Mapping { claim, claim_turn, .. } = &mut *self.mapping;
        claim_turn.wait(stamp);
        if !claim.is_there() && claim_turn.is_over(stamp) {
            self.mapping.set_claim(Claim {
                stamp,
                space,
                first,
                count,
                patience: PATIENCE,
            });
            self.has_claimed = true;
        }
    }

    /// A piece of a gift begins that has a claim, or waits for one. Its own is renewed: only a claimer that has gone away tries the patience of others. For
    /// another one's it first helps.
    pub(super) fn minds_claims(&mut self) {
        if self.claim == 0 {
            return;
        }
        if self.is_other_claimed() {
            // A claim that others end meanwhile is not to go to a younger one.
            let stamp = self.claim_stamp();
            self.mapping.claim_turn.wait(stamp);
            self.help_to_clear();
        } else if self.mapping.claim.is_there() {
            self.mapping.claim.patience = PATIENCE;
        }
    }

    /// Whether somebody else has claimed some of these pages: then this piece is over. Others wait for nothing of this operation meanwhile, or the claimer could.
    /// The claim that comes next is this gift's if it is the oldest.
    pub(super) fn waits_for_place(&mut self, space: u16, first: u64, count: u64) -> bool {
        let claim = &self.mapping.claim;
        let is_apart = first >= claim.first + claim.count || claim.first >= first + count;
        if claim.space != space || is_apart || !self.is_other_claimed() {
            return false;
        }
        let stamp = self.claim_stamp();
        self.mapping.claim_turn.wait(stamp);
        self.mapping.abandon_flush(self.visit);
        self.help_to_clear();
        if !self.mapping.claim.is_there() {
            return false;
        }
        self.budget = 0;
        true
    }

    /// Does a piece of the clearing of the claimed place. Once nothing stands there its claimer comes next, unless he has gone away.
    fn help_to_clear(&mut self) {
        let Some((space, first, count)) = self.mapping.claimed() else {
            return;
        };
        let (visit, from) = (core::mem::replace(&mut self.visit, Visit::NONE), self.tables_from);
        self.tables_from = 0;
        let (progress, _) = self.flush_from(space, (first, first + count), first, Rights::RWX, Own::Too);
        // The flush stays open for whoever goes on with it: were it finished without its top, the top's space could give that on again.
        self.mapping.turn.give_up(self.visit.stamp);
        (self.visit, self.tables_from) = (visit, from);
        if progress == Progress::More {
            return;
        }
        let claim = &mut self.mapping.claim;
        if claim.patience == 0 {
            self.mapping.set_claim(Claim::NONE);
        } else {
            claim.patience -= 1;
        }
    }

    /// A piece stands in its place.
    pub(super) fn has_place(&mut self) {
        if self.claim != 0 {
            self.mapping.give_up_place(self.claim);
            self.claim = 0;
        }
    }
}
