//! `gond bench --host`: what isolation costs, beside the same C source built for the machine.
//!
//! The kernels of `sip/bench` are built by clang twice, for WebAssembly and for the machine, with the same
//! flags, and run in turns: each round takes every kernel in every way once, so that a busy machine
//! disturbs all alike. Medians count, and the geometric mean of the ratios. With `--peer wasmtime` another engine takes
//! part (`peer`).

mod build;
mod peer;
mod rows;

use crate::{Outcome, misused};
use build::Workshop;
use peer::Peer;

/// The options of the user.
struct Wanted {
    json: bool,
    rounds: usize,
    rows: Vec<String>,
    peer: bool,
}

/// All rows, in the order in which they are shown, a line each: the script `gond` judges by the same list before this tool is built.
const ROWS: &str = include_str!("rows");

/// A figure: of what, in which unit.
pub struct Figure {
    row: String,
    system: String,
    value: f64,
    unit: &'static str,
}

/// Runs `gond sip bench`.
pub fn command(words: &[String]) -> Outcome {
    let mut wanted = Wanted {
        json: false,
        rounds: 5,
        rows: Vec::new(),
        peer: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--host" => {}
            "--json" => wanted.json = true,
            "--row" => match words.next() {
                Some(row) if ROWS.lines().any(|known| known == row) => wanted.rows.push(row.clone()),
                _ => {
                    return Err(misused(&format!(
                        "--row wants one of {}",
                        ROWS.trim_end().replace('\n', ", ")
                    )));
                }
            },
            "--peer" => match words.next() {
                Some(name) if name == peer::NAME => wanted.peer = true,
                _ => return Err(misused(&format!("--peer wants {}", peer::NAME))),
            },
            "--rounds" => match words
                .next()
                .and_then(|rounds| rounds.parse().ok())
                .filter(|rounds| *rounds > 0)
            {
                Some(rounds) => wanted.rounds = rounds,
                None => return Err(misused("--rounds wants a number")),
            },
            other => return Err(misused(&format!("bench --host knows no option {other}"))),
        }
    }
    let fail = |text: String| (text, 1);
    let mut peer = wanted.peer.then(Peer::start).transpose().map_err(fail)?;
    let workshop = Workshop::open().map_err(fail)?;
    let asked = |row: &str| wanted.rows.is_empty() || wanted.rows.iter().any(|have| have == row);
    let mut figures = Vec::new();
    if asked("sip-guard") || asked("sip-explicit") {
        figures.extend(rows::kernels(&workshop, wanted.rounds, peer.as_mut()).map_err(fail)?);
    }
    if asked("sip-compile") || asked("sip-verify") {
        figures.extend(rows::compiler(&workshop, wanted.rounds, peer.as_mut()).map_err(fail)?);
    }
    if asked("sip-message-round-trip") {
        figures.extend(rows::messages(&workshop, wanted.rounds).map_err(fail)?);
    }
    if asked("sip-instantiate") {
        figures.extend(rows::instantiate(&workshop, wanted.rounds, peer.as_mut()).map_err(fail)?);
    }
    for Figure {
        row,
        system,
        value,
        unit,
    } in &figures
    {
        if wanted.json {
            println!("{{\"row\":\"{row}\",\"system\":\"{system}\",\"{unit}\":{value:.3}}}");
        } else {
            println!("{row:<32} {system:<14} {value:>14.2} {unit}");
        }
    }
    Ok(0)
}
