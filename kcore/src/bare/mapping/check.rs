//! The invariants of mapping tree, page tables and quotas, checked as a whole: for tests, fuzzers
//! and debuggers. Takes time and memory in proportion to everything that is mapped.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::sync::atomic::Ordering::Relaxed;

use abi::{
    address::PAGE,
    nucleus::{MESSAGE_AREA, ROOT_GIVES_BELOW},
};

use super::{
    DEPTH_MAX, LINK_UNITS, Mapping, NODE_UNITS, PORTS_UNITS, TABLE_UNITS, Visit,
    fpage::PORTS,
    tables::{PORTS_PAGE, What, Work, span},
    tree::{Kind, LINKS, NONE, pages},
};
use crate::{
    Frame, Hardware, Kernel, SpaceId,
    bare::{Bare, going::Going},
    paging::{Fit, frame_of, is_large, is_linked, is_present, is_shared, number_of, table_entries},
};

/// The counts so far.
#[derive(Default)]
struct Tally {
    /// Pages that a node's entries cover, by node.
    live: Vec<u32>,
    /// Tables of the space, and those of nodes beside them.
    tables: u32,
    /// The frames of all of them.
    frames: BTreeSet<Frame>,
    /// Links found in page tables.
    links: u32,
    /// Tables found that are marked as linked.
    shared: u32,
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Checks the invariants of all free spaces.
    ///
    /// # Errors
    /// A sentence that names the broken invariant.
    pub fn mapping_check(&mut self) -> Result<(), &'static str> {
        let lodged = self.lodged_units();
        self.work(&Going::default()).check(lodged)
    }

    /// From whom a space has a page (a port, behind all pages) of its own: the space and its page. σ₀ has its own from nobody.
    pub fn mapping_source(&mut self, space: SpaceId, page: u64) -> Option<(SpaceId, u64)> {
        let work = self.work(&Going::default());
        let found = work.look(space.0 as u16, page)?;
        let node = work.mapping.tree.get(work.holder(space.0 as u16, &found)?);
        let frame = node.frame + (page - node.page()) as u32;
        let mut parent = node.parent;
        while parent != NONE && work.mapping.tree.get(parent).kind() == Kind::Part {
            parent = work.mapping.tree.get(parent).parent;
        }
        let giver = (parent != NONE).then(|| work.mapping.tree.get(parent))?;
        Some((SpaceId(giver.space().into()), giver.page_of(frame)))
    }

    /// The pages whose flush stands open: the space, the first one, how many.
    pub fn mapping_open(&mut self) -> Option<(SpaceId, u64, u64)> {
        let mut work = self.work(&Going::default());
        let top = work.open_top()?;
        let Visit { frame, level, .. } = work.mapping.open;
        let at = work.mapping.tree.get(top);
        let first = if at.kind() == Kind::Page {
            at.page_of(frame)
        } else {
            at.page()
        };
        Some((SpaceId(at.space().into()), first, pages(level).min(span(at))))
    }

    /// How many others still let the oldest that waits for a claim go first.
    pub fn mapping_claim_patience(&mut self) -> u16 {
        self.half.mapping.claim_turn.patience
    }

    /// The same of the oldest flush that waits to stand open.
    pub fn mapping_turn_patience(&mut self) -> u16 {
        self.half.mapping.turn.patience
    }

    /// The pages that a gift has claimed: the space, the first one, how many.
    pub fn mapping_claimed(&mut self) -> Option<(SpaceId, u64, u64)> {
        let claimed = self.work(&Going::default()).mapping.claimed();
        claimed.map(|(space, first, count)| (SpaceId(space.into()), first, count))
    }
}

impl<H: Hardware> Work<'_, H> {
    /// `units` is what spaces are charged for that is no mapping, by their numbers.
    fn check(&mut self, mut units: BTreeMap<u16, u32>) -> Result<(), &'static str> {
        let used = self.mapping.tree.used();
        ensure(used.len() == self.mapping.tree.count() as usize, "nodes are lost")?;
        ensure(self.mapping.tree.frees_places(), "a free node has a place")?;
        let mut hanging = 0;
        for &node in &used {
            hanging += self.check_node(node)?;
            let at = self.mapping.tree.get(node);
            *units.entry(at.space()).or_default() += match at.kind() {
                Kind::Page => NODE_UNITS[usize::from(at.level())],
                Kind::Link => LINK_UNITS,
                Kind::Part | Kind::Table => 0,
            };
        }
        let Mapping {
            open, claim, is_quiet, ..
        } = &*self.mapping;
        let is_right = *is_quiet == (open.top == NONE && !claim.is_there());
        ensure(is_right, "the short ways look for nothing though they are to")?;
        let roots = used
            .iter()
            .filter(|&&node| self.mapping.tree.get(node).parent == NONE)
            .count();
        ensure(hanging + roots == used.len(), "a node hangs nowhere, or twice")?;
        let mut tally = Tally {
            live: alloc::vec![0; used.last().map_or(0, |&node| node as usize + 1)],
            ..Tally::default()
        };
        let spaces: Vec<u16> = (0..self.mapping.spaces.len() as u16)
            .filter(|&space| self.mapping.spaces[usize::from(space)].is_some())
            .collect();
        for &space in &spaces {
            self.check_space(space, &mut tally, units.get(&space).copied().unwrap_or(0))?;
        }
        for &node in &used {
            let at = self.mapping.tree.get(node);
            ensure(spaces.contains(&at.space()), "a node of a space that is gone")?;
            if at.kind() == Kind::Page {
                let live = tally.live[node as usize];
                ensure(live == at.live, "a node's count of pages is wrong")?;
                ensure(live > 0 || at.parent == NONE, "a mapping without pages")?;
            }
        }
        let of_kind = |kind| {
            used.iter()
                .filter(|&&node| self.mapping.tree.get(node).kind() == kind)
                .count() as u32
        };
        ensure(tally.links == of_kind(Kind::Link), "links and their nodes differ")?;
        ensure(
            tally.shared == of_kind(Kind::Table),
            "linked tables and their nodes differ",
        )
    }

    /// One node and what hangs directly below it; returns how many these are.
    fn check_node(&self, node: u32) -> Result<usize, &'static str> {
        let tree = &self.mapping.tree;
        let at = tree.get(node);
        let found = match at.kind() {
            Kind::Page => self.node_at(at.space(), at.level(), at.page()),
            Kind::Part => tree.find(at.space(), at.level(), at.page()),
            Kind::Table | Kind::Link => tree.find(at.space(), LINKS, at.page()),
        };
        ensure(found == Some(node), "a node is not found by its place")?;
        ensure(at.page() & (pages(at.level()) - 1) == 0, "a node is not aligned")?;
        let (mut above, mut steps) = (node, 0);
        while above != NONE {
            above = tree.get(above).parent;
            steps += 1;
            ensure(steps <= 4 * (u32::from(DEPTH_MAX) + 1), "a cycle, or a tree too deep")?;
        }
        let below = tree.below(node);
        ensure(
            at.kind() != Kind::Part || !below.is_empty(),
            "a part from which nothing comes",
        )?;
        ensure(
            at.kind() != Kind::Table || !below.is_empty(),
            "a table that nobody links",
        )?;
        for &(kid, in_parts) in &below {
            let kid = tree.get(kid);
            ensure(kid.parent == node, "a node hangs below another than its parent")?;
            ensure((kid.kind() == Kind::Part) == in_parts, "a node is in a wrong ring")?;
            match kid.kind() {
                Kind::Page => {
                    let mut source = at;
                    while source.kind() == Kind::Part {
                        source = tree.get(source.parent);
                    }
                    ensure(
                        source.rights.contains(kid.rights),
                        "a mapping allows more than its source",
                    )?;
                    ensure(
                        kid.level() == at.level() && kid.frame == at.frame,
                        "a mapping is not of its source",
                    )?;
                    ensure(matches!(at.kind(), Kind::Page | Kind::Part), "a mapping below a link")?;
                }
                Kind::Part => {
                    ensure(
                        kid.level() + 1 == at.level() && kid.space() == at.space(),
                        "a part is not of its whole",
                    )?;
                    ensure(
                        at.page_of(kid.frame) == kid.page(),
                        "a part is elsewhere than in its whole",
                    )?;
                }
                Kind::Link => ensure(
                    at.kind() == Kind::Table && at.page() == kid.page(),
                    "a link is not of its table",
                )?,
                Kind::Table => return Err("a table below another node"),
            }
        }
        Ok(below.len())
    }

    fn check_space(&mut self, space: u16, tally: &mut Tally, units: u32) -> Result<(), &'static str> {
        tally.tables = 1;
        let shared_before = tally.shared;
        let root = self.spaces.get(SpaceId(u32::from(space))).root();
        self.check_table(space, root, 3, 0, tally)?;
        let ports = !self.space(space).ports.is_empty();
        let all = self.mapping.tree.find(space, 2, PORTS_PAGE).filter(|&node| {
            let at = self.mapping.tree.get(node);
            at.kind() == Kind::Page && u64::from(at.live) == PORTS
        });
        if let Some(node) = all {
            ensure(
                self.space(space).ports.iter().all(|&byte| byte == 0),
                "a port of all is missing",
            )?;
            tally.live[node as usize] = PORTS as u32;
        } else if ports {
            for page in PORTS_PAGE..PORTS_PAGE + PORTS {
                let Some(found) = self.look(space, page) else { continue };
                let node = self.holder(space, &found).ok_or("a port without a node")?;
                let at = self.mapping.tree.get(node);
                ensure(page < at.page() + span(at), "a port of another mapping")?;
                tally.live[node as usize] += 1;
            }
        }
        let given: u32 = self
            .mapping
            .spaces
            .iter()
            .flatten()
            .filter(|other| other.creator == space)
            .map(|other| other.quota)
            .sum();
        let ports = if ports { PORTS_UNITS } else { 0 };
        let record = self.space(space);
        ensure(record.used <= record.quota, "a quota is exceeded")?;
        ensure(
            record.used == tally.tables * TABLE_UNITS + units + ports + given,
            "a quota is charged wrongly",
        )?;
        ensure(
            record.shared_tables == tally.shared - shared_before,
            "a space's count of linked tables is wrong",
        )
    }

    /// Whether what is at a page is there by these operations. Message buffers, and the root program
    /// in σ₀, are the kernel's own and hang in tables of their own.
    fn is_built_here(&self, space: u16, page: u64) -> bool {
        let sigma0 = self.mapping.sigma0 == Some(space);
        let end = if sigma0 { ROOT_GIVES_BELOW } else { MESSAGE_AREA };
        page < end / PAGE
    }

    fn check_table(
        &self,
        space: u16,
        table: Frame,
        level: u8,
        first: u64,
        tally: &mut Tally,
    ) -> Result<u64, &'static str> {
        let nodes = self.frames.beside(table);
        ensure(nodes.is_none() || level == 0, "a table of nodes beside none of pages")?;
        for frame in nodes.into_iter().chain([table]) {
            ensure(tally.frames.insert(frame), "a table stands in two places")?;
        }
        tally.tables += u32::from(nodes.is_some());
        let mut present = 0;
        let user = if level == 3 { 256 } else { 512 };
        for (index, place) in self.hardware.table(table).iter().enumerate().take(user) {
            let entry = place.load(Relaxed);
            if !is_present(entry) {
                ensure(entry == 0, "an empty entry is not zero")?;
                continue;
            }
            let page = first + index as u64 * pages(level);
            if level == 3 && !self.is_built_here(space, page) {
                continue;
            }
            present += 1;
            if level > 0 && is_linked(entry) {
                tally.links += 1;
                let found = self.mapping.tree.find(space, LINKS, page);
                ensure(found.is_some() && level == 1, "a link without a node")?;
            } else if level > 0 && !is_large(entry) {
                tally.tables += 1;
                let below = self.check_table(space, frame_of(entry), level - 1, page, tally)?;
                ensure(below == table_entries(entry), "a table's count of entries is wrong")?;
                let keeps = is_shared(entry) || self.mapping.sigma0 == Some(space);
                ensure(below > 0 || keeps, "an empty table is kept")?;
                tally.shared += u32::from(is_shared(entry));
            } else {
                let found = self.look(space, page).ok_or("an entry that is not seen")?;
                ensure(
                    matches!(found.what, What::Page(_)) && found.page == page,
                    "an entry is seen as another",
                )?;
                let node = self.holder(space, &found).ok_or("a page without a node")?;
                let at = self.mapping.tree.get(node);
                let named = self
                    .node_word(space, page)
                    .filter(|_| found.what == What::Page(Fit::Exact) && level == 0);
                ensure(
                    named.is_none_or(|word| word.load(Relaxed) == u64::from(node)),
                    "a word names another node than that of its page",
                )?;
                let right = u64::from(number_of(entry)) == u64::from(at.frame) + (page - at.page());
                ensure(right, "an entry shows another frame than its node")?;
                ensure(at.rights.contains(found.rights), "an entry allows more than its node")?;
                tally.live[node as usize] += pages(level) as u32;
            }
        }
        Ok(present)
    }
}
