//! Cases, and how they fail.
//!
//! A case is a function that says what is wrong. Each runs in a task of its own: if it faults it
//! fails alone, if it hangs it is ended, and what it made goes with it.

pub use testing::{Failure, Outcome, ensure, ensure_eq, ensure_error};

/// The setting of a case.
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
