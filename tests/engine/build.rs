//! Makes the sample's bytes out of its text.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/sample.wat");
    let into = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&into).join("sample.wasm"), wat::parse_file("src/sample.wat")?)?;
    Ok(())
}
