//! A checkpoint that finds no frame gives up map nodes: few in each event, however many there are, and what it writes is whole whatever happens
//! between two events.

use sim::disk::CrashDisk;
use sim::rng::Rng;
use sim::world::{SimWorld, dirty};
use std::collections::BTreeMap;
use store::{
    Budget, CheckpointKind, DirtyPage, Event, Failure, FormatOptions, Frame, MountMode, ObjectRecord, Pages, ReadStart,
    Store,
};

const BASE: u64 = 1 << 40;
const BLOCKS: u64 = 40_000;
/// Pages that one node of the lowest level has.
const NODE: u64 = 256;
/// Pages whose nodes are new: more than the reserve has frames.
const FRESH: u64 = 60;
/// The budget that the server grants an event.
const GRANT: u64 = 12_000;
/// Nodes that go in one event at most.
const GONE_MAX: usize = 12;
const POLLS_MAX: usize = 200_000;

/// The byte that each page is full of, by its number.
type Contents = BTreeMap<u64, u8>;

struct Scene {
    world: SimWorld,
    store: Store,
    rng: Rng,
    durable: Contents,
    /// Frames of pages, which stay in memory until the checkpoint is over.
    frames: Vec<Frame>,
}

/// The work of one event.
struct Done {
    /// Frames that the store gave back, those of pages aside.
    freed: usize,
    /// The end of the checkpoint.
    over: Option<Result<(), Failure>>,
    /// Pages that were read.
    read: Vec<(u64, u8)>,
}

impl Scene {
    /// An object on the disk with so many nodes, all of them in memory.
    fn new(seed: u64, nodes: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = SimWorld::new(CrashDisk::new(BLOCKS, rng.fork()), 1 << 20, rng.fork());
        Store::format(&mut world, &FormatOptions::default()).expect("format");
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        let record = ObjectRecord {
            base: BASE,
            pages: 1 << 20,
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("room");
        let durable = Contents::new();
        let mut scene = Self {
            world,
            store,
            rng,
            durable,
            frames: Vec::new(),
        };
        let all = (0..nodes).map(|node| (node * NODE, 1)).collect();
        let pages = scene.dirty(&all);
        scene.begin(pages);
        assert_eq!(scene.finish(), Ok(()));
        scene.durable = all;
        scene
    }

    fn dirty(&mut self, contents: &Contents) -> Vec<DirtyPage> {
        let page = |(&page, &stamp)| {
            self.store.reserve(BASE, page).expect("room");
            dirty(&mut self.world, BASE, page, stamp)
        };
        contents.iter().map(page).collect()
    }

    fn begin(&mut self, pages: Vec<DirtyPage>) {
        let begun = self
            .store
            .checkpoint_begin(&mut self.world, pages, CheckpointKind::Generation);
        begun.expect("idle");
    }

    /// A checkpoint of some old pages and some in new nodes begins when no frame is left.
    fn begin_short(&mut self) -> Contents {
        let old = self.durable.keys().copied().step_by(7);
        let fresh = (0..FRESH).map(|node| (1 << 19) + node * NODE);
        let changed: Contents = old.chain(fresh).map(|page| (page, 2)).collect();
        let pages = self.dirty(&changed);
        self.world.memory.set_limit(self.world.memory.used());
        self.begin(pages);
        changed
    }

    fn event(&mut self) -> Done {
        let (before, mut budget) = (self.world.memory.used(), Budget::of(GRANT));
        let (mut read, mut over) = (Vec::new(), None);
        while let Some(event) = self.store.poll_within(&mut self.world, &mut budget) {
            match event {
                Event::PageWritten { frame, .. } => self.frames.push(frame),
                Event::PageRead { page, frame, .. } => {
                    read.push((page, self.world.bytes(frame)[0]));
                    self.frames.push(frame);
                }
                Event::CheckpointDone { .. } => over = Some(Ok(())),
                Event::CheckpointFailed { reason } => over = Some(Err(reason)),
                _ => {}
            }
        }
        let freed = before.saturating_sub(self.world.memory.used());
        if over.is_some() {
            self.frames.drain(..).for_each(|frame| self.world.free(frame));
        }
        if !self.store.is_stopped() {
            self.world.step();
        }
        Done { freed, over, read }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let mut over = None;
        for _ in 0..POLLS_MAX {
            over = self.event().over.or(over);
            if let Some(result) = over.filter(|_| self.store.is_idle()) {
                while self.store.page_over().is_some() {}
                return result;
            }
        }
        panic!("it does not end");
    }

    /// The disk as it is after a power cut now has this.
    fn cut_shows(&mut self, contents: &Contents) {
        let fates = self.world.disk.draw_fates(&mut self.rng);
        let disk = self.world.disk.crash(&fates, self.rng.fork());
        let mut world = SimWorld::new(disk, 1 << 20, self.rng.fork());
        let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
        for (&page, &stamp) in contents {
            assert_eq!(store.read_page(&mut world, BASE, page), ReadStart::Reading, "{page}");
            loop {
                match store.poll(&mut world) {
                    Some(Event::PageRead { frame, .. }) => {
                        assert_eq!(world.bytes(frame)[0], stamp, "page {page}");
                        world.free(frame);
                        break;
                    }
                    Some(other) => panic!("{other:?}"),
                    None => assert!(world.step(), "page {page} never comes"),
                }
            }
        }
    }
}

#[test]
fn nodes_are_given_up_in_pieces_however_many_there_are() {
    for nodes in [300, 2_000] {
        let mut scene = Scene::new(1, nodes);
        let changed = scene.begin_short();
        let (mut most, mut gone) = (0, 0);
        let over = loop {
            let done = scene.event();
            most = most.max(done.freed);
            gone += done.freed;
            if let Some(over) = done.over {
                break over;
            }
        };
        assert_eq!(over, Ok(()), "{nodes} nodes");
        assert!(gone >= nodes as usize, "{gone} of {nodes} nodes were given up");
        assert!(most <= GONE_MAX, "{most} of {nodes} nodes went in one event");
        let mut all = scene.durable.clone();
        all.extend(changed);
        scene.cut_shows(&all);
    }
}

/// Between two pieces pages are read, and the power fails.
#[test]
fn between_two_pieces_maps_are_whole() {
    let mut scene = Scene::new(2, 300);
    let changed = scene.begin_short();
    let mut now = scene.durable.clone();
    let (mut pieces, mut asked, mut came) = (0, 0, 0);
    loop {
        let done = scene.event();
        for (page, stamp) in done.read {
            came += 1;
            let is_new = changed.get(&page) == Some(&stamp);
            assert!(is_new || now[&page] == stamp, "page {page}");
        }
        if let Some(over) = done.over {
            assert_eq!(over, Ok(()));
            break;
        }
        if done.freed > 3 {
            pieces += 1;
            let page = scene.rng.below(300) * NODE;
            if !changed.contains_key(&page) && scene.store.read_page(&mut scene.world, BASE, page) == ReadStart::Reading
            {
                asked += 1;
            }
            let durable = scene.durable.clone();
            scene.cut_shows(&durable);
        }
    }
    assert!(
        pieces > 20 && came > 10,
        "{pieces} pieces, {asked} pages were asked for, {came} came"
    );
    now.extend(changed);
    scene.cut_shows(&now);
}

/// On a disk that fails now and then the checkpoint fails, and the next one has everything.
#[test]
fn nodes_given_up_on_a_failing_disk_lose_nothing() {
    let mut failures = 0;
    for seed in 0..30 {
        let mut scene = Scene::new(seed, 100);
        let mut changed = scene.begin_short();
        scene.world.disk.set_failing(30);
        let over = scene.finish();
        scene.world.disk.set_failing(0);
        scene.world.memory.set_limit(1 << 20);
        if over.is_err() {
            failures += 1;
            for stamp in changed.values_mut() {
                *stamp = 3;
            }
            let pages = scene.dirty(&changed);
            scene.begin(pages);
            assert_eq!(scene.finish(), Ok(()), "seed {seed}");
        }
        let mut all = scene.durable.clone();
        all.extend(changed);
        scene.cut_shows(&all);
    }
    assert!((3..30).contains(&failures), "{failures} of 30 failed");
}
