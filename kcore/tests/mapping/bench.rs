//! Spaces that have a page or a slot from each other, whose operations go on piece by piece.

use abi::{Error, Rights};
use kcore::{
    Kernel, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
    space::Tags,
};

use crate::{
    fake::Fake,
    world::{PAGE, RWX, SLOT, memory, walk},
};

/// Enough pieces for a flush of all that was given before it began.
pub const PIECES_MAX: usize = 1000;
/// Events of other threads between two pieces of an operation, as if that many processors ran them.
pub const EVENTS: u64 = 24;
/// The page of σ₀ from which the other spaces have theirs.
pub const SOURCE: u64 = 0x4_0000;
/// Places for gifts; after the last one, the first one is used again.
pub const TARGETS: u64 = 20_000;

/// An operation, with the numbers of its spaces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Give(How, (usize, Fpage), (usize, Fpage)),
    /// Takes these rights.
    Flush(Rights, (usize, Fpage)),
    SpaceEnd(usize),
}

pub struct Bench {
    pub kernel: Kernel<Fake, Bare>,
    /// σ₀, the flusher, the spaces below it.
    pub spaces: Vec<SpaceId>,
    /// The page to which the next gift goes.
    pub next: u64,
}

impl Bench {
    /// σ₀ gives a page of that size to space 1, the flusher; space 1 gives it to space 2, and so on, to space `chain`.
    pub fn new(size: u8, chain: usize) -> Self {
        let frames = 8000;
        let mut kernel = Kernel::new(Fake::new(frames, Tags::Present), &[(1, frames)]);
        let sigma0 = kernel
            .sigma0_create(1 << 23, &[(0x4_0000, 0x8_0000)], &[], 2)
            .expect("σ₀");
        let made = (0..6).map(|_| kernel.free_space_create(sigma0, 600_000).expect("a space"));
        let spaces: Vec<_> = core::iter::once(sigma0).chain(made.collect::<Vec<_>>()).collect();
        let mut bench = Self {
            kernel,
            spaces,
            next: 1 << 10,
        };
        bench.map((0, memory(SOURCE, size, RWX)), (1, memory(0, size, RWX)));
        for space in 1..chain {
            bench.map((space, memory(0, size, RWX)), (space + 1, memory(0, size, RWX)));
        }
        bench
    }

    /// Maps to the end.
    pub fn map(&mut self, from: (usize, Fpage), to: (usize, Fpage)) {
        let mut going = Going::default();
        for _ in 0..PIECES_MAX {
            match self.give(from, to, How::Map, &mut going) {
                Ok(Progress::Done) => return,
                Ok(Progress::More) => going = going.next_piece(),
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("a gift does not end");
    }

    /// Does all pieces of a gift, with no other operation between them. Returns how many they are.
    pub fn pieces(&mut self, from: (usize, Fpage), to: (usize, Fpage), how: How) -> usize {
        let (mut going, mut pieces) = (Going::default(), 1);
        while self.give(from, to, how, &mut going) == Ok(Progress::More) {
            going = going.next_piece();
            pieces += 1;
        }
        pieces
    }

    /// σ₀ gives space 2 a second slot. Space 2 gives `count` pages of that to space 3, which gives each of them on 14 times.
    pub fn fill_slot(&mut self, count: u64) {
        self.map((0, memory(SOURCE + 512, SLOT, RWX)), (2, memory(512, SLOT, RWX)));
        for page in 0..count {
            self.map((2, memory(512 + page, PAGE, RWX)), (3, memory(page, PAGE, RWX)));
            for _ in 0..14 {
                self.give_page_on((3, page), 4, How::Map);
            }
        }
    }

    /// One piece.
    pub fn give(
        &mut self,
        from: (usize, Fpage),
        to: (usize, Fpage),
        how: How,
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let [(from, source), (to, window)] = [from, to].map(|(space, fpage)| (self.spaces[space], fpage));
        let given = self.kernel.map((from, source), (to, window), how, going);
        given.map(|given| given.progress)
    }

    /// One piece: a space gives its first page on, to another page of the receiver each time.
    pub fn give_on(&mut self, from: usize, to: usize, how: How) {
        self.give_page_on((from, 0), to, how);
    }

    pub fn give_page_on(&mut self, (from, page): (usize, u64), to: usize, how: How) {
        self.next = self.next % TARGETS + 1 + (1 << 10);
        let target = memory(self.next, PAGE, RWX);
        let _ = self.give(
            (from, memory(page, PAGE, RWX)),
            (to, target),
            how,
            &mut Going::default(),
        );
    }

    /// A message of eight items, each of which gives a page on. Returns how many items the steps of one event were enough for.
    pub fn message(&mut self, (from, page): (usize, u64), to: usize) -> usize {
        let mut going = Going::default();
        for given in 0..8 {
            self.next = self.next % TARGETS + 1 + (1 << 10);
            let target = memory(self.next, PAGE, RWX);
            let item = self.give((from, memory(page, PAGE, RWX)), (to, target), How::Map, &mut going);
            let left = going.steps_left();
            if item != Ok(Progress::Done) {
                return given;
            }
            if left <= 0 {
                return given + 1;
            }
            going = Going::default().with_steps(left);
        }
        8
    }

    /// The space and the first page of the flush that stands open.
    pub fn open(&mut self) -> Option<(usize, u64)> {
        let (space, first, _) = self.kernel.mapping_open()?;
        Some((self.spaces.iter().position(|&it| it == space)?, first))
    }

    /// Does one piece of an operation. Returns whether the operation is over.
    pub fn finishes(&mut self, operation: Operation, going: &mut Going) -> bool {
        let result = match operation {
            Operation::Give(how, from, to) => self.give(from, to, how, going),
            Operation::Flush(rights, (space, what)) => Ok(self.flush(space, what, rights, going)),
            Operation::SpaceEnd(space) => Ok(self.kernel.free_space_destroy(self.spaces[space]).expect("a space")),
        };
        *going = going.next_piece();
        result != Ok(Progress::More)
    }

    /// Ends an operation as a cancelled call ends: a gift of nothing, which is over at once, takes its position.
    pub fn cancel(&mut self, going: &mut Going) {
        let nothing = memory(1 << 20, PAGE, RWX);
        let _ = self.give((5, nothing), (6, nothing), How::Grant, going);
        *going = Going::default();
    }

    /// One piece: links the flusher's first slot.
    pub fn link(&mut self, to: SpaceId) {
        let slot = memory(0, SLOT, RWX);
        let from = (self.spaces[1], slot);
        let _ = self.kernel.map(from, (to, slot), How::Link, &mut Going::default());
    }

    pub fn flush(&mut self, space: usize, what: Fpage, rights: Rights, going: &mut Going) -> Progress {
        self.kernel
            .flush(self.spaces[space], what, (rights, Own::Kept), going)
            .expect("a flush")
    }

    /// Flushes the flusher's first page while others do something between the pieces. Panics if the flush does not end. Returns its pieces.
    pub fn flush_among(&mut self, rights: Rights, mut others: impl FnMut(&mut Self)) -> usize {
        let mut going = Going::default();
        for piece in 1..PIECES_MAX {
            if self.flush(1, memory(0, PAGE, RWX), rights, &mut going) == Progress::Done {
                return piece;
            }
            going = going.next_piece();
            for _ in 0..EVENTS {
                others(self);
            }
        }
        panic!("a flush does not end");
    }

    pub fn rights(&self, space: usize, page: u64) -> Option<Rights> {
        walk(&self.kernel, self.spaces[space], page).map(|(_, rights)| rights)
    }

    /// Another operation goes on for at most so many events. Returns how many events are left when it is over.
    pub fn goes_on(&mut self, from: (usize, Fpage), to: (usize, Fpage), going: &mut Going, events: u64) -> u64 {
        for event in 1..=events {
            if self.give(from, to, How::Map, going) != Ok(Progress::More) {
                *going = Going::default();
                return events - event;
            }
            *going = going.next_piece();
        }
        0
    }
}
