//! Freezing the dirty pages of a checkpoint, and letting them go, in pieces.
//!
//! A checkpoint holds the state of one moment, and there may be many dirty pages; but no event may take long. So the
//! *phase of freezing* goes over many events ([`crate::Event::Poll`], asked for by [`Server::is_unfinished`]), and its end
//! is the moment that the checkpoint holds. Frozen pages must not differ from it:
//!
//! * a page that is frozen has writing withheld. A thread that writes it first freezes some others, as does one that makes another page of a
//!   persistent object dirty, so that there is an end; then the page is dirty again, and frozen once more (decision 0205);
//! * a page that is not frozen yet may be written: it is frozen later, as it is then;
//! * calls that drop or replace pages of objects, or change their limits, wait for the end of the phase, and so does a write to a frozen page whose
//!   frame a clone has, too, or another page.
//!
//! Threads that do none of this are not stopped (decision 0034).
//!
//! When the checkpoint is over the frames are released in pieces too; only then is it over for those who wait.

use abi::{
    Call,
    address::{PAGE, slot_of},
};
use kcore::wait::Key;
use store::{CheckpointKind, DirtyPage, Failure, Store};

use crate::{
    Server, Step, Stop, World,
    accounts::Resource,
    directory::object::{ObjectId, PageAt, Which},
    durability::checkpoint::{Running, error_of},
    lives::budget::Cost,
    pages::clone::withhold,
    pages::pager::{store_frame, to_flags},
};

/// Pages that are frozen, or let go, in one piece, at most.
pub const PIECE_PAGES: usize = 16;
/// The cost of freezing a page, and of letting one go, in instructions, roughly; the further cost of telling of a sync, or of giving slots back.
const COST_FREEZE: Cost = Cost::calling(800, 2);
pub(crate) const COST_LET_GO: Cost = Cost::calling(300, 1);
const COST_OVER: Cost = Cost::own(1_100);
/// The further cost of letting a page go whose page table is not that of the page before it: its object and its slot are looked for.
const COST_GOES_APART: Cost = Cost::own(500);
/// The cost of the end of the phase: the store begins the checkpoint, and those who waited are woken.
const COST_BEGIN: Cost = Cost::calling(2_850, 1);
/// Bytes of heap without which no piece is begun: what the list may grow by, and to spare.
const PIECE_HEAP: u64 = 64 << 10;
/// The cost of a look at a page table for dirty pages.
pub(crate) const COST_TABLE: Cost = Cost::own(120);
/// The further cost of the first page of a page table: the store looks for its promises elsewhere than for those of the last one.
const COST_APART: Cost = Cost::own(2_400);
/// Page tables that are looked through at once.
const LOOK_TABLES: u64 = 16;

/// How far the phase of freezing is.
pub(crate) struct Freezing {
    /// Number of the checkpoint.
    pub(crate) number: u64,
    /// The object that is being frozen, and where in it to go on.
    at: Option<(ObjectId, u64)>,
}

impl Freezing {
    pub(crate) const fn new(number: u64) -> Self {
        Self { number, at: None }
    }
}

/// Whether a call must not be done while pages are being frozen.
pub(crate) const fn waits_for_freezing(call: Call) -> bool {
    matches!(
        call,
        Call::ObjDelete
            | Call::ObjRetire
            | Call::ObjResize
            | Call::KeepObject
            | Call::PageCopy
            | Call::PageUnMap
            | Call::PageLimit
    )
}

impl Server {
    /// Whether there is work left that waits for nothing, of the store, a checkpoint, a revocation, or a round of looks at threads that are to end: then
    /// `Event::Poll` is due soon.
    #[inline]
    pub fn is_unfinished(&self) -> bool {
        self.store.is_stopped()
            || self.checkpoint.is_freezing()
            || self.checkpoint.is_letting_go()
            || !self.work.is_empty()
            || self.threads.dooms.is_under_way()
    }

    /// Does a piece of the work that a checkpoint has left.
    pub(crate) fn checkpoint_piece<W: World>(&mut self, world: &mut W) {
        if self.checkpoint.polling {
            return;
        }
        if let Some(freezing) = self.checkpoint.freezing.take() {
            self.freeze_piece(world, freezing);
        } else if self.checkpoint.is_letting_go() {
            self.let_go_piece(world);
        }
    }

    /// A piece of freezing is the price of a write meanwhile. It freezes two pages at least, where there are so many, and one becomes dirty: so
    /// the phase ends, however much is written.
    ///
    /// # Errors
    /// [`Stop::Again`]: less was done.
    pub(crate) fn pay_for_freezing<W: World>(&mut self, world: &mut W) -> Step<()> {
        let before = self.pager.dirty;
        self.checkpoint_piece(world);
        if self.checkpoint.is_freezing() && before > 0 && self.pager.dirty + 2 > before {
            return Err(Stop::Again);
        }
        Ok(())
    }

    fn freeze_piece<W: World>(&mut self, world: &mut W, mut freezing: Freezing) {
        if world.heap().1 < PIECE_HEAP {
            self.freeze_fails(world, freezing.number, Failure::Memory);
            return;
        }
        let mut left = PIECE_PAGES;
        while left > 0 {
            let Some(id) = self.objects.first_dirty() else {
                self.freeze_done(world, freezing);
                return;
            };
            if self.objects.get(id).dirty == 0 {
                self.objects.unlist_dirty(id);
                left -= 1;
                continue;
            }
            // Dirty pages behind the end are nobody's content.
            if self.objects.get(id).cut.is_some() {
                self.cut_piece(world, id);
                break;
            }
            let object = self.objects.get_mut(id);
            object.checkpoint = freezing.number;
            let (base, end) = (object.base(), object.end());
            let from = freezing
                .at
                .filter(|at| at.0 == id && at.1 < end)
                .map_or(base, |at| at.1);
            match self.freeze_dirty(world, id, (from, end), (left, true), Store::freeze_page) {
                Ok(frozen) => {
                    left = left.saturating_sub(frozen.pages.max(1));
                    freezing.at = Some((id, frozen.next));
                    if !self.budget.is_left() {
                        break;
                    }
                }
                Err(reason) => {
                    self.freeze_fails(world, freezing.number, reason);
                    return;
                }
            }
        }
        self.checkpoint.freezing = Some(freezing);
    }

    /// All is frozen: this is the moment that the checkpoint holds.
    fn freeze_done<W: World>(&mut self, world: &mut W, freezing: Freezing) {
        // A sync that failed may have to be undone first, and behind the last checkpoint comes no sync.
        let last = self.checkpoint.is_closing();
        if !self.store.is_ready() || !self.budget.allows(COST_BEGIN) || (last && self.checkpoint.has_syncs()) {
            self.checkpoint.freezing = Some(freezing);
            return;
        }
        self.budget.spend(COST_BEGIN);
        let number = freezing.number;
        self.store.raise_high_water(self.addresses.mark());
        let kind = if last {
            CheckpointKind::Shutdown
        } else if self.checkpoint.makes_generation(number) {
            CheckpointKind::Generation
        } else {
            CheckpointKind::Periodic
        };
        // Only this module begins checkpoints, so the store is free.
        if self
            .store
            .checkpoint_begin(world, alloc::vec::Vec::new(), kind)
            .is_err()
        {
            self.freeze_fails(world, number, Failure::Checkpoint);
            return;
        }
        self.checkpoint.begun = number;
        self.checkpoint.changed = false;
        self.checkpoint.running = Some(Running { number, result: None });
        self.ledger.begin_round();
        world.wake(Key::Checkpoint, u32::MAX);
    }

    /// There was no room for the list. The frozen pages are dirty again, and nothing is lost.
    fn freeze_fails<W: World>(&mut self, world: &mut W, number: u64, reason: Failure) {
        self.say(world, format_args!("checkpoint failed before it began: {reason:?}"));
        self.store.freeze_cancel();
        self.checkpoint.begun = number;
        self.checkpoint.running = Some(Running {
            number,
            result: Some(Err(error_of(reason))),
        });
    }

    fn let_go_piece<W: World>(&mut self, world: &mut W) {
        let failed = self.checkpoint.last_result().is_some_and(|result| result.is_err());
        let mut table = None;
        for _ in 0..PIECE_PAGES {
            if !self.budget.spend(COST_LET_GO) {
                return;
            }
            if let Some(page) = self.store.page_over() {
                let slot = slot_of(page.base + page.page * PAGE);
                let is_paid = table.replace(slot) == Some(slot) || self.budget.spend(COST_GOES_APART);
                self.let_go(world, &page, failed);
                if !is_paid {
                    return;
                }
            } else if self.checkpoint_over_step(world) {
                self.budget.spend(COST_OVER);
            } else {
                self.checkpoint_over(world);
                return;
            }
        }
    }

    /// The next page of some in a range of addresses, which `from` moves on to. None: `from` is as far as this has looked, the end of the range if no such
    /// page is there. The caller's price of a page has one page table in it; further ones are spent here.
    pub(crate) fn look_on(&mut self, id: ObjectId, which: Which, from: &mut u64, to: u64) -> Option<PageAt> {
        let mut left = LOOK_TABLES;
        let place = self.objects.get(id).next_near(which, from, to, &mut left);
        self.budget
            .spend(COST_TABLE.times((LOOK_TABLES - left).saturating_sub(1)));
        place
    }

    /// Freezes up to `most` dirty pages of an object in a range of addresses and hands them over: the store gets a
    /// reference on each frame, and the next write to it makes a copy. A piece of a checkpoint, which goes on in further events (`goes_on`), ends when the budget is
    /// used up, and holds the frames.
    ///
    /// # Errors
    /// That of `hand_over`; the page that it did not take is dirty as before.
    pub(crate) fn freeze_dirty<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        range: (u64, u64),
        (most, goes_on): (usize, bool),
        mut hand_over: impl FnMut(&mut Store, DirtyPage) -> Result<(), Failure>,
    ) -> Result<Frozen, Failure> {
        let mut frozen = Frozen {
            pages: 0,
            next: range.0,
        };
        let (mut taken_away, mut table) = (false, None);
        let mut result = Ok(());
        // Each event gets on, however much was spent before.
        while frozen.pages < most && (frozen.next == range.0 || !goes_on || self.budget.is_left()) {
            let Some(place) = self.look_on(id, Which::Dirty, &mut frozen.next, range.1) else {
                if frozen.next >= range.1 {
                    break;
                }
                continue;
            };
            self.budget
                .spend(freezing(table.replace(place.slot) != Some(place.slot)));
            let object = self.objects.get_mut(id);
            if let Some(entry) = world.leaf_get(place.leaf, place.index) {
                let page = DirtyPage {
                    base: object.base(),
                    page: object.page_of(place.address),
                    frame: store_frame(entry.frame),
                    flags: to_flags(entry.limits),
                };
                if goes_on && world.frame_is_held(entry.frame) {
                    // It was written behind its freezing, and stands in the list.
                    self.store.unreserve(page.base, page.page);
                } else {
                    result = hand_over(&mut self.store, page);
                    if result.is_err() {
                        break;
                    }
                    // With a hold it can be told from a frame that several have.
                    if goes_on && world.frame_references(entry.frame) == 1 {
                        world.frame_hold(entry.frame);
                    } else {
                        world.frame_share(entry.frame);
                    }
                }
                taken_away |= withhold(world, place.leaf, place.index);
            }
            object.slots.touch(place.slot).dirty.clear(place.index);
            object.dirty -= 1;
            frozen.pages += 1;
            frozen.next = place.address + PAGE;
        }
        if frozen.pages > 0 {
            self.pager.dirty -= frozen.pages as u64;
            let payer = self.objects.get(id).account;
            self.ledger.give(payer, Resource::Dirty, frozen.pages as u64);
        }
        if taken_away {
            world.flush_everything();
        }
        result.map(|()| frozen)
    }
}

/// The cost of freezing a page, which may be the first one of its page table.
pub(super) fn freezing(apart: bool) -> Cost {
    if apart {
        COST_FREEZE.and(COST_APART)
    } else {
        COST_FREEZE
    }
}

/// How far freezing a range has got.
pub(crate) struct Frozen {
    /// Pages frozen.
    pub(crate) pages: usize,
    /// The address to go on at; the end of the range if nothing is left of it.
    pub(crate) next: u64,
}
