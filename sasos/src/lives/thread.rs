//! Threads, as the server knows them: parent, children, how they ended.
//!
//! The kernel below has the registers; the server decides who may do what with a thread. A parent is a
//! thread *in a domain*: a thread that a callee starts on its caller's thread is the callee's child, not
//! the caller's. In the same way, what a thread may do to its own task it may do at home only;
//! inside a protected call it runs somebody else's code.
//!
//! A thread that ended keeps its place until its parent has waited for it. When a parent ends, its
//! children go to the first thread of its task; where there is none left they are orphans: the
//! first task of the system may control them, and nobody waits for them. A thread's stack goes
//! back to its task and serves the next thread.

use alloc::{boxed::Box, vec, vec::Vec};

use abi::{
    Error, Rights,
    address::{PAGE, STACK_BYTES},
    call::arguments::{ThreadCreate, ThreadInfo},
    layout::{
        ExitReport, FOREVER, PRIORITY_MAX, THREAD_ENDED, THREAD_READY, THREAD_RUNNING, THREAD_SLEEPING, THREAD_WAITING,
        ThreadReport,
    },
};
use kcore::{
    Shortage, SpaceId, ThreadId,
    scheduler::{Link, List, NONE, Standing},
    thread::{Resumed, THREADS_MAX},
};

use crate::{
    Answer, Server, Step, World,
    accounts::{AccountId, Resource, limits},
    calls::sight::Sight,
    containers::{Boxed, push_reserved, reserve},
    lives::chunks::Chunks,
    lives::continuation::Continuation,
    lives::doom::{Doom, Round},
    lives::exception::Saved,
    lives::task::{TaskId, checked_priority},
    lives::work::piece,
    pages::backing::Backing,
    pages::pager::FRAME_RESERVE,
    procedures::pdx::Stage,
    protection::apd::Apd,
    protection::search::Bookmark,
};

/// Checkpoints that a write waits for where the disk is full: one that runs already, and the two after which what was removed is free.
const CHECKPOINTS_THAT_HELP: u8 = 3;
/// Pages that one instruction may need: of its code, of what it reads, of what it writes, two each.
pub(crate) const PAGES_OF_INSTRUCTION: usize = 6;

/// So often are pages taken for one another before they are spared.
const TIMES_UNTIL_SPARED: u8 = 8;

/// The faults of a thread that were helped by taking back things in use, or clean pages for a read: an instruction may need some pages of which each gets what was taken from another, for ever.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Helped {
    /// The last pages at which that was.
    pages: [u64; PAGES_OF_INSTRUCTION],
    /// How often it was at one of these, since another page was the last of them.
    pub(crate) times: u8,
}

impl Helped {
    /// Counts one at a page.
    pub(crate) fn note(&mut self, page: u64) {
        if self.pages.contains(&page) {
            self.times = self.times.saturating_add(1);
        } else {
            self.pages.rotate_right(1);
            (self.pages[0], self.times) = (page, 0);
        }
    }

    /// The pages that are not to be taken for the thread any more, where it was so often that an instruction must need them at once.
    pub(crate) fn spared(&self) -> [u64; PAGES_OF_INSTRUCTION] {
        if self.times < TIMES_UNTIL_SPARED {
            [0; PAGES_OF_INSTRUCTION]
        } else {
            self.pages
        }
    }
}

/// The remedies that were tried for a thread that lacks something.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tries {
    /// The page that a fault lacks; zero for a call.
    pub(crate) what: u64,
    /// Pieces of what ends that were done for him.
    pub(crate) pieces: u16,
    /// Whether what nobody uses was taken back.
    pub(crate) had_idle: bool,
    /// Checkpoints that a call waited for, as the disk was full.
    pub(crate) checkpoints: u8,
    /// The object that becomes a backed one meanwhile.
    pub(crate) backing: Option<Backing>,
    /// Objects that could not.
    pub(crate) failures: u8,
}

/// The maker of a call.
#[derive(Copy, Clone, Debug)]
pub struct Caller {
    /// The thread.
    pub thread: ThreadId,
    /// The domain it runs in now.
    pub domain: SpaceId,
    /// Its task.
    pub task: TaskId,
    /// Whether the call is done for the first time.
    pub resumed: Resumed,
}

/// The stage of a thread's life.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Life {
    /// No thread has this place.
    #[default]
    Vacant,
    /// It runs, or waits.
    Live,
    /// It has ended; but its children have not all gone to another thread, or it was the last of its task, which has not given all back.
    /// Nobody was told.
    Ending,
    /// It has ended and was not waited for.
    Ended,
}

/// Why a thread does not run although nothing keeps it waiting.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Pause {
    /// It does.
    #[default]
    No,
    /// It sleeps.
    Sleeping,
    /// Another thread has suspended it.
    Suspended,
}

/// The server's record of a thread.
#[derive(Debug)]
pub struct Thread {
    /// Its identifier now, or that of the last thread in this place.
    pub id: ThreadId,
    /// The stage of its life.
    pub life: Life,
    /// Its task.
    pub task: TaskId,
    /// Its home: the domain of its task.
    pub domain: SpaceId,
    /// The thread that may wait for it; zero for an orphan.
    pub parent: ThreadId,
    /// The serial number of the domain in which the parent made it. It is never that of a space: those are used again.
    pub parent_domain: u64,
    /// The account that pays for its place.
    pub payer: AccountId,
    /// 0 to 7.
    pub priority: u8,
    /// Whether it sleeps or is suspended.
    pub pause: Pause,
    /// Base of its stack.
    pub stack: u64,
    /// How it ended.
    pub report: ExitReport,
    /// How far its call has got.
    pub continuation: Continuation,
    /// How far the search for a right of that call has got, or that of a fault.
    pub bookmark: Option<Bookmark>,
    /// The Clists that [the call shows](Continuation::Shows) and a piece of it has seen. One for a thread at most, which the frames that each
    /// thread is counted for have room for.
    pub(crate) shown: Option<Boxed<Apd>>,
    /// How often that call, or a fault, has waited for what others give back.
    pub(crate) tries: Tries,
    pub(crate) helped: Helped,
    /// The last two pages of which a write found the disk full, and how often that was since the second of them was another.
    found_full: ([u64; 2], u8),
    /// The checkpoint that it waits for since it found the disk full.
    pub(crate) full_until: u64,
    /// When that call times out.
    pub deadline: Option<u64>,
    /// The states that exception handlers interrupted, at most one in each call that the thread is inside of, the innermost last.
    pub saved: Vec<Saved>,
    /// Whether and how it has to end.
    pub doom: Option<Doom>,
    /// Children that have not ended.
    pub(crate) children: List,
    /// Children that have.
    pub(crate) ended: List,
}

impl Default for Thread {
    /// A vacant place.
    fn default() -> Self {
        Self {
            id: ThreadId(0),
            life: Life::Vacant,
            task: TaskId::NONE,
            domain: SpaceId(0),
            parent: ThreadId(0),
            parent_domain: 0,
            payer: AccountId::ROOT,
            priority: 0,
            pause: Pause::No,
            stack: 0,
            report: ExitReport::default(),
            continuation: Continuation::None,
            bookmark: None,
            shown: None,
            tries: Tries::default(),
            helped: Helped::default(),
            found_full: ([0; 2], 0),
            full_until: 0,
            deadline: None,
            saved: Vec::new(),
            doom: None,
            children: List::EMPTY,
            ended: List::EMPTY,
        }
    }
}

impl Thread {
    /// Whether all is as a thread finds it that begins in this place, but for what is set then: the end of a thread
    /// leaves nothing behind, so its beginning has little to do.
    fn is_clean(&self) -> bool {
        self.life == Life::Vacant
            && self.pause == Pause::No
            && self.continuation == Continuation::None
            && self.saved.is_empty()
            && self.doom.is_none()
            && self.children.head == NONE
            && self.ended.head == NONE
            && self.shown.is_none()
            && self.tries == Tries::default()
            && self.helped.times == 0
            && self.found_full.1 == 0
            && self.full_until == 0
    }

    /// The thread leaves its place. The next one there begins its own tries.
    pub(crate) fn vacate(&mut self) {
        self.life = Life::Vacant;
        self.tries = Tries::default();
        self.helped = Helped::default();
        self.found_full.1 = 0;
        self.full_until = 0;
    }

    /// Counts a write that finds the disk full, or a call where `address` is zero; tells whether it may wait for one more checkpoint. An instruction may write to two pages,
    /// of which each is full again while it waits for the other.
    pub(crate) fn may_wait_for_blocks(&mut self, address: u64) -> bool {
        if address == 0 {
            let may = self.tries.checkpoints < CHECKPOINTS_THAT_HELP;
            self.tries.checkpoints += u8::from(may);
            return may;
        }
        let (pages, times) = &mut self.found_full;
        let page = address / PAGE;
        if !pages.contains(&page) {
            (*pages, *times) = ([page, pages[0]], 0);
        }
        let may = *times < CHECKPOINTS_THAT_HELP;
        *times = if may { *times + 1 } else { 0 };
        may
    }
}

/// All threads, in the places that the kernel gives them.
pub struct Threads {
    pub(crate) table: Chunks<Thread>,
    /// Siblings: a thread is in one of its parent's two lists.
    links: Box<[Link]>,
    /// Threads of the same task: a thread is among its members, or among those of its that are parting.
    mates: Box<[Link]>,
    /// Places in use.
    pub count: usize,
    /// The most that there have been at once: so many places are there.
    most: usize,
    /// Threads that have a [`Doom`].
    condemned: List,
    condemned_links: Box<[Link]>,
    /// The looks at them.
    pub(crate) dooms: Round,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            table: Chunks::default(),
            links: vec![Link::LOOSE; THREADS_MAX].into_boxed_slice(),
            mates: vec![Link::LOOSE; THREADS_MAX].into_boxed_slice(),
            count: 0,
            most: 0,
            condemned: List::EMPTY,
            condemned_links: vec![Link::LOOSE; THREADS_MAX].into_boxed_slice(),
            dooms: Round::default(),
        }
    }
}

impl Threads {
    /// The record of a thread that exists, such as a caller.
    #[inline]
    pub fn record(&mut self, thread: ThreadId) -> &mut Thread {
        &mut self.table[thread.index()]
    }

    /// The record of a thread, by an identifier that may be anything.
    #[inline]
    pub fn find(&self, thread: ThreadId) -> Option<&Thread> {
        self.table
            .get(thread.index())
            .filter(|record| record.id == thread && record.life != Life::Vacant)
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> u64 {
        self.table.len() as u64
    }

    /// The thread in a place, ended or not.
    pub(crate) fn at(&self, index: usize) -> Option<&Thread> {
        self.table.get(index).filter(|record| record.life != Life::Vacant)
    }

    /// The thread in a place, if it has not ended.
    pub fn live_at(&self, index: usize) -> Option<&Thread> {
        self.table.get(index).filter(|record| record.life == Life::Live)
    }

    /// All threads, ended ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.table.iter().filter(|record| record.life != Life::Vacant)
    }

    /// Makes `child` a child of `parent`.
    #[inline]
    pub(crate) fn adopt(&mut self, parent: ThreadId, child: ThreadId) {
        let record = &mut self.table[child.index()];
        record.parent = parent;
        let ended = record.life == Life::Ended;
        let parent = &mut self.table[parent.index()];
        let list = if ended { &mut parent.ended } else { &mut parent.children };
        list.push_back(&mut self.links, child.index() as u32);
    }

    /// Takes a thread out of its parent's list.
    #[inline]
    pub(crate) fn leave_parent(&mut self, child: ThreadId) {
        let record = &self.table[child.index()];
        let (parent, ended) = (record.parent, record.life == Life::Ended);
        if parent.0 == 0 {
            return;
        }
        let parent = &mut self.table[parent.index()];
        let list = if ended { &mut parent.ended } else { &mut parent.children };
        list.remove(&mut self.links, child.index() as u32);
        self.table[child.index()].parent = ThreadId(0);
    }

    /// Enters a thread among those of its task.
    #[inline]
    pub(crate) fn join(&mut self, members: &mut List, thread: ThreadId) {
        members.push_back(&mut self.mates, thread.index() as u32);
    }

    /// Takes it off.
    #[inline]
    pub(crate) fn leave(&mut self, members: &mut List, thread: ThreadId) {
        members.remove(&mut self.mates, thread.index() as u32);
    }

    /// Enters a thread among those that have a [`Doom`].
    pub(crate) fn condemn(&mut self, thread: ThreadId) {
        self.dooms.enter();
        self.stands_last(thread.index() as u32);
    }

    fn stands_last(&mut self, index: u32) {
        self.condemned.push_back(&mut self.condemned_links, index);
    }

    /// Takes it off.
    pub(crate) fn pardon(&mut self, thread: ThreadId) {
        self.dooms.leave();
        self.condemned.remove(&mut self.condemned_links, thread.index() as u32);
    }

    /// The first of them, which is the last from now on.
    pub(crate) fn first_condemned(&mut self) -> Option<ThreadId> {
        let index = self.condemned.head;
        let thread = self.table.get(index as usize)?.id;
        self.condemned.remove(&mut self.condemned_links, index);
        self.stands_last(index);
        Some(thread)
    }

    /// The next one in the list of its parent; [`NONE`] behind the last.
    pub(crate) fn sibling(&self, index: u32) -> u32 {
        self.links[index as usize].next()
    }
}

/// When a call with this timeout gives up.
pub fn deadline_after(now_ns: u64, timeout_ns: u64) -> Option<u64> {
    if timeout_ns == FOREVER {
        None
    } else {
        Some(now_ns.saturating_add(timeout_ns))
    }
}

impl Server {
    /// The maker of a call.
    pub fn caller(&mut self, world: &impl World, thread: ThreadId, resumed: Resumed) -> Caller {
        self.caller_in(world.thread_space(thread), thread, resumed)
    }

    /// The maker of a call, in this domain. A call done for the first time has no past.
    #[inline(always)]
    pub(crate) fn caller_in(&mut self, domain: SpaceId, thread: ThreadId, resumed: Resumed) -> Caller {
        let record = self.threads.record(thread);
        if resumed == Resumed::First {
            record.continuation = Continuation::None;
            record.bookmark = None;
            // The page of an earlier fault may stay: nothing was tried for it.
            record.tries = Tries {
                what: record.tries.what,
                ..Tries::default()
            };
        }
        let task = record.task;
        self.current = thread;
        self.budget.begin(piece());
        Caller {
            thread,
            domain,
            task,
            resumed,
        }
    }

    /// Whether the caller runs in its own task's domain.
    pub(crate) fn at_home(&mut self, caller: Caller) -> bool {
        self.threads.record(caller.thread).domain == caller.domain
    }

    /// The absolute deadline of the present call.
    #[inline]
    pub fn call_deadline(&mut self, world: &impl World, caller: Caller, timeout_ns: u64) -> Option<u64> {
        let record = self.threads.record(caller.thread);
        if caller.resumed == Resumed::First {
            // Asking for the time is not free.
            let now = if timeout_ns == FOREVER { 0 } else { world.now_ns() };
            record.deadline = deadline_after(now, timeout_ns);
        }
        record.deadline
    }

    // ---- beginning ------------------------------------------------------------------------------

    /// A suspended thread of a task, with a stack. `maker` is its parent; without one it is an orphan.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::NoMemory`].
    #[inline]
    pub fn thread_make(
        &mut self,
        world: &mut impl World,
        task: TaskId,
        maker: Option<Caller>,
        entry: u64,
        parameter: u64,
        priority: u8,
    ) -> Result<ThreadId, Error> {
        let making = maker.map_or(task, |maker| maker.task);
        let payer = self.tasks.get_mut(making).ok_or(Error::LimitReached)?;
        if payer.is_killed() {
            return Err(Error::LimitReached);
        }
        let payer = payer.account;
        self.ledger.take(payer, Resource::Threads, 1)?;
        let made = self.thread_make_charged(world, task, entry, parameter, priority);
        let thread = match made {
            Ok(thread) => thread,
            Err(error) => {
                self.ledger.give(payer, Resource::Threads, 1);
                return Err(error);
            }
        };
        self.threads.record(thread).payer = payer;
        // In a callee that ends, the search for children may be past the new one's place: it is an orphan from the start.
        let ends = |maker: &Caller| {
            self.callees
                .get(maker.domain)
                .is_some_and(|callee| callee.stage == Stage::Ends)
        };
        if let Some(maker) = maker.filter(|maker| !ends(maker)) {
            let domain = self.domains.get_mut(maker.domain);
            self.threads.record(thread).parent_domain = domain.map_or(0, |domain| {
                domain.is_mother = true;
                domain.serial
            });
            self.threads.adopt(maker.thread, thread);
        }
        Ok(thread)
    }

    #[inline]
    fn thread_make_charged(
        &mut self,
        world: &mut impl World,
        task: TaskId,
        entry: u64,
        parameter: u64,
        priority: u8,
    ) -> Result<ThreadId, Error> {
        let found = self.tasks.get_mut(task).ok_or(Error::LimitReached)?;
        let (domain, account) = (found.domain, found.account);
        // Its stack comes back when it ends.
        reserve(&mut found.stacks, found.threads as usize + 1)?;
        let stack = match found.stacks.pop() {
            Some(stack) => stack,
            None => self.stack_create(world, account, domain)?,
        };
        let standing = Standing::new(account.share(), priority);
        let created = world.thread_create(domain, entry, stack + STACK_BYTES, [parameter, 0, 0, 0], standing);
        let Some(found) = self.tasks.get_mut(task) else {
            return Err(Error::LimitReached);
        };
        let record = (created.map_err(|shortage| match shortage {
            Shortage::Frames => Error::NoMemory,
            Shortage::Spaces | Shortage::Threads => Error::LimitReached,
        }))
        .and_then(|thread| match self.threads.table.extend_to(thread.index()) {
            Ok(made) => {
                if made > 0 {
                    limits::places_made(&mut self.ledger, self.programs, account, made);
                }
                Ok(thread)
            }
            Err(error) => {
                world.thread_destroy(thread);
                Err(error)
            }
        });
        let thread = match record {
            Ok(thread) => thread,
            Err(error) => {
                push_reserved(&mut found.stacks, stack);
                return Err(error);
            }
        };
        found.threads += 1;
        self.threads.join(&mut found.members, thread);
        self.threads.count += 1;
        self.threads.most = self.threads.most.max(self.threads.count);
        let record = self.threads.record(thread);
        debug_assert!(record.is_clean(), "the last thread of a place left something behind");
        record.id = thread;
        record.life = Life::Live;
        record.task = task;
        record.domain = domain;
        record.parent = ThreadId(0);
        record.parent_domain = 0;
        record.priority = priority;
        record.stack = stack;
        Ok(thread)
    }

    /// Makes room for the places of some threads if all that there are have one, for the kernel takes them from the free frames: clean pages give way to them as to all others.
    pub(crate) fn frames_for_threads(&mut self, world: &mut impl World) -> Step<()> {
        while self.threads.count == self.threads.most && world.frames_free() <= FRAME_RESERVE {
            self.make_room(world)?;
        }
        Ok(())
    }

    /// `ThreadCreate`: entry, parameter, priority. A thread belongs to its task's own domain, so
    /// it is made at home.
    pub(crate) fn thread_create(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadCreate) -> Answer {
        let ThreadCreate {
            entry,
            parameter,
            priority,
        } = arguments;
        let priority = checked_priority(priority, self.threads.record(caller.thread).priority)?;
        if !self.at_home(caller) {
            return Err(Error::Protection.into());
        }
        self.validate(world, caller.domain, entry, Rights::X)?;
        self.frames_for_threads(world)?;
        let thread = self.thread_make(world, caller.task, Some(caller), entry, parameter, priority)?;
        world.thread_wake(thread, Resumed::First);
        Ok((thread.0, 0))
    }

    // ---- reports --------------------------------------------------------------------------------

    /// `ThreadInfo`: thread (0: the caller), report.
    pub(crate) fn thread_info(&mut self, world: &mut impl World, caller: Caller, arguments: ThreadInfo) -> Answer {
        let ThreadInfo {
            thread,
            report: buffer,
            room,
        } = arguments;
        let thread = if thread == 0 { caller.thread } else { ThreadId(thread) };
        if !self.is_own_thread(caller, thread) && self.sight(world, caller)? == Sight::Own {
            return Err(Error::NoSuchThread.into());
        }
        let report = self
            .thread_report(world, thread, caller.thread)
            .ok_or(Error::NoSuchThread)?;
        self.tell(world, caller, (buffer, room), &report.to_bytes())
    }

    /// The report on a thread, asked by `asking`.
    pub fn thread_report(&self, world: &impl World, thread: ThreadId, asking: ThreadId) -> Option<ThreadReport> {
        let record = self.threads.find(thread)?;
        let state = match (record.life, record.pause) {
            (Life::Ending | Life::Ended, _) => THREAD_ENDED,
            _ if thread == asking => THREAD_RUNNING,
            (_, Pause::Sleeping | Pause::Suspended) => THREAD_SLEEPING,
            _ if world.thread_is_ready(thread) => THREAD_READY,
            _ => THREAD_WAITING,
        };
        let account = self.tasks.get(record.task).map_or(AccountId::ROOT, |task| task.account);
        let (share, share_used) = world.share_told(account.share());
        Some(ThreadReport {
            thread: thread.0,
            task: record.task.0,
            parent: record.parent.0,
            state,
            priority: u64::from(record.priority),
            domain: u64::from(world.thread_space(thread).0),
            depth: world.portal_depth(thread) as u64,
            time_ns: world.thread_time_ns(thread),
            share,
            share_used,
        })
    }
}

const _: () = assert!(STACK_BYTES.is_multiple_of(PAGE) && PRIORITY_MAX < 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::boxed;

    #[test]
    fn a_write_across_two_pages_does_not_wait_for_ever() {
        let mut thread = Thread::default();
        let mut waits = |pages: &[u64]| {
            let times = pages.iter().cycle().take(100);
            times
                .take_while(|&&page| thread.may_wait_for_blocks(page * PAGE + 8))
                .count()
        };
        let most = 2 * usize::from(CHECKPOINTS_THAT_HELP);
        assert_eq!(waits(&[5]), 3);
        let both = waits(&[6, 7]);
        assert!((3..=most).contains(&both), "{both}");
        assert_eq!((waits(&[7]), waits(&[8])), (3, 3));
        assert_eq!(waits(&[11, 12, 13]), 100, "each write is another one");
    }

    #[test]
    fn a_thread_leaves_its_tries_to_nobody() {
        let mut thread = Thread::default();
        assert!(thread.is_clean());
        assert!(thread.may_wait_for_blocks(5 * PAGE));
        thread.tries.pieces = 1;
        assert!(!thread.is_clean());
        thread.vacate();
        assert!(thread.is_clean());
        let waits = (0..9).take_while(|_| thread.may_wait_for_blocks(5 * PAGE)).count();
        assert_eq!(waits, usize::from(CHECKPOINTS_THAT_HELP));
    }

    #[test]
    fn whatever_a_thread_leaves_behind_is_seen() {
        let leaves: [fn(&mut Thread); 10] = [
            |thread| thread.life = Life::Ended,
            |thread| thread.pause = Pause::Sleeping,
            |thread| thread.continuation = Continuation::UnMaps(1, 1),
            |thread| thread.children.head = 1,
            |thread| thread.ended.head = 1,
            |thread| thread.shown = Some(boxed(Apd::EMPTY).expect("memory")),
            |thread| thread.tries.pieces = 1,
            |thread| thread.helped.times = 1,
            |thread| thread.found_full.1 = 1,
            |thread| thread.full_until = 1,
        ];
        for (number, leave) in leaves.into_iter().enumerate() {
            let mut thread = Thread::default();
            leave(&mut thread);
            assert!(!thread.is_clean(), "{number}");
        }
    }

    #[test]
    fn a_deadline_never_wraps() {
        assert_eq!(deadline_after(5, FOREVER), None);
        assert_eq!(deadline_after(5, FOREVER - 1), Some(u64::MAX));
        assert_eq!(deadline_after(5, 7), Some(12));
    }

    #[test]
    fn children_move_between_the_lists_of_their_parents() {
        let mut threads = Threads::default();
        let [parent, heir, child] = [1, 2, 3].map(|index| ThreadId((1 << 16) + index));
        for id in [parent, heir, child] {
            let record = threads.record(id);
            record.id = id;
            record.life = Life::Live;
        }
        threads.adopt(parent, child);
        assert_eq!(threads.table[1].children.head, 3);
        assert_eq!(threads.sibling(3), NONE);
        threads.leave_parent(child);
        threads.record(child).life = Life::Ended;
        threads.adopt(heir, child);
        assert_eq!(threads.table[1].children.head, NONE);
        assert_eq!(threads.table[2].ended.head, 3);
        threads.leave_parent(child);
        assert_eq!(threads.table[2].ended.head, NONE);
    }
}
