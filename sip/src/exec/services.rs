//! Services: the imports that the engine itself meets. Blocks of the exchange heap (`gondwana:heap`),
//! and the operations of each contract that the process was offered. A service is called as a
//! compiled function is, without a detour over values on the heap; that is what a message costs.
//!
//! A receive that finds no message leaves the process where it stands: its registers go onto its own
//! stack and the processor to the peer, if that one waits for what was sent to it, or else to the
//! group ([`super::Group`]). Between [`service`] and there nothing has a destructor to run, so a
//! process that is never entered again leaks nothing.

use super::asm::{self, Registers};
use super::group::Shared;
use super::host::{self, Protection};
use super::short::{HANDOVERS, Short};
use super::{Extern, HostError, LinkError, Owner, Reservation, Store, Trap};
use crate::abi::{self, Place};
use crate::contract::{Direction, Operation, Protocol, Side};
use crate::exchange::channels::{Arrived, Letter};
use crate::exchange::endpoints::{EndpointError, EndpointTable};
use crate::exchange::{Channels, End, ExchangeError, HandleTable, Owners, Process};
use crate::limits::QUEUE_MESSAGES;
use crate::module::{ACCESSORS, CHANNEL, EXCHANGE, FuncType, ValType};
use crate::translate::TrapKind;
use alloc::{boxed::Box, format, string::String, string::ToString, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering};

/// The memory of an exchange heap, who owns what of it, and its channels. Shared by all processes
/// that exchange.
pub struct Exchange {
    pub(super) owners: Owners,
    pub(super) channels: Channels,
    processes: AtomicU32,
    range: Reservation,
}

impl Exchange {
    /// A heap of so many bytes, blocks and channels.
    ///
    /// # Errors
    /// No memory.
    pub fn new(bytes: usize, blocks: u32, channels: u32) -> Result<Arc<Self>, LinkError> {
        let range = Reservation::new(bytes).ok_or(LinkError::NoMemory)?;
        // SAFETY: the whole of a new reservation.
        if !unsafe { host::protect(range.base(), range.bytes(), Protection::ReadWrite) } {
            return Err(LinkError::NoMemory);
        }
        let owners = Owners::new(range.base() as u64, range.bytes() as u64, blocks);
        Ok(Arc::new(Self {
            owners,
            channels: Channels::new(channels, QUEUE_MESSAGES as u32),
            processes: AtomicU32::new(1),
            range,
        }))
    }

    /// The owners of the blocks.
    pub const fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The channels.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    fn clear(&self, base: u64, bytes: u64) {
        let offset = (base - self.range.base() as u64) as usize;
        // SAFETY: the range is a block that the calling process has just become owner of, inside the
        // reservation; nobody else touches it.
        unsafe { core::ptr::write_bytes(self.range.base().add(offset), 0, bytes as usize) };
    }
}

/// A process's part in an exchange heap.
pub struct Member {
    pub(super) heap: Arc<Exchange>,
    pub(super) process: Process,
    pub(super) blocks: HandleTable,
    pub(super) endpoints: EndpointTable,
    /// Contracts that the process may import from.
    protocols: Vec<Arc<Protocol>>,
    /// Endpoints that it is started with and has not asked for.
    starts: Vec<(u64, Side, u32)>,
}

impl Member {
    /// The names of the process's blocks.
    pub const fn blocks(&mut self) -> &mut HandleTable {
        &mut self.blocks
    }

    /// The names of its endpoints.
    pub const fn endpoints(&mut self) -> &mut EndpointTable {
        &mut self.endpoints
    }

    /// Its process.
    pub const fn process(&self) -> Process {
        self.process
    }

    /// The bytes of a block of the process's; none if the handle names no block.
    pub fn block_bytes(&mut self, handle: u32) -> &mut [u8] {
        let [base, bytes] = self.blocks.range(handle);
        if bytes == 0 {
            return &mut [];
        }
        let offset = (base - self.heap.range.base() as u64) as usize;
        // SAFETY: a block of the table is the process's alone, inside the reservation, and stays so
        // while the table is borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.heap.range.base().add(offset), bytes as usize) }
    }

    /// Gives back all it has: its peers see it gone.
    pub(super) fn leave(&mut self) {
        self.endpoints.clear(&self.heap.channels, &self.heap.owners);
        self.blocks.clear(&self.heap.owners);
    }
}

/// The operation of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Alloc,
    Free,
    Put,
    Take,
    /// Ends an endpoint of whatever contract.
    Close,
    /// An accessor: the compiler inlines it, and this is called only where it was not.
    Inlined,
    Channel(Operation),
}

/// The context that compiled code is given when it calls a service.
pub(super) struct Service {
    store: *mut Store,
    what: What,
    pub(super) ty: FuncType,
    /// The places of the parameters behind the first, and which of their bits count.
    places: Vec<(Place, u64)>,
    /// Which of them are blocks, and which endpoints: a bit each.
    owned: (u16, u16),
    protocol: Option<(Arc<Protocol>, Side)>,
    /// How it is done where nothing is out of the ordinary.
    pub(super) short: Option<Short>,
}

impl Service {
    /// How many entries stand on the process's stack.
    pub(super) fn depth(&self) -> u32 {
        // SAFETY: the store is boxed and lives as long as its services.
        unsafe { (*self.store).depth }
    }

    /// The thunk through which it is called.
    pub(super) fn code(&self) -> u64 {
        if let Some(short) = &self.short {
            return short.code;
        }
        let floats = self
            .ty
            .params
            .iter()
            .chain(&self.ty.results)
            .any(|ty| ty.is_vector_class());
        if floats {
            asm::sip_service_floats as *const () as u64
        } else {
            asm::sip_service as *const () as u64
        }
    }
}

/// A service: module, name, what it does, types of parameters and results.
type Called = (&'static str, &'static str, What, &'static [ValType], &'static [ValType]);

/// The services that are of no contract and are called: modules, names and types.
const CALLS: [Called; 5] = {
    use ValType::I32;
    [
        (EXCHANGE, "alloc", What::Alloc, &[I32], &[I32]),
        (EXCHANGE, "free", What::Free, &[I32], &[]),
        (EXCHANGE, "put", What::Put, &[I32, I32, I32], &[]),
        (EXCHANGE, "take", What::Take, &[I32, I32], &[I32]),
        (CHANNEL, "close", What::Close, &[I32], &[]),
    ]
};

impl Store {
    /// Joins the process to an exchange heap; done once, before its modules are instantiated.
    pub fn join(&mut self, heap: &Arc<Exchange>) -> &mut Member {
        let process = Process(heap.processes.fetch_add(1, Ordering::Relaxed));
        let member = Box::new(Member {
            heap: heap.clone(),
            process,
            blocks: HandleTable::new(process),
            endpoints: EndpointTable::new(process),
            protocols: Vec::new(),
            starts: Vec::new(),
        });
        // The entries are a box that the table never moves; the store keeps it alive.
        self.handle_table = member.blocks.entries() as u64;
        self.member.insert(member)
    }

    /// The process's part in an exchange heap, if it has joined one.
    pub fn member(&mut self) -> Option<&mut Member> {
        self.member.as_deref_mut()
    }

    /// Lets the process import from a contract.
    pub fn offer(&mut self, protocol: &Arc<Protocol>) {
        if let Some(member) = &mut self.member {
            member.protocols.push(protocol.clone());
        }
    }

    /// Gives the process an end of a channel that is its already, to be asked for by `start`.
    ///
    /// # Errors
    /// It has joined no heap, or has too many endpoints.
    pub fn start_with(&mut self, protocol: &Protocol, end: End) -> Result<(), EndpointError> {
        let member = self.member.as_mut().ok_or(EndpointError::Stale)?;
        let number = member.endpoints.enter(end)?;
        member.starts.push((protocol.key(), side_of(end), number));
        Ok(())
    }

    /// The service that an import names: `None` if it is of no module of the engine's.
    ///
    /// # Errors
    /// Why there is no such service, for the user: the module's name is known, but what is imported
    /// from it is not there, not allowed, or of another type.
    pub fn service(&mut self, module: &str, name: &str, ty: &FuncType) -> Option<Result<Extern, String>> {
        if module == EXCHANGE || module == CHANNEL {
            return Some(self.plain_service(module, name, ty));
        }
        let (side, contract, key) = Side::of_module(module)?;
        let Some(member) = &self.member else {
            return Some(Err(format!("no channel of the contract {contract} was given")));
        };
        let Some(protocol) = member.protocols.iter().find(|protocol| protocol.key() == key) else {
            let same = member
                .protocols
                .iter()
                .find(|protocol| protocol.contract().name == contract);
            return Some(Err(match same {
                Some(have) => format!(
                    "it was built for another version of the contract {contract} ({key:016x}; this one is {:016x})",
                    have.key()
                ),
                None => format!("no channel of the contract {contract} was given"),
            }));
        };
        let protocol = protocol.clone();
        Some(match protocol.operation(side, name, ty) {
            Ok(operation) => Ok(self.add_service(What::Channel(operation), ty, Some((protocol, side)))),
            Err(error) => Err(error.to_string()),
        })
    }

    fn plain_service(&mut self, module: &str, name: &str, ty: &FuncType) -> Result<Extern, String> {
        if self.member.is_none() {
            return Err("the process has no exchange heap".into());
        }
        let call = CALLS.iter().find(|call| (call.0, call.1) == (module, name));
        let mut accessors = ACCESSORS.iter().filter(|_| module == EXCHANGE);
        let accessor = accessors.find(|accessor| accessor.0 == name);
        let (what, params, results) = match (call, accessor) {
            (Some((_, _, what, params, results)), _) => (*what, *params, *results),
            (_, Some((_, params, results))) => (What::Inlined, *params, *results),
            _ => return Err(format!("there is no such function '{name}'")),
        };
        if ty.params != params || ty.results != results {
            return Err(format!(
                "'{name}' is imported as {:?} -> {:?}; it is {params:?} -> {results:?}",
                ty.params, ty.results
            ));
        }
        Ok(self.add_service(what, ty, None))
    }

    fn add_service(&mut self, what: What, ty: &FuncType, protocol: Option<(Arc<Protocol>, Side)>) -> Extern {
        let mask = |ty: &ValType| match ty {
            ValType::I32 | ValType::F32 => u64::from(u32::MAX),
            _ => u64::MAX,
        };
        let places = abi::params(&ty.params).into_iter().zip(ty.params.iter().map(mask));
        let places = places.skip(1).collect();
        let owned = match (what, &protocol) {
            (What::Channel(Operation::Send(message)), Some((protocol, _))) => protocol.owned_fields(message),
            _ => (0, 0),
        };
        // SAFETY: the group outlives its stores' services.
        let in_group = !self.group.is_null() && unsafe { (*self.group).short };
        let short = match (what, &protocol, &mut self.member) {
            (What::Channel(operation), Some((protocol, side)), Some(member)) if in_group => {
                Short::new((&raw mut **member, self.group), (protocol, *side), operation, ty)
            }
            _ => None,
        };
        let store: *mut Self = self;
        self.services.push(Box::new(Service {
            store,
            what,
            ty: ty.clone(),
            places,
            owned,
            protocol,
            short,
        }));
        let handle = self.next_handle;
        self.next_handle += 1;
        self.owners.push((handle, Owner::Service(self.services.len() - 1)));
        Extern::Func(handle)
    }
}

/// The side whose an end is: a channel's first end is the client's.
const fn side_of(end: End) -> Side {
    if end.is_second() { Side::Server } else { Side::Client }
}

fn failed(text: impl Into<String>) -> Trap {
    Trap {
        kind: TrapKind::Service,
        wasm: None,
        host: Some(HostError::Failed(text.into())),
    }
}

impl From<ExchangeError> for Trap {
    fn from(error: ExchangeError) -> Self {
        failed(error.message())
    }
}

impl From<EndpointError> for Trap {
    fn from(error: EndpointError) -> Self {
        failed(error.message())
    }
}

/// The service thunks arrive here: returns 0, or the runtime block's address if the caller is to be
/// left by the landing.
pub(super) extern "sysv64" fn service(registers: *mut Registers, return_address: u64) -> u64 {
    // SAFETY: the thunk passes its own block; the context in it is a service's, as the layout says
    // and the verifier has proved. The service is not changed while its store lives, and compiled code
    // runs only while nobody else uses the store.
    let (service, store) = unsafe {
        let service = (*registers).ints[0] as *const Service;
        (&*service, &mut *(*service).store)
    };
    // SAFETY: as above; only the registers that the thunk has saved are used.
    let registers = unsafe { &mut *registers };
    let called = store
        .runtime
        .may_return()
        .and_then(|()| call(store, service, registers))
        .and_then(|value| store.runtime.may_return().map(|()| value));
    let error = match called {
        Ok(value) => {
            match service.ty.results.first() {
                Some(ty) if ty.is_vector_class() => registers.floats[0] = [value, 0],
                _ => registers.ints[0] = value,
            }
            return 0;
        }
        Err(error) => error,
    };
    let wasm = error.wasm.or_else(|| store.call_site(return_address));
    store.runtime.raised = Some(Trap { wasm, ..error });
    &raw mut *store.runtime as u64
}

fn call(store: &mut Store, service: &Service, registers: &Registers) -> Result<u64, Trap> {
    let first = registers.ints[1] as u32;
    let second = |at: usize| registers.ints[2 + at] as u32;
    let Some(member) = store.member.as_mut() else {
        return Err(failed("the process has no exchange heap"));
    };
    let owners = &member.heap.owners;
    match service.what {
        What::Alloc => {
            let handle = member.blocks.alloc(owners, u64::from(first))?;
            let block = member.blocks.block(handle)?;
            member.heap.clear(owners.base(block), owners.length(block));
            Ok(u64::from(handle))
        }
        What::Free => member.blocks.free(owners, first).map(|()| 0).map_err(Trap::from),
        What::Put => {
            member.blocks.put(owners, first, second(0), second(1))?;
            Ok(0)
        }
        What::Take => Ok(u64::from(member.blocks.take(owners, first, second(0))?)),
        What::Close => {
            member.endpoints.close(&member.heap.channels, owners, first)?;
            Ok(0)
        }
        What::Inlined => Err(failed("this function can be called directly only")),
        What::Channel(operation) => {
            let Some((protocol, side)) = &service.protocol else {
                return Err(failed("no contract"));
            };
            channel(store, service, (protocol, *side), operation, registers)
        }
    }
}

fn channel(
    store: &mut Store,
    service: &Service,
    (protocol, side): (&Protocol, Side),
    operation: Operation,
    registers: &Registers,
) -> Result<u64, Trap> {
    let number = registers.ints[1] as u32;
    match operation {
        Operation::Send(message) => send(store, service, (protocol, side), message, registers),
        Operation::Receive => receive(store, (protocol, side), number),
        Operation::Field(message, field) => {
            let (member, _) = endpoint(store, (protocol, side), number)?;
            match member.endpoints.get(number)?.field(message, field) {
                Some(word) => Ok(word),
                None => Err(failed(format!(
                    "a field of {} is asked for, which is not the message that arrived last",
                    protocol.message(message).map_or("?", |message| &message.name)
                ))),
            }
        }
        Operation::Start => {
            let member = store.member.as_mut().ok_or(EndpointError::Stale)?;
            let wanted = |start: &(u64, Side, u32)| (start.0, start.1) == (protocol.key(), side);
            let Some(at) = member.starts.iter().position(wanted) else {
                return Ok(0);
            };
            Ok(u64::from(member.starts.remove(at).2))
        }
        Operation::Open => {
            let member = store.member.as_mut().ok_or(EndpointError::Stale)?;
            let Some(ends) = member.heap.channels.open(member.process, protocol.key()) else {
                return Ok(0);
            };
            let mut numbers = [0; 2];
            for (number, end) in numbers.iter_mut().zip(ends) {
                match member.endpoints.enter(end) {
                    Ok(entered) => *number = entered,
                    Err(error) => {
                        // The first end has a number, by which the end of the process closes it.
                        let unnamed = ends.into_iter().skip(usize::from(end.is_second()));
                        for end in unnamed {
                            member.heap.channels.close(&member.heap.owners, member.process, end);
                        }
                        return Err(error.into());
                    }
                }
            }
            Ok(u64::from(numbers[0]) | u64::from(numbers[1]) << 32)
        }
    }
}

/// The end of a number, which must be of the contract and side of the import.
fn endpoint<'a>(
    store: &'a mut Store,
    (protocol, side): (&Protocol, Side),
    number: u32,
) -> Result<(&'a mut Member, End), Trap> {
    let member = store.member.as_mut().ok_or(EndpointError::Stale)?;
    let end = member.endpoints.get(number)?.end;
    if side_of(end) != side || member.heap.channels.key(end) != protocol.key() {
        return Err(failed(format!(
            "the endpoint is not the {}'s of the contract {}",
            side.name(),
            protocol.contract().name
        )));
    }
    Ok((member, end))
}

fn send(
    store: &mut Store,
    service: &Service,
    (protocol, side): (&Protocol, Side),
    message: u16,
    registers: &Registers,
) -> Result<u64, Trap> {
    let number = registers.ints[1] as u32;
    let runtime: *const super::Runtime = &raw const *store.runtime;
    let (member, from) = endpoint(store, (protocol, side), number)?;
    let state = member.heap.channels.state(from);
    let Some(next) = protocol.step(side, state, Direction::Send, message) else {
        return Err(failed(protocol.complaint(side, state, Direction::Send, Some(message))));
    };
    let mut letter = Letter::new(message);
    letter.count = service.places.len() as u8;
    (letter.blocks, letter.ends) = service.owned;
    for (word, (place, mask)) in letter.words.iter_mut().zip(&service.places) {
        let bits = match *place {
            Place::Int(at) => registers.ints[at + 1],
            Place::Float(at) => registers.floats[at][0],
            // SAFETY: the block is the store's, which runs nothing now.
            Place::Area(at) => unsafe { (&(*runtime).area)[at][0] },
        };
        *word = bits & mask;
    }
    let Member {
        heap,
        blocks,
        endpoints,
        protocols,
        ..
    } = member;
    let may_travel = |end: End| {
        let channels = &heap.channels;
        let of = protocols.iter().find(|of| of.key() == channels.key(end));
        end != from && of.is_some_and(|of| of.turn(side_of(end), channels.state(end)) == Some(Direction::Send))
    };
    let tables = (&heap.channels, &heap.owners);
    let there = endpoints.send(tables, Some(blocks), from, &mut letter, may_travel)?;
    if there {
        heap.channels.set_state(from, next);
    }
    Ok(u64::from(!there))
}

fn receive(store: &mut Store, (protocol, side): (&Protocol, Side), number: u32) -> Result<u64, Trap> {
    loop {
        let (member, end) = endpoint(store, (protocol, side), number)?;
        let state = member.heap.channels.state(end);
        if protocol.turn(side, state) != Some(Direction::Receive) {
            return Err(failed(protocol.complaint(side, state, Direction::Receive, None)));
        }
        let Member {
            heap,
            blocks,
            endpoints,
            ..
        } = member;
        match endpoints.receive((&heap.channels, &heap.owners), Some(blocks), number)? {
            Arrived::Letter(message) => {
                let next = protocol.step(side, state, Direction::Receive, message);
                let next = next.ok_or_else(|| failed("the peer has sent what the contract does not allow"))?;
                heap.channels.set_state(end, next);
                return Ok(u64::from(message));
            }
            Arrived::Gone => return Ok(u64::from(u32::MAX)),
            Arrived::Nothing => {
                if let Some(message) = wait(store, end, number)? {
                    return Ok(u64::from(message));
                }
            }
        }
    }
}

/// Lets others run until something has arrived at an end; the message, if it came past the queue.
fn wait(store: &mut Store, end: End, number: u32) -> Result<Option<u16>, Trap> {
    if store.group.is_null() || store.depth != 1 {
        return Err(failed("it waits for a message, but nobody else can run"));
    }
    let member = store.member.as_mut().ok_or(EndpointError::Stale)?;
    let heap: *const Exchange = &raw const *member.heap;
    let entry = member.endpoints.get(number)?;
    let channels = {
        // SAFETY: the heap lives as long as its members.
        unsafe { &(*heap).channels }
    };
    let shared: *mut Shared = store.group;
    let runtime: *mut super::Runtime = &raw mut *store.runtime;
    // SAFETY: the group outlives the run of its processes, which all are on this thread; nobody else
    // holds a reference into what the processes share while one of them runs. The stack of a process
    // that waits is as it left it. The entry's frame passes to the peer with the processor.
    unsafe {
        let seats = &mut (*shared).seats;
        let me = (*shared).current;
        seats[me].waiting = Some(end);
        seats[me].into = entry;
        let save = &raw mut seats[me].saved;
        let peer = channels
            .owner(end.peer())
            .and_then(|process| seats.iter().position(|seat| seat.process == process))
            .filter(|at| *at != me && seats[*at].is_ready(channels));
        match peer {
            Some(peer) if (*shared).handovers < HANDOVERS => {
                (*shared).handovers += 1;
                (*shared).current = peer;
                let theirs = seats[peer].runtime;
                (*theirs).entry_stack = (*runtime).entry_stack;
                let to = seats[peer].saved;
                host::set_current(theirs);
                asm::sip_switch(save, to);
            }
            _ => asm::sip_leave(save, (*runtime).entry_stack),
        }
        let seat = &mut (&mut (*shared).seats)[me];
        seat.waiting = None;
        Ok(seat.delivered.take())
    }
}
