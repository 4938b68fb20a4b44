//! LMDB, by heed: keys are integers of the machine, a commit is as safe as it can be (no flag is set). It has no cache of its own:
//! reads are of a map of the file, so no system call shows them.

use crate::database::Database;
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Env, EnvOpenOptions, IntegerComparator, PutFlags};
use std::path::Path;
use store_bench::{PAGE, Page, number_in, small};

/// Bytes of addresses: more than the file will ever have.
const MAP: usize = 16 << 30;

type Records = heed::Database<U64<NativeEndian>, Bytes, IntegerComparator>;

/// The database.
pub struct Lmdb {
    env: Env,
    pages: Records,
    small: Records,
}

impl Database for Lmdb {
    type Error = heed::Error;

    fn open(folder: &Path) -> heed::Result<Lmdb> {
        // SAFETY: nothing else has these files open, nor changes them.
        let env = unsafe { EnvOpenOptions::new().map_size(MAP).max_dbs(2).open(folder)? };
        let mut transaction = env.write_txn()?;
        let options = || {
            env.database_options()
                .types::<U64<NativeEndian>, Bytes>()
                .key_comparator::<IntegerComparator>()
        };
        let pages = options().name("pages").create(&mut transaction)?;
        let small = options().name("small").create(&mut transaction)?;
        transaction.commit()?;
        Ok(Lmdb { env, pages, small })
    }

    fn put(&mut self, pages: &[u64], fill: &mut dyn FnMut(u64, &mut Page)) -> heed::Result<()> {
        let mut transaction = self.env.write_txn()?;
        let mut bytes = [0; PAGE];
        for &page in pages {
            fill(page, &mut bytes);
            self.pages.put(&mut transaction, &page, &bytes)?;
        }
        transaction.commit()
    }

    fn seen(&self, first: u64, count: u64, see: &mut dyn FnMut(&[u8])) -> heed::Result<u64> {
        let transaction = self.env.read_txn()?;
        if count == 1 {
            let found = self.pages.get(&transaction, &first)?;
            found.into_iter().for_each(&mut *see);
            return Ok(u64::from(found.is_some()));
        }
        let mut seen = 0;
        for entry in self.pages.range(&transaction, &(first..first + count))? {
            see(entry?.1);
            seen += 1;
        }
        Ok(seen)
    }

    fn make(&mut self, first: u64, count: u64) -> heed::Result<()> {
        let mut transaction = self.env.write_txn()?;
        for number in first..first + count {
            self.small
                .put_with_flags(&mut transaction, PutFlags::NO_OVERWRITE, &number, &small(number))?;
        }
        transaction.commit()
    }

    fn remove(&mut self, first: u64, count: u64) -> heed::Result<()> {
        let mut transaction = self.env.write_txn()?;
        for number in first..first + count {
            self.small.delete(&mut transaction, &number)?;
        }
        transaction.commit()
    }

    fn number(&self, number: u64) -> heed::Result<Option<u64>> {
        let transaction = self.env.read_txn()?;
        Ok(self.small.get(&transaction, &number)?.and_then(number_in))
    }

    fn small_records(&self) -> heed::Result<u64> {
        let transaction = self.env.read_txn()?;
        self.small.len(&transaction)
    }

    fn close(self) -> heed::Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
