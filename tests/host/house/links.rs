//! Every path that a document names exists: relative links of Markdown, their anchors, and paths in backticks.
//!
//! A link is relative to its document. A path in backticks is relative to the root of the tree, to the document's folder, or
//! is the end of a path of the tree (`tests/loops.rs` in a text about the crate `sip`). A decision may be named by its number
//! alone (`docs/decisions/0032`). Blocks of code are left out. Comments of Rust files are read for paths that begin with `docs/`.

use std::collections::BTreeSet;
use std::path::Path;

/// Endings by which a word with a slash is taken for a path although it does not begin with a folder of the tree's root.
const ENDINGS: [&str; 8] = [".rs", ".md", ".c", ".h", ".s", ".toml", ".json", ".svg"];

/// Beginnings of paths that only a build makes, that a guide has its reader make, or that are other people's.
const MADE: [&str; 3] = ["target/", "apps/yours", "tests/*/testsuite"];

/// Texts that stood beside the tree when it was begun, and what they were cited by. Nothing may cite them: readers have the tree only.
const ELSEWHERE: [&str; 4] = [
    concat!("DESI", "GN"),
    concat!("MUNGI-", "API"),
    concat!("FACTS", ".md"),
    concat!("../sha", "red"),
];

/// Complaints about names in a document that the tree does not have.
pub fn broken(root: &Path) -> Vec<String> {
    let tree = tree(root);
    let mut complaints = Vec::new();
    let mut documents = 0;
    for path in tree.iter().filter(|path| is_document(path)) {
        documents += 1;
        let text = std::fs::read_to_string(root.join(path)).expect("a document in UTF-8");
        complaints.extend(cites_elsewhere(path, &text));
        let prose = without_code_blocks(&text);
        for (number, line) in prose.lines().enumerate() {
            for link in links(line) {
                if let Some(why) = broken_link(root, &tree, path, link) {
                    complaints.push(format!("{path}:{}: {why}", number + 1));
                }
            }
            for word in in_backticks(line).filter(|word| looks_like_a_path(&tree, word)) {
                if !names_something(&tree, path, word) {
                    complaints.push(format!("{path}:{}: no `{word}` in the tree", number + 1));
                }
            }
        }
    }
    assert!(documents > 50, "only {documents} documents");
    for path in tree.iter().filter(|path| has_ending(path, "rs")) {
        let text = std::fs::read_to_string(root.join(path)).expect("a source file in UTF-8");
        complaints.extend(cites_elsewhere(path, &text));
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.trim_start().starts_with("//"))
        {
            for word in in_backticks(line).filter(|word| word.starts_with("docs/")) {
                if !names_something(&tree, path, word) {
                    complaints.push(format!("{path}:{}: no `{word}` in the tree", number + 1));
                }
            }
        }
    }
    complaints
}

/// Citations of texts that the tree does not have.
fn cites_elsewhere(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(number, line)| Some((number, ELSEWHERE.iter().find(|cited| line.contains(**cited))?)))
        .map(|(number, cited)| format!("{path}:{}: cites {cited}, which is not in the tree", number + 1))
        .collect()
}

/// All files and folders, by their paths from the root.
fn tree(root: &Path) -> BTreeSet<String> {
    fn collect(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the tree").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if super::source::NOT_OURS.contains(&name.as_str()) {
                continue;
            }
            let inner = path
                .strip_prefix(root)
                .expect("inside the tree")
                .to_string_lossy()
                .into_owned();
            found.insert(inner);
            if path.is_dir() {
                collect(root, &path, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(root, root, &mut found);
    found
}

fn has_ending(path: &str, ending: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == ending)
}

/// Documents stand at the root and under `docs`, or are called README. Other files of that ending describe modules.
fn is_document(path: &str) -> bool {
    has_ending(path, "md") && (!path.contains('/') || path.starts_with("docs/") || path.ends_with("/README.md"))
}

/// The text with the lines of fenced blocks empty.
fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        if !inside && !fence && !line.starts_with("    ") {
            prose += line;
        }
        prose.push('\n');
        inside ^= fence;
    }
    prose
}

/// Targets of links that are not addresses of the net.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](")
        .filter_map(|(at, mark)| line[at + mark.len()..].split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://") && !target.contains(' '))
}

fn in_backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn broken_link(root: &Path, tree: &BTreeSet<String>, document: &str, link: &str) -> Option<String> {
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if target.is_empty() {
        document.to_owned()
    } else {
        joined(document, target)
    };
    if !path.is_empty() && !tree.contains(&path) {
        return Some(format!("the link {link} leads nowhere"));
    }
    if anchor.is_empty() || !has_ending(&path, "md") {
        return None;
    }
    let text = std::fs::read_to_string(root.join(&path)).expect("a document in UTF-8");
    let known = text.lines().filter_map(heading).any(|heading| heading == anchor);
    (!known).then(|| format!("{path} has no heading #{anchor}"))
}

/// A heading as its anchor: small letters, hyphens for spaces, nothing else but letters and digits.
fn heading(line: &str) -> Option<String> {
    let text = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let small = text.chars().flat_map(char::to_lowercase);
    Some(
        small
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect(),
    )
}

/// A path relative to a document, from the root.
fn joined(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn looks_like_a_path(tree: &BTreeSet<String>, word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},*+".contains(c);
    let Some((first, rest)) = word.split_once('/') else {
        return false;
    };
    let made = MADE.iter().any(|made| word.starts_with(made));
    let ends_like_one = ENDINGS.iter().any(|ending| word.ends_with(ending));
    !made
        && !rest.is_empty()
        && !first.is_empty()
        && first != "."
        && word.chars().all(plain)
        && (tree.contains(first) || ends_like_one)
}

/// Whether a path with `{a,b}` and `*` in it names only what there is.
fn names_something(tree: &BTreeSet<String>, document: &str, word: &str) -> bool {
    alternatives(word.trim_end_matches('/')).iter().all(|path| {
        let near = joined(document, path);
        let suffix = format!("/{path}");
        let numbered = |one: &String| {
            one.strip_prefix(path.as_str())
                .is_some_and(|rest| path.starts_with("docs/decisions/0") && rest.starts_with('-'))
        };
        tree.contains(path)
            || tree.contains(&near)
            || tree.contains(&format!("{path}.rs"))
            || tree
                .iter()
                .any(|one| one.ends_with(&suffix) || numbered(one) || matches(one, path))
    })
}

/// `a/{b,c}` is `a/b` and `a/c`.
fn alternatives(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let Some((inner, after)) = rest.split_once('}') else {
        return vec![word.to_owned()];
    };
    inner
        .split(',')
        .flat_map(|one| alternatives(&format!("{before}{}{after}", one.trim())))
        .collect()
}

/// Whether a path fits a pattern with one `*` or several.
fn matches(path: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let parts: Vec<&str> = parts.collect();
    let (last, middle) = parts.split_last().expect("a part behind the star");
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn broken_paths_are_seen() {
    let tree: BTreeSet<String> = [
        "docs",
        "docs/a.md",
        "docs/decisions/0032-processors.md",
        "sip/tests/loops.rs",
        "kcore",
        "kcore/src",
    ]
    .iter()
    .map(|path| (*path).to_owned())
    .collect();
    let fits = |word: &str| names_something(&tree, "docs/a.md", word);
    assert!(fits("sip/tests/loops.rs") && fits("tests/loops.rs") && fits("docs/decisions/0032") && fits("kcore/src/"));
    assert!(fits("{kcore,docs}") && fits("docs/decisions/0032-*") && fits("sip/tests/loops"));
    assert!(
        !fits("sip/tests/loop.rs") && !fits("docs/decisions/0033") && !fits("{kcore,store}/src") && !fits("store/*")
    );
    assert!(looks_like_a_path(&tree, "kcore/src/x") && looks_like_a_path(&tree, "gone/x.rs"));
    assert!(
        !looks_like_a_path(&tree, "a/b")
            && !looks_like_a_path(&tree, "target/x.rs")
            && !looks_like_a_path(&tree, "kcore/")
    );
    assert_eq!(cites_elsewhere("a.rs", concat!("fine\n// see DESI", "GN 3")).len(), 1);
    assert_eq!(joined("docs/guide/a.md", "../spec/b.md"), "docs/spec/b.md");
    assert_eq!(
        heading("## Calls of the bare µ-kernel").as_deref(),
        Some("calls-of-the-bare-µ-kernel")
    );
    assert_eq!(
        links("[a](b.md) and [c](https://d) and [e](f.md#g)").collect::<Vec<_>>(),
        ["b.md", "f.md#g"]
    );
}
