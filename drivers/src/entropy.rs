//! virtio-rng (5.4): random bytes from the host.
//!
//! One queue; a request is one piece of memory for the device to fill, as far as it likes. It is
//! used once, at boot, to seed the generator behind passwords, so it is polled. The bytes travel
//! through a page of the driver's, which is cleared afterwards.

use crate::pci::{Address, Pci};
use crate::virtio::queue::{Direction, Queue, Segment};
use crate::virtio::transport::Transport;
use crate::virtio::{ProbeError, Signal};
use crate::world::{DmaMemory, PAGE_BYTES, Ports, World};
use core::fmt;

/// Why random bytes could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntropyError {
    /// The device had not answered after as many looks as the caller allowed. It was reset and is
    /// not to be used again.
    Timeout,
    /// The device broke the protocol, or says that it is broken.
    DeviceLost,
}

impl fmt::Display for EntropyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            EntropyError::Timeout => "no random bytes in time",
            EntropyError::DeviceLost => "the entropy device stopped working",
        })
    }
}

impl core::error::Error for EntropyError {}

/// A virtio entropy device.
#[derive(Debug)]
pub struct EntropyDevice<W: World> {
    // First, so that the device is reset before its pages are dropped.
    transport: Transport<W::Window>,
    queue: Queue<W::Page>,
    page: W::Page,
    is_lost: bool,
}

impl<W: World> EntropyDevice<W> {
    /// Brings up the entropy device that is the PCI function at `address` (found by
    /// [`VENDOR`](crate::virtio::VENDOR) and [`ENTROPY_DEVICE`](crate::virtio::ENTROPY_DEVICE)).
    ///
    /// # Errors
    /// A [`ProbeError`]; the device is then left reset.
    pub fn probe<P: Ports>(pci: &Pci<P>, address: Address, world: &mut W) -> Result<Self, ProbeError> {
        let mut transport = Transport::open(pci, address, world, Signal::Polling, 0)?;
        transport.negotiate(0)?;
        let page = world.allocate_page().ok_or(ProbeError::OutOfMemory)?;
        let queue = transport.start(world, Signal::Polling, 1)?;
        Ok(EntropyDevice {
            transport,
            queue,
            page,
            is_lost: false,
        })
    }

    /// Fills `buffer` with random bytes, looking at most `looks` times whether the device has
    /// answered (ten million take some tenths of a second).
    ///
    /// # Errors
    /// [`EntropyError`]; what `buffer` holds then is not random, and further calls fail.
    pub fn fill(&mut self, buffer: &mut [u8], looks: u32) -> Result<(), EntropyError> {
        let mut looks = looks;
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let wanted = rest.len().min(PAGE_BYTES);
            let received = match self.request(wanted, &mut looks) {
                Ok(received) => received,
                Err(error) => {
                    self.is_lost = true;
                    // Told to stop; that it confirms cannot be enforced.
                    let _ = self.transport.reset();
                    return Err(error);
                }
            };
            for (offset, byte) in rest[..received].iter_mut().enumerate() {
                *byte = self.page.read_u8(offset);
                self.page.write_u8(offset, 0);
            }
            filled += received;
        }
        Ok(())
    }

    /// Has the device write up to `wanted` bytes to the page; how many it did, at least one.
    fn request(&mut self, wanted: usize, looks: &mut u32) -> Result<usize, EntropyError> {
        if self.is_lost {
            return Err(EntropyError::DeviceLost);
        }
        let segment = Segment {
            physical: self.page.physical(),
            bytes: wanted as u32,
            direction: Direction::DeviceWrites,
        };
        self.queue.add(&[segment]).map_err(|_| EntropyError::DeviceLost)?;
        if self.queue.wants_doorbell() {
            self.transport.ring();
        }
        while *looks > 0 {
            *looks -= 1;
            if let Some(used) = self.queue.take_used().map_err(|_| EntropyError::DeviceLost)? {
                // "At least one byte" is the device's duty (5.4.6); more than asked for is a lie.
                let received = used.written as usize;
                return if (1..=wanted).contains(&received) {
                    Ok(received)
                } else {
                    Err(EntropyError::DeviceLost)
                };
            }
            core::hint::spin_loop();
        }
        Err(if self.transport.is_broken() {
            EntropyError::DeviceLost
        } else {
            EntropyError::Timeout
        })
    }
}

#[cfg(test)]
mod tests;
