//! `gond module` by itself.
fn main() {}
