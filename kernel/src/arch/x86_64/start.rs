//! The loader's information: memory, command line, firmware tables (PVH start information).

use abi::address::PAGE;

use super::{
    acpi::{self, Processors},
    direct::physical_bytes,
};

/// A range of physical memory in bytes: start, end.
pub type Memory = (u64, u64);

/// The knowledge at the start.
pub struct BootInformation {
    /// Ranges of memory, below and above 4 GiB, in ascending order; the first megabyte is left out.
    pub memory: [Memory; 8],
    /// How many of them there are.
    pub memory_count: usize,
    /// Words on the command line.
    pub command_line: &'static str,
    /// The first module that came with the kernel: physical start and end in bytes. It is cut out of `memory`.
    pub module: Option<Memory>,
    /// Physical address of the firmware's table of tables (RSDP), or 0.
    pub firmware: u64,
    /// The processors that the firmware tells of.
    pub processors: Processors,
}

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |place| u32::from_le_bytes(place.try_into().unwrap_or_default()))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

impl BootInformation {
    /// Reads the start information at a physical address; `None` if it is none.
    pub fn read(physical: u64) -> Option<Self> {
        let info = physical_bytes(physical, 56)?;
        if word32(info, 0) != MAGIC {
            return None;
        }
        let command_line = word64(info, 24);
        let mut found = Self {
            memory: [(0, 0); 8],
            memory_count: 0,
            command_line: "",
            module: None,
            firmware: word64(info, 32),
            processors: acpi::processors(word64(info, 32)),
        };
        if command_line != 0 {
            let bytes = physical_bytes(command_line, 1024)?;
            let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            found.command_line = core::str::from_utf8(&bytes[..length]).unwrap_or("");
        }
        if word32(info, 12) > 0 {
            let entry = physical_bytes(word64(info, 16), 32)?;
            let (start, bytes) = (word64(entry, 0), word64(entry, 8));
            found.module = (bytes > 0).then_some((start, start.checked_add(bytes)?));
        }
        let map = word64(info, 40);
        let count = word32(info, 48) as usize;
        let entries = physical_bytes(map, count.min(128) * 24)?;
        for entry in entries.chunks_exact(24) {
            if word32(entry, 16) != RAM {
                continue;
            }
            let start = word64(entry, 0).max(1 << 20).next_multiple_of(PAGE);
            let end = word64(entry, 0).saturating_add(word64(entry, 8)) & !(PAGE - 1);
            found.add_memory(start, end);
        }
        Some(found)
    }

    /// Adds a range, without the pages of the module.
    fn add_memory(&mut self, start: u64, end: u64) {
        if let Some((from, to)) = self.module
            && from < end
            && start < to
        {
            let (before, after) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
            self.push_memory(start, before.min(end));
            self.push_memory(after.max(start), end);
        } else {
            self.push_memory(start, end);
        }
    }

    fn push_memory(&mut self, start: u64, end: u64) {
        if start < end && self.memory_count < self.memory.len() {
            self.memory[self.memory_count] = (start, end);
            self.memory_count += 1;
        }
    }
}
