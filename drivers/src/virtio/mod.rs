//! virtio 1.x: what all its devices share.
//!
//! A virtio device is a `transport` (registers to agree on features and to hand over queues; here
//! a PCI function) and one or more `queue`s (rings in shared memory through which requests go and
//! come back). The numbers are those of the OASIS specification "Virtual I/O Device (VIRTIO)
//! Version 1.2"; section numbers in this folder refer to it. Devices that speak only the legacy
//! interface are refused.

use crate::msix::Message;
use crate::pci::BarError;
use core::fmt;

pub(crate) mod queue;

pub(crate) mod transport;

/// The PCI vendor of all virtio devices (4.1.2).
pub const VENDOR: u16 = 0x1af4;
/// The PCI device of a modern virtio block device.
pub const BLOCK_DEVICE: u16 = 0x1042;
/// The PCI device of a modern virtio entropy device.
pub const ENTROPY_DEVICE: u16 = 0x1044;

/// How a device tells that it has finished something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Not at all: the driver is asked from time to time. The device is told not to interrupt.
    Polling,
    /// By this interrupt, sent through MSI-X; also when the device breaks.
    Message(Message),
}

/// The structures of registers that a virtio PCI function has (4.1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// Features, status and queues.
    Common,
    /// The doorbells.
    Notify,
    /// The registers that are particular to the kind of device.
    Device,
}

/// Why a device could not be brought up. After any of these the device is reset or was never
/// started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeError {
    /// The function has no such structure in memory: a legacy device, or none of ours.
    Missing(Structure),
    /// BAR `index`, which holds registers the driver needs, cannot be used.
    Bar {
        /// Which BAR.
        index: u8,
        /// Its fault.
        error: BarError,
    },
    /// A structure reaches past the end of BAR `index`, is too short, or is not aligned.
    OutsideBar {
        /// Which BAR.
        index: u8,
    },
    /// The world would not map the registers at this physical address.
    Unmappable {
        /// Where the registers were.
        physical: u64,
    },
    /// The world had no page to share with the device.
    OutOfMemory,
    /// The device did not confirm its reset.
    ResetTimeout,
    /// The device does not offer version 1 of the interface.
    Legacy,
    /// The device would not go on with the features chosen.
    FeaturesRefused,
    /// The device has no request queue, or one too short for a request.
    NoQueue,
    /// An interrupt was asked for, and the function has no (usable) MSI-X capability.
    NoMsix,
    /// The device would not take the interrupt.
    VectorRefused,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Missing(structure) => {
                write!(
                    formatter,
                    "no {structure:?} registers in memory (not a modern virtio device)"
                )
            }
            ProbeError::Bar {
                index,
                error: BarError::NoSuchBar,
            } => {
                write!(formatter, "registers in BAR {index}, which cannot exist")
            }
            ProbeError::Bar {
                index,
                error: BarError::Ports,
            } => {
                write!(formatter, "registers in BAR {index}, which is I/O ports")
            }
            ProbeError::Bar {
                index,
                error: BarError::Unassigned,
            } => {
                write!(
                    formatter,
                    "BAR {index} has no address: firmware did not set the device up"
                )
            }
            ProbeError::OutsideBar { index } => write!(formatter, "registers outside BAR {index}"),
            ProbeError::Unmappable { physical } => {
                write!(formatter, "cannot map registers at {physical:#x}")
            }
            ProbeError::OutOfMemory => formatter.write_str("no memory for queues"),
            ProbeError::ResetTimeout => formatter.write_str("no answer to a reset"),
            ProbeError::Legacy => formatter.write_str("only the legacy interface is offered"),
            ProbeError::FeaturesRefused => formatter.write_str("the device refused the features chosen"),
            ProbeError::NoQueue => formatter.write_str("no usable request queue"),
            ProbeError::NoMsix => formatter.write_str("no MSI-X"),
            ProbeError::VectorRefused => formatter.write_str("the device refused the interrupt"),
        }
    }
}

impl core::error::Error for ProbeError {}
