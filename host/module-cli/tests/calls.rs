//! Every way of calling between two C modules, in two tasks that share their text. Needs gcc; says so if
//! there is none.

mod tools;

use linker::module::format::Module;
use linker::module::window::Window;
use module_cli::host::{Binding, Library, Task};
use module_cli::make;
use std::rc::Rc;

/// The test modules, linked and loaded once per call, at addresses of a window of their own.
fn libraries(window: &mut Window, level: &str) -> Option<Vec<Rc<Library>>> {
    let folder = tools::folder(&format!("calls{level}-{}", window.next()));
    let mut result = Vec::new();
    for name in ["lib", "main"] {
        let source = tools::sources().join(format!("{name}.c"));
        tools::compile(&source, &folder.join(format!("{name}.o")), &[level])?;
        let path = tools::sources().join(format!("{name}.md"));
        let (_, built) =
            make::make(&path, std::slice::from_ref(&folder), window).unwrap_or_else(|error| panic!("{error}"));
        result.push(Library::load(name, built.object).unwrap_or_else(|error| panic!("{error}")));
    }
    Some(result)
}

fn task(libraries: &[Rc<Library>], binding: Binding) -> Rc<Task> {
    let task = Task::new(binding);
    for library in libraries {
        task.add(library);
    }
    let host = make::describe(&tools::sources().join("host.md")).expect("host.md");
    task.add_foreign(&host).unwrap_or_else(|error| panic!("{error}"));
    task
}

#[test]
fn calls_of_every_kind_work_at_every_level() {
    let mut window = tools::window(0);
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let Some(libraries) = libraries(&mut window, level) else {
            return;
        };
        for binding in [Binding::Eager, Binding::Lazy] {
            let task = task(&libraries, binding);
            let main = task.instance("main").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(task.call(main, "started", [0; 4]), Some(1000), "the constructor ran");
            let line = task.call(main, "check", [0; 4]).map(|line| line as u32);
            assert_eq!(line, Some(0), "the line of main.c that failed, {level} {binding:?}");
        }
    }
}

#[test]
fn instances_share_text_and_nothing_else() {
    let mut window = tools::window(1);
    let Some(libraries) = libraries(&mut window, "-O2") else {
        return;
    };
    let (one, two) = (task(&libraries, Binding::Eager), task(&libraries, Binding::Lazy));
    let first = one.instance("main").expect("the first");
    let second = two.instance("main").expect("the second");
    let next = |task: &Task, number| task.call(number, "next", [0; 4]).expect("next is exported") as u32;
    assert_eq!([next(&one, first), next(&one, first), next(&two, second)], [1, 2, 1]);
    // A further instance in the same task has data of its own; what it imports is the task's.
    let further = one.another("main").expect("a further one");
    let bump = |task: &Task, number| task.call(number, "bump", [0; 4]).expect("bump is exported") as u32;
    assert_eq!(
        [bump(&one, first), bump(&one, first), bump(&one, further)],
        [1001, 1002, 1001]
    );
    assert_eq!(next(&one, further), 3);
    assert_ne!(one.data_address(first), one.data_address(further));
    // Shared functions are the same address for all, private ones are not.
    let address = |task: &Task, number, name| task.symbol(number, name).expect("it is exported");
    assert_ne!(address(&one, first, "check"), address(&one, further, "check"));
    // The thunks' pages are the same frames.
    let frames: Vec<u64> = [(&one, first), (&one, further), (&two, second)]
        .iter()
        .map(|(task, number)| tools::frame_key(address(task, *number, "check")))
        .collect();
    assert!(frames.windows(2).all(|pair| pair[0] == pair[1]), "{frames:x?}");
}

#[test]
fn what_needs_no_data_is_called_directly() {
    let mut window = tools::window(2);
    let Some(libraries) = libraries(&mut window, "-O2") else {
        return;
    };
    let module = libraries[0].module();
    let private = |name: &str| {
        let export = module.exports().find(|one| one.name == name).expect("it is exported");
        export.value & linker::module::format::PRIVATE != 0
    };
    assert!(private("counter_next") && private("sum9") && private("exported_variable"));
    assert!(!private("exported_names"));
    let _: Module<'_> = module;
}
