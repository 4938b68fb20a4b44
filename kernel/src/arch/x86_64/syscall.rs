//! The way in by `syscall`, and out by `sysret`.
//!
//! A jump by number leads to the way of a call. Protected calls and returns over a remembered way are done at once
//! ([`portal`]), most others are `crate::event::general_call`. Only rip and rsp of the
//! caller are kept: by the register rule (`docs/decisions/0002`) the stub has saved what it needs.
//!
//! `sysret` with a non-canonical address faults in the kernel with the user's stack. It cannot
//! happen: rcx comes from a `syscall` instruction in user memory, which ends below the empty top slot, or from
//! an entry point that the server checked. R11 is built from a constant.

use core::arch::naked_asm;

use abi::{Call, nucleus};

use super::{
    domain, message, portal,
    processor::{KERNEL_STACK, USER_RIP, USER_RSP, VALUE2},
};

/// What a call returns in registers: error, value. The second value goes through the processor's area.
#[repr(C)]
pub struct Results {
    /// Error, or zero.
    pub error: u64,
    /// Value.
    pub value: u64,
}

/// The words of a message that are in registers, as the entry code leaves them on the kernel stack.
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Words(pub [u64; nucleus::REGISTER_WORDS]);

/// The stub on the kernel page: `syscall`, `ret`.
pub const SYSTEM_CALL_STUB: [u8; 3] = [0x0f, 0x05, 0xc3];

/// Where `syscall` leads.
#[unsafe(naked)]
pub unsafe extern "C" fn entry() {
    naked_asm!(
        "swapgs",
        "cmp rax, {COUNT}",
        "jae {general}",
        "jmp qword ptr [rax * 8 + {ways}]",
        COUNT = const WAYS.len(),
        general = sym general,
        ways = sym WAYS,
    );
}

/// Numbers that the table of ways holds.
const NUMBERS: usize = nucleus::Call::Flush as usize + 1;

/// Where the first numbers lead.
static WAYS: [unsafe extern "C" fn(); NUMBERS] = {
    let mut ways: [unsafe extern "C" fn(); NUMBERS] = [general; _];
    ways[Call::ThreadMyId as usize] = identity;
    ways[Call::PdxCall as usize] = portal::call;
    ways[Call::PdxReturn as usize] = portal::ret;
    ways[Call::DomainCall as usize] = domain::call;
    ways[Call::ThreadSleep as usize] = sleep;
    ways[Call::ThreadCreate as usize] = thread_create;
    ways[Call::ThreadWait as usize] = thread_wait;
    ways[Call::ThreadDelete as usize] = thread_delete;
    ways[nucleus::Call::Yield as usize] = sleep;
    ways[nucleus::Call::Ipc as usize] = message::ipc;
    ways[nucleus::Call::Map as usize] = map;
    ways[nucleus::Call::Flush as usize] = flush;
    ways
};

/// Defines a way through a function of `crate::event`: six arguments as C wants them, the number as the seventh.
macro_rules! way {
    ($(#[$meta:meta])* $name:ident, $function:path) => {
        $(#[$meta])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "mov gs:[{USER_RSP}], rsp",
                "mov rsp, gs:[{KERNEL_STACK}]",
                "mov gs:[{USER_RIP}], rcx",
                "mov rcx, r10",
                "push rax",
                "push rax",
                "call {function}",
                "mov rsi, gs:[{VALUE2}]",
                "mov rcx, gs:[{USER_RIP}]",
                "mov rsp, gs:[{USER_RSP}]",
                "mov qword ptr gs:[{VALUE2}], 0",
                clear!("edi" "r8d" "r9d" "r10d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                USER_RSP = const USER_RSP,
                KERNEL_STACK = const KERNEL_STACK,
                USER_RIP = const USER_RIP,
                VALUE2 = const VALUE2,
                FLAGS = const kcore::thread::USER_FLAGS,
                function = sym $function,
            );
        }
    };
}

way!(
    /// The way of every call that has no other.
    general,
    crate::event::general_call
);
way!(
    /// The way of `ThreadCreate`.
    thread_create,
    crate::event::listed_call::<{ Call::ThreadCreate as u64 }>
);
way!(
    /// The way of `ThreadWait`.
    thread_wait,
    crate::event::listed_call::<{ Call::ThreadWait as u64 }>
);
way!(
    /// The way of `ThreadDelete`.
    thread_delete,
    crate::event::listed_call::<{ Call::ThreadDelete as u64 }>
);
way!(
    /// The null call's.
    identity,
    crate::event::identity_call
);
way!(
    /// The way of a call of a kernel domain that is not remembered.
    domain_call,
    crate::domains::call
);
way!(
    /// The way of `Map`.
    map,
    crate::event::map_call
);
way!(
    /// The way of `Flush`.
    flush,
    crate::event::flush_call
);
way!(
    /// The way of `ThreadSleep`, which may be a yield, and of `Yield`, which is one.
    sleep,
    crate::event::sleep_call
);
