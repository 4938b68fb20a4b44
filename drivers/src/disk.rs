//! The disk under the store: virtio-blk as [`store::world::Disk`].
//!
//! Its driver, the kernel or a server outside of it, brings the way to the machine ([`World`], [`Ports`]) and the
//! message by which the device interrupts.

use crate::{
    block::{BlockDevice, Request as Blocks, SubmitError},
    dma::DataPage,
    msix::Message,
    pci::Pci,
    virtio::{BLOCK_DEVICE, ProbeError, Signal, VENDOR},
    world::{Ports, World},
};
use alloc::collections::VecDeque;
use core::fmt;
use store::world::{DiskError, Frame, Operation, QueueFull, Request};

/// Why there is no disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoDisk {
    /// No such device on any bus.
    Missing,
    /// The first one does not come up.
    Broken(ProbeError),
}

impl fmt::Display for NoDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no virtio disk (give QEMU virtio-blk-pci with disable-legacy=on)"),
            Self::Broken(error) => write!(f, "the disk does not start: {error}"),
        }
    }
}

/// The disk.
pub struct Disk<W: World> {
    device: BlockDevice<W>,
    /// Requests that the device refused for good: they complete with an error.
    refused: VecDeque<u32>,
}

impl<W: World> Disk<W> {
    /// Finds the first disk and brings it up. It interrupts with that message.
    ///
    /// # Errors
    /// [`NoDisk`].
    pub fn find(ports: impl Ports, world: &mut W, message: Message) -> Result<Self, NoDisk> {
        let pci = Pci::new(ports);
        let found = pci.find(VENDOR, BLOCK_DEVICE).next().ok_or(NoDisk::Missing)?;
        let device =
            BlockDevice::probe(&pci, found.address, world, Signal::Message(message)).map_err(NoDisk::Broken)?;
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

impl<W: World> store::world::Disk for Disk<W> {
    fn blocks(&self) -> u64 {
        self.device.capacity_blocks()
    }

    fn measure(&mut self) {
        self.device.measure();
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let page = DataPage::lent(request.frame);
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

    fn run_max(&self) -> usize {
        self.device.run_max()
    }

    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        let pages = frames.iter().map(|&frame| DataPage::lent(frame));
        match self.device.submit_run(tag, operation, first, pages) {
            Ok(()) => Ok(()),
            Err(SubmitError::QueueFull) => Err(QueueFull),
            // The store asks for the blocks one by one then, and is told each one's error.
            Err(_) => {
                self.refused.push_back(tag);
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
