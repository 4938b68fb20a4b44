//! The calls that the kernel must forget ([`kcore::portal`]), because a right is gone or a procedure has changed.
//!
//! The kernel remembers a call of a domain only while the domain's node for the object has P. So these are all the events:
//!
//! * the object is taken from all domains: its callees are entered by new calls only;
//! * the domain forgets what it has found, and with it those that read through to it: their calls are looked up anew;
//! * a callee closes.
//!
//! A change that concerns many spaces makes the kernel forget all calls at once, for no event may be longer than its budget.

use abi::{Rights, layout::PD_MERGE};
use kcore::{SpaceId, portal::Stale};
use store::PdxRecord;

use crate::{
    Server, World,
    lives::budget::Cost,
    procedures::pdx::{Extension, Stage},
};

/// Spaces whose calls are forgotten one by one in an event.
const APART: u32 = 16;
/// The cost of having the calls of one space forgotten, in instructions, roughly, and of finding the next; of having all calls forgotten.
const COST_ONE: Cost = Cost::calling(600, 1);
const COST_ALL: Cost = Cost::calling(5000, 1);

impl Server {
    /// Whether a call may be remembered: the slow path would enter there, too. For checks.
    pub fn would_enter(&self, caller: SpaceId, entry: u64, pd: u64, callee: SpaceId) -> bool {
        let Some((id, callee)) = self.objects.find(entry).zip(self.callees.get(callee)) else {
            return false;
        };
        let extension = if pd == PD_MERGE {
            Extension::Merge(self.domains.serial(caller))
        } else {
            Extension::Empty
        };
        let object = self.objects.get(id);
        let has_right = self
            .cached(caller, id)
            .is_some_and(|cached| cached.rights.contains(Rights::P));
        let is_registered = |pdx: PdxRecord<'_>| pdx.password == callee.password && pdx.entries.contains(&entry);
        has_right
            && object.base() == callee.base
            && object.record.pdx.iter().any(is_registered)
            && callee.stage == Stage::Open
            && callee.extension == extension
    }

    /// Has the kernel forget the calls into an object. The callees that are not open have been seen to.
    pub(crate) fn calls_into_stale(&mut self, world: &mut impl World, base: u64) {
        let mut after = None;
        for _ in 0..APART {
            let Some(space) = self.callees.open_of_object_after(base, after) else {
                return;
            };
            self.budget.spend(COST_ONE);
            world.portal_forget(Stale::CallsInto(space));
            after = Some(space);
        }
        self.all_calls_stale(world);
    }

    /// Has the kernel forget the calls that a domain makes.
    pub(crate) fn own_calls_stale(&mut self, world: &mut impl World, space: SpaceId) {
        self.budget.spend(COST_ONE);
        world.portal_forget(Stale::CallsOf(space));
    }

    /// Has the kernel forget the calls that a domain makes, and those of all that read through to it.
    pub(crate) fn calls_of_stale(&mut self, world: &mut impl World, space: SpaceId) {
        world.portal_forget(Stale::CallsOf(space));
        let mut left = APART;
        if !self.calls_below_stale(world, space, &mut left) {
            self.all_calls_stale(world);
        }
    }

    fn all_calls_stale(&mut self, world: &mut impl World) {
        self.budget.spend(COST_ALL);
        world.portal_forget(Stale::All);
    }

    /// Those of all that read through to it; tells whether they were few. As deep as merged calls go, and no deeper than [`APART`].
    fn calls_below_stale(&mut self, world: &mut impl World, space: SpaceId, left: &mut u32) -> bool {
        let serial = self.domains.serial(space);
        let mut after = None;
        while let Some(derived) = self.callees.derived_after(serial, after) {
            let Some(less) = left.checked_sub(1) else { return false };
            *left = less;
            let below = SpaceId(derived.4);
            self.budget.spend(COST_ONE);
            world.portal_forget(Stale::CallsOf(below));
            if !self.calls_below_stale(world, below, left) {
                return false;
            }
            after = Some(derived);
        }
        true
    }
}
