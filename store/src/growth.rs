//! Growing: the same store on more blocks of its disk. One that is mounted asks for it, and the next checkpoint does it (`checkpoint/growing.rs`); one that nobody
//! has mounted waits for the disk.
//!
//! One generation has the new size: its superblock names the blocks, and where more bitmaps are needed it has them at the beginning of what is new, so that
//! nothing of the two generations before is written over. A power cut leaves the old size or the new one
//! (docs/decisions/0206-send-receive-grow.md).

use crate::bitmaps::load_for_growth;
use crate::breaks::Breaks;
use crate::checksum::Checksums;
use crate::event::{CheckpointKind, Leaves, MountError, MountMode};
use crate::geometry::BadSize;
use crate::heap::zeroed;
use crate::mount::find_superblocks;
use crate::store::Store;
use crate::table_loading::load_table;
use crate::world::World;

/// Why a store did not grow. It is as it was.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum GrowError {
    /// It cannot be mounted, or not be written to.
    Mount(MountError),
    /// It cannot have this size.
    Size(BadSize),
}

impl From<MountError> for GrowError {
    fn from(error: MountError) -> Self {
        Self::Mount(error)
    }
}

impl Store {
    /// Has the next checkpoint take so many blocks of the disk. Begin one then: when it is done the store [has](Store::stats) them, unless there was no heap for that; if it
    /// fails the store keeps its size, and nobody tries again.
    ///
    /// # Errors
    /// [`GrowError`]: the store cannot have that size, or the disk has fewer blocks. The next checkpoint is as any other.
    pub fn grow_mounted(&mut self, world: &impl World, total: u64) -> Result<(), GrowError> {
        self.geometry.grown(total).map_err(GrowError::Size)?;
        if total > world.blocks() {
            return Err(MountError::Truncated(total, world.blocks()).into());
        }
        self.allocation.ask_to_grow(total);
        Ok(())
    }

    /// Has the store take so many blocks of its disk, and gives the number of before. What the journal says is made durable first. Afterwards the store is as
    /// one that was powered off.
    ///
    /// # Errors
    /// [`GrowError`].
    pub fn grow(world: &mut impl World, total: u64) -> Result<u64, GrowError> {
        let before = find_superblocks(world, MountMode::ReadWrite)?.current.geometry;
        // Nothing is written for a size that cannot be.
        before.grown(total).map_err(GrowError::Size)?;
        if total > world.blocks() {
            return Err(MountError::Truncated(total, world.blocks()).into());
        }
        let (store, _) = Self::mount(world, MountMode::ReadWrite)?;
        store.dismantle(world);
        let mut found = find_superblocks(world, MountMode::ReadWrite)?;
        found.require_usable(world, MountMode::ReadWrite)?;
        let geometry = found.current.geometry.grown(total).map_err(GrowError::Size)?;
        if geometry == before {
            return Ok(before.total);
        }
        let checksums = Checksums::new(found.current.key, found.current.of_version_1).map_err(MountError::from)?;
        let mut report = found.report()?;
        let previous = found.previous.as_ref().map(|(previous, _)| previous);
        let newest = (&found.current, previous);
        let parts = load_for_growth(world, &checksums, newest, geometry, &mut report)?;
        let table = load_table(world, &checksums, &found.current, Leaves::All)?;
        found.current.geometry = geometry;
        found.current.index = zeroed(geometry.index_blocks()).map_err(MountError::from)?;
        let mode = (MountMode::ReadWrite, Breaks::NONE);
        let mut store = found.store(mode, checksums, parts, table)?;
        let done = store
            .open_for_writing(world, found.checksum)
            .and_then(|()| store.commit_generation(world, CheckpointKind::Shutdown));
        store.dismantle(world);
        done?;
        Ok(before.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatOptions;
    use crate::plain::PlainWorld;

    /// What the two generations before need is not used for the first one of the new size, and neither is where it has its own bitmaps.
    #[test]
    fn the_bitmaps_of_before_are_held_while_a_store_grows() {
        const GROUP: u64 = 32_768;
        let mut world = PlainWorld::new(4 * GROUP);
        let mut small = PlainWorld::new(900);
        Store::format(&mut small, &FormatOptions::default()).expect("format");
        world.disk.clone_from(&small.disk);
        Store::grow(&mut world, 2 * GROUP).expect("it grows");
        let found = find_superblocks(&mut world, MountMode::ReadOnly).expect("intact");
        let before = found.current.geometry.among_data();
        assert_eq!(before, 900..909);
        let geometry = found.current.geometry.grown(4 * GROUP).expect("a size");
        let checksums = Checksums::new(found.current.key, false).expect("heap");
        let mut report = found.report().expect("heap");
        let newest = (&found.current, found.previous.as_ref().map(|(previous, _)| previous));
        let (mut allocation, _) =
            load_for_growth(&mut world, &checksums, newest, geometry, &mut report).expect("it loads");
        assert_eq!(allocation.held_blocks(), 9);
        for _ in 0..3000 {
            let block = allocation.alloc().expect("room");
            assert!(!before.contains(&block) && geometry.is_data(block), "{block}");
        }
        // Two commits later they are as any others.
        let free = allocation.free_blocks();
        allocation.commit(0);
        assert_eq!((allocation.held_blocks(), allocation.free_blocks()), (9, free));
        allocation.commit(1);
        assert_eq!((allocation.held_blocks(), allocation.free_blocks()), (0, free + 9));
    }
}
