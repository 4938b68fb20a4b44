//! Runs of small pages that are given: several pages of 4 KiB, one after another, with what they have in common done once. A page in the place of
//! another one is among them. Counted in instructions (`map-8`, `map-replace`).
//!
//! A run ends at the first page that is another case; what it did stays, and the slow path goes on from there.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::Rights;

use super::{
    DEPTH_MAX, Mapping, NODE_UNITS,
    short::{Target, index, record, small_page, word},
    tree::{Key, Tree, pages},
};
use crate::{
    Hardware, Kernel,
    bare::{Bare, going::UNIT},
    paging::{COUNT_ONE, is_exact_page, is_present, present_rights, restricted},
};

/// Steps of one page that is given, or taken from one space.
const PAGE_STEPS: i32 = 4 * UNIT;
/// Pages of a call that is done without an event. A piece of the event follows if they are not enough.
pub const SHORT_MAX: u64 = 16;

/// Pages that so many steps are enough for.
pub fn pages_for(steps: i32) -> u64 {
    u64::from(steps.max(0).cast_unsigned().div_ceil(PAGE_STEPS.cast_unsigned()))
}

/// Steps of so many pages.
pub fn steps_of(pages: u64) -> i32 {
    pages as i32 * PAGE_STEPS
}

/// Pages from this one to the end of its slot.
pub(super) const fn left_in_slot(page: u64) -> u64 {
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
            // In the place of another one, or cut from a larger page; but a slot is given as a large page.
            let odd = |kernel: &mut Self| kernel.map_odd(source, target, count, rights).is_some();
            let given = if given == 0 { u64::from(odd(self)) } else { given };
            if given == 0 {
                break;
            }
            done += given;
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

    /// One page that is not small by itself, or not given to where nothing is.
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
