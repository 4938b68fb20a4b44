//! `gond module header`: a C header by which a client calls the exports of a module inline.
//!
//! For each function it has a macro of the same name, so that sources call it as before and its address is what it was.
//! Which registers parameters and result travel in comes from the debug information of the module's objects, as the
//! words on the stack do; the macro has the compiler check every call against the library's own declaration.

use crate::{Words, make};
use linker::module::description::Export;
use linker::module::input::Input;
use linker::module::stack::{Scalar, Signature};
use linker::module::symbols::{self, Symbols, Target};
use std::fmt::Write as _;

/// The part that does not depend on the module.
pub const PRELUDE: &str = include_str!("header/inline.h");
/// Registers of integers, in the order of parameters.
const INTEGERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
/// Functions that return twice; gcc knows them by these names.
const TWICE: [&str; 5] = ["setjmp", "sigsetjmp", "savectx", "vfork", "getcontext"];
/// How many vector registers carry parameters.
const VECTORS: usize = 8;

/// Writes the header of a description, or what all of them begin with if none is named; for the exports that are named, or for all that can be called inline.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    let text = match words.files.split_first() {
        None => PRELUDE.to_string(),
        Some((path, names)) => {
            let names: Vec<String> = names.iter().map(|name| name.display().to_string()).collect();
            let sources = make::gather(path, &words.folders).map_err(|error| error.to_string())?;
            write(&sources, &names)?
        }
    };
    if let Some(output) = &words.output {
        return crate::output::write(output, crate::output::Kind::Header, text.as_bytes());
    }
    print!("{text}");
    Ok(())
}

/// The text of the header. `names` is what must be callable inline; if empty, all that can is.
///
/// # Errors
/// In words: an object that cannot be read, no objects at all, a name that is not exported or that cannot be called inline.
pub fn write(sources: &make::Sources, names: &[String]) -> Result<String, String> {
    let description = &sources.description;
    let unknown = |name: &&String| !description.exports.iter().any(|export| export.name == **name);
    if let Some(name) = names.iter().find(unknown) {
        return Err(format!("{} exports no '{name}'", description.name));
    }
    if sources.objects.is_empty() {
        return Err(format!(
            "{}: no objects: the header is written where the module is built, from its debug information",
            description.name
        ));
    }
    let files = sources.files();
    let wanted: Vec<&str> = description.exports.iter().map(|one| one.name.as_str()).collect();
    let inputs = symbols::collect(&files, &wanted).map_err(|fault| fault.to_string())?;
    let defined =
        Symbols::new(&inputs, &[]).map_err(|faults| faults.first().map_or_else(String::new, ToString::to_string))?;
    let mut text = format!(
        "/* Inline calls of the module {}, written by `gond module header`: not to be edited. To be included behind the\n * \
         library's own header; in objects that are no modules it does nothing. */\n{PRELUDE}\n#ifdef GOND_INLINE\n",
        description.name
    );
    for export in &description.exports {
        let asked = names.contains(&export.name);
        if !(names.is_empty() || asked) {
            continue;
        }
        match signature(export, &inputs, &defined) {
            Ok(signature) => function(&mut text, &export.name, signature),
            Err(why) if asked => return Err(format!("'{}' cannot be called inline: it has {why}", export.name)),
            Err(why) => {
                let _ = writeln!(text, "\n/* {} is called as before: it has {why}. */", export.name);
            }
        }
    }
    text.push_str("#endif\n");
    Ok(text)
}

/// The signature of an export; or what it has instead of one.
fn signature<'a>(export: &Export, inputs: &'a [Input], defined: &Symbols) -> Result<&'a Signature, &'a str> {
    let letter = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let name = export.name.as_str();
    if export.data {
        return Err("no code, being a variable");
    }
    if export.pure {
        return Err("no thunk, being pure");
    }
    if TWICE.contains(&name.trim_start_matches('_')) {
        return Err("two returns, of which the compiler must know");
    }
    if !name.bytes().all(letter) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err("a name that C cannot write");
    }
    let Some(Target::Place(file, section, at)) = defined.defined(inputs, name) else {
        return Err("no definition in the module's objects");
    };
    let input = &inputs[file];
    let found = input
        .stack
        .get(&(section, at))
        .ok_or("no debug information (compile with -g)")?;
    found.signature.as_ref().map_err(String::as_str)
}

/// The C type of a value.
const fn c_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Integer { bytes: 1, signed: true } => "signed char",
        Scalar::Integer {
            bytes: 1,
            signed: false,
        } => "unsigned char",
        Scalar::Integer { bytes: 2, signed: true } => "short",
        Scalar::Integer {
            bytes: 2,
            signed: false,
        } => "unsigned short",
        Scalar::Integer { bytes: 4, signed: true } => "int",
        Scalar::Integer {
            bytes: 4,
            signed: false,
        } => "unsigned int",
        Scalar::Integer { signed: true, .. } => "long",
        Scalar::Integer { signed: false, .. } => "unsigned long",
        Scalar::Boolean => "_Bool",
        Scalar::Pointer => "const volatile void *",
        Scalar::Single => "float",
        Scalar::Double => "double",
    }
}

/// The C type of a parameter in its register: narrow integers are widened to 32 bits there.
const fn register_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Boolean | Scalar::Integer { bytes: 1 | 2, .. } => "int",
        other => c_type(other),
    }
}

/// Writes one function and its macro.
fn function(text: &mut String, name: &str, signature: &Signature) {
    let result = signature.result.map_or("void", c_type);
    let parameters = signature.parameters.iter().enumerate();
    let declared: Vec<String> = parameters
        .map(|(index, kind)| format!("{} a{index}", c_type(*kind)))
        .collect();
    let declared = if declared.is_empty() {
        "void".into()
    } else {
        declared.join(", ")
    };
    let (mut variables, mut outputs, mut inputs) = (String::new(), Vec::new(), vec!["[own] \"r\"(own)".to_string()]);
    let returned = signature.result.map(Scalar::is_vector);
    if let Some(vector) = returned {
        let (register, constraint) = if vector { ("xmm0", "=x") } else { ("rax", "=&r") };
        let _ = writeln!(variables, "\tregister {result} result __asm__(\"{register}\");");
        outputs.push(format!("\"{constraint}\"(result)"));
    }
    let (mut integers, mut vectors) = (0, 0);
    for (index, kind) in signature.parameters.iter().enumerate() {
        let (register, letter) = if kind.is_vector() {
            vectors += 1;
            (format!("xmm{}", vectors - 1), "x")
        } else {
            integers += 1;
            (INTEGERS[integers - 1].to_string(), "r")
        };
        let _ = writeln!(
            variables,
            "\tregister {} r{index} __asm__(\"{register}\") = a{index};",
            register_type(*kind)
        );
        if register == "xmm0" && returned == Some(true) {
            // The result comes in the same register.
            inputs.push(format!("\"x\"(r{index})"));
        } else {
            outputs.push(format!("\"+&{letter}\"(r{index})"));
        }
    }
    let mut changed: Vec<String> = INTEGERS[integers..].iter().map(|name| format!("\"{name}\"")).collect();
    if returned != Some(false) {
        changed.push("\"rax\"".into());
    }
    let first = vectors.max(usize::from(returned == Some(true)));
    changed.extend((first..VECTORS).map(|number| format!("\"xmm{number}\"")));
    let _ = write!(
        text,
        "\nextern void gond_never_{name}(void) __asm__(\"{name}\") __attribute__((__cold__, __noreturn__));\n\
         GOND_INLINE_FUNCTION {result} gond_inline_{name}({declared})\n{{\n{variables}\
         \tvoid *own = gond_inline_own();\n\n\tGOND_INLINE_IS_A_CALL(never);\n\
         \t__asm__ __inline__ volatile(GOND_INLINE_CALL(\"{name}\")\n\
         \t\t: {}\n\t\t: {}\n\t\t: {}, GOND_INLINE_CHANGED);\n\treturn{};\nnever:\n\tgond_never_{name}();\n}}\n\
         #define {name}(...) ((__typeof__({name}(__VA_ARGS__)))gond_inline_{name}(__VA_ARGS__))\n",
        outputs.join(", "),
        inputs.join(", "),
        changed.join(", "),
        if returned.is_some() { " result" } else { "" },
    );
}
