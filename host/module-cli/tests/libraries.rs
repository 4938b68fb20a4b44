//! Unmodified C libraries as modules: Lua, and sqlite3 (which takes a minute to compile, so it is run with
//! `--ignored`). Each is used by a client module in two tasks at a time, and must give what the same objects
//! give when the system's linker puts them together. Needs gcc and the crates of `bench/link/sources`.

mod tools;

use linker::module::window::Window;
use module_cli::host::{Binding, Library, Task};
use module_cli::{make, sources};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

fn build(description: &str, folder: &Path, window: &mut Window) -> Rc<Library> {
    let path = tools::sources().join(description);
    let (_, built) =
        make::make(&path, &[folder.to_path_buf()], window).unwrap_or_else(|error| panic!("{description}: {error}"));
    Library::load(description, built.object).unwrap_or_else(|error| panic!("{description}: {error}"))
}

fn task(libraries: &[Rc<Library>], binding: Binding) -> Rc<Task> {
    let task = Task::new(binding);
    for library in libraries {
        task.add(library);
    }
    let libc = make::describe(&tools::sources().join("libc.md")).expect("libc.md");
    task.add_foreign(&libc).unwrap_or_else(|error| panic!("{error}"));
    task
}

/// The output of the system's linker for the same objects.
fn expected(folder: &Path, objects: &[PathBuf]) -> Vec<i64> {
    let program = folder.join("driver");
    let mut gcc = Command::new("gcc");
    gcc.arg("-o")
        .arg(&program)
        .arg(tools::sources().join("driver.c"))
        .args(objects);
    assert!(gcc.arg("-lm").status().expect("gcc").success());
    let output = Command::new(&program).output().expect("the driver runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

/// Two tasks in turn, the second a step behind, so that shared data would show.
fn two_tasks(libraries: &[Rc<Library>], client: &str, expected: &[i64]) {
    let tasks = [task(libraries, Binding::Eager), task(libraries, Binding::Lazy)];
    let numbers = tasks.each_ref().map(|task| {
        let number = task.instance(client).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(task.call(number, "start", [0; 4]).map(|result| result as u32), Some(0));
        number
    });
    let step = |task: usize, n: usize| {
        let result = tasks[task].call(numbers[task], "step", [n as u64, 0, 0, 0]);
        result.expect("step is exported").cast_signed()
    };
    assert_eq!(expected.len(), 3);
    for n in 1..=3 {
        assert_eq!(step(0, n), expected[n - 1], "the first task, step {n}");
        if n > 1 {
            assert_eq!(step(1, n - 1), expected[n - 2], "the second task, step {}", n - 1);
        }
    }
    assert!(expected.iter().all(|result| *result > 0));
}

#[test]
fn lua_is_a_library_of_two_tasks() {
    let Some(lua) = sources::find("lua-src") else { return };
    let folder = tools::folder("lua");
    let mut objects = Vec::new();
    let path = lua.join("lua-5.4.7");
    for entry in std::fs::read_dir(&path).expect("the sources of Lua") {
        let source = entry.expect("an entry").path();
        if source.extension().is_some_and(|end| end == "c") {
            let object = folder.join(source.file_name().expect("a name")).with_extension("o");
            if tools::compile_once(&source, &object, &["-O2", "-DLUA_COMPAT_5_3"]).is_none() {
                return;
            }
            objects.push(object);
        }
    }
    let client = folder.join("luaclient.o");
    let include = format!("-I{}", path.display());
    tools::compile(&tools::sources().join("luaclient.c"), &client, &["-O2", &include]);
    objects.push(client);
    let mut window = tools::window(3);
    let libraries = ["lua.md", "luaclient.md"].map(|name| build(name, &folder, &mut window));
    two_tasks(&libraries, "luaclient", &expected(&folder, &objects));
}

#[test]
#[ignore = "compiles sqlite3.c, which takes a minute"]
fn sqlite_is_a_library_of_two_tasks() {
    let Some(sqlite) = sources::find("libsqlite3-sys") else {
        return;
    };
    let folder = tools::folder("sqlite");
    let path = sqlite.join("sqlite3");
    let object = folder.join("sqlite3.o");
    let flags = ["-O2", "-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"];
    if tools::compile_once(&path.join("sqlite3.c"), &object, &flags).is_none() {
        return;
    }
    let client = folder.join("sqlclient.o");
    let include = format!("-I{}", path.display());
    tools::compile(&tools::sources().join("sqlclient.c"), &client, &["-O2", &include]);
    let mut window = tools::window(4);
    let libraries = ["sqlite.md", "sqlclient.md"].map(|name| build(name, &folder, &mut window));
    two_tasks(&libraries, "sqlclient", &expected(&folder, &[object, client]));
}

/// Nothing but the benchmark uses them, and no benchmark is a test.
#[test]
fn what_modules_are_measured_against_is_linked() {
    let output = Command::new(env!("CARGO_BIN_EXE_module-cli"))
        .arg("twins")
        .output()
        .expect("the tool for modules");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    for file in [
        "eight-static",
        "linux/lib64/ld-linux-x86-64.so.2",
        "oo1-c",
        "client1000.mm",
    ] {
        assert!(folder.join(file).exists(), "{file}");
    }
}
