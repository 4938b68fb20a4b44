//! Small pages that are taken in few instructions: one, or several one after another, from all who have them, where they gave them to
//! nobody. Counted in instructions (`flush-page`, `flush-8`, `flush-8-spaces`).
//!
//! The spaces and tables that lose pages are counted once for all pages that they lose one after another. A run ends at the first page that is
//! another case; what it did stays, and the slow path goes on from there.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    Mapping, NODE_UNITS,
    runs::left_in_slot,
    short::{Target, index, node_of, record, word},
    tree::{Key, NONE, Tree, pages},
};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    bare::Bare,
    paging::{COUNT_ONE, is_exact_page, is_present, is_shared, table_entries},
    smp::Request,
};

/// Kids of pages, beside the first one of each, that one run takes.
pub(super) const HOLDERS_MAX: u64 = 24;

impl<H: Hardware> Kernel<H, Bare> {
    /// Takes a page that `space` gave from the only one who has it.
    #[inline(always)]
    pub(in crate::bare) fn flush_one(&mut self, space: u16, page: u64) -> Option<()> {
        if self.small_source(space, page).is_none() {
            return self.flush_part(space, page);
        }
        let source = node_of(&self.hardware, &self.half.mapping.recent.source, page);
        self.flush_kid(source)
    }

    /// Takes up to that many pages, of an fpage of so many, that `space` gave from all who have them directly, and gave them to nobody; how
    /// many, those among them that nobody has, and how many times it took one of several.
    #[inline(never)]
    pub(in crate::bare) fn flush_run(&mut self, space: u16, first: u64, (wanted, count): (u64, u64)) -> (u64, u64) {
        let (mut done, mut left) = (0, HOLDERS_MAX);
        while done < wanted {
            let at = first + done;
            let length = (wanted - done).min(left_in_slot(at));
            let (flushed, rest) = self.flush_stretch((space, at), (length, count), left);
            (done, left) = (done + flushed, rest);
            if flushed == length {
                continue;
            }
            // A page cut from a larger one; a slot of them is flushed as a large page.
            let cut = count < pages(1) && left > 0 && self.flush_part(space, first + done).is_some();
            if !cut {
                break;
            }
            done += 1;
        }
        (done, HOLDERS_MAX - left)
    }

    /// The same of pages of one slot that are small ones by themselves. Gives how many times it may still take one of several.
    #[inline(always)]
    fn flush_stretch(&mut self, (space, first): (u16, u64), (length, count): (u64, u64), left: u64) -> (u64, u64) {
        if !self.with_source(space, first) {
            return (0, left);
        }
        let Target {
            table, nodes, above, ..
        } = self.half.mapping.recent.source;
        // With a whole slot its links go, too.
        let is_whole = count >= pages(1);
        if is_whole && is_shared(word(&self.hardware, above).load(Relaxed)) {
            return (0, left);
        }
        let mut left = left;
        let mut done = 0;
        // Neighbours are not of one slot: each is taken by itself.
        let mut is_scattered = false;
        while done < length {
            let entry = word(&self.hardware, (table, index(first + done, 0))).load(Relaxed);
            if !is_exact_page(entry) {
                if is_present(entry) || is_whole {
                    break;
                }
                done += 1;
                continue;
            }
            let at = index(first + done, 0);
            let source = word(&self.hardware, (nodes, at)).load(Relaxed) as u32;
            let taken = if is_scattered {
                u64::from(self.flush_kid(source).is_some())
            } else {
                self.flush_alone((table, nodes, at), (length - done) as usize)
            };
            if taken == 0 && self.flush_kids(source, &mut left).is_none() {
                break;
            }
            is_scattered = taken <= 1;
            done += taken.max(1);
        }
        (done, left)
    }

    /// Takes small pages, from this one on, that one space has alone, and all in one slot: how many.
    #[inline(always)]
    fn flush_alone(&mut self, (table, nodes, first): (Frame, Frame, u16), length: usize) -> u64 {
        let tree = &self.half.mapping.tree;
        let source = word(&self.hardware, (nodes, first)).load(Relaxed) as u32;
        let Some(kid) = tree.only_active_kid(source) else {
            return 0;
        };
        let slot = tree.get(kid).key().first_of(pages(1));
        let Some(most) = self.open(slot) else { return 0 };
        let Mapping { tree, recent, .. } = &mut self.half.mapping;
        let [sources, givers] = [table, nodes].map(|table| &self.hardware.table(table)[usize::from(first)..]);
        let targets = self.hardware.table(recent.target(slot.space()).table);
        let length = length.min(sources.len()).min(most as usize);
        let count = take_alone(tree, (&sources[..length], givers), targets, slot);
        self.settle(slot, count);
        u64::from(count)
    }

    /// Takes a page that is part of a larger one of the giver's from the only one who has it.
    #[inline(never)]
    fn flush_part(&mut self, space: u16, page: u64) -> Option<()> {
        let (mut source, top) = self.small_part(space, page)?;
        self.flush_kid(source)?;
        // Nothing comes back to σ₀ with them: it has the page.
        let tree = &mut self.half.mapping.tree;
        while source != top {
            let part = tree.get(source);
            if !part.is_bare() {
                break;
            }
            let parent = part.parent;
            tree.remove(source);
            source = parent;
        }
        Some(())
    }

    /// The small part that a page is of a larger one of the giver's, whose mapping comes second, from which others have that part alone: nobody has a larger
    /// one around it.
    #[inline(always)]
    pub(super) fn small_part(&self, space: u16, page: u64) -> Option<(u32, u32)> {
        let (_, top) = self.part_source(space, page)?;
        let tree = &self.half.mapping.tree;
        let source = tree.find(space, 0, page)?;
        let mut above = source;
        while above != top {
            above = tree.get(above).parent;
            // A space above that has a larger page with this one in it keeps the rest.
            if above == NONE || !tree.get(above).kids.is_empty() {
                return None;
            }
        }
        Some((source, top))
    }

    /// Takes a small page from the only one who has it from there.
    #[inline(always)]
    fn flush_kid(&mut self, source: u32) -> Option<()> {
        let tree = &self.half.mapping.tree;
        let kid = tree.only_active_kid(source)?;
        let has = tree.get(kid);
        if !has.kids.is_empty() {
            return None;
        }
        let key = has.key();
        self.take_small(key)?;
        let tree = &mut self.half.mapping.tree;
        tree.take_only_kid(source);
        tree.release(kid);
        Some(())
    }

    /// Takes a small page from all who have it from there. They gave it to nobody.
    #[inline(always)]
    fn flush_kids(&mut self, source: u32, left: &mut u64) -> Option<()> {
        let tree = &mut self.half.mapping.tree;
        let first = tree.take_kids(source)?;
        if first == NONE {
            return Some(());
        }
        let last = tree.get(first).neighbours().1;
        let mut kid = first;
        loop {
            let has = self.half.mapping.tree.get(kid);
            let (key, next) = (has.key(), has.neighbours().0);
            if !has.kids.is_empty() || self.take_small(key).is_none() {
                break;
            }
            self.half.mapping.tree.release(kid);
            if next == first {
                return Some(());
            }
            kid = next;
            *left -= 1;
            if *left == 0 {
                break;
            }
        }
        self.half.mapping.tree.give_back(source, kid, last);
        None
    }

    /// Takes a small page out of the tables of the space that has it; its node stays.
    #[inline(always)]
    fn take_small(&mut self, key: Key) -> Option<()> {
        let slot = key.first_of(pages(1));
        if self.open(slot)? == 0 {
            return self.take_last(key);
        }
        let table = self.half.mapping.recent.target(slot.space()).table;
        let place = word(&self.hardware, (table, index(key.page(), 0)));
        debug_assert!(is_exact_page(place.load(Relaxed)), "a small page has its entry");
        place.store(0, Relaxed);
        self.settle(slot, 1);
        Some(())
    }

    /// Sees to it that a receiver's table for a slot is remembered: pages that may be taken from it while it stays. All must stay if others link it.
    #[inline(always)]
    fn open(&mut self, slot: Key) -> Option<u32> {
        self.with_target(slot)?;
        let above = self.half.mapping.recent.target(slot.space()).above;
        let leading = word(&self.hardware, above).load(Relaxed);
        let entries = table_entries(leading) as u32;
        Some(if is_shared(leading) {
            0
        } else {
            entries.saturating_sub(1)
        })
    }

    /// Sets the counts right, and tells the space that it lost something: it may still have translations.
    #[inline(always)]
    fn settle(&mut self, slot: Key, count: u32) {
        if count == 0 {
            return;
        }
        let Mapping { spaces, recent, .. } = &mut self.half.mapping;
        if let Some(record) = record(spaces, slot.space()) {
            record.used -= count * NODE_UNITS[0];
        }
        // It is the one that was remembered last of this space.
        let above = recent.target(slot.space()).above;
        word(&self.hardware, above).fetch_sub(u64::from(count) * COUNT_ONE, Relaxed);
        self.tell_loss(slot.space());
    }

    /// Something was taken from a space.
    #[inline(always)]
    pub(super) fn tell_loss(&mut self, space: u16) {
        let space = SpaceId(u32::from(space));
        self.forget_translations(space);
        self.ask_inside(space, Request::Forget);
    }
}

/// Takes small pages by these entries of a giver's, each of which one space has alone, in this slot, by these entries: how many, until one is another
/// case.
///
/// A function by itself, which needs few enough variables at once.
#[inline(never)]
fn take_alone(
    tree: &mut Tree,
    (sources, givers): (&[AtomicU64], &[AtomicU64]),
    targets: &[AtomicU64; 512],
    slot: Key,
) -> u32 {
    let mut done = 0;
    for (entry, giver) in sources.iter().zip(givers) {
        if !is_exact_page(entry.load(Relaxed)) {
            break;
        }
        let page = giver.load(Relaxed) as u32;
        let Some(kid) = tree.only_active_kid(page) else { break };
        let has = tree.get(kid);
        let key = has.key();
        if key.first_of(pages(1)) != slot || !has.kids.is_empty() {
            break;
        }
        let place = &targets[usize::from(index(key.page(), 0))];
        debug_assert!(is_exact_page(place.load(Relaxed)), "a small page has its entry");
        place.store(0, Relaxed);
        tree.take_only_kid(page);
        tree.release(kid);
        done += 1;
    }
    done
}
