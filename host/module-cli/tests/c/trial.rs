//! A Rust library for a module: formatting with `core`, state in what the caller passes.
#![no_std]
use core::fmt::Write;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

struct Buffer<'a> {
    to: &'a mut [u8; 64],
    used: usize,
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            *self.to.get_mut(self.used).ok_or(core::fmt::Error)? = byte;
            self.used += 1;
        }
        Ok(())
    }
}

/// Writes a number in three ways; the bytes written.
#[no_mangle]
pub extern "C" fn rust_format(to: &mut [u8; 64], number: u64) -> usize {
    let mut buffer = Buffer { to, used: 0 };
    let _ = write!(buffer, "{number:>8} {number:#x} {:?}", [number, 2]);
    buffer.used
}

/// Uses a variable of the module; whether that is possible depends on what the compiler did with rbx.
#[no_mangle]
pub extern "C" fn rust_count(words: &mut [u64; 16], each: extern "C" fn(u64) -> u64) -> u64 {
    static COUNT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
    let mut sum = 0;
    for index in 0..16 {
        words[index] = each(words[(index * 7) % 16] ^ sum);
        sum += each(words[index]) + COUNT.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
    sum
}
