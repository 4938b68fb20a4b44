//! rules
#[test]
fn placeholder() {}
