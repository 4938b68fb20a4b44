//! Objects, and memory by address.
//!
//! An [`Object`] is a handle: the base address and the length. Making one costs a system call, having
//! one gives no right (rights are the domain's), dropping one does nothing: what was not kept is
//! deleted with its task, what was kept stays until [`Object::delete`].
//!
//! All looks at an object's bytes go through a [`Region`]: a range of memory that holds nothing that
//! Rust itself owns (not the program's image, heap or stacks), seen only through cells, because
//! others may look at it too. A [`Ptr`] is an address as it stands *in* objects; since anything may
//! stand there, a region opens it with a comparison before it is followed.

mod heap;
pub(crate) mod instance;
mod mutex;
mod pointer;
mod region;
pub(crate) mod state;

use core::sync::atomic::{AtomicU64, Ordering};
use core::{cell::Cell, marker::PhantomData};

use abi::{
    Error, Rights,
    error::Result,
    layout::{OBJECT_STACK, ObjectInfo},
    start::Start,
};

use crate::call;

pub use mutex::{Guard, Mutex};
pub use pointer::{Persist, Plain, Ptr};
pub use region::{Follow, Region};

/// An object that the program may look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    base: u64,
    bytes: u64,
}

impl Object {
    /// The object that somebody who can be believed says to be at an address, so many bytes long.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) fn told(base: u64, bytes: u64) -> Option<Self> {
        (base != 0).then_some(Self { base, bytes })
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
        let bytes = abi::address::pages_for(bytes).ok_or(Error::BadArgument)? * abi::address::PAGE;
        Ok((Self { base, bytes }, password))
    }

    /// The object that holds `address`, if the domain may read it.
    ///
    /// # Errors
    /// As `ObjInfo`; [`Error::InUse`] for what belongs to Rust: the program's image, its heap, a stack.
    pub fn open(address: u64) -> Result<Self> {
        let info = call::obj_info_used(address)?;
        if is_rusts_own(&info) {
            return Err(Error::InUse);
        }
        Ok(Self {
            base: info.base,
            bytes: info.bytes,
        })
    }

    /// A copy-on-write clone of the object at `source` with at least `extra` zero bytes behind it.
    ///
    /// # Errors
    /// As `ObjClone`.
    pub fn clone_of(source: u64, source_bytes: u64, extra: u64) -> Result<Self> {
        let (base, _) = call::obj_clone(source, extra, 0)?;
        let pages =
            abi::address::pages_for(source_bytes).and_then(|pages| pages.checked_add(abi::address::pages_for(extra)?));
        Ok(Self {
            base,
            bytes: pages.ok_or(Error::BadArgument)? * abi::address::PAGE,
        })
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
        // SAFETY: whoever made `self` saw to it that Rust owns nothing there. If the object is
        // deleted meanwhile, looking at it faults; its address is not given to Rust's heap or
        // stacks of this program while the handle's borrow lives, as deleting takes the handle.
        unsafe { Region::at(self.base, self.bytes) }
    }

    /// What stands at the beginning of the object.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the object is shorter.
    pub fn first<T: Persist>(&self) -> Result<&T> {
        self.region().at_offset(0).ok_or(Error::BadAddress)
    }

    /// What the system tells of it.
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

    /// Removes a password; who came in by it is out before this returns.
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
        call::page_flush(self.base, self.bytes / abi::address::PAGE)
    }

    /// Grows or shrinks it in place.
    ///
    /// # Errors
    /// As `ObjResize`.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        call::obj_resize(self.base, bytes)?;
        self.bytes = call::obj_info(self.base)?.bytes;
        Ok(())
    }

    /// Destroys it.
    ///
    /// # Errors
    /// As `ObjDelete`.
    pub fn delete(self) -> Result<()> {
        call::obj_delete(self.base)
    }

    /// Calls `look` with all of its bytes, for formats that are read from slices.
    ///
    /// Who else may write the object should not meanwhile: what `look` sees would change under it.
    pub(crate) fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: Rust owns nothing there (as in `region`); within this program nobody holds a
        // slice of it outside this function and the next, which run on one thread at a time each.
        look(unsafe { core::slice::from_raw_parts(self.base as *const u8, self.bytes as usize) })
    }

    /// As [`Object::with_bytes`], to change them.
    pub(crate) fn with_bytes_mut<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: as above, and the handle is borrowed exclusively.
        change(unsafe { core::slice::from_raw_parts_mut(self.base as *mut u8, self.bytes as usize) })
    }
}

/// Whether an object is memory that Rust hands out by its own rules.
fn is_rusts_own(info: &ObjectInfo) -> bool {
    let image = own_start().map_or(0, |start| start.image);
    info.flags & OBJECT_STACK != 0 || info.base == image || heap::owns(info.base)
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

/// A place in the program's image that remembers an object, so that a protected procedure of the
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

    /// Remembers the object.
    pub fn attach(&self, object: &Object) {
        self.base.store(object.base, Ordering::Relaxed);
        self.bytes.store(object.bytes, Ordering::Relaxed);
    }

    /// A handle of the object, if there is one.
    #[inline]
    pub fn object(&self) -> Option<Object> {
        let (base, bytes) = (self.base.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        (base != 0).then_some(Object { base, bytes })
    }

    /// The memory of the object, if there is one.
    #[inline]
    pub fn region(&self) -> Option<Region<'_>> {
        // SAFETY: as in `Object::region`: only a handle gets in here.
        self.object()
            .map(|object| unsafe { Region::at(object.base, object.bytes) })
    }
}

impl Default for Attachment {
    fn default() -> Self {
        Self::new()
    }
}

/// Marks what must stay on the thread that made it: a region's cells.
type NotShared<'a> = PhantomData<&'a Cell<u8>>;

/// Lets `write` fill in the place for arguments in an object that was just made.
pub(crate) fn write_arguments<R>(object: &Object, offset: u64, bytes: u64, write: impl FnOnce(&mut [u8]) -> R) -> R {
    let end = offset.checked_add(bytes).filter(|end| *end <= object.bytes);
    let bytes = if end.is_some() { bytes as usize } else { 0 };
    // SAFETY: the range is inside the object, which nobody else knows yet, and Rust owns nothing there.
    write(unsafe { core::slice::from_raw_parts_mut(object.base.wrapping_add(offset) as *mut u8, bytes) })
}

/// Gives back the closure whose box was turned into `parameter` by [`crate::thread::spawn`].
pub(crate) fn take_closure(parameter: u64) -> alloc::boxed::Box<dyn FnOnce() -> u64 + Send> {
    // SAFETY: `spawn` made the word of such a box and gave it to this one thread (or takes it back
    // because there is no thread).
    *unsafe { crate::thread::Closure::from_raw(parameter as *mut _) }
}
