//! Rust with tables, traits and checks, and no variables: for the corpus of the fuzzer. See README.md.
#![no_std]
#![crate_type = "lib"]
pub trait Shape {
    fn area(&self) -> u64;
}
pub struct Square(u64);
pub struct Oblong(u64, u64);
impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}
impl Shape for Oblong {
    fn area(&self) -> u64 {
        self.0 * self.1
    }
}
static NAMES: [&str; 3] = ["one", "two", "three"];
#[no_mangle]
pub extern "C" fn rust_area(kind: u64, a: u64, b: u64) -> u64 {
    let (square, oblong) = (Square(a), Oblong(a, b));
    let shapes: [&dyn Shape; 2] = [&square, &oblong];
    shapes[(kind % 2) as usize].area() + NAMES[(b % 3) as usize].len() as u64
}
#[no_mangle]
pub extern "C" fn rust_digest(words: &[u64; 16]) -> u64 {
    words.iter().enumerate().fold(0, |sum, (index, word)| match index % 7 {
        0 => sum ^ word,
        1 => sum.wrapping_add(*word),
        2 => sum.rotate_left(7),
        3 => sum.wrapping_mul(word | 1),
        4 => sum | word,
        5 => sum.swap_bytes(),
        _ => !sum,
    })
}
