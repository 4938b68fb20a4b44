//! All states that sequences of up to six operations can reach: σ₀ and two spaces, three pages each.
//!
//! A state is what the model says; states that differ only in the names of pages and of the two
//! spaces are one. From every state every operation is tried: page tables must say what the model
//! says, and all invariants must hold.

use std::collections::BTreeSet;

use abi::Rights;
use kcore::{
    Kernel, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{How, Own, Progress},
    },
    space::Tags,
};

use crate::{
    fake::Fake,
    model::{Entry, Model},
    world::{memory, walk},
};

const PAGES: u64 = 3;
const LENGTH: usize = 6;

#[derive(Copy, Clone, Debug)]
enum Op {
    Give(How, (u32, u64), (u32, u64), Rights),
    Flush((u32, u64), Rights, Own),
}

fn places() -> Vec<(u32, u64)> {
    (0..3)
        .flat_map(|space| (0..PAGES).map(move |page| (space, page)))
        .collect()
}

fn operations() -> Vec<Op> {
    let mut operations = Vec::new();
    for &from in &places() {
        for &to in places().iter().filter(|&&to| to.0 != 0 && to != from) {
            for rights in [Rights::RW, Rights::R] {
                operations.push(Op::Give(How::Map, from, to, rights));
            }
            operations.push(Op::Give(How::Grant, from, to, Rights::RW));
        }
        for rights in [Rights::RWX, Rights::W] {
            operations.extend([Own::Kept, Own::Too].map(|own| Op::Flush(from, rights, own)));
        }
    }
    operations
}

/// A model's state with rights as they are, not as they were asked for.
fn exact(model: &Model) -> Model {
    let mut exact = model.clone();
    for (&(space, page), entry) in &mut exact.entries {
        let (_, rights) = model.real(space, page).expect("no entry leads nowhere");
        match entry {
            Entry::Real(_, own) | Entry::Of(.., own) => *own = rights,
        }
    }
    exact
}

/// The content of the nine places: zero, or who it is from and the rights.
type Code = [u8; 9];

/// (real, or space; page; rights) of an entry as a number, and back.
const fn encode(kind: u8, page: u8, rights: u8) -> u8 {
    1 + (kind * 3 + page) * 4 + rights
}

fn code(model: &Model) -> Code {
    let mut code = [0; 9];
    for (&(space, page), entry) in &model.entries {
        let (kind, from, rights) = match *entry {
            Entry::Real(page, rights) => (3, page, rights),
            Entry::Of(space, page, rights) => (space, page, rights),
        };
        code[space as usize * 3 + page as usize] = encode(kind as u8, from as u8, rights.bits() & 3);
    }
    code
}

/// The same state under the names that come first of all.
fn canonical(code: &Code) -> Code {
    const ORDERS: [[u8; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut first = *code;
    for swap in [[0, 1, 2], [0, 2, 1]] {
        for real in ORDERS {
            for one in ORDERS {
                for two in ORDERS {
                    let orders = [real, one, two];
                    let mut renamed = [0; 9];
                    for (place, &entry) in code.iter().enumerate().filter(|&(_, &entry)| entry != 0) {
                        let (space, page) = (place / 3, place % 3);
                        let to = swap[space] * 3 + orders[space][page] as usize;
                        let (rights, from) = ((entry - 1) % 4, usize::from((entry - 1) / 4));
                        let (kind, page) = (from / 3, from % 3);
                        renamed[to] = if kind == 3 {
                            encode(3, real[page], rights)
                        } else {
                            encode(swap[kind] as u8, orders[kind][page], rights)
                        };
                    }
                    first = first.min(renamed);
                }
            }
        }
    }
    first
}

struct Twin {
    kernel: Kernel<Fake, Bare>,
    spaces: [SpaceId; 3],
}

impl Twin {
    fn new() -> Self {
        let mut kernel = Kernel::new(Fake::new(40, Tags::Absent), &[(1, 40)]);
        let sigma0 = kernel.sigma0_create(4000, &[(0, PAGES as u32)], &[], 0).expect("σ₀");
        let spaces = [0; 2].map(|_| kernel.free_space_create(sigma0, 1000).expect("a space"));
        Self {
            kernel,
            spaces: [sigma0, spaces[0], spaces[1]],
        }
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Give(how, from, to, rights) => {
                let (source, window) = (memory(from.1, 12, rights), memory(to.1, 12, Rights::RWX));
                let [from, to] = [from.0, to.0].map(|space| self.spaces[space as usize]);
                let mapped = self
                    .kernel
                    .map((from, source), (to, window), how, &mut Going::default())
                    .expect("map");
                assert_eq!(mapped.progress, Progress::Done);
            }
            Op::Flush((space, page), rights, own) => {
                let space = self.spaces[space as usize];
                let progress =
                    self.kernel
                        .flush(space, memory(page, 12, Rights::R), (rights, own), &mut Going::default());
                assert_eq!(progress, Ok(Progress::Done));
            }
        }
    }

    /// Empties the spaces, then makes the state: each mapping when its source is there.
    fn become_like(&mut self, model: &Model) {
        for &space in &self.spaces[1..] {
            let progress = self.kernel.flush(
                space,
                memory(0, 14, Rights::R),
                (Rights::RWX, Own::Too),
                &mut Going::default(),
            );
            assert_eq!(progress, Ok(Progress::Done));
        }
        let mut there: BTreeSet<(u32, u64)> = (0..PAGES).map(|page| (0, page)).collect();
        let mut missing: Vec<_> = model.entries.iter().filter(|(place, _)| place.0 != 0).collect();
        missing.sort_by_key(|(_, entry)| matches!(entry, Entry::Of(..)));
        while !missing.is_empty() {
            let before = missing.len();
            missing.retain(|&(&to, entry)| {
                let (how, from, rights) = match *entry {
                    Entry::Real(page, rights) => (How::Grant, (0, page), rights),
                    Entry::Of(space, page, rights) => (How::Map, (space, page), rights),
                };
                if there.contains(&from) {
                    self.act(Op::Give(how, from, to, rights));
                    there.insert(to);
                }
                !there.contains(&to)
            });
            assert!(missing.len() < before, "a state that cannot be made");
        }
    }

    fn says(&self, place: (u32, u64)) -> Option<(u64, Rights)> {
        walk(&self.kernel, self.spaces[place.0 as usize], place.1)
    }
}

fn model_act(model: &mut Model, op: Op) {
    match op {
        Op::Give(how, from, to, rights) => {
            if model.real(from.0, from.1).is_some() {
                match how {
                    How::Grant => model.grant(from, to, rights),
                    _ => model.map(from, to, rights),
                }
            }
        }
        Op::Flush((space, page), rights, own) => {
            if own == Own::Too && space != 0 {
                model.flush_own(space, page, rights);
            } else {
                model.flush_rights(space, page, rights);
            }
        }
    }
}

#[test]
fn every_short_sequence_ends_where_the_model_does() {
    let operations = operations();
    let start = Model::new((0..PAGES).map(|page| (page, Rights::RWX)));
    let mut seen = BTreeSet::from([canonical(&code(&start))]);
    let mut states = vec![start];
    // Before renaming, which takes longer.
    let mut met = BTreeSet::new();
    let mut twin = Twin::new();
    let (mut tried, mut reached) = (0u64, 1);
    for length in 1..=LENGTH {
        let mut next = Vec::new();
        for state in &states {
            let mut there = false;
            for &op in &operations {
                let mut model = state.clone();
                model_act(&mut model, op);
                if !there {
                    twin.become_like(state);
                }
                twin.act(op);
                tried += 1;
                // An operation that changes nothing leaves the state for the next one.
                there = model == *state;
                for place in places() {
                    let expected = model.real(place.0, place.1);
                    assert_eq!(twin.says(place), expected, "{place:?} after {op:?} in {state:?}");
                }
                if tried % 64 == 0 {
                    twin.kernel.mapping_check().expect("invariants");
                }
                if there || length == LENGTH {
                    continue;
                }
                let model = exact(&model);
                let code = code(&model);
                if met.insert(code) && seen.insert(canonical(&code)) {
                    next.push(model);
                }
            }
        }
        reached += next.len();
        states = next;
        println!("length {length}: {reached} states, {tried} operations");
    }
    assert!(reached > 1000);
}
