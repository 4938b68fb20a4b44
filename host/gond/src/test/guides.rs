//! Stage `guides`: a reader who types what a guide says, in a copy of the sources.
//!
//! A comment before each block of a guide says what it is: `<!-- run -->` lines for the host's shell, `<!-- prints -->` what
//! they print on standard output (numbers and addresses are holes), `<!-- file PATH -->` the content of a file, and
//! `<!-- shown: WHY -->` nothing that can be typed. A block without such a comment is a failure.
//!
//! The copy keeps its place and its `target` from one run of the tests to the next, so that little is built anew.

use super::Bench;
use crate::tour;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The guides that are typed, in this order, in one copy.
const GUIDES: [&str; 1] = ["docs/guide/first-program.md"];

/// What a block is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Run,
    Prints,
    File(String),
    Shown,
}

/// A block of a guide, and the line where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    line: usize,
    kind: Option<Kind>,
    text: String,
}

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let tree = copy(bench)?;
    for guide in GUIDES {
        let text = std::fs::read_to_string(bench.root().join(guide)).with_context(|| format!("cannot read {guide}"))?;
        let mut printed = None;
        for block in blocks(&text) {
            let what = format!("{guide}, line {}", block.line);
            bench.step(&what);
            let outcome = match &block.kind {
                None => Err("nothing says whether this block is run, printed, a file or only shown".into()),
                Some(Kind::Shown) => continue,
                Some(Kind::File(path)) => {
                    std::fs::write(tree.join(path), &block.text).map_err(|error| error.to_string())
                }
                Some(Kind::Run) => {
                    let ran = type_in(&tree, &block.text)?;
                    printed = ran.as_ref().ok().cloned();
                    ran.map(|_| ())
                }
                Some(Kind::Prints) => compare(printed.as_deref(), &block.text),
            };
            let failed = outcome.is_err();
            bench.report(&what, outcome);
            if failed {
                break;
            }
        }
    }
    Ok(())
}

fn compare(printed: Option<&str>, shown: &str) -> Result<(), String> {
    match printed {
        Some(printed) if tour::is_like(printed, shown) => Ok(()),
        other => Err(format!(
            "the guide shows\n{shown}\nand what was printed is\n{}",
            other.unwrap_or("nothing")
        )),
    }
}

/// Types lines; gives what they print, or what went wrong.
fn type_in(tree: &Path, lines: &str) -> Result<Result<String, String>> {
    let output = Command::new("sh")
        .args(["-e", "-c", lines])
        .current_dir(tree)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("GOND_ROOT")
        .stdin(Stdio::null())
        .output()
        .context("cannot start a shell")?;
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(if output.status.success() {
        Ok(said)
    } else {
        Err(format!("{lines}\nended with {}\n{said}\n{complained}", output.status))
    })
}

/// A copy of the sources as they are, with a `gond` that is this tool: building it again would show nothing.
fn copy(bench: &Bench<'_>) -> Result<PathBuf> {
    let tree = bench.root().join("target/guides");
    std::fs::create_dir_all(&tree)?;
    let root = bench.root().to_str().context("the path is not UTF-8")?.to_owned();
    let tool = std::env::current_exe().context("where is this tool?")?;
    // What a former run has made goes, but for what was built; what is as it was keeps its time.
    let script = format!(
        "find . -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {{}} + && \
         git -C '{root}' ls-files -z --cached --others --exclude-standard | \
         (cd '{root}' && xargs -0 sh -c 'for f; do [ ! -e \"$f\" ] || printf \"%s\\0\" \"$f\"; done' sh | tar -cf - --null -T -) | tar -xpf - && \
         printf '#!/bin/sh\\nGOND_ROOT=%s exec %s \"$@\"\\n' \"$PWD\" '{}' > gond && chmod +x gond",
        tool.display()
    );
    if let Err(why) = type_in(&tree, &script)? {
        bail!("cannot copy the sources: {why}");
    }
    Ok(tree)
}

/// The blocks of a guide: fenced, or indented by four blanks behind an empty line.
fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut kind, mut fenced, mut open) = (None, false, false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        if fence {
            fenced = !fenced;
            open = fenced;
            if fenced {
                found.push(Block {
                    line: index + 1,
                    kind: kind.take(),
                    text: String::new(),
                });
            }
            continue;
        }
        let content = if fenced { Some(line) } else { line.strip_prefix("    ") };
        match content {
            Some(content) => {
                if !open {
                    open = true;
                    found.push(Block {
                        line: index + 1,
                        kind: kind.take(),
                        text: String::new(),
                    });
                }
                if let Some(block) = found.last_mut() {
                    block.text.push_str(content);
                    block.text.push('\n');
                }
            }
            None if line.is_empty() => open = false,
            None => {
                open = false;
                kind = comment(line);
            }
        }
    }
    found
}

/// What a comment says of the block behind it.
fn comment(line: &str) -> Option<Kind> {
    let inside = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    match inside.split_once([' ', ':']) {
        None if inside == "run" => Some(Kind::Run),
        None if inside == "prints" => Some(Kind::Prints),
        Some(("file", path)) => Some(Kind::File(path.trim().into())),
        Some(("shown", _)) => Some(Kind::Shown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_what_they_are() {
        let text = "a\n<!-- run -->\n\n    x\n    y\n\n<!-- file a/b -->\n```rust\n\n    z\n```\ntext\n\n    lost\n";
        let found = blocks(text);
        let kinds: Vec<_> = found.iter().map(|block| block.kind.clone()).collect();
        assert_eq!(kinds, [Some(Kind::Run), Some(Kind::File("a/b".into())), None]);
        let texts: Vec<_> = found.iter().map(|block| block.text.as_str()).collect();
        assert_eq!(texts, ["x\ny\n", "\n    z\n", "lost\n"]);
    }

    #[test]
    fn every_block_of_the_guides_says_what_it_is() {
        for guide in GUIDES {
            let text = std::fs::read_to_string(crate::place::root().unwrap().join(guide)).unwrap();
            for block in blocks(&text) {
                assert!(block.kind.is_some(), "{guide}, line {}", block.line);
            }
        }
    }
}
