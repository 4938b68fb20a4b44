//! One message from one thread to another.

use abi::{
    Error, Rights,
    address::PAGE,
    nucleus::{
        FPAGE_PORTS, FPAGE_SIZE_SHIFT, GRANT, LABEL_FAULT, LINK, MAP, MESSAGE_AREA, REGISTER_WORDS, ROOT_GIVES_BELOW,
        TAG_KERNEL, TAG_LABEL_SHIFT,
    },
};
use core::sync::atomic::Ordering::Relaxed;

use super::{Request, Tag};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    bare::{
        Bare,
        going::{Going, UNIT},
        mapping::{Fpage, How, Progress, Resource},
    },
};

/// An fpage from its word.
pub(in crate::bare) fn fpage(word: u64) -> Result<Fpage, Error> {
    let log2 = (word >> FPAGE_SIZE_SHIFT & 63) as u8;
    let base = word & !0xfff;
    if word >> 10 & 3 != 0 {
        return Err(Error::BadArgument);
    }
    if word & FPAGE_PORTS != 0 {
        return Fpage::ports(base >> 12, log2);
    }
    Fpage::memory(base, log2, Rights::from_bits(word & 7).ok_or(Error::BadArgument)?)
}

/// A window for the page that holds an address.
pub(in crate::bare) const fn page_window(address: u64) -> u64 {
    abi::nucleus::fpage(address & !(PAGE - 1), PAGE.trailing_zeros() as u8, Rights::RWX)
}

/// How an fpage is given, from its word.
pub(in crate::bare) fn how(word: u64) -> Result<How, Error> {
    match word {
        MAP => Ok(How::Map),
        GRANT => Ok(How::Grant),
        LINK => Ok(How::Link),
        _ => Err(Error::BadArgument),
    }
}

/// Further steps of an item of which nothing is there: no page pays for the look.
const NOTHING_STEPS: i32 = 4 * UNIT;

impl<H: Hardware> Kernel<H, Bare> {
    /// Whether an fpage of a space keeps off what is the kernel's: message buffers, and the root program.
    pub(in crate::bare) fn is_given(&self, space: SpaceId, page: Fpage) -> bool {
        let limit = if space == self.half.nucleus.root {
            ROOT_GIVES_BELOW
        } else {
            MESSAGE_AREA
        };
        page.resource() == Resource::Ports || page.end() <= limit
    }

    /// Sends what stands in the sender's registers and buffer to a receiver that waits for it, in an operation of `me`. The
    /// receiver is in no list and not ready then: the caller says when it runs.
    ///
    /// # Errors
    /// Those of its items; then nothing was delivered.
    pub(super) fn transfer(
        &mut self,
        (sender, receiver): (u32, u32),
        request: &Request,
        me: u32,
        steps: &mut i32,
    ) -> Result<Progress, Error> {
        if let Some(trouble) = self.thread(sender).ipc.trouble {
            let tag = trouble.label << TAG_LABEL_SHIFT | TAG_KERNEL | trouble.words.len() as u64;
            let from = self.id_of(sender).0;
            self.deliver(receiver, tag, from, trouble.words);
            return Ok(Progress::Done);
        }
        let tag = Tag::parse(request.tag)?;
        if tag.items > 0 && self.items_piece((sender, receiver), tag, me, steps)? == Progress::More {
            return Ok(Progress::More);
        }
        let words = self.thread(sender).context.message_words();
        if tag.words > REGISTER_WORDS && self.thread(receiver).ipc.trouble.is_none() {
            self.copy_buffer(sender, receiver, tag.words);
        }
        let from = self.id_of(sender).0;
        self.deliver(receiver, tag.whole, from, words);
        Ok(Progress::Done)
    }

    /// Ends a receiver's wait with a message. One that waits for the answer to a fault goes on with
    /// the registers it has.
    pub(super) fn deliver(&mut self, receiver: u32, tag: u64, from: u64, words: [u64; REGISTER_WORDS]) {
        self.end_wait(receiver);
        if self.messages_of(receiver).trouble.take().is_some() {
            return;
        }
        let context = self.context_of(receiver);
        context.reset(context.rip, context.rsp);
        context.set_results(0, tag, from);
        context.set_message_words(words);
    }

    /// The words behind those in registers.
    pub(super) fn copy_buffer(&mut self, sender: u32, receiver: u32, words: usize) {
        let frame = |index: u32| self.thread(index).ipc.buffer();
        if let (Some(from), Some(to)) = (frame(sender), frame(receiver)) {
            self.copy_words(from, to, words);
        }
    }

    /// The same from buffer to buffer.
    #[inline]
    pub(super) fn copy_words(&self, from: Frame, to: Frame, words: usize) {
        let [from, to] = [from, to].map(|frame| self.hardware.table(frame).get(REGISTER_WORDS..words));
        // By slices: an iterator that skips and counts takes 21 instructions a word instead of three.
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        for (place, word) in to.iter().zip(from) {
            place.store(word.load(Relaxed), Relaxed);
        }
    }

    /// A word of the message that a thread sends.
    fn message_word(&self, sender: u32, index: usize) -> u64 {
        let thread = self.thread(sender);
        let registers = thread.context.message_words();
        match (registers.get(index), thread.ipc.buffer()) {
            (Some(&word), _) => word,
            (None, Some(frame)) => self.hardware.table(frame)[index].load(Relaxed),
            (None, None) => 0,
        }
    }

    /// Gives items of a message for `me`, one of the two, whose operation that is.
    fn items_piece(
        &mut self,
        (sender, receiver): (u32, u32),
        tag: Tag,
        me: u32,
        steps: &mut i32,
    ) -> Result<Progress, Error> {
        let mut going = self.going(me);
        going.left = *steps;
        let waiting = if me == sender { receiver } else { sender };
        let before = going.position;
        going.begin_message((self.id_of(sender).0, self.thread(waiting).ipc.waits));
        if going.position != before {
            self.half.mapping.abandon(before);
        }
        let given = self.give_items(sender, receiver, tag, &mut going);
        *steps = going.left;
        if given != Ok(Progress::More) {
            self.half.mapping.abandon(going.position);
            // Another message, if one follows, is taken from its front.
            going.begin_message((0, 0));
        }
        self.keep_going(me, going);
        given
    }

    /// Gives the items of a message that are not given yet.
    fn give_items(&mut self, sender: u32, receiver: u32, tag: Tag, going: &mut Going) -> Result<Progress, Error> {
        let place = |index: u32| self.thread(index);
        let (from, to) = (place(sender).space, place(receiver).space);
        // The answer to a fault is for the page that was touched.
        let window = match place(receiver).ipc.trouble {
            Some(trouble) if trouble.label == LABEL_FAULT => page_window(trouble.words[0]),
            Some(_) => 0,
            None => place(receiver).ipc.window,
        };
        let first = tag.words - 2 * tag.items;
        while going.items < tag.items {
            if going.is_over() {
                return Ok(Progress::More);
            }
            let word = first + 2 * going.items;
            let (what, way) = (self.message_word(sender, word), self.message_word(sender, word + 1));
            let before = going.given;
            if self.give((from, what), (to, window), way, going)? == Progress::More {
                return Ok(Progress::More);
            }
            if going.given == before {
                going.spend(NOTHING_STEPS);
            }
            going.begin_item(going.items + 1);
        }
        Ok(Progress::Done)
    }

    /// Gives one fpage, or goes on with it.
    pub(in crate::bare) fn give(
        &mut self,
        (from, source): (SpaceId, u64),
        (to, window): (SpaceId, u64),
        way: u64,
        going: &mut Going,
    ) -> Result<Progress, Error> {
        let source = fpage(source)?;
        // A window of nothing: the receiver takes no fpages.
        let window = fpage(window).map_err(|_| Error::Protection)?;
        let (sent, landed) = source.landing(window)?;
        if !self.is_given(from, sent) || !self.is_given(to, landed) {
            return Err(Error::Protection);
        }
        going.spend(UNIT);
        let mapped = self.map((from, source), (to, window), how(way)?, going)?;
        going.given += mapped.count;
        Ok(mapped.progress)
    }
}
