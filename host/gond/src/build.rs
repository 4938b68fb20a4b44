//! How the parts for the target are built: the one definition of it.
//!
//! The kernel is a static ELF at -2 GiB with the linker script `kernel/linker.ld`. Programs are static-PIE ELF
//! whose segments share no page, so that `linker` can spread them into image objects. Both use the
//! bare-metal target, each with a target folder of its own, because their flags differ.

mod waits;

use crate::display::{self, Job};
use crate::{arguments, place};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use waits::Heard;

/// The target of everything that runs in the system.
const TARGET: &str = "x86_64-unknown-none";

/// The list of programs that are on every disk, one a line: the package, which is also the name in the root directory. The
/// first is what the system starts.
const PROGRAMS: &str = "apps/programs";

/// The runtime as a module, which `./gond module system` builds with the others.
const RUNTIME: &str = "rt-module";

/// The server as a program outside of the kernel.
pub const SERVER: &str = "server";

/// The engine for isolated processes as a program.
pub const ENGINE: &str = "engine";

/// The programs that run on the bare µ-kernel, each as a boot module.
pub const ROOTS: [&str; 1] = ["nucleus-suite"];

/// Flags of the kernel, without its linker script. Debug information is for back-traces and GDB; it stays in the file
/// and takes no memory of the machine.
const KERNEL_FLAGS: [&str; 4] = [
    "-Cdebuginfo=full",
    "-Crelocation-model=static",
    "-Ccode-model=kernel",
    "-Clink-arg=--build-id=none",
];

/// Flags of programs. The code model stays the target's own (`kernel`), or link-time optimization could not take
/// in the precompiled `core`; position-independent code comes out the same. Relocations are done by the program's
/// own start code, which knows only relative ones; without `norelro` the data would be two segments, and a page
/// more to touch at each start.
const PROGRAM_FLAGS: [&str; 10] = [
    "-Crelocation-model=pic",
    "-Cforce-unwind-tables=no",
    "-Clink-arg=-pie",
    "-Clink-arg=--no-dynamic-linker",
    "-Clink-arg=--build-id=none",
    "-Clink-arg=-zseparate-code",
    "-Clink-arg=-zmax-page-size=4096",
    "-Clink-arg=-znorelro",
    "-Clink-arg=-ztext",
    "-Clink-arg=--gc-sections",
];

/// Programs: their names and ELF files, in the order of the list.
pub type Programs = Vec<(String, PathBuf)>;

/// With which profile of the workspace's manifest something is built.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Profile {
    /// As it runs.
    Guest,
    /// With every assertion on: what is fuzzed.
    Checked,
    /// For programs that bring a compiler along.
    Engine,
}

impl Profile {
    /// Its name in the manifest.
    const fn name(self) -> &'static str {
        match self {
            Profile::Guest => "guest",
            Profile::Checked => "checked",
            Profile::Engine => "engine",
        }
    }
}

/// The files that were built.
pub struct Built {
    /// The kernel, bootable with `-kernel`.
    pub kernel: PathBuf,
    /// The programs.
    pub programs: Programs,
}

/// `gond build`: builds the parts for the target and tells where they are.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    arguments::operands("build", arguments, &[], &[])?;
    let built = all()?;
    println!("{}", built.kernel.display());
    for (_, path) in &built.programs {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds everything for the target; quick and quiet when nothing changed.
pub fn all() -> Result<Built> {
    let root = place::root()?;
    Ok(Built {
        kernel: kernel(&root, Profile::Guest, Kernel::Inside)?,
        programs: programs()?,
    })
}

/// The images of the kernel: who answers events (`kernel/src/supervisor.rs`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// The server, inside.
    Inside,
    /// The server, outside.
    Outside,
    /// Nobody else.
    Bare,
}

impl Kernel {
    /// Its name in the manifest.
    const fn name(self) -> &'static str {
        match self {
            Self::Inside => "kernel",
            Self::Outside => "kernel-outside",
            Self::Bare => "kernel-bare",
        }
    }
}

/// Builds an image of the kernel alone.
pub fn kernel(root: &Path, profile: Profile, image: Kernel) -> Result<PathBuf> {
    let script = format!("-Clink-arg=-T{}", root.join("kernel/linker.ld").display());
    let flags: Vec<&str> = KERNEL_FLAGS.into_iter().chain([script.as_str()]).collect();
    let folder = root.join("target/kernel");
    let what = ["-p", "kernel", "--bin", image.name()];
    cargo_build_of(root, "building the kernel", &what, (&folder, profile), &flags)?;
    product(&folder, profile, image.name())
}

/// Builds the programs.
pub fn programs() -> Result<Programs> {
    let root = &place::root()?;
    let folder = root.join("target/programs");
    let into = (folder.as_path(), Profile::Guest);
    let names = program_names(root)?;
    let packages: Vec<&str> = names.iter().map(String::as_str).collect();
    cargo_build(root, "building the programs", &packages, into, &PROGRAM_FLAGS)?;
    names
        .into_iter()
        .map(|name| product(&folder, Profile::Guest, &name).map(|path| (name, path)))
        .collect()
}

/// The names of the programs that are on every disk.
fn program_names(root: &Path) -> Result<Vec<String>> {
    let list = std::fs::read_to_string(root.join(PROGRAMS)).with_context(|| format!("cannot read {PROGRAMS}"))?;
    Ok(list.split_whitespace().map(str::to_owned).collect())
}

/// The library of programs that run on the bare µ-kernel.
const ROOT_LIBRARY: &str = "nucleus";

/// Packages of the sources that are programs of the bare µ-kernel: those that use its library.
fn root_programs(root: &Path) -> Result<Vec<String>> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let all: Value = serde_json::from_slice(&output.stdout).context("cargo's list of packages")?;
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = items(&all["packages"]).into_iter();
    let uses = |package: &Value| {
        items(&package["dependencies"])
            .iter()
            .any(|of| of["name"] == ROOT_LIBRARY)
    };
    Ok(packages.filter(uses).map(|package| name(&package)).collect())
}

/// Builds a program of the bare µ-kernel: the ELF file of the package with this name.
pub fn root_program(name: &str) -> Result<PathBuf> {
    let root = &place::root()?;
    let programs = root_programs(root)?;
    if !programs.iter().any(|program| program == name) {
        let programs = programs.join(", ");
        bail!("'{name}' is no package for the bare µ-kernel; there are: {programs} (docs/guide/nucleus.md)");
    }
    let folder = root.join("target/programs");
    cargo_build(
        root,
        "building the program of the µ-kernel",
        &[name],
        (&folder, Profile::Guest),
        &PROGRAM_FLAGS,
    )?;
    product(&folder, Profile::Guest, name)
}

/// Builds the system's modules (`./gond module system`): their files, in the order in which they are installed.
///
/// # Errors
/// If the linker of modules, or a module, cannot be built.
pub fn modules(root: &Path) -> Result<Vec<PathBuf>> {
    module_tool(root, "building the modules", "system")
}

/// Builds what modules are measured against (`./gond module twins`): the folder that it is in.
///
/// # Errors
/// As [`modules`]; without the sources of the libraries.
pub fn twins(root: &Path) -> Result<PathBuf> {
    let folder = module_tool(root, "building the twins of modules", "twins")?;
    folder.into_iter().next().context("'gond module twins' told no folder")
}

/// Runs the linker of modules: the paths that it prints.
fn module_tool(root: &Path, what: &str, verb: &str) -> Result<Vec<PathBuf>> {
    let mut job = Job::begin(what);
    let mut command = cargo(root);
    command
        .args(["run", "--quiet", "--release", "--target-dir"])
        .arg(root.join("target"));
    command.args(["-p", "module-cli", "--", verb]);
    let output = command.output().context("cannot start cargo")?;
    job.clear();
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("{what} failed; the messages stand above");
    }
    let list = String::from_utf8_lossy(&output.stdout);
    Ok(list.lines().map(PathBuf::from).collect())
}

/// The server as a program, and the kernel that goes with it.
#[derive(Clone)]
pub struct Server {
    /// The image of the kernel.
    pub kernel: PathBuf,
    /// The program.
    pub program: PathBuf,
}

/// Builds the server as a program, and its kernel.
pub fn server(profile: Profile) -> Result<Server> {
    let root = &place::root()?;
    let folder = root.join("target/programs");
    let into = (folder.as_path(), profile);
    cargo_build(root, "building the server", &[SERVER], into, &PROGRAM_FLAGS)?;
    Ok(Server {
        kernel: kernel(root, profile, Kernel::Outside)?,
        program: product(&folder, profile, SERVER)?,
    })
}

/// Builds the engine as a program, which brings a compiler along and is optimized less for that.
pub fn engine() -> Result<PathBuf> {
    let root = &place::root()?;
    let folder = root.join("target/programs");
    let into = (folder.as_path(), Profile::Engine);
    let what = "building the engine for isolated processes";
    cargo_build(root, what, &[ENGINE], into, &PROGRAM_FLAGS)?;
    product(&folder, Profile::Engine, ENGINE)
}

fn product(folder: &Path, profile: Profile, name: &str) -> Result<PathBuf> {
    let path = folder.join(TARGET).join(profile.name()).join(name);
    if path.is_file() {
        Ok(path)
    } else {
        bail!("the build succeeded but left no {}", path.display())
    }
}

/// The cargo that started this tool, or the one in the path.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    // Variables that a user set for other builds must not reach these.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
    command
}

/// Lints of the parts for the target, as commands that must succeed: what is checked, and how.
///
/// # Errors
/// There is no list of programs.
pub fn lints(root: &Path) -> Result<Vec<(&'static str, Command)>> {
    let names = program_names(root)?;
    let programs: Vec<&str> = names.iter().map(String::as_str).collect();
    let parts: [(&'static str, &[&str], &str); 6] = [
        ("lints of the kernel (cargo clippy)", &["kernel"], "target/kernel"),
        ("lints of the programs (cargo clippy)", &programs, "target/programs"),
        // By itself, or its feature of `rt` would be the programs', too.
        (
            "lints of the runtime's module (cargo clippy)",
            &[RUNTIME],
            "target/programs",
        ),
        ("lints of the server (cargo clippy)", &[SERVER], "target/programs"),
        ("lints of the engine (cargo clippy)", &[ENGINE], "target/programs"),
        (
            "lints of the µ-kernel's programs (cargo clippy)",
            &ROOTS,
            "target/programs",
        ),
    ];
    let command = |packages: &[&str], folder: &str| {
        let mut command = cargo(root);
        command
            .args(["clippy", "--quiet", "--target", TARGET, "--target-dir"])
            .arg(root.join(folder));
        for package in packages {
            command.args(["-p", package]);
        }
        command.args(["--", "-D", "warnings"]).env_remove("CARGO_TARGET_DIR");
        command
    };
    let parts = parts.into_iter();
    Ok(parts
        .map(|(what, packages, folder)| (what, command(packages, folder)))
        .collect())
}

/// Builds packages into a target folder with a profile.
fn cargo_build(root: &Path, what: &str, packages: &[&str], into: (&Path, Profile), flags: &[&str]) -> Result<()> {
    let what_of: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    cargo_build_of(root, what, &what_of, into, flags)
}

/// Builds what these arguments of cargo name.
fn cargo_build_of(
    root: &Path,
    what: &str,
    named: &[&str],
    (folder, profile): (&Path, Profile),
    flags: &[&str],
) -> Result<()> {
    let mut command = cargo(root);
    command
        .args(["build", "--profile", profile.name(), "--target", TARGET, "--target-dir"])
        .arg(folder)
        .args(named);
    command.env_remove("CARGO_TARGET_DIR");
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    if display::on_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.env("CARGO_TERM_PROGRESS_WHEN", "never");
    let mut job = Job::begin(what);
    let mut said = String::new();
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start cargo")?;
    if let Some(stderr) = child.stderr.take() {
        let (sender, lines) = std::sync::mpsc::channel();
        // It ends with cargo's output.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let _ = sender.send(line.unwrap_or_default());
            }
        });
        waits::hear(&lines, waits::BRIEF, |heard| match heard {
            Heard::Line(line) => {
                job.step(line.trim());
                said.push_str(&line);
                said.push('\n');
            }
            Heard::Waits(whom) => {
                job.clear();
                display::note(whom);
            }
        });
    }
    let status = child.wait().context("cannot wait for cargo")?;
    job.clear();
    if !status.success() {
        eprint!("{said}");
        bail!("{what} failed; the compiler's messages stand above");
    }
    Ok(())
}
