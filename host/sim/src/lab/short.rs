//! All short lives: every sequence of up to three operations on a fresh image, with a cut behind every request of the last one.
//!
//! The cuts within the operations before belong to the shorter sequence. Each sequence is tried on an empty store and on one that holds
//! two objects, a name and a journal record; and with each operation waited for, or with all begun before anything is done. Then
//! the cuts fall into all of them. A seed is the place of a sequence in this order: shorter ones first.

use super::Tally;
use super::driver::{Check, Driver, Naming, Options};
use store::CheckpointKind;

/// An operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Act {
    Create,
    Group,
    Write,
    Sync,
    SyncAll,
    Delete,
    Change,
    Revoke,
    Grow,
    Shrink,
    Discard,
    Limit,
    Checkpoint,
    Generation,
    Name,
    Rename,
    Unname,
}

const ACTS: [Act; 17] = [
    Act::Create,
    Act::Group,
    Act::Write,
    Act::Sync,
    Act::SyncAll,
    Act::Delete,
    Act::Change,
    Act::Revoke,
    Act::Grow,
    Act::Shrink,
    Act::Discard,
    Act::Limit,
    Act::Checkpoint,
    Act::Generation,
    Act::Name,
    Act::Rename,
    Act::Unname,
];

/// Kinds of beginnings and of waiting.
const WAYS: u64 = 4;
/// The longest sequence.
const LENGTH: u32 = 3;
const KINDS: u64 = ACTS.len() as u64;
/// How many sequences there are.
pub const SEQUENCES: u64 = WAYS * (KINDS + KINDS.pow(2) + KINDS.pow(3));

/// The operations of a seed, whether the image is furnished, and whether each operation is waited for.
fn sequence(seed: u64) -> Option<(Vec<Act>, bool, bool)> {
    let (mut place, mut length) = (seed, 1);
    while place >= WAYS * KINDS.pow(length) {
        place -= WAYS * KINDS.pow(length);
        length += 1;
    }
    if length > LENGTH {
        return None;
    }
    let (way, mut place) = (place % WAYS, place / WAYS);
    let mut acts = Vec::new();
    for _ in 0..length {
        acts.push(ACTS[(place % KINDS) as usize]);
        place /= KINDS;
    }
    Some((acts, way & 1 != 0, way & 2 == 0))
}

/// Lives the life of a seed.
pub fn run(seed: u64, options: Options) -> Check<Tally> {
    let Some((acts, furnished, waits)) = sequence(seed) else {
        return Ok(Tally::default());
    };
    let mut driver = Driver::begin(seed, Options { blocks: 300, ..options })?;
    if furnished {
        let before = [
            Act::Create,
            Act::Write,
            Act::Name,
            Act::Generation,
            Act::Write,
            Act::Sync,
        ];
        for act in before {
            driver.perform(act)?;
            driver.settle()?;
        }
    }
    for (at, &act) in acts.iter().enumerate() {
        if waits && at > 0 {
            driver.settle()?;
        }
        driver.perform(act)?;
    }
    let way = (furnished, waits);
    driver
        .cut_everywhere()
        .map_err(|what| format!("{acts:?} (furnished, waits: {way:?}): {what}"))?;
    Ok(driver.tally)
}

impl Driver {
    /// Does an operation with the first object; nothing, where it makes no sense.
    fn perform(&mut self, act: Act) -> Check {
        let (base, pages) = match act {
            Act::Create => return self.enter(3, 0).map(drop),
            Act::Group => {
                let mut group = Vec::new();
                for pages in [1, 300] {
                    group.extend(self.enter(pages, 0)?);
                }
                for &base in &group {
                    self.write_page(base, 0);
                }
                self.sync_group(&group);
                return Ok(());
            }
            Act::SyncAll => {
                if let Some(all) = self.all_objects() {
                    self.sync_group(&all);
                }
                return Ok(());
            }
            Act::Checkpoint => return self.checkpoint(CheckpointKind::Periodic),
            Act::Generation => return self.checkpoint(CheckpointKind::Generation),
            Act::Name => return self.name(Naming::Give),
            Act::Rename => return self.name(Naming::Change),
            Act::Unname => return self.name(Naming::Take),
            _ => match self.first_plain_object(act != Act::Delete) {
                Some(object) => object,
                None => return Ok(()),
            },
        };
        match act {
            Act::Write => {
                self.write_page(base, 0);
                self.write_page(base, 2.min(pages - 1));
            }
            Act::Sync => self.sync_group(&[base]),
            Act::Delete => self.remove(base)?,
            Act::Change => self.change(base)?,
            Act::Revoke => {
                self.change(base)?;
                self.begin_sync(Vec::new(), &[base]);
            }
            Act::Grow => self.resize_to(base, 300)?,
            Act::Shrink => self.resize_to(base, 1)?,
            Act::Discard => self.discard_range(base, 0, 2),
            Act::Limit => self.limit_page(base, 1.min(pages - 1)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_sequence_has_a_seed() {
        let all: HashSet<String> = (0..SEQUENCES).map(|seed| format!("{:?}", sequence(seed))).collect();
        assert_eq!(all.len() as u64, SEQUENCES);
        assert_eq!(sequence(0), Some((vec![Act::Create], false, true)));
        assert_eq!(sequence(SEQUENCES - 1), Some((vec![Act::Unname; 3], true, false)));
        assert_eq!(sequence(SEQUENCES), None);
    }
}
