//! What a caller must know of a function to call it without the compiler's help: which words it takes in
//! registers, and which it gives back. The header of `gond module header` is written from it.

use super::{AttributeValue, Decided, Entry, Unit, UnitOffset, broken, dw, is_reference};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Integers and pointers that travel in registers (psABI, section 3.2.3).
const INTEGERS_MAX: usize = 6;
/// Numbers with a fraction that do.
const VECTORS_MAX: usize = 8;

/// A value of one register.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scalar {
    /// An integer of 1, 2, 4 or 8 bytes.
    Integer {
        /// How many.
        bytes: u8,
        /// With a sign.
        signed: bool,
    },
    /// True or false.
    Boolean,
    /// An address.
    Pointer,
    /// A number with a fraction, of 4 bytes.
    Single,
    /// One of 8 bytes.
    Double,
}

impl Scalar {
    /// Whether it travels in a vector register.
    pub const fn is_vector(self) -> bool {
        matches!(self, Self::Single | Self::Double)
    }
}

/// A function whose parameters and result each have a register.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Signature {
    /// What it gives back, if anything.
    pub result: Option<Scalar>,
    /// What it takes, in order.
    pub parameters: Vec<Scalar>,
}

impl Unit<'_> {
    /// The signature of the function at an entry.
    ///
    /// # Errors
    /// Why it has none, in words that go on "because it has".
    pub(super) fn signature(&self, entry: &Entry<'_>) -> Decided<Signature> {
        let declaration = self.declaration(entry)?;
        let mut signature = Signature::default();
        if let Some(result) = self.inherited_type(&self.entry(declaration)?)? {
            signature.result = self.scalar(result, "a result")?;
        }
        let mut tree = self
            .header
            .entries_tree(&self.abbreviations, Some(declaration))
            .map_err(broken)?;
        let mut children = tree.root().map_err(broken)?.children();
        while let Some(child) = children.next().map_err(broken)? {
            match child.entry().tag() {
                dw::DW_TAG_unspecified_parameters => return Err("a variable number of parameters".to_string()),
                dw::DW_TAG_formal_parameter => {}
                _ => continue,
            }
            let kind = self.inherited_type(child.entry())?;
            let kind = kind.map_or(Ok(None), |kind| self.scalar(kind, "a parameter"))?;
            let kind = kind.ok_or_else(|| "a parameter without a type".to_string())?;
            signature.parameters.push(kind);
        }
        let vectors = signature.parameters.iter().filter(|one| one.is_vector()).count();
        if vectors > VECTORS_MAX || signature.parameters.len() - vectors > INTEGERS_MAX {
            return Err("parameters on the stack".to_string());
        }
        Ok(signature)
    }

    /// The scalar of a type; none for `void`. `what` is for the message.
    fn scalar(&self, kind: UnitOffset, what: &str) -> Decided<Option<Scalar>> {
        let Some(entry) = self.strip(kind)? else {
            return Ok(None);
        };
        if is_reference(&entry) {
            return Ok(Some(Scalar::Pointer));
        }
        let refuse = |kind: &str| {
            let mut text = String::from(what);
            text.push_str(" that is ");
            text.push_str(kind);
            Err(text)
        };
        let size = entry.attr_value(dw::DW_AT_byte_size).and_then(|one| one.udata_value());
        let encoding = match entry.attr_value(dw::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => Some(encoding),
            _ => None,
        };
        let integer = |signed| match size {
            Some(bytes @ (1 | 2 | 4 | 8)) => Ok(Some(Scalar::Integer {
                bytes: bytes as u8,
                signed,
            })),
            _ => refuse("wider than a register"),
        };
        match (entry.tag(), encoding) {
            (dw::DW_TAG_enumeration_type, _) => integer(encoding == Some(dw::DW_ATE_signed)),
            (dw::DW_TAG_base_type, Some(dw::DW_ATE_boolean)) => Ok(Some(Scalar::Boolean)),
            (dw::DW_TAG_base_type, Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char)) => integer(true),
            (dw::DW_TAG_base_type, Some(dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF)) => {
                integer(false)
            }
            (dw::DW_TAG_base_type, Some(dw::DW_ATE_float)) => match size {
                Some(4) => Ok(Some(Scalar::Single)),
                Some(8) => Ok(Some(Scalar::Double)),
                _ => refuse("a number wider than double"),
            },
            (dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type, _) => refuse("a structure"),
            _ => refuse("of a kind that does not travel in one register"),
        }
    }
}
