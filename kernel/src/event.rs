//! Entries from the assembly: system calls, protected calls, traps.
//!
//! Every way in takes the kernel lock, hands the event to the server (or to the fast path), and
//! goes out again: straight back to the caller where nothing else happened, else through
//! [`leave`], which takes the thread that is to run next. Nothing ever waits on the kernel stack.

use abi::{
    Call,
    layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL},
};
use kcore::{
    ThreadId,
    kernel::Rotation,
    smp::HandedOver,
    thread::{Context, Operation, Resumed},
    trace::Kind,
};
use sasos::{Access, Event, Outcome};

use crate::{
    arch::{self, Arguments, Interrupt, Results},
    mem::lock::Guard,
    panic,
    supervisor::Supervisor,
    system::System,
    trace,
};

/// The call that only tells who calls, where the server answers that without looking.
pub extern "C" fn identity_call<S: Supervisor>(
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    number: u64,
) -> Results {
    if let Some(mut system) = S::system().enter_at_once() {
        let System {
            platform, supervisor, ..
        } = &mut *system;
        if let Some(thread) = platform.kernel.current_thread()
            && let Some(value) = supervisor.immediate(thread.id, number)
        {
            return Results::values(value, 0);
        }
    }
    general_call::<S>(a0, a1, a2, a3, a4, a5, number)
}

/// The calls that sleep, suspend, or yield: that last the kernel does by itself.
pub extern "C" fn sleep_call<S: Supervisor>(
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    number: u64,
) -> Results {
    if a0 | a1 == 0
        && let Some(system) = S::system().enter_at_once()
        && system.supervisor.yields(number, a0, a1)
    {
        return yield_call(system);
    }
    general_call::<S>(a0, a1, a2, a3, a4, a5, number)
}

/// The calling thread goes behind the others of its priority.
#[inline(always)]
fn yield_call<S: Supervisor>(mut system: Guard<'_, System<S>>) -> Results {
    let (rip, rsp) = arch::caller();
    match system.platform.kernel.rotate(rip, rsp) {
        Some(turn) => switch(system, turn),
        None => Results::values(0, 0),
    }
}

/// Goes on with the thread that has the processor now.
#[inline(always)]
pub fn switch<S: Supervisor>(mut system: Guard<'_, System<S>>, turn: Rotation) -> ! {
    match system.take_turn(turn) {
        Some(context) => {
            drop(system);
            arch::resume(context)
        }
        // Not by way of `leave`: a thread runs here, which another processor may want.
        None => leave_from(system),
    }
}

/// Goes on with the running thread, whose call is over and whose registers have the results, unless another thread goes first.
#[inline(always)]
pub fn return_to_caller<S: Supervisor>(mut system: Guard<'_, System<S>>) -> ! {
    let kernel = &mut system.platform.kernel;
    if let Some(index) = kernel.current()
        && kernel.goes_on(index)
        && kernel.hardware.stop.is_none()
    {
        let context = &raw const *kernel.context_of(index);
        drop(system);
        arch::resume(context)
    }
    if kernel.should_preempt() {
        kernel.yield_current();
    }
    leave_from(system)
}

/// The arguments of a call for the slow path, in memory: registers are for the fast one.
#[inline(always)]
pub fn kept(arguments: [u64; 6]) -> [u64; 6] {
    core::hint::black_box(arguments)
}

/// A system call that its fast way does not do.
#[cold]
pub extern "C" fn general_call<S: Supervisor>(
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    number: u64,
) -> Results {
    let arguments = [a0, a1, a2, a3, a4, a5];
    let mut system = wait_for_turn::<S>(&arguments, number);
    system.platform.kernel.called_from(arch::caller());
    S::call(system, &arguments, number)
}

/// Enters for a call. Does not come back if the thread has to be handed over meanwhile, or its protected call went by a portal-cache entry.
#[cold]
pub fn wait_for_turn<S: Supervisor>(&arguments: &Arguments, number: u64) -> Guard<'static, System<S>> {
    let Some(mut system) = S::system().enter_unless_stopped() else {
        hand_over::<S>(arguments, number)
    };
    // With several processors the fast paths are left whenever another one was inside last.
    if system.platform.kernel.has_others()
        && let Some(context) = system.cross(number, arguments)
    {
        drop(system);
        arch::resume(context)
    }
    system
}

/// Has the supervisor answer a call, which begins now.
#[inline(always)]
pub fn answer_call<S: Supervisor>(mut system: Guard<'_, System<S>>, &arguments: &Arguments, number: u64) -> Results {
    let Some(thread) = system.platform.kernel.current_thread().map(|thread| thread.id) else {
        leave_from(system)
    };
    begin_call(&mut system, thread, number);
    let System {
        platform, supervisor, ..
    } = &mut *system;
    let event = Event::Call {
        thread,
        number,
        arguments,
        resumed: Resumed::First,
    };
    let outcome = supervisor.handle(platform, event);
    end_call(system, thread, outcome, || Operation { number, arguments })
}

/// A thread makes a call.
#[inline(always)]
pub fn begin_call<S: Supervisor>(system: &mut System<S>, thread: ThreadId, number: u64) {
    if cfg!(debug_assertions) {
        system.check_now_and_then();
    }
    trace::record(Kind::Call, thread, number);
}

/// Goes on after a call, of this thread, that was answered like that.
#[inline(always)]
pub fn end_call<S: Supervisor>(
    mut system: Guard<'_, System<S>>,
    thread: ThreadId,
    outcome: Outcome,
    operation: impl Fn() -> Operation,
) -> Results {
    let index = thread.index() as u32;
    // Straight back only to the caller that it was: the call may have ended the thread, or taken it
    // out of the domain that it was in.
    if let Outcome::Return(result) = outcome
        && system.platform.kernel.goes_on(index)
        && system.platform.kernel.hardware.stop.is_none()
    {
        return Results::of(result);
    }
    if let Outcome::Block(key, None) = outcome
        && let Some(turn) = system.park_for_next(index, key, &operation)
    {
        switch(system, turn)
    }
    system.settle(index, outcome, Some(operation()));
    if system.platform.kernel.should_preempt() {
        system.platform.kernel.yield_current();
    }
    leave_from(system)
}

/// Another processor wants the thread of this call, which waits for its turn: gives it up, with the call to be done
/// when it runs again.
#[cold]
fn hand_over<S: Supervisor>(arguments: [u64; 6], number: u64) -> ! {
    let (rip, rsp) = arch::caller();
    arch::hand_over(Some(HandedOver {
        rip,
        rsp,
        operation: Operation::called(number, arguments),
    }));
    leave::<S>()
}

/// An exception or interrupt of user code. `context` is where its registers stand: in the running
/// thread's place in the table, through which alone they are reached here. It does not return, so that no register is kept for its caller.
#[inline(always)]
pub fn trap<S: Supervisor>(context: *const Context, vector: u64) -> ! {
    arch::resume(trapped::<S>(context, vector))
}

/// The same: gives the registers to go on with.
#[inline(always)]
fn trapped<S: Supervisor>(context: *const Context, vector: u64) -> *const Context {
    if vector == VECTOR_PAGE_FAULT
        && let Some(mut system) = S::system().enter_at_once()
    {
        let System {
            platform, supervisor, ..
        } = &mut *system;
        if let Some(thread) = platform.kernel.current_thread() {
            let (thread, error) = (thread.id, thread.context.error);
            let (address, access) = (arch::fault_address(), access_of(error));
            // Nothing that it does concerns who runs.
            if supervisor.touch_further(platform, thread, address, access) {
                return context;
            }
            if let Some(turn) = S::fault_short(platform, address, access)
                && let Some(context) = system.take_turn(turn)
            {
                return context;
            }
        }
    }
    general_trap::<S>(context, vector)
}

/// The vector of page faults.
const VECTOR_PAGE_FAULT: u64 = 14;
/// The vector of the use of a vector unit that is off.
pub const VECTOR_NO_UNIT: u64 = 7;
/// Exceptions that are told when their instruction is behind: single steps, breakpoints, overflow.
const TRAPS: [u64; 3] = [1, 3, 4];
/// The vector of general protection faults.
const VECTOR_PROTECTION: u64 = 13;

/// The access that a page fault's error code names.
const fn access_of(error: u64) -> Access {
    match error {
        _ if error & 16 != 0 => Access::Execute,
        _ if error & 2 != 0 => Access::Write,
        _ => Access::Read,
    }
}

/// An exception or interrupt that may change, wait for or end anything.
#[inline(never)]
extern "C" fn general_trap<S: Supervisor>(context: *const Context, vector: u64) -> *const Context {
    if vector == u64::from(arch::VECTOR_ATTENTION) && !arch::attend() {
        return context;
    }
    let system = S::system().enter_unless_stopped().unwrap_or_else(|| {
        // Another processor wants the thread. It will do again what brought it here, unless that is behind.
        arch::hand_over(TRAPS.contains(&vector).then(|| HandedOver {
            rip: 0,
            rsp: 0,
            operation: Operation::raised(kind_of(vector), 0),
        }));
        S::system().enter()
    });
    if vector >= 32 {
        let thread = system
            .platform
            .kernel
            .current_thread()
            .map_or(ThreadId(0), |thread| thread.id);
        trace::interrupt(thread, vector);
    }
    S::trap(system, context, vector)
}

/// Handles an interrupt, or has the supervisor answer an exception.
#[inline(always)]
pub fn answer_trap<S: Supervisor>(
    mut system: Guard<'_, System<S>>,
    context: *const Context,
    vector: u64,
) -> *const Context {
    if vector >= 32 {
        if let Some(interrupt) = arch::accept(vector) {
            if let Interrupt::Message(number) = interrupt
                && let Some(waiting) = S::interrupt_short(&mut system.platform, number)
                && let Some(context) = system.run(waiting)
            {
                return context;
            }
            system.interrupt(interrupt);
        }
    } else if system.platform.kernel.current().is_some() && system.exception(vector) {
        return context;
    }
    if system.platform.kernel.should_preempt() {
        system.platform.kernel.yield_current();
    }
    if let Some(next) = system.next() {
        return next;
    }
    leave_from(system)
}

impl<S: Supervisor> System<S> {
    /// A protected call, or the return from one, through a portal-cache entry. Gives the registers to go on with.
    #[inline(never)]
    fn cross(&mut self, number: u64, [a0, a1, a2, a3, a4, a5]: [u64; 6]) -> Option<*const Context> {
        let kernel = &mut self.platform.kernel;
        let is_call = number == Call::PdxCall as u64;
        let to = if is_call {
            let (rip, rsp) = arch::caller();
            kernel.portal_call(a0, a2, rip, rsp)?
        } else if number == Call::PdxReturn as u64 {
            kernel.portal_return()?
        } else {
            return None;
        };
        let context = kernel.current_context()?;
        context.reset(to.rip, to.rsp);
        if is_call {
            context.set_arguments([a1, a3, a4, a5]);
        } else {
            context.set_results(0, a0, a1);
        }
        Some(context)
    }

    /// An exception of the running thread. Tells whether it goes on at once, for nothing else has changed.
    #[inline(always)]
    fn exception(&mut self, vector: u64) -> bool {
        let index = self.current();
        let thread = self.platform.kernel.thread(index);
        let (id, error) = (thread.id, thread.context.error);
        if vector == VECTOR_NO_UNIT && self.platform.kernel.vectors_begin().is_some() {
            return true;
        }
        if vector == VECTOR_PROTECTION && error == 0 && self.ports_wanted() {
            return true;
        }
        let event = of_exception(id, vector, error);
        let outcome = self.supervisor.handle(&mut self.platform, event);
        let kernel = &mut self.platform.kernel;
        if vector == VECTOR_PAGE_FAULT
            && matches!(outcome, Outcome::Resume)
            && (kernel.is_undisturbed(index) || kernel.goes_on(index))
        {
            return true;
        }
        self.settle(index, outcome, None);
        false
    }
}

/// A thread's exception as an event.
#[inline(always)]
pub fn of_exception(thread: ThreadId, vector: u64, error: u64) -> Event {
    if vector == VECTOR_PAGE_FAULT {
        let address = arch::fault_address();
        trace::record(Kind::Fault, thread, address);
        return Event::Fault {
            thread,
            address,
            access: access_of(error),
        };
    }
    trace::record(Kind::Exception, thread, vector);
    Event::Exception {
        thread,
        kind: kind_of(vector),
        address: 0,
    }
}

/// The name of an exception towards users.
const fn kind_of(vector: u64) -> u64 {
    match vector {
        0 | 4 | 16 | 19 => EXCEPTION_ARITHMETIC,
        _ => EXCEPTION_ILLEGAL,
    }
}

/// An exception or interrupt of the kernel: interrupts while it is idle, nothing else.
pub extern "C" fn trap_in_kernel<S: Supervisor>(context: &Context) {
    if context.vector < 32 {
        fatal(context);
    }
    if context.vector == u64::from(arch::VECTOR_ATTENTION) {
        // It was idle and looks for a thread as soon as this is done.
        arch::attend();
        return;
    }
    trace::interrupt(ThreadId(0), context.vector);
    let mut system = S::system().enter();
    if let Some(interrupt) = arch::accept(context.vector) {
        system.interrupt(interrupt);
    }
    // An answered thread that would run here waits until this processor has entered again: a thread on a processor must
    // be given up on demand, which nobody does here.
    system.platform.kernel.yield_current();
}

/// An exception that the kernel does not survive: one of its own, a double fault, a machine check. A double fault is
/// mostly a kernel stack that ran over its end.
pub extern "C" fn fatal(context: &Context) -> ! {
    let what = match context.vector {
        0 => "division by zero",
        6 => "invalid instruction",
        8 => "double fault",
        13 => "general protection fault",
        14 => "page fault",
        18 => "machine check",
        _ => "exception",
    };
    let (vector, rip, error) = (context.vector, context.rip, context.error);
    let address = arch::fault_address();
    panic::end(
        format_args!(
            "{what} (vector {vector}) in the kernel at {rip:#x}, error {error:#x}, fault address {address:#x}"
        ),
        context,
    )
}

/// Goes on with the thread that is to run, or waits for an interrupt until there is one.
pub fn leave<S: Supervisor>() -> ! {
    leave_from(S::system().enter())
}

/// The same from inside. The lock is kept until the next thread's registers and space are set, so that nobody sees
/// this processor with the rest of the last one.
pub fn leave_from<S: Supervisor>(mut system: Guard<'_, System<S>>) -> ! {
    loop {
        if let Some(context) = system.next() {
            drop(system);
            arch::resume(context)
        }
        let busy = system.idle();
        if system.platform.kernel.current().is_some() {
            // The work answered a thread, which runs here now.
            continue;
        }
        // Behind a piece of long work interrupts have their turn, and so has each processor that is in line.
        drop(system);
        if busy {
            arch::poll_interrupts();
        } else {
            arch::wait_for_interrupt();
        }
        system = S::system().enter();
    }
}
