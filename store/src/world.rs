//! The world as the store sees it: memory pages, a disk and randomness.
//!
//! The store holds no reference to any of them. Every operation takes the world as an argument, so
//! that the kernel, the host tool and the simulator each bring their own, and a run is repeatable.

/// Bytes in a block, and in a page.
pub const BLOCK: usize = abi::address::PAGE as usize;

/// A page of memory, by number.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Frame(pub u32);

/// Memory in pages.
pub trait Pages {
    /// A page with arbitrary contents, or `None` if there is none.
    fn alloc(&mut self) -> Option<Frame>;
    /// Gives a page back.
    fn free(&mut self, frame: Frame);
    /// The contents of a page.
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK];
    /// The contents of a page, for writing.
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK];
}

/// An operation of a disk.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Operation {
    /// Block to frame.
    Read,
    /// Frame to block. The frame must not change until the completion.
    Write,
    /// Make every write that was *complete* before this request stable. Block and frame mean nothing.
    Flush,
}

/// One request to the disk.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Request {
    /// It comes back with the completion; it is unique among the requests in flight.
    pub tag: u32,
    /// The operation.
    pub operation: Operation,
    /// Number of the block.
    pub block: u64,
    /// The page to read into or to write from.
    pub frame: Frame,
}

/// The disk takes no further request until one is complete.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct QueueFull;

/// The disk could not do it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct DiskError;

/// Blocks that one request reads or writes at most.
pub const RUN_MAX: usize = 16;

/// A disk of 4 KiB blocks that works asynchronously. Requests complete in any order, and nothing
/// is stable before a flush that was submitted after its completion is complete itself.
pub trait Disk {
    /// Size in blocks.
    fn blocks(&self) -> u64;
    /// Asks the device for its size anew, which may be another one than at the start: [`blocks`](Disk::blocks) tells that one from now on.
    fn measure(&mut self) {}
    /// Hands a request over.
    ///
    /// # Errors
    /// [`QueueFull`] if it must be offered again after a completion.
    fn submit(&mut self, request: Request) -> Result<(), QueueFull>;
    /// How many neighbouring blocks a request may read or write, [`RUN_MAX`] at most: one on a disk that knows no [runs](Disk::submit_run).
    fn run_max(&self) -> usize {
        1
    }
    /// Hands over, as one request, to read or write neighbouring blocks, from the first one on, each into or from a frame, [`run_max`](Disk::run_max) at most. It has one
    /// completion; if that is an error, none of the frames counts as read, and of none of the blocks is it known what it holds.
    ///
    /// # Errors
    /// [`QueueFull`]: nothing was handed over. A disk that knows no such requests takes none.
    fn submit_run(&mut self, tag: u32, operation: Operation, first: u64, frames: &[Frame]) -> Result<(), QueueFull> {
        let _ = (tag, operation, first, frames);
        Err(QueueFull)
    }
    /// A request that is complete: its tag and how it went.
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)>;
    /// Returns when at least one completion is there. Used only by mount, format, verify and host tools.
    fn wait(&mut self);
}

/// Unpredictable numbers.
pub trait Random {
    /// The next 64 bits.
    fn next_u64(&mut self) -> u64;
}

/// All of it.
pub trait World: Pages + Disk + Random {}

impl<T: Pages + Disk + Random> World for T {}
