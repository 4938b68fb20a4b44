//! Two memory managers beside each other on σ₀.
//!
//! Each is a thread in a space of its own with 2 MiB of memory from σ₀, and the pager of its clients'
//! space. They divide nothing but the machine: one hands out pages in ascending order and counts them, the
//! other in descending order. Neither can name the other's memory.

use abi::{
    Rights,
    address::{PAGE, SLOT},
    nucleus::{LABEL_FAULT, MAP, ROOT_IMAGE, fpage, tag},
};
use nucleus::{
    call::{
        self,
        memory::{read, touch, write},
    },
    message,
};

use crate::{
    case::{Case, Failure, Outcome, Setting, case, ensure, ensure_eq},
    world::{World, memory},
};

/// The cases.
pub const CASES: &[Case] = &[case("examples/two-managers", two_managers)];

// begin: manager
/// Where a manager's memory stands in its space.
const STORE: u64 = 0x1000_0000_0000;
/// Asks a manager how many pages it has given; everything else is a fault.
const LABEL_COUNT: u64 = 100;

nucleus::thread_entry!(manager_entry, manager);
/// Serves the faults of its clients from its store: upwards (0) or downwards (1).
fn manager(downwards: u64) {
    let pages = SLOT / PAGE;
    let mut given = 0;
    let mut next = message::receive();
    while let Ok(got) = next {
        let address = got.words[0] & !(PAGE - 1);
        next = if got.label() == LABEL_COUNT {
            message::reply_and_wait(got.sender, tag(0, 1, 0), [given, 0, 0, 0])
        } else if got.label() != LABEL_FAULT || given == pages {
            // Not for us, or nothing left: whoever asks waits for ever.
            message::receive()
        } else if address >= ROOT_IMAGE {
            // The program itself: our own pager has it.
            touch(address);
            message::reply_and_wait(got.sender, tag(0, 0, 1), [fpage(address, 12, Rights::RX), MAP, 0, 0])
        } else {
            let number = if downwards == 1 { pages - 1 - given } else { given };
            given += 1;
            let page = STORE + number * PAGE;
            for word in (page..page + PAGE).step_by(8) {
                write(word, 0);
            }
            message::reply_and_wait(got.sender, tag(0, 0, 1), [fpage(page, 12, Rights::RW), MAP, 0, 0])
        };
    }
}
// end: manager

/// The address that a client writes to.
const HEAP: u64 = 0x1200_0000_0000;
/// Pages that a client touches.
const TOUCHED: u64 = 100;

nucleus::thread_entry!(client_entry, client);
/// Writes to its heap, reads it again and tells the sum.
fn client(parameter: u64) {
    let (to, seed) = (parameter >> 8 << 16, parameter & 0xff);
    let mut fresh = 0;
    for page in 0..TOUCHED {
        fresh |= read(HEAP + page * PAGE);
        write(HEAP + page * PAGE, seed + page);
    }
    let sum = (0..TOUCHED).map(|page| read(HEAP + page * PAGE)).sum();
    let _ = message::send(to, tag(0, 3, 0), [sum, seed, fresh, 0]);
}

fn two_managers(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let mut memory = memory(setting.root, 1);
    let mut managers = alloc::vec::Vec::new();
    for direction in 0..2 {
        let mut world = World::new(setting, 0, 0)?;
        let Some(store) = memory.take_run(SLOT) else {
            return Err(Failure::new(format_args!("no memory for a store")));
        };
        call::map(
            fpage(store, 21, Rights::RW),
            world.space,
            fpage(STORE, 21, Rights::RW),
            MAP,
        )?;
        let manager = world.start(manager_entry(), direction)?;
        let clients = call::space_create(4096, manager, 0, 0)?;
        managers.push((world, manager, clients, store));
    }
    for (number, (_, _, clients, _)) in managers.iter().enumerate() {
        call::start_thread_in(
            *clients,
            client_entry(),
            0x1300_0020_0000,
            (me >> 16 << 8) | (number as u64 + 1),
            3,
        )?;
    }
    for _ in 0..2 {
        let [sum, seed, fresh, _] = message::receive()?.words;
        ensure_eq!(sum, (0..TOUCHED).map(|page| seed + page).sum::<u64>());
        ensure_eq!(fresh, 0);
    }
    for (direction, (world, manager, clients, store)) in managers.into_iter().enumerate() {
        let given = message::call(manager, tag(LABEL_COUNT, 0, 0), [0; 4])?.words[0];
        ensure!((TOUCHED + 1..TOUCHED + 8).contains(&given), "{given} pages were given");
        // A client that took pages from the top left those at the bottom alone, and the other way round.
        let untouched = if direction == 0 { store + SLOT - PAGE } else { store };
        ensure_eq!(read(untouched), 0);
        call::space_delete(clients)?;
        world.end()?;
    }
    Ok(())
}
