//! The abstract model of address spaces (Liedtke 1995, Appendix A) as the paper defines it: the
//! oracle of the tests, as simple as can be.
//!
//! A space is a table of `σ_v` for all pages v: a real page (in σ₀), a page of another space (σ, v), or
//! nothing (φ). The paper's extension by access rights (section 2.1) is in the entries; `link` is an entry
//! that stays when what it leads to changes. Only [`Model::replace`] modifies a table: it flushes
//! what came from there before, so no cycle can arise.
//!
//! One rule is ours: a real page that no space has any more stands in σ₀ again.

use std::collections::BTreeMap;

use abi::Rights;

/// `σ_v`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A real page.
    Real(u64, Rights),
    /// The content of another space at a page.
    Of(u32, u64, Rights),
}

/// All spaces, σ₀ being number 0.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Model {
    /// (space, page) to what stands there; what is missing is φ.
    pub entries: BTreeMap<(u32, u64), Entry>,
    /// (space, slot) to whose slot of the same number is seen there, and with which rights.
    pub links: BTreeMap<(u32, u64), (u32, Rights)>,
    /// R: the real pages, and what σ₀ may do with them.
    pub pages: BTreeMap<u64, Rights>,
}

/// Pages in a slot.
const SLOT: u64 = abi::address::PAGES_PER_SLOT;

impl Model {
    /// σ₀ with these real pages (each at its own number).
    pub fn new(pages: impl IntoIterator<Item = (u64, Rights)>) -> Self {
        let pages: BTreeMap<u64, Rights> = pages.into_iter().collect();
        let entries = pages
            .iter()
            .map(|(&page, &rights)| ((0, page), Entry::Real(page, rights)));
        Self {
            entries: entries.collect(),
            links: BTreeMap::new(),
            pages,
        }
    }

    /// σ(v): the real page that a space has at a page, and its rights; by the recursive definition.
    pub fn real(&self, space: u32, page: u64) -> Option<(u64, Rights)> {
        if let Some(&(owner, rights)) = self.links.get(&(space, page / SLOT)) {
            let (real, own) = self.real(owner, page)?;
            return Some((real, own.intersection(rights)));
        }
        match *self.entries.get(&(space, page))? {
            Entry::Real(real, rights) => Some((real, rights)),
            Entry::Of(space, page, rights) => {
                let (real, own) = self.real(space, page)?;
                Some((real, own.intersection(rights)))
            }
        }
    }

    /// `σ_v ← x`: flush (σ, v), then the new value.
    fn replace(&mut self, space: u32, page: u64, entry: Option<Entry>) {
        self.flush(space, page);
        let before = match entry {
            Some(entry) => self.entries.insert((space, page), entry),
            None => self.entries.remove(&(space, page)),
        };
        if let Some(Entry::Real(real, _)) = before {
            self.give_back(real);
        }
    }

    /// A real page that stands nowhere stands in σ₀.
    fn give_back(&mut self, real: u64) {
        let holds = |entry: &Entry| matches!(*entry, Entry::Real(page, _) if page == real);
        if !self.entries.values().any(holds) {
            self.entries.insert((0, real), Entry::Real(real, self.pages[&real]));
        }
    }

    /// Map: `σ'_v' ← (σ, v)`. The mapper must have the page.
    pub fn map(&mut self, from: (u32, u64), to: (u32, u64), rights: Rights) {
        self.replace(to.0, to.1, Some(Entry::Of(from.0, from.1, rights)));
        // The source may have come from the target: then it went with what was there.
        if self.real(from.0, from.1).is_none() {
            self.entries.remove(&to);
        }
    }

    /// Grant: `σ'_v' ← σ_v, σ_v ← φ`. The granter must have the page.
    pub fn grant(&mut self, from: (u32, u64), to: (u32, u64), rights: Rights) {
        self.replace(to.0, to.1, None);
        let Some(&entry) = self.entries.get(&from) else { return };
        let narrowed = match entry {
            Entry::Real(real, own) => Entry::Real(real, own.intersection(rights)),
            Entry::Of(space, page, own) => Entry::Of(space, page, own.intersection(rights)),
        };
        self.entries.insert(to, narrowed);
        self.replace(from.0, from.1, None);
    }

    /// The spaces that have a page from here, directly.
    fn derived(&self, space: u32, page: u64) -> Vec<(u32, u64)> {
        let from_here = |entry: &Entry| matches!(*entry, Entry::Of(s, v, _) if (s, v) == (space, page));
        let found = self.entries.iter().filter(|(_, entry)| from_here(entry));
        found.map(|(&place, _)| place).collect()
    }

    /// Flush: for all `σ'_v' = (σ, v)`: `σ'_v' ← φ`.
    pub fn flush(&mut self, space: u32, page: u64) {
        for (space, page) in self.derived(space, page) {
            self.replace(space, page, None);
        }
    }

    /// The special flush that removes only some rights; R stands for the page itself.
    pub fn flush_rights(&mut self, space: u32, page: u64, rights: Rights) {
        if rights.contains(Rights::R) {
            return self.flush(space, page);
        }
        for (space, page) in self.derived(space, page) {
            self.flush_rights(space, page, rights);
            self.remove_own(space, page, rights);
        }
    }

    /// Takes rights, or with R the page, from a space itself; what came from there is flushed too.
    pub fn flush_own(&mut self, space: u32, page: u64, rights: Rights) {
        self.flush_rights(space, page, rights);
        if rights.contains(Rights::R) {
            self.replace(space, page, None);
        } else {
            self.remove_own(space, page, rights);
        }
    }

    fn remove_own(&mut self, space: u32, page: u64, rights: Rights) {
        // σ₀ has all rights to what there is.
        if space == 0 {
            return;
        }
        if let Some(Entry::Real(_, own) | Entry::Of(.., own)) = self.entries.get_mut(&(space, page)) {
            *own = own.without(rights);
        }
    }

    /// Link: a slot of a space shows what the owner has there, now and later.
    pub fn link(&mut self, owner: u32, space: u32, slot: u64, rights: Rights) {
        for page in slot * SLOT..(slot + 1) * SLOT {
            self.replace(space, page, None);
        }
        self.links.insert((space, slot), (owner, rights));
    }

    /// Takes rights, or with R the links, from all that link a slot of a space.
    pub fn flush_links(&mut self, owner: u32, slot: u64, rights: Rights) {
        self.links.retain(|&(_, linked), (of, own)| {
            if (*of, linked) != (owner, slot) {
                return true;
            }
            *own = own.without(rights);
            own.contains(Rights::R)
        });
    }

    /// A space goes: all its pages, its links, and the links to it.
    pub fn destroy(&mut self, space: u32) {
        self.links
            .retain(|&(linker, _), &mut (owner, _)| linker != space && owner != space);
        let pages: Vec<u64> = self
            .entries
            .range((space, 0)..=(space, u64::MAX))
            .map(|(&(_, v), _)| v)
            .collect();
        for page in pages {
            self.replace(space, page, None);
        }
    }
}
