//! Page tables and port bitmaps of free spaces, and the work of one call on them.
//!
//! The entry that leads to a table counts the table's entries in its software bits, so that an
//! empty table is seen and freed at once. A freed table is set aside until the spaces that it was
//! taken from were flushed; then it goes back as a known zeroed frame. All flushes of a call are
//! requested together, one for each space that lost something.
//!
//! Beside a lowest table with small pages of its space's own stands another one, whose words name the nodes of these pages. A word that belongs
//! to no such page says nothing. It comes with the first page and goes with the table, and the space pays for both.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Error, Rights};

use super::{
    FreeSpace, Mapping, NODE_UNITS, PORTS_UNITS, TABLE_UNITS, Visit, fpage,
    tree::{Key, Kind, Node, pages},
};
use crate::{
    Frame, Hardware, SpaceId,
    bare::going::UNIT,
    frames::Frames,
    kernel::processors::Elsewhere,
    paging::{
        COUNT_ONE, Fit, encode_counted_table, fit_of, frame_of, is_large, is_linked, is_present, is_shared,
        mapping_rights, split_entry, table_entries,
    },
    smp::Request,
    space::Spaces,
};

/// Ports stand behind all pages: the page of a port.
pub const PORTS_PAGE: u64 = 1 << 36;
/// One past the page of the last port.
pub const PORTS_END: u64 = PORTS_PAGE + fpage::PORTS;

/// Spaces, and tables, that one call sets aside before it requests flushes.
const BATCH: usize = 64;
/// Steps of a slot that the space links, where it is passed: nothing else of it is paid for.
pub const LINKED_STEPS: i32 = UNIT;
/// Empty entries that are passed in a step.
pub const EMPTY_A_STEP: i32 = 4;
/// Steps of a table that is made.
const TABLE_STEPS: i32 = 4 * UNIT;
/// Steps of its entries, where it parts a large page.
const SPLIT_STEPS: i32 = 16 * UNIT;

/// The content of a space at a page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A page, or a port, of the space's own.
    Page(Fit),
    /// Another space's table.
    Linked,
    /// A table of the space's own that others link.
    Shared,
}

/// An entry that is present.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// First page that it covers.
    pub page: u64,
    /// Size: 0 for 4 KiB (a port), 1 for 2 MiB (a link, a table), 2 for 1 GiB.
    pub level: u8,
    /// The rights it allows.
    pub rights: Rights,
    /// Its kind.
    pub what: What,
}

/// The content of a frame that is taken.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Content {
    Zeroes,
    Any,
}

/// Result of a search.
pub enum Search {
    /// The next entry.
    Found(Found),
    /// Nothing more.
    End,
    /// The search came so far, and the call must end.
    More(u64),
}

/// The way to an entry: at each level table and index. Levels below `level` are not filled.
pub struct Walk {
    /// The level of the entry.
    pub level: u8,
    /// The entry.
    pub entry: u64,
    /// The places of the levels' entries.
    pub places: [(Frame, usize); 4],
}

/// The work of one call.
pub struct Work<'a, H> {
    pub mapping: &'a mut Mapping,
    pub spaces: &'a mut Spaces,
    pub frames: &'a mut Frames,
    pub hardware: &'a mut H,
    /// The other processors, which may hold translations of what is taken.
    pub elsewhere: Elsewhere<'a>,
    /// The number by which this gift claims its place, or zero.
    pub claim: u64,
    /// Whether it has had its place claimed.
    pub has_claimed: bool,
    /// Steps that the event has left.
    pub budget: i32,
    /// The flush of one block that is under way.
    pub visit: Visit,
    /// Tables that others link are done up to this page: pages of the same slot may take more calls.
    pub tables_from: u64,
}

/// The work put off until the flushes of a call are requested. Empty between calls.
pub struct Batch {
    touched: [u16; BATCH],
    touched_count: usize,
    /// A table that others link was changed.
    shared_changed: bool,
    freed: [Frame; BATCH],
    freed_count: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            touched: [0; BATCH],
            touched_count: 0,
            shared_changed: false,
            freed: [Frame::NOWHERE; BATCH],
            freed_count: 0,
        }
    }
}

/// Whether a page stands for a port.
pub const fn is_port(page: u64) -> bool {
    page >= PORTS_PAGE
}

/// Pages that a node covers.
pub fn span(node: &Node) -> u64 {
    if is_port(node.page()) {
        pages(node.level()).min(fpage::PORTS)
    } else {
        pages(node.level())
    }
}

impl<H: Hardware> Work<'_, H> {
    // ---- quota ---------------------------------------------------------------------------------

    /// The record of a free space that is known to be one.
    pub fn space(&mut self, space: u16) -> &mut FreeSpace {
        self.mapping.record(space)
    }

    /// Units that a space has left.
    pub fn left(&mut self, space: u16) -> u32 {
        let space = self.space(space);
        space.quota - space.used
    }

    /// Charges a space.
    pub fn charge(&mut self, space: u16, units: u32) -> Result<(), Error> {
        if units > self.left(space) {
            return Err(Error::LimitReached);
        }
        self.space(space).used += units;
        Ok(())
    }

    /// Takes a charge back.
    pub fn credit(&mut self, space: u16, units: u32) {
        self.space(space).used -= units;
    }

    // ---- flushes -------------------------------------------------------------------------------

    /// Something was taken from a space: its translations are to be flushed.
    pub fn touch(&mut self, space: u16) {
        if self.space(space).flush_wanted {
            return;
        }
        if self.mapping.batch.touched_count == BATCH {
            self.flush_now();
        }
        self.budget -= 4;
        self.space(space).flush_wanted = true;
        let batch = &mut self.mapping.batch;
        batch.touched[batch.touched_count] = space;
        batch.touched_count += 1;
    }

    /// Flushes all from which something was taken, on every processor, then frees the tables that were set aside.
    pub fn flush_now(&mut self) {
        // Each processor is asked once in which space it is, not once for each space: there are many of both.
        let mapping = &*self.mapping;
        let mut others = (self.elsewhere).inside(|space| mapping.get(space).is_some_and(|space| space.flush_wanted));
        for index in 0..self.mapping.batch.touched_count {
            let space = self.mapping.batch.touched[index];
            self.space(space).flush_wanted = false;
            if !self.mapping.batch.shared_changed {
                let id = SpaceId(u32::from(space));
                self.spaces.forget(id);
                self.hardware.flush_root(self.spaces.get(id).root());
            }
        }
        if self.mapping.batch.shared_changed {
            self.spaces.forget_all();
            self.hardware.flush_everything();
            others = self.elsewhere.in_any();
        }
        if others != 0 {
            self.hardware.ask(others, Request::Forget);
        }
        let batch = &mut self.mapping.batch;
        batch.shared_changed = false;
        batch.touched_count = 0;
        for &table in &batch.freed[..batch.freed_count] {
            self.frames.release_zeroed(table);
        }
        batch.freed_count = 0;
    }

    // ---- tables --------------------------------------------------------------------------------

    fn place(&self, walk: &Walk, level: u8) -> &AtomicU64 {
        let (table, index) = walk.places[usize::from(level)];
        &self.hardware.table(table)[index]
    }

    /// The way to a page's entry, down to level `stop` or to where it ends before.
    #[inline]
    pub fn walk(&self, space: u16, page: u64, stop: u8) -> Walk {
        let root = self.spaces.get(SpaceId(u32::from(space))).root();
        let mut walk = Walk {
            level: 3,
            entry: 0,
            places: [(root, 0); 4],
        };
        let mut table = root;
        loop {
            let index = (page >> (9 * walk.level)) as usize & 511;
            walk.places[usize::from(walk.level)] = (table, index);
            walk.entry = self.hardware.table(table)[index].load(Relaxed);
            let ends = !is_present(walk.entry) || is_large(walk.entry) || is_linked(walk.entry);
            if walk.level == stop || ends {
                return walk;
            }
            table = frame_of(walk.entry);
            walk.level -= 1;
        }
    }

    /// Tables that a space lacks for a page of its own at this level.
    pub fn missing_for_page(&self, space: u16, page: u64, level: u8) -> u32 {
        let has_nodes = level > 0 || is_port(page) || self.nodes_of(&self.walk(space, page, 0)).is_some();
        self.missing_tables(space, page, level) + u32::from(!has_nodes)
    }

    /// Tables that a space lacks for an entry of this level.
    pub fn missing_tables(&self, space: u16, page: u64, level: u8) -> u32 {
        if is_port(page) {
            return 0;
        }
        let walk = self.walk(space, page, level + 1);
        let there = is_present(walk.entry) && !is_large(walk.entry);
        if there { 0 } else { u32::from(walk.level - level) }
    }

    /// A frame for a table, or with any content for a table of nodes.
    fn take_table(&mut self, space: u16, content: Content) -> Result<Frame, Error> {
        self.charge(space, TABLE_UNITS)?;
        self.budget -= TABLE_STEPS;
        if self.frames.free() == 0 {
            self.flush_now();
        }
        let taken = match content {
            Content::Zeroes => self.frames.take_zeroed(self.hardware),
            Content::Any => self.frames.take_any(),
        };
        if taken.is_err() {
            self.credit(space, TABLE_UNITS);
        }
        taken.map_err(|_| Error::NoMemory)
    }

    /// Makes the tables that lead to an entry of this level; larger pages on the way are split.
    pub fn ensure_table(&mut self, space: u16, page: u64, level: u8) -> Result<(), Error> {
        if is_port(page) {
            return self.ensure_ports(space);
        }
        loop {
            let walk = self.walk(space, page, level + 1);
            let large = is_large(walk.entry);
            if is_present(walk.entry) && !large {
                return Ok(());
            }
            // All entries of one that parts a large page are written.
            let content = if large { Content::Any } else { Content::Zeroes };
            let table = match self.take_table(space, content) {
                Ok(table) => table,
                Err(error) => {
                    self.prune(space, page);
                    return Err(error);
                }
            };
            if large {
                self.mapping.recent.forget();
                let part = |index| split_entry(walk.entry, walk.level, index);
                let (mut entry, step) = (part(0), part(1) - part(0));
                for place in self.hardware.table(table) {
                    place.store(entry, Relaxed);
                    entry = entry.wrapping_add(step);
                }
                self.place(&walk, walk.level)
                    .store(encode_counted_table(table, 512), Relaxed);
                self.touch(space);
                self.budget -= SPLIT_STEPS;
            } else {
                self.place(&walk, walk.level)
                    .store(encode_counted_table(table, 0), Relaxed);
                self.count_one(&walk);
            }
        }
    }

    /// The table of nodes beside the lowest table of a walk.
    pub fn nodes_of(&self, walk: &Walk) -> Option<Frame> {
        (walk.level == 0).then(|| self.frames.beside(walk.places[0].0))?
    }

    /// Entries of the lowest table of a walk.
    pub fn entries_of(&self, walk: &Walk) -> u64 {
        table_entries(self.place(walk, 1).load(Relaxed))
    }

    /// Makes the tables for a page of the space's own: those that lead to its entry, and that of the nodes of small ones.
    pub fn ensure_page(&mut self, space: u16, page: u64, level: u8) -> Result<(), Error> {
        self.ensure_table(space, page, level)?;
        if level > 0 || is_port(page) {
            return Ok(());
        }
        let walk = self.walk(space, page, 0);
        if self.nodes_of(&walk).is_some() {
            return Ok(());
        }
        // A word counts only for a page that is there, so nobody reads what stands in it now.
        let taken = self.take_table(space, Content::Any);
        match taken {
            Ok(nodes) => {
                self.mapping.recent.forget();
                self.frames.put_beside(walk.places[0].0, nodes);
            }
            Err(_) => self.prune(space, page),
        }
        taken.map(|_| ())
    }

    /// The same, and charges the space for the page's node. No empty table stays if it cannot pay.
    pub fn pay_page(&mut self, space: u16, page: u64, level: u8) -> Result<(), Error> {
        self.ensure_page(space, page, level)?;
        let paid = self.charge(space, NODE_UNITS[usize::from(level)]);
        if paid.is_err() {
            self.prune(space, page);
        }
        paid
    }

    /// The word that names the node of a small page.
    pub fn node_word(&self, space: u16, page: u64) -> Option<&AtomicU64> {
        let walk = self.walk(space, page, 0);
        let nodes = self.nodes_of(&walk)?;
        Some(&self.hardware.table(nodes)[walk.places[0].1])
    }

    /// The node of this size that a space has at a page.
    pub fn node_at(&self, space: u16, level: u8, page: u64) -> Option<u32> {
        let tree = &self.mapping.tree;
        if level > 0 || is_port(page) {
            return tree.find(space, level, page);
        }
        let word = self.node_word(space, page)?.load(Relaxed);
        tree.is_at(word, Key::new(space, 0, page)).then_some(word as u32)
    }

    /// The table of the walk's entry has one entry more.
    fn count_one(&self, walk: &Walk) {
        if walk.level < 3 {
            self.place(walk, walk.level + 1).fetch_add(COUNT_ONE, Relaxed);
        }
    }

    /// Writes an entry whose tables are there.
    pub fn set_entry(&mut self, space: u16, page: u64, level: u8, entry: u64) {
        let walk = self.walk(space, page, level);
        debug_assert_eq!(walk.level, level, "the tables of an entry are missing");
        if walk.level != level {
            return;
        }
        self.place(&walk, level).store(entry, Relaxed);
        if !is_present(walk.entry) {
            self.count_one(&walk);
        }
    }

    /// Changes an entry that is present, so that it allows less or leads to the same place.
    pub fn change_entry(&mut self, space: u16, walk: &Walk, entry: u64) {
        self.place(walk, walk.level).store(entry, Relaxed);
        self.note_change(space, walk);
    }

    /// Removes the entry at which a walk ends.
    pub fn clear_entry(&mut self, space: u16, walk: &Walk) {
        self.place(walk, walk.level).store(0, Relaxed);
        self.note_change(space, walk);
        self.uncount(space, walk, 1);
    }

    /// Something was taken at the end of a walk.
    pub fn note_change(&mut self, space: u16, walk: &Walk) {
        self.touch(space);
        if is_large(walk.entry) && walk.level > 0 {
            self.mapping.recent.forget();
        }
        if walk.level == 0 && is_shared(self.place(walk, 1).load(Relaxed)) {
            self.mapping.batch.shared_changed = true;
        }
    }

    /// The table at the end of a walk lost entries; frees it when it is empty, and those above.
    pub fn uncount(&mut self, space: u16, walk: &Walk, entries: u64) {
        let mut entries = entries;
        for level in walk.level + 1..=3 {
            let place = self.place(walk, level);
            let above = place.fetch_sub(entries * COUNT_ONE, Relaxed) - entries * COUNT_ONE;
            if table_entries(above) > 0 || is_shared(above) || self.mapping.sigma0 == Some(space) {
                return;
            }
            place.store(0, Relaxed);
            self.set_aside(space, frame_of(above));
            entries = 1;
        }
    }

    /// Frees the tables that lead to a page if they are empty.
    pub fn prune(&mut self, space: u16, page: u64) {
        if !is_port(page) {
            let walk = self.walk(space, page, 0);
            self.uncount(space, &walk, 0);
        }
    }

    fn set_aside(&mut self, space: u16, table: Frame) {
        self.mapping.recent.forget();
        self.touch(space);
        self.credit(space, TABLE_UNITS);
        if let Some(nodes) = self.frames.beside(table) {
            self.credit(space, TABLE_UNITS);
            self.frames.release(nodes);
        }
        if self.mapping.batch.freed_count == BATCH {
            self.flush_now();
            // After that flush the batch no longer includes this table's space.
            self.touch(space);
        }
        let batch = &mut self.mapping.batch;
        batch.freed[batch.freed_count] = table;
        batch.freed_count += 1;
    }

    // ---- what stands where ---------------------------------------------------------------------

    /// The content at a page.
    pub fn look(&self, space: u16, page: u64) -> Option<Found> {
        if is_port(page) {
            let ports = &self.mapping.spaces[usize::from(space)].as_ref()?.ports;
            let port = (page - PORTS_PAGE) as usize;
            return (ports.get(port / 8)? >> (port % 8) & 1 == 0).then_some(Found {
                page,
                level: 0,
                rights: Rights::RW,
                what: What::Page(Fit::Part),
            });
        }
        let walk = self.walk(space, page, 0);
        is_present(walk.entry).then(|| found(&walk, page))
    }

    /// The next entry that is present from a page on. Tables that others link are reported at
    /// their slot's first page, if that is not before `tables_from`.
    pub fn search(&mut self, space: u16, from: u64, end: u64, tables_from: u64) -> Search {
        let mut at = from;
        if is_port(at) {
            return self.search_ports(space, from, end);
        }
        while at < end {
            if self.budget <= 0 {
                return Search::More(at);
            }
            let walk = self.walk(space, at, 0);
            let slot = at & !(pages(1) - 1);
            if walk.level == 0 && at == slot && at >= tables_from {
                let above = self.place(&walk, 1).load(Relaxed);
                if is_shared(above) {
                    return Search::Found(Found {
                        page: at,
                        level: 1,
                        rights: mapping_rights(above),
                        what: What::Shared,
                    });
                }
            }
            if is_present(walk.entry) {
                return Search::Found(found(&walk, at));
            }
            // Empty entries of the same table are passed quickly.
            let size = pages(walk.level);
            let (table, index) = walk.places[usize::from(walk.level)];
            // No further than what is asked for.
            let entries = &self.hardware.table(table)[index..];
            let wanted = ((end - at).div_ceil(size) + 1).min(entries.len() as u64) as usize;
            let rest = &entries[..wanted];
            let empty = rest.iter().take_while(|entry| !is_present(entry.load(Relaxed))).count();
            at = (at & !(size - 1)) + empty as u64 * size;
            self.budget -= 4 + i32::from(empty as u16) / EMPTY_A_STEP;
        }
        Search::End
    }

    fn search_ports(&mut self, space: u16, from: u64, end: u64) -> Search {
        if self.budget <= 0 {
            return Search::More(from);
        }
        let end = (end.min(PORTS_END) - PORTS_PAGE) as usize;
        let mut port = (from - PORTS_PAGE) as usize;
        let ports = &self.space(space).ports;
        let mut looked = 0;
        while port < end && !ports.is_empty() {
            if ports[port / 8] >> (port % 8) & 1 == 0 {
                break;
            }
            // Eight bytes at once where all of them are forbidden.
            let eights = ports[port / 8..end / 8].chunks_exact(8);
            let empty = if port.is_multiple_of(8) {
                eights.take_while(|eight| **eight == [0xff; 8]).count()
            } else {
                0
            };
            port += (64 * empty).max(1);
            looked += empty + 1;
        }
        self.budget -= 1 + i32::from(looked as u16 / 4);
        if port >= end || self.space(space).ports.is_empty() {
            return Search::End;
        }
        self.look(space, PORTS_PAGE + port as u64)
            .map_or(Search::End, Search::Found)
    }

    /// The mapping that an entry of a space's own belongs to.
    pub fn holder(&self, space: u16, found: &Found) -> Option<u32> {
        let first = match found.what {
            What::Page(Fit::Exact) => found.level,
            What::Page(Fit::Part) if is_port(found.page) => 0,
            What::Page(Fit::Part) => found.level + 1,
            What::Linked | What::Shared => return None,
        };
        (first..=2).find_map(|level| {
            let node = self.node_at(space, level, found.page & !(pages(level) - 1))?;
            (self.mapping.tree.get(node).kind() == Kind::Page).then_some(node)
        })
    }

    /// Size of the piece at a page that has one frame range and one holder: what an entry says, and
    /// for ports, which have no larger entries, the mapping itself while it is whole. σ₀ has no other mapping of ports between those of its one.
    pub fn whole_level(&self, found: &Found, node: u32) -> u8 {
        let node = self.mapping.tree.get(node);
        if !is_port(found.page) {
            return found.level;
        }
        if u64::from(node.live) == span(node) {
            return node.level();
        }
        let is_sigma0 = self.mapping.sigma0 == Some(node.space());
        let first = (found.page - PORTS_PAGE) as usize;
        let block = pages(1) as usize;
        let has_block = || {
            let space = self.mapping.spaces[usize::from(node.space())].as_ref();
            let ports = space.and_then(|space| space.ports.get(first / 8..(first + block) / 8));
            ports.is_some_and(|ports| ports.chunks_exact(8).all(|eight| *eight == [0; 8]))
        };
        u8::from(is_sigma0 && first.is_multiple_of(block) && has_block())
    }

    // ---- ports ---------------------------------------------------------------------------------

    /// Makes a space's port bitmap, all ports forbidden.
    pub fn ensure_ports(&mut self, space: u16) -> Result<(), Error> {
        if !self.space(space).ports.is_empty() {
            return Ok(());
        }
        self.charge(space, PORTS_UNITS)?;
        let ports = &mut self.space(space).ports;
        if ports.try_reserve_exact(8192).is_err() {
            self.credit(space, PORTS_UNITS);
            return Err(Error::NoMemory);
        }
        ports.resize(8192, 0xff);
        Ok(())
    }

    /// Units that the port bitmap will cost.
    pub fn ports_units(&mut self, space: u16, page: u64) -> u32 {
        if is_port(page) && self.space(space).ports.is_empty() {
            PORTS_UNITS
        } else {
            0
        }
    }

    /// Allows a space those ports of a range that neither it has nor one of the others; how many.
    pub fn return_ports(&mut self, space: u16, page: u64, count: u64, others: [Option<u16>; 2]) -> u32 {
        let first = (page - PORTS_PAGE) as usize;
        let mut own = core::mem::take(&mut self.space(space).ports);
        let ports = |space: u16| Some(self.mapping.spaces[usize::from(space)].as_ref()?.ports.as_slice());
        let [one, other] = others.map(|space| space.and_then(ports).unwrap_or_default());
        let mask = (u64::MAX >> 64_u64.saturating_sub(count)) << (first % 64);
        let words = first / 64..(first + count as usize).div_ceil(64);
        let mut back = 0;
        for index in words {
            let forbidden = word(&own, index);
            let free = forbidden & word(one, index) & word(other, index) & mask;
            if free != 0 {
                back += free.count_ones();
                own[8 * index..8 * index + 8].copy_from_slice(&(forbidden & !free).to_le_bytes());
            }
        }
        self.space(space).ports = own;
        if back > 0 {
            self.touch(space);
        }
        back
    }

    /// Allows or forbids a range of ports.
    pub fn set_ports(&mut self, space: u16, page: u64, count: u64, allowed: bool) {
        self.touch(space);
        self.budget -= (count / 256) as i32;
        let first = (page - PORTS_PAGE) as usize;
        let end = first + count as usize;
        let ports = &mut self.space(space).ports;
        if (first | end).is_multiple_of(8) {
            ports[first / 8..end / 8].fill(if allowed { 0 } else { 0xff });
            return;
        }
        for port in first..end {
            if allowed {
                ports[port / 8] &= !(1 << (port % 8));
            } else {
                ports[port / 8] |= 1 << (port % 8);
            }
        }
    }
}

/// A word of a port bitmap: all are forbidden where there is none.
fn word(ports: &[u8], index: usize) -> u64 {
    let bytes = ports
        .get(8 * index..8 * index + 8)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_le_bytes)
}

fn found(walk: &Walk, page: u64) -> Found {
    Found {
        page: page & !(pages(walk.level) - 1),
        level: walk.level,
        rights: mapping_rights(walk.entry),
        what: if is_linked(walk.entry) {
            What::Linked
        } else {
            What::Page(fit_of(walk.entry))
        },
    }
}
