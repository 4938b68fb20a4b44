//! The errors that the model predicts: exactly for what is wrong by itself and for single pages; of a range, whose first piece
//! may be a page that the model does not follow, whether an error is possible at all.

use abi::{Error, Rights};
use kcore::bare::mapping::{DEPTH_MAX, How, PORTS_UNITS, Resource, TABLE_UNITS};

use crate::{
    model::{Entry, Model},
    world::{Op, World, pages},
};

/// More than one piece costs: four tables, a bitmap of ports, nodes.
const DEAREST: u32 = 4 * TABLE_UNITS + PORTS_UNITS + 8;
/// More frames than one piece takes.
const FRAMES: u64 = 8;

/// The error of an operation, as far as the model knows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// None but for want of quota or memory.
    Nothing,
    /// This one, and no other.
    Just(Error),
    /// This one, or none.
    Perhaps([Option<Error>; 2]),
}

/// How many mappings lie between a page and the real one.
fn depth(model: &Model, space: u32, page: u64) -> u8 {
    match model.entries.get(&(space, page)) {
        Some(&Entry::Of(space, page, _)) => depth(model, space, page) + 1,
        Some(Entry::Real(..)) => u8::from(space != 0),
        None => 0,
    }
}

/// The error that an operation must end with, before it is done.
pub fn expected(world: &World, op: &Op) -> Expected {
    let alive = |space: usize| world.id(space).is_some() && !world.is_dying(space);
    match *op {
        Op::Flush {
            space, what, rights, ..
        } => {
            let taken = rights.intersection(if what.resource() == Resource::Ports {
                Rights::RW
            } else {
                Rights::RWX
            });
            just(!alive(space) || taken.is_empty(), Error::BadArgument)
        }
        Op::Create { creator, quota } => match world.id(creator) {
            Some(id) if alive(creator) => {
                let left = world.kernel.free_space_quota(id).map_or(0, |(all, used)| all - used);
                just(quota < TABLE_UNITS || quota > left, Error::LimitReached)
            }
            _ => Expected::Just(Error::BadArgument),
        },
        Op::Destroy { space } => just(space == 0 || world.id(space).is_none(), Error::BadArgument),
        Op::Give {
            how,
            from,
            source,
            to,
            window,
        } => {
            let bad = Expected::Just(Error::BadArgument);
            let Ok((sent, landed)) = source.landing(window) else {
                return bad;
            };
            let slots = pages(sent).0 == pages(landed).0 && pages(sent).1 >= 512 && sent.resource() == Resource::Memory;
            let no_link = how == How::Link && (from == to || !slots);
            if !alive(from) || !alive(to) || to == 0 || from == to && sent.overlaps(landed) || no_link {
                return bad;
            }
            let (page, there) = (pages(sent).0, pages(landed).0);
            let linked = |space: usize, page: u64| world.link_at(space, page).is_some();
            if how == How::Link {
                // A slot that others link, or one of σ₀ without memory.
                let bad = (from == 0).then_some(Error::BadArgument);
                return Expected::Perhaps([Some(Error::InUse), bad]);
            }
            if pages(sent).1 > 1 || !world.follows(page) {
                return Expected::Perhaps([Some(Error::TableFull), Some(Error::InUse)]);
            }
            if linked(from, page) || world.model.real(from as u32, page).is_none() {
                return Expected::Nothing;
            }
            let full = how == How::Map && depth(&world.model, from as u32, page) >= DEPTH_MAX;
            if full {
                return Expected::Just(Error::TableFull);
            }
            just(sent.resource() == Resource::Memory && linked(to, there), Error::InUse)
        }
    }
}

fn just(wrong: bool, error: Error) -> Expected {
    if wrong {
        Expected::Just(error)
    } else {
        Expected::Nothing
    }
}

/// Whether a result is one that was predicted, and that there was too little if it says so. `left` is what the spaces of the operation had left.
pub fn check(world: &World, op: &Op, expected: Expected, left: u32, error: Option<Error>) {
    let fits = match (expected, error) {
        (Expected::Just(expected), Some(error)) => error == expected,
        (Expected::Nothing | Expected::Perhaps(_), None) => true,
        (_, Some(Error::LimitReached)) => left < DEAREST,
        (_, Some(Error::NoMemory)) => world.kernel.frames().free() < FRAMES,
        (Expected::Perhaps(errors), Some(error)) => errors.contains(&Some(error)),
        (Expected::Just(_), None) | (Expected::Nothing, Some(_)) => false,
    };
    assert!(fits, "{expected:?}, but {error:?} with {left} units left after {op:?}");
}

/// The least that a space of the operation has left.
pub fn left(world: &World, op: &Op) -> u32 {
    let of = |space: usize| {
        let quota = world.id(space).and_then(|id| world.kernel.free_space_quota(id));
        quota.map_or(0, |(all, used)| all - used)
    };
    match *op {
        Op::Give { from, to, .. } => of(from).min(of(to)),
        Op::Create { creator, .. } => of(creator),
        Op::Flush { .. } | Op::Destroy { .. } => u32::MAX,
    }
}
