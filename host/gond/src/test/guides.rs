//! Stage `guides`: a reader who types what the documents say, in a copy of the sources.
//!
//! A comment before each block of a document says what it is ([`blocks`]). Numbers and addresses in what is shown are
//! holes, and a line `...` stands for any lines. A block without such a comment is a failure, and those that are only shown are
//! counted ([`GUIDES`]).
//!
//! The copy keeps its place and its `target` from one run of the tests to the next, so that little is built anew. Each document
//! begins with the sources as they are and without a disk image.

mod blocks;
mod typing;

use super::Bench;
use crate::build;
use crate::tour;
use anyhow::{Context, Result, bail};
use blocks::{Block, Kind, blocks, conversation};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use typing::{Ran, Terminal, type_in};

/// The documents that are typed, and how many of the blocks of each are only shown.
const GUIDES: [(&str, usize); 11] = [
    ("docs/introduction.md", 1),
    ("docs/mutants.md", 1),
    ("docs/fuzzing.md", 1),
    ("docs/crashes.md", 1),
    ("docs/guide/debugging.md", 2),
    ("docs/guide/modules.md", 2),
    ("docs/guide/nucleus.md", 0),
    ("docs/modules.md", 5),
    ("docs/sip.md", 4),
    ("README.md", 2),
    ("docs/guide/first-program.md", 6),
];

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    tools(bench)?;
    for (guide, _) in GUIDES {
        let tree = copy(bench)?;
        let mut reader = Reader {
            tree,
            printed: String::new(),
            terminal: None,
            port: typing::free_port()?,
        };
        let text = std::fs::read_to_string(bench.root().join(guide)).with_context(|| format!("cannot read {guide}"))?;
        for block in blocks(&text) {
            let Some(outcome) = reader.do_block(bench, guide, &block)? else {
                continue;
            };
            let failed = outcome.is_err();
            bench.report(&format!("{guide}, line {}", block.line), outcome);
            if failed {
                break;
            }
        }
    }
    Ok(())
}

/// Somebody who follows a document.
struct Reader {
    tree: PathBuf,
    /// The output of the lines that were typed last.
    printed: String,
    /// The second terminal.
    terminal: Option<Terminal>,
    /// Stands for GDB's own port, which others may use at the moment.
    port: u16,
}

impl Reader {
    /// Does a block and says how it went; `None` if there is nothing to do.
    fn do_block(&mut self, bench: &mut Bench<'_>, guide: &str, block: &Block) -> Result<Option<Result<(), String>>> {
        bench.step(&format!("{guide}, line {}", block.line));
        let text = block.text.replace("1234", &self.port.to_string());
        Ok(Some(match &block.kind {
            None => Err("nothing says whether this block is run, printed, a file or only shown".into()),
            Some(Kind::Shown(_) | Kind::Elsewhere) => return Ok(None),
            Some(Kind::File(path)) => {
                std::fs::write(self.tree.join(path), &block.text).map_err(|error| error.to_string())
            }
            Some(Kind::Run { fails }) => {
                let ran = type_in(&self.tree, &text)?;
                let outcome = ran.expect(i32::from(*fails));
                self.printed = ran.said;
                outcome
            }
            Some(Kind::Prints) => compare(&self.printed, &block.text),
            Some(Kind::Beside(lines)) => {
                // The system that ran in it is ended before its disk is asked for.
                self.terminal = None;
                let (terminal, outcome) = Terminal::open(&self.tree, &text, lines)?;
                self.terminal = Some(terminal);
                outcome
            }
            Some(Kind::Reports) => match self.terminal.take() {
                Some(terminal) => compare(&terminal.end()?, &block.text),
                None => Err("there is no second terminal".into()),
            },
            Some(Kind::Shell { image, fails }) => {
                // A system that runs in the second terminal ends first: two cannot have one image.
                self.terminal = None;
                self.in_the_shell(image, *fails, &block.text)?
            }
            Some(Kind::Debugger) => typing::ask_debugger(&self.tree, &block.text)?,
            Some(Kind::Gdb) if !typing::has_gdb() => {
                bench.tell(&format!(
                    "gdb is not installed: {guide}, line {} is passed over",
                    block.line
                ));
                return Ok(None);
            }
            Some(Kind::Gdb) => typing::session(&self.tree, &text)?,
        }))
    }

    /// Lines for the shell of the system, and what each prints.
    fn in_the_shell(&self, image: &str, fails: bool, text: &str) -> Result<Result<(), String>> {
        const MARK: &str = "-- next line --";
        let (_, lines) = conversation(text, "> ");
        let script: String = lines
            .iter()
            .flat_map(|(line, _)| [*line, "\necho ", MARK, "\n"])
            .collect();
        let path = self.tree.join("target/lines");
        std::fs::write(&path, script)?;
        let ran: Ran = type_in(
            &self.tree,
            &format!("./gond run --disk {image} --script {}", path.display()),
        )?;
        if let Err(why) = ran.expect(i32::from(fails)) {
            return Ok(Err(why));
        }
        let mark = format!("{MARK}\n");
        let printed = ran.said.split(&mark);
        Ok(lines
            .iter()
            .zip(printed)
            .try_for_each(|((line, shown), printed)| compare(printed, shown).map_err(|why| format!("> {line}\n{why}"))))
    }
}

fn compare(printed: &str, shown: &str) -> Result<(), String> {
    if tour::shows(shown, printed) {
        return Ok(());
    }
    Err(format!("the guide shows\n{shown}\nand what was printed is\n{printed}"))
}

/// Builds the tools that guides call beside this one.
fn tools(bench: &mut Bench<'_>) -> Result<()> {
    for words in [&["-p", "sip-cli"][..], &["-p", "module-cli", "--release"]] {
        bench.step(&format!("building {}", words[1]));
        let mut command = build::cargo(bench.root());
        let output = command
            .args(["build", "--quiet"])
            .args(words)
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!(
                "{} cannot be built:\n{}",
                words[1],
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}

/// A copy of the sources as they are, with a `gond` that starts the tools that are built: building them again would show nothing.
/// Removes the files that a guide has made before, but for those that were built; a file that is as it was keeps its time.
fn copy(bench: &Bench<'_>) -> Result<PathBuf> {
    let (root, tree) = (bench.root(), bench.root().join("target/guides"));
    std::fs::create_dir_all(&tree)?;
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    let names = String::from_utf8(listed.stdout).context("a name of a source is not UTF-8")?;
    let wanted: BTreeSet<&Path> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(Path::new)
        .collect();
    clear(&tree, Path::new(""), &wanted)?;
    for name in wanted.into_iter().filter(|name| root.join(name).is_file()) {
        let (from, to) = (root.join(name), tree.join(name));
        if std::fs::read(&to).ok() != Some(std::fs::read(&from)?) {
            std::fs::create_dir_all(to.parent().unwrap_or(&tree))?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", name.display()))?;
        }
    }
    let tool = std::env::current_exe().context("where is this tool?")?;
    let (root, tool, here) = (root.display(), tool.display(), tree.display());
    let gond = format!(
        "#!/bin/sh\n\
         export GOND_ROOT='{here}'\n\
         case $1 in\n\
         sip) shift; exec '{root}/target/debug/sip-cli' \"$@\" ;;\n\
         module) shift; exec '{root}/target/release/module-cli' \"$@\" ;;\n\
         esac\n\
         exec '{tool}' \"$@\"\n"
    );
    // It is executable already, as a copy of the script of that name.
    std::fs::write(tree.join("gond"), gond)?;
    Ok(tree)
}

/// Removes what is not wanted from a folder of the tree.
fn clear(tree: &Path, inside: &Path, wanted: &BTreeSet<&Path>) -> Result<()> {
    for entry in std::fs::read_dir(tree.join(inside))? {
        let entry = entry?;
        let name = inside.join(entry.file_name());
        if name == Path::new("target") || wanted.contains(name.as_path()) {
            continue;
        }
        if !entry.file_type()?.is_dir() {
            std::fs::remove_file(entry.path())?;
            continue;
        }
        clear(tree, &name, wanted)?;
        // A folder that others' files are in stays.
        let _ = std::fs::remove_dir(entry.path());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Vec<(String, Vec<Block>)> {
        let root = crate::place::root().unwrap();
        let folders = ["", "docs", "docs/guide", "docs/spec", "docs/design", "docs/decisions"];
        let mut found = Vec::new();
        for folder in folders {
            for entry in std::fs::read_dir(root.join(folder)).unwrap().flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|end| end == "md") {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    found.push((name, blocks(&std::fs::read_to_string(&path).unwrap())));
                }
            }
        }
        found
    }

    #[test]
    fn every_block_of_a_guide_says_what_it_is() {
        for (name, blocks) in documents() {
            let Some((_, most)) = GUIDES.iter().find(|(guide, _)| *guide == name) else {
                continue;
            };
            let without: Vec<usize> = blocks
                .iter()
                .filter(|block| block.kind.is_none())
                .map(|block| block.line)
                .collect();
            assert!(without.is_empty(), "{name}, lines {without:?}: what are these blocks?");
            let shown = blocks.iter().filter(|block| matches!(block.kind, Some(Kind::Shown(_))));
            assert_eq!(shown.count(), *most, "{name}: blocks that are only shown");
        }
    }

    /// Commands stand in documents that are typed; the others have formats and drawings.
    #[test]
    fn no_other_document_has_commands_in_its_blocks() {
        for (name, blocks) in documents() {
            if GUIDES.iter().any(|(guide, _)| *guide == name) {
                continue;
            }
            for block in blocks {
                let typed = |line: &str| {
                    ["./gond ", "$ ", "> ", "cargo ", "git "]
                        .iter()
                        .any(|begin| line.starts_with(begin))
                };
                assert!(!block.text.lines().any(typed), "{name}, line {}: a command", block.line);
            }
        }
    }

    /// Paths in the running text are paths from the root, or beside the document; products have a profile that there is.
    #[test]
    fn paths_in_sentences_lead_to_files() {
        let root = crate::place::root().unwrap();
        let ends = ["rs", "md", "c", "h", "s", "toml", "txt", "json", "ld"];
        let (mut seen, mut wrong) = (0, Vec::new());
        for (name, _) in documents() {
            if name.starts_with("docs/decisions") || name == "CHANGELOG.md" {
                continue;
            }
            let text = std::fs::read_to_string(root.join(&name)).unwrap();
            let beside = root.join(&name).parent().unwrap().to_owned();
            for word in text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
                let path = word
                    .trim_matches(['(', ')', ',', ';'])
                    .split(':')
                    .next()
                    .unwrap_or_default();
                if let Some(product) = path.split("x86_64-unknown-none/").nth(1) {
                    let profile = product.split('/').next().unwrap_or_default();
                    if !["guest", "checked", "engine"].contains(&profile) {
                        wrong.push(format!("{name}: {path}"));
                    }
                    continue;
                }
                let is_source = Path::new(path)
                    .extension()
                    .is_some_and(|end| ends.iter().any(|one| end == *one));
                if !is_source
                    || !path.contains('/')
                    || path.contains(['*', '{', '<'])
                    || path.starts_with(['/', '.', '$'])
                {
                    continue;
                }
                seen += 1;
                if !root.join(path).exists() && !beside.join(path).exists() {
                    wrong.push(format!("{name}: {path}"));
                }
            }
        }
        assert!(wrong.is_empty(), "these lead nowhere: {wrong:#?}");
        assert!(seen > 200, "{seen} paths");
    }

    /// Commands in the running text, too, are such as there are, with options that there are.
    #[test]
    fn commands_in_sentences_are_known() {
        let root = crate::place::root().unwrap();
        let modules = std::fs::read_to_string(root.join("host/module-cli/src/lib.rs")).unwrap();
        let sip = ["lib.rs", "main.rs", "run.rs", "project.rs"]
            .map(|name| std::fs::read_to_string(root.join("host/sip-cli/src").join(name)).unwrap_or_default())
            .concat();
        let mut seen = 0;
        for (name, _) in documents()
            .into_iter()
            .filter(|(name, _)| !name.starts_with("docs/decisions") && name != "CHANGELOG.md")
        {
            let text = std::fs::read_to_string(root.join(&name)).unwrap();
            for span in text.split('`').filter_map(|span| span.strip_prefix("./gond ")) {
                let mut words = span.split_whitespace();
                let command = words.next().unwrap_or_default();
                let help = match command {
                    "help" => continue,
                    "module" => modules.clone(),
                    "sip" => sip.clone(),
                    _ => crate::help::asked("help", &[command.into()])
                        .ok()
                        .flatten()
                        .unwrap_or_default(),
                };
                assert!(!help.is_empty(), "{name}: `./gond {span}` is no command");
                for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
                    let option = option.split('=').next().unwrap_or_default();
                    assert!(
                        help.contains(option.trim_start_matches("--")),
                        "{name}: `./gond {span}`: no {option}"
                    );
                }
                seen += 1;
            }
        }
        assert!(seen > 40, "{seen} commands");
    }
}
