//! What the µ-kernel itself offers to programs that run on it without the server.
//!
//! These programs make the same `syscall` with numbers from [`FIRST_CALL`] on; the register rule of
//! [`crate::call`] holds for them too. The first of them, the *root program*, comes with the kernel
//! as a boot module and finds a [`Root`] behind its image.

use crate::{address::SLOT, layout::layout};

/// The first number of a call that the µ-kernel answers.
pub const FIRST_CALL: u64 = 0x100;
/// Writes up to eight bytes to the kernel's log: (bytes, little-endian; count).
pub const LOG_WRITE: u64 = FIRST_CALL;
/// Stops the machine: (value of the exit device). Root program only.
pub const MACHINE_STOP: u64 = FIRST_CALL + 1;

/// Where the image of the root program lies.
pub const ROOT_IMAGE: u64 = 0x6000_0000_0000;
/// Top of its first stack, 2 MiB below the image's slot and growing down.
pub const ROOT_STACK_TOP: u64 = ROOT_IMAGE - SLOT;
/// Bytes of its first stack.
pub const ROOT_STACK_BYTES: u64 = 256 << 10;

/// Marks a [`Root`].
pub const ROOT_MAGIC: u64 = 0x544f_4f52_4e57_4447;
/// Offset of the ranges of memory on the root page: pairs of words, start and end in bytes.
pub const ROOT_MEMORY_OFFSET: u64 = 256;
/// Offset of the command line on the root page: UTF-8.
pub const ROOT_COMMAND_OFFSET: u64 = 1024;
/// Room for the command line.
pub const ROOT_COMMAND_BYTES: u64 = 2048;

layout! {
    /// The head of the root page, right behind the root program's image.
    Root {
        /// [`ROOT_MAGIC`].
        magic,
        /// Base of the image: [`ROOT_IMAGE`].
        image,
        /// Bytes of the image, without this page.
        image_bytes,
        /// Ranges of memory that the kernel hands out, at [`ROOT_MEMORY_OFFSET`].
        memory_count,
        /// Bytes of the command line, at [`ROOT_COMMAND_OFFSET`].
        command_bytes,
        /// Physical address of the firmware's table of tables (RSDP), or 0.
        firmware,
    }
}
