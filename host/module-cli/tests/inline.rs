//! Inline calls: what they do is what ordinary calls do, whoever the exporter has become since, and what cannot be one is
//! refused. Needs gcc; says so if there is none.

mod tools;

use linker::module::format::{self, Module};
use linker::module::window::Window;
use linker::module::{Cause, Fault};
use module_cli::header;
use module_cli::host::{Binding, Library, Task};
use module_cli::make::{self, MakeError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Writes the header of a description's module into the folder where its objects are.
fn write_header(description: &Path, folder: &Path, name: &str) {
    let sources = make::gather(description, &[folder.to_path_buf()]).unwrap_or_else(|error| panic!("{error}"));
    let text = header::write(&sources, &[]).unwrap_or_else(|why| panic!("{why}"));
    std::fs::write(folder.join(name), text).expect("a header");
}

fn include(folder: &Path) -> [String; 2] {
    [
        format!("-I{}", folder.display()),
        format!("-I{}", tools::sources().display()),
    ]
}

/// The exporter and its client, compiled with flags; the folder they are in.
fn objects(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let folder = tools::folder(name);
    std::fs::write(folder.join("gond_inline.h"), header::PRELUDE).expect("a header");
    let include = include(&folder);
    let mut all: Vec<&str> = flags.to_vec();
    all.extend(include.iter().map(String::as_str));
    all.extend(["-Wall", "-Wextra", "-Werror"]);
    tools::compile(&tools::sources().join("inline.c"), &folder.join("inline.o"), &all)?;
    write_header(&tools::sources().join("inline.md"), &folder, "inline.inline.h");
    tools::compile(
        &tools::sources().join("inlineclient.c"),
        &folder.join("inlineclient.o"),
        &all,
    )?;
    Some(folder)
}

fn link(name: &str, folder: &Path, window: &mut Window) -> Vec<u8> {
    let path = tools::sources().join(format!("{name}.md"));
    let made = make::make(&path, &[folder.to_path_buf()], window);
    made.unwrap_or_else(|error| panic!("{error}")).1.object
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

fn load(name: &str, object: Vec<u8>) -> Rc<Library> {
    Library::load(name, object).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn they_do_what_calls_do_at_every_level() {
    let mut window = tools::window(6);
    let ways: [&[&str]; 7] = [
        &["-O0"],
        &["-O1"],
        &["-O2"],
        &["-O3"],
        &["-Os"],
        &["-O2", "-fno-omit-frame-pointer", "-fno-inline"],
        &["-O3", "-mavx512f", "-funroll-loops"],
    ];
    for (number, flags) in ways.into_iter().enumerate() {
        let Some(folder) = objects(&format!("inline-{number}"), flags) else {
            return;
        };
        if flags.contains(&"-mavx512f") {
            // It compiles and links; not every processor can run it.
            link("inlineclient", &folder, &mut window);
            continue;
        }
        let libraries = ["inline", "inlineclient"].map(|name| load(name, link(name, &folder, &mut window)));
        for binding in [Binding::Eager, Binding::Lazy] {
            let task = task(&libraries, binding);
            let client = task.instance("inlineclient").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(task.instances(), 2, "it is bound before the first call, {binding:?}");
            let line = task.call(client, "check", [0; 4]).map(|line| line as u32);
            assert_eq!(
                line,
                Some(0),
                "the line of inlineclient.c that failed, {flags:?} {binding:?}"
            );
        }
    }
}

#[test]
fn every_instance_calls_its_own() {
    let mut window = tools::window(7);
    let Some(folder) = objects("inline-instances", &["-O2"]) else {
        return;
    };
    let libraries = ["inline", "inlineclient"].map(|name| load(name, link(name, &folder, &mut window)));
    let tasks = [Binding::Eager, Binding::Lazy].map(|binding| task(&libraries, binding));
    let [one, two] = tasks
        .each_ref()
        .map(|task| task.instance("inlineclient").expect("a client"));
    let further = tasks[0].another("inlineclient").expect("a further client");
    let bump = |task: usize, number| tasks[task].call(number, "bump", [0; 4]).expect("it is exported") as u32;
    assert_eq!(
        [bump(0, one), bump(0, one), bump(1, two)],
        [1_001_101, 1_002_102, 1_001_101]
    );
    // A further client has its own data, and the task's instance of what it calls.
    assert_eq!([bump(0, further), bump(0, one)], [1_001_103, 1_003_104]);
}

#[test]
fn the_words_are_those_of_functions_without_thunks() {
    let mut window = tools::window(8);
    let Some(folder) = objects("inline-words", &["-O2"]) else {
        return;
    };
    let (exporter, client) = (
        link("inline", &folder, &mut window),
        link("inlineclient", &folder, &mut window),
    );
    let (exporter, client) = (Module::reopen(&exporter), Module::reopen(&client));
    for (number, export) in exporter.exports().enumerate() {
        let entry = exporter.entry(number as u32);
        match export.name {
            "in_variable" => assert_eq!(entry, None),
            "in_pure" => assert_eq!(entry, Some(export.value)),
            _ => {
                assert_ne!(export.value & format::PRIVATE, 0, "{} has a thunk", export.name);
                let symbols = exporter.symbols();
                let symbol = symbols.iter().find(|symbol| symbol.name == export.name);
                assert_eq!(entry, symbol.map(|symbol| symbol.address), "{}", export.name);
            }
        }
    }
    let words: Vec<&str> = client
        .import_fixups()
        .filter(|word| word.entry)
        .map(|word| client.wanted(word.import, Some(word.export)))
        .collect();
    assert_eq!(
        words.len(),
        13,
        "each function once, however often it is called: {words:?}"
    );
    assert!(!words.contains(&"in_seven") && !words.contains(&"in_sum") && !words.contains(&"in_pure"));
    let imports: Vec<(&str, bool)> = client.imports().map(|one| (one.name(), one.lazy)).collect();
    assert_eq!(
        imports,
        [("host", true), ("inline", false)],
        "only what is called inline must be bound early"
    );
}

#[test]
fn sources_of_modules_are_sources_of_programs() {
    let Some(folder) = objects("inline-program", &["-O2"]) else {
        return;
    };
    let program = folder.join("program");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(include(&folder));
    for name in ["inline.c", "inlineclient.c", "inlinemain.c"] {
        gcc.arg(tools::sources().join(name));
    }
    assert!(gcc.status().expect("gcc").success());
    let status = Command::new(&program).status().expect("the program runs");
    assert_eq!(
        status.code(),
        Some(0),
        "the line of inlineclient.c that failed, modulo 256"
    );
    // Where exceptions may pass, calls stay calls.
    let object = folder.join("exceptions.o");
    let include = include(&folder);
    let flags = ["-O2", "-fexceptions", &include[0], &include[1]];
    tools::compile(&tools::sources().join("inlineclient.c"), &object, &flags).expect("gcc was there");
    let bytes = std::fs::read(&object).expect("an object");
    assert!(!bytes.windows(6).any(|six| six == b".entry"));
}

#[test]
fn descriptions_name_functions_and_not_their_words() {
    let Some(folder) = objects("inline-describe", &["-O2"]) else {
        return;
    };
    let mut tool = Command::new(env!("CARGO_BIN_EXE_module-cli"));
    let output = tool
        .arg("describe")
        .arg(folder.join("inlineclient.o"))
        .output()
        .expect("the tool");
    let missing = String::from_utf8_lossy(&output.stderr);
    let mut names: Vec<&str> = missing
        .lines()
        .filter_map(|line| line.strip_prefix("missing: "))
        .collect();
    names.retain(|name| !name.starts_with("in_"));
    assert_eq!(
        names,
        ["_setjmp"],
        "its own function and the words of procedures are not missing"
    );
    assert!(missing.contains("missing: in_count\n"), "{missing}");
}

/// A module of one source, of a name and version, in a folder; linked, or the linker's faults.
struct Source<'a> {
    folder: &'a Path,
    name: &'a str,
    version: u32,
    imports: &'a str,
    exports: &'a str,
}

impl Source<'_> {
    fn describe(&self) -> PathBuf {
        let text = format!(
            "[MODULE]\nname {0}\nversion {1}\n[IMPORTS]\n{2}\n[EXPORTS]\n{3}\n[OBJECTS]\n{0}-{1}.o\n",
            self.name, self.version, self.imports, self.exports
        );
        let path = self.folder.join(format!("{}.md", self.name));
        std::fs::write(&path, text).expect("a description");
        path
    }

    fn compile(&self, text: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = self.folder.join(format!("{}-{}.c", self.name, self.version));
        std::fs::write(&source, text).expect("a source");
        let description = self.describe();
        tools::compile(&source, &source.with_extension("o"), flags)?;
        Some(description)
    }

    fn link(&self, text: &str, window: &mut Window) -> Option<Result<Vec<u8>, Vec<Fault>>> {
        let path = self.compile(text, &["-O2"])?;
        match make::make(&path, &[], window) {
            Ok((_, built)) => Some(Ok(built.object)),
            Err(MakeError::Link(faults)) => Some(Err(faults)),
            Err(other) => panic!("{other}"),
        }
    }
}

const CALLER: &str = "long f(long);\n#include \"g.inline.h\"\nlong n;\nlong call(long x) { n++; return f(x) + n; }\n";

#[test]
fn a_newer_exporter_may_be_anything_that_its_callers_can_call() {
    let folder = tools::folder("inline-newer");
    let mut window = tools::window(9);
    let exporter = |version| Source {
        folder: &folder,
        name: "g",
        version,
        imports: "",
        exports: "f",
    };
    // With data; without; with data again, behind more parameters, which it has on the stack if somebody passes them.
    let texts = [
        (
            "static long count = 100;\nlong f(long x) { return x + count++; }\n",
            [102, 105],
        ),
        ("long f(long x) { return x * 1000; }\n", [1001, 2002]),
        (
            "#include <stdarg.h>\nstatic long count = 7;\nlong f(long x, ...) { va_list l; long y; va_start(l, x);\n\
             y = x > 9 ? va_arg(l, long) : 0; va_end(l); return x + y + count++; }\n",
            [9, 12],
        ),
    ];
    let mut versions = Vec::new();
    for (index, (text, expected)) in texts.into_iter().enumerate() {
        let Some(linked) = exporter(index as u32 + 1).link(text, &mut window) else {
            return;
        };
        let object = linked.unwrap_or_else(|faults| panic!("{}", faults[0]));
        if index == 0 {
            write_header(&folder.join("g.md"), &folder, "g.inline.h");
        }
        versions.push((load("g", object), expected));
    }
    let values: Vec<bool> = versions
        .iter()
        .map(|(library, _)| library.module().value(0) & format::PRIVATE != 0)
        .collect();
    assert_eq!(values, [true, false, true]);
    let client = Source {
        folder: &folder,
        name: "caller",
        version: 1,
        imports: "g.md",
        exports: "call",
    };
    exporter(1).describe();
    let client = load(
        "caller",
        client
            .link(CALLER, &mut window)
            .expect("gcc was there")
            .expect("it links"),
    );
    for (version, expected) in &versions {
        let task = task(&[client.clone(), version.clone()], Binding::Lazy);
        let number = task.instance("caller").unwrap_or_else(|error| panic!("{error}"));
        let results = [1, 2].map(|x| task.call(number, "call", [x, 0, 0, 0]).expect("it is exported"));
        assert_eq!(results, *expected);
    }
}

#[test]
fn modules_that_import_each_other_call_each_other_inline() {
    let folder = tools::folder("inline-cycle");
    let mut window = tools::window(10);
    let source = |name, imports, exports| Source {
        folder: &folder,
        name,
        version: 1,
        imports,
        exports,
    };
    let (ping, pong) = (source("ping", "pong.md", "ping"), source("pong", "ping.md", "pong"));
    let text = |this: &str, other: &str, include: bool, start: i32| {
        let include = if include {
            format!("#include \"{other}.inline.h\"\n")
        } else {
            String::new()
        };
        format!(
            "long {other}(long);\n{include}static long n = {start};\n\
             long {this}(long x) {{ n++; return x == 0 ? n : {other}(x - 1) + n * 0; }}\n"
        )
    };
    // The headers come from objects that call as usual.
    for include in [false, true] {
        for (one, other, start) in [(&ping, &pong, 0), (&pong, &ping, 100)] {
            if one
                .compile(&text(one.name, other.name, include, start), &["-O2"])
                .is_none()
            {
                return;
            }
        }
        for one in [&ping, &pong] {
            write_header(
                &folder.join(format!("{}.md", one.name)),
                &folder,
                &format!("{}.inline.h", one.name),
            );
        }
    }
    let libraries = ["ping", "pong"].map(|name| {
        let made = make::make(&folder.join(format!("{name}.md")), &[], &mut window);
        let object = made.unwrap_or_else(|error| panic!("{error}")).1.object;
        assert!(
            Module::reopen(&object).import_fixups().all(|word| word.entry),
            "{name} calls inline"
        );
        load(name, object)
    });
    for binding in [Binding::Eager, Binding::Lazy] {
        let task = task(&libraries, binding);
        let number = task.instance("ping").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(task.instances(), 2, "whatever the task wants, both are bound");
        assert_eq!(task.call(number, "ping", [10, 0, 0, 0]), Some(6));
        assert_eq!(task.call(number, "ping", [3, 0, 0, 0]), Some(107));
    }
}

/// A library `a` of functions and a variable, and `b` of a function, in a folder; with the header of `a`.
fn library(folder: &str, window: &mut Window) -> Option<PathBuf> {
    let folder = tools::folder(folder);
    let exporter = |name, exports| Source {
        folder: &folder,
        name,
        version: 1,
        imports: "",
        exports,
    };
    let library = "long n;\nlong f(long x) { return x + n++; }\nlong g(long x) { return x - n++; }\nlong v;\n\
                   struct s { long a[4]; };\nlong by(struct s s) { return s.a[0] + n; }\n";
    let linked = exporter("a", "f\ng\nby\nv data").link(library, window)?;
    linked.unwrap_or_else(|faults| panic!("{}", faults[0]));
    exporter("b", "h").link("long n;\nlong h(long x) { return x + n++; }\n", window);
    write_header(&folder.join("a.md"), &folder, "a.inline.h");
    Some(folder)
}

#[test]
fn the_compiler_refuses_what_the_declaration_does() {
    let Some(folder) = library("inline-compiler", &mut tools::window(11)) else {
        return;
    };
    for (body, message) in [
        ("return f();", "too few arguments"),
        ("return f(1, 2);", "too many arguments"),
        ("struct s { long a; } s = {1}; return f(s);", "incompatible type"),
        ("return f;", "makes integer from pointer"),
    ] {
        let source = folder.join("compiled.c");
        let text = format!("long f(long);\n#include \"a.inline.h\"\nlong n;\nlong call(long x) {{ n += x; {body} }}\n");
        std::fs::write(&source, text).expect("a source");
        let mut gcc = Command::new("gcc");
        gcc.args(module_cli::GCC_FLAGS)
            .args(["-c", "-Werror", "-o", "/dev/null"])
            .arg(&source);
        let output = gcc.env("LC_ALL", "C").output().expect("gcc");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{body}: {said}");
    }
}

const REGISTER: &str = "uses rbx for something else";
const INLINE: &str = "no inline call is possible here";

/// Sequences that are almost those of the header, and what is said of them.
const ALMOST: [(&str, &str); 25] = [
    ("movq f.data(%%r12), %%rbx; call *f.entry(%%r12); movq %%r12, %%rbx", ""),
    // Another function of the same module has the same data.
    ("movq g.data(%%r12), %%rbx; call *f.entry(%%r12); movq %%r12, %%rbx", ""),
    (
        "movq f.data(%%r12), %%rbx; call *h.entry(%%r12); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data(%%r12), %%rbx; call *f.entry(%%r12); movq %%r13, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data(%%r12), %%rbx; call *f.entry(%%r12); movq %%r12, %%rax",
        REGISTER,
    ),
    (
        "movq f.data(%%r12), %%rbx; nop; call *f.entry(%%r12); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data(%%r12), %%rbx; call *f.entry(%%r12); nop; movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data(%%r12), %%rbx; call *f.entry(%%r13); movq %%r12, %%rbx",
        REGISTER,
    ),
    ("movq f.data(%%r12), %%rbx; jmp *f.entry(%%r12)", REGISTER),
    (
        "movq f.data(%%rax), %%rbx; call *f.entry(%%rax); movq %%rax, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data(%%r12,%%rax), %%rbx; call *f.entry(%%r12); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq f.entry(%%r12), %%rbx; call *f.data(%%r12); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq f.data+8(%%r12), %%rbx; call *f.entry(%%r12); movq %%r12, %%rbx",
        INLINE,
    ),
    (
        "movq gond_procedure.data(%%r12), %%rbx; call *gond_procedure.entry(%%r12); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq gond_procedure.data(%%rax), %%rbx; call *f.entry(%%rax); movq %%r12, %%rbx",
        REGISTER,
    ),
    (
        "movq v.data(%%r12), %%rbx; call *v.entry(%%r12); movq %%r12, %%rbx",
        "called here as a function",
    ),
    (
        "movq k.data(%%r12), %%rbx; call *k.entry(%%r12); movq %%r12, %%rbx",
        "nobody defines it",
    ),
    (
        "movq call.data(%%r12), %%rbx; call *call.entry(%%r12); movq %%r12, %%rbx",
        "is in this module",
    ),
    ("movq f.entry(%%r12), %%rax", INLINE),
    ("call *f.entry(%%rbx)", INLINE),
    ("movq f.data(%%rip), %%rax", INLINE),
    ("call f.entry", INLINE),
    ("call *f.entry@GOTPCREL(%%rip)", INLINE),
    ("leaq f.entry(%%rip), %%rax", "use GOND_PROCEDURE_OF"),
    ("call call.entry", INLINE),
];

#[test]
fn the_linker_refuses_all_other_sequences() {
    let mut window = tools::window(12);
    let Some(folder) = library("inline-linker", &mut window) else {
        return;
    };
    let user = |text: &str, window: &mut Window| {
        let user = Source {
            folder: &folder,
            name: "user",
            version: 1,
            imports: "a.md\nb.md",
            exports: "call",
        };
        user.link(text, window).expect("gcc was there")
    };
    let sequence = |lines: &str| {
        format!(
            "long n;\nlong call(long x) {{ n++; __asm__ volatile(\"movq %%rbx, %%r12\\n\\t{lines}\" : \"+D\"(x) : : \
             \"rax\", \"r12\", \"r13\", \"memory\"); return x; }}\n"
        )
    };
    for (lines, message) in ALMOST {
        match (user(&sequence(lines), &mut window), message) {
            (Ok(_), "") => {}
            (Err(faults), "") => panic!("{lines}: {}", faults[0]),
            (Ok(_), message) => panic!("{lines} links, but should say {message}"),
            (Err(faults), message) => {
                let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
                assert!(text.iter().any(|one| one.contains(message)), "{lines}: {text:?}");
                assert!(
                    text.iter().all(|one| one.starts_with("user-1.o: .text.call")),
                    "{lines}: {text:?}"
                );
            }
        }
    }
    let text = "long *words(void);\nextern long f_entry __asm__(\"f.entry\");\nlong *p = &f_entry;\nlong call(long x) { return *p + x; }\n";
    let faults = user(text, &mut window).expect_err("a variable cannot hold it");
    assert!(
        faults.iter().any(|fault| matches!(fault.cause, Cause::InlineCall(_))),
        "{}",
        faults[0]
    );
}

#[test]
fn the_command_says_how_it_is_used() {
    for words in [["header", "--help"], ["header", "-h"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_module-cli"))
            .args(words)
            .output()
            .expect("the tool");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.starts_with("  gond module header ["),
            "{text}"
        );
        assert!(text.contains("inline") && !text.contains("gond module show"), "{text}");
    }
}

#[test]
fn the_header_says_what_it_has_not() {
    let Some(folder) = library("inline-header", &mut tools::window(13)) else {
        return;
    };
    let sources = make::gather(&folder.join("a.md"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let write = |name: &str| header::write(&sources, &[name.to_string()]);
    assert!(write("f").is_ok_and(|text| text.contains("#define f(") && !text.contains("#define g(")));
    for (name, message) in [
        ("by", "a structure"),
        ("v", "being a variable"),
        ("k", "exports no 'k'"),
    ] {
        assert!(write(name).is_err_and(|why| why.contains(message)), "{name}");
    }
    let all = header::write(&sources, &[]).expect("all that can be");
    assert!(
        all.contains("/* by is called as before: it has a parameter that is a structure. */"),
        "{all}"
    );
    let described = Source {
        folder: &folder,
        name: "described",
        version: 1,
        imports: "",
        exports: "f",
    };
    let text = std::fs::read_to_string(described.describe()).expect("a description");
    std::fs::write(folder.join("described.md"), text.replace("described-1.o\n", "")).expect("a description");
    let sources = make::gather(&folder.join("described.md"), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(header::write(&sources, &[]).is_err_and(|why| why.contains("no objects")));
}
