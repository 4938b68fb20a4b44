//! Kernel domains, and the kernel page that names them (decision 0039).
//!
//! The functions here are called by users through [`abi::Call::DomainCall`]. They run in the kernel, in the space of their
//! caller, with interrupts off and without the kernel lock: they wait for nothing, end soon, and touch no memory by a
//! user's address. The compiler is all that has verified them, so there is nothing here that did not come with the kernel.

use abi::{
    Error,
    kernel_page::{DOMAINS, DOMAINS_OFFSET, KERNEL_PAGE_MAGIC, KERNEL_PAGE_VERSION, KernelPage, SYSTEM_CALL_STUB},
};

use crate::{
    arch::{self, Results},
    supervisor::Supervisor,
};

/// Two words in the registers of the C convention.
#[repr(C)]
struct Words(u64, u64);

/// An entry of a kernel domain.
type Domain = extern "C" fn(u64, u64, u64, u64) -> Words;

/// All of them, in the order of the `DOMAIN_` numbers.
const fn table<S: Supervisor>() -> [Domain; DOMAINS] {
    [echo, random::<S>]
}

/// The sum of the parameters.
extern "C" fn echo(p0: u64, p1: u64, p2: u64, p3: u64) -> Words {
    Words(p0.wrapping_add(p1).wrapping_add(p2).wrapping_add(p3), 0)
}

/// A random word, and whether it is one: it is not if another processor is in the kernel.
extern "C" fn random<S: Supervisor>(_: u64, _: u64, _: u64, _: u64) -> Words {
    match S::system().enter_at_once() {
        Some(mut system) => Words(kcore::Hardware::random(&mut system.platform.kernel.hardware), 1),
        None => Words(0, 0),
    }
}

fn entry_of(domain: Domain) -> u64 {
    domain as *const () as u64
}

/// A call whose way is not remembered: finds out whether there is such an entry, and remembers it for the caller's space.
pub extern "C" fn call<S: Supervisor>(entry: u64, p0: u64, p1: u64, p2: u64, p3: u64, _: u64, _: u64) -> Results {
    let Some(&domain) = table::<S>().iter().find(|&&domain| entry_of(domain) == entry) else {
        return Results::of(Err(Error::NotAnEntry));
    };
    if let Some(mut system) = S::system().enter_at_once() {
        system.platform.kernel.remember_domain(entry);
    }
    let Words(value, value2) = domain(p0, p1, p2, p3);
    Results::of(Ok((value, value2)))
}

/// Writes the kernel page.
pub fn fill_kernel_page<S: Supervisor>() {
    let (start_ticks, ns_scale) = arch::clock_scale();
    let page = KernelPage {
        magic: KERNEL_PAGE_MAGIC,
        version: KERNEL_PAGE_VERSION,
        features: S::FEATURES,
        start_ticks,
        ns_scale,
        boot_time_ns: arch::time_of_day_ns(),
        domain_count: DOMAINS as u64,
    };
    let own = arch::kernel_page();
    own.write(0, &page.to_bytes());
    for (index, &domain) in table::<S>().iter().enumerate() {
        let at = DOMAINS_OFFSET as usize + index * 8;
        own.write(at, &entry_of(domain).to_le_bytes());
    }
    own.write(SYSTEM_CALL_STUB as usize, &arch::SYSTEM_CALL_STUB);
}
