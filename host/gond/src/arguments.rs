//! Options that the commands share: sizes, and errors of usage.

use std::ffi::OsString;

/// The command was used wrongly. Ends with exit status 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}

/// An error of usage, with the command whose help would answer it.
pub fn misused(command: &str, what: impl std::fmt::Display) -> anyhow::Error {
    Usage(format!("{what}; './gond help {command}' tells how to use it")).into()
}

/// The arguments of a command that has no options but perhaps flags and `--snapshot NAME`, and a fixed number of operands.
pub struct Operands {
    /// The operands, in order.
    pub values: Vec<OsString>,
    /// The flags that were given, without their dashes.
    pub flags: Vec<String>,
    /// The snapshot that was named.
    pub snapshot: Option<store::SnapshotName>,
}

impl Operands {
    /// Whether a flag was given.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }
}

/// Parses operands, called `names` in messages, and flags.
pub fn operands(command: &str, arguments: Vec<OsString>, names: &[&str], flags: &[&str]) -> anyhow::Result<Operands> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut found = Operands {
        values: Vec::new(),
        flags: Vec::new(),
        snapshot: None,
    };
    while let Some(argument) = parser.next().map_err(|error| misused(command, error))? {
        match argument {
            lexopt::Arg::Long("snapshot") if flags.contains(&"snapshot") => {
                let value = parser.value().map_err(|error| misused(command, error))?;
                found.snapshot = Some(snapshot(command, &value)?);
            }
            lexopt::Arg::Long(flag) if flags.contains(&flag) => found.flags.push(flag.to_owned()),
            lexopt::Arg::Value(value) => found.values.push(value),
            other => return Err(misused(command, other.unexpected())),
        }
    }
    if found.values.len() != names.len() {
        let names = if names.is_empty() {
            "no operands".into()
        } else {
            names.join(" ")
        };
        return Err(misused(command, format!("'{command}' takes {names}")));
    }
    Ok(found)
}

/// The operand as text; only file names may be anything else.
pub fn text(command: &str, value: &OsString) -> anyhow::Result<String> {
    value
        .clone()
        .into_string()
        .map_err(|_| misused(command, "a name must be UTF-8"))
}

/// The name of a snapshot.
pub fn snapshot(command: &str, value: &OsString) -> anyhow::Result<store::SnapshotName> {
    let name = value.to_str().and_then(store::SnapshotName::new);
    name.ok_or_else(|| {
        let given = value.to_string_lossy();
        let rule = "it has 1 to 31 letters, digits, '-', '_' and '.', and begins with a letter or a digit";
        misused(command, format!("a snapshot cannot be called '{given}': {rule}"))
    })
}

/// A size in bytes: a number with K, M, G or T (powers of 1024) behind it, perhaps with decimals, or none for bytes. It may stand as
/// [`show_size`] shows it. Parts of a byte count as one.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['B', 'b', 'i']);
    let (number, shift) = match digits.chars().last()? {
        'k' | 'K' => (&digits[..digits.len() - 1], 10),
        'm' | 'M' => (&digits[..digits.len() - 1], 20),
        'g' | 'G' => (&digits[..digits.len() - 1], 30),
        't' | 'T' => (&digits[..digits.len() - 1], 40),
        _ => (digits, 0),
    };
    let number = number.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_decimal = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(decimals) || decimals.len() > 9 || (shift == 0 && number.contains('.')) {
        return None;
    }
    let part = (decimals.parse::<u128>().ok()? << shift).div_ceil(10_u128.pow(decimals.len() as u32)) as u64;
    let bytes = whole.parse::<u64>().ok()?.checked_mul(1 << shift)?.checked_add(part)?;
    Some(bytes).filter(|&bytes| bytes > 0)
}

/// A number of things, in words: `1 fault`, `2 faults`.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A size for people: `3.7 MiB`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if unit == 0 || tenths % 10 == 0 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("64M"), Some(64 << 20));
        assert_eq!(size("1GiB"), Some(1 << 30));
        for text in ["1.5G", "1.5GiB", "1.5 GiB", "1536 M"] {
            assert_eq!(size(text), Some(3 << 29), "{text}");
        }
        for text in ["1.5", ".5G", "1.G", "1.+5G", "1.5.5G", "G", " G"] {
            assert_eq!(size(text), None, "{text}");
        }
        assert_eq!(size("0"), None);
        assert_eq!(size("99999999999T"), None);
        assert_eq!(size("much"), None);
        assert_eq!(size(""), None);
        assert_eq!(show_size(3 << 19), "1.5 MiB");
        assert_eq!(show_size(100), "100 B");
        assert_eq!(show_size(u64::MAX), "16777215.9 TiB");
    }
}
