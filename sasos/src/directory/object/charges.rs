//! What objects are charged for their records and rows.

use store::{ObjectRecord, ROW_HEAP_BYTES, Sums};

use super::{CAPABILITY_BYTES, ENTRY_BYTES, OBJECT_BYTES, PDX_BYTES, slots_for};
use crate::accounts::Resource;

/// Capabilities of an object that cost nothing beyond [`OBJECT_BYTES`]: most have no more.
const CAPABILITIES_FREE: u64 = 4;
/// Bytes of the heap that a kept object costs even while it rests: its part of what the store knows of leaves of its table. A million objects were measured to take four bytes each, with leaves half full; where many
/// were deleted, leaves may have fewer rows.
pub const REST_BYTES: u64 = 8;

/// Bytes that the capabilities of a record cost beyond [`OBJECT_BYTES`].
pub fn record_bytes(record: &ObjectRecord) -> u64 {
    let capabilities = (record.capabilities.len() as u64).saturating_sub(CAPABILITIES_FREE);
    let pdx = record.pdx.len() as u64 * PDX_BYTES + record.pdx.entries() as u64 * ENTRY_BYTES;
    capabilities * CAPABILITY_BYTES + pdx
}

/// Bytes that the row of a record costs in the store, which has a copy of it.
pub fn row_bytes(record: &ObjectRecord) -> u64 {
    ROW_HEAP_BYTES + record_bytes(record)
}

/// Bytes that a kept object costs the heap while it is active, beside [`REST_BYTES`].
pub fn active_bytes(record: &ObjectRecord) -> u64 {
    OBJECT_BYTES + record_bytes(record) + row_bytes(record)
}

/// The resources that a kept object is charged for whether it is active or not.
pub const KEPT: [Resource; 3] = [Resource::Bytes, Resource::Rows, Resource::Kept];

/// The amounts of these.
pub fn kept_charges(record: &ObjectRecord) -> [(Resource, u64); KEPT.len()] {
    let [any, rows, kept] = KEPT;
    [
        (any, REST_BYTES),
        (rows, REST_BYTES),
        (kept, slots_for(record.base, record.pages)),
    ]
}

/// The same of all kept objects of which there are these sums. No machine has as much as the bound, and sums over accounts do not overflow.
pub fn charges_of(sums: Sums) -> [u64; KEPT.len()] {
    let bytes = sums.rows.saturating_mul(REST_BYTES).min(1 << 60);
    [bytes, bytes, sums.slots.min(1 << 60)]
}
