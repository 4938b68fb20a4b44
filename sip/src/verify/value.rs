//! The verifier's knowledge of a register or stack slot: the abstract values, and how they join.
//!
//! A number that is not constant carries a *symbol*: the name of the place where it came to be. Two
//! locations with the same symbol hold the same number, so that a comparison of one copy says
//! something of the others. A symbol always means the value of the most recent execution of its
//! place; when the place is executed again, every older holder is forgotten.

/// Name of an unknown number; 0 is the number nought.
pub(super) type Symbol = u64;

/// A symbol without identity: two holders need not hold the same number, and nothing is learnt of it.
pub(super) const NAMELESS: Symbol = u64::MAX;

/// A number `(symbol << shift) + add`, which lies in `lo..=hi` and did not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    pub symbol: Symbol,
    pub shift: u8,
    pub add: i64,
    pub lo: i64,
    pub hi: i64,
}

impl Linear {
    /// A constant.
    pub const fn constant(value: i64) -> Self {
        Self {
            symbol: 0,
            shift: 0,
            add: value,
            lo: value,
            hi: value,
        }
    }

    /// An unknown number up to `hi`.
    pub const fn unknown(symbol: Symbol, hi: i64) -> Self {
        Self {
            symbol,
            shift: 0,
            add: 0,
            lo: 0,
            hi,
        }
    }

    /// Whether it is known wholly.
    pub const fn is_constant(&self) -> bool {
        self.lo == self.hi && self.symbol == 0
    }

    /// This number without the constant that is added. Nought is nought, however far it is shifted.
    pub const fn term(&self) -> Term {
        Term {
            symbol: self.symbol,
            shift: if self.symbol == 0 { 0 } else { self.shift },
        }
    }

    /// This number plus a constant.
    pub fn plus(&self, value: i64) -> Option<Self> {
        Some(Self {
            add: self.add.checked_add(value)?,
            lo: self.lo.checked_add(value)?,
            hi: self.hi.checked_add(value)?,
            ..*self
        })
    }

    /// The sum of two; `fresh` names it if neither is constant.
    pub fn sum(&self, other: &Self, fresh: Symbol) -> Option<Self> {
        if other.is_constant() {
            return self.plus(other.add);
        }
        if self.is_constant() {
            return other.plus(self.add);
        }
        let (lo, hi) = (self.lo.checked_add(other.lo)?, self.hi.checked_add(other.hi)?);
        Some(Self {
            symbol: fresh,
            shift: 0,
            add: 0,
            lo,
            hi,
        })
    }

    /// This number shifted left.
    pub fn shifted(&self, by: u8) -> Option<Self> {
        if by == 0 {
            return Some(*self);
        }
        let times = |value: i64| value.checked_mul(1i64.checked_shl(u32::from(by))?);
        (by < 32).then_some(())?;
        Some(Self {
            symbol: self.symbol,
            shift: self.shift.checked_add(by)?,
            add: times(self.add)?,
            lo: times(self.lo)?,
            hi: times(self.hi)?,
        })
    }
}

/// The place of an element of a table, or of an entry of the handle table: table and linear offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub table: u32,
    pub symbol: Symbol,
    pub shift: u8,
    pub add: i64,
}

/// A length that code compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Memory(u32),
    Table(u32),
    Block(Place),
}

/// The object that a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Context,
    Runtime,
    Memory(u32),
    MemoryLength(u32),
    Table(u32),
    TableLength(u32),
    Cell(u32),
    Handles,
    Block(Place),
    Code,
}

/// A field of a table's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Code,
    Context,
    Signature,
}

/// An abstract value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Anything.
    Any,
    /// A number in `0..=i64::MAX`.
    Number(Linear),
    /// An address.
    Pointer(Base, Linear),
    /// The value that the register with this number held at the function's entry.
    Entry(u8),
    /// The stack pointer at entry, plus this.
    Stack(i64),
    /// A length.
    Length(Length),
    /// The stack limit, plus this.
    StackLimit(i64),
    /// The engine's number of a type of the module.
    Signature(u32),
    /// A field of an element.
    Element(Place, Field),
    /// Code of an import.
    ImportCode(u32),
    /// Context of an import.
    ImportContext(u32),
    /// Code of a built-in function.
    Builtin,
    /// An entry of the jump table at this code offset, with so many entries.
    JumpEntry(u32, u32),
    /// An address that jumps through that table go to.
    JumpTarget(u32, u32),
}

impl Value {
    /// Whether it depends on a symbol of which `named` is true.
    pub fn holds(&self, mut named: impl FnMut(Symbol) -> bool) -> bool {
        match self {
            Self::Number(linear) => named(linear.symbol),
            Self::Pointer(base, linear) => {
                named(linear.symbol) || matches!(base, Base::Block(place) if named(place.symbol))
            }
            Self::Element(place, _) | Self::Length(Length::Block(place)) => named(place.symbol),
            _ => false,
        }
    }

    /// The same with other names.
    pub fn renamed(&self, rename: impl Fn(Symbol) -> Symbol) -> Self {
        let linear = |linear: &Linear| Linear {
            symbol: rename(linear.symbol),
            ..*linear
        };
        let place = |place: &Place| Place {
            symbol: rename(place.symbol),
            ..*place
        };
        match self {
            Self::Number(number) => Self::Number(linear(number)),
            Self::Pointer(Base::Block(of), at) => Self::Pointer(Base::Block(place(of)), linear(at)),
            Self::Pointer(base, at) => Self::Pointer(*base, linear(at)),
            Self::Element(of, field) => Self::Element(place(of), *field),
            Self::Length(Length::Block(of)) => Self::Length(Length::Block(place(of))),
            other => *other,
        }
    }

    /// The rest of it when the name of its symbol goes to another number: only its range.
    pub fn nameless(&self) -> Self {
        let keep = |linear: &Linear| Linear {
            symbol: NAMELESS,
            shift: 0,
            add: 0,
            ..*linear
        };
        match self {
            Self::Number(linear) => Self::Number(keep(linear)),
            Self::Pointer(base, linear) if !matches!(base, Base::Block(_)) => Self::Pointer(*base, keep(linear)),
            _ => Self::Any,
        }
    }

    /// Whether a call may make it untrue: it stands for the content of a table's element or of a
    /// handle's entry.
    pub fn is_perishable(&self) -> bool {
        matches!(
            self,
            Self::Element(..) | Self::Length(Length::Block(_)) | Self::Pointer(Base::Block(_), _)
        )
    }

    /// The least value that covers both; `fresh` names a number that has no name common to both.
    pub fn join(&self, other: &Self, fresh: Symbol) -> Self {
        if self == other {
            return *self;
        }
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(join_linear(a, b, fresh, 0)),
            (Self::Pointer(base, a), Self::Pointer(other, b)) if base == other => {
                Self::Pointer(*base, join_linear(a, b, fresh, i64::MIN))
            }
            _ => Self::Any,
        }
    }
}

/// Joins `b`, which arrives, with `a`, which is known.
///
/// Whatever is not as it was is widened at once, so that loops settle: a sum that a loop makes of its own result has one
/// name in every turn, and would grow by the same each time. `lo` changes at most twice and `hi` four times while the
/// name stays, and the name changes once, to that of the block (`fresh`).
fn join_linear(a: &Linear, b: &Linear, fresh: Symbol, least: i64) -> Linear {
    let same = (a.symbol, a.shift, a.add) == (b.symbol, b.shift, b.add) && a.symbol != 0;
    let (lo, hi) = (a.lo.min(b.lo), a.hi.max(b.hi));
    let lo = match lo {
        _ if same && lo == a.lo => lo,
        0.. => 0,
        _ => least,
    };
    let widths = [0xff, 0xffff, i64::from(u32::MAX)];
    let hi = match widths.into_iter().find(|width| hi <= *width) {
        _ if same && hi == a.hi => hi,
        width => width.unwrap_or(i64::MAX),
    };
    if same {
        return Linear { lo, hi, ..*a };
    }
    Linear {
        symbol: fresh,
        shift: 0,
        add: 0,
        lo,
        hi,
    }
}

/// The number `symbol << shift`: what is known of a number beside a length, it is known of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub symbol: Symbol,
    pub shift: u8,
}

impl Term {
    /// A symbol itself.
    pub const fn of(symbol: Symbol) -> Self {
        Self { symbol, shift: 0 }
    }
}

/// Something known beyond the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// `term + slack` is at most the length.
    Within(Length, Term, i64),
    /// The element at this place has the signature of a type of the module.
    Typed(Place),
}
