//! The short way of a message between two processes of one group: past the queue, straight from one's registers
//! and handle table to the other's.
//!
//! It is taken when everything is as it mostly is: the receiver waits at the other end, nothing is in its queue,
//! both ends have seen the same state, and the message has few words, integers and at most one block. Then the
//! monitor is one look-up in a row of the contract's table, the block changes owner by one compare-and-swap, and
//! the receiver's `receive` has its answer before it goes on. When the sender waits in its turn, the processor
//! goes to the receiver by one change of stacks. Work that a short way cannot do it leaves untouched to the general
//! one (`services`), which then says what is wrong, if anything is. Nothing but time tells the two apart; a
//! test runs random programs by both (`tests/short.rs`, `docs/decisions/0062`).

use super::asm;
use super::group::{Seat, Shared};
use super::host;
use super::services::{Exchange, Member, Service};
use crate::abi::{self, Place};
use crate::contract::{Direction, Operation, Protocol, Side};
use crate::exchange::End;
use crate::exchange::channels::EndRecord;
use crate::exchange::endpoints::{Endpoint, SHORT_WORDS};
use crate::module::{FuncType, ValType};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering;

/// How often processes may hand the processor to one another before the others get their turn.
pub(super) const HANDOVERS: u32 = 64;

/// In a link: it leads nowhere, whatever number it is asked for. So many changes a process never makes.
const NOWHERE: u64 = u64::MAX;

/// In a row of the contract's table: not in this state.
const NEVER: u32 = u32::MAX;

/// The short way's knowledge of a service, worked out when the service is made.
pub(super) struct Short {
    pub(super) code: u64,
    member: *mut Member,
    group: *mut Shared,
    seat: *mut Seat,
    key: u64,
    second: bool,
    /// By state, the state after it; of a receive, not [`NEVER`] where it is allowed.
    next: Vec<u32>,
    message: u16,
    field: u16,
    count: u8,
    /// Which word is a block.
    block: Option<usize>,
    /// Which bits of each word count.
    masks: [u64; SHORT_WORDS],
    link: UnsafeCell<Link>,
}

/// The target of the endpoint that a service was last called with.
struct Link {
    number: u32,
    /// Of the process's endpoints, when this was found out.
    changes: u64,
    to: End,
    entry: *mut Endpoint,
    here: *const EndRecord,
    there: *const EndRecord,
    /// The seat of who owned the other end.
    seat: *mut Seat,
}

/// The result of a short way: a value, if `done` is not 0. Otherwise it has changed nothing.
#[repr(C)]
pub(super) struct Answer {
    value: u64,
    done: u64,
}

impl From<Option<u64>> for Answer {
    #[inline]
    fn from(value: Option<u64>) -> Self {
        Self {
            value: value.unwrap_or(0),
            done: u64::from(value.is_some()),
        }
    }
}

impl Short {
    /// The data for the short way of an operation; `None` if it has none. The pointers are of the process and of
    /// its group, which live as long as its services.
    pub(super) fn new(
        (member, group): (*mut Member, *mut Shared),
        (protocol, side): (&Protocol, Side),
        operation: Operation,
        ty: &FuncType,
    ) -> Option<Self> {
        if ty.params.iter().chain(&ty.results).any(|ty| ty.is_vector_class()) {
            return None;
        }
        // SAFETY: the caller's pointers; nothing of the group runs now.
        let seat = unsafe {
            let process = (*member).process;
            let seats = &mut (*group).seats;
            seats.iter_mut().find(|seat| seat.process == process)?
        };
        let mut short = Self {
            code: 0,
            member,
            group,
            seat: &raw mut **seat,
            key: protocol.key(),
            second: side == Side::Server,
            next: Vec::new(),
            message: 0,
            field: 0,
            count: 0,
            block: None,
            masks: [0; SHORT_WORDS],
            link: UnsafeCell::new(Link {
                number: 0,
                changes: NOWHERE,
                to: End::from_word(0),
                entry: ptr::null_mut(),
                here: ptr::null(),
                there: ptr::null(),
                seat: ptr::null_mut(),
            }),
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
                let row = protocol.row(side, Direction::Send, message);
                short.next = row.into_iter().map(|next| next.map_or(NEVER, u32::from)).collect();
                short.count = ty.params.len() as u8 - 1;
                short.block = (blocks != 0).then(|| blocks.trailing_zeros() as usize);
                for (mask, ty) in short.masks.iter_mut().zip(&ty.params[1..]) {
                    let narrow = *ty == ValType::I32;
                    *mask = if narrow { u64::from(u32::MAX) } else { u64::MAX };
                }
            }
            Operation::Receive => {
                short.code = asm::sip_short_receive as *const () as u64;
                let states = 0..protocol.contract().states.len() as u16;
                let allowed = |state| protocol.turn(side, state) == Some(Direction::Receive);
                short.next = states.map(|state| if allowed(state) { 0 } else { NEVER }).collect();
            }
            Operation::Field(message, field) => {
                short.code = asm::sip_short_field as *const () as u64;
                (short.message, short.field) = (message, field);
            }
            Operation::Start | Operation::Open => return None,
        }
        Some(short)
    }

    /// The state after one, if the operation is allowed there.
    #[inline]
    fn next(&self, state: u32) -> Option<u32> {
        self.next.get(state as usize).copied().filter(|next| *next != NEVER)
    }

    /// The target of the endpoint with this number, if it is of the contract and side of the import.
    ///
    /// # Safety
    /// The process is the one that runs, and nobody changes the link while the reference lives.
    #[inline]
    unsafe fn link(&self, number: u32) -> Option<&Link> {
        // SAFETY: the caller's conditions.
        unsafe {
            let link = &*self.link.get();
            if link.number != number || link.changes != (*self.member).endpoints.changes() {
                self.find(number)?;
            }
            Some(&*self.link.get())
        }
    }

    /// Finds out where the endpoint of a number leads.
    ///
    /// # Safety
    /// As for [`Short::link`].
    #[cold]
    unsafe fn find(&self, number: u32) -> Option<()> {
        // SAFETY: the pointers are as they were given to `new`; the running process's tables and the group's seats
        // are in nobody else's use.
        let (member, shared) = unsafe { (&mut *self.member, &mut *self.group) };
        let heap = member.heap.clone();
        let entry = member.endpoints.get(number).ok()?;
        let end = entry.end;
        if heap.channels.key(end) != self.key || end.is_second() != self.second {
            return None;
        }
        let entry = ptr::from_mut(entry);
        let owner = heap.channels.owner(end.peer())?;
        let at = shared
            .seats
            .binary_search_by_key(&owner.0, |seat| seat.process.0)
            .ok()?;
        let [here, there] = heap.channels.records(end).map(ptr::from_ref);
        let link = Link {
            number,
            changes: member.endpoints.changes(),
            to: end.peer(),
            entry,
            here,
            there,
            seat: &raw mut *shared.seats[at],
        };
        // SAFETY: by the caller's condition nobody looks at it now.
        unsafe { *self.link.get() = link };
        Some(())
    }

    /// Forgets where an endpoint led: the other end is another process's now.
    ///
    /// # Safety
    /// As for [`Short::link`], of a reference that is not used any more.
    #[cold]
    unsafe fn forget(&self) {
        // SAFETY: by the caller's condition.
        unsafe { (*self.link.get()).changes = NOWHERE };
    }

    /// Whether the process is to stop: the general way says so.
    ///
    /// # Safety
    /// The seat is the running process's.
    #[inline]
    unsafe fn is_interrupted(&self) -> bool {
        // SAFETY: the block is the process's and lives as long as it; the word is atomic.
        unsafe { (*(*self.seat).runtime).interrupted.load(Ordering::Relaxed) }
    }
}

/// # Safety
/// As for [`send`].
#[inline]
unsafe fn try_send(service: *const Service, number: u32, words: [u64; SHORT_WORDS]) -> Option<()> {
    // SAFETY: the service, its process and its group are as `Short::new` was given them; this thread runs the
    // process that called, so nobody else uses what is its or the group's. The receiver is another process, which
    // waits: its table and endpoint are not in use, and stay where they are until it goes on. An endpoint's entry
    // and records stay where they are while the number of changes is the same.
    unsafe {
        let short = (*service).short.as_ref()?;
        let link = short.link(number)?;
        let (here, there) = (&*link.here, &*link.there);
        let state = here.state();
        let next = short.next(state)?;
        let seat = &mut *link.seat;
        if seat.waiting != Some(link.to) {
            if there.owner() != seat.process {
                short.forget();
            }
            return None;
        }
        if there.state() != state || !there.is_quiet() || short.is_interrupted() {
            return None;
        }
        let mut block = None;
        if let Some(at) = short.block {
            let (from, to) = (&mut *short.member, &mut *seat.member);
            let heap: &Exchange = &from.heap;
            // Chosen in registers: what the processor has just stored in pieces it is slow to load as a whole.
            let handle = match at {
                0 => words[0],
                1 => words[1],
                2 => words[2],
                _ => words[3],
            };
            block = Some((at, from.blocks.pass(&heap.owners, handle as u32, &mut to.blocks)?));
        }
        here.set_state(next);
        there.set_state(next);
        (*seat.into).deliver(short.message, short.count, words, &short.masks, block);
        seat.waiting = None;
        seat.delivered = Some(short.message);
        (*short.group).passed += 1;
        Some(())
    }
}

/// The thunk of a message's send arrives here.
///
/// # Safety
/// The service is one of a running process's, it has a short way, and the arguments are what that process's code
/// passed.
pub(super) unsafe extern "sysv64" fn send(
    service: *const Service,
    number: u32,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
) -> Answer {
    // SAFETY: the caller's conditions.
    unsafe { try_send(service, number, [a, b, c, d]) }.map(|()| 0).into()
}

/// # Safety
/// As for [`send`].
#[inline]
unsafe fn try_receive(service: *const Service, number: u32) -> Option<u64> {
    // SAFETY: as in `try_send`. While the process waits, others of its group run on this thread and change its
    // seat: no reference is kept over the change of stacks, and seats stay where they are.
    unsafe {
        let short = (*service).short.as_ref()?;
        let link = short.link(number)?;
        let (here, there) = (&*link.here, &*link.there);
        short.next(here.state())?;
        let (me, other) = (short.seat, link.seat);
        if there.owner() != (*other).process {
            short.forget();
            return None;
        }
        let shared = short.group;
        let silent = here.is_quiet() && there.is_open();
        let turn = (*other).delivered.is_some() && (*shared).handovers < HANDOVERS;
        if !silent || !turn || short.is_interrupted() || (*service).depth() != 1 {
            return None;
        }
        (*me).waiting = Some(link.to.peer());
        (*me).into = link.entry;
        (*shared).handovers += 1;
        (*shared).current = (*other).at;
        (*(*other).runtime).entry_stack = (*(*me).runtime).entry_stack;
        host::switch_current((*other).runtime);
        // The link may be another by the time it is back here.
        asm::sip_switch(&raw mut (*me).saved, (*other).saved);
        (*me).waiting = None;
        (*me).delivered.take().map(u64::from)
    }
}

/// The thunk of `receive` arrives here.
///
/// # Safety
/// As for [`send`].
pub(super) unsafe extern "sysv64" fn receive(service: *const Service, number: u32) -> Answer {
    // SAFETY: the caller's conditions.
    unsafe { try_receive(service, number) }.into()
}

/// The thunk of a field arrives here.
///
/// # Safety
/// As for [`send`].
pub(super) unsafe extern "sysv64" fn field(service: *const Service, number: u32) -> Answer {
    // SAFETY: as in `try_send`.
    let value = unsafe {
        let short = (*service).short.as_ref();
        short.and_then(|short| (*short.link(number)?.entry).field(short.message, short.field))
    };
    value.into()
}
