//! How functions are left, from the files (`.eh_frame`, `.gcc_except_table`) to part 14 of the module object.
//!
//! Compilers write both so that they can be shared: pointers are relative to their field, and what has an address that
//! only the run knows (a personality routine, the types that a handler catches) stands in a word of the variables
//! whose name begins with `DW.ref.`. In a module the variables are not at a distance from the tables. So these
//! pointers become relative to the data: one byte of encoding changes, as with operands one byte of `ModRM`, and the base is
//! the data register. What is kept is what belongs to a function that is kept; the linker adds entries for what it makes
//! itself.

use super::entries::{self, Kept};
use super::fault::{Cause, Fault};
use super::input::{Home, Input, Kind, Relocation, Section};
use super::relocate::{self, Layout, Seat, Value, World};
use super::symbols::{Symbols, Target};
use super::unwind::{self, Item, Reader};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use object::elf;

/// The personality routine that Rust's core library names and that nobody defines where a panic aborts.
const NEVER_DEFINED: &str = "rust_eh_personality";

/// What entries have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Common {
    code_unit: u64,
    data_unit: i64,
    return_column: u8,
    interrupted: bool,
    /// Symbol and addend of the word with the personality routine.
    personality: Option<(usize, i64)>,
    handlers: bool,
    rules: Vec<u8>,
}

/// The rules of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The function's section.
    pub section: usize,
    /// The function's place in it.
    pub start: u64,
    /// The function's bytes.
    pub bytes: u32,
    /// Index of what it has in common with others.
    common: usize,
    /// Section and byte of its table of handlers.
    pub handlers: Option<(usize, u64)>,
    rules: Vec<u8>,
    /// Section and byte of the entry, for messages.
    place: (usize, u64),
}

/// The entries of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    commons: Vec<Common>,
    /// By section and place of their function.
    list: Vec<Frame>,
}

impl Frames {
    /// The entries of the functions of a section.
    pub fn of(&self, section: usize) -> &[Frame] {
        let from = self.list.partition_point(|one| one.section < section);
        let to = self.list.partition_point(|one| one.section <= section);
        &self.list[from..to]
    }
}

/// Takes the entries of a file apart. Their section goes, because a module has another.
///
/// # Errors
/// The first entry or table of handlers that contradicts itself, or that cannot be part of a module.
pub(super) fn read(input: &mut Input) -> Result<(), Fault> {
    let mut frames = Frames::default();
    for index in 0..input.sections.len() {
        if input.sections[index].kind != Kind::Frames {
            continue;
        }
        read_section(input, index, &mut frames)?;
        let section = &mut input.sections[index];
        section.kind = Kind::None;
        section.data = Vec::new();
        section.relocations = Vec::new();
    }
    frames.list.sort_by_key(|one| (one.section, one.start));
    for pair in frames.list.windows(2) {
        if pair[0].section == pair[1].section && pair[0].start + u64::from(pair[0].bytes) > pair[1].start {
            let (section, at) = pair[1].place;
            return Err(lie(input, section, at, "two entries for one place"));
        }
    }
    for frame in &frames.list {
        if let Some((section, at)) = frame.handlers
            && let Err((at, what)) = turn_types(&mut input.sections[section], at as usize)
        {
            return Err(lie(input, section, at as u64, what));
        }
    }
    input.frames = frames;
    Ok(())
}

fn lie(input: &Input, section: usize, at: u64, what: &str) -> Fault {
    Fault::file(&input.file, Cause::Damaged(what.into())).at(&input.sections[section].name, at)
}

fn refuse(input: &Input, section: usize, at: usize, what: &str, encoding: u8) -> Fault {
    let cause = Cause::Unwinding(format!("{what} of encoding {encoding:#04x}"));
    Fault::file(&input.file, cause).at(&input.sections[section].name, at as u64)
}

/// The relocation of the field at a byte.
fn relocation(section: &Section, at: usize) -> Option<&Relocation> {
    let list = &section.relocations;
    let found = list.binary_search_by_key(&(at as u64), |one| one.at).ok()?;
    list.get(found)
}

fn read_section(input: &Input, index: usize, frames: &mut Frames) -> Result<(), Fault> {
    let section = &input.sections[index];
    let data = &section.data;
    let wrong = |(at, what): unwind::Wrong| lie(input, index, at as u64, what);
    // Where common parts stand, what they were read as, and which they are in the list.
    let mut commons: BTreeMap<usize, (unwind::Common, usize)> = BTreeMap::new();
    let mut at = 0;
    while at < data.len() {
        let here = at;
        let (item, next) = unwind::item(data, at).map_err(wrong)?;
        at = next;
        match item {
            Item::End if next == data.len() => {}
            Item::End => return Err(lie(input, index, here as u64, "an end before the end")),
            Item::Common(common) => {
                frames.commons.push(read_common(input, index, here, &common)?);
                commons.insert(here, (common, frames.commons.len() - 1));
            }
            Item::Entry(common, range) => {
                let Some((shape, number)) = commons.get(&common) else {
                    return Err(lie(input, index, here as u64, "an entry without a common part"));
                };
                let entry = unwind::entry(data, shape, range).map_err(wrong)?;
                frames.list.extend(read_entry(input, index, here, &entry, *number)?);
            }
        }
    }
    Ok(())
}

fn read_common(input: &Input, index: usize, at: usize, common: &unwind::Common) -> Result<Common, Fault> {
    let section = &input.sections[index];
    if common.pointer != unwind::POINTER_HERE {
        return Err(refuse(input, index, at, "pointers to functions", common.pointer));
    }
    if let Some(encoding) = common.handlers.filter(|one| *one != unwind::POINTER_HERE) {
        return Err(refuse(input, index, at, "pointers to handlers", encoding));
    }
    let mut personality = None;
    if let Some((encoding, field)) = common.personality {
        if encoding != unwind::WORD_HERE {
            return Err(refuse(input, index, field, "a personality routine", encoding));
        }
        let Some(found) = relocation(section, field).filter(|one| one.kind == elf::R_X86_64_PC32) else {
            return Err(lie(input, index, field as u64, "a personality routine that is nowhere"));
        };
        personality = Some((found.symbol, found.addend));
    }
    let Ok(return_column) = u8::try_from(common.return_column) else {
        return Err(lie(
            input,
            index,
            at as u64,
            "a column for the return address that is none",
        ));
    };
    Ok(Common {
        code_unit: common.code_unit,
        data_unit: common.data_unit,
        return_column,
        interrupted: common.interrupted,
        personality,
        handlers: common.handlers.is_some(),
        rules: section.data[common.rules.clone()].to_vec(),
    })
}

/// The entry, if its function was not dropped.
fn read_entry(
    input: &Input,
    index: usize,
    at: usize,
    entry: &unwind::Entry,
    common: usize,
) -> Result<Option<Frame>, Fault> {
    let section = &input.sections[index];
    let wrong = |what| lie(input, index, at as u64, what);
    let place = |field: usize| {
        let found = relocation(section, field).filter(|one| one.kind == elf::R_X86_64_PC32)?;
        Some((input.symbols.get(found.symbol)?, found.addend))
    };
    let (symbol, addend) = place(entry.start_at).ok_or_else(|| wrong("an entry of no function"))?;
    let (target, start) = match symbol.home {
        Home::Section(target, value) => (target, value.wrapping_add_signed(addend)),
        // It was in a group that another file has, too.
        Home::Undefined if symbol.global => return Ok(None),
        _ => return Err(wrong("an entry of no function")),
    };
    match input.sections.get(target) {
        Some(_) if entry.bytes == 0 => return Ok(None),
        Some(function) if function.kind == Kind::Text => {
            let end = start.checked_add(entry.bytes.into());
            if end.is_none_or(|end| end > function.bytes) {
                return Err(wrong("an entry for more than there is of its function"));
            }
        }
        Some(function) if function.kind == Kind::None => return Ok(None),
        _ => return Err(wrong("an entry of what is no function")),
    }
    let mut handlers = None;
    if let Some(field) = entry.handlers_at
        && relocation(section, field).is_some()
    {
        let found = place(field).and_then(|(symbol, addend)| match symbol.home {
            Home::Section(section, value) => Some((section, value.wrapping_add_signed(addend))),
            _ => None,
        });
        let inside = |(table, at): &(usize, u64)| {
            let table = input.sections.get(*table);
            table.is_some_and(|table| table.kind == Kind::ReadOnly && *at < table.bytes)
        };
        let found = found.filter(inside);
        handlers = Some(found.ok_or_else(|| lie(input, index, field as u64, "handlers that are nowhere"))?);
    }
    Ok(Some(Frame {
        section: target,
        start,
        bytes: entry.bytes,
        common,
        handlers,
        rules: section.data[entry.rules.clone()].to_vec(),
        place: (index, at as u64),
    }))
}

/// Makes the pointers to caught types relative to the data in the table of handlers at a byte.
fn turn_types(section: &mut Section, at: usize) -> Result<(), unwind::Wrong> {
    let Section { data, relocations, .. } = section;
    let cut = || (at, "a table of handlers cut short");
    let mut reader = Reader::new(data, at..data.len());
    let landing = reader.byte().ok_or_else(cut)?;
    match landing & 0x0f {
        _ if landing == unwind::OMITTED => {}
        0x01 | 0x09 => drop(reader.signed().ok_or_else(cut)?),
        0x03 | 0x0b => drop(reader.take(4).ok_or_else(cut)?),
        0x00 | 0x04 | 0x0c => drop(reader.take(8).ok_or_else(cut)?),
        _ => return Err((at, "a table of handlers with a start of unknown encoding")),
    }
    let encoding_at = reader.at;
    let encoding = reader.byte().ok_or_else(cut)?;
    if encoding == unwind::OMITTED {
        return Ok(());
    }
    let length = reader.unsigned().and_then(|length| usize::try_from(length).ok());
    let end = length
        .and_then(|length| reader.at.checked_add(length))
        .ok_or_else(cut)?;
    reader.byte().ok_or_else(cut)?;
    let calls = reader.unsigned().and_then(|length| usize::try_from(length).ok());
    let calls_end = calls.and_then(|calls| reader.at.checked_add(calls)).ok_or_else(cut)?;
    if calls_end > end || end > data.len() {
        return Err((encoding_at, "a table of handlers with its types outside"));
    }
    // They are counted backwards from the end; how many there are follows from who names them.
    let from = relocations.partition_point(|one| one.at < calls_end as u64);
    let to = relocations.partition_point(|one| one.at < end as u64);
    if from == to || encoding == unwind::WORD_IN_DATA {
        return Ok(());
    }
    if encoding != unwind::WORD_HERE {
        return Err((
            encoding_at,
            "a table of handlers with types of an encoding that is not for modules",
        ));
    }
    for one in &mut relocations[from..to] {
        if one.kind != elf::R_X86_64_PC32 || !(end as u64 - one.at).is_multiple_of(4) {
            return Err((one.at as usize, "a type in a table of handlers that is none"));
        }
        one.kind = relocate::DATA_RELATIVE;
    }
    data[encoding_at] = unwind::WORD_IN_DATA;
    Ok(())
}

/// Where the word with the personality routine of a frame is, if it has one.
pub fn personality(inputs: &[Input], symbols: &Symbols, file: usize, frame: &Frame) -> Option<Target> {
    let (symbol, addend) = inputs[file].frames.commons[frame.common].personality?;
    let name = &inputs[file].symbols[symbol].name;
    if name.strip_prefix("DW.ref.") == Some(NEVER_DEFINED) && symbols.is_missing(inputs, NEVER_DEFINED) {
        return None;
    }
    Some(symbols.target(inputs, file, symbol, addend))
}

/// What a function needs besides what it names itself: the word with its personality routine, its handlers.
pub fn needs(inputs: &[Input], symbols: &Symbols, file: usize, frame: &Frame) -> [Option<Target>; 2] {
    let personality = personality(inputs, symbols, file, frame);
    let handlers = frame.handlers.filter(|_| personality.is_some());
    [
        personality,
        handlers.map(|(section, at)| Target::Place(file, section, at)),
    ]
}

/// Code that the linker made, and its rules.
#[derive(Clone, Debug)]
pub struct Made {
    /// Bytes of the object.
    pub place: Range<u32>,
    /// Rules, after those of [`entries::PLAIN`].
    pub rules: Vec<u8>,
}

/// The entries that a module has.
#[derive(Debug, Default)]
pub struct Plan {
    /// File and index of each.
    kept: Vec<(usize, usize)>,
}

impl Plan {
    /// Of all entries those whose functions are kept.
    pub fn new(world: &World<'_>) -> Self {
        let mut kept = Vec::new();
        for (file, input) in world.inputs.iter().enumerate() {
            for (index, frame) in input.frames.list.iter().enumerate() {
                if world.graph.node(file, frame.section, frame.start).is_some() {
                    kept.push((file, index));
                }
            }
        }
        Self { kept }
    }

    /// Part 14, to lie at byte `at` of the object. How long it is does not depend on places.
    ///
    /// # Errors
    /// A personality routine whose word is shared, so that it has no displacement.
    pub fn part(
        &self,
        world: &World<'_>,
        layout: &Layout,
        at: u32,
        made: &[Made],
        thunk_entries_at: u32,
    ) -> Result<Vec<u8>, Fault> {
        let records_bytes = (self.kept.len() + made.len()) * unwind::RECORD_BYTES;
        let entries_at = (unwind::RECORDS_AT + records_bytes + 4).next_multiple_of(8);
        let mut part = vec![0; entries_at];
        let mut records: Vec<(i32, i32)> = Vec::new();
        let mut commons: BTreeMap<(Kept<'_>, Option<Target>), usize> = BTreeMap::new();
        let place = |file: usize, section: usize, byte: u64| match layout.seats[file].get(section) {
            Some(Seat::Shared(start)) => i64::from(*start) + byte.cast_signed() - i64::from(at),
            _ => 0,
        };
        for &(file, index) in &self.kept {
            let input = &world.inputs[file];
            let frame = &input.frames.list[index];
            let [word, table] = needs(world.inputs, world.symbols, file, frame);
            let common = &input.frames.commons[frame.common];
            let displacement = match word.map(|word| World::place(layout, word)) {
                None => None,
                Some(Ok(Value::Private(displacement))) => Some(displacement as i32),
                // Nothing has its place yet.
                Some(_) if layout.address == 0 => Some(0),
                Some(Ok(_)) => {
                    return Err(lie(
                        input,
                        frame.place.0,
                        frame.place.1,
                        "a constant personality routine",
                    ));
                }
                Some(Err(cause)) => {
                    let section = &input.sections[frame.place.0].name;
                    return Err(Fault::file(&input.file, cause).at(section, frame.place.1));
                }
            };
            let mut kept = Kept {
                code_unit: common.code_unit,
                data_unit: common.data_unit,
                return_column: common.return_column,
                interrupted: common.interrupted,
                personality: None,
                handlers: common.handlers && word.is_some(),
                rules: &common.rules,
            };
            let with_handlers = kept.handlers;
            // By what the word is, not by where: that is known later.
            let known = commons.get(&(kept.clone(), word)).copied();
            let common = known.unwrap_or_else(|| {
                let key = (kept.clone(), word);
                kept.personality = displacement;
                let common = entries::put_common(&mut part, &kept);
                commons.insert(key, common);
                common
            });
            let start = place(file, frame.section, frame.start);
            let handlers = with_handlers.then(|| {
                table.map(|table| match table {
                    Target::Place(file, section, byte) => place(file, section, byte),
                    _ => 0,
                })
            });
            let entry = entries::put_entry(&mut part, common, start, frame.bytes, handlers, &frame.rules);
            records.push((start as i32, (entry as u32).cast_signed()));
        }
        for one in made {
            let common = *commons
                .entry((entries::PLAIN, None))
                .or_insert_with(|| entries::put_common(&mut part, &entries::PLAIN));
            let start = i64::from(one.place.start) - i64::from(at);
            let bytes = one.place.end - one.place.start;
            let entry = entries::put_entry(&mut part, common, start, bytes, None, &one.rules);
            records.push((start as i32, (entry as u32).cast_signed()));
        }
        part.extend([0; 8]);
        records.sort_unstable();
        let mut head = Vec::from(unwind::TABLE_START);
        head.extend((entries_at as u32 - 4).to_le_bytes());
        head.extend((records.len() as u32).to_le_bytes());
        for (function, entry) in records {
            head.extend(function.to_le_bytes());
            head.extend(entry.to_le_bytes());
        }
        head.extend(thunk_entries_at.to_le_bytes());
        part[..head.len()].copy_from_slice(&head);
        Ok(part)
    }
}
