//! An image's part for the assembly of the library: the functions that it comes to, for the image's one supervisor.

use kcore::thread::Context;

unsafe extern "C" {
    /// The boot code comes to Rust here; `information` is the physical address of what the loader tells.
    pub fn kernel_start(information: u64) -> !;
    /// Another processor comes to Rust here, on its own stack.
    pub fn kernel_processor(number: u32) -> !;
    /// [`crate::event::trap`].
    pub fn kernel_trap(context: *const Context, vector: u64) -> !;
    /// [`crate::event::trap_in_kernel`].
    pub fn kernel_trap_in_kernel(context: &Context);
}

/// Defines what an image comes to. All of it stands in the library: the code under it would be generated once more in each crate
/// that names a supervisor.
macro_rules! entries {
    ($supervisor:ty) => {
        /// The boot; `information` is the physical address of what the loader tells.
        pub fn start(information: u64) -> ! {
            $crate::boot::start::<$supervisor>(information)
        }

        /// Another processor.
        pub fn processor(number: u32) -> ! {
            $crate::arch::processor_start::<$supervisor>(number)
        }

        /// [`crate::event::trap`].
        // Not inline: the image would have all that it calls a second time.
        pub fn trap(context: *const $crate::Context, vector: u64) -> ! {
            $crate::event::trap::<$supervisor>(context, vector)
        }

        /// [`crate::event::trap_in_kernel`].
        pub fn trap_in_kernel(context: &$crate::Context) {
            $crate::event::trap_in_kernel::<$supervisor>(context);
        }
    };
}
pub(crate) use entries;

/// Makes an image of the kernel with the supervisor of this module.
#[macro_export]
macro_rules! image {
    ($module:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn kernel_start(information: u64) -> ! {
            $crate::$module::entries::start(information)
        }

        #[unsafe(no_mangle)]
        extern "C" fn kernel_processor(number: u32) -> ! {
            $crate::$module::entries::processor(number)
        }

        #[unsafe(no_mangle)]
        extern "C" fn kernel_trap(context: *const $crate::Context, vector: u64) -> ! {
            $crate::$module::entries::trap(context, vector)
        }

        #[unsafe(no_mangle)]
        extern "C" fn kernel_trap_in_kernel(context: &$crate::Context) {
            $crate::$module::entries::trap_in_kernel(context)
        }
    };
}
