//! Calls of kernel domains on the fast path (decision 0039).
//!
//! The cache entry is found as that of a protected call; then the function runs on this processor's kernel stack, without
//! the kernel lock, in the caller's space and with interrupts off. Nothing is changed before that is certain; without an
//! entry the slow path looks up who may be called.

use core::arch::naked_asm;

use abi::Call;
use kcore::{
    portal::{Portals, Way},
    smp::protocol::TAKEN,
    space::Space,
};

use super::{
    portal::{At, SET_SHIFT, SPACE},
    processor::{KERNEL_STACK, MARK, THREAD_END, USER_RIP, USER_RSP},
    syscall,
};

const _: () = assert!(TAKEN == 1);

/// Defines the way of a supervisor's system.
macro_rules! way {
    ($supervisor:ty, $system:path) => {
        /// A call: entry in rdi, parameters in rsi, rdx, r10, r8; from the `syscall` entry.
        #[unsafe(naked)]
        pub unsafe extern "C" fn call() {
            naked_asm!(
                // The turn, if it is free and this processor had it last.
                "mov eax, gs:[{MARK}]",
                "lea r15d, [rax + 1]",
                "lock cmpxchg dword ptr [rip + {system} + {TURN}], r15d",
                "jne 8f",
                "mov r15, gs:[{THREAD_END}]",
                "mov ebx, [r15 + {SPACE}]",
                // The set: the high bits of a product, as in `Portals`. Then the caller's epoch.
                "lea r14d, [rdi + rbx]",
                "imul r14d, r14d, {HASH}",
                "shr r14d, {HASH_SHIFT}",
                "shl r14d, {SET_SHIFT}",
                "add r14, [rip + {system} + {WAYS}]",
                "imul rbx, rbx, {SPACE_BYTES}",
                "add rbx, [rip + {system} + {SPACES}]",
                "mov rbx, [rbx + {CALLER_EPOCH}]",
                "or rbx, {DOMAIN}",
                "3:",
                "cmp [r14 + {WAY_ENTRY}], rdi",
                "jne 4f",
                "cmp [r14 + {WAY_TAG}], rbx",
                "jne 4f",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "mov gs:[{USER_RSP}], rsp",
                "mov gs:[{USER_RIP}], rcx",
                "mov rsp, gs:[{KERNEL_STACK}]",
                "mov rax, rdi",
                "mov rdi, rsi",
                "mov rsi, rdx",
                "mov rdx, r10",
                "mov rcx, r8",
                "call rax",
                "mov rcx, gs:[{USER_RIP}]",
                "mov rsp, gs:[{USER_RSP}]",
                "mov rsi, rdx",
                "mov rdx, rax",
                clear!("eax" "ebx" "ebp" "edi" "r8d" "r9d" "r10d" "r12d" "r13d" "r14d" "r15d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                // The next entry of the set.
                "4:",
                "add r14, {WAY_BYTES}",
                "test r14d, {SET_MASK}",
                "jnz 3b",
                "9:",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "8:",
                // Nothing of the kernel's may be left in registers that the slow path keeps.
                clear!("ebx" "r14d" "r15d"),
                "mov eax, {DOMAIN_CALL}",
                "jmp {general}",
                system = sym $system,
                MARK = const MARK,
                TURN = const At::<$supervisor>::TURN,
                THREAD_END = const THREAD_END,
                SPACE = const SPACE,
                HASH = const Portals::HASH.cast_signed(),
                HASH_SHIFT = const Portals::HASH_SHIFT,
                SET_SHIFT = const SET_SHIFT,
                SET_MASK = const Portals::SET_BYTES - 1,
                WAY_BYTES = const size_of::<Way>(),
                WAYS = const At::<$supervisor>::WAYS,
                SPACE_BYTES = const size_of::<Space>(),
                SPACES = const At::<$supervisor>::SPACES,
                CALLER_EPOCH = const Space::CALLER_EPOCH,
                WAY_ENTRY = const Way::ENTRY,
                WAY_TAG = const Way::TAG,
                DOMAIN = const Portals::DOMAIN,
                USER_RSP = const USER_RSP,
                USER_RIP = const USER_RIP,
                KERNEL_STACK = const KERNEL_STACK,
                FLAGS = const kcore::thread::USER_FLAGS,
                DOMAIN_CALL = const Call::DomainCall as u64,
                general = sym syscall::domain_call::<$supervisor>,
            );
        }
    };
}

/// With the server inside the kernel.
pub mod inside {
    #[allow(clippy::wildcard_imports, reason = "the macro uses what the file imports")]
    use super::*;
    way!(crate::inside::Inside, crate::inside::SYSTEM);
}

/// With the server outside of it.
pub mod outside {
    #[allow(clippy::wildcard_imports, reason = "the macro uses what the file imports")]
    use super::*;
    way!(crate::outside::Outside, crate::outside::SYSTEM);
}

/// Without a server.
pub mod bare {
    #[allow(clippy::wildcard_imports, reason = "the macro uses what the file imports")]
    use super::*;
    way!(crate::bare::Bare, crate::bare::SYSTEM);
}
