//! The Gondwana kernel: the privileged part, thin around `kcore`, `sasos` and `store`.
//!
//! [`kernel_start`] is the whole boot in order. After it there are only events ([`event`]): a
//! system call, a trap or an interrupt comes in, takes the lock on [`system`], and leaves to user
//! mode. What is privileged or unsafe stands in [`arch`], [`mem`] and [`lock`].
#![no_std]
#![no_main]

extern crate alloc;

mod log;
mod lock;
mod arch;
mod mem;
mod console;
mod disk;
mod pc;
mod system;
mod event;

use alloc::vec::Vec;

use abi::{
    address::PAGE,
    host::{EXIT_PANIC, SCRIPT_WORD},
    layout::BootReport,
};
use kcore::{Frame, Kernel, frames::Range, thread::THREADS_MAX};
use sasos::Server;
use store::{MountMode, Store};

use crate::{
    arch::{BootInformation, Vectors},
    disk::{Resources, VirtioDisk},
    mem::heap,
    pc::Pc,
    system::{Platform, SYSTEM, System},
};

/// Pages that drivers may share with devices.
const DEVICE_PAGES: usize = 32;
/// Least and most that is put aside for the heap, in bytes.
const HEAP_LEAST: u64 = 8 << 20;
const HEAP_MOST: u64 = 1 << 30;

/// Where the boot code comes to Rust; `information` is the physical address of what the loader tells.
extern "C" fn kernel_start(information: u64) -> ! {
    let protections = arch::initialise_processor();
    let information = BootInformation::read(information).expect("the loader gives PVH start information");
    let memory = claim_memory(&information);
    arch::initialise_interrupts();
    log!("gondwana {}: {} MiB, {protections:?}", env!("CARGO_PKG_VERSION"), memory.bytes >> 20);

    let script = information.command_line.split_whitespace().any(|word| word == SCRIPT_WORD);
    let boot = BootReport { script: u64::from(script), processors: 1, ticks_per_us: arch::ticks_per_us(), ..BootReport::default() };
    let mut resources = Resources::new(memory.device_pages, information);
    let seed = seed(&mut resources);
    let pc = Pc::new(seed, boot, memory.fixed_frames);
    let disk = match VirtioDisk::find(&mut resources) {
        Ok(disk) => disk,
        Err(why) => give_up(&why),
    };
    let kernel = Kernel::new(pc, &memory.ranges);
    let mut platform = Platform { kernel, disk };
    let (store, report) = match Store::mount(&mut platform, MountMode::ReadWrite) {
        Ok(mounted) => mounted,
        Err(error) => give_up(&alloc::format!("the disk is refused: {error:?}")),
    };
    log!("store: {report:?}");
    let vectors = Vectors::new(THREADS_MAX);
    let mut server = Server::new(store, &report);
    if let Err(error) = server.start(&mut platform) {
        give_up(&alloc::format!("the first program does not start: {error}"));
    }
    platform.kernel.hardware.boot_mut().boot_ns = arch::now_ns();
    log!("first program after {} us", arch::now_ns() / 1000);
    arch::enable_serial();
    // SAFETY: the boot comes here once.
    unsafe { SYSTEM.fill(System::new(platform, server, vectors)) };
    event::leave()
}

/// Memory, divided.
struct Division {
    /// For the allocator of frames.
    ranges: Vec<Range>,
    /// For drivers.
    device_pages: Vec<Frame>,
    /// Frames that the kernel keeps: image, tables, pages for drivers.
    fixed_frames: u64,
    /// All of it.
    bytes: u64,
}

/// Divides memory: kernel image, heap, the kernel's page tables, pages for drivers, the rest.
fn claim_memory(information: &BootInformation) -> Division {
    let mut memory = information.memory;
    let memory = &mut memory[..information.memory_count];
    let bytes: u64 = memory.iter().map(|range| range.1 - range.0).sum();
    for range in memory.iter_mut() {
        if range.0 < arch::kernel_end() {
            range.0 = arch::kernel_end().min(range.1);
        }
    }
    // The heap lies at the end of the largest range below 4 GiB, which is mapped from the start.
    let largest = memory.iter_mut().filter(|range| range.1 <= 4 << 30).max_by_key(|range| range.1 - range.0).expect("memory below 4 GiB");
    let heap_bytes = (bytes / 8).clamp(HEAP_LEAST, HEAP_MOST).min((largest.1 - largest.0) / 2) & !0xfff;
    largest.1 -= heap_bytes;
    // SAFETY: (1) the range was just taken out of memory; (2) the boot comes here once.
    unsafe { heap::initialise(arch::DIRECT_MAP + largest.1, arch::DIRECT_MAP + largest.1 + heap_bytes) };
    let mut fixed_frames = (arch::kernel_end() - (1 << 20)) / PAGE;
    let mut take = || {
        fixed_frames += 1;
        largest.1 -= PAGE;
        let frame = Frame((largest.1 >> 12) as u32);
        arch::zero(frame);
        frame
    };
    let device_pages = (0..DEVICE_PAGES).map(|_| take()).collect();
    let end = information.memory[..information.memory_count].iter().map(|range| range.1).max().unwrap_or(0);
    arch::build_tables(end, &mut take);
    let ranges = memory.iter().map(|range| ((range.0 >> 12) as u32, (range.1 >> 12) as u32)).filter(|range| range.0 < range.1).collect();
    Division { ranges, device_pages, fixed_frames, bytes }
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
    let line = alloc::format!("gondwana cannot start: {why}\n");
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

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    log!("panic: {information}");
    arch::exit(EXIT_PANIC)
}
