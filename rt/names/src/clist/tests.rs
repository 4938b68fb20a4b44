//! Clists against a model, and against bytes that mean harm.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn capability(address: u64, password: u64) -> Capability {
    Capability { address, password }
}

#[test]
fn finds_all_of_an_address() {
    let mut bytes = vec![0xff; 4096];
    let mut clist = Clist::format(&mut bytes).unwrap();
    for (address, password) in [(5, 1), (3, 9), (5, 0), (4, 4), (5, 1)] {
        clist.insert(capability(address, password)).unwrap();
    }
    assert_eq!(clist.view().count(), 4);
    assert_eq!(clist.view().find(5).map(|c| c.password).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(clist.remove(capability(5, 7)), Err(Error::NotFound));
    assert_eq!(clist.remove_all(5), 2);
    assert!(!clist.view().contains(capability(5, 0)));
    assert!(clist.view().order_holds());
}

#[test]
fn refusals() {
    assert_eq!(ClistView::open(&[0; 40]).unwrap_err(), Error::TooSmall);
    assert_eq!(ClistView::open(&[0; 48]).unwrap_err(), Error::NotAClist);
    let mut bytes = vec![0; 48];
    let mut clist = Clist::format(&mut bytes).unwrap();
    clist.insert(capability(1, 1)).unwrap();
    assert_eq!(clist.insert(capability(2, 1)), Err(Error::Full));
    bytes[24] = 2;
    assert_eq!(ClistView::open(&bytes).unwrap_err(), Error::NotAClist);
    bytes[24] = 1;
    bytes[16] = 0;
    assert_eq!(Clist::open_mut(&mut bytes).unwrap_err(), Error::Unsorted);
    assert_eq!(ClistView::open(&bytes).unwrap().find(1).count(), 1);
    for sorted in [0, 1] {
        bytes[16] = sorted;
        assert_eq!(ClistView::open(&bytes).unwrap().is_sorted(), sorted == 1);
    }
}

proptest! {
    #[test]
    fn behaves_like_a_set(steps in proptest::collection::vec((any::<bool>(), 0..6u64, 0..4u64), 0..100)) {
        let mut bytes = vec![0; ClistHeader::BYTES + 12 * Capability::BYTES];
        let mut clist = Clist::format(&mut bytes).unwrap();
        let mut model = BTreeSet::new();
        for (insert, address, password) in steps {
            let one = capability(address, password);
            if insert {
                let room = model.len() < 12 || model.contains(&(address, password));
                prop_assert_eq!(clist.insert(one), if room { Ok(()) } else { Err(Error::Full) });
                if room {
                    model.insert((address, password));
                }
            } else {
                prop_assert_eq!(clist.remove(one).is_ok(), model.remove(&(address, password)));
            }
            // What stands in the bytes, whoever opens them next.
            clist = Clist::open_mut(&mut bytes).unwrap();
            let found: Vec<_> = clist.view().iter().map(|c| (c.address, c.password)).collect();
            prop_assert_eq!(found, model.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn survives_any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), count in 0..40u64) {
        if bytes.len() >= 32 {
            bytes[..8].copy_from_slice(&CLIST_MAGIC.to_le_bytes());
            bytes[8..16].copy_from_slice(&CLIST_VERSION.to_le_bytes());
            bytes[24..32].copy_from_slice(&count.to_le_bytes());
        }
        if let Ok(view) = ClistView::open(&bytes) {
            let all: Vec<_> = view.iter().collect();
            prop_assert_eq!(all.len(), view.count());
            for one in all {
                let _ = view.find(one.address).count();
            }
        }
        if let Ok(mut clist) = Clist::open_mut(&mut bytes) {
            let _ = clist.insert(capability(7, 7));
            let _ = clist.remove_all(7);
        }
    }
}
