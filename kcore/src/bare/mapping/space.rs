//! Free spaces themselves: σ₀, making, deleting.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, USER_END},
};

use super::{
    FreeSpace, NODE_UNITS, Own, Position, Progress, TABLE_UNITS,
    fpage::PORTS,
    tables::{PORTS_END, PORTS_PAGE, Work},
    tree::{Kind, NONE, Node, pages},
};
use crate::{
    Hardware, SpaceId,
    frames::Range,
    space::{SPACES_MAX, Spaces},
};

/// No space, where spaces are linked.
pub const NOBODY: u16 = u16::MAX;

/// One past the last page of a space.
pub const PAGES_END: u64 = USER_END / PAGE;

impl FreeSpace {
    fn new(quota: u32, creator: u16, depth: u8) -> Self {
        Self {
            quota,
            used: TABLE_UNITS,
            creator,
            created: NOBODY,
            next: NOBODY,
            prev: NOBODY,
            depth,
            dying: false,
            flush_wanted: false,
            shared_tables: 0,
            ports: Vec::new(),
            emptied: Position::START,
        }
    }
}

impl<H: Hardware> Work<'_, H> {
    /// Makes room for the record of one more space.
    fn room(&mut self) -> Result<(), Error> {
        let missing = SPACES_MAX.saturating_sub(self.mapping.spaces.len());
        if self.mapping.spaces.capacity() < SPACES_MAX {
            self.mapping
                .spaces
                .try_reserve_exact(missing)
                .map_err(|_| Error::NoMemory)?;
        }
        Ok(())
    }

    fn enter(&mut self, id: SpaceId, space: FreeSpace) -> u16 {
        let number = id.0 as usize;
        while self.mapping.spaces.len() <= number {
            self.mapping.spaces.push(None);
        }
        self.mapping.spaces[number] = Some(space);
        number as u16
    }

    /// A space, and its record, that nobody created.
    pub fn root_space(&mut self, quota: u32) -> Result<u16, Error> {
        if quota < TABLE_UNITS {
            return Err(Error::LimitReached);
        }
        self.room()?;
        let id = create(self.spaces, self.frames, self.hardware)?;
        Ok(self.enter(id, FreeSpace::new(quota, NOBODY, 0)))
    }

    /// A space that `creator` pays for.
    pub fn created_space(&mut self, creator: u16, quota: u32) -> Result<u16, Error> {
        let left = self.left(creator);
        if quota < TABLE_UNITS || quota > left {
            return Err(Error::LimitReached);
        }
        let depth = self.space(creator).depth + 1;
        if depth > super::DEPTH_MAX {
            return Err(Error::TableFull);
        }
        self.room()?;
        let id = create(self.spaces, self.frames, self.hardware)?;
        let number = self.enter(id, FreeSpace::new(quota, creator, depth));
        let owner = self.space(creator);
        owner.used += quota;
        let next = core::mem::replace(&mut owner.created, number);
        self.space(number).next = next;
        if next != NOBODY {
            self.space(next).prev = number;
        }
        Ok(number)
    }

    /// Maps ranges of frames at their physical addresses, as large as they go.
    pub fn fill(&mut self, space: u16, ranges: &[Range], rights: Rights) -> Result<(), Error> {
        for &(first, end) in ranges {
            if first >= end || u64::from(end) > PAGES_END {
                return Err(Error::BadArgument);
            }
            let (mut frame, end) = (u64::from(first), u64::from(end));
            while frame < end {
                let fits = |&level: &u8| frame & (pages(level) - 1) == 0 && frame + pages(level) <= end;
                let level = (0..=self.mapping.largest).rev().find(fits).unwrap_or(0);
                if self.overlaps(space, frame, level) {
                    return Err(Error::BadArgument);
                }
                self.mapping.tree.reserve(1)?;
                self.pay_page(space, frame, level)?;
                let node = Node::new(Kind::Page, level, space, frame, frame as u32, rights);
                self.place_node(node, NONE);
                frame += pages(level);
            }
        }
        Ok(())
    }

    fn overlaps(&self, space: u16, page: u64, level: u8) -> bool {
        let walk = self.walk(space, page, level);
        crate::paging::is_present(walk.entry)
    }

    /// All ports.
    pub fn fill_ports(&mut self, space: u16) -> Result<(), Error> {
        self.mapping.tree.reserve(1)?;
        self.ensure_ports(space)?;
        self.charge(space, NODE_UNITS[2])?;
        let node = Node::new(Kind::Page, 2, space, PORTS_PAGE, 0, Rights::RW);
        let node = self.place_node(node, NONE);
        debug_assert_eq!(u64::from(self.mapping.tree.get(node).live), PORTS);
        Ok(())
    }

    /// The youngest of those that a space created, or itself: it goes first.
    pub fn first_to_go(&mut self, space: u16) -> u16 {
        let mut space = space;
        self.mapping.recent.forget();
        loop {
            self.space(space).dying = true;
            match self.space(space).created {
                NOBODY => return space,
                created => space = created,
            }
        }
    }

    /// Empties a space: from page `at` on all memory, then all ports.
    pub fn empty(&mut self, space: u16, at: u64) -> (Progress, u64) {
        let mut at = at;
        if self.has_nothing(space) {
            return (Progress::Done, PORTS_END);
        }
        if at < PAGES_END {
            let (progress, to) = self.flush_from(space, (0, PAGES_END), at, Rights::RWX, Own::Too);
            if progress == Progress::More {
                return (progress, to);
            }
            at = PORTS_PAGE;
        }
        self.flush_from(
            space,
            (PORTS_PAGE, PORTS_END),
            at.max(PORTS_PAGE),
            Rights::RWX,
            Own::Too,
        )
    }

    /// Forgets the record of an empty space; its quota returns to its creator.
    pub fn forget(&mut self, space: u16) {
        self.flush_now();
        let gone = self.mapping.spaces[usize::from(space)].take();
        let Some(gone) = gone else { return };
        self.mapping.forget_claim(space);
        let ports = if gone.ports.is_empty() { 0 } else { super::PORTS_UNITS };
        debug_assert_eq!(gone.used, TABLE_UNITS + ports, "something is still charged");
        if gone.creator == NOBODY {
            return;
        }
        self.credit(gone.creator, gone.quota);
        if gone.prev == NOBODY {
            self.space(gone.creator).created = gone.next;
        } else {
            self.space(gone.prev).next = gone.next;
        }
        if gone.next != NOBODY {
            self.space(gone.next).prev = gone.prev;
        }
    }
}

fn create(
    spaces: &mut Spaces,
    frames: &mut crate::frames::Frames,
    hardware: &mut impl Hardware,
) -> Result<SpaceId, Error> {
    spaces.create(frames, hardware).map_err(|shortage| match shortage {
        crate::Shortage::Frames => Error::NoMemory,
        crate::Shortage::Spaces | crate::Shortage::Threads => Error::TableFull,
    })
}
