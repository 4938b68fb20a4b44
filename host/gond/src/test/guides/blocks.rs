//! The blocks of a guide, and the comment before each that says what it is.
//!
//! | comment | the block is |
//! |---|---|
//! | `run`, `run, fails` | lines for the host's shell |
//! | `prints` | what those lines print on standard output |
//! | `beside: LINE; LINE` | lines for a second terminal, which goes on; the system in it is given these lines |
//! | `reports` | what the second terminal says in the end, on standard error |
//! | `shell IMAGE`, `shell IMAGE, fails` | lines behind `> ` for the system's shell on a disk image, each with what it prints |
//! | `debugger` | questions behind `kernel> ` for the kernel debugger of the second terminal, each with its answer |
//! | `gdb` | how GDB is started, then commands behind `(gdb) `, each with a part of what is printed |
//! | `file PATH` | the content of a file |
//! | `tour` | the README's tour, which stage `tour` plays |
//! | `PATH: NAME` | a piece of that source file, which a test compares |
//! | `shown: WHY` | nothing that can be typed, for this reason |

/// The kind of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Run { fails: bool },
    Prints,
    Beside(Vec<String>),
    Reports,
    Shell { image: String, fails: bool },
    Debugger,
    Gdb,
    File(String),
    Elsewhere,
    Shown(String),
}

/// A block of a guide, and the line where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub line: usize,
    pub kind: Option<Kind>,
    pub text: String,
}

/// The blocks of a guide: fenced, or indented by four blanks behind an empty line.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut kind, mut fenced, mut open, mut behind_text) = (None, false, false, false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        if fence {
            fenced = !fenced;
            open = fenced;
        }
        let content = match (fence, fenced) {
            (true, true) => Some(""),
            (true, false) => {
                behind_text = false;
                continue;
            }
            (false, true) => Some(line),
            // Further lines of an item of a list are indented, too.
            (false, false) if behind_text => None,
            (false, false) => line.strip_prefix("    "),
        };
        match content {
            Some(content) => {
                if fence || !open {
                    open = true;
                    found.push(Block {
                        line: index + 1,
                        kind: kind.take(),
                        text: String::new(),
                    });
                }
                if let Some(block) = found.last_mut().filter(|_| !fence) {
                    block.text.push_str(content);
                    block.text.push('\n');
                }
            }
            None if line.is_empty() => (open, behind_text) = (false, false),
            None => {
                (open, behind_text) = (false, true);
                kind = comment(line);
            }
        }
    }
    found
}

/// Reads from a comment which kind of block stands behind it.
fn comment(line: &str) -> Option<Kind> {
    let inside = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let (word, rest) = inside.split_once([' ', ':']).unwrap_or((inside, ""));
    let rest = rest.trim();
    Some(match (word, rest) {
        ("run", "") => Kind::Run { fails: false },
        ("run,", "fails") => Kind::Run { fails: true },
        ("prints", "") => Kind::Prints,
        ("reports", "") => Kind::Reports,
        ("debugger", "") => Kind::Debugger,
        ("gdb", "") => Kind::Gdb,
        ("tour", "") => Kind::Elsewhere,
        ("beside", lines) => Kind::Beside(lines.split(';').map(|line| line.trim().to_owned()).collect()),
        ("shell", rest) => {
            let image = rest.strip_suffix(", fails");
            Kind::Shell {
                image: image.unwrap_or(rest).to_owned(),
                fails: image.is_some(),
            }
        }
        ("file", path) => Kind::File(path.to_owned()),
        ("shown", why) if !why.is_empty() => Kind::Shown(why.to_owned()),
        (path, name) if path.contains(".rs") && !name.is_empty() => Kind::Elsewhere,
        _ => return None,
    })
}

/// Lines behind a prompt, each with what is shown below it; and the lines before the first.
pub fn conversation<'a>(text: &'a str, prompt: &str) -> (Vec<&'a str>, Vec<(&'a str, String)>) {
    let (mut before, mut found): (Vec<&str>, Vec<(&str, String)>) = Default::default();
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix(prompt) {
            found.push((typed, String::new()));
        } else if let Some((_, shown)) = found.last_mut() {
            shown.push_str(line);
            shown.push('\n');
        } else {
            before.push(line);
        }
    }
    (before, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_what_they_are() {
        let text =
            "1. a\n    b\n<!-- run -->\n\n    x\n    y\n\n<!-- file a/b -->\n```rust\n\n    z\n```\ntext\n\n    lost\n";
        let found = blocks(text);
        let kinds: Vec<_> = found.iter().map(|block| block.kind.clone()).collect();
        assert_eq!(
            kinds,
            [Some(Kind::Run { fails: false }), Some(Kind::File("a/b".into())), None]
        );
        let texts: Vec<_> = found.iter().map(|block| block.text.as_str()).collect();
        assert_eq!(texts, ["x\ny\n", "\n    z\n", "lost\n"]);
    }

    #[test]
    fn comments_are_read() {
        let shell = |image: &str, fails| {
            Some(Kind::Shell {
                image: image.into(),
                fails,
            })
        };
        assert_eq!(comment("<!-- shell a.img, fails -->"), shell("a.img", true));
        assert_eq!(comment("<!-- shell a.img -->"), shell("a.img", false));
        assert_eq!(
            comment("<!-- beside: echo a b; c -->"),
            Some(Kind::Beside(vec!["echo a b".into(), "c".into()]))
        );
        assert_eq!(comment("<!-- a/b.rs: piece -->"), Some(Kind::Elsewhere));
        assert_eq!(
            (comment("<!-- shown: -->"), comment("<!-- runs -->"), comment("run")),
            (None, None, None)
        );
    }

    #[test]
    fn conversations_are_taken_apart() {
        let (before, lines) = conversation("gdb x\n> a\n1\n2\n> b\n", "> ");
        assert_eq!(before, ["gdb x"]);
        assert_eq!(lines, [("a", "1\n2\n".to_owned()), ("b", String::new())]);
    }
}
