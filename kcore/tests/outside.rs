//! The two ends of the machine calls against each other: a machine that is reached through them behaves like one that
//! is reached directly, and no number whatever brings the kernel down.

mod fake;

use std::cell::RefCell;

use abi::{
    Error, Rights,
    address::{PAGE, SLOT, USER_END},
    machine::{MachineCall, TABLE, Upcall, WINDOW, WINDOW_BYTES},
};
use fake::{Fake, kernel};
use kcore::{
    Frame, Hardware, Kernel, Leaf, Machine, PageEntry, Shortage, SpaceId, ThreadId,
    event::{Access, Event},
    machine::{Intercept, Stacks},
    outside::{Gate, Place, Remote, enter_registers, window},
    portal::Stale,
    scheduler::Standing,
    thread::{Context, Resumed},
    wait::Key,
};

/// A kernel, and the way to it by machine calls.
struct Through {
    kernel: RefCell<Kernel<Fake>>,
    place: Place,
}

impl Through {
    fn new() -> Remote<Self> {
        let mut kernel = kernel(64);
        kernel.hardware.typed.push(b'k');
        let place = Place {
            space: kernel.space_create().expect("a space"),
            exchange: kernel.frame_zeroed().expect("a frame"),
        };
        Remote {
            gate: Self {
                kernel: RefCell::new(kernel),
                place,
            },
        }
    }
}

impl Gate for Through {
    fn call(&self, call: MachineCall, arguments: [u64; 6]) -> Result<(u64, u64), Error> {
        self.kernel.borrow_mut().machine_call(call, arguments, self.place)
    }

    fn exchange(&self) -> u32 {
        self.place.exchange.number()
    }

    fn read(&self, frame: Frame, offset: usize, into: &mut [u8]) {
        self.kernel.borrow().hardware.read(frame, offset, into);
    }

    fn write(&self, frame: Frame, offset: usize, from: &[u8]) {
        self.kernel.borrow_mut().hardware.write(frame, offset, from);
    }

    fn copy(&self, from: Frame, to: Frame) {
        self.kernel.borrow_mut().hardware.copy(from, to);
    }

    fn entry(&self, leaf: Leaf, index: usize) -> u64 {
        self.kernel.borrow().hardware.table(leaf.frame())[index].load(std::sync::atomic::Ordering::Relaxed)
    }

    fn heap(&self) -> (u64, u64) {
        (1, 2)
    }
}

/// Entries of a leaf that share a frame: one that may be written, the same once more, one that is withheld already.
fn share_leaves(
    machine: &mut impl Machine,
    (leaf, frame): (Leaf, Frame),
    see: &mut impl FnMut(&str, &dyn std::fmt::Debug),
) {
    machine.leaf_set(leaf, 3, Some(PageEntry::new(frame, Rights::RW)));
    for index in [3, 3, 511] {
        see("taken", &machine.leaf_share(leaf, index..index + 1, leaf, 4));
        see("shared", &(machine.leaf_get(leaf, index), machine.leaf_get(leaf, 4)));
        see("references", &machine.frame_references(frame));
        machine.leaf_clear(leaf, 4..5);
        see("cleared", &(machine.leaf_get(leaf, 4), machine.frame_references(frame)));
    }
    // Several at once, of which the last one may be written.
    machine.leaf_share(leaf, 3..4, leaf, 4);
    machine.leaf_set(leaf, 4, Some(PageEntry::new(frame, Rights::RW)));
    see("taken", &machine.leaf_share(leaf, 3..5, leaf, 510));
    see("shared", &[3, 4, 510, 511].map(|index| machine.leaf_get(leaf, index)));
    see("references", &machine.frame_references(frame));
    machine.leaf_clear(leaf, 510..512);
    machine.leaf_clear(leaf, 4..5);
    see(
        "cleared",
        &(
            [4, 510, 511].map(|index| machine.leaf_get(leaf, index)),
            machine.frame_references(frame),
        ),
    );
    machine.leaf_set(leaf, 3, None);
}

/// Tables of a space go in pieces.
fn trim(machine: &mut impl Machine, space: SpaceId, see: &mut impl FnMut(&str, &dyn std::fmt::Debug)) {
    let leaf = machine.leaf_create().expect("a leaf");
    machine.link(space, 5, leaf, Rights::R).expect("a link");
    let trimmed: Vec<Option<u64>> = (0..4).map(|_| machine.space_trim(space, 1)).collect();
    see("trimmed", &(trimmed, machine.space_tables(space)));
    see("trimmed", &machine.space_trim(space, 1000));
    machine.leaf_destroy(leaf);
}

fn devices(machine: &mut impl Machine, see: &mut impl FnMut(&str, &dyn std::fmt::Debug)) {
    see("clock", &(machine.now_ns(), machine.boot_time_ns()));
    see("written", &machine.console_write(0, b"hello"));
    see("read", &[1, 0, 0].map(|stream| machine.console_read(stream)));
    machine.log(format_args!("a line of {} and {}", 2, "parts"));
    machine.stir_random([5, 6]);
    see("random", &machine.random());
    see("boot", &machine.boot_report());
}

/// A frame with a hold beside its other references.
fn hold_frame(machine: &mut impl Machine, frame: Frame, see: &mut impl FnMut(&str, &dyn std::fmt::Debug)) {
    machine.frame_hold(frame);
    see("held", &(machine.frame_references(frame), machine.frame_is_held(frame)));
    // The hold goes first, then another reference.
    for _ in 0..2 {
        machine.frame_let_go(frame);
        see(
            "let go",
            &(machine.frame_references(frame), machine.frame_is_held(frame)),
        );
    }
}

/// A bit of everything, with all that can be seen of it.
fn story(machine: &mut impl Machine) -> Vec<String> {
    let mut seen = Vec::new();
    let mut see = |what: &str, value: &dyn std::fmt::Debug| seen.push(format!("{what}: {value:?}"));
    let frame = machine.frame_zeroed().expect("a frame");
    let other = machine.frame_any().expect("a frame");
    machine.frame_share(frame);
    see("references", &machine.frame_references(frame));
    hold_frame(machine, frame, &mut see);
    machine.frame_share(frame);
    machine.frame_write(frame, 100, b"text");
    machine.frame_copy(frame, other);
    let mut text = [0; 4];
    machine.frame_read(other, 100, &mut text);
    see("text", &text);
    see("counts", &(machine.frames_free(), machine.frames_total()));

    let leaf = machine.leaf_create().expect("a leaf");
    machine.leaf_set(leaf, 511, Some(PageEntry::new(frame, Rights::RW).withheld()));
    see("entry", &(machine.leaf_get(leaf, 511), machine.leaf_get(leaf, 0)));
    share_leaves(machine, (leaf, frame), &mut see);
    let space = machine.space_create().expect("a space");
    machine.link(space, 4096, leaf, Rights::RX).expect("a link");
    see("tables", &machine.space_tables(space));
    machine.flush_page(0x1000);
    machine.flush_space(space);
    machine.flush_everything();

    let thread = machine
        .thread_create(space, 0x1_0000, 0x2_0000, [1, 2, 3, 4], Standing::new(0, 5))
        .expect("a thread");
    see(
        "thread",
        &(thread, machine.thread_is_ready(thread), machine.thread_space(thread)),
    );
    let mut context = machine.thread_context(thread);
    see("context", &context);
    context.r15 = 15;
    context.rip = 0x1234;
    machine.thread_set_context(thread, &context);
    see("context", &machine.thread_context(thread));
    machine.thread_wake(thread, Resumed::TimedOut);
    see("ready", &machine.thread_is_ready(thread));
    machine.thread_set_priority(thread, 7);
    see("dropped", &machine.thread_drop_operation(thread));
    see(
        "time",
        &(machine.thread_time_ns(thread), machine.thread_waited_ns(thread)),
    );

    let callee = machine.space_create().expect("a space");
    see("depth", &machine.portal_depth(thread));
    see(
        "no stack",
        &machine.portal_enter(thread, callee, 0x5000, [9, 8, 7, 6], Stacks::Open),
    );
    machine.portal_add_stack(callee, 0x9000);
    see(
        "entered",
        &machine.portal_enter(thread, callee, 0x5000, [9, 8, 7, 6], Stacks::Open),
    );
    see(
        "inside",
        &(
            machine.portal_depth(thread),
            machine.portal_frame(thread, 0),
            machine.portal_frame(thread, 1),
        ),
    );
    see("context", &machine.thread_context(thread));
    machine.portal_cache(space, 0x5000, 1, callee);
    machine.portal_intercept(thread, Intercept::Yes);
    for stale in [Stale::CallsOf(space), Stale::CallsInto(callee), Stale::All] {
        machine.portal_forget(stale);
    }
    see("left", &machine.portal_leave(thread, 1, 2, 3));
    see("left", &machine.portal_leave(thread, 1, 2, 3));
    see("context", &machine.thread_context(thread));
    see("woken", &(machine.wake(Key::Semaphore(8), 3), machine.wake_words(0..8)));
    see("oldest", &machine.oldest(Key::Semaphore(8)));
    machine.thread_suspend(thread);
    machine.thread_destroy(thread);

    machine.unlink(space, 4096);
    machine.leaf_set(leaf, 511, None);
    machine.leaf_destroy(leaf);
    trim(machine, space, &mut see);
    machine.space_destroy(space);
    machine.space_destroy(callee);
    machine.frame_release(frame);
    machine.frame_release(frame);
    machine.frame_release(other);
    see("counts", &(machine.frames_free(), machine.frames_total()));
    devices(machine, &mut see);
    let mut spaces = 0;
    let shortage = loop {
        match machine.space_create() {
            Ok(_) => spaces += 1,
            Err(shortage) => break shortage,
        }
    };
    see(
        "shortage",
        &(spaces > 0, shortage, machine.frame_any() == Err(Shortage::Frames)),
    );
    seen
}

#[test]
fn a_machine_outside_is_a_machine() {
    let mut outside = Through::new();
    let there = story(&mut outside);
    let inside = &mut Through::new().gate.kernel.into_inner();
    let here = story(inside);
    for (there, here) in there.iter().zip(&here) {
        assert_eq!(there, here);
    }
    assert_eq!(there.len(), here.len());
    let outside = outside.gate.kernel.into_inner();
    assert_eq!(outside.hardware.logged, "a line of 2 and parts\n");
    assert_eq!(outside.hardware.logged, inside.hardware.logged);
    assert_eq!(
        (&outside.hardware.stirred, &inside.hardware.stirred),
        (&vec![[5, 6]], &vec![[5, 6]])
    );
}

#[test]
fn a_call_that_the_server_outside_allows_is_remembered_until_it_is_stale() {
    let mut remote = Through::new();
    let [caller, callee] = [0; 2].map(|_| remote.space_create().expect("a space"));
    let way = |remote: &Remote<Through>| remote.gate.kernel.borrow().portal_way(caller, 0x5000, 1);
    for stale in [Stale::CallsOf(caller), Stale::CallsInto(callee), Stale::All] {
        remote.portal_cache(caller, 0x5000, 1, callee);
        assert_eq!(way(&remote), Some(callee));
        remote.portal_forget(stale);
        assert_eq!(way(&remote), None, "{stale:?}");
    }
}

#[test]
fn a_priority_that_was_set_counts() {
    let mut remote = Through::new();
    let space = remote.space_create().expect("a space");
    let [first, second] = [0; 2].map(|_| {
        let thread = remote.thread_create(space, 0x1_0000, 0x2_0000, [0; 4], Standing::new(0, 3));
        thread.expect("a thread")
    });
    for thread in [first, second] {
        remote.thread_wake(thread, Resumed::First);
    }
    remote.thread_set_priority(second, 5);
    let next = remote.gate.kernel.borrow_mut().schedule();
    assert_eq!(next, Some(second.index() as u32));
}

#[test]
fn a_thread_is_answered_while_another_one_has_the_processor() {
    let mut remote = Through::new();
    let space = remote.space_create().expect("a space");
    let [waits, runs] = [0; 2].map(|_| {
        let thread = remote.thread_create(space, 0x1_0000, 0x2_0000, [0; 4], Standing::new(0, 3));
        thread.expect("a thread")
    });
    let key = Key::Semaphore(8);
    remote.thread_wake(waits, Resumed::First);
    let schedule = |remote: &Remote<Through>| remote.gate.kernel.borrow_mut().schedule();
    schedule(&remote);
    remote.gate.kernel.borrow_mut().park(key, None, None);
    assert_eq!(remote.oldest(key), Some((waits, space)));
    let answered = remote.gate.call(MachineCall::ThreadAnswer, [waits.0, 7, 8, 0, 0, 0]);
    assert_eq!(answered, Err(Error::BadArgument), "it would run where the server does");
    remote.thread_wake(runs, Resumed::First);
    assert_eq!(schedule(&remote), Some(runs.index() as u32));
    remote.thread_answer(waits, 7, 8);
    let context = remote.thread_context(waits);
    assert_eq!((context.rax, context.rdx, context.rsi), (0, 7, 8));
    assert!(remote.thread_is_ready(waits));
    assert_eq!(remote.oldest(key), None);
}

/// A line that is too long loses its end.
#[test]
fn a_line_of_the_log_is_cut() {
    let mut outside = Through::new();
    outside.log(format_args!("{}{}", "a".repeat(500), "b".repeat(500)));
    let logged = outside.gate.kernel.into_inner().hardware.logged;
    assert_eq!(logged, "a".repeat(500) + &"b".repeat(12) + "\n");
}

#[test]
fn no_number_brings_the_kernel_down() {
    let mut random = fake::Random(1);
    let mut answers = [0; 2];
    for round in 0..20 {
        let remote = Through::new();
        let place = remote.gate.place;
        let mut kernel = remote.gate.kernel.into_inner();
        for _ in 0..2000 {
            let info = &TABLE[random.below(TABLE.len())];
            let call = MachineCall::from_number(info.number).expect("a call");
            // The kernel cannot know these to be wrong: the last reference to a frame that is in use, and a leaf or a space
            // that still is. The server answers for them, and the decision says so.
            if matches!(
                call,
                MachineCall::FrameRelease
                    | MachineCall::FrameLetGo
                    | MachineCall::LeafDestroy
                    | MachineCall::SpaceDestroy
                    | MachineCall::Link
                    | MachineCall::LeafSet
                    | MachineCall::LeafShare
                    | MachineCall::LeafClear
            ) {
                continue;
            }
            let arguments: [u64; 6] = std::array::from_fn(|_| match random.below(4) {
                0 => random.next(),
                1 => u64::MAX >> random.below(64),
                2 => 1 << 16 | random.below(4) as u64,
                _ => random.below(70) as u64,
            });
            answers[usize::from(kernel.machine_call(call, arguments, place).is_ok())] += 1;
        }
        assert!(kernel.spaces().exists(place.space), "round {round}");
    }
    assert!(answers[0] > 1000 && answers[1] > 1000, "{answers:?}");
}

#[test]
fn what_does_not_exist_is_an_error() {
    let remote = Through::new();
    let (gate, place) = (&remote.gate, remote.gate.place);
    let call = |call, arguments| gate.call(call, arguments);
    let frames = u64::from(gate.kernel.borrow().frames().ranges()[0].1);
    let own = u64::from(place.space.0);
    let leaf = call(MachineCall::LeafCreate, [0; 6]).expect("a leaf").0;
    let entry = |frame: u64| frame << 12 | 7;
    for (number, arguments, error) in [
        (MachineCall::FrameShare, [frames, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::FrameShare, [1 << 40, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::FrameHold, [frames, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::FrameLetGo, [frames, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::LeafSet, [leaf, 512, 0, 0, 0, 0], Error::BadArgument),
        (
            MachineCall::LeafSet,
            [leaf, 0, entry(frames), 0, 0, 0],
            Error::BadArgument,
        ),
        (MachineCall::LeafShare, [leaf, 0, 1, leaf, 1, 0], Error::BadArgument),
        (MachineCall::LeafShare, [leaf, 0, 0, leaf, 513, 0], Error::BadArgument),
        (MachineCall::LeafClear, [leaf, 0, 1, 0, 0, 0], Error::BadArgument),
        (MachineCall::LeafClear, [leaf, 511, 2, 0, 0, 0], Error::BadArgument),
        (MachineCall::LeafClear, [leaf, 2, u64::MAX, 0, 0, 0], Error::BadArgument),
        (MachineCall::SpaceDestroy, [own, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::SpaceTables, [77, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::Link, [own, 2048, leaf, 4, 0, 0], Error::BadArgument),
        (MachineCall::ThreadSpace, [5, 0, 0, 0, 0, 0], Error::NoSuchThread),
        (MachineCall::ShareOpen, [1 << 24, 0, 0, 0, 0, 0], Error::BadArgument),
        (
            MachineCall::ThreadContext,
            [u64::MAX, 0, 0, 0, 0, 0],
            Error::NoSuchThread,
        ),
        (MachineCall::ConsoleWrite, [0, 4097, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::Log, [u64::MAX, 0, 0, 0, 0, 0], Error::BadArgument),
        (MachineCall::Wake, [5, 77, 1, 0, 0, 0], Error::BadArgument),
        (MachineCall::Wake, [11, 0, 1, 0, 0, 0], Error::BadArgument),
        (MachineCall::Ready, [0; 6], Error::BadCall),
    ] {
        assert_eq!(call(number, arguments), Err(error), "{number:?}{arguments:?}");
    }
    let [space, callee] = [0; 2].map(|_| call(MachineCall::SpaceCreate, [0; 6]).expect("a space").0);
    let thread = [space, 0x1_0000, 0x2_0000, 0, 0, 0];
    let (thread, _) = call(MachineCall::ThreadCreate, thread).expect("a thread");
    for (number, arguments) in [
        (MachineCall::ThreadCreate, [space, USER_END, 0x2_0000, 0, 0, 0]),
        (MachineCall::PortalCache, [space, USER_END, 0, callee, 0, 0]),
        (MachineCall::PortalEnter, [thread, callee, USER_END, 0, 0, 0]),
    ] {
        assert_eq!(call(number, arguments), Err(Error::BadArgument), "{number:?}");
    }
    for slot in [1 << 26, (1 << 26) - 1, u64::MAX] {
        let link = [space, slot, leaf, 4, 0, 0];
        assert_eq!(call(MachineCall::Link, link), Err(Error::BadArgument), "slot {slot:#x}");
    }
}

#[test]
fn a_context_cannot_raise_its_privilege() {
    let mut remote = Through::new();
    let space: SpaceId = remote.space_create().expect("a space");
    let thread: ThreadId = remote
        .thread_create(space, 0x1000, 0x2000, [0; 4], Standing::new(0, 3))
        .expect("a thread");
    let wanted = Context {
        rip: 0x3000,
        cs: 8,
        ss: 16,
        rflags: u64::MAX,
        ..Context::default()
    };
    remote.thread_set_context(thread, &wanted);
    let got = remote.thread_context(thread);
    assert_eq!((got.rip, got.cs, got.ss), (0x3000, 0x23, 0x1b));
    assert_eq!(got.rflags & (3 << 12 | 1 << 17 | 3 << 19), 0, "ports, virtual mode");
}

#[test]
fn an_event_enters_the_server_in_registers() {
    let thread = ThreadId(40);
    let call = |resumed| Event::Call {
        thread,
        number: 41,
        arguments: [1, 2, 3, 4, 5, 6],
        resumed,
    };
    let fault = Event::Fault {
        thread,
        address: 42,
        access: Access::Write,
    };
    let exception = Event::Exception {
        thread,
        kind: 43,
        address: 44,
    };
    let write = u64::from(Rights::W.bits());
    for (event, upcall, first, rest) in [
        (call(Resumed::First), Upcall::Call, [40, 41, 1], [2, 3, 4, 5, 6]),
        (call(Resumed::Woken), Upcall::CallWoken, [40, 41, 1], [2, 3, 4, 5, 6]),
        (
            call(Resumed::TimedOut),
            Upcall::CallTimedOut,
            [40, 41, 1],
            [2, 3, 4, 5, 6],
        ),
        (fault, Upcall::Fault, [40, 42, write], [0; 5]),
        (exception, Upcall::Exception, [40, 43, 44], [0; 5]),
        (Event::Interrupt, Upcall::Interrupt, [0; 3], [0; 5]),
        (Event::Poll, Upcall::Poll, [0; 3], [0; 5]),
    ] {
        let mut context = Context::default();
        enter_registers(&mut context, &event);
        assert_eq!(context.rbx, upcall as u64, "{event:?}");
        assert_eq!([context.rdi, context.rsi, context.rdx], first, "{event:?}");
        let others = [context.r10, context.r8, context.r9, context.r12, context.r13];
        assert_eq!(others, rest, "{event:?}");
    }
}

#[test]
fn nothing_is_looked_at_behind_the_addresses_of_programs() {
    let mut kernel = kernel(4);
    let root = kernel.frame_zeroed().expect("a frame");
    // One table that stands for all: every address is the table itself.
    for entry in kernel.hardware.table(root) {
        entry.store(root.physical() | 7, std::sync::atomic::Ordering::Relaxed);
    }
    let look = |address| window::look(root, address, &kernel.hardware);
    assert_eq!(look(USER_END - 1), Some((root, 4095)));
    assert_eq!(look(USER_END), None);
}

#[test]
fn the_window_shows_the_memory_that_it_is_told_to_and_no_other() {
    let mut kernel = kernel(20);
    let root = kernel.frame_zeroed().expect("a frame");
    let free = kernel.frames_free();
    let shown = |kernel: &Kernel<Fake>, at: u64| window::look(root, WINDOW + at, &kernel.hardware);
    let show = |kernel: &mut Kernel<Fake>, from: u64, to: u64| {
        let (frames, hardware) = kernel.frames_mut();
        window::show(root, from, to, frames, hardware)
    };
    // Pages, whole slots and pages again; then what is beside them, in tables that are there.
    let (first, last) = (SLOT - 3 * PAGE, 3 * SLOT + 2 * PAGE);
    show(&mut kernel, first, last).expect("tables");
    let tables = free - kernel.frames_free();
    assert_eq!(tables, 4, "two upper tables, and one for each slot that is not whole");
    show(&mut kernel, first - 2 * PAGE, first).expect("tables");
    show(&mut kernel, last, last + PAGE).expect("tables");
    assert_eq!(free - kernel.frames_free(), tables);
    let (first, last) = (first - 2 * PAGE, last + PAGE);
    for at in (0..4 * SLOT).step_by(PAGE as usize) {
        let expected = (first..last).contains(&at).then_some(((at / PAGE) as u32, 8));
        let found = shown(&kernel, at + 8).map(|(frame, offset)| (frame.number(), offset));
        assert_eq!(found, expected, "{at:#x}");
    }
    // Beyond a gibibyte, and at the end of the window.
    let (far, free) = (WINDOW_BYTES - SLOT, kernel.frames_free());
    show(&mut kernel, far, WINDOW_BYTES).expect("tables");
    assert_eq!(
        free - kernel.frames_free(),
        1,
        "one slot is an entry of the table above leaves"
    );
    assert_eq!(
        shown(&kernel, WINDOW_BYTES - 1).map(|(frame, offset)| (u64::from(frame.number()), offset)),
        Some(((WINDOW_BYTES - 1) / PAGE, 4095))
    );
    assert_eq!(shown(&kernel, far - 1), None);
    assert_eq!(show(&mut kernel, far, WINDOW_BYTES + PAGE), Err(Shortage::Frames));
    // A part of a large page may be asked for once more: it is shown already, and its memory is no table.
    let before = kernel.frames_free();
    show(&mut kernel, SLOT, SLOT + PAGE).expect("shown");
    show(&mut kernel, 2 * SLOT - PAGE, 3 * SLOT).expect("shown");
    for at in [SLOT, SLOT + PAGE, 2 * SLOT - PAGE, 2 * SLOT, 3 * SLOT - PAGE] {
        let found = shown(&kernel, at).map(|(frame, _)| u64::from(frame.number()));
        assert_eq!(found, Some(at / PAGE), "{at:#x}");
    }
    assert_eq!(kernel.frames_free(), before);
    // A slot in which pages are shown already gets the others one by one.
    show(&mut kernel, 0, SLOT).expect("tables");
    assert_eq!(shown(&kernel, PAGE).map(|(frame, _)| frame.number()), Some(1));
}

#[test]
fn threads_that_wait_are_found_and_woken() {
    let mut remote = Through::new();
    let space = remote.space_create().expect("a space");
    for key in [Key::Semaphore(8), Key::Address(8)] {
        let thread = remote.thread_create(space, 0x1_0000, 0x2_0000, [0; 4], Standing::new(0, 3));
        let thread = thread.expect("a thread");
        remote.thread_wake(thread, Resumed::First);
        let index = remote.gate.kernel.borrow_mut().schedule();
        assert_eq!(index, Some(thread.index() as u32));
        remote.gate.kernel.borrow_mut().park(key, None, None);
        assert_eq!(remote.oldest(key), Some((thread, space)));
        let woken = match key {
            Key::Address(_) => remote.wake_words(0..16),
            _ => remote.wake(key, 2),
        };
        assert_eq!((woken, remote.oldest(key)), (1, None));
        remote.thread_destroy(thread);
    }
}
