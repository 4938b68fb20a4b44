//! `gond sip new`: a project that works, made of the example in `sip/guest`: a contract, its bindings,
//! and the two programs that keep it.

use crate::{Outcome, bindings, misused};
use sip::contract::Contract;
use std::path::Path;

const CONTRACT: &str = include_str!("../../../sip/guest/words/words.contract");
const SUPPORT: &str = include_str!("../../../sip/guest/gondwana.rs");
const CLIENT: &str = include_str!("../../../sip/guest/words/client.rs");
const SERVER: &str = include_str!("../../../sip/guest/words/server.rs");

/// The files of a project: paths in it and contents.
pub fn files(name: &str) -> Result<Vec<(&'static str, String)>, String> {
    let contract = Contract::parse(CONTRACT).map_err(|error| error.to_string())?;
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [[bin]]\nname = \"client\"\npath = \"src/client.rs\"\n\n\
         [[bin]]\nname = \"server\"\npath = \"src/server.rs\"\n\n\
         [profile.release]\npanic = \"abort\"\n\n[workspace]\n"
    );
    let build = "#!/bin/sh\n# Builds both programs and runs them, joined by the channel; the arguments are the texts.\nset -eu\n\
        gond=${GOND:-gond}\n\
        command -v \"$gond\" >/dev/null || {\n    \
        echo \"run: there is no '$gond': put the folder of gond into PATH, or its place into GOND\" >&2\n    \
        exit 1\n}\n\
        cargo build --release --target wasm32-wasip1\n\
        \"$gond\" sip run --channel words.contract target/wasm32-wasip1/release/client.wasm \"$@\" \
        target/wasm32-wasip1/release/server.wasm\n";
    Ok(vec![
        ("Cargo.toml", manifest),
        (".gitignore", "/target/\n".into()),
        ("words.contract", CONTRACT.into()),
        ("src/gondwana.rs", SUPPORT.into()),
        ("src/words.rs", bindings::rust_module(&contract)),
        ("src/client.rs", CLIENT.into()),
        ("src/server.rs", SERVER.into()),
        ("run", build.into()),
    ])
}

/// Runs `gond sip new`.
pub fn command(words: &[String]) -> Outcome {
    let [name] = words else {
        return Err(misused("new wants one NAME"));
    };
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !good {
        return Err((
            format!("'{name}' is no name for a project: letters, digits, '-' and '_'"),
            2,
        ));
    }
    let fail = |error: std::io::Error| (format!("{name}: {error}"), 1);
    std::fs::create_dir(name).map_err(fail)?;
    std::fs::create_dir(format!("{name}/src")).map_err(fail)?;
    for (path, content) in files(name).map_err(|text| (text, 1))? {
        std::fs::write(format!("{name}/{path}"), content).map_err(fail)?;
    }
    // A user who has called it by a path may have none in PATH.
    let gond = std::env::var_os("GOND_ROOT").map(|root| Path::new(&root).join("gond"));
    let gond = gond.map_or_else(String::new, |gond| format!("GOND='{}' ", gond.display()));
    println!(
        "made {name}: two programs in Rust that a channel joins. Build and run them:\n\n  \
         cd {name}\n  rustup target add wasm32-wasip1\n  {gond}sh run 'the first text' 'and a second one'\n\n\
         words.contract says what the two may say to each other, src/client.rs and src/server.rs say it.\n\
         After a change of the contract: gond sip contract words.contract --rust > src/words.rs"
    );
    Ok(0)
}
