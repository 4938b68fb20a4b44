//! Starts behind a power cut: on a disk that fails, and in directories that are very long.

use super::*;

/// A start whose steps fail for errors of the disk, one or all from it on. It ends and says so. What it leaves, with or without a checkpoint behind it, is
/// brought to its end by the next start on a disk that works, and nothing that was stable is lost.
fn all_failures(acts: &[Act]) -> usize {
    let mut failures = 0;
    let steps = run(acts, u32::MAX, u32::MAX).model.steps;
    for (cut, checkpoint) in (0..=steps).flat_map(|cut| (0..=cut).map(move |checkpoint| (cut, checkpoint))) {
        let run = run(acts, checkpoint, cut);
        for (all, done) in [(false, false), (false, true), (true, false), (true, true)] {
            for first in 0.. {
                let what = format!("{acts:?}, checkpoint {checkpoint}, cut {cut}, failing from {first}, {all}, {done}");
                let mut model = Model::restart(run.model.stable.clone(), u32::MAX);
                let end = if all { u32::MAX } else { first + 1 };
                model.failing = (first..end, done);
                let result = recover(&mut model);
                if model.steps <= first {
                    judge(&run, &model, &what);
                    break;
                }
                failures += 1;
                assert!(model.steps < 100, "{what}: {} steps", model.steps);
                // A deletion whose end could not be made durable is durable with the flush at the end.
                assert!(result == Err(Failed::Disk) || !all, "{what}: {result:?}");
                if result.is_ok() {
                    judge(&run, &model, &what);
                }
                for goes_on in [false, true] {
                    if goes_on {
                        model.take_all();
                    }
                    let mut after = Model::restart(model.stable.clone(), u32::MAX);
                    recover(&mut after).unwrap();
                    judge(&run, &after, &format!("{what}, goes on: {goes_on}"));
                }
            }
        }
    }
    failures
}

#[test]
fn a_start_on_a_failing_disk_leaves_what_the_next_one_finishes() {
    let mut failures = 0;
    for one in ACTS {
        for two in ACTS {
            failures += all_failures(&[Act::Create("a"), one, two]);
        }
    }
    assert!(failures > 10_000, "{failures}");
}

/// Every name is young until the next cut. A start looks at each of them a few times, however many there are.
#[test]
fn a_start_reads_young_names_in_one_pass() {
    const NAMES: u64 = 3000;
    let mut model = Model::new(u32::MAX, u32::MAX);
    model.now.directory = vec![0; ENTRY_BYTES * (NAMES as usize + 1)];
    let mut directory = Directory::format_zeroed(&mut model.now.directory).unwrap();
    for number in 1..=NAMES {
        let (name, address) = (format!("{number}"), number * 0x1000);
        directory.insert_marked(&entry(&name, address), Mark::Young).unwrap();
        model.now.objects.insert(address, true);
        model.now.clist.insert((address, address + 1));
    }
    let before = crate::directory::READ.get();
    assert_eq!(recover(&mut model), Ok(0));
    let read = crate::directory::READ.get() - before;
    assert!(read <= 4 * NAMES, "{read} entries are read for {NAMES} names");
    let view = crate::DirectoryView::open(&model.now.directory).unwrap();
    assert_eq!((view.count() as u64, view.marked(0).count()), (NAMES, 0));
}

/// A stranger may fill a directory with entries for each of which all others have to be read. Each start reads them for some.
#[test]
fn a_start_searches_for_some_entries() {
    const NAMES: u64 = 3000;
    for mark in [Mark::Leaving, Mark::Unborn, Mark::Doomed] {
        let mut model = Model::new(u32::MAX, u32::MAX);
        model.now.directory = vec![0; ENTRY_BYTES * (NAMES as usize + 1)];
        let mut directory = Directory::format_zeroed(&mut model.now.directory).unwrap();
        for number in 1..=NAMES {
            let (name, address) = (format!("{number}"), number * 0x1000);
            directory.insert_marked(&entry(&name, address), mark).unwrap();
            model.now.objects.insert(address, true);
            model.now.clist.insert((address, address + 1));
            model.protected.insert(address);
        }
        for starts in 1..=2 {
            let before = crate::directory::READ.get();
            assert_eq!(recover(&mut model), Ok(0));
            let read = crate::directory::READ.get() - before;
            let most = (SEARCHES_MAX as u64 + 4) * NAMES;
            assert!(read <= most, "{read} entries are read for {NAMES} of mark {mark:?}");
            let view = crate::DirectoryView::open(&model.now.directory).unwrap();
            assert_eq!(view.marked(0).count(), NAMES as usize - starts * SEARCHES_MAX);
        }
    }
}
