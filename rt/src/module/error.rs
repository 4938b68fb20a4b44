//! Errors of modules: each says which module, and what to do.

use alloc::{
    boxed::Box,
    string::{String, ToString},
};
use core::fmt;

use linker::module::Fault;

/// Why a module could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The runtime or the system refused.
    Runtime(crate::Error),
    /// The module, or what was linked against it.
    Fault(Box<Fault>),
    /// The module is not installed. If another module imports it, that module and the function that it wants.
    Missing {
        /// The module that is not there.
        module: String,
        /// The function that is called; may be empty.
        symbol: String,
        /// The calling module; empty if it was asked for by name.
        by: String,
    },
    /// The name is on the shelf, and there is no object where it leads.
    LeadsNowhere(String),
    /// The module does not export this.
    NoExport {
        /// The module.
        module: String,
        /// The name.
        symbol: String,
    },
    /// This version is installed already.
    Installed(String),
    /// Other domains have it.
    InUse(String),
    /// There is no instance with its data there.
    NoInstance(u64),
}

/// A result with an error of modules.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// Adds the importing module and its symbol to an error that says that a module is missing.
    #[must_use]
    pub(super) fn wanted_by(self, who: &str, what: &str) -> Self {
        match self {
            Self::Missing { module, by, .. } if by.is_empty() => Self::Missing {
                module,
                symbol: what.to_string(),
                by: who.to_string(),
            },
            other => other,
        }
    }
}

impl Error {
    /// Its number in C, as `rt.h` has it.
    pub const fn code(&self) -> u64 {
        match self {
            Self::Runtime(error) => error.code(),
            Self::Missing { .. } | Self::LeadsNowhere(_) => 263,
            Self::NoExport { .. } => 264,
            Self::Fault(_) => 265,
            Self::Installed(_) | Self::InUse(_) => 266,
            Self::NoInstance(_) => 267,
        }
    }
}

impl<E: Into<crate::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Runtime(error.into())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
            Self::Missing { module, symbol, by } => {
                if by.is_empty() {
                    write!(f, "there is no module {module}")?;
                } else if symbol.is_empty() {
                    write!(f, "{by} imports the module {module}, which is not installed")?;
                } else {
                    write!(f, "{by} uses '{symbol}' of the module {module}, which is not installed")?;
                }
                f.write_str(": 'module install FILE' puts it there")
            }
            Self::LeadsNowhere(name) => write!(
                f,
                "{name} leads nowhere, its module is gone: 'module remove {}' takes the name away",
                crate::names::Quoted(name)
            ),
            Self::NoExport { module, symbol } => {
                write!(
                    f,
                    "the module {module} exports no '{symbol}': 'module show {module}' lists what it exports"
                )
            }
            Self::Installed(name) => write!(f, "{name} is installed already: give the new one another version"),
            Self::InUse(name) => write!(
                f,
                "{name} is in use by another domain, and stays: try again when its users have ended"
            ),
            Self::NoInstance(data) => write!(f, "there is no instance of a module with its data at {data:#x}"),
        }
    }
}

impl core::error::Error for Error {}
