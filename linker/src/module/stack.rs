//! How many words of arguments a function takes from the stack.
//!
//! A thunk pushes what it must keep, so arguments that the caller left on the stack would move away from
//! where the callee looks for them; the thunk copies them, and must know how many there are. Debug
//! information (DWARF 4 and 5) has the parameters' types; the AMD64 psABI (section 3.2.3) says which of them
//! travel in registers. What cannot be decided is kept as a reason, and only matters if a thunk is needed.

mod convention;
mod place;
mod signature;

use super::fault::Unknown;
use super::input::{Home, Input};
use super::relocate::World;
use super::symbols::Target;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use gimli::constants as dw;
use gimli::{AttributeValue, DebugAbbrev, DebugInfo, EndianSlice, UnitHeader, UnitOffset};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Rela, SectionHeader, SectionTable};

use convention::{FIRST_VECTOR, FOREIGN, INTEGER_REGISTERS};
use place::{Class, Place};

pub use signature::{Scalar, Signature};

/// What the debug information says about a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The words that it takes from the stack.
    pub words: StackWords,
    /// What travels in registers, if all does; or what it has that does not.
    pub signature: Result<Signature, String>,
}

/// How many words a function takes from the stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StackWords {
    /// So many words.
    Words(u32),
    /// A variable number.
    Variadic {
        /// Words of parameters with names.
        named: u32,
    },
    /// A parameter of a kind whose place is not decided here.
    Undecided(String),
    /// Its arguments are not where the psABI has them; the convention.
    Foreign(String),
}

type Slice<'a> = EndianSlice<'a, gimli::LittleEndian>;
type Header = FileHeader64<LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;
const LITTLE: LittleEndian = LittleEndian;
/// How deep types may be nested before they are given up.
const DEPTH: u32 = 32;
/// Types and members that are looked at for one function before it is given up: a structure with two members of its own
/// type would have 2^[`DEPTH`] of them.
const TYPES_MAX: u32 = 1 << 15;

/// The parameters of all functions of a file, by section and byte; empty without debug information. Damaged
/// debug information is as good as none. And why functions are missing, if they are.
pub(super) fn read(
    input: &Input,
    table: &SectionTable<'_, Header>,
    bytes: &[u8],
) -> (BTreeMap<(usize, u64), Parameters>, Unknown) {
    let of_code = input.sections.iter().zip(table.iter());
    let mut of_code = of_code.filter(|(section, _)| section.name == ".debug_info" || section.name == ".zdebug_info");
    let compressed = of_code.any(|(section, header)| {
        section.name.starts_with(".z") || header.sh_flags(LITTLE) & u64::from(elf::SHF_COMPRESSED) != 0
    });
    let mut unknown = if compressed {
        Unknown::Compressed
    } else {
        Unknown::NotThere
    };
    let section = |name: &str| relocated(name, input, table, bytes).unwrap_or_default();
    let (strings, string_offsets) = (section(".debug_str"), section(".debug_str_offsets"));
    let (ranges, range_lists) = (section(".debug_ranges"), section(".debug_rnglists"));
    let (locations, location_lists) = (section(".debug_loc"), section(".debug_loclists"));
    let (info, abbreviations, addresses) = (section(".debug_info"), section(".debug_abbrev"), section(".debug_addr"));
    let info = DebugInfo::new(&info, gimli::LittleEndian);
    let abbreviations = DebugAbbrev::new(&abbreviations, gimli::LittleEndian);
    let mut result = BTreeMap::new();
    let mut units = info.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(abbreviations) = header.abbreviations(&abbreviations) else {
            continue;
        };
        let unit = Unit {
            header,
            abbreviations,
            addresses: &addresses,
            strings: &strings,
            string_offsets: &string_offsets,
            string_base: Cell::new(8),
            of_clang: Cell::new(false),
            ranges: &ranges,
            range_lists: &range_lists,
            locations: &locations,
            location_lists: &location_lists,
            types_left: Cell::new(0),
        };
        if unit.is_elsewhere() {
            unknown = Unknown::Elsewhere;
        }
        // What was read before the damage stands.
        let _ = unit.functions(&mut result);
    }
    (result, unknown)
}

/// A debug section with its relocations applied. An address in a section becomes (section << 32) + byte.
fn relocated(name: &str, input: &Input, table: &SectionTable<'_, Header>, bytes: &[u8]) -> Option<Vec<u8>> {
    let index = input.sections.iter().position(|one| one.name == name)?;
    let section = table.iter().nth(index)?;
    if section.sh_flags(LITTLE) & u64::from(elf::SHF_COMPRESSED) != 0 {
        return None;
    }
    let mut data = section.data(LITTLE, bytes).ok()?.to_vec();
    for rela in table.iter().filter(|one| one.sh_info(LITTLE) as usize == index) {
        let Ok(Some((list, _))) = rela.rela(LITTLE, bytes) else {
            continue;
        };
        for one in list {
            let symbol = input.symbols.get(one.r_sym(LITTLE, false) as usize)?;
            let (section, value) = match symbol.home {
                Home::Section(section, value) => (section as u64, value),
                Home::Absolute(value) => (0, value),
                _ => (0, 0),
            };
            let low = value.wrapping_add_signed(one.r_addend(LITTLE));
            let at = usize::try_from(one.r_offset(LITTLE)).ok()?;
            match one.r_type(LITTLE, false) {
                elf::R_X86_64_64 => {
                    let whole = (section << 32).wrapping_add(low);
                    data.get_mut(at..at.checked_add(8)?)?
                        .copy_from_slice(&whole.to_le_bytes());
                }
                elf::R_X86_64_32 => {
                    data.get_mut(at..at.checked_add(4)?)?
                        .copy_from_slice(&(low as u32).to_le_bytes());
                }
                _ => {}
            }
        }
    }
    Some(data)
}

struct Unit<'a> {
    header: UnitHeader<Slice<'a>>,
    abbreviations: gimli::Abbreviations,
    addresses: &'a [u8],
    strings: &'a [u8],
    string_offsets: &'a [u8],
    /// Where those of the unit begin.
    string_base: Cell<usize>,
    /// Whether clang wrote the unit.
    of_clang: Cell<bool>,
    ranges: &'a [u8],
    range_lists: &'a [u8],
    locations: &'a [u8],
    location_lists: &'a [u8],
    /// What is left of [`TYPES_MAX`] for the function that is looked at.
    types_left: Cell<u32>,
}

type Decided<T> = Result<T, String>;

fn broken<T>(_: T) -> String {
    "damaged debug information".to_string()
}

impl Unit<'_> {
    /// Whether the unit only says in which file it is.
    fn is_elsewhere(&self) -> bool {
        let mut cursor = self.header.entries(&self.abbreviations);
        let first = cursor.next_dfs().ok().flatten();
        let names = [dw::DW_AT_dwo_name, dw::DW_AT_GNU_dwo_name];
        first.is_some_and(|first| names.iter().any(|name| first.attr(*name).is_some()))
    }

    fn functions(&self, result: &mut BTreeMap<(usize, u64), Parameters>) -> Decided<()> {
        let mut cursor = self.header.entries(&self.abbreviations);
        let mut base = 8;
        while let Some(entry) = cursor.next_dfs().map_err(broken)? {
            if entry.tag() == dw::DW_TAG_compile_unit {
                if let Some(AttributeValue::DebugAddrBase(at)) = entry.attr_value(dw::DW_AT_addr_base) {
                    base = at.0;
                }
                if let Some(AttributeValue::DebugStrOffsetsBase(at)) = entry.attr_value(dw::DW_AT_str_offsets_base) {
                    self.string_base.set(at.0);
                }
                let producer = self.string(entry, dw::DW_AT_producer);
                self.of_clang.set(producer.windows(5).any(|part| part == b"clang"));
            }
            if entry.tag() != dw::DW_TAG_subprogram {
                continue;
            }
            let low = match entry
                .attr_value(dw::DW_AT_low_pc)
                .or_else(|| entry.attr_value(dw::DW_AT_ranges))
            {
                Some(AttributeValue::Addr(address)) => address,
                Some(AttributeValue::DebugAddrIndex(index)) => {
                    let at = index.0.checked_mul(8).and_then(|at| at.checked_add(base));
                    let Some(address) = at.and_then(|at| crate::elf::long(self.addresses, at)) else {
                        continue;
                    };
                    address
                }
                // A function in several places (its cold part elsewhere) begins where its first range does.
                Some(AttributeValue::RangeListsRef(at)) => match self.first_range(gimli::RangeListsOffset(at.0)) {
                    Some(address) => address,
                    None => continue,
                },
                _ => continue,
            };
            self.types_left.set(TYPES_MAX);
            let words = self.words(entry, low).unwrap_or_else(StackWords::Undecided);
            self.types_left.set(TYPES_MAX);
            let signature = self.signature(entry);
            let found = Parameters { words, signature };
            result.insert(((low >> 32) as usize, low & 0xffff_ffff), found);
        }
        Ok(())
    }

    /// Where the first range of a list begins.
    fn first_range(&self, at: gimli::RangeListsOffset) -> Option<u64> {
        let little = gimli::LittleEndian;
        let lists = gimli::RangeLists::new(
            gimli::DebugRanges::new(self.ranges, little),
            gimli::DebugRngLists::new(self.range_lists, little),
        );
        let mut list = lists.raw_ranges(at, self.header.encoding()).ok()?;
        let mut base = 0_u64;
        while let Ok(Some(entry)) = list.next() {
            match entry {
                gimli::RawRngListEntry::BaseAddress { addr } => base = addr,
                gimli::RawRngListEntry::AddressOrOffsetPair { begin, .. }
                | gimli::RawRngListEntry::OffsetPair { begin, .. } => return Some(base.wrapping_add(begin)),
                gimli::RawRngListEntry::StartEnd { begin, .. } | gimli::RawRngListEntry::StartLength { begin, .. } => {
                    return Some(begin);
                }
                _ => return None,
            }
        }
        None
    }

    fn entry(&self, at: UnitOffset) -> Decided<Entry<'_>> {
        self.header.entry(&self.abbreviations, at).map_err(broken)
    }

    /// Counts a type or a member that is looked at.
    fn look(&self) -> Decided<()> {
        let left = self.types_left.get().checked_sub(1);
        self.types_left
            .set(left.ok_or_else(|| "types of more parts than are looked at".to_string())?);
        Ok(())
    }

    /// The entry that has the parameters: abstract instances have all of them, concrete ones may not.
    fn declaration(&self, entry: &Entry<'_>) -> Decided<UnitOffset> {
        let mut at = entry.offset();
        let mut next = self.reference(entry, dw::DW_AT_abstract_origin);
        for _ in 0..DEPTH {
            let Some(origin) = next else { return Ok(at) };
            at = origin;
            next = self.reference(&self.entry(at)?, dw::DW_AT_abstract_origin);
        }
        Err(broken(()))
    }

    fn reference(&self, entry: &Entry<'_>, attribute: dw::DwAt) -> Option<UnitOffset> {
        match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(at) => Some(at),
            AttributeValue::DebugInfoRef(at) => at.to_unit_offset(&self.header),
            _ => None,
        }
    }

    /// An attribute of the entry, or of what it is an instance or completion of.
    fn inherited_type(&self, entry: &Entry<'_>) -> Decided<Option<UnitOffset>> {
        let mut found = self.reference(entry, dw::DW_AT_type);
        let origin = |name| self.reference(entry, name);
        let mut next = origin(dw::DW_AT_abstract_origin).or_else(|| origin(dw::DW_AT_specification));
        for _ in 0..DEPTH {
            let (None, Some(at)) = (found, next) else { break };
            let above = self.entry(at)?;
            found = self.reference(&above, dw::DW_AT_type);
            next = self
                .reference(&above, dw::DW_AT_abstract_origin)
                .or_else(|| self.reference(&above, dw::DW_AT_specification));
        }
        Ok(found)
    }

    /// The words of the function at an entry, which begins at `low`.
    fn words(&self, entry: &Entry<'_>, low: u64) -> Decided<StackWords> {
        if let Some(foreign) = convention::foreign(entry) {
            return Ok(StackWords::Foreign(foreign));
        }
        let declaration = self.declaration(entry)?;
        let places = self.entry_places(entry, low)?;
        let mut variadic = false;
        let (mut integers, mut vectors, mut bytes) = (0, 0, 0_u64);
        if let Some(result) = self.inherited_type(&self.entry(declaration)?)?
            && matches!(self.place(result, true)?, Place::Stack { .. })
        {
            // The caller passes where the result goes.
            integers += 1;
        }
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(declaration))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        while let Some(child) = children.next().map_err(broken)? {
            match child.entry().tag() {
                dw::DW_TAG_unspecified_parameters => {
                    variadic = true;
                    continue;
                }
                dw::DW_TAG_formal_parameter => {}
                _ => continue,
            }
            let kind = self.inherited_type(child.entry())?;
            let kind = kind.ok_or_else(|| "a parameter without a type".to_string())?;
            let seen = places.get(&child.entry().offset()).copied();
            let foreign = || Ok(StackWords::Foreign(FOREIGN.to_string()));
            let (size, align) = match self.place(kind, false)? {
                Place::Registers(classes) => {
                    let count = |class| classes.iter().filter(|one| **one == class).count();
                    let (more_integers, more_vectors) = (count(Class::Integer), count(Class::Vector));
                    if integers + more_integers <= 6 && vectors + more_vectors <= 8 {
                        let alone = match (more_integers, more_vectors) {
                            (1, 0) => INTEGER_REGISTERS.get(integers).copied(),
                            (0, 1) => Some(FIRST_VECTOR + vectors as u64),
                            _ => None,
                        };
                        let empty = more_integers + more_vectors == 0;
                        if seen.is_some_and(|seen| !empty && !seen.can_begin_in(alone)) {
                            return foreign();
                        }
                        integers += more_integers;
                        vectors += more_vectors;
                        continue;
                    }
                    (8 * classes.len() as u64, self.align(kind, DEPTH)?)
                }
                Place::Stack { bytes, align } => (bytes, align),
            };
            if seen.is_some_and(|seen| !seen.can_begin_on_stack()) {
                return foreign();
            }
            if align > 16 {
                return Err(format!("a parameter aligned to {align} bytes"));
            }
            let start = bytes.checked_next_multiple_of(align.max(8));
            let end = start.and_then(|start| start.checked_add(size)?.checked_next_multiple_of(8));
            bytes = end.ok_or_else(|| broken(()))?;
        }
        let words = u32::try_from(bytes / 8).ok();
        match words.filter(|count| *count <= super::description::STACK_WORDS_MAX) {
            Some(named) if variadic => Ok(StackWords::Variadic { named }),
            Some(words) => Ok(StackWords::Words(words)),
            None => Err("more parameters than a thunk copies".to_string()),
        }
    }

    /// Follows names and qualifiers to what a type is made of; `None` is void.
    fn strip(&self, kind: UnitOffset) -> Decided<Option<Entry<'_>>> {
        let mut at = kind;
        for _ in 0..DEPTH {
            self.look()?;
            let entry = self.entry(at)?;
            match entry.tag() {
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type => match self.reference(&entry, dw::DW_AT_type) {
                    Some(next) => at = next,
                    None => return Ok(None),
                },
                _ => return Ok(Some(entry)),
            }
        }
        Err(broken(()))
    }

    fn size(&self, kind: UnitOffset, depth: u32) -> Decided<u64> {
        let Some(entry) = self.strip(kind)? else { return Ok(0) };
        if is_reference(&entry) {
            return Ok(8);
        }
        if entry.tag() == dw::DW_TAG_ptr_to_member_type {
            // A distance; to a function its address, too (Itanium C++ ABI, 2.3).
            let member = self.reference(&entry, dw::DW_AT_type).ok_or_else(|| broken(()))?;
            let function = self
                .strip(member)?
                .is_some_and(|one| one.tag() == dw::DW_TAG_subroutine_type);
            return Ok(if function { 16 } else { 8 });
        }
        if entry.tag() == dw::DW_TAG_array_type {
            let element = self
                .reference(&entry, dw::DW_AT_type)
                .filter(|_| depth > 0)
                .ok_or_else(|| broken(()))?;
            let each = self.size(element, depth - 1)?;
            return self.count(&entry)?.checked_mul(each).ok_or_else(|| broken(()));
        }
        let size = entry.attr_value(dw::DW_AT_byte_size).and_then(|one| one.udata_value());
        size.ok_or_else(|| "a type of unknown size".to_string())
    }

    /// Elements of an array.
    fn count(&self, array: &Entry<'_>) -> Decided<u64> {
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(array.offset()))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        let mut count = 1_u64;
        while let Some(child) = children.next().map_err(broken)? {
            let entry = child.entry();
            self.look()?;
            let value = |name| entry.attr_value(name).and_then(|one| one.udata_value());
            if entry.tag() == dw::DW_TAG_subrange_type {
                let last = value(dw::DW_AT_upper_bound).map(|last| last.wrapping_add(1));
                let this = value(dw::DW_AT_count).or(last).unwrap_or(0);
                count = count.checked_mul(this).ok_or_else(|| broken(()))?;
            }
        }
        Ok(count)
    }
}

/// The words of the function that an adjusting one at a place goes on to.
pub(super) fn adjusted_words<'a>(world: &World<'a>, file: usize, here: Home) -> Option<&'a StackWords> {
    let mut named = world.inputs[file].symbols.iter().filter(|one| one.home == here);
    let function = named.find_map(|symbol| adjusts(&symbol.name))?;
    let own = world.inputs[file].symbols.iter().find(|one| one.name == function);
    match (own.map(|one| one.home), world.symbols.defined(world.inputs, &function)) {
        (Some(Home::Section(section, at)), _) => world.inputs[file].stack.get(&(section, at)).map(|one| &one.words),
        (_, Some(Target::Place(file, section, at))) => {
            world.inputs[file].stack.get(&(section, at)).map(|one| &one.words)
        }
        _ => None,
    }
}

/// What an adjusting function of C++ (Itanium C++ ABI, 5.1.4.4: it changes `this`, and perhaps the result, of another
/// function with the same arguments, and may have no debug information) goes on to; `None` for another name.
fn adjusts(name: &str) -> Option<String> {
    let rest = name.strip_prefix("_ZT")?;
    // Of a covariant result two distances, of `this` and of the result.
    let (mut rest, distances) = rest.strip_prefix('c').map_or((rest, 1), |rest| (rest, 2));
    for _ in 0..distances {
        let numbers = if rest.starts_with('h') {
            1
        } else {
            rest.strip_prefix('v')?;
            2
        };
        rest = rest.splitn(numbers + 1, '_').nth(numbers)?;
    }
    Some(format!("_Z{rest}"))
}

fn is_reference(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_subroutine_type
            | dw::DW_TAG_unspecified_type
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a function with one parameter, the first of some structures of `bytes` bytes with so many members, each
    /// at byte 0. Members have the type of the next structure; those of the last one that of the first, if the structures are
    /// endless, else a number of 2^64 - 1 bytes.
    fn words_of(structures: u32, bytes: u64, members: u32, endless: bool) -> StackWords {
        // Abbreviations: number, tag, whether it has children, attributes with their forms.
        let abbreviations: &[&[u8]] = &[
            &[1, 0x11, 1, 0, 0],                         // compile unit
            &[2, 0x13, 1, 0x0b, 0x07, 0, 0],             // structure: byte size (data8)
            &[3, 0x0d, 0, 0x49, 0x13, 0x38, 0x0b, 0, 0], // member: type (ref4), place (data1)
            &[4, 0x2e, 1, 0x11, 0x01, 0, 0],             // subprogram: address
            &[5, 0x05, 0, 0x49, 0x13, 0, 0],             // parameter: type (ref4)
            &[6, 0x24, 0, 0x0b, 0x07, 0x3e, 0x0b, 0, 0], // base type: byte size (data8), encoding (data1)
            &[0],
        ];
        let abbreviations = abbreviations.concat();
        // Behind the header of 11 bytes and the entry of the unit the number, then the structures.
        let (number, first, each) = (12, 22, 10 + 6 * members);
        let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
        info.push(6);
        info.extend(u64::MAX.to_le_bytes());
        info.push(7);
        for index in 1..=structures {
            info.push(2);
            info.extend(bytes.to_le_bytes());
            let kind = match (index < structures, endless) {
                (true, _) => first + index * each,
                (false, true) => first,
                (false, false) => number,
            };
            for _ in 0..members {
                info.push(3);
                info.extend(kind.to_le_bytes());
                info.push(0);
            }
            info.push(0);
        }
        info.push(4);
        info.extend(0x1000_u64.to_le_bytes());
        info.push(5);
        info.extend(first.to_le_bytes());
        info.extend([0, 0]);
        let mut unit = (info.len() as u32).to_le_bytes().to_vec();
        unit.extend(info);
        let header = DebugInfo::new(&unit, gimli::LittleEndian).units().next();
        let header = header.expect("a unit").expect("a unit");
        let table = DebugAbbrev::new(&abbreviations, gimli::LittleEndian);
        let unit = Unit {
            abbreviations: header.abbreviations(&table).expect("abbreviations"),
            header,
            addresses: &[],
            strings: &[],
            string_offsets: &[],
            string_base: Cell::new(8),
            of_clang: Cell::new(false),
            ranges: &[],
            range_lists: &[],
            locations: &[],
            location_lists: &[],
            types_left: Cell::new(0),
        };
        let mut found = BTreeMap::new();
        unit.functions(&mut found).expect("well-formed information");
        found.remove(&(0, 0x1000)).expect("a function").words
    }

    #[test]
    fn structures_of_too_many_parts_are_given_up() {
        let undecided = |words| match words {
            StackWords::Undecided(why) => why,
            words => panic!("{words:?}"),
        };
        let many = "types of more parts than are looked at";
        // 2^30 numbers.
        assert_eq!(
            undecided(words_of(30, 8, 2, false)),
            many,
            "the classes of one in registers"
        );
        assert_eq!(
            undecided(words_of(30, 24, 2, false)),
            many,
            "the alignment of one on the stack"
        );
        assert_eq!(
            undecided(words_of(1, 8, 2, true)),
            "damaged debug information",
            "too deep"
        );
        // What a function really has is looked at.
        assert_eq!(words_of(1, 24, 0, false), StackWords::Words(3));
        assert_eq!(words_of(3, 24, 10, false), StackWords::Words(3));
        assert_eq!(words_of(1, 8, 1000, false), StackWords::Words(0), "in a register");
    }

    #[test]
    fn sizes_without_end_are_given_up() {
        let damaged = StackWords::Undecided("damaged debug information".to_string());
        assert_eq!(words_of(1, u64::MAX, 0, false), damaged);
        assert_eq!(
            words_of(1, u64::MAX - 7, 0, false),
            StackWords::Undecided("more parameters than a thunk copies".into())
        );
        // The member says that it has more than the whole.
        assert_eq!(words_of(1, 8, 1, false), StackWords::Words(0));
    }

    #[test]
    fn adjusting_functions_go_on_to_another() {
        let names = [
            ("_ZThn16_N1D1gEi", Some("_ZN1D1gEi")),
            ("_ZTv0_n24_N1D1gEi", Some("_ZN1D1gEi")),
            ("_ZTch0_h16_N1Y4makeEv", Some("_ZN1Y4makeEv")),
            ("_ZTchn8_v8_n32_N1Y4makeEv", Some("_ZN1Y4makeEv")),
            ("_ZTV1D", None),
            ("_ZTI1D", None),
            ("_ZTh", None),
            ("_ZTc", None),
            ("main", None),
        ];
        for (name, expected) in names {
            assert_eq!(adjusts(name).as_deref(), expected, "{name}");
        }
    }
}
