//! Taking an object away from the domains that have it.
//!
//! What a domain may do stands in its cache, and its links let user code do it. The caches are emptied at once, so that nothing
//! is derived any more from a right that is gone. Unlinking is work for each leaf and each domain, and where that
//! is much it is done in pieces: the domains wait in a list of the object, and the call that takes a right away comes back when
//! the list is empty. Should its thread end before, `Event::Poll` sees to the rest.

use abi::Rights;
use kcore::SpaceId;

use crate::{Server, Step, Stop, World, directory::object::ObjectId, lives::thread::Caller};

/// Links that are removed in one piece. One costs some 100 instructions.
pub const PIECE_LINKS: u64 = 96;

impl Server {
    /// Takes an object away from every domain that has it, at once. Who still has a right finds it again.
    pub fn withdraw<W: World>(&mut self, world: &mut W, id: ObjectId) {
        self.withdraw_begin(world, id);
        while !self.unlink_piece(world, id, u64::MAX) {}
    }

    /// The same in pieces: to be called again until it is done.
    ///
    /// # Errors
    /// [`Stop::Again`].
    pub(crate) fn withdraw_piece<W: World>(&mut self, world: &mut W, caller: Caller, id: ObjectId) -> Step<()> {
        let object = self.objects.get(id);
        let (base, serial) = (object.base(), object.serial);
        if self.threads.record(caller.thread).progress.done != serial {
            let links = object.holders.len() as u64 * object.slot_count();
            self.withdraw_begin(world, id);
            self.threads.record(caller.thread).progress.done = serial;
            if links > PIECE_LINKS {
                self.domains.unlinking.push((base, serial));
            }
        }
        if self.unlink_piece(world, id, PIECE_LINKS) {
            Ok(())
        } else {
            Err(Stop::Again)
        }
    }

    /// Goes on where the thread that began it has ended.
    pub(crate) fn poll_unlinking<W: World>(&mut self, world: &mut W) {
        let Some(&(base, serial)) = self.domains.unlinking.last() else {
            return;
        };
        let over = match self.objects.find_serial(base, serial) {
            Some(id) => self.unlink_piece(world, id, PIECE_LINKS),
            None => true,
        };
        if over {
            self.domains.unlinking.pop();
        }
    }

    /// Empties the caches of all domains that have an object.
    fn withdraw_begin<W: World>(&mut self, world: &mut W, id: ObjectId) {
        let mut had_procedures = false;
        let object = self.objects.get_mut(id);
        object.withdrawn += 1;
        for &space in &object.holders {
            let Some(domain) = self.domains.get_mut(space) else {
                continue;
            };
            if let Some(cached) = domain.cache.remove(id) {
                domain.forget_recent();
                had_procedures |= cached.rights.contains(Rights::P);
            }
        }
        object.unlinking.append(&mut object.holders);
        if had_procedures {
            world.portal_forget();
        }
    }

    /// Unlinks an object from domains that wait for it, up to so many links; tells whether that were all.
    fn unlink_piece<W: World>(&mut self, world: &mut W, id: ObjectId, most: u64) -> bool {
        let mut left = most;
        let object = self.objects.get_mut(id);
        while let Some(&space) = object.unlinking.last() {
            let mut any = object.unlink_from > 0;
            while let Some(number) = object.slots.next_with_leaf(object.unlink_from) {
                if left == 0 {
                    if let Some(domain) = self.domains.get_mut(space) {
                        domain.forget_recent();
                    }
                    return false;
                }
                world.unlink(space, object.first_slot() + number);
                object.unlink_from = number + 1;
                any = true;
                left -= 1;
            }
            // A domain that has found the object again meanwhile links it again.
            if any {
                if let Some(domain) = self.domains.get_mut(space) {
                    domain.forget_recent();
                }
                world.flush_space(space);
            }
            object.unlinking.pop();
            object.unlink_from = 0;
        }
        true
    }

    /// A domain ends, and its space with it: nothing needs to be unlinked from it.
    pub(crate) fn unlinking_ends(&mut self, space: SpaceId) {
        for &(base, serial) in &self.domains.unlinking {
            let Some(id) = self.objects.find_serial(base, serial) else {
                continue;
            };
            let object = self.objects.get_mut(id);
            if object.unlinking.last() == Some(&space) {
                object.unlink_from = 0;
            }
            object.unlinking.retain(|&other| other != space);
        }
    }

    /// Unlinks the slots of an object from number `from` on; tells whether there were any.
    pub(crate) fn unlink_slots<W: World>(&mut self, world: &mut W, space: SpaceId, id: ObjectId, from: u64) -> bool {
        let object = self.objects.get(id);
        let mut from = from;
        let mut any = false;
        while let Some(number) = object.slots.next_with_leaf(from) {
            world.unlink(space, object.first_slot() + number);
            any = true;
            from = number + 1;
        }
        any
    }
}
