//! Where the C sources of other people's libraries are: crates that carry them, fetched by cargo and never
//! built (`bench/link/sources`). For tests and benchmarks.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of a crate; `None`, with the reason said, if it is neither there nor can be fetched.
pub fn find(name: &str) -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/link/sources/Cargo.toml");
    let ask = |more: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
        cargo.arg(&manifest).args(more).output()
    };
    let found = ask(&["--offline"]).ok().filter(|output| output.status.success());
    let output = match found.map_or_else(|| ask(&[]), Ok) {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            eprintln!("no sources: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Err(error) => {
            eprintln!("no sources: cargo: {error}");
            return None;
        }
    };
    let metadata: Value = serde_json::from_slice(&output).ok()?;
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|one| one["name"] == name)?;
    let manifest = Path::new(package["manifest_path"].as_str()?);
    Some(manifest.parent()?.to_path_buf())
}
