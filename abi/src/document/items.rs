//! Constants and layouts in the manual and in the C header.

use core::fmt::{Result, Write};

use crate::{
    Rights, address, host,
    interface::{Item, Value, What},
    kernel_page, layout, machine, nucleus, start,
};

/// Constants and layouts of one module, as the manual and the header show them.
pub(super) struct Part {
    pub(super) title: &'static str,
    /// The prefix of the names in C, where all modules share one space of names.
    prefix: &'static str,
    items: &'static [Item],
}

pub(super) const PARTS: [Part; 7] = [
    Part {
        title: "Addresses",
        prefix: "",
        items: address::ITEMS,
    },
    Part {
        title: MEMORY,
        prefix: "",
        items: layout::ITEMS,
    },
    Part {
        title: "The start page",
        prefix: "",
        items: start::ITEMS,
    },
    Part {
        title: "The kernel page",
        prefix: "",
        items: kernel_page::ITEMS,
    },
    Part {
        title: "The host",
        prefix: "HOST_",
        items: host::ITEMS,
    },
    Part {
        title: "The bare \u{b5}-kernel",
        prefix: "NUCLEUS_",
        items: nucleus::ITEMS,
    },
    Part {
        title: "The server outside of the kernel",
        prefix: "MACHINE_",
        items: machine::ITEMS,
    },
];

/// Title of the part with [`APD`].
const MEMORY: &str = "What passes through memory";

/// Rights by their names in Rust.
pub(super) const RIGHTS: [(&str, Rights); 10] = [
    ("NONE", Rights::NONE),
    ("X", Rights::X),
    ("W", Rights::W),
    ("R", Rights::R),
    ("D", Rights::D),
    ("P", Rights::P),
    ("RW", Rights::RW),
    ("RX", Rights::RX),
    ("RWX", Rights::RWX),
    ("OWNER", Rights::OWNER),
];

/// The one layout that is not words alone: two words, then an array.
const APD: (&str, &str) = (
    "ApdDescription",
    "An active protection domain as it passes through memory: the addresses of the Clists in the order in which they are searched. Never passwords. A report of `ApdGet`, an argument of `TaskCreate` and `PdxCall`.",
);

/// Writes constants as a table, and a table for each layout.
pub(super) fn manual(out: &mut dyn Write, part: &Part) -> Result {
    writeln!(out, "| constant | value | meaning |\n|---|---|---|")?;
    for item in part.items {
        if let What::Constant(value) = item.what {
            writeln!(out, "| `{}` | `{}` | {} |", item.name, Plain(value()), Prose(item.text))?;
        }
    }
    if part.title == MEMORY {
        writeln!(
            out,
            "\n### {}\n\n{}\n\n| offset | field | meaning |\n|---|---|---|",
            APD.0, APD.1
        )?;
        writeln!(
            out,
            "| 0 | `count` | Slots in use. |\n| 8 | `locked` | Leading slots that are locked. |"
        )?;
        writeln!(out, "| 16 | `slots[{}]` | Addresses of Clists. |", layout::APD_SLOTS)?;
    }
    for item in part.items {
        if let What::Layout(fields) = item.what {
            writeln!(
                out,
                "\n### {}\n\n{} {} bytes.\n",
                item.name,
                Prose(item.text),
                fields.len() * 8
            )?;
            writeln!(out, "| offset | field | meaning |\n|---|---|---|")?;
            for (name, text, offset) in fields {
                writeln!(out, "| {offset} | `{name}` | {} |", Prose(text))?;
            }
        }
    }
    Ok(())
}

/// A value as people read it: large numbers are addresses and bits.
struct Plain(Value);

impl core::fmt::Display for Plain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> Result {
        match self.0 {
            Value::Word(word) if word < 10_000 => write!(f, "{word}"),
            Value::Word(word) => write!(f, "{word:#x}"),
            Value::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

/// A documentation comment as one line of prose, without links.
struct Prose(&'static str);

impl core::fmt::Display for Prose {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> Result {
        for letter in self.0.trim().chars().filter(|letter| !matches!(letter, '[' | ']')) {
            match letter {
                '|' => f.write_str("\\|")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Writes the constants and layouts of a module for C, with what the compiler checks of them.
pub(super) fn c_items(out: &mut dyn Write, part: &Part) -> Result {
    writeln!(out, "\n/* {} */", part.title)?;
    for item in part.items {
        if let What::Constant(value) = item.what {
            write!(out, "#define GOND_{}{} ", part.prefix, item.name)?;
            match value() {
                Value::Word(word) => writeln!(out, "UINT64_C({})", Plain(Value::Word(word)))?,
                Value::Text(text) => writeln!(out, "\"{text}\"")?,
            }
        }
    }
    for item in part.items {
        if let What::Layout(fields) = item.what {
            c_layout(
                out,
                item.name,
                fields.iter().map(|(name, _, offset)| (*name, *offset, 1)),
            )?;
        }
    }
    if part.title == MEMORY {
        let fields = [("count", 0, 1), ("locked", 8, 1), ("slots", 16, layout::APD_SLOTS)];
        c_layout(out, APD.0, fields.into_iter())?;
    }
    Ok(())
}

/// Writes a structure for C: name, offset and words of each field.
fn c_layout(
    out: &mut dyn Write,
    name: &'static str,
    fields: impl Iterator<Item = (&'static str, usize, usize)> + Clone,
) -> Result {
    writeln!(out, "typedef struct {{")?;
    for (field, _, words) in fields.clone() {
        match words {
            1 => writeln!(out, "    uint64_t {field};")?,
            words => writeln!(out, "    uint64_t {field}[{words}];")?,
        }
    }
    let c = Snake(name);
    writeln!(out, "}} gond_{c};")?;
    let words: usize = fields.clone().map(|(_, _, words)| words).sum();
    writeln!(out, "_Static_assert(sizeof(gond_{c}) == {}, \"{name}\");", words * 8)?;
    for (field, offset, _) in fields {
        writeln!(
            out,
            "_Static_assert(offsetof(gond_{c}, {field}) == {offset}, \"{name}.{field}\");"
        )?;
    }
    Ok(())
}

/// Shows a name in camel case as C has it: `exit_report`.
pub(super) struct Snake(pub(super) &'static str);

impl core::fmt::Display for Snake {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> Result {
        for (index, letter) in self.0.char_indices() {
            if letter.is_ascii_uppercase() && index > 0 {
                f.write_char('_')?;
            }
            f.write_char(letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}
