//! A machine for the tests: memory, PCI configuration space behind its two ports, and one virtio
//! device.
//!
//! Written from the specifications and not from the drivers, so that a misreading shows. The device
//! ([`virtio`]) follows the protocol until a test tells it not to.

use crate::pci::Address;
use crate::world::{DmaMemory, Mmio, PAGE_BYTES, Ports, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) mod virtio;

use virtio::Device;

/// Where the fake firmware put the two BARs.
pub(crate) const MSIX_BAR: u64 = 0xfebd_1000;
pub(crate) const REGISTER_BAR: u64 = 0x38_0000_0000;
const MSIX_BAR_BYTES: u64 = 0x1000;
const REGISTER_BAR_BYTES: u64 = 0x4000;

/// Physical memory: frames that appear when allocated. An access elsewhere fails the test, as it
/// would crash a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Rc<RefCell<BTreeMap<u64, [u8; PAGE_BYTES]>>>);

impl Memory {
    pub(crate) fn allocate(&self) -> u64 {
        let mut frames = self.0.borrow_mut();
        let physical = 0x10_0000 + frames.len() as u64 * PAGE_BYTES as u64;
        frames.insert(physical, [0; PAGE_BYTES]);
        physical
    }

    pub(crate) fn page(&self) -> Page {
        Page {
            memory: self.clone(),
            physical: self.allocate(),
        }
    }

    pub(crate) fn read<const N: usize>(&self, physical: u64) -> [u8; N] {
        let frames = self.0.borrow();
        let (frame, offset) = (physical & !0xfff, (physical & 0xfff) as usize);
        frames[&frame][offset..offset + N].try_into().unwrap()
    }

    pub(crate) fn write(&self, physical: u64, bytes: &[u8]) {
        let mut frames = self.0.borrow_mut();
        let (frame, offset) = (physical & !0xfff, (physical & 0xfff) as usize);
        let frame = frames
            .get_mut(&frame)
            .expect("the device wrote where there is no memory");
        frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn read_u16(&self, physical: u64) -> u16 {
        u16::from_le_bytes(self.read(physical))
    }
}

/// A page of [`Memory`].
#[derive(Debug)]
pub(crate) struct Page {
    memory: Memory,
    physical: u64,
}

impl Page {
    fn at(&self, offset: usize, bytes: usize) -> u64 {
        assert!(
            offset + bytes <= PAGE_BYTES && offset.is_multiple_of(bytes),
            "access to {offset}, {bytes} bytes"
        );
        self.physical + offset as u64
    }
}

impl DmaMemory for Page {
    fn physical(&self) -> u64 {
        self.physical
    }
    fn read_u8(&self, offset: usize) -> u8 {
        self.memory.read::<1>(self.at(offset, 1))[0]
    }
    fn read_u16(&self, offset: usize) -> u16 {
        self.memory.read_u16(self.at(offset, 2))
    }
    fn read_u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.memory.read(self.at(offset, 4)))
    }
    fn write_u8(&self, offset: usize, value: u8) {
        self.memory.write(self.at(offset, 1), &[value]);
    }
    fn write_u16(&self, offset: usize, value: u16) {
        self.memory.write(self.at(offset, 2), &value.to_le_bytes());
    }
    fn write_u32(&self, offset: usize, value: u32) {
        self.memory.write(self.at(offset, 4), &value.to_le_bytes());
    }
    fn write_u64(&self, offset: usize, value: u64) {
        self.memory.write(self.at(offset, 8), &value.to_le_bytes());
    }
}

/// A function's configuration space: its bytes, and which bits of its BARs can be written.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) bytes: [u8; 256],
    pub(crate) bar_masks: [u32; 6],
}

impl Config {
    pub(crate) fn new(vendor: u16, device: u16) -> Self {
        let mut config = Config {
            bytes: [0; 256],
            bar_masks: [0; 6],
        };
        config.put(0, &vendor.to_le_bytes());
        config.put(2, &device.to_le_bytes());
        config
    }

    pub(crate) fn bridge_to(bus: u8) -> Self {
        let mut config = Config::new(0x1b36, 0x000c);
        config.bytes[0x0e] = 1;
        config.bytes[0x19] = bus;
        config
    }

    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn u16_at(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.bytes[offset], self.bytes[offset + 1]])
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        match offset {
            // Only whole BAR registers are ever written; their low bits say what they are and
            // cannot change.
            0x10..=0x27 => {
                assert_eq!((bytes.len(), offset % 4), (4, 0), "partial write to a BAR");
                assert_eq!(
                    self.bytes[4] & 2,
                    0,
                    "a BAR was changed while the function answered in memory"
                );
                let mask = self.bar_masks[(offset - 0x10) / 4];
                let old = u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().unwrap());
                let new = u32::from_le_bytes(bytes.try_into().unwrap());
                self.put(offset, &(old & !mask | new & mask).to_le_bytes());
            }
            0x06 | 0x07 => panic!("write to the status register"),
            _ => self.put(offset, bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) functions: BTreeMap<Address, Config>,
    config_address: u32,
    pub(crate) device: Device,
    pub(crate) frames_left: usize,
}

/// The machine; clones are the same machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    inner: Rc<RefCell<Inner>>,
}

impl Machine {
    /// The PCI address of the virtio device.
    pub(crate) const DEVICE: Address = Address::new(0, 3, 0);

    /// A machine with one virtio device, configured as firmware does.
    pub(crate) fn with(device: Device) -> Self {
        let functions = BTreeMap::from([(Machine::DEVICE, virtio::config_of(&device))]);
        let memory = Memory::default();
        let inner = Inner {
            functions,
            config_address: 0,
            device,
            frames_left: 1000,
        };
        Machine {
            memory,
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// Looks at, or changes, the machine behind the driver's back.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Inner) -> R) -> R {
        look(&mut self.inner.borrow_mut())
    }

    /// The same for the device, which may reach memory.
    pub(crate) fn device<R>(&self, act: impl FnOnce(&mut Device, &Memory) -> R) -> R {
        act(&mut self.inner.borrow_mut().device, &self.memory)
    }

    fn config_access(&self, port: u16, bytes: usize) -> (Address, usize) {
        let selected = self.inner.borrow().config_address;
        assert!(selected & 1 << 31 != 0, "configuration space is not enabled");
        assert!((0xcfc..=0xcff).contains(&port), "port {port:#x}");
        let offset = (selected & 0xfc) as usize + usize::from(port - 0xcfc);
        assert!(offset.is_multiple_of(bytes));
        (
            Address::new((selected >> 16) as u8, (selected >> 11) as u8, (selected >> 8) as u8),
            offset,
        )
    }

    fn config_read<const N: usize>(&self, port: u16) -> [u8; N] {
        let (address, offset) = self.config_access(port, N);
        let inner = self.inner.borrow();
        inner
            .functions
            .get(&address)
            .map_or([0xff; N], |config| config.bytes[offset..offset + N].try_into().unwrap())
    }

    fn config_write(&self, port: u16, bytes: &[u8]) {
        let (address, offset) = self.config_access(port, bytes.len());
        if let Some(config) = self.inner.borrow_mut().functions.get_mut(&address) {
            config.write(offset, bytes);
        }
    }
}

impl Ports for Machine {
    fn read_u8(&self, port: u16) -> u8 {
        self.config_read::<1>(port)[0]
    }
    fn read_u16(&self, port: u16) -> u16 {
        u16::from_le_bytes(self.config_read(port))
    }
    fn read_u32(&self, port: u16) -> u32 {
        u32::from_le_bytes(self.config_read(port))
    }
    fn write_u8(&self, port: u16, value: u8) {
        self.config_write(port, &[value]);
    }
    fn write_u16(&self, port: u16, value: u16) {
        self.config_write(port, &value.to_le_bytes());
    }
    fn write_u32(&self, port: u16, value: u32) {
        match port {
            0xcf8 => self.inner.borrow_mut().config_address = value,
            _ => self.config_write(port, &value.to_le_bytes()),
        }
    }
}

impl World for Machine {
    type Window = Window;
    type Page = Page;

    fn map_registers(&mut self, physical: u64, bytes: usize) -> Option<Window> {
        let end = physical + bytes as u64;
        let inside = |base: u64, length: u64| base <= physical && end <= base + length;
        (inside(REGISTER_BAR, REGISTER_BAR_BYTES) || inside(MSIX_BAR, MSIX_BAR_BYTES)).then(|| Window {
            machine: self.clone(),
            physical,
            bytes,
        })
    }

    fn allocate_page(&mut self) -> Option<Page> {
        let mut inner = self.inner.borrow_mut();
        inner.frames_left = inner.frames_left.checked_sub(1)?;
        Some(self.memory.page())
    }
}

/// Registers of the device.
#[derive(Debug)]
pub(crate) struct Window {
    machine: Machine,
    physical: u64,
    bytes: usize,
}

impl Window {
    fn access<R>(&self, offset: usize, bytes: usize, act: impl FnOnce(&mut Inner, &Memory, u64) -> R) -> R {
        assert!(
            offset + bytes <= self.bytes && offset.is_multiple_of(bytes),
            "register {offset}, {bytes} bytes"
        );
        let mut inner = self.machine.inner.borrow_mut();
        act(&mut inner, &self.machine.memory, self.physical + offset as u64)
    }

    fn read(&self, offset: usize, bytes: usize) -> u32 {
        self.access(offset, bytes, |inner, _, at| match at {
            REGISTER_BAR.. => inner.device.read(at - REGISTER_BAR, bytes),
            _ => inner.device.read_msix((at - MSIX_BAR) as usize),
        })
    }

    fn write(&self, offset: usize, bytes: usize, value: u32) {
        self.access(offset, bytes, |inner, memory, at| {
            let config = &inner.functions[&Machine::DEVICE];
            assert_eq!(config.u16_at(4) & 2, 2, "the function does not answer in memory");
            inner.device.can_interrupt = config.u16_at(virtio::MSIX_CONTROL) >> 14 == 0b10;
            inner.device.can_reach_memory = config.u16_at(4) & 4 != 0;
            match at {
                REGISTER_BAR.. => inner.device.write(memory, at - REGISTER_BAR, bytes, value),
                _ => inner.device.write_msix((at - MSIX_BAR) as usize, value),
            }
        });
    }
}

impl Mmio for Window {
    fn read_u8(&self, offset: usize) -> u8 {
        self.read(offset, 1) as u8
    }
    fn read_u16(&self, offset: usize) -> u16 {
        self.read(offset, 2) as u16
    }
    fn read_u32(&self, offset: usize) -> u32 {
        self.read(offset, 4)
    }
    fn write_u8(&self, offset: usize, value: u8) {
        self.write(offset, 1, value.into());
    }
    fn write_u16(&self, offset: usize, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn write_u32(&self, offset: usize, value: u32) {
        self.write(offset, 4, value);
    }
}

/// Numbers for tests that want many (`SplitMix64`), repeatable from the seed.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(Cell::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mixed = self.0.get();
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
