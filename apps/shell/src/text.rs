//! Text of the command line: words, numbers, sizes, rights. All of it pure.

use alloc::{string::String, vec::Vec};
use core::fmt;

use rt::Rights;

/// Why a line has no words.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LineError {
    /// A quote is not closed.
    OpenQuote(char),
    /// A backslash is the last character.
    LastBackslash,
    /// Something that other shells have and this one has not.
    Operator(char),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenQuote(quote) => write!(f, "the quote {quote} is not closed"),
            Self::LastBackslash => f.write_str("there is nothing behind the backslash"),
            Self::Operator(operator) => write!(
                f,
                "there are no redirections, pipes or lists of commands: quote '{operator}' to have it as it is"
            ),
        }
    }
}

/// Cuts a line into words. Blanks separate; `'` quotes everything, `"` everything but `\`, which takes
/// the next character as it is; `#` at the beginning of a word begins a comment. What would redirect or join commands
/// elsewhere is refused rather than taken as a word: `> < |` anywhere, `& ;` where a word may end.
pub fn words(line: &str) -> Result<Vec<String>, LineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None | Some('"'), '\\') => {
                word.get_or_insert_default()
                    .push(characters.next().ok_or(LineError::LastBackslash)?);
            }
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '>' | '<' | '|') => return Err(LineError::Operator(character)),
            (None, '&' | ';')
                if characters
                    .as_str()
                    .chars()
                    .next()
                    .is_none_or(|next| next == character || next.is_whitespace()) =>
            {
                return Err(LineError::Operator(character));
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.map_or(Ok(words), |open| Err(LineError::OpenQuote(open)))
}

/// Where the last word of a line that is still being typed begins (in bytes), and that word without its quotes.
pub fn last_word(line: &str) -> (usize, String) {
    let (mut start, mut word, mut quote) = (0, String::new(), None);
    let mut characters = line.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None | Some('"'), '\\') => word.extend(characters.next().map(|(_, next)| next)),
            (None, '\'' | '"') => quote = Some(character),
            (None, _) if character.is_whitespace() => {
                start = at + character.len_utf8();
                word.clear();
            }
            _ => word.push(character),
        }
    }
    (start, word)
}

/// A number: decimal, or hexadecimal behind `0x`.
pub fn number(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // A sign is no digit.
    let digits = Some(digits).filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// A size in bytes: a number, and `K`, `M`, `G` or `T` behind it, perhaps with decimals. It may stand as [`Bytes`] shows it:
/// `1.5 MiB`. Parts of a byte count as one.
pub fn size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let hexadecimal = lower.starts_with("0x");
    // Behind hexadecimal digits a `b` is one of them.
    let binary = lower.strip_suffix("ib");
    let plain = lower.strip_suffix('b').filter(|_| !hexadecimal);
    let unit = binary.or(plain).unwrap_or(&lower);
    let shift = match unit.chars().last()? {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ if binary.is_some() => return None,
        _ => 0,
    };
    let digits = unit.get(..unit.len() - usize::from(shift > 0))?.trim_end();
    let Some((whole, decimals)) = digits.split_once('.') else {
        return number(digits)?.checked_mul(1 << shift);
    };
    if shift == 0 || !is_decimal(whole) || !is_decimal(decimals) || decimals.len() > 9 {
        return None;
    }
    let (one, fraction) = (10u128.pow(decimals.len() as u32), decimals.parse::<u128>().ok()?);
    let part = (fraction << shift).div_ceil(one) as u64;
    whole.parse::<u64>().ok()?.checked_mul(1 << shift)?.checked_add(part)
}

/// Whether a text is decimal digits and nothing else.
fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A duration in seconds, with up to nine decimals, in nanoseconds.
pub fn seconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if !is_decimal(whole) || !is_decimal(decimals) || decimals.len() > 9 {
        return None;
    }
    let fraction = decimals.parse::<u64>().ok()? * 10u64.pow(9 - decimals.len() as u32);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)
}

/// Rights by their letters: `rwxd`; dashes may stand between.
pub fn rights(text: &str) -> Option<Rights> {
    let mut rights = Rights::NONE;
    for letter in text.chars() {
        rights = rights.union(match letter {
            'r' => Rights::R,
            'w' => Rights::W,
            'x' => Rights::X,
            'd' => Rights::D,
            '-' => Rights::NONE,
            _ => return None,
        });
    }
    (!rights.is_empty()).then_some(rights)
}

/// Cuts text into lines of at most so many characters, between words. A line that is longer than that is one word.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.split('\n').next().unwrap_or(word).chars().count();
        if number > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column = match word.rsplit_once('\n') {
            Some((_, last)) => last.chars().count(),
            None => column + length,
        };
    }
    out
}

/// Text of an object, piece by piece: bytes that are no text and control characters become something that cannot change the
/// terminal's state, and characters may lie across pieces.
#[derive(Debug, Default)]
pub struct Printable {
    /// The beginning of a character.
    begun: Vec<u8>,
    /// Whether something was shown, and no newline behind it.
    open: bool,
}

impl Printable {
    /// The part of a piece that can be shown.
    pub fn piece(&mut self, bytes: &[u8]) -> String {
        let mut all = core::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        // A character has four bytes at most, and its first one alone is none of 0x80 to 0xbf.
        let from = (1..=all.len().min(3)).map(|back| all.len() - back);
        let last = from
            .into_iter()
            .find(|at| all.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80));
        if let Some(at) = last
            && let Err(error) = core::str::from_utf8(&all[at..])
            && error.error_len().is_none()
        {
            self.begun = all.split_off(at);
        }
        self.show(&all)
    }

    /// The text to show at the end: the rest, and a newline if one is missing.
    pub fn end(mut self) -> String {
        let rest = core::mem::take(&mut self.begun);
        let mut shown = self.show(&rest);
        if self.open {
            shown.push('\n');
        }
        shown
    }

    fn show(&mut self, bytes: &[u8]) -> String {
        let plain = |c: char| {
            if c.is_control() && c != '\n' && c != '\t' {
                '.'
            } else {
                c
            }
        };
        let shown: String = String::from_utf8_lossy(bytes).chars().map(plain).collect();
        self.open = match shown.chars().last() {
            Some(last) => last != '\n',
            None => self.open,
        };
        shown
    }
}

/// Shows bytes in the largest unit that keeps three digits: `4 KiB`, `3.7 MiB`.
#[derive(Copy, Clone, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut tenths, mut unit) = (u128::from(self.0) * 10, 0);
        while tenths >= 10_240 && unit < UNITS.len() - 1 {
            tenths /= 1024;
            unit += 1;
        }
        let text = if tenths.is_multiple_of(10) || unit == 0 {
            alloc::format!("{} {}", tenths / 10, UNITS[unit])
        } else {
            alloc::format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
        };
        f.pad(&text)
    }
}

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Shows nanoseconds as seconds, milliseconds or microseconds.
#[derive(Copy, Clone, Debug)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0..10_000 => alloc::format!("{} ns", self.0),
            10_000..10_000_000 => alloc::format!("{} µs", self.0 / 1_000),
            10_000_000..10_000_000_000 => alloc::format!("{} ms", self.0 / 1_000_000),
            _ => alloc::format!("{}.{} s", self.0 / 1_000_000_000, self.0 / 100_000_000 % 10),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use names::Quoted;

    use super::*;

    fn cut(line: &str) -> Vec<String> {
        words(line).expect("words")
    }

    #[test]
    fn lines_fall_into_words() {
        assert_eq!(cut("  create  a 10K "), ["create", "a", "10K"]);
        assert_eq!(
            cut("write a 0 'two  words' x\\ y \"a\\\"b'c\""),
            ["write", "a", "0", "two  words", "x y", "a\"b'c"]
        );
        assert_eq!(cut("echo '' a''b"), ["echo", "", "ab"]);
        assert_eq!(cut("echo a#b # comment"), ["echo", "a#b"]);
        assert!(cut(" # nothing").is_empty());
        assert_eq!(words("echo 'a"), Err(LineError::OpenQuote('\'')));
        assert_eq!(words("echo a\\"), Err(LineError::LastBackslash));
        for (line, operator) in [
            ("hello > x", '>'),
            ("hello >x", '>'),
            ("a|b", '|'),
            ("a; b", ';'),
            ("a && b", '&'),
            ("a &", '&'),
        ] {
            assert_eq!(words(line), Err(LineError::Operator(operator)), "{line}");
        }
        assert_eq!(cut("echo '>' a;b \\| x&y"), ["echo", ">", "a;b", "|", "x&y"]);
    }

    #[test]
    fn words_are_completed_with_their_quotes() {
        assert_eq!(last_word(""), (0, String::new()));
        assert_eq!(last_word("cat my\\ no"), (4, "my no".into()));
        assert_eq!(last_word("cat 'my no"), (4, "my no".into()));
        assert_eq!(last_word("cat \"a\\\" b"), (4, "a\" b".into()));
        assert_eq!(last_word("rm a\\"), (3, "a".into()));
        assert_eq!(last_word("rm a "), (5, String::new()));
        let quoted = |name| Quoted(name).to_string();
        for name in ["my notes", "#a", "a'b\"c\\d", "x>y", "a&", "b; c", "ä\u{a0}b"] {
            assert_eq!(cut(&alloc::format!("cat {}", quoted(name))), ["cat", name]);
            assert_eq!(last_word(&quoted(name)), (0, name.into()));
        }
    }

    #[test]
    fn numbers_sizes_and_times() {
        assert_eq!(
            (number("0x10"), number("10"), number("-1"), number("")),
            (Some(16), Some(10), None, None)
        );
        assert_eq!((number("+1"), number("0x+1"), number("0x")), (None, None, None));
        assert_eq!(
            (size("4K"), size("1g"), size("0x10"), size("K"), size("")),
            (Some(4096), Some(1 << 30), Some(16), None, None)
        );
        assert_eq!(size("99999999999G"), None);
        for text in ["1.5M", "1.5MiB", "1.5 MiB", "1536K", "1536 KiB", "1572864 B", "1.500MB"] {
            assert_eq!(size(text), Some(3 << 19), "{text}");
        }
        assert_eq!(
            (size("0.0001K"), size("0x1B"), size("0x1KiB")),
            (Some(1), Some(27), Some(1024))
        );
        for text in [
            "1.5",
            "1.5B",
            ".5K",
            "1.K",
            "1.+5K",
            "1.5.5K",
            "0x1.5K",
            "KiB",
            "iB",
            "B",
            "4iB",
            "1.0000000001G",
            "16777216T",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
        assert_eq!(
            (seconds("1.5"), seconds("0.000000001"), seconds("2")),
            (Some(1_500_000_000), Some(1), Some(2_000_000_000))
        );
        assert_eq!(
            (
                seconds(""),
                seconds("."),
                seconds("-1"),
                seconds("1.+5"),
                seconds("99999999999")
            ),
            (None, None, None, None, None)
        );
    }

    #[test]
    fn text_is_shown_whole_in_whatever_pieces_it_comes() {
        let text = "aä€𝄞\x1b[1m\nend".as_bytes();
        for size in 1..=text.len() {
            let mut printable = Printable::default();
            let mut shown: String = text.chunks(size).map(|piece| printable.piece(piece)).collect();
            shown += &printable.end();
            assert_eq!(shown, "aä€𝄞.[1m\nend\n", "pieces of {size}");
        }
        let mut printable = Printable::default();
        assert_eq!(
            printable.piece(b"a\xffb\xe2\x82") + &printable.end(),
            "a\u{fffd}b\u{fffd}\n"
        );
        assert_eq!(Printable::default().end(), "");
    }

    #[test]
    fn lines_are_cut_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 6), "one\ntwo\nthree");
        assert_eq!(wrapped("one\ntwo three", 9), "one\ntwo three");
        assert_eq!(wrapped("überlänge a b", 5), "überlänge\na b");
        assert_eq!(wrapped("", 5), "");
    }

    #[test]
    fn rights_are_letters() {
        assert_eq!(rights("rw"), Some(Rights::RW));
        assert_eq!(rights("r--d"), Some(Rights::R.union(Rights::D)));
        assert_eq!(
            (rights(""), rights("q"), rights("-"), rights("p")),
            (None, None, None, None)
        );
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1023, 4096, 3_874_816, 1 << 30, 1 << 62].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "4 KiB", "3.6 MiB", "1 GiB", "4194304 TiB"]);
        // What is shown can be typed, and means the same.
        for shown in shown {
            let bytes = size(&shown).expect("a size");
            assert_eq!(Bytes(bytes).to_string(), shown);
        }
    }
}
