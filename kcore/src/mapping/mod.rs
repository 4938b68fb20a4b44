//! Free spaces: address spaces built by `map`, `grant`, `flush` and `link` on fpages (Liedtke 1995,
//! §2.1 and Appendix A), beside the spaces that the server manages by links alone.
//!
//! * [`fpage`]: what is sent and received, and where it lands.
//! * [`model`]: Appendix A of the paper written down, the oracle of the tests.
//! * `tree`: who has which page from whom; `tables`: page tables and port bitmaps of free spaces.
//! * `flush`: taking away; `give`: map, grant and link; `space`: σ₀, making and deleting spaces.
//!
//! The operations are methods of [`Kernel`], which holds a [`Mapping`]:
//!
//! | operation | what it does |
//! |---|---|
//! | [`Kernel::sigma0_create`] | the space that all others come from |
//! | [`Kernel::free_space_create`], [`Kernel::free_space_destroy`] | a space with a quota, paid by its creator |
//! | [`Kernel::map`] | map, grant or link an fpage into another space's receive window |
//! | [`Kernel::flush`] | take rights from all who have pages from here |
//! | [`Kernel::ports`] | the I/O permission bitmap of a space |
//!
//! **Everything is bounded.** A call does at most about [`WORK_MAX`] units of work (one is a tree
//! node, a table entry or 32 empty ones) and then answers [`Progress::More`]; the caller does the
//! same call again. What is done stands in the tree and the tables; where to go on stands in the
//! calling space, and only saves time: a call that another one of the same space displaced starts
//! from the front, finds less to do, and ends the same.
//!
//! **Memory.** What a space causes is charged to its quota, in units of [`UNIT_BYTES`]: its page
//! tables ([`TABLE_UNITS`] each), the tree nodes of what it received ([`NODE_UNITS`]), its port
//! bitmap ([`PORTS_UNITS`]). An operation that would exceed it is refused and changes nothing.
//! Taking away never needs memory it may not have: if a part of a large page is taken and the
//! holder cannot pay for the table that splits it, the holder loses the large page.

pub mod fpage;
pub mod model;

use abi::Error;

use crate::{Hardware, Kernel, SpaceId, frames::Range};
pub use fpage::{Fpage, Resource};

/// Bytes of kernel memory in a unit of quota.
pub const UNIT_BYTES: usize = 64;
/// What a page table costs its space; a space begins with one, its root.
pub const TABLE_UNITS: u32 = 64;
/// What a mapping costs its receiver, by the size of the page: 4 KiB (or a port), 2 MiB, 1 GiB.
/// A smaller one may need nodes for the parts of larger pages that it comes from.
pub const NODE_UNITS: [u32; 3] = [3, 2, 1];
/// What a link costs its receiver.
pub const LINK_UNITS: u32 = 2;
/// What the port bitmap costs a space that receives its first port.
pub const PORTS_UNITS: u32 = 128;
/// Units of work that one call does at most before it answers [`Progress::More`].
pub const WORK_MAX: i32 = 64;
/// How often a page may be mapped onward, and a space created by a created one.
pub const DEPTH_MAX: u8 = 32;

/// Whether a call is finished.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All is done.
    Done,
    /// The bound on one call was reached: do the same call again.
    More,
}

/// How an fpage is given.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum How {
    /// The giver keeps it, and may take it back.
    Map,
    /// It leaves the giver; whoever the giver had it from may take it back from the receiver.
    Grant,
    /// The receiver sees whole slots of 2 MiB as the giver has them, now and later, at the same
    /// addresses, until the giver flushes a whole slot. What is linked is nobody's to give but its
    /// owner's.
    Link,
}

/// What a call of [`Kernel::map`] did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Whether it is finished.
    pub progress: Progress,
    /// The part of the source that is sent.
    pub sent: Fpage,
    /// Where it stands in the receiver.
    pub landed: Fpage,
    /// This call began at this byte (or port) of `sent`...
    pub start: u64,
    /// ...and came to this one.
    pub end: u64,
    /// Pages of 4 KiB (ports; slots of 2 MiB when linking) that this call gave. Pages that the giver does not have itself
    /// are left out, and what the receiver has in their places stays.
    pub count: u64,
}

impl<H: Hardware> Kernel<H> {
    /// Makes σ₀, which holds these ranges of frames of memory and of devices at their physical
    /// addresses, and all ports. They must not be among those that this kernel hands out itself
    /// ([`Kernel::new`]). Nothing can be mapped into σ₀, and it is never destroyed; what it granted
    /// comes back to it when no space has it any more.
    ///
    /// `quota` is in units of [`UNIT_BYTES`]: all free spaces together can have that much.
    /// `largest` is the size of the largest page that the processors know: 1 for 2 MiB, 2 for 1 GiB.
    ///
    /// # Errors
    /// [`Error::InUse`] if there is a σ₀; [`Error::BadArgument`] if ranges are empty, overlap or
    /// leave the user addresses; [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn sigma0_create(
        &mut self,
        quota: u32,
        memory: &[Range],
        devices: &[Range],
        largest: u8,
    ) -> Result<SpaceId, Error> {
        let _ = (quota, memory, devices, largest);
        Err(Error::NoMemory)
    }

    /// Makes an empty free space with a quota of that many units of [`UNIT_BYTES`], taken from its
    /// creator's; the root table ([`TABLE_UNITS`]) is paid from it.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the creator has not so much left, or it is less than a root table;
    /// [`Error::BadArgument`] if the creator is no free space or is being destroyed;
    /// [`Error::TableFull`] if there are too many spaces, or creators of creators ([`DEPTH_MAX`]);
    /// [`Error::NoMemory`].
    pub fn free_space_create(&mut self, creator: SpaceId, quota: u32) -> Result<SpaceId, Error> {
        let _ = (creator, quota);
        Err(Error::NoMemory)
    }

    /// Destroys a free space and those it created: what others had from them is flushed, what they
    /// had goes, and the quota returns to the creator. No thread is in it any more.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it is no free space, or σ₀.
    pub fn free_space_destroy(&mut self, space: SpaceId) -> Result<Progress, Error> {
        let _ = space;
        Err(Error::BadArgument)
    }

    /// Gives an fpage of `from` to `to`, which agrees by the window it names; where it lands says
    /// [`Fpage::landing`]. What stands there in the receiver is flushed and replaced, page by page.
    /// The receiver gets the rights that the source offers, the window accepts and the giver has.
    ///
    /// # Errors
    /// An error changes nothing; the pages of earlier calls that answered [`Progress::More`] stay.
    ///
    /// * [`Error::BadArgument`]: not a free space, σ₀ as receiver, no rights left, source and target
    ///   overlap in one space, a link that does not land at its own whole slots.
    /// * [`Error::LimitReached`]: the receiver's quota is used up, or for splitting a large page
    ///   (grant, link) the giver's.
    /// * [`Error::TableFull`]: the page was mapped onward too often ([`DEPTH_MAX`]).
    /// * [`Error::InUse`]: the receiver has a link there and less than a slot would be replaced, or
    ///   others link the slot that a link would replace.
    /// * [`Error::NoMemory`].
    pub fn map(&mut self, from: SpaceId, source: Fpage, to: SpaceId, window: Fpage, how: How) -> Result<Mapped, Error> {
        let _ = (from, source, to, window, how);
        Err(Error::BadArgument)
    }

    /// Takes `rights` from every space that has pages of `what` from `space`, directly or not; R
    /// takes the pages. `own` takes them from `space` itself too. Links of slots that are wholly
    /// within `what` are taken or restricted like pages.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it is no free space or no right is named.
    pub fn flush(&mut self, space: SpaceId, what: Fpage, rights: abi::Rights, own: Own) -> Result<Progress, Error> {
        let _ = (space, what, rights, own);
        Err(Error::BadArgument)
    }

    /// The I/O permission bitmap of a free space in the processor's format (a set bit forbids), or
    /// `None` if it never had a port. The space's root is flushed ([`Hardware::flush_root`]) when it
    /// changes.
    pub fn ports(&self, space: SpaceId) -> Option<&[u8; 8192]> {
        let _ = space;
        None
    }

    /// (quota, used) of a free space in units of [`UNIT_BYTES`]; what it gave to spaces it created
    /// counts as used.
    pub fn free_space_quota(&self, space: SpaceId) -> Option<(u32, u32)> {
        let _ = space;
        None
    }
}

/// Whether a flush takes from the flusher too.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Own {
    /// The flusher keeps its pages.
    Kept,
    /// The flusher's own pages go too.
    Too,
}
