//! Arguments that fit their call, most of the time, or every call would be refused at once.

use abi::{
    Call,
    layout::{PD_EMPTY, PD_MERGE},
};
use rt::call;

use super::pool::{RETURN_AT, Surroundings, boundary, size, small, time};
use testing::Random;

/// Makes arguments fit, most of the time.
pub fn fit(surroundings: &Surroundings, call: Call, arguments: &mut [u64; 6], random: &mut Random) {
    if let Call::TaskCreate | Call::ThreadCreate = call {
        // Only code that ends, or none at all. A task takes the object along that it begins in.
        let entry = surroundings.code + if random.one_in(2) { 0 } else { RETURN_AT };
        let rarely = if call == Call::TaskCreate { 20 } else { 2 };
        arguments[0] = if random.one_in(rarely) { entry } else { boundary(random) };
    } else if !random.one_in(12) {
        fit_memory(surroundings, call, arguments, random);
        fit_control(surroundings, call, arguments, random);
    }
}

/// The word, or in half of the cases an address.
fn or_address(surroundings: &Surroundings, word: u64, random: &mut Random) -> u64 {
    if random.one_in(2) {
        surroundings.address(random)
    } else {
        word
    }
}

/// Objects, pages, domains.
fn fit_memory(surroundings: &Surroundings, call: Call, arguments: &mut [u64; 6], random: &mut Random) {
    match call {
        Call::ObjCreate => arguments[0] = size(random),
        Call::ObjClone | Call::ObjResize => {
            arguments[0] = surroundings.address(random);
            arguments[1] = size(random);
        }
        Call::ObjPasswd => {
            arguments[0] = surroundings.address(random);
            arguments[1] = surroundings.password(random);
            arguments[2] = random.below(33);
        }
        Call::ObjCrePdx => {
            arguments[0] = surroundings.address(random);
            arguments[2] = or_address(surroundings, surroundings.clist, random);
            arguments[3] = surroundings.buffer + 8 * random.below(8);
            arguments[4] = random.below(200);
        }
        Call::PageCopy => {
            arguments[0] = surroundings.page(random);
            arguments[1] = surroundings.page(random);
            arguments[2] = small(random);
        }
        Call::PageUnMap | Call::PageLimit | Call::PageFlush => {
            arguments[0] = surroundings.page(random);
            arguments[1] = small(random);
            arguments[2] = random.below(9);
        }
        Call::PageFlushAll => {
            arguments[0] = surroundings.buffer + 8 * random.below(8);
            arguments[1] = random.below(18);
        }
        Call::ApdInsert => {
            arguments[0] = random.below(18);
            arguments[1] = or_address(surroundings, surroundings.clist, random);
        }
        // Locking all is for ever: rarely.
        Call::ApdLock if !random.one_in(20) => arguments[0] = 16 + random.below(1000),
        _ => {}
    }
}

/// Protected calls, threads, waiting.
fn fit_control(surroundings: &Surroundings, call: Call, arguments: &mut [u64; 6], random: &mut Random) {
    let thread = surroundings.threads[random.below(4) as usize];
    match call {
        Call::PdxCall => {
            arguments[0] = or_address(surroundings, surroundings.code + RETURN_AT, random);
            let kinds = [
                PD_MERGE,
                PD_EMPTY,
                surroundings.description(),
                surroundings.address(random),
            ];
            arguments[2] = kinds[random.below(4) as usize];
        }
        Call::ThreadDelete if !random.one_in(50) => {
            let own = thread == 0 || thread == call::thread_my_id();
            arguments[0] = if own { 1 } else { thread };
        }
        Call::ThreadWait => {
            arguments[0] = if random.one_in(2) { 0 } else { thread };
            arguments[1] = time(random);
            arguments[2] = or_address(surroundings, surroundings.buffer, random);
            arguments[3] = room(random);
        }
        Call::ThreadSleep => {
            arguments[0] = if random.one_in(2) { 0 } else { thread };
            if arguments[0] == 0 || thread == call::thread_my_id() {
                arguments[1] = time(random);
            }
        }
        Call::SemWait => arguments[1] = time(random),
        Call::AddressWait => {
            arguments[0] &= !3;
            arguments[1] = random.below(2);
            arguments[2] = time(random);
        }
        Call::ExcptReg => {
            arguments[0] = random.below(10);
            arguments[1] = or_address(surroundings, 0, random);
        }
        Call::SystemInfo => {
            arguments[0] = random.below(8);
            arguments[2] = surroundings.address(random);
            arguments[3] = room(random);
        }
        Call::ObjInfo => arguments[3] = room(random),
        Call::ThreadInfo => arguments[2] = room(random),
        Call::ApdGet => arguments[1] = room(random),
        _ => {}
    }
}

/// Room for a report: enough, too little, or far too much.
fn room(random: &mut Random) -> u64 {
    if random.one_in(20) {
        random.word()
    } else {
        random.below(200)
    }
}
