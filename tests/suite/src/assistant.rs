//! Assistants: tasks from the same image that play a part, in a protection domain that the case
//! chooses. Many are there to die.
//!
//! A [`Puppet`] is an assistant that does, one by one, what the case asks through a shared page:
//! system calls, loads, stores, calls. So a case reads as a story of several domains.

use alloc::{string::String, vec::Vec};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::{
    Call, Rights,
    layout::{ApdDescription, Capability, ExitReport, FOREVER, PRIORITY_DEFAULT},
};
use rt::{
    Clist, Directory, Object,
    call::Answer,
    task::{Options, Program, Task},
};

use crate::{
    arch,
    case::{Failure, Outcome, Role, ensure, role},
};

/// The program's name in the root directory.
const PROGRAM: &str = "suite";
/// How long anything simple may take.
pub const PATIENCE_NS: u64 = 5_000_000_000;

/// An active protection domain of these Clists.
pub fn apd_of(clists: &[&Clist]) -> ApdDescription {
    let mut apd = ApdDescription::default();
    for (slot, clist) in apd.slots.iter_mut().zip(clists) {
        *slot = clist.object().base();
        apd.count += 1;
    }
    apd
}

/// A Clist that grants one object by a new password, which is given too.
pub fn clist_granting(object: &Object, rights: Rights) -> Outcome<(Clist, u64)> {
    let mut clist = Clist::create()?;
    let password = grant(&mut clist, object, rights)?;
    Ok((clist, password))
}

/// Registers a new password of an object and enters it.
pub fn grant(clist: &mut Clist, object: &Object, rights: Rights) -> Outcome<u64> {
    let password = object.grant(rights)?;
    clist.insert(Capability {
        address: object.base(),
        password,
    })?;
    Ok(password)
}

/// The suite's own program, to start again.
pub fn program() -> Outcome<Program> {
    let root = Directory::root()?;
    let name = rt::arguments::program();
    Ok(Program::find(&root, name).or_else(|_| Program::find(&root, PROGRAM))?)
}

/// Starts an assistant. Without an APD it inherits that of the case.
pub fn start(role: &str, numbers: &[u64], options: &Options<'_>) -> Outcome<Task<'static>> {
    let texts: Vec<String> = numbers.iter().map(|number| alloc::format!("{number:#x}")).collect();
    let mut arguments: Vec<&str> = alloc::vec!["--assistant", role];
    arguments.extend(texts.iter().map(String::as_str));
    Ok(program()?.start(PROGRAM, &arguments, options)?)
}

/// Options for an assistant with that APD.
pub fn confined(apd: &ApdDescription) -> Options<'_> {
    Options {
        apd: Some(apd),
        ..Options::default()
    }
}

/// The report of a task that has to end by itself now. One that does not is ended.
pub fn report_of(task: &Task<'_>, patience_ns: u64) -> Outcome<ExitReport> {
    match task.wait_for(patience_ns) {
        Ok(shown) => Ok(shown.report),
        Err(abi::Error::TimedOut) => {
            task.end(1)?;
            task.wait_for(PATIENCE_NS)?;
            Err(Failure::new(format_args!("the assistant did not end")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs an assistant to its end.
pub fn run(role: &str, numbers: &[u64], options: &Options<'_>) -> Outcome<ExitReport> {
    report_of(&start(role, numbers, options)?, PATIENCE_NS)
}

/// Runs an assistant that has to end with a status of its own.
pub fn run_well(role: &str, numbers: &[u64], options: &Options<'_>, status: u64) -> Outcome {
    let report = run(role, numbers, options)?;
    ensure!(
        report.exception == 0 && report.status == status,
        "assistant '{role}' ended so: {report:x?}, not with {status}"
    );
    Ok(())
}

/// Waits until a condition holds; fails if that takes too long.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) -> Outcome {
    let end = rt::time::since_boot_ns() + PATIENCE_NS;
    while !condition() {
        ensure!(rt::time::since_boot_ns() < end, "it did not happen: {what}");
        rt::time::sleep_ms(1)?;
    }
    Ok(())
}

rt::persist! {
    /// The page that a case and its puppet share.
    struct Strings {
        /// Counts requests; the puppet waits on it.
        asked: AtomicU32,
        /// Counts answers; the case waits on it.
        answered: AtomicU32,
        /// The task: a [`Deed`] or a call's number above [`Deed::CALLS`].
        deed: AtomicU64,
        /// With what.
        arguments: [AtomicU64; 6],
        /// How it went: error, value, second value.
        answer: [AtomicU64; 3],
    }
}

const DEED_PEEK: u64 = 0;
const DEED_POKE: u64 = 1;
const DEED_FETCH: u64 = 2;
const DEED_END: u64 = 3;
const DEED_CALL: u64 = 1 << 32;

/// A task that does what it is told.
#[derive(Debug)]
pub struct Puppet {
    task: Task<'static>,
    strings: Object,
    own: Clist,
}

impl Puppet {
    /// A puppet whose APD is these Clists, behind one that grants the page it shares with the case.
    pub fn start(clists: &[&Clist]) -> Outcome<Self> {
        Self::start_with(clists, 0, 0)
    }

    /// As [`Puppet::start`], with so many leading slots locked and so many pages at most (0: no bound
    /// of its own).
    pub fn start_with(clists: &[&Clist], locked: u64, limit_pages: u64) -> Outcome<Self> {
        let strings = Object::create(abi::address::PAGE)?;
        let (own, _) = clist_granting(&strings, Rights::RW)?;
        let mut all = alloc::vec![&own];
        all.extend_from_slice(clists);
        let apd = ApdDescription { locked, ..apd_of(&all) };
        let options = Options {
            limit_pages,
            ..confined(&apd)
        };
        let task = start("puppet", &[strings.base()], &options)?;
        Ok(Self { task, strings, own })
    }

    /// Its task.
    pub fn task(&self) -> &Task<'static> {
        &self.task
    }

    fn strings(&self) -> Outcome<&Strings> {
        Ok(self.strings.first()?)
    }

    /// Tells it to do something, and does not wait.
    fn tell(&self, deed: u64, arguments: [u64; 6]) -> Outcome<u32> {
        let strings = self.strings()?;
        for (place, word) in strings.arguments.iter().zip(arguments) {
            place.store(word, Ordering::Relaxed);
        }
        strings.deed.store(deed, Ordering::Relaxed);
        let number = strings.asked.fetch_add(1, Ordering::Release) + 1;
        rt::call::address_wake(core::ptr::from_ref(&strings.asked) as u64, 1)?;
        Ok(number)
    }

    fn ask(&self, deed: u64, arguments: [u64; 6]) -> Outcome<[u64; 3]> {
        let number = self.tell(deed, arguments)?;
        self.answer(number)
    }

    fn answer(&self, number: u32) -> Outcome<[u64; 3]> {
        let strings = self.strings()?;
        let end = rt::time::since_boot_ns() + PATIENCE_NS;
        loop {
            let answered = strings.answered.load(Ordering::Acquire);
            if answered == number {
                return Ok([0, 1, 2].map(|index| strings.answer[index].load(Ordering::Relaxed)));
            }
            ensure!(rt::time::since_boot_ns() < end, "the puppet does not answer");
            let address = core::ptr::from_ref(&strings.answered) as u64;
            match rt::call::address_wait(address, answered.into(), 20_000_000) {
                Ok(()) | Err(abi::Error::Changed) => {}
                Err(abi::Error::TimedOut) => {
                    if let Ok(shown) = self.task.wait_for(0) {
                        return Err(Failure::new(format_args!("the puppet ended: {shown}")));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets it do a system call.
    pub fn call(&self, call: Call, arguments: &[u64]) -> Outcome<abi::error::Result<(u64, u64)>> {
        let mut all = [0; 6];
        for (place, word) in all.iter_mut().zip(arguments) {
            *place = *word;
        }
        let [error, value, value2] = self.ask(DEED_CALL | call as u64, all)?;
        Ok(Answer { error, value, value2 }.result())
    }

    /// Lets it begin a system call that will not come back before the case has done something.
    pub fn begin_call(&self, call: Call, arguments: &[u64]) -> Outcome<Pending<'_>> {
        let mut all = [0; 6];
        for (place, word) in all.iter_mut().zip(arguments) {
            *place = *word;
        }
        let number = self.tell(DEED_CALL | call as u64, all)?;
        Ok(Pending { puppet: self, number })
    }

    /// Lets it read a word; `None` if that was refused.
    pub fn peek(&self, address: u64) -> Outcome<Option<u64>> {
        let [allowed, word, _] = self.ask(DEED_PEEK, [address, 0, 0, 0, 0, 0])?;
        Ok((allowed != 0).then_some(word))
    }

    /// Lets it write a word; tells whether that was allowed.
    pub fn poke(&self, address: u64, word: u64) -> Outcome<bool> {
        Ok(self.ask(DEED_POKE, [address, word, 0, 0, 0, 0])?[0] != 0)
    }

    /// Lets it call a `ret`; tells whether that was allowed.
    pub fn fetch(&self, address: u64) -> Outcome<bool> {
        Ok(self.ask(DEED_FETCH, [address, 0, 0, 0, 0, 0])?[0] != 0)
    }

    /// The accesses that it has on a word that holds a `ret`, which is written back.
    pub fn accesses(&self, address: u64) -> Outcome<Rights> {
        const RETURN: u64 = 0xc3;
        let mut found = Rights::NONE;
        if self.peek(address)?.is_some() {
            found = found.union(Rights::R);
        }
        if self.poke(address, RETURN)? {
            found = found.union(Rights::W);
        }
        if self.fetch(address)? {
            found = found.union(Rights::X);
        }
        Ok(found)
    }

    /// Lets it end by itself, and waits for that.
    pub fn end(self) -> Outcome {
        self.tell(DEED_END, [0; 6])?;
        let report = report_of(&self.task, PATIENCE_NS)?;
        ensure!(
            report.exception == 0 && report.status == 0,
            "the puppet ended so: {report:x?}"
        );
        self.own.delete()?;
        Ok(self.strings.delete()?)
    }
}

/// A system call that a puppet is in.
#[derive(Debug)]
pub struct Pending<'a> {
    puppet: &'a Puppet,
    number: u32,
}

impl Pending<'_> {
    /// Whether it has come back.
    pub fn is_over(&self) -> Outcome<bool> {
        Ok(self.puppet.strings()?.answered.load(Ordering::Acquire) == self.number)
    }

    /// Waits for it to come back.
    pub fn finish(self) -> Outcome<abi::error::Result<(u64, u64)>> {
        let [error, value, value2] = self.puppet.answer(self.number)?;
        Ok(Answer { error, value, value2 }.result())
    }
}

fn puppet(numbers: &[u64; 6]) -> u64 {
    let Ok(object) = Object::open(numbers[0]) else { return 2 };
    let Ok(strings) = object.first::<Strings>() else {
        return 3;
    };
    if arch::guard().is_err() {
        return 4;
    }
    let address = core::ptr::from_ref(&strings.asked) as u64;
    let mut done = 0;
    loop {
        let asked = strings.asked.load(Ordering::Acquire);
        if asked == done {
            let _ = rt::call::address_wait(address, done.into(), FOREVER);
            continue;
        }
        let arguments = [0, 1, 2, 3, 4, 5].map(|index| strings.arguments[index].load(Ordering::Relaxed));
        let answer = match strings.deed.load(Ordering::Relaxed) {
            DEED_PEEK => arch::peek(arguments[0]).map_or([0; 3], |word| [1, word, 0]),
            DEED_POKE => [arch::poke(arguments[0], arguments[1]).into(), 0, 0],
            DEED_FETCH => [arch::fetch(arguments[0]).into(), 0, 0],
            DEED_END => return 0,
            call => {
                let Answer { error, value, value2 } = arch::system_call(call & !DEED_CALL, arguments);
                [error, value, value2]
            }
        };
        for (place, word) in strings.answer.iter().zip(answer) {
            place.store(word, Ordering::Relaxed);
        }
        done = asked;
        strings.answered.store(done, Ordering::Release);
        let _ = rt::call::address_wake(core::ptr::from_ref(&strings.answered) as u64, 1);
    }
}

/// Touches an address once: 0 reads, 1 writes, 2 jumps there.
fn access(numbers: &[u64; 6]) -> u64 {
    match numbers[1] {
        0 => {
            core::hint::black_box(arch::load(numbers[0]));
            0
        }
        1 => {
            arch::store(numbers[0], 1);
            0
        }
        _ => arch::jump(numbers[0]),
    }
}

/// Counts in a word for ever.
fn count(numbers: &[u64; 6]) -> u64 {
    let mut value = 1;
    loop {
        arch::store(numbers[0], value);
        value += 1;
    }
}

/// Runs for ever and does nothing.
fn spin(_: &[u64; 6]) -> u64 {
    loop {
        core::hint::spin_loop();
    }
}

/// Ends with a status.
fn end(numbers: &[u64; 6]) -> u64 {
    numbers[0]
}

/// The parts that many cases need.
pub const ROLES: &[Role] = &[
    role("puppet", puppet),
    role("access", access),
    role("count", count),
    role("spin", spin),
    role("end", end),
];

/// A priority below that of cases, for assistants that never rest.
pub const PRIORITY_LOW: u64 = PRIORITY_DEFAULT - 1;
