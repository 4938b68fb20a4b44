//! The disk driver against a model, and against a device that writes anything anywhere.

use super::*;
use crate::fake::Random;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Submit(u8, u64),
    Serve(usize),
    Complete,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..5, 0_u64..9).prop_map(|(kind, block)| Step::Submit(kind, block)),
        3 => any::<usize>().prop_map(Step::Serve),
        3 => Just(Step::Complete),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// With a device that serves in any order: each request completes exactly once and under its
    /// tag, reads give what the last write *served* before them put there.
    #[test]
    fn agrees_with_a_model(steps in steps()) {
        let mut fake = Device::disk(9);
        fake.is_prompt = false;
        fake.most_descriptors = 16;
        let machine = Machine::with(fake);
        let mut device = try_probe(&machine, SIGNAL).unwrap();
        // By tag: the request; by position in the device's hands: the tag.
        let mut out: BTreeMap<u32, Request> = BTreeMap::new();
        let (mut held, mut model, mut expected) = (Vec::new(), [0_u8; 9], BTreeMap::new());
        for (tag, step) in (0_u32..).zip(steps) {
            match step {
                Step::Submit(kind, block) => {
                    let page = page_of(&machine.memory, tag as u8);
                    let request = match kind {
                        0 | 1 => Request::Read { block, page },
                        2 | 3 => Request::Write { block, page },
                        _ => Request::Flush,
                    };
                    let is_full = out.len() == 5;
                    let submitted = device.submit(tag, request);
                    prop_assert_eq!(submitted, if is_full { Err(SubmitError::QueueFull) } else { Ok(()) });
                    if !is_full {
                        out.insert(tag, request);
                        held.push(tag);
                    }
                }
                Step::Serve(which) if !held.is_empty() => {
                    let position = which % held.len();
                    machine.device(|fake, memory| fake.serve(memory, position));
                    let tag = held.remove(position);
                    match out[&tag] {
                        Request::Write { block, .. } => model[block as usize] = tag as u8,
                        Request::Read { block, .. } => drop(expected.insert(tag, model[block as usize])),
                        Request::Flush => {}
                    }
                }
                Step::Serve(_) => {}
                Step::Complete => match device.complete() {
                    None => prop_assert_eq!(out.len(), held.len()),
                    Some((tag, result)) => {
                        prop_assert_eq!(result, Ok(()));
                        prop_assert!(!held.contains(&tag));
                        let request = out.remove(&tag).expect("a request that was out");
                        if let Request::Read { page, .. } = request {
                            prop_assert_eq!(machine.memory.read(page.physical()), [expected[&tag]; 4096]);
                        }
                    }
                },
            }
            prop_assert_eq!(device.outstanding(), out.len());
        }
    }

    /// Whatever the device writes into any page it was ever given: no panic, and every request
    /// comes back exactly once.
    #[test]
    fn survives_any_device(seed in any::<u64>()) {
        let random = Random::new(seed);
        let (machine, mut device) = disk(4);
        machine.device(|fake, _| fake.is_prompt = false);
        let side = machine.device(|fake, _| fake.side.unwrap());
        let records = device.requests.records.physical();
        let page = page_of(&machine.memory, 0);
        let mut out: Vec<u32> = Vec::new();
        for tag in 0..300 {
            match random.below(8) {
                0..3 => {
                    let block = random.below(4) as u64;
                    let request = [Request::Read { block, page }, Request::Write { block, page }, Request::Flush][random.below(3)];
                    if device.enqueue(tag, request).is_ok() {
                        out.push(tag);
                    }
                }
                3 => {
                    let target = [side.at.descriptors, side.at.available, records][random.below(3)];
                    machine.memory.write(target + random.below(4096) as u64, &random.next().to_le_bytes()[..1]);
                }
                // A used entry that may be right by chance, or the truth about a chain that may be
                // out.
                4 | 5 => machine.device(|fake, memory| {
                    let head = random.below(20) as u32;
                    let known = out.first().map_or(head, |_| head / 3 * 3);
                    fake.side.as_mut().unwrap_or(&mut { side }).put(memory, known, random.next() as u32);
                }),
                _ => {
                    device.acknowledge_interrupt();
                    if let Some((tag, _)) = device.complete() {
                        let at = out.iter().position(|other| *other == tag);
                        out.swap_remove(at.expect("a request that was out"));
                    }
                }
            }
        }
        device.give_up();
        while let Some((tag, _)) = device.complete() {
            let at = out.iter().position(|other| *other == tag);
            out.swap_remove(at.expect("a request that was out"));
        }
        prop_assert_eq!(out, Vec::<u32>::new());
    }
}
