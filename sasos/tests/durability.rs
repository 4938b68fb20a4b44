//! The content of the disk: kept objects, flushes, revocations and deletions across power cuts.
//!
//! The model remembers for every page all values since the last one that was acknowledged as
//! durable. After a crash each page must hold one of them, each object whose keeping was
//! acknowledged must be there with its passwords, each whose deletion was must not.

mod common;

use abi::{
    Call, Error, Rights,
    address::{PAGE, slot_of},
    layout::{Capability, UNMAP_REPLACE},
};
use common::{Actor, Order, Rig};
use kcore::{thread::Resumed, wait::Key};
use sasos::{Access, Event, Outcome, durability::checkpoint::PERIOD_NS, protection::apd::Apd};
use sim::seeds;
use store::{MountMode, Store};

/// A kept object.
struct Thing {
    base: u64,
    password: u64,
    /// Whether its existence was acknowledged as durable.
    certain: bool,
    /// For each page all values it may hold; the first is the last that was acknowledged, the last
    /// is what it holds now.
    pages: Vec<Vec<u64>>,
    /// Sizes that it may have, in the same way.
    sizes: Vec<usize>,
}

impl Thing {
    fn now(&self, page: usize) -> u64 {
        *self.pages[page].last().unwrap()
    }

    fn acknowledge(&mut self, page: usize) {
        let now = self.now(page);
        self.pages[page] = vec![now];
    }

    fn acknowledge_all(&mut self) {
        (0..self.pages.len()).for_each(|page| self.acknowledge(page));
        self.sizes = vec![self.pages.len()];
        self.certain = true;
    }
}

struct Game {
    rig: Rig,
    actor: Actor,
    list: u64,
    things: Vec<Thing>,
    /// Objects whose deletion was begun and not acknowledged: they may be there or not.
    doubtful: Vec<u64>,
    deleted: Vec<u64>,
    /// Addresses in use before the last crash.
    next: u64,
}

impl Game {
    fn new(seed: u64) -> Self {
        let rig = Rig::new(seed, 8000, 16_384);
        Self::with(rig, Vec::new(), Vec::new())
    }

    /// A task whose Clist holds the capabilities of all objects.
    fn with(mut rig: Rig, things: Vec<Thing>, deleted: Vec<u64>) -> Self {
        let actor = rig.actor(Apd::EMPTY);
        let (list, _) = rig.call(actor, Call::ObjCreate, &[4 * PAGE, 0]).unwrap();
        let mut game = Self {
            rig,
            actor,
            list,
            things,
            doubtful: Vec::new(),
            deleted,
            next: 1,
        };
        game.write_list();
        game.rig.call(actor, Call::ApdInsert, &[0, list]).unwrap();
        game
    }

    fn write_list(&mut self) {
        let held: Vec<_> = self
            .things
            .iter()
            .map(|thing| Capability {
                address: thing.base,
                password: thing.password,
            })
            .collect();
        self.rig.write_clist(self.actor.space, self.list, &held, Order::Sorted);
    }

    fn some(&mut self, length: usize) -> usize {
        self.rig.rng.below(length as u64) as usize
    }

    fn create(&mut self) {
        let pages = 1 + self.some(20);
        let (base, password) = self
            .rig
            .call(self.actor, Call::ObjCreate, &[pages as u64 * PAGE, 0])
            .unwrap();
        assert!(!self.deleted.contains(&base) || !self.rig.server.store.awaits_deletion(base));
        self.deleted.retain(|&gone| gone != base);
        self.rig.call(self.actor, Call::KeepObject, &[base]).unwrap();
        self.things.push(Thing {
            base,
            password,
            certain: false,
            pages: vec![vec![0]; pages],
            sizes: vec![pages],
        });
        self.write_list();
        self.rig.call(self.actor, Call::ApdFlush, &[]).unwrap();
    }

    fn write(&mut self) {
        let thing = self.some(self.things.len());
        let page = self.some(self.things[thing].pages.len());
        let value = self.next;
        self.next += 1;
        let address = self.things[thing].base + page as u64 * PAGE;
        self.rig.store(self.actor.space, address, value).unwrap();
        self.things[thing].pages[page].push(value);
    }

    fn flush(&mut self) {
        let thing = self.some(self.things.len());
        let page = self.some(self.things[thing].pages.len());
        let count = 1 + self.some(self.things[thing].pages.len() - page);
        let address = self.things[thing].base + page as u64 * PAGE;
        let arguments = [address, count as u64];
        if self.rig.rng.one_in(6) {
            // It is begun, and the power may fail before it is done.
            let _ = self.rig.begin(self.actor, Call::PageFlush, &arguments, Resumed::First);
            return;
        }
        assert_eq!(self.rig.call(self.actor, Call::PageFlush, &arguments), Ok((0, 0)));
        let thing = &mut self.things[thing];
        (page..page + count).for_each(|page| thing.acknowledge(page));
        thing.sizes = vec![thing.pages.len()];
        thing.certain = true;
    }

    fn checkpoint(&mut self) {
        self.rig.checkpoint().unwrap();
        self.things.iter_mut().for_each(Thing::acknowledge_all);
        self.doubtful.clear();
    }

    fn passwd(&mut self) {
        let thing = self.some(self.things.len());
        let Thing { base, password, .. } = self.things[thing];
        let fresh = self.rig.rng.next_u64() | 1;
        self.rig
            .call(
                self.actor,
                Call::ObjPasswd,
                &[base, fresh, u64::from(Rights::OWNER.bits())],
            )
            .unwrap();
        self.things[thing].password = fresh;
        self.write_list();
        assert_eq!(
            self.rig.call(self.actor, Call::ObjPasswd, &[base, password, 0]),
            Ok((password, 0))
        );
        // Durable with the call, and the object with it.
        self.things[thing].certain = true;
        self.things[thing].sizes = vec![self.things[thing].pages.len()];
        assert!(self.rig.touch(self.actor.space, base, Access::Write).is_ok());
    }

    fn delete(&mut self) {
        let thing = self.some(self.things.len());
        let base = self.things[thing].base;
        if self.rig.rng.one_in(4) {
            let begun = self.rig.begin(self.actor, Call::ObjDelete, &[base], Resumed::First);
            assert_ne!(begun, Some(Err(Error::Protection)));
            self.doubtful.push(base);
        } else {
            self.rig.call(self.actor, Call::ObjDelete, &[base]).unwrap();
            self.deleted.push(base);
        }
        self.things.swap_remove(thing);
        self.write_list();
    }

    fn resize(&mut self) {
        let thing = self.some(self.things.len());
        let pages = 1 + self.some(30);
        let base = self.things[thing].base;
        self.rig
            .call(self.actor, Call::ObjResize, &[base, pages as u64 * PAGE])
            .unwrap();
        let thing = &mut self.things[thing];
        // A page that goes and comes again is zero now, and may be anything it was after a crash.
        for page in pages..thing.pages.len() {
            thing.pages[page].push(0);
        }
        let before = core::mem::take(&mut thing.pages);
        let mut after = before;
        if after.len() < pages {
            after.resize(pages, vec![0]);
        } else {
            after.truncate(pages);
        }
        thing.pages = after;
        thing.sizes.push(pages);
    }

    fn step(&mut self) {
        if self.things.is_empty() || self.things.len() < 8 && self.rig.rng.one_in(10) {
            self.create();
        }
        match self.rig.rng.below(100) {
            0..60 => self.write(),
            60..70 => self.flush(),
            70..73 => self.checkpoint(),
            73..76 => {
                self.rig.server.checkpoint_request(&mut self.rig.world);
            }
            76..79 => self.passwd(),
            79..81 => self.delete(),
            _ => self.rig.move_disk(),
        }
    }

    /// The power fails. The objects that come back are checked, and the game goes on with it.
    fn crash(self) -> Self {
        let Self {
            rig,
            mut things,
            doubtful,
            deleted,
            next,
            ..
        } = self;
        let (rig, _) = rig.crash();
        things.retain(|thing| thing.certain || rig.server.store.object(thing.base).is_some());
        let mut game = Self::with(rig, things, deleted);
        for &base in &game.deleted {
            assert!(game.rig.server.store.object(base).is_none(), "{base:#x} was deleted");
        }
        game.check_recovered();
        // An address at which something stands is not issued again.
        let (base, _) = game.rig.call(game.actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        for fresh in [base, game.list] {
            let has_row = game
                .rig
                .server
                .store
                .objects()
                .any(|row| slot_of(row.base) == slot_of(fresh));
            assert!(!has_row, "{fresh:#x}");
        }
        let _ = doubtful;
        game.next = next;
        game
    }

    fn check_recovered(&mut self) {
        for index in 0..self.things.len() {
            let base = self.things[index].base;
            let size = self.rig.server.store.object(base).map(|record| record.pages as usize);
            let Some(size) = size else {
                panic!("{base:#x} was durable and is gone")
            };
            assert!(self.things[index].sizes.contains(&size), "{base:#x} has {size} pages");
            self.things[index].pages.resize(size, vec![0]);
            for page in 0..size {
                let value = self
                    .rig
                    .load(self.actor.space, base + page as u64 * PAGE)
                    .expect("the password is durable");
                let possible = &mut self.things[index].pages[page];
                assert!(
                    possible.contains(&value),
                    "page {page} of {base:#x} is {value}, not one of {possible:?}"
                );
                *possible = vec![value];
            }
            self.things[index].acknowledge_all();
        }
        self.rig.check();
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    seeds::run(60, |seed| {
        let mut game = Game::new(seed);
        for _ in 0..4 {
            let steps = 20 + game.some(200);
            for _ in 0..steps {
                game.step();
            }
            game.rig.check();
            game = game.crash();
        }
    });
}

/// Without syncs a crash leads back to one moment: no page is newer than another.
#[test]
fn a_checkpoint_is_one_moment() {
    seeds::run(40, |seed| {
        let mut game = Game::new(seed);
        let (base, password) = game.rig.call(game.actor, Call::ObjCreate, &[12 * PAGE, 0]).unwrap();
        game.rig.call(game.actor, Call::KeepObject, &[base]).unwrap();
        game.rig.checkpoint().unwrap();
        game.things.push(Thing {
            base,
            password,
            certain: true,
            pages: vec![vec![0]; 12],
            sizes: vec![12],
        });
        game.write_list();
        let mut writes = Vec::new();
        let steps = 100 + game.some(300);
        for _ in 0..steps {
            if game.rig.rng.one_in(3) {
                game.rig.move_disk();
            } else if game.rig.rng.one_in(20) {
                game.rig.server.checkpoint_request(&mut game.rig.world);
            } else {
                let page = game.some(12);
                writes.push(page);
                game.rig
                    .store(game.actor.space, base + page as u64 * PAGE, writes.len() as u64)
                    .unwrap();
            }
        }
        let Game { rig, things, .. } = game;
        let (rig, _) = rig.crash();
        let mut game = Game::with(rig, things, Vec::new());
        let found: Vec<u64> = (0..12)
            .map(|page| game.rig.load(game.actor.space, base + page * PAGE).unwrap())
            .collect();
        let moment = *found.iter().max().unwrap() as usize;
        let mut expected = vec![0; 12];
        for (index, &page) in writes[..moment].iter().enumerate() {
            expected[page] = index as u64 + 1;
        }
        assert_eq!(found, expected);
    });
}

#[test]
fn kept_objects_come_back_whole() {
    seeds::run(10, |seed| {
        let mut game = Game::new(seed);
        for _ in 0..150 {
            game.step();
            if game.rig.rng.one_in(10) && !game.things.is_empty() {
                game.resize();
            }
        }
        game.rig.settle();
        game.checkpoint();
        let limited = game.things[0].base;
        game.rig
            .call(game.actor, Call::PageLimit, &[limited, 1, u64::from(Rights::RX.bits())])
            .unwrap();
        game.checkpoint();
        let mut game = game.crash();
        assert_eq!(
            game.rig.touch(game.actor.space, limited, Access::Write),
            Err(Error::Protection)
        );
        assert!(game.rig.touch(game.actor.space, limited, Access::Execute).is_ok());
        // A clone of what has just come from the disk has the same content and limits.
        let thing = &game.things[0];
        let values: Vec<u64> = (0..thing.pages.len()).map(|page| thing.now(page)).collect();
        let (clone, _) = game.rig.call(game.actor, Call::ObjClone, &[limited, PAGE, 0]).unwrap();
        for (page, value) in values.iter().enumerate() {
            assert_eq!(game.rig.load(game.actor.space, clone + page as u64 * PAGE), Ok(*value));
        }
        assert_eq!(
            game.rig.touch(game.actor.space, clone, Access::Write),
            Err(Error::Protection)
        );
        assert!(
            game.rig
                .touch(game.actor.space, clone + values.len() as u64 * PAGE, Access::Write)
                .is_ok()
        );
        game.rig.check();
    });
}

/// Pages that come from the disk get their places in the table of slots, wherever in the object they are.
#[test]
fn far_pages_come_back_after_a_start() {
    let mut rig = Rig::new(1, 4000, 4000);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 20_000, 77);
    let far = [0, 511, 512, 513, 1024, 7000, 19_999].map(|page| base + page * PAGE);
    for address in far {
        rig.store(actor.space, address, address).expect("it is written");
    }
    rig.checkpoint().expect("a checkpoint");
    for first in far {
        (rig, _) = rig.crash();
        let actor = rig.holder(base, 77);
        for address in [first].into_iter().chain(far) {
            assert_eq!(rig.load(actor.space, address), Ok(address));
        }
        rig.check();
    }
}

#[test]
fn a_full_disk_stops_the_writer_and_loses_nothing() {
    seeds::run(10, |seed| {
        let mut rig = Rig::new(seed, 8000, 600);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 2000, 9);
        let mut written = 0;
        let error = loop {
            match rig.store(actor.space, base + written * PAGE, written + 1) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            if rig.rng.one_in(50) {
                rig.checkpoint().unwrap();
            }
        };
        assert_eq!(error, Error::DiskFull);
        assert!(written > 100, "only {written} pages fit");
        // The written pages stay, can be made durable, and go on being read.
        rig.checkpoint().unwrap();
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 9);
        for page in 0..written {
            assert_eq!(rig.load(actor.space, base + page * PAGE), Ok(page + 1));
        }
        // Deleting makes room.
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        for _ in 0..3 {
            rig.checkpoint().unwrap();
        }
        let base = rig.kept(actor, 100, 9);
        for page in 0..100 {
            rig.store(actor.space, base + page * PAGE, 7).unwrap();
        }
        rig.checkpoint().unwrap();
        rig.check();
    });
}

/// A directory and a Clist are changed on a full disk again and again: what they take from the pool comes back with two checkpoints.
#[test]
fn stored_pages_are_rewritten_on_a_full_disk() {
    seeds::run(10, |seed| {
        let mut rig = Rig::new(seed, 8000, 600);
        let actor = rig.actor(Apd::EMPTY);
        let names = rig.kept(actor, 40, 9);
        for page in 0..40 {
            rig.store(actor.space, names + page * PAGE, page).unwrap();
        }
        rig.checkpoint().unwrap();
        let base = rig.kept(actor, 2000, 9);
        let full = (0..2000).find(|page| rig.store(actor.space, base + page * PAGE, 1).is_err());
        assert!(full.is_some());
        for round in 0..5 {
            for page in 0..40 {
                let mut written = Err(Error::DiskFull);
                for _ in 0..3 {
                    written = rig.store(actor.space, names + page * PAGE, page + round);
                    if written.is_ok() {
                        break;
                    }
                    rig.checkpoint().unwrap();
                }
                assert_eq!(written, Ok(()), "round {round}, page {page}");
            }
        }
        rig.call(actor, Call::ObjDelete, &[base]).unwrap();
        rig.check();
    });
}

/// The objects that the system starts from stay, whatever the rights.
#[test]
fn system_objects_are_not_deleted() {
    for base in abi::address::system_objects() {
        let mut rig = Rig::new(3, 8000, 2000);
        let record = store::ObjectRecord {
            base,
            pages: 1,
            flags: abi::layout::OBJECT_PERSISTENT,
            capabilities: vec![(9, Rights::OWNER.bits())],
            ..store::ObjectRecord::default()
        };
        rig.server.store.put_object(record).unwrap();
        let actor = rig.holder(base, 9);
        for call in [Call::ObjDelete, Call::ObjRetire] {
            assert_eq!(rig.call(actor, call, &[base]), Err(Error::InUse));
        }
        let stranger = rig.actor(Apd::EMPTY);
        assert_eq!(rig.call(stranger, Call::ObjDelete, &[base]), Err(Error::Protection));
        assert!(rig.server.store.object(base).is_some());
    }
}

#[test]
fn a_damaged_page_is_reported_and_the_others_are_read() {
    let mut rig = Rig::new(3, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 8, 9);
    for page in 0..8 {
        rig.store(actor.space, base + page * PAGE, 0x5151_0000 + page).unwrap();
    }
    // A second without changes later it is proved that they were there: what is missing of the last record may have been cut off.
    rig.checkpoint().unwrap();
    rig.world.kernel.hardware.now_ns += 2 * PERIOD_NS;
    rig.server.handle(&mut rig.world, Event::Poll);
    rig.settle();
    let mark = 0x5151_0003_u64.to_le_bytes();
    let block = rig
        .world
        .disk
        .medium()
        .iter()
        .find(|(_, data)| data[..8] == mark)
        .map(|(&block, _)| block)
        .unwrap();
    let mut rotten = *rig.world.disk.medium()[&block];
    rotten[100] ^= 1;
    rig.world.disk.medium_mut().insert(block, std::sync::Arc::new(rotten));
    let (mut rig, _) = rig.crash();
    let actor = rig.holder(base, 9);
    for _ in 0..2 {
        for page in 0..8 {
            let expected = if page == 3 {
                Err(Error::DiskError)
            } else {
                Ok(0x5151_0000 + page)
            };
            assert_eq!(rig.load(actor.space, base + page * PAGE), expected);
        }
    }
    assert_eq!(rig.call(actor, Call::ObjClone, &[base, 0, 0]), Err(Error::DiskError));
    // Clearing it is a way out.
    rig.call(actor, Call::PageUnMap, &[base + 3 * PAGE, 1, 0]).unwrap();
    assert_eq!(rig.load(actor.space, base + 3 * PAGE), Ok(0));
    rig.check();
}

#[test]
fn a_failing_disk_is_an_error_of_the_call_and_not_the_end() {
    seeds::run(20, |seed| {
        let mut rig = Rig::new(seed, 4000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 8, 9);
        let mut failures = 0;
        let mut durable = false;
        let mut values = [0; 8];
        for round in 1..60 {
            rig.world.disk.set_failing(if round % 20 < 10 { 4 } else { 0 });
            let page = rig.rng.below(8);
            rig.store(actor.space, base + page * PAGE, round).unwrap();
            values[page as usize] = round;
            match rig.call(actor, Call::PageFlush, &[base, 8]) {
                Ok(_) => durable = true,
                Err(Error::DiskError) => {
                    durable = false;
                    failures += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
            if durable && rig.rng.one_in(8) {
                break;
            }
        }
        rig.world.disk.set_failing(0);
        assert!(failures > 0 || durable);
        if !durable {
            rig.call(actor, Call::PageFlush, &[base, 8]).unwrap();
        }
        rig.check();
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 9);
        for (page, value) in values.into_iter().enumerate() {
            assert_eq!(
                rig.load(actor.space, base + page as u64 * PAGE),
                Ok(value),
                "page {page}"
            );
        }
        let mut findings = 0;
        rig.settle();
        let (store, _) = Store::mount(&mut rig.world, MountMode::ReadOnly).unwrap();
        store.verify(&mut rig.world, &mut |_| findings += 1).unwrap();
        assert_eq!(findings, 0);
    });
}

/// A disk that takes no writes: what was to be stable is not, and the caller hears of it.
/// A page that a failed checkpoint gives back may have been cleared meanwhile, and read again as zero: that one need not be written, and has no block.
#[test]
fn what_was_cleared_during_a_checkpoint_that_fails_stays_clear() {
    for reads in [false, true] {
        let mut rig = Rig::new(3, 4000, 4096);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 8, 9);
        rig.store(actor.space, base, 5).unwrap();
        rig.world.disk.set_failing(1);
        let number = rig.server.checkpoint_request(&mut rig.world);
        rig.call(actor, Call::PageUnMap, &[base, 1, 0]).unwrap();
        if reads {
            assert_eq!(rig.load(actor.space, base), Ok(0));
        }
        assert_eq!(rig.server.checkpoint_reached(number), None);
        while rig.server.checkpoint_reached(number).is_none() {
            rig.move_disk();
        }
        rig.settle();
        assert_eq!(rig.server.checkpoint_reached(number), Some(Err(Error::DiskError)));
        rig.check();
        rig.world.disk.set_failing(0);
        rig.checkpoint().unwrap();
        assert_eq!(rig.load(actor.space, base), Ok(0));
        rig.check();
    }
}

#[test]
fn a_flush_to_a_disk_that_is_only_read_is_an_error() {
    let mut rig = Rig::new(12, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let base = rig.kept(actor, 4, 9);
    rig.store(actor.space, base, 5).unwrap();
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    let (store, report) = Store::mount(&mut rig.world, MountMode::ReadOnly).unwrap();
    rig.server = sasos::Server::new(&mut rig.world, store, &report).unwrap();
    let actor = rig.holder(base, 9);
    assert_eq!(rig.load(actor.space, base), Ok(5));
    rig.store(actor.space, base, 6).unwrap();
    assert_eq!(rig.call(actor, Call::PageFlush, &[base, 1]), Err(Error::DiskError));
    rig.check();
}

#[test]
fn no_address_is_issued_twice_and_each_task_gets_a_part_of_them() {
    let mut rig = Rig::new(11, 4000, 4096);
    let actor = rig.actor(Apd::EMPTY);
    let mut issued = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let base = rig.kept(actor, 1, 0);
        assert!(issued.insert(slot_of(base)));
    }
    rig.checkpoint().unwrap();
    let (mut rig, _) = rig.crash();
    let actor = rig.actor(Apd::EMPTY);
    for _ in 0..3000 {
        let (base, _) = rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
        assert!(issued.insert(slot_of(base)), "{base:#x} is issued again");
    }
    assert_eq!(rig.call(actor, Call::ObjCreate, &[u64::MAX, 0]), Err(Error::NoMemory));
    assert_eq!(rig.call(actor, Call::ObjCreate, &[1 << 45, 0]), Err(Error::NoMemory));
    // Addresses are bounded for each task, and for each object.
    let mut large = 0;
    while let Ok((base, _)) = rig.call(actor, Call::ObjCreate, &[1 << 37, 0]) {
        assert!(issued.insert(slot_of(base)));
        large += 1;
    }
    assert_eq!(large, 15);
    let other = rig.actor(Apd::EMPTY);
    rig.call(other, Call::ObjCreate, &[1 << 37, 0]).unwrap();
    assert_eq!(rig.call(actor, Call::ObjCreate, &[0, 0]), Err(Error::BadArgument));
    rig.check();
}

/// A thread that waits for a sync is told that it failed, however many others have failed before it looks.
#[test]
fn a_failure_that_was_long_ago_is_not_success() {
    let mut rig = Rig::new(12, 4000, 8192);
    let [late, busy] = [(); 2].map(|()| rig.actor(Apd::EMPTY));
    let [patient, other] = [late, busy].map(|actor| rig.kept(actor, 1, 0));
    rig.checkpoint().unwrap();
    rig.world.disk.set_failing(1);
    rig.store(late.space, patient, 1).unwrap();
    let waits = rig.begin(late, Call::PageFlush, &[patient, 1], Resumed::First);
    assert_eq!(waits, None);
    for round in 0..300 {
        rig.store(busy.space, other, round).unwrap();
        assert_eq!(rig.call(busy, Call::PageFlush, &[other, 1]), Err(Error::DiskError));
    }
    let told = rig.begin(late, Call::PageFlush, &[patient, 1], Resumed::Woken);
    assert_eq!(told, Some(Err(Error::DiskError)));
    // A sync that has failed is written as soon as the disk works.
    rig.world.disk.set_failing(0);
    rig.call(late, Call::PageFlush, &[patient, 1]).unwrap();
    rig.call(busy, Call::PageFlush, &[other, 1]).unwrap();
    rig.check();
}

/// A checkpoint writes a page and fails; the change is dropped. The page is as the last one that went well has it, and what a flush says is durable is.
#[test]
fn a_page_that_is_dropped_behind_a_failure_is_what_the_disk_has() {
    for failing in 1..12 {
        let mut rig = Rig::new(15, 4000, 8192);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 2, 7);
        rig.store(actor.space, base, 60).unwrap();
        rig.checkpoint().unwrap();
        rig.store(actor.space, base, 73).unwrap();
        rig.world.disk.set_failing(failing);
        let failed = rig.checkpoint().is_err();
        rig.world.disk.set_failing(0);
        let drop = [base, 2, UNMAP_REPLACE];
        let dropped = rig.call(actor, Call::PageUnMap, &drop);
        assert_eq!(
            dropped,
            if failed { Err(Error::DiskError) } else { Ok((0, 0)) },
            "{failing}"
        );
        if failed {
            // It can be done once a checkpoint has gone well, and is nothing then.
            rig.checkpoint().unwrap();
            rig.call(actor, Call::PageUnMap, &drop).unwrap();
        }
        let found = rig.load(actor.space, base);
        assert_eq!(found, Ok(73), "{failing}");
        rig.call(actor, Call::PageFlush, &[base, 2]).unwrap();
        let (mut rig, _) = rig.crash();
        let actor = rig.holder(base, 7);
        assert_eq!(rig.load(actor.space, base), found, "{failing}");
    }
}

/// A revocation is in its middle when another thread flushes the object: what the flush says is durable has the new passwords.
#[test]
fn a_flush_between_the_pieces_of_a_revocation_is_durable() {
    for seed in 0..8 {
        let mut rig = Rig::new(seed, 16_000, 4096);
        let maker = rig.actor(Apd::EMPTY);
        let base = rig.kept(maker, 4, 7);
        let owner = rig.holder(base, 7);
        let other = rig.sibling(owner);
        rig.call(owner, Call::ObjPasswd, &[base, 5, u64::from(Rights::R.bits())])
            .unwrap();
        for _ in 0..60 {
            let user = rig.holder(base, 5);
            rig.load(user.space, base).unwrap();
        }
        rig.checkpoint().unwrap();
        rig.settle();
        let begun = rig.begin(owner, Call::ObjPasswd, &[base, 5, 0], Resumed::First);
        assert_eq!(begun, None, "it goes in pieces");
        rig.call(other, Call::PageFlush, &[base, 4]).unwrap();
        let (mut rig, _) = rig.crash();
        let [owner, user] = [7, 5].map(|password| rig.holder(base, password));
        assert_eq!(rig.load(owner.space, base), Ok(0));
        assert_eq!(rig.load(user.space, base), Err(Error::Protection), "seed {seed}");
    }
}

/// Two threads flush pages of one object, each its own. The second one waits for the first one's sync, and not for its next one as well.
#[test]
fn who_has_waited_for_a_flush_of_others_is_not_passed_again() {
    let mut rig = Rig::new(30, 4000, 4096);
    let one = rig.actor(Apd::EMPTY);
    let other = rig.sibling(one);
    let (base, _) = rig.call(one, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
    rig.call(one, Call::KeepObject, &[base]).unwrap();
    rig.checkpoint().unwrap();
    rig.store(other.space, base + PAGE, 7).unwrap();
    let flush = |rig: &mut Rig, actor, page, resumed| {
        rig.event(actor, Call::PageFlush, [base + page * PAGE, 1, 0, 0, 0, 0], resumed)
    };
    let is_sync = |outcome: &Outcome| matches!(outcome, Outcome::Block(Key::Sync(_), _));
    for round in 0..2 {
        rig.store(one.space, base, round).unwrap();
        let outcome = flush(&mut rig, one, 0, Resumed::First);
        assert!(is_sync(&outcome), "{outcome:?}");
        let resumed = if round == 0 { Resumed::First } else { Resumed::Woken };
        let outcome = flush(&mut rig, other, 1, resumed);
        let waits_for_sync = is_sync(&outcome);
        assert_eq!(waits_for_sync, round == 0, "{outcome:?}");
        rig.settle();
        assert_eq!(flush(&mut rig, one, 0, Resumed::Woken), Outcome::Return(Ok((0, 0))));
    }
    let outcome = flush(&mut rig, other, 1, Resumed::Woken);
    assert_eq!(outcome, Outcome::Return(Ok((0, 0))));
    rig.check();
}
