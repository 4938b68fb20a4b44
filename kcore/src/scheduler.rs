//! The choice of the next thread: round robin within sixteen levels, one set of queues a processor.
//!
//! A level is one of eight priorities, *ahead* or *behind*: the threads of an account that has used its share of the processors wait behind all
//! others until the period ends ([`crate::shares`]).

/// No thread.
pub const NONE: u32 = u32::MAX;

/// A thread's place in the one list it is in.
#[derive(Copy, Clone, Debug)]
pub struct Link {
    next: u32,
    previous: u32,
}

impl Link {
    /// Not in a list.
    pub const LOOSE: Link = Link {
        next: NONE,
        previous: NONE,
    };

    /// The thread behind it.
    pub fn next(self) -> u32 {
        self.next
    }
}

/// A doubly linked list of threads by index.
#[derive(Copy, Clone, Debug)]
#[repr(C)]
pub struct List {
    /// The oldest member, or [`NONE`]. It stands first.
    pub head: u32,
    tail: u32,
}

impl List {
    /// A list without members.
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    /// A list of one thread that is in no other.
    pub(crate) fn of(thread: u32) -> Self {
        let (head, tail) = (thread, thread);
        List { head, tail }
    }

    /// Appends a thread that is in no list.
    pub fn push_back(&mut self, links: &mut [Link], thread: u32) {
        links[thread as usize] = Link {
            next: NONE,
            previous: self.tail,
        };
        if self.tail == NONE {
            self.head = thread;
        } else {
            links[self.tail as usize].next = thread;
        }
        self.tail = thread;
    }

    /// Puts a thread that is in no list before the others.
    pub fn push_front(&mut self, links: &mut [Link], thread: u32) {
        links[thread as usize] = Link {
            next: self.head,
            previous: NONE,
        };
        if self.head == NONE {
            self.tail = thread;
        } else {
            links[self.head as usize].previous = thread;
        }
        self.head = thread;
    }

    /// Appends all members of another list, which is none from now on.
    pub fn append(&mut self, links: &mut [Link], other: List) {
        if self.tail == NONE {
            *self = other;
        } else if other.head != NONE {
            links[self.tail as usize].next = other.head;
            links[other.head as usize].previous = self.tail;
            self.tail = other.tail;
        }
    }

    /// The members, the oldest first.
    pub fn iter<'a>(&self, links: &'a [Link]) -> impl Iterator<Item = u32> + use<'a> {
        let member = |index| (index != NONE).then_some(index);
        core::iter::successors(member(self.head), move |&index| member(links[index as usize].next))
    }

    /// Removes a member.
    pub fn remove(&mut self, links: &mut [Link], thread: u32) {
        let Link { next, previous } = links[thread as usize];
        if previous == NONE {
            self.head = next;
        } else {
            links[previous as usize].next = next;
        }
        if next == NONE {
            self.tail = previous;
        } else {
            links[next as usize].previous = previous;
        }
        links[thread as usize] = Link::LOOSE;
    }
}

/// Priorities.
pub const PRIORITIES: u32 = abi::layout::PRIORITY_MAX as u32 + 1;
/// The lowest level that is ahead.
pub const AHEAD: u8 = PRIORITIES as u8;
/// Levels: the priorities behind, and above them those ahead.
pub const LEVELS: usize = 2 * PRIORITIES as usize;

/// The standing of a thread among others: its priority, whether it is ahead, and the row of its share. One word, so that the fast path of a
/// yield compares all of that at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Standing(u32);

impl Standing {
    /// Ahead, with at most the highest priority.
    pub const fn new(share: u32, priority: u8) -> Self {
        let priority = if priority as u32 >= PRIORITIES {
            PRIORITIES - 1
        } else {
            priority as u32
        };
        Self(share << 8 | PRIORITIES | priority)
    }

    /// The queue that it waits in.
    #[inline(always)]
    pub const fn level(self) -> u8 {
        self.0 as u8
    }

    /// The row of its share.
    #[inline(always)]
    pub const fn share(self) -> u32 {
        self.0 >> 8
    }

    /// The same with the lowest priority: its share, and whether it is ahead. If two threads have the same, the processor can pass from one to
    /// the other, and nobody has to be charged or put behind.
    #[inline(always)]
    #[must_use]
    pub const fn payer(self) -> Self {
        Self(self.0 & !(PRIORITIES - 1))
    }

    /// 0 to 7.
    pub const fn priority(self) -> u8 {
        self.level() % PRIORITIES as u8
    }

    /// Whether it waits behind all others.
    #[inline(always)]
    pub const fn is_behind(self) -> bool {
        self.0 & PRIORITIES == 0
    }

    /// The same ahead.
    #[must_use]
    pub const fn ahead(self) -> Self {
        Self(self.0 | PRIORITIES)
    }

    /// The same behind.
    #[must_use]
    pub const fn behind(self) -> Self {
        Self(self.0 & !PRIORITIES)
    }
}

/// The run queues of one processor.
pub struct RunQueues {
    queues: [List; LEVELS],
    /// Bit p is set while queue p has members.
    occupied: u32,
    /// Members of all queues.
    count: u32,
}

impl RunQueues {
    /// Queues in which nobody waits.
    pub const EMPTY: Self = Self {
        queues: [List::EMPTY; LEVELS],
        occupied: 0,
        count: 0,
    };

    /// Offset of the word that says which queues have members, a bit each.
    pub const OCCUPIED: usize = core::mem::offset_of!(Self, occupied);

    /// Appends a thread to its level's queue.
    #[inline]
    pub fn push(&mut self, links: &mut [Link], thread: u32, level: u8) {
        let level = usize::from(level) % LEVELS;
        self.queues[level].push_back(links, thread);
        self.occupied |= 1 << level;
        self.count += 1;
    }

    /// Puts a thread before the others of its level.
    pub fn push_front(&mut self, links: &mut [Link], thread: u32, level: u8) {
        let level = usize::from(level) % LEVELS;
        self.queues[level].push_front(links, thread);
        self.occupied |= 1 << level;
        self.count += 1;
    }

    /// Removes a thread that waits in its level's queue.
    pub fn remove(&mut self, links: &mut [Link], thread: u32, level: u8) {
        let level = usize::from(level) % LEVELS;
        self.queues[level].remove(links, thread);
        self.count -= 1;
        if self.queues[level].head == NONE {
            self.occupied &= !(1 << level);
        }
    }

    /// Removes the thread that waits longest at a level.
    #[inline(always)]
    pub fn remove_first(&mut self, links: &mut [Link], level: u8) {
        let level = usize::from(level) % LEVELS;
        let list = &mut self.queues[level];
        let Some(link) = links.get_mut(list.head as usize) else {
            return;
        };
        list.head = core::mem::replace(link, Link::LOOSE).next;
        if let Some(second) = links.get_mut(list.head as usize) {
            second.previous = NONE;
        } else {
            list.tail = NONE;
            self.occupied &= !(1 << level);
        }
        self.count -= 1;
    }

    /// The threads that wait at a level, the next one first.
    pub fn members<'a>(&self, links: &'a [Link], level: u8) -> impl Iterator<Item = u32> + use<'a> {
        self.queues[usize::from(level) % LEVELS].iter(links)
    }

    /// The thread to run next, and its level.
    #[inline(always)]
    pub fn first(&self) -> Option<(u32, u8)> {
        let level = self.highest()?;
        Some((self.queues[usize::from(level) % LEVELS].head, level))
    }

    /// Takes the thread to run next.
    pub fn pop(&mut self, links: &mut [Link]) -> Option<u32> {
        let (thread, level) = self.first()?;
        self.remove_first(links, level);
        Some(thread)
    }

    /// All that wait behind come forward: each appended to those of its priority.
    pub fn come_forward(&mut self, links: &mut [Link]) {
        let (behind, ahead) = self.queues.split_at_mut(PRIORITIES as usize);
        for (behind, ahead) in behind.iter_mut().zip(ahead) {
            ahead.append(links, core::mem::replace(behind, List::EMPTY));
        }
        let ahead = self.occupied >> PRIORITIES | self.occupied & ((1 << PRIORITIES) - 1);
        self.occupied = ahead << PRIORITIES;
    }

    /// Takes the thread that waits longest at this level and appends another in the same step. `None` if none
    /// waits.
    #[inline(always)]
    pub fn rotate(&mut self, links: &mut [Link], thread: u32, level: u8) -> Option<u32> {
        let list = &mut self.queues[usize::from(level) % LEVELS];
        let first = list.head;
        let second = links.get(first as usize)?.next;
        links[thread as usize] = Link {
            next: NONE,
            previous: if second == NONE { NONE } else { list.tail },
        };
        if second == NONE {
            list.head = thread;
        } else {
            list.head = second;
            links[second as usize].previous = NONE;
            links[list.tail as usize].next = thread;
        }
        list.tail = thread;
        Some(first)
    }

    /// Threads that wait.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first thread in order that `fits`, with its level.
    pub fn find(&self, links: &[Link], fits: impl Fn(u32) -> bool) -> Option<(u32, u8)> {
        for level in (0..LEVELS).rev() {
            let mut thread = self.queues[level].head;
            while thread != NONE {
                if fits(thread) {
                    return Some((thread, level as u8));
                }
                thread = links[thread as usize].next;
            }
        }
        None
    }

    /// Whether a thread at a higher level than this one waits.
    #[inline(always)]
    pub fn has_above(&self, level: u8) -> bool {
        // There are fewer levels than bits: no shift is cut short.
        u64::from(self.occupied) >> (level & 63) > 1
    }

    /// Whether a thread waits at one of these levels, a bit each.
    #[inline]
    pub fn any_of(&self, levels: u32) -> bool {
        self.occupied & levels != 0
    }

    /// The highest level that has a thread waiting.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        self.occupied.checked_ilog2().map(|bit| bit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_first_then_in_turn() {
        let mut links = [Link::LOOSE; 8];
        let mut queues = RunQueues::EMPTY;
        for (thread, priority) in [(0, 3), (1, 3), (2, 7), (3, 0)] {
            queues.push(&mut links, thread, priority);
        }
        queues.remove(&mut links, 0, 3);
        queues.push(&mut links, 0, 3);
        let order: Vec<u32> = core::iter::from_fn(|| queues.pop(&mut links)).collect();
        assert_eq!(order, [2, 1, 0, 3]);
    }

    #[test]
    fn rotating_is_taking_and_appending() {
        for waiting in 0..4 {
            let mut links = [Link::LOOSE; 8];
            let mut queues = RunQueues::EMPTY;
            (0..waiting).for_each(|thread| queues.push(&mut links, thread, 3));
            let mut expected: Vec<u32> = (0..waiting).collect();
            let first = queues.rotate(&mut links, 7, 3);
            if waiting == 0 {
                assert_eq!(first, None);
            } else {
                assert_eq!(first, Some(expected.remove(0)));
                expected.push(7);
            }
            assert_eq!(queues.rotate(&mut links, 6, 2), None, "another priority");
            let order: Vec<u32> = core::iter::from_fn(|| queues.pop(&mut links)).collect();
            assert_eq!(order, expected);
        }
    }
}
