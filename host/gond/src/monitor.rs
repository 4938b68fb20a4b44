//! The monitor of a running machine: what this computer wants of its emulator, over QEMU's machine protocol.
//!
//! `gond run` has the emulator listen beside the image, at `IMAGE.monitor`, which goes away with it. Only who may change the image may connect. The name follows from the image's, so another
//! run of this tool finds it.

use crate::debugger::SocketName;
use crate::machine::Machine;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the longest name of a socket.
const NAME_MAX: usize = 107;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The monitor's name, if a socket can have it.
fn name_of(image: &Path) -> Option<PathBuf> {
    let mut name = image.as_os_str().to_owned();
    name.push(".monitor");
    (name.len() <= NAME_MAX).then(|| name.into())
}

/// Gives a machine a monitor, where there can be one. The lock of its image must be held: what listens there is of a run that was killed.
pub fn place(machine: &mut Machine) -> Option<SocketName> {
    let name = name_of(&machine.disk)?;
    if let Ok(found) = std::fs::symlink_metadata(&name) {
        // Somebody's file stays.
        if !found.file_type().is_socket() || std::fs::remove_file(&name).is_err() {
            return None;
        }
    }
    let tried = std::os::unix::net::UnixListener::bind(&name).ok()?;
    drop(tried);
    std::fs::remove_file(&name).ok()?;
    // A monitor can have its emulator do anything that this user may do: so nobody else may connect to the socket.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    machine.monitor = Some(name.clone());
    Some(SocketName(name))
}

/// A connection to a monitor.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// That of the system which runs on an image, if it has one.
    pub fn of(image: &Path) -> Option<Result<Self>> {
        let stream = UnixStream::connect(name_of(image)?).ok()?;
        Some(Self::meet(stream))
    }

    fn meet(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self {
            lines: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines
            .read_line(&mut line)
            .context("the emulator does not answer")?;
        serde_json::from_str(&line).context("the emulator ended, or says what is no answer")
    }

    /// Has the emulator do something, and waits for that.
    ///
    /// # Errors
    /// The emulator refuses, in its words, or does not answer.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.lines.get_mut().write_all(format!("{request}\n").as_bytes())?;
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                bail!("the emulator says: {}", error["desc"].as_str().unwrap_or("no"));
            }
            // Events come in between.
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }
}
