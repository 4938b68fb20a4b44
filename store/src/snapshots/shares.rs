//! What each snapshot holds alone: for those who choose one to drop. Waits for the disk.

use super::SnapshotName;
use super::format::Entry;
use super::loading::Telling;
use crate::containers::{push, push_reserved};
use crate::event::MountError;
use crate::geometry::BITS;
use crate::heap::{with_room, zeroed};
use crate::store::Store;
use crate::world::World;
use alloc::vec::Vec;

/// A chain that was read: its entries in ascending order, and how many of them were passed.
struct Read {
    name: SnapshotName,
    entries: Vec<Entry>,
    at: usize,
    alone: u64,
}

impl Store {
    /// The snapshots, each with the number of blocks that neither the state nor another snapshot has: they come back if it is dropped. What cannot be read
    /// counts for nobody. For one that was mounted and has no job under way.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn shares_of_snapshots(&self, world: &mut impl World) -> Result<Vec<(SnapshotName, u64)>, MountError> {
        let mut telling = Telling::new(&self.checksums, self.geometry, false);
        let mut all: Vec<Read> = with_room(self.snapshots.known.len())?;
        for known in &self.snapshots.known {
            let mut read = Read {
                name: known.record.name,
                entries: Vec::new(),
                at: 0,
                alone: 0,
            };
            telling.chain(world, (&known.record.name, &known.head), |_, _, _, link| {
                link.entries
                    .iter()
                    .try_for_each(|&entry| push(&mut read.entries, entry))?;
                Ok(())
            })?;
            push(&mut all, read)?;
        }
        let words = BITS / 64;
        let (mut once, mut more, mut own) = (zeroed(words)?, zeroed(words)?, Vec::new());
        while let Some(group) = all
            .iter()
            .filter_map(|read| read.entries.get(read.at))
            .map(|entry| entry.0)
            .min()
        {
            more.fill(0);
            once.fill(0);
            own.clear();
            for (place, read) in all.iter_mut().enumerate() {
                let Some(&entry) = read.entries.get(read.at).filter(|entry| entry.0 == group) else {
                    continue;
                };
                read.at += 1;
                let mut found = zeroed(words)?;
                telling.bitmaps(world, &[entry], |_, bytes| {
                    let bytes = bytes.map_or(&[][..], |bytes| bytes.as_chunks().0);
                    let places = found.iter_mut().zip(&mut once).zip(&mut more).zip(bytes);
                    for (((found, once), more), bytes) in places {
                        *found = u64::from_le_bytes(*bytes);
                        *more |= *once & *found;
                        *once |= *found;
                    }
                    Ok(())
                })?;
                push(&mut own, (place, found))?;
            }
            let used = self.allocation.used_words(group as usize);
            for (place, found) in &own {
                let words = found.iter().zip(&more).enumerate();
                let alone = words.map(|(at, (found, more))| found & !more & !used.get(at).copied().unwrap_or(0));
                let alone: u32 = alone.map(u64::count_ones).sum();
                all.get_mut(*place)
                    .into_iter()
                    .for_each(|read| read.alone += u64::from(alone));
            }
        }
        let mut shares = with_room(all.len())?;
        for read in &all {
            push_reserved(&mut shares, (read.name, read.alone));
        }
        Ok(shares)
    }

    /// What tells one state of an object's pages from another: two that are equal, on the same disk, are of equal pages. `None` where that is not known: there
    /// is no such object, or something of it is not as it is on the disk.
    pub fn mark_of(&self, base: u64) -> Option<[u64; 3]> {
        let row = self.table.get(base)?;
        let is_durable = self.maps.dirty_len() == 0 && !self.pending.by_object().has(base);
        let entry = row.map.entry;
        is_durable.then_some([entry.block, entry.checksum, u64::from(row.map.levels)])
    }
}
