//! Snapshots by the shell's command: what it says, what `gond snapshot` finds afterwards, and blocks that come back.

use super::{Stand, gond, mebibytes, name};
use anyhow::Result;

/// Lines that must fail, and a part of the sentence.
const REFUSED: &[(&str, &str)] = &[
    ("snapshot", "usage: snapshot keep NAME | ls | drop NAME"),
    ("snapshot keep", "usage: snapshot keep NAME | ls | drop NAME"),
    ("snapshot rollback one", "usage: snapshot keep NAME | ls | drop NAME"),
    (
        "snapshot keep one",
        "there is a snapshot 'one'; 'snapshot drop one' makes room",
    ),
    ("snapshot keep -one", "'-one' is not a name of a snapshot"),
    (
        "snapshot keep 0123456789abcdef0123456789abcdef",
        "is not a name of a snapshot",
    ),
    (
        "snapshot drop two",
        "there is no snapshot 'two'; 'snapshot ls' lists them",
    ),
];

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    let machine = stand.bench.fresh_machine("states.img")?;
    let mut states = Stand {
        disk: machine.disk,
        script: stand.script.clone(),
        bench: stand.bench,
    };
    let disk = name(&states.disk)?;
    let ran = states.play(
        "snapshot ls\ncreate first 64K\nwrite first 0 before\nsnapshot keep one\nwrite first 0 after\nsnapshot ls\ncat first\n",
    )?;
    let lines: Vec<&str> = ran.output.lines().collect();
    let is_told = ran.status == Some(0)
        && matches!(lines[..], ["there are no snapshots", made, "kept 'one'", head, one, "after", ..]
            if made.starts_with("first: ") && head.starts_with("name") && one.starts_with("one ") && !one.contains("damaged"));
    let outcome = if is_told { Ok(()) } else { ran.expect(0, "…") };
    states.bench.report("the shell keeps a snapshot and lists it", outcome);

    let out = states.bench.file("state");
    let exported = gond(&["export", &disk, "first", &name(&out)?, "--snapshot", "one"])?;
    let held = std::fs::read(&out).unwrap_or_default();
    let outcome = match exported.status {
        Some(0) if held.starts_with(b"before\n") => Ok(()),
        _ => exported.expect(0, "before"),
    };
    states.bench.report("it holds what was there then", outcome);

    let lines: Vec<&str> = REFUSED.iter().map(|(line, _)| *line).collect();
    let ran = states.play(&format!("{}\n", lines.join("\n")))?;
    let told = format!("{}{}", ran.output, ran.complaints);
    let missing = REFUSED.iter().find(|(_, says)| !told.contains(says));
    let outcome = match missing {
        None if ran.status == Some(1) => Ok(()),
        _ => Err(format!("{missing:?}\n{told}")),
    };
    states
        .bench
        .report("what cannot be done with a snapshot is told", outcome);

    // 8 MiB that only the snapshot holds.
    let large = states.bench.file("large");
    std::fs::write(&large, vec![7; 8 << 20])?;
    gond(&["import", &disk, &name(&large)?, "large"])?
        .expect(0, "")
        .map_err(anyhow::Error::msg)?;
    let ran =
        states.play("snapshot keep two\nrm large\nsleep 4\nmem\nsnapshot drop two\nsleep 4\nmem\nsnapshot ls\n")?;
    let free: Vec<f64> = ran
        .output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("free").and_then(mebibytes))
        .collect();
    let came_back = matches!(free[..], [held, back] if back > held + 7.5);
    let rests = !ran.output.contains("still coming back");
    let outcome = match ran.status {
        Some(0) if came_back && rests => Ok(()),
        _ => ran.expect(0, "… 8 MiB more …"),
    };
    states
        .bench
        .report("what only a dropped snapshot held is free within seconds", outcome);
    let checked = gond(&["check", &disk])?;
    let outcome = if checked.status == Some(0) {
        Ok(())
    } else {
        checked.expect(0, "")
    };
    states.bench.report("check finds the image sound", outcome);
    Ok(())
}
