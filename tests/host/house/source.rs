//! Source files with their comments and strings blanked out, so that a word in them is not taken for code.
//!
//! The lexer knows line and nested block comments, strings, raw strings, byte strings and characters; that
//! is all of Rust's grammar that matters for finding words. Blanked places keep their newlines.

use std::path::Path;

/// A source file.
pub struct Source {
    /// Its path from the root of the tree.
    pub path: String,
    /// All of it.
    pub text: String,
    /// The code alone: comments and strings are blank.
    pub code: String,
}

/// Folders that hold no sources of ours.
pub const NOT_OURS: [&str; 4] = ["target", ".git", ".gond", "node_modules"];

/// All Rust files of the tree, in order of their paths.
pub fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    collect(root, root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        found.len() > 20,
        "only {} source files in {}",
        found.len(),
        root.display()
    );
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file in UTF-8");
            let path = path
                .strip_prefix(root)
                .expect("inside the tree")
                .to_string_lossy()
                .into_owned();
            let code = blank(&text);
            found.push(Source { path, text, code });
        }
    }
}

/// Whether `word` stands in `line` as a word of its own.
pub fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

impl Source {
    /// The code before the first `#[cfg(test)]`; files of tests have none.
    pub fn code_without_tests(&self) -> &str {
        if ["/tests.rs", "/tests/", "/fake/"]
            .iter()
            .any(|mark| self.path.contains(mark))
        {
            return "";
        }
        self.code.split("#[cfg(test)]").next().unwrap_or_default()
    }

    /// Lines (from 0) of unsafe blocks, implementations and functions that do not say why they are sound.
    pub fn unjustified_unsafe(&self) -> Vec<usize> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut found = Vec::new();
        for (number, code) in self.code.lines().enumerate() {
            let Some(at) = code.find("unsafe").filter(|_| has_word(code, "unsafe")) else {
                continue;
            };
            let rest = code[at + "unsafe".len()..].trim_start();
            // Attributes (`#[unsafe(naked)]`), types of functions, and blocks of foreign declarations.
            let foreign = rest.starts_with("extern") && !has_word(rest, "fn");
            if rest.starts_with('(') || rest.starts_with("fn(") || rest.contains(" fn(") || foreign {
                continue;
            }
            let declares = has_word(rest, "fn") || has_word(rest, "trait");
            // Public ones must tell their conditions; a private one, an implementation of a trait or an entry
            // of the hardware (naked) has nobody to tell them to.
            let naked = number > 0 && lines[number - 1].contains("(naked)");
            if declares && (naked || !has_word(&code[..at], "pub")) {
                continue;
            }
            let wanted = if declares { "# Safety" } else { "SAFETY:" };
            if !lines[number].contains("SAFETY:") && !said_above(&lines, number, wanted) {
                found.push(number);
            }
        }
        found
    }
}

/// Whether the comments and attributes right above a line, or above the statement it belongs to, say `wanted`.
fn said_above(lines: &[&str], number: usize, wanted: &str) -> bool {
    let mut strange = 0;
    for line in lines[..number].iter().rev() {
        let line = line.trim();
        if line.contains(wanted) || line.contains("SAFETY:") {
            return true;
        }
        // A statement may have begun a few lines before its unsafe expression.
        if !(line.starts_with("//") || line.starts_with('#')) {
            strange += 1;
            if strange > 3 || line.is_empty() || line == "}" {
                return false;
            }
        }
    }
    false
}

/// Blanks comments, strings and characters.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_comment(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment(bytes, at),
            b'"' => string(bytes, at),
            b'r' if !part_of_word_before(bytes, at) => raw_string(bytes, at).unwrap_or(at),
            b'\'' => character(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            code.push(bytes[at]);
            at += 1;
        } else {
            code.extend(
                bytes[at..end]
                    .iter()
                    .map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }),
            );
            at = end;
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn part_of_word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') && bytes[at - 1] != b'b'
}

fn line_comment(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |length| at + length)
}

fn block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a raw string that begins at `at`, if one does.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..]
        .windows(close.len())
        .position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

/// The end of a character literal that begins at `at`, if it is one and no lifetime.
fn character(bytes: &[u8], at: usize) -> Option<usize> {
    let end = if bytes.get(at + 1) == Some(&b'\\') {
        at + 3 + bytes.get(at + 3..)?.iter().position(|&byte| byte == b'\'')?
    } else {
        let length = bytes.get(at + 1..)?.iter().take(5).position(|&byte| byte == b'\'')?;
        // `'a, 'b` is two lifetimes: a literal holds exactly one character.
        let inside = std::str::from_utf8(&bytes[at + 1..at + 1 + length]).ok()?;
        if inside.chars().count() != 1 {
            return None;
        }
        at + 1 + length
    };
    Some(end + 1)
}

#[test]
fn comments_and_strings_are_blank() {
    let text = "let a = \"unsafe\"; // unsafe\nlet b = r#\"un\"safe\"#; /* a /* unsafe */ b */ 'x' '\\'' &'a b";
    let code = blank(text);
    assert!(!has_word(&code, "unsafe"));
    assert_eq!(code.lines().count(), 2);
    assert!(code.contains("let b =") && code.ends_with("&'a b"));
}

#[test]
fn words_are_whole() {
    assert!(has_word("x match{", "match"));
    assert!(!has_word("match_code", "match"));
}

#[test]
fn reasons_are_found() {
    // The word is put in below: who searches this file for it finds no block.
    let text = "//! x\n// SAFETY: it is.\nlet a = KEY { b };\n\nlet c = KEY { d };\n/// # Safety\n/// none\npub KEY fn e() {}\n";
    let text = text.replace("KEY", "unsafe");
    let source = Source {
        path: String::new(),
        code: blank(&text),
        text,
    };
    assert_eq!(source.unjustified_unsafe(), [4]);
}
