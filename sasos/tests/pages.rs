//! Memory: the pages of objects against a plain model.
//!
//! Objects are written, copied, cloned, cleared, resized, limited, kept and taken out of memory in any order, with
//! checkpoints beside it all. The model is a list of words, one a page. Whatever copy-on-write,
//! sharing and the disk do underneath, a page holds what was last put into it.

mod common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};
use common::{Actor, Rig};
use sasos::accounts::{AccountId, RESOURCE_LIST, Resource, limits};
use sasos::{Access, protection::apd::Apd};
use sim::seeds;

struct Thing {
    base: u64,
    pages: Vec<u64>,
    limits: Vec<Rights>,
    kept: bool,
}

struct Game {
    rig: Rig,
    actor: Actor,
    things: Vec<Thing>,
    next: u64,
}

impl Game {
    fn new(seed: u64, frames: u32, blocks: u64) -> Self {
        let mut rig = Rig::new(seed, frames, blocks);
        let actor = rig.actor(Apd::EMPTY);
        Self {
            rig,
            actor,
            things: Vec::new(),
            next: 1,
        }
    }

    fn some(&mut self, length: usize) -> usize {
        self.rig.rng.below(length as u64) as usize
    }

    fn pick(&mut self) -> (usize, usize) {
        let thing = self.some(self.things.len());
        (thing, self.some(self.things[thing].pages.len()))
    }

    fn address(&self, thing: usize, page: usize) -> u64 {
        self.things[thing].base + page as u64 * PAGE
    }

    fn create(&mut self) {
        let pages = *self.rig.rng.pick(&[1_u64, 3, 12, 60, 515]);
        let (base, _) = self.rig.call(self.actor, Call::ObjCreate, &[pages * PAGE, 5]).unwrap();
        let pages = vec![0; pages as usize];
        self.things.push(Thing {
            base,
            limits: vec![Rights::RWX; pages.len()],
            pages,
            kept: false,
        });
    }

    fn write(&mut self, thing: usize, page: usize) {
        let value = self.next;
        self.next += 1;
        let result = self.rig.store(self.actor.space, self.address(thing, page), value);
        let allowed = self.things[thing].limits[page].contains(Rights::W);
        assert_eq!(result, if allowed { Ok(()) } else { Err(Error::Protection) });
        if allowed {
            self.things[thing].pages[page] = value;
        }
    }

    fn check_page(&mut self, thing: usize, page: usize) {
        let address = self.address(thing, page);
        assert_eq!(
            self.rig.load(self.actor.space, address),
            Ok(self.things[thing].pages[page]),
            "page {address:#x}"
        );
        let execute = self.rig.touch(self.actor.space, address, Access::Execute).is_ok();
        assert_eq!(
            execute,
            self.things[thing].limits[page].contains(Rights::X),
            "execution of page {address:#x}"
        );
    }

    fn check_all(&mut self) {
        for thing in 0..self.things.len() {
            for page in 0..self.things[thing].pages.len() {
                self.check_page(thing, page);
            }
        }
        self.rig.check();
    }

    /// A range inside an object.
    fn range(&mut self) -> (usize, usize, usize) {
        let (thing, page) = self.pick();
        let most = self.things[thing].pages.len() - page;
        (thing, page, 1 + self.some(most.min(9)))
    }

    fn copy(&mut self) {
        let (from, first, count) = self.range();
        let (to, second) = self.pick();
        let arguments = [self.address(from, first), self.address(to, second), count as u64];
        let result = self.rig.call(self.actor, Call::PageCopy, &arguments);
        let target = second..second + count;
        let expected = if target.end > self.things[to].pages.len() {
            Err(Error::BadAddress)
        } else if from == to && first < target.end && second < first + count {
            Err(Error::BadArgument)
        } else if !self.things[to].limits[target.clone()]
            .iter()
            .all(|limits| limits.contains(Rights::W))
        {
            Err(Error::Protection)
        } else {
            Ok((0, 0))
        };
        assert_eq!(result, expected, "{arguments:x?}");
        if result.is_ok() {
            let copied = self.things[from].pages[first..first + count].to_vec();
            self.things[to].pages[target].copy_from_slice(&copied);
        }
    }

    fn clear(&mut self) {
        let (thing, page, count) = self.range();
        let arguments = [self.address(thing, page), count as u64, UNMAP_ZERO];
        let result = self.rig.call(self.actor, Call::PageUnMap, &arguments);
        let range = page..page + count;
        let allowed = self.things[thing].limits[range.clone()]
            .iter()
            .all(|limits| limits.contains(Rights::W));
        assert_eq!(
            result,
            if allowed { Ok((0, 0)) } else { Err(Error::Protection) },
            "{arguments:x?}"
        );
        if allowed {
            self.things[thing].pages[range].fill(0);
        }
    }

    fn clone(&mut self) {
        let thing = self.some(self.things.len());
        let extra = self.rig.rng.below(3);
        let (base, _) = self
            .rig
            .call(self.actor, Call::ObjClone, &[self.things[thing].base, extra * PAGE, 0])
            .unwrap();
        let Thing {
            mut pages, mut limits, ..
        } = Thing {
            ..copy_of(&self.things[thing])
        };
        pages.resize(pages.len() + extra as usize, 0);
        limits.resize(pages.len(), Rights::RWX);
        self.things.push(Thing {
            base,
            pages,
            limits,
            kept: false,
        });
    }

    fn resize(&mut self) {
        let thing = self.some(self.things.len());
        let pages = 1 + self.rig.rng.below(600) as usize;
        let result = self.rig.call(
            self.actor,
            Call::ObjResize,
            &[self.things[thing].base, pages as u64 * PAGE],
        );
        if result.is_ok() {
            self.things[thing].pages.resize(pages, 0);
            self.things[thing].limits.resize(pages, Rights::RWX);
        } else {
            assert_eq!(result, Err(Error::CannotGrow));
            assert!(pages > self.things[thing].pages.len());
        }
    }

    fn limit(&mut self) {
        let (thing, page, count) = self.range();
        let limits = *self
            .rig
            .rng
            .pick(&[Rights::R, Rights::RW, Rights::RX, Rights::RWX, Rights::RWX]);
        let arguments = [self.address(thing, page), count as u64, u64::from(limits.bits())];
        match self.rig.call(self.actor, Call::PageLimit, &arguments) {
            Ok(_) => self.things[thing].limits[page..page + count].fill(limits),
            Err(error) => assert_eq!(error, Error::TableFull),
        }
    }

    fn keep(&mut self) {
        let thing = self.some(self.things.len());
        self.rig
            .call(self.actor, Call::KeepObject, &[self.things[thing].base])
            .unwrap();
        self.things[thing].kept = true;
    }

    fn delete(&mut self) {
        let thing = self.some(self.things.len());
        self.rig
            .call(self.actor, Call::ObjDelete, &[self.things[thing].base])
            .unwrap();
        self.things.swap_remove(thing);
    }

    fn flush(&mut self) {
        let (thing, page, count) = self.range();
        let result = self
            .rig
            .call(self.actor, Call::PageFlush, &[self.address(thing, page), count as u64]);
        assert_eq!(
            result,
            if self.things[thing].kept {
                Ok((0, 0))
            } else {
                Err(Error::NotPersistent)
            }
        );
    }

    fn step(&mut self) {
        if self.things.is_empty() || self.things.len() < 12 && self.rig.rng.one_in(12) {
            self.create();
        }
        match self.rig.rng.below(100) {
            0..40 => {
                let (thing, page) = self.pick();
                self.write(thing, page);
            }
            40..60 => {
                let (thing, page) = self.pick();
                self.check_page(thing, page);
            }
            60..68 => self.copy(),
            68..73 => self.clear(),
            73..77 if self.things.len() < 12 => self.clone(),
            77..80 => self.resize(),
            80..83 => self.limit(),
            83..87 => self.keep(),
            87..89 => self.delete(),
            89..91 => self.flush(),
            91..93 => {
                self.server_checkpoint();
            }
            93 => while self.rig.server.reclaim(&mut self.rig.world) > 0 {},
            _ => self.rig.move_disk(),
        }
    }

    fn server_checkpoint(&mut self) {
        if self.rig.rng.one_in(2) {
            self.rig.checkpoint().unwrap();
        } else {
            self.rig.server.checkpoint_request(&mut self.rig.world);
        }
    }
}

/// Counts a failure that is one of memory.
fn short_of_memory(error: Error) -> u32 {
    assert!(matches!(error, Error::NoMemory | Error::LimitReached), "{error:?}");
    1
}

fn copy_of(thing: &Thing) -> Thing {
    Thing {
        base: thing.base,
        pages: thing.pages.clone(),
        limits: thing.limits.clone(),
        kept: thing.kept,
    }
}

#[test]
fn a_page_holds_what_was_put_into_it() {
    seeds::run(40, |seed| {
        let mut game = Game::new(seed, 20_000, 60_000);
        for step in 0..500 {
            game.step();
            if step % 100 == 99 {
                game.check_all();
            }
        }
    });
}

#[test]
fn objects_may_be_larger_than_memory() {
    seeds::run(3, |seed| {
        let mut game = Game::new(seed, 400, 8192);
        let (base, _) = game.rig.call(game.actor, Call::ObjCreate, &[1500 * PAGE, 0]).unwrap();
        game.rig.call(game.actor, Call::KeepObject, &[base]).unwrap();
        game.things.push(Thing {
            base,
            pages: vec![0; 1500],
            limits: vec![Rights::RWX; 1500],
            kept: true,
        });
        // Kept, so nobody's account: it is the disk that bounds it.
        game.rig
            .server
            .objects
            .iter()
            .for_each(|(_, object)| assert_ne!(object.base(), 0));
        for page in 0..1500 {
            game.write(0, page);
        }
        for _ in 0..1500 {
            let page = game.some(1500);
            if game.rig.rng.one_in(2) {
                game.write(0, page);
            } else {
                game.check_page(0, page);
            }
        }
        game.check_all();
    });
}

/// Clones, copies and reading back while there is never enough memory. A call that fails, fails whole.
#[test]
fn short_memory_loses_nothing() {
    let total = AtomicU32::new(0);
    seeds::run(30, |seed| {
        let mut game = Game::new(seed, 220 + (seed as u32 % 4) * 40, 20_000);
        let mut failures = 0;
        for _ in 0..2500 {
            if game.things.len() < 2 || game.things.len() < 10 && game.rig.rng.one_in(40) {
                game.create();
            }
            let (thing, page) = game.pick();
            let address = game.address(thing, page);
            match game.rig.rng.below(40) {
                0..18 => {
                    let value = game.next;
                    match game.rig.store(game.actor.space, address, value) {
                        Ok(()) => game.things[thing].pages[page] = value,
                        Err(error) => failures += short_of_memory(error),
                    }
                    game.next += 1;
                }
                18..26 => match game.rig.load(game.actor.space, address) {
                    Ok(value) => assert_eq!(value, game.things[thing].pages[page], "page {address:#x}"),
                    Err(error) => failures += short_of_memory(error),
                },
                26 | 27 if game.things.len() < 10 => {
                    match game
                        .rig
                        .call(game.actor, Call::ObjClone, &[game.things[thing].base, 0, 0])
                    {
                        Ok((base, _)) => {
                            let clone = copy_of(&game.things[thing]);
                            game.things.push(Thing {
                                base,
                                kept: false,
                                ..clone
                            });
                        }
                        Err(error) => failures += short_of_memory(error),
                    }
                }
                28 => game.keep(),
                29 => {
                    // It is gone in any case; the error says that this is not yet durable.
                    let base = game.things.swap_remove(thing).base;
                    if let Err(error) = game.rig.call(game.actor, Call::ObjDelete, &[base]) {
                        failures += short_of_memory(error);
                    }
                }
                30 => {
                    game.rig.server.checkpoint_request(&mut game.rig.world);
                }
                _ => game.rig.move_disk(),
            }
        }
        game.rig.check();
        total.fetch_add(failures, Relaxed);
    });
    assert!(total.load(Relaxed) > 0, "memory was never short");
}

#[test]
fn changes_can_be_taken_back_to_the_last_checkpoint() {
    let mut game = Game::new(1, 4000, 8192);
    let (base, _) = game.rig.call(game.actor, Call::ObjCreate, &[8 * PAGE, 0]).unwrap();
    game.rig.call(game.actor, Call::KeepObject, &[base]).unwrap();
    for page in 0..4 {
        game.rig
            .store(game.actor.space, base + page * PAGE, 100 + page)
            .unwrap();
    }
    game.rig.checkpoint().unwrap();
    for page in 0..8 {
        game.rig
            .store(game.actor.space, base + page * PAGE, 200 + page)
            .unwrap();
    }
    game.rig
        .call(game.actor, Call::PageUnMap, &[base, 8, UNMAP_REPLACE])
        .unwrap();
    for page in 0..8 {
        let expected = if page < 4 { 100 + page } else { 0 };
        assert_eq!(game.rig.load(game.actor.space, base + page * PAGE), Ok(expected));
    }
    game.rig.check();
}

#[test]
fn an_account_bounds_what_a_task_can_touch() {
    let mut rig = Rig::new(7, 4000, 4096);
    let actor = rig.actor_in(AccountId::ROOT, limits::of_frames(50));
    let space = actor.space;
    let (base, _) = rig.call(actor, Call::ObjCreate, &[1000 * PAGE, 0]).unwrap();
    let touched = (0..1000)
        .take_while(|page| rig.store(space, base + page * PAGE, 1).is_ok())
        .count();
    let tables = kcore::Machine::space_tables(&rig.world, space);
    assert_eq!(
        touched as u64,
        49 - tables,
        "and the page tables: one of the object, those of the domain"
    );
    assert_eq!(rig.store(space, base + 999 * PAGE, 1), Err(Error::LimitReached));
    assert_eq!(rig.call(actor, Call::ObjClone, &[base, 0, 0]), Err(Error::LimitReached));
    rig.check();
    rig.call(actor, Call::ObjResize, &[base, 10 * PAGE]).unwrap();
    rig.call(actor, Call::ObjClone, &[base, 0, 0]).unwrap();
    rig.check();
}

/// A page in each of many page tables: at the limit nothing is left of an access that failed, and all comes back in the end.
#[test]
fn an_account_bounds_the_page_tables_of_a_domain() {
    const GIB: u64 = 1 << 30;
    const TABLES: u64 = 40;
    let mut rig = Rig::new(8, 4000, 4096);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[TABLES * GIB, 0]).unwrap();
    rig.call(owner, Call::ObjPasswd, &[base, 5, u64::from(Rights::R.bits())])
        .unwrap();
    for table in 0..TABLES {
        rig.store(owner.space, base + table * GIB, table).unwrap();
    }
    rig.server.ledger.empty_all_hands();
    let before = rig.server.ledger.used(AccountId::ROOT, Resource::Frames);
    let free = kcore::Machine::frames_free(&rig.world);
    let poor = rig.holder(base, 5);
    let account = rig.server.tasks.get(poor.task).unwrap().account;
    let mut limits = [u64::MAX; RESOURCE_LIST.len()];
    limits[Resource::Tables as usize] = 20;
    rig.server.ledger.set_limits(account, limits);
    let touched = (0..TABLES)
        .filter(|table| rig.load(poor.space, base + table * GIB).is_ok())
        .count();
    assert!((10..20).contains(&touched), "{touched}");
    rig.check();
    rig.server.task_kill(poor.task, abi::layout::EXCEPTION_KILL);
    rig.server.finish_ends(&mut rig.world);
    rig.settle();
    rig.server.ledger.empty_all_hands();
    assert_eq!(rig.server.ledger.used(AccountId::ROOT, Resource::Frames), before);
    assert!(kcore::Machine::frames_free(&rig.world) + 8 > free);
    rig.check();
}

#[test]
fn all_frames_come_back() {
    seeds::run(10, |seed| {
        let mut game = Game::new(seed, 20_000, 60_000);
        let before = kcore::Machine::frames_free(&game.rig.world);
        for _ in 0..300 {
            game.step();
        }
        for thing in std::mem::take(&mut game.things) {
            game.rig.call(game.actor, Call::ObjDelete, &[thing.base]).unwrap();
        }
        game.rig.checkpoint().unwrap();
        game.rig.checkpoint().unwrap();
        game.rig.settle();
        assert_eq!(game.rig.server.objects.resident(), 0);
        while game.rig.server.store.shrink(&mut game.rig.world) != store::Look::Over {}
        // The frames that are left are the tables of the domain, which go with it, and the store's own.
        let left = before - kcore::Machine::frames_free(&game.rig.world);
        let tables = kcore::Machine::space_tables(&game.rig.world, game.actor.space);
        assert!(
            left <= tables + game.rig.world.taken_by_store.len() as u64,
            "{left} frames are missing"
        );
        game.rig.check();
    });
}

/// A page comes from the disk with the limits that it has then, not with those that it had when it was asked for.
#[test]
fn limits_that_are_set_while_a_page_is_read_hold() {
    for (limits, refused) in [(Rights::RX, Access::Write), (Rights::RW, Access::Execute)] {
        let mut rig = Rig::new(9, 4000, 8192);
        let actor = rig.actor(Apd::EMPTY);
        let base = rig.kept(actor, 4, 0);
        rig.store(actor.space, base, 5).unwrap();
        rig.put_away();
        let asked = rig.server.touch(&mut rig.world, actor.space, base, Access::Read);
        assert!(matches!(asked, Err(sasos::Stop::Wait(_))), "{asked:?}");
        let set = rig.begin(
            actor,
            Call::PageLimit,
            &[base, 1, u64::from(limits.bits())],
            kcore::thread::Resumed::First,
        );
        assert_eq!(set, Some(Ok((0, 0))), "the page is still on its way");
        assert_eq!(rig.load(actor.space, base), Ok(5));
        assert_eq!(rig.touch(actor.space, base, refused), Err(Error::Protection));
        rig.check();
    }
}
