//! A person at the terminal.

use alloc::{collections::VecDeque, string::String, vec::Vec};

use abi::layout::BootReport;
use rt::{
    console::{Stream, read, write_bytes},
    println,
    system::{self, Outcome},
};

use crate::{Recovered, attention::Listening};
use crate::{
    commands::{self, Shell},
    editor::{Editor, Event},
    guard::guarded,
    text::Nanoseconds,
};

const PROMPT: &str = "gondwana> ";

/// Reads lines and does what they say until the system goes down.
pub fn converse(shell: &mut Shell, boot: &BootReport, recovered: &Recovered) {
    greet(boot, recovered);
    let mut editor = Editor::new(PROMPT);
    let mut out = String::new();
    editor.draw(&mut out);
    // Bytes that have come and were not looked at yet.
    let mut waiting = VecDeque::new();
    loop {
        show(&mut out);
        if waiting.is_empty() {
            let mut input = [0; 64];
            match read(Stream::Terminal, &mut input) {
                Ok(0) | Err(_) => break,
                Ok(count) => waiting.extend(input.iter().take(count)),
            }
        }
        while let Some(byte) = waiting.pop_front() {
            let complete = |before: &str| complete(shell, before);
            match editor.feed(byte, &complete, &mut out) {
                Event::None => continue,
                Event::Line(line) => {
                    show(&mut out);
                    let listening = Listening::begin();
                    shell.run_line(&line);
                    waiting.extend(listening.end());
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

fn greet(boot: &BootReport, recovered: &Recovered) {
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
    if recovered.names > 0 {
        println!(
            "{} name(s) are gone that were being made or removed when the power failed.",
            recovered.names
        );
    }
    for (what, error) in damaged(recovered) {
        println!("The {what} is damaged: {error}. Power off; './gond mend IMAGE' rebuilds it from what is left.");
    }
    println!("help lists the commands; Ctrl-C ends a running program; poweroff ends the system.");
}

/// The input that the shell cannot read.
fn damaged(recovered: &Recovered) -> Vec<(&'static str, rt::Error)> {
    let looked = guarded("shell", || {
        let directory = rt::Directory::root().err().map(|error| ("root directory", error));
        let clist = rt::Clist::root().err().map(|error| ("root Clist", error));
        clist.into_iter().chain(directory).collect::<Vec<_>>()
    });
    let mut all = looked.unwrap_or_default();
    if all.is_empty() {
        all.extend(recovered.failed.map(|error| ("root directory", error)));
    }
    all
}

fn show(out: &mut String) {
    write_bytes(Stream::Terminal, out.as_bytes());
    out.clear();
}

/// The names that the last word of a line can become, and the commands where one may stand.
fn complete(shell: &Shell, before: &str) -> (usize, Vec<String>) {
    let start = before.rfind(' ').map_or(0, |at| at + 1);
    let word = &before[start..];
    let (place, typed) = (shell.place.clone(), String::from(word));
    let mut all = guarded("shell", move || place.names_with_prefix(&typed)).unwrap_or_default();
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
