//! The whole: kernel, disk and supervisor as one value behind the kernel lock, and the decision which
//! thread runs when an event has been handled.

use kcore::{
    Half, HoldsMachine, Kernel, Machine, SpaceId, ThreadId,
    kernel::Rotation,
    looks::{Looks, Threads, Verdict},
    smp::PROCESSORS_MAX,
    thread::{Context, Operation},
    wait::Key,
};
use sasos::{Event, Outcome};
use store::world::{Disk, DiskError, Frame, Pages, QueueFull, Random, Request};

use crate::{
    arch::{self, Interrupt},
    debugger::Debugger,
    disk::VirtioDisk,
    log,
    mem::lock::{Lock, Shared},
    pc::Pc,
    supervisor::Supervisor,
};

/// The kernel and the disk: all that the server knows of the world.
pub struct Platform<P = ()> {
    /// Frames, spaces, threads, portals.
    pub kernel: Kernel<Pc, P>,
    /// The disk, if the kernel drives it: where the server is in the kernel.
    pub disk: Option<VirtioDisk>,
}

impl<P: Half> HoldsMachine for Platform<P> {
    type Held = Kernel<Pc, P>;

    #[inline(always)]
    fn held(&self) -> &Self::Held {
        &self.kernel
    }

    #[inline(always)]
    fn held_mut(&mut self) -> &mut Self::Held {
        &mut self.kernel
    }
}

impl<P: Half> Platform<P> {
    /// A frame that the store was given, which knows only its number.
    fn known(&self, frame: Frame) -> kcore::Frame {
        self.kernel
            .frame_found(frame.0)
            .expect("the store uses a frame that it was not given")
    }
}

impl<P: Half> Pages for Platform<P> {
    fn alloc(&mut self) -> Option<Frame> {
        self.kernel.frame_any().ok().map(|frame| Frame(frame.number()))
    }

    fn free(&mut self, frame: Frame) {
        let frame = self.known(frame);
        self.kernel.frame_release(frame);
    }

    fn bytes(&self, frame: Frame) -> &[u8; 4096] {
        arch::bytes(self.known(frame))
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; 4096] {
        arch::bytes_mut(self.known(frame))
    }
}

impl<P> Disk for Platform<P> {
    fn blocks(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::blocks)
    }

    fn measure(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.measure();
        }
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.disk.as_mut().ok_or(QueueFull)?.submit(request)
    }

    fn run_max(&self) -> usize {
        self.disk.as_ref().map_or(1, Disk::run_max)
    }

    fn submit_run(&mut self, tag: u32, kind: store::Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        let disk = self.disk.as_mut().ok_or(QueueFull)?;
        disk.submit_run(tag, kind, first, frames)
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.disk.as_mut()?.complete()
    }

    fn wait(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.wait();
        }
    }
}

impl<P: Half> Random for Platform<P> {
    fn next_u64(&mut self) -> u64 {
        self.kernel.random()
    }
}

/// How long a call that is done again may take for the next one to follow at once, with interrupts off all the while.
const LONG_NS: u64 = 2_000;
/// Shorter calls that are done again, one behind the other, before interrupts are let in.
const AGAIN_AT_ONCE: u32 = 2;
/// Zeroed frames to keep ready.
const ZEROED_GOAL: u32 = 256;

/// Events between two checks.
const EVENTS_EACH: u32 = 1000;

/// Everything behind the lock.
pub struct System<S: Supervisor> {
    /// The platform under the server.
    pub platform: Platform<S::Half>,
    /// The supervisor that answers.
    pub supervisor: S,
    debugger: Debugger,
    looks: Looks,
    /// Events since the last check, where assertions are on.
    unchecked: u32,
    /// Whether the disk has completed something that the server has not looked at.
    news: bool,
    /// Whether something long has been done: other interrupts have their turn before the next.
    unfinished: bool,
    /// The thread whose space's ports user code may use, and that space, by processor.
    ports_of: [(SpaceId, ThreadId); PROCESSORS_MAX],
}

/// Nobody's ports are on.
const NO_PORTS: (SpaceId, ThreadId) = (SpaceId::NONE, ThreadId(0));

/// A system behind its lock. Each image has one.
pub type TheSystem<S> = Lock<System<S>>;

impl<S: Supervisor> Shared for System<S> {
    fn change_over(&mut self, processor: u32) {
        self.platform.kernel.change_over(processor);
    }

    fn check_before_leaving(&self) {
        assert!(
            self.platform.kernel.is_root_known(),
            "another root is loaded than is noted down"
        );
    }
}

impl<S: Supervisor> System<S> {
    /// The system, ready for its first thread.
    pub fn new(platform: Platform<S::Half>, supervisor: S) -> Self {
        Self {
            platform,
            supervisor,
            debugger: Debugger::new(),
            looks: Looks::default(),
            unchecked: 0,
            news: false,
            unfinished: false,
            ports_of: [NO_PORTS; PROCESSORS_MAX],
        }
    }

    /// The index of the running thread. Only user code traps and calls, so there is one.
    pub fn current(&self) -> u32 {
        self.platform.kernel.current().unwrap_or(0)
    }

    /// The registers of the running thread.
    pub fn context(&mut self) -> &mut Context {
        let index = self.current();
        self.platform.kernel.context_of(index)
    }

    /// Does what the server answered, for the thread with this index, which was running. `operation` is what it did, if
    /// that was a call.
    pub fn settle(&mut self, index: u32, outcome: Outcome, operation: Option<Operation>) {
        if self.platform.kernel.current() != Some(index) {
            // It has ended or was suspended meanwhile: there is nobody to answer. Another one may be running already. Its end may have left
            // work, which is another piece: interrupts first.
            self.unfinished |= self.is_poll_wanted();
            return;
        }
        match outcome {
            Outcome::Return(result) => {
                let (error, value, value2) = match result {
                    Ok((value, value2)) => (0, value, value2),
                    Err(error) => (error as u64, 0, 0),
                };
                let context = self.context();
                context.reset(context.rip, context.rsp);
                context.set_results(error, value, value2);
            }
            Outcome::Block(key, deadline) => {
                // It may wait for what it has begun.
                self.poll_soon();
                if operation.is_some() {
                    let context = self.context();
                    context.reset(context.rip, context.rsp);
                }
                self.platform.kernel.park(key, deadline, operation);
                self.looks.thread_waits();
            }
            Outcome::Again => {
                let operation = self.platform.kernel.take_operation(index).or(operation);
                // The words of a message are in its sender's registers.
                if operation.is_some_and(|operation| operation.number < abi::nucleus::FIRST_CALL) {
                    let context = self.context();
                    context.reset(context.rip, context.rsp);
                }
                self.platform.kernel.again(operation);
                self.unfinished = true;
            }
            Outcome::Resume | Outcome::Gone => {}
        }
    }

    /// [`System::settle`] and [`System::next`] in one, for a call of this thread that waits while nothing is to be done but to let the next thread
    /// here run. `None`: nothing was done.
    #[inline(always)]
    pub fn park_for_next(&mut self, index: u32, key: Key, operation: impl FnOnce() -> Operation) -> Option<Rotation> {
        let kernel = &self.platform.kernel;
        let is_plain = kernel.current() == Some(index)
            && !self.unfinished
            && !self.looks.is_owed()
            && !self.is_poll_wanted()
            && kernel.hardware.stop.is_none();
        if is_plain {
            self.platform.kernel.park_for_next(key, operation)
        } else {
            None
        }
    }

    /// The turn of the thread that has the processor of one that is gone, if nothing is to be done but to let it run ([`System::next`]).
    #[inline(always)]
    pub fn passed_on(&mut self) -> Option<Rotation> {
        let is_plain = !self.unfinished
            && !self.looks.is_next()
            && !self.is_poll_wanted()
            && self.platform.kernel.hardware.stop.is_none()
            && self.ports_here().0 == SpaceId::NONE;
        if is_plain {
            self.platform.kernel.passed_on()
        } else {
            None
        }
    }

    /// Counts an event; every [`EVENTS_EACH`] of them, checks that the kernel is as it must be between events. For
    /// builds with assertions.
    pub fn check_now_and_then(&mut self) {
        self.unchecked += 1;
        if self.unchecked >= EVENTS_EACH {
            self.unchecked = 0;
            if let Err(what) = self.platform.kernel.check() {
                panic!("the kernel is inconsistent: {what}");
            }
        }
    }

    /// Handles a device.
    pub fn interrupt(&mut self, interrupt: Interrupt) {
        if S::defer(self, interrupt) {
            return;
        }
        match interrupt {
            Interrupt::Timer => self.time_has_come(),
            Interrupt::Disk => {
                if let Some(disk) = &mut self.platform.disk {
                    disk.acknowledge();
                }
                self.news = true;
                // Not with each: a disk that is quick would let neither threads nor other interrupts have their turn. Where a look is due the timer would
                // interrupt for it right behind this.
                if self.platform.now_ns() >= self.looks.piece_ns() {
                    self.time_has_come();
                } else {
                    self.poll_soon();
                }
            }
            Interrupt::Debugger => self.debugger.attend(&self.platform.kernel),
            Interrupt::Message(number) => self.platform.kernel.interrupt(number),
            Interrupt::Terminal => {
                let news = self.platform.kernel.hardware.terminal.interrupt();
                if news.interrupted && self.supervisor.handle(&mut self.platform, Event::Interrupt) == Outcome::Gone {
                    self.platform.kernel.hardware.terminal.swallow_interrupt();
                }
                self.wake_line(abi::layout::STREAM_TERMINAL, news);
            }
            Interrupt::Control => {
                let news = self.platform.kernel.hardware.control.interrupt();
                self.wake_line(abi::layout::STREAM_CONTROL, news);
            }
        }
    }

    /// What the timer interrupts for.
    fn time_has_come(&mut self) {
        if self.platform.kernel.tick() {
            self.platform.kernel.yield_current();
        }
        // One processor looks at the clock for the server. Another one looks after the work that it has
        // begun, for it has set its own timer for that.
        if self.platform.kernel.here() == 0 || self.is_poll_wanted() {
            self.poll_when_due();
        }
    }

    fn wake_line(&mut self, stream: u64, news: crate::console::LineNews) {
        if news.input {
            self.platform.wake(Key::ConsoleIn(stream), u32::MAX);
        }
        if news.output {
            self.platform.wake(Key::ConsoleOut(stream), u32::MAX);
        }
    }

    /// Has the server look at its clock and its disk.
    fn poll(&mut self) {
        self.news = false;
        let began = self.platform.now_ns();
        self.looks.begin(began);
        self.supervisor.handle(&mut self.platform, Event::Poll);
        // The next thread may have a call to do again, which is another piece: interrupts first.
        self.unfinished |= self.platform.now_ns() >= began + LONG_NS;
        self.poll_soon();
    }

    /// Whether there is work left for the server that waits for nothing.
    fn is_poll_wanted(&self) -> bool {
        self.news || self.supervisor.is_unfinished()
    }

    /// Sees to it that what is left for the server to do is done soon, busy as the processor may be.
    pub fn poll_soon(&mut self) {
        if self.is_poll_wanted() {
            // Interrupts have their turn first, also where nobody else runs.
            self.unfinished = true;
            self.set_timer(self.looks.piece_ns());
        }
    }

    fn set_timer(&mut self, at_ns: u64) {
        kcore::Hardware::set_timer(&mut self.platform.kernel.hardware, at_ns);
    }

    /// Has the server look if that is due, and sees to it that somebody asks again.
    pub fn poll_when_due(&mut self) {
        let kernel = &self.platform.kernel;
        let threads = if kernel.has_woken() {
            Threads::Woken
        } else if kernel.current().is_some() && !kernel.has_run_for(LONG_NS) {
            Threads::Begun
        } else {
            Threads::Settled
        };
        match self.looks.ask(self.platform.now_ns(), self.is_poll_wanted(), threads) {
            Verdict::PutOff(at_ns) => return self.set_timer(at_ns),
            Verdict::Look => self.poll(),
            Verdict::NotDue => self.poll_soon(),
        }
        self.set_timer(self.looks.clock_ns());
    }

    /// The registers to go on with, everything set for them; `None` if no thread can run, or interrupts are to be
    /// looked for first.
    pub fn next(&mut self) -> Option<*const Context> {
        if cfg!(debug_assertions) {
            self.check_now_and_then();
        }
        let mut done_again = 0;
        loop {
            if let Some(value) = self.platform.kernel.hardware.stop {
                log!("stop: {value:#x}");
                arch::halt_others();
                arch::exit(value);
            }
            // Not while a thread runs here: another processor may want it, and only user code, or a waiting processor,
            // gives it up. User code lets interrupts in anyway.
            if (self.unfinished || self.looks.is_next()) && self.platform.kernel.current().is_none() {
                return None;
            }
            if let Some(server) = S::next(self) {
                return Some(server);
            }
            let Some(index) = self.platform.kernel.schedule() else {
                self.unfinished |= self.platform.kernel.has_waiting();
                return None;
            };
            if let Some(context) = self.run(index) {
                return Some(context);
            }
            done_again += 1;
            self.unfinished |= done_again >= AGAIN_AT_ONCE;
        }
    }

    /// The registers of the thread whose turn it is, everything set for them; `None` if it had a call to do again,
    /// which has been done: somebody else may be next.
    #[inline(always)]
    pub fn run(&mut self, index: u32) -> Option<*const Context> {
        if self.platform.kernel.thread(index).operation.is_some() {
            return self.do_again(index);
        }
        Some(self.prepare(index))
    }

    /// The registers of a thread to which a fast path came.
    #[inline(always)]
    pub fn take_turn(&mut self, turn: Rotation) -> Option<*const Context> {
        if turn.is_plain {
            Some(self.enter(turn.next))
        } else {
            self.run(turn.next)
        }
    }

    /// Does the call again that a thread was parked with; or gives the registers of the server outside, which is to.
    fn do_again(&mut self, index: u32) -> Option<*const Context> {
        let operation = self.platform.kernel.take_operation(index)?;
        let thread = self.platform.kernel.thread(index);
        let event = operation.event(thread.id, thread.resumed);
        S::do_again(self, index, event, operation)
    }

    /// Has the supervisor answer a call that is done again.
    pub fn answer_again(&mut self, index: u32, event: Event, operation: Operation) {
        let outcome = self.supervisor.handle(&mut self.platform, event);
        self.unfinished |= self.platform.kernel.has_run_for(LONG_NS);
        // The registers of a thread with an exception are not a caller's.
        self.settle(
            index,
            outcome,
            Some(operation).filter(|operation| !operation.is_raised()),
        );
    }

    /// Sets the processor up for a thread.
    #[inline(always)]
    fn prepare(&mut self, index: u32) -> *const Context {
        let kernel = &mut self.platform.kernel;
        let here = kernel.here();
        kernel.vectors_follow(index);
        let space = kernel.thread(index).space;
        if self.ports_of[here as usize % PROCESSORS_MAX].0 == SpaceId::NONE {
            self.platform.kernel.without_ports(index);
        } else {
            self.ports_follow(index, space);
        }
        self.enter(index)
    }

    /// Sets the processor up for a thread that uses neither the vector unit nor ports, after another such.
    #[inline(always)]
    pub fn enter(&mut self, index: u32) -> *const Context {
        let kernel = &mut self.platform.kernel;
        let thread = kernel.thread(index);
        let (space, context) = (thread.space, &raw const thread.context);
        arch::set_thread(&thread.context);
        kernel.enter_space(space);
        context
    }

    /// The space and the thread whose ports are on here.
    fn ports_here(&mut self) -> &mut (SpaceId, ThreadId) {
        let here = self.platform.kernel.here() as usize;
        &mut self.ports_of[here % PROCESSORS_MAX]
    }

    /// The running thread was refused a port: lets it have those of its space, if they were not on
    /// yet. Switching to a space is free of ports that way, as long as nobody uses them.
    pub fn ports_wanted(&mut self) -> bool {
        let index = self.current();
        let space = self.platform.kernel.thread(index).space;
        if self.ports_here().0 == space && arch::ports_are_on() {
            return false;
        }
        let kernel = &mut self.platform.kernel;
        let Some(map) = kernel.ports(space) else { return false };
        arch::ports_on(map);
        let id = kernel.id_of(index);
        kernel.with_ports(index);
        *self.ports_here() = (space, id);
        true
    }

    /// Before a thread runs while some space's ports are on: they stay for that space alone.
    #[cold]
    fn ports_follow(&mut self, index: u32, space: SpaceId) {
        let (of, last) = *self.ports_here();
        if of == space {
            self.platform.kernel.pass_ports(last, index);
            self.ports_here().1 = self.platform.kernel.id_of(index);
        } else {
            self.platform.kernel.left_ports(last);
            self.platform.kernel.without_ports(index);
            arch::ports_off();
            *self.ports_here() = NO_PORTS;
        }
    }

    /// Uses idle time: goes on with a checkpoint, keeps zeroed frames ready. Tells whether there is more to do.
    pub fn idle(&mut self) -> bool {
        if core::mem::take(&mut self.unfinished) {
            return true;
        }
        if self.is_poll_wanted() || self.looks.is_next() {
            self.poll();
            return true;
        }
        let kernel = &mut self.platform.kernel;
        let busy = (0..8).all(|_| kernel.prepare_frame(ZEROED_GOAL));
        if !busy {
            kernel.rest();
        }
        busy
    }
}
