//! Names: directories whose contents lead to objects.
//!
//! A directory is an object of one page; what its contents stand for is kept beside the model. A name is given, changed or taken away
//! together with what becomes of the object, under one sync that covers all directories. So whatever a crash leaves, each name leads to
//! an object, and that is looked at by itself, apart from the comparison with the states that may be there.

use super::{Check, Driver};
use crate::lab::model::State;
use std::collections::BTreeMap;

/// Names, each with the base of an object.
pub(in crate::lab) type Table = BTreeMap<u64, u64>;

/// The account of directories, by which they are known.
pub(in crate::lab) const DIRECTORY: u64 = 0xd1;
/// The most directories.
const DIRECTORIES: usize = 2;

/// A change of a name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::lab) enum Naming {
    /// A new object gets one.
    Give,
    /// An object gets another one, perhaps in another directory, and perhaps in place of another object, which goes.
    Change,
    /// It goes, and its object.
    Take,
}

impl Driver {
    /// Whether the object is a directory.
    pub(super) fn is_directory(&self, base: u64) -> bool {
        self.live
            .get(&base)
            .is_some_and(|object| object.record.account == DIRECTORY)
    }

    fn directories(&self) -> Vec<u64> {
        self.live
            .keys()
            .copied()
            .filter(|&base| self.is_directory(base))
            .collect()
    }

    /// The names in a directory, as it now is.
    fn table(&self, directory: u64) -> Table {
        let stamp = self.live[&directory].pages.get(&0).map_or(0, |page| page.stamp);
        self.tables.get(&stamp).cloned().unwrap_or_default()
    }

    /// Whether the object is a directory or has a name.
    pub(super) fn is_spoken_for(&self, base: u64) -> bool {
        let has_name = |directory| self.table(directory).values().any(|&other| other == base);
        self.is_directory(base) || self.directories().into_iter().any(has_name)
    }

    /// Does something with a name, or makes a directory.
    pub(super) fn naming(&mut self) -> Check {
        let what = *self
            .rng
            .pick(&[Naming::Give, Naming::Give, Naming::Change, Naming::Take]);
        self.name(what)
    }

    /// Does something with a name. The first ones make directories.
    pub(in crate::lab) fn name(&mut self, what: Naming) -> Check {
        let mut directories = self.directories();
        if directories.len() < DIRECTORIES {
            directories.extend(self.enter(1, DIRECTORY)?);
        }
        // One sync has to cover all of them.
        if directories.is_empty() || directories.iter().any(|&base| self.is_withheld((base, 0))) {
            return Ok(());
        }
        let (from, to) = (*self.rng.pick(&directories), *self.rng.pick(&directories));
        let mut old = self.table(from);
        let gone = match what {
            Naming::Give => {
                let Some(base) = self.enter(3, 0)? else { return Ok(()) };
                let replaced = old.insert(self.rng.below(6), base);
                if !self.write_table(from, old) {
                    return self.remove(base);
                }
                // It may have the place of an old one, and its size.
                let page = self.any_page(base);
                self.write_page(base, page);
                replaced
            }
            Naming::Change | Naming::Take => {
                let names: Vec<u64> = old.keys().copied().collect();
                if names.is_empty() {
                    return Ok(());
                }
                let base = old.remove(self.rng.pick(&names));
                let mut new = if from == to { old.clone() } else { self.table(to) };
                let gone = match base.filter(|_| what == Naming::Change) {
                    Some(base) => new.insert(self.rng.below(6), base),
                    None => base,
                };
                // The new name first: an object may have two, and must not be without one.
                if what == Naming::Change && !self.write_table(to, new) {
                    return Ok(());
                }
                let has_two = what == Naming::Take || from != to;
                // A new name without room to take the old one away leaves both.
                if has_two && !self.write_table(from, old) && what == Naming::Take {
                    return Ok(());
                }
                gone
            }
        };
        // Another name may lead there still, where a table found no room.
        if let Some(base) = gone.filter(|&base| !self.is_spoken_for(base)) {
            self.remove(base)?;
        }
        self.tally.names += 1;
        let mut group = self.directories();
        group.extend(
            directories
                .iter()
                .flat_map(|&directory| self.table(directory).into_values()),
        );
        group.extend(self.unusable.keys());
        group.sort_unstable();
        group.dedup();
        self.sync_group(&group);
        Ok(())
    }

    /// The first object that is no directory, and has no name if it must not have one.
    pub(in crate::lab) fn first_plain_object(&self, may_have_name: bool) -> Option<(u64, u64)> {
        let plain = |base: u64| !self.is_directory(base) && (may_have_name || !self.is_spoken_for(base));
        let mut objects = self.live.iter().filter(|(base, _)| plain(**base));
        objects.next().map(|(base, object)| (*base, object.record.pages))
    }

    /// All objects and those whose deletion is not durable, if one sync can have them all.
    pub(in crate::lab) fn all_objects(&self) -> Option<Vec<u64>> {
        let is_free = self.directories().iter().all(|&base| !self.is_withheld((base, 0)));
        is_free.then(|| self.live.keys().chain(self.unusable.keys()).copied().collect())
    }

    /// Writes names into a directory, if there is room.
    fn write_table(&mut self, directory: u64, table: Table) -> bool {
        let stamp = self.write_page(directory, 0);
        if let Some(stamp) = stamp {
            self.tables.insert(stamp, table);
        }
        stamp.is_some()
    }

    /// Each name leads to an object.
    pub(super) fn judge_names(&self, found: &State) -> Check {
        for (directory, object) in found.iter().filter(|(_, object)| object.record.account == DIRECTORY) {
            let stamp = object.pages.get(&0).map_or(0, |page| page.stamp);
            if stamp == 0 {
                continue;
            }
            let table = self.tables.get(&stamp);
            let table = table.ok_or_else(|| format!("directory {directory:#x} holds what nobody wrote there"))?;
            if let Some((name, base)) = table.iter().find(|(_, base)| !found.contains_key(base)) {
                return Err(format!(
                    "name {name} of directory {directory:#x} leads to {base:#x}, which is gone"
                ));
            }
        }
        Ok(())
    }
}
