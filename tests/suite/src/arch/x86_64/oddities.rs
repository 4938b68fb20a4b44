//! Strange but allowed acts: system calls and faults with flags, stacks and segments that no
//! compiler would leave so. Each has to go as if nothing were strange.

use core::{arch::asm, sync::atomic::AtomicU64};

use abi::{Call, address::PAGE};

/// Where a stack pointer is kept that is about to be spoilt.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Something strange.
#[derive(Copy, Clone, Debug)]
pub struct Oddity {
    /// Its name.
    pub name: &'static str,
    deed: fn(fresh: u64) -> u64,
}

impl Oddity {
    /// Does it; `fresh` is the address of a page that nobody has touched. Tells whether all went well.
    pub fn run(&self, fresh: u64) -> bool {
        (self.deed)(fresh) == rt::call::thread_my_id()
    }
}

/// Asks for the own thread's report with these instructions before and after. The system fills the
/// fresh page with zeroes and writes the report there, so it copies and fills memory meanwhile.
macro_rules! call_amid {
    ([$($before:literal),*], [$($after:literal),*]) => {
        |fresh| {
            let error: u64;
            // SAFETY: the call writes to a page made for it; all registers it may clobber are
            // declared or kept; what is made strange before is put right after.
            unsafe {
                asm!(
                    "push rbx", "push rbp", $($before,)*
                    "mov eax, {call}", "xor edi, edi", "mov edx, 4096", "syscall",
                    $($after,)* "cld", "pop rbp", "pop rbx", "/* {kept} */",
                    call = const Call::ThreadInfo as u64,
                    kept = sym KEPT,
                    out("rax") error, inout("rsi") fresh => _, out("rcx") _, out("rdx") _, out("rdi") _,
                    out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                );
            }
            if error == 0 && super::guarded::load(fresh + PAGE - 8) == 0 {
                super::guarded::load(fresh)
            } else {
                0
            }
        }
    };
}

/// All of them.
pub const ODDITIES: &[Oddity] = &[
    Oddity {
        name: "call-with-direction-flag",
        deed: call_amid!(["std"], []),
    },
    Oddity {
        name: "call-with-alignment-flag",
        deed: call_amid!(["pushfq", "or qword ptr [rsp], 0x40000", "popfq"], []),
    },
    Oddity {
        name: "call-with-nested-task-flag",
        deed: call_amid!(["pushfq", "or qword ptr [rsp], 0x4000", "popfq"], []),
    },
    // The flag traps behind the instruction after popf: the call itself, which clears it.
    Oddity {
        name: "call-with-trap-flag",
        deed: call_amid!(
            [
                "push rsi",
                "mov eax, 0",
                "pushfq",
                "or qword ptr [rsp], 0x100",
                "popfq",
                "syscall",
                "pop rsi"
            ],
            []
        ),
    },
    Oddity {
        name: "call-with-privilege-flags",
        deed: call_amid!(["pushfq", "or qword ptr [rsp], 0x3000", "popfq"], []),
    },
    Oddity {
        name: "call-without-stack",
        deed: call_amid!(["mov [rip + {kept}], rsp", "xor esp, esp"], ["mov rsp, [rip + {kept}]"]),
    },
    Oddity {
        name: "call-with-kernel-stack",
        deed: call_amid!(
            ["mov [rip + {kept}], rsp", "mov rsp, 0xffffffff80200000"],
            ["mov rsp, [rip + {kept}]"]
        ),
    },
    Oddity {
        name: "call-with-non-canonical-stack",
        deed: call_amid!(
            ["mov [rip + {kept}], rsp", "mov rsp, 0x800000000000"],
            ["mov rsp, [rip + {kept}]"]
        ),
    },
    Oddity {
        name: "call-with-null-segments",
        deed: call_amid!(
            ["xor eax, eax", "mov ds, ax", "mov es, ax", "mov fs, ax", "mov gs, ax"],
            []
        ),
    },
    Oddity {
        name: "call-with-huge-number-bits",
        deed: huge_number,
    },
    Oddity {
        name: "fault-with-flags",
        deed: fault_with_flags,
    },
];

/// Numbers that are that of a call in their low half only must not be taken for it.
fn huge_number(_fresh: u64) -> u64 {
    for number in [
        1 << 32,
        1 << 32 | Call::ThreadMyId as u64,
        1 << 63,
        1 << 32 | Call::PdxCall as u64,
        1 << 32 | Call::PdxReturn as u64,
    ] {
        let answer = super::system_call(number, [0; 6]);
        if answer.error != abi::Error::BadCall as u64 {
            return 0;
        }
    }
    rt::call::thread_my_id()
}

/// A fault keeps even the strangest flags.
fn fault_with_flags(fresh: u64) -> u64 {
    const STRANGE: u64 = 0x4_0400;
    let flags: u64;
    // SAFETY: writes a word of a page made for it; the flags are put right before any other code runs.
    unsafe {
        asm!(
            "pushfq", "or qword ptr [rsp], {strange}", "popfq",
            "mov [{fresh}], {fresh}",
            "pushfq", "pop {flags}",
            "pushfq", "and qword ptr [rsp], {plain}", "popfq",
            strange = const STRANGE,
            plain = const !(STRANGE as i32),
            fresh = in(reg) fresh,
            flags = out(reg) flags,
        );
    }
    if flags & STRANGE == STRANGE {
        rt::call::thread_my_id()
    } else {
        0
    }
}
