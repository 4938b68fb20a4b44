//! Acts on a name and its object together, each in an order that no power cut can spoil.
//!
//! A checkpoint makes everything durable as it stands at one moment; [`System::flush`] makes one directory durable
//! alone; a deletion is durable before [`System::delete`] returns. So a directory on the disk may be newer than
//! the objects that it names, and an object may be gone while everything else is as old as the last checkpoint. The
//! acts therefore mark an entry ([`Mark`]) before they touch its object:
//!
//! | act | order | after a cut |
//! |---|---|---|
//! | publish | name, unborn; capability; object kept; name young | the name goes if its object never came |
//! | delete | doomed, and durably so; object deleted; capability dropped; name freed | the deletion is finished |
//! | rename | old name leaving; new name, young; old name freed | the new name counts if it is there |
//! | replace | everything stable; new name; old name freed | one of the two counts |
//!
//! [`recover`] is what a start does after a power cut. It may be cut itself, and begun again. A deletion or a renaming whose caller was
//! ended in the middle is brought to its end by the next act on the directory, before anything else: of a renaming both names are seen until then, and
//! to delete one of them would leave the other one leading nowhere.
//!
//! A directory may be written by others than the owner of what it names, and the acts are done with the rights of their caller. So nothing is done to an
//! object for an entry whose capability is [not the caller's own](System::is_own): an address alone is no right.

use crate::directory::{Directory, Entry, Error, Mark, Marked};
use abi::layout::Capability;

/// Deletions and renamings that one act brings to an end for others.
const INTERRUPTED_MAX: usize = 32;

/// Entries for which a start looks through a whole directory. The acts leave one of these in each act that was cut or interrupted; strangers can
/// write more, and what is behind these waits for the next start.
const SEARCHES_MAX: usize = 256;

/// A directory, and what else the acts change.
pub trait System {
    /// Why it failed.
    type Error: From<Error>;

    /// Changes the directory; one that is full is made longer, and the change done again.
    ///
    /// # Errors
    /// That of the change, or the system's.
    fn change(&mut self, change: &mut dyn FnMut(&mut Directory<'_>) -> Result<(), Error>) -> Result<(), Self::Error>;

    /// Asks for the room that it takes to drop the entry and the capabilities of its object: before that is destroyed, because a caller
    /// without room may be ended instead of being told.
    ///
    /// # Errors
    /// There is none.
    fn make_room(&mut self, entry: &Marked) -> Result<(), Self::Error>;

    /// Makes the directory durable as it is.
    ///
    /// # Errors
    /// It could not be.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Makes everything durable as it is.
    ///
    /// # Errors
    /// It could not be.
    fn flush_all(&mut self) -> Result<(), Self::Error>;

    /// Whether an object is there, whoever may use it.
    fn is_there(&mut self, address: u64) -> bool;

    /// Whether the caller has the object by this capability, or has no right on it at all. If it has the object by another capability alone, somebody
    /// else has written this one, and what it stands for is not to be done with the caller's rights.
    fn is_own(&mut self, capability: Capability) -> bool;

    /// Whether a right of the caller's on the object that is there now comes from this capability. If not, it may be that the caller has none at all.
    fn gives_right(&mut self, capability: Capability) -> bool;

    /// Keeps an object.
    ///
    /// # Errors
    /// It cannot be kept.
    fn keep(&mut self, address: u64) -> Result<(), Self::Error>;

    /// Deletes an object, durably. One that is gone already is no error.
    ///
    /// # Errors
    /// It stays, or it is gone and may be there again after a power cut.
    fn delete(&mut self, address: u64) -> Result<(), Self::Error>;

    /// Puts a capability into the root Clist, if it is not there and gives a right: one that gives none may be of an object that is to come, of
    /// somebody else, at this address.
    ///
    /// # Errors
    /// There is no room.
    fn enter(&mut self, capability: Capability) -> Result<(), Self::Error>;

    /// Takes all capabilities of an object out of the root Clist.
    ///
    /// # Errors
    /// The Clist is none.
    fn leave(&mut self, address: u64) -> Result<(), Self::Error>;
}

/// Gives a name to an object that is not kept yet, enters its capability and keeps it.
///
/// # Errors
/// The name is taken or is none, or a step failed: then nothing has changed.
pub fn publish<S: System>(system: &mut S, entry: &Entry<'_>) -> Result<(), S::Error> {
    finish_interrupted(system)?;
    let unborn = insert(system, entry, Mark::Unborn)?;
    let left = if system.is_there(entry.capability.address) {
        Ok(())
    } else {
        // Those of objects that were here before.
        system.leave(entry.capability.address)
    };
    let kept = left.and_then(|()| system.enter(entry.capability)).and_then(|()| {
        let kept = system.keep(unborn.capability.address);
        if kept.is_err() {
            system.leave(unborn.capability.address)?;
        }
        kept
    });
    if kept.is_err() {
        free(system, &unborn)?;
        return kept;
    }
    let young = Marked {
        mark: Mark::Young,
        ..unborn
    };
    set_mark(system, &young)
}

/// Deletes the object of a name, and the name with it.
///
/// # Errors
/// There is no such name, the object cannot be deleted, or [`Error::Foreign`]: then the name stays. It goes with an object whose deletion could not
/// be made durable.
pub fn delete<S: System>(system: &mut S, name: &str) -> Result<(), S::Error> {
    finish_interrupted(system)?;
    let mut found = None;
    system.change(&mut |directory| {
        found = directory.view().find(name);
        Ok(())
    })?;
    let found = found.ok_or(Error::NotFound)?;
    if !system.is_own(found.capability) {
        return Err(Error::Foreign.into());
    }
    system.make_room(&found)?;
    // Others may change the entry at any moment: what was looked at is what is deleted.
    let before = mark(system, name, Mark::Doomed)?;
    if before.capability != found.capability {
        set_mark(system, &before)?;
        return Err(Error::Foreign.into());
    }
    // Pages that were flushed need room once more.
    let flushed = system.flush().and_then(|()| system.make_room(&before));
    if let Err(error) = flushed.and_then(|()| system.delete(before.capability.address)) {
        // One that could not be made durable is a deletion all the same: the next act brings it to its end, or the next start.
        if system.is_there(before.capability.address) {
            set_mark(system, &before)?;
        }
        return Err(error);
    }
    system.leave(before.capability.address)?;
    free(system, &before)
}

/// Gives an object another name in the same directory.
///
/// # Errors
/// There is no such name, or the new one is taken or is none: then the old one stays. If the last step failed, the next act does it.
pub fn rename<S: System>(system: &mut S, old: &str, new: &Entry<'_>) -> Result<(), S::Error> {
    finish_interrupted(system)?;
    let before = mark(system, old, Mark::Leaving)?;
    if let Err(error) = insert(system, new, Mark::Young) {
        set_mark(system, &before)?;
        return Err(error);
    }
    free(system, &before)
}

/// Lets a name lead to something else from now on, or enters it.
///
/// # Errors
/// The name is none, or what it shall lead to cannot be made durable: then it leads to what it did.
pub fn replace<S: System>(system: &mut S, entry: &Entry<'_>) -> Result<(), S::Error> {
    finish_interrupted(system)?;
    let mut taken = false;
    system.change(&mut |directory| {
        taken = directory.lookup(entry.name).is_some();
        Ok(())
    })?;
    if !taken {
        return insert(system, entry, Mark::Young).map(|_| ());
    }
    system.flush_all()?;
    system.change(&mut |directory| directory.replace(entry))
}

/// Brings deletions and renamings in this directory to an end whose callers were ended in the middle. One act at a time is the callers' duty, so nobody
/// is still at it.
fn finish_interrupted<S: System>(system: &mut S) -> Result<(), S::Error> {
    let mut from = 0;
    // Others can write more of them than one act should wait for.
    for _ in 0..INTERRUPTED_MAX {
        let mut next = None;
        system.change(&mut |directory| {
            next = directory.view().interrupted(from);
            Ok(())
        })?;
        let Some(marked) = next else { return Ok(()) };
        from = marked.index + 1;
        if marked.mark == Mark::Leaving {
            finish_renaming(system, &marked)?;
        } else {
            finish_deletion(system, &marked)?;
        }
    }
    Ok(())
}

/// The old name goes if the new one is there, and stays if not.
fn finish_renaming<S: System>(system: &mut S, leaving: &Marked) -> Result<(), S::Error> {
    system.change(&mut |directory| {
        if directory.has_twin(leaving) {
            directory.free(leaving);
        } else {
            // Its object may be younger than the last checkpoint.
            let mark = Mark::Young;
            directory.set_mark(&Marked { mark, ..*leaving });
        }
        Ok(())
    })
}

/// The name goes if its object is gone, and is back if not, unless another object has the address. A caller that cannot take the
/// capabilities away, or has no right by which to tell one object from another, leaves the deletion to others: its own act has nothing to do with it.
fn finish_deletion<S: System>(system: &mut S, doomed: &Marked) -> Result<(), S::Error> {
    let address = doomed.capability.address;
    if !system.is_there(address) {
        if system.leave(address).is_ok() {
            free(system, doomed)?;
        }
    } else if system.gives_right(doomed.capability) {
        // Its object may be younger than the last checkpoint.
        let mark = Mark::Young;
        system.change(&mut |directory| {
            if !directory.is_shadowed(doomed) {
                directory.set_mark(&Marked { mark, ..*doomed });
            }
            Ok(())
        })?;
    } else if !system.is_own(doomed.capability) {
        free(system, doomed)?;
    }
    Ok(())
}

/// Finishes or takes back what a power cut left of acts on this directory. Tells how many names went. All of it is made durable at its end: the next
/// act would make names durable that are settled, without their capabilities in the root Clist, and objects at the addresses of names that went.
///
/// # Errors
/// The system's.
pub fn recover<S: System>(system: &mut S) -> Result<u64, S::Error> {
    let (mut went, mut from, mut searches) = (0, 0, SEARCHES_MAX);
    loop {
        let mut next = None;
        system.change(&mut |directory| {
            next = directory.view().marked(from).next().map(|(marked, _)| marked);
            Ok(())
        })?;
        let Some(marked) = next else { break };
        from = marked.index + 1;
        if !settles(system, &marked, &mut searches)? {
            free(system, &marked)?;
            went += 1;
        }
    }
    if from > 0 {
        system.flush_all()?;
    }
    Ok(went)
}

/// Settles a marked entry if its name is to stay. An object goes only if its deletion had begun: one whose publisher was ended may have got its
/// name from somebody else meanwhile, here or in another directory. An object that the caller has by another capability alone stays, and this one
/// is not entered. A doomed one that gives no right goes: its object is gone, and another one has the address. An entry for which no search is left
/// stays as it is.
fn settles<S: System>(system: &mut S, marked: &Marked, searches: &mut usize) -> Result<bool, S::Error> {
    let address = marked.capability.address;
    let is_own = system.is_own(marked.capability);
    if marked.mark == Mark::Doomed && system.is_there(address) {
        if is_own {
            // It gives its right from there, and the last checkpoint may be older than it.
            system.enter(marked.capability)?;
        }
        if !system.gives_right(marked.capability) {
            return Ok(false);
        }
        if is_own {
            // If that fails, the object may be gone all the same.
            let _ = system.delete(address);
        }
    }
    if !system.is_there(address) {
        system.leave(address)?;
        return Ok(false);
    }
    if marked.mark == Mark::Leaving || marked.mark.is_hidden() {
        let Some(left) = searches.checked_sub(1) else {
            return Ok(true);
        };
        *searches = left;
    }
    // A name that was leaving has left if the new one is there, and a hidden one stays so if another entry bears its name.
    let mut stays = false;
    system.change(&mut |directory| {
        let left = marked.mark == Mark::Leaving && directory.has_twin(marked);
        stays = !left && (!marked.mark.is_hidden() || !directory.is_shadowed(marked));
        Ok(())
    })?;
    // The capability first: no later start looks for that of a settled name.
    if is_own && stays {
        system.enter(marked.capability)?;
    }
    if stays {
        let mark = Mark::Settled;
        set_mark(system, &Marked { mark, ..*marked })?;
    }
    Ok(stays)
}

fn insert<S: System>(system: &mut S, entry: &Entry<'_>, mark: Mark) -> Result<Marked, S::Error> {
    let mut inserted = Err(Error::Full);
    system.change(&mut |directory| {
        inserted = directory.insert_marked(entry, mark);
        inserted.map(|_| ())
    })?;
    Ok(inserted?)
}

fn set_mark<S: System>(system: &mut S, marked: &Marked) -> Result<(), S::Error> {
    system.change(&mut |directory| {
        directory.set_mark(marked);
        Ok(())
    })
}

fn mark<S: System>(system: &mut S, name: &str, mark: Mark) -> Result<Marked, S::Error> {
    let mut before = Err(Error::NotFound);
    system.change(&mut |directory| {
        before = directory.mark(name, mark);
        before.map(|_| ())
    })?;
    Ok(before?)
}

fn free<S: System>(system: &mut S, marked: &Marked) -> Result<(), S::Error> {
    system.change(&mut |directory| {
        directory.free(marked);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
