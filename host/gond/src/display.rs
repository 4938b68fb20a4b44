//! Progress and complaints, on standard error.
//!
//! On a terminal a running job owns one line that is drawn again as it goes on, in colour; elsewhere each
//! job that takes long enough to matter prints one plain line. `NO_COLOR` is respected.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Jobs shorter than this pass without a word.
const PATIENCE: Duration = Duration::from_millis(600);

/// Whether standard error is a terminal.
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

fn coloured() -> bool {
    on_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn paint(code: &str, text: &str) -> String {
    if coloured() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Green, on a terminal.
pub fn good(text: &str) -> String {
    paint("32", text)
}

/// Red, on a terminal.
pub fn bad(text: &str) -> String {
    paint("31", text)
}

/// Grey, on a terminal.
pub fn faint(text: &str) -> String {
    paint("2", text)
}

/// Tells an error. What it quotes does nothing to the terminal.
pub fn complain(text: &str) {
    let lead = bad("gond:");
    eprintln!("{lead} {}", harmless(text));
}

/// Text in which characters that control a terminal stand as escapes, but for ends of lines and tabs.
fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        if names::path::controls(c) && c != '\n' && c != '\t' {
            harmless.extend(c.escape_unicode());
        } else {
            harmless.push(c);
        }
    }
    harmless
}

/// Tells something worth knowing.
pub fn note(text: &str) {
    let lead = paint("36", "gond:");
    eprintln!("{lead} {text}");
}

/// Text without colours and other control characters.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut pieces = text.split('\x1b');
    plain.extend(pieces.next());
    for piece in pieces {
        // A sequence ends with its first letter.
        let end = piece
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(piece.len(), |at| at + 1);
        plain.push_str(&piece[end..]);
    }
    plain.retain(|c| !c.is_control());
    plain
}

/// A job that may take long.
pub struct Job {
    what: String,
    started: Instant,
    drawn: Option<Instant>,
    announced: bool,
}

impl Job {
    /// Begins a job; nothing is shown yet.
    pub fn begin(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            started: Instant::now(),
            drawn: None,
            announced: false,
        }
    }

    /// Shows how far it is. May be called as often as one likes.
    pub fn step(&mut self, detail: &str) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if !on_terminal() {
            if !self.announced {
                self.announced = true;
                note(&format!("{} …", self.what));
            }
            return;
        }
        if self.drawn.is_some_and(|at| at.elapsed() < Duration::from_millis(100)) {
            return;
        }
        self.drawn = Some(Instant::now());
        let seconds = self.started.elapsed().as_secs();
        let detail: String = plain(detail).chars().take(60).collect();
        let line = format!(
            "\r\x1b[K{} {} {}",
            paint("36", "gond:"),
            self.what,
            faint(&format!("({seconds} s) {detail}"))
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Shows how far it is on a terminal, and nowhere else, once it has taken a second.
    pub fn step_on_terminal(&mut self, detail: &str) {
        if on_terminal() && self.elapsed() >= Duration::from_secs(1) {
            self.step(detail);
        }
    }

    /// Takes the line away, before something else is printed.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }

    /// How long the job has been going on.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{harmless, plain};

    #[test]
    fn complaints_do_nothing_to_the_terminal() {
        let text = "'a\x1b[31m\u{202e}b' is not a name\n\tä";
        assert_eq!(harmless(text), "'a\\u{1b}[31m\\u{202e}b' is not a name\n\tä");
    }

    #[test]
    fn progress_shows_no_escape_codes() {
        assert_eq!(
            plain("\x1b[1m\x1b[32m   Compiling\x1b[0m abi v0.1.0\r"),
            "   Compiling abi v0.1.0"
        );
        assert_eq!(plain("nothing"), "nothing");
        assert_eq!(plain("\x1b["), "");
    }
}
