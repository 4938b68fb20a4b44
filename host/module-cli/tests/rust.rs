//! A Rust `staticlib`, `core` and all, as a module: shared where it needs no variables, refused by name where
//! it does and rustc took rbx.

mod tools;

use linker::module::Cause;
use linker::module::format::PRIVATE;
use module_cli::host::{Binding, Library, Task};
use module_cli::make::{self, MakeError};
use std::process::Command;

#[test]
fn rust_without_variables_is_a_module() {
    let folder = tools::folder("rust");
    let archive = folder.join("libtrial.a");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = Command::new(rustc);
    compile.args([
        "-O",
        "--edition",
        "2021",
        "--crate-type",
        "staticlib",
        "-C",
        "panic=abort",
    ]);
    compile.args(["-C", "relocation-model=pic", "--crate-name", "trial", "-o"]);
    let status = compile.arg(&archive).arg(tools::sources().join("trial.rs")).status();
    assert!(status.expect("rustc").success());
    let path = folder.join("trial.md");
    let describe = |exports: &str| {
        let text = format!("[MODULE]\nname trial\nversion 1\n[EXPORTS]\n{exports}\n[OBJECTS]\nlibtrial.a\n");
        std::fs::write(&path, text).expect("a description");
    };
    describe("rust_format pure");
    let mut window = tools::window(6);
    let (_, built) = make::make(&path, &[], &mut window).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        built.functions > 5 && built.private_functions == 0,
        "{} functions",
        built.functions
    );
    let library = Library::load("trial", built.object).unwrap_or_else(|error| panic!("{error}"));
    assert!(library.module().exports().all(|one| one.value & PRIVATE == 0));
    let task = Task::new(Binding::Lazy);
    task.add(&library);
    let number = task.instance("trial").unwrap_or_else(|error| panic!("{error}"));
    let mut text = [0_u8; 64];
    let bytes = task.call(number, "rust_format", [text.as_mut_ptr() as u64, 255, 0, 0]);
    let bytes = usize::try_from(bytes.expect("it is exported")).expect("a length");
    assert_eq!(text[..bytes], *b"     255 0xff [255, 2]");

    describe("rust_count");
    match make::make(&path, &[], &mut window) {
        Err(MakeError::Link(faults)) => {
            assert!(
                faults.iter().all(|fault| fault.cause == Cause::RegisterTaken),
                "{}",
                faults[0]
            );
            assert_eq!(faults[0].symbol, "rust_count");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("rustc uses rbx in a function of this size"),
    }
}

/// The recipe of `docs/modules.md`, with the crate `modules/fold`.
#[test]
fn a_crate_is_a_module() {
    let folder = tools::folder("cargo");
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/fold");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["rustc", "--quiet", "--release", "--offline", "--manifest-path"]);
    cargo
        .arg(crate_folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder);
    cargo.args(["--", "-C", "relocation-model=pic"]);
    // The options that the tests were built with are not for this.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    assert!(cargo.status().expect("cargo").success());
    let mut window = tools::window(9);
    let made = make::make(&crate_folder.join("fold.md"), &[folder.join("release")], &mut window);
    let (_, built) = made.unwrap_or_else(|error| panic!("{error}"));
    let library = Library::load("fold", built.object).unwrap_or_else(|error| panic!("{error}"));
    let task = Task::new(Binding::Eager);
    task.add(&library);
    let number = task.instance("fold").unwrap_or_else(|error| panic!("{error}"));
    let mut state = 0_u64;
    let at = (&raw mut state) as u64;
    task.call(number, "fold_begin", [at, 0, 0, 0]);
    let folded = task.call(number, "fold_word", [at, 7, 0, 0]);
    let expected = 7_u64
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    assert_eq!(folded, Some(expected));
}
