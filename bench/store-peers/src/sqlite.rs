//! `SQLite`, by rusqlite, with a write-ahead log and `synchronous=FULL`, so that each commit flushes; its cache is as large as
//! that of the others. The log is copied into the file when it has 1,000 pages, which is the default.

use crate::database::Database;
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::path::Path;
use store_bench::{CACHE, PAGE, Page, number_in, small};

/// The database.
pub struct Sqlite(Connection);

impl Sqlite {
    /// Does something in a transaction, whose statements are prepared once as all others.
    fn together(&self, what: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        self.0.prepare_cached("begin immediate")?.execute([])?;
        what(&self.0)?;
        self.0.prepare_cached("commit")?.execute([])?;
        Ok(())
    }
}

impl Database for Sqlite {
    type Error = rusqlite::Error;

    fn open(folder: &Path) -> Result<Sqlite> {
        let connection = Connection::open(folder.join("sqlite"))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -i64::try_from(CACHE >> 10).unwrap_or(i64::MAX))?;
        connection.execute_batch(
            "create table if not exists pages (number integer primary key, content blob not null);
             create table if not exists small (number integer primary key, content blob not null);",
        )?;
        Ok(Sqlite(connection))
    }

    fn put(&mut self, pages: &[u64], fill: &mut dyn FnMut(u64, &mut Page)) -> Result<()> {
        self.together(|connection| {
            let mut put = connection.prepare_cached(
                "insert into pages values (?1, ?2) on conflict (number) do update set content = excluded.content",
            )?;
            let mut bytes = [0; PAGE];
            for &page in pages {
                fill(page, &mut bytes);
                put.execute(params![page.cast_signed(), &bytes[..]])?;
            }
            Ok(())
        })
    }

    fn seen(&self, first: u64, count: u64, see: &mut dyn FnMut(&[u8])) -> Result<u64> {
        if count == 1 {
            let mut one = self.0.prepare_cached("select content from pages where number = ?1")?;
            let found = one.query_row(params![first.cast_signed()], |row| {
                see(row.get_ref(0)?.as_blob().unwrap_or_default());
                Ok(())
            });
            return Ok(u64::from(found.optional()?.is_some()));
        }
        let mut all = self
            .0
            .prepare_cached("select content from pages where number >= ?1 and number < ?2 order by number")?;
        let mut rows = all.query(params![first.cast_signed(), (first + count).cast_signed()])?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob().unwrap_or_default());
            seen += 1;
        }
        Ok(seen)
    }

    fn make(&mut self, first: u64, count: u64) -> Result<()> {
        self.together(|connection| {
            let mut put = connection.prepare_cached("insert into small values (?1, ?2)")?;
            for number in first..first + count {
                put.execute(params![number.cast_signed(), &small(number)[..]])?;
            }
            Ok(())
        })
    }

    fn remove(&mut self, first: u64, count: u64) -> Result<()> {
        self.together(|connection| {
            let mut remove = connection.prepare_cached("delete from small where number = ?1")?;
            for number in first..first + count {
                remove.execute(params![number.cast_signed()])?;
            }
            Ok(())
        })
    }

    fn number(&self, number: u64) -> Result<Option<u64>> {
        let mut one = self.0.prepare_cached("select content from small where number = ?1")?;
        let found = one.query_row(params![number.cast_signed()], |row| {
            Ok(row.get_ref(0)?.as_blob().ok().and_then(number_in))
        });
        Ok(found.optional()?.flatten())
    }

    fn small_records(&self) -> Result<u64> {
        self.0
            .query_row("select count(*) from small", [], |row| row.get(0))
            .map(i64::cast_unsigned)
    }

    fn close(self) -> Result<()> {
        self.0.close().map_err(|(_, error)| error)
    }
}
