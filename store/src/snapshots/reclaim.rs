//! What a snapshot that was dropped has held alone is found and set free, while nobody wants anything of the disk.
//!
//! What is held is known as the union of all. So the bitmaps of those that are left are read again, for a window of groups at a time: what they name, and the
//! blocks that tell of them, is marked; what is held in the window and not marked is held by nobody. It is noted as free like all that is set free, so
//! it is used when that is durable for two generations. No more than [`HELD_MAX`] blocks wait for that at a time: the heap for the list is
//! bounded, and the search goes on when some have come back.
//!
//! A snapshot that comes or goes meanwhile begins the window anew. Nothing of all this is on the disk: a start holds what the list of snapshots says, and no more.
//! Where something cannot be read all stays held until the next start.

use super::format::{Entry, Twin, decode_link};
use crate::containers::{Map, push};
use crate::geometry::BITS;
use crate::heap::{NoHeap, zeroed};
use crate::io::Purpose;
use crate::store::{COST_READ, Store};
use crate::superblock::Place;
use crate::world::{DiskError, Frame, Operation, World};
use alloc::vec::Vec;
use core::ops::Range;

/// Groups in a window.
const WINDOW: usize = 64;
/// Blocks that wait to be used again, beyond which no more are looked for.
const HELD_MAX: u64 = 32_768;
/// Words that are compared, and blocks that are set free, in a piece; and its cost.
const PIECE_WORDS: usize = 64;
const PIECE_BLOCKS: u32 = 16;
const COST_PIECE: u64 = 6_000;
/// How often a block is read before the search ends.
const TRIES: usize = 2;

/// How far the search is.
#[derive(PartialEq, Eq, Debug, Default)]
enum At {
    /// There is nothing to look for.
    #[default]
    Rest,
    /// Before the window that ends before this group.
    Window(usize),
    /// At a block of the chain of the snapshot of this number.
    Link { number: usize, twin: Twin },
    /// At the bitmap blocks that a block of a chain names, with the block behind it.
    Bitmaps {
        number: usize,
        wanted: Vec<Entry>,
        next: Option<Twin>,
    },
    /// At this word of a group of the window.
    Sweep { group: usize, word: usize },
}

/// A block that is being read.
#[derive(Copy, Clone)]
struct Reading {
    frame: Frame,
    place: Place,
    tries: usize,
    /// Whether a snapshot came or went meanwhile.
    is_stale: bool,
}

/// The search for what no snapshot holds any more.
#[derive(Default)]
pub(crate) struct Reclaim {
    at: At,
    window: Range<usize>,
    /// What is held in the window, by group.
    marked: Map<usize, Vec<u64>>,
    reading: Option<Reading>,
    /// Whether heap or frames were short; the next generation lets it go on.
    is_stalled: bool,
}

impl Reclaim {
    /// Whether a block is being read.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether there is something to look for.
    pub(crate) fn runs(&self) -> bool {
        self.at != At::Rest
    }

    /// A snapshot was dropped: looks at all groups.
    pub(crate) fn begin(&mut self, groups: usize) {
        self.begin_at(groups);
    }

    /// The snapshots are others: begins the window anew, if there is one.
    pub(crate) fn begin_anew(&mut self) {
        match self.at {
            At::Rest | At::Window(_) => {}
            _ => self.begin_at(self.window.end),
        }
    }

    /// There may be heap again: a generation is durable.
    pub(crate) fn go_on(&mut self) {
        self.is_stalled = false;
    }

    fn begin_at(&mut self, below: usize) {
        self.at = At::Window(below);
        self.marked.clear();
        self.is_stalled = false;
        if let Some(reading) = &mut self.reading {
            reading.is_stale = true;
        }
    }

    fn end(&mut self) {
        self.at = At::Rest;
        self.marked.clear();
    }

    /// The words of a group of the window.
    fn words(&mut self, group: usize) -> Result<&mut [u64], NoHeap> {
        if !self.marked.has(group) {
            self.marked.insert(group, zeroed(BITS / 64)?)?;
        }
        Ok(self.marked.get_mut(group).map_or(&mut [][..], Vec::as_mut_slice))
    }
}

impl Store {
    /// Whether blocks that snapshots which were dropped held are being looked for: they come back later.
    pub fn is_reclaiming(&self) -> bool {
        self.snapshots.reclaim.runs()
    }

    /// Has a search that lacked heap or frames try again with the next polls.
    pub fn reclaim_again(&mut self) {
        if self.snapshots.reclaim.runs() {
            self.snapshots.reclaim.go_on();
            self.awake = true;
        }
    }

    /// Goes on until a block is on its way, as far as the budget reaches.
    pub(crate) fn advance_reclaim(&mut self, world: &mut impl World) {
        while self.snapshots.reclaim.runs()
            && !self.snapshots.reclaim.is_stalled
            && self.snapshots.reclaim.reading.is_none()
            && self.is_quiet()
            && self.allocation.held_blocks() < HELD_MAX
        {
            if !self.may_go_on(COST_PIECE) {
                return;
            }
            if let Err(NoHeap) = self.reclaim_step(world) {
                self.snapshots.reclaim.is_stalled = true;
            }
        }
    }

    fn reclaim_step(&mut self, world: &mut impl World) -> Result<(), NoHeap> {
        match &mut self.snapshots.reclaim.at {
            At::Rest => {}
            At::Window(below) => {
                let below = *below;
                self.spend(COST_PIECE);
                self.begin_window(below)?;
            }
            At::Link { twin, .. } => {
                let place = twin.place();
                self.reclaim_read(world, (place.block, place))?;
            }
            At::Bitmaps { number, wanted, next } => {
                if let Some(&(_, place)) = wanted.last() {
                    self.reclaim_read(world, (place.block, place))?;
                } else {
                    let (number, next) = (*number, *next);
                    self.go_to_link(number, next);
                }
            }
            At::Sweep { group, word } => {
                let (group, word) = (*group, *word);
                self.spend(COST_PIECE);
                self.sweep(group, word);
            }
        }
        Ok(())
    }

    /// The last groups before one in which something is held.
    fn begin_window(&mut self, below: usize) -> Result<(), NoHeap> {
        let Some(last) = self.allocation.last_there(below) else {
            self.snapshots.reclaim.end();
            return Ok(());
        };
        if self.allocation.held_words(last).is_empty() {
            self.snapshots.reclaim.at = At::Window(last);
            return Ok(());
        }
        self.snapshots.reclaim.marked.clear();
        self.snapshots.reclaim.window = (last + 1).saturating_sub(WINDOW)..last + 1;
        let list = self.snapshots.list;
        for block in list.into_iter().flat_map(|list| list.blocks) {
            self.mark_block(block)?;
        }
        self.go_to_snapshot(0);
        Ok(())
    }

    /// Goes to the chain of a snapshot, or behind the last one to what is not marked.
    fn go_to_snapshot(&mut self, number: usize) {
        let group = self.snapshots.reclaim.window.start;
        self.snapshots.reclaim.at = match self.snapshots.known.get(number) {
            Some(known) => At::Link {
                number,
                twin: known.head,
            },
            None => At::Sweep { group, word: 0 },
        };
    }

    fn go_to_link(&mut self, number: usize, next: Option<Twin>) {
        match next {
            Some(twin) => self.snapshots.reclaim.at = At::Link { number, twin },
            None => self.go_to_snapshot(number + 1),
        }
    }

    /// Marks a block that tells of snapshots, if it lies in the window.
    fn mark_block(&mut self, block: u64) -> Result<(), NoHeap> {
        let Some(bit) = block.checked_sub(self.geometry.data_start()) else {
            return Ok(());
        };
        let group = (bit / BITS) as usize;
        if self.snapshots.reclaim.window.contains(&group)
            && let Some(word) = self.snapshots.reclaim.words(group)?.get_mut((bit % BITS / 64) as usize)
        {
            *word |= 1 << (bit % 64);
        }
        Ok(())
    }

    fn reclaim_read(&mut self, world: &mut impl World, (block, place): (u64, Place)) -> Result<(), NoHeap> {
        self.expect_read()?;
        let frame = world.alloc().ok_or(NoHeap)?;
        self.spend(COST_READ);
        self.snapshots.reclaim.reading = Some(Reading {
            frame,
            place,
            tries: 1,
            is_stale: false,
        });
        self.io.submit(world, Operation::Read, block, frame, Purpose::Reclaim);
        Ok(())
    }

    /// A block has come.
    pub(crate) fn reclaim_arrived(&mut self, world: &mut impl World, result: Result<(), DiskError>) {
        let Some(mut reading) = self.snapshots.reclaim.reading.take() else {
            return;
        };
        let Reading {
            frame, place, tries, ..
        } = reading;
        let fits = result.is_ok() && self.checksums.fit(place.checksum, place.block, world.bytes(frame));
        if !reading.is_stale && !fits && tries < TRIES {
            // A block of a chain has a copy; any other is read again.
            let block = match &self.snapshots.reclaim.at {
                At::Link { twin, .. } => twin.blocks[1],
                _ => place.block,
            };
            reading.tries += 1;
            self.snapshots.reclaim.reading = Some(reading);
            self.io.submit(world, Operation::Read, block, frame, Purpose::Reclaim);
            return;
        }
        if !reading.is_stale {
            let taken = if fits {
                self.take_reclaimed(world, frame)
            } else {
                Ok(false)
            };
            match taken {
                Ok(true) => {}
                Ok(false) => self.snapshots.reclaim.end(),
                Err(NoHeap) => self.snapshots.reclaim.is_stalled = true,
            }
        }
        world.free(frame);
    }

    /// Marks what a block says; `false` if it makes no sense.
    fn take_reclaimed(&mut self, world: &mut impl World, frame: Frame) -> Result<bool, NoHeap> {
        let window = self.snapshots.reclaim.window.clone();
        match &mut self.snapshots.reclaim.at {
            At::Link { number, twin } => {
                let (number, twin) = (*number, *twin);
                let link = match decode_link(world.bytes(frame)) {
                    Ok(link) => link,
                    Err(crate::bytes::Unread::NoHeap) => return Err(NoHeap),
                    Err(crate::bytes::Unread::Nonsense) => return Ok(false),
                };
                for block in link.blocks(&twin) {
                    self.mark_block(block)?;
                }
                let mut wanted = Vec::new();
                for &entry in link.entries.iter().filter(|entry| window.contains(&(entry.0 as usize))) {
                    push(&mut wanted, entry)?;
                }
                let next = link.next;
                self.snapshots.reclaim.at = At::Bitmaps { number, wanted, next };
            }
            At::Bitmaps { wanted, .. } => {
                let Some(&(group, _)) = wanted.last() else {
                    return Ok(true);
                };
                let words = self.snapshots.reclaim.words(group as usize)?;
                for (word, found) in words.iter_mut().zip(world.bytes(frame).as_chunks().0) {
                    *word |= u64::from_le_bytes(*found);
                }
                if let At::Bitmaps { wanted, .. } = &mut self.snapshots.reclaim.at {
                    wanted.pop();
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Sets some of the blocks free that are held and not marked.
    fn sweep(&mut self, group: usize, from: usize) {
        let start = self.geometry.data_start() + group as u64 * BITS;
        let (mut word, mut left) = (from, PIECE_BLOCKS);
        let end = (BITS / 64) as usize;
        while word < end && word < from + PIECE_WORDS && left > 0 {
            let held = self.allocation.held_words(group).get(word).copied().unwrap_or(0);
            let marked = self.snapshots.reclaim.marked.get_ref(group);
            let marked = marked.and_then(|words| words.get(word)).copied().unwrap_or(0);
            let mut gone = held & !marked;
            while gone != 0 && left > 0 {
                let bit = word as u64 * 64 + u64::from(gone.trailing_zeros());
                gone &= gone - 1;
                left -= 1;
                self.allocation.free_held(start + bit);
            }
            if gone == 0 {
                word += 1;
            }
        }
        let window = &self.snapshots.reclaim.window;
        self.snapshots.reclaim.at = if word < end {
            At::Sweep { group, word }
        } else if group + 1 < window.end {
            At::Sweep {
                group: group + 1,
                word: 0,
            }
        } else {
            At::Window(window.start)
        };
    }
}
