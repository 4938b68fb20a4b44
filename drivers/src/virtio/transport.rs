//! virtio over PCI (4.1): from a PCI function to a running device with one queue.
//!
//! Vendor capabilities in configuration space say where, in which BAR, the device's register
//! structures lie. Start-up follows 3.1.1: reset, ACKNOWLEDGE, DRIVER, features, `FEATURES_OK` (and
//! check that it stuck), queues, `DRIVER_OK`. Interrupts are MSI-X or none
//! (`docs/decisions/0020-virtio.md`): entry 0 serves both the queue and the device's own changes of
//! state, so that a device which breaks wakes its driver.

use crate::msix;
use crate::pci::{Address, Pci};
use crate::virtio::queue::{MOST_DESCRIPTORS, Queue};
use crate::virtio::{ProbeError, Signal, Structure};
use crate::world::{Mmio, Ports, World};

/// The PCI capability that points to a structure (4.1.4); `next` is in byte 1, the length of the
/// capability in byte 2.
const VENDOR_CAPABILITY: u8 = 0x09;
const CAPABILITY_LENGTH: u8 = 2;
const CAPABILITY_KIND: u8 = 3;
const CAPABILITY_BAR: u8 = 4;
const CAPABILITY_START: u8 = 8;
const CAPABILITY_BYTES: u8 = 12;
const CAPABILITY_MULTIPLIER: u8 = 16;

/// The common structure (4.1.4.3).
mod common {
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0x00;
    pub(super) const DEVICE_FEATURE: usize = 0x04;
    pub(super) const DRIVER_FEATURE_SELECT: usize = 0x08;
    pub(super) const DRIVER_FEATURE: usize = 0x0c;
    pub(super) const CONFIG_VECTOR: usize = 0x10;
    pub(super) const STATUS: usize = 0x14;
    pub(super) const CONFIG_GENERATION: usize = 0x15;
    pub(super) const QUEUE_SELECT: usize = 0x16;
    pub(super) const QUEUE_SIZE: usize = 0x18;
    pub(super) const QUEUE_VECTOR: usize = 0x1a;
    pub(super) const QUEUE_ENABLE: usize = 0x1c;
    pub(super) const QUEUE_NOTIFY_OFFSET: usize = 0x1e;
    pub(super) const QUEUE_DESCRIPTORS: usize = 0x20;
    pub(super) const QUEUE_AVAILABLE: usize = 0x28;
    pub(super) const QUEUE_USED: usize = 0x30;
    pub(super) const BYTES: usize = 0x38;
}

const STATUS_ACKNOWLEDGE: u8 = 1;
const STATUS_DRIVER: u8 = 2;
const STATUS_DRIVER_OK: u8 = 4;
const STATUS_FEATURES_OK: u8 = 8;
const STATUS_NEEDS_RESET: u8 = 0x40;

/// The feature without which a device is a legacy one.
const FEATURE_VERSION_1: u64 = 1 << 32;

/// The request queue of every device driven here.
const QUEUE: u16 = 0;
const NO_VECTOR: u16 = 0xffff;
const DOORBELL_BYTES: usize = 2;

/// How often a register is read before the device is given up; each read takes a microsecond or so
/// on a real bus.
const PATIENCE: u32 = 1_000_000;

/// A structure of registers as a capability describes it.
struct Place {
    bar: u8,
    start: u32,
    bytes: u32,
    capability: u8,
}

/// The registers of a virtio device. Dropping it resets the device: its queue's pages are about to
/// be somebody else's.
#[derive(Debug)]
pub(crate) struct Transport<M: Mmio> {
    common: M,
    doorbells: M,
    doorbells_bytes: usize,
    doorbell_multiplier: u32,
    /// Where queue 0's doorbell is in `doorbells`.
    doorbell: usize,
    device: Option<M>,
}

impl<M: Mmio> Transport<M> {
    /// Finds and maps the structures of the function at `address`, and switches the function (and,
    /// if asked for, MSI-X) on. Of the device's own structure, the driver will read `device_bytes`
    /// (if 0, there need be none).
    pub(crate) fn open<P: Ports, W: World<Window = M>>(
        pci: &Pci<P>,
        address: Address,
        world: &mut W,
        signal: Signal,
        device_bytes: usize,
    ) -> Result<Self, ProbeError> {
        let common_place = find(pci, address, Structure::Common)?;
        let doorbells_place = find(pci, address, Structure::Notify)?;
        let doorbell_multiplier = pci.read_u32(address, doorbells_place.capability + CAPABILITY_MULTIPLIER);

        let common = map(pci, address, world, &common_place, common::BYTES)?;
        let doorbells = map(pci, address, world, &doorbells_place, DOORBELL_BYTES)?;
        let device = match device_bytes {
            0 => None,
            least => Some(map(
                pci,
                address,
                world,
                &find(pci, address, Structure::Device)?,
                least,
            )?),
        };
        pci.enable(address);
        if let Signal::Message(message) = signal {
            msix::enable(pci, address, world, message)?;
        }
        let doorbells_bytes = doorbells_place.bytes as usize;
        Ok(Transport {
            common,
            doorbells,
            doorbells_bytes,
            doorbell_multiplier,
            doorbell: 0,
            device,
        })
    }

    /// Stops the device: it forgets its queue and everything in it. Whether it confirmed within
    /// bounds.
    pub(crate) fn reset(&self) -> Result<(), ProbeError> {
        self.common.write_u8(common::STATUS, 0);
        for _ in 0..PATIENCE {
            if self.common.read_u8(common::STATUS) == 0 {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        Err(ProbeError::ResetTimeout)
    }

    /// Resets the device and agrees with it on those of `wanted` features that it offers; they are
    /// returned.
    pub(crate) fn negotiate(&self, wanted: u64) -> Result<u64, ProbeError> {
        self.reset()?;
        self.add_status(STATUS_ACKNOWLEDGE);
        self.add_status(STATUS_DRIVER);
        let offered = (0..2).fold(0, |features, half| {
            self.common.write_u32(common::DEVICE_FEATURE_SELECT, half);
            features | u64::from(self.common.read_u32(common::DEVICE_FEATURE)) << (32 * half)
        });
        if offered & FEATURE_VERSION_1 == 0 {
            return Err(ProbeError::Legacy);
        }
        let accepted = offered & (wanted | FEATURE_VERSION_1);
        for half in 0..2 {
            self.common.write_u32(common::DRIVER_FEATURE_SELECT, half);
            self.common
                .write_u32(common::DRIVER_FEATURE, (accepted >> (32 * half)) as u32);
        }
        self.add_status(STATUS_FEATURES_OK);
        if self.common.read_u8(common::STATUS) & STATUS_FEATURES_OK == 0 {
            return Err(ProbeError::FeaturesRefused);
        }
        Ok(accepted)
    }

    /// Makes queue 0, as long as the device allows (up to 256 descriptors) but not shorter than
    /// `least`, and starts the device.
    pub(crate) fn start<W: World<Window = M>>(
        &mut self,
        world: &mut W,
        signal: Signal,
        least: u16,
    ) -> Result<Queue<W::Page>, ProbeError> {
        let queue = self.make_queue(world, signal, least)?;
        self.add_status(STATUS_DRIVER_OK);
        Ok(queue)
    }

    fn make_queue<W: World<Window = M>>(
        &mut self,
        world: &mut W,
        signal: Signal,
        least: u16,
    ) -> Result<Queue<W::Page>, ProbeError> {
        self.common.write_u16(common::QUEUE_SELECT, QUEUE);
        let most = self.common.read_u16(common::QUEUE_SIZE);
        // The size must be a power of two (2.7); a device that offers another is given the next
        // below.
        let size = most.checked_ilog2().map_or(0, |bits| 1 << bits).min(MOST_DESCRIPTORS);
        if size < least {
            return Err(ProbeError::NoQueue);
        }
        let doorbell =
            u64::from(self.common.read_u16(common::QUEUE_NOTIFY_OFFSET)) * u64::from(self.doorbell_multiplier);
        self.doorbell = usize::try_from(doorbell)
            .ok()
            .filter(|at| {
                at.checked_add(DOORBELL_BYTES)
                    .is_some_and(|end| end <= self.doorbells_bytes)
            })
            .ok_or(ProbeError::NoQueue)?;

        let descriptors = world.allocate_page().ok_or(ProbeError::OutOfMemory)?;
        let rings = world.allocate_page().ok_or(ProbeError::OutOfMemory)?;
        let mut queue = Queue::new(size, descriptors, rings);
        match signal {
            Signal::Polling => queue.silence(),
            Signal::Message(_) => self.route_interrupts()?,
        }
        let addresses = queue.addresses();
        self.common.write_u16(common::QUEUE_SIZE, queue.size());
        self.write_u64(common::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write_u64(common::QUEUE_AVAILABLE, addresses.available);
        self.write_u64(common::QUEUE_USED, addresses.used);
        self.common.write_u16(common::QUEUE_ENABLE, 1);
        Ok(queue)
    }

    /// Sends the selected queue's interrupts and those about the device itself to MSI-X entry 0. A
    /// device short of resources says so by not keeping the number (4.1.5.1.2).
    fn route_interrupts(&self) -> Result<(), ProbeError> {
        for register in [common::CONFIG_VECTOR, common::QUEUE_VECTOR] {
            self.common.write_u16(register, 0);
            if self.common.read_u16(register) == NO_VECTOR {
                return Err(ProbeError::VectorRefused);
            }
        }
        Ok(())
    }

    /// Rings queue 0's doorbell.
    pub(crate) fn ring(&self) {
        self.doorbells.write_u16(self.doorbell, QUEUE);
    }

    /// Whether the device says that it has stopped working, or no longer answers at all.
    pub(crate) fn is_broken(&self) -> bool {
        self.common.read_u8(common::STATUS) & STATUS_NEEDS_RESET != 0
    }

    /// Reads `read(device structure)` until the structure did not change meanwhile (2.5.1).
    pub(crate) fn read_device<T>(&self, read: impl Fn(&M) -> T) -> Option<T> {
        let device = self.device.as_ref()?;
        (0..PATIENCE).find_map(|_| {
            let before = self.common.read_u8(common::CONFIG_GENERATION);
            let value = read(device);
            (self.common.read_u8(common::CONFIG_GENERATION) == before).then_some(value)
        })
    }

    fn add_status(&self, bit: u8) {
        self.common
            .write_u8(common::STATUS, self.common.read_u8(common::STATUS) | bit);
    }

    /// Eight-byte registers are written in halves (4.1.3.1).
    fn write_u64(&self, offset: usize, value: u64) {
        self.common.write_u32(offset, value as u32);
        self.common.write_u32(offset + 4, (value >> 32) as u32);
    }
}

impl<M: Mmio> Drop for Transport<M> {
    fn drop(&mut self) {
        // There is nobody to tell if the device does not confirm; it was told to stop.
        let _ = self.reset();
    }
}

/// The first structure of this kind that lies in memory (a device may offer a second way, by
/// ports).
fn find<P: Ports>(pci: &Pci<P>, address: Address, structure: Structure) -> Result<Place, ProbeError> {
    let (kind, length) = match structure {
        Structure::Common => (1, 16),
        Structure::Notify => (2, 20),
        Structure::Device => (4, 16),
    };
    pci.capabilities(address)
        // A capability that would run out of configuration space is not one.
        .filter(|found| found.identifier == VENDOR_CAPABILITY && found.offset <= u8::MAX - length + 1)
        .filter(|found| pci.read_u8(address, found.offset + CAPABILITY_LENGTH) >= length)
        .filter(|found| pci.read_u8(address, found.offset + CAPABILITY_KIND) == kind)
        .map(|found| Place {
            bar: pci.read_u8(address, found.offset + CAPABILITY_BAR),
            start: pci.read_u32(address, found.offset + CAPABILITY_START),
            bytes: pci.read_u32(address, found.offset + CAPABILITY_BYTES),
            capability: found.offset,
        })
        .find(|place| !pci.is_port_bar(address, place.bar))
        .ok_or(ProbeError::Missing(structure))
}

/// Maps the structure at `place`, which must be at least `least` bytes long.
fn map<P: Ports, W: World>(
    pci: &Pci<P>,
    address: Address,
    world: &mut W,
    place: &Place,
    least: usize,
) -> Result<W::Window, ProbeError> {
    let index = place.bar;
    let bar = pci
        .memory_bar(address, index)
        .map_err(|error| ProbeError::Bar { index, error })?;
    let (start, bytes) = (u64::from(place.start), place.bytes as usize);
    if !start.is_multiple_of(4) || bytes < least || start + u64::from(place.bytes) > bar.bytes {
        return Err(ProbeError::OutsideBar { index });
    }
    let physical = bar.address + start;
    world
        .map_registers(physical, bytes)
        .ok_or(ProbeError::Unmappable { physical })
}
