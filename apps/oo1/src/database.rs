//! The object database: parts, connections, an index, and the six operations of `docs/spec/oo1.md`.
//!
//! All of it stands in one object, linked by raw pointers: the address of a part *is* its identity
//! inside. Nothing is loaded, decoded or swizzled when the database is opened, today or after the
//! power has failed. The code knows nothing of where its client is: results go to a procedure it is
//! given, once per part. It uses no heap, so that it can serve from a domain without a process.
//!
//! A pointer is followed through [`Follow`], which checks that it stays inside the object. One
//! that does not counts as none: a damaged database gives wrong answers, never a wild access.

use rt::{Cell, Ptr, Region, abi::address::PAGE, object::Follow, persist};

use crate::random::{FOLD_START, Random, SEED, fold};

/// Parts of the small database.
pub const PARTS: u32 = 20_000;
/// Parts a database has at least, and at most (the slot numbers of the index are 32 bits wide).
pub const PARTS_RANGE: core::ops::RangeInclusive<u32> = 200..=4_000_000;
/// Room for inserted parts.
pub const SPARE: u32 = 1_000;
/// Hops of a traversal.
const DEPTH: usize = 7;
/// The bytes `OO1DATA1`.
const MAGIC: u64 = u64::from_le_bytes(*b"OO1DATA1");
const COORDINATES: u64 = 100_000;
const TEN_YEARS: u64 = 315_360_000;
const LENGTHS: u64 = 1_000;

persist! {
    /// Head of the database.
    pub struct Header {
        magic: Cell<u64>,
        version: Cell<u32>,
        initial: Cell<u32>,
        count: Cell<u32>,
        capacity: Cell<u32>,
        seed: Cell<u64>,
        parts: Cell<Ptr<Part>>,
        index: Cell<Ptr<IndexEntry>>,
        zeros: Cell<[u64; 2]>,
    }

    /// A part.
    pub struct Part {
        id: Cell<u32>,
        x: Cell<i32>,
        y: Cell<i32>,
        zero: Cell<u32>,
        build: Cell<u64>,
        kind_low: Cell<u64>,
        /// The last two of its bytes, and zeros.
        kind_high: Cell<u64>,
        incoming: Cell<Ptr<Connection>>,
        out: [Connection; 3],
    }

    /// A connection from the part that contains it.
    pub struct Connection {
        to: Cell<Ptr<Part>>,
        from: Cell<Ptr<Part>>,
        next_incoming: Cell<Ptr<Connection>>,
        length: Cell<i32>,
        /// Its ten bytes, and two zeros.
        kind: Cell<[u32; 3]>,
    }

    /// An entry of the index, which is sorted by `id`.
    pub struct IndexEntry {
        id: Cell<u32>,
        zero: Cell<u32>,
        part: Cell<Ptr<Part>>,
    }
}

/// The four words by which a part is delivered to the client.
pub type Words = [u64; 4];

/// A database in the memory of an object.
#[derive(Copy, Clone)]
pub struct Database<'a> {
    region: Region<'a>,
    header: &'a Header,
    /// Connections stand inside parts.
    parts: Follow<'a, Part>,
}

/// Bytes that a database of `initial` parts takes.
pub const fn size(initial: u32) -> u64 {
    index_offset(initial + SPARE) + ((initial + SPARE) as u64 * size_of::<IndexEntry>() as u64).next_multiple_of(PAGE)
}

const fn index_offset(capacity: u32) -> u64 {
    PAGE + (capacity as u64 * size_of::<Part>() as u64).next_multiple_of(PAGE)
}

impl<'a> Database<'a> {
    /// Makes a database of `initial` parts in zeroed memory; none if it is too small.
    pub fn make(region: Region<'a>, initial: u32) -> Option<Self> {
        if region.bytes() < size(initial) {
            return None;
        }
        let database = Self::over(region)?;
        let header = database.header;
        header.version.set(1);
        header.initial.set(initial);
        header.count.set(initial);
        header.capacity.set(initial + SPARE);
        header.seed.set(SEED);
        header.parts.set(region.pointer(PAGE));
        header.index.set(region.pointer(index_offset(initial + SPARE)));
        let mut random = Random::stream(1);
        for id in 1..=initial {
            database.make_part(id, &mut random)?;
        }
        let mut random = Random::stream(2);
        for id in 1..=initial {
            let part = database.part_at(id - 1)?;
            for connection in &part.out {
                database.connect(part, connection, &mut random)?;
            }
        }
        header.magic.set(MAGIC);
        Some(database)
    }

    /// Opens a database; none if there is none or its head is damaged.
    #[inline]
    pub fn open(region: Region<'a>) -> Option<Self> {
        let database = Self::over(region)?;
        let header = database.header;
        let known = header.magic.get() == MAGIC && header.version.get() == 1;
        (known && header.count.get() <= header.capacity.get()).then_some(database)
    }

    #[inline]
    fn over(region: Region<'a>) -> Option<Self> {
        Some(Self {
            region,
            header: region.at_offset(0)?,
            parts: region.follow(),
        })
    }

    /// Parts it was made with.
    pub fn initial(&self) -> u32 {
        self.header.initial.get()
    }

    /// Parts it has now.
    pub fn count(&self) -> u32 {
        self.header.count.get()
    }

    fn make_part(&self, id: u32, random: &mut Random) -> Option<()> {
        let part = self.part_at(id - 1)?;
        part.id.set(id);
        part.x.set(random.below(COORDINATES) as i32);
        part.y.set(random.below(COORDINATES) as i32);
        let [low, high] = kind_words(kind(b"part-type", random));
        part.kind_low.set(low);
        part.kind_high.set(high);
        part.build.set(random.below(TEN_YEARS));
        self.set_index(id - 1, part)
    }

    fn part_at(&self, position: u32) -> Option<&'a Part> {
        self.parts.get(self.header.parts.get().offset(position.into()))
    }

    fn index_at(&self, position: u32) -> Option<&'a IndexEntry> {
        self.region.get(self.header.index.get().offset(position.into()))
    }

    fn set_index(&self, position: u32, part: &Part) -> Option<()> {
        let entry = self.index_at(position)?;
        entry.id.set(part.id.get());
        entry.part.set(Ptr::to(part));
        Some(())
    }

    /// The part with this identifier, through the index.
    fn find(&self, id: u32) -> Option<&'a Part> {
        let count = self.header.count.get();
        let mut rest = self.region.slice(self.header.index.get(), count as usize)?;
        // A slice carries its bounds, so the compiler sees that each middle is inside.
        while rest.len() > 1 {
            let (below, above) = rest.split_at(rest.len() / 2);
            let is_above = above.first().is_some_and(|entry| entry.id.get() <= id);
            rest = if is_above { above } else { below };
        }
        let entry = rest.first().filter(|entry| entry.id.get() == id)?;
        self.parts.get(entry.part.get())
    }

    /// Connects `part` by `connection`, one of its own, to a part that is drawn.
    fn connect(&self, part: &Part, connection: &Connection, random: &mut Random) -> Option<&'a Part> {
        let target = self.draw_target(part.id.get(), random);
        let [low, high] = kind_words(kind(b"conn-type", random));
        connection.kind.set([low as u32, (low >> 32) as u32, high as u32]);
        connection.length.set(random.below(LENGTHS) as i32);
        let to = self.find(target)?;
        connection.from.set(Ptr::to(part));
        connection.to.set(Ptr::to(to));
        connection.next_incoming.set(to.incoming.get());
        to.incoming.set(Ptr::to(connection));
        Some(to)
    }

    /// Nine of ten among the closest hundredth, the tenth anyone, never the part itself.
    fn draw_target(&self, id: u32, random: &mut Random) -> u32 {
        let initial = self.header.initial.get().max(1);
        let target = if random.below(10) < 9 {
            let width = (initial / 100).max(1);
            let low = id.saturating_sub(width / 2).max(1).min(initial - width + 1);
            low + random.below(width.into()) as u32
        } else {
            1 + random.below(initial.into()) as u32
        };
        if target == id { id % initial + 1 } else { target }
    }

    /// Delivers the part with this identifier: 1, or 0 if there is none.
    #[inline(never)]
    pub fn lookup(&self, id: u64, mut deliver: impl FnMut(Words)) -> u64 {
        let Some(part) = self.find_word(id) else { return 0 };
        deliver(part.words());
        1
    }

    /// Delivers everything that can be reached from a part in seven hops; how many that was.
    #[inline(never)]
    pub fn forward(&self, id: u64, deliver: impl FnMut(Words)) -> u64 {
        self.find_word(id).map_or(0, |part| self.walk(part, deliver))
    }

    /// Delivers everything from which a part can be reached in seven hops; how many that was.
    #[inline(never)]
    pub fn reverse(&self, id: u64, deliver: impl FnMut(Words)) -> u64 {
        self.find_word(id).map_or(0, |part| self.climb(part, deliver))
    }

    fn find_word(&self, id: u64) -> Option<&'a Part> {
        self.find(u32::try_from(id).ok()?)
    }

    // The way back stands in an array, one place for each hop, and not in calls of the function by itself: so the operands of the
    // check stay in registers for the whole traversal.

    fn walk(&self, start: &'a Part, mut deliver: impl FnMut(Words)) -> u64 {
        let parts = self.parts;
        deliver(start.words());
        let mut visits = 1;
        let mut path = [(); DEPTH - 1].map(|()| [].iter());
        let (mut rest, mut depth) = (start.out.iter(), 0);
        loop {
            if let Some(connection) = rest.next() {
                let Some(to) = parts.get(connection.to.get()) else {
                    continue;
                };
                deliver(to.words());
                visits += 1;
                if let Some(place) = path.get_mut(depth) {
                    *place = core::mem::replace(&mut rest, to.out.iter());
                    depth += 1;
                }
            } else if let Some(place) = path.get(depth.wrapping_sub(1)) {
                rest = place.clone();
                depth -= 1;
            } else {
                return visits;
            }
        }
    }

    fn climb(&self, start: &'a Part, mut deliver: impl FnMut(Words)) -> u64 {
        let parts = self.parts;
        deliver(start.words());
        let mut visits = 1;
        let mut path = [Ptr::NULL; DEPTH - 1];
        let (mut next, mut depth) = (start.incoming.get(), 0);
        loop {
            if let Some(connection) = parts.get(next) {
                next = connection.next_incoming.get();
                let Some(from) = parts.get(connection.from.get()) else {
                    continue;
                };
                deliver(from.words());
                visits += 1;
                if let Some(place) = path.get_mut(depth) {
                    *place = next;
                    next = from.incoming.get();
                    depth += 1;
                }
            } else if let Some(place) = path.get(depth.wrapping_sub(1)) {
                next = *place;
                depth -= 1;
            } else {
                return visits;
            }
        }
    }

    /// Adds a part, connects it to three others, which are delivered; its identifier, or 0 if full.
    #[inline(never)]
    pub fn insert(&self, [place, kind_low, kind_high_and_draw]: [u64; 3], mut deliver: impl FnMut(Words)) -> u64 {
        let count = self.header.count.get();
        if count >= self.header.capacity.get() {
            return 0;
        }
        let Some(part) = self.part_at(count) else { return 0 };
        let mut random = Random::with_state(kind_high_and_draw >> 16);
        part.clear();
        part.id.set(count + 1);
        part.x.set((place as u32).cast_signed());
        part.y.set(((place >> 32) as u32).cast_signed());
        part.kind_low.set(kind_low);
        part.kind_high.set(kind_high_and_draw & 0xffff);
        part.build.set(random.below(TEN_YEARS));
        // New identifiers are the largest, so the index stays sorted.
        if self.set_index(count, part).is_none() {
            return 0;
        }
        self.header.count.set(count + 1);
        for connection in &part.out {
            if let Some(to) = self.connect(part, connection, &mut random) {
                deliver(to.words());
            }
        }
        part.id.get().into()
    }

    /// Removes the inserted parts, newest first; how many that were.
    #[inline(never)]
    pub fn undo(&self) -> u64 {
        let mut removed = 0;
        while self.header.count.get() > self.header.initial.get() {
            let count = self.header.count.get();
            if let Some(part) = self.part_at(count - 1) {
                for connection in part.out.iter().rev() {
                    if let Some(to) = self.parts.get(connection.to.get())
                        && to.incoming.get() == Ptr::to(connection)
                    {
                        to.incoming.set(connection.next_incoming.get());
                    }
                    connection.to.set(Ptr::NULL);
                }
            }
            self.header.count.set(count - 1);
            removed += 1;
        }
        removed
    }

    /// The state of the whole database in terms of identifiers.
    #[inline(never)]
    pub fn digest(&self) -> u64 {
        let count = self.header.count.get();
        let mut h = fold(FOLD_START, count.into());
        for position in 0..count {
            let part = self
                .index_at(position)
                .and_then(|entry| self.parts.get(entry.part.get()));
            // A pointer that cannot be followed folds as nothing, so that damage shows in the digest.
            h = part.map_or(fold(h, u64::MAX), |part| self.digest_part(h, part));
        }
        h
    }

    fn digest_part(&self, mut h: u64, part: &Part) -> u64 {
        for word in part.words() {
            h = fold(h, word);
        }
        h = fold(h, part.build.get());
        for connection in &part.out {
            let [low, middle, high] = connection.kind.get().map(u64::from);
            let to = self
                .region
                .get(connection.to.get())
                .map_or(u64::MAX, |to| to.id.get().into());
            for word in [
                to,
                u64::from(connection.length.get().cast_unsigned()),
                low | middle << 32,
                high,
            ] {
                h = fold(h, word);
            }
        }
        let mut incoming = 0u64;
        let mut next = part.incoming.get();
        while let Some(connection) = self.parts.get(next) {
            h = fold(
                h,
                self.region
                    .get(connection.from.get())
                    .map_or(u64::MAX, |from| from.id.get().into()),
            );
            incoming += 1;
            next = connection.next_incoming.get();
        }
        fold(h, incoming)
    }
}

impl Part {
    /// The words of a part that the client gets.
    #[inline]
    fn words(&self) -> Words {
        let place = u64::from(self.x.get().cast_unsigned()) | u64::from(self.y.get().cast_unsigned()) << 32;
        [self.id.get().into(), place, self.kind_low.get(), self.kind_high.get()]
    }

    fn clear(&self) {
        self.zero.set(0);
        self.incoming.set(Ptr::NULL);
        for connection in &self.out {
            connection.to.set(Ptr::NULL);
            connection.from.set(Ptr::NULL);
            connection.next_incoming.set(Ptr::NULL);
        }
    }
}

/// A word of nine letters and a digit that is drawn.
fn kind(word: &[u8; 9], random: &mut Random) -> [u8; 10] {
    let mut kind = [b'0' + random.below(10) as u8; 10];
    kind[..9].copy_from_slice(word);
    kind
}

/// The ten bytes of a kind as two words.
#[inline]
fn kind_words(kind: [u8; 10]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j] = kind;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u16::from_le_bytes([i, j]).into(),
    ]
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<Part>() == 168);
const _: () = assert!(size_of::<Connection>() == 40 && size_of::<IndexEntry>() == 16);
