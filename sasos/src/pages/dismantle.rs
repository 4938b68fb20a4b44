//! Emptying an object, or its end, in pieces, before it is deleted or cut short.
//!
//! What is dropped here would be dropped by the call in any case, or can be read again: pages of a transient object, and those of a persistent
//! one that the disk has. So a call that fails in a later piece leaves a persistent object as it was; a transient one has lost content that its
//! owner has asked to drop. The rest (dirty pages, what came back meanwhile) goes in one piece when the call takes effect.

use abi::{Rights, address::PAGE};

use crate::{
    Server, Step, Stop, World,
    directory::object::{ObjectId, Which},
    lives::thread::Caller,
    pages::release::Remembered,
};

/// Pages of a transient object that are dropped in one piece. One costs some 550 instructions.
pub const PIECE_PAGES: usize = 24;
/// The same of a persistent object, whose pages are looked at and dropped one by one.
const PIECE_CLEAN: usize = 12;

impl Server {
    /// Drops a piece of the pages of an object from address `from` to `to`: to be called again until it is done. Where it is stands
    /// in `progress.found` of the calling thread; a wrong place costs time only.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn dismantle_piece<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        id: ObjectId,
        from: u64,
        to: u64,
    ) -> Step<()> {
        let at = self.threads.record(caller.thread).progress.found;
        let start = if (from..=to).contains(&at) { at } else { from };
        let mut end = start;
        let object = self.objects.get(id);
        let most = if object.is_persistent() {
            PIECE_CLEAN
        } else {
            PIECE_PAGES
        };
        let mut looked = 0;
        while looked < most
            && let Some(place) = object.next_page(Which::Resident, end, to)
        {
            end = place.address + PAGE;
            looked += 1;
        }
        if looked < most {
            // What is left is little enough for the call itself.
            return Ok(());
        }
        if object.is_persistent() {
            self.drop_clean(world, id, start, end);
        } else {
            self.drop_pages(world, id, start, end, Remembered::Perhaps);
        }
        self.threads.record(caller.thread).progress.found = end;
        Err(Stop::Again)
    }

    /// Drops the pages of a persistent object in a range that the disk has as they are.
    fn drop_clean<W: World>(&mut self, world: &mut W, id: ObjectId, from: u64, to: u64) {
        let mut next = from;
        while let Some(place) = self.objects.get(id).next_page(Which::Resident, next, to) {
            next = place.address + PAGE;
            let Some(entry) = world.leaf_get(place.leaf, place.index) else {
                continue;
            };
            let object = self.objects.get_mut(id);
            let writable = !entry.write_withheld && entry.limits.contains(Rights::W);
            let dirty = object.slots.touch(place.slot).dirty.has(place.index);
            // A frame that somebody else has too may be on its way to the disk.
            if dirty || writable || world.frame_references(entry.frame) > 1 {
                continue;
            }
            object.complete = false;
            self.drop_pages(world, id, place.address, next, Remembered::Perhaps);
        }
    }
}
