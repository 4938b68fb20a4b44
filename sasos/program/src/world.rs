//! The world of the server: the kernel by machine calls, memory through the window, the disk by its own driver.

use abi::machine::Surroundings;
use drivers::{
    disk::{Disk, NoDisk},
    msix::Message,
};
use kcore::{HoldsMachine, Machine, outside::Remote};
use store::world::{self, DiskError, Frame, Pages, QueueFull, Random, Request};

use crate::{
    devices::{Devices, Ports},
    mem::Window,
};

/// Everything outside the server.
pub struct World {
    /// The kernel.
    pub machine: Remote<Window>,
    /// The disk.
    pub disk: Disk<Devices>,
}

impl World {
    /// Finds the disk.
    ///
    /// # Errors
    /// There is none that works.
    pub fn new(window: Window, surroundings: &Surroundings) -> Result<Self, (Remote<Window>, NoDisk)> {
        let machine = Remote { gate: window };
        let message = Message {
            address: surroundings.disk_message_address,
            data: surroundings.disk_message_data as u32,
        };
        match Disk::find(Ports(window), &mut Devices(window), message) {
            Ok(disk) => Ok(Self { machine, disk }),
            Err(why) => Err((machine, why)),
        }
    }
}

impl HoldsMachine for World {
    type Held = Remote<Window>;

    #[inline(always)]
    fn held(&self) -> &Self::Held {
        &self.machine
    }

    #[inline(always)]
    fn held_mut(&mut self) -> &mut Self::Held {
        &mut self.machine
    }
}

impl World {
    /// A frame that the store was given, which knows only its number.
    fn known(&self, frame: Frame) -> kcore::Frame {
        self.machine
            .frame_found(frame.0)
            .expect("the store uses a frame that it was not given")
    }
}

impl Pages for World {
    fn alloc(&mut self) -> Option<Frame> {
        self.machine.frame_any().ok().map(|frame| Frame(frame.number()))
    }

    fn free(&mut self, frame: Frame) {
        let frame = self.known(frame);
        self.machine.frame_release(frame);
    }

    fn bytes(&self, frame: Frame) -> &[u8; 4096] {
        self.machine.gate.bytes(self.known(frame))
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; 4096] {
        let frame = self.known(frame);
        self.machine.gate.bytes_mut(frame)
    }
}

impl world::Disk for World {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn measure(&mut self) {
        self.disk.measure();
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.disk.submit(request)
    }

    fn run_max(&self) -> usize {
        self.disk.run_max()
    }

    fn submit_run(&mut self, tag: u32, kind: world::Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        self.disk.submit_run(tag, kind, first, frames)
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.disk.complete()
    }

    fn wait(&mut self) {
        self.disk.wait();
    }
}

impl Random for World {
    fn next_u64(&mut self) -> u64 {
        self.machine.random()
    }
}
