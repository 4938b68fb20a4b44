//! A person at the terminal.

use alloc::{string::String, vec::Vec};

use abi::layout::BootReport;
use rt::{
    console::{Stream, read, write_bytes},
    println, system,
};

use crate::{
    Recovered,
    ahead::{Ahead, KEPT},
    attention::Listening,
    commands::{self, Shell},
    editor::{Editor, Event, LONGEST},
    guard::guarded,
    text::{self, Bytes, Nanoseconds},
};

const PROMPT: &str = "gondwana> ";

/// Reads lines and does what they say until the input ends, or the user leaves a shell that another shell has started.
pub fn converse(shell: &mut Shell) {
    let mut editor = Editor::new(PROMPT);
    let mut out = String::new();
    editor.draw(&mut out);
    let mut ahead = Ahead::default();
    loop {
        show(&mut out);
        let mut input = [0; 64];
        match read(Stream::Terminal, &mut input) {
            Ok(0) | Err(_) => return,
            Ok(count) => ahead.extend(input.into_iter().take(count)),
        }
        while let Some(byte) = ahead.next() {
            let complete = |before: &str| complete(shell, before);
            match editor.feed(byte, &complete, &mut out) {
                Event::None => continue,
                Event::Line(line) => {
                    show(&mut out);
                    let listening = Listening::begin(&ahead);
                    shell.run_line(&line);
                    if listening.end(&mut ahead) {
                        println!(
                            "Of what is typed ahead {} are kept; the lines behind it are discarded.",
                            Bytes(KEPT as u64)
                        );
                    }
                    if shell.leaving {
                        return;
                    }
                }
                Event::TooLong => {
                    show(&mut out);
                    println!("The line is longer than {LONGEST} characters; nothing of it is done.");
                }
                Event::Interrupted => {}
                Event::End if shell.nested => {
                    out.push('\n');
                    return show(&mut out);
                }
                Event::End => println!("\n(poweroff ends the system; Ctrl-A X pulls the plug)"),
            }
            editor.draw(&mut out);
        }
    }
}

/// The first words of the first shell: how the system was found.
pub fn greet(boot: &BootReport, recovered: &Recovered) {
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
    if let Some(error) = recovered.left {
        println!(
            "Some names that were being made or removed when the power failed are left as they are: {error}. The next start after a power cut \
             tries again."
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
    let (start, word) = text::last_word(before);
    let (place, typed) = (shell.place.clone(), word.clone());
    let mut all = guarded("shell", move || place.names_with_prefix(&typed)).unwrap_or_default();
    if matches!(before[..start].trim(), "" | "help" | "time") {
        all.extend(
            commands::names()
                .filter(|name| name.starts_with(&word))
                .map(String::from),
        );
    }
    all.sort_unstable();
    all.dedup();
    (start, all)
}
