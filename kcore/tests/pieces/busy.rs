//! Busy servers under random events, one piece at a time, judged by a model: a message arrives once or its sender hears why not, timeouts are kept, and nobody
//! waits for somebody who waits for him, or who is gone.
#![allow(
    clippy::struct_excessive_bools,
    clippy::too_many_lines,
    reason = "a judge looks at many things at once"
)]

use abi::{
    Error, Rights,
    nucleus::{
        ANYONE, Call, EXCHANGE_READ, EXCHANGE_START, EXCHANGE_STOP, EXCHANGE_WRITE, GRANT, LINK, MAP, NEVER,
        TAG_KERNEL, TAG_LABEL_SHIFT, fpage, tag, timeouts,
    },
};
use std::sync::atomic::Ordering::Relaxed;

use kcore::{
    Hardware, Kernel, SpaceId, ThreadId,
    bare::Bare,
    event::{Access, Event, Outcome},
    paging,
    thread::{Operation, Resumed, State},
};

use crate::{
    fake::{self, Fake, Random},
    rig::{FROM, Rig},
};

/// A message operation of a thread, or its fault.
#[derive(Copy, Clone, Debug)]
struct Does {
    label: u64,
    to: u64,
    from: u64,
    send_us: u32,
    receive_us: u32,
    begun_ns: u64,
    /// Since when it receives, once that is known.
    receives_ns: Option<u64>,
    window: u64,
    /// Its last item.
    item: Option<(u64, u64)>,
    /// It was stopped, so its timeouts are over.
    stopped: bool,
    fault: bool,
    /// What it sent is the answer to a fault, which nobody sees.
    answers_fault: bool,
    arrived: bool,
}

struct World {
    rig: Rig,
    random: Random,
    short: bool,
    spaces: Vec<u64>,
    /// Threads, and the number of their space.
    threads: Vec<ThreadId>,
    does: std::collections::BTreeMap<u64, Does>,
    labels: u64,
    /// The thread whose event was the last one, and how many of its have come one after another.
    last: (u64, u32),
    counts: Counts,
    story: Vec<String>,
}

#[derive(Default, Debug)]
pub struct Counts {
    events: u32,
    messages: u32,
    arrived: u32,
    items: u32,
    refused: u32,
    late: u32,
    deleted: u32,
    short: u32,
}

const SIZES: [u8; 6] = [12, 12, 13, 15, 18, 21];
/// Each so many events all invariants are checked.
const CHECKED: u32 = 64;
const WINDOW: u64 = 0x3000_0000_0000;

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rig: Rig::new(),
            random: Random(seed),
            short: seed % 2 == 1,
            spaces: vec![0],
            threads: Vec::new(),
            does: std::collections::BTreeMap::new(),
            labels: 0,
            last: (0, 0),
            counts: Counts::default(),
            story: Vec::new(),
        };
        for number in 0..2 {
            let mate = world.rig.mate();
            world.threads.push(mate);
            world.space(if number == 0 { 20_000 } else { 900 });
        }
        world
    }

    fn space(&mut self, quota: u64) {
        let boss = self.rig.boss;
        let helper = self.threads[0].0;
        let space = self.rig.done(boss, Call::SpaceCreate, [quota, helper, helper, 0, 0, 0]);
        self.spaces.push(space);
        for (page, log2) in [(0, 18), (512, 21), (64, 15)] {
            let at = FROM + (page << 12);
            let _ = self.rig.all(
                boss,
                Call::Map,
                [
                    fpage(at, log2, Rights::RWX),
                    space,
                    fpage(at, log2, Rights::RWX),
                    MAP,
                    0,
                    0,
                ],
            );
        }
        for priority in [2, 3, 4] {
            let made = [space, 0x40_0000, 0x50_0000, 0, priority, 0];
            if let (Some(Ok((thread, _))), _) = self.rig.all(boss, Call::ThreadCreate, made) {
                self.threads.push(ThreadId(thread));
            }
        }
    }

    fn is_there(&self, thread: ThreadId) -> bool {
        self.rig.kernel.threads().find(thread).is_some()
    }

    fn one(&mut self, wanted: impl Fn(&Self, ThreadId) -> bool) -> Option<ThreadId> {
        let all: Vec<ThreadId> = (self.threads.iter().copied())
            .filter(|&id| self.is_there(id) && wanted(self, id))
            .collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len())])
    }

    fn is_free(&self, thread: ThreadId) -> bool {
        let kernel = &self.rig.kernel;
        let record = kernel.thread(thread.index() as u32);
        matches!(record.state, State::Ready | State::Running) && record.operation.is_none()
    }

    /// One event of a thread, all that an entry does.
    fn event(&mut self, thread: ThreadId, event: Event, operation: Option<Operation>) {
        let outcome = self.rig.kernel.nucleus_event(event);
        let kernel = &mut self.rig.kernel;
        match outcome {
            Outcome::Return(result) => {
                let context = &mut kernel.threads_mut().get_mut(thread).context;
                context.reset(context.rip, context.rsp);
                match result {
                    Ok((value, value2)) => context.set_results(0, value, value2),
                    Err(error) => context.set_results(error as u64, 0, 0),
                }
            }
            Outcome::Again => {
                let changed = kernel.take_operation(thread.index() as u32);
                kernel.again(changed.or(operation));
            }
            _ => {}
        }
        self.note(thread);
    }

    fn note(&mut self, thread: ThreadId) {
        self.last = (thread.0, if self.last.0 == thread.0 { self.last.1 + 1 } else { 1 });
        self.counts.events += 1;
        self.judge(Some(thread));
    }

    fn go_on(&mut self, thread: ThreadId) {
        self.story.push(format!("{:x} goes on", thread.0));
        let index = self.rig.run(thread);
        let operation = self.rig.kernel.take_operation(index).expect("it goes on");
        let resumed = self.rig.kernel.thread(index).resumed;
        self.event(thread, operation.event(thread, resumed), Some(operation));
    }

    fn begin(&mut self, thread: ThreadId, call: Call, arguments: [u64; 6]) {
        self.story.push(format!("{:x} {call:?} {arguments:x?}", thread.0));
        self.rig.run(thread);
        if self.short && fake::is_short(&mut self.rig.kernel, thread, call, arguments) {
            self.counts.short += 1;
            self.rig.kernel.yield_current();
            self.note(thread);
            return;
        }
        let operation = Operation::called(call as u64, arguments);
        self.event(thread, operation.event(thread, Resumed::First), Some(operation));
    }

    fn patience(&mut self) -> u32 {
        self.random.of(&[NEVER, NEVER, NEVER, 0, 0, 20, 100, 300])
    }

    fn item(&mut self) -> (u64, u64) {
        let log2 = self.random.of(&SIZES);
        let page = self.random.of(&[0u64, 0, 8, 16, 64, 72, 512, 1024]);
        let at = (FROM + (page << 12)) >> log2 << log2;
        let way = self.random.of(&[MAP, MAP, MAP, MAP, MAP, GRANT, LINK]);
        match self.random.below(24) {
            0 => (0xfff, way),
            1 => (fpage(at, log2, Rights::RW), 77),
            _ => (fpage(at, log2, self.random.of(&[Rights::RW, Rights::R])), way),
        }
    }

    fn window(&mut self) -> u64 {
        match self.random.below(8) {
            0 => 0,
            1 => fpage(WINDOW, 18, Rights::RWX),
            2 => fpage(WINDOW + (8 << 12), 12, Rights::RWX),
            3 => fpage(0, 47, Rights::RWX),
            _ => fpage(WINDOW, 40, Rights::RWX),
        }
    }

    fn message(&mut self, thread: ThreadId) {
        let server = self.threads[self.random.below(2)];
        let any = self.one(|_, _| true).expect("the boss").0;
        let waiting = self.one(|world, id| world.rig.state(id) == State::Receiving);
        let me = thread.index() as u32;
        let queued = self.one(|world, id| world.rig.state(id) == State::Sending(me));
        let to = match self.random.below(8) {
            0 => any,
            1 => 0,
            2 | 3 => server.0,
            4 | 5 if queued.is_some() => 0,
            _ => waiting.map_or(server.0, |id| id.0),
        };
        let from = match self.random.below(8) {
            0 => any,
            2 | 3 => to,
            4 if queued.is_some() => queued.expect("one").0,
            5 | 6 if to != 0 => 0,
            _ => ANYONE,
        };
        let items = self.random.of(&[0, 0, 1, 1, 1, 2, 3]);
        let words = self.random.of(&[0u64, 0, 0, 2, 4, 20]);
        self.labels += 1;
        let label = self.labels;
        let mut all: Vec<u64> = (0..words).map(|word| label << 8 | word).collect();
        let mut item = None;
        for _ in 0..items {
            let last = self.item();
            item = Some(last);
            all.extend([last.0, last.1]);
        }
        all.resize(all.len().max(4), 0);
        self.rig.words(thread, &all);
        let (send_us, receive_us, window) = (self.patience(), self.patience(), self.window());
        let does = Does {
            label,
            to,
            from,
            send_us,
            receive_us,
            begun_ns: self.rig.kernel.hardware.now_ns,
            receives_ns: None,
            window,
            item,
            stopped: false,
            fault: false,
            answers_fault: false,
            arrived: false,
        };
        self.does.insert(thread.0, does);
        self.counts.messages += u32::from(to != 0);
        let arguments = [
            to,
            from,
            tag(label, words, items),
            timeouts(send_us, receive_us),
            window,
            0,
        ];
        self.begin(thread, Call::Ipc, arguments);
    }

    fn fault(&mut self, thread: ThreadId) {
        self.story.push(format!("{:x} faults", thread.0));
        self.rig.run(thread);
        let address = WINDOW + 0x1000 * self.random.below(64) as u64;
        self.does.insert(
            thread.0,
            Does {
                label: 0,
                to: 0,
                from: 0,
                send_us: NEVER,
                receive_us: NEVER,
                begun_ns: 0,
                receives_ns: None,
                window: 0,
                item: None,
                stopped: true,
                fault: true,
                answers_fault: false,
                arrived: false,
            },
        );
        let access = Access::Read;
        if self.short && self.rig.kernel.fault_short(address, access).is_some() {
            self.rig.kernel.yield_current();
            return self.note(thread);
        }
        self.event(
            thread,
            Event::Fault {
                thread,
                address,
                access,
            },
            None,
        );
    }

    fn step(&mut self) {
        let boss = self.rig.boss;
        if self.random.below(3) > 0
            && let Some(same) = self.one(|world, id| id.0 == world.last.0 && world.rig.goes_on(id))
        {
            return self.go_on(same);
        }
        match self.random.below(64) {
            0..24 => {
                if let Some(one) = self.one(|world, id| world.rig.goes_on(id)) {
                    self.go_on(one);
                }
            }
            24..48 => {
                if let Some(one) = self.one(Self::is_free) {
                    self.message(one);
                }
            }
            48..50 => self.pass(),
            50 => {
                let victim = self.one(|_, _| true).expect("one");
                let living = self.threads.iter().filter(|&&id| self.is_there(id)).count();
                if living > 7 && victim != self.threads[0] && !self.rig.goes_on(boss) {
                    self.counts.deleted += 1;
                    self.begin(boss, Call::ThreadDelete, [victim.0, 0, 0, 0, 0, 0]);
                }
            }
            51..54 => {
                let whom = self.one(|_, _| true).expect("one");
                let what = self.random.of(&[
                    EXCHANGE_STOP,
                    EXCHANGE_STOP | EXCHANGE_START,
                    EXCHANGE_START,
                    EXCHANGE_START,
                    EXCHANGE_READ | EXCHANGE_WRITE,
                ]);
                self.exchange(whom, what);
            }
            54 => {
                let place = 1 + self.random.below(self.spaces.len() - 1);
                let space = self.spaces[place];
                let living = self.threads.iter().filter(|&&id| self.is_there(id)).count();
                if living > 10 && self.random.below(4) == 0 && !self.rig.goes_on(boss) {
                    self.begin(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
                }
            }
            55 | 61 if self.threads.len() < 90 && !self.rig.goes_on(boss) => {
                let quota = self.random.of(&[20_000, 900, 600]);
                if self.random.below(2) == 0 {
                    self.space(quota);
                } else {
                    let mate = self.rig.mate();
                    self.threads.push(mate);
                    if !self.is_there(self.threads[1]) {
                        self.threads[1] = mate;
                    }
                }
            }
            56 => {
                if let Some(one) = self.one(|world, id| world.is_free(id) && id != world.threads[0]) {
                    self.fault(one);
                }
            }
            57 if !self.rig.goes_on(boss) => {
                let whom = self.one(|_, _| true).expect("one").0;
                let priority = 1 + self.random.below(5) as u64;
                self.begin(boss, Call::ThreadPriority, [whom, priority, 0, 0, 0, 0]);
            }
            58..60 => {
                if let Some(one) = self.one(Self::is_free) {
                    let (what, _) = self.item();
                    let own = self.random.below(2) as u64;
                    self.begin(one, Call::Flush, [what, 7, own, 0, 0, 0]);
                }
            }
            60 if !self.rig.goes_on(boss) => {
                let space = self.spaces[1 + self.random.below(self.spaces.len() - 1)];
                let supervisor = if self.random.below(3) == 0 {
                    self.threads[0].0
                } else {
                    0
                };
                let helper = self.threads[self.random.below(2)].0;
                self.begin(boss, Call::SpaceControl, [space, helper, helper, supervisor, 0, 0]);
            }
            _ if !self.rig.goes_on(boss) => {
                let space = self.spaces[1 + self.random.below(self.spaces.len() - 1)];
                let (what, way) = self.item();
                let window = self.window();
                self.begin(boss, Call::Map, [what, space, window, way, 0, 0]);
            }
            _ => {}
        }
        if self.rig.goes_on(boss) && self.random.below(2) == 0 {
            self.go_on(boss);
        }
    }

    fn exchange(&mut self, whom: ThreadId, what: u64) {
        let boss = self.rig.boss;
        if whom == boss || self.rig.goes_on(boss) {
            return;
        }
        let kernel = &self.rig.kernel;
        let record = kernel.thread(whom.index() as u32);
        let waits = matches!(record.state, State::Sending(_) | State::Receiving);
        let goes_on = record.operation.is_some();
        if let Some(does) = self.does.get_mut(&whom.0) {
            if what & EXCHANGE_STOP != 0 {
                does.stopped = true;
                // A fault is run into again, which nobody does here.
                if does.fault {
                    self.does.remove(&whom.0);
                }
            } else if what & EXCHANGE_WRITE != 0 && !does.fault && (waits || goes_on) {
                self.does.remove(&whom.0);
            }
        }
        self.begin(boss, Call::ThreadExchange, [whom.0, what, 0, 0, 0, 0]);
    }

    fn pass(&mut self) {
        let us = self.random.of(&[5, 20, 100, 400]);
        self.story.push(format!("{us} pass"));
        self.rig.kernel.hardware.now_ns += us * 1000;
        self.ticks();
    }

    fn ticks(&mut self) {
        for _ in 0..20 {
            self.rig.kernel.tick();
            self.judge(None);
        }
    }

    /// Where the page of an item is in the receiver.
    fn arrives(&self, sender: SpaceId, receiver: SpaceId, item: (u64, u64), window: u64) {
        let parts = |word: u64| (word & !0xfff, 1u64 << (word >> 4 & 63));
        let ((source, size), (place, room)) = (parts(item.0), parts(window));
        let given = source & !(size - 1) | place & (size - 1) & !(room.min(size) - 1);
        let lands = place & !(room - 1) | source & (room - 1) & !(room.min(size) - 1);
        for page in 0..size.min(room) >> 12 {
            let Some(mine) = frame(&self.rig.kernel, sender, given + (page << 12)) else {
                continue;
            };
            let there = frame(&self.rig.kernel, receiver, lands + (page << 12));
            assert_eq!(there, Some(mine), "page {page} of {item:x?} for {window:x}");
        }
    }

    /// What has ended is judged, and who waits.
    fn judge(&mut self, by: Option<ThreadId>) {
        if self.counts.events.is_multiple_of(CHECKED) {
            self.rig.kernel.check().expect("consistent");
        }
        let now = self.rig.kernel.hardware.now_ns;
        let does: Vec<(u64, Does)> = self.does.iter().map(|(&id, &does)| (id, does)).collect();
        let mut ended = Vec::new();
        for (id, mine) in does {
            if !self.is_there(ThreadId(id)) {
                self.does.remove(&id);
                continue;
            }
            if !self.is_free(ThreadId(id)) {
                continue;
            }
            let context = self.rig.kernel.threads().get(ThreadId(id)).context;
            let (error, label, sender) = (context.rax, context.rdx, context.rsi);
            ended.push((id, mine, error));
            if mine.fault {
                for other in self.does.values_mut().filter(|other| other.to == id) {
                    other.answers_fault = true;
                }
                continue;
            }
            if error != 0 || mine.from == 0 || label & TAG_KERNEL != 0 {
                continue;
            }
            let words = [context.r12, context.r13];
            // A message came.
            let Some(theirs) = self.does.get(&sender).copied() else {
                panic!("{id:x} has a message of {sender:x}, which sends none");
            };
            assert_eq!(theirs.label, label >> TAG_LABEL_SHIFT, "{id:x} from {sender:x}");
            assert_eq!(theirs.to, id);
            assert!(!theirs.arrived, "{id:x} has the message of {sender:x} twice");
            if label & 0x7f >= 2 {
                assert_eq!(words, [theirs.label << 8, theirs.label << 8 | 1]);
            }
            self.does.get_mut(&sender).expect("it").arrived = true;
            self.counts.arrived += 1;
            let items = label >> 8 & 15;
            if let (Some(item), Some(by)) = (theirs.item, by)
                && items > 0
                && (by.0 == id || by.0 == sender)
            {
                self.counts.items += 1;
                let kernel = &self.rig.kernel;
                let space = |id: u64| kernel.threads().get(ThreadId(id)).space;
                let pieces = self.pieces(by);
                if item.1 == MAP && pieces && space(id) != space(sender) {
                    self.arrives(space(sender), space(id), item, mine.window);
                }
            }
        }
        for (id, _, error) in ended {
            let mine = self.does.remove(&id).expect("it");
            if mine.fault || mine.to == 0 {
                self.counts.late += u32::from(error == Error::TimedOut as u64);
                continue;
            }
            match error {
                0 => assert!(mine.arrived || mine.answers_fault, "{id:x}: {mine:?} is lost"),
                _ if mine.from == 0 => {
                    assert!(!mine.arrived, "{id:x}: {mine:?} has arrived, and ended with {error}");
                    self.counts.refused += 1;
                }
                _ => {}
            }
        }
        let froms: std::collections::BTreeMap<u64, u64> = (self.does.iter())
            .filter(|(_, mine)| !mine.fault)
            .map(|(&id, mine)| (id, mine.from))
            .collect();
        for (&id, mine) in &mut self.does {
            let kernel = &self.rig.kernel;
            let thread = kernel.threads().get(ThreadId(id));
            if let State::Sending(to) = thread.state {
                let other = kernel.thread(to);
                let from = froms.get(&other.id.0).copied().unwrap_or(0);
                assert!(
                    other.state != State::Receiving || from != ANYONE && from != id,
                    "{id:x} and {:x} wait for each other",
                    other.id.0
                );
            }
            let is_by = by == Some(ThreadId(id));
            let first = thread.operation.map(|operation| operation.arguments[0]);
            let goes_on = thread.state == State::Ready && first.is_some();
            let receives = thread.state == State::Receiving || goes_on && is_by && first == Some(0);
            if receives && mine.receives_ns.is_none() {
                mine.receives_ns = Some(now);
            }
            if mine.stopped {
                continue;
            }
            let end = |begun: u64, us: u32| {
                if us == NEVER {
                    u64::MAX
                } else {
                    begun + u64::from(us) * 1000
                }
            };
            let (send, receive) = (
                end(mine.begun_ns, mine.send_us),
                end(mine.receives_ns.unwrap_or(now), mine.receive_us),
            );
            let deadline = thread.deadline().unwrap_or(u64::MAX);
            let context = || format!("{id:x}: {mine:?} at {now}, {:?}", thread.state);
            match thread.state {
                State::Sending(_) => assert!(deadline <= send, "{}: sends until {deadline}", context()),
                State::Receiving => assert!(deadline <= receive, "{}: receives until {deadline}", context()),
                _ if goes_on && is_by && first == Some(0) => {
                    assert!(mine.receive_us == 0 || now < receive, "{} goes on", context());
                }
                _ if goes_on && is_by => assert!(mine.send_us == 0 || now < send, "{} goes on", context()),
                _ => {}
            }
        }
    }

    /// Whether the event of this thread was its first for its operation, or others had none meanwhile.
    fn pieces(&self, by: ThreadId) -> bool {
        // The last event was its, too, and so on to the begin.
        self.last.0 == by.0 && self.last.1 >= self.since(by)
    }

    fn since(&self, by: ThreadId) -> u32 {
        let name = format!("{:x} ", by.0);
        let on = self
            .story
            .iter()
            .rev()
            .take_while(|line| line.ends_with("goes on") && line.starts_with(&name));
        on.count() as u32 + 1
    }

    /// All ends that may.
    fn end(&mut self) {
        for round in 0..6000 {
            assert!(round < 5990, "it never ends");
            let all = self.threads.clone();
            let mut any = false;
            for id in all.into_iter().chain([self.rig.boss]) {
                if self.is_there(id) && self.rig.goes_on(id) {
                    any = true;
                    self.go_on(id);
                }
            }
            if !any {
                let before = self.does.len();
                self.rig.kernel.hardware.now_ns += 1_000_000;
                for _ in 0..4 {
                    self.ticks();
                }
                let ready = self
                    .threads
                    .clone()
                    .into_iter()
                    .any(|id| self.is_there(id) && self.rig.goes_on(id));
                if self.does.len() == before && !ready {
                    break;
                }
            }
        }
        let boss = self.rig.boss;
        for id in self.threads.clone() {
            if self.is_there(id) {
                let _ = self.rig.all(boss, Call::ThreadDelete, [id.0, 0, 0, 0, 0, 0]);
                assert!(!self.is_there(id));
            }
        }
        for space in self.spaces.clone().into_iter().skip(1) {
            let _ = self.rig.all(boss, Call::SpaceDelete, [space, 0, 0, 0, 0, 0]);
        }
    }
}

/// The frame that an address leads to.
fn frame(kernel: &Kernel<Fake, Bare>, space: SpaceId, address: u64) -> Option<u64> {
    let mut table = kernel.spaces().get(space).root();
    for level in (0..4).rev() {
        let entry = kernel.hardware.table(table)[(address >> (12 + 9 * level)) as usize & 511].load(Relaxed);
        if !paging::is_present(entry) {
            return None;
        }
        table = paging::frame_of(entry);
        if level > 0 && paging::is_large(entry) {
            return Some(u64::from(table.number()) + (address >> 12 & ((1 << (9 * level)) - 1)));
        }
    }
    Some(table.number().into())
}

/// Nodes, and what the root space is charged without the tables that part its own pages.
fn left(rig: &mut Rig) -> (u32, u64) {
    let boss = rig.boss;
    let space = rig.kernel.threads().get(boss).space;
    let _ = rig.all(boss, Call::Flush, [fpage(0, 46, Rights::RWX), 7, 0, 0, 0, 0]);
    let kernel = &rig.kernel;
    let (_, used) = kernel.free_space_quota(space).expect("it is there");
    (kernel.mapping_nodes(), u64::from(used) + 64 * kernel.frames().free())
}

fn run(seed: u64, steps: usize) -> Counts {
    let mut rig = Rig::new();
    let before = left(&mut rig);
    let mut world = World::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..steps {
            world.step();
        }
        world.end();
        let after = left(&mut world.rig);
        assert_eq!(before, after, "nodes and units");
    }));
    if let Err(error) = outcome {
        let from = world.story.len().saturating_sub(40);
        for line in &world.story[from..] {
            println!("{line}");
        }
        println!("GOND_SEED={seed}");
        std::panic::resume_unwind(error);
    }
    world.counts
}

#[test]
fn busy_servers_lose_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let from = number("GOND_SEED").unwrap_or(21);
    let runs = number("GOND_RUNS").unwrap_or(2);
    let mut all = Counts::default();
    for seed in from..from + runs {
        let one = run(seed, 700);
        all.events += one.events;
        all.messages += one.messages;
        all.arrived += one.arrived;
        all.items += one.items;
        all.refused += one.refused;
        all.late += one.late;
        all.deleted += one.deleted;
        all.short += one.short;
    }
    println!("{all:?}");
    assert!(all.messages > 0 && all.arrived > 0, "{all:?}");
}
