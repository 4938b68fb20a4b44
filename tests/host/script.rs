//! The script `gond`, which stands in front of the tools: what it answers before it builds one, and what it says while it does.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gond");

/// An empty target folder, which goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gond-script-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Runs the script as if nothing had been built.
    fn gond(&self, words: &[&str], path: Option<&Path>) -> Output {
        let mut command = Command::new(SCRIPT);
        command
            .args(words)
            .current_dir(&self.0)
            .env("GOND_NO_INSTALL", "1")
            .env("CARGO_TARGET_DIR", self.0.join("target"));
        if let Some(path) = path {
            let all = std::env::var("PATH").expect("a path");
            command.env("PATH", format!("{}:{all}", path.display()));
        }
        command.output().expect("the script starts")
    }

    fn is_unbuilt(&self) -> bool {
        !self.0.join("target").exists()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tool takes minutes to be built: what can be judged without it is refused first.
#[test]
fn arguments_are_judged_before_a_tool_is_built() {
    let folder = Folder::new("unbuilt");
    std::fs::write(folder.0.join("there.wasm"), "").expect("a file");
    std::fs::create_dir(folder.0.join("taken")).expect("a folder");
    for (words, reason, status) in [
        (&["sip", "run"][..], "sip run wants a FILE.wasm", 2),
        (&["sip", "run", "nosuch.wasm"], "no file 'nosuch.wasm'", 1),
        (&["sip", "run", "nope"], "'nope' is no FILE.wasm", 2),
        (
            &["sip", "run", "--timeout", "5", "--explicit", "nosuch.WASM"],
            "no file 'nosuch.WASM'",
            1,
        ),
        (&["sip", "run", "--timeout"], "--timeout wants a value", 2),
        (
            &["sip", "run", "--nosuch", "there.wasm"],
            "sip run has no option '--nosuch'",
            2,
        ),
        (
            &["sip", "run", "--channel", "no.contract", "there.wasm"],
            "no file 'no.contract'",
            1,
        ),
        (&["sip", "compile"], "sip compile wants a FILE.wasm", 2),
        (
            &["sip", "compile", "-o", "a.sip", "nosuch.wasm"],
            "no file 'nosuch.wasm'",
            1,
        ),
        (&["sip", "check", "--explicit"], "sip check wants a FILE.wasm", 2),
        (&["sip", "check", "nosuch.sip"], "no file 'nosuch.sip'", 1),
        (&["sip", "contract"], "sip contract wants a FILE.contract", 2),
        (
            &["sip", "contract", "nosuch.contract", "--c"],
            "no file 'nosuch.contract'",
            1,
        ),
        (&["sip", "new"], "sip new wants one NAME", 2),
        (&["sip", "new", "a", "b"], "sip new wants one NAME", 2),
        (&["sip", "new", "1st"], "'1st' is no name for a project", 2),
        (&["sip", "new", "taken"], "there is a 'taken' already", 1),
        (&["module", "build"], "module build wants a FILE.md", 2),
        (&["module", "build", "nosuch.md"], "no file 'nosuch.md'", 1),
        (&["bench", "--host", "--row", "nosuch"], "--host has no row 'nosuch'", 2),
        (&["bench", "--host", "--row"], "--row wants a value", 2),
        (&["bench", "--host", "--rounds", "0"], "--rounds cannot be '0'", 2),
        (&["bench", "--host", "--runs", "x"], "--runs cannot be 'x'", 2),
        (
            &["bench", "--host", "--system", "linux"],
            "--system does not go with --host",
            2,
        ),
    ] {
        let output = folder.gond(words, None);
        let complaint = complaint(&output);
        assert!(complaint.contains(reason), "{words:?}: {complaint}");
        assert_eq!(output.status.code(), Some(status), "{words:?}: {complaint}");
    }
    assert!(folder.is_unbuilt(), "something was built");
}

#[test]
fn help_is_there_before_a_tool_is_built() {
    let folder = Folder::new("help");
    for (words, begins) in [
        (&["sip"][..], "gond sip: "),
        (&["sip", "help"], "gond sip: "),
        (&["sip", "--help"], "gond sip: "),
        (&["sip", "-h"], "gond sip: "),
        (&["sip", "run", "--help"], "gond sip: "),
        (&["module"], "gond module: "),
        (&["module", "--help"], "gond module: "),
        (
            &["module", "symbols", "--help"],
            "  gond module symbols FILE.mm -o FILE",
        ),
        (&["module", "flags", "-h"], "  gond module flags\n"),
    ] {
        let output = folder.gond(words, None);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with(begins), "{words:?}: {text}{}", complaint(&output));
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words:?}: {}",
            complaint(&output)
        );
        let whole = begins.starts_with("gond");
        assert_eq!(text.lines().count() > 30, whole, "{words:?}: {text}");
    }
    assert!(folder.is_unbuilt(), "something was built");
}

/// Every cargo of a user has the package cache for a moment: that is no wait to be told.
#[test]
fn only_a_wait_that_lasts_is_told() {
    let folder = Folder::new("waits");
    let says = "another cargo of this user uses the package cache; waiting for it";
    for (seconds, lock, expected) in [
        ("0", "package cache", None),
        ("1.5", "package cache", Some(says)),
        (
            "1.5",
            "build directory",
            Some("another cargo is building here; waiting for it"),
        ),
    ] {
        let cargo = folder.0.join("cargo");
        let text = format!(
            "#!/bin/sh\necho '    Blocking waiting for file lock on {lock}' >&2\nsleep {seconds}\necho 'it has failed' >&2\nexit 1\n"
        );
        std::fs::write(&cargo, text).expect("a cargo");
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
        let output = folder.gond(&["ls", "a.img"], Some(&folder.0));
        let complaint = complaint(&output);
        assert!(complaint.contains("it has failed"), "{complaint}");
        assert_eq!(
            complaint.matches("waiting for it").count(),
            usize::from(expected.is_some()),
            "{complaint}"
        );
        assert!(expected.is_none_or(|says| complaint.contains(says)), "{complaint}");
    }
}
