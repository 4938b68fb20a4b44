//! Protected calls that fail, or must: wrong entries, missing rights, revocation and deletion, faults
//! inside, and what may not be registered.

use core::sync::atomic::Ordering::SeqCst;

use abi::{
    Call, Error, Rights,
    address::{PAGE, USER_END},
    layout::{Capability, ENTRIES_MAX, EXCEPTION_KILL, PD_EMPTY, PD_MERGE, PDX_MAX, PRIORITY_DEFAULT},
};
use rt::{
    Clist, Object, call,
    pdx::{self, Domain},
    thread,
};

use super::service::{
    FAULTS_OF_ITS_OWN, INSIDE, Service, add, add_entry, around_entry, call_entry, fault_entry, image, linger_entry,
};
use crate::{
    arch,
    assistant::{Puppet, apd_of, confined, grant, run, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("pdx/not-an-entry", not_an_entry),
    case("pdx/needs-the-right", needs_the_right),
    case("pdx/revoked", revoked),
    case("pdx/revoked-while-inside", revoked_while_inside),
    case("pdx/deleted-while-inside", deleted_while_inside),
    case("pdx/callee-faults", callee_faults),
    case("pdx/inner-callee-faults", inner_callee_faults),
    case("pdx/handlers-stay-outside", handlers_stay_outside),
    case("pdx/domain-is-sealed", domain_is_sealed),
    case("pdx/caller-ended-inside", caller_ended_inside),
    case("pdx/return-without-call", return_without_call),
    case("pdx/registering", registering),
    case("pdx/tables-full", tables_full),
];

/// The parts.
pub const ROLES: &[Role] = &[role("callee-object", callee_object)];

fn not_an_entry(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let client = service.client_clist()?;
    let puppet = Puppet::start(&[&client])?;
    let entry = add_entry().address();
    let wrong = [
        entry + 1,
        entry - 1,
        entry + 4096,
        service.image,
        add as *const () as u64,
    ];
    for address in wrong {
        ensure_error!(call::pdx_call(address, 0, PD_EMPTY, 0, 0, 0), NotAnEntry);
        ensure_error!(call::pdx_call(address, 0, PD_MERGE, 0, 0, 0), NotAnEntry);
        ensure_error!(puppet.call(Call::PdxCall, &[address, 0, PD_EMPTY])?, NotAnEntry);
    }
    for address in [0, 1 << 47, u64::MAX, USER_END, 0xffff_ffff_8010_0000] {
        ensure_error!(call::pdx_call(address, 0, PD_EMPTY, 0, 0, 0), BadAddress);
        ensure_error!(puppet.call(Call::PdxCall, &[address, 0, PD_MERGE])?, BadAddress);
    }
    let object = Object::create(PAGE)?;
    let refused = call::pdx_call(object.base(), 0, PD_EMPTY, 0, 0, 0);
    ensure!(
        matches!(refused, Err(Error::NotAnEntry | Error::Protection)),
        "{refused:?}"
    );
    ensure_error!(puppet.call(Call::PdxCall, &[object.base(), 0, PD_EMPTY])?, Protection);
    puppet.end()
}

fn needs_the_right(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let stranger = Puppet::start(&[])?;
    ensure_error!(
        stranger.call(Call::PdxCall, &[add_entry().address(), 1, PD_EMPTY, 2, 0, 0])?,
        Protection
    );
    stranger.end()?;
    let mut forged = Clist::create()?;
    forged.insert(Capability {
        address: service.image,
        password: service.password ^ 1,
    })?;
    let forger = Puppet::start(&[&forged])?;
    ensure_error!(
        forger.call(Call::PdxCall, &[add_entry().address(), 1, PD_MERGE, 2, 0, 0])?,
        Protection
    );
    forger.end()?;
    // To read and run the object is not to call it.
    let mut reader = Clist::create()?;
    let password = call::obj_passwd(service.image, 0, Rights::RWX.bits().into())?;
    reader.insert(Capability {
        address: service.image,
        password,
    })?;
    let puppet = Puppet::start(&[&reader])?;
    ensure!(puppet.peek(service.image)?.is_some());
    ensure!(
        puppet
            .call(Call::PdxCall, &[add_entry().address(), 1, PD_EMPTY, 2, 0, 0])?
            .is_err()
    );
    puppet.end()?;
    let client = Puppet::start(&[&service.client_clist()?])?;
    ensure_eq!(
        client
            .call(Call::PdxCall, &[add_entry().address(), 1, PD_EMPTY, 2, 0, 0])??
            .0,
        3
    );
    client.end()
}

fn revoked(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let ask = |pd| puppet.call(Call::PdxCall, &[add_entry().address(), 1, pd, 2, 0, 0]);
    for _ in 0..3 {
        ask(PD_EMPTY)??;
        ask(PD_MERGE)??;
    }
    call::obj_passwd(service.image, service.password, 0)?;
    ensure_error!(ask(PD_EMPTY)?, Protection);
    ensure_error!(ask(PD_MERGE)?, Protection);
    ensure!(call::pdx_call(add_entry().address(), 1, PD_EMPTY, 2, 0, 0).is_err());
    puppet.end()
}

fn revoked_while_inside(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    INSIDE.store(0, SeqCst);
    let inside = puppet.begin_call(Call::PdxCall, &[linger_entry().address(), 30, PD_EMPTY])?;
    wait_until("it is inside", || INSIDE.load(SeqCst) == 1)?;
    call::obj_passwd(service.image, service.password, 0)?;
    let ended = inside.finish()?;
    ensure!(matches!(ended, Ok((30, 0)) | Err(Error::CalleeFault)), "{ended:?}");
    ensure_error!(
        puppet.call(Call::PdxCall, &[linger_entry().address(), 1, PD_EMPTY])?,
        Protection
    );
    puppet.end()
}

/// Makes an object whose only code is one that loops, calls it, and expects that to fail.
fn callee_object(numbers: &[u64; 6]) -> u64 {
    match call::pdx_call(numbers[0], 0, numbers[1], 0, 0, 0) {
        Err(Error::CalleeFault) => 7,
        Err(error) => 100 + error as u64,
        Ok(_) => 1,
    }
}

fn deleted_while_inside(_: &Setting) -> Outcome {
    for pd in [PD_EMPTY, PD_MERGE] {
        let object = Object::create(PAGE)?;
        // jmp to itself.
        arch::write_bytes(object.base(), &[0xeb, 0xfe]);
        let mut list = Clist::create()?;
        grant(&mut list, &object, Rights::RX)?;
        let password = arch::obj_cre_pdx(object.base(), 0, list.object().base(), &[object.base()])?;
        let mut client = Clist::create()?;
        client.insert(Capability {
            address: object.base(),
            password,
        })?;
        let apd = apd_of(&[&client]);
        let options = rt::task::Options {
            priority: PRIORITY_DEFAULT - 1,
            ..confined(&apd)
        };
        let task = crate::assistant::start("callee-object", &[object.base(), pd], &options)?;
        wait_until("it is inside", || {
            call::thread_info(task.thread()).is_ok_and(|info| info.depth == 1)
        })?;
        object.delete()?;
        let report = crate::assistant::report_of(&task, 2_000_000_000)?;
        ensure_eq!((report.exception, report.status), (0, 7));
    }
    Ok(())
}

fn callee_faults(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    for pd in [PD_EMPTY, PD_MERGE] {
        for way in 0..FAULTS_OF_ITS_OWN + arch::CRIMES.len() as u64 {
            let answer = call::pdx_call(fault_entry().address(), way, pd, 0, 0, 0);
            ensure!(answer == Err(Error::CalleeFault), "way {way}, pd {pd}: {answer:?}");
        }
        // The domain is as good as before.
        ensure_eq!(call::pdx_call(add_entry().address(), 1, pd, 2, 0, 0)?.0, 3);
    }
    ensure_eq!(call::thread_info(0)?.depth, 0);
    Ok(())
}

fn inner_callee_faults(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    for (outer, inner) in [
        (PD_EMPTY, PD_EMPTY),
        (PD_EMPTY, PD_MERGE),
        (PD_MERGE, PD_EMPTY),
        (PD_MERGE, PD_MERGE),
    ] {
        let told = call::pdx_call(around_entry().address(), 0, outer, inner, 0, 0)?;
        ensure_eq!(told, (Error::CalleeFault as u64, 2));
    }
    Ok(())
}

fn handlers_stay_outside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    arch::handlers::skip_null()?;
    let before = arch::handlers::calls();
    for pd in [PD_EMPTY, PD_MERGE] {
        ensure_error!(call::pdx_call(fault_entry().address(), 0, pd, 0, 0, 0), CalleeFault);
    }
    ensure_eq!(arch::handlers::calls(), before);
    Ok(())
}

fn domain_is_sealed(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    let list = Clist::create()?;
    let before = call::apd_get()?;
    for pd in [PD_EMPTY, PD_MERGE] {
        let inside = |number: Call, a: u64, b: u64| call::pdx_call(call_entry().address(), number as u64, pd, a, b, 0);
        ensure_eq!(
            inside(Call::ApdInsert, 0, list.object().base())?.0,
            Error::Locked as u64
        );
        ensure_eq!(inside(Call::ApdDelete, 0, 0)?.0, Error::Locked as u64);
        ensure_eq!(inside(Call::ApdLock, 0, 0)?.0, Error::Locked as u64);
        // Calls on threads take effect on its own.
        ensure_eq!(inside(Call::ThreadMyId, 0, 0)?, (0, call::thread_my_id()));
        ensure_eq!(
            inside(Call::ThreadDelete, call::thread_info(0)?.parent, 0)?.0,
            Error::NoSuchThread as u64
        );
        ensure_eq!(inside(Call::SystemControl, 99, 0)?.0 != 0, true);
    }
    ensure_eq!(call::apd_get()?, before);
    Ok(())
}

fn caller_ended_inside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    INSIDE.store(0, SeqCst);
    // One that comes back soon ends then; one that does not is ended by force after a while.
    for ms in [20, 1_000_000] {
        let thread =
            thread::spawn(move || u64::from(pdx::call(linger_entry(), Domain::Empty, [ms, 0, 0, 0]).is_err()))?;
        wait_until("it is inside", || {
            call::thread_info(thread.id()).is_ok_and(|info| info.depth == 1)
        })?;
        thread.end(8)?;
        let report = call::thread_wait(thread.id(), 4_000_000_000)?;
        ensure_eq!((report.exception, report.status), (EXCEPTION_KILL, 8));
    }
    ensure_eq!(pdx::call(add_entry(), Domain::Empty, [1, 1, 0, 0])?.0, 2);
    Ok(())
}

fn return_without_call(_: &Setting) -> Outcome {
    ensure_error!(call::pdx_return(1, 2), NotInCall);
    let report = run("end", &[4], &rt::task::Options::default())?;
    ensure_eq!(report.status, 4);
    Ok(())
}

fn registering(_: &Setting) -> Outcome {
    let image = image()?;
    let object = Object::create(2 * PAGE)?;
    let list = Clist::create()?;
    let clist = list.object().base();
    let base = object.base();
    for entries in [&[base + 2 * PAGE][..], &[base - 1], &[0], &[u64::MAX], &[base, image]] {
        let refused = arch::obj_cre_pdx(base, 0, clist, entries);
        ensure!(
            matches!(refused, Err(Error::NotAnEntry | Error::BadArgument | Error::BadAddress)),
            "{entries:x?}: {refused:?}"
        );
    }
    ensure_error!(arch::obj_cre_pdx(base, 0, base, &[base]), BadClist);
    for bad in [8, 1 << 47, u64::MAX] {
        ensure!(arch::obj_cre_pdx(base, 0, bad, &[base]).is_err());
    }
    let raw = |count: u64, entries: u64| {
        arch::system_call(Call::ObjCrePdx as u64, [base, 0, clist, entries, count, 0]).result()
    };
    ensure_error!(raw(0, base), BadArgument);
    for count in [ENTRIES_MAX as u64 + 1, 1 << 32, 1 << 61, u64::MAX] {
        ensure_error!(raw(count, base), TableFull);
    }
    for place in [0, 1 << 47, u64::MAX - 7, base + 2 * PAGE - 4] {
        ensure!(raw(1, place).is_err(), "entries at {place:#x} are taken");
    }
    // Without a Clist the callee cannot even run its code: a fault, not a failure of the system.
    arch::write_bytes(base, arch::RETURN_CODE);
    arch::obj_cre_pdx(base, 0, 0, &[base])?;
    ensure_error!(call::pdx_call(base, 0, PD_EMPTY, 0, 0, 0), CalleeFault);
    ensure_eq!(call::pdx_call(base, 0, PD_MERGE, 0, 0, 0).is_ok(), true);
    ensure_eq!(call::obj_info(base)?.pdx, 1);
    Ok(())
}

fn tables_full(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let list = Clist::create()?;
    let mut passwords = alloc::vec::Vec::new();
    let refused = loop {
        match arch::obj_cre_pdx(object.base(), 0, list.object().base(), &[object.base()]) {
            Ok(password) => passwords.push(password),
            Err(error) => break error,
        }
        ensure!(
            passwords.len() <= PDX_MAX,
            "it has {} PDX capabilities",
            passwords.len()
        );
    };
    ensure_eq!((refused, passwords.len()), (Error::TableFull, PDX_MAX));
    let all: alloc::vec::Vec<u64> = (0..ENTRIES_MAX as u64).map(|index| object.base() + index).collect();
    let left = ENTRIES_MAX - (PDX_MAX - 1);
    call::obj_passwd(object.base(), passwords[0], 0)?;
    let more = |count: usize| arch::obj_cre_pdx(object.base(), 7, list.object().base(), &all[..count]);
    ensure_error!(more(left + 1), TableFull);
    ensure_eq!(more(left)?, 7);
    ensure_error!(more(left + 1), TableFull);
    ensure_eq!(more(1)?, 7);
    Ok(())
}
