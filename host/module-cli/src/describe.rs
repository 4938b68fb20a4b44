//! `gond module describe`: a description written from the objects.

use crate::{Words, make};
use linker::module::Description;
use linker::module::description::{Export, Stack};
use linker::module::input::{self, Home, Input, Kind, Symbol};
use linker::module::symbols;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the objects and prints a description; what is missing goes to standard error, or into a description
/// of its own.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    if words.files.is_empty() {
        return Err("gond module: describe needs objects".into());
    }
    let mut known = BTreeSet::new();
    let mut imports = Vec::new();
    for import in &words.imports {
        let description = make::describe(import).map_err(|error| error.to_string())?;
        known.extend(description.exports.iter().map(|one| one.name.clone()));
        imports.push(import.display().to_string());
    }
    let mut inputs = Vec::new();
    let mut groups = BTreeSet::new();
    for path in &words.files {
        let bytes = make::read(path).map_err(|error| error.to_string())?;
        let file = path.display().to_string();
        let members = if input::is_archive(&bytes) {
            input::members(&file, &bytes)
        } else {
            Ok(vec![(file, bytes.as_slice())])
        };
        for (name, bytes) in members.map_err(|fault| fault.to_string())? {
            inputs.push(input::read(&name, bytes, &mut groups).map_err(|fault| fault.to_string())?);
        }
    }
    let (exports, missing) = names(&inputs, &known);
    if let Some(rest) = &words.rest {
        let name = rest.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let description = Description {
            name,
            version: "1".into(),
            exports: missing.iter().map(|name| plain(name, is_variable(name))).collect(),
            ..Description::default()
        };
        crate::output::write(
            rest,
            crate::output::Kind::Description,
            description.to_string().as_bytes(),
        )?;
        imports.push(rest.display().to_string());
    } else {
        for name in &missing {
            eprintln!("missing: {name}");
        }
    }
    let description = Description {
        name: words.name.clone().unwrap_or_else(|| "unnamed".into()),
        version: words.version.clone().unwrap_or_else(|| "1".into()),
        imports,
        exports,
        objects: words.files.iter().map(|path| path.display().to_string()).collect(),
    };
    print!("{description}");
    Ok(())
}

fn plain(name: &str, data: bool) -> Export {
    Export {
        name: name.into(),
        data,
        pure: false,
        stack: Stack::Unsaid,
    }
}

/// The symbols that the objects define for others, and those that nobody defines.
fn names(inputs: &[Input], known: &BTreeSet<String>) -> (Vec<Export>, BTreeSet<String>) {
    let mut defined = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    let mut hidden = BTreeSet::new();
    for input in inputs {
        for symbol in input.symbols.iter().filter(|one| one.global && !one.name.is_empty()) {
            match symbol.home {
                Home::Undefined if !symbol.weak => {
                    // Functions that are called inline are asked for by the names of their words; so are the file's own functions, static
                    // ones too, and the words of procedures, which are nobody's.
                    let function = symbols::inline_word(&symbol.name).map(|(function, _)| function);
                    let own = |one: &Symbol| !one.global && Some(one.name.as_str()) == function;
                    if function != Some(symbols::PROCEDURE) && !input.symbols.iter().any(own) {
                        wanted.insert(function.unwrap_or(&symbol.name).to_string());
                    }
                }
                Home::Undefined | Home::Absolute(_) => {}
                _ if symbol.hidden => {
                    hidden.insert(symbol.name.clone());
                }
                Home::Common(..) => {
                    defined.insert(symbol.name.clone(), true);
                }
                Home::Section(section, _) => match input.sections[section].kind {
                    Kind::None => {}
                    kind => {
                        defined.insert(symbol.name.clone(), kind != Kind::Text);
                    }
                },
            }
        }
    }
    wanted.remove("_GLOBAL_OFFSET_TABLE_");
    wanted.remove(linker::module::symbols::INSTANCE);
    wanted.retain(|name| !defined.contains_key(name) && !hidden.contains(name) && !known.contains(name));
    let exports = defined.iter().map(|(name, data)| plain(name, *data)).collect();
    (exports, wanted)
}

/// Whether a name that is only used is that of a table which a compiler for C++ makes (Itanium C++ ABI, 5.1.4): virtual
/// functions, types and their names. Of other names a file does not say what they are.
fn is_variable(name: &str) -> bool {
    ["_ZTV", "_ZTT", "_ZTI", "_ZTS"]
        .iter()
        .any(|start| name.starts_with(start))
}
