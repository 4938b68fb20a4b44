//! Memory of modules: the bytes of module objects, and the data segments of instances.
//!
//! A module object is sealed: no page of it may be written, by anybody, so its bytes are a plain slice. Segments are
//! cut from transient objects, one behind the other: a segment takes no slot, no page table and no system call of
//! its own beyond those that map its thunks.

use abi::{Rights, address::PAGE};
use linker::module::{
    Module,
    format::Part,
    instance::{self, Runtime, finish},
};

use super::{heap, viewed};
use crate::{call, error::Result};

/// Bytes of an object that segments are cut from, unless one needs more. With the colour of its first page it fits
/// one slot.
pub(crate) const ARENA_BYTES: u64 = (2 << 20) - 16 * PAGE;

/// The bytes of the module object at an address, of which the shelf says that they are so many.
pub(crate) fn sealed(address: u64, bytes: u64) -> &'static [u8] {
    viewed(address, bytes);
    // SAFETY: what is read is memory or faults, and it is never this program's heap: the range is marked. Module objects
    // are sealed when they are installed (`module::shelf`): their pages are limited to reading and executing, so nobody
    // writes them but their owner, if he lifts the limits; a module's owner is trusted as its code is (module theory).
    unsafe { core::slice::from_raw_parts(address as *const u8, bytes as usize) }
}

/// The thunks and the data of an instance.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Where the data begins; the thunks end there. 0 if there is none.
    pub(crate) data: u64,
    bytes: usize,
}

impl Segment {
    /// Calls `change` with the data.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        if self.bytes == 0 {
            return change(&mut []);
        }
        // SAFETY: the range was cut from an arena for this segment alone, and no slice of it leaves this function. Code
        // of the module reads and writes it too, but that is not Rust's: it runs while `change` does not, except on
        // other threads, which see each word of a descriptor before or after its change, and both are good.
        change(unsafe { core::slice::from_raw_parts_mut(self.data as *mut u8, self.bytes) })
    }

    /// Makes the data of a segment that was used before those of a new instance. Cost: all of its bytes.
    pub(crate) fn renew(&mut self, module: &Module<'_>, runtime: Runtime) {
        let at = self.data;
        self.change(|data| instance::instantiate(module, at, runtime, data));
    }
}

/// Objects that segments are cut from. They are Rust's own, as the heap's are: no handle is made of them.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    objects: alloc::vec::Vec<u64>,
    /// The unused end of the last one.
    next: u64,
    end: u64,
    /// Whether no object may be made when that is used up.
    confined: bool,
}

impl Arena {
    /// No objects yet.
    pub(crate) const fn new() -> Self {
        Self {
            objects: alloc::vec::Vec::new(),
            next: 0,
            end: 0,
            confined: false,
        }
    }

    /// In memory that is there already: zeroes that are nobody's. A `confined` one has no other.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) const fn within(next: u64, end: u64, confined: bool) -> Self {
        Self {
            objects: alloc::vec::Vec::new(),
            next,
            end,
            confined,
        }
    }

    /// The bases of the objects that were made for segments.
    pub(crate) fn objects(&self) -> &[u64] {
        &self.objects
    }

    /// Cuts a segment for a module and fills it: thunks are the module's own frames, made unwritable; the data is the
    /// template with its fix-ups. Cost: two system calls, a page fault for each page of data that is not zero.
    pub(crate) fn segment(&mut self, module: &Module<'_>, runtime: Runtime) -> Result<Segment> {
        if module.keeps_nothing() {
            return Ok(Segment { data: 0, bytes: 0 });
        }
        let thunks = u64::from(module.thunk_bytes());
        let data_bytes = u64::from(module.data_bytes).next_multiple_of(PAGE);
        let data = match self.cut(module, thunks, data_bytes) {
            // The last object has as many ranges of limits as it may; a fresh one has not.
            Err(crate::Error::System(abi::Error::TableFull)) if !self.confined => {
                self.next = self.end;
                self.cut(module, thunks, data_bytes)?
            }
            other => other?,
        };
        let mut segment = Segment {
            data,
            bytes: module.data_bytes as usize,
        };
        segment.change(|bytes| {
            let template = module.template();
            if let Some(begin) = bytes.get_mut(..template.len()) {
                begin.copy_from_slice(template);
            }
            // The bytes behind are zero: nobody had these pages before.
            finish(module, data, runtime, bytes);
        });
        Ok(segment)
    }

    /// The address of the data of a fresh segment whose thunks are mapped.
    fn cut(&mut self, module: &Module<'_>, thunks: u64, data_bytes: u64) -> Result<u64> {
        let bytes = thunks + data_bytes;
        if self.end - self.next < bytes {
            if self.confined {
                return Err(abi::Error::NoMemory.into());
            }
            let length = ARENA_BYTES.max(bytes);
            let base = heap::take(length);
            if base == 0 {
                return Err(abi::Error::NoMemory.into());
            }
            (self.next, self.end) = (base, base + length);
            self.objects.push(base);
        }
        let start = self.next;
        if thunks > 0 {
            let from = module.address + u64::from(module.part_at(Part::Thunks));
            // SAFETY: the pages of the arena from `next` on are nobody's.
            unsafe { call::page_copy(from, start, thunks / PAGE) }?;
            call::page_limit(start, thunks / PAGE, Rights::RX.bits().into())?;
        }
        self.next += bytes;
        Ok(start + thunks)
    }
}
