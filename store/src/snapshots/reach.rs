//! What a snapshot holds of some groups, where its bitmap cannot be read: its table says the same. Waits for the disk.
//!
//! A mount for writing must not use a block that a snapshot needs, and needs blocks itself. So it reads the table and the maps of the snapshot, block by block, and notes
//! what they lead to in the groups that it does not know. This is not written: each mount finds it out again until a repair, and a power cut has nothing to leave.
//!
//! The heap is one bitmap block for each of these groups, and at most the entries of one node for each level. All of it comes back with the mount.

use super::format::Entry;
use super::loading::Telling;
use crate::bytes::Unread;
use crate::containers::{Map, push};
use crate::event::MountError;
use crate::geometry::BITS;
use crate::heap::{NoHeap, zeroed};
use crate::map::{FANOUT, LOST, MapRoot, entry_in};
use crate::superblock::Place;
use crate::table_format::{Decoded, decode, is_leaf, row_from};
use crate::table_loading::HEIGHT_MAX;
use crate::world::{BLOCK, World};
use alloc::vec::Vec;

/// Groups of which it is not known what is held, and what was found.
#[derive(Default)]
pub(super) struct Wanted(Map<usize, Vec<u64>>);

impl Wanted {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, group: usize) -> Result<(), NoHeap> {
        self.0.insert(group, zeroed(BITS / 64)?)?;
        Ok(())
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.0.pairs().map(|(group, words)| (group, &words[..]))
    }

    /// Notes the block of data with this number.
    fn note(&mut self, bit: u64) {
        let words = self.0.get_mut((bit / BITS) as usize);
        if let Some(word) = words.and_then(|words| words.get_mut((bit % BITS / 64) as usize)) {
            *word |= 1 << (bit % 64);
        }
    }
}

struct Walk<'a> {
    telling: Telling<'a>,
    wanted: &'a mut Wanted,
    /// Whether all that was to be read could be.
    is_whole: bool,
    /// Blocks that may still be read: no disk has more, but a stranger's may name one as often as it likes.
    left: u64,
}

/// Finds what a table leads to in some groups. If it cannot all be known, tells whether the disk has reported an error.
pub(super) fn find_reached(
    world: &mut impl World,
    telling: Telling<'_>,
    root: Place,
    wanted: &mut Wanted,
) -> Result<Option<bool>, MountError> {
    let left = telling.geometry.data_blocks();
    let mut walk = Walk {
        telling,
        wanted,
        is_whole: true,
        left,
    };
    if root.block != 0 {
        walk.table(world, root)?;
    }
    Ok((!walk.is_whole).then_some(walk.telling.is_unread))
}

impl Walk<'_> {
    fn note(&mut self, block: u64) {
        if self.telling.geometry.is_data(block) {
            self.wanted.note(block - self.telling.geometry.data_start());
        }
    }

    /// Reads a block, if it can be read and not too many were.
    fn read(&mut self, world: &mut impl World, place: Place) -> Result<Option<Vec<u8>>, MountError> {
        let bytes = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.telling.read(world, place.block, place)?
            }
            None => None,
        };
        self.is_whole &= bytes.is_some();
        Ok(bytes)
    }

    fn table(&mut self, world: &mut impl World, root: Place) -> Result<(), MountError> {
        let mut way = Vec::new();
        push(&mut way, (root, 1))?;
        while let Some((place, depth)) = way.pop().filter(|_| self.is_whole) {
            self.note(place.block);
            let Some(bytes) = self.read(world, place)? else {
                return Ok(());
            };
            let Ok(bytes) = <&[u8; BLOCK]>::try_from(&bytes[..]) else {
                return Ok(());
            };
            if is_leaf(bytes) {
                self.rows(world, bytes)?;
                continue;
            }
            match decode(bytes, abi::address::ADDRESS_BITS) {
                Ok(Decoded::Inner(children)) if depth < HEIGHT_MAX => {
                    for (_, place, _) in children {
                        push(&mut way, (place, depth + 1))?;
                    }
                }
                Err(Unread::NoHeap) => return Err(MountError::Memory),
                _ => self.is_whole = false,
            }
        }
        Ok(())
    }

    fn rows(&mut self, world: &mut impl World, leaf: &[u8; BLOCK]) -> Result<(), MountError> {
        let mut from = 0;
        while let Some(row) = row_from(leaf, from).filter(|_| self.is_whole) {
            row.bodies().iter().for_each(|place| self.note(place.block));
            let MapRoot { levels, entry } = row.map;
            self.note(entry.block);
            let place = Place {
                block: entry.block,
                checksum: entry.checksum,
            };
            if levels > 0 && entry.block != 0 && entry.block != LOST {
                self.nodes(world, levels, &[(0, place)])?;
            }
            let Some(next) = row.base.checked_add(1) else { break };
            from = next;
        }
        Ok(())
    }

    /// Notes what some nodes of a map lead to.
    fn nodes(&mut self, world: &mut impl World, level: u8, nodes: &[Entry]) -> Result<(), MountError> {
        if level > 1 {
            for &(_, place) in nodes {
                let Some(bytes) = self.read(world, place)? else {
                    return Ok(());
                };
                let Ok(bytes) = <&[u8; BLOCK]>::try_from(&bytes[..]) else {
                    return Ok(());
                };
                let mut below = Vec::new();
                for slot in 0..FANOUT {
                    let entry = entry_in(bytes, slot);
                    let (block, checksum) = (entry.block, entry.checksum);
                    self.note(block);
                    if block != 0 && block != LOST {
                        push(&mut below, (slot, Place { block, checksum }))?;
                    }
                }
                self.nodes(world, level - 1, &below)?;
            }
            return Ok(());
        }
        // These are nearly all, and are read many at a time.
        let geometry = self.telling.geometry;
        let are_there = nodes.iter().all(|(_, place)| geometry.is_data(place.block));
        let left = self.left.checked_sub(nodes.len() as u64).filter(|_| are_there);
        let Some(left) = left else {
            self.is_whole = false;
            return Ok(());
        };
        self.left = left;
        let wanted = &mut *self.wanted;
        self.is_whole &= self.telling.bitmaps(world, nodes, |_, bytes| {
            for slot in 0..bytes.map_or(0, |_| FANOUT) {
                let block = bytes.map_or(0, |bytes| entry_in(bytes, slot).block);
                if geometry.is_data(block) {
                    wanted.note(block - geometry.data_start());
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}
