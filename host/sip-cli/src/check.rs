//! `gond sip check`: what a module imports, and whether its machine code is proved.

use crate::{Outcome, explicit, image, misused};
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
    let mut options = None;
    for flag in flags {
        match flag.as_str() {
            "--explicit" => options = Some(explicit()),
            other => return Err(misused(&format!("check knows no option {other}"))),
        }
    }
    let [file] = files[..] else {
        return Err(misused("check wants one FILE.wasm"));
    };
    let start = Instant::now();
    let image = image::load(file, options)?;
    let spent = start.elapsed();
    println!(
        "{file}: {} functions, compiled or read in {spent:.1?}",
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
        Err(_) => Err((image::refusals(file, &image), 1)),
    }
}
