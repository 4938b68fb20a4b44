//! The rights that a capability gives.

/// A set of rights. `RWXD` together make an owner.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Rights(u8);

impl Rights {
    /// No rights.
    pub const NONE: Self = Self(0);
    /// Execute.
    pub const X: Self = Self(1);
    /// Write.
    pub const W: Self = Self(2);
    /// Read.
    pub const R: Self = Self(4);
    /// Destroy.
    pub const D: Self = Self(8);
    /// Protected call (PDX).
    pub const P: Self = Self(16);
    /// Read and write.
    pub const RW: Self = Self(6);
    /// Read and execute.
    pub const RX: Self = Self(5);
    /// Read, write and execute: all that page tables can express.
    pub const RWX: Self = Self(7);
    /// All that an owner has.
    pub const OWNER: Self = Self(15);

    /// The set that `bits` encode, or `None` if a bit has no meaning.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits < 32 { Some(Self(bits as u8)) } else { None }
    }

    /// The encoding.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The rights in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The rights in `self` but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether nothing is allowed.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::fmt::Display for Rights {
    /// Five places, a dash for what is missing: `rwxdp`, `r----`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (right, letter) in [
            (Self::R, 'r'),
            (Self::W, 'w'),
            (Self::X, 'x'),
            (Self::D, 'd'),
            (Self::P, 'p'),
        ] {
            let shown = if self.contains(right) { letter } else { '-' };
            core::fmt::Write::write_char(f, shown)?;
        }
        Ok(())
    }
}

impl core::fmt::Debug for Rights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Rights;

    #[test]
    fn letters_stand_in_their_places() {
        assert_eq!(Rights::OWNER.to_string(), "rwxd-");
        assert_eq!(Rights::P.to_string(), "----p");
        assert_eq!(Rights::from_bits(32), None);
    }
}
