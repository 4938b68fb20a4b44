//! The ledger of accounts, which pay for what tasks take.
//!
//! An account is a numbered record with a parent and limits. A charge to an account is a charge to every account above it,
//! so a family of tasks takes no more than the account at its head allows. A charge comes before the allocation that it is for,
//! and all of it happens or nothing. A charge comes back by [`Ledger::give`], to the same account, whoever has ended
//! meanwhile: a record lives until its task has ended, its children are gone and all that it paid for has come back.
//!
//! Rows of the object table name accounts by number. A number is never used twice between two starts of the system; one that the
//! ledger does not know (of an earlier start) means the root.
//!
//! Some resources are charged on fast paths: a frame with each first touch, bytes with each object. So a record keeps a little of
//! each *in hand*, which is charged to it and to all above it but used by nobody; taking it is a subtraction. Near a limit nobody
//! gets a refusal for what others only have in hand: hands above are emptied first.

use abi::Error;
use store::{ACCOUNT_PLACE_BITS, is_account_of_program};

use crate::containers::{Boxed, Places, boxed};

pub mod limits;
mod rounds;

use rounds::{Part, Rounds};

/// A resource that an account pays for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Resource {
    /// Frames for pages of transient objects that are not [backed](crate::pages::backing), and for page tables.
    Frames,
    /// Frames for page tables alone: leaves of objects, upper tables of domains. They count as [`Resource::Frames`], too.
    Tables,
    /// Frames with changed pages of kept and backed objects, until a checkpoint or a sync takes them over.
    Dirty,
    /// Blocks of the disk for pages of kept and backed objects, promised or written.
    Blocks,
    /// Bytes of the server's heap.
    Bytes,
    /// Threads, those that ended and were not waited for among them.
    Threads,
    /// Semaphores.
    Semaphores,
    /// Time of the processors, in thousandths of all of them. Nothing of it is charged here: the kernel counts it, and has the limit from here.
    Processor,
    /// Slots of addresses.
    Slots,
    /// Bytes of the server's heap for kept objects, whether they are active or not. They count as [`Resource::Bytes`], too. They stay when all
    /// tasks have ended.
    Rows,
    /// Slots of addresses of kept objects. They count as [`Resource::Slots`], too, while the object is active.
    Kept,
    /// Spaces: one for each task, and one for each domain of a procedure.
    Spaces,
}

/// How many kinds of resources there are.
pub const RESOURCES: usize = 12;

/// All of them, by number.
pub const RESOURCE_LIST: [Resource; RESOURCES] = [
    Resource::Frames,
    Resource::Tables,
    Resource::Dirty,
    Resource::Blocks,
    Resource::Bytes,
    Resource::Threads,
    Resource::Semaphores,
    Resource::Processor,
    Resource::Slots,
    Resource::Rows,
    Resource::Kept,
    Resource::Spaces,
];

/// An amount of each resource, by its number.
pub type Amounts = [u64; RESOURCES];

/// No bound.
pub const UNLIMITED: Amounts = [u64::MAX; RESOURCES];

/// An account. Only the ledger makes one; it is valid as long as its record has a holder or something is charged to it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccountId(u32);

impl AccountId {
    /// The account at the head of all: the system's own. It has no limits but the machine's.
    pub const ROOT: Self = Self(0);

    /// The number of its share of the processors, which the kernel keeps ([`kcore::shares`]).
    pub const fn share(self) -> u32 {
        self.0
    }
}

/// Accounts below each other: a charge goes through all of them. A task of the last one starts no others, which would have to share its account or escape it.
pub const DEPTH_MAX: u8 = 16;
/// Bytes that a record costs the account above it, with what the kernel notes of its processor time.
const RECORD_BYTES: u64 = core::mem::size_of::<Record>() as u64 + kcore::shares::ROW_BYTES;
/// The amounts that a record takes in hand at once of each resource; it keeps twice as much at most. Nothing of dirty pages: on a small disk there are few, and those in hand
/// would be kept from programs that wait for one.
const HANDS: Amounts = [16, 6, 0, 16, 8192, 2, 2, 0, 8, 0, 0, 0];
/// Amounts of memory, spaces and addresses so small that what nobody uses is worth looking for.
const SHORT: [(Resource, u64); 5] = [
    (Resource::Frames, 64),
    (Resource::Tables, 16),
    (Resource::Bytes, 64 << 10),
    (Resource::Spaces, 1),
    (Resource::Slots, 1),
];
/// Bits of a number that are the place in the table.
const PLACE_BITS: u32 = ACCOUNT_PLACE_BITS;

/// Page tables, and bytes for what is known of slots, in the cache of objects that no program pays for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cached {
    pub(crate) leaves: u64,
    pub(crate) bytes: u64,
}

impl Cached {
    /// This, where `less` goes and `more` comes.
    pub(crate) const fn changed(self, less: Self, more: Self) -> Self {
        Self {
            leaves: self.leaves + more.leaves - less.leaves,
            bytes: self.bytes + more.bytes - less.bytes,
        }
    }
}

#[derive(Debug)]
struct Record {
    number: u64,
    parent: AccountId,
    depth: u8,
    /// Tasks that pay by it, and accounts below it.
    holders: u32,
    /// Whether its task lives. Only then anything is in hand.
    open: bool,
    /// Whether a program has bounded its memory, or that of one above.
    bounded: bool,
    /// The amounts in hand: part of `used`.
    hands: Amounts,
    limits: Amounts,
    used: Amounts,
    /// Its part of the dirty pages, if it is a program's.
    part: Part,
    /// The last turns of the list of work that it has something in, if it is a program's: a callee, and something else.
    turns: [u64; 2],
    /// Its program's part of the cache. Nobody is charged for it by name, and the record stays as long as there is some.
    cached: Cached,
}

/// All accounts.
#[derive(Debug)]
pub struct Ledger {
    records: Places<Record>,
    /// Above the place in every number: no number of an earlier start, nor one given before, has it.
    next_version: u64,
    rounds: Rounds,
}

impl Ledger {
    /// The number of the root account.
    pub(crate) const ROOT_NUMBER: u64 = 1 << PLACE_BITS;

    /// A ledger with the root account alone. `start` tells one start of the system from all others.
    pub fn new(start: u64) -> Self {
        let mut records = Places::default();
        // Before anybody runs: without it there is no system.
        let _ = records.add(Record {
            number: Self::ROOT_NUMBER,
            parent: AccountId::ROOT,
            depth: 0,
            holders: 1,
            open: false,
            bounded: false,
            hands: [0; RESOURCES],
            limits: UNLIMITED,
            used: [0; RESOURCES],
            part: Part::default(),
            turns: [0; 2],
            cached: Cached::default(),
        });
        Self {
            records,
            next_version: (start << 20).max(2),
            rounds: Rounds::first(),
        }
    }

    /// An account below another one, with a holder. The record is charged to the parent.
    ///
    /// # Errors
    /// [`Error::LimitReached`] of an account above, or because there are [`DEPTH_MAX`] of them; [`Error::NoMemory`].
    pub fn open(&mut self, parent: AccountId, limits: Amounts) -> Result<AccountId, Error> {
        let (depth, bounded) = (self.record(parent).depth + 1, self.record(parent).bounded);
        if depth > DEPTH_MAX {
            return Err(Error::LimitReached);
        }
        self.take(parent, Resource::Bytes, RECORD_BYTES)?;
        let record = Record {
            number: 0,
            parent,
            depth,
            holders: 1,
            open: true,
            bounded,
            hands: [0; RESOURCES],
            limits,
            used: [0; RESOURCES],
            part: Part::default(),
            turns: [0; 2],
            cached: Cached::default(),
        };
        let Some((place, mut record)) = self.vacant_place(record) else {
            self.give(parent, Resource::Bytes, RECORD_BYTES);
            return Err(Error::NoMemory);
        };
        self.record_mut(parent).holders += 1;
        record.number = self.next_version << PLACE_BITS | u64::from(place);
        self.next_version += 1;
        self.records.put(place, record);
        // All hands at once: that is cheaper than one by one. Near a limit there is nothing in hand.
        let account = AccountId(place);
        let mut hands = HANDS;
        // Most tasks make no semaphore, and what idle ones have in hand is kept from others.
        hands[Resource::Semaphores as usize] = 0;
        if self.add_all(account, &hands).is_ok() {
            self.record_mut(account).hands = hands;
        }
        Ok(account)
    }

    /// A place for a record.
    fn vacant_place(&mut self, record: Record) -> Option<(u32, Boxed<Record>)> {
        let place = self.records.vacant().ok()?;
        (place >> PLACE_BITS == 0).then_some((place, boxed(record).ok()?))
    }

    /// The task that held an account has ended. The record goes when nothing is charged to it any more.
    pub fn close(&mut self, account: AccountId) {
        self.drop_hands(account);
        let record = self.record_mut(account);
        record.open = false;
        record.holders = record.holders.saturating_sub(1);
        self.settle(account);
    }

    /// Frees records that serve nobody, from this one upwards.
    fn settle(&mut self, account: AccountId) {
        let mut account = account;
        while account != AccountId::ROOT {
            let record = self.record(account);
            if record.holders > 0 || record.used.iter().any(|&used| used > 0) || record.cached != Cached::default() {
                return;
            }
            let parent = record.parent;
            self.records.take(account.0);
            self.subtract(parent, None, Resource::Bytes, RECORD_BYTES);
            self.record_mut(parent).holders -= 1;
            account = parent;
        }
    }

    /// The turn of something more that a program has to have done: it has one callee and one other thing in each, from the turn `now` on.
    pub(crate) fn next_turn(&mut self, program: AccountId, is_callee: bool, now: u64) -> u64 {
        let turn = &mut self.record_mut(program).turns[usize::from(is_callee)];
        *turn = now.max(*turn + 1);
        *turn
    }

    /// A program's part of the cache.
    pub(crate) fn cached(&self, program: AccountId) -> Cached {
        self.record(program).cached
    }

    /// A program, or nobody where it is the root, has so much less in the cache, and so much more.
    pub(crate) fn change_cached(&mut self, program: AccountId, less: Cached, more: Cached) {
        let record = self.record_mut(program);
        record.cached = record.cached.changed(less, more);
        if record.holders == 0 {
            self.settle(program);
        }
    }

    /// Whether the task of an account lives, or one above it: not for an account above that of a program. Then the limits of one that lives bound what it pays for.
    pub(crate) fn is_of_one_that_lives(&self, account: AccountId, programs: AccountId) -> bool {
        let mut at = account;
        while at != programs && at != AccountId::ROOT {
            if self.record(at).open {
                return true;
            }
            at = self.parent(at);
        }
        false
    }

    /// The memory of an account, and of those opened below it from now on, is bounded by who has made its task.
    pub fn bound_memory(&mut self, account: AccountId) {
        self.record_mut(account).bounded = true;
    }

    /// Whether it is. Then the disk takes no transient objects over that it pays for ([`crate::pages::backing`]).
    pub(crate) fn is_memory_bounded(&self, account: AccountId) -> bool {
        self.record(account).bounded
    }

    /// The number by which rows of the object table name an account.
    pub fn number(&self, account: AccountId) -> u64 {
        self.record(account).number
    }

    /// Whether a number, of this start or an earlier one, is that of a program: the first accounts of each start are those of the system and of
    /// the first task.
    pub(crate) const fn is_of_programs(number: u64) -> bool {
        is_account_of_program(number)
    }

    /// The account with that number; the root if there is none.
    pub fn find(&self, number: u64) -> AccountId {
        self.find_known(number).unwrap_or(AccountId::ROOT)
    }

    /// The account with that number, if there is one. Whatever names an account that it neither holds nor charges keeps its number, for the place is used again.
    pub(crate) fn find_known(&self, number: u64) -> Option<AccountId> {
        let place = (number & ((1 << PLACE_BITS) - 1)) as u32;
        let record = self.records.get(place)?;
        (record.number == number).then_some(AccountId(place))
    }

    /// Charges an account and all above it.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    #[inline(always)]
    pub fn take(&mut self, account: AccountId, resource: Resource, amount: u64) -> Result<(), Error> {
        let hand = &mut self.record_mut(account).hands[resource as usize];
        if *hand >= amount {
            *hand -= amount;
            return Ok(());
        }
        self.take_above(account, resource, amount)
    }

    /// Charges what the hand does not have, and a handful more unless a limit is near.
    #[cold]
    #[inline(never)]
    fn take_above(&mut self, account: AccountId, resource: Resource, amount: u64) -> Result<(), Error> {
        let record = self.record(account);
        let handful = if record.open { HANDS[resource as usize] } else { 0 };
        let short = amount - record.hands[resource as usize];
        let taken = if handful > 0 && self.add(account, resource, short.saturating_add(handful)).is_ok() {
            handful
        } else {
            if self.add(account, resource, short).is_err() {
                self.empty_hands_above(account, resource);
                self.add(account, resource, short)?;
            }
            0
        };
        self.record_mut(account).hands[resource as usize] = taken;
        Ok(())
    }

    /// Charges an account and all above it, whatever their limits. For what was there before under another name; nothing more is
    /// got until the sum is below the limits again.
    pub fn force(&mut self, account: AccountId, resource: Resource, amount: u64) {
        let mut at = account;
        loop {
            let record = self.record_mut(at);
            record.used[resource as usize] = record.used[resource as usize].saturating_add(amount);
            if at == AccountId::ROOT {
                return;
            }
            at = record.parent;
        }
    }

    /// Gives back what was charged to an account.
    #[inline]
    pub fn give(&mut self, account: AccountId, resource: Resource, amount: u64) {
        let record = self.record_mut(account);
        let hand = record.hands[resource as usize].saturating_add(amount);
        if record.open && hand <= 2 * HANDS[resource as usize] {
            record.hands[resource as usize] = hand;
        } else {
            self.give_above(account, resource, amount);
        }
    }

    #[inline(never)]
    fn give_above(&mut self, account: AccountId, resource: Resource, amount: u64) {
        self.subtract(account, None, resource, amount);
        if self.record(account).holders == 0 {
            self.settle(account);
        }
    }

    /// Adds to what an account and all above it have used: to all or none.
    fn add(&mut self, account: AccountId, resource: Resource, amount: u64) -> Result<(), Error> {
        let mut at = account;
        loop {
            let record = self.record_mut(at);
            let used = &mut record.used[resource as usize];
            let sum = used.saturating_add(amount);
            if sum > record.limits[resource as usize] {
                self.subtract(account, Some(at), resource, amount);
                return Err(Error::LimitReached);
            }
            *used = sum;
            if at == AccountId::ROOT {
                return Ok(());
            }
            at = record.parent;
        }
    }

    /// The same of an amount of each resource.
    fn add_all(&mut self, account: AccountId, amounts: &Amounts) -> Result<(), ()> {
        let mut at = account;
        loop {
            let record = self.record_mut(at);
            let sums: Amounts = core::array::from_fn(|place| record.used[place].saturating_add(amounts[place]));
            if sums.iter().zip(&record.limits).any(|(sum, limit)| sum > limit) {
                self.subtract_all(account, Some(at), amounts);
                return Err(());
            }
            record.used = sums;
            if at == AccountId::ROOT {
                return Ok(());
            }
            at = record.parent;
        }
    }

    /// Gives amounts back from `account` up to the root, or up to, and without, `end`.
    fn subtract_all(&mut self, account: AccountId, end: Option<AccountId>, amounts: &Amounts) {
        let mut at = account;
        while Some(at) != end {
            let record = self.record_mut(at);
            for (used, &amount) in record.used.iter_mut().zip(amounts) {
                take_off(used, amount);
            }
            if at == AccountId::ROOT {
                return;
            }
            at = record.parent;
        }
    }

    /// The same of one resource.
    fn subtract(&mut self, account: AccountId, end: Option<AccountId>, resource: Resource, amount: u64) {
        let mut at = account;
        while Some(at) != end {
            let record = self.record_mut(at);
            take_off(&mut record.used[resource as usize], amount);
            if at == AccountId::ROOT {
                return;
            }
            at = record.parent;
        }
    }

    /// Charges an amount of each resource.
    pub(crate) fn take_all(&mut self, account: AccountId, amounts: &Amounts) -> Result<(), Error> {
        for (place, (resource, &amount)) in RESOURCE_LIST.iter().zip(amounts).enumerate() {
            if let Err(error) = self.take(account, *resource, amount) {
                for (resource, &amount) in RESOURCE_LIST[..place].iter().zip(amounts) {
                    self.give(account, *resource, amount);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives an amount of each resource back.
    pub fn give_all(&mut self, account: AccountId, amounts: &Amounts) {
        for (resource, &amount) in RESOURCE_LIST.iter().zip(amounts) {
            if amount > 0 {
                self.give(account, *resource, amount);
            }
        }
    }

    /// Gives what the accounts above one have in hand back to those above them.
    fn empty_hands_above(&mut self, account: AccountId, resource: Resource) {
        let mut at = account;
        while at != AccountId::ROOT {
            at = self.record(at).parent;
            let hand = core::mem::take(&mut self.record_mut(at).hands[resource as usize]);
            self.subtract(at, None, resource, hand);
        }
    }

    /// Gives all that an account has in hand back to those above it.
    fn drop_hands(&mut self, account: AccountId) {
        let hands = core::mem::take(&mut self.record_mut(account).hands);
        self.subtract_all(account, None, &hands);
    }

    /// Gives back what all accounts have in hand: all that is charged then is used.
    pub fn empty_all_hands(&mut self) {
        for place in 0..self.records.end() {
            if self.records.get(place).is_some() {
                self.drop_hands(AccountId(place));
            }
        }
    }

    /// The amount of a resource that is still free for one who pays by this account.
    pub fn left(&self, account: AccountId, resource: Resource) -> u64 {
        let mut at = account;
        let mut left = u64::MAX;
        loop {
            let record = self.record(at);
            let here = record.limits[resource as usize].saturating_sub(record.used[resource as usize]);
            left = left.min(here.saturating_add(record.hands[resource as usize]));
            if at == AccountId::ROOT {
                return left;
            }
            at = record.parent;
        }
    }

    /// The amount charged to an account, without what it only has in hand.
    pub fn used(&self, account: AccountId, resource: Resource) -> u64 {
        let record = self.record(account);
        record.used[resource as usize] - record.hands[resource as usize]
    }

    /// The bound of an account itself.
    pub fn limit(&self, account: AccountId, resource: Resource) -> u64 {
        self.record(account).limits[resource as usize]
    }

    /// The bounds of an account itself.
    pub fn limits(&self, account: AccountId) -> Amounts {
        self.record(account).limits
    }

    /// Sets the bounds of an account. Charges beyond them stay.
    pub fn set_limits(&mut self, account: AccountId, limits: Amounts) {
        self.record_mut(account).limits = limits;
    }

    /// An account, and a resource, of which the ledger says something else than what `own` says is charged to each account itself.
    pub fn disagreement(&self, own: impl Fn(AccountId) -> Amounts) -> Option<(AccountId, Resource)> {
        for (place, record) in self.records.iter() {
            let account = AccountId(place);
            let mut sums = own(account);
            for (sum, hand) in sums.iter_mut().zip(record.hands) {
                *sum += hand;
            }
            for (_, child) in self
                .records
                .iter()
                .filter(|(place, child)| *place > 0 && child.parent == account)
            {
                sums[Resource::Bytes as usize] += RECORD_BYTES;
                for (sum, used) in sums.iter_mut().zip(child.used) {
                    *sum += used;
                }
            }
            for (&resource, (sum, used)) in RESOURCE_LIST.iter().zip(sums.iter().zip(record.used)) {
                if *sum != used {
                    return Some((account, resource));
                }
            }
        }
        None
    }

    /// The account above one; the root's is itself.
    pub fn parent(&self, account: AccountId) -> AccountId {
        self.record(account).parent
    }

    /// Gives some memory of vacant places back.
    pub(crate) fn give_back(&mut self) {
        self.records.give_back();
    }

    /// The account below `above` that one pays by or stands under; itself where it stands elsewhere.
    pub fn family(&self, account: AccountId, above: AccountId) -> AccountId {
        let mut at = account;
        while at != AccountId::ROOT {
            let parent = self.parent(at);
            if parent == above {
                return at;
            }
            at = parent;
        }
        account
    }

    /// Whether an account is another one or below it.
    pub fn is_within(&self, account: AccountId, above: AccountId) -> bool {
        let mut at = account;
        while at != above {
            if at == AccountId::ROOT {
                return false;
            }
            at = self.parent(at);
        }
        true
    }

    /// The highest account, of this one and those above it, that is short of one of the resources in [`SHORT`], if there is one: those below it
    /// got little because of it.
    pub fn who_is_short(&self, account: AccountId) -> Option<AccountId> {
        let (mut at, mut short) = (account, None);
        loop {
            let record = self.record(at);
            let is_short = SHORT.iter().any(|&(resource, least)| {
                let resource = resource as usize;
                record.limits[resource].saturating_sub(record.used[resource]) < least
            });
            short = if is_short { Some(at) } else { short };
            if at == AccountId::ROOT {
                return short;
            }
            at = record.parent;
        }
    }

    /// How many accounts there are.
    pub fn count(&self) -> usize {
        self.records.count()
    }

    #[inline]
    fn record(&self, account: AccountId) -> &Record {
        &self.records[account.0]
    }

    #[inline]
    fn record_mut(&mut self, account: AccountId) -> &mut Record {
        &mut self.records[account.0]
    }
}

fn take_off(used: &mut u64, amount: u64) {
    debug_assert!(*used >= amount, "{amount} go back, and {used} were charged");
    *used = used.saturating_sub(amount);
}

#[cfg(test)]
mod tests;
