//! Relocations: every type that gcc, clang and rustc emit for x86-64 is either carried out here or refused by
//! name. A first walk over all of them plans what has to exist (thunks, slots, stubs); when everything has
//! its place, a second one fills in.

use super::code::{self, Base, Form, Use};
use super::fault::{Cause, Fault};
use super::graph::{Graph, Node};
use super::input::{Input, Kind, Relocation};
use super::symbols::{Symbols, Target};
use super::thunk;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use object::elf;

/// A relocation of our own: the displacement of its target from the data, in four bytes.
pub const DATA_RELATIVE: u32 = u32::MAX;

/// What a field is to hold.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Value {
    /// An address, the same in every instance.
    Shared(u64),
    /// A displacement from the data.
    Private(i64),
    /// The word of the data at this displacement, which holds an import.
    Slot(u32),
}

/// Where a section is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Seat {
    /// Nowhere.
    None,
    /// In the object, at this byte.
    Shared(u32),
    /// In the data, at this byte.
    Private(u32),
}

/// What the first walk found to be needed.
#[derive(Debug, Default)]
pub struct Plan {
    /// Private functions that need a thunk: their number in order.
    pub thunks: BTreeMap<Node, usize>,
    /// Words that hold an address, reached through memory: targets of instructions that want it so.
    pub words: BTreeSet<Target>,
    /// Imports that are called directly and need a stub.
    pub stubs: BTreeSet<(u32, u32)>,
    /// Imports that are used at all.
    pub used: BTreeSet<(u32, u32)>,
    /// Imports that are called inline.
    pub entries: BTreeSet<(u32, u32)>,
    /// Imported modules whose words are used other than by calling, and must be bound early.
    pub early: BTreeSet<u32>,
    /// A call leads to a weak function that nobody defines.
    pub trap: bool,
}

/// Where everything is, for the second walk.
#[derive(Debug, Default)]
pub struct Layout {
    /// Address of the object.
    pub address: u64,
    /// For each file and section.
    pub seats: Vec<Vec<Seat>>,
    /// For each thunk its displacement from the data.
    pub thunks: Vec<i32>,
    /// For each word that holds an address.
    pub words: BTreeMap<Target, Seat>,
    /// For each import its descriptor in the data.
    pub descriptors: Vec<u32>,
    /// For each import that is called inline the word of the data with its own address.
    pub entries: BTreeMap<(u32, u32), u32>,
    /// For each import stub its byte in the object.
    pub stubs: BTreeMap<(u32, u32), u32>,
    /// The trap stub's byte in the object.
    pub trap: u32,
}

/// A fix-up of a word in the data, found while filling it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fixup {
    /// It grows by the data's address.
    Data(u32),
    /// It holds an import and an addend.
    Import(u32, (u32, u32), i64),
    /// It holds the own address of an import, for inline calls.
    Entry(u32, (u32, u32)),
    /// It holds an address of the module itself: the seat of the word.
    Module(Seat),
}

/// Whether a target that has an address has one of the module itself.
pub const fn is_own(target: Target) -> bool {
    matches!(target, Target::Place(..))
}

/// Everything known about the input.
pub struct World<'a> {
    /// The files.
    pub inputs: &'a [Input],
    /// The names.
    pub symbols: &'a Symbols,
    /// What is private.
    pub graph: &'a Graph,
    /// Which imports are variables.
    pub variables: &'a dyn Fn(u32, u32) -> bool,
}

type Fill<T> = Result<T, Cause>;

/// The function has a stack protector.
const PROTECTED: Cause = Cause::Compiled(
    "a stack protector reads a thread's own storage, which a module does not have: compile with -fno-stack-protector",
);

impl World<'_> {
    fn fault(&self, file: usize, section: usize, relocation: &Relocation, cause: Cause) -> Fault {
        let input = &self.inputs[file];
        let mut name = input.symbols[relocation.symbol].name.clone();
        if name.is_empty()
            && let Target::Place(file, section, at) =
                self.symbols
                    .target(self.inputs, file, relocation.symbol, relocation.addend)
            && let Some(node) = self.graph.node(file, section, at)
        {
            name = self.graph.name(self.inputs, node);
        }
        Fault::file(&input.file, cause)
            .about(&name)
            .at(&input.sections[section].name, relocation.at)
    }

    /// The private function that begins at a place, if one does.
    fn private_function(&self, target: Target) -> Option<Node> {
        let Target::Place(file, section, at) = target else {
            return None;
        };
        let node = self.graph.node(file, section, at)?;
        let begins = self.graph.functions[node].as_ref().is_some_and(|one| one.start == at);
        (begins && self.graph.private[node].is_some()).then_some(node)
    }

    /// Calls `each` with every use of every live section.
    fn uses(&self, mut each: impl FnMut(usize, usize, &Use, Option<&Relocation>)) {
        for (node, &(file, section)) in self.graph.places.iter().enumerate() {
            let section_of = &self.inputs[file].sections[section];
            if let Some(function) = &self.graph.functions[node] {
                for one in &function.uses {
                    let relocation = one.relocation.map(|index| &section_of.relocations[index]);
                    each(file, section, one, relocation);
                }
                continue;
            }
            for (index, relocation) in section_of.relocations.iter().enumerate() {
                let one = Use {
                    start: relocation.at,
                    at: relocation.at,
                    next: relocation.at,
                    form: Form::Data,
                    relocation: Some(index),
                    target: 0,
                };
                each(file, section, &one, Some(relocation));
            }
        }
    }

    /// The target of a use: what the field leads to when the instruction is executed.
    fn target(&self, file: usize, section: usize, one: &Use, relocation: Option<&Relocation>) -> Target {
        let Some(relocation) = relocation else {
            return Target::Place(file, section, one.target);
        };
        let relative = !matches!(one.form, Form::Data | Form::Immediate);
        let ahead = if relative { one.next - one.at } else { 0 };
        let addend = relocation.addend.wrapping_add_unsigned(ahead);
        self.symbols.target(self.inputs, file, relocation.symbol, addend)
    }

    /// The first walk.
    pub fn plan(&self, plan: &mut Plan) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut data = None;
        self.uses(|file, section, one, relocation| {
            let target = self.target(file, section, one, relocation);
            let protector = relocation.is_some_and(|one| {
                let name = &self.inputs[file].symbols[one.symbol].name;
                name.starts_with("__stack_chk_") || name == "__intel_security_cookie"
            });
            if protector {
                let node = self.graph.node(file, section, one.at);
                let name = node.map_or_else(Default::default, |node| self.graph.name(self.inputs, node));
                let here = &self.inputs[file];
                let fault = Fault::file(&here.file, PROTECTED).about(&name);
                faults.push(fault.at(&here.sections[section].name, one.at));
                return;
            }
            let done = match one.form {
                // A word has no parts: nobody names a place behind one.
                Form::InlineData(_) | Form::InlineEntry(_) if relocation.is_some_and(|one| one.addend != 0) => {
                    Err(NO_INLINE_CALL)
                }
                Form::InlineData(_) | Form::InlineEntry(_) => self.plan_inline(plan, one.form, target, &mut data),
                _ => self.plan_one(plan, one, relocation, target),
            };
            if let Err(cause) = done
                && let Some(relocation) = relocation
            {
                faults.push(self.fault(file, section, relocation, cause));
            }
        });
        faults
    }

    /// The two words of an inline call: the data's, which `data` keeps, then the entry's, which must be of the same callee.
    fn plan_inline(&self, plan: &mut Plan, form: Form, target: Target, data: &mut Option<Target>) -> Fill<()> {
        match (form, target) {
            (_, Target::Missing) => return Err(Cause::Missing),
            (Form::InlineData(Base::Own), Target::Data(_))
            | (Form::InlineData(Base::Procedure), Target::ProcedureData) => *data = Some(target),
            (Form::InlineEntry(Base::Procedure), Target::ProcedureEntry) if *data == Some(Target::ProcedureData) => {}
            (Form::InlineEntry(Base::Own), Target::Entry(module, export)) if *data == Some(Target::Data(module)) => {
                if (self.variables)(module, export) {
                    return Err(Cause::KindLie("called here as a function"));
                }
                plan.used.insert((module, export));
                plan.entries.insert((module, export));
                // The call does not look at what the word of the descriptor leads to, so it must be there before.
                plan.early.insert(module);
            }
            (_, Target::OwnEntry(..)) => return Err(OWN_ENTRY),
            _ => return Err(Cause::RegisterTaken),
        }
        Ok(())
    }

    fn plan_one(&self, plan: &mut Plan, one: &Use, relocation: Option<&Relocation>, target: Target) -> Fill<()> {
        let through_table = relocation.is_some_and(|one| is_table(one.kind));
        // The type first: it says more than that a name of the compiler's is missing.
        if let Some(kind) = relocation.map(|one| one.kind).filter(|kind| !is_possible(*kind)) {
            return Err(refusal(kind));
        }
        match target {
            Target::Missing => return Err(Cause::Missing),
            // Only as an address: behind it the thunk is missing, so it is for who passes the data too.
            Target::OwnEntry(..) if one.form == Form::Address => return Ok(()),
            Target::Entry(..) if one.form == Form::Address => return Err(FOREIGN_ENTRY),
            Target::OwnEntry(..)
            | Target::Entry(..)
            | Target::Data(_)
            | Target::ProcedureEntry
            | Target::ProcedureData => return Err(NO_INLINE_CALL),
            _ => {}
        }
        if let Target::Import(module, export) = target {
            plan.used.insert((module, export));
            let called = matches!(one.form, Form::Branch | Form::Call | Form::Jump);
            if called && (self.variables)(module, export) {
                return Err(Cause::KindLie("called here as a function"));
            }
            if one.form == Form::Branch {
                plan.stubs.insert((module, export));
            } else if !called {
                plan.early.insert(module);
            }
            return Ok(());
        }
        if one.form == Form::Branch {
            plan.trap |= target == Target::Null;
            return Ok(());
        }
        // A call through the table to what is in the module becomes a direct call, a load an address.
        let relaxed = match one.form {
            Form::Call | Form::Jump | Form::Load => matches!(target, Target::Place(..)),
            _ => false,
        };
        if through_table && !relaxed {
            plan.words.insert(target);
        }
        let called = through_table && matches!(one.form, Form::Call | Form::Jump);
        if let (Some(node), false) = (self.private_function(target), called) {
            // A distance to a function is for tables of jumps, not for calling.
            let address = one.form != Form::Data || relocation.is_some_and(|one| one.kind == elf::R_X86_64_64);
            if address {
                let number = plan.thunks.len();
                plan.thunks.entry(node).or_insert(number);
            }
        }
        Ok(())
    }

    /// What the address of a target is; that of a private function is its thunk.
    ///
    /// # Errors
    /// If nobody defines it, or it is not in memory.
    pub fn value(&self, layout: &Layout, plan: &Plan, target: Target) -> Fill<Value> {
        if let Some(number) = self.private_function(target).and_then(|node| plan.thunks.get(&node)) {
            return Ok(Value::Private(i64::from(layout.thunks[*number])));
        }
        Self::place(layout, target)
    }

    /// The same, without a thunk: a function is where it begins.
    ///
    /// # Errors
    /// As [`World::value`].
    pub fn place(layout: &Layout, target: Target) -> Fill<Value> {
        match target {
            Target::Place(file, section, at) | Target::OwnEntry(file, section, at) => {
                let seat = layout.seats[file].get(section).copied().unwrap_or(Seat::None);
                match seat {
                    Seat::None => Err(Cause::Damaged("it names a section that is not in memory".into())),
                    Seat::Shared(start) => {
                        let address = layout.address + u64::from(start);
                        Ok(Value::Shared(address.wrapping_add(at)))
                    }
                    Seat::Private(start) => Ok(Value::Private(i64::from(start).wrapping_add(at.cast_signed()))),
                }
            }
            Target::Absolute(value) => Ok(Value::Shared(value)),
            Target::Null => Ok(Value::Shared(0)),
            Target::Import(module, export) => Ok(Value::Slot(slot(layout, module, export))),
            Target::Instance => Ok(Value::Private(0)),
            Target::Missing => Err(Cause::Missing),
            Target::Entry(..) | Target::Data(_) | Target::ProcedureEntry | Target::ProcedureData => Err(NO_INLINE_CALL),
        }
    }

    /// The second walk: fills a section, whose bytes are given, at its seat.
    pub fn fill(
        &self,
        layout: &Layout,
        plan: &Plan,
        (file, section): (usize, usize),
        bytes: &mut [u8],
        fixups: &mut Vec<Fixup>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        let here = &self.inputs[file].sections[section];
        let seat = layout.seats[file][section];
        let filler = Filler {
            world: self,
            layout,
            plan,
            seat,
        };
        if here.kind == Kind::Text {
            let nodes = self.graph.nodes(file, section);
            for one in nodes
                .filter_map(|node| self.graph.functions[node].as_ref())
                .flat_map(|one| &one.uses)
            {
                let relocation = one.relocation.map(|index| &here.relocations[index]);
                let target = self.target(file, section, one, relocation);
                if let Err(cause) = filler.instruction(bytes, one, relocation, target, fixups) {
                    let stand_in = Relocation {
                        at: one.at,
                        kind: elf::R_X86_64_PC32,
                        symbol: 0,
                        addend: 0,
                    };
                    faults.push(self.fault(file, section, relocation.unwrap_or(&stand_in), cause));
                }
            }
            return faults;
        }
        for relocation in &here.relocations {
            let target = self
                .symbols
                .target(self.inputs, file, relocation.symbol, relocation.addend);
            if let Err(cause) = filler.data(bytes, relocation, target, fixups) {
                faults.push(self.fault(file, section, relocation, cause));
            }
        }
        faults
    }
}

/// Who asks for the words of a function of the module itself.
const OWN_ENTRY: Cause =
    Cause::InlineCall("the function is in this module: leave the header of 'gond module header' out here");
/// Who makes a procedure of a function of another module.
const FOREIGN_ENTRY: Cause =
    Cause::InlineCall("the function is in another module, whose data is not here: use GOND_PROCEDURE_OF");
/// Who uses the words in other ways than the header does.
const NO_INLINE_CALL: Cause =
    Cause::InlineCall("it is not the sequence of 'gond module header': include a header that it writes");

/// Where, in a procedure, the function's entry stands, and the address of its data: `struct gond_procedure`.
const PROCEDURE_ENTRY_AT: u64 = 0;
const PROCEDURE_DATA_AT: u64 = 8;

/// Byte of the data where the value of an import stands.
pub fn slot(layout: &Layout, module: u32, export: u32) -> u32 {
    layout.descriptors[module as usize] + 8 + 8 * export
}

/// Whether a relocation asks for a word that holds the address.
fn is_table(kind: u32) -> bool {
    matches!(
        kind,
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX
    )
}

/// Whether a type can be carried out at all.
fn is_possible(kind: u32) -> bool {
    let plain = matches!(
        kind,
        elf::R_X86_64_64
            | elf::R_X86_64_32
            | elf::R_X86_64_32S
            | elf::R_X86_64_PC32
            | elf::R_X86_64_PC64
            | elf::R_X86_64_PLT32
            | DATA_RELATIVE
    );
    plain || is_table(kind)
}

/// The refusal for a type that is not carried out.
fn refusal(kind: u32) -> Cause {
    match kind {
        elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_16 | elf::R_X86_64_8 => {
            Cause::NotPositionIndependent(kind)
        }
        elf::R_X86_64_TLSGD
        | elf::R_X86_64_TLSLD
        | elf::R_X86_64_DTPOFF32
        | elf::R_X86_64_DTPOFF64
        | elf::R_X86_64_DTPMOD64
        | elf::R_X86_64_GOTTPOFF
        | elf::R_X86_64_TPOFF32
        | elf::R_X86_64_TPOFF64
        | elf::R_X86_64_GOTPC32_TLSDESC
        | elf::R_X86_64_TLSDESC_CALL
        | elf::R_X86_64_TLSDESC => Cause::ThreadLocal(kind),
        _ => Cause::Relocation(kind),
    }
}

struct Filler<'a> {
    world: &'a World<'a>,
    layout: &'a Layout,
    plan: &'a Plan,
    seat: Seat,
}

fn put(bytes: &mut [u8], at: u64, value: &[u8]) -> Fill<()> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let field = bytes.get_mut(at..at.saturating_add(value.len()));
    let field = field.ok_or_else(|| Cause::Damaged("a field beyond the end of its section".into()))?;
    field.copy_from_slice(value);
    Ok(())
}

fn narrow(value: i64, kind: u32) -> Fill<[u8; 4]> {
    i32::try_from(value)
        .map(i32::to_le_bytes)
        .map_err(|_| Cause::OutOfReach(kind))
}

impl Filler<'_> {
    /// The address of a byte of the section that is being filled.
    fn address(&self, at: u64) -> Fill<u64> {
        match self.seat {
            Seat::Shared(start) => Ok((self.layout.address + u64::from(start)).wrapping_add(at)),
            _ => Err(Cause::Damaged("text without a place".into())),
        }
    }

    /// Notes that the field at a byte of the section holds an address of the module.
    fn own(&self, at: u64, target: Target, fixups: &mut Vec<Fixup>) {
        let at = at as u32;
        match self.seat {
            Seat::Shared(start) if is_own(target) => fixups.push(Fixup::Module(Seat::Shared(start + at))),
            Seat::Private(start) if is_own(target) => fixups.push(Fixup::Module(Seat::Private(start + at))),
            _ => {}
        }
    }

    fn instruction(
        &self,
        bytes: &mut [u8],
        one: &Use,
        relocation: Option<&Relocation>,
        target: Target,
        fixups: &mut Vec<Fixup>,
    ) -> Fill<()> {
        let Some(relocation) = relocation else {
            return self.inside(bytes, one, target);
        };
        let kind = relocation.kind;
        match kind {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => match one.form {
                Form::Branch => self.branch(bytes, one, kind, target),
                Form::Data => {
                    let Value::Shared(to) = World::place(self.layout, target)? else {
                        return Err(Cause::NotConstant(kind));
                    };
                    let distance = to.wrapping_sub(self.address(one.at)?).cast_signed();
                    put(bytes, one.at, &narrow(distance, kind)?)
                }
                Form::Immediate => Err(Cause::Instruction(kind)),
                _ => self.memory(bytes, one, kind, target),
            },
            _ if is_table(kind) => self.through_table(bytes, one, kind, target),
            elf::R_X86_64_64 if matches!(one.form, Form::Immediate | Form::Data) => {
                match self.world.value(self.layout, self.plan, target)? {
                    Value::Shared(address) => {
                        self.own(one.at, target, fixups);
                        put(bytes, one.at, &address.to_le_bytes())
                    }
                    _ => Err(Cause::NotConstant(kind)),
                }
            }
            elf::R_X86_64_32 | elf::R_X86_64_32S => match target {
                // A number is no address.
                Target::Absolute(value) => absolute(bytes, one.at, kind, value),
                Target::ProcedureEntry if one.form == Form::InlineEntry(Base::Procedure) => {
                    absolute(bytes, one.at, kind, PROCEDURE_ENTRY_AT)
                }
                Target::ProcedureData if one.form == Form::InlineData(Base::Procedure) => {
                    absolute(bytes, one.at, kind, PROCEDURE_DATA_AT)
                }
                Target::Data(module) if one.form == Form::InlineData(Base::Own) => {
                    let descriptor = self.layout.descriptors.get(module as usize).copied();
                    absolute(bytes, one.at, kind, descriptor.ok_or(Cause::Missing)?.into())
                }
                Target::Entry(module, export) if one.form == Form::InlineEntry(Base::Own) => {
                    let word = self.layout.entries.get(&(module, export)).copied();
                    absolute(bytes, one.at, kind, word.ok_or(Cause::Missing)?.into())
                }
                _ => Err(refusal(kind)),
            },
            _ => Err(refusal(kind)),
        }
    }

    /// A field that the assembler filled because its target is in the same section.
    fn inside(&self, bytes: &mut [u8], one: &Use, target: Target) -> Fill<()> {
        if !matches!(one.form, Form::Address) {
            return Ok(());
        }
        match self.world.value(self.layout, self.plan, target)? {
            Value::Private(displacement) => Self::register(bytes, one, elf::R_X86_64_PC32, displacement),
            _ => Ok(()),
        }
    }

    fn branch(&self, bytes: &mut [u8], one: &Use, kind: u32, target: Target) -> Fill<()> {
        let base = self.layout.address;
        let to = match target {
            Target::Import(module, export) => {
                let stub = self.layout.stubs.get(&(module, export)).copied();
                base + u64::from(stub.ok_or(Cause::Missing)?)
            }
            Target::Null => base + u64::from(self.layout.trap),
            other => match World::place(self.layout, other)? {
                Value::Shared(address) => address,
                _ => return Err(Cause::NotConstant(kind)),
            },
        };
        self.relative(bytes, one, kind, to)
    }

    /// Fills the field with the distance from the end of the instruction.
    fn relative(&self, bytes: &mut [u8], one: &Use, kind: u32, to: u64) -> Fill<()> {
        let distance = to.wrapping_sub(self.address(one.next)?).cast_signed();
        put(bytes, one.at, &narrow(distance, kind)?)
    }

    fn register(bytes: &mut [u8], one: &Use, kind: u32, displacement: i64) -> Fill<()> {
        let displacement = i32::try_from(displacement).map_err(|_| Cause::OutOfReach(kind))?;
        let (start, next) = (one.start as usize, one.next as usize);
        let code = bytes.get_mut(start..next).ok_or(Cause::Instruction(kind))?;
        let at = (one.at - one.start) as usize;
        if code::use_register(code, at, next - start, displacement) {
            Ok(())
        } else {
            Err(Cause::Instruction(kind))
        }
    }

    /// An operand in memory, relative to the instruction pointer so far.
    fn memory(&self, bytes: &mut [u8], one: &Use, kind: u32, target: Target) -> Fill<()> {
        let value = if one.form == Form::Address {
            self.world.value(self.layout, self.plan, target)?
        } else {
            World::place(self.layout, target)?
        };
        match value {
            Value::Shared(to) => self.relative(bytes, one, kind, to),
            Value::Private(displacement) => Self::register(bytes, one, kind, displacement),
            Value::Slot(slot) if one.form == Form::Address => {
                // lea r, [rip + f] becomes mov r, [rbx + slot]
                opcode(bytes, one, 0x8d, 0x8b, kind)?;
                Self::register(bytes, one, kind, i64::from(slot))
            }
            Value::Slot(_) => Err(Cause::DirectAccess),
        }
    }

    /// An operand in memory that is a word holding the address.
    fn through_table(&self, bytes: &mut [u8], one: &Use, kind: u32, target: Target) -> Fill<()> {
        match (target, one.form) {
            (Target::Import(module, export), _) => {
                let slot = slot(self.layout, module, export);
                Self::register(bytes, one, kind, i64::from(slot))
            }
            (Target::Place(..), Form::Call | Form::Jump) => {
                let Value::Shared(to) = World::place(self.layout, target)? else {
                    return Err(Cause::NotConstant(kind));
                };
                // call [rip + …] becomes addr32 call …, jmp [rip + …] becomes jmp …; nop
                let start = one.start as usize;
                let plain = bytes.get(start..start + 2).map(|two| [two[0], two[1]]);
                let length = one.next - one.start;
                match (plain, length) {
                    (Some([0xff, 0x15]), 6) => {
                        put(bytes, one.start, &[0x67, 0xe8])?;
                        self.relative(bytes, one, kind, to)
                    }
                    (Some([0xff, 0x25]), 6) => {
                        let distance = to.wrapping_sub(self.address(one.next - 1)?).cast_signed();
                        put(bytes, one.start, &[0xe9])?;
                        put(bytes, one.start + 1, &narrow(distance, kind)?)?;
                        put(bytes, one.next - 1, &[0x90])
                    }
                    _ => Err(Cause::Instruction(kind)),
                }
            }
            (Target::Place(..), Form::Load) => {
                // mov r, [rip + …] becomes lea
                opcode(bytes, one, 0x8b, 0x8d, kind)?;
                match self.world.value(self.layout, self.plan, target)? {
                    Value::Shared(to) => self.relative(bytes, one, kind, to),
                    Value::Private(displacement) => Self::register(bytes, one, kind, displacement),
                    Value::Slot(_) => Err(Cause::Instruction(kind)),
                }
            }
            (Target::Missing, _) => Err(Cause::Missing),
            (_, Form::Branch | Form::Data | Form::Immediate) => Err(Cause::Relocation(kind)),
            _ => match self.layout.words.get(&target) {
                Some(Seat::Shared(at)) => self.relative(bytes, one, kind, self.layout.address + u64::from(*at)),
                Some(Seat::Private(at)) => Self::register(bytes, one, kind, i64::from(*at)),
                _ => Err(Cause::Instruction(kind)),
            },
        }
    }

    /// A field that is not in an instruction.
    fn data(&self, bytes: &mut [u8], relocation: &Relocation, target: Target, fixups: &mut Vec<Fixup>) -> Fill<()> {
        let (at, kind) = (relocation.at, relocation.kind);
        match kind {
            elf::R_X86_64_64 => {
                let value = self.world.value(self.layout, self.plan, target)?;
                let private = match self.seat {
                    Seat::Private(start) => u32::try_from(at).ok().and_then(|at| start.checked_add(at)),
                    _ => None,
                };
                match (value, private) {
                    (Value::Shared(address), _) => {
                        put(bytes, at, &address.to_le_bytes())?;
                        self.own(at, target, fixups);
                        Ok(())
                    }
                    (Value::Private(displacement), Some(byte)) => {
                        fixups.push(Fixup::Data(byte));
                        put(bytes, at, &displacement.to_le_bytes())
                    }
                    (Value::Slot(_), Some(byte)) => {
                        if let Target::Import(module, export) = target {
                            fixups.push(Fixup::Import(byte, (module, export), relocation.addend));
                        }
                        put(bytes, at, &0_u64.to_le_bytes())
                    }
                    _ => Err(Cause::NotConstant(kind)),
                }
            }
            DATA_RELATIVE => match World::place(self.layout, target)? {
                Value::Private(displacement) => put(bytes, at, &narrow(displacement, elf::R_X86_64_PC32)?),
                _ => Err(Cause::NotConstant(elf::R_X86_64_PC32)),
            },
            elf::R_X86_64_PC32 | elf::R_X86_64_PC64 | elf::R_X86_64_PLT32 => {
                let distance = match (World::place(self.layout, target)?, self.seat) {
                    (Value::Shared(to), Seat::Shared(_)) => to.wrapping_sub(self.address(at)?).cast_signed(),
                    (Value::Private(to), Seat::Private(start)) => {
                        to.wrapping_sub(i64::from(start).wrapping_add(at.cast_signed()))
                    }
                    _ => return Err(Cause::NotConstant(kind)),
                };
                if kind == elf::R_X86_64_PC64 {
                    put(bytes, at, &distance.to_le_bytes())
                } else {
                    put(bytes, at, &narrow(distance, kind)?)
                }
            }
            elf::R_X86_64_32 | elf::R_X86_64_32S => match target {
                Target::Absolute(value) => absolute(bytes, at, kind, value),
                _ => Err(refusal(kind)),
            },
            _ => Err(refusal(kind)),
        }
    }
}

fn absolute(bytes: &mut [u8], at: u64, kind: u32, value: u64) -> Fill<()> {
    let fits = if kind == elf::R_X86_64_32S {
        i32::try_from(value.cast_signed()).is_ok()
    } else {
        u32::try_from(value).is_ok()
    };
    if fits {
        put(bytes, at, &(value as u32).to_le_bytes())
    } else {
        Err(Cause::OutOfReach(kind))
    }
}

/// Changes the opcode, which stands two bytes before the field.
fn opcode(bytes: &mut [u8], one: &Use, from: u8, to: u8, kind: u32) -> Fill<()> {
    let at = (one.at as usize).checked_sub(2);
    match at.and_then(|at| bytes.get_mut(at)) {
        Some(byte) if *byte == from => {
            *byte = to;
            Ok(())
        }
        _ => Err(Cause::Instruction(kind)),
    }
}

/// Bytes that the stubs of a plan take in the text.
pub fn stub_bytes(plan: &Plan) -> usize {
    (plan.stubs.len() + usize::from(plan.trap)) * thunk::ALIGN
}
