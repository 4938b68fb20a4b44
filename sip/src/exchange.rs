//! The exchange heap: blocks that processes pass to one another, with exactly one owner each.
//!
//! A block's record holds its owner in one atomic word. Ownership changes only by compare-and-swap
//! from the present owner: `alloc` from free, `send` to in flight, `accept` from in flight, `free`
//! to free. So at every step, whatever runs beside it, a block is free, or one process's, or in one
//! message. Blocks of one size class that were freed wait in a tagged stack of their class.
//!
//! The records hold no memory: addresses are numbers here, so that the whole module is safe code and
//! is model-checked as it stands (`tests/exchange_loom.rs`). Handles, the per-process names of
//! blocks, are [`HandleTable`]'s.

use crate::layout::HANDLES_MAX;
use alloc::boxed::Box;

pub mod channels;
pub mod endpoints;
mod atomic {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
pub mod owners;
pub use channels::{Channels, End};
pub use owners::{Block, Owners, Process, SLOTS};

/// The reason for which an operation on a handle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeError {
    /// The handle names no block: forged, freed, or sent.
    Stale,
    /// The table of handles is full.
    Handles,
    /// The heap is full, or the size is over its greatest class.
    Memory,
    /// The slot is taken or there is none of this number, or a block would go into itself.
    Slot,
}

impl ExchangeError {
    /// The words for a user.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Stale => "the handle names no block (never given, freed, or sent)",
            Self::Handles => "too many blocks in one process",
            Self::Memory => "the exchange heap is full",
            Self::Slot => "the slot of the block is taken or not there",
        }
    }
}

/// Handles of a table.
const HANDLES: usize = HANDLES_MAX as usize;

/// An array that never stands on a stack.
#[allow(clippy::unnecessary_box_returns, reason = "that is what it is for")]
fn filled<T: Clone>(value: T) -> Box<[T; HANDLES]> {
    let boxed = alloc::vec![value; HANDLES].into_boxed_slice().try_into();
    boxed.unwrap_or_else(|_| unreachable!("it was made with that length"))
}

/// A process's names for its blocks. Compiled code reads `entries` through the instance context;
/// only the process's own calls change it.
pub struct HandleTable {
    process: Process,
    entries: Box<[[u64; 2]; HANDLES]>,
    blocks: Box<[Option<Block>; HANDLES]>,
    /// The place where the search for a free handle goes on, so that a handle is used again as late as possible.
    next: usize,
}

impl HandleTable {
    /// A table without blocks. Handle 0 is never given.
    pub fn new(process: Process) -> Self {
        Self {
            process,
            entries: filled([0; 2]),
            blocks: filled(None),
            next: 1,
        }
    }

    /// The entries, as compiled code reads them: base and length.
    pub fn entries(&self) -> *const [u64; 2] {
        self.entries.as_ptr()
    }

    fn index(handle: u32) -> usize {
        (handle & (HANDLES_MAX - 1)) as usize
    }

    /// The block of a handle.
    ///
    /// # Errors
    /// [`ExchangeError::Stale`].
    pub fn block(&self, handle: u32) -> Result<Block, ExchangeError> {
        self.blocks[Self::index(handle)].ok_or(ExchangeError::Stale)
    }

    /// The next place in the search; 0 is never given.
    const fn behind(at: usize) -> usize {
        if at + 1 < HANDLES { at + 1 } else { 1 }
    }

    fn enter(&mut self, owners: &Owners, block: Block) -> Result<u32, ExchangeError> {
        let at = if self.blocks[self.next].is_none() {
            self.next
        } else {
            let mut others = (self.next + 1..HANDLES).chain(1..self.next);
            others
                .find(|at| self.blocks[*at].is_none())
                .ok_or(ExchangeError::Handles)?
        };
        self.next = Self::behind(at);
        self.blocks[at] = Some(block);
        self.entries[at] = [owners.base(block), owners.length(block)];
        Ok(at as u32)
    }

    fn leave(&mut self, handle: u32) -> Result<Block, ExchangeError> {
        let at = Self::index(handle);
        let block = self.blocks[at].take().ok_or(ExchangeError::Stale)?;
        self.entries[at] = [0; 2];
        Ok(block)
    }

    /// Makes a block of this length.
    ///
    /// # Errors
    /// The heap or the table is full.
    pub fn alloc(&mut self, owners: &Owners, bytes: u64) -> Result<u32, ExchangeError> {
        let block = owners.alloc(self.process, bytes).ok_or(ExchangeError::Memory)?;
        self.enter(owners, block).inspect_err(|_| {
            owners.free(self.process, block);
        })
    }

    /// Ends a block.
    ///
    /// # Errors
    /// [`ExchangeError::Stale`], also at the second time.
    pub fn free(&mut self, owners: &Owners, handle: u32) -> Result<(), ExchangeError> {
        let block = self.leave(handle)?;
        if owners.free(self.process, block) {
            Ok(())
        } else {
            Err(ExchangeError::Stale)
        }
    }

    /// Takes a block out of the table into a message; its handle reads as length 0 from now on.
    ///
    /// # Errors
    /// [`ExchangeError::Stale`].
    pub fn send(&mut self, owners: &Owners, handle: u32) -> Result<Block, ExchangeError> {
        let block = self.leave(handle)?;
        if owners.send(self.process, block) {
            Ok(block)
        } else {
            Err(ExchangeError::Stale)
        }
    }

    /// Moves a block straight into another process's table: what [`send`](Self::send) there and
    /// [`accept`](Self::accept) here do, in one step. Yields its handle there; `None` if the handle names no
    /// block or the other table's next place is taken, and nothing has moved then.
    #[allow(
        clippy::inline_always,
        reason = "it is called in one place, where each instruction counts"
    )]
    #[inline(always)]
    pub fn pass(&mut self, owners: &Owners, handle: u32, to: &mut Self) -> Option<u32> {
        let (from, at) = (Self::index(handle), to.next % HANDLES);
        let block = self.blocks[from]?;
        let place = &mut to.blocks[at];
        if place.is_some() || !owners.pass(self.process, to.process, block) {
            return None;
        }
        *place = Some(block);
        self.blocks[from] = None;
        to.entries[at] = core::mem::take(&mut self.entries[from]);
        to.next = Self::behind(at);
        Some(at as u32)
    }

    /// Takes a block out of a message into the table.
    ///
    /// # Errors
    /// The table is full, or the block is not in flight. A block that finds no place is freed.
    pub fn accept(&mut self, owners: &Owners, block: Block) -> Result<u32, ExchangeError> {
        if !owners.accept(self.process, block) {
            return Err(ExchangeError::Stale);
        }
        self.enter(owners, block).inspect_err(|_| {
            owners.free(self.process, block);
        })
    }

    /// Moves a block into a slot of another: it leaves the table and belongs to that block.
    ///
    /// # Errors
    /// [`ExchangeError::Stale`] or [`ExchangeError::Slot`]; nothing has moved then.
    pub fn put(&mut self, owners: &Owners, parent: u32, slot: u32, child: u32) -> Result<(), ExchangeError> {
        let (into, block) = (self.block(parent)?, self.block(child)?);
        if !owners.put(self.process, into, slot, block) {
            return Err(ExchangeError::Slot);
        }
        self.leave(child).map(|_| ())
    }

    /// Moves the block in a slot of another into the table; 0 if the slot is empty.
    ///
    /// # Errors
    /// [`ExchangeError::Stale`], or the table is full and the block stays in its slot.
    pub fn take(&mut self, owners: &Owners, parent: u32, slot: u32) -> Result<u32, ExchangeError> {
        let from = self.block(parent)?;
        let Some(block) = owners.take(self.process, from, slot) else {
            return Ok(0);
        };
        self.enter(owners, block).inspect_err(|_| {
            owners.put(self.process, from, slot, block);
        })
    }

    /// Base and length of a handle's block; length 0 if it names none.
    pub fn range(&self, handle: u32) -> [u64; 2] {
        self.entries[Self::index(handle)]
    }

    /// The owner of these names.
    pub const fn process(&self) -> Process {
        self.process
    }

    /// Frees every block, when the process ends.
    pub fn clear(&mut self, owners: &Owners) {
        for handle in 1..self.blocks.len() as u32 {
            let _ = self.free(owners, handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn handles_go_stale() {
        let owners = Owners::new(0x10_0000, 1 << 20, 64);
        let (mut a, mut b) = (HandleTable::new(Process(1)), HandleTable::new(Process(2)));
        let first = a.alloc(&owners, 100).expect("room");
        assert_eq!(a.entries[first as usize], [0x10_0000, 100]);
        let block = a.send(&owners, first).expect("owned");
        assert_eq!(a.entries[first as usize], [0, 0]);
        assert_eq!(a.send(&owners, first), Err(ExchangeError::Stale));
        assert_eq!(a.free(&owners, first), Err(ExchangeError::Stale));
        let second = b.accept(&owners, block).expect("in flight");
        assert_eq!(b.accept(&owners, block), Err(ExchangeError::Stale));
        assert_eq!(b.entries[second as usize], [0x10_0000, 100]);
        assert_eq!(b.free(&owners, second), Ok(()));
        assert_eq!(b.free(&owners, second), Err(ExchangeError::Stale));
        assert_eq!(b.block(77), Err(ExchangeError::Stale));
    }

    #[test]
    fn memory_is_used_again_and_never_shared() {
        let owners = Owners::new(0x1000, 1 << 16, 64);
        let mut table = HandleTable::new(Process(1));
        for round in 0..1000u64 {
            let handles: Vec<u32> = (0..4)
                .map(|n| table.alloc(&owners, 1 + (round * 37 + n * 911) % 4000).expect("room"))
                .collect();
            let mut ranges: Vec<[u64; 2]> = handles.iter().map(|handle| table.entries[*handle as usize]).collect();
            ranges.sort_unstable();
            assert!(
                ranges.windows(2).all(|pair| pair[0][0] + pair[0][1] <= pair[1][0]),
                "{ranges:?}"
            );
            for handle in &handles {
                table.free(&owners, *handle).expect("owned");
            }
        }
        assert_eq!(table.alloc(&owners, 1 << 40), Err(ExchangeError::Memory));
    }

    #[test]
    fn trees_move_and_end_as_one() {
        let owners = Owners::new(0x1000, 1 << 20, 4096);
        let (mut a, mut b) = (HandleTable::new(Process(1)), HandleTable::new(Process(2)));
        let root = a.alloc(&owners, 10).expect("room");
        // A path too deep for a stack, with a leaf beside each step.
        let mut above = a.alloc(&owners, 10).expect("room");
        for _ in 0..1500 {
            let (parent, leaf) = (a.alloc(&owners, 10).expect("room"), a.alloc(&owners, 7).expect("room"));
            a.put(&owners, parent, 0, above).expect("free slot");
            assert_eq!(a.put(&owners, parent, 0, leaf), Err(ExchangeError::Slot));
            assert_eq!(a.put(&owners, parent, SLOTS, leaf), Err(ExchangeError::Slot));
            assert_eq!(a.put(&owners, leaf, 1, leaf), Err(ExchangeError::Slot));
            a.put(&owners, parent, 63, leaf).expect("free slot");
            assert_eq!(a.block(leaf), Err(ExchangeError::Stale));
            above = parent;
        }
        a.put(&owners, root, 5, above).expect("free slot");
        assert_eq!(a.put(&owners, root, 6, above), Err(ExchangeError::Stale));
        let block = a.send(&owners, root).expect("owned");
        assert_eq!(a.take(&owners, root, 5), Err(ExchangeError::Stale));
        let root = b.accept(&owners, block).expect("in flight");
        assert_eq!(b.take(&owners, root, 4), Ok(0));
        let above = b.take(&owners, root, 5).expect("room");
        assert_eq!(b.take(&owners, root, 5), Ok(0));
        let leaf = b.take(&owners, above, 63).expect("room");
        assert_eq!(b.entries[leaf as usize][1], 7);
        b.free(&owners, above).expect("owned");
        // 3,002 blocks were made; all but the root and one leaf are free again.
        let again: Vec<Block> = (0..3000).filter_map(|_| owners.alloc(Process(3), 10)).collect();
        assert_eq!(again.len(), 3000);
        assert_eq!(owners.used(), 3002);
    }
}
