//! Protected calls and returns through a portal-cache entry, in assembly.
//!
//! They do [`kcore::Kernel::portal_call`] and [`kcore::Kernel::portal_return`], which are their
//! oracle: host tests hold the server's way and that one against each other, and the in-system suite
//! these. They run on the user's stack pointer without touching the stack, change nothing before they are
//! certain to finish, and otherwise go to the slow path with all registers as they were. By the
//! register rule the caller has saved rbx, rbp and r12 to r15.

use core::{arch::naked_asm, mem::offset_of};

use abi::Call;
use kcore::{
    Kernel,
    portal::{Portals, Way},
    smp::protocol::TAKEN,
    space::{STACKS_OPEN, Space},
    thread::{Context, PortalFrame, Thread},
};

use super::{
    processor::{LOADED_SPACE, MARK, THREAD_END},
    syscall,
    vector::{ALL_PARTS, INITIAL},
};
use crate::{
    mem::lock::Lock,
    pc::Pc,
    supervisor::Supervisor,
    system::{Platform, System},
};

/// Offsets in a system behind its lock.
pub(super) struct At<S>(S);

impl<S: Supervisor> At<S> {
    pub(super) const TURN: usize = Lock::<System<S>>::TURN;
    pub(super) const KERNEL: usize =
        Lock::<System<S>>::VALUE + offset_of!(System<S>, platform) + offset_of!(Platform<S::Half>, kernel);
    pub(super) const WAYS: usize = Self::KERNEL + Kernel::<Pc, S::Half>::WAYS;
    pub(super) const SPACES: usize = Self::KERNEL + Kernel::<Pc, S::Half>::SPACES;
}

/// How far before the end of its context a field of the running thread lies.
pub(super) const fn before_end(field: usize) -> isize {
    field.cast_signed() - (offset_of!(Thread, context) + size_of::<Context>()).cast_signed()
}

pub(super) const SPACE: isize = before_end(offset_of!(Thread, space));
const DEPTH: isize = before_end(offset_of!(Thread, depth));
pub(super) const VECTORS: isize = before_end(offset_of!(Thread, vectors));
const SLOW: isize = before_end(offset_of!(Thread, slow));
const FRAMES: isize = before_end(offset_of!(Thread, frames));

const _: () = assert!(TAKEN == 1);

const FRAME_SHIFT: u32 = size_of::<PortalFrame>().trailing_zeros();
pub(super) const SET_SHIFT: u32 = Portals::SET_BYTES.trailing_zeros();
const _: () = assert!(size_of::<PortalFrame>().is_power_of_two() && Portals::SET_BYTES.is_power_of_two());

/// Defines the ways of a supervisor's system, which assembly reaches at a fixed place.
macro_rules! ways {
    ($supervisor:ty, $system:path, $general:path) => {
        /// A protected call: entry in rdi, kind in rdx, parameters in rsi, r10, r8, r9; from the `syscall` entry.
        #[allow(clippy::too_many_lines, reason = "one stretch of assembly")]
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
                "imul rbp, rbx, {SPACE_BYTES}",
                "add rbp, [rip + {system} + {SPACES}]",
                "mov rbp, [rbp + {CALLER_EPOCH}]",
                "3:",
                "cmp [r14 + {WAY_ENTRY}], rdi",
                "jne 4f",
                "cmp [r14 + {WAY_TAG}], rbp",
                "jne 4f",
                "cmp [r14 + {WAY_PD}], rdx",
                "jne 4f",
                "mov ebp, [r14 + {WAY_CALLEE}]",
                "mov eax, [r14 + {WAY_EPOCH}]",
                "mov r12d, [r15 + {DEPTH}]",
                "cmp r12d, {DEPTH_MAX}",
                "jae 9f",
                "imul r14, rbp, {SPACE_BYTES}",
                "add r14, [rip + {system} + {SPACES}]",
                "cmp [r14 + {CALLEE_EPOCH}], eax",
                "jne 9f",
                "mov r13d, [r14 + {OPEN}]",
                "sub r13d, 1",
                "jl 9f",
                // Vector registers, or a reason to be slow.
                "cmp qword ptr [r15 + {VECTORS}], 0",
                "jne 5f",
                // From here on it is certain.
                "6:",
                "mov [r14 + {OPEN}], r13d",
                "mov r11, [r14 + {STACKS} + r13 * 8]",
                "shl r12d, {FRAME_SHIFT}",
                "mov [r15 + r12 + {FRAMES} + {FRAME_RIP}], rcx",
                "mov [r15 + r12 + {FRAMES} + {FRAME_RSP}], rsp",
                "mov [r15 + r12 + {FRAMES} + {FRAME_STACK}], r11",
                "mov [r15 + r12 + {FRAMES} + {FRAME_SPACE}], ebx",
                "inc dword ptr [r15 + {DEPTH}]",
                "mov [r15 + {SPACE}], ebp",
                "mov gs:[{LOADED_SPACE}], ebp",
                "mov rax, [r14 + {LOAD}]",
                "mov cr3, rax",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "mov rcx, rdi",
                "mov rsp, r11",
                "mov rdi, rsi",
                "mov rsi, r10",
                "mov rdx, r8",
                "mov r10, r9",
                clear!("eax" "ebx" "ebp" "r8d" "r9d" "r12d" "r13d" "r14d" "r15d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                "5:",
                "cmp dword ptr [r15 + {SLOW}], 0",
                "jne 9f",
                "mov eax, {ALL_PARTS}",
                "xrstor64 [rip + {initial}]",
                "jmp 6b",
                // The next entry of the set.
                "4:",
                "add r14, {WAY_BYTES}",
                "test r14d, {SET_MASK}",
                "jnz 3b",
                "9:",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "8:",
                // Nothing of the kernel's may be left in registers that the slow path keeps.
                clear!("ebx" "ebp" "r12d" "r13d" "r14d" "r15d"),
                "mov eax, {PDX_CALL}",
                "jmp {general}",
                system = sym $system,
                MARK = const MARK,
                TURN = const At::<$supervisor>::TURN,
                THREAD_END = const THREAD_END,
                VECTORS = const VECTORS,
                SLOW = const SLOW,
                ALL_PARTS = const ALL_PARTS,
                initial = sym INITIAL,
                SPACE = const SPACE,
                HASH = const Portals::HASH.cast_signed(),
                HASH_SHIFT = const Portals::HASH_SHIFT,
                SET_SHIFT = const SET_SHIFT,
                SET_MASK = const Portals::SET_BYTES - 1,
                WAY_BYTES = const size_of::<Way>(),
                WAYS = const At::<$supervisor>::WAYS,
                CALLER_EPOCH = const Space::CALLER_EPOCH,
                CALLEE_EPOCH = const Space::CALLEE_EPOCH,
                WAY_EPOCH = const Way::EPOCH,
                WAY_ENTRY = const Way::ENTRY,
                WAY_TAG = const Way::TAG,
                WAY_PD = const Way::PD,
                WAY_CALLEE = const Way::CALLEE,
                DEPTH = const DEPTH,
                DEPTH_MAX = const abi::layout::CALL_DEPTH_MAX,
                SPACE_BYTES = const size_of::<Space>(),
                SPACES = const At::<$supervisor>::SPACES,
                OPEN = const Space::OPEN,
                STACKS = const Space::STACKS,
                FRAME_SHIFT = const FRAME_SHIFT,
                FRAMES = const FRAMES,
                FRAME_RIP = const offset_of!(PortalFrame, rip),
                FRAME_RSP = const offset_of!(PortalFrame, rsp),
                FRAME_STACK = const offset_of!(PortalFrame, stack),
                FRAME_SPACE = const offset_of!(PortalFrame, space),
                LOADED_SPACE = const LOADED_SPACE,
                LOAD = const Space::LOAD,
                FLAGS = const kcore::thread::USER_FLAGS,
                PDX_CALL = const Call::PdxCall as u64,
                general = sym $general,
            );
        }

        /// The return from a protected call: results in rdi and rsi; from the `syscall` entry.
        #[unsafe(naked)]
        pub unsafe extern "C" fn ret() {
            naked_asm!(
                // The turn, if it is free and this processor had it last.
                "mov eax, gs:[{MARK}]",
                "lea r15d, [rax + 1]",
                "lock cmpxchg dword ptr [rip + {system} + {TURN}], r15d",
                "jne 8f",
                "mov r15, gs:[{THREAD_END}]",
                "mov ebx, [r15 + {SPACE}]",
                "imul r14, rbx, {SPACE_BYTES}",
                "add r14, [rip + {system} + {SPACES}]",
                "mov r12d, [r15 + {DEPTH}]",
                "sub r12d, 1",
                "jb 9f",
                "mov r13d, [r14 + {OPEN}]",
                "cmp r13d, {STACKS_OPEN}",
                "jae 9f",
                // Vector registers, a reason to be slow, or somebody who waits for a stack.
                "mov eax, [r14 + {STACKS_WANTED}]",
                "or rax, [r15 + {VECTORS}]",
                "jne 5f",
                // From here on it is certain.
                "6:",
                "mov [r15 + {DEPTH}], r12d",
                "shl r12d, {FRAME_SHIFT}",
                "add r12, r15",
                "mov rax, [r12 + {FRAMES} + {FRAME_STACK}]",
                "mov [r14 + {STACKS} + r13 * 8], rax",
                "inc dword ptr [r14 + {OPEN}]",
                "mov ebx, [r12 + {FRAMES} + {FRAME_SPACE}]",
                "mov rcx, [r12 + {FRAMES} + {FRAME_RIP}]",
                "mov rsp, [r12 + {FRAMES} + {FRAME_RSP}]",
                "mov [r15 + {SPACE}], ebx",
                "mov gs:[{LOADED_SPACE}], ebx",
                "imul r14, rbx, {SPACE_BYTES}",
                "add r14, [rip + {system} + {SPACES}]",
                "mov rax, [r14 + {LOAD}]",
                "mov cr3, rax",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "mov rdx, rdi",
                clear!("eax" "ebx" "ebp" "edi" "r8d" "r9d" "r10d" "r12d" "r13d" "r14d" "r15d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                "5:",
                "mov eax, [r14 + {STACKS_WANTED}]",
                "or eax, [r15 + {SLOW}]",
                "jne 9f",
                "mov eax, {ALL_PARTS}",
                "xrstor64 [rip + {initial}]",
                "jmp 6b",
                "9:",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "8:",
                // Nothing of the kernel's may be left in registers that the slow path keeps.
                clear!("ebx" "ebp" "r12d" "r13d" "r14d" "r15d"),
                "mov eax, {PDX_RETURN}",
                "jmp {general}",
                system = sym $system,
                MARK = const MARK,
                TURN = const At::<$supervisor>::TURN,
                THREAD_END = const THREAD_END,
                SPACE = const SPACE,
                SPACE_BYTES = const size_of::<Space>(),
                SPACES = const At::<$supervisor>::SPACES,
                SLOW = const SLOW,
                VECTORS = const VECTORS,
                ALL_PARTS = const ALL_PARTS,
                initial = sym INITIAL,
                STACKS_WANTED = const Space::STACKS_WANTED,
                DEPTH = const DEPTH,
                OPEN = const Space::OPEN,
                STACKS_OPEN = const STACKS_OPEN,
                FRAME_SHIFT = const FRAME_SHIFT,
                FRAMES = const FRAMES,
                FRAME_STACK = const offset_of!(PortalFrame, stack),
                STACKS = const Space::STACKS,
                FRAME_SPACE = const offset_of!(PortalFrame, space),
                FRAME_RIP = const offset_of!(PortalFrame, rip),
                FRAME_RSP = const offset_of!(PortalFrame, rsp),
                LOADED_SPACE = const LOADED_SPACE,
                LOAD = const Space::LOAD,
                FLAGS = const kcore::thread::USER_FLAGS,
                PDX_RETURN = const Call::PdxReturn as u64,
                general = sym $general,
            );
        }
    };
}

/// With the server inside the kernel.
pub mod inside {
    #[allow(clippy::wildcard_imports, reason = "the macro uses what the file imports")]
    use super::*;
    ways!(crate::inside::Inside, crate::inside::SYSTEM, syscall::general_inside);
}

/// With the server outside of it.
pub mod outside {
    #[allow(clippy::wildcard_imports, reason = "the macro uses what the file imports")]
    use super::*;
    ways!(
        crate::outside::Outside,
        crate::outside::SYSTEM,
        syscall::general_outside
    );
}
