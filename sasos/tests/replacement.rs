//! Which pages leave memory: policies compared on traces, in reads. The table is in decision 0197, and a change of a number shows here.
//!
//! Sources: CLOCK is Corbató's (1968); 2Q Johnson's and Shasha's (VLDB 1994), with a quarter for pages seen once and a half for pages remembered; S3-FIFO Yang's and others' (SOSP
//! 2023), with a tenth, counters to three, and as many pages remembered as memory holds; the list behind a FIFO is Turner's and Levy's (SIGMETRICS 1981).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;

use abi::address::PAGE;
use sasos::pages::queues::Queues;
use sim::rng::Rng;

/// Pages of memory.
const MEMORY: usize = 1_000;
/// Pages that today's policy takes at once.
const BATCH: usize = 64;

/// A policy: tells whether a page that is touched was in memory.
trait Policy {
    fn touch(&mut self, page: u32) -> bool;
    /// Faults without a read so far.
    fn soft(&self) -> u32 {
        0
    }
}

/// Today's: a hand that goes through memory by address and takes what it comes to.
#[derive(Default)]
struct ByAddress {
    resident: BTreeSet<u32>,
    hand: u32,
}

impl Policy for ByAddress {
    fn touch(&mut self, page: u32) -> bool {
        if self.resident.contains(&page) {
            return true;
        }
        if self.resident.len() >= MEMORY {
            for _ in 0..BATCH {
                let next = self.resident.range(self.hand..).next().or(self.resident.first());
                let Some(&goes) = next else { break };
                self.resident.remove(&goes);
                self.hand = goes + 1;
            }
        }
        self.resident.insert(page);
        false
    }
}

/// Queues with a bit or a counter a page.
#[derive(Default)]
struct Lru {
    at: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
    now: u64,
}

impl Policy for Lru {
    fn touch(&mut self, page: u32) -> bool {
        self.now += 1;
        let before = self.at.insert(page, self.now);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.at.len() > MEMORY
            && let Some((_, goes)) = self.order.pop_first()
        {
            self.at.remove(&goes);
        }
        self.order.insert(self.now, page);
        before.is_some()
    }
}

/// CLOCK: the touch that brings a page in sets its bit, as a processor does.
#[derive(Default)]
struct Clock {
    bits: HashMap<u32, bool>,
    ring: VecDeque<u32>,
}

impl Policy for Clock {
    fn touch(&mut self, page: u32) -> bool {
        if let Some(bit) = self.bits.get_mut(&page) {
            *bit = true;
            return true;
        }
        while self.ring.len() >= MEMORY {
            let first = self.ring.pop_front().unwrap();
            if std::mem::take(self.bits.get_mut(&first).unwrap()) {
                self.ring.push_back(first);
            } else {
                self.bits.remove(&first);
            }
        }
        self.bits.insert(page, true);
        self.ring.push_back(page);
        false
    }
}

#[derive(Default)]
struct TwoQ {
    once: VecDeque<u32>,
    in_once: BTreeSet<u32>,
    remembered: VecDeque<u32>,
    in_remembered: BTreeSet<u32>,
    often: Lru,
}

impl Policy for TwoQ {
    fn touch(&mut self, page: u32) -> bool {
        if self.often.at.contains_key(&page) {
            return self.often.touch(page);
        }
        if self.in_once.contains(&page) {
            return true;
        }
        if self.once.len() + self.often.at.len() >= MEMORY {
            if self.once.len() > MEMORY / 4 || self.often.at.is_empty() {
                let goes = self.once.pop_front().unwrap();
                self.in_once.remove(&goes);
                self.remembered.push_back(goes);
                self.in_remembered.insert(goes);
                if self.remembered.len() > MEMORY / 2 {
                    self.in_remembered.remove(&self.remembered.pop_front().unwrap());
                }
            } else if let Some((_, goes)) = self.often.order.pop_first() {
                self.often.at.remove(&goes);
            }
        }
        if self.in_remembered.remove(&page) {
            self.remembered.retain(|&other| other != page);
            self.often.touch(page);
        } else {
            self.once.push_back(page);
            self.in_once.insert(page);
        }
        false
    }
}

/// S3-FIFO.
#[derive(Default)]
struct S3Fifo {
    count: HashMap<u32, u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<u32>,
    in_ghost: BTreeSet<u32>,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small.len() > MEMORY / 10 || self.main.is_empty() {
            while let Some(page) = self.small.pop_front() {
                if self.count[&page] > 1 {
                    self.count.insert(page, 0);
                    self.main.push_back(page);
                } else {
                    self.count.remove(&page);
                    self.ghost.push_back(page);
                    self.in_ghost.insert(page);
                    if self.ghost.len() > MEMORY {
                        self.in_ghost.remove(&self.ghost.pop_front().unwrap());
                    }
                    return;
                }
            }
        }
        while let Some(page) = self.main.pop_front() {
            let count = self.count.get_mut(&page).unwrap();
            if *count > 0 {
                *count -= 1;
                self.main.push_back(page);
            } else {
                self.count.remove(&page);
                return;
            }
        }
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, page: u32) -> bool {
        if let Some(count) = self.count.get_mut(&page) {
            *count = 3.min(*count + 1);
            return true;
        }
        while self.count.len() >= MEMORY {
            self.evict();
        }
        if self.in_ghost.remove(&page) {
            self.ghost.retain(|&other| other != page);
            self.main.push_back(page);
        } else {
            self.small.push_back(page);
        }
        self.count.insert(page, 0);
        false
    }
}

/// A hand by address as today's, which does not take a page but lets it *rest*: it is in no page table any more, and still in memory. A touch of a page that rests brings it back without a read, and the
/// hand passes it once. What has rested longest goes.
struct Rest {
    resident: BTreeSet<u32>,
    hot: BTreeSet<u32>,
    resting: VecDeque<u32>,
    is_resting: BTreeSet<u32>,
    hand: u32,
    rests: usize,
    soft: u32,
}

impl Rest {
    fn new(part: usize) -> Self {
        Self {
            resident: BTreeSet::new(),
            hot: BTreeSet::new(),
            resting: VecDeque::new(),
            is_resting: BTreeSet::new(),
            hand: 0,
            rests: MEMORY / part,
            soft: 0,
        }
    }
}

impl Policy for Rest {
    fn touch(&mut self, page: u32) -> bool {
        if self.resident.contains(&page) {
            return true;
        }
        if self.is_resting.remove(&page) {
            self.resting.retain(|&other| other != page);
            self.hot.insert(page);
            self.resident.insert(page);
            self.soft += 1;
            return true;
        }
        if self.resident.len() + self.resting.len() >= MEMORY {
            while self.resting.len() < self.rests {
                let next = self.resident.range(self.hand..).next().or(self.resident.first());
                let Some(&next) = next else { break };
                self.hand = next + 1;
                if !self.hot.remove(&next) {
                    self.resident.remove(&next);
                    self.resting.push_back(next);
                    self.is_resting.insert(next);
                }
            }
            self.is_resting.remove(&self.resting.pop_front().unwrap());
        }
        self.resident.insert(page);
        false
    }

    fn soft(&self) -> u32 {
        self.soft
    }
}

/// A small queue and a large one in the order of arrival, and as many pages remembered as memory holds, from faults alone: a page that is read again while it is remembered goes into the large queue. A page at the end of the
/// large queue goes, or where `rests` is not zero, rests first: a touch meanwhile brings it back without a read.
struct Faults {
    rests: usize,
    place: HashMap<u32, Queue>,
    small: VecDeque<u32>,
    large: VecDeque<u32>,
    resting: VecDeque<u32>,
    remembered: VecDeque<u32>,
    in_remembered: BTreeSet<u32>,
    soft: u32,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Queue {
    Small,
    Large,
    Resting,
}

impl Faults {
    fn new(rests: usize) -> Self {
        Self {
            rests,
            place: HashMap::new(),
            small: VecDeque::new(),
            large: VecDeque::new(),
            resting: VecDeque::new(),
            remembered: VecDeque::new(),
            in_remembered: BTreeSet::new(),
            soft: 0,
        }
    }

    fn goes(&mut self) {
        if self.small.len() > MEMORY / 10 || self.large.is_empty() && self.resting.is_empty() {
            let page = self.small.pop_front().unwrap();
            self.place.remove(&page);
            self.remembered.push_back(page);
            self.in_remembered.insert(page);
            if self.remembered.len() > MEMORY {
                self.in_remembered.remove(&self.remembered.pop_front().unwrap());
            }
            return;
        }
        while self.resting.len() <= self.rests
            && let Some(page) = self.large.pop_front()
        {
            self.place.insert(page, Queue::Resting);
            self.resting.push_back(page);
        }
        let page = self.resting.pop_front().unwrap();
        self.place.remove(&page);
    }
}

impl Policy for Faults {
    fn touch(&mut self, page: u32) -> bool {
        if let Some(place) = self.place.get_mut(&page) {
            if *place == Queue::Resting {
                *place = Queue::Large;
                self.resting.retain(|&other| other != page);
                self.large.push_back(page);
                self.soft += 1;
            }
            return true;
        }
        if self.place.len() >= MEMORY {
            self.goes();
        }
        if self.in_remembered.remove(&page) {
            self.remembered.retain(|&other| other != page);
            self.large.push_back(page);
            self.place.insert(page, Queue::Large);
        } else {
            self.small.push_back(page);
            self.place.insert(page, Queue::Small);
        }
        false
    }

    fn soft(&self) -> u32 {
        self.soft
    }
}

/// Those of `sasos/src/pages/queues.rs`, driven as `release.rs` does: a page that is read goes into a frame, and some go at once.
struct Built {
    queues: Queues,
    frames: HashMap<u32, u32>,
    free: Vec<u32>,
    batch: usize,
}

impl Built {
    fn new(batch: usize) -> Self {
        Self {
            batch,
            queues: Queues::new(MEMORY).expect("heap"),
            frames: HashMap::new(),
            free: (0..MEMORY as u32).collect(),
        }
    }
}

impl Policy for Built {
    fn touch(&mut self, page: u32) -> bool {
        if self.frames.contains_key(&page) {
            return true;
        }
        if self.free.is_empty() {
            for _ in 0..self.batch {
                let candidate = self.queues.take_first().expect("a page");
                let goes = (candidate.address / PAGE) as u32 - 1;
                let frame = self.frames.remove(&goes).expect("it is there");
                assert!(self.queues.is_of(&candidate, frame));
                self.queues.gone(&candidate);
                self.free.push(frame);
            }
        }
        let frame = self.free.pop().expect("one is free");
        self.queues.arrived(frame, (u64::from(page) + 1) * PAGE);
        self.frames.insert(page, frame);
        false
    }
}

/// The fewest reads that are possible: Belady's.
fn fewest(trace: &[u32]) -> usize {
    let mut next = vec![usize::MAX; trace.len()];
    let mut last = HashMap::new();
    for (at, &page) in trace.iter().enumerate().rev() {
        next[at] = last.insert(page, at).unwrap_or(usize::MAX);
    }
    let (mut resident, mut order, mut reads) = (HashMap::new(), BTreeSet::new(), 0);
    for (at, &page) in trace.iter().enumerate() {
        if let Some(before) = resident.insert(page, next[at]) {
            order.remove(&(before, page));
        } else {
            reads += 1;
            if resident.len() > MEMORY
                && let Some((_, goes)) = order.pop_last()
            {
                resident.remove(&goes);
            }
        }
        order.insert((next[at], page));
    }
    reads
}

/// A page with a probability that falls with its rank.
fn zipf(rng: &mut Rng, sums: &[f64]) -> u32 {
    let at = f64::from(rng.below(1 << 30) as u32) / f64::from(1 << 30) * sums[sums.len() - 1];
    sums.partition_point(|&sum| sum < at) as u32
}

fn traces() -> Vec<(&'static str, Vec<u32>)> {
    let memory = MEMORY as u32;
    let mut rng = Rng::new(1);
    let scan: Vec<u32> = (0..2).flat_map(|_| 0..8 * memory).collect();
    // Hot pages lie below or above what is scanned.
    let mut beside_scan = |scanned: u32, hot: u32| -> Vec<u32> {
        let one = |turn: u32| match turn % 2 {
            0 => scanned + turn / 2 % (8 * memory),
            _ => hot + rng.below(400) as u32,
        };
        (0..40_000).map(one).collect()
    };
    let (below, above) = (beside_scan(400, 0), beside_scan(0, 8 * memory));
    let looped: Vec<u32> = (0..20).flat_map(|_| 0..memory + memory / 10).collect();
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=8 * memory)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.9);
            sum
        })
        .collect();
    // Pages of neighbouring ranks lie apart.
    let scattered = |page: u32| page.wrapping_mul(2_654_435_761) % (8 * memory);
    let skewed: Vec<u32> = (0..60_000).map(|_| scattered(zipf(&mut rng, &sums))).collect();
    // OO1: lookups at random, and traversals in which nine of ten connections lead to one of the nearest hundredth of all parts.
    let parts = 4 * memory;
    let mut oo1 = Vec::new();
    for _ in 0..60 {
        oo1.extend((0..200).map(|_| rng.below(parts.into()) as u32));
        let mut at = rng.below(parts.into()) as u32;
        for _ in 0..800 {
            oo1.push(at);
            at = if rng.one_in(10) {
                rng.below(parts.into()) as u32
            } else {
                (at + parts + rng.below((parts / 100).into()) as u32 - parts / 200) % parts
            };
        }
    }
    vec![
        ("scan of 8 × memory, twice", scan),
        ("scan, 400 hot pages below it", below),
        ("scan, 400 hot pages above it", above),
        ("loop over 1.1 × memory, 20 times", looped),
        ("zipf 0.9 over 8 × memory", skewed),
        ("OO1, 4 × memory", oo1),
    ]
}

#[test]
fn policies_on_traces() {
    let mut table = String::from(
        "| trace | touches | fewest | by address | LRU | CLOCK | 2Q | S3-FIFO | rest, by address | two queues | two queues, 1/8 rests | two queues, 1/3 rests | built | built, one at a time |\n",
    );
    let mut rests = Vec::new();
    for (name, trace) in traces() {
        let policies: Vec<Box<dyn Policy>> = vec![
            Box::new(ByAddress::default()),
            Box::new(Lru::default()),
            Box::new(Clock::default()),
            Box::new(TwoQ::default()),
            Box::new(S3Fifo::default()),
            Box::new(Rest::new(8)),
            Box::new(Faults::new(0)),
            Box::new(Faults::new(MEMORY / 8)),
            Box::new(Faults::new(MEMORY / 3)),
            Box::new(Built::new(BATCH)),
            Box::new(Built::new(1)),
        ];
        let _ = write!(table, "| {name} | {} | {} |", trace.len(), fewest(&trace));
        let mut all = Vec::new();
        for mut policy in policies {
            let reads = trace.iter().filter(|&&page| !policy.touch(page)).count();
            let _ = match policy.soft() {
                0 => write!(table, " {reads} |"),
                soft => write!(table, " {reads} + {soft} |"),
            };
            all.push(reads);
        }
        table.push('\n');
        rests.push((name, all));
    }
    println!("{table}");
    let decision = include_str!("../../docs/decisions/0197-which-pages-leave-memory.md");
    for line in table.lines() {
        assert!(decision.contains(line), "decision 0197 does not have the line\n{line}");
    }
}
