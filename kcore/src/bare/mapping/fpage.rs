//! Fpages: aligned power-of-two ranges of pages or of I/O ports, and where a sent one lands.

use abi::{
    Error, Rights,
    address::{ADDRESS_BITS, PAGE},
};

/// Ports that there are.
pub const PORTS: u64 = 1 << 16;

/// The resource that an fpage is a range of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Bytes of the address space; an fpage holds whole pages.
    Memory,
    /// I/O ports. They are never mapped at another number than their own.
    Ports,
}

/// A range of a space: base and size are powers of two of the same order, and the rights are those
/// that a sender offers, or that a receiver accepts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fpage {
    resource: Resource,
    base: u64,
    log2: u8,
    rights: Rights,
}

/// Bits of a page's offset.
const PAGE_LOG2: u8 = PAGE.trailing_zeros() as u8;

impl Fpage {
    /// A range of `2^log2` bytes of memory at the address `base`. The page sizes of the hardware
    /// are 12 (4 KiB), 21 (2 MiB) and 30 (1 GiB); any size from 12 to 47 names a range of such pages.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if the size is another, the base is not aligned to it or beyond the
    /// user addresses, or rights are missing R or have more than RWX: page tables cannot say so.
    pub fn memory(base: u64, log2: u8, rights: Rights) -> Result<Self, Error> {
        let whole = u32::from(log2) <= ADDRESS_BITS && log2 >= PAGE_LOG2;
        if !whole || base >> ADDRESS_BITS != 0 || !rights.contains(Rights::R) || !Rights::RWX.contains(rights) {
            return Err(Error::BadArgument);
        }
        Self::aligned(Resource::Memory, base, log2, rights)
    }

    /// A range of `2^log2` ports from `first`, to read and write.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it is not aligned to its size or leaves the 65,536 ports.
    pub fn ports(first: u64, log2: u8) -> Result<Self, Error> {
        if log2 > 16 || first >= PORTS {
            return Err(Error::BadArgument);
        }
        Self::aligned(Resource::Ports, first, log2, Rights::RW)
    }

    fn aligned(resource: Resource, base: u64, log2: u8, rights: Rights) -> Result<Self, Error> {
        if base & ((1 << log2) - 1) != 0 {
            return Err(Error::BadArgument);
        }
        Ok(Self {
            resource,
            base,
            log2,
            rights,
        })
    }

    /// Pages or ports.
    pub const fn resource(self) -> Resource {
        self.resource
    }

    /// First address, or first port.
    pub const fn base(self) -> u64 {
        self.base
    }

    /// Bytes, or ports.
    pub const fn size(self) -> u64 {
        1 << self.log2
    }

    /// Logarithm of the size.
    pub const fn log2(self) -> u8 {
        self.log2
    }

    /// The rights offered or accepted.
    pub const fn rights(self) -> Rights {
        self.rights
    }

    /// One past the last address or port.
    pub const fn end(self) -> u64 {
        self.base + self.size()
    }

    /// Whether both name something in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.resource == other.resource && self.base < other.end() && other.base < self.end()
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: Self) -> bool {
        self.resource == other.resource && self.base <= other.base && other.end() <= self.end()
    }

    /// The aligned part of this size that holds `offset` (from the base).
    fn part(self, offset: u64, log2: u8) -> Self {
        Self {
            base: self.base + (offset >> log2 << log2),
            log2,
            ..self
        }
    }

    /// The landing of this fpage in a receive window: the part that is sent, and its place in
    /// the receiver. Both have the smaller of the two sizes, and the rights that are both offered
    /// and accepted.
    ///
    /// L4 settles the choice that different sizes leave open by a *hot spot*. Here the hot spot is
    /// an fpage's own address, for in a single address space a page is best where it always is: a
    /// small fpage lands in a large window at the offset that its own address has there, and of a
    /// large fpage a small window gets the part at the offset that the window's address has in it.
    /// So a window over everything receives at the sender's address, and a window of the fpage's
    /// size receives at the window's address, wherever that is.
    ///
    /// # Errors
    /// [`Error::BadArgument`] for memory into ports or ports into memory, and for ports that are
    /// not in the window by their own numbers.
    pub fn landing(self, window: Fpage) -> Result<(Fpage, Fpage), Error> {
        if self.resource != window.resource {
            return Err(Error::BadArgument);
        }
        let rights = self.rights.intersection(window.rights);
        let log2 = self.log2.min(window.log2);
        let mut sent = self.part(window.base & (self.size() - 1), log2);
        let mut landed = window.part(self.base & (window.size() - 1), log2);
        (sent.rights, landed.rights) = (rights, rights);
        if self.resource == Resource::Ports && sent.base != landed.base {
            return Err(Error::BadArgument);
        }
        Ok((sent, landed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(base: u64, log2: u8) -> Fpage {
        Fpage::memory(base, log2, Rights::RW).expect("an fpage")
    }

    #[test]
    fn what_is_unaligned_or_too_large_is_refused() {
        assert!(Fpage::memory(0x1000, 13, Rights::R).is_err());
        assert!(Fpage::memory(0, 11, Rights::R).is_err());
        assert!(Fpage::memory(0, 48, Rights::R).is_err());
        assert!(Fpage::memory(0, 255, Rights::R).is_err());
        assert!(Fpage::memory(1 << 47, 12, Rights::R).is_err());
        assert!(
            Fpage::memory(0, 12, Rights::W).is_err(),
            "page tables cannot withhold reading"
        );
        assert!(Fpage::memory(0, 12, Rights::OWNER).is_err());
        assert!(Fpage::memory(0, 47, Rights::R).is_ok());
        assert!(Fpage::ports(0x3f8, 3).is_ok());
        assert!(Fpage::ports(0x3f8, 4).is_err());
        assert!(Fpage::ports(1 << 16, 0).is_err());
        assert!(Fpage::ports(0, 16).is_ok());
    }

    #[test]
    fn overlap_is_having_a_page_in_common() {
        assert!(memory(0x20_0000, 21).overlaps(memory(0x3f_f000, 12)));
        assert!(!memory(0x20_0000, 21).overlaps(memory(0x40_0000, 12)));
        assert!(!memory(0, 16).overlaps(Fpage::ports(0, 16).expect("ports")));
        assert!(memory(0, 47).contains(memory(0x1000, 12)));
        assert!(!memory(0x1000, 12).contains(memory(0, 47)));
    }

    #[test]
    fn ranges_are_sets_of_what_they_name() {
        let all = (0..=4).flat_map(|log2| (0..16u64 >> log2).map(move |number| (number << log2, log2)));
        let all: Vec<(u64, u64, Fpage)> = all
            .map(|(base, log2)| (base, base + (1 << log2), Fpage::ports(base, log2).expect("ports")))
            .collect();
        for &(first, end, one) in &all {
            for &(other_first, other_end, other) in &all {
                assert_eq!(
                    one.contains(other),
                    (other_first..other_end).all(|port| (first..end).contains(&port))
                );
                assert_eq!(
                    one.overlaps(other),
                    (other_first..other_end).any(|port| (first..end).contains(&port))
                );
            }
        }
    }

    #[test]
    fn a_fpage_lands_by_its_own_address_in_a_larger_window() {
        let (sent, landed) = memory(0x1234_5000, 12)
            .landing(memory(0x4000_0000, 21))
            .expect("landing");
        assert_eq!((sent.base(), sent.size()), (0x1234_5000, 4096));
        assert_eq!((landed.base(), landed.size()), (0x4014_5000, 4096));
        let (_, landed) = memory(0x1234_5000, 12).landing(memory(0, 47)).expect("landing");
        assert_eq!(landed.base(), 0x1234_5000);
    }

    #[test]
    fn a_smaller_window_gets_the_part_at_its_own_offset() {
        let (sent, landed) = memory(0x4000_0000, 21)
            .landing(memory(0x7012_3000, 12))
            .expect("landing");
        assert_eq!((sent.base(), sent.size()), (0x4012_3000, 4096));
        assert_eq!((landed.base(), landed.size()), (0x7012_3000, 4096));
        let (sent, landed) = memory(0x4000_0000, 21).landing(memory(0x60_0000, 21)).expect("landing");
        assert_eq!((sent.base(), landed.base()), (0x4000_0000, 0x60_0000));
    }

    #[test]
    fn rights_are_what_is_offered_and_accepted() {
        let window = Fpage::memory(0, 47, Rights::RX).expect("a window");
        let (sent, landed) = memory(0, 12).landing(window).expect("landing");
        assert_eq!((sent.rights(), landed.rights()), (Rights::R, Rights::R));
    }

    #[test]
    fn ports_stay_where_they_are() {
        let com1 = Fpage::ports(0x3f8, 3).expect("ports");
        let all = Fpage::ports(0, 16).expect("ports");
        assert_eq!(com1.landing(all).map(|(_, landed)| landed.base()), Ok(0x3f8));
        assert_eq!(all.landing(com1).map(|(sent, _)| sent.base()), Ok(0x3f8));
        assert!(com1.landing(Fpage::ports(0x2f8, 3).expect("ports")).is_err());
        assert!(com1.landing(memory(0, 47)).is_err());
    }
}
