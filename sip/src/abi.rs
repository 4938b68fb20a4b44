//! How compiled functions pass values. The context goes in `rdi`; the first five integers or
//! references and the first eight floats or vectors follow in registers; everything else travels
//! through the area at the start of the runtime block, 16 bytes a value, written just before the
//! call and read first thing after it. Nothing is passed on the stack, so a callee pops nothing but
//! its return address, tail calls move no frames, and no pointer into a frame ever exists.

use crate::module::ValType;
use alloc::vec::Vec;

/// Integer parameters in registers, after the context.
pub const INT_PARAMS: usize = 5;
/// Integer results in registers.
pub const INT_RESULTS: usize = 6;
/// Float parameters or results in registers.
pub const FLOATS: usize = 8;

/// The place where a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The n-th integer register of the convention.
    Int(usize),
    /// The n-th vector register.
    Float(usize),
    /// The n-th value of the area.
    Area(usize),
}

fn places(types: &[ValType], ints: usize) -> Vec<Place> {
    let (mut int, mut float, mut area) = (0, 0, 0);
    let mut next = |counter: &mut usize, limit: usize, place: fn(usize) -> Place| {
        if *counter < limit {
            *counter += 1;
            place(*counter - 1)
        } else {
            area += 1;
            Place::Area(area - 1)
        }
    };
    types
        .iter()
        .map(|ty| {
            if ty.is_vector_class() {
                next(&mut float, FLOATS, Place::Float)
            } else {
                next(&mut int, ints, Place::Int)
            }
        })
        .collect()
}

/// The places of the parameters. `Place::Int(0)` is the first after the context.
pub fn params(types: &[ValType]) -> Vec<Place> {
    places(types, INT_PARAMS)
}

/// The places of the results.
pub fn results(types: &[ValType]) -> Vec<Place> {
    places(types, INT_RESULTS)
}
