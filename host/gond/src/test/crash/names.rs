//! Names in a workload that is cut: made, written, renamed, removed; and judged by content.
//!
//! The states of all names behind each line are known from the lines alone. After a cut each name must lead to what it led to in
//! some state since the last sync that succeeded; where its removal succeeded, it must be gone. An object must hold what it held in some such state, but not
//! in the same one: a removal makes its directory durable at once, with the other names in it, and objects only follow with the next sync.

use super::Chance;
use crate::tree;
use crate::volume::Volume;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Names of this load begin so.
const PREFIX: &str = "n-";
/// Most names at a time.
const MOST: usize = 12;

/// The object that a name leads to, and the text in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The object, by its first name.
    object: String,
    text: String,
}

/// Names and what they lead to.
pub type Names = BTreeMap<String, Held>;

/// Adds lines of one round to a workload; `names` is what there will be behind them.
pub fn round(label: &str, names: &mut Names, chance: &mut Chance, lines: &mut Vec<String>) {
    let which = chance.next() as usize % names.len().max(1);
    let some = names.keys().nth(which).cloned();
    let mut add = |line: String| {
        apply(names, &line);
        lines.push(line);
    };
    let new = format!("{PREFIX}{label}");
    match (chance.next() % 4, some) {
        (0, Some(name)) => add(format!("mv {name} {new}")),
        (1, Some(name)) => add(format!("write {name} 0 {label}")),
        (2, Some(name)) => add(format!("rm {name}")),
        (_, Some(name)) if which + 1 >= MOST => add(format!("rm {name}")),
        _ => {
            add(format!("create {new} 4K"));
            add(format!("write {new} 0 {label}"));
        }
    }
}

/// The effect of a line that succeeded on the names.
fn apply(names: &mut Names, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["create", name, _] if name.starts_with(PREFIX) => {
            let (object, text) = (name.into(), String::new());
            names.insert(name.into(), Held { object, text });
        }
        ["write", name, _, text] => {
            if let Some(held) = names.get_mut(name) {
                held.text = text.into();
            }
        }
        ["mv", old, new] => {
            if let Some(held) = names.remove(old) {
                names.insert(new.into(), held);
            }
        }
        ["rm", name] => {
            names.remove(name);
        }
        _ => {}
    }
}

/// The states that a cut may have left: those since the last sync, oldest first. `before` is what there was at the start,
/// `lines` the workload, of which the first `done` succeeded and the next one may have been under way.
pub fn states(before: &Names, lines: &[&str], done: usize) -> Vec<Names> {
    let mut now = before.clone();
    let mut states = vec![now.clone()];
    for (index, line) in lines.iter().take(done + 1).enumerate() {
        if *line == "sync" && index < done {
            states.clear();
        }
        apply(&mut now, line);
        states.push(now.clone());
    }
    states
}

/// The names of the load on an image that was powered off cleanly.
pub fn found(disk: &Path) -> Result<Names> {
    let mut volume = Volume::open(disk)?;
    let (all, _) = tree::walk(&mut volume);
    let mut names = Names::new();
    for named in all.into_iter().filter(|named| named.path.starts_with(PREFIX)) {
        let page = volume.page(named.capability.address, 0)?.content;
        let bytes: Vec<u8> = page.map_or_else(Vec::new, |page| page.to_vec());
        let text = bytes
            .split(|byte| *byte == b'\n' || *byte == 0)
            .next()
            .unwrap_or_default();
        let (object, text) = (named.path.clone(), String::from_utf8_lossy(text).into_owned());
        names.insert(named.path, Held { object, text });
    }
    Ok(names)
}

/// Whether what is there can have come from these states, of which the last but one was told to the user.
pub fn judge(found: &Names, states: &[Names], removed: &[String]) -> Result<(), String> {
    let known: std::collections::BTreeSet<&String> = found.keys().chain(states.iter().flat_map(Names::keys)).collect();
    for name in known {
        let is = found.get(name);
        let can_be = |held: Option<&Held>| match (held, is) {
            (Some(held), Some(is)) => {
                let all = states.iter().flat_map(Names::values);
                all.filter(|other| other.object == held.object)
                    .any(|other| other.text == is.text)
            }
            (held, is) => held.is_none() && is.is_none(),
        };
        if !states.iter().any(|state| can_be(state.get(name))) {
            let were: Vec<_> = states.iter().map(|state| state.get(name)).collect();
            return Err(format!("'{name}' holds {is:?}; since the last sync it held {were:?}"));
        }
        if is.is_some() && removed.contains(name) {
            return Err(format!("'{name}' is there again; its removal had succeeded"));
        }
    }
    Ok(())
}

/// The names whose removal succeeded and that were not made again.
pub fn removed(lines: &[&str]) -> Vec<String> {
    let mut gone = Vec::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("rm ") {
            gone.push(name.to_owned());
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_judged_by_what_it_held_since_the_last_sync() {
        let lines = [
            "create n-a 4K",
            "write n-a 0 one",
            "create n-c 4K",
            "write n-c 0 three",
            "sync",
            "write n-a 0 two",
            "mv n-a n-b",
            "rm n-b",
        ];
        let states = states(&Names::new(), &lines, 7);
        assert_eq!(states.len(), 4);
        let is = |pairs: &[(&str, &str)]| -> Names {
            let held = |&(name, text): &(&str, &str)| {
                let (object, text) = (name.into(), text.into());
                (name.to_owned(), Held { object, text })
            };
            pairs.iter().chain(&[("n-c", "three")]).map(held).collect()
        };
        for good in [
            is(&[("n-a", "one")]),
            is(&[("n-a", "two")]),
            is(&[("n-b", "two")]),
            // The directory was made durable, the object was not.
            is(&[("n-b", "one")]),
            is(&[]),
        ] {
            assert_eq!(judge(&good, &states, &[]), Ok(()), "{good:?}");
        }
        let bad = [
            is(&[("n-a", "")]),
            is(&[("n-b", "three")]),
            is(&[("n-d", "two")]),
            Names::new(),
        ];
        for bad in bad {
            assert!(judge(&bad, &states, &[]).is_err(), "{bad:?}");
        }
        assert!(judge(&is(&[("n-b", "two")]), &states, &removed(&lines)).is_err());
    }
}
