//! Text to the kernel's log.

use core::fmt;

use crate::call;

/// A writer that gathers eight bytes for each call; what is left goes when it is dropped.
#[derive(Default)]
pub struct Log {
    bytes: u64,
    count: u64,
}

impl Log {
    fn flush(&mut self) {
        if self.count > 0 {
            // A log that does not take it has no other place to complain.
            let _ = call::log_write(self.bytes, self.count);
            (self.bytes, self.count) = (0, 0);
        }
    }
}

impl fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.bytes |= u64::from(byte) << (8 * self.count);
            self.count += 1;
            if self.count == 8 {
                self.flush();
            }
        }
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes a line to the kernel's log.
#[macro_export]
macro_rules! log {
    ($($part:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::log::Log::default(), $($part)*);
    }};
}
