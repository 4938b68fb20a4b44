//! The parts that each processor architecture provides, name by name:
//!
//! * `entry`: where the kernel enters the server with an event in registers (`abi::machine::Upcall`); it gives them to
//!   [`upcall`].
//! * `answer(call, words) -> !`: the answer to the event.
//!
//! The rest is the same everywhere.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
use x86_64::{answer, entry};

use abi::{
    machine::{MachineCall, Upcall},
    nucleus::ROOT_STACK_TOP,
};

use crate::mem::state;

/// An event as it came.
#[derive(Copy, Clone, Debug)]
pub struct Registers {
    /// Which kind of upcall.
    pub kind: u64,
    /// The thread, or zero.
    pub thread: u64,
    /// The first word that the kind has.
    pub first: u64,
    /// Further words.
    pub arguments: [u64; 6],
}

/// Tells the kernel that the server is up, and waits for events.
pub fn ready(clean: bool) -> ! {
    answer(
        MachineCall::Ready,
        [entry as *const () as u64, ROOT_STACK_TOP, u64::from(clean)],
    )
}

/// An event: called by `entry` on the fresh stack.
#[allow(clippy::too_many_arguments, reason = "words in registers, as they come")]
extern "C" fn upcall(thread: u64, first: u64, a0: u64, a1: u64, a2: u64, a3: u64, kind: u64, a4: u64, a5: u64) -> ! {
    // SAFETY: the kernel brings one event at a time, each to a fresh stack, so no other reference to the state lives; and
    // it brings none before `ready`, when the state is there.
    let state = unsafe { state::get() };
    if kind == Upcall::Call as u64
        && let Some(value) = crate::immediate(state, thread, first)
    {
        answer(MachineCall::AnswerReturn, [0, value, 0]);
    }
    let registers = Registers {
        kind,
        thread,
        first,
        arguments: [a0, a1, a2, a3, a4, a5],
    };
    let (call, words) = crate::handle(state, &registers);
    answer(call, words)
}
