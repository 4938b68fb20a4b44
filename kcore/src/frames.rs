//! Physical memory: frames by counted references.
//!
//! One 32-bit cell a frame. A used frame's cell counts references, or names another frame that its one holder has with it; a free
//! frame's cell names the next free one. There are two free lists, one of frames known to be full of zeroes (tables that
//! were emptied entry by entry, frames zeroed while idle). Memory that was never used is not on a
//! list but above a rising mark, so starting costs nothing.

use alloc::{vec, vec::Vec};

use crate::{Hardware, machine::Shortage};

/// Bytes in a frame.
pub const PAGE_BYTES: usize = 4096;

/// A frame of physical memory. Its holder may take it for memory: a frame comes from the allocator ([`Frames`]), or out of an entry
/// that the kernel wrote (decision 0071). A number from elsewhere becomes one by [`Frames::find`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(u32);

impl Frame {
    /// The first page of memory, which is nobody's: stands where there is no frame yet.
    pub(crate) const NOWHERE: Self = Self(0);

    /// The frame that one of this crate's tables names.
    #[inline(always)]
    pub(crate) const fn named(number: u32) -> Self {
        Self(number)
    }

    /// A frame of memory that only seems to be there.
    #[cfg(any(test, feature = "fake-hardware"))]
    pub const fn of_fake_hardware(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The frame's physical address.
    pub const fn physical(self) -> u64 {
        (self.0 as u64) << 12
    }
}

const NONE: u32 = u32::MAX;
/// In the cell of a frame with one reference: the other bits name the one beside it. Frames are fewer.
const BESIDE: u32 = 1 << 31;
/// In the cell of a frame with references: one of them is a [hold](Frames::hold). There are fewer references.
const HELD: u32 = 1 << 30;

/// A range of frame numbers that is memory: first, one past the last.
pub type Range = (u32, u32);

/// The use of a frame, as far as the allocator knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Use {
    /// It is in use, with so many references.
    Counted(u32),
    /// It is free.
    Free,
    /// It is free and known to be full of zeroes.
    Zeroed,
    /// It is free and was never used.
    Untouched,
    /// The allocator does not have it.
    Outside,
}

/// The allocator of frames.
pub struct Frames {
    cells: Vec<u32>,
    /// All that is handed out.
    ranges: Vec<Range>,
    any: u32,
    zeroed: u32,
    zeroed_count: u32,
    /// Ranges not yet touched, the last one first in use.
    untouched: Vec<Range>,
    free: u64,
    total: u64,
    /// Those that the kernel took for good; they are not in the total.
    kept: u64,
}

impl Frames {
    /// An allocator for these ranges of memory, none of them in use.
    pub fn new(ranges: &[Range]) -> Self {
        let cells = ranges.iter().map(|range| range.1).max().unwrap_or(0) as usize;
        let total = ranges.iter().map(|range| u64::from(range.1 - range.0)).sum();
        let mut untouched = ranges.to_vec();
        untouched.reverse();
        Self {
            cells: vec![0; cells],
            ranges: ranges.to_vec(),
            any: NONE,
            zeroed: NONE,
            zeroed_count: 0,
            untouched,
            free: total,
            total,
            kept: 0,
        }
    }

    /// Frames that are free.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Frames that the kernel took for good.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// A frame full of zeroes that the kernel takes for good: it counts as the kernel's own from now on.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    pub(crate) fn keep(&mut self, hardware: &mut impl Hardware) -> Result<Frame, Shortage> {
        let frame = self.take_zeroed(hardware)?;
        self.total -= 1;
        self.kept += 1;
        Ok(frame)
    }

    /// Frames in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The frame with this number, if it is one that is handed out, now or ever.
    pub fn find(&self, number: u32) -> Option<Frame> {
        let is_inside = |range: &Range| (range.0..range.1).contains(&number);
        self.ranges.iter().any(is_inside).then_some(Frame(number))
    }

    /// The ranges that are handed out.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Free frames that are known to be full of zeroes.
    pub fn zeroed_ready(&self) -> u32 {
        self.zeroed_count
    }

    /// The use of a frame. Goes through the free lists: for the debugger.
    pub fn look(&self, frame: u32) -> Use {
        let Some(&cell) = self.cells.get(frame as usize) else {
            return Use::Outside;
        };
        if self.untouched.iter().any(|range| (range.0..range.1).contains(&frame)) {
            return Use::Untouched;
        }
        let is_in = |head| {
            let next = |&number: &u32| self.cells.get(number as usize).copied();
            // Not longer than memory, even if the list is what is broken.
            core::iter::successors(Some(head), next)
                .take(self.cells.len())
                .any(|number| number == frame)
        };
        match cell {
            _ if is_in(self.zeroed) => Use::Zeroed,
            _ if is_in(self.any) => Use::Free,
            0 => Use::Outside,
            _ if cell & BESIDE != 0 => Use::Counted(1),
            counted => Use::Counted(counted & !HELD),
        }
    }

    fn pop_zeroed(&mut self) -> Option<u32> {
        let cell = self.cells.get_mut(self.zeroed as usize)?;
        let number = self.zeroed;
        self.zeroed = *cell;
        self.zeroed_count -= 1;
        *cell = 1;
        self.free -= 1;
        Some(number)
    }

    fn pop_any(&mut self) -> Option<u32> {
        let number = if let Some(cell) = self.cells.get_mut(self.any as usize) {
            let number = self.any;
            self.any = *cell;
            *cell = 1;
            number
        } else {
            let range = self.untouched.last_mut()?;
            let number = range.0;
            range.0 += 1;
            if range.0 == range.1 {
                self.untouched.pop();
            }
            self.cells[number as usize] = 1;
            number
        };
        self.free -= 1;
        Some(number)
    }

    /// A frame full of zeroes with one reference.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    #[inline]
    pub fn take_zeroed(&mut self, hardware: &mut impl Hardware) -> Result<Frame, Shortage> {
        if let Some(number) = self.pop_zeroed() {
            return Ok(Frame(number));
        }
        self.make_zeroed(hardware)
    }

    #[cold]
    #[inline(never)]
    fn make_zeroed(&mut self, hardware: &mut impl Hardware) -> Result<Frame, Shortage> {
        let frame = Frame(self.pop_any().ok_or(Shortage::Frames)?);
        hardware.zero(frame);
        Ok(frame)
    }

    /// A frame with arbitrary content and one reference.
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    pub fn take_any(&mut self) -> Result<Frame, Shortage> {
        match self.pop_any() {
            Some(number) => Ok(Frame(number)),
            None => self.pop_zeroed().map(Frame).ok_or(Shortage::Frames),
        }
    }

    /// Adds a reference.
    #[inline]
    pub fn share(&mut self, frame: Frame) {
        self.cells[frame.0 as usize] += 1;
    }

    /// How many references there are.
    #[inline]
    pub fn references(&self, frame: Frame) -> u32 {
        self.cells[frame.0 as usize] & !HELD
    }

    /// Adds a reference that can be told from the others, of which a frame has at most one.
    #[inline]
    pub fn hold(&mut self, frame: Frame) {
        let cell = &mut self.cells[frame.0 as usize];
        *cell = (*cell + 1) | HELD;
    }

    /// Whether one of the references is such a one.
    #[inline]
    pub fn is_held(&self, frame: Frame) -> bool {
        self.cells[frame.0 as usize] & (BESIDE | HELD) == HELD
    }

    /// Drops that reference, or another one if there is none such.
    pub fn let_go(&mut self, frame: Frame) {
        if self.is_held(frame) {
            self.cells[frame.0 as usize] &= !HELD;
        }
        self.release(frame);
    }

    /// Notes a frame beside one that has one reference, until that is freed.
    pub fn put_beside(&mut self, frame: Frame, beside: Frame) {
        self.cells[frame.0 as usize] = BESIDE | beside.0;
    }

    /// The frame that was noted beside one.
    #[inline]
    pub fn beside(&self, frame: Frame) -> Option<Frame> {
        let cell = self.cells[frame.0 as usize];
        (cell & BESIDE != 0).then_some(Frame(cell & !BESIDE))
    }

    /// Drops a reference; the last one frees the frame.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        let cell = &mut self.cells[frame.0 as usize];
        if *cell > 1 {
            *cell -= 1;
        } else {
            *cell = self.any;
            self.any = frame.0;
            self.free += 1;
        }
    }

    /// Frees a frame with one reference whose content is all zeroes.
    #[inline]
    pub fn release_zeroed(&mut self, frame: Frame) {
        self.cells[frame.0 as usize] = self.zeroed;
        self.zeroed = frame.0;
        self.zeroed_count += 1;
        self.free += 1;
    }

    /// Zeroes one free frame if fewer than `goal` are ready; tells whether it did. For idle time.
    pub fn prepare_one(&mut self, hardware: &mut impl Hardware, goal: u32) -> bool {
        if self.zeroed_count >= goal {
            return false;
        }
        let Some(number) = self.pop_any() else { return false };
        hardware.zero(Frame(number));
        self.release_zeroed(Frame(number));
        true
    }
}
