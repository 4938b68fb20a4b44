//! The boot, in order, up to the first event.

use alloc::format;

use abi::{
    host::{CANNOT_START, EXIT_PANIC, SCRIPT_WORD},
    layout::BootReport,
};
use kcore::{Half, Kernel};

use crate::{
    arch::{self, BootInformation, Vectors},
    console, disk, domains, event, log,
    mem::{device::Resources, division::Division},
    pc::Pc,
    supervisor::{Start, Supervisor},
    system::{Platform, System},
};

/// The whole boot; `information` is the physical address of what the loader tells.
pub fn start<S: Supervisor>(information: u64) -> ! {
    let protections = arch::initialise_processor(0, S::ENTRY);
    let information = BootInformation::read(information).expect("the loader gives PVH start information");
    let mut memory = Division::of(&information, S::HEAP);
    arch::initialise_interrupts();
    log!(
        "gondwana {}: {} MiB, {protections:?}",
        env!("CARGO_PKG_VERSION"),
        memory.bytes >> 20
    );

    let script = information
        .command_line
        .split_whitespace()
        .any(|word| word == SCRIPT_WORD);
    let mut resources = Resources::new(core::mem::take(&mut memory.device_pages), &information);
    let (seed, random_sources) = seed(&mut resources);
    if random_sources == 0 {
        log!("neither RDRAND nor virtio-rng: passwords come from the disk's secret and the clock");
    }
    let boot = BootReport {
        script: u64::from(script),
        processors: 1,
        ticks_per_us: arch::ticks_per_us(),
        random_sources,
        ..BootReport::default()
    };
    let given = S::set_aside(&mut memory);
    let pc = Pc::new(seed, boot, memory.fixed_frames);
    let mut platform = Platform {
        kernel: Kernel::new(pc, &memory.ranges),
        disk: None,
    };
    // Before the first thread, whose place has room for its registers.
    platform.kernel.hardware.vectors = Vectors::new(<S::Half as Half>::THREADS_MAX);
    let start = Start {
        resources,
        information: &information,
        memory: &memory,
        given,
    };
    let supervisor = S::start(&mut platform, start).unwrap_or_else(|why| give_up(&why));
    domains::fill_kernel_page::<S>();
    let running = arch::start_processors(&information.processors, |id| log!("processor {id} does not start"));
    if information.processors.unused > 0 {
        log!("{} processors are not used", information.processors.unused);
    }
    platform.kernel.set_processors(running);
    platform.kernel.hardware.boot_mut().processors = u64::from(running.count_ones());
    if S::IS_READY {
        tell_start(&mut platform);
    }
    arch::enable_serial();
    run(platform, supervisor)
}

/// Puts the parts behind the lock, and leaves for the first event. Not inlined: the large values that are moved here would be
/// on the stack while the store is mounted, too.
#[inline(never)]
fn run<S: Supervisor>(platform: Platform<S::Half>, supervisor: S) -> ! {
    let mut system = System::new(platform, supervisor);
    system.poll_when_due();
    S::system().fill(system);
    let (used, all) = arch::stack_used();
    log!("the boot used {} of {} KiB of stack", used >> 10, all >> 10);
    event::leave::<S>()
}

/// Notes and tells when the first program can run.
pub fn tell_start(platform: &mut Platform<impl Half>) {
    let boot = platform.kernel.hardware.boot_mut();
    boot.boot_ns = arch::now_ns();
    log!(
        "first program after {} us on {} processors",
        boot.boot_ns / 1000,
        boot.processors
    );
}

/// A seed for passwords, from the processor, from the host and from the clock, and which of the first two were there (as in
/// the [`BootReport`]). The server stirs in a secret of the disk before the first password is drawn (decision 0092).
fn seed(resources: &mut Resources) -> ([u8; 32], u64) {
    let given = disk::entropy(resources);
    let mut sources = 2 * u64::from(given.is_some());
    let mut seed = given.unwrap_or_default();
    for place in seed.chunks_exact_mut(8) {
        let word = arch::random_word();
        sources |= u64::from(word.is_some());
        let word = word.unwrap_or_default() ^ arch::now_ns() ^ arch::time_of_day_ns().rotate_left(32);
        for (byte, more) in place.iter_mut().zip(word.to_le_bytes()) {
            *byte ^= more;
        }
    }
    (seed, sources)
}

/// Ends the boot with a reason, for the user and for the log.
pub fn give_up(why: &str) -> ! {
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
