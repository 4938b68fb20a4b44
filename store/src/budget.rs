//! The budget of one event: the kernel's event, the server's call and the store's step take from the same one.

/// The work that may be done before others have their turn, in instructions, roughly.
#[derive(Copy, Clone, Debug)]
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self::ALL
    }
}

impl Budget {
    /// No bound.
    pub const ALL: Self = Self::of(Self::UNTOUCHED - 1);
    /// The bit that says that nothing was taken off yet; the others are what is left. One word: each event begins with a new budget.
    const UNTOUCHED: u64 = 1 << 63;

    /// So much, at most [`Budget::ALL`].
    pub const fn of(left: u64) -> Self {
        Self(left | Self::UNTOUCHED)
    }

    /// Whether that much is left.
    pub const fn has(self, cost: u64) -> bool {
        self.left() >= cost
    }

    /// Whether something may be begun that costs so much and cannot be parted: with an untouched budget anything may, so that each
    /// event gets on; behind that, what is left must cover it.
    pub const fn allows(self, cost: u64) -> bool {
        self.is_untouched() || self.has(cost)
    }

    /// Whether nothing was taken off yet.
    pub const fn is_untouched(self) -> bool {
        self.0 & Self::UNTOUCHED != 0
    }

    /// Whether anything is left.
    pub const fn is_left(self) -> bool {
        self.left() > 0
    }

    /// How much is left.
    pub const fn left(self) -> u64 {
        self.0 & !Self::UNTOUCHED
    }

    /// Sees to it that so much is left, for what must come on in each event.
    pub fn at_least(&mut self, cost: u64) {
        self.0 = self.0 & Self::UNTOUCHED | self.left().max(cost);
    }

    /// Takes something off; tells whether there was anything left.
    pub fn spend(&mut self, cost: u64) -> bool {
        let any = self.is_left();
        self.0 = self.left().saturating_sub(cost);
        any
    }
}
