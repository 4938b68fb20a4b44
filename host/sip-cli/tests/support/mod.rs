//! Tools that the tests of `gond sip` share: a folder for each test, and runs that end.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A folder of a test's own, gone at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gond-sip-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a run ended; `None` if it had to be stopped. And its standard output and error.
pub struct Ended {
    pub status: Option<ExitStatus>,
    pub said: [String; 2],
}

fn collect(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Runs a command, at most so long. If its input is a pipe, that stays open, and nothing comes.
pub fn finish(command: &mut Command, limit: Duration) -> std::io::Result<Ended> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let input = child.stdin.take();
    let streams = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if start.elapsed() > limit => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    drop(input);
    let said = streams.map(|stream| stream.and_then(|stream| stream.join().ok()).unwrap_or_default());
    Ok(Ended { status, said })
}
