//! The objects of a storm, and the values that each of their pages may hold: one, or several behind a call that failed in its middle.
//!
//! A call that moves content has its objects for itself; reads, writes and flushes mix.

use abi::{Call, address::PAGES_PER_SLOT};

/// The values that a page may hold.
#[derive(Clone, Debug)]
pub struct Page {
    pub now: Vec<u64>,
    /// Those that it ever held, among which the last checkpoint's is.
    ever: Vec<u64>,
    /// Whether it may have a frame though the disk does not have it.
    pub touched: bool,
}

impl Page {
    fn zero() -> Self {
        Self {
            now: vec![0],
            ever: vec![0],
            touched: false,
        }
    }

    fn put(&mut self, now: Vec<u64>) {
        self.ever.extend(&now);
        self.now = now;
    }

    /// It may have been put there.
    fn may_be(&mut self, values: &[u64]) {
        self.ever.extend(values);
        self.now.extend(values);
    }
}

#[derive(Debug)]
pub struct Thing {
    pub base: u64,
    pub password: u64,
    pub pages: Vec<Page>,
    pub kept: bool,
    /// The Clist names it.
    pub noted: bool,
    /// Acts under way that leave its content where it is, and whether one has it for itself.
    shared: usize,
    alone: bool,
}

impl Thing {
    /// Whether an act may use it now, and have it for itself.
    pub fn is_free(&self, alone: bool) -> bool {
        !self.alone && (!alone || self.shared == 0)
    }

    pub fn touched(&self) -> u64 {
        self.pages.iter().filter(|page| page.touched).count() as u64
    }

    /// Frames that it has, if it is transient.
    fn frames(&self) -> u64 {
        self.touched() + self.pages.len() as u64 / PAGES_PER_SLOT + 1
    }
}

/// The deed of a thread.
#[derive(Clone, Debug)]
pub enum Doing {
    /// Reads pages of an object from one on, or writes a value there.
    Touch(usize, usize, usize, Option<u64>),
    /// Writes the capability for an object into the Clist.
    Note(usize),
    Call(Call, [u64; 6], Effect),
}

/// The effect of a call, if it succeeds. Objects stand in the place of their number, pages behind them.
#[derive(Copy, Clone, Debug)]
pub enum Effect {
    Nothing,
    Create(u64),
    Keep(usize),
    Delete(usize),
    Resize(usize, u64),
    Clone(usize, u64),
    /// Pages of the first get the content of those of the second.
    Copy((usize, usize), (usize, usize), usize),
    Zero(usize, usize, usize),
    Replace(usize, usize, usize),
    /// It leaves the content of an object as it is.
    Shares(usize),
}

impl Doing {
    /// The objects of an act, and whether it has them for itself.
    fn holds(&self) -> (Vec<usize>, bool) {
        match *self {
            Self::Touch(number, ..) | Self::Call(_, _, Effect::Shares(number)) => (vec![number], false),
            Self::Note(number) => (vec![number], true),
            Self::Call(_, _, effect) => match effect {
                Effect::Nothing | Effect::Create(_) => (vec![], false),
                Effect::Copy((to, _), (from, _), _) => (vec![to, from], true),
                Effect::Shares(number)
                | Effect::Keep(number)
                | Effect::Delete(number)
                | Effect::Resize(number, _)
                | Effect::Clone(number, _)
                | Effect::Zero(number, ..)
                | Effect::Replace(number, ..) => (vec![number], true),
            },
        }
    }
}

/// All objects.
pub struct Model {
    pub things: Vec<Option<Thing>>,
}

impl Model {
    pub fn new(things: usize) -> Self {
        Self {
            things: (0..things).map(|_| None).collect(),
        }
    }

    pub fn thing(&mut self, number: usize) -> &mut Thing {
        self.things[number].as_mut().expect("an object that is in use stays")
    }

    pub fn count(&self) -> usize {
        self.things.iter().flatten().count()
    }

    /// Frames that transient objects have, or are about to have by what is under way.
    pub fn transient<'a>(&self, under_way: impl Iterator<Item = &'a Doing>) -> u64 {
        let coming = under_way.map(|doing| match *doing {
            Doing::Touch(_, _, count, _) | Doing::Call(_, _, Effect::Copy(_, _, count)) => count as u64,
            Doing::Call(_, _, Effect::Clone(of, _)) => self.things[of].as_ref().map_or(0, Thing::frames),
            _ => 0,
        });
        let there = self.things.iter().flatten().filter(|thing| !thing.kept);
        coming.sum::<u64>() + there.map(Thing::frames).sum::<u64>()
    }

    pub fn begins(&mut self, doing: &Doing) {
        let (numbers, alone) = doing.holds();
        for number in numbers {
            let thing = self.thing(number);
            thing.shared += usize::from(!alone);
            thing.alone = alone;
        }
    }

    pub fn ends(&mut self, doing: &Doing) {
        for number in doing.holds().0 {
            let thing = self.thing(number);
            thing.shared = thing.shared.saturating_sub(1);
            thing.alone = false;
        }
    }

    /// A page is there with a value, and gets another one, if any.
    pub fn has(&mut self, number: usize, page: usize, found: u64, value: Option<u64>) {
        let Thing { base, pages, .. } = self.thing(number);
        let known = &mut pages[page];
        assert!(
            known.now.contains(&found),
            "page {page} of {base:#x} holds {found}: {known:?}"
        );
        known.touched = true;
        known.now = vec![found];
        if let Some(value) = value {
            known.put(vec![value]);
        }
    }

    /// A call has succeeded with these values; tells the object that it has made.
    pub fn takes_effect(&mut self, effect: Effect, (base, password): (u64, u64)) -> Option<usize> {
        match effect {
            Effect::Nothing | Effect::Shares(_) => {}
            Effect::Create(pages) => {
                return Some(self.enter(base, password, vec![Page::zero(); pages as usize]));
            }
            Effect::Keep(number) => self.thing(number).kept = true,
            Effect::Delete(number) => self.things[number] = None,
            Effect::Resize(number, pages) => self.thing(number).pages.resize(pages as usize, Page::zero()),
            Effect::Clone(number, extra) => {
                let mut pages = self.thing(number).pages.clone();
                pages.resize(pages.len() + extra as usize, Page::zero());
                return Some(self.enter(base, password, pages));
            }
            Effect::Copy(to, from, count) => self.copy(to, from, count, Page::put),
            Effect::Zero(number, first, count) => {
                let pages = &mut self.thing(number).pages[first..first + count];
                for page in pages {
                    page.put(vec![0]);
                }
            }
            Effect::Replace(number, first, count) => self.replace(number, first, count),
        }
        None
    }

    /// A call has failed: it has done nothing, or some of it. Tells the object whose length must be looked at.
    pub fn fails(&mut self, effect: Effect) -> Option<usize> {
        match effect {
            Effect::Copy(to, from, count) => self.copy(to, from, count, |page, values| page.may_be(&values)),
            Effect::Zero(number, first, count) => {
                let pages = &mut self.thing(number).pages[first..first + count];
                for page in pages {
                    page.may_be(&[0]);
                }
            }
            Effect::Replace(number, first, count) => self.replace(number, first, count),
            // The effect may be there although it could not be made durable.
            Effect::Delete(number) | Effect::Resize(number, _) => return Some(number),
            Effect::Nothing | Effect::Shares(_) | Effect::Create(_) | Effect::Keep(_) | Effect::Clone(..) => {}
        }
        None
    }

    /// An object has so many pages, or is gone.
    pub fn has_length(&mut self, number: usize, pages: Option<u64>) {
        match pages {
            Some(pages) => self.thing(number).pages.resize(pages as usize, Page::zero()),
            None => self.things[number] = None,
        }
    }

    fn copy(&mut self, to: (usize, usize), from: (usize, usize), count: usize, put: fn(&mut Page, Vec<u64>)) {
        for place in 0..count {
            let Page { now, touched, .. } = self.thing(from.0).pages[from.1 + place].clone();
            let page = &mut self.thing(to.0).pages[to.1 + place];
            put(page, now);
            page.touched |= touched;
        }
    }

    fn replace(&mut self, number: usize, first: usize, count: usize) {
        let pages = &mut self.thing(number).pages[first..first + count];
        for page in pages {
            page.now = page.ever.clone();
        }
    }

    fn enter(&mut self, base: u64, password: u64, pages: Vec<Page>) -> usize {
        let thing = Thing {
            base,
            password,
            pages,
            kept: false,
            noted: false,
            shared: 0,
            alone: false,
        };
        let free = self.things.iter().position(Option::is_none);
        let number = free.unwrap_or(self.things.len());
        self.things.resize_with(self.things.len().max(number + 1), || None);
        self.things[number] = Some(thing);
        number
    }
}
