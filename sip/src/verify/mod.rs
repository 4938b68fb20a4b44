//! The verifier: proves of machine code, whoever made it, that it stays inside its instance.
//!
//! Each function is decoded along its control flow and interpreted over abstract values ([`value`])
//! until nothing new is learnt. Proved is: every instruction is of the allow-list; every access lies
//! in the memory's reservation, below a table's or block's length, in the scratch area, in an own
//! global, in the function's own frame or in constants of the code; control goes only to decoded
//! instructions of the function, to entries of functions of the image with the instance's context in
//! `rdi`, to built-in functions, to imports with *their* context, to elements of tables whose
//! signature was compared, with their context; stack pointer, frame pointer and callee-saved
//! registers are at every return and tail call what they were at entry; the frame lies above the
//! stack limit that was compared. Nothing of the compiler is used: only [`crate::layout`].
//!
//! The claims that are not proved (that the code does what the module says, contracts, speculation) stand in
//! `docs/sip.md`.

mod access;
mod allowed;
mod state;
mod step;
mod value;

use crate::compile::Image;
use crate::layout::Layout;
use alloc::{boxed::Box, collections::BTreeMap, collections::BTreeSet, vec::Vec};
use core::ops::Range;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use state::State;

/// An image whose machine code has been proved. Only [`verify`] makes one.
#[derive(Clone, Debug)]
pub struct Verified(Image);

impl core::ops::Deref for Verified {
    type Target = Image;
    fn deref(&self) -> &Image {
        &self.0
    }
}

/// The claim that could not be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The image's tables contradict each other.
    Image,
    /// Bytes that are no instruction.
    Undecodable,
    /// An instruction that is not on the list.
    NotAllowed,
    /// Instructions overlap.
    Overlap,
    /// A jump leaves the function other than by a tail call.
    JumpOutside,
    /// An indirect jump or call whose target is not known to be good.
    UnknownTarget,
    /// A call without the right context in rdi.
    Context,
    /// An indirect call of an element whose signature was not compared.
    Signature,
    /// A memory access whose address is not known.
    UnknownAddress,
    /// A memory access that may lie outside what it points into.
    OutOfBounds,
    /// A write to what code may only read.
    ReadOnly,
    /// An access of the stack outside the own frame.
    Frame,
    /// A stack pointer that is not known, not aligned, or below what was checked.
    StackPointer,
    /// No comparison with the stack limit before the frame is used or a call.
    StackCheck,
    /// A return with another stack pointer than at entry.
    ReturnStack,
    /// A return with another callee-saved register than at entry.
    ReturnRegisters,
    /// More steps than a function of this size may need.
    TooComplex,
}

impl Reason {
    /// The words for a user.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Image => "the image contradicts itself",
            Self::Undecodable => "bytes that are no instruction",
            Self::NotAllowed => "instruction not allowed",
            Self::Overlap => "overlapping instructions",
            Self::JumpOutside => "jump out of the function",
            Self::UnknownTarget => "indirect transfer to an unproved target",
            Self::Context => "call without the callee's context",
            Self::Signature => "indirect call without signature check",
            Self::UnknownAddress => "access through an unproved address",
            Self::OutOfBounds => "access that may be out of bounds",
            Self::ReadOnly => "write to read-only state",
            Self::Frame => "stack access outside the frame",
            Self::StackPointer => "bad stack pointer",
            Self::StackCheck => "frame used without stack check",
            Self::ReturnStack => "stack pointer not restored at return",
            Self::ReturnRegisters => "callee-saved register not restored at return",
            Self::TooComplex => "proof needs too many steps",
        }
    }
}

/// A refusal: where, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Offset in the code.
    pub offset: u32,
    /// Why.
    pub reason: Reason,
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} at code offset {:#x}", self.reason.message(), self.offset)
    }
}

/// Proves an image's code.
///
/// # Errors
/// The first thing that could not be proved.
pub fn verify(image: Image) -> Result<Verified, Violation> {
    prove(image).map_err(|(violation, _)| violation)
}

/// As [`verify`].
///
/// # Errors
/// The first thing that could not be proved, and the image, of which [`refused`] says the rest.
pub fn prove(image: Image) -> Result<Verified, (Violation, Box<Image>)> {
    match check(&image) {
        Ok(_) => Ok(Verified(image)),
        Err(violation) => Err((violation, Box::new(image))),
    }
}

/// As [`verify`], of a borrowed image; returns the number of instructions proved.
///
/// # Errors
/// The first thing that could not be proved.
pub fn check(image: &Image) -> Result<usize, Violation> {
    let mut proof = Proof::new(image)?;
    image
        .functions
        .iter()
        .try_fold(0, |sum, range| Ok(sum + proof.function(range.clone())?.instructions))
}

/// The work of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes of the function.
    pub bytes: usize,
    /// Instructions proved.
    pub instructions: usize,
    /// Steps that it took: looks at an instruction, or at what is known at a target. There are at most [`BUDGET`].
    pub steps: usize,
}

/// The work that each function of an image takes.
///
/// # Errors
/// The first thing that could not be proved.
pub fn efforts(image: &Image) -> Result<Vec<Effort>, Violation> {
    let mut proof = Proof::new(image)?;
    let functions = image.functions.iter();
    functions.map(|range| proof.function(range.clone())).collect()
}

/// The functions of an image that are not proved: the number of each among those that the module defines, and the
/// first thing in it that could not be proved.
///
/// # Errors
/// What contradicts itself in the image as a whole.
pub fn refused(image: &Image) -> Result<Vec<(usize, Violation)>, Violation> {
    let mut proof = Proof::new(image)?;
    let functions = image.functions.iter().enumerate();
    Ok(functions
        .filter_map(|(at, range)| Some((at, proof.function(range.clone()).err()?)))
        .collect())
}

struct Proof<'a> {
    image: &'a Image,
    entries: BTreeSet<u32>,
    info: InstructionInfoFactory,
}

/// The function being proved.
struct Function {
    range: Range<u32>,
    /// Decoded instructions by offset from the start of the function, one more than the index.
    known: Vec<u32>,
    decoded: Vec<Instruction>,
    /// For each of them the start of the straight line that passed it last, [`NOWHERE`] if none did.
    passed: Vec<u32>,
    /// The knowledge at the targets of branches.
    states: BTreeMap<u32, State>,
    pending: BTreeSet<u32>,
    /// Steps that are left, and room for what is known at targets.
    steps: usize,
    room: usize,
}

/// Steps that a function may take for each of its bytes, and a few to begin with.
///
/// A proof ends without it. What is known at a target only becomes less: a register or slot there takes the name of the
/// target once, its range is widened at most six times (`value::join_linear`), and then it is unknown; a fact is weakened
/// at most four times (`state::SLACKS`), and then it is gone. But loops in loops multiply, and hostile code may be all
/// loops, so the work is bounded as well. Of 102,000 functions that clang compiled, none took two steps a byte
/// (`host/sip-cli/tests/foreign.rs` holds them to a tenth of this).
pub const BUDGET: usize = 200;
const BEGIN: usize = 10_000;

/// No place in code.
const NOWHERE: u32 = u32::MAX;

/// Registers, slots and facts that are remembered of all targets of a function, at most: a gigabyte and a half.
const ROOM: usize = 1 << 24;

impl Function {
    /// Pays for looking at a state once: at an instruction, or at a target, where facts are compared with facts.
    fn pay(&mut self, state: &State, at_target: bool) {
        let [slots, facts] = state.size();
        let compared = if at_target { facts * facts / 4096 } else { 0 };
        self.steps = self.steps.saturating_sub(1 + (slots + facts) / 512 + compared);
    }

    /// A way to `target`: joins the state there, and has it looked at if that taught something.
    ///
    /// A straight line may have passed the target before anything was known to jump there, as it does with the start of a
    /// loop. It is looked at again, stops at the target, and brings what it knows: so what a loop carries is joined where
    /// the loop starts, and has a name that stays until the loop goes round.
    fn reach(&mut self, target: u32, state: &State) {
        self.pay(state, true);
        if self.steps == 0 {
            // The function is refused at the next instruction.
            return;
        }
        if let Some(known) = self.states.get_mut(&target) {
            if known.join(state, target) {
                self.pending.insert(target);
            }
        } else {
            let [slots, facts] = state.size();
            self.room = self.room.saturating_sub(state.registers.len() + slots + facts);
            self.states.insert(target, state.clone());
            self.pending.insert(target);
            // A target outside the function was not passed, and is refused when it is looked at.
            let slot = target.wrapping_sub(self.range.start) as usize;
            let decoded = self.known.get(slot).copied().unwrap_or(0) as usize;
            let line = decoded.checked_sub(1).map_or(NOWHERE, |at| self.passed[at]);
            if line != NOWHERE {
                self.pending.insert(line);
            }
        }
    }
}

/// The instruction that traps.
const UD2: [u8; 2] = [0x0f, 0x0b];

impl<'a> Proof<'a> {
    /// Looks at what the image says of itself.
    fn new(image: &'a Image) -> Result<Self, Violation> {
        let bad = |offset| Violation {
            offset,
            reason: Reason::Image,
        };
        let own = image.module.functions.len() - image.module.imported_functions;
        if image.layout != Layout::new(&image.module) || image.functions.len() != own {
            return Err(bad(0));
        }
        let mut end = 0;
        for range in &image.functions {
            if range.start < end || range.end <= range.start || range.end as usize > image.code.len() {
                return Err(bad(range.start));
            }
            end = range.end;
        }
        Ok(Self {
            image,
            entries: image.functions.iter().map(|range| range.start).collect(),
            info: InstructionInfoFactory::new(),
        })
    }
}

impl Proof<'_> {
    fn function(&mut self, range: Range<u32>) -> Result<Effort, Violation> {
        let bytes = (range.end - range.start) as usize;
        let mut function = Function {
            known: alloc::vec![0; bytes],
            decoded: Vec::new(),
            passed: Vec::new(),
            states: BTreeMap::new(),
            pending: BTreeSet::new(),
            steps: BUDGET * bytes + BEGIN,
            room: ROOM,
            range,
        };
        let start = function.range.start;
        function.reach(start, &State::entry());
        while let Some(block) = function.pending.pop_first() {
            self.block(&mut function, block)?;
        }
        if function.steps == 0 {
            return Err(Violation {
                offset: start,
                reason: Reason::TooComplex,
            });
        }
        let overlap = |at: u32| Violation {
            offset: at,
            reason: Reason::Overlap,
        };
        let mut end = 0;
        for (at, known) in function.known.iter().enumerate() {
            if *known != 0 {
                if at < end {
                    return Err(overlap(start + at as u32));
                }
                end = at + function.decoded[*known as usize - 1].len();
            }
        }
        Ok(Effort {
            bytes,
            instructions: function.decoded.len(),
            steps: BUDGET * bytes + BEGIN - function.steps,
        })
    }

    /// A way to `target`. Of a trap nothing needs to be known, and most targets are one.
    fn reach(&self, function: &mut Function, target: u32, state: &State) {
        let range = target as usize..function.range.end as usize;
        let is_trap = function.range.contains(&target)
            && self.image.code.get(range).is_some_and(|code| code.starts_with(&UD2))
            && self.fetch(function, target).is_ok();
        if !is_trap {
            function.reach(target, state);
        }
    }

    /// Interprets from a branch target to the end of its straight line.
    fn block(&mut self, function: &mut Function, block: u32) -> Result<(), Violation> {
        let mut state = function.states[&block].clone();
        let mut at = block;
        loop {
            function.pay(&state, false);
            if function.steps == 0 || function.room == 0 {
                return Err(Violation {
                    offset: at,
                    reason: Reason::TooComplex,
                });
            }
            let decoded = function.decoded.len();
            let instruction = self.fetch(function, at)?;
            let is_first = function.decoded.len() > decoded;
            let index = function.known[(at - function.range.start) as usize] as usize - 1;
            function.passed[index] = block;
            let fail = |reason| Violation { offset: at, reason };
            if !self.step(function, &mut state, &instruction, is_first).map_err(fail)? {
                return Ok(());
            }
            at = instruction.next_ip32();
            if function.states.contains_key(&at) {
                function.reach(at, &state);
                return Ok(());
            }
        }
    }

    fn fetch(&self, function: &mut Function, at: u32) -> Result<Instruction, Violation> {
        let fail = |reason| Violation { offset: at, reason };
        if !function.range.contains(&at) {
            return Err(fail(Reason::JumpOutside));
        }
        let slot = (at - function.range.start) as usize;
        if function.known[slot] == 0 {
            let bytes = &self.image.code[at as usize..function.range.end as usize];
            let mut decoder = Decoder::with_ip(64, bytes, u64::from(at), DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(fail(Reason::Undecodable));
            }
            function.decoded.push(instruction);
            function.passed.push(NOWHERE);
            function.known[slot] = function.decoded.len() as u32;
        }
        Ok(function.decoded[function.known[slot] as usize - 1])
    }
}
