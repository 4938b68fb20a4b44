//! Objects of several compilers and sets of flags: each works as without modules, or is refused with the real cause. Needs gcc;
//! clang for some.

mod tools;

use linker::module::window::Window;
use module_cli::host::{Binding, Library, Task};
use module_cli::make::{self, MakeError};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Compiles texts with flags of their own and links them as a module that exports `names`; the path of the description.
fn describe(test: &str, sources: &[(&str, &[&str])], names: &str) -> Option<PathBuf> {
    let folder = tools::folder(&format!("compiled-{test}"));
    let mut objects = String::new();
    for (index, (text, flags)) in sources.iter().enumerate() {
        let source = folder.join(format!("{index}.c"));
        std::fs::write(&source, text).expect("a source");
        tools::compile(
            &source,
            &folder.join(format!("{index}.o")),
            &[&["-O2"], *flags].concat(),
        )?;
        let _ = writeln!(objects, "{index}.o");
    }
    let path = folder.join("module.md");
    let text = format!("[MODULE]\nname {test}\nversion 1\n[EXPORTS]\n{names}\n[OBJECTS]\n{objects}");
    std::fs::write(&path, text).expect("a description");
    Some(path)
}

fn refusal(path: &Path) -> String {
    match make::make(path, &[], &mut Window::default()) {
        Ok(_) => "it links".into(),
        Err(MakeError::Link(faults)) => {
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            texts.join("\n")
        }
        Err(other) => panic!("{other}"),
    }
}

/// A task with the module's instance in it.
fn instance(path: &Path, window: u64) -> Rc<Task> {
    let mut window = tools::window(window);
    let (_, built) = make::make(path, &[], &mut window).unwrap_or_else(|error| panic!("{error}"));
    let library = Library::load("compiled", built.object).unwrap_or_else(|error| panic!("{error}"));
    let task = Task::new(Binding::Eager);
    task.add(&library);
    task.instance(library.module().name())
        .unwrap_or_else(|error| panic!("{error}"));
    task
}

fn call(task: &Task, name: &str, word: u64) -> i32 {
    task.call(0, name, [word, 0, 0, 0]).expect("it is exported") as i32
}

#[test]
fn a_function_on_the_stack_is_refused() {
    let nested = "static int n;\nint (*volatile q)(int);\n\
                  int f(int x) { int g(int y) { return x + y + n; } q = g; return q(3); }\n";
    let Some(path) = describe("nested", &[(nested, &[])], "f") else {
        return;
    };
    let why = refusal(&path);
    assert!(why.contains("executable stack") && why.contains("0.o"), "{why}");
    // A nested function whose address nobody takes needs none.
    let called = "static int n;\nint f(int x) { int g(int y) { return x + y + n; } return g(3); }\n";
    let path = describe("called", &[(called, &["-O0"])], "f").expect("gcc was there");
    assert_eq!(call(&instance(&path, 50), "f", 4), 7);
}

#[test]
fn a_stack_protector_is_refused_and_not_asked_for() {
    let text = "static int n;\nvoid fill(char *p) { p[0] = n; }\nvoid (*volatile q)(char *) = fill;\n\
                int f(int x) { char b[64]; n++; q(b); return b[x]; }\n";
    let Some(path) = describe("guarded", &[(text, &["-fstack-protector-all"])], "f") else {
        return;
    };
    let why = refusal(&path);
    assert!(why.contains("-fno-stack-protector") && why.contains(": f:"), "{why}");
    // Also where a description has what the compiler calls.
    let other = "[MODULE]\nname other\nversion 1\n[EXPORTS]\n__stack_chk_fail\n";
    std::fs::write(path.with_file_name("other.md"), other).expect("a description");
    let text = std::fs::read_to_string(&path).expect("the description");
    std::fs::write(&path, text.replace("[EXPORTS]", "[IMPORTS]\nother.md\n[EXPORTS]")).expect("the description");
    assert!(refusal(&path).contains("-fno-stack-protector"));
    // Compilers that protect unless they are told otherwise are told.
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/link/gond-cc"));
    let script = script.expect("gond-cc");
    for flag in module_cli::GCC_FLAGS
        .iter()
        .filter(|flag| !flag.starts_with("-isystem"))
    {
        assert!(script.contains(flag), "{flag}");
    }
    assert!(module_cli::GCC_FLAGS.contains(&"-fno-stack-protector"));
}

const SMALL: &str = "static int n;\nint f(int x) { return n++ + x; }\n";

#[test]
fn objects_without_machine_code_are_refused() {
    let Some(path) = describe("slim", &[(SMALL, &["-flto"])], "f") else {
        return;
    };
    let why = refusal(&path);
    assert!(why.contains("-flto") && why.contains("0.o"), "{why}");
    let path = describe("fat", &[(SMALL, &["-flto", "-ffat-lto-objects"])], "f").expect("gcc was there");
    assert_eq!(call(&instance(&path, 51), "f", 4), 4);
    // The same of clang, alone and in an archive.
    let path = describe("bitcode", &[(SMALL, &[])], "f").expect("gcc was there");
    let folder = path.with_file_name("");
    let mut clang = Command::new("clang");
    clang
        .current_dir(&folder)
        .args(["-O2", "-flto", "-c", "0.c", "-o", "0.o"]);
    if !clang.status().is_ok_and(|status| status.success()) {
        return;
    }
    let why = refusal(&path);
    assert!(why.contains("-flto") && why.contains("0.o"), "{why}");
    let mut archive = Command::new("ar");
    archive.current_dir(&folder).args(["rcS", "all.a", "0.o"]);
    assert!(archive.status().is_ok_and(|status| status.success()));
    let text = std::fs::read_to_string(&path).expect("the description");
    std::fs::write(&path, text.replace("0.o", "all.a")).expect("the description");
    let why = refusal(&path);
    assert!(why.contains("-flto") && why.contains("all.a(0.o)"), "{why}");
}

#[test]
fn debug_information_elsewhere_is_named() {
    let cases: [(&str, &[&str], &str); 4] = [
        ("compressed", &["-gz"], "-gz=none"),
        ("split", &["-gsplit-dwarf"], "-gno-split-dwarf"),
        ("split4", &["-gsplit-dwarf", "-gdwarf-4"], "-gno-split-dwarf"),
        ("none", &["-g0"], "compile with -g "),
    ];
    for (test, flags, message) in cases {
        let Some(path) = describe(test, &[(SMALL, flags)], "f") else {
            return;
        };
        let why = refusal(&path);
        assert!(why.contains(message) && why.contains("stack=N"), "{test}: {why}");
        // The description can say it.
        let path = describe(test, &[(SMALL, flags)], "f stack=0").expect("gcc was there");
        assert_eq!(refusal(&path), "it links");
    }
}

#[test]
fn linker_sets_are_whole() {
    // In two files; of constants, of constants that hold addresses of private functions, and of variables.
    let one = "struct e { int v; };\nstruct p { int (*f)(void); };\nint n = 1000;\n\
        #define SET(s) __attribute__((used, section(s)))\n\
        static const struct e SET(\"things\") a = { 1 }, SET(\"things\") b = { 2 };\n\
        static struct e SET(\"counters\") c = { 10 };\n\
        static int own(void) { return n; }\nstatic const struct p SET(\"calls\") d = { own };\n\
        extern const struct e __start_things[], __stop_things[];\n\
        extern struct e __start_counters[], __stop_counters[];\n\
        extern const struct p __start_calls[], __stop_calls[];\n\
        int f(int which) { int sum = 0;\n\
        \x20 if (which == 0) for (const struct e *x = __start_things; x < __stop_things; x++) sum += 100 + x->v;\n\
        \x20 if (which == 1) for (struct e *x = __start_counters; x < __stop_counters; x++) sum += x->v++;\n\
        \x20 if (which == 2) for (const struct p *x = __start_calls; x < __stop_calls; x++) sum += 10000 + x->f();\n\
        \x20 return sum; }\n\
        extern int __start_nothing[] __attribute__((weak)), __stop_nothing[] __attribute__((weak));\n\
        int g(void) { return __start_nothing == __stop_nothing; }\n";
    let two = "struct e { int v; };\nstruct p { int (*f)(void); };\n\
        #define SET(s) __attribute__((used, section(s)))\n\
        static const struct e SET(\"things\") a = { 3 }, SET(\"things\") b = { 4 }, SET(\"things\") c = { 5 };\n\
        static struct e SET(\"counters\") d = { 20 }, SET(\"counters\") e = { 30 };\n\
        static int same(void) { return 7; }\nstatic const struct p SET(\"calls\") g = { same }, SET(\"calls\") h = { same };\n";
    let Some(path) = describe("sets", &[(one, &[]), (two, &[])], "f\ng") else {
        return;
    };
    let task = instance(&path, 52);
    assert_eq!(call(&task, "f", 0), 500 + 15);
    assert_eq!([call(&task, "f", 1), call(&task, "f", 1)], [60, 63]);
    assert_eq!(call(&task, "f", 2), 30000 + 1000 + 7 + 7);
    assert_eq!(call(&task, "g", 0), 1);
}

#[test]
fn weak_and_common_definitions_yield_as_they_should() {
    let one = "int common[4];\n__attribute__((weak)) int v = 5;\n__attribute__((weak)) int w(void) { return 1; }\n\
        __attribute__((weak)) int over = 50;\nextern int nobody __attribute__((weak));\n\
        extern int nobodys(void) __attribute__((weak));\n\
        int f(void) { return common[0] + v + w() + over + (&nobody ? 100 : 0) + (nobodys ? 100 : 0); }\n";
    let two = "int common[100];\nint v = 7;\nint w(void) { return 20; }\nint over;\n\
        int g(void) { return common[99]++; }\n";
    let common: &[&str] = &["-fcommon"];
    let Some(path) = describe("weak", &[(one, common), (two, common)], "f\ng") else {
        return;
    };
    let task = instance(&path, 53);
    // The common `over`, which is zero, stands before the weak one.
    assert_eq!(call(&task, "f", 0), 27);
    assert_eq!([call(&task, "g", 0), call(&task, "g", 0)], [0, 1]);
    let three = "int common = 3;\nextern int v;\nint f(void) { return common + v; }\n";
    let path = describe("initialized", &[(three, common), (two, common)], "f").expect("gcc was there");
    assert_eq!(call(&instance(&path, 54), "f", 0), 10);
}

#[test]
fn the_data_register_in_assembly_is_kept_apart() {
    let text = "#include <cpuid.h>\nstatic int n;\n\
        int f(void) { unsigned a = 0, b = 0, c = 0, d = 0; n++; __cpuid(0, a, b, c, d); return b; }\n\
        int g(int part) { unsigned w[4] = { 0 }; n++; __get_cpuid_count(1, 0, w, w + 1, w + 2, w + 3); return w[part]; }\n\
        int h(void) { return (int)__get_cpuid_max(0, 0) + n; }\n";
    let asm = "int k(int x) { int r; __asm__(\"leal 1(%1), %0\" : \"=b\"(r) : \"r\"(x)); return r; }\n";
    let sources: &[(&str, &[&str])] = &[(text, &[]), (asm, &["-fcall-saved-rbx"])];
    let Some(path) = describe("cpuid", sources, "f\ng\nh\nk") else {
        return;
    };
    let task = instance(&path, 55);
    let host = std::arch::x86_64::__cpuid(0);
    assert_eq!(call(&task, "f", 0), host.ebx.cast_signed());
    assert_eq!(call(&task, "g", 0), std::arch::x86_64::__cpuid(1).eax.cast_signed());
    assert_eq!(call(&task, "h", 0), host.eax.cast_signed() + 2);
    assert_eq!(call(&task, "k", 41), 42);
    // With variables of the module it cannot be.
    let both =
        "static int n;\nint f(int x) { int r; n++; __asm__(\"leal 1(%1), %0\" : \"=b\"(r) : \"r\"(x)); return r; }\n";
    let path = describe("both", &[(both, &["-fcall-saved-rbx"])], "f").expect("gcc was there");
    let why = refusal(&path);
    assert!(why.contains("rbx") && why.contains("a function of its own"), "{why}");
}

#[test]
fn functions_that_nobody_would_call_are_refused() {
    for section in [".ctors", ".dtors", ".init", ".fini", ".preinit_array"] {
        let text = format!(
            "static int n;\nint f(void) {{ return n++; }}\n\
             static void (*made)(void) __attribute__((used, section(\"{section}\"))) = (void (*)(void))f;\n"
        );
        let Some(path) = describe("unread", &[(&text, &[])], "f") else {
            return;
        };
        let why = refusal(&path);
        assert!(why.contains(section) && why.contains(".init_array"), "{section}: {why}");
    }
}

#[test]
fn destructors_run_at_the_end_and_importers_come_first() {
    let library = "static char *place;\nvoid say(char c) { if (place) *place++ = c; }\n\
        void tell(char *at) { place = at; }\n\
        static int count;\n__attribute__((destructor)) static void last(void) { say('L'); say('0' + count); }\n\
        __attribute__((destructor(300))) static void later(void) { count++; say('l'); }\n\
        __attribute__((destructor(200))) static void latest(void) { count++; say('k'); }\n";
    let client = "void say(char);\nvoid tell(char *);\nstatic int n = 7;\nint f(char *at) { tell(at); return n; }\n\
        __attribute__((destructor)) static void mine(void) { say('0' + n); }\n";
    let Some(library) = describe("ends", &[(library, &[])], "say\ntell") else {
        return;
    };
    let client = describe("ended", &[(client, &[])], "f").expect("gcc was there");
    let text = std::fs::read_to_string(&client).expect("the description");
    std::fs::copy(&library, client.with_file_name("ends.md")).expect("the other description");
    std::fs::write(&client, text.replace("[EXPORTS]", "[IMPORTS]\nends.md\n[EXPORTS]")).expect("the description");
    let mut window = tools::window(56);
    let libraries = [&library, &client].map(|path| {
        let (_, built) = make::make(path, &[], &mut window).unwrap_or_else(|error| panic!("{error}"));
        Library::load("ends", built.object).unwrap_or_else(|error| panic!("{error}"))
    });
    for binding in [Binding::Eager, Binding::Lazy] {
        // The library's instance is older than the client's, or younger.
        for order in [["ended", "ended"], ["ends", "ended"]] {
            let mut said = [0_u8; 8];
            let task = Task::new(binding);
            for library in &libraries {
                task.add(library);
            }
            let numbers = order.map(|name| task.instance(name).unwrap_or_else(|error| panic!("{error}")));
            let word = said.as_mut_ptr() as u64;
            assert_eq!(task.call(numbers[1], "f", [word, 0, 0, 0]).map(|n| n as u32), Some(7));
            drop(task);
            // Of a module the last of the list first.
            assert_eq!(&said, b"7L0lk\0\0\0", "{binding:?} {order:?}");
        }
    }
}

#[test]
fn an_instance_finds_its_own_data() {
    let text = "extern char __dso_handle[];\nint f(void) { return *(char **)__dso_handle == __dso_handle; }\n\
                extern __attribute__((visibility(\"hidden\"))) char __dso_handle[];\n";
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-DHIDDEN"]] {
        let text = if flags.contains(&"-DHIDDEN") {
            text.to_string()
        } else {
            text.replace("hidden", "default")
        };
        let Some(path) = describe("own", &[(&text, flags)], "f") else {
            return;
        };
        assert_eq!(call(&instance(&path, 57), "f", 0), 1, "{flags:?}");
    }
}
