//! `gond module show` and `diff`.

use crate::{Words, make};
use linker::module::Module;
use linker::module::format::{self, Part};
use serde_json::json;
use std::path::Path;

pub(crate) fn with<T>(path: &Path, work: impl FnOnce(&Module<'_>) -> Result<T, String>) -> Result<T, String> {
    let bytes = make::read(path).map_err(|error| error.to_string())?;
    let module = Module::open(&path.display().to_string(), &bytes).map_err(|fault| fault.to_string())?;
    work(&module)
}

/// How an export is reached, in a word.
fn kind(value: u64) -> &'static str {
    match (value & format::VARIABLE != 0, value & format::PRIVATE != 0) {
        (false, false) => "function",
        (false, true) => "function, by thunk",
        (true, false) => "constant",
        (true, true) => "variable",
    }
}

/// Prints what is in a module object.
pub(crate) fn show(words: &Words) -> Result<(), String> {
    with(&words.files[0], |module| {
        if words.json {
            println!("{:#}", to_json(module));
            return Ok(());
        }
        println!("{} {} at {:#x}", module.name(), module.version(), module.address);
        let parts = [
            ("text", Part::Text),
            ("constants", Part::ReadOnly),
            ("thunks", Part::Thunks),
            ("template", Part::Template),
            ("unwinding", Part::Unwinding),
        ];
        for (name, part) in parts {
            println!(
                "  {name:10} {:9} bytes at {:#9x}",
                module.part(part).len(),
                module.part_at(part)
            );
        }
        println!("  {:10} {:9} bytes for each instance", "data", module.data_bytes);
        let imported = module.import_fixups().count();
        println!(
            "  {:10} {:9} words, and {imported} imported",
            "fix-ups",
            module.fixups().count()
        );
        for import in module.imports() {
            let when = if import.lazy {
                "at the first call"
            } else {
                "at instantiation"
            };
            println!(
                "imports {} {}: {} exports, bound {when}",
                import.name(),
                import.version(),
                import.count
            );
        }
        for (from, name) in inline_calls(module) {
            println!("inline  {name} of {from}");
        }
        for (number, export) in module.exports().enumerate() {
            println!("{number:5}  {:18}  {}", kind(export.value), export.name);
        }
        Ok(())
    })
}

/// The functions that the module calls inline: the names of module and function.
fn inline_calls<'a>(module: &'a Module<'_>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let words = module.import_fixups().filter(|word| word.entry);
    words.map(|word| {
        let from = module.import(word.import).name();
        (from, module.wanted(word.import, Some(word.export)))
    })
}

fn to_json(module: &Module<'_>) -> serde_json::Value {
    let exports = module
        .exports()
        .enumerate()
        .map(|(number, one)| json!({"number": number, "name": one.name, "kind": kind(one.value)}));
    let inline = inline_calls(module).map(|(from, name)| json!({"module": from, "name": name}));
    let imports = module
        .imports()
        .map(|one| json!({"name": one.name(), "version": one.version(), "exports": one.count, "lazy": one.lazy}));
    json!({
        "name": module.name(),
        "version": module.version(),
        "address": format!("{:#x}", module.address),
        "text": module.part(Part::Text).len(),
        "constants": module.part(Part::ReadOnly).len(),
        "thunks": module.thunk_bytes(),
        "template": module.template().len(),
        "unwinding": module.part(Part::Unwinding).len(),
        "data": module.data_bytes,
        "fixups": module.fixups().count(),
        "imported_words": module.import_fixups().count(),
        "imports": imports.collect::<Vec<_>>(),
        "inline_calls": inline.collect::<Vec<_>>(),
        "exports": exports.collect::<Vec<_>>(),
    })
}

/// Says whether the second module may take the place of the first; the exit status.
pub(crate) fn diff(words: &Words) -> i32 {
    let compared = with(&words.files[0], |old| {
        with(&words.files[1], |new| Ok(compare(old, new, words.json)))
    });
    match compared {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(why) => {
            eprintln!("{why}");
            2
        }
    }
}

fn compare(old: &Module<'_>, new: &Module<'_>, json: bool) -> bool {
    let same = |one: u64, other: u64| one & format::VARIABLE == other & format::VARIABLE;
    let mut changed = Vec::new();
    for (number, before) in old.exports().enumerate() {
        let after = ((number as u32) < new.export_count()).then(|| new.export(number as u32));
        match after {
            Some(after) if after.name == before.name && same(after.value, before.value) => {}
            Some(after) => changed.push((number, before.name, Some(after.name))),
            None => changed.push((number, before.name, None)),
        }
    }
    let added: Vec<&str> = new
        .exports()
        .skip(old.export_count() as usize)
        .map(|one| one.name)
        .collect();
    let name = old.name() == new.name();
    let compatible = changed.is_empty() && name;
    if json {
        let changed: Vec<_> = changed
            .iter()
            .map(|(number, before, after)| json!({"number": number, "was": before, "is": after}))
            .collect();
        println!(
            "{:#}",
            json!({"compatible": compatible, "changed": changed, "added": added})
        );
        return compatible;
    }
    if !name {
        println!("the names differ: {} and {}", old.name(), new.name());
    }
    for (number, before, after) in &changed {
        println!("{number:5}  {before} -> {}", after.unwrap_or("(gone)"));
    }
    for name in &added {
        println!("    +  {name}");
    }
    println!(
        "{} {} {} take the place of {}",
        new.name(),
        new.version(),
        if compatible { "may" } else { "must not" },
        old.version()
    );
    compatible
}
