//! The line editor: bytes of the terminal in, a line and what to draw out.
//!
//! A pure state machine. [`Editor::feed`] takes one byte and writes what the terminal shall show into a
//! string; the caller moves both. The whole line is drawn anew after each change, on one row: where the
//! row is too short a window of the line is shown, so that no terminal size matters but [`WIDTH`].

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::Write;

use rt::names::Quoted;

/// Columns that are used: every terminal has them.
pub const WIDTH: usize = 79;
/// Lines that are remembered.
const HISTORY: usize = 100;
/// Characters of a line at most.
pub const LONGEST: usize = 1_000;

/// The effect of a byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing yet.
    None,
    /// A line is ready.
    Line(String),
    /// A line was ended that is longer than [`LONGEST`]: it is not given, for its beginning alone says something else.
    TooLong,
    /// The line was given up.
    Interrupted,
    /// The input ended: Ctrl-D on an empty line.
    End,
}

/// Tells what a word may be completed to: gets the line up to the cursor, and gives where in it the
/// word begins (in bytes) and all complete words, as they are without quotes.
pub type Complete<'c> = &'c dyn Fn(&str) -> (usize, Vec<String>);

/// Where a control sequence stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Escape {
    /// In none.
    No,
    /// After ESC.
    Begun,
    /// After `ESC [` or `ESC O`, with the number so far.
    Sequence(u32),
}

/// The editor of one terminal.
#[derive(Debug)]
pub struct Editor {
    prompt: &'static str,
    line: Vec<char>,
    cursor: usize,
    history: Vec<String>,
    /// Which line of the history is shown; its length if the new one is.
    shown: usize,
    /// The new line, while another is shown, and whether it had no room for all of its characters.
    draft: (Vec<char>, bool),
    escape: Escape,
    /// Bytes of a character that has not all come yet.
    partial: Vec<u8>,
    /// Characters came that the line had no room for.
    overlong: bool,
    /// The last key was a tab that could not complete: the next one lists.
    tabbed: bool,
    /// The last byte was a carriage return, so a newline behind it is no other line.
    returned: bool,
}

impl Editor {
    /// An editor with an empty line.
    pub fn new(prompt: &'static str) -> Self {
        Self {
            prompt,
            line: Vec::new(),
            cursor: 0,
            history: Vec::new(),
            shown: 0,
            draft: (Vec::new(), false),
            escape: Escape::No,
            partial: Vec::new(),
            overlong: false,
            tabbed: false,
            returned: false,
        }
    }

    /// Draws the prompt and the line.
    pub fn draw(&self, out: &mut String) {
        let room = WIDTH - self.prompt.len();
        let start = if self.cursor < room { 0 } else { self.cursor + 1 - room };
        let visible = self.line.iter().skip(start).take(room);
        // Writing to a string does not fail, here and below.
        let _ = write!(out, "\r{}{}\x1b[K", self.prompt, visible.clone().collect::<String>());
        let behind = visible.count() - (self.cursor - start).min(room);
        if behind > 0 {
            let _ = write!(out, "\x1b[{behind}D");
        }
    }

    /// Takes a byte of input.
    pub fn feed(&mut self, byte: u8, complete: Complete<'_>, out: &mut String) -> Event {
        let (tabbed, returned) = (self.tabbed, self.returned);
        self.tabbed = false;
        self.returned = byte == b'\r';
        // A control character is no part of a sequence, and must not be lost in one that was cut: it could be what gives the line up.
        if byte < 0x20 {
            self.escape = Escape::No;
        }
        match self.escape {
            Escape::Begun => {
                self.escape = if matches!(byte, b'[' | b'O') {
                    Escape::Sequence(0)
                } else {
                    Escape::No
                };
                return Event::None;
            }
            Escape::Sequence(number) => {
                self.sequence(byte, number, out);
                return Event::None;
            }
            Escape::No => {}
        }
        match byte {
            b'\n' if returned => {}
            b'\r' | b'\n' => return self.finish(out),
            3 => {
                out.push_str("^C\n");
                self.reset();
                return Event::Interrupted;
            }
            4 if self.line.is_empty() => return Event::End,
            b'\t' => self.tab(tabbed, complete, out),
            0x1b => self.escape = Escape::Begun,
            0..0x20 | 0x7f => self.control(byte, out),
            _ => self.text(byte, out),
        }
        Event::None
    }

    /// The line is ready.
    fn finish(&mut self, out: &mut String) -> Event {
        out.push('\n');
        if self.overlong {
            self.reset();
            return Event::TooLong;
        }
        let line: String = self.line.iter().collect();
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            if self.history.len() == HISTORY {
                self.history.remove(0);
            }
            self.history.push(line.clone());
        }
        self.reset();
        Event::Line(line)
    }

    fn reset(&mut self) {
        self.line.clear();
        self.draft.0.clear();
        self.cursor = 0;
        self.shown = self.history.len();
        self.partial.clear();
        self.overlong = false;
    }

    /// A byte of a control sequence.
    fn sequence(&mut self, byte: u8, number: u32, out: &mut String) {
        self.escape = Escape::No;
        match (byte, number) {
            (b'0'..=b'9', _) => {
                self.escape = Escape::Sequence(number.saturating_mul(10).saturating_add(u32::from(byte - b'0')));
                return;
            }
            (b';', _) => {
                self.escape = Escape::Sequence(0);
                return;
            }
            (b'A', _) => self.recall(self.shown.checked_sub(1)),
            (b'B', _) => self.recall(self.shown.checked_add(1)),
            (b'C', _) => self.cursor = (self.cursor + 1).min(self.line.len()),
            (b'D', _) => self.cursor = self.cursor.saturating_sub(1),
            (b'H', _) | (b'~', 1 | 7) => self.cursor = 0,
            (b'F', _) | (b'~', 4 | 8) => self.cursor = self.line.len(),
            (b'~', 3) => self.delete(self.cursor, self.cursor + 1),
            _ => return,
        }
        self.draw(out);
    }

    /// A control character that edits.
    fn control(&mut self, byte: u8, out: &mut String) {
        match byte {
            1 => self.cursor = 0,
            2 => self.cursor = self.cursor.saturating_sub(1),
            4 => self.delete(self.cursor, self.cursor + 1),
            5 => self.cursor = self.line.len(),
            6 => self.cursor = (self.cursor + 1).min(self.line.len()),
            8 | 0x7f => self.delete(self.cursor.saturating_sub(1), self.cursor),
            11 => self.delete(self.cursor, self.line.len()),
            12 => out.push_str("\x1b[H\x1b[2J"),
            14 => self.recall(self.shown.checked_add(1)),
            16 => self.recall(self.shown.checked_sub(1)),
            21 => self.delete(0, self.cursor),
            23 => self.delete(self.word_start(), self.cursor),
            _ => return,
        }
        self.draw(out);
    }

    /// A byte of text.
    fn text(&mut self, byte: u8, out: &mut String) {
        self.partial.push(byte);
        match core::str::from_utf8(&self.partial) {
            Ok(text) => {
                if self.line.len() >= LONGEST {
                    self.overlong = true;
                } else if let Some(character) = text.chars().next() {
                    self.line.insert(self.cursor, character);
                    self.cursor += 1;
                }
                self.partial.clear();
                self.draw(out);
            }
            // Bytes that can still become a character wait for its rest.
            Err(error) if error.error_len().is_none() => {}
            Err(_) => self.partial.clear(),
        }
    }

    fn delete(&mut self, from: usize, to: usize) {
        let to = to.min(self.line.len());
        if from < to {
            self.line.drain(from..to);
            self.cursor = from;
            self.overlong &= !self.line.is_empty();
        }
    }

    /// Where the word before the cursor begins.
    fn word_start(&self) -> usize {
        let before = &self.line[..self.cursor];
        let end = before
            .iter()
            .rposition(|character| *character != ' ')
            .map_or(0, |index| index + 1);
        before[..end]
            .iter()
            .rposition(|character| *character == ' ')
            .map_or(0, |index| index + 1)
    }

    /// Shows a line of the history, or the new one behind it.
    fn recall(&mut self, index: Option<usize>) {
        let Some(index) = index.filter(|index| *index <= self.history.len()) else {
            return;
        };
        if self.shown == self.history.len() {
            self.draft = (core::mem::take(&mut self.line), self.overlong);
        }
        self.shown = index;
        (self.line, self.overlong) = match self.history.get(index) {
            Some(line) => (line.chars().collect(), false),
            None => core::mem::take(&mut self.draft),
        };
        self.cursor = self.line.len();
    }

    /// Completes the word before the cursor as far as it is certain; a second tab lists the rest.
    fn tab(&mut self, again: bool, complete: Complete<'_>, out: &mut String) {
        let before: String = self.line[..self.cursor].iter().collect();
        let (start, words) = complete(&before);
        let typed = before.get(start..).unwrap_or("");
        let Some(common) = common_prefix(&words) else { return };
        let mut completed = Quoted(common).to_string();
        // Behind the only word a space follows, unless it is a directory.
        if words.len() == 1 && !common.ends_with('/') {
            completed.push(' ');
        }
        let nothing_new = completed == typed;
        let from = self.cursor - typed.chars().count();
        self.line.splice(from..self.cursor, completed.chars());
        self.cursor = from + completed.chars().count();
        if nothing_new && again {
            out.push('\n');
            for word in &words {
                let _ = write!(out, "{word}  ");
            }
            out.push('\n');
        }
        self.tabbed = nothing_new;
        self.draw(out);
    }
}

/// The longest common beginning of all words; none if there are no words.
fn common_prefix(words: &[String]) -> Option<&str> {
    let (first, rest) = words.split_first()?;
    let mut length = first.len();
    for word in rest {
        length = first
            .char_indices()
            .zip(word.chars())
            .take_while(|((at, a), b)| *at < length && a == b)
            .map(|((at, a), _)| at + a.len_utf8())
            .last()
            .unwrap_or(0);
    }
    first.get(..length)
}

#[cfg(test)]
mod tests;
