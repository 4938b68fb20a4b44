//! Ends in pieces strike threads that are in the middle of something: what becomes of their calls then.

use abi::{
    Call, Error,
    address::{FIRST_PROGRAM, PAGE, SLOT},
    layout::{CALL_DEPTH_MAX, PD_EMPTY, PD_MERGE},
};
use kcore::{
    Machine, ThreadId,
    thread::{Resumed, State},
};
use sasos::{Event, Outcome, accounts::Resource, lives::thread::Life};
use sim::{machine::Touch, rng::Rng};

use crate::harness::{Answer, ENTRY, PRICES, System};

/// Threads inside of a procedure that ends: more than one piece takes out.
const CROWD: usize = 9;

/// A client calls a hostile service with `PD_EMPTY` only. The service has its own procedure end, and fills its account. Its next call, on the
/// client's thread, fails for want of memory, so the list is worked on, which takes the thread out of the procedure. That call must
/// not be made again at the client's home, with the client's rights.
#[test]
fn a_call_of_a_callee_is_not_made_by_its_caller() {
    let struck = (1..=CROWD).filter(|&crowd| is_struck_by_its_own_call(crowd)).count();
    assert!(struck > 0, "no call was the one that took its thread out");
}

/// Tells whether that call itself took the thread out, and not a later event.
fn is_struck_by_its_own_call(crowd: usize) -> bool {
    let mut system = System::boot_with(60, 8192, 16384);
    let first = system.first;
    let hostile = system.task_with(first, 0, 120);
    let entry = system.image_of(hostile) + ENTRY;
    let outer = system.service(hostile);
    let inner = system.service(hostile);
    let password = system.call(hostile, Call::ObjPasswd, &[outer.image, 0, 15]).unwrap().0;
    system.clist_fill(
        hostile,
        outer.clist,
        &[(outer.image, password), (inner.image, inner.password)],
    );
    let crowd: Vec<ThreadId> = (0..crowd)
        .map(|_| ThreadId(system.call(hostile, Call::ThreadCreate, &[entry, 0, 3]).unwrap().0))
        .collect();
    let client = system.client(&[(outer.image, outer.password), (inner.image, inner.password)]);
    let home = system.platform.thread_space(client);
    for &thread in crowd.iter().chain([&client]) {
        assert_eq!(system.enter(thread, outer.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    }
    let task = system.server.threads.find(hostile).unwrap().task;
    let account = system.server.tasks.get(task).unwrap().account;
    let (large, _) = system.object(hostile, 400);
    let mut written = 0;
    let mut fill = |system: &mut System| {
        while system.server.ledger.used(account, Resource::Frames)
            < system.server.ledger.limit(account, Resource::Frames)
        {
            system.set_word(hostile, large + written * 4096, 1).unwrap();
            written += 1;
            system.server.ledger.empty_all_hands();
        }
    };
    fill(&mut system);
    system.start(hostile, Call::ObjDelete, &[outer.image]);
    fill(&mut system);
    if system.depth(client) == 0 {
        return false;
    }
    system.start(client, Call::PdxCall, &[inner.image + ENTRY, 1, PD_MERGE, 2, 3, 4]);
    let struck = system.depth(client) == 0;
    if !struck {
        system.finish_work();
    }
    assert_at_home(&mut system, client, home);
    struck
}

/// The same with a call that fails for want of anything, whoever pays.
#[test]
fn a_call_of_a_callee_that_ends_is_not_made_at_home() {
    let mut system = System::boot_with(61, 8192, 16384);
    let first = system.first;
    let service = system.service(first);
    let clients: Vec<ThreadId> = (0..=CROWD)
        .map(|_| system.client(&[(service.image, service.password)]))
        .collect();
    let client = clients[CROWD];
    let home = system.platform.thread_space(client);
    for &thread in &clients {
        assert_eq!(system.enter(thread, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    }
    system.start(first, Call::ObjDelete, &[service.image]);
    assert!(!system.server.work.is_empty(), "the procedure has not ended whole");
    system.start(client, Call::ObjCreate, &[1 << 60, 7]);
    assert_at_home(&mut system, client, home);
}

/// A thread that is still inside of a callee that ends makes a task. The first thread of it gets a place that the search has passed: it is an orphan,
/// not a child of somebody in a domain that nobody is in any more.
#[test]
fn what_is_made_in_a_callee_that_ends_is_an_orphan() {
    let mut system = System::boot_with(62, 8192, 16384);
    let first = system.first;
    let service = system.service(first);
    let early = system.task_with(first, 0, 0);
    let clients: Vec<ThreadId> = (0..=CROWD)
        .map(|_| system.client(&[(service.image, service.password)]))
        .collect();
    let client = clients[CROWD];
    let own = system.image_of(client) + ENTRY;
    for &thread in &clients[..CROWD] {
        assert_eq!(system.enter(thread, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    }
    assert_eq!(system.enter(client, service.image + ENTRY, PD_MERGE), Answer::Elsewhere);
    system.call(first, Call::ThreadDelete, &[early.0, 0]).unwrap();
    system.finish_work();
    system.call(first, Call::ThreadWait, &[early.0, 0, 0]).unwrap();
    system.start(first, Call::ObjDelete, &[service.image]);
    assert_eq!(system.depth(client), 1, "the procedure has not ended whole");
    let (child, _) = system.call(client, Call::TaskCreate, &[own, 0, 0, 0, 3]).unwrap();
    assert!(ThreadId(child).index() < client.index());
    let parent = system.server.threads.find(ThreadId(child)).unwrap().parent;
    assert_eq!(parent, ThreadId(0));
    system.finish_work();
    system.pump();
}

/// A task is killed that has more threads than one piece ends, every other one inside of a procedure of others. Each of them is told.
#[test]
fn all_threads_of_a_killed_task_are_told() {
    for threads in 2..40 {
        let mut system = System::boot_with(63, 8192, 16384);
        let first = system.first;
        let service = system.service(first);
        let head = system.client(&[(service.image, service.password)]);
        let entry = system.image_of(head) + ENTRY;
        for n in 1..threads {
            let thread = ThreadId(system.call(head, Call::ThreadCreate, &[entry, 0, 3]).unwrap().0);
            if n % 2 == 0 {
                assert_eq!(system.enter(thread, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
            }
        }
        system.call(first, Call::ThreadDelete, &[head.0, 5]).unwrap();
        system.finish_work();
        let left: Vec<_> = (system.server.threads.iter())
            .filter(|thread| thread.id != first && thread.life == Life::Live)
            .map(|thread| (thread.id, thread.doom.is_some()))
            .collect();
        assert!(left.iter().all(|&(_, told)| told), "of {threads} threads: {left:x?}");
        assert_eq!(left.len(), (threads - 1) / 2);
        for (thread, _) in left {
            system.start(thread, Call::PdxReturn, &[1, 2]);
        }
        system.finish_work();
        assert_eq!(system.reap(first, head), Ok(5));
        system.check_to_the_end();
    }
}

/// The pages of an object may cost nearly all that one event may spend, and its addresses the rest and more. Its end comes to
/// an end all the same: that of a task, and that of the object alone.
#[test]
fn an_object_with_any_number_of_pages_ends() {
    let mut system = System::boot_with(64, 8192, 16384);
    let first = system.first;
    for (slots, stride) in [(1, PAGE), (21, PAGE), (21, SLOT), (200, 3 * SLOT), (1025, PAGE)] {
        for pages in 1..=(slots * SLOT / stride).min(80) {
            for kept in [false, true] {
                let child = system.task(first);
                let (base, _) = system.object(child, slots * (SLOT / PAGE));
                for page in 0..pages {
                    system.set_word(child, base + page * stride, 1).unwrap();
                }
                if kept {
                    system.call(child, Call::KeepObject, &[base]).unwrap();
                    system.call(child, Call::ObjDelete, &[base]).unwrap();
                }
                system.call(first, Call::ThreadDelete, &[child.0, 5]).unwrap();
                system.finish_work();
                let is_left = system.server.objects.find(base).is_some();
                assert!(!is_left, "{slots} slots, {pages} pages, kept: {kept}");
                assert_eq!(system.reap(first, child), Ok(5));
            }
        }
    }
}

/// A thread was taken out of its call: it is at home with `CalleeFault`, and nothing of what it called from the callee is left to be made.
fn assert_at_home(system: &mut System, client: ThreadId, home: kcore::SpaceId) {
    let operation = system.platform.kernel.threads().table[client.index()].operation;
    assert!(operation.is_none(), "{operation:?} is to be made again");
    system.finish_work();
    system.pump();
    assert_eq!((system.depth(client), system.platform.thread_space(client)), (0, home));
    assert_eq!(system.call_error(client), Some(Error::CalleeFault));
}

/// Threads, tasks, protected calls, kills and deleted services at random, while what ends goes in pieces. In the end nothing is left.
#[test]
fn families_at_random_leave_nothing() {
    for seed in 0..25 {
        family_at_random(seed);
    }
}

fn family_at_random(seed: u64) {
    const STEPS: u32 = 1500;
    let mut system = System::boot_with(1000 + seed, 8192, 16384);
    let mut rng = Rng::new(seed * 77 + 5);
    let first = system.first;
    let services = [system.service(first), system.service(first)];
    let head = system.client(&services.each_ref().map(|service| (service.image, service.password)));
    for _ in 0..STEPS {
        let table = &system.platform.kernel.threads().table;
        let can = |state| matches!(state, State::Ready | State::Running);
        let able: Vec<ThreadId> = table
            .iter()
            .filter(|thread| can(thread.state) && thread.operation.is_none() && thread.id != first)
            .map(|thread| thread.id)
            .collect();
        if able.is_empty() {
            system.server.handle(&mut system.platform, Event::Poll);
            system.pump();
            if system.server.threads.find(head).is_none() {
                break;
            }
            continue;
        }
        let thread = able[rng.below(able.len() as u64) as usize];
        let any: Vec<ThreadId> = system.server.threads.iter().map(|record| record.id).collect();
        let other = any[rng.below(any.len() as u64) as usize];
        let service = services[rng.below(2) as usize].image;
        let image = if system.depth(thread) == 0 {
            system.image_of(thread)
        } else {
            services[0].image
        };
        let spare = other != head && other != first;
        match rng.below(16) {
            0..3 => _ = system.start(thread, Call::ThreadCreate, &[image + ENTRY, 0, 3]),
            3 | 4 => {
                let made = system.start(thread, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]);
                if let Answer::Done(Ok((image, _))) = made {
                    system.start(thread, Call::TaskCreate, &[image + ENTRY, 0, 0, 0, 3]);
                }
            }
            5 if thread != head => _ = system.start(thread, Call::ThreadDelete, &[0, 3]),
            6 | 7 if spare => _ = system.start(thread, Call::ThreadDelete, &[other.0, 3]),
            8 => _ = system.start(thread, Call::ObjCreate, &[rng.below(900) * PAGE + 1, 0]),
            9 | 10 => {
                let pd = if rng.one_in(2) { PD_EMPTY } else { PD_MERGE };
                system.start(thread, Call::PdxCall, &[service + ENTRY, 1, pd, 2, 3, 4]);
            }
            11 => _ = system.start(thread, Call::PdxReturn, &[1, 2]),
            12 => _ = system.start(thread, Call::ThreadWait, &[0, 0, 0]),
            13 => _ = system.server.handle(&mut system.platform, Event::Poll),
            14 if rng.one_in(20) => _ = system.start(thread, Call::ObjDelete, &[service]),
            14 => _ = system.start(thread, Call::ObjCreate, &[1 << 60, 0]),
            _ => _ = system.start(thread, Call::SemCreate, &[rng.below(100) * 8 + image + 2 * PAGE, 1]),
        }
    }
    for _ in 0..4 {
        let left: Vec<ThreadId> = system.server.threads.iter().map(|record| record.id).collect();
        for thread in left.into_iter().filter(|&thread| thread != first) {
            let _ = system.call(first, Call::ThreadDelete, &[thread.0, 0]);
        }
        for _ in 0..150 {
            if system.server.threads.iter().all(|record| record.doom.is_none()) {
                break;
            }
            system.pass_to_others();
        }
        system.finish_work();
        while system.call(first, Call::ThreadWait, &[0, 0, 0]).is_ok() {}
    }
    system.quiesce();
    while system.call(first, Call::ThreadWait, &[0, 0, 0]).is_ok() {}
    system.quiesce();
    system.check();
    assert_eq!(system.server.threads.iter().count(), 1, "seed {seed}");
    assert_eq!(system.server.ledger.count(), 3, "seed {seed}");
    assert_eq!(system.server.semaphores.count(), 0, "seed {seed}");
}

/// A domain with hundreds of merged callees drops what it knows. All of them do, in pieces that get on, and then nothing is left to be done.
#[test]
fn all_merged_callees_of_a_domain_forget() {
    const IMAGES: u64 = 24;
    const EACH: u64 = 16;
    const EACH_EVENT: u64 = 12;
    let mut system = System::boot_with(80, 32768, 16384);
    let first = system.first;
    let client = system.task(first);
    for _ in 0..IMAGES {
        let image = system.image(client);
        let (entries, _) = system.object(client, 1);
        for number in 0..EACH {
            let entry = image + ENTRY + 16 * number;
            system.set_word(client, entries, entry).unwrap();
            let arguments = [image, 100 + number, 0, entries, 1];
            system.call(client, Call::ObjCrePdx, &arguments).unwrap();
            let entered = system.start(client, Call::PdxCall, &[entry, 1, PD_MERGE]);
            assert_eq!(entered, Answer::Elsewhere);
            system.touch(client, entry, Touch::Execute).unwrap();
            assert_eq!(system.start(client, Call::PdxReturn, &[0, 0]), Answer::Elsewhere);
        }
        system.call(client, Call::ObjDelete, &[entries]).unwrap();
    }
    assert!(system.server.callees.count() as u64 >= IMAGES * EACH);
    // Each has its space flushed and its calls forgotten, so few of them fit into an event.
    let events = flush(&mut system, client);
    assert!(events > IMAGES * EACH / EACH_EVENT, "{events} events");
}

/// The same where each is merged with the one before it. Each piece goes down from the first to the last that it has come to, and gets on.
#[test]
fn a_chain_of_merged_callees_forgets() {
    let mut system = System::boot_with(81, 32768, 16384);
    let first = system.first;
    let client = system.task(first);
    for password in 0..CALL_DEPTH_MAX as u64 {
        let image = system.image(client);
        let (entries, _) = system.object(client, 1);
        system.set_word(client, entries, image + ENTRY).unwrap();
        let arguments = [image, 100 + password, 0, entries, 1];
        system.call(client, Call::ObjCrePdx, &arguments).unwrap();
        // From deep down the search takes several events.
        let entered = match system.start(client, Call::PdxCall, &[image + ENTRY, 1, PD_MERGE]) {
            Answer::Blocked => system.wait_for(client),
            entered => entered,
        };
        assert_eq!(entered, Answer::Elsewhere);
        system.touch(client, image + ENTRY, Touch::Execute).unwrap();
    }
    for _ in 0..CALL_DEPTH_MAX {
        assert_eq!(system.start(client, Call::PdxReturn, &[0, 0]), Answer::Elsewhere);
    }
    let events = flush(&mut system, client);
    assert!(events < 2 * CALL_DEPTH_MAX as u64, "{events} events");
}

/// `ApdFlush`, event by event; tells how many it took.
fn flush(system: &mut System, client: ThreadId) -> u64 {
    system.run(client);
    let mut resumed = Resumed::First;
    for event in 0.. {
        assert!(event < 500, "it does not end");
        let call = Event::Call {
            thread: client,
            number: Call::ApdFlush as u64,
            arguments: [0; 6],
            resumed,
        };
        match system.server.handle(&mut system.platform, call) {
            Outcome::Return(result) => {
                assert_eq!(result, Ok((0, 0)));
                system.finish_work();
                system.server.check(&system.platform).unwrap();
                return event;
            }
            other => assert_eq!(other, Outcome::Again),
        }
        resumed = Resumed::Woken;
    }
    unreachable!("it ended, or the test did")
}

/// A client within so many calls that are merged with one another, each callee with a stack of its own.
fn line_of_callees(system: &mut System, length: usize) -> ThreadId {
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    for _ in 0..length {
        let entered = match system.enter(client, service.image + ENTRY, PD_MERGE) {
            Answer::Blocked => system.wait_for(client),
            entered => entered,
        };
        assert_eq!(entered, Answer::Elsewhere);
        let stack = system.platform.thread_context(client).rsp;
        system.set_word(client, stack - 8, 1).unwrap();
    }
    client
}

/// Polls, far more than the work that there is takes.
fn polls(system: &mut System) {
    for _ in 0..40 * CALL_DEPTH_MAX {
        system.server.handle(&mut system.platform, Event::Poll);
    }
}

/// Each callee of a line waits for the one that it called. These turns cost the same in every round of the list, so the deepest must not depend on
/// what they leave of an event.
#[test]
fn a_line_of_merged_callees_ends_however_long_it_is() {
    for price in PRICES {
        for length in 1..CALL_DEPTH_MAX {
            let mut system = System::boot_with(61, 8192, 16384);
            system.server.price_calls(price);
            let client = line_of_callees(&mut system, length);
            (0..length).for_each(|_| system.leave(client, 0));
            system.exit(client, 0);
            polls(&mut system);
            assert!(system.server.work.is_empty(), "{length} callees, {price} for a call");
        }
    }
}

/// The thread that flushes the head of a line may be killed after the first piece. The polls do the rest, though other looks take a part of each.
#[test]
fn a_line_of_merged_callees_forgets_though_its_caller_is_gone() {
    for price in PRICES {
        for (length, retired) in [(24, 1), (CALL_DEPTH_MAX, 0), (CALL_DEPTH_MAX, 1), (CALL_DEPTH_MAX, 40)] {
            let mut system = System::boot_with(62, 32_768, 16_384);
            let client = line_of_callees(&mut system, length);
            (0..length).for_each(|_| system.leave(client, 0));
            let entry = system.image_of(client) + ENTRY;
            let other = ThreadId(system.call(client, Call::ThreadCreate, &[entry, 0, 3]).unwrap().0);
            system.retired_callees(retired);
            system.finish_work();
            system.server.price_calls(price);
            system.run(other);
            let flush = Event::Call {
                thread: other,
                number: Call::ApdFlush as u64,
                arguments: [0; 6],
                resumed: Resumed::First,
            };
            assert_eq!(system.server.handle(&mut system.platform, flush), Outcome::Again);
            system.platform.kernel.again(None);
            system.run(client);
            system.start(client, Call::ThreadDelete, &[other.0, 0]);
            polls(&mut system);
            let length = format_args!("{length} callees, {retired} retired ones");
            assert!(system.server.work.is_empty(), "{length}, {price} for a call");
        }
    }
}

/// The looks of the polls go round all places. An event pays for so many of them, and must not pass the same one in each round.
#[test]
fn a_retired_callee_ends_wherever_it_stands() {
    for (price, guests) in PRICES
        .into_iter()
        .flat_map(|price| (6..23).map(move |guests| (price, guests)))
    {
        for before in (0..64).step_by(3) {
            let mut system = System::boot_with(777, 16_384, 16_384);
            let first = system.first;
            for _ in 0..before {
                system.task(first);
            }
            let client = system.retired_callees(1 + guests)[0];
            system.finish_work();
            system.server.price_calls(price);
            system.leave(client, 0);
            for _ in 0..100 {
                system.server.handle(&mut system.platform, Event::Poll);
            }
            let left = system.server.callees.count();
            assert_eq!(left, guests, "behind {before} tasks, {price} for a call");
        }
    }
}

/// While the domains of a line forget one after the other, the kernel must not remember a call that the change has taken from those behind.
#[test]
fn no_call_that_was_taken_away_is_remembered_between_two_pieces() {
    let mut system = System::boot_with(81, 32_768, 16_384);
    let first = system.first;
    // A procedure that the client may call because it holds the object.
    let (target, owner) = system.call(first, Call::ObjClone, &[FIRST_PROGRAM, PAGE, 0]).unwrap();
    let (list, _) = system.clist(first, &[]);
    system.register(first, target, list);
    let client = system.client(&[(target, owner)]);
    let entry = system.image_of(client) + ENTRY;
    let other = ThreadId(system.call(client, Call::ThreadCreate, &[entry, 0, 3]).unwrap().0);
    let mut last = 0;
    for password in 100..140 {
        let image = system.image(client);
        let (entries, _) = system.object(client, 1);
        system.set_word(client, entries, image + ENTRY).unwrap();
        system
            .call(client, Call::ObjCrePdx, &[image, password, 0, entries, 1])
            .unwrap();
        assert_eq!(system.enter(client, image + ENTRY, PD_MERGE), Answer::Elsewhere);
        system.leave(client, 0);
        last = last.max(image);
    }
    // Inside of the one that forgets last.
    assert_eq!(system.enter(client, last + ENTRY, PD_MERGE), Answer::Elsewhere);
    assert_eq!(system.enter(client, target + ENTRY, PD_EMPTY), Answer::Elsewhere);
    system.leave(client, 0);
    system.run(other);
    let delete = |resumed| Event::Call {
        thread: other,
        number: Call::ApdDelete as u64,
        arguments: [0; 6],
        resumed,
    };
    assert_eq!(
        system.server.handle(&mut system.platform, delete(Resumed::First)),
        Outcome::Again
    );
    // The domain inherits until its turn comes. A call now is one from before.
    system.run(client);
    if system.enter(client, target + ENTRY, PD_EMPTY) == Answer::Elsewhere {
        system.leave(client, 0);
    }
    system.run(other);
    while system.server.handle(&mut system.platform, delete(Resumed::Woken)) == Outcome::Again {}
    system.run(client);
    assert_ne!(system.enter(client, target + ENTRY, PD_EMPTY), Answer::Elsewhere);
}

/// A caller that waits for a stack is told at once when the password goes, though those inside stay.
#[test]
fn who_waits_for_a_stack_is_told_when_the_password_goes() {
    let mut system = System::boot(46);
    let first = system.first;
    let service = system.service(first);
    let clients: Vec<_> = (0..33)
        .map(|_| system.client(&[(service.image, service.password)]))
        .collect();
    for &client in &clients {
        system.enter(client, service.image + ENTRY, PD_EMPTY);
    }
    system.pump();
    assert!(system.late.is_empty());
    system
        .call(first, Call::ObjPasswd, &[service.image, service.password, 0])
        .unwrap();
    system.pump();
    assert_eq!(system.late.len(), 1);
    assert_eq!(system.depth(clients[0]), 1);
}
