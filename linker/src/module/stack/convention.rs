//! Whether a function follows the calling convention of the psABI. Debug information of clang says so; of gcc it says where
//! each parameter is at the function's first instruction, and that must be where the psABI has it.

use super::{AttributeValue, Decided, Entry, Unit, UnitOffset, broken, dw};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

/// The registers of integers, in their order (psABI, figures 3.4 and 3.36).
pub(super) const INTEGER_REGISTERS: [u64; 6] = [5, 4, 1, 2, 8, 9];
/// The first register of numbers with a fraction.
pub(super) const FIRST_VECTOR: u64 = 17;
/// What is said of a function whose parameters are elsewhere.
pub(super) const FOREIGN: &str = "the function follows another calling convention (ms_abi)";

/// clang's number of the convention of Windows (`DW_CC_LLVM_Win64`).
const WINDOWS: gimli::DwCc = gimli::DwCc(0xc1);

/// Where a parameter is at the function's first instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// In this register.
    Register(u64),
    /// Where a register points.
    Pointed,
    /// In the caller's frame.
    Above,
}

impl Seen {
    /// Whether it may be a parameter that travels in registers: in this one, if it has one alone.
    pub(super) fn can_begin_in(self, alone: Option<u64>) -> bool {
        match self {
            Self::Register(register) => alone.is_none_or(|alone| alone == register),
            Self::Pointed => true,
            Self::Above => false,
        }
    }

    /// Whether it may be one that the caller left on the stack.
    pub(super) const fn can_begin_on_stack(self) -> bool {
        matches!(self, Self::Above)
    }
}

/// What clang says of a function of another convention.
pub(super) fn foreign(entry: &Entry<'_>) -> Option<String> {
    match entry.attr_value(dw::DW_AT_calling_convention) {
        Some(AttributeValue::CallingConvention(WINDOWS)) => Some(FOREIGN.into()),
        Some(AttributeValue::CallingConvention(one)) if one != dw::DW_CC_normal && one != dw::DW_CC_program => {
            Some(format!("the function follows another calling convention ({one})"))
        }
        _ => None,
    }
}

impl Unit<'_> {
    /// Where the parameters of a function that begins at `low` are at its beginning, as far as it is told, by the entries that
    /// declare them.
    pub(super) fn entry_places(&self, entry: &Entry<'_>, low: u64) -> Decided<BTreeMap<UnitOffset, Seen>> {
        let mut result = BTreeMap::new();
        // DW_OP_call_frame_cfa: then places in the frame are relative to the caller's.
        let framed = matches!(entry.attr_value(dw::DW_AT_frame_base), Some(AttributeValue::Exprloc(base)) if base.0.slice() == [0x9c]);
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(entry.offset()))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        while let Some(child) = children.next().map_err(broken)? {
            let child = child.entry();
            if child.tag() != dw::DW_TAG_formal_parameter {
                continue;
            }
            let code = match child.attr_value(dw::DW_AT_location) {
                Some(AttributeValue::Exprloc(code)) => Some(code.0.slice()),
                Some(AttributeValue::LocationListsRef(at)) => self.first_place(at, low),
                _ => None,
            };
            if let Some(seen) = code.and_then(|code| seen(code, framed)) {
                let declared = self.reference(child, dw::DW_AT_abstract_origin);
                result.insert(declared.unwrap_or(child.offset()), seen);
            }
        }
        Ok(result)
    }

    /// The expression of a list that holds at `low`, if it begins with one.
    fn first_place(&self, at: gimli::LocationListsOffset, low: u64) -> Option<&[u8]> {
        let little = gimli::LittleEndian;
        let lists = gimli::LocationLists::new(
            gimli::DebugLoc::new(self.locations, little),
            gimli::DebugLocLists::new(self.location_lists, little),
        );
        let mut list = lists.raw_locations(at, self.header.encoding()).ok()?;
        let mut base = low;
        while let Ok(Some(entry)) = list.next() {
            match entry {
                gimli::RawLocListEntry::BaseAddress { addr } => base = addr,
                gimli::RawLocListEntry::AddressOrOffsetPair { begin, data, .. }
                | gimli::RawLocListEntry::OffsetPair { begin, data, .. } => {
                    return (base.wrapping_add(begin) == low).then_some(data.0.slice());
                }
                gimli::RawLocListEntry::StartEnd { begin, data, .. }
                | gimli::RawLocListEntry::StartLength { begin, data, .. } => {
                    return (begin == low).then_some(data.0.slice());
                }
                _ => return None,
            }
        }
        None
    }
}

/// What an expression of one step says.
fn seen(code: &[u8], framed: bool) -> Option<Seen> {
    match *code {
        // DW_OP_reg0 and so on, of the registers of integers and of numbers with a fraction
        [register @ 0x50..=0x6f] => Some(Seen::Register(u64::from(register - 0x50))),
        // DW_OP_breg0 and so on, but for the registers of frames
        [register @ 0x70..=0x7f, ..] if !matches!(register, 0x76 | 0x77) => Some(Seen::Pointed),
        // DW_OP_fbreg, upwards, of one byte or more
        [0x91, ref offset @ ..] if framed => {
            let last = offset.iter().position(|byte| byte & 0x80 == 0)?;
            let above = offset[last] & 0x40 == 0;
            (above && last + 1 == offset.len()).then_some(Seen::Above)
        }
        _ => None,
    }
}
