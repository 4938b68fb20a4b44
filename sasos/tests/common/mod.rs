//! A server over the real kernel logic, fake hardware and a crashing disk, driven call by call.
//!
//! There is no user code: tests say what a thread calls and what it touches. A call that waits is
//! done again after the disk has moved, as the kernel would. Touching goes through remembered
//! translations, so that a forgotten flush shows.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeMap;

use abi::{
    Call, Error, Rights,
    address::{FIRST_FREE, PAGE, slot_of},
    layout::{CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader},
};
use kcore::{Hardware, Machine, SpaceId, ThreadId, space::Tags, thread::Resumed};
use sasos::accounts::{AccountId, Amounts, Resource, UNLIMITED, limits};
use sasos::{
    Access, Event, Outcome, Server, Stop,
    lives::{task::TaskId, thread::Life},
    protection::apd::Apd,
};
use sim::{
    disk::CrashDisk,
    machine::{Platform, Touch},
    rng::Rng,
};
use store::{FormatOptions, Leaves, MountError, MountMode, MountReport, Store};

/// Entry point of threads that never run.
const NOWHERE: u64 = 0x1_0000_0000;
/// Times that a call is done again before the test gives up.
const TRIES: u32 = 100_000;

/// A task with its first thread.
#[derive(Copy, Clone, Debug)]
pub struct Actor {
    pub task: TaskId,
    pub thread: ThreadId,
    pub space: SpaceId,
}

pub struct Rig {
    pub server: Server,
    pub world: Platform,
    pub rng: Rng,
    tags: Tags,
    frames: u32,
    /// Events of calls.
    calls: u64,
    /// Whether touches take the slow path alone.
    pub is_slow: bool,
}

impl Rig {
    /// A machine with a freshly formatted disk.
    pub fn new(seed: u64, frames: u32, blocks: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tags = if rng.one_in(2) { Tags::Absent } else { Tags::Present };
        let disk = CrashDisk::new(blocks, rng.fork());
        let mut world = Platform::new(frames, tags, disk, rng.fork());
        let options = FormatOptions {
            first_slot: slot_of(FIRST_FREE),
            ..FormatOptions::default()
        };
        Store::format(&mut world, &options).expect("the disk can be formatted");
        let (store, report) = Store::mount(&mut world, MountMode::ReadWrite).expect("it can be mounted");
        let server = Server::new(&mut world, store, &report).expect("a server");
        Self {
            server,
            world,
            rng,
            tags,
            frames,
            calls: 0,
            is_slow: false,
        }
    }

    /// The power fails; the machine starts again with what is on the disk.
    pub fn crash(self) -> (Self, MountReport) {
        self.crash_and(|world| Store::mount(world, MountMode::ReadWrite))
    }

    /// The same, and the object table, whose nodes are small, is in memory in parts then: few leaves stay.
    pub fn crash_in_parts(self) -> (Self, MountReport) {
        self.crash_keeping(8)
    }

    /// The same, and so many leaves stay though nobody needs them.
    pub fn crash_keeping(self, leaves: usize) -> (Self, MountReport) {
        self.crash_and(|world| {
            Store::mount_with_small_nodes(world, MountMode::ReadWrite, Leaves::AsNeeded(leaves), (600, 5))
        })
    }

    fn crash_and(
        self,
        mount: impl FnOnce(&mut Platform) -> Result<(Store, MountReport), MountError>,
    ) -> (Self, MountReport) {
        let Self {
            world,
            mut rng,
            tags,
            frames,
            ..
        } = self;
        let fates = world.disk.draw_fates(&mut rng);
        let disk = world.disk.crash(&fates, rng.fork());
        let mut world = Platform::new(frames, tags, disk, rng.fork());
        let (store, report) = mount(&mut world).expect("the disk can be mounted after a crash");
        let server = Server::new(&mut world, store, &report).expect("a server");
        (
            Self {
                server,
                world,
                rng,
                tags,
                frames,
                calls: 0,
                is_slow: false,
            },
            report,
        )
    }

    /// A task without program, with an APD.
    #[allow(clippy::large_types_passed_by_value, reason = "a test reads better so")]
    pub fn actor(&mut self, apd: Apd) -> Actor {
        let mut limits = limits::of_frames(self.world.frames_total() / 4 * 3);
        limits[Resource::Slots as usize] = limits::PROGRAM_SLOTS;
        self.member(apd, AccountId::ROOT, limits)
    }

    /// The same without capabilities, below an account and with limits of its own.
    pub fn actor_in(&mut self, account: AccountId, limits: Amounts) -> Actor {
        self.member(Apd::EMPTY, account, limits)
    }

    #[allow(clippy::large_types_passed_by_value, reason = "a test reads better so")]
    fn member(&mut self, apd: Apd, account: AccountId, limits: Amounts) -> Actor {
        let task = self.server.task_make(&mut self.world, apd, account, limits);
        let task = task.expect("a task");
        let thread = self.thread_of(task);
        let space = self.world.thread_space(thread);
        Actor { task, thread, space }
    }

    /// The first task, without bounds, and the account of all that it starts.
    pub fn first_task(&mut self) -> (Actor, AccountId) {
        let first = self.actor_in(AccountId::ROOT, UNLIMITED);
        let account = self.server.tasks.get(first.task).expect("it lives").account;
        self.server.open_programs(&mut self.world, account).expect("an account");
        (first, self.server.programs)
    }

    /// A further thread of its task.
    pub fn sibling(&mut self, actor: Actor) -> Actor {
        let thread = self.thread_of(actor.task);
        Actor { thread, ..actor }
    }

    fn thread_of(&mut self, task: TaskId) -> ThreadId {
        self.server
            .thread_make(&mut self.world, task, None, NOWHERE, 0, 3)
            .expect("a thread")
    }

    /// One event of a call. Each second one goes the way on which the kernel knows the call and its space, and must come to the same.
    pub fn event(&mut self, actor: Actor, call: Call, arguments: [u64; 6], resumed: Resumed) -> Outcome {
        let thread = actor.thread;
        self.calls += 1;
        if resumed != Resumed::First || self.calls.is_multiple_of(2) {
            let event = Event::Call {
                thread,
                number: call as u64,
                arguments,
                resumed,
            };
            return self.server.handle(&mut self.world, event);
        }
        let space = self.world.thread_space(thread);
        let reply = self.server.begin_call(&mut self.world, thread, space, call, arguments);
        match reply.values() {
            Some(values) if self.server.is_call_over() => Outcome::Return(Ok(values)),
            _ => self.server.end_call(&mut self.world, thread, reply),
        }
    }

    /// Makes a call, as often as it takes.
    pub fn call(&mut self, actor: Actor, call: Call, arguments: &[u64]) -> Result<(u64, u64), Error> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let mut resumed = Resumed::First;
        for again in 0..TRIES {
            match self.event(actor, call, all, resumed) {
                Outcome::Return(result) => return result,
                Outcome::Block(..) => self.move_disk(),
                // The server looks at its work now and then while threads run.
                Outcome::Again if again % 64 == 63 => self.poll(),
                Outcome::Again => {}
                other => panic!("{call:?} ended with {other:?}"),
            }
            resumed = Resumed::Woken;
        }
        panic!("{call:?} {arguments:x?} never ends");
    }

    /// Makes a call; tells the accesses of its longest event.
    pub fn longest_event(&mut self, actor: Actor, call: Call, arguments: &[u64]) -> u64 {
        self.largest_step(actor, call, arguments, |rig| rig.world.kernel.hardware.accesses())
    }

    /// Makes a call; tells by how much a measure changes at most in one event of it.
    pub fn largest_step(&mut self, actor: Actor, call: Call, arguments: &[u64], measure: impl Fn(&Self) -> u64) -> u64 {
        let (largest, result) = self.largest_step_of(actor, call, arguments, measure);
        result.expect("the call succeeds");
        largest
    }

    /// The same of a call that may fail, and what came of it.
    pub fn largest_step_of(
        &mut self,
        actor: Actor,
        call: Call,
        arguments: &[u64],
        measure: impl Fn(&Self) -> u64,
    ) -> (u64, Result<(u64, u64), Error>) {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        // Looks by which the server checks itself do not count.
        self.server.put_off_check();
        let mut resumed = Resumed::First;
        let mut longest = 0;
        for _ in 0..TRIES {
            let before = measure(self);
            let outcome = self.event(actor, call, all, resumed);
            longest = longest.max(measure(self).abs_diff(before));
            match outcome {
                Outcome::Return(result) => return (longest, result),
                Outcome::Block(..) => self.move_disk(),
                Outcome::Again => {}
                other => panic!("{call:?} ended with {other:?}"),
            }
            resumed = Resumed::Woken;
        }
        panic!("{call:?} {arguments:x?} never ends");
    }

    /// Begins a call and does not wait for it.
    pub fn begin(
        &mut self,
        actor: Actor,
        call: Call,
        arguments: &[u64],
        resumed: Resumed,
    ) -> Option<Result<(u64, u64), Error>> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        match self.event(actor, call, all, resumed) {
            Outcome::Return(result) => Some(result),
            Outcome::Block(..) | Outcome::Again => None,
            other => panic!("{call:?} ended with {other:?}"),
        }
    }

    /// Lets the disk do one thing, and some time pass.
    pub fn move_disk(&mut self) {
        self.world.step_disk();
        self.poll();
    }

    /// Lets some time pass.
    pub fn poll(&mut self) {
        self.world.kernel.hardware.now_ns += 1_000_000;
        self.server.handle(&mut self.world, Event::Poll);
    }

    /// Lets the disk come to rest.
    pub fn settle(&mut self) {
        while self.world.step_disk() || self.server.is_unfinished() {
            self.server.handle(&mut self.world, Event::Poll);
        }
    }

    /// Runs a checkpoint to its end.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        let number = self.server.checkpoint_request(&mut self.world);
        for _ in 0..TRIES {
            match self.server.checkpoint_reached(number) {
                Some(result) => return result,
                None => self.move_disk(),
            }
        }
        panic!("the checkpoint never ends");
    }

    /// A checkpoint, and one more, which has nothing to write and so makes a generation: nothing waits in memory to be written behind it.
    pub fn generation(&mut self) -> Result<(), Error> {
        self.checkpoint()?;
        self.checkpoint()
    }

    /// Has all objects come to rest that may, for heap is short for a while.
    pub fn put_to_rest(&mut self) {
        self.checkpoint().expect("the disk works");
        let left = core::mem::replace(&mut self.world.kernel.hardware.heap_left, 1 << 20);
        for _ in 0..4 {
            self.server.take_back(&mut self.world);
            self.check();
        }
        self.world.kernel.hardware.heap_left = left;
    }

    /// The view of user code in a space: the frame, or why it has none.
    pub fn touch(&mut self, space: SpaceId, address: u64, access: Access) -> Result<kcore::Frame, Error> {
        let touch = match access {
            Access::Read => Touch::Read,
            Access::Write => Touch::Write,
            Access::Execute => Touch::Execute,
        };
        for _ in 0..TRIES {
            self.world.kernel.enter_space(space);
            if let Ok(frame) = self.world.kernel.hardware.translate(address, touch) {
                return Ok(frame);
            }
            if !self.is_slow && self.touch_further(space, address, access) {
                continue;
            }
            match self.server.touch(&mut self.world, space, address, access) {
                Ok(()) | Err(Stop::Again) => {}
                Err(Stop::Wait(_)) => self.move_disk(),
                Err(Stop::Fail(error)) => return Err(error),
            }
        }
        panic!("{access:?} of {address:#x} in {space:?} faults for ever");
    }

    /// The fast path, which the kernel tries first: a thread of the space, and sometimes a frame that idle time has zeroed.
    pub fn touch_further(&mut self, space: SpaceId, address: u64, access: Access) -> bool {
        let thread = {
            let mut threads = self.server.threads.iter().map(|record| record.id);
            threads.find(|&thread| self.world.thread_space(thread) == space)
        };
        if !(address / PAGE).is_multiple_of(3) {
            let kernel = &mut self.world.kernel;
            kernel.prepare_frame(1);
        }
        thread.is_some_and(|thread| {
            self.server
                .touch_further(&mut self.world, thread, address, access)
                .is_some()
        })
    }

    pub fn load(&mut self, space: SpaceId, address: u64) -> Result<u64, Error> {
        let frame = self.touch(space, address, Access::Read)?;
        let mut bytes = [0; 8];
        self.world
            .kernel
            .hardware
            .read(frame, (address % PAGE) as usize, &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn store(&mut self, space: SpaceId, address: u64, value: u64) -> Result<(), Error> {
        let frame = self.touch(space, address, Access::Write)?;
        self.world
            .kernel
            .hardware
            .write(frame, (address % PAGE) as usize, &value.to_le_bytes());
        Ok(())
    }

    /// Writes a Clist, word by word, as a program would.
    pub fn write_clist(&mut self, space: SpaceId, clist: u64, capabilities: &[Capability], order: Order) {
        let mut list = capabilities.to_vec();
        if order == Order::Sorted {
            list.sort_by_key(|capability| capability.address);
        }
        let flags = if order == Order::Sorted { CLIST_SORTED } else { 0 };
        let header = ClistHeader {
            magic: CLIST_MAGIC,
            version: CLIST_VERSION,
            flags,
            count: list.len() as u64,
        };
        let words = header
            .to_words()
            .into_iter()
            .chain(list.iter().flat_map(Capability::to_words));
        for (index, word) in words.enumerate() {
            self.store(space, clist + index as u64 * 8, word)
                .expect("the Clist can be written");
        }
    }

    /// A kept object with a password that was asked for (0: any).
    pub fn kept(&mut self, actor: Actor, pages: u64, password: u64) -> u64 {
        let (base, _) = self
            .call(actor, Call::ObjCreate, &[pages * PAGE, password])
            .expect("an object");
        self.call(actor, Call::KeepObject, &[base]).expect("it is kept");
        base
    }

    /// A task that holds the password of an object, such as after a crash.
    pub fn holder(&mut self, address: u64, password: u64) -> Actor {
        let actor = self.actor(Apd::EMPTY);
        self.gets(actor, &[address], password);
        actor
    }

    /// A task gets a Clist with the passwords of objects, which are all the same; its address.
    pub fn gets(&mut self, actor: Actor, objects: &[u64], password: u64) -> u64 {
        self.may_get(actor, objects, password).expect("a Clist")
    }

    /// The same, if its account has what that takes.
    pub fn may_get(&mut self, actor: Actor, objects: &[u64], password: u64) -> Result<u64, Error> {
        let capabilities: Vec<Capability> = objects
            .iter()
            .map(|&address| Capability { address, password })
            .collect();
        let bytes = (size_of::<ClistHeader>() + size_of_val(&*capabilities)) as u64;
        let bytes = bytes.next_multiple_of(PAGE);
        let (list, _) = self.call(actor, Call::ObjCreate, &[bytes, 0])?;
        for at in (0..bytes).step_by(PAGE as usize) {
            self.touch(actor.space, list + at, Access::Write)?;
        }
        self.write_clist(actor.space, list, &capabilities, Order::Any);
        self.call(actor, Call::ApdInsert, &[0, list])?;
        Ok(list)
    }

    /// A task below an account, with one thread and the passwords of objects, if the account has what that takes.
    pub fn may_begin(
        &mut self,
        parent: AccountId,
        limits: Amounts,
        objects: &[u64],
        password: u64,
    ) -> Result<Actor, Error> {
        let task = self.server.task_make(&mut self.world, Apd::EMPTY, parent, limits)?;
        let equipped = self.equips(task, objects, password);
        equipped.inspect_err(|_| self.server.task_kill(task, 1))
    }

    fn equips(&mut self, task: TaskId, objects: &[u64], password: u64) -> Result<Actor, Error> {
        let thread = self.server.thread_make(&mut self.world, task, None, NOWHERE, 0, 3)?;
        let space = self.world.thread_space(thread);
        let actor = Actor { task, thread, space };
        self.may_get(actor, objects, password)?;
        Ok(actor)
    }

    /// Everything comes to rest on a disk that works, and nothing is kept that nobody uses.
    pub fn rests(&mut self) {
        self.world.disk.set_failing(0);
        self.server.finish_ends(&mut self.world);
        self.settle();
        // One may tell of what has failed before.
        let _ = self.checkpoint();
        self.checkpoint().expect("a checkpoint");
        self.settle();
        self.server.take_back(&mut self.world);
        self.settle();
        self.check();
    }

    /// Whether a thread and its task live.
    pub fn lives(&self, actor: Actor) -> bool {
        let thread = self.server.threads.find(actor.thread);
        thread.is_some_and(|thread| thread.life == Life::Live) && self.server.tasks.get(actor.task).is_some()
    }

    /// A task ends, with all that it began.
    pub fn ends(&mut self, actor: Actor) {
        self.server.task_kill(actor.task, 1);
        self.server.finish_ends(&mut self.world);
        self.settle();
    }

    /// A thread touches a page by its instructions, until it has the page; false if it ends for it.
    pub fn has(&mut self, actor: Actor, address: u64, access: Access) -> bool {
        loop {
            if let Some(has) = self.touches(actor, address, access) {
                return has;
            }
        }
    }

    /// The same up to the next event that the server has handled; nothing if that was not the last.
    pub fn touches(&mut self, actor: Actor, address: u64, access: Access) -> Option<bool> {
        let touch = if access == Access::Read {
            Touch::Read
        } else {
            Touch::Write
        };
        let thread = actor.thread;
        self.world.kernel.enter_space(actor.space);
        if self.world.kernel.hardware.translate(address, touch).is_ok() {
            return Some(true);
        }
        let event = Event::Fault {
            thread,
            address,
            access,
        };
        match self.server.handle(&mut self.world, event) {
            Outcome::Resume => {}
            Outcome::Block(..) => self.move_disk(),
            Outcome::Gone => return Some(false),
            other => panic!("{other:?}"),
        }
        None
    }

    /// Brings everything to the disk and takes it out of memory.
    pub fn put_away(&mut self) {
        self.checkpoint().expect("a checkpoint");
        self.settle();
        while self.server.reclaim(&mut self.world) > 0 {}
    }

    // ---- protected procedures ---------------------------------------------------------------------

    /// Registers a procedure at the first byte of an object, with a Clist or none (0).
    pub fn registers(&mut self, owner: Actor, base: u64, password: u64, clist: u64) {
        let arguments = self.entry_of(owner, base, password, clist);
        self.call(owner, Call::ObjCrePdx, &arguments).expect("a procedure");
    }

    /// The arguments for that.
    pub fn entry_of(&mut self, owner: Actor, base: u64, password: u64, clist: u64) -> [u64; 5] {
        let (entries, _) = self.call(owner, Call::ObjCreate, &[PAGE, 0]).expect("an object");
        self.store(owner.space, entries, base).expect("the entry");
        [base, password, clist, entries, 1]
    }

    /// An object with a procedure at its first byte.
    pub fn service(&mut self, owner: Actor, password: u64) -> u64 {
        let (base, _) = self.call(owner, Call::ObjCreate, &[PAGE, 0]).expect("an object");
        self.registers(owner, base, password, 0);
        base
    }

    /// Has a thread enter a procedure; tells the domain that it is in then.
    pub fn enters(&mut self, actor: Actor, entry: u64, pd: u64) -> Result<SpaceId, Error> {
        for resumed in [Resumed::First; 1].into_iter().chain([Resumed::Woken; 1000]) {
            match self.event(actor, Call::PdxCall, [entry, 0, pd, 0, 0, 0], resumed) {
                Outcome::Resume => return Ok(self.world.thread_space(actor.thread)),
                Outcome::Again => {}
                Outcome::Return(result) => return Err(result.expect_err("it is inside")),
                other => panic!("the call ended with {other:?}"),
            }
        }
        panic!("the call never ends");
    }

    // ---- invariants -------------------------------------------------------------------------------

    /// Checks what the server checks of itself, and what it believes to be linked against the page tables.
    pub fn check(&mut self) {
        if let Err(broken) = self.server.check(&self.world) {
            panic!("{broken}");
        }
        for (caller, entry, pd, callee) in self.world.kernel.portal_ways() {
            assert!(
                self.server.would_enter(caller, entry, pd, callee),
                "the kernel remembers a call of {caller:?} to {entry:#x} that the server would refuse"
            );
        }
        let mut leaves = BTreeMap::new();
        for (_, object) in self.server.objects.iter() {
            let mut next = object.slots.next_with_leaf(0);
            while let Some(slot) = next {
                let leaf = object
                    .slots
                    .get(slot)
                    .and_then(sasos::pages::slots::Slot::leaf)
                    .expect("a leaf");
                leaves.insert(leaf.frame().number(), object.first_slot() + slot);
                next = object.slots.next_with_leaf(slot + 1);
            }
        }
        let spaces: Vec<SpaceId> = self.server.domains.iter().map(|(space, _)| space).collect();
        for space in spaces {
            let root = self.world.kernel.spaces().get(space).root();
            for (slot, leaf, write, execute) in self.world.kernel.hardware.links(root) {
                assert_eq!(
                    leaves.get(&leaf.number()),
                    Some(&slot),
                    "a link of {space:?} leads to a leaf that is not that slot's"
                );
                let object = self.server.objects.iter().find(|(_, object)| {
                    (object.first_slot()..object.first_slot() + object.slot_count()).contains(&slot)
                });
                let (id, object) = object.expect("a linked slot belongs to an object");
                // One that is set aside is linked and empty.
                if object.record.pages == 0 {
                    assert_eq!(object.resident, 0, "pages of what is set aside");
                    continue;
                }
                let cached = self.server.cached(space, id).expect("what is linked is in the cache");
                assert!(!write || cached.rights.contains(Rights::W));
                assert!(!execute || cached.rights.contains(Rights::X));
            }
        }
    }
}

/// Whether a Clist says that it is sorted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    Sorted,
    Any,
}
