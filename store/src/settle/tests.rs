//! Maps that no store writes: their nodes have several parents, lead to pages of others, outside or nowhere, and all checksums are right.

use super::*;
use crate::event::Event;
use crate::map::{FANOUT, put_entry};
use crate::plain::PlainWorld;
use crate::{
    BLOCK, Budget, CheckpointKind, FormatOptions, MountMode, ObjectRecord, PageFlags, PageLookup, Pages, ReadStart,
};
use alloc::vec::Vec;

const BLOCKS: u64 = 2000;
/// Objects with crafted maps.
const CRAFTED: [u64; 2] = [1 << 40, 1 << 41];
/// An object that has pages of its own alone.
const SOUND: u64 = 1 << 42;
const SOUND_PAGES: u64 = 300;
const LEVELS: u8 = 6;
/// More than any map of these needs, and far less than a walk along each path.
const REQUESTS_MAX: usize = 60_000;
/// So with the events of a million instructions in which it is done.
const STEPS_MAX: usize = 100_000;

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    /// A number of any size below a power of two.
    fn of_any_size(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below(1 << bits)
    }
}

fn dirty(world: &mut PlainWorld, base: u64, page: u64) -> DirtyPage {
    world.dirty(base, page, (page % 250) as u8 + 1)
}

fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    }
}

fn mount(world: &mut PlainWorld, mode: MountMode) -> Store {
    Store::mount(world, mode).expect("mount").0
}

/// Runs a checkpoint to its end, with a bounded number of requests to the disk; tells how many there were.
fn checkpoint(world: &mut PlainWorld, store: &mut Store, pages: Vec<DirtyPage>) -> usize {
    world.log.clear();
    store
        .checkpoint_begin(world, pages, CheckpointKind::Generation)
        .expect("idle");
    let mut steps = 0;
    loop {
        steps += 1;
        match store.poll_within(world, &mut Budget::of(1_000_000)) {
            Some(Event::CheckpointDone { .. }) => break,
            Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
            Some(_) | None => assert!(world.log.len() < REQUESTS_MAX && steps < STEPS_MAX, "it never ends"),
        }
    }
    while store.page_over().is_some() {}
    world.log.len()
}

/// A disk with a sound object, and two objects without pages.
fn sample() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let mut store = mount(&mut world, MountMode::ReadWrite);
    let pages = |base| if base == SOUND { SOUND_PAGES } else { 1 << 26 };
    for base in [SOUND, CRAFTED[0], CRAFTED[1]] {
        store.put_object(record(base, pages(base))).expect("room");
    }
    let pages = (0..SOUND_PAGES).map(|page| dirty(&mut world, SOUND, page)).collect();
    checkpoint(&mut world, &mut store, pages);
    (world, store)
}

/// Puts a node with these entries on the disk.
fn put_node(world: &mut PlainWorld, store: &mut Store, entry_of: &mut dyn FnMut(u64) -> Entry) -> Entry {
    let mut bytes = [0; BLOCK];
    (0..FANOUT).for_each(|slot| put_entry(&mut bytes, slot, entry_of(slot)));
    put_block(world, store, &bytes)
}

fn put_block(world: &mut PlainWorld, store: &mut Store, bytes: &[u8; BLOCK]) -> Entry {
    let block = store.allocation.alloc().expect("room");
    world.disk.insert(block, *bytes);
    Entry {
        block,
        checksum: store.checksums.of(block, bytes),
        ..Entry::NONE
    }
}

/// Makes the crafted maps durable and mounts the disk anew, as that of a stranger.
fn stranger(mut world: PlainWorld, mut store: Store, roots: [MapRoot; 2]) -> (PlainWorld, Store) {
    for (base, root) in CRAFTED.into_iter().zip(roots) {
        store.table.set_map(base, root);
    }
    checkpoint(&mut world, &mut store, Vec::new());
    store.dismantle(&mut world);
    let store = mount(&mut world, MountMode::ReadWrite);
    (world, store)
}

fn findings(world: &mut PlainWorld) -> Vec<crate::Finding> {
    let store = mount(world, MountMode::ReadOnly);
    let mut findings = Vec::new();
    store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    store.dismantle(world);
    findings
}

/// Whether all pages of the sound object are as they were.
fn is_whole(world: &mut PlainWorld, store: &mut Store) -> bool {
    (0..SOUND_PAGES).all(|page| {
        assert_eq!(store.read_page(world, SOUND, page), ReadStart::Reading);
        loop {
            match store.poll(world).expect("it is answered") {
                Event::PageRead { frame, .. } => {
                    let same = world.bytes(frame) == &[(page % 250) as u8 + 1; BLOCK];
                    world.free(frame);
                    return same;
                }
                Event::PageBad { .. } => return false,
                _ => {}
            }
        }
    })
}

/// Six levels, and each entry of a node leads to the same one below: 256 to the power of six paths over six blocks.
fn tower(world: &mut PlainWorld, store: &mut Store) -> MapRoot {
    let mut entry = put_block(world, store, &[7; BLOCK]);
    for _ in 0..LEVELS {
        entry = put_node(world, store, &mut |_| entry);
    }
    MapRoot { levels: LEVELS, entry }
}

#[test]
fn a_node_with_many_parents_is_taken_down_once() {
    let (mut world, mut store) = sample();
    let roots = [tower(&mut world, &mut store), MapRoot::default()];
    let (mut world, mut store) = stranger(world, store, roots);
    store.delete_object(CRAFTED[0]).expect("it is there");
    let requests = checkpoint(&mut world, &mut store, Vec::new());
    assert!(requests < 1000, "{requests} requests");
    assert!(store.stats().damaged > 0, "it is told");
    assert!(is_whole(&mut world, &mut store));
    store.dismantle(&mut world);
    assert_eq!(findings(&mut world), []);
}

#[test]
fn pages_below_a_node_with_many_parents_are_discarded_once() {
    for (first, end) in [(0, 1 << 26), (5, (1 << 26) - 5), (700, 1 << 17)] {
        let (mut world, mut store) = sample();
        let roots = [tower(&mut world, &mut store), MapRoot::default()];
        let (mut world, mut store) = stranger(world, store, roots);
        store.discard_pages(CRAFTED[0], first, end, &[]).expect("room");
        let requests = checkpoint(&mut world, &mut store, Vec::new());
        assert!(requests < 5000, "{requests} requests");
        assert!(is_whole(&mut world, &mut store));
        store.delete_object(CRAFTED[0]).expect("it is there");
        checkpoint(&mut world, &mut store, Vec::new());
        store.dismantle(&mut world);
        assert_eq!(findings(&mut world), [], "{first} to {end}");
    }
}

/// Entries that lead nowhere and yet are not zero: limits of what is no page, a checksum of nothing.
#[test]
fn entries_without_a_block_keep_no_node() {
    let odd = [
        Entry {
            flags: PageFlags::READ,
            ..Entry::NONE
        },
        Entry {
            checksum: 5,
            ..Entry::NONE
        },
    ];
    for (levels, entry) in (0..4_u8).flat_map(|levels| odd.map(|entry| (levels, entry))) {
        let (mut world, mut store) = sample();
        let mut entry = entry;
        for level in 0..levels {
            entry = put_node(&mut world, &mut store, &mut |slot| {
                if slot == 3 * u64::from(level) {
                    entry
                } else {
                    Entry::NONE
                }
            });
        }
        let root = |levels| MapRoot { levels, entry };
        let (mut world, mut store) = stranger(world, store, [root(levels), MapRoot::default()]);
        store.delete_object(CRAFTED[0]).expect("it is there");
        checkpoint(&mut world, &mut store, Vec::new());
        assert_eq!(store.maps.len(), 0, "frames of nodes, {levels} levels, {entry:?}");
        store.dismantle(&mut world);
        assert_eq!(findings(&mut world), [], "{levels} levels, {entry:?}");
        for below in 1..=2 {
            let (mut world, mut store) = sample();
            let mut top = put_node(&mut world, &mut store, &mut |slot| {
                if slot == 9 { odd[0] } else { Entry::NONE }
            });
            for _ in 0..below {
                let node = top;
                top = put_node(&mut world, &mut store, &mut |slot| {
                    if slot == 0 { node } else { odd[0] }
                });
            }
            let root = MapRoot {
                levels: 2 + below,
                entry: top,
            };
            let (mut world, mut store) = stranger(world, store, [root, MapRoot::default()]);
            store.delete_object(CRAFTED[0]).expect("it is there");
            checkpoint(&mut world, &mut store, Vec::new());
            store.dismantle(&mut world);
            assert_eq!(findings(&mut world), []);
        }
    }
}

/// Some entry for a node: most are other nodes, the rest is what no entry should be.
fn some_entry(dice: &mut Dice, nodes: &[Entry], pages: &[Entry]) -> Entry {
    let any = |dice: &mut Dice, from: &[Entry]| from[dice.below(from.len() as u64) as usize];
    match dice.below(20) {
        0..8 => any(dice, nodes),
        8..11 => any(dice, pages),
        11 => Entry {
            // No data, free, or behind the end of the disk. What takes the last blocks would be harmed: nothing tells whose they are.
            block: (BLOCKS - 50 + dice.below(300)) % (BLOCKS + 200),
            ..Entry::NONE
        },
        12 => Entry {
            flags: PageFlags::READ,
            ..Entry::NONE
        },
        13 => Entry {
            checksum: 9,
            ..Entry::NONE
        },
        14 => Entry {
            block: crate::map::LOST,
            ..Entry::NONE
        },
        _ => Entry::NONE,
    }
}

/// Random maps that share nodes and pages at all depths, within an object and between two.
fn tangle(dice: &mut Dice) -> (PlainWorld, Store) {
    let (mut world, mut store) = sample();
    let mut pages = Vec::new();
    for number in 0..20 {
        pages.push(put_block(&mut world, &mut store, &[number; BLOCK]));
    }
    let mut nodes = pages.clone();
    let many = dice.below(2) * 200;
    for _ in 0..60 {
        let full = dice.below(3) == 0;
        let entry = put_node(&mut world, &mut store, &mut |slot| {
            if full || slot < 3 || dice.below(256) < many {
                some_entry(dice, &nodes, &pages)
            } else {
                Entry::NONE
            }
        });
        nodes.push(entry);
    }
    // Each block has a way to it, or the bitmap would be wrong.
    let mut all = nodes.clone();
    while all.len() > 1 {
        let mut rest = all.split_off(all.len().saturating_sub(200));
        all.push(put_node(&mut world, &mut store, &mut |_| {
            rest.pop().unwrap_or(Entry::NONE)
        }));
    }
    let mut root = |entry| MapRoot {
        levels: 2 + dice.below(5) as u8,
        entry,
    };
    let roots = [root(all[0]), root(nodes[nodes.len() - 1])];
    stranger(world, store, roots)
}

#[test]
fn tangled_maps_are_taken_down() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (mut world, mut store) = tangle(&mut dice);
        let apart = dice.below(2);
        for base in CRAFTED {
            store.delete_object(base).expect("it is there");
            if apart == 1 {
                checkpoint(&mut world, &mut store, Vec::new());
            }
        }
        checkpoint(&mut world, &mut store, Vec::new());
        assert!(is_whole(&mut world, &mut store), "seed {seed}");
        assert_eq!(store.maps.dirty_len(), 0, "seed {seed}");
        // The blocks come back, and none of them comes twice.
        let other = SOUND << 1;
        store.put_object(record(other, 300)).expect("room");
        for _ in 0..3 {
            let pages = (0..300).map(|page| dirty(&mut world, other, page)).collect();
            checkpoint(&mut world, &mut store, pages);
        }
        assert!(is_whole(&mut world, &mut store), "seed {seed}");
        store.dismantle(&mut world);
        let found = findings(&mut world);
        let wrong = |found: &&crate::Finding| !matches!(found, crate::Finding::Leaked(_));
        assert_eq!(found.iter().find(wrong), None, "seed {seed}");
    }
}

#[test]
fn tangled_maps_are_read_and_written() {
    for seed in 100..130 {
        let mut dice = Dice(seed);
        let (mut world, mut store) = tangle(&mut dice);
        for _ in 0..4 {
            let places: alloc::collections::BTreeSet<_> = (0..20)
                .map(|_| (CRAFTED[dice.below(2) as usize], dice.of_any_size(26)))
                .collect();
            let pages: Vec<_> = places
                .iter()
                .map(|&(base, page)| dirty(&mut world, base, page))
                .collect();
            checkpoint(&mut world, &mut store, pages);
            for (base, page) in places {
                assert_eq!(store.read_page(&mut world, base, page), ReadStart::Reading);
                while let Some(event) = store.poll(&mut world) {
                    let Event::PageRead { frame, .. } = event else { continue };
                    assert_eq!(world.bytes(frame)[0], (page % 250) as u8 + 1, "seed {seed}");
                    world.free(frame);
                }
            }
            let first = dice.below(1 << 26);
            let end = first + dice.of_any_size(25);
            store.discard_pages(CRAFTED[0], first, end, &[]).expect("room");
        }
        checkpoint(&mut world, &mut store, Vec::new());
        assert!(is_whole(&mut world, &mut store), "seed {seed}");
        assert_eq!(store.page_flags(&world, CRAFTED[0], 1 << 27), PageLookup::Absent);
    }
}
