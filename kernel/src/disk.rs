//! The disk under the store: virtio-blk, its registers and pages from the kernel.

use alloc::{collections::VecDeque, format, string::String};

use drivers::{
    block::{BlockDevice, Request as Blocks, SubmitError},
    entropy::EntropyDevice,
    msix::Message,
    pci::Pci,
    virtio::{BLOCK_DEVICE, ENTROPY_DEVICE, Signal, VENDOR},
};
use store::world::{DiskError, Operation, QueueFull, Request};

use crate::{
    arch::{self, IoPorts},
    mem::device::{self, Resources},
};

/// The disk.
pub struct VirtioDisk {
    device: BlockDevice<Resources>,
    /// Requests that the device refused for good: they complete with an error.
    refused: VecDeque<u32>,
}

impl VirtioDisk {
    /// Finds the first disk and brings it up.
    ///
    /// # Errors
    /// In words: there is none, or it does not work.
    pub fn find(resources: &mut Resources) -> Result<Self, String> {
        let pci = Pci::new(IoPorts);
        let found = pci
            .find(VENDOR, BLOCK_DEVICE)
            .next()
            .ok_or("no virtio disk (give QEMU virtio-blk-pci with disable-legacy=on)")?;
        let (address, data) = arch::disk_message();
        let signal = Signal::Message(Message { address, data });
        let device = BlockDevice::probe(&pci, found.address, resources, signal)
            .map_err(|error| format!("the disk does not start: {error}"))?;
        Ok(Self {
            device,
            refused: VecDeque::new(),
        })
    }

    /// Handles the disk's interrupt.
    pub fn acknowledge(&mut self) {
        self.device.acknowledge_interrupt();
    }
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

impl store::world::Disk for VirtioDisk {
    fn blocks(&self) -> u64 {
        self.device.capacity_blocks()
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let page = device::data_page(request.frame);
        let blocks = match request.operation {
            Operation::Read => Blocks::Read {
                block: request.block,
                page,
            },
            Operation::Write => Blocks::Write {
                block: request.block,
                page,
            },
            Operation::Flush => Blocks::Flush,
        };
        match self.device.submit(request.tag, blocks) {
            Ok(()) => Ok(()),
            Err(SubmitError::QueueFull) => Err(QueueFull),
            Err(_) => {
                self.refused.push_back(request.tag);
                Ok(())
            }
        }
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        if let Some(tag) = self.refused.pop_front() {
            return Some((tag, Err(DiskError)));
        }
        let (tag, result) = self.device.complete()?;
        Some((tag, result.map_err(|_| DiskError)))
    }

    fn wait(&mut self) {
        // At the start only: nothing else has to run. A device that is lost has completions, too.
        while self.refused.is_empty() && self.device.outstanding() > 0 && !self.device.has_completions() {
            core::hint::spin_loop();
        }
    }
}
