//! Capabilities: what each right allows, forgery, revocation while in use.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{CAPABILITIES_MAX, Capability, EXCEPTION_PROTECTION},
};
use rt::{Clist, Object, call};

use testing::Random;

use crate::{
    arch,
    assistant::{PRIORITY_LOW, Puppet, apd_of, clist_granting, confined, grant, report_of, run, start, wait_until},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("capabilities/each-right", each_right),
    case("capabilities/owner-rights", owner_rights),
    case("capabilities/nothing-without-one", nothing_without_one),
    case("capabilities/forged", forged),
    case("capabilities/fault-is-reported", fault_is_reported),
    case("capabilities/revoked-while-read", revoked_while_read),
    case("capabilities/revoked-while-written", revoked_while_written),
    case("capabilities/downgraded", downgraded),
    case("capabilities/deleted-while-used", deleted_while_used),
    case("capabilities/several-passwords", several_passwords),
    case("capabilities/table-full", table_full),
    case("capabilities/chosen-and-made", chosen_and_made),
];

fn object_with_return() -> Outcome<Object> {
    let object = Object::create(PAGE)?;
    arch::store(object.base(), 0xc3);
    Ok(object)
}

fn each_right(_: &Setting) -> Outcome {
    // Page tables cannot express less: writing and executing imply reading.
    for bits in 0..8 {
        let rights = Rights::from_bits(bits).unwrap_or_default();
        let object = object_with_return()?;
        let mut clist = Clist::create()?;
        if !rights.is_empty() {
            grant(&mut clist, &object, rights)?;
        }
        let puppet = Puppet::start(&[&clist])?;
        let found = puppet.accesses(object.base())?;
        let implied = if rights.is_empty() {
            Rights::NONE
        } else {
            rights.union(Rights::R)
        };
        ensure!(
            found.contains(rights) && implied.contains(found),
            "by {rights} the accesses are {found}"
        );
        puppet.end()?;
    }
    Ok(())
}

fn owner_rights(_: &Setting) -> Outcome {
    let parts = [Rights::R, Rights::W, Rights::X, Rights::D, Rights::RWX];
    for rights in parts {
        let object = object_with_return()?;
        let (clist, _) = clist_granting(&object, rights)?;
        let puppet = Puppet::start(&[&clist])?;
        let at = object.base();
        ensure_error!(puppet.call(Call::ObjResize, &[at, 2 * PAGE])?, Protection);
        ensure_error!(puppet.call(Call::ObjPasswd, &[at, 5, 15])?, Protection);
        ensure_error!(puppet.call(Call::KeepObject, &[at])?, Protection);
        ensure_error!(puppet.call(Call::PageLimit, &[at, 1, 7])?, Protection);
        ensure_error!(puppet.call(Call::ObjCrePdx, &[at, 0, 0, at, 1])?, Protection);
        let deleted = puppet.call(Call::ObjDelete, &[at])?;
        ensure!(
            deleted.is_ok() == (rights == Rights::D),
            "ObjDelete by {rights}: {deleted:?}"
        );
        puppet.end()?;
    }
    let object = object_with_return()?;
    let (clist, _) = clist_granting(&object, Rights::OWNER)?;
    let puppet = Puppet::start(&[&clist])?;
    let at = object.base();
    puppet.call(Call::ObjResize, &[at, 2 * PAGE])??;
    puppet.call(Call::PageLimit, &[at, 1, 7])??;
    puppet.call(Call::ObjPasswd, &[at, 0, 15])??;
    puppet.call(Call::ObjDelete, &[at])??;
    ensure_error!(call::obj_info(at), BadAddress);
    puppet.end()
}

fn nothing_without_one(_: &Setting) -> Outcome {
    let object = object_with_return()?;
    let puppet = Puppet::start(&[])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::NONE);
    let own = rt::pdx::own_image().map_or(0, |(base, _)| base);
    let stack = core::hint::black_box(0_u64);
    for address in [
        own,
        &raw const stack as u64,
        abi::address::ROOT_CLIST,
        abi::address::ROOT_DIRECTORY,
        abi::address::FIRST_PROGRAM,
    ] {
        ensure_eq!(puppet.peek(address)?, None);
        ensure_error!(puppet.call(Call::ApdLookup, &[address, 4])?, Protection);
        ensure_error!(puppet.call(Call::ObjDelete, &[address])?, Protection);
    }
    ensure_error!(
        puppet.call(Call::SystemControl, &[abi::layout::CONTROL_CHECKPOINT, 0])?,
        Protection
    );
    ensure_error!(
        puppet.call(Call::SystemControl, &[abi::layout::CONTROL_POWER_OFF, 0x11])?,
        Protection
    );
    puppet.end()
}

fn forged(setting: &Setting) -> Outcome {
    let object = object_with_return()?;
    let other = object_with_return()?;
    let password = object.grant(Rights::RWX)?;
    let other_password = other.grant(Rights::RWX)?;
    let mut random = Random::at(setting.seed, 1);
    let mut clist = Clist::create()?;
    let mut wrong = alloc::vec![
        0,
        1,
        !password,
        password.wrapping_add(1),
        password.swap_bytes(),
        other_password,
        u64::MAX
    ];
    wrong.extend((0..64).map(|bit| password ^ 1 << bit));
    // Of one object's capabilities in a sorted Clist the server looks at a bounded number only.
    wrong.extend((0..80).map(|_| random.word()));
    for word in wrong.into_iter().filter(|&word| word != password) {
        clist.insert(Capability {
            address: object.base(),
            password: word,
        })?;
    }
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::NONE);
    // The right one, among all these.
    clist.insert(Capability {
        address: object.base(),
        password,
    })?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    puppet.end()
}

fn fault_is_reported(_: &Setting) -> Outcome {
    let object = object_with_return()?;
    let (clist, _) = clist_granting(&object, Rights::R)?;
    let apd = apd_of(&[&clist]);
    for (kind, wanted) in [(1, Rights::W), (2, Rights::X)] {
        let report = run("access", &[object.base() + 8, kind], &confined(&apd))?;
        ensure_eq!(report.exception, EXCEPTION_PROTECTION);
        ensure_eq!(report.status, abi::layout::STATUS_SYSTEM + EXCEPTION_PROTECTION);
        ensure_eq!(report.address, object.base() + 8);
        ensure_eq!(report.wanted, u64::from(wanted.bits()));
        ensure_eq!(report.had & 7, u64::from(Rights::R.bits()));
        ensure!(report.instruction != 0, "no instruction in {report:x?}");
    }
    Ok(())
}

fn revoked_while_read(_: &Setting) -> Outcome {
    let object = object_with_return()?;
    let (clist, password) = clist_granting(&object, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    for _ in 0..20 {
        ensure!(puppet.peek(object.base())?.is_some());
    }
    object.revoke(password)?;
    ensure_eq!(puppet.peek(object.base())?, None);
    ensure_error!(puppet.call(Call::ApdLookup, &[object.base(), 4])?, Protection);
    // Registered again, it counts again.
    call::obj_passwd(object.base(), password, Rights::R.bits().into())?;
    ensure!(puppet.peek(object.base())?.is_some());
    puppet.end()
}

fn revoked_while_written(_: &Setting) -> Outcome {
    for _ in 0..5 {
        let object = Object::create(PAGE)?;
        let (clist, password) = clist_granting(&object, Rights::RW)?;
        let apd = apd_of(&[&clist]);
        let options = rt::task::Options {
            priority: PRIORITY_LOW,
            ..confined(&apd)
        };
        let task = start("count", &[object.base()], &options)?;
        wait_until("the assistant counts", || arch::load(object.base()) > 10)?;
        object.revoke(password)?;
        let last = arch::load(object.base());
        let report = report_of(&task, 1_000_000_000)?;
        ensure_eq!(arch::load(object.base()), last);
        ensure_eq!(report.exception, EXCEPTION_PROTECTION);
        ensure_eq!(report.address, object.base());
        ensure_eq!(report.wanted, u64::from(Rights::W.bits()));
        ensure_eq!(report.had, 0);
    }
    Ok(())
}

fn downgraded(_: &Setting) -> Outcome {
    let object = object_with_return()?;
    let (clist, password) = clist_granting(&object, Rights::RWX)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    call::obj_passwd(object.base(), password, Rights::RX.bits().into())?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RX);
    call::obj_passwd(object.base(), password, Rights::R.bits().into())?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::R);
    call::obj_passwd(object.base(), password, Rights::RWX.bits().into())?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    puppet.end()
}

fn deleted_while_used(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let base = object.base();
    let (clist, _) = clist_granting(&object, Rights::RW)?;
    let apd = apd_of(&[&clist]);
    let options = rt::task::Options {
        priority: PRIORITY_LOW,
        ..confined(&apd)
    };
    let task = start("count", &[base], &options)?;
    wait_until("the assistant counts", || arch::load(base) > 10)?;
    object.delete()?;
    let report = report_of(&task, 1_000_000_000)?;
    ensure_eq!(
        (report.exception, report.address, report.had),
        (EXCEPTION_PROTECTION, base, 0)
    );
    Ok(())
}

fn several_passwords(_: &Setting) -> Outcome {
    let object = object_with_return()?;
    let mut clist = Clist::create()?;
    let read = grant(&mut clist, &object, Rights::R)?;
    let write = grant(&mut clist, &object, Rights::W)?;
    let execute = grant(&mut clist, &object, Rights::RX)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    object.revoke(write)?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RX);
    object.revoke(execute)?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::R);
    object.revoke(read)?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::NONE);
    puppet.end()
}

fn table_full(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let mut passwords = alloc::vec::Vec::new();
    let refused = loop {
        match object.grant(Rights::R) {
            Ok(password) => passwords.push(password),
            Err(error) => break error,
        }
        ensure!(
            passwords.len() <= CAPABILITIES_MAX,
            "it has {} passwords",
            passwords.len()
        );
    };
    ensure_eq!(refused, Error::TableFull);
    ensure!(
        passwords.len() + 2 >= CAPABILITIES_MAX,
        "only {} passwords fit",
        passwords.len()
    );
    let last = passwords.pop().unwrap_or_default();
    object.revoke(last)?;
    object.grant(Rights::R)?;
    ensure_error!(object.grant(Rights::R), TableFull);
    // Changing one that is there takes no room.
    call::obj_passwd(object.base(), passwords[0], Rights::RW.bits().into())?;
    Ok(())
}

fn chosen_and_made(_: &Setting) -> Outcome {
    let (base, password) = call::obj_create(PAGE, 0x1234_5678)?;
    ensure_eq!(password, 0x1234_5678);
    let (_, made) = call::obj_create(PAGE, 0)?;
    let (_, other) = call::obj_create(PAGE, 0)?;
    ensure!(
        made != 0 && other != 0 && made != other,
        "passwords {made:#x} and {other:#x}"
    );
    ensure_eq!(call::obj_passwd(base, 0x99, 4)?, 0x99);
    ensure!(call::obj_passwd(base, 0, 4)? != 0);
    for rights in [32, 64, 1 << 40, u64::MAX] {
        ensure_error!(call::obj_passwd(base, 7, rights), BadArgument);
    }
    // Removing what is not there changes nothing.
    let before = call::obj_info(base)?.capabilities;
    let _ = call::obj_passwd(base, 0xdead_beef, 0);
    ensure_eq!(call::obj_info(base)?.capabilities, before);
    Ok(())
}
