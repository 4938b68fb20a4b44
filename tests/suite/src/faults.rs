//! Forbidden acts, strange ones, and handlers that put things right.

use abi::{
    Error, Rights,
    address::{PAGE, STACKS_START, USER_END},
    layout::{EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_KINDS, EXCEPTION_PROTECTION, STATUS_SYSTEM},
};
use rt::{Object, call, task::Options};

use crate::{
    arch::{self, CRIMES, ODDITIES, handlers},
    assistant::{report_of, run, start},
    case::{Case, Failure, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        limit_ms: 60_000,
        ..case("faults/crimes", crimes)
    },
    case("faults/oddities", oddities),
    case("faults/registers-are-kept", registers_are_kept),
    case("faults/calls-leave-nothing", calls_leave_nothing),
    case("faults/system-calls-check-buffers", system_calls_check_buffers),
    case("handlers/retry", retry),
    case("handlers/resume-behind", resume_behind),
    case("handlers/refused-returns", refused_returns),
    case("handlers/end", end),
    case("handlers/fault-inside", fault_inside),
    case("handlers/retry-what-cannot-be", retry_what_cannot_be),
    case("handlers/registering", registering),
];

/// The parts.
pub const ROLES: &[Role] = &[
    role("criminal", |numbers| {
        let Some(crime) = CRIMES.get(numbers[0] as usize) else {
            return 2;
        };
        arch::commit(crime);
        0
    }),
    role("handler-ends", |_| handlers::end_in_handler()),
    role("handler-faults", |_| handlers::fault_in_handler()),
    role("handler-retries", |_| handlers::retry_non_canonical()),
];

fn crimes(_: &Setting) -> Outcome {
    for (index, crime) in CRIMES.iter().enumerate() {
        commit(index, crime)?;
    }
    Ok(())
}

fn commit(index: usize, crime: &arch::Crime) -> Outcome {
    let task = start("criminal", &[index as u64], &Options::default())?;
    let image = task.image();
    let report = match report_of(&task, 2_000_000_000) {
        Ok(report) => report,
        Err(why) => return Err(Failure::new(format_args!("{}: {why}", crime.name))),
    };
    let failure = |what: &str| Err(Failure::new(format_args!("{}: {what}: {report:x?}", crime.name)));
    if report.exception != crime.kind || report.status != STATUS_SYSTEM + crime.kind {
        return failure("it ended otherwise");
    }
    if report.wanted != u64::from(crime.wanted.bits()) {
        return failure("the wanted rights are others");
    }
    let named = match crime.named {
        arch::Named::Any => true,
        arch::Named::Exactly(address) => report.address == address,
        arch::Named::InImage => (image.base..image.base + image.bytes).contains(&report.address),
        arch::Named::InStacks => (STACKS_START..USER_END).contains(&report.address),
    };
    if !named {
        return failure("the address is another");
    }
    // A jump that is refused may be reported where it began or where it led.
    let jumped = crime.name.contains("jump") || crime.name.contains("return");
    if crime.wanted != Rights::X && !jumped && !(image.base..image.base + image.bytes).contains(&report.instruction) {
        return failure("the instruction is not the program's");
    }
    Ok(())
}

fn oddities(_: &Setting) -> Outcome {
    for oddity in ODDITIES {
        let object = Object::create(PAGE)?;
        ensure!(oddity.run(object.base()), "{} went wrong", oddity.name);
        object.delete()?;
    }
    Ok(())
}

fn registers_are_kept(_: &Setting) -> Outcome {
    for _ in 0..20 {
        let object = Object::create(PAGE)?;
        ensure_eq!(arch::registers::changed_by_a_fault(object.base()), 0);
        object.delete()?;
    }
    Ok(())
}

fn calls_leave_nothing(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let calls = [
        (abi::Call::ThreadMyId, [0, 0]),
        (abi::Call::ClockRead, [0, 0]),
        (abi::Call::ObjDelete, [0, 0]),
        (abi::Call::ApdLookup, [object.base(), 4]),
        (abi::Call::ThreadSleep, [0, 0]),
        (abi::Call::ThreadSleep, [0, 2_000_000]),
        (abi::Call::SemWait, [object.base(), 0]),
        (abi::Call::AddressWait, [object.base(), 1]),
        (abi::Call::PdxReturn, [1, 2]),
        (abi::Call::ExcptReturn, [0, 0]),
        (abi::Call::ObjDelete, [object.base(), 0]),
    ];
    for (call, arguments) in calls {
        ensure!(
            arch::registers::nothing_of_the_kernel(call as u64, arguments),
            "{call:?} leaves something in a register"
        );
    }
    ensure!(
        arch::registers::nothing_of_the_kernel(9999, [1, 2]),
        "an unknown call leaves something in a register"
    );
    Ok(())
}

/// Every call that is given a buffer refuses one that the caller may not touch.
fn system_calls_check_buffers(_: &Setting) -> Outcome {
    use abi::Call;
    let readable = Object::create(PAGE)?;
    call::page_limit(readable.base(), 1, Rights::R.bits().into())?;
    let hole = readable.base() + PAGE;
    let before = readable.base() - 8;
    let own = call::thread_my_id();
    let bad = [
        0,
        8,
        before,
        hole,
        1 << 47,
        0xffff_8000_0000_0000,
        u64::MAX - 7,
        u64::MAX,
        USER_END - 8,
        USER_END,
    ];
    for address in bad.into_iter().chain([readable.base()]) {
        let writes = [
            (Call::ObjInfo, [readable.base(), 0, address, PAGE, 0, 0]),
            (Call::ApdGet, [address, PAGE, 0, 0, 0, 0]),
            (Call::ThreadInfo, [own, address, PAGE, 0, 0, 0]),
            (Call::SystemInfo, [0, 0, address, PAGE, 0, 0]),
            (Call::SystemInfo, [3, 0, address, PAGE, 0, 0]),
        ];
        for (call, arguments) in writes {
            let refused = arch::system_call(call as u64, arguments).result();
            ensure!(
                matches!(refused, Err(Error::Protection | Error::BadAddress)),
                "{call:?} writes to {address:#x}: {refused:x?}"
            );
        }
    }
    for address in bad {
        let reads = [
            (Call::ConsoleWrite, [0, address, 8, 0, 0, 0]),
            (Call::ObjCrePdx, [readable.base(), 0, 0, address, 1, 0]),
            (Call::AddressWait, [address & !7, 0, 0, 0, 0, 0]),
        ];
        for (call, arguments) in reads {
            let refused = arch::system_call(call as u64, arguments).result();
            ensure!(refused.is_err(), "{call:?} reads from {address:#x}");
        }
    }
    ensure_eq!(arch::load(readable.base()), 0);
    Ok(())
}

fn retry(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let address = object.base() + 24;
    call::page_limit(object.base(), 1, Rights::R.bits().into())?;
    ensure_eq!(handlers::write_allowed_late(address, 0x77)?, 0);
    ensure_eq!(arch::load(address), 0x77);
    ensure_eq!(handlers::calls(), 1);
    let [kind, touched, instruction, wanted] = handlers::seen();
    ensure_eq!(
        (kind, touched, wanted),
        (EXCEPTION_PROTECTION, address, u64::from(Rights::W.bits()))
    );
    ensure!(instruction != 0);
    Ok(())
}

fn resume_behind(_: &Setting) -> Outcome {
    for _ in 0..10 {
        let instruction = handlers::skip_division()?;
        ensure_eq!(handlers::seen(), [EXCEPTION_ARITHMETIC, 0, instruction, 0]);
        let instruction = handlers::skip_undefined()?;
        ensure_eq!(handlers::seen(), [EXCEPTION_ILLEGAL, 0, instruction, 0]);
        let instruction = handlers::skip_null()?;
        ensure_eq!(
            handlers::seen(),
            [EXCEPTION_PROTECTION, 0, instruction, u64::from(Rights::R.bits())]
        );
    }
    Ok(())
}

fn refused_returns(_: &Setting) -> Outcome {
    let refused = arch::system_call(abi::Call::ExcptReturn as u64, [0; 6]).result();
    ensure_error!(refused, NoHandler);
    let instruction = handlers::skip_null_after_nonsense()?;
    ensure_eq!(handlers::seen()[2], instruction);
    ensure_eq!(handlers::calls(), 1);
    Ok(())
}

fn end(_: &Setting) -> Outcome {
    let report = run("handler-ends", &[], &Options::default())?;
    ensure_eq!((report.exception, report.address), (EXCEPTION_PROTECTION, 0x10));
    Ok(())
}

fn fault_inside(_: &Setting) -> Outcome {
    let report = run("handler-faults", &[], &Options::default())?;
    ensure_eq!((report.exception, report.address), (EXCEPTION_PROTECTION, 0x18));
    Ok(())
}

fn retry_what_cannot_be(_: &Setting) -> Outcome {
    let report = run("handler-retries", &[], &Options::default())?;
    ensure!(
        [EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION].contains(&report.exception),
        "it ended so: {report:x?}"
    );
    Ok(())
}

fn registering(_: &Setting) -> Outcome {
    let register = |kind, handler| arch::system_call(abi::Call::ExcptReg as u64, [kind, handler, 0, 0, 0, 0]).result();
    let handler = handlers::address();
    for kind in [0, EXCEPTION_KINDS as u64, 1 << 32, u64::MAX] {
        ensure_error!(register(kind, handler), BadArgument);
    }
    for address in [1, 8, 1 << 47, u64::MAX, USER_END] {
        let refused = register(EXCEPTION_ILLEGAL, address);
        ensure!(
            matches!(refused, Err(Error::Protection | Error::BadAddress)),
            "handler {address:#x}: {refused:?}"
        );
    }
    ensure_eq!(register(EXCEPTION_ILLEGAL, handler)?.0, 0);
    ensure_eq!(register(EXCEPTION_ILLEGAL, 0)?.0, handler);
    ensure_eq!(handlers::unregister(EXCEPTION_ILLEGAL)?, 0);
    Ok(())
}
