//! The fast paths: a system call goes to the server at once, and its answer to the thread.

use super::{SYSTEM, Work};
use crate::{
    arch::{self, Delivery, Target},
    system::System,
};

/// A system call of the current thread: makes the processor the server's, unless the call must take the slow path.
/// Counted in instructions (`null-call-user-server`).
pub extern "C" fn deliver(number: u64) -> Delivery {
    Delivery {
        thread: deliver_at_once(number).unwrap_or(0),
        number,
    }
}

#[inline(always)]
fn deliver_at_once(number: u64) -> Option<u64> {
    let mut system = SYSTEM.enter_at_once()?;
    let System {
        platform,
        supervisor: outside,
        ..
    } = &mut *system;
    if outside.works() {
        return None;
    }
    outside.on = platform.kernel.here();
    let thread = platform.kernel.called_from(arch::caller())?;
    outside.work = Work::Call(number);
    outside.caller = thread.space;
    let id = thread.id.0;
    arch::set_thread(&outside.context);
    platform.kernel.load(outside.place.space, outside.load);
    Some(id)
}

/// The server's answer to such a call: where the thread goes on, with the processor its own again, if nothing else is
/// to be done first.
pub extern "C" fn answer() -> Target {
    let nowhere = Target { rip: 0, rsp: 0 };
    let Some(mut system) = SYSTEM.enter_at_once() else {
        return nowhere;
    };
    let System {
        platform,
        supervisor: outside,
        ..
    } = &mut *system;
    let kernel = &mut platform.kernel;
    let at_once = matches!(outside.work, Work::Call(_)) && !outside.attention && outside.on == kernel.here();
    if !at_once || !kernel.stays_in(outside.caller) {
        return nowhere;
    }
    let Some(thread) = kernel.current_thread() else {
        return nowhere;
    };
    let space = thread.space;
    outside.work = Work::Idle;
    let target = Target {
        rip: thread.context.rip,
        rsp: thread.context.rsp,
    };
    arch::set_thread(&thread.context);
    let load = kernel.spaces().get(space).load();
    kernel.load(space, load);
    target
}
