//! Which clean page of a persistent object leaves memory first: two queues, both in the order of arrival.
//!
//! A page that comes into memory goes into the *small* queue. Pages leave memory at the head of the small queue as long as it has more than a tenth
//! of all, so what is touched once, a scan say, goes soon. A page that comes again while it is remembered goes into the *large* queue instead, and stays as long as all others there. As
//! many pages are remembered as memory has frames. The queues know nothing but faults: a page that is mapped is touched without one.
//! (Compared with other policies in [decision 0197](../../../docs/decisions/0197-which-pages-leave-memory.md).)
//!
//! It is a hint. A place in a queue belongs to a frame, and stands for the page that came into the frame last; whether that page is there, and clean, is asked when its turn
//! comes. What no queue names, the hand by address finds (`release.rs`). The heap for it, [`BYTES_A_FRAME`], is taken at the start, from what the machine has.

use alloc::vec::Vec;

use abi::{Error, address::PAGE};

use crate::containers::filled;

/// Bytes of heap for each frame: the page in it, the frame behind it in the queue, and a mark.
pub const BYTES_A_FRAME: u64 = 16;
/// The small queue has a part of all pages, this one, where pages leave it.
const SMALL_PART: u32 = 10;
/// No frame.
const NONE: u32 = u32::MAX;
/// Marks that a page may have its mark among.
const WAYS: usize = 4;
/// Steps of time in which as many pages go as are remembered.
const STEPS: usize = 1024;
/// Machines with more memory than fits below have the rest from this frame on, and nothing in the gap below that.
const GAP_END: u32 = 1 << 20;
const GAP: u32 = 1 << 19;

/// One queue of frames.
#[derive(Debug)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

impl Queue {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };
}

/// A page whose turn it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its address.
    pub address: u64,
    place: u32,
    is_of_small: bool,
}

/// Pages that have left memory, by a few bits of each, with the time when they did.
#[derive(Debug, Default)]
struct Remembered {
    /// Sixteen bits of the page, one of them set, and sixteen of the time; zero for none.
    marks: Vec<u32>,
    /// Pages that have left so far.
    count: usize,
}

impl Remembered {
    /// The marks among which that of a page is, and its bits.
    #[inline]
    fn ways(&mut self, address: u64) -> (&mut [u32], u32) {
        let hash = (address / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let ways = self.marks.len() / WAYS;
        let at = (((hash >> 32) * ways as u64) >> 32) as usize * WAYS;
        let bits = (hash as u32 | 1 << 31) & 0xffff_0000;
        (self.marks.get_mut(at..at + WAYS).unwrap_or_default(), bits)
    }

    fn now(&self) -> u32 {
        (self.count / (self.marks.len() / STEPS).max(1)) as u32 & 0xffff
    }

    fn put(&mut self, address: u64) {
        let now = self.now();
        self.count += 1;
        let (ways, bits) = self.ways(address);
        let age = |&&mut mark: &&mut u32| {
            if mark == 0 {
                NONE
            } else {
                now.wrapping_sub(mark) & 0xffff
            }
        };
        if let Some(oldest) = ways.iter_mut().max_by_key(age) {
            *oldest = bits | now;
        }
    }

    /// Takes a page out; tells whether it was remembered.
    #[inline]
    fn take(&mut self, address: u64) -> bool {
        self.count > 0 && self.take_some(address)
    }

    #[inline(never)]
    fn take_some(&mut self, address: u64) -> bool {
        let (now, oldest) = (self.now(), STEPS.min(self.marks.len()) as u32);
        let (ways, bits) = self.ways(address);
        let is_it = |&&mut mark: &&mut u32| mark & 0xffff_0000 == bits && now.wrapping_sub(mark) & 0xffff <= oldest;
        ways.iter_mut().find(is_it).map(core::mem::take).is_some()
    }
}

/// The queues.
#[derive(Debug)]
pub struct Queues {
    /// By frame: the address of the page that came into it last, zero if the frame is in no queue.
    pages: Vec<u64>,
    /// By frame: the one behind it in its queue.
    next: Vec<u32>,
    small: Queue,
    large: Queue,
    remembered: Remembered,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            next: Vec::new(),
            small: Queue::EMPTY,
            large: Queue::EMPTY,
            remembered: Remembered::default(),
        }
    }
}

impl Queues {
    /// For a machine with so many frames. Those of the default name nothing.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(frames: usize) -> Result<Self, Error> {
        Ok(Self {
            pages: filled(0, frames)?,
            next: filled(NONE, frames)?,
            remembered: Remembered {
                marks: filled(0, frames.next_multiple_of(WAYS))?,
                count: 0,
            },
            ..Self::default()
        })
    }

    /// The place of a frame. Two frames with the same one stand in each other's way, which costs no more than a bad hint.
    #[inline]
    fn place(&self, frame: u32) -> usize {
        let place = if frame >= GAP_END { frame - GAP } else { frame } as usize;
        if place < self.pages.len() {
            place
        } else {
            place % self.pages.len().max(1)
        }
    }

    /// A page has come into a frame, or has become clean there. Costs some 25 instructions, and 30 more once pages have left memory.
    #[inline]
    pub fn arrived(&mut self, frame: u32, address: u64) {
        let place = self.place(frame);
        let Some(page) = self.pages.get_mut(place) else { return };
        // A frame in a queue stays there. The page before has gone, or it is this one.
        if core::mem::replace(page, address) != 0 {
            return;
        }
        let is_of_large = self.remembered.take(address);
        self.enter(place as u32, is_of_large);
    }

    #[inline]
    fn enter(&mut self, place: u32, is_of_large: bool) {
        let queue = if is_of_large { &mut self.large } else { &mut self.small };
        let before = core::mem::replace(&mut queue.last, place);
        queue.len += 1;
        if let Some(next) = self.next.get_mut(before as usize) {
            *next = place;
        } else {
            queue.first = place;
        }
    }

    /// The page whose turn it is, which is in no queue any more; none if no queue names any.
    pub fn take_first(&mut self) -> Option<Candidate> {
        let all = self.small.len + self.large.len;
        let is_of_small = self.small.len > all / SMALL_PART || self.large.len == 0;
        let queue = if is_of_small { &mut self.small } else { &mut self.large };
        let place = queue.first;
        let next = self.next.get_mut(place as usize)?;
        queue.first = core::mem::replace(next, NONE);
        queue.len -= 1;
        if queue.first == NONE {
            queue.last = NONE;
        }
        let address = core::mem::take(self.pages.get_mut(place as usize)?);
        Some(Candidate {
            address,
            place,
            is_of_small,
        })
    }

    /// Whether a frame is the one that the candidate stands for.
    pub fn is_of(&self, candidate: &Candidate, frame: u32) -> bool {
        self.place(frame) == candidate.place as usize
    }

    /// The candidate stays, and goes behind all others of its queue.
    pub fn stays(&mut self, candidate: &Candidate) {
        if let Some(page) = self.pages.get_mut(candidate.place as usize) {
            *page = candidate.address;
            self.enter(candidate.place, !candidate.is_of_small);
        }
    }

    /// The candidate has left memory.
    pub fn gone(&mut self, candidate: &Candidate) {
        if candidate.is_of_small {
            self.remembered.put(candidate.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queues: &mut Queues) -> Vec<u64> {
        core::iter::from_fn(|| queues.take_first())
            .inspect(|candidate| assert!(candidate.address > 0))
            .map(|candidate| candidate.address / PAGE)
            .collect()
    }

    #[test]
    fn pages_go_in_the_order_of_arrival() {
        let mut queues = Queues::new(8).unwrap();
        for page in 1..6 {
            queues.arrived(page as u32, page * PAGE);
        }
        // The same page once more, and another one in the frame of one that has gone.
        queues.arrived(2, 2 * PAGE);
        queues.arrived(3, 7 * PAGE);
        assert_eq!(order(&mut queues), [1, 2, 7, 4, 5]);
        assert_eq!(queues.take_first(), None);
    }

    #[test]
    fn a_page_that_comes_again_stays_longer() {
        let mut queues = Queues::new(4096).unwrap();
        for page in 1..101 {
            queues.arrived(page as u32, page * PAGE);
        }
        let first = queues.take_first().unwrap();
        queues.gone(&first);
        assert!(queues.is_of(&first, 1) && !queues.is_of(&first, 2));
        queues.arrived(1, PAGE);
        // Nine tenths of the others go before it.
        let order = order(&mut queues);
        assert_eq!(order.len(), 100);
        let place = order.iter().position(|&page| page == 1).unwrap();
        assert!((85..100).contains(&place), "{place}");
    }

    /// A page is forgotten when as many others have gone as memory has frames.
    #[test]
    fn pages_are_forgotten() {
        for (others, is_remembered) in [(3000, true), (6000, false)] {
            let mut remembered = Queues::new(4096).unwrap().remembered;
            remembered.put(PAGE);
            (2..others).for_each(|page| remembered.put(page * PAGE));
            let recent = (others - 2000..others)
                .filter(|&page| remembered.take(page * PAGE))
                .count();
            assert!(recent > 1700, "{recent}");
            let first = remembered.take(PAGE);
            assert!(is_remembered || !first);
        }
    }

    #[test]
    fn without_heap_there_are_no_hints() {
        let mut queues = Queues::default();
        queues.arrived(7, PAGE);
        assert_eq!(queues.take_first(), None);
        // Frames beyond those that there are stand somewhere.
        let mut queues = Queues::new(10).unwrap();
        queues.arrived(GAP_END + 7, PAGE);
        queues.arrived(u32::MAX, 2 * PAGE);
        assert!(!order(&mut queues).is_empty());
    }
}
