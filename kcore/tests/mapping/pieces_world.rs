//! Several operations under way at the same time, as threads on several processors have them: their pieces come in any order, and each piece has any number of
//! steps. Operations, order and steps come from a random generator.
//!
//! No model can say what the spaces have while operations are half done. So each piece is judged by what the spaces had before it (`pieces_checks`).

use std::collections::{BTreeMap, BTreeSet};

use abi::Rights;
use kcore::{
    Kernel, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
    space::Tags,
};

use crate::{
    fake::{Fake, Random},
    pieces_checks::Place,
    world::{GIB, PAGE, PORTS, SLOT, Translation, memory},
};

pub const SPACES: usize = 5;
/// Operations that are under way at once, at most.
const UNDER_WAY: usize = 6;
/// No operation needs as many pieces.
pub const PIECES_MAX: u32 = 20_000;
/// Pages of σ₀: single ones, two slots, a gibibyte.
const FRAMES: [(u32, u32); 3] = [(0, 4), (0x200, 0x600), (0x4_0000, 0x8_0000)];
/// The pages of each slot, and the slots, that operations name and checks look at.
const PAGES: [u64; 4] = [0, 1, 2, 3];
const SLOTS: [u64; 6] = [0, 0x200, 0x400, 0x4_0000, 0x4_0200, 0x4_0400];
/// The number of no space.
const NOWHERE: SpaceId = SpaceId(60_000);

/// How much memory the kernel has for tables and nodes.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Supply {
    /// Enough: no operation is refused.
    Plenty,
    /// Few frames and small quotas: operations are refused halfway. More of them are links.
    Scarce,
}

impl Supply {
    fn frames_and_tags(self, random: &mut Random) -> (u32, Tags) {
        match self {
            Self::Plenty => (4000, Tags::Present),
            Self::Scarce => (random.of(&[24, 28, 32, 40, 60, 400]), Tags::Absent),
        }
    }

    /// The quota of a space, by its number. The third space also pays for the fourth, which it creates.
    fn quota(self, random: &mut Random, number: usize) -> u32 {
        let for_fourth = if number == 3 { 60_000 } else { 0 };
        for_fourth
            + match self {
                Self::Plenty => 60_000,
                Self::Scarce => random.of(&[140, 200, 270, 330, 400, 600, 1000, 30_000]),
            }
    }

    /// A way to give, each as often as it is in the list.
    fn how(self, random: &mut Random) -> How {
        use How::{Grant, Link, Map};
        let all = [Map, Map, Map, Map, Map, Grant, Grant, Link, Link, Link];
        random.of(if self == Self::Plenty { &all[..8] } else { &all })
    }

    /// Whether a link names the same slot in both spaces. Most others fail.
    fn is_of_slot(self, random: &mut Random) -> bool {
        match self {
            Self::Plenty => random.below(2) == 0,
            Self::Scarce => random.below(4) > 0,
        }
    }
}

/// The pages and ports that operations name.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Places {
    All,
    /// Two pages of two slots, so that operations meet often.
    Few,
    /// All, and ports.
    Ports,
}

#[derive(Copy, Clone, Debug)]
pub enum Act {
    Give(How, (SpaceId, Fpage), (SpaceId, Fpage)),
    Flush(SpaceId, Fpage, Rights, Own),
    Destroy(SpaceId),
}

/// An operation that is under way.
pub struct Running {
    pub act: Act,
    going: Going,
    /// Of a flush: the places that must have lost the flushed rights when it is done.
    pub owed: BTreeSet<Place>,
    /// Of a flush: the linked slots that must have lost these rights, or be unlinked.
    pub links: BTreeSet<Place>,
    pub pieces: u32,
}

pub struct World {
    pub supply: Supply,
    /// The mapping nodes in use when there was only σ₀.
    pub nodes: u32,
    /// Translations that a processor may still have in its TLB.
    pub tlb: BTreeMap<Place, Translation>,
    pub kernel: Kernel<Fake, Bare>,
    /// By their numbers in this test.
    pub spaces: Vec<SpaceId>,
    /// All pages and ports that checks look at.
    pub samples: Vec<u64>,
    pub running: Vec<Running>,
    random: Random,
    log: Vec<String>,
    places: Places,
    /// The pages of each slot, and the slots, that operations name.
    pages: &'static [u64],
    pub slots: &'static [u64],
    /// Most pieces that an operation took.
    longest: u32,
}

impl World {
    fn new(seed: u64, supply: Supply, places: Places) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let (frames, tags) = supply.frames_and_tags(&mut random);
        let mut kernel = Kernel::new(Fake::new(frames, tags), &[(1, frames)]);
        let sigma0 = kernel.sigma0_create(1 << 22, &FRAMES, &[], 2).expect("σ₀");
        let (pages, slots) = match places {
            Places::Few => (&PAGES[..2], &SLOTS[..2]),
            Places::All | Places::Ports => (&PAGES[..], &SLOTS[..]),
        };
        let of_slot = |&slot: &u64| pages.iter().map(move |page| slot + page);
        let mut samples: Vec<u64> = slots.iter().flat_map(of_slot).collect();
        if places == Places::Ports {
            samples.extend([0, 1, 2, 3, 8, 511, 512, 0xffff].map(|port| PORTS + port));
        }
        let mut world = Self {
            supply,
            nodes: kernel.mapping_nodes(),
            tlb: BTreeMap::new(),
            kernel,
            spaces: vec![sigma0],
            samples,
            running: Vec::new(),
            random,
            log: Vec::new(),
            places,
            pages,
            slots,
            longest: 0,
        };
        for number in 1..SPACES {
            let space = world.create(number);
            world.spaces.push(space.expect("a space"));
        }
        world
    }

    /// A new space for this number. σ₀ creates it, or the third space the fourth.
    fn create(&mut self, number: usize) -> Option<SpaceId> {
        let creator = self.spaces[if number == 4 { 3 } else { 0 }];
        let quota = self.supply.quota(&mut self.random, number);
        self.kernel.free_space_create(creator, quota).ok()
    }

    pub fn exists(&self, space: usize) -> bool {
        self.kernel.free_space_quota(self.spaces[space]).is_some()
    }

    pub fn number(&self, id: SpaceId) -> usize {
        self.spaces
            .iter()
            .position(|&space| space == id)
            .expect("a space of this test")
    }

    fn fpage(&mut self) -> Fpage {
        let random = &mut self.random;
        if self.places == Places::Ports && random.below(2) == 0 {
            let log2 = random.of(&[0u8, 0, 1, 2, 3, 9, 10, 16]);
            let first = random.of(&[0u64, 1, 2, 3, 8, 511, 512, 0xffff]);
            return Fpage::ports(first >> log2 << log2, log2).expect("ports");
        }
        let sizes: &[u8] = if self.places == Places::Few {
            &[PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, 13, SLOT, SLOT]
        } else {
            &[PAGE, PAGE, PAGE, PAGE, 13, 14, 14, SLOT, SLOT, SLOT, GIB]
        };
        let log2 = random.of(sizes);
        let page = random.of(self.slots) + random.of(self.pages);
        let rights = random.of(&[Rights::RWX, Rights::RWX, Rights::RWX, Rights::RW, Rights::R]);
        memory(page >> (log2 - 12) << (log2 - 12), log2, rights)
    }

    fn act(&mut self) -> Act {
        let kind = self.random.below(100);
        if kind < 66 {
            let how = self.supply.how(&mut self.random);
            let from = self.spaces[self.random.below(SPACES)];
            let to = self.spaces[1 + self.random.below(SPACES - 1)];
            let (source, window) = (self.fpage(), self.fpage());
            if how == How::Link && self.supply.is_of_slot(&mut self.random) {
                let both = memory(self.random.of(self.slots), SLOT, Rights::RWX);
                return Act::Give(how, (from, both), (to, both));
            }
            return Act::Give(how, (from, source), (to, window));
        }
        if kind < 97 {
            let all = [Rights::RWX, Rights::RWX, Rights::W, Rights::W, Rights::X];
            let rights = self.random.of(&all);
            let own = self.random.of(&[Own::Kept, Own::Kept, Own::Too]);
            let from = self.spaces[self.random.below(SPACES)];
            return Act::Flush(from, self.fpage(), rights, own);
        }
        Act::Destroy(self.spaces[1 + self.random.below(SPACES - 1)])
    }

    fn begin(&mut self) {
        let act = self.act();
        let (owed, links) = self.debts(&act);
        self.log.push(format!("begin {act:?}"));
        self.running.push(Running {
            act,
            going: Going::default(),
            owed,
            links,
            pieces: 0,
        });
    }

    /// The number of steps of a piece.
    fn steps(&mut self) -> i32 {
        let most = self.random.of(&[4, 12, 40, 100, 448, 448]);
        1 + i32::try_from(self.random.below(most)).expect("a few steps")
    }

    fn piece(&mut self, index: usize, steps: i32) {
        let mut running = self.running.swap_remove(index);
        let mut going = running.going.next_piece().with_steps(steps);
        let before = self.holdings();
        let losers = self.losers(&before, &running.act);
        let mut landing = BTreeMap::new();
        let result = match running.act {
            Act::Give(how, from, to) => self.kernel.map(from, to, how, &mut going).map(|mapped| {
                landing = self.landing(from.0, to.0, &mapped);
                if how == How::Link {
                    // A slot that is linked anew may stay linked.
                    for other in &mut self.running {
                        other.links.retain(|place| !landing.contains_key(place));
                    }
                    landing.clear();
                }
                mapped.progress
            }),
            Act::Flush(space, what, rights, own) => self.kernel.flush(space, what, (rights, own), &mut going),
            Act::Destroy(space) => self.kernel.free_space_destroy(space),
        };
        running.going = going;
        running.pieces += 1;
        self.longest = self.longest.max(running.pieces);
        self.log.push(format!(
            "piece {steps} of {:?}: {result:?}, open {:?}",
            running.act,
            self.kernel.mapping_open()
        ));
        if let Err(error) = self.kernel.mapping_check() {
            self.fail(error);
        }
        self.check_piece(&before, &losers, &landing);
        self.check_translations();
        self.running.push(running);
        self.pass_on(&before, &landing);
        if result == Ok(Progress::More) {
            return;
        }
        let running = self.running.pop().expect("it is the last one");
        if result.is_ok() {
            self.check_debts(&running);
        }
        self.renew();
    }

    /// Creates a new space for each that has ended, and forgets the operations on the one that has ended.
    fn renew(&mut self) {
        for number in 1..SPACES {
            if self.exists(number) {
                continue;
            }
            let gone = self.spaces[number];
            self.tlb.retain(|place, _| place.0 != number);
            self.running.retain(|running| match running.act {
                Act::Give(_, (from, _), (to, _)) => from != gone && to != gone,
                Act::Flush(space, ..) | Act::Destroy(space) => space != gone,
            });
            // It may fail for want of frames, or the third space cannot pay for the fourth.
            let made = self.create(number);
            assert!(made.is_some() || number == 4 || self.supply == Supply::Scarce);
            self.spaces[number] = made.unwrap_or(NOWHERE);
            for running in &mut self.running {
                running.owed.retain(|place| place.0 != number);
                running.links.retain(|place| place.0 != number);
            }
        }
    }

    /// Prints what was done before it panics.
    pub fn fail(&self, what: &str) -> ! {
        for line in &self.log {
            println!("{line}");
        }
        panic!("{what}");
    }
}

fn run(seed: u64, supply: Supply, places: Places, pieces: u32) -> u32 {
    let mut world = World::new(seed, supply, places);
    for _ in 0..pieces {
        let count = world.running.len();
        let index = if count == 0 || count < UNDER_WAY && world.random.below(3) == 0 {
            world.begin();
            count
        } else {
            world.random.below(count)
        };
        // Some operations are cancelled.
        if index < count && world.random.below(200) == 0 {
            world.running.swap_remove(index);
            continue;
        }
        let steps = world.steps();
        world.piece(index, steps);
    }
    while !world.running.is_empty() {
        let index = world.random.below(world.running.len());
        world.piece(index, 448);
    }
    world.finish();
    world.longest
}

/// One run for each seed. The variables `INTERLEAVED_FIRST` and `INTERLEAVED_SEEDS` ask for others, or more.
pub fn run_seeds(supply: Supply, places: Places, pieces: u32, seeds: u64) {
    let number = |name: &str, usual| {
        let asked = std::env::var(name).ok();
        asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
    };
    let first = number("INTERLEAVED_FIRST", 1);
    let mut longest = 0;
    for seed in first..first + number("INTERLEAVED_SEEDS", seeds) {
        println!("seed {seed}");
        longest = longest.max(run(seed, supply, places, pieces));
    }
    println!("the longest operation took {longest} pieces");
}
