//! Small pages that are granted in few instructions: a page's node goes from the giver to the receiver, and keeps its place below the one from whom the giver
//! had it. Counted in instructions (`ipc-grant-item`, `ipc-grant-item-8`).
//!
//! Nothing is allocated: the receiver pays for the node from now on, and the giver no more. A run ends at the first page that is another case; what it
//! did stays, and the slow path goes on from there.

use core::sync::atomic::Ordering::Relaxed;

use abi::Rights;

use super::{
    Mapping, NODE_UNITS,
    runs::left_in_slot,
    short::{index, record, word},
    tree::{Key, Kind, NONE, Node, pages},
};
use crate::{
    Hardware, Kernel,
    bare::Bare,
    paging::{COUNT_ONE, is_exact_page, is_present, is_shared, present_rights, restricted, table_entries},
};

impl<H: Hardware> Kernel<H, Bare> {
    /// Grants up to that many pages of `from`, one after another; how many.
    #[inline(never)]
    pub(in crate::bare) fn grant_run(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        wanted: u64,
        rights: Rights,
    ) -> u64 {
        let mut done = 0;
        while done < wanted {
            let granted = self.grant_stretch((from, source + done), (to, target + done), (1, wanted - done), rights);
            if granted == 0 {
                break;
            }
            done += granted;
        }
        done
    }

    /// Grants pages of `from`, which nobody has from it, to where `to`, another space, has a table and nothing there: at least and at most so many, within a slot
    /// of both, or none. How many. The giver's table stays.
    #[inline(always)]
    pub(in crate::bare) fn grant_stretch(
        &mut self,
        (from, source): (u16, u64),
        (to, target): (u16, u64),
        (least, most): (u64, u64),
        rights: Rights,
    ) -> u64 {
        let place = Key::new(to, 0, target);
        let most = self.given_short((from, source), to, most);
        if from == to || !self.with_source(from, source) || self.with_target(place.first_of(pages(1))).is_none() {
            return 0;
        }
        let Mapping {
            spaces, tree, recent, ..
        } = &mut self.half.mapping;
        let Some(receiver) = record(spaces, to) else { return 0 };
        let (giver, taker) = (recent.source, *recent.target(to));
        let leading = word(&self.hardware, giver.above);
        let above = leading.load(Relaxed);
        if is_shared(above) {
            return 0;
        }
        let affordable = u64::from((receiver.quota - receiver.used) / NODE_UNITS[0]);
        let [sources, givers, targets, takers] =
            [giver.table, giver.nodes, taker.table, taker.nodes].map(|table| self.hardware.table(table));
        let (first, landing) = (usize::from(index(source, 0)), usize::from(index(target, 0)));
        let places = |page: usize| ((first + page) & 511, (landing + page) & 511);
        let most = most
            .min(affordable)
            .min(table_entries(above).saturating_sub(1))
            .min(left_in_slot(source))
            .min(left_in_slot(target)) as usize;
        let mut granted = 0;
        while granted < most {
            let (from, to) = places(granted);
            if !is_exact_page(sources[from].load(Relaxed)) || is_present(targets[to].load(Relaxed)) {
                break;
            }
            let at = tree.get(givers[from].load(Relaxed) as u32);
            // σ₀'s own page has no parent: a page that σ₀ grants stays below it, and the slow path sees to that.
            if !at.is_bare() || at.parent == NONE {
                break;
            }
            granted += 1;
        }
        if granted == 0 || (granted as u64) < least {
            return 0;
        }
        // From here on it is certain.
        let units = granted as u32 * NODE_UNITS[0];
        receiver.used += units;
        if let Some(record) = record(spaces, from) {
            record.used -= units;
        }
        for page in 0..granted {
            let (from, to) = places(page);
            let given = restricted(sources[from].load(Relaxed), rights);
            let node = givers[from].load(Relaxed) as u32;
            let &Node {
                frame, depth, parent, ..
            } = tree.get(node);
            let mut made = Node::of_key(Kind::Page, 0, place.further(page as u64), frame, present_rights(given));
            (made.depth, made.live) = (depth, 1);
            tree.exchange(node, made, parent);
            takers[to].store(node.into(), Relaxed);
            targets[to].store(given, Relaxed);
            sources[from].store(0, Relaxed);
        }
        word(&self.hardware, taker.above).fetch_add(granted as u64 * COUNT_ONE, Relaxed);
        leading.fetch_sub(granted as u64 * COUNT_ONE, Relaxed);
        self.tell_loss(from);
        granted as u64
    }
}
