//! The server as a program outside of the kernel (decision 0038): the same `sasos`, `store` and `drivers`, in user mode.
//!
//! The kernel loads it from a boot module. [`main`] brings up the disk, the store on it and the server with its first
//! program, and says that it is ready. After that there are only events: each enters at [`arch::entry`] on the one
//! stack, goes through [`handle`], and ends with an answer to the kernel. In between the server asks for what it needs
//! with machine calls ([`kcore::outside::Remote`]); memory it sees through the window ([`mem`]).
//!
//! It is one state machine and holds no thread; the kernel brings one event at a time.
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod devices;
mod mem;
mod world;

use abi::{
    Rights,
    machine::{MachineCall, Upcall},
};
use alloc::format;
use kcore::{
    Machine, ThreadId,
    outside::{Gate, operation_to_words, resumed_of},
};
use nucleus::RootPage;
use sasos::{Access, Event, Outcome, Server};
use store::{MountMode, Store};

use crate::{
    arch::Registers,
    mem::{Window, state},
    world::World,
};

/// Everything the server is, between events.
pub struct State {
    server: Server,
    world: World,
    /// Whether work is unfinished, as the kernel was told last.
    unfinished: bool,
}

nucleus::entry!(main);

/// Brings the server up.
fn main(_root: RootPage) {
    let (window, surroundings) = Window::open();
    mem::heap::initialise(&surroundings);
    let mut world = match World::new(window, &surroundings) {
        Ok(world) => world,
        Err((machine, why)) => give_up(&machine, &format!("{why}")),
    };
    let leaves = sasos::calls::boot::leaves_for(&world);
    let (store, report) = match Store::mount_in_parts(&mut world, MountMode::ReadWrite, leaves) {
        Ok(mounted) => mounted,
        Err(error) => give_up(&world.machine, &format!("the disk is refused: {error}")),
    };
    world.log(format_args!("store: {report:?}"));
    let started = Server::new(&mut world, store, &report).and_then(|mut server| {
        server.price_calls(kcore::outside::Remote::<Window>::CALL);
        server.start(&mut world).map(|_| server)
    });
    let server = match started {
        Ok(server) => server,
        Err(error) => give_up(&world.machine, &format!("the first program does not start: {error}")),
    };
    state::fill(State {
        server,
        world,
        unfinished: false,
    });
    arch::ready(report.clean)
}

/// Ends the boot with a reason.
fn give_up(machine: &kcore::outside::Remote<Window>, why: &str) -> ! {
    let length = machine.put_bytes(why.as_bytes()) as u64;
    // The kernel does not come back from it.
    let _ = machine.gate.call(MachineCall::GiveUp, [length, 0, 0, 0, 0, 0]);
    panic!("{why}")
}

/// Answers the simplest calls: their value.
#[inline(always)]
pub fn immediate(state: &State, thread: u64, number: u64) -> Option<u64> {
    state.server.immediate(ThreadId(thread), number)
}

/// Takes an event; gives the answer, as a machine call.
pub fn handle(state: &mut State, registers: &Registers) -> (MachineCall, [u64; 3]) {
    let State {
        server,
        world,
        unfinished,
    } = state;
    let event = event_of(registers);
    if matches!(event, Event::Poll) {
        world.disk.acknowledge();
    }
    let outcome = server.handle(world, event);
    if *unfinished != server.is_unfinished() {
        *unfinished = server.is_unfinished();
        world.machine.tell_unfinished(*unfinished);
    }
    match outcome {
        Outcome::Return(Ok((value, value2))) => (MachineCall::AnswerReturn, [0, value, value2]),
        Outcome::Return(Err(error)) => (MachineCall::AnswerReturn, [error as u64, 0, 0]),
        Outcome::Block(key, deadline) => {
            let (kind, value) = key.to_words();
            world
                .machine
                .put(operation_to_words(registers.first, registers.arguments));
            (MachineCall::AnswerBlock, [kind, value, deadline.unwrap_or(u64::MAX)])
        }
        Outcome::Again => {
            world
                .machine
                .put(operation_to_words(registers.first, registers.arguments));
            (MachineCall::AnswerAgain, [0; 3])
        }
        Outcome::Resume => (MachineCall::AnswerResume, [0; 3]),
        Outcome::Gone => (MachineCall::AnswerGone, [0; 3]),
    }
}

/// The event that came in registers.
fn event_of(registers: &Registers) -> Event {
    let Registers {
        kind,
        thread,
        first,
        arguments,
    } = *registers;
    let thread = ThreadId(thread);
    if let Some(resumed) = resumed_of(kind) {
        return Event::Call {
            thread,
            number: first,
            arguments,
            resumed,
        };
    }
    match Upcall::from_number(kind) {
        Some(Upcall::Fault) => {
            let access = match Rights::from_bits(arguments[0]) {
                Some(Rights::X) => Access::Execute,
                Some(Rights::W) => Access::Write,
                _ => Access::Read,
            };
            Event::Fault {
                thread,
                address: first,
                access,
            }
        }
        Some(Upcall::Exception) => Event::Exception {
            thread,
            kind: first,
            address: arguments[0],
        },
        Some(Upcall::Interrupt) => Event::Interrupt,
        _ => Event::Poll,
    }
}
