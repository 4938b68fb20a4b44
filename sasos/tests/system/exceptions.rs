//! exceptions
