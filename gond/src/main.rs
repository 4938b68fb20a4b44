//! gond
fn main() {}
