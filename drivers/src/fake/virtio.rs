//! The fake virtio device: registers, the device's half of the queue, and what block and entropy
//! devices do.

use super::{Config, MSIX_BAR, Memory, REGISTER_BAR};
use crate::virtio::queue::Addresses;
use std::collections::VecDeque;

/// Where the control word of the MSI-X capability is in configuration space.
pub(crate) const MSIX_CONTROL: usize = 0x9a;

const REGISTERS: u64 = 0;
const DEVICE_REGISTERS: u64 = 0x2000;
const DOORBELLS: u64 = 0x3000;
const QUEUE_NOTIFY_OFFSET: u32 = 3;
const DOORBELL_MULTIPLIER: u32 = 4;

/// The device's half of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceSide {
    pub(crate) size: u16,
    pub(crate) at: Addresses,
    pub(crate) taken: u16,
    pub(crate) put: u16,
}

/// A descriptor as the device reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) physical: u64,
    pub(crate) bytes: u32,
    pub(crate) is_written: bool,
}

impl DeviceSide {
    pub(crate) fn new(size: u16, at: Addresses) -> Self {
        DeviceSide {
            size,
            at,
            taken: 0,
            put: 0,
        }
    }

    /// The head of the next available chain.
    pub(crate) fn take(&mut self, memory: &Memory) -> Option<u16> {
        if memory.read_u16(self.at.available + 2) == self.taken {
            return None;
        }
        let head = memory.read_u16(self.at.available + 4 + 2 * u64::from(self.taken % self.size));
        self.taken = self.taken.wrapping_add(1);
        Some(head)
    }

    /// The pieces of the chain at `head`, checked as a strict device does.
    pub(crate) fn chain(&self, memory: &Memory, head: u16) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut index = head;
        loop {
            assert!(index < self.size, "descriptor {index} of {}", self.size);
            assert!(pieces.len() < usize::from(self.size), "the chain is a loop");
            let descriptor: [u8; 16] = memory.read(self.at.descriptors + 16 * u64::from(index));
            let word = |at: usize| u16::from_le_bytes([descriptor[at], descriptor[at + 1]]);
            let flags = word(12);
            assert_eq!(flags & !3, 0, "flags {flags:#x}");
            let is_written = flags & 2 != 0;
            assert!(
                is_written || pieces.iter().all(|piece| !piece.is_written),
                "a readable piece after a writable one"
            );
            pieces.push(Piece {
                physical: u64::from_le_bytes(descriptor[..8].try_into().unwrap()),
                bytes: u32::from_le_bytes(descriptor[8..12].try_into().unwrap()),
                is_written,
            });
            if flags & 1 == 0 {
                return pieces;
            }
            index = word(14);
        }
    }

    /// Writes a used entry, whatever it says, and announces it.
    pub(crate) fn put(&mut self, memory: &Memory, head: u32, written: u32) {
        let entry = self.at.used + 4 + 8 * u64::from(self.put % self.size);
        memory.write(entry, &head.to_le_bytes());
        memory.write(entry + 4, &written.to_le_bytes());
        self.put = self.put.wrapping_add(1);
        memory.write(self.at.used + 2, &self.put.to_le_bytes());
    }
}

/// The kind of device, and its state.
#[derive(Debug)]
pub(crate) enum Kind {
    Disk(Vec<u8>),
    /// Gives at most this many bytes a request, counting up from 1.
    Entropy(usize, u8),
}

/// Offences of the device against the rules.
#[expect(clippy::struct_excessive_bools, reason = "a test switches them one by one")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mischief {
    pub(crate) ignores_reset: bool,
    pub(crate) refuses_features: bool,
    pub(crate) refuses_vector: bool,
    pub(crate) never_holds_still: bool,
    /// Reported for every request instead of doing it.
    pub(crate) status: Option<u8>,
    /// Reported in the used ring instead of the truth.
    pub(crate) written: Option<u32>,
}

/// A virtio device of one queue.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) kind: Kind,
    pub(crate) offered: u64,
    pub(crate) accepted: u64,
    pub(crate) status: u8,
    pub(crate) most_descriptors: u16,
    /// Pieces of data that a request may have, where that is agreed on.
    pub(crate) most_segments: u32,
    pub(crate) mischief: Mischief,
    /// Requests are served when the doorbell rings, not when a test says so.
    pub(crate) is_prompt: bool,
    pub(crate) side: Option<DeviceSide>,
    /// Heads taken from the available ring and not served yet.
    pub(crate) held: VecDeque<u16>,
    /// Data of the MSI-X messages sent.
    pub(crate) interrupts: Vec<u32>,
    pub(crate) doorbells: usize,
    pub(crate) flushes: usize,
    pub(crate) can_interrupt: bool,
    pub(crate) can_reach_memory: bool,
    feature_select: u32,
    generation: u8,
    queue_size: u16,
    vector: u16,
    config_vector: u16,
    addresses: [u32; 6],
    msix: [u32; 12],
}

impl Device {
    fn new(kind: Kind, offered: u64) -> Self {
        Device {
            kind,
            offered,
            accepted: 0,
            status: 0,
            most_descriptors: 256,
            most_segments: 254,
            mischief: Mischief::default(),
            is_prompt: true,
            side: None,
            held: VecDeque::new(),
            interrupts: Vec::new(),
            doorbells: 0,
            flushes: 0,
            can_interrupt: false,
            can_reach_memory: false,
            feature_select: 0,
            generation: 0,
            queue_size: 0,
            vector: 0xffff,
            config_vector: 0xffff,
            addresses: [0; 6],
            msix: [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        }
    }

    /// A disk of `blocks` zero blocks with what QEMU's offers and more: bits that must not be
    /// accepted unasked.
    pub(crate) fn disk(blocks: usize) -> Self {
        Device::new(
            Kind::Disk(vec![0; blocks * 4096]),
            1 << 32 | 1 << 33 | 1 << 28 | 1 << 29 | 1 << 9 | 1 << 6,
        )
    }

    pub(crate) fn entropy(most: usize) -> Self {
        Device::new(Kind::Entropy(most, 0), 1 << 32)
    }

    /// Breaks, as a device does that met an impossible descriptor.
    pub(crate) fn break_down(&mut self) {
        self.status |= 0x40;
        self.interrupt(self.config_vector);
    }

    fn interrupt(&mut self, vector: u16) {
        // Entry 0, if the function and the entry are not masked.
        if self.can_interrupt && vector == 0 && self.msix[3] & 1 == 0 {
            assert_eq!(self.msix[0], 0xfee0_0000);
            self.interrupts.push(self.msix[2]);
        }
    }

    fn reset(&mut self) {
        self.status = 0;
        self.accepted = 0;
        self.queue_size = self.most_descriptors;
        (self.vector, self.config_vector) = (0xffff, 0xffff);
        self.side = None;
        self.held.clear();
    }

    pub(crate) fn read(&mut self, at: u64, bytes: usize) -> u32 {
        match (at, bytes) {
            (0x04, 4) => (self.offered >> (32 * self.feature_select)) as u32,
            (0x10, 2) => self.config_vector.into(),
            (0x14, 1) => self.status.into(),
            (0x15, 1) => {
                self.generation = self.generation.wrapping_add(u8::from(self.mischief.never_holds_still));
                self.generation.into()
            }
            (0x18, 2) => self.queue_size.into(),
            (0x1a, 2) => self.vector.into(),
            (0x1e, 2) => QUEUE_NOTIFY_OFFSET,
            (DEVICE_REGISTERS, 4) => self.sectors() as u32,
            (0x2004, 4) => (self.sectors() >> 32) as u32,
            (0x200c, 4) => {
                assert!(self.accepted & 1 << 2 != 0, "a number that was not agreed on");
                self.most_segments
            }
            _ => panic!("read of register {at:#x}, {bytes} bytes"),
        }
    }

    fn sectors(&self) -> u64 {
        match &self.kind {
            Kind::Disk(disk) => disk.len() as u64 / 512,
            Kind::Entropy(..) => panic!("an entropy device has no structure of its own"),
        }
    }

    pub(crate) fn write(&mut self, memory: &Memory, at: u64, bytes: usize, value: u32) {
        match (at, bytes) {
            (0x00 | 0x08, 4) => self.feature_select = value,
            (0x0c, 4) => {
                let shift = 32 * self.feature_select;
                self.accepted = self.accepted & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            (0x14, 1) => self.set_status(value as u8),
            (0x16, 2) => assert_eq!(value, 0, "queue {value}"),
            (0x18, 2) => self.queue_size = value as u16,
            (0x10, 2) => {
                self.config_vector = if self.mischief.refuses_vector {
                    0xffff
                } else {
                    value as u16
                }
            }
            (0x1a, 2) => {
                self.vector = if self.mischief.refuses_vector {
                    0xffff
                } else {
                    value as u16
                }
            }
            (0x1c, 2) => self.enable_queue(value),
            (0x20..0x38, 4) => self.addresses[(at as usize - 0x20) / 4] = value,
            (DOORBELLS.., 2) => {
                assert_eq!(at, DOORBELLS + u64::from(QUEUE_NOTIFY_OFFSET * DOORBELL_MULTIPLIER));
                assert_eq!(self.status & 4, 4, "doorbell of a device that was not started");
                self.doorbells += 1;
                self.accept(memory);
                while self.is_prompt && !self.held.is_empty() {
                    self.serve(memory, 0);
                }
            }
            _ => panic!("write of register {at:#x}, {bytes} bytes"),
        }
    }

    fn set_status(&mut self, value: u8) {
        if value == 0 {
            if !self.mischief.ignores_reset {
                self.reset();
            }
            return;
        }
        let refused = self.mischief.refuses_features || self.accepted & !self.offered != 0;
        let mask = if refused { !8 } else { !0 };
        assert_eq!(value & self.status, self.status, "status bits must only be added");
        if value & 4 != 0 {
            assert_eq!(value & 0xb, 0xb, "started before features were agreed on");
            assert!(self.side.is_some(), "started without a queue");
        }
        self.status = value & mask;
    }

    fn enable_queue(&mut self, value: u32) {
        assert_eq!(value, 1);
        assert_eq!(self.status, 0xb, "queues are set up between FEATURES_OK and DRIVER_OK");
        assert!(self.queue_size.is_power_of_two() && self.queue_size <= self.most_descriptors);
        let wide = |index: usize| u64::from(self.addresses[index + 1]) << 32 | u64::from(self.addresses[index]);
        let at = Addresses {
            descriptors: wide(0),
            available: wide(2),
            used: wide(4),
        };
        assert!(at.descriptors.is_multiple_of(16) && at.available.is_multiple_of(2) && at.used.is_multiple_of(4));
        self.side = Some(DeviceSide::new(self.queue_size, at));
    }

    pub(crate) fn read_msix(&self, at: usize) -> u32 {
        self.msix[at / 4]
    }

    pub(crate) fn write_msix(&mut self, at: usize, value: u32) {
        self.msix[at / 4] = value;
    }

    /// Takes all that is available.
    pub(crate) fn accept(&mut self, memory: &Memory) {
        assert!(self.can_reach_memory, "not a bus master");
        let side = self.side.as_mut().expect("a queue");
        while let Some(head) = side.take(memory) {
            self.held.push_back(head);
        }
    }

    /// Serves the request at `position` of those held.
    pub(crate) fn serve(&mut self, memory: &Memory, position: usize) {
        let Some(head) = self.held.remove(position) else {
            return;
        };
        let mut side = self.side.expect("a queue");
        let chain = side.chain(memory, head);
        let written = match self.kind {
            Kind::Disk(_) => self.serve_disk(memory, &chain),
            Kind::Entropy(..) => self.serve_entropy(memory, &chain),
        };
        side.put(memory, head.into(), self.mischief.written.unwrap_or(written));
        self.side = Some(side);
        if memory.read_u16(side.at.available) & 1 == 0 {
            self.interrupt(self.vector);
        }
    }

    fn serve_disk(&mut self, memory: &Memory, chain: &[Piece]) -> u32 {
        let [header, data @ .., status] = chain else {
            panic!("a chain of {}", chain.len())
        };
        assert_eq!((header.bytes, header.is_written), (16, false));
        assert_eq!((status.bytes, status.is_written), (1, true));
        if let Some(wrong) = self.mischief.status {
            memory.write(status.physical, &[wrong]);
            return 1;
        }
        let Kind::Disk(disk) = &mut self.kind else {
            unreachable!()
        };
        let header: [u8; 16] = memory.read(header.physical);
        let kind = u32::from_le_bytes(header[..4].try_into().unwrap());
        let start = u64::from_le_bytes(header[8..].try_into().unwrap()) as usize * 512;
        let mut written = 1;
        let most = if self.accepted & 1 << 2 == 0 {
            1
        } else {
            self.most_segments
        };
        match (kind, data) {
            (0, [_, ..]) => {
                assert!(data.len() <= most as usize, "{} pieces of {most}", data.len());
                for (page, start) in data.iter().zip((start..).step_by(4096)) {
                    assert_eq!((page.bytes, page.is_written), (4096, true));
                    memory.write(page.physical, &disk[start..start + 4096]);
                    written += 4096;
                }
            }
            (1, [_, ..]) => {
                assert!(data.len() <= most as usize, "{} pieces of {most}", data.len());
                for (page, start) in data.iter().zip((start..).step_by(4096)) {
                    assert_eq!((page.bytes, page.is_written), (4096, false));
                    disk[start..start + 4096].copy_from_slice(&memory.read::<4096>(page.physical));
                }
            }
            (4, []) => {
                assert!(self.accepted & 1 << 9 != 0, "a flush that was not agreed on");
                assert_eq!(start, 0);
                self.flushes += 1;
            }
            _ => panic!("request {kind} with {} pieces of data", data.len()),
        }
        memory.write(status.physical, &[0]);
        written
    }

    fn serve_entropy(&mut self, memory: &Memory, chain: &[Piece]) -> u32 {
        let Kind::Entropy(most, next) = &mut self.kind else {
            unreachable!()
        };
        let [piece] = chain else {
            panic!("a chain of {}", chain.len())
        };
        assert!(piece.is_written);
        let given = (piece.bytes as usize).min(*most);
        for offset in 0..given {
            *next = next.wrapping_add(1);
            memory.write(piece.physical + offset as u64, &[*next]);
        }
        given as u32
    }
}

/// The configuration space of `device`, as QEMU lays it out and firmware leaves it.
pub(crate) fn config_of(device: &Device) -> Config {
    let identity = match device.kind {
        Kind::Disk(_) => 0x1042,
        Kind::Entropy(..) => 0x1044,
    };
    let mut config = Config::new(0x1af4, identity);
    config.put(0x06, &0x10_u16.to_le_bytes());
    config.put(0x14, &(MSIX_BAR as u32).to_le_bytes());
    config.bar_masks[1] = !0xfff;
    config.put(0x20, &(REGISTER_BAR | 0xc).to_le_bytes());
    config.bar_masks[4] = !0x3fff;
    config.bar_masks[5] = !0;
    config.bytes[0x34] = 0x40;
    let structure = |kind: u8, next: u8, length: u8, start: u64| {
        let mut capability = vec![9, next, length, kind, 4, 0, 0, 0];
        capability.extend((start as u32).to_le_bytes());
        capability.extend(0x1000_u32.to_le_bytes());
        capability
    };
    config.put(0x40, &structure(5, 0x54, 20, 0));
    config.put(0x54, &structure(1, 0x64, 16, REGISTERS));
    config.put(0x64, &structure(2, 0x78, 20, DOORBELLS));
    config.put(0x74, &DOORBELL_MULTIPLIER.to_le_bytes());
    let after_doorbells = if identity == 0x1042 { 0x88 } else { 0x98 };
    config.bytes[0x65] = if identity == 0x1042 { 0x78 } else { 0x98 };
    config.put(0x78, &structure(4, after_doorbells, 16, DEVICE_REGISTERS));
    config.put(0x88, &structure(3, 0x98, 16, 0x1000));
    // MSI-X: three entries (last 2) at the start of BAR 1, pending bits at 0x800.
    config.put(0x98, &[0x11, 0, 2, 0]);
    config.put(0x9c, &1_u32.to_le_bytes());
    config.put(0xa0, &0x801_u32.to_le_bytes());
    config
}
