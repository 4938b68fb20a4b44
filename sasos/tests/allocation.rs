//! Every allocation of a call fails once: an error comes back, all is as before, and the call succeeds when it is made again.
//!
//! The calls here are those whose way has no allocation left that ends the machine (`tests/host/house/allocation.rs` lists the others).

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
};
use common::{Actor, Rig};
use sasos::{
    accounts::{AccountId, RESOURCE_LIST},
    protection::apd::Apd,
};

thread_local! {
    /// Allocations until one fails; none does at zero.
    static UNTIL_FAILURE: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, but for one allocation that fails.
struct Failing;

// SAFETY: the system's allocator does all, or nothing is allocated, as the contract of `GlobalAlloc` allows.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let fails = UNTIL_FAILURE.try_with(|left| {
            let before = left.get();
            left.set(before.saturating_sub(1));
            before == 1
        });
        if fails.unwrap_or(false) {
            return core::ptr::null_mut();
        }
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// What is charged, and how many things there are.
fn digest(rig: &mut Rig) -> Vec<u64> {
    rig.server.ledger.empty_all_hands();
    let server = &rig.server;
    let mut digest: Vec<u64> = RESOURCE_LIST
        .iter()
        .map(|&resource| server.ledger.used(AccountId::ROOT, resource))
        .collect();
    digest.extend([server.objects.count(), server.objects.resident(), server.pager.dirty]);
    digest.extend([server.semaphores.count() as u64, server.threads.count as u64]);
    digest
}

/// Makes a call with the first allocation failing, then the second, until none fails any more. Tells how many did.
fn fails_at_each(rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]) -> u64 {
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

#[test]
fn calls_that_make_something_change_nothing_when_memory_is_out() {
    let mut rig = Rig::new(60, 8000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(actor, Call::ObjCreate, &[700 * SLOT, 0]).unwrap();
    // What a domain finds is cached in what is not refused yet.
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
