//! A pager on top of a pager (Liedtke 1995, Figure 1).
//!
//! The standard pager has the memory. The stacked one serves the clients' faults: it asks the standard pager for a
//! page, works on it (here: it writes its mark), and *grants* it to the client. So it has nothing itself: the client
//! has its page from the standard pager, which can take it back alone, and no page is in three spaces.

use abi::{
    Rights,
    address::{PAGE, SLOT},
    nucleus::{GRANT, LABEL_FAULT, MAP, ROOT_IMAGE, fpage, tag},
};
use nucleus::{
    call::{
        self,
        memory::{Window, read, touch, write},
    },
    message,
};

use crate::{
    case::{Case, Failure, Outcome, Setting, case, ensure, ensure_eq},
    messages::start,
    world::{World, memory},
};

/// The cases.
pub const CASES: &[Case] = &[case("examples/stacked-pager", stacked_pager)];

// begin: stacked
nucleus::thread_entry!(standard_entry, standard);
/// The standard pager: maps a page of its store to whoever asks, one after the other.
fn standard(store: u64) {
    let mut page = store;
    let mut next = message::receive();
    while let Ok(got) = next {
        let item = [fpage(page, 12, Rights::RW), MAP, 0, 0];
        page += PAGE;
        next = message::reply_and_wait(got.sender, tag(0, 0, 1), item);
    }
}

/// Where the stacked pager has a page while it works on it.
const DESK: u64 = 0x1000_0000_0000;
/// The word that it writes.
const MARK: u64 = 0x4b52_414d;

nucleus::thread_entry!(stacked_entry, stacked);
/// The stacked pager: its pages come from the standard one and go to the client for good.
fn stacked(standard: u64) {
    let window = Window::memory(DESK, 12, Rights::RW);
    let mut next = message::receive();
    while let Ok(got) = next {
        let address = got.words[0] & !(PAGE - 1);
        if got.label() != LABEL_FAULT {
            next = message::receive();
        } else if address >= ROOT_IMAGE {
            touch(address);
            next = message::reply_and_wait(got.sender, tag(0, 0, 1), [fpage(address, 12, Rights::RX), MAP, 0, 0]);
        } else {
            let Ok(_) = message::call_for(standard, tag(0, 0, 0), [0; 4], window) else {
                return;
            };
            write(DESK, MARK);
            let item = [fpage(DESK, 12, Rights::RW), GRANT, 0, 0];
            next = message::reply_and_wait(got.sender, tag(0, 0, 1), item);
        }
    }
}
// end: stacked

const HEAP: u64 = 0x1200_0000_0000;

nucleus::thread_entry!(client_entry, client);
/// Looks for the mark and changes it; asked again, looks again.
fn client(to: u64) {
    loop {
        let found = read(HEAP);
        write(HEAP, found + 1);
        if message::call(to, tag(0, 1, 0), [found, 0, 0, 0]).is_err() {
            return;
        }
    }
}

fn stacked_pager(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let Some(store) = memory(setting.root, 1).take_run(SLOT) else {
        return Err(Failure::new(format_args!("no memory for a store")));
    };
    let standard = start(standard_entry(), store, 3)?;
    let mut world = World::new(setting, 0, 0)?;
    let stacked = world.start(stacked_entry(), standard)?;
    let clients = call::space_create(4096, stacked, 0, 0)?;
    call::start_thread_in(clients, client_entry(), 0x1300_0020_0000, me, 3)?;
    let first = message::receive()?;
    ensure_eq!(first.words[0], MARK);
    // The same page again: nothing was taken.
    message::send(first.sender, 0, [0; 4])?;
    ensure_eq!(message::receive()?.words[0], MARK + 1);
    // The store has the same contents as the client.
    let page = (0..8)
        .map(|page| store + page * PAGE)
        .find(|&page| read(page) == MARK + 2);
    let Some(page) = page else {
        return Err(Failure::new(format_args!(
            "the client's page is not one of the store's"
        )));
    };
    // The standard pager's owner takes it back over the stacked one's head: the client gets another.
    let before = call::kernel_check()?.0;
    call::flush(Window::memory(page, 12, Rights::R), u64::from(Rights::RWX.bits()), 0)?;
    message::send(first.sender, 0, [0; 4])?;
    ensure_eq!(message::receive()?.words[0], MARK);
    ensure_eq!(read(page), MARK + 2);
    ensure!(call::kernel_check()?.0 > before);
    call::space_delete(clients)?;
    world.end()?;
    call::thread_delete(standard)?;
    Ok(())
}
