//! The server outside of the kernel: upcalls to it, its machine calls, and its crash (decision 0038).
//!
//! The server is not a thread. While it works on an event the processor is in the supervisor space with the registers of
//! [`Outside`], and the thread that the event came from stays the current one, so that the answer is settled exactly
//! as for the server inside. One event at a time: interrupts that come meanwhile are put off until after the answer,
//! and a thread of another processor that wants the server is parked and comes again. Nobody preempts the server.
//!
//! If the server itself faults, or does what is not its to do, it is reported with its registers and the machine stops.
//! Kernel and disk are as sound as after a power cut; synced and checkpointed data is there.

mod crash;
mod fast;
mod ports;

use alloc::{boxed::Box, format, string::String};

use abi::{
    Error,
    kernel_page::{FEATURE_SERVER, FEATURE_SERVER_OUTSIDE},
    machine::{MachineCall, Surroundings},
};
use kcore::{
    Frame, Hardware, Machine, Shortage, SpaceId,
    event::{Event, Outcome},
    outside::{Place, enter_registers},
    thread::{Context, Operation, Resumed},
    trace::Kind,
    wait::Key,
};

use crate::{
    arch::{self, Arguments, BootInformation, Interrupt, Results},
    event::{self, leave_from},
    mem::{
        device::Resources,
        division::{Division, HeapOf},
        lock::{Guard, Lock},
    },
    root,
    supervisor::{Start, Supervisor},
    system::{Platform, System, TheSystem},
    trace,
};

pub use fast::{answer, deliver};

/// The system of this image.
pub static SYSTEM: TheSystem<Outside> = Lock::empty();

/// All interrupts, in the order in which they are looked at after an event.
const INTERRUPTS: [Interrupt; 5] = [
    Interrupt::Debugger,
    Interrupt::Timer,
    Interrupt::Terminal,
    Interrupt::Control,
    Interrupt::Disk,
];

/// When a processor looks again that has put off a tick, in nanoseconds.
const SOON_NS: u64 = 500_000;

/// The activity of the server.
#[derive(Copy, Clone, Debug)]
enum Work {
    /// Nothing: events may come.
    Idle,
    /// It has not said that it is ready.
    Start,
    /// A system call of the current thread that was delivered at once; its arguments are known to the server alone.
    Call(u64),
    /// Another event.
    Event(Event),
}

/// The server, as the kernel sees it.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is something that waits for the server, or does not"
)]
pub struct Outside {
    work: Work,
    /// Something waits for the end of the event: the next three.
    attention: bool,
    /// Devices that interrupted meanwhile, by their place in [`INTERRUPTS`].
    deferred: [bool; INTERRUPTS.len()],
    interrupted: bool,
    poll: bool,
    /// A checkpoint has work left that waits for nothing: `Event::Poll` is due soon.
    unfinished: bool,
    /// The value that loads the supervisor space, forgetting what was remembered of it.
    load: u64,
    /// The space of the thread whose call was delivered at once.
    caller: SpaceId,
    /// The server's registers while it is interrupted or not yet entered. The processor pushes into them.
    context: Box<Context>,
    entry: u64,
    stack: u64,
    /// The processor that it works on.
    on: u32,
    place: Place,
    /// Root of the supervisor space.
    root: Frame,
    surroundings: Surroundings,
    resources: Resources,
}

/// Loads the server from the boot module and gives it its surroundings. It begins when the first event is looked for.
///
/// # Errors
/// In words: no module, no program, too little memory.
fn start_server(
    platform: &mut Platform,
    resources: Resources,
    information: &BootInformation,
    memory: &Division,
) -> Result<Outside, String> {
    let kernel = &mut platform.kernel;
    let short = |_: Shortage| String::from("too little memory for the server");
    let space = kernel.space_create().map_err(short)?;
    let program = root::load(kernel, information, space, &memory.ranges)?;
    let root = kernel.spaces().get(space).root();
    let pages = memory
        .ranges
        .iter()
        .map(|range| (u64::from(range.0) << 12, u64::from(range.1) << 12));
    for (from, to) in pages.chain([memory.server_heap]) {
        kernel.show_window(root, from, to).map_err(short)?;
    }
    let exchange = kernel.frame_zeroed().map_err(short)?;
    let (disk_message_address, disk_message_data) = arch::disk_message();
    let mut context = Box::new(Context::scrubbed(program.entry, program.stack));
    context.rdi = program.page;
    arch::note_server(&context);
    Ok(Outside {
        work: Work::Start,
        attention: false,
        deferred: [false; INTERRUPTS.len()],
        interrupted: false,
        poll: false,
        unfinished: false,
        load: kernel.spaces().get(space).load(),
        caller: SpaceId::NONE,
        context,
        entry: program.entry,
        stack: program.stack,
        on: 0,
        place: Place { space, exchange },
        root,
        surroundings: Surroundings {
            heap: memory.server_heap.0,
            heap_bytes: memory.server_heap.1 - memory.server_heap.0,
            disk_message_address,
            disk_message_data: u64::from(disk_message_data),
        },
        resources,
    })
}

impl Outside {
    /// Whether the server has an event, or the boot, to work on.
    #[inline(always)]
    fn works(&self) -> bool {
        !matches!(self.work, Work::Idle)
    }

    /// Whether it does so on this processor.
    #[inline(always)]
    fn works_on(&self, processor: u32) -> bool {
        self.works() && self.on == processor
    }
}

impl Supervisor for Outside {
    type Half = ();

    const FEATURES: u64 = FEATURE_SERVER | FEATURE_SERVER_OUTSIDE;
    const HEAP: HeapOf = HeapOf::KernelAlone;
    const ENTRY: arch::Entry = arch::ENTRY_OUTSIDE;
    // The server begins when the first event is looked for.
    const IS_READY: bool = false;

    fn system() -> &'static TheSystem<Self> {
        &SYSTEM
    }

    fn start(platform: &mut Platform, start: Start<'_>) -> Result<Self, String> {
        start_server(platform, start.resources, start.information, start.memory)
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Takes note of something that concerns no thread. Events of a thread go another way.
    fn handle(&mut self, _: &mut Platform, event: Event) -> Outcome {
        match event {
            Event::Interrupt => self.interrupted = true,
            _ => self.poll = true,
        }
        self.attention = true;
        Outcome::Resume
    }

    fn call(system: Guard<'_, System<Self>>, arguments: &Arguments, number: u64) -> Results {
        call(system, arguments, number)
    }

    fn trap(system: Guard<'_, System<Self>>, context: *const Context, vector: u64) -> *const Context {
        trap(system, context, vector)
    }

    fn do_again(system: &mut System<Self>, _: u32, event: Event, _: Operation) -> Option<*const Context> {
        system.deliver(event)
    }

    fn defer(system: &mut System<Self>, interrupt: Interrupt) -> bool {
        system.defer_outside(interrupt)
    }

    fn next(system: &mut System<Self>) -> Option<*const Context> {
        system.next_outside()
    }
}

/// A machine call of the server, or a system call of a thread that did not take the fast way.
fn call(mut system: Guard<'_, System<Outside>>, &arguments: &Arguments, number: u64) -> Results {
    let here = system.platform.kernel.here();
    let System {
        platform,
        supervisor: outside,
        ..
    } = &mut *system;
    if outside.works_on(here) {
        if number >= MachineCall::FrameZeroed as u64
            && let Some(call) = MachineCall::from_number(number)
        {
            // The machine stops when the event is answered.
            outside.attention |= call == MachineCall::Stop;
            return Results::of(platform.kernel.machine_call(call, arguments, outside.place));
        }
        return match system.server_call(number, arguments) {
            Some(answer) => Results::of(answer),
            None => leave_from(system),
        };
    }
    if let Some(thread) = platform.kernel.current_thread() {
        trace::record(Kind::Call, thread.id, number);
        let event = Event::Call {
            thread: thread.id,
            number: Operation::called(number, arguments).number,
            arguments,
            resumed: Resumed::First,
        };
        if let Some(context) = system.deliver(event) {
            drop(system);
            arch::resume(context)
        }
    }
    leave_from(system)
}

/// An exception or interrupt of user code or of the server: as `event::trap`.
fn trap(mut system: Guard<'_, System<Outside>>, context: *const Context, vector: u64) -> *const Context {
    let here = system.platform.kernel.here();
    let interrupt = (vector >= 32).then(|| arch::accept(vector)).flatten();
    let outside = &mut system.supervisor;
    if outside.works_on(here) {
        if vector < 32 {
            let error = outside.context.error;
            system.crash(&format!("exception {vector}, error {error:#x}"));
        }
        // Whatever it is waits for the answer: a device, or a thread that another processor has made ready.
        outside.attention = true;
        if let Some(interrupt) = interrupt {
            system.interrupt(interrupt);
        }
        return context;
    }
    if let Some(interrupt) = interrupt {
        system.interrupt(interrupt);
    }
    if vector < 32
        && let Some(index) = system.platform.kernel.current()
    {
        if vector == event::VECTOR_NO_UNIT && system.platform.kernel.vectors_begin().is_some() {
            return context;
        }
        let thread = system.platform.kernel.thread(index);
        let event = event::of_exception(thread.id, vector, thread.context.error);
        if let Some(server) = system.deliver(event) {
            return server;
        }
    }
    if system.platform.kernel.should_preempt() {
        system.platform.kernel.yield_current();
    }
    match system.next() {
        Some(next) => next,
        None => leave_from(system),
    }
}

impl System<Outside> {
    /// While the server works on an event the world stands still for it, as it does inside: or it would look whether
    /// there is input, find none, and park a thread that was woken in between. Tells whether the interrupt was put off.
    fn defer_outside(&mut self, interrupt: Interrupt) -> bool {
        let outside = &mut self.supervisor;
        if !outside.works() {
            return false;
        }
        if interrupt == Interrupt::Debugger {
            // It only looks.
            return false;
        }
        let Some(place) = INTERRUPTS.iter().position(|&known| known == interrupt) else {
            return false;
        };
        let kernel = &mut self.platform.kernel;
        if interrupt == Interrupt::Timer && outside.on != kernel.here() {
            // This processor's slices are its own business, a little later.
            let soon = kernel.now_ns() + SOON_NS;
            kernel.hardware.set_timer(soon);
        } else {
            outside.deferred[place] = true;
            outside.attention = true;
        }
        true
    }

    /// Gives an event of the current thread to the server: the registers to go on with. `None` if the server works for
    /// another thread, on another processor: this one was parked and does the same again.
    fn deliver(&mut self, event: Event) -> Option<*const Context> {
        let outside = &mut self.supervisor;
        if outside.works() {
            outside.attention = true;
            let operation = match event {
                Event::Call {
                    number,
                    arguments,
                    resumed,
                    ..
                } => Some((Operation { number, arguments }, resumed)),
                // The instruction that raised it may be behind.
                Event::Exception { kind, address, .. } => Some((Operation::raised(kind, address), Resumed::First)),
                _ => None,
            };
            self.platform.kernel.put_off(operation);
            return None;
        }
        Some(self.upcall(event))
    }

    /// Gives the processor to the server for an event: the registers to go on with.
    fn upcall(&mut self, event: Event) -> *const Context {
        let outside = &mut self.supervisor;
        outside.work = Work::Event(event);
        outside.on = self.platform.kernel.here();
        *outside.context = Context::scrubbed(outside.entry, outside.stack);
        enter_registers(&mut outside.context, &event);
        self.go_outside()
    }

    /// Sets the processor up for the server, which goes on with its registers.
    fn go_outside(&mut self) -> *const Context {
        let outside = &mut self.supervisor;
        let kernel = &mut self.platform.kernel;
        kernel.set_up_anew();
        kernel.load(outside.place.space, outside.load);
        arch::set_thread(&outside.context);
        &raw const *outside.context
    }

    /// The work to do before any thread runs: the registers of the server, if it has work here.
    fn next_outside(&mut self) -> Option<*const Context> {
        let here = self.platform.kernel.here();
        let outside = &mut self.supervisor;
        if outside.works() {
            return outside.works_on(here).then(|| self.go_outside());
        }
        if !core::mem::take(&mut outside.attention) {
            return None;
        }
        let deferred = core::mem::take(&mut outside.deferred);
        for (interrupt, deferred) in INTERRUPTS.into_iter().zip(deferred) {
            if deferred {
                self.interrupt(interrupt);
            }
        }
        self.platform.kernel.wake(Key::Supervisor, u32::MAX);
        if self.platform.kernel.should_preempt() {
            self.platform.kernel.yield_current();
        }
        let outside = &mut self.supervisor;
        outside.attention = outside.interrupted && outside.poll;
        if core::mem::take(&mut outside.interrupted) {
            return Some(self.upcall(Event::Interrupt));
        }
        if core::mem::take(&mut outside.poll) {
            return Some(self.upcall(Event::Poll));
        }
        None
    }

    /// Settles what the server answered to its event; the way on is [`leave_from`].
    fn answered(&mut self, outcome: Outcome, retried: Option<Operation>) {
        let outside = &mut self.supervisor;
        let work = core::mem::replace(&mut outside.work, Work::Idle);
        self.platform.kernel.set_up_anew();
        let index = self.current();
        match work {
            Work::Call(_) | Work::Event(Event::Call { .. }) => self.settle(index, outcome, retried),
            Work::Event(Event::Fault { .. } | Event::Exception { .. }) => self.settle(index, outcome, None),
            Work::Event(Event::Interrupt) if outcome == Outcome::Gone => {
                self.platform.kernel.hardware.terminal.swallow_interrupt();
            }
            Work::Event(_) | Work::Idle | Work::Start => {}
        }
        let kernel = &mut self.platform.kernel;
        if let Outcome::Block(Key::Stack(space), _) = outcome
            && kernel.spaces().get(SpaceId(space)).has_open_stack()
        {
            // Another processor has given one back since the server looked.
            kernel.wake(Key::Stack(space), u32::MAX);
        }
        if kernel.should_preempt() {
            kernel.yield_current();
        }
        // The server has told by now whether it has work left.
        self.poll_soon();
    }

    /// A call of the server that is about the event or about devices. `None`: the server does not go on.
    fn server_call(&mut self, number: u64, arguments: [u64; 6]) -> Option<Result<(u64, u64), Error>> {
        let outside = &mut self.supervisor;
        let [first, second, third, ..] = arguments;
        let started = !matches!(outside.work, Work::Start);
        match MachineCall::from_number(number) {
            Some(MachineCall::AnswerReturn) if started => {
                let result = match Error::from_code(first) {
                    Some(error) => Err(error),
                    None => Ok((second, third)),
                };
                self.answered(Outcome::Return(result), None);
            }
            Some(MachineCall::AnswerBlock) if started => {
                match self.platform.kernel.blocked_on(arguments, outside.place) {
                    Ok((key, deadline, operation)) => self.answered(Outcome::Block(key, deadline), Some(operation)),
                    Err(_) => self.crash("it parks a thread on a key that there is not"),
                }
            }
            Some(MachineCall::AnswerAgain) if started => {
                let operation = self.platform.kernel.to_do_again(outside.place);
                self.answered(Outcome::Again, Some(operation));
            }
            Some(MachineCall::Unfinished) => {
                outside.unfinished = first != 0;
                return Some(Ok((0, 0)));
            }
            Some(MachineCall::AnswerResume) if started => self.answered(Outcome::Resume, None),
            Some(MachineCall::AnswerGone) if started => self.answered(Outcome::Gone, None),
            Some(MachineCall::Ready) if !started => {
                if first >= abi::address::USER_END || second > abi::address::USER_END || !second.is_multiple_of(16) {
                    self.crash("it wants to be entered where there is no user memory");
                }
                (outside.entry, outside.stack, outside.work) = (first, second, Work::Idle);
                arch::set_server(first, second);
                self.platform.kernel.set_up_anew();
                self.platform.kernel.hardware.boot_mut().clean = third;
                crate::boot::tell_start(&mut self.platform);
            }
            Some(MachineCall::GiveUp) if !started => {
                let bytes = self.platform.kernel.hardware.bytes(outside.place.exchange);
                let length = (first as usize).min(bytes.len());
                crate::boot::give_up(core::str::from_utf8(&bytes[..length]).unwrap_or("the server does not say why"));
            }
            Some(MachineCall::Surroundings) => {
                let exchange = outside.place.exchange;
                let told = outside.surroundings.to_bytes();
                self.platform.kernel.hardware.write(exchange, 0, &told);
                return Some(Ok((u64::from(exchange.number()), 0)));
            }
            Some(MachineCall::MapDevice) => return Some(self.map_device(first, second)),
            Some(MachineCall::PortRead) => return Some(ports::read(first, second).map(|value| (value, 0))),
            Some(MachineCall::PortWrite) => return Some(ports::write(first, second, third).map(|()| (0, 0))),
            _ => {
                let told = log_write(&mut self.platform, number, arguments);
                if told.is_none() {
                    let name = crash::name(number);
                    self.crash(&format!(
                        "it makes the call {number:#x} ({name}), which is not its to make"
                    ));
                }
                return told;
            }
        }
        None
    }

    fn map_device(&mut self, physical: u64, bytes: u64) -> Result<(u64, u64), Error> {
        let outside = &mut self.supervisor;
        if !outside.resources.is_registers(physical, bytes) {
            return Err(Error::BadAddress);
        }
        let (from, to) = (physical & !4095, (physical + bytes).next_multiple_of(4096));
        let kernel = &mut self.platform.kernel;
        kernel.show_window(outside.root, from, to)?;
        Ok((0, 0))
    }
}

/// The one call of the bare µ-kernel that the server may make: its last words.
fn log_write(platform: &mut Platform, number: u64, arguments: [u64; 6]) -> Option<Result<(u64, u64), Error>> {
    if number != abi::nucleus::Call::LogWrite as u64 {
        return None;
    }
    let bytes = arguments[0].to_le_bytes();
    let length = (arguments[1] as usize).min(bytes.len());
    platform.kernel.hardware.log_bytes(&bytes[..length]);
    Some(Ok((0, 0)))
}

/// The functions that the image comes to.
pub mod entries {
    crate::arch::entries!(super::Outside);
}
