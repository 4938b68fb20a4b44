//! The queue against a device half written from the specification, obedient and hostile.

use super::*;
use crate::fake::virtio::DeviceSide;
use crate::fake::{Memory, Page, Random};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

fn queue(size: u16) -> (Memory, Queue<Page>, DeviceSide) {
    let memory = Memory::default();
    let queue = Queue::new(size, memory.page(), memory.page());
    let side = DeviceSide::new(size, queue.addresses());
    (memory, queue, side)
}

/// A chain of `length` segments, the last of which the device writes; `mark` makes it recognizable.
fn segments(length: usize, mark: u64) -> Vec<Segment> {
    (0..length)
        .map(|position| Segment {
            physical: mark << 16 | position as u64,
            bytes: position as u32 + 1,
            direction: if position + 1 == length {
                Direction::DeviceWrites
            } else {
                Direction::DeviceReads
            },
        })
        .collect()
}

/// Whether the device finds at `head` what [`segments`] made.
fn check_chain(memory: &Memory, side: &DeviceSide, head: u16, length: usize, mark: u64) {
    let expected = segments(length, mark);
    let found = side.chain(memory, head);
    assert_eq!(found.len(), length);
    for (piece, segment) in found.iter().zip(expected) {
        assert_eq!((piece.physical, piece.bytes), (segment.physical, segment.bytes));
        assert_eq!(piece.is_written, segment.direction == Direction::DeviceWrites);
    }
}

#[test]
fn the_parts_are_where_the_device_may_have_them() {
    let (_, queue, _) = queue(MOST_DESCRIPTORS);
    let at = queue.addresses();
    let available_end = at.available + 4 + 2 * 256 + 2;
    assert!(available_end <= at.used && at.used + 4 + 8 * 256 + 2 <= at.available + PAGE_BYTES as u64);
    assert!(at.descriptors.is_multiple_of(16) && at.used.is_multiple_of(4));
}

#[test]
fn a_chain_goes_and_comes_back() {
    let (memory, mut queue, mut side) = queue(8);
    let head = queue.add(&segments(3, 5)).unwrap();
    assert_eq!(side.take(&memory), Some(head));
    assert_eq!(side.take(&memory), None);
    check_chain(&memory, &side, head, 3, 5);
    assert!(!queue.has_used());
    assert_eq!(queue.take_used(), Ok(None));
    side.put(&memory, head.into(), 77);
    assert!(queue.has_used());
    assert_eq!(queue.take_used(), Ok(Some(Used { head, written: 77 })));
    assert_eq!(queue.take_used(), Ok(None));
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    let (memory, mut queue, mut side) = queue(8);
    assert_eq!(queue.add(&[]), Err(Full));
    assert_eq!(queue.add(&segments(9, 0)), Err(Full));
    let first = queue.add(&segments(5, 1)).unwrap();
    assert_eq!(queue.add(&segments(4, 2)), Err(Full));
    let second = queue.add(&segments(3, 3)).unwrap();
    assert_eq!(queue.add(&segments(1, 4)), Err(Full));
    side.put(&memory, second.into(), 0);
    assert_eq!(queue.take_used().unwrap().unwrap().head, second);
    assert_eq!(queue.add(&segments(4, 5)), Err(Full));
    assert!(queue.add(&segments(3, 6)).is_ok());
    side.put(&memory, first.into(), 0);
    assert_eq!(queue.take_used().unwrap().unwrap().head, first);
    assert!(queue.add(&segments(5, 7)).is_ok());
}

#[test]
fn indices_wrap_around() {
    let (memory, mut queue, mut side) = queue(4);
    // More than 2^16 times, so that the free-running indices wrap as well as the rings.
    for round in 0..70_000_u64 {
        let length = 1 + (round % 4) as usize;
        let head = queue.add(&segments(length, round)).unwrap();
        assert_eq!(side.take(&memory), Some(head));
        check_chain(&memory, &side, head, length, round);
        side.put(&memory, head.into(), round as u32);
        assert_eq!(
            queue.take_used(),
            Ok(Some(Used {
                head,
                written: round as u32
            }))
        );
    }
}

#[test]
fn both_sides_can_ask_for_quiet() {
    let (memory, mut queue, side) = queue(4);
    assert!(queue.wants_doorbell());
    memory.write(side.at.used, &1_u16.to_le_bytes());
    assert!(!queue.wants_doorbell());
    assert_eq!(memory.read_u16(side.at.available), 0);
    queue.silence();
    assert_eq!(memory.read_u16(side.at.available), 1);
}

#[test]
fn a_head_that_is_not_out_is_a_violation() {
    for alleged in [1, 3, 4, 7, 8, 256, 65_535, 65_536, 0x1_0000, u32::MAX] {
        let (memory, mut queue, mut side) = queue(8);
        // Chain 0 → 1 → 2 is out: 1 and 2 are descriptors in use, yet no heads.
        assert_eq!(queue.add(&segments(3, 0)), Ok(0));
        side.put(&memory, alleged, 0);
        assert_eq!(
            queue.take_used(),
            Err(Violation::UnknownHead(alleged)),
            "head {alleged}"
        );
    }
}

#[test]
fn a_chain_given_back_twice_is_a_violation() {
    let (memory, mut queue, mut side) = queue(8);
    let first = queue.add(&segments(2, 0)).unwrap();
    queue.add(&segments(2, 1)).unwrap();
    side.put(&memory, first.into(), 0);
    side.put(&memory, first.into(), 0);
    assert!(matches!(queue.take_used(), Ok(Some(_))));
    assert_eq!(queue.take_used(), Err(Violation::UnknownHead(first.into())));
}

#[test]
fn an_index_that_runs_ahead_is_a_violation() {
    for ahead in [2_u16, 3, 255, 256, 32_768, 65_535] {
        let (memory, mut queue, side) = queue(8);
        queue.add(&segments(2, 0)).unwrap();
        memory.write(side.at.used + 2, &ahead.to_le_bytes());
        assert_eq!(queue.take_used(), Err(Violation::IndexRanAhead), "{ahead} ahead");
    }
}

#[test]
fn the_device_cannot_corrupt_the_free_list() {
    let (memory, mut queue, mut side) = queue(16);
    let head = queue.add(&segments(3, 0)).unwrap();
    // It scribbles over the whole descriptor table, links included, then gives the chain back.
    memory.write(side.at.descriptors, &[0xff; 256]);
    side.put(&memory, head.into(), 0);
    assert!(matches!(queue.take_used(), Ok(Some(_))));
    for mark in 0..5 {
        let head = queue.add(&segments(3, mark)).unwrap();
        check_chain(&memory, &side, head, 3, mark);
    }
    assert!(queue.add(&segments(1, 9)).is_ok());
    assert_eq!(queue.add(&segments(1, 9)), Err(Full));
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    /// The device takes what there is.
    Accept,
    /// The device finishes one of those it holds.
    Finish(usize),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1_usize..6).prop_map(Step::Add),
        2 => Just(Step::Accept),
        3 => any::<usize>().prop_map(Step::Finish),
        3 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// In any order of events: a chain is accepted if and only if it fits, the device sees exactly
    /// what was added, and what it finishes comes back in the order in which it finished it.
    #[test]
    fn agrees_with_a_model(size_bits in 2_u32..7, steps in steps()) {
        let size = 1_u16 << size_bits;
        let (memory, mut queue, mut side) = queue(size);
        let mut out: BTreeMap<u16, (usize, u64)> = BTreeMap::new();
        let (mut held, mut finished) = (Vec::new(), VecDeque::new());
        for (mark, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add(length) => {
                    let used: usize = out.values().map(|(length, _)| length).sum();
                    let fits = used + length <= usize::from(size);
                    let added = queue.add(&segments(length, mark as u64));
                    prop_assert_eq!(added.is_ok(), fits);
                    if let Ok(head) = added {
                        prop_assert!(out.insert(head, (length, mark as u64)).is_none());
                    }
                }
                Step::Accept => held.extend(std::iter::from_fn(|| side.take(&memory))),
                Step::Finish(which) if !held.is_empty() => {
                    let head = held.swap_remove(which % held.len());
                    let (length, mark) = out[&head];
                    check_chain(&memory, &side, head, length, mark);
                    side.put(&memory, head.into(), mark as u32);
                    finished.push_back(head);
                }
                Step::Finish(_) => {}
                Step::Take => {
                    let expected = finished.pop_front().map(|head| {
                        Used { head, written: out.remove(&head).unwrap().1 as u32 }
                    });
                    prop_assert_eq!(queue.take_used(), Ok(expected));
                }
            }
        }
    }

    /// Whatever the device writes into the shared pages: no panic, each chain comes back at most
    /// once, and never one that is not out.
    #[test]
    fn survives_any_device(seed in any::<u64>()) {
        let random = Random::new(seed);
        let (memory, mut queue, mut side) = queue(16);
        let mut out: Vec<u16> = Vec::new();
        for _ in 0..300 {
            match random.below(6) {
                0 | 1 => out.extend(queue.add(&segments(1 + random.below(5), 0))),
                2 => {
                    let page = [side.at.descriptors, side.at.available][random.below(2)];
                    memory.write(page + random.below(4095) as u64, &random.next().to_le_bytes()[..1]);
                }
                3 => side.put(&memory, random.below(20) as u32, 0),
                _ => match queue.take_used() {
                    Ok(Some(used)) => {
                        let at = out.iter().position(|head| *head == used.head);
                        out.swap_remove(at.expect("a chain that was out"));
                    }
                    Ok(None) => {}
                    Err(_) => break,
                },
            }
        }
    }
}
