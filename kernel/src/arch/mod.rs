//! The one place that chooses a processor architecture. All that an architecture must supply is
//! listed here by name; the rest of the kernel uses these names and nothing below them.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::image::entries;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    // Time and interrupts.
    clock::{now_ns, scale as clock_scale, ticks, ticks_halves, ticks_per_us, time_of_day_ns},
    // Memory.
    direct::{
        DIRECT_MAP, DIRECT_MAP_BYTES, OwnPage, bytes, bytes_mut, copy, map_device, physical_bytes, read, table, write,
        zero,
    },
    interrupts::{
        DEBUGGER_VECTOR, Interrupt, VECTOR_ATTENTION, accept, disk_message, enable_serial,
        initialise as initialise_interrupts, interrupt_message, mask_interrupt, poll_interrupts, set_timer,
        stop_forever, unmask_interrupt, wait_for_interrupt,
    },
    // A server outside of the kernel.
    outside::{Delivery, ENTRY_OUTSIDE, Target, note_server, set_server},
    // The start.
    paging::{THREAD_WINDOW, THREAD_WINDOW_BYTES, map_threads},
    paging::{build as build_tables, kernel_end, kernel_page},
    // Translations.
    paging::{flush_all, flush_page, kernel_entries, leave_all_roots, load, loaded_root, tags, user_root},
    // Console, log and exit.
    ports::{IoPorts, exit, log_bytes},
    // User code.
    processor::{Records, caller, ports_are_on, ports_off, ports_on, random_word, restart_call, set_thread},
    processor::{initialise as initialise_processor, largest_page},
    // The end.
    processor::{stack_above, stack_used},
    // Other processors.
    smp::{
        ask, attend, halt_others, hand_over, mark, processor_start, serve, start_processors, stop_processor,
        wake_processor,
    },
    start::{BootInformation, Memory},
    syscall::{Arguments, ENTRY_BARE, ENTRY_INSIDE, Entry, Results, SYSTEM_CALL_STUB, Words},
    traps::registers,
    traps::{fault_address, go_on as resume},
    vector::Vectors,
};
