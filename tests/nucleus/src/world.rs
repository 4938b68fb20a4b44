//! Spaces for the cases: each with a pager in the root program that gives it a copy of the image, and
//! pages of zeroes wherever else it looks.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Rights,
    address::PAGE,
    nucleus::{LABEL_FAULT, MAP, ROOT_IMAGE, fpage, tag},
};
use nucleus::{
    RootPage,
    call::{self, ThreadEntry, memory::copy_image},
    memory::Pages,
    message,
};

use crate::{
    case::{Failure, Outcome, Setting},
    messages::start,
};

/// Where the copy of the image lies that all spaces share; 0 before there is one.
static IMAGE: AtomicU64 = AtomicU64::new(0);
static IMAGE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Where threads in spaces have their stacks: one a slot, top down.
pub const STACK_TOP: u64 = 0x2000_0020_0000;
/// The quota of a space, in units of 64 bytes.
pub const QUOTA: u64 = 128 * 64;

/// The part of memory that pagers use; the rest is for cases.
const SHARE: u64 = 0;
const SHARES: u64 = 4;

/// Memory for a case: parts 1 to 3 are its own.
pub fn memory(root: RootPage, share: u64) -> Pages {
    Pages::part(root, share, SHARES)
}

/// Copies the image, once.
fn image(root: RootPage) -> u64 {
    if IMAGE.load(Relaxed) == 0 {
        let mut pages = memory(root, SHARE);
        let run = root.head().image_bytes.next_power_of_two().max(2 << 20);
        if let Some(base) = pages.take_run(run) {
            IMAGE_BYTES.store(copy_image(root, base), Relaxed);
            IMAGE.store(base, Relaxed);
        }
    }
    IMAGE.load(Relaxed)
}

/// Everything that a pager of a space needs to know, in one word: the number of its part of memory.
struct Pager {
    next: u64,
    end: u64,
}

/// The memory of a pager, a MiB of part 0 behind the image.
pub fn numbered(number: u64) -> u64 {
    let image = IMAGE.load(Relaxed);
    (image + IMAGE_BYTES.load(Relaxed)).next_multiple_of(2 << 20) + (number << 20)
}

impl Pager {
    fn numbered(number: u64) -> Self {
        let start = numbered(number);
        Self {
            next: start,
            end: start + (1 << 20),
        }
    }

    /// The item that answers a fault.
    fn answer(&mut self, address: u64) -> Option<u64> {
        let page = address & !(PAGE - 1);
        let (image, bytes) = (IMAGE.load(Relaxed), IMAGE_BYTES.load(Relaxed));
        let source = if (ROOT_IMAGE..ROOT_IMAGE + bytes).contains(&page) {
            image + (page - ROOT_IMAGE)
        } else if self.next < self.end {
            let source = self.next;
            self.next += PAGE;
            for at in (source..source + PAGE).step_by(8) {
                call::memory::write(at, 0);
            }
            source
        } else {
            return None;
        };
        Some(fpage(source, 12, Rights::RWX))
    }
}

nucleus::thread_entry!(pub pager_entry, pager);
/// Answers the faults of a space for ever.
fn pager(number: u64) {
    let mut pager = Pager::numbered(number);
    let mut next = message::receive();
    loop {
        let answer = next.ok().filter(|got| got.label() == LABEL_FAULT);
        let answer = answer.and_then(|got| Some((got.sender, pager.answer(got.words[0])?)));
        next = match answer {
            Some((to, what)) => message::reply_and_wait(to, tag(0, 0, 1), [what, MAP, 0, 0]),
            // Nothing to answer, or the one who waited is gone.
            None => message::receive(),
        };
    }
}

/// A space with a pager of its own.
pub struct World {
    /// Its identifier.
    pub space: u64,
    /// Its pager.
    pub pager: u64,
    threads: Vec<u64>,
    slot: u64,
}

/// How many pagers there were; each has memory of its own.
static PAGERS: AtomicU64 = AtomicU64::new(0);
/// Pagers whose memory is used in turn.
const PAGERS_MAX: u64 = 8;

impl World {
    /// A space whose threads may send to the supervisor only (0: to anyone).
    pub fn new(setting: &Setting, handler: u64, supervisor: u64) -> Outcome<Self> {
        let number = PAGERS.fetch_add(1, Relaxed) % PAGERS_MAX;
        Self::with(setting, || start(pager_entry(), number, 3), handler, supervisor)
    }

    /// The same with a pager that somebody else starts, when there is an image.
    pub fn with(
        setting: &Setting,
        start: impl FnOnce() -> Outcome<u64>,
        handler: u64,
        supervisor: u64,
    ) -> Outcome<Self> {
        if image(setting.root) == 0 {
            return Err(Failure::new(format_args!("no memory for the image")));
        }
        let pager = start()?;
        let space = call::space_create(QUOTA, pager, handler, supervisor)?;
        Ok(Self {
            space,
            pager,
            threads: Vec::new(),
            slot: 0,
        })
    }

    /// A thread in it, with a stack of its own.
    pub fn start(&mut self, entry: ThreadEntry, parameter: u64) -> Outcome<u64> {
        let top = STACK_TOP + (self.slot << 21);
        self.slot += 1;
        let thread = call::start_thread_in(self.space, entry, top, parameter, 3)?;
        self.threads.push(thread);
        Ok(thread)
    }

    /// Deletes it.
    pub fn end(self) -> Outcome {
        call::space_delete(self.space)?;
        call::thread_delete(self.pager)?;
        Ok(())
    }

    /// The same, its pager first: threads may wait for it.
    pub fn end_behind_its_pager(self) -> Outcome {
        call::thread_delete(self.pager)?;
        call::space_delete(self.space)?;
        Ok(())
    }

    /// The threads that were started in it.
    pub fn threads(&self) -> &[u64] {
        &self.threads
    }
}
