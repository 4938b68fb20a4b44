//! Ranges of pages that are granted, of which the fast path grants the first ones: the answer is the general path's.

mod fake;

use abi::{
    Rights,
    address::PAGE,
    nucleus::{ANYONE, Call, GRANT, MAP, NEVER, fpage},
};
use fake::Fake;
use kcore::{
    Kernel, SpaceId,
    bare::Bare,
    event::{Event, Outcome},
    thread::{Operation, Resumed},
};

/// First frame of σ₀.
const FIRST: u32 = 0x1000;
/// Where spaces have pages.
const PLACE: u64 = 0x2000_0000_0000;

struct World {
    kernel: Kernel<Fake, Bare>,
    is_short: bool,
    /// The last call was done on the fast path.
    was_short: bool,
}

impl World {
    /// The thread that runs next, everything done that was to be done again.
    fn next(&mut self) -> Option<u64> {
        loop {
            let index = self.kernel.schedule()?;
            let thread = &mut self.kernel.threads_mut().table[index as usize];
            let Some(operation) = thread.operation.take() else {
                return Some(thread.id.0);
            };
            let resumed = thread.resumed;
            self.event(operation, resumed);
        }
    }

    fn event(&mut self, operation: Operation, resumed: Resumed) {
        let thread = self.kernel.current_thread_mut().expect("it runs").id;
        let Operation { number, arguments } = operation;
        let outcome = self.kernel.nucleus_event(Event::Call {
            thread,
            number,
            arguments,
            resumed,
        });
        match outcome {
            Outcome::Return(result) => self.answer(result.map_err(|error| error as u64)),
            Outcome::Again => {
                let thread = self.kernel.current_thread_mut().expect("it runs");
                let operation = thread.operation.take().or(Some(operation));
                self.kernel.again(operation);
            }
            _ => {}
        }
    }

    fn answer(&mut self, result: Result<(u64, u64), u64>) {
        let context = &mut self.kernel.current_thread_mut().expect("it runs").context;
        let (error, (value, value2)) = match result {
            Ok(values) => (0, values),
            Err(error) => (error, (0, 0)),
        };
        context.set_results(error, value, value2);
    }

    /// Error and value.
    fn call(&mut self, call: Call, arguments: [u64; 6]) -> (u64, u64) {
        let me = self.kernel.current_thread_mut().expect("it runs").id.0;
        let [first, second, third, fourth, ..] = arguments;
        let short = (self.is_short && call == Call::Map)
            .then(|| self.kernel.map_short([first, second, third, fourth]))
            .flatten();
        self.was_short = short.is_some();
        if let Some(value) = short {
            self.answer(Ok((value, 0)));
        } else {
            let number = call as u64;
            self.event(Operation { number, arguments }, Resumed::First);
        }
        while self.next() != Some(me) {
            self.kernel.yield_current();
        }
        let context = &self.kernel.current_thread_mut().expect("it runs").context;
        (context.rax, context.rdx)
    }
}

/// A space has eight pages, of which another one has the page `kept` already, and grants all of them: the answer, what the receiver pays, and whether that was done on
/// the fast path.
fn granted(is_short: bool, kept: u64) -> ((u64, u64), Option<(u32, u32)>, bool) {
    let mut kernel = fake::bare(400);
    let root = (kernel.sigma0_create(20_000, &[(FIRST, FIRST + 64)], &[], 1)).expect("σ₀");
    kernel.nucleus_root(root).expect("memory");
    kernel
        .nucleus_thread(root, [0x40_0000, 0x7f_0000, 0], 5)
        .expect("a thread");
    let mut world = World {
        kernel,
        is_short,
        was_short: false,
    };
    let first = world.next().expect("the first thread");
    let (_, space) = world.call(Call::SpaceCreate, [4000, first, 0, 0, 0, 0]);
    let (_, thread) = world.call(Call::ThreadCreate, [space, 0x40_0000, 0x7d_0000, 0, 5, 0]);
    let range = |base: u64| fpage(base, 16, Rights::RW);
    let pages = [range(u64::from(FIRST) * PAGE), space, range(PLACE), MAP, 0, 0];
    assert_eq!(world.call(Call::Map, pages), (0, 16));
    world.event(
        Operation {
            number: Call::Ipc as u64,
            arguments: [0, ANYONE, 0, NEVER.into(), 0, 0],
        },
        Resumed::First,
    );
    assert_eq!(world.next(), Some(thread));
    let (_, below) = world.call(Call::SpaceCreate, [1000, thread, 0, 0, 0, 0]);
    let page = |number: u64| fpage(PLACE + number * PAGE, 12, Rights::RW);
    assert_eq!(world.call(Call::Map, [page(9), below, page(9), MAP, 0, 0]), (0, 1));
    if kept < 8 {
        assert_eq!(world.call(Call::Map, [page(kept), below, page(10), MAP, 0, 0]), (0, 1));
    }
    let range = fpage(PLACE, 15, Rights::RW);
    let answer = world.call(Call::Map, [range, below, range, GRANT, 0, 0]);
    assert_eq!(world.kernel.mapping_check(), Ok(()));
    let paid = world.kernel.free_space_quota(SpaceId(below as u32 & 0xffff));
    (answer, paid, world.was_short)
}

#[test]
fn a_range_that_is_granted_in_part_on_the_fast_path_is_counted_whole() {
    for kept in 0..=8 {
        let [general, short] = [false, true].map(|is_short| granted(is_short, kept));
        assert_eq!(general.0, (0, 8), "page {kept}");
        assert_eq!((short.0, short.1), (general.0, general.1), "page {kept}");
        assert_eq!(short.2, kept == 8, "page {kept}: all or none");
    }
}
