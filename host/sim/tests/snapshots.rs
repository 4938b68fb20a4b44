//! Lives of stores with snapshots, cut by the power at requests of any kind, judged by a model: the state is that of the last commit or of the one under way,
//! and each snapshot is what the state was when it was made, whatever came later.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::{SimWorld, dirty};
use std::collections::BTreeMap;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, Event, FormatOptions, MountMode, ObjectRecord, Pages, ReadStart,
    SnapshotName, Store,
};

const BLOCKS: u64 = 700;
const FIRST: u64 = 1 << 32;
const OBJECTS: u64 = 6;
const STEPS: u64 = 30;

/// Pages of each object, and the stamps of those that were written.
type Objects = BTreeMap<u64, (u64, BTreeMap<u64, u8>)>;

/// A state that a disk may hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    objects: Objects,
    snapshots: BTreeMap<String, Objects>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Act {
    Sync,
    Checkpoint(CheckpointKind),
    Keep(String),
    Drop(String),
}

#[derive(Default, Debug)]
struct Tally {
    cuts: u64,
    kept: u64,
    dropped: u64,
    rolled: u64,
    grown: u64,
    refused: u64,
    failed: u64,
    scrubs: u64,
}

struct Life {
    rng: Rng,
    world: SimWorld,
    store: Store,
    /// The state in memory.
    now: State,
    /// The states that a power cut may leave on the disk.
    candidates: Vec<State>,
    /// Pages that are not durable, and objects whose rows are not.
    pending: BTreeMap<(u64, u64), u8>,
    rows: Vec<u64>,
    names: u64,
    /// Passes of the scrub that the store had done at the last look.
    passes: u64,
    tally: Tally,
}

fn base(number: u64) -> u64 {
    FIRST + (number << 21)
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).expect("a name")
}

fn record(base: u64, pages: u64) -> ObjectRecord {
    ObjectRecord {
        base,
        pages,
        account: 2,
        // Some have their bodies in blocks of their own.
        capabilities: (0..if base & (1 << 21) == 0 { 2 } else { 100 })
            .map(|at| (at, 15))
            .collect(),
        ..ObjectRecord::default()
    }
}

fn world_of(disk: CrashDisk, rng: &mut Rng) -> SimWorld {
    SimWorld::new(disk, 4000, rng.fork())
}

/// The objects of a mounted store, all of whose checks are well.
fn objects_of(world: &mut SimWorld, store: &mut Store, what: &str) -> Objects {
    let mut wrong = Vec::new();
    let verified = store.verify(world, &mut |finding| wrong.push(finding));
    assert!(verified.is_ok() && wrong.is_empty(), "{what}: {wrong:?}");
    let records: Vec<_> = store.objects().cloned().collect();
    let mut all = Objects::new();
    for record in records {
        let mut pages = BTreeMap::new();
        for page in 0..record.pages {
            match store.read_page(world, record.base, page) {
                ReadStart::Zero(_) => {}
                ReadStart::NoMemory => panic!("memory"),
                ReadStart::Reading => {
                    let stamp = loop {
                        match store.poll(world) {
                            Some(Event::PageRead { frame, .. }) => {
                                let bytes = *world.bytes(frame);
                                world.free(frame);
                                assert!(bytes == [bytes[0]; BLOCK], "{what}: page {page}");
                                break bytes[0];
                            }
                            Some(Event::PageBad { reason, .. }) => panic!("{what}: page {page}: {reason:?}"),
                            Some(_) => {}
                            None => world.wait(),
                        }
                    };
                    // A page without contents may have to be looked for on the disk.
                    if stamp != 0 {
                        pages.insert(page, stamp);
                    }
                }
            }
        }
        all.insert(record.base, (record.pages, pages));
    }
    all
}

/// Reads the state of a disk; all of it must be sound.
fn state_of(disk: &CrashDisk, rng: &mut Rng) -> State {
    let image = |rng: &mut Rng| CrashDisk::from_medium(disk.blocks(), disk.medium().clone(), rng.fork());
    let mut world = world_of(image(rng), rng);
    let (mut store, report) = Store::mount(&mut world, MountMode::ReadOnly).expect("a disk that was cut opens");
    assert!(report.damage.is_empty() && report.losses.is_empty(), "{report:?}");
    let objects = objects_of(&mut world, &mut store, "now");
    let names: Vec<_> = store.snapshots().collect();
    let mut state = State {
        objects,
        ..State::default()
    };
    for snapshot in names {
        assert!(!snapshot.is_damaged);
        let mut world = world_of(image(rng), rng);
        let mounted = Store::mount_snapshot(&mut world, &snapshot.name).expect("a snapshot opens");
        let (mut store, _) = mounted.expect("it is there");
        let objects = objects_of(&mut world, &mut store, snapshot.name.as_str());
        assert_eq!(objects.len() as u64, snapshot.objects);
        state.snapshots.insert(snapshot.name.to_string(), objects);
    }
    state
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = world_of(CrashDisk::new(BLOCKS, rng.fork()), &mut rng);
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let (store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        Self {
            rng,
            world,
            store,
            now: State::default(),
            candidates: vec![State::default()],
            pending: BTreeMap::new(),
            rows: Vec::new(),
            names: 0,
            passes: 0,
            tally: Tally::default(),
        }
    }

    /// Changes objects in memory.
    fn change(&mut self) {
        for _ in 0..=self.rng.below(3) {
            let base = base(self.rng.below(OBJECTS));
            if self.rng.one_in(5) {
                if self.store.delete_object(base).is_ok() {
                    self.now.objects.remove(&base);
                    self.pending.retain(|&(other, _), _| other != base);
                    self.rows.push(base);
                }
                continue;
            }
            if !self.now.objects.contains_key(&base) || self.rng.one_in(4) {
                let pages = *self.rng.pick(&[1, 3, 40, 300, 600]);
                if self.store.put_object(record(base, pages)).is_err() {
                    self.tally.refused += 1;
                    continue;
                }
                let object = self.now.objects.entry(base).or_default();
                object.0 = pages;
                object.1.retain(|&page, _| page < pages);
                self.pending.retain(|&(other, page), _| other != base || page < pages);
                self.rows.push(base);
            }
            let Some(object) = self.now.objects.get_mut(&base) else {
                continue;
            };
            let stamp = 1 + self.rng.below(255) as u8;
            let first = self.rng.below(object.0);
            let count = 1 + self.rng.below(*self.rng.clone().pick(&[3, 3, 30]));
            for page in first..object.0.min(first + count) {
                if self.store.reserve(base, page).is_err() {
                    self.tally.refused += 1;
                    break;
                }
                object.1.insert(page, stamp);
                self.pending.insert((base, page), stamp);
            }
        }
    }

    /// Makes what memory has durable, with cuts on the way.
    fn commit(&mut self, act: &Act) {
        let mut after = self.now.clone();
        let asked = match act {
            Act::Keep(text) => {
                after.snapshots.insert(text.clone(), self.now.objects.clone());
                self.store.keep_snapshot(name(text), 1)
            }
            Act::Drop(text) => {
                after.snapshots.remove(text);
                self.store.drop_snapshot(name(text))
            }
            _ => Ok(()),
        };
        if asked.is_err() {
            self.tally.refused += 1;
            after = self.now.clone();
        }
        let before = self.candidates.clone();
        // Where the snapshot alone is given up the rest may be durable.
        for state in [self.now.clone(), after.clone()] {
            if !self.candidates.contains(&state) {
                self.candidates.push(state);
            }
        }
        let pages: Vec<DirtyPage> = (self.pending.iter())
            .map(|(&(base, page), &stamp)| dirty(&mut self.world, base, page, stamp))
            .collect();
        self.look();
        if self.rng.one_in(12) {
            // The scrub blames a block that cannot be read twice, so it is at rest while the disk fails.
            self.rest();
            self.world.disk.set_failing(20);
        }
        let begun = match act {
            Act::Sync => {
                self.rows.sort_unstable();
                self.rows.dedup();
                let begun = self.store.sync_begin(&mut self.world, pages, &self.rows);
                begun.map(drop).map_err(|_| "sync")
            }
            Act::Checkpoint(kind) => self
                .store
                .checkpoint_begin(&mut self.world, pages, *kind)
                .map_err(|_| "busy"),
            _ => (self
                .store
                .checkpoint_begin(&mut self.world, pages, CheckpointKind::Periodic))
            .map_err(|_| "busy"),
        };
        begun.expect("memory");
        let done = self.finish();
        self.world.disk.set_failing(0);
        let outcome = self.store.snapshot_outcome();
        if !done {
            self.tally.failed += 1;
            return;
        }
        if outcome == Some(Ok(())) {
            match act {
                Act::Keep(_) => self.tally.kept += 1,
                _ => self.tally.dropped += 1,
            }
            self.now = after;
        } else {
            assert!(!matches!(act, Act::Drop(_)) || asked.is_err(), "{outcome:?}");
        }
        drop(before);
        self.candidates = vec![self.now.clone()];
        self.pending.clear();
        self.rows.clear();
    }

    /// Lets a scrub look at some blocks, of which one may be on its way when something else begins.
    fn look(&mut self) {
        let passes = self.store.scrub_report().passes;
        self.tally.scrubs += u64::from(passes != self.passes && passes > 0);
        self.passes = passes;
        self.store.scrub_begin();
        self.store.scrub_some(self.rng.below(40));
        for _ in 0..self.rng.below(60) {
            match self.store.poll(&mut self.world) {
                Some(event) => panic!("{event:?}"),
                None => drop(self.world.step()),
            }
        }
    }

    /// Lets the scrub come to rest.
    fn rest(&mut self) {
        self.store.scrub_some(0);
        while !self.store.is_idle() {
            match self.store.poll(&mut self.world) {
                Some(event) => panic!("{event:?}"),
                None => drop(self.world.step()),
            }
        }
    }

    /// Ends what is under way; tells whether it is durable.
    fn finish(&mut self) -> bool {
        let mut done = None;
        loop {
            match self.store.poll(&mut self.world) {
                Some(Event::PageWritten { frame, .. }) => self.world.free(frame),
                Some(Event::CheckpointDone { .. } | Event::SyncDone(_)) => done = Some(true),
                Some(Event::CheckpointFailed { .. } | Event::SyncFailed(..) | Event::SyncNeedsCheckpoint(_)) => {
                    done = Some(false);
                }
                Some(Event::Damaged { structure, block, .. }) => panic!("{structure:?} in {block} is blamed"),
                Some(_) => {}
                None if self.store.is_idle() => break,
                None => {
                    while !self.world.disk.has_completions() {
                        if self.rng.one_in(12) {
                            self.cut();
                        }
                        assert!(self.world.step(), "it waits for nothing");
                    }
                }
            }
        }
        while self.store.page_over().is_some() {}
        done.expect("it has ended")
    }

    /// The disk as it would be if the power failed now.
    fn crashed(&mut self) -> CrashDisk {
        let fates = self.world.disk.draw_fates(&mut self.rng);
        self.world.disk.crash(&fates, self.rng.fork())
    }

    fn judge(&self, found: &State, what: &str) {
        assert!(
            self.candidates.contains(found),
            "{what}: {found:?} is none of {:?}",
            self.candidates
        );
    }

    fn cut(&mut self) {
        self.tally.cuts += 1;
        let disk = self.crashed();
        let mut rng = self.rng.fork();
        self.judge(&state_of(&disk, &mut rng), "a cut");
    }

    /// Goes on from a disk.
    fn restart(&mut self, disk: CrashDisk) {
        let mut rng = self.rng.fork();
        let found = state_of(&disk, &mut rng);
        self.judge(&found, "a start");
        self.world = world_of(disk, &mut rng);
        let (store, _) = Store::mount(&mut self.world, MountMode::ReadWrite).expect("mount");
        self.store = store;
        self.pending.clear();
        self.rows.clear();
        self.now = found.clone();
        self.candidates = vec![found];
    }

    /// Goes back to a snapshot, perhaps with a cut on the way.
    fn roll_back(&mut self, text: &str) {
        let disk = self.crashed();
        self.restart(disk);
        let disk = self.crashed();
        let mut rng = self.rng.fork();
        let Some(then) = self.now.snapshots.get(text).cloned() else {
            return;
        };
        self.names += 1;
        let keep = self.rng.one_in(2).then(|| format!("k{}", self.names));
        if let Some(keep) = &keep {
            let mut state = self.now.clone();
            state.snapshots.insert(keep.clone(), self.now.objects.clone());
            self.candidates.push(state);
        }
        let mut state = self.candidates.last().expect("one").clone();
        state.objects = then;
        self.candidates.push(state.clone());
        let mut world = world_of(disk, &mut rng);
        if self.rng.one_in(2) {
            world.disk.set_fuse(self.rng.below(150));
        }
        if self.rng.one_in(3) {
            world.disk.set_failing(30);
        }
        let result = Store::roll_back(&mut world, &name(text), keep.map(|keep| (name(&keep), 2)));
        let end = if let Some(blown) = world.disk.take_blown() {
            blown.crash(&blown.draw_fates(&mut self.rng), self.rng.fork())
        } else {
            if result.is_ok() {
                self.candidates = vec![state];
                self.tally.rolled += 1;
            } else {
                self.tally.refused += 1;
            }
            world.disk.crash(&world.disk.draw_fates(&mut self.rng), self.rng.fork())
        };
        self.restart(end);
    }

    /// The disk becomes larger, and the store grows, perhaps with a cut on the way.
    fn grow(&mut self) {
        let disk = self.crashed();
        self.restart(disk);
        let mut disk = self.crashed();
        let mut rng = self.rng.fork();
        let total = disk.blocks() + *self.rng.pick(&[3, 40, 32_768, 33_000]);
        disk.set_blocks(total);
        let mut world = world_of(disk, &mut rng);
        if self.rng.one_in(2) {
            world.disk.set_fuse(self.rng.below(150));
        }
        let fails = self.rng.one_in(3);
        if fails {
            world.disk.set_failing(30);
        }
        let result = Store::grow(&mut world, total);
        let end = if let Some(blown) = world.disk.take_blown() {
            blown.crash(&blown.draw_fates(&mut self.rng), self.rng.fork())
        } else {
            assert!(result.is_ok() || fails, "{result:?}");
            self.tally.grown += u64::from(result.is_ok());
            world.disk.crash(&world.disk.draw_fates(&mut self.rng), self.rng.fork())
        };
        self.restart(end);
    }

    fn live(&mut self) {
        for _ in 0..STEPS {
            self.change();
            let taken: Vec<String> = self.now.snapshots.keys().cloned().collect();
            if self.rng.one_in(20) {
                self.grow();
            }
            let act = match self.rng.below(12) {
                0..4 => Act::Sync,
                4..6 => Act::Checkpoint(CheckpointKind::Periodic),
                6 => Act::Checkpoint(CheckpointKind::Generation),
                7..9 => {
                    self.names += 1;
                    Act::Keep(format!("s{}", self.names))
                }
                9 | 10 if !taken.is_empty() => Act::Drop(self.rng.pick(&taken).clone()),
                11 if !taken.is_empty() => {
                    let text = self.rng.pick(&taken).clone();
                    self.roll_back(&text);
                    continue;
                }
                _ => {
                    let disk = self.crashed();
                    self.restart(disk);
                    continue;
                }
            };
            self.commit(&act);
        }
        self.end();
    }

    /// Without snapshots all that the state does not use is free.
    fn end(&mut self) {
        let disk = self.crashed();
        self.restart(disk);
        for text in self.now.snapshots.clone().into_keys() {
            self.commit(&Act::Drop(text));
        }
        if self.now.snapshots.is_empty() && self.rng.one_in(2) {
            // Without a start between, what they held comes back all the same.
            for _ in 0..4 {
                self.commit(&Act::Checkpoint(CheckpointKind::Generation));
            }
            if self.candidates.len() == 1 {
                assert!(!self.store.is_reclaiming());
                assert_eq!(self.store.blocks_of_snapshots(), 0);
                self.balance();
            }
        }
        for _ in 0..3 {
            let disk = self.crashed();
            self.restart(disk);
            self.commit(&Act::Checkpoint(CheckpointKind::Generation));
        }
        if !self.now.snapshots.is_empty() {
            // A disk that failed has kept one.
            return;
        }
        self.commit(&Act::Checkpoint(CheckpointKind::Generation));
        self.balance();
    }

    /// What is not used is free, or will be.
    fn balance(&mut self) {
        let stats = self.store.stats();
        let verified = self.store.verify(&mut self.world, &mut |finding| panic!("{finding:?}"));
        let used = verified.expect("memory").blocks;
        let mut data = 0;
        while stats.free + stats.held + used + data < stats.blocks {
            data += 1;
        }
        // All other blocks are superblocks, the two journals, the three bitmaps in front of the data, and the bitmaps in their new place.
        let bitmaps = 3 * (1 + stats.blocks.div_ceil(32_768));
        let moved = if bitmaps > 6 { bitmaps } else { 0 };
        assert_eq!(data, 4 + 2 * 16 + 3 * 2 + moved, "{stats:?}");
    }
}

#[test]
fn snapshots_are_what_the_state_was() {
    let tallies = sim::seeds::run(60, |seed| {
        let mut life = Life::new(seed);
        life.live();
        life.tally
    });
    let Some(tallies) = tallies else { return };
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let sums = [
        sum(|tally| tally.cuts),
        sum(|tally| tally.kept),
        sum(|tally| tally.dropped),
        sum(|tally| tally.rolled),
        sum(|tally| tally.grown),
        sum(|tally| tally.refused),
        sum(|tally| tally.failed),
        sum(|tally| tally.scrubs),
    ];
    eprintln!("cuts, kept, dropped, rolled back, grown, refused, failed, scrubs: {sums:?}");
    assert!(sums.iter().all(|&sum| sum > 20), "{sums:?}");
}
