//! What the system tells of itself, and switching it off.

use abi::{
    error::Result,
    layout::{
        BootReport, CONTROL_CHECKPOINT, CONTROL_POWER_OFF, CONTROL_REBOOT, DomainReport, MemoryReport, ObjectInfo,
        StoreReport, TOPIC_BOOT, TOPIC_DOMAIN, TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_STORE, TOPIC_THREAD, ThreadReport,
    },
};

use crate::call::{self, REPORT_WORDS};

macro_rules! report {
    ($(#[$meta:meta])* $name:ident: $type:ident, $topic:ident) => {
        $(#[$meta])*
        ///
        /// # Errors
        /// As `SystemInfo`.
        pub fn $name() -> Result<$type> {
            Ok($type::from_words(first(&read($topic, 0)?)))
        }
    };
}

report!(/// Memory.
    memory: MemoryReport, TOPIC_MEMORY);
report!(/// The disk and its checkpoints.
    store: StoreReport, TOPIC_STORE);
report!(/// The boot.
    boot: BootReport, TOPIC_BOOT);

/// All threads.
pub fn threads() -> impl Iterator<Item = ThreadReport> {
    each(TOPIC_THREAD, |words| {
        let report = ThreadReport::from_words(first(words));
        (report, report.thread)
    })
}

/// All domains.
pub fn domains() -> impl Iterator<Item = DomainReport> {
    each(TOPIC_DOMAIN, |words| {
        let report = DomainReport::from_words(first(words));
        (report, report.domain)
    })
}

/// All active objects.
pub fn objects() -> impl Iterator<Item = ObjectInfo> {
    each(TOPIC_OBJECT, |words| {
        let report = ObjectInfo::from_words(first(words));
        (report, report.base)
    })
}

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

fn read(topic: u64, index: u64) -> Result<[u64; REPORT_WORDS]> {
    let mut words = [0; REPORT_WORDS];
    call::system_info(topic, index, &mut words)?;
    Ok(words)
}

fn first<const N: usize>(words: &[u64; REPORT_WORDS]) -> [u64; N] {
    core::array::from_fn(|index| words.get(index).copied().unwrap_or(0))
}

/// All reports of a topic that has many: each is the first at or behind an index, and tells its own.
fn each<R>(topic: u64, decode: impl Fn(&[u64; REPORT_WORDS]) -> (R, u64)) -> impl Iterator<Item = R> {
    let mut next = Some(0);
    core::iter::from_fn(move || {
        let (report, index) = decode(&read(topic, next?).ok()?);
        next = index.checked_add(1);
        Some(report)
    })
}
