//! The root program: a boot module that runs directly on the µ-kernel, in σ₀.
//!
//! σ₀ has the memory that the kernel does not keep, and that of devices, at their physical addresses; the
//! program's own image and stack are the kernel's, and not to be given to others.
//!
//! It is an ordinary static-PIE program. Its image lies at [`ROOT_IMAGE`], its root page behind it
//! tells what it may want to know; its first thread begins with the page's address as parameter.

use alloc::{format, string::String};

use abi::{
    Rights,
    address::{PAGE, PAGES_PER_SLOT, slot_of},
    nucleus::{
        ROOT_COMMAND_BYTES, ROOT_COMMAND_OFFSET, ROOT_IMAGE, ROOT_MAGIC, ROOT_MEMORY_OFFSET, ROOT_STACK_BYTES,
        ROOT_STACK_TOP, Root,
    },
};
use kcore::{Half, Hardware, Kernel, Leaf, Machine, PageEntry, Shortage, SpaceId, frames::Range};

use crate::arch::{self, BootInformation};

/// Why there is no root program, in words.
pub fn short(_: Shortage) -> String {
    "too little memory for the root program".into()
}

/// A boot module as a program in a space.
pub struct Program {
    /// Its first instruction.
    pub entry: u64,
    /// Top of its stack.
    pub stack: u64,
    /// Its root page.
    pub page: u64,
}

/// Loads the boot module into a space. Its root page tells of the ranges of frames in `given`.
///
/// # Errors
/// In words: no module, no program, too little memory.
pub fn load(
    kernel: &mut Kernel<impl Hardware, impl Half>,
    information: &BootInformation,
    space: SpaceId,
    given: &[Range],
) -> Result<Program, String> {
    let (from, to) = information
        .module
        .ok_or("no boot module: give QEMU the root program with -initrd")?;
    let module = arch::physical_bytes(from, (to - from) as usize).ok_or("the boot module lies out of reach")?;
    let image = linker::image::layout(module).map_err(|error| format!("the boot module is no program: {error}"))?;

    let mut loader = Loader {
        kernel,
        space,
        slot: 0,
        leaf: None,
    };
    let mut at = ROOT_IMAGE;
    for (bytes, limits) in image.pages() {
        if !limits.is_empty() {
            loader.page(at, bytes, limits).map_err(short)?;
        }
        at += PAGE;
    }
    loader
        .page(at, &root_page(information, given, at - ROOT_IMAGE), Rights::R)
        .map_err(short)?;
    let mut stack = ROOT_STACK_TOP - ROOT_STACK_BYTES;
    while stack < ROOT_STACK_TOP {
        loader.page(stack, &[], Rights::RW).map_err(short)?;
        stack += PAGE;
    }
    Ok(Program {
        entry: ROOT_IMAGE + image.entry,
        stack: ROOT_STACK_TOP,
        page: at,
    })
}

/// The page behind the image.
fn root_page(information: &BootInformation, given: &[Range], image_bytes: u64) -> [u8; PAGE as usize] {
    let mut page = [0; PAGE as usize];
    let mut put = |at: u64, bytes: &[u8]| page[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    let command = information.command_line.as_bytes();
    let command = &command[..command.len().min(ROOT_COMMAND_BYTES as usize)];
    let root = Root {
        magic: ROOT_MAGIC,
        image: ROOT_IMAGE,
        image_bytes,
        memory_count: given.len() as u64,
        command_bytes: command.len() as u64,
        firmware: information.firmware,
    };
    put(0, &root.to_bytes());
    for (index, range) in given.iter().enumerate() {
        let at = ROOT_MEMORY_OFFSET + index as u64 * 16;
        put(at, &(u64::from(range.0) * PAGE).to_le_bytes());
        put(at + 8, &(u64::from(range.1) * PAGE).to_le_bytes());
    }
    put(ROOT_COMMAND_OFFSET, command);
    page
}

/// Puts pages into a space, slot after slot.
struct Loader<'a, H: Hardware, P> {
    kernel: &'a mut Kernel<H, P>,
    space: SpaceId,
    slot: u64,
    leaf: Option<Leaf>,
}

impl<H: Hardware, P: Half> Loader<'_, H, P> {
    /// A page with these bytes at its beginning and zeroes behind.
    fn page(&mut self, address: u64, bytes: &[u8], limits: Rights) -> Result<(), Shortage> {
        let leaf = match self.leaf {
            Some(leaf) if self.slot == slot_of(address) => leaf,
            _ => {
                let leaf = self.kernel.leaf_create()?;
                self.kernel.link(self.space, slot_of(address), leaf, Rights::RWX)?;
                self.slot = slot_of(address);
                *self.leaf.insert(leaf)
            }
        };
        let frame = self.kernel.frame_zeroed()?;
        self.kernel.frame_write(frame, 0, bytes);
        let index = address / PAGE % PAGES_PER_SLOT;
        self.kernel
            .leaf_set(leaf, index as usize, Some(PageEntry::new(frame, limits)));
        Ok(())
    }
}
