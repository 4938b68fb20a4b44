//! Giving: map, grant and link, piece by piece.
//!
//! A piece is the largest page that is whole in the source and aligned in both spaces. First it is
//! made sure that the receiver (and for splitting the giver) can pay; then what stands in the
//! target is flushed; then the source is looked at again, for it may have come from the target;
//! then the piece is given. So an error changes nothing, and a call that ends early has given
//! whole pieces.

use core::sync::atomic::Ordering::Relaxed;

use abi::{Error, Rights};

use super::{
    DEPTH_MAX, Fpage, How, LINK_UNITS, Mapped, NODE_UNITS, Own, Progress, Resource, TABLE_UNITS,
    tables::{Found, LINKED_STEPS, PORTS_PAGE, Search, What, Work, is_port},
    tree::{Kind, LINKS, NONE, Node, pages},
};
use crate::{
    Hardware,
    bare::going::UNIT,
    paging::{Fit, SHARED_MARK, encode_linked, encode_mapping, frame_of, is_large, is_linked, is_present},
};

/// First page of an fpage.
pub fn first_page(fpage: Fpage) -> u64 {
    match fpage.resource() {
        Resource::Memory => fpage.base() / abi::address::PAGE,
        Resource::Ports => PORTS_PAGE + fpage.base(),
    }
}

/// Bytes, or ports, in a page.
pub fn unit(fpage: Fpage) -> u64 {
    match fpage.resource() {
        Resource::Memory => abi::address::PAGE,
        Resource::Ports => 1,
    }
}

/// One past the last page that a space can have of this kind.
fn limit(fpage: Fpage) -> u64 {
    match fpage.resource() {
        Resource::Memory => super::space::PAGES_END,
        Resource::Ports => super::tables::PORTS_END,
    }
}

/// One piece to be given.
#[derive(Copy, Clone)]
struct Piece {
    from: u16,
    source: u64,
    to: u16,
    target: u64,
    level: u8,
    rights: Rights,
}

impl<H: Hardware> Work<'_, H> {
    /// Gives from `start` (in bytes or ports of `sent`) on, as much as one call may.
    pub fn give(
        &mut self,
        from: u16,
        to: u16,
        (sent, landed): (Fpage, Fpage),
        start: u64,
        how: How,
    ) -> Result<Mapped, Error> {
        let (source, target) = (first_page(sent), first_page(landed));
        let length = (sent.size() / unit(sent)).min(limit(landed).saturating_sub(target));
        let mut offset = start / unit(sent);
        let mut count = 0;
        self.help_a_little();
        self.minds_claims();
        let progress = loop {
            let (page, level) = match self.next_piece(from, source + offset, source + length, how) {
                Search::End => {
                    offset = length;
                    break Progress::Done;
                }
                Search::More(page) => {
                    offset = page - source;
                    break Progress::More;
                }
                Search::Found(found) if found.what == What::Linked => {
                    self.budget -= LINKED_STEPS;
                    offset = (found.page + pages(1) - source).min(length);
                    continue;
                }
                Search::Found(found) => {
                    let page = found.page.max(source + offset);
                    (
                        page,
                        self.piece_level(
                            from,
                            to,
                            &found,
                            page,
                            target + (page - source),
                            length - (page - source),
                        ),
                    )
                }
            };
            offset = page - source;
            let piece = Piece {
                from,
                source: page,
                to,
                target: target + offset,
                level: if how == How::Link { 1 } else { level },
                rights: landed.rights(),
            };
            if self.waits_for_place(to, piece.target, pages(piece.level)) {
                break Progress::More;
            }
            let given = match how {
                How::Map => self.map_piece(piece),
                How::Grant => self.grant_piece(piece),
                How::Link => self.link_piece(piece),
            };
            match given {
                Ok(Some(given)) => {
                    self.has_place();
                    offset = (offset + pages(piece.level)).min(length);
                    count += given;
                    self.budget -= if how == How::Grant { 20 } else { 16 } * UNIT;
                }
                // The flush of the target changed the source, or is not finished.
                Ok(None) if self.budget > 0 => self.budget -= 1,
                Err(error) if count == 0 => return Err(error),
                Ok(None) | Err(_) => break Progress::More,
            }
        };
        let end = offset * unit(sent);
        Ok(Mapped {
            progress,
            sent,
            landed,
            start,
            end,
            count,
        })
    }

    /// The next piece in the source: a present one, and for links any slot.
    fn next_piece(&mut self, from: u16, page: u64, end: u64, how: How) -> Search {
        if how != How::Link {
            return self.search(from, page, end, u64::MAX);
        }
        if page >= end {
            return Search::End;
        }
        if self.budget <= 0 {
            return Search::More(page);
        }
        self.budget -= 1;
        let linked = is_linked(self.walk(from, page, 1).entry);
        let what = if linked { What::Linked } else { What::Shared };
        Search::Found(Found {
            page,
            level: 1,
            rights: Rights::NONE,
            what,
        })
    }

    /// The largest page that can be given at once.
    fn piece_level(&mut self, from: u16, to: u16, found: &Found, source: u64, target: u64, left: u64) -> u8 {
        let Some(node) = self.holder(from, found) else { return 0 };
        let mut level = self.whole_level(found, node);
        let fits = |level: u8| (source | target) & (pages(level) - 1) == 0 && pages(level) <= left;
        let all_ports = |level: u8| level == 2 && is_port(source) && left == super::fpage::PORTS;
        while level > 0 && !fits(level) && !all_ports(level) {
            level -= 1;
        }
        // A leaf table that others link stays, so single pages are put into it.
        if self.space(to).shared_tables > 0 && !is_port(target) {
            level = level.min(1);
            let shared = self.mapping.tree.find(to, LINKS, target & !(pages(1) - 1));
            if shared.is_some_and(|node| self.mapping.tree.get(node).kind() == Kind::Table) {
                level = 0;
            }
        }
        level
    }

    /// Whether a space can pay for tables and nodes, and there are frames for the tables.
    fn affords(&mut self, space: u16, tables: u32, units: u32) -> Result<(), Error> {
        if tables * TABLE_UNITS + units > self.left(space) {
            return Err(Error::LimitReached);
        }
        if u64::from(tables) > self.frames.free() {
            self.flush_now();
        }
        if u64::from(tables) > self.frames.free() {
            return Err(Error::NoMemory);
        }
        Ok(())
    }

    /// Units of the mapping that a piece replaces exactly.
    fn replaced_units(&mut self, piece: &Piece) -> u32 {
        let Some(found) = self.look(piece.to, piece.target) else {
            return 0;
        };
        let exact = self.node_at(piece.to, piece.level, piece.target);
        let same = exact.is_some_and(|node| self.mapping.tree.get(node).kind() == Kind::Page);
        if same && (found.level == piece.level || is_port(piece.target)) {
            NODE_UNITS[usize::from(piece.level)]
        } else {
            0
        }
    }

    /// Checks that the receiver can pay, and that no part of a link is replaced.
    fn check_target(&mut self, piece: &Piece, giver_tables: u32) -> Result<(), Error> {
        if !is_port(piece.target) && piece.level == 0 && is_linked(self.walk(piece.to, piece.target, 1).entry) {
            return Err(Error::InUse);
        }
        let tables = self.missing_for_page(piece.to, piece.target, piece.level);
        let units = NODE_UNITS[usize::from(piece.level)] + self.ports_units(piece.to, piece.target);
        let units = units.saturating_sub(self.replaced_units(piece));
        if piece.from == piece.to {
            self.affords(piece.to, tables + giver_tables, units)?;
        } else {
            self.affords(piece.to, tables, units)?;
            self.affords(piece.from, giver_tables, 0)?;
            self.affords(piece.from, 0, 0)?;
        }
        self.mapping.tree.reserve(4)
    }

    /// The source of a piece: its mapping and rights, while it is still there in one piece.
    fn source_of(&self, piece: &Piece) -> Option<(u32, Found)> {
        let found = self.look(piece.from, piece.source)?;
        let node = self.holder(piece.from, &found)?;
        (self.whole_level(&found, node) >= piece.level).then_some((node, found))
    }

    /// Flushes what stands in the target. It is claimed if that takes longer than this event.
    fn clear_target(&mut self, piece: &Piece) -> Progress {
        let &Piece { to, target, level, .. } = piece;
        self.tables_from = 0;
        let range = (target, target + pages(level));
        let (progress, _) = self.flush_from(to, range, target, Rights::RWX, Own::Too);
        if progress == Progress::More {
            self.claim_place(to, target, pages(level));
        }
        progress
    }

    /// Puts a new mapping into the receiver, below a node of its size. It was checked that this can
    /// be paid.
    fn place_piece(&mut self, piece: &Piece, parent: u32, depth: u8, frame: u32, rights: Rights) -> Result<(), Error> {
        let &Piece { to, target, level, .. } = piece;
        self.pay_page(to, target, level)?;
        let mut made = Node::new(Kind::Page, level, to, target, frame, rights);
        made.depth = depth;
        self.place_node(made, parent);
        Ok(())
    }

    /// Takes a node for a whole mapping, and writes its entry.
    pub fn place_node(&mut self, made: Node, parent: u32) -> u32 {
        let tree = &mut self.mapping.tree;
        let node = if made.is_small() {
            tree.hang(made, parent)
        } else {
            tree.insert(made, parent)
        };
        self.show(node);
        node
    }

    /// Writes the entry of a whole mapping.
    fn show(&mut self, node: u32) {
        let at = *self.mapping.tree.get(node);
        let count = super::tables::span(&at);
        self.mapping.tree.get_mut(node).live = count as u32;
        if is_port(at.page()) {
            self.set_ports(at.space(), at.page(), count, true);
        } else {
            let entry = encode_mapping(at.frame, at.rights, at.level(), Fit::Exact);
            self.set_entry(at.space(), at.page(), at.level(), entry);
            if at.level() == 0
                && let Some(word) = self.node_word(at.space(), at.page())
            {
                word.store(node.into(), Relaxed);
            }
        }
    }

    /// Checks and clears the target of a piece. The source's node, a copy of it, the piece's first frame and its rights; `None`: the budget is used up,
    /// or the source is gone.
    fn ready(&mut self, piece: &Piece, tables: u32) -> Result<Option<(u32, Node, u32, Rights)>, Error> {
        self.check_target(piece, tables)?;
        if self.clear_target(piece) == Progress::More {
            return Ok(None);
        }
        Ok(self.source_of(piece).map(|(node, found)| {
            let at = *self.mapping.tree.get(node);
            let frame = at.frame + (piece.source - at.page()) as u32;
            (node, at, frame, found.rights.intersection(piece.rights))
        }))
    }

    fn map_piece(&mut self, piece: Piece) -> Result<Option<u64>, Error> {
        let Some((node, _)) = self.source_of(&piece) else {
            return Ok(None);
        };
        if self.helps_to_give(node) {
            return Ok(None);
        }
        if self.mapping.tree.get(node).depth >= DEPTH_MAX {
            return Err(Error::TableFull);
        }
        let Some((node, at, frame, rights)) = self.ready(&piece, 0)? else {
            return Ok(None);
        };
        let parent = self.mapping.tree.part_of(node, piece.level, frame);
        let placed = self.place_piece(&piece, parent, at.depth + 1, frame, rights);
        if placed.is_err() {
            self.free_parts(parent);
        }
        placed.map(|()| Some(Self::piece_pages(&piece)))
    }

    fn piece_pages(piece: &Piece) -> u64 {
        if is_port(piece.source) {
            pages(piece.level).min(super::fpage::PORTS)
        } else {
            pages(piece.level)
        }
    }

    /// Tables that the giver needs to split a piece off.
    fn splitting_tables(&self, piece: &Piece) -> u32 {
        if is_port(piece.source) {
            return 0;
        }
        self.missing_tables(piece.from, piece.source, piece.level)
    }

    fn grant_piece(&mut self, piece: Piece) -> Result<Option<u64>, Error> {
        let Some((node, _)) = self.source_of(&piece) else {
            return Ok(None);
        };
        let at = self.mapping.tree.get(node);
        let block = (at.frame + (piece.source - at.page()) as u32, piece.level, Rights::RWX);
        if self.helps_to_flush(node, block, Own::Too) {
            return Ok(None);
        }
        let splitting = self.splitting_tables(&piece);
        let Some((node, at, frame, rights)) = self.ready(&piece, splitting)? else {
            return Ok(None);
        };
        // Clearing the target may have replaced this operation's visit. Without the second check `revoke` would begin a new flush of the same page and drop the one
        // that stands open, and the caller of that one would take it for finished.
        let is_flushed = self.budget > 0
            && !self.helps_to_flush(node, (frame, piece.level, Rights::RWX), Own::Too)
            && self.revoke(node, frame, piece.level, Rights::RWX, Own::Kept) == Progress::Done;
        if !is_flushed {
            // The target is empty, and stays so.
            self.keep_open();
            self.claim_place(piece.to, piece.target, pages(piece.level));
            return Ok(None);
        }
        // The receiver's giver is now the granter's giver; if σ₀ granted, it is σ₀.
        let (giver, depth) = if at.parent == NONE {
            (node, 1)
        } else {
            (at.parent, at.depth)
        };
        self.ensure_table(piece.from, piece.source, piece.level)?;
        let parent = self.mapping.tree.part_of(giver, piece.level, frame);
        let placed = self.place_piece(&piece, parent, depth, frame, rights);
        if placed.is_err() {
            self.free_parts(parent);
            return placed.map(|()| None);
        }
        self.split_off(node, piece.source, piece.level);
        if self.mapping.tree.get(node).live == 0 && at.parent != NONE {
            self.delete(node);
        }
        Ok(Some(Self::piece_pages(&piece)))
    }

    fn link_piece(&mut self, piece: Piece) -> Result<Option<u64>, Error> {
        let &Piece {
            from, source: slot, to, ..
        } = &piece;
        if let Some(table) = self.mapping.tree.find(from, LINKS, slot)
            && self.helps_to_give(table)
        {
            return Ok(None);
        }
        let there = self.mapping.tree.find(to, LINKS, slot);
        if there.is_some_and(|node| self.mapping.tree.get(node).kind() == Kind::Table) {
            return Err(Error::InUse);
        }
        let below = self.walk(from, slot, 0);
        if self.mapping.sigma0 == Some(from) && below.level > 0 && !is_present(below.entry) {
            // A table there would be in the way of a large page that comes back.
            return Err(Error::BadArgument);
        }
        let tables = self.missing_tables(to, slot, 1);
        self.affords(to, tables, LINK_UNITS)?;
        let tables = self.missing_tables(from, slot, 0);
        self.affords(from, tables, 0)?;
        self.mapping.tree.reserve(2)?;
        if self.clear_target(&piece) == Progress::More {
            return Ok(None);
        }
        self.ensure_table(from, slot, 0)?;
        let paid = self
            .ensure_table(to, slot, 1)
            .and_then(|()| self.charge(to, LINK_UNITS));
        if paid.is_err() {
            self.prune(from, slot);
            self.prune(to, slot);
            return paid.map(|()| None);
        }
        let walk = self.walk(from, slot, 1);
        debug_assert!(is_present(walk.entry) && !is_large(walk.entry));
        let table = self.mapping.tree.find(from, LINKS, slot).unwrap_or_else(|| {
            self.set_entry(from, slot, 1, walk.entry | SHARED_MARK);
            self.space(from).shared_tables += 1;
            let made = Node::new(Kind::Table, 1, from, slot, 0, Rights::RWX);
            self.mapping.tree.insert(made, NONE)
        });
        let made = Node::new(Kind::Link, 1, to, slot, 0, piece.rights);
        self.mapping.tree.insert(made, table);
        self.set_entry(to, slot, 1, encode_linked(frame_of(walk.entry), piece.rights));
        Ok(Some(1))
    }
}
