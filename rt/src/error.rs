//! Errors of the runtime: an error of the system's table, or a name or format that is
//! not what it should be.

use core::fmt;

/// Why an operation of the runtime failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The system refused.
    System(abi::Error),
    /// A directory refused.
    Directory(names::directory::Error),
    /// A Clist refused.
    Clist(names::clist::Error),
    /// The text is not a path.
    Path(names::PathError),
    /// There is no such name.
    NoSuchName,
    /// The name stands for something of another kind.
    WrongKind(names::Kind),
    /// The object is not a program image.
    NotAProgram,
    /// The arguments do not fit the start page.
    ArgumentsTooLong,
}

/// A result with an error of the runtime.
pub type Result<T> = core::result::Result<T, Error>;

impl From<abi::Error> for Error {
    fn from(error: abi::Error) -> Self {
        Self::System(error)
    }
}

impl From<names::directory::Error> for Error {
    fn from(error: names::directory::Error) -> Self {
        match error {
            names::directory::Error::NotFound => Self::NoSuchName,
            names::directory::Error::BadName(error) => Self::Path(error),
            other => Self::Directory(other),
        }
    }
}

impl From<names::clist::Error> for Error {
    fn from(error: names::clist::Error) -> Self {
        Self::Clist(error)
    }
}

impl From<names::PathError> for Error {
    fn from(error: names::PathError) -> Self {
        Self::Path(error)
    }
}

impl Error {
    /// Its number in C: the code of the system's table, or one of `rt.h`, which begin behind those.
    pub const fn code(self) -> u64 {
        match self {
            Self::System(error) => error as u64,
            Self::NoSuchName => 256,
            Self::WrongKind(_) => 257,
            Self::Path(_) => 258,
            Self::Directory(_) => 259,
            Self::Clist(_) => 260,
            Self::NotAProgram => 261,
            Self::ArgumentsTooLong => 262,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => {
                write!(f, "{} ({})", sentence(error.text()), error.name())?;
                crate::report::Short::of(*error).map_or(Ok(()), |short| short.fmt(f))
            }
            Self::Directory(error) => error.fmt(f),
            Self::Clist(error) => error.fmt(f),
            Self::Path(error) => error.fmt(f),
            Self::NoSuchName => f.write_str("there is no such name"),
            Self::WrongKind(kind) => write!(f, "the name stands for another kind of object: {}", kind.name()),
            Self::NotAProgram => f.write_str("the object is not a program image"),
            Self::ArgumentsTooLong => {
                write!(f, "the arguments are longer than {} bytes", abi::start::ARGUMENTS_BYTES)
            }
        }
    }
}

impl core::error::Error for Error {}

/// A sentence of the table without its full stop, so that it can stand in another one.
pub(crate) fn sentence(text: &str) -> &str {
    text.strip_suffix('.').unwrap_or(text)
}
