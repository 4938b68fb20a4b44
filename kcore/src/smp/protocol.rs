//! The kernel lock and the mailboxes, in atomic words alone.
//!
//! Only the processor whose turn it is asks, so there is one asker at a time, and it waits for the answer. Nobody can wait for
//! it in turn without answering: a processor that waits for its turn looks into its mailbox meanwhile, and one that does
//! not wait comes back to user code, or to a halt, where the interrupt that goes with each request reaches it.
//! That is why the asker may keep its turn while it waits.

use super::{
    ABSENCE, PATIENCE,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        spin_loop,
    },
};

/// In a turn's word: somebody has it. The lowest byte has no other bit, so its holder may give the turn up by storing a zero there.
pub const TAKEN: u32 = 1;
/// In a turn's word: the number of the present or last holder.
const LAST: u32 = 0xff00;
/// The place of that number.
const NUMBER: u32 = 8;
/// The place of the processors in line, a bit each.
const IN_LINE: u32 = 16;

/// The word by which a processor takes its turn: its number in the place of the last holder's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mark(pub u32);

impl Mark {
    /// That of a processor.
    pub const fn of(processor: u32) -> Self {
        Self(processor << NUMBER)
    }

    /// The processor's number.
    pub const fn processor(self) -> u32 {
        self.0 >> NUMBER
    }

    /// Its bit among those in line.
    const fn in_line(self) -> u32 {
        1 << (IN_LINE + self.processor())
    }
}

/// The first processor in line: the next one behind the last holder, in the order of their numbers. So each other one goes before it once at most.
const fn first_in_line(word: u32) -> u32 {
    let behind = ((word & LAST) >> NUMBER) + 1;
    let line = (word >> IN_LINE) as u16;
    (line.rotate_right(behind % u16::BITS).trailing_zeros() + behind) % u16::BITS
}

/// A processor that waits for its turn.
pub struct Waiting {
    me: Mark,
    looks: u32,
    /// Looks in a row that found the lock free, and somebody else first.
    missed: u32,
}

impl Waiting {
    /// One that begins to.
    pub const fn of(me: Mark) -> Self {
        Self {
            me,
            looks: 0,
            missed: 0,
        }
    }
}

/// The kernel lock: who has it or had it last, and who is in line for it. All of that is one word, which makes the common case, the same
/// processor again while nobody is in line, as cheap as a lock that knows nothing of processors.
#[derive(Debug)]
pub struct Turn {
    pub(super) word: AtomicU32,
}

impl Turn {
    /// Takes the turn if it is free, this processor had it last, and nobody is in line.
    #[inline(always)]
    pub fn try_again(&self, me: Mark) -> bool {
        self.word.compare_exchange(me.0, me.0 | TAKEN, Acquire, Relaxed).is_ok()
    }

    /// Waits for the turn, and tells whether another processor had it meanwhile. `meanwhile` is called again and again; if it answers no the
    /// wait is given up.
    pub fn take(&self, me: Mark, mut meanwhile: impl FnMut() -> bool) -> Option<bool> {
        let mut waiting = Waiting::of(me);
        loop {
            let taken = self.look(&mut waiting);
            if taken.is_some() {
                return taken;
            }
            if !meanwhile() {
                self.give_up(&waiting);
                return None;
            }
            spin_loop();
        }
    }

    /// Looks once whether a processor that waits has its turn, and takes it then: tells whether another one had it meanwhile.
    pub fn look(&self, waiting: &mut Waiting) -> Option<bool> {
        let me = waiting.me;
        let word = self.word.load(Relaxed);
        if word & TAKEN != 0 {
            waiting.missed = 0;
        } else if word >> IN_LINE == 0 || first_in_line(word) == me.processor() || waiting.missed >= ABSENCE {
            // One that does not look leaves the line, or each turn would wait for it. It gets in line again with its next look.
            let first = Mark::of(first_in_line(word));
            let taken = word & !(LAST | me.in_line() | first.in_line()) | me.0 | TAKEN;
            if self.word.compare_exchange(word, taken, Acquire, Relaxed).is_ok() {
                return Some(word & LAST != me.0);
            }
        } else {
            waiting.missed += 1;
        }
        waiting.looks = waiting.looks.saturating_add(1);
        if waiting.looks >= PATIENCE && word & me.in_line() == 0 {
            self.word.fetch_or(me.in_line(), Relaxed);
        }
        None
    }

    /// A processor does not wait any more.
    fn give_up(&self, waiting: &Waiting) {
        if waiting.looks >= PATIENCE {
            self.word.fetch_and(!waiting.me.in_line(), Relaxed);
        }
    }

    /// Gives the turn up. Only its holder does. Others get in line at any time, so a store of the whole word would lose them.
    #[inline(always)]
    pub fn leave(&self) {
        self.word.fetch_and(!TAKEN, Release);
    }
}

/// Request: forget all user translations.
pub const FORGET: u32 = 1;
/// Request: forget the page at the address.
pub const FORGET_PAGE: u32 = 1 << 1;
/// Request: load the kernel's own root.
pub const LEAVE_ROOT: u32 = 1 << 2;
/// Request: stop for good.
pub const HALT: u32 = 1 << 3;
/// Request: give the thread up that runs here.
pub const STOP: u32 = 1 << 4;
/// News, not waited for: there is something to schedule.
pub const WAKE: u32 = 1 << 5;

/// Requests that are done on the spot, wherever the processor is.
const AT_ONCE: u32 = FORGET | FORGET_PAGE | LEAVE_ROOT | HALT;

/// Words that a processor hands over when it is stopped.
pub const WORDS: usize = 9;

/// Bit of the first request that is not one: the words are a call.
const CALL: u32 = 1 << 8;

/// The requests to one processor.
#[derive(Debug)]
pub struct Mailbox {
    pub(super) requests: AtomicU32,
    pub(super) address: AtomicU64,
    pub(super) handed: [AtomicU64; WORDS],
}

impl Mailbox {
    /// Asks. Only the processor whose turn it is may, or one that ends the system ([`HALT`]). An interrupt follows.
    pub fn post(&self, requests: u32, address: u64) {
        if requests & FORGET_PAGE != 0 {
            self.address.store(address, Relaxed);
        }
        self.requests.fetch_or(requests, Release);
    }

    /// Whether all of these requests have been done.
    pub fn is_done(&self, requests: u32) -> bool {
        self.requests.load(Acquire) & requests == 0
    }

    /// For its owner: does what is to be done on the spot (bits, address), then says so. Tells what else is asked.
    #[inline]
    pub fn serve(&self, mut act: impl FnMut(u32, u64)) -> u32 {
        let requests = self.requests.load(Acquire);
        let now = requests & AT_ONCE;
        if now != 0 {
            act(now, self.address.load(Relaxed));
            self.requests.fetch_and(!now, Release);
        }
        requests & (STOP | WAKE)
    }

    /// For its owner: takes the news; tells whether there was some.
    pub fn take_news(&self) -> bool {
        self.requests.fetch_and(!WAKE, Acquire) & WAKE != 0
    }

    /// For its owner: the thread is given up and all that is to be known of it stands in memory, and in `call` if it was in a call.
    pub fn hand_over(&self, call: Option<[u64; WORDS]>) {
        if let Some(words) = call {
            for (place, word) in self.handed.iter().zip(words) {
                place.store(word, Relaxed);
            }
            self.requests.fetch_or(CALL, Relaxed);
        }
        self.requests.fetch_and(!STOP, Release);
    }

    /// For who asked with [`STOP`], when that is done: the call that was handed over, if any.
    pub fn take_call(&self) -> Option<[u64; WORDS]> {
        if self.requests.fetch_and(!CALL, Acquire) & CALL == 0 {
            return None;
        }
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(&self.handed) {
            *word = place.load(Relaxed);
        }
        Some(words)
    }
}
