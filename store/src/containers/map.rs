//! A sorted map in chunks: a tree of two levels.
//!
//! Keys and values stand in chunks of at most [`CHUNK`] entries, in order; a vector has the chunks in order. A search is two binary
//! searches, and inserting moves part of a chunk and of the vector of chunks. Two neighbours whose entries fit into one chunk are
//! joined, so there are never more than [`chunks_for`] chunks, and [`Map::reserve`] can promise room for entries that come later: what
//! is given back to a free list needs no memory. Compared with a balanced tree it has no pointers to get wrong and asks for memory in
//! one place.

use alloc::vec::Vec;
use core::ops::Range;

use abi::Error;

use super::{push_reserved, reserve, shrink};

/// Entries of a chunk.
const CHUNK: usize = 64;
/// Entries whose room is given back in one step at most, for that takes time, and so many when an entry is taken out: a caller that takes some out in
/// one event has not paid for more.
const TRIM: usize = 16 * CHUNK;
const TRIM_ONE: usize = 3 * CHUNK;
/// Entries that the first chunk has room for at first.
const FEW: usize = 4;

/// Chunks that so many entries may need: of any two neighbours one is half full, and one is there for a moment when a chunk is parted.
/// As many as fit into one chunk stand in one.
const fn chunks_for(entries: usize) -> usize {
    if entries <= CHUNK {
        1
    } else {
        2 * entries.div_ceil(CHUNK) + 2
    }
}

/// Keys to values.
#[derive(Debug)]
pub struct Map<K, V> {
    chunks: Vec<Vec<(K, V)>>,
    /// Empty chunks with room.
    spare: Vec<Vec<(K, V)>>,
    count: usize,
    /// Entries that there is room for at least.
    room: usize,
    /// Those of them that room was promised to.
    promised: usize,
    /// Entries in all that chunks of others may come for.
    beside: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            spare: Vec::new(),
            count: 0,
            room: 0,
            promised: 0,
            beside: 0,
        }
    }
}

impl<K: Copy + Ord, V> Map<K, V> {
    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// For how many entries there is room at least, whatever is taken out.
    pub fn room(&self) -> usize {
        self.promised.max(self.count)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Makes room for so many entries in all, which can then be inserted without asking for memory, until it is
    /// [released](Map::release).
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn reserve(&mut self, entries: usize) -> Result<(), Error> {
        self.grow(entries)?;
        self.promised = self.promised.max(entries);
        Ok(())
    }

    /// The same where entries of another one may come into this one, with the [room that they leave](Map::take_room): so many in all.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn reserve_beside(&mut self, entries: usize, all: usize) -> Result<(), Error> {
        for chunks in [&mut self.chunks, &mut self.spare] {
            let more = chunks_for(all).saturating_sub(chunks.len());
            reserve(chunks, more)?;
        }
        self.beside = self.beside.max(all);
        self.reserve(entries)
    }

    /// How many entries must have room [beside](Map::reserve_beside) those of this one, so that so many others come into it without asking for
    /// memory, each [with the room](Map::take_room) that it leaves.
    pub const fn beside(others: usize) -> usize {
        // A chunk may be needed before one of theirs is empty.
        if others < CHUNK { others } else { CHUNK }
    }

    /// Takes over as much room as one entry more needs, from one whose entries come into this one.
    pub fn take_room(&mut self, from: &mut Self) {
        if self.count < self.room {
            return;
        }
        let wanted = chunks_for(self.count + 1);
        while self.chunks.len() + self.spare.len() < wanted
            && let Some(chunk) = from.spare.pop()
        {
            push_reserved(&mut self.spare, chunk);
        }
        let is_room = self.chunks.len() + self.spare.len() >= wanted;
        debug_assert!(is_room, "the other one leaves room");
        if is_room {
            self.promised = self.promised.max(self.count + 1);
            self.room = self.count + 1;
            // The other one keeps what is left of its chunks, and asks again for what comes into it.
            from.promised = 0;
            from.room = 0;
        }
    }

    /// Makes room for so many entries.
    fn grow(&mut self, entries: usize) -> Result<(), Error> {
        if entries <= self.room {
            return Ok(());
        }
        let (wanted, room) = (chunks_for(entries), entries.next_power_of_two().clamp(FEW, CHUNK));
        for chunks in [&mut self.chunks, &mut self.spare] {
            let more = wanted.saturating_sub(chunks.len());
            reserve(chunks, more)?;
        }
        if self.room < CHUNK {
            // One chunk has been enough until now, and it may be small.
            for chunk in self.chunks.iter_mut().chain(&mut self.spare) {
                let more = room.saturating_sub(chunk.len());
                chunk.try_reserve_exact(more).map_err(|_| Error::NoMemory)?;
            }
        }
        while self.chunks.len() + self.spare.len() < wanted {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(room).map_err(|_| Error::NoMemory)?;
            push_reserved(&mut self.spare, chunk);
        }
        self.room = if entries <= CHUNK { room } else { entries };
        Ok(())
    }

    /// Promises room for fewer entries than before. Room beyond that is [given back](Map::give_back) in pieces.
    pub fn release(&mut self, entries: usize) {
        self.promised = self.promised.min(entries);
        self.give_back();
    }

    /// Gives some room back that is much more than what is needed; whether there was any.
    #[inline]
    pub fn give_back(&mut self) -> bool {
        // Most maps never had much.
        self.room > 2 * CHUNK && self.give_some_back(TRIM)
    }

    fn give_some_back(&mut self, most: usize) -> bool {
        let needed = self.room().max(self.room.saturating_sub(most));
        let is_much = needed + 2 * CHUNK < self.room;
        if is_much {
            self.room = needed;
            let wanted = chunks_for(needed);
            self.spare.truncate(wanted.saturating_sub(self.chunks.len()));
            let places = chunks_for(needed.max(self.beside));
            shrink(&mut self.chunks, places);
            shrink(&mut self.spare, places);
        }
        is_much
    }

    /// Drops some entries of a map that nobody needs any more; gives the number of chunks that went, none if there was nothing left. Nothing is
    /// promised then.
    pub fn drop_some(&mut self) -> usize {
        self.promised = 0;
        let before = self.chunks.len() + self.spare.len();
        let kept = self.chunks.len().saturating_sub(TRIM / CHUNK);
        self.count -= self.chunks.drain(kept..).map(|chunk| chunk.len()).sum::<usize>();
        self.spare.truncate(self.spare.len().saturating_sub(TRIM / CHUNK));
        self.room = self.count;
        before - self.chunks.len() - self.spare.len()
    }

    /// The chunk in which a key stands or belongs.
    #[inline]
    fn chunk_of(&self, key: &K) -> usize {
        // Most maps have few entries.
        if self.chunks.len() < 2 {
            return 0;
        }
        self.chunks
            .partition_point(|chunk| chunk.first().is_some_and(|first| first.0 <= *key))
            .saturating_sub(1)
    }

    #[inline]
    fn find(&self, key: &K) -> Option<(usize, usize)> {
        let chunk = self.chunk_of(key);
        let entries = self.chunks.get(chunk)?;
        let place = entries.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
        Some((chunk, place))
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<V>
    where
        V: Copy,
    {
        self.get_ref(key).copied()
    }

    /// The same, where it stands.
    #[inline]
    pub fn get_ref(&self, key: K) -> Option<&V> {
        let (chunk, place) = self.find(&key)?;
        Some(&self.chunks[chunk][place].1)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (chunk, place) = self.find(&key)?;
        Some(&mut self.chunks[chunk][place].1)
    }

    /// Whether it has the key.
    pub fn has(&self, key: K) -> bool {
        self.find(&key).is_some()
    }

    /// Puts a value in, in place of that which the key had.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: nothing has changed. It does not fail up to the number of entries that room was [reserved](Map::reserve) for.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Error> {
        let mut chunk = self.chunk_of(&key);
        let entries = self.chunks.get_mut(chunk);
        let found = entries.map_or(Err(0), |entries| {
            let found = entries.binary_search_by(|entry| entry.0.cmp(&key));
            found.map(|place| &mut entries[place].1)
        });
        let mut place = match found {
            Ok(there) => return Ok(Some(core::mem::replace(there, value))),
            Err(place) => place,
        };
        self.grow(self.count + 1)?;
        if self.chunks.is_empty() {
            let empty = self.spare.pop().ok_or(Error::NoMemory)?;
            push_reserved(&mut self.chunks, empty);
        }
        let splits = self.chunks[chunk].len() == CHUNK;
        if splits {
            let mut upper = self.spare.pop().ok_or(Error::NoMemory)?;
            upper.extend(self.chunks[chunk].drain(CHUNK / 2..));
            self.chunks.insert(chunk + 1, upper);
            if place > CHUNK / 2 {
                (chunk, place) = (chunk + 1, place - CHUNK / 2);
            }
        }
        self.chunks[chunk].insert(place, (key, value));
        self.count += 1;
        if splits {
            // One half may fit into the neighbour's.
            self.join(chunk + 1);
            self.join(chunk);
            self.join(chunk.saturating_sub(1));
            self.join(chunk.saturating_sub(2));
        }
        Ok(None)
    }

    /// Puts the entries of another one into an empty one, where there is [room](Map::reserve) for them.
    pub fn fill_from(&mut self, other: &Self)
    where
        V: Copy,
    {
        debug_assert!(self.is_empty(), "nothing is lost");
        for entries in &other.chunks {
            let Some(mut chunk) = self.spare.pop() else { return };
            debug_assert!(entries.len() <= chunk.capacity(), "room was made");
            chunk.extend_from_slice(entries);
            push_reserved(&mut self.chunks, chunk);
            self.count += entries.len();
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let (chunk, place) = self.find(&key)?;
        let (_, value) = self.chunks[chunk].remove(place);
        self.count -= 1;
        self.join(chunk);
        self.join(chunk.saturating_sub(1));
        if self.chunks.len() == 1 && self.count == 0 {
            self.spare.extend(self.chunks.pop());
        }
        self.give_some_back(TRIM_ONE);
        Some(value)
    }

    /// Takes all keys of a range out, chunk by chunk. (Values are copied, so none has to be dropped.)
    pub fn cut(&mut self, keys: Range<K>)
    where
        V: Copy,
    {
        let first = self.chunk_of(&keys.start);
        let mut empty = first..first;
        for (at, chunk) in self.chunks.iter_mut().enumerate().skip(first) {
            let place = |key| chunk.partition_point(|entry| entry.0 < key);
            let (from, to) = (place(keys.start), place(keys.end).max(place(keys.start)));
            self.count -= to - from;
            if from == 0 && to == chunk.len() {
                chunk.clear();
                empty = if empty.is_empty() {
                    at..at + 1
                } else {
                    empty.start..at + 1
                };
            } else {
                let is_last = to < chunk.len();
                chunk.drain(from..to);
                if is_last {
                    break;
                }
            }
        }
        let at = empty.start;
        self.spare.extend(self.chunks.drain(empty));
        // Two chunks may have lost a part, and each may fit into its neighbour.
        for back in 0..4 {
            self.join((at + 1).saturating_sub(back));
        }
        self.give_back();
    }

    /// Takes the first entry out.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let key = self.first_key()?;
        self.remove(key).map(|value| (key, value))
    }

    /// The first key.
    pub fn first_key(&self) -> Option<K> {
        Some(self.chunks.first()?.first()?.0)
    }

    /// Takes some out, those with the last keys, and keeps the room; tells whether there were any.
    pub fn clear_some(&mut self) -> bool {
        let kept = self.chunks.len().saturating_sub(TRIM / CHUNK);
        let any = kept < self.chunks.len();
        for mut chunk in self.chunks.drain(kept..) {
            self.count -= chunk.len();
            chunk.clear();
            push_reserved(&mut self.spare, chunk);
        }
        any
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        while let Some(mut chunk) = self.chunks.pop() {
            chunk.clear();
            push_reserved(&mut self.spare, chunk);
        }
        self.count = 0;
        self.give_back();
    }

    /// Joins a chunk with the next one if they fit into one.
    fn join(&mut self, chunk: usize) {
        if let Some([one, next, ..]) = self.chunks.get_mut(chunk..)
            && one.len() + next.len() <= CHUNK
        {
            one.append(next);
            let empty = self.chunks.remove(chunk + 1);
            push_reserved(&mut self.spare, empty);
        }
    }

    /// All entries in order.
    pub fn pairs(&self) -> impl Iterator<Item = (K, &V)> {
        self.chunks.iter().flatten().map(|entry| (entry.0, &entry.1))
    }

    /// The first entry with a key from that one on.
    pub fn from(&self, key: K) -> Option<(K, &V)> {
        let chunk = self.chunk_of(&key);
        let entries = self.chunks.get(chunk)?;
        let place = entries.partition_point(|entry| entry.0 < key);
        let entry = match entries.get(place) {
            Some(entry) => entry,
            None => self.chunks.get(chunk + 1)?.first()?,
        };
        Some((entry.0, &entry.1))
    }

    /// The last entry with a key below that.
    pub fn below(&self, key: K) -> Option<(K, &V)> {
        let below = |chunk: &Vec<(K, V)>| chunk.first().is_some_and(|first| first.0 < key);
        let chunk = self.chunks.partition_point(below).checked_sub(1)?;
        let entries = self.chunks.get(chunk)?;
        let place = entries.partition_point(|entry| entry.0 < key).checked_sub(1)?;
        entries.get(place).map(|entry| (entry.0, &entry.1))
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.chunks.iter().flatten().map(|entry| &entry.1)
    }
}

impl<K: Copy + Ord, V: Copy> Map<K, V> {
    /// The first entry with a key in a range.
    pub fn first_in(&self, keys: Range<K>) -> Option<(K, V)> {
        let (first, &value) = self.from(keys.start)?;
        (first < keys.end).then_some((first, value))
    }

    /// The last entry with a key in a range. Taking entries out from the last one on moves none of those that are left in the range.
    pub fn last_in(&self, keys: Range<K>) -> Option<(K, V)> {
        self.last_below(keys.end).filter(|(last, _)| *last >= keys.start)
    }

    /// The last entry with a key below that.
    pub fn last_below(&self, key: K) -> Option<(K, V)> {
        self.below(key).map(|(key, &value)| (key, value))
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.chunks.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    /// A full chunk is parted by one more key, and its upper half goes into the chunk behind, where there is room for it.
    #[test]
    fn half_of_a_chunk_goes_where_there_is_room() {
        let chunk = |keys: Range<u32>| {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.extend(keys.map(|key| (2 * key, ())));
            chunk
        };
        let full = CHUNK as u32;
        for odd in [1, full - 1, full + 1, 2 * full - 1] {
            let mut map = Map::default();
            map.reserve(4 * CHUNK).unwrap();
            map.chunks.push(chunk(0..full));
            map.chunks.push(chunk(full..full + full / 4));
            map.count = CHUNK + CHUNK / 4;
            assert_eq!(map.insert(odd, ()), Ok(None));
            let lengths: Vec<usize> = map.chunks.iter().map(Vec::len).collect();
            assert_eq!(lengths.len(), 2, "{lengths:?} with {odd}");
            assert_eq!(lengths.iter().sum::<usize>(), map.count());
        }
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(steps in prop::collection::vec((0_u16..600, 0_u8..5), 0..2000)) {
            let mut map = Map::default();
            let mut model = BTreeMap::new();
            map.reserve(100).unwrap();
            for (number, (key, step)) in steps.into_iter().enumerate() {
                if step < 3 {
                    prop_assert_eq!(map.insert(key, number), Ok(model.insert(key, number)));
                } else if step == 3 || number % 7 > 0 {
                    prop_assert_eq!(map.remove(key), model.remove(&key));
                } else {
                    let end = key + number as u16 % 200;
                    map.cut(key..end);
                    model.retain(|other, _| !(key..end).contains(other));
                }
                prop_assert_eq!(map.get(key), model.get(&key).copied());
                let next = model.range(key + 1..key + 40).next().map(|(&key, &value)| (key, value));
                prop_assert_eq!(map.first_in(key + 1..key + 40), next);
                let below = model.range(..key).next_back().map(|(&key, &value)| (key, value));
                prop_assert_eq!(map.last_below(key), below);
                prop_assert_eq!(map.count(), model.len());
                prop_assert!(map.chunks.len() <= chunks_for(map.count()), "{} chunks for {}", map.chunks.len(), map.count());
                prop_assert!(map.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
                prop_assert!(map.chunks.capacity() >= map.chunks.len() + map.spare.len());
                prop_assert!(map.room >= map.room() && map.chunks.len() + map.spare.len() >= chunks_for(map.room()));
            }
            let mut copy = Map::default();
            copy.reserve(map.count()).unwrap();
            copy.fill_from(&map);
            prop_assert!(copy.pairs().eq(map.pairs()) && copy.count() == map.count());
            prop_assert!(copy.is_empty() || copy.chunks.len() + copy.spare.len() >= chunks_for(copy.room));
            prop_assert!(map.iter().eq(model.iter().map(|(&key, &value)| (key, value))));
        }
    }

    #[test]
    fn room_that_was_promised_is_there() {
        let mut map = Map::default();
        map.reserve(1000).unwrap();
        let spare = map.spare.len();
        for key in 0..1000_u32 {
            map.insert(key * 37 % 1000, ()).unwrap();
        }
        assert_eq!(map.chunks.len() + map.spare.len(), spare, "nothing was allocated");
        for key in 0..1000 {
            map.remove(key).unwrap();
        }
        assert!(map.chunks.is_empty(), "no chunk without entries");
        map.release(0);
        assert!(map.spare.len() <= 1 && map.is_empty());
    }

    #[test]
    fn room_that_others_bring_along_has_places() {
        let (mut map, mut other) = (Map::default(), Map::default());
        for key in 0..5000_u32 {
            other.insert(key, ()).unwrap();
        }
        map.reserve_beside(Map::<u32, ()>::beside(5000), 5000).unwrap();
        // Some come and go, and the room that was not promised is given back.
        for key in 0..2000 {
            map.insert(key, ()).unwrap();
        }
        for key in 0..2000 {
            map.remove(key).unwrap();
        }
        let places = (map.chunks.capacity(), map.spare.capacity());
        while let Some((key, ())) = other.pop_first() {
            map.take_room(&mut other);
            map.insert(key, ()).unwrap();
        }
        assert_eq!(
            (map.chunks.capacity(), map.spare.capacity()),
            places,
            "nothing was allocated"
        );
    }

    #[test]
    fn one_that_is_taken_out_gives_little_back() {
        let mut map = Map::default();
        map.reserve(100_000).unwrap();
        for key in 0..1000_u32 {
            map.insert(key, ()).unwrap();
        }
        map.release(0);
        for key in 0..1000 {
            let before = map.spare.len() + map.chunks.len();
            map.remove(key).unwrap();
            let given = before - map.spare.len() - map.chunks.len();
            assert!(given <= 8, "{given} chunks with one entry");
        }
        while map.give_back() {}
        assert!(map.spare.len() <= 6);
    }

    #[test]
    fn some_are_taken_out_and_their_room_stays() {
        for count in [0, 1, 500, 5000_u32] {
            let mut map = Map::default();
            map.reserve(6000).unwrap();
            for key in 0..count {
                map.insert(key, ()).unwrap();
            }
            let chunks = map.spare.len() + map.chunks.len();
            let mut steps = 0;
            while map.clear_some() {
                steps += 1;
                assert_eq!(map.pairs().count(), map.count());
            }
            assert!(map.is_empty() && steps <= 1 + count / 500);
            assert_eq!(map.spare.len() + map.chunks.len(), chunks);
        }
    }

    #[test]
    fn what_many_leave_behind_is_given_back() {
        let mut map = Map::default();
        for key in 0..10_000_u32 {
            map.insert(key, ()).unwrap();
        }
        for key in 0..10_000 {
            map.remove(key).unwrap();
        }
        assert!(map.spare.len() <= 6 && map.spare.capacity() <= 128 && map.chunks.capacity() <= 128);
    }
}
