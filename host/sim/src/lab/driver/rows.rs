//! Rows that must be read before an object is used, where the table is in memory in parts.

use super::{Check, Driver};
use crate::world::SimWorld;
use store::{Absent, BadRows, Event, ObjectRecord, Store};

/// Ranges of addresses.
pub(super) type Ranges = Vec<(u64, u64)>;

/// Times that a leaf is asked for where the disk or the memory fails.
const TRIES: usize = 10_000;

impl Driver {
    /// Has the row of an object in memory from now on, if there is such an object.
    pub(super) fn hold(&mut self, base: u64) {
        for _ in 0..TRIES {
            match self.store.find_containing(base) {
                Ok(Some(record)) if record.base == base => return self.store.hold(base),
                Ok(_) => return,
                Err(absent) => self.fetch(absent),
            }
            if self.trouble.is_some() {
                return;
            }
        }
        self.trouble.get_or_insert(format!("the row of {base:#x} never comes"));
    }

    /// Has the rows in memory that an object needs to be entered, or to get longer.
    pub(super) fn near(&mut self, base: u64) {
        for _ in 0..TRIES {
            match self.store.find_near(base) {
                Ok(()) => return,
                Err(absent) => self.fetch(absent),
            }
            if self.trouble.is_some() {
                return;
            }
        }
        self.trouble
            .get_or_insert(format!("the rows beside {base:#x} never come"));
    }

    fn fetch(&mut self, absent: Absent) {
        self.tally.leaves += 1;
        let outcome = match self.tried(|store, world| store.read_rows(world, absent)) {
            Ok(key) => self.wait_for(key),
            Err(BadRows::Disk) if self.options.failing != 0 => Ok(()),
            // Behind the events the next attempt goes well.
            Err(BadRows::Memory) if self.options.memory => self.events(),
            Err(bad) => Err(format!("the rows from {:#x} on: {bad:?}", absent.from())),
        };
        if let Err(what) = outcome {
            self.trouble.get_or_insert(what);
        }
    }

    fn wait_for(&mut self, key: u64) -> Check {
        self.came.remove(&key);
        loop {
            self.events()?;
            if self.came.remove(&key) {
                return Ok(());
            }
            if !self.world.step() && !self.store.is_stopped() {
                return Err("the rows wait for nothing".into());
            }
        }
    }

    /// Leaves have come.
    pub(super) fn rows_read(&mut self, key: u64) {
        self.came.insert(key);
    }
}

/// All records of a store on which nothing is under way, each held; and the ranges of addresses of which nothing can be known.
pub(super) fn all_records(store: &mut Store, world: &mut SimWorld) -> Check<(Vec<ObjectRecord>, Ranges)> {
    let (mut records, mut lost): (Vec<ObjectRecord>, Ranges) = Default::default();
    let mut next = 0;
    loop {
        match store.find_from(next) {
            Ok(None) => return Ok((records, lost)),
            Ok(Some(record)) => {
                next = record.base + 1;
                records.push(record.clone());
                store.hold(next - 1);
            }
            Err(absent) => match store.read_rows(world, absent) {
                Err(_) if absent.end() == u64::MAX => {
                    lost.push((absent.from(), absent.end()));
                    return Ok((records, lost));
                }
                Err(_) => {
                    lost.push((absent.from(), absent.end()));
                    next = absent.end();
                }
                Ok(key) => loop {
                    match store.poll(world) {
                        Some(Event::RowsRead { key: other }) if key == other => break,
                        Some(Event::Damaged { .. }) => {}
                        Some(other) => return Err(format!("reading rows: {other:?}")),
                        None if world.step() => {}
                        None => return Err("the rows wait for nothing".into()),
                    }
                },
            },
        }
    }
}
