//! Promises of disk space.
//!
//! A page is promised a block, and a share in the map nodes on its path, when it is first written;
//! so the checkpoint that must write it cannot find the disk full. Promises are kept by
//! node, since 256 neighbours share one, and exactly, so that asking twice promises once.

use crate::map::MapKey;
use alloc::collections::BTreeMap;

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
    leaves: BTreeMap<MapKey, PageSet>,
    /// Promised children by node of the levels above.
    inner: BTreeMap<MapKey, u32>,
    pages: u64,
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
    /// Blocks promised.
    pub(crate) fn total(&self) -> u64 {
        self.pages + (self.leaves.len() + self.inner.len()) as u64
    }

    /// Whether the counts are those of what is noted.
    pub(crate) fn is_exact(&self) -> bool {
        let pages = |set: &PageSet| set.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.pages == self.leaves.values().map(pages).sum::<u64>() && self.leaves.values().all(|set| pages(set) > 0)
    }

    /// Promises a page of an object whose map has at most `levels`.
    pub(crate) fn add(&mut self, base: u64, page: u64, levels: u8) {
        let mut fresh_leaf = false;
        let set = self.leaves.entry(key_above(base, page, 1)).or_insert_with(|| {
            fresh_leaf = true;
            PageSet::default()
        });
        let (word, bit) = ((page / 64 % 4) as usize, 1 << (page % 64));
        if set[word] & bit == 0 {
            set[word] |= bit;
            self.pages += 1;
        }
        let mut level = 2;
        while fresh_leaf && level <= levels {
            let children = self.inner.entry(key_above(base, page, level)).or_insert(0);
            *children += 1;
            fresh_leaf = *children == 1;
            level += 1;
        }
    }

    /// Promises pages `first` up to `end` of an object, node by node.
    pub(crate) fn add_run(&mut self, base: u64, first: u64, end: u64, levels: u8) {
        let mut page = first;
        while page < end {
            // The first page of a node makes the way to it.
            self.add(base, page, levels);
            let node_end = end.min((page / NODE_PAGES + 1) * NODE_PAGES);
            if let Some(set) = self.leaves.get_mut(&key_above(base, page, 1)) {
                for (bits, word) in set.iter_mut().zip(0..) {
                    let start = page / NODE_PAGES * NODE_PAGES + word * 64;
                    let wanted = ones_below(node_end.saturating_sub(start)) & !ones_below(page.saturating_sub(start));
                    self.pages += u64::from((wanted & !*bits).count_ones());
                    *bits |= wanted;
                }
            }
            page = node_end;
        }
    }

    /// Takes the promise of a page back; tells whether there was one.
    pub(crate) fn remove(&mut self, base: u64, page: u64) -> bool {
        let leaf = key_above(base, page, 1);
        let Some(set) = self.leaves.get_mut(&leaf) else {
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
            self.leaves.remove(&leaf);
        }
        let mut level = 2;
        while empty {
            let key = key_above(base, page, level);
            let Some(children) = self.inner.get_mut(&key) else {
                break;
            };
            *children -= 1;
            empty = *children == 0;
            if empty {
                self.inner.remove(&key);
            }
            level += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_their_path_and_promises_are_exact() {
        let mut promises = Promises::default();
        promises.add(0, 0, 2);
        assert_eq!(promises.total(), 3);
        promises.add(0, 1, 2);
        promises.add(0, 1, 2);
        assert_eq!(promises.total(), 4);
        promises.add(0, 256, 2);
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
            run.add(4096, 300, 3);
            single.add(4096, 300, 3);
            run.add_run(4096, first, end, 3);
            (first..end).for_each(|page| single.add(4096, page, 3));
            assert_eq!(run.leaves, single.leaves);
            assert_eq!(run.inner, single.inner);
            assert_eq!(run.total(), single.total());
        }
    }
}
