//! Pages of memory. New pages hold garbage, and a frame that is freed twice or used after it was
//! freed ends the test.

use store::{BLOCK, Frame, Pages};

/// What fresh pages are filled with.
const GARBAGE: u8 = 0xa5;

/// Memory with a fixed number of pages, made as they are needed.
#[derive(Default)]
pub struct Memory {
    pages: Vec<Box<[u8; BLOCK]>>,
    in_use: Vec<bool>,
    free: Vec<Frame>,
    limit: usize,
    /// So many requests succeed before so many are refused.
    failing: Option<(u64, u64)>,
    /// Requests that were refused on purpose.
    pub refused: u64,
}

impl Memory {
    /// Memory of `limit` pages.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Pages in use.
    pub fn used(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// Changes the number of pages; those in use stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Refuses `refused` requests behind so many more.
    pub fn fail_at(&mut self, requests: u64, refused: u64) {
        self.failing = Some((requests, refused));
    }

    /// A page for the test itself, which is never refused on purpose.
    pub fn take(&mut self) -> Option<Frame> {
        let failing = self.failing.take();
        let frame = self.alloc();
        self.failing = failing;
        frame
    }

    fn check(&self, frame: Frame) -> usize {
        let at = frame.0 as usize;
        assert!(
            self.in_use.get(at).copied().unwrap_or(false),
            "{frame:?} is used though it is free"
        );
        at
    }
}

impl Pages for Memory {
    fn alloc(&mut self) -> Option<Frame> {
        if self.used() >= self.limit {
            return None;
        }
        match &mut self.failing {
            None | Some((0, 0)) => self.failing = None,
            Some((0, refused)) => {
                *refused -= 1;
                self.refused += 1;
                return None;
            }
            Some((left, _)) => *left -= 1,
        }
        let frame = self.free.pop().unwrap_or_else(|| {
            self.pages.push(Box::new([GARBAGE; BLOCK]));
            self.in_use.push(false);
            Frame(u32::try_from(self.pages.len() - 1).expect("fewer than 2^32 pages"))
        });
        self.in_use[frame.0 as usize] = true;
        Some(frame)
    }

    fn free(&mut self, frame: Frame) {
        let at = self.check(frame);
        self.in_use[at] = false;
        self.pages[at].fill(GARBAGE);
        self.free.push(frame);
    }

    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        &self.pages[self.check(frame)]
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        let at = self.check(frame);
        &mut self.pages[at]
    }
}
