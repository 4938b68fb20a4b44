//! The driver against a guest of 100 lines of assembly that behaves, or not, as it is told.
//!
//! Needs QEMU and a C compiler, as `gond` does. Without QEMU the tests pass without having tested anything, and say
//! so: `gond test` sees to it that it is there.

use super::*;
use crate::machine;
use abi::layout::EXCEPTION_RESOURCE;
use std::process::Command;

/// A machine with that guest, in a folder that goes away.
fn machine() -> Option<(Scratch, Machine)> {
    if machine::require_emulator().is_err() {
        eprintln!("no QEMU: nothing tested");
        return None;
    }
    let scratch = Scratch::make().unwrap();
    let (source, kernel, disk) = (scratch.file("guest.s"), scratch.file("guest"), scratch.file("disk"));
    std::fs::write(&source, include_str!("guest.s")).unwrap();
    let built = Command::new("cc")
        .args([
            "-m32",
            "-nostdlib",
            "-static",
            "-Wl,-Ttext=0x100000,--build-id=none",
            "-Wl,-estart",
            "-o",
        ])
        .args([&kernel, &source])
        .status();
    assert!(built.unwrap().success());
    std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let machine = Machine::new(kernel, disk);
    Some((scratch, machine))
}

fn run(lines: &[&str], patience: Patience) -> Option<(Played, String)> {
    let (_scratch, machine) = machine()?;
    let mut output = Vec::new();
    let played = play(&machine, Source::lines(lines.iter().copied()), &mut output, patience).unwrap();
    Some((played, String::from_utf8(output).unwrap()))
}

#[test]
fn lines_are_run_and_comments_are_not() {
    let Some((played, output)) = run(&["e one", "", "  # e two", "  e three  "], Patience::seconds(20)) else {
        return;
    };
    assert_eq!(played.verdict, Verdict::Success);
    assert_eq!(output, " one\n three\n");
    assert_eq!(played.statuses, [("e one".to_owned(), 0), ("e three".to_owned(), 0)]);
    assert!(played.boot_time.is_some());
}

#[test]
fn failures_are_told() {
    let Some((played, _)) = run(&["f 1", "e two", "f 3"], Patience::seconds(20)) else {
        return;
    };
    assert_eq!(
        played.verdict,
        Verdict::Failure("'f 1' failed with status 1 (and 1 more)".into())
    );
    let Some((played, _)) = run(&["s", "e one"], Patience::seconds(20)) else {
        return;
    };
    assert!(matches!(played.verdict, Verdict::Failure(what) if what.contains("what?") && !what.contains('\x1b')));
    assert_eq!(ending(1), "status 1");
    assert_eq!(
        ending(STATUS_SYSTEM + EXCEPTION_RESOURCE),
        "out of memory, account or disk space"
    );
    let Some((played, output)) = run(&["q", "e never"], Patience::seconds(20)) else {
        return;
    };
    assert_eq!(
        played.verdict,
        Verdict::Failure("the system was powered off before 'e never'".into())
    );
    assert_eq!(output, "");
}

#[test]
fn a_reboot_goes_on_with_the_next_line() {
    let Some((played, output)) = run(&["e one", "r", "e two"], Patience::seconds(20)) else {
        return;
    };
    assert_eq!(played.verdict, Verdict::Success);
    assert_eq!(output, " one\n two\n");
    let Some((played, _)) = run(&["f", "r", "e two"], Patience::seconds(20)) else {
        return;
    };
    assert!(matches!(played.verdict, Verdict::Failure(_)));
}

#[test]
fn the_dead_are_told_from_the_silent() {
    for (line, word) in [("x", "reset"), ("p", "panicked"), ("h", "said nothing")] {
        let Some((played, _)) = run(&["e last words", line], Patience::seconds(3)) else {
            return;
        };
        let Verdict::Dead(what) = played.verdict else {
            panic!("{:?}", played.verdict)
        };
        assert!(
            what.contains(word) && what.contains("last words") && what.contains(&format!("'{line}'")),
            "{what}"
        );
    }
}

#[test]
fn the_plug_is_pulled_when_it_should_be() {
    let patience = Patience {
        plug: Plug::AtEnd,
        ..Patience::seconds(20)
    };
    let Some((played, output)) = run(&["e one"], patience) else {
        return;
    };
    assert_eq!((played.verdict, output.as_str()), (Verdict::Killed, " one\n"));
    let patience = Patience {
        plug: Plug::After(Duration::from_millis(800)),
        ..Patience::seconds(20)
    };
    let Some((played, _)) = run(&["h"], patience) else {
        return;
    };
    assert_eq!(played.verdict, Verdict::Killed);
    let patience = Patience {
        total: Some(Duration::from_secs(1)),
        ..Patience::seconds(20)
    };
    let Some((played, _)) = run(&["h"], patience) else {
        return;
    };
    assert!(matches!(played.verdict, Verdict::Dead(what) if what.contains("too long")));
}

#[test]
fn a_script_with_a_line_too_long_fails() {
    let scratch = Scratch::make().unwrap();
    let file = scratch.file("script");
    std::fs::write(&file, format!("e one\ne {}\ne two\n", "x".repeat(host::LINE_BYTES))).unwrap();
    let Some((_scratch, machine)) = machine() else { return };
    let mut output = Vec::new();
    let played = play(
        &machine,
        Source::open(&file).unwrap(),
        &mut output,
        Patience::seconds(20),
    )
    .unwrap();
    assert_eq!(output, b" one\n");
    assert!(matches!(played.verdict, Verdict::Failure(what) if what.contains("line 2")));
}

#[test]
fn an_emulator_that_fails_is_told() {
    let Some((_scratch, mut machine)) = machine() else {
        return;
    };
    machine.disk = "/nonexistent/disk".into();
    let told = match play(&machine, Source::lines(["e"]), &mut Vec::new(), Patience::seconds(5)) {
        Ok(Played {
            verdict: Verdict::Dead(what),
            ..
        }) => what,
        Ok(other) => panic!("{other:?}"),
        Err(error) => format!("{error:#}"),
    };
    assert!(told.contains("/nonexistent/disk"), "{told}");
}

#[test]
fn long_lines_are_told_by_their_beginning() {
    assert_eq!(shortened("create a 4K"), "create a 4K");
    let long = "ä".repeat(LINE_CHARACTERS);
    assert_eq!(shortened(&long), long);
    assert_eq!(shortened(&format!("{long}b")), format!("{long} …"));
}
