//! Writing entries and what they have in common, in the form that [`unwind`](super::unwind) reads.

use super::unwind::{POINTER_HERE, WORD_IN_DATA};
use alloc::vec::Vec;

/// Adds a signed number of as many bytes as it needs.
pub fn put_signed(bytes: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value.cast_unsigned() & 0x7f) as u8;
        value >>= 7;
        let done = (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0);
        bytes.push(if done { byte } else { byte | 0x80 });
        if done {
            return;
        }
    }
}

/// Adds an unsigned number of as many bytes as it needs.
pub fn put_unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        bytes.push(if value == 0 { byte } else { byte | 0x80 });
        if value == 0 {
            return;
        }
    }
}

/// Adds a common part: pointers to functions relative to the field, and, as they are wanted, a personality routine at
/// a displacement from the data and pointers to tables of handlers. Says where it begins.
pub fn put_common(bytes: &mut Vec<u8>, from: &Kept<'_>) -> usize {
    let at = bytes.len();
    bytes.extend([0; 8]);
    bytes.push(1);
    bytes.push(b'z');
    let mut extra = Vec::new();
    if let Some(displacement) = from.personality {
        bytes.push(b'P');
        extra.push(WORD_IN_DATA);
        extra.extend(displacement.to_le_bytes());
    }
    if from.handlers {
        bytes.push(b'L');
        extra.push(POINTER_HERE);
    }
    bytes.push(b'R');
    extra.push(POINTER_HERE);
    if from.interrupted {
        bytes.push(b'S');
    }
    bytes.push(0);
    put_unsigned(bytes, from.code_unit);
    put_signed(bytes, from.data_unit);
    bytes.push(from.return_column);
    put_unsigned(bytes, extra.len() as u64);
    bytes.extend(extra);
    bytes.extend(from.rules);
    close(bytes, at);
    at
}

/// What a common part of a module is made from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kept<'a> {
    /// What places in code are counted in.
    pub code_unit: u64,
    /// What places on the stack are counted in.
    pub data_unit: i64,
    /// The column that stands for the caller's next instruction.
    pub return_column: u8,
    /// Whether its frames were interrupted.
    pub interrupted: bool,
    /// The displacement of the word with the personality routine.
    pub personality: Option<i32>,
    /// Whether its entries have tables of handlers.
    pub handlers: bool,
    /// Its rules.
    pub rules: &'a [u8],
}

/// Of code that the linker makes: the return address on top of the stack.
pub const PLAIN: Kept<'static> = Kept {
    code_unit: 1,
    data_unit: -8,
    return_column: 16,
    interrupted: false,
    personality: None,
    handlers: false,
    // The frame's address is rsp + 8, the return address stands 8 below it; two that say nothing.
    rules: &[0x0c, 7, 8, 0x90, 1, 0, 0],
};

/// Adds an entry. `start` and `handlers` are relative to byte zero of `bytes`; `common` is where its common part begins.
/// Says where it begins.
pub fn put_entry(
    bytes: &mut Vec<u8>,
    common: usize,
    start: i64,
    covered: u32,
    handlers: Option<Option<i64>>,
    rules: &[u8],
) -> usize {
    let at = bytes.len();
    bytes.extend([0; 4]);
    bytes.extend(((at + 4 - common) as u32).to_le_bytes());
    bytes.extend(distance(start, at + 8).to_le_bytes());
    bytes.extend(covered.to_le_bytes());
    match handlers {
        None => bytes.push(0),
        Some(place) => {
            bytes.push(4);
            // Zero means that there is none.
            let distance = place.map_or(0, |place| distance(place, bytes.len()));
            bytes.extend(distance.to_le_bytes());
        }
    }
    bytes.extend(rules);
    close(bytes, at);
    at
}

/// From a field to a place, both from byte zero: in a module, which is shorter than a distance may be.
const fn distance(place: i64, field: usize) -> i32 {
    (place - (field as u64).cast_signed()) as i32
}

/// Ends what begins at `at`: padded with rules that say nothing, its length in its first word.
fn close(bytes: &mut Vec<u8>, at: usize) {
    bytes.resize(at + (bytes.len() - at).next_multiple_of(8), 0);
    let length = (bytes.len() - at - 4) as u32;
    bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
