//! One instruction: what it does to the state, and whether it may.
#![allow(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "one shape for every kind of instruction"
)]

use super::allowed::ALLOWED;
use super::state::{RDI, RSP, SAVED, State};
use super::value::{Base, Fact, Field, Linear, NAMELESS, Symbol, Value};
use super::{Function, Proof, Reason};
use crate::layout;
use alloc::vec::Vec;
use iced_x86::{
    ConditionCode, EncodingKind, FlowControl, Instruction, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};

pub(super) type Step<T> = Result<T, Reason>;

const WORD: i64 = u32::MAX as i64;
/// Bytes of stack that a function without a check may use, and below a checked frame a callee.
const UNCHECKED: i64 = layout::STACK_RED_BYTES / 2;

pub(super) fn symbol(instruction: &Instruction, operand: u64) -> Symbol {
    1 << 62 | instruction.ip() << 3 | operand
}

/// An unknown number up to `hi`, named by the instruction.
pub(super) fn fresh(ins: &Instruction, operand: u64, hi: i64) -> Value {
    Value::Number(Linear::unknown(symbol(ins, operand), hi))
}

fn is_word(value: &Value) -> bool {
    matches!(value, Value::Number(linear) if linear.hi <= WORD)
}

pub(super) fn gpr(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full as usize - Register::RAX as usize)
}

impl Proof<'_> {
    /// Interprets an instruction, perhaps for the first time; says whether control may go on behind it.
    pub(super) fn step(
        &mut self,
        function: &mut Function,
        state: &mut State,
        ins: &Instruction,
        is_first: bool,
    ) -> Step<bool> {
        if ins.has_lock_prefix() || ins.has_rep_prefix() || ins.has_repne_prefix() {
            return Err(Reason::NotAllowed);
        }
        // Control, debug and segment registers share their mnemonics with harmless moves.
        let known = |register: Register| register.is_gpr() || register.is_xmm() || register.is_ymm();
        let foreign = |at: &u32| ins.op_kind(*at) == OpKind::Register && !known(ins.op_register(*at));
        if (0..ins.op_count()).any(|at| foreign(&at)) {
            return Err(Reason::NotAllowed);
        }
        if !matches!(ins.encoding(), EncodingKind::Legacy | EncodingKind::VEX) || !self.is_plain(ins) {
            return Err(Reason::NotAllowed);
        }
        // Names that this instruction gave when it was executed before mean something else after it.
        let again = !is_first && state.set_aside(symbol(ins, 0) >> 3);
        let goes_on = self.interpret(function, state, ins)?;
        if again {
            state.forget(super::state::OLD);
        }
        Ok(goes_on)
    }

    /// Whether an instruction that transfers control has no prefix but REX. The effect of an operand-size prefix
    /// there differs between makers of processors, down to the instruction's length.
    fn is_plain(&self, ins: &Instruction) -> bool {
        if ins.flow_control() == FlowControl::Next || ins.mnemonic() == Mnemonic::Ud2 {
            return true;
        }
        let at = ins.ip() as usize;
        let byte = |at: usize| self.image.code.get(at).copied().unwrap_or(0);
        match byte(at) {
            0x40..=0x4f => byte(at + 1) == 0xff,
            0x0f => (0x80..=0x8f).contains(&byte(at + 1)),
            first => matches!(first, 0x70..=0x7f | 0xc3 | 0xe8 | 0xe9 | 0xeb | 0xff),
        }
    }

    fn interpret(&mut self, function: &mut Function, state: &mut State, ins: &Instruction) -> Step<bool> {
        match ins.mnemonic() {
            Mnemonic::Ud2 => return Ok(false),
            Mnemonic::Ret => {
                return if ins.op_count() == 0 {
                    leave(state).map(|()| false)
                } else {
                    Err(Reason::ReturnStack)
                };
            }
            Mnemonic::Call => self.call(state, ins)?,
            Mnemonic::Jmp => return self.jump(function, state, ins).map(|()| false),
            _ if ins.is_jcc_short_or_near() => self.branch(function, state, ins)?,
            Mnemonic::Push => self.push(state, ins)?,
            Mnemonic::Pop => self.pop(state, ins)?,
            Mnemonic::Mov => self.assign(state, ins)?,
            Mnemonic::Lea => {
                let address = self.lea(state, ins)?;
                self.write(state, ins, ins.op0_register(), address)?;
            }
            Mnemonic::Add => self.add(state, ins)?,
            Mnemonic::Sub => self.subtract(state, ins)?,
            Mnemonic::Shl => self.shift(state, ins)?,
            Mnemonic::And => self.and(state, ins)?,
            Mnemonic::Xor if ins.op1_kind() == OpKind::Register && ins.op0_register() == ins.op1_register() => {
                state.compared = None;
                self.write(state, ins, ins.op0_register(), Value::Number(Linear::constant(0)))?;
            }
            Mnemonic::Cmp => {
                let (a, b) = (self.operand(state, ins, 0)?, self.operand(state, ins, 1)?);
                let wide = operand_bytes(ins) == 8;
                state.compared = (wide || (operand_bytes(ins) == 4 && is_word(&a) && is_word(&b))).then_some((a, b));
            }
            Mnemonic::Test if ins.op1_kind() == OpKind::Register && ins.op0_register() == ins.op1_register() => {
                let value = self.operand(state, ins, 0)?;
                let wide = ins.op0_register().is_gpr64();
                state.compared = wide.then_some((value, Value::Number(Linear::constant(0))));
            }
            Mnemonic::Movsxd => self.sign_extend(state, ins)?,
            Mnemonic::Movzx => self.zero_extend(state, ins)?,
            Mnemonic::Cmovb | Mnemonic::Cmovae | Mnemonic::Cmova | Mnemonic::Cmovbe => self.choose(state, ins)?,
            mnemonic if allowed(mnemonic) => self.other(state, ins)?,
            _ => return Err(Reason::NotAllowed),
        }
        Ok(true)
    }

    // ---- control ----

    fn call(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let Value::Stack(stack) = state.registers[RSP] else {
            return Err(Reason::StackPointer);
        };
        if stack.rem_euclid(16) != 8 {
            return Err(Reason::StackPointer);
        }
        if state.checked > stack {
            return Err(Reason::StackCheck);
        }
        self.transfer(state, ins)?;
        state.drop_below(stack);
        state.after_call();
        Ok(())
    }

    /// Whether a call or tail call may go where it goes, with the context that it passes.
    fn transfer(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let context = state.registers[RDI];
        let own = Value::Pointer(Base::Context, Linear::constant(0));
        let right = match ins.op0_kind() {
            OpKind::NearBranch64 => {
                let target = u32::try_from(ins.near_branch64()).map_err(|_| Reason::JumpOutside)?;
                if !self.entries.contains(&target) {
                    return Err(Reason::JumpOutside);
                }
                context == own
            }
            OpKind::Register | OpKind::Memory => match self.operand(state, ins, 0)? {
                Value::Builtin => context == own,
                Value::ImportCode(import) => context == Value::ImportContext(import),
                Value::Element(place, Field::Code) => {
                    if !state.is_typed(place) {
                        return Err(Reason::Signature);
                    }
                    context == Value::Element(place, Field::Context)
                }
                _ => return Err(Reason::UnknownTarget),
            },
            _ => return Err(Reason::NotAllowed),
        };
        if right { Ok(()) } else { Err(Reason::Context) }
    }

    fn jump(&mut self, function: &mut Function, state: &mut State, ins: &Instruction) -> Step<()> {
        if ins.op0_kind() == OpKind::NearBranch64 {
            let target = u32::try_from(ins.near_branch64()).map_err(|_| Reason::JumpOutside)?;
            if self.entries.contains(&target) {
                leave(state)?;
                return self.transfer(state, ins);
            }
            self.reach(function, target, state);
            return Ok(());
        }
        if ins.op0_kind() == OpKind::Register
            && let Some(register) = gpr(ins.op0_register())
            && let Value::JumpTarget(table, count) = state.registers[register]
        {
            let mut targets = Vec::new();
            for entry in 0..count {
                let at = (table + 4 * entry) as usize;
                let bytes = self.image.code.get(at..at + 4).ok_or(Reason::UnknownTarget)?;
                let offset = i32::from_le_bytes(bytes.try_into().map_err(|_| Reason::UnknownTarget)?);
                let target = table.checked_add_signed(offset).ok_or(Reason::JumpOutside)?;
                if !function.range.contains(&target) || target == function.range.start {
                    return Err(Reason::JumpOutside);
                }
                targets.push(target);
            }
            function.steps = function.steps.saturating_sub(targets.len() / 16);
            targets.sort_unstable();
            targets.dedup();
            for target in targets {
                self.reach(function, target, state);
            }
            return Ok(());
        }
        leave(state)?;
        self.transfer(state, ins)
    }

    fn branch(&mut self, function: &mut Function, state: &mut State, ins: &Instruction) -> Step<()> {
        let target = u32::try_from(ins.near_branch64()).map_err(|_| Reason::JumpOutside)?;
        // The start is the entry, whose state is fixed: no loop goes back to it.
        if target == function.range.start {
            return Err(Reason::JumpOutside);
        }
        let mut taken = state.clone();
        learn(&mut taken, ins.condition_code());
        self.reach(function, target, &taken);
        learn(state, opposite(ins.condition_code()));
        Ok(())
    }

    // ---- stack ----

    fn push(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let register = (ins.op0_kind() == OpKind::Register)
            .then(|| gpr(ins.op0_register()))
            .flatten();
        let register = register
            .filter(|_| ins.op0_register().is_gpr64())
            .ok_or(Reason::NotAllowed)?;
        let value = state.registers[register];
        let Value::Stack(stack) = state.registers[RSP] else {
            return Err(Reason::StackPointer);
        };
        self.set_stack(state, stack - 8)?;
        state.write_slot(stack - 8, 8, value);
        Ok(())
    }

    fn pop(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let Value::Stack(stack) = state.registers[RSP] else {
            return Err(Reason::StackPointer);
        };
        if stack >= 0 || ins.op0_kind() != OpKind::Register || !ins.op0_register().is_gpr64() {
            return Err(Reason::Frame);
        }
        let value = state.slot(stack);
        self.set_stack(state, stack + 8)?;
        self.write(state, ins, ins.op0_register(), value)
    }

    fn set_stack(&mut self, state: &mut State, stack: i64) -> Step<()> {
        let floor = if state.checked <= 0 { state.checked } else { -UNCHECKED };
        if stack > 0 {
            return Err(Reason::StackPointer);
        }
        if stack < floor {
            return Err(Reason::StackCheck);
        }
        state.registers[RSP] = Value::Stack(stack);
        state.drop_below(stack);
        Ok(())
    }

    // ---- values ----

    /// Assigns a register. A 32-bit register clears the upper half, a narrower one leaves it.
    fn write(&mut self, state: &mut State, ins: &Instruction, register: Register, value: Value) -> Step<()> {
        let Some(at) = gpr(register) else { return Ok(()) };
        let value = if register.is_gpr64() {
            value
        } else if register.is_gpr32() {
            if is_word(&value) { value } else { fresh(ins, 7, WORD) }
        } else {
            Value::Any
        };
        if at == RSP {
            let Value::Stack(stack) = value else {
                return Err(Reason::StackPointer);
            };
            return self.set_stack(state, stack);
        }
        state.registers[at] = value;
        Ok(())
    }

    fn operand(&mut self, state: &mut State, ins: &Instruction, at: u32) -> Step<Value> {
        match ins.op_kind(at) {
            OpKind::Register => {
                let register = ins.op_register(at);
                let Some(number) = gpr(register) else {
                    return Ok(Value::Any);
                };
                let value = state.registers[number];
                Ok(if register.is_gpr64() || (register.is_gpr32() && is_word(&value)) {
                    value
                } else if register.is_gpr32() {
                    fresh(ins, u64::from(at), WORD)
                } else {
                    Value::Any
                })
            }
            OpKind::Memory => self.load(state, ins, u64::from(at)),
            _ => {
                let bits = match operand_bytes(ins) {
                    8 => ins.immediate(at).cast_signed(),
                    _ => i64::from(ins.immediate(at) as u32),
                };
                Ok(if bits < 0 {
                    Value::Any
                } else {
                    Value::Number(Linear::constant(bits))
                })
            }
        }
    }

    fn assign(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        if ins.op0_kind() == OpKind::Memory {
            let value = self.operand(state, ins, 1)?;
            return self.store(state, ins, value);
        }
        let value = self.operand(state, ins, 1)?;
        self.write(state, ins, ins.op0_register(), value)
    }

    fn add(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        if ins.op0_kind() != OpKind::Register || operand_bytes(ins) != 8 {
            return self.other(state, ins);
        }
        state.compared = None;
        let first = self.operand(state, ins, 0)?;
        let name = symbol(ins, 6);
        let value = if let Some(by) = immediate(ins) {
            offset(first, by)
        } else {
            let second = self.operand(state, ins, 1)?;
            sum(first, second, name)
        };
        self.write(state, ins, ins.op0_register(), value)
    }

    fn subtract(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let by = immediate(ins).and_then(i64::checked_neg);
        let (OpKind::Register, 8, Some(by)) = (ins.op0_kind(), operand_bytes(ins), by) else {
            return self.other(state, ins);
        };
        state.compared = None;
        let first = self.operand(state, ins, 0)?;
        self.write(state, ins, ins.op0_register(), offset(first, by))
    }

    fn shift(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let (OpKind::Register, 8, Some(by)) = (ins.op0_kind(), operand_bytes(ins), immediate(ins)) else {
            return self.other(state, ins);
        };
        state.compared = None;
        let value = match self.operand(state, ins, 0)? {
            Value::Number(linear) => linear.shifted(by as u8).map_or(Value::Any, Value::Number),
            _ => Value::Any,
        };
        self.write(state, ins, ins.op0_register(), value)
    }

    fn and(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let mask = immediate(ins).filter(|mask| (0..=WORD).contains(mask) && operand_bytes(ins) >= 4);
        let (OpKind::Register, Some(mask)) = (ins.op0_kind(), mask) else {
            return self.other(state, ins);
        };
        state.compared = None;
        let value = fresh(ins, 6, mask);
        self.write(state, ins, ins.op0_register(), value)
    }

    fn zero_extend(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let narrow = match ins.op1_kind() {
            OpKind::Memory => {
                self.load(state, ins, 1)?;
                ins.memory_size().size() as u32
            }
            _ => ins.op1_register().size() as u32,
        };
        let value = fresh(ins, 6, (1 << (8 * narrow)) - 1);
        self.write(state, ins, ins.op0_register(), value)
    }

    fn sign_extend(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        // Of the form with half a word some processors read two bytes and some four.
        if operand_bytes(ins) == 2 {
            return Err(Reason::NotAllowed);
        }
        if ins.op1_kind() != OpKind::Memory {
            return self.other(state, ins);
        }
        let address = self.address(state, ins, 5)?;
        let value = match address {
            // An entry of a jump table: (table + 4 × index), the index known to be small.
            Value::Pointer(Base::Code, at)
                if (at.shift == 2 || at.is_constant()) && at.lo == at.add && at.hi < WORD && at.lo >= 0 =>
            {
                self.load(state, ins, 1)?;
                Value::JumpEntry(at.lo as u32, ((at.hi - at.lo) / 4 + 1) as u32)
            }
            _ => {
                self.load(state, ins, 1)?;
                Value::Any
            }
        };
        self.write(state, ins, ins.op0_register(), value)
    }

    /// A conditional move after a comparison bounds what it takes over.
    fn choose(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        let compared = state.compared;
        let (old, new) = (self.operand(state, ins, 0)?, self.operand(state, ins, 1)?);
        let mut value = Value::Any;
        if let (Value::Number(old), Value::Number(new), Some((a, b))) = (old, new, compared)
            && old.is_constant()
            && let (Value::Number(a), Value::Number(b)) = (a, b)
            && new.symbol != NAMELESS
        {
            let below = match ins.mnemonic() {
                Mnemonic::Cmovb if a == new && b.is_constant() => Some(b.add - 1),
                Mnemonic::Cmovbe if a == new && b.is_constant() => Some(b.add),
                Mnemonic::Cmova if b == new && a.is_constant() => Some(a.add - 1),
                Mnemonic::Cmovae if b == new && a.is_constant() => Some(a.add),
                _ => None,
            };
            value = match below {
                // Nothing is below nought: the move is never done.
                Some(below) if below < 0 => Value::Number(old),
                Some(below) => fresh(ins, 6, below.min(new.hi).max(old.add)),
                None => Value::Any,
            };
        }
        self.write(state, ins, ins.op0_register(), value)
    }

    /// Any other instruction of the list: its accesses are checked, what it writes is unknown.
    fn other(&mut self, state: &mut State, ins: &Instruction) -> Step<()> {
        if ins.mnemonic() == Mnemonic::Bt && ins.op0_kind() == OpKind::Memory && ins.op1_kind() == OpKind::Register {
            // It reaches far beyond the operand that the decoder tells. An immediate bit does not: the processor
            // takes it modulo the operand's width.
            return Err(Reason::NotAllowed);
        }
        let info = self.info.info(ins).clone();
        for used in info.used_memory() {
            let memory_operand = (0..ins.op_count()).any(|at| ins.op_kind(at) == OpKind::Memory);
            if !memory_operand || info.used_memory().len() != 1 || used.memory_size() == MemorySize::Unknown {
                return Err(Reason::NotAllowed);
            }
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => {
                    self.load(state, ins, 5)?;
                }
                OpAccess::Write | OpAccess::CondWrite => self.store(state, ins, Value::Any)?,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    self.load(state, ins, 5)?;
                    self.store(state, ins, Value::Any)?;
                }
                OpAccess::None | OpAccess::NoMemAccess => {}
            }
        }
        if ins.rflags_modified() != 0 {
            state.compared = None;
        }
        for used in info.used_registers() {
            let writes = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            let Some(at) = gpr(used.register()).filter(|_| writes) else {
                continue;
            };
            if at == RSP {
                return Err(Reason::StackPointer);
            }
            let first = ins.op_count() > 0 && ins.op0_kind() == OpKind::Register;
            // These leave the register as it was when they find no bit, with all of its upper half on some
            // processors; the last two are the first two where the processor does not know them.
            let may_leave = matches!(
                ins.mnemonic(),
                Mnemonic::Bsf | Mnemonic::Bsr | Mnemonic::Tzcnt | Mnemonic::Lzcnt
            );
            let word = first && !may_leave && ins.op0_register().is_gpr32() && gpr(ins.op0_register()) == Some(at);
            state.registers[at] = if word { fresh(ins, 6, WORD) } else { Value::Any };
        }
        Ok(())
    }
}

/// At a return or tail call everything is as at entry.
fn leave(state: &State) -> Step<()> {
    if state.registers[RSP] != Value::Stack(0) {
        return Err(Reason::ReturnStack);
    }
    let restored = SAVED
        .iter()
        .all(|register| state.registers[*register] == Value::Entry(*register as u8));
    if restored { Ok(()) } else { Err(Reason::ReturnRegisters) }
}

fn operand_bytes(ins: &Instruction) -> usize {
    match ins.op0_kind() {
        OpKind::Register => ins.op0_register().size(),
        _ => ins.memory_size().size(),
    }
}

/// The second operand, if it is an immediate, sign-extended.
fn immediate(ins: &Instruction) -> Option<i64> {
    match ins.op1_kind() {
        OpKind::Register | OpKind::Memory => None,
        _ => Some(match operand_bytes(ins) {
            4 => i64::from(ins.immediate(1) as u32),
            _ => ins.immediate(1).cast_signed(),
        }),
    }
}

pub(super) fn offset(value: Value, by: i64) -> Value {
    match value {
        Value::Number(linear) => match linear.plus(by) {
            Some(linear) if linear.lo >= 0 => Value::Number(linear),
            _ => Value::Any,
        },
        Value::Pointer(base, linear) => linear
            .plus(by)
            .map_or(Value::Any, |linear| Value::Pointer(base, linear)),
        Value::Stack(at) => at.checked_add(by).map_or(Value::Any, Value::Stack),
        Value::StackLimit(at) if (0..=i64::from(i32::MAX)).contains(&by) => Value::StackLimit(at.saturating_add(by)),
        other if by == 0 => other,
        _ => Value::Any,
    }
}

pub(super) fn sum(a: Value, b: Value, name: Symbol) -> Value {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.sum(&b, name).map_or(Value::Any, Value::Number),
        (Value::Pointer(base, at), Value::Number(by)) | (Value::Number(by), Value::Pointer(base, at)) => {
            at.sum(&by, name).map_or(Value::Any, |at| Value::Pointer(base, at))
        }
        (Value::Pointer(Base::Code, at), Value::JumpEntry(table, count))
        | (Value::JumpEntry(table, count), Value::Pointer(Base::Code, at))
            if at.is_constant() && at.add == i64::from(table) =>
        {
            Value::JumpTarget(table, count)
        }
        (other, Value::Number(by)) | (Value::Number(by), other) if by.is_constant() => offset(other, by.add),
        _ => Value::Any,
    }
}

const fn opposite(condition: ConditionCode) -> ConditionCode {
    match condition {
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::a => ConditionCode::be,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::e => ConditionCode::ne,
        ConditionCode::ne => ConditionCode::e,
        _ => ConditionCode::None,
    }
}

/// Learns from a comparison, for the way on which its condition holds.
fn learn(state: &mut State, condition: ConditionCode) {
    let Some((a, b)) = state.compared else { return };
    match condition {
        ConditionCode::b => at_most(state, a, b, 1),
        ConditionCode::be => at_most(state, a, b, 0),
        ConditionCode::a => at_most(state, b, a, 1),
        ConditionCode::ae => at_most(state, b, a, 0),
        ConditionCode::e => {
            if let (Value::Element(place, Field::Signature), Value::Signature(_))
            | (Value::Signature(_), Value::Element(place, Field::Signature)) = (a, b)
            {
                state.add_fact(Fact::Typed(place));
            }
        }
        // A length that is not nought is at least one.
        ConditionCode::ne if b == Value::Number(Linear::constant(0)) => at_most(state, b, a, 1),
        _ => {}
    }
}

/// `a + strict <= b`, unsigned.
fn at_most(state: &mut State, a: Value, b: Value, strict: i64) {
    match (a, b) {
        (Value::Number(linear), Value::Length(length)) => {
            state.add_fact(Fact::Within(length, linear.term(), linear.add.saturating_add(strict)));
        }
        // Only of an address that certainly is on the stack: far beneath it, it would wrap and be above every limit.
        (Value::StackLimit(above), Value::Stack(at)) if (-UNCHECKED..=0).contains(&at) => {
            state.checked = state.checked.min(at.saturating_sub(above));
        }
        _ => {}
    }
}

/// Instructions whose effects are their operands and the flags: no privilege, no implied memory,
/// no segment, no control.
fn allowed(mnemonic: Mnemonic) -> bool {
    ALLOWED.contains(&mnemonic)
}
