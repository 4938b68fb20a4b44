//! Threads of free spaces: making, deleting, their registers and priorities.

use core::{mem::offset_of, sync::atomic::Ordering::Relaxed};

use abi::{
    Error,
    address::USER_END,
    layout::PRIORITY_MAX,
    nucleus::{
        BUFFER_REGISTERS, EXCHANGE_READ, EXCHANGE_START, EXCHANGE_STOP, EXCHANGE_WRITE, Registers, THREAD_FAULTED,
        THREAD_READY, THREAD_RECEIVING, THREAD_SENDING, THREAD_STOPPED, message_buffer,
    },
};

use crate::{
    Hardware, Kernel, Machine, SpaceId, ThreadId,
    bare::{Bare, going::PIECE_STEPS, ipc, mapping::Progress},
    event::Outcome,
    scheduler::Standing,
    thread::{Context, Resumed, State, USER_FLAGS},
};

/// Flags that a program may have: the arithmetic ones, DF, and TF, so that it can be stepped through.
const FLAGS_FREE: u64 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x800;

/// Steps of a thread's end, beside those of the threads that wait for it.
const END_STEPS: i32 = 80;

/// General registers, which stand first in a context and in [`Registers`], in the same order.
const GENERAL: usize = 15;
const _: () =
    assert!(offset_of!(Context, rax) == offset_of!(Registers, rax) && offset_of!(Context, rax) == 8 * (GENERAL - 1));

/// The registers of a context.
fn registers(context: &Context) -> Registers {
    let mut words = [0; Registers::WORDS];
    words[..GENERAL].copy_from_slice(&context.to_words()[..GENERAL]);
    Registers {
        rip: context.rip,
        rflags: context.rflags,
        rsp: context.rsp,
        ..Registers::from_words(words)
    }
}

/// The context of registers that a program gave: selectors and the other flags are constant.
///
/// # Errors
/// [`Error::BadAddress`] if the next instruction or the stack is no user address: `iretq` and
/// `sysretq` would fault in the kernel.
fn context(registers: &Registers) -> Result<Context, Error> {
    check_entry(registers.rip, registers.rsp)?;
    let mut words = Context::scrubbed(registers.rip, registers.rsp).to_words();
    words[..GENERAL].copy_from_slice(&registers.to_words()[..GENERAL]);
    let mut context = Context::from_words(words);
    context.rflags = USER_FLAGS | registers.rflags & FLAGS_FREE;
    Ok(context)
}

/// An instruction and a stack that user code may have.
fn check_entry(rip: u64, rsp: u64) -> Result<(), Error> {
    if rip >= USER_END || rsp > USER_END {
        return Err(Error::BadAddress);
    }
    Ok(())
}

impl<H: Hardware> Kernel<H, Bare> {
    /// The root program's first thread, and any that the kernel makes for it: as `ThreadCreate` does it.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the space cannot pay for it; [`Error::NoMemory`], [`Error::TableFull`]; [`Error::BadArgument`] if the space is
    /// not free.
    pub fn nucleus_thread(
        &mut self,
        space: SpaceId,
        [rip, rsp, parameter]: [u64; 3],
        priority: u8,
    ) -> Result<ThreadId, Error> {
        check_entry(rip, rsp)?;
        let thread = self
            .thread_create(space, rip, rsp, [parameter, 0, 0, 0], Standing::new(0, priority))
            .map_err(|_| Error::TableFull)?;
        let index = thread.index() as u32;
        if let Err(error) = self.add_buffer(index, space) {
            self.thread_destroy(thread);
            return Err(error);
        }
        if self.half.nucleus.supervisor(space) != 0 {
            self.supervise_one(index);
        }
        self.thread_wake(thread, Resumed::First);
        Ok(thread)
    }

    pub(super) fn bare_thread_create(
        &mut self,
        me: u32,
        space: u64,
        start: [u64; 3],
        priority: u64,
    ) -> Result<(u64, u64), Error> {
        let caller = self.thread(me).space;
        let space = self.space_own_or_below(caller, space)?;
        let priority = self.bounded(me, priority)?;
        let thread = self.nucleus_thread(space, start, priority)?;
        Ok((thread.0, message_buffer(thread.0)))
    }

    /// A priority that a thread may give.
    fn bounded(&self, me: u32, priority: u64) -> Result<u8, Error> {
        let most = self.thread(me).standing.priority();
        if priority > PRIORITY_MAX {
            return Err(Error::BadArgument);
        }
        if priority > u64::from(most) {
            return Err(Error::Protection);
        }
        Ok(priority as u8)
    }

    /// A thread by its identifier (0: the caller), if the caller is in its space or above it, and its end has not begun.
    fn thread_below(&self, me: u32, id: u64) -> Result<u32, Error> {
        let index = self.ending_or_below(me, id)?;
        if self.is_ending(index) {
            return Err(Error::NoSuchThread);
        }
        Ok(index)
    }

    /// The same of one whose end may have begun.
    fn ending_or_below(&self, me: u32, id: u64) -> Result<u32, Error> {
        if id == 0 {
            return Ok(me);
        }
        let index = self.threads().find(ThreadId(id)).ok_or(Error::NoSuchThread)?;
        let (caller, space) = (self.thread(me).space, self.thread(index).space);
        if caller != space && !self.half.nucleus.is_above(caller, space) {
            return Err(Error::Protection);
        }
        Ok(index)
    }

    pub(super) fn delete_call(&mut self, me: u32, id: u64) -> Outcome {
        let mut steps = PIECE_STEPS;
        match self.ending_or_below(me, id) {
            Ok(index) if self.bare_thread_delete(index, &mut steps) == Progress::More => Outcome::Again,
            Ok(index) if index == me => Outcome::Gone,
            Ok(_) => Outcome::Return(Ok((0, 0))),
            Err(error) => Outcome::Return(Err(error)),
        }
    }

    /// Deletes a thread, wherever it is, or goes on with that. It does nothing else any more.
    pub(super) fn bare_thread_delete(&mut self, index: u32, steps: &mut i32) -> Progress {
        if self.current() != Some(index) {
            self.forget_going(index);
            self.detach(index);
        }
        if self.forget_messages(index, steps) == Progress::More {
            return Progress::More;
        }
        *steps -= END_STEPS;
        let space = self.thread(index).space;
        let id = self.id_of(index);
        self.thread_destroy(id);
        self.drop_buffer(index, space);
        Progress::Done
    }

    pub(super) fn change_priority(&mut self, me: u32, id: u64, priority: u64) -> Result<(u64, u64), Error> {
        let index = self.thread_below(me, id)?;
        let priority = self.bounded(me, priority)?;
        let id = self.id_of(index);
        self.thread_set_priority(id, priority);
        Ok((0, 0))
    }

    pub(super) fn thread_exchange(&mut self, me: u32, id: u64, what: u64) -> Result<(u64, u64), Error> {
        if what & !(EXCHANGE_STOP | EXCHANGE_READ | EXCHANGE_WRITE | EXCHANGE_START) != 0 {
            return Err(Error::BadArgument);
        }
        let index = self.thread_below(me, id)?;
        if index == me {
            return Err(Error::BadArgument);
        }
        let frame = self.buffer(me)?;
        let written = if what & EXCHANGE_WRITE != 0 {
            let page = self.hardware.table(frame);
            let mut words = [0; Registers::WORDS];
            for (word, place) in words.iter_mut().zip(page.iter().skip(BUFFER_REGISTERS)) {
                *word = place.load(Relaxed);
            }
            Some(context(&Registers::from_words(words))?)
        } else {
            None
        };
        // From here on it cannot fail. Its registers may be in another processor.
        self.hold(index);
        let before = self.thread_state(index);
        if what & EXCHANGE_STOP != 0 {
            self.stop_thread(index);
        }
        if what & EXCHANGE_READ != 0 {
            let words = registers(&self.thread(index).context.whole()).to_words();
            let page = self.hardware.table(frame);
            for (word, place) in words.iter().zip(page.iter().skip(BUFFER_REGISTERS)) {
                place.store(*word, Relaxed);
            }
        }
        if let Some(context) = written {
            self.write_registers(index, context);
        }
        if what & EXCHANGE_START != 0 && self.thread(index).state == State::Suspended {
            let id = self.id_of(index);
            self.thread_wake(id, Resumed::Woken);
        }
        Ok((before, 0))
    }

    fn thread_state(&self, index: u32) -> u64 {
        let thread = self.thread(index);
        match thread.state {
            _ if thread.ipc.trouble.is_some() => THREAD_FAULTED,
            State::Sending(_) => THREAD_SENDING,
            State::Receiving => THREAD_RECEIVING,
            State::Suspended => THREAD_STOPPED,
            State::Ready | State::Running | State::Parked(_) | State::Free => THREAD_READY,
        }
    }

    /// Takes a thread off. An operation that it waits in is done again when it is started; a fault is run into again.
    fn stop_thread(&mut self, index: u32) {
        let thread = self.thread(index);
        if thread.state == State::Receiving && thread.ipc.trouble.is_none() {
            let operation = ipc::receiving(&thread.ipc);
            self.set_operation(index, Some(operation));
        }
        self.messages_of(index).trouble = None;
        self.forget_going(index);
        self.detach(index);
    }

    /// New registers. A thread that waits for a message goes on with them instead; one in trouble waits on.
    fn write_registers(&mut self, index: u32, context: Context) {
        let thread = self.thread(index);
        let waits = matches!(thread.state, State::Sending(_) | State::Receiving) && thread.ipc.trouble.is_none();
        if waits {
            self.cancel_messages(index);
        }
        self.forget_going(index);
        self.begin_anew(index, context);
        if waits {
            self.enqueue(index);
        }
    }
}
