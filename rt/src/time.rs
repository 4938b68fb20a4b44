//! Time.

use abi::error::Result;

use crate::call::{self, kernel_page};

pub use call::ticks;

/// Nanoseconds since boot: by the kernel page, without a call.
pub fn since_boot_ns() -> u64 {
    match kernel_page::read() {
        Some(page) => page.ns_at(ticks()),
        None => call::clock_read().map_or(0, |(ns, _)| ns),
    }
}

/// Nanoseconds since 1970; 0 if the machine has no clock.
///
/// This clock may go back, for somebody may set it. A difference of two times needs `saturating_sub`; for durations within one
/// start of the system there is [`since_boot_ns`].
pub fn of_day_ns() -> u64 {
    call::clock_read().map_or(0, |(_, ns)| ns)
}

/// Sleeps so long.
///
/// # Errors
/// As `ThreadSleep`.
pub fn sleep_ns(ns: u64) -> Result<()> {
    // 0 would be a yield, and all ones a suspension.
    call::thread_sleep(0, ns.clamp(1, u64::MAX - 1))
}

/// Sleeps so many milliseconds.
///
/// # Errors
/// As `ThreadSleep`.
pub fn sleep_ms(ms: u64) -> Result<()> {
    sleep_ns(ms.saturating_mul(1_000_000))
}
