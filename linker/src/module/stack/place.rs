//! Where a value travels, by its type: the classification of the AMD64 psABI, section 3.2.3.

use super::{AttributeValue, DEPTH, Decided, Entry, Unit, UnitOffset, broken, dw, is_reference};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// Where a value travels: a class for each eight bytes, or the stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Registers(Vec<Class>),
    Stack { bytes: u64, align: u64 },
}

/// The class of eight bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Empty,
    Integer,
    Vector,
    /// The upper half of a vector register.
    VectorUp,
    X87,
    X87Up,
    Memory,
}

impl Class {
    /// The class of bytes that two fields share.
    const fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, one) | (one, Self::Empty) => one,
            (Self::Memory, _) | (_, Self::Memory) => Self::Memory,
            (Self::Integer, _) | (_, Self::Integer) => Self::Integer,
            (Self::X87, Self::X87) => Self::X87,
            (Self::X87Up, Self::X87Up) => Self::X87Up,
            (Self::X87 | Self::X87Up, _) | (_, Self::X87 | Self::X87Up) => Self::Memory,
            (Self::VectorUp, Self::VectorUp) => Self::VectorUp,
            _ => Self::Vector,
        }
    }
}

/// What is left to do when all parts of a type are merged; false if it goes to memory.
fn tidy(classes: &mut [Class]) -> bool {
    for part in 0..classes.len() {
        let before = part.checked_sub(1).map(|part| classes[part]);
        match classes[part] {
            Class::Memory => return false,
            Class::X87Up if before != Some(Class::X87) => return false,
            Class::VectorUp if before != Some(Class::Vector) => classes[part] = Class::Vector,
            _ => {}
        }
    }
    true
}

/// A field of a structure.
struct Member {
    kind: UnitOffset,
    /// Its first bit.
    at: u64,
    /// How many bits it has, if it is a bit-field.
    bits: Option<u64>,
}

/// How a number of 16 bytes is made.
enum Wide {
    X87,
    Quad,
}

impl Unit<'_> {
    /// Whether C++ passes the address of objects of this type, because copying or destroying them is more than moving bytes
    /// (Itanium C++ ABI, 3.1.2.3). clang says so. From gcc it follows: the type, a base or a field has a destructor or a
    /// copying constructor that somebody wrote, or something virtual.
    fn is_by_reference(&self, kind: UnitOffset, depth: u32) -> Decided<bool> {
        let Some(entry) = self.strip(kind)? else {
            return Ok(false);
        };
        if depth == 0 {
            return Err(broken(()));
        }
        match entry.attr_value(dw::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)) => return Ok(true),
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_value)) => return Ok(false),
            _ => {}
        }
        match entry.tag() {
            dw::DW_TAG_array_type => {
                let element = self.reference(&entry, dw::DW_AT_type).ok_or_else(|| broken(()))?;
                return self.is_by_reference(element, depth - 1);
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {}
            _ => return Ok(false),
        }
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(entry.offset()))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        while let Some(node) = children.next().map_err(broken)? {
            self.look()?;
            let child = node.entry().clone();
            let of_objects = child.attr(dw::DW_AT_external).is_none();
            let by_reference = match child.tag() {
                _ if child.attr(dw::DW_AT_virtuality).is_some() => true,
                dw::DW_TAG_subprogram => {
                    self.string(&child, dw::DW_AT_name).starts_with(b"~") || self.copies(&child, entry.offset())?
                }
                dw::DW_TAG_member if !of_objects => false,
                dw::DW_TAG_member | dw::DW_TAG_inheritance => match self.reference(&child, dw::DW_AT_type) {
                    Some(kind) => self.is_by_reference(kind, depth - 1)?,
                    None => false,
                },
                _ => false,
            };
            // What the compiler wrote itself follows from bases and fields.
            let own = [dw::DW_AT_defaulted, dw::DW_AT_deleted, dw::DW_AT_artificial];
            let own = child.tag() == dw::DW_TAG_subprogram && own.iter().any(|one| child.attr(*one).is_some());
            if by_reference && (!own || child.attr(dw::DW_AT_virtuality).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a function of a class is a constructor that copies or moves: it takes a reference to another object of the
    /// class, and nothing else.
    fn copies(&self, function: &Entry<'_>, class: UnitOffset) -> Decided<bool> {
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(function.offset()))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        let mut others = 0;
        let mut copied = false;
        while let Some(node) = children.next().map_err(broken)? {
            self.look()?;
            let child = node.entry();
            if child.tag() != dw::DW_TAG_formal_parameter || child.attr(dw::DW_AT_artificial).is_some() {
                continue;
            }
            others += 1;
            let Some(kind) = self.reference(child, dw::DW_AT_type) else {
                continue;
            };
            let Some(kind) = self.strip(kind)? else { continue };
            if matches!(kind.tag(), dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type)
                && let Some(to) = self.reference(&kind, dw::DW_AT_type)
            {
                copied |= self.strip(to)?.is_some_and(|to| to.offset() == class);
            }
        }
        // An assignment takes the same, but gives something back.
        Ok(others == 1 && copied && function.attr(dw::DW_AT_type).is_none())
    }

    /// Where a parameter or, with `result`, a result of this type travels.
    pub(super) fn place(&self, kind: UnitOffset, result: bool) -> Decided<Place> {
        if self.is_by_reference(kind, DEPTH)? {
            return Ok(if result {
                Place::Stack { bytes: 8, align: 8 }
            } else {
                Place::Registers(vec![Class::Integer])
            });
        }
        let size = self.size(kind, DEPTH)?;
        let on_stack = || {
            let align = self.align(kind, DEPTH)?;
            Ok(Place::Stack { bytes: size, align })
        };
        if size > 16 {
            // A complex long double alone is the only such result in registers, those of the x87.
            let complex = self.strip(kind)?.is_some_and(|entry| is_complex(&entry));
            return if result && complex {
                Ok(Place::Registers(Vec::new()))
            } else {
                on_stack()
            };
        }
        let mut classes = vec![Class::Empty; size.div_ceil(8) as usize];
        self.classify(kind, 0, &mut classes, DEPTH)?;
        if !tidy(&mut classes) {
            return on_stack();
        }
        // A parameter lies on the stack, a result in the registers of the x87.
        match classes.contains(&Class::X87) {
            true if result => Ok(Place::Registers(Vec::new())),
            true => on_stack(),
            false => Ok(Place::Registers(classes)),
        }
    }

    pub(super) fn align(&self, kind: UnitOffset, depth: u32) -> Decided<u64> {
        let Some(entry) = self.strip(kind)? else { return Ok(1) };
        if depth == 0 {
            return Err(broken(()));
        }
        if let Some(align) = entry.attr_value(dw::DW_AT_alignment).and_then(|one| one.udata_value()) {
            return Ok(align.max(1));
        }
        match entry.tag() {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let (size, mut align) = (self.size(kind, depth)?, 1);
                self.members(&entry, |member| {
                    let own = self.align(member.kind, depth - 1)?;
                    // One that does not stand so is packed, or what it is made of is.
                    if (member.at / 8).is_multiple_of(own) && size.is_multiple_of(own) {
                        align = align.max(own);
                    }
                    Ok(())
                })?;
                Ok(align)
            }
            // Vectors are aligned to their size and travel in registers that not every processor has.
            dw::DW_TAG_array_type if entry.attr(dw::DW_AT_GNU_vector).is_some() => Err("a vector".to_string()),
            dw::DW_TAG_array_type => match self.reference(&entry, dw::DW_AT_type) {
                Some(element) => self.align(element, depth - 1),
                None => Err(broken(())),
            },
            _ => {
                let size = self.size(kind, depth)?;
                let size = if is_complex(&entry) { size / 2 } else { size };
                Ok(size.clamp(1, 16))
            }
        }
    }

    /// Calls `each` with every field.
    fn members(&self, entry: &Entry<'_>, mut each: impl FnMut(&Member) -> Decided<()>) -> Decided<()> {
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(entry.offset()))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        while let Some(child) = children.next().map_err(broken)? {
            self.look()?;
            let child = child.entry();
            if !matches!(child.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance) {
                continue;
            }
            let value = |name| child.attr_value(name).and_then(|one| one.udata_value());
            if child.tag() == dw::DW_TAG_member && value(dw::DW_AT_external).is_some() {
                continue;
            }
            let byte = value(dw::DW_AT_data_member_location).unwrap_or(0);
            let mut at = byte.checked_mul(8).ok_or_else(|| broken(()))?;
            let bits = value(dw::DW_AT_bit_size);
            if let Some(first) = value(dw::DW_AT_data_bit_offset) {
                at = first;
            } else if let (Some(bits), Some(from_top)) = (bits, value(dw::DW_AT_bit_offset)) {
                // DWARF 3 counts from the highest bit of a unit of so many bytes.
                let unit = value(dw::DW_AT_byte_size).unwrap_or(8).saturating_mul(8);
                at = at.saturating_add(unit).saturating_sub(from_top.saturating_add(bits));
            }
            if let Some(kind) = self.reference(child, dw::DW_AT_type) {
                each(&Member { kind, at, bits })?;
            }
        }
        Ok(())
    }

    /// Classifies the eight-byte parts of a type of at most 16 bytes that begins at a bit. Each type is brought to its end before
    /// it is merged with what lies beside it.
    fn classify(&self, kind: UnitOffset, at: u64, classes: &mut [Class], depth: u32) -> Decided<()> {
        let mut own = vec![Class::Empty; classes.len()];
        self.classify_parts(kind, at, &mut own, depth)?;
        if !tidy(&mut own) {
            own.fill(Class::Memory);
        }
        for (class, own) in classes.iter_mut().zip(own) {
            *class = class.merge(own);
        }
        Ok(())
    }

    fn classify_parts(&self, kind: UnitOffset, at: u64, classes: &mut [Class], depth: u32) -> Decided<()> {
        let Some(entry) = self.strip(kind)? else {
            return Ok(());
        };
        if depth == 0 {
            return Err(broken(()));
        }
        let size = self.size(kind, depth)?;
        match entry.tag() {
            dw::DW_TAG_array_type if entry.attr(dw::DW_AT_GNU_vector).is_some() => Err("a vector".to_string()),
            dw::DW_TAG_array_type => {
                let element = self.reference(&entry, dw::DW_AT_type).ok_or_else(|| broken(()))?;
                let each = self.size(element, depth - 1)?;
                let count = size.checked_div(each).unwrap_or(0);
                // At most 16 elements: the whole has at most 16 bytes.
                for index in 0..count.min(16) {
                    let first = (index * each).saturating_mul(8);
                    self.classify(element, at.saturating_add(first), classes, depth - 1)?;
                }
                Ok(())
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                self.members(&entry, |member| {
                    let first = at.saturating_add(member.at);
                    match member.bits {
                        Some(bits) => put(classes, first, bits, &[Class::Integer]),
                        None => self.classify(member.kind, first, classes, depth - 1)?,
                    }
                    Ok(())
                })
            }
            _ => {
                let class = self.class_of_number(&entry, size, depth < DEPTH)?;
                let whole = if is_complex(&entry) { size / 2 } else { size };
                // A field that its own type does not align goes to memory, and the whole with it.
                let aligned = (at / 8).is_multiple_of(whole.clamp(1, 16));
                put(
                    classes,
                    at,
                    size.saturating_mul(8),
                    if aligned { class } else { &[Class::Memory] },
                );
                Ok(())
            }
        }
    }

    /// The classes of what has no parts, alone or `within` something; the last counts for the rest.
    fn class_of_number(&self, entry: &Entry<'_>, size: u64, within: bool) -> Decided<&'static [Class]> {
        if is_reference(entry) || matches!(entry.tag(), dw::DW_TAG_enumeration_type | dw::DW_TAG_ptr_to_member_type) {
            return Ok(&[Class::Integer]);
        }
        if entry.tag() != dw::DW_TAG_base_type {
            return Err(format!("a parameter of kind {}", entry.tag()));
        }
        let encoding = match entry.attr_value(dw::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => Some(encoding),
            _ => None,
        };
        Ok(match encoding {
            Some(dw::DW_ATE_float) if size == 16 => match self.wide(entry)? {
                Wide::X87 => &[Class::X87, Class::X87Up],
                Wide::Quad if self.of_clang.get() && within => {
                    return Err("a structure with a __float128, which clang passes on the stack".to_string());
                }
                Wide::Quad => &[Class::Vector, Class::VectorUp],
            },
            Some(dw::DW_ATE_decimal_float) if size == 16 => &[Class::Vector, Class::VectorUp],
            Some(dw::DW_ATE_float | dw::DW_ATE_decimal_float | dw::DW_ATE_complex_float) => &[Class::Vector],
            _ => &[Class::Integer],
        })
    }

    /// A text of an entry, such as its name; empty if it has none.
    pub(super) fn string<'a>(&'a self, entry: &'a Entry<'_>, which: dw::DwAt) -> &'a [u8] {
        let string = |at: usize| self.strings.get(at..).unwrap_or_default();
        let text = match entry.attr_value(which) {
            Some(AttributeValue::String(name)) => name.slice(),
            Some(AttributeValue::DebugStrRef(at)) => string(at.0),
            // clang numbers its strings.
            Some(AttributeValue::DebugStrOffsetsIndex(index)) => {
                let at = index.0.saturating_mul(4).saturating_add(self.string_base.get());
                let offset = self.string_offsets.get(at..).and_then(<[u8]>::first_chunk);
                offset.map_or(&[][..], |offset| string(u32::from_le_bytes(*offset) as usize))
            }
            _ => &[],
        };
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// What a number of 16 bytes with a fraction is, which only its name says.
    fn wide(&self, entry: &Entry<'_>) -> Decided<Wide> {
        match self.string(entry, dw::DW_AT_name) {
            b"long double" | b"__float80" | b"_Float64x" => Ok(Wide::X87),
            b"_Float128" | b"__float128" => Ok(Wide::Quad),
            _ => Err("a number of 16 bytes".to_string()),
        }
    }
}

/// A number of two parts.
fn is_complex(entry: &Entry<'_>) -> bool {
    let complex = [dw::DW_ATE_complex_float, COMPLEX_INTEGER];
    matches!(entry.attr_value(dw::DW_AT_encoding), Some(AttributeValue::Encoding(one)) if complex.contains(&one))
}

/// What gcc writes for a complex number of integers (`DW_ATE_lo_user`).
const COMPLEX_INTEGER: gimli::DwAte = dw::DW_ATE_lo_user;

/// Merges the classes of `bits` bits from `at` on. A field may say that it is larger than the whole.
fn put(classes: &mut [Class], at: u64, bits: u64, with: &[Class]) {
    let end = at.saturating_add(bits).div_ceil(64).min(classes.len() as u64);
    for (index, part) in (at / 64..end).enumerate() {
        if let (Some(slot), Some(class)) = (classes.get_mut(part as usize), with.get(index).or(with.last())) {
            *slot = slot.merge(*class);
        }
    }
}
