//! The scrub of superblocks: a copy that has rotted is named, and written anew from the state that its twin stands for; a power cut meanwhile loses nothing.

#[allow(dead_code, reason = "others keep what they look at")]
mod kept;
mod plain;

use kept::{Medium, on, record};
use plain::PlainWorld;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, Operation, PageFlags,
    Pages, QueueFull, Random, Request, Store, Structure,
};

const BLOCKS: u64 = 400;
const BASE: u64 = 1 << 32;

fn formatted() -> (PlainWorld, Store) {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store.put_object(record(BASE, 4)).expect("room");
    let dirty = vec![world.dirty(BASE, 1, 7)];
    assert_eq!(checkpoint(&mut store, &mut world, dirty), Ok(vec![]));
    (world, store)
}

/// The superblocks among what is named, or that the checkpoint has failed.
fn finish(store: &mut Store, world: &mut PlainWorld) -> Result<Vec<u64>, ()> {
    let (mut named, mut failed) = (Vec::new(), false);
    loop {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::Damaged { structure, block, .. }) => {
                assert_eq!(structure, Structure::Superblock);
                named.push(block);
            }
            Some(Event::CheckpointFailed { .. }) => failed = true,
            None if store.is_idle() => break,
            Some(_) | None => {}
        }
    }
    while store.page_over().is_some() {}
    if failed { Err(()) } else { Ok(named) }
}

fn checkpoint(store: &mut Store, world: &mut PlainWorld, dirty: Vec<DirtyPage>) -> Result<Vec<u64>, ()> {
    store
        .checkpoint_begin(world, dirty, CheckpointKind::Generation)
        .map_err(drop)?;
    finish(store, world)
}

fn pass(store: &mut Store, world: &mut PlainWorld) -> Vec<u64> {
    let passes = store.scrub_report().passes;
    store.scrub_begin();
    let mut named = Vec::new();
    while store.scrub_report().passes == passes {
        store.scrub_some(2);
        named.extend(finish(store, world).expect("there is no checkpoint"));
    }
    named
}

/// The copies that a mount finds unreadable; the page is as it was.
fn bad_copies(medium: &Medium) -> Vec<u64> {
    let mut world = on(medium, BLOCKS);
    let (mut store, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("mount");
    let _ = store.read_page(&mut world, BASE, 1);
    let read = std::iter::from_fn(|| store.poll(&mut world)).next();
    let Some(Event::PageRead { frame, .. }) = read else {
        panic!("{read:?}")
    };
    assert_eq!(world.bytes(frame)[9], 7);
    report.bad_superblocks
}

#[test]
fn a_copy_that_rots_is_named_once_and_written_anew() {
    for generations in 0..2 {
        for block in 0..4 {
            let (mut world, mut store) = formatted();
            for _ in 0..generations {
                assert_eq!(checkpoint(&mut store, &mut world, Vec::new()), Ok(vec![]));
            }
            assert_eq!(pass(&mut store, &mut world), []);
            assert!(!store.wants_generation());
            world.disk.get_mut(&block).expect("written")[300] ^= 4;
            assert_eq!(bad_copies(&world.disk), [block]);
            assert_eq!(pass(&mut store, &mut world), [block]);
            // It is not told again, nor forgotten.
            assert_eq!(pass(&mut store, &mut world), []);
            let mut made = 0;
            while store.wants_generation() {
                let twin = block ^ 1;
                let begun = world.log.len();
                assert_eq!(checkpoint(&mut store, &mut world, Vec::new()), Ok(vec![]));
                let written = |wanted: u64| {
                    let mut log = world.log[begun..].iter();
                    log.position(|&(kind, at)| kind == Operation::Write && at == wanted)
                };
                assert!(
                    written(twin).is_none() || written(block) < written(twin),
                    "the good one stands"
                );
                made += 1;
            }
            let is_current = block / 2 == (store.stats().generation - made) % 2;
            assert_eq!(made, if is_current { 2 } else { 1 });
            assert_eq!(bad_copies(&world.disk), []);
            assert_eq!(pass(&mut store, &mut world), []);
            assert_eq!((store.stats().damaged, store.scrub_report().damaged), (1, 0));
        }
    }
}

/// From some request on nothing is done any more.
#[test]
fn a_power_cut_while_a_copy_is_written_anew_loses_nothing() {
    let (mut cuts, mut whole) = (0, 0);
    for block in 0..4 {
        for cut in 0..24 {
            let (mut world, mut store) = formatted();
            world.disk.get_mut(&block).expect("written")[300] ^= 4;
            assert_eq!(pass(&mut store, &mut world), [block]);
            world.failing_numbers = world.log.len() + cut..usize::MAX;
            let mut goes_on = true;
            while store.wants_generation() && goes_on {
                goes_on = checkpoint(&mut store, &mut world, Vec::new()).is_ok();
            }
            let bad = bad_copies(&world.disk);
            assert!(bad.is_empty() || bad == [block], "{bad:?}");
            let mut again = on(&world.disk, BLOCKS);
            let (mut store, _) = Store::mount(&mut again, MountMode::ReadWrite).expect("it is all there");
            // What the mount has found is not told a second time.
            assert_eq!(pass(&mut store, &mut again), []);
            while store.wants_generation() {
                assert_eq!(checkpoint(&mut store, &mut again, Vec::new()), Ok(vec![]));
            }
            assert_eq!(bad_copies(&again.disk), []);
            cuts += u64::from(!goes_on);
            whole += u64::from(goes_on);
        }
    }
    assert!(cuts >= 30 && whole > 20, "{cuts}, {whole}");
}

/// Checkpoints write superblocks while a pass looks at them.
#[test]
fn a_copy_that_is_being_written_is_not_blamed() {
    let (mut world, mut store) = formatted();
    for round in 0..300_u64 {
        store.scrub_begin();
        world.held = 0..4;
        store.scrub_some(1 + round % 3);
        while store.poll(&mut world).is_some() {}
        let page = world.dirty(BASE, round % 4, 1);
        let kind = if round % 5 == 0 {
            CheckpointKind::Periodic
        } else {
            CheckpointKind::Generation
        };
        store.checkpoint_begin(&mut world, vec![page], kind).expect("idle");
        while store.poll(&mut world).is_some() {}
        world.held = 0..0;
        assert_eq!(finish(&mut store, &mut world), Ok(vec![]), "{round}");
        assert!(!store.wants_generation());
    }
    assert!(store.scrub_report().passes > 3, "{:?}", store.scrub_report());
}

/// A disk on which there is one generation alone.
#[test]
fn blank_copies_of_a_new_store_are_as_they_should_be() {
    let mut world = PlainWorld::new(BLOCKS);
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        let (mut store, _) = Store::mount(&mut world, mode).expect("mount");
        assert_eq!(pass(&mut store, &mut world), []);
        assert!(!store.wants_generation());
    }
}

/// The second copy of a superblock cannot be written: that was no rot, and is made good without a word.
#[test]
fn a_copy_that_could_not_be_written_is_not_named() {
    let (mut world, mut store) = formatted();
    let second = 2 * ((store.stats().generation + 1) % 2) + 1;
    world.failing = Some((Operation::Write, second..second + 1));
    assert_eq!(checkpoint(&mut store, &mut world, Vec::new()), Ok(vec![]));
    world.failing = None;
    assert_eq!(pass(&mut store, &mut world), []);
    assert!(store.wants_generation());
    while store.wants_generation() {
        assert_eq!(checkpoint(&mut store, &mut world, Vec::new()), Ok(vec![]));
    }
    assert_eq!(bad_copies(&world.disk), []);
    assert_eq!(pass(&mut store, &mut world), []);
}
