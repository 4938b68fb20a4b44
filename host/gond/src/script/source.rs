//! Where a script's lines come from: a list, a file, or standard input as it is typed.
//!
//! A thread reads, so that the loop that follows the guest never waits for a line.

use abi::host;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Where lines come from: the events that carry them.
pub struct Source(Receiver<std::result::Result<String, String>>);

impl Source {
    /// From a list.
    pub fn lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let (sender, receiver) = channel();
        for line in lines {
            let _ = sender.send(Ok(line.to_owned()));
        }
        Self(receiver)
    }

    /// From a file, or from standard input if the name is `-`. Read as it comes.
    pub fn open(name: &Path) -> Result<Self> {
        let reader: Box<dyn BufRead + Send> = if name == Path::new("-") {
            Box::new(BufReader::new(std::io::stdin()))
        } else {
            let file =
                std::fs::File::open(name).with_context(|| format!("cannot read the script {}", name.display()))?;
            if file.metadata()?.is_dir() {
                bail!("cannot read the script {}: it is a folder", name.display());
            }
            Box::new(BufReader::new(file))
        };
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for (index, line) in reader.lines().enumerate() {
                let line = match line {
                    Ok(line) if line.len() > host::LINE_BYTES => {
                        Err(format!("line {} is longer than {} bytes", index + 1, host::LINE_BYTES))
                    }
                    Ok(line) => Ok(line),
                    Err(error) => Err(format!("cannot read line {}: {error}", index + 1)),
                };
                let stop = line.is_err();
                if sender.send(line).is_err() || stop {
                    return;
                }
            }
        });
        Ok(Self(receiver))
    }
}

/// The result of a look at the source.
pub enum Next {
    /// A line.
    Line(String),
    /// None yet.
    Wait,
    /// None any more.
    End,
    /// Something that cannot be a line, as described; it ends the script.
    Bad(String),
}

impl Source {
    /// The next line that is neither empty nor a comment.
    pub fn next(&mut self) -> Next {
        loop {
            match self.0.try_recv() {
                Ok(Ok(line)) => {
                    let text = line.trim();
                    if !text.is_empty() && !text.starts_with('#') {
                        return Next::Line(text.to_owned());
                    }
                }
                Ok(Err(error)) => return Next::Bad(error),
                Err(TryRecvError::Empty) => return Next::Wait,
                Err(TryRecvError::Disconnected) => return Next::End,
            }
        }
    }
}
