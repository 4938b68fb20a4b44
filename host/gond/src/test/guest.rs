//! Stages `suite`, `nucleus` and `power`: the suite inside the system with programs that share libraries, that of the bare µ-kernel, and the OO1 database
//! across a power cut.

use super::{Bench, expect_success, play};
use crate::machine::{self, End, Machine};
use crate::script::{Patience, Plug, Verdict};
use crate::{bare, build, tour};
use anyhow::Result;
use std::time::Duration;

/// The suite may take long: it makes over a million calls.
const SUITE_TOTAL: Duration = Duration::from_mins(10);

/// The cases in the suite's output: a line `ok NAME` or `FAILED NAME: why` for each. For each its name, and
/// `Some(why)` if it failed.
pub fn suite_cases(output: &str) -> Vec<(String, Option<String>)> {
    let case = |line: &str| {
        if let Some(name) = line.strip_prefix("ok ") {
            return Some((name.trim().to_owned(), None));
        }
        let (name, why) = line.strip_prefix("FAILED ")?.split_once(": ")?;
        Some((name.trim().to_owned(), Some(why.trim().to_owned())))
    };
    output.lines().filter_map(case).collect()
}

/// The machines that the suite runs on: processors, and its line. Everything random is done at length once, and on as
/// many processors as the kernel takes only what is about several.
const SUITES: [(u32, &str); 4] = [
    (2, "suite"),
    (1, "suite --calls 50000"),
    (4, "suite --calls 50000"),
    (PROCESSORS_MAX, "suite --only parallel"),
];
/// Processors that the kernel can use. More than the host has are slow.
const PROCESSORS_MAX: u32 = 16;
/// The machines that the suite of the bare µ-kernel runs on: processors, MiB of memory, and more words for its command line. The last
/// has memory for pages of 1 GiB.
const NUCLEUS_SUITES: [(u32, u64, &str); 4] = [
    (1, 128, "calls=100000"),
    (4, 128, "calls=20000"),
    (PROCESSORS_MAX, 128, "calls=5000"),
    (1, 4096, "only=spaces/"),
];

/// Stage `suite`.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    for (processors, line) in SUITES {
        let mut machine = bench.fresh_machine(&format!("suite-{processors}.img"))?;
        machine.processors = processors;
        suite_on(bench, &machine, line)?;
    }
    run_libraries(bench)
}

/// Programs that share libraries as modules: the line, and what it prints. Each library is used by three of them.
const SHARING: [(&str, &str); 6] = [
    ("luai \"('x'):rep(3)\" 'math.floor(2^0.5 * 1e6)'", "xxx\n1414213\n"),
    ("luacalc 'squared(x) // 2'", "169150, asked 100 times\n"),
    ("luasort pear fig apple", "fig pear apple\n"),
    (
        "sqlrows 'create table t(a, b); insert into t values (1, 2.5), (2, NULL)' 'select * from t order by a desc'",
        "2|\n1|2.5\n2 rows\n",
    ),
    ("sqlprimes 1000", "168 primes, the last is 997, asked 999 times\n"),
    (
        "luasql \"sql('create table t(n); insert into t values (20), (22)')\" \"print(sql('select sum(n) as s from t')[1].s)\"",
        "42\n",
    ),
];

/// Installs the libraries and their programs, and runs these.
fn run_libraries(bench: &mut Bench<'_>) -> Result<()> {
    let machine = bench.fresh_machine("libraries.img")?;
    let install =
        "module install rt.mm libc.mm lua.mm luai.mm luacalc.mm luasort.mm sqlite.mm sqlrows.mm sqlprimes.mm luasql.mm";
    let mut lines = vec![install];
    for (line, _) in &SHARING {
        lines.extend(["echo begin", line, "echo end"]);
    }
    let (played, output) = play(&machine, &lines, Patience::seconds(120))?;
    bench.report(
        "the libraries are installed, and all programs end well",
        expect_success(&played, &output),
    );
    let mut printed = output
        .split("begin\n")
        .skip(1)
        .map(|rest| rest.split("end\n").next().unwrap_or_default());
    for (line, expected) in &SHARING {
        let name = line.split_whitespace().next().unwrap_or_default();
        let found = printed.next().unwrap_or_default();
        let outcome = if found == *expected {
            Ok(())
        } else {
            Err(format!("'{line}' printed '{found}', not '{expected}'"))
        };
        bench.report(&format!("libraries are shared: {name}"), outcome);
    }
    Ok(())
}

/// Plays the suite on a machine by this line and reports its cases.
pub fn suite_on(bench: &mut Bench<'_>, machine: &Machine, line: &str) -> Result<()> {
    let processors = machine.processors;
    let patience = Patience {
        total: Some(SUITE_TOTAL),
        ..Patience::seconds(120)
    };
    let named = |name: &str| format!("{name} (processors: {processors})");
    // The `echo` proves that the system is usable after all that was done to it.
    let (played, output) = play(machine, &[line, "echo still here"], patience)?;
    let all = suite_cases(&output);
    for (name, why) in &all {
        bench.report(&named(name), why.clone().map_or(Ok(()), Err));
    }
    if all.is_empty() {
        bench.report(
            &named("the suite has cases"),
            Err(format!("no line 'ok NAME' in its output:\n{output}")),
        );
    }
    if all.iter().all(|(_, why)| why.is_none()) {
        bench.report(&named("the suite ends well"), expect_success(&played, &output));
    }
    let usable = output.lines().last() == Some("still here");
    bench.report(
        &named("the system is usable afterwards"),
        if usable { Ok(()) } else { Err(output) },
    );
    Ok(())
}

/// Stage `nucleus`.
pub fn run_nucleus(bench: &mut Bench<'_>) -> Result<()> {
    machine::require_emulator()?;
    let kernel = build::kernel(bench.root(), build::Profile::Guest, build::Kernel::Bare)?;
    let program = build::root_program("nucleus-suite")?;
    for (processors, memory, words) in NUCLEUS_SUITES {
        let mut machine = bare::machine(&kernel, &program, &bench.scratch)?;
        machine.processors = processors;
        machine.card = true;
        machine.memory = memory << 20;
        machine.words.push(words.to_owned());
        let named = |name: &str| format!("{name} (processors: {processors}, MiB: {memory})");
        let (end, output) = bare::run(&machine, &bench.scratch, SUITE_TOTAL, &mut bench.job)?;
        for (name, why) in suite_cases(&output) {
            bench.report(&named(&name), why.map_or(Ok(()), Err));
        }
        let counted = output.lines().rev().any(|line| line.contains(" passed, "));
        let whole = match end {
            End::Success | End::Failure if counted => Ok(()),
            end => Err(format!("it ended with {end:?}; the kernel's log:\n{output}")),
        };
        bench.report(&named("the suite comes to its end"), whole);
    }
    Ok(())
}

/// The checksums in a program's output: words of 16 hexadecimal digits.
fn checksums(output: &str) -> Vec<&str> {
    output
        .split_whitespace()
        .filter(|word| word.starts_with("0x") && word.len() == 18)
        .collect()
}

/// Stage `power`: the database is built, traversed, kept; the plug is pulled; it is found again at its address
/// and traversed along the same pointers, from its own domain and from another.
pub fn run_power(bench: &mut Bench<'_>) -> Result<()> {
    let inside = bench.fresh_machine("power.img")?;
    power_on(bench, &inside, "")?;
    let server = build::server(build::Profile::Guest)?;
    let outside = bench.fresh_machine("power-outside.img")?.with_server(server);
    power_on(bench, &outside, " (server: outside)")
}

/// Pulls the plug of this machine.
fn power_on(bench: &mut Bench<'_>, machine: &Machine, note: &str) -> Result<()> {
    let named = |name: &str| format!("{name}{note}");
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
    let (played, first) = play(machine, &before, patience)?;
    let outcome = match &played.verdict {
        Verdict::Killed if played.statuses.iter().all(|(_, status)| *status == 0) => Ok(()),
        other => Err(format!("{other:?}\n{:?}\n{first}", played.statuses)),
    };
    bench.report(&named("the database is built and traversed"), outcome);
    let image = crate::check::inspect(&machine.disk);
    bench.report(
        &named("the image is sound after the cut"),
        image.map_err(|error| format!("{error:#}")),
    );
    let after = ["oo1 run parts", "oo1 pdx parts", "oo1 verify parts", "info parts"];
    let (played, second) = play(machine, &after, Patience::seconds(120))?;
    bench.report(
        &named("it is found and traversed after the cut"),
        expect_success(&played, &second),
    );
    let (old, new) = (checksums(&first), checksums(&second));
    let same = old.len() >= 10 && old.iter().all(|word| new.contains(word));
    let seen = format!("before: {old:?}\nafter: {new:?}");
    bench.report(&named("checksums are the same"), if same { Ok(()) } else { Err(seen) });
    let (old, new) = (address_of(&first), address_of(&second));
    let same = old.is_some() && old == new;
    bench.report(
        &named("its address is the same"),
        if same {
            Ok(())
        } else {
            Err(format!("{old:?}, then {new:?}\n{second}"))
        },
    );
    Ok(())
}

/// Stage `tour`: what the README shows is what a user sees, but for numbers that vary.
pub fn run_tour(bench: &mut Bench<'_>) -> Result<()> {
    let played = tour::play(&mut |what| bench.step(what))?;
    let shown = tour::shown(bench.root())?;
    let same = tour::is_same(&played, &shown);
    let told = format!("'./gond tour --update' would put this there:\n{played}");
    bench.report(
        "the README's tour is what happens",
        if same { Ok(()) } else { Err(told) },
    );
    Ok(())
}

/// The address that `info` shows.
fn address_of(output: &str) -> Option<&str> {
    output
        .lines()
        .find_map(|line| line.strip_prefix("address"))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_parsed() {
        let output = "suite: seed 0x1\nok objects::one\nFAILED pdx::two: 3: not 4 (seed 0x1)\n1 passed, 1 failed\n";
        let all = suite_cases(output);
        assert_eq!(all[0], ("objects::one".into(), None));
        assert_eq!(all[1], ("pdx::two".into(), Some("3: not 4 (seed 0x1)".into())));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn checksums_and_addresses_are_found() {
        let output = "  lookup  123  0x64009d69be2623a3\naddress       0x102000000\n";
        assert_eq!(checksums(output), ["0x64009d69be2623a3"]);
        assert_eq!(address_of(output), Some("0x102000000"));
    }
}
