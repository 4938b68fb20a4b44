//! Names: who defines what, which members of archives are needed, and what is reached from the exports.

use super::description::Description;
use super::fault::{Cause, Fault, Unknown};
use super::frames::{self, Frames};
use super::input::{self, Home, Input, Kind, Section, Symbol};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Where a relocation leads.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// File, section and byte; the byte may lie outside, as in `array - 8`.
    Place(usize, usize, u64),
    /// A number.
    Absolute(u64),
    /// An export of an import.
    Import(u32, u32),
    /// The data of the instance itself.
    Instance,
    /// The displacement of the word with an import's own address, for inline calls.
    Entry(u32, u32),
    /// The displacement of the word with the address of an imported module's data, for the same.
    Data(u32),
    /// The entry of a function of this module, which is no thunk: file, section and byte, as in a place.
    OwnEntry(usize, usize, u64),
    /// The displacement, in a procedure, of the word with a function's entry.
    ProcedureEntry,
    /// The displacement, in a procedure, of the word with the address of its data.
    ProcedureData,
    /// A weak symbol that nobody defines.
    Null,
    /// Nobody defines it.
    Missing,
}

/// What C++ calls that which a library is told apart by (Itanium C++ ABI, 3.3.6): each instance is one.
pub const INSTANCE: &str = "__dso_handle";

/// The names that are visible between files, and those of the imports.
#[derive(Debug, Default)]
pub struct Symbols {
    globals: BTreeMap<String, (usize, usize)>,
    imports: BTreeMap<String, (u32, u32)>,
    sets: BTreeMap<String, Vec<(usize, usize)>>,
}

/// What begins the names of the first byte of a linker set, and of the byte behind its last: all sections of the rest of the name,
/// one behind the other (GNU ld, 3.5.5).
const SET_ENDS: [&str; 2] = ["__start_", "__stop_"];

impl Symbols {
    /// Collects the names of all files and imports. The first import that exports a name has it.
    ///
    /// # Errors
    /// Every name that two files define.
    pub fn new(inputs: &[Input], imports: &[Description]) -> Result<Self, Vec<Fault>> {
        let mut result = Self::default();
        let mut faults = Vec::new();
        for (module, import) in imports.iter().enumerate() {
            for (export, one) in import.exports.iter().enumerate() {
                let place = (module as u32, export as u32);
                result.imports.entry(one.name.clone()).or_insert(place);
            }
        }
        result.sets = sets(inputs);
        for (file, input) in inputs.iter().enumerate() {
            for (index, symbol) in input.symbols.iter().enumerate() {
                if !symbol.global || symbol.home == Home::Undefined {
                    continue;
                }
                let earlier = result.globals.get(&symbol.name).copied();
                match earlier.map(|(file, index)| (file, &inputs[file].symbols[index])) {
                    Some((_, there)) if strength(there) > strength(symbol) => {}
                    Some((_, there)) if strength(there) == strength(symbol) && !is_strong(symbol) => {
                        let larger = matches!((there.home, symbol.home),
                            (Home::Common(before, _), Home::Common(now, _)) if now > before);
                        if larger {
                            result.globals.insert(symbol.name.clone(), (file, index));
                        }
                    }
                    Some((other, there)) if strength(there) == strength(symbol) => {
                        let cause = Cause::Duplicate(inputs[other].file.clone());
                        faults.push(Fault::file(&input.file, cause).about(&symbol.name));
                    }
                    _ => {
                        result.globals.insert(symbol.name.clone(), (file, index));
                    }
                }
            }
        }
        if faults.is_empty() { Ok(result) } else { Err(faults) }
    }

    /// Where a name of this module is defined.
    pub fn defined(&self, inputs: &[Input], name: &str) -> Option<Target> {
        let (file, index) = *self.globals.get(name)?;
        match inputs[file].symbols[index].home {
            Home::Section(section, at) => Some(Target::Place(file, section, at)),
            Home::Absolute(value) => Some(Target::Absolute(value)),
            Home::Undefined | Home::Common(..) => None,
        }
    }

    /// Whether nobody defines a name.
    pub fn is_missing(&self, inputs: &[Input], name: &str) -> bool {
        let known = name == INSTANCE || self.imports.contains_key(name);
        !known && self.defined(inputs, name).is_none() && self.set_end(inputs, name).is_none()
    }

    /// The linker sets that somebody asks for: the sections of each, in their order.
    pub fn sets(&self) -> impl Iterator<Item = &[(usize, usize)]> {
        self.sets.values().map(Vec::as_slice)
    }

    /// Where the end of a linker set is that a name means.
    fn set_end(&self, inputs: &[Input], name: &str) -> Option<Target> {
        let set = |start: &str| name.strip_prefix(start).and_then(|rest| self.sets.get(rest));
        if let Some(&(file, section)) = set(SET_ENDS[0]).and_then(|set| set.first()) {
            return Some(Target::Place(file, section, 0));
        }
        let &(file, section) = set(SET_ENDS[1])?.last()?;
        Some(Target::Place(file, section, inputs[file].sections[section].bytes))
    }

    /// The symbol that defines a name.
    pub fn definition<'a>(&self, inputs: &'a [Input], name: &str) -> Option<&'a Symbol> {
        let (file, index) = *self.globals.get(name)?;
        inputs[file].symbols.get(index)
    }

    /// Where a symbol of a file leads, with an addend.
    pub fn target(&self, inputs: &[Input], file: usize, symbol: usize, addend: i64) -> Target {
        let symbol = &inputs[file].symbols[symbol];
        let here = match symbol.home {
            Home::Section(section, at) if !symbol.global => Target::Place(file, section, at),
            Home::Absolute(value) if !symbol.global => Target::Absolute(value),
            // Symbol 0, and nameless ones: a relocation against nothing.
            Home::Undefined if symbol.name.is_empty() => Target::Absolute(0),
            _ => self.named(inputs, file, &symbol.name, symbol.weak),
        };
        match here {
            Target::Place(file, section, at) => Target::Place(file, section, at.wrapping_add_signed(addend)),
            Target::Absolute(value) => Target::Absolute(value.wrapping_add_signed(addend)),
            other => other,
        }
    }

    /// What a word for inline calls leads to. The function may be a static one of the file.
    fn inline(&self, inputs: &[Input], file: usize, function: &str, suffix: &str) -> Target {
        let local = inputs[file].symbols.iter().find_map(|symbol| match symbol.home {
            Home::Section(section, at) if symbol.name == function => Some(Target::Place(file, section, at)),
            _ => None,
        });
        if let Some(Target::Place(file, section, at)) = local.or_else(|| self.defined(inputs, function)) {
            return Target::OwnEntry(file, section, at);
        }
        let entry = suffix == ENTRY_SUFFIX;
        match self.imports.get(function) {
            Some(&(module, export)) if entry => Target::Entry(module, export),
            Some(&(module, _)) => Target::Data(module),
            None if function == PROCEDURE && entry => Target::ProcedureEntry,
            None if function == PROCEDURE => Target::ProcedureData,
            None => Target::Missing,
        }
    }

    fn named(&self, inputs: &[Input], file: usize, name: &str, weak: bool) -> Target {
        if let Some(target) = self.defined(inputs, name) {
            return target;
        }
        match self.imports.get(name) {
            Some(&(module, export)) => Target::Import(module, export),
            None if name == INSTANCE => Target::Instance,
            None if let Some(end) = self.set_end(inputs, name) => end,
            None if let Some((function, suffix)) = inline_word(name) => self.inline(inputs, file, function, suffix),
            None if weak => Target::Null,
            None => Target::Missing,
        }
    }
}

/// The sections of the linker sets that somebody asks for.
fn sets(inputs: &[Input]) -> BTreeMap<String, Vec<(usize, usize)>> {
    let mut sets: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for symbol in inputs.iter().flat_map(|input| &input.symbols) {
        let name = SET_ENDS.iter().find_map(|start| symbol.name.strip_prefix(start));
        if let (Some(name), Home::Undefined) = (name, symbol.home) {
            sets.entry(name.into()).or_default();
        }
    }
    for (file, input) in inputs.iter().enumerate() {
        for (index, section) in input.sections.iter().enumerate() {
            let variable = matches!(section.kind, Kind::ReadOnly | Kind::Data | Kind::Zero);
            if let (true, Some(set)) = (variable, sets.get_mut(&section.name)) {
                set.push((file, index));
            }
        }
    }
    sets
}

/// What ends the name of the word with a function's own address, and of the word with the address of its data.
pub const ENTRY_SUFFIX: &str = ".entry";
/// The second of them.
pub const DATA_SUFFIX: &str = ".data";
/// Before these suffixes: the words of a procedure, `struct gond_procedure` of the header.
pub const PROCEDURE: &str = "gond_procedure";

/// The function, and the suffix, of a name by which the header of `gond module header` asks for words for inline calls;
/// no C source can define such a name.
pub fn inline_word(name: &str) -> Option<(&str, &'static str)> {
    let split = |suffix| name.strip_suffix(suffix).map(|function| (function, suffix));
    split(ENTRY_SUFFIX).or_else(|| split(DATA_SUFFIX))
}

fn is_strong(symbol: &Symbol) -> bool {
    strength(symbol) == 2
}

fn strength(symbol: &Symbol) -> u32 {
    match symbol.home {
        _ if symbol.weak => 0,
        Home::Common(..) => 1,
        _ => 2,
    }
}

/// Reads the files of a module: all that are objects, and of archives the members that somebody asks for.
///
/// # Errors
/// The first file that cannot be read.
pub fn collect(files: &[(String, &[u8])], wanted: &[&str]) -> Result<Vec<Input>, Fault> {
    let mut groups = BTreeSet::new();
    let mut inputs = Vec::new();
    let mut members = Vec::new();
    for (file, bytes) in files {
        if input::is_archive(bytes) {
            for (name, bytes) in input::members(file, bytes)? {
                let defines = input::defined_names(&name, bytes)?;
                members.push(Some((name, bytes, defines)));
            }
        } else {
            inputs.push(input::read(file, bytes, &mut groups)?);
        }
    }
    let mut open: BTreeSet<String> = wanted.iter().map(|one| String::from(*one)).collect();
    let mut known = BTreeSet::new();
    let mut fresh = 0;
    loop {
        for input in &inputs[fresh..] {
            for symbol in input.symbols.iter().filter(|one| one.global) {
                if symbol.home != Home::Undefined {
                    known.insert(symbol.name.clone());
                } else if !symbol.weak {
                    open.insert(symbol.name.clone());
                }
            }
        }
        open.retain(|name| !known.contains(name));
        fresh = inputs.len();
        for slot in &mut members {
            if slot.as_ref().is_some_and(|(_, _, defines)| !defines.is_disjoint(&open))
                && let Some((name, bytes, defines)) = slot.take()
            {
                open.retain(|one| !defines.contains(one));
                inputs.push(input::read(&name, bytes, &mut groups)?);
            }
        }
        if inputs.len() == fresh {
            return Ok(inputs);
        }
    }
}

/// Gives storage to symbols that are only asked for (`COMMON`): a file of its own, and the symbols become
/// definitions in it, weak ones where somebody defines them.
pub fn place_commons(inputs: &mut Vec<Input>) {
    let mut largest: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let all = inputs.iter().flat_map(|input| &input.symbols);
    let defined: BTreeSet<String> = all
        .filter(|one| one.global && !one.weak && matches!(one.home, Home::Section(..) | Home::Absolute(_)))
        .map(|one| one.name.clone())
        .collect();
    for symbol in inputs.iter().flat_map(|input| &input.symbols) {
        if let Home::Common(bytes, align) = symbol.home {
            let slot = largest.entry(symbol.name.clone()).or_default();
            *slot = (slot.0.max(bytes), slot.1.max(align));
        }
    }
    if largest.is_empty() {
        return;
    }
    let mut made = Input {
        file: String::from("(common)"),
        sections: Vec::new(),
        symbols: Vec::new(),
        stack: BTreeMap::new(),
        debug: Unknown::NotThere,
        frames: Frames::default(),
    };
    for (name, (bytes, align)) in largest {
        made.symbols.push(Symbol {
            name: name.clone(),
            home: Home::Section(made.sections.len(), 0),
            global: true,
            // It stands before a weak definition, and behind any other.
            weak: defined.contains(&name),
            function: false,
            indirect: false,
            hidden: false,
            bytes,
        });
        made.sections.push(Section {
            name,
            kind: Kind::Zero,
            align,
            bytes,
            data: Vec::new(),
            relocations: Vec::new(),
        });
    }
    for symbol in inputs.iter_mut().flat_map(|input| &mut input.symbols) {
        if matches!(symbol.home, Home::Common(..)) {
            symbol.home = Home::Undefined;
        }
    }
    inputs.push(made);
}

/// Marks the sections that are reached from `roots` and from the functions to call at instantiation and at the end.
pub fn reach(inputs: &[Input], symbols: &Symbols, roots: &[Target]) -> Vec<Vec<bool>> {
    let mut live: Vec<Vec<bool>> = inputs.iter().map(|one| vec![false; one.sections.len()]).collect();
    let mut work: Vec<(usize, usize)> = Vec::new();
    for target in roots {
        if let Target::Place(file, section, _) = *target {
            work.push((file, section));
        }
    }
    for (file, input) in inputs.iter().enumerate() {
        let init = input
            .sections
            .iter()
            .enumerate()
            .filter(|(_, one)| matches!(one.kind, Kind::Init | Kind::Fini));
        work.extend(init.map(|(section, _)| (file, section)));
    }
    while let Some((file, section)) = work.pop() {
        let Some(mark) = live[file].get_mut(section).filter(|mark| !**mark) else {
            continue;
        };
        *mark = true;
        // Who asks for the ends of a set wants all of it.
        let set = symbols.sets().find(|set| set.contains(&(file, section)));
        work.extend(set.into_iter().flatten());
        for relocation in &inputs[file].sections[section].relocations {
            let target = symbols.target(inputs, file, relocation.symbol, relocation.addend);
            if let Target::Place(file, section, _) | Target::OwnEntry(file, section, _) = target {
                work.push((file, section));
            }
        }
        for frame in inputs[file].frames.of(section) {
            for target in frames::needs(inputs, symbols, file, frame).into_iter().flatten() {
                if let Target::Place(file, section, _) = target {
                    work.push((file, section));
                }
            }
        }
    }
    live
}
