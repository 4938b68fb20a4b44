//! Clists: sorted, unsorted, long, and all the ways in which one can be malformed.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION, Capability, ClistHeader},
};
use rt::{
    Clist, Object, call,
    names::clist::{Error::Full, LARGEST},
};

use testing::Random;

use crate::{
    arch,
    assistant::Puppet,
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("clists/sorted", |setting| long(setting, CLIST_SORTED)),
    case("clists/unsorted", |setting| long(setting, 0)),
    case("clists/full", full),
    case("clists/no-longer-than-is-read", no_longer_than_is_read),
    case("clists/changes-count-at-once", changes_count),
    case("clists/malformed-is-refused", malformed_is_refused),
    case("clists/becomes-malformed", becomes_malformed),
    case("clists/false-order", false_order),
    case("clists/any-content", any_content),
    case("clists/address-inside", address_inside),
];

const GOOD: ClistHeader = ClistHeader {
    magic: CLIST_MAGIC,
    version: CLIST_VERSION,
    flags: CLIST_SORTED,
    count: 0,
};

fn set_header(object: &Object, header: ClistHeader) {
    for (index, word) in header.to_words().into_iter().enumerate() {
        arch::store(object.base() + 8 * index as u64, word);
    }
}

fn set_record(object: &Object, index: u64, capability: Capability) {
    let at = object.base() + ClistHeader::BYTES as u64 + index * Capability::BYTES as u64;
    arch::store(at, capability.address);
    arch::store(at + 8, capability.password);
}

/// How many records fit.
fn room(object: &Object) -> u64 {
    (object.bytes() - ClistHeader::BYTES as u64) / Capability::BYTES as u64
}

fn clist_of(pages: u64, header: ClistHeader, records: &[Capability]) -> Outcome<Clist> {
    let object = Object::create(pages * PAGE)?;
    set_header(
        &object,
        ClistHeader {
            count: records.len() as u64,
            ..header
        },
    );
    for (index, record) in records.iter().enumerate() {
        set_record(&object, index as u64, *record);
    }
    Ok(Clist::of_object(object))
}

/// Objects scattered among invalid capabilities, over several pages.
fn long(setting: &Setting, flags: u64) -> Outcome {
    let mut random = Random::at(setting.seed, 2);
    let mut records = alloc::vec::Vec::new();
    let mut objects = alloc::vec::Vec::new();
    for _ in 0..12 {
        let object = Object::create(PAGE)?;
        records.push(Capability {
            address: object.base(),
            password: object.grant(Rights::R)?,
        });
        objects.push(object);
    }
    let hidden = Object::create(PAGE)?;
    while records.len() < 600 {
        records.push(Capability {
            address: random.below(1 << 47),
            password: random.word(),
        });
    }
    if flags & CLIST_SORTED != 0 {
        records.sort_unstable_by_key(|record| (record.address, record.password));
    } else {
        for index in (1..records.len()).rev() {
            records.swap(index, random.below(index as u64 + 1) as usize);
        }
    }
    let clist = clist_of(4, ClistHeader { flags, ..GOOD }, &records)?;
    let puppet = Puppet::start(&[&clist])?;
    for object in &objects {
        let at = records
            .iter()
            .position(|record| record.address == object.base())
            .unwrap_or_default() as u64;
        let expected = clist.object().base() + ClistHeader::BYTES as u64 + at * Capability::BYTES as u64;
        ensure_eq!(puppet.call(Call::ApdLookup, &[object.base(), 4])??.0, expected);
        ensure_eq!(puppet.accesses(object.base())?, Rights::R);
    }
    ensure_eq!(puppet.accesses(hidden.base())?, Rights::NONE);
    puppet.end()
}

fn full(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let good = Capability {
        address: object.base(),
        password: object.grant(Rights::R)?,
    };
    for flags in [0, CLIST_SORTED] {
        let list = Object::create(2 * PAGE)?;
        let last = room(&list) - 1;
        for index in 0..last {
            set_record(
                &list,
                index,
                Capability {
                    address: index,
                    password: index,
                },
            );
        }
        set_record(&list, last, good);
        set_header(
            &list,
            ClistHeader {
                flags,
                count: last + 1,
                ..GOOD
            },
        );
        let clist = Clist::of_object(list);
        let puppet = Puppet::start(&[&clist])?;
        ensure_eq!(puppet.accesses(object.base())?, Rights::R);
        puppet.end()?;
    }
    Ok(())
}

/// One that is full and could not be read if it were longer stays as it is, and is read.
fn no_longer_than_is_read(_: &Setting) -> Outcome {
    let list = Object::create(LARGEST)?;
    let count = room(&list);
    set_header(&list, ClistHeader { count, ..GOOD });
    let address = list.base();
    let mut clist = Clist::of_object(list);
    let one_more = Capability {
        address: PAGE,
        password: 1,
    };
    ensure_eq!(clist.insert(one_more), Err(rt::Error::Clist(Full)));
    ensure_eq!(Clist::open(address)?.object().bytes(), LARGEST);
    Ok(())
}

fn changes_count(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let capability = Capability {
        address: object.base(),
        password: object.grant(Rights::RW)?,
    };
    let mut clist = Clist::create()?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::NONE);
    clist.insert(capability)?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RW);
    // A capability that is taken out of a Clist is forgotten when the cache is flushed.
    clist.remove(capability)?;
    puppet.call(Call::ApdFlush, &[])??;
    ensure_eq!(puppet.accesses(object.base())?, Rights::NONE);
    puppet.end()
}

/// Headers that no Clist has; the last word is added to what fits.
fn bad_headers(fits: u64) -> [ClistHeader; 8] {
    [
        ClistHeader { magic: 0, ..GOOD },
        ClistHeader {
            magic: CLIST_MAGIC ^ 1,
            ..GOOD
        },
        ClistHeader {
            magic: u64::MAX,
            ..GOOD
        },
        ClistHeader { version: 0, ..GOOD },
        ClistHeader {
            version: CLIST_VERSION + 1,
            ..GOOD
        },
        ClistHeader {
            count: fits + 1,
            ..GOOD
        },
        ClistHeader {
            count: u64::MAX,
            ..GOOD
        },
        ClistHeader { count: 1 << 60, ..GOOD },
    ]
}

fn malformed_is_refused(_: &Setting) -> Outcome {
    let list = Object::create(PAGE)?;
    ensure_error!(call::apd_insert(0, list.base()), BadClist);
    for header in bad_headers(room(&list)) {
        set_header(&list, header);
        let refused = call::apd_insert(0, list.base());
        ensure!(refused == Err(Error::BadClist), "{header:x?} is {refused:?}");
        let mut apd = abi::layout::ApdDescription {
            count: 1,
            ..abi::layout::ApdDescription::default()
        };
        apd.slots[0] = list.base();
        let refused =
            crate::assistant::program()?.start("suite", &["--assistant", "end"], &crate::assistant::confined(&apd));
        ensure!(refused.is_err(), "a task starts from {header:x?}");
    }
    set_header(
        &list,
        ClistHeader {
            count: room(&list),
            ..GOOD
        },
    );
    call::apd_insert(0, list.base())?;
    Ok(())
}

fn becomes_malformed(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let good = Capability {
        address: object.base(),
        password: object.grant(Rights::R)?,
    };
    let clist = clist_of(1, GOOD, &[good])?;
    let second = clist_of(1, GOOD, &[good])?;
    let list = clist.object();
    let puppet = Puppet::start(&[&clist])?;
    for header in bad_headers(room(list)) {
        set_header(list, header);
        puppet.call(Call::ApdFlush, &[])??;
        ensure_eq!(puppet.peek(object.base())?, None);
        ensure!(puppet.call(Call::ApdLookup, &[object.base(), 4])?.is_err());
        set_header(list, ClistHeader { count: 1, ..GOOD });
        ensure!(puppet.peek(object.base())?.is_some());
    }
    puppet.end()?;
    // A Clist that is gone grants nothing, and does not hide those behind it.
    let puppet = Puppet::start(&[&clist, &second])?;
    call::obj_delete(list.base())?;
    puppet.call(Call::ApdFlush, &[])??;
    ensure!(puppet.peek(object.base())?.is_some());
    puppet.end()
}

fn false_order(setting: &Setting) -> Outcome {
    // A Clist that claims to be sorted and is not may hide its capabilities, nothing worse.
    let mut random = Random::at(setting.seed, 3);
    let object = Object::create(PAGE)?;
    let good = Capability {
        address: object.base(),
        password: object.grant(Rights::R)?,
    };
    for _ in 0..10 {
        let mut records = alloc::vec![Capability { address: u64::MAX, password: 0 }; 100];
        for record in &mut records {
            record.address = random.word();
        }
        records[random.below(100) as usize] = good;
        let clist = clist_of(1, GOOD, &records)?;
        let puppet = Puppet::start(&[&clist])?;
        ensure!(Rights::R.contains(puppet.accesses(object.base())?));
        puppet.end()?;
    }
    Ok(())
}

fn any_content(setting: &Setting) -> Outcome {
    let mut random = Random::at(setting.seed, 4);
    let object = Object::create(PAGE)?;
    let list = Object::create(2 * PAGE)?;
    let clist = Clist::of_object(Object::open(list.base())?);
    set_header(&list, GOOD);
    let puppet = Puppet::start(&[&clist])?;
    for _ in 0..100 {
        for offset in 0..list.bytes() / 8 {
            arch::store(list.base() + 8 * offset, random.word());
        }
        let header = ClistHeader {
            flags: random.word(),
            count: random.below(2 * room(&list)),
            ..GOOD
        };
        set_header(&list, header);
        puppet.call(Call::ApdFlush, &[])??;
        ensure_eq!(puppet.peek(object.base())?, None);
    }
    puppet.end()
}

fn address_inside(_: &Setting) -> Outcome {
    // A capability may name any address inside its object, where the Clist is searched in full.
    let object = Object::create(3 * PAGE)?;
    let inside = Capability {
        address: object.base() + PAGE + 8,
        password: object.grant(Rights::R)?,
    };
    let clist = clist_of(1, ClistHeader { flags: 0, ..GOOD }, &[inside])?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::R);
    ensure_eq!(puppet.accesses(object.base() + 2 * PAGE)?, Rights::R);
    puppet.end()
}
