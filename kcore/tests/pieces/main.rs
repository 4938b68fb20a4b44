//! Long work of the bare µ-kernel in pieces: each ends soon, however much there is; what is given stays given; and all of it ends.

#[path = "../fake/mod.rs"]
mod fake;

mod busy;
mod hostile;
mod rig;

use abi::{
    Error, Rights,
    nucleus::{
        ANYONE, Call, EXCHANGE_START, EXCHANGE_STOP, GRANT, LINK, MAP, NO_TIMEOUTS, THREAD_FAULTED, THREAD_READY,
        THREAD_STOPPED, fpage, port_fpage, timeouts,
    },
};
use fake::walk;
use kcore::{
    Machine, SpaceId, ThreadId,
    event::{Access, Event, Outcome},
    thread::{Operation, Resumed, State},
};
use rig::{FROM, LARGE, Rig, TO, receive, send};

/// Several items none of which is given in one piece: the thread that comes second does the work, and it ends.
#[test]
fn a_message_of_large_items_arrives() {
    for (items, timeout_us) in [(2, u32::MAX), (8, u32::MAX), (8, 0)] {
        let mut rig = Rig::new();
        let (sender, receiver) = (rig.mate(), rig.other());
        assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
        rig.items(sender, items, LARGE);
        let (answer, pieces) = rig.all(sender, Call::Ipc, send(receiver, items, timeout_us));
        assert_eq!(answer, Some(Ok((0, 0))));
        assert_eq!(rig.pages(receiver), 64 * items as usize);
        assert!(
            pieces > items as usize && pieces < 8 * items as usize,
            "{pieces} pieces"
        );

        let mut rig = Rig::new();
        let (sender, receiver) = (rig.mate(), rig.other());
        rig.items(sender, items, LARGE);
        assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, items, u32::MAX)), None);
        let (_, pieces) = rig.all(receiver, Call::Ipc, receive(timeouts(0, timeout_us)));
        assert_eq!(rig.kernel.threads().get(receiver).context.rsi, sender.0);
        assert_eq!(rig.pages(receiver), 64 * items as usize);
        assert!(
            pieces > items as usize && pieces < 8 * items as usize,
            "{pieces} pieces"
        );
    }
}

/// The time of a half passes while its message goes on.
#[test]
fn a_timeout_ends_a_message_that_goes_on() {
    let mut rig = Rig::new();
    let (sender, receiver) = (rig.mate(), rig.other());
    rig.items(sender, 8, LARGE);
    assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 8, u32::MAX)), None);
    assert_eq!(rig.begin(receiver, Call::Ipc, receive(timeouts(0, 50))), None);
    for _ in 0..2 {
        rig.kernel.hardware.now_ns += 20_000;
        assert_eq!(rig.go_on(receiver), None);
    }
    rig.kernel.hardware.now_ns += 20_000;
    assert_eq!(rig.go_on(receiver), Some(Err(Error::TimedOut)));
    assert!(rig.pages(receiver) > 0);
    assert!(matches!(rig.state(sender), State::Sending(_)), "its message waits");
    // Another receive takes all of it, from its front.
    rig.all(receiver, Call::Ipc, receive(NO_TIMEOUTS));
    assert_eq!(rig.pages(receiver), 512);

    // The same of a sender, whose receiver then waits on.
    let again = rig.other();
    assert_eq!(rig.begin(again, Call::Ipc, receive(NO_TIMEOUTS)), None);
    rig.items(sender, 8, LARGE);
    assert_eq!(rig.begin(sender, Call::Ipc, send(again, 8, 50)), None);
    rig.kernel.hardware.now_ns += 60_000;
    assert_eq!(rig.go_on(sender), Some(Err(Error::TimedOut)));
    assert_eq!(rig.state(again), State::Receiving);
}

/// Items that were given in one wait do not count as given in the next one, which has another window.
#[test]
fn another_wait_takes_a_message_from_its_front() {
    let mut rig = Rig::new();
    let (sender, receiver) = (rig.mate(), rig.other());
    let elsewhere = fpage(TO - (1 << 40), 40, Rights::RWX);
    let first = [0, ANYONE, 0, timeouts(0, 10), elsewhere, 0];
    assert_eq!(rig.begin(receiver, Call::Ipc, first), None);
    rig.items(sender, 4, LARGE);
    assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 4, u32::MAX)), None);
    assert_eq!(rig.go_on(sender), None);
    rig.kernel.hardware.now_ns += 20_000;
    rig.kernel.tick();
    assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
    for _ in 0..100 {
        if rig.goes_on(sender) {
            rig.go_on(sender);
        }
    }
    assert_eq!(rig.pages(receiver), 256);
}

/// The same if the next wait is being given items, too, by another sender; the first one ends by a message or by a fault.
#[test]
fn what_others_give_in_another_wait_does_not_count() {
    for is_fault in [false, true] {
        let mut rig = Rig::new();
        let (boss, sender, large) = (rig.boss, rig.mate(), rig.mate());
        let receiver = rig.other();
        let space = rig.done(boss, Call::SpaceCreate, [20_000, receiver.0, 0, 0, 0, 0]);
        let short = rig.done(boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]);
        // With a more urgent thread ready no fault takes the short path.
        rig.kernel.thread_suspend(boss);
        let elsewhere = fpage(TO - (1 << 40), 40, Rights::RWX);
        let first = [0, ANYONE, 0, NO_TIMEOUTS, elsewhere, 0];
        assert_eq!(rig.begin(receiver, Call::Ipc, first), None);
        rig.items(sender, 4, LARGE);
        assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 4, u32::MAX)), None);
        if is_fault {
            rig.fault(ThreadId(short));
        } else {
            let answer = rig.begin(ThreadId(short), Call::Ipc, send(receiver, 0, u32::MAX));
            assert_eq!(answer, Some(Ok((0, 0))));
        }
        assert_eq!(rig.kernel.threads().get(receiver).context.rsi, short);
        assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
        rig.items_of(large, 8..12, LARGE);
        assert_eq!(rig.begin(large, Call::Ipc, send(receiver, 4, u32::MAX)), None);
        let of_others = rig.pages(receiver);
        while rig.goes_on(sender) && rig.go_on(sender).is_none() {}
        assert_eq!(rig.kernel.threads().get(receiver).context.rsi, sender.0);
        assert_eq!(rig.pages(receiver), of_others + 256);
    }
}

/// Items that were taken of one message do not count as taken of the sender's next one.
#[test]
fn another_message_of_the_same_sender_is_taken_from_its_front() {
    let mut rig = Rig::new();
    let (sender, receiver) = (rig.mate(), rig.other());
    rig.items(sender, 4, LARGE);
    assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 4, 50)), None);
    assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
    let of_the_first = rig.pages(receiver);
    rig.kernel.hardware.now_ns += 60_000;
    rig.kernel.tick();
    assert_eq!(rig.go_on(sender), Some(Err(Error::TimedOut)));
    rig.items_of(sender, 8..12, LARGE);
    assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 4, u32::MAX)), None);
    while rig.goes_on(receiver) && rig.go_on(receiver).is_none() {}
    assert_eq!(rig.kernel.threads().get(receiver).context.rsi, sender.0);
    assert_eq!(rig.pages(receiver), of_the_first + 256);
}

const MANY: usize = 900;
/// Threads of these that one piece tells at most.
const AT_ONCE: usize = 70;

impl Rig {
    /// Many threads of the root program do one operation each, and wait.
    fn crowd(&mut self, call: [u64; 6], words: &[u64]) -> Vec<ThreadId> {
        self.crowd_of(MANY, call, words)
    }

    /// So many do.
    fn crowd_of(&mut self, count: usize, call: [u64; 6], words: &[u64]) -> Vec<ThreadId> {
        let one = |rig: &mut Self| {
            let thread = rig.mate();
            rig.words(thread, words);
            let index = rig.run(thread);
            let operation = Operation::called(Call::Ipc as u64, call);
            assert_eq!(
                rig.kernel.nucleus_event(operation.event(thread, Resumed::First)),
                Outcome::Gone
            );
            assert_ne!(rig.kernel.current(), Some(index));
            thread
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// Threads of these that have been told.
    fn told(&self, crowd: &[ThreadId]) -> usize {
        crowd
            .iter()
            .filter(|&&thread| self.state(thread) == State::Ready)
            .count()
    }

    /// The pieces of an operation, each of which tells no more than so many.
    fn telling(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6], crowd: &[ThreadId]) -> usize {
        let (mut answer, mut told) = (self.begin(thread, call, arguments), 0);
        for pieces in 1..200 {
            let now = self.told(crowd);
            assert!(now - told <= AT_ONCE, "{} threads are told in one piece", now - told);
            told = now;
            if answer.is_some() || !self.goes_on(thread) {
                return pieces;
            }
            answer = self.go_on(thread);
        }
        panic!("{call:?} never ends");
    }
}

/// Each message that waits is refused, for its item is none.
#[test]
fn many_messages_are_refused_in_pieces() {
    let mut rig = Rig::new();
    let receiver = rig.other();
    let crowd = rig.crowd(send(receiver, 1, u32::MAX), &[0xfff, MAP]);
    let pieces = rig.telling(receiver, Call::Ipc, receive(NO_TIMEOUTS), &crowd);
    assert_eq!((rig.told(&crowd), rig.state(receiver)), (MANY, State::Receiving));
    assert!(pieces >= MANY / AT_ONCE, "{pieces} pieces");
    // A receive that waits for nobody looks at some of them.
    let mut rig = Rig::new();
    let receiver = rig.other();
    let crowd = rig.crowd(send(receiver, 1, u32::MAX), &[0xfff, MAP]);
    let answer = rig.begin(receiver, Call::Ipc, receive(timeouts(0, 0)));
    assert_eq!(answer, Some(Err(Error::TimedOut)));
    assert!(rig.told(&crowd) < MANY);
}

/// Pages that a message gave before it was refused are work of the piece, too.
#[test]
fn a_piece_ends_with_what_refused_messages_gave() {
    let mut rig = Rig::new();
    let receiver = rig.other();
    let crowd: Vec<ThreadId> = (0..20)
        .map(|number| {
            let sender = rig.mate();
            rig.words(sender, &[fpage(FROM + (number << 12), 12, Rights::RW), MAP, 0xfff, MAP]);
            assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 2, u32::MAX)), None);
            sender
        })
        .collect();
    assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
    assert!(rig.goes_on(receiver), "{} are refused at once", rig.told(&crowd));
}

/// The end of a thread, by another one, by itself, and with its space. Nobody begins to wait for it meanwhile.
#[test]
fn a_thread_ends_in_pieces() {
    for senders in [true, false] {
        for way in 0..3 {
            let mut rig = Rig::new();
            let (target, late) = (rig.other(), rig.mate());
            let space = rig.done(target, Call::ThreadSelf, [0; 6]);
            assert_eq!(space, target.0);
            let wait = if senders {
                send(target, 0, u32::MAX)
            } else {
                [0, target.0, 0, NO_TIMEOUTS, 0, 0]
            };
            let crowd = rig.crowd(wait, &[]);
            let (by, call, arguments) = match way {
                0 => (rig.boss, Call::ThreadDelete, [target.0, 0, 0, 0, 0, 0]),
                1 => (target, Call::ThreadDelete, [0; 6]),
                _ => (rig.boss, Call::SpaceDelete, [rig.last_space, 0, 0, 0, 0, 0]),
            };
            assert_eq!(rig.begin(by, call, arguments), None);
            assert!(rig.told(&crowd) <= AT_ONCE);
            let answer = rig.begin(late, Call::Ipc, wait);
            assert_eq!(answer, Some(Err(Error::NoSuchThread)));
            let exchange = [target.0, EXCHANGE_START, 0, 0, 0, 0];
            let answer = rig.begin(late, Call::ThreadExchange, exchange);
            assert_eq!(answer, Some(Err(Error::NoSuchThread)));
            let mut pieces = 1;
            while rig.goes_on(by) {
                let told = rig.told(&crowd);
                rig.go_on(by);
                assert!(rig.told(&crowd) - told <= AT_ONCE);
                pieces += 1;
            }
            assert!(pieces >= MANY / AT_ONCE, "{pieces} pieces");
            assert_eq!(rig.told(&crowd), MANY);
            assert!(rig.kernel.threads().find(target).is_none());
        }
    }
}

/// Pages of a large one that was parted, from which nobody has anything, are looked at one by one: a piece does not look at hundreds of them.
#[test]
fn pages_of_which_nobody_has_anything_are_paid_for() {
    for (log2, least) in [(20, 12), (21, 24)] {
        for rights in [7, 2] {
            let mut rig = Rig::new();
            let (boss, holder) = (rig.boss, rig.other());
            let slot = fpage(FROM, 21, Rights::RWX);
            rig.done(boss, Call::Map, [slot, rig.last_space, slot, MAP, 0, 0]);
            // It has less than all of its pages from now on.
            rig.done(
                boss,
                Call::Flush,
                [fpage(FROM + (5 << 12), 12, Rights::RWX), 7, 0, 0, 0, 0],
            );
            let (answer, pieces) = rig.all(
                holder,
                Call::Flush,
                [fpage(FROM, log2, Rights::RWX), rights, 0, 0, 0, 0],
            );
            assert_eq!(answer, Some(Ok((0, 0))));
            assert!(pieces >= least, "{pieces} pieces for 2^{log2} bytes");
        }
    }
}

/// Tables of which next to nothing is there are looked through: a piece does not look through more than a few.
#[test]
fn empty_entries_of_tables_are_paid_for() {
    for (call, way) in [(Call::Map, MAP), (Call::Map, GRANT), (Call::Flush, 0)] {
        let mut rig = Rig::new();
        let (boss, holder) = (rig.boss, rig.other());
        let space = rig.last_space;
        let slot = |number: u64| fpage(TO + (number << 21), 21, Rights::RWX);
        let child = rig.done(holder, Call::SpaceCreate, [2000, 0, 0, 0, 0, 0]);
        for number in 0..32 {
            let page = fpage(FROM + (number << 12), 12, Rights::RWX);
            rig.done(
                boss,
                Call::Map,
                [page, space, fpage(TO + (number << 21), 12, Rights::RWX), MAP, 0, 0],
            );
            // A table that others link stays when it is empty.
            rig.done(holder, Call::Map, [slot(number), child, slot(number), LINK, 0, 0]);
        }
        rig.done(boss, Call::Flush, [fpage(FROM, 17, Rights::RWX), 7, 0, 0, 0, 0]);
        let all = fpage(TO, 26, Rights::RWX);
        let other = rig.done(holder, Call::SpaceCreate, [2000, 0, 0, 0, 0, 0]);
        let arguments = if call == Call::Map {
            [all, other, all, way, 0, 0]
        } else {
            [all, 2, 0, 0, 0, 0]
        };
        let (answer, pieces) = rig.all(holder, call, arguments);
        assert_eq!(answer, Some(Ok((0, 0))));
        assert!(pieces >= 8, "{pieces} pieces of {call:?} {way}");
    }
}

/// For each thread that is told all processors are looked at: with many of them a piece tells fewer, and refuses fewer messages.
#[test]
fn fewer_are_told_in_a_piece_where_there_are_many_processors() {
    for (processors, told_at_once, refused_at_once) in [(4, 40, 14), (16, 20, 10)] {
        let mut rig = Rig::new();
        rig.kernel.set_processors((1 << processors) - 1);
        let (target, receiver) = (rig.other(), rig.other());
        let crowds = [
            (send(target, 0, u32::MAX), told_at_once),
            ([0, target.0, 0, NO_TIMEOUTS, 0, 0], told_at_once),
            (send(receiver, 1, u32::MAX), refused_at_once),
        ];
        let crowds = crowds.map(|(call, at_once)| (rig.crowd_of(MANY / 10, call, &[0xfff, MAP]), at_once));
        let ends = (rig.boss, Call::ThreadDelete, [target.0, 0, 0, 0, 0, 0]);
        for (thread, call, arguments) in [ends, (receiver, Call::Ipc, receive(NO_TIMEOUTS))] {
            let mut told = crowds.each_ref().map(|(crowd, _)| rig.told(crowd));
            let mut answer = rig.begin(thread, call, arguments);
            loop {
                let now = crowds.each_ref().map(|(crowd, _)| rig.told(crowd));
                for (place, (_, at_once)) in crowds.iter().enumerate() {
                    assert!(
                        now[place] - told[place] <= *at_once,
                        "{} in a piece",
                        now[place] - told[place]
                    );
                }
                told = now;
                if answer.is_some() || !rig.goes_on(thread) {
                    break;
                }
                answer = rig.go_on(thread);
            }
        }
        let all = crowds.each_ref().map(|(crowd, _)| rig.told(crowd));
        assert_eq!(all, [MANY / 10; 3]);
    }
}

/// A thread whose fault nobody handles ends so, too.
#[test]
fn a_thread_that_nobody_handles_ends_in_pieces() {
    let mut rig = Rig::new();
    let target = rig.other();
    let crowd = rig.crowd(send(target, 0, u32::MAX), &[]);
    rig.run(target);
    let fault = Event::Fault {
        thread: target,
        address: 0x1000,
        access: Access::Read,
    };
    assert_eq!(rig.kernel.nucleus_event(fault), Outcome::Again);
    let operation = rig.kernel.take_operation(target.index() as u32);
    rig.kernel.again(operation);
    for _ in 0..200 {
        if rig.goes_on(target) {
            rig.go_on(target);
        }
    }
    assert_eq!(rig.told(&crowd), MANY);
    assert!(rig.kernel.threads().find(target).is_none());
}

/// Pages that take the slow path, and ports of a mapping with holes, are few in one piece.
#[test]
fn pages_and_ports_are_given_and_taken_in_pieces() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let pages = |base, log2| fpage(base, log2, Rights::RW);
    for (how, at_once) in [(GRANT, 4), (MAP, 17)] {
        let space = rig.done(boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
        let (answer, pieces) = rig.all(boss, Call::Map, [pages(FROM, 20), space, pages(TO, 20), how, 0, 0]);
        assert_eq!(answer, Some(Ok((256, 0))), "the pages of all pieces are counted");
        // The fast path gives more at once than the slow one.
        assert!((256 / at_once..512 / at_once).contains(&pieces), "{pieces} pieces");
        rig.done(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
    }
    let space = rig.done(boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
    let (all, one) = (port_fpage(0, 16), port_fpage(7, 0));
    let flush = |rig: &mut Rig| {
        let (answer, pieces) = rig.all(boss, Call::Flush, [all, 7, 0, 0, 0, 0]);
        assert_eq!(answer, Some(Ok((0, 0))));
        pieces
    };
    // The space's mapping of all has a hole, with another mapping in it.
    rig.done(boss, Call::Map, [all, space, all, MAP, 0, 0]);
    rig.done(boss, Call::Map, [one, space, one, MAP, 0, 0]);
    let pieces = flush(&mut rig);
    assert!(pieces > 65536 / 100, "{pieces} pieces");
    // That of σ₀ has one: its ports are looked at one by one there, and in blocks elsewhere.
    rig.done(boss, Call::Map, [one, space, one, GRANT, 0, 0]);
    let pieces = flush(&mut rig);
    assert!(pieces > 50, "{pieces} pieces");
}

/// Neighbours cost a piece little: 32 pages are given in one. (At the price of a page by itself that would be two.) Where every other page is there
/// already each costs what it did.
#[test]
fn neighbours_are_given_in_one_piece() {
    let mut rig = Rig::new();
    rig.other();
    let to = rig.last_space;
    let there = |base: u64, log2| fpage(TO + base, log2, Rights::RWX);
    let given = |base: u64, log2| fpage(FROM + base, log2, Rights::RW);
    // σ₀ has its pages as large ones; of a space that has them as small ones neighbours are given.
    rig.done(rig.boss, Call::Map, [given(0, LARGE), to, there(0, LARGE), MAP, 0, 0]);
    let holder = ThreadId(rig.done(rig.boss, Call::ThreadCreate, [to, 0x40_0000, 0x50_0000, 0, 5, 0]));
    rig.done(rig.boss, Call::ThreadExchange, [holder.0, EXCHANGE_START, 0, 0, 0, 0]);
    let below = rig.done(holder, Call::SpaceCreate, [2_000, 0, 0, 0, 0, 0]);
    // A page that stays keeps the tables.
    rig.done(
        holder,
        Call::Map,
        [
            there(40 << 12, 12),
            below,
            fpage(TO + (40 << 12), 12, Rights::RWX),
            MAP,
            0,
            0,
        ],
    );
    let range = there(0, 17);
    let map = [range, below, range, MAP, 0, 0];
    let (answer, pieces) = rig.all(holder, Call::Map, map);
    assert_eq!((answer, pieces), (Some(Ok((32, 0))), 1), "given");
    rig.done(holder, Call::Flush, [range, 7, 0, 0, 0, 0]);
    for page in (0..32).step_by(2) {
        let one = there(page << 12, 12);
        rig.done(holder, Call::Map, [one, below, one, MAP, 0, 0]);
    }
    let (answer, pieces) = rig.all(holder, Call::Map, map);
    assert_eq!(answer, Some(Ok((32, 0))), "given again");
    assert!(pieces > 1, "pages that have little in common are no cheap neighbours");
}

/// Pages that nobody has from a space go with it, many in one piece: 256 of one table, each by itself, took more than thirty.
#[test]
fn a_space_goes_with_its_pages_in_few_pieces() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let pages = |base| fpage(base, 20, Rights::RW);
    let before = (rig.kernel.frames_free(), rig.kernel.mapping_nodes());
    let space = rig.done(boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
    rig.done(boss, Call::Map, [pages(FROM), space, pages(TO), MAP, 0, 0]);
    assert_eq!(rig.kernel.mapping_nodes(), before.1 + 2 * 256, "parts and pages");
    let (answer, pieces) = rig.all(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
    assert_eq!(answer, Some(Ok((0, 0))));
    assert_eq!((rig.kernel.frames_free(), rig.kernel.mapping_nodes()), before);
    assert!((10..=15).contains(&pieces), "{pieces} pieces");
}

/// Links go with their space, as pages do: 512 went in one piece, which took 328,775 instructions.
#[test]
fn a_space_goes_with_its_links_in_pieces() {
    for is_flush in [false, true] {
        let mut rig = Rig::new();
        let boss = rig.boss;
        let space = rig.done(boss, Call::SpaceCreate, [60_000, 0, 0, 0, 0, 0]);
        let owner = ThreadId(rig.done(boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 5, 0]));
        let below = rig.done(owner, Call::SpaceCreate, [2_000, 0, 0, 0, 0, 0]);
        let gib = fpage(1 << 30, 30, Rights::RWX);
        let before = (rig.kernel.frames_free(), rig.kernel.mapping_nodes());
        rig.done(owner, Call::Map, [gib, below, gib, LINK, 0, 0]);
        assert_eq!(rig.kernel.mapping_nodes(), before.1 + 2 * 512, "links and tables");
        let (by, call, arguments) = if is_flush {
            let thread = ThreadId(rig.done(owner, Call::ThreadCreate, [below, 0x40_0000, 0x50_0000, 0, 3, 0]));
            (thread, Call::Flush, [gib, 7, 1, 0, 0, 0])
        } else {
            (owner, Call::SpaceDelete, [below, 0, 0, 0, 0, 0])
        };
        let (answer, pieces) = rig.all(by, call, arguments);
        assert_eq!(answer, Some(Ok((0, 0))));
        assert!((30..=60).contains(&pieces), "{pieces} pieces");
        assert_eq!(rig.kernel.mapping_nodes(), before.1);
    }
}

/// A flush of rights leaves all pages where they are, so that only the position that is kept says how far it came.
#[test]
fn a_flush_of_rights_goes_on_where_it_was() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let thread = rig.other();
    let pages = |base| fpage(base, 20, Rights::RWX);
    let map = [pages(FROM), rig.last_space, pages(TO), MAP, 0, 0];
    rig.done(boss, Call::Map, map);
    let flush = [pages(FROM), Rights::W.bits().into(), 0, 0, 0, 0];
    let (answer, pieces) = rig.all(boss, Call::Flush, flush);
    assert_eq!(answer, Some(Ok((0, 0))));
    assert!(pieces > 1, "{pieces} pieces");
    let space = rig.kernel.threads().get(thread).space;
    for page in 0..256 {
        let found = walk(&rig.kernel, space, TO + (page << 12));
        assert!(found.is_some_and(|(_, write, execute)| !write && execute), "{page}");
    }
}

/// Pages lose the right to write whose kids are more than a short way takes, or among many the one that has kids: it ends, and all lose it.
#[test]
fn a_page_of_many_spaces_loses_rights_in_pieces() {
    for is_given_on in [false, true] {
        let mut rig = Rig::new();
        let boss = rig.boss;
        let [source, place] = [FROM, TO].map(|base| fpage(base, 12, Rights::RWX));
        rig.other();
        let mut spaces = vec![rig.last_space];
        let holder = ThreadId(rig.done(boss, Call::ThreadCreate, [spaces[0], 0x40_0000, 0x50_0000, 0, 5, 0]));
        rig.done(boss, Call::ThreadExchange, [holder.0, EXCHANGE_START, 0, 0, 0, 0]);
        spaces.extend(
            (0..if is_given_on { 22 } else { 40 }).map(|_| rig.done(boss, Call::SpaceCreate, [900, 0, 0, 0, 0, 0])),
        );
        for &space in &spaces {
            rig.done(boss, Call::Map, [source, space, place, MAP, 0, 0]);
        }
        if is_given_on {
            let below = rig.done(holder, Call::SpaceCreate, [900, 0, 0, 0, 0, 0]);
            rig.done(holder, Call::Map, [place, below, place, MAP, 0, 0]);
            spaces.push(below);
        }
        let (answer, pieces) = rig.all(boss, Call::Flush, [source, Rights::W.bits().into(), 0, 0, 0, 0]);
        assert_eq!(answer, Some(Ok((0, 0))));
        assert!((2..20).contains(&pieces), "{pieces} pieces");
        for space in spaces {
            let found = walk(&rig.kernel, SpaceId(space as u32 & 0xffff), TO);
            assert!(found.is_some_and(|(_, write, execute)| !write && execute));
        }
    }
}

/// A thread in trouble that is stopped waits for no answer any more: it runs into the same trouble when it is started.
#[test]
fn a_thread_that_is_stopped_is_out_of_trouble() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.done(boss, Call::SpaceCreate, [20_000, boss.0, 0, 0, 0, 0]);
    let start = [space, 0x40_0000, 0x50_0000, 0, 3, 0];
    let thread = ThreadId(rig.done(boss, Call::ThreadCreate, start));
    rig.fault(thread);
    for (what, before) in [
        (EXCHANGE_STOP, THREAD_FAULTED),
        (EXCHANGE_START, THREAD_STOPPED),
        (EXCHANGE_STOP, THREAD_READY),
        (EXCHANGE_START, THREAD_STOPPED),
        (0, THREAD_READY),
    ] {
        let exchange = [thread.0, what, 0, 0, 0, 0];
        assert_eq!(rig.done(boss, Call::ThreadExchange, exchange), before);
        assert_eq!(rig.kernel.threads().get(thread).operation, None, "it waits for nothing");
    }
    rig.fault(thread);
    rig.kernel.check().expect("the kernel is consistent");
}

/// A buffer, its leaf and two tables above it are a thread's. Where memory does not reach for all of them, none stays but a table, which the next attempt
/// finds.
#[test]
fn a_thread_without_memory_for_its_buffer_costs_nothing() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let space = rig.done(boss, Call::SpaceCreate, [20_000, 0, 0, 0, 0, 0]);
    let start = [space, 0x40_0000, 0x50_0000, 0, 3, 0];
    let held: Vec<_> = core::iter::from_fn(|| rig.kernel.frame_any().ok()).collect();
    for (stays, frame) in [0, 1, 2, 2].into_iter().zip(&held) {
        assert_eq!(rig.begin(boss, Call::ThreadCreate, start), Some(Err(Error::NoMemory)));
        assert_eq!(rig.kernel.frames_free(), stays);
        rig.kernel.frame_release(*frame);
    }
    rig.done(boss, Call::ThreadCreate, start);
    assert_eq!(rig.kernel.frames_free(), 0);
}

/// A space whose end has begun makes no more spaces and threads, or its threads could make them as fast as a piece takes them: its end would never come.
#[test]
fn a_space_that_makes_others_ends() {
    for threads in [false, true] {
        let mut rig = Rig::new();
        let boss = rig.boss;
        // The space's own thread comes last in the table.
        let mates: Vec<ThreadId> = (0..32).map(|_| rig.mate()).collect();
        let thread = rig.other();
        let space = rig.last_space;
        for mate in mates {
            rig.done(boss, Call::ThreadDelete, [mate.0, 0, 0, 0, 0, 0]);
        }
        let (make, limit) = if threads {
            ([0, 0x40_0000, 0x50_0000, 0, 3, 0], 16)
        } else {
            ([64, 0, 0, 0, 0, 0], 4)
        };
        let call = if threads { Call::ThreadCreate } else { Call::SpaceCreate };
        for _ in 0..limit {
            rig.begin(thread, call, make).expect("an answer").expect("it is made");
        }
        let mut answer = rig.begin(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
        for pieces in 1.. {
            if answer.is_some() {
                break;
            }
            assert!(pieces < 40, "it never ends");
            for _ in 0..limit {
                if rig.kernel.threads().find(thread).is_some() {
                    rig.begin(thread, call, make);
                }
            }
            answer = rig.go_on(boss);
        }
        assert_eq!(answer, Some(Ok((0, 0))));
    }
}

/// While a flush stands open each page that is given is looked at by itself: a call without an event leaves pages that replace others to one.
#[test]
fn a_call_without_an_event_does_little_beside_a_flush_that_stands_open() {
    let mut rig = Rig::new();
    let boss = rig.boss;
    let flusher = rig.other();
    let page = fpage(0, 12, Rights::RWX);
    rig.done(
        boss,
        Call::Map,
        [fpage(FROM, 12, Rights::RWX), rig.last_space, page, MAP, 0, 0],
    );
    for _ in 0..40 {
        let space = rig.done(flusher, Call::SpaceCreate, [400, 0, 0, 0, 0, 0]);
        rig.done(flusher, Call::Map, [page, space, page, MAP, 0, 0]);
    }
    let receiver = rig.done(boss, Call::SpaceCreate, [2000, 0, 0, 0, 0, 0]);
    let eight = [FROM + (512 << 12), 0].map(|first| fpage(first, 15, Rights::RWX));
    let call = [eight[0], receiver, eight[1], MAP];
    rig.done(boss, Call::Map, [call[0], call[1], call[2], call[3], 0, 0]);
    let short = |rig: &mut Rig| {
        rig.run(boss);
        rig.kernel.map_short(call)
    };
    assert_eq!(short(&mut rig), Some(8), "they are replaced");
    assert_eq!(rig.begin(flusher, Call::Flush, [page, 7, 1, 0, 0, 0]), None);
    assert_eq!(short(&mut rig), None);
    assert_eq!(rig.done(boss, Call::Map, [call[0], call[1], call[2], call[3], 0, 0]), 8);
}

/// A page that is to go with its flush is waited for until its caller comes again, unless the caller has ended.
#[test]
fn nobody_waits_for_the_flush_of_a_thread_that_ended() {
    for ends in [false, true] {
        let mut rig = Rig::new();
        let boss = rig.boss;
        rig.other();
        let holder = rig.last_space;
        let flusher = ThreadId(rig.done(boss, Call::ThreadCreate, [holder, 0x40_0000, 0x50_0000, 0, 5, 0]));
        rig.done(boss, Call::ThreadExchange, [flusher.0, EXCHANGE_START, 0, 0, 0, 0]);
        let [source, page] = [FROM, 0].map(|base| fpage(base, 12, Rights::RWX));
        rig.done(boss, Call::Map, [source, holder, page, MAP, 0, 0]);
        for _ in 0..24 {
            let space = rig.done(flusher, Call::SpaceCreate, [400, 0, 0, 0, 0, 0]);
            rig.done(flusher, Call::Map, [page, space, page, MAP, 0, 0]);
        }
        assert_eq!(rig.begin(flusher, Call::Flush, [page, 7, 1, 0, 0, 0]), None);
        if ends {
            rig.done(boss, Call::ThreadDelete, [flusher.0, 0, 0, 0, 0, 0]);
        } else {
            rig.kernel.thread_suspend(flusher);
        }
        let (answer, pieces) = rig.all(boss, Call::Flush, [source, 7, 0, 0, 0, 0]);
        assert_eq!(answer, Some(Ok((0, 0))));
        assert_eq!(pieces < 100, ends, "{pieces} pieces");
    }
}
