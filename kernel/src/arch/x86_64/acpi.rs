//! The list of processors, from the firmware's tables.
//!
//! From the root pointer, which the loader tells, to the root table, to the MADT with its list of local interrupt
//! controllers. A table out of bounds, of the wrong kind or with a wrong sum counts as not there; then the
//! processor that boots is the only one.

use kcore::smp::PROCESSORS_MAX;

use super::direct::physical_bytes;

/// Local interrupt controllers of the processors that may be used, by their identifiers.
#[derive(Copy, Clone, Debug, Default)]
pub struct Processors {
    /// The identifiers; the first `count` are valid.
    pub ids: [u8; PROCESSORS_MAX],
    /// How many.
    pub count: usize,
    /// How many more there are than the kernel can use.
    pub unused: usize,
}

const HEADER: usize = 36;
/// No table that is read here is as long as that.
const LENGTH_MAX: usize = 64 << 10;

fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..BYTES].copy_from_slice(bytes.get(at..at + BYTES)?);
    Some(u64::from_le_bytes(word))
}

fn adds_up(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}

/// A whole table, if it is one.
fn table(physical: u64) -> Option<&'static [u8]> {
    let length = number::<4>(physical_bytes(physical, HEADER)?, 4)? as usize;
    let bytes = physical_bytes(physical, length.clamp(HEADER, LENGTH_MAX))?;
    (bytes.len() == length && adds_up(bytes)).then_some(bytes)
}

/// The table with this signature among those that the root table lists.
fn listed(root: u64, signature: [u8; 4]) -> Option<&'static [u8]> {
    let pointer = physical_bytes(root, 36)?;
    if !pointer.starts_with(b"RSD PTR ") || !adds_up(&pointer[..20]) {
        return None;
    }
    // The long root table (entries of eight bytes) came with revision 2.
    let long = number::<8>(pointer, 24).filter(|&address| pointer[15] >= 2 && address != 0);
    let (root, width) = match long {
        Some(address) => (table(address)?, 8),
        None => (table(number::<4>(pointer, 16)?)?, 4),
    };
    root[HEADER..].chunks_exact(width).find_map(|entry| {
        let address = if width == 8 {
            number::<8>(entry, 0)
        } else {
            number::<4>(entry, 0)
        };
        table(address?).filter(|found| found.starts_with(&signature))
    })
}

/// The processors that may be started, from the root pointer at a physical address.
pub fn processors(root: u64) -> Processors {
    let mut found = Processors::default();
    let Some(madt) = listed(root, *b"APIC") else {
        return found;
    };
    // Entries: kind, length. Kind 0: processor, identifier, flags (bit 0: enabled).
    let mut rest = madt.get(HEADER + 8..).unwrap_or_default();
    while let &[kind, length, ..] = rest
        && length >= 2
        && let Some(entry) = rest.get(..usize::from(length))
    {
        rest = &rest[usize::from(length)..];
        if kind == 0 && entry.len() >= 8 && entry[4] & 1 != 0 {
            match found.ids.get_mut(found.count) {
                Some(place) => {
                    *place = entry[3];
                    found.count += 1;
                }
                None => found.unused += 1,
            }
        }
    }
    found
}
