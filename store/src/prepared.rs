//! Limits of pages of objects that are not entered yet: so an object with many limits is kept in pieces, and enters with all of them.
//!
//! They are in nobody's sight, and no job takes them. The disk space that making them takes counts as spoken for.

use crate::event::{NoRoom, PageFlags};
use crate::heap::NoHeap;
use crate::pending::{Entries, MapChanges};
use crate::store::Store;

/// Limits that are forgotten in one piece.
const FORGET_PIECE: usize = 16;

impl Store {
    /// Prepares the limits of a page of an object that is to have so many pages.
    ///
    /// # Errors
    /// [`NoRoom`], as for [`Store::set_page_flags`]: nothing has changed.
    pub fn prepare_limit(&mut self, base: u64, pages: u64, page: u64, flags: PageFlags) -> Result<(), NoRoom> {
        let (_, levels) = self.shape(base, pages);
        let edge = self.prepared.edge_of(base, page, levels);
        self.room_for_growth(u64::from(levels + edge))?;
        let noted = self.change_prepared(base, |changes| {
            changes.expect(Entries { zeroed: 0, flags: 1 })?;
            changes.limit(page, flags)?;
            changes.add_cost(1, pages, levels, edge);
            Ok(())
        });
        noted.map_err(|NoHeap| NoRoom::Memory)
    }

    fn change_prepared(
        &mut self,
        base: u64,
        act: impl FnOnce(&mut MapChanges) -> Result<(), NoHeap>,
    ) -> Result<(), NoHeap> {
        if !self.prepared.by_object().has(base) {
            self.prepared.insert(base, MapChanges::default())?;
        }
        self.prepared.change(base, act).unwrap_or(Ok(()))
    }

    /// Makes room for [`Store::enter_prepared`].
    ///
    /// # Errors
    /// [`NoRoom::Memory`].
    pub fn expect_prepared(&mut self) -> Result<(), NoRoom> {
        self.room_for_changes(1).map_err(|NoHeap| NoRoom::Memory)
    }

    /// The prepared limits of an object are in force: it was entered just now, and there is [room](Store::expect_prepared).
    pub fn enter_prepared(&mut self, base: u64) {
        if let Some(changes) = self.prepared.take(base) {
            let _ = self.pending.insert(base, changes);
        }
    }

    /// Forgets some of the prepared limits of an object; tells whether those were all.
    pub fn forget_prepared(&mut self, base: u64) -> bool {
        let forget = |changes: &mut MapChanges| (0..FORGET_PIECE).any(|_| changes.flags.pop_first().is_none());
        let done = self.prepared.change(base, forget).unwrap_or(true);
        if done {
            self.prepared.take(base);
        }
        done
    }
}
