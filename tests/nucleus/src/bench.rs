//! Costs of the µ-kernel's operations, as rows for the host tool: `row=NAME ticks=MEDIAN min=… n=… ns=…`,
//! all for one operation, warm. Under an emulator that counts instructions a tick is an instruction.

mod messages;
mod ranges;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Error, Rights,
    address::{PAGE, SLOT},
    nucleus::{GRANT, LINK, MAP, fpage, tag},
};
use nucleus::{
    call::{
        self,
        memory::{Window, read, write},
    },
    log, message,
};

use crate::{
    arch::{read_port, write_port},
    case::{Failure, Outcome, Setting},
    messages::start,
    world::{World, memory},
};
use ranges::What;

/// Samples of a row.
const SAMPLES: usize = 31;

/// A row's samples.
struct Samples {
    ticks: [u64; SAMPLES],
    count: usize,
    batch: u64,
}

impl Samples {
    fn new(batch: u64) -> Self {
        Self {
            ticks: [0; SAMPLES],
            count: 0,
            batch,
        }
    }

    fn add(&mut self, ticks: u64) {
        if let Some(place) = self.ticks.get_mut(self.count) {
            *place = ticks;
            self.count += 1;
        }
    }

    fn print(mut self, name: &str, ticks_per_us: u64) {
        let ticks = &mut self.ticks[..self.count];
        ticks.sort_unstable();
        let each = |ticks: u64| (ticks + self.batch / 2) / self.batch;
        let median = ticks.get(self.count / 2).copied().unwrap_or_default();
        let least = ticks.first().copied().unwrap_or_default();
        let ns = (median * 1000).checked_div(ticks_per_us).map_or(0, each);
        let n = self.count as u64 * self.batch;
        log!("row={name} ticks={} min={} n={n} ns={ns}", each(median), each(least));
    }
}

/// Samples of a batch of equal operations, after two that warm up.
fn sample(batch: u64, mut work: impl FnMut() -> Outcome) -> Outcome<Samples> {
    let mut samples = Samples::new(batch);
    for round in 0..SAMPLES + 2 {
        let before = call::ticks();
        for _ in 0..batch {
            work()?;
        }
        let passed = call::ticks() - before;
        if round >= 2 {
            samples.add(passed);
        }
    }
    Ok(samples)
}

type Row = (&'static str, fn(&Setting) -> Outcome<Samples>);

/// All rows.
const ROWS: &[Row] = &[
    ("ipc-round-trip", |setting| round_trip(setting, 0, Uses::Never)),
    ("ipc-after-vector", |setting| round_trip(setting, 0, Uses::Once)),
    ("ipc-vector", |setting| round_trip(setting, 1, Uses::EachTime)),
    ("ipc-same-space", same_space),
    ("ipc-8-words", |setting| messages::round_trip(setting, 8, u32::MAX)),
    ("ipc-64-words", |setting| messages::round_trip(setting, 64, u32::MAX)),
    ("ipc-timeout", |setting| messages::round_trip(setting, 4, 1_000_000)),
    ("ipc-map-item", |setting| messages::item(setting, 1, MAP)),
    ("ipc-map-item-2", |setting| messages::item(setting, 2, MAP)),
    ("ipc-map-item-8", |setting| messages::item(setting, 8, MAP)),
    ("ipc-grant-item", |setting| messages::item(setting, 1, GRANT)),
    ("ipc-grant-item-8", |setting| messages::item(setting, 8, GRANT)),
    ("ipc-send-receive", messages::send_receive),
    ("ipc-queued", messages::queued),
    ("pager-round-trip", |setting| pager_round_trip(setting, Held::Pages)),
    ("pager-round-trip-of-slot", |setting| {
        pager_round_trip(setting, Held::Slot)
    }),
    ("map-page", |setting| of_pages(setting, CLOSE, 0)),
    ("map-first-page", |setting| of_pages(setting, APART, 0)),
    ("map-page-of-slot", |setting| of_slot(setting, 0)),
    ("link-2m", |setting| link_slot(setting, true)),
    ("flush-linked-2m", |setting| link_slot(setting, false)),
    ("flush-page", |setting| of_pages(setting, CLOSE, 1)),
    ("flush-last-page", |setting| of_pages(setting, APART, 1)),
    ("flush-page-of-slot", |setting| of_slot(setting, 1)),
    ("map-8", |setting| ranges::row(setting, What::Map)),
    ("flush-8", |setting| ranges::row(setting, What::Flush)),
    ("map-replace", |setting| ranges::row(setting, What::Replace)),
    ("flush-8-spaces", |setting| ranges::row(setting, What::FlushSpaces)),
    ("map-replace-8", |setting| ranges::row(setting, What::ReplaceRange)),
    ("flush-8-in-turn", |setting| ranges::row(setting, What::FlushInTurn)),
    ("interrupt-to-thread", interrupt_to_thread),
    ("nucleus-yield-switch", yield_switch),
    ("space-create-delete", space_create_delete),
    ("nucleus-thread-create-delete", thread_create_delete),
    ("bare-thread-run", messages::thread_run),
    ("rpc-touch-2", |setting| rpc_touch(setting, 2)),
    ("rpc-touch-4", |setting| rpc_touch(setting, 4)),
    ("rpc-touch-8", |setting| rpc_touch(setting, 8)),
    ("rpc-touch-16", |setting| rpc_touch(setting, 16)),
    ("rpc-touch-32", |setting| rpc_touch(setting, 32)),
    ("rpc-touch-64", |setting| rpc_touch(setting, 64)),
];

/// Measures the rows whose names begin with `only`; gives how many could not be.
pub fn run(setting: &Setting, only: &str) -> u32 {
    let ticks_per_us = rate();
    let mut failed = 0;
    for (name, row) in ROWS.iter().filter(|row| row.0.starts_with(only)) {
        match row(setting) {
            Ok(samples) => samples.print(name, ticks_per_us),
            Err(why) => {
                log!("{name}: {why}");
                failed += 1;
            }
        }
    }
    failed
}

/// Ticks in a microsecond, over two milliseconds.
fn rate() -> u64 {
    let now = || call::clock_now().unwrap_or_default();
    let (start, ticks) = (now(), call::ticks());
    while now() < start + 2_000_000 {}
    (call::ticks() - ticks) * 1000 / (now() - start)
}

nucleus::thread_entry!(server_entry, server);
/// Answers with what it gets. `vectors`: it uses the vector unit each time.
fn server(vectors: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        if vectors != 0 {
            call::use_vectors();
        }
        next = message::reply_and_wait(got.sender, got.tag, got.words);
    }
}

/// When a thread uses the vector unit.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Uses {
    Never,
    Once,
    EachTime,
}

nucleus::thread_entry!(client_entry, client);
/// Calls the thread whose identifier it is sent a hundred times, again and again, and answers with the ticks that it took. The label is how
/// it uses the vector unit meanwhile: as in [`Uses`].
fn client(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        if got.label() == Uses::Once as u64 {
            call::use_vectors();
        }
        let before = call::ticks();
        for _ in 0..CALLS {
            if got.label() == Uses::EachTime as u64 {
                call::use_vectors();
            }
            if message::call(got.words[0], tag(0, 4, 0), [1, 2, 3, 4]).is_err() {
                return;
            }
        }
        let passed = call::ticks() - before;
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [passed, 0, 0, 0]);
    }
}

/// Calls of a sample.
const CALLS: u64 = 100;

/// A message and its answer. The client is a thread for this row, so that no other one meets its vector registers.
fn round_trip(setting: &Setting, server_vectors: u64, uses: Uses) -> Outcome<Samples> {
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(server_entry(), server_vectors)?;
    let client = start(client_entry(), 0, 3)?;
    let mut samples = Samples::new(CALLS);
    for round in 0..SAMPLES + 2 {
        let got = message::call(client, tag(uses as u64, 1, 0), [server, 0, 0, 0])?;
        if round >= 2 {
            samples.add(got.words[0]);
        }
    }
    call::thread_delete(client)?;
    world.end()?;
    Ok(samples)
}

fn same_space(_: &Setting) -> Outcome<Samples> {
    let server = start(server_entry(), 0, 3)?;
    let samples = sample(100, || {
        message::call(server, tag(0, 4, 0), [1, 2, 3, 4])?;
        Ok(())
    })?;
    call::thread_delete(server)?;
    Ok(samples)
}

/// Where the rows map things.
const PLACE: u64 = 0x3000_0000_0000;
/// Where a toucher's code becomes resident.
const ELSEWHERE: u64 = PLACE + (1 << 30);
/// Pages of a batch.
const BATCH: u64 = 64;

/// A label that faults and exceptions do not have.
const TAKE_BACK: u64 = 7;

nucleus::thread_entry!(plain_pager_entry, plain_pager);
/// Answers a fault at [`PLACE`] with the page at the same distance from `base`. Asked to [`TAKE_BACK`], takes all of a batch.
fn plain_pager(base: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        if got.label() == TAKE_BACK {
            let done = u64::from(everyone(base, 18).is_ok());
            next = message::reply_and_wait(got.sender, tag(0, 1, 0), [done, 0, 0, 0]);
            continue;
        }
        let source = base + (got.words[0] & !(PAGE - 1)) - PLACE;
        next = message::reply_and_wait(got.sender, tag(0, 0, 1), [fpage(source, 12, Rights::RW), MAP, 0, 0]);
    }
}

nucleus::thread_entry!(toucher_entry, toucher);
/// When asked, writes to each page of a batch that begins at the first word, and answers with the ticks that it took.
fn toucher(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        let before = call::ticks();
        for page in 0..BATCH {
            write(got.words[0] + page * PAGE, page);
        }
        let passed = call::ticks() - before;
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [passed, 0, 0, 0]);
    }
}

/// A run of pages for a row.
fn pages(setting: &Setting, bytes: u64) -> Outcome<u64> {
    memory(setting.root, 1)
        .take_run(bytes)
        .ok_or_else(|| Failure::new(format_args!("no memory for {bytes} bytes")))
}

fn everyone(base: u64, log2: u8) -> Outcome {
    Ok(call::flush(
        Window::memory(base, log2, Rights::R),
        u64::from(Rights::RWX.bits()),
        0,
    )?)
}

/// How a pager has what it gives.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Held {
    /// It was given each page as a page.
    Pages,
    /// As a page of 2 MiB, from which it cuts each one.
    Slot,
}

/// A fault that a pager answers with a page: from the instruction that touches it to the next one. The pager has a space
/// of its own and has its pages as pages; or it is in the root program's, and cuts them from 2 MiB.
fn pager_round_trip(setting: &Setting, held: Held) -> Outcome<Samples> {
    let base = pages(setting, 2 * BATCH * PAGE)?;
    let mut world = World::new(setting, 0, 0)?;
    let toucher = world.start(toucher_entry(), 0)?;
    // Image, stack and another batch come from the world's own pager; then the plain one takes over.
    message::call(toucher, tag(0, 1, 0), [ELSEWHERE, 0, 0, 0])?;
    let mut home = World::new(setting, 0, 0)?;
    let pager = match held {
        Held::Pages => {
            give_pages(base, home.space)?;
            home.start(plain_pager_entry(), GIVEN)?
        }
        Held::Slot => start(plain_pager_entry(), base, 3)?,
    };
    let take_back = || match message::call(pager, tag(TAKE_BACK, 0, 0), [0; 4]) {
        Ok(got) if got.words[0] == 1 => Ok(()),
        _ => Err(Failure::new(format_args!("the pager could not take its pages back"))),
    };
    take_back()?;
    call::space_control(world.space, pager, 0, 0)?;
    // The page behind the batch keeps the tables.
    let (kept, behind) = (base + BATCH * PAGE, PLACE + BATCH * PAGE);
    call::map(
        fpage(kept, 12, Rights::RW),
        world.space,
        fpage(behind, 12, Rights::RW),
        MAP,
    )?;
    let mut samples = Samples::new(BATCH);
    for round in 0..SAMPLES + 2 {
        take_back()?;
        let got = message::call(toucher, tag(0, 1, 0), [PLACE, 0, 0, 0])?;
        if round >= 2 {
            samples.add(got.words[0]);
        }
    }
    if held == Held::Slot {
        call::thread_delete(pager)?;
    }
    world.end()?;
    home.end()?;
    Ok(samples)
}

/// Gives a batch of pages, and one behind, to a space at [`GIVEN`], each as a page.
fn give_pages(base: u64, space: u64) -> Result<(), Error> {
    for at in (0..=BATCH).map(|page| page * PAGE) {
        let there = fpage(GIVEN + at, 12, Rights::RW);
        call::map(fpage(base + at, 12, Rights::RW), space, there, MAP)?;
    }
    Ok(())
}

/// A space without threads or a pager.
fn empty_space() -> Outcome<u64> {
    Ok(call::space_create(64 * 64, 0, 0, 0)?)
}

/// How many pages are given, and the distance between their places.
#[derive(Copy, Clone)]
struct Spread {
    count: u64,
    stride: u64,
}

/// Pages of one page table.
const CLOSE: Spread = Spread {
    count: BATCH,
    stride: PAGE,
};
/// Each has a page table to itself.
const APART: Spread = Spread { count: 8, stride: SLOT };

/// Maps pages from `base` on into a space, and flushes them: the ticks of each.
fn map_and_flush(base: u64, space: u64, Spread { count, stride }: Spread) -> Result<[u64; 2], Error> {
    let rights = u64::from(Rights::RWX.bits());
    let before = call::ticks();
    for page in 0..count {
        let there = fpage(PLACE + page * stride, 12, Rights::RW);
        call::map(fpage(base + page * PAGE, 12, Rights::RW), space, there, MAP)?;
    }
    let between = call::ticks();
    for page in 0..count {
        call::flush(Window::memory(base + page * PAGE, 12, Rights::R), rights, 0)?;
    }
    Ok([between - before, call::ticks() - between])
}

/// A space that has the tables for pages, and the quota of so many tables: a page behind them keeps those.
fn receiver(base: u64, tables: u64, Spread { count, stride }: Spread) -> Result<u64, Error> {
    let space = call::space_create(tables * 64, 0, 0, 0)?;
    let (kept, behind) = (base + BATCH * PAGE, PLACE + count * stride);
    call::map(fpage(kept, 12, Rights::RW), space, fpage(behind, 12, Rights::RW), MAP)?;
    Ok(space)
}

nucleus::thread_entry!(giver_entry, giver);
/// Has pages at [`GIVEN`], each of which it got as a page. When asked, maps and flushes some and answers with the ticks of both;
/// nothing, if it could not.
fn giver(apart: u64) {
    let spread = if apart == 1 { APART } else { CLOSE };
    let space = receiver(GIVEN, 32, spread).unwrap_or(0);
    let mut next = message::receive();
    while let Ok(got) = next {
        let [mapped, flushed] = map_and_flush(GIVEN, space, spread).unwrap_or_default();
        next = message::reply_and_wait(got.sender, tag(0, 2, 0), [mapped, flushed, 0, 0]);
    }
}

/// Where a giver has its pages.
const GIVEN: u64 = 0x3100_0000_0000;

/// Samples of giving, and taking back, what the giver holds in pages of 4 KiB.
fn of_pages(setting: &Setting, spread: Spread, which: usize) -> Outcome<Samples> {
    let base = pages(setting, 2 * BATCH * PAGE)?;
    let mut world = World::new(setting, 0, 0)?;
    give_pages(base, world.space)?;
    let giver = world.start(giver_entry(), u64::from(spread.stride == APART.stride))?;
    let mut samples = Samples::new(spread.count);
    for round in 0..SAMPLES + 2 {
        let got = message::call(giver, 0, [0; 4])?;
        if got.words[which] == 0 {
            return Err(Failure::new(format_args!("the giver could not give")));
        }
        if round >= 2 {
            samples.add(got.words[which]);
        }
    }
    world.end()?;
    Ok(samples)
}

/// The same where it holds one page of 2 MiB, from which each page is cut.
fn of_slot(setting: &Setting, which: usize) -> Outcome<Samples> {
    let base = pages(setting, 2 * BATCH * PAGE)?;
    let space = receiver(base, 16, CLOSE)?;
    let mut samples = Samples::new(BATCH);
    for round in 0..SAMPLES + 2 {
        let ticks = map_and_flush(base, space, CLOSE)?;
        if round >= 2 {
            samples.add(ticks[which]);
        }
    }
    call::space_delete(space)?;
    Ok(samples)
}

/// Slots are linked and taken again; the time of one or the other.
fn link_slot(setting: &Setting, of_links: bool) -> Outcome<Samples> {
    const SLOTS: u64 = 4;
    let base = pages(setting, SLOTS * SLOT)?;
    let space = empty_space()?;
    let mut samples = Samples::new(SLOTS);
    // A link lands at its own address; the last slot keeps the tables.
    let link = |slot: u64| {
        let what = fpage(base + slot * SLOT, 21, Rights::RW);
        call::map(what, space, what, LINK)
    };
    link(SLOTS - 1)?;
    for round in 0..SAMPLES + 2 {
        let before = call::ticks();
        for slot in 0..SLOTS - 1 {
            link(slot)?;
        }
        let linked = call::ticks();
        for slot in 0..SLOTS - 1 {
            everyone(base + slot * SLOT, 21)?;
        }
        let passed = if of_links {
            linked - before
        } else {
            call::ticks() - linked
        };
        if round >= 2 {
            samples.add(passed * SLOTS / (SLOTS - 1));
        }
    }
    everyone(base + (SLOTS - 1) * SLOT, 21)?;
    call::space_delete(space)?;
    Ok(samples)
}

nucleus::thread_entry!(yielder_entry, yielder);
/// Yields for ever.
fn yielder(_: u64) {
    while call::yield_now().is_ok() {}
}

fn yield_switch(setting: &Setting) -> Outcome<Samples> {
    let mut world = World::new(setting, 0, 0)?;
    world.start(yielder_entry(), 0)?;
    for _ in 0..4 {
        call::yield_now()?;
    }
    // Each of ours is followed by one of the other's.
    let samples = sample(100, || Ok(call::yield_now()?))?;
    world.end()?;
    Ok(Samples {
        batch: samples.batch * 2,
        ..samples
    })
}

/// The registers of the serial port, in loop-back mode: a byte that is sent comes back with an interrupt.
const PORT: u16 = 0x3f8;
/// Its line.
const LINE: u64 = 4;
/// When the interrupt was raised.
static RAISED: AtomicU64 = AtomicU64::new(0);

nucleus::thread_entry!(raiser_entry, raiser);
/// Sends a byte, over and over. It is less urgent than whoever waits for the interrupt.
fn raiser(_: u64) {
    loop {
        RAISED.store(call::ticks(), Relaxed);
        write_port(PORT, 0);
        // Where the interrupt takes a moment to come.
        core::hint::spin_loop();
    }
}

/// From the instruction that raises an interrupt to the first one of the thread that waits for it.
fn interrupt_to_thread(_: &Setting) -> Outcome<Samples> {
    let (me, _) = call::thread_self()?;
    write_port(PORT + 1, 0x01);
    write_port(PORT + 2, 0x07);
    write_port(PORT + 4, 0x1b);
    call::interrupt_bind(LINE, me)?;
    let raiser = start(raiser_entry(), 0, 2)?;
    let mut samples = Samples::new(1);
    for round in 0..SAMPLES + 2 {
        message::receive_from(LINE + 1)?;
        let now = call::ticks();
        if round >= 2 {
            samples.add(now - RAISED.load(Relaxed));
        }
        while read_port(PORT + 5) & 1 != 0 {
            read_port(PORT);
        }
    }
    call::thread_delete(raiser)?;
    call::interrupt_bind(LINE, 0)?;
    write_port(PORT + 1, 0);
    Ok(samples)
}

fn space_create_delete(_: &Setting) -> Outcome<Samples> {
    sample(10, || Ok(call::space_delete(empty_space()?)?))
}

fn thread_create_delete(_: &Setting) -> Outcome<Samples> {
    sample(10, || Ok(call::thread_delete(start(server_entry(), 0, 0)?)?))
}

/// Figure 2 of the paper: after a short remote call the client touches some of its pages again.
fn rpc_touch(setting: &Setting, touched: u64) -> Outcome<Samples> {
    let base = pages(setting, 64 * PAGE)?;
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(server_entry(), 0)?;
    message::call(server, 0, [0; 4])?;
    let samples = sample(50, || {
        message::call(server, 0, [0; 4])?;
        for page in 0..touched {
            read(base + page * PAGE);
        }
        Ok(())
    })?;
    world.end()?;
    Ok(samples)
}
