//! Reading ahead: when the faults of an object follow one another, a read takes in pages behind the one that is touched.
//!
//! A *stream* is a place in an object where the next fault is expected. A fault there doubles the stream's window, which is the number of
//! pages that the next request may have; a fault elsewhere begins a stream with a window of one page. There are eight streams, of all objects and
//! threads together, so a fault costs the same however many read. A fault elsewhere takes the place of a stream without a window; those with one lose half of it when they
//! are passed, so that one who reads in order goes on beside others who jump about ([decision 0196](../../../docs/decisions/0196-read-ahead.md)).

use abi::address::{PAGE, PAGES_PER_SLOT, slot_of};
use store::world::RUN_MAX;

use crate::{
    Server, World,
    directory::object::ObjectId,
    pages::{
        pager::{FRAME_RESERVE, index_of},
        reading::READS_MAX,
    },
};

/// Streams that are remembered.
const STREAMS: usize = 8;
/// The longest window: as many pages as a request may have.
const WINDOW_MAX: u64 = RUN_MAX as u64;
/// Reads under way that leave no room for pages that nobody waits for.
const READS_MANY: usize = READS_MAX / 2;

/// A place where the next fault is expected.
#[derive(Copy, Clone, Debug)]
struct Stream {
    object: ObjectId,
    next: u64,
    /// Pages of the last request, or zero for no stream.
    window: u64,
}

/// The streams.
#[derive(Debug)]
pub(crate) struct Ahead {
    streams: [Stream; STREAMS],
    /// The stream of the last fault.
    last: usize,
    /// Where the search for a place begins.
    hand: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        let none = Stream {
            object: ObjectId(0),
            next: 0,
            window: 0,
        };
        Self {
            streams: [none; STREAMS],
            last: 0,
            hand: 0,
        }
    }
}

impl Ahead {
    /// A fault at the address of a page: how many pages a request for it may have.
    fn fault(&mut self, object: ObjectId, address: u64) -> u64 {
        let continues = |stream: &Stream| {
            // Pages that are there already are passed without a fault.
            stream.object == object && address.wrapping_sub(stream.next) / PAGE < stream.window
        };
        if let Some(place) = self.streams.iter().position(continues) {
            self.last = place;
            let stream = &mut self.streams[place];
            stream.window = WINDOW_MAX.min(stream.window * 2);
            return stream.window;
        }
        let mut place = self.hand;
        for _ in 0..STREAMS {
            place = self.hand;
            self.hand = (self.hand + 1) % STREAMS;
            let stream = &mut self.streams[place];
            if stream.window <= 1 {
                break;
            }
            stream.window /= 2;
        }
        self.last = place;
        self.streams[place] = Stream {
            object,
            next: address,
            window: 1,
        };
        1
    }

    /// Where the stream of the last fault goes on.
    pub(crate) fn goes_on_at(&mut self, next: u64) {
        self.streams[self.last].next = next;
    }

    /// A page could not be read ahead: those who come there begin with single pages.
    pub(crate) fn fails(&mut self, address: u64) {
        for stream in &mut self.streams {
            if stream.next.wrapping_sub(address) <= WINDOW_MAX * PAGE {
                stream.window = stream.window.min(1);
            }
        }
    }
}

impl Server {
    /// How many pages a request may have for the page of a persistent object that is touched and not resident: that one, and those behind it that
    /// nobody has asked for and for which there is room at once. For pages that nobody has touched nothing goes, and nobody waits.
    pub(crate) fn pages_ahead<W: World>(&mut self, world: &W, id: ObjectId, address: u64) -> usize {
        let window = self.pager.ahead.fault(id, address);
        if window == 1 || self.pager.reading.count() > READS_MANY {
            return 1;
        }
        let object = self.objects.get(id);
        let index = index_of(address);
        // Those behind the end of the slot need another page table.
        let in_slot = PAGES_PER_SLOT - index as u64;
        let in_object = (object.end() - address).div_ceil(PAGE);
        let free = world.frames_free().saturating_sub(FRAME_RESERVE);
        let mut most = window.min(in_slot).min(in_object).min(free).max(1);
        let slot = object.slots.get(slot_of(address) - object.first_slot());
        if let Some(resident) = slot.and_then(|slot| slot.resident.next(index + 1)) {
            most = most.min((resident - index) as u64);
        }
        let behind = address + PAGE..address + most * PAGE;
        let reading = self.pager.reading.first_in(behind.clone()).map(|(first, ())| first);
        let failed = self.pager.failed.first_in(behind).map(|(first, _)| first);
        let first = reading.into_iter().chain(failed).min();
        first.map_or(most, |first| (first - address) / PAGE) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ObjectId = ObjectId(1);
    const B: ObjectId = ObjectId(2);

    /// A fault whose request gets all that it may have.
    fn fault(ahead: &mut Ahead, object: ObjectId, page: u64) -> u64 {
        let most = ahead.fault(object, page * PAGE);
        ahead.goes_on_at((page + most) * PAGE);
        most
    }

    #[test]
    fn a_window_grows_while_faults_follow_one_another() {
        let mut ahead = Ahead::default();
        let mut at = 100;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = fault(&mut ahead, A, at);
            windows.push(window);
            at += window;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(fault(&mut ahead, B, at), 1, "another object");
        assert_eq!(fault(&mut ahead, A, at + 3), 16, "three pages were there");
        assert_eq!(fault(&mut ahead, A, at - 50), 1, "backwards");
    }

    #[test]
    fn one_who_reads_in_order_goes_on_beside_one_who_jumps_about() {
        let mut ahead = Ahead::default();
        let mut at = 0;
        for _ in 0..6 {
            at += fault(&mut ahead, A, at);
        }
        for jump in 0..16 {
            assert_eq!(fault(&mut ahead, B, 1_000 * (jump * 7 % 16) + jump), 1);
        }
        assert!(fault(&mut ahead, A, at) >= 8);
    }

    #[test]
    fn what_could_not_be_read_ahead_makes_the_window_small() {
        let mut ahead = Ahead::default();
        let mut at = 0;
        for _ in 0..6 {
            at += fault(&mut ahead, A, at);
        }
        ahead.fails((at - 3) * PAGE);
        assert_eq!(fault(&mut ahead, A, at), 2);
    }
}
