//! Password capabilities: registering, changing, revoking.
//!
//! The object's record lists passwords and rights; a domain that shows a listed password has them. A
//! change of a persistent object is in the object table before it is in force here, and durable
//! before the call returns. Taking rights away withdraws the object from every domain before the call returns:
//! a domain that still has a right, by another capability, finds it again at the next touch.

use alloc::vec::Vec;

use abi::{
    Error, Rights,
    call::arguments::{ObjCrePdx, ObjPasswd},
    layout::{CAPABILITIES_MAX, ENTRIES_MAX, PDX_MAX},
};
use store::{ObjectRecord, PdxRecord};

use crate::{
    Answer, Server, World,
    containers::push,
    directory::object::{ObjectId, record_bytes},
    lives::continuation::Continuation,
    lives::thread::Caller,
    lives::work::Work,
    protection::apd::ClistRef,
    protection::withdraw::{CalleesOf, Withdrawal},
};

/// The effect of a change of passwords on rights.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Effect {
    /// Nothing: nobody has fewer rights than before.
    Grants,
    /// Rights that domains may have cached.
    Revokes,
    /// A PDX capability, whose record has named this Clist.
    RevokesCalls(u64),
}

/// A changed record of an object.
struct Change {
    record: ObjectRecord,
    password: u64,
    effect: Effect,
    /// The Clist that it names in addition.
    clist: u64,
}

/// Changes what a password gives; none revokes.
fn set_rights(record: &mut ObjectRecord, password: u64, rights: Rights) -> Result<Effect, Error> {
    let place = record.capabilities.iter().position(|listed| listed.0 == password);
    let is_pdx = record.pdx.iter().any(|pdx| pdx.password == password);
    match (place, is_pdx) {
        (Some(place), _) if rights.is_empty() => {
            record.capabilities.remove(place);
            Ok(Effect::Revokes)
        }
        (Some(place), _) => {
            let before = core::mem::replace(&mut record.capabilities[place].1, rights.bits());
            Ok(if before & !rights.bits() == 0 {
                Effect::Grants
            } else {
                Effect::Revokes
            })
        }
        (None, true) if rights.is_empty() => {
            let clist = record.pdx.remove(password).unwrap_or(0);
            Ok(Effect::RevokesCalls(clist))
        }
        (None, true) => Err(Error::InUse),
        (None, false) if rights.is_empty() => Err(Error::BadArgument),
        (None, false) if record.capabilities.len() >= CAPABILITIES_MAX => Err(Error::TableFull),
        (None, false) => {
            push(&mut record.capabilities, (password, rights.bits()))?;
            Ok(Effect::Grants)
        }
    }
}

/// Registers a PDX capability, in place of one with the same password. If it fails, the record is of no use.
fn set_pdx(record: &mut ObjectRecord, pdx: PdxRecord<'_>) -> Result<Effect, Error> {
    if record.capabilities.iter().any(|listed| listed.0 == pdx.password) {
        return Err(Error::InUse);
    }
    let before = record.pdx.remove(pdx.password);
    // The whole row is written with each change of it.
    if record.pdx.len() >= PDX_MAX || record.pdx.entries() + pdx.entries.len() > ENTRIES_MAX {
        return Err(Error::TableFull);
    }
    record.pdx.add(pdx)?;
    Ok(before.map_or(Effect::Grants, Effect::RevokesCalls))
}

/// Whether a password is one of an object's.
fn has_password(record: &ObjectRecord, password: u64) -> bool {
    let listed = record.capabilities.iter().map(|capability| capability.0);
    listed
        .chain(record.pdx.iter().map(|pdx| pdx.password))
        .any(|other| other == password)
}

/// The password that a caller asks for; zero asks the system for one.
pub(crate) fn password_or_random(world: &mut impl World, password: u64) -> u64 {
    let mut password = password;
    while password == 0 {
        password = world.random();
    }
    password
}

impl Server {
    /// `ObjPasswd`: address, password, rights.
    pub(crate) fn obj_passwd(&mut self, world: &mut impl World, caller: Caller, arguments: ObjPasswd) -> Answer {
        let ObjPasswd {
            address,
            password,
            rights: bits,
        } = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        if let Some(step) = self.resume_revoking(world, caller) {
            return step;
        }
        let rights = Rights::from_bits(bits)
            .filter(|rights| !rights.contains(Rights::P))
            .ok_or(Error::BadArgument)?;
        if rights.is_empty() && password == 0 {
            return Err(Error::BadArgument.into());
        }
        if !rights.is_empty() {
            self.enough_heap(world)?;
        }
        let id = self.require_at(world, caller.domain, address, Rights::OWNER)?;
        if !has_password(&self.objects.get(id).record, password) {
            self.locks_allow_password(caller.domain, password)?;
        }
        let password = password_or_random(world, password);
        let mut record = self.objects.get(id).record.copy()?;
        let effect = set_rights(&mut record, password, rights)?;
        let change = Change {
            record,
            password,
            effect,
            clist: 0,
        };
        self.commit_passwords(world, caller, id, change)
    }

    /// `ObjCrePdx`: address, password, Clist, entries, count.
    pub(crate) fn obj_cre_pdx(&mut self, world: &mut impl World, caller: Caller, arguments: ObjCrePdx) -> Answer {
        let ObjCrePdx {
            address,
            password,
            clist,
            entries: entries_at,
            count,
        } = arguments;
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        if let Some(step) = self.resume_revoking(world, caller) {
            return step;
        }
        self.locks_allow(caller.domain)?;
        if count == 0 {
            return Err(Error::BadArgument.into());
        }
        if count > ENTRIES_MAX as u64 {
            return Err(Error::TableFull.into());
        }
        self.enough_heap(world)?;
        let id = self.require_at(world, caller.domain, address, Rights::OWNER)?;
        let mut bytes = [0; ENTRIES_MAX * 8];
        let bytes = &mut bytes[..count as usize * 8];
        self.read_user(world, caller.domain, entries_at, bytes)?;
        let clist = if clist == 0 {
            ClistRef::default()
        } else {
            self.clist_for(world, caller.domain, clist)?
        };
        let object = self.objects.get(id);
        let mut entries = Vec::new();
        for word in bytes.chunks_exact(8) {
            push(&mut entries, word.try_into().map_or(0, u64::from_le_bytes))?;
        }
        let pdx = PdxRecord {
            password: password_or_random(world, password),
            clist: clist.base,
            reader: clist.reader,
            entries: &entries,
        };
        if !pdx.entries.iter().all(|&entry| object.holds(entry)) {
            return Err(Error::NotAnEntry.into());
        }
        let password = pdx.password;
        let mut record = object.record.copy()?;
        let effect = set_pdx(&mut record, pdx)?;
        let change = Change {
            record,
            password,
            effect,
            clist: clist.base,
        };
        self.commit_passwords(world, caller, id, change)
    }

    /// Puts a changed list of passwords in force.
    fn commit_passwords(&mut self, world: &mut impl World, caller: Caller, id: ObjectId, change: Change) -> Answer {
        self.row_may_change(world, id)?;
        let Change {
            mut record,
            password,
            effect,
            clist,
        } = change;
        let (before, after) = (record_bytes(&self.objects.get(id).record), record_bytes(&record));
        let was_row = self.objects.get(id).is_persistent();
        // A row has a copy of the record.
        let copies = if was_row { 2 } else { 1 };
        let (more, less) = (
            copies * after.saturating_sub(before),
            copies * before.saturating_sub(after),
        );
        self.pay_bytes(id, more)?;
        record.account = self.objects.get(id).record.account;
        let named = self.names.add(clist);
        let put = named.and_then(|()| {
            let put = if was_row {
                record.copy().and_then(|row| self.put_record(row))
            } else {
                Ok(())
            };
            put.inspect_err(|_| self.name_ends(clist, false))
        });
        if let Err(error) = put {
            self.refund_bytes(id, more);
            return Err(error.into());
        }
        if was_row {
            self.note_row_change(id);
        }
        self.refund_bytes(id, less);
        self.objects.get_mut(id).record = record;
        if let Effect::RevokesCalls(clist) = effect {
            self.name_ends(clist, was_row);
        }
        if effect == Effect::Grants {
            return self.finish_passwords(world, caller, id, password);
        }
        let withdrawal = self.withdraw_begin(world, id);
        self.threads.record(caller.thread).continuation = Continuation::Revoke { withdrawal, password };
        self.revoke(world, caller, withdrawal, password, true)
    }

    /// Goes on with a call that has changed the list of passwords and is taking the object away from the domains; nothing if
    /// this one is not.
    fn resume_revoking(&mut self, world: &mut impl World, caller: Caller) -> Option<Answer> {
        match self.threads.record(caller.thread).continuation {
            Continuation::Revoke { withdrawal, password } => {
                Some(self.revoke(world, caller, withdrawal, password, false))
            }
            _ => None,
        }
    }

    /// Takes the object away from the domains, and ends the call.
    fn revoke(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        withdrawal: Withdrawal,
        password: u64,
        first: bool,
    ) -> Answer {
        let callees = CalleesOf::Password(password);
        self.goes_on(world, Work::Withdrawal(withdrawal, callees), first)?;
        match self.objects.find_serial(withdrawal.base, withdrawal.serial) {
            Some(id) => self.finish_passwords(world, caller, id, password),
            // It has gone meanwhile.
            None => Ok((password, 0)),
        }
    }

    /// Makes the list of passwords durable, where the object is.
    fn finish_passwords(&mut self, world: &mut impl World, caller: Caller, id: ObjectId, password: u64) -> Answer {
        let object = self.objects.get(id);
        if !object.is_kept() {
            return Ok((password, 0));
        }
        let base = object.base();
        let goal = self.sync_row(world, base);
        self.finish_durable(caller, goal, (password, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_set_changed_and_taken() {
        let mut record = ObjectRecord::default();
        assert_eq!(set_rights(&mut record, 5, Rights::R), Ok(Effect::Grants));
        assert_eq!(set_rights(&mut record, 5, Rights::RW), Ok(Effect::Grants));
        assert_eq!(set_rights(&mut record, 5, Rights::X), Ok(Effect::Revokes));
        assert_eq!(record.capabilities, [(5, Rights::X.bits())]);
        assert_eq!(set_rights(&mut record, 5, Rights::NONE), Ok(Effect::Revokes));
        assert_eq!(set_rights(&mut record, 5, Rights::NONE), Err(Error::BadArgument));
        for password in 0..CAPABILITIES_MAX as u64 {
            assert_eq!(set_rights(&mut record, 100 + password, Rights::R), Ok(Effect::Grants));
        }
        assert_eq!(set_rights(&mut record, 99, Rights::R), Err(Error::TableFull));
        assert_eq!(set_rights(&mut record, 100, Rights::OWNER), Ok(Effect::Grants));
    }

    #[test]
    fn one_password_is_one_capability() {
        let mut record = ObjectRecord::default();
        let pdx = |password| PdxRecord {
            password,
            entries: &[],
            ..PdxRecord::default()
        };
        assert_eq!(set_pdx(&mut record, pdx(1)), Ok(Effect::Grants));
        assert_eq!(set_rights(&mut record, 1, Rights::R), Err(Error::InUse));
        assert_eq!(set_rights(&mut record, 2, Rights::R), Ok(Effect::Grants));
        assert_eq!(set_pdx(&mut record, pdx(2)), Err(Error::InUse));
        assert_eq!(set_pdx(&mut record, pdx(1)), Ok(Effect::RevokesCalls(0)));
        for password in 10..10 + PDX_MAX as u64 - 1 {
            assert_eq!(set_pdx(&mut record, pdx(password)), Ok(Effect::Grants));
        }
        assert_eq!(set_pdx(&mut record, pdx(90)), Err(Error::TableFull));
        assert_eq!(set_rights(&mut record, 1, Rights::NONE), Ok(Effect::RevokesCalls(0)));
        assert!(record.pdx.iter().all(|pdx| pdx.password != 1));
    }

    #[test]
    fn the_entries_of_all_calls_of_an_object_are_bounded() {
        let mut record = ObjectRecord::default();
        let all = [0; ENTRIES_MAX];
        let pdx = |password, entries: usize| PdxRecord {
            password,
            entries: &all[..entries],
            ..PdxRecord::default()
        };
        assert_eq!(set_pdx(&mut record, pdx(1, ENTRIES_MAX / 2)), Ok(Effect::Grants));
        assert_eq!(set_pdx(&mut record, pdx(2, ENTRIES_MAX / 2)), Ok(Effect::Grants));
        assert_eq!(set_pdx(&mut record, pdx(3, 1)), Err(Error::TableFull));
        assert_eq!(set_pdx(&mut record, pdx(3, 0)), Ok(Effect::Grants));
    }
}
