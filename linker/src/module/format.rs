//! The module object: what `docs/spec/module-format.md` draws, read and checked.
//!
//! The bytes of the object are the bytes in memory: byte `n` of the object lies at `address + n`, so tables,
//! text and constants are used in place, wherever one is. [`Module::open`] checks every table once; what is
//! read afterwards cannot lie outside.

use super::fault::{Cause, Fault};
use super::unwind;
use abi::address::PAGE;
use alloc::vec::Vec;

/// The longest module object, in bytes. A bound, so that a forged header cannot ask for all memory.
pub const MODULE_BYTES_MAX: u64 = 256 << 20;
/// First bytes of a module object; the last is the version of the format.
pub const MAGIC: [u8; 8] = *b"GONDMOD\x04";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 256;
/// Byte of the header where the parts begin, each {offset u32, bytes u32}.
pub const PARTS_AT: usize = 48;

/// The parts of a module object, in the order of the header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Part {
    /// Instructions: read and execute, shared.
    Text = 0,
    /// Constants: read, shared.
    ReadOnly = 1,
    /// Thunks: the same bytes before the data of every instance, read and execute, shared frames.
    Thunks = 2,
    /// What the data of an instance begins as; the rest of it is zero.
    Template = 3,
    /// Names, UTF-8, not ended.
    Names = 4,
    /// A value word for each export.
    Values = 5,
    /// A record of 16 bytes for each export.
    Exports = 6,
    /// A record of 40 bytes for each imported module.
    Imports = 7,
    /// Bytes of the data (u32) where a word grows by the data's address.
    Fixups = 8,
    /// Records of 24 bytes: words of the data that hold something imported.
    ImportFixups = 9,
    /// Records of 24 bytes: names of functions for people.
    Symbols = 10,
    /// Bytes of the object (u32) where a word holds an address of the module itself.
    Addresses = 11,
    /// Records of 12 bytes: which exports of imports are used, and their names for messages.
    Wanted = 12,
    /// For each export the byte of the object (u32) where the function itself begins; zero for a variable.
    Entries = 13,
    /// How functions are left: [`unwind::Table`].
    Unwinding = 14,
}

/// How many parts there are.
pub const PARTS: usize = 15;
/// Bytes of a record of the exports: name {u32, u32}, hash u64.
pub const EXPORT_BYTES: usize = 16;
/// Bytes of a record of the imports.
pub const IMPORT_BYTES: usize = 40;
/// Bytes of a record of the imported words.
pub const IMPORT_FIXUP_BYTES: usize = 24;
/// Bytes of a record of the symbols.
pub const SYMBOL_BYTES: usize = 24;
/// Bytes of a record of the wanted names: import u32, export u32, name u32.
pub const WANTED_BYTES: usize = 12;
/// The bit of an imported word's record that asks for the function itself, not for the export's value.
pub const ENTRY: u32 = 1;
/// Byte of the header with the module's address.
const ADDRESS_AT: usize = 8;

/// Bytes at the start of the data that every instance has.
pub const DATA_HEADER_BYTES: u32 = 64;
/// Byte of the data: its own address.
pub const DATA_SELF_AT: u32 = 0;
/// Byte of the data: the address of its module.
pub const DATA_MODULE_AT: u32 = 8;
/// Byte of the data: the address of the task's table of instantiated modules.
pub const DATA_TABLE_AT: u32 = 16;
/// Byte of the data: the routine that binds an import at its first call.
pub const DATA_BINDER_AT: u32 = 24;

/// Byte of the data: the routine that says how many words from an address on can be read, for thunks of variadic functions.
pub const DATA_REACH_AT: u32 = 32;

/// Byte of the data: the routine that ends all instances of a table, for the C library's `exit`.
pub const DATA_END_AT: u32 = 40;

/// A value word with this bit is a displacement (i32, in the low half) from the data of the instance;
/// without it, an address.
pub const PRIVATE: u64 = 1 << 62;
/// What an export is, in the two bits below: a variable.
pub const VARIABLE: u64 = 1 << 61;

/// The value word of something at a displacement from the data.
pub const fn private(displacement: i32) -> u64 {
    PRIVATE | displacement.cast_unsigned() as u64
}

/// What a value word is for an instance whose data lies at `data`.
pub const fn resolve(value: u64, data: u64) -> u64 {
    if value & PRIVATE == 0 {
        value & !VARIABLE
    } else {
        data.wrapping_add_signed((value as u32).cast_signed() as i64)
    }
}

/// The hash of a list of exports, from that of the list without its last: FNV-1a over the kind, the name and
/// an end mark. It finds mistakes; it is not meant to withstand somebody who forges.
pub fn extend_hash(hash: u64, name: &str, variable: bool) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = fold(hash, u8::from(variable));
    fold(name.bytes().fold(hash, fold), 0xff)
}

/// The hash of the empty list.
pub const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A module object, checked.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    bytes: &'a [u8],
    parts: [(u32, u32); PARTS],
    /// The address the object has for ever.
    pub address: u64,
    /// Bytes of an instance's data, its zero-filled end included.
    pub data_bytes: u32,
    /// Byte of the data where the functions to call at instantiation stand.
    pub init_at: u32,
    /// How many.
    pub init_count: u32,
    /// How many functions to call at the end stand behind them.
    pub fini_count: u32,
}

/// An imported module, as the importer sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Import<'a> {
    /// Its record and the names, read when somebody asks: binding goes by the rest.
    record: &'a [u8],
    names: &'a [u8],
    /// Byte of the data where its descriptor is: the exporter's data address, then a word for each export.
    pub descriptor: u32,
    /// Exports it was described with.
    pub count: u32,
    /// The hash of their list.
    pub hash: u64,
    /// Whether all uses are calls, so that binding can wait for the first.
    pub lazy: bool,
}

impl<'a> Import<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        text(named(self.names, self.record, 0))
    }

    /// The version it was described with.
    pub fn version(&self) -> &'a str {
        text(named(self.names, self.record, 4))
    }
}

/// A word of the data that holds the value of an import.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ImportFixup {
    /// Byte of the data.
    pub at: u32,
    /// Which import.
    pub import: u32,
    /// Which of its exports.
    pub export: u32,
    /// What is added.
    pub addend: i64,
    /// It holds the address of the function itself, for inline calls, whether there is a thunk before it or not.
    pub entry: bool,
}

/// An export.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Export<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value word; see [`resolve`].
    pub value: u64,
    /// Hash of the list up to and with it.
    pub hash: u64,
}

/// A function, for people.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at.saturating_add(4));
    four.and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The first bytes: whether they are a module's, and of which version of the format.
fn check_magic(bytes: &[u8]) -> Result<(), &'static str> {
    let (name, version) = MAGIC.split_at(MAGIC.len() - 1);
    match bytes.strip_prefix(name).and_then(<[u8]>::first) {
        None => Err("its first bytes are no module's; './gond module build' makes one"),
        Some(found) if *found < version[0] => {
            Err("it has an earlier version of the format: build it again with 'gond module build'")
        }
        Some(found) if *found > version[0] => {
            Err("it has a later version of the format: build it again with the tools of this system")
        }
        Some(_) => Ok(()),
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    crate::elf::long(bytes, at).unwrap_or(0)
}

impl<'a> Module<'a> {
    /// Checks a module object; `file` is only for messages.
    ///
    /// # Errors
    /// [`Cause::BadModule`] with the first contradiction.
    pub fn open(file: &str, bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::check(bytes).map_err(|what| Fault::file(file, Cause::BadModule(what)))
    }

    /// Reads and checks only the header: for an object that was found whole when it was installed, and that nobody
    /// could write since. Cost: some hundred instructions, whatever the size.
    ///
    /// # Errors
    /// [`Cause::BadModule`] with the first contradiction of the header.
    pub fn open_header(file: &str, bytes: &'a [u8]) -> Result<Self, Fault> {
        let read = Self::header(bytes).and_then(|module| module.check_memory().map(|()| module));
        read.map_err(|what| Fault::file(file, Cause::BadModule(what)))
    }

    /// Looks at the first bytes only: before a file is copied that may be too long for that.
    ///
    /// # Errors
    /// [`Cause::BadModule`] if a module does not begin so; [`Cause::TooLarge`] if none has so many bytes as the file.
    pub fn begins(file: &str, first: &[u8], length: u64) -> Result<(), Fault> {
        check_magic(first).map_err(|what| Fault::file(file, Cause::BadModule(what)))?;
        if length > MODULE_BYTES_MAX {
            return Err(Fault::file(file, Cause::TooLarge));
        }
        Ok(())
    }

    /// The same for bytes that [`Module::open`] found to be whole: reads the header only. Other bytes give a
    /// module of nothing, or of nonsense, never a panic.
    pub fn reopen(bytes: &'a [u8]) -> Self {
        Self::header(bytes).unwrap_or(Self {
            bytes: &[],
            parts: [(0, 0); PARTS],
            address: 0,
            data_bytes: 0,
            init_at: 0,
            init_count: 0,
            fini_count: 0,
        })
    }

    fn check(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let module = Self::header(bytes)?;
        module.check_memory()?;
        module.check_tables()?;
        Ok(module)
    }

    fn header(bytes: &'a [u8]) -> Result<Self, &'static str> {
        check_magic(bytes)?;
        // Of constant length, so that nothing more is compared for each word of it.
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err("length");
        };
        if bytes.len() as u64 > MODULE_BYTES_MAX {
            return Err("length");
        }
        let mut parts = [(0, 0); PARTS];
        let records = head[PARTS_AT..].as_chunks::<8>().0;
        for (part, record) in parts.iter_mut().zip(records) {
            let both = u64::from_le_bytes(*record);
            *part = (both as u32, (both >> 32) as u32);
            let end = part.0.checked_add(part.1).ok_or("a part beyond the end")?;
            if end as usize > bytes.len() || (part.1 > 0 && (part.0 as usize) < HEADER_BYTES) {
                return Err("a part beyond the end");
            }
        }
        Ok(Self {
            bytes,
            parts,
            address: long(head, ADDRESS_AT),
            data_bytes: word(head, 24),
            init_at: word(head, 28),
            init_count: word(head, 32),
            fini_count: word(head, 44),
        })
    }

    fn check_memory(&self) -> Result<(), &'static str> {
        let length = self.bytes.len() as u64;
        let ends = self.address.checked_add(length);
        if ends.is_none_or(|end| end > abi::address::USER_END) || self.address < abi::address::USER_START {
            return Err("address");
        }
        let whole = |value: u32| (value as u64).is_multiple_of(PAGE);
        for part in [Part::Text, Part::ReadOnly, Part::Thunks, Part::Template] {
            if !whole(self.parts[part as usize].0) {
                return Err("a part does not begin with a page");
            }
        }
        // Each kind of memory has its pages to itself, or a page would be both written and executed.
        let first = |part: Part| self.parts[part as usize].0 as u64;
        let last = |part: Part| first(part) + self.parts[part as usize].1 as u64;
        let order = [Part::Text, Part::ReadOnly, Part::Thunks, Part::Template];
        for pair in order.windows(2) {
            if last(pair[0]).next_multiple_of(PAGE) > first(pair[1]) {
                return Err("parts share a page");
            }
        }
        for table in Part::Names as usize..PARTS {
            let (at, bytes) = self.parts[table];
            if bytes > 0 && u64::from(at) + u64::from(bytes) > first(Part::Text) {
                return Err("a table outside of the first pages");
            }
        }
        if !whole(self.address as u32) || !whole(self.thunk_bytes()) {
            return Err("address or thunks are not whole pages");
        }
        if u64::from(self.data_bytes) > MODULE_BYTES_MAX
            || self.data_bytes < DATA_HEADER_BYTES
            || (self.template().len() as u64) > u64::from(self.data_bytes)
        {
            return Err("data");
        }
        Ok(())
    }

    fn check_tables(&self) -> Result<(), &'static str> {
        let inside = |at: u32, bytes: u64| u64::from(at) + bytes <= u64::from(self.data_bytes);
        let long = |part: Part, each: usize| self.part(part).len().is_multiple_of(each);
        if !(long(Part::Values, 8)
            && long(Part::Exports, EXPORT_BYTES)
            && long(Part::Imports, IMPORT_BYTES)
            && long(Part::Fixups, 4)
            && long(Part::ImportFixups, IMPORT_FIXUP_BYTES)
            && long(Part::Symbols, SYMBOL_BYTES)
            && long(Part::Addresses, 4)
            && long(Part::Entries, 4)
            && long(Part::Wanted, WANTED_BYTES))
        {
            return Err("a table ends inside a record");
        }
        if self.part(Part::Values).len() / 8 != self.part(Part::Exports).len() / EXPORT_BYTES {
            return Err("exports without values");
        }
        if self.part(Part::Entries).len() / 4 != self.export_count() as usize {
            return Err("exports without entries");
        }
        if core::str::from_utf8(self.part(Part::Names)).is_err()
            || !self.name_ok(self.bytes, 36)
            || !self.name_ok(self.bytes, 40)
        {
            return Err("names");
        }
        super::description::check_identity(self.name(), self.version())?;
        if !inside(
            self.init_at,
            (u64::from(self.init_count) + u64::from(self.fini_count)) * 8,
        ) {
            return Err("functions to call at instantiation or at the end");
        }
        let mut hash = HASH_START;
        for index in 0..self.export_count() {
            let record = self.record(Part::Exports, EXPORT_BYTES, index);
            if !self.name_ok(record, 0) {
                return Err("the name of an export");
            }
            let value = self.value(index);
            hash = extend_hash(hash, self.name_at(record, 0), value & VARIABLE != 0);
            if hash != long_at(record, 8) {
                return Err("the hash of an export");
            }
            if !self.value_ok(value) {
                return Err("the value of an export");
            }
            if !self.entry_ok(index) {
                return Err("the entry of an export");
            }
        }
        self.check_imports()?;
        for index in 0..(self.part(Part::Symbols).len() / SYMBOL_BYTES) as u32 {
            if !self.name_ok(self.record(Part::Symbols, SYMBOL_BYTES, index), 0) {
                return Err("the name of a symbol");
            }
        }
        let memory = u64::from(self.part_at(Part::Text))..self.bytes.len() as u64 - 7;
        if self.addresses().any(|at| !memory.contains(&u64::from(at))) {
            return Err("the place of an address");
        }
        for record in self.part(Part::Wanted).chunks_exact(WANTED_BYTES) {
            let (import, export) = (word(record, 0), word(record, 4));
            let known = import < self.import_count() && export < self.import(import).count;
            if !known || !self.name_ok(record, 8) {
                return Err("the name of what is imported");
            }
        }
        let frames = unwind::Table::open(self.part(Part::Unwinding))?;
        let behind = frames.thunk_entries_at;
        if behind > self.thunk_bytes() || behind > 0 && self.part(Part::Thunks).get(behind as usize..).is_none() {
            return Err("the frames of thunks");
        }
        Ok(())
    }

    fn check_imports(&self) -> Result<(), &'static str> {
        let inside = |at: u32, bytes: u64| u64::from(at) + bytes <= u64::from(self.data_bytes);
        for index in 0..self.import_count() {
            let record = self.record(Part::Imports, IMPORT_BYTES, index);
            if !self.name_ok(record, 0) || !self.name_ok(record, 4) {
                return Err("the name of an import");
            }
            let import = self.import(index);
            let bytes = (u64::from(import.count) + 1) * 8;
            if !inside(import.descriptor, bytes)
                || !import.descriptor.is_multiple_of(8)
                || import.descriptor < DATA_HEADER_BYTES
            {
                return Err("the descriptor of an import");
            }
        }
        if self.fixups().any(|at| !inside(at, 8) || at < DATA_HEADER_BYTES) {
            return Err("a fix-up");
        }
        for fixup in self.import_fixups() {
            let known = (fixup.import < self.import_count()).then(|| self.import(fixup.import));
            if known.is_none_or(|import| fixup.export >= import.count)
                || !inside(fixup.at, 8)
                || fixup.at < DATA_HEADER_BYTES
            {
                return Err("an imported word");
            }
            if fixup.entry && (fixup.addend != 0 || known.is_some_and(|import| import.lazy)) {
                return Err("an imported word for inline calls");
            }
        }
        Ok(())
    }

    /// Whether a value lies in the module or in the data of its instances.
    fn value_ok(&self, value: u64) -> bool {
        if value & PRIVATE == 0 {
            let address = value & !VARIABLE;
            let end = self.address + self.bytes.len() as u64;
            return (self.address..end).contains(&address);
        }
        let displacement = i64::from((value as u32).cast_signed());
        (-i64::from(self.thunk_bytes())..=i64::from(self.data_bytes)).contains(&displacement)
    }

    /// Whether an export's entry is in the text, and the function that its value leads to if that is no thunk.
    fn entry_ok(&self, index: u32) -> bool {
        let value = self.value(index);
        match self.entry(index) {
            None => value & VARIABLE != 0,
            Some(address) => {
                let start = self.address + u64::from(self.part_at(Part::Text));
                let text = start..start + self.part(Part::Text).len() as u64;
                text.contains(&address) && (value & PRIVATE != 0 || value == address)
            }
        }
    }

    fn name_ok(&self, record: &[u8], at: usize) -> bool {
        let (start, bytes) = name_reference(record, at);
        let name = self.part(Part::Names).get(start..start + bytes);
        // Of the name alone: all of the names would be read once for each.
        name.is_some_and(|name| core::str::from_utf8(name).is_ok())
    }

    fn name_at(&self, record: &[u8], at: usize) -> &'a str {
        text(named(self.part(Part::Names), record, at))
    }

    fn record(&self, part: Part, each: usize, index: u32) -> &'a [u8] {
        let at = index as usize * each;
        self.part(part).get(at..at + each).unwrap_or_default()
    }

    /// The bytes of a part.
    pub fn part(&self, part: Part) -> &'a [u8] {
        let (at, bytes) = self.parts[part as usize];
        let at = at as usize;
        self.bytes.get(at..at + bytes as usize).unwrap_or_default()
    }

    /// Where a part begins, in bytes from the start of the object.
    pub fn part_at(&self, part: Part) -> u32 {
        self.parts[part as usize].0
    }

    /// The whole object.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The module's name.
    pub fn name(&self) -> &'a str {
        self.name_at(self.bytes, 36)
    }

    /// Whether this is the module's name. Cost: that of comparing bytes, which `name` has to understand.
    pub fn is_named(&self, name: &str) -> bool {
        named(self.part(Part::Names), self.bytes, 36) == name.as_bytes()
    }

    /// The module's version.
    pub fn version(&self) -> &'a str {
        self.name_at(self.bytes, 40)
    }

    /// What an instance's data begins as.
    pub fn template(&self) -> &'a [u8] {
        self.part(Part::Template)
    }

    /// Bytes of thunks before the data of an instance; whole pages.
    pub fn thunk_bytes(&self) -> u32 {
        self.parts[Part::Thunks as usize].1
    }

    /// Whether nothing of it is an instance's own: no variables, no imports, nothing to call at the beginning or the end. All instances
    /// are the same then, and need no memory.
    pub fn keeps_nothing(&self) -> bool {
        self.data_bytes == DATA_HEADER_BYTES
            && self.thunk_bytes() == 0
            && self.init_count == 0
            && self.fini_count == 0
            && self.part(Part::Imports).is_empty()
    }

    /// How many exports are called through a thunk.
    pub fn thunks_used(&self) -> usize {
        let private = |value: &u64| value & (PRIVATE | VARIABLE) == PRIVATE;
        (0..self.export_count())
            .map(|index| self.value(index))
            .filter(private)
            .count()
    }

    /// How many exports there are.
    pub fn export_count(&self) -> u32 {
        (self.part(Part::Values).len() / 8) as u32
    }

    /// The value word of an export; zero if there is none of that number.
    pub fn value(&self, index: u32) -> u64 {
        long(self.part(Part::Values), index as usize * 8)
    }

    /// The address of an exported function itself, behind its thunk if it has one; `None` for a variable, and if there
    /// is no export of that number. It is to be called with the address of the instance's data in `rbx`.
    pub fn entry(&self, index: u32) -> Option<u64> {
        let at = word(self.part(Part::Entries), index as usize * 4);
        (at != 0).then(|| self.address.wrapping_add(at.into()))
    }

    /// An export; an empty one if there is none of that number.
    pub fn export(&self, index: u32) -> Export<'a> {
        let record = self.record(Part::Exports, EXPORT_BYTES, index);
        Export {
            name: self.name_at(record, 0),
            value: self.value(index),
            hash: long_at(record, 8),
        }
    }

    /// All exports, in order.
    pub fn exports(&self) -> impl Iterator<Item = Export<'a>> + '_ {
        (0..self.export_count()).map(|index| self.export(index))
    }

    /// The hash of the first `count` exports; `None` if there are fewer.
    pub fn hash(&self, count: u32) -> Option<u64> {
        match count.checked_sub(1) {
            None => Some(HASH_START),
            Some(last) => {
                let record = self.record(Part::Exports, EXPORT_BYTES, last);
                (last < self.export_count()).then(|| long(record, 8))
            }
        }
    }

    /// How many modules are imported.
    pub fn import_count(&self) -> u32 {
        (self.part(Part::Imports).len() / IMPORT_BYTES) as u32
    }

    /// An import; an empty one if there is none of that number.
    pub fn import(&self, index: u32) -> Import<'a> {
        let record = self.record(Part::Imports, IMPORT_BYTES, index);
        Import {
            record,
            names: self.part(Part::Names),
            descriptor: word(record, 8),
            count: word(record, 12),
            hash: long(record, 16),
            lazy: word(record, 24) & 1 != 0,
        }
    }

    /// All imports, in order.
    pub fn imports(&self) -> impl Iterator<Item = Import<'a>> + '_ {
        (0..self.import_count()).map(|index| self.import(index))
    }

    /// Bytes of the data where a word grows by the data's address.
    pub fn fixups(&self) -> impl Iterator<Item = u32> + 'a {
        self.part(Part::Fixups).chunks_exact(4).map(|four| word(four, 0))
    }

    /// Words of the data that hold something imported.
    pub fn import_fixups(&self) -> impl Iterator<Item = ImportFixup> + 'a {
        let records = self.part(Part::ImportFixups).chunks_exact(IMPORT_FIXUP_BYTES);
        records.map(|record| ImportFixup {
            at: word(record, 0),
            import: word(record, 4),
            export: word(record, 8),
            addend: long(record, 16).cast_signed(),
            entry: word(record, 12) & ENTRY != 0,
        })
    }

    /// Bytes of the object where a word holds an address of the module itself.
    pub fn addresses(&self) -> impl Iterator<Item = u32> + 'a {
        self.part(Part::Addresses).chunks_exact(4).map(|four| word(four, 0))
    }

    /// What import number `import` calls export number `export` of the exporter, or its first use if `export` is
    /// none; empty if nothing of it is used.
    pub fn wanted(&self, import: u32, export: Option<u32>) -> &'a str {
        let mut records = self.part(Part::Wanted).chunks_exact(WANTED_BYTES);
        let found =
            records.find(|record| word(record, 0) == import && export.is_none_or(|export| word(record, 4) == export));
        found.map_or("", |record| self.name_at(record, 8))
    }

    /// How functions of the text are left; empty if the part is damaged.
    pub fn frames(&self) -> unwind::Table<'a> {
        unwind::Table::open_header(self.part(Part::Unwinding)).unwrap_or_default()
    }

    /// How many exports of others are used, of all imports together.
    pub fn wanted_count(&self) -> usize {
        self.part(Part::Wanted).len() / WANTED_BYTES
    }

    /// The numbers of the exports that are used of import number `import`.
    pub fn wanted_of(&self, import: u32) -> impl Iterator<Item = u32> + 'a {
        let records = self.part(Part::Wanted).chunks_exact(WANTED_BYTES);
        let of_import = records.filter(move |record| word(record, 0) == import);
        of_import.map(|record| word(record, 4))
    }

    /// The value word of the export of this name. Cost: a comparison of bytes for each export before it.
    pub fn value_of(&self, name: &str) -> Option<u64> {
        let (names, name) = (self.part(Part::Names), name.as_bytes());
        let mut records = self.part(Part::Exports).chunks_exact(EXPORT_BYTES);
        let index = records.position(|record| named(names, record, 0) == name)?;
        Some(self.value(index as u32))
    }

    /// The functions of the text, by address.
    pub fn symbols(&self) -> Vec<Symbol<'a>> {
        let records = self.part(Part::Symbols).chunks_exact(SYMBOL_BYTES);
        records
            .map(|record| Symbol {
                name: self.name_at(record, 0),
                address: long(record, 8),
                bytes: word(record, 16),
            })
            .collect()
    }
}

/// Moves a module object, checked by [`Module::open`], to another address: every word that holds an address of the
/// module itself, its tables and its header change by the distance. Text is position-independent, so there are few.
/// Done once, where the object gets the address that it keeps. Cost: the addresses, exports and symbols.
///
/// # Errors
/// [`Cause::BadModule`] as [`Module::open`], and if the module cannot lie there.
pub fn move_to(file: &str, bytes: &mut [u8], address: u64) -> Result<(), Fault> {
    let module = Module::open(file, bytes)?;
    let distance = address.wrapping_sub(module.address);
    let mut places: Vec<usize> = module.addresses().map(|at| at as usize).collect();
    let values = module.part_at(Part::Values) as usize;
    let shared = (0..module.export_count()).filter(|index| module.value(*index) & PRIVATE == 0);
    places.extend(shared.map(|index| values + index as usize * 8));
    let symbols = module.parts[Part::Symbols as usize];
    let all = (0..symbols.1 as usize).step_by(SYMBOL_BYTES);
    places.extend(all.map(|at| symbols.0 as usize + at + 8));
    places.push(ADDRESS_AT);
    for at in places {
        // The mark of a variable stands above every address, so it stays.
        let moved = long(bytes, at).wrapping_add(distance);
        if let Some(word) = bytes.get_mut(at..at.saturating_add(8)) {
            word.copy_from_slice(&moved.to_le_bytes());
        }
    }
    Module::open(file, bytes).map(|_| ())
}

fn long_at(record: &[u8], at: usize) -> u64 {
    long(record, at)
}

/// The bytes of the name that stands at byte `at` of a record.
fn named<'a>(names: &'a [u8], record: &[u8], at: usize) -> &'a [u8] {
    let (start, bytes) = name_reference(record, at);
    names.get(start..start + bytes).unwrap_or_default()
}

/// A name as text; nothing, if it is none.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

/// A name: 24 bits where it begins, 8 bits how long it is. Longer names are cut.
fn name_reference(record: &[u8], at: usize) -> (usize, usize) {
    let word = word(record, at);
    ((word & 0x00ff_ffff) as usize, (word >> 24) as usize)
}
