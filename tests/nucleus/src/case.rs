//! Cases, and how they fail.

use nucleus::RootPage;
pub use testing::{Failure, Outcome, ensure, ensure_eq, ensure_error};

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

/// The setting of a case.
pub struct Setting {
    /// The kernel's words to the root program.
    pub root: RootPage,
    /// How many calls the fuzzing makes, if not the usual number.
    pub calls: Option<u64>,
    /// Everything random follows from this.
    pub seed: u64,
}
