//! The runtime as a module: programs in C that begin in it, and where its state is found.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use alloc::string::ToString;

use abi::{
    address::USER_END,
    layout::{EXCEPTION_PROTECTION, PRIORITY_DEFAULT},
};
use rt::{
    Object,
    module::{Binding, Error, Modules, shelf},
    pdx::{self, Domain},
    task::{Options, Program},
    thread,
};

use crate::{
    arch,
    assistant::PATIENCE_NS,
    case::{Case, Failure, Outcome, Setting, case, ensure, ensure_eq},
    modules::with,
};

pub const CASES: &[Case] = &[
    case("native/a-c-program-uses-the-runtime", uses),
    case("native/a-thread-without-state-ends", foreign),
    case("native/a-variadic-call-at-the-end-of-a-stack", variadic),
    case("native/destructors-run", destructors),
    case("native/a-panic-in-the-runtime-ends-the-program", exhausted),
    case("native/a-crash-names-the-module", crash),
    case("native/a-callee-does-not-find-its-callers-state", across),
    case("native/what-is-missing-is-said", missing),
];

/// Starts the program in C to do its part; gives the status and how the end is shown.
fn run(part: &str, binding: Binding) -> Outcome<(u64, alloc::string::String)> {
    let task = Program::of_module("native", binding)?.start("native", &[part], &Options::default())?;
    match task.wait_for(PATIENCE_NS) {
        Ok(ended) => {
            // A fault is told by its kind.
            let status = match ended.report.exception {
                0 => ended.report.status,
                kind => u64::MAX - kind,
            };
            Ok((status, ended.to_string()))
        }
        Err(error) => {
            task.end(1)?;
            Err(error.into())
        }
    }
}

/// The parts end well, which means that no check failed.
fn all_well(parts: &[&str]) -> Outcome {
    for binding in [Binding::Lazy, Binding::Eager] {
        for part in parts {
            let (line, _) = run(part, binding)?;
            ensure!(line == 0, "{part}: the check in line {line} of native.c failed");
        }
    }
    Ok(())
}

fn uses(_: &Setting) -> Outcome {
    with(&["rt", "counter", "native"], || {
        all_well(&["heap", "objects", "threads", "modules"])
    })
}

fn foreign(_: &Setting) -> Outcome {
    with(&["rt", "counter", "native"], || {
        all_well(&["foreign"])?;
        let (line, _) = run("late", Binding::Lazy)?;
        ensure!(line == 0, "late: the check in line {line} of native.c failed");
        Ok(())
    })
}

fn variadic(_: &Setting) -> Outcome {
    with(&["rt", "counter", "native"], || all_well(&["variadic"]))
}

fn destructors(_: &Setting) -> Outcome {
    with(&["rt", "counter", "native"], || {
        for binding in [Binding::Lazy, Binding::Eager] {
            // 40, the first count, and the second, which the destructor that comes first asked for.
            ensure_eq!(run("destructors", binding)?.0, 40 + 1 + 2);
        }
        Ok(())
    })
}

fn exhausted(_: &Setting) -> Outcome {
    with(&["rt", "native"], || {
        ensure_eq!(run("exhausted", Binding::Lazy)?.0, 101);
        // The next one has what that one had not.
        ensure_eq!(run("heap", Binding::Lazy)?.0, 0);
        Ok(())
    })
}

fn crash(_: &Setting) -> Outcome {
    with(&["rt", "native"], || {
        let (kind, shown) = run("crash", Binding::Lazy)?;
        ensure_eq!(kind, u64::MAX - EXCEPTION_PROTECTION);
        ensure!(
            shown.contains("write to 0x10") && shown.contains("(native+0x"),
            "{shown}"
        );
        let found = shelf::look_up("native")?;
        let last = found.capability.address + found.word - 1;
        let place = shelf::place_of(last).map(|place| place.module);
        ensure_eq!(place, Some("native-1".to_string()));
        ensure_eq!(shelf::place_of(found.capability.address + found.word), None);
        Ok(())
    })
}

/// Functions of the runtime's module, for both sides of the call.
static STATE: AtomicU64 = AtomicU64::new(0);
static ATTACH: AtomicU64 = AtomicU64::new(0);
static ALLOC: AtomicU64 = AtomicU64::new(0);

fn state_now() -> u64 {
    arch::call_at(STATE.load(SeqCst), [0; 4])
}

/// Two results in the registers of the C convention.
#[repr(C)]
pub struct Results(u64, u64);

/// The protected procedure: which state it finds first, and a block from the heap of the state that it is given.
pub extern "C" fn callee(state: u64, _: u64, _: u64, _: u64) -> Results {
    let found = state_now();
    if arch::call_at(ATTACH.load(SeqCst), [state, 0, 0, 0]) != 0 || state_now() != state {
        return Results(found, 0);
    }
    Results(found, arch::call_at(ALLOC.load(SeqCst), [100, 0, 0, 0]))
}

/// The states of caller and callee.
static STATES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Bytes of a block that the state has room for a few times at most.
const LARGE: u64 = 32_000;

/// The calling thread: the number of the check that failed, or 0.
pub extern "C" fn caller(bytes: u64) -> u64 {
    let [own, others] = [0, 1].map(|index: usize| STATES[index].load(SeqCst));
    let of = |state: u64, block: u64| block > state && block < state + bytes;
    if state_now() != 0 {
        return 1;
    }
    for nowhere in [0, own + 8, USER_END, u64::MAX - 7] {
        let attached = arch::call_at(ATTACH.load(SeqCst), [nowhere, 0, 0, 0]);
        if attached != abi::Error::BadArgument as u64 || state_now() != 0 {
            return 2;
        }
    }
    if arch::call_at(ATTACH.load(SeqCst), [own, 0, 0, 0]) != 0 || state_now() != own {
        return 3;
    }
    for round in 0..6 {
        let domain = if round % 2 == 0 { Domain::Empty } else { Domain::Merge };
        let Ok((found, block)) = pdx::call(arch::callee_entry(), domain, [others, 0, 0, 0]) else {
            return 4;
        };
        // A stack of the callee's own may have been used by the callee before, and by nobody else.
        if found != 0 && (found != others || round < 2) {
            return 5;
        }
        if !of(others, block) {
            return 6;
        }
        if state_now() != own || !of(own, arch::call_at(ALLOC.load(SeqCst), [100, 0, 0, 0])) {
            return 7;
        }
    }
    // It never makes objects: what does not fit there is not to be had.
    if arch::call_at(ALLOC.load(SeqCst), [100_000, 0, 0, 0]) != 0 {
        return 8;
    }
    for _ in 0..bytes / LARGE {
        match arch::call_at(ALLOC.load(SeqCst), [LARGE, 0, 0, 0]) {
            0 => return 0,
            block if of(own, block) => {}
            _ => return 9,
        }
    }
    10
}

fn across(_: &Setting) -> Outcome {
    const BYTES: u64 = 256 << 10;
    with(&["rt"], || {
        let modules = Modules::new(Binding::Lazy);
        let runtime = modules.instance("rt")?;
        // Nothing of it is an instance's own.
        ensure_eq!(modules.data_address(runtime), None);
        let function = |name| modules.symbol(runtime, name).unwrap_or(0);
        for (place, name) in [(&STATE, "rt_state"), (&ATTACH, "rt_attach"), (&ALLOC, "rt_alloc")] {
            place.store(function(name), SeqCst);
        }
        let memory = [Object::create(BYTES)?, Object::create(BYTES)?];
        let made = Object::create(abi::address::PAGE)?;
        for (object, state) in memory.iter().zip(&STATES) {
            let make = |bytes| arch::call_at(function("rt_state_make"), [object.base(), bytes, made.base(), 0]);
            ensure_eq!(make(4096), abi::Error::BadArgument as u64);
            ensure_eq!(make(BYTES), 0);
            let at = made.first::<rt::Cell<u64>>()?.get();
            ensure!(
                (object.base()..object.base() + BYTES).contains(&at),
                "a state at {at:#x}"
            );
            state.store(at, SeqCst);
        }
        // A thread of this image has none, and cannot take the words of its stack for one.
        ensure_eq!(state_now(), 0);
        let mut clist = pdx::clist_for(&[&memory[1]])?;
        clist.insert(shelf::look_up("rt")?.capability)?;
        let (image, _) = pdx::own_image().ok_or(rt::Error::NotAProgram)?;
        let password = pdx::register(image, &clist, &[arch::callee_entry()])?;
        let mut ours = rt::Clist::create()?;
        ours.insert(abi::layout::Capability {
            address: image,
            password,
        })?;
        rt::call::apd_insert(0, ours.object().base())?;
        let check = thread::start(arch::caller_entry(), BYTES, PRIORITY_DEFAULT)?.join()?;
        ensure!(
            check.exception == 0 && check.status == 0,
            "check {} failed: {check:x?}",
            check.status
        );
        rt::call::apd_delete(0)?;
        rt::call::obj_passwd(image, password, 0)?;
        Ok(())
    })
}

fn missing(_: &Setting) -> Outcome {
    let refused = |name: &str, said: &str| match Program::of_module(name, Binding::Lazy) {
        Err(error @ Error::Missing { .. }) => {
            let text = error.to_string();
            ensure!(text.contains(said) && text.contains("module install"), "{text}");
            Ok(())
        }
        other => Err(Failure::new(format_args!("{name}: {other:?}"))),
    };
    with(&["native"], || refused("native", "no module rt"))?;
    with(&["rt", "counter"], || {
        refused("native", "no module native")?;
        // A module that is no program says so, and ends as what could not be started.
        let task = Program::of_module("counter", Binding::Lazy)?.start("counter", &[], &Options::default())?;
        ensure_eq!(task.wait_status()?, 127);
        Ok(())
    })
}
