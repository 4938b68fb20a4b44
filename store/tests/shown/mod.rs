//! The pages of an object as a reader sees them, for tests that fill each page with one byte.

use super::plain::PlainWorld;
use store::{Event, ObjectRecord, Pages, ReadStart, Store};

/// The bytes of which the pages are full; none for one that cannot be read.
pub fn pages_of(world: &mut PlainWorld, store: &mut Store, record: &ObjectRecord) -> Vec<Option<u8>> {
    let read = |page| match store.read_page(world, record.base, page) {
        ReadStart::Zero(_) => Some(0),
        ReadStart::NoMemory => panic!("memory"),
        ReadStart::Reading => loop {
            match store.poll(world) {
                Some(Event::PageRead { frame, .. }) => {
                    let bytes = *world.bytes(frame);
                    world.free(frame);
                    let is_plain = bytes.iter().all(|&byte| byte == bytes[0]);
                    assert!(is_plain, "page {page} of {:#x}", record.base);
                    break Some(bytes[0]);
                }
                Some(Event::PageBad { .. }) => break None,
                _ => {}
            }
        },
    };
    (0..record.pages).map(read).collect()
}
