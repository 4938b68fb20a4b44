//! Tools that the tests of modules share: a folder, a compiler, a window of addresses for each test.
#![allow(dead_code, reason = "each test uses its part")]

use linker::module::window::{WINDOW_START, Window};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the C sources and descriptions are.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// A fresh folder for objects.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder for objects");
    folder
}

/// Compiles a C file with the flags for modules; `None`, said once, if there is no gcc.
pub fn compile(source: &Path, object: &Path, flags: &[&str]) -> Option<()> {
    let mut gcc = Command::new("gcc");
    gcc.args(module_cli::GCC_FLAGS)
        .arg("-c")
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(object);
    let output = match gcc.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("not tested: gcc: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// A window that begins where no other test's does: tests of one process run side by side.
pub fn window(test: u64) -> Window {
    let text = format!("{:#x} 1 nobody 1\n", WINDOW_START + (test << 30));
    Window::parse("window", &text).expect("a window")
}

/// Says which file and page of it lies at an address, as one number.
pub fn frame_key(address: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().unwrap_or_default();
        let (start, end) = range.split_once('-').expect("a range");
        let parse = |text: &str| u64::from_str_radix(text, 16).expect("a hexadecimal number");
        if (parse(start)..parse(end)).contains(&address) {
            assert!(
                words.next().is_some_and(|rights| rights.ends_with('s')),
                "shared: {line}"
            );
            let offset = parse(words.next().unwrap_or_default()) + address - parse(start);
            let inode: u64 = words.nth(1).and_then(|word| word.parse().ok()).expect("an inode");
            return inode << 32 | offset;
        }
    }
    panic!("nothing is mapped at {address:#x}");
}

/// The same, unless it was done before: for sources that do not change.
pub fn compile_once(source: &Path, object: &Path, flags: &[&str]) -> Option<()> {
    if object.is_file() {
        return Some(());
    }
    // Under its name only when it is whole.
    let part = object.with_extension("part");
    compile(source, &part, flags)?;
    std::fs::rename(&part, object).expect("the object gets its name");
    Some(())
}
