//! Cases, and how they fail.

use alloc::{format, string::String};
use core::{fmt, panic::Location};

use nucleus::RootPage;

/// A case.
#[derive(Copy, Clone)]
pub struct Case {
    /// Its name: group, slash, what it shows.
    pub name: &'static str,
    /// Does it.
    pub run: fn(&Setting) -> Outcome,
}

/// A case of this name.
pub const fn case(name: &'static str, run: fn(&Setting) -> Outcome) -> Case {
    Case { name, run }
}

/// What a case is told.
pub struct Setting {
    /// What the kernel told the root program.
    pub root: RootPage,
    /// Everything random follows from this.
    pub seed: u64,
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
