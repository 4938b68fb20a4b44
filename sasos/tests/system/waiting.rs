//! Semaphores, and waiting on words.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{CONTROL_CHECKPOINT, FOREVER},
};
use kcore::{
    Machine, ThreadId,
    thread::{Resumed, THREADS_MAX},
};
use sasos::{Event, Outcome, accounts::limits::PROGRAM_SEMAPHORES};
use sim::machine::Touch;

use crate::harness::{Answer, ENTRY, System};

impl System {
    /// Another thread of the same task.
    fn sibling(&mut self, thread: ThreadId) -> ThreadId {
        let image = self.image_of(thread);
        ThreadId(self.call(thread, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap().0)
    }

    /// The threads among these whose parked call is over by now, with its answer.
    fn finished(&mut self, threads: &[ThreadId]) -> Vec<(usize, Answer)> {
        self.pump();
        threads
            .iter()
            .enumerate()
            .filter_map(|(place, thread)| Some((place, self.over(*thread)?)))
            .collect()
    }
}

const DONE: Answer = Answer::Done(Ok((0, 0)));

/// The registers of a call that returns later are those of a call, with nothing of what the thread or a callee left in them.
#[test]
fn a_thread_that_yields_finds_only_results() {
    let mut system = System::boot(30);
    let first = system.first;
    let context = |system: &mut System| system.platform.kernel.threads_mut().get_mut(first).context;
    let mut before = context(&mut system);
    (before.rdi, before.r12, before.rax, before.rdx) = (7, 8, 9, 10);
    system.platform.kernel.threads_mut().get_mut(first).context = before;
    assert_eq!(system.start(first, Call::ThreadSleep, &[0, 0]), Answer::Gone);
    let after = context(&mut system);
    assert_eq!((after.rdi, after.r12, after.rax, after.rdx), (0, 0, 0, 0));
    assert_eq!(
        (after.rip, after.rsp, after.vector),
        (before.rip, before.rsp, kcore::thread::Context::OF_CALL)
    );
}

/// A call that the kernel does again for the thread, as it does where another one was more urgent.
#[test]
fn a_thread_that_yields_does_not_yield_again() {
    let mut system = System::boot(30);
    let first = system.first;
    let threads = system.platform.kernel.threads_mut();
    threads.get_mut(first).operation = Some(kcore::thread::Operation {
        number: Call::ThreadSleep as u64,
        arguments: [0; 6],
    });
    let event = sasos::Event::Call {
        thread: first,
        number: Call::ThreadSleep as u64,
        arguments: [0; 6],
        resumed: kcore::thread::Resumed::First,
    };
    assert_eq!(system.server.handle(&mut system.platform, event), sasos::Outcome::Gone);
    let threads = system.platform.kernel.threads_mut();
    assert_eq!(threads.get_mut(first).operation, None);
}

#[test]
fn signals_are_counted_and_wake_the_oldest() {
    let mut system = System::boot(30);
    let first = system.first;
    let (object, _) = system.object(first, 1);
    let semaphore = object + 24;
    assert_eq!(
        system.call(first, Call::SemWait, &[semaphore, FOREVER]),
        Err(Error::NoSuchSemaphore)
    );
    assert_eq!(
        system.call(first, Call::SemSignal, &[semaphore]),
        Err(Error::NoSuchSemaphore)
    );
    assert_eq!(
        system.call(first, Call::SemCreate, &[semaphore, u64::MAX]),
        Err(Error::BadArgument)
    );
    system.call(first, Call::SemCreate, &[semaphore, 2]).unwrap();
    assert_eq!(system.call(first, Call::SemCreate, &[semaphore, 2]), Err(Error::InUse));
    let threads = [(); 4].map(|()| system.sibling(first));
    for thread in &threads[..2] {
        assert_eq!(system.start(*thread, Call::SemWait, &[semaphore, FOREVER]), DONE);
    }
    assert_eq!(system.call(first, Call::SemWait, &[semaphore, 0]), Err(Error::TimedOut));
    for thread in threads {
        assert_eq!(
            system.start(thread, Call::SemWait, &[semaphore, FOREVER]),
            Answer::Blocked
        );
    }
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    assert_eq!(system.finished(&threads), [(0, DONE)]);
    // The signal was handed over: nobody comes in between, and it is gone with the one that has it.
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    assert_eq!(system.call(first, Call::SemWait, &[semaphore, 0]), Err(Error::TimedOut));
    system.call(first, Call::ThreadDelete, &[threads[1].0, 0]).unwrap();
    assert_eq!(system.finished(&threads), []);
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    assert_eq!(system.finished(&threads), [(2, DONE)]);
    system.check_to_the_end();
}

impl System {
    /// A semaphore, a thread of another task that has a right to it by a password, so many siblings of that, and the password.
    fn strangers<const N: usize>(&mut self) -> (u64, ThreadId, [ThreadId; N], u64) {
        let first = self.first;
        let (semaphore, _) = self.object(first, 1);
        let right = self.call(first, Call::ObjPasswd, &[semaphore, 0, Rights::R.bits().into()]);
        let (password, _) = right.unwrap();
        let (clist, _) = self.clist(first, &[(semaphore, password)]);
        self.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        let child = self.task(first);
        self.call(first, Call::SemCreate, &[semaphore, 0]).unwrap();
        (semaphore, child, [(); N].map(|()| self.sibling(child)), password)
    }

    /// Has a thread wait for a semaphore, or for the word at its address.
    fn waits(&mut self, thread: ThreadId, semaphore: u64, is_word: bool) {
        let answer = if is_word {
            self.start(thread, Call::AddressWait, &[semaphore, 0, FOREVER])
        } else {
            self.start(thread, Call::SemWait, &[semaphore, FOREVER])
        };
        assert_eq!(answer, Answer::Blocked);
    }
}

/// A waiter whose domain has forgotten its right has to look for it. If the waiter ends, or is suspended, before it has, the next one gets the signal.
#[test]
fn a_signal_goes_to_the_next_waiter_if_the_first_cannot_take_it() {
    let mut system = System::boot(36);
    let (semaphore, child, threads, _) = system.strangers::<4>();
    let first = system.first;
    for thread in threads {
        let waits = system.start(thread, Call::SemWait, &[semaphore, FOREVER]);
        assert_eq!(waits, Answer::Blocked);
    }
    system.call(child, Call::ApdFlush, &[]).unwrap();
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    system.call(first, Call::ThreadDelete, &[threads[0].0, 0]).unwrap();
    assert_eq!(system.finished(&threads), [(1, DONE)]);
    system.call(child, Call::ApdFlush, &[]).unwrap();
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    system.call(child, Call::ThreadSleep, &[threads[2].0, FOREVER]).unwrap();
    assert_eq!(system.finished(&threads), [(3, DONE)]);
    system.call(child, Call::ThreadResume, &[threads[2].0]).unwrap();
    assert_eq!(system.finished(&threads), []);
    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
    assert_eq!(system.finished(&threads), [(2, DONE)]);
    system.check_to_the_end();
}

/// Signals that are handed over and signals that waiters fetch by another call: both ways against one model. Where their domain has forgotten its right, all
/// waiters look for it at once, and the order among them is not kept.
#[test]
fn each_signal_is_taken_once_and_by_the_oldest() {
    for seed in 0..40 {
        let mut rng = sim::rng::Rng::new(seed);
        let mut system = System::boot(100 + seed);
        let (semaphore, child, threads, _) = system.strangers::<5>();
        let first = system.first;
        let (mut count, mut waiting, mut suspended) = (0, Vec::new(), Vec::new());
        let (mut is_known, mut is_ordered) = (true, true);
        for _ in 0..60 {
            let number = rng.below(5) as usize;
            let thread = threads[number];
            let mut finished = Vec::new();
            match rng.below(8) {
                0..3 if !waiting.contains(&number) && !suspended.contains(&number) => {
                    is_known = true;
                    let answer = system.start(thread, Call::SemWait, &[semaphore, FOREVER]);
                    assert_eq!(answer, if count > 0 { DONE } else { Answer::Blocked });
                    if count > 0 {
                        count -= 1;
                    } else {
                        waiting.push(number);
                    }
                }
                3..6 => {
                    system.call(first, Call::SemSignal, &[semaphore]).unwrap();
                    is_ordered &= is_known || waiting.is_empty();
                    if waiting.is_empty() {
                        count += 1;
                    } else if is_ordered {
                        finished.push((waiting.remove(0), DONE));
                    } else {
                        is_known = true;
                        let [(number, DONE)] = system.finished(&threads)[..] else {
                            panic!("seed {seed}: one of {waiting:?} has the signal");
                        };
                        let place = waiting.iter().position(|waiter| *waiter == number);
                        waiting.remove(place.expect("it has waited"));
                    }
                    is_ordered |= waiting.is_empty();
                }
                6 => {
                    system.call(child, Call::ApdFlush, &[]).unwrap();
                    is_known = false;
                }
                7 if suspended.contains(&number) => {
                    system.call(child, Call::ThreadResume, &[thread.0]).unwrap();
                    suspended.retain(|&other| other != number);
                    is_known = true;
                    if count > 0 {
                        count -= 1;
                        finished.push((number, DONE));
                    } else {
                        waiting.push(number);
                    }
                }
                7 if waiting.contains(&number) => {
                    system.call(child, Call::ThreadSleep, &[thread.0, FOREVER]).unwrap();
                    waiting.retain(|&other| other != number);
                    suspended.push(number);
                }
                _ => {}
            }
            assert_eq!(system.finished(&threads), finished, "seed {seed}");
        }
    }
}

#[test]
fn waiters_time_out_and_learn_of_a_deletion() {
    let mut system = System::boot(31);
    let first = system.first;
    let (object, _) = system.object(first, 1);
    system.call(first, Call::SemCreate, &[object, 0]).unwrap();
    let threads = [(); 3].map(|()| system.sibling(first));
    assert_eq!(
        system.start(threads[0], Call::SemWait, &[object, 10_000_000]),
        Answer::Blocked
    );
    assert_eq!(
        system.start(threads[1], Call::SemWait, &[object, 90_000_000]),
        Answer::Blocked
    );
    system.pass(11_000_000);
    assert_eq!(system.finished(&threads), [(0, Answer::Done(Err(Error::TimedOut)))]);
    // Deleted and made again: it is another one.
    system.call(first, Call::SemDelete, &[object]).unwrap();
    assert_eq!(
        system.call(first, Call::SemDelete, &[object]),
        Err(Error::NoSuchSemaphore)
    );
    system.call(first, Call::SemCreate, &[object, 1]).unwrap();
    assert_eq!(system.finished(&threads), [(1, Answer::Done(Err(Error::Deleted)))]);
    // The object goes, with all semaphores in it.
    system.call(first, Call::SemWait, &[object, FOREVER]).unwrap();
    assert_eq!(
        system.start(threads[2], Call::SemWait, &[object, FOREVER]),
        Answer::Blocked
    );
    assert_eq!(
        system.start(threads[1], Call::AddressWait, &[object + 8, 0, FOREVER]),
        Answer::Blocked
    );
    system.call(first, Call::ObjDelete, &[object]).unwrap();
    assert_eq!(
        system.finished(&threads),
        [(1, DONE), (2, Answer::Done(Err(Error::Deleted)))]
    );
    assert_eq!(system.server.semaphores.count(), 0);
    system.check_to_the_end();
}

#[test]
fn semaphores_need_rights() {
    let mut system = System::boot(32);
    let first = system.first;
    let (object, _) = system.object(first, 1);
    let (password, _) = system
        .call(first, Call::ObjPasswd, &[object, 0, Rights::R.bits().into()])
        .unwrap();
    let child = {
        let (clist, _) = system.clist(first, &[(object, password)]);
        system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
        system.task(first)
    };
    let stranger = {
        system.call(first, Call::ApdDelete, &[0]).unwrap();
        system.task(first)
    };
    system.call(first, Call::SemCreate, &[object, 1]).unwrap();
    assert_eq!(
        system.call(child, Call::SemCreate, &[object + 8, 1]),
        Err(Error::Protection)
    );
    assert_eq!(system.call(child, Call::SemDelete, &[object]), Err(Error::Protection));
    assert_eq!(
        system.call(stranger, Call::SemWait, &[object, 0]),
        Err(Error::Protection)
    );
    assert_eq!(
        system.call(stranger, Call::SemSignal, &[object]),
        Err(Error::Protection)
    );
    assert_eq!(
        system.call(stranger, Call::AddressWake, &[object, 1]),
        Err(Error::Protection)
    );
    system.call(child, Call::SemWait, &[object, 0]).unwrap();
    // A waiter that loses its right while it waits does not keep a signal for itself.
    assert_eq!(system.start(child, Call::SemWait, &[object, FOREVER]), Answer::Blocked);
    let sibling = system.sibling(first);
    assert_eq!(
        system.start(sibling, Call::SemWait, &[object, FOREVER]),
        Answer::Blocked
    );
    system.call(first, Call::ObjPasswd, &[object, password, 0]).unwrap();
    system.call(first, Call::SemSignal, &[object]).unwrap();
    assert_eq!(
        system.finished(&[child, sibling]),
        [(0, Answer::Done(Err(Error::Protection))), (1, DONE)]
    );
    system.check_to_the_end();
}

#[test]
fn a_word_is_waited_for_while_it_holds() {
    let mut system = System::boot(33);
    let first = system.first;
    let (object, _) = system.object(first, 2);
    let word = object + PAGE + 4;
    system.store(first, word, &7_u32.to_le_bytes()).unwrap();
    let threads = [(); 3].map(|()| system.sibling(first));
    assert_eq!(
        system.call(first, Call::AddressWait, &[word, 8, FOREVER]),
        Err(Error::Changed)
    );
    assert_eq!(
        system.call(first, Call::AddressWait, &[word + 1, 7, FOREVER]),
        Err(Error::BadArgument)
    );
    assert_eq!(
        system.call(first, Call::AddressWait, &[word, 7, 0]),
        Err(Error::TimedOut)
    );
    for thread in threads {
        assert_eq!(
            system.start(thread, Call::AddressWait, &[word, 7, FOREVER]),
            Answer::Blocked
        );
    }
    assert_eq!(system.call(first, Call::AddressWake, &[word, 2]), Ok((2, 0)));
    assert_eq!(system.finished(&threads), [(0, DONE), (1, DONE)]);
    assert_eq!(
        system.start(threads[0], Call::AddressWait, &[word, 7, 1_000_000]),
        Answer::Blocked
    );
    system.pass(2_000_000);
    assert_eq!(system.finished(&threads), [(0, Answer::Done(Err(Error::TimedOut)))]);
    assert_eq!(system.call(first, Call::AddressWake, &[word, u64::MAX]), Ok((1, 0)));
    assert_eq!(system.finished(&threads), [(2, DONE)]);
    assert_eq!(system.call(first, Call::AddressWake, &[word, 1]), Ok((0, 0)));
    system.check_to_the_end();
}

/// Threads that wait, and lose their right to the object, keep nothing from others, wherever they stand: the first who have it are woken or have the signals,
/// though the strangers never run.
#[test]
fn waiters_without_a_right_keep_nothing_from_others() {
    keep_nothing::<140>();
    keep_nothing::<3_300>();
}

fn keep_nothing<const STRANGERS: usize>() {
    for is_word in [false, true] {
        let mut system = System::boot_with(35, 32_768, 16_384);
        let first = system.first;
        let (semaphore, _, strangers, password) = system.strangers::<STRANGERS>();
        let own = [(); 4].map(|()| system.sibling(first));
        let (before, behind) = strangers.split_at(STRANGERS - 70);
        for thread in before.iter().chain(&own[..1]).chain(behind).chain(&own[1..]) {
            system.waits(*thread, semaphore, is_word);
        }
        system.call(first, Call::ObjPasswd, &[semaphore, password, 0]).unwrap();
        // The right of the owner's domain is known again, as that of a domain that uses the object.
        system.touch(first, semaphore, Touch::Read).unwrap();
        if is_word {
            assert_eq!(system.call(first, Call::AddressWake, &[semaphore, 3]), Ok((3, 0)));
        } else {
            for _ in 0..3 {
                system.call(first, Call::SemSignal, &[semaphore]).unwrap();
            }
        }
        // Whether the strangers run or not.
        let is_ready = |thread: &ThreadId| system.platform.thread_is_ready(*thread);
        assert!(own[..3].iter().all(is_ready), "words: {is_word}");
        assert_eq!(
            system.finished(&own),
            [(0, DONE), (1, DONE), (2, DONE)],
            "words: {is_word}"
        );
        let refused = Answer::Done(Err(Error::Protection));
        let ended = system.finished(&strangers);
        assert!(ended.len() == strangers.len() && ended.iter().all(|(_, answer)| *answer == refused));
        system.check_to_the_end();
    }
}

/// Waiters whose domain forgets its rights between any two events keep nobody who signals for ever.
#[test]
fn waiters_that_forget_their_right_keep_no_signal_for_ever() {
    for (is_word, number, count) in [(false, Call::SemSignal, 0), (true, Call::AddressWake, 1)] {
        let mut system = System::boot_with(38, 8192, 16_384);
        let first = system.first;
        let (semaphore, child, threads, _) = system.strangers::<100>();
        for thread in threads {
            system.waits(thread, semaphore, is_word);
        }
        let (mut events, mut resumed) = (0_usize, Resumed::First);
        loop {
            system.call(child, Call::ApdFlush, &[]).unwrap();
            system.run(first);
            let event = Event::Call {
                thread: first,
                number: number as u64,
                arguments: [semaphore, count, 0, 0, 0, 0],
                resumed,
            };
            if system.server.handle(&mut system.platform, event) != Outcome::Again {
                break;
            }
            (events, resumed) = (events + 1, Resumed::Woken);
            assert!(events < THREADS_MAX, "words: {is_word}");
            for (place, _) in system.finished(&threads) {
                system.waits(threads[place], semaphore, is_word);
            }
        }
        assert!(events > 2, "the call goes in pieces");
        // Those who were woken last end before they look: one of the others has the signal.
        let is_ready = |thread: &ThreadId| system.platform.thread_is_ready(*thread);
        let (woken, others): (Vec<_>, Vec<_>) = threads.into_iter().partition(is_ready);
        assert!(!woken.is_empty() && !others.is_empty());
        for thread in woken {
            system.call(first, Call::ThreadDelete, &[thread.0, 0]).unwrap();
        }
        let left = system.finished(&others);
        assert_eq!(left.len(), usize::from(!is_word), "words: {is_word}");
        system.check_to_the_end();
    }
}

/// A call that is to wake more than are woken one by one wakes all, if no more wait.
#[test]
fn a_wake_of_as_many_as_there_are_wakes_all() {
    for (waiting, count, woken) in [
        (50, 50, 50),
        (50, 100, 50),
        (50, 49, 32),
        (50, 32, 32),
        (20, 32, 20),
        (50, 0, 0),
    ] {
        let mut system = System::boot_with(37, 8192, 16_384);
        let first = system.first;
        let (object, _) = system.object(first, 1);
        let threads: Vec<ThreadId> = (0..waiting).map(|_| system.sibling(first)).collect();
        for thread in &threads {
            let answer = system.start(*thread, Call::AddressWait, &[object, 0, FOREVER]);
            assert_eq!(answer, Answer::Blocked);
        }
        assert_eq!(
            system.call(first, Call::AddressWake, &[object, count]),
            Ok((woken, 0)),
            "{count} of {waiting}"
        );
        // All of many are woken some at a time.
        let ended: usize = (0..20)
            .map(|_| {
                system.pass(1_000_000);
                system.finished(&threads).len()
            })
            .sum();
        assert_eq!(ended as u64, woken);
        system.check_to_the_end();
    }
}

/// One task cannot have all semaphores, and what it deletes it can make again.
#[test]
fn semaphores_are_charged_to_who_makes_them() {
    let mut system = System::boot(34);
    let first = system.first;
    let child = system.task(first);
    let [object, other] = [(); 2].map(|()| system.object(child, 4).0);
    let limit = PROGRAM_SEMAPHORES;
    for number in 0..limit {
        system.call(child, Call::SemCreate, &[object + number * 8, 0]).unwrap();
    }
    // A refused call is charged to nobody, whatever it was refused for.
    for address in [other, object] {
        assert_eq!(
            system.call(child, Call::SemCreate, &[address, 0]),
            Err(Error::LimitReached)
        );
    }
    let (own, _) = system.object(first, 1);
    system.call(first, Call::SemCreate, &[own, 0]).unwrap();
    system.call(child, Call::SemDelete, &[object]).unwrap();
    assert_eq!(system.call(child, Call::SemCreate, &[object + 8, 0]), Err(Error::InUse));
    assert_eq!(
        system.call(child, Call::SemCreate, &[other, u64::MAX]),
        Err(Error::BadArgument)
    );
    system.call(child, Call::SemCreate, &[other, 0]).unwrap();
    assert_eq!(
        system.call(child, Call::SemCreate, &[object, 0]),
        Err(Error::LimitReached)
    );
    // They go with the object.
    system.call(child, Call::ObjDelete, &[object]).unwrap();
    for number in 1..limit {
        system.call(child, Call::SemCreate, &[other + number * 8, 0]).unwrap();
    }
    assert_eq!(
        system.call(child, Call::SemCreate, &[other + limit * 8, 0]),
        Err(Error::LimitReached)
    );
    system.check_to_the_end();
}

/// A kept object of so many pages that are on the disk alone, but for the last one: so its map is in memory.
fn put_away(system: &mut System, pages: u64) -> u64 {
    let first = system.first;
    let (base, _) = system.object(first, pages);
    system.call(first, Call::KeepObject, &[base]).unwrap();
    for page in 0..pages {
        system.set_word(first, base + page * PAGE, page + 1).unwrap();
    }
    system.server.checkpoint_request(&mut system.platform);
    system.quiesce();
    while system.server.reclaim(&mut system.platform) > 0 {}
    system.word(first, base + (pages - 1) * PAGE).unwrap();
    base
}

/// A disk may complete one request while it is given the next: what a call begins to wait for is there before it parks.
#[test]
fn a_page_that_comes_while_others_are_asked_for_is_not_waited_for() {
    for call in [Call::PageCopy, Call::ObjClone, Call::PageFlush, Call::ObjDelete] {
        for pages in 2..6 {
            let mut system = System::boot(70 + pages);
            let first = system.first;
            let source = put_away(&mut system, pages);
            let (target, _) = system.object(first, pages);
            system.platform.completes_while_asked = true;
            let copy = match call {
                Call::PageCopy => {
                    system.call(first, call, &[source, target, pages]).unwrap();
                    target
                }
                Call::ObjClone => system.call(first, call, &[source, 0, 0]).unwrap().0,
                Call::PageFlush => {
                    system.set_word(first, source, 1).unwrap();
                    system.call(first, call, &[source, pages]).unwrap();
                    source
                }
                _ => {
                    system.call(first, call, &[source]).unwrap();
                    continue;
                }
            };
            for page in 0..pages {
                assert_eq!(system.word(first, copy + page * PAGE), Ok(page + 1));
            }
        }
    }
}

/// Frames that pages leave for tables and for the store.
const RESERVE: u64 = 64;

/// A copy needs a page of the source, what the store knows of both, and perhaps a frame of zeroes. Where there is memory for one of them only, each
/// took it from the other, for ever.
#[test]
fn a_copy_ends_where_memory_is_short() {
    let mut refused = 0;
    for holes in 0..8 {
        for pages in [1, 2, 7] {
            refused += u32::from(!is_copied_with(holes, pages));
        }
    }
    assert!(refused > 0, "memory was never short");
    assert!(is_copied_with(20, 7));
}

/// Takes all frames but the reserve and some more, and copies between objects on the disk; tells whether there was enough.
fn is_copied_with(holes: u64, pages: u64) -> bool {
    let mut system = System::boot_with(80, 160, 4096);
    let first = system.first;
    let [source, target] = [(); 2].map(|()| system.object(first, 8).0);
    for page in [0, 6, 7] {
        system.set_word(first, source + page * PAGE, 5 + page).unwrap();
        system.set_word(first, target + page * PAGE, 9).unwrap();
    }
    for base in [source, target] {
        system.call(first, Call::KeepObject, &[base]).unwrap();
        system.call(first, Call::PageFlush, &[base, 8]).unwrap();
    }
    system
        .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
        .unwrap();
    while system.server.reclaim(&mut system.platform) > 0 {}
    while system.server.store.shrink(&mut system.platform) != store::Look::Over {}
    let mut hoard = Vec::new();
    while system.platform.frames_free() > RESERVE + holes {
        hoard.push(system.platform.frame_any().unwrap());
    }
    let copied = system.call(first, Call::PageCopy, &[source, target, pages]);
    for frame in hoard {
        system.platform.frame_release(frame);
    }
    assert!(matches!(copied, Ok(_) | Err(Error::NoMemory)), "{copied:?}");
    if copied.is_ok() {
        for page in 0..pages {
            assert_eq!(
                system.word(first, target + page * PAGE),
                system.word(first, source + page * PAGE)
            );
        }
    }
    system.check_to_the_end();
    copied.is_ok()
}

/// A checkpoint has failed while memory was short, and the disk works again: whoever asks for the next one gets it, though nobody has a frame for the
/// Clist with his right before that.
#[test]
fn a_checkpoint_that_failed_is_made_again_without_memory() {
    let mut system = System::boot_with(81, 200, 4096);
    let first = system.first;
    let (base, _) = system.object(first, 40);
    system.call(first, Call::KeepObject, &[base]).unwrap();
    let (clist, _) = system.clist(first, &[]);
    for page in 0..40 {
        system.set_word(first, base + page * PAGE, 7).unwrap();
    }
    system.platform.disk.set_failing(1);
    let failed = system.call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0]);
    assert_eq!(failed, Err(Error::DiskError));
    system.platform.disk.set_failing(0);
    // The domain forgets what it has found.
    system.call(first, Call::ApdInsert, &[0, clist]).unwrap();
    while system.server.reclaim(&mut system.platform) > 0 {}
    while system.server.store.shrink(&mut system.platform) != store::Look::Over {}
    let mut hoard = Vec::new();
    while system.platform.frames_free() > RESERVE {
        hoard.push(system.platform.frame_any().unwrap());
    }
    let made = system.call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0]);
    for frame in hoard {
        system.platform.frame_release(frame);
    }
    assert_eq!(made, Ok((0, 0)));
    system.check_to_the_end();
}

/// `PageUnMap` drops nothing from memory that the store has no room to forget: the page would read as what the disk has of it.
#[test]
fn an_unmap_that_finds_the_disk_full_changes_nothing() {
    const FAR: u64 = 512 * PAGE;
    let mut system = System::boot_with(82, 4096, 700);
    let first = system.first;
    let (base, _) = system.object(first, 64 * 512);
    let pages = (0..64).map(|n| base + n * FAR);
    for value in [60, 90] {
        for page in pages.clone() {
            system.set_word(first, page, value).unwrap();
        }
        if value == 60 {
            system.call(first, Call::KeepObject, &[base]).unwrap();
            system
                .call(first, Call::SystemControl, &[CONTROL_CHECKPOINT, 0])
                .unwrap();
        }
    }
    let refused = loop {
        let (filler, _) = system.object(first, 1);
        system.set_word(first, filler, 1).unwrap();
        if let Err(error) = system.call(first, Call::KeepObject, &[filler]) {
            break error;
        }
    };
    assert_eq!(refused, Error::DiskFull);
    let mut failed = 0;
    // No checkpoint brings blocks back.
    system.platform.disk.set_failing(1);
    for page in pages {
        let unmapped = system.call(first, Call::PageUnMap, &[page, 1, 0]);
        let wanted = if unmapped.is_ok() { 0 } else { 90 };
        assert_eq!(system.word(first, page), Ok(wanted), "{unmapped:?}");
        failed += u32::from(unmapped == Err(Error::DiskFull));
    }
    assert!(failed > 0, "the store had room to forget all of them");
    system.platform.disk.set_failing(0);
    system.check_to_the_end();
}

/// A thread whose last call waited for a checkpoint faults while another one freezes: it waits for that one, and does not fault again and again.
#[test]
fn a_fault_waits_for_the_checkpoint_that_runs_now() {
    let mut system = System::boot(44);
    let first = system.first;
    let (object, _) = system.object(first, 40);
    system.call(first, Call::KeepObject, &[object]).unwrap();
    let fill = |system: &mut System| {
        for page in 0..40 {
            system.set_word(first, object + page * PAGE, 1).unwrap();
        }
    };
    fill(&mut system);
    // Too much for a sync.
    system.call(first, Call::PageFlush, &[object, 40]).unwrap();
    fill(&mut system);
    // Who writes a frame that somebody else has, too, waits while pages are frozen.
    system.call(first, Call::ObjClone, &[object]).unwrap();
    system.server.checkpoint_request(&mut system.platform);
    assert_eq!(system.try_touch(first, object, Touch::Write), Ok(None));
    assert!(!system.is_able(first), "it waits");
    system.set_word(first, object, 2).unwrap();
    system.check_to_the_end();
}
