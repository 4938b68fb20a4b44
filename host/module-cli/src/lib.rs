//! `gond module`: builds, shows and compares modules, and runs them in a process of the host.

pub mod host;
pub mod make;

/// Flags of gcc for objects that become modules: the data register is left alone, code is position-independent
/// with calls to others through a table, their variables too; debug information says how arguments are passed.
pub const GCC_FLAGS: [&str; 9] = [
    "-ffixed-rbx",
    "-fpie",
    "-fno-plt",
    "-mno-direct-extern-access",
    "-fcf-protection=none",
    "-ffunction-sections",
    "-fdata-sections",
    "-g",
    "-c",
];
