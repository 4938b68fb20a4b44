//! The kernel page: what is known without asking, and the entries of kernel domains.

use abi::kernel_page::{DOMAINS_OFFSET, KERNEL_PAGE, KERNEL_PAGE_MAGIC, KernelPage};

/// The page's head; `None` where there is no such page (on the host).
#[inline]
pub fn read() -> Option<KernelPage> {
    if !cfg!(target_os = "none") {
        return None;
    }
    let page = KernelPage::from_words(core::array::from_fn(|index| word(index as u64 * 8)));
    (page.magic == KERNEL_PAGE_MAGIC).then_some(page)
}

/// The entry of a kernel domain, for [`super::domain_call`].
#[inline]
pub fn domain(number: u64) -> Option<u64> {
    let page = read()?;
    (number < page.domain_count).then(|| word(DOMAINS_OFFSET + number * 8))
}

#[inline(always)]
fn word(offset: u64) -> u64 {
    // SAFETY: on the target every space has the page, nobody writes it, and all offsets used here lie on it; on the
    // host nobody comes here.
    unsafe { ((KERNEL_PAGE + offset) as *const u64).read_volatile() }
}
