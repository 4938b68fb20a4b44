//! The table of constants and layouts: `interface!` defines them, and with them what the manual, the C header and their
//! golden files say of them. A constant or structure that passes the boundary is defined in no other way; a test reads
//! the sources for some that are.

/// A constant or a layout, as the manual and the header show it.
#[derive(Debug)]
pub struct Item {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its meaning.
    pub text: &'static str,
    /// Its kind.
    pub what: What,
}

/// The kind of an [`Item`].
#[derive(Debug)]
pub enum What {
    /// A constant.
    Constant(fn() -> Value),
    /// A structure of words: each field's name, what it means, its offset in bytes.
    Layout(&'static [(&'static str, &'static str, usize)]),
}

/// The value of a constant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Word(u64),
    /// A text.
    Text(&'static str),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Value {
    fn from(word: usize) -> Self {
        Self::Word(word as u64)
    }
}

macro_rules! values {
    ($($word:ident)*) => { $(
        impl From<$word> for Value {
            fn from(word: $word) -> Self {
                Self::Word(word.into())
            }
        }
    )* };
}
values!(u8 u16 u32 u64);

/// Defines constants, `repr(C)` structures of 64-bit words with conversions from and to words, and `ITEMS`, which lists them.
macro_rules! interface {
    ($(
        $(#[doc = $text:literal])+
        $kind:ident $name:ident
        $(: $type:ty = $value:expr;)?
        $({ $($(#[doc = $field_text:literal])+ $field:ident,)* })?
    )*) => {
        $(
            $(#[doc = $text])+
            $(pub $kind $name: $type = $value;)?
            $(
                #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
                #[repr(C)]
                pub $kind $name { $($(#[doc = $field_text])+ pub $field: u64,)* }

                impl $name {
                    /// Names of the fields, in order.
                    pub const FIELDS: &'static [&'static str] = &[$(stringify!($field),)*];
                    /// Size in words.
                    pub const WORDS: usize = Self::FIELDS.len();
                    /// Size in bytes.
                    pub const BYTES: usize = Self::WORDS * 8;

                    /// The words, in order.
                    pub const fn to_words(&self) -> [u64; [$(stringify!($field),)*].len()] {
                        [$(self.$field,)*]
                    }

                    /// From words, in order.
                    pub const fn from_words(words: [u64; [$(stringify!($field),)*].len()]) -> Self {
                        let [$($field,)*] = words;
                        Self { $($field,)* }
                    }

                    /// The bytes, little-endian.
                    pub fn to_bytes(&self) -> [u8; [$(stringify!($field),)*].len() * 8] {
                        let mut bytes = [0; [$(stringify!($field),)*].len() * 8];
                        for (place, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
                            place.copy_from_slice(&word.to_le_bytes());
                        }
                        bytes
                    }

                    /// From bytes, little-endian.
                    pub fn from_bytes(bytes: &[u8; [$(stringify!($field),)*].len() * 8]) -> Self {
                        let mut words = [0; [$(stringify!($field),)*].len()];
                        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                            *word = u64::from_le_bytes(place.try_into().unwrap_or_default());
                        }
                        Self::from_words(words)
                    }
                }
            )?
        )*

        /// All constants and layouts of this module, in order.
        pub const ITEMS: &[$crate::interface::Item] = &[$($crate::interface::Item {
            name: stringify!($name),
            text: concat!($($text,)+),
            what: $($crate::interface::What::Constant(|| <$type as Into<$crate::interface::Value>>::into($name)))?
                $($crate::interface::What::Layout(&[
                    $((stringify!($field), concat!($($field_text,)+), core::mem::offset_of!($name, $field)),)*
                ]))?,
        },)*];
    };
}
pub(crate) use interface;
