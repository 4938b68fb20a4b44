//! Acts whose callers were ended in the middle, and the next acts on the directory.

use super::*;

/// The names `a` and `c`, and what became of an act that was cut off after so many steps.
fn left_behind<T>(cut: u32, act_on: impl FnOnce(&mut Model) -> T) -> (Model, T) {
    let mut model = Model::new(u32::MAX, u32::MAX);
    act(&mut model, Act::Create("a"), 0x1000).unwrap();
    act(&mut model, Act::Create("c"), 0x2000).unwrap();
    model.cut = model.steps + cut;
    let left = act_on(&mut model);
    model.cut = u32::MAX;
    (model, left)
}

/// The deletion of `a` was cut off.
fn left_deletion(cut: u32) -> (Model, Result<(), Failed>) {
    left_behind(cut, |model| delete(model, "a"))
}

/// A caller that is ended in the middle, for want of a block perhaps, leaves a deletion that the next act brings to its end.
#[test]
fn the_next_act_ends_a_deletion_that_was_left() {
    let acts = [
        Act::Create("b"),
        Act::Rename("c", "d"),
        Act::Replace("c"),
        Act::Delete("c"),
    ];
    let mut seen = BTreeSet::new();
    for next in acts {
        for cut in 0.. {
            let (mut model, left) = left_deletion(cut);
            act(&mut model, next, 0x3000).unwrap();
            let there = model.now.objects.contains_key(&0x1000);
            assert_eq!(model.names().contains_key("a"), there, "{next:?}, {cut}");
            assert_eq!(model.now.clist.contains(&(0x1000, 0x1001)), there, "{next:?}, {cut}");
            let view = crate::DirectoryView::open(&model.now.directory).unwrap();
            assert_eq!(view.interrupted(0), None, "{next:?}, {cut}");
            // The same name can be given again, or taken away.
            let again = if there { Act::Delete("a") } else { Act::Create("a") };
            assert_eq!(act(&mut model, again, 0x4000), Ok(()), "{next:?}, {cut}");
            seen.insert(there);
            if left.is_ok() {
                break;
            }
        }
    }
    assert_eq!(seen.len(), 2);
}

/// A program that may write the directory and not the root Clist goes on with its own acts.
#[test]
fn a_deletion_that_was_left_is_no_concern_of_a_stranger() {
    for cut in 0.. {
        let (mut model, left) = left_deletion(cut);
        model.is_stranger = true;
        assert_eq!(act(&mut model, Act::Rename("c", "d"), 0x3000), Ok(()), "{cut}");
        model.is_stranger = false;
        assert_eq!(act(&mut model, Act::Rename("d", "c"), 0x3000), Ok(()), "{cut}");
        let view = crate::DirectoryView::open(&model.now.directory).unwrap();
        assert_eq!(view.interrupted(0), None, "{cut}");
        if left.is_ok() {
            break;
        }
    }
}

/// A renaming that was left behind any of its steps has one name when the next act is over, whatever that is, and its object stays until that name is
/// deleted.
#[test]
fn the_next_act_ends_a_renaming_that_was_left() {
    let acts = [
        Act::Create("b"),
        Act::Rename("c", "d"),
        Act::Replace("c"),
        Act::Delete("c"),
        Act::Delete("a"),
        Act::Delete("new"),
        Act::Rename("a", "b"),
        Act::Rename("new", "b"),
        Act::Rename("new", "a"),
        Act::Replace("new"),
    ];
    let mut both_seen = 0;
    for next in acts {
        for cut in 0.. {
            let what = format!("{next:?}, {cut}");
            let (mut model, left) = left_behind(cut, |model| rename(model, "a", &entry("new", 0x1000)));
            let names = model.names();
            both_seen += usize::from(names.contains_key("a") && names.contains_key("new"));
            let name = ["new", "a"].into_iter().find(|name| names.contains_key(*name)).unwrap();
            let result = match next {
                Act::Rename(old @ ("a" | "new"), to) => rename(&mut model, old, &entry(to, 0x1000)),
                _ => act(&mut model, next, 0x3000),
            };
            let (expected, stays) = match next {
                Act::Delete(old) if old == name => (None, false),
                Act::Replace(old) if old == name => (None, true),
                Act::Rename(old, to) if old == name => (Some(to), true),
                _ => (Some(name), true),
            };
            let is_old = matches!(next, Act::Delete(old) | Act::Rename(old, _) if old != "c" && old != name);
            let refusal = is_old.then_some(Err(Failed::Directory(Error::NotFound)));
            assert_eq!(result, refusal.unwrap_or(Ok(())), "{what}");
            // The power goes at once: the directory may have been flushed, and the object has not.
            let mut after = Model::restart(model.stable.clone(), u32::MAX);
            recover(&mut after).unwrap();
            let is_there = |led| after.now.objects.contains_key(led);
            assert!(after.names().values().all(is_there), "{what}");
            for model in [started(&mut model), model] {
                let names = model.names();
                let found: Vec<_> = names
                    .iter()
                    .filter(|(_, led)| **led == 0x1000)
                    .map(|(name, _)| name.as_str())
                    .collect();
                assert_eq!(found, Vec::from_iter(expected), "{what}");
                assert!(names.values().all(|led| model.now.objects.contains_key(led)), "{what}");
                assert_eq!(model.now.objects.contains_key(&0x1000), stays, "{what}");
                let view = crate::DirectoryView::open(&model.now.directory).unwrap();
                assert_eq!(view.interrupted(0), None, "{what}");
            }
            if left.is_ok() {
                break;
            }
        }
    }
    assert_eq!(both_seen, acts.len());
}

/// An act does not wait for all deletions and renamings that others say are unfinished.
#[test]
fn an_act_finishes_some_of_what_others_left() {
    let mut model = Model::new(u32::MAX, u32::MAX);
    model.now.directory = vec![0; ENTRY_BYTES * 2000];
    let mut directory = Directory::format_zeroed(&mut model.now.directory).unwrap();
    for number in 0..1900 {
        let name = format!("{number}");
        let mark = [Mark::Doomed, Mark::Leaving][number as usize % 2];
        directory.insert_marked(&entry(&name, 0x1000 + number), mark).unwrap();
    }
    publish(&mut model, &entry("more", 0x10)).unwrap();
    assert!(model.steps < 200, "{} steps", model.steps);
}
