//! What was stable and has rotted away: told by name, never written over, and there again once the bits are put back.

use sim::disk::{CrashDisk, Fate};
use sim::rng::Rng;
use sim::world::SimWorld;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Event, FormatOptions, Loss, MountError, MountMode, MountReport, ObjectRecord,
    PageFlags, Pages, ReadStart, Store, TailReason,
};

const BLOCKS: u64 = 300;
const BASE: u64 = 1 << 32;
const SECOND: u64 = BASE + (4 << 21);
const PAGES: u64 = 600;
/// Records behind the last checkpoint of the sample.
const RECORDS: usize = 3;

type Medium = BTreeMap<u64, sim::disk::Block>;
/// The stamps of the pages that the sample wrote.
type Stamps = Vec<u8>;

fn world(medium: &Medium) -> SimWorld {
    SimWorld::new(
        CrashDisk::from_medium(BLOCKS, medium.clone(), Rng::new(5)),
        300,
        Rng::new(6),
    )
}

fn finish(store: &mut Store, world: &mut SimWorld) {
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointDone { .. } | Event::SyncDone(_)) => {}
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

fn object(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        ..ObjectRecord::default()
    }
}

/// A store with two generations behind it and so many records in the journal of the second. Pages 0 to 2 are written in the
/// records, page 10 in the checkpoints; the last record makes an object, too.
fn sample(records: usize) -> Medium {
    timeline(2, records, 7)
}

/// The same with so many checkpoints and another stamp in the first record: all else that is random is the same.
fn timeline(checkpoints: u8, records: usize, first: u8) -> Medium {
    let mut world = world(&Medium::new());
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(object(BASE, PAGES)).expect("put");
    for stamp in 1..=checkpoints {
        let pages = vec![dirty(&mut world, 10, stamp), dirty(&mut world, 300, stamp)];
        store
            .checkpoint_begin(&mut world, pages, CheckpointKind::Generation)
            .expect("idle");
        finish(&mut store, &mut world);
    }
    for record in 0..records {
        let stamp = if record == 0 { first } else { 7 + record as u8 };
        let page = dirty(&mut world, record as u64, stamp);
        if record + 1 == records {
            store.put_object(object(SECOND, 1)).expect("put");
        }
        store.sync_begin(&mut world, vec![page], &[SECOND]).expect("heap");
        finish(&mut store, &mut world);
    }
    world.disk.medium().clone()
}

fn flip(medium: &mut Medium, block: u64, bit: usize) {
    let mut bytes = *medium[&block];
    bytes[bit / 8] ^= 1 << (bit % 8);
    medium.insert(block, Arc::new(bytes));
}

/// The blocks of the newest superblock, and those of the one before.
fn superblocks(medium: &Medium) -> ([u64; 2], [u64; 2]) {
    let generation = |block: u64| u64::from_le_bytes(medium[&block][32..40].try_into().expect("eight bytes"));
    if generation(0) > generation(2) {
        ([0, 1], [2, 3])
    } else {
        ([2, 3], [0, 1])
    }
}

/// The blocks of the newest generation's records, in order.
fn records(medium: &Medium) -> Vec<u64> {
    let start = 4 + if superblocks(medium).0[0] == 0 { 0 } else { 16 };
    (start..start + 16)
        .filter(|block| medium.get(block).is_some_and(|bytes| bytes.starts_with(b"GJOURNAL")))
        .collect()
}

fn stamps(store: &mut Store, world: &mut SimWorld) -> Stamps {
    let mut stamps = Stamps::new();
    for page in [0, 1, 2, 10, 300] {
        stamps.push(match store.read_page(world, BASE, page) {
            ReadStart::Zero(_) => 0,
            ReadStart::NoMemory => panic!("no heap"),
            ReadStart::Reading => loop {
                match store.poll(world) {
                    Some(Event::PageRead { frame, .. }) => {
                        let stamp = world.bytes(frame)[0];
                        world.free(frame);
                        break stamp;
                    }
                    Some(Event::PageBad { .. }) => break 255,
                    Some(_) => {}
                    None => {
                        world.step();
                    }
                }
            },
        });
    }
    stamps
}

/// Mounts and gives the report and the stamps; a mount that refuses has written nothing.
fn mount(medium: &Medium, mode: MountMode) -> Result<(MountReport, Stamps), MountError> {
    let mut world = world(medium);
    let mounted = Store::mount(&mut world, mode);
    if mounted.is_err() || mode == MountMode::ReadOnly {
        assert_eq!(world.disk.written, 0, "{mode:?} wrote");
    }
    let (mut store, report) = mounted.inspect_err(|_| assert_eq!(world.memory.used(), 0, "frames leaked"))?;
    let stamps = stamps(&mut store, &mut world);
    Ok((report, stamps))
}

const WHOLE: [u8; 5] = [7, 8, 9, 2, 2];

fn refused(medium: &Medium) -> Loss {
    match mount(medium, MountMode::ReadWrite) {
        Err(MountError::Loss(loss)) => loss,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn the_sample_is_whole() {
    let medium = sample(RECORDS);
    let (report, stamps) = mount(&medium, MountMode::ReadWrite).expect("mount");
    assert_eq!((report.losses, report.replayed, report.tail), (Vec::new(), 3, None));
    assert_eq!(stamps, WHOLE);
    assert_eq!(records(&medium).len(), RECORDS);
}

#[test]
fn the_newest_superblock_lost_is_told_and_nothing_is_written_over_it() {
    for (with, wipe) in [(0, false), (RECORDS, false), (0, true), (RECORDS, true)] {
        let mut medium = sample(with);
        let whole = medium.clone();
        let ([first, second], _) = superblocks(&medium);
        for block in [first, second] {
            if wipe {
                medium.insert(block, Arc::new([0; BLOCK]));
            } else {
                flip(&mut medium, block, 800);
            }
        }
        let lost = refused(&medium);
        let (report, stamps) = mount(&medium, MountMode::ReadOnly).expect("it can be looked at");
        let generation = report.generation;
        assert_eq!(
            lost,
            Loss::Generation {
                found: generation,
                newer: generation + 1,
                records: with as u32
            }
        );
        assert_eq!((report.losses[0], report.clean), (lost, false));
        assert_eq!(stamps, [0, 0, 0, 1, 1]);
        if with > 0 {
            let pages = Loss::Pages {
                base: BASE,
                first: 0,
                end: 2,
            };
            assert!(report.losses.contains(&pages), "{:?}", report.losses);
            assert!(
                report.losses.contains(&Loss::Object { base: SECOND }),
                "{:?}",
                report.losses
            );
        }
        // Put back, all is there; accepted, the older state goes on.
        let whole = mount(&whole, MountMode::ReadWrite).expect("mount").1;
        assert_eq!(whole, if with > 0 { WHOLE } else { [0, 0, 0, 2, 2] });
        let (report, stamps) = mount(&medium, MountMode::AcceptLoss).expect("accepted");
        assert_eq!((report.losses[0], stamps), (lost, Stamps::from([0, 0, 0, 1, 1])));
    }
}

/// Everything that a record behind the damage changed is named, neighbouring pages together.
#[test]
fn every_change_of_a_lost_record_is_named() {
    let mut disk = world(&Medium::new());
    Store::format(&mut disk, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut disk, MountMode::ReadWrite).expect("mount");
    let third = SECOND + (4 << 21);
    for base in [BASE, third] {
        store.put_object(object(base, PAGES)).expect("put");
    }
    let pages = [10, 25].map(|page| dirty(&mut disk, page, 1)).to_vec();
    store
        .checkpoint_begin(&mut disk, pages, CheckpointKind::Generation)
        .expect("idle");
    finish(&mut store, &mut disk);
    let page = dirty(&mut disk, 0, 7);
    store.sync_begin(&mut disk, vec![page], &[]).expect("heap");
    finish(&mut store, &mut disk);
    store.put_object(object(SECOND, 1)).expect("put");
    store.delete_object(third).expect("there");
    store.discard_pages(BASE, 20, 30, &[]).expect("room");
    store.set_page_flags(BASE, 50, PageFlags::READ).expect("room");
    let pages = [30, 70].map(|page| dirty(&mut disk, page, 8)).to_vec();
    store
        .sync_begin(&mut disk, pages, &[BASE, SECOND, third])
        .expect("heap");
    finish(&mut store, &mut disk);
    let mut medium = disk.disk.medium().clone();
    let first = records(&medium)[0];
    flip(&mut medium, first, 5000);
    let (report, _) = mount(&medium, MountMode::ReadOnly).expect("it can be looked at");
    let stranded = Loss::Records {
        sequence: 0,
        stranded: 1,
    };
    assert_eq!(report.losses[0], stranded);
    let pages = |first, end| Loss::Pages { base: BASE, first, end };
    let wanted = [
        Loss::Object { base: BASE },
        Loss::Object { base: SECOND },
        Loss::Object { base: third },
        pages(20, 30),
        pages(50, 51),
        pages(30, 31),
        pages(70, 71),
    ];
    for loss in wanted {
        assert!(report.losses.contains(&loss), "{loss:?} is not in {:?}", report.losses);
    }
    assert_eq!(report.losses.len(), 1 + wanted.len(), "{:?}", report.losses);
}

/// What journal records prove holds even where a whole pair of superblocks stands there with older contents: a lost write.
#[test]
fn records_alone_prove_a_newer_generation() {
    let mut medium = sample(RECORDS);
    let (newest, _) = superblocks(&medium);
    // The same pair, two generations ago.
    let before = timeline(0, 0, 7);
    for block in newest {
        medium.insert(block, before[&block].clone());
    }
    assert_ne!(superblocks(&medium).0, newest);
    assert!(matches!(refused(&medium), Loss::Generation { records: 3, .. }));
}

#[test]
fn accepted_losses_are_told_once() {
    let mut medium = sample(RECORDS);
    let ([first, second], _) = superblocks(&medium);
    flip(&mut medium, first, 800);
    flip(&mut medium, second, 800);
    let mut world = world(&medium);
    let (store, report) = Store::mount(&mut world, MountMode::AcceptLoss).expect("accepted");
    assert!(!report.losses.is_empty());
    store.dismantle(&mut world);
    let (mut store, report) = Store::mount(&mut world, MountMode::ReadWrite).expect("it goes on");
    assert!(report.losses.is_empty(), "{report:?}");
    let mut findings = Vec::new();
    let page = dirty(&mut world, 5, 5);
    store.sync_begin(&mut world, vec![page], &[]).expect("heap");
    finish(&mut store, &mut world);
    store
        .verify(&mut world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!(findings, []);
}

#[test]
fn a_rotten_node_met_in_replay_is_not_committed() {
    let whole = sample(RECORDS);
    let mut caught = 0;
    for &block in whole.keys().filter(|&&block| block > 41) {
        let mut medium = whole.clone();
        flip(&mut medium, block, 10 * 128 + 3);
        let Err(MountError::Loss(loss)) = mount(&medium, MountMode::ReadWrite) else {
            continue;
        };
        caught += 1;
        // The node of the first 256 pages, or the one above it.
        let Loss::Pages {
            base: BASE,
            first: 0,
            end,
        } = loss
        else {
            panic!("{loss:?}")
        };
        assert!(end == 256 || end == PAGES, "{loss:?}");
        let (report, stamps) = mount(&medium, MountMode::ReadOnly).expect("it can be looked at");
        assert_eq!((report.losses[0], &stamps[..4]), (loss, &[7, 8, 9, 255][..]));
        let (report, _) = mount(&medium, MountMode::AcceptLoss).expect("accepted");
        assert_eq!(report.losses[0], loss);
    }
    assert_eq!(caught, 2);
}

/// Every bit of the newest superblock, in both copies: either nothing of it matters, or the mount refuses and says so.
#[test]
fn every_bit_of_the_superblocks() {
    let mut medium = sample(RECORDS);
    let (newest, older) = superblocks(&medium);
    for bit in (0..BLOCK * 8).filter(|bit| bit % 61 == 0 || *bit < 1024 || *bit >= BLOCK * 8 - 64) {
        for (blocks, matters) in [(newest, true), (older, false)] {
            flip(&mut medium, blocks[0], bit);
            assert_eq!(mounted(&medium).expect("one copy is enough"), WHOLE, "bit {bit}");
            flip(&mut medium, blocks[1], bit);
            match mounted(&medium) {
                Ok(stamps) => assert!(!matters && stamps == WHOLE, "bit {bit}"),
                Err(MountError::Loss(Loss::Generation { records: 3, .. })) => assert!(matters, "bit {bit}"),
                // Magic and generation: whether it is the older one can no longer be told.
                Err(MountError::Loss(Loss::Generation { records: 0, .. })) => {
                    assert!(!matters && (bit < 64 || (256..320).contains(&bit)), "bit {bit}");
                }
                Err(error) => panic!("bit {bit}: {error:?}"),
            }
            for block in blocks {
                flip(&mut medium, block, bit);
            }
        }
    }
    assert_eq!(mounted(&medium), Ok(Stamps::from(WHOLE)));
}

fn mounted(medium: &Medium) -> Result<Stamps, MountError> {
    mount(medium, MountMode::ReadWrite).map(|(_, stamps)| stamps)
}

/// Every bit of every record. Rot in the last one cannot be told from a power cut while it was written: it is reported as the end of
/// the journal, and nothing before it suffers.
#[test]
fn every_bit_of_the_journal() {
    let mut medium = sample(RECORDS);
    let records = records(&medium);
    for (number, &block) in records.iter().enumerate() {
        for bit in (0..BLOCK * 8).filter(|bit| bit % 61 == 0 || *bit < 2048) {
            flip(&mut medium, block, bit);
            match mount(&medium, MountMode::ReadWrite) {
                Ok((report, stamps)) => {
                    assert_eq!(number + 1, RECORDS, "record {number}, bit {bit}: {report:?}");
                    assert_eq!(stamps, [7, 8, 0, 2, 2]);
                    assert_eq!(report.tail.map(|tail| tail.sequence), Some(2), "bit {bit}");
                }
                Err(MountError::Loss(Loss::Records { sequence, stranded })) => {
                    assert_eq!(sequence, number as u64, "bit {bit}");
                    assert!(stranded as usize == RECORDS - 1 - number, "bit {bit}");
                }
                Err(error) => panic!("bit {bit}: {error:?}"),
            }
            flip(&mut medium, block, bit);
        }
    }
    assert_eq!(mounted(&medium), Ok(Stamps::from(WHOLE)));
}

/// A record that is intact, of this generation and mount, and next in number, but follows another one.
#[test]
fn a_record_of_another_chain_is_not_replayed() {
    let mut medium = timeline(2, RECORDS, 7);
    let other = timeline(2, RECORDS, 99);
    let records = records(&medium);
    for block in &records[1..] {
        assert!(medium[block] != other[block], "they are chained to the same record");
        medium.insert(*block, Arc::clone(&other[block]));
    }
    assert_eq!(
        refused(&medium),
        Loss::Records {
            sequence: 1,
            stranded: 1
        }
    );
    let (report, stamps) = mount(&medium, MountMode::ReadOnly).expect("it can be looked at");
    assert_eq!(report.tail.map(|tail| tail.reason), Some(TailReason::Chain));
    assert_eq!(stamps, [7, 0, 0, 2, 2]);
}

/// A node of a map that is read wrong twice, in the checkpoint that makes a discard: what was discarded does not come back with the node.
#[test]
fn what_was_discarded_does_not_come_back_with_a_node_that_was_misread() {
    let medium = sample(0);
    let mut met = 0;
    for &block in medium.keys() {
        let mut world = world(&medium);
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        world.disk.set_misread(block, 2, 5);
        store.discard_pages(BASE, 8, 12, &[]).expect("room");
        store
            .checkpoint_begin(&mut world, Vec::new(), CheckpointKind::Generation)
            .expect("idle");
        let mut damaged = false;
        loop {
            match store.poll(&mut world) {
                Some(Event::CheckpointDone { .. }) => break,
                Some(Event::Damaged { .. }) => damaged = true,
                Some(other) => panic!("{other:?}"),
                None => assert!(world.step(), "it ends"),
            }
        }
        met += u32::from(damaged);
        let disk = world
            .disk
            .crash(&vec![Fate::Lost; world.disk.volatile_len()], Rng::new(3));
        let mut later = SimWorld::new(disk, 300, Rng::new(4));
        let (mut store, _) = Store::mount(&mut later, MountMode::ReadOnly).expect("mount");
        let found = match store.read_page(&mut later, BASE, 10) {
            ReadStart::Zero(_) => None,
            _ => loop {
                match store.poll(&mut later) {
                    Some(Event::PageRead { frame, .. }) => break Some(later.bytes(frame)[0]),
                    Some(Event::PageBad { .. }) => break None,
                    Some(other) => panic!("{other:?}"),
                    None => assert!(later.step(), "it ends"),
                }
            },
        };
        // A page that was never written reads as zeroes, once its node is there.
        assert_eq!(found.unwrap_or(0), 0, "block {block}");
    }
    assert!(met >= 2, "both nodes on the way: {met}");
}
