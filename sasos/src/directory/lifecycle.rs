//! The life of an object: made, resized, described, handed over, destroyed. ([`crate::durability::keeping`] has how it is kept.)

use abi::{
    Error, Rights,
    address::{PAGE, PAGES_PER_SLOT, pages_for, system_objects},
    call::arguments::{ObjCreate, ObjDelete, ObjInfo, ObjRetire},
    layout::{INFO_SET_BYTES, INFO_SET_MODIFIED, INFO_SET_TAG, INFO_USED, OBJECT_PERSISTENT, OBJECT_STACK, ObjectInfo},
};
use kcore::{SpaceId, ThreadId};
use store::{DeleteError, ROW_ENDS};

use crate::{
    Answer, Server, Stop, World,
    accounts::AccountId,
    containers::push,
    directory::creation::{AddressesOf, Kind},
    directory::object::{ENDS, ObjectId},
    directory::slot_map::cost_of_slots,
    lives::budget::Cost,
    lives::continuation::Continuation,
    lives::task::TaskId,
    lives::thread::Caller,
    lives::work::{COST_LARGEST, Piece, Work},
    protection::capability::password_or_random,
    protection::withdraw::CalleesOf,
};

/// The cost of ending an object beside its pages, in instructions, roughly.
const COST_OBJECT: Cost = Cost::calling(2000, 2);
/// The cost of taking a row out of the object table.
const COST_ROW_GONE: Cost = Cost::own(4_500);
// The first item of a poll gives back the addresses of the largest object.
const _: () = assert!(COST_OBJECT.and(cost_of_slots(u64::MAX)).outside() <= COST_LARGEST);

impl Server {
    /// `ObjCreate`: bytes, password.
    pub(crate) fn obj_create(&mut self, world: &mut impl World, caller: Caller, arguments: ObjCreate) -> Answer {
        let ObjCreate { bytes, password } = arguments;
        let pages = pages_for(bytes).ok_or(Error::NoMemory)?;
        self.locks_allow_password(caller.domain, password)?;
        let aside = if (1..=PAGES_PER_SLOT).contains(&pages) {
            self.take_aside(world, caller, pages)
        } else {
            None
        };
        let id = match aside {
            Some(id) => id,
            None => self.object_make(
                world,
                Kind::Plain,
                pages,
                self.payer(caller),
                Some(caller.task),
                caller.domain,
            )?,
        };
        let password = password_or_random(world, password);
        let record = &mut self.objects.get_mut(id).record;
        // Room was made with the object.
        let _ = push(&mut record.capabilities, (password, Rights::OWNER.bits()));
        Ok((record.base, password))
    }

    /// `ObjDelete`: address.
    pub(crate) fn obj_delete(&mut self, world: &mut impl World, caller: Caller, arguments: ObjDelete) -> Answer {
        self.delete(world, caller, arguments.address, false)
    }

    /// `ObjRetire`: address.
    pub(crate) fn obj_retire(&mut self, world: &mut impl World, caller: Caller, arguments: ObjRetire) -> Answer {
        self.delete(world, caller, arguments.address, true)
    }

    fn delete(&mut self, world: &mut impl World, caller: Caller, address: u64, unless_held: bool) -> Answer {
        if let Some(step) = self.resume_durable(caller) {
            return step;
        }
        let id = self.object_at(world, address)?;
        let object = self.objects.get(id);
        let (base, end, serial, persistent) = (object.base(), object.end(), object.serial, object.is_persistent());
        let has_procedures = !object.record.pdx.is_empty();
        self.row_may_change(world, id)?;
        let begun = match self.threads.record(caller.thread).continuation {
            // The right was there when it was taken away from everybody.
            Continuation::Delete { withdrawal, at } if withdrawal.serial == serial => Some((withdrawal, at)),
            // It has gone meanwhile, and another object got its address.
            Continuation::Delete { .. } => return Err(Error::BadAddress.into()),
            _ => None,
        };
        let (withdrawal, at) = if let Some(begun) = begun {
            begun
        } else {
            self.require(world, caller.domain, id, Rights::D)?;
            // Without a system object no start succeeds, so no right is enough to take it away.
            let is_system = system_objects().contains(&base);
            if is_system || unless_held && self.others_hold(id, caller.domain) {
                return Err(Error::InUse.into());
            }
            if self.set_aside(world, caller, id) {
                return Ok((0, 0));
            }
            (self.withdraw_begin(world, id), 0)
        };
        let callees = if has_procedures {
            CalleesOf::Object
        } else {
            CalleesOf::Nobody
        };
        // Few objects have procedures, or many nodes.
        let withdrawn = if !has_procedures && self.unlink_older(world, id, withdrawal.epoch) {
            Ok(())
        } else {
            self.goes_on(world, Work::Withdrawal(withdrawal, callees), begun.is_none())
        };
        let left = match withdrawn {
            Err(_) => Some(at),
            // The disk may have to show these pages again, so they stay until the store has deleted the object.
            Ok(()) if persistent => None,
            Ok(()) if !self.cut_piece(world, id) => Some(at),
            Ok(()) => self.dismantle(world, id, &(base..end), at),
        };
        if let Some(at) = left {
            self.threads.record(caller.thread).continuation = Continuation::Delete { withdrawal, at };
            self.objects.get_mut(id).closed_by = caller.thread;
            return Err(Stop::Again);
        }
        if !persistent {
            self.object_drop(world, id, AddressesOf::Free);
            return Ok((0, 0));
        }
        if self.store.delete_object(base) == Err(DeleteError::Memory) {
            self.objects.get_mut(id).closed_by = ThreadId(0);
            return Err(Error::NoMemory.into());
        }
        let is_kept = self.objects.get(id).is_kept();
        self.row_gone(id);
        // The list does the rest.
        let _ = self.goes_on(world, Work::Object(base, serial), true);
        if !is_kept {
            return Ok((0, 0));
        }
        let goal = self.sync_row(world, base);
        self.finish_durable(caller, goal, (0, 0))
    }

    /// The store has deleted an object, which ends now.
    fn row_gone(&mut self, id: ObjectId) {
        self.checkpoint.note_change();
        // No checkpoint takes its pages from now on.
        self.objects.unlist_dirty(id);
        self.objects.get_mut(id).closed_by = ENDS;
    }

    /// Takes a backed object out of the store, if the table may change now; tells whether it did.
    fn row_of_backed_goes(&mut self, world: &impl World, id: ObjectId) -> bool {
        let base = self.objects.get(id).base();
        let may_change = self.budget.spend(COST_ROW_GONE) && self.row_may_change(world, id).is_ok();
        if !may_change || self.store.delete_object(base) == Err(DeleteError::Memory) {
            return false;
        }
        self.row_gone(id);
        true
    }

    /// A piece of the end of an object that is deleted.
    pub(crate) fn object_piece(&mut self, world: &mut impl World, base: u64, serial: u64) -> Piece {
        if self.objects.find_serial(base, serial).is_none() || self.object_ends(world, base) {
            Piece::Done
        } else {
            Piece::More
        }
    }

    /// Destroys an object that is transient, backed or not, or that the store has deleted, by its base, without asking anybody (a kill list, a stack), as far
    /// as the budget reaches; tells whether that was all.
    pub(crate) fn object_ends(&mut self, world: &mut impl World, base: u64) -> bool {
        let Some(id) = self.objects.find_base(base) else {
            return true;
        };
        self.objects.leave_aside(id);
        let object = self.objects.get(id);
        let whole = base..object.end();
        let addresses = match object.is_persistent() {
            true if object.ends() => AddressesOf::Held,
            true if !object.is_backed() => return true,
            true if !self.row_of_backed_goes(world, id) => return false,
            true => AddressesOf::Held,
            false => AddressesOf::Free,
        };
        if !self.budget.spend(COST_OBJECT)
            || !self.withdraw_all_but_few(world, id)
            || !self.cut_piece(world, id)
            || self.dismantle(world, id, &whole, base).is_some()
        {
            return false;
        }
        self.object_drop(world, id, addresses);
        true
    }

    /// A stack for a thread in a domain, paid for by an account. Tells its base; it is
    /// [`abi::address::STACK_BYTES`] long.
    pub(crate) fn stack_create(
        &mut self,
        world: &mut impl World,
        payer: AccountId,
        domain: SpaceId,
    ) -> Result<u64, Error> {
        match self.object_make(
            world,
            Kind::Stack,
            abi::address::STACK_BYTES / PAGE,
            payer,
            None,
            domain,
        ) {
            Ok(id) => Ok(self.objects.get(id).base()),
            Err(Stop::Fail(error)) => Err(error),
            Err(Stop::Wait(_) | Stop::Again) => Err(Error::NoMemory),
        }
    }

    /// Hands the transient object that holds an address over to a task, if the domain `from` has
    /// made it: kill list, account and implicit rights. Otherwise nothing happens. It is taken away
    /// from all who have it; the task finds it when nothing is left of that.
    pub(crate) fn object_move(
        &mut self,
        world: &mut impl World,
        address: u64,
        from: SpaceId,
        to: SpaceId,
        to_task: TaskId,
    ) -> Result<(), Error> {
        let Some(id) = self.objects.find(address) else {
            return Ok(());
        };
        if self.is_closed(id) {
            return Err(Error::BadAddress);
        }
        let object = self.objects.get(id);
        let serial = self.domains.serial(from);
        if object.owner.is_none() || serial == 0 || object.home != serial {
            return Ok(());
        }
        let payer = self.tasks.may_own(to_task)?.account;
        self.set_account(id, payer)?;
        self.disown(id);
        self.own(to_task, id);
        self.objects.get_mut(id).home = self.domains.serial(to);
        self.withdraw(world, id);
        Ok(())
    }

    // ---- description ------------------------------------------------------------------------------

    /// `ObjInfo`: address, flags, buffer.
    pub(crate) fn obj_info(&mut self, world: &mut impl World, caller: Caller, arguments: ObjInfo) -> Answer {
        let ObjInfo {
            address,
            flags,
            info: buffer,
            room,
        } = arguments;
        let sets = flags & (INFO_SET_MODIFIED | INFO_SET_TAG) != 0;
        if flags & !(INFO_SET_MODIFIED | INFO_SET_TAG | INFO_USED) != 0 || sets && room < INFO_SET_BYTES {
            return Err(Error::BadArgument.into());
        }
        let (flags, used) = (flags & !INFO_USED, flags & INFO_USED != 0);
        let needed = if flags == 0 { Rights::R } else { Rights::OWNER };
        let id = self.require_at(world, caller.domain, address, needed)?;
        if flags != 0 {
            self.row_may_change(world, id)?;
        }
        let mut bytes = [0; ObjectInfo::BYTES];
        let length = bytes.len().min(room as usize & !7);
        if let Some(given) = bytes.get_mut(..length).filter(|_| flags != 0) {
            self.read_user(world, caller.domain, buffer, given)?;
        }
        self.prepare_write(world, caller.domain, buffer, length)?;
        // So that it tells all the rights that there are, not only those that were used. It may come to nothing, which no cache knows;
        // so no other search may follow, or the two would drop each other's bookmarks for ever.
        if !used {
            match self.require(world, caller.domain, id, Rights::OWNER.union(Rights::P)) {
                Err(stop @ (Stop::Wait(_) | Stop::Again)) => return Err(stop),
                Ok(_) | Err(Stop::Fail(_)) => {}
            }
        }
        let before = self.object_info(id, caller.domain);
        if flags != 0 {
            self.change_info(id, flags, &ObjectInfo::from_bytes(&bytes))?;
        }
        self.tell(world, caller, (buffer, room), &before.to_bytes())
    }

    fn change_info(&mut self, id: ObjectId, flags: u64, info: &ObjectInfo) -> Result<(), Error> {
        let change = |record: &mut store::ObjectRecord| {
            if flags & INFO_SET_MODIFIED != 0 {
                record.modified_ns = info.modified_ns;
            }
            if flags & INFO_SET_TAG != 0 {
                record.tag = info.tag;
            }
        };
        let object = self.objects.get(id);
        if object.is_persistent() {
            let mut row = object.record.copy()?;
            change(&mut row);
            self.put_record(row)?;
            self.note_row_change(id);
        }
        change(&mut self.objects.get_mut(id).record);
        Ok(())
    }

    /// The report on an active object; the rights are those that a domain is known to have.
    pub fn object_info(&self, id: ObjectId, space: SpaceId) -> ObjectInfo {
        let object = self.objects.get(id);
        let rights = self.cached(space, id).map_or(Rights::NONE, |cached| cached.rights);
        info_of(&object.record, rights, object.resident)
    }

    /// The report on an object that is not active.
    pub(crate) fn stored_info(record: &store::ObjectRecord) -> ObjectInfo {
        info_of(record, Rights::NONE, 0)
    }
}

fn info_of(record: &store::ObjectRecord, rights: Rights, resident: u64) -> ObjectInfo {
    // To programs a backed object is as transient as before.
    let kept = if record.flags & ROW_ENDS == 0 {
        OBJECT_PERSISTENT
    } else {
        0
    };
    ObjectInfo {
        base: record.base,
        bytes: record.pages.saturating_mul(PAGE),
        rights: u64::from(rights.bits()),
        flags: record.flags & (kept | OBJECT_STACK),
        capabilities: record.capabilities.len() as u64,
        pdx: record.pdx.len() as u64,
        resident,
        created_ns: record.created_ns,
        modified_ns: record.modified_ns,
        tag: record.tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_the_flags_that_programs_know() {
        for flags in [0, OBJECT_PERSISTENT, OBJECT_STACK, OBJECT_PERSISTENT | OBJECT_STACK] {
            let record = store::ObjectRecord {
                base: 7 * PAGE,
                pages: 3,
                flags: flags | 1 << 63,
                capabilities: vec![(5, 15), (6, 1)],
                tag: 9,
                created_ns: 10,
                modified_ns: 11,
                ..store::ObjectRecord::default()
            };
            let info = info_of(&record, Rights::RX, 2);
            assert_eq!((info.base, info.bytes, info.flags), (7 * PAGE, 3 * PAGE, flags));
            assert_eq!((info.rights, info.resident), (u64::from(Rights::RX.bits()), 2));
            assert_eq!((info.capabilities, info.pdx), (2, 0));
            assert_eq!((info.tag, info.created_ns, info.modified_ns), (9, 10, 11));
        }
    }
}
