//! A space that cannot pay for the table that parts its large page loses all of it, in many pieces if that was parted before. Others who help such a flush,
//! and the gift itself, which helps what stands open before it goes on, do not undo what was done of it.

use abi::Rights;
use kcore::bare::{
    going::Going,
    mapping::{Fpage, How, NODE_UNITS, Own, Progress, TABLE_UNITS},
};

use crate::{
    bench::{Bench, PIECES_MAX, SOURCE},
    world::{GIB, PAGE, RWX, SLOT, memory, walk},
};

/// The number of the space that is too poor.
const POOR: usize = 7;
/// The page of its gibibyte that something is given to.
const TARGET: u64 = 10 * 512;

/// A page is given into the midst of a gibibyte of a space that has it twice, and linked a slot of it, so that it is parted. The other one's tables take what
/// that space has left, so that it cannot part its first one any more.
struct Given {
    bench: Bench,
    how: How,
    going: Going,
    pieces: usize,
}

impl Given {
    fn new(how: How) -> Self {
        let mut bench = Bench::new(PAGE, 1);
        let needed = 2 * TABLE_UNITS + NODE_UNITS[0];
        // A page elsewhere, with a table of slots, too.
        let used = 4 * TABLE_UNITS + 2 * NODE_UNITS[2] + TABLE_UNITS + needed;
        let poor = bench.kernel.free_space_create(bench.spaces[0], used + needed);
        bench.spaces.push(poor.expect("a space"));
        let [first, second] = [0, 1 << 18].map(|page| memory(page, GIB, RWX));
        bench.map((0, memory(SOURCE, GIB, RWX)), (POOR, first));
        bench.map((POOR, first), (POOR, second));
        let slot = memory(5 * 512, SLOT, RWX);
        let linked = bench.give((POOR, slot), (4, slot), How::Link, &mut Going::default());
        assert_eq!(linked, Ok(Progress::Done));
        loses(&mut bench, 4, slot);
        let elsewhere = memory(1 << 20, PAGE, RWX);
        bench.map((1, memory(0, PAGE, RWX)), (POOR, elsewhere));
        let quota = bench.kernel.free_space_quota(bench.spaces[POOR]);
        assert_eq!(quota, Some((used + needed, used)));
        let mut this = Self {
            bench,
            how,
            going: Going::default(),
            pieces: 0,
        };
        assert!(!this.piece(), "the end of one piece");
        // Now it could pay again, but its page is to go.
        loses(&mut this.bench, POOR, elsewhere);
        this
    }

    /// Whether the gift is done.
    fn piece(&mut self) -> bool {
        let (source, target) = (memory(0, PAGE, RWX), memory(TARGET, PAGE, RWX));
        let given = self.bench.give((1, source), (POOR, target), self.how, &mut self.going);
        self.bench.kernel.mapping_check().expect("consistent");
        self.going = self.going.next_piece();
        self.pieces += 1;
        assert!(given.is_ok() && self.pieces < PIECES_MAX, "{given:?}");
        given == Ok(Progress::Done)
    }

    /// How many pieces it took.
    fn end(self) -> usize {
        let bench = self.bench;
        let has = |page| walk(&bench.kernel, bench.spaces[POOR], page).map(|(frame, _)| frame);
        assert_eq!((has(TARGET), has(TARGET + 1)), (Some(SOURCE), None));
        self.pieces
    }
}

fn loses(bench: &mut Bench, space: usize, what: Fpage) {
    let space = bench.spaces[space];
    let flushed = bench.kernel.flush(space, what, (RWX, Own::Too), &mut Going::default());
    assert_eq!(flushed, Ok(Progress::Done));
}

#[test]
fn who_helps_does_not_undo_what_a_space_loses_that_cannot_part_its_page() {
    for how in [How::Map, How::Grant] {
        let mut alone = Given::new(how);
        while !alone.piece() {}
        let alone = alone.end();
        assert!(alone > 10, "{alone} pieces");
        let mut among = Given::new(how);
        while !among.piece() {
            // Somebody who has nothing to do with it gives something the general way.
            let port = Fpage::ports(8, 0).expect("a port");
            let given = among.bench.give((0, port), (5, port), How::Map, &mut Going::default());
            assert_eq!(given, Ok(Progress::Done));
        }
        assert!(among.end() <= alone);
    }
}

/// While one stands open that never ends, none other does.
#[test]
fn a_flush_elsewhere_ends_while_a_space_loses_a_page_that_it_cannot_part() {
    let mut given = Given::new(How::Map);
    let own = memory(8, PAGE, RWX);
    given.bench.map((0, memory(SOURCE + 64, PAGE, RWX)), (2, own));
    for _ in 0..100 {
        given.bench.give_page_on((2, 8), 3, How::Map);
    }
    let mut going = Going::default();
    let mut is_given = false;
    while given.bench.flush(2, own, Rights::W, &mut going) == Progress::More {
        going = going.next_piece();
        is_given = is_given || given.piece();
    }
}
