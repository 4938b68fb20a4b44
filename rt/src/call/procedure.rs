//! Procedures that the kernel enters: the macros that make them of ordinary functions.
//!
//! Both expand in programs, which have no unsafe code of their own; what they promise is promised here.

/// Makes an entry point of a function of four words that returns two: defines a function `$name`
/// that gives its [`Entry`].
///
/// ```no_run
/// rt::pdx_entry!(add_entry, add);
/// fn add(a: u64, b: u64, _: u64, _: u64) -> (u64, u64) { (a + b, 0) }
/// ```
#[macro_export]
macro_rules! pdx_entry {
    ($visibility:vis $name:ident, $function:path) => {
        #[doc = concat!("The entry point of `", stringify!($function), "`.")]
        #[allow(unsafe_code, reason = "this macro is part of rt's system-call module")]
        $visibility fn $name() -> $crate::pdx::Entry {
            extern "C" fn shim(w0: u64, w1: u64, w2: u64, w3: u64) -> $crate::pdx::Results {
                let (first, second): (u64, u64) = $function(w0, w1, w2, w3);
                $crate::pdx::Results(first, second)
            }
            // SAFETY: the kernel enters here with the words in registers and a fresh stack; the
            // body is the architecture's wrapper, which never returns.
            #[unsafe(naked)]
            extern "C" fn wrapper() -> ! {
                $crate::pdx_wrapper!(shim)
            }
            $crate::pdx::Entry(wrapper as *const () as u64)
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
