//! The contract with what is below: memory by frame number, and a few processor operations.

use core::sync::atomic::AtomicU64;

use crate::{
    Frame, ThreadId,
    frames::PAGE_BYTES,
    smp::{HandedOver, Processors, Request},
    space::Tags,
    thread::Row,
    trace::Kind,
};

/// The services that kernel logic needs of the machine. The kernel implements it over a direct map of physical
/// memory; the simulator over a vector.
pub trait Hardware {
    /// The row in which threads stand.
    type Row: Row;

    /// The records of the processors.
    type Processors: Processors;

    /// Them; called once.
    fn processors(&mut self) -> Self::Processors;
    /// The places that threads have; called once.
    fn threads(&mut self) -> Self::Row;
    /// A frame as a page table. Entries are atomic because the processors walk them.
    fn table(&self, frame: Frame) -> &[AtomicU64; 512];
    /// Content of a frame that no running thread can write to.
    fn bytes(&self, frame: Frame) -> &[u8; PAGE_BYTES];
    /// Content of a frame that no running thread can touch.
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; PAGE_BYTES];
    /// Fills with zeroes.
    fn zero(&mut self, frame: Frame);
    /// Copies a whole frame.
    fn copy(&mut self, from: Frame, to: Frame);
    /// Reads bytes of a frame that threads may be writing to.
    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]);
    /// Writes bytes of a frame that threads may be using.
    fn write(&mut self, frame: Frame, offset: usize, from: &[u8]);
    /// Entries of the upper half of every root table (index, entry): the kernel itself.
    fn kernel_entries(&self) -> &[(usize, u64)];
    /// Whether the processors tag translations; never changes.
    fn tags(&self) -> Tags;
    /// Loads a root by its value ([`crate::space::Space::load`]). Only the kernel calls it, which notes it down.
    fn load_root(&mut self, value: u64);
    /// Loads the kernel's own root.
    fn leave_all_roots(&mut self);
    /// Physical address of the root that is loaded here; nothing if that is the kernel's own.
    fn loaded_root(&self) -> Option<u64>;
    /// This processor forgets the translations of `root`, if that is loaded.
    fn flush_root(&mut self, root: Frame);
    /// This processor forgets the page.
    fn flush_page(&mut self, address: u64);
    /// This processor forgets all user pages.
    fn flush_everything(&mut self);
    /// Asks other processors (a bit for each number) and waits until all of them have done it. Not called where there is
    /// but one.
    fn ask(&mut self, processors: u32, request: Request) {
        let _ = (processors, request);
    }
    /// Takes the thread that runs on another processor off it. Its registers stand in its context then, unless it
    /// was waiting with a call, which is given back. That processor is on the kernel's own root.
    fn stop_processor(&mut self, processor: u32) -> Option<HandedOver> {
        let _ = processor;
        None
    }
    /// Lets another processor look for a thread to run. Does not wait.
    fn wake_processor(&mut self, processor: u32) {
        let _ = processor;
    }
    /// Whether one instruction gives the unit its initial state ([`Self::vectors_initial`]) on the fast paths, too.
    fn vectors_are_quick(&self) -> bool;
    /// Whether there is room for the state of the thread with this index.
    fn vectors_have_room(&self, thread: u32) -> bool;
    /// Makes room for it, and for those of its neighbours, in this frame of zeroes. It stays for the next threads in these places.
    fn vectors_take_room(&mut self, thread: u32, frame: Frame);
    /// Turns this processor's vector unit on, with the initial state: registers zero, control words as after a reset.
    fn vectors_initial(&mut self);
    /// Turns it on, with the state that was saved for a thread.
    fn vectors_load(&mut self, thread: u32);
    /// Saves the state in the unit, which is on, as a thread's.
    fn vectors_save(&mut self, thread: u32);
    /// Turns the unit off: what is in it cannot be read, and its use is an exception.
    fn vectors_off(&mut self);
    /// Nanoseconds since boot.
    fn now_ns(&self) -> u64;
    /// Nanoseconds between 1970 and boot.
    fn boot_time_ns(&self) -> u64;
    /// A random word fit for passwords.
    fn random(&mut self) -> u64;
    /// See [`crate::Machine::stir_random`].
    fn stir_random(&mut self, words: [u64; 2]);
    /// Asks for a timer interrupt of this processor at that time, if none is due earlier.
    fn set_timer(&mut self, at_ns: u64);
    /// See [`crate::Machine::console_write`].
    fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize;
    /// See [`crate::Machine::console_read`].
    fn console_read(&mut self, stream: u64) -> Option<u8>;
    /// See [`crate::Machine::log`].
    fn log(&mut self, line: core::fmt::Arguments<'_>);
    /// Writes bytes to the log as they are.
    fn log_bytes(&mut self, bytes: &[u8]);
    /// The interrupt does not come any more. One that goes on asking is masked when it comes, too.
    fn mask_interrupt(&mut self, interrupt: usize);
    /// The interrupt comes again, once its device asks for it.
    fn unmask_interrupt(&mut self, interrupt: usize);
    /// The message that raises an interrupt: address, data.
    fn interrupt_message(&self, interrupt: usize) -> (u64, u64);
    /// See [`crate::Machine::heap`].
    fn heap(&self) -> (u64, u64);
    /// See [`crate::Machine::kernel_frames`].
    fn kernel_frames(&self) -> u64;
    /// See [`crate::Machine::stop`].
    fn stop(&mut self, exit: u8);
    /// Records an event in the trace, where there is one.
    #[inline(always)]
    fn trace(&self, _kind: Kind, _thread: ThreadId, _value: u64) {}
    /// See [`crate::Machine::boot_report`].
    fn boot_report(&self) -> abi::layout::BootReport;
}
