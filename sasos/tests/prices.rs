//! A table of charges. Fixed loads make calls, touch memory, end tasks and poll, and the server counts what it charges for each of them. A step that costs
//! more or less than before changes a line of the table, and so does one that is not charged any more.
//!
//! Only builds with assertions count. The table is `golden/prices.txt`. With `GOND_BLESS=1` it is written anew; the commit explains each line that
//! changes.

#![cfg(debug_assertions)]

mod common;

use std::fmt::Write as _;

use abi::{
    Call, Rights,
    address::{PAGE, SLOT},
    layout::{
        Capability, PD_EMPTY, PD_MERGE, TOPIC_DOMAIN, TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_STORE, TOPIC_THREAD,
        UNMAP_REPLACE, UNMAP_ZERO,
    },
};
use common::{Actor, Order, Rig};
use kcore::{outside::Remote, thread::Resumed, wait::Key};
use sasos::{
    Access, Event, Outcome,
    accounts::{AccountId, UNLIMITED},
    procedures::pdx::CALLEES_MAX,
    protection::apd::Apd,
};

const GOLDEN: &str = "tests/golden/prices.txt";
/// Events after which a load counts as endless.
const EVENTS_MOST: u64 = 20_000;

/// A machine, and what its events are charged.
struct Book {
    rig: Rig,
    /// A line for each entry: what it is, the events that it took, and what they were charged together.
    lines: Vec<(String, u64, u64)>,
}

impl Book {
    fn new(seed: u64, frames: u32, price: u64) -> Self {
        let mut rig = Rig::new(seed, frames, 40_000);
        rig.server.price_calls(price);
        Self { rig, lines: Vec::new() }
    }

    fn actor(&mut self) -> Actor {
        self.rig.actor_in(AccountId::ROOT, UNLIMITED)
    }

    /// Makes a step again and again until it is over, and enters what it is charged. Between two events the disk moves if the step says so.
    fn enter(&mut self, what: &str, mut step: impl FnMut(&mut Rig, bool) -> Goes) {
        let (mut events, before) = (0, self.rig.server.charged());
        loop {
            let goes = step(&mut self.rig, events == 0);
            events += 1;
            match goes {
                Goes::Over => break,
                Goes::On => {}
                Goes::Waits => self.rig.move_disk(),
                Goes::WaitsForCheckpoint => self.rig.settle(),
            }
            assert!(events < EVENTS_MOST, "{what} never ends");
        }
        let charged = self.rig.server.charged() - before;
        self.lines.push((what.into(), events, charged));
    }

    /// A call, and its first result, or 0 if it fails.
    fn call(&mut self, what: &str, actor: Actor, call: Call, arguments: &[u64]) -> u64 {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let (mut value, mut failed) = (0, String::new());
        self.enter(what, |rig, first| {
            let resumed = if first { Resumed::First } else { Resumed::Woken };
            match rig.event(actor, call, all, resumed) {
                Outcome::Return(result) => {
                    match result {
                        Ok(values) => value = values.0,
                        Err(error) => failed = format!(" {error:?}"),
                    }
                    Goes::Over
                }
                Outcome::Block(Key::Checkpoint, _) => Goes::WaitsForCheckpoint,
                Outcome::Block(..) => Goes::Waits,
                Outcome::Again => Goes::On,
                _ => Goes::Over,
            }
        });
        if let Some(line) = self.lines.last_mut() {
            line.0 += &failed;
        }
        value
    }

    /// Faults of a thread, until the memory is there.
    fn touch(&mut self, what: &str, actor: Actor, address: u64, access: Access) {
        let fault = Event::Fault {
            thread: actor.thread,
            address,
            access,
        };
        self.enter(what, |rig, _| match rig.server.handle(&mut rig.world, fault) {
            Outcome::Resume => Goes::Over,
            Outcome::Again => Goes::On,
            Outcome::Block(..) => Goes::Waits,
            other => panic!("{other:?}"),
        });
    }

    /// Polls, until nothing is left that needs them, and the disk has come to rest.
    fn polls(&mut self, what: &str) {
        self.enter(what, |rig, _| {
            let moved = rig.world.step_disk();
            rig.world.kernel.hardware.now_ns += 1_000_000;
            rig.server.handle(&mut rig.world, Event::Poll);
            if moved || rig.world.disk.under_way() > 0 || rig.server.is_unfinished() {
                Goes::On
            } else {
                Goes::Over
            }
        });
        self.rig.check();
    }
}

enum Goes {
    Over,
    On,
    Waits,
    /// Until a checkpoint is over, and nothing wakes it before.
    WaitsForCheckpoint,
}

const RW: u64 = 3;

/// Objects: made, touched, kept, changed, copied, written and deleted, small and large.
fn objects(book: &mut Book) {
    let actor = book.actor();
    for (size, pages, slots) in [("two pages", 2, 1), ("300 slots", 300 * (SLOT / PAGE), 300)] {
        let base = book.call(
            &format!("ObjCreate, {size}"),
            actor,
            Call::ObjCreate,
            &[pages * PAGE, 7],
        );
        for slot in [0, slots - 1] {
            book.touch(
                &format!("a first write, {size}"),
                actor,
                base + slot * SLOT,
                Access::Write,
            );
        }
        book.touch(&format!("a second read, {size}"), actor, base, Access::Read);
        book.call(&format!("KeepObject, {size}"), actor, Call::KeepObject, &[base]);
        book.call(
            &format!("PageFlush of a page, {size}"),
            actor,
            Call::PageFlush,
            &[base, 1],
        );
        book.call("ObjInfo", actor, Call::ObjInfo, &[base, 0, base, PAGE]);
        book.call(
            &format!("ObjResize to half, {size}"),
            actor,
            Call::ObjResize,
            &[base, pages.div_ceil(2) * PAGE],
        );
        book.polls(&format!("what was cut off, {size}"));
        book.call(
            &format!("ObjResize back, {size}"),
            actor,
            Call::ObjResize,
            &[base, pages * PAGE],
        );
        let clone = book.call(&format!("ObjClone, {size}"), actor, Call::ObjClone, &[base, 0, 0]);
        if clone != 0 {
            book.call(&format!("ObjRetire, {size}"), actor, Call::ObjRetire, &[clone]);
        }
        book.call(&format!("ObjDelete, {size}"), actor, Call::ObjDelete, &[base]);
        book.polls(&format!("its end, {size}"));
    }
    many_pages(book, actor);
    passwords(book, actor);
}

/// Ranges of very many pages.
fn many_pages(book: &mut Book, actor: Actor) {
    const PAGES: u64 = 700;
    for kept in [false, true] {
        let kind = if kept { "kept" } else { "transient" };
        let [from, to] = [0; 2].map(|_| {
            let (base, _) = book.rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
            if kept {
                book.rig.call(actor, Call::KeepObject, &[base]).unwrap();
            }
            base
        });
        for page in (0..PAGES).step_by(2) {
            book.rig.store(actor.space, from + page * PAGE, page).unwrap();
        }
        book.call(&format!("PageCopy, {kind}"), actor, Call::PageCopy, &[from, to, PAGES]);
        book.call(
            &format!("ObjClone of pages, {kind}"),
            actor,
            Call::ObjClone,
            &[from, 0, 0],
        );
        for page in (0..PAGES).step_by(5) {
            book.rig.store(actor.space, from + page * PAGE, page + 1).unwrap();
        }
        if kept {
            book.call(
                "PageUnMap with REPLACE",
                actor,
                Call::PageUnMap,
                &[from, PAGES, UNMAP_REPLACE],
            );
            book.call("PageFlush", actor, Call::PageFlush, &[from, 100]);
        }
        for rights in [Rights::R, Rights::RW] {
            book.call(
                &format!("PageLimit, {kind}"),
                actor,
                Call::PageLimit,
                &[from, PAGES, rights.bits().into()],
            );
        }
        book.call(
            &format!("PageUnMap with ZERO, {kind}"),
            actor,
            Call::PageUnMap,
            &[from, PAGES, UNMAP_ZERO],
        );
        book.call(
            &format!("PageUnMap of the copy, {kind}"),
            actor,
            Call::PageUnMap,
            &[to, PAGES, UNMAP_ZERO],
        );
        if kept {
            book.rig.put_away();
            for page in [0, 1, 2, 300] {
                book.touch("a page of the disk", actor, from + page * PAGE, Access::Read);
            }
            book.call("ObjClone of stored pages", actor, Call::ObjClone, &[from, 0, 0]);
            book.call("PageCopy of stored pages", actor, Call::PageCopy, &[from, to, PAGES]);
            book.call(
                "PageLimit of stored pages",
                actor,
                Call::PageLimit,
                &[from, PAGES, Rights::R.bits().into()],
            );
        }
        for base in [from, to] {
            book.call(&format!("ObjDelete of pages, {kind}"), actor, Call::ObjDelete, &[base]);
        }
        book.polls(&format!("their end, {kind}"));
    }
    let (guard, _) = book.rig.call(actor, Call::ObjCreate, &[PAGES * PAGE, 0]).unwrap();
    for page in (0..40).step_by(2) {
        book.call(
            "PageLimit to nothing",
            actor,
            Call::PageLimit,
            &[guard + page * PAGE, 1, 0],
        );
    }
}

/// Objects that many domains hold, and capabilities that come and go.
fn passwords(book: &mut Book, owner: Actor) {
    const HOLDERS: usize = 60;
    let base = book.rig.kept(owner, 40, 7);
    for password in 100..120 {
        book.call("ObjPasswd, a new one", owner, Call::ObjPasswd, &[base, password, RW]);
    }
    let holders: Vec<Actor> = (0..HOLDERS as u64)
        .map(|n| book.rig.holder(base, 100 + n % 20))
        .collect();
    for &holder in &holders {
        book.touch("a first read by a capability", holder, base, Access::Read);
    }
    let owner = book.rig.holder(base, 7);
    book.call("ObjPasswd, fewer rights", owner, Call::ObjPasswd, &[base, 100, 1]);
    book.call("ObjPasswd, none any more", owner, Call::ObjPasswd, &[base, 101, 0]);
    book.touch("a read behind it", holders[0], base, Access::Read);
    book.call("ObjRetire of what others have", owner, Call::ObjRetire, &[base]);
    book.call("ApdFlush", holders[3], Call::ApdFlush, &[]);
    book.call("ObjDelete of what others have", owner, Call::ObjDelete, &[base]);
    book.polls("the holders forget it");
    for order in [Order::Sorted, Order::Any] {
        searches(book, order);
    }
}

/// Capabilities that are looked for in long Clists.
fn searches(book: &mut Book, order: Order) {
    let [actor, owner] = [0; 2].map(|_| book.actor());
    let objects: Vec<u64> = (0..300).map(|n| book.rig.kept(owner, 1, 50 + n % 3)).collect();
    let (clist, _) = book.rig.call(actor, Call::ObjCreate, &[4 * PAGE, 0]).unwrap();
    let list: Vec<Capability> = objects
        .iter()
        .map(|&address| Capability { address, password: 51 })
        .collect();
    book.rig.write_clist(actor.space, clist, &list, order);
    book.call(&format!("ApdInsert, {order:?}"), actor, Call::ApdInsert, &[0, clist]);
    for index in [0, 1, 150, 299] {
        for again in ["", " again"] {
            let what = format!("ApdLookup of {index}, {order:?}{again}");
            book.call(&what, actor, Call::ApdLookup, &[objects[index], 1]);
        }
    }
    let (info, _) = book.rig.call(actor, Call::ObjCreate, &[PAGE, 0]).unwrap();
    book.call("ApdGet", actor, Call::ApdGet, &[info, PAGE]);
    book.call(&format!("ApdFlush, {order:?}"), actor, Call::ApdFlush, &[]);
    book.call(&format!("ApdDelete, {order:?}"), actor, Call::ApdDelete, &[0]);
    book.call("ApdLock", actor, Call::ApdLock, &[u64::MAX]);
    book.rig.check();
}

/// Protected calls, and the ends of callees.
fn procedures(book: &mut Book) {
    let owner = book.actor();
    let base = book.rig.service(owner, 9);
    let arguments = book.rig.entry_of(owner, base, 10, 0);
    book.call("ObjCrePdx", owner, Call::ObjCrePdx, &arguments);
    for (kind, pd) in [("merged", PD_MERGE), ("with an empty APD", PD_EMPTY)] {
        let clients: Vec<Actor> = (0..30).map(|n| book.rig.holder(base, 9 + n % 2)).collect();
        for (index, &client) in clients.iter().enumerate() {
            book.call(&format!("PdxCall, {kind}"), client, Call::PdxCall, &[base, 1, pd]);
            if index % 3 > 0 {
                book.call(&format!("PdxReturn, {kind}"), client, Call::PdxReturn, &[]);
            }
        }
        book.call(
            &format!("PdxCall again, {kind}"),
            clients[1],
            Call::PdxCall,
            &[base, 1, pd],
        );
        book.call(
            &format!("ApdFlush of a caller, {kind}"),
            clients[4],
            Call::ApdFlush,
            &[],
        );
        for client in [0, 3, 5] {
            book.rig.server.task_kill(clients[client].task, 1);
        }
        book.polls(&format!("clients end, {kind}"));
        book.rig.world.kernel.hardware.now_ns += 2_000_000_000;
        book.polls(&format!("they have had their time, {kind}"));
    }
    book.call("ObjPasswd of a procedure", owner, Call::ObjPasswd, &[base, 10, 0]);
    book.polls("its callees retire");
    book.enter("idle callees are taken back", |rig, _| {
        rig.server.take_back(&mut rig.world);
        Goes::Over
    });
    book.call("ObjDelete of a service", owner, Call::ObjDelete, &[base]);
    book.polls("its callees end");
    line(book, owner);
}

/// A line of callees that read through to one another.
fn line(book: &mut Book, owner: Actor) {
    let services: Vec<u64> = (0..12).map(|n| book.rig.service(owner, 20 + n)).collect();
    let (list, _) = book.rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let capabilities: Vec<Capability> = (20..)
        .zip(&services)
        .map(|(password, &address)| Capability { address, password })
        .collect();
    let client = book.actor();
    let (clist, _) = book.rig.call(client, Call::ObjCreate, &[PAGE, 0]).unwrap();
    book.rig.write_clist(client.space, clist, &capabilities, Order::Sorted);
    book.rig.call(client, Call::ApdInsert, &[0, clist]).unwrap();
    for &service in &services {
        book.call(
            "PdxCall of the next one",
            client,
            Call::PdxCall,
            &[service, 1, PD_MERGE],
        );
    }
    for what in ["ApdFlush inside of a line", "ApdFlush again"] {
        book.call(what, client, Call::ApdFlush, &[]);
    }
    for _ in &services {
        book.call("PdxReturn to the one before", client, Call::PdxReturn, &[]);
    }
    book.call("ApdFlush over a line", client, Call::ApdFlush, &[]);
    book.rig.call(owner, Call::ObjDelete, &[list]).unwrap();
    book.rig.server.task_kill(client.task, 1);
    book.polls("the line ends");
}

/// Threads, what they wait for, reports about them, and their ends.
fn lives(book: &mut Book) {
    let actor = book.actor();
    let (base, _) = book.rig.call(actor, Call::ObjCreate, &[4 * PAGE, 0]).unwrap();
    book.rig.store(actor.space, base, 0).unwrap();
    for n in 0..300 {
        if n < 3 {
            book.call("SemCreate", actor, Call::SemCreate, &[base + n * 8, 1]);
        } else {
            book.rig.call(actor, Call::SemCreate, &[base + n * 8, 1]).unwrap();
        }
    }
    book.call("SemWait", actor, Call::SemWait, &[base, u64::MAX]);
    book.call("SemSignal", actor, Call::SemSignal, &[base]);
    book.call("SemDelete", actor, Call::SemDelete, &[base]);
    book.call("AddressWake", actor, Call::AddressWake, &[base, 1]);
    book.call("AddressWait, changed", actor, Call::AddressWait, &[base, 99, 0]);
    book.call("ThreadSleep, no time", actor, Call::ThreadSleep, &[0, 0]);
    book.call("ConsoleWrite", actor, Call::ConsoleWrite, &[0, base, 200]);
    for (what, call) in [("ClockRead", Call::ClockRead), ("RandomRead", Call::RandomRead)] {
        book.call(what, actor, call, &[]);
    }
    let siblings: Vec<Actor> = (0..200).map(|_| book.rig.sibling(actor)).collect();
    let last = siblings[199].thread.0;
    book.call("ThreadInfo", actor, Call::ThreadInfo, &[last, base, PAGE]);
    for (what, topic, index) in [
        ("memory", TOPIC_MEMORY, 0),
        ("the store", TOPIC_STORE, 0),
        ("a thread", TOPIC_THREAD, last),
        ("threads", TOPIC_THREAD, 0),
        ("a domain", TOPIC_DOMAIN, actor.space.0.into()),
        ("an object", TOPIC_OBJECT, base),
        ("the first object", TOPIC_OBJECT, 0),
    ] {
        book.call(
            &format!("SystemInfo, {what}"),
            actor,
            Call::SystemInfo,
            &[topic, index, base, PAGE],
        );
    }
    book.call("ThreadDelete", actor, Call::ThreadDelete, &[siblings[7].thread.0, 3]);
    book.call("ThreadResume", actor, Call::ThreadResume, &[siblings[8].thread.0]);
    book.call("ThreadWait, no child", actor, Call::ThreadWait, &[0, 0, 0, 0]);
    book.call("ObjDelete with semaphores", actor, Call::ObjDelete, &[base]);
    for n in 0..150 {
        let (object, _) = book.rig.call(actor, Call::ObjCreate, &[SLOT * (1 + n % 3), 0]).unwrap();
        book.rig.store(actor.space, object, n).unwrap();
    }
    book.rig.server.task_kill(actor.task, 1);
    book.polls("a task with 200 threads and 150 objects ends");
}

/// Checkpoints, and memory that is taken back.
fn durability(book: &mut Book) {
    let actor = book.actor();
    let base = book.rig.kept(actor, 1500, 7);
    for page in 0..1500 {
        book.rig.store(actor.space, base + page * PAGE, page).unwrap();
    }
    book.rig.server.checkpoint_request(&mut book.rig.world);
    book.polls("a checkpoint of 1,500 pages");
    book.rig.server.checkpoint_request(&mut book.rig.world);
    book.polls("a checkpoint of nothing");
    for _ in 0..4 {
        book.enter("clean pages are taken back", |rig, _| {
            rig.server.reclaim(&mut rig.world);
            Goes::Over
        });
    }
    for page in [0, 700, 1499] {
        book.touch(
            "a write to what was taken back",
            actor,
            base + page * PAGE,
            Access::Write,
        );
    }
    book.call("ObjDelete of 1,500 pages", actor, Call::ObjDelete, &[base]);
    book.polls("the store frees them");
}

/// Memory that is short: what is clean is taken back by those who touch more, and what is dirty goes to the disk first.
fn shortage(book: &mut Book) {
    const PAGES: u64 = 2500;
    let actor = book.rig.actor(Apd::EMPTY);
    let base = book.rig.kept(actor, PAGES, 7);
    for access in [Access::Write, Access::Read] {
        for page in 0..PAGES {
            book.touch(
                &format!("{access:?} with little memory"),
                actor,
                base + page * PAGE,
                access,
            );
        }
    }
    let small: Vec<u64> = (0..300).map(|n| book.rig.kept(actor, 1, 1 + n)).collect();
    for &object in &small {
        book.touch("a write to a small object", actor, object, Access::Write);
    }
    book.polls("what is dirty is written");
    let wide = book.call("ObjCreate with little memory", actor, Call::ObjCreate, &[400 * SLOT, 0]);
    for slot in 0..400 {
        book.touch(
            "a page table with little memory",
            actor,
            wide + slot * SLOT,
            Access::Read,
        );
    }
    book.call("ObjClone with little memory", actor, Call::ObjClone, &[base, 0, 0]);
    book.rig.server.task_kill(actor.task, 1);
    book.polls("the task ends");
}

/// As many callees as there can be, and one more.
fn full_table(book: &mut Book) {
    let owner = book.actor();
    let base = book.rig.service(owner, 9);
    for n in 0..=CALLEES_MAX {
        let client = book.rig.holder(base, 9);
        let what = if n < CALLEES_MAX {
            "PdxCall"
        } else {
            "PdxCall with a full table"
        };
        book.call(what, client, Call::PdxCall, &[base, 1, PD_MERGE]);
        book.call("PdxReturn", client, Call::PdxReturn, &[]);
    }
    book.polls("some make room");
}

/// A function that makes the calls of a load, and the number of frames that its machine has.
type Load = (fn(&mut Book), u32);

/// The lines of all loads at a price of a call of the machine.
fn lines(price: u64) -> Vec<(String, u64, u64)> {
    let loads: [Load; 6] = [
        (objects, 60_000),
        (procedures, 60_000),
        (lives, 60_000),
        (durability, 60_000),
        (shortage, 1500),
        (full_table, 60_000),
    ];
    let book = |(seed, (load, frames)): (u64, Load)| {
        let mut book = Book::new(seed, frames, price);
        load(&mut book);
        book.lines
    };
    (1..).zip(loads).flat_map(book).collect()
}

/// Lines of the same name are one: their events and charges are added up.
fn joined(lines: Vec<(String, u64, u64)>) -> Vec<(String, u64, u64, u64)> {
    let mut all: Vec<(String, u64, u64, u64)> = Vec::new();
    for (name, events, charged) in lines {
        match all.iter_mut().find(|line| line.0 == name) {
            Some(line) => (line.1, line.2, line.3) = (line.1 + 1, line.2 + events, line.3 + charged),
            None => all.push((name, 1, events, charged)),
        }
    }
    all
}

#[test]
fn all_steps_are_charged_what_they_were() {
    let mut table = String::from(
        "# What fixed loads are charged (tests/prices.rs): times, then events and instructions together, with the server inside and outside of the kernel.\n",
    );
    let [inside, outside] = [0, Remote::<()>::CALL].map(|price| joined(lines(price)));
    for (within, without) in inside.iter().zip(&outside) {
        assert_eq!(
            (&within.0, within.1),
            (&without.0, without.1),
            "prices change no outcome"
        );
        let (name, times, events, charged) = within;
        let _ = writeln!(
            table,
            "{name:<48} {times:>4} {events:>5} {charged:>9} {:>5} {:>9}",
            without.2, without.3
        );
    }
    if std::env::var_os("GOND_BLESS").is_some() {
        std::fs::write(GOLDEN, &table).expect("the table can be written");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("the table can be read");
    for (now, before) in table.lines().zip(golden.lines()) {
        assert_eq!(now, before, "GOND_BLESS=1 writes {GOLDEN} anew");
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
