//! Memory that devices see: register windows and pages shared with drivers.

use alloc::vec::Vec;

use drivers::dma::{DirectMap, Page, Window};

use crate::arch;

/// The source of register windows and pages for drivers.
pub struct Resources {
    /// Frames put aside for pages shared with devices.
    pages: Vec<arch::OwnPage>,
    /// Ranges of memory: register windows are in none of them.
    memory: Vec<arch::Memory>,
}

impl Resources {
    /// Hands these frames to drivers.
    pub fn new(pages: Vec<arch::OwnPage>, information: &arch::BootInformation) -> Self {
        let memory = information.memory[..information.memory_count].iter().copied();
        Self {
            pages,
            memory: memory.chain(information.module).collect(),
        }
    }

    /// Whether a range of physical addresses holds device registers, as far as is known here: no memory, nothing of the
    /// old machine below a megabyte, and within reach.
    pub fn is_registers(&self, physical: u64, bytes: u64) -> bool {
        let Some(end) = physical.checked_add(bytes) else {
            return false;
        };
        let in_memory = self.memory.iter().any(|range| physical < range.1 && range.0 < end);
        !in_memory && physical >= 1 << 20 && arch::map_device(physical, bytes)
    }

    /// The map of physical memory.
    fn map() -> DirectMap {
        // SAFETY: (1) all memory and the device registers below its end are mapped at this offset
        // for as long as the kernel runs; `map_registers` refuses what is not.
        unsafe { DirectMap::new(arch::DIRECT_MAP as usize) }
    }
}

impl drivers::world::World for Resources {
    type Window = Window;
    type Page = Page;

    fn map_registers(&mut self, physical: u64, bytes: usize) -> Option<Window> {
        if !physical.is_multiple_of(4) || !self.is_registers(physical, bytes as u64) {
            return None;
        }
        // SAFETY: (1) not memory (checked), aligned (checked). (2) The drivers of this tree only
        // hand devices pages that they were given for it.
        Some(unsafe { Self::map().window(physical, bytes) })
    }

    fn allocate_page(&mut self) -> Option<Page> {
        let page = self.pages.pop()?;
        // SAFETY: (1) the page was taken for this and is never given to anyone else.
        Some(unsafe { Self::map().page(page.physical()) })
    }
}
