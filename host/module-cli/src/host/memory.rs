//! Mapping, calling and looking up: what needs `unsafe`.

use super::{HostError, Task};
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
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
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

/// A name of the C library of the host, its mathematics included.
pub fn host_symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a C string; the library is the C library's own and has no initialisers that matter.
    unsafe { libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    // SAFETY: the name is a C string that lives through the call.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}

/// The address of the routine that lazy stubs call.
pub fn binder_address() -> u64 {
    binder as *const () as u64
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
