//! What the entry code calls: system calls, protected calls, traps.
//!
//! Every way in takes the kernel lock, hands the event to the server (or to the fast path), and
//! goes out again: straight back to the caller where nothing else happened, else through
//! [`leave`], which takes whoever is to run next. Nothing ever waits on the kernel stack.

use abi::layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL};
use kcore::{
    kernel::Crossing,
    thread::{Context, Operation, Resumed},
};
use sasos::{Access, Event, Outcome};

use crate::{
    arch::{self, Results, Target, Words},
    log,
    system::{SYSTEM, System},
};

/// A system call that is not over the fast path.
pub extern "C" fn system_call(a0: u64, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64, number: u64) -> Results {
    let mut system = SYSTEM.enter();
    let System {
        platform, supervisor, ..
    } = &mut *system;
    if let Some(thread) = platform.kernel.current_thread()
        && let Some(value) = supervisor.immediate(thread.id, number)
    {
        return Results { error: 0, value };
    }
    drop(system);
    general_call(a0, a1, a2, a3, a4, a5, number)
}

/// A system call that may change, wait for or end anything.
#[inline(never)]
extern "C" fn general_call(a0: u64, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64, number: u64) -> Results {
    let mut system = SYSTEM.enter();
    let System {
        platform, supervisor, ..
    } = &mut *system;
    let Some(thread) = platform.kernel.current_thread() else {
        drop(system);
        leave()
    };
    (thread.context.rip, thread.context.rsp) = arch::caller();
    let arguments = [a0, a1, a2, a3, a4, a5];
    let event = Event::Call {
        thread: thread.id,
        number,
        arguments,
        resumed: Resumed::First,
    };
    let outcome = supervisor.handle(platform, event);
    // Straight back only to the caller that it was: the call may have ended the thread, or taken it
    // out of the domain that it was in.
    if let Outcome::Return(result) = outcome
        && platform.kernel.stays()
        && platform.kernel.hardware.stop.is_none()
    {
        return match result {
            Ok((value, value2)) => {
                if value2 != 0 {
                    arch::set_value2(value2);
                }
                Results { error: 0, value }
            }
            Err(error) => Results {
                error: error as u64,
                value: 0,
            },
        };
    }
    system.settle(outcome, Some(Operation { number, arguments }));
    if system.platform.kernel.should_preempt() {
        system.platform.kernel.yield_current();
    }
    drop(system);
    leave()
}

/// A message in registers to a thread that waits for it: see [`kcore::Kernel::ipc_fast`].
pub extern "C" fn ipc_fast(to: u64, from: u64, tag: u64, timeouts: u64, window: u64) -> Target {
    let (rip, rsp) = arch::caller();
    let mut system = SYSTEM.enter();
    let kernel = &mut system.platform.kernel;
    match kernel.ipc_fast([to, from, tag, timeouts, window], rip, rsp) {
        Some(to) => {
            arch::set_thread(&kernel.threads.table[to.receiver as usize].context);
            arch::set_sender(to.sender);
            if let Some(load) = to.load {
                arch::load(load);
            }
            Target {
                rip: to.rip,
                rsp: to.rsp,
            }
        }
        None => Target { rip: 0, rsp: 0 },
    }
}

/// A message that takes the general way. Its words are kept in the sender's context, where
/// whoever receives it finds them.
pub extern "C" fn ipc(to: u64, from: u64, tag: u64, timeouts: u64, window: u64, _: u64, words: Words) -> ! {
    let mut system = SYSTEM.enter();
    let System {
        platform, supervisor, ..
    } = &mut *system;
    if let Some(thread) = platform.kernel.current_thread() {
        let context = &mut thread.context;
        (context.rip, context.rsp) = arch::caller();
        [context.r12, context.r13, context.r14, context.r15] = words.0;
        let operation = Operation {
            number: abi::nucleus::Call::Ipc as u64,
            arguments: [to, from, tag, timeouts, window, 0],
        };
        let event = Event::Call {
            thread: thread.id,
            number: operation.number,
            arguments: operation.arguments,
            resumed: Resumed::First,
        };
        let outcome = supervisor.handle(platform, event);
        system.settle(outcome, Some(operation));
        if system.platform.kernel.should_preempt() {
            system.platform.kernel.yield_current();
        }
    }
    drop(system);
    leave()
}

/// A protected call over a remembered way.
pub extern "C" fn portal_call(entry: u64, pd: u64) -> Target {
    let (rip, rsp) = arch::caller();
    let mut system = SYSTEM.enter();
    let kernel = &mut system.platform.kernel;
    cross(kernel.portal_call(entry, pd, rip, rsp))
}

/// The return from one.
pub extern "C" fn portal_return() -> Target {
    let mut system = SYSTEM.enter();
    let kernel = &mut system.platform.kernel;
    cross(kernel.portal_return())
}

#[inline(always)]
fn cross(to: Option<Crossing>) -> Target {
    match to {
        Some(to) => {
            arch::load(to.load);
            Target {
                rip: to.rip,
                rsp: to.rsp,
            }
        }
        None => Target { rip: 0, rsp: 0 },
    }
}

/// An exception or interrupt of user code. `context` is where its registers stand: in the running
/// thread's place in the table, through which alone they are reached here. Gives the registers to go on with.
pub extern "C" fn trap(context: *const Context) -> *const Context {
    let mut system = SYSTEM.enter();
    let thread = &system.platform.kernel.threads.table[system.current() as usize];
    let (thread, vector, error) = (thread.id, thread.context.vector, thread.context.error);
    match vector {
        14 => {
            let access = match error {
                _ if error & 16 != 0 => Access::Execute,
                _ if error & 2 != 0 => Access::Write,
                _ => Access::Read,
            };
            let event = Event::Fault {
                thread,
                address: arch::fault_address(),
                access,
            };
            let System {
                platform, supervisor, ..
            } = &mut *system;
            let outcome = supervisor.handle(platform, event);
            if outcome == Outcome::Resume && platform.kernel.stays() {
                return context;
            }
            system.settle(outcome, None);
        }
        7 => {
            let index = system.current();
            let System { platform, vectors, .. } = &mut *system;
            let thread = &mut platform.kernel.threads.table[index as usize];
            vectors.load(index, thread.vector_live != 0);
            thread.vector_live = 1;
            return context;
        }
        13 if error == 0 && system.ports_wanted() => return context,
        0..32 => {
            let kind = match vector {
                0 | 4 | 16 | 19 => EXCEPTION_ARITHMETIC,
                _ => EXCEPTION_ILLEGAL,
            };
            let System {
                platform, supervisor, ..
            } = &mut *system;
            let outcome = supervisor.handle(
                platform,
                Event::Exception {
                    thread,
                    kind,
                    address: 0,
                },
            );
            system.settle(outcome, None);
        }
        _ => {
            if let Some(interrupt) = arch::accept(vector) {
                system.interrupt(interrupt);
            }
        }
    }
    if system.platform.kernel.should_preempt() {
        system.platform.kernel.yield_current();
    }
    if let Some(next) = system.next() {
        return next;
    }
    drop(system);
    leave()
}

/// An exception or interrupt of the kernel: interrupts while it is idle, nothing else.
pub extern "C" fn trap_in_kernel(context: &Context) {
    assert!(
        context.vector >= 32,
        "exception {} in the kernel at {:#x}, error {:#x}, address {:#x}, stack {:#x}",
        context.vector,
        context.rip,
        context.error,
        arch::fault_address(),
        context.rsp
    );
    let mut system = SYSTEM.enter();
    if let Some(interrupt) = arch::accept(context.vector) {
        system.interrupt(interrupt);
    }
}

/// A double fault or machine check: the frame that the processor pushed (a double fault's begins with its error
/// code, which is zero).
pub extern "C" fn fatal(frame: &[u64; 5]) -> ! {
    log!("panic: double fault or machine check; on its stack: {frame:#x?}");
    arch::exit(abi::host::EXIT_PANIC)
}

/// Goes on with whoever is to run, or waits for an interrupt until somebody is.
pub fn leave() -> ! {
    loop {
        let mut system = SYSTEM.enter();
        if let Some(context) = system.next() {
            drop(system);
            arch::resume(context)
        }
        if system.take_breath() {
            drop(system);
            arch::poll_interrupts();
            continue;
        }
        let busy = system.idle();
        drop(system);
        if busy {
            arch::poll_interrupts();
        } else {
            arch::wait_for_interrupt();
        }
    }
}
