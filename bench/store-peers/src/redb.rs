//! redb: commits are durable at once, which is its default; its cache is as large as that of the others.

use crate::said;
use ::redb::{Database, Error, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::path::Path;
use store_bench::{CACHE, Durable, Engine, Outcome, PAGE, Page, Size, number_in, small};

const PAGES: TableDefinition<u64, &[u8]> = TableDefinition::new("pages");
const SMALL: TableDefinition<u64, &[u8]> = TableDefinition::new("small");

/// redb.
pub struct Kind;

struct Redb(Database);

fn open(folder: &Path) -> Result<Redb, Error> {
    let database = Database::builder().set_cache_size(CACHE).create(folder.join("redb"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(PAGES)?;
    transaction.open_table(SMALL)?;
    transaction.commit()?;
    Ok(Redb(database))
}

impl crate::Kind for Kind {
    fn create(&self, folder: &Path, _: Size) -> Outcome<Box<dyn Engine>> {
        self.open(folder)
    }

    fn open(&self, folder: &Path) -> Outcome<Box<dyn Engine>> {
        Ok(Box::new(said(open(folder))?))
    }
}

impl Redb {
    fn put(&mut self, pages: &[u64], fill: &mut dyn FnMut(u64, &mut Page)) -> Result<(), Error> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(PAGES)?;
        let mut bytes = [0; PAGE];
        for &page in pages {
            fill(page, &mut bytes);
            table.insert(page, &bytes[..])?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn seen(&self, first: u64, count: u64, see: &mut dyn FnMut(&[u8])) -> Result<u64, Error> {
        let table = self.0.begin_read()?.open_table(PAGES)?;
        if count == 1 {
            let found = table.get(first)?;
            let is_there = found.is_some();
            if let Some(value) = found {
                see(value.value());
            }
            return Ok(u64::from(is_there));
        }
        let mut seen = 0;
        for entry in table.range(first..first + count)? {
            see(entry?.1.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn make(&mut self, first: u64, count: u64) -> Result<(), Error> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(SMALL)?;
        for number in first..first + count {
            table.insert(number, &small(number)[..])?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn remove(&mut self, first: u64, count: u64) -> Result<(), Error> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(SMALL)?;
        for number in first..first + count {
            table.remove(number)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn number(&self, number: u64) -> Result<Option<u64>, Error> {
        let table = self.0.begin_read()?.open_table(SMALL)?;
        Ok(table.get(number)?.and_then(|value| number_in(value.value())))
    }

    fn small_records(&self) -> Result<u64, Error> {
        Ok(self.0.begin_read()?.open_table(SMALL)?.len()?)
    }
}

impl Engine for Redb {
    fn write(&mut self, pages: &[u64], _: Durable, fill: &mut dyn FnMut(u64, &mut Page)) -> Outcome<()> {
        said(self.put(pages, fill))
    }

    fn probe(&mut self, page: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match said(self.seen(page, 1, see))? {
            1 => Ok(()),
            _ => Err(format!("page {page} is not there")),
        }
    }

    fn scan(&mut self, pages: u64, see: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match said(self.seen(0, pages, see))? {
            seen if seen == pages => Ok(()),
            seen => Err(format!("{seen} of {pages} pages are there")),
        }
    }

    fn create(&mut self, first: u64, count: u64) -> Outcome<()> {
        said(self.make(first, count))
    }

    fn delete(&mut self, first: u64, count: u64) -> Outcome<()> {
        said(self.remove(first, count))
    }

    fn find(&mut self, number: u64) -> Outcome<Option<u64>> {
        said(self.number(number))
    }

    fn count(&mut self) -> Outcome<u64> {
        said(self.small_records())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}
