//! Making a module object: from a description, files and the descriptions of the imports.
//!
//! Order: read and choose files; see what is reached from the exports (the rest is left out); decide what is
//! private; plan thunks, words and stubs; lay out; ask for an address; relocate; write. All faults of a step
//! are reported together.

mod arguments;
mod unwinding;

use super::description::Description;
use super::fault::{Cause, Fault};
use super::format::{self, MODULE_BYTES_MAX, PARTS, Part};
use super::frames;
use super::graph::{Graph, Node};
use super::input::{Home, Input, Kind};
use super::relocate::{self, Fixup, Layout, Plan, Seat, Value, World};
use super::symbols::{self, Symbols, Target};
use super::thunk::{self, Copied};
use abi::address::PAGE;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// What a module is made from.
pub struct Request<'a> {
    /// Its description.
    pub description: &'a Description,
    /// Name (for messages) and bytes of each object and archive of it.
    pub files: &'a [(String, &'a [u8])],
    /// The descriptions of the imported modules, in the order of the description.
    pub imports: &'a [Description],
}

/// A module object and what there is to say about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// The object.
    pub object: Vec<u8>,
    /// Functions in it.
    pub functions: usize,
    /// Those that need their instance.
    pub private_functions: usize,
    /// Those with a thunk.
    pub thunks: usize,
}

/// Links a module. `address` is asked once, with the bytes of the object, where it shall be.
///
/// # Errors
/// Everything that was wrong in the first step that found something.
pub fn link(request: &Request<'_>, address: impl FnOnce(u64) -> Result<u64, Fault>) -> Result<Built, Vec<Fault>> {
    link_and(request, address, |_, _| ()).map(|(built, ())| built)
}

/// Links a module, and has `also` look at where everything is.
///
/// # Errors
/// As [`link`].
pub fn link_and<T>(
    request: &Request<'_>,
    address: impl FnOnce(u64) -> Result<u64, Fault>,
    also: impl FnOnce(&World<'_>, &Layout) -> T,
) -> Result<(Built, T), Vec<Fault>> {
    let description = request.description;
    let wanted: Vec<&str> = description.exports.iter().map(|one| one.name.as_str()).collect();
    let mut inputs = symbols::collect(request.files, &wanted).map_err(|fault| vec![fault])?;
    symbols::place_commons(&mut inputs);
    let names = Symbols::new(&inputs, request.imports)?;
    let exports = find_exports(description, &inputs, &names)?;
    let live = symbols::reach(&inputs, &names, &exports);
    let mut graph = Graph::new(&inputs, &live);
    graph.spread(&inputs, &names);
    check_functions(&inputs, &graph)?;
    let variable = |module: u32, export: u32| {
        let import = request.imports.get(module as usize);
        import
            .and_then(|one| one.exports.get(export as usize))
            .is_some_and(|one| one.data)
    };
    let world = World {
        inputs: &inputs,
        symbols: &names,
        graph: &graph,
        variables: &variable,
    };
    let mut plan = Plan::default();
    let mut faults = world.plan(&mut plan);
    faults.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    faults.dedup_by(|a, b| a.cause == Cause::Missing && b.cause == Cause::Missing && a.symbol == b.symbol);
    for (export, target) in description.exports.iter().zip(&exports) {
        faults.extend(check_export(&world, export, *target, &mut plan));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let words = arguments::stack_words(description, &world, &plan)?;
    let frames = frames::Plan::new(&world);
    let mut writer = Writer {
        request,
        world,
        plan,
        words,
        frames,
        thunks_end: 0,
        thunk_entries_at: 0,
        exports,
        layout: Layout::default(),
        parts: [(0, 0); PARTS],
        names: Vec::new(),
        identity: [0; 2],
        fixups: Vec::new(),
        data: DataLayout::default(),
        stubs_at: 0,
        lazy: BTreeMap::new(),
        lazy_common: 0,
    };
    writer.lay_out().map_err(|fault| vec![fault])?;
    let bytes = u64::from(writer.parts[Part::Template as usize].0) + u64::from(writer.parts[Part::Template as usize].1);
    writer.layout.address = address(bytes.next_multiple_of(PAGE)).map_err(|fault| vec![fault])?;
    let seen = also(&writer.world, &writer.layout);
    Ok((writer.write()?, seen))
}

/// Where the exports are.
fn find_exports(description: &Description, inputs: &[Input], names: &Symbols) -> Result<Vec<Target>, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut result = Vec::new();
    for export in &description.exports {
        let fault = |cause| Fault::file(&description.name, cause).about(&export.name);
        match names.defined(inputs, &export.name) {
            Some(target @ Target::Place(file, section, _)) => {
                let text = inputs[file].sections[section].kind == Kind::Text;
                let fault = |cause| Fault::file(&inputs[file].file, cause).about(&export.name);
                if names.definition(inputs, &export.name).is_some_and(|one| one.indirect) {
                    faults.push(fault(Cause::SymbolKind));
                } else if text && export.data {
                    faults.push(fault(Cause::KindLie("a function")));
                } else if !text && !export.data {
                    faults.push(fault(Cause::KindLie("a variable")));
                }
                result.push(target);
            }
            Some(_) => faults.push(fault(Cause::KindLie("a number"))),
            None => faults.push(fault(Cause::Missing)),
        }
        if export.name.len() > 255 {
            faults.push(fault(Cause::Syntax(
                "a name of more than 255 bytes cannot be exported".into(),
            )));
        }
    }
    if faults.is_empty() { Ok(result) } else { Err(faults) }
}

/// Private functions must leave the data register alone.
fn check_functions(inputs: &[Input], graph: &Graph) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    for (node, function) in graph.functions.iter().enumerate() {
        let Some(function) = function else { continue };
        let (file, section) = graph.places[node];
        // What cannot be read may do anything.
        let cause = if function.undecodable {
            Cause::Undecodable
        } else {
            Cause::RegisterTaken
        };
        if (function.writes_register || function.undecodable) && graph.private[node].is_some() {
            faults.push(
                Fault::file(&inputs[file].file, cause)
                    .about(&graph.name(inputs, node))
                    .at(&inputs[file].sections[section].name, function.start),
            );
        }
    }
    for input in inputs {
        for symbol in input.symbols.iter().filter(|one| one.indirect) {
            if let Home::Section(section, at) = symbol.home
                && input.sections[section].kind != Kind::None
            {
                faults.push(
                    Fault::file(&input.file, Cause::SymbolKind)
                        .about(&symbol.name)
                        .at(&input.sections[section].name, at),
                );
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Plans the thunk of an export, and compares what the description says.
fn check_export(
    world: &World<'_>,
    export: &super::description::Export,
    target: Target,
    plan: &mut Plan,
) -> Option<Fault> {
    let Target::Place(file, section, at) = target else {
        return None;
    };
    if world.inputs[file].sections[section].kind != Kind::Text {
        return None;
    }
    let node = world.graph.node(file, section, at)?;
    world.graph.private[node]?;
    if export.pure {
        let needs = world.graph.cause(world.inputs, node);
        return Some(Fault::file(&world.inputs[file].file, Cause::PureLie(needs)).about(&export.name));
    }
    let number = plan.thunks.len();
    plan.thunks.entry(node).or_insert(number);
    None
}

/// A record of the imported words.
fn imported_word(at: u32, (module, export): (u32, u32), flags: u32, addend: i64) -> Vec<u8> {
    let mut record = Vec::with_capacity(format::IMPORT_FIXUP_BYTES);
    for word in [at, module, export, flags] {
        record.extend(word.to_le_bytes());
    }
    record.extend(addend.to_le_bytes());
    record
}

/// Where things are in the data of an instance.
#[derive(Default)]
struct DataLayout {
    /// Bytes that are not zero at first, from the start.
    template: u32,
    /// All bytes.
    bytes: u32,
    init_at: u32,
    init_count: u32,
    fini_count: u32,
}

struct Writer<'a> {
    request: &'a Request<'a>,
    world: World<'a>,
    plan: Plan,
    words: Vec<Copied>,
    frames: frames::Plan,
    /// Byte of the thunks behind the last, where [`thunk::reach`] stands if it is needed.
    thunks_end: u32,
    /// Byte of the thunks behind that.
    thunk_entries_at: u32,
    exports: Vec<Target>,
    layout: Layout,
    parts: [(u32, u32); PARTS],
    names: Vec<u8>,
    /// References to the module's name and version.
    identity: [u32; 2],
    fixups: Vec<Fixup>,
    data: DataLayout,
    stubs_at: u32,
    /// For each import that can be bound late its lazy stub's byte in the object.
    lazy: BTreeMap<(u32, u32), u32>,
    lazy_common: u32,
}

/// A position that grows, in bytes, and never beyond what a module may have.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, bytes: u64, align: u64) -> Result<u32, Fault> {
        let at = self.0.next_multiple_of(align.max(1));
        self.0 = at + bytes.min(MODULE_BYTES_MAX + 1);
        if self.0 > MODULE_BYTES_MAX {
            return Err(Fault::file("(layout)", Cause::TooLarge));
        }
        Ok(at as u32)
    }
}

impl Writer<'_> {
    fn lay_out(&mut self) -> Result<(), Fault> {
        self.layout.seats = self
            .world
            .inputs
            .iter()
            .map(|one| vec![Seat::None; one.sections.len()])
            .collect();
        // How long the tables are does not depend on where things are.
        self.lay_out_data()?;
        let tables: usize = self
            .tables(&[])
            .iter()
            .map(|table| table.len().next_multiple_of(8))
            .sum();
        let tables = tables + self.unwinding(0)?.len();
        let fixups = self.count_fixups();
        let mut cursor = Cursor((format::HEADER_BYTES + tables + fixups) as u64);
        self.lay_out_text(&mut cursor)?;
        let read_only = cursor.take(0, PAGE)?;
        let shared = |graph: &Graph, node: Node| graph.private[node].is_none();
        for node in self.in_order() {
            let (file, section) = self.world.graph.places[node];
            let here = &self.world.inputs[file].sections[section];
            if here.kind == Kind::ReadOnly && shared(self.world.graph, node) {
                self.layout.seats[file][section] = Seat::Shared(cursor.take(here.bytes, here.align)?);
            }
        }
        let words: Vec<Target> = self.plan.words.iter().copied().collect();
        for target in words {
            if let alloc::collections::btree_map::Entry::Vacant(entry) = self.layout.words.entry(target) {
                let at = cursor.take(8, 8)?;
                entry.insert(Seat::Shared(at));
            }
        }
        self.parts[Part::ReadOnly as usize] = (read_only, cursor.0 as u32 - read_only);
        let thunks = cursor.take(0, PAGE)?;
        let mut at = 0;
        let mut places = vec![0_u32; self.words.len()];
        let order = self.thunk_order();
        for &number in &order {
            places[number] = at;
            at += self.words[number].thunk_bytes();
        }
        self.thunks_end = at;
        if thunk::needs_reach(&self.words) {
            at += thunk::reach().len() as u32;
        }
        let mut bytes = 0;
        if at > 0 {
            self.thunk_entries_at = at;
            bytes = (u64::from(at) + self.thunk_entries(&order).len() as u64).next_multiple_of(PAGE);
        }
        cursor.take(bytes, 1)?;
        self.layout.thunks = places
            .iter()
            .map(|place| place.cast_signed() - (bytes as u32).cast_signed())
            .collect();
        self.parts[Part::Thunks as usize] = (thunks, bytes as u32);
        let template = cursor.take(u64::from(self.data.template), PAGE)?;
        self.parts[Part::Template as usize] = (template, self.data.template);
        Ok(())
    }

    /// The nodes as they are laid out: those of a linker set one behind the other.
    fn in_order(&self) -> Vec<Node> {
        let graph = self.world.graph;
        let sets: Vec<Vec<Node>> = self
            .world
            .symbols
            .sets()
            .map(|set| {
                set.iter()
                    .filter_map(|&(file, section)| graph.node(file, section, 0))
                    .collect()
            })
            .collect();
        let mut order = Vec::with_capacity(graph.places.len());
        for node in 0..graph.places.len() {
            match sets.iter().find(|set| set.contains(&node)) {
                Some(set) if set.first() == Some(&node) => order.extend(set),
                Some(_) => {}
                None => order.push(node),
            }
        }
        order
    }

    /// The data: header, descriptors, private words, then what has addresses in it, so that few pages differ
    /// between instances, then the rest, then zero.
    fn lay_out_data(&mut self) -> Result<(), Fault> {
        let mut cursor = Cursor(u64::from(format::DATA_HEADER_BYTES));
        for import in self.request.imports {
            let bytes = 8 + 8 * import.exports.len() as u64;
            self.layout.descriptors.push(cursor.take(bytes, 8)?);
        }
        for &import in &self.plan.entries {
            self.layout.entries.insert(import, cursor.take(8, 8)?);
        }
        for target in self.plan.words.clone() {
            let private = match target {
                Target::Place(file, section, at) => {
                    let node = self.world.graph.node(file, section, at);
                    node.is_some_and(|node| self.world.graph.private[node].is_some())
                }
                Target::Instance => true,
                _ => false,
            };
            if private {
                self.layout.words.insert(target, Seat::Private(cursor.take(8, 8)?));
            }
        }
        let inputs = self.world.inputs;
        let graph = self.world.graph;
        let mut called: [Vec<(&str, usize, usize)>; 2] = Default::default();
        let mut groups: [Vec<(usize, usize)>; 3] = Default::default();
        for node in self.in_order() {
            let (file, section) = graph.places[node];
            let of_set = self.world.symbols.sets().any(|set| set.contains(&(file, section)));
            let here = &inputs[file].sections[section];
            let group = match here.kind {
                Kind::Init | Kind::Fini => {
                    called[usize::from(here.kind == Kind::Fini)].push((&here.name, file, section));
                    continue;
                }
                Kind::Zero | Kind::Data | Kind::ReadOnly if of_set && graph.private[node].is_some() => 0,
                Kind::Zero => 2,
                Kind::Data | Kind::ReadOnly if graph.private[node].is_some() => {
                    usize::from(here.relocations.is_empty())
                }
                _ => continue,
            };
            groups[group].push((file, section));
        }
        let start = cursor.take(0, 8)?;
        let mut ends = [start; 2];
        for (list, end) in called.iter_mut().zip(&mut ends) {
            // Sections with a priority come first, and sort as their names do.
            list.sort_by_key(|(name, ..)| (matches!(*name, ".init_array" | ".fini_array"), *name));
            for &(_, file, section) in &*list {
                self.seat_private(&mut cursor, file, section, 8)?;
            }
            *end = cursor.0 as u32;
        }
        self.data.init_at = start;
        self.data.init_count = (ends[0] - start) / 8;
        self.data.fini_count = (ends[1] - ends[0]) / 8;
        for (index, group) in groups.iter().enumerate() {
            for &(file, section) in group {
                let align = inputs[file].sections[section].align;
                self.seat_private(&mut cursor, file, section, align)?;
            }
            if index == 1 {
                self.data.template = cursor.0 as u32;
            }
        }
        self.data.bytes = cursor.take(0, 8)?;
        self.data.template = self.data.template.min(self.data.bytes);
        Ok(())
    }

    fn seat_private(&mut self, cursor: &mut Cursor, file: usize, section: usize, align: u64) -> Result<(), Fault> {
        let bytes = self.world.inputs[file].sections[section].bytes;
        self.layout.seats[file][section] = Seat::Private(cursor.take(bytes, align)?);
        Ok(())
    }

    fn lay_out_text(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        let text = cursor.take(0, PAGE)?;
        let mut last = None;
        for &(file, section) in &self.world.graph.places {
            let here = &self.world.inputs[file].sections[section];
            if here.kind == Kind::Text && last != Some((file, section)) {
                self.layout.seats[file][section] = Seat::Shared(cursor.take(here.bytes, here.align)?);
                last = Some((file, section));
            }
        }
        let align = thunk::ALIGN as u64;
        self.stubs_at = cursor.take(relocate::stub_bytes(&self.plan) as u64, align)?;
        for (number, &import) in self.plan.stubs.iter().enumerate() {
            let at = self.stubs_at + (number * thunk::ALIGN) as u32;
            self.layout.stubs.insert(import, at);
        }
        self.layout.trap = self.stubs_at + (self.plan.stubs.len() * thunk::ALIGN) as u32;
        self.lazy_common = cursor.take(thunk::lazy_common().len() as u64, align)?;
        for &import in &self.plan.used {
            if !self.plan.early.contains(&import.0) {
                self.lazy.insert(import, cursor.take(align, align)?);
            }
        }
        self.parts[Part::Text as usize] = (text, cursor.0 as u32 - text);
        Ok(())
    }

    /// An upper bound for the bytes of the three lists of fix-ups, each rounded.
    fn count_fixups(&self) -> usize {
        let mut words = self.plan.words.len() + self.plan.entries.len();
        // Those that hold an address of the module: in thunks, in descriptors, and any of the others.
        let mut own = words + self.words.len() + self.plan.used.len();
        for (node, &(file, section)) in self.world.graph.places.iter().enumerate() {
            let here = &self.world.inputs[file].sections[section];
            own += here.relocations.len();
            // Text has no fix-ups, and constants are constant.
            if here.kind != Kind::Text && self.world.graph.private[node].is_some() {
                words += here.relocations.len();
            }
        }
        words * (4 + format::IMPORT_FIXUP_BYTES) + own * 4 + 24
    }

    fn write(mut self) -> Result<Built, Vec<Fault>> {
        let (at, bytes) = self.parts[Part::Template as usize];
        let mut object = vec![0; at as usize + (bytes as usize).next_multiple_of(PAGE as usize)];
        let mut faults = Vec::new();
        let mut last = None;
        for index in 0..self.world.graph.places.len() {
            let (file, section) = self.world.graph.places[index];
            let here = &self.world.inputs[file].sections[section];
            if here.kind == Kind::Zero || last == Some((file, section)) {
                continue;
            }
            last = Some((file, section));
            let start = match self.layout.seats[file][section] {
                Seat::None => continue,
                Seat::Shared(at) => at,
                Seat::Private(displacement) => at + displacement,
            } as usize;
            let place = &mut object[start..start + here.data.len()];
            place.copy_from_slice(&here.data);
            let more = self
                .world
                .fill(&self.layout, &self.plan, (file, section), place, &mut self.fixups);
            faults.extend(more);
        }
        faults.extend(self.fill_words(&mut object).err());
        if !faults.is_empty() {
            return Err(faults);
        }
        self.fill_code(&mut object);
        self.fill_tables(&mut object).map_err(|fault| vec![fault])?;
        let graph = self.world.graph;
        let functions = |private: bool| {
            let all = graph.functions.iter().zip(&graph.private);
            all.filter(|(function, reason)| function.is_some() && (!private || reason.is_some()))
                .count()
        };
        // What was written must be what can be read.
        format::Module::open(&self.request.description.name, &object).map_err(|fault| vec![fault])?;
        Ok(Built {
            functions: functions(false),
            private_functions: functions(true),
            thunks: self.words.len(),
            object,
        })
    }

    /// The words that hold addresses, in the constants and in the data.
    fn fill_words(&mut self, object: &mut [u8]) -> Result<(), Fault> {
        let entries = self.layout.entries.iter();
        self.fixups
            .extend(entries.map(|(&import, &at)| Fixup::Entry(at, import)));
        let template = self.parts[Part::Template as usize].0;
        for (&target, &seat) in &self.layout.words {
            let value = self.world.value(&self.layout, &self.plan, target);
            let value = value.map_err(|cause| Fault::file(&self.request.description.name, cause))?;
            if relocate::is_own(target) && matches!(value, Value::Shared(_)) {
                self.fixups.push(Fixup::Module(seat));
            }
            let (at, word) = match (seat, value) {
                (Seat::Shared(at), Value::Shared(address)) => (at, address),
                (Seat::Private(at), Value::Shared(address)) => (template + at, address),
                (Seat::Private(at), Value::Private(displacement)) => {
                    self.fixups.push(Fixup::Data(at));
                    (template + at, displacement.cast_unsigned())
                }
                _ => {
                    let cause = Cause::NotConstant(object::elf::R_X86_64_GOTPCREL);
                    return Err(Fault::file(&self.request.description.name, cause));
                }
            };
            object[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Thunks and stubs, and the first contents of descriptors that are bound late.
    fn fill_code(&mut self, object: &mut [u8]) {
        let mut own = Vec::new();
        let mut put = |at: u32, code: &[u8]| object[at as usize..at as usize + code.len()].copy_from_slice(code);
        let (thunks, bytes) = self.parts[Part::Thunks as usize];
        let template = self.parts[Part::Template as usize].0;
        if thunk::needs_reach(&self.words) {
            put(thunks + self.thunks_end, &thunk::reach());
        }
        for (&node, &number) in &self.plan.thunks {
            let (file, section) = self.world.graph.places[node];
            let start = self.world.graph.functions[node].as_ref().map_or(0, |one| one.start);
            if let Seat::Shared(at) = self.layout.seats[file][section] {
                let function = self.layout.address + u64::from(at) + start;
                let displacement = self.layout.thunks[number];
                let words = self.words[number];
                let place = (displacement + bytes.cast_signed()).cast_unsigned();
                let to_reach = self.thunks_end.wrapping_sub(place).cast_signed();
                put(thunks + place, &thunk::thunk(function, words, -displacement, to_reach));
                own.push(Fixup::Module(Seat::Shared(thunks + place + words.constant_at())));
            }
        }
        if self.thunk_entries_at > 0 {
            let entries = self.thunk_entries(&self.thunk_order());
            put(thunks + self.thunk_entries_at, &entries);
        }
        for (&(module, export), &at) in &self.layout.stubs {
            put(
                at,
                &thunk::import_stub(relocate::slot(&self.layout, module, export).cast_signed()),
            );
        }
        if self.plan.trap {
            put(self.layout.trap, &thunk::trap_stub());
        }
        put(self.lazy_common, &thunk::lazy_common());
        for (&(module, export), &at) in &self.lazy {
            let slot = relocate::slot(&self.layout, module, export);
            put(
                at,
                &thunk::lazy_stub(slot.cast_signed(), self.lazy_common.wrapping_sub(at).cast_signed()),
            );
            put(template + slot, &(self.layout.address + u64::from(at)).to_le_bytes());
            own.push(Fixup::Module(Seat::Private(slot)));
        }
        self.fixups.append(&mut own);
    }

    fn fill_tables(&mut self, object: &mut [u8]) -> Result<(), Fault> {
        let mut fixups = core::mem::take(&mut self.fixups);
        fixups.sort_by_key(|one| match *one {
            Fixup::Data(at) | Fixup::Import(at, ..) | Fixup::Entry(at, _) => at,
            Fixup::Module(seat) => self.byte_of(seat),
        });
        let tables = self.tables(&fixups);
        let mut at = format::HEADER_BYTES as u32;
        for (index, table) in tables.iter().enumerate() {
            self.parts[Part::Names as usize + index] = (at, table.len() as u32);
            object[at as usize..at as usize + table.len()].copy_from_slice(table);
            at += table.len().next_multiple_of(8) as u32;
        }
        let unwinding = self.unwinding(at)?;
        self.parts[Part::Unwinding as usize] = (at, unwinding.len() as u32);
        object[at as usize..at as usize + unwinding.len()].copy_from_slice(&unwinding);
        at += unwinding.len() as u32;
        if at > self.parts[Part::Text as usize].0 {
            return Err(Fault::file(&self.request.description.name, Cause::TooLarge));
        }
        let mut header = Vec::from(format::MAGIC);
        header.extend(self.layout.address.to_le_bytes());
        header.extend((object.len() as u64).to_le_bytes());
        header.extend(self.data.bytes.to_le_bytes());
        header.extend(self.data.init_at.to_le_bytes());
        header.extend(self.data.init_count.to_le_bytes());
        header.extend(self.identity[0].to_le_bytes());
        header.extend(self.identity[1].to_le_bytes());
        header.extend(self.data.fini_count.to_le_bytes());
        header.resize(format::PARTS_AT, 0);
        for (at, bytes) in self.parts {
            header.extend(at.to_le_bytes());
            header.extend(bytes.to_le_bytes());
        }
        object[..header.len()].copy_from_slice(&header);
        Ok(())
    }

    /// The byte of the object where a seat is.
    fn byte_of(&self, seat: Seat) -> u32 {
        match seat {
            Seat::Shared(at) => at,
            Seat::Private(at) => self.parts[Part::Template as usize].0 + at,
            Seat::None => 0,
        }
    }

    /// A reference to a name, which is put into the list of names if it is not there yet.
    fn name(&mut self, name: &str) -> u32 {
        let mut bytes = name.len().min(255);
        while !name.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let name = &name.as_bytes()[..bytes];
        // Short lists are searched, so that a module with few names has none twice.
        let found = (self.names.len() < 4096)
            .then(|| self.names.windows(bytes.max(1)).position(|window| window == name))
            .flatten();
        let at = found.unwrap_or_else(|| {
            self.names.extend(name);
            self.names.len() - bytes
        });
        (at as u32 & 0x00ff_ffff) | (bytes as u32) << 24
    }

    /// All tables from [`Part::Names`] to [`Part::Entries`].
    fn tables(&mut self, fixups: &[Fixup]) -> [Vec<u8>; Part::Entries as usize + 1 - Part::Names as usize] {
        self.names.clear();
        let description = self.request.description;
        self.identity = [self.name(&description.name), self.name(&description.version)];
        let (mut values, mut exports, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut hash = format::HASH_START;
        for (index, export) in description.exports.iter().enumerate() {
            let target = self.exports[index];
            let value = if self.layout.thunks.len() == self.words.len() {
                self.world.value(&self.layout, &self.plan, target)
            } else {
                Ok(Value::Shared(0))
            };
            let value = match value {
                Ok(Value::Shared(address)) => address,
                Ok(Value::Private(displacement)) => format::private(displacement as i32),
                _ => 0,
            };
            let kind = if export.data { format::VARIABLE } else { 0 };
            values.extend((value | kind).to_le_bytes());
            let entry = match World::place(&self.layout, target) {
                Ok(Value::Shared(address)) if !export.data => address.wrapping_sub(self.layout.address),
                _ => 0,
            };
            entries.extend((entry as u32).to_le_bytes());
            hash = format::extend_hash(hash, &export.name, export.data);
            exports.extend(self.name(&export.name).to_le_bytes());
            exports.extend([0; 4]);
            exports.extend(hash.to_le_bytes());
        }
        let imports = self.import_table();
        let (mut own, mut foreign, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for fixup in fixups {
            match *fixup {
                Fixup::Data(at) => own.extend(at.to_le_bytes()),
                Fixup::Import(at, import, addend) => foreign.extend(imported_word(at, import, 0, addend)),
                Fixup::Entry(at, import) => foreign.extend(imported_word(at, import, format::ENTRY, 0)),
                Fixup::Module(seat) => addresses.extend(self.byte_of(seat).to_le_bytes()),
            }
        }
        let (symbols, wanted) = (self.symbol_table(), self.wanted_table());
        [
            core::mem::take(&mut self.names),
            values,
            exports,
            imports,
            own,
            foreign,
            symbols,
            addresses,
            wanted,
            entries,
        ]
    }

    fn wanted_table(&mut self) -> Vec<u8> {
        let mut table = Vec::new();
        let imports = self.request.imports;
        for (module, export) in self.plan.used.clone() {
            let described = imports
                .get(module as usize)
                .and_then(|one| one.exports.get(export as usize));
            let name = self.name(described.map_or("", |one| &one.name));
            for word in [module, export, name] {
                table.extend(word.to_le_bytes());
            }
        }
        table
    }

    fn import_table(&mut self) -> Vec<u8> {
        let mut table = Vec::new();
        for (index, import) in self.request.imports.iter().enumerate() {
            let start = format::HASH_START;
            let exports = import.exports.iter();
            let hash = exports.fold(start, |hash, one| format::extend_hash(hash, &one.name, one.data));
            table.extend(self.name(&import.name).to_le_bytes());
            table.extend(self.name(&import.version).to_le_bytes());
            table.extend(self.layout.descriptors[index].to_le_bytes());
            table.extend((import.exports.len() as u32).to_le_bytes());
            table.extend(hash.to_le_bytes());
            table.extend(u32::from(!self.plan.early.contains(&(index as u32))).to_le_bytes());
            table.extend([0; 12]);
        }
        table
    }

    fn symbol_table(&mut self) -> Vec<u8> {
        let mut list = Vec::new();
        for (file, input) in self.world.inputs.iter().enumerate() {
            for symbol in &input.symbols {
                let Home::Section(section, at) = symbol.home else {
                    continue;
                };
                let named = symbol.function && !symbol.name.is_empty() && input.sections[section].kind == Kind::Text;
                if named && self.world.graph.node(file, section, at).is_some() {
                    let seat = self.layout.seats[file][section];
                    let start = if let Seat::Shared(start) = seat { start } else { 0 };
                    let address = self.layout.address + u64::from(start) + at;
                    list.push((address, symbol.bytes, &symbol.name));
                }
            }
        }
        list.sort_unstable();
        let mut table = Vec::new();
        for (address, bytes, name) in list {
            table.extend(self.name(name).to_le_bytes());
            table.extend([0; 4]);
            table.extend(address.to_le_bytes());
            table.extend((bytes as u32).to_le_bytes());
            table.extend([0; 4]);
        }
        table
    }
}
