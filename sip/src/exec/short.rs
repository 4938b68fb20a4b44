//! The short way of a message between two processes of one group: past the queue, straight from one's registers
//! and handle table to the other's.
//!
//! It is taken when everything is as it mostly is: the receiver waits at the other end, nothing is in its queue,
//! both ends have seen the same state, and the message has few words, integers and at most one block. Then the
//! monitor is one look-up in a row of the contract's table, the block changes owner by one compare-and-swap, and
//! the receiver's `receive` has its answer before it goes on. When the sender waits in its turn, the processor
//! goes to the receiver by one change of stacks. What a short way cannot do it leaves untouched to the general
//! one (`services`), which then says what is wrong, if anything is. Nothing but time tells the two apart; a
//! test runs random programs by both (`tests/short.rs`, `docs/decisions/0062`).

use super::asm;
use super::group::Shared;
use super::host;
use super::services::{Member, Service};
use crate::abi::{self, Place};
use crate::contract::{Direction, Operation, Protocol, Side};
use crate::exchange::endpoints::{Endpoint, SHORT_WORDS};
use crate::exchange::{Channels, End};
use crate::module::{FuncType, ValType};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// How often processes may hand the processor to one another before the others get their turn.
pub(super) const HANDOVERS: u32 = 64;

/// What the short way wants to know of a service, worked out when the service is made.
pub(super) struct Short {
    pub(super) code: u64,
    member: *mut Member,
    runtime: *mut super::Runtime,
    group: *mut Shared,
    key: u64,
    second: bool,
    /// By state, the state after it; of a receive, whether there is one.
    next: Vec<Option<u16>>,
    message: u16,
    field: u16,
    count: u8,
    /// Which word is a block.
    block: Option<usize>,
    /// Which bits of each word count.
    masks: [u64; SHORT_WORDS],
}

/// What a short way yields: a value, if `done` is not 0. Otherwise it has changed nothing.
#[repr(C)]
pub(super) struct Answer {
    value: u64,
    done: u64,
}

const GENERAL: Answer = Answer { value: 0, done: 0 };

const fn done(value: u64) -> Answer {
    Answer { value, done: 1 }
}

impl Short {
    /// What the short way of an operation needs; `None` if it has none. The pointers are the process's
    /// own and its group's, which live as long as its services.
    pub(super) fn new(
        (member, runtime, group): (*mut Member, *mut super::Runtime, *mut Shared),
        (protocol, side): (&Protocol, Side),
        operation: Operation,
        ty: &FuncType,
    ) -> Option<Self> {
        if ty.params.iter().chain(&ty.results).any(|ty| ty.is_vector_class()) {
            return None;
        }
        let mut short = Self {
            code: 0,
            member,
            runtime,
            group,
            key: protocol.key(),
            second: side == Side::Server,
            next: Vec::new(),
            message: 0,
            field: 0,
            count: 0,
            block: None,
            masks: [0; SHORT_WORDS],
        };
        match operation {
            Operation::Send(message) => {
                let (blocks, ends) = protocol.owned_fields(message);
                let places = abi::params(&ty.params);
                let few = places.iter().all(|place| matches!(place, Place::Int(_)));
                if !few || blocks.count_ones() > 1 || ends != 0 {
                    return None;
                }
                short.code = asm::sip_short_send as *const () as u64;
                short.message = message;
                short.next = protocol.row(side, Direction::Send, message);
                short.count = ty.params.len() as u8 - 1;
                short.block = (blocks != 0).then(|| blocks.trailing_zeros() as usize);
                for (mask, ty) in short.masks.iter_mut().zip(&ty.params[1..]) {
                    *mask = if *ty == ValType::I32 {
                        u64::from(u32::MAX)
                    } else {
                        u64::MAX
                    };
                }
            }
            Operation::Receive => {
                short.code = asm::sip_short_receive as *const () as u64;
                let states = 0..protocol.contract().states.len() as u16;
                short.next = states
                    .map(|state| (protocol.turn(side, state) == Some(Direction::Receive)).then_some(state))
                    .collect();
            }
            Operation::Field(message, field) => {
                short.code = asm::sip_short_field as *const () as u64;
                (short.message, short.field) = (message, field);
            }
            Operation::Start | Operation::Open => return None,
        }
        Some(short)
    }

    fn next(&self, state: u16) -> Option<u16> {
        *self.next.get(usize::from(state))?
    }

    /// The endpoint of a number, if it is of the contract and side of the import.
    #[inline]
    fn endpoint<'a>(&self, member: &'a mut Member, number: u32) -> Option<&'a mut Endpoint> {
        let entry = member.endpoints.get(number).ok()?;
        (entry.key == self.key && entry.end.is_second() == self.second).then_some(entry)
    }

    /// Whether the process is to stop: the general way says so.
    #[inline]
    fn is_interrupted(&self) -> bool {
        // SAFETY: the block is the process's and lives as long as it; the word is atomic.
        unsafe { (*self.runtime).interrupted.load(Ordering::Relaxed) }
    }
}

/// Which seat the owner of an end has.
#[cold]
fn find(shared: &Shared, channels: &Channels, end: End) -> Option<usize> {
    let owner = channels.owner(end)?;
    // Processes join, and so are numbered, in the order of their seats.
    let found = shared.seats.binary_search_by_key(&owner.0, |seat| seat.process.0);
    found.ok()
}

/// # Safety
/// As for [`send`].
#[inline]
unsafe fn try_send(service: *const Service, number: u32, words: [u64; SHORT_WORDS]) -> Option<()> {
    // SAFETY: the service, its process and its group are as `Short::new` was given them; this thread runs the
    // process that called, so nobody else uses what is its or the group's. The receiver is another process, which
    // waits: its table and endpoint are not in use, and stay where they are until it goes on.
    unsafe {
        let short = (*service).short.as_ref()?;
        let (member, shared) = (&mut *short.member, &mut *short.group);
        let heap = &*member.heap;
        let entry = short.endpoint(&mut *short.member, number)?;
        let to = entry.end.peer();
        let state = heap.channels.meeting(entry.end)?;
        let next = short.next(state)?;
        if !shared
            .seats
            .get(entry.partner)
            .is_some_and(|seat| seat.waiting == Some(to))
        {
            entry.partner = find(shared, &heap.channels, to)?;
        }
        let end = entry.end;
        let seat = shared.seats.get_mut(entry.partner)?;
        if seat.waiting != Some(to) || short.is_interrupted() {
            return None;
        }
        let mut words = words;
        for (word, mask) in words.iter_mut().zip(&short.masks) {
            *word &= mask;
        }
        if let Some(at) = short.block {
            let handle = words[at] as u32;
            words[at] = u64::from(member.blocks.pass(&heap.owners, handle, &mut (*seat.member).blocks)?);
        }
        heap.channels.set_both_states(end, next);
        (*seat.into).deliver(short.message, short.count, words);
        seat.waiting = None;
        seat.delivered = Some(short.message);
        shared.passed += 1;
        Some(())
    }
}

/// Where the thunk of a message's send arrives.
///
/// # Safety
/// The service is one of a running process's, and the arguments are what that process's code passed.
pub(super) unsafe extern "sysv64" fn send(
    service: *const Service,
    number: u32,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
) -> Answer {
    // SAFETY: the caller's conditions.
    match unsafe { try_send(service, number, [a, b, c, d]) } {
        Some(()) => done(0),
        None => GENERAL,
    }
}

/// # Safety
/// As for [`send`].
#[inline]
unsafe fn try_receive(service: *const Service, number: u32) -> Option<u16> {
    // SAFETY: as in `try_send`. While the process waits, others of its group run on this thread and change its
    // seat: it is looked up again behind the change of stacks, and no reference is kept over it.
    unsafe {
        let short = (*service).short.as_ref()?;
        let shared = &mut *short.group;
        let heap = &*(*short.member).heap;
        let entry = short.endpoint(&mut *short.member, number)?;
        let (owner, state) = heap.channels.silence(entry.end)?;
        short.next(state)?;
        let (me, peer) = (shared.current, entry.partner);
        let other = shared.seats.get(peer)?;
        let ready = other.process == owner && other.delivered.is_some();
        if !ready || me == peer || shared.handovers >= HANDOVERS || short.is_interrupted() || (*service).depth() != 1 {
            return None;
        }
        let (theirs, to) = (other.runtime, other.saved);
        let seat = &mut shared.seats[me];
        seat.waiting = Some(entry.end);
        seat.into = entry;
        let save = &raw mut seat.saved;
        shared.handovers += 1;
        shared.current = peer;
        (*theirs).entry_stack = (*short.runtime).entry_stack;
        host::switch_current(theirs);
        asm::sip_switch(save, to);
        let seat = &mut (&mut (*short.group).seats)[me];
        seat.waiting = None;
        seat.delivered.take()
    }
}

/// Where the thunk of `receive` arrives.
///
/// # Safety
/// As for [`send`].
pub(super) unsafe extern "sysv64" fn receive(service: *const Service, number: u32) -> Answer {
    // SAFETY: the caller's conditions.
    match unsafe { try_receive(service, number) } {
        Some(message) => done(u64::from(message)),
        None => GENERAL,
    }
}

/// Where the thunk of a field arrives.
///
/// # Safety
/// As for [`send`].
pub(super) unsafe extern "sysv64" fn field(service: *const Service, number: u32) -> Answer {
    // SAFETY: as in `try_send`.
    let value = unsafe {
        let Some(short) = (*service).short.as_ref() else {
            return GENERAL;
        };
        let entry = short.endpoint(&mut *short.member, number);
        entry.and_then(|entry| entry.field(short.message, short.field))
    };
    value.map_or(GENERAL, done)
}
