//! `gond module symbols`: an ELF file that tells a debugger what is in a module, in which there are no such tables. It has
//! the functions, the rules by which their frames are left (as `.debug_frame`, whose addresses are absolute), thunks and
//! variables of one instance, and the debug information of the objects.

use crate::{Words, make};
use linker::module::debug::{self, Debug};
use linker::module::entries;
use linker::module::format::{self, Part};
use linker::module::unwind::{self, Item};
use linker::module::{Fault, Module};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the file that is asked for.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    let output = words.output.as_deref().ok_or("gond module: symbols needs -o FILE")?;
    let path = &words.files[0];
    let file = path.display().to_string();
    let mut bytes = make::read(path).map_err(|error| error.to_string())?;
    let said = |fault: Fault| fault.to_string();
    if let Some(at) = words.at {
        format::move_to(&file, &mut bytes, at).map_err(said)?;
    }
    let module = Module::open(&file, &bytes).map_err(said)?;
    let debug = match &words.from {
        Some(from) => debug_information(&module, from, words)?,
        None => Debug::default(),
    };
    for left_out in &debug.left_out {
        eprintln!("{left_out}: its debug information is left out: it is compressed, or the name is there twice");
    }
    crate::output::write(
        output,
        crate::output::Kind::Symbols,
        &file_of(&module, words.data, &debug),
    )
}

/// Links the objects again, and takes what they say about what the module has.
fn debug_information(module: &Module<'_>, from: &Path, words: &Words) -> Result<Debug, String> {
    let here = |_: &_, _| Ok(module.address);
    let made = make::make_and(from, &words.folders, here, |files, world, layout| {
        debug::collect(files, world, layout, words.data)
    });
    let (_, built, debug) = made.map_err(|error| error.to_string())?;
    if built.object == module.bytes() {
        Ok(debug)
    } else {
        Err(format!(
            "{}: its objects are not those that {} {} was built from: build it again, or leave --from out",
            from.display(),
            module.name(),
            module.version()
        ))
    }
}

/// A name in the table of symbols.
struct Named {
    name: String,
    address: u64,
    bytes: u64,
    section: u16,
}

/// A section of the file.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    /// Bytes in memory, for one without contents.
    bytes: u64,
    contents: Vec<u8>,
    link: u32,
    info: u32,
    each: u64,
}

impl Section {
    fn new(name: &'static str, kind: u32, contents: Vec<u8>) -> Self {
        Self {
            name,
            kind,
            flags: 0,
            address: 0,
            bytes: contents.len() as u64,
            contents,
            link: 0,
            info: 0,
            each: 0,
        }
    }

    /// NOBITS, allocated and executable: the bytes are in memory.
    fn code(name: &'static str, address: u64, bytes: u64) -> Self {
        Self {
            flags: 6,
            address,
            bytes,
            ..Self::new(name, 8, Vec::new())
        }
    }
}

fn file_of(module: &Module<'_>, data: Option<u64>, debug: &Debug) -> Vec<u8> {
    let text = module.address + u64::from(module.part_at(Part::Text));
    let mut sections = vec![
        Section::new("", 0, Vec::new()),
        Section::code(".text", text, module.part(Part::Text).len() as u64),
    ];
    let functions = module.symbols();
    let mut names: Vec<Named> = functions
        .iter()
        .map(|symbol| Named {
            name: symbol.name.into(),
            address: symbol.address,
            bytes: symbol.bytes.into(),
            section: 1,
        })
        .collect();
    let mut frames = Frames::default();
    let part = module.part(Part::Unwinding);
    let at = module.address + u64::from(module.part_at(Part::Unwinding));
    let table = module.frames();
    frames.add(part, table.entries_at(), at);
    if let Some(data) = data.filter(|_| table.thunk_entries_at > 0) {
        let thunks = data - u64::from(module.thunk_bytes());
        let bytes = module.part(Part::Thunks);
        frames.add(bytes, table.thunk_entries_at as usize, thunks);
        sections.push(Section::code(".thunks", thunks, bytes.len() as u64));
        let behind = table.thunk_entries_at as usize;
        names.extend(thunk_names(&bytes[..behind], thunks, &functions));
    }
    sections.push(Section::new(".debug_frame", 1, frames.bytes));
    for (name, contents) in &debug.sections {
        sections.push(Section::new(name, 1, contents.clone()));
    }
    let (mut strings, mut table) = (vec![0_u8], vec![0_u8; 24]);
    for named in names {
        table.extend((strings.len() as u32).to_le_bytes());
        // A global function.
        table.extend([0x12, 0]);
        table.extend(named.section.to_le_bytes());
        table.extend(named.address.to_le_bytes());
        table.extend(named.bytes.to_le_bytes());
        strings.extend(named.name.bytes());
        strings.push(0);
    }
    let strings_number = sections.len() as u32 + 1;
    sections.push(Section {
        link: strings_number,
        info: 1,
        each: 24,
        ..Section::new(".symtab", 2, table)
    });
    sections.push(Section::new(".strtab", 3, strings));
    write(sections)
}

/// The thunks of an instance, which lie side by side.
fn thunk_names(bytes: &[u8], at: u64, functions: &[format::Symbol<'_>]) -> Vec<Named> {
    let mut result = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        // Without words on the stack the call stands at byte 8.
        let plain = bytes.get(start + 8..start + 10) == Some(&[0xff, 0x15]);
        let (constant, length) = if plain { (16, 32) } else { (48, 64) };
        let function = bytes.get(start + constant..start + constant + 8);
        let function = function
            .and_then(|eight| eight.try_into().ok())
            .map_or(0, u64::from_le_bytes);
        let name = functions
            .iter()
            .find(|one| one.address == function)
            .map_or("", |one| one.name);
        result.push(Named {
            name: format!("{name}@thunk"),
            address: at + start as u64,
            bytes: length as u64,
            section: 2,
        });
        start += length;
    }
    result
}

/// Rules of frames as debuggers read them (DWARF 5, 6.4.1), with absolute addresses.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Adds the entries that begin at byte `from` of what lies at `address`.
    fn add(&mut self, entries: &[u8], from: usize, address: u64) {
        let mut commons: BTreeMap<usize, (unwind::Common, u32)> = BTreeMap::new();
        let mut at = from;
        while let Ok((item, next)) = unwind::item(entries, at) {
            match item {
                Item::End => break,
                Item::Common(common) => {
                    let place = self.bytes.len() as u32;
                    let start = self.open();
                    self.bytes.extend([0xff; 4]);
                    self.bytes.extend([1, 0]);
                    entries::put_unsigned(&mut self.bytes, common.code_unit);
                    entries::put_signed(&mut self.bytes, common.data_unit);
                    self.bytes.push(common.return_column as u8);
                    self.bytes.extend(&entries[common.rules.clone()]);
                    self.close(start);
                    commons.insert(at, (common, place));
                }
                Item::Entry(common, range) => {
                    let Some((common, place)) = commons.get(&common) else {
                        break;
                    };
                    let Ok(entry) = unwind::entry(entries, common, range) else {
                        break;
                    };
                    let field = entries.get(entry.start_at..entry.start_at + 4);
                    let field = field
                        .and_then(|four| four.try_into().ok())
                        .map_or(0, i32::from_le_bytes);
                    let function = (address + entry.start_at as u64).wrapping_add_signed(field.into());
                    let place = *place;
                    let start = self.open();
                    self.bytes.extend(place.to_le_bytes());
                    self.bytes.extend(function.to_le_bytes());
                    self.bytes.extend(u64::from(entry.bytes).to_le_bytes());
                    self.bytes.extend(&entries[entry.rules]);
                    self.close(start);
                }
            }
            at = next;
        }
    }

    fn open(&mut self) -> usize {
        self.bytes.extend([0; 4]);
        self.bytes.len()
    }

    fn close(&mut self, start: usize) {
        let length = (self.bytes.len() - start + 4).next_multiple_of(8) - 4;
        self.bytes.resize(start + length, 0);
        self.bytes[start - 4..start].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// An ELF file of type EXEC with these sections and one of their names.
fn write(mut sections: Vec<Section>) -> Vec<u8> {
    sections.push(Section::new(".shstrtab", 3, Vec::new()));
    let mut names = Vec::new();
    let mut places = Vec::new();
    for section in &sections {
        places.push(names.len() as u32);
        names.extend(section.name.bytes());
        names.push(0);
    }
    let last = sections.len() - 1;
    sections[last].bytes = names.len() as u64;
    sections[last].contents = names;
    let mut file = vec![0; 64];
    let mut headers = Vec::new();
    for (section, name) in sections.iter().zip(places) {
        file.resize(file.len().next_multiple_of(8), 0);
        let at = if section.kind == 0 { 0 } else { file.len() as u64 };
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        for long in [section.flags, section.address, at, section.bytes] {
            headers.extend(long.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend(section.info.to_le_bytes());
        headers.extend(u64::from(section.kind != 0).to_le_bytes());
        headers.extend(section.each.to_le_bytes());
        file.extend(&section.contents);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let headers_at = file.len() as u64;
    file.extend(headers);
    let mut head = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2_u16, 62] {
        head.extend(half.to_le_bytes());
    }
    head.extend(1_u32.to_le_bytes());
    for long in [0, 0, headers_at] {
        head.extend(long.to_le_bytes());
    }
    head.extend(0_u32.to_le_bytes());
    for half in [64_u16, 0, 0, 64, sections.len() as u16, last as u16] {
        head.extend(half.to_le_bytes());
    }
    file[..64].copy_from_slice(&head);
    file
}
