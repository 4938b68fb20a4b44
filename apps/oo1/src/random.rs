//! Random numbers and folding, as `docs/spec/oo1.md` (sections 2 and 6) defines them: the same
//! numbers on every system, so that every system does the same work.

/// The seed of everything.
pub const SEED: u64 = 0x6f_6f31;

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The `number`-th stream.
    pub const fn stream(number: u64) -> Self {
        Self {
            state: mix(SEED.wrapping_add(number)),
        }
    }

    /// A generator in a given state.
    pub const fn with_state(state: u64) -> Self {
        Self { state }
    }

    /// The next word.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// The next number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The first value of a fold.
pub const FOLD_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Folds a word into a checksum.
#[inline]
pub const fn fold(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_first_numbers_are_those_of_the_specification() {
        let mut random = Random::stream(1);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [0x88a4_999f_905e_c925, 0x6980_1c54_742b_f7aa, 0x8de0_78ca_72ac_92ca]
        );
    }
}
