//! The rules that hold of the server between any two events: its own records agree with one another and with the page
//! tables.
//!
//! With assertions on (host tests, the fuzzed build) the server checks itself every [`EVENTS_EACH`] events,
//! wherever it runs. The tests call [`Server::check`] more often. Checks that ask for a world at rest (exact references of frames,
//! what the processor remembers, who owns what) stay with them: `tests/system/check.rs`.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;

use abi::{
    Rights,
    address::{FIRST_FREE, OBJECTS_END, PAGE, PAGES_PER_SLOT, SLOT, slot_of},
    layout::OBJECT_STACK,
};
use kcore::PageEntry;
use store::ObjectRecord;

use crate::{
    Server, World,
    accounts::{AccountId, Amounts, Cached, Ledger, RESOURCE_LIST, RESOURCES, Resource},
    directory::{
        names::slots_named,
        object::{KEPT, LimitRange, Object, kept_charges},
    },
    lives::exception::SAVED_BYTES,
    lives::task::TASK_BYTES,
    pages::pager::Pager,
    waiting::semaphore::SEMAPHORE_BYTES,
};

/// The words for a wrong ledger, by resource.
const RESOURCE_NAMES: [&str; RESOURCES] = [
    "frames that an account pays for",
    "page tables that an account pays for",
    "dirty pages that an account pays for",
    "blocks that an account pays for",
    "bytes that an account pays for",
    "threads that an account pays for",
    "semaphores that an account pays for",
    "processor time that an account pays for",
    "slots that an account pays for",
    "bytes of kept objects that an account pays for",
    "slots of kept objects that an account pays for",
    "spaces that an account pays for",
];

/// Events between two checks.
pub const EVENTS_EACH: u32 = 1000;

/// A rule that does not hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// In words.
    pub what: &'static str,
    /// The address, task or number that it concerns.
    pub at: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server is inconsistent at {:#x}: {}", self.at, self.what)
    }
}

fn ensure(holds: bool, what: &'static str, at: u64) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { what, at }) }
}

/// The sums over the objects.
#[derive(Default)]
struct Sums {
    leaves: BTreeSet<u32>,
    resident: u64,
    dirty: u64,
    charged: BTreeMap<AccountId, Amounts>,
    /// Whether a page may be written that was handed to a checkpoint: its moment has not come, or never will.
    may_write_held: bool,
}

impl Sums {
    fn add(&mut self, payer: AccountId, resource: Resource, amount: u64) {
        self.charged.entry(payer).or_default()[resource as usize] += amount;
    }
}

impl Server {
    /// The charges equal what there is.
    fn check_ledger(&self, sums: &mut Sums) -> Result<(), Broken> {
        for (_, object) in self.objects.iter() {
            for (&resource, amount) in RESOURCE_LIST.iter().zip(object.charges()) {
                sums.add(object.account, resource, amount);
            }
        }
        for (payer, amounts) in [self.programs, AccountId::ROOT].into_iter().zip(self.resting) {
            for (resource, amount) in KEPT.into_iter().zip(amounts) {
                sums.add(payer, resource, amount);
            }
        }
        if self.store.has_all_rows() {
            let mut resting = [[0; KEPT.len()]; 2];
            let inactive = |record: &&ObjectRecord| self.objects.find(record.base).is_none();
            for record in self.store.objects().filter(inactive) {
                let class = usize::from(!Ledger::is_of_programs(record.account));
                for (sum, (_, amount)) in resting[class].iter_mut().zip(kept_charges(record)) {
                    *sum += amount;
                }
            }
            ensure(
                resting == self.resting,
                "what rows of earlier starts are charged for",
                0,
            )?;
        }
        for (_, domain) in self.domains.iter() {
            sums.add(domain.account, Resource::Frames, domain.tables());
            sums.add(domain.account, Resource::Tables, domain.tables());
            sums.add(domain.account, Resource::Bytes, domain.bytes());
            sums.add(domain.account, Resource::Spaces, 1);
        }
        for task in self.tasks.iter() {
            sums.add(task.account, Resource::Bytes, TASK_BYTES);
        }
        for record in self.threads.iter() {
            sums.add(record.payer, Resource::Threads, 1);
            for payer in record.saved.iter().filter_map(|saved| saved.payer) {
                sums.add(payer, Resource::Bytes, SAVED_BYTES);
            }
        }
        for (_, callee) in self.callees.iter() {
            sums.add(callee.payer, Resource::Bytes, SAVED_BYTES * callee.stacks.len() as u64);
        }
        for payer in self.semaphores.payers() {
            sums.add(payer, Resource::Semaphores, 1);
            sums.add(payer, Resource::Bytes, SEMAPHORE_BYTES);
        }
        for (payer, bytes) in self.objects.map.charges() {
            sums.add(payer, Resource::Bytes, bytes);
        }
        let own = |account| sums.charged.get(&account).copied().unwrap_or_default();
        match self.ledger.disagreement(own) {
            None => Ok(()),
            Some((account, resource)) => Err(Broken {
                what: RESOURCE_NAMES[resource as usize],
                at: self.ledger.number(account),
            }),
        }
    }

    /// What the store is to do about snapshots is what somebody has asked for.
    fn check_snapshots(&self) -> Result<(), Broken> {
        let has_asked = self.checkpoint.asked.is_some();
        ensure(
            has_asked || !self.store.is_asked_for_snapshot(),
            "a snapshot that nobody asked for",
            0,
        )
    }

    /// No active object stands in a slot that is free, there is room for the addresses of all to come back, and the names of Clists are counted.
    fn check_addresses(&self) -> Result<(), Broken> {
        let window = slot_of(FIRST_FREE)..slot_of(OBJECTS_END);
        let active = || self.objects.iter().map(|(_, object)| object);
        for object in active() {
            let ends = [object.first_slot(), slot_of(object.reach() - 1)];
            let free = ends
                .iter()
                .any(|slot| window.contains(slot) && self.addresses.is_free(*slot));
            ensure(!free, "a slot of an object that is free", object.base())?;
            let unknown = self.unknown.from(ends[0]).is_some_and(|(first, _)| first <= ends[1]);
            ensure(!unknown, "a slot of an object that is not known", object.base())?;
        }
        let come_back = active()
            .filter(|object| object.record.flags & OBJECT_STACK == 0)
            .count();
        let come_back = come_back + self.checkpoint.held_runs();
        ensure(
            self.addresses.expects(come_back),
            "the count of runs of slots that come back",
            come_back as u64,
        )?;
        let inactive = |record: &&ObjectRecord| self.objects.find(record.base).is_none();
        let rows = self.store.objects().filter(inactive);
        let mut counts = BTreeMap::new();
        for slot in active().map(|object| &object.record).chain(rows).flat_map(slots_named) {
            *counts.entry(slot).or_insert(0_u32) += 1;
            ensure(!self.addresses.is_free(slot), "a slot that is named and free", slot)?;
        }
        let is_whole = self.store.has_all_rows();
        ensure(
            !is_whole || self.names.counts().eq(counts),
            "the count of names of Clists",
            0,
        )
    }

    /// Counts an event; every [`EVENTS_EACH`] of them, checks.
    ///
    /// # Panics
    /// If something does not hold.
    pub(crate) fn check_now_and_then(&mut self, world: &impl World) {
        self.unchecked += 1;
        if self.unchecked >= EVENTS_EACH {
            self.put_off_check();
            if let Err(broken) = self.check(world) {
                panic!("{broken}");
            }
        }
    }

    /// The next check of itself is [`EVENTS_EACH`] events away.
    pub fn put_off_check(&mut self) {
        self.unchecked = 0;
    }

    /// Checks everything that holds between events. Takes time in proportion to the page tables.
    ///
    /// # Errors
    /// [`Broken`]: the first thing found that does not hold.
    pub fn check(&self, world: &impl World) -> Result<(), Broken> {
        let mut sums = Sums {
            may_write_held: self.checkpoint.is_freezing()
                || self.checkpoint.last_result().is_some_and(|is| is.is_err()),
            ..Sums::default()
        };
        let (mut all, mut users) = (Cached::default(), BTreeMap::<AccountId, Cached>::new());
        for (id, object) in self.objects.iter() {
            check_object(world, object, &mut sums)?;
            let mut has = Cached::default();
            if self.is_cached(id) {
                (has.leaves, has.bytes) = (object.leaves, object.slots.bytes());
            }
            ensure(has == object.cached, "what an object has in the cache", object.base())?;
            for sum in [&mut all, users.entry(object.user).or_default()] {
                *sum = sum.changed(Cached::default(), has);
            }
        }
        ensure(all == self.pager.cached, "what the cache has", all.bytes)?;
        for (user, has) in users {
            let noted = has == Cached::default() || has == self.ledger.cached(user);
            ensure(noted, "what a program has in the cache", has.bytes)?;
        }
        ensure(
            sums.resident == self.objects.resident(),
            "the count of resident pages",
            sums.resident,
        )?;
        let Pager { dirty, leaves, .. } = self.pager;
        ensure(sums.dirty == dirty, "the count of dirty pages", sums.dirty)?;
        ensure(sums.leaves.len() as u64 == leaves, "the count of leaves", leaves)?;
        let tables: u64 = self.domains.iter().map(|(_, domain)| domain.tables()).sum();
        ensure(
            tables == self.domains.tables(),
            "the count of all domains' page tables",
            tables,
        )?;
        for (space, domain) in self.domains.iter() {
            ensure(
                domain.tables() == world.space_tables(space),
                "a domain's count of page tables",
                u64::from(space.0),
            )?;
        }
        self.check_ledger(&mut sums)?;
        self.check_addresses()?;
        self.check_snapshots()?;
        match self.check_nodes(world) {
            Some((what, at)) => Err(Broken { what, at }),
            None => Ok(()),
        }
    }
}

fn check_object(world: &impl World, object: &Object, sums: &mut Sums) -> Result<(), Broken> {
    let bytes = object.own_bytes() + object.limit_bytes + object.prepared_bytes + object.slots.bytes();
    ensure(
        object.bytes == bytes,
        "the bytes that an object pays for",
        object.base(),
    )?;
    let ranges = (object.absent_limits.capacity() * size_of::<LimitRange>()) as u64;
    ensure(
        object.limit_bytes == ranges,
        "the bytes of an object's limits",
        object.base(),
    )?;
    let (mut leaves, mut resident, mut dirty, mut blocks, mut parts) = (0, 0, 0, 0, 0);
    let mut next = object.slots.next_with_leaf(0);
    while let Some(number) = next {
        next = object.slots.next_with_leaf(number + 1);
        let Some((slot, leaf)) = object.slots.get(number).and_then(|slot| Some((slot, slot.leaf()?))) else {
            return Err(Broken {
                what: "a slot with a leaf has none",
                at: number,
            });
        };
        let start = (object.first_slot() + number) * SLOT;
        leaves += 1;
        ensure(
            start < object.reach(),
            "a page table behind the end of its object",
            start,
        )?;
        blocks += u64::from(slot.blocks.count());
        parts += slot.blocks.parts(object.part_colour());
        dirty += u64::from(slot.dirty.count());
        ensure(
            !object.is_persistent() || slot.dirty.without(&slot.blocks).is_empty(),
            "a page that will be written and has no block",
            start,
        )?;
        ensure(
            sums.leaves.insert(leaf.frame().number()),
            "a leaf serves two slots",
            start,
        )?;
        for index in 0..PAGES_PER_SLOT as usize {
            let address = start + index as u64 * PAGE;
            let entry = world.leaf_get(leaf, index);
            ensure(
                entry.is_some() == slot.resident.has(index),
                "residency of a page",
                address,
            )?;
            if let Some(entry) = entry {
                resident += 1;
                ensure(
                    (object.base()..object.reach()).contains(&address),
                    "a page outside of its object",
                    address,
                )?;
                check_page(
                    world,
                    object,
                    entry,
                    (slot.dirty.has(index), sums.may_write_held),
                    address,
                )?;
            }
        }
    }
    ensure(
        resident == object.resident,
        "an object's count of resident pages",
        object.base(),
    )?;
    ensure(leaves == object.leaves, "an object's count of leaves", object.base())?;
    // A slot may have lost its leaf and still pay for blocks.
    ensure(
        blocks <= object.blocks && parts <= object.parts && object.parts <= object.blocks,
        "an object's count of blocks",
        object.base(),
    )?;
    let (counted, marked) = if object.is_persistent() {
        (object.dirty, dirty)
    } else {
        // Those that were promised a block, because it is to be kept.
        (object.blocks, dirty + object.dirty)
    };
    ensure(marked == counted, "an object's count of dirty pages", object.base())?;
    sums.resident += resident;
    sums.dirty += object.dirty;
    Ok(())
}

fn check_page<W: World>(
    world: &W,
    object: &Object,
    entry: PageEntry,
    (dirty, may_write_held): (bool, bool),
    address: u64,
) -> Result<(), Broken> {
    let references = world.frame_references(entry.frame);
    ensure(references > 0, "a page whose frame is free", address)?;
    if entry.write_withheld || !entry.limits.contains(Rights::W) {
        return Ok(());
    }
    let is_held = world.frame_is_held(entry.frame);
    ensure(
        may_write_held || !is_held,
        "a page that can be written and is on its way to the disk",
        address,
    )?;
    let others = references - u32::from(is_held);
    ensure(others == 1, "a page that can be written and is shared", address)?;
    ensure(
        dirty || !object.is_persistent(),
        "a page that can be written and is not known to be dirty",
        address,
    )
}
