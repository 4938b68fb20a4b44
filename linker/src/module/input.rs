//! Reading relocatable ELF files and archives of them, with the `object` crate, into what the linker works
//! on: sections that will be in memory, symbols, relocations, and how functions are left. Everything else is left
//! behind; debug information is asked once, for the arguments that functions take from the stack.

use super::fault::{Cause, Fault, Unknown};
use super::format::MODULE_BYTES_MAX;
use super::frames::{self, Frames};
use super::stack::{self, Parameters};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable};

pub(super) type Header = elf::FileHeader64<LittleEndian>;
const LITTLE: LittleEndian = LittleEndian;

/// What a section is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not in memory, or dropped as a second copy of a group.
    None,
    /// Instructions.
    Text,
    /// Constants; those with addresses in them too, if all of these turn out to be constant.
    ReadOnly,
    /// Variables.
    Data,
    /// Variables that begin as zero; no bytes in the file.
    Zero,
    /// Pointers to functions that are called when an instance is made.
    Init,
    /// Pointers to functions that are called at its end, last to first.
    Fini,
    /// How functions are left; only while a file is read, for it is taken apart.
    Frames,
}

/// A section of a file.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Alignment, a power of two, at most a page.
    pub align: u64,
    /// Its bytes in memory.
    pub bytes: u64,
    /// Its contents; empty for [`Kind::Zero`].
    pub data: Vec<u8>,
    /// What is to be filled in, by offset.
    pub relocations: Vec<Relocation>,
}

/// A relocation with addend.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Byte in the section.
    pub at: u64,
    /// Type, as in the psABI.
    pub kind: u32,
    /// Index of the symbol in the file.
    pub symbol: usize,
    /// Addend.
    pub addend: i64,
}

/// Where a symbol is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Home {
    /// Elsewhere.
    Undefined,
    /// A number.
    Absolute(u64),
    /// To be made: bytes and alignment.
    Common(u64, u64),
    /// In a section of the file, at this byte.
    Section(usize, u64),
}

/// A symbol of a file.
#[allow(clippy::struct_excessive_bools, reason = "they are independent, as in the file")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name; empty for sections and nameless locals.
    pub name: String,
    /// Where it is.
    pub home: Home,
    /// Visible to other files.
    pub global: bool,
    /// May be undefined, or yields to another definition.
    pub weak: bool,
    /// A function, by its type.
    pub function: bool,
    /// An indirect function.
    pub indirect: bool,
    /// Visible to other files of the module only.
    pub hidden: bool,
    /// Its bytes.
    pub bytes: u64,
}

/// A relocatable file, read.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name for messages.
    pub file: String,
    /// By their index in the file.
    pub sections: Vec<Section>,
    /// By their index in the file.
    pub symbols: Vec<Symbol>,
    /// The parameters of the functions that have debug information, by section and byte.
    pub stack: BTreeMap<(usize, u64), Parameters>,
    /// Why the others have none.
    pub debug: Unknown,
    /// How functions are left.
    pub frames: Frames,
}

fn damaged(file: &str) -> impl Fn(object::read::Error) -> Fault + '_ {
    move |error| Fault::file(file, Cause::Damaged(error.to_string()))
}

/// What is said of objects that hold a compiler's own language instead of instructions.
const NO_CODE: &str = "it has no machine code (-flto): compile with -fno-lto or with -ffat-lto-objects";
/// What is said of functions that only a linker of the host would have called.
const NOT_CALLED: &str = "nobody would call the functions that it names: use .init_array and .fini_array";

/// Whether the bytes begin like LLVM's language, alone or wrapped.
fn is_bitcode(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&[0xde, 0xc0, 0x17, 0x0b])
}

/// Whether the bytes begin like an archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"!<arch>\n")
}

/// The members of an archive that are relocatable files, with their names for messages.
///
/// # Errors
/// If the archive is damaged or thin (its members elsewhere).
pub fn members<'a>(file: &str, bytes: &'a [u8]) -> Result<Vec<(String, &'a [u8])>, Fault> {
    let archive = object::read::archive::ArchiveFile::parse(bytes).map_err(damaged(file))?;
    let mut result = Vec::new();
    for member in archive.members() {
        let member = member.map_err(damaged(file))?;
        let data = member.data(bytes).map_err(damaged(file))?;
        // Rust's libraries carry metadata beside their objects.
        let name = || format!("{file}({})", String::from_utf8_lossy(member.name()));
        if is_bitcode(data) {
            return Err(Fault::file(&name(), Cause::Compiled(NO_CODE)));
        }
        if data.starts_with(b"\x7fELF") {
            result.push((name(), data));
        }
    }
    Ok(result)
}

/// The names that a relocatable file defines for others; what an archive is searched by.
///
/// # Errors
/// If the file is damaged.
pub fn defined_names(file: &str, bytes: &[u8]) -> Result<BTreeSet<String>, Fault> {
    let (_, _, symbols) = tables(file, bytes)?;
    let mut result = BTreeSet::new();
    for symbol in symbols.iter() {
        if symbol.st_bind() != elf::STB_LOCAL && symbol.st_shndx(LITTLE) != elf::SHN_UNDEF {
            let name = symbol.name(LITTLE, symbols.strings()).map_err(damaged(file))?;
            result.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(result)
}

pub(super) type Tables<'a> = (&'a Header, SectionTable<'a, Header>, SymbolTable<'a, Header>);

/// The header and the tables of a relocatable file.
pub(super) fn tables<'a>(file: &str, bytes: &'a [u8]) -> Result<Tables<'a>, Fault> {
    let refuse = |error: object::read::Error| Fault::file(file, Cause::NotRelocatable(error.to_string()));
    if is_bitcode(bytes) {
        return Err(Fault::file(file, Cause::Compiled(NO_CODE)));
    }
    let header = Header::parse(bytes).map_err(refuse)?;
    header.endian().map_err(refuse).map(|_: LittleEndian| ())?;
    if header.e_machine(LITTLE) != elf::EM_X86_64 {
        return Err(Fault::file(file, Cause::WrongMachine));
    }
    if header.e_type(LITTLE) != elf::ET_REL {
        let why = format!("ELF type {}", header.e_type(LITTLE));
        return Err(Fault::file(file, Cause::NotRelocatable(why)));
    }
    let sections = header.sections(LITTLE, bytes).map_err(damaged(file))?;
    let symbols = sections
        .symbols(LITTLE, bytes, elf::SHT_SYMTAB)
        .map_err(damaged(file))?;
    Ok((header, sections, symbols))
}

/// Reads a relocatable file. `seen` holds the signatures of the groups of earlier files; of equal groups only
/// the first counts.
///
/// # Errors
/// The first thing that cannot be part of a module.
pub fn read(file: &str, bytes: &[u8], seen: &mut BTreeSet<String>) -> Result<Input, Fault> {
    let (_, table, symbol_table) = tables(file, bytes)?;
    let mut input = Input {
        file: file.into(),
        sections: Vec::new(),
        symbols: Vec::new(),
        stack: BTreeMap::new(),
        debug: Unknown::NotThere,
        frames: Frames::default(),
    };
    for section in table.iter() {
        let name = table.section_name(LITTLE, section).map_err(damaged(file))?;
        let name = String::from_utf8_lossy(name).into_owned();
        input.sections.push(read_section(file, name, section, bytes)?);
    }
    for (index, symbol) in symbol_table.enumerate() {
        let section = symbol_table
            .symbol_section(LITTLE, symbol, index)
            .map_err(damaged(file))?;
        let name = symbol.name(LITTLE, symbol_table.strings()).map_err(damaged(file))?;
        let name = String::from_utf8_lossy(name).into_owned();
        input
            .symbols
            .push(read_symbol(&input, name, symbol, section.map(|one| one.0))?);
    }
    drop_groups(&mut input, &table, bytes, seen)?;
    read_relocations(&mut input, &table, bytes)?;
    frames::read(&mut input)?;
    (input.stack, input.debug) = stack::read(&input, &table, bytes);
    Ok(input)
}

fn read_section(
    file: &str,
    name: String,
    section: &elf::SectionHeader64<LittleEndian>,
    bytes: &[u8],
) -> Result<Section, Fault> {
    let flags = section.sh_flags(LITTLE);
    let has = |flag: u32| flags & u64::from(flag) != 0;
    refuse_section(&name, section, bytes).map_err(|how| Fault::file(file, Cause::Compiled(how)).at(&name, 0))?;
    let kind = match section.sh_type(LITTLE) {
        _ if !has(elf::SHF_ALLOC) || section.sh_size(LITTLE) == 0 => Kind::None,
        _ if has(elf::SHF_TLS) => {
            return Err(Fault::file(file, Cause::ThreadLocal(0)).at(&name, 0));
        }
        elf::SHT_NOBITS => Kind::Zero,
        elf::SHT_INIT_ARRAY => Kind::Init,
        elf::SHT_FINI_ARRAY => Kind::Fini,
        elf::SHT_PROGBITS | elf::SHT_X86_64_UNWIND if name == ".eh_frame" => Kind::Frames,
        elf::SHT_NOTE | elf::SHT_X86_64_UNWIND | elf::SHT_GROUP => Kind::None,
        elf::SHT_PROGBITS if has(elf::SHF_EXECINSTR) => Kind::Text,
        elf::SHT_PROGBITS if !has(elf::SHF_WRITE) || name.starts_with(".data.rel.ro") => Kind::ReadOnly,
        elf::SHT_PROGBITS => Kind::Data,
        other => {
            let what = format!("section of type {other:#x}");
            return Err(Fault::file(file, Cause::Damaged(what)).at(&name, 0));
        }
    };
    let align = section.sh_addralign(LITTLE).max(1);
    let size = section.sh_size(LITTLE);
    if kind != Kind::None {
        if !align.is_power_of_two() || align > abi::address::PAGE {
            return Err(Fault::file(file, Cause::Alignment(align)).at(&name, 0));
        }
        if size > MODULE_BYTES_MAX {
            return Err(Fault::file(file, Cause::TooLarge).at(&name, 0));
        }
    }
    let data = match kind {
        Kind::None | Kind::Zero => Vec::new(),
        _ => section.data(LITTLE, bytes).map_err(damaged(file))?.to_vec(),
    };
    Ok(Section {
        name,
        kind,
        align,
        bytes: size,
        data,
        relocations: Vec::new(),
    })
}

/// Sections that say how a file was compiled, if a module cannot have that.
fn refuse_section(name: &str, section: &elf::SectionHeader64<LittleEndian>, bytes: &[u8]) -> Result<(), &'static str> {
    let has = |flag: u32| section.sh_flags(LITTLE) & u64::from(flag) != 0;
    // gcc's own header of such a file, whose fifth byte says whether there is nothing else.
    let slim = || section.data(LITTLE, bytes).ok()?.get(4).map(|slim| *slim != 0);
    let executed = matches!(name, ".init" | ".fini" | ".ctors" | ".dtors")
        || name.starts_with(".ctors.")
        || name.starts_with(".dtors.");
    if name == ".note.GNU-stack" && has(elf::SHF_EXECINSTR) {
        Err(
            "it needs an executable stack, which no task has: the address of a nested function is taken, or assembly asks for it",
        )
    } else if name.starts_with(".gnu.lto_.lto.") && slim() != Some(false) {
        Err(NO_CODE)
    } else if section.sh_type(LITTLE) == elf::SHT_PREINIT_ARRAY
        || has(elf::SHF_ALLOC) && section.sh_size(LITTLE) > 0 && executed
    {
        Err(NOT_CALLED)
    } else {
        Ok(())
    }
}

fn read_symbol(
    input: &Input,
    name: String,
    symbol: &elf::Sym64<LittleEndian>,
    section: Option<usize>,
) -> Result<Symbol, Fault> {
    let value = symbol.st_value(LITTLE);
    let bytes = symbol.st_size(LITTLE);
    let home = match (section, symbol.st_shndx(LITTLE)) {
        (Some(index), _) => {
            let whole = input.sections.get(index);
            // One past the end is a valid place: labels that close a section.
            if whole.is_none_or(|one| one.kind != Kind::None && value > one.bytes) {
                let what = "a symbol lies outside its section".into();
                return Err(Fault::file(&input.file, Cause::Damaged(what)).about(&name));
            }
            Home::Section(index, value)
        }
        (None, elf::SHN_UNDEF) => Home::Undefined,
        (None, elf::SHN_COMMON) => {
            if !value.is_power_of_two() || value > abi::address::PAGE {
                return Err(Fault::file(&input.file, Cause::Alignment(value)).about(&name));
            }
            if bytes > MODULE_BYTES_MAX {
                return Err(Fault::file(&input.file, Cause::TooLarge).about(&name));
            }
            Home::Common(bytes, value)
        }
        (None, _) => Home::Absolute(value),
    };
    let kind = symbol.st_type();
    Ok(Symbol {
        name,
        home,
        global: symbol.st_bind() != elf::STB_LOCAL,
        weak: symbol.st_bind() == elf::STB_WEAK,
        function: kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC,
        indirect: kind == elf::STT_GNU_IFUNC,
        hidden: matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
        bytes,
    })
}

/// Of groups with the same signature (inline functions of C++, generic ones of Rust) the first counts.
fn drop_groups(
    input: &mut Input,
    table: &SectionTable<'_, Header>,
    bytes: &[u8],
    seen: &mut BTreeSet<String>,
) -> Result<(), Fault> {
    let mut dropped = BTreeSet::new();
    for section in table.iter() {
        let group = section.group(LITTLE, bytes).map_err(damaged(&input.file))?;
        let Some((flags, members)) = group else { continue };
        let signature = section.sh_info(LITTLE) as usize;
        let name = input.symbols.get(signature).map(|one| one.name.clone());
        let Some(name) = name else {
            let what = "a group without a signature".into();
            return Err(Fault::file(&input.file, Cause::Damaged(what)));
        };
        if flags & elf::GRP_COMDAT != 0 && !seen.insert(name) {
            dropped.extend(members.iter().map(|member| member.get(LITTLE) as usize));
        }
    }
    for &index in &dropped {
        if let Some(section) = input.sections.get_mut(index) {
            section.kind = Kind::None;
        }
    }
    // What stood there is now whoever's came first.
    for symbol in &mut input.symbols {
        if symbol.global && matches!(symbol.home, Home::Section(index, _) if dropped.contains(&index)) {
            symbol.home = Home::Undefined;
        }
    }
    Ok(())
}

fn read_relocations(input: &mut Input, table: &SectionTable<'_, Header>, bytes: &[u8]) -> Result<(), Fault> {
    for section in table.iter() {
        let rela = section.rela(LITTLE, bytes).map_err(damaged(&input.file))?;
        let Some((list, _)) = rela else {
            if section.sh_type(LITTLE) == elf::SHT_REL {
                let what = "relocations without addends, which AMD64 does not use".into();
                return Err(Fault::file(&input.file, Cause::Damaged(what)));
            }
            continue;
        };
        let target = section.sh_info(LITTLE) as usize;
        let symbols = input.symbols.len();
        let Some(target) = input.sections.get_mut(target) else {
            let what = "relocations of no section".into();
            return Err(Fault::file(&input.file, Cause::Damaged(what)));
        };
        if target.kind == Kind::None {
            continue;
        }
        for one in list {
            let relocation = Relocation {
                at: one.r_offset(LITTLE),
                kind: one.r_type(LITTLE, false),
                symbol: one.r_sym(LITTLE, false) as usize,
                addend: one.r_addend(LITTLE),
            };
            let damaged =
                |what: &str| Err(Fault::file(&input.file, Cause::Damaged(what.into())).at(&target.name, relocation.at));
            if relocation.symbol >= symbols {
                return damaged("a relocation of no symbol");
            }
            if relocation.at >= target.data.len() as u64 {
                return damaged("a relocation outside its section");
            }
            if relocation.kind != elf::R_X86_64_NONE {
                target.relocations.push(relocation);
            }
        }
        target.relocations.sort_by_key(|one| one.at);
        if let Some(pair) = target.relocations.windows(2).find(|pair| pair[0].at == pair[1].at) {
            let what = "two relocations of one place".into();
            return Err(Fault::file(&input.file, Cause::Damaged(what)).at(&target.name, pair[0].at));
        }
    }
    Ok(())
}
