//! The first small page of a page table, and the last one: the table comes with the one and goes with the other. Counted in instructions
//! (`map-first-page`, `flush-last-page`).

use core::sync::atomic::Ordering::Relaxed;

use super::{
    DEPTH_MAX, Mapping, NODE_UNITS, TABLE_UNITS,
    short::{Place, Target, index, record, slot_of, word},
    tree::{Key, NONE},
};
use crate::{
    Hardware, Kernel,
    bare::Bare,
    kernel::doors::Tables,
    paging::{COUNT_ONE, encode_counted_table, is_exact_page, is_shared, table_entries},
};

/// The most nodes that giving one small page takes.
const NODES_MAX: u32 = 4;

impl<H: Hardware> Kernel<H, Bare> {
    /// Makes a table for small pages, and that of their nodes, for a page of `node`. Only if nothing is in the way of giving that page then, for nobody would
    /// free an empty table.
    #[inline(always)]
    pub(super) fn make(&mut self, slot: Key, (place, above): (Place, Place), node: u32) -> Option<Target> {
        let Tables {
            half, frames, hardware, ..
        } = self.tables();
        let Mapping { spaces, tree, .. } = &mut half.mapping;
        let receiver = record(spaces, slot.space())?;
        let units = 2 * TABLE_UNITS;
        if receiver.quota - receiver.used < units + NODE_UNITS[0]
            || tree.get(node).depth >= DEPTH_MAX
            || tree.free_nodes() < NODES_MAX
            || frames.free() < 2
        {
            return None;
        }
        let (table, nodes) = (frames.take_zeroed(hardware).ok()?, frames.take_any().ok()?);
        receiver.used += units;
        frames.put_beside(table, nodes);
        word(hardware, place).store(encode_counted_table(table, 0), Relaxed);
        word(hardware, above).fetch_add(COUNT_ONE, Relaxed);
        Some(Target {
            key: slot,
            table,
            nodes,
            above: place,
        })
    }

    /// Takes the last page of a table out of it, and the tables; the page's node stays. The table above must have others, and nobody may link this one.
    /// The table is remembered.
    #[inline(never)]
    pub(super) fn take_last(&mut self, key: Key) -> Option<()> {
        let (space, slot) = (key.space(), slot_of(key.space(), key.page()));
        let &Target {
            table, nodes, above, ..
        } = self.half.mapping.recent.target(space);
        let leading = word(&self.hardware, above).load(Relaxed);
        let (_, _, _, higher) = self.entry_at(space, key.page(), 1);
        let has_others = table_entries(word(&self.hardware, higher).load(Relaxed)) > 1;
        if table_entries(leading) != 1 || is_shared(leading) || !has_others {
            return None;
        }
        let place = word(&self.hardware, (table, index(key.page(), 0)));
        debug_assert!(is_exact_page(place.load(Relaxed)), "a small page has its entry");
        place.store(0, Relaxed);
        word(&self.hardware, above).store(0, Relaxed);
        word(&self.hardware, higher).fetch_sub(COUNT_ONE, Relaxed);
        let Mapping { spaces, recent, .. } = &mut self.half.mapping;
        if let Some(record) = record(spaces, space) {
            record.used -= 2 * TABLE_UNITS + NODE_UNITS[0];
        }
        *recent.target_mut(space) = Target::NONE;
        if recent.source.key == slot {
            (recent.source, recent.covering) = (Target::NONE, NONE);
        }
        // Nobody walks through the tables any more when they are free.
        self.tell_loss(space);
        let frames = self.tables().frames;
        frames.release_zeroed(table);
        frames.release(nodes);
        Some(())
    }
}
