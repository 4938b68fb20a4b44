//! kcore
