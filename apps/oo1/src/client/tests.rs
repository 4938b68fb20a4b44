//! The reference values of the specification (section 9), on the host.

use super::{Operation, Work, deliver, run_rounds};
use crate::database::{Database, size};
use rt::Region;
use std::{cell::RefCell, sync::Mutex};

thread_local! {
    static MEMORY: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The accumulator is one for the program.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn with_database<R>(look: impl FnOnce(Database<'_>) -> R) -> R {
    MEMORY.with_borrow_mut(|memory| {
        let aligned = memory.as_ptr().align_offset(4096);
        look(Database::open(Region::over(&mut memory[aligned..])).expect("a database"))
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a call")]
fn call(operation: Operation, w0: u64, w1: u64, w2: u64) -> Option<u64> {
    let deliver = |[w0, w1, w2, w3]: [u64; 4]| deliver(w0, w1, w2, w3);
    Some(with_database(|database| match operation {
        Operation::Lookup => database.lookup(w0, deliver),
        Operation::Forward => database.forward(w0, deliver),
        Operation::Reverse => database.reverse(w0, deliver),
        Operation::Insert => database.insert([w0, w1, w2], deliver),
        Operation::Undo => database.undo(),
        Operation::Digest => database.digest(),
    }))
}

fn make(initial: u32) {
    MEMORY.with_borrow_mut(|memory| {
        *memory = vec![0; size(initial) as usize / 8 + 512];
        let aligned = memory.as_ptr().align_offset(4096);
        let made = Database::make(Region::over(&mut memory[aligned..]), initial);
        assert!(made.is_some());
    });
}

struct Reference {
    initial: u32,
    size: u64,
    digest: u64,
    starts: [u64; 3],
    visits: u64,
    checksums: [u64; 4],
    checksum: u64,
}

fn check(reference: &Reference) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(size(reference.initial), reference.size);
    make(reference.initial);
    assert_eq!(with_database(|database| database.digest()), reference.digest);
    let work = Work::prepare(reference.initial);
    assert_eq!([work.ids[0], work.forward_start, work.reverse_start], reference.starts);
    let measured = run_rounds(&work, &call, || 0).expect("equal rounds");
    assert_eq!(measured.visits, reference.visits);
    assert_eq!(measured.checksums, reference.checksums);
    assert_eq!(measured.checksum, reference.checksum);
    assert_eq!(measured.digest, reference.digest);
    assert_eq!(with_database(|database| database.digest()), reference.digest);
}

#[test]
fn a_thousand_parts() {
    check(&Reference {
        initial: 1_000,
        size: 376_832,
        digest: 0x27a6_d994_9d35_8a3d,
        starts: [776, 44, 262],
        visits: 967,
        checksums: [
            0x4546_1884_3942_a6e8,
            0x9c84_2c19_42f9_9890,
            0xf487_d22f_15f1_0843,
            0x42a6_6698_91a6_c92d,
        ],
        checksum: 0x844f_6cfe_9456_ef72,
    });
}

#[test]
fn the_small_database() {
    check(&Reference {
        initial: 20_000,
        size: 3_874_816,
        digest: 0x74b8_631b_ff48_da24,
        starts: [15_509, 862, 5_229],
        visits: 3_526,
        checksums: [
            0x6400_9d69_be26_23a3,
            0x65a4_db71_7168_f66d,
            0x2e57_0055_de83_513e,
            0x0d18_d78e_0c53_812c,
        ],
        checksum: 0x2859_0a48_b291_78e6,
    });
}

/// An interrupted insert is undone by the next client, whatever was already connected.
#[test]
fn undo_restores_after_any_insert() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    make(200);
    let before = with_database(|database| database.digest());
    let work = Work::prepare(200);
    for [w0, w1, w2] in &work.inserts[..7] {
        assert_ne!(call(Operation::Insert, *w0, *w1, *w2), Some(0));
    }
    assert_ne!(with_database(|database| database.digest()), before);
    assert_eq!(call(Operation::Undo, 0, 0, 0), Some(7));
    assert_eq!(with_database(|database| database.digest()), before);
}

/// A database whose bytes are anything gives wrong answers, but answers.
#[test]
fn damage_is_survived() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut seed = 1u64;
    for _ in 0..50 {
        make(200);
        MEMORY.with_borrow_mut(|memory| {
            for _ in 0..200 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = 1024 + (seed >> 33) as usize % (memory.len() - 1024);
                // Words that are no pointers into the database: pointers into it could make a ring.
                memory[at] = seed | 1 << 63;
            }
        });
        let work = Work::prepare(200);
        for id in &work.ids[..20] {
            assert!(call(Operation::Lookup, *id, 0, 0).is_some());
            assert!(call(Operation::Forward, *id, 0, 0).is_some());
            assert!(call(Operation::Reverse, *id, 0, 0).is_some());
        }
        assert!(call(Operation::Digest, 0, 0, 0).is_some());
    }
}
