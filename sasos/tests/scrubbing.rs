//! The scrub in the running system: it begins by itself, late and slowly, names what has rotted on the log, and has superblocks written anew.

mod common;

use std::sync::Arc;

use abi::{Call, address::PAGE, layout::CONTROL_SCRUB};
use common::{Actor, Rig};
use sasos::{Event, durability::checkpoint::PERIOD_NS, protection::apd::Apd};
use store::{MountReport, SnapshotName};

const PAGES: u64 = 120;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const WEEK: u64 = 7 * 24 * HOUR;

/// A machine with an object whose pages are on the disk; its owner, and its base.
fn rig(seed: u64) -> (Rig, Actor, u64) {
    let mut rig = Rig::new(seed, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, PAGES, 0);
    write(&mut rig, actor, base, 1);
    rig.generation().unwrap();
    rig.settle();
    (rig, actor, base)
}

fn write(rig: &mut Rig, actor: Actor, base: u64, word: u64) {
    for page in 0..PAGES {
        rig.store(actor.space, base + page * PAGE, word).unwrap();
    }
}

/// Has the disk flush all that was written, second copies of superblocks included.
fn make_stable(rig: &mut Rig, actor: Actor, base: u64) {
    rig.store(actor.space, base, 5).unwrap();
    rig.checkpoint().unwrap();
    rig.settle();
    assert_eq!(rig.world.disk.volatile_len(), 0);
}

/// So many periods, at the end of each of which the disk is at rest.
fn periods(rig: &mut Rig, count: u64) {
    rig.world.kernel.hardware.now_ns += count.saturating_sub(1) * PERIOD_NS;
    period(rig);
}

fn period(rig: &mut Rig) {
    rig.world.kernel.hardware.now_ns += PERIOD_NS;
    rig.server.handle(&mut rig.world, Event::Poll);
    rig.settle();
}

fn is_under_way(rig: &Rig) -> bool {
    rig.server.store_report().scrubbing != 0
}

/// Goes on until the pass is over; tells how many blocks it has looked at in a period at most.
fn to_the_end(rig: &mut Rig) -> u64 {
    let mut most = 0;
    for _ in 0..1000 {
        if !is_under_way(rig) {
            return most;
        }
        let before = rig.server.store_report().scrub_seen;
        period(rig);
        most = most.max(rig.server.store_report().scrub_seen - before);
    }
    panic!("the pass does not end: {:?}", rig.server.store_report());
}

fn logged(rig: &Rig, part: &str) -> usize {
    let log = &rig.world.kernel.hardware.log;
    log.iter().filter(|line| line.contains(part)).count()
}

/// Behind a crash, with what the mount has found.
fn crashed(rig: Rig) -> (Rig, MountReport) {
    let (mut rig, report) = rig.crash();
    rig.settle();
    (rig, report)
}

#[test]
fn a_pass_begins_after_an_hour_and_then_each_week() {
    let (mut rig, ..) = rig(11);
    periods(&mut rig, 1);
    let before = rig.server.store_report();
    let next = before.scrub_next_ns / PERIOD_NS;
    assert!((HOUR..HOUR + MINUTE).contains(&next), "{next}");
    // Until then nothing is read.
    for _ in 0..59 {
        periods(&mut rig, MINUTE);
        assert!(!is_under_way(&rig));
    }
    assert_eq!(rig.server.store_report().reads, before.reads);
    periods(&mut rig, MINUTE);
    assert!(is_under_way(&rig));
    let most = to_the_end(&mut rig);
    assert!((10..=17).contains(&most), "{most}");
    let report = rig.server.store_report();
    assert!(report.scrub_seen >= PAGES && report.scrubs == 1, "{report:?}");
    assert_eq!(
        (report.scrub_damaged, report.generation),
        (0, before.generation),
        "it changes nothing"
    );
    // The next one is due a week behind the beginning of this one.
    assert!(report.scrub_next_ns / PERIOD_NS >= WEEK + HOUR - MINUTE);
    let now = rig.world.kernel.hardware.now_ns;
    periods(&mut rig, (report.scrub_next_ns - now) / PERIOD_NS - 1);
    assert!(!is_under_way(&rig));
    periods(&mut rig, 2);
    assert!(is_under_way(&rig));
    rig.check();
}

#[test]
fn behind_a_power_cut_a_pass_begins_after_a_minute_and_not_before() {
    let (mut rig, actor, base) = rig(12);
    write(&mut rig, actor, base, 2);
    rig.checkpoint().unwrap();
    let (mut rig, report) = crashed(rig);
    assert!(!report.clean);
    periods(&mut rig, 1);
    let reads = rig.server.store_report().reads;
    for _ in 0..59 {
        periods(&mut rig, 1);
        assert!(!is_under_way(&rig));
    }
    assert_eq!(rig.server.store_report().reads, reads);
    periods(&mut rig, 2);
    assert!(is_under_way(&rig));
    to_the_end(&mut rig);
    assert_eq!(rig.server.store_report().scrubs, 1);
    rig.check();
}

/// Somebody who asks gets all of it, and fast.
#[test]
fn a_pass_that_is_asked_for_begins_at_the_front() {
    let (mut rig, ..) = rig(13);
    let (first, _) = rig.first_task();
    periods(&mut rig, 1);
    periods(&mut rig, HOUR);
    periods(&mut rig, 1);
    assert!(is_under_way(&rig));
    for _ in 0..3 {
        period(&mut rig);
    }
    let before = rig.server.store_report();
    assert!(before.scrub_seen > 40, "{before:?}");
    // Without the right on the system nothing changes.
    assert!(rig.call(first, Call::SystemControl, &[CONTROL_SCRUB, 1]).is_err());
    assert_eq!(rig.server.store_report().scrub_seen, before.scrub_seen);
    rig.server.ask_for_scrub(&mut rig.world);
    assert_eq!(rig.server.store_report().scrub_seen, 0);
    period(&mut rig);
    let seen = rig.server.store_report().scrub_seen;
    assert!(seen > 60, "{seen}");
    // To ask again is to ask for the same.
    let is_over = !is_under_way(&rig);
    rig.server.ask_for_scrub(&mut rig.world);
    assert!(is_over || rig.server.store_report().scrub_seen == seen);
    to_the_end(&mut rig);
    rig.check();
}

#[test]
fn a_rotten_copy_of_a_superblock_is_named_once_and_written_anew() {
    for block in 0..4 {
        let (mut rig, actor, base) = rig(20 + block);
        make_stable(&mut rig, actor, base);
        let copy = rig.world.disk.medium_mut().get_mut(&block).expect("written");
        Arc::make_mut(copy)[99] ^= 8;
        rig.server.ask_for_scrub(&mut rig.world);
        let before = rig.server.store_report().generation;
        period(&mut rig);
        to_the_end(&mut rig);
        for _ in 0..20 {
            period(&mut rig);
        }
        let report = rig.server.store_report();
        assert_eq!(report.scrub_damaged, 1);
        let line = format!("the disk is damaged: Superblock in block {block}");
        assert_eq!(logged(&rig, &line), 1, "{:?}", rig.world.kernel.hardware.log);
        let made = report.generation - before;
        assert!((1..=2).contains(&made), "{made} generations");
        rig.server.ask_for_scrub(&mut rig.world);
        period(&mut rig);
        to_the_end(&mut rig);
        let after = rig.server.store_report();
        assert_eq!((after.scrub_damaged, after.generation), (0, report.generation));
        let (rig, report) = crashed(rig);
        assert_eq!(report.bad_superblocks, [] as [u64; 0]);
        drop(rig);
    }
}

#[test]
fn what_is_rotten_in_a_snapshot_is_named_with_it() {
    let (mut rig, actor, base) = rig(31);
    let name = SnapshotName::new("monday").expect("a name");
    rig.server.store.keep_snapshot(name, 1).unwrap();
    rig.checkpoint().unwrap();
    write(&mut rig, actor, base, 0x1234_5678_9abc);
    rig.generation().unwrap();
    make_stable(&mut rig, actor, base);
    let mut before = [0; 8];
    before[0] = 1;
    let medium = rig.world.disk.medium_mut();
    let old = medium.values_mut().filter(|bytes| bytes.starts_with(&before));
    let old = { old }.next().expect("a page of the snapshot");
    Arc::make_mut(old)[100] ^= 1;
    rig.server.ask_for_scrub(&mut rig.world);
    period(&mut rig);
    to_the_end(&mut rig);
    let report = rig.server.store_report();
    let log = &rig.world.kernel.hardware.log;
    assert_eq!(report.scrub_damaged, 1, "{log:?}");
    let line = log.iter().find(|line| line.contains("is damaged")).expect("a line");
    assert!(line.contains("Page in block"), "{line}");
    assert!(
        line.contains(&format!("of object {base:#x} of snapshot 'monday'")),
        "{line}"
    );
    rig.check();
}
