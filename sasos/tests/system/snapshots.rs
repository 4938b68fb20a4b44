//! Snapshots by calls: kept, listed and dropped while the system runs.

use abi::{
    Call, Error,
    address::PAGE,
    host::EXIT_SUCCESS,
    layout::{
        CONTROL_CHECKPOINT, CONTROL_DROP_SNAPSHOT, CONTROL_KEEP_SNAPSHOT, SnapshotReport, StoreReport, TOPIC_SNAPSHOT,
        TOPIC_STORE, snapshot_words,
    },
};
use kcore::Machine;
use kcore::{ThreadId, space::Tags};
use sasos::durability::checkpoint::PERIOD_NS;
use sim::{machine::Platform, rng::Rng, seeds};
use store::{Event, Pages, ReadStart, SNAPSHOTS_MAX, SnapshotName, Store};

use crate::harness::{Answer, System};

fn arguments(operation: u64, name: &str) -> [u64; 5] {
    let [first, second, third, fourth] = snapshot_words(name).expect("a short name");
    [operation, first, second, third, fourth]
}

fn keep(system: &mut System, thread: ThreadId, name: &str) -> Result<(u64, u64), Error> {
    system.call(thread, Call::SystemControl, &arguments(CONTROL_KEEP_SNAPSHOT, name))
}

fn drops(system: &mut System, thread: ThreadId, name: &str) -> Result<(u64, u64), Error> {
    system.call(thread, Call::SystemControl, &arguments(CONTROL_DROP_SNAPSHOT, name))
}

fn names(system: &System) -> Vec<String> {
    let store = &system.server.store;
    store.snapshots().map(|snapshot| snapshot.name.to_string()).collect()
}

fn generation(system: &System) -> u64 {
    system.server.store.stats().generation
}

/// A kept object of so many pages, each with that value.
fn object(system: &mut System, pages: u64, value: u64) -> u64 {
    let first = system.first;
    let (base, _) = system.object(first, pages);
    system.call(first, Call::KeepObject, &[base]).unwrap();
    write(system, base, pages, value);
    base
}

fn write(system: &mut System, base: u64, pages: u64, value: u64) {
    let first = system.first;
    for page in 0..pages {
        system.set_word(first, base + page * PAGE, value).unwrap();
    }
}

/// The word of a page of an object in a snapshot of the disk, as it is now.
fn word_in(system: &System, name: &str, base: u64) -> Option<u64> {
    let mut disk = Platform::new(
        4096,
        Tags::Absent,
        system.platform.disk.crash(&[], Rng::new(3)),
        Rng::new(4),
    );
    let name = SnapshotName::new(name).unwrap();
    let (mut store, _) = Store::mount_snapshot(&mut disk, &name).expect("it can be mounted")?;
    let frame = store
        .object(base)
        .is_some()
        .then(|| read_first(&mut store, &mut disk, base));
    store.dismantle(&mut disk);
    frame
}

fn read_first(store: &mut Store, disk: &mut Platform, base: u64) -> u64 {
    match store.read_page(disk, base, 0) {
        ReadStart::Zero(_) => return 0,
        ReadStart::Reading => {}
        ReadStart::NoMemory => panic!("there is no memory"),
    }
    loop {
        disk.step_disk();
        if let Some(Event::PageRead { frame, .. }) = store.poll(disk) {
            let word = u64::from_le_bytes(disk.bytes(frame)[..8].try_into().unwrap());
            disk.free(frame);
            return word;
        }
    }
}

#[test]
fn a_snapshot_is_durable_when_the_call_returns_and_gone_behind_a_drop() {
    let mut system = System::boot(301);
    let first = system.first;
    let base = object(&mut system, 20, 7);
    let before = generation(&system);
    assert_eq!(keep(&mut system, first, "one"), Ok((0, 0)));
    assert!(generation(&system) > before, "it is a generation");
    write(&mut system, base, 20, 8);
    assert_eq!(keep(&mut system, first, "two.of-31_bytes.0123456789abcde"), Ok((0, 0)));
    write(&mut system, base, 20, 9);
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    for (name, value) in [("one", 7), ("two.of-31_bytes.0123456789abcde", 8)] {
        assert_eq!(word_in(&system, name, base), Some(value), "{name}");
    }
    assert_eq!(drops(&mut system, first, "one"), Ok((0, 0)));
    assert_eq!(word_in(&system, "one", base), None);
    // The power fails at once.
    let disk = system.platform.disk.crash(&[], Rng::new(1));
    let system = System::mount(disk, 4096, Rng::new(2));
    assert_eq!(names(&system), ["two.of-31_bytes.0123456789abcde"]);
    system.check_to_the_end();
}

#[test]
fn they_are_listed_for_those_who_may_govern_the_system() {
    let mut system = System::boot(302);
    let first = system.first;
    let (buffer, _) = system.object(first, 1);
    object(&mut system, 3, 1);
    let objects = system.server.store.stats().objects;
    for name in ["one", "two", "three"] {
        keep(&mut system, first, name).unwrap();
    }
    drops(&mut system, first, "two").unwrap();
    let (mut next, mut seen) = (0, Vec::new());
    while let Ok((bytes, _)) = system.call(first, Call::SystemInfo, &[TOPIC_SNAPSHOT, next, buffer, PAGE]) {
        assert_eq!(bytes, SnapshotReport::BYTES as u64);
        let report = SnapshotReport::from_words(system.words(first, buffer));
        assert!(
            report.generation >= next && report.objects == objects && report.blocks > 0,
            "{report:?}"
        );
        assert!(report.time_ns > 0 && report.damaged == 0, "{report:?}");
        next = report.generation + 1;
        seen.push([report.name, report.name2, report.name3, report.name4]);
    }
    assert_eq!(seen, [snapshot_words("one").unwrap(), snapshot_words("three").unwrap()]);
    system
        .call(first, Call::SystemInfo, &[TOPIC_STORE, 0, buffer, PAGE])
        .unwrap();
    assert_eq!(StoreReport::from_words(system.words(first, buffer)).snapshots, 2);
    // Others see none, and make and drop none.
    let (empty, _) = system.object(first, 1);
    let lonely = system.task_with(first, empty, 0);
    let (theirs, _) = system.object(lonely, 1);
    assert_eq!(
        system.call(lonely, Call::SystemInfo, &[TOPIC_SNAPSHOT, 0, theirs, PAGE]),
        Err(Error::BadAddress)
    );
    assert_eq!(keep(&mut system, lonely, "four"), Err(Error::Protection));
    assert_eq!(drops(&mut system, lonely, "one"), Err(Error::Protection));
    assert_eq!(names(&system), ["one", "three"]);
    system.check_to_the_end();
}

#[test]
fn what_cannot_be_done_is_told_and_changes_nothing() {
    let mut system = System::boot(303);
    let first = system.first;
    keep(&mut system, first, "one").unwrap();
    system.quiesce();
    let before = generation(&system);
    for name in [
        "",
        "-a",
        "a b",
        ".",
        "a/b",
        "ä",
        "a\0b",
        "\0",
        "0123456789012345678901234567890\n",
    ] {
        let mut given = [CONTROL_KEEP_SNAPSHOT, 0, 0, 0, 0];
        for (place, byte) in name.bytes().enumerate() {
            given[1 + place / 8] |= u64::from(byte) << (place % 8 * 8);
        }
        for operation in [CONTROL_KEEP_SNAPSHOT, CONTROL_DROP_SNAPSHOT] {
            given[0] = operation;
            let answer = system.call(first, Call::SystemControl, &given);
            assert_eq!(answer, Err(Error::BadArgument), "{name:?}");
        }
    }
    // 32 bytes are too many.
    let long = [u64::from_le_bytes(*b"aaaaaaaa"); 4];
    let given = [CONTROL_KEEP_SNAPSHOT, long[0], long[1], long[2], long[3]];
    assert_eq!(system.call(first, Call::SystemControl, &given), Err(Error::BadArgument));
    assert_eq!(keep(&mut system, first, "one"), Err(Error::InUse));
    assert_eq!(drops(&mut system, first, "two"), Err(Error::BadAddress));
    system.quiesce();
    assert_eq!(generation(&system), before, "what is refused makes no checkpoint");
    for number in 1..SNAPSHOTS_MAX {
        keep(&mut system, first, &format!("s{number}")).unwrap();
    }
    assert_eq!(keep(&mut system, first, "more"), Err(Error::TableFull));
    drops(&mut system, first, "s9").unwrap();
    keep(&mut system, first, "more").unwrap();
    assert_eq!(names(&system).len(), SNAPSHOTS_MAX);
    system.check_to_the_end();
}

#[test]
fn a_full_disk_keeps_none_and_drops_one() {
    let mut system = System::boot_with(304, 4096, 900);
    let first = system.first;
    object(&mut system, 100, 1);
    keep(&mut system, first, "one").unwrap();
    let mut fillers = Vec::new();
    loop {
        let (filler, _) = system.object(first, 8);
        for page in 0..8 {
            system.set_word(first, filler + page * PAGE, 1).unwrap();
        }
        match system.call(first, Call::KeepObject, &[filler]) {
            Ok(_) => fillers.push(filler),
            Err(error) => {
                assert_eq!(error, Error::DiskFull);
                break;
            }
        }
    }
    let mut kept = 0;
    let refused = loop {
        match keep(&mut system, first, &format!("full{kept}")) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 30, "it does not become full");
    };
    assert_eq!(refused, Error::DiskFull);
    assert_eq!(names(&system).len(), 1 + kept);
    drops(&mut system, first, "one").unwrap();
    for number in 0..kept {
        drops(&mut system, first, &format!("full{number}")).unwrap();
    }
    assert_eq!(names(&system).len(), 0);
    system.check_to_the_end();
}

#[test]
fn a_failing_disk_is_told_and_the_next_request_is_done() {
    let mut system = System::boot(305);
    let first = system.first;
    keep(&mut system, first, "one").unwrap();
    object(&mut system, 30, 5);
    system.platform.disk.set_failing(1);
    assert_eq!(keep(&mut system, first, "two"), Err(Error::DiskError));
    assert_eq!(drops(&mut system, first, "one"), Err(Error::DiskError));
    assert_eq!(names(&system), ["one"]);
    system.platform.disk.set_failing(0);
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    assert_eq!(names(&system), ["one"], "nobody waits for it any more");
    keep(&mut system, first, "two").unwrap();
    drops(&mut system, first, "one").unwrap();
    assert_eq!(names(&system), ["two"]);
    system.check_to_the_end();
}

/// The heap is so short that the checkpoint fails before it begins: none that comes later does what was asked of it.
#[test]
fn what_a_checkpoint_that_never_began_was_to_do_is_forgotten() {
    let mut system = System::boot(309);
    let first = system.first;
    keep(&mut system, first, "one").unwrap();
    object(&mut system, 3, 5);
    let heap = core::mem::replace(&mut system.platform.kernel.hardware.heap_left, 1000);
    assert_eq!(keep(&mut system, first, "two"), Err(Error::NoMemory));
    assert_eq!(drops(&mut system, first, "one"), Err(Error::NoMemory));
    system.platform.kernel.hardware.heap_left = heap;
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    assert_eq!(names(&system), ["one"]);
    drops(&mut system, first, "one").unwrap();
    keep(&mut system, first, "two").unwrap();
    assert_eq!(names(&system), ["two"]);
    system.check_to_the_end();
}

#[test]
fn the_second_of_two_waits_for_the_first() {
    let mut system = System::boot(306);
    let first = system.first;
    object(&mut system, 300, 5);
    let second = system.task(first);
    let third = system.task(first);
    let keeps = |system: &mut System, thread, name| {
        system.start(thread, Call::SystemControl, &arguments(CONTROL_KEEP_SNAPSHOT, name))
    };
    assert_eq!(keeps(&mut system, first, "one"), Answer::Blocked);
    assert_eq!(keeps(&mut system, second, "two"), Answer::Blocked);
    // A name that comes to be there meanwhile.
    assert_eq!(keeps(&mut system, third, "one"), Answer::Blocked);
    assert_eq!(system.wait_for(first), Answer::Done(Ok((0, 0))));
    assert_eq!(system.wait_for(second), Answer::Done(Ok((0, 0))));
    assert_eq!(system.wait_for(third), Answer::Done(Err(Error::InUse)));
    assert_eq!(names(&system), ["one", "two"]);
    system.check_to_the_end();
}

/// Whoever has asked and is ended before the answer leaves nothing that others wait for.
#[test]
fn a_caller_that_ends_leaves_nothing_pending() {
    for steps in [0, 1, 2, 5, 20, 60] {
        let mut system = System::boot(307);
        let first = system.first;
        object(&mut system, 200, 5);
        let [asks, waits] = [(); 2].map(|()| system.task(first));
        for (thread, name) in [(asks, "asked"), (waits, "behind")] {
            let given = arguments(CONTROL_KEEP_SNAPSHOT, name);
            assert_eq!(system.start(thread, Call::SystemControl, &given), Answer::Blocked);
        }
        for _ in 0..steps {
            system.step();
        }
        for thread in [waits, asks] {
            let _ = system.call(first, Call::ThreadDelete, &[thread.0, 9]);
        }
        // The place of the thread may be another one's by now.
        let other = system.task(first);
        assert_eq!(keep(&mut system, other, "next"), Ok((0, 0)), "{steps} steps");
        assert_eq!(
            drops(&mut system, other, "asked"),
            Ok((0, 0)),
            "the checkpoint does what was asked"
        );
        system.quiesce();
        assert!(names(&system).contains(&"next".to_owned()));
        system.check_to_the_end();
    }
}

/// The power fails at any moment of a call: the snapshot is there or not, and holds what it had to hold; once the call has returned it is there.
#[test]
fn a_power_cut_leaves_a_snapshot_whole_or_not_at_all() {
    let (mut there, mut absent) = (0, 0);
    seeds::run(60, |seed| {
        let mut rng = Rng::new(seed ^ 0x51a9);
        let mut system = System::boot(seed);
        let first = system.first;
        let base = object(&mut system, 40, 5);
        keep(&mut system, first, "old").unwrap();
        write(&mut system, base, 40, 6);
        let (operation, name) = if rng.one_in(2) {
            (CONTROL_KEEP_SNAPSHOT, "new")
        } else {
            (CONTROL_DROP_SNAPSHOT, "old")
        };
        let mut answer = system.start(first, Call::SystemControl, &arguments(operation, name));
        for _ in 0..rng.below(90) {
            if answer != Answer::Blocked {
                break;
            }
            system.step();
            answer = system.late.remove(&first).unwrap_or(answer);
        }
        let done = answer == Answer::Done(Ok((0, 0)));
        assert!(done || answer == Answer::Blocked, "{answer:?}");
        let fates = system.platform.disk.draw_fates(&mut rng);
        let disk = system.platform.disk.crash(&fates, rng.fork());
        let system = System::mount(disk, 4096, rng.fork());
        let names = names(&system);
        let is_done = match operation {
            CONTROL_KEEP_SNAPSHOT => names == ["old", "new"],
            _ => names.is_empty(),
        };
        assert!(is_done || names == ["old"], "{names:?}");
        assert!(is_done || !done, "what was acknowledged is not there: {names:?}");
        for name in &names {
            let value = if name == "old" { 5 } else { 6 };
            assert_eq!(word_in(&system, name, base), Some(value), "{name}");
        }
        if is_done {
            there += 1;
        } else {
            absent += 1;
        }
        system.check_to_the_end();
    });
    assert!(there > 5 && absent > 5, "{there} {absent}");
}

/// Blocks of a dropped snapshot come back by themselves, though nobody changes anything, and then all comes to rest.
#[test]
fn blocks_of_a_dropped_snapshot_come_back_and_all_comes_to_rest() {
    for pages in [20, 600] {
        let mut system = System::boot(308);
        let first = system.first;
        let base = object(&mut system, pages, 5);
        system
            .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
            .unwrap();
        let rests = |system: &mut System| {
            let mut periods = 0;
            loop {
                let before = generation(system);
                for _ in 0..3 {
                    system.pass(PERIOD_NS);
                    system.quiesce();
                }
                if generation(system) == before {
                    return periods;
                }
                periods += 3;
                assert!(periods < 40, "it makes generations for ever");
            }
        };
        rests(&mut system);
        let free = system.server.store.stats().free;
        keep(&mut system, first, "one").unwrap();
        write(&mut system, base, pages, 6);
        rests(&mut system);
        let held = system.server.store.stats().free;
        assert!(held + pages <= free, "{held} {free}");
        drops(&mut system, first, "one").unwrap();
        assert_eq!(system.server.store_report().returning, 1);
        rests(&mut system);
        let report = system.server.store_report();
        assert_eq!(report.returning, 0);
        assert!(report.free + 8 >= free, "{} of {free} came back ({pages})", report.free);
        system.check_to_the_end();
    }
}

/// Somebody who writes a little without rest has small checkpoints again, once the blocks are back.
#[test]
fn small_checkpoints_are_records_again_behind_a_drop() {
    let mut system = System::boot(310);
    let first = system.first;
    let base = object(&mut system, 300, 5);
    keep(&mut system, first, "one").unwrap();
    write(&mut system, base, 300, 6);
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    drops(&mut system, first, "one").unwrap();
    let mut generations = [0; 2];
    for made in &mut generations {
        let before = generation(&system);
        for value in 0..10 {
            write(&mut system, base, 1, value);
            system.pass(PERIOD_NS);
            system.quiesce();
        }
        *made = generation(&system) - before;
    }
    assert!(generations[0] >= 2 && generations[1] == 0, "{generations:?}");
    assert_eq!(system.server.store_report().returning, 0);
    system.check_to_the_end();
}

/// The search for blocks that come back finds no frame to read into, and goes on when there are some: nobody else makes a checkpoint.
#[test]
fn a_search_that_lacks_frames_goes_on_with_the_clock() {
    let mut system = System::boot(311);
    let first = system.first;
    let base = object(&mut system, 300, 5);
    keep(&mut system, first, "other").unwrap();
    write(&mut system, base, 300, 6);
    keep(&mut system, first, "one").unwrap();
    write(&mut system, base, 300, 7);
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    system.quiesce();
    drops(&mut system, first, "one").unwrap();
    let mut hoard = Vec::new();
    while let Ok(frame) = system.platform.frame_any() {
        hoard.push(frame);
    }
    let pass = |system: &mut System, periods| {
        for _ in 0..periods {
            system.pass(PERIOD_NS);
            system.quiesce();
        }
    };
    pass(&mut system, 5);
    assert!(system.server.store.is_reclaiming(), "it was not kept from it");
    for frame in hoard {
        system.platform.frame_release(frame);
    }
    pass(&mut system, 10);
    assert_eq!(system.server.store_report().returning, 0);
    system.check_to_the_end();
}

/// The machine stops, whoever asks for a snapshot meanwhile, and what is there then is whole.
#[test]
fn a_machine_that_is_told_to_stop_does_so_beside_a_request() {
    for steps in 0..60 {
        let mut system = System::boot(312);
        let first = system.first;
        let base = object(&mut system, 60, 5);
        let other = system.task(first);
        let asks =
            |system: &mut System| system.start(other, Call::SystemControl, &arguments(CONTROL_KEEP_SNAPSHOT, "one"));
        let is_first = steps % 2 == 0;
        if is_first {
            asks(&mut system);
        } else {
            system.ask_for_the_end(first, EXIT_SUCCESS);
        }
        for _ in 0..steps {
            system.step();
        }
        if !is_first && system.platform.kernel.hardware.stop.is_none() {
            asks(&mut system);
        }
        if is_first {
            system.ask_for_the_end(first, EXIT_SUCCESS);
        }
        for _ in 0..2000 {
            system.step();
        }
        assert_eq!(
            system.platform.kernel.hardware.stop,
            Some(EXIT_SUCCESS),
            "{steps} steps"
        );
        let disk = system.platform.disk.crash(&[], Rng::new(1));
        let system = System::mount(disk, 4096, Rng::new(2));
        assert!(system.server.store.object(base).is_some());
        if is_first {
            assert_eq!(names(&system), ["one"], "{steps} steps");
        }
        for name in names(&system) {
            assert_eq!(word_in(&system, &name, base), Some(5));
        }
    }
}
