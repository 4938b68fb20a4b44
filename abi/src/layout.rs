//! The shapes of what passes through memory. All are sequences of 64-bit little-endian words, so
//! that they have no padding and convert without unsafe code.
//!
//! A *report* is a shape that the system writes for a program, and that may grow: later versions only add words at the
//! end. So its length is its version. The program says how many bytes it has room for (a multiple of 8; what is more is not
//! used), the system writes as many of its own version as fit, and tells that version's length. A program that clears the
//! place before finds zero in what an older system does not know.

use crate::interface::interface;

interface! {
    /// A password capability: plain user data.
    struct Capability {
        /// Any address inside the object; directories and Clists keep the base.
        address,
        /// Valid if the object table lists it for that object.
        password,
    }

    /// Marks a Clist.
    const CLIST_MAGIC: u64 = 0x5453_494c_434e_4f47;
    /// The version of the Clist format.
    const CLIST_VERSION: u64 = 1;
    /// Flag: the capabilities are sorted by address, ascending, so that they can be searched by halves.
    const CLIST_SORTED: u64 = 1;

    /// The head of a Clist object; `count` [`Capability`] records follow it directly.
    struct ClistHeader {
        /// [`CLIST_MAGIC`].
        magic,
        /// [`CLIST_VERSION`].
        version,
        /// [`CLIST_SORTED`] or zero.
        flags,
        /// How many capabilities follow.
        count,
    }

    /// Slots of an active protection domain.
    const APD_SLOTS: usize = 16;

    /// Capabilities an object may have.
    const CAPABILITIES_MAX: usize = 128;
    /// PDX capabilities an object may have.
    const PDX_MAX: usize = 16;
    /// Entry points that the PDX capabilities of an object may name together.
    const ENTRIES_MAX: usize = 192;
    /// Protected calls that may be nested in one thread.
    const CALL_DEPTH_MAX: usize = 32;

    /// The `pd` argument of a protected call: the callee's domain extends the caller's.
    const PD_MERGE: u64 = 0;
    /// The `pd` argument of a protected call: the callee's domain is the registered Clist alone.
    const PD_EMPTY: u64 = 1;

    /// The report of `ObjInfo` about an object.
    struct ObjectInfo {
        /// Its base address.
        base,
        /// Its size in bytes.
        bytes,
        /// The rights of the caller's domain on it.
        rights,
        /// [`OBJECT_PERSISTENT`] and the other flags.
        flags,
        /// Passwords in the object table.
        capabilities,
        /// Registered PDX capabilities.
        pdx,
        /// Pages now in memory.
        resident,
        /// Nanoseconds since 1970, or since boot where the clock is not set.
        created_ns,
        /// As `created_ns`; may be set.
        modified_ns,
        /// A number for the owner's use; may be set.
        tag,
    }

    /// Bytes of an [`ObjectInfo`] up to what may be set: as much room a call needs that sets anything.
    const INFO_SET_BYTES: u64 = 80;

    /// Object flag: kept, so it survives its task and the power.
    const OBJECT_PERSISTENT: u64 = 1;
    /// Object flag: a thread's stack.
    const OBJECT_STACK: u64 = 2;

    /// `ObjInfo` flag: set the modification time from the buffer.
    const INFO_SET_MODIFIED: u64 = 1;
    /// `ObjInfo` flag: set the tag from the buffer.
    const INFO_SET_TAG: u64 = 2;
    /// `ObjInfo` flag: of the rights tell only those that the domain used already. Without it every Clist is searched for more.
    const INFO_USED: u64 = 4;

    /// `PageUnMap` disposition: the content is dropped; the pages read as zero.
    const UNMAP_ZERO: u64 = 0;
    /// `PageUnMap` disposition: changes since the last checkpoint are dropped, backing store is kept.
    const UNMAP_REPLACE: u64 = 1;

    /// The report of `ThreadWait` about a thread that ended.
    struct ExitReport {
        /// The thread.
        thread,
        /// Its status; at or above [`STATUS_SYSTEM`] the system ended it.
        status,
        /// Kind of the exception that ended it, or zero ([`EXCEPTION_PROTECTION`] and so on).
        exception,
        /// The address it touched.
        address,
        /// The instruction that did it.
        instruction,
        /// The rights it wanted there.
        wanted,
        /// The rights it had there; for [`EXCEPTION_RESOURCE`] the number of the error that says what was short.
        had,
    }

    /// Statuses from here on are made by the system: this plus the kind of exception.
    const STATUS_SYSTEM: u64 = 1 << 32;

    /// Exception: the thread was ended by another.
    const EXCEPTION_KILL: u64 = 1;
    /// Exception: an access without the right.
    const EXCEPTION_PROTECTION: u64 = 2;
    /// Exception: division by zero and the like.
    const EXCEPTION_ARITHMETIC: u64 = 3;
    /// Exception: an upcall that another thread asked for.
    const EXCEPTION_UPCALL: u64 = 4;
    /// Exception: an illegal instruction, a breakpoint or another trap.
    const EXCEPTION_ILLEGAL: u64 = 5;
    /// Exception: memory or disk is used up (a write that cannot be backed).
    const EXCEPTION_RESOURCE: u64 = 6;
    /// Exception: a page could not be read back intact from the disk.
    const EXCEPTION_DAMAGED: u64 = 7;
    /// Exception: the user at the terminal interrupted the program.
    const EXCEPTION_INTERRUPT: u64 = 8;
    /// How many kinds of exceptions there are, zero included.
    const EXCEPTION_KINDS: usize = 9;

    /// `ExcptReturn` action: run the faulting instruction again.
    const RESUME_RETRY: u64 = 0;
    /// `ExcptReturn` action: go on at the address given as the second argument.
    const RESUME_AT: u64 = 1;
    /// `ExcptReturn` action: end the thread as if there were no handler.
    const RESUME_END: u64 = 2;

    /// The report of `ThreadInfo` and of the list of threads.
    struct ThreadReport {
        /// The thread.
        thread,
        /// The task it belongs to.
        task,
        /// Its parent thread, or zero.
        parent,
        /// [`THREAD_READY`] and so on.
        state,
        /// 0 (lowest) to 7.
        priority,
        /// Domain it now runs in.
        domain,
        /// Protected calls it is inside of.
        depth,
        /// Processor time in nanoseconds.
        time_ns,
        /// The share of the processors, in thousandths of all of them, that its task may use in a period of 100 ms together with all tasks
        /// below it. Beyond it other tasks go first.
        share,
        /// The share that these tasks used in the last period, in thousandths.
        share_used,
    }

    /// Thread state: ready to run.
    const THREAD_READY: u64 = 0;
    /// Thread state: running.
    const THREAD_RUNNING: u64 = 1;
    /// Thread state: waiting for an event.
    const THREAD_WAITING: u64 = 2;
    /// Thread state: sleeping or suspended.
    const THREAD_SLEEPING: u64 = 3;
    /// Thread state: ended and not yet waited for.
    const THREAD_ENDED: u64 = 4;
    /// Ranges of a `PageFlushAll`, at most.
    const FLUSH_RANGES_MAX: u64 = 16;
    /// Lowest priority.
    const PRIORITY_MIN: u64 = 0;
    /// The priority a task begins with unless told otherwise.
    const PRIORITY_DEFAULT: u64 = 3;
    /// Highest priority.
    const PRIORITY_MAX: u64 = 7;
    /// Beside the priority of `TaskCreate`: where the caller holds the terminal, the task is in its foreground before it runs.
    const TASK_FOREGROUND: u64 = 1 << 8;

    /// The report of `SystemInfo` about a domain.
    struct DomainReport {
        /// The domain.
        domain,
        /// The task it belongs to, or zero for the domain of a protected procedure.
        task,
        /// Base of the PDX object, for the domain of a protected procedure.
        pdx_object,
        /// Clists in its APD.
        clists,
        /// Leading locked slots.
        locked,
        /// Objects in its validation cache.
        objects,
        /// Page-table pages of its own.
        tables,
        /// Threads now inside.
        threads,
    }

    /// The report of `SystemInfo` about memory.
    struct MemoryReport {
        /// Frames that are counted: those of the allocator and those of `kernel`. It varies a little as the kernel's heap does.
        frames,
        /// Free frames.
        free,
        /// Frames that the kernel has now: its image and tables since the boot, and its heap, which grows with what is in use.
        kernel,
        /// Pages of objects in memory; a frame that objects share copy-on-write counts for each.
        object_pages,
        /// Frames that are page tables.
        tables,
        /// Objects that are active.
        objects,
        /// Bytes of the server's heap in use.
        heap_bytes,
    }

    /// The report of `SystemInfo` about the store.
    struct StoreReport {
        /// Blocks that the system uses of the disk.
        blocks,
        /// Free blocks.
        free,
        /// Blocks promised to pages that are not yet written.
        reserved,
        /// Generation of the disk: it grows with each checkpoint that is no record of the journal, over all starts.
        generation,
        /// Objects in the object table.
        objects,
        /// Pages changed since the last checkpoint.
        dirty,
        /// Journal records replayed at start.
        replayed,
        /// Damaged pages met since start.
        damaged,
        /// 1 if the last record of the journal was incomplete at start: what it would have made stable is not there.
        cut,
        /// Complete checkpoints since start, those that are records of the journal included.
        checkpoints,
        /// 1 if a scrub is under way: all that is stored is being looked at.
        scrubbing,
        /// Blocks that it has looked at, or the last one.
        scrub_seen,
        /// Blocks that were in use when it began, those that only snapshots hold and superblocks included.
        scrub_all,
        /// Damaged ones among those that it has looked at.
        scrub_damaged,
        /// Complete scrubs since start.
        scrubs,
        /// Blocks read since start.
        reads,
        /// Blocks written since start.
        writes,
        /// Flushes since start.
        flushes,
        /// Snapshots.
        snapshots,
        /// 1 as long as blocks come back that snapshots held which were dropped.
        returning,
        /// When the next scrub begins that nobody asks for, in nanoseconds since start; 0 as long as that is not known.
        scrub_next_ns,
        /// Blocks of the disk when its size was read last, at the start or by [`CONTROL_DISK`].
        disk_blocks,
    }

    /// The report of `SystemInfo` about a snapshot. Its name is that of [`CONTROL_KEEP_SNAPSHOT`].
    struct SnapshotReport {
        /// Bytes 0 to 7 of its name.
        name,
        /// Bytes 8 to 15.
        name2,
        /// Bytes 16 to 23.
        name3,
        /// Bytes 24 to 31.
        name4,
        /// The generation of the disk that it is: no two snapshots have the same.
        generation,
        /// When it was made, in nanoseconds since 1970.
        time_ns,
        /// Objects in it.
        objects,
        /// Blocks that it holds, alone or with others.
        blocks,
        /// 1 if what tells of its blocks is damaged: part of the disk is not used until a repair.
        damaged,
    }

    /// The report of `SystemInfo` about the boot.
    struct BootReport {
        /// 1 if lines come over the control line.
        script,
        /// Processors in use.
        processors,
        /// 1 if the last power-off was clean.
        clean,
        /// Nanoseconds from power-on to the first user instruction.
        boot_ns,
        /// Ticks of the time-stamp counter in a microsecond.
        ticks_per_us,
        /// Hardware sources of randomness that were there: 1 RDRAND, 2 virtio-rng, 3 both.
        random_sources,
    }

    /// `SystemInfo` topic: [`MemoryReport`].
    const TOPIC_MEMORY: u64 = 0;
    /// `SystemInfo` topic: [`StoreReport`].
    const TOPIC_STORE: u64 = 1;
    /// `SystemInfo` topic: [`BootReport`].
    const TOPIC_BOOT: u64 = 2;
    /// `SystemInfo` topic: the [`ThreadReport`] of the first thread in order of places, which are the low 16 bits of the numbers, from that of `index` on.
    const TOPIC_THREAD: u64 = 3;
    /// `SystemInfo` topic: the [`DomainReport`] of the first domain whose number is at least `index`.
    const TOPIC_DOMAIN: u64 = 4;
    /// `SystemInfo` topic: the [`ObjectInfo`] of the first object whose base is at least `index`.
    const TOPIC_OBJECT: u64 = 5;
    /// `SystemInfo` topic: the [`SnapshotReport`] of the first snapshot whose generation is at least `index`; `BadAddress` without D on the root directory.
    const TOPIC_SNAPSHOT: u64 = 6;
    /// `SystemInfo` topic: lines of the system's log, text that is no report, each behind the seconds since the start. `index` is a position, in bytes of all lines
    /// since the start; the last 16 KiB are kept. Writes what follows it, [`LOG_BYTES_MAX`] bytes at most, and gives the position of the first one: a later one than was asked for
    /// is that of the first whole line that is kept. Zero bytes: there is nothing new. `BadAddress` without D on the root directory.
    const TOPIC_LOG: u64 = 7;
    /// Bytes of the log that one call gives at most.
    const LOG_BYTES_MAX: u64 = 1024;

    /// `SystemControl` operation: make everything stable now.
    const CONTROL_CHECKPOINT: u64 = 0;
    /// `SystemControl` operation: checkpoint and power off; the argument is [`crate::host::EXIT_SUCCESS`] or `EXIT_FAILURE`.
    const CONTROL_POWER_OFF: u64 = 1;
    /// `SystemControl` operation: checkpoint and reboot.
    const CONTROL_REBOOT: u64 = 2;
    /// `SystemControl` operation: look at all that is stored, in the background; the argument is 1 to begin, 0 to end that. Returns at once.
    const CONTROL_SCRUB: u64 = 3;
    /// `SystemControl` operation: keep the state of the whole disk by a name, as a snapshot; it is durable when the call returns. The four arguments
    /// are the bytes of the name, from the lowest of the first word on, and zeroes behind it: 1 to 31 letters, digits, hyphens, underscores
    /// and full stops of ASCII, of which the first is a letter or a digit. `BadArgument`: it is no name; `InUse`: there is one of that name; `TableFull`: there
    /// are 64; `DiskFull`, `NoMemory`; `DiskError`: the checkpoint that was to make it failed.
    const CONTROL_KEEP_SNAPSHOT: u64 = 4;
    /// `SystemControl` operation: drop the snapshot of the name that the four arguments are; that is durable when the call returns. Its blocks come back
    /// within seconds, while nobody wants the disk. `BadAddress`: there is none.
    const CONTROL_DROP_SNAPSHOT: u64 = 5;
    /// `SystemControl` operation: read the size of the disk again. With 1 as argument, and not 0, the system also takes what is new of it, up to 16 TiB; that is durable when the
    /// call returns. `DiskFull`: what tells of the new blocks has no room in them; `NoMemory`; `DiskError`: the disk is smaller than what the system uses of it, or the
    /// checkpoint that was to take the new blocks failed.
    const CONTROL_DISK: u64 = 6;
    /// Bytes of the longest name of a snapshot.
    const SNAPSHOT_NAME_BYTES: usize = 31;

    /// Console stream: the terminal.
    const STREAM_TERMINAL: u64 = 0;
    /// Console stream: the control line to the host tool.
    const STREAM_CONTROL: u64 = 1;

    /// A timeout that never ends, in nanoseconds.
    const FOREVER: u64 = u64::MAX;
}

/// An active protection domain as it passes through memory: `count`, `locked`, then the addresses
/// of the Clists in the order in which they are searched. Never passwords.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ApdDescription {
    /// Slots in use.
    pub count: u64,
    /// Leading slots that are locked.
    pub locked: u64,
    /// Addresses of Clists.
    pub slots: [u64; APD_SLOTS],
}

impl ApdDescription {
    /// Size in bytes.
    pub const BYTES: usize = 8 * (2 + APD_SLOTS);
}

/// The words in which the name of a snapshot passes, for [`CONTROL_KEEP_SNAPSHOT`]; `None` if it is too long.
pub fn snapshot_words(name: &str) -> Option<[u64; 4]> {
    let mut bytes = [0; 32];
    bytes[..SNAPSHOT_NAME_BYTES]
        .get_mut(..name.len())?
        .copy_from_slice(name.as_bytes());
    let mut words = [0; 4];
    for (word, eight) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*eight);
    }
    Some(words)
}

/// The bytes of such words, and how many there are before the zeroes at the end.
pub fn snapshot_bytes(words: [u64; 4]) -> ([u8; 32], usize) {
    let mut bytes = [0; 32];
    for (eight, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *eight = word.to_le_bytes();
    }
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (bytes, length)
}

/// The name of a kind of exception.
pub const fn exception_name(kind: u64) -> &'static str {
    match kind {
        EXCEPTION_KILL => "killed",
        EXCEPTION_PROTECTION => "protection fault",
        EXCEPTION_ARITHMETIC => "arithmetic fault",
        EXCEPTION_UPCALL => "upcall",
        EXCEPTION_ILLEGAL => "illegal instruction",
        EXCEPTION_RESOURCE => "out of memory, account or disk space",
        EXCEPTION_DAMAGED => "damaged page",
        EXCEPTION_INTERRUPT => "interrupted",
        _ => "unknown exception",
    }
}
