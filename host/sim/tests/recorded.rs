//! A recording in QEMU's format, made from a run in the simulator, replays without a failure; the
//! same recording with its flushes taken out does not.

use sim::blklog::{Log, LogError, Medium, ReplayOptions, replay};
use sim::disk::{Block, CrashDisk};
use sim::rng::Rng;
use sim::world::SimWorld;
use std::sync::Arc;
use store::{
    BLOCK, CheckpointKind, DirtyPage, Disk, DiskError, Event, FormatOptions, Frame, MountMode, ObjectRecord, Operation,
    PageFlags, Pages, QueueFull, Random, Request, Store, World,
};

const BLOCKS: u64 = 600;
const SECTOR: usize = 512;

/// A world that writes down what it is asked for.
struct Recorder {
    world: SimWorld,
    entries: Vec<u8>,
    count: u64,
}

impl Recorder {
    fn new() -> Self {
        Self {
            world: SimWorld::new(CrashDisk::new(BLOCKS, Rng::new(3)), 500, Rng::new(4)),
            entries: Vec::new(),
            count: 0,
        }
    }

    fn entry(&mut self, sector: u64, data: &[u8], flags: u64) {
        let mut head = [0; SECTOR];
        head[..8].copy_from_slice(&sector.to_le_bytes());
        head[8..16].copy_from_slice(&((data.len() / SECTOR) as u64).to_le_bytes());
        head[16..24].copy_from_slice(&flags.to_le_bytes());
        self.entries.extend_from_slice(&head);
        self.entries.extend_from_slice(data);
        self.count += 1;
    }

    fn log(&self) -> Vec<u8> {
        let mut log = vec![0; SECTOR];
        log[..8].copy_from_slice(&0x006a_7366_7773_6872_u64.to_le_bytes());
        log[8] = 1;
        log[16..24].copy_from_slice(&self.count.to_le_bytes());
        log[24..28].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        log.extend_from_slice(&self.entries);
        log
    }
}

impl Pages for Recorder {
    fn alloc(&mut self) -> Option<Frame> {
        self.world.alloc()
    }
    fn free(&mut self, frame: Frame) {
        self.world.free(frame);
    }
    fn bytes(&self, frame: Frame) -> &[u8; BLOCK] {
        self.world.bytes(frame)
    }
    fn bytes_mut(&mut self, frame: Frame) -> &mut [u8; BLOCK] {
        self.world.bytes_mut(frame)
    }
}

impl Disk for Recorder {
    fn blocks(&self) -> u64 {
        BLOCKS
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.world.submit(request)?;
        match request.operation {
            Operation::Write => {
                let data = *self.world.bytes(request.frame);
                self.entry(request.block * (BLOCK / SECTOR) as u64, &data, 0);
            }
            Operation::Flush => self.entry(0, &[], 1),
            Operation::Read => {}
        }
        Ok(())
    }
    fn complete(&mut self) -> Option<(u32, Result<(), DiskError>)> {
        self.world.complete()
    }
    fn wait(&mut self) {
        self.world.wait();
    }
}

impl Random for Recorder {
    fn next_u64(&mut self) -> u64 {
        self.world.next_u64()
    }
}

fn finish(store: &mut Store, world: &mut impl World) {
    while !store.is_idle() {
        match store.poll(world) {
            Some(Event::PageWritten { frame, .. }) => world.free(frame),
            Some(Event::CheckpointFailed { .. } | Event::SyncFailed(..) | Event::SyncNeedsCheckpoint(_)) => {
                panic!("the workload failed")
            }
            Some(_) => {}
            None if store.is_idle() => {}
            None => world.wait(),
        }
    }
}

fn dirty(world: &mut impl World, page: u64, stamp: u8) -> DirtyPage {
    DirtyPage {
        flags: PageFlags::empty(),
        ..sim::world::dirty(world, 1 << 32, page, stamp)
    }
}

fn recorded() -> (Vec<u8>, Medium) {
    let mut world = Recorder::new();
    Store::format(&mut world, &FormatOptions::default()).expect("format");
    let base: Medium = world
        .world
        .disk
        .medium()
        .iter()
        .map(|(&at, block): (&u64, &Block)| (at, Arc::clone(block)))
        .collect();
    (world.entries, world.count) = (Vec::new(), 0);
    let (mut store, _) = Store::mount(&mut world, MountMode::ReadWrite).expect("mount");
    store
        .put_object(ObjectRecord {
            base: 1 << 32,
            pages: 300,
            ..ObjectRecord::default()
        })
        .expect("put");
    for round in 0..12_u8 {
        let pages = (0..3)
            .map(|at| dirty(&mut world, u64::from(round) * 20 % 290 + at, round + 1))
            .collect();
        let kind = match round % 4 {
            1 => Some(CheckpointKind::Periodic),
            3 => Some(CheckpointKind::Generation),
            _ => None,
        };
        if let Some(kind) = kind {
            store.checkpoint_begin(&mut world, pages, kind).expect("idle");
        } else {
            store.sync_begin(&mut world, pages, &[]).expect("heap");
        }
        finish(&mut store, &mut world);
    }
    (world.log(), base)
}

const OPTIONS: ReplayOptions = ReplayOptions { seed: 9, per_epoch: 50 };

#[test]
fn a_recorded_run_survives_every_power_cut() {
    let (log, base) = recorded();
    let mut told = 0;
    let report = replay(&log, base, BLOCKS, OPTIONS, &mut |done, _| told = done).expect("a log");
    assert_eq!(report.failures, []);
    assert_eq!(told, report.epochs);
    assert!(
        report.epochs >= 16 && report.images >= 50 * report.epochs as u64,
        "{report:?}"
    );
    assert!(report.replayed > 0 && report.tails > 0, "{report:?}");
}

#[test]
fn without_its_flushes_it_does_not() {
    let (mut log, base) = recorded();
    let entries = Log::parse(&log).expect("a log").entries().len();
    let mut at = SECTOR;
    for _ in 0..entries {
        let sectors = u64::from_le_bytes(log[at + 8..at + 16].try_into().expect("eight bytes"));
        log[at + 16] = 0;
        at += SECTOR * (1 + sectors as usize);
    }
    let report = replay(&log, base, BLOCKS, OPTIONS, &mut |_, _| {}).expect("a log");
    assert!(report.failed > 0, "{report:?}");
}

#[test]
fn what_is_no_log_is_refused_and_a_cut_one_is_read_as_far_as_it_goes() {
    assert_eq!(Log::parse(&[0; 4096]).err(), Some(LogError::Foreign));
    assert_eq!(Log::parse(&[]).err(), Some(LogError::Foreign));
    let (log, _) = recorded();
    let whole = Log::parse(&log).expect("a log").entries().len();
    let cut = Log::parse(&log[..log.len() - 100]).expect("a log").entries().len();
    assert_eq!(cut + 1, whole);
}
