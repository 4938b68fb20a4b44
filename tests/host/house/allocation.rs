//! The server allocates only where it can be refused (decision 0086).
//!
//! What aborts when memory is out is banned in `sasos/src` outside of tests: boxes, macros and containers that allocate by themselves, and
//! appending to a vector. The exceptions are counted, file by file, so that none is added in silence; each says why it is sound, or that it
//! is still to go.

use crate::source::{Source, sources};
use std::collections::BTreeMap;
use std::path::Path;

/// What may allocate without saying so.
const BANNED: [&str; 14] = [
    "Box::new",
    "vec![",
    "format!",
    "BTreeMap::new",
    "BTreeSet::new",
    "BTreeMap<",
    "BTreeSet<",
    "VecDeque<",
    "with_capacity(",
    ".collect()",
    ".to_vec()",
    ".push(",
    ".push_back(",
    ".append(",
];

/// Code that does not run in a system that must go on: tests, and the check of everything where assertions are on.
const EXEMPT: [&str; 2] = ["sasos/src/accounts/tests.rs", "sasos/src/calls/check.rs"];

/// File, how often, why.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
EXCEPTION_LIST];

fn banned_in(source: &Source) -> usize {
    let code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    BANNED.iter().map(|word| code.matches(word).count()).sum()
}

#[test]
fn the_server_allocates_only_where_it_can_be_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let allowed: BTreeMap<&str, usize> = EXCEPTIONS.iter().map(|&(path, count, _)| (path, count)).collect();
    let mut wrong = Vec::new();
    for source in sources(&root) {
        let path = source.path.as_str();
        if !path.starts_with("sasos/src/") || EXEMPT.contains(&path) {
            continue;
        }
        let (found, expected) = (banned_in(&source), allowed.get(path).copied().unwrap_or(0));
        if found != expected {
            wrong.push(format!("{path}: {found} places that may abort, and the list says {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
