//! A person at the terminal.

use alloc::{string::String, vec::Vec};

use abi::layout::BootReport;
use rt::{
    console::{Stream, read, write_bytes},
    println,
    system::{self, Outcome},
};

use crate::{
    commands::{self, Shell},
    editor::{Editor, Event},
    text::Nanoseconds,
};

const PROMPT: &str = "gondwana> ";

/// Reads lines and does what they say until the system goes down.
pub fn converse(shell: &mut Shell, boot: &BootReport) {
    greet(boot);
    let mut editor = Editor::new(PROMPT);
    let mut out = String::new();
    editor.draw(&mut out);
    loop {
        show(&mut out);
        let mut input = [0; 64];
        let count = match read(Stream::Terminal, &mut input) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        for byte in input.iter().take(count) {
            let complete = |before: &str| complete(shell, before);
            match editor.feed(*byte, &complete, &mut out) {
                Event::None => continue,
                Event::Line(line) => {
                    show(&mut out);
                    shell.run_line(&line);
                }
                Event::Interrupted => {}
                Event::End => println!("\n(poweroff ends the system; Ctrl-A X pulls the plug)"),
            }
            editor.draw(&mut out);
        }
    }
    // The terminal is gone, and with it the only one who could say anything else.
    if let Err(error) = system::power_off(Outcome::Success) {
        println!("poweroff: {error}");
    }
}

fn greet(boot: &BootReport) {
    // A disk that is known to have lost something stable is refused at start.
    let last = match (boot.clean, system::store().map_or(0, |store| store.cut)) {
        (1, _) => "",
        (_, 0) => "; the power had failed, nothing that was stable is lost",
        _ => "; the power had failed during a sync, which is undone; what was stable before is there",
    };
    println!(
        "Gondwana. Up in {} on {} processor(s){last}.",
        Nanoseconds(boot.boot_ns),
        boot.processors
    );
    println!("help lists the commands; Ctrl-C ends a running program; poweroff ends the system.");
}

fn show(out: &mut String) {
    write_bytes(Stream::Terminal, out.as_bytes());
    out.clear();
}

/// What the last word of a line can become: a name, or a command where one may stand.
fn complete(shell: &Shell, before: &str) -> (usize, Vec<String>) {
    let start = before.rfind(' ').map_or(0, |at| at + 1);
    let word = &before[start..];
    let mut all = shell.place.names_with_prefix(word);
    if matches!(before[..start].trim(), "" | "help" | "time") {
        all.extend(
            commands::names()
                .filter(|name| name.starts_with(word))
                .map(String::from),
        );
    }
    all.sort_unstable();
    all.dedup();
    (start, all)
}
