//! A journal record on its way to the disk: items are put in, it is summed up, then written. What syncs and small checkpoints have in common.

use crate::event::Failure;
use crate::heap::NoHeap;
use crate::io::Purpose;
use crate::journal::{Draft, Item};
use crate::store::Store;
use crate::world::{Operation, World};

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
    draft: Option<Draft>,
    /// Blocks that are on their way.
    written: usize,
    /// Checksum and blocks, once it is summed up.
    summed: Option<(u64, u64)>,
    /// Whether it names pages.
    has_pages: bool,
}

impl Recording {
    /// Begins a record with room for so many bytes of items.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn begin(&mut self, store: &Store, item_bytes: usize) -> Result<(), NoHeap> {
        *self = Self {
            draft: Some(store.journal.draft(&store.checksums, item_bytes)?),
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
        self.draft.as_ref().map_or(0, Draft::room)
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

    /// The same for an item that a larger step has paid for.
    pub(crate) fn put_paid(&mut self, item: &Item) {
        self.has_pages |= matches!(item, Item::Page { .. });
        if let Some(draft) = &mut self.draft {
            draft.put(item);
        }
    }

    /// The place where the record begins.
    fn start(store: &Store) -> u64 {
        store.geometry.journal_start(store.generation) + store.journal.used
    }

    /// Sums the record up; tells whether that is done.
    pub(crate) fn sum_up(&mut self, store: &mut Store) -> bool {
        while let Some(draft) = &mut self.draft {
            let cost = COST_SUM + draft.left_to_sum() as u64;
            if !store.may_go_on(cost) {
                return false;
            }
            store.spend(cost);
            if let Some(checksum) = draft.sum_up(&store.checksums, Self::start(store)) {
                self.summed = Some((checksum, draft.blocks().len() as u64));
                break;
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
    ) -> Result<bool, Failure> {
        let start = Self::start(store);
        while let Some(piece) = self.draft.as_ref().and_then(|draft| draft.blocks().nth(self.written)) {
            if !store.may_go_on(COST_COPY) {
                return Ok(false);
            }
            store.spend(COST_COPY);
            let frame = store.io.frame(world).ok_or(Failure::Memory)?;
            world.bytes_mut(frame).copy_from_slice(piece);
            *outstanding += 1;
            let block = start + self.written as u64;
            let purpose = Purpose::Scratch(frame);
            store.io.submit(world, Operation::Write, block, frame, purpose);
            self.written += 1;
        }
        Ok(true)
    }

    /// The record is durable: what comes next stands behind it.
    pub(crate) fn done(&mut self, store: &mut Store) {
        if let Some((checksum, blocks)) = self.summed.take() {
            store.journal = store.journal.after(checksum, blocks);
            store.is_sealed = !self.has_pages;
        }
        self.clear();
    }
}
