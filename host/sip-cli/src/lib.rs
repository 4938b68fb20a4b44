//! `gond sip`: the engine on the host. `run` starts programs (WASI preview 1), alone or joined by a
//! channel; `compile` keeps their compiled images; `check` says what a module imports and whether its code is proved; `contract` checks a
//! contract and makes its bindings; `bench` measures; `new` makes a project that works.
//!
//! [`command`] is the whole interface: `gond` passes what stands after `sip` and exits with its
//! status. Errors go to standard error with the file's name; the status is the program's own, 134
//! after a trap, 1 for a file that is no good, 2 for a command that is not understood.

mod bench;
mod bindings;
mod check;
mod files;
mod host;
mod image;
mod project;
mod run;

use sip::compile::{Bounds, Options};

/// Also what the script `gond` shows, which builds nothing for it.
const HELP: &str = include_str!("help.txt");

/// The result of a command: the exit status, or a sentence and the status.
type Outcome = Result<i32, (String, i32)>;

/// Runs `gond sip` with these words; returns the exit status.
pub fn command(words: &[String]) -> i32 {
    let outcome = match words.split_first() {
        None => Ok(print(HELP)),
        Some((first, rest))
            if rest
                .iter()
                .take_while(|word| *word != "--")
                .any(|word| word == "--help") =>
        {
            let known = ["run", "compile", "check", "contract", "new", "bench"].contains(&first.as_str());
            if known { Ok(print(HELP)) } else { Err(unknown(first)) }
        }
        Some((first, rest)) => match first.as_str() {
            "help" | "--help" | "-h" => Ok(print(HELP)),
            "run" => run::command(rest),
            "compile" => image::command(rest),
            "bench" => bench::command(rest),
            "check" => check::command(rest),
            "contract" => bindings::command(rest),
            "new" => project::command(rest),
            other => Err(unknown(other)),
        },
    };
    outcome.unwrap_or_else(|(text, status)| {
        eprintln!("gond sip: {text}");
        status
    })
}

fn print(text: &str) -> i32 {
    print!("{text}");
    0
}

fn unknown(word: &str) -> (String, i32) {
    (format!("there is no command '{word}'; 'gond sip help' lists them"), 2)
}

/// A mistake in the words of a command.
fn misused(text: &str) -> (String, i32) {
    (format!("{text}; 'gond sip help' says how"), 2)
}

fn read(file: &str) -> Result<Vec<u8>, (String, i32)> {
    std::fs::read(file).map_err(|error| (format!("{file}: {error}"), 1))
}

fn read_contract(file: &str) -> Result<sip::contract::Contract, (String, i32)> {
    let fail = |text: String| (format!("{file}: {text}"), 1);
    let text = String::from_utf8(read(file)?).map_err(|error| fail(error.to_string()))?;
    sip::contract::Contract::parse(&text).map_err(|error| fail(error.to_string()))
}

fn explicit() -> Options {
    Options {
        bounds: Bounds::Explicit,
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::HELP;

    #[test]
    fn the_help_fits_a_terminal() {
        let long: Vec<&str> = HELP.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
    }

    /// The script refuses other words before it builds anything.
    #[test]
    fn the_script_knows_all_commands() {
        let script = include_str!("../../../gond");
        let known = script.lines().find(|line| line.trim_start().starts_with("known sip "));
        let known: Vec<&str> = known.expect("a line of known words").split(' ').collect();
        for line in HELP.lines() {
            let word = line.strip_prefix("  gond sip ").and_then(|rest| rest.split(' ').next());
            assert!(word.is_none_or(|word| known.contains(&word)), "{line}");
        }
    }
}
