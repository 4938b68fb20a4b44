//! WASI preview 1 over a small trait, [`System`]: arguments, environment, standard streams, files and
//! directories, clocks, randomness, exit. A call that the trait does not offer answers `ENOSYS`.
//!
//! Pointers come from the process and are allegations: each is checked against its memory, and
//! `EFAULT` is the answer to a bad one. Paths are relative to a directory that the process was given;
//! that they do not lead out of it is the system's to see to.

mod descriptors;
mod files;
mod system;

pub use system::{At, Entry, Errno, FileId, How, Kind, Stat, System, Time};

use crate::exec::{Extern, HostError, Store, Val};
use crate::module::{FuncType, Module, ValType};
use alloc::{boxed::Box, rc::Rc, string::String, vec::Vec};
use core::cell::{Cell, RefCell};
use descriptors::Descriptors;

/// Name of the module that WASI's functions are imported from.
pub const MODULE: &str = "wasi_snapshot_preview1";

/// A process's part: the system, and its descriptors there.
struct Process<S> {
    system: S,
    descriptors: Descriptors,
}

/// A process's WASI: shared by its imports.
pub struct Wasi<S> {
    process: Rc<RefCell<Process<S>>>,
    memory: Rc<Cell<Option<usize>>>,
}

struct Call<'a> {
    store: &'a mut Store,
    memory: usize,
    args: &'a [Val],
}

impl Call<'_> {
    fn arg(&self, at: usize) -> u64 {
        match self.args.get(at) {
            Some(Val::I32(value)) => u64::from(value.cast_unsigned()),
            Some(Val::I64(value)) => value.cast_unsigned(),
            _ => 0,
        }
    }
    fn bytes(&mut self, at: u64, count: u64) -> Result<&mut [u8], Errno> {
        let end = at.checked_add(count).ok_or(Errno::Fault)?;
        let memory = self.store.memory_bytes(self.memory).ok_or(Errno::Fault)?;
        memory.get_mut(at as usize..end as usize).ok_or(Errno::Fault)
    }
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes(at, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }
    fn put32(&mut self, at: u64, value: usize) -> Result<(), Errno> {
        self.put(at, &(value as u32).to_le_bytes())
    }
    fn get32(&mut self, at: u64) -> Result<u64, Errno> {
        let bytes = self.bytes(at, 4)?;
        Ok(u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
    }
    /// The n-th of an array of (address, length).
    fn vector(&mut self, array: u64, at: u64) -> Result<(u64, u64), Errno> {
        Ok((self.get32(array + 8 * at)?, self.get32(array + 8 * at + 4)?))
    }
    fn strings(&mut self, list: &[String]) -> Result<(), Errno> {
        let (mut pointer, mut text) = (self.arg(0), self.arg(1));
        for string in list {
            self.put32(pointer, text as usize)?;
            self.put(text, string.as_bytes())?;
            self.put(text + string.len() as u64, &[0])?;
            pointer += 4;
            text += string.len() as u64 + 1;
        }
        Ok(())
    }
    fn sizes(&mut self, list: &[String]) -> Result<(), Errno> {
        let (count, bytes) = (self.arg(0), self.arg(1));
        self.put32(count, list.len())?;
        self.put32(bytes, list.iter().map(|string| string.len() + 1).sum())
    }
}

/// Vectors of one read or write at most.
const VECTORS: u64 = 1024;

impl<S: System + 'static> Wasi<S> {
    /// A process's WASI over a system.
    pub fn new(system: S) -> Self {
        Self {
            process: Rc::new(RefCell::new(Process {
                descriptors: Descriptors::new(&system),
                system,
            })),
            memory: Rc::new(Cell::new(None)),
        }
    }

    /// Names the process's memory; called once it is instantiated, before it is started.
    pub fn set_memory(&self, memory: usize) {
        self.memory.set(Some(memory));
    }

    /// The import of this name, if the type is one that a WASI call can have.
    pub fn import(&self, store: &mut Store, name: &str, ty: &FuncType) -> Option<Extern> {
        let scalars = |types: &[ValType]| types.iter().all(|ty| matches!(ty, ValType::I32 | ValType::I64));
        let answers = ty.results == [ValType::I32] || (name == "proc_exit" && ty.results.is_empty());
        if !scalars(&ty.params) || !answers {
            return None;
        }
        let (process, memory, name) = (self.process.clone(), self.memory.clone(), String::from(name));
        Some(store.host_function(
            ty.clone(),
            Box::new(move |store, args, results| {
                if name == "proc_exit" {
                    let Some(Val::I32(status)) = args.first() else {
                        return Err(HostError::Exit(1));
                    };
                    return Err(HostError::Exit(*status));
                }
                let mut call = Call {
                    store,
                    memory: memory.get().unwrap_or(usize::MAX),
                    args,
                };
                let errno = answer(&mut process.borrow_mut(), &name, &mut call)
                    .err()
                    .unwrap_or(Errno::Success);
                results[0] = Val::I32(errno as i32);
                Ok(())
            }),
        ))
    }

    /// Everything of WASI that a module imports, by position; `None` for other imports.
    pub fn imports(&self, store: &mut Store, module: &Module) -> Vec<Option<Extern>> {
        let mut found = Vec::new();
        for import in &module.imports {
            found.push(match import.ty {
                crate::module::EntityType::Func(ty) if import.module == MODULE => {
                    self.import(store, &import.name, &module.types[ty as usize])
                }
                _ => None,
            });
        }
        found
    }
}

fn answer<S: System>(process: &mut Process<S>, name: &str, call: &mut Call<'_>) -> Result<(), Errno> {
    if let Some(done) = files::answer(process, name, call) {
        return done;
    }
    let system = &mut process.system;
    match name {
        "args_sizes_get" => call.sizes(system.arguments()),
        "args_get" => call.strings(system.arguments()),
        "environ_sizes_get" => call.sizes(system.environment()),
        "environ_get" => call.strings(system.environment()),
        "clock_time_get" => {
            let now = system.clock(call.arg(0) as u32)?;
            let at = call.arg(2);
            call.put(at, &now.to_le_bytes())
        }
        "clock_res_get" => {
            system.clock(call.arg(0) as u32)?;
            let at = call.arg(1);
            call.put(at, &1u64.to_le_bytes())
        }
        "random_get" => {
            let (at, count) = (call.arg(0), call.arg(1));
            system.random(call.bytes(at, count)?);
            Ok(())
        }
        "sched_yield" => Ok(()),
        "poll_oneoff" => poll(process, call),
        _ => Err(Errno::NoSystemCall),
    }
}

/// Subscriptions of one poll at most.
const SUBSCRIPTIONS: u64 = 4096;

/// Waits for the first of several things. Files and streams are always ready; only where nothing but
/// clocks is waited for does the process sleep.
fn poll<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Result<(), Errno> {
    let (from, to, count, done_at) = (call.arg(0), call.arg(1), call.arg(2), call.arg(3));
    if count == 0 || count > SUBSCRIPTIONS {
        return Err(Errno::Invalid);
    }
    let mut events: Vec<(u64, u64, Errno)> = Vec::new();
    // The earliest: how long from now, whose, and the answer.
    let mut first: Option<(u64, u64, Errno)> = None;
    for at in 0..count {
        let mut words = [0u64; 6];
        let bytes = call.bytes(from + 48 * at, 48)?;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let (user, tag) = (words[0], words[1] & 0xff);
        match tag {
            0 => {
                let now = process.system.clock(words[2] as u32);
                let absolute = words[5] & 1 == 1;
                let (wait, errno) = match now {
                    Ok(now) if absolute => (words[3].saturating_sub(now), Errno::Success),
                    Ok(_) => (words[3], Errno::Success),
                    Err(error) => (0, error),
                };
                if first.is_none_or(|(least, ..)| wait < least) {
                    first = Some((wait, user, errno));
                }
            }
            1 | 2 => {
                let there = process.descriptors.get(words[2] & u64::from(u32::MAX)).err();
                events.push((user, tag, there.unwrap_or(Errno::Success)));
            }
            _ => return Err(Errno::Invalid),
        }
    }
    if let (true, Some((wait, user, errno))) = (events.is_empty(), first) {
        process.system.sleep(wait)?;
        events.push((user, 0, errno));
    }
    for (at, (user, tag, errno)) in events.iter().enumerate() {
        let mut event = [0; 32];
        event[..8].copy_from_slice(&user.to_le_bytes());
        event[8..10].copy_from_slice(&(*errno as u16).to_le_bytes());
        event[10] = *tag as u8;
        event[16] = u8::from(*tag != 0);
        call.put(to + 32 * at as u64, &event)?;
    }
    call.put32(done_at, events.len())
}
