//! The manual page and the C header, made from the tables.
//!
//! `cargo test -p abi` compares both with what is committed (`docs/spec/abi.md`,
//! `abi/golden/gondwana.h`); with `GOND_BLESS=1` it writes them anew.

use core::fmt::{Result, Write};

mod items;

use crate::{
    Error,
    call::{self, CallInfo},
    machine, nucleus,
};
use items::{PARTS, RIGHTS, c_items};

/// A table of calls as the manual and the header show it.
struct Shown {
    /// The prefix of the names in C, where all tables share one space of names.
    prefix: &'static str,
    title: &'static str,
    /// An introduction before the first call.
    about: &'static str,
    calls: &'static [CallInfo],
}

const TABLES: [Shown; 3] = [
    Shown {
        prefix: "",
        title: "Calls",
        about: "",
        calls: call::TABLE,
    },
    Shown {
        prefix: "Nucleus",
        title: "Calls of the bare \u{b5}-kernel",
        about: "Answered by the kernel itself, for programs that run on it without the server (the image `kernel-bare`). Arguments and results as above; `Ipc` also takes and gives the first words of a message in r12 to r15.\n\n",
        calls: nucleus::TABLE,
    },
    Shown {
        prefix: "Machine",
        title: "Machine calls",
        about: "Answered by the kernel for the server outside of it, and for nobody else (decision 0038). Events come to the server as upcalls (below).\n\n",
        calls: machine::TABLE,
    },
];

/// Registers of the arguments, in order.
const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "r10", "r8", "r9"];

/// Writes the manual of all calls and errors, in Markdown.
///
/// # Errors
/// Only those of the writer.
pub fn manual(out: &mut dyn Write) -> Result {
    writeln!(out, "# The system call interface\n")?;
    writeln!(
        out,
        "Made from the tables in `abi/src`; do not edit (`GOND_BLESS=1 cargo test -p abi`).\n"
    )?;
    writeln!(
        out,
        "The number goes into rax, arguments into {}. The error comes back in rax (0 is success), the value in rdx, a second value in rsi. Every other register is clobbered. Times are nanoseconds, sizes bytes unless the name says pages.\n",
        REGISTERS.commas()
    )?;
    for (index, table) in TABLES.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        calls(out, table)?;
    }
    writeln!(out, "\n## Errors\n\n| code | name | meaning |\n|---|---|---|")?;
    for error in Error::ALL {
        writeln!(out, "| {} | {} | {} |", *error as u64, error.name(), error.text())?;
    }
    writeln!(out, "\n## Rights\n\n| bits | name | shown as |\n|---|---|---|")?;
    for (name, rights) in RIGHTS {
        writeln!(out, "| {} | {name} | `{rights}` |", rights.bits())?;
    }
    writeln!(out, "\n## Upcalls\n\n| number | `Upcall` |\n|---|---|")?;
    for upcall in (0..).map_while(machine::Upcall::from_number) {
        writeln!(out, "| {} | {upcall:?} |", upcall as u64)?;
    }
    writeln!(
        out,
        "\n## Reports\n\nA *report* is a layout that the system writes for a program. The caller says for how many bytes it has room; the system writes whole words as far as they fit and gives the length of its version. Later versions only add words at the end, so the length is the version (decision 0080)."
    )?;
    for part in &PARTS {
        writeln!(out, "\n## {}\n", part.title)?;
        items::manual(out, part)?;
    }
    Ok(())
}

/// Writes one table of calls.
fn calls(out: &mut dyn Write, table: &Shown) -> Result {
    let prefix = table.prefix;
    writeln!(out, "## {}\n", table.title)?;
    write!(out, "{}", table.about)?;
    writeln!(out, "| no. | call | gives | needs |\n|---|---|---|---|")?;
    for info in table.calls {
        let number = info.number;
        let anchor = (Lower(prefix), Lower(info.name));
        write!(
            out,
            "| {number} | [`{prefix}{}`](#{}{})(",
            info.name, anchor.0, anchor.1
        )?;
        list(out, info.arguments)?;
        write!(out, ") | {}", or_dash(info.value))?;
        if !info.value2.is_empty() {
            write!(out, ", {}", info.value2)?;
        }
        writeln!(out, " | {} |", info.needs)?;
    }
    for info in table.calls {
        writeln!(out, "\n### {prefix}{}\n", info.name)?;
        write!(out, "`{}(", info.rust_name)?;
        list(out, info.arguments)?;
        writeln!(out, ")`, number {}. Needs: {}.", info.number, info.needs)?;
        if !info.arguments.is_empty() {
            write!(out, "Arguments:")?;
            for (argument, register) in info.arguments.iter().zip(REGISTERS) {
                write!(out, " `{argument}` in {register};")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\n{}", info.text)?;
    }
    Ok(())
}

/// Writes the C header: numbers, errors and inline stubs.
///
/// # Errors
/// Only those of the writer.
pub fn header(out: &mut dyn Write) -> Result {
    writeln!(
        out,
        "/* Made from the tables in abi/src; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */"
    )?;
    writeln!(
        out,
        "#ifndef GONDWANA_H\n#define GONDWANA_H\n#include <stddef.h>\n#include <stdint.h>\n#ifdef __cplusplus\n#define _Static_assert static_assert\n#endif\n"
    )?;
    writeln!(
        out,
        "typedef struct {{ uint64_t error, value, value2; }} gond_result;\n"
    )?;
    for error in Error::ALL {
        writeln!(out, "#define GOND_E_{} {}", error.name(), *error as u64)?;
    }
    for (name, rights) in RIGHTS {
        writeln!(out, "#define GOND_RIGHT_{name} UINT64_C({})", rights.bits())?;
    }
    for part in &PARTS {
        c_items(out, part)?;
    }
    writeln!(
        out,
        "\n/* rbx, rbp and r12 to r15 do not survive a call: the stub keeps rbx and rbp, the compiler the rest. */"
    )?;
    writeln!(
        out,
        "static inline gond_result gond_call(uint64_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {{"
    )?;
    writeln!(
        out,
        "    gond_result r; register uint64_t r10 __asm__(\"r10\") = d, r8 __asm__(\"r8\") = e, r9 __asm__(\"r9\") = f;"
    )?;
    writeln!(
        out,
        "    __asm__ volatile(\"sub $128, %%rsp; push %%rbx; push %%rbp; syscall; pop %%rbp; pop %%rbx; add $128, %%rsp\""
    )?;
    writeln!(
        out,
        "        : \"=a\"(r.error), \"=d\"(r.value), \"=S\"(r.value2), \"+D\"(a), \"+r\"(r10), \"+r\"(r8), \"+r\"(r9)"
    )?;
    writeln!(
        out,
        "        : \"a\"(n), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"r12\", \"r13\", \"r14\", \"r15\", \"memory\", \"cc\");"
    )?;
    writeln!(out, "    return r;\n}}\n")?;
    for table in &TABLES {
        for info in table.calls {
            stub(out, table.prefix, info)?;
        }
    }
    writeln!(out, "\n#endif")
}

/// Writes the inline function of one call.
fn stub(out: &mut dyn Write, prefix: &str, info: &CallInfo) -> Result {
    write!(out, "static inline gond_result {prefix}{}(", info.name)?;
    if info.arguments.is_empty() {
        write!(out, "void")?;
    }
    for (index, argument) in info.arguments.iter().enumerate() {
        write!(out, "{}uint64_t {argument}", if index == 0 { "" } else { ", " })?;
    }
    write!(out, ") {{ return gond_call({}", info.number)?;
    for index in 0..6 {
        write!(out, ", {}", info.arguments.get(index).unwrap_or(&"0"))?;
    }
    writeln!(out, "); }}")
}

fn list(out: &mut dyn Write, names: &[&str]) -> Result {
    for (index, name) in names.iter().enumerate() {
        write!(out, "{}{name}", if index == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

/// Shows a name in lower case, as anchors want it.
struct Lower(&'static str);

impl core::fmt::Display for Lower {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> Result {
        self.0
            .chars()
            .try_for_each(|letter| f.write_char(letter.to_ascii_lowercase()))
    }
}

/// `join` without an allocator.
trait Commas {
    fn commas(&self) -> Joined<'_>;
}

impl Commas for [&'static str; 6] {
    fn commas(&self) -> Joined<'_> {
        Joined(self)
    }
}

/// Shows names with commas between them.
struct Joined<'a>(&'a [&'static str]);

impl core::fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> Result {
        list(f, self.0)
    }
}

#[cfg(test)]
mod tests;
