//! Changes to objects and pages, in the store and in the model.

use super::{Check, Driver, PageName, SLOT};
use crate::model::{Object, Page};
use std::collections::{BTreeMap, BTreeSet};
use store::{BLOCK, ObjectRecord, PageFlags, PdxList, PdxRecord, PutError};

impl Driver {
    pub(super) fn any_object(&mut self) -> Option<u64> {
        let bases: Vec<u64> = self.live.keys().copied().collect();
        (!bases.is_empty()).then(|| *self.rng.pick(&bases))
    }

    pub(super) fn any_page(&mut self, base: u64) -> u64 {
        let object = &self.live[&base];
        let known: Vec<u64> = object.pages.keys().copied().collect();
        if !known.is_empty() && self.rng.one_in(2) {
            return *self.rng.pick(&known);
        }
        let pages = object.record.pages;
        let reach = if self.rng.one_in(4) { pages } else { pages.min(12) };
        self.rng.below(reach)
    }

    pub(super) fn body(&mut self, record: &mut ObjectRecord) {
        let many = if self.rng.one_in(6) { 128 } else { 4 };
        let count = self.rng.below(many + 1);
        record.capabilities = (0..count).map(|_| (self.rng.next_u64(), 15)).collect();
        let calls = if self.rng.one_in(8) { self.rng.below(4) } else { 0 };
        record.pdx = PdxList::default();
        for _ in 0..calls {
            let pdx = PdxRecord {
                password: self.rng.next_u64(),
                entries: &vec![7; self.rng.below(193) as usize],
                ..PdxRecord::default()
            };
            record.pdx.add(pdx).expect("memory");
        }
    }

    pub(super) fn create(&mut self) -> Check {
        if self.live.len() > 14 || self.next_slot >= self.store.lease() {
            return Ok(());
        }
        // Between the commit and its event it may be used already.
        let is_told = self.store.stats().generation == self.generation;
        if let Some((&base, &pages)) = self.unusable.first_key_value().filter(|_| is_told) {
            let early = self.store.put_object(ObjectRecord {
                base,
                pages,
                ..ObjectRecord::default()
            });
            if early != Err(PutError::DeletionPending) {
                return Err(format!("an address was used again too early: {early:?}"));
            }
        }
        let (base, pages) = match self.reusable.pop() {
            Some(old) if self.rng.one_in(2) => old,
            _ => (self.next_slot * SLOT, *self.rng.pick(&[1, 1, 3, 20, 300, 70_000])),
        };
        let mut record = ObjectRecord {
            base,
            pages,
            tag: self.rng.next_u64(),
            ..ObjectRecord::default()
        };
        if base == self.next_slot * SLOT {
            self.next_slot += (pages * BLOCK as u64).div_ceil(SLOT);
            self.store.raise_high_water(self.next_slot);
        }
        self.body(&mut record);
        match self.store.put_object(record.clone()) {
            Ok(()) => {
                let object = Object {
                    record: record.clone(),
                    pages: BTreeMap::new(),
                };
                self.stored.insert(record.base, object.clone());
                self.live.insert(record.base, object);
            }
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("put {record:?}: {error:?}")),
        }
        Ok(())
    }

    pub(super) fn change_record(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let mut record = self.live[&base].record.clone();
        self.body(&mut record);
        record.modified_ns = self.rng.next_u64();
        match self.store.put_object(record.clone()) {
            Ok(()) => self.set_record(base, &record),
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("change {record:?}: {error:?}")),
        }
        // Revocation is synced with no pages.
        if self.rng.one_in(2) {
            self.begin_sync(Vec::new(), &[base]);
        }
        Ok(())
    }

    pub(super) fn set_record(&mut self, base: u64, record: &ObjectRecord) {
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.record = record.clone();
            }
        }
    }

    pub(super) fn resize(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        let mut record = self.live[&base].record.clone();
        // Within the slots it has.
        let slots = (record.pages * BLOCK as u64).div_ceil(SLOT);
        let pages = 1 + self.rng.below(slots * SLOT / BLOCK as u64);
        match self.store.resize(base, pages) {
            Ok(()) => {
                let old = record.pages;
                record.pages = pages;
                self.set_record(base, &record);
                self.forget(base, pages, old);
            }
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(error) => return Err(format!("resize {base:#x} to {pages}: {error:?}")),
        }
        Ok(())
    }

    /// Pages of a range are zero from now on.
    pub(super) fn forget(&mut self, base: u64, start: u64, end: u64) {
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.pages.retain(|page, _| !(start..end).contains(page));
            }
        }
        let gone: Vec<PageName> = self
            .dirty
            .iter()
            .filter(|name| name.0 == base && (start..end).contains(&name.1))
            .copied()
            .collect();
        for name in gone {
            self.dirty.remove(&name);
            self.store.unreserve(name.0, name.1);
        }
        let returned = self.returned.iter_mut().map(|(name, flight)| (&*name, flight));
        for (name, flight) in self.in_flight.iter_mut().chain(returned) {
            if name.0 == base && (start..end).contains(&name.1) {
                flight.before = Page::default();
                flight.written = Page::default();
            }
        }
        for (name, wanted) in &mut self.reading {
            if name.0 == base && (start..end).contains(&name.1) {
                *wanted = None;
            }
        }
    }

    pub(super) fn delete(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        self.remove(base)?;
        if self.rng.one_in(3) {
            self.begin_sync(Vec::new(), &[base]);
        }
        Ok(())
    }

    fn remove(&mut self, base: u64) -> Check {
        self.forget(base, 0, u64::MAX);
        let Some(object) = self.live.remove(&base) else {
            return Ok(());
        };
        self.stored.remove(&base);
        self.unusable.insert(base, object.record.pages);
        self.store
            .delete_object(base)
            .map_err(|_| format!("delete {base:#x}: no object"))
    }

    /// What a program does as one act: objects come and go, a directory is written and another one's record changes, and one sync
    /// names them all. After a crash all of it is there or nothing.
    pub(super) fn act(&mut self) -> Check {
        let Some(directory) = self.any_object() else {
            return Ok(());
        };
        let before: BTreeSet<u64> = self.live.keys().copied().collect();
        for _ in 0..=self.rng.below(3) {
            self.create()?;
        }
        let mut named: Vec<u64> = self
            .live
            .keys()
            .filter(|base| !before.contains(base))
            .copied()
            .collect();
        for _ in 0..=self.rng.below(2) {
            let Some(base) = self.any_object().filter(|&base| base != directory) else {
                continue;
            };
            self.remove(base)?;
            named.push(base);
        }
        if self.rng.one_in(2)
            && let Some(mut record) = self.live.get(&directory).map(|object| object.record.clone())
        {
            record.tag = self.rng.next_u64();
            match self.store.put_object(record.clone()) {
                Ok(()) => self.set_record(directory, &record),
                Err(PutError::DiskFull) => self.tally.disk_full += 1,
                Err(error) => return Err(format!("change {record:?}: {error:?}")),
            }
        }
        named.push(directory);
        named.sort_unstable();
        named.dedup();
        let pages = self.dirty.iter().filter(|name| named.contains(&name.0));
        let pages: Vec<_> = pages
            .filter(|name| !self.in_flight.contains_key(name) && !self.is_returned(**name))
            .copied()
            .collect();
        self.begin_sync(pages, &named);
        self.tally.acts += 1;
        Ok(())
    }

    pub(super) fn write(&mut self) {
        let Some(base) = self.any_object() else { return };
        for _ in 0..=self.rng.below(4) {
            let page = self.any_page(base);
            if self.store.reserve(base, page).is_err() {
                self.tally.disk_full += 1;
                return;
            }
            self.reading.entry((base, page)).and_modify(|wanted| *wanted = None);
            let flags = PageFlags::from_bits_retain(self.rng.below(8) as u16);
            let contents = Page {
                stamp: self.next_stamp,
                flags,
            };
            self.next_stamp += 1;
            if let Some(object) = self.live.get_mut(&base) {
                object.pages.insert(page, contents);
            }
            self.dirty.insert((base, page));
        }
    }

    pub(super) fn discard(&mut self) {
        let Some(base) = self.any_object() else { return };
        let start = self.any_page(base);
        let end = if self.rng.one_in(4) {
            u64::MAX
        } else {
            start + 1 + self.rng.below(5)
        };
        if self.store.discard_pages(base, start, end, &[]).is_err() {
            self.tally.disk_full += 1;
            return;
        }
        self.forget(base, start, end);
    }

    pub(super) fn limit(&mut self) {
        let Some(base) = self.any_object() else { return };
        let page = self.any_page(base);
        let name = (base, page);
        if self.dirty.contains(&name) || self.in_flight.contains_key(&name) || self.is_returned(name) {
            return;
        }
        let flags = PageFlags::from_bits_retain(1 + self.rng.below(7) as u16);
        if self.store.set_page_flags(base, page, flags).is_err() {
            self.tally.disk_full += 1;
            return;
        }
        for state in [&mut self.live, &mut self.stored] {
            if let Some(object) = state.get_mut(&base) {
                object.pages.entry(page).or_default().flags = flags;
            }
        }
        self.reading.entry(name).and_modify(|wanted| *wanted = None);
    }

    pub(super) fn is_returned(&self, name: PageName) -> bool {
        self.returned.iter().any(|(other, ..)| *other == name)
    }
}
