//! The exchange heap's owners and channels under every interleaving (loom): the source files themselves,
//! over loom's atomics in place of the machine's.

extern crate alloc;
mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
#[path = "../src/exchange/channels.rs"]
#[allow(dead_code)]
mod channels;
#[path = "../src/exchange/owners.rs"]
#[allow(dead_code)]
mod owners;
use channels::{Arrived, Channels, End, Letter};
use loom::sync::Arc;
use owners::{Block, Owners, Process};

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

/// A block is passed straight to another process beside a free of it: one of them is refused, and it has one owner.
#[test]
fn free_or_pass() {
    loom::model(|| {
        let owners = Arc::new(Owners::new(0, 1 << 10, 2));
        let block = owners.alloc(Process(1), 64).expect("room");
        let other = owners.clone();
        let thread = loom::thread::spawn(move || other.free(Process(1), block));
        let passed = owners.pass(Process(1), Process(2), block);
        assert!(passed != thread.join().expect("no panic"));
        assert_eq!(owners.owner(block), passed.then_some(Process(2)));
        assert!(!owners.pass(Process(1), Process(3), block));
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

/// A heap with a channel between the processes 1 and 2, of which 1 owns the block that is sent.
fn pair() -> (Arc<(Owners, Channels)>, [End; 2], Block, Letter) {
    let (owners, channels) = (Owners::new(0, 1 << 10, 2), Channels::new(2, 2));
    let ends = channels.open(Process(1), 7).expect("room");
    assert!(channels.give(Process(1), ends[1]) && channels.accept(Process(2), ends[1]));
    let block = owners.alloc(Process(1), 64).expect("room");
    let mut letter = Letter::new(3);
    letter.count = 2;
    letter.blocks = 1;
    letter.words[..2].copy_from_slice(&[block.word(), 99]);
    (Arc::new((owners, channels)), ends, block, letter)
}

/// A block in a message: the sender's before the send, the receiver's after it has arrived, and nobody's
/// between; the receiver sees the whole message or none.
#[test]
fn a_block_arrives_once() {
    loom::model(|| {
        let (world, ends, block, letter) = pair();
        let theirs = world.clone();
        let thread = loom::thread::spawn(move || {
            let (owners, channels) = &*theirs;
            let mut arrived = Letter::new(0);
            match channels.receive(ends[1], &mut arrived) {
                Arrived::Letter(message) => {
                    assert_eq!((message, arrived.words[1]), (3, 99));
                    assert!(owners.accept(Process(2), Block::from_word(arrived.words[0])));
                    true
                }
                Arrived::Nothing => false,
                Arrived::Gone => panic!("the peer is there"),
            }
        });
        let (owners, channels) = &*world;
        assert_eq!(owners.owner(block), Some(Process(1)));
        assert!(owners.send(Process(1), block));
        assert_ne!(owners.owner(block), Some(Process(1)));
        channels.send(ends[0], &letter).expect("the peer is there");
        assert!(!owners.free(Process(1), block));
        let arrived = thread.join().expect("no panic");
        assert_eq!(owners.owner(block), arrived.then_some(Process(2)));
    });
}

/// The receiver dies beside the send: the side left with the block ends it, exactly once.
#[test]
fn a_peer_dies_beside_the_send() {
    loom::model(|| {
        let (world, ends, block, letter) = pair();
        let theirs = world.clone();
        let thread = loom::thread::spawn(move || {
            let (owners, channels) = &*theirs;
            assert!(channels.close(owners, Process(2), ends[1]));
        });
        let (owners, channels) = &*world;
        assert!(owners.send(Process(1), block));
        if channels.send(ends[0], &letter).is_err() {
            channels.discard(owners, &letter);
        }
        thread.join().expect("no panic");
        assert_eq!(owners.owned(), 0);
        assert_eq!(channels.receive(ends[0], &mut Letter::new(0)), Arrived::Gone);
        assert!(channels.close(owners, Process(1), ends[0]));
        assert_eq!(channels.in_use(), 0);
        assert!(!owners.discard(block));
    });
}

/// A message sent before the sender died arrives before the news of the death.
#[test]
fn a_sender_dies_after_the_send() {
    loom::model(|| {
        let (world, ends, block, letter) = pair();
        let theirs = world.clone();
        let thread = loom::thread::spawn(move || {
            let (owners, channels) = &*theirs;
            assert!(owners.send(Process(1), block));
            channels.send(ends[0], &letter).expect("the peer is there");
            assert!(channels.close(owners, Process(1), ends[0]));
        });
        let (owners, channels) = &*world;
        let first = channels.receive(ends[1], &mut Letter::new(0));
        thread.join().expect("no panic");
        let second = channels.receive(ends[1], &mut Letter::new(0));
        match (first, second) {
            (Arrived::Letter(_), Arrived::Gone) | (Arrived::Nothing, Arrived::Letter(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(owners.accept(Process(2), block));
    });
}

/// An end that travels closes with the message, and both ends close beside each other.
#[test]
fn ends_close_beside_each_other() {
    loom::model(|| {
        let (world, ends, ..) = pair();
        let (_, channels) = &*world;
        let travelling = channels.open(Process(1), 8).expect("room");
        let mut letter = Letter::new(0);
        letter.count = 1;
        letter.ends = 1;
        letter.words[0] = travelling[0].word();
        assert!(channels.give(Process(1), travelling[0]));
        channels.send(ends[0], &letter).expect("the peer is there");
        let theirs = world.clone();
        let thread = loom::thread::spawn(move || {
            let (owners, channels) = &*theirs;
            assert!(channels.close(owners, Process(2), ends[1]));
        });
        let (owners, channels) = &*world;
        assert!(channels.close(owners, Process(1), travelling[1]));
        assert!(channels.close(owners, Process(1), ends[0]));
        thread.join().expect("no panic");
        assert_eq!(channels.in_use(), 0);
    });
}

/// An end is taken from its message by one receiver only.
#[test]
fn an_end_is_accepted_once() {
    loom::model(|| {
        let (world, ends, ..) = pair();
        assert!(world.1.give(Process(1), ends[0]));
        let theirs = world.clone();
        let thread = loom::thread::spawn(move || theirs.1.accept(Process(2), ends[0]));
        let mine = world.1.accept(Process(3), ends[0]);
        assert!(mine != thread.join().expect("no panic"));
    });
}
