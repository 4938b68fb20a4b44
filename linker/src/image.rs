//! Laying out a program: what may become an image object, and how its pages look.
//!
//! Accepted is a static position-independent AMD64 executable: nothing to interpret it, no shared
//! library, no thread-local storage, only relative relocations, segments that share no page, and no
//! page that is both written and executed. The link flags that make such files are those of the host
//! tool's `build` module. The image is as long as the program in memory, its zero-filled part included.

use crate::elf::{self, Header, Segment};
use abi::Rights;
use abi::address::{PAGE, pages_for};
use alloc::vec;
use alloc::vec::Vec;

/// The longest image, in bytes. A bound, so that a forged header cannot ask for all memory.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;

const PAGE_BYTES: usize = PAGE as usize;

/// A program as it will lie in its image object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// All pages, one after the other.
    pub bytes: Vec<u8>,
    /// What each page may at most be used for. Gaps between segments allow nothing.
    pub limits: Vec<Rights>,
    /// Offset of the first instruction; stands also at [`abi::start::IMAGE_ENTRY_AT`] in the bytes.
    pub entry: u64,
}

impl Image {
    /// How many pages there are.
    pub fn page_count(&self) -> usize {
        self.limits.len()
    }

    /// The pages, each with its limits.
    pub fn pages(&self) -> impl Iterator<Item = (&[u8], Rights)> {
        self.bytes.chunks_exact(PAGE_BYTES).zip(self.limits.iter().copied())
    }
}

/// Why a file cannot become an image object.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// Not a 64-bit little-endian ELF file, or shorter than a header.
    NotElf,
    /// For another machine.
    WrongMachine(u16),
    /// Not position-independent: an executable at fixed addresses, an object file or a core.
    NotPositionIndependent(u16),
    /// It asks for an interpreter or for shared libraries.
    Dynamic,
    /// It has thread-local variables, for which programs here have no storage.
    ThreadLocal,
    /// A header or segment lies outside the file, or its sizes contradict each other.
    Truncated,
    /// Nothing to load.
    Empty,
    /// It needs more than [`IMAGE_BYTES_MAX`].
    TooLarge,
    /// The first segment leaves no room for the ELF header at offset 0.
    NoHeaderPage,
    /// Two segments have bytes in the page at this offset.
    SharedPage(u64),
    /// The segment at this offset is both written and executed.
    WritableCode(u64),
    /// The entry point is not in an executable page.
    BadEntry(u64),
    /// A relocation of this type is needed; only relative ones can be done at start.
    Relocation(u32),
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotElf => f.write_str("not a 64-bit little-endian ELF file"),
            Self::WrongMachine(machine) => write!(f, "for machine {machine}, not for x86-64"),
            Self::NotPositionIndependent(kind) => {
                write!(f, "ELF type {kind} is not position-independent: link as static PIE")
            }
            Self::Dynamic => f.write_str("dynamically linked: link as static PIE with --no-dynamic-linker"),
            Self::ThreadLocal => f.write_str("it has thread-local variables"),
            Self::Truncated => f.write_str("truncated or damaged: a header or segment lies outside the file"),
            Self::Empty => f.write_str("no segment is to be loaded"),
            Self::TooLarge => write!(f, "it needs more than {} MiB", IMAGE_BYTES_MAX >> 20),
            Self::NoHeaderPage => f.write_str("the first page is not free for the ELF header"),
            Self::SharedPage(at) => {
                write!(
                    f,
                    "two segments share the page at {at:#x}: link with -z separate-code and aligned segments"
                )
            }
            Self::WritableCode(at) => write!(f, "the segment at {at:#x} is both writable and executable"),
            Self::BadEntry(at) => write!(f, "the entry point {at:#x} is not in executable memory"),
            Self::Relocation(kind) => write!(f, "it needs relocation type {kind}; only relative ones are possible"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Checks an ELF file and lays it out.
///
/// # Errors
/// The first thing found that keeps the file from being a program here.
pub fn layout(file: &[u8]) -> Result<Image, LayoutError> {
    let header = check_header(file)?;
    let segments = read_segments(file, &header)?;
    let loads = || {
        segments
            .iter()
            .filter(|segment| segment.kind == elf::SEGMENT_LOAD && segment.memory_bytes > 0)
    };
    let mut end = 0;
    for segment in loads() {
        end = end.max(segment_end(segment)?);
    }
    if end == 0 {
        return Err(LayoutError::Empty);
    }
    let pages = page_count(end)?;
    let mut image = Image {
        bytes: vec![0; pages * PAGE_BYTES],
        limits: vec![Rights::NONE; pages],
        entry: header.entry,
    };
    for segment in loads() {
        place(file, segment, &mut image)?;
    }
    place_header(file, &mut image)?;
    check_entry(&image)?;
    check_dynamic(&segments, &image)?;
    Ok(image)
}

fn check_header(file: &[u8]) -> Result<Header, LayoutError> {
    let header = elf::header(file).ok_or(LayoutError::NotElf)?;
    if header.machine != elf::MACHINE_X86_64 {
        return Err(LayoutError::WrongMachine(header.machine));
    }
    if header.file_type != elf::TYPE_DYNAMIC {
        return Err(LayoutError::NotPositionIndependent(header.file_type));
    }
    if usize::from(header.segment_bytes) != elf::SEGMENT_BYTES {
        return Err(LayoutError::Truncated);
    }
    Ok(header)
}

fn read_segments(file: &[u8], header: &Header) -> Result<Vec<Segment>, LayoutError> {
    let mut segments = Vec::new();
    for index in 0..header.segment_count {
        let segment = elf::segment(file, header, index).ok_or(LayoutError::Truncated)?;
        match segment.kind {
            elf::SEGMENT_INTERPRETER => return Err(LayoutError::Dynamic),
            elf::SEGMENT_THREAD_LOCAL if segment.memory_bytes > 0 => return Err(LayoutError::ThreadLocal),
            _ => segments.push(segment),
        }
    }
    Ok(segments)
}

/// One past the last byte of a segment in memory.
fn segment_end(segment: &Segment) -> Result<u64, LayoutError> {
    if segment.file_bytes > segment.memory_bytes {
        return Err(LayoutError::Truncated);
    }
    let end = segment
        .address
        .checked_add(segment.memory_bytes)
        .ok_or(LayoutError::TooLarge)?;
    if end > IMAGE_BYTES_MAX {
        Err(LayoutError::TooLarge)
    } else {
        Ok(end)
    }
}

fn page_count(bytes: u64) -> Result<usize, LayoutError> {
    pages_for(bytes)
        .and_then(|pages| usize::try_from(pages).ok())
        .ok_or(LayoutError::TooLarge)
}

/// Copies a segment to its place and sets the limits of its pages.
fn place(file: &[u8], segment: &Segment, image: &mut Image) -> Result<(), LayoutError> {
    let rights = rights_of(segment.flags);
    if rights.contains(Rights::W) && rights.contains(Rights::X) {
        return Err(LayoutError::WritableCode(segment.address));
    }
    let first = (segment.address / PAGE) as usize;
    let last = ((segment.address + segment.memory_bytes - 1) / PAGE) as usize;
    for page in first..=last {
        let limit = image.limits.get_mut(page).ok_or(LayoutError::Truncated)?;
        if !limit.is_empty() {
            return Err(LayoutError::SharedPage(page as u64 * PAGE));
        }
        *limit = rights;
    }
    let bytes = usize::try_from(segment.file_bytes).map_err(|_| LayoutError::Truncated)?;
    let offset = usize::try_from(segment.offset).map_err(|_| LayoutError::Truncated)?;
    let end = offset.checked_add(bytes).ok_or(LayoutError::Truncated)?;
    let source = file.get(offset..end).ok_or(LayoutError::Truncated)?;
    let to = segment.address as usize;
    image
        .bytes
        .get_mut(to..to + bytes)
        .ok_or(LayoutError::Truncated)?
        .copy_from_slice(source);
    Ok(())
}

fn rights_of(flags: u32) -> Rights {
    let pairs = [
        (elf::FLAG_READ, Rights::R),
        (elf::FLAG_WRITE, Rights::W),
        (elf::FLAG_EXECUTE, Rights::X),
    ];
    // Whatever is mapped can be read on this machine; to claim otherwise would deceive.
    pairs
        .iter()
        .filter(|(flag, _)| flags & flag != 0)
        .fold(Rights::R, |sum, (_, right)| sum.union(*right))
}

/// Sees to it that the image begins with the ELF header, where loaders look for the entry.
fn place_header(file: &[u8], image: &mut Image) -> Result<(), LayoutError> {
    let header = file.get(..elf::HEADER_BYTES).ok_or(LayoutError::NotElf)?;
    let start = image.bytes.get_mut(..elf::HEADER_BYTES).ok_or(LayoutError::Empty)?;
    let limit = image.limits.first_mut().ok_or(LayoutError::Empty)?;
    if limit.is_empty() {
        start.copy_from_slice(header);
        *limit = Rights::R;
        return Ok(());
    }
    if start == header {
        Ok(())
    } else {
        Err(LayoutError::NoHeaderPage)
    }
}

fn check_entry(image: &Image) -> Result<(), LayoutError> {
    let page = usize::try_from(image.entry / PAGE).ok();
    let limit = page.and_then(|page| image.limits.get(page));
    match limit {
        Some(limit) if limit.contains(Rights::X) => Ok(()),
        _ => Err(LayoutError::BadEntry(image.entry)),
    }
}

/// Walks the dynamic section, as it lies in the image, for what the start code cannot do.
fn check_dynamic(segments: &[Segment], image: &Image) -> Result<(), LayoutError> {
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == elf::SEGMENT_DYNAMIC) else {
        return Ok(());
    };
    let start = usize::try_from(dynamic.address).map_err(|_| LayoutError::Truncated)?;
    let (mut table, mut table_bytes) = (0, 0);
    for index in 0..usize::try_from(dynamic.memory_bytes / 16).map_err(|_| LayoutError::Truncated)? {
        let at = index
            .checked_mul(16)
            .and_then(|offset| start.checked_add(offset))
            .ok_or(LayoutError::Truncated)?;
        let tag = elf::long(&image.bytes, at).ok_or(LayoutError::Truncated)?;
        let value = elf::long(&image.bytes, at + 8).ok_or(LayoutError::Truncated)?;
        match tag {
            0 => break,
            elf::TAG_NEEDED => return Err(LayoutError::Dynamic),
            elf::TAG_LINKAGE_BYTES | elf::TAG_SHORT_RELOCATION_BYTES if value > 0 => return Err(LayoutError::Dynamic),
            elf::TAG_RELOCATIONS => table = value,
            elf::TAG_RELOCATION_BYTES => table_bytes = value,
            _ => {}
        }
    }
    check_relocations(&image.bytes, table, table_bytes)
}

fn check_relocations(bytes: &[u8], table: u64, table_bytes: u64) -> Result<(), LayoutError> {
    if table_bytes == 0 {
        return Ok(());
    }
    let start = usize::try_from(table).map_err(|_| LayoutError::Truncated)?;
    let length = usize::try_from(table_bytes).map_err(|_| LayoutError::Truncated)?;
    let end = start.checked_add(length).ok_or(LayoutError::Truncated)?;
    let table = bytes.get(start..end).ok_or(LayoutError::Truncated)?;
    for relocation in table.chunks_exact(elf::RELOCATION_BYTES) {
        let place = elf::long(relocation, 0).ok_or(LayoutError::Truncated)?;
        let kind = elf::long(relocation, 8).ok_or(LayoutError::Truncated)? as u32;
        if kind != elf::RELOCATION_RELATIVE {
            return Err(LayoutError::Relocation(kind));
        }
        if place.checked_add(8).is_none_or(|end| end > bytes.len() as u64) {
            return Err(LayoutError::Truncated);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
