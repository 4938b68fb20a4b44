//! Changes to objects and pages, in the store and in the model.

use super::{Check, Driver, PageName, SLOT};
use crate::lab::model::{Object, Page, State};
use std::collections::{BTreeMap, BTreeSet};
use store::{BLOCK, ObjectRecord, PageFlags, PdxList, PdxRecord, PutError};

impl Driver {
    pub(super) fn any_object(&mut self) -> Option<u64> {
        let bases: Vec<u64> = self.live.keys().copied().collect();
        let base = (!bases.is_empty()).then(|| *self.rng.pick(&bases));
        base.inspect(|&base| self.hold(base))
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
        let pages = *self.rng.pick(&[1, 1, 3, 20, 300, 70_000]);
        self.enter(pages, 0).map(drop)
    }

    /// Makes an object of so many pages, or of as many as an old one whose place it takes; gives its base if there was room for it.
    pub(in crate::lab) fn enter(&mut self, pages: u64, account: u64) -> Check<Option<u64>> {
        if self.live.len() > 14 || self.next_slot >= self.store.lease() {
            return Ok(None);
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
            _ => (self.next_slot * SLOT, pages),
        };
        let mut record = ObjectRecord {
            base,
            pages,
            account,
            tag: self.rng.next_u64(),
            ..ObjectRecord::default()
        };
        if base == self.next_slot * SLOT {
            self.next_slot += (pages * BLOCK as u64).div_ceil(SLOT);
            self.store.raise_high_water(self.next_slot);
        }
        self.body(&mut record);
        let entered = record.clone();
        self.near(base);
        match self.tried(|store, _| store.put_object(entered)) {
            Ok(()) => {
                let object = Object {
                    record: record.clone(),
                    pages: BTreeMap::new(),
                };
                for state in self.states() {
                    state.insert(record.base, object.clone());
                }
                Ok(Some(base))
            }
            Err(PutError::DiskFull) => {
                self.tally.disk_full += 1;
                Ok(None)
            }
            Err(PutError::Memory) if self.options.memory => Ok(None),
            Err(error) => Err(format!("put {record:?}: {error:?}")),
        }
    }

    pub(super) fn change_record(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        self.change(base)?;
        // Revocation is synced with no pages.
        if self.rng.one_in(2) {
            self.begin_sync(Vec::new(), &[base]);
        }
        Ok(())
    }

    /// Gives an object other capabilities and procedures.
    pub(in crate::lab) fn change(&mut self, base: u64) -> Check {
        let mut record = self.live[&base].record.clone();
        self.body(&mut record);
        record.modified_ns = self.rng.next_u64();
        let changed = record.clone();
        self.hold(base);
        match self.tried(|store, _| store.put_object(changed)) {
            Ok(()) => self.set_record(base, &record),
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(PutError::Memory) if self.options.memory => {}
            Err(error) => return Err(format!("change {record:?}: {error:?}")),
        }
        Ok(())
    }

    pub(super) fn set_record(&mut self, base: u64, record: &ObjectRecord) {
        for state in self.states() {
            if let Some(object) = state.get_mut(&base) {
                object.record = record.clone();
            }
        }
    }

    pub(super) fn resize(&mut self) -> Check {
        let Some(base) = self.any_object() else { return Ok(()) };
        // Within the slots it has.
        let slots = (self.live[&base].record.pages * BLOCK as u64).div_ceil(SLOT);
        let pages = 1 + self.rng.below(slots * SLOT / BLOCK as u64);
        self.resize_to(base, pages)
    }

    pub(in crate::lab) fn resize_to(&mut self, base: u64, pages: u64) -> Check {
        let mut record = self.live[&base].record.clone();
        self.hold(base);
        self.near(base);
        match self.tried(|store, _| store.resize(base, pages)) {
            Ok(()) => {
                let old = record.pages;
                record.pages = pages;
                self.set_record(base, &record);
                self.forget(base, pages, old);
            }
            Err(PutError::DiskFull) => self.tally.disk_full += 1,
            Err(PutError::Memory) if self.options.memory => {}
            Err(error) => return Err(format!("resize {base:#x} to {pages}: {error:?}")),
        }
        Ok(())
    }

    /// Pages of a range are zero from now on.
    pub(super) fn forget(&mut self, base: u64, start: u64, end: u64) {
        for state in self.states() {
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
        for (name, flight) in self.in_flight.iter_mut().chain(&mut self.returned) {
            if name.0 == base && (start..end).contains(&name.1) {
                flight.before = Page::default();
                flight.bare_before = Page::default();
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
        let Some(base) = self.any_object().filter(|&base| !self.is_spoken_for(base)) else {
            return Ok(());
        };
        self.remove(base)?;
        if self.rng.one_in(3) {
            self.begin_sync(Vec::new(), &[base]);
        }
        Ok(())
    }

    pub(in crate::lab) fn remove(&mut self, base: u64) -> Check {
        self.hold(base);
        self.forget(base, 0, u64::MAX);
        let Some(object) = self.live.remove(&base) else {
            return Ok(());
        };
        self.stored.remove(&base);
        self.bare.as_mut().map(|bare| bare.remove(&base));
        self.unusable.insert(base, object.record.pages);
        self.store
            .delete_object(base)
            .map_err(|_| format!("delete {base:#x}: no object"))
    }

    /// What a program does as one act: objects come and go, a directory is written and another one's record changes, and one sync
    /// names them all. After a crash all of it is there or nothing.
    pub(super) fn act(&mut self) -> Check {
        let Some(directory) = self.any_object().filter(|&base| !self.is_directory(base)) else {
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
            let is_free = |base: &u64| *base != directory && !self.is_spoken_for(*base);
            let bases: Vec<u64> = self.live.keys().copied().filter(is_free).collect();
            if bases.is_empty() {
                continue;
            }
            let base = *self.rng.pick(&bases);
            self.remove(base)?;
            named.push(base);
        }
        if self.rng.one_in(2)
            && let Some(mut record) = self.live.get(&directory).map(|object| object.record.clone())
        {
            record.tag = self.rng.next_u64();
            let changed = record.clone();
            match self.tried(|store, _| store.put_object(changed)) {
                Ok(()) => self.set_record(directory, &record),
                Err(PutError::DiskFull) => self.tally.disk_full += 1,
                Err(PutError::Memory) if self.options.memory => {}
                Err(error) => return Err(format!("change {record:?}: {error:?}")),
            }
        }
        named.push(directory);
        named.sort_unstable();
        named.dedup();
        self.sync_group(&named);
        Ok(())
    }

    /// Makes objects durable together, each as it is or gone, with their dirty pages.
    pub(in crate::lab) fn sync_group(&mut self, named: &[u64]) {
        let pages = self.dirty.iter().filter(|name| named.contains(&name.0));
        let pages: Vec<_> = pages.filter(|name| !self.is_syncing(**name)).copied().collect();
        self.begin_sync(pages, named);
        self.tally.acts += 1;
    }

    pub(super) fn write(&mut self) {
        let Some(base) = self.any_object().filter(|&base| !self.is_directory(base)) else {
            return;
        };
        // Sometimes neighbours, which go to the disk together.
        let first = self.any_page(base);
        let pages = self.live[&base].record.pages.saturating_sub(first);
        let (together, alone) = (self.rng.one_in(6), 1 + self.rng.below(5));
        for at in 0..if together { pages.min(4 * alone) } else { alone } {
            let page = match at {
                0 => first,
                _ if together => first + at,
                _ => self.any_page(base),
            };
            if self.write_page(base, page).is_none() {
                return;
            }
        }
    }

    /// Gives a page other contents; their stamp, if there is room for them.
    pub(in crate::lab) fn write_page(&mut self, base: u64, page: u64) -> Option<u64> {
        self.hold(base);
        if self.tried(|store, _| store.reserve(base, page)).is_err() {
            self.tally.disk_full += 1;
            return None;
        }
        self.reading.entry((base, page)).and_modify(|wanted| *wanted = None);
        let flags = PageFlags::from_bits_retain(self.rng.below(8) as u16);
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        if let Some(object) = self.live.get_mut(&base) {
            object.pages.insert(page, Page { stamp, flags });
        }
        self.dirty.insert((base, page));
        Some(stamp)
    }

    pub(super) fn discard(&mut self) {
        let Some(base) = self.any_object().filter(|&base| !self.is_directory(base)) else {
            return;
        };
        let start = self.any_page(base);
        let end = if self.rng.one_in(4) {
            u64::MAX
        } else {
            start + 1 + self.rng.below(5)
        };
        self.discard_range(base, start, end);
    }

    pub(in crate::lab) fn discard_range(&mut self, base: u64, start: u64, end: u64) {
        self.hold(base);
        if self
            .tried(|store, _| store.discard_pages(base, start, end, &[]))
            .is_err()
        {
            self.tally.disk_full += 1;
            return;
        }
        self.forget(base, start, end);
    }

    pub(super) fn limit(&mut self) {
        let Some(base) = self.any_object() else { return };
        let page = self.any_page(base);
        self.limit_page(base, page);
    }

    pub(in crate::lab) fn limit_page(&mut self, base: u64, page: u64) {
        self.hold(base);
        let name = (base, page);
        if self.dirty.contains(&name) || self.is_away(name) {
            return;
        }
        let flags = PageFlags::from_bits_retain(1 + self.rng.below(7) as u16);
        if self.tried(|store, _| store.set_page_flags(base, page, flags)).is_err() {
            self.tally.disk_full += 1;
            return;
        }
        for state in self.states() {
            if let Some(object) = state.get_mut(&base) {
                object.pages.entry(page).or_default().flags = flags;
            }
        }
        self.reading.entry(name).and_modify(|wanted| *wanted = None);
    }

    /// Whether a job has the page.
    pub(super) fn is_away(&self, name: PageName) -> bool {
        let mut away = self.in_flight.iter().chain(&self.returned);
        away.any(|(other, _)| *other == name)
    }

    /// Whether a sync has it.
    pub(super) fn is_syncing(&self, name: PageName) -> bool {
        let mut away = self.in_flight.iter().chain(&self.returned);
        away.any(|(other, flight)| *other == name && flight.job.is_some())
    }

    /// Whether a sync that names its object cannot have it as it is: another one has it, or it is on its way with the checkpoint and was not written since. The server waits then.
    pub(super) fn is_withheld(&self, name: PageName) -> bool {
        self.is_syncing(name) || self.is_away(name) && !self.dirty.contains(&name)
    }

    /// The states that a change of an object changes at once.
    fn states(&mut self) -> impl Iterator<Item = &mut State> {
        [Some(&mut self.live), Some(&mut self.stored), self.bare.as_mut()]
            .into_iter()
            .flatten()
    }
}
