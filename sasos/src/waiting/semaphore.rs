//! Semaphores, named by address, and waiting on a word of memory.
//!
//! A semaphore is not in memory: the address only names it and says, by the rights on the object
//! there, who may use it. A signal is handed to the oldest waiter whose right is known to hold still, and whose call is over then (decision 0146).
//! Waiters before it are woken to look for their right, and to wait again or to fail. Where no right is known, the signal raises the count, and
//! they take one if they may; a caller that comes in between may be faster. So that no signal is lost, a waiter that
//! was woken and then cannot take (it ends, is suspended, has lost its right) wakes the next one.
//!
//! A semaphore is charged to the task that makes it and ends with it, or when it is deleted or the address goes.
//!
//! A serial number tells a waiter that its semaphore was deleted, even if another one stands at
//! the same address by then.

use core::ops::Range;

use abi::{
    Error, Rights,
    call::arguments::{AddressWait, AddressWake, SemCreate, SemDelete, SemSignal, SemWait},
    layout::FOREVER,
};
use kcore::{
    SpaceId, ThreadId,
    thread::{Resumed, THREADS_MAX},
    wait::{AT_ONCE, Key},
};

use crate::{
    Answer, Outcome, Server, Step, Stop, World,
    accounts::{AccountId, Resource},
    containers::Map,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::task::TaskId,
    lives::thread::Caller,
};

/// Semaphores that may exist; see [`crate::accounts::limits::PROGRAM_SEMAPHORES`] for those of one program.
pub const SEMAPHORES_MAX: usize = 16384;
/// Bytes that one costs: its places in the two maps, which may be half full, and their part of the lists of chunks.
pub(crate) const SEMAPHORE_BYTES: u64 =
    2 * (core::mem::size_of::<(u64, Semaphore)>() + core::mem::size_of::<((u64, u64), ())>()) as u64 + 24;
/// The highest count.
pub const COUNT_MAX: u64 = i64::MAX as u64;

/// Instructions that deleting one costs, roughly.
const COST_SEMAPHORE: Cost = Cost::own(1_700);
/// Of so many waiters of a word, those whose right is known are woken one by one. A call that is to wake more wakes all, or that many of them, whoever
/// they are.
const WOKEN_AT_ONCE: u32 = 32;
/// A call that looks for waiters whose right is known looks at so many at most: as many as there may be threads, so that it comes to all who waited when
/// it began. Behind them it wakes whoever has waited longest.
const LOOKED_MAX: u16 = THREADS_MAX as u16;
const _: () = assert!(THREADS_MAX == LOOKED_MAX as usize);
/// Instructions that waking a thread costs.
const COST_WAKE: u64 = 250;
/// Instructions that it costs to look at one waiter and wake it.
const COST_LOOKED: Cost = Cost::calling(700, 1);

/// A semaphore.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Semaphore {
    count: u64,
    serial: u64,
    /// The task that made it, with which it ends, and the account of that.
    maker: TaskId,
    payer: AccountId,
}

/// All semaphores, and how many threads wait on plain words.
#[derive(Default)]
pub struct Semaphores {
    table: Map<u64, Semaphore>,
    /// Task and address.
    by_maker: Map<(u64, u64), ()>,
    serial: u64,
    /// Threads that may be parked on an address.
    address_waiters: u32,
}

impl Semaphores {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.table.count()
    }

    /// Semaphores of each account.
    pub(crate) fn payers(&self) -> impl Iterator<Item = AccountId> + '_ {
        self.table.iter().map(|(_, semaphore)| semaphore.payer)
    }

    fn create(&mut self, address: u64, value: u64, maker: TaskId, payer: AccountId) -> Result<(), Error> {
        if value > COUNT_MAX {
            return Err(Error::BadArgument);
        }
        if self.table.has(address) {
            return Err(Error::InUse);
        }
        if self.table.count() >= SEMAPHORES_MAX {
            return Err(Error::TableFull);
        }
        let semaphore = Semaphore {
            count: value,
            serial: self.serial + 1,
            maker,
            payer,
        };
        self.by_maker.insert((maker.0, address), ())?;
        if let Err(error) = self.table.insert(address, semaphore) {
            self.by_maker.remove((maker.0, address));
            return Err(error);
        }
        self.serial += 1;
        Ok(())
    }

    fn remove(&mut self, address: u64) -> Option<Semaphore> {
        let semaphore = self.table.remove(address)?;
        self.by_maker.remove((semaphore.maker.0, address));
        Some(semaphore)
    }

    /// Takes one; otherwise tells the serial number of what to wait for.
    fn take(&mut self, address: u64) -> Result<Result<(), u64>, Error> {
        let semaphore = self.table.get_mut(address).ok_or(Error::NoSuchSemaphore)?;
        if semaphore.count == 0 {
            return Ok(Err(semaphore.serial));
        }
        semaphore.count -= 1;
        Ok(Ok(()))
    }

    fn give(&mut self, address: u64) -> Result<(), Error> {
        let semaphore = self.table.get_mut(address).ok_or(Error::NoSuchSemaphore)?;
        if semaphore.count >= COUNT_MAX {
            return Err(Error::BadArgument);
        }
        semaphore.count += 1;
        Ok(())
    }

    fn is(&self, address: u64, serial: u64) -> bool {
        self.table
            .get(address)
            .is_some_and(|semaphore| semaphore.serial == serial)
    }

    fn has_some(&self, address: u64) -> bool {
        self.table.get(address).is_some_and(|semaphore| semaphore.count > 0)
    }
}

impl Server {
    /// `SemCreate`: address, value.
    pub(crate) fn sem_create(&mut self, world: &mut impl World, caller: Caller, arguments: SemCreate) -> Answer {
        let SemCreate { address, value } = arguments;
        self.validate(world, caller.domain, address, Rights::RW)?;
        self.enough_heap(world)?;
        let payer = self.payer(caller);
        self.ledger.take(payer, Resource::Semaphores, 1)?;
        let paid = self.ledger.take(payer, Resource::Bytes, SEMAPHORE_BYTES);
        let made = paid.and_then(|()| {
            self.semaphores
                .create(address, value, caller.task, payer)
                .inspect_err(|_| self.ledger.give(payer, Resource::Bytes, SEMAPHORE_BYTES))
        });
        made.inspect_err(|_| self.ledger.give(payer, Resource::Semaphores, 1))?;
        Ok((0, 0))
    }

    /// `SemDelete`: address. Waiters get `Deleted`.
    pub(crate) fn sem_delete(&mut self, world: &mut impl World, caller: Caller, arguments: SemDelete) -> Answer {
        let address = arguments.address;
        self.validate(world, caller.domain, address, Rights::OWNER)?;
        if !self.semaphore_gone(world, address) {
            return Err(Error::NoSuchSemaphore.into());
        }
        Ok((0, 0))
    }

    /// `SemWait`: address, timeout.
    pub fn sem_wait(&mut self, world: &mut impl World, caller: Caller, arguments: SemWait) -> Outcome {
        let SemWait { address, timeout_ns } = arguments;
        if caller.resumed != Resumed::First
            && let Continuation::Semaphore(waited, serial) = self.threads.record(caller.thread).continuation
            && !self.semaphores.is(waited, serial)
        {
            return Outcome::Return(Err(Error::Deleted));
        }
        if let Err(stop) = self.validate(world, caller.domain, address, Rights::R) {
            // A call that searches in pieces has its deadline from the first one on.
            self.call_deadline(world, caller, timeout_ns);
            if let Stop::Fail(_) = stop {
                self.waiting_ends(world, caller.thread);
            }
            return Outcome::from(Err(stop));
        }
        let serial = match self.semaphores.take(address) {
            Ok(Ok(())) => {
                self.threads.record(caller.thread).continuation = Continuation::None;
                return Outcome::Return(Ok((0, 0)));
            }
            Ok(Err(serial)) => serial,
            Err(error) => return Outcome::Return(Err(error)),
        };
        if timeout_ns == 0 || caller.resumed == Resumed::TimedOut {
            return Outcome::Return(Err(Error::TimedOut));
        }
        let deadline = self.call_deadline(world, caller, timeout_ns);
        self.threads.record(caller.thread).continuation = Continuation::Semaphore(address, serial);
        Outcome::Block(Key::Semaphore(address), deadline)
    }

    /// `SemSignal`: address.
    pub(crate) fn sem_signal(&mut self, world: &mut impl World, caller: Caller, arguments: SemSignal) -> Answer {
        let address = arguments.address;
        self.validate(world, caller.domain, address, Rights::R)?;
        while let Some((waiter, domain)) = world.oldest(Key::Semaphore(address)) {
            if self.may_take(caller, waiter, domain, address) {
                self.threads.record(waiter).continuation = Continuation::None;
                world.thread_answer(waiter, 0, 0);
                return Ok((0, 0));
            }
            // It looks for its right itself. It must not stand before those whose right is known, for it may be a stranger by now, and may have no
            // processor.
            world.wake(Key::Semaphore(address), 1);
            if self.wakes_end(caller, 0)? {
                break;
            }
        }
        self.semaphores.give(address)?;
        Ok((0, 0))
    }

    /// Whether a thread waits for the semaphore at an address and is known to have a right to it still. Otherwise it is for the thread to search.
    /// The caller's own right was validated.
    #[inline]
    fn may_take(&mut self, caller: Caller, waiter: ThreadId, domain: SpaceId, address: u64) -> bool {
        match self.threads.record(waiter).continuation {
            Continuation::Semaphore(at, serial) if at == address => {
                // All who waited for one that was deleted before have been woken.
                debug_assert!(
                    self.semaphores.is(address, serial),
                    "a thread waits for a semaphore that is gone"
                );
                domain == caller.domain || self.knows(domain, address, Rights::R)
            }
            _ => false,
        }
    }

    /// `AddressWait`: address, expected, timeout.
    pub fn address_wait(&mut self, world: &mut impl World, caller: Caller, arguments: AddressWait) -> Outcome {
        let AddressWait {
            address,
            expected,
            timeout_ns,
        } = arguments;
        let deadline = self.call_deadline(world, caller, timeout_ns);
        let record = self.threads.record(caller.thread);
        if matches!(record.continuation, Continuation::Address(_)) {
            // Woken, or timed out: the word is the caller's business again, if that has the right to it still.
            let answer = if caller.resumed == Resumed::TimedOut {
                Err(Error::TimedOut)
            } else {
                match self.validate(world, caller.domain, address, Rights::R) {
                    Err(Stop::Fail(Error::Protection)) => Err(Error::Protection),
                    Ok(_) | Err(Stop::Fail(_)) => Ok((0, 0)),
                    Err(stop) => return Outcome::from(Err(stop)),
                }
            };
            self.waiting_ends(world, caller.thread);
            return Outcome::Return(answer);
        }
        self.waiting_ends(world, caller.thread);
        if !address.is_multiple_of(4) {
            return Outcome::Return(Err(Error::BadArgument));
        }
        let mut word = [0; 4];
        if let Err(stop) = self.read_user(world, caller.domain, address, &mut word) {
            return Outcome::from(Err(stop));
        }
        if u64::from(u32::from_le_bytes(word)) != expected & u64::from(u32::MAX) {
            return Outcome::Return(Err(Error::Changed));
        }
        if timeout_ns == 0 {
            return Outcome::Return(Err(Error::TimedOut));
        }
        self.threads.record(caller.thread).continuation = Continuation::Address(address);
        self.semaphores.address_waiters += 1;
        Outcome::Block(Key::Address(address), deadline)
    }

    /// `AddressWake`: address, count.
    pub(crate) fn address_wake(&mut self, world: &mut impl World, caller: Caller, arguments: AddressWake) -> Answer {
        let AddressWake { address, count } = arguments;
        if !address.is_multiple_of(4) {
            return Err(Error::BadArgument.into());
        }
        self.validate(world, caller.domain, address, Rights::R)?;
        let (key, count) = (Key::Address(address), u32::try_from(count).unwrap_or(u32::MAX));
        if count > WOKEN_AT_ONCE {
            return Ok((u64::from(world.wake(key, count)), 0));
        }
        let mut woken = match self.threads.record(caller.thread).continuation {
            Continuation::Wakes(woken, _) => woken,
            _ => 0,
        };
        while woken < count
            && let Some((waiter, domain)) = world.oldest(key)
        {
            if matches!(self.threads.record(waiter).continuation, Continuation::Address(at) if at == address)
                && (domain == caller.domain || self.knows(domain, address, Rights::R))
            {
                self.waiting_ends(world, waiter);
                world.thread_answer(waiter, 0, 0);
                woken += 1;
                if woken == count {
                    break;
                }
            } else {
                world.wake(key, 1);
            }
            if self.wakes_end(caller, woken)? {
                woken += world.wake(key, count - woken);
                break;
            }
        }
        Ok((woken.into(), 0))
    }

    /// Pays for waking one thread. Tells whether the call has looked at so many that it wakes the others whoever they are: waiters that forget their
    /// right again and again would keep it for ever.
    ///
    /// # Errors
    /// [`Stop::Again`]: the budget is used up, and the next event goes on.
    fn wakes_end(&mut self, caller: Caller, woken: u32) -> Step<bool> {
        let continuation = &mut self.threads.record(caller.thread).continuation;
        let looked = match *continuation {
            Continuation::Wakes(_, looked) => looked + 1,
            _ => 1,
        };
        *continuation = Continuation::Wakes(woken, looked);
        if looked >= LOOKED_MAX {
            return Ok(true);
        }
        if self.budget.spend(COST_LOOKED) {
            Ok(false)
        } else {
            Err(Stop::Again)
        }
    }

    /// Deletes a semaphore, if there is one, and wakes who waits for it.
    fn semaphore_gone(&mut self, world: &mut impl World, address: u64) -> bool {
        let Some(semaphore) = self.semaphores.remove(address) else {
            return false;
        };
        self.ledger.give(semaphore.payer, Resource::Semaphores, 1);
        self.ledger.give(semaphore.payer, Resource::Bytes, SEMAPHORE_BYTES);
        let woken = world.wake(Key::Semaphore(address), u32::MAX);
        self.budget.spend(COST_SEMAPHORE.and(cost_of_waking(woken)));
        true
    }

    /// A task ends: so do the semaphores that it has made, as far as the budget reaches; tells whether those were all.
    pub(crate) fn semaphores_of_task_go(&mut self, world: &mut impl World, task: TaskId) -> bool {
        while let Some(((_, address), ())) = self.semaphores.by_maker.last_in((task.0, 0)..(task.0 + 1, 0)) {
            if !self.budget.is_left() {
                return false;
            }
            self.semaphore_gone(world, address);
        }
        true
    }

    /// Addresses vanish: deletes the semaphores there and wakes who waits on a word there, as far as the budget reaches; tells whether those
    /// were all.
    pub(crate) fn semaphores_go(&mut self, world: &mut impl World, range: Range<u64>) -> bool {
        while let Some((address, _)) = self.semaphores.table.last_in(range.clone()) {
            if !self.budget.is_left() {
                return false;
            }
            self.semaphore_gone(world, address);
        }
        while self.semaphores.address_waiters > 0 {
            if !self.budget.is_left() {
                return false;
            }
            match world.wake_words(range.clone()) {
                0 => break,
                woken => self.budget.spend(cost_of_waking(woken)),
            };
        }
        true
    }

    /// The call of a thread is over, or given up: the thread waits for nothing any more.
    #[inline]
    pub fn waiting_ends(&mut self, world: &mut impl World, thread: ThreadId) {
        let record = self.threads.record(thread);
        record.shown = None;
        let begun = core::mem::take(&mut record.continuation);
        match begun {
            Continuation::Semaphore(address, _) => self.signal_passes_on(world, address),
            Continuation::Address(_) => {
                self.semaphores.address_waiters = self.semaphores.address_waiters.saturating_sub(1);
            }
            _ => {}
        }
    }

    /// A thread that waits does not go on for now: if it was woken, another one takes its turn.
    pub fn waiting_passes_on(&mut self, world: &mut impl World, thread: ThreadId) {
        if let Continuation::Semaphore(address, _) = self.threads.record(thread).continuation {
            self.signal_passes_on(world, address);
        }
    }

    fn signal_passes_on(&mut self, world: &mut impl World, address: u64) {
        if self.semaphores.has_some(address) {
            world.wake(Key::Semaphore(address), 1);
        }
    }
}

/// Instructions that a wake of so many threads of one key costs this event. Others wake most of many.
fn cost_of_waking(threads: u32) -> Cost {
    Cost::calling(COST_WAKE * u64::from(threads.min(AT_ONCE)), 1)
}

const _: () = assert!(FOREVER > COUNT_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_up_and_down_within_bounds() {
        let mut semaphores = Semaphores::default();
        assert_eq!(semaphores.take(8), Err(Error::NoSuchSemaphore));
        assert_eq!(
            semaphores.create(8, COUNT_MAX + 1, TaskId::NONE, AccountId::ROOT),
            Err(Error::BadArgument)
        );
        semaphores.create(8, 1, TaskId::NONE, AccountId::ROOT).unwrap();
        assert_eq!(
            semaphores.create(8, 1, TaskId::NONE, AccountId::ROOT),
            Err(Error::InUse)
        );
        assert_eq!(semaphores.take(8), Ok(Ok(())));
        let Ok(Err(serial)) = semaphores.take(8) else {
            panic!("it is empty")
        };
        assert!(semaphores.is(8, serial));
        semaphores.give(8).unwrap();
        assert!(semaphores.has_some(8));
        semaphores.remove(8);
        semaphores.create(8, COUNT_MAX, TaskId::NONE, AccountId::ROOT).unwrap();
        assert!(!semaphores.is(8, serial), "another one at the same address");
        assert_eq!(semaphores.give(8), Err(Error::BadArgument));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut semaphores = Semaphores::default();
        let mut create = |number: usize| semaphores.create(number as u64 * 8, 0, TaskId(7), AccountId::ROOT);
        for number in 0..SEMAPHORES_MAX {
            create(number).unwrap();
        }
        assert_eq!(create(SEMAPHORES_MAX), Err(Error::TableFull));
        assert_eq!(
            (semaphores.count(), semaphores.by_maker.count()),
            (SEMAPHORES_MAX, SEMAPHORES_MAX)
        );
        semaphores.remove(0);
        semaphores.create(0, 0, TaskId(7), AccountId::ROOT).unwrap();
        assert_eq!(
            semaphores.payers().filter(|payer| *payer == AccountId::ROOT).count(),
            SEMAPHORES_MAX
        );
    }
}
