//! Keys in, lines out; what is drawn is interpreted by a small terminal.

use super::{Editor, Event, common_prefix};

fn names(before: &str) -> (usize, Vec<String>) {
    let (start, word) = crate::text::last_word(before);
    let all = ["hello", "help", "hero/", "my notes", "my other notes", "oo1"];
    (
        start,
        all.iter()
            .filter(|name| name.starts_with(&word))
            .map(|name| (*name).into())
            .collect(),
    )
}

/// One row of a terminal.
#[derive(Default)]
struct Terminal {
    row: Vec<char>,
    column: usize,
}

impl Terminal {
    fn show(&mut self, text: &str) {
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '\r' => self.column = 0,
                '\n' => *self = Self::default(),
                '\x1b' => {
                    assert_eq!(characters.next(), Some('['));
                    let mut number = String::new();
                    let end = loop {
                        match characters.next().expect("a whole sequence") {
                            digit @ '0'..='9' => number.push(digit),
                            end => break end,
                        }
                    };
                    match end {
                        'K' => self.row.truncate(self.column),
                        'D' => self.column -= number.parse::<usize>().unwrap(),
                        'H' | 'J' => *self = Self::default(),
                        other => panic!("sequence {other}"),
                    }
                }
                other => {
                    self.row.resize(self.row.len().max(self.column + 1), ' ');
                    self.row[self.column] = other;
                    self.column += 1;
                }
            }
        }
        assert!(self.column <= super::WIDTH);
    }
}

struct Session {
    editor: Editor,
    terminal: Terminal,
    lines: Vec<Event>,
    drawn: String,
}

impl Session {
    fn new() -> Self {
        Self {
            editor: Editor::new("$ "),
            terminal: Terminal::default(),
            lines: Vec::new(),
            drawn: String::new(),
        }
    }

    fn keys(&mut self, keys: &str) -> &mut Self {
        for byte in keys.bytes() {
            let mut out = String::new();
            match self.editor.feed(byte, &names, &mut out) {
                Event::None => {}
                event => self.lines.push(event),
            }
            self.terminal.show(&out);
            self.drawn.push_str(&out);
        }
        self
    }

    fn line(&self) -> String {
        self.editor.line.iter().collect()
    }
}

fn typed(keys: &str) -> String {
    let mut session = Session::new();
    session.keys(keys).keys("\r");
    match session.lines.as_slice() {
        [Event::Line(line)] => line.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_edit_the_line() {
    assert_eq!(typed("abc"), "abc");
    assert_eq!(typed("abc\x1b[D\x1b[DX"), "aXbc");
    assert_eq!(typed("abc\x1b[HX\x1b[FY"), "XabcY");
    assert_eq!(typed("abc\x1bOHX\x1bOFY"), "XabcY");
    assert_eq!(typed("abc\x1b[1~X\x1b[4~Y"), "XabcY");
    assert_eq!(typed("abc\x01X\x05Y"), "XabcY");
    assert_eq!(typed("abc\x7f\x08d"), "ad");
    assert_eq!(typed("abc\x01\x1b[3~"), "bc");
    assert_eq!(typed("abc def\x17x"), "abc x");
    assert_eq!(typed("abc def  \x17x"), "abc x");
    assert_eq!(typed("abcdef\x1b[D\x1b[D\x0b"), "abcd");
    assert_eq!(typed("abcdef\x1b[D\x1b[D\x15"), "ef");
    assert_eq!(typed("gröߟe\x7f\x7fx"), "gröx");
    assert_eq!(typed("a\x1b[5~b\x1bxc\x1b[1;5Cd"), "abcd");
}

#[test]
fn history_goes_up_and_down_and_keeps_the_draft() {
    let mut session = Session::new();
    session.keys("one\rtwo\rtwo\r \rdraft\x1b[A");
    assert_eq!(session.line(), "two");
    session.keys("\x1b[A");
    assert_eq!(session.line(), "one");
    session.keys("\x1b[A\x1b[B\x1b[B");
    assert_eq!(session.line(), "draft");
    session.keys("\x1b[B\x10\x10\x0e!\r");
    assert_eq!(session.lines.last(), Some(&Event::Line("two!".into())));
}

#[test]
fn tab_completes_and_lists() {
    assert_eq!(typed("o\t"), "oo1 ");
    assert_eq!(typed("x hel\tl\t"), "x hello ");
    assert_eq!(typed("her\tx"), "hero/x");
    assert_eq!(typed("zz\t"), "zz");
    assert_eq!(typed("cat my\tn\t"), "cat my\\ notes ");
    assert_eq!(typed("cat 'my o\t"), "cat my\\ other\\ notes ");
    let mut session = Session::new();
    session.keys("he\t");
    assert!(!session.drawn.contains("hello"));
    session.keys("\t");
    assert!(session.drawn.contains("hello  help  hero/"));
    assert_eq!(session.line(), "he");
}

/// The beginning of a line is another line: one that is too long is not done.
#[test]
fn a_line_that_is_too_long_is_not_given() {
    let longest = "x".repeat(super::LONGEST);
    assert_eq!(typed(&longest), longest);
    let mut session = Session::new();
    session
        .keys(&longest)
        .keys("y\r")
        .keys("z\r")
        .keys(&longest)
        .keys("y\x15z\r")
        .keys(&longest)
        .keys("y\x1b[A\r")
        .keys(&longest)
        .keys("y\x1b[A\x1b[B\r");
    let z = Event::Line("z".into());
    assert_eq!(session.lines, [Event::TooLong, z.clone(), z.clone(), z, Event::TooLong]);
}

#[test]
fn control_c_gives_up_and_control_d_ends() {
    let mut session = Session::new();
    session.keys("abc\x03").keys("x\x04").keys("\x7f\x04");
    assert_eq!(session.lines, [Event::Interrupted, Event::End]);
}

/// A control character is never part of an escape sequence: what is given up is not run later.
#[test]
fn an_escape_that_is_cut_swallows_no_control_character() {
    for cut in ["\x1b", "\x1b[", "\x1bO", "\x1b[3", "\x1b[1;", "\x1b\x1b", "\x1b[\x1b"] {
        let mut session = Session::new();
        session.keys("rm notes").keys(cut).keys("\x03");
        assert!(session.drawn.ends_with("^C\n"), "{cut:?}");
        session.keys("\r").keys("abc").keys(cut).keys("\r\n");
        session.keys("abc").keys(cut).keys("\x01X").keys(cut).keys("\x1b[FY\r");
        let lines = ["", "abc", "XabcY"].map(|line| Event::Line(line.into()));
        assert_eq!(session.lines[0], Event::Interrupted);
        assert_eq!(session.lines[1..], lines, "{cut:?}");
    }
    // A key with Alt is an escape and a character, which are not text.
    assert_eq!(typed("a\x1bfb\x1b\x7fc"), "abc");
}

#[test]
fn return_and_newline_together_are_one_line() {
    let mut session = Session::new();
    session.keys("a\r\nb\nc\n");
    assert_eq!(session.lines.len(), 3);
}

/// Whatever is typed, the row shows the prompt, and the cursor stands at its character.
#[test]
fn the_row_shows_the_line() {
    let keys = [
        "a",
        "ü",
        " ",
        "\x1b[D",
        "\x1b[C",
        "\x7f",
        "\x01",
        "\x05",
        "\x1b[A",
        "\x1b[B",
        "\t",
        "\x17",
        "x\r",
        "abcdefghij",
    ];
    let mut seed = 3u64;
    let mut session = Session::new();
    for _ in 0..5_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        session.keys(keys[(seed >> 33) as usize % keys.len()]);
        let row: String = session.terminal.row.iter().collect();
        if session.terminal.row.is_empty() {
            continue;
        }
        let window = row.strip_prefix("$ ").expect("the prompt");
        let before = session.terminal.column - 2;
        let shown_before: String = window.chars().take(before).collect();
        let line_before: String = session.editor.line[..session.editor.cursor].iter().collect();
        assert!(line_before.ends_with(&shown_before), "{row:?} {line_before:?}");
        assert!(session.line().contains(window), "{row:?}");
    }
}

#[test]
fn prefixes_end_between_characters() {
    let words = |list: &[&str]| list.iter().map(|word| String::from(*word)).collect::<Vec<_>>();
    assert_eq!(common_prefix(&words(&["grün", "grüße"])), Some("grü"));
    assert_eq!(common_prefix(&words(&["é", "è"])), Some(""));
    assert_eq!(common_prefix(&words(&["abcd", "abce", "ab"])), Some("ab"));
    assert_eq!(common_prefix(&[]), None);
}
