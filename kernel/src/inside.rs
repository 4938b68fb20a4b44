//! The server inside the kernel: a system call is one trap.

use alloc::{format, string::String};

use abi::{Call, kernel_page::FEATURE_SERVER};
use kcore::{ThreadId, thread::Operation};
use sasos::{Access, Event, Outcome, Server};
use store::{MountError, MountMode, Store};

use crate::{
    arch::{self, Results},
    disk, event, log,
    mem::{division::HeapOf, lock::Lock},
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
        let (store, report) = Store::mount(platform, MountMode::ReadWrite).map_err(|error| {
            log_losses(platform, &error);
            format!("the disk is refused: {error}")
        })?;
        log!("store: {report:?}");
        platform.kernel.hardware.boot_mut().clean = u64::from(report.clean);
        let started = Server::new(store, &report).and_then(|mut server| server.start(platform).map(|_| server));
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

/// A call that the server inside is known to answer, by its number: nothing is looked up.
pub extern "C" fn listed_call<const NUMBER: u64>(
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    number: u64,
) -> Results {
    let arguments = [a0, a1, a2, a3, a4, a5];
    if let Some(call) = const { Call::from_number(NUMBER) }
        && let Some(mut system) = Inside::system().enter_at_once()
        && let Some(thread) = event::begin_call(&mut system, NUMBER)
    {
        if cfg!(debug_assertions) {
            system.check_now_and_then();
        }
        let System {
            platform, supervisor, ..
        } = &mut *system;
        let outcome = supervisor.server.handle_call(platform, thread, call, arguments);
        let number = NUMBER;
        return event::end_call(system, thread, outcome, || Operation { number, arguments });
    }
    event::general_call::<Inside>(a0, a1, a2, a3, a4, a5, number)
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
