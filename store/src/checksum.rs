//! The keyed checksums of an image.
//!
//! Parents hold the checksums of their children, and each covers the child's block number. So a
//! torn write, a lost write and a write that went elsewhere all show. The key keeps contents that a
//! user chose (or an older store left behind) from passing for a structure of this image. It is no
//! defence against someone who holds the disk, for the key stands in the superblock.
//!
//! Superblocks bear SipHash-1-3. Of a block, each pair of words is added to two words of a secret list and multiplied, and
//! SipHash-1-3 goes over the sum of the products and the block's number. For any two blocks the sums are equal with probability
//! 2^-64 (NH; Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication", 1999, theorem 4.2).

use core::hash::Hasher;

use alloc::vec::Vec;

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::{
    bytes::word,
    containers::push_reserved,
    heap::{NoHeap, with_room},
    world::BLOCK,
};

/// Words of a block.
const WORDS: usize = BLOCK / 8;
/// Pairs of words that one turn of the loop adds: as many sums as the registers hold.
const ROWS: usize = 4;

/// The key of an image.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Key {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Key {
    /// Under this one each block is believed, as if somebody who has the key had sealed the image again after a change.
    #[cfg(any(test, feature = "break-invariants"))]
    pub(crate) const OF_BELIEVERS: Self = Self {
        low: 0x6576_6569_6c65_6221,
        high: 0x6c6c_6120_6e69_2165,
    };

    /// SipHash-1-3 of `bytes` at `block`; never zero, for zero means "nothing there".
    pub(crate) fn checksum(self, block: u64, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.low, self.high);
        hasher.write(bytes);
        finish(hasher, block)
    }

    /// Two secret words for a generation: no other one of this image has them, and they tell nothing of the key.
    pub(crate) fn seed(self, generation: u64, nonce: u64) -> [u64; 2] {
        [0, 1].map(|place: u64| self.derive(b"seed", &[place, generation, nonce]))
    }

    /// Two words that stand for others, and tell nothing of the key; never two zeroes.
    pub(crate) fn identity(self, words: [u64; 4]) -> [u64; 2] {
        [0, 1].map(|place: u64| {
            self.derive(b"name", &[place, words[0], words[1], words[2], words[3]])
                .max(1)
        })
    }

    /// A secret word for a purpose. The function is another one than that of the checksums.
    fn derive(self, purpose: &[u8], words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.low, self.high);
        hasher.write(purpose);
        for word in words {
            hasher.write(&word.to_le_bytes());
        }
        hasher.finish()
    }
}

fn finish(mut hasher: SipHasher13, block: u64) -> u64 {
    hasher.write(&block.to_le_bytes());
    hasher.finish().max(1)
}

/// The checksums of an image's blocks and records.
pub(crate) struct Checksums {
    key: Key,
    /// As many secret words as a block has.
    words: Vec<u64>,
    /// The sums of products that a block of zeroes has from each pair of words on.
    of_zeroes: Vec<u128>,
    /// Whether there may be blocks that bear the checksum of version 1 of the format, which is that of superblocks.
    pub(crate) of_version_1: bool,
}

impl Checksums {
    /// Those of an image. They take two pages of heap.
    ///
    /// # Errors
    /// [`NoHeap`].
    pub(crate) fn new(key: Key, of_version_1: bool) -> Result<Self, NoHeap> {
        let mut words = with_room(WORDS)?;
        for place in 0..WORDS as u64 {
            push_reserved(&mut words, key.derive(b"block", &[place]));
        }
        let pairs = words.as_chunks::<2>().0;
        let mut of_zeroes: Vec<u128> = with_room(pairs.len())?;
        for [one, other] in pairs {
            push_reserved(&mut of_zeroes, u128::from(*one) * u128::from(*other));
        }
        let mut behind = 0_u128;
        for sum in of_zeroes.iter_mut().rev() {
            behind = behind.wrapping_add(*sum);
            *sum = behind;
        }
        Ok(Self {
            key,
            words,
            of_zeroes,
            of_version_1,
        })
    }

    /// The key of the image.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The checksum of `bytes` at `block`; never zero.
    pub(crate) fn of(&self, block: u64, bytes: &[u8]) -> u64 {
        let mut sum = self.sum();
        bytes.chunks(BLOCK).for_each(|piece| sum.add(self, piece, piece.len()));
        sum.finish(block)
    }

    /// Whether `bytes` at `block` are those that a checksum was made of.
    pub(crate) fn fit(&self, checksum: u64, block: u64, bytes: &[u8]) -> bool {
        self.believes_all()
            || self.of(block, bytes) == checksum
            || self.of_version_1 && self.key.checksum(block, bytes) == checksum
    }

    /// Whether blocks are believed whatever they hold: no image has such a key but in tests.
    #[cfg(any(test, feature = "break-invariants"))]
    fn believes_all(&self) -> bool {
        self.key == Key::OF_BELIEVERS
    }

    /// Whether blocks are believed whatever they hold: never.
    #[cfg(not(any(test, feature = "break-invariants")))]
    #[allow(clippy::unused_self, reason = "the same call in both builds")]
    fn believes_all(&self) -> bool {
        false
    }

    /// The beginning of one over bytes that come in parts.
    pub(crate) fn sum(&self) -> Sum {
        Sum(SipHasher13::new_with_keys(self.key.low, self.key.high))
    }

    /// The sum of the products, modulo 2^128. Bytes behind the last whole pair of words do not count: nothing has any.
    fn products(&self, bytes: &[u8]) -> u128 {
        let pairs = bytes.as_chunks::<16>().0;
        let secrets = self.words.as_chunks::<2>().0;
        let (rows, rest) = pairs.as_chunks::<ROWS>();
        let (secret_rows, last) = secrets[..pairs.len().min(secrets.len())].as_chunks::<ROWS>();
        // Each place in a row has a sum of its own: with one for all of them the compiler moves registers about.
        let mut sums = [(0, 0); ROWS];
        for (row, secrets) in rows.iter().zip(secret_rows) {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = add_product(*sum, (&row[at], &secrets[at]));
            }
        }
        let rest = rest.iter().zip(last).fold((0, 0), add_product);
        let all = sums.iter().chain([&rest]);
        all.fold(0, |all: u128, &(low, high)| {
            all.wrapping_add(u128::from(high) << 64 | u128::from(low))
        })
    }

    /// The same of bytes of which those from some place on are zeroes: in the time that the others take.
    fn products_to(&self, bytes: &[u8], zeroes_from: usize) -> u128 {
        let (from, end) = (zeroes_from.div_ceil(16), bytes.len() / 16);
        if from >= end {
            return self.products(bytes);
        }
        let from_on = |pair: usize| self.of_zeroes.get(pair).copied().unwrap_or(0);
        let of_zeroes = from_on(from).wrapping_sub(from_on(end));
        self.products(&bytes[..16 * from]).wrapping_add(of_zeroes)
    }
}

/// Adds the product of a pair of words with their secret ones to a sum: two words instead of one of 128 bits, for that the compiler moves registers about.
#[inline]
fn add_product((low, high): (u64, u64), (pair, secret): (&[u8; 16], &[u64; 2])) -> (u64, u64) {
    let [one, other] = [0, 1].map(|at| u128::from(word(pair, 8 * at).wrapping_add(secret[at])));
    let product = one * other;
    let (low, carry) = low.overflowing_add(product as u64);
    let high = high.wrapping_add((product >> 64) as u64);
    (low, high.wrapping_add(carry.into()))
}

/// A checksum in the making.
pub(crate) struct Sum(SipHasher13);

impl Sum {
    /// Adds bytes: pairs of words, not more than a block has. Those from `zeroes_from` on are zeroes.
    pub(crate) fn add(&mut self, checksums: &Checksums, bytes: &[u8], zeroes_from: usize) {
        debug_assert!(
            bytes.len() <= BLOCK && bytes.len().is_multiple_of(16),
            "whole pairs of one block"
        );
        debug_assert!(
            bytes.iter().skip(zeroes_from).all(|&byte| byte == 0),
            "zeroes from {zeroes_from} on"
        );
        let products = checksums.products_to(bytes, zeroes_from);
        self.0.write(&products.to_le_bytes());
    }

    /// The checksum of all that was added, at `block`.
    pub(crate) fn finish(&self, block: u64) -> u64 {
        finish(self.0, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksums(of_version_1: bool) -> Checksums {
        Checksums::new(Key { low: 1, high: 2 }, of_version_1).unwrap()
    }

    #[test]
    fn every_flipped_bit_and_every_exchange_of_words_shows() {
        let checksums = checksums(false);
        let words = (0..WORDS as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let block: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let right = checksums.of(9, &block);
        assert!(checksums.fit(right, 9, &block) && !checksums.fit(right, 10, &block));
        for bit in 0..BLOCK * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksums.of(9, &bad), right, "bit {bit}");
        }
        for at in 1..WORDS {
            let mut bad = block.clone();
            (0..8).for_each(|byte| bad.swap(byte, 8 * at + byte));
            assert_ne!(checksums.of(9, &bad), right, "word {at}");
        }
    }

    #[test]
    fn the_old_checksum_fits_in_old_images_alone() {
        let block = [5; BLOCK];
        let old = checksums(true).key.checksum(3, &block);
        assert!(checksums(true).fit(old, 3, &block) && !checksums(false).fit(old, 3, &block));
        assert!(!checksums(true).fit(old, 4, &block));
        assert_ne!(checksums(true).of(3, &block), old, "what is written bears the new one");
    }

    #[test]
    fn parts_are_the_whole() {
        let checksums = checksums(false);
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|at| at as u8).collect();
        let mut sum = checksums.sum();
        bytes
            .chunks(BLOCK)
            .for_each(|piece| sum.add(&checksums, piece, piece.len()));
        assert_eq!(sum.finish(7), checksums.of(7, &bytes));
    }

    #[test]
    fn zeroes_that_are_not_looked_at_count_as_others() {
        let checksums = checksums(false);
        for (length, used) in [
            (BLOCK, 0),
            (BLOCK, 1),
            (BLOCK, 200),
            (BLOCK, 4095),
            (BLOCK, BLOCK),
            (64, 16),
            (4080, 17),
            (16, 0),
        ] {
            let mut bytes = [0; BLOCK];
            bytes[..used].fill(7);
            let mut sum = checksums.sum();
            sum.add(&checksums, &bytes[..length], used);
            assert_eq!(sum.finish(9), checksums.of(9, &bytes[..length]), "{used} of {length}");
        }
    }
}
