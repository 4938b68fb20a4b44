//! Runs of small pages that are given, or taken: several pages of 4 KiB, one after another, with what they have in common done once. A page in the place of
//! another one is among them. Counted in instructions (`map-8`, `map-replace`).
//!
//! A run ends at the first page that is another case; what it did stays, and the slow path goes on from there.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::Rights;

use super::{
    DEPTH_MAX, Mapping, NODE_UNITS,
    open::BESIDE_STEPS,
    short::{Target, index, record, small_page, word},
    tables::EMPTY_A_STEP,
    tree::{Key, Kind, NONE, Tree, pages},
};
use crate::{
    Hardware, Kernel,
    bare::{Bare, going::UNIT},
    paging::{COUNT_ONE, is_exact_page, is_present, is_shared, present_rights, restricted},
};

/// Steps of one page that is given, or taken from one space.
const PAGE_STEPS: i32 = 4 * UNIT;
/// Steps of a page behind another one of its kind, with which it has all but its entry and its node in common.
const NEIGHBOUR_STEPS: i32 = UNIT;
/// Pages of a call that is done without an event. A piece of the event follows if they are not enough.
pub const SHORT_MAX: u64 = 16;
/// Steps that are enough to give them, whatever case each is.
pub const SHORT_STEPS: i32 = SHORT_MAX as i32 * PAGE_STEPS;

/// Pages that so many steps are enough for.
pub fn pages_for(steps: i32) -> u64 {
    u64::from(steps.max(0).cast_unsigned().div_ceil(PAGE_STEPS.cast_unsigned()))
}

/// The same if they are neighbours of one kind.
fn neighbours_for(steps: i32) -> u64 {
    u64::from(
        (steps - PAGE_STEPS)
            .max(0)
            .cast_unsigned()
            .div_ceil(NEIGHBOUR_STEPS.cast_unsigned()),
    ) + 1
}

/// Steps of so many neighbours, one at least.
fn steps_of_neighbours(pages: u64) -> i32 {
    PAGE_STEPS + (pages.max(1) - 1) as i32 * NEIGHBOUR_STEPS
}

/// Steps of so many pages.
pub fn steps_of(pages: u64) -> i32 {
    pages as i32 * PAGE_STEPS
}

/// Steps of so many pages that the giver does not have, as the search for the next one takes them ([`super::tables`]).
fn steps_of_absent(pages: u64) -> i32 {
    if pages == 0 { 0 } else { 4 + pages as i32 / EMPTY_A_STEP }
}

/// Pages from this one to the end of its slot.
pub(super) const fn left_in_slot(page: u64) -> u64 {
    pages(1) - (page & (pages(1) - 1))
}

/// Pages that the giver does not have for which so many steps are enough, one at least.
fn absent_for(steps: i32) -> u64 {
    u64::from(EMPTY_A_STEP.cast_unsigned() * (steps - 4).max(0).cast_unsigned()) + 1
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Maps up to that many pages of `from` into `to`, of an fpage of so many, until the steps are spent; how many, with those among them that the giver
    /// does not have, and how many without.
    #[inline(never)]
    pub(in crate::bare) fn map_run(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        (wanted, count): (u64, u64),
        rights: Rights,
        steps: &mut i32,
    ) -> (u64, u64) {
        let (mut done, mut had) = (0, 0);
        // Neighbours are not of one kind: each is given by itself.
        let mut is_scattered = false;
        let further = if self.stands_open() { BESIDE_STEPS } else { 0 };
        while done < wanted && *steps > 0 {
            let (source, target, left) = ((from, source + done), (to, target + done), wanted - done);
            let mut given = 0;
            let mut price = PAGE_STEPS;
            if !is_scattered {
                given = self.map_stretch(source, target, left.min(neighbours_for(*steps)), rights);
                price = steps_of_neighbours(given);
                if given == 0 {
                    given = self.replace_stretch(source, target, left.min(pages_for(*steps)), rights);
                    price = steps_of(given.max(1));
                }
            }
            if given == 0 && self.map_odd(source, target, count, rights).is_none() {
                let absent = self.absent(source, left.min(absent_for(*steps)));
                if absent == 0 {
                    break;
                }
                *steps -= steps_of_absent(absent);
                done += absent;
                continue;
            }
            *steps -= price + further;
            is_scattered = given <= 1;
            (done, had) = (done + given.max(1), had + given.max(1));
        }
        (done, had)
    }

    /// How many pages from this one on a giver's table of small pages does not have, of so many.
    #[inline(never)]
    fn absent(&mut self, from: (u16, u64), count: u64) -> u64 {
        match self.alike(from, count) {
            (false, absent) => absent,
            (true, _) => 0,
        }
    }

    /// Whether a space has a page, and how many from this one on, of so many, are like it. Of those without a table of small pages that is not known.
    #[inline(always)]
    fn alike(&mut self, (space, page): (u16, u64), count: u64) -> (bool, u64) {
        if !self.with_source(space, page) {
            return (true, count);
        }
        let entries = &self.hardware.table(self.half.mapping.recent.source.table)[usize::from(index(page, 0))..];
        let is_there = |entry: &AtomicU64| is_present(entry.load(Relaxed));
        let (first, most) = (is_there(&entries[0]), entries.len().min(count as usize));
        let is_alike = |entry: &&AtomicU64| is_there(entry) == first;
        (first, entries[..most].iter().take_while(is_alike).count() as u64)
    }

    /// Takes rights to pages, of an fpage of so many, from all who have them from `space`, until the steps are spent: how many, with those that it does not
    /// have.
    pub(super) fn take_run(
        &mut self,
        (space, first): (u16, u64),
        (wanted, count): (u64, u64),
        rights: Rights,
        steps: &mut i32,
    ) -> u64 {
        let mut done = 0;
        while done < wanted && *steps > 0 {
            let (at, left) = (first + done, wanted - done);
            // A slot is taken as a large page.
            let absent = if count < pages(1) {
                self.absent((space, at), left.min(absent_for(*steps)))
            } else {
                0
            };
            if absent > 0 {
                *steps -= steps_of_absent(absent);
                done += absent;
                continue;
            }
            let (_, length) = self.alike((space, at), left.min(pages_for(*steps)));
            let (ran, taken) = if rights == Rights::RWX {
                self.flush_run(space, at, (length, count))
            } else {
                self.lower_run(space, at, (length, count), rights)
            };
            *steps -= steps_of(ran + taken);
            done += ran;
            if ran < length {
                break;
            }
        }
        done
    }

    /// The same of small pages within a slot of both, to where nothing is.
    #[inline(always)]
    pub(in crate::bare) fn map_stretch(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        count: u64,
        rights: Rights,
    ) -> u64 {
        let place = Key::new(to, 0, target);
        let count = self.given_short((from, source), to, count);
        if from == to || !self.with_source(from, source) || self.with_target(place.first_of(pages(1))).is_none() {
            return 0;
        }
        let Mapping {
            spaces, tree, recent, ..
        } = &mut self.half.mapping;
        let Some(receiver) = record(spaces, to) else { return 0 };
        let &Target {
            table, nodes, above, ..
        } = recent.target(to);
        let affordable = ((receiver.quota - receiver.used) / NODE_UNITS[0]).min(tree.free_nodes());
        let rest = |table, page| &self.hardware.table(table)[usize::from(index(page, 0))..];
        let sources = rest(recent.source.table, source);
        let count = count.min(affordable.into()) as usize;
        let given = hang_new(
            tree,
            (&sources[..count.min(sources.len())], rest(recent.source.nodes, source)),
            (rest(table, target), rest(nodes, target)),
            place,
            rights,
        );
        receiver.used += given as u32 * NODE_UNITS[0];
        word(&self.hardware, above).fetch_add(given * COUNT_ONE, Relaxed);
        given
    }

    /// One page to where one is, from which nobody has it and which nobody gets back.
    #[inline(never)]
    pub(super) fn replace_page(&mut self, from: (u16, u64), to: (u16, u64), rights: Rights) -> Option<()> {
        (self.replace(from, to, 1, rights) == 1).then_some(())
    }

    /// Several small pages within a slot of both, to where such pages are.
    #[inline(never)]
    fn replace_stretch(&mut self, from: (u16, u64), to: (u16, u64), count: u64, rights: Rights) -> u64 {
        self.replace(from, to, count, rights)
    }

    #[inline(always)]
    fn replace(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), count: u64, rights: Rights) -> u64 {
        let place = Key::new(to, 0, target);
        let count = self.given_short((from, source), to, count);
        if from == to || !self.with_source(from, source) || self.with_target(place.first_of(pages(1))).is_none() {
            return 0;
        }
        let Mapping {
            tree, recent, sigma0, ..
        } = &mut self.half.mapping;
        let &Target {
            table, nodes, above, ..
        } = recent.target(to);
        // Spaces that link the slot have these pages, too, and would have to forget their translations.
        if is_shared(word(&self.hardware, above).load(Relaxed)) {
            return 0;
        }
        let giver = &recent.source;
        let mut done = 0;
        while done < count.min(left_in_slot(source)).min(left_in_slot(target)) {
            let [from, at] = [source, target].map(|page| index(page + done, 0));
            let covering = word(&self.hardware, (giver.table, from)).load(Relaxed);
            let entry = word(&self.hardware, (table, at));
            if !is_exact_page(covering) || !is_exact_page(entry.load(Relaxed)) {
                break;
            }
            let [node, old] =
                [(giver.nodes, from), (nodes, at)].map(|place| word(&self.hardware, place).load(Relaxed) as u32);
            let was = tree.get(old);
            if tree.get(node).depth >= DEPTH_MAX || !was.is_bare() || was.parent == NONE {
                break;
            }
            let had_from = tree.get(was.parent);
            if had_from.kind() != Kind::Page || *sigma0 == Some(had_from.space()) {
                break;
            }
            // From here on it is certain.
            let given = restricted(covering, rights);
            tree.exchange(
                old,
                small_page(tree, node, place.further(done), present_rights(given)),
                node,
            );
            entry.store(given, Relaxed);
            done += 1;
        }
        if done > 0 {
            self.tell_loss(to);
        }
        done
    }

    /// One page that is cut from a larger one, or the first of a table; but a slot is given as a large page.
    #[inline(never)]
    fn map_odd(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        count: u64,
        rights: Rights,
    ) -> Option<()> {
        if count >= pages(1) && self.small_source(from, source).is_none() {
            return None;
        }
        self.map_page(from, to, source, target, rights)
    }
}

/// Gives small pages by these entries, and their words for nodes, to where nothing is, until one is another case: how many. There are nodes for all.
///
/// A function by itself, which needs few enough variables at once.
#[inline(never)]
fn hang_new(
    tree: &mut Tree,
    (sources, givers): (&[AtomicU64], &[AtomicU64]),
    (targets, receivers): (&[AtomicU64], &[AtomicU64]),
    target: Key,
    rights: Rights,
) -> u64 {
    let mut done = 0;
    let givers = sources.iter().zip(givers);
    for ((covering, giver), (place, receiver)) in givers.zip(targets.iter().zip(receivers)) {
        let covering = covering.load(Relaxed);
        if !is_exact_page(covering) || is_present(place.load(Relaxed)) {
            break;
        }
        let node = giver.load(Relaxed) as u32;
        if tree.get(node).depth >= DEPTH_MAX {
            break;
        }
        let given = restricted(covering, rights);
        let made = small_page(tree, node, target.further(done), present_rights(given));
        receiver.store(tree.hang(made, node).into(), Relaxed);
        place.store(given, Relaxed);
        done += 1;
    }
    done
}
