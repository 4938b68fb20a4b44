//! What can be wrong with the parts of a module, and where: every refusal names file, section, symbol and
//! place as far as it knows them, and says what to do next.

use alloc::string::String;
use core::fmt;

/// A refusal and its place. Empty strings are what does not apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The file, for a member of an archive `archive(member)`.
    pub file: String,
    /// The section of the file.
    pub section: String,
    /// Byte in the section, or line of a description.
    pub at: Option<u64>,
    /// The symbol that is meant.
    pub symbol: String,
    /// What is wrong.
    pub cause: Cause,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Neither a relocatable ELF file nor an archive of such; the text is the reader's.
    NotRelocatable(String),
    /// A table or field of the file contradicts itself; the text says which.
    Damaged(String),
    /// For another machine.
    WrongMachine,
    /// A relocation type that no compiler emits for module code; the number.
    Relocation(u32),
    /// An instruction at the relocation that cannot be made to use the data register.
    Instruction(u32),
    /// An absolute 32-bit address: code not compiled position-independent.
    NotPositionIndependent(u32),
    /// Thread-local storage.
    ThreadLocal(u32),
    /// The distance does not fit the field.
    OutOfReach(u32),
    /// A variable of another module is accessed directly.
    DirectAccess,
    /// The function needs its data segment and changes the data register.
    RegisterTaken,
    /// Private code that cannot be read as instructions to its end.
    Undecodable,
    /// A word for inline calls is used where it cannot be; the text says why, and what to do.
    InlineCall(&'static str),
    /// Nobody defines the symbol.
    Missing,
    /// Two files define it; the other one.
    Duplicate(String),
    /// The symbol's kind is not supported (indirect functions).
    SymbolKind,
    /// A distance between instance data and shared text, which is not constant.
    NotConstant(u32),
    /// Compiled in a way that a module cannot have; the text says which, and what to do.
    Compiled(&'static str),
    /// How many words of arguments the function takes from the stack is not known; the text says why.
    StackUnknown(Unknown),
    /// A parameter whose place cannot be told.
    StackParameter(String),
    /// The description says so many words, the debug information others.
    StackLie {
        /// Said.
        said: u32,
        /// Found.
        found: u32,
    },
    /// Exported as a variable what is a function, or the other way round; the text says what it is.
    KindLie(&'static str),
    /// Described as free of instance data, and is not; the text names what it needs.
    PureLie(String),
    /// A line of a description cannot be understood; the text says why.
    Syntax(String),
    /// Larger than a module may be.
    TooLarge,
    /// A section wants a larger alignment than a page.
    Alignment(u64),
    /// The module object contradicts itself; the text says where.
    BadModule(&'static str),
    /// The exporter's list of names is not what the importer was linked against.
    InterfaceChanged,
    /// The exporter has fewer exports than the importer was linked against.
    InterfaceShrunk {
        /// Linked against.
        wanted: u32,
        /// There are.
        found: u32,
    },
    /// Tables for unwinding that cannot be shared; the text says what of them.
    Unwinding(String),
    /// No room left in the window of modules.
    WindowFull,
}

/// Why debug information says nothing about a function.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Unknown {
    /// There is none of it.
    #[default]
    NotThere,
    /// It is compressed.
    Compressed,
    /// It is in another file.
    Elsewhere,
}

impl Fault {
    /// A fault in a file as a whole.
    pub fn file(file: &str, cause: Cause) -> Self {
        Self {
            file: file.into(),
            section: String::new(),
            at: None,
            symbol: String::new(),
            cause,
        }
    }

    /// The same, about a symbol.
    #[must_use]
    pub fn about(mut self, symbol: &str) -> Self {
        self.symbol = symbol.into();
        self
    }

    /// The same, at a place.
    #[must_use]
    pub fn at(mut self, section: &str, at: u64) -> Self {
        self.section = section.into();
        self.at = Some(at);
        self
    }
}

/// The name of an AMD64 relocation type (psABI, table 4.9); `None` for a number without one.
pub fn relocation_name(kind: u32) -> Option<&'static str> {
    const NAMES: [&str; 46] = [
        "NONE",
        "64",
        "PC32",
        "GOT32",
        "PLT32",
        "COPY",
        "GLOB_DAT",
        "JUMP_SLOT",
        "RELATIVE",
        "GOTPCREL",
        "32",
        "32S",
        "16",
        "PC16",
        "8",
        "PC8",
        "DTPMOD64",
        "DTPOFF64",
        "TPOFF64",
        "TLSGD",
        "TLSLD",
        "DTPOFF32",
        "GOTTPOFF",
        "TPOFF32",
        "PC64",
        "GOTOFF64",
        "GOTPC32",
        "GOT64",
        "GOTPCREL64",
        "GOTPC64",
        "GOTPLT64",
        "PLTOFF64",
        "SIZE32",
        "SIZE64",
        "GOTPC32_TLSDESC",
        "TLSDESC_CALL",
        "TLSDESC",
        "IRELATIVE",
        "RELATIVE64",
        "39",
        "40",
        "GOTPCRELX",
        "REX_GOTPCRELX",
        "CODE_4_GOTPCRELX",
        "CODE_4_GOTTPOFF",
        "CODE_4_GOTPC32_TLSDESC",
    ];
    NAMES.get(kind as usize).copied()
}

fn relocation(f: &mut fmt::Formatter<'_>, kind: u32) -> fmt::Result {
    match relocation_name(kind) {
        Some(name) => write!(f, "R_X86_64_{name}"),
        None => write!(f, "relocation type {kind}"),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRelocatable(why) => write!(
                f,
                "neither a relocatable ELF file nor an archive ({why}): compile with -c"
            ),
            Self::Damaged(what) => write!(f, "damaged: {what}"),
            Self::WrongMachine => f.write_str("not for x86-64"),
            Self::Relocation(kind) => {
                relocation(f, *kind)?;
                f.write_str(" is not possible in a module")
            }
            Self::Instruction(kind) => {
                f.write_str("the instruction at ")?;
                relocation(f, *kind)?;
                f.write_str(" cannot be made to use the data register")
            }
            Self::NotPositionIndependent(kind) => {
                relocation(f, *kind)?;
                f.write_str(" is an absolute 32-bit address: compile with -fpie")
            }
            Self::ThreadLocal(kind) => {
                relocation(f, *kind)?;
                f.write_str(": thread-local variables have no storage in a module; keep them behind a pointer")
            }
            Self::OutOfReach(kind) => {
                relocation(f, *kind)?;
                f.write_str(" does not reach its target: the module is too large")
            }
            Self::DirectAccess => f.write_str(
                "a variable of another module is accessed directly: compile with -mno-direct-extern-access",
            ),
            Self::RegisterTaken => f.write_str(
                "the function needs its module's data and uses rbx for something else: compile with -ffixed-rbx, and keep assembly that needs rbx in a function of its own",
            ),
            Self::Undecodable => f.write_str(
                "the function needs its module's data and cannot be read as instructions to its end: keep data out of text",
            ),
            Self::InlineCall(why) => write!(f, "no inline call is possible here: {why}"),
            Self::Missing => f.write_str("nobody defines it: add the object, or import the module that exports it"),
            Self::Duplicate(other) => write!(f, "defined here and in {other}: leave one of them out"),
            Self::SymbolKind => f.write_str("an indirect function (IFUNC) cannot be part of a module"),
            Self::NotConstant(kind) => {
                relocation(f, *kind)?;
                f.write_str(" between private data and shared text: the distance differs for each instance")
            }
            Self::Compiled(how) => f.write_str(how),
            Self::StackUnknown(why) => write!(
                f,
                "how many words of arguments it takes from the stack is unknown: {} or write 'stack=N' after it in the description",
                match why {
                    Unknown::NotThere => "compile with -g -fno-ipa-icf",
                    Unknown::Compressed => "the debug information is compressed; compile with -gz=none",
                    Unknown::Elsewhere => "the debug information is in another file (.dwo); compile with -gno-split-dwarf",
                }
            ),
            Self::StackParameter(what) => write!(f, "a parameter cannot be passed to another module: {what}"),
            Self::StackLie { said, found } => write!(
                f,
                "the description says stack={said}, the debug information {found}: correct the description"
            ),
            Self::KindLie(is) => write!(f, "the description gives it another kind; it is {is}"),
            Self::PureLie(needs) => write!(f, "described as pure, but it needs {needs} of its instance"),
            Self::Syntax(why) => f.write_str(why),
            Self::TooLarge => write!(
                f,
                "larger than {} MiB, the most that a module can have: make several modules of it",
                super::format::MODULE_BYTES_MAX >> 20
            ),
            Self::Alignment(wanted) => write!(f, "alignment {wanted} is more than a page"),
            Self::BadModule(what) => write!(f, "not a module object of this version, or damaged: {what}"),
            Self::InterfaceChanged => {
                f.write_str("its exports are not those it was described with: link the importing module again")
            }
            Self::InterfaceShrunk { wanted, found } => write!(
                f,
                "it exports {found} names, {wanted} were described: install the version it was linked for"
            ),
            Self::Unwinding(what) => write!(
                f,
                "{what} cannot be shared between instances: compile with -fpie, for the small code model"
            ),
            Self::WindowFull => f.write_str("the window of modules is full"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if !self.section.is_empty() {
            write!(f, ": {}", self.section)?;
        }
        if let Some(at) = self.at {
            if self.section.is_empty() {
                write!(f, ":{at}")?;
            } else {
                write!(f, "+{at:#x}")?;
            }
        }
        if !self.symbol.is_empty() {
            write!(f, ": {}", self.symbol)?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl core::error::Error for Fault {}
