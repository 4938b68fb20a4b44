//! The ports that the server may use: those of the PCI configuration mechanism.

use abi::Error;
use drivers::world::Ports;

use crate::arch::IoPorts;

/// Ports of the PCI configuration mechanism.
const PCI_PORTS: core::ops::Range<u64> = 0xcf8..0xd00;

fn pci_port(port: u64, bytes: u64) -> Result<u16, Error> {
    if PCI_PORTS.contains(&port) && PCI_PORTS.contains(&(port.saturating_add(bytes).saturating_sub(1))) {
        Ok(port as u16)
    } else {
        Err(Error::Protection)
    }
}

pub(super) fn read(port: u64, bytes: u64) -> Result<u64, Error> {
    let port = pci_port(port, bytes)?;
    match bytes {
        1 => Ok(u64::from(IoPorts.read_u8(port))),
        2 => Ok(u64::from(IoPorts.read_u16(port))),
        4 => Ok(u64::from(IoPorts.read_u32(port))),
        _ => Err(Error::BadArgument),
    }
}

pub(super) fn write(port: u64, bytes: u64, value: u64) -> Result<(), Error> {
    let port = pci_port(port, bytes)?;
    match bytes {
        1 => IoPorts.write_u8(port, value as u8),
        2 => IoPorts.write_u16(port, value as u16),
        4 => IoPorts.write_u32(port, value as u32),
        _ => return Err(Error::BadArgument),
    }
    Ok(())
}
