//! Work that is done in pieces, one an event: how much one piece may do, and where the next one goes on.
//!
//! The position belongs to the operation of the thread that does the work, and ends with it. So neither a message's next item nor an operation
//! of another thread of the same space displaces it. Each piece that ends unfinished leaves it to the next ([`Kernel::keep_going`]); an operation
//! that begins has none.

use abi::Error;

use super::{Bare, mapping::Position};
use crate::{Hardware, Kernel, bare::THREADS_MAX};

/// Steps in a unit of work. A step is about 25 instructions.
pub(in crate::bare) const UNIT: i32 = 8;
/// Units of work that one event does at most, for whatever number of items, messages and threads.
pub const WORK_MAX: i32 = 56;
/// The same in steps.
pub(in crate::bare) const PIECE_STEPS: i32 = WORK_MAX * UNIT;

/// An operation that is done in pieces.
#[derive(Copy, Clone, Debug)]
pub struct Going {
    /// Steps that this piece may still take.
    pub(in crate::bare) left: i32,
    /// The position in the giving or taking of an fpage.
    pub(in crate::bare) position: Position,
    /// The message that is being given: its sender, and the number of the wait of the one of the two that waits.
    pub(in crate::bare) message: (u64, u64),
    /// Items of the message that are given.
    pub(in crate::bare) items: usize,
    /// Pages that the call's earlier pieces gave.
    pub(in crate::bare) given: u64,
    /// The end of the operation's timeout, once it goes on.
    pub(in crate::bare) until: Option<u64>,
}

impl Default for Going {
    fn default() -> Self {
        Self {
            left: PIECE_STEPS,
            position: Position::START,
            message: (0, 0),
            items: 0,
            given: 0,
            until: None,
        }
    }
}

impl Going {
    /// Another piece of the same.
    #[must_use]
    pub fn next_piece(self) -> Self {
        Self {
            left: PIECE_STEPS,
            ..self
        }
    }

    /// A piece that may take fewer steps, as in an event that has done something else before.
    #[must_use]
    pub fn with_steps(self, steps: i32) -> Self {
        Self {
            left: steps.min(self.left),
            ..self
        }
    }

    /// Steps that this piece may still take.
    pub fn steps_left(&self) -> i32 {
        self.left
    }

    /// Takes so many steps.
    pub(in crate::bare) fn spend(&mut self, steps: i32) {
        self.left -= steps;
    }

    /// Whether this piece must end.
    pub(in crate::bare) fn is_over(&self) -> bool {
        self.left <= 0
    }

    /// An item is given, or a message is refused: what comes next begins at its front.
    pub(in crate::bare) fn begin_item(&mut self, items: usize) {
        self.items = items;
        self.position = Position::START;
    }

    /// This message is given: from its front, unless it is the one that goes on. Items of another wait may be gone.
    pub(in crate::bare) fn begin_message(&mut self, message: (u64, u64)) {
        if core::mem::replace(&mut self.message, message) != message {
            self.begin_item(0);
        }
    }
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Makes room for what goes on: one place a thread.
    pub(in crate::bare) fn make_room_to_go_on(&mut self) -> Result<(), Error> {
        let going = &mut self.half.nucleus.going;
        going.try_reserve_exact(THREADS_MAX).map_err(|_| Error::NoMemory)?;
        going.resize(THREADS_MAX, None);
        Ok(())
    }

    /// The operation of a thread, where its last piece ended, or at the front.
    pub(in crate::bare) fn going(&mut self, me: u32) -> Going {
        let kept = self.half.nucleus.going.get(me as usize).copied().flatten();
        kept.map_or_else(Going::default, Going::next_piece)
    }

    /// An operation of a thread begins, or will begin at the front.
    #[inline(always)]
    pub(in crate::bare) fn forget_going(&mut self, me: u32) {
        if let Some(Some(_)) = self.half.nucleus.going.get(me as usize) {
            self.abandon_going(me);
        }
    }

    #[cold]
    fn abandon_going(&mut self, me: u32) {
        let kept = self.half.nucleus.going.get_mut(me as usize).and_then(Option::take);
        if let Some(going) = kept {
            self.half.mapping.abandon(going.position);
        }
    }

    /// The thread's operation goes on there if it is to be done again.
    pub(in crate::bare) fn keep_going(&mut self, me: u32, going: Going) {
        if let Some(place) = self.half.nucleus.going.get_mut(me as usize) {
            *place = Some(going);
        }
    }
}
