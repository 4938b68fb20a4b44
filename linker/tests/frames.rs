//! How functions are left: what of it reaches a module, what is refused, and that no lie makes the linker panic.
//!
//! `MODULE_FUZZ=N cargo test -p linker --test frames` changes the tables N times; `MODULE_SEED` begins elsewhere.

mod change;

use change::{Random, rounds, section};
use linker::module::format::{self, Part};
use linker::module::link::{Built, Request, link};
use linker::module::unwind::{self, Item};
use linker::module::window::WINDOW_START;
use linker::module::{Cause, Description, Fault, Module};
use std::panic::{AssertUnwindSafe, catch_unwind};

const OBJECT: &[u8] = include_bytes!("corpus/throws-gcc.o");
const HOST: &str = "[MODULE]\nname host\nversion 1\n[EXPORTS]\nother\n_Unwind_Resume\n__cxa_allocate_exception\n\
    __cxa_begin_catch\n__cxa_end_catch\n__cxa_throw\n__gxx_personality_v0\n_ZTIi data\n\
    _ZTVN10__cxxabiv117__class_type_infoE data\n";

fn build(bytes: &[u8]) -> Result<Built, Vec<Fault>> {
    let text = "[MODULE]\nname throws\nversion 1\n[IMPORTS]\nhost.md\n[EXPORTS]\nraises stack=0\ncatches stack=0\n";
    let description = Description::parse("test", text).expect("a description");
    let imports = [Description::parse("host", HOST).expect("a description")];
    let files = [("throws.o".to_string(), bytes)];
    let request = Request {
        description: &description,
        files: &files,
        imports: &imports,
    };
    link(&request, |_| Ok(WINDOW_START))
}

fn distance(bytes: &[u8], at: usize) -> i64 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")).into()
}

/// Where the field at a byte leads to.
fn led_to(bytes: &[u8], at: usize) -> i64 {
    i64::try_from(at).expect("a place") + distance(bytes, at)
}

#[test]
fn every_function_that_is_kept_has_its_entry() {
    let built = build(OBJECT).unwrap_or_else(|faults| panic!("{}", faults[0]));
    let module = Module::open("throws", &built.object).expect("a module");
    let part = module.part(Part::Unwinding);
    let part_at = i64::from(module.part_at(Part::Unwinding));
    let (text, constants) = (module.part_at(Part::Text), module.part_at(Part::ReadOnly));
    let table = module.frames();
    let symbols = module.symbols();
    assert!(symbols.iter().all(|one| one.name != "left_out"));
    let (mut personalities, mut handled) = (0, 0);
    for symbol in &symbols {
        for inside in [0, 1, i64::from(symbol.bytes) - 1] {
            let place = (symbol.address - module.address).cast_signed() - part_at;
            let (start, at) = table.find(place + inside).expect("an entry");
            assert_eq!(start, place, "{}", symbol.name);
            let Ok((Item::Entry(common_at, range), _)) = unwind::item(part, at) else {
                panic!("{}: not an entry", symbol.name);
            };
            let Ok((Item::Common(common), _)) = unwind::item(part, common_at) else {
                panic!("{}: no common part", symbol.name);
            };
            let entry = unwind::entry(part, &common, range).expect("an entry");
            assert_eq!(led_to(part, entry.start_at), place);
            assert_eq!(entry.bytes, symbol.bytes);
            if let Some((encoding, field)) = common.personality {
                personalities += 1;
                assert_eq!(encoding, unwind::WORD_IN_DATA);
                let word = u32::try_from(distance(part, field)).expect("it lies in the data");
                let imported: Vec<_> = module.import_fixups().filter(|one| one.at == word).collect();
                assert_eq!(imported.len(), 1, "the word holds an import");
                assert_eq!(module.wanted(0, Some(imported[0].export)), "__gxx_personality_v0");
            }
            let Some(field) = entry.handlers_at else { continue };
            let handlers = usize::try_from(part_at + led_to(part, field)).expect("a place in the object");
            assert!(handlers >= constants as usize);
            handled += 1;
            if symbol.name == "catches" {
                // No start of its own; types relative to the data.
                assert_eq!(
                    built.object[handlers..handlers + 2],
                    [unwind::OMITTED, unwind::WORD_IN_DATA]
                );
            }
        }
    }
    assert_eq!((personalities, handled), (6, 6), "raises and catches, three times each");
    // Behind the last function nothing but what the linker made, to the end of the text.
    let end = i64::from(text) + i64::try_from(module.part(Part::Text).len()).expect("a length") - part_at;
    assert!(table.find(end - 1).is_some_and(|(start, _)| start > 0));
    assert!(table.find(i64::MIN).is_none());
}

#[test]
fn thunks_have_entries_in_their_pages() {
    let built = build(OBJECT).unwrap_or_else(|faults| panic!("{}", faults[0]));
    let module = Module::open("throws", &built.object).expect("a module");
    let thunks = module.part(Part::Thunks);
    let mut at = module.frames().thunk_entries_at as usize;
    assert_eq!(at, 64, "two thunks without words on the stack");
    let mut covered = Vec::new();
    let mut common = None;
    loop {
        match unwind::item(thunks, at).expect("an entry") {
            (Item::End, _) => break,
            (Item::Common(found), next) => {
                common = Some(found);
                at = next;
            }
            (Item::Entry(_, range), next) => {
                let common = common.as_ref().expect("it comes first");
                let entry = unwind::entry(thunks, common, range).expect("an entry");
                let start = led_to(thunks, entry.start_at);
                covered.push((start, entry.bytes));
                at = next;
            }
        }
    }
    assert_eq!(covered, [(0, 64)]);
}

#[test]
fn lies_are_named_with_file_section_and_place() {
    let frames = section(OBJECT, ".eh_frame").start;
    let types = section(OBJECT, ".gcc_except_table.catches").start;
    // (byte, what is put there, what the message says)
    let cases: [(usize, &[u8], &str); 16] = [
        (frames, &[0x13], "throws.o: .eh_frame+0x"),
        (
            frames,
            &[0xff, 0xff, 0xff, 0x7f],
            ".eh_frame+0x0: damaged: the length of an entry leads outside",
        ),
        (
            frames,
            &[0xff, 0xff, 0xff, 0xff],
            ".eh_frame+0x0: damaged: an entry of the 64-bit form",
        ),
        (frames, &[0, 0, 0, 0], ".eh_frame+0x0: damaged: an end before the end"),
        (frames, &[3, 0, 0, 0], "the length of an entry leads outside"),
        (frames + 8, &[2], "another version than 1 or 3"),
        (frames + 9, b"q", "a letter in a common part that nobody knows"),
        (
            frames + 0x10,
            &[0x03],
            "pointers to functions of encoding 0x03 cannot be shared",
        ),
        (
            frames + 0x1c,
            &[0x10],
            ".eh_frame+0x18: damaged: an entry without a common part",
        ),
        (frames + 0x1c, &[0xff, 0xff], "an entry has its common part outside"),
        (
            frames + 0x24,
            &[0xff, 0xff],
            ".eh_frame+0x18: damaged: an entry for more than there is of its function",
        ),
        (
            frames + 0x2c + 18,
            &[0x1b],
            "a personality routine of encoding 0x1b cannot be shared",
        ),
        (
            frames + 0x2c + 23,
            &[0x9b],
            "pointers to handlers of encoding 0x9b cannot be shared",
        ),
        (
            types + 1,
            &[0x1b],
            ".gcc_except_table.catches+0x1: damaged: a table of handlers with types of an encoding",
        ),
        (
            types + 2,
            &[0x7f],
            ".gcc_except_table.catches+0x1: damaged: a table of handlers with its types outside",
        ),
        (
            types,
            &[0x05],
            ".gcc_except_table.catches+0x0: damaged: a table of handlers with a start of unknown encoding",
        ),
    ];
    for (at, change, message) in cases {
        let mut bytes = OBJECT.to_vec();
        bytes[at..at + change.len()].copy_from_slice(change);
        let faults = build(&bytes).expect_err(message);
        let text = faults[0].to_string();
        assert!(
            text.contains(message) && text.starts_with("throws.o: ."),
            "{message}: {text}"
        );
    }
}

#[test]
fn a_routine_that_nobody_defines_is_missing() {
    let description = Description::parse("test", "[MODULE]\nname t\nversion 1\n[EXPORTS]\nraises stack=0\n");
    let files = [("throws.o".to_string(), OBJECT)];
    let request = Request {
        description: &description.expect("a description"),
        files: &files,
        imports: &[],
    };
    let faults = link(&request, |_| Ok(WINDOW_START)).expect_err("nobody has it");
    let missing = |fault: &Fault| fault.cause == Cause::Missing && fault.symbol == "__gxx_personality_v0";
    assert!(faults.iter().any(missing), "{faults:?}");
}

#[test]
fn changed_tables_never_panic() {
    let (seed, count) = rounds(3000);
    let places = [
        section(OBJECT, ".eh_frame"),
        section(OBJECT, ".gcc_except_table.catches"),
        section(OBJECT, ".rela.eh_frame"),
    ];
    let (mut linked, mut refused) = (0, 0);
    for seed in seed..seed + count {
        let mut random = Random(seed ^ 0xf4a3e);
        let mut bytes = OBJECT.to_vec();
        let range = places[random.below(places.len())].clone();
        let mut table = bytes[range.clone()].to_vec();
        random.change(&mut table);
        table.resize(range.len(), 0);
        bytes[range].copy_from_slice(&table);
        match catch_unwind(AssertUnwindSafe(|| build(&bytes))) {
            Ok(Ok(built)) => {
                linked += 1;
                let module = Module::open("throws", &built.object).expect("what was written can be read");
                let part = module.part(Part::Unwinding);
                for symbol in module.symbols() {
                    let place = symbol.address - module.address - u64::from(module.part_at(Part::Unwinding));
                    let Some((_, at)) = module.frames().find(place.cast_signed()) else {
                        continue;
                    };
                    let (item, _) = unwind::item(part, at).expect("an entry that was written can be read");
                    assert!(matches!(item, Item::Entry(..)));
                }
                let mut object = built.object;
                format::move_to("throws", &mut object, WINDOW_START + (1 << 30)).expect("it moves");
            }
            Ok(Err(faults)) => {
                refused += 1;
                assert!(faults[0].to_string().starts_with("throws.o"), "{}", faults[0]);
            }
            Err(panic) => panic!("MODULE_SEED={seed} MODULE_FUZZ=1 panicked: {panic:?}"),
        }
    }
    if count >= 100 {
        assert!(linked > 0 && refused > 0, "{linked} linked, {refused} refused");
    }
}
