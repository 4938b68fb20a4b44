//! redb: commits are durable at once, which is its default; its cache is as large as that of the others.

use crate::database::Database;
use ::redb::{Error, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::path::Path;
use store_bench::{CACHE, PAGE, Page, number_in, small};

const PAGES: TableDefinition<u64, &[u8]> = TableDefinition::new("pages");
const SMALL: TableDefinition<u64, &[u8]> = TableDefinition::new("small");

/// The database.
pub struct Redb(::redb::Database);

impl Database for Redb {
    type Error = Error;

    fn open(folder: &Path) -> Result<Redb, Error> {
        let database = ::redb::Database::builder()
            .set_cache_size(CACHE)
            .create(folder.join("redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(PAGES)?;
        transaction.open_table(SMALL)?;
        transaction.commit()?;
        Ok(Redb(database))
    }

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

    fn close(self) -> Result<(), Error> {
        Ok(())
    }
}
