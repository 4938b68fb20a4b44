//! The keyed checksum: SipHash-1-3 with a random key per image.
//!
//! Parents hold the checksums of their children, and each covers the child's block number. So a
//! torn write, a lost write and a write that went elsewhere all show. The key keeps contents that a
//! user chose (or an older store left behind) from passing for a structure of this image. It is no
//! defence against someone who holds the disk, for the key stands in the superblock.

use core::hash::Hasher;
use siphasher::sip::{SipHasher13, SipHasher24};

/// The key of an image.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Key {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Key {
    /// Checksum of `bytes` at `block`; never zero, for zero means "nothing there".
    pub(crate) fn checksum(self, block: u64, bytes: &[u8]) -> u64 {
        let mut sum = self.sum();
        sum.add(bytes);
        sum.finish(block)
    }

    /// The beginning of one over bytes that come in parts.
    pub(crate) fn sum(self) -> Sum {
        Sum(SipHasher13::new_with_keys(self.low, self.high))
    }

    /// Two secret words for a generation: no other one of this image has them, and they tell nothing of the key.
    pub(crate) fn seed(self, generation: u64, nonce: u64) -> [u64; 2] {
        [0, 1].map(|place: u64| {
            // Another function than that of the checksums.
            let mut hasher = SipHasher24::new_with_keys(self.low, self.high);
            hasher.write(b"seed");
            for word in [place, generation, nonce] {
                hasher.write(&word.to_le_bytes());
            }
            hasher.finish()
        })
    }
}

/// A checksum in the making.
pub(crate) struct Sum(SipHasher13);

impl Sum {
    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all that was added, at `block`.
    pub(crate) fn finish(&mut self, block: u64) -> u64 {
        self.0.write(&block.to_le_bytes());
        self.0.finish().max(1)
    }
}
