//! Memory of the kernel itself: the heap that the server's tables live in.
//!
//! At the start a part of physical memory is put aside for the heap, as one contiguous range of the
//! direct map. The allocator takes it in pieces as it needs them; what it has not taken does not
//! count as used. When all of it is taken the server refuses what would need more, long before an
//! allocation fails ([`kcore::Machine::heap`]).

pub mod heap;
