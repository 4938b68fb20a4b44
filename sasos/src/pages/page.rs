//! Calls on pages: flush, limit. ([`crate::pages::copy`] has the one that copies them, [`crate::pages::unmap`] the one that drops them.)
//!
//! Ranges are page-aligned and lie inside one object. Calls that look at every page are bounded to
//! [`RANGE_PAGES_MAX`]; a longer range is done in parts by the caller.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    address::{PAGE, slot_of},
    call::arguments,
    layout::FLUSH_RANGES_MAX,
};
use kcore::PageEntry;

use crate::{
    Access, Server, Step, Stop, World,
    containers::push_reserved,
    directory::object::{LimitRange, ObjectId, Which},
    durability::durable::{Goal, no_room},
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::thread::Caller,
    pages::clone::LIMIT_RANGES_MAX,
    pages::pager::{index_of, to_flags},
    pages::slots::Slot,
};

/// Pages that one call copies, limits, or drops of a persistent object: 256 MiB.
pub const RANGE_PAGES_MAX: u64 = 1 << 16;
/// Pages that are not resident whose limits one object may change; they cost memory one by one
/// once it is persistent.
const ABSENT_LIMITED_MAX: u64 = 1 << 14;
/// Limits and zeroed ranges of all kept objects that wait for a checkpoint: some 34 bytes each, and as many again that a running one has.
const NOTED_MAX: usize = 1 << 12;
/// The part of the disk that may be promised to them, and so many blocks on a small one: nobody pays for these.
const NOTED_PART: u64 = 64;
const NOTED_BLOCKS: u64 = 256;

/// The cost of looking at each range of a flush of several, in instructions, roughly.
const COST_RANGE: Cost = Cost::own(330);
/// The cost of giving a resident page other limits, and of having the store note those of a page.
const COST_LIMITED: Cost = Cost::calling(120, 1);
const COST_NOTED: Cost = Cost::calling(1_000, 1);

/// The zeroes that fill a page, part by part.
const ZEROES: [u8; 512] = [0; 512];

/// A range of pages inside one object.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) id: ObjectId,
    /// First address.
    pub(crate) from: u64,
    /// One past the last.
    pub(crate) to: u64,
}

impl Range {
    pub(crate) fn pages(self) -> impl Iterator<Item = u64> {
        (self.from..self.to).step_by(PAGE as usize)
    }

    pub(crate) const fn count(self) -> u64 {
        (self.to - self.from) / PAGE
    }
}

impl Server {
    /// A range that a domain has a right on.
    pub(crate) fn range<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        from: u64,
        pages: u64,
        needed: Rights,
    ) -> Step<Range> {
        if !from.is_multiple_of(PAGE) || pages == 0 {
            return Err(Error::BadArgument.into());
        }
        let to = pages
            .checked_mul(PAGE)
            .and_then(|bytes| from.checked_add(bytes))
            .ok_or(Error::BadAddress)?;
        let id = self.require_at(world, caller.domain, from, needed)?;
        if to > self.objects.get(id).end() {
            return Err(Error::BadAddress.into());
        }
        Ok(Range { id, from, to })
    }

    pub(crate) fn bounded(range: Range) -> Result<(), Error> {
        if range.count() > RANGE_PAGES_MAX {
            Err(Error::BadArgument)
        } else {
            Ok(())
        }
    }

    /// The limits of a page, resident or not.
    pub(crate) fn limits_at<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<Rights> {
        loop {
            let object = self.objects.get(id);
            let leaf = object
                .slots
                .get(slot_of(address) - object.first_slot())
                .and_then(Slot::leaf);
            if let Some(entry) = leaf.and_then(|leaf| world.leaf_get(leaf, index_of(address))) {
                return Ok(entry.limits);
            }
            if let Some(limits) = self.limits_of_absent(world, id, address)? {
                return Ok(limits);
            }
        }
    }

    /// Makes a page that may be written read as zeroes.
    pub(crate) fn zero_page<W: World>(&mut self, world: &mut W, id: ObjectId, address: u64) -> Step<()> {
        if self.peek(world, id, address)?.is_none() {
            return Ok(());
        }
        let place = self.present(world, id, address, Access::Write)?;
        let Some(entry) = world.leaf_get(place.leaf, place.index) else {
            return Ok(());
        };
        // Now the only one who has the frame is this page.
        for part in 0..PAGE as usize / ZEROES.len() {
            world.frame_write(entry.frame, part * ZEROES.len(), &ZEROES);
        }
        Ok(())
    }

    // ---- flush ------------------------------------------------------------------------------------

    /// `PageFlush`: page, pages.
    ///
    /// # Errors
    /// [`Error::BadArgument`], [`Error::BadAddress`], [`Error::Protection`], [`Error::NotPersistent`],
    /// [`Error::DiskError`], [`Error::DiskFull`].
    pub fn page_flush<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::PageFlush,
    ) -> Step<(u64, u64)> {
        let arguments::PageFlush { page, pages } = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        let range = self.range(world, caller, page, pages, Rights::W)?;
        self.flush_ranges(world, caller, &[range])
    }

    /// `PageFlushAll`: ranges (a page and a number of pages each), count.
    ///
    /// # Errors
    /// [`Error::BadArgument`]: no range, or too many; as `PageFlush` for each, and as for reading the array.
    pub fn page_flush_all<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::PageFlushAll,
    ) -> Step<(u64, u64)> {
        let arguments::PageFlushAll { ranges: array, count } = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        if count == 0 || count > FLUSH_RANGES_MAX {
            return Err(Error::BadArgument.into());
        }
        let mut bytes = [0; FLUSH_RANGES_MAX as usize * 16];
        let bytes = &mut bytes[..count as usize * 16];
        self.read_user(world, caller.domain, array, bytes)?;
        let mut ranges = [Range {
            id: ObjectId(0),
            from: 0,
            to: 0,
        }; FLUSH_RANGES_MAX as usize];
        for (range, pair) in ranges.iter_mut().zip(bytes.as_chunks::<16>().0) {
            let (pairs, _) = pair.as_chunks::<8>();
            let [page, pages] = [pairs[0], pairs[1]].map(u64::from_le_bytes);
            *range = self.range(world, caller, page, pages, Rights::W)?;
        }
        self.budget.spend(COST_RANGE.times(count));
        self.flush_ranges(world, caller, &ranges[..count as usize])
    }

    /// Makes some ranges durable together.
    fn flush_ranges<W: World>(&mut self, world: &mut W, caller: Caller, ranges: &[Range]) -> Step<(u64, u64)> {
        if ranges.iter().any(|range| !self.objects.get(range.id).is_kept()) {
            return Err(Error::NotPersistent.into());
        }
        if self.are_durable(ranges) {
            return Ok((0, 0));
        }
        // Should what is being written fail, its pages are dirty again: then look anew. A thread that
        // has waited once asks for a checkpoint, which is for all: syncs of the same objects by others could go before it for ever.
        if let Err(stop) = self.wait_for_ranges(world, ranges) {
            let continuation = &mut self.threads.record(caller.thread).continuation;
            if *continuation != Continuation::Waited {
                *continuation = Continuation::Waited;
                return Err(stop);
            }
            let goal = Goal::Checkpoint(self.checkpoint_request(world));
            return self.finish_durable(caller, goal, (0, 0));
        }
        let goal = self.flush_begin(world, ranges);
        self.finish_durable(caller, goal, (0, 0))
    }

    // ---- limit ------------------------------------------------------------------------------------

    /// `PageLimit`: page, pages, rights. R cannot be taken away from a page that is resident: page tables cannot
    /// express it. Pages of a transient object that are not there can lose all rights: a guard that costs nothing,
    /// however long it is.
    ///
    /// Done in pieces: if a later one fails, pages from the first one of the range on have the new limits, and the others have those
    /// that they had.
    ///
    /// # Errors
    /// [`Error::BadArgument`], [`Error::BadAddress`], [`Error::Protection`], [`Error::TableFull`] for too
    /// many different limits, [`Error::LimitReached`] for the blocks of a kept object's map, and where a [backed](crate::pages::backing) object
    /// is to have a guard or limits of many pages, [`Error::DiskFull`].
    pub fn page_limit<W: World>(
        &mut self,
        world: &mut W,
        caller: Caller,
        arguments: arguments::PageLimit,
    ) -> Step<(u64, u64)> {
        let arguments::PageLimit {
            page,
            pages,
            rights: bits,
        } = arguments;
        let limits = Rights::from_bits(bits).ok_or(Error::BadArgument)?;
        let guard = limits == Rights::NONE;
        if !Rights::RWX.contains(limits) || !(guard || limits.contains(Rights::R)) {
            return Err(Error::BadArgument.into());
        }
        let range = self.range(world, caller, page, pages, Rights::OWNER)?;
        self.enough_heap(world)?;
        let object = self.objects.get(range.id);
        let (persistent, serial) = (object.is_persistent(), object.serial);
        let is_backed = object.is_backed();
        let begun = match self.threads.record(caller.thread).continuation {
            Continuation::Limits { serial: of, at } if of == serial => Some(at),
            _ => None,
        };
        if begun.is_none() {
            if !guard {
                Self::bounded(range)?;
            } else if is_backed {
                return Err(Error::LimitReached.into());
            } else if persistent || !self.is_bare(world, caller, range)? {
                return Err(Error::BadArgument.into());
            }
            if persistent && range.count() > ABSENT_LIMITED_MAX {
                let error = if is_backed {
                    Error::LimitReached
                } else {
                    Error::BadArgument
                };
                return Err(error.into());
            }
            let object = self.objects.get(range.id);
            let first = object.page_of(range.from);
            let change = LimitRange {
                first,
                end: first + range.count(),
                limits,
            };
            if persistent {
                self.forget_limits(range.id);
            } else {
                let ranges = limit_ranges(&object.absent_limits, change)?;
                self.set_limits(range.id, ranges)?;
            }
        }
        let from = begun.unwrap_or(range.from).clamp(range.from, range.to);
        let left = Range { from, ..range };
        let at = if persistent {
            self.may_note(world)?;
            self.limit_kept(world, left, limits)?
        } else if guard {
            // No page is there.
            range.to
        } else {
            self.limit_resident(world, left, limits)
        };
        if at < range.to {
            self.threads.record(caller.thread).continuation = Continuation::Limits { serial, at };
            return Err(Stop::Again);
        }
        Ok((0, 0))
    }

    /// Gives pages of a persistent object other limits, in the store and in memory, as far as the budget reaches. Tells where to go on.
    fn limit_kept<W: World>(&mut self, world: &mut W, range: Range, limits: Rights) -> Step<u64> {
        let object = self.objects.get(range.id);
        let (base, first) = (object.base(), object.page_of(range.from));
        let (mut done, mut noted) = (0, Ok(()));
        while done < range.count() && self.budget.spend(COST_NOTED) {
            noted = self.pay_map(range.id, 1).and_then(|()| {
                let noted = self.store.set_page_flags(base, first + done, to_flags(limits));
                noted.map_err(no_room)
            });
            if noted.is_err() {
                break;
            }
            done += 1;
        }
        let to = range.from + done * PAGE;
        if done > 0 {
            self.note_row_change(range.id);
            // A clone between two pieces may have asked the store, and got the limits of before.
            self.objects.get_mut(range.id).known = 0;
            // Its cost is in what was spent.
            self.unbounded(|server| server.limit_resident(world, Range { to, ..range }, limits));
        }
        noted?;
        Ok(to)
    }

    /// Charges the nodes of a map on the disk that limits of so many pages may take.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn pay_map(&mut self, id: ObjectId, limits: u64) -> Result<(), Error> {
        let object = self.objects.get_mut(id);
        object.settle_levels(&self.store);
        let all = object.record.pages.div_ceil(store::FANOUT).max(object.limited);
        let more = limits.min(all - object.limited);
        if more > 0 {
            let blocks = object.with_nodes(0, more);
            self.charge_blocks(id, blocks)?;
            self.objects.get_mut(id).limited += more;
        }
        Ok(())
    }

    /// Limits and zeroed ranges of kept objects wait in the store's heap for a checkpoint. At most [`NOTED_MAX`] and those of one more piece do:
    /// nobody is charged for them, but a call that would note more waits for the checkpoint, which is asked for now.
    ///
    /// # Errors
    /// The need to wait; [`Error::DiskError`] if the last checkpoint has failed.
    pub(crate) fn may_note<W: World>(&mut self, world: &mut W) -> Step<()> {
        let blocks_max = self.store.stats().blocks / NOTED_PART;
        if self.store.noted() < NOTED_MAX && self.store.noted_blocks() <= blocks_max.max(NOTED_BLOCKS) {
            return Ok(());
        }
        self.wait_for_checkpoint(world)
    }

    /// Charges a number of ranges of limits that an object will have, and gives back what it paid for those that it has.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    fn pay_limits(&mut self, id: ObjectId, ranges: usize) -> Result<(), Error> {
        let (before, after) = (
            self.objects.get(id).limit_bytes,
            (ranges * core::mem::size_of::<LimitRange>()) as u64,
        );
        self.pay_bytes(id, after.saturating_sub(before))?;
        self.refund_bytes(id, before.saturating_sub(after));
        self.objects.get_mut(id).limit_bytes = after;
        Ok(())
    }

    /// Gives pages of an object that are not resident these limits.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing has changed.
    pub(crate) fn set_limits(&mut self, id: ObjectId, ranges: Vec<LimitRange>) -> Result<(), Error> {
        self.pay_limits(id, ranges.capacity())?;
        let object = self.objects.get_mut(id);
        object.absent_limits = ranges;
        object.prepared.outdate();
        Ok(())
    }

    /// Forgets what was found out of pages of a kept object that are not resident: only the store knows their limits then, and is asked.
    pub(crate) fn forget_limits(&mut self, id: ObjectId) {
        self.objects.get_mut(id).known = 0;
        let given_back = self.set_limits(id, Vec::new());
        debug_assert!(given_back.is_ok(), "nothing more is charged");
    }

    /// Gives resident pages other limits, as far as the budget reaches. Tells where to go on.
    fn limit_resident<W: World>(&mut self, world: &mut W, range: Range, limits: Rights) -> u64 {
        let mut reduced = false;
        let mut from = range.from;
        while from < range.to {
            let place = self.look_on(range.id, Which::Resident, &mut from, range.to);
            if !self.budget.is_left() {
                break;
            }
            let Some(place) = place else {
                continue;
            };
            self.budget.spend(COST_LIMITED);
            from = place.address + PAGE;
            let Some(entry) = world.leaf_get(place.leaf, place.index) else {
                continue;
            };
            // The first write decides again what it takes to write.
            let changed = PageEntry::new(entry.frame, limits);
            let changed = if limits.contains(Rights::W) {
                changed.withheld()
            } else {
                changed
            };
            world.leaf_set(place.leaf, place.index, Some(changed));
            reduced = true;
        }
        if reduced {
            world.flush_everything();
        }
        from
    }
}

/// Ranges of limits with one more change, in rising order.
pub(crate) fn limit_ranges(ranges: &[LimitRange], change: LimitRange) -> Result<Vec<LimitRange>, Error> {
    let mut result = Vec::new();
    // A change inside of a range leaves two parts of it. The places are paid for, used or not.
    result
        .try_reserve_exact(ranges.len() + 2)
        .map_err(|_| Error::NoMemory)?;
    for &range in ranges {
        if range.first < change.first {
            let end = range.end.min(change.first);
            push_reserved(&mut result, LimitRange { end, ..range });
        }
        if range.end > change.end {
            let first = range.first.max(change.end);
            push_reserved(&mut result, LimitRange { first, ..range });
        }
    }
    if change.limits != Rights::RWX {
        push_reserved(&mut result, change);
    }
    result.sort_unstable_by_key(|range| range.first);
    result.dedup_by(|later, earlier| {
        let joins = earlier.end == later.first && earlier.limits == later.limits;
        if joins {
            earlier.end = later.end;
        }
        joins
    });
    // A guard is never on the disk.
    let counted = result.iter().filter(|range| range.limits != Rights::NONE);
    let pages: u64 = counted.map(|range| range.end - range.first).sum();
    if result.len() > LIMIT_RANGES_MAX || pages > ABSENT_LIMITED_MAX {
        return Err(Error::TableFull);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::pager::absent_limits;
    use proptest::prelude::*;

    #[test]
    fn so_many_ranges_and_limited_pages_are_all() {
        let change = |first, end, limits| LimitRange { first, end, limits };
        let mut ranges = Vec::new();
        for number in 0..LIMIT_RANGES_MAX as u64 {
            ranges = limit_ranges(&ranges, change(2 * number, 2 * number + 1, Rights::R)).unwrap();
        }
        assert_eq!(
            limit_ranges(&ranges, change(1000, 1001, Rights::R)),
            Err(Error::TableFull)
        );
        assert_eq!(
            limit_ranges(&ranges, change(1000, 1001, Rights::NONE)),
            Err(Error::TableFull)
        );
        for fits in [
            change(1, 2, Rights::R),
            change(0, 1, Rights::RWX),
            change(4, 5, Rights::NONE),
        ] {
            assert!(limit_ranges(&ranges, fits).is_ok(), "{fits:?}");
        }
        let most = change(10, 10 + ABSENT_LIMITED_MAX, Rights::R);
        let ranges = limit_ranges(&[], most).unwrap();
        let guards = limit_ranges(&ranges, change(0, 9, Rights::NONE)).unwrap();
        assert_eq!(limit_ranges(&guards, change(9, 10, Rights::R)), Err(Error::TableFull));
        assert_eq!(
            limit_ranges(&[], change(9, 10 + ABSENT_LIMITED_MAX, Rights::RX)),
            Err(Error::TableFull)
        );
    }

    proptest! {
        #[test]
        fn ranges_of_limits_are_a_map_of_pages(changes in prop::collection::vec((0_u64..30, 1_u64..10, prop_oneof![Just(0_u64), 4_u64..8]), 0..20)) {
            let mut ranges = Vec::new();
            let mut model = [Rights::RWX; 40];
            for (first, count, bits) in changes {
                let limits = Rights::from_bits(bits).unwrap();
                ranges = limit_ranges(&ranges, LimitRange { first, end: first + count, limits }).unwrap();
                model[first as usize..(first + count) as usize].fill(limits);
                for page in 0..40 {
                    prop_assert_eq!(absent_limits(&ranges, page), model[page as usize]);
                }
                for pair in ranges.windows(2) {
                    prop_assert!(pair[0].end <= pair[1].first);
                    prop_assert!(pair[0].end < pair[1].first || pair[0].limits != pair[1].limits);
                }
            }
        }
    }
}
