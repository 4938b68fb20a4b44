//! The limits of accounts: shares of what the machine has.
//!
//! The first task may take everything. All that it starts stands below one account, that of all *programs*, which leaves a reserve: the
//! first task can always go on. A program gets a part of what the others have left when it starts, so that a family of tasks at its
//! limits leaves room for the next one. Tasks further down may take what those above them may.

use abi::address::PAGE;
use kcore::{
    Machine,
    shares::WHOLE,
    space::spaces_most,
    thread::{PLACE_BYTES, THREADS_MAX},
};

use crate::{
    accounts::{AccountId, Amounts, Ledger, RESOURCE_LIST, RESOURCES, Resource, UNLIMITED},
    directory::creation::heap_reserve,
    lives::{chunks::FIRST_PLACES, thread::Thread},
    waiting::semaphore::SEMAPHORES_MAX,
};

/// Part of what is free that a program gets, in quarters.
const QUARTERS: u64 = 3;
/// Frames of the machine for each thread that may exist: the records of a thread, in kernel and server, and its vector registers take
/// less than one of them.
const FRAMES_A_THREAD: u64 = 4;
/// Threads that all programs leave to the first task.
const THREADS_RESERVED: u64 = 32;
/// Semaphores of one program with all that it starts.
pub const PROGRAM_SEMAPHORES: u64 = SEMAPHORES_MAX as u64 / 16;
/// Part of the heap that kept objects may take, those of earlier starts included.
const ROWS_PART: u64 = 2;
/// Part of the addresses of all programs that kept objects may hold, those of earlier starts included.
const KEPT_PART: u64 = 2;
/// Part of the free blocks of the disk that may be dirty pages of programs, and how many may be dirty however full it is.
const DIRTY_PART: u64 = 8;
const DIRTY_LEAST: u64 = 16;
/// Slots of one program: two terabytes of addresses, a part in sixty-four.
pub const PROGRAM_SLOTS: u64 = 1 << 20;

/// The amounts that the machine has. So many blocks of its disk are free, and so many bytes of the heap are charged for kept objects that rest, and in use.
pub fn of_machine(world: &impl Machine, blocks: u64, kept: u64) -> Amounts {
    let frames = world.frames_total();
    let mut amounts = [0; RESOURCES];
    // Those of the first places for threads are the kernel's, now or later; a machine so small that they were much has never so many threads.
    amounts[Resource::Frames as usize] = frames - frames_of_places(FIRST_PLACES).min(frames / 16);
    amounts[Resource::Tables as usize] = frames / 2;
    amounts[Resource::Dirty as usize] = frames / 4;
    amounts[Resource::Blocks as usize] = blocks;
    // The heap's reserve belongs to nobody: else the programs' share would end where all are refused, and none were left to the first task.
    let heap = world.heap().1.saturating_sub(heap_reserve(world));
    amounts[Resource::Bytes as usize] = heap + kept;
    amounts[Resource::Rows as usize] = amounts[Resource::Bytes as usize];
    amounts[Resource::Threads as usize] = (frames / FRAMES_A_THREAD).min(THREADS_MAX as u64);
    amounts[Resource::Semaphores as usize] = SEMAPHORES_MAX as u64;
    amounts[Resource::Processor as usize] = WHOLE;
    amounts[Resource::Slots as usize] = 16 * PROGRAM_SLOTS;
    amounts[Resource::Kept as usize] = u64::MAX;
    amounts[Resource::Spaces as usize] = spaces_most(frames) as u64;
    amounts
}

/// The most that all programs together may take of that, with so many bytes of kept objects of earlier starts, and so many of them their own. The
/// objects that they keep stay when they end, so these get no more than a part of the heap, whatever starts and ends and however often the system starts.
pub fn of_programs(machine: &Amounts, kept: u64, own: u64) -> Amounts {
    let mut amounts = machine.map(|amount| amount - amount / 8);
    let heap = machine[Resource::Bytes as usize];
    amounts[Resource::Bytes as usize] = (heap - kept) - heap_of_first(machine, kept) + own;
    amounts[Resource::Rows as usize] = (heap / ROWS_PART).saturating_sub(kept - own).max(own);
    amounts[Resource::Threads as usize] = machine[Resource::Threads as usize] - THREADS_RESERVED;
    // The other half is for those that run, in every start.
    amounts[Resource::Kept as usize] = amounts[Resource::Slots as usize] / KEPT_PART;
    amounts
}

/// The part of the heap that they leave to the first task.
pub(crate) fn heap_of_first(machine: &Amounts, kept: u64) -> u64 {
    (machine[Resource::Bytes as usize] - kept) / 8
}

/// The most that all programs may take of the disk from now on, of which so many blocks are free, but for those that are left to the first task.
pub fn renew_blocks(ledger: &mut Ledger, programs: AccountId, free: u64, of_first: u64) {
    let used = ledger.used(programs, Resource::Blocks);
    let mut amounts = ledger.limits(programs);
    amounts[Resource::Blocks as usize] = used.saturating_add(free.saturating_sub(of_first));
    ledger.set_limits(programs, amounts);
}

/// Lets the bounds of all programs rise by what they are charged for something that these bounds left to others: the machine has as much as before.
pub fn raise(ledger: &mut Ledger, programs: AccountId, more: impl IntoIterator<Item = (Resource, u64)>) {
    let mut amounts = ledger.limits(programs);
    for (resource, amount) in more {
        let most = &mut amounts[resource as usize];
        *most = most.saturating_add(amount);
    }
    ledger.set_limits(programs, amounts);
}

/// Pages that all programs together may have dirty where nothing but the memory bounds them.
fn dirty_of_memory(ledger: &Ledger) -> u64 {
    let machine = ledger.limit(AccountId::ROOT, Resource::Dirty);
    machine - machine / 8
}

/// Bounds the dirty pages of all programs by the disk, of which so many blocks are free: until it is written, a page that is stored takes a second block, which nobody
/// pays for. A checkpoint under way has as many pages as may get dirty meanwhile, and each may take a node of its map along. So a half of what is free stays for
/// pages that are new.
pub fn renew_dirty(ledger: &mut Ledger, programs: AccountId, free: u64) {
    let mut amounts = ledger.limits(programs);
    amounts[Resource::Dirty as usize] = dirty_of_memory(ledger).min((free / DIRTY_PART).max(DIRTY_LEAST));
    ledger.set_limits(programs, amounts);
}

/// So many places for threads were made for an account, and stay: all have less from now on, of the server's heap and of frames, its program among them.
#[cold]
pub fn places_made(ledger: &mut Ledger, programs: AccountId, account: AccountId, places: usize) {
    // The bounds are set when there are programs, by what is left then.
    if programs == AccountId::ROOT {
        return;
    }
    let program = ledger.program_of(account, programs);
    for account in [Some(AccountId::ROOT), Some(programs), program].into_iter().flatten() {
        let mut amounts = ledger.limits(account);
        for (resource, amount) in [
            (Resource::Bytes, (places * size_of::<Thread>()) as u64),
            (Resource::Frames, frames_of_places(places)),
        ] {
            let most = &mut amounts[resource as usize];
            *most = most.saturating_sub(amount);
        }
        ledger.set_limits(account, amounts);
    }
}

/// Frames that the kernel takes for so many places of threads, for those whose threads use the vector unit, too.
fn frames_of_places(places: usize) -> u64 {
    (places as u64 * PLACE_BYTES).div_ceil(PAGE)
}

/// Whether the programs have taken most of what they may have of something that is taken back where nobody uses it.
pub fn are_tight(ledger: &Ledger, programs: AccountId) -> bool {
    [Resource::Frames, Resource::Tables, Resource::Bytes, Resource::Spaces]
        .into_iter()
        .any(|resource| ledger.left(programs, resource) < ledger.limit(programs, resource) / 2)
}

/// The part of an amount that one program may take at most.
pub(super) const fn part_of(amount: u64) -> u64 {
    amount / 4 * QUARTERS
}

/// The most that a program may take that starts now.
pub fn of_program(ledger: &Ledger, programs: AccountId) -> Amounts {
    let mut amounts = RESOURCE_LIST.map(|resource| part_of(ledger.left(programs, resource)));
    // Dirty pages come back with each checkpoint, so it does not count how many there are just now, nor how full the disk is: a program that may never have
    // one would ask for checkpoints for ever.
    amounts[Resource::Dirty as usize] = part_of(dirty_of_memory(ledger));
    // Those that run share it equally (`kcore::shares`).
    amounts[Resource::Processor as usize] = WHOLE;
    let bounds = [
        (Resource::Semaphores, PROGRAM_SEMAPHORES),
        (Resource::Slots, PROGRAM_SLOTS),
    ];
    for (resource, bound) in bounds {
        amounts[resource as usize] = amounts[resource as usize].min(bound);
    }
    amounts
}

/// The limits of a task further down beside those of the tasks above it: a part of the threads that they have left, so that the task that
/// made it can go on.
pub fn of_task(ledger: &Ledger, parent: AccountId) -> Amounts {
    let mut amounts = UNLIMITED;
    amounts[Resource::Threads as usize] = part_of(ledger.left(parent, Resource::Threads));
    amounts
}

/// A bound of memory alone.
pub fn of_frames(frames: u64) -> Amounts {
    let mut amounts = UNLIMITED;
    amounts[Resource::Frames as usize] = frames;
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The account of all programs, with a hundred of everything.
    fn programs() -> (Ledger, AccountId) {
        let mut ledger = Ledger::new(1);
        let programs = ledger.open(AccountId::ROOT, [100; RESOURCES]).expect("an account");
        (ledger, programs)
    }

    #[test]
    fn programs_are_tight_when_more_than_half_is_taken() {
        for resource in RESOURCE_LIST {
            let (mut ledger, programs) = programs();
            let used = ledger.used(programs, resource);
            ledger.take(programs, resource, 50 - used).unwrap();
            assert!(!are_tight(&ledger, programs), "{resource:?}");
            ledger.take(programs, resource, 1).unwrap();
            let counts = [Resource::Frames, Resource::Tables, Resource::Bytes, Resource::Spaces].contains(&resource);
            assert_eq!(are_tight(&ledger, programs), counts, "{resource:?}");
        }
    }

    #[test]
    fn dirty_pages_of_programs_are_bounded_by_memory_and_disk() {
        let mut ledger = Ledger::new(1);
        let mut machine = UNLIMITED;
        machine[Resource::Dirty as usize] = 800;
        ledger.set_limits(AccountId::ROOT, machine);
        let programs = ledger.open(AccountId::ROOT, UNLIMITED).expect("an account");
        for (free, bound) in [(0, 16), (135, 16), (800, 100), (5599, 699), (5600, 700), (9000, 700)] {
            renew_dirty(&mut ledger, programs, free);
            assert_eq!(ledger.limit(programs, Resource::Dirty), bound, "{free} blocks are free");
            assert_eq!(of_program(&ledger, programs)[Resource::Dirty as usize], 525);
        }
    }

    #[test]
    fn a_program_gets_a_part_of_what_is_left_and_of_all_dirty_pages() {
        let (mut ledger, programs) = programs();
        for resource in RESOURCE_LIST {
            let used = ledger.used(programs, resource);
            ledger.take(programs, resource, 40 - used).unwrap();
        }
        let mut machine = ledger.limits(AccountId::ROOT);
        machine[Resource::Dirty as usize] = 80;
        ledger.set_limits(AccountId::ROOT, machine);
        let mut expected = [45; RESOURCES];
        expected[Resource::Dirty as usize] = 70 / 4 * 3;
        expected[Resource::Processor as usize] = WHOLE;
        assert_eq!(of_program(&ledger, programs), expected);
    }

    #[test]
    fn programs_get_the_blocks_that_are_free_by_now_but_for_those_of_the_first_task() {
        let (mut ledger, programs) = programs();
        ledger.take(programs, Resource::Blocks, 30).unwrap();
        let before = ledger.limits(programs);
        for free in [80, 800, 0, 8] {
            renew_blocks(&mut ledger, programs, free, 10);
            let mut expected = before;
            expected[Resource::Blocks as usize] = 30 + free.saturating_sub(10);
            assert_eq!(ledger.limits(programs), expected);
        }
    }
}
