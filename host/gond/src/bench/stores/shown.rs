//! The rows of the store as a table, and as JSON.

use super::Stored;
use crate::bench::tables::{grouped, push_table, replace_between};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use store_bench::{Counts, Row};

/// Between these lines the document's table is rewritten.
const BEGIN: &str = "<!-- table of the store: written by ./gond bench --store --update -->";
/// The second of them.
const END: &str = "<!-- end of the store's table -->";

/// A figure of a row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Figure {
    Instructions,
    Ns,
    /// Bytes written (or read) for each byte that was asked for.
    PerByte,
    /// The same of the middle turn.
    PerByteOnce,
    /// Flushes of a turn.
    Flushes,
    /// Those of the middle turn.
    FlushesOnce,
    /// Calls that write or read.
    Requests,
}

/// The figures of a row, and the most that ours may be, in thousandths.
fn figures(row: Row) -> Vec<(Figure, Option<u64>)> {
    use Figure::{Flushes, FlushesOnce, Instructions, Ns, PerByte, PerByteOnce, Requests};
    let more: &[(Figure, Option<u64>)] = match row {
        Row::Sync1 => &[
            (PerByteOnce, Some(2000)),
            (FlushesOnce, Some(1000)),
            (PerByte, None),
            (Flushes, None),
        ],
        Row::Sync256 => &[
            (PerByteOnce, Some(1020)),
            (FlushesOnce, Some(1000)),
            (PerByte, None),
            (Flushes, None),
        ],
        Row::Checkpoint256 => &[(PerByte, Some(1300)), (PerByteOnce, None), (Flushes, None)],
        Row::CreateDelete => &[(PerByte, None), (Flushes, None)],
        Row::Scan | Row::Probe => &[(PerByte, None)],
    };
    let mut all = vec![(Instructions, None), (Ns, None)];
    all.extend_from_slice(more);
    all.push((Requests, None));
    all
}

impl Figure {
    fn name(self, row: Row) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Ns => "ns",
            Self::PerByte if row.payload().is_none() => "bytes",
            Self::PerByte => "bytes a byte",
            Self::PerByteOnce => "bytes a byte, median",
            Self::Flushes => "flushes",
            Self::FlushesOnce => "flushes, median",
            Self::Requests => "requests",
        }
    }
}

fn moved(row: Row) -> fn(&Counts) -> u64 {
    if row.reads() {
        |turn| turn.read
    } else {
        |turn| turn.written
    }
}

impl Stored {
    /// A figure, in thousandths.
    fn thousandths(&self, figure: Figure) -> u64 {
        let (row, counted) = (self.row, &self.counted);
        let (all, turns) = (counted.all(), counted.turns.len() as u64);
        let operations = counted.operations.max(1);
        let payload = row.payload().unwrap_or(1);
        match figure {
            Figure::Instructions => counted.instructions * 1000 / operations,
            Figure::Ns => self.ns * 1000,
            Figure::PerByte => moved(row)(&all) * 1000 / (operations * payload),
            Figure::PerByteOnce => counted.median(moved(row)) * 1000 / payload,
            Figure::Flushes => all.flushes * 1000 / turns.max(1),
            Figure::FlushesOnce => counted.median(|turn| turn.flushes) * 1000,
            Figure::Requests if row.reads() => all.reads * 1000 / operations,
            Figure::Requests => (all.reads + all.writes) * 1000 / operations,
        }
    }

    /// One object, as `--json` prints it.
    pub fn json(&self) -> Value {
        let whole = |figure| self.thousandths(figure) / 1000;
        #[allow(clippy::cast_precision_loss, reason = "shown with three digits behind the point")]
        let exact = |figure| self.thousandths(figure) as f64 / 1000.0;
        let payload = self.row.payload().unwrap_or(1);
        let mut object = json!({
            "row": self.row.name(),
            "system": self.engine,
            "instructions": whole(Figure::Instructions),
            "ns": whole(Figure::Ns),
            "bytes": moved(self.row)(&self.counted.all()) / self.counted.operations.max(1),
            "flushes": exact(Figure::Flushes),
            "requests": exact(Figure::Requests),
        });
        if self.row.payload().is_some() && !self.row.reads() {
            object["bytes_median"] = (self.thousandths(Figure::PerByteOnce) * payload / 1000).into();
            object["flushes_median"] = whole(Figure::FlushesOnce).into();
        }
        object
    }
}

fn text(figure: Figure, row: Row, thousandths: u64) -> String {
    if row.reads() && thousandths == 0 {
        // It reads what is mapped.
        return "–".into();
    }
    let is_large = matches!(figure, Figure::Instructions | Figure::Ns) || figure.name(row) == "bytes";
    if is_large {
        return grouped(Some(thousandths / 1000));
    }
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// The table: a line a figure, a column an engine.
pub fn table(all: &[Stored], engines: &[&'static str]) -> String {
    let mut head = vec!["row".to_owned(), "figure".to_owned()];
    head.extend(engines.iter().map(|&engine| engine.to_owned()));
    head.extend(["at most", "kept"].map(str::to_owned));
    let mut lines = vec![head];
    for row in Row::ALL {
        let of_row: Vec<&Stored> = all.iter().filter(|one| one.row == row).collect();
        if of_row.is_empty() {
            continue;
        }
        for (figure, most) in figures(row) {
            let mut line = vec![row.name().to_owned(), figure.name(row).to_owned()];
            line.extend(of_row.iter().map(|one| text(figure, row, one.thousandths(figure))));
            let ours = of_row.iter().find(|one| one.engine == super::ENGINES[0]);
            let kept = most.zip(ours).map(|(most, ours)| ours.thousandths(figure) <= most);
            line.push(most.map_or("–".into(), |most| text(figure, row, most)));
            line.push(kept.map_or("–", |kept| if kept { "yes" } else { "**NO**" }).into());
            lines.push(line);
        }
    }
    let mut shown = String::new();
    push_table(&mut shown, &lines);
    shown
}

/// Rewrites the table in `docs/benchmarks.md`.
pub fn update_document(root: &Path, table: &str) -> Result<()> {
    replace_between(root, BEGIN, END, table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::stores::counter::Counted;

    fn stored(row: Row, engine: &'static str, turns: Vec<Counts>) -> Stored {
        Stored {
            row,
            engine,
            counted: Counted::of(turns),
            ns: 1234,
        }
    }

    #[test]
    fn bounds_are_kept_or_not() {
        let turn = |blocks: u64, flushes| Counts {
            writes: blocks,
            written: blocks * 4096,
            flushes,
            ..Counts::default()
        };
        // The middle one keeps the bound; that the mean does not matters nothing.
        let ours = stored(Row::Sync1, "store", vec![turn(2, 1), turn(2, 1), turn(20, 2)]);
        let theirs = stored(Row::Sync1, "lmdb", vec![turn(5, 2); 3]);
        let json = ours.json();
        assert_eq!((&json["bytes"], &json["bytes_median"]), (&32768.into(), &8192.into()));
        assert_eq!((&json["flushes_median"], &json["requests"]), (&1.into(), &8.0.into()));
        let narrow = |text: String| {
            text.split(' ')
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let shown = narrow(table(&[ours, theirs], &["store", "lmdb"]));
        assert!(
            shown.contains("a byte, median | 2.000 | 5.000 | 2.000 | yes |"),
            "{shown}"
        );
        assert!(shown.contains("| flushes | 1.333 | 2.000 | – | – |"), "{shown}");
        let much = stored(Row::Checkpoint256, "store", vec![turn(400, 1)]);
        assert!(narrow(table(&[much], &["store"])).contains("1.562 | 1.300 | **NO** |"));
    }
}
