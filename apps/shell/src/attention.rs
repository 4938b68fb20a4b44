//! Ctrl-C while a command of the shell itself runs, and what is typed meanwhile.
//!
//! A program in the foreground is ended by the system. A command runs on a thread of the shell, and ending that thread
//! could leave the heap's lock taken; so it is asked: a second thread reads the terminal, raises a flag at Ctrl-C, which
//! long commands look at, and keeps everything else for the line editor. The thread that reads uses no heap, for it is
//! ended in the middle of a read when the command is done, or when a program takes the terminal over. The system puts each byte
//! straight into its place, so a thread that is ended between a read and the next statement loses none.

use core::{
    slice,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use abi::{Error, layout::PRIORITY_DEFAULT};
use rt::{
    call,
    console::{Stream, read_shared},
    thread, time,
};

use crate::{
    ahead::{Ahead, KEPT},
    commands::{Complaint, Outcome},
};

/// Ctrl-C.
const INTERRUPT: u8 = 3;

/// 1 when Ctrl-C was typed. Sleepers wait at its address.
static RAISED: AtomicU32 = AtomicU32::new(0);
/// The thread that reads, 0 if there is none.
static READER: AtomicU64 = AtomicU64::new(0);
/// The bytes typed while a program runs; places without a byte are 0.
static TYPED: [AtomicU8; KEPT] = [const { AtomicU8::new(0) }; KEPT];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many bytes may be kept.
static ROOM: AtomicUsize = AtomicUsize::new(0);
/// The last byte that came when there was no room, 0 if none did. Reading goes on without room, for Ctrl-C may come.
static DISCARDED: AtomicU8 = AtomicU8::new(0);

rt::thread_entry!(reader, read_terminal);

fn read_terminal(_: u64) -> u64 {
    loop {
        let count = COUNT.load(SeqCst);
        let place = match TYPED.get(count) {
            Some(place) if count < ROOM.load(SeqCst) => place,
            _ => &DISCARDED,
        };
        let before = place.load(SeqCst);
        let Ok(1) = read_shared(Stream::Terminal, slice::from_ref(place)) else {
            return 0;
        };
        if place.load(SeqCst) == INTERRUPT {
            place.store(before, SeqCst);
            RAISED.store(1, SeqCst);
            // Nobody may be waiting.
            let _ = call::address_wake(raised_at(), u64::MAX);
        } else if !core::ptr::eq(place, &raw const DISCARDED) {
            COUNT.store(count + 1, SeqCst);
        }
    }
}

fn raised_at() -> u64 {
    core::ptr::from_ref(&RAISED) as u64
}

/// The terminal is listened to, for the time of a command.
#[derive(Debug)]
pub struct Listening {
    reader: Option<thread::Thread>,
}

impl Listening {
    /// Begins; `ahead` has what the line editor has not looked at yet. Without a thread to spare the command cannot be interrupted, and
    /// runs all the same.
    pub fn begin(ahead: &Ahead) -> Self {
        RAISED.store(0, SeqCst);
        ROOM.store(ahead.room(), SeqCst);
        let reader = thread::start(reader(), 0, PRIORITY_DEFAULT).ok();
        READER.store(reader.map_or(0, thread::Thread::id), SeqCst);
        Self { reader }
    }

    /// Ends, and keeps what was typed; tells whether lines were discarded.
    pub fn end(self, ahead: &mut Ahead) -> bool {
        give_terminal_away();
        if let Some(reader) = self.reader {
            // It has ended or is about to.
            let _ = reader.join_status();
        }
        // The last byte may not be counted yet.
        let count = COUNT.swap(0, SeqCst) + 1;
        let typed = TYPED.iter().take(count).map(|place| place.swap(0, SeqCst));
        ahead.extend(typed.filter(|byte| *byte != 0));
        let discarded = DISCARDED.swap(0, SeqCst);
        if discarded != 0 {
            ahead.discard(discarded);
        }
        discarded != 0
    }
}

/// From now on somebody else reads the terminal.
pub fn give_terminal_away() {
    let reader = READER.swap(0, SeqCst);
    if reader != 0 {
        // One that has ended at the end of its input is as good.
        let _ = call::thread_delete(reader, 0);
    }
}

/// Fails if the user typed Ctrl-C. Long commands ask now and then.
pub fn check() -> Outcome {
    if RAISED.load(SeqCst) == 0 {
        Ok(())
    } else {
        Err(Complaint::Interrupted)
    }
}

/// Sleeps, unless the user types Ctrl-C.
pub fn sleep_ns(ns: u64) -> Outcome {
    if READER.load(SeqCst) == 0 {
        return Ok(time::sleep_ns(ns)?);
    }
    match call::address_wait(raised_at(), 0, ns.clamp(1, u64::MAX - 1)) {
        Err(Error::TimedOut) => Ok(()),
        Ok(()) | Err(Error::Changed) => check(),
        Err(error) => Err(error.into()),
    }
}
