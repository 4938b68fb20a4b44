//! Messages to a thread that waits for them, in assembly: four words in registers, and beside that way two others: with the rest of up to
//! [`MESSAGE_WORDS`] words in message buffers, and with an end to the waiting; and with one item, which is given in Rust.
//!
//! It does [`kcore::Kernel::ipc_fast`] and [`kcore::Kernel::item_short`] step by step, which are its oracles: host tests hold these and
//! the slow path against each other, and the suite of the bare µ-kernel this one. As in [`super::portal`] it runs on
//! the user's stack pointer without touching the stack, changes nothing before it is certain to finish, and
//! otherwise goes to the slow path with all registers as they were.
//!
//! The first four words are in r12 to r15 and stay there: from sender to receiver nobody touches them. Buffers are the kernel's own pages, which
//! cannot fault; threads of their spaces may write there meanwhile, and so change only what they send and receive themselves.

use abi::nucleus::{MESSAGE_WORDS, REGISTER_WORDS};
use core::{
    arch::naked_asm,
    mem::{ManuallyDrop, offset_of},
};

use kcore::{
    Kernel,
    messages::Part,
    smp::{Processor, protocol::TAKEN},
    space::Space,
    thread::{Context, NO_TIME, State, Thread, VectorState},
};

use super::{
    clock,
    direct::DIRECT_MAP,
    portal::{At, SPACE, VECTORS, before_end},
    processor::{KERNEL_STACK, LOADED_SPACE, MARK, RECORD, THREAD_END, USER_RIP, USER_RSP},
    vector::{ALL_PARTS, INITIAL},
};
use crate::{
    bare::{Bare, Given, SYSTEM},
    pc::Pc,
    supervisor::Supervisor,
};

type Half = <Bare as Supervisor>::Half;

const THREADS: usize = At::<Bare>::KERNEL + Kernel::<Pc, Half>::THREADS;
const CURRENT: usize = RECORD + Processor::CURRENT;
const HERE: usize = RECORD + Processor::NUMBER;
const UNIT: usize = RECORD + Processor::UNIT;
const OCCUPIED: usize = RECORD + Processor::OCCUPIED;

/// The end of a thread's context, from the beginning of its place.
const END: usize = offset_of!(Thread, context) + size_of::<Context>();

const ID: isize = before_end(offset_of!(Thread, id));
const SLOW: isize = before_end(offset_of!(Thread, slow));
const STATE: isize = before_end(offset_of!(Thread, state));
const PROCESSOR: isize = before_end(offset_of!(Thread, processor));
const MORE_URGENT: isize = before_end(offset_of!(Thread, more_urgent));
const DEADLINE: isize = before_end(Thread::DEADLINE);
const TIMER: isize = before_end(Thread::TIMER);
const CONTEXT: isize = before_end(offset_of!(Thread, context));
const RIP: isize = before_end(offset_of!(Thread, context) + offset_of!(Context, rip));
const RSP: isize = before_end(offset_of!(Thread, context) + offset_of!(Context, rsp));
const WAIT_FOR: isize = before_end(offset_of!(Thread, ipc) + Part::WAIT_FOR);
const WINDOW: isize = before_end(offset_of!(Thread, ipc) + Part::WINDOW);
const AWAITED: isize = before_end(offset_of!(Thread, ipc) + Part::AWAITED);
const BIT: isize = before_end(offset_of!(Thread, ipc) + Part::BIT);
const BUFFER: isize = before_end(offset_of!(Thread, ipc) + Part::BUFFER);
const SENDERS: isize = before_end(offset_of!(Thread, ipc) + Part::SENDERS);
const INTERRUPTS: isize = before_end(offset_of!(Thread, ipc) + Part::INTERRUPTS);

const _: () = assert!(TAKEN == 1);
const _: () = assert!(
    <Half as kcore::Half>::THREADS_MAX <= 1 << 16,
    "the low bits of an identifier are the place"
);
const _: () = assert!(abi::nucleus::ANYONE == u64::MAX && abi::nucleus::NEVER == u32::MAX);
const _: () = assert!(REGISTER_WORDS == 4);
const _: () = assert!(NO_TIME == u64::MAX);

/// Defines a way of messages: what it looks at first, what it does when all else is certain and at its end, and what it does out of line.
macro_rules! message {
    (
        $(#[$meta:meta])*
        $name:ident: first { $($first:literal)* } last { $($last:literal)* } end { $($end:literal)* } apart { $($apart:literal)* } with { $($used:tt)* }
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_lines, reason = "one stretch of assembly")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                $($first,)*
                // The turn, if it is free and this processor had it last.
                "mov eax, gs:[{MARK}]",
                "lea r9d, [rax + 1]",
                "lock cmpxchg dword ptr [rip + {system} + {TURN}], r9d",
                "jne 8f",
                "mov rbx, gs:[{THREAD_END}]",
                "cmp rsi, rdi",
                "je 2f",
                "cmp rsi, -1",
                "jne 9f",
                "cmp dword ptr [rbx + {SENDERS}], -1",
                "jne 9f",
                "cmp qword ptr [rbx + {INTERRUPTS}], 0",
                "jne 9f",
                "2:",
                "mov r11d, edi",
                "and r11d, {PLACE_MASK}",
                "imul rbp, r11, {THREAD_BYTES}",
                "add rbp, [rip + {system} + {THREADS}]",
                "add rbp, {END}",
                "cmp [rbp + {ID}], rdi",
                "jne 9f",
                "mov r9, [rbx + {ID}]",
                "mov rax, [rbp + {WAIT_FOR}]",
                "cmp rax, -1",
                "je 3f",
                "cmp rax, r9",
                "jne 9f",
                "3:",
                "mov eax, [rbp + {MORE_URGENT}]",
                "test gs:[{OCCUPIED}], eax",
                "jne 9f",
                $($last,)*
                // Vector registers, or a reason to be slow, of either.
                "mov rax, [rbx + {VECTORS}]",
                "or rax, [rbp + {VECTORS}]",
                "jne 5f",
                // From here on it is certain.
                "6:",
                "mov [rbx + {RIP}], rcx",
                "mov [rbx + {RSP}], rsp",
                "mov dword ptr [rbx + {STATE}], {RECEIVING}",
                "mov [rbx + {WAIT_FOR}], rsi",
                "mov [rbx + {WINDOW}], r8",
                "mov qword ptr [rbp + {WAIT_FOR}], 0",
                "mov eax, [rbx + {BIT}]",
                "or [rbp + {AWAITED}], eax",
                "mov qword ptr [rbp + {DEADLINE}], -1",
                "mov dword ptr [rbp + {STATE}], {RUNNING}",
                "mov eax, gs:[{HERE}]",
                "mov [rbp + {PROCESSOR}], eax",
                "mov gs:[{CURRENT}], r11d",
                "mov gs:[{THREAD_END}], rbp",
                "mov rcx, [rbp + {RIP}]",
                "mov rsp, [rbp + {RSP}]",
                "mov rsi, r9",
                "mov eax, [rbp + {SPACE}]",
                "cmp eax, [rbx + {SPACE}]",
                "je 4f",
                "mov gs:[{LOADED_SPACE}], eax",
                "imul rax, rax, {SPACE_BYTES}",
                "add rax, [rip + {system} + {SPACES}]",
                "mov rax, [rax + {LOAD}]",
                "mov cr3, rax",
                "4:",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                $($end,)*
                clear!("eax" "ebx" "ebp" "edi" "r8d" "r9d" "r10d"),
                "mov r11d, {FLAGS}",
                "swapgs",
                "sysretq",
                "5:",
                "shr rax, 32",
                "jne 9f",
                // The sender drops what it has. The unit is turned on for a receiver that uses it, else off.
                "and dword ptr [rbx + {VECTORS}], {DROPPED}",
                "cmp dword ptr [rbp + {VECTORS}], 0",
                "je 7f",
                "clts",
                "mov eax, {ALL_PARTS}",
                "xrstor64 [rip + {initial}]",
                "mov eax, gs:[{HERE}]",
                "lea eax, [rax * {LOADED_STEP} + {LOADED}]",
                "mov [rbp + {VECTORS}], eax",
                "mov gs:[{UNIT}], r11d",
                "jmp 6b",
                "7:",
                "mov rax, cr0",
                "or rax, {TASK_SWITCHED}",
                "mov cr0, rax",
                "mov dword ptr gs:[{UNIT}], -1",
                "jmp 6b",
                "9:",
                // The second way may have set it. A thread that runs has none.
                "mov qword ptr [rbx + {DEADLINE}], -1",
                "mov byte ptr [rip + {system} + {TURN}], 0",
                "8:",
                "jmp {slow}",
                $($apart,)*
                system = sym SYSTEM,
                MARK = const MARK,
                TURN = const At::<Bare>::TURN,
                THREAD_END = const THREAD_END,
                VECTORS = const VECTORS,
                DROPPED = const VectorState::DROPPED,
                LOADED = const VectorState::LOADED,
                LOADED_STEP = const VectorState::LOADED_STEP,
                UNIT = const UNIT,
                ALL_PARTS = const ALL_PARTS,
                initial = sym INITIAL,
                TASK_SWITCHED = const 8,
                SENDERS = const SENDERS,
                INTERRUPTS = const INTERRUPTS,
                PLACE_MASK = const <Half as kcore::Half>::THREADS_MAX - 1,
                THREAD_BYTES = const size_of::<Thread>(),
                THREADS = const THREADS,
                END = const END,
                ID = const ID,
                WAIT_FOR = const WAIT_FOR,
                MORE_URGENT = const MORE_URGENT,
                OCCUPIED = const OCCUPIED,
                DEADLINE = const DEADLINE,
                RIP = const RIP,
                RSP = const RSP,
                STATE = const STATE,
                RECEIVING = const State::RECEIVING,
                RUNNING = const State::RUNNING,
                WINDOW = const WINDOW,
                AWAITED = const AWAITED,
                BIT = const BIT,
                HERE = const HERE,
                PROCESSOR = const PROCESSOR,
                CURRENT = const CURRENT,
                SPACE = const SPACE,
                LOADED_SPACE = const LOADED_SPACE,
                SPACE_BYTES = const size_of::<Space>(),
                SPACES = const At::<Bare>::SPACES,
                LOAD = const Space::LOAD,
                FLAGS = const kcore::thread::USER_FLAGS,
                slow = sym slow,
                $($used)*
            );
        }
    };
}

message! {
    /// A message: receiver in rdi, whom to receive from in rsi, tag in rdx, timeouts in r10, window in r8; from
    /// the `syscall` entry.
    ipc:
    first {
        "cmp dx, 4"
        "ja {more}"
        "cmp r10d, -1"
        "jne {more}"
    }
    last {}
    end {}
    apart {}
    with { more = sym more, }
}

message! {
    /// The same with more words, or with an end to the waiting.
    more:
    first {
        "cmp dx, {WORDS}"
        "ja {item}"
    }
    last {
        // No end, or one at once, which is not for here: both are rare.
        "lea r9d, [r10 + 1]"
        "cmp r9d, 1"
        "jbe 24f"
        // The deadline: nanoseconds since the start, and the timeout. The tag is in rdx.
        "mov r9, rdx"
        "rdtsc"
        "shl rdx, 32"
        "or rax, rdx"
        "sub rax, [rip + {start}]"
        "mov rdx, r9"
        "jb 9f"
        "mul qword ptr [rip + {scale}]"
        "shrd rax, rdx, 32"
        "mov rdx, r9"
        "mov r9d, r10d"
        "imul r9, r9, 1000"
        "add rax, r9"
        // The timers have the thread already, for that time or an earlier one.
        "cmp rax, [rbx + {TIMER}]"
        "jb 9f"
        "22:"
        "cmp dx, 4"
        "ja 25f"
        // From here on it is certain here, too.
        "23:"
        "mov [rbx + {DEADLINE}], rax"
        "mov r9, [rbx + {ID}]"
    }
    end {}
    apart {
        "24:"
        "test r10d, r10d"
        "je 9b"
        "mov rax, -1"
        "jmp 22b"
        // The words in the buffers, if there is no reason to be slow: nothing could undo that. Then only the buffers could still be
        // missing, so r9 and rdi are free.
        "25:"
        "mov r9d, [rbx + {SLOW}]"
        "or r9d, [rbp + {SLOW}]"
        "jne 9b"
        "cmp dword ptr [rbx + {BUFFER}], 0"
        "je 9b"
        "cmp dword ptr [rbp + {BUFFER}], 0"
        "je 9b"
        "mov [rbx + {WAIT_FOR}], rsi"
        "mov r9, rcx"
        "mov rcx, {WORDS_BEHIND}"
        "mov esi, [rbx + {BUFFER}]"
        "shl rsi, 12"
        "add rsi, rcx"
        "mov edi, [rbp + {BUFFER}]"
        "shl rdi, 12"
        "add rdi, rcx"
        "movzx ecx, dx"
        "sub ecx, 4"
        "rep movsq"
        "mov rcx, r9"
        "mov rsi, [rbx + {WAIT_FOR}]"
        "jmp 23b"
    }
    with {
        item = sym item,
        WORDS = const MESSAGE_WORDS,
        WORDS_BEHIND = const DIRECT_MAP + 8 * REGISTER_WORDS as u64,
        SLOW = const SLOW,
        TIMER = const TIMER,
        BUFFER = const BUFFER,
        start = sym clock::START,
        scale = sym clock::SCALE,
    }
}

message! {
    /// The same with one item, which stands behind up to two words, and without an end to the waiting.
    item:
    first {
        "cmp dh, 1"
        "jne 8f"
        "cmp dl, 2"
        "ja 8f"
        "cmp r10d, -1"
        "jne 8f"
    }
    last {
        // A page that is given stays given, so the sender must have no reason to be slow. `give` asks the same of the receiver.
        "cmp dword ptr [rbx + {SLOW}], 0"
        "jne 9f"
        "mov gs:[{USER_RSP}], rsp"
        "mov rsp, gs:[{KERNEL_STACK}]"
        "push rcx"
        "push rdx"
        "push rsi"
        "push rdi"
        "push r8"
        "push r10"
        // The item: two words.
        "mov rdi, r12"
        "mov rsi, r13"
        "cmp dl, 1"
        "jae 35f"
        "36:"
        "mov edx, [rbx + {SPACE}]"
        "mov ecx, r11d"
        "call {give}"
        "pop r10"
        "pop r8"
        "pop rdi"
        "pop rsi"
        "pop rdx"
        "pop rcx"
        "mov rsp, gs:[{USER_RSP}]"
        "test eax, eax"
        "je 9f"
        "mov r10d, eax"
        "mov r11d, edi"
        "and r11d, {PLACE_MASK}"
        "mov r9, [rbx + {ID}]"
    }
    end {
        "cmp r10d, {A_PAGE}"
        "je 37f"
    }
    apart {
        "35:"
        "mov rdi, r13"
        "mov rsi, r14"
        "je 36b"
        "mov rdi, r14"
        "mov rsi, r15"
        "jmp 36b"
        // It goes on as it was when it touched the page.
        "37:"
        "lea rdi, [rbp + {CONTEXT}]"
        "mov rsp, gs:[{KERNEL_STACK}]"
        "jmp {resume}"
    }
    with {
        SLOW = const SLOW,
        USER_RSP = const USER_RSP,
        KERNEL_STACK = const KERNEL_STACK,
        CONTEXT = const CONTEXT,
        A_PAGE = const A_PAGE,
        give = sym give,
        resume = sym super::traps::resume,
    }
}

/// The item was the page that the receiver had touched.
const A_PAGE: u32 = 2;

/// Gives the item of a message, whose words it is, of a thread in this space to a thread that waits for it: zero, if that is not done in a few steps, and the message
/// takes the slow path.
///
/// # Safety
/// 1. The lock is entered, and nobody has a guard.
unsafe extern "C" fn give(source: u64, way: u64, from: u32, receiver: u32) -> u32 {
    // SAFETY: (1) is the caller's. The message goes on with the lock.
    let mut system = ManuallyDrop::new(unsafe { SYSTEM.entered() });
    match crate::bare::give(&mut system, (from, source), way, receiver) {
        None => 0,
        Some(Given::ToMessage) => 1,
        Some(Given::ToFault) => A_PAGE,
    }
}

/// The slow path: it keeps the words on the kernel stack, and never comes back here.
#[unsafe(naked)]
unsafe extern "C" fn slow() {
    naked_asm!(
        "mov gs:[{USER_RSP}], rsp",
        "mov rsp, gs:[{KERNEL_STACK}]",
        "mov gs:[{USER_RIP}], rcx",
        "mov rcx, r10",
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "call {general}",
        "ud2",
        KERNEL_STACK = const KERNEL_STACK,
        USER_RIP = const USER_RIP,
        USER_RSP = const USER_RSP,
        general = sym crate::bare::ipc,
    );
}
