//! Changes of bytes at random, for tests that feed what is damaged.
#![allow(dead_code, reason = "each test uses its part")]

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Changes bytes as files are damaged, and as somebody would who knows the format.
    pub fn change(&mut self, bytes: &mut Vec<u8>) {
        const WORDS: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 62];
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => {
                    let word = WORDS[self.below(WORDS.len())].to_le_bytes();
                    let width = 1 << self.below(4);
                    for (byte, value) in bytes[at..].iter_mut().zip(&word[..width]) {
                        *byte = *value;
                    }
                }
                3 => {
                    let from = self.below(bytes.len());
                    let count = self.below(64).min(bytes.len() - at.max(from));
                    bytes.copy_within(from..from + count, at);
                }
                4 => bytes[at] = bytes[at].wrapping_add(1),
                5 if self.below(8) == 0 => bytes.truncate(at),
                // The tables at the end of an ELF file are where it hurts.
                _ => {
                    let back = self.below(bytes.len().min(3000));
                    let at = bytes.len() - 1 - back;
                    bytes[at] = self.next() as u8;
                }
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

/// The first seed and how many: what the environment says, or the usual.
pub fn rounds(usual: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (
        number("MODULE_SEED").unwrap_or(1),
        number("MODULE_FUZZ").unwrap_or(usual),
    )
}

/// Where a section of a relocatable is: its bytes of the file.
pub fn section(file: &[u8], name: &str) -> std::ops::Range<usize> {
    let long = |at| linker::elf::long(file, at).expect("eight bytes") as usize;
    let half = |at: usize| u16::from_le_bytes([file[at], file[at + 1]]) as usize;
    let header = |index: usize| long(40) + 64 * index;
    let names = long(header(half(62)) + 24);
    for index in 1..half(60) {
        let at = header(index);
        let start = names + long(at) as u32 as usize;
        if file[start..].starts_with(name.as_bytes()) && file[start + name.len()] == 0 {
            return long(at + 24)..long(at + 24) + long(at + 32);
        }
    }
    panic!("no section {name}");
}
