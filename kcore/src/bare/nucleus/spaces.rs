//! Free spaces as programs see them: identifiers, who is above whom, who handles faults, and the
//! message buffers of the threads inside.

use alloc::collections::BTreeMap;

use abi::{
    Error,
    address::{PAGE, SLOT, slot_of},
    nucleus::MESSAGE_AREA,
};

use super::Nucleus;
use crate::{
    Frame, Hardware, Kernel, Leaf, Machine, PageEntry, SpaceId,
    bare::{
        Bare, THREADS_MAX,
        going::PIECE_STEPS,
        mapping::{DEPTH_MAX, Progress, TABLE_UNITS, UNIT_BYTES},
    },
    space::SPACES_MAX,
    thread::{State, Thread},
};

/// Slots that hold all message buffers.
const BUFFER_SLOTS: usize = THREADS_MAX * PAGE as usize / SLOT as usize;
/// Places of threads that are passed in a step.
const PLACES_A_STEP: i32 = 4;
/// The cost of a thread to its space: its place in the table, and its message buffer.
const THREAD_UNITS: u32 = (size_of::<Thread>().div_ceil(UNIT_BYTES) + PAGE as usize / UNIT_BYTES) as u32;
/// The further cost of a space's first message buffer: the tables above those of [`buffer_slot`].
const BUFFER_TABLES_UNITS: u32 = 2 * TABLE_UNITS;

/// The µ-kernel's record of a free space.
pub struct SpacePart {
    /// Its identifier: a version above its number.
    pub(in crate::bare) id: u64,
    /// The space that made it.
    pub(in crate::bare) parent: SpaceId,
    /// The receiver of its page faults.
    pub(in crate::bare) pager: u64,
    /// The receiver of its other exceptions.
    pub(in crate::bare) handler: u64,
    /// The one thread that its threads may send to; zero: to any.
    pub(in crate::bare) supervisor: u64,
    /// Threads in it.
    pub(in crate::bare) threads: u32,
    /// Leaves of its message buffers.
    buffers: [Option<Leaf>; BUFFER_SLOTS],
}

impl SpacePart {
    /// The units that the space is charged for its threads and their message buffers.
    fn lodged_units(&self) -> u32 {
        let tables = match self.buffers.iter().flatten().count() as u32 {
            0 => 0,
            leaves => BUFFER_TABLES_UNITS + leaves * TABLE_UNITS,
        };
        self.threads * THREAD_UNITS + tables
    }
}

impl Nucleus {
    pub(in crate::bare) fn part(&self, space: SpaceId) -> Option<&SpacePart> {
        self.spaces.get(space.0 as usize)?.as_ref()
    }

    pub(in crate::bare) fn part_mut(&mut self, space: SpaceId) -> Option<&mut SpacePart> {
        self.spaces.get_mut(space.0 as usize)?.as_mut()
    }

    /// The pager of a space, or zero.
    pub(in crate::bare) fn pager(&self, space: SpaceId) -> u64 {
        self.part(space).map_or(0, |part| part.pager)
    }

    /// The exception handler of a space, or zero.
    pub(in crate::bare) fn handler(&self, space: SpaceId) -> u64 {
        self.part(space).map_or(0, |part| part.handler)
    }

    /// The supervisor of a space, or zero.
    pub(in crate::bare) fn supervisor(&self, space: SpaceId) -> u64 {
        self.part(space).map_or(0, |part| part.supervisor)
    }

    /// The identifier of a space, or zero.
    pub(in crate::bare) fn id_of_space(&self, space: SpaceId) -> u64 {
        self.part(space).map_or(0, |part| part.id)
    }

    /// The space with an identifier.
    fn find_space(&self, id: u64) -> Option<SpaceId> {
        let space = SpaceId((id & 0xffff) as u32);
        (self.part(space)?.id == id).then_some(space)
    }

    /// Whether `above` made `space`, or one that made it.
    pub(in crate::bare) fn is_above(&self, above: SpaceId, space: SpaceId) -> bool {
        let mut at = space;
        for _ in 0..=DEPTH_MAX {
            let Some(part) = self.part(at) else { return false };
            if part.parent == above {
                return true;
            }
            at = part.parent;
        }
        false
    }

    /// Notes a new space. `id` zero would name none, so versions begin at one.
    fn enter(&mut self, space: SpaceId, parent: SpaceId, [pager, handler, supervisor]: [u64; 3]) -> Result<u64, Error> {
        let place = space.0 as usize;
        if self.spaces.len() <= place {
            // Room for all at once: nobody waits until all are moved to a larger place.
            let missing = SPACES_MAX - self.spaces.len();
            self.spaces.try_reserve_exact(missing).map_err(|_| Error::NoMemory)?;
            self.spaces.resize_with(place + 1, || None);
        }
        self.versions += 1;
        let id = self.versions << 16 | u64::from(space.0);
        self.spaces[place] = Some(SpacePart {
            id,
            parent,
            pager,
            handler,
            supervisor,
            threads: 0,
            buffers: [None; BUFFER_SLOTS],
        });
        Ok(id)
    }
}

impl<H: Hardware> Kernel<H, Bare> {
    /// The root program runs in `space`. Threads that are made for it from now on have message buffers.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn nucleus_root(&mut self, space: SpaceId) -> Result<(), Error> {
        self.make_room_to_go_on()?;
        self.half.nucleus.enter(space, SpaceId::NONE, [0; 3])?;
        self.half.nucleus.root = space;
        Ok(())
    }

    /// A space below the caller's, by its identifier.
    pub(super) fn space_below(&self, caller: SpaceId, id: u64) -> Result<SpaceId, Error> {
        let space = self.half.nucleus.find_space(id).ok_or(Error::BadAddress)?;
        if self.half.nucleus.is_above(caller, space) {
            Ok(space)
        } else {
            Err(Error::Protection)
        }
    }

    /// The caller's space (0, or by its identifier) or one below it.
    pub(super) fn space_own_or_below(&self, caller: SpaceId, id: u64) -> Result<SpaceId, Error> {
        if id == 0 || id == self.half.nucleus.id_of_space(caller) {
            return Ok(caller);
        }
        self.space_below(caller, id)
    }

    pub(super) fn bare_space_create(
        &mut self,
        caller: SpaceId,
        quota: u64,
        helpers: [u64; 3],
    ) -> Result<(u64, u64), Error> {
        let quota = u32::try_from(quota).map_err(|_| Error::BadArgument)?;
        let space = self.free_space_create(caller, quota)?;
        match self.half.nucleus.enter(space, caller, helpers) {
            Ok(id) => Ok((id, 0)),
            Err(error) => {
                // It is empty, so this is done at once.
                let _ = self.free_space_destroy(space);
                Err(error)
            }
        }
    }

    pub(super) fn bare_space_control(
        &mut self,
        caller: SpaceId,
        id: u64,
        [pager, handler, supervisor]: [u64; 3],
    ) -> Result<(u64, u64), Error> {
        let space = self.space_below(caller, id)?;
        if let Some(part) = self.half.nucleus.part_mut(space) {
            (part.pager, part.handler, part.supervisor) = (pager, handler, supervisor);
        }
        self.supervise(space, supervisor != 0);
        Ok((0, 0))
    }

    /// One piece of a space's deletion: from the spaces that have none below them upwards, threads first.
    pub(super) fn bare_space_delete(&mut self, caller: SpaceId, id: u64) -> Result<Progress, Error> {
        let target = self.space_below(caller, id)?;
        let space = self.first_to_go(target);
        if self.half.nucleus.part(space).is_some_and(|part| part.threads > 0) {
            self.delete_threads_of(space);
            return Ok(Progress::More);
        }
        self.drop_buffers(space);
        if self.free_space_destroy(space)? == Progress::More {
            return Ok(Progress::More);
        }
        self.half.nucleus.spaces[space.0 as usize] = None;
        Ok(if space == target {
            Progress::Done
        } else {
            Progress::More
        })
    }

    /// Deletes threads of a space, as many as may be in one piece.
    fn delete_threads_of(&mut self, space: SpaceId) {
        let (mut steps, mut index) = (PIECE_STEPS, 0);
        while let Some(passed) = self.threads().table[index..]
            .iter()
            .position(|thread| thread.space == space)
        {
            (steps, index) = (steps - i32::from(passed as u16) / PLACES_A_STEP, index + passed);
            let is_there = self.thread(index as u32).state != State::Free;
            if is_there && (steps <= 0 || self.bare_thread_delete(index as u32, &mut steps) == Progress::More) {
                return;
            }
            index += 1;
        }
    }

    /// Gives a thread in a free space its message buffer. The space pays for both, and for what the first one needs besides.
    pub(super) fn add_buffer(&mut self, index: u32, space: SpaceId) -> Result<(), Error> {
        let (slot, page) = place(index);
        let buffers = &self.half.nucleus.part(space).ok_or(Error::BadArgument)?.buffers;
        let units = match buffers[slot] {
            Some(_) => THREAD_UNITS,
            None if buffers.iter().any(Option::is_some) => THREAD_UNITS + TABLE_UNITS,
            None => THREAD_UNITS + TABLE_UNITS + BUFFER_TABLES_UNITS,
        };
        self.lodge(space, units)?;
        let Some((frame, leaf)) = self.buffer_make(space, slot) else {
            self.unlodge(space, units);
            return Err(Error::NoMemory);
        };
        self.leaf_set(leaf, page, Some(PageEntry::new(frame, abi::Rights::RW)));
        self.messages_of(index).set_buffer(Some(frame));
        if let Some(part) = self.half.nucleus.part_mut(space) {
            part.buffers[slot] = Some(leaf);
            part.threads += 1;
        }
        Ok(())
    }

    /// A page for a message buffer, and the leaf of its slot: it is made for the first thread there, and stays as long as the space.
    fn buffer_make(&mut self, space: SpaceId, slot: usize) -> Option<(Frame, Leaf)> {
        let frame = self.frame_zeroed().ok()?;
        let known = self.half.nucleus.part(space).and_then(|part| part.buffers[slot]);
        let leaf = known.or_else(|| {
            let leaf = self.leaf_create().ok()?;
            if self.link(space, buffer_slot(slot), leaf, abi::Rights::RW).is_err() {
                self.leaf_destroy(leaf);
                return None;
            }
            Some(leaf)
        });
        if leaf.is_none() {
            self.frame_release(frame);
        }
        Some((frame, leaf?))
    }

    /// Takes a thread's message buffer back.
    pub(super) fn drop_buffer(&mut self, index: u32, space: SpaceId) {
        let Some(frame) = self.messages_of(index).set_buffer(None) else {
            return;
        };
        let (slot, page) = place(index);
        if let Some(part) = self.half.nucleus.part_mut(space) {
            part.threads -= 1;
            if let Some(leaf) = part.buffers[slot] {
                self.leaf_set(leaf, page, None);
            }
        }
        self.unlodge(space, THREAD_UNITS);
        self.flush_page(abi::nucleus::message_buffer(u64::from(index)));
        self.frame_release(frame);
    }

    /// The units that spaces are charged for their threads and message buffers, by their numbers.
    pub(in crate::bare) fn lodged_units(&self) -> BTreeMap<u16, u32> {
        let parts = self.half.nucleus.spaces.iter().enumerate();
        let known = parts.filter_map(|(number, part)| Some((number as u16, part.as_ref()?)));
        known.map(|(number, part)| (number, part.lodged_units())).collect()
    }

    /// The space has no threads any more: its leaves for message buffers go.
    fn drop_buffers(&mut self, space: SpaceId) {
        let Some(part) = self.half.nucleus.part_mut(space) else {
            return;
        };
        let units = part.lodged_units();
        let leaves = core::mem::replace(&mut part.buffers, [None; BUFFER_SLOTS]);
        if leaves.iter().all(Option::is_none) {
            return;
        }
        for slot in (0..BUFFER_SLOTS).filter(|&slot| leaves[slot].is_some()) {
            self.unlink(space, buffer_slot(slot));
        }
        self.flush_space(space);
        self.unlodge(space, units);
        for leaf in leaves.into_iter().flatten() {
            self.leaf_destroy(leaf);
        }
    }

    /// The message buffer of a thread, if it has one.
    pub(super) fn buffer(&self, index: u32) -> Result<Frame, Error> {
        self.thread(index).ipc.buffer().ok_or(Error::BadAddress)
    }
}

/// The place of the message buffer of the thread in this place: slot of the area, page of the slot.
const fn place(index: u32) -> (usize, usize) {
    let pages = (SLOT / PAGE) as usize;
    (index as usize / pages, index as usize % pages)
}

const fn buffer_slot(slot: usize) -> u64 {
    slot_of(MESSAGE_AREA) + slot as u64
}
