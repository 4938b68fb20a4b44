//! Domains of procedures whose object or password goes: many begin to end in pieces, and nobody enters one that he does not mean.

mod common;

use abi::{
    Call, Error,
    address::{PAGE, SLOT},
    layout::{Capability, EXCEPTION_ARITHMETIC, EXCEPTION_KILL, PD_EMPTY, PD_MERGE, RESUME_AT},
};
use common::{Actor, Order, Rig};
use kcore::{Machine, thread::Resumed};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, Resource, UNLIMITED, limits},
    procedures::pdx::CALLEES_MAX,
    protection::apd::Apd,
};

/// Domains of one procedure, each merged with another caller's.
const MANY: usize = 100;
/// Those that one event closes at most.
const PIECE: u64 = 7;

/// A service with a procedure that many clients have called. They are inside of it, or have come back.
fn crowd(rig: &mut Rig, inside: bool) -> (Actor, u64, Vec<Actor>) {
    let owner = rig.actor(Apd::EMPTY);
    let base = rig.service(owner, 9);
    let mut clients = Vec::new();
    for _ in 0..MANY {
        let client = rig.holder(base, 9);
        rig.enters(client, base, PD_MERGE).unwrap();
        if !inside {
            let event = Event::Call {
                thread: client.thread,
                number: Call::PdxReturn as u64,
                arguments: [0; 6],
                resumed: Resumed::First,
            };
            rig.server.handle(&mut rig.world, event);
        }
        clients.push(client);
    }
    (owner, base, clients)
}

fn open(rig: &Rig) -> u64 {
    rig.server.callees.count_open() as u64
}

/// The threads that were made in the domain that ends are orphans, and no others.
#[test]
fn threads_of_other_domains_keep_their_parent() {
    let mut rig = Rig::new(4, 4000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let base = rig.service(owner, 9);
    let client = rig.holder(base, 9);
    let child = |rig: &mut Rig| {
        let Rig { server, world, .. } = rig;
        let maker = server.caller(world, client.thread, Resumed::First);
        server
            .thread_make(world, client.task, Some(maker), 0, 0, 3)
            .expect("a thread")
    };
    let [outside, ended] = [0; 2].map(|_| child(&mut rig));
    rig.call(client, Call::ThreadDelete, &[ended.0, 7]).unwrap();
    rig.enters(client, base, PD_MERGE).unwrap();
    let inside = child(&mut rig);
    rig.call(owner, Call::ObjDelete, &[base]).unwrap();
    rig.settle();
    let parent = |thread| rig.server.threads.find(thread).map(|record| record.parent);
    let none = kcore::ThreadId(0);
    assert_eq!(
        [outside, ended, inside].map(parent),
        [Some(client.thread), Some(client.thread), Some(none)]
    );
    assert_eq!(rig.call(client, Call::ThreadWait, &[ended.0, 0, 0, 0]).unwrap().1, 7);
    rig.check();
}

#[test]
fn callees_are_closed_in_pieces() {
    for inside in [false, true] {
        for call in [Call::ObjDelete, Call::ObjPasswd, Call::ObjCrePdx] {
            let mut rig = Rig::new(1, 16_000, 20_000);
            let (owner, base, clients) = crowd(&mut rig, inside);
            let anew = rig.entry_of(owner, base, 9, 0);
            let arguments = match call {
                Call::ObjDelete => &[base][..],
                Call::ObjPasswd => &[base, 9, 0],
                _ => &anew,
            };
            let most = rig.largest_step(owner, call, arguments, open);
            assert!(most < PIECE, "{call:?} closes {most} in one event, inside: {inside}");
            assert_eq!(open(&rig), 0, "{call:?}");
            rig.settle();
            let left = if inside && call != Call::ObjDelete { MANY } else { 0 };
            assert_eq!(rig.server.callees.count(), left, "{call:?}");
            for client in clients {
                let result = rig.call(client, Call::ThreadMyId, &[]);
                assert_eq!(result, Ok((client.thread.0, 0)), "it lives");
            }
            rig.check();
        }
    }
}

#[test]
fn callees_of_an_object_that_ends_with_its_task_are_closed_in_pieces() {
    let mut rig = Rig::new(2, 16_000, 20_000);
    let (owner, ..) = crowd(&mut rig, true);
    rig.server.task_kill(owner.task, EXCEPTION_KILL);
    while !rig.server.work.is_empty() {
        let before = open(&rig);
        rig.server.handle(&mut rig.world, Event::Poll);
        let closed = before - open(&rig);
        assert!(closed < PIECE, "{closed} in one event");
    }
    assert_eq!(rig.server.callees.count(), 0);
    rig.check();
}

/// The owner registers another Clist with the same password. The domains with the old one close in pieces; who calls meanwhile enters one with
/// the new one.
#[test]
fn nobody_enters_a_domain_with_the_clist_of_before() {
    let mut rig = Rig::new(3, 16_000, 20_000);
    let (owner, base, clients) = crowd(&mut rig, false);
    let (clist, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(owner.space, clist, &[], Order::Any);
    let anew = rig.entry_of(owner, base, 9, clist);
    assert_eq!(rig.begin(owner, Call::ObjCrePdx, &anew, Resumed::First), None);
    for client in clients {
        let space = rig.enters(client, base, PD_MERGE).unwrap();
        let apd = rig.server.domain_apd(space);
        assert_eq!(apd.slots().first().map(|slot| slot.base), Some(clist));
    }
    rig.settle();
    rig.check();
}

/// The owner revokes a password, and another thread of his registers it again before all domains of the first one are closed. A call that
/// enters one of those in time is remembered by the kernel until it is closed.
#[test]
fn the_kernel_remembers_no_way_into_a_closed_domain() {
    let mut rig = Rig::new(7, 16_000, 20_000);
    let (owner, base, clients) = crowd(&mut rig, true);
    let (registrar, last) = (rig.sibling(owner), clients[MANY - 1]);
    let caller = rig.sibling(last);
    let revoke = |rig: &mut Rig, resumed| rig.begin(owner, Call::ObjPasswd, &[base, 9, 0], resumed);
    assert_eq!(revoke(&mut rig, Resumed::First), None);
    rig.registers(registrar, base, 9, 0);
    let before = rig.world.thread_space(last.thread);
    assert_eq!(rig.enters(caller, base, PD_MERGE), Ok(before), "it is open");
    let way = |rig: &Rig| rig.world.kernel.portal_way(last.space, base, PD_MERGE);
    assert_eq!(way(&rig), Some(before));
    while revoke(&mut rig, Resumed::Woken).is_none() {}
    assert_eq!(open(&rig), 0);
    assert_eq!(way(&rig), None, "it leads to a domain that is closed");
    rig.check();
}

/// A thread whose call has registered another Clist ends before all domains of the old one are closed. They close all the same.
#[test]
fn callees_close_though_the_call_that_closes_them_ends() {
    let mut rig = Rig::new(4, 16_000, 20_000);
    let (owner, base, _) = crowd(&mut rig, false);
    let killer = rig.sibling(owner);
    assert_eq!(rig.begin(owner, Call::ObjPasswd, &[base, 9, 0], Resumed::First), None);
    rig.call(killer, Call::ThreadDelete, &[owner.thread.0, 0]).unwrap();
    rig.settle();
    assert_eq!(rig.server.callees.count(), 0);
    rig.check();
}

/// An object that is being deleted is out of reach, so that nobody has to be taken out of it in the last event.
#[test]
fn nobody_finds_an_object_that_is_being_deleted() {
    let mut rig = Rig::new(5, 16_000, 20_000);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[200 * SLOT, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, 1]).unwrap();
    rig.registers(owner, base, 9, 0);
    for slot in 0..200 {
        rig.store(owner.space, base + slot * SLOT, slot).unwrap();
    }
    let reader = rig.holder(base, 5);
    let caller = rig.holder(base, 9);
    rig.load(reader.space, base).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 6, 1]).unwrap();
    assert_eq!(rig.begin(owner, Call::ObjDelete, &[base], Resumed::First), None);
    // Nobody has a link any more.
    for _ in 0..5 {
        assert_eq!(rig.begin(owner, Call::ObjDelete, &[base], Resumed::Woken), None);
    }
    assert_eq!(rig.load(reader.space, base), Err(Error::BadAddress));
    assert_eq!(rig.enters(caller, base, PD_EMPTY), Err(Error::BadAddress));
    // The domain that made it may still look at it. It neither enters it nor keeps it.
    let sibling = rig.sibling(owner);
    rig.call(sibling, Call::ApdLookup, &[base, 1]).unwrap();
    assert_eq!(rig.enters(sibling, base, PD_EMPTY), Err(Error::BadAddress));
    assert_eq!(rig.call(sibling, Call::KeepObject, &[base]), Err(Error::BadAddress));
    // Its thread does something else: then it was not deleted.
    rig.call(owner, Call::ClockRead, &[]).unwrap();
    rig.load(reader.space, base).unwrap();
    rig.enters(caller, base, PD_EMPTY).unwrap();
    rig.call(owner, Call::ObjDelete, &[base]).unwrap();
    assert_eq!(rig.load(reader.space, base), Err(Error::BadAddress));
    rig.settle();
    rig.check();
}

/// A client whose account is full calls a merged procedure. The handler that is registered there is called.
#[test]
fn a_client_with_a_full_account_switches_no_handlers_off() {
    let mut rig = Rig::new(6, 16_000, 20_000);
    let owner = rig.actor(Apd::EMPTY);
    let base = rig.service(owner, 9);
    let mut limits = limits::of_frames(4000);
    limits[Resource::Bytes as usize] = 60 << 10;
    let client = rig.actor_in(AccountId::ROOT, limits);
    let list = rig.gets(client, &[base], 9);
    rig.enters(client, base, PD_MERGE).unwrap();
    rig.call(client, Call::ExcptReg, &[EXCEPTION_ARITHMETIC, list]).unwrap();
    // Memory that is too little for an object is enough for some passwords.
    let mut last = 0;
    while let Ok((base, _)) = rig.call(client, Call::ObjCreate, &[PAGE, 0]) {
        last = base;
    }
    while rig.call(client, Call::ObjPasswd, &[last, 0, 1]).is_ok() {}
    for again in [false, true] {
        let event = Event::Exception {
            thread: client.thread,
            kind: EXCEPTION_ARITHMETIC,
            address: 0,
        };
        rig.server.handle(&mut rig.world, event);
        assert_eq!(rig.world.thread_context(client.thread).rip, list, "it runs: {again}");
        assert_eq!(rig.world.portal_depth(client.thread), 1);
        rig.check();
        let back = Event::Call {
            thread: client.thread,
            number: Call::ExcptReturn as u64,
            arguments: [RESUME_AT, base, 0, 0, 0, 0],
            resumed: Resumed::First,
        };
        rig.server.handle(&mut rig.world, back);
    }
    rig.server.task_kill(client.task, EXCEPTION_KILL);
    rig.settle();
    rig.check();
}

/// A call merged into a service is paid by that service. When it may have no further space, its own idle callees are taken back, whoever the called object belongs to.
#[test]
fn a_service_that_pays_for_a_merged_call_takes_its_own_callees_back() {
    let mut rig = Rig::new(5, 20_000, 9000);
    let [service, other] = [0; 2].map(|_| rig.actor(Apd::EMPTY));
    let called: Vec<u64> = (0..41).map(|_| rig.service(other, 8)).collect();
    let capability = |&address| Capability { address, password: 8 };
    let capabilities: Vec<Capability> = called.iter().map(capability).collect();
    let (list, _) = rig.call(service, Call::ObjCreate, &[PAGE, 77]).unwrap();
    rig.write_clist(service.space, list, &capabilities, Order::Any);
    rig.call(service, Call::ApdInsert, &[0, list]).unwrap();
    let (base, _) = rig.call(service, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.registers(service, base, 9, list);
    for &idle in &called[1..] {
        rig.enters(service, idle, PD_MERGE).unwrap();
        rig.event(service, Call::PdxReturn, [0; 6], Resumed::First);
    }
    let client = rig.holder(base, 9);
    rig.enters(client, base, PD_EMPTY).unwrap();
    leave(&mut rig, service, Resource::Spaces, 0);
    let before = rig.server.callees.count_open();
    let entered = enter(&mut rig, client, called[0], PD_MERGE);
    assert_eq!(entered, Outcome::Resume, "the idle ones make room");
    assert!(rig.server.callees.count_open() < before);
    rig.settle();
    rig.check();
}

/// Has a client call a procedure, with polls between the events.
fn enter(rig: &mut Rig, client: Actor, entry: u64, pd: u64) -> Outcome {
    let mut resumed = Resumed::First;
    for _ in 0..100 {
        let outcome = rig.event(client, Call::PdxCall, [entry, 0, pd, 0, 0, 0], resumed);
        if outcome != Outcome::Again {
            return outcome;
        }
        resumed = Resumed::Woken;
        rig.poll();
    }
    panic!("the call is made again and again");
}

/// Leaves an account so much of a resource and no more.
fn leave(rig: &mut Rig, actor: Actor, resource: Resource, more: u64) {
    let account = rig.server.tasks.get(actor.task).unwrap().account;
    rig.server.ledger.empty_all_hands();
    let mut limits = rig.server.ledger.limits(account);
    limits[resource as usize] = rig.server.ledger.used(account, resource) + more;
    rig.server.ledger.set_limits(account, limits);
}

/// A service has enough for the domain of a further callee and not for its stack. Its idle callees make room, and no call is made again and again.
#[test]
fn idle_callees_make_room_for_a_first_stack() {
    let bytes = (0..3000).step_by(100).map(|more| (Resource::Bytes, more));
    for (resource, more) in bytes.chain([(Resource::Slots, 0)]) {
        let mut rig = Rig::new(5, 20_000, 9000);
        let service = rig.actor(Apd::EMPTY);
        let called: Vec<u64> = (0..21).map(|_| rig.service(service, 9)).collect();
        for &base in &called[1..] {
            let client = rig.holder(base, 9);
            rig.enters(client, base, PD_EMPTY).unwrap();
            rig.event(client, Call::PdxReturn, [0; 6], Resumed::First);
        }
        let client = rig.holder(called[0], 9);
        leave(&mut rig, service, resource, more);
        let entered = enter(&mut rig, client, called[0], PD_EMPTY);
        assert_eq!(entered, Outcome::Resume, "{more} of {resource:?} are left");
        rig.settle();
        rig.check();
    }
}

/// A call that shows Clists goes in pieces. It has tries of its own, whatever the call before it was helped with.
#[test]
fn idle_callees_make_room_for_each_call() {
    for resource in [Resource::Frames, Resource::Bytes, Resource::Slots] {
        let mut rig = Rig::new(6, 20_000, 9000);
        let service = rig.actor(Apd::EMPTY);
        let entry = rig.service(service, 9);
        let client = rig.holder(entry, 9);
        rig.enters(client, entry, PD_EMPTY).unwrap();
        rig.event(client, Call::PdxReturn, [0; 6], Resumed::First);
        let object = |rig: &mut Rig| rig.call(client, Call::ObjCreate, &[PAGE, 0]).unwrap().0;
        let shown: Vec<u64> = (0..8)
            .map(|_| {
                let (list, apd) = (object(&mut rig), object(&mut rig));
                rig.write_clist(client.space, list, &[], Order::Any);
                for (word, value) in (0..).zip([3, 0, list, list, list]) {
                    rig.store(client.space, apd + 8 * word, value).unwrap();
                }
                apd
            })
            .collect();
        leave(&mut rig, service, resource, 0);
        for pd in shown {
            let entered = enter(&mut rig, client, entry, pd);
            assert_eq!(entered, Outcome::Resume, "{resource:?}");
            rig.event(client, Call::PdxReturn, [0; 6], Resumed::First);
        }
        rig.settle();
        rig.check();
    }
}

/// A callee that is new in the place of an old one forgets what its caller drops, however much the caller of the old one had dropped.
#[test]
fn a_callee_in_the_place_of_another_one_forgets_with_its_caller() {
    let mut rig = Rig::new(9, 16_000, 8000);
    let owner = rig.actor(Apd::EMPTY);
    let base = rig.service(owner, 9);
    let (shared, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[shared, 5, 1]).unwrap();
    for _ in 0..4 {
        let client = rig.holder(base, 9);
        for _ in 0..40 {
            rig.call(client, Call::ApdFlush, &[]).unwrap();
        }
        rig.enters(client, base, PD_MERGE).unwrap();
        rig.server.task_kill(client.task, EXCEPTION_KILL);
    }
    rig.settle();
    for _ in 0..4 {
        let client = rig.holder(base, 9);
        let (list, _) = rig.call(client, Call::ObjCreate, &[PAGE, 0]).unwrap();
        let capability = Capability {
            address: shared,
            password: 5,
        };
        rig.write_clist(client.space, list, &[capability], Order::Any);
        rig.call(client, Call::ApdInsert, &[1, list]).unwrap();
        // It takes one place, so both callers and callees come into places of either.
        rig.actor(Apd::EMPTY);
        let space = rig.enters(client, base, PD_MERGE).unwrap();
        rig.touch(space, shared, Access::Read).unwrap();
        let sibling = rig.sibling(client);
        rig.call(sibling, Call::ApdDelete, &[1]).unwrap();
        let touched = rig.touch(space, shared, Access::Read);
        assert_eq!(touched.map(drop), Err(Error::Protection));
    }
    rig.check();
}

/// A client calls a procedure, comes back, and shows it a list of Clists that nobody has shown before. Each list is a callee of its own, which the service pays for.
fn calls_with_another_list(rig: &mut Rig, client: Actor, base: u64, shown: u64) {
    let (list, _) = rig.call(client, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    rig.write_clist(client.space, list, &[], Order::Any);
    for (place, word) in [1, 0, list].into_iter().enumerate() {
        rig.store(client.space, shown + 8 * place as u64, word)
            .expect("its own");
    }
    rig.enters(client, base, shown).expect("it is inside");
    rig.event(client, Call::PdxReturn, [0; 6], Resumed::First);
}

/// Callees that clients make are no reason for the ends of the service's own children to wait.
#[test]
fn callees_of_a_service_are_not_before_its_children() {
    const MANY: u64 = 200;
    let mut rig = Rig::new(33, 20_000, 4096);
    let (_, programs) = rig.first_task();
    let service = rig.actor_in(programs, UNLIMITED);
    let base = rig.service(service, 9);
    let account = rig.server.tasks.get(service.task).expect("it lives").account;
    let child = rig.actor_in(account, UNLIMITED);
    for _ in 0..30 {
        rig.call(child, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    }
    let client = rig.actor_in(programs, UNLIMITED);
    rig.gets(client, &[base], 9);
    let (shown, _) = rig.call(client, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    for _ in 0..MANY {
        calls_with_another_list(&mut rig, client, base, shown);
    }
    let before = rig.server.callees.count();
    assert!(before >= MANY as usize);
    rig.call(service, Call::ObjPasswd, &[base, 9, 0]).expect("its own");
    rig.server.task_kill(child.task, 1);
    while rig.server.tasks.get(child.task).is_some() {
        rig.poll();
    }
    let left = rig.server.callees.count();
    assert!(left > before / 2, "{left} of {before} are left");
    rig.settle();
    rig.check();
}

/// A call that has used up its budget before it comes to work that is little leaves nothing in the list, however often it is made.
#[test]
fn little_work_is_not_put_into_the_list() {
    let mut rig = Rig::new(34, 20_000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 5]).expect("an object");
    for others in 320..384 {
        let mut list: Vec<Capability> = (0..others)
            .map(|number| Capability {
                address: base + (2 + number) * SLOT,
                password: 1,
            })
            .collect();
        list.push(Capability {
            address: base,
            password: 5,
        });
        let client = rig.actor(Apd::EMPTY);
        let (clist, _) = rig.call(client, Call::ObjCreate, &[3 * PAGE, 0]).expect("a Clist");
        rig.write_clist(client.space, clist, &list, Order::Any);
        rig.call(client, Call::ApdInsert, &[0, clist]).expect("its own");
        let again = rig.entry_of(client, base, 9, 0);
        for _ in 0..3 {
            rig.call(client, Call::ObjCrePdx, &again).expect("it has the right");
            assert!(rig.server.work.is_empty(), "behind {others} other capabilities");
        }
        rig.ends(client);
    }
}

/// Callees that are ending are no reason to give up idle ones of others.
#[test]
fn callees_that_are_ending_do_not_count() {
    const MANY: u64 = 540;
    const SERVICES: usize = 20;
    let mut rig = Rig::new(35, 40_000, 16_384);
    let (_, programs) = rig.first_task();
    let victim = rig.actor_in(programs, UNLIMITED);
    let services: Vec<u64> = (0..SERVICES).map(|_| rig.service(victim, 7)).collect();
    let user = rig.actor_in(programs, UNLIMITED);
    rig.gets(user, &services, 7);
    let service = rig.actor_in(programs, UNLIMITED);
    let base = rig.service(service, 9);
    let client = rig.actor_in(programs, UNLIMITED);
    rig.gets(client, &[base], 9);
    let (shown, _) = rig.call(client, Call::ObjCreate, &[PAGE, 0]).expect("an object");
    for number in 1..=MANY {
        calls_with_another_list(&mut rig, client, base, shown);
        if number % 90 == 0 {
            // So that those that are open are never many.
            rig.call(service, Call::ObjPasswd, &[base, 9, 0]).expect("its own");
            rig.registers(service, base, 9, 0);
        }
    }
    assert!(
        rig.server.callees.count() > CALLEES_MAX,
        "{}",
        rig.server.callees.count()
    );
    for &other in &services {
        rig.enters(user, other, PD_EMPTY).expect("it is inside");
        rig.event(user, Call::PdxReturn, [0; 6], Resumed::First);
    }
    assert!(rig.server.callees.count_open() >= SERVICES, "idle ones were given up");
    rig.settle();
    rig.check();
}
