//! Blocks, branches, calls and variables.

use super::{Region, Translator, TrapKind, clif_type, signature, val_type};
use crate::abi::{self, Place};
use crate::layout::{ELEMENT_CODE, ELEMENT_CONTEXT, ELEMENT_SIGNATURE};
use crate::module::{FuncType, Refusal, ValType};
use crate::refine::Loop;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, BlockArg, ExtFuncData, ExternalName, Inst, InstBuilder, JumpTableData, UserExternalName, Value,
    condcodes::IntCC, types,
};
use wasmparser::{BlockType, Operator};

/// An open block.
pub(super) struct Frame {
    /// The target of a branch to it.
    target: Block,
    /// The place where the code after its end goes on.
    exit: Block,
    /// The other arm of an `if`, until an `else` takes it.
    other: Option<Block>,
    /// Values that a branch carries.
    arity: usize,
    /// Values at the end.
    results: usize,
    /// Parameters, kept for the other arm.
    params: Vec<Value>,
    /// Depth of the operand stack beneath its parameters.
    height: usize,
    /// Opened in unreachable code: nothing of it is translated.
    dead: bool,
    /// Whether anything goes to the exit.
    exit_used: bool,
}

impl Frame {
    /// The outermost frame of a function.
    pub(super) fn function(exit: Block, results: usize) -> Self {
        Self {
            target: exit,
            exit,
            other: None,
            arity: results,
            results,
            params: Vec::new(),
            height: 0,
            dead: false,
            exit_used: false,
        }
    }
}

fn block_args(values: &[Value]) -> Vec<BlockArg> {
    values.iter().map(|value| BlockArg::Value(*value)).collect()
}

/// Indices of a table of branches, one after another, that go to the same place.
struct Run {
    first: u32,
    count: u32,
    depth: u32,
}

/// With at most so many runs beside the default, comparisons are shorter than a jump through a table.
const RUNS: usize = 3;

/// The runs of a table whose entries do not go where the default goes; nothing if they are many.
fn runs(depths: &[u32], default: u32) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, depth) in depths.iter().enumerate() {
        let full = runs.len() == RUNS;
        match runs.last_mut() {
            _ if *depth == default => {}
            Some(run) if run.depth == *depth && (run.first + run.count) as usize == at => run.count += 1,
            _ if full => return None,
            _ => runs.push(Run {
                first: at as u32,
                count: 1,
                depth: *depth,
            }),
        }
    }
    Some(runs)
}

impl Translator<'_, '_> {
    /// Translates the operator if it is of this module; says whether it was. Called in unreachable
    /// code too, where only the structure of blocks matters.
    pub(super) fn control(&mut self, op: &Operator<'_>) -> Result<bool, Refusal> {
        match op {
            Operator::Block { blockty } => self.open_block(*blockty),
            Operator::Loop { blockty } => self.open_loop(*blockty),
            Operator::If { blockty } => self.open_if(*blockty),
            Operator::Else => self.else_arm(),
            Operator::End => self.end(),
            _ if !self.reachable => return Ok(false),
            Operator::Nop => {}
            Operator::Unreachable => {
                self.builder.ins().trap(TrapKind::Unreachable.code());
                self.reachable = false;
            }
            Operator::Br { relative_depth } => self.branch(*relative_depth),
            Operator::BrIf { relative_depth } => self.branch_if(*relative_depth),
            Operator::BrTable { targets } => self.branch_table(targets)?,
            Operator::Return => self.branch(self.frames.len() as u32 - 1),
            Operator::Call { function_index } => self.call(*function_index),
            Operator::ReturnCall { function_index } => self.return_call(*function_index),
            Operator::CallIndirect {
                type_index,
                table_index,
            } => self.call_indirect(*type_index, *table_index),
            Operator::ReturnCallIndirect {
                type_index,
                table_index,
            } => {
                self.return_call_indirect(*type_index, *table_index);
            }
            Operator::Drop => {
                self.pop();
            }
            Operator::Select | Operator::TypedSelect { .. } => {
                let condition = self.pop();
                let (first, second) = self.pop2();
                let value = self.builder.ins().select(condition, first, second);
                self.push(value);
            }
            Operator::LocalGet { local_index } => {
                let value = self.builder.use_var(self.locals[*local_index as usize]);
                self.push(value);
            }
            Operator::LocalSet { local_index } => {
                let value = self.pop();
                self.builder.def_var(self.locals[*local_index as usize], value);
            }
            Operator::LocalTee { local_index } => {
                let value = *self.stack.last().expect("the validator has counted");
                self.builder.def_var(self.locals[*local_index as usize], value);
            }
            Operator::GlobalGet { global_index } => {
                let (address, offset, ty) = self.global(*global_index);
                let flags = self.flags(Region::Global);
                let value = self.builder.ins().load(clif_type(ty), flags, address, offset);
                self.push(value);
            }
            Operator::GlobalSet { global_index } => {
                let value = self.pop();
                let (address, offset, _) = self.global(*global_index);
                let flags = self.flags(Region::Global);
                self.builder.ins().store(flags, value, address, offset);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn global(&mut self, global: u32) -> (Value, i32, ValType) {
        let ty = self.module.globals[global as usize].content;
        let imported = self.module.imported_globals as u32;
        if global < imported {
            (self.field(self.layout.global(global)), 0, ty)
        } else {
            (self.context, self.layout.cell(global - imported) as i32, ty)
        }
    }

    fn block_type(&self, ty: BlockType) -> FuncType {
        match ty {
            BlockType::Empty => FuncType::default(),
            BlockType::Type(ty) => FuncType {
                params: Vec::new(),
                results: alloc::vec![val_type(ty)],
            },
            BlockType::FuncType(index) => self.module.types[index as usize].clone(),
        }
    }

    fn new_block(&mut self, types: &[ValType]) -> Block {
        let block = self.builder.create_block();
        for ty in types {
            self.builder.append_block_param(block, clif_type(*ty));
        }
        block
    }

    fn open_dead(&mut self) -> bool {
        if !self.reachable {
            let mut frame = Frame::function(Block::from_u32(0), 0);
            frame.dead = true;
            self.frames.push(frame);
        }
        !self.reachable
    }

    fn open_block(&mut self, ty: BlockType) {
        if self.open_dead() {
            return;
        }
        let ty = self.block_type(ty);
        let exit = self.new_block(&ty.results);
        let mut frame = Frame::function(exit, ty.results.len());
        frame.height = self.stack.len() - ty.params.len();
        self.frames.push(frame);
    }

    fn open_loop(&mut self, ty: BlockType) {
        if self.open_dead() {
            return;
        }
        let ty = self.block_type(ty);
        let header = self.new_block(&ty.params);
        let exit = self.new_block(&ty.results);
        let height = self.stack.len() - ty.params.len();
        let args = block_args(&self.stack[height..]);
        let entry = self.builder.ins().jump(header, &args);
        self.loops.push(Loop { header, entry });
        self.builder.switch_to_block(header);
        self.stack.truncate(height);
        self.stack.extend_from_slice(self.builder.block_params(header));
        let mut frame = Frame::function(exit, ty.results.len());
        frame.target = header;
        frame.arity = ty.params.len();
        frame.height = height;
        self.frames.push(frame);
    }

    fn open_if(&mut self, ty: BlockType) {
        if self.open_dead() {
            return;
        }
        let condition = self.pop();
        let ty = self.block_type(ty);
        let exit = self.new_block(&ty.results);
        let then = self.builder.create_block();
        let other = self.builder.create_block();
        self.builder.ins().brif(condition, then, &[], other, &[]);
        self.builder.seal_block(then);
        self.builder.seal_block(other);
        self.builder.switch_to_block(then);
        let mut frame = Frame::function(exit, ty.results.len());
        frame.height = self.stack.len() - ty.params.len();
        frame.params = self.stack[frame.height..].to_vec();
        frame.other = Some(other);
        self.frames.push(frame);
    }

    /// Goes to the exit of the innermost frame with its results, if the code here is reachable.
    fn fall_out(&mut self) {
        if !self.reachable {
            return;
        }
        let frame = self.frames.last_mut().expect("ends match");
        frame.exit_used = true;
        let args = block_args(&self.stack[self.stack.len() - frame.results..]);
        let exit = frame.exit;
        self.builder.ins().jump(exit, &args);
    }

    fn else_arm(&mut self) {
        if self.frames.last().is_none_or(|frame| frame.dead) {
            return;
        }
        self.fall_out();
        let frame = self.frames.last_mut().expect("else stands in an if");
        let other = frame.other.take().expect("an if has one else");
        self.stack.truncate(frame.height);
        self.stack.extend_from_slice(&frame.params);
        self.builder.switch_to_block(other);
        self.reachable = true;
    }

    fn end(&mut self) {
        if self.frames.last().is_some_and(|frame| frame.dead) {
            self.frames.pop();
            return;
        }
        self.fall_out();
        let mut frame = self.frames.pop().expect("ends match");
        if let Some(other) = frame.other {
            // An `if` without `else` passes its parameters on.
            self.builder.switch_to_block(other);
            let args = block_args(&frame.params);
            self.builder.ins().jump(frame.exit, &args);
            frame.exit_used = true;
        }
        if frame.target != frame.exit {
            self.builder.seal_block(frame.target);
        }
        self.stack.truncate(frame.height);
        self.reachable = frame.exit_used;
        if !frame.exit_used {
            return;
        }
        self.builder.switch_to_block(frame.exit);
        self.builder.seal_block(frame.exit);
        self.stack.extend_from_slice(self.builder.block_params(frame.exit));
        if self.frames.is_empty() {
            self.return_values();
        }
    }

    fn return_values(&mut self) {
        let values = core::mem::take(&mut self.stack);
        let mut registers = Vec::new();
        for (value, place) in values.iter().zip(abi::results(&self.results)) {
            match place {
                Place::Area(slot) => self.area_store(*value, slot),
                _ => registers.push(*value),
            }
        }
        self.builder.ins().return_(&registers);
    }

    fn target(&mut self, depth: u32) -> (Block, Vec<BlockArg>) {
        let at = self.frames.len() - 1 - depth as usize;
        let frame = &mut self.frames[at];
        if frame.target == frame.exit {
            frame.exit_used = true;
        }
        (frame.target, block_args(&self.stack[self.stack.len() - frame.arity..]))
    }

    fn branch(&mut self, depth: u32) {
        let (block, args) = self.target(depth);
        self.builder.ins().jump(block, &args);
        self.reachable = false;
    }

    fn branch_if(&mut self, depth: u32) {
        let condition = self.pop();
        let (block, args) = self.target(depth);
        let next = self.builder.create_block();
        self.builder.ins().brif(condition, block, &args, next, &[]);
        self.builder.seal_block(next);
        self.builder.switch_to_block(next);
    }

    fn branch_table(&mut self, targets: &wasmparser::BrTable<'_>) -> Result<(), Refusal> {
        let index = self.pop();
        let depths = targets.targets().collect::<Result<Vec<u32>, _>>()?;
        if let Some(runs) = runs(&depths, targets.default()) {
            self.branch_runs(index, &runs, targets.default());
            return Ok(());
        }
        let mut calls = Vec::new();
        for depth in depths {
            let (block, args) = self.target(depth);
            calls.push(self.builder.func.dfg.block_call(block, &args));
        }
        let (block, args) = self.target(targets.default());
        let default = self.builder.func.dfg.block_call(block, &args);
        let table = self.builder.create_jump_table(JumpTableData::new(default, &calls));
        self.builder.ins().br_table(index, table);
        self.reachable = false;
        Ok(())
    }

    /// Comparisons in place of a table.
    fn branch_runs(&mut self, index: Value, runs: &[Run], default: u32) {
        for run in runs {
            let (block, args) = self.target(run.depth);
            let next = self.builder.create_block();
            let ins = self.builder.ins();
            let hit = if run.count == 1 {
                ins.icmp_imm_s(IntCC::Equal, index, i64::from(run.first))
            } else {
                let within = ins.iadd_imm_s(index, -i64::from(run.first));
                let ins = self.builder.ins();
                ins.icmp_imm_u(IntCC::UnsignedLessThan, within, i64::from(run.count))
            };
            self.builder.ins().brif(hit, block, &args, next, &[]);
            self.builder.seal_block(next);
            self.builder.switch_to_block(next);
        }
        self.branch(default);
    }

    /// The machine arguments of a call: the context, then what registers take; the rest goes to the
    /// area.
    fn arguments(&mut self, ty: &FuncType, context: Value) -> Vec<Value> {
        let values = self.stack.split_off(self.stack.len() - ty.params.len());
        let mut args = alloc::vec![context];
        for (value, place) in values.iter().zip(abi::params(&ty.params)) {
            match place {
                Place::Area(slot) => self.area_store(*value, slot),
                _ => args.push(*value),
            }
        }
        args
    }

    fn push_results(&mut self, ty: &FuncType, call: Inst) {
        self.refresh_length();
        let mut registers = self.builder.inst_results(call).to_vec().into_iter();
        for (ty, place) in ty.results.iter().zip(abi::results(&ty.results)) {
            let value = match place {
                Place::Area(slot) => self.area_load(*ty, slot),
                _ => registers.next().expect("one machine result for each register"),
            };
            self.push(value);
        }
    }

    fn direct(&mut self, function: u32, ty: &FuncType) -> cranelift_codegen::ir::FuncRef {
        if let Some(known) = self.direct.get(&function) {
            return *known;
        }
        let signature = self.builder.import_signature(signature(ty));
        let name = UserExternalName {
            namespace: 0,
            index: function,
        };
        let name = ExternalName::user(self.builder.func.declare_imported_user_function(name));
        let data = ExtFuncData {
            name,
            signature,
            colocated: true,
            patchable: false,
        };
        let known = self.builder.import_function(data);
        self.direct.insert(function, known);
        known
    }

    fn imported(&mut self, function: u32) -> (Value, Value) {
        let at = self.layout.function(function);
        (self.field_here(at), self.field_here(at + 8))
    }

    fn call(&mut self, function: u32) {
        if self.exchange(function) {
            return;
        }
        let ty = self.module.function_type(function).clone();
        let call = if (function as usize) < self.module.imported_functions {
            let (code, context) = self.imported(function);
            let args = self.arguments(&ty, context);
            let sig = self.builder.import_signature(signature(&ty));
            self.builder.ins().call_indirect(sig, code, &args)
        } else {
            let args = self.arguments(&ty, self.context);
            let callee = self.direct(function, &ty);
            self.builder.ins().call(callee, &args)
        };
        self.push_results(&ty, call);
    }

    fn return_call(&mut self, function: u32) {
        if self.exchange(function) {
            self.branch(self.frames.len() as u32 - 1);
            return;
        }
        let ty = self.module.function_type(function).clone();
        if (function as usize) < self.module.imported_functions {
            let (code, context) = self.imported(function);
            let args = self.arguments(&ty, context);
            let sig = self.builder.import_signature(signature(&ty));
            self.builder.ins().return_call_indirect(sig, code, &args);
        } else {
            let args = self.arguments(&ty, self.context);
            let callee = self.direct(function, &ty);
            self.builder.ins().return_call(callee, &args);
        }
        self.reachable = false;
    }

    /// Checks an indirect call and yields the callee's code and context.
    fn callee(&mut self, ty: u32, table: u32) -> (Value, Value) {
        let index = self.pop();
        let element = self.element(table, index);
        let flags = self.flags(Region::Table);
        let have = self
            .builder
            .ins()
            .load(types::I64, flags, element, ELEMENT_SIGNATURE as i32);
        let want = self.field(self.layout.signature(ty));
        let good = self.builder.create_block();
        let bad = self.builder.create_block();
        self.builder.set_cold_block(bad);
        let same = self.builder.ins().icmp(IntCC::Equal, have, want);
        self.builder.ins().brif(same, good, &[], bad, &[]);
        self.builder.seal_block(good);
        self.builder.seal_block(bad);
        self.builder.switch_to_block(bad);
        let null = self.builder.ins().icmp_imm_s(IntCC::Equal, have, -1);
        self.builder.ins().trapnz(null, TrapKind::NullElement.code());
        self.builder.ins().trap(TrapKind::BadSignature.code());
        self.builder.switch_to_block(good);
        let code = self.builder.ins().load(types::I64, flags, element, ELEMENT_CODE as i32);
        let context = self
            .builder
            .ins()
            .load(types::I64, flags, element, ELEMENT_CONTEXT as i32);
        (code, context)
    }

    fn call_indirect(&mut self, ty: u32, table: u32) {
        let (code, context) = self.callee(ty, table);
        let ty = self.module.types[ty as usize].clone();
        let args = self.arguments(&ty, context);
        let sig = self.builder.import_signature(signature(&ty));
        let call = self.builder.ins().call_indirect(sig, code, &args);
        self.push_results(&ty, call);
    }

    fn return_call_indirect(&mut self, ty: u32, table: u32) {
        let (code, context) = self.callee(ty, table);
        let ty = self.module.types[ty as usize].clone();
        let args = self.arguments(&ty, context);
        let sig = self.builder.import_signature(signature(&ty));
        self.builder.ins().return_call_indirect(sig, code, &args);
        self.reachable = false;
    }
}
