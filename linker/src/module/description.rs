//! The module description: a text that says what a module is called, what it imports, what it exports, and
//! of which objects it is made (the paper's MDO, Figure 2, with a name and a version).
//!
//! ```text
//! # comment, to the end of the line
//! [MODULE]
//! name libz
//! version 1.3.1
//! [IMPORTS]
//! libc.md
//! [EXPORTS]
//! deflate
//! gzprintf variadic
//! setjmp pure
//! copy_matrix stack=9
//! z_errmsg data
//! [OBJECTS]
//! deflate.o
//! ```
//!
//! Exports are numbered in their order, and keep their numbers: new ones are added at the end only. After a
//! name stand what a reader of machine code cannot see: `data` (a variable), `stack=N` (words of arguments on
//! the stack, where there is no debug information), `variadic` or `variadic=N` (a variable number: at most
//! N words on the stack behind those that have names), `pure` (the caller relies on it that no thunk is in the way, as with `setjmp`). A description with no
//! objects describes somebody else's module, which is all that is needed to link against it.

use super::fault::{Cause, Fault};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Words on the stack without names that a thunk of a variadic function copies unless told otherwise.
pub const VARIADIC_WORDS: u32 = 64;
/// The most that may be asked for.
pub const STACK_WORDS_MAX: u32 = 4096;
/// The most exports of a module.
pub const EXPORTS_MAX: usize = 65_536;

/// What a description says about an export's parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Stack {
    /// Nothing: the debug information decides.
    #[default]
    Unsaid,
    /// So many words.
    Words(u32),
    /// A variable number: at most so many behind those that have names.
    Variadic(u32),
}

/// A line of the list of exports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The symbol.
    pub name: String,
    /// A variable, not a function.
    pub data: bool,
    /// Must not need its instance.
    pub pure: bool,
    /// Arguments on the stack.
    pub stack: Stack,
}

/// A module description, read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// The module's name.
    pub name: String,
    /// Its version, up to three numbers with dots; kept as text.
    pub version: String,
    /// The descriptions of the imported modules, as written (names of files).
    pub imports: Vec<String>,
    /// The exports in the order of their numbers.
    pub exports: Vec<Export>,
    /// The objects and archives, as written (names of files).
    pub objects: Vec<String>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Part {
    None,
    Module,
    Imports,
    Exports,
    Objects,
}

impl Description {
    /// Reads a description; `file` is only for messages.
    ///
    /// # Errors
    /// The first line that cannot be understood, with its number.
    pub fn parse(file: &str, text: &str) -> Result<Self, Fault> {
        let mut result = Self::default();
        let mut part = Part::None;
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            result.line(&mut part, line).map_err(|why| Fault {
                at: Some(number as u64 + 1),
                ..Fault::file(file, Cause::Syntax(why))
            })?;
        }
        let whole = |why: &str| Err(Fault::file(file, Cause::Syntax(why.into())));
        if result.name.is_empty() {
            return whole("no name: write 'name NAME' under [MODULE]");
        }
        if result.version.is_empty() {
            return whole("no version: write 'version 1.0' under [MODULE]");
        }
        if let Err(why) = check_identity(&result.name, &result.version) {
            return whole(why);
        }
        let mut names: Vec<&str> = result.exports.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return whole(&format!("'{twice}' is exported twice: leave one out"));
        }
        Ok(result)
    }

    fn line(&mut self, part: &mut Part, line: &str) -> Result<(), String> {
        if line.starts_with('[') {
            *part = match line {
                "[MODULE]" => Part::Module,
                "[IMPORTS]" => Part::Imports,
                "[EXPORTS]" => Part::Exports,
                "[OBJECTS]" => Part::Objects,
                _ => {
                    return Err(format!(
                        "'{line}' is no part of a description: use [MODULE], [IMPORTS], [EXPORTS] or [OBJECTS]"
                    ));
                }
            };
            return Ok(());
        }
        match part {
            Part::None => Err("the first line must be a part: [MODULE], [IMPORTS], [EXPORTS] or [OBJECTS]".into()),
            Part::Module => self.identity(line),
            Part::Imports => one_word(line).map(|word| self.imports.push(word)),
            Part::Objects => one_word(line).map(|word| self.objects.push(word)),
            Part::Exports if self.exports.len() >= EXPORTS_MAX => {
                Err(format!("more than {EXPORTS_MAX} exports: divide the module"))
            }
            Part::Exports => export(line).map(|one| self.exports.push(one)),
        }
    }

    fn identity(&mut self, line: &str) -> Result<(), String> {
        let (key, value) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("'{line}' needs a value: write 'name NAME' or 'version NUMBER'"))?;
        let value = one_word(value.trim())?;
        if value.len() > 64 {
            return Err(format!("'{value}' is longer than 64 bytes"));
        }
        let slot = match key {
            "name" => &mut self.name,
            "version" => &mut self.version,
            _ => return Err(format!("'{key}' is unknown here: write 'name' or 'version'")),
        };
        if !slot.is_empty() {
            return Err(format!("a second {key}: leave one out"));
        }
        *slot = value;
        Ok(())
    }
}

/// Whether a module may be called so. `NAME-VERSION` names one version for all time, so no name may look like that of another
/// module's version.
///
/// # Errors
/// Which of them is none, and how it should be.
pub fn check_identity(name: &str, version: &str) -> Result<(), &'static str> {
    let is_version = |text: &str| {
        let numbers = text.split('.');
        let number = |one: &str| (1..=9).contains(&one.len()) && one.bytes().all(|byte| byte.is_ascii_digit());
        numbers.clone().count() <= 3 && numbers.clone().all(number)
    };
    let bad = |character: char| character == '/' || character.is_whitespace() || character.is_control();
    if name.is_empty() || name.starts_with('.') || name.contains(bad) {
        return Err("the name is none: write letters, digits, '-', '_'");
    }
    if name.rsplit_once('-').is_some_and(|(_, end)| is_version(end)) {
        return Err("the name ends like a version, so it could take the place of another module: leave the '-' away");
    }
    if !is_version(version) {
        return Err("the version is none: write up to three numbers with dots");
    }
    Ok(())
}

fn one_word(line: &str) -> Result<String, String> {
    if line.contains(char::is_whitespace) {
        Err(format!("'{line}' is more than one word: one name a line"))
    } else {
        Ok(line.to_string())
    }
}

fn export(line: &str) -> Result<Export, String> {
    let mut words = line.split_whitespace();
    let mut export = Export {
        name: words.next().unwrap_or_default().into(),
        data: false,
        pure: false,
        stack: Stack::Unsaid,
    };
    for word in words {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(words_of(word, value)?)),
            None => (word, None),
        };
        let stack = match (key, value) {
            ("data", None) => {
                export.data = true;
                continue;
            }
            ("pure", None) => {
                export.pure = true;
                continue;
            }
            ("stack", Some(count)) => Stack::Words(count),
            ("variadic", count) => Stack::Variadic(count.unwrap_or(VARIADIC_WORDS)),
            _ => {
                return Err(format!(
                    "'{word}' is unknown after an export: write data, pure, stack=N, variadic or variadic=N"
                ));
            }
        };
        if export.stack != Stack::Unsaid {
            return Err(format!("'{word}' says a second time how arguments are passed"));
        }
        export.stack = stack;
    }
    if export.data && (export.pure || export.stack != Stack::Unsaid) {
        return Err(format!("'{}' is data and cannot have parameters", export.name));
    }
    Ok(export)
}

fn words_of(word: &str, value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(count) if count <= STACK_WORDS_MAX => Ok(count),
        _ => Err(format!("'{word}' needs a number up to {STACK_WORDS_MAX}")),
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.data {
            f.write_str(" data")?;
        }
        if self.pure {
            f.write_str(" pure")?;
        }
        match self.stack {
            Stack::Unsaid => Ok(()),
            Stack::Words(count) => write!(f, " stack={count}"),
            Stack::Variadic(count) if count == VARIADIC_WORDS => f.write_str(" variadic"),
            Stack::Variadic(count) => write!(f, " variadic={count}"),
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[MODULE]\nname {}\nversion {}\n\n[IMPORTS]\n",
            self.name, self.version
        )?;
        for import in &self.imports {
            writeln!(f, "{import}")?;
        }
        f.write_str("\n[EXPORTS]\n")?;
        for export in &self.exports {
            writeln!(f, "{export}")?;
        }
        f.write_str("\n[OBJECTS]\n")?;
        for object in &self.objects {
            writeln!(f, "{object}")?;
        }
        Ok(())
    }
}
