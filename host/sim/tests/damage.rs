//! Damaged, truncated and foreign disks: refused or reported, never believed, and never written to by
//! a mount that refuses.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{
    BLOCK, BadPage, CheckpointKind, DirtyPage, Event, Finding, FormatError, FormatOptions, MountError, MountMode,
    ObjectRecord, Pages, ReadStart, Store, Structure, TailReason,
};

const BLOCKS: u64 = 700;
const BASE: u64 = 1 << 32;
const PAGES: u64 = 600;

type Medium = BTreeMap<u64, sim::disk::Block>;

fn world(medium: Medium, blocks: u64) -> SimWorld {
    SimWorld::new(CrashDisk::from_medium(blocks, medium, Rng::new(5)), 1000, Rng::new(6))
}

fn finish(store: &mut Store, world: &mut SimWorld) {
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointDone { .. } | Event::SyncDone(_) | Event::Damaged { .. }) => {}
            Some(other) => panic!("{other:?}"),
            None => {
                world.step();
            }
        }
    }
}

fn dirty(world: &mut SimWorld, page: u64, stamp: u8) -> DirtyPage {
    sim::world::dirty(world, BASE, page, stamp)
}

/// A store with objects enough for a table of several nodes, two checkpoints, and two syncs behind them.
fn sample() -> Medium {
    let mut world = world(Medium::new(), BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store
        .put_object(ObjectRecord {
            base: BASE,
            pages: PAGES,
            ..ObjectRecord::default()
        })
        .expect("put");
    for slot in 1..60 {
        let capabilities = vec![(slot, 15); if slot % 10 == 0 { 128 } else { 3 }];
        let record = ObjectRecord {
            base: BASE + ((slot + 1) << 21),
            pages: 1,
            capabilities,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("put");
    }
    for round in 0..2 {
        let pages = (0..20).map(|at| dirty(&mut world, at * 29 + round, 1)).collect();
        store
            .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
            .expect("idle");
        finish(&mut store, &mut world);
    }
    for round in 0..2 {
        let page = dirty(&mut world, 100 + round, 2);
        store.sync_begin(&mut world, vec![page], &[]).expect("heap");
        finish(&mut store, &mut world);
    }
    world.disk.medium().clone()
}

fn mount(medium: &Medium, blocks: u64) -> Result<(), MountError> {
    let mut world = world(medium.clone(), blocks);
    let before = world.disk.medium().clone();
    let result = Store::mount(&mut world, MountMode::ReadWrite).map(|_| ());
    if result.is_err() {
        assert!(
            world.disk.written == 0 && *world.disk.medium() == before,
            "a mount that refuses wrote"
        );
    }
    result
}

fn damage(medium: &mut Medium, block: u64, at: usize) {
    let mut bytes = *medium.get(&block).map_or_else(|| Arc::new([0; BLOCK]), Arc::clone);
    bytes[at] ^= 0x10;
    medium.insert(block, Arc::new(bytes));
}

#[test]
fn what_is_not_ours_is_refused() {
    assert_eq!(mount(&Medium::new(), BLOCKS), Err(MountError::Foreign));
    assert_eq!(mount(&Medium::new(), 0), Err(MountError::Foreign));
    let foreign = (0..100).map(|block| (block, Arc::new([block as u8; BLOCK]))).collect();
    assert_eq!(mount(&foreign, BLOCKS), Err(MountError::Foreign));
}

#[test]
fn a_truncated_disk_is_refused_and_a_larger_one_is_not() {
    assert_eq!(
        mount(&sample(), BLOCKS - 1),
        Err(MountError::Truncated(BLOCKS, BLOCKS - 1))
    );
    assert_eq!(mount(&sample(), BLOCKS + 1), Ok(()));
}

#[test]
fn another_width_is_refused_and_a_copy_that_only_says_another_version_is_not() {
    let mut medium = sample();
    let mut rotten = *medium[&0];
    rotten[8] = 3;
    rotten[4088] ^= 1;
    medium.insert(0, Arc::new(rotten));
    assert_eq!(mount(&medium, BLOCKS), Ok(()));

    let mut wide = world(Medium::new(), BLOCKS);
    Store::format(
        &mut wide,
        &FormatOptions {
            address_bits: 56,
            ..FormatOptions::default()
        },
    )
    .expect("format");
    assert_eq!(mount(wide.disk.medium(), BLOCKS), Err(MountError::AddressBits(56)));
}

#[test]
fn formats_that_cannot_be_are_refused() {
    let format = |blocks, options| Store::format(&mut world(Medium::new(), blocks), &options);
    assert_eq!(format(100, FormatOptions::default()), Err(FormatError::TooSmall(128)));
    assert_eq!(
        format(1 << 33, FormatOptions::default()),
        Err(FormatError::TooLarge(1 << 32))
    );
    let odd = FormatOptions {
        address_bits: 48,
        ..FormatOptions::default()
    };
    assert_eq!(format(BLOCKS, odd), Err(FormatError::AddressBits));
}

#[test]
fn one_good_superblock_copy_is_enough_and_none_is_too_few() {
    let mut medium = sample();
    let current = current_slot(&medium);
    damage(&mut medium, current, 100);
    assert_eq!(mount(&medium, BLOCKS), Ok(()));
    for block in 0..4 {
        if block != current {
            damage(&mut medium, block, 100);
        }
    }
    assert_eq!(
        mount(&medium, BLOCKS),
        Err(MountError::Damaged(Structure::Superblock, 0))
    );
}

fn current_slot(medium: &Medium) -> u64 {
    let generation = |block: u64| u64::from_le_bytes(medium[&block][32..40].try_into().expect("eight bytes"));
    if generation(0) > generation(2) { 0 } else { 2 }
}

/// What became of a disk with one damaged block.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Refused,
    Reported,
    Unused,
}

fn outcome(medium: &Medium) -> Outcome {
    let mut world = world(medium.clone(), BLOCKS);
    let Ok((store, report)) = Store::mount(&mut world, MountMode::ReadOnly) else {
        return Outcome::Refused;
    };
    let mut findings: Vec<Finding> = Vec::new();
    store
        .verify(&mut world, &mut |finding| findings.push(finding))
        .expect("memory");
    let told = report.tail.is_some() || !report.damage.is_empty() || !report.bad_superblocks.is_empty();
    if told || !findings.is_empty() {
        Outcome::Reported
    } else {
        Outcome::Unused
    }
}

/// Every block in use, damaged in turn: the mount refuses, or mount and verify report it. Only
/// blocks that the current state no longer reaches may be damaged unnoticed.
#[test]
fn no_damaged_block_goes_unnoticed() {
    let medium = sample();
    let mut clean = world(medium.clone(), BLOCKS);
    let (store, _) = Store::mount(&mut clean, MountMode::ReadOnly).expect("mount");
    let mut reached = BTreeSet::new();
    let tally = store
        .verify(&mut clean, &mut |finding| panic!("{finding:?}"))
        .expect("memory");
    let mut seen = BTreeMap::new();
    for &block in medium.keys() {
        let mut bad = medium.clone();
        damage(&mut bad, block, 1000);
        let outcome = outcome(&bad);
        if outcome != Outcome::Unused {
            reached.insert(block);
        }
        *seen.entry(outcome).or_insert(0) += 1;
    }
    // Data and nodes, superblocks, bitmap and index of two generations, and the last journal records.
    assert!(reached.len() as u64 >= tally.blocks + 4, "{seen:?}, {tally:?}");
    assert!(seen[&Outcome::Refused] > 0 && seen[&Outcome::Reported] > 0, "{seen:?}");
}

#[test]
fn a_rotten_page_is_reported_and_the_rest_is_read() {
    let medium = sample();
    let mut bad_pages = 0;
    for &block in medium.keys().filter(|&&block| block > 60) {
        let mut bad = medium.clone();
        damage(&mut bad, block, 5);
        let mut world = world(bad, BLOCKS);
        let Ok((mut store, _)) = Store::mount(&mut world, MountMode::AcceptLoss) else {
            continue;
        };
        let mut bad_here = 0;
        for at in (0..20).map(|at| at * 29) {
            if store.read_page(&mut world, BASE, at) != ReadStart::Reading {
                continue;
            }
            loop {
                match store.poll(&mut world) {
                    Some(Event::PageRead { frame, .. }) => {
                        assert_eq!(*world.bytes(frame), [1; BLOCK]);
                        world.free(frame);
                        break;
                    }
                    Some(Event::PageBad { reason, .. }) => {
                        assert!(matches!(reason, BadPage::Checksum | BadPage::Map));
                        bad_here += 1;
                        break;
                    }
                    Some(_) => {}
                    None => {
                        world.step();
                    }
                }
            }
        }
        bad_pages += bad_here;
        // The store goes on: the damaged part can be written anew, and a checkpoint succeeds.
        let page = dirty(&mut world, 29, 9);
        store
            .checkpoint_begin(&mut world, vec![page], CheckpointKind::Generation)
            .expect("idle");
        while !store.is_idle() {
            match store.poll(&mut world) {
                Some(Event::CheckpointFailed { reason }) => panic!("{reason:?}"),
                Some(_) => {}
                None => {
                    world.step();
                }
            }
        }
        assert!(matches!(store.read_page(&mut world, BASE, 29), ReadStart::Reading));
    }
    assert!(bad_pages >= 20, "{bad_pages}");
}

/// A node that rotted and that no record of the journal needs is met only when something is written below it: the store goes on then, and tells it.
#[test]
fn a_checkpoint_goes_on_over_a_rotten_node() {
    let mut clean = world(sample(), BLOCKS);
    let (mut store, _) = Store::mount(&mut clean, MountMode::ReadWrite).expect("mount");
    let page = dirty(&mut clean, 0, 3);
    store
        .checkpoint_begin(&mut clean, vec![page], CheckpointKind::Generation)
        .expect("idle");
    finish(&mut store, &mut clean);
    let medium = clean.disk.medium().clone();
    let mut met = 0;
    for &block in medium.keys().filter(|&&block| block > 60) {
        let mut bad = medium.clone();
        damage(&mut bad, block, 5);
        let mut world = world(bad, BLOCKS);
        let Ok((mut store, _)) = Store::mount(&mut world, MountMode::ReadWrite) else {
            continue;
        };
        let pages = [29, 300, 599].map(|page| dirty(&mut world, page, 9));
        store
            .checkpoint_begin(&mut world, pages.to_vec(), CheckpointKind::Generation)
            .expect("idle");
        finish(&mut store, &mut world);
        met += store.stats().damaged;
    }
    assert!(met >= 3, "{met}");
}

#[test]
fn rot_in_the_middle_of_the_journal_is_told_from_a_torn_end() {
    let medium = sample();
    let is_record = |block: &u64| medium[block].starts_with(b"GJOURNAL");
    let records: Vec<u64> = medium.keys().copied().filter(is_record).collect();
    let mut tails = Vec::new();
    for block in records {
        let mut bad = medium.clone();
        damage(&mut bad, block, 2000);
        let mut world = world(bad, BLOCKS);
        let (_, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
        tails.extend(report.tail);
    }
    let found: Vec<(u64, TailReason, u32)> = tails
        .iter()
        .map(|tail| (tail.sequence, tail.reason, tail.stranded))
        .collect();
    assert_eq!(found, [(0, TailReason::Torn, 1), (1, TailReason::Torn, 0)]);
}

/// Disks of random bytes, and samples with many random changes, never make anything panic.
#[test]
fn nothing_on_a_disk_makes_the_store_panic() {
    let medium = sample();
    let mut rng = Rng::new(11);
    for _ in 0..300 {
        let mut bad = medium.clone();
        let blocks: Vec<u64> = bad.keys().copied().collect();
        for _ in 0..=rng.below(20) {
            let block = *rng.pick(&blocks);
            damage(&mut bad, block, rng.below(BLOCK as u64) as usize);
        }
        let _ = outcome(&bad);
        let _ = mount(&bad, BLOCKS);
    }
}
