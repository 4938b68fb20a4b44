//! How physical memory is divided at the start. This happens once; the heap and the frame allocator
//! live on what it gives them.

use alloc::vec::Vec;

use abi::address::PAGE;
use kcore::{Frame, frames::Range};

use super::heap;
use crate::arch::{self, BootInformation};

/// Pages that drivers may share with devices.
const DEVICE_PAGES: usize = 32;
/// Least and most that is put aside for the heap, in bytes.
const HEAP_LEAST: u64 = 8 << 20;
const HEAP_MOST: u64 = 1 << 30;

/// Memory, divided.
pub struct Division {
    /// For the allocator of frames.
    pub ranges: Vec<Range>,
    /// For drivers.
    pub device_pages: Vec<Frame>,
    /// Frames that the kernel keeps: image, tables, pages for drivers.
    pub fixed_frames: u64,
    /// All of it.
    pub bytes: u64,
}

impl Division {
    /// Divides memory: kernel image, heap, the kernel's page tables, pages for drivers, the rest.
    pub fn of(information: &BootInformation) -> Self {
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
        let heap_bytes = (bytes / 8)
            .clamp(HEAP_LEAST, HEAP_MOST)
            .min((largest.1 - largest.0) / 2)
            & !0xfff;
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
            device_pages,
            fixed_frames,
            bytes,
        }
    }
}
