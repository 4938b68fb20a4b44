//! The commonest calls and faults in few instructions: one page or slot is given or taken, a fault goes to a pager
//! that waits for one, and that answers with a page.
//!
//! Nothing is changed before it is certain that it is such a case; all others take the slow path, which does the
//! same. Counted in instructions (`map-page`, `flush-page`, `link-2m`, `pager-round-trip`, `interrupt-to-thread`). As with messages on the fast
//! path the time is not taken: who runs at the end of the slice that is handed over pays for it.

use abi::{
    Rights,
    address::{ADDRESS_BITS, PAGE, SLOT},
    nucleus::{
        ANYONE, FPAGE_SIZE_SHIFT, LABEL_FAULT, LINK, MAP, MESSAGE_AREA, REGISTER_WORDS, ROOT_GIVES_BELOW, TAG_KERNEL,
        TAG_WORDS, tag,
    },
};

use crate::{
    Hardware, Kernel, SpaceId,
    bare::{
        Bare,
        ipc::{INTERRUPT_TAG, fast::would_wait, transfer::page_window},
        mapping::SHORT_MAX,
    },
    event::Access,
    kernel::Rotation,
    messages::{TAKES, Trouble, WAITS},
    thread::{Thread, USER_FLAGS, VectorState},
};

/// The lower part of the tag of a message that is one item.
const ONE_ITEM: u16 = tag(0, 0, 1) as u16;
/// The tag of a fault.
const FAULT_TAG: u64 = tag(LABEL_FAULT, REGISTER_WORDS as u64, 0) | TAG_KERNEL;

/// The lower bits of an fpage of memory, without the rights to write and execute.
const fn lower_bits(size: u64) -> u64 {
    (size.trailing_zeros() as u64) << FPAGE_SIZE_SHIFT | Rights::R.bits() as u64
}

/// The bits of a word above all addresses.
const BEYOND: u64 = !0 << ADDRESS_BITS;

/// Whether an fpage is one of memory, of just this size.
#[inline(always)]
const fn is_plain(word: u64, size: u64) -> bool {
    let others = (Rights::W.bits() | Rights::X.bits()) as u64;
    // Of a larger one some bits of the address must be clear, too, and of each those above all addresses: a remembered slot does not tell them apart.
    word & ((size - 1) | BEYOND) & !others == lower_bits(size)
}

/// The bits of an fpage that tell its size.
const SIZE: u64 = 63 << FPAGE_SIZE_SHIFT;

/// The pages of an fpage of memory smaller than a slot.
#[inline(always)]
fn small(word: u64) -> Option<u64> {
    let size = 1u64.wrapping_shl(((word & SIZE) >> FPAGE_SIZE_SHIFT) as u32);
    ((PAGE..SLOT).contains(&size) && is_plain(word, size)).then_some(size / PAGE)
}

/// The page where one that stands at `source` lands in a larger window of memory ([`Fpage::landing`]).
#[inline(always)]
fn landing(source: u64, window: u64) -> Option<u64> {
    let rest = 1u64.wrapping_shl((window >> FPAGE_SIZE_SHIFT) as u32 & 63) - 1;
    let is_memory = rest >> ADDRESS_BITS == 0 && rest >= PAGE;
    (is_memory && is_plain(window, rest + 1)).then_some((window & !rest | source & rest) / PAGE)
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
        if self.give_short(space, source, to, window, way).is_some() {
            return Some(1);
        }
        self.map_range((space, source), (to, window), way)
    }

    /// Several pages that are given as one fpage to a place of the same size, or one where another one is.
    #[inline(never)]
    fn map_range(&mut self, (from, source): (SpaceId, u64), (to, window): (SpaceId, u64), way: u64) -> Option<u64> {
        let count = small(source)?;
        // Of the same size and aligned to it, but for the rights.
        let is_same = is_plain(window, count * PAGE);
        if way != MAP || !is_same || count > SHORT_MAX {
            return None;
        }
        let rights = Rights::from_bits(source & window & u64::from(Rights::RWX.bits()))?;
        let (from, to) = ((from.0 as u16, source / PAGE), (to.0 as u16, window / PAGE));
        // So none leaves its slot.
        let done = self.map_stretch(from, to, count, rights);
        if done == count {
            return Some(count);
        }
        let (from, to, left) = ((from.0, from.1 + done), (to.0, to.1 + done), count - done);
        (self.map_run(from, to, (left, count), rights) == left).then_some(count)
    }

    /// Several pages, or one that several spaces have.
    #[inline(never)]
    fn flush_range(&mut self, space: SpaceId, what: u64) -> Option<u64> {
        let count = small(what).filter(|&count| count <= SHORT_MAX)?;
        (self.flush_run(space.0 as u16, what / PAGE, (count, count)).0 == count).then_some(0)
    }

    /// The call [`Call::Flush`] of the running thread: its value if it was a short case.
    #[inline(always)]
    pub fn flush_short(&mut self, [what, rights, own]: [u64; 3]) -> Option<u64> {
        let space = self.current_thread()?.space;
        let taken = rights & !u64::from(Rights::RWX.without(Rights::R).bits()) == u64::from(Rights::R.bits());
        if !taken || own != 0 {
            return None;
        }
        if is_plain(what, PAGE) && self.flush_one(space.0 as u16, what / PAGE).is_some() {
            return Some(0);
        }
        self.flush_range(space, what)
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
            MAP if is_plain(source, PAGE) => {
                let target = if is_plain(window, PAGE) {
                    window / PAGE
                } else {
                    landing(source, window)?
                };
                self.map_page(spaces.0, spaces.1, source / PAGE, target, rights)
            }
            LINK if is_plain(source, SLOT) && (source ^ window) < PAGE && is_plain(window, SLOT) => {
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
        let (sender, rip, bit) = (thread.id.0, thread.context.rip, thread.ipc.bit());
        let to = pager as u32 & 0xffff;
        let other = self.threads().table.get(to as usize)?;
        // Zero, which names no pager, is nobody's identifier; a thread that runs, and is its own pager, waits for nobody.
        let waits = other.ipc.wait_for == ANYONE || other.ipc.wait_for == sender;
        if other.id.0 != pager || !waits || other.slow & (WAITS | TAKES) != 0 || !self.may_run(other) {
            return None;
        }
        let words = [address, u64::from(access.right().bits()), rip, space];
        let label = LABEL_FAULT;
        self.trouble_at_once(Trouble { label, words }, pager);
        let (context, part) = self.receive_at_once(to)?;
        part.is_awaited_by(bit);
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
        if other.id.0 != thread || !waits || other.slow & (WAITS | TAKES) != 0 || !urgent || !self.may_run(other) {
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

    /// A message with one item to a thread that waits for it; the sender waits for another. An item for a thread that faulted is for the page
    /// that it touched: that thread, which runs now, goes on as it was.
    ///
    /// Its arguments are those of [`Call::Ipc`], and the message's first words.
    #[inline(always)]
    pub fn item_short(
        &mut self,
        [to, from, tag, timeouts, window]: [u64; 5],
        words: [u64; REGISTER_WORDS],
        at: (u64, u64),
    ) -> Option<Rotation> {
        let length = (tag & TAG_WORDS) as usize;
        let thread = self.current_thread()?;
        if tag as u16 != ONE_ITEM | length as u16 || thread.slow != 0 || !would_wait(thread, to, from) {
            return None;
        }
        let (source, way) = (*words.get(length)?, *words.get(length + 1)?);
        let deadline_ns = self.deadline_at_once(thread, timeouts as u32)?;
        let (space, sender, bit) = (thread.space, thread.id.0, thread.ipc.bit());
        let receiver = to as u32 & 0xffff;
        let other = self.threads().table.get(receiver as usize)?;
        let waits = other.ipc.wait_for == ANYONE || other.ipc.wait_for == sender;
        let is_slow = other.slow & !WAITS != 0;
        if other.id.0 != to || sender == to || !waits || is_slow || !self.may_run(other) {
            return None;
        }
        let window_there = match &other.ipc.trouble {
            None => other.ipc.window,
            Some(trouble) if trouble.label == LABEL_FAULT => page_window(trouble.words[0]),
            Some(_) => return None,
        };
        let unused = |thread: &Thread| thread.vectors == VectorState::UNUSED;
        let (other, is_plain) = (other.space, unused(thread) && unused(other));
        self.give_short(space, source, other, window_there, way)?;
        self.send_at_once(at, from, window, deadline_ns);
        let (context, part) = self.receive_at_once(receiver)?;
        if from == to {
            part.is_awaited_by(bit);
        }
        if part.trouble.take().is_none() {
            context.reset(context.rip, context.rsp);
            context.set_results(0, tag, sender);
            [context.r12, context.r13, context.r14, context.r15] = words;
        }
        Some(Rotation {
            next: receiver,
            is_plain,
        })
    }
}

const _: () = assert!(SHORT_MAX.is_power_of_two() && SHORT_MAX * PAGE < SLOT);
const _: () = assert!(ROOT_GIVES_BELOW.is_multiple_of(SLOT) && MESSAGE_AREA.is_multiple_of(SLOT));
const _: () = assert!(
    crate::bare::THREADS_MAX <= 1 << 16,
    "the low bits of an identifier are the place"
);
