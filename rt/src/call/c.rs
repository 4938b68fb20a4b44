//! The exports of `rt` as a module to programs in C: `modules/rt/rt.h` tells callers what each function does.
//!
//! A pointer that a program in C passes is its word for what is there, as everywhere in C: the functions read and write
//! the memory that their arguments name, and a wrong pointer is an access of the program's own, which faults or
//! spoils what is the program's. Strings end with a zero byte. A failure is told by its number, 0 is success.

use alloc::{boxed::Box, string::ToString};
use core::{
    alloc::Layout,
    ffi::{CStr, c_char},
    fmt::Write,
};

use abi::{
    address::{PAGE, USER_END, USER_START},
    layout::{FOREVER, PRIORITY_DEFAULT},
    start::Start,
};

use super::program::{ThreadStart, thread_entry};
use crate::{
    Directory, Error, Object, console,
    console::Stream,
    module::{self, Binding},
    object::state::{self, state},
};

/// The system's error for text that is not UTF-8, and for pointers that cannot be.
const BAD_ARGUMENT: u64 = abi::Error::BadArgument as u64;

/// The number of an outcome.
fn code<T, E: Into<Error>>(outcome: Result<T, E>, take: impl FnOnce(T)) -> u64 {
    match outcome {
        Ok(value) => {
            take(value);
            0
        }
        Err(error) => error.into().code(),
    }
}

/// The text at a pointer of the program's.
fn text<'a>(at: *const c_char) -> Option<&'a str> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the program says that a string is there (module theory).
    unsafe { CStr::from_ptr(at) }.to_str().ok()
}

/// Writes a result where the program wants it; nowhere, if it does not.
fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the program says that there is room for it (module theory).
        unsafe { at.write(value) };
    }
}

/// The bytes that a program names.
fn bytes<'a>(at: *const u8, count: usize) -> &'a [u8] {
    if at.is_null() || count > isize::MAX as usize {
        return &[];
    }
    // SAFETY: the program says that they are there (module theory).
    unsafe { core::slice::from_raw_parts(at, count) }
}

/// The room that a program names.
fn room<'a>(at: *mut u8, count: usize) -> &'a mut [u8] {
    if at.is_null() || count > isize::MAX as usize {
        return &mut [];
    }
    // SAFETY: the program says that it is there, and its own (module theory).
    unsafe { core::slice::from_raw_parts_mut(at, count) }
}

/// Text for C: cut to fit, ended by a zero byte.
struct Cut<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let last = self.room.len().saturating_sub(1);
        for byte in text.bytes() {
            if let Some(place) = self.room.get_mut(..last).and_then(|room| room.get_mut(self.at)) {
                *place = byte;
                self.at += 1;
            }
        }
        Ok(())
    }
}

/// Writes text where a program wants it; tells how long it is there.
fn tell(into: *mut u8, count: usize, shown: impl core::fmt::Display) -> usize {
    let mut cut = Cut {
        room: room(into, count),
        at: 0,
    };
    // It takes everything; an error could only come from a `Display` that fails.
    let _ = write!(cut, "{shown}");
    let at = cut.at;
    if let Some(end) = cut.room.get_mut(at) {
        *end = 0;
    }
    at
}

// ---- the end, the console ---------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn rt_exit(status: u64) -> ! {
    super::entry::exit(status)
}

#[unsafe(no_mangle)]
extern "C" fn rt_write(from: *const u8, count: usize) {
    console::write_bytes(Stream::Terminal, bytes(from, count));
}

#[unsafe(no_mangle)]
extern "C" fn rt_print(line: *const c_char) {
    if let Some(line) = text(line) {
        console::write_bytes(Stream::Terminal, line.as_bytes());
    }
}

#[unsafe(no_mangle)]
extern "C" fn rt_read(into: *mut u8, count: usize, read: *mut usize) -> u64 {
    code(console::read(Stream::Terminal, room(into, count)), |found| {
        put(read, found);
    })
}

#[unsafe(no_mangle)]
extern "C" fn rt_error_text(error: u64, into: *mut u8, count: usize) -> usize {
    match abi::Error::from_code(error) {
        Some(known) => tell(into, count, Error::System(known)),
        None => tell(into, count, format_args!("error {error} of the runtime (rt.h)")),
    }
}

// ---- the heap ---------------------------------------------------------------------------------

/// Before each block stands its length; a block is aligned as the head is.
const HEAD: usize = 16;

fn layout(count: usize) -> Option<Layout> {
    Layout::from_size_align(count.checked_add(HEAD)?, HEAD).ok()
}

#[unsafe(no_mangle)]
extern "C" fn rt_alloc(count: usize) -> *mut u8 {
    let Some(layout) = layout(count) else {
        return core::ptr::null_mut();
    };
    // SAFETY: the layout is not empty; the block is longer than its head.
    unsafe {
        let block = alloc::alloc::alloc(layout);
        if block.is_null() {
            return block;
        }
        (block as u64 as *mut usize).write(count);
        block.add(HEAD)
    }
}

#[unsafe(no_mangle)]
extern "C" fn rt_free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the program says that it had this from `rt_alloc` and gives it back once (module theory).
    unsafe {
        let start = block.sub(HEAD);
        if let Some(layout) = layout((start as u64 as *const usize).read()) {
            alloc::alloc::dealloc(start, layout);
        }
    }
}

// ---- objects and names ------------------------------------------------------------------------

/// An object, as C sees it.
#[repr(C)]
struct RtObject {
    base: u64,
    bytes: u64,
    password: u64,
}

#[unsafe(no_mangle)]
extern "C" fn rt_object_create(count: u64, made: *mut RtObject) -> u64 {
    code(Object::create_with_password(count), |(object, password)| {
        put(
            made,
            RtObject {
                base: object.base(),
                bytes: object.bytes(),
                password,
            },
        );
    })
}

#[unsafe(no_mangle)]
extern "C" fn rt_object_open(address: u64, found: *mut RtObject) -> u64 {
    code(Object::open(address), |object| {
        put(
            found,
            RtObject {
                base: object.base(),
                bytes: object.bytes(),
                password: 0,
            },
        );
    })
}

#[unsafe(no_mangle)]
extern "C" fn rt_object_keep(address: u64) -> u64 {
    code(super::keep_object(address), |()| ())
}

#[unsafe(no_mangle)]
extern "C" fn rt_object_delete(address: u64) -> u64 {
    code(Object::open(address).and_then(Object::delete), |()| ())
}

/// The object that a name leads to, as C sees it.
#[repr(C)]
struct RtFound {
    kind: u64,
    address: u64,
    password: u64,
    word: u64,
}

#[unsafe(no_mangle)]
extern "C" fn rt_look_up(path: *const c_char, found: *mut RtFound) -> u64 {
    let Some(path) = text(path) else {
        return BAD_ARGUMENT;
    };
    code(Directory::root().and_then(|root| root.find(path)), |it| {
        put(
            found,
            RtFound {
                kind: it.kind as u64,
                address: it.capability.address,
                password: it.capability.password,
                word: it.word,
            },
        );
    })
}

// ---- threads ----------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn rt_thread_start(run: u64, with: u64, thread: *mut u64) -> u64 {
    let own = core::ptr::from_ref(state()) as u64;
    let word = Box::into_raw(Box::new(ThreadStart { run, with, state: own }));
    // SAFETY: the entry takes such a word, and nobody else has it.
    let started = unsafe { super::thread_create(thread_entry as *const () as u64, word as u64, PRIORITY_DEFAULT) };
    if started.is_err() {
        // SAFETY: there is no thread that would have taken it.
        drop(unsafe { Box::from_raw(word) });
    }
    code(started, |id| put(thread, id))
}

#[unsafe(no_mangle)]
extern "C" fn rt_thread_wait(thread: u64, status: *mut u64) -> u64 {
    code(super::thread_wait_status(thread, FOREVER), |(_, ended)| {
        put(status, ended);
    })
}

#[unsafe(no_mangle)]
extern "C" fn rt_state() -> u64 {
    state::find().map_or(0, |state| core::ptr::from_ref(state) as u64)
}

/// # Safety
/// As `rt.h` says: the memory is zero and nobody else's.
#[unsafe(no_mangle)]
unsafe extern "C" fn rt_state_make(address: u64, count: u64, made: *mut u64) -> u64 {
    let end = address.checked_add(count).filter(|end| *end <= USER_END);
    let (Some(end), true) = (
        end,
        count >= state::LEAST && address >= USER_START && address.is_multiple_of(PAGE),
    ) else {
        return BAD_ARGUMENT;
    };
    // Confined: in a protected call an object would be the calling task's, and go with it.
    // SAFETY: long enough, as just seen; the rest is promised by the caller.
    put(made, unsafe {
        state::make((address, end), &Start::default(), Binding::Lazy, None, true)
    });
    0
}

/// # Safety
/// As `rt.h` says: the two topmost words of the stack are free.
#[unsafe(no_mangle)]
unsafe extern "C" fn rt_attach(state: u64) -> u64 {
    // SAFETY: promised by the caller.
    code(unsafe { state::attach(state) }, |()| ())
}

// ---- modules ----------------------------------------------------------------------------------

/// The number of an outcome; its text stays for [`rt_message`].
fn noted<T>(outcome: module::Result<T>, take: impl FnOnce(T)) -> u64 {
    match outcome {
        Ok(value) => {
            take(value);
            0
        }
        Err(error) => {
            *state().message.lock() = error.to_string();
            error.code()
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rt_module(name: *const c_char, handle: *mut u64) -> u64 {
    let Some(name) = text(name) else {
        return BAD_ARGUMENT;
    };
    noted(state().modules.instance(name), |instance| {
        put(handle, instance.handle());
    })
}

#[unsafe(no_mangle)]
extern "C" fn rt_symbol(handle: u64, name: *const c_char, address: *mut u64) -> u64 {
    let Some(name) = text(name) else {
        return BAD_ARGUMENT;
    };
    let modules = &state().modules;
    let found = modules.of_handle(handle).and_then(|instance| {
        let symbol = modules.symbol(instance, name);
        symbol.ok_or_else(|| module::Error::NoExport {
            module: modules.name(instance),
            symbol: name.to_string(),
        })
    });
    noted(found, |at| put(address, at))
}

#[unsafe(no_mangle)]
extern "C" fn rt_message(into: *mut u8, count: usize) -> usize {
    let message = state().message.lock().clone();
    tell(into, count, message)
}
