//! The calls that are made: which one, with which arguments, and what is left out.
//!
//! Left out, because nobody could tell the harm from the user's wish or a defect of the suite: reading
//! the console; writing there what can be read; starting threads and tasks in code that may never end.
//! Objects that `KeepObject` keeps must not stay on the user's disk for ever: every object has an owner's
//! capability with a password that the case knows, which is never taken away.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Call, Error, call::TABLE, layout::STREAM_CONTROL};
use rt::{call, call::Answer};

use crate::arch;
use testing::Random;

use super::pool::{PASSWORD, RETURN_AT, Surroundings, boundary, small, time};

/// Calls that a protected procedure makes inside, when a step enters it.
const INNER_CALLS: u64 = 40;
/// One step in so many enters it.
const INNER_RARITY: u64 = 300;

/// A call with its arguments.
pub type Described = (u64, [u64; 6]);

/// The result of a step.
#[derive(Copy, Clone, Debug, Default)]
pub struct Done {
    /// Calls made.
    pub made: u64,
    /// How many of them succeeded.
    pub succeeded: u64,
}

/// Takes a step.
pub fn step(surroundings: &mut Surroundings, seed: u64, step: u64) -> Done {
    let mut random = Random::at(seed, step);
    if random.one_in(64) {
        surroundings.fill_buffer(&mut random);
    }
    if random.one_in(INNER_RARITY) {
        INNER.store(core::ptr::from_mut(surroundings) as u64, Relaxed);
        INNER_SEED.store(random.word(), Relaxed);
        // Merged, it sees what the assistant has; what it makes there is its own.
        return match call::pdx_call(inner_entry().address(), random.word(), abi::layout::PD_MERGE, 0, 0, 0) {
            // One of its calls may have returned from it, with any numbers.
            Ok((made, succeeded)) if made <= INNER_CALLS => Done {
                made: 1 + made,
                succeeded: 1 + succeeded.min(made),
            },
            Ok(_) => Done { made: 1, succeeded: 1 },
            Err(_) => Done { made: 1, succeeded: 0 },
        };
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
    let (mut made, mut succeeded) = (0, 0);
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
            made += 1;
            succeeded += u64::from(arch::system_call(number, arguments).error == 0);
        }
    }
    (made, succeeded)
}

/// Numbers that calls have, and some that they do not.
fn number(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => small(random),
        1 if random.one_in(4) => random.word(),
        1 => boundary(random),
        _ => TABLE
            .get(random.below(TABLE.len() as u64) as usize)
            .map_or(0, |info| info.number),
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

fn one_call(surroundings: &mut Surroundings, random: &mut Random) -> Done {
    let number = number(random);
    let mut arguments: [u64; 6] = core::array::from_fn(|_| surroundings.word(random));
    if let Some(call) = Call::from_number(number) {
        super::arguments::fit(surroundings, call, &mut arguments, random);
    }
    let Some((number, arguments)) = harmless(number, arguments, random) else {
        return Done::default();
    };
    CALLED.store(number, Relaxed);
    let answer = arch::system_call(number, arguments);
    if CALLED.load(Relaxed) != number {
        rt::exit(STATUS_SPOILT);
    }
    note(surroundings, number, &arguments, answer, random);
    Done {
        made: 1,
        succeeded: u64::from(answer.error == 0),
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
        // One that is put to sleep for ever by somebody who then dies has nobody to wake it.
        Some(Call::ThreadSleep) if arguments[0] != 0 && arguments[1] == abi::layout::FOREVER => arguments[1] -= 1,
        _ => {}
    }
    Some((number, arguments))
}

/// Remembers what a call gave.
fn note(surroundings: &mut Surroundings, number: u64, arguments: &[u64; 6], answer: Answer, random: &mut Random) {
    check(number, answer);
    let Ok((value, value2)) = answer.result() else { return };
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
            arch::system_call(Call::ObjDelete as u64, [arguments[0], 0, 0, 0, 0, 0]);
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
        }
        _ => {}
    }
}

/// Status of an assistant that got an answer which is neither a success nor an error of the table, or
/// the wrong one of the two; with the call's number in the low 16 bits, and the error in those above.
pub const STATUS_BAD_ANSWER: u64 = 0xbad_0000_0000;
/// Status of one whose own call wrote over the words by which it judges the answer: buffers may lie on
/// its stack, where the compiler keeps the call's number meanwhile. It counts as one that died.
const STATUS_SPOILT: u64 = 0x5b01_0000;

/// The call under way, once more, far from the stack.
static CALLED: AtomicU64 = AtomicU64::new(0);

fn check(number: u64, answer: Answer) {
    let known = answer.error == 0 || Error::from_code(answer.error).is_some();
    let unknown_call = Call::from_number(number).is_none();
    if !known || unknown_call != (answer.error == Error::BadCall as u64) {
        rt::exit(STATUS_BAD_ANSWER | (answer.error & 0xffff) << 16 | number & 0xffff);
    }
}
