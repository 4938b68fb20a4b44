//! The root that each processor has loaded (decision 0070), protected calls, which load another one, and requests to other processors to forget translations.

use super::Kernel;
use crate::{
    Half, Hardware, SpaceId,
    smp::{Processors, Request},
    thread::PortalFrame,
};

/// The place where a protected call continues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Next instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Protected call through a portal-cache entry: all or nothing. `rip` and `rsp` say where the caller
    /// goes on. Counted in instructions (`pdx-round-trip`).
    #[inline(always)]
    pub fn portal_call(&mut self, entry: u64, pd: u64, rip: u64, rsp: u64) -> Option<Crossing> {
        let thread = self.threads.table.get_mut(self.processor.runs_now())?;
        if thread.slow != 0 {
            return None;
        }
        let callee = self.portals.find(&self.spaces, thread.space, entry, pd)?;
        let space = self.spaces.find_mut(callee)?;
        let frame = thread.frames.get_mut(thread.depth as usize)?;
        let stack = space.take_stack()?;
        *frame = PortalFrame {
            rip,
            rsp,
            stack,
            space: thread.space,
        };
        thread.depth += 1;
        thread.space = callee;
        let load = space.load();
        self.cross_vectors();
        self.load(callee, load);
        Some(Crossing { rip: entry, rsp: stack })
    }

    /// Return from a protected call, if nobody wants to see it.
    #[inline(always)]
    pub fn portal_return(&mut self) -> Option<Crossing> {
        let thread = self.threads.table.get_mut(self.processor.runs_now())?;
        let callee = self.spaces.find_mut(thread.space)?;
        if thread.slow | callee.stacks_wanted() != 0 {
            return None;
        }
        let depth = thread.depth.wrapping_sub(1);
        let frame = thread.frames.get(depth as usize)?;
        let (rip, rsp, caller) = (frame.rip, frame.rsp, frame.space);
        callee.put_stack(frame.stack)?;
        thread.depth = depth;
        thread.space = caller;
        let load = self.spaces.find_mut(caller)?.load();
        self.cross_vectors();
        self.load(caller, load);
        Some(Crossing { rip, rsp })
    }

    /// Loads a root by its space's value ([`crate::space::Space::load`]) and notes down whose it is.
    #[inline(always)]
    pub fn load(&mut self, space: SpaceId, load: u64) {
        self.hardware.load_root(load);
        self.processor.note_space(space);
    }

    /// Puts this processor in `space`, for a thread that it is set up for.
    #[inline(always)]
    pub fn enter_space(&mut self, space: SpaceId) {
        self.processor.anew = false;
        if self.processor.space != space {
            self.load_space(space);
        }
    }

    /// Loads the root of a space.
    #[inline(always)]
    fn load_space(&mut self, space: SpaceId) {
        let load = self.spaces.get(space).load();
        self.spaces.loaded(space);
        self.load(space, load);
    }

    /// The processor is set up anew for the next thread here ([`Kernel::enter_space`]).
    pub fn set_up_anew(&mut self) {
        self.processor.anew = true;
        self.processor.upset = true;
    }

    /// Whether the root that is loaded here is the one that is noted down.
    pub fn is_root_known(&self) -> bool {
        let noted = self.processor.space;
        self.hardware.loaded_root() == (noted != SpaceId::NONE).then(|| self.spaces.get(noted).root().physical())
    }

    /// This processor has nothing to run: it leaves the space that it was in, so that nobody has to ask it to forget anything.
    pub fn rest(&mut self) {
        if self.has_others() {
            self.leave_space();
        }
    }

    /// This processor goes to the kernel's own root.
    pub(super) fn leave_space(&mut self) {
        self.hardware.leave_all_roots();
        self.processor.leave_space();
    }

    /// Every processor that is in a space leaves it, before what it is made of is freed.
    pub(super) fn leave_everywhere(&mut self, space: SpaceId) {
        self.ask_inside(space, Request::LeaveRoot);
        if self.processor.space == space {
            self.leave_space();
        }
        for number in 0..self.processors {
            let part = self.processor.part_mut(number);
            if part.space == space {
                part.leave_space();
            }
        }
        debug_assert!(
            self.is_root_known(),
            "a root is freed while another is loaded than is noted down"
        );
    }

    /// Asks those who are in a space.
    #[inline(always)]
    pub(crate) fn ask_inside(&mut self, space: SpaceId, request: Request) {
        if self.has_others() {
            self.ask_others_inside(space, request);
        }
    }

    #[cold]
    fn ask_others_inside(&mut self, space: SpaceId, request: Request) {
        self.ask_of(self.others_inside(space), request);
    }

    /// Bits of the others who are in a space. Not by `elsewhere`: spaces lose things one after another in one event, and each time all processors are looked at.
    #[cold]
    pub(crate) fn others_inside(&self, space: SpaceId) -> u32 {
        let here = self.processor.number;
        let others = self.parts().filter(|part| part.space == space && part.number != here);
        others.fold(0, |found, part| found | 1 << part.number)
    }

    /// Asks these, if there are any.
    pub(crate) fn ask_of(&mut self, others: u32, request: Request) {
        if others != 0 {
            self.hardware.ask(others, request);
        }
    }

    /// Asks everyone who may hold user translations.
    pub(super) fn ask_all(&mut self, request: Request) {
        if !self.has_others() {
            return;
        }
        let inside = self.elsewhere().in_any();
        if inside != 0 {
            self.hardware.ask(inside, request);
        }
    }
}
