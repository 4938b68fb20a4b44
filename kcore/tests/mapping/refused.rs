//! The same with few frames and small quotas, so that tables are refused in the midst of all operations, and with links: a flush of a slot leaves none that was
//! there when it began; translations are forgotten; in the end all frames, nodes and pages are back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use abi::Rights;
use kcore::{
    Frame, Hardware, Kernel, Machine, SpaceId,
    bare::{
        Bare,
        going::Going,
        mapping::{Fpage, How, Own, Progress},
    },
    paging,
    space::Tags,
};

use crate::{
    fake::{Fake, Random},
    world::{GIB, PAGE, PORTS, SLOT, Translation, memory, pages, walk},
};

const SPACES: usize = 5;
/// Operations that are under way at once.
const UNDER_WAY: usize = 6;
/// Pieces that none of them needs.
const PIECES_MAX: u32 = 20_000;
/// Pages of σ₀: single ones, two slots, a gibibyte.
const FRAMES: [(u32, u32); 3] = [(0, 4), (0x200, 0x600), (0x4_0000, 0x8_0000)];
/// The pages of slots, and the slots, that are looked at and named.
const PAGES: [u64; 4] = [0, 1, 2, 3];
const SLOTS: [u64; 6] = [0, 0x200, 0x400, 0x4_0000, 0x4_0200, 0x4_0400];

/// The places of the operations.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Places {
    All,
    /// Two pages of two slots, where operations meet.
    Few,
    Ports,
}

/// A space that is not there.
const NOWHERE: SpaceId = SpaceId(60_000);

/// A place: a space, by its number here, and its page.
type Place = (usize, u64);
/// What stands there, and where it comes from.
type All = BTreeMap<Place, (Translation, Option<Place>)>;

#[derive(Clone, Debug)]
enum Act {
    Give(How, (SpaceId, Fpage), (SpaceId, Fpage)),
    Flush(SpaceId, Fpage, Rights, Own),
    Destroy(SpaceId),
}

/// An operation that is under way.
struct Running {
    act: Act,
    going: Going,
    /// Who is to lose what a flush takes.
    owed: BTreeSet<Place>,
    /// And the links of slots.
    links: BTreeSet<Place>,
    pieces: u32,
}

/// That of a space: of the third the fourth is paid.
fn quota(random: &mut Random, number: usize) -> u32 {
    let most = if number == 3 { 60_000 } else { 0 };
    most + random.of(&[140, 200, 270, 330, 400, 600, 1000, 30_000])
}

struct World {
    /// Frames free and nodes used when there was nothing but σ₀.
    memory: (u64, u32),
    /// Translations that a processor may still have.
    tlb: BTreeMap<Place, Translation>,
    kernel: Kernel<Fake, Bare>,
    spaces: Vec<SpaceId>,
    samples: Vec<u64>,
    running: Vec<Running>,
    random: Random,
    log: Vec<String>,
    places: Places,
    /// The pages of slots, and the slots, that are named.
    pages: &'static [u64],
    slots: &'static [u64],
    longest: u32,
}

impl World {
    fn new(seed: u64, places: Places) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let frames = random.of(&[24, 28, 32, 40, 60, 400]);
        let mut kernel = Kernel::new(Fake::new(frames, Tags::Absent), &[(1, frames)]);
        let sigma0 = kernel.sigma0_create(1 << 22, &FRAMES, &[], 2).expect("σ₀");
        let memory = (kernel.frames_free(), kernel.mapping_nodes());
        let few = if places == Places::Few { 2 } else { PAGES.len() };
        let (pages, slots) = (&PAGES[..few], if few == 2 { &SLOTS[..2] } else { &SLOTS[..] });
        let mut samples: Vec<u64> = slots
            .iter()
            .flat_map(|slot| pages.iter().map(move |page| slot + page))
            .collect();
        if places == Places::Ports {
            samples.extend([0, 1, 2, 3, 8, 511, 512, 0xffff].map(|port| PORTS + port));
        }
        let mut spaces = vec![sigma0];
        for number in 1..SPACES {
            let creator = if number == 4 { spaces[3] } else { sigma0 };
            let quota = quota(&mut random, number);
            spaces.push(kernel.free_space_create(creator, quota).expect("a space"));
        }
        Self {
            memory,
            tlb: BTreeMap::new(),
            kernel,
            spaces,
            samples,
            running: Vec::new(),
            random,
            log: Vec::new(),
            places,
            pages,
            slots,
            longest: 0,
        }
    }

    fn number(&self, id: SpaceId) -> Option<usize> {
        self.spaces.iter().position(|&space| space == id)
    }

    /// What a space has by itself there.
    fn has(&self, (space, page): Place) -> Option<Translation> {
        let id = self.spaces[space];
        if page >= PORTS {
            let port = (page - PORTS) as usize;
            let allowed = self.kernel.ports(id)?[port / 8] >> (port % 8) & 1 == 0;
            return allowed.then_some((page, Rights::RW));
        }
        walk(&self.kernel, id, page)
    }

    /// The frame of a space's table of a slot, and the rights of the link if it is another's.
    fn slot(&self, (space, page): Place) -> Option<(Frame, Option<Rights>)> {
        let mut table = self
            .kernel
            .free_space_quota(self.spaces[space])
            .and(Some(()))
            .map(|()| self.kernel.spaces().get(self.spaces[space]).root())?;
        for level in (1..4).rev() {
            let entry = self.kernel.hardware.table(table)[(page >> (9 * level)) as usize & 511].load(Relaxed);
            if !paging::is_present(entry) || paging::is_large(entry) {
                return None;
            }
            table = paging::frame_of(entry);
            if paging::is_linked(entry) {
                return Some((table, Some(paging::mapping_rights(entry))));
            }
        }
        Some((table, None))
    }

    /// Who links slots of a space that are wholly in a range.
    fn linkers(&self, space: usize, first: u64, count: u64) -> BTreeSet<Place> {
        let mut linkers = BTreeSet::new();
        let slots = SLOTS
            .iter()
            .filter(|&&slot| first <= slot && slot + 512 <= first + count);
        for &slot in slots {
            let Some((table, None)) = self.slot((space, slot)) else {
                continue;
            };
            let links = |&other: &usize| matches!(self.slot((other, slot)), Some((to, Some(_))) if to == table);
            linkers.extend((0..SPACES).filter(links).map(|other| (other, slot)));
        }
        linkers
    }

    /// A translation that a processor may still have is one that the tables allow.
    fn check_translations(&mut self) {
        let flushed = self.kernel.hardware.take_flushed();
        if flushed.everything {
            self.tlb.clear();
        }
        let is_there = |number: &usize| self.kernel.free_space_quota(self.spaces[*number]).is_some();
        let there: Vec<usize> = (0..SPACES).filter(is_there).collect();
        for &number in &there {
            let root = self.kernel.spaces().get(self.spaces[number]).root().number();
            if flushed.roots.contains(&root) {
                self.tlb.retain(|place, _| place.0 != number);
            }
        }
        self.tlb.retain(|place, _| there.contains(&place.0));
        for (&place, &(frame, rights)) in &self.tlb {
            let holds = self
                .has(place)
                .is_some_and(|(now, allowed)| now == frame && allowed.contains(rights));
            if !holds {
                return self.fail(&format!("stale: {place:?} {frame:#x} {rights}"));
            }
        }
        for number in there {
            for index in 0..self.samples.len() {
                let place = (number, self.samples[index]);
                if place.1 < PORTS
                    && let Some(has) = self.has(place)
                {
                    self.tlb.insert(place, has);
                }
            }
        }
    }

    /// What everybody has, but by links, and from whom.
    fn all(&mut self) -> All {
        let mut all = BTreeMap::new();
        for space in 0..SPACES {
            let id = self.spaces[space];
            if space > 0 && self.kernel.free_space_quota(id).is_none() {
                continue;
            }
            for index in 0..self.samples.len() {
                let place = (space, self.samples[index]);
                let Some(has) = self.has(place) else { continue };
                let source = self.kernel.mapping_source(id, place.1);
                let source = source.map(|(giver, page)| (self.number(giver).expect("a giver"), page));
                if source.is_some() || space == 0 {
                    all.insert(place, (has, source));
                }
            }
        }
        all
    }

    fn rights(&mut self) -> Rights {
        self.random
            .of(&[Rights::RWX, Rights::RWX, Rights::RWX, Rights::RW, Rights::R])
    }

    fn fpage(&mut self) -> Fpage {
        if self.places == Places::Ports && self.random.below(2) == 0 {
            let log2 = self.random.of(&[0u8, 0, 1, 2, 3, 9, 10, 16]);
            let first = self.random.of(&[0u64, 1, 2, 3, 8, 511, 512, 0xffff]);
            return Fpage::ports(first >> log2 << log2, log2).expect("ports");
        }
        let sizes: &[u8] = if self.places == Places::Few {
            &[PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, 13, SLOT, SLOT]
        } else {
            &[PAGE, PAGE, PAGE, PAGE, 13, 14, 14, SLOT, SLOT, SLOT, GIB]
        };
        let log2 = self.random.of(sizes);
        let page = self.random.of(self.slots) + self.random.of(self.pages);
        let rights = self.rights();
        memory(page >> (log2 - 12) << (log2 - 12), log2, rights)
    }

    fn act(&mut self) -> Act {
        let space = |world: &mut Self| world.random.below(SPACES);
        let kind = self.random.below(100);
        if kind < 66 {
            let how = self.random.of(&[
                How::Map,
                How::Map,
                How::Map,
                How::Map,
                How::Map,
                How::Grant,
                How::Grant,
                How::Link,
                How::Link,
                How::Link,
            ]);
            let (from, to) = (space(self), 1 + self.random.below(SPACES - 1));
            let (source, window) = (self.fpage(), self.fpage());
            if how == How::Link && self.random.below(4) > 0 {
                let page = self.random.of(self.slots);
                let both = memory(page, SLOT, Rights::RWX);
                return Act::Give(how, (self.spaces[from], both), (self.spaces[to], both));
            }
            return Act::Give(how, (self.spaces[from], source), (self.spaces[to], window));
        }
        if kind < 97 {
            let rights = self
                .random
                .of(&[Rights::RWX, Rights::RWX, Rights::W, Rights::W, Rights::X]);
            let own = self.random.of(&[Own::Kept, Own::Kept, Own::Too]);
            let from = space(self);
            return Act::Flush(self.spaces[from], self.fpage(), rights, own);
        }
        Act::Destroy(self.spaces[1 + self.random.below(SPACES - 1)])
    }

    /// Everybody who has one of these from there, directly or not.
    fn below(all: &All, tops: &BTreeSet<Place>) -> BTreeSet<Place> {
        let mut below = BTreeSet::new();
        for &place in all.keys() {
            let mut at = place;
            let mut steps = 0;
            while let Some(&(_, Some(source))) = all.get(&at) {
                if tops.contains(&source) {
                    below.insert(place);
                    break;
                }
                at = source;
                steps += 1;
                assert!(steps < 100, "a cycle at {place:?}: {source:?}");
            }
        }
        below
    }

    /// The looked at pages of a range of a space.
    fn range(&self, space: usize, first: u64, count: u64) -> BTreeSet<Place> {
        let pages = self
            .samples
            .iter()
            .filter(|&&page| (first..first + count).contains(&page));
        pages.map(|&page| (space, page)).collect()
    }

    fn begin(&mut self) {
        let act = self.act();
        let (mut owed, mut links) = (BTreeSet::new(), BTreeSet::new());
        if let &Act::Flush(space, what, ..) = &act {
            let all = self.all();
            let (first, count) = pages(what);
            let mut tops = self.range(self.number(space).expect("a space"), first, count);
            // σ₀ takes nothing from those to whom it granted.
            tops.retain(|place| all.contains_key(place));
            owed = Self::below(&all, &tops);
            owed.retain(|place| !tops.contains(place));
            if first < PORTS {
                links = self.linkers(self.number(space).expect("a space"), first, count);
            }
        }
        self.log.push(format!("begin {act:?}"));
        self.running.push(Running {
            act,
            going: Going::default(),
            owed,
            links,
            pieces: 0,
        });
    }

    /// The steps of a piece.
    fn steps(&mut self) -> i32 {
        let most = self.random.of(&[4, 12, 40, 100, 448, 448]);
        1 + i32::try_from(self.random.below(most)).expect("a few steps")
    }

    fn piece(&mut self, index: usize, steps: i32) {
        let before = self.all();
        let mut running = self.running.swap_remove(index);
        let mut going = running.going.next_piece().with_steps(steps);
        let act = running.act.clone();
        let mut landing = BTreeMap::new();
        let result = match act {
            Act::Give(how, (from, source), (to, window)) => {
                let (giver, receiver) = (self.number(from).expect("it"), self.number(to).expect("it"));
                let landed = source.landing(window).ok();
                if let Some((sent, landed)) = landed {
                    let ((first, count), (target, _)) = (pages(sent), pages(landed));
                    for (_, page) in self.range(giver, first, count) {
                        landing.insert((receiver, target + page - first), (giver, page));
                    }
                }
                let mapped = self.kernel.map((from, source), (to, window), how, &mut going);
                if let Ok(mapped) = mapped {
                    let (first, count) = pages(mapped.sent);
                    let unit = mapped.sent.size() / count;
                    let done = first + mapped.start / unit..first + mapped.end / unit;
                    if how == How::Link {
                        for other in &mut self.running {
                            other
                                .links
                                .retain(|place| place.0 != receiver || !done.contains(&place.1));
                        }
                    }
                    landing.retain(|_, (_, page)| how != How::Link && done.contains(page));
                } else {
                    landing.clear();
                }
                mapped.map(|mapped| mapped.progress)
            }
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
        self.judge(&before, &landing);
        self.check_translations();
        self.running.push(running);
        self.pass_on(&before, &landing);
        if result == Ok(Progress::More) {
            return;
        }
        let running = self.running.pop().expect("it is the last one");
        if let (Ok(_), Act::Flush(_, _, rights, _)) = (result, &running.act) {
            self.judge_done(&running.owed, *rights);
            for &place in &running.links {
                if let Some((_, Some(has))) = self.slot(place)
                    && (rights.contains(Rights::R) || !has.intersection(*rights).is_empty())
                {
                    self.fail(&format!("{place:?} keeps a link with {has}"));
                }
            }
        }
        self.renew();
    }

    /// What is given by one who is to lose it is lost, too; what is given by another one stays.
    fn pass_on(&mut self, before: &All, landing: &BTreeMap<Place, Place>) {
        let after = self.all();
        for (&place, source) in landing {
            let landed = match (before.get(source), after.get(&place)) {
                (Some(&((frame, _), from)), Some(&((is, _), has_from))) => {
                    // What was granted comes from where the granter had it.
                    frame == is && (has_from == Some(*source) || has_from == from && !after.contains_key(source))
                }
                _ => false,
            };
            for other in self.running.iter_mut().filter(|_| landed) {
                if other.owed.contains(source) {
                    other.owed.insert(place);
                } else {
                    other.owed.remove(&place);
                }
            }
        }
        for other in &mut self.running {
            assert!(other.pieces < PIECES_MAX);
            other.owed.retain(|place| after.contains_key(place));
        }
    }

    /// A flush is done.
    fn judge_done(&mut self, owed: &BTreeSet<Place>, rights: Rights) {
        let all = self.all();
        let rights = if rights.contains(Rights::R) {
            Rights::RWX
        } else {
            rights
        };
        // The right to execute is none of a port's.
        let is_taken = |place: &&Place| place.1 < PORTS || !rights.intersection(Rights::RW).is_empty();
        for place in owed.iter().filter(is_taken) {
            let ((_, has), _) = all[place];
            if !has.intersection(rights).is_empty() {
                self.fail(&format!("{place:?} keeps {has} though the flush is done"));
            }
        }
    }

    /// Spaces that are gone are made anew.
    fn renew(&mut self) {
        for number in 1..SPACES {
            if self.kernel.free_space_quota(self.spaces[number]).is_some() {
                continue;
            }
            // What was to be done with one that is gone is over.
            let gone = self.spaces[number];
            self.tlb.retain(|place, _| place.0 != number);
            self.running.retain(|running| match running.act {
                Act::Give(_, (from, _), (to, _)) => from != gone && to != gone,
                Act::Flush(space, ..) | Act::Destroy(space) => space != gone,
            });
            let creator = if number == 4 { self.spaces[3] } else { self.spaces[0] };
            let quota = quota(&mut self.random, number);
            match self.kernel.free_space_create(creator, quota) {
                Ok(id) => self.spaces[number] = id,
                // No frames now, or the fourth's creator has not so much left.
                Err(_) => self.spaces[number] = NOWHERE,
            }
            for running in &mut self.running {
                running.owed.retain(|place| place.0 != number);
                running.links.retain(|place| place.0 != number);
            }
        }
    }

    fn judge(&mut self, before: &All, landing: &BTreeMap<Place, Place>) {
        let after = self.all();
        for (place, &((frame, rights), source)) in &after {
            if let Some(source) = source
                && source.0 != 0
            {
                let Some(&((of, most), _)) = after.get(&source) else {
                    return self.fail(&format!("{place:?} comes from {source:?}, where nothing is"));
                };
                if of != frame || !most.contains(rights) {
                    self.fail(&format!("{place:?} has {frame:#x} {rights}, {source:?} {of:#x} {most}"));
                }
            }
            let had = before.get(place);
            let same = had.is_some_and(|&((was, had), _)| was == frame && had.contains(rights));
            if !same && place.0 != 0 && !landing.contains_key(place) {
                self.fail(&format!("{place:?} got {frame:#x} {rights}, had {had:?}"));
            }
        }
    }

    /// All spaces end: nothing is lost.
    fn finish(&mut self) {
        for number in 1..SPACES {
            let space = self.spaces[number];
            let ended = (0..PIECES_MAX).any(|_| self.kernel.free_space_destroy(space) != Ok(Progress::More));
            assert!(ended, "a space does not end");
        }
        if let Err(error) = self.kernel.mapping_check() {
            self.fail(error);
        }
        let memory = (self.kernel.frames_free(), self.kernel.mapping_nodes());
        let lost = self
            .samples
            .iter()
            .filter(|&&page| self.has((0, page)).is_none())
            .count();
        if memory.1 != self.memory.1 || lost > 0 {
            self.fail(&format!("{memory:?}, at first {:?}; σ₀ has not {lost}", self.memory));
        }
    }

    fn fail(&self, what: &str) {
        for line in &self.log {
            println!("{line}");
        }
        panic!("{what}");
    }
}

fn run(seed: u64, pieces: u32, places: Places) -> u32 {
    let mut world = World::new(seed, places);
    for _ in 0..pieces {
        let count = world.running.len();
        if count == 0 || count < UNDER_WAY && world.random.below(3) == 0 {
            world.begin();
            // Small trees are not all that is wanted.
            let steps = world.steps();
            let last = world.running.len() - 1;
            world.piece(last, steps);
        } else {
            let index = world.random.below(count);
            if world.random.below(200) == 0 {
                world.running.swap_remove(index);
                continue;
            }
            let steps = world.steps();
            world.piece(index, steps);
        }
    }
    while !world.running.is_empty() {
        let index = world.random.below(world.running.len());
        world.piece(index, 448);
    }
    world.finish();
    world.longest
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, usual| {
        let asked = std::env::var(name).ok();
        asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
    };
    let first = number("INTERLEAVED_FIRST", 1);
    first..first + number("INTERLEAVED_SEEDS", 6)
}

#[test]
fn tables_are_refused_while_several_operations_are_under_way() {
    for places in [Places::All, Places::Few, Places::Ports] {
        let mut longest = 0;
        for seed in seeds() {
            println!("seed {seed}");
            longest = longest.max(run(seed, 300, places));
        }
        println!("the longest took {longest} pieces");
    }
}
