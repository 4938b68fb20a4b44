//! Directories against a model, and against bytes that mean harm.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn data(name: &str, address: u64) -> Entry<'_> {
    Entry {
        name,
        kind: Kind::Data,
        capability: Capability {
            address,
            password: !address,
        },
        word: address / 2,
    }
}

#[test]
fn a_name_comes_and_goes() {
    let mut bytes = vec![0xa5; 4096];
    let mut directory = Directory::format(&mut bytes).unwrap();
    assert_eq!(directory.view().count(), 0);
    directory.insert(&data("one", 1)).unwrap();
    assert_eq!(directory.insert(&data("one", 2)), Err(Error::Exists));
    directory
        .insert(&Entry {
            kind: Kind::Service,
            ..data("two", 2)
        })
        .unwrap();
    directory.replace(&data("one", 3)).unwrap();
    assert_eq!(directory.lookup("one"), Some(data("one", 3)));
    assert_eq!(directory.view().count(), 2);
    directory.remove("one").unwrap();
    assert_eq!(directory.remove("one"), Err(Error::NotFound));
    let view = Directory::open(&bytes).unwrap();
    assert_eq!(view.lookup("two").unwrap().kind, Kind::Service);
    assert_eq!(view.faults().count(), 0);
}

#[test]
fn a_full_directory_says_so_and_grows_with_its_object() {
    let mut bytes = vec![0; ENTRY_BYTES * 3];
    let mut directory = Directory::format_zeroed(&mut bytes).unwrap();
    directory.insert(&data("a", 1)).unwrap();
    directory.insert(&data("b", 2)).unwrap();
    assert_eq!(directory.insert(&data("c", 3)), Err(Error::Full));
    assert_eq!(directory.replace(&data("b", 3)), Err(Error::Full));
    bytes.resize(ENTRY_BYTES * 4, 0);
    let mut directory = Directory::open_mut(&mut bytes).unwrap();
    directory.insert(&data("c", 3)).unwrap();
    assert_eq!(directory.view().count(), 3);
}

#[test]
fn the_format_stands() {
    let mut bytes = vec![0; 4096];
    let mut directory = Directory::format(&mut bytes).unwrap();
    directory
        .insert(&Entry {
            name: "hi",
            kind: Kind::Program,
            capability: Capability {
                address: 0x1122,
                password: 0x3344,
            },
            word: 0x55,
        })
        .unwrap();
    assert_eq!(&bytes[..24], b"GONDNAME\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(
        bytes[128..160],
        [
            2, 2, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 0, 0, 0,
            0
        ]
    );
    assert_eq!(&bytes[160..163], b"hi\0");
}

#[test]
fn refusals() {
    assert_eq!(Directory::open(&[0; 128]).unwrap_err(), Error::TooSmall);
    assert_eq!(Directory::open(&[0; 256]).unwrap_err(), Error::NotADirectory);
    let mut bytes = vec![0; 256];
    Directory::format(&mut bytes).unwrap();
    bytes[8] = 9;
    assert_eq!(Directory::open(&bytes).unwrap_err(), Error::UnknownVersion(9));
}

#[test]
fn faults_are_told_and_passed_over() {
    let mut bytes = vec![0; 128 * 8];
    let mut directory = Directory::format(&mut bytes).unwrap();
    for (name, address) in [("a", 1), ("b", 2), ("c", 3)] {
        directory.insert(&data(name, address)).unwrap();
    }
    bytes[128] = 77;
    bytes[256 + 32] = b'/';
    bytes[128 * 6] = 3;
    let view = Directory::open(&bytes).unwrap();
    assert_eq!(view.iter().map(|e| e.name).collect::<Vec<_>>(), ["c"]);
    let faults: Vec<_> = view.faults().collect();
    assert_eq!(
        faults,
        [Fault::UnknownKind(0, 77), Fault::BadName(1), Fault::BehindReach(5)]
    );
}

/// A crash may leave two entries of a name. Looks find the first; a mark frees the other one.
#[test]
fn a_mark_leaves_one_entry_of_a_name() {
    let mut bytes = vec![0; ENTRY_BYTES * 8];
    let mut directory = Directory::format(&mut bytes).unwrap();
    for (name, address) in [("a", 1), ("b", 2), ("c", 3)] {
        directory.insert(&data(name, address)).unwrap();
    }
    bytes[ENTRY_BYTES * 3 + NAME_AT] = b'a';
    let mut directory = Directory::open_mut(&mut bytes).unwrap();
    assert_eq!(directory.view().faults().collect::<Vec<_>>(), [Fault::Repeated(2)]);
    directory.mark("a", Mark::Leaving).unwrap();
    let view = Directory::open(&bytes).unwrap();
    assert_eq!(view.faults().count(), 0);
    assert_eq!(view.lookup("a"), Some(data("a", 1)));
    assert_eq!(view.count(), 2);
}

#[test]
fn what_makes_sense_is_mended() {
    let mut bytes = vec![0; 128 * 8];
    let mut directory = Directory::format(&mut bytes).unwrap();
    for (name, address) in [("a", 1), ("b", 2), ("c", 3)] {
        directory.insert(&data(name, address)).unwrap();
    }
    let whole = bytes.clone();
    assert_eq!((Directory::mend(&mut bytes), &bytes), (Ok(0), &whole));
    bytes[..4].copy_from_slice(b"zap\n");
    bytes[256 + 32] = b'/';
    assert_eq!(Directory::mend(&mut bytes), Ok(1));
    let view = Directory::open(&bytes).unwrap();
    assert_eq!(view.iter().map(|e| e.name).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(view.faults().count(), 0);
    assert_eq!(Directory::mend(&mut [1; 100]), Err(Error::TooSmall));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u64),
    Replace(u8, u64),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..12u8, any::<u64>()).prop_map(|(name, address)| Step::Insert(name, address)),
        (0..12u8, any::<u64>()).prop_map(|(name, address)| Step::Replace(name, address)),
        (0..12u8).prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_map(steps in proptest::collection::vec(step(), 0..100)) {
        let mut bytes = vec![0; ENTRY_BYTES * 9];
        let mut directory = Directory::format(&mut bytes).unwrap();
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        for step in steps {
            let full = model.len() == 8;
            match step {
                Step::Insert(name, address) => {
                    let name = format!("name-{name}");
                    let result = directory.insert(&data(&name, address));
                    let expected = match (model.contains_key(&name), full) {
                        (true, _) => Err(Error::Exists),
                        (false, true) => Err(Error::Full),
                        (false, false) => Ok(()),
                    };
                    prop_assert_eq!(result, expected);
                    if expected.is_ok() {
                        model.insert(name, address);
                    }
                }
                Step::Replace(name, address) => {
                    let name = format!("name-{name}");
                    let result = directory.replace(&data(&name, address));
                    prop_assert_eq!(result, if full { Err(Error::Full) } else { Ok(()) });
                    if !full {
                        model.insert(name, address);
                    }
                }
                Step::Remove(name) => {
                    let name = format!("name-{name}");
                    let expected = model.remove(&name).map(|_| ()).ok_or(Error::NotFound);
                    prop_assert_eq!(directory.remove(&name), expected);
                }
            }
            let found: BTreeMap<String, u64> =
                directory.view().iter().map(|e| (e.name.to_string(), e.capability.address)).collect();
            prop_assert_eq!(&found, &model);
            prop_assert_eq!(directory.view().faults().count(), 0);
        }
    }

    #[test]
    fn survives_any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000), reach in any::<u64>()) {
        if bytes.len() >= 24 {
            bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
            bytes[16..24].copy_from_slice(&reach.to_le_bytes());
        }
        // Kinds small enough to be meant, or no name would ever be looked at.
        for kind in bytes.iter_mut().skip(128).step_by(128) {
            *kind %= 8;
        }
        if let Ok(mut directory) = Directory::open_mut(&mut bytes) {
            let names: Vec<String> = directory.view().iter().map(|e| e.name.to_string()).collect();
            let _ = directory.view().faults().count();
            let _ = directory.insert(&data("new", 1));
            for name in names {
                prop_assert!(directory.lookup(&name).is_some());
                prop_assert_eq!(directory.remove(&name).is_ok() || directory.lookup(&name).is_none(), true);
            }
        }
    }

    #[test]
    fn what_is_mended_is_whole(changes in proptest::collection::vec((0..128 * 6usize, any::<u8>()), 0..4), reach in 0..9u64) {
        let mut bytes = vec![0; 128 * 6];
        let mut directory = Directory::format(&mut bytes).unwrap();
        for name in ["a", "b", "c", "d"] {
            directory.insert(&data(name, 1)).unwrap();
        }
        directory.remove("b").unwrap();
        let whole = bytes.clone();
        if reach < 8 {
            bytes[16] = reach as u8;
        }
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let broken = bytes.clone();
        let went = Directory::mend(&mut bytes).unwrap();
        prop_assert!(went <= 5);
        let is_whole = |place: usize| {
            let entry = 128 * (place + 1)..128 * (place + 2);
            broken[entry.clone()] == whole[entry]
        };
        for (place, name) in [(0, "a"), (2, "c"), (3, "d")].into_iter().filter(|&(place, _)| is_whole(place)) {
            let found = Directory::open(&bytes).unwrap().find(name).map(|found| found.index);
            // Another one that was overwritten may bear its name and stand before it.
            prop_assert!(found == Some(place) || found.is_some_and(|other| other < place && !is_whole(other)));
        }
        if broken == whole {
            prop_assert_eq!(&bytes, &whole);
        }
        prop_assert_eq!(Directory::open(&bytes).unwrap().faults().count(), 0);
        let mended = bytes.clone();
        prop_assert_eq!(Directory::mend(&mut bytes), Ok(0));
        prop_assert_eq!(&bytes, &mended);
        // Nothing was lost to use: there is room for what went.
        // An entry that is hidden stands there, too.
        let used = (0..capacity(&bytes)).filter(|&index| kind_byte(&bytes, index) != FREE).count();
        let mut directory = Directory::open_mut(&mut bytes).unwrap();
        for number in used..5 {
            let name = format!("new{number}");
            prop_assert_eq!(directory.insert(&data(&name, 2)), Ok(()));
        }
        prop_assert_eq!(directory.insert(&data("more", 2)), Err(Error::Full));
    }
}
