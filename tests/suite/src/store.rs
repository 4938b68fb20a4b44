//! Kept objects: flushed, checkpointed, brought back from the disk, deleted. What a power cut does to
//! it, the host's crash tests show.

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{Capability, FLUSH_RANGES_MAX, OBJECT_PERSISTENT, UNMAP_REPLACE, UNMAP_ZERO},
};
use rt::{Clist, Object, call, system};

use testing::Random;

use crate::{
    arch,
    assistant::{Puppet, grant, wait_until},
    case::{Case, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("store/keep-and-flush", keep_and_flush),
    case("store/checkpoint", checkpoint),
    case("store/replace-brings-back", replace_brings_back),
    case("store/zero-stays-zero", zero_stays_zero),
    case("store/written-while-saved", written_while_saved),
    case("store/passwords-of-kept-objects", passwords_of_kept),
    case("store/resize-of-kept-objects", resize_of_kept),
    case("store/clone-of-kept-object", clone_of_kept),
    case("store/space-comes-back", space_comes_back),
    case("store/large-object", large_object),
];

/// A kept object that is deleted at the end of the case, whatever happens in it.
struct Kept {
    object: Option<Object>,
    clist: Clist,
    password: u64,
}

impl Kept {
    fn new(pages: u64) -> Outcome<Self> {
        let (object, password) = Object::create_with_password(pages * PAGE)?;
        let mut clist = Clist::create()?;
        clist.insert(Capability {
            address: object.base(),
            password,
        })?;
        call::apd_insert(0, clist.object().base())?;
        object.keep()?;
        Ok(Self {
            object: Some(object),
            clist,
            password,
        })
    }

    fn base(&self) -> u64 {
        self.object.as_ref().map_or(0, Object::base)
    }

    fn page(&self, page: u64) -> u64 {
        self.base() + page * PAGE
    }

    fn delete(mut self) -> Outcome {
        Ok(self.object.take().map_or(Ok(()), Object::delete)?)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            // The case has failed already, and says why.
            let _ = object.delete();
        }
    }
}

fn unmap(page: u64, pages: u64, disposition: u64) -> abi::error::Result<()> {
    arch::system_call(Call::PageUnMap as u64, [page, pages, disposition, 0, 0, 0])
        .result()
        .map(|_| ())
}

fn keep_and_flush(_: &Setting) -> Outcome {
    let kept = Kept::new(8)?;
    for page in 0..4 {
        arch::store(kept.page(page), 100 + page);
    }
    call::page_flush(kept.base(), 8)?;
    ensure_eq!(
        call::obj_info(kept.base())?.flags & OBJECT_PERSISTENT,
        OBJECT_PERSISTENT
    );
    for round in 0..20 {
        arch::store(kept.page(2), round);
        call::page_flush(kept.page(2), 1)?;
        ensure_eq!(arch::load(kept.page(2)), round);
    }
    call::page_flush(kept.base(), 8)?;
    ensure!(call::page_flush(kept.base(), 9).is_err());
    let other = Kept::new(2)?;
    let transient = Object::create(PAGE)?;
    for round in 0..20 {
        let ranges = [[kept.page(1), 3], [other.page(round % 2), 1]];
        arch::store(kept.page(2), round);
        arch::store(other.page(round % 2), round);
        call::page_flush_all(&ranges)?;
    }
    let ranges = [[kept.page(1), 3], [transient.base(), 1]];
    ensure_error!(call::page_flush_all(&ranges), NotPersistent);
    ensure_error!(
        call::page_flush_all(&[ranges[0]; FLUSH_RANGES_MAX as usize + 1]),
        BadArgument
    );
    ensure_error!(call::page_flush_all(&[]), BadArgument);
    call::page_flush_all(&[ranges[0]; FLUSH_RANGES_MAX as usize])?;
    other.delete()?;
    ensure!(call::page_flush(kept.base(), u64::MAX).is_err());
    ensure!((0..4).all(|page| page == 2 || arch::load(kept.page(page)) == 100 + page));
    kept.delete()
}

fn checkpoint(_: &Setting) -> Outcome {
    let kept = Kept::new(4)?;
    for round in 0..5 {
        arch::store(kept.page(round % 4), round);
        let before = system::store()?.checkpoints;
        system::checkpoint()?;
        let after = system::store()?.checkpoints;
        ensure!(after > before, "checkpoint {before}, then {after}");
    }
    ensure_eq!(arch::load(kept.page(3)), 3);
    kept.delete()
}

fn replace_brings_back(_: &Setting) -> Outcome {
    let kept = Kept::new(2)?;
    for attempt in 0..4 {
        arch::store(kept.base(), 5 + attempt);
        arch::store(kept.page(1), 7);
        system::checkpoint()?;
        arch::store(kept.base(), 1000 + attempt);
        let before = system::store()?.checkpoints;
        unmap(kept.base(), 2, UNMAP_REPLACE)?;
        // A checkpoint of the system's own may have come in between.
        let undisturbed = system::store()?.checkpoints == before;
        let found = arch::load(kept.base());
        ensure!(found == 5 + attempt || !undisturbed, "it holds {found}");
        ensure_eq!(arch::load(kept.page(1)), 7);
    }
    kept.delete()
}

fn zero_stays_zero(_: &Setting) -> Outcome {
    let kept = Kept::new(4)?;
    arch::store(kept.base(), 5);
    arch::store(kept.page(1), 6);
    system::checkpoint()?;
    unmap(kept.base(), 1, UNMAP_ZERO)?;
    ensure_eq!(arch::load(kept.base()), 0);
    system::checkpoint()?;
    ensure_eq!(arch::load(kept.base()), 0);
    unmap(kept.base(), 1, UNMAP_REPLACE)?;
    ensure_eq!(arch::load(kept.base()), 0);
    unmap(kept.page(1), 1, UNMAP_REPLACE)?;
    ensure_eq!(arch::load(kept.page(1)), 6);
    kept.delete()
}

fn written_while_saved(setting: &Setting) -> Outcome {
    // Writes between checkpoints and syncs, against a plain model.
    const PAGES: u64 = 16;
    let mut random = Random::at(setting.seed, 7);
    let kept = Kept::new(PAGES)?;
    let mut model = [0; PAGES as usize];
    for step in 1..400 {
        let page = random.below(PAGES);
        arch::store(kept.page(page), step);
        arch::store(kept.page(page) + PAGE - 8, step);
        model[page as usize] = step;
        if random.one_in(20) {
            call::page_flush(kept.page(random.below(PAGES)), 1)?;
        }
        if random.one_in(60) {
            system::checkpoint()?;
        }
        let seen = random.below(PAGES);
        let found = (arch::load(kept.page(seen)), arch::load(kept.page(seen) + PAGE - 8));
        ensure!(
            found == (model[seen as usize], model[seen as usize]),
            "step {step}: page {seen} holds {found:?}"
        );
    }
    kept.delete()
}

fn passwords_of_kept(_: &Setting) -> Outcome {
    let kept = Kept::new(1)?;
    let mut clist = Clist::create()?;
    let object = Object::open(kept.base())?;
    let password = grant(&mut clist, &object, Rights::RW)?;
    let puppet = Puppet::start(&[&clist])?;
    ensure!(puppet.poke(kept.base(), 4)?);
    object.revoke(password)?;
    ensure!(!puppet.poke(kept.base(), 5)?);
    // The owner can lock himself out, and then nobody can delete it: so he does not here.
    ensure_eq!(arch::load(kept.base()), 4);
    ensure!(kept.password != 0 && kept.clist.capabilities()?.len() == 1);
    puppet.end()?;
    let base = kept.base();
    kept.delete()?;
    ensure_error!(call::obj_info(base), BadAddress);
    ensure_error!(call::page_flush(base, 1), BadAddress);
    Ok(())
}

fn resize_of_kept(_: &Setting) -> Outcome {
    let kept = Kept::new(2)?;
    arch::store(kept.page(1), 3);
    system::checkpoint()?;
    call::obj_resize(kept.base(), 6 * PAGE)?;
    arch::store(kept.page(5), 4);
    call::page_flush(kept.base(), 6)?;
    call::obj_resize(kept.base(), PAGE)?;
    system::checkpoint()?;
    call::obj_resize(kept.base(), 6 * PAGE)?;
    ensure_eq!([1, 2, 5].map(|page| arch::load(kept.page(page))), [0, 0, 0]);
    kept.delete()
}

fn clone_of_kept(_: &Setting) -> Outcome {
    let kept = Kept::new(3)?;
    arch::store(kept.base(), 8);
    arch::store(kept.page(2), 9);
    system::checkpoint()?;
    let clone = Object::clone_of(kept.base(), 3 * PAGE, 0)?;
    arch::store(kept.base(), 10);
    arch::store(clone.base() + 2 * PAGE, 11);
    system::checkpoint()?;
    ensure_eq!([clone.base(), clone.base() + 2 * PAGE].map(arch::load), [8, 11]);
    ensure_eq!([kept.base(), kept.page(2)].map(arch::load), [10, 9]);
    kept.delete()?;
    ensure_eq!(arch::load(clone.base()), 8);
    Ok(())
}

fn space_comes_back(_: &Setting) -> Outcome {
    system::checkpoint()?;
    system::checkpoint()?;
    let before = system::store()?;
    for _ in 0..3 {
        let kept = Kept::new(100)?;
        for page in 0..100 {
            arch::store(kept.page(page), page);
        }
        system::checkpoint()?;
        ensure_eq!(system::store()?.objects, before.objects + 1);
        kept.delete()?;
    }
    // Freed blocks may be used again when two checkpoints have forgotten them.
    let back = || {
        let _ = system::checkpoint();
        system::store().is_ok_and(|after| after.free + 16 >= before.free && after.objects == before.objects)
    };
    wait_until("the blocks of deleted objects come back", back)
}

fn large_object(_: &Setting) -> Outcome {
    // Scattered pages of an object that is far larger than the disk.
    let kept = Kept::new(1 << 24)?;
    let places = [0, 1, 511, 512, 513, 65_535, 1 << 20, (1 << 24) - 1];
    for (index, &page) in places.iter().enumerate() {
        arch::store(kept.page(page), index as u64 + 1);
    }
    call::page_flush(kept.base(), 1 << 24)?;
    system::checkpoint()?;
    for (index, &page) in places.iter().enumerate() {
        match unmap(kept.page(page), 1, UNMAP_REPLACE) {
            Ok(()) | Err(Error::NotPersistent) => {}
            Err(error) => return Err(error.into()),
        }
        ensure_eq!(arch::load(kept.page(page)), index as u64 + 1);
    }
    kept.delete()
}
