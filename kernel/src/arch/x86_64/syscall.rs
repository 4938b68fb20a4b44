//! The way in by `syscall`, and out by `sysret`.
//!
//! A jump by number leads to the way of a call. Protected calls and returns through a portal-cache entry are done at once
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
use crate::{bare::Bare, inside::Inside, supervisor::Supervisor};

/// The registers that a call returns: error, value. The second value goes through the processor's area.
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

/// Code to which `syscall` leads.
pub type Entry = unsafe extern "C" fn();

/// The target of `syscall` with the server inside the kernel.
pub const ENTRY_INSIDE: Entry = entry_inside;
/// And without a server.
pub const ENTRY_BARE: Entry = entry_bare;

/// Defines an entry that jumps by number.
macro_rules! entry {
    ($name:ident, $ways:ident, $supervisor:ty) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "swapgs",
                "cmp rax, {COUNT}",
                "jae {general}",
                "jmp qword ptr [rax * 8 + {ways}]",
                COUNT = const $ways.len(),
                general = sym general::<$supervisor>,
                ways = sym $ways,
            );
        }
    };
}

entry!(entry_inside, WAYS_INSIDE, Inside);
entry!(entry_bare, WAYS_BARE, Bare);

/// Leads the numbers of calls that are made often each to a copy of the server's code that knows which call it is.
macro_rules! listed {
    ($ways:ident: $($call:ident)+) => { $($ways[Call::$call as usize] = listed::<{ Call::$call as u64 }>;)+ };
}

/// The targets of the first numbers with the server inside the kernel.
static WAYS_INSIDE: [Entry; Call::AddressWake as usize + 1] = {
    let mut ways: [Entry; Call::AddressWake as usize + 1] = [general::<Inside>; _];
    ways[Call::ThreadMyId as usize] = identity::<Inside>;
    ways[Call::PdxCall as usize] = portal::inside::call;
    ways[Call::PdxReturn as usize] = portal::inside::ret;
    ways[Call::DomainCall as usize] = domain::inside::call;
    ways[Call::ThreadSleep as usize] = sleep::<Inside>;
    listed!(ways: ObjCreate ObjDelete ApdLookup ThreadCreate ThreadWait ThreadDelete SemWait SemSignal);
    ways
};

/// The targets of the first numbers without a server.
static WAYS_BARE: [Entry; nucleus::Call::Flush as usize + 1] = {
    let mut ways: [Entry; nucleus::Call::Flush as usize + 1] = [general::<Bare>; _];
    ways[Call::DomainCall as usize] = domain::bare::call;
    ways[nucleus::Call::Yield as usize] = sleep::<Bare>;
    ways[nucleus::Call::Ipc as usize] = message::ipc;
    ways[nucleus::Call::Map as usize] = map;
    ways[nucleus::Call::Flush as usize] = flush;
    ways
};

/// Defines a way through a function of `crate::event`: six arguments as C wants them, the number as the seventh.
macro_rules! way {
    ($(#[$meta:meta])* $name:ident $(<$($generics:ident)+ : $bound:ident>)?, $function:path) => {
        $(#[$meta])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name $(<$($generics)+ : $bound>)? () {
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
    general<S: Supervisor>,
    crate::event::general_call::<S>
);
way!(
    /// The way of a call whose number the server inside need not look up.
    listed<const NUMBER: u64>,
    crate::inside::listed_call::<NUMBER>
);
way!(
    /// The null call's.
    identity<S: Supervisor>,
    crate::event::identity_call::<S>
);
way!(
    /// The way of a call of a kernel domain that is not remembered.
    domain_call<S: Supervisor>,
    crate::domains::call::<S>
);
way!(
    /// The way of `Map`.
    map,
    crate::bare::map_call
);
way!(
    /// The way of `Flush`.
    flush,
    crate::bare::flush_call
);
way!(
    /// The way of `ThreadSleep`, which may be a yield, and of `Yield`, which is one.
    sleep<S: Supervisor>,
    crate::event::sleep_call::<S>
);
