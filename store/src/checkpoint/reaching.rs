//! Before the first page has its place all maps reach theirs: growing moves paths.

use super::Checkpoint;
use crate::event::{DirtyPage, Failure};
use crate::store::Store;
use crate::world::World;

/// The cost of passing a page that the map of its object is known to reach.
const COST_REACHED: u64 = 40;

impl Checkpoint {
    /// Makes the maps reach all pages, as far as the budget does; tells whether they do. Mostly the next page is one of the same object, whose map reaches it.
    pub(super) fn grow_maps(&mut self, store: &mut Store, world: &mut impl World) -> Result<bool, Failure> {
        while let Some(&DirtyPage { base, page, .. }) = self.pages.get(self.grown) {
            if self.reached.0 == base && page < self.reached.1 {
                if !store.may_go_on(COST_REACHED) {
                    return Ok(false);
                }
                store.spend(COST_REACHED);
            } else {
                let Some(reach) = store.grow_map(world, base, page)? else {
                    return Ok(false);
                };
                self.reached = (base, reach);
            }
            self.grown += 1;
        }
        Ok(true)
    }
}
