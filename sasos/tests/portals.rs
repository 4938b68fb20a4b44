//! The kernel remembers protected calls, and forgets those that a change concerns, at once, and no others (decision 0139).

mod common;

use abi::{
    Call,
    address::PAGE,
    layout::{Capability, PD_EMPTY, PD_MERGE},
};
use common::{Actor, Order, Rig};
use kcore::{Machine, SpaceId, thread::Resumed};
use sasos::{Event, protection::apd::Apd};
use sim::rng::Rng;

/// The slow path is the oracle: it would enter the same domain.
fn check(rig: &Rig, context: &str) -> usize {
    let mut count = 0;
    for (caller, entry, pd, callee) in rig.world.kernel.portal_ways() {
        let good = rig.server.would_enter(caller, entry, pd, callee);
        assert!(good, "{context}: a call of {caller:?} to {entry:#x} would be refused");
        count += 1;
    }
    count
}

fn returns(rig: &mut Rig, actor: Actor) {
    let event = Event::Call {
        thread: actor.thread,
        number: Call::PdxReturn as u64,
        arguments: [0; 6],
        resumed: Resumed::First,
    };
    rig.server.handle(&mut rig.world, event);
}

/// Enters and comes back; the domain that it was in.
fn visits(rig: &mut Rig, actor: Actor, base: u64, pd: u64) -> SpaceId {
    let callee = rig.enters(actor, base, pd).expect("it may call");
    returns(rig, actor);
    callee
}

fn is_remembered(rig: &Rig, actor: Actor, base: u64, pd: u64) -> bool {
    rig.world.kernel.portal_way(actor.space, base, pd).is_some()
}

#[test]
fn a_change_forgets_the_calls_that_it_concerns() {
    type Change = fn(&mut Rig, Actor, [Actor; 3], [u64; 2]);
    // The calls that are left: of the first two clients to the first service, of the third to the second.
    let changes: [(&str, Change, [bool; 3]); 6] = [
        (
            "a client flushes its APD",
            |rig, _, [first, ..], _| {
                rig.call(first, Call::ApdFlush, &[]).unwrap();
            },
            [false, true, true],
        ),
        (
            "a client locks a slot",
            |rig, _, [_, second, _], _| {
                rig.call(second, Call::ApdLock, &[0]).unwrap();
            },
            [true, false, true],
        ),
        (
            "somebody else changes its APD",
            |rig, _, _, _| {
                let other = rig.actor(Apd::EMPTY);
                rig.call(other, Call::ApdFlush, &[]).unwrap();
            },
            [true; 3],
        ),
        (
            "another password of a service is revoked",
            |rig, owner, _, [first, _]| {
                rig.call(owner, Call::ObjPasswd, &[first, 77, 1]).unwrap();
                rig.call(owner, Call::ObjPasswd, &[first, 77, 0]).unwrap();
            },
            [false, false, true],
        ),
        (
            "a service's object gets smaller",
            |rig, owner, _, [_, second]| {
                rig.call(owner, Call::ObjResize, &[second, PAGE]).unwrap();
            },
            [true, true, false],
        ),
        (
            "a service is deleted",
            |rig, owner, _, [first, _]| {
                rig.call(owner, Call::ObjDelete, &[first]).unwrap();
            },
            [false, false, true],
        ),
    ];
    for pd in [PD_EMPTY, PD_MERGE] {
        for (name, change, left) in changes {
            let mut rig = Rig::new(1, 16_000, 20_000);
            let owner = rig.actor(Apd::EMPTY);
            let services = [9, 10].map(|password| {
                let (base, _) = rig.call(owner, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
                rig.registers(owner, base, password, 0);
                base
            });
            let calls = [(services[0], 9), (services[0], 9), (services[1], 10)];
            let clients = calls.map(|(base, password)| rig.holder(base, password));
            for (client, (base, _)) in clients.into_iter().zip(calls) {
                visits(&mut rig, client, base, pd);
                assert!(is_remembered(&rig, client, base, pd));
            }
            change(&mut rig, owner, clients, services);
            check(&rig, name);
            for ((client, (base, _)), left) in clients.into_iter().zip(calls).zip(left) {
                assert_eq!(is_remembered(&rig, client, base, pd), left, "{name}, pd {pd}");
            }
            rig.check();
        }
    }
}

/// A domain changes; those that read through to it forget in pieces, but the kernel forgets their calls at once, be they few or many.
#[test]
fn calls_of_domains_that_read_through_are_forgotten_at_once() {
    for services in [3, 40] {
        let mut rig = Rig::new(2, 16_000, 20_000);
        let owner = rig.actor(Apd::EMPTY);
        let bases: Vec<u64> = (0..services).map(|_| rig.service(owner, 9)).collect();
        let client = rig.actor(Apd::EMPTY);
        rig.gets(client, &bases, 9);
        // Each callee, merged with the client's domain, calls the next.
        for pair in bases.windows(2) {
            rig.enters(client, pair[0], PD_MERGE).unwrap();
            visits(&mut rig, client, pair[1], PD_MERGE);
            returns(&mut rig, client);
        }
        assert_eq!(check(&rig, "before"), 2 * (services - 1));
        rig.begin(client, Call::ApdDelete, &[0], Resumed::First);
        assert_eq!(check(&rig, "after the first piece"), 0);
        rig.settle();
    }
}

/// Random calls and changes of everything that a call rests on, looked at after each event, the pieces included.
#[test]
fn no_call_is_remembered_that_would_be_refused() {
    let (mut remembered, mut visits) = (0, 0);
    for seed in 0..500 {
        let mut rig = Rig::new(seed, 16_000, 20_000);
        let mut random = Rng::new(seed);
        let owner = rig.actor(Apd::EMPTY);
        let mut services: Vec<u64> = (0..4).map(|_| rig.service(owner, 9)).collect();
        let clients: Vec<(Actor, u64)> = (0..4)
            .map(|_| {
                let actor = rig.actor(Apd::EMPTY);
                let (list, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
                let all: Vec<Capability> = services
                    .iter()
                    .map(|&address| Capability { address, password: 9 })
                    .collect();
                rig.write_clist(actor.space, list, &all, Order::Any);
                rig.call(actor, Call::ApdInsert, &[0, list]).unwrap();
                (actor, list)
            })
            .collect();
        for step in 0..150 {
            let context = format!("seed {seed}, step {step}");
            let (client, list) = *random.pick(&clients);
            let place = random.below(services.len() as u64) as usize;
            let base = services[place];
            let password = 9 + random.below(2);
            let pd = *random.pick(&[PD_EMPTY, PD_MERGE]);
            let call = |rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]| {
                let mut result = rig.begin(actor, call, arguments, Resumed::First);
                for _ in 0..1000 {
                    check(rig, &context);
                    if result.is_some() {
                        return;
                    }
                    result = rig.begin(actor, call, arguments, Resumed::Woken);
                }
                panic!("{context}: {call:?} never ends");
            };
            match random.below(14) {
                0..6 => {
                    if rig.world.portal_depth(client.thread) < 6 && rig.enters(client, base, pd).is_ok() {
                        visits += 1;
                    }
                }
                6 | 7 => returns(&mut rig, client),
                8 => {
                    let held: Vec<Capability> = services
                        .iter()
                        .filter(|_| random.below(2) == 0)
                        .map(|&address| Capability { address, password })
                        .collect();
                    if rig.world.portal_depth(client.thread) == 0 {
                        rig.write_clist(client.space, list, &held, Order::Any);
                        call(&mut rig, client, Call::ApdInsert, &[random.below(3), list]);
                    }
                }
                9 => call(&mut rig, client, Call::ApdDelete, &[random.below(3)]),
                10 => call(&mut rig, client, Call::ApdFlush, &[]),
                11 => {
                    call(&mut rig, owner, Call::ObjPasswd, &[base, password, 0]);
                    if random.below(2) == 0 {
                        let anew = rig.entry_of(owner, base, password, 0);
                        call(&mut rig, owner, Call::ObjCrePdx, &anew);
                    }
                }
                12 => {
                    let anew = rig.entry_of(owner, base, password, 0);
                    call(&mut rig, owner, Call::ObjCrePdx, &anew);
                }
                _ if random.below(3) == 0 => {
                    call(&mut rig, owner, Call::ObjDelete, &[base]);
                    services[place] = rig.service(owner, 9);
                }
                _ => rig.settle(),
            }
            remembered += check(&rig, &context);
        }
        rig.settle();
        rig.check();
    }
    assert!(
        remembered > 10_000 && visits > 1000,
        "{remembered} remembered, {visits} visits"
    );
}
