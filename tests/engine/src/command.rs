//! A module out of an object, run in this task.

use crate::platform;
use alloc::{format, string::String, string::ToString, vec::Vec};
use core::fmt::Write;
use rt::{Directory, Kind, Object, Rights, println};
use sip::compile::{Options, compile};
use sip::exec::{Extern, Program, Store, Val};
use sip::module::ValType;
use sip::verify::verify;

/// Memory that a process may take unless the command line says otherwise.
const SECONDS: u64 = 60;
/// The function that is called unless another is named.
const START: &str = "_start";

/// Bytes of the object that a name leads to.
fn read(name: &str) -> Result<Vec<u8>, String> {
    let fail = |error: rt::Error| format!("{name}: {error}");
    let found = Directory::root().and_then(|root| root.find(name)).map_err(fail)?;
    if found.kind != Kind::Data {
        return Err(format!(
            "{name}: it is no data; 'gond import DISK FILE.wasm NAME' brings a module in"
        ));
    }
    let object = Object::open(found.capability.address).map_err(|error| fail(error.into()))?;
    let bytes = if found.word == 0 { object.bytes() } else { found.word };
    let cells = object.region().cells().iter().take(bytes as usize);
    Ok(cells.map(rt::Cell::get).collect())
}

fn value(word: &str, ty: ValType) -> Result<Val, String> {
    let wrong = || format!("'{word}' is no {ty:?}");
    Ok(match ty {
        ValType::I32 => Val::I32(word.parse().map_err(|_| wrong())?),
        ValType::I64 => Val::I64(word.parse().map_err(|_| wrong())?),
        ValType::F32 => Val::F32(word.parse::<f32>().map_err(|_| wrong())?.to_bits()),
        ValType::F64 => Val::F64(word.parse::<f64>().map_err(|_| wrong())?.to_bits()),
        _ => return Err(format!("a {ty:?} cannot be written on a command line")),
    })
}

fn show(values: &[Val]) -> String {
    let mut text = String::new();
    for value in values {
        let _ = match value {
            Val::I32(value) => write!(text, "{value} "),
            Val::I64(value) => write!(text, "{value} "),
            Val::F32(bits) => write!(text, "{} ", f32::from_bits(*bits)),
            Val::F64(bits) => write!(text, "{} ", f64::from_bits(*bits)),
            other => write!(text, "{other:?} "),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Runs `engine [--seconds N] MODULE [FUNCTION [NUMBERS]]`.
pub fn run(words: &[&str]) -> Result<(), String> {
    let (seconds, words) = match words {
        ["--seconds", seconds, rest @ ..] => match seconds.parse() {
            Ok(seconds) => (seconds, rest),
            Err(_) => return Err(format!("'{seconds}' is no number of seconds")),
        },
        all => (SECONDS, all),
    };
    let Some((name, call)) = words.split_first() else {
        return Err("which module? 'engine [--seconds N] MODULE [FUNCTION [NUMBERS]]'".into());
    };
    let (function, numbers) = call.split_first().unwrap_or((&START, &[]));
    let fail = |text: String| format!("{name}: {text}");

    let image = compile(&read(name)?, Options::default()).map_err(|refusal| fail(refusal.to_string()))?;
    if let Some(import) = image.module.imports.first() {
        let (module, name) = (&import.module, &import.name);
        return Err(fail(format!("it imports {module}.{name}: nothing is provided here")));
    }
    let image = verify(image).map_err(|violation| fail(format!("not proved: {violation}")))?;
    let program = Program::load(image).map_err(|error| fail(error.to_string()))?;
    // From here on code of the module may run.
    let code = program.code_range();
    let watch = move || {
        let _ = rt::time::sleep_ns(seconds * 1_000_000_000);
        platform::set_runnable(&code, Rights::R);
        0
    };
    rt::thread::spawn(watch).map_err(|error| fail(error.to_string()))?;

    let mut store = Store::new().map_err(|error| fail(error.to_string()))?;
    let stopped = |text: String| fail(format!("the process was stopped: {text}"));
    let instance = store
        .instantiate(&program, &[])
        .map_err(|error| stopped(error.to_string()))?;
    let Some(Extern::Func(handle)) = store.export(instance, function) else {
        return Err(fail(format!("it exports no function '{function}'")));
    };
    let types = store
        .function_type(handle)
        .map(|ty| ty.params.clone())
        .unwrap_or_default();
    if types.len() != numbers.len() {
        return Err(fail(format!("'{function}' takes {} numbers", types.len())));
    }
    let values: Result<Vec<Val>, String> = numbers.iter().zip(types).map(|(word, ty)| value(word, ty)).collect();
    let results = store.call(handle, &values?).map_err(|trap| stopped(trap.to_string()))?;
    if !results.is_empty() {
        println!("{}", show(&results));
    }
    Ok(())
}
