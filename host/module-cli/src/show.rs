//! `gond module show`, `diff` and `symbols`.

use crate::{Words, make};
use linker::module::Module;
use linker::module::format::{self, Part};
use serde_json::json;
use std::path::Path;

fn with<T>(path: &Path, work: impl FnOnce(&Module<'_>) -> Result<T, String>) -> Result<T, String> {
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

/// What the module calls inline: the names of module and function.
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

/// Writes an ELF file that has only symbols.
pub(crate) fn symbols(words: &Words) -> Result<(), String> {
    let output = words.output.as_deref().ok_or("gond module: symbols needs -o FILE")?;
    with(&words.files[0], |module| crate::write(output, &symbol_file(module)))
}

/// An ELF file of type EXEC: a text section without contents at the module's text, and a symbol for each
/// function. gdb takes it with `add-symbol-file`.
fn symbol_file(module: &Module<'_>) -> Vec<u8> {
    let mut names = vec![0_u8];
    let mut table = vec![0_u8; 24];
    for symbol in module.symbols() {
        table.extend((names.len() as u32).to_le_bytes());
        // A global function, in section 1.
        table.extend([0x12, 0]);
        table.extend(1_u16.to_le_bytes());
        table.extend(symbol.address.to_le_bytes());
        table.extend(u64::from(symbol.bytes).to_le_bytes());
        names.extend(symbol.name.bytes());
        names.push(0);
    }
    let sections = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let text = module.address + u64::from(module.part_at(Part::Text));
    let text_bytes = module.part(Part::Text).len() as u64;
    let (table_at, names_at) = (64, 64 + table.len() as u64);
    let sections_at = names_at + names.len() as u64;
    let headers_at = (sections_at + sections.len() as u64).next_multiple_of(8);
    let mut file = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for long in [0, 0, headers_at] {
        file.extend(long.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 0, 0, 64, 5, 4] {
        file.extend(half.to_le_bytes());
    }
    file.extend(&table);
    file.extend(&names);
    file.extend(sections);
    file.resize(headers_at as usize, 0);
    let mut header = |name: u32, kind: u32, fields: [u64; 4], link: u32, info: u32, align: u64, each: u64| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for field in fields {
            file.extend(field.to_le_bytes());
        }
        file.extend(link.to_le_bytes());
        file.extend(info.to_le_bytes());
        file.extend(align.to_le_bytes());
        file.extend(each.to_le_bytes());
    };
    header(0, 0, [0; 4], 0, 0, 0, 0);
    // NOBITS, allocated and executable: the bytes are in the module.
    header(1, 8, [6, text, 64, text_bytes], 0, 0, 16, 0);
    header(7, 2, [0, 0, table_at, table.len() as u64], 3, 1, 8, 24);
    header(15, 3, [0, 0, names_at, names.len() as u64], 0, 0, 1, 0);
    header(23, 3, [0, 0, sections_at, sections.len() as u64], 0, 0, 1, 0);
    file
}
