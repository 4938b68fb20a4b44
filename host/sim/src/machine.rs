//! A processor and its memory, as far as kernel logic can see them.
//!
//! [`FakeHardware`] stands below `kcore::Kernel`, so that the real kernel logic, and a server on top
//! of it, run on the host. It walks the page tables that the kernel builds and *remembers*
//! translations as a processor does: what the kernel forgets to flush stays visible. [`Platform`]
//! puts the crashing disk beside it; it is all of the world that a server knows.
//!
//! A frame is kept twice, as bytes and as a table of entries, because there is no safe way to see
//! one as the other. No frame is used as both without being zeroed in between, so nobody can tell.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Arguments,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use abi::layout::BootReport;
use kcore::{
    Frame, Hardware, HoldsMachine, Kernel, Machine,
    paging::{frame_of, is_present},
    smp::record::FakeProcessors,
    space::Tags,
    thread::FakeRow,
};
use store::world::RUN_MAX;
use store::{BLOCK, Disk, DiskError, Operation, Pages, QueueFull, Random, Request};

use crate::{
    disk::{Block, CrashDisk, Stepped},
    own::Own,
    rng::Rng,
};

/// What fresh memory is full of.
const GARBAGE: u8 = 0xa5;
/// Bits of an entry that forbid or allow.
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const NO_EXECUTE: u64 = 1 << 63;
/// Where the kernel's own entry stands in every root.
const KERNEL_ENTRIES: &[(usize, u64)] = &[(511, 0x7fff_f003)];
/// Bit of the root register: what is remembered under the tag stays.
const KEEP_TRANSLATIONS: u64 = 1 << 63;
/// Lines of the log that are kept.
const LOG_LINES: usize = 64;
const TAG: u64 = 0xfff;

type Table = [AtomicU64; 512];

/// How user code touches memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// A page fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageFault;

/// A remembered translation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Translation {
    frame: Frame,
    write: bool,
    execute: bool,
}

impl Translation {
    const fn allows(self, touch: Touch) -> bool {
        match touch {
            Touch::Read => true,
            Touch::Write => self.write,
            Touch::Execute => self.execute,
        }
    }
}

#[derive(Default)]
struct Cell {
    bytes: OnceCell<Box<[u8; BLOCK]>>,
    table: OnceCell<Box<Table>>,
}

fn garbage() -> Box<[u8; BLOCK]> {
    Box::new([GARBAGE; BLOCK])
}

fn empty_table() -> Box<Table> {
    Box::new([const { AtomicU64::new(0) }; 512])
}

/// Memory, one processor with its translation cache, a clock, consoles.
pub struct FakeHardware {
    cells: Vec<Cell>,
    tags: Tags,
    /// What was loaded into the root register last.
    loaded: Option<u64>,
    translations: BTreeMap<(u64, u64), Translation>,
    rng: Rng,
    /// The clock, nanoseconds since boot. It stands still unless somebody moves it.
    pub now_ns: u64,
    /// When the timer would go off.
    pub timer_ns: Option<u64>,
    /// What was written to the streams.
    pub output: [Vec<u8>; 2],
    /// How much more each stream takes.
    pub room: [usize; 2],
    /// What can be read from the streams.
    pub input: [VecDeque<u8>; 2],
    /// The last lines of the log.
    pub log: VecDeque<String>,
    /// How often page tables, memory or remembered translations were reached: what an operation costs, roughly.
    accesses: AtomicU64,
    /// Bytes of heap that the server may still take.
    pub heap_left: u64,
    /// Tells the same where it is counted.
    pub heap_counted: Option<fn() -> u64>,
    /// What the system stopped with.
    pub stop: Option<u8>,
    /// What it tells of the boot.
    pub boot: BootReport,
}

impl FakeHardware {
    /// A machine with so many frames.
    pub fn new(frames: usize, tags: Tags, rng: Rng) -> Self {
        Self {
            cells: (0..frames).map(|_| Cell::default()).collect(),
            tags,
            loaded: None,
            translations: BTreeMap::new(),
            rng,
            now_ns: 0,
            timer_ns: None,
            output: [const { Vec::new() }; 2],
            room: [usize::MAX; 2],
            input: [const { VecDeque::new() }; 2],
            log: VecDeque::new(),
            accesses: AtomicU64::new(0),
            heap_left: 1 << 30,
            heap_counted: None,
            stop: None,
            boot: BootReport {
                processors: 1,
                ..BootReport::default()
            },
        }
    }

    /// How often page tables, memory or remembered translations were reached.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Relaxed)
    }

    fn count_access(&self) {
        self.accesses.fetch_add(1, Relaxed);
    }

    fn forget_tag(&mut self, tag: u64) {
        self.translations.retain(|&(other, _), _| other != tag);
    }

    /// What user code reaches at an address in the loaded space.
    ///
    /// # Errors
    /// [`PageFault`]. The processor then forgets what it remembered of the page.
    ///
    /// # Panics
    /// If no root is loaded.
    pub fn translate(&mut self, address: u64, touch: Touch) -> Result<Frame, PageFault> {
        let loaded = self.loaded.expect("user code runs without a root");
        let key = (loaded & TAG, address >> 12);
        if let Some(known) = self.translations.get(&key).copied() {
            if known.allows(touch) {
                return Ok(known.frame);
            }
            self.translations.remove(&key);
            return Err(PageFault);
        }
        let found = self
            .walk(frame_of(loaded), address)
            .filter(|found| found.allows(touch))
            .ok_or(PageFault)?;
        self.translations.insert(key, found);
        Ok(found.frame)
    }

    /// What the tables under a root say of an address.
    fn walk(&self, root: Frame, address: u64) -> Option<Translation> {
        if address >> 47 != 0 {
            return None;
        }
        let mut table = root;
        let (mut write, mut execute) = (true, true);
        for shift in [39, 30, 21, 12] {
            let entry = self.table(table)[(address >> shift) as usize & 511].load(Relaxed);
            if !is_present(entry) || entry & USER == 0 {
                return None;
            }
            write &= entry & WRITE != 0;
            execute &= entry & NO_EXECUTE == 0;
            table = frame_of(entry);
        }
        Some(Translation {
            frame: table,
            write,
            execute,
        })
    }

    /// Checks that what is remembered of a space is still true. `load` is what the next load of its
    /// root will be: without the bit that keeps translations, what is remembered does not count,
    /// unless the root is loaded now.
    ///
    /// # Panics
    /// If a translation is remembered that the tables no longer give.
    pub fn check_remembered(&self, root: Frame, load: u64) {
        let loaded = self.loaded.is_some_and(|loaded| frame_of(loaded) == root);
        if !loaded && load & KEEP_TRANSLATIONS == 0 {
            return;
        }
        let tag = load & TAG;
        for ((_, page), known) in self.translations.range((tag, 0)..(tag + 1, 0)) {
            let now = self.walk(root, page << 12);
            let true_still = now.is_some_and(|now| {
                now.frame == known.frame && now.write >= known.write && now.execute >= known.execute
            });
            assert!(
                true_still,
                "page {page:#x}: the processor remembers {known:?}, the tables say {now:?}"
            );
        }
    }

    /// Every leaf that the tables under a root link: slot, leaf, whether it may be written, executed.
    pub fn links(&self, root: Frame) -> Vec<(u64, Frame, bool, bool)> {
        let mut links = Vec::new();
        for (first, middle) in self.entries(root, 256) {
            for (second, lowest) in self.entries(frame_of(middle), 512) {
                for (third, entry) in self.entries(frame_of(lowest), 512) {
                    let slot = first << 18 | second << 9 | third;
                    links.push((slot, frame_of(entry), entry & WRITE != 0, entry & NO_EXECUTE == 0));
                }
            }
        }
        links
    }

    /// The upper tables under a root, the root included.
    pub fn upper_tables(&self, root: Frame) -> Vec<Frame> {
        let mut tables = vec![root];
        for (_, middle) in self.entries(root, 256) {
            tables.push(frame_of(middle));
            tables.extend(self.entries(frame_of(middle), 512).map(|(_, lowest)| frame_of(lowest)));
        }
        tables
    }

    fn entries(&self, table: Frame, count: usize) -> impl Iterator<Item = (u64, u64)> {
        let entries = self.table(table)[..count].iter().enumerate();
        entries
            .map(|(index, entry)| (index as u64, entry.load(Relaxed)))
            .filter(|(_, entry)| is_present(*entry))
    }

    fn cell(&self, frame: Frame) -> &Cell {
        &self.cells[frame.number() as usize]
    }

    fn content(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        let _own = Own::begin();
        let cell = &mut self.cells[frame.number() as usize].bytes;
        cell.get_or_init(garbage);
        cell.get_mut().expect("just made")
    }
}

impl Hardware for FakeHardware {
    type Row = FakeRow;
    type Processors = FakeProcessors;

    fn processors(&mut self) -> FakeProcessors {
        FakeProcessors::default()
    }

    fn threads(&mut self) -> FakeRow {
        FakeRow::of(64)
    }

    fn table(&self, frame: Frame) -> &Table {
        self.count_access();
        let _own = Own::begin();
        self.cell(frame).table.get_or_init(empty_table)
    }

    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        let _own = Own::begin();
        self.cell(frame).bytes.get_or_init(garbage)
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.content(frame)
    }

    fn zero(&mut self, frame: Frame) {
        self.count_access();
        self.content(frame).fill(0);
        if let Some(table) = self.cell(frame).table.get() {
            table.iter().for_each(|entry| entry.store(0, Relaxed));
        }
    }

    fn copy(&mut self, from: Frame, to: Frame) {
        self.count_access();
        let content = *self.bytes(from);
        *self.content(to) = content;
    }

    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        self.count_access();
        into.copy_from_slice(&self.bytes(frame)[offset..offset + into.len()]);
    }

    fn write(&mut self, frame: Frame, offset: usize, from: &[u8]) {
        self.count_access();
        self.content(frame)[offset..offset + from.len()].copy_from_slice(from);
    }

    fn kernel_entries(&self) -> &[(usize, u64)] {
        KERNEL_ENTRIES
    }

    fn tags(&self) -> Tags {
        self.tags
    }

    fn load_root(&mut self, value: u64) {
        if value & KEEP_TRANSLATIONS == 0 {
            self.forget_tag(value & TAG);
        }
        self.loaded = Some(value & !KEEP_TRANSLATIONS);
    }

    fn leave_all_roots(&mut self) {
        self.loaded = None;
    }

    fn loaded_root(&self) -> Option<u64> {
        self.loaded.map(|loaded| frame_of(loaded).physical())
    }

    fn flush_root(&mut self, root: Frame) {
        self.count_access();
        if let Some(loaded) = self.loaded.filter(|&loaded| frame_of(loaded) == root) {
            self.forget_tag(loaded & TAG);
        }
    }

    fn flush_page(&mut self, address: u64) {
        self.count_access();
        if let Some(loaded) = self.loaded {
            self.translations.remove(&(loaded & TAG, address >> 12));
        }
    }

    fn flush_everything(&mut self) {
        self.count_access();
        self.translations.clear();
    }

    fn vectors_are_quick(&self) -> bool {
        true
    }

    // Nobody uses the unit.
    fn vectors_have_room(&self, _: u32) -> bool {
        true
    }

    fn vectors_take_room(&mut self, _: u32, _: Frame) {}

    fn vectors_initial(&mut self) {}

    fn vectors_load(&mut self, _: u32) {}

    fn vectors_save(&mut self, _: u32) {}

    fn vectors_off(&mut self) {}

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn boot_time_ns(&self) -> u64 {
        1_000_000_000_000_000_000
    }

    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn stir_random(&mut self, words: [u64; 2]) {
        self.rng = Rng::new(self.rng.next_u64() ^ words[0] ^ words[1].rotate_left(32));
    }

    fn set_timer(&mut self, at_ns: u64) {
        self.timer_ns = Some(self.timer_ns.map_or(at_ns, |due| due.min(at_ns)));
    }

    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize {
        let _own = Own::begin();
        let stream = stream as usize % 2;
        let taken = bytes.len().min(self.room[stream]);
        self.room[stream] = self.room[stream].saturating_sub(taken);
        self.output[stream].extend_from_slice(&bytes[..taken]);
        taken
    }

    fn console_read(&mut self, stream: u64) -> Option<u8> {
        self.input[stream as usize % 2].pop_front()
    }

    fn log(&mut self, line: Arguments<'_>) {
        let _own = Own::begin();
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line.to_string());
    }

    fn log_bytes(&mut self, _bytes: &[u8]) {}

    fn mask_interrupt(&mut self, _: usize) {}

    fn unmask_interrupt(&mut self, _: usize) {}

    fn interrupt_message(&self, _: usize) -> (u64, u64) {
        (0, 0)
    }

    fn heap(&self) -> (u64, u64) {
        (0, self.heap_counted.map_or(self.heap_left, |left| left()))
    }

    fn kernel_frames(&self) -> u64 {
        0
    }

    fn stop(&mut self, exit: u8) {
        self.stop = Some(exit);
    }

    fn boot_report(&self) -> BootReport {
        self.boot
    }
}

/// The kernel's logic over fake hardware, and a disk that crashes: a whole world for a server.
pub struct Platform {
    /// Frames, spaces, threads, portals.
    pub kernel: Kernel<FakeHardware>,
    /// The disk.
    pub disk: CrashDisk,
    /// Frames that the store has taken and not given back. Those that came with a page that was
    /// read are the server's by now.
    pub taken_by_store: BTreeSet<u32>,
    /// Whether the disk completes a request while it is given the next one.
    pub completes_while_asked: bool,
}

impl HoldsMachine for Platform {
    type Held = Kernel<FakeHardware>;

    #[inline(always)]
    fn held(&self) -> &Self::Held {
        &self.kernel
    }

    #[inline(always)]
    fn held_mut(&mut self) -> &mut Self::Held {
        &mut self.kernel
    }
}

impl Platform {
    /// A machine with so many frames and this disk.
    pub fn new(frames: u32, tags: Tags, disk: CrashDisk, mut rng: Rng) -> Self {
        let hardware = FakeHardware::new(frames as usize, tags, rng.fork());
        // The first frame is nobody's, so that no root is zero.
        Self {
            kernel: Kernel::new(hardware, &[(1, frames)]),
            disk,
            taken_by_store: BTreeSet::new(),
            completes_while_asked: false,
        }
    }

    /// Lets the disk complete one request; `false` if none was under way.
    ///
    /// # Panics
    /// If a frame was changed while it was being written.
    pub fn step_disk(&mut self) -> bool {
        match self.disk.step() {
            Stepped::Idle => return false,
            Stepped::Read(read) => {
                for (frame, data) in read {
                    *self.bytes_mut(frame) = *data;
                }
            }
            Stepped::Wrote(written) => {
                for (frame, data) in written {
                    assert!(
                        Pages::bytes(self, frame) == &*data,
                        "{frame:?} was changed while it was being written"
                    );
                }
            }
            Stepped::Other => {}
        }
        true
    }
}

impl Pages for Platform {
    fn alloc(&mut self) -> Option<store::Frame> {
        let frame = self.kernel.frame_any().ok()?;
        let _own = Own::begin();
        self.taken_by_store.insert(frame.number());
        Some(store::Frame(frame.number()))
    }

    fn free(&mut self, frame: store::Frame) {
        assert!(
            self.taken_by_store.remove(&frame.0),
            "the store gives back {frame:?}, which it does not have"
        );
        self.kernel.frame_release(Frame::of_fake_hardware(frame.0));
    }

    fn bytes(&self, frame: store::Frame) -> &[u8; BLOCK] {
        self.kernel.hardware.bytes(Frame::of_fake_hardware(frame.0))
    }

    fn bytes_mut(&mut self, frame: store::Frame) -> &mut [u8; BLOCK] {
        self.kernel.hardware.bytes_mut(Frame::of_fake_hardware(frame.0))
    }
}

impl Disk for Platform {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let _own = Own::begin();
        if self.completes_while_asked {
            self.step_disk();
        }
        let data: Option<Block> =
            (request.operation == Operation::Write).then(|| Arc::new(*Pages::bytes(self, request.frame)));
        self.disk.submit(request, data)
    }

    fn run_max(&self) -> usize {
        RUN_MAX
    }

    fn submit_run(
        &mut self,
        tag: u32,
        operation: Operation,
        first: u64,
        frames: &[store::Frame],
    ) -> Result<(), QueueFull> {
        let _own = Own::begin();
        if self.completes_while_asked {
            self.step_disk();
        }
        let written = frames.iter().filter(|_| operation == Operation::Write);
        let data = written.map(|&frame| Arc::new(*Pages::bytes(self, frame))).collect();
        self.disk.submit_run(tag, operation, first, frames, data)
    }

    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        let _own = Own::begin();
        self.disk.complete()
    }

    fn wait(&mut self) {
        while !self.disk.has_completions() {
            assert!(self.step_disk(), "somebody waits for the disk and nothing is under way");
        }
    }
}

impl Random for Platform {
    fn next_u64(&mut self) -> u64 {
        self.kernel.random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Rights;
    use kcore::PageEntry;

    #[test]
    fn a_translation_is_remembered_until_it_is_flushed() {
        let disk = CrashDisk::new(64, Rng::new(1));
        let mut platform = Platform::new(64, Tags::Absent, disk, Rng::new(2));
        let space = platform.space_create().unwrap();
        let leaf = platform.leaf_create().unwrap();
        let frame = platform.frame_zeroed().unwrap();
        platform.leaf_set(leaf, 3, Some(PageEntry::new(frame, Rights::RW)));
        platform.link(space, 2048, leaf, Rights::RW).unwrap();
        platform.kernel.enter_space(space);
        let hardware = &mut platform.kernel.hardware;
        let address = (2048 << 21) + 3 * 4096;
        assert_eq!(hardware.translate(address, Touch::Write), Ok(frame));
        assert_eq!(hardware.translate(address, Touch::Execute), Err(PageFault));
        assert_eq!(hardware.translate(address, Touch::Read), Ok(frame));
        assert_eq!(hardware.translate(address + 4096, Touch::Read), Err(PageFault));
        platform.unlink(space, 2048);
        assert_eq!(
            platform.kernel.hardware.translate(address, Touch::Read),
            Ok(frame),
            "it was not flushed"
        );
        platform.flush_space(space);
        assert_eq!(platform.kernel.hardware.translate(address, Touch::Read), Err(PageFault));
    }
}
