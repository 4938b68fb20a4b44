//! Procedures that the kernel enters: the macros that make them of ordinary functions.
//!
//! Both expand in programs, which have no unsafe code of their own; what they promise is promised here.

use abi::error::Result;

/// The entry point of a protected procedure of this program; made by [`pdx_entry!`](crate::pdx_entry), and by nothing else:
///
/// ```compile_fail
/// let anywhere = rt::pdx::Entry(0x1000);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct PdxEntry(u64);

impl PdxEntry {
    /// The procedure at an address.
    ///
    /// # Safety
    /// 1. It is a naked function whose body is `pdx_wrapper!` (or does as much), around a function that may be called
    ///    with any words from any domain, and ends by `leave_procedure`.
    #[doc(hidden)]
    pub const unsafe fn new(address: u64) -> Self {
        Self(address)
    }

    /// Its address, by which others call it.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0
    }
}

impl From<PdxEntry> for u64 {
    #[inline]
    fn from(entry: PdxEntry) -> Self {
        entry.0
    }
}

/// `ObjCrePdx` with entries that are known to be ones, and a password of the system's.
///
/// # Errors
/// As the table says; `TableFull` for more than sixteen.
pub(crate) fn register_entries(object: u64, clist: u64, entries: &[PdxEntry]) -> Result<u64> {
    /// Few programs have more; the system's bound is higher.
    const ENTRIES: usize = 16;
    let mut addresses = [0; ENTRIES];
    let addresses = addresses.get_mut(..entries.len()).ok_or(abi::Error::TableFull)?;
    for (address, entry) in addresses.iter_mut().zip(entries) {
        *address = entry.0;
    }
    // SAFETY: (1) an entry is made by `pdx_entry!` only.
    unsafe { super::obj_cre_pdx(object, 0, clist, addresses) }
}

/// Makes an entry point of a function of four words that returns two: defines a function `$name`
/// that gives its [`Entry`].
///
/// ```no_run
/// rt::pdx_entry!(add_entry, add);
/// fn add(a: u64, b: u64, _: u64, _: u64) -> (u64, u64) { (a + b, 0) }
/// ```
///
/// With `#[inline(always)]` the function is the procedure itself, and a call of it saves some ten instructions: nobody wants the registers back
/// that it would keep for a caller.
#[macro_export]
macro_rules! pdx_entry {
    ($visibility:vis $name:ident, $function:path) => {
        #[doc = concat!("The entry point of `", stringify!($function), "`.")]
        #[allow(unsafe_code, reason = "this macro is part of rt's system-call module")]
        $visibility fn $name() -> $crate::pdx::Entry {
            extern "C" fn shim(w0: u64, w1: u64, w2: u64, w3: u64) -> ! {
                let (first, second): (u64, u64) = $function(w0, w1, w2, w3);
                // SAFETY: the kernel entered the wrapper, and the function has returned.
                unsafe { $crate::call::leave_procedure(first, second) }
            }
            // SAFETY: the kernel enters here with the words in registers and a fresh stack; the
            // body is the architecture's wrapper, which never returns.
            #[unsafe(naked)]
            extern "C" fn wrapper() -> ! {
                $crate::pdx_wrapper!(shim)
            }
            // SAFETY: it is just such a function.
            unsafe { $crate::pdx::Entry::new(wrapper as *const () as u64) }
        }
    };
}

/// Makes the first procedure of a thread of a function of one word that returns the status: defines
/// a function `$name` that gives its [`ThreadEntry`].
#[macro_export]
macro_rules! thread_entry {
    ($visibility:vis $name:ident, $function:path) => {
        #[doc = concat!("The thread procedure that calls `", stringify!($function), "`.")]
        #[allow(unsafe_code, reason = "this macro is part of rt's system-call module")]
        $visibility fn $name() -> $crate::thread::ThreadEntry {
            extern "C" fn shim(parameter: u64) -> u64 {
                $function(parameter)
            }
            // SAFETY: the kernel enters here with the parameter in the first argument's register
            // and a fresh stack; the body is the architecture's wrapper, which never returns.
            #[unsafe(naked)]
            extern "C" fn wrapper() -> ! {
                $crate::thread_wrapper!(shim)
            }
            // SAFETY: it is just such a function.
            unsafe { $crate::thread::ThreadEntry::new(wrapper as *const () as u64) }
        }
    };
}
