//! Protected calls: what the callee can touch, what crosses with the call and what does not, nesting,
//! faults, revocation, and who may register and enter.
//!
//! The procedures stand in the suite's own image, which a registered Clist grants to the callee.

pub mod refusals;
pub mod service;

use core::sync::atomic::Ordering::SeqCst;

use abi::{
    Call, Error, Rights,
    address::{PAGE, STACKS_START, USER_END},
    layout::{ApdDescription, CALL_DEPTH_MAX, Capability, PD_EMPTY, PD_MERGE},
};
use rt::{
    Object, call,
    pdx::{self, Domain, Entry},
    thread,
};

use crate::{
    arch::{
        self,
        registers::{self, Left, Looked},
    },
    assistant::{Puppet, apd_of, clist_granting},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};
use service::{BOTH, INSIDE, Service, add_entry, linger_entry, nest_entry, read_entry, stack_entry, write_entry};

/// The cases.
pub const CASES: &[Case] = &[
    case("pdx/parameters-and-results", parameters_and_results),
    case("pdx/empty-sees-nothing", empty_sees_nothing),
    case("pdx/merge-sees-the-caller", merge_sees_the_caller),
    case("pdx/merge-follows-changes", merge_follows_changes),
    case("pdx/private-rights-stay-private", private_rights_stay_private),
    case("pdx/explicit-domain", explicit_domain),
    case("pdx/registers-are-scrubbed", registers_are_scrubbed),
    case("pdx/stacks-are-private", stacks_are_private),
    case("pdx/nested-empty", |_| nested(PD_EMPTY)),
    case("pdx/nested-merge", |_| nested(PD_MERGE)),
    case("pdx/many-threads-inside", many_threads_inside),
    case("pdx/warm-and-cold", warm_and_cold),
];

fn parameters_and_results(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    for domain in BOTH {
        for step in 0..50 {
            let [a, b, c, d] = [step, u64::MAX - step, step << 32, 0x5555];
            ensure_eq!(
                pdx::call(add_entry(), domain, [a, b, c, d])?,
                (a.wrapping_add(b), c ^ d)
            );
        }
    }
    Ok(())
}

fn empty_sees_nothing(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    arch::store(object.base(), 9);
    let granted = Object::create(PAGE)?;
    arch::store(granted.base(), 11);
    let _service = Service::open(&[&granted])?;
    let here = core::hint::black_box(7_u64);
    for address in [
        object.base(),
        &raw const here as u64,
        abi::address::ROOT_DIRECTORY,
        abi::address::ROOT_CLIST,
    ] {
        ensure_error!(pdx::call(read_entry(), Domain::Empty, [address, 0, 0, 0]), CalleeFault);
        ensure_error!(pdx::call(write_entry(), Domain::Empty, [address, 1, 0, 0]), CalleeFault);
    }
    ensure_eq!(arch::load(object.base()), 9);
    ensure_eq!(here, 7);
    // It does see the objects that the registered Clist grants.
    ensure_eq!(pdx::call(read_entry(), Domain::Empty, [granted.base(), 0, 0, 0])?.0, 11);
    Ok(())
}

fn merge_sees_the_caller(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let granted = Object::create(PAGE)?;
    let service = Service::open(&[&granted])?;
    arch::store(object.base(), 21);
    ensure_eq!(pdx::call(read_entry(), Domain::Merge, [object.base(), 0, 0, 0])?.0, 21);
    pdx::call(write_entry(), Domain::Merge, [object.base(), 22, 0, 0])?;
    ensure_eq!(arch::load(object.base()), 22);
    let here = core::hint::black_box(7_u64);
    ensure_eq!(
        pdx::call(read_entry(), Domain::Merge, [&raw const here as u64, 0, 0, 0])?.0,
        7
    );
    // Rights, not everything: what the caller may not write, the callee may not either.
    let shown = Object::create(PAGE)?;
    let (mut list, _) = clist_granting(&shown, Rights::R)?;
    list.insert(Capability {
        address: service.image,
        password: service.password,
    })?;
    let puppet = Puppet::start(&[&list])?;
    let arguments = |entry: Entry, address| [entry.address(), address, PD_MERGE, 5, 0, 0];
    puppet.call(Call::PdxCall, &arguments(read_entry(), shown.base()))??;
    ensure_error!(
        puppet.call(Call::PdxCall, &arguments(write_entry(), shown.base()))?,
        CalleeFault
    );
    ensure_error!(
        puppet.call(Call::PdxCall, &arguments(read_entry(), object.base()))?,
        CalleeFault
    );
    puppet.end()
}

fn merge_follows_changes(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let object = Object::create(PAGE)?;
    let client = service.client_clist()?;
    let (list, password) = clist_granting(&object, Rights::RW)?;
    let (shown, _) = clist_granting(list.object(), Rights::R)?;
    let puppet = Puppet::start(&[&client, &shown])?;
    let read = || {
        puppet.call(
            Call::PdxCall,
            &[read_entry().address(), object.base(), PD_MERGE, 0, 0, 0],
        )
    };
    ensure_error!(read()?, CalleeFault);
    for _ in 0..3 {
        puppet.call(Call::ApdInsert, &[0, list.object().base()])??;
        read()??;
        puppet.call(Call::ApdDelete, &[0])??;
        ensure_error!(read()?, CalleeFault);
    }
    puppet.call(Call::ApdInsert, &[0, list.object().base()])??;
    read()??;
    object.revoke(password)?;
    ensure_error!(read()?, CalleeFault);
    call::obj_passwd(object.base(), password, Rights::R.bits().into())?;
    read()??;
    let base = object.base();
    object.delete()?;
    ensure_error!(
        puppet.call(Call::PdxCall, &[read_entry().address(), base, PD_MERGE, 0, 0, 0])?,
        CalleeFault
    );
    puppet.end()
}

fn private_rights_stay_private(_: &Setting) -> Outcome {
    let secret = Object::create(PAGE)?;
    arch::store(secret.base(), 99);
    let service = Service::open(&[&secret])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    for pd in [PD_MERGE, PD_EMPTY, PD_MERGE] {
        ensure_eq!(
            puppet
                .call(Call::PdxCall, &[read_entry().address(), secret.base(), pd, 0, 0, 0])??
                .0,
            99
        );
        ensure_eq!(puppet.peek(secret.base())?, None);
        ensure_eq!(puppet.peek(service.image)?, None);
        ensure!(!puppet.fetch(add_entry().address())?);
        ensure_eq!(puppet.peek(service.clist.object().base())?, None);
        ensure_error!(puppet.call(Call::ApdLookup, &[secret.base(), 4])?, Protection);
        ensure_error!(
            puppet.call(Call::ApdInsert, &[0, service.clist.object().base()])?,
            Protection
        );
    }
    // Two clients of one empty domain share it, and see nothing of each other.
    let other = Puppet::start(&[&service.client_clist()?])?;
    ensure_eq!(
        other
            .call(
                Call::PdxCall,
                &[read_entry().address(), secret.base(), PD_EMPTY, 0, 0, 0]
            )??
            .0,
        99
    );
    let own = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    ensure_error!(
        other.call(Call::PdxCall, &[read_entry().address(), own, PD_MERGE, 0, 0, 0])?,
        CalleeFault
    );
    ensure_error!(
        puppet.call(Call::PdxCall, &[read_entry().address(), own, PD_EMPTY, 0, 0, 0])?,
        CalleeFault
    );
    ensure_eq!(
        puppet
            .call(Call::PdxCall, &[read_entry().address(), own, PD_MERGE, 0, 0, 0])??
            .0,
        0
    );
    puppet.end()?;
    other.end()
}

fn explicit_domain(_: &Setting) -> Outcome {
    let (object, hidden) = (Object::create(PAGE)?, Object::create(PAGE)?);
    arch::store(object.base(), 31);
    let _service = Service::open(&[])?;
    let (list, _) = clist_granting(&object, Rights::R)?;
    let apd = apd_of(&[&list]);
    for _ in 0..3 {
        ensure_eq!(
            call::pdx_call_in(read_entry().address(), [object.base(), 0, 0, 0], &apd)?.0,
            31
        );
        ensure_error!(
            call::pdx_call_in(write_entry().address(), [object.base(), 0, 0, 0], &apd),
            CalleeFault
        );
        ensure_error!(
            call::pdx_call_in(read_entry().address(), [hidden.base(), 0, 0, 0], &apd),
            CalleeFault
        );
    }
    ensure_eq!(
        call::pdx_call_in(add_entry().address(), [1, 2, 0, 0], &ApdDescription::default())?.0,
        3
    );
    let mut bad = [apd; 4];
    bad[0].count = 17;
    bad[1].count = u64::MAX;
    bad[2].slots[0] = 0;
    bad[3].slots[0] = object.base();
    for description in &bad {
        let refused = call::pdx_call_in(add_entry().address(), [0; 4], description);
        ensure!(
            matches!(refused, Err(Error::BadArgument | Error::BadAddress | Error::BadClist)),
            "{description:x?}: {refused:?}"
        );
    }
    for pd in [2, 8, 1 << 47, u64::MAX, object.base() + PAGE - 8] {
        let refused = call::pdx_call(add_entry().address(), 0, pd, 0, 0, 0);
        ensure!(refused.is_err(), "pd {pd:#x} is taken");
    }
    // A Clist that the caller cannot read is none of his to give.
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let place = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    ensure!(puppet.poke(place, 1)? && puppet.poke(place + 16, list.object().base())?);
    ensure_error!(
        puppet.call(Call::PdxCall, &[add_entry().address(), 0, place, 0, 0, 0])?,
        Protection
    );
    puppet.end()
}

fn registers_are_scrubbed(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    // The first call of each kind goes the long way, the others the short one; a live vector unit may
    // make a difference too.
    for looked in [Looked::General, Looked::All, Looked::General] {
        for pd in [PD_EMPTY, PD_MERGE] {
            for round in 0..5 {
                let left = registers::call_and_look(registers::leak_entry(), pd, looked);
                ensure!(left == Left::default(), "round {round}, pd {pd}, {looked:?}: {left:x?}");
            }
            for round in 0..3 {
                let left = registers::call_and_look(registers::faulting_entry(), pd, looked);
                let expected = Left {
                    error: Error::CalleeFault as u64,
                    ..Left::default()
                };
                ensure!(
                    left == expected,
                    "after a fault, round {round}, pd {pd}, {looked:?}: {left:x?}"
                );
            }
        }
    }
    Ok(())
}

fn stacks_are_private(_: &Setting) -> Outcome {
    arch::guard()?;
    let service = Service::open(&[])?;
    for domain in BOTH {
        for _ in 0..3 {
            let (stack, _) = pdx::call(stack_entry(), domain, [0; 4])?;
            ensure!(
                (STACKS_START..USER_END).contains(&stack),
                "the callee's stack is at {stack:#x}"
            );
            ensure_eq!(arch::peek(stack), None);
            ensure!(!arch::poke(stack, 1));
            ensure_error!(call::apd_lookup(stack, 4), Protection);
            ensure_error!(call::obj_info(stack), Protection);
            ensure!(
                arch::system_call(Call::ObjDelete as u64, [stack, 0, 0, 0, 0, 0])
                    .result()
                    .is_err()
            );
        }
    }
    // Nor to another client of the same domain.
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let (stack, _) = puppet.call(Call::PdxCall, &[stack_entry().address(), 0, PD_EMPTY, 0, 0, 0])??;
    ensure_eq!(puppet.peek(stack)?, None);
    ensure_eq!(arch::peek(stack), None);
    puppet.end()
}

fn nested(pd: u64) -> Outcome {
    let _service = Service::open(&[])?;
    for most in [0, 1, 5, CALL_DEPTH_MAX as u64 - 1] {
        ensure_eq!(call::pdx_call(nest_entry().address(), 0, pd, pd, most, 0)?, (most, 0));
    }
    for _ in 0..3 {
        let (depth, error) = call::pdx_call(nest_entry().address(), 0, pd, pd, 1000, 0)?;
        ensure_eq!(error, Error::TooDeep as u64);
        ensure_eq!(depth + 1, CALL_DEPTH_MAX as u64);
    }
    Ok(())
}

fn many_threads_inside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    INSIDE.store(0, SeqCst);
    for domain in BOTH {
        let mut threads = alloc::vec::Vec::new();
        for _ in 0..40 {
            threads.push(thread::spawn(move || {
                match pdx::call(linger_entry(), domain, [5, 0, 0, 0]) {
                    Ok((5, 0)) => 0,
                    Ok(_) => 1,
                    Err(error) => 100 + error as u64,
                }
            })?);
        }
        for thread in threads {
            ensure_eq!(thread.join_status()?, 0);
        }
    }
    ensure_eq!(INSIDE.load(SeqCst), 0);
    Ok(())
}

fn warm_and_cold(_: &Setting) -> Outcome {
    // Whatever makes the kernel forget its ways must not make a call go wrong.
    let object = Object::create(PAGE)?;
    let service = Service::open(&[&object])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    for round in 0..40 {
        for domain in BOTH {
            ensure_eq!(pdx::call(add_entry(), domain, [round, 1, 0, 0])?.0, round + 1);
        }
        match round % 5 {
            0 => call::apd_flush()?,
            1 => Object::create(PAGE)?.delete()?,
            2 => {
                call::obj_passwd(service.image, 1234 + round, 4)?;
                call::obj_passwd(service.image, 1234 + round, 0)?;
            }
            3 => {
                puppet.call(Call::PdxCall, &[add_entry().address(), 1, PD_MERGE, 1, 0, 0])??;
            }
            _ => thread::yield_now(),
        }
    }
    puppet.end()
}
