//! Active protection domains: slots, order, locks, what a lookup tells.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{APD_SLOTS, ApdDescription, ClistHeader, PD_EMPTY},
};
use rt::{Clist, Object, call};

use crate::{
    arch,
    assistant::{Puppet, apd_of, clist_granting, confined, program},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("apd/insert-and-delete", insert_and_delete),
    case("apd/full", full),
    case("apd/insert-is-validated", insert_is_validated),
    case("apd/lock", lock),
    case("apd/confinement", confinement),
    case("apd/confinement-is-inherited", confinement_is_inherited),
    case("apd/locked-domains-register-nothing", locked_domains_register_nothing),
    case("apd/lookup", lookup),
    case("apd/get-needs-write", get_needs_write),
    case("apd/flush-keeps-what-was-made", flush_keeps),
    case("apd/bad-descriptions", bad_descriptions),
];

fn slots() -> Outcome<alloc::vec::Vec<u64>> {
    let apd = call::apd_get()?;
    Ok(apd.slots[..apd.count as usize].to_vec())
}

fn insert_and_delete(_: &Setting) -> Outcome {
    let before = slots()?;
    let lists = [Clist::create()?, Clist::create()?, Clist::create()?];
    let [a, b, c] = [0, 1, 2].map(|index: usize| lists[index].object().base());
    call::apd_insert(0, a)?;
    call::apd_insert(0, b)?;
    call::apd_insert(1, c)?;
    ensure_eq!(slots()?[..3], [b, c, a]);
    ensure_eq!(slots()?[3..], before[..]);
    let end = slots()?.len() as u64;
    ensure_error!(call::apd_insert(end + 1, a), BadArgument);
    ensure_error!(call::apd_insert(u64::MAX, a), BadArgument);
    ensure_error!(call::apd_delete(end), BadArgument);
    ensure_error!(call::apd_delete(u64::MAX), BadArgument);
    call::apd_insert(end, a)?;
    call::apd_delete(end)?;
    call::apd_delete(1)?;
    call::apd_delete(0)?;
    call::apd_delete(0)?;
    ensure_eq!(slots()?, before);
    Ok(())
}

fn full(_: &Setting) -> Outcome {
    let list = Clist::create()?;
    while slots()?.len() < APD_SLOTS {
        call::apd_insert(0, list.object().base())?;
    }
    ensure_error!(call::apd_insert(0, list.object().base()), TableFull);
    call::apd_delete(3)?;
    call::apd_insert(APD_SLOTS as u64 - 1, list.object().base())?;
    ensure_eq!(slots()?.len(), APD_SLOTS);
    Ok(())
}

fn insert_is_validated(_: &Setting) -> Outcome {
    let puppet = Puppet::start(&[])?;
    let list = Clist::create()?;
    ensure_error!(puppet.call(Call::ApdInsert, &[0, list.object().base()])?, Protection);
    for address in [0, 8, 1 << 47, u64::MAX] {
        ensure_error!(puppet.call(Call::ApdInsert, &[0, address])?, BadAddress);
    }
    puppet.end()
}

fn lock(_: &Setting) -> Outcome {
    let list = Clist::create()?;
    for _ in 0..3 {
        call::apd_insert(0, list.object().base())?;
    }
    let count = slots()?.len() as u64;
    ensure_error!(call::apd_lock(count), BadArgument);
    call::apd_lock(1)?;
    ensure_eq!(call::apd_get()?.locked, 2);
    ensure_error!(call::apd_insert(0, list.object().base()), Locked);
    ensure_error!(call::apd_insert(1, list.object().base()), Locked);
    ensure_error!(call::apd_delete(0), Locked);
    ensure_error!(call::apd_delete(1), Locked);
    call::apd_insert(2, list.object().base())?;
    call::apd_delete(2)?;
    // A lock is never taken back.
    call::apd_lock(0)?;
    ensure_eq!(call::apd_get()?.locked, 2);
    call::apd_lock(u64::MAX)?;
    ensure_error!(call::apd_insert(2, list.object().base()), Locked);
    ensure_error!(call::apd_delete(2), Locked);
    Ok(())
}

fn confinement(_: &Setting) -> Outcome {
    let secret = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&secret, Rights::RW)?;
    let shown = Object::create(PAGE)?;
    let (mut list, _) = clist_granting(&shown, Rights::R)?;
    // The confined one can even read the Clist with the secret's capability.
    crate::assistant::grant(&mut list, clist.object(), Rights::R)?;
    let puppet = Puppet::start_with(&[&list], APD_SLOTS as u64, 0)?;
    ensure!(puppet.peek(clist.object().base())?.is_some());
    ensure_eq!(puppet.peek(secret.base())?, None);
    for slot in 0..4 {
        ensure_error!(puppet.call(Call::ApdInsert, &[slot, clist.object().base()])?, Locked);
    }
    ensure_eq!(puppet.peek(secret.base())?, None);
    ensure!(puppet.peek(shown.base())?.is_some());
    // Writing capabilities into memory of its own gives nothing either.
    let own = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    for (index, word) in [abi::layout::CLIST_MAGIC, 1, 0, 0].into_iter().enumerate() {
        ensure!(puppet.poke(own + 8 * index as u64, word)?);
    }
    ensure_error!(puppet.call(Call::ApdInsert, &[2, own])?, Locked);
    puppet.end()
}

fn confinement_is_inherited(_: &Setting) -> Outcome {
    // From a locked domain no task can be started with another one.
    let list = Clist::create()?;
    call::apd_insert(0, list.object().base())?;
    let program = program()?;
    call::apd_lock(0)?;
    let locked = call::apd_get()?;
    let fewer = ApdDescription::default();
    let unlocked = ApdDescription { locked: 0, ..locked };
    for apd in [&fewer, &unlocked] {
        let started = program.start("suite", &["--assistant", "end", "7"], &confined(apd));
        ensure!(started.is_err(), "it starts with {apd:x?}");
    }
    let task = program.start("suite", &["--assistant", "end", "7"], &confined(&locked))?;
    ensure_eq!(task.wait_status()?, 7);
    Ok(())
}

fn locked_domains_register_nothing(_: &Setting) -> Outcome {
    let (list, _) = clist_granting(&Object::create(PAGE)?, Rights::R)?;
    for locked in [0, 1, APD_SLOTS as u64] {
        let puppet = Puppet::start_with(&[&list], locked, 0)?;
        let own = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
        ensure!(puppet.poke(own, own + 64)?);
        let registered = puppet.call(Call::ObjCrePdx, &[own, 0, 0, own, 1])?;
        if locked == 0 {
            registered?;
            // It called that once, and after the lock no more.
            let call = [own + 64, 0, PD_EMPTY, 0, 0, 0];
            ensure_error!(puppet.call(Call::PdxCall, &call)?, CalleeFault);
            puppet.call(Call::ApdLock, &[u64::MAX])??;
            ensure_error!(puppet.call(Call::PdxCall, &call)?, Locked);
        } else {
            ensure_error!(registered, Locked);
        }
        puppet.end()?;
    }
    Ok(())
}

fn lookup(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let (first, _) = clist_granting(&object, Rights::R)?;
    let (second, _) = clist_granting(&object, Rights::RW)?;
    let puppet = Puppet::start(&[&first, &second])?;
    let record = |clist: &Clist| clist.object().base() + ClistHeader::BYTES as u64;
    let ask = |rights: Rights| puppet.call(Call::ApdLookup, &[object.base() + 100, rights.bits().into()]);
    ensure_eq!(ask(Rights::R)??.0, record(&first));
    ensure_eq!(ask(Rights::RW)??.0, record(&second));
    ensure_error!(ask(Rights::RX)?, Protection);
    ensure_error!(ask(Rights::D)?, Protection);
    ensure_error!(puppet.call(Call::ApdLookup, &[object.base(), 32])?, BadArgument);
    ensure_error!(puppet.call(Call::ApdLookup, &[object.base(), u64::MAX])?, BadArgument);
    ensure_error!(puppet.call(Call::ApdLookup, &[object.base() + PAGE, 4])?, BadAddress);
    for address in [0, 1 << 47, u64::MAX, abi::address::USER_END] {
        ensure_error!(puppet.call(Call::ApdLookup, &[address, 4])?, BadAddress);
    }
    // Rights on objects that the domain made itself came from no Clist.
    let own = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    ensure_eq!(puppet.call(Call::ApdLookup, &[own, 15])??.0, 0);
    // In the other order, the other one grants.
    puppet.call(Call::ApdDelete, &[1])??;
    ensure_eq!(ask(Rights::R)??.0, record(&second));
    puppet.call(Call::ApdDelete, &[1])??;
    ensure_error!(ask(Rights::R)?, Protection);
    puppet.end()
}

fn get_needs_write(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let (clist, _) = clist_granting(&object, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_error!(puppet.call(Call::ApdGet, &[object.base(), PAGE])?, Protection);
    for address in [0, 1 << 47, u64::MAX - 3, abi::address::USER_END - 8] {
        let refused = puppet.call(Call::ApdGet, &[address, PAGE])?;
        ensure!(
            matches!(refused, Err(Error::Protection | Error::BadAddress)),
            "at {address:#x}: {refused:?}"
        );
    }
    ensure_eq!(arch::load(object.base()), 0);
    puppet.end()
}

fn flush_keeps(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    arch::store(object.base(), 5);
    for _ in 0..3 {
        call::apd_flush()?;
        ensure_eq!(arch::load(object.base()), 5);
    }
    let (clist, _) = clist_granting(&object, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.peek(object.base())?, Some(5));
    puppet.call(Call::ApdFlush, &[])??;
    ensure_eq!(puppet.peek(object.base())?, Some(5));
    puppet.end()
}

fn bad_descriptions(_: &Setting) -> Outcome {
    let list = Clist::create()?;
    let good = apd_of(&[&list]);
    let program = program()?;
    let mut bad = [good; 6];
    bad[0].count = APD_SLOTS as u64 + 1;
    bad[1].count = u64::MAX;
    bad[2].locked = 2;
    bad[3].locked = u64::MAX;
    bad[4].slots[0] = 0;
    bad[5].slots[0] = 1 << 47;
    for apd in &bad {
        let started = program.start("suite", &["--assistant", "end"], &confined(apd));
        ensure!(started.is_err(), "a task starts with {apd:x?}");
    }
    let task = program.start("suite", &["--assistant", "end", "9"], &confined(&good))?;
    ensure_eq!(task.wait_status()?, 9);
    Ok(())
}
