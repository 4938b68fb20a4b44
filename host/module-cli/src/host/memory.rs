//! Mapping, calling and looking up: what needs `unsafe`.

use super::{HostError, Task};
use linker::module::instance::Runtime;
use std::ffi::{CString, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = abi::address::PAGE as usize;

fn system(what: &'static str) -> HostError {
    HostError::System(what, std::io::Error::last_os_error())
}

/// An anonymous file with a module object in it.
pub struct File(OwnedFd);

impl File {
    /// A file with these bytes.
    pub fn new(name: &str, bytes: &[u8]) -> Result<Self, HostError> {
        use std::io::Write;
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name is a C string that lives through the call.
        let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return Err(system("an anonymous file"));
        }
        // SAFETY: the number was just opened, and nobody else has it.
        let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(number) });
        file.write_all(bytes)
            .map_err(|error| HostError::System("writing an anonymous file", error))?;
        Ok(Self(file.into()))
    }
}

/// Where the parts of an instance come from, in bytes of the file.
pub struct Segment {
    pub thunks_at: usize,
    pub thunk_bytes: usize,
    pub template_at: usize,
    pub template_bytes: usize,
    pub data_bytes: usize,
}

/// A range of memory that is unmapped when dropped.
pub struct Mapping {
    start: usize,
    bytes: usize,
    /// Byte of the range where the data begins, and its length; none for shared text.
    data: (usize, usize),
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this module and belongs to this value alone.
        unsafe { libc::munmap(self.start as *mut c_void, self.bytes) };
    }
}

/// Maps `bytes` of a file at a fixed place inside a range that the caller owns, or that is free (`extra`).
fn map(
    file: Option<&File>,
    offset: usize,
    at: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
) -> Result<usize, HostError> {
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    let number = file.map_or(-1, |file| file.0.as_raw_fd());
    // SAFETY: callers pass either MAP_FIXED inside a range of their own, or a hint that replaces nothing.
    let address = unsafe { libc::mmap(at as *mut c_void, bytes, protection, flags, number, offset) };
    if address == libc::MAP_FAILED {
        Err(system("mapping"))
    } else {
        Ok(address as usize)
    }
}

impl Mapping {
    /// Tables, text and constants at the module's address. Nothing is replaced.
    pub fn shared_at(file: &File, address: u64, text: usize, constants: usize, end: usize) -> Result<Self, HostError> {
        let at = address as usize;
        let end = end.next_multiple_of(PAGE);
        // The frames are the file's; private is only what a debugger writes there for its breakpoints.
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        map(Some(file), 0, at, end, libc::PROT_READ, flags)?;
        let mapping = Self {
            start: at,
            bytes: end,
            data: (0, 0),
        };
        if text < constants {
            // SAFETY: the range is the one just mapped; making it executable is what it is for.
            let failed = unsafe {
                let range = (at + text) as *mut c_void;
                libc::mprotect(range, constants - text, libc::PROT_READ | libc::PROT_EXEC)
            };
            if failed != 0 {
                return Err(system("making text executable"));
            }
        }
        Ok(mapping)
    }

    /// Thunks and data of a new instance, anywhere.
    pub fn segment(file: &File, sizes: &Segment) -> Result<Self, HostError> {
        let data_bytes = sizes.data_bytes.next_multiple_of(PAGE);
        let bytes = sizes.thunk_bytes + data_bytes;
        let write = libc::PROT_READ | libc::PROT_WRITE;
        let start = map(None, 0, 0, bytes, write, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        let mapping = Self {
            start,
            bytes,
            data: (sizes.thunk_bytes, sizes.data_bytes),
        };
        if sizes.thunk_bytes > 0 {
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            map(Some(file), sizes.thunks_at, start, sizes.thunk_bytes, protection, flags)?;
        }
        let template = sizes.template_bytes.next_multiple_of(PAGE);
        if template > 0 {
            let at = start + sizes.thunk_bytes;
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
            map(Some(file), sizes.template_at, at, template, write, flags)?;
        }
        Ok(mapping)
    }

    /// Where the data begins.
    pub fn data_address(&self) -> u64 {
        (self.start + self.data.0) as u64
    }

    /// The data.
    pub fn data(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped readable and writable as long as this value lives. The module's own code
        // writes it only inside `call`, through which no slice is held.
        unsafe { std::slice::from_raw_parts_mut((self.start + self.data.0) as *mut u8, self.data.1) }
    }
}

/// Calls a function of up to four words.
pub fn call(address: u64, [a, b, c, d]: [u64; 4]) -> u64 {
    // SAFETY: the address is that of an exported function or of one that a linked module calls at
    // instantiation; running a module's code is as safe as the module is, which the caller has chosen to run.
    let function: extern "C" fn(u64, u64, u64, u64) -> u64 = unsafe { std::mem::transmute(address as usize) };
    function(a, b, c, d)
}

#[link(name = "gcc_s")]
unsafe extern "C" {
    fn __register_frame_info_bases(begin: *const c_void, record: *mut c_void, text: *mut c_void, data: *mut c_void);
    fn __deregister_frame_info_bases(begin: *const c_void) -> *mut c_void;
}

unsafe extern "C" {
    fn __cxa_finalize(handle: *mut c_void);
}

/// Entries for unwinding that the host's unwinder (libgcc) knows, until this is dropped.
pub struct Frames {
    begin: u64,
    /// The unwinder's own: it needs some sixty bytes, which it links into its list.
    _record: Box<[u64; 16]>,
}

impl Frames {
    /// Makes the entries known that begin at an address and end with a zero; `data` is what their pointers relative to
    /// data are relative to. They must stay mapped until this is dropped.
    pub fn register(begin: u64, data: u64) -> Self {
        let mut record = Box::new([0_u64; 16]);
        // SAFETY: the entries were written by the linker, checked when the module was opened, and stay mapped as the caller
        // promises; the record has its own memory, which is given back only after the entries are unknown again.
        unsafe {
            __register_frame_info_bases(
                begin as *const c_void,
                record.as_mut_ptr().cast(),
                std::ptr::null_mut(),
                data as *mut c_void,
            );
        }
        Self { begin, _record: record }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: they were registered under this address, once.
        unsafe { __deregister_frame_info_bases(self.begin as *const c_void) };
    }
}

/// Stops the process for its debugger.
pub fn trap() {
    // SAFETY: a signal to this thread; without a debugger it ends the process, as the caller wants.
    unsafe { libc::raise(libc::SIGTRAP) };
}

/// Calls what the code of an instance asked to have called at its end (`__cxa_atexit`): its data is its handle.
pub fn finalize(data: u64) {
    // SAFETY: what is called are functions of the instance, which is whole, as are all that it uses.
    unsafe { __cxa_finalize(data as *mut c_void) };
}

/// A name of the C library of the host, its mathematics, or of the C++ library and the unwinder.
pub fn host_symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    for library in [c"libm.so.6", c"libgcc_s.so.1", c"libstdc++.so.6"] {
        // SAFETY: the name is a C string; the libraries are the compiler's own, and what they do at their start they do in
        // every process that uses them.
        unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        // SAFETY: the name is a C string that lives through the call.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !address.is_null() {
            return Some(address as u64);
        }
    }
    None
}

/// The functions and words that instances of the task at an address need of it.
pub fn runtime(table: u64) -> Runtime {
    Runtime {
        table,
        binder: binder as *const () as u64,
        reach: reach as *const () as u64,
        // A process of the host ends by itself.
        end: 0,
    }
}

/// How many of so many words from an address in a caller's frame on can be read: those of its page, and of each further page that the
/// kernel can read.
extern "C" fn reach(from: u64, words: u32) -> u32 {
    let mut end = from.next_multiple_of(PAGE as u64);
    if end == from && !can_read(from) {
        return 0;
    }
    while end < from + 8 * u64::from(words) && can_read(end) {
        end += PAGE as u64;
    }
    words.min(((end - from) / 8) as u32)
}

/// Whether there is memory at an address: the kernel refuses the call for its first number, after it has read what
/// the address leads to. The thread's `errno` stays: a function may be about to tell it.
fn can_read(address: u64) -> bool {
    // SAFETY: nothing is written but this thread's `errno`, and what is at the address is only read, by the kernel, which may be
    // told any.
    unsafe {
        let place = libc::__errno_location();
        let before = place.read();
        let failed = libc::syscall(libc::SYS_rt_sigprocmask, -1, address as *const c_void, 0, 8);
        let why = std::mem::replace(&mut *place, before);
        failed == 0 || why != libc::EFAULT
    }
}

extern "C" fn binder(data: u64, slot: u32) {
    // SAFETY: only lazy stubs call this, with the data of an instance; its header holds the address of the task
    // that made it, which does not move and outlives its instances. Its table is borrowed only while no module code runs.
    let task = unsafe {
        let table = (data as usize + linker::module::format::DATA_TABLE_AT as usize) as *const u64;
        &*(table.read() as usize as *const Task)
    };
    if let Err(error) = task.bind_slot(data, slot) {
        eprintln!("module: {error}");
        std::process::abort();
    }
}
