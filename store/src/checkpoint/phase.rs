//! The phases of a checkpoint, in the order in which they come.

/// How far a checkpoint is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Phase {
    /// Until the marks are made of the blocks that may be used again.
    Release,
    Quash,
    QuashFlush,
    /// Of a small checkpoint: rows and changes of maps go into its record.
    Rows,
    /// Places that syncs ahead of the last checkpoint have left are entered.
    Land,
    Settle,
    Doom,
    Pages,
    /// Of a small checkpoint: its record is summed up, and written.
    Sum,
    Record,
    Nodes,
    /// Blocks of table parts that are gone are set free.
    Freed,
    Table,
    /// A snapshot is made of what is written by now, or the list of those that stay.
    Snapshots,
    /// Heap is found for a larger store.
    Grow,
    Bitmap,
    Index,
    /// Until everything is written, for a flush covers only what is complete.
    Drain,
    Flush,
    Superblock,
    Commit,
    Second,
    SecondFlush,
    Done,
}

impl Phase {
    /// The phase behind this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Release => Self::Quash,
            Self::Quash => Self::QuashFlush,
            Self::QuashFlush => Self::Rows,
            Self::Rows => Self::Land,
            Self::Land => Self::Settle,
            Self::Settle => Self::Doom,
            Self::Doom => Self::Pages,
            Self::Sum => Self::Record,
            Self::Pages => Self::Nodes,
            Self::Nodes => Self::Freed,
            Self::Freed => Self::Table,
            Self::Table => Self::Snapshots,
            Self::Snapshots => Self::Grow,
            Self::Grow => Self::Bitmap,
            Self::Bitmap => Self::Index,
            Self::Index => Self::Drain,
            Self::Drain | Self::Record => Self::Flush,
            Self::Flush => Self::Superblock,
            Self::Superblock => Self::Commit,
            Self::Commit => Self::Second,
            Self::Second => Self::SecondFlush,
            Self::SecondFlush | Self::Done => Self::Done,
        }
    }
}
