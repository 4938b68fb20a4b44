//! Frames of modules are left as frames of any code: exceptions of C++ pass from module to module, through thunks and
//! through the host's functions, and back-traces see all calls, at every instruction. Needs g++; says so if there is none.

mod tools;

use linker::module::window::Window;
use module_cli::host::{Binding, Library, Task};
use module_cli::make;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

/// Compiles, describes what is missing as the host's, links and loads.
fn libraries(window: &mut Window, test: &str, names: &[&str], flags: &[&str]) -> Option<(Vec<Rc<Library>>, Rc<Task>)> {
    let folder = tools::folder(test);
    let mut objects = Vec::new();
    for name in names {
        let mut source = tools::sources().join(format!("{name}.cc"));
        if !source.is_file() {
            source.set_extension("c");
        }
        let object = folder.join(format!("{name}.o"));
        tools::compile(&source, &object, flags)?;
        objects.push(object);
    }
    let host = folder.join("cxxhost.md");
    let mut describe = Command::new(env!("CARGO_BIN_EXE_module-cli"));
    describe.arg("describe").args(&objects).arg("--rest").arg(&host);
    for name in &names[..names.len() - 1] {
        describe
            .arg("--import")
            .arg(tools::sources().join(format!("{name}.md")));
    }
    let output = describe.output().expect("the tool runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut libraries = Vec::new();
    for name in names {
        let path = tools::sources().join(format!("{name}.md"));
        let folders = std::slice::from_ref(&folder);
        let (_, built) = make::make(&path, folders, window).unwrap_or_else(|error| panic!("{error}"));
        libraries.push(Library::load(name, built.object).unwrap_or_else(|error| panic!("{error}")));
    }
    Some((libraries, task_with(&host)))
}

fn task_with(host: &Path) -> Rc<Task> {
    let task = Task::new(Binding::Lazy);
    let host = make::describe(host).unwrap_or_else(|error| panic!("{error}"));
    task.add_foreign(&host).unwrap_or_else(|error| panic!("{error}"));
    task
}

#[test]
fn exceptions_of_cxx_pass_between_modules() {
    let mut window = tools::window(8);
    for level in ["-O0", "-O2", "-Os"] {
        let Some((libraries, task)) = libraries(&mut window, &format!("cxx{level}"), &["cxxlib", "cxxmain"], &[level])
        else {
            return;
        };
        for library in &libraries {
            task.add(library);
        }
        let main = task.instance("cxxmain").unwrap_or_else(|error| panic!("{error}"));
        let line = task.call(main, "check", [0; 4]).map(|line| line as u32);
        assert_eq!(line, Some(0), "the line of cxxmain.cc that failed, {level}");
        // A second task has the same text and other data; the first one's may go.
        let other = task_with(&tools::folder(&format!("cxx{level}")).join("cxxhost.md"));
        for library in &libraries {
            other.add(library);
        }
        let second = other.instance("cxxmain").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            other.call(second, "check", [0; 4]).map(|line| line as u32),
            Some(0),
            "{level}"
        );
        let mut ended = 0_i32;
        task.call(main, "tell_end", [std::ptr::from_mut(&mut ended) as u64, 0, 0, 0]);
        drop(task);
        assert_eq!(ended, 1, "static objects end with their instance");
        let third = other.another("cxxmain").unwrap_or_else(|error| panic!("{error}"));
        for number in [second, third] {
            let line = other.call(number, "exceptions_only", [0; 4]).map(|line| line as u32);
            assert_eq!(line, Some(0), "{level}");
        }
    }
}

#[test]
fn the_caller_is_found_from_every_instruction() {
    let mut window = tools::window(9);
    for level in ["-O0", "-O2"] {
        let Some((libraries, task)) =
            libraries(&mut window, &format!("step{level}"), &["steplib", "stepmain"], &[level])
        else {
            return;
        };
        for library in &libraries {
            task.add(library);
        }
        let lazy = steps(&task, level);
        let eager = Task::new(Binding::Eager);
        let host = tools::folder(&format!("step{level}")).join("cxxhost.md");
        eager
            .add_foreign(&make::describe(&host).unwrap_or_else(|error| panic!("{error}")))
            .unwrap_or_else(|error| panic!("{error}"));
        for library in &libraries {
            eager.add(library);
        }
        assert!(lazy > steps(&eager, level) + 100, "the binder was looked at, too");
    }
}

/// The instructions at which the caller was looked for.
fn steps(task: &Task, level: &str) -> u64 {
    // Made before, because the unwinder, asked while it is told of new frames, waits for itself. Bound at the first call.
    task.instance("steplib").unwrap_or_else(|error| panic!("{error}"));
    let main = task.instance("stepmain").unwrap_or_else(|error| panic!("{error}"));
    let failed = task.call(main, "check", [0; 4]).map(|line| line as u32);
    let wrong = task.call(main, "wrong", [0; 4]).unwrap_or_default();
    assert_eq!(
        failed,
        Some(0),
        "the call of stepmain.c that failed, {level}, at {wrong:#x}"
    );
    task.call(main, "stepped", [0; 4]).unwrap_or_default()
}

#[test]
fn gdb_sees_functions_lines_and_all_frames() {
    let mut window = tools::window(10);
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("not tested: there is no gdb");
        return;
    }
    if libraries(&mut window, "gdb", &["steplib", "stepmain"], &["-O0"]).is_none() {
        return;
    }
    let folder = tools::folder("gdb");
    let tool = env!("CARGO_BIN_EXE_module-cli");
    let mut window = tools::window(10);
    for name in ["steplib", "stepmain"] {
        let path = tools::sources().join(format!("{name}.md"));
        let made = make::make(&path, std::slice::from_ref(&folder), &mut window);
        let (_, built) = made.unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(folder.join(format!("{name}.mm")), built.object).expect("a module");
    }
    // $rbx in a function is the data of its instance, which tells where its thunks are.
    let symbols = |name: &str, data: &str| {
        format!(
            "{tool} symbols {name}.mm --from {}/{name}.md --in . {data} -o {name}{}.sym",
            tools::sources().display(),
            if data.is_empty() { "" } else { "-data" }
        )
    };
    let load = |name: &str| format!("eval \"shell {}\", $rbx", symbols(name, "--data %#lx"));
    let commands = [
        "set debuginfod enabled off".to_string(),
        "set width 0".to_string(),
        "run".to_string(),
        format!("shell {}", symbols("steplib", "")),
        format!("shell {}", symbols("stepmain", "")),
        "add-symbol-file steplib.sym".to_string(),
        "add-symbol-file stepmain.sym".to_string(),
        "break nested".to_string(),
        "continue".to_string(),
        load("stepmain"),
        "add-symbol-file stepmain-data.sym".to_string(),
        "break plain".to_string(),
        "continue".to_string(),
        load("steplib"),
        "add-symbol-file steplib-data.sym".to_string(),
        "backtrace".to_string(),
        "print count".to_string(),
        "finish".to_string(),
    ];
    let mut gdb = Command::new("gdb");
    gdb.current_dir(&folder).args(["-nx", "-batch", "-q"]);
    for command in &commands {
        gdb.args(["-ex", command]);
    }
    gdb.args(["--args", tool, "run", "steplib.mm", "stepmain.mm"]);
    gdb.args(["--host", "cxxhost.md", "--call", "nested", "--trap"]);
    let output = gdb.output().expect("gdb runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let frames: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let expected = [
        "plain (a=3) at ",
        "ten (a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) at ",
        "ten@thunk ()",
        "deep (a=10) at ",
        "deep@thunk ()",
        "back (call=",
        "back@thunk ()",
        "nested () at ",
        "nested@thunk ()",
    ];
    let mut met = frames.iter();
    for one in expected {
        assert!(met.any(|frame| frame.contains(one)), "{one}:\n{text}");
    }
    assert!(met.any(|frame| frame.contains("main")), "{text}");
    let source = std::fs::read_to_string(tools::sources().join("steplib.c")).expect("a source");
    let line = 1 + source
        .lines()
        .position(|line| line.starts_with("long plain"))
        .expect("plain");
    assert!(
        text.contains(&format!("steplib.c:{line}\n")) && text.contains("= 0\n"),
        "{text}"
    );
}
