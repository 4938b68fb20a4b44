//! The commonest calls and faults in few instructions: one page or slot is given or taken, a fault goes to a pager
//! that waits for one, and that answers with a page.
//!
//! Nothing is changed before it is certain that it is such a case; all others take the slow path, which does the
//! same. Counted in instructions (`map-page`, `flush-page`, `link-2m`, `pager-round-trip`, `interrupt-to-thread`). As with messages on the fast
//! path the time is not taken: who runs at the end of the slice that is handed over pays for it.

use abi::{
    Rights,
    address::{PAGE, SLOT},
    nucleus::{
        ANYONE, FPAGE_SIZE_SHIFT, LABEL_FAULT, LINK, MAP, MESSAGE_AREA, NEVER, REGISTER_WORDS, ROOT_GIVES_BELOW,
        TAG_KERNEL, tag,
    },
};

use crate::{
    Hardware, Kernel, SpaceId,
    bare::{Bare, ipc::INTERRUPT_TAG},
    event::Access,
    messages::{Trouble, WAITS},
    scheduler::NONE,
    thread::USER_FLAGS,
};

/// The lower part of the tag of a message that is one item.
const ONE_ITEM: u16 = tag(0, 0, 1) as u16;
/// The tag of a fault.
const FAULT_TAG: u64 = tag(LABEL_FAULT, REGISTER_WORDS as u64, 0) | TAG_KERNEL;

/// The lower bits of an fpage of memory, without the rights to write and execute.
const fn lower_bits(size: u64) -> u64 {
    (size.trailing_zeros() as u64) << FPAGE_SIZE_SHIFT | Rights::R.bits() as u64
}

/// Whether an fpage is one of memory, of just this size.
#[inline(always)]
const fn is_plain(word: u64, size: u64) -> bool {
    let others = (Rights::W.bits() | Rights::X.bits()) as u64;
    // Of a larger one some bits of the address must be clear, too.
    word & (size - 1) & !others == lower_bits(size)
}

impl<H: Hardware> Kernel<H, Bare> {
    /// The call [`Call::Map`] of the running thread: its value if it was a short case.
    #[inline(always)]
    pub fn map_short(&mut self, [source, target, window, way]: [u64; 4]) -> Option<u64> {
        let space = self.current_thread()?.space;
        let to = SpaceId((target & 0xffff) as u32);
        let part = self.half.nucleus.part(to)?;
        if part.id != target || part.parent != space {
            return None;
        }
        self.give_short(space, source, to, window, way)?;
        Some(1)
    }

    /// The call [`Call::Flush`] of the running thread: its value if it was a short case.
    #[inline(always)]
    pub fn flush_short(&mut self, [what, rights, own]: [u64; 3]) -> Option<u64> {
        let space = self.current_thread()?.space;
        let taken = rights & !u64::from(Rights::RWX.without(Rights::R).bits()) == u64::from(Rights::R.bits());
        if !is_plain(what, PAGE) || !taken || own != 0 {
            return None;
        }
        self.flush_one(space.0 as u16, what / PAGE)?;
        Some(0)
    }

    /// The end of the memory that a space may give and be given.
    pub(in crate::bare) fn gives_below(&self, space: SpaceId) -> u64 {
        if space == self.half.nucleus.root {
            ROOT_GIVES_BELOW
        } else {
            MESSAGE_AREA
        }
    }

    /// Gives one page, or links one slot. The fast paths check the bound [`Self::gives_below`] themselves.
    #[inline(always)]
    fn give_short(&mut self, from: SpaceId, source: u64, to: SpaceId, window: u64, way: u64) -> Option<()> {
        let rights = Rights::from_bits(source & window & u64::from(Rights::RWX.bits()))?;
        let spaces = (from.0 as u16, to.0 as u16);
        match way {
            MAP if is_plain(source, PAGE) && is_plain(window, PAGE) => {
                self.map_page(spaces.0, spaces.1, source / PAGE, window / PAGE, rights)
            }
            LINK if is_plain(source, SLOT) && is_plain(window, SLOT) && (source ^ window) < PAGE => {
                self.link_slot(spaces.0, spaces.1, source / PAGE, rights)
            }
            _ => None,
        }
    }

    /// A page fault of the running thread, to a pager that waits for it: the pager, which runs now.
    #[inline(always)]
    pub fn fault_short(&mut self, address: u64, access: Access) -> Option<u32> {
        let thread = self.current_thread()?;
        let part = self.half.nucleus.part(thread.space)?;
        let (pager, space) = (part.pager, part.id);
        let (sender, rip) = (thread.id.0, thread.context.rip);
        let to = pager as u32 & 0xffff;
        let other = self.threads().table.get(to as usize)?;
        // Zero, which names no pager, is nobody's identifier; a thread that runs, and is its own pager, waits for nobody.
        let waits = other.ipc.wait_for == ANYONE || other.ipc.wait_for == sender;
        if other.id.0 != pager || !waits || other.slow & WAITS != 0 || !self.may_run(other) {
            return None;
        }
        let words = [address, u64::from(access.right().bits()), rip, space];
        let label = LABEL_FAULT;
        self.trouble_at_once(Trouble { label, words }, pager);
        let (context, part) = self.receive_at_once(to)?;
        part.awaited = 1;
        // Its other registers hold its own, old values: a call keeps none of them.
        context.rflags = USER_FLAGS;
        context.set_results(0, FAULT_TAG, sender);
        [context.r12, context.r13, context.r14, context.r15] = words;
        Some(to)
    }

    /// An interrupt for a thread that waits for it, more urgent than the running one and all others: that thread, which
    /// runs now. Here the time is taken: nobody gave his away.
    #[inline(always)]
    pub fn interrupt_short(&mut self, interrupt: usize) -> Option<u32> {
        if self.has_others() {
            return None;
        }
        let thread = self.half.nucleus.interrupts.get(interrupt)?.thread;
        let from = interrupt as u64 + 1;
        let to = thread as u32 & 0xffff;
        let running = self.current_thread()?;
        let other = self.threads().table.get(to as usize)?;
        let waits = other.ipc.wait_for == ANYONE || other.ipc.wait_for == from;
        let urgent = running.more_urgent & 1 << other.standing.level() != 0;
        if other.id.0 != thread || !waits || other.slow & WAITS != 0 || !urgent || !self.may_run(other) {
            return None;
        }
        self.make_room();
        let (context, part) = self.receive_at_once(to)?;
        part.delivered |= 1 << interrupt;
        context.reset(context.rip, context.rsp);
        context.set_results(0, INTERRUPT_TAG, from);
        context.r12 = interrupt as u64;
        Some(to)
    }

    /// The answer to a fault: one page; the sender waits for anyone's next message. The thread that faulted runs now.
    ///
    /// Its arguments are those of [`Call::Ipc`], and the first two words of the message.
    #[inline(always)]
    pub fn answer_short(
        &mut self,
        [to, from, tag, timeouts, window]: [u64; 5],
        [source, way]: [u64; 2],
        (rip, rsp): (u64, u64),
    ) -> Option<u32> {
        if tag as u16 != ONE_ITEM || from != ANYONE || timeouts as u32 != NEVER {
            return None;
        }
        let thread = self.current_thread()?;
        let part = &thread.ipc;
        if thread.slow != 0 || part.first_sender() != NONE || part.pending | part.delivered != 0 {
            return None;
        }
        let (space, sender) = (thread.space, thread.id.0);
        let faulted = to as u32 & 0xffff;
        let other = self.threads().table.get(faulted as usize)?;
        let trouble = other.ipc.trouble.as_ref()?;
        if other.id.0 != to
            || sender == to
            || other.ipc.wait_for != sender
            || other.deadline.is_some()
            || trouble.label != LABEL_FAULT
            || !self.may_run(other)
        {
            return None;
        }
        let place = abi::nucleus::fpage(trouble.words[0] & !(PAGE - 1), PAGE.trailing_zeros() as u8, Rights::RWX);
        let other = other.space;
        self.give_short(space, source, other, place, way)?;
        self.send_at_once((rip, rsp), from, window);
        self.receive_at_once(faulted)?.1.trouble = None;
        Some(faulted)
    }
}

const _: () = assert!(ROOT_GIVES_BELOW.is_multiple_of(SLOT) && MESSAGE_AREA.is_multiple_of(SLOT));
const _: () = assert!(
    crate::bare::THREADS_MAX <= 1 << 16,
    "the low bits of an identifier are the place"
);
