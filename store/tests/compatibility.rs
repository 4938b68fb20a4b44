//! Old images keep opening.
//!
//! `golden/` holds one image for each version of the format, as text: a line `block N` and the lines of
//! that block that are not zero. Each was left by a power cut, so it also holds a journal. A change of the
//! format that does not open them, or shows anything else, is an error. `GOND_GOLDEN=write`
//! writes the image of the current version, for use when a new version begins.

mod plain;

use plain::PlainWorld;
use std::fmt::Write;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord, Operation,
    PageFlags, PageLookup, Pages, PdxList, PdxRecord, QueueFull, Random, ReadStart, Request, Store,
};

const BLOCKS: u64 = 400;
const LINE: usize = 32;
const CURRENT: u32 = 2;

const SMALL: u64 = 1 << 32;
const SPARSE: u64 = (1 << 32) + (2 << 20);
const CROWDED: u64 = (1 << 32) + (8 << 20);
const DELETED: u64 = (1 << 32) + (10 << 20);
const LATE: u64 = (1 << 32) + (12 << 20);

fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        birth: 0,
        flags: 1,
        account: 2,
        created_ns: 3,
        modified_ns: 4,
        pager: 5,
        tag: base >> 21,
        capabilities: vec![(0x1234, 15), (0x5678, 4)],
        pdx: PdxList::default(),
    }
}

fn crowded() -> ObjectRecord {
    let entries: Vec<u64> = (0..192).map(|at| CROWDED + 16 * at).collect();
    let mut pdx = PdxList::default();
    let one = PdxRecord {
        password: 77,
        clist: SMALL,
        entries: &entries,
        ..PdxRecord::default()
    };
    pdx.add(one).expect("memory");
    ObjectRecord {
        capabilities: (0..128).map(|at| (at, 5)).collect(),
        pdx,
        ..record(CROWDED, 2)
    }
}

fn page(world: &mut PlainWorld, base: u64, page: u64, stamp: u8) -> DirtyPage {
    let frame = world.alloc().expect("memory");
    world.bytes_mut(frame).fill(0);
    world.bytes_mut(frame)[..8].fill(stamp);
    DirtyPage {
        base,
        page,
        frame,
        flags: PageFlags::READ | PageFlags::WRITE,
    }
}

fn finish(store: &mut Store, world: &mut PlainWorld) {
    while let Some(event) = store.poll(world) {
        match event {
            Event::PageWritten { frame, .. } => world.free(frame),
            Event::CheckpointDone { .. } | Event::SyncDone(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The life that the golden image has behind it.
fn live(world: &mut PlainWorld) {
    let options = FormatOptions {
        first_slot: 100,
        journal_blocks: Some(8),
        ..FormatOptions::default()
    };
    Store::format(world, &options).expect("format");
    let (mut store, _) = Store::mount(world, MountMode::ReadWrite).expect("mount");
    for record in [record(SMALL, 1), record(SPARSE, 1000), crowded(), record(DELETED, 1)] {
        store.put_object(record).expect("put");
    }
    store.raise_high_water(120);
    store.set_page_flags(SPARSE, 9, PageFlags::EXECUTE).expect("limits");
    let pages = [
        (SMALL, 0, 1),
        (SPARSE, 0, 2),
        (SPARSE, 999, 3),
        (CROWDED, 1, 4),
        (DELETED, 0, 5),
    ];
    let pages = pages.map(|(base, at, stamp)| page(world, base, at, stamp)).to_vec();
    store
        .checkpoint_begin(world, pages, CheckpointKind::Generation)
        .expect("idle");
    finish(&mut store, world);
    // From here on all is in the journal.
    store.put_object(record(LATE, 3)).expect("put");
    let late = page(world, LATE, 2, 6);
    store.sync_begin(world, vec![late], &[]).expect("heap");
    finish(&mut store, world);
    store.delete_object(DELETED).expect("delete");
    store.discard_pages(SPARSE, 0, 1, &[]).expect("discard");
    let again = page(world, SMALL, 0, 7);
    store.sync_begin(world, vec![again], &[DELETED, SPARSE]).expect("heap");
    finish(&mut store, world);
}

fn to_text(world: &PlainWorld) -> String {
    let mut text = String::new();
    for (block, bytes) in world.disk.iter().filter(|(_, bytes)| **bytes != [0; BLOCK]) {
        writeln!(text, "block {block}").expect("a string");
        for (at, line) in bytes
            .chunks(LINE)
            .enumerate()
            .filter(|(_, line)| line.iter().any(|&byte| byte != 0))
        {
            write!(text, "{:03x} ", at * LINE).expect("a string");
            for byte in line {
                write!(text, "{byte:02x}").expect("a string");
            }
            text.push('\n');
        }
    }
    text
}

fn from_text(text: &str) -> PlainWorld {
    let mut world = PlainWorld::new(BLOCKS);
    let mut block = 0;
    for line in text.lines() {
        let (first, second) = line.split_once(' ').expect("two words");
        if first == "block" {
            block = second.parse().expect("a number");
            continue;
        }
        let at = usize::from_str_radix(first, 16).expect("an offset");
        let bytes = world.disk.entry(block).or_insert([0; BLOCK]);
        for (place, hex) in bytes[at..at + LINE].iter_mut().zip(second.as_bytes().chunks(2)) {
            *place = u8::from_str_radix(core::str::from_utf8(hex).expect("text"), 16).expect("hex");
        }
    }
    world
}

fn stamp(store: &mut Store, world: &mut PlainWorld, base: u64, at: u64) -> u8 {
    match store.read_page(world, base, at) {
        ReadStart::Zero(_) => 0,
        ReadStart::NoMemory => panic!("no heap"),
        ReadStart::Reading => match store.poll(world) {
            Some(Event::PageRead { frame, .. }) => {
                let bytes = *world.bytes(frame);
                world.free(frame);
                assert!(bytes[..8].iter().all(|&byte| byte == bytes[0]) && bytes[8..].iter().all(|&byte| byte == 0));
                bytes[0]
            }
            other => panic!("{other:?}"),
        },
    }
}

/// Mounts the image that was left by the power cut.
fn open(world: &mut PlainWorld, mode: MountMode) -> Store {
    let (store, report) = Store::mount(world, mode).expect("the image opens");
    assert_eq!(
        (report.generation, report.replayed, report.tail, report.clean),
        (3, 2, None, false)
    );
    assert_eq!(report.first_slot, 120 + 4096);
    store
}

/// Holds a store against the life behind it.
fn check(store: &mut Store, world: &mut PlainWorld, stored_pages: u64) {
    let records: Vec<ObjectRecord> = store.objects().cloned().collect();
    assert_eq!(
        records,
        [record(SMALL, 1), record(SPARSE, 1000), crowded(), record(LATE, 3)]
    );
    for (base, at, wanted) in [
        (SMALL, 0, 7),
        (SPARSE, 0, 0),
        (SPARSE, 1, 0),
        (SPARSE, 999, 3),
        (CROWDED, 0, 0),
        (CROWDED, 1, 4),
        (LATE, 2, 6),
    ] {
        assert_eq!(stamp(store, world, base, at), wanted, "page {at} of {base:#x}");
    }
    assert_eq!(store.page_flags(world, SPARSE, 9), PageLookup::Zero(PageFlags::EXECUTE));
    assert_eq!(
        store.page_flags(world, SMALL, 0),
        PageLookup::Stored(PageFlags::READ | PageFlags::WRITE)
    );
    let mut findings = Vec::new();
    let tally = store
        .verify(world, &mut |finding| findings.push(finding))
        .expect("memory");
    assert_eq!((findings, tally.objects, tally.pages), (Vec::new(), 4, stored_pages));
}

fn file(version: u32) -> String {
    format!("{}/tests/golden/version-{version}.txt", env!("CARGO_MANIFEST_DIR"))
}

/// The version that a superblock states.
fn version(world: &PlainWorld, block: u64) -> u32 {
    world.disk[&block]
        .as_chunks::<4>()
        .0
        .get(2)
        .copied()
        .map_or(0, u32::from_le_bytes)
}

#[test]
fn images_of_every_version_open_and_become_those_of_this_one() {
    if std::env::var("GOND_GOLDEN").is_ok_and(|what| what == "write") {
        let mut world = PlainWorld::new(BLOCKS);
        live(&mut world);
        std::fs::write(file(CURRENT), to_text(&world)).expect("the golden file can be written");
    }
    for old in 1..=CURRENT {
        let text = std::fs::read_to_string(file(old)).expect("the golden file is there");
        let mut world = from_text(&text);
        assert_eq!([0, 2].map(|block| version(&world, block)), [old; 2]);
        // Two of the pages are zero or deleted already, and go with the next checkpoint.
        let mut store = open(&mut world, MountMode::ReadOnly);
        check(&mut store, &mut world, 6);
        assert_eq!(to_text(&world), text, "a read-only mount wrote");
        let mut store = open(&mut world, MountMode::ReadWrite);
        check(&mut store, &mut world, 4);
        // Old blocks stay where they were, and are read behind further power cuts, too.
        for stamp in [8, 9] {
            let again = page(&mut world, SPARSE, 5, stamp);
            store.sync_begin(&mut world, vec![again], &[]).expect("heap");
            finish(&mut store, &mut world);
            store = Store::mount(&mut world, MountMode::ReadWrite)
                .expect("the image opens again")
                .0;
            check(&mut store, &mut world, 5);
        }
        assert_eq!([0, 2].map(|block| version(&world, block)), [CURRENT; 2]);
    }
}
