//! Lines that make no sense, or would do harm: each is refused with a sentence, changes nothing, and leaves the shell alive.

use super::{Ran, Stand, gond, name};
use anyhow::{Context, Result};
use std::collections::BTreeSet;

/// Lines that must fail, and a part of the sentence. An object `y` of a page is there, directories `d` and `a b` with
/// a name in each, and `large` and `far`, objects of 200 MiB and 128 GiB.
const REFUSED: &[(&str, &str)] = &[
    // Harm.
    ("write hello 0 boom", "where the limits of its pages allow it"),
    (
        "write --force hello 0 boom",
        "(needs -w---, has rwxd-; the page's limits forbid it)",
    ),
    ("write root-clist 0 zap", "what the system starts from"),
    ("write --force root-clist 0 zap", "what the system starts from"),
    ("write --force shell 0 zap", "what the system starts from"),
    ("rm --force shell", "what the system starts from"),
    ("rm hello", "is a program"),
    ("rm d", "'ls d' lists what is to be removed first"),
    ("rm 'a b'", "'ls a\\ b' lists what is to be removed first"),
    ("oo1 remove hello", "not an OO1 database"),
    ("mv shell x", "what the system starts from"),
    ("mv root-clist x", "what the system starts from"),
    ("create x 900G", "128 GiB are the most"),
    ("create x 1T", "128 GiB are the most"),
    ("hello > x", "no redirections"),
    ("kill 0x10000", "the shell itself"),
    ("kill 12345", "no thread"),
    // Names.
    ("ls nosuch", "/nosuch: there is no such directory"),
    ("ls nosuch/x", "/nosuch: there is no such directory"),
    ("ls y", "/y: this is an object with data, not a directory"),
    ("cd nosuch", "/nosuch: there is no such directory"),
    ("mkdir y", "y is there already; 'rm y' would destroy it"),
    ("mkdir d", "'ls d' lists what is in it"),
    ("mkdir hello", "it is a program, which 'rm --force hello' would destroy"),
    ("create shell 4K", "the system starts from it, so take another name"),
    ("ls \"\"", "the name is empty"),
    ("cd \"\"", "the name is empty"),
    ("ls d/nosuch", "'ls /d' lists the names"),
    ("ls 'a b/nosuch'", "'ls /a\\ b' lists the names"),
    ("create 'a b/x' 4K", "'rm a\\ b/x' would destroy it"),
    ("mkdir ..", "the root directory has no name"),
    ("mkdir a/b/c", "/a: there is no such directory"),
    ("create y 4K", "is there already"),
    ("create a/b 4K", "/a: there is no such directory"),
    ("create y/b 4K", "/y: this is an object with data, not a directory"),
    ("create / 4K", "the root directory has no name"),
    ("create .. 4K", "the root directory has no name"),
    ("create \"\" 4K", "the name is empty"),
    ("rm nosuch", "no such name"),
    ("rm 0x1", "names no object"),
    ("rm 0x100000000", "what the system starts from"),
    ("rm /", "the root directory has no name"),
    ("mv nosuch x", "no such name"),
    ("mv y y", "is there already"),
    ("mv y a/b", "/a: there is no such directory"),
    ("mv y ..", "the root directory has no name"),
    ("info /", "the root directory has no name"),
    ("info \"\"", "the name is empty"),
    ("info nosuch", "no such name"),
    ("info 0x1", "names no object"),
    ("info 0xffffffffffffffff", "names no object"),
    // The root Clist is at this address; only 0x tells an address from a name.
    ("info 4294967296", "no such name"),
    ("caps 4294967296", "no such name"),
    ("write nosuch 0 x", "no such name"),
    ("cat nosuch", "no such name"),
    ("caps nosuch", "no such name"),
    ("grant nosuch r", "no such name"),
    ("revoke nosuch 5", "no such name"),
    ("run nosuch", "no such command or program"),
    ("run y", "not a program"),
    ("nosuch", "no such command or program"),
    ("/", "the root directory has no name"),
    ("\"\"", "'': no such command or program"),
    ("time ' '", "' ': no such command or program"),
    ("help nosuch", "no command 'nosuch'"),
    ("time nosuch", "no such command or program"),
    // Numbers.
    ("create x 0", "is not a size"),
    ("create x -1", "is not a size"),
    ("create x 1.5", "is not a size"),
    ("create x 4 PiB", "'4 PiB' is not a size"),
    ("create x 99999999999999999999", "is not a size"),
    ("write y x x", "is not an offset"),
    ("write y -1 x", "is not an offset"),
    ("write y +1 x", "is not an offset"),
    ("write y 4096 x", "does not fit"),
    (
        "write y 4095 x",
        "with its newline it takes 2 bytes from 4095 on, and y has 4096",
    ),
    ("write y 18446744073709551615 x", "does not fit"),
    ("grant y q", "are not rights"),
    ("grant y \"\"", "are not rights"),
    ("revoke y x", "is not a password"),
    ("revoke y :", "is not a password"),
    ("revoke y 5", "no such password"),
    ("kill x", "is not a thread"),
    ("sleep x", "is not a number of seconds"),
    ("sleep -1", "is not a number of seconds"),
    // Numbers of words.
    ("ls a b", "usage: ls"),
    ("cd a b", "usage: cd"),
    ("pwd x", "usage: pwd"),
    ("mkdir", "usage: mkdir"),
    ("create x", "usage: create"),
    ("create x y 4K", "usage: create"),
    ("rm", "usage: rm"),
    ("rm a b", "usage: rm"),
    ("mv y", "usage: mv"),
    ("info", "usage: info"),
    ("write y 0", "usage: write"),
    ("write --force y 0", "usage: write"),
    ("cat", "usage: cat"),
    ("caps a b", "usage: caps"),
    ("grant y", "usage: grant"),
    ("revoke y", "usage: revoke"),
    ("ps x", "usage: ps"),
    ("kill", "usage: kill"),
    ("domains x", "usage: domains"),
    ("mem x", "usage: mem"),
    ("sync x", "usage: sync"),
    ("run", "usage: run"),
    ("time", "usage: time"),
    ("sleep", "usage: sleep"),
    ("reboot x", "usage: reboot"),
    ("poweroff x", "usage: poweroff"),
    ("help a b", "usage: help"),
    ("exit", "this is the first shell"),
    ("exit x", "usage: exit"),
    ("\"unfinished", "is not closed"),
    // Programs.
    ("oo1 nosuch", "'nosuch' is none of these:\nusage: oo1"),
    ("oo1 run a b", "'run a b' is none of these:\nusage: oo1"),
    ("oo1 create y", "'rm y' would destroy it"),
    ("oo1 create parts 1", "from 200 to"),
    ("oo1 create parts x", "is not a number of parts"),
    ("oo1 run nosuch", "there is no 'nosuch'"),
    ("oo1 verify y", "not an OO1 database"),
    ("oo1 run 'no such'", "make it with: oo1 create no\\ such"),
    ("oo1 remove nosuch", "there is no 'nosuch'; 'ls /' lists the names"),
    ("module nosuch", "'nosuch' is none of these:\nusage: module list"),
    ("module install nosuch", "no such name"),
    (
        "module install far",
        "far: not a module object of this version, or damaged: its first bytes",
    ),
    (
        "module install large",
        "large: not a module object of this version, or damaged: its first bytes",
    ),
    ("micro nosuch", "no row 'nosuch'"),
    ("suite nosuch", "unknown option"),
];

/// Commands of the host tool that must fail, and a part of the sentence. `IMAGE` is an image, `FILE` a file that is none.
const REFUSED_BY_THE_TOOL: &[(&[&str], &str)] = &[
    (&["nosuch"], "there is no command 'nosuch'"),
    (&["run", "--gdb", "abc"], "--gdb takes a port number, from 1 to 65535"),
    (&["run", "--gdb", "99999"], "--gdb takes a port number, from 1 to 65535"),
    (
        &["run", "--disk", "IMAGE", "--timeout", "5", "--gdb", "0"],
        "--gdb takes a port number, from 1 to 65535",
    ),
    (
        &["run", "--disk", "IMAGE", "--debugger", "/nosuch/socket"],
        "there is no folder '/nosuch' for the debugger's socket: make it, or name another socket",
    ),
    (
        &["run", "--root", "nosuch"],
        "no package for the bare µ-kernel; there are: ",
    ),
    (&["run", "--root", "hello"], "'hello' is no package"),
    (&["run", "--disk", ""], "'' is not a file name"),
    (&["check", ""], "cannot open the disk image ''"),
    (
        &["check", "FILE"],
        "it is not a Gondwana disk; './gond format FILE' makes a new one",
    ),
    (&["debugger", ""], "no debugger at ''"),
    (
        &["debugger", "IMAGE"],
        "is no debugger's socket; './gond run --debugger' starts a system with one",
    ),
    (
        &["import", "IMAGE", "FILE", "shell"],
        "the system starts from it, so take another name",
    ),
    (&["import", "IMAGE", "FILE", "hello"], "'rm --force hello'"),
    (
        &["import", "IMAGE", "FILE", "hello/x"],
        "no directory: its kind is program",
    ),
];

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    refused(stand)?;
    refused_by_the_tool(stand)?;
    short_lines(stand)?;
    too_large(stand)?;
    last_passwords(stand)?;
    names(stand)
}

fn refused(stand: &mut Stand<'_, '_>) -> Result<()> {
    let lines = REFUSED.iter().enumerate();
    let lines: Vec<_> = lines
        .map(|(index, (line, _))| format!("echo before {index}\n{line}"))
        .collect();
    let lines = format!(
        "create y 4K\nmkdir d\ncreate d/x 4K\nmkdir 'a b'\ncreate 'a b/x' 4K\ncreate large 200M\ncreate far 128G\n{}\necho alive\ncat y\nrm y\nrm d/x\nrm d\nrm 'a b/x'\nrm 'a b'\n\
         rm large\nrm far\nhello\n",
        lines.join("\n")
    );
    let ran = stand.play(&lines)?;
    // One of the lines that must succeed is counted if it fails, too.
    let all_fail = ran.complaints.contains(&format!("and {} more", REFUSED.len() - 1));
    let lives = ran.status == Some(1) && all_fail && ran.output.contains("alive\nhello, world");
    stand.bench.report(
        "each line that makes no sense fails, and the shell lives",
        if lives { Ok(()) } else { ran.expect(1, "…alive…") },
    );
    for (index, (line, says)) in REFUSED.iter().enumerate() {
        let from = ran.output.split_once(&format!("before {index}\n"));
        let told = from.map_or("", |(_, rest)| rest.split("before ").next().unwrap_or(rest));
        let outcome = if told.contains(says) {
            Ok(())
        } else {
            Err(format!("it says {told:?}, not {says:?}"))
        };
        stand
            .bench
            .report(&format!("'{line}' is refused with a sentence"), outcome);
    }
    Ok(())
}

fn refused_by_the_tool(stand: &mut Stand<'_, '_>) -> Result<()> {
    let file = stand.bench.file("nonsense");
    std::fs::write(&file, [0x42; 5000])?;
    let (disk, file) = (name(&stand.disk)?, name(&file)?);
    for (words, says) in REFUSED_BY_THE_TOOL {
        let given = words.iter().map(|&word| match word {
            "IMAGE" => disk.as_str(),
            "FILE" => file.as_str(),
            word => word,
        });
        let ran = gond(&given.collect::<Vec<_>>())?;
        let good = matches!(ran.status, Some(1 | 2)) && ran.output.is_empty() && ran.complaints.contains(says);
        let outcome = if good { Ok(()) } else { ran.expect(1, says) };
        stand.bench.report(
            &format!("'gond {}' is refused with a sentence", words.join(" ")),
            outcome,
        );
    }
    Ok(())
}

/// The texts of the shell fit a terminal, and the columns of `caps` stand below each other.
fn short_lines(stand: &mut Stand<'_, '_>) -> Result<()> {
    let commands = stand.play("help\n")?;
    let names = commands
        .output
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    let lines: Vec<String> = names.iter().map(|name| format!("help {name}\n")).collect();
    let more = stand.play(&lines.concat())?;
    let all = format!("{}{}", commands.output, more.output);
    let long: Vec<&str> = all.lines().filter(|line| line.chars().count() > 79).collect();
    let good = names.len() > 20 && more.status == Some(0) && long.is_empty();
    let outcome = if good {
        Ok(())
    } else {
        Err(format!("{names:?}\n{long:#?}"))
    };
    stand.bench.report("all of the shell's help fits a terminal", outcome);
    let ragged: Vec<&str> = all.lines().filter(|line| line.ends_with(' ')).collect();
    let outcome = if ragged.is_empty() {
        Ok(())
    } else {
        Err(format!("{ragged:#?}"))
    };
    stand
        .bench
        .report("no line of the shell's help ends with a space", outcome);
    let caps = stand.play("create far 128G\ncreate y 4K\ncaps\nrm far\nrm y\n")?;
    let columns = caps.output.lines().filter(|line| line.starts_with("  0x"));
    let named = columns.filter(|line| line.split_whitespace().count() == 2);
    let columns: BTreeSet<Option<usize>> = named.map(|line| line.rfind(' ')).collect();
    let outcome = if columns.len() == 1 { Ok(()) } else { Err(caps.output) };
    stand
        .bench
        .report("the names that caps shows stand in a column", outcome);
    Ok(())
}

/// A database for which the disk has no room leaves nothing.
fn too_large(stand: &mut Stand<'_, '_>) -> Result<()> {
    let ran = stand.play("oo1 create parts 4000000\ncat parts\ncreate parts 4K\nrm parts\n")?;
    let says = "nothing is left of them";
    let good = ran.output.contains(says)
        && ran.output.contains("parts: there is no such name")
        && ran.complaints.contains("and 1 more");
    stand.bench.report(
        "a database beyond the disk is refused and leaves nothing",
        if good { Ok(()) } else { ran.expect(1, says) },
    );
    Ok(())
}

/// Passwords without which an object could not be removed any more, or its name would lead nowhere.
fn last_passwords(stand: &mut Stand<'_, '_>) -> Result<()> {
    let made = stand.play("create y 4K\noo1 create parts 200\noo1 pdx parts\ncaps y\ncaps parts.pdx\ncaps hello\ncaps shell\ngrant y rw\n")?;
    let passwords = |name: &str| -> Vec<String> {
        let lines = made
            .output
            .lines()
            .filter(|line| line.starts_with("  0x") && line.ends_with(name));
        lines
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect()
    };
    let granted = made
        .output
        .lines()
        .last()
        .and_then(|line| line.split_whitespace().next());
    let granted = granted.context("nothing was granted")?;
    let mut lines = vec![format!("revoke y {granted}")];
    let all = ["y", "parts.pdx", "hello", "shell"].map(|name| (name, passwords(name)));
    for (name, passwords) in &all {
        lines.extend(passwords.iter().map(|password| format!("revoke {name} {password}")));
    }
    lines.push("rm --force parts.pdx\nrm parts\nrm y\necho removed\n".into());
    let ran = stand.play(&lines.join("\n"))?;
    let refusals = ran.output.matches("takes both away").count();
    let found = all.each_ref().map(|(_, passwords)| passwords.len());
    let good = found == [1, 2, 1, 1]
        && refusals == 4
        && ran.output.contains("'rm --force hello' takes both away")
        && ran.output.contains("the system starts from it, so it stays")
        && ran.output.ends_with("\nremoved\n");
    stand.bench.report(
        "the password that a name leads by, and the last one that removes its object, are not revoked",
        if good && last_fault_is(&ran, 4) {
            Ok(())
        } else {
            ran.expect(1, &made.output)
        },
    );
    Ok(())
}

/// Whether one line and so many more have failed.
fn last_fault_is(ran: &Ran, more: usize) -> bool {
    ran.complaints.contains(&format!("(and {more} more)"))
}

/// Names that look like addresses, a directory that is gone, and a shell in the shell.
fn names(stand: &mut Stand<'_, '_>) -> Result<()> {
    let lines =
        "create 4294967296 4K\ninfo 4294967296\ncaps 4294967296\nrm 4294967296\ncreate 0x1 4K\ninfo ./0x1\nrm 0x1\n";
    let ran = stand.play(lines)?;
    let clist = format!("address       {:#x}\n", abi::address::ROOT_CLIST);
    let good =
        ran.status == Some(0) && ran.output.matches("kind          data").count() == 2 && !ran.output.contains(&clist);
    let outcome = if good {
        Ok(())
    } else {
        ran.expect(0, "… two objects with data …")
    };
    stand.bench.report("a name of digits is a name", outcome);
    let ran = stand.play("mkdir gone\ncd gone\nrm /gone\ncreate x 4K\nls\n")?;
    let says = "/gone: there is no such directory";
    let good = ran.output.matches(says).count() == 2;
    let outcome = if good { Ok(()) } else { ran.expect(1, says) };
    stand
        .bench
        .report("in a directory that is gone, its name is told", outcome);
    stand.case(
        "the shell goes with the directory in which it stands",
        "mkdir d1\ncd d1\nmkdir e\ncd e\nmv /d1 /dd\npwd\nmv . ../f\npwd\nls\ncd /\nrm dd/f\nrm dd\n",
        0,
        "/dd/e\n/dd/f\n",
    )?;
    let ran = stand.play("create s 1.5 MiB\ncreate t 0.5KiB\nrm s\nrm t\n")?;
    let good = ran.output.contains("s: 1.5 MiB at ") && ran.output.contains("t: 4 KiB at ");
    let outcome = if good && ran.status == Some(0) {
        Ok(())
    } else {
        ran.expect(0, "…")
    };
    stand.bench.report("sizes are taken as they are shown", outcome);
    stand.case(
        "a shell in a script ends at the end of its input and prints nothing",
        "shell\necho the first\n",
        0,
        "the first\n",
    )
}
