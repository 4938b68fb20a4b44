//! An image that has received a stream has the sender's rows and pages. A stream that was cut, changed or forged changes nothing.

use super::*;
use crate::disk::FLUSHES_LEFT;
use crate::place::Scratch;
use crate::send::send;
use crate::volume::{Block, Page};
use abi::address::{FIRST_FREE, SLOT};
use sim::rng::Rng;
use std::collections::BTreeSet;
use std::fs::File;
use store::{BLOCK, ObjectRecord, PageFlags, PdxRecord, StreamWriter};

const BYTES: u64 = 24 << 20;
const OBJECTS: u64 = 10;

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).unwrap()
}

fn base(number: u64) -> u64 {
    FIRST_FREE + number * SLOT
}

fn new_image(path: &Path, bytes: u64) {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    Volume::create(file.unwrap(), path, bytes).unwrap().commit().unwrap();
}

/// A record that nobody made, with all that a row has.
fn record(rng: &mut Rng, base: u64, birth: u64) -> ObjectRecord {
    let mut record = ObjectRecord {
        base,
        pages: *rng.pick(&[1, 2, 40, 300, 1200]),
        flags: rng.below(1 << 16),
        birth,
        account: rng.below(5),
        created_ns: rng.next_u64(),
        modified_ns: rng.next_u64(),
        pager: rng.below(2) * rng.next_u64(),
        tag: rng.next_u64(),
        ..ObjectRecord::default()
    };
    for _ in 0..*rng.pick(&[1, 2, 128]) {
        record.capabilities.push((rng.next_u64(), rng.below(32) as u8));
    }
    for _ in 0..rng.below(3) {
        let entries: Vec<u64> = (0..rng.below(190)).map(|at| base + at).collect();
        let (password, clist, reader) = (rng.next_u64(), base, rng.below(2) * rng.next_u64());
        let pdx = PdxRecord {
            password,
            clist,
            reader,
            entries: &entries,
        };
        record.pdx.add(pdx).unwrap();
    }
    record
}

/// Changes a volume at random and makes that durable. Some changes are refused, and change nothing.
fn change(volume: &mut Volume, rng: &mut Rng) {
    for _ in 0..4 + rng.below(12) {
        let base = base(rng.below(OBJECTS));
        let Some(was) = volume.object(base) else {
            let birth = volume.parts().0.births();
            let _ = volume.put(&record(rng, base, birth));
            continue;
        };
        let first = rng.below(was.pages);
        let count = (1 + rng.below(20)).min(was.pages - first);
        match rng.below(12) {
            0 => volume.delete(base).unwrap(),
            1 => {
                let again = record(rng, base, was.birth);
                let _ = volume.put(&again);
            }
            2 => volume.discard(base, first, count).unwrap(),
            3 => {
                let limits = PageFlags::from_bits_retain(1 + rng.below(7) as u16);
                volume.set_limits(base, first, limits).unwrap();
            }
            _ => {
                let zero = rng.one_in(5);
                for page in first..first + count {
                    let byte = if zero { 0 } else { rng.next_u64() as u8 };
                    let mut content: Block = [byte; BLOCK];
                    content[7] = if zero { 0 } else { page as u8 };
                    let limits = PageFlags::from_bits_retain(rng.below(8) as u16);
                    volume.write(base, page, &content, limits).unwrap();
                }
            }
        }
        volume.commit().unwrap();
    }
}

fn normal(page: Page) -> (Option<Box<Block>>, Option<PageFlags>) {
    let limits = page
        .limits
        .filter(|limits| page.content.is_some() || !limits.is_empty());
    (page.content, limits)
}

/// Rows and pages of both are equal, and the stores sound.
#[track_caller]
fn same(mut one: Volume, mut other: Volume) {
    let records = one.objects();
    assert_eq!(records, other.objects());
    assert_eq!(one.parts().0.births(), other.parts().0.births());
    for record in records {
        for page in 0..record.pages {
            let base = record.base;
            let pages = [one.page(base, page).unwrap(), other.page(base, page).unwrap()].map(normal);
            let short = pages
                .clone()
                .map(|(content, limits)| (content.map(|bytes| [bytes[0], bytes[7]]), limits));
            assert!(pages[0] == pages[1], "page {page} of {base:#x}: {short:?}");
        }
    }
    for volume in [&mut one, &mut other] {
        let (store, world) = volume.parts();
        let mut wrong = Vec::new();
        store.verify(world, &mut |finding| wrong.push(finding)).unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

fn at(path: &Path, snapshot: Option<&str>) -> Volume {
    Volume::open_at(path, snapshot.map(name).as_ref()).unwrap()
}

fn sent(path: &Path, from: Option<&str>, snapshot: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    send(path, from.map(name).as_ref(), snapshot.map(name).as_ref(), &mut bytes).unwrap();
    bytes
}

fn take(bytes: &[u8], path: &Path, name: Option<SnapshotName>) -> Result<Received> {
    receive(bytes, path, name, None)
}

fn keep(path: &Path, text: &str) {
    Volume::open_for_change(&lock_image(path).unwrap())
        .unwrap()
        .keep(name(text))
        .unwrap();
}

fn go_on(path: &Path, rng: &mut Rng) {
    let mut volume = Volume::open_for_change(&lock_image(path).unwrap()).unwrap();
    change(&mut volume, rng);
}

/// An image with the snapshots `one` and `two`.
fn sample(path: &Path, seed: u64) -> Rng {
    let mut rng = Rng::new(seed);
    new_image(path, BYTES);
    for text in ["one", "two"] {
        for _ in 0..2 {
            go_on(path, &mut rng);
        }
        keep(path, text);
    }
    rng
}

#[test]
fn a_copy_is_what_the_original_was() {
    for seed in 0..12 {
        let scratch = Scratch::make().unwrap();
        let [from, to, whole] = ["from", "to", "whole"].map(|text| scratch.file(text));
        let mut rng = sample(&from, seed);
        go_on(&from, &mut rng);
        let bytes = sent(&from, None, Some("one"));
        assert!(bytes == sent(&from, None, Some("one")), "the same bytes each time");
        take(&bytes, &to, None).unwrap();
        same(at(&from, Some("one")), at(&to, None));
        same(at(&from, Some("one")), at(&to, Some("one")));
        assert_eq!(
            std::fs::metadata(&to).unwrap().len(),
            BYTES,
            "it has the size of the original"
        );
        let difference = sent(&from, Some("one"), Some("two"));
        take(&difference, &to, None).unwrap();
        same(at(&from, Some("two")), at(&to, None));
        same(at(&from, Some("one")), at(&to, Some("one")));
        // The copy sends what the original sends.
        assert!(sent(&to, None, Some("two")) == sent(&from, None, Some("two")));
        assert!(sent(&to, Some("one"), Some("two")) == difference);
        let state = sent(&from, Some("two"), None);
        take(&state, &to, Some(name("late"))).unwrap();
        same(at(&from, None), at(&to, Some("late")));
        // A disk of another size; and the state, whose journal is not empty if it was cut.
        receive(&sent(&from, None, None)[..], &whole, None, Some(100 << 20)).unwrap();
        same(at(&from, None), at(&whole, None));
        assert!(at(&whole, None).snapshots().is_empty());
        // There and back again.
        let back = sent(&to, Some("two"), Some("one"));
        take(&sent(&from, None, Some("two")), &scratch.file("back"), None).unwrap();
        take(&back, &scratch.file("back"), None).unwrap();
        let mut volume = at(&scratch.file("back"), None);
        assert_eq!(volume.objects(), at(&from, Some("one")).objects());
        assert!(volume.parts().0.births() >= at(&from, Some("two")).parts().0.births());
    }
}

/// Only what differs travels, of an object of half a gigabyte, too, of which some pages were written.
#[test]
fn a_small_change_is_a_small_stream() {
    let scratch = Scratch::make().unwrap();
    let [from, to] = ["from", "to"].map(|text| scratch.file(text));
    new_image(&from, BYTES);
    let open = || Volume::open_for_change(&lock_image(&from).unwrap()).unwrap();
    let mut volume = open();
    let large = crate::image::new_record(base(0), 1 << 17, 7, 0);
    volume.put(&large).unwrap();
    for page in (0..1_u64 << 17).step_by(1 << 9) {
        volume
            .write(base(0), page, &[page as u8; BLOCK], tree::NO_LIMITS)
            .unwrap();
    }
    volume.keep(name("one")).unwrap();
    drop(volume);
    take(&sent(&from, None, Some("one")), &to, None).unwrap();
    let mut volume = open();
    volume.write(base(0), 77_777, &[5; BLOCK], tree::NO_LIMITS).unwrap();
    // The same once more is no change.
    volume.write(base(0), 0, &[0; BLOCK], tree::NO_LIMITS).unwrap();
    volume.keep(name("two")).unwrap();
    drop(volume);
    let bytes = sent(&from, Some("one"), Some("two"));
    assert!(bytes.len() < 4096 + 1024, "{}", bytes.len());
    take(&bytes, &to, None).unwrap();
    assert_eq!(at(&to, None).page(base(0), 77_777).unwrap().content.unwrap()[9], 5);
    assert!(sent(&to, None, Some("two")) == sent(&from, None, Some("two")));
    // Nothing is nearly nothing.
    keep(&from, "three");
    assert!(sent(&from, Some("two"), Some("three")).len() < 300);
}

fn refusal(bytes: &[u8], path: &Path, name: Option<SnapshotName>) -> String {
    format!("{:#}", take(bytes, path, name).unwrap_err())
}

#[test]
fn a_difference_is_taken_only_on_its_base() {
    let scratch = Scratch::make().unwrap();
    let [from, to, other] = ["from", "to", "other"].map(|text| scratch.file(text));
    let mut rng = sample(&from, 3);
    sample(&other, 4);
    let difference = sent(&from, Some("one"), Some("two"));
    assert!(refusal(&difference, &to, None).contains("send the whole"));
    assert!(!to.exists());
    take(&sent(&from, None, Some("one")), &to, None).unwrap();
    // A snapshot of the same name on another image is another one.
    assert!(refusal(&difference, &other, None).contains("another one"));
    let told = refusal(&sent(&from, None, Some("two")), &other, None);
    assert!(told.contains("of its own"), "{told}");
    // The state has moved on.
    go_on(&to, &mut rng);
    let told = refusal(&difference, &to, None);
    assert!(told.contains("rollback one --keep NAME"), "{told}");
    Volume::roll_back(&lock_image(&to).unwrap(), &name("one"), Some(name("mine"))).unwrap();
    assert!(refusal(&difference, &to, Some(name("mine"))).contains("another snapshot 'mine'"));
    take(&difference, &to, Some(name("renamed"))).unwrap();
    same(at(&from, Some("two")), at(&to, Some("renamed")));
    assert!(refusal(&difference, &to, None).contains("already, as 'renamed'"));
    // The receiver may give the snapshot another name: the next difference finds it by its identity.
    go_on(&from, &mut rng);
    keep(&from, "three");
    take(&sent(&from, Some("two"), Some("three")), &to, None).unwrap();
    same(at(&from, Some("three")), at(&to, None));
    // An image that was just made is replaced, and keeps its size.
    let fresh = scratch.file("fresh");
    crate::image::create(&fresh, 40 << 20, None).unwrap();
    take(&sent(&from, None, Some("three")), &fresh, None).unwrap();
    same(at(&from, Some("three")), at(&fresh, None));
    assert_eq!(std::fs::metadata(&fresh).unwrap().len(), 40 << 20);
}

fn names_in(scratch: &Scratch) -> Vec<std::ffi::OsString> {
    let all = std::fs::read_dir(scratch.file(".")).unwrap();
    let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn what_is_cut_or_changed_on_the_way_changes_nothing() {
    let scratch = Scratch::make().unwrap();
    let [from, to, new] = ["from", "to", "new"].map(|text| scratch.file(text));
    let mut rng = sample(&from, 8);
    let whole = sent(&from, None, Some("one"));
    take(&whole, &to, None).unwrap();
    let names = names_in(&scratch);
    let difference = sent(&from, Some("one"), Some("two"));
    for stream in [&whole, &difference] {
        let to = if stream == &whole { &new } else { &to };
        for number in 0..40 {
            let cut = match number {
                0 => stream.len() - 1,
                1 => stream.len() - 40,
                _ => rng.below(stream.len() as u64) as usize,
            };
            let told = refusal(&stream[..cut], to, None);
            assert!(
                told.contains("nothing was changed") || told.contains("not made"),
                "{told}"
            );
            let mut bad = stream.clone();
            bad[cut] ^= 1 << rng.below(8);
            assert!(take(&bad, to, None).is_err(), "{cut}");
        }
    }
    assert_eq!(names_in(&scratch), names, "nothing is left of what was not taken");
    same(at(&from, Some("one")), at(&to, None));
    // A flush that fails stands for a disk that is away from then on.
    for flush in 0.. {
        let copy = scratch.file(&format!("copy-{flush}"));
        std::fs::copy(&to, &copy).unwrap();
        FLUSHES_LEFT.set(flush);
        let result = take(&difference, &copy, None);
        FLUSHES_LEFT.set(u32::MAX);
        let is_new = at(&copy, None).snapshots().len() == 2;
        same(at(&from, Some(if is_new { "two" } else { "one" })), at(&copy, None));
        std::fs::remove_file(&copy).unwrap();
        if result.is_ok() {
            assert!(is_new);
            break;
        }
    }
}

/// A stream with right sums and wrong contents is refused, or leads to an image that is sound.
#[test]
fn a_forged_stream_does_no_harm() {
    let scratch = Scratch::make().unwrap();
    let [from, to] = ["from", "to"].map(|text| scratch.file(text));
    let mut rng = sample(&from, 21);
    take(&sent(&from, None, Some("one")), &to, None).unwrap();
    let stream = StreamReader::new(&sent(&from, Some("one"), Some("two"))[..])
        .unwrap()
        .head()
        .to_owned();
    let mut taken = [0; 2];
    let there: BTreeSet<u64> = at(&to, None).objects().iter().map(|record| record.base).collect();
    for number in 0..200_u64 {
        let is_difference = number % 3 > 0;
        let mut left = if is_difference { there.clone() } else { BTreeSet::new() };
        let mut items = Vec::new();
        for number in (0..OBJECTS).filter(|_| is_difference) {
            if rng.one_in(6) && (left.remove(&base(number)) || rng.one_in(9)) {
                items.push(StreamItem::Delete(base(number)));
            }
        }
        for number in 0..OBJECTS {
            if rng.one_in(5) {
                let birth = rng.below(60);
                let mut record = record(&mut rng, base(number), birth);
                record.pages = *rng.pick(&[1, 1, 511, 512, 513, 1 << 30]);
                left.insert(record.base);
                let pages = record.pages;
                items.push(StreamItem::Object(record));
                for page in 0..rng.below(3) {
                    let page = page * (1 + rng.below(pages));
                    items.push(match rng.below(3) {
                        0 => StreamItem::Page(page, PageFlags::from_bits_retain(0xffff), None),
                        1 => StreamItem::Limit(page, PageFlags::READ),
                        _ => StreamItem::Clear(page, pages),
                    });
                }
            }
        }
        let head = StreamHead {
            objects: left.len() as u64 + u64::from(rng.one_in(9)),
            births: 1 << 47,
            base: stream.base.filter(|_| is_difference),
            ..stream
        };
        let mut writer = StreamWriter::new().unwrap();
        let mut bytes = writer.head(&head).unwrap().to_vec();
        for item in items.iter().chain([&StreamItem::End]) {
            bytes.extend_from_slice(writer.item(item).unwrap());
        }
        let copy = scratch.file("copy");
        if head.base.is_some() {
            std::fs::copy(&to, &copy).unwrap();
        }
        match take(&bytes, &copy, None) {
            Ok(_) => {
                taken[usize::from(is_difference)] += 1;
                let (mut volume, mut wrong) = (at(&copy, None), Vec::new());
                let (store, world) = volume.parts();
                store.verify(world, &mut |finding| wrong.push(finding)).unwrap();
                assert!(wrong.is_empty(), "{wrong:?}");
                // It can be sent again, objects of 4 TiB among it.
                assert!(StreamReader::new(&sent(&copy, None, Some("two"))[..]).is_ok());
            }
            Err(_) if head.base.is_some() => same(at(&copy, None), at(&to, None)),
            Err(_) => assert!(!copy.exists()),
        }
        let _ = std::fs::remove_file(&copy);
    }
    assert!(taken.iter().all(|&taken| taken > 3), "{taken:?}");
}
