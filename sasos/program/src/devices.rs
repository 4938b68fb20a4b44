//! Drivers get ports, registers and pages from the kernel, by machine calls.

use abi::machine::MachineCall;
use drivers::dma;
use kcore::outside::Gate;

use crate::mem::Window;

/// The ports of the PCI configuration mechanism, and no others.
#[derive(Copy, Clone)]
pub struct Ports(pub Window);

impl Ports {
    fn read(self, port: u16, bytes: u64) -> u64 {
        let read = self.0.call(MachineCall::PortRead, [u64::from(port), bytes, 0, 0, 0, 0]);
        // An empty bus gives all ones.
        read.map_or(u64::MAX, |(value, _)| value)
    }

    fn write(self, port: u16, bytes: u64, value: u64) {
        // A port that is refused is an empty bus, too.
        let _ = self
            .0
            .call(MachineCall::PortWrite, [u64::from(port), bytes, value, 0, 0, 0]);
    }
}

impl drivers::world::Ports for Ports {
    fn read_u8(&self, port: u16) -> u8 {
        self.read(port, 1) as u8
    }

    fn read_u16(&self, port: u16) -> u16 {
        self.read(port, 2) as u16
    }

    fn read_u32(&self, port: u16) -> u32 {
        self.read(port, 4) as u32
    }

    fn write_u8(&self, port: u16, value: u8) {
        self.write(port, 1, u64::from(value));
    }

    fn write_u16(&self, port: u16, value: u16) {
        self.write(port, 2, u64::from(value));
    }

    fn write_u32(&self, port: u16, value: u32) {
        self.write(port, 4, u64::from(value));
    }
}

/// Registers and pages.
#[derive(Copy, Clone)]
pub struct Devices(pub Window);

impl drivers::world::World for Devices {
    type Window = dma::Window;
    type Page = dma::Page;

    fn map_registers(&mut self, physical: u64, bytes: usize) -> Option<dma::Window> {
        self.0.registers(physical, bytes)
    }

    fn allocate_page(&mut self) -> Option<dma::Page> {
        self.0.device_page()
    }
}
