//! How a frame of a module's code is left: part 14 of a module object, and its reader.
//!
//! The part is what an ELF file has as `.eh_frame_hdr` and `.eh_frame` (LSB Core, 10.6; DWARF 5, 6.4): a table of
//! functions, sorted for a binary search, then entries with the rules. All places in it are distances, so it is shared
//! like text. Thunks lie before the data of every instance; their entries lie behind them, in the same pages, and the
//! part says where.
//!
//! The pointers of an entry that lead to private words (a personality routine, the types that a handler catches) are
//! **relative to the data** (`DW_EH_PE_datarel`): the base is what `rbx` holds in the frame.

use core::ops::Range;

/// How a table of functions begins: version 1; its pointer to the entries relative to itself, its count unsigned,
/// its records relative to the table; all of four bytes.
pub const TABLE_START: [u8; 4] = [1, POINTER_HERE, 0x03, 0x3b];
/// Bytes of a record of the table: function and entry, relative to the table.
pub const RECORD_BYTES: usize = 8;
/// Byte of the table where the records begin.
pub const RECORDS_AT: usize = 12;

/// Encoding of a pointer: four signed bytes, relative to the field.
pub const POINTER_HERE: u8 = 0x1b;
/// Encoding of a pointer: four signed bytes, relative to the field, to a word that holds the address.
pub const WORD_HERE: u8 = 0x9b;
/// Encoding of a pointer: four signed bytes, relative to the data, to a word that holds the address.
pub const WORD_IN_DATA: u8 = 0xbb;
/// Encoding: there is no pointer.
pub const OMITTED: u8 = 0xff;

/// What is wrong with an entry, and at which byte.
pub type Wrong = (usize, &'static str);

/// Reads numbers from bytes; every read may fail.
#[derive(Copy, Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The next byte.
    pub at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes[range]`, whose places are places in `bytes`.
    pub fn new(bytes: &'a [u8], range: Range<usize>) -> Self {
        let end = range.end.min(bytes.len());
        Self {
            bytes: &bytes[..end],
            at: range.start,
        }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|one| one[0])
    }

    /// An unsigned number of `N` bytes, at most eight.
    pub fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut eight = [0; 8];
        eight.get_mut(..N)?.copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(eight))
    }

    /// A signed number of four bytes.
    pub fn distance(&mut self) -> Option<i32> {
        let four = self.take(4)?.try_into().ok()?;
        Some(i32::from_le_bytes(four))
    }

    /// An unsigned number of as many bytes as it needs (LEB128).
    pub fn unsigned(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && bits > 1) {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    /// A signed number of as many bytes as it needs (LEB128).
    pub fn signed(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0_i64, 0);
        loop {
            let byte = self.byte()?;
            if shift > 63 {
                return None;
            }
            value |= i64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0 && shift < 64;
                return Some(if negative { value | -1 << shift } else { value });
            }
        }
    }

    /// Text up to a zero byte.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.at += length + 1;
        rest.get(..length)
    }
}

/// What several entries have in common (DWARF: a CIE).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Common {
    /// What places in code are counted in.
    pub code_unit: u64,
    /// What places on the stack are counted in.
    pub data_unit: i64,
    /// The column that stands for the caller's next instruction.
    pub return_column: u64,
    /// Whether its frames were interrupted rather than left by a call.
    pub interrupted: bool,
    /// Whether its entries have a length of what is not in the standard.
    pub extended: bool,
    /// Encoding and field of the personality routine.
    pub personality: Option<(u8, usize)>,
    /// Encoding of the pointers to tables of handlers.
    pub handlers: Option<u8>,
    /// Encoding of the pointers to functions.
    pub pointer: u8,
    /// Where its rules are.
    pub rules: Range<usize>,
}

/// An entry: the rules of a function (DWARF: an FDE).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The field with the pointer to the function.
    pub start_at: usize,
    /// The function's bytes.
    pub bytes: u32,
    /// The field with the pointer to its table of handlers.
    pub handlers_at: Option<usize>,
    /// Where its rules are.
    pub rules: Range<usize>,
}

/// What stands at a place among entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Nothing: the end.
    End,
    /// What entries have in common.
    Common(Common),
    /// An entry, and where what it has in common with others stands.
    Entry(usize, Range<usize>),
}

/// Reads what begins at byte `at`, and says where the next begins.
///
/// # Errors
/// If it leads outside, or is of a kind that no compiler emits for x86-64.
pub fn item(bytes: &[u8], at: usize) -> Result<(Item, usize), Wrong> {
    let short = |what| move || (at, what);
    let mut reader = Reader::new(bytes, at..bytes.len());
    let length = reader.number::<4>().ok_or_else(short("an entry cut short"))?;
    if length == 0 {
        return Ok((Item::End, reader.at));
    }
    if length >= 0xffff_fff0 {
        return Err((at, "an entry of the 64-bit form"));
    }
    let field = reader.at;
    let end = field + length as usize;
    if length < 4 || end > bytes.len() {
        return Err((at, "the length of an entry leads outside"));
    }
    let mut reader = Reader::new(bytes, field..end);
    let back = reader.number::<4>().ok_or_else(short("an entry cut short"))?;
    if back == 0 {
        return Ok((Item::Common(common(reader, end)?), end));
    }
    let common = field.checked_sub(back as usize);
    let common = common.ok_or((field, "an entry has its common part outside"))?;
    Ok((Item::Entry(common, reader.at..end), end))
}

fn common(mut reader: Reader<'_>, end: usize) -> Result<Common, Wrong> {
    let at = reader.at;
    let cut = || (at, "a common part cut short");
    let version = reader.byte().ok_or_else(cut)?;
    if !matches!(version, 1 | 3) {
        return Err((at, "a common part of another version than 1 or 3"));
    }
    let mut letters = reader.text().ok_or_else(cut)?;
    let code_unit = reader.unsigned().ok_or_else(cut)?;
    let data_unit = reader.signed().ok_or_else(cut)?;
    let return_column = if version == 1 {
        reader.byte().map(u64::from)
    } else {
        reader.unsigned()
    };
    let mut result = Common {
        code_unit,
        data_unit,
        return_column: return_column.ok_or_else(cut)?,
        interrupted: false,
        extended: letters.first() == Some(&b'z'),
        personality: None,
        handlers: None,
        pointer: 0,
        rules: 0..0,
    };
    if result.extended {
        letters = &letters[1..];
        let length = usize::try_from(reader.unsigned().ok_or_else(cut)?).map_err(|_| cut())?;
        let from = reader.at;
        let rules = from.checked_add(length).filter(|rules| *rules <= end).ok_or_else(cut)?;
        for letter in letters {
            match letter {
                b'R' => result.pointer = reader.byte().ok_or_else(cut)?,
                b'L' => result.handlers = Some(reader.byte().ok_or_else(cut)?).filter(|one| *one != OMITTED),
                b'S' => result.interrupted = true,
                b'P' => {
                    let encoding = reader.byte().ok_or_else(cut)?;
                    let bytes = match encoding & 0x0f {
                        _ if encoding == OMITTED => continue,
                        0x03 | 0x0b => 4,
                        0x00 | 0x04 | 0x0c => 8,
                        _ => return Err((reader.at - 1, "the encoding of a personality routine's place")),
                    };
                    result.personality = Some((encoding, reader.at));
                    reader.take(bytes).ok_or_else(cut)?;
                }
                _ => return Err((at, "a letter in a common part that nobody knows")),
            }
        }
        if reader.at > rules {
            return Err(cut());
        }
        reader.at = rules;
    } else if !letters.is_empty() {
        return Err((at, "a letter in a common part that nobody knows"));
    }
    result.rules = reader.at..end;
    Ok(result)
}

/// Reads an entry, whose pointers have four bytes; `range` is what [`item`] said.
///
/// # Errors
/// If it is cut short.
pub fn entry(bytes: &[u8], common: &Common, range: Range<usize>) -> Result<Entry, Wrong> {
    let (at, end) = (range.start, range.end);
    let cut = || (at, "an entry cut short");
    let mut reader = Reader::new(bytes, range);
    reader.take(4).ok_or_else(cut)?;
    let covered = reader.number::<4>().ok_or_else(cut)?;
    let mut handlers_at = None;
    if common.extended {
        let length = usize::try_from(reader.unsigned().ok_or_else(cut)?).map_err(|_| cut())?;
        let rules = reader
            .at
            .checked_add(length)
            .filter(|rules| *rules <= end)
            .ok_or_else(cut)?;
        if common.handlers.is_some() {
            handlers_at = Some(reader.at);
            reader.take(4).ok_or_else(cut)?;
        }
        if reader.at > rules {
            return Err(cut());
        }
        reader.at = rules;
    }
    Ok(Entry {
        start_at: at,
        bytes: covered as u32,
        handlers_at,
        rules: reader.at..end,
    })
}

/// Part 14 of a module object, checked.
#[derive(Copy, Clone, Debug, Default)]
pub struct Table<'a> {
    bytes: &'a [u8],
    count: usize,
    entries_at: usize,
    /// Byte of the thunks where their entries begin; zero if there are none.
    pub thunk_entries_at: u32,
}

fn field(bytes: &[u8], at: usize) -> Option<i32> {
    Reader::new(bytes, at..bytes.len()).distance()
}

impl<'a> Table<'a> {
    /// Checks what a search relies on; an empty part is an empty table. Cost: the records.
    ///
    /// # Errors
    /// What is wrong.
    pub fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let table = Self::open_header(bytes)?;
        let mut last = None;
        for index in 0..table.count {
            let (function, entry) = table.record(index).ok_or("the table of frames is cut short")?;
            if last.is_some_and(|last| last >= function) {
                return Err("the table of frames is not in order");
            }
            last = Some(function);
            let inside = usize::try_from(entry).is_ok_and(|at| at >= table.entries_at && at + 4 < bytes.len());
            if !inside {
                return Err("the table of frames leads outside");
            }
        }
        Ok(table)
    }

    /// Checks only how it begins and ends: for a part that was checked before.
    ///
    /// # Errors
    /// What is wrong.
    pub fn open_header(bytes: &'a [u8]) -> Result<Self, &'static str> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes.get(..4) != Some(&TABLE_START[..]) {
            return Err("the table of frames");
        }
        let cut = "the table of frames is cut short";
        let entries = field(bytes, 4).ok_or(cut)?;
        let entries_at = usize::try_from(i64::from(entries) + 4).ok().ok_or(cut)?;
        let count = field(bytes, 8).ok_or(cut)?.cast_unsigned() as usize;
        let behind = count
            .checked_mul(RECORD_BYTES)
            .and_then(|all| all.checked_add(RECORDS_AT));
        let behind = behind.ok_or(cut)?;
        let thunk_entries_at = field(bytes, behind).ok_or(cut)?.cast_unsigned();
        if entries_at < behind + 4 || entries_at.checked_add(4).is_none_or(|end| end > bytes.len()) {
            return Err("the table of frames leads outside");
        }
        // An unwinder reads entry after entry up to the end.
        if bytes.get(bytes.len() - 4..) != Some(&[0; 4][..]) {
            return Err("the frames have no end");
        }
        Ok(Self {
            bytes,
            count,
            entries_at,
            thunk_entries_at,
        })
    }

    /// How many functions have an entry.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Byte of the part where the entries begin.
    pub const fn entries_at(&self) -> usize {
        self.entries_at
    }

    fn record(&self, index: usize) -> Option<(i32, i32)> {
        let at = RECORDS_AT + index * RECORD_BYTES;
        Some((field(self.bytes, at)?, field(self.bytes, at + 4)?))
    }

    /// The function and the place of the entry that is responsible for a byte of code, all relative to the part.
    pub fn find(&self, place: i64) -> Option<(i64, usize)> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if i64::from(self.record(middle)?.0) <= place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (function, entry) = self.record(low.checked_sub(1)?)?;
        Some((function.into(), usize::try_from(entry).ok()?))
    }
}
