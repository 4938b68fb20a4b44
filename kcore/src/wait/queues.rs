//! The queues of parked threads, found by key.
//!
//! The threads of one key are a queue, oldest first. The queues are spread over many small trees by a hash; those of words of memory are in one
//! tree, so that the words of an object are found together. Each tree is a treap (Seidel and Aragon, "Randomized search trees", 1996): a
//! search tree by key that is a heap by random ranks. So its depth grows with the logarithm of the number of queues, whatever keys users
//! choose. A queue's node is kept in its oldest thread: to park a thread needs no memory.
//!
//! A long queue that is to be woken whole leaves its tree at once and joins the list of threads on their way
//! ([`WaitQueues::first_on_its_way`]), from which the kernel wakes some at a time. Threads that are parked on the same key later are in a new queue.

mod check;

use core::ops::Range;

use super::Key;
use crate::{
    scheduler::{Link, List, NONE},
    thread::Thread,
};

/// A parked thread's part.
#[derive(Copy, Clone, Debug)]
pub struct Place {
    /// Its key, in a word.
    word: u64,
    /// How many queues had left the tree when it was parked.
    left_before: u64,
    /// The node of its queue, if it is the oldest there.
    node: Node,
}

/// A queue, and its place in the tree.
#[derive(Copy, Clone, Debug)]
struct Node {
    queue: List,
    count: u32,
    /// No node below has a higher one.
    rank: u32,
    /// The oldest threads of two other queues, or [`NONE`]: below the one stand the smaller words, below the other the greater ones.
    below: [u32; 2],
}

impl Place {
    /// The value of a thread that is not parked.
    pub const NONE: Self = Self {
        word: 0,
        left_before: 0,
        node: Node {
            queue: List::EMPTY,
            count: 0,
            rank: 0,
            below: [NONE; 2],
        },
    };
}

/// A node's place in a tree: the node above and the side, or [`NONE`] and the number of the tree whose root it is.
type Hook = (u32, usize);

/// Trees of keys that are not words of memory.
const TREES: usize = 256;

/// The tree of a key.
#[inline]
fn tree_of(word: u64) -> usize {
    if WORDS_OF_MEMORY.contains(&word) {
        return TREES;
    }
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// The keys of words of memory.
const WORDS_OF_MEMORY: Range<u64> = Key::Address(0).word()..Key::Address(u64::MAX).word() + 1;

/// All queues.
pub struct WaitQueues {
    roots: [u32; TREES + 1],
    on_their_way: List,
    /// Queues that have left the tree for that list.
    left: u64,
    /// State of the generator of ranks.
    random: u64,
}

impl WaitQueues {
    /// None yet. The seed is secret, or users could make the tree deep.
    pub fn new(seed: u64) -> Self {
        Self {
            roots: [NONE; TREES + 1],
            on_their_way: List::EMPTY,
            left: 0,
            random: seed,
        }
    }

    /// Parks a thread that is in no list.
    #[inline(always)]
    pub fn park(&mut self, table: &mut [Thread], links: &mut [Link], word: u64, thread: u32) {
        let tree = tree_of(word);
        if self.roots[tree] == NONE {
            let rank = self.draw_rank();
            self.found_queue(table, links, (word, rank), thread, [NONE; 2]);
            self.roots[tree] = thread;
        } else {
            self.park_in(tree, table, links, word, thread);
        }
    }

    #[inline(always)]
    fn draw_rank(&mut self) -> u32 {
        // Knuth's generator for MMIX. Nobody sees its numbers.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }

    /// A thread is the first of its queue, with a word and a rank.
    #[inline(always)]
    fn found_queue(
        &self,
        table: &mut [Thread],
        links: &mut [Link],
        (word, rank): (u64, u32),
        thread: u32,
        below: [u32; 2],
    ) {
        links[thread as usize] = Link::LOOSE;
        table[thread as usize].wait = Place {
            word,
            left_before: self.left,
            node: Node {
                queue: List::of(thread),
                count: 1,
                rank,
                below,
            },
        };
    }

    /// Parks a thread in a tree that has queues.
    #[inline(never)]
    fn park_in(&mut self, tree: usize, table: &mut [Thread], links: &mut [Link], word: u64, thread: u32) {
        let rank = self.draw_rank();
        let (mut hook, mut node, mut found) = ((NONE, tree), self.roots[tree], None);
        while let Some(other) = table.get_mut(node as usize) {
            let other = &mut other.wait;
            if other.word == word {
                other.node.queue.push_back(links, thread);
                other.node.count += 1;
                let place = &mut table[thread as usize].wait;
                (place.word, place.left_before) = (word, self.left);
                return;
            }
            if found.is_none() && other.node.rank < rank {
                found = Some((hook, node));
            }
            hook = (node, usize::from(other.word < word));
            node = other.node.below[hook.1];
        }
        let below = match found {
            None => [NONE; 2],
            Some((above, node)) => {
                hook = above;
                Self::split(table, node, word)
            }
        };
        self.found_queue(table, links, (word, rank), thread, below);
        self.hang(table, hook, thread);
    }

    /// Takes a parked thread out.
    #[inline(always)]
    pub fn remove(&mut self, table: &mut [Thread], links: &mut [Link], thread: u32) {
        let Place { word, node, .. } = &table[thread as usize].wait;
        let root = &mut self.roots[tree_of(*word)];
        if *root == thread && node.count == 1 && node.below == [NONE; 2] {
            *root = NONE;
        } else {
            self.remove_from(table, links, thread);
        }
    }

    /// Takes a parked thread out that is not all of its tree.
    #[inline(never)]
    fn remove_from(&mut self, table: &mut [Thread], links: &mut [Link], thread: u32) {
        let Place { word, node, .. } = &table[thread as usize].wait;
        let (hook, oldest) = self.find(table, *word);
        if oldest != thread || node.count != 1 {
            self.remove_of_several(table, links, thread, hook, oldest);
        } else {
            self.join(table, hook, node.below);
        }
    }

    /// The same of a thread that is in a list with others.
    fn remove_of_several(&mut self, table: &mut [Thread], links: &mut [Link], thread: u32, hook: Hook, oldest: u32) {
        let left_before = table[thread as usize].wait.left_before;
        let place = table.get_mut(oldest as usize).map(|oldest| &mut oldest.wait);
        let Some(place) = place.filter(|place| place.left_before <= left_before) else {
            self.on_their_way.remove(links, thread);
            return;
        };
        place.node.count -= 1;
        place.node.queue.remove(links, thread);
        let node = place.node;
        if thread == oldest
            && let Some(heir) = table.get_mut(node.queue.head as usize)
        {
            heir.wait.node = node;
            self.hang(table, hook, node.queue.head);
        }
    }

    /// The oldest thread of a key, and how many the key has.
    #[inline]
    pub fn oldest(&self, table: &[Thread], word: u64) -> Option<(u32, u32)> {
        let (_, oldest) = self.find(table, word);
        let place = table.get(oldest as usize)?;
        Some((oldest, place.wait.node.count))
    }

    /// The first word of memory in a range of keys that has a thread.
    pub fn first_in(&self, table: &[Thread], words: Range<u64>) -> Option<u64> {
        let (mut node, mut best) = (self.roots[TREES], None);
        while let Some(other) = table.get(node as usize) {
            let is_before = other.wait.word < words.start;
            if !is_before {
                best = Some(other.wait.word);
            }
            node = other.wait.node.below[usize::from(is_before)];
        }
        best.filter(|&word| word < words.end)
    }

    /// All threads of a key are to be woken, and go on their way.
    pub fn send_off(&mut self, table: &mut [Thread], links: &mut [Link], word: u64) {
        let (hook, oldest) = self.find(table, word);
        if let Some(place) = table.get(oldest as usize) {
            let node = place.wait.node;
            self.join(table, hook, node.below);
            self.on_their_way.append(links, node.queue);
            self.left += 1;
        }
    }

    /// The next thread to be woken of those that are on their way.
    #[inline]
    pub fn first_on_its_way(&self) -> Option<u32> {
        let first = self.on_their_way.head;
        (first != NONE).then_some(first)
    }

    // ---- the tree -------------------------------------------------------------------------------

    /// The node of a key, or [`NONE`], and where it hangs or would.
    #[inline]
    fn find(&self, table: &[Thread], word: u64) -> (Hook, u32) {
        let tree = tree_of(word);
        let (mut hook, mut node) = ((NONE, tree), self.roots[tree]);
        while let Some(other) = table.get(node as usize) {
            let other = &other.wait;
            if other.word == word {
                break;
            }
            hook = (node, usize::from(other.word < word));
            node = other.node.below[hook.1];
        }
        (hook, node)
    }

    #[inline]
    fn hang(&mut self, table: &mut [Thread], (above, side): Hook, node: u32) {
        match table.get_mut(above as usize) {
            Some(above) => above.wait.node.below[side] = node,
            None => self.roots[side] = node,
        }
    }

    /// Parts a tree at a word that it has not.
    fn split(table: &mut [Thread], mut node: u32, word: u64) -> [u32; 2] {
        let (mut parts, mut ends) = ([NONE; 2], [NONE; 2]);
        while let Some(other) = table.get(node as usize) {
            let part = usize::from(other.wait.word > word);
            let inner = other.wait.node.below[1 - part];
            match table.get_mut(ends[part] as usize) {
                Some(end) => end.wait.node.below[1 - part] = node,
                None => parts[part] = node,
            }
            ends[part] = node;
            node = inner;
        }
        for (part, &end) in ends.iter().enumerate() {
            if let Some(end) = table.get_mut(end as usize) {
                end.wait.node.below[1 - part] = NONE;
            }
        }
        parts
    }

    /// Hangs what was below a node in its place.
    fn join(&mut self, table: &mut [Thread], mut hook: Hook, [mut smaller, mut greater]: [u32; 2]) {
        while let (Some(left), Some(right)) = (table.get(smaller as usize), table.get(greater as usize)) {
            let (left, right) = (&left.wait.node, &right.wait.node);
            let (higher, side) = if left.rank >= right.rank {
                (smaller, 1)
            } else {
                (greater, 0)
            };
            if side == 1 {
                smaller = left.below[1];
            } else {
                greater = right.below[0];
            }
            self.hang(table, hook, higher);
            hook = (higher, side);
        }
        self.hang(table, hook, if smaller == NONE { greater } else { smaller });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(table: &[Thread], node: u32) -> u32 {
        table.get(node as usize).map_or(0, |thread| {
            let [smaller, greater] = thread.wait.node.below;
            1 + depth(table, smaller).max(depth(table, greater))
        })
    }

    #[test]
    fn no_choice_of_keys_makes_the_tree_deep() {
        const THREADS: u64 = 16_384;
        let mut table: Vec<Thread> = (0..THREADS as usize).map(Thread::vacant).collect();
        let mut links = vec![Link::LOOSE; table.len()];
        let choices: [fn(u64) -> u64; 4] = [
            |number| number,
            |number| THREADS - number,
            |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            |number| number.reverse_bits() >> 8,
        ];
        for (seed, choice) in choices.into_iter().enumerate() {
            let mut queues = WaitQueues::new(seed as u64);
            for thread in 0..THREADS {
                let key = Key::Address(choice(thread));
                queues.park(&mut table, &mut links, key.word(), thread as u32);
            }
            let depth = depth(&table, queues.roots[TREES]);
            assert!(depth > 10 && depth < 60, "{depth}");
            for thread in 0..THREADS {
                queues.remove(&mut table, &mut links, thread as u32);
            }
            assert_eq!(queues.roots, [NONE; TREES + 1]);
        }
    }
}
