//! Rows of memory beside the commonest case: eight pages at once, pages in the place of others, pages that several spaces have.

use abi::{
    Error, Rights,
    address::PAGE,
    nucleus::{MAP, fpage, tag},
};
use nucleus::{call, message};

use super::{BATCH, CLOSE, GIVEN, PLACE, SAMPLES, Samples, everyone, give_pages, pages, receiver};
use crate::{
    case::{Failure, Outcome, Setting},
    world::World,
};

/// Pages of a range, and spaces that have a page.
const EIGHT: u64 = 8;

/// What is measured. The value tells the thread that does it.
#[derive(Copy, Clone)]
pub enum What {
    /// Eight pages are given as one fpage.
    Map,
    /// Eight pages are taken as one fpage.
    Flush,
    /// A page is given where another one is.
    Replace,
    /// A page is taken from eight spaces.
    FlushSpaces,
    /// Eight pages are given as one fpage where eight others are.
    ReplaceRange,
    /// Eight pages are taken as one fpage that two spaces have in turn.
    FlushInTurn,
}

const ALL: [What; 6] = [
    What::Map,
    What::Flush,
    What::Replace,
    What::FlushSpaces,
    What::ReplaceRange,
    What::FlushInTurn,
];

/// Gives each page of a batch to the next one of these spaces, so many places further than it stands, or before the end at the front again.
fn map_each(spaces: &[u64], further: u64) -> Result<(), Error> {
    for (page, &space) in (0..BATCH).zip(spaces.iter().cycle()) {
        let place = PLACE + (page + further) % BATCH * PAGE;
        let what = fpage(GIVEN + page * PAGE, 12, Rights::RW);
        call::map(what, space, fpage(place, 12, Rights::RW), MAP)?;
    }
    Ok(())
}

/// Ticks of a round of eight operations, or of as many as there are pages.
fn round(what: What, spaces: &[u64; EIGHT as usize]) -> Outcome<u64> {
    const LOG2: u8 = (EIGHT * PAGE).trailing_zeros() as u8;
    let ranges = || (0..BATCH).step_by(EIGHT as usize).map(|page| page * PAGE);
    let flush = || ranges().try_for_each(|at| everyone(GIVEN + at, LOG2));
    let space = spaces[0];
    let mut passed = 0;
    let mut timed = |work: &mut dyn FnMut() -> Outcome| {
        let before = call::ticks();
        work()?;
        passed = call::ticks() - before;
        Outcome::Ok(())
    };
    let mut map = || {
        for at in ranges() {
            let there = fpage(PLACE + at, LOG2, Rights::RW);
            call::map(fpage(GIVEN + at, LOG2, Rights::RW), space, there, MAP)?;
        }
        Ok(())
    };
    match what {
        What::Map => timed(&mut map)?,
        What::Flush => {
            map()?;
            timed(&mut || flush())?;
        }
        What::Replace => {
            map_each(&[space], 0)?;
            timed(&mut || Ok(map_each(&[space], 1)?))?;
        }
        What::ReplaceRange => {
            map_each(&[space], 1)?;
            timed(&mut map)?;
        }
        What::FlushInTurn => {
            map_each(&spaces[..2], 0)?;
            timed(&mut || flush())?;
        }
        What::FlushSpaces => {
            for &space in spaces {
                map_each(&[space], 0)?;
            }
            timed(&mut || (0..BATCH).try_for_each(|page| everyone(GIVEN + page * PAGE, 12)))?;
        }
    }
    everyone(GIVEN, 18)?;
    Ok(passed)
}

nucleus::thread_entry!(worker_entry, worker);
/// Has a batch of pages at [`GIVEN`]. When asked, does a round and answers with its ticks; nothing, if it could not.
fn worker(_: u64) {
    let spaces = [(); EIGHT as usize].map(|()| receiver(GIVEN, 9, CLOSE).unwrap_or(0));
    let mut next = message::receive();
    while let Ok(got) = next {
        let what = ALL[got.words[0] as usize % ALL.len()];
        let passed = round(what, &spaces).unwrap_or(0);
        next = message::reply_and_wait(got.sender, tag(0, 1, 0), [passed, 0, 0, 0]);
    }
}

/// Samples of one of them.
pub fn row(setting: &Setting, what: What) -> Outcome<Samples> {
    let base = pages(setting, 2 * BATCH * PAGE)?;
    let mut world = World::new(setting, 0, 0)?;
    give_pages(base, world.space)?;
    let worker = world.start(worker_entry(), 0)?;
    let mut samples = Samples::new(match what {
        What::Map | What::Flush | What::ReplaceRange | What::FlushInTurn => BATCH / EIGHT,
        What::Replace | What::FlushSpaces => BATCH,
    });
    for round in 0..SAMPLES + 2 {
        let got = message::call(worker, tag(0, 1, 0), [what as u64, 0, 0, 0])?;
        if got.words[0] == 0 {
            return Err(Failure::new(format_args!("the pages could not be given or taken")));
        }
        if round >= 2 {
            samples.add(got.words[0]);
        }
    }
    world.end()?;
    Ok(samples)
}
