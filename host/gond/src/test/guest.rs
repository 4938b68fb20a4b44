//! Stages `suite` and `power`: the suite inside the system, and the OO1 database across a power cut.

use super::{Bench, cases, expect_success};
use crate::script::{Patience, Plug, Verdict};
use anyhow::Result;
use std::time::Duration;

/// The suite may take long: it makes over a million calls.
const SUITE_TOTAL: Duration = Duration::from_secs(600);

/// Stage `suite`. The program `suite` prints a line for each case, as Rust's own test harness does.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let mut machine = bench.fresh_machine("suite.img")?;
    machine.processors = 2;
    let patience = Patience {
        total: Some(SUITE_TOTAL),
        ..Patience::seconds(120)
    };
    // The `echo` proves that the system is usable after all that was done to it.
    let (played, output) = bench.play(&machine, &["suite", "echo still here"], patience)?;
    let all = cases(&output);
    for (name, why) in &all {
        bench.report(name, why.clone().map_or(Ok(()), Err));
    }
    if all.is_empty() {
        bench.report(
            "the suite has cases",
            Err(format!("no line 'test NAME ... ok' in its output:\n{output}")),
        );
    }
    if all.iter().all(|(_, why)| why.is_none()) {
        bench.report("the suite ends well", expect_success(&played, &output));
    }
    let usable = output.lines().last() == Some("still here");
    bench.report(
        "the system is usable afterwards",
        if usable { Ok(()) } else { Err(output) },
    );
    Ok(())
}

/// The words of a program's output that must be the same before and after the power cut.
fn checksums(output: &str) -> Vec<String> {
    let words = output.split_whitespace();
    words
        .filter(|word| {
            ["checksum=", "digest=", "visits="]
                .iter()
                .any(|key| word.starts_with(key))
        })
        .map(str::to_owned)
        .collect()
}

/// Stage `power`: the database is built, traversed, kept; the plug is pulled; it is found again at its address
/// and traversed along the same pointers, from its own domain and from another.
pub fn run_power(bench: &mut Bench<'_>) -> Result<()> {
    let machine = bench.fresh_machine("power.img")?;
    let patience = Patience {
        plug: Plug::AtEnd,
        ..Patience::seconds(120)
    };
    let before = [
        "oo1 create parts",
        "oo1 run parts",
        "oo1 pdx parts",
        "sync",
        "info parts",
    ];
    let (played, first) = bench.play(&machine, &before, patience)?;
    let outcome = match &played.verdict {
        Verdict::Killed if played.statuses.iter().all(|(_, status)| *status == 0) => Ok(()),
        other => Err(format!("{other:?}\n{:?}\n{first}", played.statuses)),
    };
    bench.report("the database is built and traversed", outcome);
    let image = crate::check::inspect(&machine.disk);
    bench.report(
        "the image is sound after the cut",
        image.map_err(|error| format!("{error:#}")),
    );
    let after = ["oo1 run parts", "oo1 pdx parts", "oo1 verify parts", "info parts"];
    let (played, second) = bench.play(&machine, &after, Patience::seconds(120))?;
    bench.report(
        "it is found and traversed after the cut",
        expect_success(&played, &second),
    );
    let (old, new) = (checksums(&first), checksums(&second));
    let same = !old.is_empty() && old.iter().all(|word| new.contains(word));
    let seen = format!("before: {old:?}\nafter: {new:?}");
    bench.report("checksums are the same", if same { Ok(()) } else { Err(seen) });
    let (old, new) = (address_of(&first), address_of(&second));
    let same = old.is_some() && old == new;
    bench.report(
        "its address is the same",
        if same {
            Ok(())
        } else {
            Err(format!("{old:?}, then {new:?}\n{second}"))
        },
    );
    Ok(())
}

/// The first address that `info` shows, as text.
fn address_of(output: &str) -> Option<String> {
    let words = output.split(|c: char| c.is_whitespace() || c == ',');
    words
        .rev()
        .find(|word| word.starts_with("0x1") && word.len() >= 11)
        .map(str::to_owned)
}
