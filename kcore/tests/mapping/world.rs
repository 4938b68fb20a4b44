//! A kernel and the paper's model side by side, and a fake TLB that remembers what the page tables
//! said until it is told to forget.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use abi::{Error, Rights};
use kcore::{
    Hardware, Kernel, Machine, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress, Resource, TABLE_UNITS},
    },
    paging,
    space::Tags,
};

use crate::{
    errors,
    fake::Fake,
    model::{Entry, Model},
};

/// The sizes of pages.
pub const PAGE: u8 = 12;
pub const SLOT: u8 = 21;
pub const GIB: u8 = 30;
pub const RWX: Rights = Rights::RWX;
/// A gibibyte of memory of σ₀ that is one page.
pub const LARGE: (u32, u32) = (0x4_0000, 0x8_0000);

/// Frames that the kernel has for tables; σ₀ has others.
pub const KERNEL_FRAMES: u32 = 4000;

/// Ports stand behind all pages in the model.
pub const PORTS: u64 = 1 << 36;
/// Pieces of one operation at most: all ports, one by one.
pub const PIECES_MAX: u32 = 40_000;

/// Frame, rights.
pub type Translation = (u64, Rights);

/// One operation. Spaces are numbers of the model, σ₀ is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Give {
        how: How,
        from: usize,
        source: Fpage,
        to: usize,
        window: Fpage,
    },
    Flush {
        space: usize,
        what: Fpage,
        rights: Rights,
        own: Own,
    },
    Create {
        creator: usize,
        quota: u32,
    },
    Destroy {
        space: usize,
    },
}

pub fn give(how: How, from: usize, source: Fpage, to: usize, window: Fpage) -> Op {
    Op::Give {
        how,
        from,
        source,
        to,
        window,
    }
}

pub fn flush(space: usize, what: Fpage, rights: Rights, own: Own) -> Op {
    Op::Flush {
        space,
        what,
        rights,
        own,
    }
}

pub struct World {
    pub kernel: Kernel<Fake, Bare>,
    pub model: Model,
    /// By number in the model.
    pub spaces: Vec<Option<SpaceId>>,
    pub creators: Vec<usize>,
    /// Spaces whose destruction has begun.
    dying: Vec<usize>,
    /// In which order they were made.
    made: Vec<u32>,
    /// Pages that are compared, of every space: the model knows no others.
    samples: Vec<u64>,
    tlb: BTreeMap<(u32, u64), Translation>,
    /// Pages that σ₀ granted as part of a larger page: they come back with it.
    lent: Vec<u64>,
    /// Whether quotas are so small that a large page may be lost whole.
    pub tight: bool,
    /// Calls since the last one that finished something.
    unfinished: u32,
    /// Operations that are not finished, and where they go on: each is a thread's.
    going: Vec<(Op, Going)>,
}

pub fn memory(page: u64, log2: u8, rights: Rights) -> Fpage {
    Fpage::memory(page * 4096, log2, rights).expect("an fpage")
}

/// First page (or port, behind all pages) of an fpage, and how many.
pub fn pages(fpage: Fpage) -> (u64, u64) {
    match fpage.resource() {
        Resource::Memory => (fpage.base() / 4096, fpage.size() / 4096),
        Resource::Ports => (PORTS + fpage.base(), fpage.size()),
    }
}

impl World {
    /// σ₀ with these frames; the samples are compared.
    pub fn new(ranges: &[(u32, u32)], samples: &[u64], quota: u32) -> Self {
        let mut kernel = Kernel::new(Fake::new(KERNEL_FRAMES, Tags::Absent), &[(1, KERNEL_FRAMES)]);
        let sigma0 = kernel.sigma0_create(quota, ranges, &[], 2).expect("σ₀");
        let real = |&page: &u64| {
            page >= PORTS
                || ranges
                    .iter()
                    .any(|&(first, end)| (u64::from(first)..u64::from(end)).contains(&page))
        };
        let rights = |page| if page >= PORTS { Rights::RW } else { Rights::RWX };
        let model = Model::new(samples.iter().copied().filter(real).map(|page| (page, rights(page))));
        Self {
            kernel,
            model,
            spaces: vec![Some(sigma0)],
            creators: vec![0],
            dying: Vec::new(),
            made: vec![0],
            samples: samples.to_vec(),
            tlb: BTreeMap::new(),
            lent: Vec::new(),
            tight: false,
            unfinished: 0,
            going: Vec::new(),
        }
    }

    /// An operation that is not finished begins at the front, as another thread's.
    pub fn begin_anew(&mut self, op: &Op) {
        self.going.retain(|(other, _)| other != op);
    }

    pub fn id(&self, space: usize) -> Option<SpaceId> {
        self.spaces.get(space).copied().flatten()
    }

    /// A created space with that quota.
    pub fn create(&mut self, creator: usize, quota: u32) -> Result<usize, Error> {
        let creator_id = self.id(creator).ok_or(Error::BadArgument)?;
        let id = self.kernel.free_space_create(creator_id, quota)?;
        let now = self.made.iter().max().map_or(0, |last| last + 1);
        // The number of one that is gone is used again.
        if let Some(number) = self.spaces.iter().position(Option::is_none) {
            (self.spaces[number], self.creators[number], self.made[number]) = (Some(id), creator, now);
            return Ok(number);
        }
        self.spaces.push(Some(id));
        self.creators.push(creator);
        self.made.push(now);
        Ok(self.spaces.len() - 1)
    }

    /// Whether the model knows a page.
    pub fn follows(&self, page: u64) -> bool {
        self.samples.contains(&page)
    }

    /// Whether the destruction of a space has begun and is not finished.
    pub fn is_dying(&self, space: usize) -> bool {
        self.dying.contains(&space)
    }

    /// A space goes, after the youngest of those that it made, and so on.
    fn dies(&mut self, space: usize) {
        let mut at = Some(space);
        while let Some(space) = at {
            self.dying.push(space);
            let children = (1..self.spaces.len()).filter(|&number| self.id(number).is_some());
            at = (children.filter(|&number| self.creators[number] == space)).max_by_key(|&number| self.made[number]);
        }
    }

    /// The answer that a processor would find, or a permission bitmap say.
    pub fn translate(&self, space: usize, page: u64) -> Option<Translation> {
        let id = self.id(space)?;
        if page >= PORTS {
            let port = (page - PORTS) as usize;
            let allowed = self.kernel.ports(id)?[port / 8] >> (port % 8) & 1 == 0;
            return allowed.then_some((page, Rights::RW));
        }
        walk(&self.kernel, id, page)
    }

    /// One call, and the same in the model. Returns whether it must be done again.
    pub fn step(&mut self, op: &Op) -> Result<Progress, Error> {
        let (expected, left) = (errors::expected(self, op), errors::left(self, op));
        let known = self.going.iter().position(|(other, _)| other == op);
        let mut going = known.map_or_else(Going::default, |known| self.going.swap_remove(known).1.next_piece());
        let result = match *op {
            Op::Give {
                how,
                from,
                source,
                to,
                window,
            } => self.give(how, (from, source), (to, window), &mut going),
            Op::Flush {
                space,
                what,
                rights,
                own,
            } => self.flush(space, what, (rights, own), &mut going),
            Op::Create { creator, quota } => self.create(creator, quota).map(|_| Progress::Done),
            Op::Destroy { space } => self.destroy(space),
        };
        errors::check(self, op, expected, left, result.err());
        let more = result == Ok(Progress::More);
        if more {
            self.going.push((op.clone(), going));
        }
        self.unfinished += u32::from(more);
        // Of a long operation not every call has all invariants checked: each port of each space is looked at. But the model follows every
        // call: a page that is given to where it came from is lost to its giver before it is lost to its receiver, and the next call finds nothing to give.
        let looks = !more || self.unfinished % 16 == 1;
        if looks && let Err(error) = self.kernel.mapping_check() {
            panic!("{error} after {op:?}");
        }
        self.compare(op, self.unfinished > 0);
        if looks {
            self.check_tlb(op);
        }
        if !more {
            self.unfinished = 0;
        }
        result
    }

    /// The same call until it is finished.
    pub fn run(&mut self, op: &Op) -> Result<(), Error> {
        for _ in 0..PIECES_MAX {
            if self.step(op)? == Progress::Done {
                return Ok(());
            }
        }
        panic!("{op:?} never ends");
    }

    fn give(
        &mut self,
        how: How,
        (from, source): (usize, Fpage),
        (to, window): (usize, Fpage),
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let missing = Error::BadArgument;
        let (from_id, to_id) = (self.id(from).ok_or(missing)?, self.id(to).ok_or(missing)?);
        let mapped = self.kernel.map((from_id, source), (to_id, window), how, going)?;
        let (first, count) = pages(mapped.sent);
        let target = pages(mapped.landed).0;
        let unit = mapped.sent.size() / count;
        let done = first + mapped.start / unit..first + mapped.end / unit;
        let rights = mapped.landed.rights();
        if how == How::Link {
            for slot in done.step_by(512).map(|page| page / 512) {
                // A linked slot is not linked onward.
                if !self.model.links.contains_key(&(from as u32, slot)) {
                    self.model.link(from as u32, to as u32, slot, rights);
                }
            }
            return Ok(mapped.progress);
        }
        // A large page that covers a whole linked slot takes the link's place, also where the model follows no page.
        let landed = target + (done.start - first)..target + (done.end - first);
        let links: Vec<_> = self.model.links.keys().copied().collect();
        for (space, slot) in links
            .into_iter()
            .filter(|&(space, slot)| space == to as u32 && landed.contains(&(slot * 512)))
        {
            if self.link_at(to, slot * 512).is_none() {
                self.model.links.remove(&(space, slot));
            }
        }
        for &page in self.samples.iter().filter(|page| done.contains(page)) {
            let linked = self.model.links.contains_key(&(from as u32, page / 512));
            // A frame that returned to σ₀ in mid-call was given again.
            let given = || {
                self.translate(to, target + (page - first))
                    .is_some_and(|(frame, _)| frame == page)
            };
            if from == 0 && self.lent.contains(&page) && given() {
                self.lent.retain(|&lent| lent != page);
                let real = Entry::Real(page, self.model.pages[&page]);
                self.model.entries.insert((0, page), real);
            }
            if linked || self.model.real(from as u32, page).is_none() {
                continue;
            }
            let (source, landed) = ((from as u32, page), (to as u32, target + (page - first)));
            match how {
                How::Grant => self.model.grant(source, landed, rights),
                _ => self.model.map(source, landed, rights),
            }
        }
        Ok(mapped.progress)
    }

    fn flush(
        &mut self,
        space: usize,
        what: Fpage,
        (rights, own): (Rights, Own),
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let id = self.id(space).ok_or(Error::BadArgument)?;
        let progress = self.kernel.flush(id, what, (rights, own), going)?;
        if progress == Progress::More {
            return Ok(progress);
        }
        let rights = if what.resource() == Resource::Ports {
            Rights::RWX
        } else {
            rights
        };
        let (first, count) = pages(what);
        let own = own == Own::Too && space != 0;
        let number = space as u32;
        let whole = first.div_ceil(512)..(first + count) / 512;
        let slots: BTreeSet<u64> = self.model.links.keys().map(|&(_, slot)| slot).collect();
        for slot in slots.into_iter().filter(|slot| whole.contains(slot)) {
            self.model.flush_links(number, slot, rights);
            if let (true, Some(&(owner, had))) = (own, self.model.links.get(&(number, slot))) {
                let left = had.without(rights);
                self.model.links.insert((number, slot), (owner, left));
                if rights.contains(Rights::R) {
                    self.model.links.remove(&(number, slot));
                }
            }
        }
        for &page in self
            .samples
            .iter()
            .filter(|&&page| (first..first + count).contains(&page))
        {
            if own {
                self.model.flush_own(number, page, rights);
            } else {
                self.model.flush_rights(number, page, rights);
            }
        }
        Ok(progress)
    }

    fn destroy(&mut self, space: usize) -> Result<Progress, Error> {
        let id = self.id(space).ok_or(Error::BadArgument)?;
        let progress = self.kernel.free_space_destroy(id)?;
        self.dies(space);
        // The kernel no longer knows the spaces that are gone.
        for number in 1..self.spaces.len() {
            if self.spaces[number].is_some_and(|id| self.kernel.free_space_quota(id).is_none()) {
                self.spaces[number] = None;
                self.dying.retain(|&dying| dying != number);
                self.model.destroy(number as u32);
                self.tlb.retain(|&(space, _), _| space != number as u32);
            }
        }
        if progress == Progress::Done {
            assert!(self.spaces[space].is_none());
        }
        Ok(progress)
    }

    /// Page tables and bitmaps say what σ says. In the middle of an operation, and where a large
    /// page could not be split, a space may have lost more than the model says; then the model
    /// loses it too, and with it all that came from there.
    fn compare(&mut self, op: &Op, more: bool) {
        self.compare_links(op, more || self.tight);
        // σ₀ last, for it gets back what others lose; links after all, for they show what others have.
        let numbers = (0..self.spaces.len()).rev();
        for (linked, number) in [false, true]
            .into_iter()
            .flat_map(|linked| numbers.clone().map(move |n| (linked, n)))
        {
            for index in 0..self.samples.len() {
                let page = self.samples[index];
                if self.model.links.contains_key(&(number as u32, page / 512)) != linked {
                    continue;
                }
                let (mut says, is) = (self.model.real(number as u32, page), self.translate(number, page));
                if says == is {
                    continue;
                }
                if number == 0 {
                    self.compare_returned(page, is);
                    continue;
                }
                // One that cannot pay for the table that splits a large page loses all of it.
                let id = self.id(number).and_then(|id| self.kernel.free_space_quota(id));
                let poor = id.is_some_and(|(all, used)| all - used < 4 * TABLE_UNITS);
                let (allowed, left) = (
                    more || self.tight || poor,
                    is.map_or(Rights::NONE, |(_, rights)| rights),
                );
                if let (true, Some((_, had))) = (allowed && !linked, says) {
                    self.model.flush_own(number as u32, page, had.without(left));
                    says = self.model.real(number as u32, page);
                }
                assert_eq!(is, says, "space {number} page {page:#x} after {op:?}");
            }
        }
    }

    /// Links are where the model has them; in the middle of an operation one may be gone already.
    fn compare_links(&mut self, op: &Op, more: bool) {
        let links: Vec<_> = self
            .model
            .links
            .iter()
            .map(|(&place, &(_, rights))| (place, rights))
            .collect();
        for ((space, slot), says) in links {
            let is = self.link_at(space as usize, slot * 512);
            if is == Some(says) {
                continue;
            }
            let lost = is.is_none_or(|is| says.contains(is));
            assert!(
                more && lost,
                "space {space} links slot {slot:#x} with {is:?}, not {says:?}, after {op:?}"
            );
            match is {
                Some(is) => self.model.links.get_mut(&(space, slot)).expect("it was there").1 = is,
                None => drop(self.model.links.remove(&(space, slot))),
            }
        }
    }

    /// The rights of the link that stands in a space's tables for the slot of a page.
    pub fn link_at(&self, space: usize, page: u64) -> Option<Rights> {
        let mut table = self.kernel.spaces().get(self.id(space)?).root();
        for level in (1..4u32).rev() {
            let entry = self.kernel.hardware.table(table)[(page >> (9 * level)) as usize & 511].load(Relaxed);
            if paging::is_present(entry) && paging::is_linked(entry) {
                return Some(paging::mapping_rights(entry));
            }
            if !paging::is_present(entry) || paging::is_large(entry) {
                return None;
            }
            table = paging::frame_of(entry);
        }
        None
    }

    /// Only a grant of a larger page by σ₀ may make it wait for a part.
    fn compare_returned(&mut self, page: u64, is: Option<Translation>) {
        if is.is_none() {
            self.lent.push(page);
            self.model.entries.remove(&(0, page));
        } else {
            let before = self.lent.len();
            self.lent.retain(|&lent| lent != page);
            assert!(self.lent.len() < before, "σ₀ has page {page:#x} out of nowhere");
            let real = Entry::Real(page, self.model.pages[&page]);
            self.model.entries.insert((0, page), real);
        }
    }

    /// A translation that the TLB still has is one that the tables still allow.
    fn check_tlb(&mut self, op: &Op) {
        let flushed = self.kernel.hardware.take_flushed();
        if flushed.everything {
            self.tlb.clear();
        }
        let roots: Vec<(u32, u32)> = (0..self.spaces.len())
            .filter_map(|number| {
                Some((
                    number as u32,
                    self.kernel.spaces().get(self.id(number)?).root().number(),
                ))
            })
            .collect();
        self.tlb.retain(|&(space, _), _| {
            !roots
                .iter()
                .any(|&(number, root)| number == space && flushed.roots.contains(&root))
        });
        for (&(space, page), &(frame, rights)) in &self.tlb {
            let now = self.translate(space as usize, page);
            let holds = now.is_some_and(|(now, allowed)| now == frame && allowed.contains(rights));
            assert!(holds, "stale: space {space} page {page:#x} after {op:?}");
        }
        for number in 0..self.spaces.len() {
            for &page in &self.samples {
                if let Some(translation) = self.translate(number, page) {
                    self.tlb.insert((number as u32, page), translation);
                }
            }
        }
    }

    /// Everything goes, and nothing is lost: neither frames nor nodes nor quota nor pages of σ₀.
    pub fn finish(mut self, real: usize) {
        self.tight = false;
        for number in 1..self.spaces.len() {
            if self.spaces[number].is_some() {
                self.run(&Op::Destroy { space: number }).expect("destroy");
            }
        }
        let held = self
            .samples
            .iter()
            .filter(|&&page| self.translate(0, page).is_some())
            .count();
        assert_eq!(held, real, "σ₀ did not get everything back");
        assert!(self.model.entries.keys().all(|&(space, _)| space == 0));
    }

    /// Frames free, and nodes used: what must be the same before and after.
    pub fn memory(&self) -> (u64, u32) {
        (self.kernel.frames_free(), self.kernel.mapping_nodes())
    }
}

/// The processor's walk.
pub fn walk(kernel: &Kernel<Fake, Bare>, space: SpaceId, page: u64) -> Option<Translation> {
    let mut table = kernel.spaces().get(space).root();
    let mut rights = Rights::RWX;
    for level in (0..4u32).rev() {
        let entry = kernel.hardware.table(table)[(page >> (9 * level)) as usize & 511].load(Relaxed);
        if !paging::is_present(entry) {
            return None;
        }
        assert!(entry & 4 != 0, "an entry that only the kernel may use");
        if entry & 2 == 0 {
            rights = rights.without(Rights::W);
        }
        if entry >> 63 != 0 {
            rights = rights.without(Rights::X);
        }
        let frame = paging::number_of(entry);
        if level == 0 || entry & 0x80 != 0 {
            assert!(level < 3, "no page is that large");
            return Some((u64::from(frame) + (page & ((1 << (9 * level)) - 1)), rights));
        }
        table = paging::frame_of(entry);
    }
    None
}
