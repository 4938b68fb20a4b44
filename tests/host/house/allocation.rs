//! Kernel, server and store allocate only where they can be refused (decisions 0086, 0075).
//!
//! Code that aborts when memory is out is banned in [`FOLDERS`] outside of tests: boxes, macros and containers that allocate by
//! themselves, and appending to a vector or a string. The exceptions are counted, file by file, so that none is added in silence; each says why it is
//! sound.

use crate::{
    root,
    source::{Source, sources},
};
use std::collections::BTreeMap;

/// Where it is banned.
const FOLDERS: [&str; 4] = ["kcore/src/", "kernel/src/", "sasos/src/", "store/src/"];

/// Words that may allocate and cannot fail.
const BANNED: [&str; 24] = [
    "Box::new",
    "Rc::new",
    "Arc::new",
    "vec![",
    "format!",
    "BTreeMap::new",
    "BTreeSet::new",
    "BTreeMap<",
    "BTreeSet<",
    "VecDeque<",
    "with_capacity(",
    ".collect()",
    ".collect::<",
    ".to_vec()",
    ".to_string()",
    "String::from(",
    ".push(",
    ".push_back(",
    ".push_str(",
    ".append(",
    ".extend(",
    ".extend_from_slice(",
    ".resize(",
    ".resize_with(",
];

/// Code that does not run in a system that must go on: tests, and the checks of everything where assertions are on.
const EXEMPT: [&str; 9] = [
    "kcore/src/bare/mapping/check.rs",
    "sasos/src/accounts/tests.rs",
    "store/src/allocation/tests.rs",
    "store/src/mount/tests.rs",
    "store/src/settle/tests.rs",
    "store/src/table/tests.rs",
    "store/src/verify/tests.rs",
    "sasos/src/calls/check.rs",
    "kcore/src/bare/nucleus/check.rs",
];

/// The exceptions by reason: files, and how often.
const EXCEPTIONS: &[(&str, &[(&str, usize)])] = &[
    (
        "room is reserved",
        &[
            ("kcore/src/bare/going.rs", 1),
            ("kcore/src/bare/mapping/space.rs", 1),
            ("kcore/src/bare/mapping/tables.rs", 1),
            ("kcore/src/shares.rs", 2),
            ("kcore/src/space.rs", 5),
            ("sasos/src/pages/slots.rs", 2),
            ("store/src/allocation/groups.rs", 2),
            ("store/src/containers/places.rs", 1),
            ("store/src/heap.rs", 1),
            ("store/src/record.rs", 2),
            ("store/src/recovery.rs", 1),
            ("store/src/rows.rs", 1),
            ("store/src/sync.rs", 1),
            ("store/src/table_loading.rs", 3),
        ],
    ),
    (
        "the start",
        &[
            ("kcore/src/frames.rs", 3),
            ("kcore/src/kernel.rs", 1),
            ("kcore/src/portal.rs", 1),
            ("kernel/src/arch/x86_64/vector.rs", 1),
            ("kernel/src/mem/device.rs", 1),
            ("kernel/src/mem/division.rs", 3),
            ("sasos/src/directory/slot_map.rs", 1),
        ],
    ),
    (
        "the start, which fails",
        &[
            ("kernel/src/bare.rs", 3),
            ("kernel/src/boot.rs", 1),
            ("kernel/src/disk.rs", 1),
            ("kernel/src/inside.rs", 2),
            ("kernel/src/root.rs", 1),
        ],
    ),
    (
        "lists through the table of threads",
        &[("kcore/src/scheduler.rs", 2), ("kcore/src/wait/queues.rs", 2)],
    ),
    (
        "a list through the table of threads",
        &[("kcore/src/kernel/messages.rs", 1)],
    ),
    (
        "room is reserved; what goes through all nodes is for the check and the debugger",
        &[("kcore/src/bare/mapping/tree.rs", 6)],
    ),
    (
        "room is reserved; a map for the check",
        &[("kcore/src/bare/nucleus/spaces.rs", 3)],
    ),
    (
        "the row takes a frame that it is given",
        &[("kcore/src/kernel/places.rs", 1)],
    ),
    (
        "run queues are lists through the table of threads",
        &[("kcore/src/kernel/processors.rs", 1)],
    ),
    ("records for tests alone", &[("kcore/src/smp/record.rs", 1)]),
    (
        "the start, with room for all; a row for tests",
        &[("kcore/src/thread.rs", 5)],
    ),
    ("the start, with room for all", &[("kcore/src/timers.rs", 3)]),
    (
        "the start; the queue has its room from then on",
        &[("kernel/src/console.rs", 3)],
    ),
    ("a line of fixed length", &[("kernel/src/debugger.rs", 1)]),
    (
        "the start; the last words before the machine stops",
        &[("kernel/src/outside.rs", 4)],
    ),
    (
        "the start; the list of recent slots has its room from then on",
        &[("sasos/src/directory/address.rs", 1)],
    ),
    (
        "more addresses for an object, which is no allocation",
        &[("sasos/src/directory/resize.rs", 1)],
    ),
    (
        "the start; room is reserved",
        &[("sasos/src/lives/chunks.rs", 3), ("sasos/src/lives/log.rs", 1)],
    ),
    (
        "the start; lists of siblings are links in a table",
        &[("sasos/src/lives/thread.rs", 6)],
    ),
    (
        "a list through nodes, which asks for nothing",
        &[("sasos/src/protection/withdraw.rs", 1)],
    ),
    (
        "blocks set free; the list of blocks that are recent is for tests alone",
        &[("store/src/allocation.rs", 3)],
    ),
    (
        "tables that become longer in room that is reserved, by functions of that name",
        &[
            ("store/src/allocation/bits.rs", 2),
            ("store/src/allocation/groups/extending.rs", 4),
            ("store/src/allocation/growing.rs", 2),
        ],
    ),
    (
        "a result of many results, which takes no heap",
        &[("store/src/blocking.rs", 1)],
    ),
    (
        "two chunks that fit into one are joined there; spare chunks have their places reserved",
        &[("store/src/containers/map.rs", 5)],
    ),
    (
        "behind the test for room",
        &[("store/src/containers/mod.rs", 6), ("store/src/containers/queue.rs", 9)],
    ),
    (
        "the list grows where it can be refused",
        &[("store/src/handover.rs", 1)],
    ),
    (
        "room is reserved before the table changes",
        &[
            ("store/src/table.rs", 3),
            ("store/src/table/change.rs", 4),
            ("store/src/table/paging.rs", 3),
        ],
    ),
];

fn banned_in(source: &Source) -> usize {
    let code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    BANNED.iter().map(|word| code.matches(word).count()).sum()
}

#[test]
fn kernel_server_and_store_allocate_only_where_they_can_be_refused() {
    let allowed: BTreeMap<&str, usize> = EXCEPTIONS.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    let mut wrong = Vec::new();
    for source in sources(&root()) {
        let path = source.path.as_str();
        if !FOLDERS.iter().any(|folder| path.starts_with(folder)) || EXEMPT.contains(&path) {
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
