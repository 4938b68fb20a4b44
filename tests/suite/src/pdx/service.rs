//! The procedures that are called, and their registration. They stand in the suite's own image, which
//! the registered Clist grants to the callee.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use abi::layout::Capability;
use rt::{
    Clist, Object, call,
    pdx::{self, Domain},
};

use crate::{
    arch::{self, registers},
    case::Outcome,
};

rt::pdx_entry!(pub add_entry, add);
pub fn add(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    (a.wrapping_add(b), c ^ d)
}

rt::pdx_entry!(pub read_entry, read);
fn read(address: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (arch::load(address), 0)
}

rt::pdx_entry!(pub write_entry, write);
fn write(address: u64, word: u64, _: u64, _: u64) -> (u64, u64) {
    arch::store(address, word);
    (word, 0)
}

rt::pdx_entry!(pub stack_entry, stack);
fn stack(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    let here = core::hint::black_box(0x5ec_2e70_u64);
    (&raw const here as u64, here)
}

rt::pdx_entry!(pub nest_entry, nest);
/// Calls itself as deep as it goes; gives the depth and the error at the bottom.
fn nest(depth: u64, pd: u64, most: u64, _: u64) -> (u64, u64) {
    if depth == most {
        return (depth, 0);
    }
    match call::pdx_call(nest_entry().address(), depth + 1, pd, pd, most, 0) {
        Ok(deeper) => deeper,
        Err(error) => (depth, error as u64),
    }
}

rt::pdx_entry!(pub fault_entry, fault);
/// Fails in one way or another.
fn fault(way: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    match way {
        0 => (arch::load(0x40), 0),
        1 => {
            arch::store(fault as *const () as u64, 1);
            (0, 0)
        }
        2 => arch::jump(0x1234_5000),
        3 => (recurse(1), 0),
        4 => rt::exit(5),
        crime => {
            if let Some(crime) = arch::CRIMES.get(crime as usize - FAULTS_OF_ITS_OWN as usize) {
                arch::commit(crime);
            }
            (0, 0)
        }
    }
}
/// Ways to fail that are not crimes.
pub const FAULTS_OF_ITS_OWN: u64 = 5;

#[allow(unconditional_recursion, reason = "that is the fault")]
fn recurse(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 32]);
    recurse(frame[1] + 1) + frame[0]
}

rt::pdx_entry!(pub around_entry, around);
/// Calls the failing procedure, and tells the error.
fn around(way: u64, pd: u64, _: u64, _: u64) -> (u64, u64) {
    match call::pdx_call(fault_entry().address(), way, pd, 0, 0, 0) {
        Ok(_) => (0, 1),
        Err(error) => (error as u64, 2),
    }
}

rt::pdx_entry!(pub call_entry, any_call);
/// Does a system call inside; gives the error and the value.
fn any_call(number: u64, argument0: u64, argument1: u64, argument2: u64) -> (u64, u64) {
    let answer = arch::system_call(number, [argument0, argument1, argument2, 0, 0, 0]);
    (answer.error, answer.value)
}

/// How many threads linger inside.
pub static INSIDE: AtomicU64 = AtomicU64::new(0);

rt::pdx_entry!(pub linger_entry, linger);
/// Stays inside for so many milliseconds.
fn linger(ms: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    INSIDE.fetch_add(1, SeqCst);
    let slept = rt::time::sleep_ms(ms);
    INSIDE.fetch_sub(1, SeqCst);
    (ms, u64::from(slept.is_err()))
}

pub fn entries() -> [u64; 11] {
    [
        add_entry().address(),
        read_entry().address(),
        write_entry().address(),
        stack_entry().address(),
        nest_entry().address(),
        fault_entry().address(),
        around_entry().address(),
        call_entry().address(),
        linger_entry().address(),
        registers::leak_entry(),
        registers::faulting_entry(),
    ]
}

pub fn image() -> Outcome<u64> {
    Ok(pdx::own_image().ok_or(rt::Error::NotAProgram)?.0)
}

/// A service: the suite's procedures, registered with a Clist.
pub struct Service {
    pub image: u64,
    pub password: u64,
    pub clist: Clist,
}

impl Service {
    /// Registers the procedures so that they may use these objects and call each other.
    pub fn open(objects: &[&Object]) -> Outcome<Self> {
        let image = image()?;
        let mut clist = pdx::clist_for(objects)?;
        let password = arch::obj_cre_pdx(image, 0, clist.object().base(), &entries())?;
        clist.insert(Capability {
            address: image,
            password,
        })?;
        Ok(Self { image, password, clist })
    }

    /// Takes the right to call from everybody, and registers the procedures again with the same password.
    pub fn renew(&self) -> Outcome {
        call::obj_passwd(self.image, self.password, 0)?;
        arch::obj_cre_pdx(self.image, self.password, self.clist.object().base(), &entries())?;
        Ok(())
    }

    /// A Clist for a client: nothing but the right to call.
    pub fn client_clist(&self) -> Outcome<Clist> {
        let mut clist = Clist::create()?;
        clist.insert(Capability {
            address: self.image,
            password: self.password,
        })?;
        Ok(clist)
    }
}

/// Both usual domains.
pub const BOTH: [Domain; 2] = [Domain::Empty, Domain::Merge];
