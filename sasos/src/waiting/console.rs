//! The terminal and the control line, byte streams that the kernel below keeps.
//!
//! Bytes pass through a small buffer here, never by reference to user memory. Bytes that were taken from
//! a stream but could not be stored (the reader's page is on its way from the disk) wait in
//! `taken` for the next read, so nothing is lost or seen twice.
//!
//! Every task may write to the terminal and read from it; the control line is the first task's alone. The tasks that *hold* the terminal decide what its interrupt character ends:
//! the first task, and each task that a holder has given the foreground to, until that task ends or a holder before it
//! takes the foreground back. A holder may keep the character from all, or pass it to one child after another. So whoever types it three times within a second
//! ends the task that the first task gave the foreground to, whatever that has done with it.

use abi::{
    Error, Rights,
    call::arguments::{ConsoleForeground, ConsoleRead, ConsoleWrite},
    layout::{EXCEPTION_INTERRUPT, STREAM_CONTROL, STREAM_TERMINAL},
};
use kcore::wait::Key;

use crate::lives::budget::Cost;
use crate::{Answer, Outcome, Server, Stop, World, lives::task::TaskId, lives::thread::Caller};

/// Bytes that pass in one piece.
const PIECE: usize = 256;
/// The cost of writing a piece, in instructions, roughly: some ten a byte. So a call writes four of them.
const COST_PIECE: Cost = Cost::calling(3000, 1);
const STREAMS: usize = STREAM_CONTROL as usize + 1;
/// Tasks that may hold the terminal one through the other, the first task left out.
const HOLDERS_MAX: usize = 8;

/// The time within which the interrupt character typed three times ends the first holder.
const INSISTS_NS: u64 = 1_000_000_000;

/// The state of the console streams.
#[derive(Default)]
pub struct Console {
    /// When the interrupt character was typed the last times.
    typed_ns: [Option<u64>; 2],
    /// The task that an interrupt at the terminal ends.
    foreground: Option<TaskId>,
    /// The tasks that were given the foreground, each by the one before it, the first by the first task.
    holders: [Option<TaskId>; HOLDERS_MAX],
    taken: [Taken; STREAMS],
}

/// Bytes that were taken from a stream and that nobody has yet.
#[derive(Default)]
struct Taken {
    bytes: Piece,
    count: usize,
}

struct Piece([u8; PIECE]);

impl Default for Piece {
    fn default() -> Self {
        Self([0; PIECE])
    }
}

impl Console {
    /// A task has ended.
    pub fn task_ended(&mut self, task: TaskId) {
        self.foreground.take_if(|foreground| *foreground == task);
        if let Some(place) = self.place_of(task) {
            self.holders[place..].rotate_left(1);
            self.holders[HOLDERS_MAX - 1] = None;
        }
    }

    fn place_of(&self, task: TaskId) -> Option<usize> {
        self.holders.iter().position(|&holder| holder == Some(task))
    }

    /// The holder with `above` holders before it passes the foreground on, or keeps it from all.
    fn pass(&mut self, above: usize, task: Option<TaskId>) -> Result<(), Error> {
        if task.is_some() && above >= HOLDERS_MAX {
            return Err(Error::LimitReached);
        }
        self.holders[above..].fill(None);
        if let Some(place) = self.holders.get_mut(above) {
            *place = task;
        }
        self.foreground = task;
        Ok(())
    }

    /// The task that the interrupt character ends which is typed at a time.
    fn interrupted(&mut self, now_ns: u64) -> Option<TaskId> {
        let [before, last] = self.typed_ns;
        self.typed_ns = [last, Some(now_ns)];
        let insists = before.is_some_and(|before| now_ns.saturating_sub(before) < INSISTS_NS);
        let first = self.holders[0].filter(|_| insists);
        if first.is_some() {
            self.typed_ns = [None; 2];
        }
        first.or(self.foreground.take())
    }
}

impl Server {
    /// The place of a stream. The control line is the first task's: the tool at its other end believes what comes over it.
    fn checked_stream(&mut self, caller: Caller, stream: u64) -> Result<usize, Error> {
        match stream {
            STREAM_TERMINAL => {}
            STREAM_CONTROL if self.tasks.initial == Some(caller.task) && self.at_home(caller) => {}
            STREAM_CONTROL => return Err(Error::Protection),
            _ => return Err(Error::BadArgument),
        }
        Ok(stream as usize)
    }

    /// `ConsoleWrite`: stream, address, bytes.
    pub fn console_write(&mut self, world: &mut impl World, caller: Caller, arguments: ConsoleWrite) -> Outcome {
        let ConsoleWrite { stream, address, bytes } = arguments;
        if let Err(error) = self.checked_stream(caller, stream) {
            return Outcome::Return(Err(error));
        }
        let mut written = 0;
        // The caller writes the rest with another call.
        while written < bytes && self.budget.spend(COST_PIECE) {
            let mut piece = [0; PIECE];
            let length = (bytes - written).min(PIECE as u64) as usize;
            let read = self.read_user(
                world,
                caller.domain,
                address.wrapping_add(written),
                &mut piece[..length],
            );
            let stopped = match read {
                Ok(()) => {
                    let taken = world.console_write(stream, &piece[..length]);
                    written += taken as u64;
                    (taken < length).then_some(Stop::Wait(Key::ConsoleOut(stream)))
                }
                Err(stop) => Some(stop),
            };
            match stopped {
                None => {}
                Some(stop) if written == 0 => return Outcome::from(Err(stop)),
                Some(_) => break,
            }
        }
        Outcome::Return(Ok((written, 0)))
    }

    /// `ConsoleRead`: stream, address, bytes.
    pub fn console_read(&mut self, world: &mut impl World, caller: Caller, arguments: ConsoleRead) -> Outcome {
        let ConsoleRead { stream, address, bytes } = arguments;
        let stream_index = match self.checked_stream(caller, stream) {
            Ok(index) => index,
            Err(error) => return Outcome::Return(Err(error)),
        };
        let wanted = bytes.min(PIECE as u64) as usize;
        if wanted == 0 {
            return Outcome::Return(Ok((0, 0)));
        }
        // A buffer that is none is refused now, not when input comes.
        if let Err(stop) = self.validate(world, caller.domain, address, Rights::W) {
            return Outcome::from(Err(stop));
        }
        let taken = &mut self.console.taken[stream_index];
        while taken.count < wanted {
            let Some(byte) = world.console_read(stream) else { break };
            taken.bytes.0[taken.count] = byte;
            taken.count += 1;
        }
        if taken.count == 0 {
            let ends = stream == STREAM_TERMINAL && world.boot_report().script != 0;
            return if ends {
                Outcome::Return(Ok((0, 0)))
            } else {
                Outcome::Block(Key::ConsoleIn(stream), None)
            };
        }
        let (piece, length) = (taken.bytes.0, taken.count.min(wanted));
        match self.write_user(world, caller.domain, address, &piece[..length]) {
            Ok(()) => {
                let taken = &mut self.console.taken[stream_index];
                taken.bytes.0.copy_within(length.., 0);
                taken.count -= length;
                Outcome::Return(Ok((length as u64, 0)))
            }
            Err(stop) => Outcome::from(Err(stop)),
        }
    }

    /// `ConsoleForeground`: thread (0: none).
    pub(crate) fn console_foreground(
        &mut self,
        _world: &mut impl World,
        caller: Caller,
        arguments: ConsoleForeground,
    ) -> Answer {
        let thread = arguments.thread;
        let task = if thread == 0 {
            None
        } else {
            Some(self.task_of_child(caller, thread)?)
        };
        self.pass_foreground(caller, task)?;
        Ok((0, 0))
    }

    /// Gives the foreground to a child of the caller, or keeps it from all. `Protection` if the caller does not hold the terminal.
    pub(crate) fn pass_foreground(&mut self, caller: Caller, task: Option<TaskId>) -> Result<(), Error> {
        let holder = if self.tasks.initial == Some(caller.task) {
            Some(0)
        } else {
            self.console.place_of(caller.task).map(|place| place + 1)
        };
        let above = holder.filter(|_| self.at_home(caller)).ok_or(Error::Protection)?;
        self.console.pass(above, task)
    }

    /// The terminal's interrupt character. `Gone` if it has ended the foreground task; otherwise it
    /// is a character like any other.
    pub fn interrupt(&mut self, world: &impl World) -> Outcome {
        match self.console.interrupted(world.now_ns()) {
            Some(task) if self.tasks.get(task).is_some() => {
                self.task_kill(task, EXCEPTION_INTERRUPT);
                Outcome::Gone
            }
            _ => Outcome::Resume,
        }
    }
}
