//! Random sequences of operations over many spaces, shrunk when they fail.
//!
//! An unfinished operation is done again, at once or after other operations; the model must come to
//! the same σ. The invariants of tree, tables and quotas are checked after every call.

use abi::Rights;
use kcore::bare::mapping::{Fpage, How, Own, Progress};
use proptest::{prelude::*, test_runner::RngSeed};
use std::hash::{BuildHasher, RandomState};

use crate::world::{Op, PIECES_MAX, PORTS, World, memory};

/// The beginnings of fpages: pages within slots, slots within gibibytes. Fpages of the sizes of the hardware
/// carry them to each other, and runs of two or four pages the first ones, so no other pages need be looked at.
const PAGES: [u64; 5] = [0, 1, 2, 3, 511];
const SLOTS: [u64; 3] = [0, 1, 511];
/// Frames of σ₀: some slots in the first gibibyte, all of the second, and pages of the third.
const FRAMES: [(u32, u32); 3] = [(0, 1024), (0x4_0000, 0x8_0000), (0x8_0000, 0x8_0003)];
const SPACES: usize = 5;

fn samples() -> Vec<u64> {
    let mut samples = Vec::new();
    for gib in 0..3 {
        for slot in SLOTS {
            samples.extend(PAGES.map(|page| gib << 18 | slot << 9 | page));
        }
    }
    samples.extend([0, 1, 2, 3, 511, 512, 1023, 0xffff].map(|port| PORTS + port));
    samples
}

fn rights() -> impl Strategy<Value = Rights> {
    prop::sample::select(vec![Rights::R, Rights::RW, Rights::RX, Rights::RWX, Rights::RWX])
}

fn memory_fpage() -> impl Strategy<Value = Fpage> {
    let page = (0..3u64, prop::sample::select(&SLOTS), prop::sample::select(&PAGES));
    let sizes = vec![12u8, 12, 12, 12, 13, 14, 21, 21, 21, 21, 30, 47];
    (page, prop::sample::select(sizes), rights()).prop_map(|((gib, slot, page), log2, rights)| {
        let page = if log2 == 13 || log2 == 14 { page & 3 } else { page };
        let page = gib << 18 | slot << 9 | page;
        memory(page >> (log2 - 12) << (log2 - 12), log2, rights)
    })
}

fn ports_fpage() -> impl Strategy<Value = Fpage> {
    let sizes = vec![0u8, 0, 1, 2, 9, 10, 16];
    let first = prop::sample::select(vec![0u64, 1, 2, 3, 512, 0xffff]);
    (first, prop::sample::select(sizes))
        .prop_map(|(first, log2)| Fpage::ports(first >> log2 << log2, log2).expect("ports"))
}

/// Operations on ports alone: they come as one piece of all, and are taken and granted in parts that belong to several mappings.
fn ports_op() -> impl Strategy<Value = Op> {
    let own = prop::sample::select(vec![Own::Kept, Own::Too]);
    let how = prop::sample::select(vec![How::Map, How::Map, How::Grant]);
    let all = || Fpage::ports(0, 16).expect("ports");
    prop_oneof![
        2 => (how, 0..3usize, ports_fpage(), 0..3usize).prop_map(move |(how, from, source, to)| Op::Give {
            how,
            from,
            source,
            to,
            window: all(),
        }),
        1 => (0..3usize, ports_fpage(), own).prop_map(|(space, what, own)| Op::Flush {
            space,
            what,
            rights: Rights::RW,
            own,
        }),
    ]
}

fn fpage() -> impl Strategy<Value = Fpage> {
    prop_oneof![9 => memory_fpage(), 1 => ports_fpage()]
}

/// Source and window; mostly of the same kind.
fn both() -> impl Strategy<Value = (Fpage, Fpage)> {
    prop_oneof![
        12 => (memory_fpage(), memory_fpage()),
        4 => (memory_fpage(), rights()).prop_map(|(fpage, rights)| {
            (fpage, memory(0, 47, rights))
        }),
        2 => (ports_fpage(), ports_fpage()),
        1 => (fpage(), fpage()),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop::sample::select(vec![How::Map, How::Map, How::Map, How::Grant, How::Link])
}

fn op(quota: u32) -> impl Strategy<Value = Op> {
    let flushed = vec![Rights::RWX, Rights::RWX, Rights::W, Rights::X, Rights::R];
    let own = prop::sample::select(vec![Own::Kept, Own::Too]);
    prop_oneof![
        20 => (how(), 0..SPACES, both(), 0..SPACES).prop_map(|(how, from, (source, window), to)| Op::Give {
            how,
            from,
            source,
            to,
            window,
        }),
        6 => (0..SPACES, fpage(), prop::sample::select(flushed), own).prop_map(|(space, what, rights, own)| Op::Flush {
            space,
            what,
            rights,
            own,
        }),
        1 => (1..SPACES).prop_map(|space| Op::Destroy { space }),
        1 => (0..SPACES, 0..=quota).prop_map(|(creator, quota)| Op::Create { creator, quota }),
    ]
}

/// Operations on small pages alone, one after another in two slots, as stretches of them go and come; and on spaces that end meanwhile.
fn stretch_op(quota: u32) -> impl Strategy<Value = Op> {
    let fpage = || {
        let slots = prop::sample::select(vec![0u64, 512, 1 << 18, (1 << 18) + 512]);
        let sizes = prop::sample::select(vec![12u8, 12, 13, 14, 15, 16, 16, 17, 21]);
        (slots, 0..32u64, sizes, rights())
            .prop_map(|(slot, page, log2, rights)| memory((slot + page) >> (log2 - 12) << (log2 - 12), log2, rights))
    };
    let how = prop::sample::select(vec![How::Map, How::Map, How::Map, How::Grant, How::Grant, How::Link]);
    let flushed = prop::sample::select(vec![Rights::RWX, Rights::W, Rights::W, Rights::X, Rights::R]);
    let own = prop::sample::select(vec![Own::Kept, Own::Kept, Own::Too]);
    prop_oneof![
        20 => (how, 0..SPACES, (fpage(), fpage()), 0..SPACES).prop_map(|(how, from, (source, window), to)| Op::Give {
            how,
            from,
            source,
            to,
            window,
        }),
        6 => (0..SPACES, fpage(), flushed, own).prop_map(|(space, what, rights, own)| Op::Flush {
            space,
            what,
            rights,
            own,
        }),
        2 => (1..SPACES).prop_map(|space| Op::Destroy { space }),
        2 => (0..SPACES, 0..=quota).prop_map(|(creator, quota)| Op::Create { creator, quota }),
    ]
}

/// All pages that [`stretch_op`] names.
fn stretch_samples() -> Vec<u64> {
    let slots = [0u64, 512, 1 << 18, (1 << 18) + 512];
    slots
        .iter()
        .flat_map(|slot| (0..32).map(move |page| slot + page))
        .collect()
}

/// Does all, each until it is finished; between the calls of one that is long, the next ones.
fn run(ops: &[Op], quota: u32, tight: bool) {
    run_with(&samples(), ops, quota, tight);
}

/// The same, of which these pages are compared.
fn run_with(samples: &[u64], ops: &[Op], quota: u32, tight: bool) {
    let mut world = World::new(&FRAMES, samples, 1 << 22);
    world.tight = tight;
    let real = samples
        .iter()
        .filter(|&&page| world.translate(0, page).is_some())
        .count();
    for _ in 1..SPACES {
        world.create(0, quota).expect("a space");
    }
    let mut unfinished: Vec<Op> = Vec::new();
    for op in ops {
        if matches!(op, Op::Create { .. }) && world.spaces.len() >= 2 * SPACES {
            continue;
        }
        // The same flush once more is another one: something may have come behind the back of the first.
        if matches!(op, Op::Flush { .. }) && unfinished.contains(op) {
            world.begin_anew(op);
        }
        if world.step(op) == Ok(Progress::More) {
            unfinished.push(op.clone());
        }
        // Every other one waits for a while.
        if unfinished.len() > 2 {
            let op = unfinished.remove(0);
            finish(&mut world, &op);
        }
    }
    for op in unfinished {
        finish(&mut world, &op);
    }
    world.finish(real);
}

/// A flush does not take what comes behind its back into pages that it has passed, so it begins at the front.
fn finish(world: &mut World, op: &Op) {
    if matches!(op, Op::Flush { .. }) {
        world.begin_anew(op);
    }
    for _ in 0..PIECES_MAX {
        if world.step(op) != Ok(Progress::More) {
            return;
        }
    }
    panic!("{op:?} never ends");
}

/// Links stand in most places of a large mapping, so that few of its pages are left. When the last of them is taken, the mapping goes, though
/// the call is not at the mapping's end.
#[test]
fn no_mapping_stays_without_pages() {
    let all = memory(0, 47, Rights::R);
    let give = |how, from, source| Op::Give {
        how,
        from,
        source,
        to: 1,
        window: all,
    };
    let ops = [
        give(How::Link, 2, memory(1 << 18, 30, Rights::R)),
        give(How::Map, 0, all),
    ];
    run(&ops, 60_000, false);
}

/// The first port, and so many more that they are a power of two in all.
fn first_ports(log2: u8) -> Fpage {
    Fpage::ports(0, log2).expect("ports")
}

/// Gives these to a space that takes ports anywhere.
fn give_ports(how: How, from: usize, log2: u8, to: usize) -> Op {
    Op::Give {
        how,
        from,
        source: first_ports(log2),
        to,
        window: first_ports(16),
    }
}

/// Two calls in pieces give the same ports to and fro while a third one flushes them. A model that followed only some of the calls did not see which
/// space loses a port first.
#[test]
fn ports_in_pieces_overlap() {
    let flush = |log2| Op::Flush {
        space: 0,
        what: first_ports(log2),
        rights: Rights::RW,
        own: Own::Kept,
    };
    let ops = [
        give_ports(How::Map, 0, 16, 2),
        give_ports(How::Grant, 2, 10, 1),
        flush(16),
        flush(9),
        give_ports(How::Map, 1, 10, 2),
        give_ports(How::Map, 0, 10, 2),
        give_ports(How::Map, 2, 10, 1),
    ];
    run(&ops, 60_000, false);
}

/// A grant has taken ports from all below a part of them when its giver gives the same ports to a space once more, in another part of the same: there the grant
/// takes them, too, though it was done with what the new part is in.
#[test]
fn a_grant_of_ports_meets_a_part_that_it_was_done_with() {
    let ops = [
        give_ports(How::Map, 0, 9, 2),
        give_ports(How::Map, 2, 9, 1),
        give_ports(How::Grant, 0, 1, 1),
        give_ports(How::Map, 0, 0, 0),
        give_ports(How::Map, 0, 1, 2),
    ];
    run(&ops, 60_000, false);
}

/// The same with pages, where a map of others into the same slot goes on meanwhile.
#[test]
fn a_grant_of_pages_meets_a_part_that_it_was_done_with() {
    let give = |how, base, log2, to| Op::Give {
        how,
        from: 0,
        source: memory(base, log2, Rights::R),
        to,
        window: memory(0, log2, Rights::R),
    };
    let ops = [
        give(How::Grant, 0x4_0000, 12, 1),
        give(How::Map, 0x4_0200, 17, 1),
        give(How::Grant, 0x4_0208, 13, 2),
    ];
    run_with(&stretch_samples(), &ops, 460, true);
}

/// Operations of a long sequence: `MAPPING_OPERATIONS` asks for more, or fewer.
fn operations() -> usize {
    let asked = std::env::var("MAPPING_OPERATIONS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(1_500)
}

/// The same cases in every run, unless `PROPTEST_CASES` asks for more: then others each time. The seed is told when a test fails; `PROPTEST_RNG_SEED` gives it again.
fn config(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let mut config = ProptestConfig {
        cases: cases.unwrap_or(usual),
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        let seed = cases.map_or(1, |cases| RandomState::new().hash_one(cases));
        config.rng_seed = RngSeed::Fixed(seed);
    }
    println!("{:?}", config.rng_seed);
    config
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn page_tables_say_what_the_model_says(ops in prop::collection::vec(op(40_000), 1..60)) {
        run(&ops, 60_000, false);
    }

    #[test]
    fn small_quotas_refuse_and_lose_nothing(ops in prop::collection::vec(op(400), 1..60), quota in 200u32..1500) {
        run(&ops, quota, true);
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn stretches_come_and_go_as_the_model_says(
        ops in prop::collection::vec(stretch_op(2_000), 1..80),
        quota in prop::sample::select(vec![460u32, 520, 600, 4_000]),
    ) {
        run_with(&stretch_samples(), &ops, quota, quota < 1_000);
    }
}

proptest! {
    // Each check of all invariants looks at each port of each space.
    #![proptest_config(config(24))]

    #[test]
    fn port_bitmaps_say_what_the_model_says(ops in prop::collection::vec(ports_op(), 1..30)) {
        run(&ops, 60_000, false);
    }
}

proptest! {
    #![proptest_config(config(2))]

    #[test]
    fn long_lives_end_as_the_model_does(ops in prop::collection::vec(op(40_000), operations()), tight in any::<bool>()) {
        run(&ops, if tight { 1_000 } else { 60_000 }, tight);
    }
}
