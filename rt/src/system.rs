//! Reports of the system about itself, and switching it off.

use alloc::string::String;

use abi::{
    error::{Error, Result},
    layout::{
        BootReport, CONTROL_CHECKPOINT, CONTROL_DISK, CONTROL_DROP_SNAPSHOT, CONTROL_KEEP_SNAPSHOT, CONTROL_POWER_OFF,
        CONTROL_REBOOT, CONTROL_SCRUB, DomainReport, MemoryReport, ObjectInfo, SnapshotReport, StoreReport, TOPIC_BOOT,
        TOPIC_DOMAIN, TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_SNAPSHOT, TOPIC_STORE, TOPIC_THREAD, ThreadReport,
        snapshot_bytes, snapshot_words,
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
list!(/// Snapshots, in the order in which they were made. They are nobody's own.
    snapshots: SnapshotReport by generation, TOPIC_SNAPSHOT);

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
    control(CONTROL_CHECKPOINT, 0)
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
    control(CONTROL_POWER_OFF, value.into())
}

/// Makes everything stable and starts anew.
///
/// # Errors
/// As `SystemControl`.
pub fn reboot() -> Result<()> {
    control(CONTROL_REBOOT, 0)
}

/// Begins to look at all that is stored, in the background, unless that is under way. [`store`] tells how far it is.
///
/// # Errors
/// As `SystemControl`.
pub fn scrub() -> Result<()> {
    control(CONTROL_SCRUB, 1)
}

/// Ends that.
///
/// # Errors
/// As `SystemControl`.
pub fn stop_scrub() -> Result<()> {
    control(CONTROL_SCRUB, 0)
}

/// Lines of the system's log from a position on, as many bytes as there is room for, [`LOG_BYTES_MAX`](abi::layout::LOG_BYTES_MAX) at most: the position of the
/// first byte, and how many. [`TOPIC_LOG`] says more.
///
/// # Errors
/// As `SystemInfo`.
pub fn log(position: u64, into: &mut [u8]) -> Result<(u64, usize)> {
    call::system_log(position, into)
}

/// Reads the size of the disk again, in blocks, which may be more than the [store]'s, or fewer.
///
/// # Errors
/// As `SystemControl`.
pub fn measure_disk() -> Result<u64> {
    control(CONTROL_DISK, 0)?;
    Ok(store()?.disk_blocks)
}

/// Does that, and takes what is new of the disk. It is durable when this returns.
///
/// # Errors
/// As `SystemControl`: [`Error::DiskFull`] if what tells of the new blocks has no room in them, [`Error::NoMemory`], [`Error::DiskError`].
pub fn grow_store() -> Result<()> {
    control(CONTROL_DISK, 1)
}

/// Keeps the state of the whole disk by a name, as a snapshot: 1 to 31 letters, digits, hyphens, underscores and full stops, of which the first is a letter
/// or a digit. It is durable when this returns. A program that is stopped while it waits may have made it.
///
/// # Errors
/// As `SystemControl`: [`Error::BadArgument`] for what is no name, [`Error::InUse`] if there is one of that name, [`Error::TableFull`] if there are 64,
/// [`Error::DiskFull`], [`Error::NoMemory`], [`Error::DiskError`].
pub fn keep_snapshot(name: &str) -> Result<()> {
    of_name(CONTROL_KEEP_SNAPSHOT, name)
}

/// Drops the snapshot of a name. Its blocks come back within seconds, while nobody wants the disk: `returning` of [`store`] tells whether that is still to come.
///
/// # Errors
/// As [`keep_snapshot`]; [`Error::BadAddress`] if there is none of that name.
pub fn drop_snapshot(name: &str) -> Result<()> {
    of_name(CONTROL_DROP_SNAPSHOT, name)
}

/// The name in a report of [`snapshots`].
pub fn snapshot_name(report: &SnapshotReport) -> String {
    let (bytes, length) = snapshot_bytes([report.name, report.name2, report.name3, report.name4]);
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
}

fn of_name(operation: u64, name: &str) -> Result<()> {
    let [argument, second, third, fourth] = snapshot_words(name).ok_or(Error::BadArgument)?;
    call::system_control(operation, argument, second, third, fourth)
}

fn control(operation: u64, argument: u64) -> Result<()> {
    call::system_control(operation, argument, 0, 0, 0)
}

/// The words of a report; what the system does not know of it is zero.
fn read<const N: usize>(topic: u64, index: u64) -> Result<[u64; N]> {
    let mut words = [0; N];
    call::system_info(topic, index, &mut words)?;
    Ok(words)
}
