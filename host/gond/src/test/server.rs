//! Stage `server`: the server as a program outside of the kernel. It does what the one inside does, and when it crashes
//! it crashes alone.

use super::{Bench, guest, play};
use crate::build;
use crate::script::{Patience, Verdict};
use anyhow::{Context, Result};

/// The server's first instructions for an event (`sasos/program/src/arch/x86_64.rs`): four pushes, a move.
const ENTRY: [u8; 10] = [0x41, 0x55, 0x41, 0x55, 0x41, 0x54, 0x53, 0x4c, 0x89, 0xd1];
/// The bytes that are put there: an invalid instruction, and a jump to nowhere.
const BROKEN: [(&str, &[u8], &str); 2] = [
    ("an illegal instruction", &[0x0f, 0x0b], "exception 6"),
    (
        "a wild access",
        &[0x8a, 0x04, 0x25, 0x00, 0x00, 0x00, 0x00],
        "exception 14",
    ),
];

/// The suite, with fewer calls at random than the stage `suite` makes: here each costs more.
const SUITE: &str = "suite --calls 300000";

/// Runs the stage.
pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let server = build::server(build::Profile::Guest)?;
    let machine = bench.fresh_machine("server.img")?.with_server(server.clone());
    guest::suite_on(bench, &machine, SUITE)?;

    let program =
        std::fs::read(&server.program).with_context(|| format!("cannot read {}", server.program.display()))?;
    for (what, code, exception) in BROKEN {
        let mut broken = program.clone();
        let places: Vec<usize> = (0..broken.len() - ENTRY.len())
            .filter(|&at| broken[at..].starts_with(&ENTRY))
            .collect();
        let &[at] = places.as_slice() else {
            bench.report(
                "the server's entry is found",
                Err(format!("{} places look like it", places.len())),
            );
            return Ok(());
        };
        broken[at..at + code.len()].copy_from_slice(code);
        let path = bench.file("broken-server");
        std::fs::write(&path, broken).with_context(|| format!("cannot write {}", path.display()))?;
        let machine = bench.fresh_machine("broken.img")?.with_server(build::Server {
            program: path,
            ..server.clone()
        });
        let (played, _) = play(&machine, &["echo never"], Patience::seconds(60))?;
        bench.report(
            &format!("{what} in the server is contained and reported"),
            contained(&played.verdict, exception),
        );
        let image = crate::check::inspect(&machine.disk);
        bench.report(
            &format!("the image is sound after {what}"),
            image.map_err(|error| format!("{error:#}")),
        );
        std::fs::remove_file(&machine.disk)?;
    }
    Ok(())
}

/// Whether a run ended with a report of the server's crash that has what is needed to find its cause.
fn contained(verdict: &Verdict, exception: &str) -> Result<(), String> {
    let Verdict::Dead(told) = verdict else {
        return Err(format!("it ended with {verdict:?}"));
    };
    let wanted = [
        abi::host::SERVER_CRASHED,
        exception,
        "it was doing",
        "rip ",
        "r15 ",
        "the kernel is sound",
    ];
    match wanted.iter().find(|part| !told.contains(**part)) {
        Some(part) => Err(format!("'{part}' is not in\n{told}")),
        None => Ok(()),
    }
}
