//! Tasks and threads: beginning, ending, waiting for each other, accounts.

use abi::{
    Call, Error,
    address::{FIRST_PROGRAM, PAGE, STACK_BYTES},
    layout::{
        ApdDescription, EXCEPTION_PROTECTION, EXCEPTION_RESOURCE, ExitReport, FOREVER, STATUS_SYSTEM, THREAD_ENDED,
        THREAD_READY, THREAD_SLEEPING, ThreadReport,
    },
};
use kcore::{Machine, ThreadId, shares::WHOLE};
use sasos::accounts::Resource;
use sim::machine::Touch;

use crate::harness::{Answer, DATA, ENTRY, PROGRAM_PAGES, System, Trouble};

#[test]
fn a_task_takes_its_image_along_and_leaves_nothing() {
    let mut system = System::boot(10);
    let first = system.first;
    let (report, _) = system.object(first, 1);
    system.set_word(first, report, 0).unwrap();
    // The first time makes what is used again later.
    let child = system.task(first);
    system.exit(child, 0);
    system.reap(first, child).unwrap();
    let before = (
        system.platform.frames_free(),
        system.server.objects.count(),
        system.server.domains.count(),
    );
    for round in 0..20 {
        let image = system.image(first);
        system.set_word(first, image + DATA, 9).unwrap();
        let child = system
            .call(first, Call::TaskCreate, &[image + ENTRY, 77, 0, 0, 3])
            .unwrap();
        let child = ThreadId(child.0);
        assert_eq!(system.platform.thread_context(child).rdi, 77);
        assert_eq!(system.word(child, image + DATA), Ok(9));
        assert_eq!(
            system.call(first, Call::ObjDelete, &[image]),
            Err(Error::Protection),
            "it is the child's now"
        );
        let stack = system.platform.thread_context(child).rsp;
        system.set_word(child, stack - 8, 1).unwrap();
        system.set_word(child, stack - STACK_BYTES, 1).unwrap();
        let (object, _) = system.object(child, 3);
        system.set_word(child, object + PAGE, 1).unwrap();
        system.check();
        system.exit(child, round);
        assert_eq!(
            system.call(first, Call::ThreadWait, &[0, FOREVER, report, PAGE]),
            Ok((child.0, round))
        );
        system.finish_work();
        let exit = ExitReport::from_words(system.words(first, report));
        assert_eq!((exit.thread, exit.status, exit.exception), (child.0, round, 0));
        assert_eq!(
            (
                system.platform.frames_free(),
                system.server.objects.count(),
                system.server.domains.count()
            ),
            before
        );
    }
    assert_eq!(system.reap(first, child), Err(Error::NoSuchThread));
    assert_eq!(
        system.call(first, Call::ThreadWait, &[0, FOREVER, 0]),
        Err(Error::NoSuchThread)
    );
    system.check_to_the_end();
}

#[test]
fn threads_share_a_domain_and_stacks_are_used_again() {
    let mut system = System::boot(11);
    let first = system.first;
    let image = system.image_of(first);
    let mut stacks = Vec::new();
    for status in 0..5 {
        let (thread, _) = system.call(first, Call::ThreadCreate, &[image + ENTRY, 5, 3]).unwrap();
        let thread = ThreadId(thread);
        stacks.push(system.platform.thread_context(thread).rsp);
        system.set_word(thread, image + DATA, status).unwrap();
        assert_eq!(system.word(first, image + DATA), Ok(status));
        assert_eq!(
            system.start(first, Call::ThreadWait, &[thread.0, FOREVER, 0]),
            Answer::Blocked
        );
        system.exit(thread, status);
        assert_eq!(system.wait_for(first), Answer::Done(Ok((thread.0, status))));
    }
    stacks.dedup();
    assert_eq!(stacks.len(), 1);
    assert_eq!(
        system.call(first, Call::ThreadCreate, &[image + DATA, 0, 3]).err(),
        None,
        "limits of pages show when it runs"
    );
    assert_eq!(
        system.call(first, Call::ThreadCreate, &[image + ENTRY, 0, 8]),
        Err(Error::BadArgument)
    );
    assert_eq!(
        system.call(first, Call::ThreadCreate, &[64, 0, 3]),
        Err(Error::BadAddress)
    );
    system.check_to_the_end();
}

#[test]
fn a_parent_that_waits_is_answered_at_the_end_of_its_child() {
    let mut system = System::boot(16);
    let first = system.first;
    let image = system.image_of(first);
    let (report, _) = system.object(first, 1);
    system.set_word(first, report, 0).unwrap();
    let thread = |system: &mut System| {
        let made = system.call(first, Call::ThreadCreate, &[image + ENTRY, 0, 3]);
        ThreadId(made.unwrap().0)
    };
    let helper = thread(&mut system);
    let is_there = |system: &System, thread| system.server.threads.find(thread).is_some();
    // For a certain one, or any; with a deadline or without.
    for (any, timeout) in [(false, FOREVER), (true, FOREVER), (false, 1 << 40), (true, 1 << 40)] {
        let child = thread(&mut system);
        let wanted = if any { 0 } else { child.0 };
        let waits = system.start(first, Call::ThreadWait, &[wanted, timeout, 0]);
        assert_eq!(waits, Answer::Blocked);
        system.exit(child, 5);
        assert!(!is_there(&system, child), "nobody asks for it again");
        assert!(system.server.threads.record(child).doom.is_none());
        assert_eq!(system.wait_for(first), Answer::Done(Ok((child.0, 5))));
    }
    // Another child than the one it waits for stays, and so does one whose report must be written, ...
    let [one, two] = [(); 2].map(|()| thread(&mut system));
    system.start(first, Call::ThreadWait, &[one.0, FOREVER, 0]);
    system.exit(two, 2);
    assert!(is_there(&system, two));
    system.exit(one, 1);
    assert_eq!(system.wait_for(first), Answer::Done(Ok((one.0, 1))));
    assert_eq!(system.reap(first, two), Ok(2));
    let child = thread(&mut system);
    system.start(first, Call::ThreadWait, &[child.0, FOREVER, report, PAGE]);
    system.exit(child, 6);
    assert!(is_there(&system, child));
    assert_eq!(system.wait_for(first), Answer::Done(Ok((child.0, 6))));
    assert_eq!(system.word(first, report), Ok(child.0));
    // ... and one whose parent was taken off while it waited.
    let child = thread(&mut system);
    system.start(first, Call::ThreadWait, &[child.0, FOREVER, 0]);
    assert_eq!(system.call(helper, Call::ThreadSleep, &[first.0, FOREVER]), Ok((0, 0)));
    system.exit(child, 7);
    assert!(is_there(&system, child), "it is told when the parent goes on");
    assert_eq!(system.call(helper, Call::ThreadResume, &[first.0]), Ok((0, 0)));
    assert_eq!(system.wait_for(first), Answer::Done(Ok((child.0, 7))));
    assert!(!is_there(&system, child));
    system.check_to_the_end();
}

#[test]
fn waiting_for_a_child_has_an_end() {
    let mut system = System::boot(12);
    let first = system.first;
    let child = system.task(first);
    assert_eq!(
        system.call(first, Call::ThreadWait, &[child.0, 0, 0]),
        Err(Error::TimedOut)
    );
    assert_eq!(
        system.start(first, Call::ThreadWait, &[0, 5_000_000, 0]),
        Answer::Blocked
    );
    system.pass(4_000_000);
    assert!(system.late.is_empty());
    system.pass(2_000_000);
    assert_eq!(system.late.remove(&first), Some(Answer::Done(Err(Error::TimedOut))));
    // A report that cannot be written leaves the child to be waited for.
    system.exit(child, 3);
    assert_eq!(
        system.call(first, Call::ThreadWait, &[0, 0, FIRST_PROGRAM - 8, PAGE]),
        Err(Error::BadAddress)
    );
    assert_eq!(system.reap(first, child), Ok(3));
    assert_eq!(system.reap(first, ThreadId(0x7777_0003)), Err(Error::NoSuchThread));
    system.check_to_the_end();
}

#[test]
fn a_fault_ends_its_program_alone_and_is_reported() {
    let mut system = System::boot(13);
    let first = system.first;
    let (report, _) = system.object(first, 1);
    let child = system.task(first);
    let image = system.image_of(child);
    let helper = ThreadId(
        system
            .call(child, Call::ThreadCreate, &[image + ENTRY, 0, 3])
            .unwrap()
            .0,
    );
    assert_eq!(system.set_word(child, report, 1), Err(Trouble::Ended));
    assert!(
        system.server.threads.find(helper).is_none(),
        "the first thread takes the task along"
    );
    let (thread, status) = system
        .call(first, Call::ThreadWait, &[child.0, FOREVER, report, PAGE])
        .unwrap();
    assert_eq!((thread, status), (child.0, STATUS_SYSTEM + EXCEPTION_PROTECTION));
    let exit = ExitReport::from_words(system.words(first, report));
    assert_eq!(
        (exit.exception, exit.address, exit.instruction),
        (EXCEPTION_PROTECTION, report, image + ENTRY)
    );
    assert_eq!((exit.wanted, exit.had), (2, 0));
    system.check_to_the_end();
}

#[test]
fn a_fault_of_another_thread_ends_that_thread() {
    let mut system = System::boot(14);
    let first = system.first;
    let image = system.image_of(first);
    let thread = ThreadId(
        system
            .call(first, Call::ThreadCreate, &[image + ENTRY, 0, 3])
            .unwrap()
            .0,
    );
    assert_eq!(system.set_word(thread, 16, 1), Err(Trouble::Ended));
    assert_eq!(system.reap(first, thread), Ok(STATUS_SYSTEM + EXCEPTION_PROTECTION));
    system.check_to_the_end();
}

#[test]
fn only_parents_and_siblings_control_a_thread() {
    let mut system = System::boot(15);
    let first = system.first;
    let one = system.task(first);
    let other = system.task(first);
    let image = system.image_of(one);
    let sibling = ThreadId(system.call(one, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap().0);
    for call in [
        Call::ThreadDelete,
        Call::ThreadResume,
        Call::ThreadWait,
        Call::ConsoleForeground,
    ] {
        assert_eq!(
            system.call(other, call, &[one.0, 0, 0]),
            Err(Error::NoSuchThread),
            "{call:?}"
        );
    }
    assert_eq!(
        system.call(first, Call::ThreadSleep, &[one.0, FOREVER]),
        Err(Error::NoSuchThread)
    );
    assert_eq!(
        system.call(one, Call::ThreadSleep, &[sibling.0, 1000]),
        Err(Error::BadArgument)
    );
    system.call(one, Call::ThreadSleep, &[sibling.0, FOREVER]).unwrap();
    let (buffer, _) = system.object(one, 1);
    let state = |system: &mut System| {
        system.call(one, Call::ThreadInfo, &[sibling.0, buffer, PAGE]).unwrap();
        ThreadReport::from_words(system.words(one, buffer)).state
    };
    assert_eq!(state(&mut system), THREAD_SLEEPING);
    assert!(!system.platform.thread_is_ready(sibling));
    system.call(one, Call::ThreadResume, &[sibling.0]).unwrap();
    assert!(system.platform.thread_is_ready(sibling));
    assert_eq!(state(&mut system), THREAD_READY);
    // Time has passed since the start: it counts from the call on.
    system.pass(10_000_000);
    // A sleeper sleeps until its time, or until somebody resumes it.
    assert_eq!(
        system.start(sibling, Call::ThreadSleep, &[0, 3_000_000]),
        Answer::Blocked
    );
    system.pass(2_000_000);
    assert!(system.late.is_empty());
    system.pass(2_000_000);
    assert_eq!(system.late.remove(&sibling), Some(Answer::Done(Ok((0, 0)))));
    assert_eq!(system.start(sibling, Call::ThreadSleep, &[0, FOREVER]), Answer::Blocked);
    system.call(one, Call::ThreadResume, &[sibling.0]).unwrap();
    system.pump();
    assert_eq!(system.late.remove(&sibling), Some(Answer::Done(Ok((0, 0)))));
    let sleeps = Call::ThreadSleep as u64;
    assert!(system.server.yields(sleeps, 0, 0), "the kernel does it by itself");
    for (number, thread, ns) in [(sleeps + 1, 0, 0), (sleeps, 1, 0), (sleeps, 0, 1)] {
        assert!(!system.server.yields(number, thread, ns));
    }
    assert_eq!(
        system.start(sibling, Call::ThreadSleep, &[0, 0]),
        Answer::Gone,
        "it stands in the run queue"
    );
    assert_eq!(system.platform.thread_context(sibling).rax, 0);
    assert!(system.platform.thread_is_ready(sibling));
    // The parent of the first thread ends the whole task.
    system.call(first, Call::ThreadDelete, &[one.0, 9]).unwrap();
    system.finish_work();
    assert!(system.server.threads.find(sibling).is_none());
    system.call(first, Call::ThreadInfo, &[one.0, 8, PAGE]).unwrap_err();
    assert_eq!(
        system.call(first, Call::ThreadDelete, &[one.0, 9]),
        Ok((0, 0)),
        "it has ended already"
    );
    assert_eq!(system.reap(first, one), Ok(9));
    system.check_to_the_end();
}

#[test]
fn children_of_an_ended_parent_are_nobodys_but_the_first_tasks() {
    let mut system = System::boot(16);
    let first = system.first;
    let parent = system.task(first);
    let child = system.task(parent);
    let ended = system.task(parent);
    system.exit(ended, 1);
    let thread = {
        let image = system.image_of(parent);
        ThreadId(
            system
                .call(parent, Call::ThreadCreate, &[image + ENTRY, 0, 3])
                .unwrap()
                .0,
        )
    };
    let grandchild = system.task(thread);
    // The grandchild goes to the first thread of the task, the others to nobody.
    system.exit(thread, 0);
    assert_eq!(system.server.threads.find(grandchild).unwrap().parent, parent);
    system.exit(parent, 0);
    assert!(system.server.threads.find(ended).is_none(), "nobody will wait for it");
    assert_eq!(system.server.threads.find(child).unwrap().parent, ThreadId(0));
    system.call(first, Call::ThreadDelete, &[child.0, 0]).unwrap();
    assert!(system.server.threads.find(child).is_none());
    let (buffer, _) = system.object(first, 1);
    system.call(first, Call::ThreadInfo, &[parent.0, buffer, PAGE]).unwrap();
    assert_eq!(
        ThreadReport::from_words(system.words(first, buffer)).state,
        THREAD_ENDED
    );
    system.exit(grandchild, 0);
    assert_eq!(system.reap(first, parent), Ok(0));
    system.check_to_the_end();
}

#[test]
fn a_task_gets_no_more_than_its_account_has() {
    let mut system = System::boot(17);
    let first = system.first;
    let child = system.task_with(first, 0, 40);
    let (object, _) = system.object(child, 100);
    let mut written = 0;
    while system.set_word(child, object + written * PAGE, 1).is_ok() {
        written += 1;
    }
    assert!((30..40).contains(&written), "{written} pages");
    assert_eq!(system.reap(first, child), Ok(STATUS_SYSTEM + EXCEPTION_RESOURCE));
    // Threads: the bound counts those that are not reaped, too.
    let child = system.task(first);
    let image = system.image_of(child);
    let mut threads = 0;
    let error = loop {
        match system.call(child, Call::ThreadCreate, &[image + ENTRY, 0, 3]) {
            Ok((thread, _)) => system.exit(ThreadId(thread), 0),
            Err(error) => break error,
        }
        threads += 1;
    };
    let server = &system.server;
    let task = server.threads.find(child).expect("it lives").task;
    let account = server.tasks.get(task).expect("a task").account;
    let limit = server.ledger.limit(account, Resource::Threads);
    assert_eq!(error, Error::LimitReached);
    assert!(limit < 1000, "the machine is small");
    assert_eq!(threads, limit);
    system.exit(child, 0);
    assert_eq!(system.reap(first, child), Ok(0));
    // Objects.
    let child = system.task(first);
    let mut objects = 0;
    while system.call(child, Call::ObjCreate, &[1, 0]).is_ok() {
        objects += 1;
        assert!(objects < 10_000);
    }
    let _ = system.call(first, Call::ThreadDelete, &[child.0, 0]);
    assert_eq!(system.reap(first, child), Ok(0));
    system.check_to_the_end();
}

#[test]
fn a_runaway_family_leaves_room_for_the_first_task() {
    let mut system = System::boot_with(18, 20_000, 16384);
    let first = system.first;
    let mut family = vec![system.task(first)];
    let mut at = 0;
    while at < family.len() {
        for _ in 0..100 {
            let Ok((image, _)) = system.call(family[at], Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]) else {
                break;
            };
            match system.call(family[at], Call::TaskCreate, &[image + ENTRY, 0, 0, 0, 3]) {
                Ok((thread, _)) => family.push(ThreadId(thread)),
                Err(error) => {
                    assert!(matches!(error, Error::LimitReached | Error::NoMemory), "{error:?}");
                    system.call(family[at], Call::ObjDelete, &[image]).unwrap();
                    break;
                }
            }
        }
        at += 1;
    }
    // Three quarters of the spaces that programs may have.
    assert!((1600..1700).contains(&family.len()), "{}", family.len());
    let child = system.task(first);
    system.exit(child, 5);
    assert_eq!(system.reap(first, child), Ok(5));
    for &thread in &family[1..] {
        system.exit(thread, 0);
    }
    system.call(first, Call::ThreadDelete, &[family[0].0, 0]).unwrap();
    system.reap(first, family[0]).unwrap();
    system.check_to_the_end();
}

#[test]
fn an_apd_is_handed_down_with_its_locks() {
    let mut system = System::boot(19);
    let first = system.first;
    let (secret, password) = system.object(first, 1);
    let (clist, clist_password) = system.clist(first, &[(secret, password)]);
    let (root, _) = system.clist(first, &[(clist, clist_password)]);
    system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
    // An APD of one Clist.
    let (buffer, _) = system.object(first, 1);
    let mut description = ApdDescription {
        count: 1,
        locked: 1,
        ..ApdDescription::default()
    };
    description.slots[0] = clist;
    let words: Vec<u64> = [description.count, description.locked]
        .into_iter()
        .chain(description.slots)
        .collect();
    for (place, word) in words.iter().enumerate() {
        system.set_word(first, buffer + 8 * place as u64, *word).unwrap();
    }
    let child = system.task_with(first, buffer, 0);
    assert_eq!(system.word(child, secret), Ok(0));
    assert_eq!(
        system.call(child, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]),
        Err(Error::Protection)
    );
    // The child cannot give a grandchild less than what is locked.
    let (empty, _) = system.object(child, 1);
    let image = system.image_of(child);
    assert_eq!(
        system.call(child, Call::TaskCreate, &[image + ENTRY, 0, empty, 0, 3]),
        Err(Error::Locked)
    );
    // Counts that make no sense, Clists that cannot be read.
    for (place, word, error) in [
        (0, 17, Error::BadArgument),
        (1, 9, Error::BadArgument),
        (2, root + (1 << 40), Error::BadAddress),
    ] {
        let before = system.word(first, buffer + place * 8).unwrap();
        system.set_word(first, buffer + place * 8, word).unwrap();
        let image = system.image(first);
        assert_eq!(
            system.call(first, Call::TaskCreate, &[image + ENTRY, 0, buffer, 0, 3]),
            Err(error)
        );
        system.call(first, Call::ObjDelete, &[image]).unwrap();
        system.set_word(first, buffer + place * 8, before).unwrap();
    }
    system.exit(child, 0);
    system.reap(first, child).unwrap();
    system.check_to_the_end();
}

#[test]
fn a_killed_task_is_taken_out_of_its_waits() {
    let mut system = System::boot(20);
    let first = system.first;
    let child = system.task(first);
    let grandchild = system.task(child);
    assert_eq!(system.start(child, Call::ThreadWait, &[0, FOREVER, 0]), Answer::Blocked);
    system.call(first, Call::ThreadDelete, &[child.0, 44]).unwrap();
    assert_eq!(system.reap(first, child), Ok(44));
    assert!(system.platform.kernel.threads().find(grandchild).is_some());
    assert_eq!(
        system
            .touch(grandchild, system.image_of(grandchild) + ENTRY, Touch::Execute)
            .err(),
        None
    );
    system.call(first, Call::ThreadDelete, &[grandchild.0, 0]).unwrap();
    system.check_to_the_end();
}

/// A task whose first thread has ended lives on with its others; its parent can still end it by that thread.
#[test]
fn a_parent_ends_what_is_left_of_a_task() {
    let mut system = System::boot(21);
    let first = system.first;
    let child = system.task(first);
    let entry = system.image_of(child) + ENTRY;
    let second = ThreadId(system.call(child, Call::ThreadCreate, &[entry, 0, 3]).unwrap().0);
    system.start(child, Call::ThreadDelete, &[0, 7]);
    assert!(system.platform.kernel.threads().find(second).is_some());
    system.call(first, Call::ThreadDelete, &[child.0, 0]).unwrap();
    assert!(system.platform.kernel.threads().find(second).is_none());
    assert_eq!(system.reap(first, child), Ok(7));
    system.check_to_the_end();
}

#[test]
fn a_task_may_be_given_a_share_of_the_processors() {
    let mut system = System::boot(58);
    let first = system.first;
    for (share, limit) in [(100, 100), (0, WHOLE)] {
        let image = system.image(first);
        let arguments = [image + ENTRY, image + PROGRAM_PAGES * PAGE, 0, 0, 3, share];
        let child = ThreadId(system.call(first, Call::TaskCreate, &arguments).unwrap().0);
        let server = &system.server;
        let task = server.threads.find(child).expect("it lives").task;
        let account = server.tasks.get(task).expect("a task").account;
        assert_eq!(server.ledger.limit(account, Resource::Processor), limit);
        system.exit(child, 0);
        assert_eq!(system.reap(first, child), Ok(0));
    }
    system.check_to_the_end();
}
