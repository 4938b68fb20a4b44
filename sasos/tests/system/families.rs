//! Families of tasks that take what they can get: the others go on, and everything comes back.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{CONTROL_CHECKPOINT, FOREVER, PD_EMPTY, PD_MERGE},
};
use kcore::{Machine, ThreadId};
use sasos::accounts::{AccountId, RESOURCE_LIST, Resource, limits, limits::PROGRAM_SEMAPHORES};

use crate::harness::{Answer, ENTRY, PROGRAM_PAGES, System};

/// The use of all accounts, by resource.
fn used(system: &mut System) -> Vec<u64> {
    system.quiesce();
    system.server.ledger.empty_all_hands();
    system.server.check(&system.platform).expect("consistent");
    let ledger = &system.server.ledger;
    RESOURCE_LIST
        .map(|resource| ledger.used(AccountId::ROOT, resource))
        .into()
}

/// A task that holds one Clist with a capability for an object, and nothing else.
fn confined(system: &mut System, parent: ThreadId, address: u64, password: u64) -> ThreadId {
    let (clist, _) = system.clist(parent, &[(address, password)]);
    let (apd, _) = system.object(parent, 1);
    system.set_word(parent, apd, 1).unwrap();
    system.set_word(parent, apd + 8, 0).unwrap();
    system.set_word(parent, apd + 16, clist).unwrap();
    system.task_with(parent, apd, 0)
}

/// Objects are kept and written, as many as there may be: the disk stays usable, and the first task alive.
#[test]
fn kept_pages_are_paid_for() {
    let mut system = System::boot_with(50, 2048, 8192);
    let first = system.first;
    let before = used(&mut system);
    let hostile = system.task(first);
    let mut kept = Vec::new();
    'all: for _ in 0..512 {
        let Ok((base, _)) = system.call(hostile, Call::ObjCreate, &[64 * PAGE, 0]) else {
            break;
        };
        if system.call(hostile, Call::KeepObject, &[base]).is_err() {
            break;
        }
        kept.push(base);
        for page in 0..64 {
            if system.set_word(hostile, base + page * PAGE, page).is_err() {
                break 'all;
            }
        }
    }
    assert!(kept.len() > 16, "{}", kept.len());
    // The first task makes and keeps what it likes, and it gets to the disk.
    let (own, _) = system.object(first, 64);
    system.call(first, Call::KeepObject, &[own]).unwrap();
    for page in 0..64 {
        system.set_word(first, own + page * PAGE, page).unwrap();
    }
    // One that is written before it is kept is paid for in that moment.
    let (written, _) = system.object(first, 8);
    (0..8).for_each(|page| system.set_word(first, written + page * PAGE, page).unwrap());
    system.call(first, Call::KeepObject, &[written]).unwrap();
    system.server.check(&system.platform).expect("consistent");
    system.call(first, Call::ObjDelete, &[written]).unwrap();
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    let child = system.task(first);
    system.exit(child, 7);
    assert_eq!(system.reap(first, child), Ok(7));
    let stats = system.server.store.stats();
    assert!(stats.free > 8192 / 16, "{stats:?}");
    // A deleted object gives back what it took, whoever has ended meanwhile.
    let _ = system.call(first, Call::ThreadDelete, &[hostile.0, 0]);
    let _ = system.reap(first, hostile);
    let paid = used(&mut system);
    assert!(paid[Resource::Blocks as usize] > before[Resource::Blocks as usize]);
    for base in kept.into_iter().chain([own]) {
        let id = system.server.objects.find(base).expect("it was kept");
        let password = system.server.objects.get(id).record.capabilities[0].0;
        let (clist, _) = system.clist(first, &[(base, password)]);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        system.call(first, Call::ObjDelete, &[base]).unwrap();
        system.call(first, Call::ApdDelete, &[0]).unwrap();
        system.call(first, Call::ObjDelete, &[clist]).unwrap();
    }
    let after = used(&mut system);
    assert_eq!(after[Resource::Blocks as usize], before[Resource::Blocks as usize]);
    assert_eq!(after[Resource::Dirty as usize], before[Resource::Dirty as usize]);
    system.check_to_the_end();
}

/// An account that has as many dirty pages as it may waits for a checkpoint, and fails nothing.
#[test]
fn who_writes_too_much_waits() {
    let mut system = System::boot_with(51, 2048, 8192);
    let first = system.first;
    let child = system.task(first);
    let (base, _) = system.object(child, 1000);
    system.call(child, Call::KeepObject, &[base]).unwrap();
    for page in 0..1000 {
        system.set_word(child, base + page * PAGE, page).unwrap();
        let dirty = system.server.pager.dirty;
        assert!(dirty <= 2048 / 4 + 16, "{dirty}");
    }
    for page in 0..1000 {
        assert_eq!(system.word(child, base + page * PAGE), Ok(page));
    }
    system.check_to_the_end();
}

/// Sixteen tasks in turn make all the semaphores that they may, in an object that stays.
#[test]
fn semaphores_end_with_their_maker() {
    let mut system = System::boot(52);
    let first = system.first;
    let (shared, password) = system.object(first, 2);
    system.call(first, Call::KeepObject, &[shared]).unwrap();
    let waiter = confined(&mut system, first, shared, password);
    for round in 0..17 {
        let hostile = confined(&mut system, first, shared, password);
        for number in 0..PROGRAM_SEMAPHORES {
            let made = system.call(hostile, Call::SemCreate, &[shared + number * 8, 0]);
            assert_eq!(made, Ok((0, 0)), "round {round}, number {number}");
        }
        assert_eq!(
            system.call(hostile, Call::SemCreate, &[shared + PROGRAM_SEMAPHORES * 8 - 4, 0]),
            Err(Error::LimitReached)
        );
        assert_eq!(
            system.start(waiter, Call::SemWait, &[shared + 8, FOREVER]),
            Answer::Blocked
        );
        system.exit(hostile, 0);
        assert_eq!(system.reap(first, hostile), Ok(0));
        system.finish_work();
        assert_eq!(system.server.semaphores.count(), 0);
        assert_eq!(system.wait_for(waiter), Answer::Done(Err(Error::Deleted)));
    }
    system.check_to_the_end();
}

/// The first task ends whatever it likes: a grandchild, an orphan that sleeps. Others do not.
#[test]
fn nothing_lives_that_nobody_can_end() {
    let mut system = System::boot(53);
    let first = system.first;
    let before = {
        let child = system.task(first);
        system.exit(child, 0);
        system.reap(first, child).unwrap();
        used(&mut system)
    };
    let (empty, _) = system.object(first, 1);
    let stranger = system.task_with(first, empty, 0);
    let child = system.task(first);
    let [grandchild, orphan] = [(); 2].map(|()| system.task(child));
    assert_eq!(system.start(orphan, Call::ThreadSleep, &[0, FOREVER]), Answer::Blocked);
    assert_eq!(
        system.call(stranger, Call::ThreadDelete, &[grandchild.0, 0]),
        Err(Error::NoSuchThread)
    );
    system.call(first, Call::ThreadDelete, &[grandchild.0, 0]).unwrap();
    // The child goes, its child sleeps on.
    system.exit(child, 0);
    system.reap(first, child).unwrap();
    assert!(system.server.threads.find(orphan).is_some());
    system.call(first, Call::ThreadDelete, &[orphan.0, 0]).unwrap();
    assert!(system.server.threads.find(orphan).is_none());
    system.exit(stranger, 0);
    system.reap(first, stranger).unwrap();
    system.call(first, Call::ObjDelete, &[empty]).unwrap();
    assert_eq!(used(&mut system), before);
    system.check_to_the_end();
}

/// A head with everything that can be made, and a child, a grandchild, threads, who all have something, too.
fn hostile_family(system: &mut System, first: ThreadId) -> Vec<ThreadId> {
    let head = system.task(first);
    let mut family = vec![head];
    for generation in 0..3 {
        let child = system.task(family[generation]);
        family.push(child);
    }
    for &member in &family {
        let (base, _) = system.object(member, 700);
        for page in [0, 1, 300, 699] {
            system.set_word(member, base + page * PAGE, page).unwrap();
        }
        for number in 0..20 {
            system.call(member, Call::SemCreate, &[base + number * 8, 1]).unwrap();
            let arguments = [base, 100 + number, u64::from(Rights::R.bits())];
            system.call(member, Call::ObjPasswd, &arguments).unwrap();
        }
        system
            .call(
                member,
                Call::PageLimit,
                &[base + 10 * PAGE, 5, u64::from(Rights::R.bits())],
            )
            .unwrap();
        // Shared with the disk, and gone again.
        let (kept, _) = system.object(member, 600);
        system.call(member, Call::KeepObject, &[kept]).unwrap();
        system.set_word(member, kept, 1).unwrap();
        system.set_word(member, kept + 599 * PAGE, 1).unwrap();
        system.call(member, Call::ObjResize, &[kept, 2 * PAGE]).unwrap();
        system.call(member, Call::ObjDelete, &[kept]).unwrap();
        // A procedure, called by the same task: merged and empty.
        let image = system.image_of(member);
        let (entries, _) = system.object(member, 1);
        system.set_word(member, entries, image + ENTRY).unwrap();
        system
            .call(member, Call::ObjCrePdx, &[image, 77, 0, entries, 1])
            .unwrap();
        for pd in [PD_MERGE, PD_EMPTY] {
            if system.start(member, Call::PdxCall, &[image + ENTRY, 1, pd]) == Answer::Elsewhere {
                system.start(member, Call::PdxReturn, &[0, 0]);
            }
        }
        let made = system
            .call(member, Call::ThreadCreate, &[image + ENTRY, image, 3])
            .unwrap();
        system.start(ThreadId(made.0), Call::ThreadSleep, &[0, FOREVER]);
    }
    family
}

/// After each round the root's account shows what it showed before.
#[test]
fn whatever_a_family_took_comes_back() {
    let mut system = System::boot_with(54, 8192, 16384);
    let first = system.first;
    let mut before = Vec::new();
    for round in 0..12 {
        let family = hostile_family(&mut system, first);
        // Some end by themselves, in either order, some are ended; nobody waits for anybody but the first task.
        let order: Vec<ThreadId> = match round % 3 {
            0 => family.clone(),
            1 => family.iter().rev().copied().collect(),
            _ => Vec::new(),
        };
        for thread in order {
            system.exit(thread, 0);
        }
        let left: Vec<ThreadId> = system.server.threads.iter().map(|record| record.id).collect();
        for thread in left.into_iter().filter(|&thread| thread != first) {
            let _ = system.call(first, Call::ThreadDelete, &[thread.0, 0]);
        }
        system.pass(3_000_000_000);
        system.reap(first, family[0]).unwrap();
        let now = used(&mut system);
        if round >= 3 {
            assert_eq!(now, before, "round {round}");
        }
        before = now;
        assert_eq!(system.server.semaphores.count(), 0);
        // The root, the first task, all programs.
        assert_eq!(system.server.ledger.count(), 3);
    }
    system.check_to_the_end();
}

/// Programs have used up their share of the heap: the first task can go on, where nothing is refused to everybody.
#[test]
fn programs_at_their_limit_leave_heap_to_the_first_task() {
    let mut system = System::boot_with(70, 8192, 16384);
    let first = system.first;
    let (base, _) = system.object(first, 1);
    for heap in [4 << 20, 16 << 20, 64 << 20] {
        system.platform.kernel.hardware.heap_left = heap;
        let machine = limits::of_machine(&system.platform, 0, 0);
        system.platform.kernel.hardware.heap_left =
            heap - limits::of_programs(&machine, 0, 0)[Resource::Bytes as usize];
        system.call(first, Call::ObjCreate, &[4096, 0]).unwrap();
        system.set_word(first, base, heap).unwrap();
        system.task(first);
    }
}

/// A program that makes tasks, and domains of procedures, has as many spaces as its account may: those of the others are left to them.
#[test]
fn spaces_are_paid_for() {
    let mut system = System::boot(71);
    let first = system.first;
    // What the first child leaves in hand and in boxes is there before.
    let child = system.task(first);
    system.exit(child, 0);
    system.reap(first, child).unwrap();
    let before = used(&mut system);
    let hostile = system.task(first);
    let task = system.server.threads.find(hostile).expect("it lives").task;
    let account = system.server.tasks.get(task).expect("a task").account;
    let machine = limits::of_machine(&system.platform, 0, 0)[Resource::Spaces as usize];
    let may = system.server.ledger.limit(account, Resource::Spaces);
    assert!(machine / 2 < may && may < machine / 4 * 3, "{may} of {machine}");
    let mut limits = system.server.ledger.limits(account);
    limits[Resource::Spaces as usize] = 5;
    system.server.ledger.set_limits(account, limits);
    let service = system.service(hostile);
    for pd in [PD_MERGE, PD_EMPTY] {
        assert_eq!(system.enter(hostile, service.image + ENTRY, pd), Answer::Elsewhere);
        system.leave(hostile, 0);
    }
    let mut children = Vec::new();
    let error = loop {
        let image = system.image(hostile);
        let start = [image + ENTRY, image + PROGRAM_PAGES * PAGE, 0, 0, 3];
        match system.call(hostile, Call::TaskCreate, &start) {
            Ok((child, _)) => children.push(ThreadId(child)),
            Err(error) => break error,
        }
        assert!(children.len() < 9);
    };
    assert_eq!(error, Error::LimitReached);
    assert_eq!(system.server.ledger.used(account, Resource::Spaces), 5);
    assert_eq!(
        children.len(),
        4,
        "the domains of procedures were taken back, which nobody was inside of"
    );
    let other = system.task(first);
    system.exit(other, 7);
    assert_eq!(system.reap(first, other), Ok(7));
    system.exit(hostile, 0);
    system.reap(first, hostile).unwrap();
    for child in children {
        system.call(first, Call::ThreadDelete, &[child.0, 0]).unwrap();
    }
    assert_eq!(
        used(&mut system)[Resource::Spaces as usize],
        before[Resource::Spaces as usize]
    );
    system.check_to_the_end();
}

/// An account that has no space left gets back that of its idle callee, in whatever place that callee stands, and while polls look at one that has retired.
#[test]
fn an_idle_callee_is_taken_back_wherever_it_stands() {
    for (places, retired) in (20..40).chain(50..60).flat_map(|places| [(places, 0), (places, 1)]) {
        let mut system = System::boot_with(71, 16_384, 16_384);
        let first = system.first;
        let program = system.task(first);
        let task = system.server.threads.find(program).expect("it lives").task;
        let account = system.server.tasks.get(task).expect("a task").account;
        let mut limits = system.server.ledger.limits(account);
        limits[Resource::Spaces as usize] = 2;
        system.server.ledger.set_limits(account, limits);
        system.retired_callees(retired);
        for _ in 0..places {
            system.task(first);
        }
        let service = system.service(program);
        assert_eq!(
            system.enter(program, service.image + ENTRY, PD_EMPTY),
            Answer::Elsewhere
        );
        system.leave(program, 0);
        for _ in places..70 {
            system.task(first);
        }
        let image = system.image(program);
        let start = [image + ENTRY, image + PROGRAM_PAGES * PAGE, 0, 0, 3];
        system.server.price_calls(kcore::outside::Remote::<()>::CALL);
        let made = system.call(program, Call::TaskCreate, &start);
        assert!(made.is_ok(), "behind {places} tasks, {retired} retired: {made:?}");
    }
}

/// A program that has no memory left of its own takes back what it does not use itself. Others keep their callees.
#[test]
fn a_program_at_its_limit_takes_no_callees_of_others() {
    let mut system = System::boot_with(72, 16_384, 16_384);
    let first = system.first;
    let service = system.service(first);
    let client = system.client(&[(service.image, service.password)]);
    let domain = |system: &mut System| {
        assert_eq!(system.enter(client, service.image + ENTRY, PD_EMPTY), Answer::Elsewhere);
        let space = system.platform.thread_space(client);
        system.leave(client, 0);
        (space, system.server.domains.serial(space))
    };
    let before = domain(&mut system);
    let program = system.task(first);
    let own = system.service(program);
    let task = system.server.threads.find(program).expect("it lives").task;
    let account = system.server.tasks.get(task).expect("a task").account;
    let mut limits = system.server.ledger.limits(account);
    limits[Resource::Spaces as usize] = system.server.ledger.used(account, Resource::Spaces);
    system.server.ledger.set_limits(account, limits);
    let entered = match system.enter(program, own.image + ENTRY, PD_MERGE) {
        Answer::Blocked => system.wait_for(program),
        entered => entered,
    };
    assert_eq!(entered, Answer::Done(Err(Error::LimitReached)));
    assert_eq!(domain(&mut system), before);
}

/// A service that has no memory left takes back its own idle callees when a client calls a further procedure of it.
#[test]
fn a_service_at_its_limit_takes_its_idle_callees_back() {
    let mut system = System::boot_with(73, 16_384, 16_384);
    let first = system.first;
    let program = system.task(first);
    let services = [0; 4].map(|_| system.service(program));
    let client = system.client(&services.each_ref().map(|service| (service.image, service.password)));
    let task = system.server.threads.find(program).expect("it lives").task;
    let account = system.server.tasks.get(task).expect("a task").account;
    let mut limits = system.server.ledger.limits(account);
    limits[Resource::Spaces as usize] = system.server.ledger.used(account, Resource::Spaces) + 2;
    system.server.ledger.set_limits(account, limits);
    for service in &services {
        let entered = match system.enter(client, service.image + ENTRY, PD_EMPTY) {
            Answer::Blocked => system.wait_for(client),
            entered => entered,
        };
        assert_eq!(entered, Answer::Elsewhere);
        system.leave(client, 0);
    }
    system.check_to_the_end();
}

/// Threads of a crowd that may have no further stack wait. One of it gives a stack back, which another client may have, a thread of which waits behind them.
#[test]
fn a_crowd_that_waits_keeps_no_stack_from_who_may_have_it() {
    let mut system = System::boot_with(46, 16384, 16384);
    let first = system.first;
    let service = system.service(first);
    let entry = service.image + ENTRY;
    let [crowd, other] = [(); 2].map(|()| system.client(&[(service.image, service.password)]));
    let threads_of = |system: &mut System, maker: ThreadId, count: usize| {
        let image = system.image_of(maker);
        let mut threads = vec![maker];
        for _ in 1..count {
            let made = system.call(maker, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap();
            threads.push(ThreadId(made.0));
        }
        threads
    };
    let (many, few) = (threads_of(&mut system, crowd, 64), threads_of(&mut system, other, 5));
    let enters = |system: &mut System, threads: &[ThreadId]| {
        let (mut inside, mut waiting) = (Vec::new(), Vec::new());
        for &thread in threads.iter().rev() {
            match system.enter(thread, entry, PD_EMPTY) {
                Answer::Elsewhere => inside.push(thread),
                Answer::Blocked => waiting.push(thread),
                answer => panic!("{answer:?}"),
            }
        }
        (inside, waiting)
    };
    let (mut inside, waiting) = enters(&mut system, &many);
    assert_eq!((inside.len(), waiting.len()), (24, 40));
    let (others, last) = enters(&mut system, &few);
    assert_eq!(
        (others.len(), last.len()),
        (4, 1),
        "the fifth has its turn when the crowd leaves a stack"
    );
    let mut returns = 0;
    while !system.late.contains_key(&last[0]) {
        let thread = inside.pop().expect("one is inside");
        system.leave(thread, 0);
        returns += 1;
        system.pump();
        let entered: Vec<ThreadId> = system
            .late
            .keys()
            .copied()
            .filter(|thread| *thread != last[0])
            .collect();
        for thread in entered {
            system.late.remove(&thread);
            inside.push(thread);
        }
    }
    assert_eq!(returns, 1, "the first return gives the other client its turn");
    system.check_to_the_end();
}
