//! The target of an access: the address that its operand names, what may be read and written there, and
//! what a read yields.

use super::state::{RSP, State};
use super::step::{Step, fresh, gpr, offset, sum, symbol};
use super::value::{Base, Field, Length, Linear, NAMELESS, Place, Term, Value};
use super::{Proof, Reason};
use crate::compile::Bounds;
use crate::layout::{self, AREA_BYTES, ELEMENT_BYTES, GUARD_BYTES, GUARDED_BYTES, HANDLE_BYTES, HANDLES_MAX};
use iced_x86::{Instruction, OpKind, Register};

impl Proof<'_> {
    pub(super) fn address(&mut self, state: &mut State, ins: &Instruction, operand: u64) -> Step<Value> {
        if !matches!(ins.memory_segment(), Register::DS | Register::SS) {
            return Err(Reason::NotAllowed);
        }
        self.lea_named(state, ins, operand)
    }

    pub(super) fn lea(&mut self, state: &mut State, ins: &Instruction) -> Step<Value> {
        self.lea_named(state, ins, 5)
    }

    #[allow(clippy::unused_self, reason = "one of the readers of operands, all methods")]
    fn lea_named(&mut self, state: &mut State, ins: &Instruction, operand: u64) -> Step<Value> {
        if ins.is_ip_rel_memory_operand() {
            // Relative to the lower half of the instruction pointer it would be anywhere.
            if ins.memory_base() != Register::RIP {
                return Err(Reason::NotAllowed);
            }
            let at = ins.ip_rel_memory_address().cast_signed();
            return Ok(Value::Pointer(Base::Code, Linear::constant(at)));
        }
        let displacement = ins.memory_displacement64().cast_signed();
        let value = |state: &State, register: Register| match register {
            Register::None => Value::Number(Linear::constant(0)),
            _ if !register.is_gpr64() => Value::Any,
            _ => gpr(register).map_or(Value::Any, |at| state.registers[at]),
        };
        let mut base = value(state, ins.memory_base());
        let mut index = value(state, ins.memory_index());
        let scale = ins.memory_index_scale().trailing_zeros() as u8;
        if scale > 0 {
            index = match index {
                Value::Number(linear) => linear.shifted(scale).map_or(Value::Any, Value::Number),
                _ => Value::Any,
            };
        }
        if ins.memory_index() == Register::None {
            return Ok(offset(base, displacement));
        }
        if matches!(index, Value::Pointer(..)) {
            core::mem::swap(&mut base, &mut index);
        }
        let name = symbol(ins, operand);
        Ok(offset(sum(base, index, name), displacement))
    }

    /// Checks a read and says what it yields.
    pub(super) fn load(&mut self, state: &mut State, ins: &Instruction, operand: u64) -> Step<Value> {
        let bytes = ins.memory_size().size() as i64;
        let value = match self.address(state, ins, operand)? {
            Value::Stack(at) => {
                frame(state, at, bytes)?;
                if bytes == 8 { state.slot(at) } else { Value::Any }
            }
            Value::Pointer(base, at) => self.read(state, base, &at, bytes)?,
            _ => return Err(Reason::UnknownAddress),
        };
        let integer = ins.op0_kind() == OpKind::Memory || ins.op0_register().is_gpr();
        if bytes <= 4 && integer && value == Value::Any {
            return Ok(fresh(ins, operand, (1 << (8 * bytes)) - 1));
        }
        Ok(value)
    }

    fn read(&mut self, state: &State, base: Base, at: &Linear, bytes: i64) -> Step<Value> {
        let inside = |end: i64| at.lo >= 0 && at.hi.checked_add(bytes).is_some_and(|last| last <= end);
        let exact = at.is_constant() && bytes == 8;
        let (good, value) = match base {
            Base::Context => {
                let value = if exact { self.field(at.add) } else { Value::Any };
                (inside(i64::from(self.image.layout.bytes)), value)
            }
            Base::MemoryLength(memory) => (exact && at.add == 0, Value::Length(Length::Memory(memory))),
            Base::TableLength(table) => (exact && at.add == 0, Value::Length(Length::Table(table))),
            Base::Handles => {
                let value = self.handle(at, bytes);
                (inside(i64::from(HANDLES_MAX * HANDLE_BYTES)), value)
            }
            Base::Table(table) => {
                let element = element(table, at);
                let field = at.add.rem_euclid(i64::from(ELEMENT_BYTES));
                let good = element.is_some_and(|(place, index)| {
                    at.lo >= 0
                        && field + bytes <= i64::from(ELEMENT_BYTES)
                        && state
                            .slack(Length::Table(table), Term::of(place.symbol))
                            .is_some_and(|slack| index < slack)
                });
                let value = match (element, field, bytes) {
                    (Some((place, _)), 0, 8) => Value::Element(place, Field::Code),
                    (Some((place, _)), 8, 8) => Value::Element(place, Field::Context),
                    (Some((place, _)), 16, 8) => Value::Element(place, Field::Signature),
                    _ => Value::Any,
                };
                (good, value)
            }
            Base::Code => (inside(self.image.code.len() as i64), self.literal(at, bytes)),
            _ => return self.touch(state, base, at, bytes).map(|()| Value::Any),
        };
        if good { Ok(value) } else { Err(Reason::OutOfBounds) }
    }

    /// Checks an access of what code may read and write.
    fn touch(&self, state: &State, base: Base, at: &Linear, bytes: i64) -> Step<()> {
        let inside = |start: i64, end: i64| at.lo >= start && at.hi.checked_add(bytes).is_some_and(|last| last <= end);
        let below = |length: Length, beyond: i64| {
            at.lo >= 0
                && state
                    .slack(length, at.term())
                    .and_then(|slack| at.add.checked_add(bytes)?.checked_sub(slack))
                    .is_some_and(|end| end <= beyond)
        };
        let good = match base {
            Base::Context => {
                let layout = &self.image.layout;
                if !inside(i64::from(layout.cells), i64::from(layout.bytes)) {
                    return Err(Reason::ReadOnly);
                }
                true
            }
            Base::Runtime => inside(0, i64::from(AREA_BYTES)),
            Base::Cell(_) => inside(0, 16),
            Base::Memory(memory) => {
                // A guarded memory has all that an unguarded one has, and more: a comparison is enough for both.
                let reserved = match self.image.options.bounds {
                    Bounds::Guard => GUARDED_BYTES,
                    Bounds::Explicit => GUARD_BYTES,
                };
                inside(0, reserved.cast_signed()) || below(Length::Memory(memory), GUARD_BYTES.cast_signed())
            }
            Base::Block(place) => below(Length::Block(place), 0),
            _ => return Err(Reason::ReadOnly),
        };
        if good { Ok(()) } else { Err(Reason::OutOfBounds) }
    }

    pub(super) fn store(&mut self, state: &mut State, ins: &Instruction, value: Value) -> Step<()> {
        let bytes = ins.memory_size().size() as i64;
        match self.address(state, ins, 4)? {
            Value::Stack(at) => {
                frame(state, at, bytes)?;
                state.write_slot(at, bytes, value);
                Ok(())
            }
            Value::Pointer(base, at) => self.touch(state, base, &at, bytes),
            _ => Err(Reason::UnknownAddress),
        }
    }

    /// The meaning of a word of the context.
    fn field(&self, at: i64) -> Value {
        let layout = &self.image.layout;
        let at = at as u32;
        let pointer = |base| Value::Pointer(base, Linear::constant(0));
        let pair = |first: u32| ((at - first) / 16, (at - first) % 16 == 8);
        if !at.is_multiple_of(8) {
            return Value::Any;
        }
        match at {
            layout::RUNTIME => pointer(Base::Runtime),
            layout::STACK_LIMIT => Value::StackLimit(0),
            layout::HANDLES => pointer(Base::Handles),
            _ if at < layout::BUILTINS => Value::Any,
            _ if at < layout.signatures => Value::Builtin,
            _ if at < layout.memories => Value::Signature((at - layout.signatures) / 8),
            _ if at < layout.tables => match pair(layout.memories) {
                (memory, false) => pointer(Base::Memory(memory)),
                (memory, true) => pointer(Base::MemoryLength(memory)),
            },
            _ if at < layout.functions => match pair(layout.tables) {
                (table, false) => pointer(Base::Table(table)),
                (table, true) => pointer(Base::TableLength(table)),
            },
            _ if at < layout.globals => match pair(layout.functions) {
                (import, false) => Value::ImportCode(import),
                (import, true) => Value::ImportContext(import),
            },
            _ if at < layout.globals + 8 * self.image.module.imported_globals as u32 => {
                pointer(Base::Cell((at - layout.globals) / 8))
            }
            _ => Value::Any,
        }
    }

    /// A constant that stands in the code, which nothing can write: a whole word, or half of one, which is read without
    /// its sign wherever the value of a load is used.
    fn literal(&self, at: &Linear, bytes: i64) -> Value {
        let whole = at.is_constant() && at.add >= 0 && matches!(bytes, 4 | 8);
        let read = whole
            .then(|| self.image.code.get(at.add as usize..at.add as usize + bytes as usize))
            .flatten();
        let word = read.map(|read| read.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte)));
        word.and_then(|word| i64::try_from(word).ok())
            .map_or(Value::Any, |word| Value::Number(Linear::constant(word)))
    }

    /// The meaning of a word of the handle table: the base or the length of one block.
    #[allow(clippy::unused_self, reason = "one of the readers of words, all methods")]
    fn handle(&self, at: &Linear, bytes: i64) -> Value {
        let whole = (at.shift >= 4 && at.symbol != NAMELESS) || at.symbol == 0;
        let field = at.add.rem_euclid(i64::from(HANDLE_BYTES));
        let place = Place {
            table: 0,
            symbol: at.symbol,
            shift: at.shift,
            add: at.add - field,
        };
        match (whole, field, bytes) {
            (true, 0, 8) => Value::Pointer(Base::Block(place), Linear::constant(0)),
            (true, 8, 8) => Value::Length(Length::Block(place)),
            _ => Value::Any,
        }
    }
}

/// The element that an offset lies in, and its index less the symbol.
fn element(table: u32, at: &Linear) -> Option<(Place, i64)> {
    let shift = ELEMENT_BYTES.trailing_zeros() as u8;
    if at.symbol == NAMELESS || (at.symbol != 0 && at.shift != shift) {
        return None;
    }
    let index = at.add.div_euclid(i64::from(ELEMENT_BYTES));
    Some((
        Place {
            table,
            symbol: at.symbol,
            shift,
            add: index,
        },
        index,
    ))
}

/// An access of the stack must lie in the frame: beneath the return address, not beneath rsp.
fn frame(state: &State, at: i64, bytes: i64) -> Step<()> {
    let Value::Stack(stack) = state.registers[RSP] else {
        return Err(Reason::StackPointer);
    };
    let inside = at >= stack && at.checked_add(bytes).is_some_and(|end| end <= 0);
    if inside { Ok(()) } else { Err(Reason::Frame) }
}
