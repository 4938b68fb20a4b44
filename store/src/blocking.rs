//! Waiting for the disk: for format, mount and verify, which have nothing else to do.

use crate::checksum::Key;
use crate::event::{MountError, Structure};
use crate::superblock::Place;
use crate::world::{BLOCK, DiskError, Frame, Operation, Request, World};
use alloc::vec;
use alloc::vec::Vec;

/// Requests under way at a time.
const BATCH: usize = 16;

/// Performs requests and waits for all. The disk must be idle before.
pub(crate) fn transfer(
    world: &mut impl World,
    operation: Operation,
    list: &[(u64, Frame)],
) -> Vec<Result<(), DiskError>> {
    let mut results = vec![Err(DiskError); list.len()];
    let (mut sent, mut done) = (0, 0);
    while done < list.len() {
        while let Some(&(block, frame)) = list.get(sent) {
            if world
                .submit(Request {
                    tag: sent as u32,
                    operation,
                    block,
                    frame,
                })
                .is_err()
            {
                break;
            }
            sent += 1;
        }
        world.wait();
        while let Some((tag, result)) = world.complete() {
            if let Some(place) = results.get_mut(tag as usize) {
                *place = result;
                done += 1;
            }
        }
    }
    results
}

/// Flushes and waits.
pub(crate) fn flush(world: &mut impl World) -> Result<(), DiskError> {
    transfer(world, Operation::Flush, &[(0, Frame(0))])
        .pop()
        .unwrap_or(Err(DiskError))
}

/// Reads blocks and copies them; each by itself may fail.
pub(crate) fn read_blocks(
    world: &mut impl World,
    blocks: &[u64],
) -> Result<Vec<Result<Vec<u8>, DiskError>>, MountError> {
    let mut found = Vec::with_capacity(blocks.len());
    let mut frames = Vec::new();
    for _ in 0..BATCH.min(blocks.len()) {
        match world.alloc() {
            Some(frame) => frames.push(frame),
            None if frames.is_empty() => return Err(MountError::Memory),
            None => break,
        }
    }
    for batch in blocks.chunks(frames.len().max(1)) {
        let list: Vec<(u64, Frame)> = batch.iter().copied().zip(frames.iter().copied()).collect();
        let results = transfer(world, Operation::Read, &list);
        for (result, &(_, frame)) in results.into_iter().zip(&list) {
            found.push(result.map(|()| world.bytes(frame).to_vec()));
        }
    }
    for frame in frames {
        world.free(frame);
    }
    Ok(found)
}

/// Reads blocks that must be intact.
pub(crate) fn read_checked(
    world: &mut impl World,
    key: Key,
    places: &[Place],
    structure: Structure,
) -> Result<Vec<Vec<u8>>, MountError> {
    let blocks: Vec<u64> = places.iter().map(|place| place.block).collect();
    if let Some(&past_end) = blocks.iter().find(|&&block| block >= world.blocks()) {
        return Err(MountError::Damaged(structure, past_end));
    }
    read_blocks(world, &blocks)?
        .into_iter()
        .zip(places)
        .map(|(bytes, place)| {
            let bytes = bytes.map_err(|DiskError| MountError::Disk)?;
            let intact = key.checksum(place.block, &bytes) == place.checksum;
            if intact {
                Ok(bytes)
            } else {
                Err(MountError::Damaged(structure, place.block))
            }
        })
        .collect()
}

/// A block as an array. (All our blocks have that length.)
pub(crate) fn as_block(bytes: &[u8]) -> Option<&[u8; BLOCK]> {
    bytes.try_into().ok()
}
