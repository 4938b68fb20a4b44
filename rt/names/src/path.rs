//! Names and paths. A name is one component: UTF-8, 1 to [`NAME_BYTES`] bytes, no `/`, no control
//! characters nor any that turn the direction of text, neither `.` nor `..`. A path is names separated by `/`; one that begins with `/` starts
//! at the root directory, any other wherever the caller says. Following a path takes a capability at
//! each step, so that part belongs to whoever holds them.

use core::fmt::Write as _;

/// The longest name, in bytes.
pub const NAME_BYTES: usize = 95;

/// Why a text is not a name or a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PathError {
    /// There is no name at all.
    Empty,
    /// A name is longer than [`NAME_BYTES`].
    TooLong,
    /// A name holds a `/`, a control character, or one that turns the direction of text.
    BadCharacter,
    /// `.` and `..` are not names: there is no way up without a capability.
    Dots,
}

impl core::fmt::Display for PathError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("the name is empty"),
            Self::TooLong => write!(f, "the name is longer than {NAME_BYTES} bytes"),
            Self::BadCharacter => {
                f.write_str("the name holds a '/' or a character that controls the terminal or the direction of text")
            }
            Self::Dots => f.write_str("'.' and '..' are not names"),
        }
    }
}

impl core::error::Error for PathError {}

/// Whether `name` may stand in a directory.
///
/// # Errors
/// The fault of a path.
pub fn check_name(name: &str) -> Result<(), PathError> {
    if name.is_empty() {
        return Err(PathError::Empty);
    }
    if name.len() > NAME_BYTES {
        return Err(PathError::TooLong);
    }
    if name == "." || name == ".." {
        return Err(PathError::Dots);
    }
    if name.chars().any(|c| c == '/' || controls(c)) {
        return Err(PathError::BadCharacter);
    }
    Ok(())
}

/// Whether a character is nothing to read, but changes how a terminal shows others: control characters, and marks, embeddings and isolates that turn the direction of text.
pub fn controls(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// A name or a path as a word of the shell's line: with a backslash before each character that would not stand for itself.
#[derive(Copy, Clone, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl core::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (at, character) in self.0.char_indices() {
            let special = character.is_whitespace() || "\\'\"><|&;".contains(character);
            if special || (at == 0 && character == '#') {
                f.write_char('\\')?;
            }
            f.write_char(character)?;
        }
        Ok(())
    }
}

/// A checked path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Path<'a> {
    text: &'a str,
    absolute: bool,
}

impl<'a> Path<'a> {
    /// Checks `text`. Repeated and trailing `/` count as one and none; `/` alone is the root itself.
    ///
    /// # Errors
    /// The fault of the text or one of its names.
    pub fn parse(text: &'a str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        let path = Self {
            text,
            absolute: text.starts_with('/'),
        };
        for name in path.names() {
            check_name(name)?;
        }
        Ok(path)
    }

    /// Whether the path starts at the root directory.
    pub fn is_absolute(self) -> bool {
        self.absolute
    }

    /// Its names, first to last.
    pub fn names(self) -> impl Iterator<Item = &'a str> + Clone {
        self.text.split('/').filter(|name| !name.is_empty())
    }

    /// The way to the last name's directory, and the last name; `None` for the root itself.
    pub fn split_last(self) -> Option<(impl Iterator<Item = &'a str> + Clone, &'a str)> {
        let last = self.names().last()?;
        let before = self.names().count() - 1;
        Some((self.names().take(before), last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(check_name("hello"), Ok(()));
        assert_eq!(check_name("größe"), Ok(()));
        assert_eq!(check_name(""), Err(PathError::Empty));
        assert_eq!(check_name("a/b"), Err(PathError::BadCharacter));
        for name in ["a\n", "a\u{202e}b", "\u{200f}", "a\u{2066}", "\u{61c}a"] {
            assert_eq!(check_name(name), Err(PathError::BadCharacter), "{name:?}");
        }
        assert_eq!(check_name("\u{200d}\u{2065}\u{202f}"), Ok(()));
        assert_eq!(check_name(".."), Err(PathError::Dots));
        assert_eq!(check_name(&"x".repeat(NAME_BYTES)), Ok(()));
        assert_eq!(check_name(&"x".repeat(NAME_BYTES + 1)), Err(PathError::TooLong));
    }

    #[test]
    fn names_are_quoted_where_that_is_needed() {
        for (name, word) in [
            ("a#b", "a#b"),
            ("#a b", "\\#a\\ b"),
            ("d/x>y", "d/x\\>y"),
            ("größe", "größe"),
        ] {
            assert_eq!(Quoted(name).to_string(), word);
        }
    }

    #[test]
    fn paths_fall_into_names() {
        let path = Path::parse("//a/b//c/").unwrap();
        assert!(path.is_absolute());
        assert_eq!(path.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        let (before, last) = path.split_last().unwrap();
        assert_eq!((before.collect::<Vec<_>>(), last), (vec!["a", "b"], "c"));
        assert!(Path::parse("/").unwrap().split_last().is_none());
        assert!(!Path::parse("a").unwrap().is_absolute());
        assert_eq!(Path::parse(""), Err(PathError::Empty));
        assert_eq!(Path::parse("a/../b"), Err(PathError::Dots));
    }
}
