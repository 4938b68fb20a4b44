//! The committed results, `bench/results.json`: writing them, and comparing with them.
//!
//! Only instructions are compared, for they are the same run after run; times depend on the machine.

use super::rows::{Measured, System, find};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// More instructions than this many thousandths above the committed figure are a regression.
const TOLERANCE: u64 = 30;

fn file(root: &Path) -> PathBuf {
    root.join("bench/results.json")
}

/// Writes the results, one row a line, so that changes show as a difference of lines.
pub fn store(root: &Path, results: &[Measured]) -> Result<()> {
    let rows: Vec<String> = results.iter().map(|one| format!("  {}", one.json())).collect();
    let path = file(root);
    std::fs::write(&path, format!("[\n{}\n]\n", rows.join(",\n")))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Whether the committed results have a row of one of these systems.
pub fn has(root: &Path, row: &str, systems: &[System]) -> bool {
    committed(root).is_ok_and(|rows| {
        let of = |one: &Value| systems.iter().any(|system| one["system"] == system.name());
        rows.iter().any(|one| one["row"] == row && of(one))
    })
}

fn committed(root: &Path) -> Result<Vec<Value>> {
    let path = file(root);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; './gond bench --update' makes it", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a list in JSON", path.display()))
}

/// Complaints about rows of ours that need more instructions than they did, or are gone: all rows, or those that were asked for.
pub fn regressions(root: &Path, results: &[Measured], asked: &[String]) -> Result<Vec<String>> {
    let rows = committed(root)?;
    let is_asked = |row: &&Value| asked.is_empty() || asked.iter().any(|name| row["row"] == name.as_str());
    let complaints = rows.iter().filter(is_asked).filter_map(|row| regression(row, results));
    Ok(complaints.collect())
}

fn regression(committed: &Value, results: &[Measured]) -> Option<String> {
    let system = System::from_name(committed["system"].as_str()?)?;
    // Linux does not change; and what was not measured now cannot have.
    if system == System::Linux || !results.iter().any(|one| one.system == system) {
        return None;
    }
    let name = committed["row"].as_str()?;
    let before = committed["instructions"].as_u64()?;
    let Some(now) = find(results, system, name).and_then(|one| one.instructions) else {
        return Some(format!("row {name} is gone"));
    };
    let limit = before.saturating_mul(1000 + TOLERANCE) / 1000;
    (now > limit).then(|| format!("row {name} takes {now} instructions; it took {before}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::merge;
    use crate::place::Scratch;

    #[test]
    fn regressions_are_told() {
        let scratch = Scratch::make().unwrap();
        std::fs::create_dir(scratch.file("bench")).unwrap();
        let root = scratch.file(".");
        let before = merge(
            System::Gondwana,
            "row=a ticks=1000\nrow=b ticks=1000\nrow=c ticks=5",
            "",
        );
        store(&root, &before).unwrap();
        assert!(regressions(&root, &before, &[]).unwrap().is_empty());
        let now = merge(System::Gondwana, "row=a ticks=1030\nrow=b ticks=1031", "");
        let told = regressions(&root, &now, &[]).unwrap();
        assert_eq!(told, ["row b takes 1031 instructions; it took 1000", "row c is gone"]);
        let asked = ["a".to_owned(), "c".to_owned()];
        assert_eq!(regressions(&root, &now, &asked).unwrap(), ["row c is gone"]);
    }
}
