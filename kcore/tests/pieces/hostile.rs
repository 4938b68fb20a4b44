//! Threads that keep others from the end of their operations, or leave flushes open behind them.

use abi::{
    Error, Rights,
    nucleus::{ANYONE, Call, EXCHANGE_READ, EXCHANGE_WRITE, MAP, NO_TIMEOUTS, fpage, tag, timeouts},
};
use kcore::{ThreadId, thread::State};

use crate::rig::{Answer, FROM, LARGE, Rig, receive, send};

/// A hostile space with a pager: its threads fill the page for which the pager answers, and give that page on.
struct Hostile {
    rig: Rig,
    space: u64,
    below: u64,
    faulting: ThreadId,
    sender: ThreadId,
    receiver: ThreadId,
    next: u64,
    events: usize,
}

const AT: u64 = 0x1000;
const MINE: u64 = 0x8000;

impl Hostile {
    fn new() -> Self {
        let mut rig = Rig::new();
        let faulting = rig.other();
        let space = rig.last_space;
        let boss = rig.boss;
        let mut make = || ThreadId(rig.done(boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]));
        let (sender, receiver) = (make(), make());
        rig.done(boss, Call::SpaceControl, [space, boss.0, 0, 0, 0, 0]);
        let below = rig.done(sender, Call::SpaceCreate, [8000, 0, 0, 0, 0, 0]);
        give_own(&mut rig, space);
        Self {
            rig,
            space,
            below,
            faulting,
            sender,
            receiver,
            next: 0,
            events: 0,
        }
    }

    /// The page is replaced by a message within the space: as many events as are left.
    fn fill(&mut self) -> bool {
        let rig = &mut self.rig;
        if !rig.goes_on(self.sender) {
            let window = [0, self.sender.0, 0, NO_TIMEOUTS, fpage(AT, 12, Rights::RWX), 0];
            assert_eq!(rig.begin(self.receiver, Call::Ipc, window), None);
            self.events = self.events.saturating_sub(1);
            rig.words(self.sender, &[fpage(MINE, 12, Rights::RWX), MAP]);
            let to = [self.receiver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0];
            let answer = rig.begin(self.sender, Call::Ipc, to);
            self.events = self.events.saturating_sub(1);
            if answer.is_some() {
                return true;
            }
        }
        while self.events > 0 {
            self.events -= 1;
            if rig.go_on(self.sender).is_some() {
                return true;
            }
        }
        false
    }

    fn give_on(&mut self) {
        while self.events > 0 {
            self.events -= 1;
            self.next = self.next % 4000 + 1;
            let to = fpage(self.next << 12, 12, Rights::RWX);
            let _ = self.rig.all(
                self.sender,
                Call::Map,
                [fpage(AT, 12, Rights::RWX), self.below, to, MAP, 0, 0],
            );
        }
    }

    /// An operation of the root's thread ends among what these threads do.
    fn assert_ends(&mut self, begun: Option<Answer>) {
        let mut ended = begun;
        for _ in 0..2000 {
            if ended.is_some() {
                return;
            }
            self.events = 24;
            if self.fill() {
                self.give_on();
            }
            ended = self.rig.go_on(self.rig.boss);
        }
        panic!("it does not end");
    }
}

/// A pager answers a fault with a page: if that does not end, nobody else is served.
#[test]
fn a_pager_ends_its_answer() {
    let mut hostile = Hostile::new();
    let boss = hostile.rig.boss;
    assert_eq!(
        hostile.rig.begin(boss, Call::Ipc, [0, ANYONE, 0, NO_TIMEOUTS, 0, 0]),
        None
    );
    hostile.rig.fault(hostile.faulting);
    hostile.events = 24;
    assert!(hostile.fill());
    hostile.give_on();
    let item = [fpage(FROM + 0x1000, 12, Rights::RWX), MAP];
    hostile.rig.words(boss, &item);
    // A send timeout of zero, as pagers have it.
    let answer = [hostile.faulting.0, 0, tag(0, 0, 1), timeouts(0, 0), 0, 0];
    let begun = hostile.rig.begin(boss, Call::Ipc, answer);
    hostile.assert_ends(begun);
}

/// The same of a call that gives a page to a space below.
#[test]
fn a_gift_to_a_space_below_ends() {
    let mut hostile = Hostile::new();
    let boss = hostile.rig.boss;
    hostile.events = 24;
    assert!(hostile.fill());
    hostile.give_on();
    let given = [
        fpage(FROM + 0x1000, 12, Rights::RWX),
        hostile.space,
        fpage(AT, 12, Rights::RWX),
        MAP,
        0,
        0,
    ];
    let begun = hostile.rig.begin(boss, Call::Map, given);
    hostile.assert_ends(begun);
}

/// Gives a space a page of its own.
fn give_own(rig: &mut Rig, space: u64) {
    let [from, to] = [FROM, MINE].map(|base| fpage(base, 12, Rights::RWX));
    rig.done(rig.boss, Call::Map, [from, space, to, MAP, 0, 0]);
}

/// A thread of a space that has one page, which it gave to another space many times.
fn given_on(rig: &mut Rig) -> (u64, ThreadId) {
    let boss = rig.boss;
    let giver = rig.other();
    let space = rig.last_space;
    let taker = rig.other();
    let page = fpage(0, 12, Rights::RWX);
    rig.done(boss, Call::Map, [fpage(FROM, 12, Rights::RWX), space, page, MAP, 0, 0]);
    for place in 1..40u64 {
        let window = [0, giver.0, 0, NO_TIMEOUTS, fpage(place << 12, 12, Rights::RWX), 0];
        assert_eq!(rig.begin(taker, Call::Ipc, window), None);
        rig.words(giver, &[page, MAP]);
        let sent = rig.begin(giver, Call::Ipc, [taker.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0]);
        assert_eq!(sent, Some(Ok((0, 0))));
    }
    (space, giver)
}

/// The pieces that a flush of the root's page takes then.
fn waits(rig: &mut Rig) -> usize {
    let boss = rig.boss;
    let (answer, pieces) = rig.all(boss, Call::Flush, [fpage(FROM, 12, Rights::RWX), 7, 0, 0, 0, 0]);
    assert_eq!(answer, Some(Ok((0, 0))));
    pieces
}

#[test]
fn nobody_waits_for_the_end_of_a_space_whose_caller_ended() {
    let mut rig = Rig::new();
    let (space, _) = given_on(&mut rig);
    let mate = rig.mate();
    let mut answer = rig.begin(mate, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
    while rig.kernel.mapping_open().is_none() && answer.is_none() {
        answer = rig.go_on(mate);
    }
    assert_eq!(answer, None);
    let boss = rig.boss;
    rig.done(boss, Call::ThreadDelete, [mate.0, 0, 0, 0, 0, 0]);
    let pieces = waits(&mut rig);
    assert!(pieces < 100, "{pieces} pieces");
}

#[test]
fn nobody_waits_for_the_flush_of_a_thread_that_got_other_registers() {
    let mut rig = Rig::new();
    let (_, giver) = given_on(&mut rig);
    assert_eq!(
        rig.begin(giver, Call::Flush, [fpage(0, 12, Rights::RWX), 7, 1, 0, 0, 0]),
        None
    );
    let boss = rig.boss;
    // Its registers stand in the buffer of the caller, as an earlier exchange has read them.
    rig.done(boss, Call::ThreadExchange, [giver.0, EXCHANGE_READ, 0, 0, 0, 0]);
    rig.done(boss, Call::ThreadExchange, [giver.0, EXCHANGE_WRITE, 0, 0, 0, 0]);
    assert!(!rig.goes_on(giver), "it goes on");
    let pieces = waits(&mut rig);
    assert!(pieces < 100, "{pieces} pieces");
}

/// A message's receiver does the work, and the sender ends.
#[test]
fn nobody_waits_for_what_a_message_cleared_whose_sender_ended() {
    for ends in 0..2 {
        let mut rig = Rig::new();
        let (_, giver) = given_on(&mut rig);
        let sender = rig.mate();
        rig.words(sender, &[fpage(FROM + 0x1000, 12, Rights::RWX), MAP]);
        let boss = rig.boss;
        let window = [0, sender.0, 0, timeouts(0, 1000), fpage(0, 12, Rights::RWX), 0];
        let sends = [giver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0];
        if ends == 0 {
            assert_eq!(rig.begin(sender, Call::Ipc, sends), None);
            assert_eq!(rig.begin(giver, Call::Ipc, window), None);
            assert!(rig.kernel.mapping_open().is_some());
            rig.done(boss, Call::ThreadDelete, [sender.0, 0, 0, 0, 0, 0]);
            let _ = rig.go_on(giver);
        } else {
            assert_eq!(rig.begin(giver, Call::Ipc, window), None);
            assert_eq!(rig.begin(sender, Call::Ipc, sends), None);
            assert!(rig.kernel.mapping_open().is_some());
            rig.done(boss, Call::ThreadDelete, [giver.0, 0, 0, 0, 0, 0]);
            let _ = rig.go_on(sender);
        }
        let pieces = waits(&mut rig);
        assert!(pieces < 100, "{ends}: {pieces} pieces");
    }
}

/// A hostile space whose page 0 was given on many times, a thread of it that waits for a message, and one that sends it a page for that place.
struct Claimed {
    rig: Rig,
    space: u64,
    sender: ThreadId,
    receiver: ThreadId,
}

impl Claimed {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (space, receiver) = given_on(&mut rig);
        let boss = rig.boss;
        let sender = ThreadId(rig.done(boss, Call::ThreadCreate, [space, 0x40_0000, 0x50_0000, 0, 3, 0]));
        give_own(&mut rig, space);
        rig.words(sender, &[fpage(MINE, 12, Rights::RWX), MAP]);
        Self {
            rig,
            space,
            sender,
            receiver,
        }
    }

    /// The pieces of a gift of the root's to the place.
    fn waits(&mut self) -> usize {
        let boss = self.rig.boss;
        let page = [
            fpage(FROM + 0x1000, 12, Rights::RWX),
            self.space,
            fpage(0, 12, Rights::RWX),
            MAP,
            0,
            0,
        ];
        let (_, pieces) = self.rig.all(boss, Call::Map, page);
        pieces
    }
}

/// The words of a message are changed while it is given: it is refused in the middle.
#[test]
fn a_message_that_is_refused_in_the_middle_claims_nothing() {
    for receives in [false, true] {
        let mut all = Claimed::new();
        let (sender, receiver) = (all.sender, all.receiver);
        let window = [0, sender.0, 0, NO_TIMEOUTS, fpage(0, 12, Rights::RWX), 0];
        let sends = [receiver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0];
        if receives {
            assert_eq!(all.rig.begin(sender, Call::Ipc, sends), None);
            assert_eq!(all.rig.begin(receiver, Call::Ipc, window), None);
        } else {
            assert_eq!(all.rig.begin(receiver, Call::Ipc, window), None);
            assert_eq!(all.rig.begin(sender, Call::Ipc, sends), None);
        }
        let who = if receives { receiver } else { sender };
        assert!(all.rig.goes_on(who));
        // Another thread of the space, or the registers: here the words themselves.
        all.rig.words(sender, &[0xfff, MAP]);
        let _ = all.rig.go_on(who);
        let pieces = all.waits();
        assert!(pieces < 100, "receives {receives}: {pieces} pieces");
    }
}

/// The receiver does the work, its sender ends, and it waits for the next one.
#[test]
fn a_receiver_that_waits_for_another_message_claims_nothing() {
    for infinite in [false, true] {
        let mut all = Claimed::new();
        let (sender, receiver) = (all.sender, all.receiver);
        let until = if infinite { NO_TIMEOUTS } else { timeouts(0, 1000) };
        let window = [0, ANYONE, 0, until, fpage(0, 12, Rights::RWX), 0];
        assert_eq!(
            all.rig
                .begin(sender, Call::Ipc, [receiver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0]),
            None
        );
        assert_eq!(all.rig.begin(receiver, Call::Ipc, window), None);
        assert!(all.rig.goes_on(receiver));
        let boss = all.rig.boss;
        all.rig.done(boss, Call::ThreadDelete, [sender.0, 0, 0, 0, 0, 0]);
        let _ = all.rig.go_on(receiver);
        let pieces = all.waits();
        assert!(pieces < 100, "{pieces} pieces");
    }
}

/// The sender's space, or the receiver's, is deleted.
#[test]
fn nothing_is_claimed_in_a_space_that_is_gone() {
    let mut all = Claimed::new();
    let (sender, receiver) = (all.sender, all.receiver);
    let window = [0, sender.0, 0, NO_TIMEOUTS, fpage(0, 12, Rights::RWX), 0];
    assert_eq!(all.rig.begin(receiver, Call::Ipc, window), None);
    assert_eq!(
        all.rig
            .begin(sender, Call::Ipc, [receiver.0, 0, tag(0, 0, 1), NO_TIMEOUTS, 0, 0]),
        None
    );
    let boss = all.rig.boss;
    all.rig.done(boss, Call::SpaceDelete, [all.space, 0, 0, 0, 0, 0]);
    all.rig.other();
    all.space = all.rig.last_space;
    let pieces = all.waits();
    assert!(pieces < 100, "{pieces} pieces");
}

/// A receiver waits whenever the sender's time has come, and has another message before the item is given.
#[test]
fn a_sender_is_not_kept_beyond_its_timeout() {
    let mut rig = Rig::new();
    let (sender, receiver, mate) = (rig.mate(), rig.other(), rig.mate());
    rig.items(sender, 1, LARGE);
    let mut answer = rig.begin(sender, Call::Ipc, send(receiver, 1, 100));
    let mut rounds = 0;
    while answer.is_none() {
        assert!(rounds < 20, "its time is over since {rounds} times that");
        rounds += 1;
        rig.kernel.hardware.now_ns += 100_000;
        rig.kernel.tick();
        assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
        // It does what it had to do, and that is not all.
        answer = rig.go_on(sender);
        assert_eq!(rig.begin(mate, Call::Ipc, send(receiver, 0, 0)), Some(Ok((0, 0))));
        if answer.is_none() {
            answer = rig.go_on(sender);
        }
    }
    assert_eq!(answer, Some(Err(Error::TimedOut)));
    assert_eq!(rounds, 1);
}

/// Messages that are refused when most of them is given, one after another: a receiver that waits for nobody is not kept by them.
#[test]
fn who_looks_for_messages_is_not_kept_by_those_that_are_refused() {
    let mut rig = Rig::new();
    let (receiver, senders) = (rig.other(), [rig.mate(), rig.mate()]);
    let spoilt = |rig: &mut Rig, sender| {
        let mut words = vec![];
        for item in 0..2 {
            words.extend([fpage(FROM + (item << LARGE), LARGE, Rights::RW), MAP]);
        }
        words.extend([0xfff, MAP]);
        rig.words(sender, &words);
        assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 3, u32::MAX)), None);
    };
    for sender in senders {
        spoilt(&mut rig, sender);
    }
    let mut answer = rig.begin(receiver, Call::Ipc, receive(timeouts(0, 0)));
    let mut pieces = 1;
    while answer.is_none() {
        assert!(pieces < 100, "{pieces} pieces");
        pieces += 1;
        answer = rig.go_on(receiver);
        for sender in senders {
            if rig.state(sender) == State::Ready {
                spoilt(&mut rig, sender);
            }
        }
    }
    assert_eq!(answer, Some(Err(Error::TimedOut)));
}

/// Items of which the sender has nothing, in messages that are refused in the end: an event looks at few of them.
#[test]
fn items_of_nothing_are_paid_for() {
    let mut rig = Rig::new();
    let receiver = rig.other();
    let senders: Vec<ThreadId> = (0..10).map(|_| rig.other()).collect();
    for &sender in &senders {
        let nothing = (0..7).flat_map(|item| [fpage(FROM + (item << 12), 12, Rights::RW), MAP]);
        let words: Vec<u64> = nothing.chain([0xfff, MAP]).collect();
        rig.words(sender, &words);
        assert_eq!(rig.begin(sender, Call::Ipc, send(receiver, 8, u32::MAX)), None);
    }
    assert_eq!(rig.begin(receiver, Call::Ipc, receive(NO_TIMEOUTS)), None);
    let refused = |rig: &Rig| {
        let are_ready = senders.iter().filter(|&&sender| rig.state(sender) == State::Ready);
        are_ready.count()
    };
    // Eight items each, at some 1,250 instructions.
    assert!(refused(&rig) < 2, "{} messages", refused(&rig));
    while rig.goes_on(receiver) {
        let before = refused(&rig);
        let _ = rig.go_on(receiver);
        assert!(refused(&rig) < before + 3, "{} messages", refused(&rig) - before);
    }
    assert_eq!(refused(&rig), senders.len());
}
