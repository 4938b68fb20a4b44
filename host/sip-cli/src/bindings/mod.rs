//! `gond sip contract`: checks a contract, and makes what programs are written against: a Rust module
//! in which each state of a conversation is a type, or a C header.

#![allow(clippy::format_collect, reason = "short lists of fields, read as they will stand")]

mod c;
mod rust;

use crate::{Outcome, misused, read_contract};
use sip::contract::{Contract, Side};

/// Runs `gond sip contract`.
pub fn command(words: &[String]) -> Outcome {
    let (flags, files): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with("--"));
    let [file] = files[..] else {
        return Err(misused("contract wants one FILE.contract"));
    };
    let contract = read_contract(file)?;
    match flags[..] {
        [] => describe(&contract),
        [flag] if flag == "--rust" => print!("{}", rust_module(&contract)),
        [flag] if flag == "--c" => print!("{}", c_header(&contract)),
        _ => return Err(misused("contract takes one of --rust and --c")),
    }
    Ok(0)
}

/// The Rust module of a contract.
pub fn rust_module(contract: &Contract) -> String {
    rust::module(contract)
}

/// The C header of a contract.
pub fn c_header(contract: &Contract) -> String {
    c::header(contract)
}

fn describe(contract: &Contract) {
    for side in [Side::Client, Side::Server] {
        println!("{}", contract.import_module(side));
        for (at, message) in contract.messages.iter().enumerate() {
            if contract.sends(side, at) {
                println!("  {}: {:?}", message.name, contract.send_type(at).params);
            }
        }
    }
    println!("at most {} messages under way in one direction", contract.queue());
}

/// Words of a name: `get_page` and `GetPage` are two.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut lower = false;
    for c in name.chars() {
        if c == '_' {
            lower = false;
            words.push(String::new());
            continue;
        }
        if words.is_empty() || (lower && c.is_uppercase()) {
            words.push(String::new());
        }
        lower = c.is_lowercase() || c.is_ascii_digit();
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A name as Rust's functions have.
fn snake(name: &str) -> String {
    words(name).join("_")
}

/// A name as Rust's types have.
fn camel(name: &str) -> String {
    let big = |word: &String| {
        let mut chars = word.chars();
        chars.next().map_or(String::new(), |first| {
            first.to_ascii_uppercase().to_string() + chars.as_str()
        })
    };
    words(name).iter().map(big).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["get_page", "GetPage", "getPage", "Get_Page"] {
            assert_eq!(
                (snake(name).as_str(), camel(name).as_str()),
                ("get_page", "GetPage"),
                "{name}"
            );
        }
        assert_eq!(camel("A2b"), "A2b");
    }
}
