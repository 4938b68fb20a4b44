//! The kernel page: what the kernel tells every program without being asked (decision 0039).
//!
//! One page at a fixed address in every space, readable and executable, never written after the boot. It lies in the
//! kernel's half, so that spaces share it for nothing; to user code it is memory like other.

use crate::interface::interface;

interface! {
    /// Where the page is.
    const KERNEL_PAGE: u64 = 0xffff_ffff_4000_0000;
    /// Marks it.
    const KERNEL_PAGE_MAGIC: u64 = 0x4547_4150_4e57_4447;
    /// The version of its layout. Later ones only add.
    const KERNEL_PAGE_VERSION: u64 = 1;

    /// Feature: the server answers from outside of the kernel.
    const FEATURE_SERVER_OUTSIDE: u64 = 1;
    /// Feature: there is a server at all.
    const FEATURE_SERVER: u64 = 2;

    /// Offset of the stub for system calls: `call` it with registers as for `syscall`.
    const SYSTEM_CALL_STUB: u64 = 2048;
    /// Offset of the entries of kernel domains, in the order of the `DOMAIN_` numbers.
    const DOMAINS_OFFSET: u64 = 1024;

    /// Kernel domain: gives back its parameters' sum. For measuring.
    const DOMAIN_ECHO: u64 = 0;
    /// Kernel domain: a random word, as `RandomRead` gives it, without the server.
    const DOMAIN_RANDOM: u64 = 1;
    /// How many there are.
    const DOMAINS: usize = 2;

    /// The head of the kernel page.
    struct KernelPage {
        /// [`KERNEL_PAGE_MAGIC`].
        magic,
        /// [`KERNEL_PAGE_VERSION`].
        version,
        /// [`FEATURE_SERVER_OUTSIDE`] and the others.
        features,
        /// The time-stamp counter at the boot.
        start_ticks,
        /// Nanoseconds a tick, as a fraction of 2^32.
        ns_scale,
        /// Nanoseconds between 1970 and the boot, or 0.
        boot_time_ns,
        /// Entries of kernel domains, at [`DOMAINS_OFFSET`].
        domain_count,
    }
}

impl KernelPage {
    /// Nanoseconds since the boot when the counter shows this.
    #[inline]
    pub const fn ns_at(&self, ticks: u64) -> u64 {
        ((ticks.saturating_sub(self.start_ticks) as u128 * self.ns_scale as u128) >> 32) as u64
    }
}

/// Whether a user's instruction may stand there: in user memory or on the kernel page.
#[inline]
pub const fn is_user_instruction(address: u64) -> bool {
    address < crate::address::USER_END || address & !(crate::address::PAGE - 1) == KERNEL_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_follows_the_counter() {
        let page = KernelPage {
            start_ticks: 1000,
            ns_scale: 1 << 31,
            ..KernelPage::default()
        };
        assert_eq!(page.ns_at(0), 0);
        assert_eq!(page.ns_at(3000), 1000);
        assert_eq!(page.ns_at(u64::MAX), (u64::MAX - 1000) / 2);
    }

    #[test]
    fn the_parts_of_the_page_do_not_overlap() {
        assert!(KernelPage::BYTES as u64 <= DOMAINS_OFFSET);
        assert!(DOMAINS_OFFSET + DOMAINS as u64 * 8 <= SYSTEM_CALL_STUB && SYSTEM_CALL_STUB < 4096);
        assert!(is_user_instruction(KERNEL_PAGE + 4095) && !is_user_instruction(KERNEL_PAGE + 4096));
        assert!(!is_user_instruction(crate::address::USER_END));
    }
}
