//! Files that commands write. One that is there is replaced only if the same command could have written it: anything else
//! may be what the command was given, or its source.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What a command writes.
#[derive(Copy, Clone, Debug)]
pub enum Kind {
    /// A module object.
    Module,
    /// A description, as `describe` prints it.
    Description,
    /// A header of inline calls.
    Header,
    /// A file of symbols: an executable ELF file for x86-64 without entry and program headers.
    Symbols,
}

impl Kind {
    /// What all such files begin with.
    fn beginning(self) -> &'static [u8] {
        match self {
            Self::Module => b"GONDMOD",
            Self::Description => b"[MODULE]\n",
            Self::Header => b"/* Inline calls ",
            Self::Symbols => {
                b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Module => "module object",
            Self::Description => "description that was printed",
            Self::Header => "header of inline calls",
            Self::Symbols => "file of symbols",
        }
    }
}

/// Writes a file.
///
/// # Errors
/// In words: there is something else of this name, or it cannot be written.
pub(crate) fn write(path: &Path, kind: Kind, bytes: &[u8]) -> Result<(), String> {
    let said = |error| format!("{}: {error}", path.display());
    if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        let mut first = Vec::new();
        let length = kind.beginning().len() as u64;
        let file = File::open(path).map_err(said)?;
        file.take(length).read_to_end(&mut first).map_err(said)?;
        if !first.is_empty() && first != kind.beginning() {
            return Err(format!(
                "{}: it is there and is no {}, so it stays: name another file, or remove it",
                path.display(),
                kind.name()
            ));
        }
    }
    std::fs::write(path, bytes).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn modules_and_headers_begin_as_they_are_written() {
        assert!(linker::module::format::MAGIC.starts_with(Kind::Module.beginning()));
        assert!(crate::header::PRELUDE.as_bytes().starts_with(Kind::Header.beginning()));
        let description = linker::module::Description::default().to_string();
        assert!(description.as_bytes().starts_with(Kind::Description.beginning()));
    }
}
