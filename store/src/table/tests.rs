//! The tree beside a plain map, and trees made by hand.

use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn record(slot: u64, capabilities: usize) -> ObjectRecord {
    ObjectRecord {
        base: slot << 21,
        pages: 1,
        capabilities: alloc::vec![(1, 15); capabilities],
        ..ObjectRecord::default()
    }
}

#[test]
fn rows_that_overlap_are_not_sound() {
    for (pages, sound) in [(512, true), (513, false)] {
        let mut table = Table::new().unwrap();
        table.put(record(1, 0), Held::No).unwrap();
        table.put(ObjectRecord { pages, ..record(0, 0) }, Held::No).unwrap();
        assert_eq!(table.is_sound(), sound);
    }
}

/// The empty root that a table is made with counts no more when one is loaded.
#[test]
fn a_table_that_was_loaded_has_the_blocks_that_were_read() {
    let mut table = Table::new().unwrap();
    let (mut children, mut leaves) = (Vec::new(), Vec::new());
    for slot in 1..4 {
        let rows = alloc::vec![Row::new(record(slot, if slot == 2 { 128 } else { 0 }), Held::No).unwrap()];
        let summary = Summary::of(&rows);
        let leaf = table.add_loaded(Place::default(), Body::Absent(None), summary).unwrap();
        children.push((slot << 21, leaf));
        leaves.push((leaf, rows));
    }
    let root = table
        .add_loaded(Place::default(), Body::Inner(children), Summary::default())
        .unwrap();
    table.set_root(root).unwrap();
    table.count();
    for (at, (leaf, rows)) in leaves.into_iter().enumerate() {
        let absent = table.ceiling((at as u64 + 1) << 21).unwrap_err();
        assert_eq!(absent.leaf, leaf);
        table.install(leaf, absent.from(), rows).unwrap();
    }
    let overflow = table.get(2 << 21).unwrap().overflow.len() as u64;
    assert!(overflow > 0 && table.is_sound());
    assert_eq!((table.len(), table.height(), table.blocks()), (3, 2, 4 + overflow));
}

#[test]
fn inner_nodes_part_when_they_are_full() {
    let mut table = Table::new().unwrap();
    (0..10_000).for_each(|slot| table.put(record(slot, 0), Held::No).unwrap());
    assert_eq!((table.len(), table.height()), (10_000, 3));
    assert!(table.is_sound());
    for id in table.node_ids().unwrap() {
        if let Body::Inner(children) = table.body(id) {
            assert!((1..=INNER_MAX).contains(&children.len()));
        }
    }
}

/// A node counts as small up to a third.
#[test]
fn two_nodes_that_are_a_third_full_become_one() {
    for (count, nodes) in [(INNER_MAX / 3, 1), (INNER_MAX / 3 + 1, 2)] {
        let mut table = Table::new().unwrap();
        let leaf = table.root;
        let mut children = Vec::new();
        for half in 0..2 {
            let keys = (half * count..(half + 1) * count)
                .map(|key| (key as u64, leaf))
                .collect();
            children.push((
                (half * count) as u64,
                table
                    .add_loaded(Place::default(), Body::Inner(keys), Summary::default())
                    .unwrap(),
            ));
        }
        let root = table
            .add_loaded(Place::default(), Body::Inner(children), Summary::default())
            .unwrap();
        table.expect_removal(0).unwrap();
        table.rebalance(root, 0);
        let Body::Inner(children) = table.body(root) else {
            panic!("an inner node")
        };
        assert_eq!(children.len(), nodes, "{count}");
        assert_eq!(table.fill(children[0].1).unwrap().0, count * 2 / nodes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_behaves_like_a_sorted_map(steps in prop::collection::vec((0_u64..400, 0_usize..128, any::<bool>()), 0..1200)) {
        let mut table = Table::new().unwrap();
        let mut model = BTreeMap::new();
        for (slot, capabilities, put) in steps {
            if put {
                table.put(record(slot, capabilities), Held::No).unwrap();
                model.insert(slot << 21, capabilities);
            } else {
                table.expect_removal(0).unwrap();
                prop_assert_eq!(table.remove(slot << 21).is_some(), model.remove(&(slot << 21)).is_some());
            }
        }
        prop_assert!(table.is_sound());
        prop_assert_eq!(table.len(), model.len() as u64);
        for slot in 0..400 {
            let address = (slot << 21) + 5;
            let floor = model.range(..=address).next_back().map(|(&base, _)| base);
            let ceiling = model.range(address..).next().map(|(&base, _)| base);
            prop_assert_eq!(table.floor(address).unwrap().map(|row| row.record.base), floor);
            prop_assert_eq!(table.ceiling(address).unwrap().map(|row| row.record.base), ceiling);
        }
        for (base, capabilities) in model {
            prop_assert_eq!(table.get(base).map(|row| row.record.capabilities.len()), Some(capabilities));
            table.expect_removal(0).unwrap();
            prop_assert!(table.remove(base).is_some());
        }
        prop_assert_eq!(table.blocks(), 1);
    }
}

#[test]
fn a_summary_comes_back() {
    for (rows, overflow, is_for_start) in [(0, 0, false), (46, 191, true), (1, 0, true), (63, 255, false)] {
        let summary = Summary {
            rows,
            overflow,
            is_for_start,
        };
        assert_eq!(Summary::from_bits(summary.to_bits()), Some(summary));
    }
    assert_eq!(Summary::from_bits(0), None);
}

/// A step of a table of which leaves go and come.
#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize),
    Remove(u64),
    Hold(u64),
    /// All that has changed is written.
    Write,
    /// So many leaves go, if so many may.
    Go(usize),
    /// Somebody looks for the object at an address, and for its neighbours.
    Look(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let slot = || 0_u64..120;
    prop_oneof![
        6 => (slot(), 0_usize..140).prop_map(|(slot, capabilities)| Step::Put(slot, capabilities)),
        5 => slot().prop_map(Step::Remove),
        1 => slot().prop_map(Step::Hold),
        1 => Just(Step::Write),
        3 => (1_usize..20).prop_map(Step::Go),
        3 => slot().prop_map(Step::Look),
    ]
}

/// A table with a disk: the rows of each leaf as they were written last.
struct Paged {
    table: Table,
    disk: BTreeMap<NodeId, Vec<Row>>,
}

impl Paged {
    /// Reads what a lookup lacks, until it lacks nothing.
    fn find<T>(&mut self, look: impl Fn(&Table) -> Result<T, Absent>) -> T {
        loop {
            match look(&self.table) {
                Ok(found) => return found,
                Err(absent) => {
                    let rows = self.disk[&absent.leaf].clone();
                    self.table
                        .install(absent.leaf, absent.from(), rows)
                        .expect("as it was written");
                }
            }
        }
    }

    fn bring(&mut self, base: u64) {
        self.find(|table| table.absent_at(base).map_or(Ok(()), Err));
    }

    /// Writes what has changed, as a checkpoint does.
    fn write(&mut self) {
        let (mut way, mut parts) = (self.table.begin_listing().unwrap(), List::default());
        while !way.is_empty() {
            self.table.list_dirty(&mut way, &mut parts).unwrap();
        }
        for (block, &part) in parts.iter().enumerate() {
            let place = Place {
                block: block as u64 + 1,
                checksum: 0,
            };
            self.table.set_place(part, place);
            if let Part::Node(id) = part
                && let Body::Leaf(rows) = self.table.body(id)
            {
                let rows = rows.iter().cloned().map(|row| Row { held: Held::No, ..row });
                self.disk.insert(id, rows.collect());
            }
        }
        while let Some(part) = parts.pop() {
            self.table.clear_dirty(part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    /// Whatever goes and comes.
    #[test]
    fn a_table_in_parts_behaves_like_a_sorted_map(steps in prop::collection::vec(any_step(), 0..400)) {
        let sizes = Sizes { leaf: 1200, inner: 4 };
        let mut paged = Paged { table: Table::new().unwrap().with_sizes(sizes), disk: BTreeMap::new() };
        paged.table.keep(0);
        let (mut model, mut held) = (BTreeMap::new(), alloc::collections::BTreeSet::new());
        for step in steps {
            match step {
                Step::Put(slot, capabilities) => {
                    paged.bring(slot << 21);
                    paged.table.put(record(slot, capabilities), Held::No).unwrap();
                    model.insert(slot << 21, capabilities);
                }
                Step::Remove(slot) => {
                    paged.bring(slot << 21);
                    paged.table.expect_removal(0).unwrap();
                    prop_assert_eq!(paged.table.remove(slot << 21).is_some(), model.remove(&(slot << 21)).is_some());
                    held.remove(&(slot << 21));
                }
                Step::Hold(slot) => {
                    paged.bring(slot << 21);
                    prop_assert_eq!(paged.table.hold(slot << 21), model.contains_key(&(slot << 21)));
                    if model.contains_key(&(slot << 21)) {
                        held.insert(slot << 21);
                    }
                }
                Step::Write => paged.write(),
                Step::Go(most) => {
                    for _ in 0..most {
                        if paged.table.has_surplus() {
                            paged.table.evict();
                        }
                    }
                }
                Step::Look(slot) => {
                    let address = (slot << 21) + 5;
                    let floor = model.range(..=address).next_back().map(|(&base, _)| base);
                    let ceiling = model.range(address..).next().map(|(&base, _)| base);
                    prop_assert_eq!(paged.find(|table| Ok(table.floor(address)?.map(|row| row.record.base))), floor);
                    prop_assert_eq!(paged.find(|table| Ok(table.ceiling(address)?.map(|row| row.record.base))), ceiling);
                }
            }
            prop_assert!(paged.table.counts_are_right());
            prop_assert_eq!(paged.table.len(), model.len() as u64);
            for &base in &held {
                prop_assert!(paged.table.get(base).is_some(), "the row of an object that is held is in memory");
            }
        }
        prop_assert!(paged.table.is_sound());
        prop_assert_eq!(paged.table.totals().sums.map(|sums| (sums.rows, sums.slots)), [(0, 0), (model.len() as u64, model.len() as u64)]);
        let overflow: usize = model.values().map(|&capabilities| overflow_blocks(2 + 9 * capabilities)).sum();
        let mut next = 0;
        while let Some((base, capabilities)) =
            paged.find(|table| Ok(table.ceiling(next)?.map(|row| (row.record.base, row.record.capabilities.len()))))
        {
            prop_assert_eq!(model.remove(&base), Some(capabilities));
            next = base + 1;
        }
        prop_assert!(model.is_empty() && paged.table.is_sound());
        let nodes = paged.table.node_ids().unwrap().len();
        prop_assert_eq!(paged.table.blocks(), (nodes + overflow) as u64);
    }
}
