//! Promises of disk space.
//!
//! A page is promised a block, and a share in the map nodes on its path, when it is first written;
//! so the checkpoint that must write it cannot find the disk full. Promises are kept by
//! node, since 256 neighbours share one, and exactly, so that asking twice promises once.

use crate::containers::Map;
use crate::heap::NoHeap;
use crate::map::MapKey;

/// Blocks that only deletes, discards and checkpoints may use.
pub(crate) const POOL: u64 = 24;
/// Pages below a map node of level 1, as a set of bits.
type PageSet = [u64; 4];
/// How many these are.
const NODE_PAGES: u64 = 256;

/// What is promised.
#[derive(Default)]
pub(crate) struct Promises {
    /// Promised pages by node of level 1.
    leaves: Map<MapKey, PageSet>,
    /// Promised children by node of the levels above.
    inner: Map<MapKey, u32>,
    pages: u64,
    /// What jobs have: there is heap for it to come back.
    lent: Loan,
}

/// Promises that a job has taken over, and that come back if it fails.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Loan {
    pages: u64,
    leaves: usize,
    inner: usize,
}

impl Loan {
    /// Blocks promised.
    pub(crate) fn blocks(&self) -> u64 {
        self.pages + (self.leaves + self.inner) as u64
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            leaves: self.leaves + other.leaves,
            inner: self.inner + other.inner,
        }
    }

    /// This without a part of it.
    fn without(self, part: Self) -> Self {
        Self {
            pages: self.pages.saturating_sub(part.pages),
            leaves: self.leaves.saturating_sub(part.leaves),
            inner: self.inner.saturating_sub(part.inner),
        }
    }
}

fn key_above(base: u64, page: u64, level: u8) -> MapKey {
    MapKey {
        base,
        level,
        index: page.checked_shr(8 * u32::from(level)).unwrap_or(0),
    }
}

/// A word whose lowest `count` bits are set.
fn ones_below(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Promises {
    /// What is promised now.
    fn all(&self) -> Loan {
        Loan {
            pages: self.pages,
            leaves: self.leaves.count(),
            inner: self.inner.count(),
        }
    }

    /// Blocks promised.
    pub(crate) fn total(&self) -> u64 {
        self.all().blocks()
    }

    /// Whether the counts are those of what is noted.
    pub(crate) fn is_exact(&self) -> bool {
        let pages = |set: PageSet| set.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.pages == self.leaves.iter().map(|(_, set)| pages(set)).sum::<u64>()
            && self.leaves.iter().all(|(_, set)| pages(set) > 0)
    }

    /// Finds heap for so many more entries, beside what may come back.
    fn grow(&mut self, leaves: usize, inner: usize) -> Result<(), NoHeap> {
        self.leaves.reserve(self.leaves.count() + self.lent.leaves + leaves)?;
        self.inner.reserve(self.inner.count() + self.lent.inner + inner)?;
        Ok(())
    }

    /// Promises a page of an object whose map has at most `levels`.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing was promised.
    pub(crate) fn add(&mut self, base: u64, page: u64, levels: u8) -> Result<(), NoHeap> {
        let leaf = key_above(base, page, 1);
        let (word, bit) = ((page / 64 % 4) as usize, 1 << (page % 64));
        if let Some(set) = self.leaves.get_mut(leaf) {
            self.pages += u64::from(set[word] & bit == 0);
            set[word] |= bit;
            return Ok(());
        }
        let above = |level| key_above(base, page, level);
        let fresh = (2..=levels).take_while(|&level| !self.inner.has(above(level))).count();
        self.grow(1, fresh)?;
        let mut set = PageSet::default();
        set[word] |= bit;
        self.leaves.insert(leaf, set)?;
        self.pages += 1;
        for level in 2..=levels {
            if let Some(children) = self.inner.get_mut(above(level)) {
                *children += 1;
                break;
            }
            self.inner.insert(above(level), 1)?;
        }
        Ok(())
    }

    /// Promises pages `first` up to `end` of an object, node by node.
    ///
    /// # Errors
    /// [`NoHeap`]: nothing was promised.
    pub(crate) fn add_run(&mut self, base: u64, first: u64, end: u64, levels: u8) -> Result<(), NoHeap> {
        if first >= end {
            return Ok(());
        }
        let nodes = |level| (key_above(base, end - 1, level).index - key_above(base, first, level).index + 1) as usize;
        self.grow(nodes(1), (2..=levels).map(nodes).sum())?;
        let mut page = first;
        while page < end {
            // The first page of a node makes the way to it.
            self.add(base, page, levels)?;
            let node_end = end.min((page / NODE_PAGES + 1) * NODE_PAGES);
            if let Some(set) = self.leaves.get_mut(key_above(base, page, 1)) {
                for (bits, word) in set.iter_mut().zip(0..) {
                    let start = page / NODE_PAGES * NODE_PAGES + word * 64;
                    let wanted = ones_below(node_end.saturating_sub(start)) & !ones_below(page.saturating_sub(start));
                    self.pages += u64::from((wanted & !*bits).count_ones());
                    *bits |= wanted;
                }
            }
            page = node_end;
        }
        Ok(())
    }

    /// Hands the promise of a page over to a job. There stays heap for it to [come back](Promises::add_again).
    pub(crate) fn lend(&mut self, base: u64, page: u64) -> Loan {
        let before = self.all();
        self.remove(base, page);
        let loan = before.without(self.all());
        self.lent = self.lent.and(loan);
        loan
    }

    /// A job is over: it has no more what was lent to it. What it has not made may be promised again now.
    pub(crate) fn settle(&mut self, loan: Loan) {
        self.lent = self.lent.without(loan);
    }

    /// Promises a page again that was lent to a job which is over. The way to it that it had before is there;
    /// what an object has grown by since is promised as far as there is heap.
    pub(crate) fn add_again(&mut self, base: u64, page: u64, levels: u8) {
        let has_room = self.leaves.room() > self.leaves.count() || self.leaves.has(key_above(base, page, 1));
        debug_assert!(has_room, "what comes back has room");
        if self.add(base, page, levels).is_err() {
            let _ = self.add(base, page, 1);
        }
    }

    /// Gives heap back that neither promises nor loans need.
    pub(crate) fn trim(&mut self) {
        self.leaves.release(self.leaves.count() + self.lent.leaves);
        self.inner.release(self.inner.count() + self.lent.inner);
    }

    /// Takes the promise of a page back; tells whether there was one.
    pub(crate) fn remove(&mut self, base: u64, page: u64) -> bool {
        let leaf = key_above(base, page, 1);
        let Some(set) = self.leaves.get_mut(leaf) else {
            return false;
        };
        let (word, bit) = ((page / 64 % 4) as usize, 1 << (page % 64));
        if set[word] & bit == 0 {
            return false;
        }
        set[word] &= !bit;
        self.pages -= 1;
        let mut empty = *set == PageSet::default();
        if empty {
            self.leaves.remove(leaf);
        }
        let mut level = 2;
        while empty {
            let key = key_above(base, page, level);
            let Some(children) = self.inner.get_mut(key) else {
                break;
            };
            *children -= 1;
            empty = *children == 0;
            if empty {
                self.inner.remove(key);
            }
            level += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::BTreeSet, vec::Vec};
    use proptest::prelude::*;

    #[test]
    fn neighbours_share_their_path_and_promises_are_exact() {
        let mut promises = Promises::default();
        promises.add(0, 0, 2).unwrap();
        assert_eq!(promises.total(), 3);
        promises.add(0, 1, 2).unwrap();
        promises.add(0, 1, 2).unwrap();
        assert_eq!(promises.total(), 4);
        promises.add(0, 256, 2).unwrap();
        assert_eq!(promises.total(), 6);
        assert!(promises.remove(0, 0));
        assert!(!promises.remove(0, 0));
        assert!(promises.remove(0, 1));
        assert_eq!(promises.total(), 3);
        assert!(promises.remove(0, 256));
        assert_eq!(promises.total(), 0);
    }

    #[test]
    fn a_run_promises_what_its_pages_do() {
        for (first, end) in [
            (0, 1),
            (0, 64),
            (63, 65),
            (100, 356),
            (255, 257),
            (256, 1024),
            (7, 70_000),
        ] {
            let (mut run, mut single) = (Promises::default(), Promises::default());
            run.add(4096, 300, 3).unwrap();
            single.add(4096, 300, 3).unwrap();
            run.add_run(4096, first, end, 3).unwrap();
            (first..end).for_each(|page| single.add(4096, page, 3).unwrap());
            assert!(run.leaves.iter().eq(single.leaves.iter()));
            assert!(run.inner.iter().eq(single.inner.iter()));
            assert_eq!(run.total(), single.total());
        }
    }

    /// What is promised by its definition: the pages, their nodes of level 1, and the nodes above those.
    fn model(pages: &BTreeSet<(u64, u64)>, levels: u8) -> Loan {
        let nodes = |level: u8| {
            let above = pages.iter().map(|&(base, page)| (base, page >> (8 * u32::from(level))));
            above.collect::<BTreeSet<_>>().len()
        };
        Loan {
            pages: pages.len() as u64,
            leaves: nodes(1),
            inner: (2..=levels).map(nodes).sum(),
        }
    }

    proptest! {
           /// Pages are promised, taken back, lent, and come back: the sums are those of the definition, and there is always room for
           /// what is lent.
           #[test]
           fn promises_and_loans_are_exact(steps in prop::collection::vec((0..8_u8, 0..3_u64, 0..1_500_u64, 1..400_u64), 1..120)) {
               const LEVELS: u8 = 3;
               let mut promises = Promises::default();
               let mut model_pages = BTreeSet::new();
               let mut lent: Vec<((u64, u64), Loan)> = Vec::new();
               for (kind, object, step, length) in steps {
                   let (base, page) = (object * 4096, step * 97 % 70_000);
                   match kind {
                       0 => {
                           promises.add(base, page, LEVELS).unwrap();
                           model_pages.insert((base, page));
                       }
                       1 => {
                           promises.add_run(base, page, page + length, LEVELS).unwrap();
                           model_pages.extend((page..page + length).map(|page| (base, page)));
                       }
                       2 => prop_assert_eq!(promises.remove(base, page), model_pages.remove(&(base, page))),
                       3..6 => {
                           let some = model_pages.iter().copied().nth(step as usize % model_pages.len().max(1));
                           let some = some.unwrap_or((base, page));
                           let loan = promises.lend(some.0, some.1);
                           prop_assert_eq!(model_pages.remove(&some), loan.pages == 1);
                           lent.push((some, loan));
                       }
                       6 => {
                           // The newest job is over and has made nothing.
                           let from = lent.len().saturating_sub(length as usize % 8);
                           let over = lent.split_off(from);
                           for (_, loan) in &over {
    promises.settle(*loan);
    }
                           for ((base, page), loan) in over {
                               if loan.pages > 0 {
                                   promises.add_again(base, page, LEVELS);
                                   model_pages.insert((base, page));
                               }
                           }
                       }
                       _ => promises.trim(),
                   }
                   let lent = lent.iter().fold(Loan::default(), |sum, (_, loan)| sum.and(*loan));
                   prop_assert_eq!(promises.all(), model(&model_pages, LEVELS));
                   prop_assert_eq!(promises.total(), promises.all().blocks());
                   prop_assert_eq!(promises.lent, lent);
                   prop_assert!(promises.is_exact());
                   prop_assert!(promises.leaves.room() >= promises.leaves.count() + lent.leaves);
                   prop_assert!(promises.inner.room() >= promises.inner.count() + lent.inner);
               }
           }
       }
}
