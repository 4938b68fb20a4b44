//! Rows of messages beside the commonest case: more words, a timeout, an item, sent and received by two calls; and of a thread
//! that lives for one message.

use abi::{
    Rights,
    address::PAGE,
    nucleus::{ANYONE, GRANT, MAP, NO_TIMEOUTS, fpage, tag, timeouts},
};
use nucleus::{
    call::{self, memory::Window},
    message,
};

use super::{
    BATCH, CALLS, GIVEN, PLACE, SAMPLES, Samples, client_entry, everyone, give_pages, pages, sample, server_entry,
};
use crate::{
    case::{Failure, Outcome, Setting},
    messages::start,
    world::World,
};

/// A call with so many words, and the answer with as many; it waits so many microseconds at most.
pub fn round_trip(setting: &Setting, words: u64, receive_us: u32) -> Outcome<Samples> {
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(server_entry(), 0)?;
    let wait = timeouts(u32::MAX, receive_us);
    let call = || call::ipc(server, server, tag(0, words, 0), wait, Window::NOTHING, [1, 2, 3, 4]);
    call()?;
    let samples = sample(100, || {
        call()?;
        Ok(())
    })?;
    world.end()?;
    Ok(samples)
}

nucleus::thread_entry!(sender_entry, sender);
/// Answers by one call, and waits by another.
fn sender(_: u64) {
    while let Ok(got) = message::receive() {
        if message::send(got.sender, got.tag, got.words).is_err() {
            return;
        }
    }
}

/// A message there and back, each sent by one call and received by another.
pub fn send_receive(setting: &Setting) -> Outcome<Samples> {
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(sender_entry(), 0)?;
    let call = || {
        message::send(server, tag(0, 4, 0), [1, 2, 3, 4])?;
        message::receive_from(server)
    };
    call()?;
    let samples = sample(100, || {
        call()?;
        Ok(())
    })?;
    world.end()?;
    Ok(samples)
}

/// A call of one of two clients, each of which finds the server busy with the other one: it is less urgent than they are.
pub fn queued(setting: &Setting) -> Outcome<Samples> {
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(server_entry(), 0)?;
    message::call(server, tag(0, 4, 0), [1, 2, 3, 4])?;
    call::thread_priority(server, 2)?;
    let clients = [start(client_entry(), 0, 3)?, start(client_entry(), 0, 3)?];
    let mut samples = Samples::new(2 * CALLS);
    for round in 0..SAMPLES + 2 {
        let before = call::ticks();
        for client in clients {
            message::send(client, tag(0, 1, 0), [server, 0, 0, 0])?;
        }
        for client in clients {
            message::receive_from(client)?;
        }
        if round >= 2 {
            samples.add(call::ticks() - before);
        }
    }
    for client in clients {
        call::thread_delete(client)?;
    }
    world.end()?;
    Ok(samples)
}

nucleus::thread_entry!(taker_entry, taker);
/// Takes whatever pages it is sent, and answers; what it is granted it grants back.
fn taker(_: u64) {
    let window = |base| Window::memory(base, LOG2, Rights::RW);
    let wait = |to, tag, words| call::ipc(to, ANYONE, tag, timeouts(0, u32::MAX), window(PLACE), words);
    let mut next = wait(0, 0, [0; 4]);
    while let Ok(got) = next {
        let [what, way, ..] = got.words;
        next = if way == GRANT {
            let landed = PLACE | what & ((1 << LOG2) - 1);
            wait(got.sender, tag(0, 0, 1), [landed, GRANT, 0, 0])
        } else {
            wait(got.sender, 0, [0; 4])
        };
    }
}

/// The logarithm of a batch's bytes.
const LOG2: u8 = (BATCH * PAGE).trailing_zeros() as u8;

nucleus::thread_entry!(item_sender_entry, item_sender);
/// When asked, sends the batch of pages that it has at [`GIVEN`] to the thread named in the first word, as many in an item as the second one says, in the
/// way of the third, takes all back, and answers with the ticks of the sending; nothing, if it could not.
fn item_sender(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        let [taker, pages, way, _] = got.words;
        let passed = send_items(taker, pages, way).unwrap_or(0);
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [passed, 0, 0, 0]);
    }
}

fn send_items(taker: u64, pages: u64, way: u64) -> Outcome<u64> {
    let log2 = (pages * PAGE).ilog2() as u8;
    let window = Window::memory(GIVEN, LOG2, Rights::RW);
    let before = call::ticks();
    for at in (0..BATCH).step_by(pages as usize).map(|page| page * PAGE) {
        let item = [fpage(GIVEN + at, log2, Rights::RW), way, 0, 0];
        message::call_for(taker, tag(0, 0, 1), item, window)?;
    }
    let passed = call::ticks() - before;
    everyone(GIVEN, 18)?;
    Ok(passed)
}

/// A call with one item of so many pages, and the answer; what is granted is granted back by it.
pub fn item(setting: &Setting, count: u64, way: u64) -> Outcome<Samples> {
    let base = pages(setting, 2 * BATCH * PAGE)?;
    let (mut from, mut to) = (World::new(setting, 0, 0)?, World::new(setting, 0, 0)?);
    give_pages(base, from.space)?;
    // The page behind the window keeps the tables.
    let (kept, behind) = (base + BATCH * PAGE, PLACE + BATCH * PAGE);
    call::map(
        fpage(kept, 12, Rights::RW),
        to.space,
        fpage(behind, 12, Rights::RW),
        MAP,
    )?;
    let taker = to.start(taker_entry(), 0)?;
    let sender = from.start(item_sender_entry(), 0)?;
    let mut samples = Samples::new(BATCH / count);
    for round in 0..SAMPLES + 2 {
        let got = message::call(sender, tag(0, 3, 0), [taker, count, way, 0])?;
        if got.words[0] == 0 {
            return Err(Failure::new(format_args!("the pages could not be sent")));
        }
        if round >= 2 {
            samples.add(got.words[0]);
        }
    }
    from.end()?;
    to.end()?;
    Ok(samples)
}

nucleus::thread_entry!(runner_entry, runner);
/// Tells the thread that is its parameter that it runs.
fn runner(maker: u64) {
    let _ = call::ipc(maker, 0, tag(0, 1, 0), NO_TIMEOUTS, Window::NOTHING, [1, 0, 0, 0]);
}

/// A thread is made, runs, sends a message and is deleted.
pub fn thread_run(_: &Setting) -> Outcome<Samples> {
    let (me, _) = call::thread_self()?;
    sample(10, || {
        let thread = start(runner_entry(), me, 3)?;
        message::receive_from(thread)?;
        // It may have ended meanwhile.
        let _ = call::thread_delete(thread);
        Ok(())
    })
}
