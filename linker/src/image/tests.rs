//! Layout of hand-made files, and of files that were damaged on purpose.

use super::*;
use proptest::prelude::*;

/// A program header to be written.
fn segment(kind: u32, flags: u32, offset: u64, address: u64, file_bytes: u64, memory_bytes: u64) -> Segment {
    Segment {
        kind,
        flags,
        offset,
        address,
        file_bytes,
        memory_bytes,
    }
}

/// A file of `length` bytes, each with the low byte of its offset, and these headers.
fn file(length: usize, entry: u64, segments: &[Segment]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
    bytes[..64].fill(0);
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16..18].copy_from_slice(&elf::TYPE_DYNAMIC.to_le_bytes());
    bytes[18..20].copy_from_slice(&elf::MACHINE_X86_64.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.to_le_bytes());
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for (index, one) in segments.iter().enumerate() {
        let at = 64 + index * 56;
        bytes[at..at + 4].copy_from_slice(&one.kind.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&one.flags.to_le_bytes());
        for (place, value) in [
            (8, one.offset),
            (16, one.address),
            (24, 0),
            (32, one.file_bytes),
            (40, one.memory_bytes),
        ] {
            bytes[at + place..at + place + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

fn ordinary() -> Vec<Segment> {
    vec![
        segment(elf::SEGMENT_LOAD, 4, 0, 0, 0x400, 0x400),
        segment(elf::SEGMENT_LOAD, 5, 0x1000, 0x1000, 0x1234, 0x1234),
        segment(elf::SEGMENT_LOAD, 6, 0x2240, 0x4240, 0x100, 0x3000),
    ]
}

#[test]
fn segments_lie_at_their_addresses() {
    let bytes = file(0x3000, 0x1010, &ordinary());
    let image = layout(&bytes).unwrap();
    assert_eq!(image.entry, 0x1010);
    assert_eq!(image.page_count(), 8);
    assert_eq!(&image.bytes[0x1000..0x2234], &bytes[0x1000..0x2234]);
    assert_eq!(&image.bytes[0x4240..0x4340], &bytes[0x2240..0x2340]);
    assert!(image.bytes[0x4340..].iter().all(|&byte| byte == 0));
    let limits: Vec<String> = image.limits.iter().map(ToString::to_string).collect();
    assert_eq!(
        limits,
        ["r----", "r-x--", "r-x--", "-----", "rw---", "rw---", "rw---", "rw---"]
    );
    let at = abi::start::IMAGE_ENTRY_AT as usize;
    assert_eq!(image.bytes[at..at + 8], 0x1010u64.to_le_bytes());
}

#[test]
fn a_header_outside_the_segments_gets_its_page() {
    let bytes = file(0x3000, 0x1010, &ordinary()[1..]);
    let image = layout(&bytes).unwrap();
    assert_eq!(image.bytes[..64], bytes[..64]);
    assert_eq!(image.limits[0], Rights::R);
}

#[test]
fn refusals() {
    let with = |change: &dyn Fn(&mut Vec<Segment>)| {
        let mut segments = ordinary();
        change(&mut segments);
        layout(&file(0x3000, 0x1010, &segments)).unwrap_err()
    };
    assert_eq!(with(&|s| s[1].flags = 7), LayoutError::WritableCode(0x1000));
    assert_eq!(with(&|s| s[2].address = 0x2240), LayoutError::SharedPage(0x2000));
    assert_eq!(with(&|s| s[1].flags = 4), LayoutError::BadEntry(0x1010));
    assert_eq!(with(&|s| s[2].file_bytes = 0x1000), LayoutError::Truncated);
    assert_eq!(with(&|s| s[2].file_bytes = 0x4000), LayoutError::Truncated);
    assert_eq!(with(&|s| s[2].memory_bytes = 1 << 40), LayoutError::TooLarge);
    assert_eq!(with(&|s| s[2].address = u64::MAX), LayoutError::TooLarge);
    assert_eq!(with(&|s| s[0].offset = 0x1000), LayoutError::NoHeaderPage);
    assert_eq!(with(&|s| s[0].kind = elf::SEGMENT_INTERPRETER), LayoutError::Dynamic);
    assert_eq!(
        with(&|s| s[0].kind = elf::SEGMENT_THREAD_LOCAL),
        LayoutError::ThreadLocal
    );
    assert_eq!(with(&Vec::clear), LayoutError::Empty);
    assert_eq!(layout(b"#!/bin/sh"), Err(LayoutError::NotElf));
    let mut other = file(0x3000, 0x1010, &ordinary());
    other[18] = 183;
    assert_eq!(layout(&other), Err(LayoutError::WrongMachine(183)));
    other[18] = 62;
    other[16] = 2;
    assert_eq!(layout(&other), Err(LayoutError::NotPositionIndependent(2)));
}

#[test]
fn only_relative_relocations() {
    let mut segments = ordinary();
    segments.push(segment(elf::SEGMENT_DYNAMIC, 6, 0x2240, 0x4240, 0x100, 0x100));
    let mut bytes = file(0x3000, 0x1010, &segments);
    let put = |bytes: &mut Vec<u8>, at: usize, words: &[u64]| {
        for (index, word) in words.iter().enumerate() {
            bytes[at + index * 8..at + index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
    };
    put(&mut bytes, 0x2240, &[7, 0x1100, 8, 24, 0, 0]);
    put(&mut bytes, 0x1100, &[0x4300, 8, 5]);
    assert!(layout(&bytes).is_ok());
    put(&mut bytes, 0x1100, &[0x4300, 6, 5]);
    assert_eq!(layout(&bytes), Err(LayoutError::Relocation(6)));
    put(&mut bytes, 0x1100, &[0x8000, 8, 5]);
    assert_eq!(layout(&bytes), Err(LayoutError::Truncated));
    put(&mut bytes, 0x2240, &[1, 1, 0, 0]);
    assert_eq!(layout(&bytes), Err(LayoutError::Dynamic));
}

/// What holds of every image that was accepted.
fn check(image: &Image) {
    assert_eq!(image.bytes.len(), image.limits.len() * PAGE_BYTES);
    assert!(
        image
            .limits
            .iter()
            .all(|limit| !limit.contains(Rights::W.union(Rights::X)))
    );
    assert!(image.limits[(image.entry / PAGE) as usize].contains(Rights::X));
    assert!(elf::is_elf(&image.bytes));
}

proptest! {
    #[test]
    fn any_headers(
        entry in 0..0x9000u64,
        raw in proptest::collection::vec((0..8u32, 0..8u32, 0..0x4000u64, 0..0x8000u64, 0..0x2000u64, 0..0x3000u64), 0..5),
        length in 0x400..0x5000usize,
    ) {
        let segments: Vec<_> = raw.into_iter().map(|(k, f, o, a, b, m)| segment(k.max(1) % 3, f, o, a, b, m)).collect();
        if let Ok(image) = layout(&file(length, entry, &segments)) {
            check(&image);
        }
    }

    #[test]
    fn damaged_files(changes in proptest::collection::vec((0..400usize, any::<u8>()), 0..8), cut in 0..0x3000usize) {
        let mut bytes = file(0x3000, 0x1010, &ordinary());
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(cut.max(0x3000 * usize::from(cut % 2 == 0)));
        if let Ok(image) = layout(&bytes) {
            check(&image);
        }
    }
}
