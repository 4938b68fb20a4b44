//! The start page of a new task.
//!
//! The page stands right behind the image of the program, in the same object. Its address is the
//! parameter of the first thread. The creator fills it in before it starts the task: a single
//! address space needs no other way to hand over arguments.

use crate::interface::interface;

interface! {
    /// Marks a start page.
    const START_MAGIC: u64 = 0x5452_4154_5344_4e47;
    /// Offset of the arguments on the page: UTF-8, each followed by a zero byte.
    const ARGUMENTS_OFFSET: u64 = 256;
    /// Room for the arguments.
    const ARGUMENTS_BYTES: u64 = crate::address::PAGE - ARGUMENTS_OFFSET;

    /// The head of a start page.
    struct Start {
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

    /// Offset on the start page of what a program that is a module finds there.
    const MODULE_START_OFFSET: u64 = 64;
    /// Marks it, and the way in which it is begun.
    const MODULE_START_MAGIC: u64 = 0x314d_5452_444e_4f47;
    /// In [`ModuleStart::flags`]: all imports are bound before `main` begins.
    const MODULE_START_EAGER: u64 = 1;

    /// How a program that is a module begins; stands at [`MODULE_START_OFFSET`] of its start page. No image is behind it:
    /// the page is the first of an object that the creator made, and that moves to the new task because the first
    /// instruction stands in it. The rest of the object is the program's: its state, its first heap, its data segments.
    struct ModuleStart {
        /// The first instruction: a jump to the address in the next word.
        jump,
        /// The entry of the runtime's module.
        entry,
        /// [`MODULE_START_MAGIC`].
        magic,
        /// Address of the module that exports `main`.
        module,
        /// Its bytes.
        module_bytes,
        /// Address of the directory of modules.
        shelf,
        /// Its bytes.
        shelf_bytes,
        /// [`MODULE_START_EAGER`] or nothing.
        flags,
    }

    /// In an image object the offset of the entry point stands at this byte, where ELF has it.
    const IMAGE_ENTRY_AT: u64 = 24;
}

const _: () = assert!(
    Start::BYTES as u64 <= MODULE_START_OFFSET && MODULE_START_OFFSET + ModuleStart::BYTES as u64 <= ARGUMENTS_OFFSET
);
