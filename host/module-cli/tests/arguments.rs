//! Arguments that are hard to find: behind large named ones of a variadic function, on the last bytes of a stack, of unions,
//! packed structures and bit-fields; and functions of another calling convention, which are refused. Needs gcc; clang for some.

mod tools;

use linker::module::Cause;
use module_cli::host::{Binding, Library, Task};
use module_cli::make::{self, MakeError};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

fn task(level: &[&str], test: &str, number: u64) -> Option<Rc<Task>> {
    let mut window = tools::window(number);
    let folder = tools::folder(&format!("arguments-{test}{}", level.concat()));
    let task = Task::new(Binding::Lazy);
    for name in ["argslib", "argsmain"] {
        let source = tools::sources().join(format!("{name}.c"));
        tools::compile(&source, &folder.join(format!("{name}.o")), level)?;
        let path = tools::sources().join(format!("{name}.md"));
        let (_, built) =
            make::make(&path, std::slice::from_ref(&folder), &mut window).unwrap_or_else(|error| panic!("{error}"));
        let library = Library::load(name, built.object).unwrap_or_else(|error| panic!("{error}"));
        task.add(&library);
    }
    let host = make::describe(&tools::sources().join("argshost.md")).expect("argshost.md");
    task.add_foreign(&host).unwrap_or_else(|error| panic!("{error}"));
    Some(task)
}

const LEVELS: [&[&str]; 6] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-gdwarf-4", "-fno-omit-frame-pointer"],
];

fn call(test: &str, number: u64) {
    for (index, level) in LEVELS.iter().enumerate() {
        let Some(task) = task(level, test, number + index as u64) else {
            return;
        };
        let main = task.instance("argsmain").unwrap_or_else(|error| panic!("{error}"));
        let line = task.call(main, test, [0; 4]).map(|line| line as u32);
        assert_eq!(line, Some(0), "the line of argsmain.c that failed, {level:?}");
    }
}

#[test]
fn arguments_are_where_the_callee_looks() {
    call("check", 20);
}

#[test]
fn a_variadic_call_reads_no_more_than_the_stack_has() {
    call("at_the_end", 30);
}

/// Links a C text, compiled as `compile` does, whose function `f` needs a thunk.
fn link(test: &str, text: &str, compile: impl Fn(&Path, &Path) -> Option<()>) -> Option<Result<(), String>> {
    let folder = tools::folder(&format!("arguments-{test}"));
    let source = folder.join("one.c");
    std::fs::write(&source, text).expect("a source");
    compile(&source, &folder.join("one.o"))?;
    let description = folder.join("one.md");
    std::fs::write(
        &description,
        "[MODULE]\nname one\nversion 1\n[EXPORTS]\nf\n[OBJECTS]\none.o\n",
    )
    .expect("a description");
    Some(match make::make(&description, &[], &mut tools::window(40)) {
        Ok(_) => Ok(()),
        Err(MakeError::Link(faults)) => {
            assert!(
                faults.iter().all(|one| matches!(one.cause, Cause::StackParameter(_))),
                "{faults:?}"
            );
            Err(faults[0].to_string())
        }
        Err(other) => panic!("{test}: {other}"),
    })
}

#[test]
fn another_calling_convention_is_refused_by_name() {
    let other = [
        "static int n;\n__attribute__((ms_abi)) long f(long a) { n++; return a; }\n",
        "static int n;\n__attribute__((ms_abi)) long f(char *a, long b, int c, long d, long e) { n++; return *a + b + c + d + e; }\n",
        "static int n;\n__attribute__((ms_abi)) int f(double x, int k) { n++; return (int)x + k; }\n",
        "struct s { long x[4]; };\nstatic int n;\n__attribute__((ms_abi)) long f(struct s a) { n++; return a.x[2]; }\n",
        "static int n;\n__attribute__((ms_abi)) int f(int a, ...) { n++; return a; }\n",
    ];
    let own = [
        "static int n;\nlong f(long a, char *b, long c, short d, long e, long g, long h) { n++; return a + *b + c + d + e + g + h; }\n",
        "struct s { long x[4]; };\nstruct t { long x[2]; };\nstatic int n;\n\
         struct s f(struct s a, struct t c, double b) { n++; a.x[2] += b + c.x[1]; return a; }\n",
        "static int n;\nint f(float a, int b, ...) { n++; return a + b; }\n",
    ];
    let gcc =
        |level: &'static [&'static str]| move |source: &Path, object: &Path| tools::compile(source, object, level);
    let clang = |source: &Path, object: &Path| {
        let mut clang = Command::new("clang");
        let flags = ["-c", "-g", "-O1", "-fpie", "-ffunction-sections"];
        let status = clang.args(flags).arg(source).arg("-o").arg(object).status();
        status.ok().map(|status| assert!(status.success()))
    };
    for (index, (text, refused)) in other
        .iter()
        .map(|text| (*text, true))
        .chain(own.iter().map(|text| (*text, false)))
        .enumerate()
    {
        let mut results = Vec::new();
        for level in LEVELS {
            results.push(link(&format!("convention-{index}{}", level.concat()), text, gcc(level)));
        }
        results.push(link(&format!("convention-{index}clang"), text, clang));
        for (which, result) in results.into_iter().enumerate() {
            match result {
                Some(Ok(())) => assert!(!refused, "compiled in way {which}, it links: {text}"),
                Some(Err(why)) => assert!(refused && why.contains("ms_abi"), "way {which}: {why}: {text}"),
                // The compiler is not there.
                None => {}
            }
        }
    }
}
