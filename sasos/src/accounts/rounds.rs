//! How programs share a resource that comes back from all of them at once: dirty pages, which each checkpoint takes over.
//!
//! A bound by what is left just now would not be fair: everybody who waits is woken by the same checkpoint, and the first to run could take all again. So the time between two
//! checkpoints is a *round*. In each one a program makes pages dirty until it had its part: three quarters of the most that all may have, divided by the programs that asked
//! in the round before. The last quarter is for those that did not ask then. One call may exceed the part (`KeepObject` makes all pages of an object dirty); the program
//! makes up for it in its next rounds if others ask, too. See decision 0085.

use crate::accounts::{AccountId, Ledger, Resource, limits};

/// Parts are counted in fractions of a page, so many a page: however many programs there are, each one has some.
const FRACTIONS: u64 = 1 << 16;

/// The rounds of all programs.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rounds {
    number: u64,
    /// Programs that asked in this round, and in the one before; of those that asked still earlier some count, too.
    asking: u64,
    asked: u64,
    /// Whether a page has become dirty in this round.
    is_used: bool,
    /// Rounds until the next of those may go on that have used up their part.
    next: u64,
}

impl Rounds {
    /// No account has asked in it yet.
    pub(super) const fn first() -> Self {
        Self {
            number: 1,
            asking: 0,
            asked: 0,
            is_used: false,
            next: u64::MAX,
        }
    }
}

/// The part of a program in the last round in which it asked, in [`FRACTIONS`].
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Part {
    round: u64,
    size: u64,
    /// With the excess of earlier rounds.
    taken: u64,
}

impl Ledger {
    /// Whether the program to which an account belongs may make one more page dirty in this round; always so for one that belongs to none.
    pub(crate) fn is_part_left(&mut self, account: AccountId, programs: AccountId) -> bool {
        let Some(program) = self.program_of(account, programs) else {
            return true;
        };
        let part = self.part_size(programs);
        let Rounds { number, asked, .. } = self.rounds;
        let own = &mut self.record_mut(program).part;
        let past = number - own.round;
        if past > 0 {
            // With nobody else to wait for it there is nothing to make up for.
            let makes_up = part.saturating_mul(past - 1).saturating_add(own.size);
            *own = Part {
                round: number,
                size: part,
                taken: if asked > 1 {
                    own.taken.saturating_sub(makes_up)
                } else {
                    0
                },
            };
        }
        let lacks = own.taken.saturating_add(1).saturating_sub(part);
        self.rounds.asking += u64::from(past > 0);
        if lacks > 0 {
            self.rounds.next = self.rounds.next.min(lacks.div_ceil(part));
        }
        lacks == 0
    }

    /// Notes that the program of an account has made so many pages dirty.
    pub(crate) fn take_of_part(&mut self, account: AccountId, programs: AccountId, pages: u64) {
        if let Some(program) = self.program_of(account, programs) {
            let own = &mut self.record_mut(program).part;
            own.taken = own.taken.saturating_add(pages.saturating_mul(FRACTIONS));
            self.rounds.is_used = true;
        }
    }

    /// So many pages are durable by a sync that an account has asked for: its program may have others dirty.
    pub(crate) fn give_to_part(&mut self, account: AccountId, programs: AccountId, pages: u64) {
        if let Some(program) = self.program_of(account, programs) {
            let own = &mut self.record_mut(program).part;
            own.taken = own.taken.saturating_sub(pages.saturating_mul(FRACTIONS));
        }
    }

    /// Begins a round: a checkpoint has taken all dirty pages over. If all who asked had to make up for something, none of them waits for further checkpoints in vain.
    pub(crate) fn begin_round(&mut self) {
        let last = self.rounds;
        let further = if last.is_used || last.next == u64::MAX {
            1
        } else {
            last.next
        };
        self.rounds = Rounds {
            number: last.number.saturating_add(further),
            // A round may be so short that hardly anybody could ask.
            asked: last.asking.max(last.asked / 4 * 3),
            ..Rounds::first()
        };
    }

    /// The part of each program in this round.
    fn part_size(&self, programs: AccountId) -> u64 {
        let most = self.limit(programs, Resource::Dirty);
        (limits::part_of(most).saturating_mul(FRACTIONS) / self.rounds.asked.max(1)).max(1)
    }

    /// The account of the program that an account belongs to, if there is one.
    pub(crate) fn program_of(&self, account: AccountId, programs: AccountId) -> Option<AccountId> {
        let program = self.family(account, programs);
        (programs != AccountId::ROOT && program != AccountId::ROOT && self.parent(program) == programs)
            .then_some(program)
    }
}
