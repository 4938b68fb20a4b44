//! How physical memory is divided at the start. This happens once; the heap and the frame allocator
//! live on what it gives them.

use alloc::vec::Vec;

use abi::address::{PAGE, PAGES_PER_SLOT};
use abi::host::{HEAP_MOST, HEAP_PART};
use kcore::frames::Range;

use super::heap;
use crate::arch::{self, BootInformation};

/// Pages that drivers may share with devices.
const DEVICE_PAGES: usize = 32;
/// The least that is put aside for the heap, in bytes.
const HEAP_LEAST: u64 = 8 << 20;

/// The size of the kernel's own heap if the server has one of its own: tables of threads, spaces and ways.
const HEAP_KERNEL: u64 = 6 << 20;
/// And a byte for so many bytes of memory: the counts of frames.
const HEAP_SHARE: u64 = 512;

/// The place of the server, and with it the heap for its tables.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HeapOf {
    /// One heap serves kernel and server.
    Both,
    /// The server has its own.
    KernelAlone,
}

/// Memory, divided.
pub struct Division {
    /// For the allocator of frames.
    pub ranges: Vec<Range>,
    /// For the heap of a server outside: physical start and end in bytes; empty otherwise.
    pub server_heap: arch::Memory,
    /// For drivers.
    pub device_pages: Vec<arch::OwnPage>,
    /// Frames that the kernel keeps: image, tables, pages for drivers.
    pub fixed_frames: u64,
    /// All of it.
    pub bytes: u64,
}

impl Division {
    /// Divides memory: kernel image, heap, the kernel's page tables, pages for drivers, the rest.
    pub fn of(information: &BootInformation, heap_of: HeapOf) -> Self {
        let mut memory = information.memory;
        let memory = &mut memory[..information.memory_count];
        for range in memory.iter_mut() {
            // Memory beyond the direct map is left alone.
            *range = (range.0.min(arch::DIRECT_MAP_BYTES), range.1.min(arch::DIRECT_MAP_BYTES));
        }
        let bytes: u64 = memory.iter().map(|range| range.1 - range.0).sum();
        for range in memory.iter_mut() {
            if range.0 < arch::kernel_end() {
                range.0 = arch::kernel_end().min(range.1);
            }
        }
        // The heap lies at the end of the largest range below 4 GiB, which is mapped from the start.
        let largest = memory
            .iter_mut()
            .filter(|range| range.1 <= 4 << 30)
            .max_by_key(|range| range.1 - range.0)
            .expect("memory below 4 GiB");
        let heap_bytes = (bytes / HEAP_PART)
            .clamp(HEAP_LEAST, HEAP_MOST)
            .min((largest.1 - largest.0) / 2)
            & !0xfff;
        let mut server_heap = (0, 0);
        let heap_bytes = if heap_of == HeapOf::KernelAlone {
            server_heap = (largest.1 - heap_bytes, largest.1);
            largest.1 -= heap_bytes;
            (HEAP_KERNEL + bytes / HEAP_SHARE).min((largest.1 - largest.0) / 2) & !0xfff
        } else {
            heap_bytes
        };
        largest.1 -= heap_bytes;
        // SAFETY: (1) the range was just taken out of memory; (2) the boot comes here once.
        unsafe { heap::initialise(arch::DIRECT_MAP + largest.1, arch::DIRECT_MAP + largest.1 + heap_bytes) };
        let mut fixed_frames = (arch::kernel_end() - (1 << 20)) / PAGE;
        let mut take = || {
            fixed_frames += 1;
            largest.1 -= PAGE;
            // SAFETY: (1) it lies below 4 GiB, which is mapped from the start. (2) It was just taken out of memory.
            unsafe { arch::OwnPage::take(largest.1) }
        };
        let device_pages = (0..DEVICE_PAGES).map(|_| take()).collect();
        let end = information.memory[..information.memory_count]
            .iter()
            .map(|range| range.1)
            .max()
            .unwrap_or(0);
        arch::build_tables(end, information.processors.count, &mut take);
        let ranges = memory
            .iter()
            .map(|range| ((range.0 >> 12) as u32, (range.1 >> 12) as u32))
            .filter(|range| range.0 < range.1)
            .collect();
        Self {
            ranges,
            server_heap,
            device_pages,
            fixed_frames,
            bytes,
        }
    }

    /// Takes the greater part of memory out of the kernel's hands, for σ₀: what is left holds page tables,
    /// message buffers and the root program.
    pub fn set_aside(&mut self) -> Vec<Range> {
        let Some(largest) = self.ranges.iter_mut().max_by_key(|range| range.1 - range.0) else {
            return Vec::new();
        };
        let (start, end) = *largest;
        // A large page begins at the border.
        let border = (start + (end - start) / 4).next_multiple_of(PAGES_PER_SLOT as u32);
        if border >= end {
            return Vec::new();
        }
        largest.1 = border;
        alloc::vec![(border, end)]
    }
}
