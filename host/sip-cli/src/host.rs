//! What a process on the host gets from outside: arguments, standard streams, clocks, randomness.

use sip::wasi::{Errno, System};
use std::io::{Read, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The host, for one process.
pub struct Host {
    arguments: Vec<String>,
    environment: Vec<String>,
    start: Instant,
}

impl Host {
    /// For a process with these arguments, its own name first, and this environment.
    pub fn new(arguments: &[String], environment: &[String]) -> Self {
        Self {
            arguments: arguments.to_vec(),
            environment: environment.to_vec(),
            start: Instant::now(),
        }
    }
}

impl System for Host {
    fn arguments(&self) -> &[String] {
        &self.arguments
    }
    fn environment(&self) -> &[String] {
        &self.environment
    }
    fn write(&mut self, descriptor: u32, bytes: &[u8]) -> Result<usize, Errno> {
        let written = match descriptor {
            1 => std::io::stdout()
                .write_all(bytes)
                .and_then(|()| std::io::stdout().flush()),
            2 => std::io::stderr().write_all(bytes),
            _ => return Err(Errno::BadDescriptor),
        };
        written.map(|()| bytes.len()).map_err(|_| Errno::Io)
    }
    fn read(&mut self, descriptor: u32, bytes: &mut [u8]) -> Result<usize, Errno> {
        if descriptor != 0 {
            return Err(Errno::BadDescriptor);
        }
        std::io::stdin().read(bytes).map_err(|_| Errno::Io)
    }
    fn clock(&mut self, clock: u32) -> Result<u64, Errno> {
        let since = match clock {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Errno::Io)?,
            1 => self.start.elapsed(),
            _ => return Err(Errno::Invalid),
        };
        u64::try_from(since.as_nanos()).map_err(|_| Errno::Io)
    }
    fn random(&mut self, bytes: &mut [u8]) {
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
        if read.is_err() {
            bytes.fill(0);
        }
    }
}
