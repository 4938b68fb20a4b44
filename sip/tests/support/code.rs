//! Machine code in the place of a module's one function, and what the verifier says of it.
#![allow(dead_code, reason = "not every test uses all of it")]

use sip::compile::{Bounds, Image, Options, compile};
use sip::verify::{Reason, check};

pub const MODULE: &str = r#"(module (memory 1) (table 8 funcref) (data "x")
    (func (export "run") (param i32 i32) (result i32) (i32.load (local.get 0))))"#;

/// The module with this machine code as its one function, to whose end `ud2` is added.
pub fn image(code: &[u8], bounds: Bounds) -> Image {
    let options = Options {
        bounds,
        ..Options::default()
    };
    let mut image = compile(&wat::parse_str(MODULE).expect("text"), options).expect("compiles");
    image.code = code.to_vec();
    image.code.extend_from_slice(&[0x0f, 0x0b]);
    image.functions[0] = 0..image.code.len() as u32;
    (image.traps, image.calls) = (Vec::new(), Vec::new());
    image
}

/// The answer in guard mode.
pub fn verdict(code: &[u8]) -> Result<(), Reason> {
    verdict_with(code, Bounds::Guard)
}

/// The answer in either mode.
pub fn verdict_with(code: &[u8], bounds: Bounds) -> Result<(), Reason> {
    let checked = check(&image(code, bounds));
    checked.map(|_| ()).map_err(|violation| violation.reason)
}

/// `mov REGISTER, [rdi + at]`, the register by its number.
pub fn field(register: u8, at: u32) -> Vec<u8> {
    let mut code = vec![0x48, 0x8b, 0x87 | register << 3];
    code.extend_from_slice(&at.to_le_bytes());
    code
}
