#![allow(dead_code)]
mod place; mod machine; mod script; mod display; mod arguments;
fn main(){}
