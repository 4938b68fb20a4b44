//! The laboratory sees each promise that is broken: invariants of the store that are switched off, and disks that lie.
//!
//! A judge that finds nothing proves nothing unless it finds these.

use sim::disk::Lie;
use sim::lab::{Kind, Mount, Run, Subject};
use sim::world::SimWorld;
use store::{Breaks, Invariant, MountError, MountMode, MountReport, Store};

/// Seeds that are tried before a broken promise counts as unnoticed.
const SEEDS: u64 = 2000;

fn broken<const AT: usize>(world: &mut SimWorld, mode: MountMode) -> Result<(Store, MountReport), MountError> {
    Store::mount_broken(world, mode, Breaks::without(Invariant::ALL[AT]))
}

/// The first seed of a kind that finds something.
fn caught(kind: Kind, subject: Subject) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| Run { kind, seed }.go(subject).err().map(|what| (seed, what)))
}

fn must_be_caught(what: &str, kind: Kind, subject: Subject) {
    let (seed, why) = caught(kind, subject).unwrap_or_else(|| panic!("no life of kind '{kind}' notices: {what}"));
    println!("{what}: {kind} {seed}: {}", why.chars().take(160).collect::<String>());
}

/// Every invariant is there for a reason: without it some life ends badly.
#[test]
fn every_invariant_that_is_off_is_noticed() {
    // The last one counts only where heap is refused (`heap.rs`).
    const MOUNTS: [(Kind, Mount); Invariant::ALL.len() - 1] = [
        (Kind::Cuts, broken::<0>),
        (Kind::Cuts, broken::<1>),
        (Kind::Cuts, broken::<2>),
        (Kind::Cuts, broken::<3>),
        (Kind::Cuts, broken::<4>),
        (Kind::Cuts, broken::<5>),
        (Kind::Ahead, broken::<6>),
        (Kind::Ahead, broken::<7>),
        (Kind::Ahead, broken::<8>),
        (Kind::Ahead, broken::<9>),
    ];
    assert_eq!(Invariant::ALL.last(), Some(&Invariant::BegunAnew));
    for (invariant, (kind, mount)) in Invariant::ALL.into_iter().zip(MOUNTS) {
        let subject = Subject { mount, lie: None };
        must_be_caught(&format!("{invariant:?} is off"), kind, subject);
    }
}

/// Short lives are enough for most of them.
#[test]
fn short_lives_notice_what_they_can() {
    const MOUNTS: [(Invariant, Mount); 2] = [
        (Invariant::FlushFirst, broken::<1>),
        (Invariant::DataChecksums, broken::<2>),
    ];
    for (invariant, mount) in MOUNTS {
        let subject = Subject { mount, lie: None };
        must_be_caught(&format!("{invariant:?} is off"), Kind::Short, subject);
    }
}

#[test]
fn every_lie_of_a_disk_is_noticed() {
    let lies = [
        Lie::Flush,
        Lie::Overtaken,
        Lie::Halves,
        Lie::SUPERBLOCKS,
        // The journal, of four blocks at least for each generation.
        Lie::Dropped(4, 8),
        // Data, behind the longest journal and the bitmaps.
        Lie::Dropped(60, 70),
        Lie::Misdirected(200),
        Lie::StaleReads(50),
    ];
    for lie in lies {
        let subject = Subject {
            lie: Some(lie),
            ..Subject::SOUND
        };
        must_be_caught(&format!("{lie:?}"), Kind::Cuts, subject);
    }
}
