//! Tasks: threads that share an active protection domain, a kill list and an account.
//!
//! A task begins with its first thread and ends with its last. Its *kill list* names the objects
//! that nobody has asked to keep; they go with it. Its *account* bounds what it can take from the
//! others: pages, objects, threads, semaphores. What the account cannot give is an error of the call, or ends
//! the program that faulted, and nobody else.
//!
//! An identifier is unique in space and time, so a stale one is simply not found: objects that
//! outlive their creator keep its identifier and charge nobody.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    call::arguments,
    layout::{EXCEPTION_KILL, ExitReport, PRIORITY_MAX, STATUS_SYSTEM},
};
use kcore::{SpaceId, ThreadId, thread::THREADS_MAX};

use crate::{Server, Step, World, lives::exception::Handlers, lives::thread::Caller, protection::apd::Apd};

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

/// Threads, ended but unreaped ones included, that one task may have made.
pub const TASK_THREADS_MAX: u32 = 256;
/// Objects that may stand on one kill list.
pub const TASK_OBJECTS_MAX: usize = 4096;
/// Slots that the objects on one kill list may have: two terabytes of addresses, a part in sixty-four.
pub const TASK_SLOTS_MAX: u64 = 1 << 20;
/// Semaphores that one task may have made: a sixteenth of all.
pub const TASK_SEMAPHORES_MAX: u32 = 1024;
/// Places in the thread table that only the first task and its children get: whatever a runaway
/// program makes, the shell can start the next one.
const THREADS_RESERVED: usize = 32;
/// How long a thread that is to end may stay inside a foreign callee.
pub const UNWIND_BOUND_NS: u64 = 1_000_000_000;

/// What a task may take, and has taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Pages in memory or reserved on disk that were made for it.
    pub pages: u64,
    /// Bound of `pages`.
    pub limit_pages: u64,
    /// Threads it made that are not yet reaped.
    pub threads: u32,
    /// Slots of the objects on its kill list.
    pub slots: u64,
    /// Semaphores it made that are not deleted.
    pub semaphores: u32,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Its identifier now, or that of the last task in this place.
    pub id: TaskId,
    /// Whether the place is in use.
    pub live: bool,
    /// Its domain.
    pub domain: SpaceId,
    /// Its first thread.
    pub first: ThreadId,
    /// Threads that have not ended.
    pub threads: u32,
    /// Exception handlers.
    pub handlers: Handlers,
    /// Bases of the objects that end with it.
    pub kill_list: Vec<u64>,
    /// What it may take, and has taken.
    pub account: Account,
    /// Bases of stacks of threads that have ended, to be used again.
    pub stacks: Vec<u64>,
}

/// All tasks.
#[derive(Default)]
pub struct Tasks {
    table: Vec<Task>,
    free: Vec<u32>,
    /// The first task of the system, which no one waits for.
    pub initial: Option<TaskId>,
    /// The checkpoint after which the machine stops, because the first task has ended.
    pub farewell: Option<u64>,
    /// Tasks whose last thread has ended in the event under way.
    pub ended: Vec<TaskId>,
}

impl Tasks {
    /// The task with this identifier.
    #[inline]
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.table.get(id.index()).filter(|task| task.id == id && task.live)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.table.get_mut(id.index()).filter(|task| task.id == id && task.live)
    }

    /// All tasks.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.table.iter().filter(|task| task.live)
    }

    /// A place for a task with this domain and bound. The vectors of an earlier task are used again.
    fn create(&mut self, domain: SpaceId, limit_pages: u64) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Task {
                id: TaskId(self.table.len() as u64),
                live: false,
                domain,
                first: ThreadId(0),
                threads: 0,
                handlers: Handlers::default(),
                kill_list: Vec::new(),
                account: Account::default(),
                stacks: Vec::new(),
            });
            self.table.len() as u32 - 1
        });
        let task = &mut self.table[index as usize];
        task.id = TaskId(task.id.0 + (1 << 16));
        task.live = true;
        task.domain = domain;
        task.first = ThreadId(0);
        task.threads = 0;
        task.handlers = Handlers::default();
        task.account = Account {
            limit_pages,
            ..Account::default()
        };
        task.id
    }

    /// Gives the place back.
    fn remove(&mut self, id: TaskId) {
        if let Some(task) = self.get_mut(id) {
            task.live = false;
            task.kill_list.clear();
            task.stacks.clear();
            self.free.push(id.index() as u32);
        }
    }

    /// Charges pages to a task; one that no longer exists pays nothing.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    #[inline]
    pub fn charge(&mut self, task: TaskId, pages: u64) -> Result<(), Error> {
        let Some(task) = self.get_mut(task) else { return Ok(()) };
        let sum = task.account.pages.saturating_add(pages);
        if sum > task.account.limit_pages {
            return Err(Error::LimitReached);
        }
        task.account.pages = sum;
        Ok(())
    }

    /// Takes a charge back.
    #[inline]
    pub fn refund(&mut self, task: TaskId, pages: u64) {
        if let Some(task) = self.get_mut(task) {
            debug_assert!(
                task.account.pages >= pages,
                "{pages} pages go back of {}",
                task.account.pages
            );
            task.account.pages = task.account.pages.saturating_sub(pages);
        }
    }

    /// Charges addresses, in slots, for an object on a task's kill list.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    pub fn charge_slots(&mut self, task: TaskId, slots: u64) -> Result<(), Error> {
        let Some(task) = self.get_mut(task) else { return Ok(()) };
        let sum = task.account.slots.saturating_add(slots);
        if sum > TASK_SLOTS_MAX {
            return Err(Error::LimitReached);
        }
        task.account.slots = sum;
        Ok(())
    }

    /// Takes that back.
    pub fn refund_slots(&mut self, task: TaskId, slots: u64) {
        if let Some(task) = self.get_mut(task) {
            task.account.slots = task.account.slots.saturating_sub(slots);
        }
    }

    /// Charges a semaphore to a task.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: nothing is charged.
    pub fn charge_semaphore(&mut self, task: TaskId) -> Result<(), Error> {
        let task = self.get_mut(task).ok_or(Error::LimitReached)?;
        if task.account.semaphores >= TASK_SEMAPHORES_MAX {
            return Err(Error::LimitReached);
        }
        task.account.semaphores += 1;
        Ok(())
    }

    /// Takes that back.
    pub fn refund_semaphore(&mut self, task: TaskId) {
        if let Some(task) = self.get_mut(task) {
            task.account.semaphores = task.account.semaphores.saturating_sub(1);
        }
    }

    /// Puts an object on a kill list.
    ///
    /// # Errors
    /// [`Error::LimitReached`]: the list is full.
    pub fn own(&mut self, task: TaskId, base: u64) -> Result<(), Error> {
        let task = self.get_mut(task).ok_or(Error::LimitReached)?;
        if task.kill_list.len() >= TASK_OBJECTS_MAX {
            return Err(Error::LimitReached);
        }
        task.kill_list.push(base);
        Ok(())
    }

    /// Takes an object off a kill list; tells whether it was there.
    pub fn disown(&mut self, task: TaskId, base: u64) -> bool {
        // Objects die young: the newest are looked at first.
        let Some(task) = self.get_mut(task) else { return false };
        let place = task.kill_list.iter().rposition(|&other| other == base);
        if let Some(place) = place {
            task.kill_list.swap_remove(place);
        }
        place.is_some()
    }

    /// Whether an object stands on a kill list.
    pub fn owns(&self, task: TaskId, base: u64) -> bool {
        self.get(task)
            .is_some_and(|task| task.kill_list.iter().rev().any(|&other| other == base))
    }

    /// Counts a thread that `task` makes; `live` is how many there are in the system.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    #[inline]
    pub fn charge_thread(&mut self, task: TaskId, live: usize) -> Result<(), Error> {
        let initial = self.initial == Some(task);
        let task = self.get_mut(task).ok_or(Error::LimitReached)?;
        let room = if initial {
            THREADS_MAX
        } else {
            THREADS_MAX - THREADS_RESERVED
        };
        if task.account.threads >= TASK_THREADS_MAX || live >= room {
            return Err(Error::LimitReached);
        }
        task.account.threads += 1;
        Ok(())
    }

    /// Takes that back.
    #[inline]
    pub fn refund_thread(&mut self, task: TaskId) {
        if let Some(task) = self.get_mut(task) {
            task.account.threads = task.account.threads.saturating_sub(1);
        }
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
    /// Pages that a task may have unless it is told otherwise: three quarters of the memory.
    pub fn default_limit_pages(world: &impl World) -> u64 {
        world.frames_total() / 4 * 3
    }

    /// A task without threads, in a new domain with that APD.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn task_make(&mut self, world: &mut impl World, apd: Apd, limit_pages: u64) -> Result<TaskId, Error> {
        let domain = self.domain_create(world, apd)?;
        let task = self.tasks.create(domain, limit_pages);
        self.domain_set_task(domain, task);
        Ok(task)
    }

    /// `TaskCreate`: entry, parameter, APD, bound of pages, priority.
    ///
    /// # Errors
    /// Those of the table; nothing has changed then.
    pub fn task_create(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        arguments: arguments::TaskCreate,
    ) -> Step<(u64, u64)> {
        let arguments::TaskCreate {
            entry,
            parameter,
            apd,
            limit_pages,
            priority,
        } = arguments;
        let own_priority = self.threads.record(caller.thread).priority;
        let priority = checked_priority(priority, own_priority)?;
        self.validate(world, caller.domain, entry, Rights::X)?;
        let apd = self.task_apd(world, caller, apd)?;
        let bound = Self::default_limit_pages(world);
        let limit = if limit_pages == 0 {
            bound
        } else {
            limit_pages.min(bound)
        };
        self.enough_heap(world)?;
        let task = self.task_make(world, apd, limit)?;
        match self.task_begin(world, caller, task, entry, parameter, priority) {
            Ok(thread) => Ok((thread.0, task.0)),
            Err(error) => {
                self.task_end(world, task);
                Err(error.into())
            }
        }
    }

    /// The APD of a new task: the caller's, or a description whose Clists the caller can read.
    /// What is locked in the caller's APD stays at the head of whatever it gives to others.
    fn task_apd(&mut self, world: &mut impl World, caller: Caller, address: u64) -> Step<Apd> {
        let own = self.domain_apd(caller.domain).unsealed();
        if address == 0 {
            return Ok(own);
        }
        let apd = self.apd_read(world, caller.domain, address)?;
        if !apd.keeps_locks_of(&own) {
            return Err(Error::Locked.into());
        }
        Ok(apd)
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

    /// Ends all threads of a task with this report. Threads inside foreign callees get some time
    /// to return; the task ends with the last of them.
    pub fn task_kill(&mut self, world: &mut impl World, task: TaskId, kind: u64) {
        for index in 0..THREADS_MAX {
            let Some(record) = self.threads.live_at(index) else {
                continue;
            };
            if record.task != task {
                continue;
            }
            let thread = record.id;
            let report = ExitReport {
                thread: thread.0,
                status: STATUS_SYSTEM + kind,
                exception: kind,
                ..ExitReport::default()
            };
            self.thread_condemn(world, thread, report);
        }
    }

    /// Ends a task whose threads have all ended: its kill list, its stacks, its domain.
    pub fn task_end(&mut self, world: &mut impl World, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        debug_assert_eq!(task.threads, 0, "a task ends before its threads");
        let domain = task.domain;
        let mut list = core::mem::take(&mut task.kill_list);
        let mut stacks = core::mem::take(&mut task.stacks);
        self.callees_of_domain_end(world, domain);
        // The space goes as a whole, so that the objects need not be unlinked from it one by one.
        self.domain_end(world, domain);
        for base in list.drain(..).chain(stacks.drain(..)) {
            self.object_end(world, base);
        }
        self.console.task_ended(id);
        if let Some(task) = self.tasks.get_mut(id) {
            // The vectors serve the next task in this place.
            task.kill_list = list;
            task.stacks = stacks;
        }
        self.tasks.remove(id);
        if self.tasks.initial == Some(id) {
            self.first_task_ended(world);
        }
    }

    /// Ends the tasks whose last thread has ended in this event. To be called when an event is over.
    #[inline(always)]
    pub fn finish_ends(&mut self, world: &mut impl World) {
        while let Some(task) = self.tasks.ended.pop() {
            self.task_end(world, task);
        }
    }

    /// Ends what was condemned and has not returned in time. Called from `Event::Poll`.
    pub fn poll_control(&mut self, world: &mut impl World) {
        self.callees_sweep_retired(world);
        if self.threads.condemned.is_empty() {
            return;
        }
        let now = world.now_ns();
        let mut condemned = core::mem::take(&mut self.threads.condemned);
        condemned.retain(|&thread| {
            let due = match self.threads.find(thread).and_then(|record| record.doom.as_ref()) {
                Some(doom) => (doom.at_ns <= now).then_some(doom.report),
                None => return false,
            };
            if let Some(report) = due {
                world.log(format_args!("thread {:#x} is unwound by force", thread.0));
                self.thread_end(world, thread, report);
            }
            due.is_none()
        });
        // Ending a thread condemns no other, but a callee's end may.
        condemned.append(&mut self.threads.condemned);
        self.threads.condemned = condemned;
        self.finish_ends(world);
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
