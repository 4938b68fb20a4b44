//! Checking what tells of snapshots: both copies of everything can be read, no block tells of two things, and what the snapshots hold is held.
//!
//! Whether a snapshot is whole is seen by mounting it and checking that.

use super::{Check, Fault, Finding};
use crate::containers::{Map, push};
use crate::event::{MountError, Structure};
use crate::geometry::BITS;
use crate::heap::{NoHeap, zeroed};
use crate::snapshots::loading::Telling;
use crate::world::World;
use alloc::vec::Vec;

/// Blocks by group, as bits.
#[derive(Default)]
struct Blocks(Map<usize, Vec<u64>>);

impl Blocks {
    fn group(&mut self, group: usize) -> Result<&mut [u64], NoHeap> {
        if !self.0.has(group) {
            self.0.insert(group, zeroed(BITS / 64)?)?;
        }
        Ok(self.0.get_mut(group).map_or(&mut [][..], Vec::as_mut_slice))
    }

    /// Whether a block is not in yet; it is then.
    fn add(&mut self, bit: u64) -> Result<bool, NoHeap> {
        let mask = 1 << (bit % 64);
        let words = self.group((bit / BITS) as usize)?;
        let Some(word) = words.get_mut((bit % BITS / 64) as usize) else {
            return Ok(false);
        };
        let is_new = *word & mask == 0;
        *word |= mask;
        Ok(is_new)
    }
}

impl<W: World> Check<'_, W> {
    pub(super) fn snapshots(&mut self) -> Result<(), MountError> {
        let store = self.store;
        let Some(list) = store.snapshots.list else {
            return Ok(());
        };
        let mut telling = Telling::new(&store.checksums, store.geometry, true);
        let (mut held, mut tell) = (Blocks::default(), Vec::new());
        let names = telling.list(self.world, &list)?.unwrap_or_default();
        list.blocks.into_iter().try_for_each(|block| push(&mut tell, block))?;
        for (name, head) in names {
            telling.chain(self.world, (&name, &head), |telling, world, twin, link| {
                link.blocks(twin).try_for_each(|block| push(&mut tell, block))?;
                let shown = telling.bitmaps(world, &link.entries, |group, bytes| {
                    let found = bytes.map_or(&[][..], |bytes| bytes.as_chunks().0);
                    for (word, found) in held.group(group)?.iter_mut().zip(found) {
                        *word |= u64::from_le_bytes(*found);
                    }
                    Ok(())
                });
                shown.map(drop)
            })?;
        }
        let fault = if telling.is_unread {
            Fault::Unread
        } else {
            Fault::Rotten
        };
        for &block in &telling.bad {
            self.find(Finding::Damaged {
                structure: Structure::Snapshots,
                block,
                base: 0,
                page: 0,
                end: 0,
                fault,
            });
        }
        let start = store.geometry.data_start();
        for block in tell {
            if !store.geometry.is_data(block) || !held.add(block - start)? || store.allocation.is_used(block) {
                self.find(Finding::SharedBlock(block));
            }
        }
        // Of what cannot be read it is not known what is held.
        if telling.bad.is_empty() {
            self.held(&held);
        }
        Ok(())
    }

    /// Compares what is held with what should be.
    fn held(&mut self, should: &Blocks) {
        let (start, store) = (self.store.geometry.data_start(), self.store);
        for group in 0..store.allocation.bitmap_blocks() {
            let (is, should) = (store.allocation.held_words(group), should.0.get_ref(group));
            if is.is_empty() && should.is_none() {
                continue;
            }
            for at in 0..(BITS / 64) as usize {
                let is = is.get(at).copied().unwrap_or(0);
                let should = should.and_then(|words| words.get(at)).copied().unwrap_or(0);
                let wrong = is ^ should;
                for bit in (0..64).filter(|bit| wrong & (1 << bit) != 0) {
                    let block = start + group as u64 * BITS + at as u64 * 64 + bit;
                    let finding = if should & (1 << bit) != 0 {
                        Finding::MarkedFree
                    } else {
                        Finding::Leaked
                    };
                    self.find(finding(block));
                }
            }
        }
    }
}
