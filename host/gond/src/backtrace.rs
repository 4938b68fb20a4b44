//! Back-traces of the kernel.
