//! Making an empty store.
//!
//! An empty object table needs no node and an all-free bitmap no block, so only the superblocks
//! are written, whatever the size of the disk.

use crate::blocking::{flush, transfer};
use crate::checksum::Key;
use crate::event::{FormatError, FormatOptions};
use crate::geometry::Geometry;
use crate::heap::zeroed;
use crate::store::Store;
use crate::sums::Totals;
use crate::superblock::{Place, Superblock};
use crate::world::{DiskError, Frame, Operation, World};

/// The generation of a fresh store.
const FIRST_GENERATION: u64 = 1;

impl Store {
    /// Makes the disk an empty store. Whatever it held is lost.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn format(world: &mut impl World, options: &FormatOptions) -> Result<(), FormatError> {
        if options.address_bits != 47 && options.address_bits != 56 {
            return Err(FormatError::AddressBits);
        }
        let geometry = Geometry::new(world.blocks(), options.journal_blocks)?;
        let superblock = Superblock {
            generation: FIRST_GENERATION,
            nonce: world.next_u64(),
            key: Key {
                low: world.next_u64(),
                high: world.next_u64(),
            },
            of_version_1: false,
            leaves_are_told: true,
            totals: Totals::default(),
            writing: 0,
            snapshots: None,
            geometry,
            address_bits: options.address_bits,
            clean: true,
            journal_root: 0,
            table: Place::default(),
            objects: 0,
            high_water: options.first_slot,
            lease: options.first_slot,
            index: zeroed(geometry.index_blocks()).map_err(|_| FormatError::Memory)?,
        };
        let frame = world.alloc().ok_or(FormatError::Memory)?;
        let result = write_superblocks(world, frame, &superblock);
        world.free(frame);
        result.map_err(|DiskError| FormatError::Disk)
    }
}

fn write_superblocks(world: &mut impl World, frame: Frame, superblock: &Superblock) -> Result<(), DiskError> {
    // A superblock of an older store with a higher generation would win: it goes first.
    world.bytes_mut(frame).fill(0);
    let all = [0, 1, 2, 3].map(|block| (block, frame));
    transfer(world, Operation::Write, &all)?;
    flush(world)?;
    let first = Geometry::superblock(superblock.generation, 0);
    superblock.encode(first, world.bytes_mut(frame));
    let copies = [first, first + 1].map(|block| (block, frame));
    transfer(world, Operation::Write, &copies)?;
    flush(world)
}
