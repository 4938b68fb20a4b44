//! The common part of the databases: each has the same operations under other names, and errors of a type of its own.

use crate::Kind;
use std::fmt::Display;
use std::marker::PhantomData;
use std::path::Path;
use store_bench::{Durable, Engine, Outcome, Page, Size};

/// A database.
pub trait Database: Sized + 'static {
    /// Its errors.
    type Error: Display;

    /// Opens its files in a folder, and makes those that are not there.
    fn open(folder: &Path) -> Result<Self, Self::Error>;

    /// Changes pages, each as `fill` says, in one transaction.
    fn put(&mut self, pages: &[u64], fill: &mut dyn FnMut(u64, &mut Page)) -> Result<(), Self::Error>;

    /// Shows so many pages, in order, as far as they are there; how many were.
    fn seen(&self, first: u64, count: u64, see: &mut dyn FnMut(&[u8])) -> Result<u64, Self::Error>;

    /// Makes small records in one transaction.
    fn make(&mut self, first: u64, count: u64) -> Result<(), Self::Error>;

    /// Deletes them in one.
    fn remove(&mut self, first: u64, count: u64) -> Result<(), Self::Error>;

    /// The number that a small record holds.
    fn number(&self, number: u64) -> Result<Option<u64>, Self::Error>;

    /// Small records in all.
    fn small_records(&self) -> Result<u64, Self::Error>;

    /// Ends it in order.
    fn close(self) -> Result<(), Self::Error>;
}

/// A database as an engine.
struct Peer<D>(D);

/// The kind of engine that a database is.
pub struct KindOf<D>(PhantomData<fn() -> D>);

impl<D> KindOf<D> {
    /// The only one.
    pub const KIND: Self = Self(PhantomData);
}

impl<D: Database> Kind for KindOf<D> {
    fn create(&self, folder: &Path, _: Size) -> Outcome<Box<dyn Engine>> {
        self.open(folder)
    }

    fn open(&self, folder: &Path) -> Outcome<Box<dyn Engine>> {
        Ok(Box::new(Peer(said(D::open(folder))?)))
    }
}

/// An error in words.
pub fn said<T, E: Display>(result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| error.to_string())
}

impl<D: Database> Engine for Peer<D> {
    fn write(&mut self, pages: &[u64], _: Durable, fill: &mut dyn FnMut(u64, &mut Page)) -> Outcome<()> {
        said(self.0.put(pages, fill))
    }

    fn probe(&mut self, page: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match said(self.0.seen(page, 1, see))? {
            1 => Ok(()),
            _ => Err(format!("page {page} is not there")),
        }
    }

    fn scan(&mut self, pages: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match said(self.0.seen(0, pages, see))? {
            seen if seen == pages => Ok(()),
            seen => Err(format!("{seen} of {pages} pages are there")),
        }
    }

    fn create(&mut self, first: u64, count: u64) -> Outcome<()> {
        said(self.0.make(first, count))
    }

    fn delete(&mut self, first: u64, count: u64) -> Outcome<()> {
        said(self.0.remove(first, count))
    }

    fn find(&mut self, number: u64) -> Outcome<Option<u64>> {
        said(self.0.number(number))
    }

    fn count(&mut self) -> Outcome<u64> {
        said(self.0.small_records())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        said(self.0.close())
    }
}
