//! Module objects that somebody made who knows the format: fields of records are changed, and the hashes over the exports made to fit
//! again, so that nothing but the checks of each field stands in the way. Such an object is refused, or all that a reader does
//! with it stays inside of it and of the data of its instances.
//!
//! `MODULE_FUZZ=N cargo test -p linker --test hostile` makes N objects instead of some thousand; `MODULE_SEED` begins elsewhere.

mod change;

use change::{Random, rounds};
use linker::module::format::{self, Part};
use linker::module::link::{Request, link};
use linker::module::window::WINDOW_START;
use linker::module::{Description, Module, instance, unwind};
use std::panic::{AssertUnwindSafe, catch_unwind};

const OTHERS: &str = "[MODULE]\nname others\nversion 1\n[EXPORTS]\nother\nother_variable data\nsort\n";

/// Objects with all kinds of records: the one imports, calls inline and late, and has frames; the other exports what is imported.
fn objects() -> Vec<Vec<u8>> {
    let one = |name: &str, bytes: &[u8], imports: &str, exports: &str| {
        let text = format!("[MODULE]\nname {name}\nversion 1.0\n{imports}[EXPORTS]\n{exports}");
        let description = Description::parse("test", &text).expect("a description");
        let files = [(name.to_string(), bytes)];
        let imports = if imports.is_empty() {
            Vec::new()
        } else {
            vec![Description::parse("others", OTHERS).expect("a description")]
        };
        let request = Request {
            description: &description,
            files: &files,
            imports: &imports,
        };
        link(&request, |_| Ok(WINDOW_START))
            .unwrap_or_else(|faults| panic!("{}", faults[0]))
            .object
    };
    let imports = "[IMPORTS]\no.md\n";
    vec![
        one(
            "many",
            include_bytes!("corpus/many-gcc.o"),
            imports,
            "entry\nchoose\nlabels\nmany\nvariable data\n",
        ),
        one(
            "inline",
            include_bytes!("corpus/inline-gcc.o"),
            imports,
            "inline_entry\ninline_back\n",
        ),
        one(
            "others",
            include_bytes!("corpus/pure-rust.o"),
            "",
            "rust_area\nrust_digest pure\n",
        ),
    ]
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// A part as the header has it, and the bytes of a record of it.
fn part(object: &[u8], number: usize) -> (usize, usize, usize) {
    const RECORDS: [usize; format::PARTS] = [
        4,
        4,
        4,
        8,
        1,
        8,
        format::EXPORT_BYTES,
        format::IMPORT_BYTES,
        4,
        format::IMPORT_FIXUP_BYTES,
        format::SYMBOL_BYTES,
        4,
        format::WANTED_BYTES,
        4,
        4,
    ];
    let at = format::PARTS_AT + 8 * number;
    (
        word(object, at) as usize,
        word(object, at + 4) as usize,
        RECORDS[number],
    )
}

/// A number that is likely to be at the edge of something.
fn edge(random: &mut Random, object: &[u8]) -> u64 {
    let parts = |random: &mut Random| {
        let (at, bytes, _) = part(object, random.below(format::PARTS));
        [at, bytes, at + bytes][random.below(3)] as u64
    };
    let base = match random.below(8) {
        0 => 0,
        1 => u64::from(u32::MAX),
        2 => object.len() as u64,
        3 => u64::from(word(object, 24)),
        4 => parts(random),
        5 => WINDOW_START + parts(random),
        6 => [format::PRIVATE, format::VARIABLE, 1 << 63, u64::MAX][random.below(4)] | parts(random),
        _ => random.next() >> random.below(64),
    };
    base.wrapping_add(random.below(17) as u64).wrapping_sub(8)
}

/// Changes a field of the header, of the list of parts, or of a record.
fn change(random: &mut Random, object: &mut [u8]) {
    let at = match random.below(6) {
        0 => 8 + 4 * random.below(10),
        1 => format::PARTS_AT + 4 * random.below(2 * format::PARTS),
        _ => {
            let (at, bytes, record) = part(object, random.below(format::PARTS));
            let records = (bytes / record).max(1);
            at + record * random.below(records) + random.below(record.div_ceil(4)) * 4
        }
    };
    let value = edge(random, object).to_le_bytes();
    let width = [1, 4, 4, 8][random.below(4)];
    put(object, at, &value[..width]);
}

/// Makes the hashes over the exports fit again: as the format says, whatever the names are now.
fn seal(object: &mut [u8]) {
    let (names, names_bytes, _) = part(object, Part::Names as usize);
    let (values, _, _) = part(object, Part::Values as usize);
    let (exports, bytes, record) = part(object, Part::Exports as usize);
    let mut hash = format::HASH_START;
    for index in 0..(bytes / record).min(1 << 12) {
        let at = exports.saturating_add(index * record);
        let name = word(object, at);
        let (start, length) = ((name & 0x00ff_ffff) as usize, (name >> 24) as usize);
        let all = object.get(names..names.saturating_add(names_bytes)).unwrap_or_default();
        let name = all.get(start..start + length).unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        let variable = word(object, values.saturating_add(index * 8 + 4)) & (format::VARIABLE >> 32) as u32 != 0;
        hash = format::extend_hash(hash, name, variable);
        put(object, at.saturating_add(8), &hash.to_le_bytes());
    }
}

/// All that readers do: what installs it, what makes instances, what binds it to others, what tells of it.
fn use_module(object: &[u8], others: &[Module<'_>]) -> bool {
    let Ok(module) = Module::open("hostile", object) else {
        return false;
    };
    let mut moved = object.to_vec();
    let elsewhere = 0x1_2345_6000;
    if format::move_to("hostile", &mut moved, elsewhere).is_ok() {
        let module = Module::open_header("hostile", &moved).expect("what was moved is a module");
        assert_eq!(module.address, elsewhere);
    }
    let symbols = module.symbols();
    assert!(symbols.len() <= object.len());
    let (part, frames) = (module.part(Part::Unwinding), module.frames());
    for place in (-65536..65536).step_by(256).chain([i64::MIN, i64::MAX]) {
        if let Some((_, at)) = frames.find(place) {
            let _ = unwind::item(part, at);
        }
    }
    let (before, behind) = (0xaa, 0x55);
    let bytes = module.data_bytes as usize;
    // Memory of the task that wants the instance; it is asked for as much as the header says.
    if bytes > 1 << 24 {
        return true;
    }
    let mut memory = vec![before; 64 + bytes + 64];
    memory[64 + bytes..].fill(behind);
    let data = &mut memory[64..64 + bytes];
    instance::instantiate(&module, 0x10_0000, instance::Runtime::default(), data);
    for index in 0..module.import_count().min(64) {
        for other in others.iter().chain([&module]) {
            for called in [
                None,
                Some(0),
                Some(module.import(index).count.wrapping_sub(1)),
                Some(u32::MAX),
            ] {
                let _ = instance::bind(&module, data, index, other, 0x20_0000, called);
            }
        }
        if module.import(index).count < 1 << 20 {
            instance::bind_foreign(&module, data, index, u64::from);
        }
        let _ = (module.wanted(index, None), module.wanted(index, Some(3)));
    }
    assert!(instance::at_start(&module, data).count() <= module.init_count as usize);
    assert!(instance::at_end(&module, data).count() <= module.fini_count as usize);
    assert!(memory[..64].iter().all(|byte| *byte == before));
    assert!(memory[64 + bytes..].iter().all(|byte| *byte == behind));
    let mut data = vec![0; 4096];
    for other in others {
        // Of an honest client, to this as what it imports.
        for index in 0..other.import_count() {
            let _ = instance::bind(other, &mut data, index, &module, 0x20_0000, Some(0));
        }
    }
    let mut all = others.to_vec();
    all.push(module.clone());
    let mut order = instance::end_order(&all);
    order.sort_unstable();
    assert!(order.into_iter().eq(0..all.len()));
    let shared = module.address..module.address + object.len() as u64;
    for (index, export) in module.exports().enumerate() {
        let address = format::resolve(export.value, 0x4000_0000_0000);
        let own = 0x4000_0000_0000 - u64::from(module.thunk_bytes())..=0x4000_0000_0000 + u64::from(module.data_bytes);
        assert!(
            shared.contains(&address) || own.contains(&address),
            "an export leads elsewhere"
        );
        assert!(module.entry(index as u32).is_none_or(|entry| shared.contains(&entry)));
        assert!(module.value_of(export.name).is_some());
    }
    true
}

#[test]
fn resealed_modules_are_refused_or_harmless() {
    let objects = objects();
    let honest: Vec<Module<'_>> = objects
        .iter()
        .map(|object| Module::open("honest", object).expect("a module"))
        .collect();
    let (seed, count) = rounds(6000);
    let mut accepted = 0;
    for seed in seed..seed + count {
        let mut random = Random(seed ^ 0x4057_11e5);
        let mut object = objects[random.below(objects.len())].clone();
        for _ in 0..=random.below(4) {
            change(&mut random, &mut object);
        }
        seal(&mut object);
        let result = catch_unwind(AssertUnwindSafe(|| use_module(&object, &honest)));
        let opened = result.unwrap_or_else(|panic| panic!("MODULE_SEED={seed} MODULE_FUZZ=1: {panic:?}"));
        accepted += u64::from(opened);
    }
    println!("{accepted} of {count} accepted");
    if count >= 1000 {
        assert!(
            accepted > count / 20 && accepted < count * 19 / 20,
            "{accepted} of {count} accepted"
        );
    }
}
