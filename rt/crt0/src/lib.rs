//! The beginning of every program, whether it runs on the server (`rt`) or on the bare µ-kernel (`nucleus`): the
//! trap, the first instruction, and relocation.
//!
//! An image lies at an address that nobody knew when it was linked, and nobody but its own start code relocates it.
#![no_std]

mod arch;

use abi::{Error, error::Result};

pub use arch::{fault, is_relative, system_call, ticks, use_vectors};

/// The registers that come back from the kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// 0 is success, else the code of an [`Error`].
    pub error: u64,
    /// The value.
    pub value: u64,
    /// The second value.
    pub value2: u64,
}

impl Answer {
    /// The values or the error.
    ///
    /// # Errors
    /// The one that the code names; a code the table does not know counts as [`Error::BadCall`].
    #[inline]
    pub fn result(self) -> Result<(u64, u64)> {
        match self.error {
            0 => Ok((self.value, self.value2)),
            code => Err(error_of(code)),
        }
    }
}

/// Out of the way of calls that succeed.
#[cold]
#[inline(never)]
fn error_of(code: u64) -> Error {
    Error::from_code(code).unwrap_or(Error::BadCall)
}

/// Fills in the image's pointers, before any code that might use one; false if it asks for more than that.
///
/// # Safety
/// `dynamic` is the dynamic section of the image at `image`, and nobody else looks at its data.
#[inline(always)]
pub unsafe fn relocate(image: u64, dynamic: *const [u64; 2]) -> bool {
    const RELA: u64 = 7;
    const RELA_BYTES: u64 = 8;
    let (mut table, mut bytes) = (0, 0);
    let mut at = dynamic;
    loop {
        // SAFETY: the section ends with a null tag, and we have not met it.
        let [tag, value] = unsafe { at.read() };
        match tag {
            0 => break,
            RELA => table = value,
            RELA_BYTES => bytes = value,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    let table = (image + table) as *const [u64; 3];
    for index in 0..bytes as usize / size_of::<[u64; 3]>() {
        // SAFETY: the linker made a table of `bytes` bytes there.
        let [offset, kind, addend] = unsafe { table.add(index).read() };
        if !is_relative(kind) {
            return false;
        }
        // SAFETY: a relocation names a pointer inside the image's writable pages.
        unsafe { ((image + offset) as *mut u64).write_unaligned(image.wrapping_add(addend)) };
    }
    true
}
