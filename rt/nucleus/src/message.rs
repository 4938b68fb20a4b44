//! Messages: the forms of the one operation that programs use.

use abi::{
    error::Result,
    nucleus::{ANYONE, NO_TIMEOUTS, REGISTER_WORDS, TAG_ITEMS_SHIFT, TAG_LABEL_SHIFT, TAG_WORDS, timeouts},
};

use crate::call::{self, Received, memory::Window};

impl Received {
    /// The label of its tag.
    pub fn label(&self) -> u64 {
        self.tag >> TAG_LABEL_SHIFT
    }

    /// How many words it has, without its items.
    pub fn length(&self) -> u64 {
        self.tag & TAG_WORDS
    }

    /// How many items it has.
    pub fn items(&self) -> u64 {
        self.tag >> TAG_ITEMS_SHIFT & 15
    }
}

/// Sends, and waits until it is received.
///
/// # Errors
/// `NoSuchThread`, `Protection` (policy), `BadArgument`.
pub fn send(to: u64, tag: u64, words: [u64; REGISTER_WORDS]) -> Result<()> {
    call::ipc(to, 0, tag, NO_TIMEOUTS, Window::NOTHING, words).map(|_| ())
}

/// Receives from anyone.
///
/// # Errors
/// None, as long as nobody cancels it.
pub fn receive() -> Result<Received> {
    call::ipc(0, ANYONE, 0, NO_TIMEOUTS, Window::NOTHING, [0; REGISTER_WORDS])
}

/// Receives from a thread, or an interrupt by its number plus one.
///
/// # Errors
/// `NoSuchThread`; `Deleted` if the thread ends meanwhile.
pub fn receive_from(from: u64) -> Result<Received> {
    call::ipc(0, from, 0, NO_TIMEOUTS, Window::NOTHING, [0; REGISTER_WORDS])
}

/// Receives within that many microseconds.
///
/// # Errors
/// As [`receive_from`]; `TimedOut`.
pub fn receive_within(from: u64, receive_us: u32) -> Result<Received> {
    call::ipc(
        0,
        from,
        0,
        timeouts(0, receive_us),
        Window::NOTHING,
        [0; REGISTER_WORDS],
    )
}

/// Sends, and waits for the answer.
///
/// # Errors
/// As [`send`] and [`receive_from`].
#[inline(always)]
pub fn call(to: u64, tag: u64, words: [u64; REGISTER_WORDS]) -> Result<Received> {
    call::ipc(to, to, tag, NO_TIMEOUTS, Window::NOTHING, words)
}

/// As [`call`]; fpages of the answer land in the window.
///
/// # Errors
/// As [`call`].
pub fn call_for(to: u64, tag: u64, words: [u64; REGISTER_WORDS], window: Window) -> Result<Received> {
    call::ipc(to, to, tag, NO_TIMEOUTS, window, words)
}

/// Answers, if the other waits for it, and receives from anyone.
///
/// # Errors
/// `TimedOut` if the other does not wait for an answer, `NoSuchThread`, those of items; then nothing was received.
#[inline(always)]
pub fn reply_and_wait(to: u64, tag: u64, words: [u64; REGISTER_WORDS]) -> Result<Received> {
    call::ipc(to, ANYONE, tag, timeouts(0, u32::MAX), Window::NOTHING, words)
}
