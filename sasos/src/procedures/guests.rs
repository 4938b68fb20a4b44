//! The calls that are inside of a callee beyond what is free to all (decision 0104).
//!
//! [`STACKS_OPEN`](kcore::space::STACKS_OPEN) calls may be inside of a callee, whosever they are, and the fast path lets them in. The further
//! stacks are kept: a call takes one only here, where its client is known, and no client has more of them than are left for others. A
//! client is a program with all that it has started. So one client, however many threads it parks inside, leaves stacks to several others.
//!
//! While kept stacks are in use no return takes the fast path, so the list is exact: there is a guest for each call inside beyond those
//! that are free to all.

use alloc::vec::Vec;

use abi::Error;
use kcore::{ThreadId, space::STACKS_KEPT};

use crate::{
    accounts::AccountId,
    containers::{push_reserved, reserve},
};

/// A call that has one of the kept stacks.
#[derive(Copy, Clone, Debug)]
struct Guest {
    thread: ThreadId,
    /// Calls that the thread was inside of before.
    depth: usize,
    client: AccountId,
}

/// The decision on a call that finds no open stack.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may take a kept stack.
    Enter,
    /// It waits for a stack: others have all of them.
    Full,
    /// It waits for its client's turn: that has as many as it may.
    AtBound,
}

/// The calls that have kept stacks of one callee, the oldest first.
#[derive(Default, Debug)]
pub struct Guests {
    calls: Vec<Guest>,
    /// Whether threads may wait for their client's turn. Then their client has a stack: with its last one all of its threads look anew.
    is_awaited: bool,
}

impl Guests {
    /// Whether a client may take one more kept stack, for a thread that is inside already or not: one that is would wait for itself, so it
    /// takes any that is left. There is room to note it then.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn ask(&mut self, client: AccountId, is_inside: impl FnOnce() -> bool) -> Result<Admission, Error> {
        reserve(&mut self.calls, 1)?;
        let held = self.calls.iter().filter(|guest| guest.client == client).count();
        let left = STACKS_KEPT.saturating_sub(self.calls.len());
        Ok(match held {
            _ if held < left || left > 0 && is_inside() => Admission::Enter,
            0 => Admission::Full,
            _ => {
                self.is_awaited = true;
                Admission::AtBound
            }
        })
    }

    /// Notes a call that [`Guests::ask`] has admitted, of a thread that was at this depth before.
    pub fn enter(&mut self, thread: ThreadId, depth: usize, client: AccountId) {
        push_reserved(&mut self.calls, Guest { thread, depth, client });
    }

    /// A call came back, to this depth. If it had a stack that is free to all, the oldest guest counts for that from now on. Tells whose guest has gone, if threads may wait for their
    /// client's turn.
    pub fn leave(&mut self, thread: ThreadId, depth: usize) -> Option<AccountId> {
        let known = |guest: &Guest| guest.thread == thread && guest.depth == depth;
        let place = self.calls.iter().position(known).unwrap_or(0);
        if place >= self.calls.len() {
            return None;
        }
        let gone = self.calls.remove(place).client;
        let was_awaited = self.is_awaited;
        self.is_awaited &= !self.calls.is_empty();
        was_awaited.then_some(gone)
    }

    /// The clients that have kept stacks.
    pub fn clients(&self) -> impl Iterator<Item = AccountId> {
        let first = |&(at, guest): &(usize, &Guest)| !self.calls[..at].iter().any(|other| other.client == guest.client);
        self.calls
            .iter()
            .enumerate()
            .filter(first)
            .map(|(_, guest)| guest.client)
    }

    /// Threads of a client that may enter now, of those that wait for its turn: all look anew if it has no stack any more.
    pub fn turns(&self, client: AccountId) -> u32 {
        let held = self.calls.iter().filter(|guest| guest.client == client).count();
        let left = STACKS_KEPT.saturating_sub(self.calls.len());
        match held {
            0 => u32::MAX,
            held => left.saturating_sub(held) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Ledger, UNLIMITED};

    /// Each client has as many as it leaves to others, then waits for its own; where none is left, for anybody's. A thread that is inside takes any.
    #[test]
    fn no_client_has_more_than_it_leaves() {
        let mut ledger = Ledger::new(1);
        let clients = [(); 20].map(|()| ledger.open(AccountId::ROOT, UNLIMITED).unwrap());
        let mut guests = Guests::default();
        let mut thread = 0;
        for client in clients {
            let mut has = 0;
            loop {
                let left = STACKS_KEPT - guests.calls.len();
                let wanted = match has {
                    _ if has < left => Admission::Enter,
                    0 => Admission::Full,
                    _ => Admission::AtBound,
                };
                assert_eq!(guests.ask(client, || false), Ok(wanted));
                let inside = if left > 0 { Admission::Enter } else { wanted };
                assert_eq!(guests.ask(client, || true), Ok(inside));
                if wanted != Admission::Enter {
                    break;
                }
                guests.enter(ThreadId(thread), 3, client);
                (has, thread) = (has + 1, thread + 1);
            }
        }
        assert_eq!(
            guests.calls.len(),
            STACKS_KEPT,
            "the last stacks go to those who have none"
        );
        // Those that came back are known by thread and depth; in place of an unknown one the oldest counts.
        let gone = |guests: &Guests, thread| !guests.calls.iter().any(|guest| guest.thread == ThreadId(thread));
        guests.leave(ThreadId(2), 3);
        assert!(gone(&guests, 2) && !gone(&guests, 0));
        guests.leave(ThreadId(4), 2);
        assert!(gone(&guests, 0) && !gone(&guests, 4));
        guests.leave(ThreadId(777), 3);
        assert!(gone(&guests, 1));
        for left in (0..STACKS_KEPT - 3).rev() {
            guests.leave(ThreadId(777), 0);
            assert_eq!(guests.calls.len(), left);
        }
        guests.leave(ThreadId(777), 0);
        assert!(guests.calls.is_empty());
    }
}
