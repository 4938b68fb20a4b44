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
        FPAGE_SIZE_SHIFT, GRANT, LABEL_FAULT, LINK, MAP, MESSAGE_AREA, REGISTER_WORDS, ROOT_GIVES_BELOW, TAG_KERNEL,
        TAG_WORDS, tag,
    },
};

use crate::{
    Hardware, Kernel, SpaceId,
    bare::{
        Bare,
        ipc::{INTERRUPT_TAG, fast::would_wait, transfer::page_window},
        mapping::{SHORT_MAX, SHORT_STEPS},
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

/// The bytes of an fpage of memory.
#[inline(always)]
fn bytes(word: u64) -> Option<u64> {
    let size = 1u64.wrapping_shl(((word & SIZE) >> FPAGE_SIZE_SHIFT) as u32);
    ((PAGE..=1 << ADDRESS_BITS).contains(&size) && is_plain(word, size)).then_some(size)
}

/// The pages of an fpage of memory smaller than a slot.
#[inline(always)]
fn small(word: u64) -> Option<u64> {
    bytes(word).filter(|&size| size < SLOT).map(|size| size / PAGE)
}

/// The first page that is given of an fpage, where it lands in a window, and how many ([`Fpage::landing`]).
#[inline(always)]
fn landing(source: u64, window: u64) -> Option<(u64, u64, u64)> {
    let (size, room) = (bytes(source)?, bytes(window)?);
    let given = source & !(size - 1) | window & (size - 1);
    let lands = window & !(room - 1) | source & (room - 1);
    Some((given / PAGE, lands / PAGE, size.min(room) / PAGE))
}

/// The reason for which the receiver of an item had waited.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// It waited for a message.
    ToMessage,
    /// It touched a page, and goes on as it was.
    ToFault,
}

/// Whether a thread never used vector registers.
#[inline(always)]
fn has_no_vectors(thread: &Thread) -> bool {
    thread.vectors == VectorState::UNUSED
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
        self.give_short(space, source, to, window, way)
    }

    /// Gives or grants the pages that an fpage has for a window: how many.
    #[inline(never)]
    fn give_range(
        &mut self,
        (from, source): (SpaceId, u64),
        (to, window): (SpaceId, u64),
        rights: Rights,
        way: u64,
    ) -> Option<u64> {
        let (given, lands, count) = landing(source, window)?;
        if count > SHORT_MAX {
            return None;
        }
        let (from, to) = ((from.0 as u16, given), (to.0 as u16, lands));
        if way == GRANT {
            // All or none: a page that was granted is the giver's no more, so behind some of them the slow path would count the others alone.
            return (self.grant_stretch(from, to, (count, count), rights) == count).then_some(count);
        }
        // So none leaves its slot.
        let done = self.map_stretch(from, to, count, rights);
        if done == count {
            return Some(count);
        }
        if self.stands_open() {
            // Each page would be looked at by itself: that is more than a call without an event does.
            return None;
        }
        let (from, to, left) = ((from.0, from.1 + done), (to.0, to.1 + done), count - done);
        let (ran, more) = self.map_run(from, to, (left, count), rights, &mut { SHORT_STEPS });
        // If the giver has none of the pages, the slow path says so.
        Some(done + more).filter(|&given| ran == left && given > 0)
    }

    /// Several pages, or one that several spaces have.
    #[inline(never)]
    fn flush_range(&mut self, space: SpaceId, what: u64) -> Option<u64> {
        let count = small(what).filter(|&count| count <= SHORT_MAX)?;
        (self.flush_run(space.0 as u16, what / PAGE, (count, count)).0 == count).then_some(0)
    }

    /// The rights to write and execute alone are taken, or one of them.
    #[inline(never)]
    fn lower_range(&mut self, space: SpaceId, what: u64, rights: u64) -> Option<u64> {
        let rights = Rights::from_bits(rights)?.intersection(Rights::RWX);
        if rights.is_empty() || rights.contains(Rights::R) {
            return None;
        }
        let count = small(what).filter(|&count| count <= SHORT_MAX)?;
        (self.lower_run(space.0 as u16, what / PAGE, (count, count), rights).0 == count).then_some(0)
    }

    /// The call [`Call::Flush`] of the running thread: its value if it was a short case.
    #[inline(always)]
    pub fn flush_short(&mut self, [what, rights, own]: [u64; 3]) -> Option<u64> {
        let space = self.current_thread()?.space;
        let taken = rights & !u64::from(Rights::RWX.without(Rights::R).bits()) == u64::from(Rights::R.bits());
        if own != 0 {
            return None;
        }
        if !taken {
            return self.lower_range(space, what, rights);
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

    /// Gives pages, or links one slot: how many. The fast paths check the bound [`Self::gives_below`] themselves.
    #[inline(always)]
    fn give_short(&mut self, from: SpaceId, source: u64, to: SpaceId, window: u64, way: u64) -> Option<u64> {
        let rights = Rights::from_bits(source & window & u64::from(Rights::RWX.bits()))?;
        let spaces = (from.0 as u16, to.0 as u16);
        match way {
            MAP if is_plain(source, PAGE) => {
                let target = if is_plain(window, PAGE) {
                    window / PAGE
                } else {
                    landing(source, window)?.1
                };
                self.map_page(spaces.0, spaces.1, source / PAGE, target, rights)?;
                Some(1)
            }
            MAP | GRANT => self.give_range((from, source), (to, window), rights, way),
            LINK if is_plain(source, SLOT) && (source ^ window) < PAGE && is_plain(window, SLOT) => {
                self.link_slot(spaces.0, spaces.1, source / PAGE, rights)?;
                Some(1)
            }
            _ => None,
        }
    }

    /// A page fault of the running thread, to a pager that waits for it: the pager, which runs now.
    #[inline(always)]
    pub fn fault_short(&mut self, address: u64, access: Access) -> Option<Rotation> {
        let thread = self.current_thread()?;
        let part = self.half.nucleus.part(thread.space)?;
        let (pager, space) = (part.pager, part.id);
        let (sender, rip, bit) = (thread.id.0, thread.context.rip, thread.ipc.bit());
        let to = pager as u32 & 0xffff;
        let other = self.threads().table.get(to as usize)?;
        // Zero, which names no pager, is nobody's identifier; a thread that runs, and is its own pager, waits for nobody.
        let waits = other.ipc.waits_for(sender);
        if other.id.0 != pager || !waits || other.slow & (WAITS | TAKES) != 0 || !self.may_run(other) {
            return None;
        }
        let is_plain = (thread.slow | other.slow) == 0 && has_no_vectors(thread) && has_no_vectors(other);
        let words = [address, u64::from(access.right().bits()), rip, space];
        let label = LABEL_FAULT;
        let (other, thread) = self.pass_at_once(to)?;
        thread.is_in_trouble(Trouble { label, words }, pager);
        other.ipc.is_awaited_by(bit);
        // Its other registers hold its own, old values: a call keeps none of them.
        other.context.rflags = USER_FLAGS;
        other.context.set_results(0, FAULT_TAG, sender);
        other.context.set_message_words(words);
        Some(Rotation { next: to, is_plain })
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
        let waits = other.ipc.waits_for(from);
        let urgent = running.more_urgent & 1 << other.standing.level() != 0;
        if other.id.0 != thread || !waits || other.slow & (WAITS | TAKES) != 0 || !urgent || !self.may_run(other) {
            return None;
        }
        self.make_room();
        let thread = self.receive_at_once(to)?;
        thread.ipc.delivered |= 1 << interrupt;
        let context = &mut thread.context;
        context.reset(context.rip, context.rsp);
        context.set_results(0, INTERRUPT_TAG, from);
        context.r12 = interrupt as u64;
        Some(to)
    }

    /// Gives the item of a message, its two words, from a space to the thread with this index, which waits for the message. If `plainly`, not to one that faulted and has vector
    /// registers.
    #[inline(always)]
    pub fn give_item(&mut self, from: SpaceId, [source, way]: [u64; 2], receiver: u32, plainly: bool) -> Option<Given> {
        let other = self.threads().table.get(receiver as usize)?;
        if other.slow & !WAITS != 0 {
            return None;
        }
        let (window, given) = match &other.ipc.trouble {
            None => (other.ipc.window, Given::ToMessage),
            Some(trouble) if trouble.label == LABEL_FAULT && (!plainly || has_no_vectors(other)) => {
                (page_window(trouble.words[0]), Given::ToFault)
            }
            Some(_) => return None,
        };
        self.give_short(from, source, other.space, window, way)?;
        if given == Given::ToFault {
            self.trouble_is_over(receiver);
        }
        Some(given)
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
        let waits = other.ipc.waits_for(sender);
        if other.id.0 != to || sender == to || !waits || !self.may_run(other) {
            return None;
        }
        let is_plain = has_no_vectors(thread) && has_no_vectors(other);
        let given = self.give_item(space, [source, way], receiver, false)?;
        let (other, thread) = self.pass_at_once(receiver)?;
        thread.has_sent(at, from, window, deadline_ns);
        if from == to {
            other.ipc.is_awaited_by(bit);
        }
        if given == Given::ToMessage {
            let context = &mut other.context;
            context.reset(context.rip, context.rsp);
            context.set_results(0, tag, sender);
            context.set_message_words(words);
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
