//! The supervisor, which answers events: the server, inside the kernel ([`crate::inside`]) or outside of it ([`crate::outside`]), or the µ-kernel alone
//! ([`crate::bare`]).
//!
//! The kernel is a library over this, and each of the three an image of its own (`src/bin`), which has nothing of the other two. If
//! a supervisor leaves out a part here, the default is what the server inside needs.

use alloc::{string::String, vec::Vec};

use kcore::{
    ThreadId,
    frames::Range,
    kernel::Rotation,
    thread::{Context, Operation},
};
use sasos::{Access, Event, Outcome};

use crate::{
    arch::{self, Arguments, BootInformation, Interrupt, Results},
    event,
    mem::{
        device::Resources,
        division::{Division, HeapOf},
        lock::Guard,
    },
    system::{Platform, System, TheSystem},
};

/// The means with which a supervisor starts.
pub struct Start<'a> {
    /// Devices.
    pub resources: Resources,
    /// The loader's report.
    pub information: &'a BootInformation,
    /// Memory.
    pub memory: &'a Division,
    /// Memory that was set aside ([`Supervisor::set_aside`]).
    pub given: Vec<Range>,
}

/// A supervisor.
pub trait Supervisor: Sized + 'static {
    /// The part its kernel has beside the common one.
    type Half: kcore::Half;
    /// The features that the kernel page names for it.
    const FEATURES: u64;
    /// The owner of the heap.
    const HEAP: HeapOf;
    /// The target of `syscall`.
    const ENTRY: arch::Entry;
    /// Whether the first program can run once it is started.
    const IS_READY: bool = true;

    /// The one system that it has.
    fn system() -> &'static TheSystem<Self>;

    /// Memory that the kernel does not hand out.
    fn set_aside(_: &mut Division) -> Vec<Range> {
        Vec::new()
    }

    /// Brings it up.
    ///
    /// # Errors
    /// Why not, in words.
    fn start(platform: &mut Platform<Self::Half>, start: Start<'_>) -> Result<Self, String>;

    /// Takes an event and says what becomes of the thread it came from.
    fn handle(&mut self, platform: &mut Platform<Self::Half>, event: Event) -> Outcome;

    /// The value of a call that needs nothing but the caller's identity.
    #[inline(always)]
    fn immediate(&self, _: ThreadId, _: u64) -> Option<u64> {
        None
    }

    /// Whether a call is nothing but the caller's wish to let others run.
    #[inline(always)]
    fn yields(&self, _: u64, _: u64, _: u64) -> bool {
        false
    }

    /// A simple page fault, done at once; false: nothing was done.
    #[inline(always)]
    fn touch_further(&mut self, _: &mut Platform<Self::Half>, _: ThreadId, _: u64, _: Access) -> bool {
        false
    }

    /// Whether `Event::Poll` is due soon.
    #[inline(always)]
    fn is_unfinished(&self) -> bool {
        false
    }

    /// A page fault that goes to a pager that waits for it: who runs then.
    #[inline(always)]
    fn fault_short(_: &mut Platform<Self::Half>, _: u64, _: Access) -> Option<Rotation> {
        None
    }

    /// An interrupt that goes to a thread that waits for it: who runs then.
    #[inline(always)]
    fn interrupt_short(_: &mut Platform<Self::Half>, _: usize) -> Option<u32> {
        None
    }

    /// A system call.
    #[inline(always)]
    fn call(system: Guard<'_, System<Self>>, arguments: &Arguments, number: u64) -> Results {
        event::answer_call(system, arguments, number)
    }

    /// An exception or interrupt of user code; gives the registers to go on with.
    #[inline(always)]
    fn trap(system: Guard<'_, System<Self>>, context: *const Context, vector: u64) -> *const Context {
        event::answer_trap(system, context, vector)
    }

    /// Does again what a thread was parked with. Gives registers if those are to run now.
    fn do_again(system: &mut System<Self>, index: u32, event: Event, operation: Operation) -> Option<*const Context> {
        system.answer_again(index, event, operation);
        None
    }

    /// Whether a device has to wait until the supervisor has done what it does.
    #[inline(always)]
    fn defer(_: &mut System<Self>, _: Interrupt) -> bool {
        false
    }

    /// Registers that run before any thread does.
    #[inline(always)]
    fn next(_: &mut System<Self>) -> Option<*const Context> {
        None
    }
}
