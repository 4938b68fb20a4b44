//! Larger disks: a store that grows, and the power that is cut while it does.

use super::{Check, Driver, MEMORY};
use crate::disk::CrashDisk;
use crate::own::{self, Tried};
use crate::rng::Rng;
use crate::world::SimWorld;
use store::{BadSize, Failure, GrowError, MountError, MountMode, Store};

/// Blocks that one bitmap block tells of.
const GROUP: u64 = 32_768;
/// A disk of so many blocks is small because it is to be full.
const SMALL: u64 = 400;

impl Driver {
    /// The power is cut, the disk becomes larger, and the store grows, perhaps with more cuts on the way.
    pub(super) fn grow(&mut self) -> Check {
        let image = self.cut()?;
        let mut rng = self.rng.fork();
        let before = self.size_of(image.crash(&[], rng.fork()))?;
        let total = self.larger(image.blocks(), &mut rng);
        let mut image = image;
        image.set_blocks(total);
        loop {
            let is_cut = rng.one_in(2);
            let (cut, outcome) = self.try_to_grow(image, total, is_cut, &mut rng);
            image = cut;
            let only = [self.durable.clone()];
            self.check_image(image.crash(&[], rng.fork()), &only)?;
            let found = self.size_of(image.crash(&[], rng.fork()))?;
            if found != before && found != total {
                return Err(format!("a disk that grew from {before} to {total} has {found} blocks"));
            }
            match outcome {
                _ if is_cut => continue,
                Ok(()) if found != total => return Err(format!("grown to {total}, and has {found} blocks")),
                Ok(()) => self.tally.growths += 1,
                Err(GrowError::Size(BadSize::TooLittle(_))) => {}
                Err(GrowError::Mount(MountError::Disk | MountError::Recovery(Failure::Disk)))
                    if self.options.failing != 0 => {}
                Err(GrowError::Mount(
                    MountError::Memory | MountError::Recovery(Failure::Memory) | MountError::TooLarge { .. },
                )) if self.options.memory => {}
                Err(error) => return Err(format!("growing from {before} to {total}: {error:?}")),
            }
            break;
        }
        self.mount_again(image)?;
        Ok(())
    }

    /// The disk becomes larger while it is in use, and the next checkpoint is to take what is new.
    pub(super) fn grow_mounted(&mut self) -> Check {
        let mut rng = self.rng.fork();
        let total = self.larger(self.world.disk.blocks(), &mut rng);
        self.world.disk.set_blocks(total);
        match self.tried(|store, world| store.grow_mounted(world, total)) {
            Ok(()) | Err(GrowError::Size(BadSize::TooLittle(_))) => Ok(()),
            Err(error) => Err(format!("asked for {total} blocks: {error:?}")),
        }
    }

    /// A size for a larger disk: a little more, or with more bitmaps.
    fn larger(&self, blocks: u64, rng: &mut Rng) -> u64 {
        if self.options.blocks < SMALL {
            return blocks + 1 + rng.below(8);
        }
        let more = [1, 60, GROUP - 900, GROUP, 2 * GROUP + 50];
        blocks + *rng.pick(&more) + rng.below(30)
    }

    /// Lets the store grow; gives the disk as the power leaves it then, or in the middle.
    fn try_to_grow(
        &mut self,
        mut image: CrashDisk,
        total: u64,
        is_cut: bool,
        rng: &mut Rng,
    ) -> (CrashDisk, Result<(), GrowError>) {
        if is_cut {
            self.tally.growth_cuts += 1;
            image.set_fuse(rng.below(120));
        }
        if self.options.failing != 0 && rng.one_in(2) {
            image.set_failing(self.options.failing);
        }
        let mut world = SimWorld::new(image, MEMORY, rng.fork());
        if self.options.memory && rng.one_in(2) {
            world.memory.fail_at(rng.below(60), 1 + rng.below(20));
            own::fail_at(rng.below(400));
        }
        let outcome = {
            let _tried = Tried::begin();
            Store::grow(&mut world, total)
        };
        self.tally.refused_pages += world.memory.refused;
        let cut = world.disk.take_blown();
        let cut = cut.as_deref().unwrap_or(&world.disk);
        (cut.crash(&cut.draw_fates(rng), rng.fork()), outcome.map(drop))
    }

    fn size_of(&self, image: CrashDisk) -> Check<u64> {
        let mut world = SimWorld::new(image, MEMORY, Rng::new(0));
        let (store, _) = self.options.mount(&mut world, MountMode::ReadOnly)?;
        Ok(store.stats().blocks)
    }
}
