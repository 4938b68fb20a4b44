//! The macro that makes the first procedure of a thread of an ordinary function.
//!
//! It expands in programs, which have no unsafe code of their own; what it promises is promised here.

/// Makes the first procedure of a thread of a function of one word: defines a function `$name` that
/// gives its [`ThreadEntry`](crate::call::ThreadEntry). The thread ends when the function returns.
#[macro_export]
macro_rules! thread_entry {
    ($visibility:vis $name:ident, $function:path) => {
        #[doc = concat!("The thread procedure that calls `", stringify!($function), "`.")]
        #[allow(unsafe_code, reason = "this macro is part of the call module")]
        $visibility fn $name() -> $crate::call::ThreadEntry {
            extern "C" fn shim(parameter: u64) {
                $function(parameter);
            }
            // SAFETY: the kernel enters here with the parameter in the first argument's register
            // and a fresh stack; the body is the architecture's wrapper, which never returns.
            #[unsafe(naked)]
            extern "C" fn wrapper() -> ! {
                $crate::nucleus_thread_wrapper!(shim)
            }
            // SAFETY: it is just such a function.
            unsafe { $crate::call::ThreadEntry::new(wrapper as *const () as u64) }
        }
    };
}
