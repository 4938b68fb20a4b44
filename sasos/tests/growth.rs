//! Lists that grow with the number of things stand in pieces: however many there are, no event copies all of one, or gives all of it back.

mod common;
#[path = "../../kcore/tests/failing/mod.rs"]
mod failing;

use abi::{Call, address::PAGE};
use common::{Actor, Rig};
use failing::{FREED, Failing, LONGEST};
use kcore::thread::Resumed;
use sasos::protection::apd::Apd;
use sim::own::Own;

/// Objects that are kept.
const OBJECTS: usize = 30_000;
/// The longest allocation: four bytes a thing at most.
const BYTES_MAX: usize = 48 << 10;
/// Blocks that are freed in one event.
const FREED_MAX: u64 = 400;

#[global_allocator]
static ALLOCATOR: Failing = Failing { spares: Own::is_now };

/// One event: its bounds hold.
fn step<T>(rig: &mut Rig, event: impl FnOnce(&mut Rig) -> T) -> T {
    // Looks by which the server checks itself do not count.
    rig.server.put_off_check();
    LONGEST.set(0);
    FREED.set(0);
    let result = event(rig);
    let (longest, freed) = (LONGEST.get(), FREED.get());
    assert!(longest <= BYTES_MAX, "an allocation of {longest} bytes");
    assert!(freed <= FREED_MAX, "{freed} blocks are freed");
    result
}

fn poll(rig: &mut Rig) {
    {
        let _own = Own::begin();
        rig.world.step_disk();
    }
    step(rig, Rig::poll);
}

fn call(rig: &mut Rig, actor: Actor, call: Call, arguments: &[u64]) -> u64 {
    let mut resumed = Resumed::First;
    loop {
        if let Some(result) = step(rig, |rig| rig.begin(actor, call, arguments, resumed)) {
            return result.expect("it succeeds").0;
        }
        resumed = Resumed::Woken;
        poll(rig);
    }
}

fn checkpoint(rig: &mut Rig) {
    let number = step(rig, |rig| rig.server.checkpoint_request(&mut rig.world));
    while rig.server.checkpoint_reached(number).is_none() || rig.server.is_unfinished() {
        poll(rig);
    }
}

#[test]
fn no_event_is_longer_for_the_number_of_objects() {
    let mut rig = Rig::new(60, 600_000, 200_000);
    // A domain without Clists has its objects as long as it has nodes for them.
    let actors: Vec<Actor> = (0..OBJECTS.div_ceil(3000)).map(|_| rig.actor(Apd::EMPTY)).collect();
    let mut objects = Vec::with_capacity(OBJECTS);
    for number in 0..OBJECTS {
        let actor = actors[number / 3000];
        let base = call(&mut rig, actor, Call::ObjCreate, &[PAGE, 0]);
        call(&mut rig, actor, Call::KeepObject, &[base]);
        objects.push((actor, base));
    }
    checkpoint(&mut rig);
    for &(actor, base) in objects.iter().rev() {
        call(&mut rig, actor, Call::ObjDelete, &[base]);
    }
    checkpoint(&mut rig);
    checkpoint(&mut rig);
}
