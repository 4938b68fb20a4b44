//! Debug information of the objects (DWARF 4 and 5), with the addresses that the module's functions have: for debuggers
//! only, so it is no part of the module object. Sections of the same name become one; what is said about functions that
//! were left out gets an address that nothing has.

use super::input::{self, Home};
use super::relocate::{Layout, Seat, World};
use super::symbols::Target;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use object::LittleEndian;
use object::elf;
use object::read::elf::{Rela, SectionHeader};

const LITTLE: LittleEndian = LittleEndian;

/// The sections that debuggers ask for.
const NAMES: [&str; 12] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_rnglists",
    ".debug_loclists",
    ".debug_aranges",
    ".debug_ranges",
    ".debug_loc",
    ".debug_addr",
    ".debug_str_offsets",
];

/// Debug information of a module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Debug {
    /// Name and bytes of each section.
    pub sections: Vec<(&'static str, Vec<u8>)>,
    /// Files of which nothing is in it: compressed, or of a name that two members of an archive have.
    pub left_out: Vec<String>,
}

/// A debug section of a file.
struct Piece<'a> {
    file: usize,
    section: usize,
    /// Which of [`NAMES`].
    name: usize,
    data: &'a [u8],
    tables: &'a input::Tables<'a>,
    bytes: &'a [u8],
}

/// Collects and relocates. `files` are those of the request; `data` is the address of an instance's data, for its
/// variables. Damaged debug information is as good as none.
pub fn collect(files: &[(String, &[u8])], world: &World<'_>, layout: &Layout, data: Option<u64>) -> Debug {
    let mut result = Debug::default();
    let mut raw: BTreeMap<String, Option<&[u8]>> = BTreeMap::new();
    let mut add = |name: String, bytes| {
        raw.entry(name).and_modify(|known| *known = None).or_insert(Some(bytes));
    };
    for (name, bytes) in files {
        if input::is_archive(bytes) {
            let members = input::members(name, bytes).unwrap_or_default();
            for (name, bytes) in members {
                add(name, bytes);
            }
        } else {
            add(name.clone(), *bytes);
        }
    }
    let mut opened = Vec::new();
    for (file, one) in world.inputs.iter().enumerate() {
        match raw.get(&one.file) {
            Some(Some(bytes)) => {
                if let Ok(tables) = input::tables(&one.file, bytes) {
                    opened.push((file, *bytes, tables));
                }
            }
            Some(None) => result.left_out.push(one.file.clone()),
            None => {}
        }
    }
    let mut pieces = Vec::new();
    for (file, bytes, tables) in &opened {
        for (section, header) in tables.1.iter().enumerate() {
            let name = world.inputs[*file]
                .sections
                .get(section)
                .map_or("", |one| one.name.as_str());
            let Some(name) = NAMES.iter().position(|one| *one == name) else {
                continue;
            };
            if header.sh_flags(LITTLE) & u64::from(elf::SHF_COMPRESSED) != 0 {
                result.left_out.push(world.inputs[*file].file.clone());
                continue;
            }
            pieces.push(Piece {
                file: *file,
                section,
                name,
                data: header.data(LITTLE, *bytes).unwrap_or_default(),
                tables,
                bytes,
            });
        }
    }
    result.left_out.dedup();
    let mut whole: Vec<Vec<u8>> = NAMES.iter().map(|_| Vec::new()).collect();
    let mut starts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for piece in &pieces {
        starts.insert((piece.file, piece.section), whole[piece.name].len() as u64);
        whole[piece.name].extend(piece.data);
    }
    for piece in &pieces {
        let start = starts.get(&(piece.file, piece.section)).copied().unwrap_or_default() as usize;
        let place = &mut whole[piece.name][start..start + piece.data.len()];
        piece.relocate(world, layout, data, &starts, place);
    }
    let named = NAMES.iter().zip(whole).filter(|(_, bytes)| !bytes.is_empty());
    result.sections = named.map(|(name, bytes)| (*name, bytes)).collect();
    result
}

impl Piece<'_> {
    fn relocate(
        &self,
        world: &World<'_>,
        layout: &Layout,
        data: Option<u64>,
        starts: &BTreeMap<(usize, usize), u64>,
        place: &mut [u8],
    ) {
        // In these a pair of zeros ends a list.
        let nowhere = u64::from(matches!(NAMES[self.name], ".debug_ranges" | ".debug_loc"));
        let symbols = &world.inputs[self.file].symbols;
        for rela in self.tables.1.iter() {
            if rela.sh_info(LITTLE) as usize != self.section {
                continue;
            }
            let Ok(Some((list, _))) = rela.rela(LITTLE, self.bytes) else {
                continue;
            };
            for one in list {
                let number = one.r_sym(LITTLE, false) as usize;
                let Some(symbol) = symbols.get(number) else { continue };
                let addend = one.r_addend(LITTLE);
                let other = match symbol.home {
                    Home::Section(section, value) => starts
                        .get(&(self.file, section))
                        .map(|start| (start + value).wrapping_add_signed(addend)),
                    _ => None,
                };
                let target = world.symbols.target(world.inputs, self.file, number, addend);
                let value = other.or_else(|| match target {
                    Target::Place(file, section, at) => match layout.seats[file].get(section) {
                        Some(Seat::Shared(start)) => Some((layout.address + u64::from(*start)).wrapping_add(at)),
                        Some(Seat::Private(start)) => data.map(|data| (data + u64::from(*start)).wrapping_add(at)),
                        _ => None,
                    },
                    Target::Absolute(value) => Some(value),
                    _ => None,
                });
                let value = value.unwrap_or(nowhere).to_le_bytes();
                let width = match one.r_type(LITTLE, false) {
                    elf::R_X86_64_64 => 8,
                    elf::R_X86_64_32 => 4,
                    _ => continue,
                };
                let at = usize::try_from(one.r_offset(LITTLE)).unwrap_or(usize::MAX);
                if let Some(field) = place.get_mut(at..at.saturating_add(width)) {
                    field.copy_from_slice(&value[..width]);
                }
            }
        }
    }
}
