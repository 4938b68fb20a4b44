//! A process whose addresses are used up. It stands alone in a file: nothing else of its program could run beside it.

mod support;
use sip::compile::Bounds;
use sip::exec::{LinkError, Store};
use support::program;

/// A number that the function of an instance had that could not be made names nothing, also if it is forged: its
/// context is empty, and its code would find a memory at address 0 there.
#[test]
fn functions_of_an_instance_that_could_not_be_made() {
    let large = program(&format!("(module {} (func))", "(memory 0)".repeat(64)), Bounds::Guard);
    let small = program("(module (func))", Bounds::Guard);
    let mut store = Store::new().expect("memory");
    let mut made = 0;
    let error = loop {
        match store.instantiate(&large, &[]) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, LinkError::NoMemory);
    assert!(store.function_type(made).is_some());
    assert!(store.function_type(made + 1).is_none());
    assert!(store.instantiate(&small, &[]).is_ok());
    assert!(store.function_type(made + 1).is_some());
}
