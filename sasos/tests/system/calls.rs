//! Protected calls: the callee's domain, nesting, faults, ends in the middle of it all.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{ApdDescription, FOREVER, INFO_USED, PD_EMPTY, PD_MERGE, THREAD_WAITING, ThreadReport, UNMAP_REPLACE},
};
use kcore::{Machine, ThreadId};
use sim::machine::Touch;

use crate::harness::{Answer, ENTRY, System, Trouble};

/// A service: a persistent-looking object with code, data of its own, and an entry.
pub struct Service {
    /// The task that made it, with all rights on everything.
    pub owner: ThreadId,
    /// The image that is entered.
    pub image: u64,
    /// The object that only the callee's domain can reach.
    pub secret: u64,
    /// The PDX password.
    pub password: u64,
    /// The registered Clist.
    pub clist: u64,
}

impl System {
    pub fn service(&mut self, owner: ThreadId) -> Service {
        let (image, image_password) = self
            .call(owner, Call::ObjClone, &[abi::address::FIRST_PROGRAM, PAGE, 0])
            .unwrap();
        let (secret, secret_password) = self.object(owner, 1);
        self.set_word(owner, secret, 1234).unwrap();
        let (clist, _) = self.clist(owner, &[(image, image_password), (secret, secret_password)]);
        let password = self.register(owner, image, clist);
        Service {
            owner,
            image,
            secret,
            password,
            clist,
        }
    }

    /// Threads inside of so many procedures that are registered no more: the polls look at them again and again.
    pub fn retired_callees(&mut self, count: usize) -> Vec<ThreadId> {
        let first = self.first;
        let (clients, services): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let service = self.service(first);
                let client = self.client(&[(service.image, service.password)]);
                assert_eq!(self.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
                (client, service)
            })
            .unzip();
        for service in services {
            let revoked = [service.image, service.password, 0];
            self.call(first, Call::ObjPasswd, &revoked).unwrap();
        }
        clients
    }

    /// Registers the entry point of an image.
    pub fn register(&mut self, owner: ThreadId, image: u64, clist: u64) -> u64 {
        let (entries, _) = self.object(owner, 1);
        self.set_word(owner, entries, image + ENTRY).unwrap();
        let (password, _) = self
            .call(owner, Call::ObjCrePdx, &[image, 0, clist, entries, 1])
            .unwrap();
        self.call(owner, Call::ObjDelete, &[entries]).unwrap();
        password
    }

    /// A child of the first task that holds these capabilities, beside the root Clist.
    pub fn client(&mut self, capabilities: &[(u64, u64)]) -> ThreadId {
        let first = self.first;
        let (clist, _) = self.clist(first, capabilities);
        self.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        let client = self.task(first);
        self.call(first, Call::ApdDelete, &[0]).unwrap();
        client
    }

    pub fn enter(&mut self, thread: ThreadId, entry: u64, pd: u64) -> Answer {
        self.start(thread, Call::PdxCall, &[entry, 11, pd, 12, 13, 14])
    }

    pub fn leave(&mut self, thread: ThreadId, result: u64) {
        assert_eq!(self.start(thread, Call::PdxReturn, &[result, 1]), Answer::Elsewhere);
        let context = self.platform.thread_context(thread);
        assert_eq!((context.rax, context.rdx, context.rsi), (0, result, 1));
    }

    pub fn depth(&self, thread: ThreadId) -> usize {
        self.platform.portal_depth(thread)
    }

    /// The error that a protected call came back with.
    pub fn call_error(&self, thread: ThreadId) -> Option<Error> {
        Error::from_code(self.platform.thread_context(thread).rax)
    }
}

#[test]
fn a_callee_sees_its_clist_and_nothing_else() {
    let mut system = System::boot(40);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let (own, _) = system.object(client, 1);
    system.set_word(client, own, 5).unwrap();
    assert_eq!(
        system.enter(client, service.image + ENTRY + 1, PD_EMPTY),
        Answer::Done(Err(Error::NotAnEntry))
    );
    assert_eq!(
        system.enter(client, own, PD_EMPTY),
        Answer::Done(Err(Error::NotAnEntry))
    );
    assert_eq!(system.enter(client, 3, PD_EMPTY), Answer::Done(Err(Error::BadAddress)));
    assert_eq!(
        system.start(client, Call::PdxReturn, &[]),
        Answer::Done(Err(Error::NotInCall))
    );
    let caller = system.platform.thread_context(client);
    for round in 0..3 {
        let home = system.platform.thread_space(client);
        assert_eq!(
            system.enter(client, service.image + ENTRY, PD_EMPTY),
            Answer::Elsewhere,
            "round {round}"
        );
        let context = system.platform.thread_context(client);
        assert_eq!(
            (context.rip, context.rdi, context.rsi, context.rdx, context.r10),
            (service.image + ENTRY, 11, 12, 13, 14)
        );
        assert_ne!(context.rsp, caller.rsp);
        assert_ne!(system.platform.thread_space(client), home);
        system.touch(client, context.rip, Touch::Execute).unwrap();
        system.set_word(client, context.rsp - 8, round).unwrap();
        assert_eq!(system.word(client, service.secret), Ok(1234 + round));
        system.set_word(client, service.secret, 1235 + round).unwrap();
        // Neither the caller's object nor his stack is there, and a callee is not his task.
        assert_eq!(
            system.call(client, Call::ApdLookup, &[own, Rights::R.bits().into()]),
            Err(Error::Protection)
        );
        assert_eq!(
            system.call(client, Call::ApdLookup, &[caller.rsp - 8, Rights::R.bits().into()]),
            Err(Error::Protection)
        );
        assert_eq!(
            system.call(client, Call::ThreadCreate, &[context.rip, 0, 3]),
            Err(Error::Protection)
        );
        assert_eq!(
            system.call(client, Call::ThreadSleep, &[first.0, FOREVER]),
            Err(Error::NoSuchThread)
        );
        system.leave(client, 99);
        assert_eq!(system.platform.thread_context(client).rsp, caller.rsp);
        assert_eq!(system.platform.thread_space(client), home);
        assert_eq!(
            system.call(client, Call::ApdLookup, &[service.secret, Rights::R.bits().into()]),
            Err(Error::Protection)
        );
    }
    system.check_to_the_end();
}

#[test]
fn a_merged_callee_reads_through_and_never_writes_back() {
    let mut system = System::boot(41);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let (own, _) = system.object(client, 1);
    system.set_word(client, own, 5).unwrap();
    let other = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_MERGE), Answer::Elsewhere);
    assert_eq!(system.word(client, own), Ok(5));
    assert_eq!(system.word(client, service.secret), Ok(1234));
    let derived = system.platform.thread_space(client);
    assert_eq!(system.enter(other, service.image + ENTRY, PD_MERGE), Answer::Elsewhere);
    assert_ne!(
        system.platform.thread_space(other),
        derived,
        "each caller's domain has its own"
    );
    assert_eq!(
        system.call(other, Call::ApdLookup, &[own, Rights::R.bits().into()]),
        Err(Error::Protection)
    );
    system.check();
    // The callee loses what the caller loses.
    let sibling = {
        system.leave(client, 0);
        let image = system.image_of(client);
        ThreadId(
            system
                .call(client, Call::ThreadCreate, &[image + ENTRY, 0, 3])
                .unwrap()
                .0,
        )
    };
    assert_eq!(system.enter(client, service.image + ENTRY, PD_MERGE), Answer::Elsewhere);
    assert_eq!(system.platform.thread_space(client), derived);
    assert_eq!(system.word(client, own), Ok(5));
    system.call(sibling, Call::ObjDelete, &[own]).unwrap();
    assert_eq!(system.word(client, own), Err(Trouble::Elsewhere));
    assert_eq!(system.call_error(client), Some(Error::CalleeFault));
    assert_eq!(
        system.call(client, Call::ApdLookup, &[service.secret, Rights::R.bits().into()]),
        Err(Error::Protection)
    );
    // The derived domain goes with the caller's.
    let domains = system.server.domains.count();
    system.exit(client, 0);
    system.exit(sibling, 0);
    system.finish_work();
    assert_eq!(system.server.domains.count(), domains - 2);
    system.check_to_the_end();
}

#[test]
fn info_of_used_rights_searches_no_further() {
    let mut system = System::boot(41);
    let first = system.first;
    let (object, strong) = system.object(first, 1);
    let weak = [object, 0, u64::from(Rights::R.bits())];
    let weak = system.call(first, Call::ObjPasswd, &weak).unwrap().0;
    let client = system.client(&[(object, weak), (object, strong)]);
    let (buffer, _) = system.object(client, 1);
    let mut told = |flags| {
        system.call(client, Call::ObjInfo, &[object, flags, buffer, PAGE])?;
        Ok::<_, Error>(system.word(client, buffer + 16).unwrap())
    };
    let [read, owner] = [Rights::R, Rights::OWNER].map(|rights| u64::from(rights.bits()));
    assert_eq!(told(INFO_USED), Ok(read));
    assert_eq!(told(0), Ok(owner));
    // Rights that were found stay known.
    assert_eq!(told(INFO_USED), Ok(owner));
    assert_eq!(told(INFO_USED << 1), Err(Error::BadArgument));
}

#[test]
fn an_explicit_apd_extends_the_callee() {
    let mut system = System::boot(42);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let (shown, shown_password) = system.object(client, 1);
    let (clist, _) = system.clist(client, &[(shown, shown_password)]);
    let (buffer, _) = system.object(client, 1);
    let mut description = ApdDescription {
        count: 1,
        locked: 0,
        ..ApdDescription::default()
    };
    description.slots[0] = clist;
    system.set_word(client, buffer, description.count).unwrap();
    system.set_word(client, buffer + 16, description.slots[0]).unwrap();
    let mut spaces = Vec::new();
    for _ in 0..2 {
        assert_eq!(system.enter(client, service.image + ENTRY, buffer), Answer::Elsewhere);
        spaces.push(system.platform.thread_space(client));
        assert_eq!(system.word(client, shown), Ok(0));
        assert_eq!(system.word(client, service.secret), Ok(1234));
        assert_eq!(
            system.call(client, Call::ApdInsert, &[0, clist]),
            Err(Error::Locked),
            "callees do not change their domain"
        );
        system.leave(client, 0);
    }
    assert_eq!(spaces[0], spaces[1]);
    // A Clist that the caller cannot read.
    system.set_word(client, buffer + 16, service.clist).unwrap();
    assert_eq!(
        system.enter(client, service.image + ENTRY, buffer),
        Answer::Done(Err(Error::Protection))
    );
    system.set_word(client, buffer, 40).unwrap();
    assert_eq!(
        system.enter(client, service.image + ENTRY, buffer),
        Answer::Done(Err(Error::BadArgument))
    );
    assert_eq!(
        system.enter(client, service.image + ENTRY, 17),
        Answer::Done(Err(Error::BadAddress))
    );
    system.check_to_the_end();
}

#[test]
fn calls_nest_until_they_are_too_deep() {
    let mut system = System::boot(43);
    let first = system.first;
    let one = system.service(first);
    let client = system.client(&[(one.image, one.password)]);
    // The service may call itself: its Clist gets its own P capability.
    let (image, image_password) = (
        one.image,
        system.call(first, Call::ObjPasswd, &[one.image, 0, 15]).unwrap().0,
    );
    system.clist_fill(first, one.clist, &[(image, image_password), (image, one.password)]);
    for depth in 1..=32 {
        assert_eq!(
            system.enter(client, one.image + ENTRY, PD_EMPTY),
            Answer::Elsewhere,
            "depth {depth}"
        );
        let stack = system.platform.thread_context(client).rsp;
        system.set_word(client, stack - 8, depth).unwrap();
    }
    assert_eq!(
        system.enter(client, one.image + ENTRY, PD_EMPTY),
        Answer::Done(Err(Error::TooDeep))
    );
    // A fault takes back one call at a time.
    assert_eq!(system.set_word(client, 8, 1), Err(Trouble::Elsewhere));
    assert_eq!(
        (system.depth(client), system.call_error(client)),
        (31, Some(Error::CalleeFault))
    );
    // "Ending oneself" inside of a callee ends the call.
    assert_eq!(system.start(client, Call::ThreadDelete, &[0, 7]), Answer::Elsewhere);
    assert_eq!(
        (system.depth(client), system.call_error(client)),
        (30, Some(Error::CalleeFault))
    );
    for left in (0..30).rev() {
        system.leave(client, left);
        assert_eq!(system.depth(client) as u64, left);
    }
    system.check_to_the_end();
}

#[test]
fn one_client_leaves_stacks_to_others() {
    let mut system = System::boot_with(45, 16384, 16384);
    let first = system.first;
    let service = system.service(first);
    let entry = service.image + ENTRY;
    let [crowd, other, third] = [(); 3].map(|()| system.client(&[(service.image, service.password)]));
    // A client of many threads, some of them in a child of its own, which all stay inside.
    let child = system.task(crowd);
    let mut threads = vec![crowd, child];
    for number in 0..60 {
        let maker = if number % 2 == 0 { crowd } else { child };
        let image = system.image_of(maker);
        let made = system.call(maker, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap();
        threads.push(ThreadId(made.0));
    }
    let (mut inside, mut waiting) = (Vec::new(), 0);
    for &thread in threads.iter().rev() {
        match system.enter(thread, entry, PD_EMPTY) {
            Answer::Elsewhere => inside.push(thread),
            Answer::Blocked => waiting += 1,
            answer => panic!("{answer:?}"),
        }
    }
    assert_eq!(
        (inside.len(), waiting),
        (24, 38),
        "sixteen are free to all, and half of the rest"
    );
    // Others come and go, on stacks that the crowd does not get meanwhile.
    for round in 0..50 {
        assert_eq!(system.enter(other, entry, PD_EMPTY), Answer::Elsewhere, "round {round}");
        assert_eq!(system.enter(third, entry, PD_EMPTY), Answer::Elsewhere, "round {round}");
        system.leave(other, round);
        system.leave(third, round);
        system.pump();
        assert!(system.late.is_empty(), "the crowd has its share");
    }
    // As its calls come back its other threads have their turn, all in the end.
    let mut left = 0;
    while let Some(thread) = inside.pop() {
        system.leave(thread, 0);
        left += 1;
        system.pump();
        inside.extend(std::mem::take(&mut system.late).into_keys());
        assert!(inside.len() <= 24);
    }
    assert_eq!(left, threads.len());
    system.check_to_the_end();
}

#[test]
fn callers_wait_for_a_stack() {
    let mut system = System::boot(44);
    let first = system.first;
    let service = system.service(first);
    let clients: Vec<_> = (0..35)
        .map(|_| system.client(&[(service.image, service.password)]))
        .collect();
    for (number, client) in clients.iter().enumerate() {
        let expected = if number < 32 {
            Answer::Elsewhere
        } else {
            Answer::Blocked
        };
        assert_eq!(
            system.enter(*client, service.image + ENTRY, PD_EMPTY),
            expected,
            "client {number}"
        );
    }
    system.pump();
    assert!(system.late.is_empty());
    let report = system
        .server
        .thread_report(&system.platform, clients[33], first)
        .unwrap();
    assert_eq!(
        ThreadReport {
            state: THREAD_WAITING,
            ..report
        },
        report
    );
    system.leave(clients[7], 0);
    system.pump();
    assert_eq!(system.late.len(), 1);
    // One who ends inside gives his stack back, too.
    system.call(first, Call::ThreadDelete, &[clients[3].0, 0]).unwrap();
    system.spin(clients[3], 2_000_000_000);
    assert_eq!(system.late.len(), 2);
    assert_eq!(system.reap(first, clients[3]), Ok(0));
    // The service goes: everybody is taken out of it, and who waits finds nothing.
    system.call(service.owner, Call::ObjDelete, &[service.image]).unwrap();
    system.pump();
    for (number, &client) in clients.iter().enumerate() {
        if number == 3 || number == 7 {
            continue;
        }
        assert_eq!(system.depth(client), 0);
        let error = system.call_error(client);
        assert!(
            matches!(error, Some(Error::CalleeFault | Error::BadAddress)),
            "client {number}: {error:?}"
        );
    }
    system.check_to_the_end();
}

#[test]
fn a_thread_that_is_killed_inside_a_foreign_callee_may_return_first() {
    let mut system = System::boot(45);
    let first = system.first;
    let service = system.service(first);
    let [patient, stubborn] = [(); 2].map(|()| system.client(&[(service.image, service.password)]));
    for client in [patient, stubborn] {
        assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        system.call(first, Call::ThreadDelete, &[client.0, 6]).unwrap();
        assert_eq!(
            system.call(first, Call::ThreadWait, &[client.0, 0, 0]),
            Err(Error::TimedOut)
        );
        assert_eq!(system.word(client, service.secret), Ok(1234), "it goes on inside");
    }
    assert_eq!(system.start(patient, Call::PdxReturn, &[]), Answer::Gone);
    assert_eq!(system.reap(first, patient), Ok(6));
    // Time that it does not get does not count.
    system.run(first);
    system.pass(5_000_000_000);
    system.spin(stubborn, 500_000_000);
    assert_eq!(
        system.call(first, Call::ThreadWait, &[stubborn.0, 0, 0]),
        Err(Error::TimedOut)
    );
    system.spin(stubborn, 600_000_000);
    assert_eq!(system.reap(first, stubborn), Ok(6));
    system.check_to_the_end();
}

#[test]
fn revoking_a_pdx_capability_keeps_new_callers_out() {
    let mut system = System::boot(46);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    let domains = system.server.domains.count();
    system
        .call(first, Call::ObjPasswd, &[service.image, service.password, 0])
        .unwrap();
    assert_eq!(
        system.word(client, service.secret),
        Ok(1234),
        "who is inside may finish"
    );
    system.leave(client, 1);
    system.pass(1);
    assert_eq!(
        system.server.domains.count(),
        domains - 1,
        "its domain is given up then"
    );
    let answer = system.enter(client, service.image + ENTRY, PD_EMPTY);
    assert!(
        matches!(answer, Answer::Done(Err(Error::Protection | Error::NotAnEntry))),
        "{answer:?}"
    );
    system.check_to_the_end();
}

#[test]
fn a_callee_that_deletes_its_own_object_returns_to_its_caller() {
    let mut system = System::boot(47);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let home = system.platform.thread_space(client);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    assert_eq!(
        system.start(client, Call::ObjDelete, &[service.image]),
        Answer::Elsewhere
    );
    assert_eq!((system.depth(client), system.platform.thread_space(client)), (0, home));
    assert_eq!(system.call_error(client), Some(Error::CalleeFault));
    system.check_to_the_end();
}

#[test]
fn a_chain_of_calls_is_cut_where_its_link_breaks() {
    let mut system = System::boot(48);
    let first = system.first;
    let outer = system.service(first);
    let inner = system.service(first);
    // The outer service may call the inner one.
    let outer_password = system.call(first, Call::ObjPasswd, &[outer.image, 0, 15]).unwrap().0;
    system.clist_fill(
        first,
        outer.clist,
        &[(outer.image, outer_password), (inner.image, inner.password)],
    );
    let [one, two] = [(); 2].map(|()| system.client(&[(outer.image, outer.password)]));
    for client in [one, two] {
        assert_eq!(system.enter(client, outer.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        assert_eq!(system.enter(client, inner.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        assert_eq!(system.word(client, inner.secret), Ok(1234));
    }
    assert_eq!(system.start(two, Call::ThreadSleep, &[0, FOREVER]), Answer::Blocked);
    let inside = system.platform.thread_context(one).rip;
    assert_eq!(inside, inner.image + ENTRY);
    // The outer object goes while both are in the inner one.
    system.call(first, Call::ObjDelete, &[outer.image]).unwrap();
    for client in [one, two] {
        assert_eq!(
            (system.depth(client), system.call_error(client)),
            (0, Some(Error::CalleeFault))
        );
        assert!(system.platform.thread_is_ready(client));
    }
    system.pump();
    assert!(
        system.late.is_empty(),
        "what the callee waited for is not done again for its caller"
    );
    assert_eq!(
        system.enter(one, inner.image + ENTRY, PD_EMPTY),
        Answer::Done(Err(Error::Protection))
    );
    system.check_to_the_end();
}

#[test]
fn what_a_callee_starts_is_the_callees() {
    let mut system = System::boot(49);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    let (child, _) = system
        .call(client, Call::TaskCreate, &[service.image + ENTRY, 0, 0, 0, 3])
        .unwrap();
    let child = ThreadId(child);
    assert_eq!(system.word(child, service.secret), Ok(1234), "it has the callee's APD");
    system.leave(client, 0);
    // Back home the client is not the parent.
    assert_eq!(
        system.call(client, Call::ThreadWait, &[child.0, 0, 0]),
        Err(Error::NoSuchThread)
    );
    assert_eq!(
        system.call(client, Call::ThreadDelete, &[child.0, 0]),
        Err(Error::NoSuchThread)
    );
    system.exit(child, 3);
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    assert_eq!(system.reap(client, child), Ok(3));
    // Its handler is not called in the caller's domain.
    system
        .call(client, Call::ExcptReg, &[2, service.image + ENTRY + 64])
        .unwrap();
    system.leave(client, 0);
    assert_eq!(system.word(client, service.secret), Err(Trouble::Ended));
    system.check_to_the_end();
}

#[test]
fn a_delete_that_unwinds_its_own_caller_does_not_go_back_to_the_callee() {
    // Home -> Y (an object of task t, a child made inside of X) -> X, which deletes t.
    let mut system = System::boot(61);
    let first = system.first;
    let x = system.service(first);
    let p = abi::address::FIRST_PROGRAM;
    let own = system.call(first, Call::ObjPasswd, &[x.image, 0, 15]).unwrap().0;
    system.clist_fill(first, x.clist, &[(p, crate::install::password_of(p)), (x.image, own)]);
    let client = system.client(&[(x.image, x.password)]);
    let home = system.platform.thread_space(client);
    assert_eq!(system.enter(client, x.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    let domain_x = system.platform.thread_space(client);
    let (y, _) = system.call(client, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
    let clist = system.clist(client, &[(x.image, x.password)]).0;
    let password = system.register(client, y, clist);
    let t = ThreadId(
        system
            .call(client, Call::TaskCreate, &[y + ENTRY, 0, 0, 0, 3])
            .unwrap()
            .0,
    );
    system.leave(client, 0);
    let list = system.clist(client, &[(y, password)]).0;
    system.call(client, Call::ApdInsert, &[0, list]).unwrap();
    assert_eq!(system.enter(client, y + ENTRY, PD_EMPTY), Answer::Elsewhere);
    assert_eq!(system.enter(client, x.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    assert_eq!(system.platform.thread_space(client), domain_x);
    let answer = system.start(client, Call::ThreadDelete, &[t.0, 0]);
    assert_eq!((system.depth(client), system.platform.thread_space(client)), (0, home));
    assert_eq!(
        answer,
        Answer::Elsewhere,
        "the kernel would go back to X's code with the identity of the caller's domain"
    );
}

#[test]
fn a_return_out_of_a_handler_leaves_the_callers_handlers_in_place() {
    let mut system = System::boot(62);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let image = system.image_of(client);
    system.call(client, Call::ExcptReg, &[2, image + ENTRY + 64]).unwrap();
    assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
    system
        .call(client, Call::ExcptReg, &[2, service.image + ENTRY + 64])
        .unwrap();
    assert_eq!(system.word(client, 0x1000), Err(Trouble::Elsewhere));
    system.leave(client, 0);
    // At home a handler is registered.
    assert_eq!(
        system.word(client, 0x1000),
        Err(Trouble::Elsewhere),
        "{:?}",
        system.log()
    );
}

/// Each task's thread stands inside the next task's procedure, all but the last are condemned, and the
/// last one ends: the ends must not pile up on the stack, which in the kernel has 64 KiB.
#[test]
fn ends_that_cause_ends_need_no_stack() {
    const TASKS: usize = 200;
    let life = || {
        let mut system = System::boot_with(7, 32768, 16384);
        let first = system.first;
        let mut chain = Vec::new();
        for _ in 0..TASKS {
            let task = system.task(first);
            let made = system.call(task, Call::ObjClone, &[abi::address::FIRST_PROGRAM, PAGE, 0]);
            let image = made.expect("a clone").0;
            let password = system.register(task, image, 0);
            chain.push((task, image, password));
        }
        for pair in chain.windows(2) {
            let [(task, ..), (_, image, password)] = *pair else {
                unreachable!("pairs")
            };
            let clist = system.clist(task, &[(image, password)]).0;
            system
                .call(task, Call::ApdInsert, &[0, clist])
                .expect("a Clist goes in");
            assert_eq!(system.enter(task, image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        }
        for &(task, ..) in &chain {
            system.call(first, Call::ThreadDelete, &[task.0, 1]).expect("ends");
        }
        system.finish_work();
        assert_eq!(system.server.domains.count(), 1, "only the first task is left");
    };
    let thread = std::thread::Builder::new()
        .stack_size(160 << 10)
        .spawn(life)
        .expect("a thread");
    thread.join().expect("it does not overflow");
}

/// A procedure names its Clist by address; whoever comes next must not get that address.
#[test]
fn the_address_of_a_deleted_clist_is_given_to_nobody() {
    let mut system = System::boot(7);
    let first = system.first;
    let shared = system.object(first, 1).0;
    let attacker = system.task_with(first, shared, 0);
    let victim = system.task_with(first, shared, 0);
    let image = system.image_of(attacker);
    let (secret, password) = system.object(victim, 1);
    let clist = system.clist(attacker, &[]).0;
    let entries = system.object(attacker, 1).0;
    system
        .set_word(attacker, entries, image + ENTRY)
        .expect("his own object");
    system
        .call(attacker, Call::ObjCrePdx, &[image, 0, clist, entries, 1])
        .expect("registered");
    system.call(attacker, Call::ObjDelete, &[clist]).expect("deleted");
    assert_ne!(system.clist(victim, &[(secret, password)]).0, clist);
    let entered = system.start(attacker, Call::PdxCall, &[image + ENTRY, 0, PD_EMPTY, 0, 0, 0]);
    assert_ne!(entered, Answer::Elsewhere, "there is no such Clist");
}

#[test]
fn replacing_does_not_drop_what_must_not_be_written() {
    let mut system = System::boot(9);
    let first = system.first;
    let (object, password) = system.object(first, 4);
    let clist = system.clist(first, &[(object, password)]).0;
    system.call(first, Call::ApdInsert, &[0, clist]).expect("goes in");
    system.set_word(first, object, 1).expect("writable");
    system.call(first, Call::KeepObject, &[object]).expect("kept");
    system.call(first, Call::PageLimit, &[object, 1, 4]).expect("read only");
    let replaced = system.call(first, Call::PageUnMap, &[object, 1, UNMAP_REPLACE]);
    assert_eq!(replaced, Err(Error::Protection));
    assert_eq!(system.word(first, object), Ok(1));
    assert!(system.touch(first, object, Touch::Write).is_err());
}

/// Code of a service runs in the thread of its client, and has nothing to say about that client's threads and children, nor where the
/// client is the first task.
#[test]
fn a_callee_does_not_control_the_threads_of_its_caller() {
    let mut system = System::boot(61);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    for caller in [client, first] {
        let image = system.image_of(caller);
        let made = system
            .call(caller, Call::ThreadCreate, &[image + ENTRY, image, 3])
            .unwrap();
        let sibling = ThreadId(made.0);
        let child = system.task(caller);
        let grandchild = system.task(child);
        let gone = system.task(caller);
        let orphan = system.task(gone);
        system.exit(gone, 0);
        system.reap(caller, gone).unwrap();
        assert_eq!(system.enter(caller, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        for target in [sibling, child, grandchild, orphan] {
            for (call, arguments) in [
                (Call::ThreadSleep, &[target.0, FOREVER][..]),
                (Call::ThreadResume, &[target.0]),
                (Call::ThreadDelete, &[target.0, 0]),
                (Call::ConsoleForeground, &[target.0]),
            ] {
                let result = system.call(caller, call, arguments);
                assert_eq!(result, Err(Error::NoSuchThread), "{call:?} of {target:?} by {caller:?}");
            }
        }
        system.leave(caller, 0);
        system.call(caller, Call::ThreadSleep, &[sibling.0, FOREVER]).unwrap();
        system.call(caller, Call::ThreadResume, &[sibling.0]).unwrap();
        system.call(caller, Call::ThreadDelete, &[child.0, 0]).unwrap();
        // One that is inside ends when it comes back, and is not suspended before.
        assert_eq!(
            system.enter(sibling, service.image + ENTRY, PD_EMPTY),
            Answer::Elsewhere
        );
        let suspend = [sibling.0, FOREVER];
        assert_eq!(system.call(caller, Call::ThreadSleep, &suspend), Err(Error::InUse));
        system.call(caller, Call::ThreadDelete, &[sibling.0, 0]).unwrap();
        system.call(caller, Call::ThreadSleep, &suspend).unwrap();
        system.start(sibling, Call::PdxReturn, &[0, 0]);
        assert_eq!(system.call(caller, Call::ThreadSleep, &suspend), Ok((0, 0)));
    }
    system.check_to_the_end();
}
