//! What a checkpoint does about snapshots: it makes one of what it has written by then, or leaves one out of the list.
//!
//! It comes behind the table: from there on nothing changes which blocks are used. The bitmap blocks of a snapshot are written in descending order of their groups,
//! each block of the chain behind those that it names, and the list at last. Their blocks are held and not used, so the bitmap of the generation does not have
//! them. What fails for want of blocks or heap is given up, and the checkpoint goes on without it.

use super::{Checkpoint, STEP_PIECE, Step};
use crate::containers::{List, Map, push_reserved};
use crate::event::Failure;
use crate::heap::{NoHeap, with_room};
use crate::io::Purpose;
use crate::snapshots::format::{ENTRIES, Entry, Record, Twin, encode_link, encode_list};
use crate::snapshots::{Known, Request, SnapshotError, cost};
use crate::store::{COST_BLOCK, Store};
use crate::superblock::Place;
use crate::world::{BLOCK, Frame, Operation, World};
use alloc::vec::Vec;

/// The cost of holding the used blocks of a group.
const COST_HOLD: u64 = 3_000;

/// How far the work is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum At {
    /// At its beginning.
    Start,
    /// At the groups before one, of the chain that is being written.
    Groups(usize),
    /// At the second copy of a block of a chain.
    SecondOfLink(Twin),
    /// At the list, of which a copy may be written.
    List(Option<Twin>),
    /// All is on its way.
    Done,
}

/// What a checkpoint does about snapshots.
pub(super) struct Keeping {
    request: Request,
    /// Blocks promised for it.
    promised: u64,
    at: At,
    /// The snapshots that there will be.
    behind: Vec<Known>,
    /// The place in them of the one whose chain is written, and what it holds, if that is not what is used now.
    place: usize,
    given: Option<Map<usize, Vec<u64>>>,
    /// What the next block of the chain names, in descending order; the one behind it; and whether none comes before.
    entries: Vec<Entry>,
    next: Option<Twin>,
    is_first: bool,
    list: Option<Twin>,
    taken: List<u64>,
    /// Groups before this one are yet to be held.
    unheld: usize,
}

/// Why it does not go on.
enum Stop {
    /// The work is given up.
    GiveUp(SnapshotError),
    /// The checkpoint must see to it.
    Fail(Failure),
    /// It waits.
    Wait,
}

impl From<NoHeap> for Stop {
    fn from(_: NoHeap) -> Self {
        Self::GiveUp(SnapshotError::Memory)
    }
}

impl From<abi::Error> for Stop {
    fn from(_: abi::Error) -> Self {
        Self::GiveUp(SnapshotError::Memory)
    }
}

impl Keeping {
    fn new((request, promised): (Request, u64)) -> Self {
        Self {
            request,
            promised,
            at: At::Start,
            behind: Vec::new(),
            place: 0,
            given: None,
            entries: Vec::new(),
            next: None,
            is_first: false,
            list: None,
            taken: List::default(),
            unheld: 0,
        }
    }

    fn record(&mut self) -> Option<&mut Record> {
        self.behind.get_mut(self.place).map(|known| &mut known.record)
    }

    /// Finds out what is to be done, and room for it.
    fn start(&mut self, store: &mut Store, share: &mut u64) -> Result<(), Stop> {
        self.behind = store.snapshots.behind(&self.request)?;
        self.entries = with_room(ENTRIES)?;
        if let Request::Keep { name, time, received } = self.request {
            // More groups may have come since it was asked for.
            let more = cost(&self.request, store.allocation.groups_there()).saturating_sub(self.promised);
            // What was promised is there, also where the next checkpoint will have to use the pool.
            if more > 0 {
                let room = store.allocation.promise(store.needed() + more);
                room.map_err(|_| Stop::GiveUp(SnapshotError::DiskFull))?;
                store.budget += more;
                *share += more;
            }
            let record = Record {
                name,
                generation: store.generation + 1,
                time,
                table: store.table.root_place(),
                objects: store.table.len(),
                totals: store.table.totals(),
                high_water: store.high_water,
                blocks: 0,
                received,
            };
            self.place = self.behind.len();
            push_reserved(
                &mut self.behind,
                Known {
                    record,
                    head: Twin::default(),
                    is_damaged: false,
                },
            );
            self.at = At::Groups(store.allocation.bitmap_blocks());
        } else {
            self.go_to_next(store);
        }
        Ok(())
    }

    /// A chain is written: the next one, or the list.
    fn go_to_next(&mut self, store: &mut Store) {
        self.at = At::List(None);
        while let Some((name, words)) = store.snapshots.rebuilt.pop() {
            let place = self.behind.iter().position(|known| known.record.name == name);
            if let Some(place) = place {
                self.place = place;
                self.given = Some(words);
                self.next = None;
                self.record().into_iter().for_each(|record| record.blocks = 0);
                self.at = At::Groups(store.allocation.bitmap_blocks());
                break;
            }
        }
    }

    /// The last group before one of which the snapshot holds blocks.
    fn group_before(&self, store: &Store, mut below: usize) -> Option<usize> {
        if let Some(given) = &self.given {
            return given.below(below).map(|(group, _)| group);
        }
        while let Some(group) = store.allocation.last_there(below) {
            if !store.allocation.is_free(group) {
                return Some(group);
            }
            below = group;
        }
        None
    }
}

impl Checkpoint {
    /// Takes over what is to be done about snapshots.
    pub(crate) fn keep(&mut self, wanted: Option<(Request, u64)>) {
        self.keeping = wanted.map(Keeping::new);
    }

    /// Where the list of snapshots stands in the new generation.
    pub(super) fn list(&self, store: &Store) -> Option<Twin> {
        match &self.keeping {
            Some(keeping) => keeping.list,
            None => store.snapshots.list,
        }
    }

    /// Writes what tells of snapshots.
    pub(super) fn write_snapshots(&mut self, store: &mut Store, world: &mut impl World) -> Result<Step, Failure> {
        while let Some(mut keeping) = self.keeping.take() {
            if keeping.at == At::Done {
                self.keeping = Some(keeping);
                break;
            }
            match self.write_one(store, world, &mut keeping) {
                Ok(()) => self.keeping = Some(keeping),
                Err(Stop::Wait) => {
                    self.keeping = Some(keeping);
                    return Ok(Step::Waiting);
                }
                Err(Stop::Fail(reason)) => {
                    self.keeping = Some(keeping);
                    return Err(reason);
                }
                Err(Stop::GiveUp(reason)) => {
                    while store.release_taken(&mut keeping.taken, STEP_PIECE) {}
                    store.snapshots.end(Err(reason));
                }
            }
        }
        Ok(Step::Complete)
    }

    /// Takes one step.
    fn write_one(&mut self, store: &mut Store, world: &mut impl World, keeping: &mut Keeping) -> Result<(), Stop> {
        match keeping.at {
            At::Start => keeping.start(store, &mut self.share),
            At::Groups(below) => {
                let group = keeping.group_before(store, below);
                match group {
                    Some(group) if keeping.entries.len() < ENTRIES => self.write_group(store, world, keeping, group),
                    _ => {
                        keeping.is_first = group.is_none();
                        self.write_link(store, world, keeping, None)
                    }
                }
            }
            At::SecondOfLink(twin) => self.write_link(store, world, keeping, Some(twin)),
            At::List(_) if keeping.behind.is_empty() => {
                keeping.at = At::Done;
                Ok(())
            }
            At::List(first) => self.write_list(store, world, keeping, first),
            At::Done => Ok(()),
        }
    }

    /// A frame to write from.
    fn frame_for(&self, store: &mut Store, world: &mut impl World) -> Result<Frame, Stop> {
        match self.scratch(store, world, COST_BLOCK) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(Stop::Wait),
            Err(reason) => Err(Stop::Fail(reason)),
        }
    }

    /// A block that is held.
    fn held_block(&mut self, store: &mut Store, taken: &mut List<u64>) -> Result<u64, Stop> {
        taken.reserve(1)?;
        let block = store.take_young_block(&mut self.share);
        let block = block.map_err(|_| Stop::GiveUp(SnapshotError::DiskFull))?;
        if let Err(NoHeap) = store.allocation.make_held(block) {
            store.allocation.release(block);
            return Err(NoHeap.into());
        }
        taken.push_reserved(block);
        Ok(block)
    }

    /// Two of them.
    fn two_blocks(&mut self, store: &mut Store, taken: &mut List<u64>) -> Result<[u64; 2], Stop> {
        Ok([self.held_block(store, taken)?, self.held_block(store, taken)?])
    }

    fn write_group(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        keeping: &mut Keeping,
        group: usize,
    ) -> Result<(), Stop> {
        if keeping.given.is_none() {
            // What the commit will note needs no heap then.
            store.allocation.expect_held(group)?;
        }
        let frame = self.frame_for(store, world)?;
        let block = match self.held_block(store, &mut keeping.taken) {
            Ok(block) => block,
            Err(stop) => {
                store.io.recycle(world, frame);
                return Err(stop);
            }
        };
        let given = keeping.given.as_ref().and_then(|given| given.get_ref(group));
        match given {
            Some(words) => crate::allocation::fill(world.bytes_mut(frame), words),
            None => store.allocation.encode(group, world.bytes_mut(frame)),
        }
        let bytes: &[u8; BLOCK] = world.bytes(frame);
        let blocks: u64 = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
            .sum();
        let checksum = store.checksums.of(block, bytes);
        push_reserved(&mut keeping.entries, (group as u64, Place { block, checksum }));
        keeping.record().into_iter().for_each(|record| record.blocks += blocks);
        keeping.at = At::Groups(group);
        self.submit(store, world, Operation::Write, block, frame, Purpose::Scratch(frame));
        Ok(())
    }

    /// Writes a frame as a copy of a block that stands twice: the second one if the first is written. Tells where both stand.
    fn write_copy(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        taken: &mut List<u64>,
        frame: Frame,
        first: Option<Twin>,
    ) -> Result<Twin, Stop> {
        let (twin, block) = if let Some(twin) = first {
            (twin, twin.blocks[1])
        } else {
            let blocks = match self.two_blocks(store, taken) {
                Ok(blocks) => blocks,
                Err(stop) => {
                    store.io.recycle(world, frame);
                    return Err(stop);
                }
            };
            let checksum = store.checksums.of(blocks[0], world.bytes(frame));
            (Twin { blocks, checksum }, blocks[0])
        };
        self.submit(store, world, Operation::Write, block, frame, Purpose::Scratch(frame));
        Ok(twin)
    }

    /// Writes a copy of a block of a chain; the second one if the first is written.
    fn write_link(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        keeping: &mut Keeping,
        first: Option<Twin>,
    ) -> Result<(), Stop> {
        let frame = self.frame_for(store, world)?;
        if let Some(known) = keeping.behind.get(keeping.place) {
            encode_link(&known.record, keeping.next, &keeping.entries, world.bytes_mut(frame));
        }
        let twin = self.write_copy(store, world, &mut keeping.taken, frame, first)?;
        if first.is_none() {
            keeping.at = At::SecondOfLink(twin);
            return Ok(());
        }
        let below = keeping.entries.last().map_or(0, |entry| entry.0 as usize);
        keeping.entries.clear();
        keeping.next = Some(twin);
        keeping.at = At::Groups(below);
        if keeping.is_first {
            if let Some(known) = keeping.behind.get_mut(keeping.place) {
                known.head = twin;
                known.is_damaged = false;
            }
            keeping.go_to_next(store);
        }
        Ok(())
    }

    /// Writes a copy of the list; the second one if the first is written.
    fn write_list(
        &mut self,
        store: &mut Store,
        world: &mut impl World,
        keeping: &mut Keeping,
        first: Option<Twin>,
    ) -> Result<(), Stop> {
        let frame = self.frame_for(store, world)?;
        encode_list(&keeping.behind, world.bytes_mut(frame));
        let twin = self.write_copy(store, world, &mut keeping.taken, frame, first)?;
        if first.is_none() {
            keeping.at = At::List(Some(twin));
        } else {
            keeping.list = Some(twin);
            keeping.at = At::Done;
        }
        Ok(())
    }

    /// The generation is durable: so is what tells of snapshots in it. The list of before is needed as long as its generation is.
    pub(super) fn commit_snapshots(&mut self, store: &mut Store) {
        store.snapshots.reclaim.go_on();
        let Some(keeping) = &mut self.keeping else { return };
        let before = core::mem::replace(&mut store.snapshots.list, keeping.list);
        for block in before.into_iter().flat_map(|list| list.blocks) {
            store.allocation.free_held(block);
        }
        store.snapshots.known = core::mem::take(&mut keeping.behind);
        store.snapshots.is_list_bad = false;
        store.snapshots.lost.clear();
        let groups = store.allocation.bitmap_blocks();
        match keeping.request {
            Request::Keep { .. } => {
                keeping.unheld = groups;
                store.snapshots.reclaim.begin_anew();
            }
            Request::Drop { .. } => store.snapshots.reclaim.begin(groups),
            Request::Write => store.snapshots.reclaim.begin_anew(),
        }
    }

    /// Holds the used blocks of a group for a snapshot that is durable; tells whether there may be more.
    pub(super) fn hold_some(&mut self, store: &mut Store) -> bool {
        let Some(keeping) = &mut self.keeping else {
            return false;
        };
        if let Some(group) = store.allocation.last_there(keeping.unheld) {
            if store.may_go_on(COST_HOLD) {
                store.spend(COST_HOLD);
                store.allocation.hold_used(group);
                keeping.unheld = group;
            }
            return true;
        }
        self.keeping = None;
        store.snapshots.end(Ok(()));
        false
    }

    /// Gives back what was taken for snapshots; tells whether there may be more.
    pub(super) fn give_snapshots_up(&mut self, store: &mut Store) -> bool {
        let Some(keeping) = &mut self.keeping else {
            return false;
        };
        if !store.release_taken(&mut keeping.taken, STEP_PIECE) {
            self.keeping = None;
            store.snapshots.end(Err(SnapshotError::Checkpoint));
        }
        true
    }
}
