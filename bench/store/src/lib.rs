//! The rows of `./gond bench --store`: the work, the same for each engine, and our store over a file as one of them.
//!
//! Databases as peers are in `bench/store-peers`, a program outside of the workspace that has crates of its own (decision
//! 0195). It uses what is here, so one loop drives all.
#![forbid(unsafe_code)]

mod file;
mod own;
mod rows;

pub use file::{Counts, FileWorld};
pub use own::Own;
pub use rows::{Done, Row, Size, filled, measured, verified};

/// Bytes of a page, and of a large record.
pub const PAGE: usize = store::BLOCK;
/// Bytes of a small record.
pub const SMALL: usize = 64;
/// Bytes of memory that an engine may use as a cache, beside the page cache of the operating system: what a machine of 128 MiB,
/// which is the usual one, lets the store keep of changed map nodes.
pub const CACHE: usize = 8 << 20;

/// The content of a page.
pub type Page = [u8; PAGE];

/// How changed pages become durable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Durable {
    /// By the engine's way for few at once.
    Sync,
    /// By its way for all that has changed, if that is another one.
    Checkpoint,
}

/// An error in words.
pub type Outcome<T> = Result<T, String>;

/// Something that keeps pages (records of 4 KiB with a number) and small records.
pub trait Engine {
    /// Changes these pages, each as `fill` says, and makes them durable together.
    ///
    /// # Errors
    /// The engine's, in words.
    fn write(&mut self, pages: &[u64], durable: Durable, fill: &mut dyn FnMut(u64, &mut Page)) -> Outcome<()>;

    /// Shows a page.
    ///
    /// # Errors
    /// The engine's, or that it is not there.
    fn probe(&mut self, page: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()>;

    /// Shows the first pages, in order.
    ///
    /// # Errors
    /// The engine's.
    fn scan(&mut self, pages: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()>;

    /// Makes small records with these numbers, durable together.
    ///
    /// # Errors
    /// The engine's.
    fn create(&mut self, first: u64, count: u64) -> Outcome<()>;

    /// Deletes them, durable together.
    ///
    /// # Errors
    /// The engine's.
    fn delete(&mut self, first: u64, count: u64) -> Outcome<()>;

    /// The number that a small record holds; `None` if there is no such record.
    ///
    /// # Errors
    /// The engine's.
    fn find(&mut self, number: u64) -> Outcome<Option<u64>>;

    /// Small records in all.
    ///
    /// # Errors
    /// The engine's.
    fn count(&mut self) -> Outcome<u64>;

    /// Its own counts since it was opened, if it has any.
    fn counts(&self) -> Option<Counts> {
        None
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// The engine's.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// The number that a small record with this number holds: its first word.
pub fn held(number: u64) -> u64 {
    rows::mix(number ^ 0x5ea1)
}

/// The bytes of a small record with this number.
pub fn small(number: u64) -> [u8; SMALL] {
    let mut bytes = [0x5a; SMALL];
    bytes[..8].copy_from_slice(&held(number).to_le_bytes());
    bytes
}

/// The number that a small record holds.
pub fn number_in(small: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*small.first_chunk()?))
}
