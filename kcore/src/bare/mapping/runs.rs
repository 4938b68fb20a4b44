//! Runs of small pages: several pages of 4 KiB, one after another, each by the fast path of one (`short`), with what they have in common done
//! once. A page in the place of another one, and a page that several spaces have, are among them. Counted in instructions (`map-8`, `flush-8`,
//! `map-replace`, `flush-8-spaces`).
//!
//! A run ends at the first page that is another case; what it did stays, and the slow path goes on from there.

use core::sync::atomic::Ordering::Relaxed;

use abi::Rights;

use super::{
    DEPTH_MAX, Mapping, NODE_UNITS,
    short::{Key, hang, index, record, word},
    tree::{Kind, NONE, pages},
};
use crate::{
    Hardware, Kernel, SpaceId,
    bare::{Bare, going::UNIT},
    paging::{COUNT_ONE, Fit, fit_of, is_present, is_shared, mapping_rights},
    smp::Request,
};

/// Steps of one page that is given, or taken from one space.
const PAGE_STEPS: i32 = 4 * UNIT;
/// Pages of a call that is done without an event. A piece of the event follows if they are not enough.
pub const SHORT_MAX: u64 = 16;

/// Times that one run takes a page from one of several that have it.
const HOLDERS_MAX: u64 = 24;

/// Pages that so many steps are enough for.
pub fn pages_for(steps: i32) -> u64 {
    u64::from(steps.max(0).cast_unsigned().div_ceil(PAGE_STEPS.cast_unsigned()))
}

/// Steps of so many pages.
pub fn steps_of(pages: u64) -> i32 {
    pages as i32 * PAGE_STEPS
}

/// Pages from this one to the end of its slot.
const fn left_in_slot(page: u64) -> u64 {
    pages(1) - (page & (pages(1) - 1))
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Maps up to that many pages of `from` into `to`, of an fpage of so many; how many.
    #[inline(never)]
    pub(in crate::bare) fn map_run(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        (wanted, count): (u64, u64),
        rights: Rights,
    ) -> u64 {
        let mut done = 0;
        while done < wanted {
            let (source, target) = ((from, source + done), (to, target + done));
            let given = self.map_stretch(source, target, wanted - done, rights);
            // One that is cut from a larger page; a slot of them is given as a large page.
            let cut = || count < pages(1);
            let given = match given {
                0 => u64::from(cut() && self.map_page(from, to, source.1, target.1, rights).is_some()),
                given => given,
            };
            if given == 0 {
                break;
            }
            done += given;
        }
        done
    }

    /// The same within a slot of both.
    #[inline(always)]
    fn map_stretch(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), count: u64, rights: Rights) -> u64 {
        let count = count.min(left_in_slot(source)).min(left_in_slot(target)) as u16;
        if from == to || self.small_source(from, source).is_none() || self.with_target(to, target).is_none() {
            return 0;
        }
        let Mapping {
            spaces,
            tree,
            recent,
            sigma0,
            ..
        } = &mut self.half.mapping;
        let Some(receiver) = record(spaces, to) else { return 0 };
        let above = word(&self.hardware, recent.target.above);
        let is_linked = is_shared(above.load(Relaxed));
        let (mut done, mut new, mut replaced) = (0, 0, false);
        while done < count {
            let (source, target) = (source + u64::from(done), target + u64::from(done));
            let covering = word(&self.hardware, (recent.source.table, index(source, 0))).load(Relaxed);
            let place = word(&self.hardware, (recent.target.table, index(target, 0)));
            let before = place.load(Relaxed);
            if !is_present(covering) || fit_of(covering) != Fit::Exact || !tree.has_free(1) {
                break;
            }
            let Some(node) = tree
                .find(from, 0, source)
                .filter(|&node| tree.get(node).depth < DEPTH_MAX)
            else {
                break;
            };
            if is_present(before) {
                // Nobody has it from here, and nothing comes back to σ₀ with it.
                let has = tree.find(to, 0, target).filter(|_| fit_of(before) == Fit::Exact);
                let alone = |&old: &u32| {
                    let old = tree.get(old);
                    old.is_bare() && old.parent != NONE && {
                        let giver = tree.get(old.parent);
                        giver.kind() == Kind::Page && *sigma0 != Some(giver.space)
                    }
                };
                let Some(old) = has.filter(alone).filter(|_| !is_linked) else {
                    break;
                };
                tree.remove(old);
                replaced = true;
            } else if receiver.quota - receiver.used < NODE_UNITS[0] {
                break;
            } else {
                receiver.used += NODE_UNITS[0];
                new += 1;
            }
            let rights = mapping_rights(covering).intersection(rights);
            place.store(hang(tree, node, (to, target), rights), Relaxed);
            done += 1;
        }
        above.fetch_add(new * COUNT_ONE, Relaxed);
        if replaced {
            self.forget(to);
        }
        u64::from(done)
    }

    /// Takes up to that many pages, of an fpage of so many, that `space` gave from all who have them directly, and gave them to nobody; how
    /// many, those among them that nobody has, and how many times it took one of several.
    #[inline(never)]
    pub(in crate::bare) fn flush_run(&mut self, space: u16, first: u64, (wanted, count): (u64, u64)) -> (u64, u64) {
        let (mut done, mut left, mut lost) = (0, HOLDERS_MAX, NONE);
        while done < wanted
            && self
                .flush_small((space, first + done), count, &mut lost, &mut left)
                .is_some()
        {
            done += 1;
        }
        if lost != NONE {
            self.forget(lost as u16);
        }
        (done, HOLDERS_MAX - left)
    }

    /// Takes one of so many. A space that lost it may still have translations: the last such one is told.
    #[inline(always)]
    fn flush_small(&mut self, (space, page): (u16, u64), count: u64, lost: &mut u32, left: &mut u64) -> Option<()> {
        if self.small_source(space, page).is_none() {
            let recent = &self.half.mapping.recent;
            let place = (recent.source.table, index(page, 0));
            let is_known = recent.source.key == Key::new(space, page, 1);
            if is_known && !is_present(word(&self.hardware, place).load(Relaxed)) && count < pages(1) {
                return Some(());
            }
            return (count < pages(1)).then(|| self.flush_part(space, page))?;
        }
        let Mapping { tree, recent, .. } = &self.half.mapping;
        // With a whole slot its links go, too.
        if count >= pages(1) && is_shared(word(&self.hardware, recent.source.above).load(Relaxed)) {
            return None;
        }
        let source = tree.find(space, 0, page)?;
        self.flush_kids(source, lost, left)
    }

    /// Takes a small page from all who have it from there. They gave it to nobody.
    #[inline(always)]
    fn flush_kids(&mut self, source: u32, lost: &mut u32, left: &mut u64) -> Option<()> {
        loop {
            let tree = &self.half.mapping.tree;
            let kids = tree.get(source).kids;
            if kids.active == NONE || kids.done != NONE {
                return (kids.done == NONE).then_some(());
            }
            let kid = kids.active;
            let has = tree.get(kid);
            if !has.kids.is_empty() {
                return None;
            }
            let is_alone = has.is_alone(kid);
            let holder = self.take_small(kid)?;
            let tree = &mut self.half.mapping.tree;
            if is_alone {
                tree.remove_only_kid(kid, source);
            } else {
                tree.remove(kid);
            }
            let before = core::mem::replace(lost, u32::from(holder));
            if before != NONE && before != *lost {
                self.forget(before as u16);
            }
            if !is_alone {
                *left -= 1;
                if *left == 0 {
                    return None;
                }
            }
        }
    }

    /// Something was taken from a space.
    #[inline(always)]
    fn forget(&mut self, space: u16) {
        let space = SpaceId(u32::from(space));
        self.forget_translations(space);
        self.ask_inside(space, Request::Forget);
    }
}
