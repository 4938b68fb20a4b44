//! The README's tour: lines for the shell, played for real on a fresh disk, with a power cut in the middle.
//!
//! The transcript stands in `README.md` between two marks. `gond tour --update` writes it; `gond test` plays it again
//! and compares, with numbers that vary from run to run (ticks, sizes of what is in memory) left out.

use crate::arguments;
use crate::image;
use crate::machine::Machine;
use crate::place::{self, Scratch};
use crate::script::{self, Patience, Plug, Source, Verdict};
use crate::test;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The lines before the plug is pulled.
const BEFORE: [&str; 8] = [
    "ls",
    "hello",
    "create notes 64K",
    "write notes 0 A pointer means the same thing tomorrow.",
    "oo1 create parts",
    "oo1 run parts",
    "sync",
    "info parts",
];

/// The lines after it.
const AFTER: [&str; 7] = [
    "hello",
    "cat notes",
    "info parts",
    "oo1 run parts",
    "oo1 pdx parts",
    "domains",
    "mem",
];

/// The shell's prompt.
const PROMPT: &str = "gondwana>";
/// Separates the outputs of lines.
const MARK: &str = "-- next line --";
/// The marks in the README.
const MARKS: (&str, &str) = ("<!-- tour -->", "<!-- /tour -->");

/// Runs `gond tour`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let operands = arguments::operands("tour", arguments, &[], &["update"])?;
    let transcript = play(&mut |_| {})?;
    print!("{transcript}");
    if operands.has("update") {
        update(&place::root()?, &transcript)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Plays the tour and gives the transcript.
pub fn play(step: &mut dyn FnMut(&str)) -> Result<String> {
    let built = test::built()?;
    let scratch = Scratch::make()?;
    let disk = scratch.file("gondwana.img");
    image::create(&disk, image::DEFAULT_SIZE, Some(&built.programs))?;
    let machine = Machine::new(built.kernel, disk);
    step("before the power cut");
    let before = play_lines(&machine, &BEFORE, Plug::AtEnd)?;
    step("after the power cut");
    let after = play_lines(&machine, &AFTER, Plug::Stays)?;
    Ok(format!(
        "```text\n$ ./gond run\n{before}{PROMPT}                          (the plug is pulled: kill -9 of QEMU)\n\
         $ ./gond run\n{after}{PROMPT} poweroff\n```\n"
    ))
}

/// Plays lines and puts what each prints behind it.
fn play_lines(machine: &Machine, lines: &[&str], plug: Plug) -> Result<String> {
    let mark = format!("echo {MARK}");
    let script: Vec<&str> = lines.iter().flat_map(|line| [*line, mark.as_str()]).collect();
    let patience = Patience {
        plug,
        ..Patience::seconds(120)
    };
    let mut output = Vec::new();
    let played = script::play(machine, Source::lines(script), &mut output, patience)?;
    let output = String::from_utf8_lossy(&output);
    match played.verdict {
        Verdict::Success | Verdict::Killed => {}
        Verdict::Failure(what) | Verdict::Dead(what) => bail!("{what}\n--- output:\n{output}"),
    }
    if let Some((line, status)) = played.statuses.iter().find(|(_, status)| *status != 0) {
        bail!("'{line}' failed with status {status}\n--- output:\n{output}");
    }
    let mut text = String::new();
    for (line, printed) in lines.iter().zip(output.split(&format!("{MARK}\n"))) {
        let _ = write!(text, "{PROMPT} {line}\n{printed}");
    }
    Ok(text)
}

fn split(readme: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) = readme
        .split_once(MARKS.0)
        .with_context(|| format!("README.md lacks '{}'", MARKS.0))?;
    let (inside, after) = rest
        .split_once(MARKS.1)
        .with_context(|| format!("README.md lacks '{}'", MARKS.1))?;
    Ok((before, inside, after))
}

/// The transcript that the README shows.
pub fn shown(root: &Path) -> Result<String> {
    let readme = std::fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    Ok(split(&readme)?.1.trim_start().to_owned())
}

fn update(root: &Path, transcript: &str) -> Result<()> {
    let path = root.join("README.md");
    let readme = std::fs::read_to_string(&path).context("cannot read README.md")?;
    let (before, _, after) = split(&readme)?;
    let new = format!("{before}{}\n{transcript}{}{after}", MARKS.0, MARKS.1);
    std::fs::write(&path, new).context("cannot write README.md")
}

/// Whether two transcripts are the same but for decimal numbers and the spaces around them.
pub fn is_same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// Whether a guide that shows this shows what was printed: addresses vary, too, and a line `...` stands for any lines.
pub fn shows(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| -> Vec<Vec<String>> {
        let mut parts = text.split("0x");
        let first = parts.next().unwrap_or_default().to_owned();
        let digits = |c: char| c.is_ascii_hexdigit();
        plain(&parts.fold(first, |text, part| text + "0x" + part.trim_start_matches(digits)))
    };
    let (shown, printed) = (lines(shown), lines(printed));
    let parts: Vec<&[Vec<String>]> = shown.split(|line| line.len() == 1 && line[0] == "...").collect();
    let (Some((first, rest)), Some(mut left)) = (parts.split_first(), printed.strip_prefix(parts[0])) else {
        return false;
    };
    let Some((last, middle)) = rest.split_last() else {
        return left.is_empty() && first.len() == printed.len();
    };
    for part in middle.iter().filter(|part| !part.is_empty()) {
        let Some(at) = left.windows(part.len()).position(|window| window == *part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

/// A transcript without what varies. Hexadecimal words stay: addresses and checksums must be the same.
fn plain(text: &str) -> Vec<Vec<String>> {
    let number = |word: &str| word.bytes().any(|byte| byte.is_ascii_digit()) && !word.starts_with("0x");
    let word = |word: &str| if number(word) { "#".to_owned() } else { word.to_owned() };
    let unit = |word: &String| !["B", "KiB", "MiB", "GiB"].contains(&word.trim_end_matches([',', ';', ')']));
    text.trim()
        .lines()
        .map(|line| line.split_whitespace().map(word).filter(unit).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_are_compared_without_numbers() {
        assert!(is_same("  used  5.1 MiB\nrun 3 of", "  used   921 KiB\nrun 1 of\n"));
        assert!(!is_same("at 0x102000000", "at 0x102200000"));
        assert!(!is_same("a\nb", "a"));
    }

    #[test]
    fn what_is_shown_is_found_in_what_was_printed() {
        assert!(shows("run 3 at 0x1f", "run 4 at 0x2000") && !shows("run 3 at 0x1f", "runs 3 at 0x1f"));
        assert!(shows("a\n...\nd", "a\nb\nc\nd") && shows("...\nb\n...\nd\n...", "a\nb\nc\nd") && shows("...", "x"));
        assert!(
            !shows("a\n...\nc", "a\nb\nc\nd") && !shows("...\nd\n...\nb\n...", "a\nb\nc\nd") && !shows("a", "a\nb")
        );
        assert!(!shows("b\n...", "a\nb") && shows("", "") && !shows("", "a"));
    }

    #[test]
    fn the_readme_has_the_marks() {
        assert!(shown(&place::root().unwrap()).is_ok());
    }
}
