//! Small pages that are granted in few instructions: a page's node goes from the giver to the receiver, and keeps its place below the one from whom the giver
//! had it. Counted in instructions (`ipc-grant-item`, `ipc-grant-item-8`).
//!
//! Nothing is allocated: the receiver pays for the node from now on, and the giver no more. A run ends at the first page that is another case; what it
//! did stays, and the slow path goes on from there.

use core::sync::atomic::Ordering::Relaxed;

use abi::Rights;

use super::{
    Mapping, NODE_UNITS,
    short::{index, node_of, record, word},
    tree::{Key, Kind, NONE, Node, pages},
};
use crate::{
    Hardware, Kernel,
    bare::Bare,
    paging::{COUNT_ONE, is_present, is_shared, present_rights, restricted, table_entries},
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
        while done < wanted
            && self
                .grant_page((from, source + done), (to, target + done), rights)
                .is_some()
        {
            done += 1;
        }
        done
    }

    /// Grants one page of `from`, which nobody has from it, to where `to`, another space, has a table and nothing there. The giver's table stays.
    #[inline(always)]
    fn grant_page(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), rights: Rights) -> Option<()> {
        let covering = self.small_source(from, source)?;
        let place = Key::new(to, 0, target);
        self.with_target(place.first_of(pages(1)))?;
        let Mapping {
            spaces, tree, recent, ..
        } = &mut self.half.mapping;
        let (giver, taker) = (recent.source, *recent.target(to));
        let entry = word(&self.hardware, (taker.table, index(target, 0)));
        let leading = word(&self.hardware, giver.above);
        let (is_linked, entries) = (is_shared(leading.load(Relaxed)), table_entries(leading.load(Relaxed)));
        let receiver = record(spaces, to)?;
        if is_present(entry.load(Relaxed))
            || is_linked
            || entries < 2
            || from == to
            || receiver.quota - receiver.used < NODE_UNITS[0]
        {
            return None;
        }
        let node = node_of(&self.hardware, &giver, source);
        let &Node {
            frame, depth, parent, ..
        } = tree.get(node);
        // σ₀'s own page has no parent: a page that σ₀ grants stays below it, and the slow path sees to that.
        if !tree.get(node).is_bare() || parent == NONE {
            return None;
        }
        // From here on it is certain.
        let given = restricted(covering, rights);
        let mut made = Node::of_key(Kind::Page, 0, place, frame, present_rights(given));
        (made.depth, made.live) = (depth, 1);
        tree.exchange(node, made, parent);
        receiver.used += NODE_UNITS[0];
        if let Some(record) = record(spaces, from) {
            record.used -= NODE_UNITS[0];
        }
        word(&self.hardware, (taker.nodes, index(target, 0))).store(node.into(), Relaxed);
        entry.store(given, Relaxed);
        word(&self.hardware, taker.above).fetch_add(COUNT_ONE, Relaxed);
        word(&self.hardware, (giver.table, index(source, 0))).store(0, Relaxed);
        leading.fetch_sub(COUNT_ONE, Relaxed);
        self.tell_loss(from);
        Some(())
    }
}
