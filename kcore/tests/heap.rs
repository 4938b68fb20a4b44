//! Each allocation of a call of the µ-kernel fails once: the call returns an error, all is as before, and the call succeeds when it is made again. The longest
//! allocation does not grow with what users have.

mod failing;
mod fake;
#[path = "pieces/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod rig;

use abi::{
    Error, Rights,
    nucleus::{Call, GRANT, LINK, MAP, NO_TIMEOUTS, fpage, port_fpage, timeouts},
};
use failing::{Failing, LONGEST, UNTIL_FAILURE};
use fake::walk;
use kcore::{
    Hardware, ThreadId,
    event::Outcome,
    thread::{Operation, Resumed, State},
};
use rig::{Answer, FROM, Rig, TO, receive, send};

#[global_allocator]
static ALLOCATOR: Failing = Failing { spares: || false };

/// The fake machine takes the room for its notes now, so that it allocates nothing in a call.
fn rig() -> Rig {
    let mut rig = Rig::new();
    let root = rig.kernel.spaces().get(rig.kernel.threads().get(rig.boss).space).root();
    for page in 0..1 << 16 {
        rig.kernel.hardware.flush_root(root);
        rig.kernel.hardware.flush_page(page);
    }
    rig
}

/// The units of each space, the nodes in use, the free frames, and the state of each thread.
type Look = (Vec<Option<(u32, u32)>>, u32, u64, Vec<State>);

fn look(rig: &Rig) -> Look {
    let kernel = &rig.kernel;
    let quota = (0..40).map(|number| kernel.free_space_quota(kcore::SpaceId(number)));
    let threads = kernel.threads().table.iter().take(40).map(|thread| match thread.state {
        State::Running => State::Ready,
        state => state,
    });
    (
        quota.collect(),
        kernel.mapping_nodes(),
        kernel.frames().free(),
        threads.collect(),
    )
}

/// The first event of a call, of which one allocation fails. Returns the answer, if there is one, and whether the call made that allocation.
fn armed(rig: &mut Rig, thread: ThreadId, (call, arguments): (Call, [u64; 6]), failing: u64) -> (Option<Answer>, bool) {
    rig.run(thread);
    let operation = Operation::called(call as u64, arguments);
    UNTIL_FAILURE.set(failing);
    let outcome = rig.kernel.nucleus_event(operation.event(thread, Resumed::First));
    let has_failed = UNTIL_FAILURE.replace(0) == 0;
    if has_failed {
        rig.kernel.check().expect("the kernel is consistent");
    }
    let answer = match outcome {
        Outcome::Return(answer) => Some(answer),
        Outcome::Again => panic!("{call:?} {arguments:x?} takes several pieces, {failing} {has_failed}"),
        _ => None,
    };
    (answer, has_failed)
}

/// Makes a call again and again, and each time the next of its allocations fails. Returns how many failed, and the value of the call that succeeds.
fn each(rig: &mut Rig, thread: ThreadId, call: Call, arguments: [u64; 6]) -> (u64, u64) {
    for failing in 1.. {
        let before = look(rig);
        match armed(rig, thread, (call, arguments), failing) {
            (Some(Err(Error::NoMemory | Error::TableFull)), true) => {
                assert_eq!(look(rig), before, "{call:?}, allocation {failing}");
            }
            (Some(Ok((value, _))), false) => return (failing - 1, value),
            other => panic!("{call:?} {arguments:x?}: {other:?}, allocation {failing}"),
        }
    }
    unreachable!()
}

#[test]
fn each_allocation_of_a_call_may_fail() {
    let mut rig = rig();
    let boss = rig.boss;
    let mut failed = 0;
    let mut spaces = vec![];
    for _ in 0..3 {
        let (count, space) = each(&mut rig, boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
        failed += count;
        spaces.push(space);
    }
    let mut threads = vec![];
    for &space in &spaces {
        let (count, thread) = each(
            &mut rig,
            boss,
            Call::ThreadCreate,
            [space, 0x40_0000, 0x50_0000, 0, 3, 0],
        );
        failed += count;
        threads.push(ThreadId(thread));
    }
    assert!(failed >= 3, "{failed} allocations");
    let mut nodes = 0;
    let memory = |page: u64, log2| fpage(FROM + (page << 12), log2, Rights::RWX);
    for page in 0..200 {
        let what = [
            memory(page, 12),
            spaces[0],
            fpage(page << 12, 12, Rights::RWX),
            MAP,
            0,
            0,
        ];
        nodes += each(&mut rig, boss, Call::Map, what).0;
    }
    assert!(nodes > 3, "{nodes} allocations");
    let ports = [port_fpage(0, 0), spaces[0], port_fpage(0, 16), MAP, 0, 0];
    assert!(each(&mut rig, boss, Call::Map, ports).0 > 0, "a bitmap");
    // Grants and links by turns, so that each of them needs new nodes at some time.
    for round in 0..16 {
        let page = 512 + round;
        let mapped = [memory(page, 12), spaces[1], memory(page, 12), MAP, 0, 0];
        each(&mut rig, boss, Call::Map, mapped);
        let below = rig.done(threads[1], Call::SpaceCreate, [330, 0, 0, 0, 0, 0]);
        let granted = [memory(page, 12), below, fpage(0, 12, Rights::RWX), GRANT, 0, 0];
        nodes += each(&mut rig, threads[1], Call::Map, granted).0;
        let slot = 1024 + 512 * (round % 6);
        let linked = [
            memory(slot, 21),
            spaces[round as usize % 3],
            memory(slot, 21),
            LINK,
            0,
            0,
        ];
        nodes += each(&mut rig, boss, Call::Map, linked).0;
    }
    // Message items: the sender's call gives every other one, the receiver's call takes the rest.
    let (mate, receiver) = (rig.mate(), threads[2]);
    for page in 0..90u64 {
        rig.words(mate, &[memory(page, 12), MAP]);
        if page % 2 == 0 {
            assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
            nodes += each(&mut rig, mate, Call::Ipc, send(receiver, 1, 0)).0;
            continue;
        }
        for failing in 1.. {
            rig.words(mate, &[memory(page, 12), MAP]);
            assert_eq!(rig.begin(mate, Call::Ipc, send(receiver, 1, u32::MAX)), None);
            let (answer, has_failed) = armed(&mut rig, receiver, (Call::Ipc, receive(timeouts(0, 0))), failing);
            let error = rig.kernel.threads().get(mate).context.rax;
            assert_eq!(rig.state(mate), State::Ready);
            if !has_failed {
                assert_eq!((answer, error), (None, 0));
                break;
            }
            assert_eq!((answer, error), (Some(Err(Error::TimedOut)), Error::NoMemory as u64));
            assert!(
                walk(
                    &rig.kernel,
                    rig.kernel.threads().get(receiver).space,
                    TO + FROM + (page << 12)
                )
                .is_none()
            );
            nodes += 1;
        }
    }
    println!("{failed} and {nodes} allocations failed");
    for space in spaces {
        rig.done(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
    }
}

/// The longest allocation of one event does not grow with the number of nodes: nodes stand in many small tables, and no table is moved.
#[test]
fn no_allocation_grows_with_the_nodes() {
    let mut rig = rig();
    let boss = rig.boss;
    let space = rig.done(boss, Call::SpaceCreate, [500_000, 0, 0, 0, 0, 0]);
    let mut longest = 0;
    for round in 0..270u64 {
        let [from, at] = [FROM, round << 20].map(|base| fpage(base, 20, Rights::RWX));
        let operation = Operation::called(Call::Map as u64, [from, space, at, MAP, 0, 0]);
        let mut resumed = Resumed::First;
        loop {
            rig.run(boss);
            LONGEST.set(0);
            let outcome = rig.kernel.nucleus_event(operation.event(boss, resumed));
            longest = longest.max(LONGEST.get());
            resumed = Resumed::Woken;
            match outcome {
                Outcome::Again => {}
                Outcome::Return(answer) => break assert!(answer.is_ok(), "{answer:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(rig.kernel.mapping_nodes() > 0);
    println!("{} nodes, {longest} bytes", rig.kernel.mapping_nodes());
    assert!(longest <= 8192, "{longest} bytes");
}
