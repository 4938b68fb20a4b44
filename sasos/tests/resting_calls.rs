//! Protected calls of objects that come to rest and are needed again, and of Clists that do. A model says who may call.

mod common;

use abi::{
    Call, Error,
    address::PAGE,
    layout::{Capability, PD_EMPTY, PD_MERGE},
};
use common::{Actor, Order, Rig};
use kcore::thread::Resumed;
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, UNLIMITED},
};
use sim::rng::Rng;
use std::collections::BTreeSet;

/// All rights on an object.
const ALL: u64 = 77;
/// The right to call it.
const CALLS: u64 = 9;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A kept object of one page.
fn kept(rig: &mut Rig, maker: Actor) -> u64 {
    let (base, _) = rig.call(maker, Call::ObjCreate, &[PAGE, ALL]).expect("an object");
    assert!(rig.has(maker, base, Access::Write));
    rig.call(maker, Call::KeepObject, &[base]).expect("it is kept");
    base
}

struct Service {
    base: u64,
    may_be_called: bool,
}

struct Client {
    actor: Actor,
    list: u64,
    /// The services that its list names.
    held: BTreeSet<u64>,
    /// It has its list in its APD.
    has_list: bool,
}

fn service(rig: &mut Rig, owner: Actor) -> Service {
    let base = kept(rig, owner);
    rig.registers(owner, base, CALLS, 0);
    Service {
        base,
        may_be_called: true,
    }
}

fn event(rig: &mut Rig, actor: Actor, call: Call, arguments: [u64; 6], resumed: Resumed) -> Outcome {
    let event = Event::Call {
        thread: actor.thread,
        number: call as u64,
        arguments,
        resumed,
    };
    rig.server.handle(&mut rig.world, event)
}

/// Calls a service and comes back, if it may.
fn visit(rig: &mut Rig, client: &Client, service: &Service, pd: u64) -> bool {
    let mut resumed = Resumed::First;
    for _ in 0..10_000 {
        let arguments = [service.base, 0, pd, 0, 0, 0];
        match event(rig, client.actor, Call::PdxCall, arguments, resumed) {
            Outcome::Resume => {
                event(rig, client.actor, Call::PdxReturn, [0; 6], Resumed::First);
                return true;
            }
            Outcome::Return(result) => {
                assert_eq!(result, Err(Error::Protection));
                return false;
            }
            Outcome::Block(..) => {
                rig.world.step_disk();
                rig.server.handle(&mut rig.world, Event::Poll);
            }
            _ => {}
        }
        resumed = Resumed::Woken;
    }
    panic!("the call never ends");
}

fn run(seed: u64) -> [u64; 3] {
    let mut rig = Rig::new(seed, 8000, 20_000);
    let mut rng = Rng::new(seed);
    let owner = rig.actor_in(AccountId::ROOT, UNLIMITED);
    let mut services: Vec<Service> = (0..5).map(|_| service(&mut rig, owner)).collect();
    let mut clients: Vec<Client> = (0..3)
        .map(|_| {
            let actor = rig.actor_in(AccountId::ROOT, UNLIMITED);
            Client {
                actor,
                list: kept(&mut rig, actor),
                held: BTreeSet::new(),
                has_list: false,
            }
        })
        .collect();
    let lists: Vec<(Actor, u64)> = clients.iter().map(|client| (client.actor, client.list)).collect();
    for (actor, list) in lists {
        rig.gets(actor, &[list], ALL);
    }
    let mut counts = [0; 3];
    for step in 0..120 {
        let context = format!("repeat with GOND_SEED={seed}: step {step}");
        let place = rng.below(services.len() as u64) as usize;
        let client = rng.below(clients.len() as u64) as usize;
        let client = &mut clients[client];
        let at = &mut services[place];
        let pd = *rng.pick(&[PD_EMPTY, PD_MERGE]);
        match rng.below(20) {
            0..9 => {
                let may = client.has_list && client.held.contains(&at.base) && at.may_be_called;
                assert_eq!(visit(&mut rig, client, at, pd), may, "{context}: {:#x}", at.base);
                counts[usize::from(may)] += 1;
            }
            9..12 => {
                client.held = services
                    .iter()
                    .filter(|_| rng.below(2) == 0)
                    .map(|at| at.base)
                    .collect();
                let held: Vec<Capability> = (client.held.iter())
                    .map(|&address| Capability {
                        address,
                        password: CALLS,
                    })
                    .collect();
                assert!(rig.has(client.actor, client.list, Access::Write), "{context}");
                rig.write_clist(client.actor.space, client.list, &held, Order::Any);
                if !client.has_list {
                    let inserted = rig.call(client.actor, Call::ApdInsert, &[1, client.list]);
                    inserted.expect("its list");
                }
                rig.call(client.actor, Call::ApdFlush, &[]).expect("a flush");
                client.has_list = true;
            }
            12 => {
                let gone = rig.call(client.actor, Call::ApdDelete, &[1]);
                assert_eq!(gone.is_ok(), client.has_list, "{context}");
                client.has_list = false;
            }
            13 => {
                rig.gets(owner, &[at.base], ALL);
                let call = rig.call(owner, Call::ObjPasswd, &[at.base, CALLS, 0]);
                assert_eq!(call.is_ok(), at.may_be_called, "{context}: {call:?}");
                at.may_be_called = false;
                rig.call(owner, Call::ApdDelete, &[0]).expect("the list of rights");
            }
            14 if !at.may_be_called => {
                rig.gets(owner, &[at.base], ALL);
                rig.registers(owner, at.base, CALLS, 0);
                at.may_be_called = true;
                rig.call(owner, Call::ApdDelete, &[0]).expect("the list of rights");
            }
            15 => {
                rig.gets(owner, &[at.base], ALL);
                rig.call(owner, Call::ObjDelete, &[at.base]).expect("it goes");
                rig.call(owner, Call::ApdDelete, &[0]).expect("the list of rights");
                *at = service(&mut rig, owner);
            }
            16 => rig.checkpoint().expect("the disk works"),
            17 => rig.settle(),
            _ => {
                rig.put_to_rest();
                counts[2] += u64::from(rig.server.objects.find(at.base).is_none());
            }
        }
        if step % 4 == 0 {
            rig.check();
        }
    }
    rig.settle();
    rig.check();
    counts
}

/// `GOND_SEED` repeats one run; `GOND_RUNS` sets how many there are, `GOND_FROM` the first of them.
#[test]
fn calls_of_what_rested_are_those_of_before() {
    let from = number("GOND_FROM").unwrap_or(0);
    let seeds = match number("GOND_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("GOND_RUNS").unwrap_or(20),
    };
    let mut sums = [0; 3];
    for seed in seeds {
        let counts = run(seed);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!(
        "{} calls refused, {} done, {} services rested",
        sums[0], sums[1], sums[2]
    );
}
