//! Locked domains: what their threads, their callees and their children can no longer do.

use abi::{
    Call, Error, Rights,
    layout::{APD_SLOTS, ApdDescription, PD_EMPTY, PD_MERGE},
};
use kcore::ThreadId;

use crate::{
    calls::Service,
    harness::{Answer, ENTRY, System, Trouble},
};

const ALL: u64 = APD_SLOTS as u64;

/// Two passwords for what a confined task must not reach.
struct Secret {
    object: u64,
    password: u64,
}

impl System {
    /// An object of a thread with the description of an APD.
    fn apd_of(&mut self, thread: ThreadId, clists: &[u64], locked: u64) -> u64 {
        let (object, _) = self.object(thread, 1);
        let mut words = vec![0; ApdDescription::BYTES / 8];
        (words[0], words[1]) = (clists.len() as u64, locked);
        words[2..2 + clists.len()].copy_from_slice(clists);
        for (place, word) in words.into_iter().enumerate() {
            self.set_word(thread, object + 8 * place as u64, word).unwrap();
        }
        object
    }

    /// A child of the first task with these Clists, the first ones locked.
    pub fn confined(&mut self, clists: &[u64], locked: u64) -> ThreadId {
        let apd = self.apd_of(self.first, clists, locked);
        self.task_with(self.first, apd, 0)
    }

    fn secret(&mut self) -> Secret {
        let (object, password) = self.object(self.first, 1);
        self.set_word(self.first, object, 4711).unwrap();
        Secret { object, password }
    }

    fn try_register(&mut self, thread: ThreadId, image: u64, clist: u64) -> Result<(u64, u64), Error> {
        let (entries, _) = self.object(thread, 1);
        self.set_word(thread, entries, image + ENTRY).unwrap();
        self.call(thread, Call::ObjCrePdx, &[image, 0, clist, entries, 1])
    }

    /// A capability with these rights for an object that the first task owns.
    pub fn granting(&mut self, object: u64, rights: Rights) -> (u64, u64) {
        let password = self
            .call(self.first, Call::ObjPasswd, &[object, 0, rights.bits().into()])
            .unwrap();
        (object, password.0)
    }
}

/// It knows the password of a secret, but may not use it: a procedure of its own with a Clist of its own would.
#[test]
fn a_locked_task_registers_no_procedure_of_its_own() {
    for (locked, seed) in [(ALL, 130), (1, 131)] {
        let mut system = System::boot(seed);
        let secret = system.secret();
        let (list, _) = system.clist(system.first, &[]);
        let task = system.confined(&[list], locked);
        let image = system.image_of(task);
        let (own, _) = system.clist(task, &[(secret.object, secret.password)]);
        assert_eq!(system.try_register(task, image, own), Err(Error::Locked));
        for pd in [PD_EMPTY, PD_MERGE] {
            let answer = system.enter(task, image + ENTRY, pd);
            assert!(matches!(
                answer,
                Answer::Done(Err(Error::Protection | Error::NotAnEntry | Error::Locked))
            ));
        }
        assert_eq!(system.word(task, secret.object), Err(Trouble::Ended));
        system.check_to_the_end();
    }
}

/// Procedures that it registered before, and called before, are neither remembered nor found after.
#[test]
fn a_lock_ends_the_calls_of_what_the_domain_made() {
    for (slot, seed) in [(u64::MAX, 132), (0, 133)] {
        let mut system = System::boot(seed);
        let (list, _) = system.clist(system.first, &[]);
        let task = system.confined(&[list], 0);
        let image = system.image_of(task);
        let (own, _) = system.clist(task, &[]);
        system.try_register(task, image, own).unwrap();
        for pd in [PD_EMPTY, PD_MERGE] {
            assert_eq!(system.enter(task, image + ENTRY, pd), Answer::Elsewhere);
            system.leave(task, 0);
        }
        system.call(task, Call::ApdLock, &[slot]).unwrap();
        for pd in [PD_EMPTY, PD_MERGE] {
            assert_eq!(system.enter(task, image + ENTRY, pd), Answer::Done(Err(Error::Locked)));
        }
        system.check_to_the_end();
    }
}

#[test]
fn only_locked_slots_say_what_a_locked_task_may_call() {
    let mut system = System::boot(134);
    let first = system.first;
    let service = system.service(first);
    let (empty, _) = system.clist(first, &[]);
    let (calls, _) = system.clist(first, &[(service.image, service.password)]);
    let owner = system.granting(service.image, Rights::OWNER);
    let (owns, _) = system.clist(first, &[owner]);
    let entry = service.image + ENTRY;
    for (clists, locked, expected) in [
        (vec![empty, calls], 0, Answer::Elsewhere),
        (vec![empty, calls], 1, Answer::Done(Err(Error::Protection))),
        (vec![empty, calls], 2, Answer::Elsewhere),
        (vec![calls, empty], 1, Answer::Elsewhere),
        (vec![calls], ALL, Answer::Elsewhere),
        (vec![owns], 0, Answer::Elsewhere),
        (vec![owns], ALL, Answer::Done(Err(Error::Locked))),
        (vec![empty, owns], 1, Answer::Done(Err(Error::Protection))),
        (vec![calls, owns], 1, Answer::Elsewhere),
    ] {
        let task = system.confined(&clists, locked);
        for pd in [PD_EMPTY, PD_MERGE] {
            assert_eq!(system.enter(task, entry, pd), expected, "{clists:x?} {locked}");
            if expected == Answer::Elsewhere {
                // It has what was registered, whoever called.
                assert_eq!(system.word(task, service.secret), Ok(1234));
                system.leave(task, 0);
            }
        }
    }
    system.check_to_the_end();
}

#[test]
fn a_locked_task_shows_locked_slots_only() {
    let mut system = System::boot(135);
    let first = system.first;
    let service = system.service(first);
    let secret = system.secret();
    // It may read its Clists, or it could show none.
    let (calls, password) = system.clist(first, &[(service.image, service.password)]);
    let (other, other_password) = system.clist(first, &[]);
    let all = [
        (service.image, service.password),
        (calls, password),
        (other, other_password),
    ];
    system.clist_fill(first, calls, &all);
    for (locked, seen) in [(0, true), (1, false), (ALL, false)] {
        let task = system.confined(&[calls, other], locked);
        let (own, _) = system.clist(task, &[(secret.object, secret.password)]);
        let entry = service.image + ENTRY;
        let shown = system.apd_of(task, &[own], 0);
        let answer = system.enter(task, entry, shown);
        if seen {
            assert_eq!(answer, Answer::Elsewhere);
            assert_eq!(system.word(task, secret.object), Ok(4711));
            system.leave(task, 0);
        } else {
            assert_eq!(answer, Answer::Done(Err(Error::Locked)));
        }
        let shown = system.apd_of(task, &[calls, other], 0);
        let expected = if locked == 1 {
            Answer::Done(Err(Error::Locked))
        } else {
            Answer::Elsewhere
        };
        // The Clists that it shows may take an event of their own.
        let answer = match system.enter(task, entry, shown) {
            Answer::Blocked => system.wait_for(task),
            answer => answer,
        };
        assert_eq!(answer, expected, "the second slot, {locked} locked");
        if expected == Answer::Elsewhere {
            system.leave(task, 0);
        }
        let shown = system.apd_of(task, &[calls], 0);
        assert_eq!(system.enter(task, entry, shown), Answer::Elsewhere);
        system.leave(task, 0);
    }
    system.check_to_the_end();
}

/// A lock is as good as the Clist behind it.
#[test]
fn a_locked_clist_confines_unless_the_task_can_write_it() {
    for (rights, seed) in [(Rights::R, 136), (Rights::RW, 137)] {
        let mut system = System::boot(seed);
        let first = system.first;
        let service = system.service(first);
        let (list, _) = system.clist(first, &[]);
        let itself = system.granting(list, rights);
        system.clist_fill(first, list, &[itself]);
        let task = system.confined(&[list], ALL);
        let entry = service.image + ENTRY;
        assert_eq!(
            system.enter(task, entry, PD_EMPTY),
            Answer::Done(Err(Error::Protection))
        );
        let capability = [(service.image, service.password)];
        let bytes = crate::install::clist_bytes(
            &capability.map(|(address, password)| abi::layout::Capability { address, password }),
        );
        let written = system.store(task, list, &bytes);
        if rights == Rights::R {
            assert_eq!(written, Err(Trouble::Ended));
        } else {
            assert_eq!(written, Ok(()));
            assert_eq!(system.enter(task, entry, PD_EMPTY), Answer::Elsewhere);
            assert_eq!(system.word(task, service.secret), Ok(1234));
            system.leave(task, 0);
        }
        system.check_to_the_end();
    }
}

/// A callee that reads through to a locked domain is its arm.
#[test]
fn a_merged_callee_of_a_locked_task_is_locked_too() {
    let mut system = System::boot(138);
    let first = system.first;
    let service: Service = system.service(first);
    let (calls, password) = system.clist(first, &[]);
    let all = [(service.image, service.password), (calls, password)];
    system.clist_fill(first, calls, &all);
    let (other, _) = system.clist(first, &[]);
    let task = system.confined(&[calls, other], 1);
    let entry = service.image + ENTRY;
    for (pd, held) in [(PD_MERGE, true), (PD_EMPTY, false)] {
        assert_eq!(system.enter(task, entry, pd), Answer::Elsewhere);
        let registered = system.try_register(task, service.image, 0).map(|_| ());
        assert_eq!(registered, if held { Err(Error::Locked) } else { Ok(()) });
        // A task with the callee's own Clist alone would be free.
        let made = system.call(task, Call::TaskCreate, &[service.image + ENTRY, 0, 0, 0, 3]);
        assert_eq!(made.is_err(), held, "{made:?}");
        if held {
            assert_eq!(made, Err(Error::Locked));
            let apd = system.apd_of(task, &[calls], 0);
            let made = system.call(task, Call::TaskCreate, &[service.image + ENTRY, 0, apd, 0, 3]);
            assert_eq!(made, Err(Error::Locked));
            let apd = system.apd_of(task, &[calls], 1);
            let made = system.call(task, Call::TaskCreate, &[service.image + ENTRY, 0, apd, 0, 3]);
            made.expect("it is as locked");
            // The task may call what its maker chose, and what the lock left to its caller.
            assert_eq!(system.enter(task, entry, PD_EMPTY), Answer::Elsewhere);
            system.leave(task, 0);
        }
        system.leave(task, 0);
    }
    system.check_to_the_end();
}

/// A slot keeps the password by which its Clist could be read: with that it ends, and not before.
#[test]
fn a_slot_whose_clist_may_no_longer_be_read_grants_nothing() {
    let mut system = System::boot(139);
    let secret = system.secret();
    let readable = system.granting(secret.object, Rights::R);
    let (list, _) = system.clist(system.first, &[readable]);
    let (by_this, by_that) = (system.granting(list, Rights::R), system.granting(list, Rights::R));
    let (given, _) = system.clist(system.first, &[by_this]);
    let task = system.confined(&[given], 0);
    system.call(task, Call::ApdInsert, &[1, list]).unwrap();
    assert_eq!(system.word(task, secret.object), Ok(4711));
    // Another password for the same Clist is another's.
    system
        .call(system.first, Call::ObjPasswd, &[list, by_that.1, 0])
        .unwrap();
    system.call(task, Call::ApdFlush, &[]).unwrap();
    assert_eq!(system.word(task, secret.object), Ok(4711));
    system
        .call(system.first, Call::ObjPasswd, &[list, by_this.1, 0])
        .unwrap();
    system.call(task, Call::ApdFlush, &[]).unwrap();
    assert_eq!(system.word(task, secret.object), Err(Trouble::Ended));
    system.check_to_the_end();
}

/// Whichever way a domain comes to know less, the fast path calls nothing more by what it knew.
#[test]
fn a_domain_calls_nothing_by_what_it_has_dropped() {
    let mut system = System::boot(140);
    let first = system.first;
    let service = system.service(first);
    let (calls, _) = system.clist(first, &[(service.image, service.password)]);
    let entry = service.image + ENTRY;
    for (call, argument, expected) in [
        (Call::ApdFlush, None, Answer::Elsewhere),
        (Call::ApdDelete, Some(0), Answer::Done(Err(Error::Protection))),
    ] {
        let task = system.confined(&[calls], 0);
        // Each found in the Clist once, and then called by the fast path.
        for pd in [PD_EMPTY, PD_MERGE, PD_EMPTY, PD_MERGE] {
            assert_eq!(system.enter(task, entry, pd), Answer::Elsewhere);
            system.leave(task, 0);
        }
        let kernel = &system.platform.kernel;
        let home = kernel.threads().get(task).space;
        assert!(
            [PD_EMPTY, PD_MERGE]
                .map(|pd| kernel.portal_way(home, entry, pd))
                .iter()
                .any(Option::is_some)
        );
        system.call(task, call, argument.as_slice()).unwrap();
        let kernel = &system.platform.kernel;
        assert_eq!(
            [PD_EMPTY, PD_MERGE].map(|pd| kernel.portal_way(home, entry, pd)),
            [None; 2]
        );
        for pd in [PD_EMPTY, PD_MERGE] {
            assert_eq!(system.enter(task, entry, pd), expected, "{call:?}");
            if expected == Answer::Elsewhere {
                system.leave(task, 0);
            }
        }
    }
    system.check_to_the_end();
}

/// A password that two programs have agreed on before would let one that is locked tell the other all that it reads.
#[test]
fn a_locked_task_chooses_no_password() {
    const AGREED: u64 = 0x1234_5678;
    let mut system = System::boot(141);
    let (list, _) = system.clist(system.first, &[]);
    let task = system.confined(&[list], ALL);
    let image = system.image_of(task);
    let (own, own_password) = system.object(task, 1);
    let rights = u64::from(Rights::R.bits());
    for (call, arguments) in [
        (Call::ObjCreate, [4096, AGREED, 0]),
        (Call::ObjClone, [image, 0, AGREED]),
        (Call::ObjPasswd, [own, AGREED, rights]),
    ] {
        assert_eq!(system.call(task, call, &arguments), Err(Error::Locked), "{call:?}");
    }
    // Those that the system makes are as good as ever, and what is listed can be changed and taken away.
    let (_, made) = system.call(task, Call::ObjClone, &[image, 0, 0]).unwrap();
    assert_ne!(made, AGREED);
    let (password, _) = system.call(task, Call::ObjPasswd, &[own, 0, rights]).unwrap();
    for bits in [u64::from(Rights::RW.bits()), 0] {
        system.call(task, Call::ObjPasswd, &[own, password, bits]).unwrap();
    }
    system.call(task, Call::ObjPasswd, &[own, own_password, 0]).unwrap();
    system.check_to_the_end();
}

/// Its procedures read a Clist of others by a password, as its slots do. When that is revoked, they lose what the Clist gives.
#[test]
fn a_procedure_loses_a_clist_that_its_owner_may_no_longer_read() {
    for (pd, inside_before, seed) in [
        (PD_EMPTY, false, 142),
        (PD_EMPTY, true, 143),
        (PD_MERGE, false, 144),
        (PD_MERGE, true, 145),
    ] {
        let mut system = System::boot(seed);
        let first = system.first;
        let (list, _) = system.clist(first, &[]);
        let reader = system.granting(list, Rights::R);
        let (holds, _) = system.clist(first, &[reader]);
        let task = system.confined(&[holds], 0);
        let image = system.image_of(task);
        system.try_register(task, image, list).unwrap();
        if inside_before {
            let before = system.secret();
            system.clist_fill(first, list, &[(before.object, before.password)]);
            assert_eq!(system.enter(task, image + ENTRY, pd), Answer::Elsewhere);
            assert_eq!(system.word(task, before.object), Ok(4711));
            system.leave(task, 0);
        }
        system.call(first, Call::ObjPasswd, &[list, reader.1, 0]).unwrap();
        let secret = system.secret();
        system.clist_fill(first, list, &[(secret.object, secret.password)]);
        assert_eq!(system.enter(task, image + ENTRY, pd), Answer::Elsewhere);
        assert!(system.word(task, secret.object).is_err());
        system.check_to_the_end();
    }
}
