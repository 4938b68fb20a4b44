//! The kernel's log: text on the debug console port, which the host tool keeps.

use core::fmt;

use crate::arch;

/// A writer of the log.
pub struct Log;

impl fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        arch::log_bytes(text.as_bytes());
        Ok(())
    }
}

/// Writes a line to the log.
#[macro_export]
macro_rules! log {
    ($($part:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::log::Log, $($part)*);
    }};
}
