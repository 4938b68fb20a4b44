//! Tasks: threads that share an active protection domain, a kill list and an account.
//!
//! A task begins with its first thread and ends with its last. Its *kill list* names the objects
//! that nobody has asked to keep; they go with it, and so do its semaphores. Its *account* ([`crate::accounts`]) bounds what it
//! can take from the others. A request beyond the account is an error of the call, or ends the program that faulted, and nobody else.
//!
//! An identifier is unique in space and time, so a stale one is simply not found. Objects that outlive their creator stay charged to
//! its account, and to those above it.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    call::arguments::TaskCreate,
    layout::{EXCEPTION_KILL, ExitReport, PRIORITY_MAX, STATUS_SYSTEM, TASK_FOREGROUND},
};
use kcore::{SpaceId, ThreadId, scheduler::List};

use crate::{
    Answer, Server, Step, Stop, World,
    accounts::{AccountId, Amounts, Resource, limits},
    containers::{Boxed, Places, boxed, push, push_reserved, reserve},
    directory::lists::{Kind, ObjectList},
    directory::object::ObjectId,
    lives::budget::Cost,
    lives::exception::Handlers,
    lives::thread::{Caller, Life},
    lives::work::{Piece, Work},
    protection::apd::Apd,
};

/// A task, unique in space and time: the index in the low 16 bits, above it a version that is
/// never used twice. Zero names no task.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

impl TaskId {
    /// Names no task.
    pub const NONE: Self = Self(0);

    /// Its place in the table.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// Bytes that a task costs.
pub(crate) const TASK_BYTES: u64 = core::mem::size_of::<Task>() as u64;
/// Objects that may stand on one kill list.
pub const TASK_OBJECTS_MAX: usize = 4096;

/// The cost of ending a thread, in instructions, roughly.
const COST_THREAD: Cost = Cost::calling(1500, 5);
/// The cost of making a task, or of finding that there is no room for one.
const COST_MAKE: Cost = Cost::calling(4_000, 8);
/// The cost of taking a task away that has nothing left, with its domain, its account and the place of its last thread.
const COST_TASK: Cost = Cost::calling(2_100, 4);

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Its identifier.
    pub id: TaskId,
    /// Its domain.
    pub domain: SpaceId,
    /// Its first thread.
    pub first: ThreadId,
    /// Threads that have not ended, ...
    pub threads: u32,
    /// ... and those of them that have no [`Doom`](crate::lives::doom::Doom).
    pub(crate) members: List,
    /// Those that have ended, whose children have not all gone to another thread.
    pub(crate) parting: List,
    /// As what kind of exception all of them end, if it was killed.
    killed: Option<u64>,
    /// Whether it is in the list of work.
    listed: bool,
    /// The thread that ended last. Its parent learns of it when the task has given all back.
    pub(crate) last: ThreadId,
    /// Exception handlers.
    pub handlers: Handlers,
    /// The objects that end with it.
    pub kill_list: ObjectList,
    /// The account that pays for what it takes.
    pub account: AccountId,
    /// Bases of stacks of threads that have ended, to be used again.
    pub stacks: Vec<u64>,
}

/// Records of tasks that are kept for the next ones, and stacks that each of them keeps room for.
const TASKS_KEPT: usize = 8;
const STACKS_KEPT: usize = 64;

impl Task {
    /// Whether its threads have to end.
    pub const fn is_killed(&self) -> bool {
        self.killed.is_some()
    }
}

/// All tasks.
#[derive(Default)]
pub struct Tasks {
    table: Places<Task>,
    /// Records that nobody has.
    spare: Vec<Boxed<Task>>,
    /// Above the place in every identifier that was given.
    version: u64,
    /// The first task of the system, which no one waits for.
    pub initial: Option<TaskId>,
}

impl Tasks {
    /// The task with this identifier.
    #[inline]
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.table.get(id.index() as u32).filter(|task| task.id == id)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.table.get_mut(id.index() as u32).filter(|task| task.id == id)
    }

    /// All tasks.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.table.iter().map(|(_, task)| task)
    }

    /// Makes room for one more task.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn expect(&mut self) -> Result<(), Error> {
        self.table.vacant()?;
        if self.spare.is_empty() {
            reserve(&mut self.spare, TASKS_KEPT)?;
            let task = boxed(Task {
                id: TaskId::NONE,
                domain: SpaceId(0),
                first: ThreadId(0),
                threads: 0,
                members: List::EMPTY,
                parting: List::EMPTY,
                killed: None,
                listed: false,
                last: ThreadId(0),
                handlers: Handlers::default(),
                kill_list: ObjectList::default(),
                account: AccountId::ROOT,
                stacks: Vec::new(),
            })?;
            push(&mut self.spare, task)?;
        }
        Ok(())
    }

    /// A task with this domain and account, where there is [room](Tasks::expect).
    fn create(&mut self, domain: SpaceId, account: AccountId) -> Result<TaskId, Error> {
        let place = self.table.vacant()?;
        let mut task = self.spare.pop().ok_or(Error::NoMemory)?;
        self.version += 1;
        task.id = TaskId(self.version << 16 | u64::from(place));
        task.domain = domain;
        task.first = ThreadId(0);
        task.threads = 0;
        task.killed = None;
        task.listed = false;
        task.last = ThreadId(0);
        task.handlers = Handlers::default();
        task.account = account;
        let id = task.id;
        self.table.put(place, task);
        Ok(id)
    }

    /// Takes a task off, whose kill list is empty. Its record serves a later one.
    fn remove(&mut self, id: TaskId) {
        if self.get(id).is_none() {
            return;
        }
        if let Some(mut task) = self.table.take(id.index() as u32)
            && self.spare.len() < TASKS_KEPT
        {
            task.stacks.clear();
            if task.stacks.capacity() > STACKS_KEPT {
                task.stacks = Vec::new();
            }
            push_reserved(&mut self.spare, task);
        }
    }

    /// A task on whose kill list there is a place.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn may_own(&self, task: TaskId) -> Result<&Task, Error> {
        let task = self.get(task).filter(|task| task.kill_list.count() < TASK_OBJECTS_MAX);
        task.ok_or(Error::LimitReached)
    }
}

/// A priority as a call gives it, never above the maker's own.
///
/// # Errors
/// [`Error::BadArgument`]: there is no such priority.
pub fn checked_priority(asked: u64, own: u8) -> Result<u8, Error> {
    if asked > PRIORITY_MAX {
        return Err(Error::BadArgument);
    }
    Ok((asked as u8).min(own))
}

impl Server {
    // ---- kill lists -------------------------------------------------------------------------------

    /// Puts an object on the kill list of a task that [may have](Tasks::may_own) one more.
    #[inline]
    pub(crate) fn own(&mut self, task: TaskId, id: ObjectId) {
        if let Some(record) = self.tasks.get_mut(task) {
            self.objects.enlist(Kind::KillList, &mut record.kill_list, id);
            self.objects.get_mut(id).owner = Some(task);
        }
    }

    /// Takes an object off the kill list on which it stands, if any.
    #[inline]
    pub(crate) fn disown(&mut self, id: ObjectId) {
        let owner = self.objects.get_mut(id).owner.take();
        if let Some(task) = owner.and_then(|task| self.tasks.get_mut(task)) {
            self.objects.unlist(Kind::KillList, &mut task.kill_list, id);
        }
    }

    /// Whether an object stands on the kill list of the task that it names.
    pub fn is_owned(&self, id: ObjectId) -> bool {
        let task = self.objects.get(id).owner.and_then(|task| self.tasks.get(task));
        task.is_some_and(|task| {
            self.objects
                .listed(Kind::KillList, &task.kill_list)
                .any(|listed| listed == id)
        })
    }

    // ---- tasks begin ------------------------------------------------------------------------------

    /// The account that pays for what a caller makes.
    #[inline]
    pub(crate) fn payer(&self, caller: Caller) -> AccountId {
        self.tasks.get(caller.task).map_or(AccountId::ROOT, |task| task.account)
    }

    /// The account of the task of a thread.
    pub(crate) fn account_of(&self, thread: ThreadId) -> AccountId {
        let task = self.threads.find(thread).and_then(|record| self.tasks.get(record.task));
        task.map_or(AccountId::ROOT, |task| task.account)
    }

    /// An account below another one, whose processor time the kernel counts.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`].
    pub(crate) fn account_open(
        &mut self,
        world: &mut impl World,
        parent: AccountId,
        limits: Amounts,
    ) -> Result<AccountId, Error> {
        let account = self.ledger.open(parent, limits)?;
        let above = self.ledger.parent(account).share();
        let opened = world.share_open(account.share(), above, limits[Resource::Processor as usize]);
        if opened.is_err() {
            self.ledger.close(account);
            return Err(Error::NoMemory);
        }
        Ok(account)
    }

    /// Waits once for a checkpoint if the programs have hardly any heap left: records of slots with dirty pages could not be taken back, whoever has left them, and objects that were not written could not come to rest.
    ///
    /// # Errors
    /// The need to wait.
    fn wait_for_clean_slots(&mut self, world: &mut impl World, caller: Caller) -> Step<()> {
        let is_little = self.ledger.left(self.programs, Resource::Bytes) < self.heap_of_first;
        let tries = &mut self.threads.record(caller.thread).tries;
        let is_unwritten = self.pager.dirty > 0 || self.pager.idle.has_unwritten;
        if is_little && is_unwritten && tries.checkpoints == 0 {
            tries.checkpoints = 1;
            // They go with the next look for what nobody uses.
            tries.had_idle = false;
            if let Err(Stop::Wait(key)) = self.wait_for_checkpoint(world) {
                return Err(Stop::Wait(key));
            }
        }
        Ok(())
    }

    /// A task without threads, in a new domain with that APD. Its account stands below `parent`.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::LimitReached`].
    pub fn task_make(
        &mut self,
        world: &mut impl World,
        apd: Apd,
        parent: AccountId,
        limits: Amounts,
    ) -> Result<TaskId, Error> {
        let account = self.account_open(world, parent, limits)?;
        let room = self.work.promise();
        let made = room.and_then(|()| {
            self.task_make_paid(world, &apd, account)
                .inspect_err(|_| self.work.release())
        });
        if made.is_err() {
            self.ledger.close(account);
        }
        made
    }

    fn task_make_paid(&mut self, world: &mut impl World, apd: &Apd, account: AccountId) -> Result<TaskId, Error> {
        self.tasks.expect()?;
        self.ledger.take(account, Resource::Bytes, TASK_BYTES)?;
        let domain = self
            .domain_create(world, apd, account)
            .inspect_err(|_| self.ledger.give(account, Resource::Bytes, TASK_BYTES))?;
        let task = self.tasks.create(domain, account).inspect_err(|_| {
            self.domain_end(world, domain);
            self.ledger.give(account, Resource::Bytes, TASK_BYTES);
        })?;
        self.domain_set_task(domain, task);
        Ok(task)
    }

    /// `TaskCreate`: entry, parameter, APD, bound of pages, priority, bound of processor time.
    pub(crate) fn task_create(&mut self, world: &mut impl World, caller: Caller, arguments: TaskCreate) -> Answer {
        let TaskCreate {
            entry,
            parameter,
            apd,
            limit_pages,
            priority,
            limit_share,
        } = arguments;
        let own_priority = self.threads.record(caller.thread).priority;
        let foreground = priority & TASK_FOREGROUND != 0;
        let priority = checked_priority(priority & !TASK_FOREGROUND, own_priority)?;
        self.validate(world, caller.domain, entry, Rights::X)?;
        // The caller's, or a description whose Clists the caller can read.
        let apd = if apd == 0 {
            self.domain_apd(caller.domain).unsealed()
        } else {
            self.apd_read(world, caller.domain, apd)?
        };
        // The locked slots of the caller's APD, and of those that it reads through to, stay at the head of whatever it gives to others.
        if !self.locks_are_kept(caller.domain, &apd) {
            return Err(Error::Locked.into());
        }
        self.enough_heap(world)?;
        let (parent, mut limits) = if self.tasks.initial == Some(caller.task) {
            // A program gets a part of what is left now, and what nobody uses counts as left.
            if limits::are_tight(&self.ledger, self.programs) {
                let tries = &mut self.threads.record(caller.thread).tries;
                let begins = !tries.had_idle;
                if begins {
                    tries.had_idle = true;
                    self.idle_anew(AccountId::ROOT);
                }
                self.goes_on(world, Work::Idle, begins)?;
                self.wait_for_clean_slots(world, caller)?;
            }
            self.renew_blocks();
            (self.programs, limits::of_program(&self.ledger, self.programs))
        } else {
            let parent = self.payer(caller);
            (parent, limits::of_task(&self.ledger, parent))
        };
        if limit_pages != 0 {
            limits[Resource::Frames as usize] = limits[Resource::Frames as usize].min(limit_pages);
        }
        if limit_share != 0 {
            limits[Resource::Processor as usize] = limit_share;
        }
        self.frames_for_threads(world)?;
        self.budget.spend(COST_MAKE);
        let task = self.task_make(world, apd, parent, limits)?;
        if let Some(task) = self.tasks.get(task).filter(|_| limit_pages != 0) {
            self.ledger.bound_memory(task.account);
        }
        match self.task_begin(world, caller, task, entry, parameter, priority) {
            Ok(thread) => {
                if foreground {
                    // Who does not hold the terminal starts the task all the same.
                    let _ = self.pass_foreground(caller, Some(task));
                }
                Ok((thread.0, task.0))
            }
            Err(error) => {
                self.task_ends(task);
                Err(error.into())
            }
        }
    }

    /// The first thread of a task that was just made; the object it runs in becomes the task's.
    fn task_begin(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        task: TaskId,
        entry: u64,
        parameter: u64,
        priority: u8,
    ) -> Result<ThreadId, Error> {
        let thread = self.thread_make(world, task, Some(caller), entry, parameter, priority)?;
        let domain = self.threads.record(thread).domain;
        if let Err(error) = self.object_move(world, entry, caller.domain, domain, task) {
            self.thread_discard(world, thread);
            return Err(error);
        }
        if let Some(task) = self.tasks.get_mut(task) {
            task.first = thread;
        }
        world.thread_wake(thread, kcore::thread::Resumed::First);
        Ok(thread)
    }

    /// Ends all threads of a task as an exception of that kind does. Threads inside foreign callees get some time
    /// to return; the task ends with the last of them. The event under way does a first piece of it.
    pub fn task_kill(&mut self, task: TaskId, kind: u64) {
        if let Some(task) = self.tasks.get_mut(task) {
            task.killed = task.killed.or(Some(kind));
        }
        self.task_ends(task);
    }

    /// All threads of a task have ended, or have to: the rest is the list's.
    pub(crate) fn task_ends(&mut self, task: TaskId) {
        if let Some(task) = self.tasks.get_mut(task).filter(|task| !task.listed) {
            task.listed = true;
            let id = task.id;
            self.work_enter(Work::Task(id));
        }
    }

    /// A piece of the end of a task: its threads, if it was killed; the children of those that have ended; its domain; its kill list and
    /// stacks; its semaphores.
    pub(crate) fn task_piece(&mut self, world: &mut impl World, id: TaskId) -> Piece {
        if !self.threads_are_told(world, id) || !self.children_of_task_go(world, id) {
            return Piece::More;
        }
        let Some(task) = self.tasks.get_mut(id) else {
            return Piece::Done;
        };
        if task.threads > 0 {
            // The last of them enters it again.
            task.listed = false;
            return Piece::Done;
        }
        let (domain, account, last) = (task.domain, task.account, task.last);
        if self.domains.get(domain).is_some_and(|domain| domain.task == Some(id)) {
            if self.callees_of_domain_end(world, domain) || !self.domain_ends_soon(world, domain) {
                return Piece::More;
            }
            // The space goes as a whole, so that the objects need not be unlinked from it one by one.
            self.domain_end(world, domain);
        }
        if !self.objects_of_task_go(world, id) || !self.semaphores_of_task_go(world, id) {
            return Piece::More;
        }
        self.budget.spend(COST_TASK);
        self.console.task_ended(id);
        self.tasks.remove(id);
        self.work.release();
        self.ledger.give(account, Resource::Bytes, TASK_BYTES);
        self.ledger.close(account);
        if self.threads.find(last).is_some_and(|last| last.life == Life::Ending) {
            self.thread_has_ended(world, last);
        }
        if self.tasks.initial == Some(id) {
            self.first_task_ended(world);
        }
        Piece::Done
    }

    /// Ends the threads of a task that was killed, or condemns them, as far as the budget reaches; tells whether those were all.
    fn threads_are_told(&mut self, world: &mut impl World, id: TaskId) -> bool {
        while let Some(task) = self.tasks.get(id)
            && let Some(kind) = task.killed
            && let Some(thread) = self.threads.at(task.members.head as usize).map(|record| record.id)
        {
            if !self.budget.spend(COST_THREAD) {
                return false;
            }
            let report = ExitReport {
                thread: thread.0,
                status: STATUS_SYSTEM + kind,
                exception: kind,
                ..ExitReport::default()
            };
            self.thread_condemn(world, thread, report);
        }
        true
    }

    /// Ends the objects on the kill list of a task, and its stacks, as far as the budget reaches; tells whether that was all.
    fn objects_of_task_go(&mut self, world: &mut impl World, id: TaskId) -> bool {
        while let Some(task) = self.tasks.get(id) {
            let object = task.kill_list.first();
            let base = object.map(|object| self.objects.get(object).base());
            let Some(base) = base.or(task.stacks.last().copied()) else {
                break;
            };
            if !self.object_ends(world, base) {
                return false;
            }
            // An object that has ended has taken itself off the kill list.
            debug_assert!(object.is_none_or(|object| !self.objects.is_live(object)), "it ends");
            if let Some(object) = object.filter(|&object| self.objects.is_live(object)) {
                self.disown(object);
            } else if object.is_none()
                && let Some(task) = self.tasks.get_mut(id)
            {
                task.stacks.pop();
            }
        }
        true
    }

    /// The report of a thread that another one ended.
    pub fn killed(thread: ThreadId, status: u64) -> ExitReport {
        ExitReport {
            thread: thread.0,
            status,
            exception: EXCEPTION_KILL,
            ..ExitReport::default()
        }
    }
}
