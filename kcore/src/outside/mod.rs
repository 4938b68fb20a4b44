//! A server outside the kernel: the two ends of the machine calls (`abi::machine`, decision 0038).
//!
//! [`Remote`] is [`crate::Machine`] for the server: each operation is a machine call. [`crate::Kernel::machine_call`] is
//! the other end. Data that does not fit into registers stands on the exchange page, as words; its form stands here once.
//!
//! The kernel believes nothing that would make it panic or walk into memory that it does not hand out. A number of
//! a frame, space or thread that does not exist is an error. A server that is *wrong* about frames that do exist can
//! still ruin user memory and page tables, as the one inside can; see the decision.

mod answer;
mod remote;
pub mod window;

use abi::layout::CALL_DEPTH_MAX;

pub use answer::Place;
pub use remote::{Gate, Remote};

use crate::{
    SpaceId,
    event::Event,
    thread::{Context, Operation, PortalFrame, Resumed, USER_CODE, USER_DATA, USER_FLAGS},
};

/// Words of a [`PortalFrame`].
pub const FRAME_WORDS: usize = 4;
/// Words of an [`Operation`].
pub const OPERATION_WORDS: usize = 7;
/// Flags that are the user's own: those of arithmetic, TF, DF, NT, RF, AC, ID.
const FLAGS_KEPT: u64 = 0x25_4dd5;

/// The same with nothing in it that user code could not have: selectors, flags and addresses.
fn checked_context(words: [u64; Context::WORDS]) -> Option<Context> {
    let mut context = Context::from_words(words);
    context.cs = USER_CODE;
    context.ss = USER_DATA;
    context.rflags = context.rflags & FLAGS_KEPT | USER_FLAGS;
    abi::kernel_page::is_user_instruction(context.rip).then_some(context)
}

fn frame_to_words(frame: &PortalFrame) -> [u64; FRAME_WORDS] {
    [frame.rip, frame.rsp, frame.stack, u64::from(frame.space.0)]
}

fn frame_from_words([rip, rsp, stack, space]: [u64; FRAME_WORDS]) -> PortalFrame {
    PortalFrame {
        rip,
        rsp,
        stack,
        space: SpaceId(space as u32),
    }
}

/// The words of a call that is to be done again.
pub fn operation_to_words(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> [u64; OPERATION_WORDS] {
    [number, a, b, c, d, e, f]
}

/// The call to be done again.
pub fn operation_from_words([number, arguments @ ..]: [u64; OPERATION_WORDS]) -> Operation {
    Operation { number, arguments }
}

/// How a call comes, as an upcall.
pub const fn upcall_of(resumed: Resumed) -> abi::machine::Upcall {
    match resumed {
        Resumed::First => abi::machine::Upcall::Call,
        Resumed::Woken => abi::machine::Upcall::CallWoken,
        Resumed::TimedOut => abi::machine::Upcall::CallTimedOut,
    }
}

/// The other way round; `None` if the upcall is no call.
pub const fn resumed_of(upcall: u64) -> Option<Resumed> {
    match upcall {
        0 => Some(Resumed::First),
        1 => Some(Resumed::Woken),
        2 => Some(Resumed::TimedOut),
        _ => None,
    }
}

/// Registers with which the server is entered for an event.
pub fn enter_registers(context: &mut Context, event: &Event) {
    use abi::machine::Upcall;
    let mut set = |upcall: Upcall, thread: u64, first: u64, second: u64| {
        context.rbx = upcall as u64;
        context.rdi = thread;
        context.rsi = first;
        context.rdx = second;
    };
    match *event {
        Event::Call {
            thread,
            number,
            arguments: [a, b, c, d, e, f],
            resumed,
        } => {
            set(upcall_of(resumed), thread.0, number, a);
            (context.r10, context.r8, context.r9, context.r12, context.r13) = (b, c, d, e, f);
        }
        Event::Fault {
            thread,
            address,
            access,
        } => set(Upcall::Fault, thread.0, address, u64::from(access.right().bits())),
        Event::Exception { thread, kind, address } => set(Upcall::Exception, thread.0, kind, address),
        Event::Interrupt => set(Upcall::Interrupt, 0, 0, 0),
        Event::Poll => set(Upcall::Poll, 0, 0, 0),
    }
}

const _: () = assert!(CALL_DEPTH_MAX < 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Key;

    #[test]
    fn contexts_keys_and_frames_come_back() {
        let words: [u64; Context::WORDS] = core::array::from_fn(|index| index as u64 + 1);
        assert_eq!(Context::from_words(words).to_words(), words);
        for kind in 0..12 {
            let key = Key::of_words(kind, 7).expect("a key");
            let (back, value) = key.to_words();
            assert_eq!((back, Key::of_words(back, value)), (kind, Some(key)));
        }
        assert_eq!(Key::of_words(12, 0), None);
        assert_eq!(frame_to_words(&frame_from_words([1, 2, 3, 4])), [1, 2, 3, 4]);
    }

    #[test]
    fn a_context_from_outside_holds_nothing_privileged() {
        let mut words = [u64::MAX; Context::WORDS];
        assert_eq!(
            checked_context(words),
            None,
            "the instruction lies outside of user memory"
        );
        words[17] = 0x1000;
        let context = checked_context(words).expect("a context");
        assert_eq!((context.cs, context.ss), (USER_CODE, USER_DATA));
        assert_eq!(context.rflags & (3 << 12), 0, "no access to ports");
        assert_eq!(context.rflags & USER_FLAGS, USER_FLAGS);
    }
}
