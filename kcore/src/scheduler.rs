//! The choice of the next thread: round robin within eight priorities, one set of queues a processor.

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
pub const PRIORITIES: usize = abi::layout::PRIORITY_MAX as usize + 1;

/// The run queues of one processor.
pub struct RunQueues {
    queues: [List; PRIORITIES],
    /// Bit p is set while queue p has members.
    occupied: u32,
    /// Members of all queues.
    count: u32,
}

impl Default for RunQueues {
    fn default() -> Self {
        Self {
            queues: [List::EMPTY; PRIORITIES],
            occupied: 0,
            count: 0,
        }
    }
}

impl RunQueues {
    /// Offset of the word that says which queues have members, a bit each.
    pub const OCCUPIED: usize = core::mem::offset_of!(Self, occupied);

    /// Appends a thread to its priority's queue.
    #[inline]
    pub fn push(&mut self, links: &mut [Link], thread: u32, priority: u8) {
        let priority = usize::from(priority) % PRIORITIES;
        self.queues[priority].push_back(links, thread);
        self.occupied |= 1 << priority;
        self.count += 1;
    }

    /// Puts a thread before the others of its priority.
    pub fn push_front(&mut self, links: &mut [Link], thread: u32, priority: u8) {
        let priority = usize::from(priority) % PRIORITIES;
        self.queues[priority].push_front(links, thread);
        self.occupied |= 1 << priority;
        self.count += 1;
    }

    /// Removes a thread that waits in its priority's queue.
    pub fn remove(&mut self, links: &mut [Link], thread: u32, priority: u8) {
        let priority = usize::from(priority) % PRIORITIES;
        self.queues[priority].remove(links, thread);
        self.count -= 1;
        if self.queues[priority].head == NONE {
            self.occupied &= !(1 << priority);
        }
    }

    /// The threads that wait at a priority, the next one first.
    pub fn members<'a>(&self, links: &'a [Link], priority: u8) -> impl Iterator<Item = u32> + use<'a> {
        self.queues[usize::from(priority) % PRIORITIES].iter(links)
    }

    /// Takes the thread to run next.
    #[inline]
    pub fn pop(&mut self, links: &mut [Link]) -> Option<u32> {
        let priority = self.highest()?;
        let thread = self.queues[usize::from(priority)].head;
        self.remove(links, thread, priority);
        Some(thread)
    }

    /// Takes the thread that waits longest with this priority and appends another in the same step. `None` if none
    /// waits.
    #[inline(always)]
    pub fn rotate(&mut self, links: &mut [Link], thread: u32, priority: u8) -> Option<u32> {
        let list = &mut self.queues[usize::from(priority) % PRIORITIES];
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

    /// The first thread in order that `fits`, with its priority.
    pub fn find(&self, links: &[Link], fits: impl Fn(u32) -> bool) -> Option<(u32, u8)> {
        for priority in (0..PRIORITIES).rev() {
            let mut thread = self.queues[priority].head;
            while thread != NONE {
                if fits(thread) {
                    return Some((thread, priority as u8));
                }
                thread = links[thread as usize].next;
            }
        }
        None
    }

    /// Whether a thread of a higher priority than this one waits.
    #[inline(always)]
    pub fn has_above(&self, priority: u8) -> bool {
        u64::from(self.occupied) >> (priority & 31) > 1
    }

    /// Whether a thread waits of one of these priorities, a bit each.
    #[inline]
    pub fn any_of(&self, priorities: u32) -> bool {
        self.occupied & priorities != 0
    }

    /// The highest priority that has a thread waiting.
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
        let mut queues = RunQueues::default();
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
            let mut queues = RunQueues::default();
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
