//! A machine made of a vector: what kernel logic stands on in these tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::nucleus::{Call, message_buffer};
use kcore::{
    Frame, Half, Hardware, Kernel, Machine, SpaceId, ThreadId,
    bare::Bare,
    paging,
    scheduler::Standing,
    smp::{HandedOver, PROCESSORS_MAX, Request, record::FakeProcessors},
    space::Tags,
    thread::{FakeRow, Resumed},
};

/// A request to another processor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    Request(u32, Request),
    Stop(u32),
    Wake(u32),
}

/// Memory, a clock that tests set, and counts of what was asked for.
pub struct Fake {
    memory: Vec<Box<[AtomicU64; 512]>>,
    pub now_ns: u64,
    pub timer_ns: u64,
    pub flushes: u64,
    pub asked: Vec<Asked>,
    /// The state that the next stopped processor hands over.
    pub handed: Option<HandedOver>,
    /// The processor that is in the kernel.
    pub here: u32,
    /// The root that each processor has loaded, where it is not the kernel's own.
    pub loaded: [Option<Frame>; PROCESSORS_MAX],
    /// Interrupts that are masked, a bit each.
    pub masked: u32,
    /// The content of each processor's vector unit, where it is on. Zero is the initial state.
    pub unit: [Option<u64>; PROCESSORS_MAX],
    /// The states that were saved.
    saved: BTreeMap<u32, u64>,
    /// See [`Hardware::vectors_are_quick`].
    pub has_quick_vectors: bool,
    /// How the machine was stopped.
    pub stopped: Option<u8>,
    /// The log.
    pub logged: String,
    /// Bytes typed at the first terminal, the last one first.
    pub typed: Vec<u8>,
    /// Words for the random generator.
    pub stirred: Vec<[u64; 2]>,
    flushed: Flushed,
    tags: Tags,
    /// Places of threads at the start.
    pub threads: usize,
}

/// The translations to forget since the last look.
#[derive(Default)]
pub struct Flushed {
    pub roots: Vec<u32>,
    pub pages: Vec<u64>,
    pub everything: bool,
}

impl Fake {
    pub fn new(frames: u32, tags: Tags) -> Self {
        let memory = (0..frames)
            .map(|_| Box::new(std::array::from_fn(|_| AtomicU64::new(0xdead))))
            .collect();
        Self {
            memory,
            now_ns: 0,
            timer_ns: u64::MAX,
            flushes: 0,
            asked: Vec::new(),
            handed: None,
            here: 0,
            loaded: [None; PROCESSORS_MAX],
            masked: u32::MAX,
            unit: [None; PROCESSORS_MAX],
            saved: BTreeMap::new(),
            has_quick_vectors: true,
            stopped: None,
            logged: String::new(),
            typed: Vec::new(),
            stirred: Vec::new(),
            flushed: Flushed::default(),
            tags,
            threads: 1024,
        }
    }

    /// The translations to forget since the last call of this.
    pub fn take_flushed(&mut self) -> Flushed {
        std::mem::take(&mut self.flushed)
    }
}

/// A kernel on that many frames.
pub fn kernel(frames: u32) -> Kernel<Fake> {
    Kernel::new(Fake::new(frames, Tags::Absent), &[(1, frames)])
}

/// The same of a system without a server.
pub fn bare(frames: u32) -> Kernel<Fake, Bare> {
    Kernel::new(Fake::new(frames, Tags::Absent), &[(1, frames)])
}

/// The page tables' answer for an address, as the processor would find it: frame, writable, executable.
pub fn walk<P: Half>(kernel: &Kernel<Fake, P>, space: SpaceId, address: u64) -> Option<(Frame, bool, bool)> {
    let mut table = kernel.spaces().get(space).root();
    let (mut write, mut execute) = (true, true);
    for level in (0..4).rev() {
        let entry = kernel.hardware.table(table)[(address >> (12 + 9 * level)) as usize & 511].load(Relaxed);
        if !paging::is_present(entry) {
            return None;
        }
        write &= entry & 2 != 0;
        execute &= entry >> 63 == 0;
        table = paging::frame_of(entry);
    }
    Some((table, write, execute))
}

/// A repeatable generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    #[allow(dead_code, reason = "others choose by themselves")]
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

impl Hardware for Fake {
    type Row = FakeRow;
    type Processors = FakeProcessors;

    fn processors(&mut self) -> FakeProcessors {
        FakeProcessors::default()
    }

    fn threads(&mut self) -> FakeRow {
        FakeRow::of(self.threads)
    }

    fn table(&self, frame: Frame) -> &[AtomicU64; 512] {
        &self.memory[frame.number() as usize]
    }

    fn bytes(&self, _: Frame) -> &[u8; 4096] {
        unimplemented("contents as bytes")
    }

    fn bytes_mut(&mut self, _: Frame) -> &mut [u8; 4096] {
        unimplemented("contents as bytes")
    }

    fn zero(&mut self, frame: Frame) {
        self.memory[frame.number() as usize]
            .iter()
            .for_each(|word| word.store(0, Relaxed));
    }

    fn copy(&mut self, from: Frame, to: Frame) {
        for (place, word) in self.memory[to.number() as usize]
            .iter()
            .zip(self.memory[from.number() as usize].iter())
        {
            place.store(word.load(Relaxed), Relaxed);
        }
    }

    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            *byte = self.memory[frame.number() as usize][at / 8].load(Relaxed).to_le_bytes()[at % 8];
        }
    }

    fn write(&mut self, frame: Frame, offset: usize, from: &[u8]) {
        for (at, byte) in (offset..).zip(from) {
            let word = &self.memory[frame.number() as usize][at / 8];
            let mut bytes = word.load(Relaxed).to_le_bytes();
            bytes[at % 8] = *byte;
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    fn kernel_entries(&self) -> &[(usize, u64)] {
        &[(256, 0x7003), (511, 0x8003)]
    }

    fn tags(&self) -> Tags {
        self.tags
    }

    fn load_root(&mut self, value: u64) {
        self.loaded[self.here as usize] = Some(paging::frame_of(value));
    }

    fn leave_all_roots(&mut self) {
        self.loaded[self.here as usize] = None;
    }

    fn loaded_root(&self) -> Option<u64> {
        self.loaded[self.here as usize].map(Frame::physical)
    }

    fn flush_root(&mut self, root: Frame) {
        self.flushed.roots.push(root.number());
        self.flushes += 1;
    }

    fn flush_page(&mut self, address: u64) {
        self.flushed.pages.push(address);
        self.flushes += 1;
    }

    fn flush_everything(&mut self) {
        self.flushed.everything = true;
        self.flushes += 1;
    }

    fn ask(&mut self, processors: u32, request: Request) {
        self.asked.push(Asked::Request(processors, request));
        for (number, loaded) in self.loaded.iter_mut().enumerate() {
            if request == Request::LeaveRoot && processors & 1 << number != 0 {
                *loaded = None;
            }
        }
    }

    fn stop_processor(&mut self, processor: u32) -> Option<HandedOver> {
        self.asked.push(Asked::Stop(processor));
        self.loaded[processor as usize] = None;
        self.handed.take()
    }

    fn wake_processor(&mut self, processor: u32) {
        self.asked.push(Asked::Wake(processor));
    }

    fn vectors_are_quick(&self) -> bool {
        self.has_quick_vectors
    }

    fn vectors_have_room(&self, thread: u32) -> bool {
        self.saved.contains_key(&thread)
    }

    fn vectors_take_room(&mut self, thread: u32, _: Frame) {
        for neighbour in thread / 4 * 4..thread / 4 * 4 + 4 {
            // The state of the last thread in this place.
            self.saved.entry(neighbour).or_insert(u64::MAX);
        }
    }

    fn vectors_initial(&mut self) {
        self.unit[self.here as usize] = Some(0);
    }

    fn vectors_load(&mut self, thread: u32) {
        self.unit[self.here as usize] = Some(self.saved[&thread]);
    }

    fn vectors_save(&mut self, thread: u32) {
        let state = self.unit[self.here as usize].expect("the unit is on");
        self.saved.insert(thread, state);
    }

    fn vectors_off(&mut self) {
        self.unit[self.here as usize] = None;
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn boot_time_ns(&self) -> u64 {
        0
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn stir_random(&mut self, words: [u64; 2]) {
        self.stirred.push(words);
    }

    fn set_timer(&mut self, at_ns: u64) {
        self.timer_ns = self.timer_ns.min(at_ns);
    }

    fn console_write(&mut self, _: u64, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn console_read(&mut self, stream: u64) -> Option<u8> {
        self.typed.pop_if(|_| stream == 0)
    }

    fn log(&mut self, line: std::fmt::Arguments<'_>) {
        self.logged += &line.to_string();
        self.logged.push('\n');
    }

    fn log_bytes(&mut self, bytes: &[u8]) {
        self.logged += &String::from_utf8_lossy(bytes);
    }

    fn mask_interrupt(&mut self, interrupt: usize) {
        self.masked |= 1 << interrupt;
    }

    fn unmask_interrupt(&mut self, interrupt: usize) {
        self.masked &= !(1 << interrupt);
    }

    fn interrupt_message(&self, interrupt: usize) -> (u64, u64) {
        (0xfee0_0000, interrupt as u64)
    }

    fn heap(&self) -> (u64, u64) {
        (0, u64::MAX)
    }

    fn kernel_frames(&self) -> u64 {
        0
    }

    fn stop(&mut self, exit: u8) {
        self.stopped = Some(exit);
    }

    fn boot_report(&self) -> abi::layout::BootReport {
        abi::layout::BootReport {
            processors: 3,
            boot_ns: 44,
            ..Default::default()
        }
    }
}

fn unimplemented(what: &str) -> ! {
    panic!("these tests do not need {what}")
}

/// A ready thread.
pub fn spawn(kernel: &mut Kernel<Fake, impl Half>, space: SpaceId, priority: u8) -> ThreadId {
    let (entry, stack) = (0x1_0000_0000, 0x7f00_0010_0000);
    let thread = kernel.thread_create(space, entry, stack, [1, 2, 3, 4], Standing::new(0, priority));
    let thread = thread.expect("a thread");
    kernel.thread_wake(thread, Resumed::First);
    thread
}

/// Makes a thread the running one, which is ready; the order of the others stays.
pub fn make_running(kernel: &mut Kernel<Fake, Bare>, thread: ThreadId) -> u32 {
    let index = kernel.threads().find(thread).expect("the thread is there");
    kernel.yield_current();
    let mut others = Vec::new();
    while let Some(other) = kernel.schedule().filter(|&other| other != index) {
        let record = &kernel.threads().table[other as usize];
        others.push((record.id, record.resumed));
        kernel.thread_suspend(others[others.len() - 1].0);
    }
    for (other, resumed) in others {
        kernel.thread_wake(other, resumed);
    }
    assert_eq!(
        kernel.current(),
        Some(index),
        "{:?}",
        kernel.threads().get(thread).state
    );
    index
}

/// Puts the words of a message into the registers and the buffer of a thread.
pub fn set_words(kernel: &mut Kernel<Fake, Bare>, thread: ThreadId, words: &[u64]) {
    let record = kernel.threads_mut().get_mut(thread);
    let space = record.space;
    let mut first = [0; 4];
    let count = words.len().min(4);
    first[..count].copy_from_slice(&words[..count]);
    let context = &mut record.context;
    [context.r12, context.r13, context.r14, context.r15] = first;
    let (frame, ..) = walk(kernel, space, message_buffer(thread.0)).expect("a buffer");
    for (place, word) in kernel.hardware.table(frame).iter().zip(words) {
        place.store(*word, Relaxed);
    }
}

/// Whether a short way did the call of a thread that runs.
pub fn is_short(kernel: &mut Kernel<Fake, Bare>, thread: ThreadId, call: Call, arguments: [u64; 6]) -> bool {
    let [to, from, label, wait, window, _] = arguments;
    let value = match call {
        Call::Map => kernel.map_short([to, from, label, wait]),
        Call::Flush => kernel.flush_short([to, from, label]),
        Call::Ipc => {
            let arguments = [to, from, label, wait, window];
            let context = &kernel.threads().get(thread).context;
            let words = [context.r12, context.r13, context.r14, context.r15];
            let at = (context.rip, context.rsp);
            if let Some(turn) = kernel.ipc_fast(arguments, at.0, at.1) {
                let context = &mut kernel.threads_mut().table[turn.receiver as usize].context;
                context.reset(turn.rip, turn.rsp);
                context.set_results(0, label, turn.sender);
                [context.r12, context.r13, context.r14, context.r15] = words;
                return true;
            }
            return kernel.item_short(arguments, words, at).is_some()
                || kernel.ipc_apart(arguments, words, at).is_some();
        }
        _ => None,
    };
    if let Some(value) = value {
        let context = &mut kernel.threads_mut().get_mut(thread).context;
        context.reset(context.rip, context.rsp);
        context.set_results(0, value, 0);
    }
    value.is_some()
}
