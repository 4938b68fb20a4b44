//! What cargo says while it builds, and whether it waits for another one.
//!
//! Cargo tells at once that it waits for a lock. The lock of the package cache every cargo of the user has for a moment at every
//! run, whatever it builds, so a wait is told only if it lasts.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// A wait that is no longer than this is not told.
pub const BRIEF: Duration = Duration::from_millis(500);

/// Something that is heard of cargo.
#[derive(PartialEq, Eq, Debug)]
pub enum Heard {
    /// It has printed a line.
    Line(String),
    /// It waits; for whom, as a sentence.
    Waits(&'static str),
}

/// For whom cargo waits, if a line says that it does. The script `gond` says the same.
fn waits_for(line: &str) -> Option<&'static str> {
    let (_, lock) = line.split_once("waiting for file lock")?;
    Some(if lock.contains("package cache") {
        "another cargo of this user uses the package cache; waiting for it"
    } else {
        "another cargo is building here; waiting for it"
    })
}

/// Hears lines until there are no more. A wait has lasted when no line follows for so long.
pub fn hear(lines: &Receiver<String>, brief: Duration, mut heard: impl FnMut(Heard)) {
    let mut waits = None;
    loop {
        let line = match waits {
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => lines.recv_timeout(brief),
        };
        match (line, waits) {
            (Ok(line), _) => {
                waits = waits_for(&line);
                heard(Heard::Line(line));
            }
            (Err(RecvTimeoutError::Timeout), Some(whom)) => {
                heard(Heard::Waits(whom));
                waits = None;
            }
            (Err(_), _) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const CACHE: &str = "    Blocking waiting for file lock on package cache";
    const FOLDER: &str = "    Blocking waiting for file lock on build directory";

    /// The waits that are told of these lines, each so long after the one before it.
    fn told(lines: &[(&'static str, u64)]) -> (usize, Vec<&'static str>) {
        let (sender, receiver) = channel();
        let lines = lines.to_vec();
        let speaker = std::thread::spawn(move || {
            for (line, after_ms) in lines {
                std::thread::sleep(Duration::from_millis(after_ms));
                let _ = sender.send(line.to_string());
            }
        });
        let (mut printed, mut waits) = (0, Vec::new());
        hear(&receiver, Duration::from_millis(200), |heard| match heard {
            Heard::Line(_) => printed += 1,
            Heard::Waits(whom) => waits.push(whom),
        });
        speaker.join().expect("it has spoken");
        (printed, waits)
    }

    #[test]
    fn only_a_wait_that_lasts_is_told() {
        assert_eq!(
            told(&[(CACHE, 0), (FOLDER, 0), ("   Compiling a", 0), ("   Compiling b", 400)]),
            (4, Vec::new())
        );
        assert_eq!(told(&[(CACHE, 0)]), (1, Vec::new()));
        let (printed, waits) = told(&[(CACHE, 0), ("   Compiling a", 600), (FOLDER, 0), ("   Finished", 600)]);
        assert_eq!(printed, 4);
        assert_eq!(
            waits,
            [
                "another cargo of this user uses the package cache; waiting for it",
                "another cargo is building here; waiting for it"
            ]
        );
    }
}
