//! The calls that are made: which one, with which arguments, and what is left out.
//!
//! Left out, because nobody could tell the harm from the user's wish or a defect of the suite: reading
//! the console; writing there what can be read; starting threads and tasks in code that may never end.
//! What `KeepObject` keeps must not stay on the user's disk for ever: every object has an owner's
//! capability with a password that the case knows, which is never taken away.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Call, Error, call::TABLE, layout::STREAM_CONTROL};
use rt::{call, call::Answer};

use crate::{arch, random::Random};

use super::pool::{PASSWORD, RETURN_AT, Surroundings, boundary, small, time};

/// Calls that a protected procedure makes inside, when a step enters it.
const INNER_CALLS: u64 = 40;
/// One step in so many enters it.
const INNER_RARITY: u64 = 300;

/// A call with its arguments.
pub type Described = (u64, [u64; 6]);

/// Takes a step; gives how many calls it made.
pub fn step(surroundings: &mut Surroundings, seed: u64, step: u64) -> u64 {
    let mut random = Random::at(seed, step);
    if random.one_in(64) {
        surroundings.fill_buffer(&mut random);
    }
    if random.one_in(INNER_RARITY) {
        INNER.store(core::ptr::from_mut(surroundings) as u64, Relaxed);
        INNER_SEED.store(random.word(), Relaxed);
        // Merged, it sees what the assistant has; what it makes there is its own.
        let _ = call::pdx_call(inner_entry().0, random.word(), abi::layout::PD_MERGE, 0, 0, 0);
        return 1 + INNER_CALLS;
    }
    one_call(surroundings, &mut random)
}

/// The surroundings and the seed of the procedure below.
static INNER: AtomicU64 = AtomicU64::new(0);
static INNER_SEED: AtomicU64 = AtomicU64::new(0);

rt::pdx_entry!(pub inner_entry, inner);
/// Makes calls from within a protected procedure. The surroundings themselves stay outside: it makes up
/// its own from what it finds in registers and at the edges of things.
fn inner(word: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    let mut random = Random::at(word, INNER_SEED.load(Relaxed));
    for _ in 0..INNER_CALLS {
        let (number, mut arguments) = plain_call(&mut random);
        if number == Call::PdxReturn as u64 {
            continue;
        }
        for argument in &mut arguments {
            if random.one_in(4) {
                *argument = INNER.load(Relaxed);
            }
        }
        if let Some((number, arguments)) = harmless(number, arguments, &mut random) {
            arch::system_call(number, arguments);
        }
    }
    (0, 0)
}

/// Numbers that calls have, and some that they do not.
fn number(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => small(random),
        1 if random.one_in(4) => random.word(),
        1 => boundary(random),
        _ => TABLE.get(random.below(TABLE.len() as u64) as usize).map_or(0, |info| info.number),
    }
}

/// A call with arguments that need no surroundings.
fn plain_call(random: &mut Random) -> Described {
    let number = number(random);
    let arguments = core::array::from_fn(|_| match random.below(4) {
        0 => boundary(random),
        1 => small(random),
        2 => time(random),
        _ => random.word(),
    });
    (number, arguments)
}

fn one_call(surroundings: &mut Surroundings, random: &mut Random) -> u64 {
    let number = number(random);
    let mut arguments: [u64; 6] = core::array::from_fn(|_| surroundings.word(random));
    if let Some(call) = Call::from_number(number) {
        fit(surroundings, call, &mut arguments, random);
    }
    let Some((number, arguments)) = harmless(number, arguments, random) else { return 0 };
    let answer = arch::system_call(number, arguments);
    1 + note(surroundings, number, &arguments, answer, random)
}

/// Makes arguments fit their call, most of the time, or every call would be refused at once.
fn fit(surroundings: &Surroundings, call: Call, arguments: &mut [u64; 6], random: &mut Random) {
    if let Call::TaskCreate | Call::ThreadCreate = call {
        // Only code that ends, or none at all. A task takes the object along that it begins in.
        let entry = surroundings.code + if random.one_in(2) { 0 } else { RETURN_AT };
        let rarely = if call == Call::TaskCreate { 20 } else { 2 };
        arguments[0] = if random.one_in(rarely) { entry } else { boundary(random) };
        return;
    }
    if random.one_in(12) {
        return;
    }
    match call {
        Call::ObjCreate => *arguments = [super::pool::size(random), surroundings.password(random), 0, 0, 0, 0],
        Call::ObjClone | Call::ObjResize => {
            arguments[0] = surroundings.address(random);
            arguments[1] = super::pool::size(random);
        }
        Call::ObjPasswd => {
            arguments[0] = surroundings.address(random);
            arguments[1] = surroundings.password(random);
            arguments[2] = random.below(33);
        }
        Call::ObjCrePdx => {
            arguments[0] = surroundings.address(random);
            arguments[2] = if random.one_in(2) { surroundings.clist } else { surroundings.address(random) };
            arguments[3] = surroundings.buffer + 8 * random.below(8);
            arguments[4] = random.below(200);
        }
        Call::PageCopy => *arguments = [surroundings.page(random), surroundings.page(random), small(random), 0, 0, 0],
        Call::PageUnMap | Call::PageLimit | Call::PageFlush => {
            arguments[0] = surroundings.page(random);
            arguments[1] = small(random);
            arguments[2] = random.below(9);
        }
        Call::PdxCall => {
            arguments[0] = if random.one_in(2) { surroundings.code + RETURN_AT } else { surroundings.address(random) };
            arguments[2] = match random.below(4) {
                0 => abi::layout::PD_MERGE,
                1 => abi::layout::PD_EMPTY,
                2 => surroundings.buffer + 256,
                _ => surroundings.address(random),
            };
        }
        Call::ThreadDelete if !random.one_in(50) => {
            arguments[0] = *surroundings.threads.first().unwrap_or(&1);
            if arguments[0] == call::thread_my_id() {
                arguments[0] = 1;
            }
        }
        Call::ThreadWait => {
            arguments[0] = if random.one_in(2) { 0 } else { surroundings.threads[random.below(4) as usize] };
            arguments[1] = time(random);
            arguments[2] = if random.one_in(2) { surroundings.buffer } else { arguments[2] };
        }
        Call::ThreadSleep => {
            arguments[0] = if random.one_in(2) { 0 } else { surroundings.threads[random.below(4) as usize] };
            arguments[1] = if arguments[0] == call::thread_my_id() || arguments[0] == 0 { time(random) } else { arguments[1] };
        }
        Call::SemWait => arguments[1] = time(random),
        Call::AddressWait => {
            arguments[0] &= !3;
            arguments[1] = random.below(2);
            arguments[2] = time(random);
        }
        Call::ExcptReg => {
            arguments[0] = random.below(10);
            arguments[1] = if random.one_in(2) { 0 } else { surroundings.address(random) };
        }
        Call::SystemInfo => *arguments = [random.below(8), surroundings.word(random), surroundings.address(random), 0, 0, 0],
        Call::ApdInsert => *arguments = [random.below(18), if random.one_in(3) { surroundings.address(random) } else { surroundings.clist }, 0, 0, 0, 0],
        // Locking all is for ever: rarely.
        Call::ApdLock if !random.one_in(20) => arguments[0] = 16 + random.below(1000),
        _ => {}
    }
}

/// Times stay short where the dice gave something else, and what is left out is left out.
fn harmless(number: u64, mut arguments: [u64; 6], random: &mut Random) -> Option<Described> {
    match Call::from_number(number) {
        Some(Call::ConsoleRead) => return None,
        Some(Call::ObjCreate) => arguments[1] = PASSWORD,
        Some(Call::ObjClone) => arguments[2] = PASSWORD,
        Some(Call::ObjPasswd | Call::ObjCrePdx) if arguments[1] == PASSWORD => arguments[1] ^= 1,
        Some(Call::ConsoleWrite) if arguments[0] <= STREAM_CONTROL => arguments[1] = boundary(random),
        Some(Call::SemWait | Call::ThreadWait) if !random.one_in(100) => arguments[1] = arguments[1].min(20_000),
        Some(Call::AddressWait) if !random.one_in(100) => arguments[2] = arguments[2].min(20_000),
        Some(Call::ThreadSleep) if arguments[0] == 0 && !random.one_in(100) => arguments[1] = arguments[1].min(20_000),
        _ => {}
    }
    Some((number, arguments))
}

/// Remembers what a call gave. Gives the calls that this took.
fn note(surroundings: &mut Surroundings, number: u64, arguments: &[u64; 6], answer: Answer, random: &mut Random) -> u64 {
    check(number, answer);
    let Ok((value, value2)) = answer.result() else { return 0 };
    surroundings.values[random.below(4) as usize] = if random.one_in(4) { value2 } else { value };
    match Call::from_number(number) {
        Some(Call::ObjCreate | Call::ObjClone) => {
            surroundings.note_object(value);
            if random.one_in(2) && arguments[0] != 0 {
                arch::store(value, random.word());
            }
        }
        Some(Call::KeepObject) => {
            // It may have been the code; then this is the end. Without a capability for it in the
            // Clist it is the case that has to delete it.
            let _ = call::obj_delete(arguments[0]);
            return 1;
        }
        Some(Call::ThreadCreate) => surroundings.note_thread(value),
        Some(Call::TaskCreate) => {
            surroundings.note_thread(value);
            // The code went with the task.
            if let Ok((code, _)) = call::obj_create(abi::address::PAGE, PASSWORD) {
                arch::write_bytes(code, arch::END_CODE);
                arch::write_bytes(code + RETURN_AT, arch::RETURN_CODE);
                surroundings.code = code;
            }
            return 1;
        }
        _ => {}
    }
    0
}

/// Status of an assistant that got an answer which is neither a success nor an error of the table, or
/// the wrong one of the two; with the call's number in the low half.
pub const STATUS_BAD_ANSWER: u64 = 0xbad_0000;

fn check(number: u64, answer: Answer) {
    let known = answer.error == 0 || Error::from_code(answer.error).is_some();
    let unknown_call = Call::from_number(number).is_none();
    if !known || unknown_call != (answer.error == Error::BadCall as u64) {
        rt::exit(STATUS_BAD_ANSWER + (number & 0xffff));
    }
}
