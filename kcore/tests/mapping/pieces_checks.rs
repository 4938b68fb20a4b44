//! The checks that `pieces_world` does after each piece, and at the end:
//!
//! - no space has more than the space from which it has it;
//! - a place gains only what the piece gives to it;
//! - with enough memory, a place loses something only if the piece clears it, or it has it from a place that the piece clears or flushes, from a place of the
//!   flush that stands open, or from a claimed place;
//! - a flush that is done has taken its rights from every place that had them from there when it began, or was given them by such a place since, and from the
//!   links of the flushed slots;
//! - a translation in a TLB is allowed by the page tables;
//! - when all spaces have ended, σ₀ has all its pages, and the nodes are free.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use abi::Rights;
use kcore::{
    Frame, Hardware, SpaceId,
    bare::mapping::{Fpage, How, Mapped, Own, Progress},
    paging,
};

use crate::{
    pieces_world::{Act, PIECES_MAX, Running, SPACES, Supply, World},
    world::{PORTS, Translation, pages, walk},
};

/// A space, by its number in this test, and a page or port of it.
pub type Place = (usize, u64);
/// For each place that has a page by a mapping: the translation, and the place that gave it. σ₀ was given its pages by nobody.
pub type Holdings = BTreeMap<Place, (Translation, Option<Place>)>;

/// All places that have their page from one of these, directly or through others.
fn below(holdings: &Holdings, tops: &BTreeSet<Place>) -> BTreeSet<Place> {
    let is_below = |&place: &Place| {
        let mut at = place;
        for _ in 0..100 {
            match holdings.get(&at) {
                Some(&(_, Some(source))) if tops.contains(&source) => return true,
                Some(&(_, Some(source))) => at = source,
                _ => return false,
            }
        }
        panic!("a cycle at {place:?}");
    };
    holdings.keys().copied().filter(is_below).collect()
}

impl World {
    /// The translation of a place, by the page tables or the permission bitmap; links count, too.
    fn translation(&self, (space, page): Place) -> Option<Translation> {
        let id = self.spaces[space];
        if page >= PORTS {
            let port = (page - PORTS) as usize;
            let allowed = self.kernel.ports(id)?[port / 8] >> (port % 8) & 1 == 0;
            return allowed.then_some((page, Rights::RW));
        }
        walk(&self.kernel, id, page)
    }

    pub fn holdings(&mut self) -> Holdings {
        let mut holdings = BTreeMap::new();
        for space in 0..SPACES {
            if !self.exists(space) {
                continue;
            }
            for index in 0..self.samples.len() {
                let place = (space, self.samples[index]);
                let Some(has) = self.translation(place) else { continue };
                let source = self.kernel.mapping_source(self.spaces[space], place.1);
                let source = source.map(|(giver, page)| (self.number(giver), page));
                if source.is_some() || space == 0 {
                    holdings.insert(place, (has, source));
                }
            }
        }
        holdings
    }

    /// The table of a slot of a space; if it is linked from another space, also the rights of the link.
    fn table_of_slot(&self, (space, page): Place) -> Option<(Frame, Option<Rights>)> {
        if !self.exists(space) {
            return None;
        }
        let mut table = self.kernel.spaces().get(self.spaces[space]).root();
        for level in (1..4).rev() {
            let entry = self.kernel.hardware.table(table)[(page >> (9 * level)) as usize & 511].load(Relaxed);
            if !paging::is_present(entry) || paging::is_large(entry) {
                return None;
            }
            table = paging::frame_of(entry);
            if paging::is_linked(entry) {
                return Some((table, Some(paging::mapping_rights(entry))));
            }
        }
        Some((table, None))
    }

    /// The places that link a slot of this space that is wholly in a range of pages.
    fn linkers(&self, space: usize, (first, count): (u64, u64)) -> BTreeSet<Place> {
        let mut linkers = BTreeSet::new();
        let is_inside = |slot: &u64| first <= *slot && slot + 512 <= first + count;
        for slot in self.slots.iter().copied().filter(is_inside) {
            let Some((table, None)) = self.table_of_slot((space, slot)) else {
                continue;
            };
            let links =
                |other: &usize| matches!(self.table_of_slot((*other, slot)), Some((to, Some(_))) if to == table);
            linkers.extend((0..SPACES).filter(links).map(|other| (other, slot)));
        }
        linkers
    }

    /// The places of a range of pages that checks look at.
    fn range(&self, (space, first, count): (SpaceId, u64, u64)) -> BTreeSet<Place> {
        let inside = self
            .samples
            .iter()
            .filter(|&&page| (first..first + count).contains(&page));
        inside.map(|&page| (self.number(space), page)).collect()
    }

    fn range_of(&self, space: SpaceId, what: Fpage) -> BTreeSet<Place> {
        let (first, count) = pages(what);
        self.range((space, first, count))
    }

    /// The places, and the linked slots, from which an operation that begins now must take something.
    pub fn debts(&mut self, act: &Act) -> (BTreeSet<Place>, BTreeSet<Place>) {
        let Act::Flush(space, what, ..) = *act else {
            return Default::default();
        };
        let holdings = self.holdings();
        let mut tops = self.range_of(space, what);
        // σ₀ takes nothing from those to whom it granted.
        tops.retain(|place| holdings.contains_key(place));
        let mut owed = below(&holdings, &tops);
        owed.retain(|place| !tops.contains(place));
        let links = if pages(what).0 < PORTS {
            self.linkers(self.number(space), pages(what))
        } else {
            BTreeSet::new()
        };
        (owed, links)
    }

    /// The places that may lose something by the next piece.
    pub fn losers(&mut self, before: &Holdings, act: &Act) -> BTreeSet<Place> {
        let (open, claimed) = (self.kernel.mapping_open(), self.kernel.mapping_claimed());
        // A gift that waits for a claim clears the claimed place.
        let mut cleared: BTreeSet<Place> = claimed.into_iter().flat_map(|claimed| self.range(claimed)).collect();
        // These keep their own.
        let mut tops: BTreeSet<Place> = open.into_iter().flat_map(|open| self.range(open)).collect();
        match *act {
            Act::Give(how, (from, source), (to, window)) => {
                if let Ok((sent, landed)) = source.landing(window) {
                    cleared.extend(self.range_of(to, landed));
                    if how == How::Grant {
                        cleared.extend(self.range_of(from, sent));
                    }
                }
            }
            Act::Flush(space, what, _, Own::Too) => cleared.extend(self.range_of(space, what)),
            Act::Flush(space, what, _, Own::Kept) => tops.extend(self.range_of(space, what)),
            Act::Destroy(space) => {
                let number = self.number(space);
                let gone = [number, if number == 3 { 4 } else { number }];
                cleared.extend(
                    gone.iter()
                        .flat_map(|&gone| self.samples.iter().map(move |&page| (gone, page))),
                );
            }
        }
        tops.extend(cleared.iter().copied());
        cleared.extend(below(before, &tops));
        cleared
    }

    /// For each place that a piece gave to: the place that it gave from.
    pub fn landing(&self, from: SpaceId, to: SpaceId, mapped: &Mapped) -> BTreeMap<Place, Place> {
        let ((first, count), (target, _)) = (pages(mapped.sent), pages(mapped.landed));
        let unit = mapped.sent.size() / count;
        let (start, end) = (mapped.start / unit, mapped.end / unit);
        let given = self.range((from, first + start, end - start)).into_iter();
        given
            .map(|place| ((self.number(to), target + place.1 - first), place))
            .collect()
    }

    /// No space has more than its source, none gained but by this gift, and none lost but the losers.
    pub fn check_piece(&mut self, before: &Holdings, losers: &BTreeSet<Place>, landing: &BTreeMap<Place, Place>) {
        let after = self.holdings();
        for (place, &((frame, rights), source)) in &after {
            if let Some(source) = source
                && source.0 != 0
            {
                let Some(&((of, most), _)) = after.get(&source) else {
                    self.fail(&format!("{place:?} comes from {source:?}, which has nothing"));
                };
                if of != frame || !most.contains(rights) {
                    self.fail(&format!("{place:?} has {frame:#x} {rights}, {source:?} {of:#x} {most}"));
                }
            }
            let had = before.get(place);
            let same = had.is_some_and(|&((was, had), _)| was == frame && had.contains(rights));
            if !same && place.0 != 0 && !landing.contains_key(place) {
                self.fail(&format!("{place:?} got {frame:#x} {rights}, had {had:?}"));
            }
        }
        if self.supply == Supply::Scarce {
            // A space whose quota is too small to split a large page loses it whole.
            return;
        }
        for (place, &((frame, rights), _)) in before {
            let has = after.get(place);
            let holds = has.is_some_and(|&((is, has), _)| is == frame && has.contains(rights));
            if !holds && !losers.contains(place) {
                self.fail(&format!("{place:?} lost {frame:#x} {rights}, has {has:?}"));
            }
        }
    }

    /// The page tables allow every translation that a processor may still have. Then the processor looks at all places.
    pub fn check_translations(&mut self) {
        let flushed = self.kernel.hardware.take_flushed();
        if flushed.everything {
            self.tlb.clear();
        }
        let there: Vec<usize> = (0..SPACES).filter(|&space| self.exists(space)).collect();
        self.tlb.retain(|place, _| there.contains(&place.0));
        for &space in &there {
            let root = self.kernel.spaces().get(self.spaces[space]).root().number();
            if flushed.roots.contains(&root) {
                self.tlb.retain(|place, _| place.0 != space);
            }
        }
        for (&place, &(frame, rights)) in &self.tlb {
            let now = self.translation(place);
            if !now.is_some_and(|(now, allowed)| now == frame && allowed.contains(rights)) {
                self.fail(&format!("stale: {place:?} {frame:#x} {rights}"));
            }
        }
        for space in there {
            for &page in self.samples.iter().filter(|&&page| page < PORTS) {
                if let Some(has) = self.translation((space, page)) {
                    self.tlb.insert((space, page), has);
                }
            }
        }
    }

    /// A place that got a page from an owed place is owed, too; a place that got another page is owed no more.
    pub fn pass_on(&mut self, before: &Holdings, landing: &BTreeMap<Place, Place>) {
        let after = self.holdings();
        for (&place, source) in landing {
            let (Some(&((frame, _), from)), Some(&((is, _), has_from))) = (before.get(source), after.get(&place))
            else {
                continue;
            };
            // The source of a granted page is the granter's source.
            let is_from = has_from == Some(*source) || has_from == from && !after.contains_key(source);
            if frame != is || !is_from {
                continue;
            }
            for other in &mut self.running {
                if other.owed.contains(source) {
                    other.owed.insert(place);
                } else {
                    other.owed.remove(&place);
                }
            }
        }
        for other in &mut self.running {
            assert!(other.pieces < PIECES_MAX);
            other.owed.retain(|place| after.contains_key(place));
        }
    }

    /// An operation is done: it has taken what it had to take.
    pub fn check_debts(&mut self, done: &Running) {
        let Act::Flush(_, _, rights, _) = done.act else { return };
        // Without the right to read, nothing is left.
        let is_whole = rights.contains(Rights::R);
        let rights = if is_whole { Rights::RWX } else { rights };
        let holdings = self.holdings();
        // A port cannot be executed.
        let is_taken = |place: &&Place| place.1 < PORTS || !rights.intersection(Rights::RW).is_empty();
        for place in done.owed.iter().filter(is_taken) {
            let ((_, has), _) = holdings[place];
            if !has.intersection(rights).is_empty() {
                self.fail(&format!("{place:?} keeps {has} though the flush is done"));
            }
        }
        for &place in &done.links {
            if let Some((_, Some(has))) = self.table_of_slot(place)
                && !has.intersection(rights).is_empty()
            {
                self.fail(&format!("{place:?} keeps a link with {has}"));
            }
        }
    }

    /// All spaces end: nothing is lost.
    pub fn finish(&mut self) {
        for number in 1..SPACES {
            let space = self.spaces[number];
            let ended = (0..PIECES_MAX).any(|_| self.kernel.free_space_destroy(space) != Ok(Progress::More));
            assert!(ended, "a space does not end");
        }
        if let Err(error) = self.kernel.mapping_check() {
            self.fail(error);
        }
        let (nodes, first) = (self.kernel.mapping_nodes(), self.nodes);
        let lost = self
            .samples
            .iter()
            .filter(|&&page| self.translation((0, page)).is_none());
        let lost = lost.count();
        if nodes != first || lost > 0 {
            self.fail(&format!("{nodes} nodes, at first {first}; σ₀ has lost {lost} pages"));
        }
    }
}
