//! Cases, and how they fail.
//!
//! A case is a function that says what is wrong. Each runs in a task of its own: if it faults it
//! fails alone, if it hangs it is ended, and what it made goes with it.

use alloc::{format, string::String};
use core::{fmt, panic::Location};

/// What a case is told.
#[derive(Copy, Clone, Debug)]
pub struct Setting {
    /// Everything random follows from this.
    pub seed: u64,
    /// How many calls the fuzzing makes.
    pub calls: u64,
}

/// A case.
#[derive(Copy, Clone, Debug)]
pub struct Case {
    /// Its name: group, slash, what it shows.
    pub name: &'static str,
    /// How long it may take, in milliseconds.
    pub limit_ms: u64,
    /// Does it.
    pub run: fn(&Setting) -> Outcome,
}

/// A case with the usual limit of time.
pub const fn case(name: &'static str, run: fn(&Setting) -> Outcome) -> Case {
    Case {
        name,
        limit_ms: 20_000,
        run,
    }
}

/// A part that an assistant plays.
#[derive(Copy, Clone, Debug)]
pub struct Role {
    /// Its name on the command line.
    pub name: &'static str,
    /// Plays it with the numbers from the command line; gives the status to end with.
    pub play: fn(&[u64; 6]) -> u64,
}

/// A part.
pub const fn role(name: &'static str, play: fn(&[u64; 6]) -> u64) -> Role {
    Role { name, play }
}

/// Whether all was well, or what was not.
pub type Outcome<T = ()> = Result<T, Failure>;

/// What was not well, and where it was noticed.
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

impl From<abi::Error> for Failure {
    #[track_caller]
    fn from(error: abi::Error) -> Self {
        Self::new(format_args!("unexpected error {}", error.name()))
    }
}

impl From<rt::Error> for Failure {
    #[track_caller]
    fn from(error: rt::Error) -> Self {
        Self::new(format_args!("unexpected error: {error}"))
    }
}

/// Fails unless the condition holds.
macro_rules! ensure {
    ($condition:expr) => {
        $crate::case::ensure!($condition, "it does not hold that {}", stringify!($condition))
    };
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::case::Failure::new(format_args!($($text)+)));
        }
    };
}

/// Fails unless both are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::case::Failure::new(format_args!(
                "{} is {left:x?}, not {right:x?}",
                stringify!($left)
            )));
        }
    }};
}

/// Fails unless the result is this error.
macro_rules! ensure_error {
    ($result:expr, $error:ident) => {
        match $result {
            Err(abi::Error::$error) => {}
            other => {
                let text = stringify!($result);
                return Err($crate::case::Failure::new(format_args!(
                    "{text} gives {other:x?}, not {}",
                    stringify!($error)
                )));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq, ensure_error};
