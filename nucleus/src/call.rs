//! Calls of the µ-kernel: the trap, one function for each call of the table, and what is unsafe besides.
//!
//! Each function bears the name and the arguments of the table (`docs/spec/abi.md`) and returns its
//! values or the error. A test compares them with the table.
//!
//! What is safe? As in `rt`: a call that takes memory away makes the next access fault, and that is safe.

mod arch;
pub mod entry;
pub mod heap;

use abi::{Error, error::Result, nucleus::Call};

pub use arch::ticks;

/// What comes back from the kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// 0 is success, else the code of an [`Error`].
    pub error: u64,
    /// The value.
    pub value: u64,
    /// The second value.
    pub value2: u64,
}

impl Answer {
    /// The values or the error.
    ///
    /// # Errors
    /// The one that the code names; a code the table does not know counts as [`Error::BadCall`].
    #[inline]
    pub fn result(self) -> Result<(u64, u64)> {
        match self.error {
            0 => Ok((self.value, self.value2)),
            code => Err(error_of(code)),
        }
    }
}

/// Out of the way of calls that succeed.
#[cold]
#[inline(never)]
fn error_of(code: u64) -> Error {
    Error::from_code(code).unwrap_or(Error::BadCall)
}

/// Any call with any arguments, as the table says it.
///
/// # Safety
/// Whatever the call does to memory at the addresses given keeps Rust's rules for it.
#[inline(always)]
pub unsafe fn raw(number: u64, arguments: [u64; 6]) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { arch::system_call(number, arguments) }
}

/// A call by number whose arguments name no memory: for tests of what the kernel makes of bad ones.
///
/// # Errors
/// As the table says.
pub fn any(number: u64, arguments: [u64; 6]) -> Result<(u64, u64)> {
    // SAFETY: the kernel writes to no address that it is given (module theory).
    unsafe { raw(number, arguments) }.result()
}

/// Arguments padded to six.
#[inline(always)]
const fn words<const N: usize>(given: [u64; N]) -> [u64; 6] {
    let mut all = [0; 6];
    let mut index = 0;
    while index < N {
        all[index] = given[index];
        index += 1;
    }
    all
}

/// Defines the calls that take and give plain words and are safe whatever the words are.
macro_rules! safe_calls {
    ($($call:ident $name:ident($($argument:ident),*) -> $shape:ident;)*) => {
        $(
            #[doc = concat!("`Nucleus", stringify!($call), "` of the table (`docs/spec/abi.md`).")]
            ///
            /// # Errors
            /// As the table says.
            #[inline]
            pub fn $name($($argument: u64),*) -> safe_calls!(@type $shape) {
                // SAFETY: the call writes to no address it is given (module theory).
                unsafe { raw(Call::$call as u64, words([$($argument),*])) }.result().map(safe_calls!(@map $shape))
            }
        )*

        /// Names and arguments, for the test.
        #[cfg(test)]
        const SAFE: &[(&str, &[&str])] = &[$((stringify!($name), &[$(stringify!($argument)),*]),)*];
    };
    (@type none) => { Result<()> };
    (@type one) => { Result<u64> };
    (@type two) => { Result<(u64, u64)> };
    (@map none) => { |_| () };
    (@map one) => { |(value, _)| value };
    (@map two) => { |values| values };
}

safe_calls! {
    LogWrite log_write(bytes, count) -> none;
    MachineStop machine_stop(exit) -> none;
    ThreadSelf thread_self() -> two;
    ClockNow clock_now() -> one;
}

/// Stops the machine with that value of the exit device, or, where the caller may not, the thread.
pub fn stop(exit: u8) -> ! {
    let _ = machine_stop(u64::from(exit));
    arch::fault()
}

#[cfg(test)]
mod tests {
    use super::SAFE;

    /// Calls written by hand above.
    const OTHERS: &[&str] = &[];

    #[test]
    fn every_call_of_the_table_has_its_function() {
        for info in abi::nucleus::TABLE {
            let safe = SAFE.iter().find(|(name, _)| *name == info.rust_name);
            match safe {
                Some((_, arguments)) => assert_eq!(*arguments, info.arguments, "{}", info.name),
                None => assert!(OTHERS.contains(&info.rust_name), "{}", info.name),
            }
        }
        assert_eq!(SAFE.len() + OTHERS.len(), abi::nucleus::TABLE.len());
    }
}
