//! WASI preview 1 over a small trait: the calls that programs without files need (arguments,
//! environment, standard streams, clocks, randomness, exit). What the trait does not offer answers
//! `ENOSYS`; a descriptor other than the three streams answers `EBADF`. Directories are not there
//! yet: `fd_prestat_get` says so, which every WASI libc understands.
//!
//! Pointers come from the process and are allegations: each is checked against its memory, and
//! `EFAULT` is the answer to a bad one.

use crate::exec::{Extern, HostError, Store, Val};
use crate::module::{FuncType, Module, ValType};
use alloc::{boxed::Box, rc::Rc, string::String, vec::Vec};
use core::cell::{Cell, RefCell};

/// Name of the module that WASI's functions are imported from.
pub const MODULE: &str = "wasi_snapshot_preview1";

/// WASI's error numbers that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Errno {
    /// None.
    Success = 0,
    /// Bad file descriptor.
    BadDescriptor = 8,
    /// Bad address.
    Fault = 21,
    /// Invalid argument.
    Invalid = 28,
    /// Input or output failed.
    Io = 29,
    /// No such call.
    NoSystemCall = 52,
    /// The descriptor has no position.
    Seek = 70,
}

/// What a process gets from outside.
pub trait System {
    /// Arguments, the program's name first.
    fn arguments(&self) -> &[String];
    /// Environment, as `name=value`.
    fn environment(&self) -> &[String];
    /// Writes to a stream (1 or 2); the number of bytes taken.
    ///
    /// # Errors
    /// An [`Errno`].
    fn write(&mut self, descriptor: u32, bytes: &[u8]) -> Result<usize, Errno>;
    /// Reads from a stream (0); the number of bytes given.
    ///
    /// # Errors
    /// An [`Errno`].
    fn read(&mut self, descriptor: u32, bytes: &mut [u8]) -> Result<usize, Errno>;
    /// Nanoseconds of a clock: 0 real time, 1 monotonic.
    ///
    /// # Errors
    /// An [`Errno`].
    fn clock(&mut self, clock: u32) -> Result<u64, Errno>;
    /// Fills with random bytes.
    fn random(&mut self, bytes: &mut [u8]);
}

/// A process's WASI: shared by its imports.
pub struct Wasi<S> {
    system: Rc<RefCell<S>>,
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
            system: Rc::new(RefCell::new(system)),
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
        let (system, memory, name) = (self.system.clone(), self.memory.clone(), String::from(name));
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
                let errno = answer(&mut *system.borrow_mut(), &name, &mut call)
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

fn answer<S: System>(system: &mut S, name: &str, call: &mut Call<'_>) -> Result<(), Errno> {
    match name {
        "args_sizes_get" => call.sizes(system.arguments()),
        "args_get" => call.strings(system.arguments()),
        "environ_sizes_get" => call.sizes(system.environment()),
        "environ_get" => call.strings(system.environment()),
        "fd_write" | "fd_read" => stream(system, name == "fd_write", call),
        "fd_close" | "fd_datasync" | "fd_sync" => {
            if call.arg(0) < 3 {
                Ok(())
            } else {
                Err(Errno::BadDescriptor)
            }
        }
        "fd_fdstat_get" => {
            if call.arg(0) > 2 {
                return Err(Errno::BadDescriptor);
            }
            let mut stat = [0; 24];
            stat[0] = 2; // a character device
            stat[8..16].copy_from_slice(&(1u64 << 1 | 1 << 6).to_le_bytes()); // may be read and written
            let at = call.arg(1);
            call.put(at, &stat)
        }
        "fd_seek" | "fd_tell" => Err(if call.arg(0) < 3 {
            Errno::Seek
        } else {
            Errno::BadDescriptor
        }),
        "fd_prestat_get" | "fd_prestat_dir_name" => Err(Errno::BadDescriptor),
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
        _ => Err(Errno::NoSystemCall),
    }
}

fn stream<S: System>(system: &mut S, write: bool, call: &mut Call<'_>) -> Result<(), Errno> {
    let (descriptor, array, count, done_at) = (call.arg(0) as u32, call.arg(1), call.arg(2), call.arg(3));
    if count > VECTORS {
        return Err(Errno::Invalid);
    }
    let mut done = 0;
    for at in 0..count {
        let (start, length) = call.vector(array, at)?;
        let bytes = call.bytes(start, length)?;
        let moved = if write {
            system.write(descriptor, bytes)?
        } else {
            system.read(descriptor, bytes)?
        };
        done += moved;
        if (moved as u64) < length {
            break;
        }
    }
    call.put32(done_at, done)
}
