//! Objects: made, touched, grown, shrunk, described, deleted, kept.

use abi::{
    Call, Error, Rights,
    address::{PAGE, SLOT, USER_END, USER_START},
    layout::{INFO_SET_MODIFIED, INFO_SET_TAG, OBJECT_PERSISTENT, OBJECT_STACK, ObjectInfo},
};
use rt::{Cell, Object, call};

use crate::{
    arch,
    assistant::{self, Puppet, clist_granting, run_well},
    case::{Case, Outcome, Role, Setting, case, ensure, ensure_eq, ensure_error, role},
};

/// The cases.
pub const CASES: &[Case] = &[
    case("objects/new-is-zero", new_is_zero),
    case("objects/sizes", sizes),
    case("objects/addresses-are-apart", addresses_are_apart),
    case("objects/any-address-inside-names-it", any_address_inside_names_it),
    case("objects/deleted-is-gone", deleted_is_gone),
    case("objects/reused-memory-is-zero", reused_memory_is_zero),
    case("objects/the-heap-does-not-begin-under-a-view", no_heap_under_a_view),
    case("objects/the-heap-grows-behind-many-views", heap_behind_many_views),
    case("objects/what-is-rusts-own-is-not-deleted", rusts_own_stays),
    case("objects/info", info),
    case("objects/info-needs-rights", info_needs_rights),
    case("objects/resize", resize),
    case("objects/resize-drops-content", resize_drops_content),
    case("objects/kill-list", kill_list),
    case("objects/kept-stay", kept_stay),
    case("objects/stacks-cannot-be-kept", stacks_cannot_be_kept),
    case("objects/clone", clone),
    case("objects/many", many),
];

/// The parts.
pub const ROLES: &[Role] = &[role("make-objects", make_objects)];

fn new_is_zero(_: &Setting) -> Outcome {
    let object = Object::create(8 * PAGE)?;
    for page in 0..8 {
        for offset in [0, 8, PAGE / 2, PAGE - 8] {
            ensure_eq!(arch::load(object.base() + page * PAGE + offset), 0);
        }
    }
    let last = object.base() + 8 * PAGE - 8;
    arch::store(last, 7);
    ensure_eq!(arch::load(last), 7);
    arch::guard()?;
    ensure_eq!(arch::peek(object.base() + 8 * PAGE), None);
    ensure_eq!(arch::peek(object.base() - 8), None);
    Ok(object.delete()?)
}

fn sizes(_: &Setting) -> Outcome {
    ensure_error!(call::obj_create(0, 0), BadArgument);
    for bytes in [u64::MAX, u64::MAX - PAGE, USER_END, 1 << 60, 1 << 63] {
        let refused = call::obj_create(bytes, 0);
        ensure!(
            matches!(refused, Err(Error::NoMemory | Error::BadArgument | Error::LimitReached)),
            "{bytes:#x} bytes: {refused:x?}"
        );
    }
    for bytes in [
        1,
        PAGE - 1,
        PAGE,
        PAGE + 1,
        SLOT - 1,
        SLOT,
        SLOT + 1,
        5 * SLOT + 3 * PAGE,
    ] {
        let object = Object::create(bytes)?;
        let pages = bytes.div_ceil(PAGE);
        ensure_eq!(object.info()?.bytes, pages * PAGE);
        ensure!(
            object.base().is_multiple_of(PAGE)
                && object.base() >= USER_START
                && object.base() + pages * PAGE <= USER_END
        );
        arch::store(object.base() + (pages - 1) * PAGE, bytes);
        ensure_eq!(arch::load(object.base() + (pages - 1) * PAGE), bytes);
        object.delete()?;
    }
    // A large one costs nothing until it is touched.
    let large = Object::create(1 << 36)?;
    arch::store(large.base() + (1 << 36) - 8, 1);
    ensure_eq!(large.info()?.resident, 1);
    Ok(large.delete()?)
}

fn addresses_are_apart(_: &Setting) -> Outcome {
    let mut objects = alloc::vec::Vec::new();
    for pages in [1, 600, 1, 512, 3, 513, 1] {
        objects.push(Object::create(pages * PAGE)?);
    }
    for (index, one) in objects.iter().enumerate() {
        for other in &objects[..index] {
            let apart = one.base() / SLOT > (other.base() + other.bytes() - 1) / SLOT
                || other.base() / SLOT > (one.base() + one.bytes() - 1) / SLOT;
            ensure!(apart, "{:#x} and {:#x} share a slot", one.base(), other.base());
        }
    }
    Ok(())
}

fn any_address_inside_names_it(_: &Setting) -> Outcome {
    let object = Object::create(3 * PAGE)?;
    for offset in [0, 1, PAGE, 2 * PAGE + 17, 3 * PAGE - 1] {
        ensure_eq!(call::obj_info(object.base() + offset)?.base, object.base());
    }
    ensure_error!(call::obj_info(object.base() + 3 * PAGE), BadAddress);
    call::obj_delete(object.base() + 2 * PAGE + 5)?;
    ensure_error!(call::obj_info(object.base()), BadAddress);
    Ok(())
}

fn deleted_is_gone(_: &Setting) -> Outcome {
    arch::guard()?;
    let object = Object::create(2 * PAGE)?;
    let base = object.base();
    arch::store(base, 1);
    object.delete()?;
    ensure_eq!(arch::peek(base), None);
    ensure!(!arch::poke(base + PAGE, 1));
    ensure_error!(call::obj_delete(base), BadAddress);
    ensure_error!(call::obj_resize(base, PAGE), BadAddress);
    ensure_error!(call::keep_object(base), BadAddress);
    ensure_error!(call::obj_passwd(base, 1, 4), BadAddress);
    for address in [0, 1, USER_START - 1, USER_END, 1 << 47, u64::MAX, 0xffff_8000_0000_0000] {
        ensure_error!(call::obj_delete(address), BadAddress);
        ensure_error!(call::obj_info(address), BadAddress);
    }
    Ok(())
}

/// An object that is deleted under a view, by its address: its slot is the next that the kernel gives away.
fn no_heap_under_a_view(_: &Setting) -> Outcome {
    const BYTES: usize = 1 << 20;
    arch::guard()?;
    for _ in 0..4 {
        let object = Object::create(BYTES as u64)?;
        let word = object.first::<Cell<u64>>()?;
        word.set(1);
        call::obj_delete(object.base())?;
        let block = alloc::vec![7u8; BYTES];
        let (from, to) = (block.as_ptr() as u64, block.as_ptr() as u64 + BYTES as u64);
        ensure!(
            !(from..to).contains(&object.base()),
            "a vector began at {from:#x}, under a view of a deleted object"
        );
        ensure!(!arch::poke(core::ptr::from_ref(word) as u64, 0) && block.iter().all(|byte| *byte == 7));
    }
    Ok(())
}

/// The addresses of many objects that the program has seen, and of one that is long, are those that the kernel gives next.
fn heap_behind_many_views(_: &Setting) -> Outcome {
    const MANY: usize = 300;
    let mut objects = alloc::vec::Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let object = Object::create(PAGE)?;
        object.first::<Cell<u64>>()?.set(1);
        objects.push(object);
    }
    let long = Object::create(200 << 21)?;
    long.first::<Cell<u64>>()?.set(1);
    for object in objects {
        object.delete()?;
    }
    long.delete()?;
    for bytes in [64 << 10, 1 << 20, 5 << 20] {
        let mut block = alloc::vec::Vec::<u8>::new();
        ensure!(block.try_reserve_exact(bytes).is_ok(), "the heap has no {bytes} bytes");
    }
    Ok(())
}

/// Neither by its address nor through a handle.
fn rusts_own_stays(_: &Setting) -> Outcome {
    let small = alloc::boxed::Box::new(5_u64);
    let large = alloc::vec![6_u8; 3 << 20];
    let (image, bytes) = rt::pdx::own_image().ok_or(rt::Error::NotAProgram)?;
    let small_at = core::ptr::from_ref(&*small) as u64;
    let large_at = large.as_ptr() as u64;
    for address in [small_at, large_at, large_at + (2 << 20), image, image + bytes] {
        ensure_error!(Object::open(address), InUse);
        ensure_error!(call::obj_delete(address), InUse);
        ensure_error!(call::obj_retire(address), InUse);
        ensure_error!(call::obj_resize(address, PAGE), InUse);
    }
    ensure!(*small == 5 && large.iter().all(|byte| *byte == 6));
    drop(large);
    // Memory that the heap gave back may be anybody's.
    let object = Object::create(3 << 20)?;
    Ok(object.delete()?)
}

fn reused_memory_is_zero(_: &Setting) -> Outcome {
    for round in 0..20 {
        let object = Object::create(16 * PAGE)?;
        for page in 0..16 {
            for offset in [0, 512, PAGE - 8] {
                let address = object.base() + page * PAGE + offset;
                ensure!(
                    arch::load(address) == 0,
                    "round {round}: something is left at {address:#x}"
                );
                arch::store(address, u64::MAX);
            }
        }
        object.delete()?;
    }
    Ok(())
}

fn info(_: &Setting) -> Outcome {
    let object = Object::create(4 * PAGE)?;
    arch::store(object.base(), 1);
    arch::store(object.base() + 2 * PAGE, 1);
    let before = object.info()?;
    ensure_eq!(before.base, object.base());
    ensure_eq!(before.bytes, 4 * PAGE);
    ensure_eq!(before.flags & (OBJECT_PERSISTENT | OBJECT_STACK), 0);
    ensure_eq!(before.resident, 2);
    ensure_eq!(before.pdx, 0);
    ensure_eq!(before.tag, 0);
    ensure_eq!(before.rights & 15, u64::from(Rights::OWNER.bits()));
    object.grant(Rights::R)?;
    ensure_eq!(object.info()?.capabilities, before.capabilities + 1);
    let new = ObjectInfo {
        tag: 77,
        modified_ns: 12345,
        created_ns: 1,
        bytes: 1,
        base: 1,
        ..ObjectInfo::default()
    };
    let old = call::obj_info_change(object.base(), INFO_SET_TAG | INFO_SET_MODIFIED, new)?;
    ensure_eq!(old.tag, 0);
    let now = object.info()?;
    ensure_eq!(
        (now.tag, now.modified_ns, now.created_ns, now.bytes, now.base),
        (77, 12345, before.created_ns, 4 * PAGE, object.base())
    );
    ensure_error!(call::obj_info_change(object.base(), 1 << 40, new), BadArgument);
    let stack = core::hint::black_box(0_u64);
    ensure_eq!(
        call::obj_info(&raw const stack as u64)?.flags & OBJECT_STACK,
        OBJECT_STACK
    );
    Ok(())
}

fn info_needs_rights(_: &Setting) -> Outcome {
    let object = Object::create(PAGE)?;
    let buffer = Object::create(PAGE)?;
    let (mut clist, _) = clist_granting(&buffer, Rights::RW)?;
    let puppet = Puppet::start(&[&clist])?;
    let ask = |flags| puppet.call(abi::Call::ObjInfo, &[object.base(), flags, buffer.base(), PAGE]);
    ensure_error!(ask(0)?, Protection);
    assistant::grant(&mut clist, &object, Rights::R)?;
    ensure!(ask(0)?.is_ok());
    ensure_eq!(arch::load(buffer.base()), object.base());
    ensure_error!(ask(INFO_SET_TAG)?, Protection);
    ensure_error!(
        puppet.call(abi::Call::ObjInfo, &[object.base(), 0, object.base(), PAGE])?,
        Protection
    );
    for bad in [0, u64::MAX - 7, 1 << 47, buffer.base() + PAGE - 8] {
        let refused = puppet.call(abi::Call::ObjInfo, &[object.base(), 0, bad, PAGE])?;
        ensure!(
            matches!(refused, Err(Error::Protection | Error::BadAddress)),
            "buffer {bad:#x}: {refused:x?}"
        );
    }
    puppet.end()
}

fn resize(_: &Setting) -> Outcome {
    arch::guard()?;
    let mut object = Object::create(2 * PAGE)?;
    arch::store(object.base() + PAGE, 5);
    object.resize(40 * PAGE)?;
    ensure_eq!(object.info()?.bytes, 40 * PAGE);
    ensure_eq!(arch::load(object.base() + PAGE), 5);
    ensure_eq!(arch::peek(object.base() + 40 * PAGE - 8), Some(0));
    object.resize(PAGE)?;
    ensure_eq!(arch::peek(object.base() + PAGE), None);
    ensure_error!(call::obj_resize(object.base(), 0), BadArgument);
    for bytes in [u64::MAX, 1 << 46, 1 << 62] {
        ensure!(
            call::obj_resize(object.base(), bytes).is_err(),
            "it grew to {bytes:#x} bytes"
        );
    }
    ensure_eq!(object.info()?.bytes, PAGE);
    // Growing beyond its slots works or says why not; either way the object is whole.
    match call::obj_resize(object.base(), 3 * SLOT) {
        Ok(()) => ensure!(arch::poke(object.base() + 3 * SLOT - PAGE, 9)),
        Err(Error::CannotGrow) => ensure_eq!(arch::peek(object.base() + PAGE), None),
        Err(other) => return Err(other.into()),
    }
    Ok(object.delete()?)
}

fn resize_drops_content(_: &Setting) -> Outcome {
    let mut object = Object::create(4 * PAGE)?;
    arch::store(object.base() + 3 * PAGE, 5);
    object.resize(PAGE)?;
    object.resize(4 * PAGE)?;
    ensure_eq!(arch::load(object.base() + 3 * PAGE), 0);
    Ok(object.delete()?)
}

/// Makes objects, writes their addresses at the address given, and ends: with a kept one last.
fn make_objects(numbers: &[u64; 6]) -> u64 {
    for index in 0..numbers[1] {
        let Ok((base, _)) = call::obj_create(2 * PAGE, numbers[2]) else {
            return 1;
        };
        arch::store(base, index);
        arch::store(numbers[0] + 8 * index, base);
        if index + 1 == numbers[1] && call::keep_object(base).is_err() {
            return 2;
        }
    }
    0
}

fn kill_list(_: &Setting) -> Outcome {
    const OBJECTS: u64 = 5;
    let list = Object::create(PAGE)?;
    let password = rt::call::random_read()? | 1;
    let (clist, _) = clist_granting(&list, Rights::RW)?;
    let apd = assistant::apd_of(&[&clist]);
    // Nothing is made between the assistant's end and the look: addresses may be used again at once.
    let mut own = rt::Clist::create()?;
    run_well(
        "make-objects",
        &[list.base(), OBJECTS, password],
        &assistant::confined(&apd),
        0,
    )?;
    let kept = arch::load(list.base() + 8 * (OBJECTS - 1));
    own.insert(abi::layout::Capability {
        address: kept,
        password,
    })?;
    call::apd_insert(0, own.object().base())?;
    for index in 0..OBJECTS - 1 {
        let base = arch::load(list.base() + 8 * index);
        ensure_error!(call::obj_info(base), BadAddress);
    }
    // The kept one is there, for who has its capability, until it is deleted.
    ensure_eq!(call::obj_info(kept)?.flags & OBJECT_PERSISTENT, OBJECT_PERSISTENT);
    ensure_eq!(arch::load(kept), OBJECTS - 1);
    call::obj_delete(kept)?;
    ensure_error!(call::obj_info(kept), BadAddress);
    Ok(())
}

fn kept_stay(_: &Setting) -> Outcome {
    arch::guard()?;
    let (object, password) = Object::create_with_password(PAGE)?;
    arch::store(object.base(), 3);
    let mut clist = rt::Clist::create()?;
    clist.insert(abi::layout::Capability {
        address: object.base(),
        password,
    })?;
    call::apd_insert(0, clist.object().base())?;
    object.keep()?;
    // Keeping twice is no harm. From now on only the capability counts.
    object.keep()?;
    ensure_eq!(arch::peek(object.base()), Some(3));
    call::apd_delete(0)?;
    ensure_eq!(arch::peek(object.base()), None);
    ensure_error!(call::obj_delete(object.base()), Protection);
    call::apd_insert(0, clist.object().base())?;
    ensure_eq!(arch::peek(object.base()), Some(3));
    Ok(object.delete()?)
}

fn stacks_cannot_be_kept(_: &Setting) -> Outcome {
    let here = core::hint::black_box(0_u64);
    let refused = call::keep_object(&raw const here as u64);
    ensure!(
        matches!(refused, Err(Error::NotPersistent | Error::Protection)),
        "{refused:?}"
    );
    // The runtime refuses it, and so does the system.
    let stack = &raw const here as u64;
    ensure_error!(call::obj_delete(stack), InUse);
    ensure_error!(call::obj_resize(stack, PAGE), InUse);
    ensure!(
        arch::system_call(Call::ObjDelete as u64, [stack, 0, 0, 0, 0, 0])
            .result()
            .is_err()
    );
    ensure!(
        arch::system_call(Call::ObjResize as u64, [stack, PAGE, 0, 0, 0, 0])
            .result()
            .is_err()
    );
    Ok(())
}

fn clone(_: &Setting) -> Outcome {
    let source = Object::create(3 * PAGE)?;
    arch::store(source.base() + PAGE, 11);
    let copy = Object::clone_of(source.base(), 3 * PAGE, PAGE + 1)?;
    ensure_eq!(copy.info()?.bytes, 5 * PAGE);
    ensure_eq!(arch::load(copy.base() + PAGE), 11);
    ensure_eq!(arch::load(copy.base() + 4 * PAGE), 0);
    arch::store(copy.base() + PAGE, 12);
    ensure_eq!(arch::load(source.base() + PAGE), 11);
    arch::store(source.base() + 2 * PAGE, 13);
    ensure_eq!(arch::load(copy.base() + 2 * PAGE), 0);
    let second = Object::clone_of(copy.base(), 5 * PAGE, 0)?;
    copy.delete()?;
    ensure_eq!(arch::load(second.base() + PAGE), 12);
    source.delete()?;
    arch::store(second.base() + PAGE, 14);
    ensure_eq!(arch::load(second.base() + PAGE), 14);
    for bytes in [u64::MAX, 1 << 47, u64::MAX - PAGE] {
        ensure!(call::obj_clone(second.base(), bytes, 0).is_err());
    }
    for source in [0, 8, 1 << 47, u64::MAX, second.base() + 5 * PAGE] {
        ensure_error!(call::obj_clone(source, 0, 0), BadAddress);
    }
    Ok(())
}

fn many(_: &Setting) -> Outcome {
    let before = rt::system::memory()?;
    for _ in 0..3 {
        let mut objects = alloc::vec::Vec::new();
        for index in 0..300 {
            let object = Object::create(PAGE)?;
            arch::store(object.base(), index);
            objects.push(object);
        }
        for (index, object) in objects.into_iter().enumerate() {
            ensure_eq!(arch::load(object.base()), index as u64);
            object.delete()?;
        }
    }
    let after = rt::system::memory()?;
    ensure!(
        after.objects <= before.objects + 8,
        "{} objects before, {} after",
        before.objects,
        after.objects
    );
    Ok(())
}
