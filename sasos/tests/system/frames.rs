//! The frame of a protected call holds all that belongs to it: handlers, pauses, ends, and who somebody is.

use abi::{
    Call, Error,
    layout::{
        EXCEPTION_ARITHMETIC, EXCEPTION_KILL, EXCEPTION_PROTECTION, FOREVER, PD_EMPTY, PD_MERGE, RESUME_RETRY,
        STATUS_SYSTEM,
    },
};
use kcore::{Machine, ThreadId};
use sasos::{Event, Outcome, accounts::Resource};

use crate::harness::{Answer, ENTRY, PRICES, PROGRAM_PAGES, System, Trouble};

/// A client that calls from its own exception handler switches none of the service's off.
#[test]
fn a_callee_has_its_handlers_whatever_its_caller_is_doing() {
    let mut system = System::boot(150);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let own = system.image_of(client) + ENTRY + 64;
    let theirs = service.image + ENTRY + 256;
    system
        .call(client, Call::ExcptReg, &[EXCEPTION_PROTECTION, own])
        .unwrap();
    // The service's handler stands in its domain.
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    system
        .call(client, Call::ExcptReg, &[EXCEPTION_PROTECTION, theirs])
        .unwrap();
    system.leave(client, 0);
    let before = system.platform.thread_context(client);
    assert_eq!(system.word(client, service.secret), Err(Trouble::Elsewhere));
    assert_eq!(system.platform.thread_context(client).rip, own);
    for round in 0..3 {
        assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        assert_eq!(system.set_word(client, 4, 4), Err(Trouble::Elsewhere));
        assert_eq!(system.platform.thread_context(client).rip, theirs, "round {round}");
        // A second one in the same call is not handled; the call ends, and the handler's caller is where it was.
        if round == 1 {
            assert_eq!(system.set_word(client, 4, 4), Err(Trouble::Elsewhere));
            assert_eq!(
                (system.depth(client), system.call_error(client)),
                (0, Some(Error::CalleeFault))
            );
            continue;
        }
        if round == 2 {
            assert_eq!(
                system.start(client, Call::ExcptReturn, &[RESUME_RETRY, 0]),
                Answer::Elsewhere
            );
        }
        system.leave(client, 0);
    }
    // Its own is still the one that runs.
    assert_eq!(
        system.start(client, Call::ExcptReturn, &[RESUME_RETRY, 0]),
        Answer::Elsewhere
    );
    assert_eq!(system.platform.thread_context(client), before);
    assert_eq!(
        system.start(client, Call::ExcptReturn, &[RESUME_RETRY, 0]),
        Answer::Done(Err(Error::NoHandler))
    );
    system.check_to_the_end();
}

/// A service's sleep is the service's, whoever's thread sleeps.
#[test]
fn nobody_outside_wakes_a_thread_that_sleeps_in_a_service() {
    let mut system = System::boot(151);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    assert_eq!(
        system.start(client, Call::ThreadSleep, &[0, 500_000_000]),
        Answer::Blocked
    );
    system.call(first, Call::ThreadResume, &[client.0]).unwrap();
    system.pump();
    assert!(!system.late.contains_key(&client), "it sleeps");
    // Its end does not either.
    system.call(first, Call::ThreadDelete, &[client.0, 3]).unwrap();
    system.pump();
    assert!(!system.late.contains_key(&client), "it sleeps");
    system.pass(500_000_000);
    assert_eq!(system.late.remove(&client), Some(Answer::Done(Ok((0, 0)))));
    assert_eq!(system.start(client, Call::PdxReturn, &[]), Answer::Gone);
    assert_eq!(system.reap(first, client), Ok(3));
    // At home it is its parent's to wake.
    let sleeper = system.task(first);
    assert_eq!(system.start(sleeper, Call::ThreadSleep, &[0, FOREVER]), Answer::Blocked);
    system.call(first, Call::ThreadResume, &[sleeper.0]).unwrap();
    system.pump();
    assert_eq!(system.late.remove(&sleeper), Some(Answer::Done(Ok((0, 0)))));
    system.check_to_the_end();
}

/// Others that keep the processor busy do not use up the time that a condemned thread has.
#[test]
fn a_spinning_sibling_takes_no_time_from_a_critical_section() {
    let mut system = System::boot(152);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
    for _ in 0..10 {
        system.spin(first, 1_000_000_000);
    }
    assert_eq!(system.depth(client), 1, "it had no time yet");
    assert_eq!(system.word(client, service.secret), Ok(1234));
    assert_eq!(system.start(client, Call::PdxReturn, &[]), Answer::Gone);
    assert_eq!(system.reap(first, client), Ok(6));
    system.check_to_the_end();
}

/// Sleep between the looks at a condemned thread counts, also if it is awake at each of them.
#[test]
fn a_condemned_thread_that_is_awake_at_each_look_has_its_second_too() {
    const ROUND_NS: u64 = 100_000_000;
    let mut system = System::boot(158);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
    let sleep = |system: &mut System| {
        let answer = system.start(client, Call::ThreadSleep, &[0, ROUND_NS]);
        assert_eq!(answer, Answer::Blocked);
        system.pass(ROUND_NS);
        system.late.remove(&client) == Some(Answer::Done(Ok((0, 0))))
    };
    for _ in 0..5 {
        assert!(sleep(&mut system));
    }
    // Others' time in between does not count.
    for _ in 0..100 {
        system.spin(first, ROUND_NS);
    }
    let slept = (0..100).take_while(|_| sleep(&mut system)).count();
    assert_eq!(slept, 4, "it ends in the tenth tenth of its second");
    assert_eq!(system.reap(first, client), Ok(6));
    system.check_to_the_end();
}

/// A service is told before a thread is taken out of it, and one call is unwound at a time.
#[test]
fn a_service_is_told_before_a_thread_is_torn_out() {
    for (waits, seed) in [(false, 153), (true, 154)] {
        let mut system = System::boot(seed);
        let first = system.first;
        let outer = system.service(first);
        let inner = system.service(first);
        let client = system.client(&[(outer.image, outer.password), (inner.image, inner.password)]);
        let (handler, silent) = (inner.image + ENTRY + 256, system.image_of(client) + ENTRY);
        assert_eq!(system.enter(client, outer.image + ENTRY, PD_MERGE), Answer::Elsewhere);
        assert_eq!(system.enter(client, inner.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        system.call(client, Call::ExcptReg, &[EXCEPTION_KILL, handler]).unwrap();
        let (semaphore, _) = system.object(client, 1);
        system.call(client, Call::SemCreate, &[semaphore, 0]).unwrap();
        if waits {
            assert_eq!(
                system.start(client, Call::SemWait, &[semaphore, FOREVER]),
                Answer::Blocked
            );
        }
        let before = system.platform.thread_context(client);
        system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
        let pass = |system: &mut System, ns| {
            if waits {
                system.pass(ns);
            } else {
                system.spin(client, ns);
            }
        };
        pass(&mut system, 900_000_000);
        assert_eq!(system.platform.thread_context(client).rip, before.rip);
        pass(&mut system, 200_000_000);
        let told = system.platform.thread_context(client);
        assert_eq!((told.rip, told.rdi), (handler, EXCEPTION_KILL));
        assert_eq!(system.word(client, inner.secret), Ok(1234), "it is at home there");
        // It goes on; the wait is over.
        assert_eq!(
            system.start(client, Call::ExcptReturn, &[RESUME_RETRY, 0]),
            Answer::Elsewhere
        );
        let after = system.platform.thread_context(client);
        assert_eq!((after.rip, after.rsp), (before.rip, before.rsp));
        if waits {
            assert_eq!(system.call_error(client), Some(Error::TimedOut));
        } else {
            assert_eq!(after, before);
        }
        is_unwound_after_its_second(&mut system, client);
        assert_eq!(system.word(client, outer.secret), Ok(1234));
        system.spin(client, 1_100_000_000);
        assert_eq!(
            system.reap(first, client),
            Ok(6),
            "{silent:#x} is told nothing: it ends"
        );
        system.check_to_the_end();
    }
}

/// The inner of two calls has a second of its own, and is unwound then.
fn is_unwound_after_its_second(system: &mut System, client: ThreadId) {
    system.spin(client, 900_000_000);
    assert_eq!(system.depth(client), 2);
    system.spin(client, 200_000_000);
    assert_eq!(
        (system.depth(client), system.call_error(client)),
        (1, Some(Error::CalleeFault))
    );
}

/// A condemned thread that calls again and again ends all the same, and no call is cut off before its own bound.
#[test]
fn a_condemned_thread_that_calls_on_and_on_ends() {
    let mut system = System::boot(156);
    let first = system.first;
    let outer = system.service(first);
    let inner = system.service(first);
    let client = system.client(&[(outer.image, outer.password), (inner.image, inner.password)]);
    let enter = |system: &mut System| system.enter(client, inner.image + ENTRY, PD_EMPTY);
    assert_eq!(system.enter(client, outer.image + ENTRY, PD_MERGE), Answer::Elsewhere);
    system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
    // Calls that return in time are no way to gain any.
    for _ in 0..3 {
        assert_eq!(enter(&mut system), Answer::Elsewhere);
        system.spin(client, 300_000_000);
        assert_eq!(system.start(client, Call::PdxReturn, &[]), Answer::Elsewhere);
    }
    // The last call is made just before the outer one's time is up, and has its own second.
    assert_eq!(enter(&mut system), Answer::Elsewhere);
    system.spin(client, 200_000_000);
    assert_eq!(system.depth(client), 2, "the inner call has only begun");
    let deeper = system.enter(client, outer.image + ENTRY, PD_EMPTY);
    assert_eq!(deeper, Answer::Done(Err(Error::TooDeep)), "there are no further calls");
    is_unwound_after_its_second(&mut system, client);
    assert_eq!(enter(&mut system), Answer::Done(Err(Error::TooDeep)));
    system.spin(client, 1_100_000_000);
    assert_eq!(system.reap(first, client), Ok(6));
    system.check_to_the_end();
}

/// Numbers of spaces are used again; what was made under one is nobody's child then.
#[test]
fn a_later_domain_of_the_same_number_is_not_the_parent() {
    let mut system = System::boot(155);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    let number = system.platform.thread_space(client);
    let worker_image = system
        .call(client, Call::ObjClone, &[service.image, 4096, 0])
        .expect("it owns its image")
        .0;
    let start = worker_image + PROGRAM_PAGES * 4096;
    let worker = system
        .call(client, Call::TaskCreate, &[worker_image + ENTRY, start, 0, 0, 3])
        .expect("a worker")
        .0;
    system.leave(client, 0);
    assert_eq!(
        system.call(client, Call::ThreadDelete, &[worker, 0]),
        Err(Error::NoSuchThread),
        "it is the callee's"
    );
    // The service is registered anew, and its first domain goes.
    system
        .call(first, Call::ObjPasswd, &[service.image, service.password, 0])
        .unwrap();
    system.pass(1);
    let (clist, _) = system.clist(client, &[]);
    let image = system.image_of(client);
    system.register(client, image, clist);
    let mut met = false;
    for pd in [PD_EMPTY, PD_MERGE] {
        assert_eq!(system.enter(client, image + ENTRY, pd), Answer::Elsewhere);
        if system.platform.thread_space(client) == number {
            met = true;
            for call in [Call::ThreadDelete, Call::ThreadResume, Call::ConsoleForeground] {
                assert_eq!(
                    system.call(client, call, &[worker, 0]),
                    Err(Error::NoSuchThread),
                    "{call:?}"
                );
            }
            assert_eq!(
                system.call(client, Call::ThreadWait, &[worker, 0, 0]),
                Err(Error::NoSuchThread)
            );
            assert_eq!(
                system.call(client, Call::ThreadWait, &[0, 0, 0]),
                Err(Error::NoSuchThread)
            );
        }
        system.leave(client, 0);
    }
    assert!(met, "the number is used again");
    // It is an orphan now: the first task may end it, and nothing is left of it.
    system.call(first, Call::ThreadDelete, &[worker, 0]).unwrap();
    assert!(system.server.threads.find(kcore::ThreadId(worker)).is_none());
    system.check_to_the_end();
}

/// As many handlers as calls, and all of them gone with the thread.
#[test]
fn handlers_nest_as_deeply_as_calls_do() {
    let mut system = System::boot(156);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let handler = service.image + ENTRY + 256;
    // The accounts of the client and of the service's callee, and the bytes that each is charged.
    let bytes = |system: &mut System| {
        let home = system.server.threads.find(client).expect("the client").domain;
        let inside = system.platform.thread_space(client);
        system.server.ledger.empty_all_hands();
        [home, inside].map(|space| {
            let account = system.server.domains.get(space).expect("a domain").account;
            system.server.ledger.used(account, Resource::Bytes)
        })
    };
    let mut depth = 0;
    loop {
        match system.enter(client, service.image + ENTRY, PD_EMPTY) {
            Answer::Elsewhere => depth += 1,
            other => {
                assert_eq!(other, Answer::Done(Err(Error::TooDeep)));
                break;
            }
        }
        system
            .call(client, Call::ExcptReg, &[EXCEPTION_ARITHMETIC, handler])
            .unwrap();
        let event = Event::Exception {
            thread: client,
            kind: EXCEPTION_ARITHMETIC,
            address: 0,
        };
        let before = bytes(&mut system);
        system.run(client);
        assert_eq!(system.server.handle(&mut system.platform, event), Outcome::Resume);
        assert_eq!(system.depth(client), depth);
        // The service has paid for the state that its handler interrupts with the stack, and a client pays nothing of it.
        assert_eq!(bytes(&mut system), before);
    }
    assert_eq!(depth, abi::layout::CALL_DEPTH_MAX);
    for _ in 0..depth / 2 {
        system.leave(client, 0);
    }
    let status = STATUS_SYSTEM + EXCEPTION_PROTECTION;
    for left in (0..depth / 2).rev() {
        assert_eq!(system.set_word(client, 4, 4), Err(Trouble::Elsewhere));
        assert_eq!(system.depth(client), left);
    }
    assert_eq!(system.set_word(client, 4, 4), Err(Trouble::Ended));
    assert_eq!(system.reap(first, client), Ok(status));
    system.check_to_the_end();
}

/// Procedures whose password is gone, and which threads are inside of, cost each poll a look. They keep no thread that is to end from that.
#[test]
fn retired_callees_keep_no_condemned_thread() {
    for (price, retired) in [(0, 0), (0, 16), (0, 70), (PRICES[1], 1), (PRICES[1], 20)] {
        let mut system = System::boot_with(777, 8192, 16384);
        let first = system.first;
        system.retired_callees(retired);
        let service = system.service(first);
        let client = system.client(&[(service.image, service.password)]);
        assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
        system.server.price_calls(price);
        let ends = (0..40).any(|_| {
            system.spin(client, 600_000_000);
            system.depth(client) == 0
        });
        assert!(ends, "{retired} retired procedures, {price} a call");
    }
}

/// Many threads are to end at the same time. The polls look at a few of them each, and come again at once until all were looked at.
#[test]
fn condemned_threads_do_not_wait_for_each_other() {
    for price in PRICES {
        let mut system = System::boot_with(778, 16_384, 16_384);
        let first = system.first;
        let clients: Vec<_> = (0..60)
            .map(|_| {
                let service = system.service(first);
                let client = system.client(&[(service.image, service.password)]);
                assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
                assert_eq!(
                    system.start(client, Call::ThreadSleep, &[0, u64::MAX / 2]),
                    Answer::Blocked
                );
                client
            })
            .collect();
        for client in &clients {
            system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
        }
        system.server.price_calls(price);
        // Three rounds: the bound may begin within the first, and ends with the second.
        for _ in 0..3 {
            system.pass(sasos::lives::doom::UNWIND_BOUND_NS);
            let polls = (0..1000).take_while(|_| {
                system.server.handle(&mut system.platform, Event::Poll);
                system.server.is_unfinished()
            });
            assert!(polls.count() < 1000, "it comes to rest");
        }
        let inside = clients.iter().filter(|&&client| system.depth(client) > 0).count();
        assert_eq!(inside, 0, "{price} a call");
    }
}
