//! Ctrl-C while a command of the shell itself runs, and what is typed meanwhile.
//!
//! A program in the foreground is ended by the system. A command runs on a thread of the shell, and ending that thread
//! could leave the heap's lock taken; so it is asked: a second thread reads the terminal, raises a flag at Ctrl-C, which
//! long commands look at, and keeps everything else for the line editor. The thread that reads uses no heap, for it is
//! ended in the middle of a read when the command is done, or when a program takes the terminal over.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use abi::{Error, layout::PRIORITY_DEFAULT};
use rt::{
    call,
    console::{Stream, read},
    thread, time,
};

use crate::commands::{Complaint, Outcome};

/// Ctrl-C.
const INTERRUPT: u8 = 3;
/// Bytes that are kept for the line editor; what is typed beyond is lost.
const KEPT: usize = 256;

/// 1 when Ctrl-C was typed. Sleepers wait at its address.
static RAISED: AtomicU32 = AtomicU32::new(0);
/// The thread that reads, 0 if there is none.
static READER: AtomicU64 = AtomicU64::new(0);
static TYPED: [AtomicU8; KEPT] = [const { AtomicU8::new(0) }; KEPT];
static COUNT: AtomicUsize = AtomicUsize::new(0);

rt::thread_entry!(reader, read_terminal);

fn read_terminal(_: u64) -> u64 {
    let mut byte = [0];
    while let Ok(1) = read(Stream::Terminal, &mut byte) {
        let [byte] = byte;
        if byte == INTERRUPT {
            RAISED.store(1, SeqCst);
            // Nobody may be waiting.
            let _ = call::address_wake(raised_at(), u64::MAX);
        } else if let Some(place) = TYPED.get(COUNT.load(SeqCst)) {
            place.store(byte, SeqCst);
            COUNT.fetch_add(1, SeqCst);
        }
    }
    0
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
    /// Begins. Without a thread to spare the command cannot be interrupted, and runs all the same.
    pub fn begin() -> Self {
        RAISED.store(0, SeqCst);
        COUNT.store(0, SeqCst);
        let reader = thread::start(reader(), 0, PRIORITY_DEFAULT).ok();
        READER.store(reader.map_or(0, thread::Thread::id), SeqCst);
        Self { reader }
    }

    /// Ends, and gives what was typed.
    pub fn end(self) -> impl Iterator<Item = u8> {
        give_terminal_away();
        if let Some(reader) = self.reader {
            // It has ended or is about to.
            let _ = reader.join_status();
        }
        let count = COUNT.load(SeqCst).min(KEPT);
        TYPED.iter().take(count).map(|byte| byte.load(SeqCst))
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
