//! PCI configuration space: finding functions, their capabilities and their register ranges.
//!
//! Mechanism 1 is used (an address port and a data port): it needs no table from the firmware,
//! reaches the first 256 bytes of a function's configuration space, and those hold all that these
//! drivers read. Buses are found by scanning bus 0 and following bridges. Nothing is assigned here:
//! firmware gave every BAR its place before the kernel started, and a BAR without one is refused by
//! name.

use crate::world::Ports;

const ADDRESS_PORT: u16 = 0xcf8;
const DATA_PORT: u16 = 0xcfc;

const VENDOR: u8 = 0x00;
const COMMAND: u8 = 0x04;
const STATUS: u8 = 0x06;
const CLASS: u8 = 0x0b;
const HEADER_TYPE: u8 = 0x0e;
const BAR0: u8 = 0x10;
const SECONDARY_BUS: u8 = 0x19;
const CAPABILITY_POINTER: u8 = 0x34;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTERRUPT_DISABLE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const HEADER_MANY_FUNCTIONS: u8 = 1 << 7;
const HEADER_BRIDGE: u8 = 1;

/// More capabilities than 192 bytes of configuration space can hold: a longer list is a loop.
const MOST_CAPABILITIES: usize = 48;

/// Where a function sits: bus, device (0–31) and function (0–7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address(u16);

impl Address {
    /// The address of `function` (0–7) of `device` (0–31) on `bus`; higher bits are dropped.
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Address((bus as u16) << 8 | ((device & 31) as u16) << 3 | (function & 7) as u16)
    }

    /// The bus.
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The device on its bus.
    pub const fn device(self) -> u8 {
        (self.0 >> 3) as u8 & 31
    }

    /// The function of its device.
    pub const fn function(self) -> u8 {
        self.0 as u8 & 7
    }
}

impl core::fmt::Display for Address {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "{:02x}:{:02x}.{}",
            self.bus(),
            self.device(),
            self.function()
        )
    }
}

/// A function found by [`Pci::functions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Where it sits.
    pub address: Address,
    /// The number of its maker.
    pub vendor: u16,
    /// Which device it is, by that vendor's numbering.
    pub device: u16,
    /// Base class code: 1 storage, 2 network, 6 bridge…
    pub class: u8,
}

/// A capability in a function's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// Its kind.
    pub identifier: u8,
    /// Where it starts in configuration space.
    pub offset: u8,
}

/// A range of device registers that firmware placed in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryBar {
    /// Physical address of the first byte.
    pub address: u64,
    /// Its length in bytes, a power of two.
    pub bytes: u64,
}

/// Why a BAR cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarError {
    /// There are BARs 0 to 5 only (and a 64-bit one needs two).
    NoSuchBar,
    /// The BAR names I/O ports, not memory.
    Ports,
    /// The BAR is not implemented, or firmware gave it no address.
    Unassigned,
}

/// PCI configuration space, through the ports `P`.
#[derive(Debug)]
pub struct Pci<P> {
    ports: P,
}

impl<P: Ports> Pci<P> {
    /// Configuration space behind `ports`. Only one processor may use it at a time.
    pub fn new(ports: P) -> Self {
        Pci { ports }
    }

    fn select(&self, address: Address, offset: u8) {
        self.ports.write_u32(
            ADDRESS_PORT,
            1 << 31 | u32::from(address.0) << 8 | u32::from(offset & 0xfc),
        );
    }

    /// Reads the byte at `offset`.
    pub fn read_u8(&self, address: Address, offset: u8) -> u8 {
        self.select(address, offset);
        self.ports.read_u8(DATA_PORT + u16::from(offset & 3))
    }

    /// Reads the two bytes at `offset` (even).
    pub fn read_u16(&self, address: Address, offset: u8) -> u16 {
        self.select(address, offset);
        self.ports.read_u16(DATA_PORT + u16::from(offset & 2))
    }

    /// Reads the four bytes at `offset` (a multiple of four).
    pub fn read_u32(&self, address: Address, offset: u8) -> u32 {
        self.select(address, offset);
        self.ports.read_u32(DATA_PORT)
    }

    /// Writes the two bytes at `offset` (even), and no others: the status register's bits are
    /// cleared by writing ones.
    pub fn write_u16(&self, address: Address, offset: u8, value: u16) {
        self.select(address, offset);
        self.ports.write_u16(DATA_PORT + u16::from(offset & 2), value);
    }

    /// Writes the four bytes at `offset` (a multiple of four).
    pub fn write_u32(&self, address: Address, offset: u8, value: u32) {
        self.select(address, offset);
        self.ports.write_u32(DATA_PORT, value);
    }

    /// Every function of the machine: bus 0, and what is behind its bridges. Each bus is scanned
    /// once, whatever bridges say.
    pub fn functions(&self) -> Functions<'_, P> {
        Functions {
            pci: self,
            to_scan: BusSet::of(0),
            scanned: BusSet::default(),
            next: None,
        }
    }

    /// The functions that `vendor` made as `device`, in the order of the scan.
    pub fn find(&self, vendor: u16, device: u16) -> impl Iterator<Item = Function> + '_ {
        self.functions()
            .filter(move |function| function.vendor == vendor && function.device == device)
    }

    /// The capabilities of the function at `address`, in list order.
    pub fn capabilities(&self, address: Address) -> impl Iterator<Item = Capability> + '_ {
        let present = self.read_u16(address, STATUS) & STATUS_CAPABILITIES != 0;
        let mut offset = if present {
            self.read_u8(address, CAPABILITY_POINTER) & 0xfc
        } else {
            0
        };
        core::iter::from_fn(move || {
            // The header ends at 0x40; a pointer into it ends the list as zero does.
            if offset < 0x40 {
                return None;
            }
            let found = Capability {
                identifier: self.read_u8(address, offset),
                offset,
            };
            offset = self.read_u8(address, offset + 1) & 0xfc;
            Some(found)
        })
        .take(MOST_CAPABILITIES)
    }

    /// Address and length of memory BAR `index` (0–5). Measuring switches the function's memory
    /// decoding off for a moment, so nobody may be using the device.
    ///
    /// # Errors
    /// If there is no such BAR, it names ports, or nobody gave it an address.
    pub fn memory_bar(&self, address: Address, index: u8) -> Result<MemoryBar, BarError> {
        if index > 5 {
            return Err(BarError::NoSuchBar);
        }
        if self.is_port_bar(address, index) {
            return Err(BarError::Ports);
        }
        let low_offset = BAR0 + 4 * index;
        let low = self.read_u32(address, low_offset);
        let is_wide = low & 6 == 4;
        if is_wide && index == 5 {
            return Err(BarError::NoSuchBar);
        }
        let command = self.read_u16(address, COMMAND);
        self.write_u16(address, COMMAND, command & !COMMAND_MEMORY);
        let low_mask = self.measure(address, low_offset) & !0xf;
        let (high, high_mask) = if is_wide {
            (
                self.read_u32(address, low_offset + 4),
                self.measure(address, low_offset + 4),
            )
        } else {
            (0, u32::MAX)
        };
        self.write_u16(address, COMMAND, command);

        let mask = u64::from(high_mask) << 32 | u64::from(low_mask);
        let base = u64::from(high) << 32 | u64::from(low & !0xf);
        let bytes = (!mask).wrapping_add(1);
        let is_implemented = low_mask != 0 || is_wide;
        if base == 0 || !is_implemented || !bytes.is_power_of_two() {
            return Err(BarError::Unassigned);
        }
        Ok(MemoryBar { address: base, bytes })
    }

    /// Whether BAR `index` exists and names I/O ports.
    pub fn is_port_bar(&self, address: Address, index: u8) -> bool {
        index <= 5 && self.read_u32(address, BAR0 + 4 * index) & 1 != 0
    }

    /// Which bits of the BAR register at `offset` can be written: those that are not part of its
    /// length.
    fn measure(&self, address: Address, offset: u8) -> u32 {
        let value = self.read_u32(address, offset);
        self.write_u32(address, offset, u32::MAX);
        let mask = self.read_u32(address, offset);
        self.write_u32(address, offset, value);
        mask
    }

    /// Lets the function at `address` answer in memory and reach memory itself, and silences its
    /// interrupt pin (the drivers use messages or poll).
    pub fn enable(&self, address: Address) {
        let command = self.read_u16(address, COMMAND);
        let wanted = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_INTERRUPT_DISABLE;
        self.write_u16(address, COMMAND, command | wanted);
    }

    /// Cuts the function at `address` off from memory.
    pub fn disable_bus_master(&self, address: Address) {
        let command = self.read_u16(address, COMMAND);
        self.write_u16(address, COMMAND, command & !COMMAND_BUS_MASTER);
    }
}

/// A set of bus numbers.
#[derive(Clone, Copy, Default, Debug)]
struct BusSet([u64; 4]);

impl BusSet {
    fn of(bus: u8) -> Self {
        let mut set = BusSet::default();
        set.insert(bus);
        set
    }

    fn insert(&mut self, bus: u8) {
        self.0[usize::from(bus >> 6)] |= 1 << (bus & 63);
    }

    fn contains(&self, bus: u8) -> bool {
        self.0[usize::from(bus >> 6)] & 1 << (bus & 63) != 0
    }

    fn first_not_in(&self, other: &BusSet) -> Option<u8> {
        (0..=u8::MAX).find(|bus| self.contains(*bus) && !other.contains(*bus))
    }
}

/// The iterator of [`Pci::functions`].
#[derive(Debug)]
pub struct Functions<'p, P> {
    pci: &'p Pci<P>,
    to_scan: BusSet,
    scanned: BusSet,
    /// The next address to look at; `None` when the next bus is to be chosen.
    next: Option<Address>,
}

impl<P: Ports> Iterator for Functions<'_, P> {
    type Item = Function;

    fn next(&mut self) -> Option<Function> {
        loop {
            let address = match self.next {
                Some(address) => address,
                None => self.open_bus()?,
            };
            if let Some(function) = self.look_at(address) {
                return Some(function);
            }
        }
    }
}

impl<P: Ports> Functions<'_, P> {
    fn open_bus(&mut self) -> Option<Address> {
        let bus = self.to_scan.first_not_in(&self.scanned)?;
        self.scanned.insert(bus);
        Some(Address::new(bus, 0, 0))
    }

    /// Reads the capability at `address`, if there is one; moves `next` past it.
    fn look_at(&mut self, address: Address) -> Option<Function> {
        let identity = self.pci.read_u32(address, VENDOR);
        let is_present = identity as u16 != u16::MAX;
        let header = if is_present {
            self.pci.read_u8(address, HEADER_TYPE)
        } else {
            0
        };
        // Functions 1 to 7 exist only where function 0 says so.
        let has_more = address.function() != 0 || header & HEADER_MANY_FUNCTIONS != 0;
        let step = if has_more { 1 } else { 8 };
        self.next = address
            .0
            .checked_add(step)
            .map(Address)
            .filter(|next| next.bus() == address.bus());
        if !is_present {
            return None;
        }
        if header & !HEADER_MANY_FUNCTIONS == HEADER_BRIDGE {
            self.to_scan.insert(self.pci.read_u8(address, SECONDARY_BUS));
        }
        Some(Function {
            address,
            vendor: identity as u16,
            device: (identity >> 16) as u16,
            class: self.pci.read_u8(address, CLASS),
        })
    }
}

#[cfg(test)]
mod tests;
