//! Pages: copied on write, limited, dropped, shared between domains.

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT},
    layout::{UNMAP_REPLACE, UNMAP_ZERO},
};
use rt::{Object, call};

use testing::Random;

use crate::{
    arch,
    assistant::{Puppet, clist_granting, grant},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("pages/copy", copy),
    case("pages/copy-both-directions", copy_both_directions),
    case("pages/copy-of-absent-is-zero", copy_of_absent),
    case("pages/copy-within-an-object", copy_within),
    case("pages/copy-refusals", copy_refusals),
    case("pages/copies-of-copies", copies_of_copies),
    case("pages/shared-by-domains", shared_by_domains),
    case("pages/limits", limits),
    case("pages/guards", guards),
    case("pages/limits-bind-everybody", limits_bind_everybody),
    case("pages/limits-survive-cloning", limits_survive_cloning),
    case("pages/unmap-zero", unmap_zero),
    case("pages/unmap-refusals", unmap_refusals),
    case("pages/flush-needs-keeping", flush_needs_keeping),
];

fn copy_pages(from: u64, to: u64, pages: u64) -> abi::error::Result<()> {
    let answer = arch::system_call(Call::PageCopy as u64, [from, to, pages, 0, 0, 0]);
    answer.result().map(|_| ())
}

pub fn unmap(page: u64, pages: u64, disposition: u64) -> abi::error::Result<()> {
    let answer = arch::system_call(Call::PageUnMap as u64, [page, pages, disposition, 0, 0, 0]);
    answer.result().map(|_| ())
}

fn filled(pages: u64, mark: u64) -> Outcome<Object> {
    let object = Object::create(pages * PAGE)?;
    for page in 0..pages {
        arch::store(object.base() + page * PAGE, mark + page);
        arch::store(object.base() + page * PAGE + PAGE - 8, mark + page);
    }
    Ok(object)
}

fn holds(object: &Object, page: u64, word: u64) -> bool {
    arch::load(object.base() + page * PAGE) == word && arch::load(object.base() + page * PAGE + PAGE - 8) == word
}

fn copy(_: &Setting) -> Outcome {
    let (from, to) = (filled(4, 100)?, filled(6, 200)?);
    copy_pages(from.base() + PAGE, to.base() + 2 * PAGE, 3)?;
    for (page, word) in [(0, 200), (1, 201), (2, 101), (3, 102), (4, 103), (5, 205)] {
        ensure!(holds(&to, page, word), "page {page} does not hold {word}");
    }
    ensure!((0..4).all(|page| holds(&from, page, 100 + page)));
    Ok(())
}

fn copy_both_directions(_: &Setting) -> Outcome {
    let (from, to) = (filled(2, 100)?, filled(2, 200)?);
    copy_pages(from.base(), to.base(), 2)?;
    // The copy is written first on one page, the original on the other.
    arch::store(to.base(), 1);
    arch::store(from.base() + PAGE, 2);
    ensure_eq!(arch::load(from.base()), 100);
    ensure_eq!(arch::load(to.base() + PAGE), 101);
    arch::store(from.base(), 3);
    arch::store(to.base() + PAGE, 4);
    ensure_eq!(
        [from.base(), to.base(), from.base() + PAGE, to.base() + PAGE].map(arch::load),
        [3, 1, 2, 4]
    );
    copy_pages(to.base(), from.base(), 2)?;
    ensure_eq!([from.base(), from.base() + PAGE].map(arch::load), [1, 4]);
    to.delete()?;
    ensure_eq!([from.base(), from.base() + PAGE].map(arch::load), [1, 4]);
    Ok(())
}

fn copy_of_absent(_: &Setting) -> Outcome {
    let (from, to) = (Object::create(3 * PAGE)?, filled(3, 100)?);
    copy_pages(from.base(), to.base(), 3)?;
    ensure!((0..3).all(|page| holds(&to, page, 0)));
    arch::store(from.base(), 1);
    arch::store(to.base() + PAGE, 1);
    ensure_eq!(arch::load(to.base()), 0);
    ensure_eq!(arch::load(from.base() + PAGE), 0);
    Ok(())
}

fn copy_within(_: &Setting) -> Outcome {
    let object = filled(6, 100)?;
    copy_pages(object.base(), object.base() + 3 * PAGE, 3)?;
    ensure!((0..6).all(|page| holds(&object, page, 100 + page % 3)));
    for (from, to, pages) in [(0, 1, 2), (1, 0, 2), (0, 0, 1)] {
        ensure_error!(
            copy_pages(object.base() + from * PAGE, object.base() + to * PAGE, pages),
            BadArgument
        );
    }
    Ok(())
}

fn copy_refusals(_: &Setting) -> Outcome {
    let (from, to) = (filled(2, 100)?, filled(2, 200)?);
    ensure_error!(copy_pages(from.base() + 1, to.base(), 1), BadArgument);
    ensure_error!(copy_pages(from.base(), to.base() + 8, 1), BadArgument);
    for pages in [3, 1 << 40, u64::MAX, 1 << 52] {
        let refused = copy_pages(from.base(), to.base(), pages);
        ensure!(
            matches!(refused, Err(Error::BadAddress | Error::BadArgument)),
            "{pages:#x} pages: {refused:?}"
        );
    }
    for bad in [0, 1 << 47, !(PAGE - 1), abi::address::USER_END] {
        ensure_error!(copy_pages(bad, to.base(), 1), BadAddress);
        ensure_error!(copy_pages(from.base(), bad, 1), BadAddress);
    }
    ensure!((0..2).all(|page| holds(&from, page, 100 + page) && holds(&to, page, 200 + page)));
    let (mut clist, _) = clist_granting(&from, Rights::R)?;
    grant(&mut clist, &to, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_error!(puppet.call(Call::PageCopy, &[from.base(), to.base(), 1])?, Protection);
    grant(&mut clist, &to, Rights::RW)?;
    puppet.call(Call::PageCopy, &[from.base(), to.base(), 1])??;
    ensure_eq!(arch::load(to.base()), 100);
    puppet.end()
}

fn copies_of_copies(setting: &Setting) -> Outcome {
    // Many objects, copied and written at random, against a plain model.
    const OBJECTS: usize = 6;
    const PAGES: u64 = 4;
    let mut random = Random::at(setting.seed, 5);
    let mut objects = alloc::vec::Vec::new();
    for index in 0..OBJECTS {
        objects.push(filled(PAGES, 1000 * (index as u64 + 1))?);
    }
    let mut model: alloc::vec::Vec<[u64; PAGES as usize]> = (0..OBJECTS as u64)
        .map(|index| core::array::from_fn(|page| 1000 * (index + 1) + page as u64))
        .collect();
    for step in 0..500 {
        let (a, b) = (
            random.below(OBJECTS as u64) as usize,
            random.below(OBJECTS as u64) as usize,
        );
        let (page, other) = (random.below(PAGES), random.below(PAGES));
        let (place, other_place) = (objects[a].base() + page * PAGE, objects[b].base() + other * PAGE);
        if random.one_in(2) && place != other_place {
            copy_pages(place, other_place, 1)?;
            model[b][other as usize] = model[a][page as usize];
        } else {
            arch::store(place, step);
            arch::store(place + PAGE - 8, step);
            model[a][page as usize] = step;
        }
        let (c, third) = (random.below(OBJECTS as u64) as usize, random.below(PAGES));
        let expected = model[c][third as usize];
        ensure!(
            holds(&objects[c], third, expected),
            "step {step}: object {c}, page {third} does not hold {expected}"
        );
    }
    for (object, pages) in objects.iter().zip(&model) {
        for (page, word) in pages.iter().enumerate() {
            ensure!(holds(object, page as u64, *word));
        }
    }
    Ok(())
}

fn shared_by_domains(_: &Setting) -> Outcome {
    let object = Object::create(SLOT + 3 * PAGE)?;
    let (clist, _) = clist_granting(&object, Rights::RW)?;
    let one = Puppet::start(&[&clist])?;
    let other = Puppet::start(&[&clist])?;
    for (index, offset) in [0, PAGE, SLOT - PAGE, SLOT, SLOT + 2 * PAGE].into_iter().enumerate() {
        let (at, word) = (object.base() + offset, index as u64 + 50);
        ensure!(one.poke(at, word)?);
        ensure_eq!(other.peek(at)?, Some(word));
        ensure_eq!(arch::load(at), word);
        arch::store(at + 8, word);
        ensure_eq!(one.peek(at + 8)?, Some(word));
    }
    // A copy made by one is seen by the other, and is private to nobody.
    let source = filled(1, 7)?;
    copy_pages(source.base(), object.base(), 1)?;
    ensure_eq!(other.peek(object.base())?, Some(7));
    ensure!(other.poke(object.base(), 8)?);
    ensure_eq!(one.peek(object.base())?, Some(8));
    ensure_eq!(arch::load(source.base()), 7);
    one.end()?;
    other.end()
}

fn limits(_: &Setting) -> Outcome {
    arch::guard()?;
    let object = Object::create(4 * PAGE)?;
    let page = object.base() + PAGE;
    arch::store(page, 0xc3);
    for (rights, read, write, execute) in [
        (Rights::R, true, false, false),
        (Rights::RX, true, false, true),
        (Rights::RW, true, true, false),
        (Rights::RWX, true, true, true),
    ] {
        call::page_limit(page, 1, rights.bits().into())?;
        let found = (arch::peek(page).is_some(), arch::poke(page, 0xc3), arch::fetch(page));
        ensure!(
            found == (read, write, execute),
            "limited to {rights}, the accesses are {found:?}"
        );
        // The pages beside it are as they were, and so is one that is not yet there.
        ensure!(arch::poke(object.base(), 1) && arch::poke(page + PAGE, 1));
    }
    call::page_limit(page, 1, Rights::RWX.bits().into())?;
    ensure_eq!(arch::peek(page), Some(0xc3));
    call::page_limit(object.base() + 3 * PAGE, 1, Rights::R.bits().into())?;
    ensure!(!arch::poke(object.base() + 3 * PAGE, 1));
    ensure_eq!(arch::peek(object.base() + 3 * PAGE), Some(0));
    // Page tables cannot take reading away from what may be written or executed.
    for rights in [0, 1, 2, 3, 8, 16, 32, u64::MAX] {
        ensure_error!(call::page_limit(page, 1, rights), BadArgument);
    }
    ensure_error!(call::page_limit(page + 1, 1, 7), BadArgument);
    ensure!(call::page_limit(page, 4, 7).is_err());
    ensure!(call::page_limit(page, u64::MAX, 7).is_err());
    ensure!(call::page_limit(0, 1, 7).is_err());
    Ok(())
}

/// Pages that nobody may touch: as many as an object may have, and without one in memory.
fn guards(_: &Setting) -> Outcome {
    arch::guard()?;
    let bytes = 8 << 30;
    let object = Object::create(bytes)?;
    let (page, last) = (object.base(), object.base() + bytes - PAGE);
    call::page_limit(page, bytes / PAGE, 0)?;
    let is_shut = |page| (arch::peek(page), arch::poke(page, 1), arch::fetch(page)) == (None, false, false);
    ensure!(is_shut(page) && is_shut(page + SLOT) && is_shut(last));
    ensure_eq!(object.info()?.resident, 0);
    ensure_error!(object.keep(), NotPersistent);
    // A part is opened; what is beside it stays shut, and so does all of it for the system's own writes.
    call::page_limit(page + PAGE, 2, Rights::RWX.bits().into())?;
    ensure!(arch::poke(page + PAGE, 7) && arch::poke(page + 2 * PAGE, 8));
    ensure!(is_shut(page) && is_shut(page + 3 * PAGE));
    ensure!(copy_pages(page + PAGE, page + 3 * PAGE, 1).is_err());
    // Pages that are there cannot be shut any more, nor pages of kept objects.
    ensure_error!(call::page_limit(page, 2, 0), BadArgument);
    call::page_limit(page + 3 * PAGE, 1, Rights::R.bits().into())?;
    call::page_limit(page + 3 * PAGE, 1, 0)?;
    ensure!(is_shut(page + 3 * PAGE));
    ensure_eq!(object.info()?.resident, 2);
    object.delete()?;
    let kept = Object::create(4 * PAGE)?;
    kept.keep()?;
    ensure_error!(call::page_limit(kept.base(), 1, 0), BadArgument);
    kept.delete()?;
    Ok(())
}

fn limits_bind_everybody(_: &Setting) -> Outcome {
    let object = Object::create(2 * PAGE)?;
    arch::store(object.base(), 0xc3);
    let (clist, _) = clist_granting(&object, Rights::RWX)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    call::page_limit(object.base(), 1, Rights::R.bits().into())?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::R);
    // System calls keep to it as well.
    ensure_error!(puppet.call(Call::ApdGet, &[object.base(), PAGE])?, Protection);
    ensure_error!(puppet.call(Call::SystemInfo, &[0, 0, object.base(), PAGE])?, Protection);
    call::page_limit(object.base(), 1, Rights::RWX.bits().into())?;
    ensure_eq!(puppet.accesses(object.base())?, Rights::RWX);
    puppet.end()
}

fn limits_survive_cloning(_: &Setting) -> Outcome {
    arch::guard()?;
    let object = filled(3, 100)?;
    call::page_limit(object.base(), 1, Rights::R.bits().into())?;
    let clone = Object::clone_of(object.base(), 3 * PAGE, 0)?;
    ensure!(!arch::poke(clone.base(), 1));
    ensure!(arch::poke(clone.base() + PAGE, 1));
    call::page_limit(clone.base(), 1, Rights::RW.bits().into())?;
    ensure!(arch::poke(clone.base(), 1));
    ensure!(!arch::poke(object.base(), 1));
    ensure_eq!(arch::peek(object.base()), Some(100));
    Ok(())
}

fn unmap_zero(_: &Setting) -> Outcome {
    let object = filled(4, 100)?;
    let resident = object.info()?.resident;
    unmap(object.base() + PAGE, 2, UNMAP_ZERO)?;
    ensure_eq!(object.info()?.resident, resident - 2);
    for (page, word) in [(0, 100), (1, 0), (2, 0), (3, 103)] {
        ensure!(holds(&object, page, word), "page {page} does not hold {word}");
    }
    arch::store(object.base() + PAGE, 5);
    ensure_eq!(arch::load(object.base() + PAGE), 5);
    unmap(object.base() + PAGE, 1, UNMAP_ZERO)?;
    unmap(object.base() + PAGE, 1, UNMAP_ZERO)?;
    ensure_eq!(arch::load(object.base() + PAGE), 0);
    // Others lose the content at the same time.
    let (clist, _) = clist_granting(&object, Rights::R)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure_eq!(puppet.peek(object.base())?, Some(100));
    unmap(object.base(), 1, UNMAP_ZERO)?;
    ensure_eq!(puppet.peek(object.base())?, Some(0));
    ensure_error!(
        puppet.call(Call::PageUnMap, &[object.base(), 1, UNMAP_ZERO])?,
        Protection
    );
    puppet.end()
}

fn unmap_refusals(_: &Setting) -> Outcome {
    let object = filled(2, 100)?;
    ensure_error!(unmap(object.base() + 8, 1, UNMAP_ZERO), BadArgument);
    for disposition in [2, 3, 4, u64::MAX] {
        ensure_error!(unmap(object.base(), 1, disposition), BadArgument);
    }
    for pages in [3, 1 << 52, u64::MAX] {
        ensure!(unmap(object.base(), pages, UNMAP_ZERO).is_err());
    }
    for bad in [0, 1 << 47, abi::address::USER_END] {
        ensure_error!(unmap(bad, 1, UNMAP_ZERO), BadAddress);
        ensure_error!(unmap(bad, 1, UNMAP_REPLACE), BadAddress);
    }
    ensure!(holds(&object, 0, 100) && holds(&object, 1, 101));
    Ok(())
}

fn flush_needs_keeping(_: &Setting) -> Outcome {
    let object = filled(2, 100)?;
    // A transient object has no stable storage; the call says so or has nothing to do.
    let answer = call::page_flush(object.base(), 2);
    ensure!(matches!(answer, Ok(()) | Err(Error::NotPersistent)), "{answer:?}");
    ensure!(holds(&object, 0, 100));
    ensure!(call::page_flush(object.base(), 3).is_err());
    ensure!(call::page_flush(object.base() + 4, 1).is_err());
    ensure!(call::page_flush(0, 1).is_err());
    let here = core::hint::black_box(0_u64);
    let answer = call::page_flush(&raw const here as u64 & !(PAGE - 1), 1);
    ensure!(
        matches!(answer, Ok(()) | Err(Error::NotPersistent | Error::Protection)),
        "{answer:?}"
    );
    Ok(())
}
