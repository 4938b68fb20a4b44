//! Time: the time-stamp counter, measured once against the interval timer, and the clock that
//! keeps the date.

use core::{
    arch::{asm, x86_64::_rdtsc},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::ports::{read8, write8};

/// Counter value at the start.
pub(super) static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds a tick, as a fraction of 2^32.
pub(super) static SCALE: AtomicU64 = AtomicU64::new(0);
/// Ticks in a microsecond.
static TICKS_PER_US: AtomicU64 = AtomicU64::new(1);
/// Nanoseconds from 1970 to the start.
static DATE: AtomicU64 = AtomicU64::new(0);

/// The counter.
pub fn ticks() -> u64 {
    // SAFETY: every 64-bit processor has the counter and the kernel may read it.
    unsafe { _rdtsc() }
}

/// The counter as the processor gives it: low half, high half. For where each instruction counts.
#[inline(always)]
pub fn ticks_halves() -> [u32; 2] {
    let (low, high);
    // SAFETY: as in `ticks`.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
    [low, high]
}

/// Time over which the counters are measured, a four-hundredth of a second of the interval timer, and how often. They count more, never less, if the host takes the processor away
/// meanwhile, and time would be slow as long as the machine runs. So the least counts.
const PIT_COUNT: u16 = 2_983;
const PIT_NS: u64 = 2_500_038;
const MEASUREMENTS: usize = 4;

/// Runs the interval timer down while `meanwhile` counts; gives the least that both counted.
pub fn measure(start: impl Fn(), stop: impl Fn() -> u64) -> (u64, u64) {
    let mut least = (u64::MAX, u64::MAX);
    for _ in 0..MEASUREMENTS {
        let (ticks, counts) = measure_once(&start, &stop);
        least = (least.0.min(ticks), least.1.min(counts));
    }
    least
}

fn measure_once(start: impl Fn(), stop: impl Fn() -> u64) -> (u64, u64) {
    write8(0x61, read8(0x61) & 0xfc | 1);
    write8(0x43, 0xb0);
    write8(0x42, PIT_COUNT as u8);
    // Both count before the timer runs, which the next write begins: else they would count less if the host took the processor away in between.
    start();
    let before = ticks();
    write8(0x42, (PIT_COUNT >> 8) as u8);
    // A machine without the timer must not hang here: 268 million ticks are enough anywhere.
    while read8(0x61) & 0x20 == 0 && ticks() - before < 1 << 28 {}
    (ticks() - before, stop())
}

/// Notes that the counter ran `ticks` in one measurement, and the date.
pub fn initialise(measured: u64) {
    START.store(ticks(), Relaxed);
    SCALE.store(((PIT_NS as u128) << 32) as u64 / measured.max(1), Relaxed);
    TICKS_PER_US.store((measured * 1000 / PIT_NS).max(1), Relaxed);
    DATE.store(date().saturating_mul(1_000_000_000), Relaxed);
}

/// Nanoseconds of one measurement.
pub const fn measured_ns() -> u64 {
    PIT_NS
}

/// Nanoseconds since the start.
#[inline]
pub fn now_ns() -> u64 {
    // Another processor's counter may be a little behind the first one's.
    let ticks = ticks().saturating_sub(START.load(Relaxed));
    ((u128::from(ticks) * u128::from(SCALE.load(Relaxed))) >> 32) as u64
}

/// Counter value at the start, and nanoseconds a tick as a fraction of 2^32: for the kernel page.
pub fn scale() -> (u64, u64) {
    (START.load(Relaxed), SCALE.load(Relaxed))
}

/// Ticks in a microsecond.
pub fn ticks_per_us() -> u64 {
    TICKS_PER_US.load(Relaxed)
}

/// Nanoseconds from 1970 to the start.
pub fn time_of_day_ns() -> u64 {
    DATE.load(Relaxed)
}

fn register(index: u8) -> u8 {
    write8(0x70, index);
    read8(0x71)
}

/// Seconds since 1970 by the clock that keeps the date; zero if it is not plausible.
fn date() -> u64 {
    let read = || [0u8, 2, 4, 7, 8, 9].map(register);
    let mut fields = read();
    for _ in 0..8 {
        let again = read();
        if again == fields {
            break;
        }
        fields = again;
    }
    let binary = register(0x0b) & 4 != 0;
    let [second, minute, hour, day, month, year] = fields.map(|field| {
        u64::from(if binary {
            field
        } else {
            (field >> 4) * 10 + (field & 15)
        })
    });
    if month == 0 || month > 12 || day == 0 || day > 31 || hour > 23 {
        return 0;
    }
    // Days since 1970 by the civil calendar, years counted from March.
    let year = 2000 + year - u64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    ((days * 24 + hour) * 60 + minute) * 60 + second
}
