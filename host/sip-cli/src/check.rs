//! `gond sip check`: what a module imports, and whether its machine code is proved.

use crate::{Outcome, explicit, misused, read};
use sip::compile::{Options, compile};
use sip::contract::Side;
use sip::module::{EntityType, Module};
use sip::verify::check;
use std::time::Instant;

fn describe(module: &Module, ty: &EntityType) -> String {
    match ty {
        EntityType::Func(ty) => {
            let ty = &module.types[*ty as usize];
            format!("function {:?} -> {:?}", ty.params, ty.results)
        }
        EntityType::Table(_) => "table".into(),
        EntityType::Memory(limits) => format!("memory of {} pages or more", limits.min),
        EntityType::Global(_) => "global".into(),
    }
}

/// Runs `gond sip check`.
pub fn command(words: &[String]) -> Outcome {
    let (flags, files): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with("--"));
    let mut options = Options::default();
    for flag in flags {
        match flag.as_str() {
            "--explicit" => options = explicit(),
            other => return Err(misused(&format!("check knows no option {other}"))),
        }
    }
    let [file] = files[..] else {
        return Err(misused("check wants one FILE.wasm"));
    };
    let bytes = read(file)?;
    let start = Instant::now();
    let image = compile(&bytes, options).map_err(|refusal| (format!("{file}: {refusal}"), 1))?;
    let compiled = start.elapsed();
    println!(
        "{file}: {} bytes, {} functions, compiled in {compiled:.1?}",
        bytes.len(),
        image.functions.len()
    );
    let mut contracts = Vec::new();
    for import in &image.module.imports {
        println!(
            "  imports {}.{}: {}",
            import.module,
            import.name,
            describe(&image.module, &import.ty)
        );
        if let Some((side, name, key)) = Side::of_module(&import.module) {
            let line = format!("  is the {} of the contract {name}, version {key:016x}", side.name());
            if !contracts.contains(&line) {
                contracts.push(line);
            }
        }
    }
    for line in contracts {
        println!("{line}");
    }
    let start = Instant::now();
    match check(&image) {
        Ok(instructions) => {
            let spent = start.elapsed();
            println!(
                "proved: {} bytes of machine code, {instructions} instructions, in {spent:.1?}",
                image.code.len()
            );
            Ok(0)
        }
        Err(violation) => Err((format!("{file}: NOT proved: {violation}"), 1)),
    }
}
