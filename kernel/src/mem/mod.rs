//! Memory of the kernel itself, and what of it others see.
//!
//! [`division`] divides physical memory at the start: a part is put aside for the [`heap`] of the server's tables, as
//! one contiguous range of the direct map. The allocator takes it in pieces as it needs them; what it has
//! not taken does not count as used. When all of it is taken the server refuses what would need more, long before
//! an allocation fails ([`kcore::Machine::heap`]). [`device`] is what devices see, [`lock`] guards what
//! processors share; [`row`] is where threads stand.

pub mod device;
pub mod division;
pub mod heap;
pub mod lock;
pub mod row;
