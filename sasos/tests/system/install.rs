//! A disk as `gond` installs it, in small.

use abi::{
    Rights,
    address::{FIRST_FREE, FIRST_PROGRAM, ROOT_CLIST, ROOT_DIRECTORY, slot_of},
    layout::{CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader},
};
use kcore::space::Tags;
use sim::{disk::CrashDisk, machine::Platform, rng::Rng};
use store::{CheckpointKind, DirtyPage, FormatOptions, MountMode, ObjectRecord, PageFlags, Pages, Store};

use crate::harness::{ENTRY, PROGRAM_PAGES, RETRIES};

/// Password of the root Clist, directory and first program: the number of their slot, times this.
const ROOT_PASSWORD: u64 = 0x1111_1111;

/// A disk with a store and the first objects on it.
pub fn installed_disk(blocks: u64, frames: u32, rng: &mut Rng) -> CrashDisk {
    let mut platform = Platform::new(frames, Tags::Absent, CrashDisk::new(blocks, rng.fork()), rng.fork());
    let options = FormatOptions {
        first_slot: slot_of(FIRST_FREE),
        ..FormatOptions::default()
    };
    Store::format(&mut platform, &options).expect("format");
    let (mut store, _) = Store::mount(&mut platform, MountMode::ReadWrite).expect("mount");
    let owner = |address| (password_of(address), Rights::OWNER.bits());
    let mut dirty = Vec::new();
    for (base, pages) in [(ROOT_CLIST, 2), (ROOT_DIRECTORY, 1), (FIRST_PROGRAM, PROGRAM_PAGES)] {
        let record = ObjectRecord {
            base,
            pages,
            flags: 1,
            capabilities: vec![owner(base)],
            ..ObjectRecord::default()
        };
        store.put_object(record).expect("put");
    }
    let mut page = |platform: &mut Platform, store: &mut Store, base, page, flags, content: &[u8]| {
        let frame = platform.alloc().expect("a frame");
        let bytes = Pages::bytes_mut(platform, frame);
        bytes.fill(0);
        bytes[..content.len()].copy_from_slice(content);
        store.reserve(base, page).expect("room");
        dirty.push(DirtyPage {
            base,
            page,
            frame,
            flags,
        });
    };
    let all = PageFlags::all();
    page(
        &mut platform,
        &mut store,
        ROOT_CLIST,
        0,
        all,
        &clist_bytes(&[ROOT_CLIST, ROOT_DIRECTORY, FIRST_PROGRAM].map(root_capability)),
    );
    let mut head = [0; 32];
    head[24..].copy_from_slice(&ENTRY.to_le_bytes());
    page(&mut platform, &mut store, FIRST_PROGRAM, 0, PageFlags::READ, &head);
    page(
        &mut platform,
        &mut store,
        FIRST_PROGRAM,
        1,
        PageFlags::READ | PageFlags::EXECUTE,
        b"code",
    );
    page(
        &mut platform,
        &mut store,
        FIRST_PROGRAM,
        2,
        PageFlags::READ | PageFlags::WRITE,
        b"data",
    );
    store
        .checkpoint_begin(&mut platform, dirty.clone(), CheckpointKind::Shutdown)
        .expect("no other one");
    for _ in 0..RETRIES {
        while store.poll(&mut platform).is_some() {}
        if store.is_idle() {
            break;
        }
        platform.step_disk();
    }
    for page in dirty {
        Pages::free(&mut platform, page.frame);
    }
    store.dismantle(&mut platform);
    platform.disk
}

/// The password of one of the first objects.
pub fn password_of(address: u64) -> u64 {
    slot_of(address) * ROOT_PASSWORD
}

fn root_capability(address: u64) -> Capability {
    Capability {
        address,
        password: password_of(address),
    }
}

/// A sorted Clist.
pub fn clist_bytes(capabilities: &[Capability]) -> Vec<u8> {
    let mut sorted = capabilities.to_vec();
    sorted.sort_by_key(|capability| capability.address);
    let head = ClistHeader {
        magic: CLIST_MAGIC,
        version: CLIST_VERSION,
        flags: CLIST_SORTED,
        count: sorted.len() as u64,
    };
    let mut bytes = head.to_bytes().to_vec();
    for capability in &sorted {
        bytes.extend_from_slice(&capability.to_bytes());
    }
    bytes
}
