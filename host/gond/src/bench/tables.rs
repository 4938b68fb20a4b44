//! Tables of results, for the terminal and for `docs/benchmarks.md`: the same Markdown in both.

use super::rows::{
    Bound, FEWER_THAN_PEER, KNOWN, Measured, OUTSIDE_NULL_CALL, PEER_FACTOR, System, find, find_ours, keeps_bound,
};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::Path;

/// Between these lines the document's tables are rewritten.
const BEGIN: &str = "<!-- tables: written by ./gond bench --update -->";
/// The second of them.
const END: &str = "<!-- end of tables -->";

/// A number with its thousands set off.
pub fn grouped(number: Option<u64>) -> String {
    let Some(number) = number else { return "–".into() };
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many times the first fits into the second.
fn ratio(ours: Option<u64>, theirs: Option<u64>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours > 0 => {
            let tenths = u128::from(theirs) * 10 / u128::from(ours);
            format!("{}.{}", tenths / 10, tenths % 10)
        }
        _ => "–".into(),
    }
}

fn bound_text(row: &str) -> String {
    let bound = match KNOWN
        .iter()
        .find(|(name, ..)| *name == row)
        .and_then(|(_, bound, _)| *bound)
    {
        Some(Bound::Instructions(most)) => grouped(Some(most)),
        Some(Bound::Times(times, other)) => format!("{times} × {other}"),
        Some(Bound::Hundredths(hundredths, other)) => format!("{}.{:02} × {other}", hundredths / 100, hundredths % 100),
        Some(Bound::Peer) => "its peer".into(),
        Some(Bound::Linux(other)) => other.into(),
        Some(Bound::Part(part, other)) => format!("1/{part} of {other}"),
        Some(Bound::Bytes(most)) => format!("{} bytes", grouped(Some(most))),
        None => return "–".into(),
    };
    match FEWER_THAN_PEER.iter().find(|(name, _)| *name == row) {
        Some((_, peer)) => format!("{bound}, 1/{PEER_FACTOR} of {peer}"),
        None => bound,
    }
}

/// The rows of ours in their order: the known ones, then any others.
fn ours(results: &[Measured]) -> Vec<&Measured> {
    let known = KNOWN.iter().filter_map(|(name, ..)| find_ours(results, name));
    let is_known = |one: &&Measured| KNOWN.iter().any(|(name, ..)| *name == one.row);
    let others = results
        .iter()
        .filter(|one| one.system == System::Gondwana && !is_known(one));
    known.chain(others).filter(|one| one.bytes.is_none()).collect()
}

/// The tables.
pub fn render(results: &[Measured]) -> String {
    let mut text = String::new();
    let ours = ours(results);
    if !ours.is_empty() {
        let mut lines = vec![
            [
                "row",
                "instructions",
                "at most",
                "kept",
                "ns",
                "peer in Linux",
                "instructions",
                "ns",
                "ratio (instructions)",
                "ratio (ns)",
            ]
            .map(str::to_owned),
        ];
        lines.extend(ours.iter().map(|one| compared(results, one)));
        push_table(&mut text, &lines);
    }
    let memory: Vec<[String; 5]> = results.iter().filter_map(|one| memory(results, one)).collect();
    if !memory.is_empty() {
        let mut lines = vec![["row", "bytes", "at most", "kept", "Linux"].map(str::to_owned)];
        lines.extend(memory);
        text.push('\n');
        push_table(&mut text, &lines);
    }
    let outside = results
        .iter()
        .filter(|one| one.system == System::GondwanaUser && one.row != OUTSIDE_NULL_CALL);
    let outside: Vec<[String; 6]> = outside.map(|one| deployments(results, one)).collect();
    if !outside.is_empty() {
        let mut lines = vec![
            [
                "row, instructions and ns",
                "server inside",
                "outside",
                "ratio",
                "inside, ns",
                "outside, ns",
            ]
            .map(str::to_owned),
        ];
        lines.extend(outside);
        text.push('\n');
        push_table(&mut text, &lines);
    }
    let is_counted = |one: &&Measured| one.system == System::Linux && one.bytes.is_none();
    let linux: Vec<&Measured> = results.iter().filter(is_counted).collect();
    if !linux.is_empty() {
        let mut lines = vec![["Linux row", "instructions", "ns"].map(str::to_owned)];
        lines.extend(
            linux
                .iter()
                .map(|one| [one.row.clone(), grouped(one.instructions), grouped(one.ns)]),
        );
        text.push('\n');
        push_table(&mut text, &lines);
    }
    text
}

/// A row of ours that measures bytes.
fn memory(results: &[Measured], one: &Measured) -> Option<[String; 5]> {
    let bytes = one.bytes.filter(|_| one.system == System::Gondwana)?;
    let peer = find(results, System::Linux, &one.row);
    Some([
        one.row.clone(),
        grouped(Some(bytes)),
        bound_text(&one.row),
        kept(results, &one.row).into(),
        grouped(peer.and_then(|peer| peer.bytes)),
    ])
}

/// Whether a row keeps its bound, as the tables say it.
fn kept(results: &[Measured], row: &str) -> &'static str {
    keeps_bound(results, row).map_or("–", |kept| if kept { "yes" } else { "**NO**" })
}

/// A row with the server inside and outside of the kernel.
fn deployments(results: &[Measured], outside: &Measured) -> [String; 6] {
    let inside = find(results, System::Gondwana, &outside.row);
    let (instructions, ns) = (inside.and_then(|one| one.instructions), inside.and_then(|one| one.ns));
    [
        outside.row.clone(),
        grouped(instructions),
        grouped(outside.instructions),
        ratio(instructions, outside.instructions),
        grouped(ns),
        grouped(outside.ns),
    ]
}

fn compared(results: &[Measured], one: &Measured) -> [String; 10] {
    let peer_name = KNOWN
        .iter()
        .find(|(name, ..)| *name == one.row)
        .and_then(|(_, _, peer)| *peer);
    let peer = peer_name.and_then(|name| find(results, System::Linux, name));
    let (instructions, ns) = (peer.and_then(|peer| peer.instructions), peer.and_then(|peer| peer.ns));
    [
        one.row.clone(),
        grouped(one.instructions),
        bound_text(&one.row),
        kept(results, &one.row).into(),
        grouped(one.ns),
        peer.map_or("–", |peer| peer.row.as_str()).into(),
        grouped(instructions),
        grouped(ns),
        ratio(one.instructions, instructions),
        ratio(one.ns, ns),
    ]
}

/// A Markdown table whose columns are aligned also as plain text: the first to the left, the others to the right.
pub fn push_table<Line: AsRef<[String]>>(text: &mut String, lines: &[Line]) {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let columns = lines.first().map_or(0, |line| line.as_ref().len());
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (index, line) in lines.iter().enumerate() {
        for (column, cell) in line.as_ref().iter().enumerate() {
            let width = widths[column];
            let _ = if column == 0 {
                write!(text, "| {cell:width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if index == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width);
                let _ = if column == 0 {
                    write!(text, "| {dashes} ")
                } else {
                    write!(text, "| {}: ", &dashes[1..])
                };
            }
            text.push_str("|\n");
        }
    }
}

/// Rewrites the tables in `docs/benchmarks.md`.
pub fn update_document(root: &Path, results: &[Measured]) -> Result<()> {
    replace_between(root, BEGIN, END, &render(results))
}

/// Puts a text between two lines of `docs/benchmarks.md`, in place of what is there.
pub fn replace_between(root: &Path, begin: &str, end: &str, text: &str) -> Result<()> {
    let path = root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some((before, rest)) = old.split_once(begin) else {
        bail!("{} lacks the line '{begin}'", path.display())
    };
    let Some((_, after)) = rest.split_once(end) else {
        bail!("{} lacks the line '{end}'", path.display())
    };
    let new = format!("{before}{begin}\n\n{text}\n{end}{after}");
    std::fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::merge;

    #[test]
    fn tables_show_ratios() {
        let mut all = merge(
            System::Gondwana,
            "row=null-call ticks=62",
            "row=null-call ticks=1 ns=100",
        );
        all.extend(merge(
            System::Linux,
            "row=null-call ticks=311",
            "row=null-call ticks=1 ns=340",
        ));
        let text = render(&all);
        assert!(
            text.contains(" yes |") && text.contains("5.0 |") && text.contains("3.4 |"),
            "{text}"
        );
        assert_eq!(grouped(Some(1_234_567)), "1,234,567");
    }
}
