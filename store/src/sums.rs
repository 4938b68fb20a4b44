//! Sums over rows of the object table: what a start must know of all objects without reading them.

use crate::record::{BIRTH_END, ObjectRecord};
use abi::address::SLOT;

/// Bits of the number of an account that say which place it has; those above count the accounts that had this place before.
pub const ACCOUNT_PLACE_BITS: u32 = 24;
/// Places of accounts that are not a program's: the root and the first task.
const ACCOUNTS_OF_SYSTEM: u64 = 2;

/// Whether a number, of this start or an earlier one, is that of a program's account: the first places are those of the system and of
/// the first task.
pub const fn is_account_of_program(number: u64) -> bool {
    number & ((1 << ACCOUNT_PLACE_BITS) - 1) >= ACCOUNTS_OF_SYSTEM
}

/// Words of totals on the disk.
pub(crate) const TOTAL_WORDS: usize = 5;

/// The sums over some rows.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Sums {
    /// How many there are.
    pub rows: u64,
    /// Slots of addresses that the objects reach into.
    pub slots: u64,
}

impl Sums {
    /// Those of one row.
    pub fn of(record: &ObjectRecord) -> Self {
        Self {
            rows: 1,
            slots: record.end().div_ceil(SLOT) - record.base / SLOT,
        }
    }

    /// The place of a row's sums: zero for those of programs, one for others.
    pub fn class(record: &ObjectRecord) -> usize {
        usize::from(!is_account_of_program(record.account))
    }

    /// With others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            slots: self.slots.saturating_add(other.slots),
        }
    }

    /// Without others, which are part of them.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_sub(other.rows),
            slots: self.slots.saturating_sub(other.slots),
        }
    }
}

/// What a superblock tells of all rows.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Totals {
    /// The sums over the rows of programs, and over the others.
    pub(crate) sums: [Sums; 2],
    /// Above the birth of every row that there is or was.
    pub(crate) births: u64,
}

impl Totals {
    /// A row comes.
    pub(crate) fn add(&mut self, record: &ObjectRecord) {
        let sums = &mut self.sums[Sums::class(record)];
        *sums = sums.and(Sums::of(record));
        self.births = self.births.max(record.birth + 1);
    }

    /// A row goes.
    pub(crate) fn take_off(&mut self, record: &ObjectRecord) {
        let sums = &mut self.sums[Sums::class(record)];
        *sums = sums.without(Sums::of(record));
    }

    pub(crate) fn to_words(self) -> [u64; TOTAL_WORDS] {
        let [one, other] = self.sums;
        [one.rows, one.slots, other.rows, other.slots, self.births]
    }

    /// A superblock of others may say anything.
    pub(crate) fn from_words([rows, slots, other_rows, other_slots, births]: [u64; TOTAL_WORDS]) -> Self {
        let other = Sums {
            rows: other_rows,
            slots: other_slots,
        };
        Self {
            sums: [Sums { rows, slots }, other],
            births: births.min(BIRTH_END),
        }
    }
}
