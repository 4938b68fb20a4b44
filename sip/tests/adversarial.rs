//! Modules that mean harm: each is refused, or stopped, with a message that says what it did. Tests of
//! channels and blocks stand in `channels.rs` and `exchange.rs`.

mod support;
use sip::compile::{Bounds, Options, compile};
use sip::exec::{Extern, Store, Val};
use sip::module::Refusal;
use std::fmt::Write;
use support::program;

/// The result of a call of `run`, in both modes.
fn outcomes(text: &str) -> [String; 2] {
    [Bounds::Guard, Bounds::Explicit].map(|bounds| {
        let program = program(text, bounds);
        let mut store = Store::new().expect("memory");
        let instance = match store.instantiate(&program, &[]) {
            Ok(instance) => instance,
            Err(error) => return error.to_string(),
        };
        let Some(Extern::Func(run)) = store.export(instance, "run") else {
            panic!("no 'run'")
        };
        match store.call(run, &[]) {
            Ok(values) => format!("{values:?}"),
            Err(trap) => trap.to_string(),
        }
    })
}

#[track_caller]
fn says(text: &str, words: &str) {
    for said in outcomes(text) {
        assert!(said.starts_with(words), "{said}\n{text}");
    }
}

#[test]
fn indirect_calls() {
    let table = |call: &str| {
        format!(
            r#"(module (type $unary (func (param i32))) (type $f (func (param f64) (result f64)))
            (table 10 100 funcref) (elem (i32.const 1) $unary)
            (func $unary (param i32)) (func (export "run") {call}))"#
        )
    };
    let call = |ty: &str, arguments: &str, at: i64| {
        table(&format!(
            "(drop (call_indirect (type {ty}) {arguments} (i32.const {at})))"
        ))
    };
    says(
        &call("$f", "(f64.const 1)", 1),
        "indirect call type mismatch at byte 0x",
    );
    says(&call("$f", "(f64.const 1)", 2), "uninitialized element at byte 0x");
    says(
        &call("$f", "(f64.const 1)", 10),
        "out of bounds table access at byte 0x",
    );
    says(
        &call("$f", "(f64.const 1)", -1),
        "out of bounds table access at byte 0x",
    );
    says(
        &table("(call_indirect (type $unary) (i32.const 1) (i32.const 0x7fffffff))"),
        "out of bounds table access at byte 0x",
    );
}

#[test]
fn recursion_of_every_kind() {
    says(
        r#"(module (func $f (export "run") (call $f) (call $f)))"#,
        "call stack exhausted",
    );
    says(
        r#"(module (type $t (func)) (table 1 funcref) (elem (i32.const 0) $f)
           (func $f (export "run") (call_indirect (type $t) (i32.const 0)) (call $f)))"#,
        "call stack exhausted",
    );
    // With frames of many kilobytes, and parameters that travel through the area.
    let many = "i64 ".repeat(500);
    let zeros = "(i64.const 1) ".repeat(500);
    says(
        &format!(
            r#"(module (func $f (param {many}) (call $f {zeros}) (call $f {zeros})) (func (export "run") (call $f {zeros})))"#
        ),
        "call stack exhausted",
    );
    // A tail call is no recursion: ten million of them return.
    says(
        r#"(module (func $f (param i32) (result i32)
             (if (result i32) (local.get 0) (then (return_call $f (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 5))))
           (func (export "run") (result i32) (call $f (i32.const 10000000))))"#,
        "[I32(5)]",
    );
}

#[test]
fn limits_of_memories_and_tables() {
    let run = |body: &str| {
        format!(
            r#"(module (memory 1 3) (table 5 7 funcref) (elem declare func $run)
            (func $run (export "run") (result i32) {body}))"#
        )
    };
    says(&run("(memory.grow (i32.const 3))"), "[I32(-1)]");
    says(&run("(memory.grow (i32.const -1))"), "[I32(-1)]");
    says(
        &run("(drop (memory.grow (i32.const 2))) (memory.grow (i32.const 1))"),
        "[I32(-1)]",
    );
    says(&run("(table.grow (ref.null func) (i32.const 3))"), "[I32(-1)]");
    says(&run("(table.grow (ref.null func) (i32.const -1))"), "[I32(-1)]");
    says(&run("(i32.load (i32.const 65533))"), "out of bounds memory access");
    says(
        &run("(i32.load offset=0xffffffff (i32.const -1))"),
        "out of bounds memory access",
    );
    says(
        &run("(memory.fill (i32.const 65000) (i32.const 1) (i32.const 1000)) (i32.const 0)"),
        "out of bounds memory",
    );
    says(
        &run("(memory.copy (i32.const -1) (i32.const 0) (i32.const 2)) (i32.const 0)"),
        "out of bounds memory",
    );
    says(
        &run("(table.set (i32.const 5) (ref.func $run)) (i32.const 0)"),
        "out of bounds table",
    );
    // All that a module may ask for is reserved, not used.
    says(
        r#"(module (memory 0 65536) (func (export "run") (result i32) (memory.size)))"#,
        "[I32(0)]",
    );
}

fn refusal(text: &str) -> Refusal {
    compile(&wat::parse_str(text).expect("text"), Options::default()).expect_err("over a limit")
}

#[track_caller]
fn over(text: &str, limit: &str) {
    match refusal(text) {
        Refusal::Limit { what, .. } => assert_eq!(what, limit),
        other => panic!("{other}"),
    }
}

#[test]
fn modules_over_the_limits() {
    let many = |count: usize, one: &str| format!("(module {})", one.repeat(count));
    over(&many(65, "(memory 0)"), "memories");
    over(&many(65, "(table 0 funcref)"), "tables");
    over("(module (table 2000000 funcref))", "elements of a table");
    over(&many(65_537, "(global i32 (i32.const 0))"), "globals");
    let mut locals = vec![
        0, b'a', b's', b'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 10, 8, 1, 6, 1,
    ];
    locals.extend([0xd0, 0x86, 0x03, 0x7f, 0x0b]); // 50,000 of i32 …
    assert!(compile(&locals, Options::default()).is_ok());
    locals[23] = 0xd1; // … and one
    assert!(matches!(
        compile(&locals, Options::default()),
        Err(Refusal::Limit {
            what: "locals of a function",
            ..
        } | Refusal::Invalid { .. })
    ));
    let nested = format!("(module (func {} {}))", "block ".repeat(5_100), "end ".repeat(5_100));
    over(&nested, "nested blocks");
}

/// A function hard for a compiler, twice as large, may not take much more than twice as long: measured in the
/// verifier's and the compiler's own output, not in time. Their sizes grow with the input.
#[test]
fn large_functions_are_only_large() {
    let sizes = [200, 400, 800].map(|count| {
        let mut body = String::new();
        for at in 0..count {
            let _ = write!(
                body,
                "(if (i32.eq (local.get 0) (i32.const {at})) (then (i32.store offset={at} (local.get 0) (call $f (local.get 0)))))"
            );
        }
        let text = format!("(module (memory 1) (func $f (param i32) (result i32) {body} (local.get 0)))");
        let image = compile(&wat::parse_str(&text).expect("text"), Options::default()).expect("compiles");
        sip::verify::check(&image).expect("proved");
        image.code.len()
    });
    assert!(sizes[2] < 5 * sizes[0], "{sizes:?}");
    // A switch of many arms into few targets, and a chain of joins.
    let arms = "0 1 2 ".repeat(5_000);
    let text = format!(
        r#"(module (func (export "run") (result i32) (block (block (block (br_table {arms} 0 (i32.const 9999)))
        (return (i32.const 7))) (return (i32.const 8))) (i32.const 9)))"#
    );
    says(&text, "[I32(7)]");
}

#[test]
fn start_functions_and_segments_that_trap() {
    says(r"(module (func $f unreachable) (start $f))", "unreachable");
    says(
        r#"(module (memory 1) (data (i32.const 65535) "ab"))"#,
        "out of bounds memory access",
    );
    says(
        r"(module (table 1 funcref) (elem (i32.const 1) $f) (func $f))",
        "out of bounds table access",
    );
    says(
        r#"(module (memory 1) (data (i32.const -1) "a"))"#,
        "out of bounds memory access",
    );
}

#[test]
fn host_functions_are_not_reached_by_force() {
    // Handles of functions are numbers of the engine's: a table holds what was put in, nothing else.
    let values =
        outcomes(r#"(module (table 3 externref) (func (export "run") (result externref) (table.get (i32.const 2))))"#);
    for value in values {
        assert_eq!(value, format!("{:?}", [Val::ExternRef(0)]));
    }
}
