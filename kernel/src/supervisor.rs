//! Who answers events: the server, inside the kernel or outside of it, or the µ-kernel alone.

use abi::nucleus::Call;
use kcore::ThreadId;
use sasos::{Access, Event, Outcome, Server};

use crate::{outside::Outside, system::Platform};

/// Who answers.
#[allow(clippy::large_enum_variant, reason = "there is one, at a fixed place")]
pub enum Supervisor {
    /// The server, built into the kernel: a system call is one trap.
    Inside(Server),
    /// The server as a program outside of the kernel: events are upcalls to it.
    Outside(Outside),
    /// Nobody but the µ-kernel: the root program and what it makes run on its own calls.
    Nobody,
}

impl Supervisor {
    /// The value of a call that needs nothing but the caller's identity.
    #[inline(always)]
    pub fn immediate(&self, thread: ThreadId, number: u64) -> Option<u64> {
        match self {
            Self::Inside(server) => server.immediate(thread, number),
            Self::Outside(_) | Self::Nobody => None,
        }
    }

    /// Whether a call is nothing but the caller's wish to let others run.
    #[inline(always)]
    pub fn yields(&self, number: u64, first: u64, second: u64) -> bool {
        match self {
            Self::Inside(server) => server.yields(number, first, second),
            Self::Outside(_) => false,
            Self::Nobody => number == Call::Yield as u64,
        }
    }

    /// A simple page fault, done at once; false: nothing was done.
    #[inline(always)]
    pub fn touch_further(&mut self, platform: &mut Platform, thread: ThreadId, address: u64, access: Access) -> bool {
        match self {
            Self::Inside(server) => server.touch_further(platform, thread, address, access).is_some(),
            Self::Outside(_) | Self::Nobody => false,
        }
    }

    /// Whether the µ-kernel answers by itself.
    #[inline(always)]
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    /// Takes an event and says what becomes of the thread it came from.
    #[inline(always)]
    pub fn handle(&mut self, platform: &mut Platform, event: Event) -> Outcome {
        match self {
            Self::Inside(server) => server.handle(platform, event),
            // What concerns a thread goes another way (`crate::outside`).
            Self::Outside(outside) => outside.note(event),
            Self::Nobody => platform.kernel.nucleus_event(event),
        }
    }

    /// Whether `Event::Poll` is due soon.
    #[inline(always)]
    pub fn is_unfinished(&self) -> bool {
        match self {
            Self::Inside(server) => server.is_unfinished(),
            Self::Outside(outside) => outside.unfinished,
            Self::Nobody => false,
        }
    }
}
