//! Refusals, each with the name of the fault: every relocation type that a compiler for x86-64 may emit
//! is carried out or named, and instances are not bound to what they were not linked against. Needs gcc.

mod tools;

use linker::module::window::Window;
use linker::module::{Cause, Fault};
use module_cli::host::{Binding, HostError, Library, Task};
use module_cli::make::{self, MakeError};
use std::path::PathBuf;
use std::rc::Rc;

/// Assembles or compiles a text and links it as a module that exports `names`.
fn build(test: &str, text: &str, names: &str, imports: &str) -> Option<Result<Vec<u8>, Vec<Fault>>> {
    let folder = tools::folder("refusals");
    let (extension, flags): (_, &[&str]) = if text.starts_with('\t') {
        ("s", &[])
    } else {
        ("c", &["-O2"])
    };
    let source = folder.join(format!("{test}.{extension}"));
    std::fs::write(&source, text).expect("a source");
    tools::compile(&source, &folder.join(format!("{test}.o")), flags)?;
    let description = folder.join(format!("{test}.md"));
    let text =
        format!("[MODULE]\nname {test}\nversion 1\n[IMPORTS]\n{imports}[EXPORTS]\n{names}\n[OBJECTS]\n{test}.o\n");
    std::fs::write(&description, text).expect("a description");
    match make::make(&description, &[tools::sources()], &mut Window::default()) {
        Ok((_, built)) => Some(Ok(built.object)),
        Err(MakeError::Link(faults)) => Some(Err(faults)),
        Err(other) => panic!("{test}: {other}"),
    }
}

/// A function `f` of these instructions, beside a variable, a function and a constant.
fn assembly(body: &str) -> String {
    format!(
        "\t.text\n\t.globl f\n\t.type f,@function\nf:\n{body}\n\tret\n\t.size f,.-f\n\
         \t.type g,@function\ng:\n\taddl $1, v(%rip)\n\tret\n\t.size g,.-g\n\
         \t.data\n\t.balign 8\nv:\t.quad 1\n\t.section .rodata\nc:\t.quad 2\n\t.text\n"
    )
}

#[test]
fn every_relocation_is_carried_out_or_named() {
    // (test, instructions, what the message says; empty if it links)
    let cases = [
        ("pc32_data", "\tmovl v(%rip), %eax", ""),
        ("pc32_data_imm8", "\taddl $1, v(%rip)", ""),
        ("pc32_data_imm32", "\tmovl $100000, v(%rip)", ""),
        ("pc32_data_byte", "\tcmpb $3, v+1(%rip)", ""),
        ("pc32_wide", "\tmovups v(%rip), %xmm9\n\tvmovups v(%rip), %ymm9", ""),
        ("pc32_long_register", "\tmovq v(%rip), %r13\n\tleaq v(%rip), %r8", ""),
        ("pc32_constant", "\tmovl c(%rip), %eax", ""),
        ("plt32", "\tcall g@PLT", ""),
        ("branch", "\tjmp g", ""),
        ("gotpcrel_load", "\tmovq v@GOTPCREL(%rip), %rax", ""),
        ("gotpcrel_function", "\tmovq f@GOTPCREL(%rip), %rax", ""),
        ("gotpcrel_call", "\tcall *g@GOTPCREL(%rip)", ""),
        ("gotpcrel_jump", "\tjmp *g@GOTPCREL(%rip)", ""),
        ("gotpcrel_compare", "\tcmpq v@GOTPCREL(%rip), %rax", ""),
        ("gotpcrel_push", "\tpushq c@GOTPCREL(%rip)\n\tpopq %rax", ""),
        (
            "weak_call",
            "\t.weak nobody\n\ttestl %edi, %edi\n\tje 1f\n\tcall nobody\n1:",
            "",
        ),
        ("abs64_constant", "\tmovabsq $c, %rax", ""),
        ("abs64_data", "\tmovabsq $v, %rax", "R_X86_64_64"),
        ("abs32", "\tmovl $v, %eax", "R_X86_64_32"),
        ("abs32s", "\tmovq $v, %rax", "R_X86_64_32S"),
        ("abs32s_index", "\tmovl v(,%rdi,4), %eax", "R_X86_64_32S"),
        ("abs16", "\tmovw $v, %ax", "R_X86_64_16"),
        ("abs8", "\tmovb $v, %al", "R_X86_64_8"),
        ("pc16", "\t.word v-.", "R_X86_64_PC16"),
        ("pc8", "\t.byte v-., 0", "R_X86_64_PC8"),
        (
            "no_instruction",
            "\tmovl v(%rip), %eax\n\tret\n\t.byte 6",
            "cannot be read as instructions",
        ),
        ("data_in_text", "\t.long v-.", "R_X86_64_PC32"),
        ("tpoff32", "\tmovl %fs:t@tpoff, %eax", "R_X86_64_TPOFF32"),
        ("gottpoff", "\tmovq t@gottpoff(%rip), %rax", "R_X86_64_GOTTPOFF"),
        ("tlsgd", "\tleaq t@tlsgd(%rip), %rdi", "R_X86_64_TLSGD"),
        ("tlsld", "\tleaq t@tlsld(%rip), %rdi", "R_X86_64_TLSLD"),
        ("dtpoff32", "\tleaq t@dtpoff(%rax), %rdi", "R_X86_64_DTPOFF32"),
        ("tlsdesc", "\tleaq t@tlsdesc(%rip), %rax", "R_X86_64_GOTPC32_TLSDESC"),
        ("gotoff64", "\tmovabsq $v@GOTOFF, %rax", "R_X86_64_GOTOFF64"),
        ("got64", "\tmovabsq $v@GOT, %rax", "R_X86_64_GOT64"),
        (
            "gotpc32",
            "\tleaq _GLOBAL_OFFSET_TABLE_(%rip), %rax",
            "R_X86_64_GOTPC32",
        ),
        ("got32", "\tmovl v@GOT(%rax), %eax", "R_X86_64_GOT32"),
        ("pltoff64", "\tmovabsq $g@PLTOFF, %rax", "R_X86_64_PLTOFF64"),
        ("size32", "\tmovl $h@SIZE, %eax", "R_X86_64_SIZE32"),
        ("register", "\tmovl $1, %ebx\n\tmovl v(%rip), %eax", "rbx"),
        (
            "register_saved",
            "\tpushq %rbx\n\tmovl v(%rip), %eax\n\tpopq %rbx",
            "rbx",
        ),
        (
            "register_without_data",
            "\tpushq %rbx\n\tmovl $1, %ebx\n\tpopq %rbx",
            "",
        ),
    ];
    for (test, body, message) in cases {
        let Some(result) = build(test, &assembly(body), "f stack=0", "") else {
            return;
        };
        match (result, message) {
            (Ok(_), "") => {}
            (Err(faults), "") => panic!("{test}: {}", faults[0]),
            (Ok(_), message) => panic!("{test} links, but should say {message}"),
            (Err(faults), message) => {
                let text = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                assert!(text.contains(message), "{test}: {text}");
                assert!(
                    text.contains(&format!("{test}.o: .")),
                    "{test} names file and section: {text}"
                );
            }
        }
    }
}

#[test]
fn instructions_are_changed_to_the_register_and_only_they() {
    let body = "\taddl $1, v(%rip)\n\tmovups v(%rip), %xmm9\n\tleaq c(%rip), %rax\n\tmovq v@GOTPCREL(%rip), %r9";
    let Some(result) = build("bytes", &assembly(body), "f stack=0", "") else {
        return;
    };
    let object = result.expect("it links");
    let module = linker::module::Module::open("bytes", &object).expect("a module");
    let text = module.part(linker::module::format::Part::Text);
    // add [rbx + d32], 1; movups xmm9, [rbx + d32]; lea rax, [rip + d32]; lea r9, [rbx + d32]
    assert_eq!((text[0], text[1], text[6]), (0x83, 0x83, 1));
    assert_eq!(text[7..11], [0x44, 0x0f, 0x10, 0x8b]);
    assert_eq!(text[15..18], [0x48, 0x8d, 0x05]);
    assert_eq!(text[22..25], [0x4c, 0x8d, 0x8b]);
    assert_eq!(text[2..6], text[11..15], "the same variable");
    assert_eq!(text[2..6], text[25..29]);
}

#[test]
fn what_c_can_get_wrong_is_said() {
    let direct = "extern int other_variable;\nint f(void) { return other_variable; }\n";
    let Some(result) = build("direct", direct, "f", "") else {
        return;
    };
    assert!(
        result
            .expect_err("nobody has it")
            .iter()
            .any(|fault| fault.cause == Cause::Missing)
    );
    let cases = [
        (
            "tls",
            "static _Thread_local int t;\nint f(void) { return t++; }\n",
            "thread-local",
        ),
        (
            "ifunc",
            "static int g(void) { return 1; }\nstatic int (*choose(void))(void) { return g; }\n\
             int f(void) __attribute__((ifunc(\"choose\")));\n",
            "IFUNC",
        ),
        (
            "vector",
            "typedef double v4 __attribute__((vector_size(32)));\nint n;\nint f(v4 x) { return n++ + (int)x[0]; }\n",
            "a parameter cannot be passed",
        ),
    ];
    for (test, text, message) in cases {
        let result = build(test, text, "f", "").expect("gcc was there");
        let text = result.map_or_else(|faults| faults[0].to_string(), |_| "it links".into());
        assert!(text.contains(message) && text.contains(&format!("{test}.o")), "{text}");
    }
}

fn load(test: &str, text: &str, names: &str, imports: &str, window: &mut Window) -> Option<Rc<Library>> {
    let folder = tools::folder("refusals");
    build(test, text, names, imports)?.unwrap_or_else(|faults| panic!("{test}: {}", faults[0]));
    let path: PathBuf = folder.join(format!("{test}.md"));
    let (_, built) = make::make(&path, &[], window).unwrap_or_else(|error| panic!("{error}"));
    Some(Library::load(test, built.object).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn cycles_are_bound_and_missing_modules_are_named() {
    let mut window = tools::window(5);
    // Descriptions first: each is needed to build the other.
    let even = "int odd(int);\nstatic int n;\nint even(int x) { n++; return x == 0 ? n : odd(x - 1); }\n";
    let odd = "int even(int);\nstatic int n = 100;\nint odd(int x) { n++; return x == 0 ? n : even(x - 1); }\n";
    let folder = tools::folder("refusals");
    for (name, export) in [("cycle_even", "even"), ("cycle_odd", "odd")] {
        let text = format!("[MODULE]\nname {name}\nversion 1\n[EXPORTS]\n{export}\n");
        std::fs::write(folder.join(format!("{name}.md")), text).expect("a description");
    }
    let Some(first) = load("cycle_even", even, "even", "cycle_odd.md\n", &mut window) else {
        return;
    };
    let second = load("cycle_odd", odd, "odd", "cycle_even.md\n", &mut window).expect("gcc was there");
    for binding in [Binding::Eager, Binding::Lazy] {
        let task = Task::new(binding);
        task.add(&first);
        task.add(&second);
        let number = task.instance("cycle_even").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(task.instances(), if binding == Binding::Eager { 2 } else { 1 });
        assert_eq!(task.call(number, "even", [10, 0, 0, 0]), Some(6));
        assert_eq!(task.call(number, "even", [3, 0, 0, 0]), Some(107));
        assert_eq!(task.instances(), 2, "one of each, however they were bound");
    }
    let task = Task::new(Binding::Eager);
    task.add(&first);
    let error = task.instance("cycle_even").expect_err("odd is not there");
    assert!(
        matches!(&error, HostError::Unknown(what, by) if what == "cycle_odd" && by == "cycle_even"),
        "{error}"
    );
    // A second copy of a module has no second address.
    let path = folder.join("cycle_even.md");
    let mut again = tools::window(5);
    let (_, built) = make::make(&path, &[], &mut again).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(
        Library::load("again", built.object),
        Err(HostError::System(..))
    ));
}
