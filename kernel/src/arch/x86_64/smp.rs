//! The other processors: how they are started, and how they are asked.
//!
//! Each starts in real mode at [`TRAMPOLINE`] (see [`super::boot`]), finds out by the identifier of its interrupt controller which one it
//! is, takes the stack of that number and comes to [`processor_start`]. They are started one after the other. One that
//! does not come in time is told so, should it come later: it then halts for good.

use core::{
    arch::global_asm,
    sync::atomic::{
        AtomicU8, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use kcore::smp::{
    HandedOver, Mailbox, PROCESSORS_MAX, Request,
    protocol::{FORGET, FORGET_PAGE, HALT, LEAVE_ROOT, Mark, STOP, WAKE},
};

use super::{
    acpi::Processors,
    clock, direct, interrupts, paging,
    processor::{self, STACK_STRIDE, STACK_TOP, STACK_WINDOW},
    vector,
};

use crate::supervisor::Supervisor;

/// The first instructions of a processor are copied to here: a page below 1 MiB. The first megabyte is not handed out.
const TRAMPOLINE: u64 = 0x8000;

/// The fate of a processor that is started.
const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The requests to each processor.
static MAILBOXES: [Mailbox; PROCESSORS_MAX] = [const { Mailbox::empty() }; PROCESSORS_MAX];
/// The state of each processor.
static STATES: [AtomicU8; PROCESSORS_MAX] = [const { AtomicU8::new(WAITING) }; PROCESSORS_MAX];
/// The identifiers of their interrupt controllers.
static IDS: [AtomicU8; PROCESSORS_MAX] = [const { AtomicU8::new(0) }; PROCESSORS_MAX];
/// Their numbers by these identifiers; zero where there is none to be started.
static NUMBERS: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// Bits of those that run.
static RUNS: AtomicU32 = AtomicU32::new(1);

/// How long a processor may take to come, and to answer. A machine under load may take its time.
const PATIENCE_NS: u64 = 1_000_000_000;
const ANSWER_NS: u64 = 60_000_000_000;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
}

global_asm!(
    r#"
    .section .text.entry, "ax", @progbits
    .global processor_high
processor_high:
    # The low mapping is not needed any more: the strict tables, in which the stacks are mapped.
    movl {root}(%rip), %eax
    shlq $12, %rax
    movq %rax, %cr3
    movl $1, %eax
    xorl %ecx, %ecx
    cpuid
    shrl $24, %ebx
    leaq {numbers}(%rip), %rcx
    movzbl (%rcx, %rbx), %edi
    testl %edi, %edi
    jz 2f
    movl %edi, %eax
    imulq ${stride}, %rax, %rax
    movabsq ${top}, %rsp
    addq %rax, %rsp
    xorl %ebp, %ebp
    call {start}
2:
    cli
    hlt
    jmp 2b
    "#,
    root = sym paging::KERNEL_ROOT,
    numbers = sym NUMBERS,
    stride = const STACK_STRIDE,
    top = const STACK_WINDOW + STACK_TOP,
    start = sym super::image::kernel_processor,
    options(att_syntax)
);

/// A started processor comes to Rust here, on its own stack.
pub fn processor_start<S: Supervisor>(number: u32) -> ! {
    let state = &STATES[number as usize % PROCESSORS_MAX];
    if state.load(Acquire) != WAITING {
        interrupts::stop_forever();
    }
    processor::initialise(number, S::ENTRY);
    vector::enable();
    interrupts::initialise_local();
    if state.compare_exchange(WAITING, RUNNING, AcqRel, Acquire).is_err() {
        interrupts::stop_forever();
    }
    crate::event::leave::<S>()
}

fn wait_ns(ns: u64, until: impl Fn() -> bool) -> bool {
    let end = clock::now_ns() + ns;
    while clock::now_ns() < end {
        if until() {
            return true;
        }
        core::hint::spin_loop();
    }
    until()
}

/// Starts the other processors, which wait for the kernel lock then. Gives the bits of those that run, this one's included;
/// `missing` gets the identifiers of those that did not come.
pub fn start_processors(found: &Processors, mut missing: impl FnMut(u8)) -> u32 {
    let own = interrupts::own_id();
    IDS[0].store(own, Relaxed);
    let code = (&raw const trampoline_start) as u64;
    let length = (&raw const trampoline_end) as u64 - code;
    let Some(bytes) = direct::physical_bytes(code, length as usize) else {
        return 1;
    };
    // SAFETY: memory of the first megabyte, which nobody is given, and where nothing of ours stands.
    unsafe { direct::write_at(TRAMPOLINE, 0, bytes) };
    let others = found.ids[..found.count].iter().filter(|&&id| id != own);
    for (number, &id) in (1..PROCESSORS_MAX).zip(others) {
        let state = &STATES[number];
        let running = || state.load(Acquire) == RUNNING;
        IDS[number].store(id, Relaxed);
        NUMBERS[usize::from(id)].store(number as u8, Release);
        interrupts::send(id, interrupts::COMMAND_INIT);
        wait_ns(10_000_000, || false);
        // The second one is for processors that missed the first; QEMU's never do.
        for _ in 0..2 {
            interrupts::send(id, interrupts::COMMAND_STARTUP | (TRAMPOLINE >> 12) as u32);
            if wait_ns(PATIENCE_NS / 2, running) {
                break;
            }
        }
        if state.compare_exchange(WAITING, GIVEN_UP, AcqRel, Acquire).is_ok() {
            missing(id);
        } else {
            RUNS.fetch_or(1 << number, Release);
        }
    }
    RUNS.load(Acquire)
}

// ---- asking ---------------------------------------------------------------------------------------

/// The word by which this processor takes the kernel lock.
#[inline(always)]
pub fn mark() -> Mark {
    Mark(processor::mark())
}

fn own_mailbox() -> &'static Mailbox {
    &MAILBOXES[mark().processor() as usize % PROCESSORS_MAX]
}

/// The processors of these bits.
fn each(bits: u32) -> impl Iterator<Item = usize> {
    (0..PROCESSORS_MAX).filter(move |number| bits & 1 << number != 0)
}

fn post(number: usize, requests: u32, address: u64) {
    MAILBOXES[number].post(requests, address);
    interrupts::send(
        IDS[number].load(Relaxed),
        interrupts::COMMAND_VECTOR | u32::from(interrupts::VECTOR_ATTENTION),
    );
}

/// Waits until a processor has done these requests. One that does not answer for a minute never will.
fn await_answer(number: usize, requests: u32) {
    assert!(
        wait_ns(ANSWER_NS, || MAILBOXES[number].is_done(requests)),
        "processor {number} does not answer"
    );
}

/// Asks processors and waits until all have done it.
pub fn ask(processors: u32, request: Request) {
    let (requests, address) = match request {
        Request::Forget => (FORGET, 0),
        Request::ForgetPage(address) => (FORGET_PAGE, address),
        Request::LeaveRoot => (LEAVE_ROOT, 0),
    };
    for number in each(processors) {
        post(number, requests, address);
    }
    for number in each(processors) {
        await_answer(number, requests);
    }
}

/// Has a processor give up the thread that it runs. Gives the call that the thread was waiting with.
pub fn stop_processor(processor: u32) -> Option<HandedOver> {
    let number = processor as usize % PROCESSORS_MAX;
    post(number, STOP, 0);
    await_answer(number, STOP);
    MAILBOXES[number].take_call().map(HandedOver::from_words)
}

/// Has a processor look for a thread to run.
pub fn wake_processor(processor: u32) {
    post(processor as usize % PROCESSORS_MAX, WAKE, 0);
}

/// Stops all other processors for good, without waiting: the system ends.
pub fn halt_others() {
    // Not by GS: this may be a double fault on the way in or out.
    let own = interrupts::own_id();
    for number in each(RUNS.load(Acquire)).filter(|&number| IDS[number].load(Relaxed) != own) {
        post(number, HALT, 0);
    }
}

// ---- answering ------------------------------------------------------------------------------------

/// Does what this processor is asked to do on the spot. Tells what else there is.
#[cold]
pub fn serve() -> u32 {
    own_mailbox().serve(|requests, address| {
        if requests & HALT != 0 {
            interrupts::stop_forever();
        }
        if requests & LEAVE_ROOT != 0 {
            paging::leave_all_roots();
        }
        if requests & FORGET != 0 {
            paging::flush_all();
        }
        if requests & FORGET_PAGE != 0 {
            paging::flush_page(address);
        }
    })
}

/// Another processor has interrupted this one. Tells whether there is something to do that needs the kernel lock.
pub fn attend() -> bool {
    interrupts::finish();
    let more = serve();
    own_mailbox().take_news() || more & STOP != 0
}

/// Gives the thread up that this processor was running, as another one has asked. Its registers stand in its context, or it was waiting with a call.
/// It must not be touched any more.
#[cold]
pub fn hand_over(call: Option<HandedOver>) {
    paging::leave_all_roots();
    own_mailbox().hand_over(call.map(HandedOver::to_words));
}
