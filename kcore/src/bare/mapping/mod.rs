//! Free spaces: address spaces built by `map`, `grant`, `flush` and `link` on fpages (Liedtke 1995,
//! section 2.1 and Appendix A), beside the spaces that the server manages by links alone.
//!
//! * [`fpage`]: what is sent and received, and where it lands.
//! * `tree`: who has which page from whom; `tables`: page tables and port bitmaps of free spaces.
//! * `flush`: taking away; `give`: map, grant and link; `space`: σ₀, making and deleting spaces.
//! * `short`: one page, or one link, is given where nothing is in the way; `runs`: several small pages are; `take`: small pages are taken; `lower`: rights to
//!   them are; `own`: a space loses its own; `open`: a flush that others help to its end; `claim`: the place of a gift that is
//!   being cleared; `edges`: the first page of a table, and the last.
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
//! **Everything is bounded.** A call takes at most the steps that its event has left ([`Going`]) and then answers
//! [`Progress::More`]; the caller does the same call again. The work done so far stands in the tree and the tables; the
//! place to go on stands in the operation, and only saves time: one that begins at the front finds less to do, and ends the same.
//!
//! **Memory.** What a space causes is charged to its quota, in units of [`UNIT_BYTES`]: its page
//! tables and those of nodes beside them ([`TABLE_UNITS`] each), the tree nodes of what it received ([`NODE_UNITS`]), its port
//! bitmap ([`PORTS_UNITS`]). An operation that would exceed it is refused and changes nothing.
//! Taking away never needs memory it may not have: if a part of a large page is taken and the
//! holder cannot pay for the table that splits it, the holder loses the large page.

pub mod fpage;

mod check;
mod claim;
mod edges;
mod flush;
mod give;
mod grant;
mod lower;
mod open;
mod own;
mod report;
mod runs;
mod short;
mod space;
mod tables;
mod take;
mod tree;

use alloc::vec::Vec;

use abi::{Error, Rights, address::SLOT};

use super::{
    Bare,
    going::{Going, UNIT},
};
use crate::{Hardware, Kernel, Machine, SpaceId, frames::Range, kernel::doors::Tables};
use claim::Claim;
pub use fpage::{Fpage, Resource};
use open::Turn;
pub(in crate::bare) use runs::{SHORT_MAX, SHORT_STEPS};
use runs::{pages_for, steps_of};
use short::Recent;
use tables::{Batch, Work};
use tree::Tree;

/// Bytes of kernel memory in a unit of quota.
pub const UNIT_BYTES: usize = 64;
/// The cost of a page table, or of a table of nodes, to its space; a space begins with one, its root.
pub const TABLE_UNITS: u32 = 64;
/// The cost of a mapping to its receiver, by the size of the page: 4 KiB (or a port), 2 MiB, 1 GiB.
/// A smaller one may need nodes for the parts of larger pages that it comes from.
pub const NODE_UNITS: [u32; 3] = [3, 2, 1];
/// The cost of a link to its receiver.
pub const LINK_UNITS: u32 = 2;
/// The cost of the port bitmap to a space that receives its first port.
pub const PORTS_UNITS: u32 = 128;
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
    /// It leaves the giver; the giver's giver may take it back from the receiver.
    Grant,
    /// The receiver sees whole slots of 2 MiB as the giver has them, now and later, at the same
    /// addresses, until the giver flushes a whole slot. A linked page can be given only by its
    /// owner.
    Link,
}

/// The result of a call of [`Kernel::map`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Whether it is finished.
    pub progress: Progress,
    /// The part of the source that is sent.
    pub sent: Fpage,
    /// Its place in the receiver.
    pub landed: Fpage,
    /// This call began at this byte (or port) of `sent`...
    pub start: u64,
    /// ...and came to this one.
    pub end: u64,
    /// Pages of 4 KiB (ports; slots of 2 MiB when linking) that this call gave. Pages that the giver does not have itself
    /// are left out, and what the receiver has in their places stays.
    pub count: u64,
}

/// Whether a flush takes from the flusher too.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Own {
    /// The flusher keeps its pages.
    Kept,
    /// The flusher's own pages go too.
    Too,
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Makes σ₀, which holds these ranges of frames of memory and of devices at their physical
    /// addresses, and all ports. They must not be among those that this kernel hands out itself
    /// ([`Kernel::new`]). Nothing can be mapped into σ₀, and it is never destroyed; a page it granted
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
        if self.half.mapping.sigma0.is_some() {
            return Err(Error::InUse);
        }
        if self.half.mapping.tree.is_unprepared() {
            let ranges = memory.iter().chain(devices);
            let frames: u64 = ranges.map(|range| u64::from(range.1.saturating_sub(range.0))).sum();
            let seed = self.hardware.random();
            self.half.mapping.tree.prepare(frames / 4, seed)?;
        }
        self.half.mapping.tree.make_room(quota)?;
        self.half.mapping.largest = largest.min(2);
        let mut work = self.work(&Going::default());
        let number = work.root_space(quota)?;
        let filled = work
            .fill(number, memory, Rights::RWX)
            .and_then(|()| work.fill(number, devices, Rights::RW))
            .and_then(|()| work.fill_ports(number));
        if let Err(error) = filled {
            let mut at = 0;
            loop {
                let (progress, to) = work.empty(number, at);
                at = to;
                work.budget = Going::default().left;
                if progress == Progress::Done {
                    break;
                }
            }
            work.forget(number);
            self.space_destroy(SpaceId(u32::from(number)));
            return Err(error);
        }
        work.flush_now();
        self.half.mapping.sigma0 = Some(number);
        Ok(SpaceId(u32::from(number)))
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
        let creator = self.half.mapping.number(creator)?;
        let number = self.work(&Going::default()).created_space(creator, quota)?;
        Ok(SpaceId(u32::from(number)))
    }

    /// Destroys a free space and those it created: what others had from them is flushed, what they
    /// had goes, and the quota returns to the creator. No thread is in it any more.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it is no free space, or σ₀.
    pub fn free_space_destroy(&mut self, space: SpaceId) -> Result<Progress, Error> {
        let number = space.0 as u16;
        if self.half.mapping.get(space).is_none() || self.half.mapping.sigma0 == Some(number) {
            return Err(Error::BadArgument);
        }
        let mut going = Going::default();
        let mut work = self.work(&going);
        let first = work.first_to_go(number);
        // The next piece goes on where the last one ended, even if another thread does it.
        going.position = work.space(first).emptied;
        let at = work.resume(&going);
        let (progress, at) = work.empty(first, at);
        work.suspend(&mut going, at);
        work.space(first).emptied = going.position;
        if progress == Progress::More {
            return Ok(Progress::More);
        }
        work.forget(first);
        self.space_destroy(SpaceId(u32::from(first)));
        Ok(if first == number {
            Progress::Done
        } else {
            Progress::More
        })
    }

    /// The destruction of a space, which is free, begins or goes on: with one at or below it that created no others. Nothing is given to those on the way there
    /// from now on, and they make neither spaces nor threads.
    pub(in crate::bare) fn first_to_go(&mut self, space: SpaceId) -> SpaceId {
        SpaceId(u32::from(self.work(&Going::default()).first_to_go(space.0 as u16)))
    }

    /// Gives an fpage of `from` to `to`, which agrees by the window it names; where it lands says
    /// [`Fpage::landing`]. The receiver's pages there are flushed and replaced, one by one.
    /// The receiver gets the rights that the source offers, the window accepts and the giver has.
    ///
    /// # Errors
    /// An error changes nothing; the pages of earlier calls that answered [`Progress::More`] stay. (Only
    /// if the receiver's last quota went meanwhile for splitting a page of its own, or the last frame
    /// for splitting anyone's, may the target, and what came from a granted source, be flushed already.)
    ///
    /// * [`Error::BadArgument`]: not a free space, σ₀ as receiver, no rights left, source and target
    ///   overlap in one space, a link that does not land at its own whole slots, or one of a slot of σ₀
    ///   that has no memory or was granted.
    /// * [`Error::LimitReached`]: the receiver's quota is used up, or for splitting a large page
    ///   (grant, link) the giver's.
    /// * [`Error::TableFull`]: the page was mapped onward too often ([`DEPTH_MAX`]).
    /// * [`Error::InUse`]: the receiver has a link there and less than a slot would be replaced, or
    ///   others link the slot that a link would replace.
    /// * [`Error::NoMemory`].
    pub fn map(
        &mut self,
        (from, source): (SpaceId, Fpage),
        (to, window): (SpaceId, Fpage),
        how: How,
        going: &mut Going,
    ) -> Result<Mapped, Error> {
        let (giver, receiver) = (self.half.mapping.number(from)?, self.half.mapping.number(to)?);
        let (sent, landed) = source.landing(window)?;
        let itself = giver == receiver && sent.overlaps(landed);
        let slots = sent.resource() == Resource::Memory && sent.base() == landed.base() && sent.size() >= SLOT;
        let no_link = how == How::Link && (giver == receiver || !slots);
        if self.half.mapping.sigma0 == Some(receiver) || itself || no_link {
            return Err(Error::BadArgument);
        }
        let start = going.position.at;
        let (ran, count) = self.map_at_once((giver, receiver), (sent, landed), how, going);
        let ran_to = start + ran * if how == How::Link { SLOT } else { abi::address::PAGE };
        let all_ran = |progress| Mapped {
            progress,
            sent,
            landed,
            start,
            end: ran_to,
            count,
        };
        if ran > 0 && ran_to == sent.size() {
            self.half.mapping.abandon(going.position);
            return Ok(all_ran(Progress::Done));
        }
        if ran > 0 {
            going.position.at = ran_to;
            if going.is_over() {
                return Ok(all_ran(Progress::More));
            }
        }
        let mut work = self.work(going);
        let at = work.resume(going);
        let given = work.give(giver, receiver, (sent, landed), at, how);
        work.suspend(going, given.map_or(at, |given| given.end));
        if given.map(|given| given.progress) != Ok(Progress::More) {
            self.half.mapping.abandon(going.position);
        }
        match given {
            Ok(given) => Ok(Mapped {
                start,
                count: given.count + count,
                ..given
            }),
            // The error comes when the call is done again, which begins there.
            Err(_) if ran > 0 => Ok(all_ran(Progress::More)),
            Err(error) => Err(error),
        }
    }

    /// Takes `rights` from every space that has pages of `what` from `space`, directly or not; R
    /// takes the pages. Mappings into pages that a flush of several calls has passed stay.
    /// `own` takes them from `space` itself too. Links of slots that are wholly
    /// within `what` are taken or restricted like pages.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it is no free space or no right is named.
    pub fn flush(
        &mut self,
        space: SpaceId,
        what: Fpage,
        (rights, own): (Rights, Own),
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let number = self.half.mapping.number(space)?;
        let mut rights = rights.intersection(Rights::RWX);
        if rights.contains(Rights::R) {
            rights = Rights::RWX;
        }
        if what.resource() == Resource::Ports {
            // A port is there or not.
            let access = !rights.intersection(Rights::RW).is_empty();
            rights = if access { Rights::RWX } else { Rights::NONE };
        }
        if rights.is_empty() {
            return Err(Error::BadArgument);
        }
        // σ₀ has what there is.
        let own = if self.half.mapping.sigma0 == Some(number) {
            Own::Kept
        } else {
            own
        };
        let first = give::first_page(what);
        let count = what.size() / give::unit(what);
        let end = first + count;
        let mut at = first.max(going.position.at);
        let is_all = rights == Rights::RWX;
        // Of a page that the general way has begun each piece would look at the same kids again.
        let is_begun = !is_all && going.position.visit != Visit::NONE;
        if what.resource() == Resource::Memory && own == Own::Kept && !is_begun {
            let ran = self.take_run((number, at), (end - at, count), rights, &mut going.left);
            if !is_all && ran == 0 {
                // So the general way begins.
                going.left = going.left.max(UNIT);
            }
            at += ran;
            going.position.at = at;
            if at == end {
                let visit = going.position.visit;
                if !visit.joined {
                    self.half.mapping.flush_is_done(visit);
                }
                return Ok(Progress::Done);
            }
        }
        let mut work = self.work(going);
        work.resume(going);
        let (progress, at) = work.flush_from(number, (first, end), at, rights, own);
        work.suspend(going, at);
        Ok(progress)
    }

    /// (quota, used) of a free space in units of [`UNIT_BYTES`]; the quota it gave to spaces it created
    /// counts as used.
    pub fn free_space_quota(&self, space: SpaceId) -> Option<(u32, u32)> {
        self.half.mapping.get(space).map(|space| (space.quota, space.used))
    }

    /// Charges a free space for kernel memory that holds none of its mappings: its threads. Others pay nothing.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: the space's quota is used up. [`Error::BadArgument`]: its destruction has begun.
    pub(in crate::bare) fn lodge(&mut self, space: SpaceId, units: u32) -> Result<(), Error> {
        if let Some(record) = self.half.mapping.get_mut(space) {
            if record.dying {
                return Err(Error::BadArgument);
            }
            if units > record.quota - record.used {
                return Err(Error::LimitReached);
            }
            record.used += units;
        }
        Ok(())
    }

    /// Takes such a charge back.
    pub(in crate::bare) fn unlodge(&mut self, space: SpaceId, units: u32) {
        if let Some(record) = self.half.mapping.get_mut(space) {
            record.used -= units;
        }
    }

    /// Nodes of the mapping tree in use.
    pub fn mapping_nodes(&self) -> u32 {
        self.half.mapping.tree.count()
    }

    /// The fast paths, as far as they lead: how many pages (slots), and how many of them the giver had.
    fn map_at_once(
        &mut self,
        (from, to): (u16, u16),
        (sent, landed): (Fpage, Fpage),
        how: How,
        going: &mut Going,
    ) -> (u64, u64) {
        let (source, target, rights) = (give::first_page(sent), give::first_page(landed), landed.rights());
        match how {
            _ if sent.resource() == Resource::Ports => (0, 0),
            How::Map => {
                let (at, count) = (going.position.at / abi::address::PAGE, sent.size() / abi::address::PAGE);
                let wanted = (count.saturating_sub(at), count);
                self.map_run((from, source + at), (to, target + at), wanted, rights, &mut going.left)
            }
            How::Link if sent.size() == SLOT && self.link_slot(from, to, source, rights).is_some() => (1, 1),
            // A slot of small pages may be a page that was parted, and is granted whole.
            How::Grant if sent.size() < SLOT => {
                let (at, count) = (going.position.at / abi::address::PAGE, sent.size() / abi::address::PAGE);
                let wanted = count.saturating_sub(at).min(pages_for(going.left));
                let ran = self.grant_run((from, source + at), (to, target + at), wanted, rights);
                going.spend(steps_of(ran));
                (ran, ran)
            }
            How::Link | How::Grant => (0, 0),
        }
    }

    fn work(&mut self, going: &Going) -> Work<'_, H> {
        let Tables {
            half,
            spaces,
            frames,
            hardware,
            elsewhere,
        } = self.tables();
        Work {
            mapping: &mut half.mapping,
            spaces,
            frames,
            hardware,
            elsewhere,
            budget: going.left,
            visit: Visit::NONE,
            claim: 0,
            has_claimed: false,
            tables_from: 0,
        }
    }
}

/// The flush of one block that was begun, so that the same call goes on with the same stamp.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Visit {
    top: u32,
    frame: u32,
    level: u8,
    rights: Rights,
    /// The first page of the top, whose node may be another one's later.
    page: u64,
    stamp: u64,
    /// It stood open at the end of a piece ([`Mapping::open`]).
    stood_open: bool,
    /// Of the one that stands open: for how many others it still does when nothing comes from its top any more.
    patience: u16,
    /// Of an operation: another one began it, which goes on for itself.
    joined: bool,
}

impl Visit {
    const NONE: Visit = Visit {
        top: tree::NONE,
        frame: 0,
        level: 0,
        rights: Rights::NONE,
        page: 0,
        stamp: 0,
        stood_open: false,
        patience: 0,
        joined: false,
    };

    /// This one, if it is of that block; else it differs.
    fn of(self, top: u32, (frame, level, rights): (u32, u8, Rights)) -> Self {
        Self {
            top,
            frame,
            level,
            rights,
            ..self
        }
    }
}

/// The place where an operation goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Of a gift a byte or port of what is sent, of a flush a page.
    at: u64,
    tables_from: u64,
    visit: Visit,
    /// The number by which a gift claims its place, or zero.
    claim: u64,
    /// Whether it has had its place claimed.
    has_claimed: bool,
}

impl Position {
    /// The front.
    pub const START: Self = Self {
        at: 0,
        tables_from: 0,
        visit: Visit::NONE,
        claim: 0,
        has_claimed: false,
    };
}

/// The record of a free space beside its page tables.
struct FreeSpace {
    /// Units that it and those it created may use.
    quota: u32,
    /// Units used, and given to those it created.
    used: u32,
    creator: u16,
    /// The youngest of those it created; `next` and `prev` lead through them.
    created: u16,
    next: u16,
    prev: u16,
    /// Creators above it.
    depth: u8,
    /// Its destruction has begun.
    dying: bool,
    /// It is in the list of those to be flushed at the end of the call.
    flush_wanted: bool,
    /// Leaf tables of its own that others link.
    shared_tables: u32,
    /// Port bitmap, or empty.
    ports: Vec<u8>,
    /// Of one whose destruction has begun: the place where that goes on.
    emptied: Position,
}

/// All free spaces and the mapping tree.
pub struct Mapping {
    tree: Tree,
    /// By the number of the space.
    spaces: Vec<Option<FreeSpace>>,
    sigma0: Option<u16>,
    /// Level of the largest pages.
    largest: u8,
    /// The last stamp given to a flush of one block.
    stamp: u64,
    /// The flush of a block that was begun and is not finished ([`open`]), or none.
    open: Visit,
    turn: Turn,
    /// The place that is claimed, and who claims one next ([`claim`]).
    claim: Claim,
    claim_turn: Turn,
    /// Neither stands a flush open nor is a place claimed: the short ways of giving look no further.
    is_quiet: bool,
    batch: Batch,
    recent: Recent,
}

impl Default for Mapping {
    fn default() -> Self {
        Self {
            tree: Tree::default(),
            spaces: Vec::new(),
            sigma0: None,
            largest: 0,
            stamp: 0,
            open: Visit::NONE,
            turn: Turn::default(),
            claim: Claim::NONE,
            claim_turn: Turn::default(),
            is_quiet: true,
            batch: Batch::default(),
            recent: Recent::default(),
        }
    }
}

impl Mapping {
    fn get(&self, space: SpaceId) -> Option<&FreeSpace> {
        self.spaces.get(space.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, space: SpaceId) -> Option<&mut FreeSpace> {
        self.spaces.get_mut(space.0 as usize)?.as_mut()
    }

    /// See [`Kernel::ports`].
    pub(super) fn ports(&self, space: SpaceId) -> Option<&[u8; 8192]> {
        self.get(space)?.ports.as_slice().try_into().ok()
    }

    /// The number of a free space that is not being destroyed.
    fn number(&self, space: SpaceId) -> Result<u16, Error> {
        match self.get(space) {
            Some(found) if !found.dying => Ok(space.0 as u16),
            _ => Err(Error::BadArgument),
        }
    }

    /// The record of a space that is known to be free.
    fn record(&mut self, space: u16) -> &mut FreeSpace {
        self.spaces[usize::from(space)].as_mut().expect("a free space")
    }
}

impl<H: Hardware> Work<'_, H> {
    /// The place where an operation goes on.
    fn resume(&mut self, going: &Going) -> u64 {
        let Position {
            at,
            tables_from,
            visit,
            claim,
            has_claimed,
        } = going.position;
        self.visit = visit;
        self.tables_from = tables_from;
        self.claim = claim;
        self.has_claimed = has_claimed;
        at
    }

    /// The end of a piece: notes where to go on, and requests the flushes.
    fn suspend(&mut self, going: &mut Going, at: u64) {
        going.position = Position {
            at,
            tables_from: self.tables_from,
            visit: self.visit,
            claim: self.claim,
            has_claimed: self.has_claimed,
        };
        going.left = self.budget;
        self.flush_now();
    }
}
