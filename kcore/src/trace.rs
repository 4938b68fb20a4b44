//! The last events of the kernel, for whoever looks for what went wrong.
//!
//! A ring of [`EVENTS`] events that is written on the slow paths only: the fast paths (null call, protected
//! call and return through a portal-cache entry, yield, the first touch of a further page) leave no trace and pay for none. Recording is
//! about ten instructions: take a place, store five words. Nothing is ever waited for; a reader who looks while
//! another processor records may see one event half written, which is why the debugger freezes the system first.

use core::{
    fmt,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use abi::Call;

use crate::{
    ThreadId,
    thread::{Name, Resumed},
    wait::Key,
};

/// Events that are kept.
pub const EVENTS: usize = 4096;

/// Kinds of events. Each comment says what the event's value is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A system call over the general path: its number.
    Call = 1,
    /// A page fault: the address.
    Fault,
    /// Another exception: its vector.
    Exception,
    /// An interrupt: its vector, above bit 32 the processor. The thread is the one that was interrupted.
    Interrupt,
    /// The thread was given a processor: the space it is in, above bit 32 the processor.
    Switch,
    /// The thread was parked: the key, as [`Key::word`] writes it.
    Park,
    /// The thread became ready: how it came back ([`Resumed`] as a number).
    Wake,
    /// The thread ended.
    End,
    /// The kernel panicked.
    Panic,
}

const KINDS: [Kind; 9] = [
    Kind::Call,
    Kind::Fault,
    Kind::Exception,
    Kind::Interrupt,
    Kind::Switch,
    Kind::Park,
    Kind::Wake,
    Kind::End,
    Kind::Panic,
];

/// One event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The time-stamp counter.
    pub ticks: u64,
    /// The kind of event.
    pub kind: Kind,
    /// The low half of the identifier of the thread that it happened to; zero: none.
    pub thread: u32,
    /// The value, as [`Kind`] describes it.
    pub value: u64,
}

/// A place in the ring.
struct Place {
    ticks: [AtomicU32; 2],
    /// [`Kind`] as a number; zero where nothing was written yet.
    kind: AtomicU32,
    thread: AtomicU32,
    value: AtomicU64,
}

/// The ring. Can be a static: recording needs no exclusive access.
pub struct Trace {
    /// Events recorded since the start.
    next: AtomicU64,
    places: [Place; EVENTS],
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    /// A ring without events.
    #[allow(
        clippy::large_stack_arrays,
        reason = "meant for a static, where nothing stands on a stack"
    )]
    pub const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            places: [const {
                Place {
                    ticks: [AtomicU32::new(0), AtomicU32::new(0)],
                    kind: AtomicU32::new(0),
                    thread: AtomicU32::new(0),
                    value: AtomicU64::new(0),
                }
            }; EVENTS],
        }
    }

    /// Records an event, over the oldest one. `ticks` is the time-stamp counter in two halves, the low one first, as the
    /// processor gives it; `thread` the low half of a thread's identifier (zero: none).
    #[inline(always)]
    pub fn record(&self, ticks: [u32; 2], kind: Kind, thread: u32, value: u64) {
        let place = &self.places[self.next.fetch_add(1, Relaxed) as usize % EVENTS];
        place.ticks[0].store(ticks[0], Relaxed);
        place.ticks[1].store(ticks[1], Relaxed);
        place.kind.store(kind as u32, Relaxed);
        place.thread.store(thread, Relaxed);
        place.value.store(value, Relaxed);
    }

    /// The last events, at most `count` of them, the oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = Event> {
        let next = self.next.load(Relaxed);
        let first = next.saturating_sub(count.min(EVENTS) as u64);
        (first..next).filter_map(|number| {
            let place = &self.places[number as usize % EVENTS];
            let kind = place.kind.load(Relaxed).checked_sub(1)?;
            let [low, high] = [0, 1].map(|half: usize| u64::from(place.ticks[half].load(Relaxed)));
            Some(Event {
                ticks: low | high << 32,
                kind: *KINDS.get(kind as usize)?,
                thread: place.thread.load(Relaxed),
                value: place.value.load(Relaxed),
            })
        })
    }

    /// Writes the last `count` events, one a line: microseconds before the last one (`ticks_per_us` ticks
    /// each), thread, what happened.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn show(&self, count: usize, ticks_per_us: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        let Some(end) = self.last(1).last() else {
            return writeln!(out, "no events yet");
        };
        for event in self.last(count) {
            let ago = end.ticks.saturating_sub(event.ticks);
            let (whole, part) = (ago / ticks_per_us.max(1), ago % ticks_per_us.max(1));
            let hundredths = part * 100 / ticks_per_us.max(1);
            write!(out, "{whole:>10}.{hundredths:02} us ago  ")?;
            match event.thread {
                0 => writeln!(out, "{event}")?,
                thread => writeln!(out, "thread {}: {event}", Name(ThreadId(u64::from(thread))))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.kind {
            Kind::Call => match Call::from_number(value) {
                Some(call) => write!(f, "call {call:?}"),
                None => write!(f, "call of unknown number {value}"),
            },
            Kind::Fault => write!(f, "page fault at {value:#x}"),
            Kind::Exception => write!(f, "exception {value}"),
            Kind::Interrupt => write!(f, "interrupt {} on processor {}", value as u32, value >> 32),
            Kind::Switch => write!(f, "runs in space {} on processor {}", value as u32, value >> 32),
            Kind::Park => match Key::of_word(value) {
                Some(key) => write!(f, "waits for {key}"),
                None => write!(f, "waits for something unknown ({value:#x})"),
            },
            Kind::Wake => f.write_str(match value {
                _ if value == Resumed::TimedOut as u64 => "ready, its time came",
                _ if value == Resumed::Woken as u64 => "ready, it was woken",
                _ => "ready",
            }),
            Kind::End => f.write_str("ends"),
            Kind::Panic => f.write_str("kernel panic"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(ticks: u64) -> [u32; 2] {
        [ticks as u32, (ticks >> 32) as u32]
    }

    #[test]
    fn the_last_events_come_back_in_order() {
        let trace = Trace::new();
        assert_eq!(trace.last(10).count(), 0);
        for number in 0..EVENTS as u64 + 100 {
            trace.record(halves(number << 30), Kind::Fault, 0x1_0003, number);
        }
        let all: Vec<Event> = trace.last(usize::MAX).collect();
        assert_eq!(all.len(), EVENTS);
        assert_eq!((all[0].value, all[0].ticks), (100, 100 << 30));
        assert!(all.windows(2).all(|pair| pair[0].value + 1 == pair[1].value));
        let few: Vec<u64> = trace.last(3).map(|event| event.value).collect();
        let end = EVENTS as u64 + 100;
        assert_eq!(few, [end - 3, end - 2, end - 1]);
        assert_eq!(trace.last(0).count(), 0);
    }

    #[test]
    fn every_kind_comes_back_as_itself() {
        let trace = Trace::new();
        for kind in KINDS {
            trace.record([1, 0], kind, 0, 0);
        }
        assert!(trace.last(KINDS.len()).map(|event| event.kind).eq(KINDS));
    }

    #[test]
    fn events_are_shown_with_their_time_thread_and_meaning() {
        let trace = Trace::new();
        let mut out = String::new();
        trace.show(5, 100, &mut out).unwrap();
        assert_eq!(out, "no events yet\n");
        trace.record([1000, 0], Kind::Call, 0x2_0007, Call::SemWait as u64);
        trace.record([1150, 0], Kind::Park, 0x2_0007, Key::Semaphore(0x1234_5008).word());
        trace.record([1250, 0], Kind::Interrupt, 0, 3 << 32 | 32);
        trace.record([1250, 0], Kind::Call, 1, 9999);
        out.clear();
        trace.show(5, 100, &mut out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "         2.50 us ago  thread 7.2: call SemWait");
        assert_eq!(
            lines[1],
            "         1.00 us ago  thread 7.2: waits for the semaphore at 0x12345008"
        );
        assert_eq!(lines[2], "         0.00 us ago  interrupt 32 on processor 3");
        assert!(lines[3].ends_with("call of unknown number 9999"));
    }

    #[test]
    fn a_thread_is_ready_for_a_reason() {
        let trace = Trace::new();
        for resumed in [Resumed::First, Resumed::Woken, Resumed::TimedOut] {
            trace.record([0, 0], Kind::Wake, 1, resumed as u64);
        }
        let shown: Vec<String> = trace.last(3).map(|event| event.to_string()).collect();
        assert_eq!(shown, ["ready", "ready, it was woken", "ready, its time came"]);
    }

    #[test]
    fn a_counter_that_is_not_known_divides_nothing_by_zero() {
        let trace = Trace::new();
        trace.record([5, 0], Kind::End, 1, 0);
        let mut out = String::new();
        trace.show(1, 0, &mut out).unwrap();
        assert!(out.contains("ends"));
    }
}
