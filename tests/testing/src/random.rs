//! Reproducible randomness: `SplitMix64` (Steele, Lea and Flood 2014).

/// A generator of words. Equal seeds give equal words.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator for the `index`-th step under a seed.
    pub const fn at(seed: u64, index: u64) -> Self {
        Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next word.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below a bound that is not zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// True once in so many times.
    pub const fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len().max(1) as u64) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn steps_repeat_and_differ() {
        let words = |index| {
            [0; 4].map(|_| 0_u64).map({
                let mut random = Random::at(7, index);
                move |_| random.word()
            })
        };
        assert_eq!(words(3), words(3));
        assert_ne!(words(3), words(4));
        let mut random = Random::at(0, 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
