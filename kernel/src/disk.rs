//! The disk under the store and the source of randomness: their drivers with registers and pages from the kernel.

use alloc::{format, string::String};

use drivers::{
    disk::Disk,
    entropy::EntropyDevice,
    msix::Message,
    pci::Pci,
    virtio::{ENTROPY_DEVICE, VENDOR},
};

use crate::{
    arch::{self, IoPorts},
    mem::device::Resources,
};

/// The disk.
pub type VirtioDisk = Disk<Resources>;

/// Finds the first disk and brings it up.
///
/// # Errors
/// In words: there is none, or it does not work.
pub fn find(resources: &mut Resources) -> Result<VirtioDisk, String> {
    let (address, data) = arch::disk_message();
    Disk::find(IoPorts, resources, Message { address, data }).map_err(|why| format!("{why}"))
}

/// Random bytes from a virtio device, if there is one.
pub fn entropy(resources: &mut Resources) -> Option<[u8; 32]> {
    let pci = Pci::new(IoPorts);
    let found = pci.find(VENDOR, ENTROPY_DEVICE).next()?;
    let mut device = EntropyDevice::probe(&pci, found.address, resources).ok()?;
    let mut bytes = [0; 32];
    device.fill(&mut bytes, 10_000_000).ok()?;
    Some(bytes)
}
