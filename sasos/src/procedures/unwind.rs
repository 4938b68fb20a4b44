//! How protected calls end other than by returning: threads are unwound, callee domains end.
//!
//! A callee ends with its object, with the domain that it is merged with, or when it is of no use
//! any more. Threads inside go back to whoever called it first; what they called from there is given
//! up. This may strike the very thread whose call brought it about: see [`Server::settle`].

use abi::Error;
use kcore::{SpaceId, ThreadId, thread::Resumed, wait::Key};

use crate::{
    Outcome, Server, World,
    lives::thread::{Life, Pause},
    procedures::pdx::{Callee, Extension},
};

/// At which depth of its calls a thread entered a space for the first time; its own domain does
/// not count.
pub(crate) fn depth_inside(world: &impl World, thread: ThreadId, space: SpaceId) -> Option<usize> {
    let depth = world.portal_depth(thread);
    // Frame i leads back to the space of depth i.
    let leads_back = |&index: &usize| {
        world
            .portal_frame(thread, index)
            .is_some_and(|frame| frame.space == space)
    };
    let within = (1..depth).find(leads_back);
    within.or_else(|| (depth > 0 && world.thread_space(thread) == space).then_some(depth))
}

impl Server {
    /// Takes a thread out of its innermost calls until `depth` are left. The caller there gets
    /// `CalleeFault`; whatever the thread was doing is given up.
    pub fn unwind_to(&mut self, world: &mut impl World, thread: ThreadId, depth: usize) {
        let mut unwound = false;
        while world.portal_depth(thread) > depth {
            if self
                .callee_leave(world, thread, Error::CalleeFault as u64, 0, 0)
                .is_none()
            {
                break;
            }
            unwound = true;
        }
        if !unwound {
            return;
        }
        self.waiting_ends(world, thread);
        self.handler_left(world, thread);
        world.thread_drop_operation(thread);
        let record = self.threads.record(thread);
        record.bookmark = None;
        // Nobody suspends a thread inside of a callee: if it paused, it slept there.
        record.pause = Pause::No;
        world.thread_wake(thread, Resumed::Woken);
    }

    /// What to answer to a call that may have ended callees, the caller's own among them.
    /// `depth` is how many calls the thread was inside of before.
    pub fn settle(&mut self, world: &impl World, thread: ThreadId, depth: usize, outcome: Outcome) -> Outcome {
        if self.threads.find(thread).is_none_or(|record| record.life != Life::Live) {
            return Outcome::Gone;
        }
        if world.portal_depth(thread) < depth {
            Outcome::Resume
        } else {
            outcome
        }
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// Ends a callee domain. Threads inside are unwound, derived domains end before.
    pub(crate) fn callee_end(&mut self, world: &mut impl World, space: SpaceId) {
        let Some(callee) = self.callees.remove(space) else {
            return;
        };
        world.portal_forget();
        self.callees_of_domain_end(world, space);
        let serial = self.domains.serial(space);
        for index in 0..self.threads.places() as usize {
            self.child_loses_domain(world, index, serial);
            let Some(thread) = self.threads.live_at(index).map(|record| record.id) else {
                continue;
            };
            if let Some(depth) = depth_inside(world, thread, space) {
                world.log(format_args!(
                    "thread {:#x} is taken out of a callee at {:#x} that ends",
                    thread.0, callee.base
                ));
                self.unwind_to(world, thread, depth - 1);
                self.doom_falls(world, thread);
            }
        }
        // Who waits for a stack looks for the callee anew.
        world.wake(Key::Stack(space.0), u32::MAX);
        world.wake(Key::Turn(space.0), u32::MAX);
        self.domain_end(world, space);
        for &stack in &callee.stacks {
            self.object_end(world, stack);
        }
    }

    /// Ends the callees that read through to a domain that ends.
    pub fn callees_of_domain_end(&mut self, world: &mut impl World, domain: SpaceId) {
        let serial = self.domains.serial(domain);
        while let Some(space) = self.callees.merged_with(serial) {
            self.callee_end(world, space);
        }
        if self.callees.retired > 0 {
            // Retired ones are in no index.
            while let Some(space) = self.callee_where(|callee| callee.extension == Extension::Merge(serial)) {
                self.callee_end(world, space);
            }
        }
    }

    fn callee_where(&self, wanted: impl Fn(&Callee) -> bool) -> Option<SpaceId> {
        self.callees
            .iter()
            .find(|(_, callee)| wanted(callee))
            .map(|(space, _)| space)
    }

    /// An object that registered procedures is deleted: its callees end.
    pub fn pdx_object_gone(&mut self, world: &mut impl World, base: u64) {
        while let Some(space) = self.callee_where(|callee| callee.base == base) {
            self.callee_end(world, space);
        }
    }

    /// A PDX password is no longer registered: nobody enters with it any more; who is inside may finish.
    pub fn pdx_password_gone(&mut self, world: &mut impl World, base: u64, password: u64) {
        world.portal_forget();
        while let Some(space) =
            self.callee_where(|callee| !callee.retired && callee.base == base && callee.password == password)
        {
            self.callees.hide(space);
            if let Some(callee) = self.callees.get_mut(space) {
                callee.retired = true;
                self.callees.retired += 1;
            }
        }
        self.callees_sweep_retired(world);
    }

    /// Ends retired callees that nobody is inside of.
    pub fn callees_sweep_retired(&mut self, world: &mut impl World) {
        if self.callees.retired > 0 {
            self.callees_sweep(world, |callee| callee.retired);
        }
    }

    /// Ends all callees that nobody is inside of.
    pub(crate) fn callees_give_up_unused(&mut self, world: &mut impl World) {
        self.callees_sweep(world, |_| true);
    }

    fn callees_sweep(&mut self, world: &mut impl World, wanted: impl Fn(&Callee) -> bool) {
        for number in 0..self.callees.end() {
            if let Some(callee) = self.callees.get_mut(SpaceId(number)) {
                callee.occupied = false;
            }
        }
        for record in self.threads.iter() {
            let frames = (0..).map_while(|index| world.portal_frame(record.id, index));
            let inside = frames.map(|frame| frame.space).chain([world.thread_space(record.id)]);
            for space in inside {
                // Parents of occupied domains are read through to, and stay.
                let mut next = Some(space);
                while let Some(space) = next {
                    let callee = self.callees.get_mut(space);
                    let seen = callee.is_none_or(|callee| core::mem::replace(&mut callee.occupied, true));
                    next = self
                        .domains
                        .get(space)
                        .and_then(|domain| domain.parent)
                        .filter(|_| !seen);
                }
            }
        }
        for space in (0..self.callees.end()).map(SpaceId) {
            let callee = self.callees.get(space);
            if callee.is_some_and(|callee| wanted(callee) && !callee.occupied) {
                self.callee_end(world, space);
            }
        }
    }
}
