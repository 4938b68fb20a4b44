//! Small pages that a space itself loses, one after another: all of them when it ends. Those that nobody has from it go in one stretch for each table.
//!
//! Everything that a stretch leaves is another case, for which the general way is there ([`super::flush`]).

use core::sync::atomic::Ordering::Relaxed;

use super::{NODE_UNITS, PORTS_UNITS, TABLE_UNITS, Visit, tables::Work, tree::pages};
use crate::{
    Hardware,
    bare::going::UNIT,
    paging::{is_exact_page, is_present},
};

/// Steps of a stretch beside its pages: its search, its counts, the tables that may go with its last page.
const STRETCH_STEPS: i32 = 4 * UNIT;
/// Steps of each of its pages. What goes with a page of its giver's is paid for there.
const PAGE_STEPS: i32 = UNIT;

impl<H: Hardware> Work<'_, H> {
    /// Takes the small pages of one table from this one on, which is there, up to `end`: all that nobody has from this space, until the first one of another
    /// kind. Gives its page, or where the piece must end; all went if that is behind the table.
    pub fn take_own(&mut self, space: u16, at: u64, end: u64) -> u64 {
        let walk = self.walk(space, at, 0);
        let Some(nodes) = self.nodes_of(&walk) else { return at };
        let (table, first) = walk.places[0];
        let entries = self.entries_of(&walk);
        let mut index = first;
        let stop = (end - at).min(pages(1) - first as u64) as usize + first;
        let mut taken = 0;
        while index < stop && taken < entries && self.budget > 0 {
            let place = &self.hardware.table(table)[index];
            let entry = place.load(Relaxed);
            if !is_present(entry) {
                index += 1;
                continue;
            }
            let node = self.hardware.table(nodes)[index].load(Relaxed) as u32;
            if !is_exact_page(entry) || !self.mapping.tree.get(node).is_bare() {
                break;
            }
            place.store(0, Relaxed);
            let parent = self.mapping.tree.get(node).parent;
            self.mapping.tree.remove(node);
            self.free_parts(parent);
            self.budget -= PAGE_STEPS;
            taken += 1;
            index += 1;
        }
        if taken > 0 {
            self.budget -= STRETCH_STEPS + i32::from((index - first) as u16 / 8);
            self.credit(space, taken as u32 * NODE_UNITS[0]);
            self.note_change(space, &walk);
            self.uncount(space, &walk, taken);
            let visit = core::mem::replace(&mut self.visit, Visit::NONE);
            self.mapping.abandon_flush(visit);
        }
        at + (index - first) as u64
    }

    /// Whether a space has nothing but its root table, and perhaps a port bitmap: neither pages nor ports, nor links, threads or spaces that it made.
    pub fn has_nothing(&mut self, space: u16) -> bool {
        let record = self.space(space);
        let ports = if record.ports.is_empty() { 0 } else { PORTS_UNITS };
        record.used == TABLE_UNITS + ports
    }
}
