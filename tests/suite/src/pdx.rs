//! Protected calls: what the callee can touch, what crosses with the call and what does not, nesting,
//! faults, revocation, and who may register and enter.
//!
//! The procedures stand in the suite's own image, which a registered Clist grants to the callee.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use abi::{
    Call, Error, Rights,
    address::{PAGE, STACKS_START, USER_END},
    layout::{
        ApdDescription, CALL_DEPTH_MAX, Capability, ENTRIES_MAX, EXCEPTION_KILL, PD_EMPTY, PD_MERGE, PDX_MAX, PRIORITY_DEFAULT,
    },
};
use rt::{
    Clist, Object, call,
    pdx::{self, Domain, Entry},
    thread,
};

use crate::{
    arch::{self, registers},
    assistant::{Puppet, apd_of, clist_granting, confined, grant, run, wait_until},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

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
    case("pdx/not-an-entry", not_an_entry),
    case("pdx/needs-the-right", needs_the_right),
    case("pdx/revoked", revoked),
    case("pdx/revoked-while-inside", revoked_while_inside),
    case("pdx/deleted-while-inside", deleted_while_inside),
    case("pdx/callee-faults", callee_faults),
    case("pdx/inner-callee-faults", inner_callee_faults),
    case("pdx/handlers-stay-outside", handlers_stay_outside),
    case("pdx/domain-is-sealed", domain_is_sealed),
    case("pdx/many-threads-inside", many_threads_inside),
    case("pdx/caller-ended-inside", caller_ended_inside),
    case("pdx/return-without-call", return_without_call),
    case("pdx/registering", registering),
    case("pdx/tables-full", tables_full),
    case("pdx/warm-and-cold", warm_and_cold),
];

/// The parts.
pub const ROLES: &[Role] = &[role("callee-object", callee_object)];

rt::pdx_entry!(add_entry, add);
fn add(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    (a.wrapping_add(b), c ^ d)
}

rt::pdx_entry!(read_entry, read);
fn read(address: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    (arch::load(address), 0)
}

rt::pdx_entry!(write_entry, write);
fn write(address: u64, word: u64, _: u64, _: u64) -> (u64, u64) {
    arch::store(address, word);
    (word, 0)
}

rt::pdx_entry!(stack_entry, stack);
fn stack(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    let here = core::hint::black_box(0x5ec_2e70_u64);
    (&raw const here as u64, here)
}

rt::pdx_entry!(nest_entry, nest);
/// Calls itself as deep as it goes; gives the depth and the error at the bottom.
fn nest(depth: u64, pd: u64, most: u64, _: u64) -> (u64, u64) {
    if depth == most {
        return (depth, 0);
    }
    match call::pdx_call(nest_entry().0, depth + 1, pd, pd, most, 0) {
        Ok(deeper) => deeper,
        Err(error) => (depth, error as u64),
    }
}

rt::pdx_entry!(fault_entry, fault);
/// Fails in one way or another.
fn fault(way: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    match way {
        0 => (arch::load(0x40), 0),
        1 => {
            arch::store(fault as *const () as u64, 1);
            (0, 0)
        }
        2 => arch::jump(0x1234_5000),
        3 => (recurse(1), 0),
        4 => rt::exit(5),
        crime => {
            if let Some(crime) = arch::CRIMES.get(crime as usize - FAULTS_OF_ITS_OWN as usize) {
                arch::commit(crime);
            }
            (0, 0)
        }
    }
}
const FAULTS_OF_ITS_OWN: u64 = 5;

#[allow(unconditional_recursion, reason = "that is the fault")]
fn recurse(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 32]);
    recurse(frame[1] + 1) + frame[0]
}

rt::pdx_entry!(around_entry, around);
/// Calls the failing procedure, and tells the error.
fn around(way: u64, pd: u64, _: u64, _: u64) -> (u64, u64) {
    match call::pdx_call(fault_entry().0, way, pd, 0, 0, 0) {
        Ok(_) => (0, 1),
        Err(error) => (error as u64, 2),
    }
}

rt::pdx_entry!(call_entry, any_call);
/// Does a system call inside; gives the error and the value.
fn any_call(number: u64, argument0: u64, argument1: u64, argument2: u64) -> (u64, u64) {
    let answer = arch::system_call(number, [argument0, argument1, argument2, 0, 0, 0]);
    (answer.error, answer.value)
}

static INSIDE: AtomicU64 = AtomicU64::new(0);

rt::pdx_entry!(linger_entry, linger);
/// Stays inside for so many milliseconds.
fn linger(ms: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    INSIDE.fetch_add(1, SeqCst);
    let slept = rt::time::sleep_ms(ms);
    INSIDE.fetch_sub(1, SeqCst);
    (ms, u64::from(slept.is_err()))
}

fn entries() -> [u64; 11] {
    [
        add_entry().0,
        read_entry().0,
        write_entry().0,
        stack_entry().0,
        nest_entry().0,
        fault_entry().0,
        around_entry().0,
        call_entry().0,
        linger_entry().0,
        registers::leak_entry(),
        registers::faulting_entry(),
    ]
}

fn image() -> Outcome<u64> {
    Ok(pdx::own_image().ok_or(rt::Error::NotAProgram)?.0)
}

/// A service: the suite's procedures, registered with a Clist.
struct Service {
    image: u64,
    password: u64,
    clist: Clist,
}

impl Service {
    /// Registers the procedures so that they may use these objects and call each other.
    fn open(objects: &[&Object]) -> Outcome<Self> {
        let image = image()?;
        let mut clist = pdx::clist_for(objects)?;
        let password = call::obj_cre_pdx(image, 0, clist.object().base(), &entries())?;
        clist.insert(Capability { address: image, password })?;
        Ok(Self { image, password, clist })
    }

    /// A Clist for a client: nothing but the right to call.
    fn client_clist(&self) -> Outcome<Clist> {
        let mut clist = Clist::create()?;
        clist.insert(Capability { address: self.image, password: self.password })?;
        Ok(clist)
    }
}

const BOTH: [Domain; 2] = [Domain::Empty, Domain::Merge];

fn parameters_and_results(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    for domain in BOTH {
        for step in 0..50 {
            let [a, b, c, d] = [step, u64::MAX - step, step << 32, 0x5555];
            ensure_eq!(pdx::call(add_entry(), domain, [a, b, c, d])?, (a.wrapping_add(b), c ^ d));
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
    for address in [object.base(), &raw const here as u64, abi::address::ROOT_DIRECTORY, abi::address::ROOT_CLIST] {
        ensure_error!(pdx::call(read_entry(), Domain::Empty, [address, 0, 0, 0]), CalleeFault);
        ensure_error!(pdx::call(write_entry(), Domain::Empty, [address, 1, 0, 0]), CalleeFault);
    }
    ensure_eq!(arch::load(object.base()), 9);
    ensure_eq!(here, 7);
    // What the registered Clist grants it does see.
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
    ensure_eq!(pdx::call(read_entry(), Domain::Merge, [&raw const here as u64, 0, 0, 0])?.0, 7);
    // Rights, not everything: what the caller may not write, the callee may not either.
    let shown = Object::create(PAGE)?;
    let (mut list, _) = clist_granting(&shown, Rights::R)?;
    list.insert(Capability { address: service.image, password: service.password })?;
    let puppet = Puppet::start(&[&list])?;
    let arguments = |entry: Entry, address| [entry.0, address, PD_MERGE, 5, 0, 0];
    puppet.call(Call::PdxCall, &arguments(read_entry(), shown.base()))??;
    ensure_error!(puppet.call(Call::PdxCall, &arguments(write_entry(), shown.base()))?, CalleeFault);
    ensure_error!(puppet.call(Call::PdxCall, &arguments(read_entry(), object.base()))?, CalleeFault);
    puppet.end()
}

fn merge_follows_changes(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let object = Object::create(PAGE)?;
    let client = service.client_clist()?;
    let (list, password) = clist_granting(&object, Rights::RW)?;
    let (shown, _) = clist_granting(list.object(), Rights::R)?;
    let puppet = Puppet::start(&[&client, &shown])?;
    let read = || puppet.call(Call::PdxCall, &[read_entry().0, object.base(), PD_MERGE, 0, 0, 0]);
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
    ensure_error!(puppet.call(Call::PdxCall, &[read_entry().0, base, PD_MERGE, 0, 0, 0])?, CalleeFault);
    puppet.end()
}

fn private_rights_stay_private(_: &Setting) -> Outcome {
    let secret = Object::create(PAGE)?;
    arch::store(secret.base(), 99);
    let service = Service::open(&[&secret])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    for pd in [PD_MERGE, PD_EMPTY, PD_MERGE] {
        ensure_eq!(puppet.call(Call::PdxCall, &[read_entry().0, secret.base(), pd, 0, 0, 0])??.0, 99);
        ensure_eq!(puppet.peek(secret.base())?, None);
        ensure_eq!(puppet.peek(service.image)?, None);
        ensure!(!puppet.fetch(add_entry().0)?);
        ensure_eq!(puppet.peek(service.clist.object().base())?, None);
        ensure_error!(puppet.call(Call::ApdLookup, &[secret.base(), 4])?, Protection);
        ensure_error!(puppet.call(Call::ApdInsert, &[0, service.clist.object().base()])?, Protection);
    }
    // Two clients of one empty domain share it, and see nothing of each other.
    let other = Puppet::start(&[&service.client_clist()?])?;
    ensure_eq!(other.call(Call::PdxCall, &[read_entry().0, secret.base(), PD_EMPTY, 0, 0, 0])??.0, 99);
    let own = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    ensure_error!(other.call(Call::PdxCall, &[read_entry().0, own, PD_MERGE, 0, 0, 0])?, CalleeFault);
    ensure_error!(puppet.call(Call::PdxCall, &[read_entry().0, own, PD_EMPTY, 0, 0, 0])?, CalleeFault);
    ensure_eq!(puppet.call(Call::PdxCall, &[read_entry().0, own, PD_MERGE, 0, 0, 0])??.0, 0);
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
        ensure_eq!(call::pdx_call_in(read_entry().0, [object.base(), 0, 0, 0], &apd)?.0, 31);
        ensure_error!(call::pdx_call_in(write_entry().0, [object.base(), 0, 0, 0], &apd), CalleeFault);
        ensure_error!(call::pdx_call_in(read_entry().0, [hidden.base(), 0, 0, 0], &apd), CalleeFault);
    }
    ensure_eq!(call::pdx_call_in(add_entry().0, [1, 2, 0, 0], &ApdDescription::default())?.0, 3);
    let mut bad = [apd; 4];
    bad[0].count = 17;
    bad[1].count = u64::MAX;
    bad[2].slots[0] = 0;
    bad[3].slots[0] = object.base();
    for description in &bad {
        let refused = call::pdx_call_in(add_entry().0, [0; 4], description);
        ensure!(matches!(refused, Err(Error::BadArgument | Error::BadAddress | Error::BadClist)), "{description:x?}: {refused:?}");
    }
    for pd in [2, 8, 1 << 47, u64::MAX, object.base() + PAGE - 8] {
        let refused = call::pdx_call(add_entry().0, 0, pd, 0, 0, 0);
        ensure!(refused.is_err(), "pd {pd:#x} is taken");
    }
    // A Clist that the caller cannot read is none of his to give.
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let place = puppet.call(Call::ObjCreate, &[PAGE, 0])??.0;
    ensure!(puppet.poke(place, 1)? && puppet.poke(place + 16, list.object().base())?);
    ensure_error!(puppet.call(Call::PdxCall, &[add_entry().0, 0, place, 0, 0, 0])?, Protection);
    puppet.end()
}

fn registers_are_scrubbed(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    // The first call of each kind goes the long way, the others the short one.
    for pd in [PD_EMPTY, PD_MERGE] {
        for round in 0..5 {
            let left = registers::call_and_look(registers::leak_entry(), pd);
            ensure!(left == registers::Left::default(), "round {round}, pd {pd}: {left:x?}");
        }
        for round in 0..3 {
            let left = registers::call_and_look(registers::faulting_entry(), pd);
            let expected = registers::Left { error: Error::CalleeFault as u64, ..registers::Left::default() };
            ensure!(left == expected, "after a fault, round {round}, pd {pd}: {left:x?}");
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
            ensure!((STACKS_START..USER_END).contains(&stack), "the callee's stack is at {stack:#x}");
            ensure_eq!(arch::peek(stack), None);
            ensure!(!arch::poke(stack, 1));
            ensure_error!(call::apd_lookup(stack, 4), Protection);
            ensure_error!(call::obj_info(stack), Protection);
            ensure!(call::obj_delete(stack).is_err());
        }
    }
    // Nor to another client of the same domain.
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let (stack, _) = puppet.call(Call::PdxCall, &[stack_entry().0, 0, PD_EMPTY, 0, 0, 0])??;
    ensure_eq!(puppet.peek(stack)?, None);
    ensure_eq!(arch::peek(stack), None);
    puppet.end()
}

fn nested(pd: u64) -> Outcome {
    let _service = Service::open(&[])?;
    for most in [0, 1, 5, CALL_DEPTH_MAX as u64 - 1] {
        ensure_eq!(call::pdx_call(nest_entry().0, 0, pd, pd, most, 0)?, (most, 0));
    }
    for _ in 0..3 {
        let (depth, error) = call::pdx_call(nest_entry().0, 0, pd, pd, 1000, 0)?;
        ensure_eq!(error, Error::TooDeep as u64);
        ensure_eq!(depth + 1, CALL_DEPTH_MAX as u64);
    }
    Ok(())
}

fn not_an_entry(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let client = service.client_clist()?;
    let puppet = Puppet::start(&[&client])?;
    let entry = add_entry().0;
    let wrong = [entry + 1, entry - 1, entry + 4096, service.image, add as *const () as u64];
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
    ensure!(matches!(refused, Err(Error::NotAnEntry | Error::Protection)), "{refused:?}");
    ensure_error!(puppet.call(Call::PdxCall, &[object.base(), 0, PD_EMPTY])?, Protection);
    puppet.end()
}

fn needs_the_right(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let stranger = Puppet::start(&[])?;
    ensure_error!(stranger.call(Call::PdxCall, &[add_entry().0, 1, PD_EMPTY, 2, 0, 0])?, Protection);
    stranger.end()?;
    let mut forged = Clist::create()?;
    forged.insert(Capability { address: service.image, password: service.password ^ 1 })?;
    let forger = Puppet::start(&[&forged])?;
    ensure_error!(forger.call(Call::PdxCall, &[add_entry().0, 1, PD_MERGE, 2, 0, 0])?, Protection);
    forger.end()?;
    // To read and run the object is not to call it.
    let mut reader = Clist::create()?;
    let password = call::obj_passwd(service.image, 0, Rights::RWX.bits().into())?;
    reader.insert(Capability { address: service.image, password })?;
    let puppet = Puppet::start(&[&reader])?;
    ensure!(puppet.peek(service.image)?.is_some());
    ensure!(puppet.call(Call::PdxCall, &[add_entry().0, 1, PD_EMPTY, 2, 0, 0])?.is_err());
    puppet.end()?;
    let client = Puppet::start(&[&service.client_clist()?])?;
    ensure_eq!(client.call(Call::PdxCall, &[add_entry().0, 1, PD_EMPTY, 2, 0, 0])??.0, 3);
    client.end()
}

fn revoked(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    let ask = |pd| puppet.call(Call::PdxCall, &[add_entry().0, 1, pd, 2, 0, 0]);
    for _ in 0..3 {
        ask(PD_EMPTY)??;
        ask(PD_MERGE)??;
    }
    call::obj_passwd(service.image, service.password, 0)?;
    ensure_error!(ask(PD_EMPTY)?, Protection);
    ensure_error!(ask(PD_MERGE)?, Protection);
    ensure!(call::pdx_call(add_entry().0, 1, PD_EMPTY, 2, 0, 0).is_err());
    puppet.end()
}

fn revoked_while_inside(_: &Setting) -> Outcome {
    let service = Service::open(&[])?;
    let puppet = Puppet::start(&[&service.client_clist()?])?;
    INSIDE.store(0, SeqCst);
    let inside = puppet.begin_call(Call::PdxCall, &[linger_entry().0, 30, PD_EMPTY])?;
    wait_until("it is inside", || INSIDE.load(SeqCst) == 1)?;
    call::obj_passwd(service.image, service.password, 0)?;
    let ended = inside.finish()?;
    ensure!(matches!(ended, Ok((30, 0)) | Err(Error::CalleeFault)), "{ended:?}");
    ensure_error!(puppet.call(Call::PdxCall, &[linger_entry().0, 1, PD_EMPTY])?, Protection);
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
        let password = call::obj_cre_pdx(object.base(), 0, list.object().base(), &[object.base()])?;
        let mut client = Clist::create()?;
        client.insert(Capability { address: object.base(), password })?;
        let apd = apd_of(&[&client]);
        let options = rt::task::Options { priority: PRIORITY_DEFAULT - 1, ..confined(&apd) };
        let task = crate::assistant::start("callee-object", &[object.base(), pd], &options)?;
        wait_until("it is inside", || call::thread_info(task.thread()).is_ok_and(|info| info.depth == 1))?;
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
            let answer = call::pdx_call(fault_entry().0, way, pd, 0, 0, 0);
            ensure!(answer == Err(Error::CalleeFault), "way {way}, pd {pd}: {answer:?}");
        }
        // The domain is as good as before.
        ensure_eq!(call::pdx_call(add_entry().0, 1, pd, 2, 0, 0)?.0, 3);
    }
    ensure_eq!(call::thread_info(0)?.depth, 0);
    Ok(())
}

fn inner_callee_faults(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    for (outer, inner) in [(PD_EMPTY, PD_EMPTY), (PD_EMPTY, PD_MERGE), (PD_MERGE, PD_EMPTY), (PD_MERGE, PD_MERGE)] {
        let told = call::pdx_call(around_entry().0, 0, outer, inner, 0, 0)?;
        ensure_eq!(told, (Error::CalleeFault as u64, 2));
    }
    Ok(())
}

fn handlers_stay_outside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    arch::handlers::skip_null()?;
    let before = arch::handlers::calls();
    for pd in [PD_EMPTY, PD_MERGE] {
        ensure_error!(call::pdx_call(fault_entry().0, 0, pd, 0, 0, 0), CalleeFault);
    }
    ensure_eq!(arch::handlers::calls(), before);
    Ok(())
}

fn domain_is_sealed(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    let list = Clist::create()?;
    let before = call::apd_get()?;
    for pd in [PD_EMPTY, PD_MERGE] {
        let inside = |number: Call, a: u64, b: u64| call::pdx_call(call_entry().0, number as u64, pd, a, b, 0);
        ensure_eq!(inside(Call::ApdInsert, 0, list.object().base())?.0, Error::Locked as u64);
        ensure_eq!(inside(Call::ApdDelete, 0, 0)?.0, Error::Locked as u64);
        ensure_eq!(inside(Call::ApdLock, 0, 0)?.0, Error::Locked as u64);
        // What it does to threads, it does to its own.
        ensure_eq!(inside(Call::ThreadMyId, 0, 0)?, (0, call::thread_my_id()));
        ensure_eq!(inside(Call::ThreadDelete, call::thread_info(0)?.parent, 0)?.0, Error::NoSuchThread as u64);
        ensure_eq!(inside(Call::SystemControl, 99, 0)?.0 != 0, true);
    }
    ensure_eq!(call::apd_get()?, before);
    Ok(())
}

fn many_threads_inside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    INSIDE.store(0, SeqCst);
    for domain in BOTH {
        let mut threads = alloc::vec::Vec::new();
        for _ in 0..40 {
            threads.push(thread::spawn(move || match pdx::call(linger_entry(), domain, [5, 0, 0, 0]) {
                Ok((5, 0)) => 0,
                Ok(_) => 1,
                Err(error) => 100 + error as u64,
            })?);
        }
        for thread in threads {
            ensure_eq!(thread.join_status()?, 0);
        }
    }
    ensure_eq!(INSIDE.load(SeqCst), 0);
    Ok(())
}

fn caller_ended_inside(_: &Setting) -> Outcome {
    let _service = Service::open(&[])?;
    INSIDE.store(0, SeqCst);
    // One that comes back soon ends then; one that does not is ended by force after a while.
    for ms in [20, 1_000_000] {
        let thread = thread::spawn(move || u64::from(pdx::call(linger_entry(), Domain::Empty, [ms, 0, 0, 0]).is_err()))?;
        wait_until("it is inside", || call::thread_info(thread.id()).is_ok_and(|info| info.depth == 1))?;
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
        let refused = call::obj_cre_pdx(base, 0, clist, entries);
        ensure!(matches!(refused, Err(Error::NotAnEntry | Error::BadArgument | Error::BadAddress)), "{entries:x?}: {refused:?}");
    }
    ensure_error!(call::obj_cre_pdx(base, 0, base, &[base]), BadClist);
    for bad in [8, 1 << 47, u64::MAX] {
        ensure!(call::obj_cre_pdx(base, 0, bad, &[base]).is_err());
    }
    let raw = |count: u64, entries: u64| arch::system_call(Call::ObjCrePdx as u64, [base, 0, clist, entries, count, 0]).result();
    for count in [ENTRIES_MAX as u64 + 1, 1 << 32, 1 << 61, u64::MAX] {
        ensure!(raw(count, base).is_err(), "{count:#x} entries are taken");
    }
    for place in [0, 1 << 47, u64::MAX - 7, base + 2 * PAGE - 4] {
        ensure!(raw(1, place).is_err(), "entries at {place:#x} are taken");
    }
    // Without a Clist the callee cannot even run its code: a fault, not a failure of the system.
    arch::write_bytes(base, arch::RETURN_CODE);
    call::obj_cre_pdx(base, 0, 0, &[base])?;
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
        match call::obj_cre_pdx(object.base(), 0, list.object().base(), &[object.base()]) {
            Ok(password) => passwords.push(password),
            Err(error) => break error,
        }
        ensure!(passwords.len() <= PDX_MAX, "it has {} PDX capabilities", passwords.len());
    };
    ensure_eq!((refused, passwords.len()), (Error::TableFull, PDX_MAX));
    let most: alloc::vec::Vec<u64> = (0..ENTRIES_MAX as u64).map(|index| object.base() + index).collect();
    call::obj_passwd(object.base(), passwords[0], 0)?;
    call::obj_cre_pdx(object.base(), 0, list.object().base(), &most)?;
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
                puppet.call(Call::PdxCall, &[add_entry().0, 1, PD_MERGE, 1, 0, 0])??;
            }
            _ => thread::yield_now(),
        }
    }
    puppet.end()
}
