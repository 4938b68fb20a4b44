//! Requests of a driver to the machine.
//!
//! Three kinds of access exist, each with its own trait: I/O ports, windows of device registers,
//! and pages of ordinary memory that a device reads and writes behind the processor's back.
//! [`World`] hands out the last two. The traits are safe to call. An implementation of them vouches
//! for that, because a driver can make a device write to any physical address by way of a register:
//! the kernel gives these out to the drivers of this crate, which hand devices no addresses but
//! those of [`DmaMemory`] pages and [`DataPage`](crate::dma::DataPage)s.
//!
//! Registers, configuration space and virtio structures are little-endian; the methods take and
//! return native numbers.

/// Bytes in a page, the only size in which memory is given out.
pub const PAGE_BYTES: usize = 4096;

/// The x86 I/O ports: the PCI configuration mechanism and the serial lines live there.
///
/// A driver may use two ports as a pair (index, then data), so callers make sure that only one
/// processor at a time is inside; the kernel's lock does.
pub trait Ports {
    /// Reads a byte from `port`.
    fn read_u8(&self, port: u16) -> u8;
    /// Reads two bytes from `port`.
    fn read_u16(&self, port: u16) -> u16;
    /// Reads four bytes from `port`.
    fn read_u32(&self, port: u16) -> u32;
    /// Writes a byte to `port`.
    fn write_u8(&self, port: u16, value: u8);
    /// Writes two bytes to `port`.
    fn write_u16(&self, port: u16, value: u16);
    /// Writes four bytes to `port`.
    fn write_u32(&self, port: u16, value: u32);
}

impl<P: Ports + ?Sized> Ports for &P {
    fn read_u8(&self, port: u16) -> u8 {
        (**self).read_u8(port)
    }
    fn read_u16(&self, port: u16) -> u16 {
        (**self).read_u16(port)
    }
    fn read_u32(&self, port: u16) -> u32 {
        (**self).read_u32(port)
    }
    fn write_u8(&self, port: u16, value: u8) {
        (**self).write_u8(port, value);
    }
    fn write_u16(&self, port: u16, value: u16) {
        (**self).write_u16(port, value);
    }
    fn write_u32(&self, port: u16, value: u32) {
        (**self).write_u32(port, value);
    }
}

/// A window of device registers. Each access is one bus access of exactly that width, never merged
/// or repeated.
///
/// An access that is unaligned or not wholly inside behaves like one to an empty bus: reads give
/// all ones, writes do nothing.
pub trait Mmio {
    /// Reads the byte at `offset`.
    fn read_u8(&self, offset: usize) -> u8;
    /// Reads the two bytes at `offset`.
    fn read_u16(&self, offset: usize) -> u16;
    /// Reads the four bytes at `offset`.
    fn read_u32(&self, offset: usize) -> u32;
    /// Writes the byte at `offset`.
    fn write_u8(&self, offset: usize, value: u8);
    /// Writes the two bytes at `offset`.
    fn write_u16(&self, offset: usize, value: u16);
    /// Writes the four bytes at `offset`.
    fn write_u32(&self, offset: usize, value: u32);
}

/// One page ([`PAGE_BYTES`]) of memory that the processor shares with a device.
///
/// Any byte may change between two reads of it. Accesses out of bounds or unaligned behave as in
/// [`Mmio`]. Order between accesses is the caller's: `core::sync::atomic::fence` works on them.
pub trait DmaMemory {
    /// Where the page starts, as a device names it.
    fn physical(&self) -> u64;
    /// Reads the byte at `offset`.
    fn read_u8(&self, offset: usize) -> u8;
    /// Reads the two bytes at `offset`.
    fn read_u16(&self, offset: usize) -> u16;
    /// Reads the four bytes at `offset`.
    fn read_u32(&self, offset: usize) -> u32;
    /// Writes the byte at `offset`.
    fn write_u8(&self, offset: usize, value: u8);
    /// Writes the two bytes at `offset`.
    fn write_u16(&self, offset: usize, value: u16);
    /// Writes the four bytes at `offset`.
    fn write_u32(&self, offset: usize, value: u32);
    /// Writes the eight bytes at `offset`.
    fn write_u64(&self, offset: usize, value: u64);
}

/// Where drivers get register windows and shared pages from, while they probe.
pub trait World {
    /// The result of [`World::map_registers`].
    type Window: Mmio;
    /// The result of [`World::allocate_page`].
    type Page: DmaMemory;

    /// Makes `bytes` bytes of device registers at `physical` accessible, uncached.
    ///
    /// `None` if the range cannot be mapped, or is not device memory at all (the address comes from
    /// the device's configuration space: a window over RAM must be refused).
    fn map_registers(&mut self, physical: u64, bytes: usize) -> Option<Self::Window>;

    /// A zeroed page for a driver to share with its device, or `None` if memory is short.
    ///
    /// A driver keeps its pages as long as it lives. When a probe fails it has reset the device
    /// before it drops them.
    fn allocate_page(&mut self) -> Option<Self::Page>;
}
