//! What a mounted store knows of addresses and of passwords to be: numbers that are never given twice.

use crate::store::Store;

impl Store {
    /// Slot numbers below this may be issued. It rises with every checkpoint; until then the
    /// issuer waits.
    pub fn lease(&self) -> u64 {
        self.lease
    }

    /// Slot numbers below this may have been issued.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Notes that slot numbers below `slot` have been issued.
    pub fn raise_high_water(&mut self, slot: u64) {
        self.high_water = self.high_water.max(slot);
    }

    /// Secret words for a generator of passwords. Each mount for writing has committed a generation that no mount
    /// before had, so these are others after each start, as long as the image is not copied.
    pub fn seed(&self) -> [u64; 2] {
        self.checksums.key().seed(self.generation, self.nonce)
    }
}
