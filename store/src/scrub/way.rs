//! A state that is not in memory, as a walk through it sees it: the nodes above the place where the walk is, each in a frame. That is all that it takes, however large
//! the state is.
//!
//! Nodes are known by their places alone. What a place says is the same wherever it is named, for nothing that a snapshot holds is written over.

use crate::map::{Entry, LEVELS_MAX, MapRoot, entry_in, reach};
use crate::snapshots::format::Twin;
use crate::superblock::Place;
use crate::table_format::{RowSeen, child_at, is_leaf, row_from};
use crate::table_loading::HEIGHT_MAX;
use crate::world::{Frame, Pages};

/// A level of a table, counted from the root, or of a map, counted from its pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Table(usize),
    Map(u8),
}

/// The node that was read last on a level; without a frame, one that cannot be read.
type Node = Option<(Place, Option<Frame>)>;

/// What is known of a node.
pub(super) enum Known {
    /// It is to be read.
    Unread,
    /// It cannot be.
    Bad,
    /// Its contents.
    Here(Frame),
}

/// The answer to a question about a state.
pub(super) enum Answer<T> {
    Known(T),
    /// A node is to be read first.
    Wants(Level, Place),
}

/// A snapshot, and the nodes of it that are in memory.
#[derive(Default)]
pub(super) struct Way {
    /// The first block of its chain, which no other snapshot has.
    pub(super) head: Twin,
    pub(super) root: Place,
    table: [Node; HEIGHT_MAX],
    map: [Node; LEVELS_MAX as usize + 1],
}

impl Way {
    pub(super) fn new(head: Twin, root: Place) -> Self {
        Self {
            head,
            root,
            ..Self::default()
        }
    }

    fn node(&mut self, level: Level) -> Option<&mut Node> {
        match level {
            Level::Table(level) => self.table.get_mut(level),
            Level::Map(level) => self.map.get_mut(usize::from(level)),
        }
    }

    pub(super) fn at(&self, level: Level, place: Place) -> Known {
        let node = match level {
            Level::Table(level) => self.table.get(level),
            Level::Map(level) => self.map.get(usize::from(level)),
        };
        match node.copied().flatten().filter(|node| node.0 == place) {
            None => Known::Unread,
            Some((_, None)) => Known::Bad,
            Some((_, Some(frame))) => Known::Here(frame),
        }
    }

    /// Takes a node in that was read, or could not be, in the place of the one before.
    pub(super) fn put(&mut self, pages: &mut impl Pages, level: Level, place: Place, frame: Option<Frame>) {
        let Some(node) = self.node(level) else {
            if let Some(frame) = frame {
                pages.free(frame);
            }
            return;
        };
        if let Some((_, Some(before))) = node.replace((place, frame)) {
            pages.free(before);
        }
    }

    /// Gives all frames back.
    pub(super) fn clear(&mut self, pages: &mut impl Pages) {
        for node in self.table.iter_mut().chain(&mut self.map) {
            if let Some((_, Some(frame))) = node.take() {
                pages.free(frame);
            }
        }
    }

    /// Goes down the table to an address: to the place that is wanted, or to where the way ends, with the node there if it is a leaf.
    fn down(&self, pages: &impl Pages, address: u64, wanted: Option<Place>) -> Answer<(Place, Option<Frame>)> {
        let mut place = self.root;
        for level in (0..HEIGHT_MAX).map(Level::Table) {
            if Some(place) == wanted || place.block == 0 {
                break;
            }
            let frame = match self.at(level, place) {
                Known::Unread => return Answer::Wants(level, place),
                Known::Bad => break,
                Known::Here(frame) => frame,
            };
            match child_at(pages.bytes(frame), address, (0, u64::MAX)) {
                Some(child) => place = child.place,
                None => return Answer::Known((place, is_leaf(pages.bytes(frame)).then_some(frame))),
            }
        }
        Answer::Known((place, None))
    }

    /// Whether a node of the table stands on the way to an address.
    pub(super) fn has_in_table(&self, pages: &impl Pages, address: u64, wanted: Place) -> Answer<bool> {
        match self.down(pages, address, Some(wanted)) {
            Answer::Known((place, _)) => Answer::Known(place == wanted),
            Answer::Wants(level, place) => Answer::Wants(level, place),
        }
    }

    /// The row of an object.
    pub(super) fn row(&self, pages: &impl Pages, base: u64) -> Answer<Option<RowSeen>> {
        match self.down(pages, base, None) {
            Answer::Known((_, leaf)) => {
                let row = leaf.and_then(|frame| row_from(pages.bytes(frame), base));
                Answer::Known(row.filter(|row| row.base == base))
            }
            Answer::Wants(level, place) => Answer::Wants(level, place),
        }
    }

    /// Whether a node of a map, or on level zero a page, is what stands at a page.
    pub(super) fn has_in_map(
        &self,
        pages: &impl Pages,
        map: MapRoot,
        (level, page): (u8, u64),
        wanted: Place,
    ) -> Answer<bool> {
        if map.levels < level || page >= reach(map.levels) {
            return Answer::Known(false);
        }
        let mut entry = map.entry;
        for above in (level + 1..=map.levels).rev() {
            let place = place_of(entry);
            // Lost, or nothing at all.
            if entry.block == 0 || entry.block == crate::map::LOST {
                return Answer::Known(false);
            }
            let frame = match self.at(Level::Map(above), place) {
                Known::Unread => return Answer::Wants(Level::Map(above), place),
                Known::Bad => return Answer::Known(false),
                Known::Here(frame) => frame,
            };
            entry = entry_in(pages.bytes(frame), page / reach(above - 1));
        }
        Answer::Known(place_of(entry) == wanted)
    }
}

pub(super) fn place_of(entry: Entry) -> Place {
    Place {
        block: entry.block,
        checksum: entry.checksum,
    }
}
