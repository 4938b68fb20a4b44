//! Spaces: upper page tables of their own, leaves that they share.
//!
//! `link` puts a leaf under one slot with the domain's rights: one entry for 2 MiB. Upper tables
//! are made when first needed and remembered with the place where they hang, so that a space is
//! emptied entry by entry and its tables go back as known zeroes. While few slots are linked, the space
//! has a list of them, and nobody has to look for entries in its tables (decision 0170).

mod stacks;

use alloc::vec::Vec;
use core::{mem::offset_of, sync::atomic::Ordering::Relaxed};

use abi::Rights;

use crate::{
    Frame, Hardware,
    frames::Frames,
    machine::Shortage,
    paging::{STRETCH, encode_link, encode_table, frame_of, is_present, stretch_mark},
    portal::Epochs,
};

pub use stacks::{STACKS_KEPT, STACKS_MAX, STACKS_OPEN};

/// A page table that serves one slot, wherever it is linked. One reference on its frame is its
/// own, one more stands for each link.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Leaf(Frame);

impl Leaf {
    /// The page table in this frame.
    pub(crate) const fn named(frame: Frame) -> Self {
        Self(frame)
    }

    /// A page table that only seems to be there.
    #[cfg(any(test, feature = "fake-hardware"))]
    pub const fn of_fake_hardware(number: u32) -> Self {
        Self(Frame::of_fake_hardware(number))
    }

    /// Its frame.
    #[inline(always)]
    pub const fn frame(self) -> Frame {
        self.0
    }
}

/// A space, by number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct SpaceId(pub u32);

impl SpaceId {
    /// No space.
    pub const NONE: SpaceId = SpaceId(u32::MAX);
}

/// A table of a space's own, and the entry that leads to it.
struct UpperTable {
    frame: Frame,
    parent: Frame,
    index: usize,
}

/// The lowest table in which something was linked last, by which stretch of addresses it serves, and the table above it.
#[derive(Copy, Clone)]
struct Lowest {
    /// The number of a slot in it, without the lowest nine bits; `u32::MAX` is none.
    number: u32,
    frame: Frame,
    above: Frame,
}

impl Lowest {
    const NONE: Self = Self {
        number: u32::MAX,
        frame: Frame::NOWHERE,
        above: Frame::NOWHERE,
    };
}

/// Slots that the list of a space has at most.
const LISTED: usize = 6;

/// The cost of taking a table out of a space, where a link costs one.
const COST_TABLE: u64 = 20;

/// In the value that loads a root: translations of this tag may be kept.
const KEEP_TRANSLATIONS: u64 = 1 << 63;

/// Whether the processor tags translations with their space (PCID on x86-64).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tags {
    /// Loading a root forgets all user translations.
    Absent,
    /// A root is loaded with its space's tag, and keeps what is still true.
    Present,
}

/// One space.
pub struct Space {
    /// Its root table.
    root: Frame,
    /// The value of the root register: root, tag, and whether translations may be kept. The
    /// fast path loads it as it is.
    load: u64,
    /// Tops of the free stacks of callee threads, for portals into this space: those below place [`STACKS_KEPT`]` + open`.
    stacks: [u64; STACKS_MAX],
    /// Calls that may enter by the fast path now. Below zero while more are inside than are free to all ([`STACKS_OPEN`]).
    open: i32,
    /// Stacks that it has, free or not.
    stack_count: u32,
    /// Not zero while threads may be waiting for one of them: returns then take the slow path.
    stacks_wanted: u32,
    /// Those of the protected calls from and into it that are remembered.
    pub(crate) epochs: Epochs,
    tables: Vec<UpperTable>,
    /// The table that most links go into. It stays while the space lives.
    lowest: Lowest,
    /// Slots at which something is linked.
    links: u32,
    /// Some of these slots: all, if they are as many as the links.
    listed: [u32; LISTED],
    listed_count: u8,
    /// Its place in [`Spaces::kept`], if it has one.
    kept: u8,
    live: bool,
}

/// Spaces whose translations may be kept at once. All of them are looked at where something is taken that any may have, however many spaces there are.
const KEPT_MAX: usize = 64;

/// Spaces that may exist, on any machine. Each has a tag of its own; tag 0 is the kernel's.
pub const SPACES_MAX: usize = 4095;
/// At least so many may exist on the smallest machine.
const SPACES_LEAST: usize = 16;
/// Frames for each space that may exist: one with a program in it takes as many, for its tables and its stack.
const FRAMES_EACH: u64 = 8;

/// So many spaces may exist on a machine with so many frames.
pub fn spaces_most(frames: u64) -> usize {
    usize::try_from(frames / FRAMES_EACH).map_or(SPACES_MAX, |most| most.clamp(SPACES_LEAST, SPACES_MAX))
}

/// All spaces.
pub struct Spaces {
    slots: Vec<Space>,
    /// Their place in memory, for the fast path in assembly.
    base: usize,
    free: Vec<u32>,
    /// So many may exist.
    most: usize,
    tags: Tags,
    /// Whether translations may be kept over loads of another root.
    keeps: bool,
    /// The spaces whose translations may be kept, by number; a new one takes the place of the one that was noted first.
    kept: [u32; KEPT_MAX],
    /// The place that is taken next.
    kept_next: usize,
}

/// The place of a slot's entry: indices into the three upper levels.
const fn places(slot: u64) -> [usize; 3] {
    [
        (slot >> 18) as usize & 511,
        (slot >> 9) as usize & 511,
        slot as usize & 511,
    ]
}

impl Spaces {
    /// Offset of the address of the first space, for the fast path in assembly.
    pub const BASE: usize = offset_of!(Self, base);

    /// No spaces, on a machine with so many frames.
    pub fn new(tags: Tags, frames: u64) -> Self {
        let most = spaces_most(frames);
        // Room for all, from the start: to move many spaces to a larger place is long work.
        let slots = Vec::with_capacity(most);
        Self {
            base: slots.as_ptr() as usize,
            slots,
            free: Vec::with_capacity(most),
            most,
            keeps: tags == Tags::Present,
            kept: [u32::MAX; KEPT_MAX],
            kept_next: 0,
            tags,
        }
    }

    /// From now on each load of a root forgets. The note of translations kept under a tag is one for all processors
    /// at once, which is too little where there are several.
    pub(crate) fn keep_nothing(&mut self) {
        self.forget_all();
        self.keeps = false;
    }

    /// The root of this space was loaded, so all that is remembered under its tag is true.
    pub(crate) fn loaded(&mut self, id: SpaceId) {
        if self.keeps {
            if self.kept[usize::from(self.get(id).kept)] != id.0 {
                self.note_kept(id);
            }
            self.get_mut(id).load |= KEEP_TRANSLATIONS;
        }
    }

    /// A space gets a place among those whose translations may be kept, and the one that has it forgets its own.
    #[cold]
    fn note_kept(&mut self, id: SpaceId) {
        let place = self.kept_next;
        self.kept_next = (place + 1) % KEPT_MAX;
        let before = core::mem::replace(&mut self.kept[place], id.0);
        if let Some(space) = self.slots.get_mut(before as usize) {
            space.load &= !KEEP_TRANSLATIONS;
        }
        self.get_mut(id).kept = place as u8;
    }

    /// Something was taken from this space: the next load forgets its translations.
    #[inline(always)]
    pub(crate) fn forget(&mut self, id: SpaceId) {
        if self.keeps {
            self.get_mut(id).load &= !KEEP_TRANSLATIONS;
        }
    }

    /// Something was taken from a leaf, which any space may hold.
    pub(crate) fn forget_all(&mut self) {
        if self.keeps {
            for &number in &self.kept {
                if let Some(space) = self.slots.get_mut(number as usize) {
                    space.load &= !KEEP_TRANSLATIONS;
                }
            }
        }
    }

    /// The value that loads a root under a tag, forgetting what was remembered under it.
    fn load_value(&self, root: Frame, number: usize) -> u64 {
        match self.tags {
            Tags::Absent => root.physical(),
            Tags::Present => root.physical() | (number as u64 + 1),
        }
    }

    /// The space with this number. A number that is not in use is a bug above and gets the first space.
    #[inline]
    pub fn get(&self, id: SpaceId) -> &Space {
        &self.slots[id.0 as usize]
    }

    /// Whether there is such a space.
    pub fn exists(&self, id: SpaceId) -> bool {
        self.slots.get(id.0 as usize).is_some_and(|space| space.live)
    }

    /// The spaces that there are.
    pub fn live(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        let numbers = (0..).map(SpaceId);
        numbers.zip(&self.slots).filter(|(_, space)| space.live)
    }

    /// A space that may not exist, to look at.
    #[inline(always)]
    pub fn find(&self, id: SpaceId) -> Option<&Space> {
        self.slots.get(id.0 as usize)
    }

    /// A space that may not exist.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.slots.get_mut(id.0 as usize)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SpaceId) -> &mut Space {
        &mut self.slots[id.0 as usize]
    }

    /// Makes a space that holds nothing but the kernel.
    ///
    /// # Errors
    /// [`Shortage::Spaces`], [`Shortage::Frames`].
    pub fn create(&mut self, frames: &mut Frames, hardware: &mut impl Hardware) -> Result<SpaceId, Shortage> {
        if self.free.is_empty() && self.slots.len() >= self.most {
            return Err(Shortage::Spaces);
        }
        let root = frames.take_zeroed(hardware)?;
        for &(index, entry) in hardware.kernel_entries() {
            hardware.table(root)[index].store(entry, Relaxed);
        }
        if let Some(number) = self.free.pop() {
            let load = self.load_value(root, number as usize);
            let space = &mut self.slots[number as usize];
            space.root = root;
            space.load = load;
            space.live = true;
            return Ok(SpaceId(number));
        }
        let number = self.slots.len();
        let load = self.load_value(root, number);
        self.slots.push(Space {
            root,
            load,
            stacks: [0; STACKS_MAX],
            open: 0,
            stack_count: 0,
            stacks_wanted: 0,
            epochs: Epochs::new(SpaceId(number as u32)),
            tables: Vec::new(),
            lowest: Lowest::NONE,
            links: 0,
            listed: [0; LISTED],
            listed_count: 0,
            kept: 0,
            live: true,
        });
        Ok(SpaceId(self.slots.len() as u32 - 1))
    }

    /// Destroys a space.
    pub fn destroy(&mut self, id: SpaceId, frames: &mut Frames, hardware: &mut impl Hardware) {
        if !self.slots[id.0 as usize].live {
            return;
        }
        self.trim(id, u64::MAX, frames, hardware);
        let space = &mut self.slots[id.0 as usize];
        for &(index, _) in hardware.kernel_entries() {
            hardware.table(space.root)[index].store(0, Relaxed);
        }
        frames.release_zeroed(space.root);
        (space.open, space.stack_count) = (0, 0);
        space.stacks_wanted = 0;
        space.epochs.forget_calls();
        space.epochs.forget_callers();
        space.live = false;
        self.free.push(id.0);
    }

    /// Takes links and upper tables out of a space, up to a quarter of so many of both and one table more; tells how many are left over,
    /// if no table is.
    pub fn trim(&mut self, id: SpaceId, work: u64, frames: &mut Frames, hardware: &mut impl Hardware) -> Option<u64> {
        let space = &mut self.slots[id.0 as usize];
        let mut left = work;
        // Children were made after their parents: take them off in the other direction. The next table may be full.
        while let Some(table) = space.tables.pop_if(|_| left == work || left > work / 4 * 3) {
            if table.parent != space.root && space.links > 0 {
                left = left.saturating_sub(space.unlink_all_of(&table, frames, hardware));
            }
            if table.frame == space.lowest.frame {
                space.lowest = Lowest::NONE;
            }
            hardware.table(table.parent)[table.index].store(0, Relaxed);
            frames.release_zeroed(table.frame);
            left = left.saturating_sub(COST_TABLE);
        }
        space.tables.is_empty().then_some(left)
    }

    /// Links a leaf at a slot, or changes the rights of what is linked there.
    ///
    /// # Errors
    /// [`Shortage::Frames`] if an upper table cannot be had.
    pub fn link(
        &mut self,
        id: SpaceId,
        slot: u64,
        leaf: Leaf,
        rights: Rights,
        frames: &mut Frames,
        hardware: &mut impl Hardware,
    ) -> Result<(), Shortage> {
        let space = &mut self.slots[id.0 as usize];
        let [first, second, third] = places(slot);
        let number = (slot >> 9) as u32;
        if space.lowest.number != number {
            let above = space.table_below(space.root, first, frames, hardware)?;
            let frame = space.table_below(above, second, frames, hardware)?;
            space.lowest = Lowest { number, frame, above };
        }
        let above = &hardware.table(space.lowest.above)[second];
        above.store(above.load(Relaxed) | stretch_mark(third), Relaxed);
        let place = &hardware.table(space.lowest.frame)[third];
        let before = place.load(Relaxed);
        place.store(encode_link(leaf.0, rights), Relaxed);
        if is_present(before) {
            frames.release(frame_of(before));
        } else {
            space.links += 1;
            space.list(slot);
        }
        frames.share(leaf.0);
        Ok(())
    }

    /// Removes what is linked at a slot.
    pub fn unlink(&mut self, id: SpaceId, slot: u64, frames: &mut Frames, hardware: &mut impl Hardware) {
        let space = &mut self.slots[id.0 as usize];
        let [first, second, third] = places(slot);
        let mut table = space.root;
        for index in [first, second] {
            let entry = hardware.table(table)[index].load(Relaxed);
            if !is_present(entry) {
                return;
            }
            table = frame_of(entry);
        }
        let entry = hardware.table(table)[third].load(Relaxed);
        if is_present(entry) {
            space.empty(table, third, frames, hardware);
            let listed = &space.listed[..space.listed_count.into()];
            if let Some(place) = listed.iter().position(|&listed| u64::from(listed) == slot) {
                space.unlist(place);
            }
        }
    }
}

impl Space {
    /// Offset of what is loaded into the root register.
    pub const LOAD: usize = offset_of!(Self, load);
    /// Offset of its epoch as a caller.
    pub const CALLER_EPOCH: usize = offset_of!(Self, epochs) + Epochs::CALLER;
    /// Offset of its epoch as a callee.
    pub const CALLEE_EPOCH: usize = offset_of!(Self, epochs) + Epochs::CALLEE;

    /// Its root table.
    #[inline(always)]
    pub fn root(&self) -> Frame {
        self.root
    }

    /// The value of the root register: root, tag, and whether translations may be kept.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.load
    }

    /// Page-table pages of its own, the root included.
    pub fn table_count(&self) -> u64 {
        self.tables.len() as u64 + 1
    }

    /// Slots at which something is linked.
    pub fn link_count(&self) -> u32 {
        self.links
    }

    /// The table under an entry, made if it is missing.
    fn table_below(
        &mut self,
        parent: Frame,
        index: usize,
        frames: &mut Frames,
        hardware: &mut impl Hardware,
    ) -> Result<Frame, Shortage> {
        let entry = hardware.table(parent)[index].load(Relaxed);
        if is_present(entry) {
            return Ok(frame_of(entry));
        }
        self.tables.try_reserve(1).map_err(|_| Shortage::Frames)?;
        let frame = frames.take_zeroed(hardware)?;
        hardware.table(parent)[index].store(encode_table(frame), Relaxed);
        self.tables.push(UpperTable { frame, parent, index });
        Ok(frame)
    }

    /// Notes a slot in the list, if there is a place.
    #[inline]
    fn list(&mut self, slot: u64) {
        if let Some(place) = self.listed.get_mut(usize::from(self.listed_count)) {
            *place = slot as u32;
            self.listed_count += 1;
        }
    }

    /// Takes a slot off the list by its place there.
    fn unlist(&mut self, place: usize) {
        self.listed_count -= 1;
        self.listed[place] = self.listed[usize::from(self.listed_count)];
    }

    /// Empties an entry of a lowest table that links something.
    #[inline]
    fn empty(&mut self, lowest: Frame, index: usize, frames: &mut Frames, hardware: &impl Hardware) {
        let place = &hardware.table(lowest)[index];
        let entry = place.load(Relaxed);
        place.store(0, Relaxed);
        frames.release(frame_of(entry));
        self.links -= 1;
    }

    /// Unlinks what a lowest table has, by the list of all that is linked. Tells how much that was.
    fn unlink_listed_of(&mut self, lowest: &UpperTable, frames: &mut Frames, hardware: &impl Hardware) -> u64 {
        let mut place = 0;
        let before = self.links;
        while let Some(&slot) = self.listed[..self.listed_count.into()].get(place) {
            let [first, second, third] = places(slot.into());
            if second == lowest.index && frame_of(hardware.table(self.root)[first].load(Relaxed)) == lowest.parent {
                self.empty(lowest.frame, third, frames, hardware);
                self.unlist(place);
            } else {
                place += 1;
            }
        }
        u64::from(before - self.links)
    }

    /// Unlinks what a lowest table has: looks through its stretches in which something was linked, where there is no list of it. Tells how much that was.
    fn unlink_all_of(&mut self, lowest: &UpperTable, frames: &mut Frames, hardware: &impl Hardware) -> u64 {
        let gone = self.unlink_listed_of(lowest, frames, hardware);
        if self.links == u32::from(self.listed_count) {
            return gone;
        }
        let before = self.links;
        let above = hardware.table(lowest.parent)[lowest.index].load(Relaxed);
        let stretches = hardware.table(lowest.frame).chunks_exact(STRETCH).enumerate();
        for (_, stretch) in stretches.filter(|&(number, _)| above & stretch_mark(number * STRETCH) != 0) {
            for places in stretch.chunks_exact(8) {
                if places.iter().fold(0, |all, place| all | place.load(Relaxed)) == 0 {
                    continue;
                }
                for place in places {
                    let entry = place.load(Relaxed);
                    if is_present(entry) {
                        place.store(0, Relaxed);
                        frames.release(frame_of(entry));
                        self.links -= 1;
                    }
                }
            }
        }
        gone + u64::from(before - self.links)
    }
}

#[cfg(test)]
pub(crate) use tests::spaces as fake_spaces;

#[cfg(test)]
mod tests {
    use super::*;

    /// So many spaces that only count epochs.
    pub(crate) fn spaces(count: u32) -> Spaces {
        let mut spaces = Spaces::new(Tags::Absent, u64::MAX);
        spaces.slots.extend((0..count).map(|number| Space {
            epochs: Epochs::new(SpaceId(number)),
            ..space(0)
        }));
        spaces
    }

    pub(super) fn space(load: u64) -> Space {
        Space {
            root: Frame::named(1),
            load,
            stacks: [0; STACKS_MAX],
            open: 0,
            stack_count: 0,
            stacks_wanted: 0,
            epochs: Epochs::new(SpaceId(0)),
            tables: Vec::new(),
            lowest: Lowest::NONE,
            links: 0,
            listed: [0; LISTED],
            listed_count: 0,
            kept: 0,
            live: true,
        }
    }

    #[test]
    fn translations_are_kept_only_between_a_load_and_the_next_revocation() {
        let mut spaces = Spaces::new(Tags::Present, u64::MAX);
        for number in 0..2 {
            let load = spaces.load_value(Frame::named(1), number);
            spaces.slots.push(space(load));
        }
        assert_eq!(spaces.get(SpaceId(1)).load, 0x1002, "tag 0 is the kernel's");
        spaces.loaded(SpaceId(0));
        spaces.loaded(SpaceId(1));
        assert_eq!(spaces.get(SpaceId(1)).load, 0x1002 | KEEP_TRANSLATIONS);
        spaces.forget(SpaceId(1));
        assert_eq!(spaces.get(SpaceId(1)).load, 0x1002);
        assert_eq!(spaces.get(SpaceId(0)).load, 0x1001 | KEEP_TRANSLATIONS);
        spaces.forget_all();
        assert_eq!(spaces.get(SpaceId(0)).load, 0x1001);
    }

    #[test]
    fn few_spaces_keep_translations_however_many_there_are() {
        let mut spaces = Spaces::new(Tags::Present, u64::MAX);
        for number in 0..1000 {
            let load = spaces.load_value(Frame::named(1), number);
            spaces.slots.push(space(load));
        }
        let kept = |spaces: &Spaces| {
            let keeps = |id: &u32| spaces.get(SpaceId(*id)).load & KEEP_TRANSLATIONS != 0;
            (0..1000).filter(keeps).collect::<Vec<u32>>()
        };
        for number in 0..1000 {
            spaces.loaded(SpaceId(number));
        }
        assert_eq!(kept(&spaces), (1000 - KEPT_MAX as u32..1000).collect::<Vec<u32>>());
        // One that goes between two of them takes nobody else's place.
        for number in [990, 991, 990, 991, 990] {
            spaces.forget(SpaceId(number));
            spaces.loaded(SpaceId(number));
        }
        assert_eq!(kept(&spaces).len(), KEPT_MAX);
        spaces.forget_all();
        assert_eq!(kept(&spaces), []);
        spaces.loaded(SpaceId(3));
        spaces.loaded(SpaceId(999));
        assert_eq!(kept(&spaces), [3, 999]);
        spaces.forget_all();
        assert_eq!(kept(&spaces), []);
    }

    #[test]
    fn without_tags_nothing_is_ever_kept() {
        let mut spaces = Spaces::new(Tags::Absent, u64::MAX);
        let load = spaces.load_value(Frame::named(7), 3);
        spaces.slots.push(space(load));
        spaces.loaded(SpaceId(0));
        assert_eq!(spaces.get(SpaceId(0)).load, 0x7000);
    }
}
