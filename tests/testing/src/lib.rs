//! Tools that the suites share that run as programs, in the system and on the bare µ-kernel: how a case fails, and randomness that
//! repeats from its seed.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod random;

use alloc::{format, string::String};
use core::{fmt, panic::Location};

pub use abi::Error;
pub use random::Random;

/// Whether all was well, or what was not.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A fault, and where it was noticed.
#[derive(Debug)]
pub struct Failure {
    text: String,
    place: &'static Location<'static>,
}

impl Failure {
    /// Something was not well.
    #[track_caller]
    pub fn new(text: fmt::Arguments<'_>) -> Self {
        Self {
            text: format!("{text}"),
            place: Location::caller(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.place.file();
        let file = file.rsplit('/').next().unwrap_or(file);
        write!(f, "{} ({file}:{})", self.text, self.place.line())
    }
}

impl<E: core::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::new(format_args!("unexpected error: {error}"))
    }
}

/// Fails unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr) => {
        $crate::ensure!($condition, "it does not hold that {}", stringify!($condition))
    };
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format_args!($($text)+)));
        }
    };
}

/// Fails unless both are equal.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::Failure::new(format_args!(
                "{} is {left:x?}, not {right:x?}",
                stringify!($left)
            )));
        }
    }};
}

/// Fails unless the result is this error.
#[macro_export]
macro_rules! ensure_error {
    ($result:expr, $error:ident) => {
        match $result {
            Err($crate::Error::$error) => {}
            other => {
                let text = stringify!($result);
                return Err($crate::Failure::new(format_args!(
                    "{text} gives {other:x?}, not {}",
                    stringify!($error)
                )));
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{Error, Outcome};

    fn odd(number: u32) -> Outcome {
        ensure!(number > 1);
        ensure!(number != 4, "{number} is four");
        ensure_eq!(number % 2, 1);
        ensure_error!(number.checked_sub(5).ok_or(Error::BadArgument), BadArgument);
        Err(Error::TimedOut)?;
        Ok(())
    }

    #[test]
    fn failures_say_what_and_where() {
        let told = |number| odd(number).map_err(|failure| failure.to_string()).unwrap_err();
        assert!(
            told(1).starts_with("it does not hold that number > 1 (lib.rs:"),
            "{}",
            told(1)
        );
        assert!(told(4).starts_with("4 is four (lib.rs:"), "{}", told(4));
        assert!(told(6).starts_with("number % 2 is 0, not 1 ("), "{}", told(6));
        assert!(told(7).contains("gives Ok(2), not BadArgument ("), "{}", told(7));
        assert!(told(3).starts_with("unexpected error: "), "{}", told(3));
    }
}
