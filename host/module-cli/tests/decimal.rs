//! Numbers as text in the C library of modules, against the host's: every digit of `printf`, the nearest double from `strtod`.
//! A million values were compared with each of several seeds by hand (docs/decisions/0185); the test takes fewer.

mod tools;

use std::path::Path;
use std::process::Command;

/// Values, each in one form; an eighth of them as a number half way between two doubles as well.
const VALUES: &str = "100000";

#[test]
fn numbers_and_text_are_those_of_the_host() {
    let folder = tools::folder("decimal");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/libc");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).current_dir(&folder).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {told}");
        told.into_owned()
    };
    let mut objects = vec!["-r".to_string(), "-o".into(), "library.o".into()];
    for part in ["decimal", "stdio", "stdlib", "string"] {
        let object = format!("{part}.o");
        let source = library.join(format!("{part}.c"));
        if tools::compile(&source, &folder.join(&object), &["-fno-builtin"]).is_none() {
            return;
        }
        objects.push(object);
    }
    run("ld", &objects.iter().map(String::as_str).collect::<Vec<_>>());
    run("objcopy", &["--prefix-symbols=ours_", "library.o"]);
    let driver = tools::sources().join("decimal.c");
    run(
        "gcc",
        &["-O2", &driver.display().to_string(), "library.o", "-o", "decimal"],
    );
    let told = run(&folder.join("decimal").display().to_string(), &[VALUES, "1"]);
    assert!(told.ends_with(", 0 differences\n"), "{told}");
}
