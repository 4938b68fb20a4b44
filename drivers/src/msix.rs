//! MSI-X: interrupts as memory writes.
//!
//! A function's MSI-X capability names a table in one of its BARs. Each entry holds an address, a
//! datum and a mask bit; to interrupt, the device writes the datum to the address. On x86 the
//! address selects a local APIC and the datum the vector ([`Message::to_local_apic`]). These
//! drivers use entry 0 only.

use crate::pci::{Address, Pci};
use crate::virtio::ProbeError;
use crate::world::{Mmio, Ports, World};

const CAPABILITY: u8 = 0x11;
const CONTROL: u8 = 2;
const TABLE: u8 = 4;
const CONTROL_ENABLE: u16 = 1 << 15;
const CONTROL_MASK_ALL: u16 = 1 << 14;
const CONTROL_LAST_ENTRY: u16 = 0x7ff;
const ENTRY_BYTES: usize = 16;
const ENTRY_CONTROL: usize = 12;
const ENTRY_MASKED: u32 = 1;

/// The write by which a device interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Physical address written to.
    pub address: u64,
    /// The word that is written.
    pub data: u32,
}

impl Message {
    /// A fixed, edge-triggered interrupt `vector` to the processor whose local APIC has identifier
    /// `apic`.
    pub const fn to_local_apic(apic: u8, vector: u8) -> Self {
        Message {
            address: 0xfee0_0000 | (apic as u64) << 12,
            data: vector as u32,
        }
    }
}

/// Makes table entry 0 of the function at `address` send `message`, masks every other entry, and
/// switches MSI-X on.
///
/// # Errors
/// [`ProbeError`]: it has no such capability, or its table cannot be reached.
pub fn enable<P: Ports, W: World>(
    pci: &Pci<P>,
    address: Address,
    world: &mut W,
    message: Message,
) -> Result<(), ProbeError> {
    let capability = pci
        .capabilities(address)
        .find(|found| found.identifier == CAPABILITY)
        .ok_or(ProbeError::NoMsix)?
        .offset;
    // The fixed fields take twelve bytes; a capability that runs out of configuration space is
    // none.
    if capability > 0xf4 {
        return Err(ProbeError::NoMsix);
    }
    let control = pci.read_u16(address, capability + CONTROL);
    let entries = usize::from(control & CONTROL_LAST_ENTRY) + 1;
    let place = pci.read_u32(address, capability + TABLE);
    let (index, offset) = ((place & 7) as u8, u64::from(place & !7));
    let bar = pci
        .memory_bar(address, index)
        .map_err(|error| ProbeError::Bar { index, error })?;
    let bytes = entries * ENTRY_BYTES;
    if offset + bytes as u64 > bar.bytes {
        return Err(ProbeError::OutsideBar { index });
    }
    let physical = bar.address + offset;
    let table = world
        .map_registers(physical, bytes)
        .ok_or(ProbeError::Unmappable { physical })?;

    // The order matters: no entry may fire half-written, and the table answers only while MSI-X is
    // on.
    pci.write_u16(
        address,
        capability + CONTROL,
        control | CONTROL_ENABLE | CONTROL_MASK_ALL,
    );
    for entry in 0..entries {
        let at = entry * ENTRY_BYTES + ENTRY_CONTROL;
        table.write_u32(at, table.read_u32(at) | ENTRY_MASKED);
    }
    table.write_u32(0, message.address as u32);
    table.write_u32(4, (message.address >> 32) as u32);
    table.write_u32(8, message.data);
    table.write_u32(ENTRY_CONTROL, table.read_u32(ENTRY_CONTROL) & !ENTRY_MASKED);
    pci.write_u16(
        address,
        capability + CONTROL,
        control & !CONTROL_MASK_ALL | CONTROL_ENABLE,
    );
    Ok(())
}
