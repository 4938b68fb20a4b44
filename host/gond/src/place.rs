//! Where things are: the sources, what is built from them, and a folder for the moment.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the source tree: where this tool was built from, unless `GOND_ROOT` says otherwise.
pub fn root() -> Result<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = std::env::var_os("GOND_ROOT").map_or_else(built, PathBuf::from);
    let root = root
        .canonicalize()
        .with_context(|| format!("there is no source tree at {}", root.display()))?;
    if root.join("kernel/linker.ld").is_file() && root.join("Cargo.toml").is_file() {
        return Ok(root);
    }
    bail!(
        "{} is not Gondwana's source tree: start the script ./gond that stands in it",
        root.display()
    )
}

/// A folder that goes away with the value. Its path is short, because sockets' paths must be.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder that did not exist.
    pub fn make() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("gond-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make the folder {}", path.display())),
            }
        }
    }

    /// Where something of this name goes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
