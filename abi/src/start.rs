//! What a new task finds on its start page.
//!
//! The page stands right behind the image of the program, in the same object. Its address is the
//! parameter of the first thread. The creator fills it in before it starts the task: a single
//! address space needs no other way to hand over arguments.

use crate::layout::layout;

/// Marks a start page.
pub const START_MAGIC: u64 = 0x5452_4154_5344_4e47;
/// Offset of the arguments on the page: UTF-8, each followed by a zero byte.
pub const ARGUMENTS_OFFSET: u64 = 256;
/// Room for the arguments.
pub const ARGUMENTS_BYTES: u64 = crate::address::PAGE - ARGUMENTS_OFFSET;

layout! {
    /// The head of a start page.
    Start {
        /// [`START_MAGIC`].
        magic,
        /// Base of the image object.
        image,
        /// Bytes of the image, without this page.
        image_bytes,
        /// The root directory.
        root_directory,
        /// How many arguments follow; the first is the program's name.
        argument_count,
        /// Their bytes, zero bytes included.
        argument_bytes,
        /// A word for the program from its creator, beside the arguments.
        word,
    }
}

/// In an image object the offset of the entry point stands at this byte, where ELF has it.
pub const IMAGE_ENTRY_AT: u64 = 24;
