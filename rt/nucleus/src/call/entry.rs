//! From the first instruction to `main`; and what the kernel tells on the root page.
//!
//! The image lies at an address that was not known when it was linked, so its pointers are filled in
//! here, before any code that might use one.

use abi::nucleus::{ROOT_COMMAND_BYTES, ROOT_COMMAND_OFFSET, ROOT_MEMORY_OFFSET, Root};

/// The root page: it is mapped behind the image, readable, and never changes.
#[derive(Copy, Clone, Debug)]
pub struct RootPage {
    address: u64,
}

impl RootPage {
    /// Its head.
    pub fn head(self) -> Root {
        let mut words = [0; Root::WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(index as u64 * 8);
        }
        Root::from_words(words)
    }

    /// Ranges of memory that the kernel hands out: start and end, in bytes.
    pub fn memory(self) -> impl Iterator<Item = (u64, u64)> {
        let room = (ROOT_COMMAND_OFFSET - ROOT_MEMORY_OFFSET) / 16;
        (0..self.head().memory_count.min(room)).map(move |index| {
            let at = ROOT_MEMORY_OFFSET + index * 16;
            (self.word(at), self.word(at + 8))
        })
    }

    /// The kernel's command line.
    pub fn command_line(self) -> &'static str {
        let length = self.head().command_bytes.min(ROOT_COMMAND_BYTES) as usize;
        // SAFETY: the place lies on the root page, which stays as it is.
        let bytes = unsafe { core::slice::from_raw_parts((self.address + ROOT_COMMAND_OFFSET) as *const u8, length) };
        core::str::from_utf8(bytes).unwrap_or("")
    }

    fn word(self, offset: u64) -> u64 {
        // SAFETY: every offset used here lies on the root page, which is mapped and stays as it is.
        unsafe { ((self.address + offset) as *const u64).read() }
    }
}

/// Names the program's `main`: a function of a [`RootPage`]. When it returns the thread ends.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        /// Called by the start code when the image is relocated.
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        extern "C" fn nucleus_main(root: $crate::RootPage) {
            $main(root);
        }
    };
}

/// The first Rust function: relocates the image, runs `main`, ends the thread.
///
/// # Safety
/// 1. `root` is the address of the root page.
/// 2. `dynamic` is the dynamic section of the image that begins at `image`.
/// 3. It is called once, before any other code of the program.
#[cfg(target_os = "none")]
pub(super) unsafe extern "C" fn begin(root: u64, dynamic: *const [u64; 2], image: u64) -> ! {
    #[allow(improper_ctypes, reason = "a structure of one word passes as that word")]
    unsafe extern "C" {
        safe fn nucleus_main(root: RootPage);
    }
    // SAFETY: (2) and (3) are what `relocate` asks.
    if unsafe { crt0::relocate(image, dynamic) } {
        nucleus_main(RootPage { address: root });
    }
    crt0::fault()
}

/// Tells why, and ends the thread by a fault: a root program that fails takes the machine with it.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::log!("{info}");
    super::stop(abi::host::EXIT_PANIC)
}
