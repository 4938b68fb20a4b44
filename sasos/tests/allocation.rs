//! Every allocation of a call fails once: an error comes back, all is as before, and the call succeeds when it is made again.
//!
//! The calls here are those whose way has no allocation left that ends the machine (`tests/host/house/allocation.rs` lists the others).

mod common;
#[path = "../../kcore/tests/failing/mod.rs"]
mod failing;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::{Capability, PD_EMPTY},
};
use common::{Actor, Order, Rig};
use failing::{Failing, UNTIL_FAILURE};
use kcore::thread::Resumed;
use sasos::{
    Event, Outcome,
    accounts::{AccountId, RESOURCE_LIST},
    protection::apd::Apd,
};
use sim::own::Own;

#[global_allocator]
static ALLOCATOR: Failing = Failing { spares: Own::is_now };

/// The charges, and how many things there are.
fn digest(rig: &mut Rig) -> Vec<u64> {
    rig.server.ledger.empty_all_hands();
    let server = &rig.server;
    let mut digest: Vec<u64> = RESOURCE_LIST
        .iter()
        .map(|&resource| server.ledger.used(AccountId::ROOT, resource))
        .collect();
    digest.extend([server.objects.count(), server.objects.resident(), server.pager.dirty]);
    digest.push(server.store.stats().reserved);
    digest.extend([server.semaphores.count() as u64, server.threads.count as u64]);
    digest
}

/// Makes a call with the first allocation failing, then the second, until none fails any more. Tells how many did.
fn fails_at_each(rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]) -> u64 {
    // Or the call would be made again when that is done.
    rig.server.take_back(&mut rig.world);
    rig.settle();
    let before = digest(rig);
    for number in 1..1000 {
        UNTIL_FAILURE.set(number);
        let result = rig.call(actor, call, arguments);
        let left = UNTIL_FAILURE.replace(0);
        if left > 0 {
            result.unwrap_or_else(|error| panic!("{call:?} without a failure: {error:?}"));
            return number - 1;
        }
        assert_eq!(result, Err(Error::NoMemory), "{call:?}, allocation {number}");
        rig.check();
        assert_eq!(digest(rig), before, "{call:?}, allocation {number}");
    }
    panic!("{call:?} never ends");
}

/// Pages of an object that the server has in memory.
fn pages_of(rig: &Rig, base: u64) -> u64 {
    let objects = &rig.server.objects;
    objects.get(objects.find(base).unwrap()).record.pages
}

/// A kept object that grows over the border of a stretch, and is cut there: where no heap is for the table of slots, its row is as it was.
#[test]
fn the_row_of_an_object_whose_size_cannot_change_stays() {
    const REACH: u64 = 1024;
    let mut rig = Rig::new(3, 4000, 6000);
    let actor = rig.actor(Apd::EMPTY);
    let per_slot = SLOT / PAGE;
    let first = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap().0 / SLOT;
    let to_border = REACH - (first + 1) % REACH;
    let base = if to_border > 1020 {
        panic!("there are {to_border} slots to the border")
    } else {
        rig.kept(actor, (to_border - 2) * per_slot, 0)
    };
    let mut failures = 0;
    for slots in [to_border + 4, to_border - 5] {
        for number in 1.. {
            let before = pages_of(&rig, base);
            UNTIL_FAILURE.set(number);
            let result = rig.call(actor, Call::ObjResize, &[base, slots * SLOT]);
            let failed = UNTIL_FAILURE.replace(0) == 0;
            let row = rig.server.store.object(base).unwrap().pages;
            let object = pages_of(&rig, base);
            assert_eq!(row, object, "{slots} slots, allocation {number}: {result:?}");
            if result.is_ok() {
                assert!(!failed || object == slots * per_slot);
                break;
            }
            assert_eq!(object, before);
            failures += 1;
        }
    }
    assert!(failures > 1);
    rig.check();
}

#[test]
fn calls_that_make_something_change_nothing_when_memory_is_out() {
    let mut rig = Rig::new(60, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[700 * SLOT, 0]).unwrap();
    // Rights that a domain finds are cached in what is not refused yet.
    for _ in 0..2 {
        rig.store(actor.space, base, 1).unwrap();
    }
    let mut failed = 0;
    for round in 0..40 {
        let address = base + round * 8;
        failed += fails_at_each(&mut rig, actor, Call::SemCreate, &[address, 0]);
        let arguments = [base, 100 + round, u64::from(Rights::R.bits())];
        failed += fails_at_each(&mut rig, actor, Call::ObjPasswd, &arguments);
        failed += fails_at_each(&mut rig, actor, Call::ObjCreate, &[PAGE, 0]);
        let arguments = [base + (10 + 2 * round) * PAGE, 1, u64::from(Rights::R.bits())];
        failed += fails_at_each(&mut rig, actor, Call::PageLimit, &arguments);
    }
    assert!(failed > 100, "{failed}");
}

/// The last pieces fail like the first ones.
#[test]
fn an_object_is_kept_in_pieces_or_not_at_all() {
    let mut rig = Rig::new(61, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[400 * PAGE, 0]).unwrap();
    for page in (0..200).step_by(2) {
        rig.store(actor.space, base + page * PAGE, 0).unwrap();
    }
    let limits = u64::from(Rights::R.bits());
    rig.call(actor, Call::PageLimit, &[base + 200 * PAGE, 200, limits])
        .unwrap();
    let failed = fails_at_each(&mut rig, actor, Call::KeepObject, &[base]);
    assert!(failed > 8, "{failed}");
}

/// Calls that wait for the disk, or end in what the store does when it is polled: its jobs still allocate where nobody can be refused.
const WAITING: [Call; 3] = [Call::PageFlush, Call::PageFlushAll, Call::SystemControl];

/// A task with things to work on, and arguments with which the call succeeds.
#[allow(clippy::match_same_arms, reason = "one line for each call")]
fn prepared(call: Call) -> (Rig, Actor, Vec<u64>) {
    let mut rig = Rig::new(62, 3000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let [object, other, list] = [0; 3].map(|_| rig.call(actor, Call::ObjCreate, &[64 * PAGE, 0]).unwrap().0);
    for page in 0..3 {
        rig.store(actor.space, object + page * PAGE, 0).unwrap();
    }
    let (semaphore, entry) = (object + 64, object + 128);
    rig.store(actor.space, object + 256, entry).unwrap();
    if matches!(call, Call::ApdInsert | Call::ApdDelete) {
        let capability = Capability {
            address: other,
            password: 1,
        };
        rig.write_clist(actor.space, list, &[capability], Order::Any);
    }
    let mut prepare = |call, arguments: &[u64]| rig.call(actor, call, arguments).unwrap();
    let all = u64::from(Rights::OWNER.bits());
    let arguments = match call {
        Call::ThreadMyId | Call::ApdFlush | Call::ClockRead | Call::RandomRead => vec![],
        Call::PdxCall => {
            prepare(Call::ObjCrePdx, &[object, 9, 0, object + 256, 1]);
            vec![entry, 0, PD_EMPTY]
        }
        Call::PdxReturn | Call::DomainCall | Call::ExcptReturn => vec![0, 0],
        Call::ObjCreate => vec![PAGE, 0],
        Call::ObjDelete | Call::ObjRetire => vec![object],
        Call::ObjResize => vec![object, PAGE],
        Call::ObjPasswd => vec![object, 77, all],
        Call::ObjInfo => vec![object, 0, other, PAGE],
        Call::ObjCrePdx => vec![object, 0, 0, object + 256, 1],
        Call::KeepObject => vec![object],
        Call::ObjClone => vec![object, 0, 0],
        Call::PageCopy => vec![object, other, 3],
        Call::PageUnMap => vec![object, 2, 0],
        Call::PageFlush => vec![object, 1],
        Call::PageFlushAll => vec![object, 0],
        Call::PageLimit => vec![object + 10 * PAGE, 1, u64::from(Rights::R.bits())],
        Call::ApdInsert => vec![0, list],
        Call::ApdDelete => {
            prepare(Call::ApdInsert, &[0, list]);
            vec![0]
        }
        Call::ApdGet => vec![other, PAGE],
        Call::ApdLock => vec![u64::MAX],
        Call::ApdLookup => vec![other, u64::from(Rights::R.bits())],
        Call::TaskCreate => vec![entry, 0, 0, 0, 3],
        Call::ThreadCreate => vec![entry, 0, 3],
        Call::ThreadDelete | Call::ThreadResume | Call::ThreadWait | Call::ThreadInfo | Call::ConsoleForeground => {
            let (thread, _) = prepare(Call::ThreadCreate, &[entry, 0, 3]);
            match call {
                Call::ThreadInfo => vec![thread, other, PAGE],
                _ => vec![thread, 0, 0, 0],
            }
        }
        Call::ThreadSleep => vec![0, 0],
        Call::ExcptReg => vec![1, entry],
        Call::SemCreate => vec![semaphore, 1],
        Call::SemDelete | Call::SemWait | Call::SemSignal => {
            prepare(Call::SemCreate, &[semaphore, 1]);
            vec![semaphore, 0]
        }
        Call::AddressWait => vec![object, 1, 0],
        Call::AddressWake => vec![object, 1],
        Call::ConsoleWrite | Call::ConsoleRead => vec![0, object, 8],
        Call::SystemInfo => vec![0, 0, other, PAGE],
        Call::SystemControl => vec![0, 0],
    };
    if matches!(
        call,
        Call::ObjInfo | Call::PageCopy | Call::ApdGet | Call::ThreadInfo | Call::SystemInfo
    ) {
        rig.store(actor.space, other, 1).unwrap();
    }
    (rig, actor, arguments)
}

/// Makes a call, and those that it is done again with. Any other end is told in words.
fn make(rig: &mut Rig, actor: Actor, call: Call, given: &[u64]) -> Result<String, Error> {
    let mut arguments = [0; 6];
    arguments[..given.len()].copy_from_slice(given);
    let mut resumed = Resumed::First;
    loop {
        let event = Event::Call {
            thread: actor.thread,
            number: call as u64,
            arguments,
            resumed,
        };
        match rig.server.handle(&mut rig.world, event) {
            Outcome::Return(Err(Error::NoMemory)) => return Err(Error::NoMemory),
            Outcome::Again => resumed = Resumed::Woken,
            // Numbers of threads and random words are others the second time.
            Outcome::Return(Ok(_)) => return Ok(String::new()),
            outcome => {
                let _own = Own::begin();
                return Ok(format!("{outcome:?}"));
            }
        }
    }
}

#[test]
fn every_call_of_the_table_can_be_refused_each_of_its_allocations() {
    let mut refused = 0;
    let calls = abi::call::TABLE
        .iter()
        .filter_map(|info| Call::from_number(info.number));
    for call in calls.filter(|call| !WAITING.contains(call)) {
        let (mut rig, actor, arguments) = prepared(call);
        let expected = make(&mut rig, actor, call, &arguments);
        let after = digest(&mut rig);
        for number in 1..1000 {
            let (mut rig, actor, arguments) = prepared(call);
            let before = digest(&mut rig);
            UNTIL_FAILURE.set(number);
            let result = make(&mut rig, actor, call, &arguments);
            let left = UNTIL_FAILURE.replace(0);
            rig.check();
            if result.is_err() && left == 0 {
                refused += 1;
                if call == Call::PdxCall {
                    // A new callee without a stack stays, as one that nobody uses.
                    rig.server.take_back(&mut rig.world);
                    rig.settle();
                }
                assert_eq!(digest(&mut rig), before, "{call:?}, allocation {number}");
                assert_eq!(
                    make(&mut rig, actor, call, &arguments),
                    expected,
                    "{call:?}, allocation {number}"
                );
                rig.check();
                assert_eq!(digest(&mut rig), after, "{call:?}, allocation {number}");
                continue;
            }
            // It went on without: what it has made is the same.
            assert_eq!(result, expected, "{call:?}, allocation {number}");
            if left > 0 {
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}
