//! Golden files, and that nothing is missing in them.

use std::{fs, path::Path};

fn golden(path: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("GOND_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(&path, made).expect("write the golden file");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is not what the tables say; look at the change, then GOND_BLESS=1 cargo test -p abi",
        path.display()
    );
}

/// The names of public constants and types that a source defines. Tables of the crate itself are none.
fn defined(source: &str) -> impl Iterator<Item = &str> {
    let source = source.split("#[cfg(test)]").next().unwrap_or(source);
    source.lines().filter_map(|line| {
        let line = line.trim();
        let item = ["pub const ", "pub struct ", "pub enum ", "const ", "struct "];
        let rest = item.iter().find_map(|item| line.strip_prefix(item))?;
        let name = rest
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next()?;
        let own = matches!(
            name,
            "" | "_" | "fn" | "TABLE" | "ITEMS" | "ALL" | "FIELDS" | "WORDS" | "BYTES"
        );
        (!own).then_some(name)
    })
}

/// The interface is told whole: no constant and no structure of the crate is missing.
#[test]
fn nothing_is_left_out() {
    const OWN: [&str; 4] = ["document.rs", "interface.rs", "lib.rs", "call.rs"];
    let (mut manual, mut header) = (String::new(), String::new());
    super::manual(&mut manual).expect("a string takes it");
    super::header(&mut header).expect("a string takes it");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    let mut count = 0;
    for file in fs::read_dir(sources).expect("sources") {
        let path = file.expect("a source").path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if OWN.contains(&file) || !path.is_file() {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source");
        // Errors, rights and upcalls are types whose values are shown.
        for name in defined(&source).filter(|name| !matches!(*name, "Error" | "Rights" | "Upcall")) {
            count += 1;
            let shown = [format!("`{name}`"), format!("### {name}\n"), format!("| {name} |")];
            if !shown.iter().any(|shown| manual.contains(shown.as_str())) {
                missing.push(format!("{file}: {name} in the manual"));
            }
            let c = super::items::Snake(Box::leak(name.to_string().into_boxed_str())).to_string();
            let in_c = [format!("_{name} "), format!("gond_{c};")];
            if !in_c.iter().any(|shown| header.contains(shown.as_str())) {
                missing.push(format!("{file}: {name} in the header"));
            }
        }
    }
    assert!(missing.is_empty(), "not told: {missing:#?}");
    assert!(count > 160, "{count} definitions were found");
}

/// A C compiler agrees about sizes and offsets, and about every name.
#[test]
fn a_c_compiler_takes_the_header() {
    use std::{io::Write, process};
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/gondwana.h");
    for language in ["c", "c++"] {
        let mut compiler = process::Command::new("cc")
            .args([
                "-x",
                language,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-function",
                "-fsyntax-only",
                "-include",
            ])
            .arg(&header)
            .arg("-")
            .stdin(process::Stdio::piped())
            .spawn()
            .expect("a C compiler");
        let mut input = compiler.stdin.take().expect("its input");
        input.write_all(b"int main(void) { return 0; }\n").expect("it reads");
        drop(input);
        assert!(compiler.wait().expect("it ends").success(), "{language}");
    }
}

#[test]
fn the_manual_is_what_the_table_says() {
    let mut text = String::new();
    super::manual(&mut text).expect("a string takes it");
    golden("../docs/spec/abi.md", &text);
}

#[test]
fn the_header_is_what_the_table_says() {
    let mut text = String::new();
    super::header(&mut text).expect("a string takes it");
    golden("golden/gondwana.h", &text);
}
