//! State that each program has once: its start page and its heap; where the runtime is a module, its modules, too.
//!
//! An image has variables, so there the state is one. A module of rustc's code has none of its own (the compiler takes the
//! data register for itself, decision 0050), so there the state is found from the stack: every stack of the
//! system lies alone in a slot, at a base that the slot tells ([`abi::address::stack_base`]), and its two topmost words
//! lead to the state. A protected procedure runs on a stack of its own domain, so it finds state of its own domain
//! or none; its caller can neither see nor write these words (decision 0066).

use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "none")]
use super::heap::ProgramHeap;
use super::viewed::Viewed;

/// The state of a program. The fields that every program uses come first and the tables last, because each page of it that is touched costs a task
/// a copy.
#[repr(C)]
pub(crate) struct State {
    start_page: AtomicU64,
    /// [`module::MAGIC`].
    #[cfg(all(target_os = "none", feature = "module"))]
    magic: u64,
    /// The program's table of instantiated modules.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) modules: crate::module::Modules,
    /// Why the last thing failed that the program wanted of a module.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) message: super::Mutex<alloc::string::String>,
    #[cfg(target_os = "none")]
    pub(super) heap: ProgramHeap,
    /// Where it has had views of objects.
    pub(super) viewed: Viewed,
}

impl State {
    /// The address of the start page, or 0.
    #[inline]
    pub(crate) fn start_page(&self) -> u64 {
        self.start_page.load(Ordering::Relaxed)
    }

    /// Sets it, before `main`.
    #[cfg(all(target_os = "none", not(feature = "module")))]
    pub(crate) fn set_start_page(&self, page: u64) {
        self.start_page.store(page, Ordering::Relaxed);
    }
}

/// The state of the program that runs, if the calling thread has any. Cost: in an image nothing, in a module two loads and
/// some ten instructions.
#[inline(always)]
#[cfg_attr(
    not(all(target_os = "none", feature = "module")),
    expect(
        clippy::unnecessary_wraps,
        reason = "where the runtime is a module, a thread may have none"
    )
)]
pub(crate) fn find() -> Option<&'static State> {
    #[cfg(not(all(target_os = "none", feature = "module")))]
    return Some(&image::STATE);
    #[cfg(all(target_os = "none", feature = "module"))]
    return module::find();
}

/// The same for what cannot go on without it: a thread that has none ends, and says why.
#[cfg(target_os = "none")]
#[inline(always)]
pub(crate) fn state() -> &'static State {
    match find() {
        Some(state) => state,
        None => crate::call::program::stateless(),
    }
}

/// Of an image: a variable.
#[cfg(not(all(target_os = "none", feature = "module")))]
mod image {
    use super::{AtomicU64, State, Viewed};

    pub(super) static STATE: State = State {
        start_page: AtomicU64::new(0),
        viewed: Viewed::new(),
        #[cfg(target_os = "none")]
        heap: super::ProgramHeap::empty(),
    };
}

#[cfg(all(target_os = "none", feature = "module"))]
pub(crate) use module::{LEAST, attach, make};

/// Of a module: found from the stack.
#[cfg(all(target_os = "none", feature = "module"))]
mod module {
    use alloc::string::String;

    use abi::{
        Error,
        address::{PAGE, USER_END, USER_START, stack_end},
        error::Result,
        start::{ARGUMENTS_BYTES, ARGUMENTS_OFFSET, Start},
    };

    use super::State;
    use crate::{
        call,
        module::{Binding, Modules},
        object::{Mutex, instance::Arena},
    };

    /// Marks a state.
    const MAGIC: u64 = 0x6574_6174_5354_5230;
    /// The word below the topmost must be this one: so a word that a frame left there is not taken for a state.
    const MARK: u64 = 0x9e37_79b9_7f4a_7c15;
    /// Bytes of the object that heap begins with, from its base.
    const FIRST_HEAP: u64 = 16 * PAGE;

    /// The two topmost words of the stack that the caller runs on; none on memory that is no stack of the system.
    #[inline(always)]
    fn words() -> Option<*mut [u64; 2]> {
        stack_end(call::stack_pointer()).map(|end| (end - 16) as *mut [u64; 2])
    }

    #[inline(always)]
    pub(super) fn find() -> Option<&'static State> {
        // SAFETY: the words lie on the stack that the caller runs on, above its frames or in the first of them.
        let [mark, address] = unsafe { words()?.read_volatile() };
        if mark ^ MARK != address || address == 0 {
            return None;
        }
        // SAFETY: `attach` wrote the two words, or a thread whose first frame has them by chance or on purpose: that is
        // this program's own memory. A state stays for as long as the memory that it was made in: that of a program is
        // its task's. That of protected procedures is their domain's, and so is all that the state leads to: it is
        // confined, because an object made during a call is the calling task's and goes with that.
        Some(unsafe { &*(address as *const State) })
    }

    /// Lets the calling thread find a state from now on.
    ///
    /// # Safety
    /// The two topmost words of the stack hold nothing.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the thread is not on a stack of the system; [`Error::BadArgument`] if no state is at that
    /// address. It faults at an address where a program may have memory and the domain can read none.
    pub(crate) unsafe fn attach(address: u64) -> Result<()> {
        let words = words().ok_or(Error::BadAddress)?;
        let places = USER_START..USER_END - size_of::<State>() as u64;
        if !places.contains(&address) || !address.is_multiple_of(align_of::<State>() as u64) {
            return Err(Error::BadArgument);
        }
        // SAFETY: it is read as a plain word; where there is no memory, that faults.
        let magic = unsafe { (&raw const (*(address as *const State)).magic).read_volatile() };
        if magic != MAGIC {
            return Err(Error::BadArgument);
        }
        // SAFETY: promised by the caller.
        unsafe { words.write_volatile([address ^ MARK, address]) };
        Ok(())
    }

    /// Makes a state in the memory from `page` to `end`, behind the start page's arguments if there is one (`head`); the rest
    /// becomes the first heap and the memory of data segments. `shelf` is the directory of modules, where it was told. A
    /// `confined` state never makes objects: what does not fit there is not to be had. Gives the state's address.
    ///
    /// # Safety
    /// The memory is page-aligned and at least [`LEAST`] bytes; behind the arguments it holds zeroes that are nobody's, for as
    /// long as the state is used.
    pub(crate) unsafe fn make(
        (page, end): (u64, u64),
        head: &Start,
        binding: Binding,
        shelf: Option<crate::Object>,
        confined: bool,
    ) -> u64 {
        let arguments = head.argument_bytes.min(ARGUMENTS_BYTES);
        let at = (page + ARGUMENTS_OFFSET + arguments).next_multiple_of(64);
        let state = at as *mut State;
        let arena = Arena::within(page + FIRST_HEAP, end, confined);
        // SAFETY: the place is the caller's to give, aligned, and holds zeroes: that is an empty heap. The other fields
        // are written before anybody sees a reference to the whole.
        unsafe {
            (&raw mut (*state).start_page).write(super::AtomicU64::new(page));
            let heap = &mut (*state).heap;
            heap.begin(at + size_of::<State>() as u64, page + FIRST_HEAP, confined);
            (&raw mut (*state).modules).write(Modules::with(binding, arena, shelf));
            (&raw mut (*state).message).write(Mutex::new(String::new()));
            (&raw mut (*state).magic).write(MAGIC);
        }
        at
    }

    /// Bytes of memory that a state takes at least.
    pub(crate) const LEAST: u64 = 2 * FIRST_HEAP;

    const _: () = assert!(2 * PAGE + size_of::<State>() as u64 <= FIRST_HEAP);
}
