//! Waiting for the disk: for format, mount and verify, which have nothing else to do. Nothing here takes heap.

use crate::checksum::Checksums;
use crate::containers::copied;
use crate::event::{MountError, Structure};
use crate::superblock::Place;
use crate::world::{BLOCK, DiskError, Frame, Operation, Request, World};
use alloc::vec::Vec;

/// Requests under way at a time.
const BATCH: usize = 16;

/// Performs up to [`BATCH`] requests and waits for all; the results stand in the places of the requests. The disk must be idle before.
fn perform(world: &mut impl World, operation: Operation, list: &[(u64, Frame)]) -> [Result<(), DiskError>; BATCH] {
    let mut results = [Err(DiskError); BATCH];
    let (mut sent, mut done) = (0, 0);
    while done < list.len() {
        while let Some(&(block, frame)) = list.get(sent) {
            let request = Request {
                tag: sent as u32,
                operation,
                block,
                frame,
            };
            if world.submit(request).is_err() {
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

/// Performs up to [`BATCH`] requests that must all succeed.
pub(crate) fn transfer(world: &mut impl World, operation: Operation, list: &[(u64, Frame)]) -> Result<(), DiskError> {
    let results = perform(world, operation, list);
    results.into_iter().take(list.len()).collect::<Result<(), _>>()
}

/// Flushes and waits.
pub(crate) fn flush(world: &mut impl World) -> Result<(), DiskError> {
    transfer(world, Operation::Flush, &[(0, Frame(0))])
}

/// Reads blocks and shows each; each by itself may fail.
pub(crate) fn read_blocks(
    world: &mut impl World,
    mut blocks: impl Iterator<Item = u64>,
    mut found: impl FnMut(u64, Result<&[u8; BLOCK], DiskError>) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let mut list = [(0, Frame(0)); BATCH];
    let mut frames = 0;
    let result = loop {
        let mut length = 0;
        while length < BATCH {
            if length == frames {
                let Some(frame) = world.alloc() else { break };
                list[frames].1 = frame;
                frames += 1;
            }
            let Some(block) = blocks.next() else { break };
            list[length].0 = block;
            length += 1;
        }
        if frames == 0 {
            break Err(MountError::Memory);
        }
        if length == 0 {
            break Ok(());
        }
        let results = perform(world, Operation::Read, &list[..length]);
        let mut each = results.into_iter().zip(&list[..length]);
        let shown = each.try_for_each(|(result, &(block, frame))| found(block, result.map(|()| world.bytes(frame))));
        if shown.is_err() {
            break shown;
        }
    };
    list[..frames].iter().for_each(|&(_, frame)| world.free(frame));
    result
}

/// Reads blocks that must be intact and shows each.
pub(crate) fn read_checked(
    world: &mut impl World,
    checksums: &Checksums,
    places: impl Iterator<Item = Place> + Clone,
    structure: Structure,
    mut found: impl FnMut(Place, &[u8; BLOCK]) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let blocks = world.blocks();
    if let Some(past_end) = places.clone().find(|place| place.block >= blocks) {
        return Err(MountError::Damaged(structure, past_end.block));
    }
    let mut wanted = places.clone();
    read_blocks(world, places.map(|place| place.block), |block, bytes| {
        let bytes = bytes.map_err(|DiskError| MountError::Disk)?;
        match wanted.next() {
            Some(place) if checksums.fit(place.checksum, block, bytes) => found(place, bytes),
            _ => Err(MountError::Damaged(structure, block)),
        }
    })
}

/// A copy of one block, if it can be read.
pub(crate) fn read_block(world: &mut impl World, block: u64) -> Result<Option<Vec<u8>>, MountError> {
    let mut copy = None;
    read_blocks(world, core::iter::once(block), |_, bytes| {
        copy = bytes.ok().map(|bytes| copied(bytes)).transpose()?;
        Ok(())
    })?;
    Ok(copy)
}
