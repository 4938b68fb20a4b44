//! Databases beside our store: `./gond bench --store` starts this program, once for each sample.
//!
//! | words | what it does |
//! |---|---|
//! | `prepare ENGINE FOLDER SIZE` | makes the files of an engine in an empty folder, with all pages written |
//! | `run ENGINE FOLDER SIZE ROW ROUND` | does a round of a row; prints `operations=N ns=N sum=N`, and the counts of an engine that counts itself |
//! | `count ENGINE FOLDER SIZE ROW ROUND` | the same, with a system call between two operations that a counter finds: a file named `/operation` is looked for, which is not there |
//! | `verify ENGINE FOLDER SIZE ROW ROUND` | opens it anew, reads what that round left; prints `sum=N` |
//!
//! Each engine has its defaults but for what its file says. `docs/decisions/0195` says why this is a tool outside of the
//! workspace, and how things are counted.

mod database;
mod lmdb;
mod redb;
mod sqlite;

use database::{KindOf, said};
use std::path::Path;
use std::process::ExitCode;
use store_bench::{Engine, Outcome, Own, Row, Size, filled, measured, verified};

/// Looked for between two operations.
const MARK: &str = "/operation";

/// Our store.
struct OwnWithName;

/// A kind of engine.
trait Kind {
    fn create(&self, folder: &Path, size: Size) -> Outcome<Box<dyn Engine>>;
    fn open(&self, folder: &Path) -> Outcome<Box<dyn Engine>>;
}

impl Kind for OwnWithName {
    fn create(&self, folder: &Path, size: Size) -> Outcome<Box<dyn Engine>> {
        Ok(Box::new(Own::create(&folder.join("store"), size.pages())?))
    }

    fn open(&self, folder: &Path) -> Outcome<Box<dyn Engine>> {
        Ok(Box::new(Own::open(&folder.join("store"))?))
    }
}

fn kind(name: &str) -> Outcome<&'static dyn Kind> {
    match name {
        "store" => Ok(&OwnWithName),
        "lmdb" => Ok(&KindOf::<lmdb::Lmdb>::KIND),
        "redb" => Ok(&KindOf::<redb::Redb>::KIND),
        "sqlite" => Ok(&KindOf::<sqlite::Sqlite>::KIND),
        _ => Err(format!("there is no engine '{name}'")),
    }
}

fn run(words: &[String]) -> Outcome<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [what, engine, folder, size, rest @ ..] = words.as_slice() else {
        return Err("which engine, folder and size?".into());
    };
    let (kind, folder) = (kind(engine)?, Path::new(folder));
    let size = Size::from_name(size).ok_or("a size is whole or small")?;
    if *what == "prepare" {
        let mut engine = kind.create(folder, size)?;
        filled(engine.as_mut(), size)?;
        engine.close()?;
        return Ok(String::new());
    }
    let [row, round] = rest else {
        return Err("which row and round?".into());
    };
    let row = Row::from_name(row).ok_or("there is no such row")?;
    let round = said(round.parse::<u64>())?;
    let mut engine = kind.open(folder)?;
    let line = match *what {
        "run" | "count" => {
            let is_counted = *what == "count";
            let mut mark = || {
                if is_counted {
                    let _ = std::fs::File::open(MARK);
                }
            };
            let before = engine.counts();
            let done = measured(engine.as_mut(), row, size, round, &mut mark)?;
            let line = format!(
                "operations={} ns={} sum={}",
                done.operations,
                done.time.as_nanos(),
                done.sum
            );
            let own = before.zip(engine.counts()).map(|(before, after)| {
                let counts = after.since(before);
                format!(
                    " reads={} read={} writes={} written={} flushes={}",
                    counts.reads, counts.read, counts.writes, counts.written, counts.flushes
                )
            });
            line + &own.unwrap_or_default()
        }
        "verify" => format!("sum={}", verified(engine.as_mut(), row, size, round)?),
        other => return Err(format!("'{other}' is nothing to do")),
    };
    engine.close()?;
    Ok(line)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("store-peers: {}: {text}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
