//! Blocks taken and set free: single cases, and random lives beside a plain set of blocks.

use super::*;
use crate::geometry::region_of;

/// Loads bitmap blocks that say that all is used.
fn load_full(allocation: &mut Allocation) {
    for group in 0..allocation.bitmap_blocks() {
        let mut bytes = [0xff; BLOCK];
        let size = allocation.groups.size(group);
        for bit in size..BITS {
            bytes[(bit / 8) as usize] &= !(1 << (bit % 8));
        }
        assert_eq!(allocation.load(0, group, (&bytes, 1)), Ok(true));
    }
}

#[test]
fn a_freed_block_comes_back_after_two_commits() {
    let geometry = Geometry::new(200, None).unwrap();
    let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
    let all = allocation.free_blocks();
    let block = allocation.alloc().unwrap();
    allocation.commit(1);
    allocation.free(block);
    assert_eq!(allocation.free_blocks(), all - 1);
    allocation.commit(2);
    assert_eq!(allocation.free_blocks(), all - 1);
    allocation.commit(0);
    assert_eq!(allocation.free_blocks(), all);
    assert!(!allocation.release_some(0));
    assert_eq!(allocation.alloc(), Some(block));
}

#[test]
fn every_block_can_be_allocated_once() {
    let geometry = Geometry::new(300, None).unwrap();
    let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
    let all = allocation.free_blocks();
    let blocks: BTreeSet<u64> = core::iter::from_fn(|| allocation.alloc()).collect();
    assert_eq!(blocks.len() as u64, all);
    assert!(blocks.iter().all(|&block| geometry.is_data(block)));
    assert_eq!(allocation.free_blocks(), 0);
}

/// On a large disk that is full but for one block, that one is found at once wherever it is.
#[test]
fn the_last_free_block_is_found_wherever_it_is() {
    let geometry = Geometry::new(1 << 26, None).unwrap();
    let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
    let blocks = allocation.blocks();
    assert!(!blocks.is_multiple_of(WORD));
    load_full(&mut allocation);
    assert_eq!((allocation.free_blocks(), allocation.alloc()), (0, None));
    for round in 0..2000_u64 {
        let bit = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        allocation.release(geometry.data_start() + bit);
        // The search begins behind it, too.
        allocation.hint = (round * 77_777_777 % (blocks / WORD)) as usize;
        assert_eq!(allocation.alloc(), Some(geometry.data_start() + bit));
        assert_eq!(allocation.alloc(), None);
    }
}

#[test]
fn a_replayed_record_takes_unused_blocks_and_no_others() {
    let geometry = Geometry::new(300, None).unwrap();
    let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
    let all = allocation.free_blocks();
    let block = allocation.alloc().unwrap();
    let unused = geometry.total - 1;
    let outside = [
        0,
        1,
        geometry.data_start() - 1,
        geometry.total,
        geometry.total + 64,
        u64::MAX,
    ];
    for (other, is_unused) in outside
        .map(|block| (block, false))
        .into_iter()
        .chain([(block, false), (unused, true)])
    {
        assert_eq!(allocation.is_unused(other), is_unused, "{other}");
        allocation.claim(other).unwrap();
    }
    assert!(!allocation.is_unused(unused));
    assert_eq!(allocation.free_blocks(), all - 2);

    // A block that is set free is unused again, though its content must stay for now.
    allocation.free(block);
    assert!(allocation.is_unused(block));
    assert_eq!((allocation.free_blocks(), allocation.held_blocks()), (all - 2, 1));
}

/// A mount that finds very many blocks held is done with each page of its journal at once: a generation may free a quarter of the disk, and a
/// journal may name a hundred thousand pages.
#[test]
fn blocks_that_are_held_do_not_make_replay_slow() {
    let geometry = Geometry::new(1 << 22, None).expect("a layout");
    let mut allocation = Allocation::new(geometry, Breaks::NONE).expect("heap");
    for group in 0..32 {
        allocation.load_before(group, &[0xff; BLOCK]).expect("heap");
    }
    assert_eq!(allocation.held_blocks(), 1 << 20);
    let all = allocation.free_blocks();
    for block in geometry.total - 120_000..geometry.total {
        allocation.claim(block).expect("heap");
    }
    assert_eq!(allocation.free_blocks(), all - 120_000);
    // One that is held can be claimed, too.
    allocation.claim(geometry.data_start()).expect("heap");
    assert_eq!(
        (allocation.held_blocks(), allocation.free_blocks()),
        ((1 << 20) - 1, all - 120_000)
    );
}

/// Blocks that a read under way may need, more than one piece keeps, are free a generation later than others.
#[test]
fn blocks_that_are_kept_for_reads_are_free_a_generation_later() {
    let commit = |allocation: &mut Allocation| {
        allocation.commit(0);
        while allocation.release_some(0) {}
    };
    for keeps in [false, true] {
        let geometry = Geometry::new(4000, None).expect("a layout");
        let mut allocation = Allocation::new(geometry, Breaks::NONE).expect("heap");
        let (all, many) = (allocation.free_blocks(), RELEASE_PIECE as u64 + 8);
        let blocks: Vec<u64> = (0..many).map(|_| allocation.alloc().expect("room")).collect();
        commit(&mut allocation);
        for &block in &blocks {
            allocation.free(block);
        }
        commit(&mut allocation);
        if keeps {
            assert!(allocation.keep_some(), "more than one piece");
            assert!(!allocation.keep_some());
        }
        commit(&mut allocation);
        assert_eq!(allocation.free_blocks(), if keeps { all - many } else { all });
        commit(&mut allocation);
        assert_eq!(allocation.free_blocks(), all);
    }
}

/// A plain model of the allocator: sets of blocks, without groups and levels.
#[derive(Clone, Default)]
struct Model {
    used: BTreeSet<u64>,
    held: [BTreeSet<u64>; 2],
    young: BTreeSet<u64>,
    /// Where bitmaps stood before they moved, and how many commits there were since.
    retired: Vec<(Range<u64>, u32)>,
}

impl Model {
    fn is_busy(&self, block: u64) -> bool {
        self.retired.iter().any(|(blocks, _)| blocks.contains(&block))
            || self.used.contains(&block)
            || self.held.iter().any(|held| held.contains(&block))
    }

    fn busy(&self) -> u64 {
        self.used.len() as u64 + self.held()
    }

    fn held(&self) -> u64 {
        let retired = self.retired.iter().map(|(blocks, _)| blocks.end - blocks.start);
        retired.sum::<u64>() + (self.held[0].len() + self.held[1].len()) as u64
    }
}

/// The bitmap blocks of a region as the disk has them, with their checksums.
type OnDisk = alloc::collections::BTreeMap<usize, [u8; BLOCK]>;

struct Life {
    geometry: Geometry,
    allocation: Allocation,
    model: Model,
    disk: [OnDisk; BITMAPS],
    generation: u64,
    /// The blocks that the generation before used, and those of the current one.
    stable: [BTreeSet<u64>; 2],
    /// The layout of the generation before, and its bitmap, if that one was the last of its size.
    smaller: Option<(Geometry, OnDisk)>,
    random: u64,
}

impl Life {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % below
    }

    fn data(&self) -> u64 {
        self.geometry.data_blocks()
    }

    fn alloc(&mut self, is_young: bool) {
        let block = if is_young {
            self.allocation.alloc_young()
        } else {
            self.allocation.alloc()
        };
        let Some(block) = block else {
            assert_eq!(self.model.busy(), self.data(), "there was a free block");
            return;
        };
        assert!(
            self.geometry.is_data(block) && !self.model.is_busy(block),
            "{block} is busy"
        );
        self.model.used.insert(block);
        if is_young {
            self.model.young.insert(block);
        }
    }

    fn free(&mut self, block: u64) {
        self.allocation.free(block);
        if self.model.used.remove(&block) && !self.model.young.remove(&block) {
            self.model.held[0].insert(block);
        }
    }

    /// Writes a region as a checkpoint does. If it fails, the disk has some of it.
    fn write(&mut self, fails: bool) {
        let region = region_of(self.generation + 1);
        let mut growth = self.allocation.take_growth();
        if let Some(growth) = &mut growth {
            while !self.allocation.make_room(growth).expect("heap") {}
        }
        let layout = growth.as_ref().map_or(self.geometry, |growth| growth.geometry);
        let moves = layout.bitmaps != self.geometry.bitmaps;
        // Nothing stands in the new place yet, and what is written there is not what a fall back finds.
        let before = core::mem::take(&mut self.disk[region]);
        if !moves {
            self.disk[region].clone_from(&before);
        }
        let mut from = 0;
        while let Some(group) = self.allocation.next_stale(region, from) {
            from = group + 1;
            let mut bytes = [0; BLOCK];
            self.allocation.encode(group, &mut bytes);
            let is_free = self.allocation.is_free(group);
            assert_eq!(is_free, bytes == [0; BLOCK]);
            self.allocation.set_sum(region, group, u64::from(!is_free));
            if is_free {
                self.disk[region].remove(&group);
            } else {
                self.disk[region].insert(group, bytes);
            }
            if fails && self.random(2) == 0 {
                break;
            }
        }
        if fails {
            self.allocation.restale(region);
            if moves {
                self.disk[region] = before;
            }
            return;
        }
        // Where there is no checksum the disk holds what an earlier mount left.
        let sums = self.allocation.groups.sums(region, 0);
        self.disk[region].retain(|&group, _| sums.get(group).is_some_and(|&sum| sum != 0));
        let bits = self.disk[region].iter().flat_map(|(group, bytes)| {
            let set = (0..BITS).filter(|bit| bytes[(bit / 8) as usize] & (1 << (bit % 8)) != 0);
            set.map(|bit| self.geometry.data_start() + *group as u64 * BITS + bit)
        });
        assert!(bits.eq(self.model.used.iter().copied()), "the disk has other blocks");
        for index in 0..layout.index_blocks() as usize {
            let mut sums = [0; BLOCK];
            self.allocation.encode_index(region, index, &mut sums);
            let count = sums.iter().map(|&byte| usize::from(byte)).sum();
            assert_eq!(
                (count, count == 0),
                (self.disk[region].len(), self.allocation.is_index_free(region, index))
            );
        }
        self.allocation.commit(region);
        self.smaller = None;
        if let Some(mut growth) = growth {
            self.allocation.grow(&growth);
            let (before, after) = (self.geometry, growth.geometry);
            while self.allocation.grow_some(&mut growth) {}
            self.grown(before, after, moves);
        }
        self.model.retired.iter_mut().for_each(|retired| retired.1 += 1);
        self.model.retired.retain(|retired| retired.1 < 2);
        self.generation += 1;
        self.model.young.clear();
        self.model.held = [BTreeSet::new(), core::mem::take(&mut self.model.held[0])];
        self.stable = [core::mem::take(&mut self.stable[1]), self.model.used.clone()];
        let promised = self.random(2 * BITS);
        while self.allocation.release_some(promised) {}
    }

    /// The generation that is about to be durable has a larger size.
    fn grown(&mut self, before: Geometry, after: Geometry, moves: bool) {
        let mut bitmap = self.disk[region_of(self.generation)].clone();
        if moves {
            for number in [0, 2] {
                self.disk[region_of(self.generation + number)].clear();
            }
            if before.has_grown() {
                self.model.retired.push((before.among_data(), 0));
            }
        }
        bitmap.retain(|_, bytes| *bytes != [0; BLOCK]);
        self.smaller = Some((before, bitmap));
        self.geometry = after;
    }

    /// The disk has become larger by so many blocks; sometimes that is too little.
    fn grow(&mut self, more: u64) {
        self.allocation.ask_to_grow(self.geometry.total + more);
    }

    /// A power cut, and a mount behind it.
    fn mount(&mut self) {
        let [before, now] = &self.stable;
        self.model = Model {
            used: now.clone(),
            held: [BTreeSet::new(), before.difference(now).copied().collect()],
            young: BTreeSet::new(),
            retired: Vec::new(),
        };
        self.allocation = Allocation::new(self.geometry, Breaks::NONE).expect("heap");
        let (now, before) = (region_of(self.generation), region_of(self.generation - 1));
        for (&group, bytes) in &self.disk[now] {
            assert_eq!(self.allocation.load(now, group, (bytes, 1)), Ok(true));
        }
        let smaller = self.smaller.as_ref();
        if let Some((layout, _)) = smaller.filter(|(layout, _)| layout.bitmaps != self.geometry.bitmaps) {
            for block in layout.among_data() {
                self.allocation.hold_block_before(block).expect("heap");
                self.model.held[1].insert(block);
            }
        }
        for (&group, bytes) in smaller.map_or(&self.disk[before], |(_, bitmap)| bitmap) {
            self.allocation.load_before(group, bytes).expect("heap");
        }
    }

    fn check(&self) {
        let held = self.model.held();
        let known = (self.allocation.free_blocks(), self.allocation.held_blocks());
        assert_eq!(known, (self.data() - self.model.busy(), held));
        for group in 0..self.allocation.bitmap_blocks() {
            let start = self.geometry.data_start() + group as u64 * BITS;
            let used = self.model.used.range(start..start + BITS).count();
            assert_eq!(self.allocation.is_free(group), used == 0);
            if used > 0 {
                assert!(self.allocation.groups.is_there(group));
            }
        }
    }
}

/// Random lives of a disk, beside a plain set of blocks: allocations, frees, attempts that fail, commits, mounts, and growth if it grows.
fn live(seed: u64, grows: bool) {
    let geometry = Geometry::new(if grows { 60_000 } else { 115_000 }, None).expect("a layout");
    let mut life = Life {
        geometry,
        allocation: Allocation::new(geometry, Breaks::NONE).expect("heap"),
        model: Model::default(),
        disk: Default::default(),
        generation: 1,
        stable: Default::default(),
        smaller: None,
        random: seed,
    };
    for _ in 0..100 {
        match life.random(12) {
            0..4 => {
                let (many, is_young) = (life.random(12_000), life.random(3) == 0);
                (0..many).for_each(|_| life.alloc(is_young));
            }
            4..7 => {
                let (from, many) = (geometry.data_start() + life.random(life.data()), life.random(30_000));
                let all: Vec<u64> = life.model.used.range(from..from + many).copied().collect();
                let one_in = 1 + life.random(3);
                for block in all {
                    if life.random(one_in) == 0 {
                        life.free(block);
                    }
                }
                life.free(from);
            }
            7 => life.write(true),
            8..10 => life.write(false),
            10 if life.generation > 1 => life.mount(),
            _ if grows && life.geometry.total < 300_000 => {
                let more = [3, 900, 11_000, 40_000][life.random(4) as usize];
                life.grow(more);
            }
            _ => {
                let wanted = life.random(life.data());
                let can = life.allocation.promise(wanted);
                assert_eq!(can.is_ok(), wanted <= life.allocation.free_blocks());
                assert!(can.is_err() || life.allocation.groups.free() >= wanted);
            }
        }
        life.check();
    }
    assert!(!grows || life.geometry.total > 70_000, "it has hardly grown");
}

#[test]
fn groups_do_what_a_set_of_blocks_does() {
    (0..6).for_each(|seed| live(seed, false));
}

#[test]
fn groups_that_come_while_the_store_grows_do_what_a_set_of_blocks_does() {
    (0..8).for_each(|seed| live(seed, true));
}

/// All blocks are there in the end: those of before, what is new, and each place of the bitmaps but the last one.
#[test]
fn a_disk_grows_to_the_largest_size_with_all_its_blocks() {
    let geometry = Geometry::new(900, None).expect("a layout");
    let mut allocation = Allocation::new(geometry, Breaks::NONE).expect("heap");
    let used: Vec<u64> = (0..700).map_while(|_| allocation.alloc()).collect();
    let mut total = 900;
    for (generation, to) in [(2, 3 * BITS), (3, 3 * BITS + 90), (4, 1 << 30), (5, crate::BLOCKS_MAX)] {
        let to = allocation.geometry.grown(to).expect("a size");
        allocation.ask_to_grow(to.total);
        let mut growth = allocation.take_growth().expect("it was asked for");
        while !allocation.make_room(&mut growth).expect("heap") {}
        let free = allocation.free_blocks();
        assert_eq!(allocation.blocks(), total - geometry.data_start());
        allocation.commit(region_of(generation));
        allocation.grow(&growth);
        while allocation.grow_some(&mut growth) {}
        assert!(allocation.free_blocks() > free && allocation.groups.is_consistent());
        total = to.total;
    }
    for _ in 0..2 {
        allocation.commit(0);
        while allocation.release_some(u64::MAX) {}
    }
    let bitmaps = allocation.geometry.among_data();
    assert_eq!(bitmaps.end - bitmaps.start, 3 * (131_072 + 256));
    let reachable = allocation.geometry.data_blocks() - used.len() as u64;
    assert_eq!(allocation.free_blocks(), reachable);
    assert!(allocation.groups.is_consistent());
}

/// An empty disk of the largest size takes little heap, and where it is emptied again, all but what is promised and a group comes back.
#[test]
fn heap_is_for_what_is_used() {
    let geometry = Geometry::new(crate::BLOCKS_MAX, None).expect("a layout");
    assert!(Allocation::heap(&geometry, 1) < 300 << 10);
    let mut allocation = Allocation::new(geometry, Breaks::NONE).expect("heap");
    let there = |allocation: &Allocation| {
        let count = allocation.groups.all_there().iter().map(|word| word.count_ones());
        count.sum::<u32>()
    };
    assert_eq!(there(&allocation), 0);
    let blocks: Vec<u64> = (0..8 * BITS).map_while(|_| allocation.alloc()).collect();
    assert_eq!(there(&allocation), 8);
    for &block in &blocks {
        allocation.free(block);
    }
    for region in 0..2 {
        allocation.commit(region);
        assert_eq!(there(&allocation), 8);
    }
    while allocation.release_some(BITS) {}
    assert_eq!(there(&allocation), 2);
    // A block in each: the groups stay.
    allocation.promise(5 * BITS).expect("heap");
    assert_eq!(there(&allocation), 5);
    assert_eq!(allocation.free_blocks(), allocation.blocks());
}

/// The search of a group ends with its blocks, though the words of held ones stand behind them.
#[test]
fn a_search_in_a_group_with_held_blocks_ends_with_the_group() {
    let geometry = Geometry::new(70_000, None).unwrap();
    let mut allocation = Allocation::new(geometry, Breaks::NONE).unwrap();
    while allocation.alloc().is_some() {}
    let first = geometry.data_start();
    allocation.expect_held(0).unwrap();
    allocation.free(first);
    for generation in 2..5 {
        allocation.commit(region_of(generation));
        while allocation.release_some(u64::MAX) {}
    }
    // The search goes on at the last word of the first group.
    let last = first + BITS - 1;
    allocation.release(last);
    assert_eq!(allocation.alloc(), Some(last));
    assert_eq!(allocation.alloc(), Some(first));
    assert_eq!(allocation.alloc(), None);
}
