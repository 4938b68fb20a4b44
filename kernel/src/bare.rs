//! Nobody but the µ-kernel: a root program, and what it makes, run on the µ-kernel's own calls.

use alloc::{format, string::String, vec::Vec};

use abi::{address::PAGE, layout::PRIORITY_MAX, nucleus::Call};
pub use kcore::bare::nucleus::Given;
use kcore::{
    Hardware, Kernel, SpaceId, ThreadId,
    bare::{Bare as Half, THREADS_MAX, ipc::Apart, mapping::UNIT_BYTES},
    frames::Range,
    kernel::Rotation,
    thread::{Context, Operation, Resumed},
};
use sasos::{Access, Event, Outcome};

use crate::{
    arch::{self, BootInformation, Results, Words},
    event,
    mem::{
        division::{Division, HeapOf},
        lock::{Guard, Lock},
    },
    root,
    supervisor::{Start, Supervisor},
    system::{Platform, System, TheSystem},
};

/// The system of this image.
pub static SYSTEM: TheSystem<Bare> = Lock::empty();

/// The µ-kernel answers by itself.
pub struct Bare;

impl Supervisor for Bare {
    type Half = Half;

    const FEATURES: u64 = 0;
    const HEAP: HeapOf = HeapOf::Both;
    const ENTRY: arch::Entry = arch::ENTRY_BARE;

    fn system() -> &'static TheSystem<Self> {
        &SYSTEM
    }

    fn set_aside(memory: &mut Division) -> Vec<Range> {
        memory.set_aside()
    }

    fn start(platform: &mut Platform<Half>, start: Start<'_>) -> Result<Self, String> {
        // The fast path of messages looks at any place.
        (platform.kernel.make_places(THREADS_MAX)).map_err(root::short)?;
        start_root(&mut platform.kernel, start.information, &start.given).map(|_| Self)
    }

    #[inline(always)]
    fn handle(&mut self, platform: &mut Platform<Half>, event: Event) -> Outcome {
        platform.kernel.nucleus_event(event)
    }

    #[inline(always)]
    fn yields(&self, number: u64, _: u64, _: u64) -> bool {
        number == Call::Yield as u64
    }

    #[inline(always)]
    fn fault_short(platform: &mut Platform<Half>, address: u64, access: Access) -> Option<Rotation> {
        platform.kernel.fault_short(address, access)
    }

    #[inline(always)]
    fn interrupt_short(platform: &mut Platform<Half>, number: usize) -> Option<u32> {
        platform.kernel.interrupt_short(number)
    }
}

/// Device memory: where the firmware puts what PCI devices have.
const DEVICES: Range = (0xc_0000, 0xf_ec00);

/// Loads the root program into σ₀, which holds the ranges of frames in `given`, and lets it run.
///
/// # Errors
/// In words: no module, no program, too little memory.
fn start_root(
    kernel: &mut Kernel<impl Hardware, Half>,
    information: &BootInformation,
    given: &[Range],
) -> Result<ThreadId, String> {
    // Half of what the kernel has is for spaces; the rest for its own.
    let quota = kernel.frames().free() / 2 * (PAGE / UNIT_BYTES as u64);
    let space = kernel
        .sigma0_create(quota as u32, given, &[DEVICES], arch::largest_page())
        .map_err(|error| format!("no first space: {error}"))?;
    kernel
        .nucleus_root(space)
        .map_err(|error| format!("no root space: {error}"))?;
    let program = root::load(kernel, information, space, given)?;
    kernel
        .nucleus_thread(space, [program.entry, program.stack, program.page], PRIORITY_MAX as u8)
        .map_err(|error| format!("no first thread: {error}"))
}

/// A call that the µ-kernel may answer at once on a fast path; else it takes the slow one. (A function that takes the way as an
/// argument would cost `map-page` ten instructions.)
macro_rules! short_call {
    ($(#[$doc:meta])* $name:ident($($used:ident),*; $($unused:ident),*) by $short:ident) => {
        $(#[$doc])*
        pub extern "C" fn $name($($used: u64,)* $($unused: u64,)* number: u64) -> Results {
            let kept = event::kept([$($used,)* $($unused),*]);
            if let Some(mut system) = Bare::system().enter_at_once()
                && let Some(value) = system.platform.kernel.$short([$($used),*])
            {
                return Results::values(value, 0);
            }
            let [$($used,)* $($unused),*] = kept;
            event::general_call::<Bare>($($used,)* $($unused,)* number)
        }
    };
}

short_call! {
    /// The call that gives memory.
    map_call(a0, a1, a2, a3; a4, a5) by map_short
}
short_call! {
    /// The call that takes memory.
    flush_call(a0, a1, a2; a3, a4, a5) by flush_short
}

/// The item of a message from a space to a thread, which has this index, on the fast path for those without vector registers.
#[inline(always)]
pub fn give(system: &mut System<Bare>, (from, source): (u32, u64), way: u64, receiver: u32) -> Option<Given> {
    let kernel = &mut system.platform.kernel;
    kernel.give_item(SpaceId(from), [source, way], receiver, true)
}

/// A message that is none of the commonest. Its words are kept in the sender's context, where
/// whoever receives it finds them.
pub extern "C" fn ipc(to: u64, from: u64, tag: u64, timeouts: u64, window: u64, _: u64, words: Words) -> ! {
    let arguments = [to, from, tag, timeouts, window];
    let Some(mut system) = Bare::system().enter_unless_stopped() else {
        hand_over(arguments, words)
    };
    let kernel = &mut system.platform.kernel;
    if let Some(turn) = kernel.item_short(arguments, words.0, arch::caller()) {
        event::switch(system, turn)
    }
    match kernel.ipc_apart(arguments, words.0, arch::caller()) {
        Some(Apart::GoesOn) => event::return_to_caller(system),
        Some(Apart::Waits) => event::leave_from(system),
        None => general_ipc(system, arguments, words),
    }
}

/// Another processor wants the thread, which makes the call again: the words of its message have no place in what is handed over.
#[cold]
fn hand_over([to, from, tag, timeouts, window]: [u64; 5], words: Words) -> ! {
    let mut context = Context::scrubbed(0, 0);
    context.rax = abi::nucleus::Call::Ipc as u64;
    (context.rdi, context.rsi, context.rdx, context.r10, context.r8) = (to, from, tag, timeouts, window);
    context.set_message_words(words.0);
    arch::restart_call(&context);
    arch::hand_over(None);
    event::leave::<Bare>()
}

/// A message of any kind.
#[inline(never)]
fn general_ipc(mut system: Guard<'_, System<Bare>>, arguments: [u64; 5], words: Words) -> ! {
    let [to, from, tag, timeouts, window] = arguments;
    let operation = Operation {
        number: abi::nucleus::Call::Ipc as u64,
        arguments: [to, from, tag, timeouts, window, 0],
    };
    let System {
        platform, supervisor, ..
    } = &mut *system;
    if let Some(thread) = platform.kernel.called_from(arch::caller()) {
        let event = Event::Call {
            thread: thread.id,
            number: operation.number,
            arguments: operation.arguments,
            resumed: Resumed::First,
        };
        let index = thread.id.index() as u32;
        let context = platform.kernel.context_of(index);
        context.set_message_words(words.0);
        let outcome = supervisor.handle(platform, event);
        system.settle(index, outcome, Some(operation));
        if system.platform.kernel.should_preempt() {
            system.platform.kernel.yield_current();
        }
    }
    event::leave_from(system)
}

/// The functions that the image comes to.
pub mod entries {
    crate::arch::entries!(super::Bare);
}
