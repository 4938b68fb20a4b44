//! Reports of the system about itself, and switching it off.

use abi::{
    error::Result,
    layout::{
        BootReport, CONTROL_CHECKPOINT, CONTROL_POWER_OFF, CONTROL_REBOOT, CONTROL_SCRUB, DomainReport, MemoryReport,
        ObjectInfo, StoreReport, TOPIC_BOOT, TOPIC_DOMAIN, TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_STORE, TOPIC_THREAD,
        ThreadReport,
    },
};

use crate::call;

macro_rules! report {
    ($(#[$meta:meta])* $name:ident: $type:ident, $topic:ident) => {
        $(#[$meta])*
        ///
        /// # Errors
        /// As `SystemInfo`.
        pub fn $name() -> Result<$type> {
            read($topic, 0).map($type::from_words)
        }
    };
}

report!(/// Memory.
    memory: MemoryReport, TOPIC_MEMORY);
report!(/// The disk and its checkpoints.
    store: StoreReport, TOPIC_STORE);
report!(/// The boot.
    boot: BootReport, TOPIC_BOOT);

macro_rules! list {
    ($(#[$meta:meta])* $name:ident: $type:ident by $number:ident, $topic:ident) => {
        $(#[$meta])*
        ///
        /// Those that the caller may see: all of them with D on the root directory, otherwise its own.
        pub fn $name() -> impl Iterator<Item = $type> {
            // Each is the first at or behind an index.
            let mut next = Some(0);
            core::iter::from_fn(move || {
                let report = read($topic, next?).map($type::from_words).ok()?;
                next = report.$number.checked_add(1);
                Some(report)
            })
        }
    };
}

list!(/// Threads.
    threads: ThreadReport by thread, TOPIC_THREAD);
list!(/// Domains.
    domains: DomainReport by domain, TOPIC_DOMAIN);
list!(/// Objects.
    objects: ObjectInfo by base, TOPIC_OBJECT);

/// How the session went, as the host tool will be told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything succeeded.
    Success,
    /// Something failed.
    Failure,
}

/// Makes everything stable now.
///
/// # Errors
/// As `SystemControl`.
pub fn checkpoint() -> Result<()> {
    call::system_control(CONTROL_CHECKPOINT, 0)
}

/// Makes everything stable and powers off.
///
/// # Errors
/// As `SystemControl`.
pub fn power_off(outcome: Outcome) -> Result<()> {
    let value = match outcome {
        Outcome::Success => abi::host::EXIT_SUCCESS,
        Outcome::Failure => abi::host::EXIT_FAILURE,
    };
    call::system_control(CONTROL_POWER_OFF, value.into())
}

/// Makes everything stable and starts anew.
///
/// # Errors
/// As `SystemControl`.
pub fn reboot() -> Result<()> {
    call::system_control(CONTROL_REBOOT, 0)
}

/// Begins to look at all that is stored, in the background, unless that is under way. [`store`] tells how far it is.
///
/// # Errors
/// As `SystemControl`.
pub fn scrub() -> Result<()> {
    call::system_control(CONTROL_SCRUB, 1)
}

/// Ends that.
///
/// # Errors
/// As `SystemControl`.
pub fn stop_scrub() -> Result<()> {
    call::system_control(CONTROL_SCRUB, 0)
}

/// The words of a report; what the system does not know of it is zero.
fn read<const N: usize>(topic: u64, index: u64) -> Result<[u64; N]> {
    let mut words = [0; N];
    call::system_info(topic, index, &mut words)?;
    Ok(words)
}
