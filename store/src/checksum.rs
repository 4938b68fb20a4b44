//! The keyed checksum: SipHash-1-3 with a random key per image.
//!
//! Parents hold the checksums of their children, and each covers the child's block number. So a
//! torn write, a lost write and a write that went elsewhere all show. The key keeps contents that a
//! user chose (or an older store left behind) from passing for a structure of this image. It is no
//! defence against someone who holds the disk, for the key stands in the superblock.

use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// The key of an image.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Key {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Key {
    /// Checksum of `bytes` at `block`; never zero, for zero means "nothing there".
    pub(crate) fn checksum(self, block: u64, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.low, self.high);
        hasher.write(bytes);
        hasher.write(&block.to_le_bytes());
        hasher.finish().max(1)
    }
}
