//! Reading 64-bit little-endian ELF: the header, the program headers and the dynamic section.
//! Source: System V ABI, generic part (chapters 4 and 5) and AMD64 supplement. Everything is checked
//! before it is read; a field that lies outside the file is an error, never a panic.

/// Bytes of the file header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a program header.
pub const SEGMENT_BYTES: usize = 56;

/// File type: shared object, which is also what a position-independent executable is.
pub const TYPE_DYNAMIC: u16 = 3;
/// Machine: AMD64.
pub const MACHINE_X86_64: u16 = 62;

/// Segment: to be loaded.
pub const SEGMENT_LOAD: u32 = 1;
/// Segment: the dynamic section.
pub const SEGMENT_DYNAMIC: u32 = 2;
/// Segment: the name of an interpreter (a dynamic loader).
pub const SEGMENT_INTERPRETER: u32 = 3;
/// Segment: thread-local storage.
pub const SEGMENT_THREAD_LOCAL: u32 = 7;

/// Segment flag: execute.
pub const FLAG_EXECUTE: u32 = 1;
/// Segment flag: write.
pub const FLAG_WRITE: u32 = 2;
/// Segment flag: read.
pub const FLAG_READ: u32 = 4;

/// Dynamic tag: a shared library is needed.
pub const TAG_NEEDED: u64 = 1;
/// Dynamic tag: bytes of the relocations for procedure linkage.
pub const TAG_LINKAGE_BYTES: u64 = 2;
/// Dynamic tag: address of the relocations with addends.
pub const TAG_RELOCATIONS: u64 = 7;
/// Dynamic tag: their size in bytes.
pub const TAG_RELOCATION_BYTES: u64 = 8;
/// Dynamic tag: size of relocations without addends, which AMD64 does not use.
pub const TAG_SHORT_RELOCATION_BYTES: u64 = 18;
/// Bytes of a relocation with addend.
pub const RELOCATION_BYTES: usize = 24;
/// Relocation: add the base to the addend.
pub const RELOCATION_RELATIVE: u32 = 8;

/// What stands in the file header, as far as it matters here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// [`TYPE_DYNAMIC`] for what can be laid out.
    pub file_type: u16,
    /// [`MACHINE_X86_64`] for what can be laid out.
    pub machine: u16,
    /// Address of the first instruction, from the start of the image.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub segments_at: u64,
    /// Bytes of each of them.
    pub segment_bytes: u16,
    /// Their number.
    pub segment_count: u16,
}

/// A program header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// [`SEGMENT_LOAD`] and so on.
    pub kind: u32,
    /// [`FLAG_READ`] and so on.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Address in memory, from the start of the image.
    pub address: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes in memory; what the file does not fill is zero.
    pub memory_bytes: u64,
}

/// `N` bytes at `at`, if they lie in the file.
fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    take(bytes, at).map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(u32::from_le_bytes)
}

/// The 64-bit word at byte `at`.
pub fn long(bytes: &[u8], at: usize) -> Option<u64> {
    take(bytes, at).map(u64::from_le_bytes)
}

/// Whether the bytes begin like a 64-bit little-endian ELF file.
pub fn is_elf(bytes: &[u8]) -> bool {
    // Magic, class 2 (64 bits), data 1 (little-endian), version 1.
    bytes.get(..7) == Some(b"\x7fELF\x02\x01\x01")
}

/// Reads the file header; `None` if this is no such file or it is cut short.
pub fn header(bytes: &[u8]) -> Option<Header> {
    if !is_elf(bytes) || bytes.len() < HEADER_BYTES {
        return None;
    }
    Some(Header {
        file_type: half(bytes, 16)?,
        machine: half(bytes, 18)?,
        entry: long(bytes, 24)?,
        segments_at: long(bytes, 32)?,
        segment_bytes: half(bytes, 54)?,
        segment_count: half(bytes, 56)?,
    })
}

/// Reads program header number `index`; `None` if it lies outside the file.
pub fn segment(bytes: &[u8], header: &Header, index: u16) -> Option<Segment> {
    let first = usize::try_from(header.segments_at).ok()?;
    let at = first.checked_add(usize::from(index).checked_mul(SEGMENT_BYTES)?)?;
    Some(Segment {
        kind: word(bytes, at)?,
        flags: word(bytes, at.checked_add(4)?)?,
        offset: long(bytes, at.checked_add(8)?)?,
        address: long(bytes, at.checked_add(16)?)?,
        file_bytes: long(bytes, at.checked_add(32)?)?,
        memory_bytes: long(bytes, at.checked_add(40)?)?,
    })
}
