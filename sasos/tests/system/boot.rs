//! The first task.

use abi::{
    Call, Error,
    address::{FIRST_PROGRAM, PAGE, ROOT_DIRECTORY, USER_END},
    host::{EXIT_FAILURE, EXIT_REBOOT, EXIT_SUCCESS},
    layout::{
        ApdDescription, CONTROL_POWER_OFF, CONTROL_REBOOT, INFO_SET_BYTES, INFO_SET_MODIFIED, INFO_SET_TAG,
        MemoryReport, ObjectInfo, StoreReport, TOPIC_DOMAIN, TOPIC_LOG, TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_STORE,
        TOPIC_THREAD, ThreadReport,
    },
    start::{ARGUMENTS_OFFSET, START_MAGIC, Start},
};
use kcore::{Machine, space::Tags};
use sasos::{Server, calls::boot::StartError};
use sim::{disk::CrashDisk, machine::Platform, machine::Touch, rng::Rng};
use store::{FormatOptions, MountMode, Store};

use crate::{
    harness::{Answer, DATA, ENTRY, PROGRAM_PAGES, System, Trouble},
    install::installed_disk,
};

#[test]
fn the_first_task_finds_its_start_page() {
    let mut system = System::boot(1);
    let first = system.first;
    let context = system.platform.thread_context(first);
    let image = context.rip - ENTRY;
    assert_eq!(context.rdi, image + PROGRAM_PAGES * PAGE);
    assert_eq!(context.rsp % 16, 0);
    let start = Start::from_words(system.words(first, context.rdi));
    assert_eq!(start.magic, START_MAGIC);
    assert_eq!(
        (start.image, start.image_bytes, start.root_directory),
        (image, PROGRAM_PAGES * PAGE, ROOT_DIRECTORY)
    );
    let mut argument = [0; 6];
    system
        .load(first, context.rdi + ARGUMENTS_OFFSET, &mut argument)
        .unwrap();
    assert_eq!(&argument, b"shell\0");
    // Its image can be run and its data written, but not the other way round.
    system.touch(first, image + ENTRY, Touch::Execute).unwrap();
    system.set_word(first, image + DATA, 5).unwrap();
    system.set_word(first, context.rsp - 8, 7).unwrap();
    assert_eq!(
        system.word(first, FIRST_PROGRAM + DATA).unwrap() & 0xffff_ffff,
        u64::from(u32::from_le_bytes(*b"data"))
    );
    system.check();
    assert_eq!(system.touch(first, image + DATA, Touch::Execute), Err(Trouble::Ended));
}

/// A program that knows less of a report gets less, one that knows more leaves the rest as it was, and both learn its length.
#[test]
fn reports_end_where_the_room_does() {
    const MARK: u64 = 0x5555_5555_5555_5555;
    let mut system = System::boot(3);
    let first = system.first;
    let (object, _) = system.object(first, 1);
    let (buffer, _) = system.object(first, 1);
    let asked: [(Call, &[u64], usize); 5] = [
        (Call::SystemInfo, &[TOPIC_MEMORY, 0, buffer], MemoryReport::BYTES),
        (Call::SystemInfo, &[TOPIC_OBJECT, 0, buffer], ObjectInfo::BYTES),
        (Call::ThreadInfo, &[0, buffer], ThreadReport::BYTES),
        (Call::ApdGet, &[buffer], ApdDescription::BYTES),
        (Call::ObjInfo, &[object, 0, buffer], ObjectInfo::BYTES),
    ];
    for (call, arguments, bytes) in asked {
        let whole = bytes as u64;
        for room in [0, 7, 8, 20, whole - 8, whole, whole + 8, u64::MAX] {
            for word in 0..32 {
                system.set_word(first, buffer + 8 * word, MARK).unwrap();
            }
            let told = system.call(first, call, &[arguments, &[room]].concat());
            assert_eq!(told, Ok((whole, 0)), "{call:?} with room for {room}");
            let words = room.min(whole) / 8;
            for word in words..32 {
                assert_eq!(
                    system.word(first, buffer + 8 * word),
                    Ok(MARK),
                    "{call:?}, room {room}, word {word}"
                );
            }
        }
    }
    // Without room the place is not even looked at.
    assert_eq!(
        system.call(first, Call::ThreadInfo, &[0, 8, 0]),
        Ok((ThreadReport::BYTES as u64, 0))
    );
    let set = |room| [object, INFO_SET_TAG, buffer, room];
    assert_eq!(
        system.call(first, Call::ObjInfo, &set(INFO_SET_BYTES - 8)),
        Err(Error::BadArgument)
    );
    let tag = buffer + INFO_SET_BYTES - 8;
    system.set_word(first, tag, 7).unwrap();
    system.call(first, Call::ObjInfo, &set(INFO_SET_BYTES)).unwrap();
    system.call(first, Call::ObjInfo, &[object, 0, buffer, PAGE]).unwrap();
    assert_eq!(system.word(first, tag), Ok(7));
    // Only what the flags name is changed.
    let modified = buffer + core::mem::offset_of!(ObjectInfo, modified_ns) as u64;
    for (flags, expected) in [(INFO_SET_MODIFIED, (9, 7)), (INFO_SET_TAG, (9, 8)), (0, (9, 8))] {
        let value = if flags == INFO_SET_MODIFIED { 9 } else { 8 };
        system.set_word(first, modified, value).unwrap();
        system.set_word(first, tag, value).unwrap();
        system
            .call(first, Call::ObjInfo, &[object, flags, buffer, INFO_SET_BYTES])
            .unwrap();
        system.call(first, Call::ObjInfo, &[object, 0, buffer, PAGE]).unwrap();
        assert_eq!(
            (system.word(first, modified), system.word(first, tag)),
            (Ok(expected.0), Ok(expected.1))
        );
    }
    system.check();
}

#[test]
fn the_system_tells_of_itself() {
    let mut system = System::boot(2);
    let first = system.first;
    let (buffer, _) = system.object(first, 1);
    for topic in TOPIC_MEMORY..=TOPIC_OBJECT {
        system.call(first, Call::SystemInfo, &[topic, 0, buffer, PAGE]).unwrap();
    }
    system
        .call(first, Call::SystemInfo, &[TOPIC_MEMORY, 0, buffer, PAGE])
        .unwrap();
    let memory = MemoryReport::from_words(system.words(first, buffer));
    assert_eq!(memory.frames, system.platform.frames_total());
    assert_eq!(memory.objects, system.server.objects.count());
    system
        .call(first, Call::SystemInfo, &[TOPIC_STORE, 0, buffer, PAGE])
        .unwrap();
    let store = StoreReport::from_words(system.words(first, buffer));
    let stats = system.server.store.stats();
    assert_eq!(
        (store.blocks, store.free, store.objects, store.generation),
        (stats.blocks, stats.free, stats.objects, stats.generation)
    );
    system
        .call(first, Call::SystemInfo, &[TOPIC_THREAD, 0, buffer, PAGE])
        .unwrap();
    let thread = ThreadReport::from_words(system.words(first, buffer));
    assert_eq!((thread.thread, thread.parent, thread.priority), (first.0, 0, 4));
    assert_eq!(
        system.call(first, Call::SystemInfo, &[TOPIC_THREAD, first.0 + 1, buffer, PAGE]),
        Err(Error::NoSuchThread)
    );
    assert_eq!(
        system.call(first, Call::SystemInfo, &[TOPIC_DOMAIN, 77, buffer, PAGE]),
        Err(Error::BadAddress)
    );
    assert_eq!(
        system.call(first, Call::SystemInfo, &[TOPIC_OBJECT, USER_END, buffer, PAGE]),
        Err(Error::BadAddress)
    );
    assert_eq!(
        system.call(first, Call::SystemInfo, &[TOPIC_LOG + 1, 0, buffer, PAGE]),
        Err(Error::BadArgument)
    );
    assert_eq!(
        system.call(first, Call::SystemInfo, &[TOPIC_STORE, 0, 8, PAGE]),
        Err(Error::BadAddress)
    );
    system.check();
}

#[test]
fn power_goes_off_after_a_checkpoint_and_with_the_right_only() {
    let mut system = System::boot(3);
    let first = system.first;
    let child = system.task_with(first, 0, 0);
    // A child without any Clist.
    let (empty, _) = system.object(first, 1);
    let lonely = system.task_with(first, empty, 0);
    assert_eq!(
        system.call(lonely, Call::SystemControl, &[CONTROL_POWER_OFF, 0x10]),
        Err(Error::Protection)
    );
    assert_eq!(
        system.call(child, Call::SystemControl, &[CONTROL_POWER_OFF, 0x99]),
        Err(Error::BadArgument)
    );
    assert_eq!(
        system.call(child, Call::SystemControl, &[9, 0]),
        Err(Error::BadArgument)
    );
    let (kept, _) = system.object(first, 1);
    system.call(first, Call::KeepObject, &[kept]).unwrap();
    system.set_word(first, kept, 42).unwrap();
    system.power_off(child, 0x11);
    assert_eq!(system.platform.disk.volatile_len(), 0, "all is stable");
}

#[test]
fn a_disk_without_a_program_is_refused() {
    let mut rng = Rng::new(4);
    let mut platform = Platform::new(512, Tags::Absent, CrashDisk::new(4096, rng.fork()), rng);
    Store::format(&mut platform, &FormatOptions::default()).unwrap();
    let (store, report) = Store::mount(&mut platform, MountMode::ReadWrite).unwrap();
    assert_eq!(
        Server::new(&mut platform, store, &report)
            .expect("a server")
            .start(&mut platform),
        Err(StartError::NoProgram)
    );
}

/// The rights to read, write and execute the root directory do not allow stopping the system: that takes D.
#[test]
fn control_of_the_system_takes_the_right_to_destroy_the_root_directory() {
    let mut system = System::boot(5);
    let first = system.first;
    let root = abi::address::ROOT_DIRECTORY;
    for (rights, expected) in [
        (abi::Rights::R, Err(Error::Protection)),
        (abi::Rights::RWX, Err(Error::Protection)),
        (abi::Rights::D, Ok((0, 0))),
    ] {
        let (password, _) = system
            .call(first, Call::ObjPasswd, &[root, 0, rights.bits().into()])
            .unwrap();
        let (clist, _) = system.clist(first, &[(root, password)]);
        let apd = system.object(first, 1).0;
        for (place, word) in [1, 0, clist].into_iter().enumerate() {
            system.set_word(first, apd + 8 * place as u64, word).unwrap();
        }
        let task = system.task_with(first, apd, 0);
        let done = system.call(task, Call::SystemControl, &[abi::layout::CONTROL_CHECKPOINT, 0]);
        assert_eq!(done, expected, "{rights}");
    }
    system.check_to_the_end();
}

/// Without any hardware source the generator begins in the same state at each start; only the disk tells the starts apart.
#[test]
fn two_starts_draw_different_passwords_without_any_other_source() {
    let mut rng = Rng::new(77);
    let first = installed_disk(16384, 4096, &mut rng);
    let drawn = |disk: &CrashDisk| {
        let mut system = System::mount(disk.crash(&[], Rng::new(9)), 4096, Rng::new(5));
        let passwords = [system.first; 4].map(|first| system.object(first, 1).1);
        (passwords, system)
    };
    let (once, system) = drawn(&first);
    // A copy of the image at the same generation: what remains (CAVEATS.md).
    assert_eq!(drawn(&first).0, once);
    // Nothing is made stable but what the mount itself commits.
    let (again, _) = drawn(&system.platform.disk);
    assert!(
        once.iter().all(|password| !again.contains(password)),
        "{once:x?} {again:x?}"
    );
}

/// The machine stops after a last checkpoint, with the value that was asked for.
#[test]
fn the_first_task_stops_the_machine() {
    for (operation, argument, exit) in [
        (CONTROL_POWER_OFF, u64::from(EXIT_SUCCESS), Some(EXIT_SUCCESS)),
        (CONTROL_POWER_OFF, u64::from(EXIT_FAILURE), Some(EXIT_FAILURE)),
        (CONTROL_REBOOT, 0, Some(EXIT_REBOOT)),
        (CONTROL_POWER_OFF, 99, None),
        (99, 0, None),
    ] {
        let mut system = System::boot(21);
        let first = system.first;
        let answer = system.start(first, Call::SystemControl, &[operation, argument]);
        if exit.is_none() {
            assert_eq!(answer, Answer::Done(Err(Error::BadArgument)));
        }
        for _ in 0..1000 {
            system.step();
        }
        assert_eq!(system.platform.kernel.hardware.stop, exit, "{operation} {argument}");
    }
}

/// Others go on while the last checkpoint is written, and behind it until the machine stops. What they would write then makes the disk look as if the power had failed.
#[test]
fn a_machine_that_was_told_to_stop_leaves_a_clean_disk_whatever_others_do() {
    for seed in 30..40 {
        let mut system = System::boot(seed);
        let first = system.first;
        let (large, _) = system.object(first, 600);
        system.call(first, Call::KeepObject, &[large]).unwrap();
        let others: Vec<_> = (0..12)
            .map(|_| {
                let task = system.task_with(first, 0, 0);
                let (base, _) = system.object(task, 1);
                system.call(task, Call::KeepObject, &[base]).unwrap();
                (task, base)
            })
            .collect();
        for page in 0..600 {
            system.set_word(first, large + page * PAGE, page).unwrap();
        }
        let flush = |system: &mut System, (task, base)| {
            system.set_word(task, base, 7).unwrap();
            system.start(task, Call::PageFlush, &[base, 1])
        };
        flush(&mut system, others[0]);
        system.start(
            first,
            Call::SystemControl,
            &[CONTROL_POWER_OFF, u64::from(EXIT_SUCCESS)],
        );
        let mut steps = 0;
        while system.platform.kernel.hardware.stop.is_none() {
            system.step();
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: the machine does not stop");
            if steps % (seed as usize) == 0 && steps / (seed as usize) < others.len() {
                flush(&mut system, others[steps / seed as usize]);
            }
        }
        let disk = system.platform.disk.crash(&[], Rng::new(seed));
        let mut platform = Platform::new(4096, Tags::Absent, disk, Rng::new(seed));
        let (_, report) = Store::mount(&mut platform, MountMode::ReadOnly).unwrap();
        assert!(report.clean, "seed {seed}: {report:?}");
    }
}

/// Two programs ask for the end, and the last checkpoint fails: the first is told, and the end that the second has asked for comes when the disk works again.
#[test]
fn a_power_off_beside_one_that_fails_still_comes() {
    let mut system = System::boot(23);
    let first = system.first;
    let other = system.task(first);
    system.platform.disk.set_failing(1);
    system.ask_for_the_end(other, EXIT_FAILURE);
    system.ask_for_the_end(first, EXIT_SUCCESS);
    assert_eq!(system.wait_for(other), Answer::Done(Err(Error::DiskError)));
    system.platform.disk.set_failing(0);
    for _ in 0..1000 {
        system.step();
        system.pump();
    }
    assert_eq!(system.platform.kernel.hardware.stop, Some(EXIT_SUCCESS));
}

/// The first task ends while the last checkpoint is written that another one has asked for, and it fails: nobody is left to ask again, so the machine stops.
#[test]
fn the_machine_stops_without_a_first_task_though_a_power_off_fails() {
    let mut system = System::boot(24);
    let first = system.first;
    let other = system.task(first);
    system.platform.disk.set_failing(1);
    system.ask_for_the_end(other, EXIT_SUCCESS);
    system.exit(first, 0);
    system.finish_work();
    for _ in 0..1000 {
        system.step();
    }
    assert_eq!(system.platform.kernel.hardware.stop, Some(EXIT_FAILURE));
}

#[test]
fn the_machine_stops_when_the_first_task_has_ended_and_all_is_stable() {
    let mut system = System::boot(22);
    let first = system.first;
    let (kept, _) = system.object(first, 1);
    system.call(first, Call::KeepObject, &[kept]).unwrap();
    system.set_word(first, kept, 42).unwrap();
    system.exit(first, 0);
    system.finish_work();
    assert_eq!(system.platform.kernel.hardware.stop, None);
    for _ in 0..1000 {
        system.step();
    }
    assert_eq!(system.platform.kernel.hardware.stop, Some(EXIT_FAILURE));
    assert_eq!(system.platform.disk.volatile_len(), 0);
}
