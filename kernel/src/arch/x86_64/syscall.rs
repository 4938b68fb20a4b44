//! The way in by `syscall`, and out by `sysret`.
//!
//! A jump by number leads to the way of a call. Protected calls and returns through a portal-cache entry are done at once
//! ([`portal`]), most others are `crate::event::general_call`. Only rip and rsp of the
//! caller are kept: by the register rule (`docs/decisions/0002`) the stub has saved what it needs.
//!
//! `sysret` with a non-canonical address faults in the kernel with the user's stack. It cannot
//! happen: rcx comes from a `syscall` instruction in user memory, which ends below the empty top slot, or from
//! an entry point that the server checked. R11 is built from a constant.

use core::{arch::naked_asm, mem::offset_of};

use abi::{Call, Error, nucleus};
use kcore::{
    SpaceId, ThreadId,
    thread::{Context, Thread},
};

use super::{
    domain, message,
    portal::{self, At, SPACE, before_end},
    processor::{KERNEL_STACK, MARK, THREAD_END, USER_RIP, USER_RSP, VALUE2, set_value2},
};
use crate::{bare::Bare, inside::Inside, outside::Outside, supervisor::Supervisor};

/// The registers that a call returns: error, value. The second value goes through the processor's area, so they are made
/// here alone.
#[repr(C)]
pub struct Results {
    error: u64,
    value: u64,
}

impl Results {
    /// The results of a call that succeeds.
    #[inline(always)]
    pub fn values(value: u64, value2: u64) -> Self {
        set_value2(value2);
        Self { error: 0, value }
    }

    /// The results of a call.
    #[inline(always)]
    pub fn of(result: Result<(u64, u64), Error>) -> Self {
        match result {
            Ok((value, value2)) => Self::values(value, value2),
            Err(error) => Self {
                error: error as u64,
                ..Self::values(0, 0)
            },
        }
    }
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
    ($name:ident, $ways:ident, $general:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "swapgs",
                "cmp rax, {COUNT}",
                "jae {general}",
                "jmp qword ptr [rax * 8 + {ways}]",
                COUNT = const $ways.len(),
                general = sym $general,
                ways = sym $ways,
            );
        }
    };
}

entry!(entry_inside, WAYS_INSIDE, unknown);
entry!(entry_bare, WAYS_BARE, general_bare);

/// The function that answers a call behind [`general_inside`]. Each number has one of its own: a copy of the server's code that knows the number.
type Answer = unsafe extern "C" fn(arguments: &Arguments, thread: ThreadId, space: SpaceId) -> Results;

/// The answer to a number: to one that is no call's, always the same.
macro_rules! known {
    ($number:expr) => {
        if Call::from_number($number).is_some() {
            answer::<{ $number }>
        } else {
            answer::<UNKNOWN>
        }
    };
}

/// Lists the answers to ten numbers in a row, by their tens.
macro_rules! answers {
    ($($tens:literal)*) => {
        [$(
            known!($tens * 10),
            known!($tens * 10 + 1),
            known!($tens * 10 + 2),
            known!($tens * 10 + 3),
            known!($tens * 10 + 4),
            known!($tens * 10 + 5),
            known!($tens * 10 + 6),
            known!($tens * 10 + 7),
            known!($tens * 10 + 8),
            known!($tens * 10 + 9),
        )*]
    };
}

/// The answers to all numbers below 80.
static ANSWERS: [Answer; UNKNOWN as usize + 1] = answers!(0 1 2 3 4 5 6 7);
/// A number that is no call's. Those above it are taken for it.
const UNKNOWN: u64 = 79;
const _: () = assert!(abi::call::TABLE[abi::call::TABLE.len() - 1].number < UNKNOWN);

/// The targets of the first numbers with the server inside the kernel.
static WAYS_INSIDE: [Entry; UNKNOWN as usize] = {
    let mut ways: [Entry; UNKNOWN as usize] = [general_inside; _];
    ways[Call::ThreadMyId as usize] = identity::<Inside>;
    ways[Call::PdxCall as usize] = portal::inside::call;
    ways[Call::PdxReturn as usize] = portal::inside::ret;
    ways[Call::DomainCall as usize] = domain::inside::call;
    ways[Call::ThreadSleep as usize] = sleep::<Inside>;
    ways
};

/// A number that no call has.
#[unsafe(naked)]
unsafe extern "C" fn unknown() {
    naked_asm!("mov eax, {UNKNOWN}", "jmp {general}", UNKNOWN = const UNKNOWN, general = sym general_inside);
}

/// The targets of the first numbers without a server.
static WAYS_BARE: [Entry; nucleus::Call::Flush as usize + 1] = {
    let mut ways: [Entry; nucleus::Call::Flush as usize + 1] = [general_bare; _];
    ways[Call::DomainCall as usize] = domain::bare::call;
    ways[nucleus::Call::Yield as usize] = sleep::<Bare>;
    ways[nucleus::Call::Ipc as usize] = message::ipc;
    ways[nucleus::Call::Map as usize] = map;
    ways[nucleus::Call::Flush as usize] = flush;
    ways
};

/// The arguments of a call, on the kernel stack.
pub type Arguments = [u64; 6];

/// Defines the way of every call that has no other. The address at which the caller goes on is noted in its context and stays there, because
/// everything that continues the caller later takes it from there. Then the turn is taken, with a wait if it must be, and `$call` answers.
macro_rules! general {
    ($(#[$meta:meta])* $name:ident, $supervisor:ty, $system:path, [$($call:literal)*], $($operand:ident = $kind:ident $value:expr),*) => {
        $(#[$meta])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "mov rbx, gs:[{THREAD_END}]",
                "mov [rbx + {RIP}], rcx",
                "mov [rbx + {RSP}], rsp",
                "mov rsp, gs:[{KERNEL_STACK}]",
                "push r9",
                "push r8",
                "push r10",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rbp, rax",
                "mov eax, gs:[{MARK}]",
                "lea ecx, [rax + 1]",
                "lock cmpxchg dword ptr [rip + {system} + {TURN}], ecx",
                "jne 8f",
                "7:",
                "mov rdi, rsp",
                $($call,)*
                "mov rsi, gs:[{VALUE2}]",
                "mov rcx, [rbx + {RIP}]",
                "mov rsp, [rbx + {RSP}]",
                clear!("ebx" "ebp" "edi" "r8d" "r9d" "r10d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                "8:",
                "mov rcx, [rbx + {RIP}]",
                "mov gs:[{USER_RIP}], rcx",
                "mov rcx, [rbx + {RSP}]",
                "mov gs:[{USER_RSP}], rcx",
                "mov rdi, rsp",
                "mov rsi, rbp",
                "call {wait}",
                "jmp 7b",
                THREAD_END = const THREAD_END,
                RIP = const before_end(offset_of!(Thread, context) + offset_of!(Context, rip)),
                RSP = const before_end(offset_of!(Thread, context) + offset_of!(Context, rsp)),
                KERNEL_STACK = const KERNEL_STACK,
                MARK = const MARK,
                TURN = const At::<$supervisor>::TURN,
                VALUE2 = const VALUE2,
                USER_RIP = const USER_RIP,
                USER_RSP = const USER_RSP,
                FLAGS = const kcore::thread::USER_FLAGS,
                system = sym $system,
                wait = sym wait::<$supervisor>,
                $($operand = $kind $value,)*
            );
        }
    };
}

general!(
    /// With the server inside the kernel: who calls, and where, is not looked up any more.
    general_inside,
    Inside,
    crate::inside::SYSTEM,
    ["mov rsi, [rbx + {ID}]" "mov edx, [rbx + {SPACE}]" "call qword ptr [rbp * 8 + {answers}]"],
    ID = const before_end(offset_of!(Thread, id)), SPACE = const SPACE, answers = sym ANSWERS
);
general!(
    /// With the server outside of it. The server makes its own calls this way, too.
    general_outside,
    Outside,
    crate::outside::SYSTEM,
    ["mov rsi, rbp" "call {answer}"],
    answer = sym answer_any::<Outside>
);
general!(
    /// Without a server.
    general_bare,
    Bare,
    crate::bare::SYSTEM,
    ["mov rsi, rbp" "call {answer}"],
    answer = sym answer_any::<Bare>
);

/// A call that has to wait for its turn: returns with the lock entered, or never.
extern "C" fn wait<S: Supervisor>(arguments: &Arguments, number: u64) {
    core::mem::forget(crate::event::wait_for_turn::<S>(arguments, number));
}

/// Answers a call whose number the compiler knows.
///
/// # Safety
/// 1. The lock is entered, and nobody has a guard.
unsafe extern "C" fn answer<const NUMBER: u64>(arguments: &Arguments, thread: ThreadId, space: SpaceId) -> Results {
    // SAFETY: (1) is the caller's.
    let system = unsafe { Inside::system().entered() };
    crate::inside::answer::<NUMBER>(system, arguments, thread, space)
}

/// Answers any call.
///
/// # Safety
/// 1. The lock is entered, and nobody has a guard.
unsafe extern "C" fn answer_any<S: Supervisor>(arguments: &Arguments, number: u64) -> Results {
    // SAFETY: (1) is the caller's.
    let system = unsafe { S::system().entered() };
    S::call(system, arguments, number)
}

/// Defines a fast way through a function of `crate::event`: six arguments as C wants them, the number as the seventh.
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
