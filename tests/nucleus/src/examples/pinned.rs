//! Pinned memory: a pager that gives a whole region at once and never takes it back, so that a thread
//! with deadlines runs without a fault.

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
    case::{Case, Failure, Outcome, Setting, case, ensure_eq},
    world::{World, memory},
};

/// The cases.
pub const CASES: &[Case] = &[case("examples/pinned-memory", pinned_memory)];

// begin: pinned
/// Where the region stands in the pager's space, and in its clients'.
const REGION: u64 = 0x1000_0000_0000;
/// Asks for the region: it is there when the answer comes. The window says where.
const LABEL_PIN: u64 = 100;
/// Asks how many faults there were outside of it.
const LABEL_FAULTS: u64 = 101;

nucleus::thread_entry!(pinner_entry, pinner);
/// Gives its region as one fpage of 2 MiB; answers faults from what is behind it.
fn pinner(_: u64) {
    let (mut faults, mut spare) = (0, REGION + SLOT);
    let mut next = message::receive();
    while let Ok(got) = next {
        let address = got.words[0] & !(PAGE - 1);
        next = match got.label() {
            LABEL_PIN => {
                let region = fpage(REGION, 21, Rights::RW);
                message::reply_and_wait(got.sender, tag(0, 0, 1), [region, MAP, 0, 0])
            }
            LABEL_FAULTS => message::reply_and_wait(got.sender, tag(0, 1, 0), [faults, 0, 0, 0]),
            LABEL_FAULT if address >= ROOT_IMAGE => {
                touch(address);
                message::reply_and_wait(got.sender, tag(0, 0, 1), [fpage(address, 12, Rights::RX), MAP, 0, 0])
            }
            LABEL_FAULT => {
                faults += 1;
                spare += PAGE;
                message::reply_and_wait(
                    got.sender,
                    tag(0, 0, 1),
                    [fpage(spare - PAGE, 12, Rights::RW), MAP, 0, 0],
                )
            }
            _ => message::receive(),
        };
    }
}
// end: pinned

nucleus::thread_entry!(client_entry, client);
/// Asks for the region, then uses all of it and tells how many faults that took.
fn client(parameter: u64) {
    let (to, pager) = (parameter >> 32 << 16, parameter & 0xffff_ffff);
    let window = call::memory::Window::memory(REGION, 21, Rights::RW);
    let ask = |label| message::call_for(pager, tag(label, 0, 0), [0; 4], window);
    let (Ok(_), Ok(before)) = (ask(LABEL_PIN), ask(LABEL_FAULTS)) else {
        return;
    };
    for page in 0..SLOT / PAGE {
        write(REGION + page * PAGE, page);
    }
    let sum = (0..SLOT / PAGE).map(|page| read(REGION + page * PAGE)).sum();
    if let Ok(after) = ask(LABEL_FAULTS) {
        let _ = message::send(to, tag(0, 2, 0), [after.words[0] - before.words[0], sum, 0, 0]);
    }
}

fn pinned_memory(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let Some(store) = memory(setting.root, 1).take_run(2 * SLOT) else {
        return Err(Failure::new(format_args!("no memory for a region")));
    };
    let mut world = World::new(setting, 0, 0)?;
    for half in 0..2 {
        let at = half * SLOT;
        call::map(
            fpage(store + at, 21, Rights::RW),
            world.space,
            fpage(REGION + at, 21, Rights::RW),
            MAP,
        )?;
    }
    let pager = world.start(pinner_entry(), 0)?;
    let clients = call::space_create(4096, pager, 0, 0)?;
    let parameter = me >> 16 << 32 | pager;
    call::start_thread_in(clients, client_entry(), 0x1300_0020_0000, parameter, 3)?;
    let [faults, sum, ..] = message::receive()?.words;
    let pages = SLOT / PAGE;
    ensure_eq!((faults, sum), (0, pages * (pages - 1) / 2));
    call::space_delete(clients)?;
    world.end()
}
