//! The store's world over a file, which counts what goes to it: a request is one block, or some neighbouring ones, done at once by one system call.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use store::world::RUN_MAX;
use store::{BLOCK, Disk, DiskError, Frame, Operation, Pages, QueueFull, Random, Request};

/// Requests to the disk, and their bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests to read.
    pub reads: u64,
    /// Bytes read.
    pub read: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes written.
    pub written: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Counts {
    /// The counts since an earlier moment.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read: self.read - before.read,
            writes: self.writes - before.writes,
            written: self.written - before.written,
            flushes: self.flushes - before.flushes,
        }
    }
}

/// Blocks of a file, pages in memory, and numbers that are the same in each run.
pub struct FileWorld {
    file: File,
    blocks: u64,
    pages: Vec<Box<[u8; BLOCK]>>,
    unused: Vec<Frame>,
    done: VecDeque<(u32, Result<(), DiskError>)>,
    /// The blocks of the run that is being written, one behind the other.
    run: Vec<u8>,
    chance: u64,
    /// The requests to the file so far.
    pub counts: Counts,
}

impl FileWorld {
    /// The world of a file, as long as it is.
    ///
    /// # Errors
    /// The length cannot be had.
    pub fn over(file: File) -> std::io::Result<Self> {
        Ok(Self {
            blocks: file.metadata()?.len() / BLOCK as u64,
            file,
            pages: Vec::new(),
            unused: Vec::new(),
            done: VecDeque::new(),
            run: Vec::new(),
            chance: 1,
            counts: Counts::default(),
        })
    }

    fn perform(&mut self, request: Request) -> std::io::Result<()> {
        let at = request.block * BLOCK as u64;
        let page = &mut self.pages[request.frame.0 as usize];
        match request.operation {
            Operation::Flush => {
                self.counts.flushes += 1;
                self.file.sync_data()
            }
            Operation::Read => {
                self.counts.reads += 1;
                self.counts.read += BLOCK as u64;
                self.file.read_exact_at(&mut page[..], at)
            }
            Operation::Write => {
                self.counts.writes += 1;
                self.counts.written += BLOCK as u64;
                self.file.write_all_at(&page[..], at)
            }
        }
    }
}

impl Pages for FileWorld {
    fn alloc(&mut self) -> Option<Frame> {
        if let Some(frame) = self.unused.pop() {
            return Some(frame);
        }
        let frame = Frame(u32::try_from(self.pages.len()).ok()?);
        self.pages.push(Box::new([0; BLOCK]));
        Some(frame)
    }

    fn free(&mut self, frame: Frame) {
        self.unused.push(frame);
    }

    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        &self.pages[frame.0 as usize]
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        &mut self.pages[frame.0 as usize]
    }
}

impl Disk for FileWorld {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let result = self.perform(request).map_err(|_| DiskError);
        self.done.push_back((request.tag, result));
        Ok(())
    }

    fn run_max(&self) -> usize {
        RUN_MAX
    }

    /// Writes only: nothing here asks for runs of reads.
    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        if operation != Operation::Write {
            return Err(QueueFull);
        }
        self.run.clear();
        for frame in frames {
            self.run.extend_from_slice(&self.pages[frame.0 as usize][..]);
        }
        self.counts.writes += 1;
        self.counts.written += self.run.len() as u64;
        let result = self.file.write_all_at(&self.run, first * BLOCK as u64);
        self.done.push_back((tag, result.map_err(|_| DiskError)));
        Ok(())
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.done.pop_front()
    }

    fn wait(&mut self) {}
}

impl Random for FileWorld {
    /// No secret is kept here, and each run is to take the same instructions.
    fn next_u64(&mut self) -> u64 {
        self.chance += 1;
        crate::rows::mix(self.chance)
    }
}
