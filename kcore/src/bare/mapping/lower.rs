//! Rights, but not the pages, that are taken from all who have small pages directly and gave them to nobody: the right to write of a page that is to be
//! copied, or noticed when it is written again.
//!
//! A run ends at the first page that is another case; what it did stays, and the slow path goes on from there.

use core::sync::atomic::Ordering::Relaxed;

use abi::Rights;

use super::{
    short::{index, node_of, word},
    take::HOLDERS_MAX,
    tree::{NONE, Ring, pages},
};
use crate::{
    Hardware, Kernel, SpaceId,
    bare::Bare,
    paging::{is_exact_page, is_present, is_shared, lowered},
    smp::Request,
};

/// The progress of a run.
struct Run {
    /// The rights that are taken, without the one to read.
    rights: Rights,
    /// How many times it may still take them from one of several.
    left: u64,
    /// The space that lost some last, which does not know it yet.
    lost: Option<u16>,
    /// Processors that are in spaces that lost some, a bit each: they are asked once, at the end of the run.
    others: u32,
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Takes rights to up to that many pages, of an fpage of so many, from all who have them from `space`: how many pages, those among them that
    /// nobody has, and how many times it took from one of several.
    #[inline(never)]
    pub(in crate::bare) fn lower_run(
        &mut self,
        space: u16,
        first: u64,
        (wanted, count): (u64, u64),
        rights: Rights,
    ) -> (u64, u64) {
        let mut run = Run {
            rights,
            left: HOLDERS_MAX,
            lost: None,
            others: 0,
        };
        let mut done = 0;
        while done < wanted {
            let Some(source) = self.lowered(space, first + done, count) else {
                break;
            };
            if source != NONE && self.lower_kids(source, &mut run).is_none() {
                break;
            }
            done += 1;
        }
        if let Some(space) = run.lost {
            self.note_loss(space, &mut run);
        }
        self.ask_of(run.others, Request::Forget);
        (done, HOLDERS_MAX - run.left)
    }

    /// The node of a small page of a space's, or of the part of a larger one, whose kids lose rights; [`NONE`] if the space does not have the page.
    #[inline(always)]
    fn lowered(&mut self, space: u16, page: u64, count: u64) -> Option<u32> {
        // A slot loses rights as a large page, and so do its links.
        let is_whole = count >= pages(1);
        if self.with_source(space, page) {
            let source = &self.half.mapping.recent.source;
            let entry = word(&self.hardware, (source.table, index(page, 0))).load(Relaxed);
            if is_whole && (!is_exact_page(entry) || is_shared(word(&self.hardware, source.above).load(Relaxed))) {
                return None;
            }
            if is_exact_page(entry) {
                return Some(node_of(&self.hardware, source, page));
            }
            if !is_present(entry) {
                return Some(NONE);
            }
        }
        if is_whole {
            return None;
        }
        self.small_part(space, page).map(|(part, _)| part)
    }

    /// Takes rights from all who have a small page from there. None of them gave it to anybody.
    #[inline(always)]
    fn lower_kids(&mut self, source: u32, run: &mut Run) -> Option<()> {
        let Ring { active, done } = self.half.mapping.tree.get(source).kids;
        for first in [active, done] {
            let mut kid = first;
            while kid != NONE {
                self.lower_one(kid, run)?;
                kid = self.half.mapping.tree.get(kid).neighbours().0;
                if kid == first {
                    break;
                }
                run.left -= 1;
                if run.left == 0 {
                    return None;
                }
            }
        }
        Some(())
    }

    /// The same from one of them.
    #[inline(always)]
    fn lower_one(&mut self, kid: u32, run: &mut Run) -> Option<()> {
        let has = self.half.mapping.tree.get(kid);
        let (key, rights, is_bare) = (has.key(), has.rights, has.is_bare());
        if rights.intersection(run.rights).is_empty() {
            return Some(());
        }
        let slot = key.first_of(pages(1));
        if !is_bare {
            return None;
        }
        self.with_target(slot)?;
        let table = self.half.mapping.recent.target(key.space());
        // Those that link it have translations, too.
        if is_shared(word(&self.hardware, table.above).load(Relaxed)) {
            return None;
        }
        let place = word(&self.hardware, (table.table, index(key.page(), 0)));
        let entry = place.load(Relaxed);
        debug_assert!(is_exact_page(entry), "a small page has its entry");
        place.store(lowered(entry, run.rights), Relaxed);
        self.half.mapping.tree.get_mut(kid).rights = rights.without(run.rights);
        if run.lost != Some(key.space())
            && let Some(before) = run.lost.replace(key.space())
        {
            self.note_loss(before, run);
        }
        Some(())
    }

    /// A space lost some, and another one does next.
    fn note_loss(&mut self, space: u16, run: &mut Run) {
        let space = SpaceId(u32::from(space));
        self.forget_translations(space);
        if self.has_others() {
            run.others |= self.others_inside(space);
        }
    }
}
