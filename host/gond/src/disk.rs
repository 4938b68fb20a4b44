//! A disk image as the store's world: blocks of a file, pages in memory, randomness of the host.
//!
//! Requests are done at once, with positioned reads and writes; a flush is `fdatasync`. An image opened for reading
//! refuses to write below everything else, so that no mistake above can change it.

use crate::arguments::show_size;
use crate::display::Job;
use crate::place;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::{BLOCK, Disk, DiskError, Frame, Operation, Pages, QueueFull, Random, Request};

// Flushes of a thread until one fails.
#[cfg(test)]
std::thread_local!(pub(crate) static FLUSHES_LEFT: core::cell::Cell<u32> = const { core::cell::Cell::new(u32::MAX) });

/// The access to an image.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Access {
    /// Nothing is ever written.
    Read,
    /// It may change.
    Write,
}

/// Keeps other runs away from an image for as long as it lives. Without it no image that exists is opened for change.
pub struct ImageLock {
    path: PathBuf,
    file: File,
}

impl ImageLock {
    /// The image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the programs that are started from now on have the lock, too: an emulator that outlives this run keeps the image to itself.
    pub fn hold_in_children(&self) -> Result<()> {
        rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())
            .with_context(|| format!("cannot hand on the lock of the disk image {}", self.path.display()))
    }
}

/// Refuses what no disk image can be, before it is opened.
///
/// # Errors
/// Something is there that is no regular file, or a link that leads to nothing.
pub fn require_image_file(path: &Path) -> Result<()> {
    if let Some(leads_to) = place::dangling(path) {
        bail!(
            "cannot use the disk image {}: it is a link to {}, which is not there; name the file itself, or remove the link",
            path.display(),
            leads_to.display()
        );
    }
    if let Some(what) = place::irregular(path) {
        bail!(
            "cannot use the disk image {}: it is {what}, not a regular file; name a file, such as './gond format FILE' makes",
            path.display()
        );
    }
    Ok(())
}

/// How long a lock is tried for: who has let it go may just be starting another program, and that has it too for a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);

/// Takes the lock of an image.
pub fn lock_image(path: &Path) -> Result<ImageLock> {
    require_image_file(path)?;
    let file = File::open(path).with_context(|| format!("cannot open the disk image '{}'", path.display()))?;
    lock_file(path, file)
}

/// Takes the lock of an image that is open, and has its name or will have it.
pub fn lock_file(path: &Path, file: File) -> Result<ImageLock> {
    let begun = Instant::now();
    let mut taken = file.try_lock();
    while matches!(taken, Err(std::fs::TryLockError::WouldBlock)) && begun.elapsed() < LOCK_PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        taken = file.try_lock();
    }
    match taken {
        Ok(()) => Ok(ImageLock {
            path: path.into(),
            file,
        }),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!(
                "the disk image {} is in use by another gond, or by the QEMU of one that was killed: wait until it ends, or take another image",
                path.display()
            )
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock the disk image {}", path.display()))
        }
    }
}

/// The store's world on the host.
pub struct HostWorld {
    file: File,
    access: Access,
    /// Keeps the lock for as long as something may be written.
    _lock: Option<File>,
    blocks: u64,
    pages: Vec<Box<[u8; BLOCK]>>,
    unused: Vec<Frame>,
    done: VecDeque<(u32, std::result::Result<(), DiskError>)>,
    random: File,
    /// Shows how much was read.
    job: Option<Job>,
    read: u64,
}

impl HostWorld {
    /// Opens an image for reading.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, None)
    }

    /// Opens an image that may change.
    pub fn open_for_change(lock: &ImageLock) -> Result<Self> {
        Self::open_with(&lock.path, Some(lock))
    }

    fn open_with(path: &Path, lock: Option<&ImageLock>) -> Result<Self> {
        require_image_file(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(lock.is_some())
            .open(path)
            .with_context(|| format!("cannot open the disk image '{}'", path.display()))?;
        let access = if lock.is_some() { Access::Write } else { Access::Read };
        let lock = lock.map(|lock| lock.file.try_clone()).transpose()?;
        Self::over(file, access, lock).with_context(|| format!("cannot use the disk image {}", path.display()))
    }

    /// Makes an image, sparse, of a new file.
    ///
    /// # Errors
    /// Those of the operating system, without the file's name.
    pub fn create(file: File, bytes: u64) -> Result<Self> {
        file.set_len(bytes / BLOCK as u64 * BLOCK as u64)?;
        Self::over(file, Access::Write, None)
    }

    fn over(file: File, access: Access, lock: Option<File>) -> Result<Self> {
        let blocks = file.metadata()?.len() / BLOCK as u64;
        let random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
        Ok(Self {
            file,
            access,
            _lock: lock,
            blocks,
            pages: Vec::new(),
            unused: Vec::new(),
            done: VecDeque::new(),
            random,
            job: None,
            read: 0,
        })
    }

    /// Shows from now on how much is read for a job, or no more.
    pub fn show(&mut self, job: Option<Job>) {
        if let Some(mut before) = core::mem::replace(&mut self.job, job) {
            before.clear();
        }
        self.read = 0;
    }

    /// Notes a read for the job that is shown.
    fn note_read(&mut self) {
        self.read += 1;
        if let Some(job) = &mut self.job
            && self.read.is_multiple_of(256)
        {
            job.step(&format!("{} read", show_size(self.read * BLOCK as u64)));
        }
    }

    fn flush(&self) -> std::io::Result<()> {
        #[cfg(test)]
        if FLUSHES_LEFT.replace(FLUSHES_LEFT.get().wrapping_sub(1)) == 0 {
            return Err(std::io::Error::other("a test's flush"));
        }
        self.file.sync_data()
    }

    fn perform(&mut self, request: Request) -> std::io::Result<()> {
        if request.operation == Operation::Read {
            self.note_read();
        }
        let at = request.block.saturating_mul(BLOCK as u64);
        let page = self.pages.get_mut(request.frame.0 as usize);
        let missing = || std::io::Error::other("no such page");
        if request.operation != Operation::Read && self.access == Access::Read {
            return Err(std::io::Error::other("opened for reading only"));
        }
        match request.operation {
            Operation::Flush => self.flush(),
            _ if request.block >= self.blocks => Err(std::io::Error::other("behind the end of the disk")),
            Operation::Read => self.file.read_exact_at(&mut page.ok_or_else(missing)?[..], at),
            Operation::Write => self.file.write_all_at(&page.ok_or_else(missing)?[..], at),
        }
    }
}

impl Pages for HostWorld {
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

impl Disk for HostWorld {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&mut self, request: Request) -> std::result::Result<(), QueueFull> {
        let result = self.perform(request).map_err(|_| DiskError);
        self.done.push_back((request.tag, result));
        Ok(())
    }

    fn complete(&mut self) -> Option<(u32, std::result::Result<(), DiskError>)> {
        self.done.pop_front()
    }

    fn wait(&mut self) {}
}

impl Random for HostWorld {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // Passwords rest on this: to go on without randomness would be worse than to stop.
        self.random.read_exact(&mut bytes).expect("/dev/urandom cannot be read");
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Scratch;

    fn request(operation: Operation, block: u64, frame: Frame) -> Request {
        Request {
            tag: 7,
            operation,
            block,
            frame,
        }
    }

    #[test]
    fn blocks_come_back() {
        let scratch = Scratch::make().unwrap();
        let path = scratch.file("image");
        let mut world = HostWorld::create(File::create_new(&path).unwrap(), 3 * BLOCK as u64 + 5).unwrap();
        assert_eq!(world.blocks(), 3);
        let frame = world.alloc().unwrap();
        world.bytes_mut(frame).fill(9);
        world.submit(request(Operation::Write, 2, frame)).unwrap();
        assert_eq!(world.complete(), Some((7, Ok(()))));
        world.submit(request(Operation::Write, 3, frame)).unwrap();
        assert_eq!(world.complete(), Some((7, Err(DiskError))));
        drop(world);
        let mut world = HostWorld::open(&path).unwrap();
        let frame = world.alloc().unwrap();
        world.submit(request(Operation::Read, 2, frame)).unwrap();
        assert_eq!(world.complete(), Some((7, Ok(()))));
        assert_eq!(world.bytes(frame), &[9; BLOCK]);
        world.submit(request(Operation::Write, 2, frame)).unwrap();
        assert_eq!(world.complete(), Some((7, Err(DiskError))));
    }

    #[test]
    fn an_image_has_one_user() {
        let scratch = Scratch::make().unwrap();
        let path = scratch.file("image");
        std::fs::write(&path, "x").unwrap();
        let lock = lock_image(&path).unwrap();
        assert!(lock_image(&path).is_err());
        drop(lock);
        assert!(lock_image(&path).is_ok());
    }
}
