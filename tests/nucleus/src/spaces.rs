//! Spaces: threads in them, faults and exceptions as messages, policy, deletion.

use alloc::vec::Vec;

use abi::{
    Rights,
    address::PAGE,
    layout::PRIORITY_DEFAULT,
    nucleus::{
        ANYONE, EXCHANGE_READ, EXCHANGE_WRITE, GRANT, LABEL_EXCEPTION, MAP, Registers, THREAD_FAULTED, fpage, tag,
        timeouts,
    },
};
use nucleus::{
    call::{
        self,
        memory::{Window, read, write},
    },
    message,
};

use crate::{
    arch::{self, Held},
    case::{Case, Failure, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
    messages::start,
    world::{STACK_TOP, World, memory},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("spaces/call-between", call_between),
    case("spaces/faults", faults),
    case("spaces/policy", policy),
    case("spaces/deletion", deletion),
    case("spaces/quota", quota),
    case("spaces/rights", rights),
    case("spaces/items", items),
    case("spaces/items-behind-words", items_behind_words),
    case("spaces/faults-keep-vectors", faults_keep_vectors),
    case("spaces/exceptions", exceptions),
    case("spaces/flush-elsewhere", flush_elsewhere),
    case("spaces/giant-page", giant_page),
    case("spaces/threads-cost", threads_cost),
];

nucleus::thread_entry!(adder_entry, adder);
/// Answers with the sum of the words.
fn adder(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        let sum = got.words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [sum, 0, 0, 0]);
    }
}

fn call_between(setting: &Setting) -> Outcome {
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(adder_entry(), 0)?;
    for round in 0..100 {
        let got = message::call(server, tag(0, 4, 0), [round, 1, 2, 3])?;
        ensure_eq!(got.words, [round + 6, 0, 0, 0]);
    }
    ensure_error!(message::call(server + (1 << 16), 0, [0; 4]), NoSuchThread);
    world.end()
}

nucleus::thread_entry!(toucher_entry, toucher);
/// Writes to pages of a range, reads them back and sends the sum.
fn toucher(to: u64) {
    let base = 0x1234_0000_0000;
    for page in 0..40 {
        write(base + page * PAGE, page + 1);
    }
    let sum = (0..40).map(|page| read(base + page * PAGE)).sum();
    let _ = message::send(to, tag(0, 1, 0), [sum, 0, 0, 0]);
}

fn faults(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let mut world = World::new(setting, 0, 0)?;
    world.start(toucher_entry(), me)?;
    ensure_eq!(message::receive()?.words[0], 40 * 41 / 2);
    world.end()
}

nucleus::thread_entry!(prisoner_entry, prisoner);
/// Tries to send to the first thread of the root program, then tells its supervisor how that ended.
fn prisoner(parameter: u64) {
    let (outlaw, supervisor) = (parameter >> 32 << 16, parameter & 0xffff_ffff);
    let outcome = message::send(outlaw, 0, [0; 4]);
    let code = outcome.err().map_or(0, |error| error as u64);
    let _ = message::send(supervisor, tag(0, 1, 0), [code, 0, 0, 0]);
}

nucleus::thread_entry!(relay_entry, relay);
/// Passes one message on.
fn relay(to: u64) {
    if let Ok(got) = message::receive() {
        let _ = message::send(to, got.tag, got.words);
    }
}

fn policy(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let supervisor = start(relay_entry(), me, 3)?;
    let mut world = World::new(setting, 0, supervisor)?;
    ensure!(supervisor < 1 << 32 && me < 1 << 48);
    world.start(prisoner_entry(), (me >> 16) << 32 | supervisor)?;
    let got = message::receive()?;
    ensure_eq!(got.sender, supervisor);
    ensure_eq!(got.words[0], abi::Error::Protection as u64);
    world.end()
}

fn deletion(setting: &Setting) -> Outcome {
    for _ in 0..20 {
        let mut world = World::new(setting, 0, 0)?;
        let server = world.start(adder_entry(), 0)?;
        message::call(server, tag(0, 1, 0), [1, 0, 0, 0])?;
        let id = world.space;
        world.end()?;
        ensure_error!(message::call(server, 0, [0; 4]), NoSuchThread);
        ensure_error!(call::space_delete(id), BadAddress);
    }
    call::kernel_check()?;
    Ok(())
}

fn quota(setting: &Setting) -> Outcome {
    ensure_error!(call::space_create(1 << 40, 0, 0, 0), BadArgument);
    ensure_error!(call::space_create(u64::from(u32::MAX), 0, 0, 0), LimitReached);
    ensure_error!(call::space_create(1, 0, 0, 0), LimitReached);
    // A space with room for few tables: pages in far places are refused, and harm nobody else.
    let space = call::space_create(64 * 6, 0, 0, 0)?;
    let page = memory(setting.root, 1).take();
    let Some(page) = page else { return Ok(()) };
    let what = fpage(page, 12, Rights::RW);
    let mut refused = false;
    for far in 1..10 {
        match call::map(what, space, fpage(far << 39, 12, Rights::RW), MAP) {
            Ok(count) => ensure_eq!(count, 1),
            Err(error) => {
                ensure_eq!(error, abi::Error::LimitReached);
                refused = true;
            }
        }
    }
    ensure!(refused, "nine tables of each kind fit into six");
    call::space_delete(space)?;
    Ok(())
}

fn rights(_: &Setting) -> Outcome {
    let (_, own) = call::thread_self()?;
    ensure_error!(call::space_delete(own), Protection);
    ensure_error!(call::space_delete(own + (1 << 40)), BadAddress);
    ensure_error!(call::space_control(own, 0, 0, 0), Protection);
    let space = call::space_create(1000, 0, 0, 0)?;
    // The kernel's own memory and message buffers are not given.
    let image = fpage(abi::nucleus::ROOT_IMAGE, 12, Rights::R);
    let window = fpage(0x1000_0000_0000, 12, Rights::R);
    ensure_error!(call::map(image, space, window, MAP), Protection);
    let buffers = fpage(abi::nucleus::MESSAGE_AREA, 21, Rights::RW);
    ensure_error!(call::map(buffers, space, window, MAP), Protection);
    ensure_error!(call::map(fpage(0, 12, Rights::RW), space, buffers, MAP), Protection);
    ensure_error!(call::map(fpage(0, 12, Rights::RW), space, window, 7), BadArgument);
    ensure_error!(call::thread_priority(0, 7), Protection);
    ensure_error!(call::thread_priority(0, 8), BadArgument);
    call::space_delete(space)?;
    Ok(())
}

nucleus::thread_entry!(customer_entry, customer);
/// Asks for a page, writes to it and tells.
fn customer(to: u64) {
    let window = Window::memory(0x3000_0000_0000, 12, Rights::RW);
    let Ok(_) = message::call_for(to, tag(1, 0, 0), [0; 4], window) else {
        return;
    };
    write(0x3000_0000_0008, 77);
    let _ = message::call(to, tag(2, 0, 0), [0; 4]);
    let _ = message::receive();
}

fn items(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let mut pages = memory(setting.root, 1);
    let (Some(page), Some(second)) = (pages.take_zeroed(), pages.take_zeroed()) else {
        return Ok(());
    };
    let mut world = World::new(setting, 0, 0)?;
    let customer = world.start(customer_entry(), me)?;
    let got = message::receive()?;
    ensure_eq!((got.sender, got.label()), (customer, 1));
    // An item whose page is not ours to give is refused, and the customer still waits.
    let bad = [abi::nucleus::ROOT_IMAGE | 0xc0 | 7, MAP, 0, 0];
    ensure_error!(message::send(customer, tag(0, 0, 1), bad), Protection);
    message::send(customer, tag(0, 0, 1), [fpage(page, 12, Rights::RW), MAP, 0, 0])?;
    let got = message::receive()?;
    ensure_eq!((got.sender, got.label()), (customer, 2));
    ensure_eq!(read(page + 8), 77);
    call::flush(Window::memory(page, 12, Rights::R), u64::from(Rights::RWX.bits()), 0)?;
    // Granting takes it away from here until the space that has it is gone.
    call::map(
        fpage(second, 12, Rights::RW),
        world.space,
        fpage(0x3000_0000_0000, 12, Rights::RW),
        GRANT,
    )?;
    world.end()?;
    write(second, 5);
    ensure_eq!(read(second), 5);
    Ok(())
}

/// Where [`collector`] receives pages, and how many fit.
const COLLECTED: u64 = 0x3000_0020_0000;
const COLLECTED_LOG2: u8 = 16;
/// The label that ends it.
const ENOUGH: u64 = 9;

nucleus::thread_entry!(collector_entry, collector);
/// Receives pages, and answers with the tag, two words as they came, and the word at the start of the page whose offset is in the fourth register.
fn collector(_: u64) {
    let window = Window::memory(COLLECTED, COLLECTED_LOG2, Rights::R);
    let wait = |to, tag, words| call::ipc(to, ANYONE, tag, timeouts(0, u32::MAX), window, words);
    let mut next = wait(0, 0, [0; 4]);
    while let Ok(got) = next {
        if got.label() == ENOUGH {
            return;
        }
        if got.label() & VECTORS_THERE != 0 {
            arch::fill_vectors(7);
        }
        let at = COLLECTED + (got.words[3] & ((1 << COLLECTED_LOG2) - 1) & !(PAGE - 1));
        let words = [got.tag, got.words[0], got.words[1], read(at)];
        next = wait(got.sender, tag(0, 4, 0), words);
    }
}

/// Bits of a label: the sender has filled its vector registers, the receiver does.
const VECTORS_HERE: u64 = 16;
const VECTORS_THERE: u64 = 32;

/// Items of one page and of several, behind as many words as there may be, from and to threads with vector registers and without.
fn items_behind_words(setting: &Setting) -> Outcome {
    const PAGES: u64 = 8;
    let mut memory = memory(setting.root, 1);
    let base = memory.take_run(PAGES * PAGE).unwrap_or_default();
    ensure!(base != 0, "there is memory for it");
    for page in 0..PAGES {
        write(base + page * PAGE, 1000 + page);
    }
    let mut world = World::new(setting, 0, 0)?;
    let collector = world.start(collector_entry(), 0)?;
    for round in 0..64 {
        let (before, log2) = (round % 3, [12, 12, 13, 15][round as usize % 4]);
        let vectors = [0, VECTORS_HERE, VECTORS_THERE, VECTORS_HERE | VECTORS_THERE][round as usize / 4 % 4];
        let page = (round % PAGES) & !((1 << (log2 - 12)) - 1);
        let item = fpage(base + page * PAGE, log2, Rights::RW);
        // The last word tells where to look; beside an item behind two words there is no room, and its way, which is zero, says the first page.
        let offset = (base + page * PAGE) & ((1 << COLLECTED_LOG2) - 1);
        let words = match before {
            0 => [item, MAP, 5, offset],
            1 => [6, item, MAP, offset],
            _ => [6, 7, item, MAP],
        };
        if vectors & VECTORS_HERE != 0 {
            arch::fill_vectors(round);
        }
        let sent = tag(vectors, before, 1);
        let got = message::call(collector, sent, words)?;
        ensure_eq!((got.sender, got.words[0]), (collector, sent));
        ensure_eq!((got.words[1], got.words[2]), (words[0], words[1]));
        if before < 2 {
            ensure_eq!(got.words[3], 1000 + page);
        }
        call::flush(Window::memory(base, 15, Rights::R), u64::from(Rights::RWX.bits()), 0)?;
    }
    message::send(collector, tag(ENOUGH, 0, 0), [0; 4])?;
    world.end()
}

nucleus::thread_entry!(grower_entry, grower);
/// Fills its vector registers and touches pages; sends how often they were not what they had been.
fn grower(to: u64) {
    let mut changed = 0;
    for page in 0..8 {
        arch::fill_vectors(page + 3);
        write(COLLECTED + page * PAGE, page);
        changed += u64::from(arch::held_vectors(page + 3) != Held::Own);
    }
    let _ = message::send(to, tag(1, 1, 0), [changed, 0, 0, 0]);
}

/// A thread goes on behind a fault with the vector registers that it had.
fn faults_keep_vectors(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    let mut world = World::new(setting, 0, 0)?;
    let threads = [world.start(grower_entry(), me)?, world.start(grower_entry(), me)?];
    for _ in threads {
        let got = message::receive_within(ANYONE, 1_000_000)?;
        ensure_eq!((got.label(), got.words[0]), (1, 0));
    }
    world.end()
}

nucleus::thread_entry!(criminal_entry, criminal);
/// Runs into an exception of its choice, then tells what it found in a register afterwards.
fn criminal(parameter: u64) {
    let got = crate::arch::crime(parameter & 0xff);
    let _ = message::send(parameter >> 8 << 16, tag(0, 1, 0), [got, 0, 0, 0]);
}

fn exceptions(setting: &Setting) -> Outcome {
    let (me, _) = call::thread_self()?;
    for (number, vector) in crate::arch::CRIMES.iter().enumerate() {
        let mut world = World::new(setting, me, 0)?;
        let thread = world.start(criminal_entry(), (me >> 16) << 8 | number as u64)?;
        let mut stops = 0;
        let got = loop {
            let got = message::receive_within(ANYONE, 1_000_000)?;
            if got.label() != LABEL_EXCEPTION {
                break got;
            }
            stops += 1;
            ensure_eq!((got.sender, got.words[0]), (thread, *vector));
            let mut registers = Registers::default();
            // The registers are looked at, moved on and given back.
            let state = crate::arch::exchange(me, thread, EXCHANGE_READ, &mut registers)?;
            ensure_eq!(state, THREAD_FAULTED);
            ensure_eq!((registers.rip, registers.rsp), (got.words[2], got.words[3]));
            crate::arch::move_on(number, &mut registers);
            crate::arch::exchange(me, thread, EXCHANGE_WRITE, &mut registers)?;
            message::send(thread, 0, [0; 4])?;
        };
        ensure!(stops > 0, "exception {vector} was no message");
        ensure_eq!((got.sender, got.words[0]), (thread, 42));
        world.end()?;
    }
    Ok(())
}

/// A page that comes and goes, and one behind it that stays.
const LENT: u64 = 0x3000_0000_0000;

nucleus::thread_entry!(copier_entry, copier);
/// Copies the word in the one page to the other, for ever.
fn copier(_: u64) {
    loop {
        write(LENT + PAGE, read(LENT));
    }
}

/// When a flush is done nobody has the page any more, on whichever processor he runs. The space's pager puts a page of zeroes
/// in its place, so what is written to the page that was lent must never be seen.
fn flush_elsewhere(setting: &Setting) -> Outcome {
    let base = memory(setting.root, 1)
        .take_run(2 * PAGE)
        .ok_or_else(|| Failure::new(format_args!("no memory")))?;
    let seen = base + PAGE;
    let mut world = World::new(setting, 0, 0)?;
    let space = world.space;
    let lend = |from: u64, to: u64| {
        let there = fpage(to, 12, Rights::RW);
        call::map(fpage(from, 12, Rights::RW), space, there, MAP)
    };
    let wait_for = |word: u64| {
        for _ in 0..5000 {
            if read(seen) == word {
                return Ok(());
            }
            ensure_error!(message::receive_within(ANYONE, 200), TimedOut);
        }
        Err(Failure::new(format_args!("{word} was not seen, but {}", read(seen))))
    };
    write(base, 1);
    write(seen, 0);
    lend(seen, LENT + PAGE)?;
    lend(base, LENT)?;
    let copier = world.start(copier_entry(), 0)?;
    for round in 0..40 {
        wait_for(1)?;
        call::flush(Window::memory(base, 12, Rights::R), u64::from(Rights::RWX.bits()), 0)?;
        write(base, 2);
        wait_for(0)?;
        ensure!(
            read(seen) == 0,
            "the page was used after it was taken, in round {round}"
        );
        write(base, 1);
        lend(base, LENT)?;
    }
    call::thread_delete(copier)?;
    world.end()
}

/// Where a page of 1 GiB is seen; a multiple of its size.
const GIANT: u64 = 0x3000_0000_0000;
/// Its size, and the logarithm.
const GIANT_BYTES: u64 = 1 << GIANT_LOG2;
const GIANT_LOG2: u8 = 30;
/// With that much memory a whole page of 1 GiB is among it, wherever the board has its holes.
const ROOMY_BYTES: u64 = 5 << 29;
/// Places in it: its first word, one in a slot in the middle, its last.
const GIANT_PLACES: [u64; 3] = [0, 700 << 20, GIANT_BYTES - 8];

nucleus::thread_entry!(reader_entry, reader);
/// Answers with the word at an address.
fn reader(_: u64) {
    let mut next = message::receive();
    while let Ok(got) = next {
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [read(got.words[0]), 0, 0, 0]);
    }
}

fn giant_page(setting: &Setting) -> Outcome {
    let whole = |(start, end): (u64, u64)| {
        let base = start.next_multiple_of(GIANT_BYTES);
        (base + GIANT_BYTES <= end).then_some(base)
    };
    let bytes: u64 = setting.root.memory().map(|(start, end)| end - start).sum();
    let Some(base) = setting.root.memory().find_map(whole) else {
        ensure!(bytes < ROOMY_BYTES, "{bytes:#x} bytes have no aligned GiB");
        return Ok(());
    };
    let what = fpage(base, GIANT_LOG2, Rights::RW);
    let window = fpage(GIANT, GIANT_LOG2, Rights::RW);
    // Two tables and one node: in smaller pages it would cost a hundred times as much.
    let poor = call::space_create(3 * 64, 0, 0, 0)?;
    ensure_eq!(call::map(what, poor, window, MAP)?, GIANT_BYTES / PAGE);
    call::space_delete(poor)?;

    let mut world = World::new(setting, 0, 0)?;
    let reader = world.start(reader_entry(), 0)?;
    let word = |place: u64| Ok::<u64, Failure>(message::call(reader, tag(0, 1, 0), [GIANT + place, 0, 0, 0])?.words[0]);
    for place in GIANT_PLACES {
        write(base + place, place + 1);
    }
    ensure_eq!(call::map(what, world.space, window, MAP)?, GIANT_BYTES / PAGE);
    for place in GIANT_PLACES {
        ensure_eq!(word(place)?, place + 1);
    }
    // A page of it goes: what is left are smaller pages, and there is zeroed memory from the pager in its place.
    let gone = GIANT_PLACES[1] & !(PAGE - 1);
    call::flush(
        Window::memory(base + gone, 12, Rights::R),
        u64::from(Rights::RWX.bits()),
        0,
    )?;
    write(base + gone + PAGE, 5);
    let left = [
        word(GIANT_PLACES[0])?,
        word(GIANT_PLACES[1])?,
        word(gone + PAGE)?,
        word(GIANT_PLACES[2])?,
    ];
    ensure_eq!(left, [1, 0, 5, GIANT_BYTES - 7]);
    call::kernel_check()?;
    world.end()
}

fn threads_cost(setting: &Setting) -> Outcome {
    // Room for its tables and a few threads: there are places for many more. Each waits for this thread, its pager, for ever.
    let (me, _) = call::thread_self()?;
    let space = call::space_create(64 * 12, me, 0, 0)?;
    let another = || call::start_thread_in(space, adder_entry(), STACK_TOP, 0, PRIORITY_DEFAULT);
    let mut threads = Vec::new();
    let refused = loop {
        match another() {
            Ok(thread) => threads.push(thread),
            Err(error) => break error,
        }
    };
    ensure_eq!(refused, abi::Error::LimitReached);
    ensure!((1..12).contains(&threads.len()), "{} threads", threads.len());
    // Others are not harmed, and what one gives back is there for the next.
    let mut world = World::new(setting, 0, 0)?;
    let server = world.start(adder_entry(), 0)?;
    ensure_eq!(message::call(server, tag(0, 1, 0), [7, 0, 0, 0])?.words[0], 7);
    world.end()?;
    for _ in 0..20 {
        call::thread_delete(threads.pop().unwrap_or(0))?;
        threads.push(another()?);
    }
    call::kernel_check()?;
    call::space_delete(space)?;
    call::kernel_check()?;
    Ok(())
}
