//! Memory that devices see: register windows, pages shared with drivers, and frames that are lent
//! for a transfer.

use alloc::vec::Vec;

use drivers::dma::{DataPage, DirectMap, Page, Window};
use kcore::Frame;

use crate::arch;

/// Where drivers get register windows and pages.
pub struct Resources {
    /// Frames put aside for pages shared with devices.
    pages: Vec<Frame>,
    /// Ranges of memory: register windows are in none of them.
    memory: Vec<arch::Memory>,
}

impl Resources {
    /// Hands these frames to drivers.
    pub fn new(pages: Vec<Frame>, information: &arch::BootInformation) -> Self {
        let memory = information.memory[..information.memory_count].iter().copied();
        Self {
            pages,
            memory: memory.chain(information.module).collect(),
        }
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
        let end = physical.checked_add(bytes as u64)?;
        let in_memory = self.memory.iter().any(|range| physical < range.1 && range.0 < end);
        if in_memory || physical < 1 << 20 || !physical.is_multiple_of(4) || !arch::map_device(physical, bytes as u64) {
            return None;
        }
        // SAFETY: (1) not memory (checked), aligned (checked). (2) The drivers of this tree only
        // hand devices pages that they were given for it.
        Some(unsafe { Self::map().window(physical, bytes) })
    }

    fn allocate_page(&mut self) -> Option<Page> {
        let frame = self.pages.pop()?;
        // SAFETY: (1) the frame was taken for this and is never given to anyone else.
        Some(unsafe { Self::map().page(frame.physical()) })
    }
}

/// Lends a frame to the disk for one request. Only the store makes requests, and its contract is what makes this
/// sound: it keeps a frame until the request's completion was taken, reads into frames that nobody has mapped yet,
/// and writes from frames that nobody can write to (`store::world::Request`).
pub fn data_page(frame: store::world::Frame) -> DataPage {
    // SAFETY: (1) frames are frames. (2) As above.
    unsafe { DataPage::new(Frame(frame.0).physical()) }
}
