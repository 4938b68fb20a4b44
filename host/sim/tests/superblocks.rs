//! A generation that was acknowledged stands in one copy of its superblock alone, behind a power cut, and a start cannot read that copy:
//! nothing is undone, and nothing of the older generation comes back over the younger one.

use sim::disk::{CrashDisk, Fate};
use sim::rng::Rng;
use sim::world::{SimWorld, dirty};
use store::{
    CheckpointKind, Event, Failure, FormatOptions, Loss, MountError, MountMode, MountReport, ObjectRecord, Pages,
    ReadStart, Store,
};

const BLOCKS: u64 = 700;
const BASE: u64 = 1 << 32;
/// Checkpoints before the power cut: each writes its number into the page.
const CHECKPOINTS: [u8; 4] = [4, 5, 6, 7];

fn world(disk: CrashDisk) -> SimWorld {
    SimWorld::new(disk, 1000, Rng::new(6))
}

/// The disk behind a power cut that took all that was not stable, and the block that has the newest generation.
fn sample(checkpoints: u8) -> (CrashDisk, u64) {
    let mut world = world(CrashDisk::new(BLOCKS, Rng::new(5)));
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    let object = ObjectRecord {
        base: BASE,
        pages: 10,
        ..ObjectRecord::default()
    };
    store.put_object(object).expect("room");
    for stamp in 1..=checkpoints {
        store.reserve(BASE, 0).expect("room");
        let page = dirty(&mut world, BASE, 0, stamp);
        store
            .checkpoint_begin(&mut world, vec![page], CheckpointKind::Generation)
            .expect("idle");
        loop {
            match store.poll(&mut world) {
                Some(Event::PageWritten { frame, .. }) => world.free(frame),
                Some(Event::CheckpointDone { .. }) => break,
                Some(other) => panic!("{other:?}"),
                None => assert!(world.step(), "it ends"),
            }
        }
        while store.page_over().is_some() {}
    }
    let lost = vec![Fate::Lost; world.disk.volatile_len()];
    assert!(!lost.is_empty(), "the second copy is not stable");
    let first = store.stats().generation % 2 * 2;
    (world.disk.crash(&lost, Rng::new(9)), first)
}

fn again(disk: &CrashDisk) -> CrashDisk {
    disk.crash(&[], Rng::new(9))
}

/// The page's contents on a disk that works, where a mount is not refused.
fn value(disk: CrashDisk, mode: MountMode) -> Result<(u8, MountReport), MountError> {
    let mut world = world(disk);
    let (mut store, report) = Store::mount(&mut world, mode)?;
    assert_eq!(store.read_page(&mut world, BASE, 0), ReadStart::Reading);
    loop {
        match store.poll(&mut world) {
            Some(Event::PageRead { frame, .. }) => return Ok((world.bytes(frame)[0], report)),
            Some(other) => panic!("{other:?}"),
            None => assert!(world.step(), "it ends"),
        }
    }
}

#[test]
fn a_start_that_cannot_read_the_only_copy_undoes_nothing() {
    for checkpoints in CHECKPOINTS {
        let (disk, first) = sample(checkpoints);
        for reads in [1, u32::MAX] {
            let mut failing = again(&disk);
            failing.set_unreadable(first, reads);
            let mut world = world(failing);
            let refused = Store::mount(&mut world, MountMode::ReadWrite).map(|(_, report)| report);
            assert_eq!((refused, world.disk.written), (Err(MountError::Disk), 0));
            let works = world.disk.crash(&[], Rng::new(9));
            assert_eq!(value(works, MountMode::ReadWrite).expect("mount").0, checkpoints);

            let mut failing = again(&disk);
            failing.set_unreadable(first, reads);
            let (found, report) = value(failing, MountMode::ReadOnly).expect("it can be looked at");
            let newer = report.generation + 1;
            let loss = Loss::Generation {
                found: report.generation,
                newer,
                records: 0,
            };
            assert_eq!((found, &report.losses[..]), (checkpoints - 1, &[loss][..]));
        }
    }
}

/// The other copy of the generation that counts: nothing newer can be there.
#[test]
fn the_second_copy_of_the_newest_generation_need_not_be_readable() {
    for checkpoints in CHECKPOINTS {
        let (mut disk, first) = sample(checkpoints);
        disk.set_unreadable(first + 1, 1);
        let (found, report) = value(disk, MountMode::ReadWrite).expect("mount");
        assert_eq!((found, report.losses), (checkpoints, Vec::new()));
    }
}

/// Once a person has given it up, the power may fail at each step: what is there is the one state or the other, and the one that was given up
/// does not come back once a start has gone on without it.
#[test]
fn a_generation_that_was_given_up_does_not_come_back() {
    for checkpoints in CHECKPOINTS {
        let (disk, first) = sample(checkpoints);
        let mut gone = false;
        for cut in 0.. {
            let mut failing = again(&disk);
            failing.set_unreadable(first, u32::MAX);
            failing.set_fuse(cut);
            let mut world = world(failing);
            let (_, report) = Store::mount(&mut world, MountMode::AcceptLoss).expect("accepted");
            assert_eq!(report.losses.len(), 1);
            let Some(blown) = world.disk.take_blown() else { break };
            let fates = vec![Fate::Whole; blown.volatile_len()];
            let (found, _) = value(blown.crash(&fates, Rng::new(5)), MountMode::ReadOnly)
                .unwrap_or_else(|error| panic!("{checkpoints} checkpoints, power cut at step {cut}: {error:?}"));
            assert!(
                found == checkpoints && !gone || found == checkpoints - 1,
                "step {cut}: {found}"
            );
            gone = found < checkpoints;
        }
        assert!(gone);
    }
}

/// Each request of the start that gives it up fails in turn, done or not, and the power fails then.
#[test]
fn a_start_that_gives_it_up_bears_a_failing_disk() {
    for checkpoints in CHECKPOINTS {
        let (disk, first) = sample(checkpoints);
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            let mut failing = disk.crash(&[], rng.fork());
            failing.set_unreadable(first, 1);
            failing.set_failing(8 + rng.below(30));
            failing.set_fuse(rng.below(80));
            let mut world = world(failing);
            match Store::mount(&mut world, MountMode::AcceptLoss) {
                Ok(_) | Err(MountError::Disk | MountError::Recovery(Failure::Disk)) => {}
                Err(error) => panic!("seed {seed}: {error:?}"),
            }
            let cut = world.disk.take_blown();
            let cut = cut.as_deref().unwrap_or(&world.disk);
            let after = cut.crash(&cut.draw_fates(&mut rng), rng.fork());
            let (found, _) = value(again(&after), MountMode::ReadOnly)
                .unwrap_or_else(|error| panic!("{checkpoints} checkpoints, seed {seed}: {error:?}"));
            // The copies of one more generation may have failed while it was given up.
            assert!(found + 2 >= checkpoints, "seed {seed}: {found} of {checkpoints}");
            match value(after, MountMode::ReadWrite) {
                Ok((later, _)) => assert_eq!(later, found, "seed {seed}"),
                Err(MountError::Loss(_)) => assert!(found < checkpoints, "seed {seed}"),
                Err(error) => panic!("seed {seed}: {error:?}"),
            }
        }
    }
}
