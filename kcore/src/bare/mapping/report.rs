//! The mapping tree of a frame in words, for the kernel debugger: only looks, allocates nothing.

use core::fmt;

use abi::address::PAGE;

use super::{
    Mapping,
    tables::PORTS_PAGE,
    tree::{Key, Kind, LINKS, pages},
};

/// Lines that are shown at most.
const SHOWN: usize = 40;
/// Spaces between a mapping and those made from it.
const INDENT: usize = 2;

impl Mapping {
    /// Writes who has a frame from whom, each indented below its source, and who links the table that it stands in.
    /// Gives how many there are.
    ///
    /// # Errors
    /// The error of `out`.
    pub(in crate::bare) fn report(&self, frame: u32, out: &mut dyn fmt::Write) -> Result<usize, fmt::Error> {
        let Some(sigma0) = self.sigma0 else { return Ok(0) };
        let mut found = 0;
        for level in (0..=2).rev() {
            // σ₀ has everything at its own address.
            let page = u64::from(frame) & !(pages(level) - 1);
            let small = || self.tree.look_for(Key::new(sigma0, 0, page)).filter(|_| level == 0);
            let Some(root) = self.tree.find(sigma0, level, page).or_else(small) else {
                continue;
            };
            if self.tree.get(root).kind() == Kind::Page {
                self.report_below(root, frame, &mut found, out)?;
            }
        }
        if found > SHOWN {
            writeln!(out, "  and {} more", found - SHOWN)?;
        }
        Ok(found)
    }

    fn report_below(&self, root: u32, frame: u32, found: &mut usize, out: &mut dyn fmt::Write) -> fmt::Result {
        for node in self.tree.walk(root) {
            let at = self.tree.get(node);
            let of_pages = pages(at.level());
            let is_inside = u64::from(frame).wrapping_sub(at.frame.into()) < of_pages;
            if at.kind() != Kind::Page || at.page() >= PORTS_PAGE || !is_inside {
                continue;
            }
            *found += 1;
            let page = at.page_of(frame);
            let width = INDENT * usize::from(at.depth);
            if *found <= SHOWN {
                writeln!(
                    out,
                    "  {:width$}{:#x} in space {}, at most {}; it has {} of {of_pages} pages of this mapping",
                    "",
                    page * PAGE,
                    at.space(),
                    at.rights,
                    at.live
                )?;
            }
            let table = self.tree.find(at.space(), LINKS, page & !(pages(1) - 1));
            for link in table.into_iter().flat_map(|table| self.tree.walk(table)) {
                let link = self.tree.get(link);
                if link.kind() == Kind::Link {
                    *found += 1;
                    if *found <= SHOWN {
                        writeln!(
                            out,
                            "  {:width$}linked with all around it by space {}, {}",
                            "",
                            link.space(),
                            link.rights
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}
