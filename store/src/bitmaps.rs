//! Reading the bitmaps at a mount: block by block, so that none is ever in memory whole.

use crate::allocation::Allocation;
use crate::blocking::read_checked;
use crate::breaks::Breaks;
use crate::checksum::Checksums;
use crate::containers::push;
use crate::event::{MountError, MountReport, Structure};
use crate::geometry::{BITS, Geometry, SUMS, region_of};
use crate::heap::{NoHeap, zeroed};
use crate::snapshots::Snapshots;
use crate::snapshots::loading::{OnLost, hold_snapshots_before, load_snapshots};
use crate::superblock::{Place, Superblock};
use crate::world::{BLOCK, World};

/// The heap does not suffice. The numbers follow where there is the time to count.
const NO_HEAP: MountError = MountError::TooLarge { blocks: 0, heap: 0 };

fn no_heap(_: NoHeap) -> MountError {
    NO_HEAP
}

/// The allocator as the current generation has it, with what snapshots hold, and what is held for the generation before. Costs a read of each bitmap block of the two that is not all free.
///
/// # Errors
/// [`MountError`]: the current generation has damage, or the heap is too small for its groups. Damage in the one before is reported, and then nothing
/// is held for the blocks behind.
pub(crate) fn load_bitmaps(
    world: &mut impl World,
    checksums: &Checksums,
    (current, previous): (&Superblock, Option<&Superblock>),
    breaks: Breaks,
    (on_lost, report): (OnLost, &mut MountReport),
) -> Result<(Allocation, Snapshots), MountError> {
    load(world, checksums, (current, previous), breaks, (on_lost, report)).map_err(|error| match error {
        NO_HEAP => MountError::TooLarge {
            blocks: current.geometry.total,
            heap: Allocation::heap(&current.geometry, groups_in_use(world, checksums, current)),
        },
        other => other,
    })
}

fn load(
    world: &mut impl World,
    checksums: &Checksums,
    (current, previous): (&Superblock, Option<&Superblock>),
    breaks: Breaks,
    (on_lost, report): (OnLost, &mut MountReport),
) -> Result<(Allocation, Snapshots), MountError> {
    let geometry = current.geometry;
    let region = region_of(current.generation);
    let mut allocation = Allocation::new(geometry, breaks).map_err(no_heap)?;
    allocation.regions[region].index.copy_from_slice(&current.index);
    each_bitmap(world, checksums, current, |place, group, bytes| {
        let loaded = allocation.load(region, group, (bytes, place.checksum));
        if loaded.map_err(no_heap)? {
            Ok(())
        } else {
            let start = geometry.bitmap_start(region);
            Err(MountError::Damaged(Structure::Bitmap, start))
        }
    })?;
    let snapshots = load_snapshots(world, checksums, current, &mut allocation, (on_lost, report))?;
    if let Some(previous) = previous {
        hold_before(world, checksums, &mut allocation, (previous, &snapshots), report)?;
    }
    Ok((allocation, snapshots))
}

/// Holds what the generation before reaches, and what its snapshots held that are gone. Damage in its bitmap is reported, and then nothing is held for the blocks behind.
pub(crate) fn hold_before(
    world: &mut impl World,
    checksums: &Checksums,
    allocation: &mut Allocation,
    (previous, current): (&Superblock, &Snapshots),
    report: &mut MountReport,
) -> Result<(), MountError> {
    if let Some(block) = hold_snapshots_before(world, checksums, previous, allocation, current)? {
        push(&mut report.damage, (Structure::Bitmap, block))?;
    }
    // Its bitmaps may have stood where there are data now.
    for block in previous.geometry.among_data() {
        allocation.hold_block_before(block).map_err(no_heap)?;
    }
    let held = each_bitmap(world, checksums, previous, |_, group, bytes| {
        allocation.load_before(group, bytes).map_err(no_heap)
    });
    match held {
        Err(MountError::Damaged(structure, block)) => Ok(push(&mut report.damage, (structure, block))?),
        other => other,
    }
}

/// The allocator of a store as it will be when it has grown, in which no region of the disk has anything; held is what the newest two generations need.
pub(crate) fn load_for_growth(
    world: &mut impl World,
    checksums: &Checksums,
    (current, previous): (&Superblock, Option<&Superblock>),
    geometry: Geometry,
    report: &mut MountReport,
) -> Result<(Allocation, Snapshots), MountError> {
    let mut allocation = Allocation::new(geometry, Breaks::NONE)?;
    let mut words = zeroed(BITS / 64)?;
    each_bitmap(world, checksums, current, |place, group, bytes| {
        for (word, found) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*found);
        }
        if allocation.rebuild(group, &words)? {
            Ok(())
        } else {
            Err(MountError::Damaged(Structure::Bitmap, place.block))
        }
    })?;
    let snapshots = load_snapshots(world, checksums, current, &mut allocation, (OnLost::Refuse, report))?;
    // Until another generation is durable behind the first one of the new size, this one is what a mount falls back to.
    for block in current.geometry.among_data() {
        allocation.hold_block_before(block)?;
    }
    while allocation.keep_some() {}
    if let Some(previous) = previous {
        hold_before(world, checksums, &mut allocation, (previous, &snapshots), report)?;
    }
    Ok((allocation, snapshots))
}

/// Shows the bitmap blocks of a generation that are not all free, each with the number of its group.
fn each_bitmap(
    world: &mut impl World,
    checksums: &Checksums,
    superblock: &Superblock,
    mut show: impl FnMut(Place, usize, &[u8; BLOCK]) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let start = superblock.geometry.bitmap_start(region_of(superblock.generation));
    each_index(world, checksums, superblock, |world, first, sums| {
        let places = (start + first..).zip(sums).filter(|&(_, &checksum)| checksum != 0);
        let places = places.map(|(block, &checksum)| Place { block, checksum });
        read_checked(world, checksums, places, Structure::Bitmap, |place, bytes| {
            show(place, (place.block - start) as usize, bytes)
        })
    })
}

/// Shows the checksums that each index block of a generation holds, with the number of the first.
fn each_index<W: World>(
    world: &mut W,
    checksums: &Checksums,
    superblock: &Superblock,
    mut show: impl FnMut(&mut W, u64, &[u64]) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let geometry = superblock.geometry;
    let start = geometry.index_start(region_of(superblock.generation));
    let mut sums = zeroed(SUMS)?;
    for (at, &checksum) in (0..).zip(&superblock.index).filter(|&(_, &checksum)| checksum != 0) {
        let place = Place {
            block: start + at,
            checksum,
        };
        read_checked(
            world,
            checksums,
            core::iter::once(place),
            Structure::Bitmap,
            |_, bytes| {
                for (sum, found) in sums.iter_mut().zip(bytes.as_chunks().0) {
                    *sum = u64::from_le_bytes(*found);
                }
                Ok(())
            },
        )?;
        let first = at * SUMS;
        let count = geometry.bitmap_blocks().saturating_sub(first).min(SUMS) as usize;
        show(world, first, sums.get(..count).unwrap_or_default())?;
    }
    Ok(())
}

/// How many groups of the current generation are not all free, as far as that can be read: what a mount would have needed.
fn groups_in_use(world: &mut impl World, checksums: &Checksums, superblock: &Superblock) -> u64 {
    let mut count = 0;
    let _ = each_index(world, checksums, superblock, |_, _, sums| {
        count += sums.iter().filter(|&&sum| sum != 0).count() as u64;
        Ok(())
    });
    count
}
