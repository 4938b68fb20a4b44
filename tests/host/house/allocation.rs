//! The server and the store allocate only where they can be refused (decisions 0086, 0075).
//!
//! What aborts when memory is out is banned in `sasos/src` and `store/src` outside of tests: boxes, macros and containers that allocate by
//! themselves, and appending to a vector. The exceptions are counted, file by file, so that none is added in silence; each says why it is sound, or that it
//! is still to go.

use crate::{
    root,
    source::{Source, sources},
};
use std::collections::BTreeMap;

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
    (
        "sasos/src/directory/address.rs",
        1,
        "the start; the list of recent slots has its room from then on",
    ),
    ("sasos/src/directory/slot_map.rs", 1, "the start"),
    ("sasos/src/lives/chunks.rs", 2, "the start"),
    (
        "sasos/src/lives/thread.rs",
        6,
        "the start; lists of siblings are links in a table",
    ),
    (
        "sasos/src/protection/withdraw.rs",
        1,
        "a list through nodes, which asks for nothing",
    ),
    (
        "store/src/allocation.rs",
        3,
        "blocks set free; the list of blocks that are recent is for tests alone",
    ),
    ("store/src/blocking.rs", 8, "to go: blocks read at mount, in batches"),
    ("store/src/bytes.rs", 1, "to go: what is encoded"),
    (
        "store/src/checkpoint.rs",
        9,
        "to go: the job's lists, 64 writes at most; the parts of the table",
    ),
    (
        "store/src/containers/map.rs",
        1,
        "two chunks that fit into one are joined there",
    ),
    ("store/src/containers/mod.rs", 4, "behind the test for room"),
    ("store/src/format.rs", 1, "no system runs while a disk is formatted"),
    (
        "store/src/io.rs",
        5,
        "to go: requests under way; the reserve of 20 frames",
    ),
    ("store/src/list.rs", 2, "room is reserved"),
    ("store/src/map.rs", 5, "to go: map nodes in memory, by name"),
    ("store/src/mount.rs", 14, "to go: superblocks and table at mount"),
    ("store/src/pages.rs", 2, "to go: reads that wait"),
    (
        "store/src/record.rs",
        3,
        "to go: the lists of a record, bounded by the format",
    ),
    ("store/src/handover.rs", 1, "the list grows where it can be refused"),
    ("store/src/recovery.rs", 12, "to go: records at mount"),
    ("store/src/settle.rs", 1, "16 nodes at most"),
    (
        "store/src/store.rs",
        13,
        "to go: events, jobs, nodes and reads under way",
    ),
    ("store/src/superblock.rs", 2, "one block"),
    ("store/src/sync.rs", 22, "to go: what a sync carries, 128 pages at most"),
    (
        "store/src/table.rs",
        5,
        "to go: the table at mount, and what a checkpoint writes of it",
    ),
    ("store/src/table_format.rs", 3, "one block"),
    ("store/src/verify.rs", 3, "a host tool and a read-only mount verify"),
];

fn banned_in(source: &Source) -> usize {
    let code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    BANNED.iter().map(|word| code.matches(word).count()).sum()
}

#[test]
fn server_and_store_allocate_only_where_they_can_be_refused() {
    let allowed: BTreeMap<&str, usize> = EXCEPTIONS.iter().map(|&(path, count, _)| (path, count)).collect();
    let mut wrong = Vec::new();
    for source in sources(&root()) {
        let path = source.path.as_str();
        if !path.starts_with("sasos/src/") && !path.starts_with("store/src/") || EXEMPT.contains(&path) {
            continue;
        }
        let (found, expected) = (banned_in(&source), allowed.get(path).copied().unwrap_or(0));
        if found != expected {
            wrong.push(format!(
                "{path}: {found} places that may abort, and the list says {expected}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
