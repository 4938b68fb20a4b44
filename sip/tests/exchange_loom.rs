//! The exchange heap's owners under every interleaving (loom): the source file itself, over loom's
//! atomics in place of the machine's.

extern crate alloc;
mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
#[path = "../src/exchange/owners.rs"]
#[allow(dead_code)]
mod owners;
use loom::sync::Arc;
use owners::{Owners, Process};

/// Two processes try to take the same block, out of the same message: exactly one gets it.
#[test]
fn one_accepts() {
    loom::model(|| {
        let owners = Arc::new(Owners::new(0, 1 << 10, 2));
        let block = owners.alloc(Process(1), 64).expect("room");
        assert!(owners.send(Process(1), block));
        let other = owners.clone();
        let thread = loom::thread::spawn(move || other.accept(Process(2), block));
        let mine = owners.accept(Process(3), block);
        let theirs = thread.join().expect("no panic");
        assert!(mine != theirs);
        assert_eq!(owners.owner(block), Some(Process(if mine { 3 } else { 2 })));
    });
}

/// A free races with a send of the same block: one of them is refused.
#[test]
fn free_or_send() {
    loom::model(|| {
        let owners = Arc::new(Owners::new(0, 1 << 10, 2));
        let block = owners.alloc(Process(1), 64).expect("room");
        let other = owners.clone();
        let thread = loom::thread::spawn(move || other.free(Process(1), block));
        let sent = owners.send(Process(1), block);
        assert!(sent != thread.join().expect("no panic"));
        assert_eq!(owners.owner(block), None);
    });
}

/// Two processes allocate and free beside each other: never the same block at the same time.
#[test]
fn no_block_twice() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let owners = Arc::new(Owners::new(0, 1 << 10, 3));
        let warm = owners.alloc(Process(1), 64).expect("room");
        assert!(owners.free(Process(1), warm));
        let other = owners.clone();
        let thread = loom::thread::spawn(move || {
            let block = other.alloc(Process(2), 64).expect("room");
            assert_eq!(other.owner(block), Some(Process(2)));
            assert!(other.free(Process(2), block));
            block
        });
        let block = owners.alloc(Process(3), 64).expect("room");
        assert_eq!(owners.owner(block), Some(Process(3)));
        thread.join().expect("no panic");
        assert_eq!(owners.owner(block), Some(Process(3)));
        assert!(!owners.free(Process(2), block));
    });
}
