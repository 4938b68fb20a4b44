//! Another engine beside ours: a program of its own (`bench/wasmtime`), built when it is first asked for, that is told
//! what to run a line at a time, so that its samples stand between ours.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A peer that is running.
pub struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The name under which the peer's rows stand.
pub const NAME: &str = "wasmtime";

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tree that this tool was built from, unless `GOND_ROOT` says otherwise: the peer's source is there.
fn root() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("GOND_ROOT").map_or_else(built, PathBuf::from)
}

fn build() -> Result<PathBuf, String> {
    let root = root();
    let source = root.join("bench/wasmtime/Cargo.toml");
    if !source.exists() {
        return Err(format!(
            "{} is not there; set GOND_ROOT to the source tree",
            source.display()
        ));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join("peer");
    let program = target.join("release/wasmtime-peer");
    if !program.exists() {
        eprintln!("gond sip: building the peer {NAME}, once (some minutes; its 100 crates come from crates.io)");
    }
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(&source)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .map_err(|error| format!("cargo: {error}; install Rust (https://rustup.rs)"))?;
    if built.success() {
        Ok(program)
    } else {
        Err(format!("the peer {NAME} could not be built; the messages stand above"))
    }
}

impl Peer {
    /// Builds and starts it.
    ///
    /// # Errors
    /// The part that is missing, in words.
    pub fn start() -> Result<Self, String> {
        let program = build()?;
        let fail = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let (requests, answers) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Asks for something (the peer's source says what there is); the numbers of the answer, at least `N`.
    fn ask<const N: usize>(&mut self, request: &str) -> Result<[u64; N], String> {
        let fail = |what: &str| format!("{NAME}: {request}: {what}");
        let mut line = String::new();
        let asked = writeln!(self.requests, "{request}").and_then(|()| self.answers.read_line(&mut line));
        asked.map_err(|error| fail(&error.to_string()))?;
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| fail(line.trim()))
    }

    /// Has it make a module ready; the module's number.
    ///
    /// # Errors
    /// Its complaint, here and below.
    pub fn load(&mut self, module: &Path) -> Result<u64, String> {
        self.ask(&format!("load {}", module.display())).map(|[number]| number)
    }

    /// Nanoseconds of one call, and its sum.
    #[allow(clippy::cast_precision_loss, reason = "times of seconds, in nanoseconds")]
    pub fn sample(&mut self, module: u64, times: u32) -> Result<(f64, u64), String> {
        let [time, sum] = self.ask(&format!("run {module} {times}"))?;
        Ok((time as f64, sum))
    }

    /// Nanoseconds of making and ending so many instances.
    #[allow(clippy::cast_precision_loss, reason = "times of seconds, in nanoseconds")]
    pub fn instantiate(&mut self, module: u64, times: u32) -> Result<f64, String> {
        let [time] = self.ask(&format!("instantiate {module} {times}"))?;
        Ok(time as f64)
    }

    /// Nanoseconds of compiling a module.
    #[allow(clippy::cast_precision_loss, reason = "times of seconds, in nanoseconds")]
    pub fn compile(&mut self, module: &Path) -> Result<f64, String> {
        let [time] = self.ask(&format!("compile {}", module.display()))?;
        Ok(time as f64)
    }
}
