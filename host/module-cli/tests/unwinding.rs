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
        libraries.iter().for_each(|library| task.add(library));
        let main = task.instance("cxxmain").unwrap_or_else(|error| panic!("{error}"));
        let line = task.call(main, "check", [0; 4]).map(|line| line as u32);
        assert_eq!(line, Some(0), "the line of cxxmain.cc that failed, {level}");
        // A second task has the same text and other data; the first one's may go.
        let other = task_with(&tools::folder(&format!("cxx{level}")).join("cxxhost.md"));
        libraries.iter().for_each(|library| other.add(library));
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
        libraries.iter().for_each(|library| task.add(library));
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
        let steps = task.call(main, "stepped", [0; 4]).unwrap_or_default();
        // Thunks with a loop for each word, and the binder before the first.
        assert!(steps > 600, "{steps}");
    }
}
