//! What `gond module` writes replaces nothing but what it has written before: never what it was given. Needs gcc.

mod tools;

use std::path::Path;
use std::process::{Command, Output};

fn gond(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_module-cli"));
    command.args(words.split(' ')).current_dir(folder);
    command.output().expect("it starts")
}

fn done(folder: &Path, words: &str) {
    let output = gond(folder, words);
    assert!(
        output.status.success(),
        "{words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs it and expects that it refuses and changes no file.
fn refused(folder: &Path, words: &str, name: &str) {
    let files = || {
        let all = std::fs::read_dir(folder).expect("the folder").flatten();
        let mut all: Vec<_> = all
            .map(|one| (one.path(), std::fs::read(one.path()).expect("a file")))
            .collect();
        all.sort();
        all
    };
    let before = files();
    let output = gond(folder, words);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}: {complaint}");
    let says = format!("{name}: it is there and is no ");
    assert!(
        complaint.contains(&says) && complaint.contains("name another file"),
        "{words}: {complaint}"
    );
    assert!(files() == before, "{words} changes files");
}

#[test]
fn nothing_that_was_given_is_replaced() {
    let folder = tools::folder("outputs");
    for old in std::fs::read_dir(&folder).expect("the folder").flatten() {
        std::fs::remove_file(old.path()).expect("a file of an earlier run");
    }
    std::fs::write(folder.join("steps.c"), "int next(void) { static int n; return ++n; }\n").expect("a source");
    let Some(()) = tools::compile(&folder.join("steps.c"), &folder.join("steps.o"), &[]) else {
        return;
    };
    let description = "[MODULE]\nname steps\nversion 1\n[IMPORTS]\n[EXPORTS]\nnext\n[OBJECTS]\nsteps.o\n";
    std::fs::write(folder.join("steps.md"), description).expect("a description");
    std::fs::hard_link(folder.join("steps.md"), folder.join("other.mm")).expect("another name");
    for name in ["steps.md", "steps.c", "steps.o", "other.mm"] {
        refused(&folder, &format!("build steps.md -o {name}"), name);
    }
    let same = gond(&folder, "build steps.md --window list -o ./list");
    assert_eq!(same.status.code(), Some(1), "the list of addresses is the output");
    assert!(!folder.join("list").exists());
    // What was built before is replaced, and so is an empty file.
    std::fs::write(folder.join("steps.mm"), "").expect("an empty file");
    for _ in 0..2 {
        done(&folder, "build steps.md -o steps.mm");
        done(&folder, "symbols steps.mm --from steps.md -o steps.elf");
        done(&folder, "header steps.md -o steps.h");
        done(&folder, "header -o inline.h");
        done(&folder, "describe steps.o --rest rest.md");
    }
    done(&folder, "header steps.md -o /dev/null");
    let same = gond(&folder, "build steps.md -o modules.window");
    assert_eq!(same.status.code(), Some(1), "the list of addresses is the output");
    done(&folder, "build steps.md");
    for name in ["steps.mm", "steps.md", "steps.o"] {
        refused(&folder, &format!("symbols steps.mm --from steps.md -o {name}"), name);
    }
    for name in ["steps.c", "steps.md", "steps.o"] {
        refused(&folder, &format!("header steps.md -o {name}"), name);
    }
    refused(&folder, "describe steps.o --rest steps.o", "steps.o");
}
