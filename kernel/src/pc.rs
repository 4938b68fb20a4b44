//! [`kcore::Hardware`] on the real machine.

use core::{fmt::Write, sync::atomic::AtomicU64};

use abi::{
    address::PAGE,
    layout::{BootReport, STREAM_CONTROL, STREAM_TERMINAL},
};
use chacha20::{
    ChaCha12Rng,
    rand_core::{Rng, SeedableRng},
};
use kcore::{
    Frame, Hardware, ThreadId,
    smp::{HandedOver, Request},
    space::Tags,
    trace::Kind,
};

use crate::{
    arch::{self, Records, Vectors},
    console::Line,
    log::Log,
    mem::{heap, row::Row},
    trace,
};

/// Base ports of the serial lines.
const TERMINAL_PORT: u16 = 0x3f8;
const CONTROL_PORT: u16 = 0x2f8;

/// The machine's parts beside memory and processors.
pub struct Pc {
    /// The terminal.
    pub terminal: Line,
    /// The control line.
    pub control: Line,
    random: ChaCha12Rng,
    entries: [(usize, u64); 2],
    boot: BootReport,
    fixed_frames: u64,
    /// The value of the exit device, once somebody asked to stop.
    pub stop: Option<u8>,
    /// States of the vector unit.
    pub vectors: Vectors,
}

impl Pc {
    /// The machine, seeded with these bytes. `fixed_frames` are the kernel's image, tables and
    /// device pages.
    pub fn new(seed: [u8; 32], boot: BootReport, fixed_frames: u64) -> Self {
        Self {
            terminal: Line::new(TERMINAL_PORT),
            control: Line::new(CONTROL_PORT),
            random: ChaCha12Rng::from_seed(seed),
            entries: arch::kernel_entries(),
            boot,
            fixed_frames,
            stop: None,
            vectors: Vectors::default(),
        }
    }

    /// The report of what is only known later in the boot.
    pub fn boot_mut(&mut self) -> &mut BootReport {
        &mut self.boot
    }

    fn line(&mut self, stream: u64) -> Option<&mut Line> {
        match stream {
            STREAM_TERMINAL => Some(&mut self.terminal),
            STREAM_CONTROL => Some(&mut self.control),
            _ => None,
        }
    }
}

impl Hardware for Pc {
    type Row = Row;
    type Processors = Records;

    fn processors(&mut self) -> Records {
        Records::take()
    }

    fn threads(&mut self) -> Row {
        Row::take()
    }

    #[inline(always)]
    fn table(&self, frame: Frame) -> &[AtomicU64; 512] {
        arch::table(frame)
    }

    fn bytes(&self, frame: Frame) -> &[u8; 4096] {
        arch::bytes(frame)
    }

    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; 4096] {
        arch::bytes_mut(frame)
    }

    #[inline(always)]
    fn zero(&mut self, frame: Frame) {
        arch::zero(frame);
    }

    fn copy(&mut self, from: Frame, to: Frame) {
        arch::copy(from, to);
    }

    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        arch::read(frame, offset, into);
    }

    fn write(&mut self, frame: Frame, offset: usize, from: &[u8]) {
        arch::write(frame, offset, from);
    }

    fn kernel_entries(&self) -> &[(usize, u64)] {
        &self.entries
    }

    fn tags(&self) -> Tags {
        arch::tags()
    }

    #[inline(always)]
    fn load_root(&mut self, value: u64) {
        arch::load(value);
    }

    fn leave_all_roots(&mut self) {
        arch::leave_all_roots();
    }

    fn loaded_root(&self) -> Option<u64> {
        arch::user_root()
    }

    fn flush_root(&mut self, root: Frame) {
        if arch::loaded_root() == root.physical() {
            arch::flush_all();
        }
    }

    fn flush_page(&mut self, address: u64) {
        arch::flush_page(address);
    }

    fn flush_everything(&mut self) {
        arch::flush_all();
    }

    fn ask(&mut self, processors: u32, request: Request) {
        arch::ask(processors, request);
    }

    fn stop_processor(&mut self, processor: u32) -> Option<HandedOver> {
        arch::stop_processor(processor)
    }

    fn wake_processor(&mut self, processor: u32) {
        arch::wake_processor(processor);
    }

    fn vectors_are_quick(&self) -> bool {
        Vectors::are_quick()
    }

    fn vectors_have_room(&self, thread: u32) -> bool {
        self.vectors.have_room(thread)
    }

    fn vectors_take_room(&mut self, thread: u32, frame: Frame) {
        self.vectors.take_room(thread, frame);
    }

    fn vectors_initial(&mut self) {
        Vectors::initial();
    }

    fn vectors_load(&mut self, thread: u32) {
        self.vectors.load(thread);
    }

    fn vectors_save(&mut self, thread: u32) {
        self.vectors.save(thread);
    }

    fn vectors_off(&mut self) {
        Vectors::off();
    }

    fn now_ns(&self) -> u64 {
        arch::now_ns()
    }

    fn boot_time_ns(&self) -> u64 {
        arch::time_of_day_ns()
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn stir_random(&mut self, words: [u64; 2]) {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        for (byte, more) in seed.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())) {
            *byte ^= more;
        }
        self.random = ChaCha12Rng::from_seed(seed);
    }

    fn set_timer(&mut self, at_ns: u64) {
        arch::set_timer(at_ns);
    }

    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize {
        self.line(stream).map_or(bytes.len(), |line| line.write(bytes))
    }

    fn console_read(&mut self, stream: u64) -> Option<u8> {
        self.line(stream)?.read()
    }

    fn log(&mut self, line: core::fmt::Arguments<'_>) {
        // Writing to the log cannot fail.
        let _ = writeln!(Log, "{line}");
    }

    fn log_bytes(&mut self, bytes: &[u8]) {
        arch::log_bytes(bytes);
    }

    fn mask_interrupt(&mut self, interrupt: usize) {
        arch::mask_interrupt(interrupt);
    }

    fn unmask_interrupt(&mut self, interrupt: usize) {
        arch::unmask_interrupt(interrupt);
    }

    fn interrupt_message(&self, interrupt: usize) -> (u64, u64) {
        let (address, data) = arch::interrupt_message(interrupt);
        (address, u64::from(data))
    }

    fn heap(&self) -> (u64, u64) {
        heap::usage()
    }

    fn kernel_frames(&self) -> u64 {
        self.fixed_frames + heap::claimed() / PAGE
    }

    fn stop(&mut self, exit: u8) {
        self.stop = Some(exit);
    }

    #[inline(always)]
    fn trace(&self, kind: Kind, thread: ThreadId, value: u64) {
        trace::record(kind, thread, value);
    }

    fn boot_report(&self) -> BootReport {
        self.boot
    }
}
