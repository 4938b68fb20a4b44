//! A journal record on its way to the disk: items are put in, it is summed up, then written. What syncs and small checkpoints have in common.

use crate::event::Failure;
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::journal::{Chain, Draft, IsAhead, Item};
use crate::store::Store;
use crate::world::{Frame, Operation, World};

/// The cost of an item of a record, and of each byte of it.
const COST_ITEM: u64 = 400;
const COST_BYTE: u64 = 3;
/// The cost of summing up a piece of the record, beside its bytes.
const COST_SUM: u64 = 1_000;
/// The cost of copying a block of the record, and of having it written.
const COST_COPY: u64 = 3_000;

/// The record.
#[derive(Default)]
pub(crate) struct Recording {
    /// The end of the journal before it.
    draft: Option<(Chain, Draft)>,
    /// Blocks that are on their way.
    written: usize,
    /// Checksum and blocks, once it is summed up.
    summed: Option<(u64, u64)>,
    /// Whether it names pages.
    has_pages: bool,
}

impl Recording {
    /// Begins a record behind the end of a journal, with room for so many bytes of items.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn begin(
        &mut self,
        store: &Store,
        (chain, is_ahead): (Chain, IsAhead),
        item_bytes: usize,
    ) -> Result<(), NoHeap> {
        let draft = chain.draft(&store.checksums, item_bytes, is_ahead)?;
        *self = Self {
            draft: Some((chain, draft)),
            ..Self::default()
        };
        Ok(())
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.draft.is_some()
    }

    /// Forgets it.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.draft.as_ref().map_or(0, |(_, draft)| draft.room())
    }

    /// Puts an item in, for which there is [room](Recording::room); `false` if the budget does not allow it.
    pub(crate) fn put(&mut self, store: &mut Store, item: &Item) -> bool {
        let cost = COST_ITEM + COST_BYTE * item.bytes() as u64;
        if !store.may_go_on(cost) {
            return false;
        }
        store.spend(cost);
        self.put_paid(item);
        true
    }

    /// The same for one that was put into another record just now.
    pub(crate) fn put_again(&mut self, store: &mut Store, item: &Item) {
        store.spend(COST_ITEM + COST_BYTE * item.bytes() as u64);
        self.put_paid(item);
    }

    /// The same for an item that a larger step has paid for.
    pub(crate) fn put_paid(&mut self, item: &Item) {
        self.has_pages |= matches!(item, Item::Page { .. });
        if let Some((_, draft)) = &mut self.draft {
            draft.put(item);
        }
    }

    /// The place where the record begins that comes behind.
    fn start(store: &Store, chain: &Chain) -> u64 {
        store.geometry.journal_start(chain.generation) + chain.used
    }

    /// Sums the record up; tells whether that is done.
    pub(crate) fn sum_up(&mut self, store: &mut Store) -> bool {
        while self.summed.is_none()
            && let Some((chain, draft)) = &mut self.draft
        {
            let cost = COST_SUM + draft.left_to_sum() as u64;
            if !store.may_go_on(cost) {
                return false;
            }
            store.spend(cost);
            if let Some(checksum) = draft.sum_up(&store.checksums, Self::start(store, chain)) {
                self.summed = Some((checksum, draft.blocks().len() as u64));
            }
        }
        true
    }

    /// Writes the record, as far as the budget reaches, and counts the requests; tells whether all of it is on its way.
    pub(crate) fn write(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        outstanding: &mut usize,
        purpose: impl Fn(Frame) -> Purpose,
    ) -> Result<bool, Failure> {
        while let Some((chain, draft)) = &self.draft
            && let Some(piece) = draft.blocks().nth(self.written)
        {
            if !store.may_go_on(COST_COPY) {
                return Ok(false);
            }
            store.spend(COST_COPY);
            let frame = store.io.frame(world).ok_or(Failure::Memory)?;
            world.bytes_mut(frame).copy_from_slice(piece);
            *outstanding += 1;
            let block = Self::start(store, chain) + self.written as u64;
            store.io.submit(world, Operation::Write, block, frame, purpose(frame));
            self.written += 1;
        }
        Ok(true)
    }

    /// The record is durable: what comes next stands behind it. Gives the end of its journal, and whether the record names pages.
    pub(crate) fn done(&mut self) -> Option<(Chain, bool)> {
        let Self {
            draft,
            summed,
            has_pages,
            ..
        } = core::mem::take(self);
        let ((chain, _), (checksum, blocks)) = draft.zip(summed)?;
        Some((chain.after(checksum, blocks), has_pages))
    }
}
