//! Data that was stable and is not there any more, and how a refused mount is told to people.
//!
//! A crash never leaves these traces (docs/spec/store-format.md, "Mounting"), so each proves that the disk has rotted,
//! or has lost a write that it had acknowledged. A read-write mount is refused then: committing would put a new
//! generation over what could not be read, and what is there again once a bit is put back would be gone for good.

use crate::event::{Failure, MountError, Structure};
use abi::host::{HEAP_MOST, HEAP_PART};
use core::fmt::{Display, Formatter, Result};

/// Something that was stable and cannot be read.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Loss {
    /// A newer generation than the one found was durable, or may have been; the copies of its superblock are unreadable, or gone.
    Generation {
        /// The one found.
        found: u64,
        /// The one that is missing.
        newer: u64,
        /// Intact journal records that it left.
        records: u32,
    },
    /// Journal records from this sequence number on cannot be replayed.
    Records {
        /// The first one.
        sequence: u64,
        /// Intact records behind it.
        stranded: u32,
    },
    /// A lost record made, changed or deleted this object.
    Object {
        /// Its base.
        base: u64,
    },
    /// The newest contents of pages.
    Pages {
        /// Base of the object.
        base: u64,
        /// First page.
        first: u64,
        /// One past the last.
        end: u64,
    },
}

impl Loss {
    /// The object concerned, if it is known.
    pub fn base(&self) -> Option<u64> {
        match *self {
            Self::Generation { .. } | Self::Records { .. } => None,
            Self::Object { base } | Self::Pages { base, .. } => Some(base),
        }
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Self::Generation { found, newer, records } => {
                write!(
                    f,
                    "generation {newer} is unreadable, and what is there is the older generation {found}"
                )?;
                if records > 0 {
                    write!(f, "; {records} intact journal records prove that {newer} was stable")
                } else {
                    write!(f, "; whether {newer} was stable is not known")
                }
            }
            Self::Records { sequence, stranded } => write!(
                f,
                "the journal is damaged from record {sequence} on, with {stranded} intact records behind the damage"
            ),
            Self::Object { base } => write!(f, "the last stable change of object {base:#x} is lost"),
            Self::Pages { base, first, end } if end - first == 1 => {
                write!(f, "page {first} of object {base:#x} is lost")
            }
            Self::Pages { base, first, end } => {
                write!(f, "pages {first} to {} of object {base:#x} are lost", end - 1)
            }
        }
    }
}

/// Heap that the system takes beside the part that grows with the disk, roughly.
const HEAP_BESIDE: u64 = 8 << 20;
/// The step in which memory is advised, in MiB.
const MEMORY_STEP: u64 = 32;

/// The memory of a machine that can start from a disk which takes so much heap, in MiB, if there is any.
fn memory_for(heap: u64) -> Option<u64> {
    let all = heap.saturating_add(HEAP_BESIDE);
    (all <= HEAP_MOST).then(|| ((all * HEAP_PART) >> 20).next_multiple_of(MEMORY_STEP))
}

/// Advice for a machine whose heap is too small for a disk that takes so much of it.
struct Remedy(u64);

impl Display for Remedy {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match memory_for(self.0) {
            Some(memory) => write!(f, "Give the machine more memory ('./gond run --memory {memory}M')"),
            None => write!(
                f,
                "No machine has that much heap: bring what you need over to a smaller disk ('./gond export' and './gond import')"
            ),
        }
    }
}

impl Display for MountError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Foreign => write!(f, "it is not a Gondwana disk; './gond format FILE' makes a new one"),
            Self::Truncated(needed, present) => {
                write!(
                    f,
                    "it is truncated: it should have {needed} blocks of 4 KiB and has {present}. Take a copy that has its whole length"
                )
            }
            Self::Damaged(Structure::Snapshots, block) => write!(
                f,
                "nothing says which blocks its snapshots hold, for block {block} and what would say the same are damaged, so nothing can be written; \
                 it can be read, and 'gond check IMAGE --repair' says what can be saved"
            ),
            Self::Damaged(structure, block) => {
                write!(
                    f,
                    "it is damaged: {structure:?} at block {block}; 'gond check IMAGE --repair' says what can be saved"
                )
            }
            Self::Newer(version) => write!(f, "it was written by a newer system (format {version})"),
            Self::Features(unknown) => write!(
                f,
                "it has features of a newer system (bits {unknown:#x}); where it can be read without them, a read-only look shows it"
            ),
            Self::AddressBits(bits) => write!(f, "it is for addresses of {bits} bits"),
            Self::Disk => write!(
                f,
                "the disk reports an error, and nothing that was stable is lost by that. Start again when it works; from a disk that stays so, \
                 copy what can be read, and let 'gond check COPY' name what is lost. 'gond check --accept-loss' goes on without it"
            ),
            Self::Memory => write!(f, "there is not enough memory"),
            Self::TooLarge { blocks, heap } => write!(
                f,
                "it is too large for the memory of this machine: its {} MiB take {} KiB of the heap. {}",
                blocks >> 8,
                heap.div_ceil(1024),
                Remedy(*heap)
            ),
            Self::Recovery(Failure::Disk) => write!(
                f,
                "the disk reports an error, so that the recovery cannot be made durable. Nothing that was stable is lost: start again when it works"
            ),
            Self::Recovery(Failure::DiskFull) => write!(
                f,
                "the disk has no room to make the recovery durable. Nothing that was stable is lost: it can be read, 'gond grow IMAGE SIZE' makes it \
                 larger, and 'gond check IMAGE' says whether something is wrong with it"
            ),
            Self::Recovery(Failure::Memory) => {
                write!(
                    f,
                    "there is not enough memory to make the recovery durable; nothing that was stable is lost"
                )
            }
            Self::Recovery(Failure::Damaged) => write!(
                f,
                "a node of a page map that the recovery needs is damaged; it can be read, and 'gond check IMAGE --repair' says what can be saved"
            ),
            Self::Recovery(Failure::Checkpoint | Failure::ReadOnly) => {
                write!(
                    f,
                    "the recovery could not be made durable; nothing that was stable is lost"
                )
            }
            Self::Loss(loss) => write!(
                f,
                "it has lost something that was stable: {loss}. Nothing was written. Copy the image, then let \
                 'gond check IMAGE' name what is lost; 'gond check --accept-loss IMAGE' goes on without it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn heap_is_an_eighth_of_memory() {
        assert_eq!(memory_for(12 << 20), Some(160));
        assert_eq!(memory_for(128 << 20), Some(1088));
        assert_eq!(memory_for(u64::MAX), None);
    }

    #[test]
    fn a_loss_names_its_object() {
        let pages = Loss::Pages {
            base: 7,
            first: 0,
            end: 1,
        };
        assert_eq!((pages.base(), Loss::Object { base: 8 }.base()), (Some(7), Some(8)));
        let records = Loss::Records {
            sequence: 9,
            stranded: 9,
        };
        assert_eq!(records.base(), None);
    }

    #[test]
    fn a_loss_is_told_in_words() {
        let pages = |first, end| {
            Loss::Pages {
                base: 0x7000,
                first,
                end,
            }
            .to_string()
        };
        assert_eq!(pages(3, 4), "page 3 of object 0x7000 is lost");
        assert_eq!(pages(3, 6), "pages 3 to 5 of object 0x7000 are lost");
        let generation = |records| {
            let loss = Loss::Generation {
                found: 8,
                newer: 9,
                records,
            };
            loss.to_string()
        };
        assert!(generation(0).ends_with("whether 9 was stable is not known"));
        assert!(generation(1).ends_with("1 intact journal records prove that 9 was stable"));
    }
}
