//! Modules made from the corpus: what comes out of them, and that nothing panics, whatever goes in.
//!
//! `MODULE_FUZZ=N cargo test -p linker --test modules` changes the corpus N times instead of a few hundred; `MODULE_SEED`
//! begins elsewhere. A failure prints the seed of the change.

mod change;

use linker::module::link::{Built, Request, link};
use linker::module::window::{WINDOW_START, Window};
use linker::module::{Cause, Description, Fault, Module, format, instance, unwind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use change::{Random, rounds, section};

const OTHERS: &str = "[MODULE]\nname others\nversion 1\n[EXPORTS]\nother\nother_variable data\nsort\n";

/// The corpus: name, bytes, what is exported.
const CORPUS: [(&str, &[u8], &str); 5] = [
    (
        "many-gcc.o",
        include_bytes!("corpus/many-gcc.o"),
        "entry\nchoose\nlabels\nmany\nvariable data\n",
    ),
    (
        "many-gcc-o0.o",
        include_bytes!("corpus/many-gcc-o0.o"),
        "entry\nchoose\nlabels\nmany\nvariable data\n",
    ),
    (
        "many-clang.o",
        include_bytes!("corpus/many-clang.o"),
        "labels\nmany\nvariable data\n",
    ),
    (
        "pure-rust.o",
        include_bytes!("corpus/pure-rust.o"),
        "rust_area\nrust_digest pure\n",
    ),
    (
        "inline-gcc.o",
        include_bytes!("corpus/inline-gcc.o"),
        "inline_entry\ninline_back\n",
    ),
];

fn describe(name: &str, exports: &str) -> Description {
    let text = format!("[MODULE]\nname {name}\nversion 1\n[IMPORTS]\no.md\n[EXPORTS]\n{exports}");
    Description::parse("test", &text).expect("a description")
}

fn others() -> Description {
    Description::parse("others", OTHERS).expect("a description")
}

fn build(name: &str, bytes: &[u8], exports: &str) -> Result<Built, Vec<Fault>> {
    build_at(WINDOW_START, name, bytes, exports)
}

fn build_at(start: u64, name: &str, bytes: &[u8], exports: &str) -> Result<Built, Vec<Fault>> {
    let (description, imports) = (describe("many", exports), [others()]);
    let files = [(name.to_string(), bytes)];
    let request = Request {
        description: &description,
        files: &files,
        imports: &imports,
    };
    link(&request, |_| Ok(start))
}

fn causes(faults: &[Fault]) -> Vec<&Cause> {
    faults.iter().map(|fault| &fault.cause).collect()
}

#[test]
fn the_corpus_links() {
    for (name, bytes, exports) in CORPUS {
        let built = build(name, bytes, exports).unwrap_or_else(|faults| panic!("{name}: {}", faults[0]));
        let module = Module::open(name, &built.object).expect("what was written can be read");
        assert_eq!(module.name(), "many");
        assert_eq!(module.export_count() as usize, exports.lines().count());
        for (export, line) in module.exports().zip(exports.lines()) {
            assert_eq!(Some(export.name), line.split_whitespace().next());
        }
    }
}

#[test]
fn a_module_that_is_moved_is_the_module_that_was_linked_there() {
    let elsewhere = 0x1_2345_6000;
    for (name, bytes, exports) in CORPUS {
        let built = |start| build_at(start, name, bytes, exports).expect("it links").object;
        let (mut moved, there) = (built(WINDOW_START), built(elsewhere));
        format::move_to(name, &mut moved, elsewhere).expect("it moves");
        assert!(moved == there, "{name}");
        assert!(format::move_to(name, &mut moved, abi::address::USER_END).is_err());
    }
}

#[test]
fn imports_that_are_used_have_their_names() {
    let (name, bytes, exports) = CORPUS[0];
    let built = build(name, bytes, exports).expect("it links");
    let module = Module::open(name, &built.object).expect("a module");
    let named: Vec<&str> = (0..3).map(|export| module.wanted(0, Some(export))).collect();
    assert!(named.contains(&"other"), "{named:?}");
    assert!(["other", "other_variable", "sort"].contains(&module.wanted(0, None)));
    assert_eq!(module.wanted(1, None), "");
}

#[test]
fn functions_without_data_are_their_own_address_whoever_compiled_them() {
    let (name, bytes, exports) = CORPUS[3];
    let built = build(name, bytes, exports).expect("it links");
    let module = Module::open(name, &built.object).expect("a module");
    assert_eq!(built.private_functions, 0);
    assert!(module.exports().all(|one| one.value & format::PRIVATE == 0));
    assert_eq!(module.thunk_bytes(), 0);
}

#[test]
fn a_function_that_needs_rbx_and_data_is_refused_by_name() {
    let (name, bytes, _) = CORPUS[2];
    let faults = build(name, bytes, "entry\n").expect_err("clang uses rbx");
    assert!(
        faults
            .iter()
            .any(|fault| fault.cause == Cause::RegisterTaken && fault.symbol == "entry")
    );
    assert!(
        faults[0].to_string().starts_with("many-clang.o: .text.entry+0x"),
        "{}",
        faults[0]
    );
}

#[test]
fn an_inline_call_has_a_word_of_its_own_that_is_never_late() {
    let (name, bytes, exports) = CORPUS[4];
    let object = build(name, bytes, exports).expect("it links").object;
    let client = Module::open(name, &object).expect("a module");
    let words: Vec<_> = client.import_fixups().collect();
    let [word] = words[..] else {
        panic!("one import is called inline: {words:?}");
    };
    assert!(word.entry && !client.import(0).lazy);
    assert_eq!(client.wanted(0, Some(word.export)), "other");
    // Bound to functions with thunks and without, it holds the function itself.
    let exporters = [
        ("many-gcc.o", CORPUS[0].1, "entry\nvariable data\nchoose\n"),
        ("pure-rust.o", CORPUS[3].1, "rust_area\n"),
    ];
    for (name, bytes, exports) in exporters {
        let object = build_at(WINDOW_START + (1 << 30), name, bytes, exports)
            .expect("it links")
            .object;
        let exporter = Module::open(name, &object).expect("a module");
        let symbols = exporter.symbols();
        let own = symbols.iter().find(|one| one.name == exporter.export(0).name);
        let entry = exporter.entry(0).expect("a function has one");
        assert_eq!(Some(entry), own.map(|one| one.address));
        let thunk = exporter.value(0) & format::PRIVATE != 0;
        assert_eq!(thunk, entry != exporter.value(0));
        assert_eq!(thunk, name == "many-gcc.o");
        assert!(
            exporter
                .exports()
                .zip(0..)
                .all(|(one, index)| { exporter.entry(index).is_none() == (one.value & format::VARIABLE != 0) })
        );
        assert_eq!(exporter.entry(3), None);
    }
    let object = build_at(WINDOW_START + (1 << 30), "many-gcc.o", CORPUS[0].1, "entry\n").expect("it links");
    let exporter = Module::open("many", &object.object).expect("a module");
    let text = "[MODULE]\nname client\nversion 1\n[IMPORTS]\nmany.md\n[EXPORTS]\ninline_entry\n";
    let importer = {
        let description = Description::parse("client", text).expect("a description");
        let others = OTHERS.replace("other\nother_variable data\nsort", "entry");
        let many = Description::parse("many", &others).expect("a description");
        // The corpus calls `other`; here that is the name of the first export.
        let mut bytes = bytes.to_vec();
        let at = |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle);
        let places = [at(b"\0other.data\0"), at(b"\0other.entry\0")].map(|at| at.expect("a name") + 1);
        for at in places {
            bytes[at..at + 5].copy_from_slice(b"entry");
        }
        let files = [(name.to_string(), bytes.as_slice())];
        let imports = [many];
        let request = Request {
            description: &description,
            files: &files,
            imports: &imports,
        };
        link(&request, |_| Ok(WINDOW_START))
            .unwrap_or_else(|faults| panic!("{}", faults[0]))
            .object
    };
    let importer = Module::open("client", &importer).expect("a module");
    let word = importer.import_fixups().next().expect("a word");
    let mut data = vec![0; importer.data_bytes as usize];
    instance::instantiate(&importer, 0x1_0000, instance::Runtime::default(), &mut data);
    instance::bind(&importer, &mut data, 0, &exporter, 0x7000_0000, None).expect("it binds");
    let read = |at: u32| {
        let at = at as usize;
        u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
    };
    assert_eq!(Some(read(word.at)), exporter.entry(0));
    let descriptor = importer.import(0).descriptor;
    assert_eq!(read(descriptor), 0x7000_0000);
    assert_eq!(
        read(descriptor + 8),
        format::resolve(exporter.value(0), 0x7000_0000),
        "the word for others is the thunk"
    );
}

#[test]
fn other_versions_of_the_format_and_forged_entries_are_refused() {
    let (name, bytes, exports) = CORPUS[4];
    let object = build(name, bytes, exports).expect("it links").object;
    let refused = |change: &dyn Fn(&mut [u8])| {
        let mut object = object.clone();
        change(&mut object);
        let fault = Module::open("changed", &object)
            .map(|_| ())
            .expect_err("it was changed");
        fault.to_string()
    };
    let text = refused(&|object| object[7] -= 1);
    assert!(
        text.contains("an earlier version of the format") && text.contains("gond module build"),
        "{text}"
    );
    let text = refused(&|object| object[7] += 1);
    assert!(text.contains("a later version of the format"), "{text}");
    assert!(refused(&|object| object[0] = 0).contains("'./gond module build' makes one"));
    let begins = |first: &[u8], length| Module::begins("file", first, length).map_err(|fault| fault.to_string());
    let most = format::MODULE_BYTES_MAX;
    assert_eq!((begins(&object[..8], most), begins(&object, most)), (Ok(()), Ok(())));
    assert!(begins(&object[..8], most + 1).is_err_and(|text| text.starts_with("file: larger than 256 MiB")));
    assert!(begins(&[0; 8], most + 1).is_err_and(|text| text.contains("'./gond module build' makes one")));
    let module = Module::open(name, &object).expect("a module");
    let entries = module.part_at(format::Part::Entries) as usize;
    let word =
        |at: usize, value: u32| move |object: &mut [u8]| object[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let text_end = module.part_at(format::Part::Text) + module.part(format::Part::Text).len() as u32;
    for value in [0, 8, text_end, u32::MAX] {
        let text = refused(&word(entries, value));
        assert!(text.contains("the entry of an export"), "{value:#x}: {text}");
    }
    let foreign = module.part_at(format::Part::ImportFixups) as usize;
    assert!(refused(&word(foreign + 16, 1)).contains("an imported word for inline calls"));
    let lazy = module.part_at(format::Part::Imports) as usize + 24;
    assert!(refused(&word(lazy, 1)).contains("an imported word for inline calls"));
    let length = format::PARTS_AT + 8 * format::Part::Entries as usize + 4;
    assert!(refused(&word(length, 4)).contains("exports without entries"));
}

type Expected = fn(&Cause) -> bool;

#[test]
fn a_lying_description_is_caught() {
    let (name, bytes, _) = CORPUS[0];
    let cases: [(&str, Expected); 6] = [
        ("nothing_like_it\n", |cause| *cause == Cause::Missing),
        ("entry data\n", |cause| matches!(cause, Cause::KindLie(_))),
        ("variable\n", |cause| matches!(cause, Cause::KindLie(_))),
        ("entry pure\n", |cause| matches!(cause, Cause::PureLie(_))),
        ("many stack=2\n", |cause| {
            *cause == Cause::StackLie { said: 2, found: 4 }
        }),
        ("many variadic\n", |cause| {
            matches!(cause, Cause::StackLie { found: 4, .. })
        }),
    ];
    for (exports, expected) in cases {
        let faults = build(name, bytes, exports).expect_err(exports);
        assert!(
            faults.iter().any(|fault| expected(&fault.cause)),
            "{exports}: {:?}",
            causes(&faults)
        );
    }
    build(name, bytes, "many stack=4\n").expect("the truth is accepted");
}

#[test]
fn all_missing_names_are_reported_once() {
    let (name, bytes, exports) = CORPUS[0];
    let description = describe("many", exports);
    let files = [(name.to_string(), bytes)];
    let request = Request {
        description: &description,
        files: &files,
        imports: &[],
    };
    let faults = link(&request, |_| Ok(WINDOW_START)).expect_err("nobody has the imports");
    let mut names: Vec<&str> = faults.iter().map(|fault| fault.symbol.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "other_variable", "sort"]);
    assert!(faults.iter().all(|fault| fault.cause == Cause::Missing));
}

#[test]
fn two_definitions_are_refused() {
    let description = describe("many", "entry\n");
    let files = [("one.o".to_string(), CORPUS[0].1), ("two.o".to_string(), CORPUS[0].1)];
    let imports = [others()];
    let request = Request {
        description: &description,
        files: &files,
        imports: &imports,
    };
    let faults = link(&request, |_| Ok(WINDOW_START)).expect_err("everything is there twice");
    assert!(
        faults
            .iter()
            .all(|fault| fault.cause == Cause::Duplicate("one.o".into()) && fault.file == "two.o")
    );
}

/// A module of constants, exported as `names`, with room for importers of several ages.
fn exporter(exports: &str) -> Vec<u8> {
    build("many-gcc.o", CORPUS[0].1, exports).expect("it links").object
}

#[test]
fn a_later_version_serves_an_earlier_client_and_a_changed_one_does_not() {
    // The client is linked against a module `others` of three exports; here it is played by `many`.
    let old = exporter("entry\nchoose\n");
    let more = exporter("entry\nchoose\nlabels\nvariable data\n");
    let swapped = exporter("choose\nentry\nlabels\n");
    let fewer = exporter("entry\n");
    let client = {
        let text = "[MODULE]\nname client\nversion 1\n[IMPORTS]\nmany.md\n[EXPORTS]\nrust_area\n";
        let description = Description::parse("client", text).expect("a description");
        let files = [("pure-rust.o".to_string(), CORPUS[3].1)];
        let imports = [describe("many", "entry\nchoose\n")];
        let request = Request {
            description: &description,
            files: &files,
            imports: &imports,
        };
        link(&request, |_| Ok(WINDOW_START + (1 << 30)))
            .expect("it links")
            .object
    };
    let client = Module::open("client", &client).expect("a module");
    let bind = |object: &[u8]| {
        let exporter = Module::open("many", object).expect("a module");
        let mut data = vec![0; client.data_bytes as usize];
        instance::instantiate(&client, 0x1_0000, instance::Runtime::default(), &mut data);
        instance::bind(&client, &mut data, 0, &exporter, 0x7000_0000, None).map(|()| data)
    };
    let at = client.import(0).descriptor as usize;
    let with_old = bind(&old).expect("the one it was linked against");
    let word = |data: &[u8], index: usize| {
        let at = at + 8 * index;
        u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
    };
    assert_eq!(word(&with_old, 0), 0x7000_0000);
    let value = |object: &[u8], index| Module::open("", object).expect("a module").value(index);
    assert_eq!(word(&with_old, 2), format::resolve(value(&old, 1), 0x7000_0000));
    let with_more = bind(&more).expect("one with more exports");
    assert_eq!(word(&with_more, 2), format::resolve(value(&more, 1), 0x7000_0000));
    assert_eq!(bind(&swapped).expect_err("others").cause, Cause::InterfaceChanged);
    let shrunk = Cause::InterfaceShrunk { wanted: 2, found: 1 };
    assert_eq!(bind(&fewer).expect_err("fewer").cause, shrunk);
}

#[test]
fn the_word_that_a_stub_asks_for_is_filled_whatever_the_module_says_it_uses() {
    let many = "entry\nchoose\nlabels\nvariable data\n";
    let exporter = exporter(many);
    let exporter = Module::open("many", &exporter).expect("a module");
    let description = "[MODULE]\nname client\nversion 1\n[IMPORTS]\nmany.md\n[EXPORTS]\nrust_area\n";
    let request = Request {
        description: &Description::parse("client", description).expect("a description"),
        files: &[("pure-rust.o".to_string(), CORPUS[3].1)],
        imports: &[describe("many", many)],
    };
    let client = link(&request, |_| Ok(WINDOW_START + (1 << 30)))
        .expect("it links")
        .object;
    let client = Module::open("client", &client).expect("a module");
    assert_eq!(
        client.wanted_count(),
        0,
        "it names nothing, and imports enough for that to count"
    );
    let bound = |called| {
        let mut data = vec![0; client.data_bytes as usize];
        instance::instantiate(&client, 0x1_0000, instance::Runtime::default(), &mut data);
        instance::bind(&client, &mut data, 0, &exporter, 0x7000_0000, called).expect("it binds");
        let words = &data[client.import(0).descriptor as usize + 8..][..32];
        let words = words.chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
        words.map(u64::from_le_bytes).collect::<Vec<_>>()
    };
    assert_eq!(bound(None), [0; 4]);
    assert_eq!(bound(Some(4)), [0; 4], "it has no such export");
    let labels = format::resolve(exporter.value(2), 0x7000_0000);
    assert_eq!(bound(Some(2)), [0, 0, labels, 0]);
}

#[test]
fn fixups_make_addresses_of_the_instance() {
    let (name, bytes, exports) = CORPUS[0];
    let built = build(name, bytes, exports).expect("it links");
    let module = Module::open(name, &built.object).expect("a module");
    let make = |at: u64| {
        let mut data = vec![0xee; module.data_bytes as usize];
        let (table, binder, reach, end) = (1, 2, 3, 4);
        let runtime = instance::Runtime {
            table,
            binder,
            reach,
            end,
        };
        instance::instantiate(&module, at, runtime, &mut data);
        data
    };
    let (one, two) = (make(0x10_0000), make(0x50_0000));
    let fixups: Vec<usize> = module.fixups().map(|at| at as usize).collect();
    assert!(!fixups.is_empty());
    let word = |data: &[u8], at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"));
    for at in (0..one.len() & !7).step_by(8) {
        let moved = word(&two, at).wrapping_sub(word(&one, at));
        let expected = if fixups.contains(&at) || at == format::DATA_SELF_AT as usize {
            0x40_0000
        } else {
            0
        };
        assert_eq!(moved, expected, "at {at:#x}");
    }
    let begins = module.template().len();
    assert!(one[begins..].iter().all(|byte| *byte == 0), "the end begins as zero");
}

#[test]
fn descriptions_are_read_and_written() {
    let text = "[MODULE]\nname a # comment\nversion 1.2\n\n[IMPORTS]\nb.md\n[EXPORTS]\nf\ng stack=3\nh variadic\n\
                i variadic=7 pure\nv data\n[OBJECTS]\na.o\n";
    let description = Description::parse("a.md", text).expect("a description");
    let again = Description::parse("again", &description.to_string()).expect("a description");
    assert_eq!(description, again);
    let wrong = [
        ("", "no name"),
        ("[MODULE]\nname a\n", "no version"),
        ("name a\n", "the first line must be a part"),
        ("[MODUL]\n", "is no part of a description"),
        ("[MODULE]\nname a\nname b\n", "a second name"),
        (
            "[MODULE]\nname a\nversion 1\n[EXPORTS]\nf\nf\n",
            "'f' is exported twice",
        ),
        ("[EXPORTS]\nf stack=x\n", "needs a number"),
        ("[EXPORTS]\nf stack=5000\n", "needs a number"),
        ("[EXPORTS]\nf fast\n", "'fast' is unknown after an export"),
        ("[EXPORTS]\nv data stack=2\n", "is data and cannot have parameters"),
        ("[OBJECTS]\na.o b.o\n", "more than one word"),
    ];
    for (text, message) in wrong {
        let fault = Description::parse("x.md", text).expect_err(text);
        assert!(fault.to_string().contains(message), "{fault}");
        assert!(fault.to_string().starts_with("x.md"));
    }
}

#[test]
fn the_window_gives_every_address_once() {
    let mut window = Window::default();
    let mut last = 0;
    for index in 0..100_u64 {
        let address = window.give("a", "1", 1 + index * 3000).expect("room");
        assert!(address >= last && address.is_multiple_of(4096));
        last = address + 1 + index * 3000;
    }
    assert_eq!(Window::parse("w", &window.to_string()).expect("a list"), window);
    window.give("huge", "1", 100 << 30).expect_err("it does not fit");
    for line in [
        "0x1000 1 a 1",
        "0x80000000001 1 a 1",
        "0x80000000000 0 a 1",
        "hello",
        "0x80000000000 1 a",
    ] {
        Window::parse("w", line).expect_err(line);
    }
    Window::parse("w", "0x80000002000 1 a 1\n0x80000000000 1 b 1\n").expect_err("out of order");
}

/// What a reader does with an object: everything.
fn use_module(object: &[u8]) {
    let Ok(module) = Module::open("fuzz", object) else {
        return;
    };
    assert!(module.exports().count() == module.export_count() as usize);
    let _ = (module.name(), module.version(), module.symbols());
    let (part, frames) = (module.part(format::Part::Unwinding), module.frames());
    for place in (-4096..4096).step_by(64).chain([i64::MIN, i64::MAX]) {
        if let Some((_, at)) = frames.find(place) {
            let _ = unwind::item(part, at);
        }
    }
    let mut data = vec![0; module.data_bytes as usize];
    instance::instantiate(&module, 0x10_0000, instance::Runtime::default(), &mut data);
    for index in 0..module.import_count() {
        let _ = instance::bind(&module, &mut data, index, &module, 0x20_0000, Some(index));
        instance::bind_foreign(&module, &mut data, index, u64::from);
    }
    for (export, index) in module.exports().zip(0..) {
        let address = format::resolve(export.value, 0x4000_0000_0000);
        let shared = module.address..module.address + object.len() as u64;
        let entry = module.entry(index);
        assert!(
            entry.is_none_or(|entry| shared.contains(&entry)),
            "an entry leads elsewhere"
        );
        let own = 0x4000_0000_0000 - u64::from(module.thunk_bytes())..=0x4000_0000_0000 + u64::from(module.data_bytes);
        assert!(
            shared.contains(&address) || own.contains(&address),
            "an export leads elsewhere"
        );
    }
}

#[test]
fn changed_relocatables_never_panic() {
    let (seed, count) = rounds(600);
    let mut linked = 0;
    for seed in seed..seed + count {
        let mut random = Random(seed);
        let (name, bytes, exports) = CORPUS[random.below(CORPUS.len())];
        let mut bytes = bytes.to_vec();
        random.change(&mut bytes);
        let result = catch_unwind(AssertUnwindSafe(|| build(name, &bytes, exports)));
        match result {
            Ok(Ok(built)) => {
                linked += 1;
                use_module(&built.object);
            }
            Ok(Err(faults)) => assert!(!faults.is_empty() && !faults[0].to_string().is_empty()),
            Err(panic) => panic!("{name}: MODULE_SEED={seed} MODULE_FUZZ=1 panicked: {panic:?}"),
        }
    }
    // Both outcomes must occur, or the changes are too mild or too wild to find anything.
    if count >= 100 {
        assert!(linked > 0 && linked < count, "{linked} of {count} linked");
    }
}

#[test]
fn changed_debug_information_never_panics() {
    let (seed, count) = rounds(600);
    let (mut linked, mut changed) = (0, 0);
    for seed in seed..seed + count {
        let mut random = Random(seed ^ 0xdeb6);
        let (name, file, exports) = CORPUS[[0, 1, 2, 4][random.below(4)]];
        let mut bytes = file.to_vec();
        let range = section(file, [".debug_info", ".debug_abbrev"][random.below(2)]);
        let mut part = bytes[range.clone()].to_vec();
        random.change(&mut part);
        part.resize(range.len(), 0);
        bytes[range].copy_from_slice(&part);
        match catch_unwind(AssertUnwindSafe(|| build(name, &bytes, exports))) {
            Ok(Ok(_)) => linked += 1,
            Ok(Err(faults)) => {
                changed += 1;
                let about_words = |cause: &Cause| matches!(cause, Cause::StackUnknown(_) | Cause::StackParameter(_));
                assert!(
                    faults.iter().all(|fault| about_words(&fault.cause)),
                    "{:?}",
                    causes(&faults)
                );
            }
            Err(panic) => panic!("{name}: MODULE_SEED={seed} MODULE_FUZZ=1 panicked: {panic:?}"),
        }
    }
    if count >= 100 {
        assert!(linked > 0 && changed > 0, "{linked} linked, {changed} refused");
    }
}

#[test]
fn changed_modules_never_panic() {
    let (seed, count) = rounds(2000);
    let mut opened = 0;
    let objects: Vec<Vec<u8>> = CORPUS
        .iter()
        .map(|(name, bytes, exports)| build(name, bytes, exports).expect("it links").object)
        .collect();
    for seed in seed..seed + count {
        let mut random = Random(seed ^ 0x5eed);
        let mut object = objects[random.below(objects.len())].clone();
        // The header and the tables are in the first page.
        let mut head: Vec<u8> = object[..4096].to_vec();
        random.change(&mut head);
        head.resize(4096, 0);
        object[..4096].copy_from_slice(&head);
        if random.below(10) == 0 {
            object.truncate(random.below(object.len()));
        }
        opened += u64::from(Module::open("fuzz", &object).is_ok());
        let result = catch_unwind(AssertUnwindSafe(|| use_module(&object)));
        assert!(result.is_ok(), "panicked with MODULE_SEED={seed} MODULE_FUZZ=1");
    }
    if count >= 100 {
        assert!(opened > 0 && opened < count, "{opened} of {count} opened");
    }
}

#[test]
fn no_name_is_that_of_another_modules_version() {
    let cases = [
        ("libc", "1.0", true),
        ("libc-1.0", "1.0", false),
        ("libc-1", "2", false),
        ("libc-1.0.0", "1", false),
        ("libc-1.0.0.0", "1", true),
        ("libc-x1", "1", true),
        ("lib-c", "10.20.30", true),
        ("libc", "1-2", false),
        ("libc", "1.0.", false),
        ("libc", "1.2.3.4", false),
        ("libc", "new", false),
        ("a/b", "1", false),
        ("..", "1", false),
    ];
    let (file, bytes, _) = CORPUS[2];
    let built = build(file, bytes, "many\n").expect("it links");
    for (name, version, good) in cases {
        let text = format!("[MODULE]\nname {name}\nversion {version}\n");
        assert_eq!(Description::parse("test", &text).is_ok(), good, "{name} {version}");
        // The same of an object that was changed: its names are made these.
        let mut object = built.object.clone();
        let at = u32::from_le_bytes(object[80..84].try_into().expect("four bytes")) as usize;
        let both = format!("{name}{version}");
        object[at..at + both.len()].copy_from_slice(both.as_bytes());
        let length = |text: &str| (text.len() as u32) << 24;
        object[36..40].copy_from_slice(&length(name).to_le_bytes());
        object[40..44].copy_from_slice(&(name.len() as u32 | length(version)).to_le_bytes());
        let refused = Module::open("test", &object)
            .map(|_| ())
            .map_err(|fault| fault.to_string());
        let by_name = refused
            .as_ref()
            .is_err_and(|why| why.contains("the name ") || why.contains("the version "));
        assert_eq!(by_name, !good, "{name} {version}: {refused:?}");
    }
}
