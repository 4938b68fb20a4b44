//! The disk becomes larger, or smaller, while the system runs: somebody who was told so asks, and the next checkpoint takes what is new (decision 0211).
//!
//! The device is asked for its size then and at no other time. Blocks that are new are free for all, as any that are free: the bound of all programs rises at once, that of a program which
//! runs already stays. The heap that the store takes for them is the machine's, 100 KiB and 8 KiB for each 128 MiB of bitmaps at most, and stays as long as the store has these blocks.
//!
//! Of a disk that has become smaller nothing is taken back. The driver touches nothing behind its end: what is stored there cannot be read, checkpoints and syncs that need
//! such a block fail as on a disk with errors, and all is well again as soon as the disk has its size back and somebody has asked.

use abi::{Error, Rights, address::ROOT_DIRECTORY};
use kcore::wait::Key;
use store::{BLOCKS_MAX, BadSize, GrowError};

use crate::{
    Answer, Server, Stop, World,
    lives::{budget::Cost, continuation::Continuation, thread::Caller},
};

/// The cost of asking the device.
const COST_MEASURE: Cost = Cost::calling(1_000, 8);

impl Server {
    /// `SystemControl`: reads the size of the disk again, and with 1 takes what is new.
    pub(crate) fn disk_control<W: World>(&mut self, world: &mut W, caller: Caller, argument: u64) -> Answer {
        if argument > 1 {
            return Err(Error::BadArgument.into());
        }
        if let Continuation::Growth { number, blocks } = self.threads.record(caller.thread).continuation {
            return self.growth_answer(number, blocks);
        }
        self.validate(world, caller.domain, ROOT_DIRECTORY, Rights::D)?;
        if !self.budget.allows(COST_MEASURE) {
            return Err(Stop::Again);
        }
        self.budget.spend(COST_MEASURE);
        world.measure();
        self.checkpoint.disk_blocks = world.blocks();
        let blocks = world.blocks().min(BLOCKS_MAX);
        let has = self.store.stats().blocks;
        if argument == 0 || blocks == has {
            return Ok((0, 0));
        }
        if blocks < has {
            return Err(Error::DiskError.into());
        }
        self.enough_heap(world)?;
        self.store.grow_mounted(world, blocks).map_err(refusal)?;
        let number = self.checkpoint.request_generation();
        self.threads.record(caller.thread).continuation = Continuation::Growth { number, blocks };
        self.poll_checkpoint(world);
        self.growth_answer(number, blocks)
    }

    /// What a call is told that has asked the checkpoint with this number for so many blocks.
    fn growth_answer(&mut self, number: u64, blocks: u64) -> Answer {
        match self.checkpoint_reached(number) {
            None => Err(Stop::Wait(Key::Checkpoint)),
            Some(Err(error)) => Err(error.into()),
            // A checkpoint that went well has left it for want of heap.
            Some(Ok(())) if self.store.stats().blocks < blocks => Err(Error::NoMemory.into()),
            Some(Ok(())) => {
                self.renew_blocks();
                Ok((0, 0))
            }
        }
    }
}

/// The error that a task is told.
const fn refusal(error: GrowError) -> Error {
    match error {
        GrowError::Size(BadSize::TooLittle(_)) => Error::DiskFull,
        GrowError::Size(BadSize::Smaller(_) | BadSize::TooLarge(_)) | GrowError::Mount(_) => Error::DiskError,
    }
}
