//! The invariants of the tree and the queues. Tests check them, and `KernelCheck` does while the machine is fuzzed.

use core::ops::Range;

use super::{Node, Place, WaitQueues};
use crate::{
    scheduler::Link,
    thread::{State, Thread},
};

impl WaitQueues {
    /// Checks tree and queues: they hold the threads that are parked on a key with a queue, and no others.
    pub fn check(&self, table: &[Thread], links: &[Link]) -> Result<(), &'static str> {
        let mut members = self.on_their_way.iter(links).count();
        for &root in &self.roots {
            members += Self::check_below(table, links, root, 0..u64::MAX, u32::MAX)?;
        }
        let parked = |thread: &&Thread| matches!(thread.state, State::Parked(key) if key.has_queue());
        if members == table.iter().filter(parked).count() {
            Ok(())
        } else {
            Err("a parked thread waits in no queue, or another one does")
        }
    }

    /// Threads in the queues from a node on.
    fn check_below(
        table: &[Thread],
        links: &[Link],
        node: u32,
        words: Range<u64>,
        rank: u32,
    ) -> Result<usize, &'static str> {
        let Some(oldest) = table.get(node as usize) else {
            return Ok(0);
        };
        let Place {
            word,
            node: Node { queue, count, .. },
            ..
        } = oldest.wait;
        if !words.contains(&word) || oldest.wait.node.rank > rank {
            return Err("the tree of queues is out of order");
        }
        let fits = |thread: u32| {
            let thread = &table[thread as usize];
            matches!(thread.state, State::Parked(key) if key.word() == word) && thread.wait.word == word
        };
        if queue.head != node || !queue.iter(links).all(fits) || queue.iter(links).count() != count as usize {
            return Err("a queue has not the threads of its key");
        }
        let [smaller, greater] = oldest.wait.node.below;
        let rank = oldest.wait.node.rank;
        Ok(count as usize
            + Self::check_below(table, links, smaller, words.start..word, rank)?
            + Self::check_below(table, links, greater, word + 1..words.end, rank)?)
    }
}
