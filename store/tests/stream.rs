//! Streams: what is sent comes back, and whatever else is read ends in an error, not in a panic, and nobody asks for much at once.

use store::{
    BIRTH_END, BLOCK, Identity, Named, ObjectRecord, PageFlags, PdxRecord, SnapshotName, Source, StreamError,
    StreamHead, StreamItem, StreamReader, StreamWriter,
};

/// Bytes that notes how many were asked for at once.
struct Asked<'a>(&'a [u8], &'a mut usize);

impl Source for Asked<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> usize {
        *self.1 = bytes.len().max(*self.1);
        self.0.fill(bytes)
    }
}

fn named(text: &str, low: u64) -> Named {
    Named {
        name: SnapshotName::new(text).expect("a name"),
        identity: Identity([low, 9]),
    }
}

fn head(is_difference: bool) -> StreamHead {
    StreamHead {
        address_bits: 47,
        blocks: 1000,
        objects: if is_difference { 77 } else { 2 },
        births: 50,
        high_water: 3000,
        target: Some((named("two", 2), 1_000_000)),
        base: is_difference.then(|| named("one", 1)),
    }
}

fn record(base: u64, pages: u64) -> ObjectRecord {
    let mut record = ObjectRecord {
        base,
        pages,
        flags: 3,
        birth: 49,
        account: 7,
        created_ns: 1,
        modified_ns: 2,
        pager: 3,
        tag: 4,
        capabilities: vec![(5, 15), (6, 1)],
        ..ObjectRecord::default()
    };
    let pdx = PdxRecord {
        password: 8,
        clist: 9,
        reader: 10,
        entries: &[11, 12],
    };
    record.pdx.add(pdx).expect("memory");
    record
}

static CONTENT: [u8; BLOCK] = [7; BLOCK];

fn items(is_difference: bool) -> Vec<StreamItem<'static>> {
    let mut all = Vec::new();
    if is_difference {
        all.extend([StreamItem::Delete(4096), StreamItem::Delete(1 << 30)]);
    }
    all.push(StreamItem::Object(record(1 << 32, 10)));
    all.push(StreamItem::Page(0, PageFlags::READ, Some(&CONTENT)));
    all.push(StreamItem::Page(3, PageFlags::WRITE, None));
    if is_difference {
        all.push(StreamItem::Clear(5, 7));
    }
    all.push(StreamItem::Limit(9, PageFlags::READ));
    all.push(StreamItem::Object(record(1 << 33, 1)));
    all.push(StreamItem::End);
    all
}

/// The bytes of a stream, and where each of its records ends.
fn stream(head: &StreamHead, items: &[StreamItem<'_>]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = StreamWriter::new().expect("memory");
    let mut bytes = writer.head(head).expect("memory").to_vec();
    let mut ends = vec![bytes.len()];
    for item in items {
        bytes.extend_from_slice(writer.item(item).expect("memory"));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// All that a stream says, up to its end.
fn read(bytes: &[u8]) -> Result<usize, StreamError> {
    read_all(bytes)
}

fn read_all(source: impl Source) -> Result<usize, StreamError> {
    let mut reader = StreamReader::new(source)?;
    let mut count = 0;
    loop {
        count += 1;
        if let StreamItem::End = reader.read()? {
            return Ok(count);
        }
    }
}

#[test]
fn what_is_sent_comes_back() {
    for is_difference in [false, true] {
        let (head, items) = (head(is_difference), items(is_difference));
        let (bytes, _) = stream(&head, &items);
        let mut reader = StreamReader::new(&bytes[..]).expect("a stream");
        assert_eq!(reader.head(), &head);
        for item in &items {
            assert_eq!(reader.read().as_ref(), Ok(item));
        }
        assert_eq!(reader.read(), Ok(StreamItem::End));
        assert_eq!(stream(&head, &items).0, bytes, "the same each time");
    }
    let whole = StreamHead {
        target: None,
        ..head(false)
    };
    let (bytes, _) = stream(&whole, &items(false));
    assert_eq!(*StreamReader::new(&bytes[..]).expect("a stream").head(), whole);
}

#[test]
fn every_flipped_bit_and_every_cut_shows() {
    for is_difference in [false, true] {
        let (bytes, _) = stream(&head(is_difference), &items(is_difference));
        assert!(read(&bytes).is_ok());
        for at in 0..bytes.len() {
            assert!(matches!(
                read(&bytes[..at]),
                Err(StreamError::Cut | StreamError::Foreign)
            ));
            // All bits of what is not a page, and some of the page.
            for bit in (0..8).filter(|bit| !(300..4300).contains(&at) || *bit == at % 8) {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {at}, bit {bit}");
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(read(&longer), Err(StreamError::Behind));
        assert_eq!(read(&[bytes.clone(), bytes].concat()), Err(StreamError::Behind));
    }
}

/// What a record says of its length is believed as far as one can be long.
#[test]
fn no_length_makes_a_reader_ask_for_more_than_a_record() {
    let (bytes, ends) = stream(&head(true), &items(true));
    for length in (0..32).map(|bit| 1_u32 << bit).chain([u32::MAX, 26_194, 26_195]) {
        for at in core::iter::once(12).chain(ends[..ends.len() - 1].iter().map(|end| end + 4)) {
            let mut bad = bytes.clone();
            if bad[at..at + 4] == length.to_le_bytes() {
                continue;
            }
            bad[at..at + 4].copy_from_slice(&length.to_le_bytes());
            bad.resize(bad.len() + 30_000, 0);
            let mut most = 0;
            let outcome = read_all(Asked(&bad, &mut most));
            assert_eq!(outcome, Err(StreamError::Damaged), "{length} {at}");
            assert!(most <= 26_194, "{length} {at}: {most}");
        }
    }
}

#[test]
fn records_stay_where_they_were() {
    let (bytes, ends) = stream(&head(true), &items(true));
    let part = |number: usize| &bytes[ends[number]..ends[number + 1]];
    let count = ends.len() - 1;
    for one in 0..count {
        // Left out, or there twice.
        let without: Vec<u8> = [&bytes[..ends[one]], &bytes[ends[one + 1]..]].concat();
        assert!(read(&without).is_err(), "{one}");
        let twice: Vec<u8> = [&bytes[..ends[one + 1]], part(one), &bytes[ends[one + 1]..]].concat();
        assert!(read(&twice).is_err(), "{one}");
        for other in 0..one {
            let mut parts: Vec<&[u8]> = (0..count).map(part).collect();
            parts.swap(one, other);
            let swapped = [&bytes[..ends[0]], &parts.concat()].concat();
            assert!(read(&swapped).is_err(), "{one} {other}");
        }
    }
    // Those of another stream do not go on in this one.
    let other = StreamHead {
        births: 51,
        ..head(true)
    };
    let (other, _) = stream(&other, &items(true));
    assert_eq!(
        read(&[&bytes[..ends[0]], &other[ends[0]..]].concat()),
        Err(StreamError::Damaged)
    );
}

/// Streams whose checksums are right, made by somebody else.
#[test]
fn what_makes_no_sense_is_refused_though_its_sums_are_right() {
    use StreamItem::{Clear, Delete, End, Limit, Object, Page};
    let object = || Object(record(1 << 32, 10));
    let page = |at| Page(at, PageFlags::READ, None);
    let limit = |at| Limit(at, PageFlags::READ);
    let too_new = ObjectRecord {
        birth: 50,
        ..record(1 << 32, 1)
    };
    let bad: Vec<Vec<StreamItem<'_>>> = vec![
        vec![page(0), End],
        vec![limit(0), End],
        vec![Clear(0, 1), End],
        vec![object(), page(10), End],
        vec![object(), page(u64::MAX), End],
        vec![object(), page(3), page(3), End],
        vec![object(), page(3), limit(2), End],
        vec![object(), Clear(3, 3), End],
        vec![object(), Clear(4, 3), End],
        vec![object(), Clear(3, 11), End],
        vec![object(), Clear(0, 5), page(4), End],
        vec![object(), Limit(0, PageFlags::empty()), End],
        vec![object(), object(), End],
        vec![object(), Object(record((1 << 32) + 4096, 1)), End],
        vec![object(), Object(record(4096, 1)), End],
        vec![object(), Delete(1 << 33), End],
        vec![Delete(8192), Delete(4096), End],
        vec![Delete(8192), Delete(8192), End],
        vec![Delete(u64::MAX), End],
        vec![Object(too_new), End],
        vec![Object(record(1 << 32, 0)), End],
        vec![Object(record(1 << 47, 1)), End],
        vec![Object(record((1 << 32) + 1, 1)), End],
        vec![Object(record(1 << 32, u64::MAX >> 12)), End],
    ];
    for items in &bad {
        let (bytes, _) = stream(&head(true), items);
        assert_eq!(read(&bytes), Err(StreamError::Nonsense), "{items:?}");
    }
    // A whole state takes nothing away, and has all of its objects.
    for items in [
        vec![Delete(4096), object(), Object(record(1 << 33, 1)), End],
        vec![object(), Clear(0, 1), Object(record(1 << 33, 1)), End],
        vec![object(), End],
    ] {
        assert_eq!(
            read(&stream(&head(false), &items).0),
            Err(StreamError::Nonsense),
            "{items:?}"
        );
    }
    for head in [
        StreamHead {
            address_bits: 48,
            ..head(true)
        },
        StreamHead {
            blocks: 1,
            ..head(true)
        },
        StreamHead {
            blocks: u64::MAX,
            ..head(true)
        },
        StreamHead {
            births: u64::MAX,
            ..head(true)
        },
        StreamHead {
            births: BIRTH_END / 2 + 1,
            ..head(true)
        },
        StreamHead {
            high_water: u64::MAX,
            ..head(true)
        },
        StreamHead {
            base: Some(named("one", 0)).map(|named| Named {
                identity: Identity::NONE,
                ..named
            }),
            ..head(true)
        },
    ] {
        assert_eq!(read(&stream(&head, &[End]).0), Err(StreamError::Nonsense), "{head:?}");
    }
    assert_eq!(read(b"GONDSEND"), Err(StreamError::Cut));
    assert_eq!(read(b"GONDWANA"), Err(StreamError::Foreign));
    assert_eq!(read(b""), Err(StreamError::Foreign));
}
