//! `gond module`: builds, describes, shows and compares modules, and runs them in a process of the host.

pub mod bench;
pub mod describe;
pub mod header;
pub mod host;
pub mod make;
mod output;
pub mod show;
pub mod sources;
pub mod symbols;
mod system;
mod twins;

use linker::module::window::Window;
use output::Kind;
use std::path::{Path, PathBuf};

/// Flags of gcc for objects that become modules: the data register is left alone, code is position-independent
/// with calls to others through a table, their variables too; equal functions are not folded, because debug
/// information then has only one of them; a stack protector would need storage of the thread; debug information says how arguments
/// are passed. The name that is defined is for headers of inline calls, which do nothing elsewhere. The folder has headers that leave the data register alone.
pub const GCC_FLAGS: [&str; 12] = [
    "-ffixed-rbx",
    "-fpie",
    "-fno-plt",
    "-mno-direct-extern-access",
    "-fcf-protection=none",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-ipa-icf",
    "-fno-stack-protector",
    "-g",
    "-D__gond_module__",
    concat!("-isystem", env!("CARGO_MANIFEST_DIR"), "/../../bench/link/include"),
];

/// Also what the script `gond` shows, which builds nothing for it.
const HELP: &str = include_str!("help.txt");

/// Does what the words ask for; the exit status.
pub fn command(words: &[String]) -> i32 {
    let mut words = words.iter().map(String::as_str);
    let verb = words.next().unwrap_or("help");
    if words.clone().any(|word| matches!(word, "--help" | "-h")) {
        print!("{}", help_of(verb));
        return 0;
    }
    let rest = match Words::parse(verb, words) {
        Ok(rest) => rest,
        Err(why) => {
            eprintln!("gond module: {why}");
            return 2;
        }
    };
    let done = match verb {
        "build" => build(&rest),
        "describe" => describe::command(&rest),
        "header" => header::command(&rest),
        "show" => show::show(&rest),
        "diff" => return show::diff(&rest),
        "symbols" => symbols::command(&rest),
        "run" => return run(&rest),
        "bench" => bench::command(&rest),
        "system" => system::command(&rest),
        "twins" => twins::command(&rest),
        "flags" => {
            println!("{}", GCC_FLAGS.join(" "));
            Ok(())
        }
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("gond module: '{verb}' is unknown; 'gond module help' lists what there is");
            return 2;
        }
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("{why}");
            1
        }
    }
}

/// The lines of the help that are of a verb; all of them if it has none.
fn help_of(verb: &str) -> String {
    let head = format!("  gond module {verb} ");
    let from = HELP.lines().skip_while(|line| !format!("{line} ").starts_with(&head));
    let first = from.clone().take(1);
    let more = from.skip(1).take_while(|line| line.starts_with("      "));
    let lines: Vec<&str> = first.chain(more).collect();
    if lines.is_empty() {
        return HELP.to_string();
    }
    lines.join("\n") + "\n"
}

/// The words of a command, sorted.
#[derive(Default)]
pub struct Words {
    /// Those that are no options.
    pub files: Vec<PathBuf>,
    /// `--in`.
    pub folders: Vec<PathBuf>,
    /// `--import`.
    pub imports: Vec<PathBuf>,
    /// `--window`.
    pub window: Option<PathBuf>,
    /// `-o`.
    pub output: Option<PathBuf>,
    /// `--rest`.
    pub rest: Option<PathBuf>,
    /// `--name`.
    pub name: Option<String>,
    /// `--version`.
    pub version: Option<String>,
    /// `--host`.
    pub host: Option<PathBuf>,
    /// `--call`.
    pub call: Option<String>,
    /// `--with`.
    pub with: u64,
    /// `--runs`.
    pub runs: Option<usize>,
    /// `--from`.
    pub from: Option<PathBuf>,
    /// `--at`.
    pub at: Option<u64>,
    /// `--data`.
    pub data: Option<u64>,
    /// `--trap`.
    pub trap: bool,
    /// `--json`.
    pub json: bool,
}

impl Words {
    fn parse<'a>(verb: &str, mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut result = Self::default();
        while let Some(word) = words.next() {
            if word == "--json" {
                result.json = true;
                continue;
            }
            if word == "--trap" {
                result.trap = true;
                continue;
            }
            if !word.starts_with('-') {
                result.files.push(word.into());
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word {
                "--in" => result.folders.push(value.into()),
                "--import" => result.imports.push(value.into()),
                "--window" => result.window = Some(value.into()),
                "-o" => result.output = Some(value.into()),
                "--rest" => result.rest = Some(value.into()),
                "--name" => result.name = Some(value.into()),
                "--version" => result.version = Some(value.into()),
                "--host" => result.host = Some(value.into()),
                "--call" => result.call = Some(value.into()),
                "--from" => result.from = Some(value.into()),
                "--at" => result.at = Some(number(word, value)?),
                "--data" => result.data = Some(number(word, value)?),
                "--with" => result.with = number(word, value)?,
                "--runs" => result.runs = Some(number(word, value)? as usize),
                _ => return Err(format!("{word} is unknown; 'gond module help' lists what there is")),
            }
        }
        let wanted = match verb {
            "build" | "show" | "symbols" => Some(1),
            "diff" => Some(2),
            _ => None,
        };
        match wanted {
            Some(wanted) if wanted != result.files.len() => Err(format!(
                "{verb} needs {wanted} file(s); 'gond module {verb} --help' tells more"
            )),
            _ => Ok(result),
        }
    }
}

fn number(word: &str, value: &str) -> Result<u64, String> {
    let parsed = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    parsed.map_err(|_| format!("{word} needs a number, not '{value}'"))
}

/// Loads modules and calls an export of the last; the exit status.
fn run(words: &Words) -> i32 {
    match call(words) {
        Ok(result) => result as i32,
        Err(why) => {
            eprintln!("{why}");
            126
        }
    }
}

fn call(words: &Words) -> Result<u64, String> {
    let task = host::Task::new(host::Binding::Eager);
    if let Some(host) = &words.host {
        let description = make::describe(host).map_err(|error| error.to_string())?;
        task.add_foreign(&description).map_err(|error| error.to_string())?;
    }
    let mut last = String::new();
    for path in &words.files {
        let bytes = make::read(path).map_err(|error| error.to_string())?;
        let library = host::Library::load(&path.display().to_string(), bytes).map_err(|error| error.to_string())?;
        last = library.module().name().to_string();
        task.add(&library);
    }
    let export = words.call.as_deref().ok_or("gond module: run needs --call NAME")?;
    let number = task.instance(&last).map_err(|error| error.to_string())?;
    if words.trap {
        host::trap();
    }
    let result = task.call(number, export, [words.with, 0, 0, 0]);
    result.ok_or_else(|| format!("{last} exports no '{export}'"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// The folder of a file that need not be there.
fn folder_of(path: &Path) -> Result<PathBuf, String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    folder
        .canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn build(words: &Words) -> Result<(), String> {
    let list = words.window.clone().unwrap_or_else(|| "modules.window".into());
    let text = match std::fs::read_to_string(&list) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", list.display())),
    };
    let mut window = Window::parse(&list.display().to_string(), &text).map_err(|fault| fault.to_string())?;
    let (description, built) =
        make::make(&words.files[0], &words.folders, &mut window).map_err(|error| error.to_string())?;
    let output = words
        .output
        .clone()
        .unwrap_or_else(|| format!("{}.mm", description.name).into());
    if output.file_name() == list.file_name() && folder_of(&output)? == folder_of(&list)? {
        return Err(format!(
            "{}: it is the list of addresses: name another file with -o",
            list.display()
        ));
    }
    output::write(&output, Kind::Module, &built.object)?;
    // The address is given only when there is something at it.
    write(&list, window.to_string().as_bytes())?;
    println!(
        "{}: {} bytes; functions {}, of these {} with data of their instance, {} with a thunk",
        output.display(),
        built.object.len(),
        built.functions,
        built.private_functions,
        built.thunks
    );
    Ok(())
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
        let known = script
            .lines()
            .find(|line| line.trim_start().starts_with("known module "));
        let known: Vec<&str> = known.expect("a line of known words").split(' ').collect();
        for line in HELP.lines() {
            let word = line
                .strip_prefix("  gond module ")
                .and_then(|rest| rest.split(' ').next());
            assert!(word.is_none_or(|word| known.contains(&word)), "{line}");
        }
    }
}
