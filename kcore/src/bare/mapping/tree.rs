//! The mapping tree: who has which page from whom.
//!
//! A node of kind [`Kind::Page`] stands for a mapping: a space has there, at an aligned page, a page
//! of 4 KiB, 2 MiB or 1 GiB. Its *kids* are what others received from it, of the same size. A space
//! that gets a smaller page has it from a [`Kind::Part`] of the larger one; parts exist while
//! something hangs below them. So taking a piece away visits only what overlaps it.
//!
//! When a piece of a large mapping is taken or given away, only the page tables of its space are split;
//! the node stays one, and `live` counts the pages that are left.
//!
//! Links: a [`Kind::Table`] stands for a space's leaf table, and its kids are the [`Kind::Link`]s.
//!
//! The node of a small page, the commonest, is found by the page's entry: the table of entries has a table of nodes beside it (`tables`). All
//! others are found by (space, size, page) through hash chains with a random seed, so no one can aim at
//! long ones. Lists are rings. Each node has two for its kids and two for its parts: those that the
//! operation `op` has still to visit, and those it has done. So an operation goes on where it was, and
//! a node that appears meanwhile is visited too. Another operation puts the two together again.

use alloc::{boxed::Box, vec::Vec};

use abi::{Error, Rights};

use super::tables::PORTS_PAGE;

/// No node.
pub const NONE: u32 = u32::MAX;

/// The kind of a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A mapping in a space.
    Page,
    /// A part of a larger mapping, from which smaller ones were made.
    Part,
    /// A leaf table that others link.
    Table,
    /// A link of another space's leaf table.
    Link,
}

/// A ring of nodes in two halves, by their first nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// To be visited.
    pub active: u32,
    /// Visited by the operation of the node's `op`.
    pub done: u32,
}

impl Ring {
    const EMPTY: Ring = Ring {
        active: NONE,
        done: NONE,
    };

    /// Whether there is nobody.
    pub fn is_empty(self) -> bool {
        self.active == NONE && self.done == NONE
    }
}

/// The node was finished by the operation of its `op`.
pub const FINISHED: u8 = 1;
/// A part was to be taken that its holder cannot split off: all of it goes.
pub const DOOMED: u8 = 2;

/// The place under which a node is found, in one word: from below two bits of size (a level, or [`LINKS`]), the number of the space, the first page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Key(u64);

impl Key {
    const SPACE_SHIFT: u32 = 2;
    const PAGE_SHIFT: u32 = 18;
    /// No place: no page has that number.
    pub const NONE: Key = Key(u64::MAX);

    /// Of a space's page.
    #[inline(always)]
    pub const fn new(space: u16, level: u8, page: u64) -> Self {
        Self(page << Self::PAGE_SHIFT | (space as u64) << Self::SPACE_SHIFT | level as u64)
    }

    /// First virtual page.
    #[inline(always)]
    pub const fn page(self) -> u64 {
        self.0 >> Self::PAGE_SHIFT
    }

    /// The space that has it.
    #[inline(always)]
    pub const fn space(self) -> u16 {
        (self.0 >> Self::SPACE_SHIFT) as u16
    }

    /// The same of a page so many further on.
    #[inline(always)]
    pub const fn further(self, pages: u64) -> Self {
        Self(self.0 + (pages << Self::PAGE_SHIFT))
    }

    /// The first page of the stretch of so many (a power of two) that it stands in, of the same space.
    #[inline(always)]
    pub const fn first_of(self, pages: u64) -> Self {
        Self(self.0 & !((pages - 1) << Self::PAGE_SHIFT))
    }
}

/// One node. Words that are the same in all new ones stand together, so that they are written at once.
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Node {
    key: Key,
    /// The operation that visited it last.
    pub op: u64,
    /// Mappings made from it, of the same size.
    pub kids: Ring,
    /// Parts of it.
    pub parts: Ring,
    /// Pages of 4 KiB (ports) of this mapping that its space has.
    pub live: u32,
    /// Entries below this one were handled by the operation of `op`.
    pub cursor: u16,
    /// [`FINISHED`], [`DOOMED`].
    pub marks: u8,
    /// From below: two bits of kind, two of level.
    shape: u8,
    /// From whom it comes; for a part what it is part of.
    pub parent: u32,
    next: u32,
    prev: u32,
    hash_next: u32,
    /// First frame. (For ports the number of the first; for tables and links zero.)
    pub frame: u32,
    /// The most it allows; the entries of its page table have the exact rights.
    pub rights: Rights,
    /// Mappings between it and the real page.
    pub depth: u8,
}

/// The place of a node: its parent, its ring, its neighbours.
#[derive(Copy, Clone)]
struct Place {
    parent: u32,
    next: u32,
    prev: u32,
    kind: Kind,
}

const _: () = assert!(size_of::<Node>() <= super::UNIT_BYTES, "a node is one unit of quota");

impl Node {
    /// A node that is nowhere yet.
    pub fn new(kind: Kind, level: u8, space: u16, page: u64, frame: u32, rights: Rights) -> Self {
        let key = Key::new(space, key_level(kind, level), page);
        Self::of_key(kind, level, key, frame, rights)
    }

    /// The same, by the place under which it will be found.
    #[inline(always)]
    pub fn of_key(kind: Kind, level: u8, key: Key, frame: u32, rights: Rights) -> Self {
        Self {
            key,
            op: 0,
            kids: Ring::EMPTY,
            parts: Ring::EMPTY,
            live: 0,
            cursor: 0,
            marks: 0,
            shape: kind as u8 | level << LEVEL_SHIFT,
            parent: NONE,
            next: NONE,
            prev: NONE,
            hash_next: NONE,
            frame,
            rights,
            depth: 0,
        }
    }

    /// The place under which it is found.
    #[inline(always)]
    pub fn key(&self) -> Key {
        self.key
    }

    /// First virtual page.
    #[inline(always)]
    pub fn page(&self) -> u64 {
        self.key.page()
    }

    /// The space that has it.
    #[inline(always)]
    pub fn space(&self) -> u16 {
        self.key.space()
    }

    /// Its kind.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        match self.shape & 3 {
            0 => Kind::Page,
            1 => Kind::Part,
            2 => Kind::Table,
            _ => Kind::Link,
        }
    }

    /// 0 for 4 KiB, 1 for 2 MiB, 2 for 1 GiB.
    #[inline(always)]
    pub fn level(&self) -> u8 {
        self.shape >> LEVEL_SHIFT
    }

    /// Whether it is a small page of memory, whose node is found by its entry.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.shape == Kind::Page as u8 && self.page() < PORTS_PAGE
    }

    /// Whether anything hangs below.
    pub fn is_bare(&self) -> bool {
        self.kids.is_empty() && self.parts.is_empty()
    }

    /// Its neighbours in the ring: the one behind it, the one before.
    #[inline(always)]
    pub fn neighbours(&self) -> (u32, u32) {
        (self.next, self.prev)
    }

    /// The page at which it has a frame that is one of its own.
    pub fn page_of(&self, frame: u32) -> u64 {
        self.page() + u64::from(frame - self.frame)
    }

    /// Its place.
    #[inline(always)]
    fn place(&self) -> Place {
        let &Self { parent, next, prev, .. } = self;
        Place {
            parent,
            next,
            prev,
            kind: self.kind(),
        }
    }

    /// The ring of those below it of this kind.
    #[inline(always)]
    fn ring_mut(&mut self, kind: Kind) -> &mut Ring {
        if kind == Kind::Part {
            &mut self.parts
        } else {
            &mut self.kids
        }
    }
}

const LEVEL_SHIFT: u32 = 2;

/// Under which size a node is found. Tables and links may stand beside mappings of their slot.
const fn key_level(kind: Kind, level: u8) -> u8 {
    match kind {
        Kind::Page | Kind::Part => level,
        Kind::Table | Kind::Link => LINKS,
    }
}

/// In place of a level: tables and links.
pub const LINKS: u8 = 3;

/// Pages in a page of that level.
pub const fn pages(level: u8) -> u64 {
    1 << (9 * level as u32)
}

const CHUNK: usize = 64;

/// All nodes.
#[derive(Default)]
pub struct Tree {
    chunks: Vec<Box<[Node; CHUNK]>>,
    buckets: Vec<u32>,
    /// Odd.
    seed: u64,
    /// So that as many bits are left as number the buckets.
    shift: u32,
    free: u32,
    free_count: u32,
}

impl Tree {
    /// Gets ready for about that many nodes.
    pub fn prepare(&mut self, nodes: u64, seed: u64) -> Result<(), Error> {
        let buckets = nodes.clamp(1 << 8, 1 << 18).next_power_of_two() as usize;
        self.buckets.try_reserve_exact(buckets).map_err(|_| Error::NoMemory)?;
        self.buckets.resize(buckets, NONE);
        // Whatever random words are like, its upper bits are not all zero.
        self.seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self.shift = 64 - buckets.trailing_zeros();
        self.free = NONE;
        Ok(())
    }

    /// Room to note all nodes that so many units pay for: to move the notes of many to a larger place is long work.
    pub fn make_room(&mut self, units: u32) -> Result<(), Error> {
        let missing = (units as usize / CHUNK + 1).saturating_sub(self.chunks.len());
        self.chunks.try_reserve_exact(missing).map_err(|_| Error::NoMemory)
    }

    /// Whether [`Self::prepare`] is to be called first.
    pub fn is_unprepared(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Makes sure that that many nodes can be made.
    pub fn reserve(&mut self, nodes: u32) -> Result<(), Error> {
        while self.free_count < nodes {
            self.chunks.try_reserve(1).map_err(|_| Error::NoMemory)?;
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(CHUNK).map_err(|_| Error::NoMemory)?;
            let first = u32::try_from(self.chunks.len() * CHUNK).map_err(|_| Error::NoMemory)?;
            for index in 0..CHUNK as u32 {
                let mut node = Node::of_key(Kind::Part, 0, Key::NONE, 0, Rights::NONE);
                node.next = if index + 1 == CHUNK as u32 {
                    self.free
                } else {
                    first + index + 1
                };
                chunk.push(node);
            }
            // It is of that length, so this neither fails nor copies.
            self.chunks
                .push(chunk.into_boxed_slice().try_into().map_err(|_| Error::NoMemory)?);
            self.free = first;
            self.free_count += CHUNK as u32;
        }
        Ok(())
    }

    /// Nodes that can be made as it is.
    #[inline(always)]
    pub fn free_nodes(&self) -> u32 {
        self.free_count
    }

    /// Nodes in use.
    pub fn count(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32 - self.free_count
    }

    /// A node.
    #[inline(always)]
    pub fn get(&self, node: u32) -> &Node {
        &self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    /// A node, to change.
    #[inline(always)]
    pub fn get_mut(&mut self, node: u32) -> &mut Node {
        &mut self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    #[inline(always)]
    fn bucket(&self, key: Key) -> usize {
        // Multiply and shift by a secret odd number (Dietzfelbinger et al. 1997): whatever words are chosen without
        // knowing it, two of them meet no more often than by chance.
        (key.0.wrapping_mul(self.seed) >> self.shift) as usize
    }

    /// The node of this size that a space has at a page, which is no small page; [`LINKS`] finds tables and links.
    #[inline(always)]
    pub fn find(&self, space: u16, level: u8, page: u64) -> Option<u32> {
        let key = Key::new(space, level, page);
        let mut node = self.buckets[self.bucket(key)];
        while node != NONE {
            let at = self.get(node);
            if at.key == key {
                return Some(node);
            }
            node = at.hash_next;
        }
        None
    }

    /// Whether a word, whatever it is, names the node of a place.
    pub fn is_at(&self, word: u64, key: Key) -> bool {
        let chunk = self.chunks.get((word / CHUNK as u64) as usize);
        chunk.is_some_and(|chunk| chunk[word as usize % CHUNK].key == key)
    }

    /// The node of a small page. Looks at all: for the debugger.
    pub fn look_for(&self, key: Key) -> Option<u32> {
        (0..self.chunks.len() as u64 * CHUNK as u64)
            .find(|&node| self.is_at(node, key))
            .map(|node| node as u32)
    }

    /// Takes a node out of its hash chain.
    #[inline(always)]
    fn unchain(&mut self, node: u32) {
        let (bucket, after) = (self.bucket(self.get(node).key), self.get(node).hash_next);
        let first = &mut self.buckets[bucket];
        if *first == node {
            *first = after;
        } else {
            self.unchain_behind(node, bucket, after);
        }
    }

    /// The same for one that is not the first.
    #[cold]
    fn unchain_behind(&mut self, node: u32, bucket: usize, after: u32) {
        let mut before = self.buckets[bucket];
        while before != NONE {
            let next = self.get(before).hash_next;
            if next == node {
                self.get_mut(before).hash_next = after;
                return;
            }
            before = next;
        }
    }

    /// Takes a node for `made`, which is no small page, and hangs it below a parent, if it has one. It was [reserved](Self::reserve).
    #[inline(always)]
    pub fn insert(&mut self, made: Node, parent: u32) -> u32 {
        self.put(made, parent, true)
    }

    /// The same for a small page: its entry will lead to it.
    #[inline(always)]
    pub fn hang(&mut self, made: Node, parent: u32) -> u32 {
        self.put(made, parent, false)
    }

    #[inline(always)]
    fn put(&mut self, made: Node, parent: u32, is_hashed: bool) -> u32 {
        let node = self.free;
        let (next, prev) = self.put_first(node, parent, made.kind());
        let hash_next = if is_hashed {
            let bucket = self.bucket(made.key);
            core::mem::replace(&mut self.buckets[bucket], node)
        } else {
            NONE
        };
        self.free_count -= 1;
        let place = &mut self.chunks[node as usize / CHUNK][node as usize % CHUNK];
        self.free = place.next;
        *place = Node {
            parent,
            next,
            prev,
            hash_next,
            ..made
        };
        node
    }

    /// The bare node of a small page becomes `made`, which has the same place and hangs elsewhere.
    #[inline(always)]
    pub fn exchange(&mut self, node: u32, made: Node, parent: u32) {
        self.unhang(node, self.get(node).place());
        let (next, prev) = self.put_first(node, parent, made.kind());
        *self.get_mut(node) = Node {
            parent,
            next,
            prev,
            ..made
        };
    }

    /// A node becomes the first one in its ring below a parent, if it has one: its neighbours there.
    #[inline(always)]
    fn put_first(&mut self, node: u32, parent: u32, kind: Kind) -> (u32, u32) {
        if parent == NONE {
            return (node, node);
        }
        let ring = self.get_mut(parent).ring_mut(kind);
        let first = core::mem::replace(&mut ring.active, node);
        if first == NONE {
            return (node, node);
        }
        let last = core::mem::replace(&mut self.get_mut(first).prev, node);
        self.get_mut(last).next = node;
        (first, last)
    }

    /// The part of a node, of this size, that holds a frame; made if it is missing. As many nodes as there are sizes
    /// were [reserved](Self::reserve).
    #[inline(always)]
    pub fn part_of(&mut self, node: u32, level: u8, frame: u32) -> u32 {
        let mut node = node;
        while self.get(node).level() > level {
            node = self.part_below(node, frame);
        }
        node
    }

    /// The same, of the next smaller size.
    #[inline(always)]
    fn part_below(&mut self, node: u32, frame: u32) -> u32 {
        let at = self.get(node);
        let (space, &Node { rights, depth, .. }) = (at.space(), at);
        let below = at.level() - 1;
        let page = at.page_of(frame) & !(pages(below) - 1);
        let start = at.frame + (page - at.page()) as u32;
        if let Some(there) = self.find(space, below, page) {
            debug_assert!(self.get(there).kind() == Kind::Part, "another mapping within one");
            if self.get(there).marks & FINISHED != 0 {
                self.set_active(there);
            }
            return there;
        }
        let mut made = Node::new(Kind::Part, below, space, page, start, rights);
        made.depth = depth;
        self.insert(made, node)
    }

    /// Takes a bare node out of all lists; it is free then.
    #[inline(always)]
    pub fn remove(&mut self, node: u32) {
        self.unhang(node, self.get(node).place());
        if !self.get(node).is_small() {
            self.unchain(node);
        }
        self.release(node);
    }

    /// Takes its only kid off a node, which is [released](Self::release) next.
    #[inline(always)]
    pub fn take_only_kid(&mut self, node: u32) {
        self.get_mut(node).kids = Ring::EMPTY;
    }

    /// Takes all kids off a node that no operation has visited since they are there: their first one. Those that are not
    /// [released](Self::release) are [given back](Self::give_back).
    #[inline(always)]
    pub fn take_kids(&mut self, node: u32) -> Option<u32> {
        let kids = &mut self.get_mut(node).kids;
        (kids.done == NONE).then(|| core::mem::replace(&mut kids.active, NONE))
    }

    /// Gives a node its kids from `rest` on to `last` back: those in front are released.
    pub fn give_back(&mut self, node: u32, rest: u32, last: u32) {
        self.get_mut(node).kids.active = rest;
        self.get_mut(rest).prev = last;
        self.get_mut(last).next = rest;
    }

    /// The node of a small page that hangs nowhere any more, or is one of kids that were [taken](Self::take_kids), is free.
    #[inline(always)]
    pub fn release(&mut self, node: u32) {
        let free = core::mem::replace(&mut self.free, node);
        self.free_count += 1;
        let at = self.get_mut(node);
        at.next = free;
        // A word that still names it is not believed.
        at.key = Key::NONE;
    }

    /// Puts a node in front of the ring that begins at `first`; returns the ring's new first node.
    fn join(&mut self, node: u32, first: u32) -> u32 {
        if first == NONE {
            let at = self.get_mut(node);
            (at.next, at.prev) = (node, node);
        } else {
            let last = self.get(first).prev;
            let at = self.get_mut(node);
            (at.next, at.prev) = (first, last);
            self.get_mut(first).prev = node;
            self.get_mut(last).next = node;
        }
        node
    }

    #[inline(always)]
    fn unhang(
        &mut self,
        node: u32,
        Place {
            parent,
            next,
            prev,
            kind,
        }: Place,
    ) {
        if parent == NONE {
            return;
        }
        let alone = next == node;
        let ring = self.get_mut(parent).ring_mut(kind);
        let first = if ring.active == node {
            &mut ring.active
        } else {
            &mut ring.done
        };
        if *first == node {
            *first = if alone { NONE } else { next };
        }
        if !alone {
            self.get_mut(prev).next = next;
            self.get_mut(next).prev = prev;
        }
    }

    /// The operation that visits its parent is done with a node.
    pub fn set_done(&mut self, node: u32) {
        let place = self.get(node).place();
        let Place { parent, kind, .. } = place;
        self.unhang(node, place);
        let first = self.get_mut(parent).ring_mut(kind).done;
        let first = self.join(node, first);
        self.get_mut(parent).ring_mut(kind).done = first;
    }

    /// Something will hang below a part that an operation is done with: there is to be visited again.
    #[cold]
    fn set_active(&mut self, part: u32) {
        let place = self.get(part).place();
        self.unhang(part, place);
        let (next, prev) = self.put_first(part, place.parent, place.kind);
        let at = self.get_mut(part);
        (at.next, at.prev) = (next, prev);
        at.marks &= !FINISHED;
    }

    /// The next kid that the operation of a node's `op` has to visit.
    pub fn active_kid(&self, node: u32) -> Option<u32> {
        let kid = self.get(node).kids.active;
        (kid != NONE).then_some(kid)
    }

    /// The kid of a node that has just one.
    pub fn only_kid(&self, node: u32) -> Option<u32> {
        let Ring { active, done } = self.get(node).kids;
        let kid = if active == NONE { done } else { active };
        let only = kid != NONE && (active == NONE || done == NONE) && self.get(kid).next == kid;
        only.then_some(kid)
    }

    /// The same, if no operation has visited it since it is there.
    #[inline(always)]
    pub fn only_active_kid(&self, node: u32) -> Option<u32> {
        let Ring { active, done } = self.get(node).kids;
        (done == NONE && active != NONE && self.get(active).next == active).then_some(active)
    }

    /// An operation comes to a node: if it is another than the last one, all is to be visited.
    pub fn begin(&mut self, node: u32, op: u64) {
        if self.get(node).op == op {
            return;
        }
        for kind in [Kind::Page, Kind::Part] {
            let ring = *self.get_mut(node).ring_mut(kind);
            let active = self.concatenate(ring.active, ring.done);
            *self.get_mut(node).ring_mut(kind) = Ring { active, done: NONE };
        }
        let at = self.get_mut(node);
        // Another flush asks anew whether the part can be split off.
        let is_same = at.op | 1 == op | 1;
        at.marks &= if is_same { DOOMED } else { 0 };
        at.op = op;
        at.cursor = 0;
    }

    fn concatenate(&mut self, first: u32, second: u32) -> u32 {
        if first == NONE || second == NONE {
            return if first == NONE { second } else { first };
        }
        let (first_last, second_last) = (self.get(first).prev, self.get(second).prev);
        self.get_mut(first_last).next = second;
        self.get_mut(second).prev = first_last;
        self.get_mut(second_last).next = first;
        self.get_mut(first).prev = second_last;
        first
    }

    /// A node and all that comes from it, each behind its source. It ends, whatever the lists look like.
    pub fn walk(&self, root: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(Some(root), move |&node| self.after(root, node)).take(self.count() as usize)
    }

    /// The first nodes of the rings below a node.
    fn below_first(&self, node: u32) -> [u32; 4] {
        let &Node { kids, parts, .. } = self.get(node);
        [kids.active, kids.done, parts.active, parts.done]
    }

    fn after(&self, root: u32, mut node: u32) -> Option<u32> {
        let some = |rings: &[u32]| rings.iter().copied().find(|&first| first != NONE);
        if let Some(first) = some(&self.below_first(node)) {
            return Some(first);
        }
        while node != root {
            let &Node { parent, next, .. } = self.get(node);
            let rings = self.below_first(parent);
            // Behind the last of a ring comes its first again.
            let Some(ring) = rings.iter().position(|&first| first == next) else {
                return Some(next);
            };
            if let Some(first) = some(&rings[ring + 1..]) {
                return Some(first);
            }
            node = parent;
        }
        None
    }

    /// Whether no free node has a place, for the check of invariants.
    pub fn frees_places(&self) -> bool {
        core::iter::successors(Some(self.free), |&node| Some(self.get(node).next))
            .take(self.free_count as usize)
            .all(|node| self.get(node).key == Key::NONE)
    }

    /// Nodes in use, for the check of invariants.
    pub fn used(&self) -> Vec<u32> {
        let all = (self.chunks.len() * CHUNK) as u32;
        let mut free = alloc::vec![false; all as usize];
        let mut node = self.free;
        for _ in 0..self.free_count {
            free[node as usize] = true;
            node = self.get(node).next;
        }
        (0..all).filter(|&node| !free[node as usize]).collect()
    }

    /// The nodes below a node, for the check of invariants: (node, whether it is in the ring of parts).
    pub fn below(&self, node: u32) -> Vec<(u32, bool)> {
        let &Node { kids, parts, .. } = self.get(node);
        let mut found = Vec::new();
        for (first, in_parts) in [
            (kids.active, false),
            (kids.done, false),
            (parts.active, true),
            (parts.done, true),
        ] {
            let mut at = first;
            while at != NONE && found.len() <= self.count() as usize {
                found.push((at, in_parts));
                at = self.get(at).next;
                if at == first {
                    break;
                }
            }
        }
        found
    }
}
