//! Objects, and memory by address.
//!
//! An [`Object`] is a handle: the base address and the length. Making one costs a system call, having
//! one gives no right (rights are the domain's), dropping one does nothing: what was not kept is
//! deleted with its task, what was kept stays until [`Object::delete`], which takes the handle.
//!
//! All looks at an object's bytes go through a [`Region`]: a range of memory that holds nothing that
//! Rust itself owns (not the program's image, heap or stacks), seen only through [`Cell`]s and atomics. A [`Ptr`] is
//! an address as it stands *in* objects; since anything may stand there, a region opens it with a comparison before it
//! is followed.
//!
//! # What is safe about it
//!
//! There is one address space, and a handle says nothing about who else has the object: others may write it, shorten
//! it, or delete it at any moment, and its address may then be another object's. So no type here promises that the object
//! is there. The types promise this:
//!
//! 1. A view never shows what Rust owns. No handle is made of an object that holds the program's image, heap, data
//!    of its modules, or a stack ([`Error::InUse`]); the heap takes no address where the program ever had a handle; stacks
//!    have a window of addresses of their own.
//! 2. Every access through a view is atomic, and any bits are a value ([`Plain`]). A write of others shows as other
//!    values, torn between pieces at worst; it is no undefined behaviour.
//! 3. An access to memory that is not there (any more) faults, and a fault ends the thread or goes to its handler. If another
//!    object has come to the address, the view shows that one, if the domain may see it.
//! 4. No safe call takes away what Rust owns: calls that delete or resize refuse it ([`Error::InUse`]).
//! 5. No type can promise anything about the acts of *another domain* on memory that this program gave it a right to
//!    (a password, a Clist, a merged protected call), or about code that the program chose to run as its own (a module).
//!    That is as with a debugger, or with a library in C.

mod cell;
mod closure;
mod heap;
pub(crate) mod instance;
mod mutex;
mod pointer;
mod region;
pub(crate) mod state;
mod viewed;

use core::sync::atomic::{AtomicU64, Ordering};

use abi::{
    Error, Rights,
    address::PAGE,
    error::Result,
    layout::{FLUSH_RANGES_MAX, OBJECT_STACK, ObjectInfo},
    start::Start,
};

use crate::call;

pub use cell::Cell;
pub(crate) use closure::spawn;
pub use mutex::{Guard, Mutex};
pub use pointer::{Persist, Plain, Ptr};
pub use region::{Follow, Region};

/// An object that the program may look at. The handle is not copied: its owner may delete the object, and each view
/// borrows the handle, so within a program no view by this handle outlives it:
///
/// ```compile_fail
/// fn twice(object: rt::Object) -> rt::abi::error::Result<()> {
///     object.clone().delete()?;
///     object.delete()
/// }
/// ```
///
/// ```compile_fail
/// fn after(object: rt::Object) -> rt::abi::error::Result<u64> {
///     let word = object.first::<rt::Cell<u64>>()?;
///     object.delete()?;
///     Ok(word.get())
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    base: u64,
    bytes: u64,
}

impl Object {
    /// The object at an address, so many bytes long, as a trusted part of the program tells it.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) fn told(base: u64, bytes: u64) -> Option<Self> {
        if base == 0 {
            return None;
        }
        Self::at(base, bytes).ok()
    }

    /// The handle of what is at an address. Marks its slots, so that the heap will not take them, and refuses what
    /// the heap has.
    #[inline]
    fn at(base: u64, bytes: u64) -> Result<Self> {
        viewed(base, bytes);
        if heap::owns(base, bytes) {
            return Err(Error::InUse);
        }
        Ok(Self { base, bytes })
    }

    /// A new transient object of at least `bytes` zero bytes, with a password of the system's.
    ///
    /// # Errors
    /// As `ObjCreate`.
    pub fn create(bytes: u64) -> Result<Self> {
        Self::create_with_password(bytes).map(|(object, _)| object)
    }

    /// As [`Object::create`], and the password of its owner capability.
    ///
    /// # Errors
    /// As `ObjCreate`.
    pub fn create_with_password(bytes: u64) -> Result<(Self, u64)> {
        let (base, password) = call::obj_create(bytes, 0)?;
        let bytes = abi::address::pages_for(bytes).ok_or(Error::BadArgument)? * PAGE;
        Ok((Self::at(base, bytes)?, password))
    }

    /// The object that holds `address`, if the domain may read it.
    ///
    /// # Errors
    /// As `ObjInfo`; [`Error::InUse`] for what belongs to Rust: the program's image, its heap, a stack.
    pub fn open(address: u64) -> Result<Self> {
        let info = call::obj_info_used(address)?;
        if info.flags & OBJECT_STACK != 0 || is_image(info.base) {
            return Err(Error::InUse);
        }
        Self::at(info.base, info.bytes)
    }

    /// A copy-on-write clone of the object at `source` with at least `extra` zero bytes behind it.
    ///
    /// # Errors
    /// As `ObjClone`.
    pub fn clone_of(source: u64, source_bytes: u64, extra: u64) -> Result<Self> {
        let (base, _) = call::obj_clone(source, extra, 0)?;
        let pages =
            abi::address::pages_for(source_bytes).and_then(|pages| pages.checked_add(abi::address::pages_for(extra)?));
        Self::at(base, pages.ok_or(Error::BadArgument)? * PAGE)
    }

    /// Its base address, for ever.
    #[inline]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Its length in bytes: whole pages.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of its memory.
    #[inline]
    pub const fn region(&self) -> Region<'_> {
        // SAFETY: (1) whoever made `self` saw to it that Rust owns nothing there, and never will: the slots are
        // marked (`at`). If the object is deleted meanwhile, looking at it faults or shows another object. (2) A handle
        // gives no other access than regions, but `with_bytes`, which says so.
        unsafe { Region::at(self.base, self.bytes) }
    }

    /// The value at the beginning of the object.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the object is shorter.
    pub fn first<T: Persist>(&self) -> Result<&T> {
        self.region().at_offset(0).ok_or(Error::BadAddress)
    }

    /// The system's report about it.
    ///
    /// # Errors
    /// As `ObjInfo`.
    pub fn info(&self) -> Result<ObjectInfo> {
        call::obj_info(self.base)
    }

    /// Makes it persistent: it stays until it is deleted, whatever happens to the task or the power.
    ///
    /// # Errors
    /// As `KeepObject`.
    pub fn keep(&self) -> Result<()> {
        call::keep_object(self.base)
    }

    /// Registers a new password with those rights, and gives it.
    ///
    /// # Errors
    /// As `ObjPasswd`.
    pub fn grant(&self, rights: Rights) -> Result<u64> {
        call::obj_passwd(self.base, 0, rights.bits().into())
    }

    /// Removes a password. When this returns, no domain has the object by that password any more.
    ///
    /// # Errors
    /// As `ObjPasswd`.
    pub fn revoke(&self, password: u64) -> Result<()> {
        call::obj_passwd(self.base, password, 0).map(|_| ())
    }

    /// Makes all of it stable: it survives the power from now on.
    ///
    /// # Errors
    /// As `PageFlush`.
    pub fn flush(&self) -> Result<()> {
        call::page_flush(self.base, self.bytes / PAGE)
    }

    /// Makes several objects stable together, [`FLUSH_RANGES_MAX`] at most: behind a power cut all of them are as they were at one moment of the call, or none
    /// is.
    ///
    /// # Errors
    /// As `PageFlushAll`.
    pub fn flush_together(objects: &[&Object]) -> Result<()> {
        let mut ranges = [[0; 2]; FLUSH_RANGES_MAX as usize];
        let ranges = ranges.get_mut(..objects.len()).ok_or(Error::BadArgument)?;
        for (range, object) in ranges.iter_mut().zip(objects) {
            *range = [object.base, object.bytes / PAGE];
        }
        call::page_flush_all(ranges)
    }

    /// Grows or shrinks it in place.
    ///
    /// # Errors
    /// As `ObjResize`.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        // SAFETY: Rust owns nothing in the object.
        unsafe { call::obj_resize_unchecked(self.base, bytes) }?;
        let bytes = call::obj_info(self.base)?.bytes;
        *self = Self::at(self.base, bytes)?;
        Ok(())
    }

    /// Destroys it.
    ///
    /// # Errors
    /// As `ObjDelete`.
    pub fn delete(self) -> Result<()> {
        // SAFETY: Rust owns nothing in the object.
        unsafe { call::obj_delete_unchecked(self.base) }
    }

    /// Copies bytes out, from `offset` (of a word) on; what lies behind the end of the object stays zero.
    pub(crate) fn copy<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let region = self.region();
        for (index, place) in bytes.chunks_exact_mut(8).enumerate() {
            let word: Option<&Cell<u64>> = region.at_offset(offset + 8 * index as u64);
            place.copy_from_slice(&word.map_or(0, Cell::get).to_le_bytes());
        }
        bytes
    }

    /// Writes a word of each page of a range as it is: where no page can be had, the fault comes here.
    pub(crate) fn rewrite(&self, range: core::ops::Range<u64>) {
        let region = self.region();
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            if let Some(word) = region.at_offset::<Cell<u64>>(page * PAGE) {
                word.set(word.get());
            }
        }
    }

    /// Calls `change` with all of its bytes, for formats that are written in an order of their own.
    ///
    /// This is the one place where an object is seen as a slice: one writer at a time is the callers' duty ([`crate::Directory`],
    /// [`crate::Clist`]), and the change is made of words that are written once. Readers copy ([`Object::copy`]).
    pub(crate) fn with_bytes_mut<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: Rust owns nothing there, and never will (`at`). The handle is borrowed exclusively, so no view by it is
        // live. That no other handle writes meanwhile is the callers' duty, as said above.
        change(unsafe { core::slice::from_raw_parts_mut(self.base as *mut u8, self.bytes as usize) })
    }
}

/// Marks a range in which the program has a view from now on.
#[inline]
fn viewed(base: u64, bytes: u64) {
    if let Some(state) = state::find() {
        state.viewed.mark(base, bytes);
    }
}

/// Whether an object with this base is the program's image.
fn is_image(base: u64) -> bool {
    own_start().is_some_and(|start| base == start.image)
}

/// Whether an address is one of memory that Rust hands out by its own rules: the image, a stack, the heap, data of modules.
/// For calls that would take it away. The start page ends the image.
pub(crate) fn is_rusts_own(address: u64) -> bool {
    let image = own_start().is_some_and(|start| {
        let bytes = if cfg!(feature = "module") {
            instance::ARENA_BYTES
        } else {
            start.image_bytes.saturating_add(PAGE)
        };
        (start.image..start.image.saturating_add(bytes)).contains(&address)
    });
    image || abi::address::stack_end(address).is_some() || heap::owns(address, 1)
}

/// The head of the program's start page; none on the host or if there is no such page.
pub fn own_start() -> Option<Start> {
    let page = call::entry::start_page();
    if page == 0 {
        return None;
    }
    // SAFETY: the start code got this address from the task's creator, who filled the page in
    // before; nobody writes it later.
    let start = unsafe { (page as *const Start).read() };
    (start.magic == abi::start::START_MAGIC).then_some(start)
}

/// The bytes of the program's arguments, as they stand on the start page.
pub fn own_arguments() -> &'static [u8] {
    let Some(start) = own_start() else { return &[] };
    let bytes = start.argument_bytes.min(abi::start::ARGUMENTS_BYTES);
    let address = call::entry::start_page() + abi::start::ARGUMENTS_OFFSET;
    // SAFETY: as in `own_start`; the range ends with the page, which lives as long as the image.
    unsafe { core::slice::from_raw_parts(address as *const u8, bytes as usize) }
}

/// A `static` in the program's image that remembers an object, so that a protected procedure of the
/// program finds its data without a system call, even after the task that set it has ended.
#[derive(Debug)]
pub struct Attachment {
    base: AtomicU64,
    bytes: AtomicU64,
}

impl Attachment {
    /// Nothing attached.
    pub const fn new() -> Self {
        Self {
            base: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Remembers the object, for as long as the image lives; false if another one is attached already.
    pub fn attach(&self, object: &Object) -> bool {
        let free = self
            .base
            .compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if free {
            self.bytes.store(object.bytes, Ordering::Relaxed);
            self.base.store(object.base, Ordering::Release);
        }
        free
    }

    /// A handle of the object, if there is one: as good as one that was opened by its address.
    #[inline]
    pub fn object(&self) -> Option<Object> {
        let base = self.base.load(Ordering::Acquire);
        // Its slots were marked when the handle was made that was attached.
        (base > TAKEN).then(|| Object {
            base,
            bytes: self.bytes.load(Ordering::Relaxed),
        })
    }

    /// The memory of the object, if there is one.
    #[inline]
    pub fn region(&self) -> Option<Region<'_>> {
        // SAFETY: as in `Object::region`: base and length are those of one handle (`attach`), and marks stay.
        self.object()
            .map(|object| unsafe { Region::at(object.base, object.bytes) })
    }
}

/// The base in an attachment whose length is being written.
const TAKEN: u64 = 1;

impl Default for Attachment {
    fn default() -> Self {
        Self::new()
    }
}
