//! Physical memory for programs in σ₀: pages from the ranges that the kernel gave the root program, in
//! order, and back onto a list through the pages themselves.

use abi::address::PAGE;

use crate::{
    RootPage,
    call::memory::{read, write},
};

/// Free pages of σ₀. Addresses are physical, and the same in the root program's space.
#[derive(Debug, Default)]
pub struct Pages {
    next: u64,
    end: u64,
    /// The first page that came back, or 0; each holds the address of the next.
    returned: u64,
}

impl Pages {
    /// `share` of `shares` equal parts of the largest range of memory.
    pub fn part(root: RootPage, share: u64, shares: u64) -> Self {
        let (start, end) = root.memory().max_by_key(|range| range.1 - range.0).unwrap_or_default();
        let bytes = (end - start) / shares / (2 << 20) * (2 << 20);
        Self {
            next: start + share * bytes,
            end: start + (share + 1) * bytes,
            returned: 0,
        }
    }

    /// A page with arbitrary content.
    pub fn take(&mut self) -> Option<u64> {
        if self.returned != 0 {
            let page = self.returned;
            self.returned = read(page);
            return Some(page);
        }
        self.take_run(PAGE)
    }

    /// That many bytes, aligned to their number, a power of two.
    pub fn take_run(&mut self, bytes: u64) -> Option<u64> {
        let page = self.next.next_multiple_of(bytes);
        if page + bytes > self.end {
            return None;
        }
        self.next = page + bytes;
        Some(page)
    }

    /// A page of zeroes.
    pub fn take_zeroed(&mut self) -> Option<u64> {
        let page = self.take()?;
        for at in (page..page + PAGE).step_by(8) {
            write(at, 0);
        }
        Some(page)
    }

    /// Takes a page back that nobody has mapped any more.
    pub fn put(&mut self, page: u64) {
        write(page, self.returned);
        self.returned = page;
    }

    /// Pages that were never taken.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.next) / PAGE
    }
}
