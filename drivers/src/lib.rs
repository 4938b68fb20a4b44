//! Device drivers: PCI discovery, one virtio queue, and a module per device on top of it.
//!
//! A driver here is a plain value that the kernel owns and calls: it holds no thread, allocates
//! nothing, never waits for an interrupt and never sleeps. It reaches the machine only through the
//! traits of [`world`] (ports, register windows, pages a device may touch), so the same code runs
//! in the kernel and, on the host, against the fake machine of the tests. All `unsafe` is in
//! [`dma`]; every other module is checked to have none.
//!
//! Words of a device are not believed. Indices and identifiers in shared memory are compared with
//! the driver's own private record; a device that contradicts it is reset, and every request it
//! still held fails with an error. The limit of this: without an IOMMU a device can write anywhere
//! in memory, so a *malicious* device is outside what software can contain. What is contained is a
//! broken one.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod world;

pub mod dma;

pub mod pci;

pub mod msix;

pub mod virtio;

pub mod block;

pub mod disk;

pub mod entropy;

pub mod serial;

#[cfg(test)]
mod fake;
