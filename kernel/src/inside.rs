//! The server inside the kernel: a system call is one trap.

use alloc::{format, string::String};

use abi::{Call, Error, kernel_page::FEATURE_SERVER};
use kcore::{SpaceId, ThreadId, thread::Operation};
use sasos::{Access, Event, Outcome, Reply, Server};
use store::{MountError, MountMode, Store};

use crate::{
    arch::{self, Arguments, Results},
    disk, event, log,
    mem::{
        division::HeapOf,
        lock::{Guard, Lock},
    },
    supervisor::{Start, Supervisor},
    system::{Platform, System, TheSystem},
};

/// The system of this image.
pub static SYSTEM: TheSystem<Inside> = Lock::empty();

/// The server, as the kernel sees it.
pub struct Inside {
    /// The server itself.
    pub server: Server,
}

impl Supervisor for Inside {
    type Half = ();

    const FEATURES: u64 = FEATURE_SERVER;
    const HEAP: HeapOf = HeapOf::Both;
    const ENTRY: arch::Entry = arch::ENTRY_INSIDE;

    fn system() -> &'static TheSystem<Self> {
        &SYSTEM
    }

    /// Brings up the disk, the store on it, and the server with its first program.
    fn start(platform: &mut Platform, mut start: Start<'_>) -> Result<Self, String> {
        platform.disk = Some(disk::find(&mut start.resources)?);
        let leaves = sasos::calls::boot::leaves_for(platform);
        let (store, report) = Store::mount_in_parts(platform, MountMode::ReadWrite, leaves).map_err(|error| {
            log_losses(platform, &error);
            format!("the disk is refused: {error}")
        })?;
        log!("store: {report:?}");
        platform.kernel.hardware.boot_mut().clean = u64::from(report.clean);
        let started =
            Server::new(platform, store, &report).and_then(|mut server| server.start(platform).map(|_| server));
        started
            .map(|server| Self { server })
            .map_err(|error| format!("the first program does not start: {error}"))
    }

    #[inline(always)]
    fn handle(&mut self, platform: &mut Platform, event: Event) -> Outcome {
        self.server.handle(platform, event)
    }

    #[inline(always)]
    fn immediate(&self, thread: ThreadId, number: u64) -> Option<u64> {
        self.server.immediate(thread, number)
    }

    #[inline(always)]
    fn yields(&self, number: u64, first: u64, second: u64) -> bool {
        self.server.yields(number, first, second)
    }

    #[inline(always)]
    fn touch_further(&mut self, platform: &mut Platform, thread: ThreadId, address: u64, access: Access) -> bool {
        self.server.touch_further(platform, thread, address, access).is_some()
    }

    #[inline(always)]
    fn is_unfinished(&self) -> bool {
        self.server.is_unfinished()
    }
}

/// Answers a call of this thread in this space, by its number: nothing is looked up, and what a call leaves to be looked at is one flag of the kernel's and one of
/// the server's.
#[inline(always)]
pub fn answer<const NUMBER: u64>(
    mut system: Guard<'_, System<Inside>>,
    arguments: &Arguments,
    thread: ThreadId,
    space: SpaceId,
) -> Results {
    event::begin_call(&mut system, thread, NUMBER);
    let System {
        platform, supervisor, ..
    } = &mut *system;
    let server = &mut supervisor.server;
    let reply = match const { Call::from_number(NUMBER) } {
        Some(call) => server.begin_call(platform, thread, space, call, *arguments),
        None => Err(Error::BadCall.into()).into(),
    };
    let Some((value, value2)) = reply.values() else {
        return end(system, arguments, NUMBER, thread, reply);
    };
    if server.is_call_over() && platform.kernel.is_undisturbed(thread.index() as u32) {
        return Results::values(value, value2);
    }
    end_with_values(system, arguments, NUMBER, thread, value, value2)
}

/// [`end`] of a call that has values. They come in registers, so that a call that is simply over does not write a reply to memory first.
#[inline(never)]
fn end_with_values(
    system: Guard<'_, System<Inside>>,
    arguments: &Arguments,
    number: u64,
    thread: ThreadId,
    value: u64,
    value2: u64,
) -> Results {
    end(system, arguments, number, thread, Ok((value, value2)).into())
}

/// Goes on after a call that is not simply over.
#[inline(never)]
fn end(
    mut system: Guard<'_, System<Inside>>,
    arguments: &Arguments,
    number: u64,
    thread: ThreadId,
    reply: Reply,
) -> Results {
    let System {
        platform, supervisor, ..
    } = &mut *system;
    let outcome = supervisor.server.end_call(platform, thread, reply);
    if let Outcome::Gone = outcome
        && let Some(turn) = system.passed_on()
    {
        event::switch(system, turn)
    }
    event::end_call(system, thread, outcome, || Operation {
        number,
        arguments: *arguments,
    })
}

/// The functions that the image comes to.
pub mod entries {
    crate::arch::entries!(super::Inside);
}

/// Writes to the log all that a refused disk has lost.
fn log_losses(platform: &mut Platform, error: &MountError) {
    if matches!(error, MountError::Loss(_))
        && let Ok((store, report)) = Store::mount(platform, MountMode::ReadOnly)
    {
        report.losses.iter().for_each(|loss| log!("store: {loss}"));
        store.dismantle(platform);
    }
}
