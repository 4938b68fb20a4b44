//! The scrub of the superblocks: both copies of both pairs.
//!
//! A copy that has rotted while its twin has not is written anew as checkpoints do it anyway: in its pair it comes first, while the other one stands
//! (`copies.rs`). So the owner is told that a generation is [wanted](Store::wants_generation); a power cut in it leaves at least what there was.

use super::{At, Found, Item, Reading};
use crate::copies::COPIES;
use crate::event::{MountMode, Structure};
use crate::io::Purpose;
use crate::jobs::Running;
use crate::store::{COST_SIPHASH, Store};
use crate::superblock::{Place, Superblock, Unfit};
use crate::world::{DiskError, Frame, Operation, World};

impl Store {
    /// Whether generations are wanted that nothing else asks for: a copy of a superblock was found unreadable, and is written anew by one of the next two.
    pub fn wants_generation(&self) -> bool {
        self.copies.is_wanted()
    }

    pub(super) fn scrub_superblock(&mut self, block: u64) -> Found {
        if block >= COPIES {
            self.scrub.at = At::Inner(0);
            return Found::Next;
        }
        // What nothing may build on is wiped by the next generation.
        if self.copies.is_doubtful(block) {
            self.scrub.at = At::Superblock(block + 1);
            return Found::Next;
        }
        if self.copies.under_way > 0 {
            return Found::Waits;
        }
        let generation = self.generation;
        let checksum = 0;
        Found::Block(Item::Superblock { block, generation }, Place { block, checksum })
    }

    /// A copy has come.
    pub(super) fn superblock_arrived(
        &mut self,
        world: &mut impl World,
        mut reading: Reading,
        (block, generation): (u64, u64),
        result: Result<(), DiskError>,
    ) {
        self.spend(COST_SIPHASH);
        let frame = reading.frame;
        let is_written = !matches!(self.running, Running::Nothing) || self.copies.under_way > 0;
        let is_past = self.scrub.at != At::Superblock(block);
        if is_past || is_written || self.generation != generation || self.copies.is_doubtful(block) {
            // It may be half of what is being written: it is read again when that is over.
            world.free(frame);
            return;
        }
        let is_fit = match result {
            Ok(()) => self.is_fit_superblock(world, block, frame),
            Err(DiskError) => Ok(false),
        };
        match is_fit {
            Err(Unfit::NoHeap) => {
                world.free(frame);
                self.scrub.allowed = 0;
                return;
            }
            Ok(true) => {}
            _ if !reading.again => {
                reading.again = true;
                self.scrub.reading = Some(reading);
                self.io.submit(world, Operation::Read, block, frame, Purpose::Scrub);
                return;
            }
            _ => {
                // One that the mount has found so, or that could not be written, was told before.
                if !self.copies.is_bad(block) {
                    self.scrub_blames(Structure::Superblock, block, (0, 0, 0));
                }
                self.copies.note_bad(block);
                if self.mode != MountMode::ReadOnly {
                    self.copies.want(block, generation);
                }
            }
        }
        world.free(frame);
        self.scrub.report.seen += 1;
        self.scrub.at = At::Superblock(block + 1);
    }

    /// Whether a copy is what it should be. The pair of the generation before may be blank, or older: a store begins so, and a wiped copy is.
    fn is_fit_superblock(&self, world: &impl World, block: u64, frame: Frame) -> Result<bool, Unfit> {
        let bytes = world.bytes(frame);
        let is_current = block / 2 == self.generation % 2;
        match Superblock::decode(block, bytes) {
            Ok((found, _)) => {
                let is_older = found.generation < self.generation;
                let is_ours = found.key == self.checksums.key();
                // A mount for reading has written nothing: behind a power cut the second copy may be that of before.
                let may_be_older = !is_current || self.mode == MountMode::ReadOnly;
                Ok(is_ours && (found.generation == self.generation || may_be_older && is_older))
            }
            Err(Unfit::NoHeap) => Err(Unfit::NoHeap),
            Err(_) => Ok(!is_current && bytes.iter().all(|&byte| byte == 0)),
        }
    }
}
