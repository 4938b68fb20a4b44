//! Spaces against a plain model: after any sequence of operations the page tables say exactly what
//! a map of (space, slot) to (leaf, rights) and of (leaf, page) to (frame, limits) says, and no
//! frame is lost.

mod fake;

use std::collections::BTreeMap;

use abi::{Rights, address::SLOT};
use fake::{Fake, Random, kernel, walk};
use kcore::{Frame, Kernel, Leaf, Machine, PageEntry, Shortage, SpaceId, space::Tags};

const SLOTS: [u64; 9] = [
    2048,
    2049,
    2048 + 63,
    2048 + 64,
    2048 + 300,
    2048 + 512,
    2048 + 512 * 512,
    1 << 20,
    (1 << 26) - 2,
];
const RIGHTS: [Rights; 4] = [Rights::R, Rights::RW, Rights::RX, Rights::RWX];

#[derive(Default)]
struct Model {
    spaces: Vec<SpaceId>,
    leaves: Vec<Leaf>,
    links: BTreeMap<(SpaceId, u64), (Leaf, Rights)>,
    pages: BTreeMap<(u32, usize), (Frame, Rights, bool)>,
}

fn run(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut kernel = kernel(400);
    let free_at_start = kernel.frames_free();
    let mut model = Model::default();
    for _ in 0..steps {
        step(&mut kernel, &mut model, &mut random);
    }
    compare(&kernel, &model, seed);
    // Everything goes back.
    for (leaf, index) in model.pages.keys().copied().collect::<Vec<_>>() {
        kernel.frame_release(model.pages[&(leaf, index)].0);
        kernel.leaf_set(Leaf::of_fake_hardware(leaf), index, None);
    }
    for space in model.spaces.drain(..) {
        kernel.space_destroy(space);
        assert!(!kernel.spaces().exists(space));
    }
    for leaf in model.leaves.drain(..) {
        kernel.leaf_destroy(leaf);
    }
    assert_eq!(kernel.frames_free(), free_at_start, "frames lost, seed {seed}");
}

fn step(kernel: &mut kcore::Kernel<fake::Fake>, model: &mut Model, random: &mut Random) {
    match random.below(9) {
        0 => match kernel.space_create() {
            Ok(space) => model.spaces.push(space),
            Err(shortage) => assert_eq!(shortage, Shortage::Frames),
        },
        1 if !model.spaces.is_empty() && random.below(4) == 0 => {
            let space = model.spaces.swap_remove(random.below(model.spaces.len()));
            kernel.space_destroy(space);
            model.links.retain(|key, _| key.0 != space);
        }
        2 => {
            if let Ok(leaf) = kernel.leaf_create() {
                model.leaves.push(leaf);
            }
        }
        3 | 4 if !model.spaces.is_empty() && !model.leaves.is_empty() => {
            let space = model.spaces[random.below(model.spaces.len())];
            let leaf = model.leaves[random.below(model.leaves.len())];
            let (slot, rights) = (SLOTS[random.below(SLOTS.len())], RIGHTS[random.below(4)]);
            if kernel.link(space, slot, leaf, rights).is_ok() {
                model.links.insert((space, slot), (leaf, rights));
            }
        }
        5 if !model.spaces.is_empty() => {
            let space = model.spaces[random.below(model.spaces.len())];
            let slot = SLOTS[random.below(SLOTS.len())];
            kernel.unlink(space, slot);
            model.links.remove(&(space, slot));
        }
        6 | 7 if !model.leaves.is_empty() => {
            let leaf = model.leaves[random.below(model.leaves.len())];
            let index = random.below(4) * 170;
            let (limits, withheld) = (RIGHTS[random.below(4)], random.below(2) == 0);
            if let Ok(frame) = kernel.frame_any() {
                if let Some((old, ..)) = model
                    .pages
                    .insert((leaf.frame().number(), index), (frame, limits, withheld))
                {
                    kernel.frame_release(old);
                }
                let entry = PageEntry::new(frame, limits);
                kernel.leaf_set(leaf, index, Some(if withheld { entry.withheld() } else { entry }));
            }
        }
        8 if !model.leaves.is_empty() => {
            let leaf = model.leaves[random.below(model.leaves.len())];
            let index = random.below(4) * 170;
            if let Some((old, ..)) = model.pages.remove(&(leaf.frame().number(), index)) {
                kernel.leaf_set(leaf, index, None);
                kernel.frame_release(old);
            }
        }
        _ => {}
    }
}

fn compare(kernel: &kcore::Kernel<fake::Fake>, model: &Model, seed: u64) {
    let mut there: Vec<SpaceId> = kernel.spaces().live().map(|(space, _)| space).collect();
    let mut known = model.spaces.clone();
    there.sort_unstable();
    known.sort_unstable();
    assert_eq!(there, known, "seed {seed}");
    for &space in &model.spaces {
        let links = model.links.keys().filter(|key| key.0 == space).count();
        assert_eq!(kernel.spaces().get(space).link_count() as usize, links, "seed {seed}");
        for slot in SLOTS {
            for index in (0..4).map(|number| number * 170) {
                let expected = model.links.get(&(space, slot)).and_then(|&(leaf, rights)| {
                    let &(frame, limits, withheld) = model.pages.get(&(leaf.frame().number(), index))?;
                    let both = rights.intersection(limits);
                    Some((frame, both.contains(Rights::W) && !withheld, both.contains(Rights::X)))
                });
                let address = slot * SLOT + index as u64 * 4096;
                assert_eq!(
                    walk(kernel, space, address),
                    expected,
                    "space {space:?} address {address:#x}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn page_tables_say_what_the_model_says() {
    for seed in 0..300 {
        run(seed, 200);
    }
}

#[test]
fn a_leaf_shows_a_new_page_to_every_space_that_links_it() {
    let mut kernel = kernel(100);
    let spaces = [
        kernel.space_create().expect("space"),
        kernel.space_create().expect("space"),
    ];
    let leaf = kernel.leaf_create().expect("leaf");
    kernel.link(spaces[0], 5000, leaf, Rights::RW).expect("link");
    kernel.link(spaces[1], 5000, leaf, Rights::R).expect("link");
    let frame = kernel.frame_zeroed().expect("frame");
    kernel.leaf_set(leaf, 7, Some(PageEntry::new(frame, Rights::RWX)));
    let address = 5000 * SLOT + 7 * 4096;
    assert_eq!(walk(&kernel, spaces[0], address), Some((frame, true, false)));
    assert_eq!(walk(&kernel, spaces[1], address), Some((frame, false, false)));
}

#[test]
fn frames_are_zeroed_even_when_they_come_back_dirty() {
    let mut kernel = kernel(8);
    let frame = kernel.frame_any().expect("frame");
    kernel.frame_share(frame);
    kernel.frame_release(frame);
    assert_eq!(kernel.frame_references(frame), 1);
    kernel.frame_release(frame);
    while let Ok(frame) = kernel.frame_zeroed() {
        let table = kcore::Hardware::table(&kernel.hardware, frame);
        assert!(
            table
                .iter()
                .all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0)
        );
    }
    assert_eq!(kernel.frames_free(), 0);
}

/// Each link that goes is a unit of work, whether the space lists it or not, and a table is twenty.
#[test]
fn what_goes_with_a_space_is_counted() {
    let mut kernel = kernel(60);
    let (space, leaf) = (
        kernel.space_create().expect("a space"),
        kernel.leaf_create().expect("a leaf"),
    );
    for links in [3, 20, 3] {
        for slot in 0..links {
            kernel.link(space, 5000 + slot, leaf, Rights::R).expect("a link");
        }
        assert_eq!(u64::from(kernel.spaces().get(space).link_count()), links);
        assert_eq!(kernel.space_trim(space, 1000), Some(1000 - links - 2 * 20));
        assert_eq!(kernel.spaces().get(space).link_count(), 0);
    }
    // Of several tables one more goes than a quarter of the work.
    for table in 0..3 {
        kernel.link(space, 512 * table, leaf, Rights::R).expect("a link");
    }
    assert_eq!(kernel.space_trim(space, 80), None);
    assert_eq!(kernel.spaces().get(space).table_count(), 4);
}

/// Where the processor has tags, translations of a space stay while others run. A flush that names no space takes those, too.
#[test]
fn spaces_that_do_not_run_lose_their_translations() {
    let mut kernel = Kernel::<Fake>::new(Fake::new(60, Tags::Present), &[(1, 60)]);
    let spaces = [(); 2].map(|()| kernel.space_create().expect("a space"));
    let kept = |kernel: &Kernel<Fake>| spaces.map(|space| kernel.spaces().get(space).load() >> 63 == 1);
    let flushes: [fn(&mut Kernel<Fake>); 2] = [|kernel| kernel.flush_everything(), |kernel| kernel.flush_page(0x5000)];
    for flush in flushes {
        for number in [0, 1, 0] {
            kernel.enter_space(spaces[number]);
        }
        assert_eq!(kept(&kernel), [true; 2]);
        flush(&mut kernel);
        assert_eq!(kept(&kernel), [false; 2]);
    }
}

/// The note of what a tag keeps is one for all processors, so nothing is kept where there are several.
#[test]
fn several_processors_keep_no_translations() {
    let mut kernel = Kernel::<Fake>::new(Fake::new(60, Tags::Present), &[(1, 60)]);
    let spaces = [(); 2].map(|()| kernel.space_create().expect("a space"));
    kernel.enter_space(spaces[0]);
    kernel.set_processors(0b11);
    for space in spaces {
        kernel.enter_space(space);
    }
    assert!(spaces.iter().all(|&space| kernel.spaces().get(space).load() >> 63 == 0));
}
