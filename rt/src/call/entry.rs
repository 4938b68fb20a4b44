//! From the first instruction to `main`, and from `main` to the end.
//!
//! The image was cloned to an address nobody knew when it was linked, so its pointers are filled in
//! here, before any code that might use one. A program keeps few of them (the linker turns the rest
//! into rip-relative code); each page that holds one costs a copy of the shared image's page.
//!
//! Where the runtime is a module, programs begin in [`super::program`] instead.

use crate::object::state;

/// Status of a program that panicked.
pub const STATUS_PANIC: u64 = 101;
/// Status of a program whose `main` returned an error.
pub const STATUS_ERROR: u64 = 1;
/// Status of a program that could not be started.
#[cfg(target_os = "none")]
pub(super) const STATUS_BAD_START: u64 = 127;

/// The address of the start page, or 0 on the host and for a thread without state.
pub fn start_page() -> u64 {
    state::find().map_or(0, state::State::start_page)
}

/// Ends the calling thread with a status; the last thread of a task takes the task with it.
pub fn exit(status: u64) -> ! {
    loop {
        // It cannot fail for the caller itself.
        let _ = super::thread_delete(0, status);
    }
}

/// A result that `main` may return.
pub trait Termination {
    /// The status that the program ends with; 0 is success.
    fn status(self) -> u64;
}

impl Termination for () {
    fn status(self) -> u64 {
        0
    }
}

impl<E: core::fmt::Display> Termination for Result<(), E> {
    fn status(self) -> u64 {
        match self {
            Ok(()) => 0,
            Err(error) => {
                crate::println!("{}: {error}", crate::arguments::program());
                STATUS_ERROR
            }
        }
    }
}

/// Names the program's `main`: a function without arguments that returns `()` or a
/// `Result<(), E>` whose error can be shown.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        /// Called by the start code when the image is relocated.
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        extern "C" fn gondwana_main() -> u64 {
            $crate::call::entry::Termination::status($main())
        }
    };
}

/// The first Rust function: relocates the image, runs `main`, ends the thread.
///
/// # Safety
/// 1. `start` is the address of the start page.
/// 2. `dynamic` is the dynamic section of the image that begins at `image`.
/// 3. It is called once, before any other code of the program.
#[cfg(all(target_os = "none", not(feature = "module")))]
pub(super) unsafe extern "C" fn begin(start: u64, dynamic: *const [u64; 2], image: u64) -> ! {
    unsafe extern "C" {
        safe fn gondwana_main() -> u64;
    }
    // SAFETY: (2) and (3) are what `relocate` asks.
    if !unsafe { crt0::relocate(image, dynamic) } {
        exit(STATUS_BAD_START);
    }
    state::state().set_start_page(start);
    exit(gondwana_main());
}

/// Tells why, and ends the thread; in a protected procedure it ends the call instead, by a fault:
/// the thread is the caller's.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::println!("{}: {info}", crate::arguments::program());
    if super::thread_info(0).is_ok_and(|report| report.depth > 0) {
        crt0::fault();
    }
    exit(STATUS_PANIC)
}
