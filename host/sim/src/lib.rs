//! Fakes for the host: a world in which the store can be run, crashed and run again.
//!
//! * [`own`]: whose memory is being allocated, for tests in which allocations fail.
//! * [`rng`]: the seeded generator from which everything random in a run comes.
//! * [`seeds`]: a test that is run for many seeds.
//! * [`memory`]: pages, with every misuse of a frame noticed.
//! * [`disk`]: a disk that completes in any order, forgets what was not flushed, and tears writes.
//! * [`world`]: both together, as the store wants them.
//! * [`machine`]: a processor and its memory below `kcore`, for the whole system on the host.
//! * [`blklog`]: recordings of a real run under QEMU, crashed at every flush.
//! * [`lab`]: the crash laboratory, lives of a store and power cuts, judged by a model (`gond crash`).
//!
//! A run is a function of its seed: what fails once fails again. The tests are in `tests/`.
#![forbid(unsafe_code)]

pub mod own;

pub mod rng;

pub mod seeds;

pub mod memory;

pub mod disk;

pub mod world;

pub mod machine;

pub mod blklog;

pub mod lab;
