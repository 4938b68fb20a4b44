//! Promises of disk space.
//!
//! A page is promised a block, and a share in the map nodes on its path, when it is first written;
//! so the checkpoint that must write it cannot find the disk full. Promises are kept by
//! node, since 256 neighbours share one, and exactly, so that asking twice promises once.
//!
//! A map that grows gets nodes on its left edge, above what it has. So as long as any page of an object is promised, the first node of
//! level 1 and the nodes above that are promised, too. This first node may have no promised pages.

use crate::containers::Map;
use crate::event::Failure;
use crate::heap::NoHeap;
use crate::map::MapKey;
use crate::store::Store;

/// Blocks that are not for growth: deletes, discards, checkpoints and the rewriting of stored pages may use them.
pub(crate) const POOL: u64 = 24;
/// Blocks of these that the rewriting of pages leaves alone.
pub(crate) const POOL_OF_DELETES: u64 = 8;
/// Pages below a map node of level 1, as a set of bits.
type PageSet = [u64; 4];
/// How many these are.
const NODE_PAGES: u64 = 256;

/// Everything that is promised.
#[derive(Default)]
pub(crate) struct Promises {
    /// Promised pages by node of level 1.
    leaves: Map<MapKey, PageSet>,
    /// Promised children by node of the levels above.
    inner: Map<MapKey, u32>,
    pages: u64,
    /// Entries that may come back from jobs: there is heap for them.
    lent: Room,
}

/// Entries of the two maps.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
struct Room {
    leaves: usize,
    inner: usize,
}

impl Room {
    /// What a path takes, and that of the first page beside it.
    fn of_path(levels: u8) -> Self {
        Self {
            leaves: 1 + usize::from(levels > 1),
            inner: 2 * usize::from(levels.saturating_sub(1)),
        }
    }
}

/// Promises that a job has taken over, and that come back if it fails.
///
/// Several jobs may have pages of one node, and each of them may come back alone. So each has room for every node on the paths of its
/// pages, while the block of the node goes to the job that takes its last page.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Loan {
    blocks: u64,
    room: Room,
    /// The page that was lent last: its neighbours share its path.
    last: Option<(u64, u64)>,
}

impl Loan {
    /// Blocks promised.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }
}

fn key_above(base: u64, page: u64, level: u8) -> MapKey {
    MapKey {
        base,
        level,
        index: page.checked_shr(8 * u32::from(level)).unwrap_or(0),
    }
}

/// A word whose lowest `count` bits are set.
fn ones_below(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Promises {
    /// Blocks promised.
    pub(crate) fn total(&self) -> u64 {
        self.pages + (self.leaves.count() + self.inner.count()) as u64
    }

    /// Whether the counts are those of what is noted.
    pub(crate) fn is_exact(&self) -> bool {
        let pages = |set: PageSet| set.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.pages == self.leaves.iter().map(|(_, set)| pages(set)).sum::<u64>()
            && (self.leaves.iter())
                .all(|(key, set)| pages(set) > 0 || key.index == 0 && self.has_leaf(key_above(key.base, NODE_PAGES, 1)))
    }

    /// Finds heap for so many more entries, beside what may come back.
    fn grow(&mut self, leaves: usize, inner: usize) -> Result<(), NoHeap> {
        self.leaves.reserve(self.leaves.count() + self.lent.leaves + leaves)?;
        self.inner.reserve(self.inner.count() + self.lent.inner + inner)?;
        Ok(())
    }

    /// Whether there is a node of level 1 of the same object, this one or behind it.
    fn has_leaf(&self, first: MapKey) -> bool {
        self.leaves.from(first).is_some_and(|(key, _)| key.base == first.base)
    }

    /// Promises a page of an object whose map has at most `levels`; tells whether it was not promised before.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing was promised.
    pub(crate) fn add(&mut self, base: u64, page: u64, levels: u8) -> Result<bool, NoHeap> {
        let leaf = key_above(base, page, 1);
        let (word, bit) = ((page / 64 % 4) as usize, 1 << (page % 64));
        if let Some(set) = self.leaves.get_mut(leaf) {
            let fresh = set[word] & bit == 0;
            self.pages += u64::from(fresh);
            set[word] |= bit;
            return Ok(fresh);
        }
        let most = Room::of_path(levels);
        self.grow(most.leaves, most.inner)?;
        self.add_leaf(base, page, levels)?;
        Ok(true)
    }

    /// Promises the first page of a node, and the way to it.
    fn add_leaf(&mut self, base: u64, page: u64, levels: u8) -> Result<(), NoHeap> {
        // If anything is promised of an object, its first node of level 1 and all nodes above that are.
        let edge = levels < 2 || self.inner.has(key_above(base, 0, levels));
        let raised = if edge { Ok(()) } else { self.raise_edge(base, levels) };
        let mut set = PageSet::default();
        set[(page / 64 % 4) as usize] |= 1 << (page % 64);
        self.leaves.insert(key_above(base, page, 1), set)?;
        self.pages += 1;
        self.add_above(base, page, levels).and(raised)?;
        if !edge && page >= NODE_PAGES && !self.leaves.has(key_above(base, 0, 1)) {
            self.leaves.insert(key_above(base, 0, 1), PageSet::default())?;
            self.add_above(base, 0, levels)?;
        }
        Ok(())
    }

    /// Promises the nodes above the highest one that is promised on the left edge: the object has grown since then.
    fn raise_edge(&mut self, base: u64, levels: u8) -> Result<(), NoHeap> {
        let highest = self.edge(base, levels).unwrap_or(levels);
        (highest + 1..=levels).try_for_each(|level| self.inner.insert(key_above(base, 0, level), 1).map(drop))?;
        Ok(())
    }

    /// The level of the highest node that is promised on the left edge; none if nothing of the object is promised.
    pub(crate) fn edge(&self, base: u64, levels: u8) -> Option<u8> {
        let node = |level| key_above(base, 0, level);
        let highest = (2..=levels).rev().find(|&level| self.inner.has(node(level)));
        highest.or_else(|| self.leaves.has(node(1)).then_some(1))
    }

    /// Takes the promises of the nodes above that level of the left edge back, where no other page of the object needs them.
    pub(crate) fn lower_edge(&mut self, base: u64, edge: Option<u8>, levels: u8) {
        for level in edge.unwrap_or(levels) + 1..=levels {
            self.inner.remove(key_above(base, 0, level));
        }
    }

    /// Promises the way to a node of level 1 that is new.
    fn add_above(&mut self, base: u64, page: u64, levels: u8) -> Result<(), NoHeap> {
        for level in 2..=levels {
            let above = key_above(base, page, level);
            if let Some(children) = self.inner.get_mut(above) {
                *children += 1;
                break;
            }
            self.inner.insert(above, 1)?;
        }
        Ok(())
    }

    /// Promises pages `first` up to `end` of an object, node by node.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing was promised.
    pub(crate) fn add_run(&mut self, base: u64, first: u64, end: u64, levels: u8) -> Result<(), NoHeap> {
        if first >= end {
            return Ok(());
        }
        let nodes = |level| (key_above(base, end - 1, level).index - key_above(base, first, level).index + 1) as usize;
        let beside = Room::of_path(levels);
        self.grow(
            nodes(1) + 2 * beside.leaves,
            (2..=levels).map(nodes).sum::<usize>() + 2 * beside.inner,
        )?;
        let mut page = first;
        while page < end {
            // The first page of a node makes the way to it.
            self.add(base, page, levels)?;
            let node_end = end.min((page / NODE_PAGES + 1) * NODE_PAGES);
            if let Some(set) = self.leaves.get_mut(key_above(base, page, 1)) {
                for (bits, word) in set.iter_mut().zip(0..) {
                    let start = page / NODE_PAGES * NODE_PAGES + word * 64;
                    let wanted = ones_below(node_end.saturating_sub(start)) & !ones_below(page.saturating_sub(start));
                    self.pages += u64::from((wanted & !*bits).count_ones());
                    *bits |= wanted;
                }
            }
            page = node_end;
        }
        Ok(())
    }

    /// Hands the promise of a page of an object whose map has at most `levels` over to a job. There stays heap for it to
    /// [come back](Promises::add_again).
    ///
    /// # Errors
    /// [`NoHeap`]: it was not handed over.
    pub(crate) fn lend(&mut self, loan: &mut Loan, base: u64, page: u64, levels: u8) -> Result<(), NoHeap> {
        let on_path = |level| {
            loan.last
                .is_some_and(|last| key_above(last.0, last.1, level) == key_above(base, page, level))
        };
        let mut room = Room {
            leaves: usize::from(!on_path(1)),
            inner: (2..=levels).filter(|&level| !on_path(level)).count(),
        };
        if loan.last.is_none_or(|last| last.0 != base) {
            room = Room::of_path(levels);
        }
        self.grow(room.leaves, room.inner)?;
        self.lent.leaves += room.leaves;
        self.lent.inner += room.inner;
        loan.room.leaves += room.leaves;
        loan.room.inner += room.inner;
        self.hand_over(loan, base, page);
        Ok(())
    }

    /// The same for a neighbour of the page that was lent last, which shares the whole path with it; `false` for another page, and then nothing was done.
    pub(crate) fn lend_beside(&mut self, loan: &mut Loan, base: u64, page: u64) -> bool {
        let is_beside = loan
            .last
            .is_some_and(|last| key_above(last.0, last.1, 1) == key_above(base, page, 1));
        if is_beside {
            self.hand_over(loan, base, page);
        }
        is_beside
    }

    fn hand_over(&mut self, loan: &mut Loan, base: u64, page: u64) {
        loan.last = Some((base, page));
        let before = self.total();
        self.remove(base, page);
        loan.blocks += before - self.total();
    }

    /// A job is over: it has no more what was lent to it. Nodes that it has not made may be promised again now.
    pub(crate) fn settle(&mut self, loan: Loan) {
        self.lent.leaves = self.lent.leaves.saturating_sub(loan.room.leaves);
        self.lent.inner = self.lent.inner.saturating_sub(loan.room.inner);
    }

    /// Promises a page again that was lent to a job which is over, from the room of its loan, which is to be [settled](Promises::settle)
    /// when all have come back. The growth of an object since then is promised as far as there is heap.
    pub(crate) fn add_again(&mut self, base: u64, page: u64, levels: u8) {
        if self.leaves.has(key_above(base, page, 1)) {
            let _ = self.add(base, page, levels);
        } else {
            debug_assert!(self.leaves.room() > self.leaves.count(), "what comes back has room");
            let _ = self.add_leaf(base, page, levels);
        }
    }

    /// Gives heap back that neither promises nor loans need.
    pub(crate) fn trim(&mut self) {
        self.leaves.release(self.leaves.count() + self.lent.leaves);
        self.inner.release(self.inner.count() + self.lent.inner);
    }

    /// Gives some heap back; whether there was any.
    pub(crate) fn give_back(&mut self) -> bool {
        self.leaves.give_back() || self.inner.give_back()
    }

    /// Takes the promise of a page back; tells whether there was one.
    pub(crate) fn remove(&mut self, base: u64, page: u64) -> bool {
        let leaf = key_above(base, page, 1);
        let Some(set) = self.leaves.get_mut(leaf) else {
            return false;
        };
        let (word, bit) = ((page / 64 % 4) as usize, 1 << (page % 64));
        if set[word] & bit == 0 {
            return false;
        }
        set[word] &= !bit;
        self.pages -= 1;
        let is_empty = |set: PageSet| set == PageSet::default();
        if is_empty(*set) {
            self.drop_node(base, page);
            if page >= NODE_PAGES && self.leaves.get(key_above(base, 0, 1)).is_some_and(is_empty) {
                self.drop_node(base, 0);
            }
        }
        true
    }

    /// Takes the promise of a node of level 1 that has no pages back, and of the way to it. The first of an object stays as long as others are promised.
    fn drop_node(&mut self, base: u64, page: u64) {
        let leaf = key_above(base, page, 1);
        if leaf.index == 0 && self.has_leaf(key_above(base, NODE_PAGES, 1)) {
            return;
        }
        self.leaves.remove(leaf);
        let (mut empty, mut level) = (true, 2);
        while empty {
            let key = key_above(base, page, level);
            let Some(children) = self.inner.get_mut(key) else {
                break;
            };
            *children -= 1;
            empty = *children == 0;
            if empty {
                self.inner.remove(key);
            }
            level += 1;
        }
    }
}

impl Store {
    /// Blocks that are spoken for.
    pub(crate) fn needed(&self) -> u64 {
        let dirty = if self.is_frozen() {
            0
        } else {
            self.maps.dirty_len() as u64
        };
        let changes = self.pending.cost() + self.prepared.cost();
        let snapshots = self.snapshots.promised();
        let table = self.table_cost() + self.overlay_blocks;
        self.promises.total() + self.budget + dirty + changes + self.ahead.cost() + table + snapshots
    }

    /// Why no block was to be had: those that are free may need heap for what is known of their group.
    pub(crate) fn why_no_block(&self) -> Failure {
        if self.allocation.free_blocks() == 0 {
            Failure::DiskFull
        } else {
            Failure::Memory
        }
    }

    /// Takes a block for a page of a sync, out of its share of the promises.
    pub(crate) fn take_block(&mut self, share: &mut u64) -> Result<u64, Failure> {
        let block = self.allocation.alloc().ok_or_else(|| self.why_no_block())?;
        self.draw(share);
        Ok(block)
    }

    /// Takes a block for the running checkpoint.
    pub(crate) fn take_young_block(&mut self, share: &mut u64) -> Result<u64, Failure> {
        let block = self.allocation.alloc_young().ok_or_else(|| self.why_no_block())?;
        self.draw(share);
        Ok(block)
    }

    pub(crate) fn draw(&mut self, share: &mut u64) {
        if *share > 0 {
            *share -= 1;
            self.budget = self.budget.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::levels_for;
    use alloc::{collections::BTreeSet, vec::Vec};
    use proptest::prelude::*;

    #[test]
    fn neighbours_share_their_path_and_promises_are_exact() {
        let mut promises = Promises::default();
        promises.add(0, 0, 2).unwrap();
        assert_eq!(promises.total(), 3);
        promises.add(0, 1, 2).unwrap();
        promises.add(0, 1, 2).unwrap();
        assert_eq!(promises.total(), 4);
        promises.add(0, 256, 2).unwrap();
        assert_eq!(promises.total(), 6);
        assert!(promises.remove(0, 0));
        assert!(!promises.remove(0, 0));
        assert!(promises.remove(0, 1));
        // The first node stays, for the map may get it before the other pages are written.
        assert_eq!(promises.total(), 4);
        assert!(promises.remove(0, 256));
        assert_eq!(promises.total(), 0);
    }

    #[test]
    fn nodes_above_the_first_pages_come_with_a_page_far_behind() {
        for first in [0, 300] {
            let mut promises = Promises::default();
            promises.add(0, first, levels_for(first + 1).max(1)).unwrap();
            let before = promises.total();
            promises.add(0, 70_000, 3).unwrap();
            // The page and two nodes, the root, and the second node of the left edge if it was not there.
            assert_eq!(promises.total(), before + 4 + u64::from(first == 0));
            assert!(promises.remove(0, 70_000) && promises.remove(0, first));
            assert_eq!(promises.total(), 0);
        }
    }

    #[test]
    fn a_run_promises_what_its_pages_do() {
        for (first, end) in [
            (0, 1),
            (0, 64),
            (63, 65),
            (100, 356),
            (255, 257),
            (256, 1024),
            (7, 70_000),
        ] {
            let (mut run, mut single) = (Promises::default(), Promises::default());
            run.add(4096, 300, 3).unwrap();
            single.add(4096, 300, 3).unwrap();
            run.add_run(4096, first, end, 3).unwrap();
            for page in first..end {
                single.add(4096, page, 3).unwrap();
            }
            assert!(run.leaves.iter().eq(single.leaves.iter()));
            assert!(run.inner.iter().eq(single.inner.iter()));
            assert_eq!(run.total(), single.total());
        }
    }

    /// Blocks promised by the definition: the pages, their nodes of level 1, and the nodes above those.
    /// The pages, and the nodes above them and above the first page of each object.
    fn model(pages: &BTreeSet<(u64, u64)>, levels: u8) -> u64 {
        let nodes = |level: u8| {
            let with_first = pages.iter().flat_map(|&(base, page)| [(base, 0), (base, page)]);
            let above = with_first.map(|(base, page)| (base, page >> (8 * u32::from(level))));
            above.collect::<BTreeSet<_>>().len() as u64
        };
        pages.len() as u64 + (1..=levels).map(nodes).sum::<u64>()
    }

    const LEVELS: u8 = 3;

    /// A job: its pages and its loan.
    #[derive(Default)]
    struct Job(BTreeSet<(u64, u64)>, Loan);

    impl Job {
        fn take(&mut self, promises: &mut Promises, (base, page): (u64, u64)) {
            promises.lend(&mut self.1, base, page, LEVELS).unwrap();
            self.0.insert((base, page));
        }

        /// It has made nothing.
        fn fail(self, promises: &mut Promises) {
            for (base, page) in self.0 {
                promises.add_again(base, page, LEVELS);
            }
            promises.settle(self.1);
        }
    }

    #[test]
    fn heap_of_promises_that_are_gone_is_given_back() {
        let mut promises = Promises::default();
        let pages = || (0..20_000).map(|leaf| leaf * NODE_PAGES);
        pages().for_each(|page| promises.add_run(0, page, page + 1, LEVELS).unwrap());
        // As a program ends whose pages nobody writes.
        pages().for_each(|page| assert!(promises.remove(0, page)));
        promises.trim();
        assert!(promises.give_back(), "there was much");
        while promises.give_back() {}
        assert!(!promises.leaves.give_back() && !promises.inner.give_back());
    }

    #[test]
    fn a_leaf_has_room_while_any_job_may_give_a_page_of_it_back() {
        let mut promises = Promises::default();
        let leaves = || (0..64).map(|leaf| leaf * NODE_PAGES);
        leaves().for_each(|page| promises.add_run(0, page, page + 2, LEVELS).unwrap());
        let (mut first, mut second) = (Job::default(), Job::default());
        leaves().for_each(|page| first.take(&mut promises, (0, page)));
        leaves().for_each(|page| second.take(&mut promises, (0, page + 1)));
        assert_eq!(
            (promises.total(), first.1.blocks(), second.1.blocks()),
            (0, 64, 64 + 64 + 2)
        );
        promises.settle(second.1);
        promises.trim();
        assert!(promises.leaves.room() >= 64 && promises.inner.room() >= 2);
        first.fail(&mut promises);
        assert_eq!(promises.total(), 64 + 64 + 2);
        promises.trim();
        assert_eq!((promises.leaves.room(), promises.inner.room()), (64, 2));
    }

    proptest! {
        /// Pages are promised, taken back, lent to jobs, and come back in any order: the sums are those of the definition, and there is
        /// always room for what is lent.
        #[test]
        fn promises_and_loans_are_exact(steps in prop::collection::vec((0..10_u8, 0..3_u64, 0..1_500_u64, 1..400_u64), 1..120)) {
            let mut promises = Promises::default();
            let mut pages = BTreeSet::new();
            let mut jobs: Vec<Job> = Vec::new();
            for (kind, object, step, length) in steps {
                let (base, page) = (object * 4096, step * 97 % 70_000);
                let job = length as usize % jobs.len().max(1);
                match kind {
                    0 => {
                        promises.add(base, page, LEVELS).unwrap();
                        pages.insert((base, page));
                    }
                    1 => {
                        promises.add_run(base, page, page + length, LEVELS).unwrap();
                        pages.extend((page..page + length).map(|page| (base, page)));
                    }
                    2 => prop_assert_eq!(promises.remove(base, page), pages.remove(&(base, page))),
                    3 => jobs.push(Job::default()),
                    4..7 if !jobs.is_empty() => {
                        // Every other one of some, also such as nothing was promised to.
                        let some: Vec<_> = pages.range((base, page)..).take(length as usize).step_by(2).copied().collect();
                        for page in some.into_iter().chain([(base, page)]) {
                            jobs[job].take(&mut promises, page);
                            pages.remove(&page);
                        }
                    }
                    7 if !jobs.is_empty() => {
                        let job = jobs.swap_remove(job);
                        pages.extend(&job.0);
                        job.fail(&mut promises);
                    }
                    8 if !jobs.is_empty() => promises.settle(jobs.swap_remove(job).1),
                    _ => promises.trim(),
                }
                prop_assert_eq!(promises.total(), model(&pages, LEVELS));
                prop_assert!(promises.is_exact());
                let mut nodes = [0; 4];
                for job in &jobs {
                    for level in 1..=LEVELS {
                        let above: BTreeSet<_> = job.0.iter().map(|page| key_above(page.0, page.1, level)).collect();
                        nodes[usize::from(level)] += above.len();
                    }
                }
                prop_assert!(promises.leaves.room() >= promises.leaves.count() + nodes[1]);
                prop_assert!(promises.inner.room() >= promises.inner.count() + nodes[2] + nodes[3]);
                let lent = jobs.iter().fold((0, 0), |sum, job| (sum.0 + job.1.room.leaves, sum.1 + job.1.room.inner));
                prop_assert_eq!((promises.lent.leaves, promises.lent.inner), lent);
            }
        }
    }
}
