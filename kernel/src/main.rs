//! The Gondwana kernel: the privileged part, thin around `kcore`, `sasos` and `store`.
//!
//! [`kernel_start`] is the whole boot in order. After it there are only events ([`event`]): a
//! system call, a trap or an interrupt comes in, takes the lock on [`system`], and leaves to user
//! mode. What is privileged or unsafe stands in [`arch`] and [`mem`].
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod console;
mod debugger;
mod disk;
mod domains;
mod event;
mod log;
mod mem;
mod outside;
mod panic;
mod pc;
mod root;
mod supervisor;
mod system;
mod trace;

use alloc::{format, string::String, vec::Vec};

use abi::{
    host::{CANNOT_START, EXIT_PANIC, SCRIPT_WORD, SERVER_KERNEL, SERVER_NONE, SERVER_USER, SERVER_WORD},
    layout::BootReport,
};
use kcore::{Kernel, thread::THREADS_MAX};
use sasos::Server;
use store::{MountError, MountMode, Store};

use crate::{
    arch::{BootInformation, Vectors},
    mem::{
        device::Resources,
        division::{Division, HeapOf},
    },
    pc::Pc,
    supervisor::Supervisor,
    system::{Platform, SYSTEM, System},
};

/// Where the boot code comes to Rust; `information` is the physical address of what the loader tells.
extern "C" fn kernel_start(information: u64) -> ! {
    let protections = arch::initialise_processor(0);
    let information = BootInformation::read(information).expect("the loader gives PVH start information");
    let server = words(&information)
        .find_map(|word| word.strip_prefix(SERVER_WORD))
        .unwrap_or(SERVER_KERNEL);
    let heap_of = if server == SERVER_USER {
        HeapOf::KernelAlone
    } else {
        HeapOf::Both
    };
    let mut memory = Division::of(&information, heap_of);
    arch::initialise_interrupts();
    log!(
        "gondwana {}: {} MiB, {protections:?}",
        env!("CARGO_PKG_VERSION"),
        memory.bytes >> 20
    );

    let script = words(&information).any(|word| word == SCRIPT_WORD);
    let boot = BootReport {
        script: u64::from(script),
        processors: 1,
        ticks_per_us: arch::ticks_per_us(),
        ..BootReport::default()
    };
    let mut resources = Resources::new(core::mem::take(&mut memory.device_pages), &information);
    let seed = seed(&mut resources);
    let given = if server == SERVER_NONE {
        memory.set_aside()
    } else {
        Vec::new()
    };
    let pc = Pc::new(seed, boot, memory.fixed_frames);
    let mut platform = Platform {
        kernel: Kernel::new(pc, &memory.ranges),
        disk: None,
    };
    let started = match server {
        SERVER_KERNEL => start_server(&mut platform, &mut resources).map(Supervisor::Inside),
        SERVER_USER => outside::start(&mut platform, resources, &information, &memory).map(Supervisor::Outside),
        SERVER_NONE => root::start(&mut platform.kernel, &information, &given).map(|_| Supervisor::Nobody),
        other => Err(format!("there is no server '{other}'")),
    };
    let supervisor = started.unwrap_or_else(|why| give_up(&why));
    domains::fill_kernel_page(&supervisor);
    let vectors = Vectors::new(THREADS_MAX);
    let running = arch::start_processors(&information.processors, |id| log!("processor {id} does not start"));
    if information.processors.unused > 0 {
        log!("{} processors are not used", information.processors.unused);
    }
    platform.kernel.set_processors(running);
    platform.kernel.hardware.boot_mut().processors = u64::from(running.count_ones());
    if !matches!(supervisor, Supervisor::Outside(_)) {
        tell_start(&mut platform);
    }
    arch::enable_serial();
    let mut system = System::new(platform, supervisor, vectors);
    system.poll_when_due();
    SYSTEM.fill(system);
    event::leave()
}

/// Notes and tells when the first program can run.
fn tell_start(platform: &mut Platform) {
    let boot = platform.kernel.hardware.boot_mut();
    boot.boot_ns = arch::now_ns();
    log!(
        "first program after {} us on {} processors",
        boot.boot_ns / 1000,
        boot.processors
    );
}

/// The words of the command line.
fn words(information: &BootInformation) -> impl Iterator<Item = &'static str> + use<> {
    information.command_line.split_whitespace()
}

/// Brings up the disk, the store on it, and the server with its first program.
fn start_server(platform: &mut Platform, resources: &mut Resources) -> Result<Server, String> {
    platform.disk = Some(disk::find(resources)?);
    let (store, report) = Store::mount(platform, MountMode::ReadWrite).map_err(|error| {
        log_losses(platform, &error);
        format!("the disk is refused: {error}")
    })?;
    log!("store: {report:?}");
    platform.kernel.hardware.boot_mut().clean = u64::from(report.clean);
    let mut server = Server::new(store, &report);
    match server.start(platform) {
        Ok(_) => Ok(server),
        Err(error) => Err(format!("the first program does not start: {error}")),
    }
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

/// A seed for passwords: from the processor and, where there is one, from the host.
fn seed(resources: &mut Resources) -> [u8; 32] {
    let mut seed = disk::entropy(resources).unwrap_or_default();
    for place in seed.chunks_exact_mut(8) {
        let word = arch::random_word().unwrap_or_else(arch::now_ns);
        for (byte, more) in place.iter_mut().zip(word.to_le_bytes()) {
            *byte ^= more;
        }
    }
    seed
}

/// Ends the boot with a reason, for the user and for the log.
fn give_up(why: &str) -> ! {
    let line = format!("{CANNOT_START}{why}\n");
    let mut terminal = console::Line::new(0x3f8);
    let mut rest = line.as_bytes();
    for _ in 0..1_000_000 {
        rest = &rest[terminal.write(rest)..];
        if rest.is_empty() {
            break;
        }
    }
    log!("{}", line.trim_end());
    arch::exit(EXIT_PANIC)
}
