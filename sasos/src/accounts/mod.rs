//! Who pays: the ledger of accounts.
//!
//! An account is a numbered record with a parent and limits. What is charged to an account is charged to every account above it,
//! so a family of tasks takes no more than the account at its head allows. A charge comes before the allocation that it is for,
//! and all of it happens or nothing. What was charged comes back by [`Ledger::refund`], to the same account, whoever has ended
//! meanwhile: a record lives until its task has ended, its children are gone and all that it paid for has come back.
//!
//! Rows of the object table name accounts by number. A number is never used twice between two starts of the system; one that the
//! ledger does not know (of an earlier start) means the root.
//!
//! [`Resource::Frames`] is charged on the path of a first touch. So a record keeps some frames *in hand* that are charged to it
//! and to all above it but used by nobody; taking one of them is a subtraction.

use alloc::vec::Vec;

use abi::Error;

/// What an account pays for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Resource {
    /// Frames for pages of transient objects: those that no disk can take.
    Frames,
    /// Frames for page tables: leaves of objects, upper tables of domains.
    Tables,
    /// Frames with changed pages of kept objects, until they are on the disk.
    Dirty,
    /// Blocks of the disk for pages of kept objects, promised or written.
    Blocks,
    /// Bytes of the server's heap.
    Bytes,
    /// Threads, those that ended and were not waited for among them.
    Threads,
    /// Semaphores.
    Semaphores,
    /// Slots of addresses.
    Slots,
}

/// How many kinds of resources there are.
pub const RESOURCES: usize = 8;

/// An amount of each resource, by its number.
pub type Amounts = [u64; RESOURCES];

/// No bound.
pub const UNLIMITED: Amounts = [u64::MAX; RESOURCES];

/// An account. Only the ledger makes one; it is valid as long as its record has a holder or something is charged to it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct AccountId(u32);

impl AccountId {
    /// The account at the head of all: the system's own. It has no limits but the machine's.
    pub const ROOT: Self = Self(0);
}

/// Accounts below each other. A child of one at the last depth has its parent's parent as its parent: a charge goes through all of them.
pub const DEPTH_MAX: u8 = 16;
/// Bytes that a record costs the account above it.
const RECORD_BYTES: u64 = core::mem::size_of::<Record>() as u64;
/// Frames that a record takes in hand at once, and those that it keeps at most.
const HAND: u32 = 16;
const HAND_MAX: u32 = 32;
/// Bits of a number that are the place in the table.
const PLACE_BITS: u32 = 24;

/// What was charged and not yet put down with what it was for. It is refunded or [spent](Charge::spent), never forgotten; where
/// assertions are on, forgetting it is a panic.
#[must_use = "a charge is refunded or spent"]
#[derive(Debug)]
pub struct Charge {
    account: AccountId,
    resource: Resource,
    amount: u64,
}

impl Charge {
    /// The allocation was made: who frees it says so to [`Ledger::refund_of`].
    #[inline]
    pub fn spent(self) {
        core::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for Charge {
    fn drop(&mut self) {
        assert!(self.amount == 0, "a charge was forgotten: {self:?}");
    }
}

#[derive(Debug)]
struct Record {
    /// Zero while nobody has the place.
    number: u64,
    parent: AccountId,
    depth: u8,
    /// Tasks that pay by it, and accounts below it.
    holders: u32,
    /// Frames in hand: part of `used`.
    hand: u32,
    limits: Amounts,
    used: Amounts,
}

/// All accounts.
#[derive(Debug)]
pub struct Ledger {
    records: Vec<Record>,
    free: Vec<u32>,
    /// Above the place in every number: no number of an earlier start, nor one given before, has it.
    next_version: u64,
}

impl Ledger {
    /// A ledger with the root account alone. `start` tells one start of the system from all others.
    pub fn new(start: u64) -> Self {
        let root = Record {
            number: 1 << PLACE_BITS,
            parent: AccountId::ROOT,
            depth: 0,
            holders: 1,
            hand: 0,
            limits: UNLIMITED,
            used: [0; RESOURCES],
        };
        let mut records = Vec::new();
        records.push(root);
        Self {
            records,
            free: Vec::new(),
            next_version: (start << 20).max(2),
        }
    }

    /// An account below another one, with a holder. The record is charged to the parent.
    ///
    /// # Errors
    /// [`Error::LimitReached`] of an account above, [`Error::NoMemory`].
    pub fn open(&mut self, parent: AccountId, limits: Amounts) -> Result<AccountId, Error> {
        let parent = if self.record(parent).depth < DEPTH_MAX {
            parent
        } else {
            self.record(parent).parent
        };
        let charge = self.charge(parent, Resource::Bytes, RECORD_BYTES)?;
        let Some(place) = self.vacant_place() else {
            self.refund(charge);
            return Err(Error::NoMemory);
        };
        charge.spent();
        let depth = self.record(parent).depth + 1;
        self.record_mut(parent).holders += 1;
        let number = self.next_version << PLACE_BITS | u64::from(place);
        self.next_version += 1;
        self.records[place as usize] = Record {
            number,
            parent,
            depth,
            holders: 1,
            hand: 0,
            limits,
            used: [0; RESOURCES],
        };
        Ok(AccountId(place))
    }

    /// A place in the table; room for it to go back is there, too.
    fn vacant_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = u32::try_from(self.records.len())
            .ok()
            .filter(|place| place >> PLACE_BITS == 0)?;
        self.records.try_reserve(1).ok()?;
        self.free.try_reserve(self.records.len() + 1).ok()?;
        self.records.push(Record {
            number: 0,
            parent: AccountId::ROOT,
            depth: 0,
            holders: 0,
            hand: 0,
            limits: UNLIMITED,
            used: [0; RESOURCES],
        });
        Some(place)
    }

    /// The task that held an account has ended. The record goes when nothing is charged to it any more.
    pub fn close(&mut self, account: AccountId) {
        self.drop_hand(account);
        let record = self.record_mut(account);
        record.holders = record.holders.saturating_sub(1);
        self.settle(account);
    }

    /// Frees records that serve nobody, from this one upwards.
    fn settle(&mut self, account: AccountId) {
        let mut account = account;
        while account != AccountId::ROOT {
            let record = self.record(account);
            if record.holders > 0 || record.number == 0 || record.used.iter().any(|&used| used > 0) {
                return;
            }
            let parent = record.parent;
            self.record_mut(account).number = 0;
            self.free.push(account.0);
            self.refund_of(parent, Resource::Bytes, RECORD_BYTES);
            self.record_mut(parent).holders -= 1;
            account = parent;
        }
    }

    /// The number by which rows of the object table name an account.
    pub fn number(&self, account: AccountId) -> u64 {
        self.record(account).number
    }

    /// The account with that number; the root if there is none.
    pub fn find(&self, number: u64) -> AccountId {
        let place = (number & ((1 << PLACE_BITS) - 1)) as u32;
        match self.records.get(place as usize) {
            Some(record) if record.number == number && number != 0 => AccountId(place),
            _ => AccountId::ROOT,
        }
    }

    /// Charges an account and all above it.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    #[inline]
    pub fn charge(&mut self, account: AccountId, resource: Resource, amount: u64) -> Result<Charge, Error> {
        let mut at = account;
        loop {
            let record = self.record_mut(at);
            let used = &mut record.used[resource as usize];
            let sum = used.saturating_add(amount);
            if sum > record.limits[resource as usize] {
                self.take_back(account, at, resource, amount);
                return Err(Error::LimitReached);
            }
            *used = sum;
            if at == AccountId::ROOT {
                return Ok(Charge {
                    account,
                    resource,
                    amount,
                });
            }
            at = record.parent;
        }
    }

    /// Undoes a charge from `account` up to, and without, `end`.
    #[cold]
    fn take_back(&mut self, account: AccountId, end: AccountId, resource: Resource, amount: u64) {
        let mut at = account;
        while at != end {
            let record = self.record_mut(at);
            record.used[resource as usize] -= amount;
            at = record.parent;
        }
    }

    /// Takes a charge back whose allocation was not made.
    pub fn refund(&mut self, charge: Charge) {
        let (account, resource, amount) = (charge.account, charge.resource, charge.amount);
        charge.spent();
        self.refund_of(account, resource, amount);
    }

    /// What was charged to an account was given back.
    #[inline]
    pub fn refund_of(&mut self, account: AccountId, resource: Resource, amount: u64) {
        let mut at = account;
        loop {
            let record = self.record_mut(at);
            let used = &mut record.used[resource as usize];
            debug_assert!(
                *used >= amount,
                "{amount} of {resource:?} go back, and {used} were charged"
            );
            *used = used.saturating_sub(amount);
            if at == AccountId::ROOT {
                break;
            }
            at = record.parent;
        }
        if self.record(account).holders == 0 {
            self.settle(account);
        }
    }

    /// Charges a frame from what the account has in hand. For the path of a first touch.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    #[inline(always)]
    pub fn charge_frame(&mut self, account: AccountId) -> Result<(), Error> {
        let record = self.record_mut(account);
        if record.hand > 0 {
            record.hand -= 1;
            return Ok(());
        }
        self.fill_hand(account)
    }

    /// Takes frames in hand, and charges one of them.
    #[cold]
    #[inline(never)]
    fn fill_hand(&mut self, account: AccountId) -> Result<(), Error> {
        if let Ok(charge) = self.charge(account, Resource::Frames, u64::from(HAND)) {
            charge.spent();
            self.record_mut(account).hand += HAND - 1;
            return Ok(());
        }
        // Near a limit, one by one.
        self.charge(account, Resource::Frames, 1).map(Charge::spent)
    }

    /// Frames that were charged to an account came back.
    #[inline]
    pub fn refund_frames(&mut self, account: AccountId, frames: u64) {
        let record = self.record_mut(account);
        let hand = u64::from(record.hand) + frames;
        if record.holders > 0 && hand <= u64::from(HAND_MAX) {
            record.hand = hand as u32;
        } else {
            self.refund_of(account, Resource::Frames, frames);
        }
    }

    /// Gives what an account has in hand back to those above it.
    pub fn drop_hand(&mut self, account: AccountId) {
        let hand = core::mem::take(&mut self.record_mut(account).hand);
        if hand > 0 {
            self.refund_of(account, Resource::Frames, u64::from(hand));
        }
    }

    /// What is charged to an account, without what it only has in hand.
    pub fn used(&self, account: AccountId, resource: Resource) -> u64 {
        let record = self.record(account);
        let hand = if resource == Resource::Frames { record.hand } else { 0 };
        record.used[resource as usize] - u64::from(hand)
    }

    /// The bound of an account itself.
    pub fn limit(&self, account: AccountId, resource: Resource) -> u64 {
        self.record(account).limits[resource as usize]
    }

    /// Sets the bound of an account. What is charged beyond it stays.
    pub fn set_limit(&mut self, account: AccountId, resource: Resource, limit: u64) {
        self.record_mut(account).limits[resource as usize] = limit;
    }

    /// The account above one; the root's is itself.
    pub fn parent(&self, account: AccountId) -> AccountId {
        self.record(account).parent
    }

    /// How many accounts there are.
    pub fn count(&self) -> usize {
        self.records.len() - self.free.len()
    }

    #[inline]
    fn record(&self, account: AccountId) -> &Record {
        &self.records[account.0 as usize]
    }

    #[inline]
    fn record_mut(&mut self, account: AccountId) -> &mut Record {
        &mut self.records[account.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limited(resource: Resource, limit: u64) -> Amounts {
        let mut limits = UNLIMITED;
        limits[resource as usize] = limit;
        limits
    }

    #[test]
    fn a_family_takes_no_more_than_its_head_allows() {
        let mut ledger = Ledger::new(1);
        let head = ledger.open(AccountId::ROOT, limited(Resource::Blocks, 10)).unwrap();
        let [one, other] = [(); 2].map(|()| ledger.open(head, UNLIMITED).unwrap());
        ledger.charge(one, Resource::Blocks, 6).unwrap().spent();
        assert_eq!(
            ledger.charge(other, Resource::Blocks, 5).unwrap_err(),
            Error::LimitReached
        );
        assert_eq!(ledger.used(other, Resource::Blocks), 0, "all or nothing");
        assert_eq!(ledger.used(head, Resource::Blocks), 6);
        ledger.charge(other, Resource::Blocks, 4).unwrap().spent();
        // The orphan's blocks are paid by its record, which stays until they come back.
        ledger.close(one);
        ledger.close(head);
        assert_eq!(ledger.count(), 4);
        ledger.refund_of(one, Resource::Blocks, 6);
        assert_eq!(ledger.count(), 3);
        ledger.refund_of(other, Resource::Blocks, 4);
        ledger.close(other);
        assert_eq!(ledger.count(), 1);
        assert_eq!(ledger.used(AccountId::ROOT, Resource::Bytes), 0);
    }

    #[test]
    fn numbers_name_one_account_for_ever() {
        let mut ledger = Ledger::new(3);
        let first = ledger.open(AccountId::ROOT, UNLIMITED).unwrap();
        let number = ledger.number(first);
        assert_eq!(ledger.find(number), first);
        ledger.close(first);
        let second = ledger.open(AccountId::ROOT, UNLIMITED).unwrap();
        assert_eq!(ledger.find(number), AccountId::ROOT);
        assert_ne!(ledger.number(second), number);
        assert_eq!(ledger.find(0), AccountId::ROOT);
        assert_eq!(ledger.find(u64::MAX), AccountId::ROOT);
    }

    #[test]
    fn families_of_any_depth_pay_in_bounded_time() {
        let mut ledger = Ledger::new(1);
        let mut account = AccountId::ROOT;
        for _ in 0..100 {
            account = ledger.open(account, UNLIMITED).unwrap();
        }
        ledger.charge(account, Resource::Threads, 1).unwrap().spent();
        let mut steps = 0;
        while account != AccountId::ROOT {
            assert_eq!(ledger.used(account, Resource::Threads), 1);
            account = ledger.parent(account);
            steps += 1;
        }
        assert_eq!(steps, u32::from(DEPTH_MAX));
    }

    #[test]
    fn a_hand_is_no_way_around_a_limit() {
        let mut ledger = Ledger::new(1);
        let head = ledger.open(AccountId::ROOT, limited(Resource::Frames, 20)).unwrap();
        let one = ledger.open(head, UNLIMITED).unwrap();
        for taken in 0..20 {
            assert_eq!(ledger.used(one, Resource::Frames), taken);
            ledger.charge_frame(one).unwrap();
        }
        assert_eq!(ledger.charge_frame(one), Err(Error::LimitReached));
        ledger.refund_frames(one, 20);
        ledger.close(one);
        assert_eq!(ledger.used(head, Resource::Frames), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(usize, u64),
        Close(usize),
        Charge(usize, u64),
        Refund(usize, u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<usize>(), 0_u64..40).prop_map(|(parent, limit)| Step::Open(parent, limit)),
            any::<usize>().prop_map(Step::Close),
            (any::<usize>(), 0_u64..20).prop_map(|(which, amount)| Step::Charge(which, amount)),
            (any::<usize>(), 0_u64..20).prop_map(|(which, amount)| Step::Refund(which, amount)),
        ]
    }

    proptest! {
        /// Held against a model that adds up what each account and those below it were charged for.
        #[test]
        fn what_is_charged_is_what_those_below_pay(steps in prop::collection::vec(any_step(), 0..120)) {
            let mut ledger = Ledger::new(1);
            // Account, place of the parent in this list, limit, own charges, open.
            let mut model: Vec<(AccountId, Option<usize>, u64, u64, bool)> = vec![(AccountId::ROOT, None, u64::MAX, 0, true)];
            fn sum(model: &[(AccountId, Option<usize>, u64, u64, bool)], of: usize) -> u64 {
                let below: u64 = (0..model.len()).filter(|&at| model[at].1 == Some(of)).map(|at| sum(model, at)).sum();
                model[of].3 + below
            }
            for step in steps {
                match step {
                    Step::Open(parent, limit) => {
                        let parent = parent % model.len();
                        if model[parent].4 && ledger.record(model[parent].0).depth < DEPTH_MAX {
                            let account = ledger.open(model[parent].0, limited(Resource::Slots, limit)).unwrap();
                            model.push((account, Some(parent), limit, 0, true));
                        }
                    }
                    Step::Close(which) => {
                        let which = which % model.len();
                        if which > 0 && model[which].4 {
                            model[which].4 = false;
                            ledger.close(model[which].0);
                        }
                    }
                    Step::Charge(which, amount) => {
                        let which = which % model.len();
                        if model[which].4 {
                            let mut fits = true;
                            let mut at = Some(which);
                            while let Some(place) = at {
                                fits &= sum(&model, place) + amount <= model[place].2;
                                at = model[place].1;
                            }
                            let charged = ledger.charge(model[which].0, Resource::Slots, amount);
                            prop_assert_eq!(charged.is_ok(), fits);
                            if let Ok(charge) = charged {
                                charge.spent();
                                model[which].3 += amount;
                            }
                        }
                    }
                    Step::Refund(which, amount) => {
                        let which = which % model.len();
                        let amount = amount.min(model[which].3);
                        if amount > 0 {
                            model[which].3 -= amount;
                            ledger.refund_of(model[which].0, Resource::Slots, amount);
                        }
                    }
                }
                for (place, &(account, _, _, _, open)) in model.iter().enumerate() {
                    let sum = sum(&model, place);
                    if open || sum > 0 {
                        prop_assert_eq!(ledger.used(account, Resource::Slots), sum);
                    }
                }
            }
        }
    }
}
